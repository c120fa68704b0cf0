//! A report's survey as plain Python values.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::care::survey::{Latency, survey};
use crate::error::Error;

use super::stats::totals_row;
use crate::py::fields::config_of;
use crate::py::progress::with_progress;

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
    path: PathBuf,
    progress: Option<Py<PyAny>>,
    settings: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let config = config_of(settings)?;
    let path = std::path::absolute(&path).map_err(Error::io("find", &path))?;
    let found = with_progress(py, progress.as_ref(), |tell| survey(&path, config, tell))?;
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
    let survey = PyDict::new(py);
    survey.set_item("topics", topics)?;
    survey.set_item("others", totals_row(&found.others))?;
    survey.set_item("step_ms", found.step_ms)?;
    survey.set_item("cells", cells)?;
    survey.set_item("latency", latency(py, &found.latency)?)?;
    survey.set_item("skipped_ranges", found.skipped.ranges)?;
    survey.set_item("skipped_bytes", found.skipped.bytes)?;
    Ok(survey)
}

fn latency<'py>(py: Python<'py>, found: &Latency) -> PyResult<Bound<'py, PyDict>> {
    let quantiles = PyDict::new(py);
    for part in QUANTILES {
        quantiles.set_item(part, found.quantile_ms(part))?;
    }
    let ranges: Vec<_> =
        found.ranges().map(|range| (range.begin_ms, range.end_ms, range.messages)).collect();
    let latency = PyDict::new(py);
    latency.set_item("ranges", ranges)?;
    latency.set_item("quantiles_ms", quantiles)?;
    latency.set_item("negative", found.negative)?;
    latency.set_item("unknown", found.unknown)?;
    Ok(latency)
}
