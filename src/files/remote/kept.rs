//! Blocks and parts read behind a URL, shared by all files of a storage.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Weak;
use std::thread::ThreadId;

use bytes::Bytes;
use lru::LruCache;

use crate::format::width::to_usize;
use crate::locks::{Condvar, Mutex};

pub(super) const BLOCK: u64 = 64 << 10;
const MOST_BLOCKS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Length of the parts in which much is read. They begin at its multiples, since a server reads less
/// for them, and so that threads share them.
pub(super) const PART: u64 = 8 << 20;
const MOST_PARTS: NonZeroUsize = NonZeroUsize::new(8).unwrap();
/// Places that are read on from.
const MOST_ENDS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Ranges of files, by their id, that will be read.
pub(super) type Announced = BTreeMap<u64, Range<u64>>;

/// A part of a file from the block at `start` on.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

impl Part {
    pub(super) fn block(&self, number: u64) -> Option<&[u8]> {
        let at = to_usize((number * BLOCK).checked_sub(self.start)?);
        let end = self.bytes.len().min(at.saturating_add(to_usize(BLOCK)));
        self.bytes.get(at..end).filter(|block| !block.is_empty())
    }
}

/// Bytes of all files, by a file's id and a number in it.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) blocks: LruCache<(u64, u64), Part>,
    pub(super) parts: LruCache<(u64, u64), Part>,
    /// Parts that a thread reads.
    pub(super) asked: HashMap<(u64, u64), ThreadId>,
    /// Ends of what was read, each with the bytes on end before it.
    pub(super) ends: LruCache<(u64, u64), u64>,
    pub(super) announced: Vec<Weak<Announced>>,
}

impl Kept {
    pub(super) fn block(&mut self, id: u64, number: u64) -> Option<Part> {
        if let Some(block) = self.blocks.get(&(id, number)) {
            return Some(block.clone());
        }
        let part = self.parts.get(&(id, number * BLOCK / PART))?;
        part.block(number).is_some().then(|| part.clone())
    }

    pub(super) fn announced(&self, id: u64, at: u64) -> Option<Range<u64>> {
        let ranges = self.announced.iter().filter_map(Weak::upgrade);
        let mut ranges = ranges.filter_map(|announced| announced.get(&id).cloned());
        // Blocks begin before what lies in them.
        ranges.find(|range| range.start / BLOCK * BLOCK <= at && at < range.end)
    }
}

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) kept: Mutex<Kept>,
    pub(super) arrived: Condvar,
}

impl Default for Memory {
    fn default() -> Self {
        let kept = Kept {
            blocks: LruCache::new(MOST_BLOCKS),
            parts: LruCache::new(MOST_PARTS),
            asked: HashMap::new(),
            ends: LruCache::new(MOST_ENDS),
            announced: Vec::new(),
        };
        Self { kept: Mutex::new(kept), arrived: Condvar::new() }
    }
}
