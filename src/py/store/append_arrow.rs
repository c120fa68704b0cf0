//! Appends the rows of an Arrow stream.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::ArrowError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyDict;
use pyo3_arrow::PyRecordBatchReader;
use pyo3_arrow::error::PyArrowError;

use crate::columns::{MessageRows, RowsError};
use crate::error::{self, Error};
use crate::format::message::host::Host;
use crate::store::write::append::BatchError;
use crate::store::{MessageStore, NewMessage};

use super::Store;
use super::append::{CHUNK, CHUNK_BYTES, PACE, culprit};
use crate::py::arguments::value_error;
use crate::py::errors::{invalid, raise, with_text};
use crate::py::fields;
use crate::py::values::{AppendResult, AppendSummary, topic_of};

/// Rows whose columns are cast at once: an interrupt waits for no more.
const PART: usize = 64 * CHUNK;

type Written = Vec<AppendResult>;

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
    ///         String bodies are stored as UTF-8; ``born_timestamp_ms`` and ``store_timestamp_ms``
    ///         are taken too, as integers.
    ///     atomic: Checks every row before the first is written, so that a row that is refused
    ///         leaves nothing behind. The whole stream is held in memory. A crash or a full disk
    ///         may keep a part.
    ///     resume_from: Skips so many rows: those that an error said were written.
    ///     assume_timezone: Zone of timestamps without one, such as ``"UTC"`` or
    ///         ``"Europe/Berlin"``. ``None``: they are refused.
    ///
    /// Raises:
    ///     InvalidMessageError: As ``append_many``. The message says how many rows were written.
    ///     TypeError: ``data`` gives no Arrow stream, or a column has another type.
    ///     ValueError: A column is missing, or has a name that no column of a message has.
    ///     KeyboardInterrupt: Ctrl-C, between two chunks of rows; ``.summary`` is an
    ///         ``AppendSummary`` of what was written.
    #[pyo3(
        signature = (data, /, *, atomic=false, resume_from=0, assume_timezone=None, **others),
        text_signature = "($self, data, /, *, atomic=False, resume_from=0, assume_timezone=None)"
    )]
    fn append_arrow(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = fields::atomic)] atomic: bool,
        #[pyo3(from_py_with = fields::resume_from)] resume_from: usize,
        #[pyo3(from_py_with = fields::assume_timezone)] assume_timezone: Option<PyBackedStr>,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<AppendSummary> {
        fields::no_others("Store.append_arrow", others)?;
        let assume_timezone = assume_timezone.as_deref();
        fields::zone(assume_timezone)?;
        let store = self.writing()?;
        let mut reader = reader_of(data)?;
        let no_message = store.append_many(&[]).map(|_| ());
        no_message.map_err(|stopped| stopped.error)?;
        let host = store.config().store_host;
        let first = store.log().end_offset();
        let mut written = Written::new();
        let (mut blocks, mut kept, mut read) = (Vec::new(), Vec::new(), 0);
        let culprit = |error, written: &Written, index| {
            let error = rows_in(py, error, resume_from + written.len());
            culprit(py, error, written.clone(), index)
        };
        loop {
            let next = next_batch(py, &mut reader);
            let Some(batch) = next.map_err(|error| culprit(error, &written, read))? else { break };
            let skipped = resume_from.saturating_sub(read).min(batch.num_rows());
            let mut from = skipped;
            while from == skipped || from < batch.num_rows() {
                let part = batch.slice(from, PART.min(batch.num_rows() - from));
                let before = read + from;
                from += PART;
                let rows = py
                    .detach(|| MessageRows::given(&part, assume_timezone))
                    .map_err(|error| culprit(refusal(&error), &written, before))?;
                if atomic {
                    kept.push((before, rows));
                    check_signals(py, first, &written)?;
                    continue;
                }
                let mut begin = 0;
                while begin < rows.len() {
                    begin = py
                        .detach(|| append(store, host, &rows, begin, &mut blocks, &mut written))
                        .map_err(|(row, error)| {
                            culprit(raise(error, host), &written, before + row)
                        })?;
                    check_signals(py, first, &written)?;
                }
            }
            read += batch.num_rows();
        }
        if resume_from > read {
            let wanted = format!("at most the {read} rows of the stream");
            return Err(value_error("resume_from", wanted, resume_from));
        }
        py.detach(|| append_whole(store, host, &kept, &mut written))
            .map_err(|(row, error)| culprit(raise(error, host), &written, row))?;
        check_signals(py, first, &written)?;
        Ok(summary(first, &written))
    }
}

fn append_whole(
    store: &MessageStore,
    host: Host,
    batches: &[(usize, MessageRows)],
    written: &mut Written,
) -> Result<(), Failure> {
    let mut blocks: Vec<Vec<u8>> = batches.iter().map(|_| Vec::new()).collect();
    let mut messages = Vec::new();
    for ((before, rows), block) in batches.iter().zip(&mut blocks) {
        let all = rows.messages(0..rows.len(), block);
        messages.extend(all.map_err(|(row, error)| (before + row, error))?);
    }
    let before = batches.first().map_or(0, |(before, _)| *before);
    note(store.append_whole(&messages), before, host, &messages, written)
}

/// Adds what was written of `messages`, whose first is row `begin`.
fn note(
    outcome: Result<Vec<error::AppendResult>, Box<BatchError>>,
    begin: usize,
    host: Host,
    messages: &[NewMessage<'_>],
    written: &mut Written,
) -> Result<(), Failure> {
    let (results, failure) = match outcome {
        Ok(results) => (results, Ok(())),
        Err(stopped) => (stopped.results, Err((begin + stopped.index, stopped.error))),
    };
    for (result, message) in results.into_iter().zip(messages) {
        let topic = topic_of(message.topic, written.last().map(|last| &last.topic));
        let host = message.store_host.unwrap_or(host);
        written.push(AppendResult::new(&result, host, topic, message.queue_id));
    }
    failure
}

fn rows_in(py: Python<'_>, error: PyErr, rows: usize) -> PyErr {
    with_text(py, error, |text| match rows {
        0 => format!("{text}; no row was written"),
        _ => format!("{text}; {rows} rows were written: go on with resume_from={rows}"),
    })
}

/// The summary; the log ended at `first` before.
fn summary(first: u64, written: &Written) -> AppendSummary {
    let mut summary = AppendSummary::before(first);
    written.iter().for_each(|result| summary.add(result.physical_offset, result.store_size));
    summary
}

fn reader_of(data: &Bound<'_, PyAny>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
    if !data.hasattr("__arrow_c_stream__")? {
        return Err(fields::expected("data", "an Arrow stream (__arrow_c_stream__)", data));
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
    note(store.append_shared(&messages), begin, host, &messages, written)?;
    Ok(begin + within)
}

/// Raises an interrupt with the summary of what was written.
fn check_signals(py: Python<'_>, first: u64, written: &Written) -> PyResult<()> {
    py.check_signals().inspect_err(|error| {
        let summary = Bound::new(py, summary(first, written));
        let _ = summary.and_then(|summary| error.value(py).setattr("summary", summary));
    })
}

fn refusal(error: &RowsError) -> PyErr {
    let text = error.to_string();
    match error {
        RowsError::Type { .. } => PyTypeError::new_err(text),
        RowsError::Range { name, reason } => invalid(name, reason.as_str()),
        _ => PyValueError::new_err(text),
    }
}
