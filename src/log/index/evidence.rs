//! Reasons to believe an entry of an index file, so that an exact query never misses messages
//! silently.
//!
//! Entries have the order of messages, and a link names the slot's next older entry: no entry
//! between them belongs to the slot. An apparent end of a chain is compared with entries 1, 2, 4 and
//! so on, which a link that lost one bit may have named.

use std::sync::Arc;

use crate::locks::Mutex;

use super::reader::{COUNT_ATTEMPTS, Head, IndexBytes, IndexReader};
use crate::error::Result;
use crate::format::bytes::i32_in;
use crate::format::index::{ENTRY_LEN, IndexEntry, IndexLayout, SLOT_LEN};

/// Entries checked before one: those read with it.
const LOOKED_BACK: u32 = 202;

/// Slots of some entries of a file, for checks of slots and links.
#[derive(Debug, Default)]
pub(crate) struct SampledSlots(Mutex<Arc<Sample>>);

#[derive(Debug, Default)]
struct Sample {
    count: u32,
    /// Slots of the last entries, newest first, and of entries 1, 2, 4 and so on.
    tail: Vec<u32>,
    powers: Vec<u32>,
}

impl SampledSlots {
    /// Positions and lengths that a walk from a slot begins with.
    pub(crate) fn places(&self, layout: &IndexLayout, slot: u32, count: u32) -> Vec<(u64, usize)> {
        let mut places = vec![(layout.slot_position(slot), SLOT_LEN)];
        if self.0.lock().count != count {
            let first = count.saturating_sub(LOOKED_BACK).max(1);
            let powers = (0..31).map(|power| 1_u32 << power).take_while(|power| *power < count);
            let entries = powers.chain(first..count);
            places.extend(entries.map(|number| (layout.entry_position(number), ENTRY_LEN)));
        }
        places
    }

    pub(crate) fn evidence<B: IndexBytes>(
        &self,
        reader: &mut IndexReader<'_, B>,
        slot: u32,
        count: u32,
    ) -> Result<Evidence> {
        let known = Arc::clone(&self.0.lock());
        if known.count == count {
            return Ok(Evidence { slot, sample: known });
        }
        let mut slot_of = |number: u32| {
            let entry = reader.entry(number)?;
            Ok(reader.layout.slot_of(entry.key_hash))
        };
        // A truncated file may hold others.
        let mut powers = if known.count < count { known.powers.clone() } else { Vec::new() };
        while 1_u32 << powers.len() < count {
            powers.push(slot_of(1 << powers.len())?);
        }
        let first = count.saturating_sub(LOOKED_BACK).max(1);
        // The last one first: it is read together with those before it.
        let tail = (first..count).rev().map(&mut slot_of).collect::<Result<Vec<_>>>()?;
        let sample = Arc::new(Sample { count, tail, powers });
        *self.0.lock() = Arc::clone(&sample);
        Ok(Evidence { slot, sample })
    }
}

pub(crate) struct Evidence {
    slot: u32,
    sample: Arc<Sample>,
}

impl Evidence {
    /// Whether the slot should name a newer entry than `newest`.
    fn contradicts(&self, newest: u32) -> bool {
        let Sample { count, tail, .. } = &*self.sample;
        let newer = count.saturating_sub(1).saturating_sub(newest) as usize;
        tail.get(..newer).unwrap_or(tail).contains(&self.slot)
            || (newest == 0 && self.has_power_below(*count))
    }

    fn has_power_below(&self, number: u32) -> bool {
        let powers = &self.sample.powers;
        let below = number.saturating_sub(1).checked_ilog2().map_or(0, |power| power as usize + 1);
        powers.get(..below).unwrap_or(powers).contains(&self.slot)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Neighbours {
    pub(crate) before: i64,
    /// Offset of the next entry, or the last one plus one.
    pub(crate) behind: i64,
}

impl<B: IndexBytes> IndexReader<'_, B> {
    /// Reports a slot that names an older entry than its newest.
    pub(crate) fn check_start(&mut self, evidence: &Evidence, newest: u32) -> Result<()> {
        let position = self.layout.slot_position(evidence.slot);
        // Negative if only the sign bit was flipped.
        let is_flipped = |value: i32| value < 0 && value != i32::MIN;
        if evidence.contradicts(newest)
            || (newest == 0 && is_flipped(i32_in::<0, SLOT_LEN>(&self.bytes.fresh(position)?)))
        {
            self.report_slot(position, "the newest entry of the slot".to_owned(), newest);
        }
        Ok(())
    }

    pub(crate) fn neighbours(&mut self, number: u32) -> Result<Neighbours> {
        let behind = match number + 1 < self.head.count {
            // Read first, so that its block ends with it.
            true => self.entry(number + 1)?.physical_offset,
            false => self.end_behind(number)?,
        };
        let before = match number {
            1 => -1,
            _ => self.entry(number - 1)?.physical_offset,
        };
        Ok(Neighbours { before, behind })
    }

    /// The header's last offset plus one; the header may lag behind the count.
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

    /// Whether an entry that links to `next` agrees with its slot, the order of messages, and the
    /// entries that the link skips; reports it otherwise.
    pub(crate) fn is_believed(
        &mut self,
        evidence: &Evidence,
        number: u32,
        entry: &IndexEntry,
        next: u32,
        Neighbours { before, behind }: Neighbours,
    ) -> Result<bool> {
        let (slot, layout, hash) = (evidence.slot, self.layout, entry.key_hash);
        if hash < 0 || !layout.is_in_slot(hash, slot) {
            self.report(number, 0, format!("a hash of slot {slot}"), format!("hash {hash}"));
            return Ok(false);
        }
        let before = before.max(0);
        // A negative link is none, unless only its sign bit was flipped.
        let is_flipped = entry.prev_entry < 0 && entry.prev_entry != i32::MIN;
        if !is_flipped && !(before..=behind).contains(&entry.physical_offset) {
            let expected = format!("a physical offset of {before} to {behind}");
            self.report(number, 4, expected, entry.physical_offset.to_string());
            return Ok(false);
        }
        if is_flipped || self.leaves_out(evidence, number, next)? {
            let expected = format!("the newest entry of slot {slot} before {number}");
            let next = if is_flipped { entry.prev_entry } else { next.cast_signed() };
            self.report(number, 16, expected, format!("entry {next}"));
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether an entry between one and the next of its chain is of the same slot.
    fn leaves_out(&mut self, evidence: &Evidence, number: u32, next: u32) -> Result<bool> {
        let (slot, layout) = (evidence.slot, self.layout);
        let mut leaves_out = next == 0 && evidence.has_power_below(number);
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
        Ok(leaves_out)
    }
}
