//! Follows a slot's chain in an index file: the one loop of all look-ups, exact or by RocketMQ's
//! rules, but [`IndexFile::select_many`](super::file::IndexFile::select_many) runs many at once.
//!
//! RocketMQ trusts each entry. An exact walk compares each with its neighbours, so a query never
//! misses messages silently. Entries have the order of messages, and a link names the slot's next
//! older entry: no entry between them belongs to the slot. An apparent end of a chain is compared
//! with entries 1, 2, 4 and so on, which a link that lost one bit may have named.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::chain::{COUNT_ATTEMPTS, ChainWalk, Head, IndexBytes};
use crate::error::{Corruption, CorruptionKind, Result};
use crate::format::bytes::i32_in;
use crate::format::index::{ENTRY_LEN, IndexEntry, IndexLayout, SLOT_LEN};

/// Entries checked before one: those read with it.
const LOOKED_BACK: u32 = 202;

/// Known entries of a file, for checks of slots and links.
#[derive(Debug, Default)]
pub(crate) struct Witnesses(Mutex<Arc<Witnessed>>);

#[derive(Debug, Default)]
pub(crate) struct Witnessed {
    count: u32,
    /// Slots of the last entries, newest first, and of entries 1, 2, 4 and so on.
    tail: Vec<u32>,
    powers: Vec<u32>,
}

impl Witnesses {
    /// Slots for a file of that count.
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
        let mut slot_of = |number: u32| {
            bytes
                .entry(layout.entry_position(number))
                .map(|entry| layout.slot_of(IndexEntry::decode(&entry).key_hash))
        };
        // A truncated file may hold others.
        let mut powers = if known.count < count { known.powers.clone() } else { Vec::new() };
        while 1_u32 << powers.len() < count {
            powers.push(slot_of(1 << powers.len())?);
        }
        let first = count.saturating_sub(LOOKED_BACK).max(1);
        // The last one first: it is read together with those before it.
        let tail = (first..count).rev().map(&mut slot_of).collect::<Result<Vec<_>>>()?;
        let new = Arc::new(Witnessed { count, tail, powers });
        *self.0.lock() = Arc::clone(&new);
        Ok(new)
    }
}

impl Witnessed {
    /// Whether the slot should name a newer entry than the start of `walk`.
    pub(crate) fn contradict(&self, slot: u32, walk: ChainWalk) -> bool {
        let newer = self.count.saturating_sub(1).saturating_sub(walk.next) as usize;
        self.tail.get(..newer).unwrap_or(&self.tail).contains(&slot)
            || (walk.is_at_end() && self.has_power_below(slot, self.count))
    }

    fn has_power_below(&self, slot: u32, number: u32) -> bool {
        let below = number.saturating_sub(1).checked_ilog2().map_or(0, |power| power as usize + 1);
        self.powers.get(..below).unwrap_or(&self.powers).contains(&slot)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Around {
    /// Offset of the previous entry, or -1.
    pub(crate) before: i64,
    /// Offset of the next entry, or the last one plus one.
    pub(crate) behind: i64,
}

/// Data for checks of a slot's entries.
pub(crate) struct Exact<'a> {
    pub(crate) head: &'a Head,
    pub(crate) slot: u32,
    pub(crate) witnesses: Arc<Witnessed>,
}

/// A file during a walk; without `exact` its entries are trusted, as in RocketMQ.
pub(crate) struct Lookup<'a, B> {
    pub(crate) bytes: &'a mut B,
    pub(crate) layout: &'a IndexLayout,
    pub(crate) exact: Option<Exact<'a>>,
    pub(crate) findings: &'a mut Vec<Corruption>,
}

impl<B: IndexBytes> Lookup<'_, B> {
    /// Walks until the end or until `take` returns `false`; that entry comes next again. An entry
    /// with a contradiction ends the walk.
    #[inline(always)]
    pub(crate) fn run(
        &mut self,
        walk: &mut ChainWalk,
        mut take: impl FnMut(u32, &IndexEntry, Around) -> bool,
    ) -> Result<()> {
        while !walk.is_at_end() {
            let number = walk.next;
            let around = match self.exact {
                Some(_) => self.look_around(number)?,
                None => Around::default(),
            };
            let step = walk.step(self.bytes, self.layout, self.findings)?;
            let Some((_, entry)) = step else { break };
            if self.exact.is_some()
                && let Some(fault) = self.fault(number, &entry, walk.next, around)?
            {
                walk.next = 0;
                self.findings.push(fault);
                break;
            }
            if !take(number, &entry, around) {
                walk.next = number;
                break;
            }
        }
        Ok(())
    }

    fn look_around(&mut self, number: u32) -> Result<Around> {
        let count = self.exact.as_ref().map_or(0, |exact| exact.head.count);
        let behind = match number + 1 < count {
            // Read first, so that its block ends with it.
            true => self.entry(number + 1)?.physical_offset,
            false => self.end_behind(number)?,
        };
        let before = match number {
            1 => -1,
            _ => self.entry(number - 1)?.physical_offset,
        };
        Ok(Around { before, behind })
    }

    fn entry(&mut self, number: u32) -> Result<IndexEntry> {
        Ok(IndexEntry::decode(&self.bytes.entry(self.layout.entry_position(number))?))
    }

    /// The header's last offset plus one; the header may lag behind the count.
    fn end_behind(&mut self, number: u32) -> Result<i64> {
        let at = self.entry(number)?.physical_offset;
        let known = self.exact.as_ref().map(|exact| exact.head.header.end_physical_offset);
        let mut end = known.unwrap_or(i64::MAX);
        for _ in 0..COUNT_ATTEMPTS {
            if at <= end {
                break;
            }
            std::thread::yield_now();
            end = Head::read(self.bytes, self.layout)?.header.end_physical_offset;
        }
        Ok(end.saturating_add(1))
    }

    /// Contradiction of an entry that links to `next` with its slot, the order of messages, or an
    /// entry that the link skips.
    fn fault(
        &mut self,
        number: u32,
        entry: &IndexEntry,
        next: u32,
        Around { before, behind }: Around,
    ) -> Result<Option<Corruption>> {
        let Some(Exact { slot, witnesses, .. }) = &self.exact else { return Ok(None) };
        let (slot, layout, hash) = (*slot, self.layout, entry.key_hash);
        if hash < 0 || !layout.is_in_slot(hash, slot) {
            let expected = format!("a hash of slot {slot}");
            return Ok(Some(self.finding(number, 0, expected, format!("hash {hash}"))));
        }
        // A negative link is none, unless only its sign bit was flipped.
        if entry.prev_entry < 0 && entry.prev_entry != i32::MIN {
            return Ok(Some(self.left_out(slot, number, entry.prev_entry)));
        }
        let before = before.max(0);
        if !(before..=behind).contains(&entry.physical_offset) {
            let expected = format!("a physical offset of {before} to {behind}");
            let found = entry.physical_offset.to_string();
            return Ok(Some(self.finding(number, 4, expected, found)));
        }
        let mut leaves_out = next == 0 && witnesses.has_power_below(slot, number);
        let from = number.saturating_sub(LOOKED_BACK).max(next + 1);
        let count = number.saturating_sub(from) as usize;
        match self.bytes.known(layout.entry_position(from), count) {
            Some(between) => {
                let is_in_slot = |entry| layout.is_in_slot(i32_in::<0, ENTRY_LEN>(entry), slot);
                leaves_out |= between.iter().any(is_in_slot);
            }
            None => {
                for between in (from..number).rev() {
                    leaves_out |= layout.is_in_slot(self.entry(between)?.key_hash, slot);
                }
            }
        }
        Ok(leaves_out.then(|| self.left_out(slot, number, next.cast_signed())))
    }

    #[cold]
    fn left_out(&self, slot: u32, number: u32, next: i32) -> Corruption {
        let expected = format!("the newest entry of slot {slot} before {number}");
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

/// Whether a negative slot named an entry before its sign bit was flipped.
pub(crate) fn names_an_entry<B: IndexBytes>(
    bytes: &mut B,
    layout: &IndexLayout,
    slot: u32,
) -> Result<bool> {
    let value = i32_in::<0, SLOT_LEN>(&bytes.fresh(layout.slot_position(slot))?);
    Ok(value < 0 && value != i32::MIN)
}

/// Corruption for a slot that names an older entry than its newest.
#[cold]
pub(crate) fn wrong_slot(
    path: &Path,
    layout: &IndexLayout,
    slot: u32,
    walk: ChainWalk,
) -> Corruption {
    Corruption {
        path: Some(path.to_owned()),
        offset: layout.slot_position(slot),
        kind: CorruptionKind::IndexSlot,
        expected: "the newest entry of the slot".to_owned(),
        found: format!("entry {}", walk.next),
    }
}
