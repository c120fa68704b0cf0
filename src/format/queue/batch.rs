//! A client's batch, and the entry of a batch queue (`queue.type=BatchCQ`).
//!
//! | item at | type | field | from |
//! |---|---|---|---|
//! | 0 | i32 | size of the item | `MessageDecoder#encodeMessage` |
//! | 4 | i32 | magic code, 0 | not read |
//! | 8 | i32 | body CRC, 0 | not read |
//! | 12 | i32 | flag | |
//! | 16 | 4+n | i32 and body | |
//! | 20+n | 2+p | i16 and properties | |
//!
//! | entry at | type | field | from |
//! |---|---|---|---|
//! | 0 | i64 | physical offset | `BatchConsumeQueue#putBatchMessagePositionInfo` |
//! | 8 | i32 | store size | |
//! | 12 | i64 | tags code | |
//! | 20 | i64 | store timestamp | |
//! | 28 | i64 | queue offset of the first message | |
//! | 36 | i16 | number of messages | |
//! | 38 | i32 | compacted offset, -1 | |
//! | 42 | i32 | reserved, 0 | |

use crate::error::{CorruptionKind, FormatError};
use crate::format::bytes::{array_at, i16_in, i32_in, layout, put_i32_in};
use crate::format::message::properties::{Indexed, MAX_LEN};

const ITEM_FLAG_AT: usize = 12;
const ITEM_BODY_LEN_AT: usize = ITEM_FLAG_AT + 4;
const ITEM_HEAD_LEN: usize = ITEM_BODY_LEN_AT + 4;
pub const MIN_ITEM_LEN: usize = ITEM_HEAD_LEN + 2;

/// Length of a batch queue's entry (`BatchConsumeQueue.CQ_STORE_UNIT_SIZE`).
pub const ENTRY_LEN: usize = 46;
const _: () = assert!(ITEM_HEAD_LEN == 20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchItem<'a> {
    pub flag: i32,
    pub body: &'a [u8],
    pub properties: &'a [u8],
}

impl BatchItem<'_> {
    #[must_use]
    pub const fn encoded_size(&self) -> usize {
        MIN_ITEM_LEN + self.body.len() + self.properties.len()
    }

    /// Appends the item to a batch's body (`MessageDecoder#encodeMessage`).
    ///
    /// # Errors
    /// When the properties exceed 32,767 bytes or the item an `i32`.
    pub fn encode_to(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let refuse = |what: &str, limit: usize, length: usize| {
            let expected = format!("{what} of at most {limit} bytes");
            Err(FormatError::new(CorruptionKind::Batch, 0, expected, format!("{length}")))
        };
        let Ok(size) = i32::try_from(self.encoded_size()) else {
            return refuse("an item", i32::MAX as usize, self.encoded_size());
        };
        let Ok(properties_len) = i16::try_from(self.properties.len()) else {
            return refuse("properties", MAX_LEN, self.properties.len());
        };
        let mut head = [0; ITEM_HEAD_LEN];
        put_i32_in::<0, ITEM_HEAD_LEN>(&mut head, size);
        put_i32_in::<ITEM_FLAG_AT, ITEM_HEAD_LEN>(&mut head, self.flag);
        // Shorter than the item, whose size is an `i32`.
        put_i32_in::<ITEM_BODY_LEN_AT, ITEM_HEAD_LEN>(&mut head, self.body.len() as i32);
        out.extend_from_slice(&head);
        out.extend_from_slice(self.body);
        out.extend_from_slice(&properties_len.to_be_bytes());
        out.extend_from_slice(self.properties);
        Ok(())
    }
}

#[must_use]
pub const fn items(body: &[u8]) -> BatchItems<'_> {
    BatchItems { body, position: 0 }
}

/// Iterator of [`items`].
#[derive(Clone, Debug)]
pub struct BatchItems<'a> {
    body: &'a [u8],
    position: usize,
}

impl<'a> Iterator for BatchItems<'a> {
    type Item = Result<BatchItem<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.body.get(self.position..).filter(|rest| !rest.is_empty())?;
        match read_item(rest) {
            Ok((item, length)) => {
                self.position += length;
                Some(Ok(item))
            }
            Err(error) => {
                let position = std::mem::replace(&mut self.position, self.body.len());
                Some(Err(error.at(position)))
            }
        }
    }
}

/// Reads one item and returns its length.
///
/// RocketMQ ignores an item's size; here a size that contradicts the parts is damage.
fn read_item(bytes: &[u8]) -> Result<(BatchItem<'_>, usize), FormatError> {
    let bad = |at: usize, expected: String, found: String| {
        FormatError::new(CorruptionKind::Batch, at, expected, found)
    };
    let Some(head) = array_at::<ITEM_HEAD_LEN>(bytes, 0) else {
        let expected = format!("an item of at least {MIN_ITEM_LEN} bytes");
        return Err(bad(0, expected, format!("{} bytes", bytes.len())));
    };
    let size = i32_in::<0, ITEM_HEAD_LEN>(head);
    let item = usize::try_from(size).ok().and_then(|size| bytes.get(..size));
    let Some(item) = item.filter(|item| item.len() >= MIN_ITEM_LEN) else {
        let expected = format!("an item of {MIN_ITEM_LEN} to {} bytes", bytes.len());
        return Err(bad(0, expected, format!("{size}")));
    };
    let body_len = i32_in::<ITEM_BODY_LEN_AT, ITEM_HEAD_LEN>(head);
    let after_head = &item[ITEM_HEAD_LEN..];
    let parts = usize::try_from(body_len).ok().and_then(|body_len| {
        let (body, rest) = after_head.split_at_checked(body_len)?;
        let (properties_len, properties) = rest.split_first_chunk::<2>()?;
        Some((body, i16_in::<0, 2>(properties_len), properties))
    });
    let Some((body, properties_len, properties)) = parts else {
        let expected = format!("a body of at most {} bytes", after_head.len() - 2);
        return Err(bad(ITEM_BODY_LEN_AT, expected, format!("{body_len}")));
    };
    if usize::try_from(properties_len) != Ok(properties.len()) {
        let expected = format!("properties of {} bytes", properties.len());
        return Err(bad(ITEM_HEAD_LEN + body.len(), expected, format!("{properties_len}")));
    }
    let flag = i32_in::<ITEM_FLAG_AT, ITEM_HEAD_LEN>(head);
    Ok((BatchItem { flag, body, properties }, item.len()))
}

/// Range of queue offsets of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerRange {
    pub base_queue_offset: i64,
    /// Number of messages; 1 unless it is an inner batch.
    pub message_count: i16,
}

/// Queue offsets of a record: from `INNER_BASE` and `INNER_NUM` if it has both, else `queue_offset`
/// alone (`CommitLog#setBatchSizeIfNeeded`).
pub fn inner_range(properties: &Indexed<'_>, queue_offset: i64) -> Result<InnerRange, FormatError> {
    let (Some(base), Some(count)) = (properties.inner_base, properties.inner_num) else {
        return Ok(InnerRange { base_queue_offset: queue_offset, message_count: 1 });
    };
    let base_queue_offset: i64 = number("INNER_BASE", base)?;
    let message_count: i16 = number("INNER_NUM", count)?;
    let ends = base_queue_offset.checked_add(i64::from(message_count));
    if base_queue_offset < 0 || message_count < 1 || ends.is_none() {
        let found = format!("{message_count} from {base_queue_offset} on");
        let expected = "a batch of at least one message within the queue";
        return Err(FormatError::new(CorruptionKind::Batch, 0, expected, found));
    }
    Ok(InnerRange { base_queue_offset, message_count })
}

fn number<T: std::str::FromStr>(name: &str, value: &[u8]) -> Result<T, FormatError> {
    let parsed = str::from_utf8(value).ok().and_then(|value| value.parse().ok());
    parsed.ok_or_else(|| {
        let shown = &value[..value.len().min(64)];
        let found = String::from_utf8_lossy(shown).into_owned();
        FormatError::new(CorruptionKind::Batch, 0, format!("a number in {name}"), found)
    })
}

layout! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BatchQueueEntry: ENTRY_LEN {
        0 => physical_offset: i64,
        8 => store_size: i32,
        12 => tags_code: i64,
        20 => store_timestamp_ms: i64,
        28 => base_queue_offset: i64,
        36 => message_count: i16,
        38 => compacted_offset: i32,
    }
}

impl BatchQueueEntry {
    /// Ends a file of a sparse queue early (`SparseConsumeQueue#putEndPositionInfo`).
    pub const SPARSE_END: Self = Self {
        physical_offset: -1,
        store_size: 0,
        tags_code: 0,
        store_timestamp_ms: 0,
        base_queue_offset: 0,
        message_count: 0,
        compacted_offset: -1,
    };

    /// The first invalid entry ends the queue (`BatchConsumeQueue#recover`).
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.physical_offset >= 0
            && self.store_size > 0
            && self.base_queue_offset >= 0
            && self.message_count > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(all: &[BatchItem<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        for item in all {
            item.encode_to(&mut out).unwrap();
        }
        out
    }

    fn item<'a>(flag: i32, body: &'a [u8], properties: &'a [u8]) -> BatchItem<'a> {
        BatchItem { flag, body, properties }
    }

    #[test]
    fn items_read_back_in_order() {
        let all = [item(1, b"one", b"a\x01b\x02"), item(-2, b"", b""), item(3, b"three", b"x")];
        let body = batch(&all);
        assert_eq!(body[..20], [0, 0, 0, 29, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3]);
        assert_eq!(items(&body).collect::<Result<Vec<_>, _>>().unwrap(), all);
        assert_eq!(items(b"").count(), 0);
    }

    #[test]
    fn an_item_cut_short_is_the_last_answer() {
        let body = batch(&[item(1, b"one", b"a\x01b\x02"), item(2, b"two", b"")]);
        for length in 1..body.len() {
            if length == 29 {
                continue;
            }
            let read: Vec<_> = items(&body[..length]).collect();
            let error = read.last().unwrap().as_ref().unwrap_err();
            assert_eq!(error.kind, CorruptionKind::Batch);
            assert_eq!(error.position, if length < 29 { 0 } else { 29 }, "{length} bytes");
            assert_eq!(read.len(), if length < 29 { 1 } else { 2 });
        }
    }

    #[test]
    fn lengths_that_do_not_add_up_are_named() {
        let body = batch(&[item(0, b"", b""), item(1, b"one", b"a\x01b\x02")]);
        let wrong = |at: usize, bytes: &[u8]| {
            let mut bad = body.clone();
            bad[22 + at..22 + at + bytes.len()].copy_from_slice(bytes);
            items(&bad).last().unwrap().map(|_| ()).map_err(|error| error.position)
        };
        for size in [0_i32, -1, 21, 28, 30, i32::MIN, i32::MAX] {
            assert!(wrong(0, &size.to_be_bytes()).is_err(), "{size}");
        }
        for length in [-1_i32, 8, i32::MIN, i32::MAX] {
            assert_eq!(wrong(16, &length.to_be_bytes()), Err(22 + 16), "{length}");
        }
        for length in [-1_i16, 0, 3, 5, i16::MIN, i16::MAX] {
            assert_eq!(wrong(23, &length.to_be_bytes()), Err(22 + 23), "{length}");
        }
        assert!(wrong(4, &[0xFF; 8]).is_ok());
    }

    #[test]
    fn an_item_that_no_length_can_say_is_not_written() {
        let long = vec![b'x'; 32_768];
        let mut out = Vec::new();
        assert!(item(0, b"", &long).encode_to(&mut out).is_err());
        assert!(out.is_empty());
        assert!(item(0, b"", &long[1..]).encode_to(&mut out).is_ok());
        assert_eq!(out.len(), item(0, b"", &long[1..]).encoded_size());
    }

    #[test]
    fn inner_range_needs_both_properties() {
        let range = |inner_base, inner_num| {
            let properties = Indexed { inner_base, inner_num, ..Indexed::default() };
            inner_range(&properties, 7).ok()
        };
        let wanted = |base_queue_offset, message_count| {
            Some(InnerRange { base_queue_offset, message_count })
        };
        assert_eq!(range(None, None), wanted(7, 1));
        assert_eq!(range(Some(b"40"), None), wanted(7, 1));
        assert_eq!(range(None, Some(b"x")), wanted(7, 1));
        assert_eq!(range(Some(b"40"), Some(b"3")), wanted(40, 3));
        assert_eq!(range(Some(b"0"), Some(b"1")), wanted(0, 1));
        for (base, count) in [
            (&b"x"[..], &b"3"[..]),
            (b"", b"3"),
            (b"40", b"3.0"),
            (b"40", b"0"),
            (b"40", b"-1"),
            (b"40", b"32768"),
            (b"-1", b"3"),
            (b"9223372036854775807", b"1"),
            (b"9223372036854775808", b"1"),
            (b"\xFF", b"1"),
        ] {
            assert_eq!(range(Some(base), Some(count)), None, "{base:?} {count:?}");
        }
    }

    const ENTRY: BatchQueueEntry = BatchQueueEntry {
        physical_offset: 1,
        store_size: 2,
        tags_code: -3,
        store_timestamp_ms: 4,
        base_queue_offset: 5,
        message_count: 6,
        compacted_offset: -1,
    };

    #[test]
    fn entry_has_its_fields_in_order() {
        let bytes = ENTRY.encode();
        let ends = [7, 11, 19, 27, 35, 37, 41, 45].map(|at| bytes[at]);
        assert_eq!(ends, [1, 2, 0xFD, 4, 5, 6, 0xFF, 0]);
        assert_eq!(BatchQueueEntry::decode(&bytes), ENTRY);
    }

    #[test]
    fn the_end_of_a_sparse_file_leads_nowhere() {
        let bytes = BatchQueueEntry::SPARSE_END.encode();
        assert_eq!((&bytes[..8], &bytes[38..42]), (&[0xFF; 8][..], &[0xFF; 4][..]));
        assert!(bytes[8..38].iter().chain(&bytes[42..]).all(|byte| *byte == 0));
    }

    #[test]
    fn validity_is_four_fields() {
        assert!(ENTRY.is_valid());
        for bad in [
            BatchQueueEntry { physical_offset: -1, ..ENTRY },
            BatchQueueEntry { store_size: 0, ..ENTRY },
            BatchQueueEntry { base_queue_offset: -1, ..ENTRY },
            BatchQueueEntry { message_count: 0, ..ENTRY },
            BatchQueueEntry::SPARSE_END,
            BatchQueueEntry::decode(&[0; 46]),
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }
}
