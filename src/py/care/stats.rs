//! Counts of messages as rows and as an Arrow stream.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{IntoPyDict, PyDict, PyList};

use crate::care::survey::stats::{self as care, Grouping, StatsOptions, Totals};
use crate::care::survey::{Latency, survey};
use crate::columns::stats_batch;
use crate::config::StoreConfig;
use crate::py::arguments::{not_one_of, value_error};
use crate::py::fields;
use crate::py::process::with_progress;
use crate::py::scan::ArrowScan;
use crate::py::store::location::Location;
use crate::py::store::reading::{on_damage, scan_filter};
use crate::py::values::dict;
use crate::store::read::scan::OnDamage;

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
///     settings: As for ``Store``.
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
    path: Location,
    by: Vec<String>,
    topics: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = fields::tags)] tags: Option<PyBackedStr>,
    #[pyo3(from_py_with = fields::begin_ms)] begin_ms: Option<i64>,
    #[pyo3(from_py_with = fields::end_ms)] end_ms: Option<i64>,
    #[pyo3(from_py_with = fields::on_error)] on_error: &str,
    progress: Option<Py<PyAny>>,
    settings: StoreConfig,
) -> PyResult<Counted<'py>> {
    let options = StatsOptions {
        filter: scan_filter(topics, tags.as_deref(), begin_ms, end_ms)?,
        on_damage: match on_damage(on_error)? {
            OnDamage::Report => Err(not_one_of("on_error", "raise, skip", on_error))?,
            fail_or_skip => fail_or_skip,
        },
        ..StatsOptions::by(&groupings(&by)?)
    };
    let counted = with_progress(py, progress.as_ref(), |report_progress| {
        care::stats(path.storage, &path.path, settings, &options, report_progress)
    })?;
    let rows = PyList::empty(py);
    for (group, totals) in &counted.groups {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let row = PyList::empty(py);
        for grouping in &counted.by {
            match grouping {
                Grouping::Topic => row.append(text(&group.topic)),
                Grouping::QueueId => row.append(group.queue_id),
                Grouping::Tags => row.append(group.tags.as_deref().map(text)),
                time => row.append(group.begin_ms(*time)),
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
    let scan = ArrowScan::of_rows(schema, batches);
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
            return Err(value_error("by", "each name once", format!("{name} twice")));
        }
        groupings.push(grouping);
    }
    Ok(groupings)
}

const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

/// Data of a report about the messages; damage is skipped.
///
/// ``topics`` are ``(name, messages, bytes, first_ms, last_ms)``, the largest first, at
/// most 4,096, and ``others`` the rest. ``cells`` are ``(begin_ms, topic, messages, bytes)`` by
/// time, each ``step_ms`` long, the topic by its place in ``topics`` or one behind the last.
#[pyfunction]
#[pyo3(signature = (path, /, *, progress, settings))]
pub(crate) fn _survey<'py>(
    py: Python<'py>,
    path: Location,
    progress: Option<Py<PyAny>>,
    settings: StoreConfig,
) -> PyResult<Bound<'py, PyDict>> {
    let found = with_progress(py, progress.as_ref(), |report_progress| {
        survey(path.storage, &path.path, settings, report_progress)
    })?;
    let topics: Vec<_> = found
        .topics
        .iter()
        .map(|(name, totals)| {
            let (messages, bytes, first_ms, last_ms) = totals_row(totals);
            (String::from_utf8_lossy(name).into_owned(), messages, bytes, first_ms, last_ms)
        })
        .collect();
    let cells: Vec<_> = found
        .cells
        .iter()
        .map(|cell| (cell.begin_ms, cell.topic, cell.messages, cell.bytes))
        .collect();
    Ok(dict!(py,
        topics: topics,
        others: totals_row(&found.others),
        step_ms: found.step_ms,
        cells: cells,
        latency: latency(py, &found.latency)?,
        skipped_ranges: found.skipped.ranges,
        skipped_bytes: found.skipped.bytes,
    ))
}

fn latency<'py>(py: Python<'py>, found: &Latency) -> PyResult<Bound<'py, PyDict>> {
    let quantiles = QUANTILES.map(|part| (part, found.quantile_ms(part))).into_py_dict(py)?;
    let ranges: Vec<_> =
        found.ranges().map(|range| (range.begin_ms, range.end_ms, range.messages)).collect();
    Ok(dict!(py, { negative, unknown } of found, ranges: ranges, quantiles_ms: quantiles,))
}
