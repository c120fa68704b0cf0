//! Remembers which entries were compared with their messages: a filter must not trust a wrong tags
//! code, and comparing reads each message.

use std::sync::OnceLock;

use crate::locks::{Mutex, MutexGuard};

use hashbrown::HashMap;

use super::CqUnit;
use crate::error::Result;
use crate::format::width::{clamp_u64, to_usize};

const IN_BLOCK: i64 = 256;
/// Maximum blocks of a queue: four million entries, 9 MiB.
const MOST_BLOCKS: usize = 1 << 14;

/// Takes memory for the first entry: most of very many queues are never filtered.
#[derive(Debug, Default)]
pub struct VerifiedTags(OnceLock<Box<VerifiedBlocks>>);

#[derive(Debug, Default)]
struct VerifiedBlocks {
    blocks: Mutex<HashMap<i64, VerifiedBlock>>,
    /// Start of the log, and the queue offset of its first message.
    first: Mutex<Option<(u64, i64)>>,
}

impl VerifiedTags {
    fn blocks_or_new(&self) -> &VerifiedBlocks {
        self.0.get_or_init(Box::default)
    }

    fn blocks(&self) -> MutexGuard<'_, HashMap<i64, VerifiedBlock>> {
        self.blocks_or_new().blocks.lock()
    }

    /// Queue offset of the first message in a log that begins at `log_start`, found once.
    pub fn first_in(&self, log_start: u64, find: impl FnOnce() -> Result<i64>) -> Result<i64> {
        let first = || self.blocks_or_new().first.lock();
        if let Some((_, known)) = first().filter(|(start, _)| *start == log_start) {
            return Ok(known);
        }
        let found = find()?;
        *first() = Some((log_start, found));
        Ok(found)
    }

    /// The block that holds `number`.
    #[must_use]
    pub fn get(&self, number: i64) -> VerifiedBlock {
        self.blocks().get(&number.div_euclid(IN_BLOCK)).cloned().unwrap_or_default()
    }

    /// Remembers the block that holds `number`.
    pub fn put(&self, number: i64, seen: VerifiedBlock) {
        let mut blocks = self.blocks();
        if blocks.len() >= MOST_BLOCKS {
            blocks.clear();
        }
        blocks.insert(number.div_euclid(IN_BLOCK), seen);
    }
}

/// A digest for each of 256 checked entries, else 0. An entry that changed by one bit has another
/// digest.
#[derive(Clone, Debug)]
pub struct VerifiedBlock(Box<[u16; IN_BLOCK as usize]>);

impl Default for VerifiedBlock {
    fn default() -> Self {
        Self(Box::new([0; IN_BLOCK as usize]))
    }
}

impl VerifiedBlock {
    /// First queue offset of the block that holds `number`.
    #[must_use]
    pub const fn first(number: i64) -> i64 {
        number - number.rem_euclid(IN_BLOCK)
    }

    /// Whether this entry was compared with its message, with this tags code, and is unchanged.
    #[inline]
    #[must_use]
    pub fn has(&self, unit: &CqUnit, code: i64) -> bool {
        let digest = digest(unit, code);
        digest != 0 && self.0.get(position(unit)) == Some(&digest)
    }

    pub fn add(&mut self, unit: &CqUnit, code: i64) {
        if let Some(seen) = self.0.get_mut(position(unit)) {
            *seen = digest(unit, code);
        }
    }
}

fn position(unit: &CqUnit) -> usize {
    to_usize(clamp_u64(unit.number.rem_euclid(IN_BLOCK)))
}

/// Digest in which each single bit of an entry counts.
#[inline]
fn digest(unit: &CqUnit, code: i64) -> u16 {
    let all = unit.physical_offset.rotate_left(7)
        ^ i64::from(unit.store_size).rotate_left(40)
        ^ code.rotate_left(21)
        ^ unit.number
        ^ i64::from(unit.count).rotate_left(50);
    let all = all ^ (all >> 32);
    (all ^ (all >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::queue::consume_queue::QueueEntry;

    #[test]
    fn an_entry_that_changed_by_one_bit_was_not_seen() {
        let entry = QueueEntry { physical_offset: 123_456, store_size: 789, tags_code: 0 };
        let unit = CqUnit::plain(300, entry);
        let seen = VerifiedTags::default();
        let mut block = seen.get(300);
        assert!(!block.has(&unit, 5));
        block.add(&unit, 5);
        seen.put(300, block);
        let block = seen.get(511);
        assert!(block.has(&unit, 5));
        for bit in 0..64 {
            assert!(!block.has(&unit, 5 ^ (1 << bit)), "bit {bit} of the code");
            let moved = CqUnit { physical_offset: 123_456 ^ (1 << bit), ..unit };
            assert!(!block.has(&moved, 5), "bit {bit} of the place");
            if bit < 32 {
                let other = CqUnit { store_size: 789 ^ (1 << bit), ..unit };
                assert!(!block.has(&other, 5), "bit {bit} of the size");
            }
        }
        assert!(!seen.get(512).has(&unit, 5));
    }
}
