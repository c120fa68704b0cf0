//! Records without their body, for reading records of any size in little memory. The body is
//! skipped or checksummed piece by piece.

use super::host::V6_LEN;
use super::sys_flag::{born_host_is_v6, store_host_is_v6};
use super::{AFTER_HOSTS_LEN, HEAD_LEN, SYS_FLAG_AT};
use crate::error::{CorruptionKind, FormatError};
use crate::format::bytes::{i32_at, put_i32_in};
use crate::format::width::saturating_i32;

/// Bytes from a record's start that always include the body's length.
pub const HEAD_MOST: usize = HEAD_LEN + V6_LEN + 8 + V6_LEN + AFTER_HOSTS_LEN + 4;
/// Maximum bytes behind a body: topic and properties with their lengths.
pub const TAIL_MOST: usize = 2 + i16::MAX as usize + 2 + i16::MAX as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyPlace {
    pub at: usize,
    pub len: usize,
    pub tail: usize,
}

/// Locates the body of a record of `size` bytes. `head` must be [`HEAD_MOST`] bytes or the whole
/// record.
///
/// # Errors
/// When the body length contradicts `size`.
pub fn body_place(head: &[u8], size: usize) -> Result<BodyPlace, FormatError> {
    let flag = i32_at(head, SYS_FLAG_AT).unwrap_or_default();
    let host_len = |is_v6| if is_v6 { V6_LEN } else { 8 };
    let hosts = host_len(born_host_is_v6(flag)) + host_len(store_host_is_v6(flag));
    let length_at = HEAD_LEN + hosts + 8 + AFTER_HOSTS_LEN;
    let at = length_at + 4;
    let claim = i32_at(head, length_at).unwrap_or(-1);
    let place = usize::try_from(claim).ok().and_then(|len| {
        let tail = size.checked_sub(at)?.checked_sub(len)?;
        Some(BodyPlace { at, len, tail })
    });
    match place {
        Some(place) if place.tail <= TAIL_MOST => Ok(place),
        Some(place) => Err(FormatError::new(
            CorruptionKind::Length,
            0,
            format!("at most {TAIL_MOST} bytes behind the body"),
            format!("{}", place.tail),
        )),
        None => Err(FormatError::new(
            CorruptionKind::BodyLength,
            length_at,
            format!("a body within the {} bytes left", size.saturating_sub(at)),
            format!("{claim}"),
        )),
    }
}

/// Writes the record to `out` with an empty body. The body's checksum is kept, so it no longer
/// matches.
pub fn without_body(head: &[u8], tail: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(head);
    out.extend_from_slice(tail);
    let size = saturating_i32(out.len());
    if let Some(first) = out.first_chunk_mut::<4>() {
        put_i32_in::<0, 4>(first, size);
    }
    let length_at = head.len().saturating_sub(4);
    if let Some(length) = out.get_mut(length_at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        put_i32_in::<0, 4>(length, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::message::host::Host;
    use crate::format::message::{Frame, Record, Version, read_frame};

    fn record(born_host: Host, body: &[u8]) -> Vec<u8> {
        let record = Record {
            version: Version::V2,
            body_crc: 7,
            queue_id: 3,
            flag: 4,
            queue_offset: 5,
            physical_offset: 6,
            sys_flag: 0,
            born_timestamp_ms: 8,
            born_host,
            store_timestamp_ms: 9,
            store_host: Host::V4([1; 4], 2),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            topic: b"Topic",
            properties: b"a\x01b\x02",
            property_crc: false,
        };
        let mut bytes = vec![0; record.encoded_size()];
        record.encode_into(&mut bytes);
        bytes
    }

    #[test]
    fn an_elided_record_is_the_same_with_an_empty_body() {
        for host in [Host::V4([9; 4], 1), Host::V6([9; 16], 1)] {
            let bytes = record(host, &[b'x'; 300]);
            let place = body_place(&bytes[..HEAD_MOST], bytes.len()).unwrap();
            assert_eq!(place.len, 300);
            assert_eq!(place.at + place.len + place.tail, bytes.len());
            let mut out = Vec::new();
            without_body(&bytes[..place.at], &bytes[place.at + place.len..], &mut out);
            assert_eq!(out, record(host, b""));
            assert!(matches!(read_frame(&out), Ok(Frame::Message(_))));
        }
    }

    #[test]
    fn bodies_that_do_not_fit_their_record_are_refused() {
        let bytes = record(Host::V4([9; 4], 1), &[b'x'; 300]);
        let kind = |size| body_place(&bytes, size).unwrap_err().kind;
        assert_eq!(kind(200), CorruptionKind::BodyLength);
        let no_length = body_place(&bytes[..80], bytes.len()).unwrap_err();
        assert_eq!((no_length.kind, &*no_length.found), (CorruptionKind::BodyLength, "-1"));
        assert_eq!(kind(bytes.len() + TAIL_MOST), CorruptionKind::Length);
        let mut negative = bytes.clone();
        negative[84..88].fill(0xff);
        assert_eq!(
            body_place(&negative, bytes.len()).unwrap_err().kind,
            CorruptionKind::BodyLength
        );
    }
}
