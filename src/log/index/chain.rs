//! Walks the chains of an index file: from a slot to its newest entry, and from each entry to the
//! next older. The one loop of all look-ups, but `select_many.rs` runs many at once.
//!
//! In a valid file links decrease, so a walk ends for any bytes: a link that does not decrease ends
//! it and is reported. RocketMQ trusts the entries; an exact query checks them by `evidence.rs`.

use std::sync::atomic::{Ordering, fence};

use super::evidence::{Evidence, Neighbours};
use super::reader::{COUNT_ATTEMPTS, Head, IndexBytes, IndexReader};
use crate::error::Result;
use crate::format::bytes::i32_in;
use crate::format::index::{ENTRY_LEN, IndexEntry, IndexLayout, SLOT_LEN};

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

pub(crate) enum Trust {
    RocketMq,
    Checked(Evidence),
}

impl<B: IndexBytes> IndexReader<'_, B> {
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
        let expected = format!("an entry below {count}");
        self.report_slot(position, expected, next);
        let before = u32::try_from(before).ok().filter(|before| *before < next);
        Ok(ChainWalk { next: before.unwrap_or(0) })
    }

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
}
