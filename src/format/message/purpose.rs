//! Purpose of a message by topic and properties: half, delayed, retry, dead letter, and its
//! destination.

use super::properties::{self, names};
use crate::error::named;
use crate::format::queue::consume_queue::{DelayLevels, SCHEDULE_TOPIC, delay_level};

/// Topic of half messages (`TopicValidator.RMQ_SYS_TRANS_HALF_TOPIC`).
pub const HALF_TOPIC: &[u8] = b"RMQ_SYS_TRANS_HALF_TOPIC";
/// Topic that marks half messages as ended (`TopicValidator.RMQ_SYS_TRANS_OP_HALF_TOPIC`).
pub const OP_TOPIC: &[u8] = b"RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Topics of half messages and of their ends where RocketMQ 5.4 keeps transactions in RocksDB.
const ROCKSDB_HALF_TOPIC: &[u8] = b"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC";
const ROCKSDB_OP_TOPIC: &[u8] = b"RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC";
/// Topic of the timer wheel (`TimerMessageStore.TIMER_TOPIC`).
pub const TIMER_TOPIC: &[u8] = b"rmq_sys_wheel_timer";
/// Prefix of retry topics (`MixAll.RETRY_GROUP_TOPIC_PREFIX`).
pub const RETRY_PREFIX: &[u8] = b"%RETRY%";
/// Prefix of dead-letter topics (`MixAll.DLQ_GROUP_TOPIC_PREFIX`).
pub const DEAD_LETTER_PREFIX: &[u8] = b"%DLQ%";

const TIMER_OUT_MS: &[u8] = b"TIMER_OUT_MS";

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Purpose {
        Normal = "normal",
        Half = "half",
        TransactionOp = "transaction-op",
        Delayed = "delayed",
        Timer = "timer",
        /// Messages to be redelivered to a group.
        Retry = "retry",
        /// Messages that a group failed to consume.
        DeadLetter = "dead-letter",
    }
}

impl Purpose {
    #[must_use]
    pub fn of(topic: &[u8]) -> Self {
        match topic {
            HALF_TOPIC | ROCKSDB_HALF_TOPIC => Self::Half,
            OP_TOPIC | ROCKSDB_OP_TOPIC => Self::TransactionOp,
            SCHEDULE_TOPIC => Self::Delayed,
            TIMER_TOPIC => Self::Timer,
            _ if topic.starts_with(RETRY_PREFIX) => Self::Retry,
            _ if topic.starts_with(DEAD_LETTER_PREFIX) => Self::DeadLetter,
            _ => Self::Normal,
        }
    }
}

#[must_use]
pub fn real_topic(raw_properties: &[u8]) -> Option<&[u8]> {
    properties::get(raw_properties, names::REAL_TOPIC)
}

/// Destination queue; `None` if it is no number.
#[must_use]
pub fn real_queue_id(raw_properties: &[u8]) -> Option<i32> {
    let id = properties::get(raw_properties, names::REAL_QID)?;
    str::from_utf8(id).ok()?.parse().ok()
}

/// Delivery time of a delayed message, Unix milliseconds; `None` if unknown.
#[must_use]
pub fn deliver_timestamp_ms(
    topic: &[u8],
    raw_properties: &[u8],
    store_timestamp_ms: i64,
    levels: &DelayLevels,
) -> Option<i64> {
    match Purpose::of(topic) {
        Purpose::Delayed => {
            let level = properties::get(raw_properties, names::DELAY).and_then(delay_level)?;
            (level > 0).then(|| levels.due_ms(level, store_timestamp_ms))
        }
        Purpose::Timer => {
            let out = properties::get(raw_properties, TIMER_OUT_MS)?;
            str::from_utf8(out).ok()?.parse().ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_tell_what_they_are_there_for() {
        for (topic, name) in [
            ("orders", "normal"),
            ("RMQ_SYS_TRANS_HALF_TOPIC", "half"),
            ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "transaction-op"),
            ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "half"),
            ("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", "transaction-op"),
            ("SCHEDULE_TOPIC_XXXX", "delayed"),
            ("rmq_sys_wheel_timer", "timer"),
            ("%RETRY%g", "retry"),
            ("%DLQ%g", "dead-letter"),
            ("RMQ_SYS_TRANS_HALF_TOPIC2", "normal"),
        ] {
            assert_eq!(Purpose::of(topic.as_bytes()).name(), name, "{topic}");
        }
    }

    #[test]
    fn a_waiting_message_knows_when_and_where_to() {
        let raw = b"REAL_TOPIC\x01orders\x02REAL_QID\x013\x02DELAY\x012\x02TIMER_OUT_MS\x0177\x02";
        let due = |topic: &[u8], raw: &[u8]| {
            deliver_timestamp_ms(topic, raw, 1000, &DelayLevels::default())
        };
        assert_eq!((real_topic(raw), real_queue_id(raw)), (Some(&b"orders"[..]), Some(3)));
        assert_eq!(due(SCHEDULE_TOPIC, raw), Some(6000));
        assert_eq!(due(TIMER_TOPIC, raw), Some(77));
        assert_eq!(due(b"orders", raw), None);
        for bad in [&b""[..], b"DELAY\x01x\x02TIMER_OUT_MS\x01x\x02REAL_QID\x01x", b"DELAY\x010"] {
            assert_eq!((due(SCHEDULE_TOPIC, bad), due(TIMER_TOPIC, bad)), (None, None));
            assert_eq!((real_topic(bad), real_queue_id(bad)), (None, None));
        }
    }
}
