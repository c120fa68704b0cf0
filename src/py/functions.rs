//! Functions over bytes and text, and two over a store's files.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{IntoPyDict, PyBytes, PyList};

use crate::care::broker::{self, Line};
use crate::care::topics;
use crate::config::{SETTINGS, Setting, StoreConfig};
use crate::error::{Error, Result};
use crate::files::{Access, Os, copy_tree, make_folder};
use crate::format::checkpoint::{TIMER_CHECKPOINT_LEN, TimerCheckpoint};
use crate::format::config::json;
use crate::format::index::{ENTRY_LEN, IndexEntry, SLOT_LEN};
use crate::format::java;
use crate::format::message::host::{self, Host};
use crate::format::queue::consume_queue;
use crate::format::queue::names_a_folder;
use crate::log::CommitLog;
use crate::log::read::anchor::Anchor;
use crate::py::arguments::{shown, value_error};
use crate::py::errors::invalid;
use crate::py::fields;
use crate::py::store::location::Location;
use crate::py::store::message::Message;
use crate::py::values::{MessageId, dict};
use crate::store::NewMessage;
use crate::store::folder::lock::{self, StoreLock};
use crate::store::folder::paths::StorePaths;
use crate::store::folder::{config_file, owner};
use crate::store::read::scan::places;
use crate::store::write::append;

/// ``String.hashCode`` of a text: over UTF-16 units, 32 bits, signed.
#[pyfunction]
#[pyo3(signature = (text, /))]
pub(crate) fn java_hash(#[pyo3(from_py_with = fields::text)] text: &str) -> i32 {
    java::hash_code(text.as_bytes())
}

/// The index's hash of ``"topic#key"``: never negative, and -2**31 counts as 0.
///
/// ``IndexFile#indexKeyHashMethod``.
#[pyfunction]
#[pyo3(signature = (key, /))]
pub(crate) fn key_hash(#[pyo3(from_py_with = fields::key)] key: PyBackedStr) -> i32 {
    java::key_hash_of(key.as_bytes())
}

/// The consume queue's code of a tag: its Java hash, 0 for none (``tagsString2tagsCode``).
#[pyfunction]
#[pyo3(signature = (tags, /))]
pub(crate) fn tags_code(#[pyo3(from_py_with = fields::tags)] tags: Option<PyBackedStr>) -> i64 {
    consume_queue::tags_code(tags.as_deref().map(str::as_bytes))
}

/// Takes a store's message id apart (``MessageDecoder#decodeMessageId``).
///
/// Raises:
///     ValueError: Not 32 or 56 hex digits.
#[pyfunction]
#[pyo3(signature = (text, /))]
pub(crate) fn parse_message_id(
    #[pyo3(from_py_with = fields::text)] text: &str,
) -> PyResult<MessageId> {
    host::parse_message_id(text)
        .map(MessageId)
        .ok_or_else(|| value_error("text", "a message id of 32 or 56 hex digits", shown(text)))
}

/// Writes one record, as the commit log would hold it.
///
/// Args:
///     message: The message. A time or host that it leaves out is taken from the arguments.
///     physical_offset: Where the record is to begin in the commit log.
///     queue_offset: Its entry number in its queue.
///     store_timestamp_ms: The store's time where the message has none, and so the producer's.
///     store_host: The store's address where the message has none, and so the producer's.
///     append_property_crc: Ends the properties with their checksum (``enabledAppendPropCRC``).
///
/// Raises:
///     InvalidMessageError: The record cannot be: a field too long, a time or host that neither
///         gives.
#[pyfunction]
#[pyo3(signature = (
    message, /, *, physical_offset, queue_offset, store_timestamp_ms=None, store_host=None,
    append_property_crc=false
))]
pub(crate) fn encode<'py>(
    message: &Bound<'py, Message>,
    physical_offset: i64,
    queue_offset: i64,
    #[pyo3(from_py_with = fields::encoded_timestamp_ms)] store_timestamp_ms: Option<i64>,
    #[pyo3(from_py_with = fields::store_host)] store_host: Option<Host>,
    append_property_crc: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let given = message.get().view();
    let store_host = given.store_host.or(store_host);
    let store_timestamp_ms = given.store_timestamp_ms.or(store_timestamp_ms);
    let missing =
        |field| move || Error::argument(field, "it in the message or as argument", "neither");
    let whole = NewMessage {
        store_host: Some(store_host.ok_or_else(missing("store_host"))?),
        store_timestamp_ms: Some(store_timestamp_ms.ok_or_else(missing("store_timestamp_ms"))?),
        ..given
    };
    let record = append::encode(&whole, physical_offset, queue_offset, append_property_crc)?;
    Ok(PyBytes::new(message.py(), &record))
}

/// Reads ``config/timercheck``; ``None`` for a file that is missing or too short.
///
/// Returns the time before which timers are delivered, and the next entry of the timer's topic.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn _timer_check(path: Location) -> PyResult<Option<(i64, i64)>> {
    let Location { path, storage, .. } = path;
    let Some(file) = storage.open_if_there(&path, Access::Read)? else { return Ok(None) };
    let bytes = file.read_most(0, TIMER_CHECKPOINT_LEN).map_err(Error::io("read", &path))?;
    let check = bytes.first_chunk().map(TimerCheckpoint::decode);
    Ok(check.map(|check| (check.last_read_ms, check.queue_offset)))
}

/// Whether a process writes to a store, and which, where the system tells.
///
/// Asks for the state of the record lock on ``<path>/lock`` without taking it; a store without that
/// file is not locked. The calling process's own stores count.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn lock_state(py: Python<'_>, path: Location) -> (bool, Option<i32>) {
    py.detach(|| StoreLock::state(&*path.storage, &path.path))
}

/// Whether a topic, as its bytes, may name a folder of queues.
#[pyfunction]
#[pyo3(signature = (topic, /))]
pub(crate) fn _names_a_folder(topic: &[u8]) -> bool {
    names_a_folder(topic)
}

/// Lists files below a store's root that hold no messages, queues or keys.
///
/// Timer wheel and timer log, queues and logs of compacted topics, RocksDB databases, DLedger logs,
/// epoch files. Nothing is changed, and no link followed.
///
/// Returns:
///     A mapping for each, by path: ``structure`` (``timer-wheel``, ``timer-log``,
///     ``sparse-queue``, ``compaction-log``, ``rocksdb``, ``dledger``, ``epoch-file``,
///     ``broker-identity``), ``what`` it is, its ``path`` below the root, how many ``files`` and
///     ``bytes`` it has, and ``counts``: by name what is counted in it (slots, units, entries,
///     messages, epochs), empty where the format is not known.
///
/// Raises:
///     StoreIOError: A file or folder cannot be read.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn inventory(py: Python<'_>, path: Location) -> PyResult<Bound<'_, PyList>> {
    let found =
        py.detach(|| crate::store::folder::inventory::inventory(&*path.storage, &path.path))?;
    let rows = PyList::empty(py);
    for found in found {
        rows.append(dict!(py,
            structure: found.structure.name(),
            what: found.structure.what(),
            path: found.path,
            files: found.files,
            bytes: found.bytes,
            counts: found.counts.into_py_dict(py)?,
        ))?;
    }
    Ok(rows)
}

type AnchorRow = (u64, u32, u32);

fn log_of(path: &Location, config: &StoreConfig) -> Result<CommitLog> {
    places::open_log(&path.storage, &path.path, config, u64::MAX)
}

/// Evidence that a log is the one that was read up to a physical offset, newest first.
///
/// Returns:
///     Where a record begins, its length, and the CRC-32 of its bytes: of the last record before
///     the offset, and of some that lie further and further back.
///
/// Raises:
///     NotAStoreError: No such folder, or no store in it.
///     StoreIOError: The operating system refused something.
#[pyfunction]
#[pyo3(signature = (path, physical_offset, /, *, settings))]
pub(crate) fn _anchors(
    py: Python<'_>,
    path: Location,
    physical_offset: u64,
    settings: StoreConfig,
) -> PyResult<Vec<AnchorRow>> {
    let found = py.detach(|| Anchor::ladder(&log_of(&path, &settings)?, physical_offset))?;
    Ok(found.into_iter().map(|one| (one.physical_offset, one.store_size, one.crc)).collect())
}

/// The record that lies now where ``_anchors`` found one; ``None`` if the same, or deleted.
///
/// Raises:
///     NotAStoreError: No such folder, or no store in it.
///     StoreIOError: The operating system refused something.
#[pyfunction]
#[pyo3(signature = (path, anchor, /, *, settings))]
pub(crate) fn _other_than(
    py: Python<'_>,
    path: Location,
    anchor: AnchorRow,
    settings: StoreConfig,
) -> PyResult<Option<String>> {
    let (physical_offset, store_size, crc) = anchor;
    let anchor = Anchor { physical_offset, store_size, crc };
    Ok(py.detach(|| anchor.other(&log_of(&path, &settings)?))?)
}

/// The meaning of a path below a store's root; ``None`` for a path that is not a store's.
///
/// Returns:
///     The name directly below the root, the meaning of its files, and whether it is a folder.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn _store_name(path: &str) -> Option<(&'static str, &'static str, bool)> {
    let known = crate::store::folder::inventory::known_name(path)?;
    Some((known.name, known.what, known.below.is_some()))
}

/// Makes this process leave no page of a file that it reads in the page cache.
///
/// Pages that another process has mapped and touched stay. Read-ahead is off then.
#[pyfunction]
pub(crate) fn _spare_page_cache() {
    crate::files::spare_page_cache();
}

/// Unix milliseconds of an argument ``at``: a ``datetime`` with a zone, or such a number.
#[pyfunction]
#[pyo3(signature = (at, /))]
pub(crate) fn _time_ms(#[pyo3(from_py_with = fields::at_ms)] at: i64) -> i64 {
    at
}

/// Enters entries of an index file into a table of its slots, and returns the table.
///
/// Args:
///     table: Slots as in the file.
///     entries: Whole entries as in the file, of which the first has the number `first`.
///     first: That number.
#[pyfunction]
#[pyo3(signature = (table, entries, first, /))]
pub(crate) fn _index_slots<'py>(
    py: Python<'py>,
    table: &[u8],
    entries: &[u8],
    first: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, table.len(), |bytes| {
        bytes.copy_from_slice(table);
        let (slots, _) = bytes.as_chunks_mut::<SLOT_LEN>();
        for (number, entry) in (first..=u32::MAX).zip(entries.as_chunks::<ENTRY_LEN>().0) {
            let hash = IndexEntry::decode(entry).key_hash.unsigned_abs() as usize;
            if let Some(slot) = hash.checked_rem(slots.len()).and_then(|at| slots.get_mut(at)) {
                *slot = number.to_be_bytes();
            }
        }
        Ok(())
    })
}

/// Whether a broker creates the topic for itself.
#[pyfunction]
#[pyo3(signature = (topic, /))]
pub(crate) fn _is_system_topic(topic: &str) -> bool {
    topics::is_system(topic.as_bytes())
}

/// Whether a consumer group is a broker's own.
#[pyfunction]
#[pyo3(signature = (group, /))]
pub(crate) fn _is_system_group(group: &str) -> bool {
    topics::is_system_group(group)
}

/// The table of settings as JSON, which ``mqstore._settings`` reads.
#[pyfunction]
pub(crate) fn _settings(py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
    let json =
        serde_json::to_vec(SETTINGS).map_err(|error| invalid("settings", error.to_string()))?;
    Ok(PyBytes::new(py, &json))
}

/// The values that a setting can have, if ``value`` is none of them.
///
/// Raises:
///     KeyError: An unknown name.
#[pyfunction]
#[pyo3(signature = (name, value, /))]
pub(crate) fn _setting_refusal(name: &str, value: &str) -> PyResult<Option<String>> {
    let setting = Setting::of(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
    Ok(setting.refusal(value))
}

/// A line of a ``broker.conf``, as 5.x takes it.
///
/// Returns:
///     ``"of_broker"``, ``"of_four"``, ``"ours"``, ``"setting"`` or ``"unknown"``; the setting, or
///     the name that 5.x takes; and the value that it reads, ``None`` where it keeps its default.
#[pyfunction]
#[pyo3(signature = (name, value, /))]
pub(crate) fn _read_broker_line(
    name: &str,
    value: &str,
) -> (&'static str, &'static str, Option<String>) {
    match broker::read_line(name, value) {
        Line::OfBroker => ("of_broker", "", None),
        Line::OfFour(new) => ("of_four", new, None),
        Line::Ours(setting) => ("ours", setting.name, None),
        Line::Setting(setting, value) => ("setting", setting.name, value),
        Line::Unknown => ("unknown", "", None),
    }
}

/// The table of one of the broker's own JSON files as strict JSON, as a broker reads it.
///
/// Returns:
///     The text of the file, or of its backup (``.bak``) where the file is missing, empty or
///     damaged; ``None`` without either.
///
/// Raises:
///     CorruptionError: Neither can be read.
///     StoreIOError: The operating system refused something.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn _load_config_json(py: Python<'_>, path: Location) -> PyResult<Option<String>> {
    let Location { path, storage, .. } = path;
    let loaded = py.detach(|| config_file::load(&*storage, &path, json::to_strict))?;
    Ok(loaded.map(|loaded| loaded.table))
}

/// Replaces one of the broker's own JSON files atomically; its old content becomes ``.bak``.
///
/// Raises:
///     CorruptionError: The file is damaged, and its content would be lost.
///     StoreIOError: The operating system refused something.
///     UnsupportedError: More than a broker's file may hold.
#[pyfunction]
#[pyo3(signature = (path, text, /))]
pub(crate) fn _write_config_json(py: Python<'_>, path: PathBuf, text: &str) -> PyResult<()> {
    Ok(py.detach(|| {
        let before = match config_file::load(&Os, &path, json::to_strict)? {
            Some(loaded) => loaded.for_writing()?.1,
            None => None,
        };
        config_file::write(&Os, &path, before.as_deref(), text.as_bytes())
    })?)
}

/// Copies one of the broker's own JSON files to a numbered name, before a cure changes it.
///
/// Returns:
///     The copy, ``consumerOffset.json.mqstore-1`` and so on; ``None`` where there is no file.
///
/// Raises:
///     StoreIOError: The operating system refused something.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn _keep_config(py: Python<'_>, path: PathBuf) -> PyResult<Option<PathBuf>> {
    Ok(py.detach(|| config_file::keep(&Os, &path))?)
}

/// One of the broker's own JSON files as strict JSON, such as ``config/consumerOffset.json``.
///
/// RocketMQ writes maps of numbers with bare keys (``{0:128}``); here they are quoted. Nothing else
/// is changed, not the order of members either. Where the file cannot be read as JSON, RocketMQ's
/// copy beside it (``.bak``) is not looked at.
///
/// Raises:
///     CorruptionError: Not JSON even so, nested deeper than 64, or larger than 64 MiB.
///     StoreIOError: The file cannot be read.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn read_config_json(py: Python<'_>, path: Location) -> PyResult<String> {
    Ok(py.detach(|| {
        let Location { path, storage, .. } = path;
        let bytes = config_file::read_existing(&*storage, &path)?;
        json::to_strict(&bytes).map_err(|error| error.in_file(&path, 0))
    })?)
}

/// Refuses if files made in a store would not get owner and group of its folders.
///
/// Raises:
///     StoreIOError: They would not, or the operating system refused something.
#[pyfunction]
#[pyo3(signature = (path, /, *, settings))]
pub(crate) fn _check_owner(
    py: Python<'_>,
    #[pyo3(from_py_with = fields::absolute)] path: PathBuf,
    settings: StoreConfig,
) -> PyResult<()> {
    let paths = StorePaths::new(Arc::new(Os), &path, &settings);
    Ok(py.detach(|| owner::check(&paths))?)
}

/// Replaces a file, or makes it and its folders: atomically and durably.
///
/// Raises:
///     StoreIOError: The operating system refused something.
#[pyfunction]
#[pyo3(signature = (path, data, /))]
pub(crate) fn _replace_file(py: Python<'_>, path: PathBuf, data: PyBackedBytes) -> PyResult<()> {
    Ok(py.detach(|| -> Result<()> {
        make_folder(&Os, path.parent().unwrap_or(&path))?;
        lock::replace(&Os, &path, &data)
    })?)
}

/// Copies a folder, with what is in it and is no link, to a new one.
///
/// Raises:
///     StoreIOError: The operating system refused something.
#[pyfunction]
#[pyo3(signature = (source, target, /))]
pub(crate) fn _copy_folder(py: Python<'_>, source: PathBuf, target: PathBuf) -> PyResult<()> {
    Ok(py.detach(|| copy_tree(&Os, &source, &target))?)
}
