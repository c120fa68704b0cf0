//! Read-only views of a consume queue, a commit log, a checkpoint.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::Access;
use crate::format::checkpoint::{CheckpointFields, FIELDS_LEN};
use crate::format::file_name::offset_name;
use crate::format::width::to_usize;
use crate::log::read::end::{self, LogState};
use crate::log::{self, CqUnit, Queue, QueueKind, folder};
use crate::store::LogSource;
use crate::store::read::scan::{OnDamage, Scan, ScanFilter};

use crate::py::fields;
use crate::py::store::location::Location;
use crate::py::store::message_scan::MessageScan;
use crate::py::store::reading::{bound, on_damage};
use crate::py::store::stored::StoredMessage;
use crate::py::values::{getters, value};

value! {
    /// One entry of a consume queue: 20 bytes, or 46 in a batch queue.
    struct QueueEntry new (
        queue_offset, physical_offset, store_size, tags_code, message_count=1,
        store_timestamp_ms=None
    ) {
        /// Entry number in the queue; of a batch that of its first message.
        queue_offset: i64,
        /// Where the record begins in the commit log.
        physical_offset: i64,
        /// Length of the record in bytes.
        store_size: i32,
        /// Hash of the tags, a delivery time, or an address of the queue extension.
        tags_code: i64,
        /// Messages behind the entry: 1, or the size of a batch.
        message_count: i16,
        /// Store time, which only a batch queue keeps.
        store_timestamp_ms: Option<i64>,
    }
}

impl QueueEntry {
    fn of(queue: &Queue, unit: CqUnit) -> Self {
        let is_batch = queue.kind() == QueueKind::Batch;
        Self {
            queue_offset: unit.number,
            physical_offset: unit.physical_offset,
            store_size: unit.store_size,
            tags_code: unit.tags_code,
            message_count: unit.count,
            store_timestamp_ms: is_batch.then_some(unit.store_timestamp_ms),
        }
    }
}

/// A read-only view of one consume queue, as of its opening; no commit log is needed.
///
/// ``len(queue)`` is the number of entries, ``queue[i]`` the i-th of them (negative from the end),
/// iteration gives them in order. An entry before the first valid one, such as RocketMQ's filler at
/// the head of a queue that begins late, is not counted; the first invalid entry ends the queue.
///
/// Args:
///     path: The queue's folder, ``<store>/consumequeue/<topic>/<queue id>``, or one under
///         ``batchconsumequeue``, whose entries are 46 bytes long.
///     file_size: Bytes of one file; ``None`` takes it from the files there.
///
/// Raises:
///     NotAStoreError: No such folder.
///     CorruptionError: A file name or length that cannot be, or files that leave a gap.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct ConsumeQueue {
    queue: Arc<Queue>,
    /// Positions of the first entry that counts, and the end.
    positions: Range<u64>,
}

#[pymethods]
impl ConsumeQueue {
    #[new]
    #[pyo3(signature = (path, *, file_size=None))]
    fn __new__(py: Python<'_>, path: Location, file_size: Option<u64>) -> PyResult<Self> {
        py.detach(|| -> Result<_> {
            let queue = Queue::open_folder(path.storage, &path.path, file_size)?;
            Ok(Self { positions: queue.leading_positions()?, queue: Arc::new(queue) })
        })
        .map_err(PyErr::from)
    }

    /// The entries in a half-open range of queue offsets; ``None`` is the queue's bound.
    #[pyo3(signature = (start=None, stop=None))]
    fn entries(
        &self,
        py: Python<'_>,
        start: Option<i64>,
        stop: Option<i64>,
    ) -> PyResult<QueueEntries> {
        let position_of = |number| self.queue.partition_point_by(|unit| unit.number < number);
        let (start, stop) = py.detach(|| -> Result<_> {
            let start = start.map_or(Ok(0), position_of)?.max(self.positions.start);
            Ok((start, stop.map_or(Ok(self.positions.end), position_of)?))
        })?;
        Ok(QueueEntries::new(&self.queue, start, stop))
    }

    fn __len__(&self) -> usize {
        to_usize(self.positions.end.saturating_sub(self.positions.start))
    }

    fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<QueueEntry> {
        let from = if index < 0 { self.positions.end } else { self.positions.start };
        let position =
            from.checked_add_signed(index as i64).filter(|at| self.positions.contains(at));
        let unit = match position {
            Some(position) => py.detach(|| self.queue.units_at(position, 1))?.pop(),
            None => None,
        };
        match unit {
            Some(unit) => Ok(QueueEntry::of(&self.queue, unit)),
            None => Err(PyIndexError::new_err(format!("the queue has no entry [{index}]"))),
        }
    }

    fn __iter__(&self) -> QueueEntries {
        QueueEntries::new(&self.queue, self.positions.start, self.positions.end)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.path()?.into_pyobject(py)?;
        Ok(format!("<ConsumeQueue {} of {} entries>", path.repr()?, self.__len__()))
    }
}

getters! {
    ConsumeQueue, this => &*this.queue, {
        /// The queue's folder.
        path: OsString = |queue| queue.run().dir().into_os_string();
        /// The topic, as the folder above is named.
        topic: String = |queue| String::from_utf8_lossy(queue.topic()).into_owned();
        /// The queue's number, as its folder is named.
        queue_id: i32 = Queue::queue_id;
        /// Which kind of queue it is (``CQType``).
        kind: &'static str = |queue| queue.kind().name();
        /// Bytes of one file.
        file_size: u64 = |queue| queue.run().file_size();
        /// Queue offset of the first entry.
        min_offset: i64 = Queue::min_offset;
        /// One past the queue offset of the last entry.
        max_offset: i64 = Queue::max_offset;
        /// Where the last entry's record ends in the commit log; -1 in an empty queue.
        max_physical_offset: i64 = Queue::reach;
    }
}

#[pyclass(module = "mqstore", frozen)]
pub(crate) struct QueueEntries {
    queue: Arc<Queue>,
    state: Mutex<Ahead>,
}

/// Entries read ahead, and the next to read.
struct Ahead {
    ready: VecDeque<CqUnit>,
    next: u64,
    stop: u64,
}

impl QueueEntries {
    fn new(queue: &Arc<Queue>, next: u64, stop: u64) -> Self {
        let state = Mutex::new(Ahead { ready: VecDeque::new(), next, stop });
        Self { queue: Arc::clone(queue), state }
    }
}

impl Ahead {
    fn next(&mut self, queue: &Queue) -> Result<Option<CqUnit>> {
        if self.ready.is_empty() && self.next < self.stop {
            let left = to_usize(self.stop - self.next);
            self.ready.extend(queue.units_at(self.next, left)?);
            self.next = self.next.saturating_add(self.ready.len() as u64);
        }
        Ok(self.ready.pop_front())
    }
}

#[pymethods]
impl QueueEntries {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<QueueEntry>> {
        if let Some(mut state) = self.state.try_lock()
            && let Some(unit) = state.ready.pop_front()
        {
            return Ok(Some(QueueEntry::of(&self.queue, unit)));
        }
        let next = py.detach(|| self.state.lock().next(&self.queue))?;
        Ok(next.map(|unit| QueueEntry::of(&self.queue, unit)))
    }
}

/// A read-only view of a commit log, as of its opening; nothing else of the store is needed.
///
/// Iteration gives every message in order and raises at damage.
///
/// Args:
///     path: The folder, ``<store>/commitlog``.
///     file_size: Bytes of one file; ``None`` takes it from the files there.
///
/// Raises:
///     NotAStoreError: No such folder, or no commit log file in it.
///     CorruptionError: A file name or length that cannot be, or files that leave a gap.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct CommitLog {
    log: Arc<log::CommitLog>,
}

fn open_log(path: Location, file_size: Option<u64>) -> Result<log::CommitLog> {
    let Location { path, storage, .. } = path;
    let run = folder::open(storage, &path, file_size, StoreConfig::COMMIT_LOG_FILE)?;
    if run.files().is_empty() {
        let reason = "no commit log file is in it".to_owned();
        return Err(Error::NotAStore { path, reason });
    }
    let log = log::CommitLog::new(run, 0);
    log.set_end(end::find(&log, LogState::Open, None, |_| Ok(false))?.offset);
    Ok(log)
}

#[pymethods]
impl CommitLog {
    #[new]
    #[pyo3(signature = (path, *, file_size=None))]
    fn __new__(py: Python<'_>, path: Location, file_size: Option<u64>) -> PyResult<Self> {
        let log = py.detach(|| open_log(path, file_size))?;
        Ok(Self { log: Arc::new(log) })
    }

    /// The message whose record begins there; errors as ``Store.get``.
    #[pyo3(signature = (physical_offset, /))]
    fn get(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::any_physical_offset)] physical_offset: i64,
    ) -> PyResult<StoredMessage> {
        Ok(py.detach(|| self.log.get(physical_offset, self.log.end_offset()))?.into())
    }

    /// The messages of a range, as ``Store.scan``.
    #[pyo3(signature = (*, start_physical_offset=None, stop_physical_offset=None, on_error="raise"))]
    fn scan(
        &self,
        #[pyo3(from_py_with = fields::start_physical_offset)] start_physical_offset: Option<i64>,
        #[pyo3(from_py_with = fields::stop_physical_offset)] stop_physical_offset: Option<i64>,
        #[pyo3(from_py_with = fields::on_error)] on_error: &str,
    ) -> PyResult<MessageScan> {
        let on_damage = on_damage(on_error)?;
        Ok(self.messages(start_physical_offset, stop_physical_offset, on_damage))
    }

    fn __iter__(&self) -> MessageScan {
        self.messages(None, None, OnDamage::Fail)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.path()?.into_pyobject(py)?;
        let (min, max) = (self.log.min_offset(), self.log.end_offset());
        Ok(format!("<CommitLog {} from {min} to {max}>", path.repr()?))
    }
}

impl CommitLog {
    fn messages(&self, start: Option<i64>, stop: Option<i64>, on_damage: OnDamage) -> MessageScan {
        let end = self.log.end_offset();
        let start = bound(start, 0).max(self.log.min_offset());
        let scan = Scan::new(start, bound(stop, end), end, ScanFilter::ALL, on_damage);
        MessageScan::new(LogSource::Log(Arc::clone(&self.log)), scan, true)
    }
}

getters! {
    CommitLog, this => &*this.log, {
        /// The folder.
        path: OsString = |log| log.run().dir().into_os_string();
        /// Bytes of one file.
        file_size: u64 = |log| log.run().file_size();
        /// Names of the files in order; a name is the physical offset of the file's first byte.
        files: Vec<String> = |log| {
            log.run().files().iter().map(|file| offset_name(file.base_offset)).collect()
        };
        /// Where the first file begins.
        min_physical_offset: u64 = log::CommitLog::min_offset;
        /// Where the last whole record ends.
        max_physical_offset: u64 = log::CommitLog::end_offset;
    }
}

/// The checkpoint file's fields, as they were when it was read (``StoreCheckpoint``).
///
/// What is missing from a short or empty file reads as 0.
///
/// Args:
///     path: The file, ``<store>/checkpoint``.
///
/// Raises:
///     StoreIOError: The file cannot be read.
#[pyclass(module = "mqstore", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Checkpoint(CheckpointFields);

impl Checkpoint {
    fn values(&self) -> [(&'static str, i64); 6] {
        [
            ("physic_msg_timestamp_ms", self.0.physic_msg_timestamp_ms),
            ("logics_msg_timestamp_ms", self.0.logics_msg_timestamp_ms),
            ("index_msg_timestamp_ms", self.0.index_msg_timestamp_ms),
            ("master_flushed_offset", self.0.master_flushed_offset),
            ("confirm_physical_offset", self.0.confirm_physical_offset),
            ("logics_physical_offset", self.0.logics_physical_offset),
        ]
    }
}

getters! {
    Checkpoint, this => &this.0, {
        /// Store time of the newest record known to be flushed.
        physic_msg_timestamp_ms: i64 = |fields| fields.physic_msg_timestamp_ms;
        /// Store time of the last queue entry written.
        logics_msg_timestamp_ms: i64 = |fields| fields.logics_msg_timestamp_ms;
        /// End time of the last full index file flushed.
        index_msg_timestamp_ms: i64 = |fields| fields.index_msg_timestamp_ms;
        /// Flushed offset of the master, as a replica knows it.
        master_flushed_offset: i64 = |fields| fields.master_flushed_offset;
        /// Start of the last valid record, as the last recovery found it.
        confirm_physical_offset: i64 = |fields| fields.confirm_physical_offset;
        /// Start of the last record whose queue entries are flushed; 0 where that is not known.
        logics_physical_offset: i64 = |fields| fields.logics_physical_offset;
        /// The lesser of the first two times less 3,000 ms, never below 0 (``getMinTimestamp``).
        min_timestamp_ms: i64 = |fields| fields.min_timestamp_ms();
        /// The lesser of that and the index's time (``getMinTimestampIndex``).
        min_timestamp_index_ms: i64 = |fields| fields.min_timestamp_index_ms();
    }
}

#[pymethods]
impl Checkpoint {
    #[new]
    fn __new__(py: Python<'_>, path: Location) -> PyResult<Self> {
        let bytes = py.detach(|| {
            let Location { path, storage, .. } = path;
            let file = storage.open(&path, Access::Read).map_err(Error::io("open", &path))?;
            file.read_most(0, FIELDS_LEN).map_err(Error::io("read", &path))
        })?;
        Ok(Self(CheckpointFields::decode_start(&bytes)))
    }

    fn __repr__(&self) -> String {
        let values = self.values().map(|(name, value)| format!("{name}={value}"));
        format!("Checkpoint({})", values.join(", "))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let make = py.import("mqstore._native")?.getattr("_checkpoint")?;
        let fields = PyTuple::new(py, slf.get().values().map(|(_, value)| value))?;
        PyTuple::new(py, [make, fields.into_any()])
    }
}

#[pyfunction]
#[pyo3(signature = (*values))]
pub(crate) fn _checkpoint(values: [i64; 6]) -> Checkpoint {
    let bytes = values.map(i64::to_be_bytes);
    Checkpoint(CheckpointFields::decode_start(bytes.as_flattened()))
}
