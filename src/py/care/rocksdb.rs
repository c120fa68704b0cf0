//! Databases that Python reads, for the core.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::locks::Mutex;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};

use crate::care::rocksdb::{self, DatabaseReport, Databases, LogQueues, Name, TakeRow};
use crate::config::StoreConfig;
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::Os;
use crate::format::message::properties::split_keys;
use crate::format::message::sys_flag::Transaction;
use crate::format::queue::consume_queue::QueueEntry;
use crate::format::rocksdb::{OffsetRow, QueueRow, index_rows};
use crate::log::CqUnit;
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::folder::paths::StorePaths;
use crate::store::progress::interrupted;

use super::{FindingRow, finding_row};
use crate::py::errors::{CorruptionError, UnsupportedError};
use crate::py::fields;
use crate::py::store::stored::StoredMessage;

/// Rows that cross at a time.
const ROWS_AT_ONCE: usize = 4096;
const LOG_ROWS_AT_ONCE: i64 = 1024;

type Row = (PyBackedStr, PyBackedBytes, PyBackedBytes);

/// An object of class ``Databases`` in ``mqstore.rocksdb.reading``.
pub(crate) struct PythonDatabases {
    object: Py<PyAny>,
    /// The exception of the last call.
    raised: Mutex<Option<PyErr>>,
}

impl PythonDatabases {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self { object, raised: Mutex::default() }
    }

    fn with<T: Send, E: Into<PyErr> + Send>(
        py: Python<'_>,
        object: Py<PyAny>,
        work: impl FnOnce(&Self) -> std::result::Result<T, E> + Send,
    ) -> PyResult<T> {
        let databases = Self::new(object);
        let outcome = py.detach(|| work(&databases));
        Self::outcome(Some(&databases), outcome)
    }

    /// The result of the core's work; an error is the exception that it came from.
    pub(crate) fn outcome<T, E: Into<PyErr>>(
        databases: Option<&Self>,
        outcome: std::result::Result<T, E>,
    ) -> PyResult<T> {
        let raised = || databases.and_then(|databases| databases.raised.lock().take());
        outcome.map_err(|error| raised().unwrap_or_else(|| error.into()))
    }

    fn is(&self, name: &str) -> bool {
        Python::attach(|py| self.object.call_method0(py, name)?.is_truthy(py)).unwrap_or(false)
    }

    fn error(&self, py: Python<'_>, error: PyErr, path: &Path) -> Error {
        let value = error.value(py);
        let text = |name: &str| value.getattr(name)?.extract::<String>();
        let named = value.getattr("path").and_then(|path| path.extract::<PathBuf>());
        let found = || -> PyResult<Error> {
            let path = named?;
            if error.is_instance_of::<CorruptionError>(py) {
                let (expected, found) = (text("expected")?, text("found")?);
                let (path, kind) = (Some(path), CorruptionKind::RocksDb);
                let corruption = Corruption { path, offset: 0, kind, expected, found };
                return Ok(Error::Corrupt(Box::new(corruption)));
            }
            Ok(Error::Unsupported { what: text("what")?, path })
        };
        let is_known = error.is_instance_of::<CorruptionError>(py)
            || error.is_instance_of::<UnsupportedError>(py);
        let known = is_known.then(found).and_then(PyResult::ok);
        *self.raised.lock() = Some(error);
        known.unwrap_or_else(|| interrupted("read", path))
    }
}

impl Databases for PythonDatabases {
    fn is_installed(&self) -> bool {
        self.is("is_installed")
    }

    fn is_wanted(&self) -> bool {
        self.is("is_wanted")
    }

    fn scratch(&self) -> Result<PathBuf> {
        Python::attach(|py| {
            let made = self.object.call_method0(py, "scratch").and_then(|dir| dir.extract(py));
            made.map_err(|error| self.error(py, error, Path::new("")))
        })
    }

    fn rows(&self, database: &Path, families: &[&str], take: &mut TakeRow<'_>) -> Result<()> {
        self.raised.lock().take();
        let rows = Python::attach(|py| {
            let arguments = (database.as_os_str(), families);
            let rows = self.object.call_method1(py, "rows", arguments);
            let rows = rows.and_then(|rows| Ok(rows.bind(py).try_iter()?.unbind()));
            rows.map_err(|error| self.error(py, error, database))
        })?;
        loop {
            let some = Python::attach(|py| {
                let rows = rows.bind(py).clone().take(ROWS_AT_ONCE);
                let some: PyResult<Vec<Row>> = rows.map(|row| row?.extract()).collect();
                some.map_err(|error| self.error(py, error, database))
            })?;
            for (family, key, value) in &some {
                take(family, key, value)?;
            }
            if some.len() < ROWS_AT_ONCE {
                return Ok(());
            }
        }
    }
}

/// Number of rows in each database of a store, by their kind.
#[pyfunction]
#[pyo3(signature = (path, databases, /))]
pub(crate) fn _count_rows(
    py: Python<'_>,
    #[pyo3(from_py_with = fields::absolute)] path: PathBuf,
    databases: Py<PyAny>,
) -> PyResult<rocksdb::Counts> {
    PythonDatabases::with(py, databases, |databases| rocksdb::counts(&Os, &path, databases))
}

/// Key, value, queue offset, and begin and end of the message.
type LogRow = (Vec<u8>, Vec<u8>, i64, i64, i64);
/// Topic, queue, and physical and queue offset of a queue's last entry.
type End = (OsString, i32, i64, i64);

fn name_of(topic: &OsStr, queue_id: i32) -> Name {
    (topic.as_bytes().into(), queue_id)
}

/// Last entries of the queues in a database.
///
/// Returns:
///     ``(topic, queue_id, physical_offset, queue_offset)`` of each queue, the end of the last
///     message with a row, and the error after which no more could be read.
#[pyfunction]
#[pyo3(signature = (database, databases, /))]
pub(crate) fn _queue_ends(
    py: Python<'_>,
    #[pyo3(from_py_with = fields::absolute)] database: PathBuf,
    databases: Py<PyAny>,
) -> PyResult<(Vec<End>, i64, Option<Py<PyAny>>)> {
    let mut ends = rocksdb::Ends::default();
    let read = |databases: &PythonDatabases| ends.read(databases, &database);
    let error = match PythonDatabases::with(py, databases, read) {
        Err(error) if error.is_instance_of::<CorruptionError>(py) => {
            Some(error.into_value(py).into_any())
        }
        outcome => {
            outcome?;
            None
        }
    };
    let last = ends.last.into_iter().map(|((topic, id), end)| {
        (OsString::from_vec(topic.into_vec()), id, end.physical_offset, end.number)
    });
    Ok((last.collect(), ends.checkpoint, error))
}

/// Writes files of queues from rows of a database.
///
/// Args:
///     database: The database.
///     databases: Reader of databases.
///     folder: The folder of the queues.
///     file_size: Bytes of one file.
///     ends: Queues to write, as from ``_queue_ends``.
///     with_rows: Whether their rows are written, or only the last entry of each.
///
/// Returns:
///     Whether any was written.
///
/// Raises:
///     CorruptionError: Damage in the database, or no folder can have a queue's name.
///     StoreIOError: The operating system refused something.
#[pyfunction]
#[pyo3(signature = (database, databases, /, *, folder, file_size, ends, with_rows))]
pub(crate) fn _queue_files(
    py: Python<'_>,
    #[pyo3(from_py_with = fields::absolute)] database: PathBuf,
    databases: Py<PyAny>,
    folder: PathBuf,
    file_size: u64,
    ends: Vec<End>,
    with_rows: bool,
) -> PyResult<bool> {
    let last = ends.into_iter().map(|(topic, id, physical_offset, queue_offset)| {
        let entry = QueueEntry { physical_offset, ..QueueEntry::default() };
        (name_of(&topic, id), CqUnit::plain(queue_offset, entry))
    });
    let ends = rocksdb::Ends { last: last.collect(), checkpoint: 0 };
    PythonDatabases::with(py, databases, |databases| {
        rocksdb::write_files(&Os, databases, &database, &folder, file_size, &ends, with_rows)
    })
}

/// Keys and values of the rows that RocketMQ's index in RocksDB has for a message.
#[pyfunction]
#[pyo3(signature = (message, /))]
pub(crate) fn _index_rows(message: PyRef<'_, StoredMessage>) -> PyResult<Vec<(Vec<u8>, Vec<u8>)>> {
    let request = DispatchRequest::of(&message.view()?);
    let Some(unique_key) = request.properties.unique_key else { return Ok(Vec::new()) };
    if unique_key.is_empty() || request.transaction == Transaction::Rollback {
        return Ok(Vec::new());
    }
    let place = (request.physical_offset, request.store_timestamp_ms);
    let keys = split_keys(request.properties.keys.unwrap_or_default());
    Ok(index_rows(request.topic, unique_key, keys, request.properties.tags, place))
}

/// Queues of a store, made from its log in a folder of their own.
///
/// Args:
///     path: The store's root folder.
///     databases: Reader of databases, which has the folder.
///     settings: As for ``Store``.
///     has_lights: Whether light queues are made too.
#[pyclass(module = "mqstore", frozen, name = "_LogQueues")]
pub(crate) struct PythonLogQueues {
    queues: LogQueues,
    root: PathBuf,
}

#[pymethods]
impl PythonLogQueues {
    #[new]
    #[pyo3(signature = (path, databases, /, *, settings, has_lights))]
    fn __new__(
        py: Python<'_>,
        #[pyo3(from_py_with = fields::absolute)] path: PathBuf,
        databases: Py<PyAny>,
        settings: StoreConfig,
        has_lights: bool,
    ) -> PyResult<Self> {
        let paths = StorePaths::new(Arc::new(Os), &path, &settings);
        let queues = PythonDatabases::with(py, databases, |databases| {
            LogQueues::make(&paths, &settings, databases, has_lights)
        })?;
        Ok(Self { queues, root: path })
    }

    /// ``(topic, queue_id, first, end)`` of each plain queue.
    #[getter]
    fn bounds(&self) -> Vec<(OsString, i32, i64, i64)> {
        let bounds = self.queues.bounds.iter().map(|((topic, id), (first, end))| {
            (OsStr::from_bytes(topic).to_owned(), *id, *first, *end)
        });
        bounds.collect()
    }

    /// Their folder.
    #[getter]
    fn folder(&self) -> PathBuf {
        self.queues.dir.clone()
    }

    /// Topics with queues of batches.
    #[getter]
    fn batches(&self) -> Vec<OsString> {
        self.queues.batches.iter().map(|topic| OsStr::from_bytes(topic).to_owned()).collect()
    }

    /// Physical offset at which the log begins.
    #[getter]
    fn log_start(&self) -> i64 {
        self.queues.span.start
    }

    /// The findings of a database whose rows are compared with the log.
    fn check(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::absolute)] database: PathBuf,
        databases: Py<PyAny>,
    ) -> PyResult<Vec<FindingRow>> {
        let report = PythonDatabases::with(py, databases, |databases| {
            let mut report = DatabaseReport::new(&self.root);
            report.compare(&self.queues, &database, databases).map(|()| report)
        })?;
        Ok(report.findings.into_iter().map(finding_row).collect())
    }

    /// The next queue offset; up to it rows of key, value, queue offset, begin and end.
    fn rows(
        &self,
        py: Python<'_>,
        topic: OsString,
        queue_id: i32,
        queue_offset: i64,
    ) -> PyResult<(i64, Vec<LogRow>)> {
        let name = name_of(&topic, queue_id);
        let next = queue_offset.saturating_add(LOG_ROWS_AT_ONCE);
        let rows = py.detach(|| -> Result<Vec<_>> {
            let (mut entries, mut rows) = (self.queues.entries(&name)?, Vec::new());
            for queue_offset in queue_offset..next {
                let Some(unit) = entries.at(queue_offset)? else { break };
                if !unit.leads() {
                    continue;
                }
                let store_timestamp_ms = self.queues.store_time_ms(unit.physical_offset)?;
                let (topic, entry) = (&*name.0, unit.entry());
                let row = QueueRow { topic, queue_id, queue_offset, entry, store_timestamp_ms };
                let (key, value) = row.encode();
                rows.push((key, value, queue_offset, unit.physical_offset, unit.physical_end()));
            }
            Ok(rows)
        })?;
        Ok((next, rows))
    }
}

/// Key and value of a queue's greatest offset in a database.
#[pyfunction]
#[pyo3(signature = (topic, queue_id, physical_offset, queue_offset, /))]
pub(crate) fn _offset_row(
    topic: OsString,
    queue_id: i32,
    physical_offset: i64,
    queue_offset: i64,
) -> (Vec<u8>, Vec<u8>) {
    let topic = topic.as_bytes();
    OffsetRow { topic, queue_id, is_max: true, physical_offset, queue_offset }.encode()
}
