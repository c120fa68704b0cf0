//! The index file: header, hash slots, entries (`org.apache.rocketmq.store.index.IndexFile`).
//!
//! Behind the header lies one i32 for each slot: the number of its newest entry, 0 for none. Then
//! come the entries; number 0 is never used.

use super::bytes::layout;
use crate::format::width::{clamp_u64, saturating_i32};

/// Length of the header (`IndexHeader.INDEX_HEADER_SIZE`).
pub const HEADER_LEN: usize = 40;

pub const SLOT_LEN: usize = 4;

/// Length of an entry (`IndexFile.indexSize`).
pub const ENTRY_LEN: usize = 20;

layout! {
    /// The header (`IndexHeader`): store times and physical offsets of the first and the last indexed
    /// message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IndexHeader: HEADER_LEN {
        0 => begin_timestamp_ms: i64,
        8 => end_timestamp_ms: i64,
        16 => begin_physical_offset: i64,
        24 => end_physical_offset: i64,
        /// Slots in use.
        32 => hash_slot_count: i32,
        /// Number of the next entry; the first is 1.
        36 => index_count: i32 as one_or_more,
    }
}

/// A count of 0 or less, as in a zeroed file, means 1 (`IndexHeader#load`).
const fn one_or_more(count: i32) -> i32 {
    if count <= 0 { 1 } else { count }
}

impl Default for IndexHeader {
    /// As in a zeroed file.
    fn default() -> Self {
        Self::decode(&[0; HEADER_LEN])
    }
}

impl IndexHeader {
    /// The header of the file behind a full one (`IndexFile`'s constructor).
    pub(crate) fn next(&self) -> Self {
        let (offset, time_ms) = (self.end_physical_offset.max(0), self.end_timestamp_ms.max(0));
        Self {
            begin_timestamp_ms: time_ms,
            end_timestamp_ms: time_ms,
            begin_physical_offset: offset,
            end_physical_offset: offset,
            ..Self::default()
        }
    }

    /// Counts an entry; the layout has room for it.
    #[inline(always)]
    pub(crate) fn add(&mut self, physical_offset: i64, store_timestamp_ms: i64, in_new_slot: bool) {
        if self.index_count <= 1 {
            self.begin_physical_offset = physical_offset;
            self.begin_timestamp_ms = store_timestamp_ms;
        }
        self.hash_slot_count = self.hash_slot_count.saturating_add(i32::from(in_new_slot));
        self.index_count += 1;
        self.end_physical_offset = physical_offset;
        self.end_timestamp_ms = store_timestamp_ms;
    }
}

layout! {
    /// An entry (`IndexFile#putKey`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct IndexEntry: ENTRY_LEN {
        /// [`key_hash`](super::java::key_hash) of topic and key, never negative.
        0 => key_hash: i32,
        4 => physical_offset: i64,
        /// Store time in seconds since the header's begin.
        12 => seconds: i32,
        /// Number of the slot's next older entry, 0 for none.
        16 => prev_entry: i32,
    }
}

/// Positions in an index file; its two numbers are not stored in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexLayout {
    slots: u32,
    entries: u32,
    /// `2^64 / slots`, rounded up, for a remainder by two multiplications.
    per_slot: u64,
}

impl IndexLayout {
    /// RocketMQ's defaults (`MessageStoreConfig`).
    pub const DEFAULT: Self =
        Self { slots: 5_000_000, entries: 20_000_000, per_slot: u64::MAX / 5_000_000 + 1 };

    /// A layout of so many slots (`maxHashSlotNum`) and entries (`maxIndexNum`, including unused
    /// entry 0). `None` if one is 0 or the length exceeds an `int`.
    #[must_use]
    pub fn new(slots: u32, entries: u32) -> Option<Self> {
        let per_slot = u64::MAX.checked_div(u64::from(slots))?.wrapping_add(1);
        let layout = Self { slots, entries, per_slot };
        let fits = i32::try_from(layout.file_len()).is_ok();
        (slots > 0 && entries > 0 && fits).then_some(layout)
    }

    #[inline]
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Number of entries, including unused entry 0.
    #[inline]
    #[must_use]
    pub const fn entries(&self) -> u32 {
        self.entries
    }

    /// The `index_count` of a full file.
    #[inline]
    #[must_use]
    pub const fn max_entry_count(&self) -> u32 {
        self.entries
    }

    #[inline]
    #[must_use]
    pub const fn file_len(&self) -> u64 {
        self.entry_position(self.entries)
    }

    #[inline]
    #[must_use]
    pub const fn slot_of(&self, key_hash: i32) -> u32 {
        // Never negative. A remainder in half the time (Lemire, Kaser, Kurz, "Faster remainder
        // by direct computation", 2019).
        let part = self.per_slot.wrapping_mul(key_hash.unsigned_abs() as u64);
        ((part as u128 * self.slots as u128) >> 64) as u32
    }

    /// Whether a hash belongs to a slot: compares like [`IndexLayout::slot_of`] with one
    /// multiplication.
    #[inline]
    #[must_use]
    pub const fn is_in_slot(&self, key_hash: i32, slot: u32) -> bool {
        // Layouts have fewer than 2^29 slots, so only whole multiples come out below 2^32.
        let above = key_hash.unsigned_abs() as u64 + (self.slots as u64 - slot as u64);
        self.slots == 1 || self.per_slot.wrapping_mul(above) < self.per_slot
    }

    #[inline]
    #[must_use]
    pub const fn slot_position(&self, slot: u32) -> u64 {
        HEADER_LEN as u64 + SLOT_LEN as u64 * slot as u64
    }

    #[inline]
    #[must_use]
    pub const fn entry_position(&self, entry: u32) -> u64 {
        self.slot_position(self.slots) + ENTRY_LEN as u64 * entry as u64
    }
}

/// An entry's seconds for `time_ms` in a file that begins at `begin_ms` (`IndexFile#putKey`).
#[inline]
#[must_use]
pub fn seconds_since(begin_ms: i64, time_ms: i64) -> i32 {
    if begin_ms <= 0 {
        return 0;
    }
    // Wraps as in Java.
    saturating_i32(clamp_u64(time_ms.wrapping_sub(begin_ms)) / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_fields_in_order() {
        let header = IndexHeader {
            begin_timestamp_ms: 1,
            end_timestamp_ms: 2,
            begin_physical_offset: 3,
            end_physical_offset: -4,
            hash_slot_count: 5,
            index_count: 6,
        };
        let bytes = header.encode();
        assert_eq!(
            [bytes[7], bytes[15], bytes[23], bytes[31], bytes[35], bytes[39]],
            [1, 2, 3, 252, 5, 6]
        );
        assert_eq!(IndexHeader::decode(&bytes), header);
    }

    #[test]
    fn count_below_one_means_one() {
        assert_eq!(IndexHeader::decode(&[0; 40]), IndexHeader::default());
        for index_count in [0, -1, i32::MIN] {
            let bytes = IndexHeader { index_count, ..IndexHeader::default() }.encode();
            assert_eq!(IndexHeader::decode(&bytes).index_count, 1);
        }
    }

    #[test]
    fn entry_fields_in_order() {
        let entry = IndexEntry { key_hash: 1, physical_offset: -2, seconds: 3, prev_entry: 4 };
        let bytes = entry.encode();
        assert_eq!(
            bytes,
            [0, 0, 0, 1, 255, 255, 255, 255, 255, 255, 255, 254, 0, 0, 0, 3, 0, 0, 0, 4]
        );
        assert_eq!(IndexEntry::decode(&bytes), entry);
    }

    #[test]
    fn default_file_has_420_000_040_bytes() {
        let layout = IndexLayout::new(5_000_000, 20_000_000).unwrap();
        assert_eq!(layout, IndexLayout::DEFAULT);
        assert_eq!(layout.file_len(), 420_000_040);
        assert_eq!(layout.slot_position(0), 40);
        assert_eq!(layout.slot_position(7), 68);
        assert_eq!(layout.entry_position(0), 20_000_040);
        assert_eq!(layout.entry_position(1), 20_000_060);
        assert_eq!(layout.slot_of(19_583_063), 4_583_063);
        assert_eq!(
            (layout.slots(), layout.entries(), layout.max_entry_count()),
            (5_000_000, 20_000_000, 20_000_000)
        );
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert_eq!(IndexLayout::new(0, 1), None);
        assert_eq!(IndexLayout::new(1, 0), None);
        assert_eq!(IndexLayout::new(u32::MAX, u32::MAX), None);
        // 40 + 4 * 1 + 20 * 107,374,180 is the last below 2^31.
        assert_eq!(IndexLayout::new(1, 107_374_180).unwrap().file_len(), 2_147_483_644);
        assert_eq!(IndexLayout::new(2, 107_374_180), None);
    }

    #[test]
    fn every_hash_has_a_slot() {
        let layout = IndexLayout::new(7, 8).unwrap();
        for hash in [0, 1, 7, i32::MAX, -1, i32::MIN] {
            assert!(layout.slot_of(hash) < 7);
        }
        assert_eq!(layout.slot_of(15), 1);
    }

    #[test]
    fn a_hash_is_in_its_slot_and_in_no_other() {
        for slots in [1, 2, 7, 8, 1000, 5_000_000, 1 << 28] {
            let layout = IndexLayout::new(slots, 2).unwrap();
            for hash in [0, 1, 6, 7, 8, 4_999_999, 5_000_000, i32::MAX - 1, i32::MAX, i32::MIN, -7]
            {
                let slot = layout.slot_of(hash);
                assert!(layout.is_in_slot(hash, slot), "{hash} of {slots}");
                for other in [0, 1, 5, slots - 1, (slot + 1) % slots] {
                    let other = other % slots;
                    assert_eq!(layout.is_in_slot(hash, other), other == slot, "{hash}, {slots}");
                }
            }
        }
    }

    #[test]
    fn seconds_are_clamped() {
        assert_eq!(seconds_since(1_000, 8_740), 7);
        assert_eq!(seconds_since(8_740, 1_000), 0);
        assert_eq!(seconds_since(1_000, 1_999), 0);
        assert_eq!(seconds_since(0, 8_740), 0);
        assert_eq!(seconds_since(-5, 8_740), 0);
        assert_eq!(seconds_since(1, i64::MAX), i32::MAX);
        assert_eq!(seconds_since(1, i64::MIN), i32::MAX);
    }
}
