//! Carving whole messages out of damaged files.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::care;
use crate::config::StoreConfig;
use crate::files::Os;

use crate::py::fields;
use crate::py::process::with_progress;
use crate::py::store::location::Location;
use crate::py::values::dict;

/// Carves messages out of damaged files; ``mqstore.salvage`` is the public door to this.
///
/// Args:
///     source: A store, a folder of files, or a file.
///     out: The store to make, or ``None`` to look only.
///     progress: Called with ``(done_bytes, total_bytes)`` now and then.
///     settings: As for ``Store``.
///
/// Returns:
///     The fields of ``mqstore.SalvageReport`` but the two paths, with plain tuples in them.
///
/// Raises:
///     NotAStoreError: No file is there to read.
///     ConfigError: ``out`` lies inside of ``source``.
///     UnsupportedError: More loose pieces than can be put in order.
///     StoreIOError: Something is at ``out`` already, or the system refused something.
#[pyfunction]
#[pyo3(signature = (source, out, /, *, progress, settings))]
pub(crate) fn salvage<'py>(
    py: Python<'py>,
    source: Location,
    #[pyo3(from_py_with = fields::out_if_given)] out: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
    settings: StoreConfig,
) -> PyResult<Bound<'py, PyDict>> {
    let report = with_progress(py, progress.as_ref(), |report_progress| {
        let Location { path, storage, .. } = source;
        let out = out.as_deref();
        care::salvage(storage, &path, out, settings, Arc::new(Os), report_progress)
    })?;
    let files = report.files.into_iter().map(|(path, found)| {
        (
            path.into_os_string(),
            found.bytes,
            found.messages,
            found.message_bytes,
            found.other_ranges,
            found.other_bytes,
            found.left,
            found.passed_over,
        )
    });
    let conflicts = report.merged.listed.into_iter().map(|found| {
        let ((first, first_at), (second, second_at)) = (found.first, found.second);
        let (first, second) = (first.into_os_string(), second.into_os_string());
        (found.physical_offset, first, first_at, second, second_at)
    });
    let passed_over = report.passed_over.into_iter().map(|found| {
        let path = found.path.into_os_string();
        (path, found.offset, found.bytes, found.physical_offset, found.reason)
    });
    let problems = report.problems.into_iter();
    let problems = problems.map(|found| (found.path.into_os_string(), found.reason));
    let renumbered = report.renumbered.iter();
    let renumbered = renumbered.map(|(topic, id)| (String::from_utf8_lossy(topic), *id));
    Ok(dict!(py,
        { messages, bytes, queues, missing, stand_ins, in_place, config_files } of report,
        { duplicates, overlapping } of report.merged,
        conflict_count: report.merged.conflicts,
        conflicts: conflicts.collect::<Vec<_>>(),
        files: files.collect::<Vec<_>>(),
        renumbered: renumbered.collect::<Vec<_>>(),
        passed_over: passed_over.collect::<Vec<_>>(),
        problems: problems.collect::<Vec<_>>(),
    ))
}
