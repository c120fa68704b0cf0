//! Copies of stores, and comparison of two stores.

use std::path::PathBuf;
use std::sync::Arc;

use hashbrown::HashSet;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict};

use crate::care::transfer::copy::{self, Redaction, Replacement};
use crate::care::transfer::numbering::{self, Ends};
use crate::care::transfer::{ConfigFile, NumberRule, Plan, Transfer};
use crate::care::{self, CopyOptions};
use crate::config::StoreConfig;
use crate::error::Error;
use crate::files::{Os, SystemClock};
use crate::format::message::{Frame, Record, read_frame};
use crate::store::NewMessage;
use crate::store::read::scan::filter::MoreConditions;
use crate::store::write::append;
use crate::time::Clock;

use crate::py::arguments::not_one_of;
use crate::py::errors::InvalidMessageError;
use crate::py::fields;
use crate::py::process::with_progress;
use crate::py::store::location::Location;
use crate::py::store::message::Message;
use crate::py::store::reading::scan_filter;
use crate::py::values::dict;

/// A message or record, with queue offset and position if known, and the row's number.
type Row<'py> = (Bound<'py, PyAny>, Option<i64>, Option<i64>, u64);

/// Makes a store of messages; ``mqstore.import_store`` is the public door to this.
///
/// Args:
///     path: The store to make; nothing, or an empty folder, may be there.
///     batches: Messages, or whole records as bytes, each with its queue offset or ``None`` for the
///         next one of its queue, the physical offset that it had or ``None``, and the number of
///         its row. A message that names no time or host gets the present ones.
///     place: The file and the word before a row's number, for errors.
///     settings: As for ``Store``.
///     files: Names and bytes of the files that are to lie in ``config``; tables of offsets are
///         changed with the numbers of the messages.
///     base_offset: Where the log begins.
///     renumber: Whether each queue is numbered from 0 on.
///
/// Returns:
///     How many messages were written, the bytes of their records, how many others stand in for
///     queue offsets that no message has, and whether each lies where its record said.
///
/// Raises:
///     InvalidMessageError: Bytes that are no record, a record that fits into no file, or values
///         that no append takes; the text begins with the row's place.
///     StoreIOError: Something is at ``path`` already, or the system refused something.
#[pyfunction]
#[pyo3(signature = (path, batches, /, *, place, settings, files, base_offset, renumber))]
#[expect(clippy::too_many_arguments, reason = "as many as may be asked for")]
pub(crate) fn import_messages<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = fields::absolute)] path: PathBuf,
    batches: &Bound<'py, PyAny>,
    place: &str,
    settings: StoreConfig,
    files: Vec<ConfigFile>,
    base_offset: u64,
    renumber: bool,
) -> PyResult<(u64, u64, u64, bool)> {
    let store_host = settings.store_host;
    let plan = Plan {
        config: settings,
        base_offset,
        rule: if renumber { NumberRule::FromZero } else { NumberRule::Keep },
        closed_up: HashSet::new(),
        files,
        expected: 0,
    };
    let mut transfer = Transfer::begin(Arc::new(Os), &path, plan)?;
    let mut ends = Ends::default();
    let at = |number: u64| move |error: Error| in_row(place, number, error);
    let mut newest_ms = 0;
    for batch in batches.try_iter()? {
        let rows: Vec<Row<'py>> = batch?.extract()?;
        let mut records = Vec::with_capacity(rows.len());
        for (message, queue_offset, physical_offset, number) in rows {
            let whole = message.cast::<PyBytes>();
            let is_whole = whole.is_ok();
            let record = match whole {
                Ok(record) => record.as_bytes().to_vec(),
                Err(_) => {
                    let message = message.cast::<Message>().map_err(|_| {
                        fields::expected("rows", "a Message, or a record as bytes", &message)
                    })?;
                    let given = message.get().view();
                    let time = given.store_timestamp_ms;
                    newest_ms = time.unwrap_or_else(|| SystemClock.now_ms().max(newest_ms));
                    let whole = NewMessage {
                        store_host: given.store_host.or(Some(store_host)),
                        store_timestamp_ms: Some(newest_ms),
                        ..given
                    };
                    append::encode(
                        &whole,
                        physical_offset.unwrap_or(-1),
                        queue_offset.unwrap_or(0),
                        false,
                    )
                    .map_err(at(number))?
                }
            };
            records.push((record, queue_offset.is_some(), is_whole, number));
        }
        py.check_signals()?;
        py.detach(|| -> PyResult<()> {
            for (bytes, numbered, is_whole, number) in &records {
                let Ok(Frame::Message(view)) = read_frame(bytes) else {
                    let error = Error::argument("record", "a whole record", "other bytes");
                    return Err(at(*number)(error));
                };
                let mut record = Record::of(&view);
                if !numbered {
                    record.queue_offset = transfer.next_number(view.topic(), view.queue_id());
                }
                numbering::check_row(&record, *is_whole).map_err(at(*number))?;
                if *numbered || !renumber {
                    ends.take(&record).map_err(at(*number))?;
                }
                transfer.put(&record).map_err(at(*number))?;
            }
            Ok(())
        })?;
    }
    let answer = (transfer.messages, transfer.bytes, transfer.stand_ins, transfer.in_place);
    py.detach(|| transfer.finish(&[]))?;
    Ok(answer)
}

#[cold]
fn in_row(place: &str, number: u64, error: Error) -> PyErr {
    match error {
        Error::InvalidMessage { field, reason, status, limit } => {
            let text = format!("{place} {number}: {field}: {reason}");
            InvalidMessageError::new_err((text, field, status.name(), limit))
        }
        other => other.into(),
    }
}

/// A replacement's name, and a constant's bytes.
type Named = (String, Option<Vec<u8>>);
/// Topic patterns, the body's replacement, and replacements of properties.
type GivenRule = (Vec<String>, Option<Named>, Vec<(String, Named)>);

fn replacement((name, constant): Named) -> PyResult<Replacement> {
    Ok(match (name.as_str(), constant) {
        ("zeros", None) => Replacement::Zeros,
        ("hash", None) => Replacement::Hash,
        ("remove", None) => Replacement::Remove,
        ("constant", Some(bytes)) => Replacement::Constant(bytes),
        _ => return Err(not_one_of("redact", "zeros, hash, remove, constant", &name)),
    })
}

fn redaction(rules: Vec<GivenRule>, salt: Vec<u8>) -> PyResult<Redaction> {
    let mut made = Vec::with_capacity(rules.len());
    for (topics, body, properties) in rules {
        let mut named = Vec::with_capacity(properties.len());
        for (name, given) in properties {
            copy::check_property(&name)?;
            named.push((name, replacement(given)?));
        }
        let body = body.map(replacement).transpose()?;
        made.push(copy::Rule { topics, body, properties: named });
    }
    Ok(Redaction { rules: made, salt })
}

/// Copies a store or a part of it; ``mqstore.copy`` is the public door to this.
///
/// Args:
///     path: The store.
///     out: The store to make; nothing, or an empty folder, may be there.
///     topics: Only these topics.
///     tags: A tag expression.
///     keys: Only messages with one of these keys.
///     begin_ms: First store time.
///     end_ms: Last store time.
///     renumber: Whether each queue is numbered from 0 on.
///     rules: Patterns of topics, what takes the place of bodies, and of properties by their
///         names: ``("zeros", None)``, ``("hash", None)``, ``("remove", None)``, or
///         ``("constant", bytes)``.
///     salt: Bytes hashed with each value.
///     progress: Called with ``(done_bytes, total_bytes)`` now and then.
///     settings: As for ``Store``.
///
/// Returns:
///     The fields of ``mqstore.CopyReport`` but the two paths.
///
/// Raises:
///     CorruptionError: Damage in the source.
///     ConfigError: A property that may not be replaced.
///     StoreIOError: Something is at ``out`` already, or the system refused something.
#[pyfunction]
#[pyo3(signature = (
    path, out, /, *, topics, tags, keys, begin_ms, end_ms, renumber, rules, salt, progress, settings
))]
#[expect(clippy::too_many_arguments, reason = "as many as may be asked for")]
pub(crate) fn copy_store<'py>(
    py: Python<'py>,
    path: Location,
    #[pyo3(from_py_with = fields::absolute)] out: PathBuf,
    topics: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = fields::tags)] tags: Option<PyBackedStr>,
    keys: Option<Vec<String>>,
    #[pyo3(from_py_with = fields::begin_ms)] begin_ms: Option<i64>,
    #[pyo3(from_py_with = fields::end_ms)] end_ms: Option<i64>,
    renumber: bool,
    rules: Vec<GivenRule>,
    salt: Vec<u8>,
    progress: Option<Py<PyAny>>,
    settings: StoreConfig,
) -> PyResult<Bound<'py, PyDict>> {
    let mut filter = scan_filter(topics, tags.as_deref(), begin_ms, end_ms)?;
    filter.more = keys.map(|keys| {
        let mut more = MoreConditions::default();
        more.keys = Some(keys.into_iter().map(|key| key.into_bytes().into()).collect());
        Box::new(more)
    });
    let options = CopyOptions { filter, renumber, redaction: redaction(rules, salt)? };
    let report = with_progress(py, progress.as_ref(), |report_progress| {
        care::copy(path.storage, &path.path, &out, settings, &options, report_progress)
    })?;
    Ok(dict!(py,
        { messages, bytes, left_out, stand_ins, redacted } of report,
        { renumbered, in_place, config_files, deleted_topics } of report,
    ))
}

/// Holds two stores against each other; ``mqstore.diff`` is the public door to this.
///
/// Args:
///     a: The first store.
///     b: The second.
///     progress: Called with ``(done_queues, total_queues)`` now and then.
///     settings: As for ``Store``.
///
/// Returns:
///     ``queues`` and ``messages`` as in ``mqstore.DiffReport``; ``differing``, each ``(topic,
///     queue_id, same, missing, extra, different)``; ``differences``, each ``(kind, topic,
///     queue_id, queue_offset, fields)``.
///
/// Raises:
///     NotDispatchedError: Too much of a log is in no queue.
///     StoreIOError: The system refused something.
#[pyfunction]
#[pyo3(signature = (a, b, /, *, progress, settings))]
pub(crate) fn diff_stores<'py>(
    py: Python<'py>,
    a: Location,
    b: Location,
    progress: Option<Py<PyAny>>,
    settings: StoreConfig,
) -> PyResult<Bound<'py, PyDict>> {
    let report = with_progress(py, progress.as_ref(), |report_progress| {
        let (a, b) = ((a.storage, &*a.path), (b.storage, &*b.path));
        care::diff(a, b, &settings, report_progress)
    })?;
    let text = |topic: &[u8]| String::from_utf8_lossy(topic).into_owned();
    let differing = report.differing.iter().map(|queue| {
        let counts = (queue.same, queue.missing, queue.extra, queue.different);
        (text(&queue.topic), queue.queue_id, counts.0, counts.1, counts.2, counts.3)
    });
    let differences = report.differences.iter().map(|found| {
        let topic = text(&found.topic);
        (found.kind.name(), topic, found.queue_id, found.queue_offset, &found.fields)
    });
    Ok(dict!(py,
        { queues, messages } of report,
        differing: differing.collect::<Vec<_>>(),
        differences: differences.collect::<Vec<_>>(),
    ))
}
