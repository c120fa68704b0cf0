//! Splits a stored inner batch: one record with several messages of its queue.

use crate::error::{CorruptionKind, FormatError, Result};
use crate::format::body;
use crate::format::message::MessageView;
use crate::format::message::properties;
use crate::format::message::sys_flag;
use crate::format::queue::batch;
use crate::format::width::saturating_i64;

use super::append::{self, NewMessage};

/// Splits a stored inner batch into records with the batch's offset, times and hosts and
/// consecutive queue offsets; `None` for another record (`MessageDecoder.decodeMessage`).
///
/// Decompresses at most `max_bytes`.
///
/// # Errors
/// A [`FormatError`] of kind [`CorruptionKind::Batch`] if lengths or the number of
/// messages are wrong; of kind [`CorruptionKind::Body`] if it cannot be decompressed. Positions
/// count from the record's first byte.
pub fn members(
    view: &MessageView<'_>,
    max_bytes: usize,
) -> Result<Option<Vec<Box<[u8]>>>, FormatError> {
    let sys_flag = view.sys_flag();
    if !sys_flag::is_inner_batch(sys_flag) {
        return Ok(None);
    }
    let body_at = view.body().as_ptr().addr() - view.as_bytes().as_ptr().addr();
    let body = body::decompress(view.body(), sys_flag, max_bytes)
        .map_err(|error| FormatError::from(error).at(body_at))?;
    let range =
        batch::inner_range(&properties::indexed(view.raw_properties()), view.queue_offset())?;
    let mut members = Vec::new();
    for item in batch::items(&body) {
        let item = item.map_err(|error| error.at(body_at))?;
        let number = saturating_i64(members.len());
        let message = NewMessage {
            body: item.body,
            properties: item.properties,
            flag: item.flag,
            sys_flag: sys_flag & !BITS_OF_WHOLE_BODY,
            ..NewMessage::of(view)
        };
        let queue_offset = range.base_queue_offset.saturating_add(number);
        let record = append::encode(&message, view.physical_offset(), queue_offset, false)
            .map_err(|error| {
                FormatError::new(CorruptionKind::Batch, body_at, "a message", error.to_string())
            })?;
        members.push(record.into_boxed_slice());
    }
    if i16::try_from(members.len()) != Ok(range.message_count) {
        let expected = format!("{} messages", range.message_count);
        let found = members.len().to_string();
        return Err(FormatError::new(CorruptionKind::Batch, body_at, expected, found));
    }
    Ok(Some(members))
}

const BITS_OF_WHOLE_BODY: i32 = sys_flag::COMPRESSED
    | sys_flag::COMPRESSION_MASK
    | sys_flag::NEED_UNWRAP
    | sys_flag::INNER_BATCH;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::message::host::Host;
    use crate::format::message::properties::names;
    use crate::format::message::{Frame, read_frame};
    use crate::format::queue::batch::BatchItem;
    use crate::store::write::property_block::with_base;

    fn record(inner_num: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut body = Vec::new();
        for number in 0..3_u8 {
            let text = vec![b'a' + number; 10];
            let item = BatchItem { flag: 7, body: &text, properties: b"KEYS\x01k\x02" };
            item.encode_to(&mut body).unwrap();
        }
        change(&mut body);
        let mut raw = Vec::new();
        properties::push(&mut raw, names::INNER_NUM, inner_num.as_bytes());
        let message = NewMessage {
            sys_flag: 0xC0,
            store_timestamp_ms: Some(5),
            store_host: Some(Host::V4([1, 2, 3, 4], 5)),
            properties: &with_base(&raw, 40),
            ..NewMessage::new(b"T", &body)
        };
        append::encode(&message, 1000, 40, false).unwrap()
    }

    fn split(record: &[u8]) -> Result<Option<Vec<Box<[u8]>>>, FormatError> {
        let Ok(Frame::Message(view)) = read_frame(record) else { panic!("no record") };
        members(&view, 1 << 20)
    }

    #[test]
    fn a_batch_is_split_into_its_messages() {
        let members = split(&record("3", |_| {})).unwrap().unwrap();
        for (number, member) in (0..).zip(&members) {
            let Ok(Frame::Message(view)) = read_frame(member) else { panic!("no record") };
            assert_eq!((view.queue_offset(), view.physical_offset()), (40 + number, 1000));
            assert_eq!(view.body(), vec![b'a' + u8::try_from(number).unwrap(); 10]);
            assert_eq!((view.flag(), view.sys_flag()), (7, 0));
            assert_eq!(view.property(b"KEYS"), Some(&b"k"[..]));
            assert!(view.check_body_crc().is_ok());
            assert_eq!(split(member), Ok(None));
        }
        assert_eq!(members.len(), 3);
    }

    #[test]
    fn a_batch_whose_lengths_do_not_add_up_is_damage_of_its_kind() {
        for bad in [
            record("3", |body| body.truncate(body.len() - 1)),
            record("3", |body| body[3] += 1),
            record("3", |body| body.push(0)),
            record("3", |body| body.clear()),
            record("4", |_| {}),
            record("2", |_| {}),
            record("x", |_| {}),
            record("-1", |_| {}),
            record("99999", |_| {}),
        ] {
            assert_eq!(split(&bad).unwrap_err().kind, CorruptionKind::Batch);
        }
    }
}
