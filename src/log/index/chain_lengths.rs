//! Distribution of chain lengths in an index file.

use std::collections::BTreeMap;

use super::file::IndexFile;
use crate::error::{CorruptionKind, Error, Result};
use crate::format::index::{ENTRY_LEN, IndexEntry};
use crate::format::width::at_least_0_u32;

const ENTRIES: u32 = 1 << 16;
/// Slots counted at a time, which bounds memory.
const SLOTS: u32 = 16 << 20;

impl IndexFile {
    /// Number of slots for each chain length above 0. Counts entries by hash in one pass, so broken
    /// chains count as whole.
    pub fn chain_lengths(&self) -> Result<BTreeMap<u32, u32>> {
        let mut lengths = BTreeMap::new();
        let slots = self.layout().slots();
        let mut first = 0;
        while first < slots {
            let window = SLOTS.min(slots - first);
            for length in self.entries_of(first, window)? {
                if length > 0 {
                    *lengths.entry(length).or_insert(0_u32) += 1;
                }
            }
            first += window;
        }
        Ok(lengths)
    }

    fn entries_of(&self, first: u32, slots: u32) -> Result<Vec<u32>> {
        let layout = *self.layout();
        let mut counts = vec![0_u32; slots as usize];
        let end = at_least_0_u32(self.header()?.index_count);
        let mut raw = Vec::new();
        let mut next = 1;
        while next < end {
            let count = ENTRIES.min(end - next);
            raw.resize(count as usize * ENTRY_LEN, 0);
            self.read_entries(next, &mut raw)?;
            for entry in raw.as_chunks::<ENTRY_LEN>().0 {
                let slot = layout.slot_of(IndexEntry::decode(entry).key_hash);
                let place =
                    slot.checked_sub(first).and_then(|place| counts.get_mut(place as usize));
                if let Some(count) = place {
                    *count += 1;
                }
            }
            next += count;
        }
        Ok(counts)
    }

    fn read_entries(&self, first: u32, raw: &mut [u8]) -> Result<()> {
        let position = self.layout().entry_position(first);
        let read = self.file().read_at(raw, position).map_err(Error::io("read", self.path()))?;
        if read == raw.len() {
            return Ok(());
        }
        let end = position.saturating_add(read as u64);
        let (expected, found) =
            (format!("{} bytes of entries", raw.len()), format!("{read} bytes"));
        Err(Error::corrupt(self.path(), end, CorruptionKind::FileLength, expected, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;
    use crate::format::index::IndexLayout;
    use crate::log::index::file::IndexPut;

    #[test]
    fn slots_are_counted_by_the_length_of_their_chains() {
        let dir = tempfile::tempdir().unwrap();
        let layout = IndexLayout::new(7, 200_000).unwrap();
        let path = dir.path().join("20261121073513325");
        let mut file = IndexFile::create(&Os, &path, layout, None).unwrap();
        assert_eq!(file.chain_lengths().unwrap(), BTreeMap::new());
        let many = ENTRIES + 3;
        let hashes = [6, 5, 3, 3 + 7, 5].into_iter().chain((0..many).map(|_| 2));
        let puts: Vec<_> = hashes
            .map(|key_hash| IndexPut { key_hash, physical_offset: 0, store_timestamp_ms: 0 })
            .collect();
        file.put_many(&puts[..5]).unwrap();
        assert_eq!(file.chain_lengths().unwrap(), BTreeMap::from([(1, 1), (2, 2)]));
        file.put_many(&puts[5..]).unwrap();
        let lengths = BTreeMap::from([(1, 1), (2, 2), (many, 1)]);
        assert_eq!(file.chain_lengths().unwrap(), lengths);
        assert_eq!(file.entries_of(5, 2).unwrap(), [2, 1]);

        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10_000).unwrap();
        let Err(Error::Corrupt(found)) = file.chain_lengths() else { panic!("a file cut short") };
        assert_eq!((found.kind, found.offset), (CorruptionKind::FileLength, 10_000));
    }
}
