//! A message as the commit log holds it.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDateTime, PyDelta, PyDict, PyString, PyTuple, PyTzInfo};

use crate::error::{CorruptionKind, Error, FormatError};
use crate::format::body;
use crate::format::message::properties::{self, names};
use crate::format::message::purpose::{self, Purpose};
use crate::format::message::sys_flag::{self, Compression};
use crate::format::message::{self, Frame, FrameError, MessageView};
use crate::format::queue::consume_queue::DelayLevels;
use crate::py::fields::{self, bytes_of};
use crate::py::values::getters;
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;
use crate::store::read::scan::Damage;
use crate::store::write::inner_batch;

pub(crate) const MOST_BODY: usize = 64 << 20;
const DAY_MS: i64 = 86_400_000;
/// `MessageConst.PROPERTY_LITE_TOPIC` and `PROPERTY_PRIORITY`.
const LITE_TOPIC: &[u8] = b"__LITE_TOPIC";
const PRIORITY: &[u8] = b"_SYS_MSG_PRIORITY_";
/// Bytes of a body in a `repr`.
const SHOWN_BODY: usize = 64;

/// A message as the commit log holds it.
///
/// It owns a copy of its record and decodes each field on access. Two messages are equal if their
/// records are equal byte for byte. Returned by the store and by ``decode``; it pickles as its
/// record.
///
/// Text that is not UTF-8 is shown with U+FFFD where a byte cannot be read; ``raw_properties`` has
/// the bytes.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct StoredMessage {
    record: Record,
}

impl From<Box<[u8]>> for StoredMessage {
    /// `record` was checked.
    #[inline]
    fn from(record: Box<[u8]>) -> Self {
        Record(record.into()).into()
    }
}

impl From<Record> for StoredMessage {
    #[inline]
    fn from(record: Record) -> Self {
        Self { record }
    }
}

/// Bytes of a record, in memory that a dropped one had: the allocator is slow for these sizes.
pub(crate) struct Record(Vec<u8>);

const MOST_SPARE: usize = 64;
const MOST_SPARE_BYTES: usize = 4096;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The thread's spare memory, unless the thread is ending.
#[inline]
fn spare<T>(work: impl FnOnce(&mut Vec<Vec<u8>>) -> T) -> Option<T> {
    SPARE.try_with(|spare| work(&mut spare.borrow_mut())).ok()
}

impl Record {
    #[inline]
    pub(crate) fn copied(bytes: &[u8]) -> Self {
        // A message that is kept holds at most twice its bytes.
        let fits = |memory: &Vec<u8>| memory.capacity() / 2 <= bytes.len();
        let mut memory = spare(Vec::pop).flatten().filter(fits).unwrap_or_default();
        memory.reserve_exact(bytes.len());
        memory.extend_from_slice(bytes);
        Self(memory)
    }
}

impl Drop for Record {
    #[inline]
    fn drop(&mut self) {
        let mut memory = std::mem::take(&mut self.0);
        if memory.capacity() <= MOST_SPARE_BYTES {
            memory.clear();
            spare(|spare| (spare.len() < MOST_SPARE).then(|| spare.push(memory)));
        }
    }
}

impl Deref for Record {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

pub(crate) fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn no_record(found: Result<Frame<'_>, FrameError>, len: usize) -> FormatError {
    let expected = |what: &str| ("a record".to_owned(), what.to_owned());
    let (kind, (expected, found)) = match found {
        Err(FrameError::Bad(error)) => return error,
        Err(FrameError::Incomplete { needed }) => {
            (CorruptionKind::Truncated, (format!("{needed} bytes"), format!("{len} bytes")))
        }
        Ok(Frame::Blank { size }) => {
            (CorruptionKind::Magic, expected(&format!("{size} bytes of filler")))
        }
        Ok(Frame::Empty) | Ok(Frame::Message(_)) => (CorruptionKind::Size, expected("zeros")),
    };
    FormatError::new(kind, 0, expected, found)
}

impl StoredMessage {
    #[inline]
    pub(crate) fn view(&self) -> PyResult<MessageView<'_>> {
        message::read_whole(&self.record)
            .ok_or_else(|| no_record(message::read_frame(&self.record), self.record.len()).into())
    }
}

fn property(view: &MessageView<'_>, name: &[u8]) -> Option<String> {
    view.property(name).map(|value| text(value).into_owned())
}

fn number(view: &MessageView<'_>, name: &[u8]) -> Option<i32> {
    str::from_utf8(view.property(name)?).ok()?.parse().ok()
}

#[pymethods]
impl StoredMessage {
    /// Name of the topic.
    #[getter]
    fn topic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        Ok(PyString::new(py, &text(self.view()?.topic())))
    }

    /// Length of the whole record in bytes.
    #[getter]
    fn store_size(&self) -> usize {
        self.record.len()
    }

    /// The body as it is stored.
    #[getter]
    fn raw_body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.view()?.body()))
    }

    /// The body as the producer sent it: decompressed where ``sys_flag`` says so.
    ///
    /// Raises:
    ///     CorruptionError: The stored bytes cannot be decompressed, or give more than 64 MiB. It
    ///         names the message; ``raw_body`` is still there.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let view = self.view()?;
        let plain = sys_flag::compression(view.sys_flag()) == Some(Compression::None);
        if plain {
            return Ok(PyBytes::new(py, view.body()));
        }
        match py.detach(|| body::of_message(&view, MOST_BODY)) {
            Ok(body) => Ok(PyBytes::new(py, &body)),
            Err(error) => Err(Damage::of_message(&view, error.into_corruption()).error().into()),
        }
    }

    /// All properties, in the order stored; of a name given twice the later value.
    ///
    /// Read as ``MessageDecoder#string2messageProperties`` reads them.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        // A dict also keeps the first position and the last value.
        for (name, value) in properties::iter(self.view()?.raw_properties()) {
            all.set_item(text(name), text(value))?;
        }
        Ok(all)
    }

    /// The property block as it is stored.
    #[getter]
    fn raw_properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.view()?.raw_properties()))
    }

    /// Property ``KEYS``, split at single spaces, empty pieces left out.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let keys = self.view()?.property(names::KEYS).unwrap_or_default();
        let keys: Vec<_> = properties::split_keys(keys).map(text).collect();
        PyTuple::new(py, keys)
    }

    /// The whole record as it is stored, ``store_size`` bytes long.
    #[getter]
    fn record<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.record)
    }

    /// When a delayed or a timer message is given out, Unix milliseconds.
    ///
    /// By RocketMQ's own delay levels: a message does not know what ``message_delay_level`` is set
    /// to; its queue entry does, which holds the time as its tags code. ``None`` for a message that
    /// waits for no time.
    #[getter]
    fn deliver_timestamp_ms(&self) -> PyResult<Option<i64>> {
        let view = self.view()?;
        Ok(purpose::deliver_timestamp_ms(
            view.topic(),
            view.raw_properties(),
            view.store_timestamp_ms(),
            &DelayLevels::default(),
        ))
    }

    /// The ``%LMQ%`` queues beside its own that it is in, each with its queue offset there.
    #[getter]
    fn multi_dispatch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let view = self.view()?;
        let queues: Vec<_> = lmq::pairs(&DispatchRequest::of(&view))
            .filter(|(name, ..)| name.starts_with(lmq::PREFIX))
            .map(|(name, _, number)| (text(name), number))
            .collect();
        PyTuple::new(py, queues)
    }

    /// The messages of a batch that is kept together; ``None`` for any other message.
    ///
    /// Each is a message of its own: with the batch's place, times and hosts, its own body and
    /// properties, and queue offsets counting from the batch's.
    ///
    /// Raises:
    ///     CorruptionError: ``kind`` is ``batch``: the lengths in the body do not add up, or it
    ///         holds another number of messages than its properties say; or ``body``: it cannot be
    ///         decompressed. ``raw_body`` has the bytes.
    #[getter]
    fn batch<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let view = self.view()?;
        let Some(members) = py.detach(|| inner_batch::members(&view, MOST_BODY))? else {
            return Ok(None);
        };
        let members: Vec<_> = members
            .into_iter()
            .map(|record| Bound::new(py, StoredMessage::from(record)))
            .collect::<PyResult<_>>()?;
        PyTuple::new(py, members).map(Some)
    }

    /// The producer's time as a ``datetime``; ``None`` outside the years 1 to 9999.
    #[getter]
    fn born_timestamp<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        datetime(py, self.view()?.born_timestamp_ms())
    }

    /// The store's time as a ``datetime``; ``None`` outside the years 1 to 9999.
    #[getter]
    fn store_timestamp<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        datetime(py, self.view()?.store_timestamp_ms())
    }

    /// All fields by name, ``body`` as bytes.
    ///
    /// Raises:
    ///     CorruptionError: The body cannot be decompressed.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("mqstore.results.documents")?.call_method1("to_dict", (slf,))
    }

    /// A JSON document of one line, as ``mqstore get --json`` prints it.
    ///
    /// A body that is not UTF-8 is in ``body_base64`` instead of ``body``.
    fn json<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("mqstore.results.documents")?.call_method1("to_json", (slf,))
    }

    /// The body, parsed as JSON.
    ///
    /// Raises:
    ///     ValueError: It is no JSON.
    ///     CorruptionError: It cannot be decompressed.
    fn body_json<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("mqstore.results.documents")?.call_method1("body_json", (slf,))
    }

    fn __eq__(&self, other: &Self) -> bool {
        *self.record == *other.record
    }

    fn __hash__(&self) -> u64 {
        // Offset, times and checksum lie at the front.
        let mut hasher = DefaultHasher::new();
        self.record.len().hash(&mut hasher);
        self.record.get(..128).unwrap_or(&self.record).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let view = self.view()?;
        let mut shown = format!(
            "StoredMessage(topic={}, queue_id={}, queue_offset={}, physical_offset={}, \
             store_size={}, store_timestamp_ms={}",
            short(py, view.topic())?,
            view.queue_id(),
            view.queue_offset(),
            view.physical_offset(),
            view.store_size(),
            view.store_timestamp_ms(),
        );
        for (field, name) in [("tags", names::TAGS), ("unique_key", names::UNIQ_KEY)] {
            if let Some(value) = view.property(name) {
                shown.push_str(&format!(", {field}={}", short(py, value)?));
            }
        }
        shown.push_str(&format!(", raw_body={})", shown_body(py, view.body())?));
        Ok(shown)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let make = py.import("mqstore._native")?.getattr("_stored_message")?;
        let record = PyTuple::new(py, [slf.get().record(py)])?;
        PyTuple::new(py, [make, record.into_any()])
    }
}

getters! {
    StoredMessage, this => &this.view()?, {
        /// Number of the queue in its topic.
        queue_id: i32 = |view| view.queue_id();
        /// Entry number in its queue.
        queue_offset: i64 = |view| view.queue_offset();
        /// Where the record begins in the whole commit log, as the record itself says.
        physical_offset: i64 = |view| view.physical_offset();
        /// The user's own number.
        flag: i32 = |view| view.flag();
        /// RocketMQ's bits (``MessageSysFlag``).
        sys_flag: i32 = |view| view.sys_flag();
        /// The producer's time.
        born_timestamp_ms: i64 = |view| view.born_timestamp_ms();
        /// The producer's address, ``"ip:port"`` or ``"[v6]:port"``.
        born_host: String = |view| view.born_host().to_string();
        /// The store's time.
        store_timestamp_ms: i64 = |view| view.store_timestamp_ms();
        /// The store's address, ``"ip:port"`` or ``"[v6]:port"``.
        store_host: String = |view| view.store_host().to_string();
        /// How often consumption was tried again.
        reconsume_times: i32 = |view| view.reconsume_times();
        /// Physical offset of the half message that a commit belongs to, else 0.
        prepared_transaction_offset: i64 = |view| view.prepared_transaction_offset();
        /// CRC-32 of ``raw_body`` as stored, with the top bit clear.
        body_crc: i32 = |view| view.body_crc();
        /// Property ``TAGS``, or ``None``.
        tags: Option<String> = |view| property(view, names::TAGS);
        /// Property ``UNIQ_KEY``, or ``None``.
        unique_key: Option<String> = |view| property(view, names::UNIQ_KEY);
        /// The store's id: its address and the physical offset in upper-case hex.
        ///
        /// ``MessageDecoder#createMessageId``.
        message_id: String = |view| view.message_id();
        /// The transaction type in ``sys_flag``.
        transaction: &'static str = |view| view.transaction().name();
        /// Property ``DELAY`` as a number, 0 where it is missing or not a number.
        delay_level: i32 = |view| number(view, names::DELAY).unwrap_or(0);
        /// Purpose of the topic, by its name.
        ///
        /// ``half``: hidden until its transaction is committed (``RMQ_SYS_TRANS_HALF_TOPIC``);
        /// ``transaction-op``: names half messages whose transactions have ended
        /// (``RMQ_SYS_TRANS_OP_HALF_TOPIC``); ``delayed``: waits for the time of its delay level
        /// (``SCHEDULE_TOPIC_XXXX``); ``timer``: waits for the timer (``rmq_sys_wheel_timer``);
        /// ``retry`` and ``dead-letter``: a group failed to consume it (``%RETRY%...``, ``%DLQ%...``).
        purpose: &'static str = |view| Purpose::of(view.topic()).name();
        /// Whether it is a half message, hidden until its transaction is committed.
        half: bool = |view| Purpose::of(view.topic()) == Purpose::Half;
        /// Destination topic of a message that waits in another one (property ``REAL_TOPIC``).
        real_topic: Option<String> = |view| property(view, names::REAL_TOPIC);
        /// Destination queue (property ``REAL_QID``); ``None`` if it is not a number.
        real_queue_id: Option<i32> = |view| number(view, names::REAL_QID);
        /// Lite topic of RocketMQ 5.5 (property ``__LITE_TOPIC``).
        ///
        /// Its queue is ``%LMQ%$parent$lite``; the message lies in its parent's topic.
        lite_topic: Option<String> = |view| property(view, LITE_TOPIC);
        /// Priority (property ``_SYS_MSG_PRIORITY_`` of RocketMQ 5.4).
        ///
        /// ``None`` if it is no number.
        priority: Option<i32> = |view| number(view, PRIORITY);
    }
}

/// Text as a `repr`, at most 64 characters.
fn short(py: Python<'_>, bytes: &[u8]) -> PyResult<String> {
    let whole = text(bytes);
    let start: String = whole.chars().take(64).collect();
    let dots = if start.len() < whole.len() { "..." } else { "" };
    Ok(format!("{}{dots}", PyString::new(py, &start).repr()?))
}

/// A body as a `repr`, at most 64 bytes.
pub(crate) fn shown_body(py: Python<'_>, body: &[u8]) -> PyResult<String> {
    match body.get(..SHOWN_BODY) {
        Some(start) if start.len() < body.len() => {
            Ok(format!("{}... of {} bytes", PyBytes::new(py, start).repr()?, body.len()))
        }
        _ => Ok(PyBytes::new(py, body).repr()?.to_string()),
    }
}

/// Reads one record.
///
/// Args:
///     buffer: Bytes that begin with a record; what follows it is not looked at.
///     verify_crc: Checks the body's checksum too.
///
/// Raises:
///     CorruptionError: Not a record, or a damaged one; ``path`` is ``None`` and ``offset`` counts
///         from the first byte given.
#[pyfunction]
#[pyo3(signature = (buffer, /, *, verify_crc=true))]
pub(crate) fn decode(
    buffer: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = fields::verify_crc)] verify_crc: bool,
) -> PyResult<StoredMessage> {
    let buffer = bytes_of("buffer", buffer)?;
    let bytes = buffer.as_bytes();
    match message::read_frame(bytes) {
        Ok(Frame::Message(view)) => {
            if verify_crc {
                buffer.py().detach(|| view.check_body_crc())?;
            }
            Ok(Box::<[u8]>::from(view.as_bytes()).into())
        }
        other => Err(no_record(other, bytes.len()).into()),
    }
}

#[pyfunction]
pub(crate) fn _stored_message(record: &Bound<'_, PyAny>) -> PyResult<StoredMessage> {
    let message = decode(record, false)?;
    let whole = bytes_of("record", record)?.as_bytes().len();
    if message.record.len() == whole {
        Ok(message)
    } else {
        let expected = format!("{} bytes", message.record.len());
        let error = FormatError::new(CorruptionKind::Length, 0, expected, format!("{whole}"));
        Err(Error::from(error).into())
    }
}

fn datetime(py: Python<'_>, ms: i64) -> PyResult<Option<Bound<'_, PyAny>>> {
    let utc = PyTzInfo::utc(py)?;
    let epoch = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc))?;
    let (Ok(days), Ok(rest)) =
        (i32::try_from(ms.div_euclid(DAY_MS)), i32::try_from(ms.rem_euclid(DAY_MS)))
    else {
        return Ok(None);
    };
    let since = PyDelta::new(py, days, rest / 1000, rest % 1000 * 1000, true);
    match since.and_then(|since| epoch.add(since)) {
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => Ok(None),
        found => found.map(Some),
    }
}
