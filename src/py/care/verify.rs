//! Findings as rows for Python.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::care::{self, Code, Level, VerifyOptions, VerifyReport};
use crate::config::StoreConfig;

use super::rocksdb::PythonDatabases;
use super::{FindingRow, finding_row};
use crate::py::arguments::not_one_of;
use crate::py::fields;
use crate::py::process::{threads_of, with_progress};
use crate::py::store::location::Location;
use crate::py::values::dict;

/// Checks a store; ``mqstore.verify`` is the public door to this. Never writes.
///
/// Args:
///     path: The store's root folder.
///     level: ``"quick"`` follows the frames of the log and looks at lengths, names and headers;
///         ``"full"`` also computes every checksum and holds each queue entry, index entry and the
///         checkpoint against the log.
///     threads: How many threads; ``None`` is as many as there are processors.
///     progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
///         exception from it ends the check.
///     settings: As for ``Store``.
///     databases: Reader of databases in RocksDB; ``None`` without any.
///
/// Returns:
///     The findings, each ``(code, severity, path, offset, expected, found, message, fix)`` with
///     severity ``"error"``, ``"warning"`` or ``"info"`` and ``path`` relative to the store, sorted
///     by path and offset, those of databases last; and counts by name: ``messages``,
///     ``log_bytes``, ``log_files``, ``queues``, ``queue_entries``, ``index_files``,
///     ``index_entries``, with databases ``rocksdb_rows``, and behind it how many findings there
///     are of each code, listed or not.
#[pyfunction]
#[pyo3(signature = (path, /, *, level, threads, progress, settings, databases))]
pub(crate) fn verify<'py>(
    py: Python<'py>,
    path: Location,
    #[pyo3(from_py_with = fields::level)] level: &str,
    threads: Option<i64>,
    progress: Option<Py<PyAny>>,
    settings: StoreConfig,
    databases: Option<Py<PyAny>>,
) -> PyResult<(Vec<FindingRow>, Bound<'py, PyDict>)> {
    let level = match level {
        "quick" => Level::Quick,
        "full" => Level::Full,
        _ => return Err(not_one_of("level", "quick, full", level)),
    };
    let options = VerifyOptions { level, threads: threads_of(threads)?, ..Default::default() };
    let databases = databases.map(PythonDatabases::new);
    let report = with_progress(py, progress.as_ref(), |report_progress| {
        care::verify_with(
            path.storage,
            &path.path,
            settings,
            &options,
            databases.as_ref().map(|of| of as _),
            report_progress,
        )
    });
    let report = PythonDatabases::outcome(databases.as_ref(), report)?;
    let counts = counts(py, &report)?;
    Ok((report.findings.into_iter().map(finding_row).collect(), counts))
}

/// Title and fix of a code of a finding.
#[pyfunction]
pub(crate) fn _code_text(code: &str) -> Option<(&'static str, &'static str)> {
    let found = Code::by_name(code)?;
    Some((found.title(), found.fix()))
}

/// Totals of the check, then the number of findings for each code, including unlisted ones.
fn counts<'py>(py: Python<'py>, report: &VerifyReport) -> PyResult<Bound<'py, PyDict>> {
    let checked = &report.counts;
    let counts = dict!(py,
        { messages, log_bytes, log_files, queues } of checked,
        { queue_entries, index_files, index_entries } of checked,
    );
    if let Some(rows) = checked.rocksdb_rows {
        counts.set_item("rocksdb_rows", rows)?;
    }
    for (code, count) in &report.found {
        counts.set_item(code.name(), count)?;
    }
    Ok(counts)
}
