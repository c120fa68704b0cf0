//! An index file's slot table in memory, 20 MB by default, accessed at random.

use std::hint::black_box;

use crate::error::{Error, Result};
use crate::files::system::memory::Zeros;
use crate::format::bytes::i32_in;
use crate::format::index::SLOT_LEN;
use crate::format::width::to_usize;

const SPARSE: u32 = 512;

/// Newest entry of each slot, as in the file; 0 for none.
#[derive(Debug)]
pub(crate) struct SlotTable {
    memory: Zeros,
}

impl SlotTable {
    /// An empty table for so many entries.
    pub(crate) fn new(slots: u32, entries: u32) -> Result<Self> {
        let len = to_usize(slots).saturating_mul(SLOT_LEN);
        let memory = Zeros::new(len).map_err(Error::io("take memory for", "an index file"))?;
        if entries > slots / SPARSE {
            memory.take_all();
        }
        Ok(Self { memory })
    }

    #[must_use]
    pub(crate) fn raw(&self) -> &[[u8; SLOT_LEN]] {
        self.memory.as_chunks().0
    }

    /// Sets a slot's newest entry and returns the previous one, if the slot exists.
    #[inline]
    pub(crate) fn put(&mut self, slot: usize, entry: i32) -> Option<i32> {
        let raw = self.memory.as_chunks_mut().0.get_mut(slot)?;
        let before = std::mem::replace(raw, entry.to_be_bytes());
        Some(i32_in::<0, SLOT_LEN>(&before))
    }

    #[inline]
    pub(crate) fn fetch(&self, slots: impl Iterator<Item = usize>) {
        let raw = self.raw();
        let visited = slots.filter_map(|slot| raw.get(slot)).map(i32_in::<0, SLOT_LEN>);
        black_box(visited.fold(0, |all, slot| all | slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_names_its_newest_entry() {
        for entries in [1, 1_000_000] {
            let mut table = SlotTable::new(100_000, entries).unwrap();
            assert_eq!(table.put(99_999, 7), Some(0));
            assert_eq!(table.put(99_999, 8), Some(7));
            assert_eq!(table.put(100_000, 1), None);
            table.fetch([0, 99_999, 100_000].into_iter());
            assert_eq!(table.raw().len(), 100_000);
            assert_eq!(table.raw().last(), Some(&[0, 0, 0, 8]));
        }
    }
}
