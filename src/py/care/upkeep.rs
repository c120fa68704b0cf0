//! Recovery and retention of a closed store, with reports for Python.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::care::{self, Recover};
use crate::config::{DeleteRules, StoreConfig};
use crate::files::SystemClock;
use crate::store::RecoveryReport;
use crate::store::open::plan::RecoveryPlan;
use crate::store::open::refusal::{Refusal, Why};
use crate::store::write::retention::Pressure;
use crate::time::Clock;

use crate::py::fields;
use crate::py::process::{self, with_progress};
use crate::py::values::dict;

/// Fields of ``mqstore.RecoveryReport``.
pub(crate) fn recovery_report<'py>(
    py: Python<'py>,
    report: &RecoveryReport,
    applied: bool,
    refusal: Option<&Refusal>,
) -> PyResult<Bound<'py, PyDict>> {
    let messages = report.quarantined_messages.iter().map(|message| {
        (
            message.physical_offset,
            String::from_utf8_lossy(&message.topic),
            message.queue_id,
            message.queue_offset,
            message.store_timestamp_ms,
        )
    });
    Ok(dict!(py,
        { end_physical_offset, quarantined_count, rebuilt, dispatched } of report,
        mode: report.mode.name(),
        cut: report.cut_bytes,
        cut_reason: report.cut_reason.as_ref().map(ToString::to_string),
        quarantine: report.quarantine.as_ref().map(|path| path.as_os_str()),
        quarantined_messages: messages.collect::<Vec<_>>(),
        applied: applied,
        damage: refusal.map(|refusal| refusal.damage.to_string()),
        messages_beyond: refusal.map_or(0, |refusal| refusal.messages_beyond),
        cure: refusal.map(cure),
    ))
}

fn cure(refusal: &Refusal) -> &'static str {
    if matches!(&refusal.why, Why::Missing(missing) if !missing.spares.is_empty()) {
        "put the missing files back in their place; if they are gone for good, `mqstore doctor` prints \
         the commands that end the log before them"
    } else if refusal.can_cut {
        "`mqstore salvage` copies every whole message into a new store; `mqstore recover --apply \
         --drop-beyond` ends the log here and keeps what lies behind in the quarantine"
    } else {
        "`mqstore salvage` copies every whole message into a new store; or put the missing or whole \
         file back in its place"
    }
}

/// Says what recovery would do, or does it; ``mqstore.recover`` is the public door to this.
///
/// Args:
///     path: The store's root folder.
///     dry_run: Changes nothing.
///     drop_beyond: Ends the log at damage although whole messages lie behind it.
///     progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
///         exception from it ends the call before anything was changed.
///     settings: As for ``Store``.
#[pyfunction]
#[pyo3(signature = (path, /, *, dry_run, drop_beyond, progress, settings))]
pub(crate) fn recover<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = fields::absolute)] path: PathBuf,
    dry_run: bool,
    drop_beyond: bool,
    progress: Option<Py<PyAny>>,
    settings: StoreConfig,
) -> PyResult<Bound<'py, PyDict>> {
    let what = match (dry_run, drop_beyond) {
        (true, _) => Recover::Plan,
        (false, false) => Recover::Apply,
        (false, true) => Recover::DropBeyond,
    };
    let plan = with_progress(py, progress.as_ref(), |report_progress| {
        care::recover(&path, settings, what, report_progress)
    })?;
    let RecoveryPlan { report, refusal, warnings } = plan;
    let fields = recovery_report(py, &report, !dry_run, refusal.as_ref())?;
    fields.set_item("warnings", warnings)?;
    Ok(fields)
}

/// Path, bytes, whether it is deleted, reason.
type Row = (OsString, u64, bool, String);

/// Says what retention would delete, or deletes it; ``mqstore.clean`` is the public door.
///
/// Args:
///     path: The store's root folder.
///     now_ms: The time that counts, Unix milliseconds; ``None`` is now.
///     dry_run: Changes nothing.
///     settings: As for ``Store``.
///     backed_up_to: Physical offset up to which a backup has the log; files that end behind it
///         are kept. ``None`` asks for no backup.
///
/// Returns:
///     The files, each ``(path, bytes, delete, reason)``, and the other fields of
///     ``mqstore.CleanReport`` by name.
#[pyfunction]
#[pyo3(signature = (path, /, *, now_ms, dry_run, settings, backed_up_to=None))]
pub(crate) fn clean<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = fields::absolute)] path: PathBuf,
    #[pyo3(from_py_with = fields::now_ms)] now_ms: Option<i64>,
    dry_run: bool,
    settings: StoreConfig,
    backed_up_to: Option<u64>,
) -> PyResult<(Vec<Row>, Bound<'py, PyDict>)> {
    let now_ms = now_ms.unwrap_or_else(|| SystemClock.now_ms());
    let report = py.detach(|| care::clean(&path, settings, now_ms, dry_run, backed_up_to))?;
    let rows = report.judgement.files.iter().map(|file| {
        let path = file.path.strip_prefix(&report.path).unwrap_or(&file.path);
        let reason = file.fate.reason(&report.config);
        (path.as_os_str().to_owned(), file.bytes, file.fate.goes(), reason)
    });
    process::log(py, &report.notices);
    let unread = report
        .judgement
        .unread
        .iter()
        .map(|unread| (&unread.group, &unread.topic, unread.queue_id, unread.messages));
    let stops_at_full = report.config.delete_rules() == DeleteRules::RocketMq;
    let fields = dict!(py,
        { log_start, new_log_start } of report.judgement,
        freed_bytes: report.freed_bytes,
        unread: unread.collect::<Vec<_>>(),
        log_disk_percent: report.disk.log_percent,
        queue_disk_percent: report.disk.queue_percent,
        disk_full: stops_at_full && report.pressure == Pressure::Full,
    );
    Ok((rows.collect(), fields))
}
