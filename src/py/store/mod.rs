//! The store: opening, writing and its state.

pub(crate) mod append;
pub(crate) mod append_arrow;
pub(crate) mod exporting;
pub(crate) mod fastcall;
pub(crate) mod group;
pub(crate) mod location;
pub(crate) mod message;
mod message_fields;
pub(crate) mod message_scan;
pub(crate) mod reading;
pub(crate) mod remote;
pub(crate) mod requests;
pub(crate) mod stored;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::locks::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use serde_json::Value;

use super::care::upkeep::recovery_report;
use super::{fields, process};
use crate::config::{DeleteRules, StoreConfig};
use crate::error::Error;
use crate::format::message::host::Host;
use crate::format::release::Release;
use crate::log::index::query::{ExternalIndex, ExternalOffsets, ExternalQuery};
use crate::py::arguments::{shown, value_error};
use crate::py::errors::StoreClosedError;
use crate::py::store::location::{Listings, Location, location_of};
use crate::py::values::{dict, getters};
use crate::store::folder::remembered;
use crate::store::{MessageStore, OpenMode};

/// A store without the classes of Python: ``mqstore.Store`` adds them.
///
/// Args:
///     path: The store's root folder, or a `mqstore.files.remote.RemotePath` for mode ``"r"``.
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
#[pyclass(module = "mqstore._native", frozen, weakref, subclass)]
pub(crate) struct Store {
    /// As it was opened.
    store: Arc<MessageStore>,
    pub(super) path: PathBuf,
    mode: &'static str,
    settings: Py<PyDict>,
    aside: Option<PathBuf>,
    remote: Option<Listings>,
    generation: u64,
    /// A forked child's own read-only store.
    reopened: Mutex<Option<(u64, Arc<MessageStore>)>>,
    /// Stopped before the store closes.
    delivery: Mutex<Option<Py<PyAny>>>,
    /// Consumer groups, whose progress `close` commits.
    groups: Mutex<Vec<Py<PyWeakrefReference>>>,
}

impl Store {
    /// The store for writing; fails in a forked child.
    #[inline]
    pub(super) fn writing(&self) -> PyResult<&Arc<MessageStore>> {
        refuse_after_fork(self.generation)?;
        process::log_new(&self.store);
        Ok(&self.store)
    }

    /// The store for reading; a forked child opens its own.
    #[inline]
    pub(super) fn reading(&self) -> PyResult<Arc<MessageStore>> {
        if process::generation() == self.generation {
            let store = self.newest();
            process::log_new(&store);
            return Ok(store);
        }
        self.reopen()
    }

    pub(super) fn open_store(&self) -> PyResult<Arc<MessageStore>> {
        let store = self.reading()?;
        store.check_open()?;
        Ok(store)
    }

    #[inline]
    fn newest(&self) -> Arc<MessageStore> {
        self.remote.as_ref().map_or_else(|| Arc::clone(&self.store), Listings::newest)
    }

    /// Ends all groups, which commits their progress; returns the first error.
    fn commit_groups(&self, py: Python<'_>) -> PyResult<()> {
        let groups = std::mem::take(&mut *self.groups.lock());
        if self.store.is_of_parent() {
            return Ok(());
        }
        let live = groups.iter().filter_map(|group| group.bind(py).upgrade());
        let outcomes: Vec<_> = live.map(|group| group.call_method0("_end")).collect();
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
    }

    #[cold]
    fn reopen(&self) -> PyResult<Arc<MessageStore>> {
        if self.store.is_closed() {
            return Err(Error::Closed.into());
        }
        if self.remote.is_some() {
            return Err(remote::forked());
        }
        let generation = process::generation();
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

getters! {
    Store, this => this, {
        /// The store's root folder, absolute.
        path: OsString = |this| this.path.clone().into_os_string();
        /// How it was opened.
        mode: &'static str = |this| this.mode;
        /// Whether delayed messages are delivered.
        _delivers: bool = |this| this.delivery.lock().is_some();
        /// Whether a last, perhaps whole message was left out.
        _leaves_out_last: bool = |this| this.newest().leaves_out_last();
        /// Whether no file changed since the store was closed.
        _is_sealed: bool = |this| this.newest().is_sealed();
        /// Parts of the log that this handle found missing or damaged.
        _losses: Vec<(u64, u64)> = |this| {
            this.newest().log().losses().iter().map(|part| (part.start, part.end)).collect()
        };
        _is_closed: bool = |this| this.store.is_closed();
    }
}

#[inline]
pub(super) fn refuse_after_fork(generation: u64) -> PyResult<()> {
    if process::generation() == generation { Ok(()) } else { Err(forked()) }
}

#[cold]
fn forked() -> PyErr {
    StoreClosedError::new_err((
        "the store was opened before this process was forked off: open it again here to write",
    ))
}

/// An index that Python asks.
#[derive(Debug)]
struct AskedInPython(Py<PyAny>);

impl ExternalIndex for AskedInPython {
    fn query(&self, query: &ExternalQuery<'_>) -> Option<ExternalOffsets> {
        let ExternalQuery { topic, text, is_tags, span, log } = *query;
        let arguments = (topic, text, is_tags, span, log);
        Python::attach(|py| {
            let answer = self.0.call1(py, arguments).and_then(|answer| answer.extract(py));
            let answer: Option<(Vec<u64>, u64)> = answer.unwrap_or_else(|error: PyErr| {
                error.write_unraisable(py, None);
                None
            });
            answer.map(|(offsets, until)| ExternalOffsets { offsets, until })
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
    #[new]
    #[pyo3(signature = (path, mode, settings, /, aside=None, other_index=None))]
    fn new(
        py: Python<'_>,
        path: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = fields::mode)] mode: &str,
        settings: &Bound<'_, PyAny>,
        aside: Option<PathBuf>,
        other_index: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let (open_mode, mode) = match mode {
            "r" => (OpenMode::Read, "r"),
            "r+" => (OpenMode::ReadWrite, "r+"),
            "a" => (OpenMode::Create, "a"),
            _ => return Err(value_error("mode", "\"r\", \"r+\" or \"a\"", shown(mode))),
        };
        let given = PyDict::new(py);
        given.update(settings.cast()?)?;
        let config = fields::config_of(&given)?;
        let given_path = fields::path_of("path", path)?;
        if given_path.as_os_str().is_empty() {
            let reason = "the path is empty".to_owned();
            return Err(Error::NotAStore { path: given_path, reason }.into());
        }
        let Location { path: root, storage } = location_of(path)?;
        let remote = storage.is_remote();
        let remote = remote.then(|| Listings::open(py, path, config.clone())).transpose()?;
        let path = root;
        let store = match &remote {
            Some(listings) => listings.newest(),
            None => {
                let mut store = py.detach(|| open(&path, open_mode, config, aside.as_deref()))?;
                if let Some(other) = other_index {
                    store = store.with_external_index(Box::new(AskedInPython(other)));
                }
                Arc::new(store)
            }
        };
        Ok(Self {
            store,
            path,
            mode,
            settings: given.unbind(),
            aside,
            remote,
            generation: process::generation(),
            reopened: Mutex::default(),
            delivery: Mutex::default(),
            groups: Mutex::default(),
        })
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
        let committed = self.commit_groups(py);
        let closed = py.detach(|| {
            if let Some((_, reopened)) = self.reopened.lock().take() {
                reopened.close()?;
            }
            if let Some(listings) = &self.remote {
                listings.close()?;
            }
            store.close_after(|| process::log_new(store))
        });
        if !store.is_of_parent() {
            process::log_new(store);
        }
        closed?;
        committed
    }

    /// Keeps the delivery of delayed messages, to be stopped by ``close``.
    fn _keep_delivery(&self, delivery: Py<PyAny>) {
        *self.delivery.lock() = Some(delivery);
    }

    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        if slf.get().store.is_closed() { Err(Error::Closed.into()) } else { Ok(slf.clone_ref(py)) }
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// The root as functions of the package take it.
    #[getter]
    fn _root<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.remote {
            Some(listings) => Ok(listings.path.bind(py).clone()),
            None => Ok(self.path.as_os_str().into_pyobject(py)?.into_any()),
        }
    }

    /// The settings in use that are no defaults.
    #[getter]
    fn _settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let settings = self.settings.bind(py).copy()?;
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
        Ok(settings)
    }

    #[getter]
    fn _recovery<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let report = self.store.recovery();
        report.map(|report| recovery_report(py, report, true, None)).transpose()
    }

    /// Raises ``CorruptionError`` if last log files with these topics are missing.
    #[pyo3(signature = (topics=None, queue_id=None))]
    fn _check_end(&self, topics: Option<Vec<String>>, queue_id: Option<i32>) -> PyResult<()> {
        let store = self.newest();
        let Some(missing) = store.missing_end() else { return Ok(()) };
        let concerns = |topic: &String| missing.concerns(topic.as_bytes(), queue_id);
        match topics.is_none_or(|topics| topics.iter().any(concerns)) {
            true => Err(Error::Corrupt(Box::new(missing.corruption.clone())).into()),
            false => Ok(()),
        }
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
        let store = self.newest();
        if !store.is_of_parent() {
            process::log_new(&store);
        }
        store.warnings()
    }

    fn _warn(&self, text: String) {
        let store = self.newest();
        store.notices().push(text);
        process::log_new(&store);
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.path.as_os_str().into_pyobject(py)?;
        let closed = if self.store.is_closed() { ", closed" } else { "" };
        Ok(format!("<Store {} mode={}{closed}>", path.repr()?, self.mode))
    }

    /// Which releases of RocketMQ can have written the store, and what shows it.
    ///
    /// No file carries a version of RocketMQ, and a store may have been written by several.
    ///
    /// Returns:
    ///     ``can_be``: the releases, of ``"5.3"``, ``"5.4"`` and ``"5.5"``; ``writes``: whose files
    ///     this store writes, ``None`` in mode ``"r"``; ``marks``: a mapping for each mark, with
    ///     the oldest and the newest release that leave it (``since``, ``until``), its ``path``
    ///     below the root, and ``what`` it is.
    ///
    /// Raises:
    ///     StoreIOError: A file cannot be read.
    fn versions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let store = self.reading()?;
        let found = py.detach(|| store.versions())?;
        let names: Vec<_> = found.can_be().into_iter().map(Release::name).collect();
        let marks = PyList::empty(py);
        for mark in &found.marks {
            let (since, until) = (mark.since.name(), mark.until.name());
            let row = dict!(py, since: since, until: until, path: &mark.path, what: &mark.what,);
            marks.append(row)?;
        }
        let is_written = self.mode != "r";
        let writes = self.store.config().rocketmq_version.filter(|_| is_written);
        Ok(dict!(py, can_be: names, writes: writes.map(Release::name), marks: marks,))
    }
}
