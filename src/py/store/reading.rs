//! Reading: by offset, queue, time, key, and scans.

use std::time::{Duration, Instant};

use hashbrown::HashSet;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use crate::error::Result;
use crate::format::queue::consume_queue::TagFilter;
use crate::format::width::clamp_u64;
use crate::log::QueueKind;
use crate::store::read::scan::{OnDamage, ScanFilter};
use crate::store::{Boundary, KeyQuery, MessageStore};

use super::Store;
use super::fastcall::untracked;
use super::stored::StoredMessage;
use crate::py::arguments::{not_one_of, type_error};
use crate::py::fields;
use crate::py::process::{Signals, drop_aside};
use crate::py::values::{QueueInfo, getters, value_methods};

/// Interval between signal checks of a wait.
const WAIT_SLICE: Duration = Duration::from_millis(100);
/// Least time between two listings behind a URL while a reader waits.
const LISTED_EVERY: Duration = Duration::from_secs(1);

const SIGNALS_EVERY: usize = 16 << 10;

/// Result of a read of one queue (``GetMessageResult``).
#[pyclass(module = "mqstore", frozen, get_all)]
pub(crate) struct ReadResult {
    /// RocketMQ's status, such as ``GetStatus.FOUND``.
    status: Py<PyAny>,
    /// The messages, oldest first.
    messages: Py<PyTuple>,
    /// Where the next read should begin.
    next_queue_offset: i64,
    /// First entry that the queue still has.
    min_queue_offset: i64,
    /// One past the queue's last entry.
    max_queue_offset: i64,
}

#[pymethods]
impl ReadResult {
    #[new]
    fn __new__(
        status: &Bound<'_, PyAny>,
        messages: &Bound<'_, PyAny>,
        next_queue_offset: i64,
        min_queue_offset: i64,
        max_queue_offset: i64,
    ) -> PyResult<Self> {
        let py = status.py();
        let messages: Vec<Bound<'_, StoredMessage>> = messages
            .try_iter()?
            .map(|message| Ok(message?.cast_into()?))
            .collect::<PyResult<_>>()?;
        Ok(Self {
            status: get_status(py)?.call1((status,))?.unbind(),
            messages: PyTuple::new(py, messages)?.unbind(),
            next_queue_offset,
            min_queue_offset,
            max_queue_offset,
        })
    }
}

value_methods!(ReadResult {
    "status",
    "messages",
    "next_queue_offset",
    "min_queue_offset",
    "max_queue_offset",
});

fn get_status<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "mqstore.status", "GetStatus")
}

pub(crate) fn messages<'py>(
    py: Python<'py>,
    records: Vec<Box<[u8]>>,
) -> PyResult<Vec<Bound<'py, StoredMessage>>> {
    let mut messages = Vec::with_capacity(records.len());
    for record in records {
        messages.push(Bound::new(py, StoredMessage::from(record)).map(untracked)?);
        if messages.len() % SIGNALS_EVERY == 0 {
            py.check_signals()?;
        }
    }
    Ok(messages)
}

pub(crate) fn filter_of(tags: Option<&str>) -> TagFilter {
    if let Some(tags) = tags.filter(|tags| tags.contains("&&") || tags.contains(',')) {
        name_in_python("report_joined", (tags,));
    }
    tags.map_or(TagFilter::ALL, TagFilter::parse)
}

/// Warns of topics that a scan asks for and no queue of the store has.
pub(crate) fn name_missing(
    store: &MessageStore,
    filter: &ScanFilter,
    on_damage: OnDamage,
) -> PyResult<()> {
    // A scan that skips damage may search for what the queues lost.
    let (Some(topics), false) = (&filter.topics, on_damage == OnDamage::Skip) else {
        return Ok(());
    };
    let names = store.queue_names()?;
    let known: HashSet<_> = names.iter().map(|(topic, _)| &**topic).collect();
    let text = |topic: &[u8]| String::from_utf8_lossy(topic).into_owned();
    let missing = topics.iter().filter(|topic| !known.contains(&***topic));
    let missing: Vec<_> = missing.map(|topic| text(topic)).collect();
    if !missing.is_empty() {
        let known: Vec<_> = known.into_iter().map(text).collect();
        name_in_python("report_topics", (store.path().as_os_str(), missing, known));
    }
    Ok(())
}

/// Calls a function of `mqstore._names` that logs a warning.
fn name_in_python(name: &str, arguments: impl for<'py> PyCallArgs<'py>) {
    Python::attach(|py| {
        let called = py.import("mqstore._names");
        let called = called.and_then(|names| names.getattr(name)?.call1(arguments));
        if let Err(error) = called {
            error.write_unraisable(py, None);
        }
    });
}

pub(crate) fn scan_filter(
    topics: Option<&Bound<'_, PyAny>>,
    tags: Option<&str>,
    begin_ms: Option<i64>,
    end_ms: Option<i64>,
) -> PyResult<ScanFilter> {
    let names_of = |topics| {
        let mut names = HashSet::new();
        fields::each_text("topics", topics, |topic| {
            names.insert(Box::from(topic.as_bytes()));
            Ok(())
        })?;
        PyResult::Ok(names)
    };
    Ok(ScanFilter {
        topics: topics.map(names_of).transpose()?,
        tags: filter_of(tags),
        begin_ms: begin_ms.unwrap_or(i64::MIN),
        end_ms: end_ms.unwrap_or(i64::MAX),
        more: None,
    })
}

pub(crate) fn on_damage(on_error: &str) -> PyResult<OnDamage> {
    damage_named(["raise", "skip", "report"], on_error)
}

pub(crate) fn damage_named(names: [&str; 3], on_error: &str) -> PyResult<OnDamage> {
    let kinds = [OnDamage::Fail, OnDamage::Skip, OnDamage::Report];
    let named = names.into_iter().zip(kinds).find(|(name, _)| *name == on_error);
    named.map(|(_, kind)| kind).ok_or_else(|| not_one_of("on_error", &names.join(", "), on_error))
}

/// A bound of the log, at least its beginning.
pub(crate) fn bound(offset: Option<i64>, otherwise: u64) -> u64 {
    offset.map_or(otherwise, clamp_u64)
}

#[pymethods]
impl Store {
    /// Returns the message that begins at a physical offset.
    ///
    /// Raises:
    ///     OffsetOutOfRangeError: The log ends before it, or begins after it.
    ///     MessageNotFoundError: No record begins there.
    ///     CorruptionError: The record there is damaged.
    #[pyo3(signature = (physical_offset, /))]
    fn get(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::any_physical_offset)] physical_offset: i64,
    ) -> PyResult<StoredMessage> {
        let store = self.reading()?;
        Ok(py.detach(|| store.get(physical_offset))?.into())
    }

    /// The message with an id.
    ///
    /// Args:
    ///     message_id: A store's id (32 or 56 hex digits), whose address must be the record's own
    ///         (clients call it ``offsetMsgId``), or a client's (``msgId``), which is the unique
    ///         key. The newest message of a unique key is returned.
    ///
    /// Raises:
    ///     MessageNotFoundError: No message of this store has the id as either.
    ///     CorruptionError: The record is there, and damaged.
    #[pyo3(signature = (message_id, /))]
    fn get_by_id(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::message_id)] message_id: &str,
    ) -> PyResult<StoredMessage> {
        let store = self.reading()?;
        Ok(py.detach(|| store.get_by_any_id(message_id))?.into())
    }

    /// Reads one queue from an entry on (``DefaultMessageStore#getMessage``).
    ///
    /// An unknown topic or queue, an empty queue, and an offset out of range are no errors: see
    /// ``status``.
    ///
    /// Args:
    ///     topic: Name of the topic.
    ///     queue_id: Number of the queue in its topic.
    ///     queue_offset: The entry to begin at.
    ///     max_messages: Maximum number of messages. The first one is always returned, even for 0,
    ///         as in RocketMQ.
    ///     max_bytes: Maximum bytes of records; the first record is always returned.
    ///     tags: A tag expression, ``"paid || refunded"``; ``None``, ``""`` and ``"*"`` are all.
    ///         The queue entry's hash selects candidates, the message's text decides. Each
    ///         entry's hash is verified once per opened store, and again if the entry changes.
    ///
    /// Each entry is compared with its record's topic, queue and queue offset. A
    /// message whose entry leads elsewhere is taken from the log.
    ///
    /// Raises:
    ///     NotDispatchedError: Too much of the log is not dispatched yet.
    ///     CorruptionError: The first message's body does not match its checksum, or its entry is
    ///         damaged and the log is damaged where the message should be. If valid messages
    ///         precede it, they are returned and the next read raises. To skip the message, read
    ///         from the next queue offset.
    ///     InvalidMessageError: A topic that is no text in UTF-8, a queue beyond 32 bits.
    ///     ValueError: ``max_messages`` or ``max_bytes`` below 0.
    #[pyo3(
        signature = (
            topic, queue_id, queue_offset, *, max_messages=32, max_bytes=None, tags=None, **others
        ),
        text_signature = "($self, topic, queue_id, queue_offset, *, max_messages=32, \
            max_bytes=None, tags=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of Python's")]
    fn read(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::topic)] topic: PyBackedStr,
        #[pyo3(from_py_with = fields::queue_id)] queue_id: i32,
        #[pyo3(from_py_with = fields::queue_offset)] queue_offset: i64,
        #[pyo3(from_py_with = fields::max_messages)] max_messages: usize,
        #[pyo3(from_py_with = fields::max_bytes)] max_bytes: Option<u64>,
        #[pyo3(from_py_with = fields::tags)] tags: Option<PyBackedStr>,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<ReadResult> {
        fields::no_others("Store.read", others)?;
        let store = self.reading()?;
        let filter = filter_of(tags.as_deref());
        let signals = Signals::new();
        let halt = signals.halt();
        let answer = py.detach(|| {
            let topic = topic.as_bytes();
            let (from, most) = (queue_offset, max_messages);
            store.read_halting(topic, queue_id, from, most, max_bytes, &filter, &halt)
        })?;
        if let Some(raised) = signals.take() {
            drop_aside(answer.records);
            return Err(raised);
        }
        Ok(ReadResult {
            status: get_status(py)?.getattr(answer.status.name())?.unbind(),
            messages: PyTuple::new(py, messages(py, answer.records)?)?.unbind(),
            next_queue_offset: answer.next_queue_offset,
            min_queue_offset: answer.min_queue_offset,
            max_queue_offset: answer.max_queue_offset,
        })
    }

    /// The queue offset at a time (``ConsumeQueue#getOffsetInQueueByTime``).
    ///
    /// Args:
    ///     topic: Name of the topic.
    ///     queue_id: Number of the queue in its topic.
    ///     timestamp_ms: Store time, in milliseconds or as a ``datetime`` with a time zone.
    ///     boundary: ``"lower"``: the first entry whose store time is not below ``timestamp_ms``,
    ///         the end of the queue where there is none. ``"upper"``: the last entry whose store
    ///         time is not above it, the beginning of the queue where there is none. Store times
    ///         rise along a queue; one more than an hour outside of both neighbours' leads nowhere.
    ///
    /// Returns:
    ///     The entry number; 0 for an unknown or empty queue.
    ///
    /// Raises:
    ///     NotDispatchedError: More of the log than a reader keeps is in no queue yet.
    #[pyo3(signature = (topic, queue_id, timestamp_ms, *, boundary="lower"))]
    fn offset_at(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::topic)] topic: PyBackedStr,
        #[pyo3(from_py_with = fields::queue_id)] queue_id: i32,
        #[pyo3(from_py_with = fields::timestamp_ms)] timestamp_ms: i64,
        #[pyo3(from_py_with = fields::boundary)] boundary: &str,
    ) -> PyResult<i64> {
        let boundary = match boundary {
            "lower" => Boundary::Lower,
            "upper" => Boundary::Upper,
            other => return Err(not_one_of("boundary", "lower, upper", other)),
        };
        let store = self.reading()?;
        Ok(py.detach(|| store.offset_at(topic.as_bytes(), queue_id, timestamp_ms, boundary))?)
    }

    /// Messages by key or tags, through the index (``DefaultMessageStore#queryMessage``).
    ///
    /// Args:
    ///     topic: Name of the topic; ``None`` is every topic that has a queue or
    ///         is in ``topics.json``.
    ///     key: One key of ``KEYS``, or ``UNIQ_KEY``. Give either this or ``tags``.
    ///     tags: The whole text of ``TAGS``, as RocketMQ 5.4 and later index it: ``"a"`` does not
    ///         find ``"a || b"``.
    ///     begin_ms: First store time that counts, in milliseconds or as a ``datetime`` with a time
    ///         zone; ``None`` is no bound.
    ///     end_ms: Last store time that counts; ``None`` is no bound.
    ///     max_messages: Maximum number of messages.
    ///     exact: ``True``: newest first, each message once; topic, key and store time are checked,
    ///         and messages that the index lacks are found too. ``False``: the answer of RocketMQ's
    ///         ``queryMessage`` (at most 64, by hash alone), in its order.
    ///
    /// Index entries are compared with their messages, slots and links with neighbouring entries.
    /// If one is wrong, that file's part of the log is read instead; ``complete`` is ``False`` if
    /// it could not all be read. A query by tags always reads
    /// the log, up to 1 GiB: no index file proves that it has all entries for tags. If ``complete``
    /// is ``False``, ``scan(topics=..., on_error="skip")`` reads the whole log; compare ``tags``.
    ///
    /// Raises:
    ///     TypeError: Neither a key nor tags, or both; ``exact=False`` without a topic.
    ///     ValueError: A time in seconds.
    ///     CorruptionError: The body of a message of the key is not the one that was stored, or an
    ///         index file was cut short.
    #[pyo3(
        signature = (
            topic=None, key=None, *, tags=None, begin_ms=None, end_ms=None, max_messages=32,
            exact=true, **others
        ),
        text_signature = "($self, topic=None, key=None, *, tags=None, begin_ms=None, end_ms=None, \
            max_messages=32, exact=True)"
    )]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of Python's")]
    fn query<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = fields::topic_if_given)] topic: Option<PyBackedStr>,
        #[pyo3(from_py_with = fields::key_if_given)] key: Option<PyBackedStr>,
        #[pyo3(from_py_with = fields::tags)] tags: Option<PyBackedStr>,
        #[pyo3(from_py_with = fields::begin_ms)] begin_ms: Option<i64>,
        #[pyo3(from_py_with = fields::end_ms)] end_ms: Option<i64>,
        #[pyo3(from_py_with = fields::max_messages)] max_messages: usize,
        #[pyo3(from_py_with = fields::exact)] exact: bool,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        fields::no_others("Store.query", others)?;
        let store = self.reading()?;
        let (by_tags, text) = match (&key, &tags) {
            (Some(key), None) => (false, key),
            (None, Some(tags)) => (true, tags),
            (None, None) => return Err(type_error("key, tags", "one of them", "none")),
            (Some(_), Some(_)) => return Err(type_error("key, tags", "one of them", "both")),
        };
        if topic.is_none() && !exact {
            return Err(type_error("topic", "str beside exact=False", "None"));
        }
        let query = KeyQuery {
            topic: topic.as_ref().map_or(&[], |topic| topic.as_bytes()),
            key: text.as_bytes(),
            // RocketMQ's callers begin at 0.
            begin_ms: begin_ms.unwrap_or(if exact { i64::MIN } else { 0 }),
            end_ms: end_ms.unwrap_or(i64::MAX),
            max_messages,
            exact,
        };
        let answer = py.detach(|| match (&topic, by_tags) {
            (None, _) => store.query_topics(&query, by_tags),
            (Some(_), true) => store.query_tags(&query),
            (Some(_), false) => store.query(&query),
        })?;
        let unread: Vec<_> = answer.unread.iter().map(|part| (part.start, part.end)).collect();
        CLASS.import(py, "mqstore.results", "QueryResult")?.call1((
            PyList::new(py, messages(py, answer.records)?)?,
            answer.truncated,
            answer.rejected_by_hash,
            answer.rejected_by_time,
            answer.complete,
            unread,
        ))
    }

    /// Names of all topics that have a queue or a message, sorted.
    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let store = self.reading()?;
        let names = py.detach(|| store.queue_names())?;
        let mut topics: Vec<_> =
            names.iter().map(|(topic, _)| String::from_utf8_lossy(topic).into_owned()).collect();
        topics.dedup();
        Ok(topics)
    }

    /// The queues of one topic or of all, sorted by topic and number.
    #[pyo3(signature = (topic=None))]
    fn queues(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::topic_if_given)] topic: Option<PyBackedStr>,
    ) -> PyResult<Vec<QueueInfo>> {
        let store = self.reading()?;
        Ok(py.detach(|| {
            if topic.is_none() {
                store.read_ends()?;
            }
            let names = store.queue_names()?;
            let wanted = |name: &[u8]| topic.as_ref().is_none_or(|topic| topic.as_bytes() == name);
            names
                .iter()
                .filter(|(name, _)| wanted(name))
                .map(|(name, queue_id)| queue_info(&store, name, *queue_id))
                .collect::<Result<Vec<_>>>()
        })?)
    }

    /// Updates a read-only view to the current files; no effect in other modes.
    ///
    /// Raises:
    ///     StoreIOError: The files can no longer be read.
    ///     OffsetOutOfRangeError: Another log lies there now, such as a restored copy that has
    ///         grown past the view's end. The view stays; open the store again.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.reading()?;
        match &self.remote {
            Some(listings) => listings.refresh(py, Duration::ZERO),
            None => Ok(py.detach(|| store.refresh())?),
        }
    }

    fn _refresh_if_grown(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.reading()?;
        match &self.remote {
            Some(listings) => listings.refresh(py, LISTED_EVERY),
            None => Ok(py.detach(|| store.refresh_if_grown())?),
        }
    }

    fn _forget_log(&self) -> PyResult<()> {
        self.reading()?.forget_log();
        Ok(())
    }

    /// Waits until the log is longer than a physical offset.
    ///
    /// Args:
    ///     physical_offset: Waits for ``max_physical_offset`` to be greater than this. A read-only
    ///         store is refreshed meanwhile; it sets ``mqstore.wait`` for the writer to wake it.
    ///     timeout_s: Timeout in seconds, or a ``timedelta``.
    ///
    /// Returns:
    ///     Whether the log got there in time; ``False`` at once where it was cut meanwhile.
    ///
    /// Raises:
    ///     OffsetOutOfRangeError: As for ``refresh``.
    #[pyo3(signature = (physical_offset, /, *, timeout_s))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::any_physical_offset)] physical_offset: i64,
        #[pyo3(from_py_with = fields::timeout_s)] timeout_s: f64,
    ) -> PyResult<bool> {
        let mut store = self.reading()?;
        let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX);
        let deadline = Instant::now().checked_add(timeout);
        let left = || deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let began = store.log().end_offset();
        loop {
            if self.remote.is_some() {
                self._refresh_if_grown(py)?;
                store = self.reading()?;
            }
            let slice = left().unwrap_or(WAIT_SLICE).min(WAIT_SLICE);
            // A negative offset lies before every log.
            let at = u64::try_from(physical_offset);
            let reached = py.detach(|| match at {
                Ok(at) => store.wait(at, slice),
                Err(_) => store.refresh().map(|()| true),
            })?;
            if reached || left() == Some(Duration::ZERO) || store.log().end_offset() < began {
                return Ok(reached);
            }
            py.check_signals()?;
        }
    }

    /// Physical offset up to which the log is known to be durable.
    ///
    /// For a read-only store: the end of the log if the file ``abort`` does not exist, else the
    /// durable mark. If RocketMQ has written since, the end of the last record older than the
    /// checkpoint's time.
    #[getter]
    fn flushed_offset(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.reading()?;
        Ok(py.detach(|| store.flushed_offset())?)
    }

    /// Physical offset up to which the log is dispatched to queues and index.
    #[getter]
    fn dispatched_offset(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.open_store()?;
        Ok(py.detach(|| store.dispatched_offset())?)
    }
}

getters! {
    Store, this => &*this.open_store()?, {
        /// First physical offset of the log; 0 in an empty store.
        min_physical_offset: u64 = |store| store.log().min_offset();
        /// End of the log; for a read-only store, of its view.
        max_physical_offset: u64 = |store| store.log().end_offset();
        _readable_end: u64 = MessageStore::end_offset;
        /// Whether the index files fit the settings and can be used for key queries.
        index_usable: bool = MessageStore::index_is_usable;
    }
}

fn queue_info(store: &MessageStore, topic: &[u8], queue_id: i32) -> Result<QueueInfo> {
    let view = store.queue(topic, queue_id)?;
    let (min_offset, max_offset) =
        view.as_ref().map_or((0, 0), |view| (view.min_offset, view.max_offset));
    let (mut first, mut last) = (None, None);
    if min_offset < max_offset {
        first = store.stored_at(topic, queue_id, min_offset)?;
        last = store.stored_at(topic, queue_id, max_offset - 1)?;
    }
    Ok(QueueInfo {
        topic: String::from_utf8_lossy(topic).into_owned(),
        queue_id,
        min_offset,
        max_offset,
        kind: view.map_or(QueueKind::Plain, |view| view.kind).name().to_owned(),
        first_store_timestamp_ms: first,
        last_store_timestamp_ms: last,
    })
}
