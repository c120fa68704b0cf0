//! The extension of a consume queue (`org.apache.rocketmq.store.ConsumeQueueExt`): units with
//! additional fields, whose addresses replace the entries' tags codes.
//!
//! | at | type | field | from |
//! |---|---|---|---|
//! | 0 | i16 | size of the unit, 20 to 32,767 | `CqExtUnit#write` |
//! | 2 | i64 | tags code | |
//! | 10 | i64 | store timestamp | |
//! | 18 | i16 | length of the bitmap | |
//! | 20 | | bitmap of the filters that the message passed | |
//!
//! A unit does not cross files: an i16 of -1 ends the file earlier.

use crate::error::{CorruptionKind, FormatError};
use crate::format::bytes::{array_at, i16_at, i16_in, i64_in, put_i16_in, put_i64_in};
use crate::format::width::{clamp_u64, to_usize};

const SIZE_AT: usize = 0;
const TAGS_CODE_AT: usize = SIZE_AT + 2;
const STORE_TIMESTAMP_AT: usize = TAGS_CODE_AT + 8;
const BITMAP_LEN_AT: usize = STORE_TIMESTAMP_AT + 8;
/// A unit without a bitmap (`CqExtUnit.MIN_EXT_UNIT_SIZE`).
pub const MIN_UNIT_LEN: usize = BITMAP_LEN_AT + 2;
/// The longest unit (`CqExtUnit.MAX_EXT_UNIT_SIZE`).
pub const MAX_UNIT_LEN: usize = i16::MAX as usize;
/// Room kept for the end mark (`ConsumeQueueExt.END_BLANK_DATA_LENGTH`).
pub const END_LEN: usize = 4;
pub const END: [u8; 2] = [0xFF, 0xFF];
const _: () = assert!(MIN_UNIT_LEN == 20);

/// Highest address; all hashes are above (`ConsumeQueueExt.MAX_ADDR`).
pub const MAX_ADDRESS: i64 = i32::MIN as i64 - 1;
/// Highest offset with an address (`ConsumeQueueExt.MAX_REAL_OFFSET`).
pub const MAX_OFFSET: i64 = MAX_ADDRESS - i64::MIN;

/// Whether a tags code is the address of a unit (`ConsumeQueueExt#isExtAddr`).
#[inline]
#[must_use]
pub const fn is_address(tags_code: i64) -> bool {
    tags_code <= MAX_ADDRESS
}

/// Address of the unit at `offset` (`ConsumeQueueExt#decorate`).
#[must_use]
pub const fn address_of(offset: i64) -> Option<i64> {
    if offset < 0 || offset > MAX_OFFSET { None } else { Some(offset + i64::MIN) }
}

/// Offset of an address (`ConsumeQueueExt#unDecorate`).
#[must_use]
pub const fn offset_of(tags_code: i64) -> Option<i64> {
    if is_address(tags_code) { Some(tags_code - i64::MIN) } else { None }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtUnit<'a> {
    pub tags_code: i64,
    pub store_timestamp_ms: i64,
    /// Filters that the message passed; empty if none was computed.
    pub bitmap: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtFrame<'a> {
    Unit(ExtUnit<'a>, usize),
    End,
    Empty,
}

impl ExtUnit<'_> {
    #[must_use]
    pub const fn encoded_size(&self) -> usize {
        MIN_UNIT_LEN + self.bitmap.len()
    }

    /// Encodes the unit (`CqExtUnit#write`).
    ///
    /// # Errors
    /// When the bitmap is too long.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let Ok(size) = i16::try_from(self.encoded_size()) else {
            let expected = format!("a bitmap of at most {} bytes", MAX_UNIT_LEN - MIN_UNIT_LEN);
            let found = format!("{} bytes", self.bitmap.len());
            return Err(FormatError::new(CorruptionKind::Ext, 0, expected, found));
        };
        let mut head = [0; MIN_UNIT_LEN];
        put_i16_in::<SIZE_AT, MIN_UNIT_LEN>(&mut head, size);
        put_i64_in::<TAGS_CODE_AT, MIN_UNIT_LEN>(&mut head, self.tags_code);
        put_i64_in::<STORE_TIMESTAMP_AT, MIN_UNIT_LEN>(&mut head, self.store_timestamp_ms);
        // Shorter than the unit, whose size is an `i16`.
        put_i16_in::<BITMAP_LEN_AT, MIN_UNIT_LEN>(&mut head, self.bitmap.len() as i16);
        Ok([&head, self.bitmap].concat())
    }
}

/// Reads the structure at the start of `bytes` (`CqExtUnit#read`).
///
/// # Errors
/// When the unit is truncated or its lengths contradict each other.
pub fn read_unit(bytes: &[u8]) -> Result<ExtFrame<'_>, FormatError> {
    let bad = |at, expected: String, found: String| {
        Err(FormatError::new(CorruptionKind::Ext, at, expected, found))
    };
    let Some(size) = i16_at(bytes, SIZE_AT) else {
        return bad(0, "the size of a unit".into(), format!("{} bytes", bytes.len()));
    };
    match size {
        0 => return Ok(ExtFrame::Empty),
        -1 => return Ok(ExtFrame::End),
        _ => {}
    }
    let unit = usize::try_from(size).ok().and_then(|size| bytes.get(..size));
    let Some((unit, head)) = unit.and_then(|unit| Some((unit, array_at::<MIN_UNIT_LEN>(unit, 0)?)))
    else {
        let room = bytes.len().min(MAX_UNIT_LEN);
        return bad(
            SIZE_AT,
            format!("a unit of {MIN_UNIT_LEN} to {room} bytes"),
            format!("{size}"),
        );
    };
    let bitmap_len = i16_in::<BITMAP_LEN_AT, MIN_UNIT_LEN>(head);
    // RocketMQ reads a negative length as 0, and does not compare it with the size.
    let bitmap_len = to_usize(clamp_u64(bitmap_len));
    let Some(bitmap) = unit[MIN_UNIT_LEN..].get(..bitmap_len) else {
        let room = unit.len() - MIN_UNIT_LEN;
        return bad(
            BITMAP_LEN_AT,
            format!("a bitmap of at most {room} bytes"),
            format!("{bitmap_len}"),
        );
    };
    let read = ExtUnit {
        tags_code: i64_in::<TAGS_CODE_AT, MIN_UNIT_LEN>(head),
        store_timestamp_ms: i64_in::<STORE_TIMESTAMP_AT, MIN_UNIT_LEN>(head),
        bitmap,
    };
    Ok(ExtFrame::Unit(read, unit.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: ExtUnit<'_> = ExtUnit { tags_code: -2, store_timestamp_ms: 3, bitmap: &[1, 2, 3] };

    #[test]
    fn a_unit_reads_back() {
        let bytes = UNIT.encode().unwrap();
        assert_eq!(bytes[..2], [0, 23]);
        assert_eq!(bytes[9..20], [0xFE, 0, 0, 0, 0, 0, 0, 0, 3, 0, 3]);
        assert_eq!(read_unit(&bytes), Ok(ExtFrame::Unit(UNIT, 23)));
        let bare = ExtUnit { bitmap: &[], ..UNIT };
        let followed = [bare.encode().unwrap(), bytes].concat();
        assert_eq!(read_unit(&followed), Ok(ExtFrame::Unit(bare, 20)));
    }

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(read_unit(&[0, 0]), Ok(ExtFrame::Empty));
        assert_eq!(read_unit(&END), Ok(ExtFrame::End));
        for length in 0..23 {
            let error = read_unit(&UNIT.encode().unwrap()[..length]).unwrap_err();
            assert_eq!((error.kind, error.position), (CorruptionKind::Ext, 0), "{length} bytes");
        }
    }

    #[test]
    fn impossible_lengths_are_refused() {
        let with = |at: usize, value: i16| {
            let mut bytes = UNIT.encode().unwrap();
            bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
            read_unit(&bytes).map_err(|error| error.position).map(|_| ())
        };
        for size in [-2, i16::MIN, 1, 19, 24, i16::MAX] {
            assert_eq!(with(SIZE_AT, size), Err(SIZE_AT), "{size}");
        }
        for length in [4, i16::MAX] {
            assert_eq!(with(BITMAP_LEN_AT, length), Err(BITMAP_LEN_AT), "{length}");
        }
        let mut long = UNIT.encode().unwrap();
        long[BITMAP_LEN_AT + 1] = 4;
        assert_eq!(read_unit(&long).unwrap_err().expected, "a bitmap of at most 3 bytes");
        for length in [-1, i16::MIN, 0, 2] {
            assert_eq!(with(BITMAP_LEN_AT, length), Ok(()), "{length}");
        }
    }

    #[test]
    fn a_bitmap_keeps_to_the_size() {
        let long = vec![0; MAX_UNIT_LEN - MIN_UNIT_LEN + 1];
        assert!(ExtUnit { bitmap: &long, ..UNIT }.encode().is_err());
        let bytes = ExtUnit { bitmap: &long[1..], ..UNIT }.encode().unwrap();
        assert_eq!(bytes.len(), MAX_UNIT_LEN);
        assert!(matches!(read_unit(&bytes), Ok(ExtFrame::Unit(_, MAX_UNIT_LEN))));
    }

    #[test]
    fn addresses_are_below_every_hash() {
        assert_eq!(MAX_OFFSET, 9_223_372_034_707_292_159);
        assert!(!is_address(i64::from(i32::MIN)) && !is_address(0) && !is_address(i64::MAX));
        assert!(is_address(-2_147_483_649) && is_address(i64::MIN));
        for offset in [0, 1, 50_331_648, MAX_OFFSET] {
            let address = address_of(offset).unwrap();
            assert!(is_address(address));
            assert_eq!(offset_of(address), Some(offset));
        }
        assert_eq!((address_of(-1), address_of(MAX_OFFSET + 1)), (None, None));
        assert_eq!(offset_of(i64::from(i32::MIN)), None);
    }
}
