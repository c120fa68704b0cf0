//! Rebuild of queues and index, with the report as rows.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::care::rebuild::rebuild_topics;
use crate::care::{self, RebuildOptions, RebuildTarget, RebuildWhat, RebuiltQueue};
use crate::config::StoreConfig;
use crate::files::Os;
use crate::py::arguments::{not_one_of, value_error};
use crate::store::folder::paths::StorePaths;
use crate::store::folder::swap;

use crate::py::fields;
use crate::py::process::{threads_of, with_progress};
use crate::py::values::dict;

/// Topic, queue, kind, entries, first and end, and the previous first and end.
type Row = (String, i32, &'static str, u64, i64, i64, Option<(i64, i64)>);

type TopicRow = (String, i32, &'static str, Option<i32>);

/// Makes queues and index again; ``mqstore.rebuild`` is the public door to this.
///
/// Args:
///     path: The store's root folder.
///     what: ``"consumequeue"``, ``"index"``.
///     topics: The topics whose queues are made; ``None`` for all.
///     out: The folder to make them in; ``None`` is the store itself.
///     dry_run: Makes nothing.
///     threads: How many threads; ``None`` is as many as there are processors.
///     progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
///         exception from it ends the work.
///     settings: As for ``Store``.
///
/// Returns:
///     The queues, each ``(topic, queue_id, kind, entries, min_offset, max_offset, was)``; and the
///     other fields of ``mqstore.RebuildReport`` by name.
#[pyfunction]
#[pyo3(signature = (path, /, *, what, topics, out, dry_run, threads, progress, settings))]
#[allow(clippy::too_many_arguments, reason = "keywords of one Python function")]
pub(crate) fn rebuild<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = fields::absolute)] path: PathBuf,
    what: Vec<String>,
    topics: Option<Vec<String>>,
    #[pyo3(from_py_with = fields::out_if_given)] out: Option<PathBuf>,
    dry_run: bool,
    threads: Option<i64>,
    progress: Option<Py<PyAny>>,
    settings: StoreConfig,
) -> PyResult<(Vec<Row>, Bound<'py, PyDict>)> {
    let wanted = wanted(&what)?;
    if topics.as_ref().is_some_and(Vec::is_empty) {
        return Err(value_error("topics", "at least one topic", "none; None means all of them"));
    }
    let target = target_of(dry_run, out);
    let options = RebuildOptions {
        what: wanted,
        topics: topics.map(names_of),
        target,
        threads: threads_of(threads)?,
        aside: None,
    };
    let report = with_progress(py, progress.as_ref(), |progress| {
        care::rebuild(&path, settings, &options, progress)
    })?;
    let kept = report.kept.iter().map(|(topic, id)| (String::from_utf8_lossy(topic), *id));
    let fields = dict!(py,
        { messages, log_start, log_end, damaged, refused, left_out } of report,
        kept: kept.collect::<Vec<_>>(),
        index_files: report.index.files,
        index_keys: report.index.keys,
        quarantine: report.quarantine.map(PathBuf::into_os_string),
    );
    Ok((report.queues.into_iter().map(row).collect(), fields))
}

/// Replaces folders of a store by new ones, all or none, under the writer's lock.
///
/// Args:
///     path: The store's root folder.
///     build: Called with a folder; puts the new ones there and returns the names of those to
///         replace. Those that it names and does not put are removed.
///     now_ms: The time that the quarantine is named after.
///     settings: As for ``Store``.
///
/// Returns:
///     The folder with the old ones; ``None`` if there were none.
#[pyfunction]
#[pyo3(signature = (path, /, *, build, now_ms, settings))]
pub(crate) fn _replace_folders(
    py: Python<'_>,
    #[pyo3(from_py_with = fields::absolute)] path: PathBuf,
    build: Py<PyAny>,
    now_ms: i64,
    settings: StoreConfig,
) -> PyResult<Option<OsString>> {
    let paths = StorePaths::new(Arc::new(Os), &path, &settings);
    let call = |dir: &Path| -> PyResult<Vec<String>> {
        Python::attach(|py| build.call1(py, (dir.as_os_str(),))?.extract(py))
    };
    let kept = py.detach(|| swap::replace_locked::<PyErr>(&paths, now_ms, call))?;
    Ok(kept.map(PathBuf::into_os_string))
}

/// Makes the table of topics again; ``mqstore.rebuild`` is the public door to this.
///
/// Args:
///     path: The store's root folder.
///     topics: Only these; ``None`` for all.
///     out: The folder to make it in; ``None`` is the store itself.
///     dry_run: Makes nothing.
///     progress: As for ``rebuild``.
///     settings: As for ``Store``.
///
/// Returns:
///     The topics, each ``(name, queues, kind, was)``; and other fields of
///     ``mqstore.RebuildReport`` by name.
#[pyfunction]
#[pyo3(signature = (path, /, *, topics, out, dry_run, progress, settings))]
pub(crate) fn _rebuild_topics<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = fields::absolute)] path: PathBuf,
    topics: Option<Vec<String>>,
    #[pyo3(from_py_with = fields::out_if_given)] out: Option<PathBuf>,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
    settings: StoreConfig,
) -> PyResult<(Vec<TopicRow>, Bound<'py, PyDict>)> {
    let target = target_of(dry_run, out);
    let only = topics.map(names_of);
    let report = with_progress(py, progress.as_ref(), |progress| {
        rebuild_topics(&path, settings, only.as_deref(), &target, progress)
    })?;
    let fields = dict!(py,
        messages: report.messages,
        log_start: report.log.0,
        log_end: report.log.1,
        skipped_ranges: report.skipped.ranges,
        quarantine: report.quarantine.map(PathBuf::into_os_string),
    );
    let rows = report.topics.into_iter();
    let rows = rows.map(|topic| (topic.name, topic.queues, topic.kind.name(), topic.was));
    Ok((rows.collect(), fields))
}

fn target_of(dry_run: bool, out: Option<PathBuf>) -> RebuildTarget {
    match (dry_run, out) {
        (true, _) => RebuildTarget::Nothing,
        (false, Some(out)) => RebuildTarget::Folder(out),
        (false, None) => RebuildTarget::InPlace,
    }
}

fn names_of(names: Vec<String>) -> Vec<Box<[u8]>> {
    names.into_iter().map(|name| name.into_bytes().into()).collect()
}

fn wanted(what: &[String]) -> PyResult<RebuildWhat> {
    let mut wanted = RebuildWhat { queues: false, index: false };
    for name in what {
        match name.as_str() {
            "consumequeue" => wanted.queues = true,
            "index" => wanted.index = true,
            _ => return Err(not_one_of("what", "consumequeue, index", name)),
        }
    }
    if what.is_empty() {
        return Err(value_error("what", "consumequeue, index, or both", "neither"));
    }
    Ok(wanted)
}

fn row(queue: RebuiltQueue) -> Row {
    let RebuiltQueue { topic, queue_id, kind, entries, min_offset, max_offset, was } = queue;
    let topic = String::from_utf8_lossy(&topic).into_owned();
    (topic, queue_id, kind.name(), entries, min_offset, max_offset, was)
}
