//! Following a slot's chain in an index file: the one loop of all look-ups, exact or as RocketMQ. Only
//! [`IndexFile::select_many`](super::file::IndexFile::select_many) has its own, which keeps many in flight.
//!
//! RocketMQ believes each entry. An exact walk, for queries that must not come back short in silence,
//! compares each with its neighbours. Entries lie in the order of their messages, and a link leads to the
//! newest older entry of its slot: so between an entry and the one that it links to none is in the slot.
//! Bytes that are read anyway show that for the entries just before; a chain that seems to end is compared
//! with entries 1, 2, 4 and so on, one of which a link named that lost its only bit.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

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

/// Where the messages lie that the entries around one are of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Around {
    /// That of the entry before; -1 where there is none.
    pub(crate) before: i64,
    /// That of the entry behind; where there is none, one more than where the last message lies.
    pub(crate) behind: i64,
}

/// What an exact walk compares a slot's entries with.
pub(crate) struct Exact<'a> {
    pub(crate) head: &'a Head,
    pub(crate) slot: u32,
    pub(crate) witnesses: Arc<Witnessed>,
}

/// A file while a walk goes on in it; without `exact` its entries are believed, as in RocketMQ.
pub(crate) struct Lookup<'a, B> {
    pub(crate) bytes: &'a mut B,
    pub(crate) layout: &'a IndexLayout,
    pub(crate) exact: Option<Exact<'a>>,
    pub(crate) findings: &'a mut Vec<Corruption>,
}

impl<B: IndexBytes> Lookup<'_, B> {
    /// Goes on until the chain's end or until `take` says `false`; the entry for which it does so
    /// comes next again. An entry that contradicts what it is compared with ends the walk.
    #[inline(always)]
    pub(crate) fn run(
        &mut self,
        walk: &mut Walk,
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
            // Read first, so that what is read with it ends with it.
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

    /// One more than where the last message lies, as the header says, which may say so a moment after
    /// the entry was counted.
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

    /// What an entry that links to `next` contradicts: its slot, the order of the messages, or an entry of
    /// the slot that the link leaves out.
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
        // Below 0 the link is none, unless it named an entry before its sign was changed.
        if entry.prev_entry < 0 && entry.prev_entry != i32::MIN {
            return Ok(Some(self.left_out(slot, number, entry.prev_entry)));
        }
        let before = before.max(0);
        if !(before..=behind).contains(&entry.physical_offset) {
            let expected = format!("a physical offset of {before} to {behind}");
            let found = entry.physical_offset.to_string();
            return Ok(Some(self.finding(number, 4, expected, found)));
        }
        let mut leaves_out = next == 0 && witnesses.has_power_below(layout, slot, number);
        for between in (number.saturating_sub(LOOKED_BACK).max(next + 1)..number).rev() {
            leaves_out |= layout.is_in_slot(self.entry(between)?.key_hash, slot);
            if leaves_out {
                break;
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
