//! Entries of a consume queue and their tags codes.
//!
//! | at | size | type | field | from |
//! |---|---|---|---|---|
//! | 0 | 8 | i64 | physical offset | `ConsumeQueue#putMessagePositionInfo` |
//! | 8 | 4 | i32 | store size | |
//! | 12 | 8 | i64 | tags code: a hash, a delivery time, or an address in the queue extension | |

use std::fmt;
use std::sync::LazyLock;

use serde::{Serialize, Serializer};

use crate::format::bytes::layout;
use crate::format::java;
use crate::format::message::properties::Indexed;

pub use crate::format::message::tag_filter::TagFilter;

/// Length of an entry (`ConsumeQueue.CQ_STORE_UNIT_SIZE`).
pub const ENTRY_LEN: usize = 20;
/// Greatest queue offset whose entry a file can have.
pub const MOST_NUMBER: i64 = i64::MAX / ENTRY_LEN as i64;

/// Topic of delayed messages (`TopicValidator.RMQ_SYS_SCHEDULE_TOPIC`).
pub const SCHEDULE_TOPIC: &[u8] = b"SCHEDULE_TOPIC_XXXX";

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// Delay of each level from 1 on (`MessageStoreConfig.messageDelayLevel`).
pub const DELAY_LEVELS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayLevels(Box<[i64]>);

impl Default for DelayLevels {
    fn default() -> Self {
        static LEVELS: LazyLock<DelayLevels> =
            LazyLock::new(|| DelayLevels::parse(DELAY_LEVELS).unwrap_or(DelayLevels([].into())));
        LEVELS.clone()
    }
}

impl fmt::Display for DelayLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, delay_ms) in self.0.iter().enumerate() {
            let units = [(24 * HOUR, "d"), (HOUR, "h"), (MINUTE, "m")];
            let fits = |unit_ms: i64| *delay_ms > 0 && delay_ms % unit_ms == 0;
            let found = units.into_iter().find(|(unit_ms, _)| fits(*unit_ms));
            let (unit_ms, unit) = found.unwrap_or((SECOND, "s"));
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{}{unit}", delay_ms / unit_ms)?;
        }
        Ok(())
    }
}

impl Serialize for DelayLevels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl DelayLevels {
    /// Parses delays such as `1s 5m 2h 1d`, from level 1 on
    /// (`DefaultMessageStore#parseDelayLevel`).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let delay_ms = |level: &str| {
            let (digits, unit) = level.split_at_checked(level.len().checked_sub(1)?)?;
            let unit_ms = match unit {
                "s" => SECOND,
                "m" => MINUTE,
                "h" => HOUR,
                "d" => 24 * HOUR,
                _ => return None,
            };
            let number = digits.parse::<u32>().ok().filter(|_| !digits.starts_with('+'))?;
            i64::from(number).checked_mul(unit_ms)
        };
        text.trim().split(' ').map(delay_ms).collect::<Option<_>>().map(Self)
    }

    /// Delivery time of a level, which an entry holds in place of a hash
    /// (`DefaultMessageStore#computeDeliverTimestamp`; the level is limited as in
    /// `CommitLog#checkMessageAndReturnSize`).
    #[must_use]
    pub fn due_ms(&self, level: i32, store_timestamp_ms: i64) -> i64 {
        let index = usize::try_from(level).ok().and_then(|level| level.checked_sub(1));
        let delay_ms = index
            .and_then(|index| self.0.get(index.min(self.0.len().wrapping_sub(1))))
            .copied()
            .unwrap_or(SECOND);
        // Wraps as in Java.
        store_timestamp_ms.wrapping_add(delay_ms)
    }
}

layout! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QueueEntry: ENTRY_LEN {
        0 => physical_offset: i64,
        8 => store_size: i32,
        12 => tags_code: i64,
    }
}

impl QueueEntry {
    /// Fills the first file before its first entry (`ConsumeQueue#fillPreBlank`).
    pub const PRE_BLANK: Self = Self { physical_offset: 0, store_size: i32::MAX, tags_code: 0 };

    /// The first invalid entry ends the queue (`ConsumeQueue#recover`).
    #[inline]
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.physical_offset >= 0 && self.store_size > 0
    }

    #[inline]
    #[must_use]
    pub const fn is_pre_blank(&self) -> bool {
        self.physical_offset == Self::PRE_BLANK.physical_offset
            && self.store_size == Self::PRE_BLANK.store_size
            && self.tags_code == Self::PRE_BLANK.tags_code
    }
}

/// Hash of the whole value, 0 for none (`MessageExtBrokerInner#tagsString2tagsCode`).
#[inline]
#[must_use]
pub fn tags_code(tags: Option<&[u8]>) -> i64 {
    tags.map_or(0, |tags| i64::from(java::hash_code(tags)))
}

/// Tags code of a message's queue entry (`CommitLog#checkMessageAndReturnSize`).
///
/// A `DELAY` that is not a number is ignored; RocketMQ calls such a record damaged, and its
/// recovery ends the log there.
#[inline]
#[must_use]
pub fn dispatch_tags_code(
    topic: &[u8],
    properties: &Indexed<'_>,
    store_timestamp_ms: i64,
    levels: &DelayLevels,
) -> i64 {
    if topic == SCHEDULE_TOPIC
        && let Some(level) = properties.delay.and_then(delay_level)
        && level > 0
    {
        return levels.due_ms(level, store_timestamp_ms);
    }
    tags_code(properties.tags)
}

/// Parses `DELAY` as `Integer.parseInt` does.
#[must_use]
pub fn delay_level(delay: &[u8]) -> Option<i32> {
    str::from_utf8(delay).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_has_three_fields_and_twenty_bytes() {
        let entry = QueueEntry {
            physical_offset: 0x0102_0304_0506_0708,
            store_size: 0x0A0B_0C0D,
            tags_code: -2,
        };
        let bytes = entry.encode();
        assert_eq!(
            bytes,
            [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 255, 255, 255, 255, 255, 255, 255, 254]
        );
        assert_eq!(QueueEntry::decode(&bytes), entry);
    }

    #[test]
    fn validity_is_offset_and_size() {
        let entry =
            |physical_offset, store_size| QueueEntry { physical_offset, store_size, tags_code: 0 };
        assert!(entry(0, 1).is_valid() && entry(i64::MAX, i32::MAX).is_valid());
        assert!(!entry(-1, 1).is_valid() && !entry(0, 0).is_valid() && !entry(0, -1).is_valid());
        assert!(!QueueEntry::decode(&[0; 20]).is_valid());
    }

    #[test]
    fn pre_blank_is_valid_and_known() {
        assert!(QueueEntry::PRE_BLANK.is_valid() && QueueEntry::PRE_BLANK.is_pre_blank());
        assert_eq!(
            QueueEntry::PRE_BLANK.encode(),
            [0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        for other in [
            QueueEntry { physical_offset: 1, ..QueueEntry::PRE_BLANK },
            QueueEntry { store_size: 1, ..QueueEntry::PRE_BLANK },
            QueueEntry { tags_code: 1, ..QueueEntry::PRE_BLANK },
        ] {
            assert!(!other.is_pre_blank());
        }
    }

    #[test]
    fn tags_code_is_a_sign_extended_hash() {
        assert_eq!(tags_code(None), 0);
        assert_eq!(tags_code(Some(b"")), 0);
        assert_eq!(tags_code(Some(b"TagA")), 2_598_919);
        assert_eq!(tags_code(Some(b"polygenelubricants")), i64::from(i32::MIN));
    }

    #[test]
    fn delay_levels_add_their_time() {
        let levels = DelayLevels::default();
        assert_eq!(levels.due_ms(1, 1_000), 2_000);
        assert_eq!(levels.due_ms(5, 0), 60_000);
        assert_eq!(levels.due_ms(18, 0), 7_200_000);
        assert_eq!(levels.due_ms(19, 0), 7_200_000);
        assert_eq!(levels.due_ms(i32::MAX, 0), 7_200_000);
        assert_eq!(levels.due_ms(0, 0), 1_000);
        assert_eq!(levels.due_ms(i32::MIN, 0), 1_000);
        assert_eq!(levels.due_ms(1, i64::MAX), i64::MIN + 999);
    }

    #[test]
    fn delay_levels_are_read_as_they_are_set() {
        let text = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";
        assert_eq!(DelayLevels::parse(text), Some(DelayLevels::default()));
        assert_eq!(DelayLevels::default().to_string(), text);
        assert_eq!(DelayLevels::parse("0s 90s 24h").unwrap().to_string(), "0s 90s 1d");
        let own = DelayLevels::parse("7s 1d").unwrap();
        assert_eq!(
            (own.due_ms(1, 0), own.due_ms(2, 0), own.due_ms(9, 0)),
            (7_000, 86_400_000, 86_400_000)
        );
        for bad in ["", "s", "1", "1x", "1s  2s", "-1s", "+1s", "1s,2s", "99999999999s", "1é"] {
            assert_eq!(DelayLevels::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_the_schedule_topic_knows_delays() {
        let code = |topic: &[u8], delay: Option<&'static [u8]>| {
            let properties = Indexed { tags: Some(b"a"), delay, ..Indexed::default() };
            dispatch_tags_code(topic, &properties, 1_000, &DelayLevels::default())
        };
        assert_eq!(code(SCHEDULE_TOPIC, Some(b"3")), 11_000);
        assert_eq!(code(SCHEDULE_TOPIC, Some(b"+3")), 11_000);
        assert_eq!(code(SCHEDULE_TOPIC, Some(b"99")), 7_201_000);
        assert_eq!(code(SCHEDULE_TOPIC, None), 97);
        for no_delay in [&b"0"[..], b"-1", b"x", b"3 ", b"2147483648", b"\xFF"] {
            assert_eq!(code(SCHEDULE_TOPIC, Some(no_delay)), 97, "{no_delay:?}");
        }
        assert_eq!(code(b"orders", Some(b"3")), 97);
    }
}
