//! Diagnoses of a store as rows for Python.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::care::{self, Diagnosis};
use crate::error::Error;

use crate::py::fields::config_of;
use crate::py::progress::with_progress;

/// Code, severity, title, evidence, cure, fix.
type Row = (&'static str, &'static str, &'static str, Vec<String>, Option<String>, &'static str);

/// Examines a store; ``mqstore.doctor`` is the public door to this. Never writes.
///
/// Args:
///     path: The store's root folder.
///     progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
///         exception from it ends the examination.
///     settings: As for ``open_store``.
///
/// Returns:
///     The diagnoses, each ``(code, severity, title, evidence, cure, fix)``, sorted by code.
#[pyfunction]
#[pyo3(signature = (path, /, *, progress, settings))]
pub(crate) fn doctor(
    py: Python<'_>,
    path: PathBuf,
    progress: Option<Py<PyAny>>,
    settings: &Bound<'_, PyAny>,
) -> PyResult<Vec<Row>> {
    let config = config_of(settings)?;
    let path = std::path::absolute(&path).map_err(Error::io("find", &path))?;
    let found = with_progress(py, progress.as_ref(), |tell| care::doctor(&path, &config, tell))?;
    Ok(found.into_iter().map(row).collect())
}

fn row(diagnosis: Diagnosis) -> Row {
    let Diagnosis { code, severity, evidence, cure } = diagnosis;
    (code.name(), severity.name(), code.title(), evidence, cure, code.fix())
}
