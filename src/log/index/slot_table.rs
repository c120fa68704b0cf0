//! The slot table of one index file in memory, 20 MB by default, whose slots are visited at random.

use std::hint::black_box;

use crate::error::{Error, Result};
use crate::files::system::memory::Zeros;
use crate::format::bytes::i32_in;
use crate::format::index::SLOT_LEN;

/// A table of which no more than one slot in so many is used does not take all of its memory.
const SPARSE: u32 = 512;

/// The newest entry of each slot, as the file holds them; 0 where there is none.
#[derive(Debug)]
pub(crate) struct SlotTable {
    memory: Zeros,
}

impl SlotTable {
    /// A table of empty slots, about to take so many entries.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no memory.
    pub(crate) fn new(slots: u32, entries: u32) -> Result<Self> {
        let len = usize::try_from(slots).unwrap_or(usize::MAX).saturating_mul(SLOT_LEN);
        let memory = Zeros::new(len).map_err(Error::io("take memory for", "an index file"))?;
        if entries > slots / SPARSE {
            memory.take_all();
        }
        Ok(Self { memory })
    }

    /// The slots as a file holds them.
    #[must_use]
    pub(crate) fn raw(&self) -> &[[u8; SLOT_LEN]] {
        self.memory.as_chunks().0
    }

    /// Names a newer entry of a slot; the one before, if there is such a slot.
    #[inline]
    pub(crate) fn put(&mut self, slot: usize, entry: i32) -> Option<i32> {
        let raw = self.memory.as_chunks_mut().0.get_mut(slot)?;
        let before = std::mem::replace(raw, entry.to_be_bytes());
        Some(i32_in::<0, SLOT_LEN>(&before))
    }

    /// Brings slots into the cache side by side, so that visits need not wait for them one by one.
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
