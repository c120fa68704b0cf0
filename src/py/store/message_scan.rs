//! Iterates over messages and damage of a log.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyGenericAlias, PyType};

use crate::error::Result;
use crate::format::body;
use crate::log::read::scanner::{Flow, Item};
use crate::store::LogSource;
use crate::store::read::scan::{self, OnDamage, Scan};

use super::Store;
use super::fastcall::untracked;
use super::reading::{bound, name_missing, on_damage, scan_filter};
use super::stored::{MOST_BODY, Record, StoredMessage};
use crate::py::fields;
use crate::py::process::Signals;
use crate::py::values::value;

value! {
    /// Bytes of a log that a scan could not give as a message.
    struct Damage {
        /// Where they begin in the whole commit log.
        physical_offset: u64,
        /// Their number.
        length: u64,
        /// File, byte, expected and found; of a message also its topic, queue and queue offset.
        reason: String,
    }
}

impl From<scan::Damage> for Damage {
    fn from(damage: scan::Damage) -> Self {
        let (physical_offset, length) = (damage.begin, damage.length());
        Self { physical_offset, length, reason: damage.error().to_string() }
    }
}

type Ready = std::result::Result<Record, Box<scan::Damage>>;

fn item<'py>(py: Python<'py>, ready: Ready) -> PyResult<Bound<'py, PyAny>> {
    Ok(match ready {
        Ok(record) => untracked(Bound::new(py, StoredMessage::from(record))?).into_any(),
        Err(damage) => Bound::new(py, Damage::from(*damage))?.into_any(),
    })
}

/// Bytes and messages taken from a read at a time, small enough for the cache.
const AHEAD: (usize, usize) = (32 << 10, 64);

/// An iterator over messages, and ``Damage`` if asked for.
///
/// Made by ``Store.scan`` and ``CommitLog.scan``.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct MessageScan {
    source: LogSource,
    stop: u64,
    signals: Arc<Signals>,
    state: Mutex<State>,
}

struct State {
    scan: Scan,
    /// Whether a body that cannot be decompressed counts as damage.
    checks_bodies: bool,
    ready: VecDeque<(u64, Ready)>,
    emitted_to: u64,
    more: bool,
}

impl MessageScan {
    /// Where damage is raised, an undecompressable body is an error of the message that it is asked
    /// of.
    pub(crate) fn new(source: LogSource, scan: Scan, decompress: bool) -> Self {
        let stop = scan.stop_physical_offset();
        let signals = Signals::new();
        let scan = scan.halting(signals.halt());
        let emitted_to = scan.physical_offset();
        let checks_bodies = decompress && scan.on_damage() != OnDamage::Fail;
        let state = State { scan, checks_bodies, ready: VecDeque::new(), emitted_to, more: true };
        Self { source, stop, signals, state: Mutex::new(state) }
    }

    fn with_state<T>(&self, py: Python<'_>, with_state: impl FnOnce(&State) -> T + Send) -> T
    where
        T: Send,
    {
        // Another thread may hold this lock and want the interpreter.
        py.detach(|| with_state(&self.state.lock()))
    }
}

impl State {
    fn take(&mut self) -> Option<Ready> {
        let (end, item) = self.ready.pop_front()?;
        self.emitted_to = end;
        Some(item)
    }

    fn next(&mut self, source: &LogSource) -> Result<Option<Ready>> {
        if self.ready.is_empty() && self.more {
            let log = source.log()?;
            let Self { scan, checks_bodies, ready, .. } = self;
            let mut bytes = 0;
            let outcome = scan.visit(log, |range, item| {
                match item {
                    Item::Record(view, _) => {
                        if *checks_bodies {
                            body::of_message(view, MOST_BODY)?;
                        }
                        bytes += view.as_bytes().len();
                        ready.push_back((range.end, Ok(Record::copied(view.as_bytes()))));
                    }
                    Item::Damage(damage) => ready.push_back((range.end, Err(damage))),
                    Item::Blank => {}
                }
                let full = bytes >= AHEAD.0 || ready.len() >= AHEAD.1;
                Ok(if full { Flow::Stop } else { Flow::Continue })
            });
            match outcome {
                Ok(more) => self.more = more,
                // Records before the damage come first; then it is met again.
                Err(_) if !self.ready.is_empty() => {}
                Err(error) => {
                    self.more = false;
                    return Err(error);
                }
            }
        }
        Ok(self.take())
    }
}

#[pymethods]
impl MessageScan {
    /// The class of a scan of these items, as annotations name it.
    #[classmethod]
    fn __class_getitem__<'py>(
        cls: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyGenericAlias>> {
        PyGenericAlias::new(cls.py(), cls, item)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(mut state) = self.state.try_lock()
            && let Some(ready) = state.take()
        {
            return item(py, ready).map(Some);
        }
        self.signals.is_called();
        let next = py.detach(|| self.state.lock().next(&self.source))?;
        match next {
            Some(ready) => item(py, ready).map(Some),
            None => self.signals.check().map(|()| None),
        }
    }

    /// How far the scan has come: behind what it gave or skipped last.
    #[getter]
    fn physical_offset(&self, py: Python<'_>) -> u64 {
        self.with_state(py, |state| {
            if state.ready.is_empty() { state.scan.physical_offset() } else { state.emitted_to }
        })
    }

    /// Where the scan ends.
    #[getter]
    fn stop_physical_offset(&self) -> u64 {
        self.stop
    }

    /// How many damaged ranges were skipped or reported so far.
    #[getter]
    fn skipped_ranges(&self, py: Python<'_>) -> u64 {
        self.with_state(py, |state| state.scan.skipped_ranges())
    }

    /// How many bytes these had.
    #[getter]
    fn skipped_bytes(&self, py: Python<'_>) -> u64 {
        self.with_state(py, |state| state.scan.skipped_bytes())
    }
}

#[pymethods]
impl Store {
    /// Every message of the log in order, those of system topics too.
    ///
    /// Args:
    ///     start_physical_offset: First physical offset; ``None`` is the log's beginning. Inside a
    ///         record, the scan begins at the next one.
    ///     stop_physical_offset: Messages that begin before here; ``None`` is the end as of now.
    ///     topics: Only these topics.
    ///     tags: Only messages that match this tag expression.
    ///     begin_ms: Only store times from here on.
    ///     end_ms: Only store times up to here.
    ///     on_error: At damage ``"raise"`` it, ``"skip"`` to the next whole record, or ``"report"``
    ///         it: a ``Damage`` comes in its place. The scan counts what it skipped or reported.
    ///         Topics, tags and times leave out no damage, since it may have held any message.
    ///     decompress: Whether a body that cannot be decompressed counts as damage. With
    ///         ``on_error="raise"`` it does not: the message comes, and its ``body`` raises. Each
    ///         compressed body is decompressed for that.
    ///
    /// Raises:
    ///     CorruptionError: When iterated, at damage, with ``on_error="raise"``.
    #[pyo3(
        signature = (
            *, start_physical_offset=None, stop_physical_offset=None, topics=None, tags=None,
            begin_ms=None, end_ms=None, on_error="raise", decompress=true, **others
        ),
        text_signature = "($self, *, start_physical_offset=None, stop_physical_offset=None, \
            topics=None, tags=None, begin_ms=None, end_ms=None, on_error=\"raise\", \
            decompress=True)"
    )]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of Python's")]
    fn scan(
        &self,
        #[pyo3(from_py_with = fields::start_physical_offset)] start_physical_offset: Option<i64>,
        #[pyo3(from_py_with = fields::stop_physical_offset)] stop_physical_offset: Option<i64>,
        topics: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = fields::tags)] tags: Option<PyBackedStr>,
        #[pyo3(from_py_with = fields::begin_ms)] begin_ms: Option<i64>,
        #[pyo3(from_py_with = fields::end_ms)] end_ms: Option<i64>,
        #[pyo3(from_py_with = fields::on_error)] on_error: &str,
        #[pyo3(from_py_with = fields::decompress)] decompress: bool,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<MessageScan> {
        fields::no_others("Store.scan", others)?;
        let filter = scan_filter(topics, tags.as_deref(), begin_ms, end_ms)?;
        let on_damage = on_damage(on_error)?;
        let store = self.open_store()?;
        name_missing(&store, &filter, on_damage)?;
        let end = store.end_offset();
        let start = bound(start_physical_offset, 0).max(store.log().min_offset());
        let scan = Scan::new(start, bound(stop_physical_offset, end), end, filter, on_damage);
        Ok(MessageScan::new(LogSource::Store(store), scan, decompress))
    }
}
