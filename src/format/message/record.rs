//! Encodes records and blanks; for the layout see [`message`](crate::format::message).

use super::properties::{MAX_LEN, PROPERTY_SEPARATOR};
use super::sys_flag::{BORN_HOST_V6, STORE_HOST_V6};
use super::{
    AFTER_HOSTS_LEN, BLANK_LEN, BODY_CRC_AT, BORN_TIMESTAMP_AT, FLAG_AT, HEAD_LEN, MAGIC_AT,
    MAGIC_BLANK, MessageView, PHYSICAL_OFFSET_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, SYS_FLAG_AT,
    TOTAL_SIZE_AT, Version,
};
use crate::error::{CorruptionKind, FormatError};
use crate::format::bytes::{put_i16_in, put_i32_in, put_i64_in};
use crate::format::crc::{self, PROPERTY_CRC_LEN};
use crate::format::java::Host;

#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub version: Version,
    pub body_crc: i32,
    pub queue_id: i32,
    pub flag: i32,
    pub queue_offset: i64,
    pub physical_offset: i64,
    /// Bits of [`sys_flag`](super::sys_flag); the host bits are set from the hosts.
    pub sys_flag: i32,
    pub born_timestamp_ms: i64,
    pub born_host: Host,
    pub store_timestamp_ms: i64,
    pub store_host: Host,
    /// Number of redeliveries (`reconsumeTimes`).
    pub reconsume_times: i32,
    /// Offset of the half message that this one commits, else 0.
    pub prepared_transaction_offset: i64,
    pub body: &'a [u8],
    pub topic: &'a [u8],
    pub properties: &'a [u8],
    /// Whether to append the checksum property (`enabledAppendPropCRC`).
    pub property_crc: bool,
}

impl<'a> Record<'a> {
    /// Fields of an existing record, without its checksum property.
    #[must_use]
    pub fn of(view: &MessageView<'a>) -> Self {
        let raw = view.raw_properties();
        let without = raw
            .split_last_chunk::<PROPERTY_CRC_LEN>()
            .and_then(|(rest, last)| crc::parse_property_crc(last).map(|_| rest))
            .filter(|rest| rest.last().is_none_or(|last| *last == PROPERTY_SEPARATOR));
        Self {
            version: view.version(),
            body_crc: view.body_crc(),
            queue_id: view.queue_id(),
            flag: view.flag(),
            queue_offset: view.queue_offset(),
            physical_offset: view.physical_offset(),
            sys_flag: view.sys_flag(),
            born_timestamp_ms: view.born_timestamp_ms(),
            born_host: view.born_host(),
            store_timestamp_ms: view.store_timestamp_ms(),
            store_host: view.store_host(),
            reconsume_times: view.reconsume_times(),
            prepared_transaction_offset: view.prepared_transaction_offset(),
            body: view.body(),
            topic: view.topic(),
            properties: without.unwrap_or(raw),
            property_crc: without.is_some(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    pub version: Version,
    pub hosts: usize,
    pub body: usize,
    pub topic: usize,
    pub properties: usize,
}

impl Lengths {
    /// Length of the record (`MessageExtEncoder#calMsgLength`).
    #[inline]
    #[must_use]
    pub const fn of_record(&self) -> usize {
        HEAD_LEN
            + self.hosts
            + 8
            + AFTER_HOSTS_LEN
            + 4
            + self.body
            + self.version.topic_length_len()
            + self.topic
            + 2
            + self.properties
    }
}

#[inline]
#[must_use]
pub const fn encoded_properties_len(properties: &[u8], property_crc: bool) -> usize {
    let crc =
        if property_crc { PROPERTY_CRC_LEN + lacks_separator(properties) as usize } else { 0 };
    properties.len() + crc
}

const fn lacks_separator(properties: &[u8]) -> bool {
    matches!(properties.last(), Some(last) if *last != PROPERTY_SEPARATOR)
}

impl Record<'_> {
    /// Length of the record, including the checksum property.
    #[inline]
    #[must_use]
    pub const fn encoded_size(&self) -> usize {
        let lengths = Lengths {
            version: self.version,
            hosts: self.born_host.encoded_len() + self.store_host.encoded_len(),
            body: self.body.len(),
            topic: self.topic.len(),
            properties: self.encoded_properties_len(),
        };
        lengths.of_record()
    }

    /// Length of the properties, including the checksum property.
    #[inline]
    #[must_use]
    pub const fn encoded_properties_len(&self) -> usize {
        encoded_properties_len(self.properties, self.property_crc)
    }

    /// Checks that the record can be read back.
    ///
    /// # Errors
    /// When topic, properties or the whole exceed their length fields, or the topic is
    /// empty.
    pub fn check(&self) -> Result<(), FormatError> {
        let refuse = |kind, limit: usize, found: usize| {
            Err(FormatError::new(kind, 0, format!("at most {limit} bytes"), format!("{found}")))
        };
        if self.topic.is_empty() {
            let (expected, found) = ("a topic of at least one byte", "an empty one");
            return Err(FormatError::new(CorruptionKind::TopicLength, 0, expected, found));
        }
        if self.topic.len() > self.version.max_topic_len() {
            let limit = self.version.max_topic_len();
            return refuse(CorruptionKind::TopicLength, limit, self.topic.len());
        }
        if self.encoded_properties_len() > MAX_LEN {
            let found = self.encoded_properties_len();
            return refuse(CorruptionKind::PropertiesLength, MAX_LEN, found);
        }
        // The sum cannot wrap: such a body would not fit beside the other slices.
        if i32::try_from(self.encoded_size()).is_err() {
            return refuse(CorruptionKind::Size, i32::MAX as usize, self.encoded_size());
        }
        Ok(())
    }

    /// Encodes the record into `out`, copying the body once.
    ///
    /// The caller has called [`check`](Self::check); otherwise a length field may be wrong.
    ///
    /// # Panics
    /// When `out` is not [`encoded_size`](Self::encoded_size) long.
    #[inline]
    pub fn encode_into(&self, out: &mut [u8]) {
        debug_assert_eq!(self.check(), Ok(()));
        let size = out.len();

        // `check` compared each length with its field, so the casts are exact.
        let mut rest = &mut *out;
        let head = take_array::<HEAD_LEN>(&mut rest);
        put_i32_in::<TOTAL_SIZE_AT, HEAD_LEN>(head, size as i32);
        put_i32_in::<MAGIC_AT, HEAD_LEN>(head, self.version.magic());
        put_i32_in::<BODY_CRC_AT, HEAD_LEN>(head, self.body_crc);
        put_i32_in::<QUEUE_ID_AT, HEAD_LEN>(head, self.queue_id);
        put_i32_in::<FLAG_AT, HEAD_LEN>(head, self.flag);
        put_i64_in::<QUEUE_OFFSET_AT, HEAD_LEN>(head, self.queue_offset);
        put_i64_in::<PHYSICAL_OFFSET_AT, HEAD_LEN>(head, self.physical_offset);
        put_i32_in::<SYS_FLAG_AT, HEAD_LEN>(head, self.stored_sys_flag());
        put_i64_in::<BORN_TIMESTAMP_AT, HEAD_LEN>(head, self.born_timestamp_ms);
        self.born_host.write(take(&mut rest, self.born_host.encoded_len()));
        put_i64_in::<0, 8>(take_array(&mut rest), self.store_timestamp_ms);
        self.store_host.write(take(&mut rest, self.store_host.encoded_len()));
        let after_hosts = take_array::<AFTER_HOSTS_LEN>(&mut rest);
        put_i32_in::<0, AFTER_HOSTS_LEN>(after_hosts, self.reconsume_times);
        put_i64_in::<4, AFTER_HOSTS_LEN>(after_hosts, self.prepared_transaction_offset);

        put_i32_in::<0, 4>(take_array(&mut rest), self.body.len() as i32);
        take(&mut rest, self.body.len()).copy_from_slice(self.body);
        match self.version {
            Version::V1 => *take_array(&mut rest) = [self.topic.len() as u8],
            Version::V2 => put_i16_in::<0, 2>(take_array(&mut rest), self.topic.len() as i16),
        }
        take(&mut rest, self.topic.len()).copy_from_slice(self.topic);
        put_i16_in::<0, 2>(take_array(&mut rest), self.encoded_properties_len() as i16);
        take(&mut rest, self.properties.len()).copy_from_slice(self.properties);
        if !self.property_crc {
            assert!(rest.is_empty(), "the place for a record is too long");
            return;
        }
        if lacks_separator(self.properties) {
            *take_array(&mut rest) = [PROPERTY_SEPARATOR];
        }
        assert_eq!(rest.len(), PROPERTY_CRC_LEN, "the place for a record has not its size");
        write_property_crc(out);
    }

    /// Computes the checksum of the body from its copy in the encoded record `out`: another thread
    /// may write to the original.
    ///
    /// # Panics
    /// When `out` is not [`encoded_size`](Self::encoded_size) long.
    #[inline]
    pub fn sum_copy(&self, out: &mut [u8]) {
        let hosts = self.born_host.encoded_len() + self.store_host.encoded_len();
        let body_at = HEAD_LEN + hosts + 8 + AFTER_HOSTS_LEN + 4;
        let sum = crc::body_crc(&out[body_at..body_at + self.body.len()]);
        put_i32_in::<BODY_CRC_AT, HEAD_LEN>(take_array(&mut &mut *out), sum);
        if self.property_crc {
            write_property_crc(out);
        }
    }

    /// SYSFLAG with the bits of the hosts.
    const fn stored_sys_flag(&self) -> i32 {
        let mut flag = self.sys_flag & !(BORN_HOST_V6 | STORE_HOST_V6);
        if self.born_host.is_v6() {
            flag |= BORN_HOST_V6;
        }
        if self.store_host.is_v6() {
            flag |= STORE_HOST_V6;
        }
        flag
    }
}

/// Writes the checksum property at the end (`CommitLog.DefaultAppendMessageCallback#doAppend`).
#[cold]
fn write_property_crc(out: &mut [u8]) {
    let (covered, last) = out.split_at_mut(out.len() - PROPERTY_CRC_LEN);
    last.copy_from_slice(&crc::property_crc_text(crc::record_crc(covered)));
}

/// Writes the eight bytes of a blank; `size` is the distance to the end of the file
/// (`CommitLog.DefaultAppendMessageCallback#doAppend`).
///
/// # Panics
/// When `out` has fewer than eight bytes.
pub fn write_blank(out: &mut [u8], size: u32) {
    let mut rest = out;
    let blank = take_array::<BLANK_LEN>(&mut rest);
    put_i32_in::<TOTAL_SIZE_AT, BLANK_LEN>(blank, size.cast_signed());
    put_i32_in::<MAGIC_AT, BLANK_LEN>(blank, MAGIC_BLANK);
}

#[inline]
fn take<'a>(rest: &mut &'a mut [u8], length: usize) -> &'a mut [u8] {
    let (taken, left) = std::mem::take(rest).split_at_mut(length);
    *rest = left;
    taken
}

#[inline]
fn take_array<'a, const N: usize>(rest: &mut &'a mut [u8]) -> &'a mut [u8; N] {
    let whole = std::mem::take(rest);
    let Some((taken, left)) = whole.split_first_chunk_mut() else {
        unreachable!("the place for a record is too short");
    };
    *rest = left;
    taken
}
