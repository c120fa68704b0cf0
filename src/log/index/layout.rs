//! Detects the number of slots and entries of an index file, which are stored nowhere.

use std::path::Path;

use super::reader::{Head, IndexReader, ReadBytes};
use crate::error::{Error, Result};
use crate::files::StorageFile;
use crate::format::index::{ENTRY_LEN, HEADER_LEN, IndexEntry, IndexHeader, IndexLayout, SLOT_LEN};

/// Newer entries of a slot that a writer may add during detection.
const OVERTAKING: usize = 64;

/// Attempts on a file that grows meanwhile.
const ATTEMPTS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detection {
    Proven(IndexLayout),
    /// The length matches; no entry can prove more.
    Likely(IndexLayout),
    /// The file is unusable; the reason covers each candidate.
    Unknown {
        reason: String,
        /// The original layout of a damaged or truncated file.
        fits: Option<IndexLayout>,
    },
}

impl Detection {
    #[must_use]
    pub fn layout(&self) -> Option<IndexLayout> {
        match self {
            Self::Proven(layout) | Self::Likely(layout) => Some(*layout),
            Self::Unknown { .. } => None,
        }
    }
}

/// Detects the layout. Candidates: the configured one alone, else RocketMQ's defaults and four
/// entries for each slot. One must match the file's length and lead to the newest entry through its
/// slot.
pub fn detect_layout(
    file: &dyn StorageFile,
    path: &Path,
    configured: Option<IndexLayout>,
) -> Result<Detection> {
    let len = file.stat().map_err(Error::io("stat", path))?.len;
    let configured_or_default = configured.unwrap_or(IndexLayout::DEFAULT);
    let made_to_fit = match configured {
        Some(_) => None,
        None => one_to_four(len).filter(|layout| *layout != configured_or_default),
    };
    let (mut reasons, mut fits) = (Vec::new(), None);
    for layout in [configured_or_default].into_iter().chain(made_to_fit) {
        let against = if layout.file_len() == len {
            match newest_entry_is_found(file, path, &layout) {
                Ok(Some(true)) => return Ok(Detection::Proven(layout)),
                Ok(None) => return Ok(Detection::Likely(layout)),
                Ok(Some(false)) => "its newest entry is not in its slot".to_owned(),
                Err(Error::Corrupt(corruption)) => {
                    format!("expected {}, found {}", corruption.expected, corruption.found)
                }
                Err(error) => return Err(error),
            }
        } else {
            format!("a file of {} bytes", layout.file_len())
        };
        reasons.push(format!(
            "{} slots and {} entries: {against}",
            layout.slots(),
            layout.entries()
        ));
        if fits.is_none() && had_layout(file, path, &layout, made_to_fit == Some(layout))? {
            fits = Some(layout);
        }
    }
    reasons.insert(0, format!("{len} bytes"));
    Ok(Detection::Unknown { reason: reasons.join("; "), fits })
}

/// Whether an unusable file had this layout. Its first entry tells the number of slots, its length
/// the rest, unless entries contradict. But a file that ends after an entry and holds all counted
/// ones may be whole with another number of entries.
fn had_layout(
    file: &dyn StorageFile,
    path: &Path,
    layout: &IndexLayout,
    is_made_to_fit: bool,
) -> Result<bool> {
    let len = file.length().map_err(Error::io("stat", path))?;
    let mut head = [0; HEADER_LEN];
    file.read_at(&mut head, 0).map_err(Error::io("read", path))?;
    let head = IndexHeader::decode(&head);
    let mut first = [0; ENTRY_LEN];
    let at = layout.entry_position(1);
    let read = file.read_at(&mut first, at).map_err(Error::io("read", path))?;
    let entry = IndexEntry::decode(&first);
    let is_first = read == ENTRY_LEN
        && first != [0; ENTRY_LEN]
        && entry.physical_offset == head.begin_physical_offset
        && entry.prev_entry == 0;
    if layout.file_len() == len {
        return Ok(is_first || !is_made_to_fit || head.index_count <= 1);
    }
    let entries = len.saturating_sub(layout.entry_position(0));
    let is_whole = entries % ENTRY_LEN as u64 == 0
        && i64::try_from(entries / ENTRY_LEN as u64)
            .is_ok_and(|all| i64::from(head.index_count) <= all);
    Ok(is_first && !is_whole)
}

fn one_to_four(len: u64) -> Option<IndexLayout> {
    const UNIT: u64 = (SLOT_LEN + 4 * ENTRY_LEN) as u64;
    let units = len.checked_sub(HEADER_LEN as u64)?;
    let slots = u32::try_from(units / UNIT).ok().filter(|_| units % UNIT == 0)?;
    IndexLayout::new(slots, slots.checked_mul(4)?)
}

/// Through its slot; `None` without entries.
fn newest_entry_is_found(
    file: &dyn StorageFile,
    path: &Path,
    layout: &IndexLayout,
) -> Result<Option<bool>> {
    let mut bytes = ReadBytes::new(file, path);
    let mut head = Head::read(&mut bytes, layout)?;
    for _ in 0..ATTEMPTS {
        let newest = head.count.saturating_sub(1);
        if newest == 0 {
            return Ok(None);
        }
        let found = slot_leads_to(&mut bytes, layout, head, newest)?;
        let again = Head::read(&mut bytes, layout)?;
        // A running writer may have added newer entries to the slot.
        if found || again.count == head.count {
            return Ok(Some(found));
        }
        head = again;
    }
    Ok(Some(false))
}

/// Whether an entry is reached from its slot, behind a few newer ones at most.
fn slot_leads_to(
    bytes: &mut ReadBytes<'_>,
    layout: &IndexLayout,
    mut head: Head,
    wanted: u32,
) -> Result<bool> {
    let (head, findings) = (&mut head, &mut Vec::new());
    let reader = &mut IndexReader { bytes, layout, head, live: true, findings };
    let slot = layout.slot_of(reader.entry(wanted)?.key_hash);
    let mut walk = reader.start(slot)?;
    for _ in 0..OVERTAKING {
        if walk.next <= wanted {
            break;
        }
        reader.step(&mut walk)?;
    }
    Ok(walk.next == wanted)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    use super::*;
    use crate::files::{Access, Os, Storage};
    use crate::log::index::file::{IndexFile, IndexOpen};

    /// A file with `keys` entries, their hashes 0, 7, 14, ...
    pub(in crate::log) fn file(
        slots: u32,
        entries: u32,
        keys: i32,
    ) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("20261121073513325");
        let layout = IndexLayout::new(slots, entries).unwrap();
        let mut file = IndexFile::create(&Os, &path, layout, None).unwrap();
        for key in 0..keys {
            file.put_key(key * 7, i64::from(key) * 100, 1_000).unwrap();
        }
        file.flush().unwrap();
        (dir, path)
    }

    fn detect(path: &Path, configured: Option<(u32, u32)>) -> Detection {
        let configured =
            configured.map(|(slots, entries)| IndexLayout::new(slots, entries).unwrap());
        detect_layout(&*Os.open(path, Access::Read).unwrap(), path, configured).unwrap()
    }

    #[test]
    fn four_entries_for_a_slot_are_found_out() {
        let (_dir, path) = file(25, 100, 30);
        assert_eq!(detect(&path, None), Detection::Proven(IndexLayout::new(25, 100).unwrap()));
        assert_eq!(detect(&path, Some((25, 100))), detect(&path, None));
    }

    #[test]
    fn default_sizes_are_found_out() {
        let layout = IndexLayout::DEFAULT;
        let (_dir, path) = file(layout.slots(), layout.entries(), 3);
        assert_eq!(detect(&path, None), Detection::Proven(layout));
    }

    #[test]
    fn other_sizes_must_be_configured() {
        let (_dir, path) = file(20, 41, 30);
        let Detection::Unknown { reason, .. } = detect(&path, None) else { panic!("found") };
        assert_eq!(
            reason,
            "940 bytes; 5000000 slots and 20000000 entries: a file of 420000040 bytes"
        );
        assert_eq!(detect(&path, Some((20, 41))).layout(), IndexLayout::new(20, 41));
    }

    #[test]
    fn a_layout_of_the_right_length_that_the_newest_entry_denies_is_refused() {
        let (_dir, path) = file(20, 41, 30);
        let Detection::Unknown { reason, .. } = detect(&path, Some((30, 39))) else {
            panic!("found")
        };
        assert!(reason.ends_with("its newest entry is not in its slot"), "{reason}");
        let (_dir, path) = file(20, 41, 40);
        let Detection::Unknown { reason, .. } = detect(&path, Some((30, 39))) else {
            panic!("found")
        };
        assert!(reason.ends_with("expected a count of 0 to 39, found 41"), "{reason}");
    }

    #[test]
    fn a_file_without_entries_proves_nothing() {
        let (_dir, path) = file(25, 100, 0);
        assert_eq!(detect(&path, None), Detection::Likely(IndexLayout::new(25, 100).unwrap()));
        fs::write(&path, b"").unwrap();
        assert!(matches!(detect(&path, None), Detection::Unknown { .. }));
    }

    #[test]
    fn a_slot_past_the_count_speaks_against_the_layout() {
        let (_dir, path) = file(25, 100, 30);
        let raw = fs::OpenOptions::new().write(true).open(&path).unwrap();
        // Entry 30 is in the slot of entry 5.
        raw.write_all_at(&6_i32.to_be_bytes(), 36).unwrap();
        assert_eq!(detect(&path, None).layout(), None);
    }

    #[test]
    fn the_first_entry_or_the_length_tells_which_layout_a_damaged_file_had() {
        let (_dir, path) = file(25, 100, 30);
        let layout = IndexLayout::new(25, 100).unwrap();
        let raw = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let had = |configured| match detect(&path, configured) {
            Detection::Unknown { fits, .. } => fits,
            found => panic!("{found:?}"),
        };
        raw.write_all_at(&25_i32.to_be_bytes(), layout.entry_position(1)).unwrap();
        raw.write_all_at(&[0; 4], layout.slot_position(3)).unwrap();
        assert_eq!(had(None), Some(layout));
        raw.write_all_at(&[0; ENTRY_LEN], layout.entry_position(1)).unwrap();
        assert_eq!(had(None), None);
        assert_eq!(had(Some((25, 100))), Some(layout));
    }

    #[test]
    fn a_layout_is_found_out_while_the_newest_slot_is_written() {
        let (_dir, path) = file(5_000, 20_000, 1);
        let layout = IndexLayout::new(5_000, 20_000).unwrap();
        let mut file = IndexFile::open(&Os, &path, layout, IndexOpen::Write).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| while file.put_key(7, 100, 1_000).unwrap() {});
            while !writer.is_finished() {
                assert_eq!(detect(&path, None).layout(), Some(layout));
            }
        });
    }
}
