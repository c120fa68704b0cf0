//! Walks the chains of an index file: from a slot to its newest entry, and from each entry to the
//! next older. The one loop of all look-ups, but `select_many.rs` runs many at once.
//!
//! In a valid file links decrease, so a walk ends for any bytes: a link that does not decrease ends
//! it and is reported. RocketMQ trusts the entries; an exact query checks them by `evidence.rs`.

use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use super::evidence::{Evidence, Neighbours};
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::{MappedFile, StorageFile};
use crate::format::bytes::i32_in;
use crate::format::index::{ENTRY_LEN, HEADER_LEN, IndexEntry, IndexHeader, IndexLayout, SLOT_LEN};
use crate::format::width::to_usize;

/// Bytes read at once without a map; long chains have entries close together.
const BLOCK_LEN: usize = 4096;

/// Attempts to read a count that lags behind the slots of a file being written.
pub(crate) const COUNT_ATTEMPTS: usize = 8;

pub(crate) trait IndexBytes {
    fn fresh<const N: usize>(&mut self, position: u64) -> Result<[u8; N]>;
    /// Reads an entry, perhaps from an earlier read: a counted entry never changes.
    fn entry(&mut self, position: u64) -> Result<[u8; ENTRY_LEN]>;
    /// Consecutive entries of an earlier read; `None` if it lacks some.
    fn known(&self, _position: u64, _count: usize) -> Option<&[[u8; ENTRY_LEN]]> {
        None
    }
    fn prefetch(&self, position: u64);
    fn path(&self) -> &Path;
}

#[derive(Clone, Copy)]
pub(crate) struct MapBytes<'a>(pub(crate) &'a MappedFile);

impl IndexBytes for MapBytes<'_> {
    #[inline]
    fn fresh<const N: usize>(&mut self, position: u64) -> Result<[u8; N]> {
        // Positions are below 2^31; others are outside the file anyway.
        let at = to_usize(position);
        self.0.get_at(at).ok_or_else(|| too_short(self.0.path(), position, N, self.0.len() as u64))
    }

    #[inline]
    fn entry(&mut self, position: u64) -> Result<[u8; ENTRY_LEN]> {
        self.fresh(position)
    }

    #[inline]
    fn prefetch(&self, position: u64) {
        self.0.prefetch(to_usize(position));
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

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
        self.known(position, 1)?.first().copied()
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
        // Older entries come before this one, so the block ends with it.
        let end = position.saturating_add(ENTRY_LEN as u64);
        let start = end.saturating_sub(BLOCK_LEN as u64);
        self.block.resize(to_usize(end - start), 0);
        self.block_start = start;
        let read =
            self.file.read_at(&mut self.block, start).map_err(Error::io("read", self.path))?;
        self.block.truncate(read);
        self.cached(position).ok_or_else(|| {
            too_short(self.path, position, ENTRY_LEN, start.saturating_add(read as u64))
        })
    }

    fn known(&self, position: u64, count: usize) -> Option<&[[u8; ENTRY_LEN]]> {
        let at = usize::try_from(position.checked_sub(self.block_start)?).ok()?;
        self.block.get(at..)?.as_chunks().0.get(..count)
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
    /// Number of the next entry, at least 1.
    pub(crate) count: u32,
}

impl Head {
    /// Reads the header and checks its count against the layout.
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
        // A count of 0 means an empty file.
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

/// Place in a chain: the next entry, 0 at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainWalk {
    pub(crate) next: u32,
}

impl ChainWalk {
    #[inline]
    pub(crate) const fn is_at_end(self) -> bool {
        self.next == 0
    }

    /// Prefetches the next entry, which may span two cache lines.
    #[inline]
    pub(crate) fn prefetch<B: IndexBytes>(self, bytes: &B, layout: &IndexLayout) {
        let position = layout.entry_position(self.next);
        bytes.prefetch(position);
        bytes.prefetch(position.saturating_add(ENTRY_LEN as u64 - 1));
    }
}

/// Level of trust in the entries of a slot.
pub(crate) enum Trust {
    RocketMq,
    Checked(Evidence),
}

/// The chains of one file.
pub(crate) struct Chains<'a, B> {
    pub(crate) bytes: &'a mut B,
    pub(crate) layout: &'a IndexLayout,
    pub(crate) head: &'a mut Head,
    /// Whether another process may be writing.
    pub(crate) live: bool,
    pub(crate) findings: &'a mut Vec<Corruption>,
}

/// Runs an expression with a file's chains.
macro_rules! with_chains {
    ($file:expr, $head:expr, $findings:expr, |$chains:ident| $body:expr) => {{
        let (layout, head, findings) = ($file.layout(), $head, $findings);
        match &$file.bytes {
            Bytes::Written(writer) => {
                let bytes = &mut MapBytes(&writer.map);
                let $chains = &mut Chains { bytes, layout, head, live: false, findings };
                $body
            }
            Bytes::Mapped(map) => {
                let bytes = &mut MapBytes(map);
                let $chains = &mut Chains { bytes, layout, head, live: true, findings };
                $body
            }
            Bytes::Read(file) => {
                let bytes = &mut ReadBytes::new(&**file, $file.path());
                let $chains = &mut Chains { bytes, layout, head, live: true, findings };
                $body
            }
        }
    }};
}
pub(crate) use with_chains;

impl<B: IndexBytes> Chains<'_, B> {
    /// Starts at a slot.
    ///
    /// Another process writes a slot before the count that covers it, so a count that seems too
    /// small is read again.
    #[inline]
    pub(crate) fn start(&mut self, slot: u32) -> Result<ChainWalk> {
        let position = self.layout.slot_position(slot);
        let value = i32_in::<0, SLOT_LEN>(&self.bytes.fresh(position)?);
        // Entries are written before the slot that names them, so they are read after it.
        fence(Ordering::Acquire);
        match u32::try_from(value) {
            Ok(next) if next < self.head.count => Ok(ChainWalk { next }),
            // 0 and below: an empty slot.
            Err(_) => Ok(ChainWalk { next: 0 }),
            Ok(next) => self.start_past_the_count(position, next),
        }
    }

    #[cold]
    fn start_past_the_count(&mut self, position: u64, next: u32) -> Result<ChainWalk> {
        for _ in 0..if self.live { COUNT_ATTEMPTS } else { 0 } {
            *self.head = Head::read(self.bytes, self.layout)?;
            if next < self.head.count {
                return Ok(ChainWalk { next });
            }
            std::thread::yield_now();
        }
        // If a put has updated the slot but not yet the count, start at the previous entry.
        let count = self.head.count;
        let before = if self.live && next == count && next < self.layout.max_entry_count() {
            IndexEntry::decode(&self.bytes.fresh(self.layout.entry_position(next))?).prev_entry
        } else {
            0
        };
        self.findings.push(Corruption {
            path: Some(self.bytes.path().to_owned()),
            offset: position,
            kind: CorruptionKind::IndexSlot,
            expected: format!("an entry below {count}"),
            found: format!("entry {next}"),
        });
        let before = u32::try_from(before).ok().filter(|before| *before < next);
        Ok(ChainWalk { next: before.unwrap_or(0) })
    }

    /// Next entry, `None` at the end.
    #[inline(always)]
    pub(crate) fn step(&mut self, walk: &mut ChainWalk) -> Result<Option<IndexEntry>> {
        let number = std::mem::replace(&mut walk.next, 0);
        if number == 0 {
            return Ok(None);
        }
        let entry = self.entry(number)?;
        if entry.seconds < 0 {
            let found = entry.seconds.to_string();
            self.report(number, 12, "seconds of 0 or more".to_owned(), found);
            return Ok(None);
        }
        match u32::try_from(entry.prev_entry) {
            Ok(prev) if prev < number => walk.next = prev,
            Err(_) => {}
            Ok(prev) => {
                let expected = format!("an entry before {number}");
                self.report(number, 16, expected, format!("entry {prev}"));
            }
        }
        Ok(Some(entry))
    }

    /// Walks until the end or until `take` returns `false`; that entry comes next again. A checked
    /// entry with a contradiction ends the walk.
    #[inline(always)]
    pub(crate) fn follow(
        &mut self,
        walk: &mut ChainWalk,
        trust: &Trust,
        mut take: impl FnMut(u32, &IndexEntry, Neighbours) -> bool,
    ) -> Result<()> {
        while !walk.is_at_end() {
            let number = walk.next;
            let neighbours = match trust {
                Trust::Checked(_) => self.neighbours(number)?,
                Trust::RocketMq => Neighbours::default(),
            };
            let Some(entry) = self.step(walk)? else { break };
            if let Trust::Checked(evidence) = trust
                && !self.is_believed(evidence, number, &entry, walk.next, neighbours)?
            {
                walk.next = 0;
                break;
            }
            if !take(number, &entry, neighbours) {
                walk.next = number;
                break;
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn entry(&mut self, number: u32) -> Result<IndexEntry> {
        Ok(IndexEntry::decode(&self.bytes.entry(self.layout.entry_position(number))?))
    }

    /// Reports a fault in an entry, `at` bytes behind its start.
    #[cold]
    pub(crate) fn report(&mut self, number: u32, at: u64, expected: String, found: String) {
        self.findings.push(Corruption {
            path: Some(self.bytes.path().to_owned()),
            offset: self.layout.entry_position(number).saturating_add(at),
            kind: if at == 16 { CorruptionKind::IndexChain } else { CorruptionKind::IndexEntry },
            expected,
            found,
        });
    }
}
