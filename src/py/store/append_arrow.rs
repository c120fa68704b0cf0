//! Appends the rows of an Arrow stream.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::ArrowError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyo3_arrow::PyRecordBatchReader;
use pyo3_arrow::error::PyArrowError;

use crate::columns::{MessageRows, RowsError};
use crate::error::{self, Error};
use crate::format::message::host::Host;
use crate::format::width::at_most_i64;
use crate::store::{MessageStore, NewMessage};

use super::{CHUNK, CHUNK_BYTES, PACE, Store};
use crate::py::errors::{invalid, raise};
use crate::py::values::{AppendResult, AppendSummary};

/// Results so far, and the address in message ids.
type Written = Vec<(error::AppendResult, Host)>;

type Failure = (usize, Error);

#[pymethods]
impl Store {
    /// Writes the rows of an Arrow stream.
    ///
    /// Args:
    ///     data: Anything with ``__arrow_c_stream__``. Columns are those of ``ARROW_SCHEMA`` by
    ///         name, in any order; ``topic`` and ``body`` are needed, null means left out, and what
    ///         only a stored message has (offsets, sizes, ids, checksums) is not read. Columns of
    ///         other names are refused.
    ///
    /// Raises:
    ///     InvalidMessageError: As ``append_many``.
    ///     TypeError: ``data`` gives no Arrow stream, or a column has another type.
    ///     ValueError: A column is missing, or has a name that no column of a message has.
    ///     KeyboardInterrupt: Ctrl-C, between two chunks of rows; ``.summary`` is an
    ///         ``AppendSummary`` of what was written.
    #[pyo3(signature = (data, /))]
    fn append_arrow(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<AppendSummary> {
        let store = self.writing()?;
        let mut reader = reader_of(data)?;
        let no_message = store.append_many(&[]).map(|_| ());
        no_message.map_err(|stopped| stopped.error)?;
        let host = store.config().store_host;
        let first = store.log().end_offset();
        let mut written = Written::new();
        let mut blocks = Vec::new();
        while let Some(batch) = next_batch(py, &mut reader)? {
            let before = written.len();
            let rows = py
                .detach(|| MessageRows::new(&batch))
                .map_err(|error| culprit(py, refusal(&error), &written, before))?;
            let mut begin = 0;
            while begin < rows.len() {
                begin = py
                    .detach(|| append(store, host, &rows, begin, &mut blocks, &mut written))
                    .map_err(|(row, error)| {
                        culprit(py, raise(error, host), &written, before + row)
                    })?;
                py.check_signals()
                    .map_err(|error| interrupted(py, error, summary(first, &written)))?;
            }
        }
        Ok(summary(first, &written))
    }
}

/// The summary; the log ended at `first` before.
fn summary(first: u64, written: &Written) -> AppendSummary {
    let end = at_most_i64(first);
    let last = written.last().map(|(last, _)| last);
    AppendSummary {
        count: written.len() as u64,
        first_physical_offset: written.first().map_or(end, |(first, _)| first.physical_offset),
        end_physical_offset: last
            .map_or(end, |last| last.physical_offset.saturating_add(last.store_size.into())),
    }
}

fn reader_of(data: &Bound<'_, PyAny>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
    if !data.hasattr("__arrow_c_stream__")? {
        let found = data.get_type().name()?;
        return Err(PyTypeError::new_err(format!("{found} has no __arrow_c_stream__")));
    }
    data.extract::<PyRecordBatchReader>()?.into_reader()
}

fn next_batch(
    py: Python<'_>,
    reader: &mut Box<dyn RecordBatchReader + Send>,
) -> PyResult<Option<RecordBatch>> {
    // A stream that fails without a message makes the reader panic.
    let silent = || ArrowError::CDataInterface("the stream failed and did not say why".to_owned());
    let next = py.detach(|| catch_unwind(AssertUnwindSafe(|| reader.next())));
    match next.unwrap_or_else(|_| Some(Err(silent()))) {
        Some(Ok(batch)) => Ok(Some(batch)),
        Some(Err(error)) => Err(PyArrowError::from(error).into()),
        None => Ok(None),
    }
}

/// Appends rows from `begin` on until the next signal check; returns the next row.
fn append(
    store: &MessageStore,
    host: Host,
    rows: &MessageRows,
    begin: usize,
    blocks: &mut Vec<u8>,
    written: &mut Written,
) -> Result<usize, Failure> {
    let mut messages = rows.messages(begin..rows.len().min(begin + CHUNK), blocks)?;
    let mut bytes = 0;
    let is_within = |message: &NewMessage<'_>| {
        let before = bytes;
        bytes += message.body.len();
        before < CHUNK_BYTES
    };
    let within = messages.iter().copied().take_while(is_within).count();
    messages.truncate(within);
    if store.lacks_queue_files(&messages) {
        store.wait_for_queue_files(PACE);
        return Ok(begin);
    }
    let (results, failure) = match store.append_shared(&messages) {
        Ok(results) => (results, None),
        Err(stopped) => (stopped.results, Some((begin + stopped.index, stopped.error))),
    };
    let hosts = messages.iter().map(|message| message.store_host.unwrap_or(host));
    written.extend(results.into_iter().zip(hosts));
    failure.map_or(Ok(begin + within), Err)
}

fn interrupted(py: Python<'_>, error: PyErr, summary: AppendSummary) -> PyErr {
    // An exception that takes no attribute is raised unchanged.
    let _ = Bound::new(py, summary).and_then(|summary| error.value(py).setattr("summary", summary));
    error
}

fn refusal(error: &RowsError) -> PyErr {
    let text = error.to_string();
    match error {
        RowsError::Type { .. } => PyTypeError::new_err(text),
        RowsError::Range { name, reason } => invalid(name, reason.as_str()),
        _ => PyValueError::new_err(text),
    }
}

/// An exception with the results and the failed index.
fn culprit(py: Python<'_>, error: PyErr, written: &Written, index: usize) -> PyErr {
    let value = error.value(py);
    let results = written.iter().map(|(result, host)| AppendResult::new(result, *host));
    let told = results
        .map(|result| Bound::new(py, result))
        .collect::<PyResult<Vec<_>>>()
        .and_then(|results| value.setattr("results", PyList::new(py, results)?))
        .and_then(|()| value.setattr("index", index));
    // An exception that takes no attribute is raised unchanged.
    drop(told);
    error
}
