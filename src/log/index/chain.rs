//! The bytes of an index file and the way along its chains: from a slot to its newest entry, and from
//! each entry to the next older one.
//!
//! In a sound file every link leads to a smaller number, so a walk ends after as many steps as there
//! are entries at most, whatever the bytes say: a link that does not lead downward ends it, and is
//! reported. RocketMQ, which only looks for an entry that links to itself, goes round a longer circle
//! for ever.

use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::{MappedFile, StorageFile};
use crate::format::bytes::i32_in;
use crate::format::index::{ENTRY_LEN, HEADER_LEN, IndexEntry, IndexHeader, IndexLayout, SLOT_LEN};

/// How much is read at once on the way down a chain without a map; long chains have their entries
/// close together.
const BLOCK_LEN: usize = 4096;

/// How often a reader looks again at a count that lags behind the slots of a file being written.
pub(crate) const COUNT_ATTEMPTS: usize = 8;

/// Bytes of one index file, to be walked.
pub(crate) trait IndexBytes {
    /// `N` bytes as they are now.
    fn fresh<const N: usize>(&mut self, position: u64) -> Result<[u8; N]>;
    /// One entry; an entry once counted never changes, so it may come from an earlier read.
    fn entry(&mut self, position: u64) -> Result<[u8; ENTRY_LEN]>;
    /// Says that the bytes at `position` are wanted soon.
    fn prefetch(&self, position: u64);
    /// The file they belong to.
    fn path(&self) -> &Path;
}

/// An index file through a map.
#[derive(Clone, Copy)]
pub(crate) struct MapBytes<'a>(pub(crate) &'a MappedFile);

impl IndexBytes for MapBytes<'_> {
    #[inline]
    fn fresh<const N: usize>(&mut self, position: u64) -> Result<[u8; N]> {
        // Below 2^31, as all positions of a layout; another one is not in the file anyway.
        let at = usize::try_from(position).unwrap_or(usize::MAX);
        self.0.get_at(at).ok_or_else(|| too_short(self.0.path(), position, N, self.0.len() as u64))
    }

    #[inline]
    fn entry(&mut self, position: u64) -> Result<[u8; ENTRY_LEN]> {
        self.fresh(position)
    }

    #[inline]
    fn prefetch(&self, position: u64) {
        self.0.prefetch(usize::try_from(position).unwrap_or(usize::MAX));
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// An index file through positional reads.
pub(crate) struct ReadBytes<'a> {
    file: &'a dyn StorageFile,
    path: &'a Path,
    block: Vec<u8>,
    block_start: u64,
}

impl<'a> ReadBytes<'a> {
    pub(crate) fn new(file: &'a dyn StorageFile, path: &'a Path) -> Self {
        Self { file, path, block: Vec::new(), block_start: 0 }
    }

    fn cached(&self, position: u64) -> Option<[u8; ENTRY_LEN]> {
        let at = usize::try_from(position.checked_sub(self.block_start)?).ok()?;
        self.block.get(at..)?.first_chunk().copied()
    }
}

impl IndexBytes for ReadBytes<'_> {
    fn fresh<const N: usize>(&mut self, position: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        let read = self.file.read_at(&mut bytes, position).map_err(Error::io("read", self.path))?;
        if read < N {
            return Err(too_short(self.path, position, N, position.saturating_add(read as u64)));
        }
        Ok(bytes)
    }

    fn entry(&mut self, position: u64) -> Result<[u8; ENTRY_LEN]> {
        if let Some(entry) = self.cached(position) {
            return Ok(entry);
        }
        // Older entries lie before this one, so the block ends with it.
        let end = position.saturating_add(ENTRY_LEN as u64);
        let start = end.saturating_sub(BLOCK_LEN as u64);
        self.block.resize(usize::try_from(end - start).unwrap_or(BLOCK_LEN), 0);
        self.block_start = start;
        let read =
            self.file.read_at(&mut self.block, start).map_err(Error::io("read", self.path))?;
        self.block.truncate(read);
        self.cached(position).ok_or_else(|| {
            too_short(self.path, position, ENTRY_LEN, start.saturating_add(read as u64))
        })
    }

    fn prefetch(&self, _position: u64) {}

    fn path(&self) -> &Path {
        self.path
    }
}

#[cold]
fn too_short(path: &Path, position: u64, wanted: usize, len: u64) -> Error {
    Error::corrupt(
        path,
        position,
        CorruptionKind::FileLength,
        format!("{wanted} bytes"),
        format!("a file that ends at {len}"),
    )
}

/// A header that agrees with its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) header: IndexHeader,
    /// The header's count: the number of the next entry, at least 1.
    pub(crate) count: u32,
}

impl Head {
    /// Reads the header and holds its count against the layout.
    pub(crate) fn read(bytes: &mut impl IndexBytes, layout: &IndexLayout) -> Result<Self> {
        let raw = bytes.fresh::<HEADER_LEN>(0)?;
        Self::decode(&raw, layout, bytes.path())
    }

    #[inline]
    pub(crate) fn decode(
        raw: &[u8; HEADER_LEN],
        layout: &IndexLayout,
        path: &Path,
    ) -> Result<Self> {
        const COUNT_AT: usize = HEADER_LEN - 4;
        let header = IndexHeader::decode(raw);
        let written = i32_in::<COUNT_AT, HEADER_LEN>(raw);
        // A count of 0 is that of a file to which nothing was ever put.
        match u32::try_from(header.index_count) {
            Ok(count) if written >= 0 && count <= layout.max_entry_count() => {
                Ok(Self { header, count })
            }
            _ => Err(Error::corrupt(
                path,
                COUNT_AT as u64,
                CorruptionKind::IndexHeader,
                format!("a count of 0 to {}", layout.max_entry_count()),
                written.to_string(),
            )),
        }
    }
}

/// Where a walk stands: the number of the entry to read next, 0 at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub(crate) next: u32,
}

impl Walk {
    /// The walk of a slot, from the slot's value on.
    ///
    /// `live` says that another one may be writing to the file: a slot is written before the count
    /// that covers it, so a count that seems too small is read again.
    #[inline]
    pub(crate) fn start<B: IndexBytes>(
        bytes: &mut B,
        layout: &IndexLayout,
        head: &mut Head,
        slot: u32,
        live: bool,
        findings: &mut Vec<Corruption>,
    ) -> Result<Self> {
        let position = layout.slot_position(slot);
        let value = i32_in::<0, SLOT_LEN>(&bytes.fresh(position)?);
        // Entries are written before the slot that names them; read them after it.
        fence(Ordering::Acquire);
        match u32::try_from(value) {
            Ok(next) if next < head.count => Ok(Self { next }),
            // 0 and below: the slot is empty.
            Err(_) => Ok(Self { next: 0 }),
            Ok(next) => Self::past_the_count(bytes, layout, head, position, next, live, findings),
        }
    }

    #[cold]
    fn past_the_count<B: IndexBytes>(
        bytes: &mut B,
        layout: &IndexLayout,
        head: &mut Head,
        position: u64,
        next: u32,
        live: bool,
        findings: &mut Vec<Corruption>,
    ) -> Result<Self> {
        for _ in 0..if live { COUNT_ATTEMPTS } else { 0 } {
            *head = Head::read(bytes, layout)?;
            if next < head.count {
                return Ok(Self { next });
            }
            std::thread::yield_now();
        }
        // Of a put under way that rests here, what was put before is still found.
        let before = if live && next == head.count && next < layout.max_entry_count() {
            IndexEntry::decode(&bytes.fresh(layout.entry_position(next))?).prev_entry
        } else {
            0
        };
        findings.push(Corruption {
            path: Some(bytes.path().to_owned()),
            offset: position,
            kind: CorruptionKind::IndexSlot,
            expected: format!("an entry below {}", head.count),
            found: format!("entry {next}"),
        });
        let before = u32::try_from(before).ok().filter(|before| *before < next);
        Ok(Self { next: before.unwrap_or(0) })
    }

    /// Whether the chain has ended.
    #[inline]
    pub(crate) const fn is_at_end(self) -> bool {
        self.next == 0
    }

    /// Lets the entry that comes next be fetched; it may lie in two cache lines.
    #[inline]
    pub(crate) fn prefetch<B: IndexBytes>(self, bytes: &B, layout: &IndexLayout) {
        let position = layout.entry_position(self.next);
        bytes.prefetch(position);
        bytes.prefetch(position.saturating_add(ENTRY_LEN as u64 - 1));
    }

    /// The next entry with its number, `None` at the chain's end.
    #[inline(always)]
    pub(crate) fn step<B: IndexBytes>(
        &mut self,
        bytes: &mut B,
        layout: &IndexLayout,
        findings: &mut Vec<Corruption>,
    ) -> Result<Option<(u32, IndexEntry)>> {
        let number = self.next;
        if number == 0 {
            return Ok(None);
        }
        let entry = IndexEntry::decode(&bytes.entry(layout.entry_position(number))?);
        if entry.seconds < 0 {
            self.next = 0;
            findings.push(negative_seconds(bytes.path(), layout, number, entry.seconds));
            return Ok(None);
        }
        match u32::try_from(entry.prev_entry) {
            Ok(prev) if prev < number => self.next = prev,
            Err(_) => self.next = 0,
            Ok(prev) => {
                self.next = 0;
                findings.push(upward_link(bytes.path(), layout, number, prev));
            }
        }
        Ok(Some((number, entry)))
    }
}

#[cold]
fn negative_seconds(path: &Path, layout: &IndexLayout, number: u32, seconds: i32) -> Corruption {
    Corruption {
        path: Some(path.to_owned()),
        offset: layout.entry_position(number).saturating_add(12),
        kind: CorruptionKind::IndexEntry,
        expected: "seconds of 0 or more".to_owned(),
        found: seconds.to_string(),
    }
}

#[cold]
fn upward_link(path: &Path, layout: &IndexLayout, number: u32, prev: u32) -> Corruption {
    Corruption {
        path: Some(path.to_owned()),
        offset: layout.entry_position(number).saturating_add(16),
        kind: CorruptionKind::IndexChain,
        expected: format!("an entry before {number}"),
        found: format!("entry {prev}"),
    }
}
