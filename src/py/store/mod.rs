//! The store: opening, writing and its state.

pub(crate) mod append_arrow;
pub(crate) mod documents;
pub(crate) mod group;
pub(crate) mod message;
pub(crate) mod message_scan;
pub(crate) mod notices;
pub(crate) mod purpose;
pub(crate) mod reading;
pub(crate) mod stored;
pub(crate) mod versions;

use parking_lot::Mutex;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyType};
use serde_json::Value;

use crate::config::{DeleteRules, StoreConfig};
use crate::error::Error;
use crate::format::message::host::Host;
use crate::log::index::query::{OtherIndex, OtherOffsets, OtherQuery};
use crate::store::folder::remembered;
use crate::store::write::property_block::check_inner_batch;
use crate::store::{MessageStore, NewMessage, OpenMode};

use self::message::{Message, as_message, checked};
use self::stored::StoredMessage;
use super::errors::{StoreClosedError, raise};
use super::fields::{self, Block, Named, bytes_of, expected, host_of, with_block};
use super::fork;

use super::care::upkeep::recovery_report;
use super::values::{AppendResult, AppendSummary};

/// Messages, and bytes of bodies, that are checked before any is written, and written between
/// signal checks. The last body may exceed it.
pub(super) const CHUNK: usize = 1024;
pub(super) const CHUNK_BYTES: usize = 4 << 20;
/// Interval of signal checks while appends wait for queue files.
pub(super) const PACE: Duration = Duration::from_millis(50);

/// A message store; made by ``mqstore.open``.
///
/// Any number of threads may use one store. It is a context manager, and leaving the block closes
/// it, with an exception too: what was appended is kept. After ``close`` every method raises
/// ``StoreClosedError``; the properties ``path``, ``mode``, ``config`` and ``recovery`` stay
/// readable. A scan ends where the log ended when it was asked for, whatever is appended meanwhile.
///
/// A handle that crossed a ``fork`` still reads in the child, and raises ``StoreClosedError`` where
/// it would write. It does not pickle: hand on the path, and open the store there.
#[pyclass(module = "mqstore", frozen, weakref)]
pub(crate) struct Store {
    store: Arc<MessageStore>,
    pub(super) path: PathBuf,
    mode: &'static str,
    /// Settings as given at open.
    settings: Py<PyDict>,
    aside: Option<PathBuf>,
    generation: u64,
    /// A forked child's own read-only store.
    reopened: Mutex<Option<(u64, Arc<MessageStore>)>>,
    /// Stopped before the store closes.
    delivery: Mutex<Option<Py<PyAny>>>,
}

impl Store {
    /// The store for writing; fails in a forked child.
    #[inline]
    pub(super) fn writing(&self) -> PyResult<&Arc<MessageStore>> {
        refuse_after_fork(self.generation)?;
        notices::log_new(&self.store);
        Ok(&self.store)
    }

    /// The store for reading; a forked child opens its own.
    #[inline]
    pub(super) fn reading(&self) -> PyResult<Arc<MessageStore>> {
        if fork::generation() == self.generation {
            notices::log_new(&self.store);
            return Ok(Arc::clone(&self.store));
        }
        self.reopen()
    }

    #[cold]
    fn reopen(&self) -> PyResult<Arc<MessageStore>> {
        if self.store.is_closed() {
            return Err(Error::Closed.into());
        }
        let generation = fork::generation();
        let mut reopened = self.reopened.lock();
        if let Some((known, store)) = &*reopened
            && *known == generation
        {
            return Ok(Arc::clone(store));
        }
        let config = self.store.config().clone();
        let store = Arc::new(open(&self.path, OpenMode::Read, config, self.aside.as_deref())?);
        *reopened = Some((generation, Arc::clone(&store)));
        Ok(store)
    }

    fn host(&self) -> Host {
        self.store.config().store_host
    }
}

#[inline]
pub(super) fn refuse_after_fork(generation: u64) -> PyResult<()> {
    if fork::generation() == generation { Ok(()) } else { Err(forked()) }
}

#[cold]
fn forked() -> PyErr {
    StoreClosedError::new_err((
        "the store was opened before this process was forked off: open it again here to write",
    ))
}

/// Opens a store; ``mqstore.open`` is the public door to this.
///
/// Args:
///     path: The store's root folder.
///     mode: ``"r"``, ``"r+"`` or ``"a"``.
///     settings: Explicit settings, by the field names of ``mqstore.StoreConfig``, each ``bool``,
///         ``int`` or ``str``. Missing ones come from the existing files, else from the settings
///         that the store was created with, else from RocketMQ's defaults. Unknown names are
///         ignored.
///     aside: For mode ``"r"``: a folder with ``consumequeue`` and ``config``, made from a
///         database. Its queues are read where the store has no files of them, its tables instead
///         of the store's.
///     other_index: Called for a query where the store has no index files, with topic, key or
///         tags, whether it is tags, the first and last store time, and the begin and end of the
///         log; gives physical offsets and the offset from which on it has none, or ``None`` where
///         the log is to be read.
///
/// Raises:
///     NotAStoreError: No such folder, or no store in it (modes ``"r"`` and ``"r+"``).
///     ConfigError: An invalid setting, or one that contradicts the files.
///     StoreLockedError: Another process, or another handle of this one, writes to it.
///     CorruptionError: Damage in the flushed part of the log (modes ``"r+"`` and ``"a"``).
///     StoreIOError: The operating system refused something.
///     ValueError: No such mode.
#[pyfunction]
#[pyo3(signature = (path, mode, settings, /, aside=None, other_index=None))]
pub(super) fn open_store(
    py: Python<'_>,
    path: PathBuf,
    mode: &str,
    settings: &Bound<'_, PyAny>,
    aside: Option<PathBuf>,
    other_index: Option<Py<PyAny>>,
) -> PyResult<Store> {
    let (open_mode, mode) = match mode {
        "r" => (OpenMode::Read, "r"),
        "r+" => (OpenMode::ReadWrite, "r+"),
        "a" => (OpenMode::Create, "a"),
        _ => {
            let shown: String = mode.chars().take(64).collect();
            return Err(PyValueError::new_err(format!("mode is r, r+ or a, not {shown:?}")));
        }
    };
    let given = PyDict::new(py);
    given.update(settings.cast()?)?;
    let config = fields::config_of(&given)?;
    if path.as_os_str().is_empty() {
        let reason = "the path is empty".to_owned();
        return Err(Error::NotAStore { path, reason }.into());
    }
    // The working folder may change later.
    let path = std::path::absolute(&path).map_err(Error::io("find", &path))?;
    let mut store = py.detach(|| open(&path, open_mode, config, aside.as_deref()))?;
    if let Some(other) = other_index {
        store = store.with_other_index(Box::new(AskedInPython(other)));
    }
    Ok(Store {
        store: Arc::new(store),
        path,
        mode,
        settings: given.unbind(),
        aside,
        generation: fork::generation(),
        reopened: Mutex::default(),
        delivery: Mutex::default(),
    })
}

#[cold]
fn append_delayed(
    store: &Bound<'_, Store>,
    delay: &Bound<'_, PyAny>,
    given: &Bound<'_, PyDict>,
) -> PyResult<AppendResult> {
    let module = store.py().import("mqstore.consuming.delays")?;
    let result = module.call_method1("append_delayed", (store, delay, given))?;
    Ok(result.cast_into::<AppendResult>()?.get().clone())
}

/// An index that Python asks.
#[derive(Debug)]
struct AskedInPython(Py<PyAny>);

impl OtherIndex for AskedInPython {
    fn ask(&self, query: &OtherQuery<'_>) -> Option<OtherOffsets> {
        let OtherQuery { topic, text, is_tags, span, log } = *query;
        let arguments = (topic, text, is_tags, span, log);
        Python::attach(|py| {
            let answer = self.0.call1(py, arguments).and_then(|answer| answer.extract(py));
            let answer: Option<(Vec<u64>, u64)> = answer.unwrap_or_else(|error: PyErr| {
                error.write_unraisable(py, None);
                None
            });
            answer.map(|(offsets, until)| OtherOffsets { offsets, until })
        })
    }
}

fn open(
    path: &Path,
    mode: OpenMode,
    config: StoreConfig,
    aside: Option<&Path>,
) -> crate::error::Result<MessageStore> {
    match aside {
        Some(aside) => MessageStore::open_beside(path, config, aside),
        None => MessageStore::open(path, mode, config),
    }
}

#[pymethods]
impl Store {
    /// Writes one message.
    ///
    /// Returns when the message is durable under ``SYNC_FLUSH``, and when it is in the log under
    /// ``ASYNC_FLUSH``. A read that follows in the same process sees it. The first append to a
    /// topic also enters it in ``config/topics.json``.
    ///
    /// Args:
    ///     topic: Name of the topic.
    ///     body: The body, stored unchanged.
    ///     queue_id: Number of the queue in its topic, from 0.
    ///     tags: The one tag of the message.
    ///     keys: One key, or an iterable of keys.
    ///     unique_key: The client's id of the message.
    ///     properties: Further properties; see ``Message``.
    ///     flag: An application-defined number.
    ///     born_timestamp_ms: The producer's time; ``None`` is now.
    ///     born_host: The producer's address; ``None`` is the store's own.
    ///     delay_level: Stored as property ``DELAY`` unless 0; the message is not delayed.
    ///     delay: Keeps the message back for so long: a ``timedelta``, or seconds, of the store's
    ///         delay levels (``message_delay_level``). It waits in ``SCHEDULE_TOPIC_XXXX``, where
    ///         the result leads, until a broker or a writer with ``delivery=True`` delivers it.
    ///
    /// Raises:
    ///     InvalidMessageError: The message cannot be stored; ``.status`` is RocketMQ's status
    ///         for the reason. Nothing was written.
    ///     ConfigError: ``delay`` in a store opened without ``delivery=True``; nothing was written.
    ///     ValueError: ``delay`` is none of the delay levels; nothing was written.
    ///     FlushTimeoutError: It is stored, but was not flushed in ``sync_flush_timeout``;
    ///         ``.result`` says where.
    ///     StorePoisonedError: A flush failed, now or before; the store is read-only until opened
    ///         again.
    ///     StoreReadOnlyError: The store was opened with mode ``"r"``.
    ///     StoreIOError: The disk is full, or a system call failed.
    #[pyo3(
        signature = (
            topic, body, *, queue_id=0, tags=None, keys=None, unique_key=None, properties=None,
            flag=0, born_timestamp_ms=None, born_host=None, delay_level=0, delay=None
        ),
        text_signature = "($self, topic, body, *, queue_id=0, tags=None, keys=(), \
            unique_key=None, properties=None, flag=0, born_timestamp_ms=None, born_host=None, \
            delay_level=0, delay=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "a message has as many fields")]
    fn append(
        slf: &Bound<'_, Self>,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::topic)] topic: PyBackedStr,
        body: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = fields::queue_id)] queue_id: i32,
        #[pyo3(from_py_with = fields::tags)] tags: Option<PyBackedStr>,
        keys: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = fields::unique_key)] unique_key: Option<PyBackedStr>,
        properties: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = fields::flag)] flag: i32,
        #[pyo3(from_py_with = fields::born_timestamp_ms)] born_timestamp_ms: Option<i64>,
        born_host: Option<&str>,
        #[pyo3(from_py_with = fields::delay_level)] delay_level: i32,
        delay: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<AppendResult> {
        let this = slf.get();
        let store = this.writing()?;
        if let Some(delay) = delay {
            let given = PyDict::new(py);
            given.set_item("topic", &topic)?;
            given.set_item("body", body)?;
            given.set_item("queue_id", queue_id)?;
            given.set_item("tags", tags)?;
            given.set_item("keys", keys)?;
            given.set_item("unique_key", unique_key)?;
            given.set_item("properties", properties)?;
            given.set_item("flag", flag)?;
            given.set_item("born_timestamp_ms", born_timestamp_ms)?;
            given.set_item("born_host", born_host)?;
            given.set_item("delay_level", delay_level)?;
            return append_delayed(slf, delay, &given);
        }
        let body = bytes_of("body", body)?;
        let born_host = host_of("born_host", born_host)?;
        let (tags, unique_key) = (tags.as_deref(), unique_key.as_deref());
        let named = Named { tags, keys, unique_key, delay_level, properties };
        with_block(|block| {
            let properties = match named.to_block(block)? {
                Block::Whole(whole) => whole.as_bytes(),
                Block::Written { counts_inner_messages } => {
                    check_inner_batch(counts_inner_messages, 0)?;
                    block.as_slice()
                }
            };
            let message = NewMessage {
                queue_id,
                properties,
                flag,
                born_timestamp_ms,
                born_host,
                ..NewMessage::new(topic.as_bytes(), body.as_bytes())
            };
            pace(py, store, std::slice::from_ref(&message))?;
            match py.detach(|| store.append(&message)) {
                Ok(result) => Ok(AppendResult::new(&result, this.host())),
                Err(error) => Err(raise(error, this.host())),
            }
        })
    }

    /// Writes many messages, sharing flushes.
    ///
    /// Args:
    ///     messages: Messages, or mappings by the argument names of ``Message``. They are
    ///         taken in chunks of at most 1,024 messages or 4 MiB of bodies, and a chunk is
    ///         checked before any of it is written; a crash may keep a part of a chunk.
    ///     summary: Return an ``AppendSummary`` instead of an object for each message.
    ///
    /// Returns:
    ///     One result for each message, in order.
    ///
    /// Raises:
    ///     StoreError: As for ``append``; ``.index`` is the index of the failed message, and
    ///         ``.results`` has the results of the messages written before it.
    ///     TypeError: An item is not a message. This error, and any that ``messages`` raises, has
    ///         ``.index`` and ``.results`` too. Nothing of its chunk was written.
    ///     KeyboardInterrupt: Ctrl-C, between two chunks; ``.results`` has the results so far, and
    ///         ``.index`` is the index of the first message not written.
    #[pyo3(signature = (messages, /, *, summary=false))]
    fn append_many<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
        summary: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let store = self.writing()?;
        let mut sum = AppendSummary::before(store.log().end_offset());
        let results = PyList::empty(py);
        let culprit = |error: PyErr, results: &Bound<'py, PyList>, index: usize| {
            let value = error.value(py);
            // An exception that takes no attribute is raised unchanged.
            let _ = value.setattr("results", results).and_then(|()| value.setattr("index", index));
            error
        };
        let wanted = "an iterable of messages";
        let mut rest = messages
            .try_iter()
            .map_err(|error| fields::wrong_type("messages", wanted, messages, error))?;
        loop {
            let done = sum.len();
            let (mut chunk, mut bytes, mut more) = (Vec::new(), 0, false);
            for message in rest.by_ref() {
                match message.and_then(as_message).and_then(checked) {
                    Ok(message) => {
                        bytes += message.get().view().body.len();
                        chunk.push(message);
                    }
                    Err(error) => {
                        let index = done + chunk.len();
                        return Err(culprit(error, &results, index));
                    }
                }
                more = chunk.len() >= CHUNK || bytes >= CHUNK_BYTES;
                if more {
                    break;
                }
            }
            let views: Vec<_> = chunk.iter().map(|message| message.get().view()).collect();
            pace(py, store, &views).map_err(|error| culprit(error, &results, results.len()))?;
            let (written, failure) = match py.detach(|| store.append_many(&views)) {
                Ok(written) => (written, None),
                Err(stopped) => {
                    let index = done + stopped.index;
                    (stopped.results, Some((stopped.error, index)))
                }
            };
            written.iter().for_each(|result| sum.add(result));
            for (result, view) in written.iter().zip(&views).filter(|_| !summary) {
                let host = view.store_host.unwrap_or_else(|| self.host());
                results.append(Bound::new(py, AppendResult::new(result, host))?)?;
            }
            if let Some((error, index)) = failure {
                return Err(culprit(raise(error, self.host()), &results, index));
            }
            py.check_signals().map_err(|error| culprit(error, &results, sum.len()))?;
            if !more {
                return match summary {
                    true => Ok(Bound::new(py, sum)?.into_any()),
                    false => Ok(results.into_any()),
                };
            }
        }
    }

    /// Writes the messages of one queue as a producer's batch: all of them or none.
    ///
    /// They get consecutive queue offsets and one store time, and are adjacent in one file of the
    /// commit log. Each is stored as a separate message.
    ///
    /// Args:
    ///     messages: Messages, or mappings by the argument names of ``Message``, all of one
    ///         topic and queue, without a delay level and outside of transactions.
    ///
    /// Returns:
    ///     One result for each message, in order.
    ///
    /// Raises:
    ///     InvalidMessageError: An invalid message, different queues, or a batch larger than a file
    ///         or ``max_message_size``; nothing was written.
    ///     StoreError: As ``append`` raises it.
    #[pyo3(signature = (messages, /))]
    fn append_batch<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let store = self.writing()?;
        let batch: Vec<_> = messages
            .try_iter()?
            .map(|message| message.and_then(as_message).and_then(checked))
            .collect::<PyResult<_>>()?;
        let views: Vec<_> = batch.iter().map(|message| message.get().view()).collect();
        let written =
            py.detach(|| store.append_batch(&views)).map_err(|error| raise(error, self.host()))?;
        let results = PyList::empty(py);
        for (result, view) in written.iter().zip(&views) {
            let host = view.store_host.unwrap_or_else(|| self.host());
            results.append(Bound::new(py, AppendResult::new(result, host))?)?;
        }
        Ok(results)
    }

    /// Makes everything appended so far durable: log, queues, index, checkpoint.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.writing()?;
        Ok(py.detach(|| store.flush())?)
    }

    /// Waits until the queues and the index hold everything appended so far.
    fn wait_dispatched(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.writing()?;
        Ok(py.detach(|| store.wait_dispatched())?)
    }

    /// Flushes, stops the threads and releases the lock; a second call does nothing.
    ///
    /// Raises:
    ///     StorePoisonedError: A flush failed: ``abort`` stays, and the next open recovers.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let store = &self.store;
        let delivery = self.delivery.lock().take();
        if let Some(delivery) = delivery.filter(|_| !store.is_of_parent()) {
            delivery.call_method0(py, "stop")?;
        }
        let closed = py.detach(|| {
            if let Some((_, reopened)) = self.reopened.lock().take() {
                reopened.close()?;
            }
            store.close()
        });
        if !store.is_of_parent() {
            notices::log_new(store);
        }
        Ok(closed?)
    }

    /// Keeps the delivery of delayed messages, to be stopped by ``close``.
    fn _keep_delivery(&self, delivery: Py<PyAny>) {
        *self.delivery.lock() = Some(delivery);
    }

    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        if slf.get().store.is_closed() { Err(Error::Closed.into()) } else { Ok(slf.clone_ref(py)) }
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (exc_type, exc_value, traceback);
        self.close(py)
    }

    /// The store's root folder, absolute.
    #[getter]
    fn path(&self) -> OsString {
        self.path.clone().into_os_string()
    }

    /// How it was opened.
    #[getter]
    fn mode(&self) -> &'static str {
        self.mode
    }

    /// The settings in use: explicit ones, those of the files, and defaults.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let defaults = py.import("mqstore._settings")?.getattr("DEFAULTS")?;
        let settings = defaults.call_method0("copy")?.cast_into::<PyDict>()?;
        settings.update(self.settings.bind(py).as_mapping())?;
        let config = self.store.config();
        if let DeleteRules::Keep { .. } = config.delete_rules() {
            // The limits replace the default rules.
            settings.set_item("retention", py.None())?;
        }
        for (name, value) in remembered::values(config) {
            match value {
                Value::Bool(flag) => settings.set_item(name, flag)?,
                Value::Number(number) => settings.set_item(name, number.as_u64())?,
                Value::String(text) => settings.set_item(name, text)?,
                Value::Null | Value::Array(_) | Value::Object(_) => {}
            }
        }
        CLASS.import(py, "mqstore.config", "StoreConfig")?.call((), Some(&settings))
    }

    /// Result of opening for writing; ``None`` in mode ``"r"``.
    #[getter]
    fn recovery<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let report = self.store.recovery();
        report.map(|report| recovery_report(py, report, true, None)).transpose()
    }

    /// Whether a last, perhaps whole message was left out.
    #[getter]
    fn _leaves_out_last(&self) -> bool {
        self.store.leaves_out_last()
    }

    /// Warnings of the open, which are no damage, and events since.
    ///
    /// A line each; the last 1,000 of what happened since. That is which files retention deleted,
    /// and how many of their messages each consumer group had not read. These lines are logged as
    /// warnings of the logger ``mqstore`` too, by the next call on the store or by ``close``.
    ///
    /// Also which of the broker's JSON files are gone, empty or unreadable now, so that their
    /// backups (``.bak``) count.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        if !self.store.is_of_parent() {
            notices::log_new(&self.store);
        }
        self.store.warnings()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.path().into_pyobject(py)?;
        let closed = if self.store.is_closed() { ", closed" } else { "" };
        Ok(format!("<Store {} mode={}{closed}>", path.repr()?, self.mode))
    }
}

/// Waits while very many new queues lack files and one of `messages` needs another.
fn pace(py: Python<'_>, store: &MessageStore, messages: &[NewMessage<'_>]) -> PyResult<()> {
    while store.lacks_queue_files(messages) {
        py.detach(|| store.wait_for_queue_files(PACE));
        py.check_signals()?;
    }
    Ok(())
}
