//! Blocks read from a log, shared by their users.
//!
//! A block is filled while it has one holder and never changed afterwards, so pointers into it need
//! no copy. The last holder returns its memory to the pool.

use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::locks::Mutex;

/// Bytes read at a time; larger records get what they need.
pub const BLOCK_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    /// Bytes of the storage in place of its own.
    shared: Option<Bytes>,
    pool: Weak<BlockPool>,
}

impl Block {
    pub(crate) fn of_shared(bytes: Bytes) -> Self {
        Self { bytes: Vec::new(), shared: Some(bytes), pool: Weak::new() }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.shared.as_deref().unwrap_or(&self.bytes)
    }

    /// Position of `part` in it.
    #[inline]
    #[must_use]
    pub fn place_of(&self, part: &[u8]) -> Option<usize> {
        let place = part.as_ptr().addr().checked_sub(self.as_bytes().as_ptr().addr())?;
        (place.checked_add(part.len())? <= self.as_bytes().len()).then_some(place)
    }

    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        &mut self.bytes[..len]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.put(std::mem::take(&mut self.bytes));
        }
    }
}

/// Memory for the blocks of one walk.
#[derive(Debug, Default)]
pub struct BlockPool {
    spare: Mutex<Vec<Vec<u8>>>,
}

impl BlockPool {
    /// Maximum spare blocks: those of one batch of columns.
    const MOST_SPARE: usize = 64;

    pub(crate) fn take(self: &Arc<Self>) -> Block {
        let spare = self.spare.lock().pop();
        Block { bytes: spare.unwrap_or_default(), shared: None, pool: Arc::downgrade(self) }
    }

    fn put(&self, bytes: Vec<u8>) {
        let mut spare = self.spare.lock();
        // Memory of a large record is not kept.
        if bytes.len() <= BLOCK_BYTES && spare.len() < Self::MOST_SPARE {
            spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(pool: &BlockPool) -> usize {
        pool.spare.lock().len()
    }

    #[test]
    fn memory_goes_round_and_large_memory_goes() {
        let pool = Arc::new(BlockPool::default());
        let mut first = pool.take();
        first.room(BLOCK_BYTES)[0] = 7;
        let memory = first.as_bytes().as_ptr();
        drop(first);
        assert_eq!(spare(&pool), 1);
        let mut again = pool.take();
        assert_eq!((again.as_bytes().as_ptr(), spare(&pool)), (memory, 0));
        again.room(BLOCK_BYTES + 1);
        drop(again);
        assert_eq!(spare(&pool), 0);
    }

    #[test]
    fn no_more_waits_than_a_batch_takes_and_blocks_outlive_their_pool() {
        let pool = Arc::new(BlockPool::default());
        let mut blocks: Vec<_> = (0..BlockPool::MOST_SPARE + 9).map(|_| pool.take()).collect();
        let last = blocks.pop().unwrap();
        drop(blocks);
        assert_eq!(spare(&pool), BlockPool::MOST_SPARE);
        drop(pool);
        drop(last);
    }

    #[test]
    fn a_part_is_found_and_nothing_else_is() {
        let pool = Arc::new(BlockPool::default());
        let mut block = pool.take();
        block.room(10).copy_from_slice(b"0123456789");
        assert_eq!(block.place_of(&block.as_bytes()[3..5]), Some(3));
        assert_eq!(block.place_of(&block.as_bytes()[10..]), Some(10));
        assert_eq!(block.place_of(&[0; 11]), None);
        let other = [1_u8; 4];
        assert_eq!(block.place_of(&other), None);
    }
}
