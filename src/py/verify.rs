//! Looking for damage: what was found, as rows that the Python side makes findings of.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::care::{self, Finding, Level, VerifyOptions, VerifyReport};
use crate::error::Error;

use super::progress::{threads_of, with_progress};
use super::store::config_of;

/// Code, severity, path, offset, expected, found, message, fix.
type Row =
    (&'static str, &'static str, OsString, Option<u64>, String, String, String, &'static str);

/// Checks a store.
#[pyfunction]
#[pyo3(signature = (path, /, *, level, threads, progress, settings))]
pub(super) fn verify<'py>(
    py: Python<'py>,
    path: PathBuf,
    level: &str,
    threads: Option<i64>,
    progress: Option<Py<PyAny>>,
    settings: &Bound<'py, PyAny>,
) -> PyResult<(Vec<Row>, Bound<'py, PyDict>)> {
    let level = match level {
        "quick" => Level::Quick,
        "full" => Level::Full,
        _ => {
            let shown: String = level.chars().take(64).collect();
            return Err(PyValueError::new_err(format!("level is quick or full, not {shown:?}")));
        }
    };
    let threads = threads_of(threads)?;
    let given = PyDict::new(py);
    given.update(settings.cast()?)?;
    let config = config_of(&given)?;
    let path = std::path::absolute(&path).map_err(Error::io("find", &path))?;
    let options = VerifyOptions { level, threads, ..VerifyOptions::default() };
    let report =
        with_progress(py, progress.as_ref(), |tell| care::verify(&path, config, &options, tell))?;
    let counts = counts(py, &report)?;
    Ok((report.findings.into_iter().map(row).collect(), counts))
}

fn row(finding: Finding) -> Row {
    let message = finding.message();
    let Finding { path, offset, code, severity, expected, found } = finding;
    let path = path.into_os_string();
    (code.name(), severity.name(), path, offset, expected, found, message, code.fix())
}

/// What was looked at, and behind it how many findings there are of each code, listed or not.
fn counts<'py>(py: Python<'py>, report: &VerifyReport) -> PyResult<Bound<'py, PyDict>> {
    let counts = PyDict::new(py);
    let looked_at = &report.counts;
    for (name, count) in [
        ("messages", looked_at.messages),
        ("log_bytes", looked_at.log_bytes),
        ("log_files", looked_at.log_files),
        ("queues", looked_at.queues),
        ("queue_entries", looked_at.queue_entries),
        ("index_files", looked_at.index_files),
        ("index_entries", looked_at.index_entries),
    ] {
        counts.set_item(name, count)?;
    }
    for (code, count) in &report.found {
        counts.set_item(code.name(), count)?;
    }
    Ok(counts)
}
