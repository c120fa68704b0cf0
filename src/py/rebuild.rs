//! Making queues and index again: options in, the report as rows.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::care::{self, RebuildOptions, RebuildReport, RebuildTarget, RebuildWhat, RebuiltQueue};
use crate::error::Error;

use super::progress::{threads_of, with_progress};
use super::store::config_of;

/// Topic, queue, kind, entries, first and end, the same two before.
type Row = (String, i32, &'static str, u64, i64, i64, Option<(i64, i64)>);

/// Makes queues and index again.
#[pyfunction]
#[pyo3(signature = (path, /, *, what, topics, out, dry_run, threads, progress, settings))]
#[allow(clippy::too_many_arguments, reason = "keywords of one Python function")]
pub(super) fn rebuild<'py>(
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
    let mut wanted = RebuildWhat { queues: false, index: false };
    for name in &what {
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
    if topics.as_ref().is_some_and(Vec::is_empty) {
        return Err(PyValueError::new_err("topics is empty; None means all of them"));
    }
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(Error::io("find", path));
    let path = absolute(&path)?;
    let target = match (dry_run, &out) {
        (true, _) => RebuildTarget::Nothing,
        (false, Some(out)) => RebuildTarget::Folder(absolute(out)?),
        (false, None) => RebuildTarget::InPlace,
    };
    let options = RebuildOptions {
        what: wanted,
        topics: topics
            .map(|names| names.into_iter().map(|name| name.into_bytes().into()).collect()),
        target,
        threads: threads_of(threads)?,
    };
    let given = PyDict::new(py);
    given.update(settings.cast()?)?;
    let config = config_of(&given)?;
    let report = with_progress(py, progress.as_ref(), |progress| {
        care::rebuild(&path, config, &options, progress)
    })?;
    let fields = fields(py, &report)?;
    Ok((report.queues.into_iter().map(row).collect(), fields))
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
