//! Rebuild of queues and index, with the report as rows.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

use crate::care::rebuild::divided::{self, Part};
use crate::care::rebuild::rebuild_topics;
use crate::care::{self, RebuildOptions, RebuildReport, RebuildTarget, RebuildWhat, RebuiltQueue};
use crate::error::Error;
use crate::files::Os;
use crate::store::folder::paths::StorePaths;
use crate::store::folder::swap;

use crate::py::fields::config_of;
use crate::py::progress::{threads_of, with_progress};

/// Topic, queue, kind, entries, first and end, and the previous first and end.
type Row = (String, i32, &'static str, u64, i64, i64, Option<(i64, i64)>);

type TopicRow = (String, i32, &'static str, Option<i32>);

type MadeQueues = (Vec<Row>, Vec<(String, i32)>, u64);

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
///     settings: As for ``open_store``.
///
/// Returns:
///     The queues, each ``(topic, queue_id, kind, entries, min_offset, max_offset, was)``; and the
///     other fields of ``mqstore.RebuildReport`` by name.
#[pyfunction]
#[pyo3(signature = (path, /, *, what, topics, out, dry_run, threads, progress, settings))]
#[allow(clippy::too_many_arguments, reason = "keywords of one Python function")]
pub(crate) fn rebuild<'py>(
    py: Python<'py>,
    path: PathBuf,
    what: Vec<String>,
    topics: Option<Vec<String>>,
    out: Option<PathBuf>,
    dry_run: bool,
    threads: Option<i64>,
    progress: Option<Py<PyAny>>,
    settings: &Bound<'py, PyAny>,
) -> PyResult<(Vec<Row>, Bound<'py, PyDict>)> {
    let wanted = wanted(&what)?;
    if topics.as_ref().is_some_and(Vec::is_empty) {
        return Err(PyValueError::new_err("topics is empty; None means all of them"));
    }
    let path = std::path::absolute(&path).map_err(Error::io("find", &path))?;
    let target = target_of(dry_run, out)?;
    let options = RebuildOptions {
        what: wanted,
        topics: topics.map(names_of),
        target,
        threads: threads_of(threads)?,
    };
    let config = config_of(settings)?;
    let report = with_progress(py, progress.as_ref(), |progress| {
        care::rebuild(&path, config, &options, progress)
    })?;
    let fields = fields(py, &report)?;
    Ok((report.queues.into_iter().map(row).collect(), fields))
}

/// Replaces folders of a store by new ones, all or none, under the writer's lock.
///
/// Args:
///     path: The store's root folder.
///     build: Called with a folder; puts the new ones there and returns the names of those to
///         replace. Those that it names and does not put are removed.
///     now_ms: The time that the quarantine is named after.
///     settings: As for ``open_store``.
///
/// Returns:
///     The folder with the old ones; ``None`` if there were none.
#[pyfunction]
#[pyo3(signature = (path, /, *, build, now_ms, settings))]
pub(crate) fn _replace_folders(
    py: Python<'_>,
    path: PathBuf,
    build: Py<PyAny>,
    now_ms: i64,
    settings: &Bound<'_, PyAny>,
) -> PyResult<Option<OsString>> {
    let path = std::path::absolute(&path).map_err(Error::io("find", &path))?;
    let paths = StorePaths::new(&path, &config_of(settings)?);
    let call = |dir: &Path| -> PyResult<Vec<String>> {
        Python::attach(|py| build.call1(py, (dir.as_os_str(),))?.extract(py))
    };
    let kept = py.detach(|| swap::replace_locked::<PyErr>(&Os, &paths, now_ms, call))?;
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
///     settings: As for ``open_store``.
///
/// Returns:
///     The topics, each ``(name, queues, kind, was)``; and other fields of
///     ``mqstore.RebuildReport`` by name.
#[pyfunction]
#[pyo3(signature = (path, /, *, topics, out, dry_run, progress, settings))]
pub(crate) fn _rebuild_topics<'py>(
    py: Python<'py>,
    path: PathBuf,
    topics: Option<Vec<String>>,
    out: Option<PathBuf>,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
    settings: &Bound<'py, PyAny>,
) -> PyResult<(Vec<TopicRow>, Bound<'py, PyDict>)> {
    let (target, config) = (target_of(dry_run, out)?, config_of(settings)?);
    let path = std::path::absolute(&path).map_err(Error::io("find", &path))?;
    let only = topics.map(names_of);
    let report = with_progress(py, progress.as_ref(), |progress| {
        rebuild_topics(&path, config, only.as_deref(), &target, progress)
    })?;
    let fields = PyDict::new(py);
    fields.set_item("messages", report.messages)?;
    fields.set_item("log_start", report.log.0)?;
    fields.set_item("log_end", report.log.1)?;
    fields.set_item("skipped_ranges", report.skipped.ranges)?;
    fields.set_item("quarantine", report.quarantine.map(PathBuf::into_os_string))?;
    let rows = report.topics.into_iter();
    let rows = rows.map(|topic| (topic.name, topic.queues, topic.kind.name(), topic.was));
    Ok((rows.collect(), fields))
}

fn target_of(dry_run: bool, out: Option<PathBuf>) -> PyResult<RebuildTarget> {
    Ok(match (dry_run, out) {
        (true, _) => RebuildTarget::Nothing,
        (false, Some(out)) => {
            let absolute = std::path::absolute(&out).map_err(Error::io("find", &out))?;
            RebuildTarget::Folder(absolute)
        }
        (false, None) => RebuildTarget::InPlace,
    })
}

fn names_of(names: Vec<String>) -> Vec<Box<[u8]>> {
    names.into_iter().map(|name| name.into_bytes().into()).collect()
}

/// Reads a range of a store's log and puts down what queues and index need of it.
///
/// Together, ``_rebuild_scan``, ``_rebuild_settle``, ``_rebuild_queues`` and ``_rebuild_index``
/// make what ``rebuild`` does, and each may run on another machine.
///
/// Args:
///     path: The store's root folder.
///     begin: First physical offset.
///     end: One past the last.
///     groups: How many groups of queues there are.
///     spill: The file that is written, which must not be there.
///     what: As for ``rebuild``.
///     settings: As for ``open_store``.
///
/// Returns:
///     What ``_rebuild_settle`` needs of it.
#[pyfunction]
#[pyo3(signature = (path, /, *, begin, end, groups, spill, what, settings))]
#[allow(clippy::too_many_arguments, reason = "keywords of one Python function")]
pub(crate) fn _rebuild_scan<'py>(
    py: Python<'py>,
    path: PathBuf,
    begin: u64,
    end: u64,
    groups: u32,
    spill: PathBuf,
    what: Vec<String>,
    settings: &Bound<'py, PyAny>,
) -> PyResult<Cow<'static, [u8]>> {
    let (what, config) = (wanted(&what)?, config_of(settings)?);
    let part = Part { path: &path, config: &config, what };
    let scanned =
        with_progress(py, None, |tell| divided::scan(&part, begin..end, groups, &spill, tell));
    scanned.map(Cow::Owned)
}

/// Decides what of the ranges that were read belongs to the log.
///
/// Args:
///     path: The store's root folder.
///     scans: What ``_rebuild_scan`` gave, in the order of the ranges.
///     end: Where the last of them ends.
///     groups: As for ``_rebuild_scan``.
///     spill: A file beside theirs that is written, which must not be there.
///     what: As for ``rebuild``.
///     settings: As for ``open_store``.
///
/// Returns:
///     The plan that the other two need, and what was learned of the log.
#[pyfunction]
#[pyo3(signature = (path, /, *, scans, end, groups, spill, what, settings))]
#[allow(clippy::too_many_arguments, reason = "keywords of one Python function")]
pub(crate) fn _rebuild_settle<'py>(
    py: Python<'py>,
    path: PathBuf,
    scans: Vec<PyBackedBytes>,
    end: u64,
    groups: u32,
    spill: PathBuf,
    what: Vec<String>,
    settings: &Bound<'py, PyAny>,
) -> PyResult<(Cow<'static, [u8]>, Bound<'py, PyDict>)> {
    let (what, config) = (wanted(&what)?, config_of(settings)?);
    let part = Part { path: &path, config: &config, what };
    let scans: Vec<&[u8]> = scans.iter().map(|scan| &**scan).collect();
    let settled =
        with_progress(py, None, |tell| divided::settle(&part, &scans, end, groups, &spill, tell))?;
    let fields = PyDict::new(py);
    fields.set_item("messages", settled.messages)?;
    fields.set_item("log_start", settled.log_start)?;
    fields.set_item("log_end", settled.log_end)?;
    fields.set_item("damaged", settled.damaged)?;
    fields.set_item("index_files", settled.index_files)?;
    fields.set_item("index_keys", settled.index_keys)?;
    fields.set_item("left_out", settled.left_out)?;
    Ok((Cow::Owned(settled.plan), fields))
}

/// Makes a group of a store's queues of what was put down.
///
/// Args:
///     path: The store's root folder.
///     plan: What ``_rebuild_settle`` gave.
///     group: The group's number, from 0.
///     groups: As for ``_rebuild_scan``.
///     spills: The folder of the files that were written.
///     out: An empty folder.
///     settings: As for ``open_store``.
///
/// Returns:
///     The queues as ``rebuild`` gives them, those that were kept, and how many entries no queue
///     takes.
#[pyfunction]
#[pyo3(signature = (path, /, *, plan, group, groups, spills, out, settings))]
#[allow(clippy::too_many_arguments, reason = "keywords of one Python function")]
pub(crate) fn _rebuild_queues<'py>(
    py: Python<'py>,
    path: PathBuf,
    plan: PyBackedBytes,
    group: u32,
    groups: u32,
    spills: PathBuf,
    out: PathBuf,
    settings: &Bound<'py, PyAny>,
) -> PyResult<MadeQueues> {
    let config = config_of(settings)?;
    let what = RebuildWhat { queues: true, index: false };
    let part = Part { path: &path, config: &config, what };
    let made = with_progress(py, None, |tell| {
        divided::queues(&part, &plan, (group, groups), &spills, &out, tell)
    })?;
    let kept = made.kept.iter().map(|(topic, id)| (String::from_utf8_lossy(topic).into(), *id));
    let kept = kept.collect();
    Ok((made.queues.into_iter().map(row).collect(), kept, made.refused))
}

/// Makes one of a store's index files of what was put down.
///
/// Args:
///     path: The store's root folder.
///     plan: What ``_rebuild_settle`` gave.
///     number: Which of the files, from 0.
///     now_ms: The time that the file is named after.
///     spills: The folder of the files that were written.
///     out: An empty folder.
///     settings: As for ``open_store``.
#[pyfunction]
#[pyo3(signature = (path, /, *, plan, number, now_ms, spills, out, settings))]
#[allow(clippy::too_many_arguments, reason = "keywords of one Python function")]
pub(crate) fn _rebuild_index<'py>(
    py: Python<'py>,
    path: PathBuf,
    plan: PyBackedBytes,
    number: u64,
    now_ms: i64,
    spills: PathBuf,
    out: PathBuf,
    settings: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let config = config_of(settings)?;
    let what = RebuildWhat { queues: false, index: true };
    let part = Part { path: &path, config: &config, what };
    with_progress(py, None, |tell| {
        divided::index(&part, &plan, number, now_ms, &spills, &out, tell)
    })
}

fn wanted(what: &[String]) -> PyResult<RebuildWhat> {
    let mut wanted = RebuildWhat { queues: false, index: false };
    for name in what {
        match name.as_str() {
            "consumequeue" => wanted.queues = true,
            "index" => wanted.index = true,
            _ => {
                let shown: String = name.chars().take(64).collect();
                let text = format!("what is made of consumequeue and index, not {shown:?}");
                return Err(PyValueError::new_err(text));
            }
        }
    }
    if what.is_empty() {
        return Err(PyValueError::new_err("what names nothing: consumequeue, index, or both"));
    }
    Ok(wanted)
}

fn row(queue: RebuiltQueue) -> Row {
    let RebuiltQueue { topic, queue_id, kind, entries, min_offset, max_offset, was } = queue;
    let topic = String::from_utf8_lossy(&topic).into_owned();
    (topic, queue_id, kind.name(), entries, min_offset, max_offset, was)
}

fn fields<'py>(py: Python<'py>, report: &RebuildReport) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("messages", report.messages)?;
    fields.set_item("log_start", report.log_start)?;
    fields.set_item("log_end", report.log_end)?;
    fields.set_item("damaged", report.damaged.clone())?;
    let kept = report.kept.iter().map(|(topic, id)| (String::from_utf8_lossy(topic), *id));
    fields.set_item("kept", kept.collect::<Vec<_>>())?;
    fields.set_item("index_files", report.index.files)?;
    fields.set_item("index_keys", report.index.keys)?;
    fields.set_item("refused", report.refused)?;
    fields.set_item("left_out", report.left_out)?;
    let quarantine = report.quarantine.as_ref().map(|dir| dir.as_os_str().to_owned());
    fields.set_item("quarantine", quarantine)?;
    Ok(fields)
}
