//! Parts of a log or queue as Arrow streams, one for each of many readers.

use std::sync::Arc;

use hashbrown::HashSet;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;

use crate::care::topics;
use crate::columns::{queue_batches, queue_schema};
use crate::config::StoreConfig;
use crate::error::Error;
use crate::format::message::purpose::Purpose;
use crate::log::Queue;
use crate::log::read::range_scan::RangeScan;
use crate::log::read::scanner::Lost;
use crate::store::LogSource;
use crate::store::read::scan::filter::{MoreConditions, TopicTest};
use crate::store::read::scan::places::{self, QueuePart};
use crate::store::read::scan::{self, Offsets, Places, Scan};

use super::scan::{ArrowScan, Messages, limits, named_columns};
use crate::py::fields;
use crate::py::store::location::{Location, location_of};
use crate::py::store::reading::{damage_named, filter_of, scan_filter};

fn topic_test(test: Py<PyAny>) -> TopicTest {
    Arc::new(move |topic: &[u8]| {
        let topic = String::from_utf8_lossy(topic);
        Python::attach(|py| {
            test.bind(py).call1((topic.as_ref(),)).and_then(|answer| answer.is_truthy())
        })
        .unwrap_or(false)
    })
}

fn is_business(topic: &[u8]) -> bool {
    Purpose::of(topic) == Purpose::Normal && !topics::is_system(topic)
}

/// A part of a store's log as rows, for many readers that share one log.
///
/// The log's files are listed and no more: neither queues nor index are looked at, and where the
/// log ends is said by the caller. Ranges that meet give each record once and each damaged range
/// once, wherever they are cut.
///
/// Args:
///     path: The store's root folder.
///     begin: First physical offset: the records that begin from there on are meant.
///     end: One past the last.
///     log_end: How far the log may be read.
///     settings: As for ``Store``.
///     columns: Names of columns, in order; beside those of a message ``record`` (the bytes as they
///         are stored) and ``tags_code``.
///     batch_rows: Most rows of a batch.
///     batch_bytes: Most bytes of bodies in a batch, unless one alone has more.
///     broker: Value of the column ``broker``.
///     topics: Only these topics.
///     topic_test: Called once for each topic; those that it answers with ``False`` are left out.
///     queues: Bounds of queue offsets, each ``(topic, queue_id, begin, end)``, half-open.
///     only_these_queues: Whether queues that have no bounds are left out.
///     tags: A tag expression.
///     keys: Only messages with one of these as key or unique key.
///     delivered_only: Whether messages that no queue names are left out: prepared, rolled back.
///     business_only: Whether a broker's own topics, retries and dead letters are left out.
///     begin_ms: First store time that counts.
///     end_ms: Last store time that counts.
///     on_error: At damage: ``"fail"`` ends with an error, ``"skip"`` goes on, ``"rows"`` gives a
///         row for each damaged range with ``error`` set.
///     verify_crc: Whether each body is compared with its checksum.
///     decompress: Whether ``body`` is what the producer sent, and not what is stored.
///     fail_on_data_loss: Whether it is an error when files of the range are gone.
///     places: Only the records that begin at these physical offsets.
///     queue_parts: Only the records that these parts of queues name, each
///         ``(topic, queue_id, begin, end)``.
///     threads: How many threads a long range may have, unless there is a `topic_test`; ``None`` is
///         as many as there are processors.
///
/// Raises:
///     NotAStoreError: No such folder, or no store in it.
///     ConfigError: Files and settings differ.
///     CorruptionError: A queue's folder that cannot be.
///     StoreIOError: The operating system refused something.
///     ValueError: An unknown column, or a number out of bounds.
#[pyfunction]
#[pyo3(signature = (
    path, begin, end, /, *, log_end, settings, columns=None, batch_rows=8192, batch_bytes=8388608,
    broker=None, topics=None, topic_test=None, queues=Vec::new(), only_these_queues=false, tags=None,
    keys=None, delivered_only=false, business_only=false, begin_ms=None, end_ms=None, on_error="fail", verify_crc=true, decompress=true,
    fail_on_data_loss=true, places=None, queue_parts=None, threads=None
))]
#[expect(clippy::too_many_arguments, reason = "each is an argument of Python's")]
#[expect(clippy::fn_params_excessive_bools, reason = "they are keywords in Python")]
pub(crate) fn scan_log(
    py: Python<'_>,
    #[pyo3(from_py_with = location_of)] path: Location,
    begin: u64,
    end: u64,
    log_end: u64,
    #[pyo3(from_py_with = fields::config_of)] settings: StoreConfig,
    columns: Option<&Bound<'_, PyAny>>,
    batch_rows: usize,
    batch_bytes: usize,
    broker: Option<String>,
    topics: Option<&Bound<'_, PyAny>>,
    topic_test: Option<Py<PyAny>>,
    queues: Vec<QueuePart>,
    only_these_queues: bool,
    #[pyo3(from_py_with = fields::tags)] tags: Option<PyBackedStr>,
    keys: Option<&Bound<'_, PyAny>>,
    delivered_only: bool,
    business_only: bool,
    begin_ms: Option<i64>,
    end_ms: Option<i64>,
    #[pyo3(from_py_with = fields::on_error)] on_error: &str,
    verify_crc: bool,
    decompress: bool,
    fail_on_data_loss: bool,
    places: Option<Vec<u64>>,
    queue_parts: Option<Vec<QueuePart>>,
    threads: Option<usize>,
) -> PyResult<ArrowScan> {
    let columns = named_columns(columns)?;
    let limits = limits(batch_rows, batch_bytes)?;
    let mut filter = scan_filter(topics, tags.as_deref(), begin_ms, end_ms)?;
    // A test needs the interpreter, which a thread waiting for the makers may hold.
    let threads = if topic_test.is_some() { Some(1) } else { threads };
    let mut more = MoreConditions::default();
    more.topic_test = topic_test.map(self::topic_test);
    if business_only {
        let given = more.topic_test.take();
        more.topic_test = Some(Arc::new(move |topic| {
            is_business(topic) && given.as_ref().is_none_or(|test| test(topic))
        }));
    }
    more.delivered_only = delivered_only;
    more.only_these_queues = only_these_queues;
    for (topic, queue_id, begin, end) in queues {
        let topic = topic.into_bytes().into_boxed_slice();
        more.queues.entry(topic).or_default().insert(queue_id, (begin, end));
    }
    if let Some(keys) = keys {
        let mut wanted = HashSet::new();
        crate::py::fields::each_key(keys, |key| {
            wanted.insert(Box::from(key.as_bytes()));
            Ok(())
        })?;
        more.keys = Some(wanted);
    }
    filter.more = Some(Box::new(more));
    let on_damage = damage_named(["fail", "skip", "rows"], on_error)?;
    let lost = if fail_on_data_loss { Lost::Refuse } else { Lost::Accept };
    let (log, places) = py.detach(|| {
        let Location { path, storage, .. } = path;
        let log = places::open_log(&storage, &path, &settings, log_end)?;
        let offsets: Option<Vec<(u64, u32)>> = match (places, queue_parts) {
            (Some(mut places), _) => {
                places.retain(|at| (begin..end).contains(at));
                places.sort_unstable();
                places.dedup();
                Some(places.into_iter().map(|at| (at, 0)).collect())
            }
            (None, Some(parts)) => {
                let within = begin..end.min(log_end);
                Some(places::places_of(&storage, &path, &settings, &parts, &filter.tags, within)?)
            }
            (None, None) => None,
        };
        let places = match offsets {
            Some(offsets) => Places::Offsets(Offsets::new(offsets.into(), verify_crc, lost)),
            None => Places::Range(Box::new(RangeScan::new(begin, end, log_end, verify_crc, lost))),
        };
        Ok::<_, Error>((log, places))
    })?;
    Ok(ArrowScan::of_messages(Messages {
        source: LogSource::Log(Arc::new(log)),
        scan: Scan::of(places, filter, on_damage),
        columns,
        limits,
        decompress,
        broker,
        names_damaged: true,
        threads,
    }))
}

type Ranges = Vec<(u64, u64)>;

/// Records of a part of a log that a tag expression may match, by the tags codes in the queues.
///
/// Args:
///     path: The store's root folder.
///     begin: First physical offset.
///     end: One past the last.
///     log_end: How far the log may be read.
///     settings: As for ``Store``.
///     tags: A tag expression.
///
/// Returns:
///     Physical offsets of records, and half-open ranges that no queue entry covers: what is in
///     them is unknown. Together they hold every message that matches.
///
/// Raises:
///     NotAStoreError: No such folder, or no store in it.
///     ConfigError: Files and settings differ.
///     StoreIOError: The operating system refused something.
#[pyfunction]
#[pyo3(signature = (path, begin, end, /, *, log_end, settings, tags))]
pub(crate) fn tag_places(
    py: Python<'_>,
    #[pyo3(from_py_with = location_of)] path: Location,
    begin: u64,
    end: u64,
    log_end: u64,
    #[pyo3(from_py_with = fields::config_of)] settings: StoreConfig,
    tags: &str,
) -> PyResult<(Vec<u64>, Ranges)> {
    let filter = filter_of(Some(tags));
    let found = py.detach(|| {
        let Location { path, storage, .. } = path;
        let log = places::open_log(&storage, &path, &settings, log_end)?;
        scan::tag_places(&storage, &path, &settings, &log, &filter, begin..end.min(log_end))
    })?;
    let records = found.records.into_iter().map(|(at, _)| at).collect();
    Ok((records, found.gaps.into_iter().map(|gap| (gap.start, gap.end)).collect()))
}

/// The entries of one consume queue as rows.
///
/// Args:
///     path: The queue's folder, as for ``ConsumeQueue``.
///     begin: First queue offset.
///     end: One past the last.
///
/// Returns:
///     ``queue_offset``, ``physical_offset``, ``store_size``, ``tags_code``, ``message_count`` and
///     ``store_timestamp_ms`` (null but in a batch queue).
///
/// Raises:
///     NotAStoreError: No such folder.
///     CorruptionError: A file name or length that cannot be, or files that leave a gap.
#[pyfunction]
#[pyo3(signature = (path, begin, end, /))]
pub(crate) fn scan_queue(
    py: Python<'_>,
    #[pyo3(from_py_with = location_of)] path: Location,
    begin: i64,
    end: i64,
) -> PyResult<ArrowScan> {
    let (queue, begin, end) = py.detach(|| {
        let queue = Queue::open_folder(path.storage, &path.path, None)?;
        let first = queue.leading_positions()?.start;
        let position_of = |number| queue.partition_point_by(|unit| unit.number < number);
        let (begin, end) = (position_of(begin)?.max(first), position_of(end)?);
        Ok::<_, Error>((Arc::new(queue), begin, end))
    })?;
    Ok(ArrowScan::new(queue_schema(), move |schema, _| {
        Ok(Box::new(queue_batches(Arc::clone(&queue), begin, end, schema)))
    }))
}
