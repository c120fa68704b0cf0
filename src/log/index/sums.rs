//! Checks an index file by sums over entries and slots, in parts and in parallel, without a slot
//! table in memory.
//!
//! In a valid file each entry is named exactly once, by its slot's next entry or by the slot, and
//! links decrease. So comparing sums of hashes of named and existing entries is enough.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use super::check::{Records, header_fault};
use super::file::IndexFile;
use super::reader::Head;
use crate::error::Result;
use crate::format::bytes::i32_in;
use crate::format::index::{ENTRY_LEN, IndexEntry, IndexHeader, SLOT_LEN};
use crate::format::width::{clamp_u32, to_usize};

/// Maximum entries or slots of a part: some MiB.
const PART_ENTRIES: u32 = 1 << 17;
const PART_SLOTS: u32 = 1 << 19;

/// A file being summed, as it was at the start.
#[derive(Debug)]
pub struct IndexSums<'a> {
    file: &'a IndexFile,
    header: IndexHeader,
    count: u32,
    /// Random for each check, so that no file can be crafted to match.
    keys: [u64; 2],
}

#[derive(Clone, Debug)]
pub enum Part {
    Entries(Range<u32>),
    Slots(Range<u32>),
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    unnamed: u64,
    /// Whether an entry is implausible by itself or after the previous one.
    is_wrong: bool,
    span: Option<(i64, i64)>,
}

impl IndexFile {
    /// Starts summing the entries that the header counts now.
    pub fn sums(&self) -> Result<IndexSums<'_>> {
        let Head { header, count } = self.head()?;
        let drawn = RandomState::new();
        let keys = [drawn.hash_one(0), drawn.hash_one(1) | 1];
        Ok(IndexSums { file: self, header, count, keys })
    }
}

impl IndexSums<'_> {
    #[must_use]
    pub fn entry_count(&self) -> u32 {
        self.count.saturating_sub(1)
    }

    /// Parts of the whole file, in order.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        let slots = self.file.layout().slots();
        let entries = ranges(1, self.count, PART_ENTRIES).map(Part::Entries);
        entries.chain(ranges(0, slots, PART_SLOTS).map(Part::Slots)).collect()
    }

    pub fn whole(&self) -> Result<Sum> {
        self.parts().iter().try_fold(Sum::default(), |sum, part| Ok(sum.join(self.sum(part)?)))
    }

    pub fn sum(&self, part: &Part) -> Result<Sum> {
        match part {
            Part::Entries(numbers) => self.sum_entries(numbers),
            Part::Slots(slots) => self.sum_slots(slots),
        }
    }

    fn sum_entries(&self, numbers: &Range<u32>) -> Result<Sum> {
        let layout = self.file.layout();
        let position = layout.entry_position(numbers.start);
        let count = numbers.end.saturating_sub(numbers.start);
        let mut records = Records::<_, ENTRY_LEN>::new(self.file, position, count);
        let (mut unnamed, mut is_wrong) = (0_u64, false);
        let (mut first, mut last) = (None, i64::MIN);
        let mut number = numbers.start;
        while let Some(block) = records.next_block()? {
            for raw in block {
                let entry = IndexEntry::decode(raw);
                let slot = layout.slot_of(entry.key_hash);
                let older = clamp_u32(entry.prev_entry);
                is_wrong |= entry.key_hash < 0
                    || entry.seconds < 0
                    || entry.physical_offset < last
                    || older >= number;
                last = entry.physical_offset;
                first = first.or(Some(last));
                let named = if older == 0 { 0 } else { self.hash(slot, older) };
                unnamed = unnamed.wrapping_add(self.hash(slot, number)).wrapping_sub(named);
                number += 1;
            }
        }
        Ok(Sum { unnamed, is_wrong, span: first.map(|first| (first, last)) })
    }

    fn sum_slots(&self, slots: &Range<u32>) -> Result<Sum> {
        let position = self.file.layout().slot_position(slots.start);
        let count = slots.end.saturating_sub(slots.start);
        let mut records = Records::<_, SLOT_LEN>::new(self.file, position, count);
        let mut unnamed = 0_u64;
        let mut slot = slots.start;
        while let Some(block) = records.next_block()? {
            for raw in block {
                let newest = clamp_u32(i32_in::<0, SLOT_LEN>(raw));
                if newest > 0 {
                    unnamed = unnamed.wrapping_sub(self.hash(slot, newest));
                }
                slot += 1;
            }
        }
        Ok(Sum { unnamed, ..Sum::default() })
    }

    /// Whether the sum is that of a valid file. If not, [`IndexFile::check`] finds the fault, or
    /// that a writer was active.
    #[must_use]
    pub fn is_sound(&self, whole: &Sum) -> bool {
        let header = &self.header;
        let span = (header.begin_physical_offset, header.end_physical_offset);
        whole.unnamed == 0
            && !whole.is_wrong
            && whole.span.map_or(self.entry_count() == 0, |found| found == span)
            && header_fault(header, false).is_none()
    }

    #[inline]
    fn hash(&self, slot: u32, number: u32) -> u64 {
        let [first, second] = self.keys;
        let both = u64::from(slot) << 32 | u64::from(number);
        let mixed = (both ^ first).wrapping_mul(second);
        // A second round, so that sums differ for neighbours (the last step of MurmurHash3).
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        mixed ^ (mixed >> 33)
    }
}

impl Sum {
    /// Physical offsets of the first and last entry.
    #[must_use]
    pub fn span(&self) -> Option<(i64, i64)> {
        self.span
    }

    #[must_use]
    pub fn join(self, next: Self) -> Self {
        let is_before = |((_, last), (first, _)): ((i64, i64), (i64, i64))| first < last;
        let is_unordered = self.span.zip(next.span).is_some_and(is_before);
        let span = match (self.span, next.span) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (span, next) => span.or(next),
        };
        let unnamed = self.unnamed.wrapping_add(next.unnamed);
        Self { unnamed, is_wrong: self.is_wrong || next.is_wrong || is_unordered, span }
    }
}

fn ranges(from: u32, to: u32, most: u32) -> impl Iterator<Item = Range<u32>> {
    let step = to_usize(most);
    (from..to).step_by(step).map(move |start| start..to.min(start.saturating_add(most)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::files::Os;
    use crate::format::index::IndexLayout;
    use crate::log::index::file::IndexOpen;

    const LAYOUT: (u32, u32) = (10, 60);

    fn file() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("20261121073513325");
        let layout = IndexLayout::new(LAYOUT.0, LAYOUT.1).unwrap();
        let mut file = IndexFile::create(&Os, &path, layout, None).unwrap();
        for key in 0..50 {
            file.put_key(key * 7, i64::from(key) * 100, 1_000).unwrap();
        }
        file.flush().unwrap();
        (dir, path)
    }

    fn open(path: &Path) -> IndexFile {
        let layout = IndexLayout::new(LAYOUT.0, LAYOUT.1).unwrap();
        IndexFile::open(&Os, path, layout, IndexOpen::Read).unwrap()
    }

    fn judged(file: &IndexFile) -> (bool, bool) {
        let sums = file.sums().unwrap();
        let mut faults = 0;
        let entries = file.check(&mut |_| faults += 1).unwrap();
        assert_eq!(sums.entry_count(), entries);
        (sums.is_sound(&sums.whole().unwrap()), faults == 0)
    }

    #[test]
    fn parts_may_be_cut_anywhere() {
        let (_dir, path) = file();
        let file = open(&path);
        let sums = file.sums().unwrap();
        for entries_in_part in [1, 7, 50] {
            for slots_in_part in [1, 3, 10] {
                let entries = ranges(1, 51, entries_in_part).map(Part::Entries);
                let slots = ranges(0, 10, slots_in_part).map(Part::Slots);
                let mut whole = Sum::default();
                for part in entries.chain(slots) {
                    assert!(!sums.is_sound(&whole), "before {part:?}");
                    whole = whole.join(sums.sum(&part).unwrap());
                }
                assert!(sums.is_sound(&whole));
                assert_eq!(whole.span(), Some((0, 4_900)));
            }
        }
        assert_eq!(Sum::default().span(), None);
    }

    #[test]
    fn every_changed_byte_is_judged_as_by_a_look_at_each_entry() {
        let (_dir, path) = file();
        let raw = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(judged(&open(&path)), (true, true));
        let end = open(&path).layout().entry_position(51);
        let mut unsound = 0;
        for at in (0..end).filter(|at| !(32..40).contains(at)) {
            let mut byte = [0];
            raw.read_exact_at(&mut byte, at).unwrap();
            for flipped in [1_u8, 0x40, 0x80] {
                raw.write_all_at(&[byte[0] ^ flipped], at).unwrap();
                let (by_sums, by_look) = judged(&open(&path));
                assert_eq!(by_sums, by_look, "byte {at}, {flipped:#x}");
                unsound += usize::from(!by_look);
            }
            raw.write_all_at(&byte, at).unwrap();
        }
        assert!(unsound > 1_000, "{unsound}");
    }

    #[test]
    fn links_that_change_places_are_noticed() {
        let (_dir, path) = file();
        let raw = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let layout = *open(&path).layout();
        let link = |number: u32| {
            let mut bytes = [0; 4];
            raw.read_exact_at(&mut bytes, layout.entry_position(number) + 16).unwrap();
            bytes
        };
        for one in 1..=50 {
            for other in one + 1..=50 {
                let (first, second) = (link(one), link(other));
                let put = |number, link: [u8; 4]| {
                    raw.write_all_at(&link, layout.entry_position(number) + 16).unwrap();
                };
                put(one, second);
                put(other, first);
                assert_eq!(judged(&open(&path)), (first == second, first == second));
                put(one, first);
                put(other, second);
            }
        }
    }

    #[test]
    fn offsets_out_of_order_are_noticed_also_between_two_parts() {
        let (_dir, path) = file();
        let raw = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let layout = *open(&path).layout();
        raw.write_all_at(&5_000_i64.to_be_bytes(), layout.entry_position(20) + 4).unwrap();
        let file = open(&path);
        assert_eq!(judged(&file), (false, false));
        let sums = file.sums().unwrap();
        let entries = ranges(1, 51, 1).map(Part::Entries);
        let parts = entries.chain([Part::Slots(0..10)]);
        let whole = parts.fold(Sum::default(), |sum, part| sum.join(sums.sum(&part).unwrap()));
        assert!(!sums.is_sound(&whole));
    }

    #[test]
    fn a_file_without_entries_is_sound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("20261121073513325");
        let layout = IndexLayout::new(LAYOUT.0, LAYOUT.1).unwrap();
        IndexFile::create(&Os, &path, layout, None).unwrap();
        assert_eq!(judged(&open(&path)), (true, true));
    }
}
