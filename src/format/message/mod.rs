//! The record of the commit log, and the blank that closes a file.
//!
//! `B` and `S` are 8 or 20, the lengths of the two hosts; `t` is 1 in version 1 and 2 in version 2.
//!
//! | at | size | type | field | from |
//! |---|---|---|---|---|
//! | 0 | 4 | i32 | TOTALSIZE | `MessageExtEncoder#encode`, `CommitLog#checkMessageAndReturnSize` |
//! | 4 | 4 | i32 | MAGICCODE | `MessageVersion`, `CommitLog.BLANK_MAGIC_CODE` |
//! | 8 | 4 | i32 | BODYCRC | of the body as stored, never negative |
//! | 12 | 4 | i32 | QUEUEID | |
//! | 16 | 4 | i32 | FLAG | the producer's own |
//! | 20 | 8 | i64 | QUEUEOFFSET | entry number in the queue |
//! | 28 | 8 | i64 | PHYSICALOFFSET | where the record begins in the whole log |
//! | 36 | 4 | i32 | SYSFLAG | [`sys_flag`] |
//! | 40 | 8 | i64 | BORNTIMESTAMP | Unix milliseconds, set by the producer |
//! | 48 | B | | BORNHOST | [`Host`] |
//! | 48+B | 8 | i64 | STORETIMESTAMP | Unix milliseconds, set by the store |
//! | 56+B | S | | STOREHOST | [`Host`] |
//! | 56+B+S | 4 | i32 | RECONSUMETIMES | |
//! | 60+B+S | 8 | i64 | PREPAREDTRANSACTIONOFFSET | |
//! | 68+B+S | 4+n | i32 | BODYLENGTH, BODY | |
//! | 72+B+S+n | t+k | i8 or i16 | TOPICLENGTH, TOPIC | `MessageVersion#getTopicLength` |
//! | 72+B+S+n+t+k | 2+p | i16 | PROPERTIESLENGTH, PROPERTIES | [`properties`] |

pub mod elided;
pub mod host;
pub mod peek;
pub mod properties;
pub mod purpose;
pub(crate) mod record;
pub mod request;
pub mod sys_flag;
pub(crate) mod tag_filter;

use super::bytes::{i16_at, i16_in, i32_at, i32_in, i64_in};
use super::crc;
use super::java::{Host, message_id};

use self::sys_flag::Transaction;
use crate::error::{CorruptionKind, FormatError};
use crate::format::width::{clamp_u64, to_usize};

pub use self::record::{Lengths, Record, encoded_properties_len, write_blank};

/// One-byte topic length (`MessageDecoder.MESSAGE_MAGIC_CODE`).
pub const MAGIC_V1: i32 = 0xDAA3_20A7_u32.cast_signed();
/// Two-byte topic length (`MessageDecoder.MESSAGE_MAGIC_CODE_V2`).
pub const MAGIC_V2: i32 = 0xDAA3_20AB_u32.cast_signed();
/// Magic code of a blank (`CommitLog.BLANK_MAGIC_CODE`).
pub const MAGIC_BLANK: i32 = 0xCBD4_3194_u32.cast_signed();

pub(super) const TOTAL_SIZE_AT: usize = 0;
pub(super) const MAGIC_AT: usize = TOTAL_SIZE_AT + 4;
/// Length of a blank's header; the bytes behind are meaningless.
pub const BLANK_LEN: usize = MAGIC_AT + 4;
pub(super) const BODY_CRC_AT: usize = MAGIC_AT + 4;
pub(super) const QUEUE_ID_AT: usize = BODY_CRC_AT + 4;
pub(super) const FLAG_AT: usize = QUEUE_ID_AT + 4;
pub(super) const QUEUE_OFFSET_AT: usize = FLAG_AT + 4;
pub(crate) const PHYSICAL_OFFSET_AT: usize = QUEUE_OFFSET_AT + 8;
pub(super) const SYS_FLAG_AT: usize = PHYSICAL_OFFSET_AT + 8;
pub(super) const BORN_TIMESTAMP_AT: usize = SYS_FLAG_AT + 4;
/// Fields before BORNHOST, at the same positions in every record.
pub(super) const HEAD_LEN: usize = BORN_TIMESTAMP_AT + 8;
pub(super) const AFTER_HOSTS_LEN: usize = 4 + 8;
/// An empty record of version 1 with IPv4 hosts.
pub const MIN_RECORD_LEN: usize = HEAD_LEN + 8 + 8 + 8 + AFTER_HOSTS_LEN + 4 + 1 + 2;
const _: () = assert!(HEAD_LEN == 48 && MIN_RECORD_LEN == 91 && BLANK_LEN == 8);

/// Version of the record layout: width of the topic's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    V1,
    V2,
}

impl Version {
    #[must_use]
    pub const fn magic(self) -> i32 {
        match self {
            Self::V1 => MAGIC_V1,
            Self::V2 => MAGIC_V2,
        }
    }

    #[inline]
    #[must_use]
    pub const fn topic_length_len(self) -> usize {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// Maximum topic length; the length field is signed.
    #[must_use]
    pub const fn max_topic_len(self) -> usize {
        match self {
            Self::V1 => i8::MAX as usize,
            Self::V2 => i16::MAX as usize,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Frame<'a> {
    Message(MessageView<'a>),
    /// The rest of the file is empty.
    Blank {
        /// Bytes to the end of the file.
        size: u32,
    },
    Empty,
}

/// Reason why no frame could be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than the bytes given.
    #[error("a frame of at least {needed} bytes goes on behind them")]
    Incomplete { needed: usize },
    #[error("byte {}: {}: expected {}, found {}", .0.position, .0.kind, .0.expected, .0.found)]
    Bad(FormatError),
}

/// Reads the frame at the start of `bytes`.
///
/// Checks every length, so a [`MessageView`]'s accessors cannot fail. The caller checks checksums
/// ([`MessageView::check_body_crc`], [`MessageView::check_property_crc`]) and the record's own
/// offset (`CommitLog#checkMessageAndReturnSize`).
///
/// # Errors
/// [`FrameError::Incomplete`] when the frame is longer than `bytes`, [`FrameError::Bad`]
/// when they are no frame.
#[inline]
pub fn read_frame(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let Some(start) = bytes.first_chunk::<BLANK_LEN>() else {
        return Err(FrameError::Incomplete { needed: BLANK_LEN });
    };
    let size = i32_in::<TOTAL_SIZE_AT, BLANK_LEN>(start);
    let version = match i32_in::<MAGIC_AT, BLANK_LEN>(start) {
        MAGIC_V1 => Version::V1,
        MAGIC_V2 => Version::V2,
        magic => return read_other(size, magic),
    };
    let Some(size) = usize::try_from(size).ok().filter(|size| *size >= MIN_RECORD_LEN) else {
        return Err(impossible_size(size));
    };
    let Some(record) = bytes.get(..size) else {
        return Err(FrameError::Incomplete { needed: size });
    };
    match split_record(record, version) {
        Ok(view) => Ok(Frame::Message(view)),
        Err(part) => Err(FrameError::Bad(part.explain(record, version))),
    }
}

/// Fast path of [`read_frame`] for a whole, valid record.
#[inline(always)]
#[must_use]
pub fn read_whole(bytes: &[u8]) -> Option<MessageView<'_>> {
    let start = bytes.first_chunk::<BLANK_LEN>()?;
    let version = match i32_in::<MAGIC_AT, BLANK_LEN>(start) {
        MAGIC_V1 => Version::V1,
        MAGIC_V2 => Version::V2,
        _ => return None,
    };
    let size = usize::try_from(i32_in::<TOTAL_SIZE_AT, BLANK_LEN>(start)).ok()?;
    split_record(bytes.get(..size)?, version).ok()
}

#[cold]
fn read_other<'a>(size: i32, magic: i32) -> Result<Frame<'a>, FrameError> {
    match (magic, u32::try_from(size)) {
        (MAGIC_BLANK, Ok(size)) if size as usize >= BLANK_LEN => Ok(Frame::Blank { size }),
        (MAGIC_BLANK, _) => Err(FrameError::Bad(FormatError::new(
            CorruptionKind::Blank,
            TOTAL_SIZE_AT,
            format!("a blank of at least {BLANK_LEN} bytes"),
            format!("{size}"),
        ))),
        (0, Ok(0)) => Ok(Frame::Empty),
        _ => Err(FrameError::Bad(FormatError::new(
            CorruptionKind::Magic,
            MAGIC_AT,
            format!("{MAGIC_V1:#010x}, {MAGIC_V2:#010x} or {MAGIC_BLANK:#010x}"),
            format!("{magic:#010x}"),
        ))),
    }
}

#[cold]
fn impossible_size(size: i32) -> FrameError {
    FrameError::Bad(FormatError::new(
        CorruptionKind::Size,
        TOTAL_SIZE_AT,
        format!("a record of at least {MIN_RECORD_LEN} bytes"),
        format!("{size}"),
    ))
}

/// First part of a record that does not fit.
#[derive(Clone, Copy)]
enum BadPart {
    Hosts,
    Body,
    Topic,
    Properties,
    End,
}

impl BadPart {
    #[cold]
    fn explain(self, record: &[u8], version: Version) -> FormatError {
        let flag = i32_at(record, SYS_FLAG_AT).unwrap_or_default();
        let host_len = |is_v6| if is_v6 { 20 } else { 8 };
        let hosts =
            host_len(sys_flag::born_host_is_v6(flag)) + host_len(sys_flag::store_host_is_v6(flag));
        let body_at = HEAD_LEN + hosts + 8 + AFTER_HOSTS_LEN;
        let body_len = i32_at(record, body_at).unwrap_or_default();
        let topic_at = body_at + 4 + to_usize(clamp_u64(body_len));
        let topic_len = match version {
            Version::V1 => record.get(topic_at).map_or(0, |byte| i16::from(byte.cast_signed())),
            Version::V2 => i16_at(record, topic_at).unwrap_or_default(),
        };
        let properties_at = topic_at + version.topic_length_len() + to_usize(clamp_u64(topic_len));
        let properties_len = i16_at(record, properties_at).unwrap_or_default();
        let end = properties_at + 2 + to_usize(clamp_u64(properties_len));

        let left = |at: usize| record.len().saturating_sub(at);
        let (kind, at, expected, found) = match self {
            Self::Hosts => (
                CorruptionKind::Size,
                TOTAL_SIZE_AT,
                format!("room for {hosts} bytes of hosts"),
                format!("a record of {} bytes", record.len()),
            ),
            Self::Body => (
                CorruptionKind::BodyLength,
                body_at,
                format!("a body within the {} bytes left", left(body_at + 4)),
                format!("{body_len}"),
            ),
            Self::Topic => (
                CorruptionKind::TopicLength,
                topic_at,
                format!(
                    "a topic of 1 to {} bytes",
                    left(topic_at + version.topic_length_len() + 2).min(version.max_topic_len())
                ),
                format!("{topic_len}"),
            ),
            Self::Properties => (
                CorruptionKind::PropertiesLength,
                properties_at,
                format!("properties of {} bytes", left(properties_at + 2)),
                format!("{properties_len}"),
            ),
            Self::End => (
                CorruptionKind::Length,
                TOTAL_SIZE_AT,
                format!("{end} bytes, which its parts add up to"),
                format!("{}", record.len()),
            ),
        };
        FormatError::new(kind, at, expected, found)
    }
}

#[inline]
fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

#[inline]
fn take_array<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(taken)
}

#[inline]
fn take_host<'a>(rest: &mut &'a [u8], is_v6: bool) -> Option<&'a [u8]> {
    take(rest, if is_v6 { 20 } else { 8 })
}

#[inline(always)]
fn split_record(record: &[u8], version: Version) -> Result<MessageView<'_>, BadPart> {
    let mut rest = record;
    let head = take_array::<HEAD_LEN>(&mut rest).ok_or(BadPart::Hosts)?;
    let flag = i32_in::<SYS_FLAG_AT, HEAD_LEN>(head);
    let born_host = take_host(&mut rest, sys_flag::born_host_is_v6(flag)).ok_or(BadPart::Hosts)?;
    let store_timestamp = take_array(&mut rest).ok_or(BadPart::Hosts)?;
    let store_host =
        take_host(&mut rest, sys_flag::store_host_is_v6(flag)).ok_or(BadPart::Hosts)?;
    let after_hosts = take_array(&mut rest).ok_or(BadPart::Hosts)?;

    let body_len = i32_in::<0, 4>(take_array(&mut rest).ok_or(BadPart::Hosts)?);
    let body_len = usize::try_from(body_len).map_err(|_| BadPart::Body)?;
    let body = take(&mut rest, body_len).ok_or(BadPart::Body)?;

    let topic_len = match version {
        Version::V1 => i16::from(take_array::<1>(&mut rest).ok_or(BadPart::Body)?[0].cast_signed()),
        Version::V2 => i16_in::<0, 2>(take_array(&mut rest).ok_or(BadPart::Body)?),
    };
    let topic_len =
        usize::try_from(topic_len).ok().filter(|length| *length > 0).ok_or(BadPart::Topic)?;
    let topic = take(&mut rest, topic_len).ok_or(BadPart::Topic)?;

    let properties_len = i16_in::<0, 2>(take_array(&mut rest).ok_or(BadPart::Topic)?);
    let properties_len = usize::try_from(properties_len).map_err(|_| BadPart::Properties)?;
    let properties = take(&mut rest, properties_len).ok_or(BadPart::Properties)?;
    if !rest.is_empty() {
        return Err(BadPart::End);
    }
    Ok(MessageView {
        record,
        head,
        born_host,
        store_timestamp,
        store_host,
        after_hosts,
        body,
        topic,
        properties,
        version,
    })
}

/// A record, borrowed from its bytes.
#[derive(Clone, Copy)]
pub struct MessageView<'a> {
    record: &'a [u8],
    head: &'a [u8; HEAD_LEN],
    born_host: &'a [u8],
    store_timestamp: &'a [u8; 8],
    store_host: &'a [u8],
    after_hosts: &'a [u8; AFTER_HOSTS_LEN],
    body: &'a [u8],
    topic: &'a [u8],
    properties: &'a [u8],
    version: Version,
}

/// Makes accessors from rows of name, type and value.
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $type:ty = |$view:ident| $value:expr;)*) => {
        impl<'a> MessageView<'a> {$(
            $(#[$doc])*
            #[inline]
            #[must_use]
            pub const fn $name(&self) -> $type {
                let $view = self;
                $value
            }
        )*}
    };
}

fields! {
    /// The whole record.
    as_bytes: &'a [u8] = |view| view.record;
    /// Length of the record.
    // The size is an `i32`.
    store_size: u32 = |view| view.record.len() as u32;
    /// Version of the layout.
    version: Version = |view| view.version;
    /// The stored checksum of the body.
    body_crc: i32 = |view| i32_in::<BODY_CRC_AT, HEAD_LEN>(view.head);
    /// The queue.
    queue_id: i32 = |view| i32_in::<QUEUE_ID_AT, HEAD_LEN>(view.head);
    /// The producer's flag.
    flag: i32 = |view| i32_in::<FLAG_AT, HEAD_LEN>(view.head);
    /// Queue offset.
    queue_offset: i64 = |view| i64_in::<QUEUE_OFFSET_AT, HEAD_LEN>(view.head);
    /// Offset in the commit log, as stored in the record.
    physical_offset: i64 = |view| i64_in::<PHYSICAL_OFFSET_AT, HEAD_LEN>(view.head);
    /// The bits of [`sys_flag`].
    sys_flag: i32 = |view| i32_in::<SYS_FLAG_AT, HEAD_LEN>(view.head);
    /// Producer's time, Unix milliseconds.
    born_timestamp_ms: i64 = |view| i64_in::<BORN_TIMESTAMP_AT, HEAD_LEN>(view.head);
    /// Store time, Unix milliseconds.
    store_timestamp_ms: i64 = |view| i64_in::<0, 8>(view.store_timestamp);
    /// Number of redeliveries (`reconsumeTimes`).
    reconsume_times: i32 = |view| i32_in::<0, AFTER_HOSTS_LEN>(view.after_hosts);
    /// Offset of the half message that this one commits, else 0.
    prepared_transaction_offset: i64 = |view| i64_in::<4, AFTER_HOSTS_LEN>(view.after_hosts);
    /// The body as stored.
    body: &'a [u8] = |view| view.body;
    /// The topic: at least one byte, usually UTF-8.
    topic: &'a [u8] = |view| view.topic;
    /// The properties as stored; [`properties`] reads them.
    raw_properties: &'a [u8] = |view| view.properties;
    /// Kind of transaction.
    transaction: Transaction = |view| sys_flag::transaction(view.sys_flag());
}

impl<'a> MessageView<'a> {
    /// Producer's address.
    #[inline]
    #[must_use]
    pub fn born_host(&self) -> Host {
        host(self.born_host)
    }

    /// The address of the broker that stored it.
    #[inline]
    #[must_use]
    pub fn store_host(&self) -> Host {
        host(self.store_host)
    }

    /// Value of the last property of that name.
    #[inline]
    #[must_use]
    pub fn property(&self, name: &[u8]) -> Option<&'a [u8]> {
        properties::get(self.properties, name)
    }

    /// The store's message id.
    #[must_use]
    pub fn message_id(&self) -> String {
        message_id(&self.store_host(), self.physical_offset())
    }

    /// Checks the body's checksum; an empty body has none (`CommitLog#checkMessageAndReturnSize`).
    #[inline]
    pub fn check_body_crc(&self) -> Result<(), FormatError> {
        if self.body.is_empty() {
            return Ok(());
        }
        let found = crc::body_crc(self.body);
        if found == self.body_crc() { Ok(()) } else { Err(self.wrong_body_crc(found)) }
    }

    #[cold]
    pub(crate) fn wrong_body_crc(&self, found: i32) -> FormatError {
        FormatError::new(
            CorruptionKind::BodyCrc,
            BODY_CRC_AT,
            format!("checksum {:#010x} of the body", self.body_crc()),
            format!("{found:#010x}"),
        )
    }

    /// Checks the checksum in the record's last property (`enabledAppendPropCRC`,
    /// `forceVerifyPropCRC`).
    pub fn check_property_crc(&self) -> Result<(), FormatError> {
        let covered = self.record.len() - crc::PROPERTY_CRC_LEN.min(self.properties.len());
        let Some(expected) = self.property_crc() else {
            let expected = "a checksum as the last property";
            return Err(FormatError::new(CorruptionKind::PropertyCrc, covered, expected, "none"));
        };
        let found = crc::record_crc(&self.record[..covered]);
        if found == expected { Ok(()) } else { Err(wrong_property_crc(covered, expected, found)) }
    }

    /// The checksum in its last property.
    #[inline]
    #[must_use]
    pub fn property_crc(&self) -> Option<u32> {
        self.properties.last_chunk().and_then(crc::parse_property_crc)
    }
}

/// A wrong checksum of a record's first `covered` bytes.
#[cold]
pub(crate) fn wrong_property_crc(covered: usize, expected: u32, found: u32) -> FormatError {
    FormatError::new(
        CorruptionKind::PropertyCrc,
        covered,
        format!("checksum {expected:#010x} of the record"),
        format!("{found:#010x}"),
    )
}

impl std::fmt::Debug for MessageView<'_> {
    /// Prints the fields, and only the length of the body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageView")
            .field("topic", &String::from_utf8_lossy(self.topic))
            .field("queue_id", &self.queue_id())
            .field("queue_offset", &self.queue_offset())
            .field("physical_offset", &self.physical_offset())
            .field("store_size", &self.store_size())
            .field("store_timestamp_ms", &self.store_timestamp_ms())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Reads a host; the constructor has made the length 8 or 20.
#[inline]
fn host(bytes: &[u8]) -> Host {
    Host::read(bytes).unwrap_or(Host::V4([0; 4], 0))
}

#[cfg(test)]
mod tests;
