//! Diagnoses of a store as rows for Python.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::care::{self, Diagnosis, NextStart, Verdict};
use crate::config::StoreConfig;
use crate::files::Os;
use crate::format::release::Release;
use crate::store::folder::paths::StorePaths;

use super::rocksdb::PythonDatabases;
use crate::py::fields;
use crate::py::process::with_progress;
use crate::py::store::location::Location;
use crate::py::values::dict;

/// Code, severity, title, evidence, cure, fix, numbers of findings that follow by code, first
/// missing message.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    Vec<String>,
    Option<String>,
    &'static str,
    Vec<(&'static str, u64)>,
    Option<u64>,
);

/// Examines a store; ``mqstore.doctor`` is the public door to this. Never writes.
///
/// Args:
///     path: The store's root folder.
///     progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
///         exception from it ends the examination.
///     settings: As for ``Store``.
///     option: The option that names the configuration in a command, or nothing.
///     databases: Reader of databases in RocksDB; ``None`` without any.
///
/// Returns:
///     The diagnoses, each ``(code, severity, title, evidence, cure, fix, follows,
///     first_missing)``, sorted by code, those of databases last, and the verdict's fields by name.
#[pyfunction]
#[pyo3(signature = (path, /, *, progress, settings, option, databases))]
pub(crate) fn doctor<'py>(
    py: Python<'py>,
    path: Location,
    progress: Option<Py<PyAny>>,
    settings: StoreConfig,
    option: &str,
    databases: Option<Py<PyAny>>,
) -> PyResult<(Vec<Row>, Bound<'py, PyDict>)> {
    let databases = databases.map(PythonDatabases::new);
    let found = with_progress(py, progress.as_ref(), |report_progress| {
        let Location { path, storage, .. } = path;
        let paths = StorePaths::new(Arc::clone(&storage), &path, &settings);
        let report = care::doctor::doctor_on(storage, &path, &settings, report_progress)?;
        let databases = databases.as_ref().map(|of| of as _);
        care::doctor::with_databases(report, &paths, &settings, databases, option)
    });
    let found = PythonDatabases::outcome(databases.as_ref(), found)?;
    let Verdict { release, in_use, next_start, lost, groups, commands, last_resort } =
        found.verdict;
    let queues = lost.queues.into_iter();
    let queues = queues.map(|of| (of.topic, of.queue_id, of.messages, of.first, of.last));
    let groups = groups.into_iter();
    let groups = groups.map(|of| (of.group, of.topic, of.fate.name(), of.queues, of.messages));
    let fields = dict!(py,
        release: release.name(),
        in_use: in_use,
        will_start: next_start.obstacles.is_empty(),
        obstacles: next_start.obstacles,
        lost: lost.messages,
        lost_queues: queues.collect::<Vec<_>>(),
        lost_from_ms: lost.from_ms,
        lost_to_ms: lost.to_ms,
        groups: groups.collect::<Vec<_>>(),
        commands: commands,
        last_resort: last_resort,
    );
    Ok((found.diagnoses.into_iter().map(row).collect(), fields))
}

fn row(diagnosis: Diagnosis) -> Row {
    let Diagnosis { code, severity, evidence, cure, follows, first_missing } = diagnosis;
    let follows = follows.into_iter().map(|(code, count)| (code.name(), count)).collect();
    let (name, severity) = (code.name(), severity.name());
    (name, severity, code.title(), evidence, cure, code.fix(), follows, first_missing)
}

/// Commands for a shell that put ``new`` in the place of ``path``; none for a name not text.
#[pyfunction]
#[pyo3(signature = (path, new, /))]
pub(crate) fn _swap_commands(py: Python<'_>, path: PathBuf, new: PathBuf) -> Vec<String> {
    py.detach(|| care::doctor::swap_commands(&Os, &path, &new)).unwrap_or_default()
}

type Forecast = (bool, Vec<String>, u64, Vec<String>, Vec<String>, Option<(u64, u64, String)>, u64);

/// Forecasts RocketMQ's next start; ``mqstore.preflight`` uses it. Never writes.
///
/// Args:
///     path: The store's root folder.
///     to: The release, ``"5.3"``, ``"5.4"`` or ``"5.5"``.
///     settings: As for ``Store``.
///
/// Returns:
///     Whether the store was not closed, what keeps RocketMQ from starting, where it begins to read
///     the log, the index files and the stray files that it deletes, where it ends the log before
///     whole messages (that offset, their number and why), and the number of delayed messages that
///     it delivers again.
#[pyfunction]
#[pyo3(signature = (path, /, *, to, settings))]
pub(crate) fn next_start(
    py: Python<'_>,
    path: Location,
    #[pyo3(from_py_with = fields::to)] to: &str,
    settings: StoreConfig,
) -> PyResult<Forecast> {
    let release = Release::from_str(to).unwrap_or(Release::V5_3);
    let mut start = py.detach(|| care::next_start(path.storage, &path.path, &settings, release))?;
    let cut = start.cut.take().map(|cut| (cut.at, cut.messages, cut.reason));
    let NextStart { crashed, obstacles, from, doomed, strays, delivered_again, .. } = start;
    Ok((crashed, obstacles, from, doomed, strays, cut, delivered_again))
}
