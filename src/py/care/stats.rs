//! Counts of messages as rows and as an Arrow stream.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::care::survey::stats::{self as care, Grouping, StatsOptions, Totals};
use crate::columns::stats_batch;
use crate::error::Error;
use crate::store::read::scan::OnDamage;

use crate::py::arrow::scan::{ArrowScan, Rows};
use crate::py::errors::not_one_of;
use crate::py::fields::{self, config_of};
use crate::py::progress::with_progress;
use crate::py::store::reading::{on_damage, scan_filter};

/// Messages, bytes, first and last store time.
pub(crate) type TotalsRow = (u64, u64, i64, i64);

/// Stream, rows, totals of groups beyond the limit, skipped ranges and bytes, deleted messages and
/// bytes, stand-ins.
type Counted<'py> = (ArrowScan, Bound<'py, PyList>, TotalsRow, (u64, u64), (u64, u64), u64);

/// Counts messages; ``mqstore.stats`` is the public door to this.
///
/// Args:
///     path: The store's root folder.
///     by: Names out of ``topic``, ``queue_id``, ``minute``, ``quarter_hour``, ``hour``, ``day``,
///         ``tags``.
///     topics: As for ``Store.scan``, and so are the next four.
///     tags: As for ``Store.scan``.
///     begin_ms: As for ``Store.scan``.
///     end_ms: As for ``Store.scan``.
///     on_error: As for ``Store.scan``.
///     progress: Called with ``(done_bytes, total_bytes)`` now and then, on the calling thread; an
///         exception from it ends the count.
///     settings: As for ``open_store``.
///
/// Returns:
///     The counts as an Arrow stream; the same as rows; messages, bytes, first and last store time
///     of what had no room; how many damaged ranges were skipped, and their bytes; how many
///     messages and bytes of the whole store were deleted; how many counted messages stand in for
///     lost ones.
#[pyfunction]
#[pyo3(signature = (path, /, *, by, topics, tags, begin_ms, end_ms, on_error, progress, settings))]
#[expect(clippy::too_many_arguments, reason = "each is an argument of Python's")]
pub(crate) fn stats<'py>(
    py: Python<'py>,
    path: PathBuf,
    by: Vec<String>,
    topics: Option<&Bound<'py, PyAny>>,
    tags: Option<&str>,
    #[pyo3(from_py_with = fields::begin_ms)] begin_ms: Option<i64>,
    #[pyo3(from_py_with = fields::end_ms)] end_ms: Option<i64>,
    on_error: &str,
    progress: Option<Py<PyAny>>,
    settings: &Bound<'py, PyAny>,
) -> PyResult<Counted<'py>> {
    let options = StatsOptions {
        filter: scan_filter(topics, tags, begin_ms, end_ms)?,
        on_damage: match on_damage(on_error)? {
            OnDamage::Report => Err(not_one_of("on_error", "raise, skip", on_error))?,
            fail_or_skip => fail_or_skip,
        },
        ..StatsOptions::by(&groupings(&by)?)
    };
    let config = config_of(settings)?;
    let path = std::path::absolute(&path).map_err(Error::io("find", &path))?;
    let counted =
        with_progress(py, progress.as_ref(), |tell| care::stats(&path, config, &options, tell))?;
    let rows = PyList::empty(py);
    for (group, totals) in &counted.groups {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let row = PyList::empty(py);
        for grouping in &counted.by {
            match grouping {
                Grouping::Topic => row.append(text(&group.topic)),
                Grouping::QueueId => row.append(group.queue_id),
                Grouping::Minute => row.append(group.minute_ms),
                Grouping::QuarterHour => row.append(group.quarter_hour_ms),
                Grouping::Hour => row.append(group.hour_ms),
                Grouping::Day => row.append(group.day_ms),
                Grouping::Tags => row.append(group.tags.as_deref().map(text)),
            }?;
        }
        let (messages, bytes, first_ms, last_ms) = totals_row(totals);
        row.append(messages)?;
        row.append(bytes)?;
        row.append(first_ms)?;
        row.append(last_ms)?;
        rows.append(row.to_tuple())?;
    }
    let batch = stats_batch(&counted).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let others = totals_row(&counted.others);
    let skipped = counted.skipped;
    let skipped = (skipped.ranges, skipped.bytes);
    let schema = batch.schema();
    let batches = Some(batch).filter(|batch| batch.num_rows() > 0).into_iter().collect();
    let scan = ArrowScan::new(Rows { schema, batches });
    Ok((scan, rows, others, skipped, counted.deleted, counted.stand_ins))
}

pub(crate) fn totals_row(totals: &Totals) -> TotalsRow {
    (totals.messages, totals.bytes, totals.first_store_timestamp_ms, totals.last_store_timestamp_ms)
}

fn groupings(names: &[String]) -> PyResult<Vec<Grouping>> {
    let mut groupings = Vec::new();
    for name in names {
        let Some(grouping) = Grouping::by_name(name) else {
            return Err(not_one_of(
                "by",
                "topic, queue_id, minute, quarter_hour, hour, day, tags",
                name,
            ));
        };
        if groupings.contains(&grouping) {
            return Err(PyValueError::new_err(format!("by names {name} twice")));
        }
        groupings.push(grouping);
    }
    Ok(groupings)
}
