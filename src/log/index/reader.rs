//! Reads an index file, by a map or by position.

use std::path::Path;

use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::{MappedFile, StorageFile};
use crate::format::bytes::i32_in;
use crate::format::index::{ENTRY_LEN, HEADER_LEN, IndexEntry, IndexHeader, IndexLayout};
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

pub(crate) struct IndexReader<'a, B> {
    pub(crate) bytes: &'a mut B,
    pub(crate) layout: &'a IndexLayout,
    pub(crate) head: &'a mut Head,
    pub(crate) live: bool,
    pub(crate) findings: &'a mut Vec<Corruption>,
}

impl<B: IndexBytes> IndexReader<'_, B> {
    #[inline(always)]
    pub(crate) fn entry(&mut self, number: u32) -> Result<IndexEntry> {
        Ok(IndexEntry::decode(&self.bytes.entry(self.layout.entry_position(number))?))
    }

    /// Reports a fault in an entry, `at` bytes behind its start.
    #[cold]
    pub(crate) fn report(&mut self, number: u32, at: u64, expected: String, found: String) {
        let offset = self.layout.entry_position(number).saturating_add(at);
        let kind = if at == 16 { CorruptionKind::IndexChain } else { CorruptionKind::IndexEntry };
        self.findings.push(Corruption::new(self.bytes.path(), offset, kind, expected, found));
    }

    #[cold]
    pub(crate) fn report_slot(&mut self, position: u64, expected: String, entry: u32) {
        let (path, kind) = (self.bytes.path(), CorruptionKind::IndexSlot);
        let found = format!("entry {entry}");
        self.findings.push(Corruption::new(path, position, kind, expected, found));
    }
}
