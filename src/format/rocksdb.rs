//! Rows of RocketMQ's databases in RocksDB, to the byte (`RocksDBConsumeQueueTable`,
//! `RocksDBConsumeQueueOffsetTable`, `IndexRocksDBRecord`).
//!
//! The key of a queue's row begins with the topic's length, 1, the topic, and 1.

use crate::error::{CorruptionKind, FormatError};

use super::bytes::{array_at, i32_at, i64_at};
use super::queue::consume_queue::{ENTRY_LEN, QueueEntry};

type Result<T> = std::result::Result<T, FormatError>;

/// Family of the rows of queues, and of those of the index.
pub const ROWS: &str = "default";
/// Family of the least and greatest offset of each queue.
pub const OFFSETS: &str = "offset";
/// Topic of the row with the end of the last message with a row.
pub const CHECKPOINT_TOPIC: &[u8] = b"CHECKPOINT_TOPIC";
/// Keys of the rows of an index that belong to no message.
pub const INDEX_PLACE: &[u8] = b"lastOffsetPy";
pub const INDEX_TIME: &[u8] = b"lastStoreTimeStamp";
const CTRL: u8 = 1;
const HOUR_MS: i64 = 3_600_000;

/// A row of family [`ROWS`] in a queue's database: one message in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRow<'a> {
    pub topic: &'a [u8],
    pub queue_id: i32,
    pub queue_offset: i64,
    pub entry: QueueEntry,
    pub store_timestamp_ms: i64,
}

/// A row of family [`OFFSETS`]. That of [`CHECKPOINT_TOPIC`] has a physical offset only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetRow<'a> {
    pub topic: &'a [u8],
    pub queue_id: i32,
    pub is_max: bool,
    pub physical_offset: i64,
    pub queue_offset: i64,
}

impl<'a> QueueRow<'a> {
    pub fn decode(key: &'a [u8], value: &[u8]) -> Result<Self> {
        let refused = |found| FormatError::new(KIND, 0, "key and value of a QueueRow", found);
        let (topic, rest) = topic_of(key).ok_or_else(|| refused(shown(key)))?;
        let fields = |entry| Some((i32_at(rest, 1)?, i64_at(rest, 6)?, entry, i64_at(value, 20)?));
        let entry =
            array_at::<ENTRY_LEN>(value, 0).filter(|_| (rest.len(), value.len()) == (14, 28));
        let lengths = || refused(format!("key of {} bytes, value of {}", key.len(), value.len()));
        let (queue_id, queue_offset, entry, store_timestamp_ms) =
            entry.map(QueueEntry::decode).and_then(fields).ok_or_else(lengths)?;
        if rest.get(5) != Some(&CTRL) {
            return Err(refused(shown(key)));
        }
        Ok(Self { topic, queue_id, queue_offset, entry, store_timestamp_ms })
    }

    #[must_use]
    pub fn encode(&self) -> (Vec<u8>, Vec<u8>) {
        let mut key = head(self.topic);
        key.push(CTRL);
        key.extend(self.queue_id.to_be_bytes());
        key.push(CTRL);
        key.extend(self.queue_offset.to_be_bytes());
        let mut value = self.entry.encode().to_vec();
        value.extend(self.store_timestamp_ms.to_be_bytes());
        (key, value)
    }
}

impl<'a> OffsetRow<'a> {
    pub fn decode(key: &'a [u8], value: &[u8]) -> Result<Self> {
        let refused = |found| FormatError::new(KIND, 0, "key and value of an OffsetRow", found);
        let (topic, rest) = topic_of(key).ok_or_else(|| refused(shown(key)))?;
        let (is_max, queue_id) = match (rest, rest.get(1..4), i32_at(rest, 5)) {
            ([CTRL, _, _, _, CTRL, _, _, _, _], Some(kind @ (b"max" | b"min")), Some(queue_id)) => {
                (kind == b"max", queue_id)
            }
            _ => return Err(refused(shown(key))),
        };
        let queue_offset = match value.len() {
            8 if topic == CHECKPOINT_TOPIC => Some(0),
            16 => i64_at(value, 8),
            _ => None,
        };
        let offsets = i64_at(value, 0).zip(queue_offset);
        let (physical_offset, queue_offset) =
            offsets.ok_or_else(|| refused(format!("value of {} bytes", value.len())))?;
        Ok(Self { topic, queue_id, is_max, physical_offset, queue_offset })
    }

    #[must_use]
    pub fn encode(&self) -> (Vec<u8>, Vec<u8>) {
        let mut key = head(self.topic);
        key.push(CTRL);
        key.extend(if self.is_max { b"max" } else { b"min" });
        key.push(CTRL);
        key.extend(self.queue_id.to_be_bytes());
        let mut value = self.physical_offset.to_be_bytes().to_vec();
        if self.topic != CHECKPOINT_TOPIC {
            value.extend(self.queue_offset.to_be_bytes());
        }
        (key, value)
    }
}

/// Rows of the index for a message's unique key, keys and tags, the unique key's last
/// (`IndexRocksDBStore.buildIndex`).
pub fn index_rows<'a>(
    topic: &[u8],
    unique_key: &'a [u8],
    keys: impl Iterator<Item = &'a [u8]>,
    tags: Option<&'a [u8]>,
    (physical_offset, store_timestamp_ms): (i64, i64),
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut texts: Vec<(&[u8], &[u8])> = Vec::new();
    let keys = keys.map(|key| (&b"K"[..], key)).chain(tags.map(|tags| (&b"T"[..], tags)));
    for text in keys.chain([(&b"U"[..], unique_key)]).filter(|(_, text)| !text.is_empty()) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let hour_ms = store_timestamp_ms - store_timestamp_ms.rem_euclid(HOUR_MS);
    let row = |(kind, text): (&[u8], &[u8])| {
        let mut key = hour_ms.to_be_bytes().to_vec();
        for part in
            [&b""[..], topic, kind, text].iter().chain((kind != b"U").then_some(&unique_key))
        {
            key.extend_from_slice(part);
            key.push(b'@');
        }
        key.extend(physical_offset.to_be_bytes());
        (key, store_timestamp_ms.to_be_bytes().to_vec())
    };
    texts.into_iter().map(row).collect()
}

const KIND: CorruptionKind = CorruptionKind::RocksDb;

fn shown(key: &[u8]) -> String {
    format!("key b'{}'", key.escape_ascii())
}

fn head(topic: &[u8]) -> Vec<u8> {
    let len = super::width::saturating_u32(topic.len());
    let mut key = len.to_be_bytes().to_vec();
    key.push(CTRL);
    key.extend(topic);
    key
}

/// The topic, and the key from the byte behind it on.
fn topic_of(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::try_from(i32_at(key, 0)?).ok()?;
    let (topic, rest) = key.get(5..)?.split_at_checked(len)?;
    (key.get(4) == Some(&CTRL) && rest.first() == Some(&CTRL)).then_some((topic, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<_> = hex.bytes().filter(|digit| *digit != b' ').collect();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn rows_of_rocketmq_are_read_and_written() {
        let key = bytes("00000001 01 54 01 00000000 01 0000000000000002");
        let value = bytes("0000000000000157 00000063 0000000000000000 0000018bcfe575ac");
        let row = QueueRow::decode(&key, &value).unwrap();
        let entry = QueueEntry { physical_offset: 343, store_size: 99, tags_code: 0 };
        assert_eq!((row.topic, row.queue_id, row.queue_offset), (&b"T"[..], 0, 2));
        assert_eq!((row.entry, row.store_timestamp_ms), (entry, 0x18b_cfe5_75ac));
        assert_eq!(row.encode(), (key.clone(), value.clone()));
        for length in 0..key.len() {
            assert!(QueueRow::decode(&key[..length], &value).is_err(), "{length}");
        }
        for at in [4, 6, 11] {
            let mut wrong = key.clone();
            wrong[at] = 2;
            assert!(QueueRow::decode(&wrong, &value).is_err(), "{at}");
        }
        assert!(QueueRow::decode(&key, &value[1..]).is_err());
        assert!(QueueRow::decode(&[0xff; 30], &value).is_err());
    }

    #[test]
    fn offsets_of_rocketmq_are_read_and_written() {
        let key = bytes("00000010 01 434845434b504f494e545f544f504943 01 6d6178 01 00000000");
        let value = 1148_i64.to_be_bytes();
        let row = OffsetRow::decode(&key, &value).unwrap();
        assert_eq!((row.topic, row.is_max, row.physical_offset), (CHECKPOINT_TOPIC, true, 1148));
        assert_eq!(row.encode(), (key.clone(), value.to_vec()));
        let end = OffsetRow { topic: b"T", queue_id: 3, queue_offset: 9, is_max: false, ..row };
        let (key, value) = end.encode();
        assert_eq!(OffsetRow::decode(&key, &value), Ok(end));
        for length in 0..key.len() {
            assert!(OffsetRow::decode(&key[..length], &value).is_err(), "{length}");
        }
        assert!(OffsetRow::decode(&key, &value[..8]).is_err());
    }
}
