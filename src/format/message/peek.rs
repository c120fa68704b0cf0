//! Fields that a record's first bytes tell.

use super::sys_flag::born_host_is_v6;
use super::{MAGIC_AT, MAGIC_V1, MAGIC_V2, MessageView, PHYSICAL_OFFSET_AT, SYS_FLAG_AT};
use crate::format::bytes::{i32_at, i64_at};
use crate::format::width::{clamp_u64, to_usize};

/// Bytes that [`store_timestamp_ms`] needs at most.
pub const HEAD: usize = 76;

/// Store time of the record at `physical_offset`; `None` if `head` is not the start of that record.
#[must_use]
pub fn store_timestamp_ms(head: &[u8], physical_offset: u64) -> Option<i64> {
    let own = i64_at(head, PHYSICAL_OFFSET_AT)?;
    if !is_record(head) || u64::try_from(own) != Ok(physical_offset) {
        return None;
    }
    let at = if born_host_is_v6(i32_at(head, SYS_FLAG_AT)?) { 68 } else { 56 };
    i64_at(head, at)
}

/// The size that the frame at the start of `bytes` claims: its total size, or 8 for anything but a
/// record. `None` if `bytes` is too short.
#[inline]
#[must_use]
pub fn claimed_size(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk::<8>()?;
    if is_record(head) {
        let size = i32_at(head, 0)?;
        Some(if size < 0 { head.len() } else { to_usize(clamp_u64(size)) })
    } else {
        Some(head.len())
    }
}

/// Whether `bytes` hold a record's magic code.
#[inline]
#[must_use]
pub fn is_record(bytes: &[u8]) -> bool {
    matches!(i32_at(bytes, MAGIC_AT), Some(MAGIC_V1 | MAGIC_V2))
}

/// Bytes that [`names_offset`] needs.
pub const SIGNATURE: usize = PHYSICAL_OFFSET_AT + 8;

/// Whether `bytes` begin a record that stores `physical_offset` as its own.
#[inline]
#[must_use]
pub fn names_offset(bytes: &[u8], physical_offset: u64) -> bool {
    i64_at(bytes, PHYSICAL_OFFSET_AT).is_some_and(|own| u64::try_from(own) == Ok(physical_offset))
}

/// Physical offset that the record at the start of `head` stores as its own.
#[must_use]
pub fn own_place(head: &[u8]) -> Option<u64> {
    let own = i64_at(head, PHYSICAL_OFFSET_AT).filter(|_| is_record(head))?;
    u64::try_from(own).ok()
}

const SECTOR: usize = 512;

/// Whether an unflushed record lacks bytes although its lengths and body checksum are right:
/// sectors that never reached the disk read as zeros. A valid topic has no zero byte, the last
/// property does not end in one, and no property fills a sector with zeros.
#[must_use]
pub fn lacks_bytes(view: &MessageView<'_>, size: u32) -> bool {
    let properties = view.raw_properties();
    if view.topic().contains(&0) || properties.last() == Some(&0) {
        return true;
    }
    let before = to_usize(u64::from(size)) - properties.len();
    let at = to_usize(clamp_u64(view.physical_offset())) % SECTOR;
    let first = (SECTOR - (at + before) % SECTOR) % SECTOR;
    let (sectors, _) = properties.get(first..).unwrap_or_default().as_chunks::<SECTOR>();
    sectors.iter().any(|sector| sector.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::message::host::Host;
    use crate::format::message::{Frame, Record, Version, read_frame};

    fn fields(physical_offset: i64, properties: &[u8]) -> Record<'_> {
        let host = Host::V4([1; 4], 2);
        Record {
            version: Version::V1,
            body_crc: 0,
            queue_id: 0,
            flag: 0,
            queue_offset: 0,
            physical_offset,
            sys_flag: 0,
            born_timestamp_ms: 0,
            born_host: host,
            store_timestamp_ms: 0,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"",
            topic: b"Topic",
            properties,
            property_crc: false,
        }
    }

    fn record(physical_offset: i64, properties: &[u8]) -> Vec<u8> {
        let record = fields(physical_offset, properties);
        let mut bytes = vec![0; record.encoded_size()];
        record.encode_into(&mut bytes);
        bytes
    }

    fn lacks(bytes: &[u8]) -> bool {
        match read_frame(bytes) {
            Ok(Frame::Message(view)) => lacks_bytes(&view, view.store_size()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bytes_that_are_not_there_read_as_zeros() {
        let whole = record(0, b"a\x01b\x02");
        assert!(!lacks(&whole));
        assert!(!lacks(&record(0, b"")));
        for kept in whole.len() - 4..whole.len() {
            let mut torn = whole.clone();
            torn[kept..].fill(0);
            assert!(lacks(&torn), "{kept} bytes");
        }
        let mut no_topic = whole;
        no_topic[90] = 0;
        assert!(lacks(&no_topic));
    }

    #[test]
    fn a_head_tells_the_store_time_of_a_record_at_its_own_place() {
        for (host, sys_flag) in [(Host::V4([1; 4], 2), 0), (Host::V6([1; 16], 2), 1 << 4)] {
            let written = Record {
                sys_flag,
                born_host: host,
                store_timestamp_ms: 1_696_161_296_007,
                ..fields(4096, b"")
            };
            let mut bytes = vec![0; written.encoded_size()];
            written.encode_into(&mut bytes);
            assert_eq!(store_timestamp_ms(&bytes, 4096), Some(1_696_161_296_007));
            assert_eq!(store_timestamp_ms(&bytes[..HEAD], 4096), Some(1_696_161_296_007));
            assert_eq!(store_timestamp_ms(&bytes, 4095), None);
            assert_eq!(store_timestamp_ms(&bytes[..HEAD - 21], 4096), None);
            assert!(is_record(&bytes) && names_offset(&bytes, 4096));
            assert!(!names_offset(&bytes, 0) && !names_offset(&bytes[..SIGNATURE - 1], 4096));
            bytes[7] ^= 1;
            assert!(!is_record(&bytes) && !is_record(&bytes[..7]));
            assert_eq!(store_timestamp_ms(&bytes, 4096), None);
        }
    }

    #[test]
    fn a_sector_of_zeros_in_the_middle_is_missing() {
        let properties = [&b"a\x01"[..], &[b'x'; 2000], b"\x02"].concat();
        for at in [0, 100, 511] {
            let whole = record(at, &properties);
            assert!(!lacks(&whole));
            let mut torn = whole;
            let from = 1024 - usize::try_from(at).unwrap();
            torn[from..from + 512].fill(0);
            assert!(lacks(&torn), "at {at}");
        }
    }
}
