//! Writing a record and a blank; their layout is at the head of [`message`](crate::format::message).

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

/// All that a record holds, to be written.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// How many bytes the topic's length takes.
    pub version: Version,
    /// [`crc::body_crc`] of the body.
    pub body_crc: i32,
    /// The queue of the topic.
    pub queue_id: i32,
    /// The producer's own number.
    pub flag: i32,
    /// Entry number in the queue.
    pub queue_offset: i64,
    /// Where the record will lie in the whole commit log.
    pub physical_offset: i64,
    /// The bits of [`sys_flag`](super::sys_flag); those of the hosts are set by what the hosts are.
    pub sys_flag: i32,
    /// The producer's time, Unix milliseconds.
    pub born_timestamp_ms: i64,
    /// The producer's address.
    pub born_host: Host,
    /// The store's time, Unix milliseconds.
    pub store_timestamp_ms: i64,
    /// The address of the broker that stores it.
    pub store_host: Host,
    /// How often it was consumed in vain.
    pub reconsume_times: i32,
    /// Physical offset of the half message that this one commits, else 0.
    pub prepared_transaction_offset: i64,
    /// The body as it is to be stored.
    pub body: &'a [u8],
    /// The topic.
    pub topic: &'a [u8],
    /// The properties, without the checksum.
    pub properties: &'a [u8],
    /// Whether the record's checksum is written as the last property (`enabledAppendPropCRC`).
    pub property_crc: bool,
}

impl<'a> Record<'a> {
    /// What a record holds, to be written again. A checksum of the record as its last property is
    /// taken off and made anew.
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

/// What the length of a record depends on.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// How many bytes the topic's length takes.
    pub version: Version,
    /// Of both hosts.
    pub hosts: usize,
    /// Of the body.
    pub body: usize,
    /// Of the topic.
    pub topic: usize,
    /// Of the properties, the checksum included.
    pub properties: usize,
}

impl Lengths {
    /// Length of the whole record in bytes (`MessageExtEncoder#calMsgLength`).
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

/// Length of properties in bytes, with the checksum where the record has one: what PROPERTIESLENGTH
/// says.
#[inline]
#[must_use]
pub const fn encoded_properties_len(properties: &[u8], property_crc: bool) -> usize {
    let crc =
        if property_crc { PROPERTY_CRC_LEN + lacks_separator(properties) as usize } else { 0 };
    properties.len() + crc
}

/// Whether a separator must stand between the properties and the checksum.
const fn lacks_separator(properties: &[u8]) -> bool {
    matches!(properties.last(), Some(last) if *last != PROPERTY_SEPARATOR)
}

impl Record<'_> {
    /// Length of the whole record in bytes, the checksum included.
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

    /// Length of the properties in bytes, the checksum included.
    #[inline]
    #[must_use]
    pub const fn encoded_properties_len(&self) -> usize {
        encoded_properties_len(self.properties, self.property_crc)
    }

    /// Whether the record can be written so that it reads back.
    ///
    /// # Errors
    /// When topic, properties or all together are longer than their length fields can say, or the
    /// topic is empty.
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
        // No body can be so long that the sum wraps: it would not fit beside the other slices.
        if i32::try_from(self.encoded_size()).is_err() {
            return refuse(CorruptionKind::Size, i32::MAX as usize, self.encoded_size());
        }
        Ok(())
    }

    /// Writes the record to `out`, from the front to the back, the body copied once.
    ///
    /// The caller has seen to it that [`check`](Self::check) finds nothing: what is too long for its
    /// length field would be written with a wrong one.
    ///
    /// # Panics
    /// When `out` is not of [`encoded_size`](Self::encoded_size).
    #[inline]
    pub fn encode_into(&self, out: &mut [u8]) {
        let size = self.encoded_size();
        assert_eq!(out.len(), size, "the place for a record has not its size");
        debug_assert_eq!(self.check(), Ok(()));

        // The casts of lengths lose nothing: `check` has compared each with its field.
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
        if self.property_crc {
            if lacks_separator(self.properties) {
                *take_array(&mut rest) = [PROPERTY_SEPARATOR];
            }
            self.write_property_crc(out);
        }
    }

    /// Writes the record as [`encode_into`](Self::encode_into) does, with the checksum of the body as it
    /// was copied, whatever `body_crc` says: for a body in memory that another thread may write to.
    ///
    /// # Panics
    /// When `out` is not of [`encoded_size`](Self::encoded_size).
    pub fn encode_and_sum_into(&self, out: &mut [u8]) {
        self.encode_into(out);
        let hosts = self.born_host.encoded_len() + self.store_host.encoded_len();
        let body_at = HEAD_LEN + hosts + 8 + AFTER_HOSTS_LEN + 4;
        let sum = crc::body_crc(&out[body_at..body_at + self.body.len()]);
        let (head, _) = out.split_at_mut(HEAD_LEN);
        put_i32_in::<BODY_CRC_AT, HEAD_LEN>(take_array(&mut &mut *head), sum);
        if self.property_crc {
            self.write_property_crc(out);
        }
    }

    /// Fills the last bytes of a record that is complete but for them
    /// (`CommitLog.DefaultAppendMessageCallback#doAppend`).
    #[cold]
    fn write_property_crc(&self, out: &mut [u8]) {
        let (covered, last) = out.split_at_mut(out.len() - PROPERTY_CRC_LEN);
        last.copy_from_slice(&crc::property_crc_text(crc32fast::hash(covered)));
    }

    /// The flags with the bits of the hosts as the hosts are.
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

/// Writes the eight bytes of a blank to the beginning of `out`; `size` is how far it is to the end of
/// the file (`CommitLog.DefaultAppendMessageCallback#doAppend`).
///
/// # Panics
/// When `out` has fewer than eight bytes.
pub fn write_blank(out: &mut [u8], size: u32) {
    let mut rest = out;
    let blank = take_array::<BLANK_LEN>(&mut rest);
    // No file is longer than an `int` counts.
    put_i32_in::<TOTAL_SIZE_AT, BLANK_LEN>(blank, size.cast_signed());
    put_i32_in::<MAGIC_AT, BLANK_LEN>(blank, MAGIC_BLANK);
}

/// The first `length` bytes of `rest`, which then begins behind them.
#[inline]
fn take<'a>(rest: &mut &'a mut [u8], length: usize) -> &'a mut [u8] {
    let (taken, left) = std::mem::take(rest).split_at_mut(length);
    *rest = left;
    taken
}

/// The same for a length that is known when compiling.
#[inline]
fn take_array<'a, const N: usize>(rest: &mut &'a mut [u8]) -> &'a mut [u8; N] {
    let whole = std::mem::take(rest);
    let Some((taken, left)) = whole.split_first_chunk_mut() else {
        unreachable!("the size was compared before");
    };
    *rest = left;
    taken
}
