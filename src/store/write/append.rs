//! Appends: checks, queue offset, record (`CommitLog.asyncPutMessage`,
//! `HookUtils.checkBeforePutMessage`).

use std::borrow::Cow;
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::{
    AppendResult, CorruptionKind, Error, PutStatus, Result, expected_got, start_of,
};
use crate::files::Waiters;
use crate::format::crc;
use crate::format::message::host::Host;
use crate::format::message::properties::{self, Indexed};
use crate::format::message::sys_flag::{self, Transaction};
use crate::format::message::{self, BLANK_LEN, Lengths, MessageView, Record, Version};
use crate::format::queue::{is_broker_topic, names_a_folder};
use crate::format::width::{saturating_u32, to_usize};
use crate::log::Queue;
use crate::log::log_writer::LogWriter;
use crate::store::queue_table::QueueTable;
use crate::store::queue_table::known::KnownQueues;

use super::property_block::{inner_count, with_base};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;

/// Bytes of properties and fields beyond `max_message_size` (`CommitLog.MAX_MSG_...`).
const RECORD_SLACK: u64 = 64 << 10;

/// A message to append; the store adds missing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NewMessage<'a> {
    /// The topic.
    pub topic: &'a [u8],
    /// The queue.
    pub queue_id: i32,
    /// The body.
    pub body: &'a [u8],
    /// Stored properties: `name 0x01 value 0x02`, repeated.
    pub properties: &'a [u8],
    /// The user's flag.
    pub flag: i32,
    /// SYSFLAG; host bits are set from the hosts.
    pub sys_flag: i32,
    /// Producer's time, Unix milliseconds; defaults to the store's.
    pub born_timestamp_ms: Option<i64>,
    /// Producer's address; defaults to the store's.
    pub born_host: Option<Host>,
    /// Store time; defaults to now, at least the newest record's.
    pub store_timestamp_ms: Option<i64>,
    /// Store address; defaults to the configured one.
    pub store_host: Option<Host>,
    /// Number of redeliveries (`reconsumeTimes`).
    pub reconsume_times: i32,
    /// Offset of the prepared message, for a commit or rollback.
    pub prepared_transaction_offset: i64,
}

impl<'a> NewMessage<'a> {
    /// A message with everything that a stored one has.
    #[must_use]
    pub fn of(view: &MessageView<'a>) -> Self {
        Self {
            queue_id: view.queue_id(),
            properties: view.raw_properties(),
            flag: view.flag(),
            sys_flag: view.sys_flag(),
            born_timestamp_ms: Some(view.born_timestamp_ms()),
            born_host: Some(view.born_host()),
            store_timestamp_ms: Some(view.store_timestamp_ms()),
            store_host: Some(view.store_host()),
            reconsume_times: view.reconsume_times(),
            prepared_transaction_offset: view.prepared_transaction_offset(),
            ..Self::new(view.topic(), view.body())
        }
    }

    /// A message with defaults.
    #[must_use]
    pub const fn new(topic: &'a [u8], body: &'a [u8]) -> Self {
        Self {
            topic,
            queue_id: 0,
            body,
            properties: &[],
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: None,
            born_host: None,
            store_timestamp_ms: None,
            store_host: None,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
        }
    }
}

/// Why [`MessageStore::append_many`](crate::MessageStore::append_many) stopped.
#[derive(Debug)]
pub struct BatchError {
    /// Messages written before.
    pub results: Vec<AppendResult>,
    /// Index of the failed message.
    pub index: usize,
    /// Its failure.
    pub error: Error,
}

/// Results of several appends.
pub type Appended = std::result::Result<Vec<AppendResult>, Box<BatchError>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    Now,
    /// From the copy in the record: another thread may write to the body.
    OfCopy,
}

/// A checked message, except for fields that depend on its position.
#[derive(Debug)]
pub struct Checked<'a> {
    message: &'a NewMessage<'a>,
    version: Version,
    /// 0 for [`Sum::OfCopy`].
    body_crc: i32,
    sum: Sum,
    /// Without properties that the store adds.
    size: usize,
    rare: Option<Box<Rare<'a>>>,
}

#[derive(Debug)]
struct Rare<'a> {
    inner_count: Option<i16>,
    /// Without those that the store adds.
    properties: Cow<'a, [u8]>,
    more_queues: Vec<&'a [u8]>,
}

/// Whether it is an inner batch, or perhaps in a queue of batches.
#[inline]
fn is_batch(message: &NewMessage<'_>, queues: &QueueTable) -> bool {
    sys_flag::is_inner_batch(message.sys_flag) || !queues.has_no_batches()
}

impl<'a> Rare<'a> {
    #[inline(never)]
    fn check(
        message: &'a NewMessage<'a>,
        config: &StoreConfig,
        queues: &QueueTable,
    ) -> Result<Option<Box<Self>>> {
        let NewMessage { topic, properties, .. } = *message;
        let inner_count = match is_batch(message, queues) {
            true => inner_count(topic, message.sys_flag, properties, queues)?,
            false => None,
        };
        let properties = match config.enabled_append_prop_crc {
            true => properties::without(properties, properties::names::CRC32),
            false => Cow::Borrowed(properties),
        };
        let more_queues = match config.enable_lmq {
            true => lmq::queues_of(topic, message.properties, config.rocketmq_version)?,
            false => Vec::new(),
        };
        let is_usual = inner_count.is_none()
            && matches!(properties, Cow::Borrowed(_))
            && more_queues.is_empty();
        Ok((!is_usual).then(|| Box::new(Self { inner_count, properties, more_queues })))
    }

    #[inline(never)]
    fn number(&self, queue_offset: i64, queues: &QueueTable) -> Result<Box<Numbered>> {
        let more_queues = lmq::find(&self.more_queues, queues)?;
        let mut properties = self.inner_count.map(|_| with_base(&self.properties, queue_offset));
        if !more_queues.is_empty() {
            let given = properties.as_deref().unwrap_or(&self.properties);
            properties = Some(lmq::with_numbers(given, &more_queues));
        }
        Ok(Box::new(Numbered { more_queues, properties }))
    }
}

/// [`Rare`] parts at a position.
struct Numbered {
    more_queues: Vec<Arc<Queue>>,
    properties: Option<Vec<u8>>,
}

fn refused(
    field: &'static str,
    status: PutStatus,
    limit: Option<u64>,
    reason: impl Into<String>,
) -> Error {
    Error::InvalidMessage { field, reason: reason.into(), status, limit }
}

fn too_large(field: &'static str, found: usize, limit: u64, status: PutStatus) -> Error {
    refused(field, status, Some(limit), expected_got(format!("at most {limit} bytes"), found))
}

impl<'a> Checked<'a> {
    /// Checks a message against format and settings.
    #[inline]
    pub fn new(
        message: &'a NewMessage<'a>,
        config: &StoreConfig,
        queues: &QueueTable,
        file_size: u64,
        sum: Sum,
    ) -> Result<Self> {
        use PutStatus::MessageIllegal;
        let topic = message.topic;
        if config.validate_topic_names {
            // A store keeps the topics that it has.
            if !is_broker_topic(topic) && queues.highest(topic).is_none() {
                return Err(bad_topic(topic, true));
            }
        } else if !names_a_folder(topic) {
            return Err(bad_topic(topic, false));
        }
        queues.check_queue_id(message.queue_id)?;
        if message.queue_id > config.max_queue_id && config.validate_topic_names {
            queues.check_near(topic, message.queue_id, config.max_queue_id)?;
        }
        if let Some(time @ ..0) = message.store_timestamp_ms {
            let expected = "0 or more Unix milliseconds";
            return Err(Error::argument("store_timestamp_ms", expected, time));
        }
        let version = if config.auto_message_version_on_topic_len && topic.len() > 127 {
            Version::V2
        } else {
            Version::V1
        };
        if version == Version::V1 && topic.len() > 127 {
            // Its length would read as negative.
            return Err(too_large("topic", topic.len(), 127, MessageIllegal));
        }
        let is_rare =
            is_batch(message, queues) || config.enabled_append_prop_crc || config.enable_lmq;
        let rare = if is_rare { Rare::check(message, config, queues)? } else { None };
        let properties = rare.as_ref().map_or(message.properties, |rare| &rare.properties);
        let in_one_queue = rare.as_ref().is_none_or(|rare| rare.more_queues.is_empty());
        let size = check_size(message, version, properties, in_one_queue, config, file_size)?;
        let body_crc = if sum == Sum::Now { crc::body_crc(message.body) } else { 0 };
        Ok(Self { message, version, body_crc, sum, size, rare })
    }

    /// The properties to store, without those that the store adds.
    #[inline]
    #[must_use]
    pub fn properties(&self) -> &[u8] {
        self.rare.as_ref().map_or(self.message.properties, |rare| &rare.properties)
    }

    /// Input of queues and index for the placed record; its properties are not read yet.
    #[inline(always)]
    #[must_use]
    pub fn request(&self, placed: &AppendResult) -> DispatchRequest<'_> {
        DispatchRequest {
            topic: self.message.topic,
            queue_id: self.message.queue_id,
            queue_offset: placed.queue_offset,
            physical_offset: placed.physical_offset,
            store_size: placed.store_size,
            store_timestamp_ms: placed.store_timestamp_ms,
            transaction: sys_flag::transaction(self.message.sys_flag),
            properties: Indexed::default(),
        }
    }
}

/// Checks lengths in RocketMQ's order and returns the record's.
#[inline]
fn check_size(
    message: &NewMessage<'_>,
    version: Version,
    properties: &[u8],
    in_one_queue: bool,
    config: &StoreConfig,
    file_size: u64,
) -> Result<usize> {
    use PutStatus::{MessageIllegal, PropertiesSizeExceeded};
    let (born_host, store_host) = hosts(message, config);
    let lengths = Lengths {
        version,
        hosts: born_host.encoded_len() + store_host.encoded_len(),
        body: message.body.len(),
        topic: message.topic.len(),
        properties: message::encoded_properties_len(properties, config.enabled_append_prop_crc),
    };
    let size = lengths.of_record();
    if lengths.properties > properties::MAX_LEN {
        let limit = properties::MAX_LEN as u64;
        return Err(too_large("properties", lengths.properties, limit, PropertiesSizeExceeded));
    }
    if lengths.body as u64 > config.max_message_size {
        return Err(too_large("body", lengths.body, config.max_message_size, MessageIllegal));
    }
    // With additional queues the whole record counts as the message.
    let slack = if in_one_queue { RECORD_SLACK } else { 0 };
    let limit = config.max_message_size.saturating_add(slack);
    // RocketMQ would waste a file on a record that fits into none.
    let limit = limit.min(file_size.saturating_sub(BLANK_LEN as u64));
    if size as u64 > limit {
        return Err(too_large("message", size, limit, MessageIllegal));
    }
    Ok(size)
}

#[inline]
fn hosts(message: &NewMessage<'_>, config: &StoreConfig) -> (Host, Host) {
    let store_host = message.store_host.unwrap_or(config.store_host);
    (message.born_host.unwrap_or(store_host), store_host)
}

#[cold]
fn bad_topic(topic: &[u8], validated: bool) -> Error {
    let limit = if topic.starts_with(b"%RETRY%") { 255 } else { 127 };
    let reason = if topic.is_empty() || topic.len() > limit {
        expected_got(format!("1 to {limit} bytes"), topic.len())
    } else if validated {
        let shown = start_of(&String::from_utf8_lossy(topic));
        let instead = "a store that no broker shares takes it with validate_topic_names=False";
        expected_got("letters, digits, %, |, _ and -", format!("{shown:?}; {instead}"))
    } else {
        return Error::no_folder(topic);
    };
    refused("topic", PutStatus::MessageIllegal, Some(limit as u64), reason)
}

/// Encodes one record without the settings' limits.
pub fn encode(
    message: &NewMessage<'_>,
    physical_offset: i64,
    queue_offset: i64,
    property_crc: bool,
) -> Result<Vec<u8>> {
    use PutStatus::{MessageIllegal, PropertiesSizeExceeded};
    let missing = |field| move || Error::argument(field, "a value", "none");
    let store_host = message.store_host.ok_or_else(missing("store_host"))?;
    let store_timestamp_ms =
        message.store_timestamp_ms.ok_or_else(missing("store_timestamp_ms"))?;
    let record = Record {
        version: if message.topic.len() > 127 { Version::V2 } else { Version::V1 },
        body_crc: crc::body_crc(message.body),
        queue_id: message.queue_id,
        flag: message.flag,
        queue_offset,
        physical_offset,
        sys_flag: message.sys_flag,
        born_timestamp_ms: message.born_timestamp_ms.unwrap_or(store_timestamp_ms),
        born_host: message.born_host.unwrap_or(store_host),
        store_timestamp_ms,
        store_host,
        reconsume_times: message.reconsume_times,
        prepared_transaction_offset: message.prepared_transaction_offset,
        body: message.body,
        topic: message.topic,
        properties: message.properties,
        property_crc,
    };
    record.check().map_err(|error| {
        let (field, status) = match error.kind {
            CorruptionKind::TopicLength => ("topic", MessageIllegal),
            CorruptionKind::PropertiesLength => ("properties", PropertiesSizeExceeded),
            _ => ("message", MessageIllegal),
        };
        refused(field, status, None, format!("{}, found {}", error.expected, error.found))
    })?;
    let mut bytes = vec![0; record.encoded_size()];
    record.encode_into(&mut bytes);
    Ok(bytes)
}

/// Appending state: the log's end and each queue's next number. Used under a lock.
#[derive(Debug)]
pub struct Appender {
    pub writer: LogWriter,
    /// Newest store time in the log, except times from the future. Later messages are never stored
    /// earlier.
    pub newest_timestamp_ms: i64,
    pub last_begin: u64,
    pub waiters: Waiters,
    known: KnownQueues,
}

#[derive(Clone, Copy, Debug)]
pub struct Placed {
    pub result: AppendResult,
    /// The log's end before it, without a blank.
    pub before: u64,
    /// Whether its properties are as given; otherwise they are read from the record.
    pub as_given: bool,
}

impl Appender {
    /// An appender at the end of `writer`'s log; its last record begins at `last_begin`.
    #[must_use]
    pub fn new(
        writer: LogWriter,
        newest_timestamp_ms: i64,
        last_begin: u64,
        waiters: Waiters,
    ) -> Self {
        Self { writer, newest_timestamp_ms, last_begin, waiters, known: KnownQueues::default() }
    }

    /// Ensures room for a whole batch in one file, before any record is placed
    /// (`CommitLog.asyncPutMessages`).
    pub fn make_room(&mut self, batch: &[Checked<'_>], config: &StoreConfig) -> Result<()> {
        let Some(first) = batch.first().map(|checked| checked.message) else { return Ok(()) };
        let (mut size, mut bodies) = (0_usize, 0_u64);
        for checked in batch {
            let message = checked.message;
            let plain = sys_flag::transaction(message.sys_flag) == Transaction::None
                && properties::get(message.properties, properties::names::DELAY).is_none();
            if (message.topic, message.queue_id) != (first.topic, first.queue_id) || !plain {
                let expected = "a batch for one queue, without delay and transactions";
                return Err(Error::argument("messages", expected, "another"));
            }
            size = size.saturating_add(checked.size);
            bodies = bodies.saturating_add(message.body.len() as u64);
        }
        let room = self.writer.file_size().saturating_sub(BLANK_LEN as u64);
        if bodies > config.max_message_size {
            let found = to_usize(bodies);
            let limit = config.max_message_size;
            return Err(too_large("messages", found, limit, PutStatus::MessageIllegal));
        }
        if size as u64 > room {
            return Err(too_large("messages", size, room, PutStatus::MessageIllegal));
        }
        self.writer.window(size).map(|_| ())
    }

    /// Writes a record; returns it with its queue and whether the queue is new.
    #[inline]
    pub fn place(
        &mut self,
        checked: &Checked<'_>,
        config: &StoreConfig,
        queues: &QueueTable,
        now_ms: i64,
    ) -> Result<(Placed, &Arc<Queue>, bool)> {
        let message = checked.message;
        let (queue, new) = self.known.get(message.topic, message.queue_id, queues)?;
        let queued = matches!(
            sys_flag::transaction(message.sys_flag),
            Transaction::None | Transaction::Commit
        );
        let queue_offset = if queued { queue.next_offset() } else { 0 };
        let store_timestamp_ms =
            message.store_timestamp_ms.unwrap_or_else(|| now_ms.max(self.newest_timestamp_ms));
        let rare = checked.rare.as_deref();
        let numbered = rare.map(|rare| rare.number(queue_offset, queues)).transpose()?;
        let mut size = checked.size;
        let more_properties = numbered.as_ref().and_then(|numbered| numbered.properties.as_deref());
        if let (Some(Numbered { more_queues, .. }), Some(properties)) =
            (numbered.as_deref(), more_properties)
        {
            let (version, file_size) = (checked.version, self.writer.file_size());
            let in_one_queue = more_queues.is_empty();
            size = check_size(message, version, properties, in_one_queue, config, file_size)?;
        }
        let before = self.writer.end_offset();
        let (offset, window) = self.writer.window(size)?;
        let physical_offset = offset.stored();
        let (born_host, store_host) = hosts(message, config);
        let record = Record {
            version: checked.version,
            body_crc: checked.body_crc,
            queue_id: message.queue_id,
            flag: message.flag,
            queue_offset,
            physical_offset,
            sys_flag: message.sys_flag,
            born_timestamp_ms: message.born_timestamp_ms.unwrap_or(store_timestamp_ms),
            born_host,
            store_timestamp_ms,
            store_host,
            reconsume_times: message.reconsume_times,
            prepared_transaction_offset: message.prepared_transaction_offset,
            body: message.body,
            topic: message.topic,
            properties: more_properties.unwrap_or(checked.properties()),
            property_crc: config.enabled_append_prop_crc,
        };
        record.encode_into(window);
        if checked.sum == Sum::OfCopy {
            record.sum_copy(window);
        }
        self.writer.publish(size)?;
        self.last_begin = offset.get();
        if queued {
            let count = rare.and_then(|rare| rare.inner_count).unwrap_or(1);
            queue.set_next_offset(queue_offset.saturating_add(i64::from(count)));
        }
        for queue in numbered.iter().flat_map(|numbered| &numbered.more_queues) {
            queue.set_next_offset(queue.next_offset().saturating_add(1));
        }
        // A time given by the caller moves no later message into the future.
        if message.store_timestamp_ms.is_none_or(|given| given <= now_ms) {
            self.newest_timestamp_ms = self.newest_timestamp_ms.max(store_timestamp_ms);
        }
        let store_size = saturating_u32(size);
        let result = AppendResult { physical_offset, store_size, queue_offset, store_timestamp_ms };
        Ok((Placed { result, before, as_given: more_properties.is_none() }, queue, new))
    }
}
