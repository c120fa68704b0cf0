//! A walk along a chain of an index file that holds each entry against what lies around it, for queries
//! that must not come back short in silence.
//!
//! Entries lie in the order of their messages, and a link leads to the newest older entry of its slot: so
//! between an entry and the one that it links to none is in the slot. What is read anyway shows that for
//! the entries just before; a chain that seems to end is held against entries 1, 2, 4 and so on, one of
//! which a link named that lost its only bit.

use parking_lot::Mutex;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use super::chain::{COUNT_ATTEMPTS, Head, IndexBytes, Walk};
use crate::error::{Corruption, CorruptionKind, Result};
use crate::format::bytes::i32_in;
use crate::format::index::{IndexEntry, IndexLayout, SLOT_LEN};

/// How many entries before one are looked at: as many as are read with it.
const LOOKED_BACK: u32 = 203;

/// Entries of one file that slots and links are held against, once they were read.
#[derive(Debug, Default)]
pub(crate) struct Witnesses(Mutex<Arc<Witnessed>>);

/// The hashes of some entries.
#[derive(Debug, Default)]
pub(crate) struct Witnessed {
    /// How many entries there were, the unused one included.
    count: u32,
    /// Of the last entries, the newest first.
    tail: Vec<i32>,
    /// Of the entries 1, 2, 4 and so on.
    powers: Vec<i32>,
}

impl Witnesses {
    /// What they are in a file of that count.
    pub(crate) fn at<B: IndexBytes>(
        &self,
        bytes: &mut B,
        layout: &IndexLayout,
        count: u32,
    ) -> Result<Arc<Witnessed>> {
        let known = Arc::clone(&self.0.lock());
        if known.count == count {
            return Ok(known);
        }
        let mut hash_of = |number: u32| {
            bytes
                .entry(layout.entry_position(number))
                .map(|entry| IndexEntry::decode(&entry).key_hash)
        };
        // A file that was cut may hold others.
        let mut powers = if known.count < count { known.powers.clone() } else { Vec::new() };
        while 1_u32 << powers.len() < count {
            powers.push(hash_of(1 << powers.len())?);
        }
        let first = count.saturating_sub(LOOKED_BACK).max(1);
        // The last one first: it is read together with those before it.
        let tail = (first..count).rev().map(&mut hash_of).collect::<Result<Vec<_>>>()?;
        let new = Arc::new(Witnessed { count, tail, powers });
        *self.0.lock() = Arc::clone(&new);
        Ok(new)
    }
}

impl Witnessed {
    /// Whether a slot that names the first entry of `walk` leaves out one that is in it.
    pub(crate) fn contradict(&self, layout: &IndexLayout, slot: u32, walk: Walk) -> bool {
        let newer = self.count.saturating_sub(1).saturating_sub(walk.next) as usize;
        self.tail.iter().take(newer).any(|&hash| layout.is_in_slot(hash, slot))
            || (walk.is_at_end() && self.has_power_below(layout, slot, self.count))
    }

    /// Whether one of the entries 1, 2, 4 and so on before `number` is in the slot.
    fn has_power_below(&self, layout: &IndexLayout, slot: u32, number: u32) -> bool {
        let below = |place: usize| 1_u32 << place < number;
        let powers = self.powers.iter().enumerate().take_while(|(place, _)| below(*place));
        powers.into_iter().any(|(_, &hash)| layout.is_in_slot(hash, slot))
    }
}

/// An entry of a chain, and where the messages lie that the entries around it are of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) number: u32,
    pub(crate) entry: &'a IndexEntry,
    /// That of the entry before; -1 where there is none.
    pub(crate) before: i64,
    /// That of the entry behind; where there is none, one more than where the last message lies.
    pub(crate) behind: i64,
}

/// One file while a walk goes on in it.
pub(crate) struct Close<'a, B> {
    pub(crate) bytes: &'a mut B,
    pub(crate) layout: &'a IndexLayout,
    pub(crate) head: &'a Head,
    pub(crate) slot: u32,
    pub(crate) witnesses: Arc<Witnessed>,
    pub(crate) findings: &'a mut Vec<Corruption>,
}

impl<B: IndexBytes> Close<'_, B> {
    /// Goes on until the chain's end or until `take` says `false`; the entry for which it does so
    /// comes next again.
    pub(crate) fn run(
        &mut self,
        walk: &mut Walk,
        mut take: impl FnMut(Placed<'_>) -> bool,
    ) -> Result<()> {
        while !walk.is_at_end() {
            let number = walk.next;
            let behind = match number + 1 < self.head.count {
                // Read first, so that what is read with it ends with it.
                true => self.entry(number + 1)?.physical_offset,
                false => self.end_behind(number)?,
            };
            let before = match number {
                1 => -1,
                _ => self.entry(number - 1)?.physical_offset,
            };
            let Some((_, entry)) = walk.step(self.bytes, self.layout, self.findings)? else {
                return Ok(());
            };
            let fault = self.fault(number, &entry, before.max(0)..=behind);
            if let Some(fault) = fault.or(self.passed_over(number, walk.next)?) {
                walk.next = 0;
                self.findings.push(fault);
                return Ok(());
            }
            if !take(Placed { number, entry: &entry, before, behind }) {
                walk.next = number;
                return Ok(());
            }
        }
        Ok(())
    }

    fn entry(&mut self, number: u32) -> Result<IndexEntry> {
        Ok(IndexEntry::decode(&self.bytes.entry(self.layout.entry_position(number))?))
    }

    /// One more than where the last message lies, as the header says, which may say so a moment after
    /// the entry was counted.
    fn end_behind(&mut self, number: u32) -> Result<i64> {
        let at = self.entry(number)?.physical_offset;
        let mut end = self.head.header.end_physical_offset;
        for _ in 0..COUNT_ATTEMPTS {
            if at <= end {
                break;
            }
            std::thread::yield_now();
            end = Head::read(self.bytes, self.layout)?.header.end_physical_offset;
        }
        Ok(end.saturating_add(1))
    }

    /// What an entry contradicts: its slot, or the order of the messages.
    #[inline]
    fn fault(
        &self,
        number: u32,
        entry: &IndexEntry,
        around: RangeInclusive<i64>,
    ) -> Option<Corruption> {
        let hash = entry.key_hash;
        if hash < 0 || !self.layout.is_in_slot(hash, self.slot) {
            let expected = format!("a hash of slot {}", self.slot);
            return Some(self.finding(number, 0, expected, format!("hash {hash}")));
        }
        // Below 0 the link is none, unless it named an entry before its sign was changed.
        if entry.prev_entry < 0 && entry.prev_entry != i32::MIN {
            return Some(self.left_out(number, entry.prev_entry));
        }
        if !around.contains(&entry.physical_offset) {
            let expected = format!("a physical offset of {} to {}", around.start(), around.end());
            let found = entry.physical_offset.to_string();
            return Some(self.finding(number, 4, expected, found));
        }
        None
    }

    /// An entry of the slot that the link from `number` to `next` leaves out.
    #[inline]
    fn passed_over(&mut self, number: u32, next: u32) -> Result<Option<Corruption>> {
        let first = number.saturating_sub(LOOKED_BACK).max(next + 1);
        for between in (first..number).rev() {
            let hash = self.entry(between)?.key_hash;
            if self.layout.is_in_slot(hash, self.slot) {
                return Ok(Some(self.left_out(number, next.cast_signed())));
            }
        }
        let ends = next == 0 && self.witnesses.has_power_below(self.layout, self.slot, number);
        Ok(ends.then(|| self.left_out(number, next.cast_signed())))
    }

    #[cold]
    fn left_out(&self, number: u32, next: i32) -> Corruption {
        let expected = format!("the newest entry of slot {} before {number}", self.slot);
        self.finding(number, 16, expected, format!("entry {next}"))
    }

    #[cold]
    fn finding(&self, number: u32, at: u64, expected: String, found: String) -> Corruption {
        Corruption {
            path: Some(self.bytes.path().to_owned()),
            offset: self.layout.entry_position(number).saturating_add(at),
            kind: if at == 16 { CorruptionKind::IndexChain } else { CorruptionKind::IndexEntry },
            expected,
            found,
        }
    }
}

/// Whether a slot that counts as empty, since what it names is below 0, named an entry before its sign was
/// changed.
pub(crate) fn names_an_entry<B: IndexBytes>(
    bytes: &mut B,
    layout: &IndexLayout,
    slot: u32,
) -> Result<bool> {
    let value = i32_in::<0, SLOT_LEN>(&bytes.fresh(layout.slot_position(slot))?);
    Ok(value < 0 && value != i32::MIN)
}

/// A slot that names an older entry than its newest.
#[cold]
pub(crate) fn wrong_slot(path: &Path, layout: &IndexLayout, slot: u32, walk: Walk) -> Corruption {
    Corruption {
        path: Some(path.to_owned()),
        offset: layout.slot_position(slot),
        kind: CorruptionKind::IndexSlot,
        expected: "the newest entry of the slot".to_owned(),
        found: format!("entry {}", walk.next),
    }
}
