//! One index file: put, select, contents.

pub(crate) mod arrow;

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyTuple;

use crate::error::{Error, Result};
use crate::files::{Os, Storage};
use crate::format::index::{self as format, ENTRY_LEN, IndexLayout};
use crate::format::java::key_hash_of;
use crate::format::width::{clamp_u64, to_usize};
use crate::log;
use crate::log::index::file;
use crate::log::index::file::{IndexOpen, IndexPut};
use crate::log::index::layout::{Detection, detect_layout};
use crate::py::store::location::Location;

use self::arrow::{OffsetLists, read_entries};
use crate::py::arguments::{not_one_of, value_error};
use crate::py::arrays::{HASH_CHUNK, IndexKeys, Numbers};
use crate::py::errors::StoreClosedError;
use crate::py::fields;
use crate::py::process;
use crate::py::scan::ArrowScan;
use crate::py::values::{getters, value};

value! {
    /// The first 40 bytes of an index file (``IndexHeader``).
    struct IndexHeader {
        /// Store time of the first message in the file.
        begin_timestamp_ms: i64,
        /// Store time of the last message in the file.
        end_timestamp_ms: i64,
        /// Where the first message begins in the commit log.
        begin_physical_offset: i64,
        /// Where the last message begins in the commit log.
        end_physical_offset: i64,
        /// Slots in use, not the slots that the file has.
        hash_slot_count: i32,
        /// Number of the next entry: entries held plus one.
        index_count: i32,
    }
}

value! {
    /// One 20-byte entry of an index file, with its number.
    struct IndexEntry {
        /// Number of the entry in its file, from 1.
        number: u32,
        /// Hash of ``topic#key``.
        key_hash: i32,
        /// Where the message begins in the commit log.
        physical_offset: i64,
        /// Whole seconds from the header's begin time to the message's store time.
        seconds: i32,
        /// Number of the next older entry of the same slot; 0 at the end of the chain.
        prev_entry: i32,
    }
}

impl From<(u32, format::IndexEntry)> for IndexEntry {
    fn from((number, entry): (u32, format::IndexEntry)) -> Self {
        let format::IndexEntry { key_hash, physical_offset, seconds, prev_entry } = entry;
        Self { number, key_hash, physical_offset, seconds, prev_entry }
    }
}

/// One index file: a hash table of keys in a file of fixed size (``IndexFile``).
///
/// ``len(index_file)`` is the number of entries that it holds.
///
/// Args:
///     path: The file.
///     mode: ``"r"``: read. ``"r+"``: read and write, must exist. ``"a"``: as ``"r+"``, created
///         when missing.
///     slots: Hash slots of the file; neither number is recorded in it, so they must be the right
///         ones.
///     entries: Room for entries, of which number 0 is never used.
///
/// Raises:
///     ConfigError: Slots or entries of 0, or a size of 2 GiB and more.
///     CorruptionError: The file's length is not 40 + 4 * slots + 20 * entries; both are named.
///     StoreLockedError: Another process, or another handle of this one, writes to the file.
///     StoreIOError: The file cannot be opened.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct IndexFile {
    path: PathBuf,
    storage: Arc<dyn Storage>,
    mode: &'static str,
    layout: IndexLayout,
    generation: u64,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    /// `None` once closed.
    file: Option<file::IndexFile>,
    /// A failed flush: puts may be lost, and no later flush can tell.
    failed: Option<String>,
}

fn layout_of(slots: i64, entries: i64) -> Result<IndexLayout> {
    let layout = u32::try_from(slots)
        .ok()
        .zip(u32::try_from(entries).ok())
        .and_then(|(slots, entries)| IndexLayout::new(slots, entries));
    layout.ok_or_else(|| {
        Error::setting(
            "slots, entries",
            "1 or more each, and 40 + 4 * slots + 20 * entries less than 2 GiB",
            format!("{slots} and {entries}"),
        )
    })
}

fn open_to_write(path: &Path, layout: IndexLayout, create: bool) -> Result<file::IndexFile> {
    let open = || file::IndexFile::open(&Os, path, layout, IndexOpen::Write);
    let file = match open() {
        Err(error) if create && error.is_not_found() => {
            match file::IndexFile::create(&Os, path, layout, None) {
                // Another process was faster.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                    open()?
                }
                created => created?,
            }
        }
        opened => opened?,
    };
    // A second writer would corrupt the chains.
    let opened = &**file.file();
    if !opened.try_lock(0..1).map_err(Error::io("lock", path))? {
        return Err(Error::Locked { path: path.to_owned(), pid: opened.lock_holder() });
    }
    match detect_layout(opened, path, Some(layout))? {
        Detection::Proven(_) | Detection::Likely(_) => Ok(file),
        Detection::Unknown { reason, .. } => Err(Error::config("slots, entries", reason)),
    }
}

fn index_error(error: Error) -> PyErr {
    match error {
        Error::Closed => StoreClosedError::new_err(("the index file is closed",)),
        other => other.into(),
    }
}

getters! {
    IndexFile, this => this, {
        /// The file.
        path: OsString = |file| file.path.clone().into_os_string();
        /// How it was opened.
        mode: &'static str = |file| file.mode;
        /// Hash slots that the file has.
        slots: u32 = |file| file.layout.slots();
        /// How many entries fit: one less than the room for them.
        capacity: u32 = |file| file.layout.max_entry_count().saturating_sub(1);
    }
}

impl IndexFile {
    fn read<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&file::IndexFile) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let state = self.state.read();
            read(state.file.as_ref().ok_or(Error::Closed)?)
        })
        .map_err(index_error)
    }

    fn write<T: Send>(
        &self,
        py: Python<'_>,
        write: impl FnOnce(&mut file::IndexFile) -> Result<T> + Send,
    ) -> PyResult<T> {
        if process::generation() != self.generation {
            return Err(StoreClosedError::new_err((
                "the file was opened before this process was forked off: open it again here",
            )));
        }
        py.detach(|| {
            let mut state = self.state.write();
            if let Some(reason) = &state.failed {
                return Err(Error::Poisoned { path: self.path.clone(), reason: reason.clone() });
            }
            write(state.file.as_mut().ok_or(Error::Closed)?)
        })
        .map_err(index_error)
    }

    /// Flushes a writable file; after a failure puts are refused.
    fn flush_state(&self, state: &mut State) -> Result<()> {
        let State { file: Some(file), failed } = state else { return Ok(()) };
        if self.mode == "r" {
            return Ok(());
        }
        let outcome = file.flush();
        if let Err(error) = &outcome {
            *failed = Some(error.to_string());
        }
        outcome
    }
}

#[pymethods]
impl IndexFile {
    #[new]
    #[pyo3(signature = (path, mode="r", *, slots=5_000_000, entries=20_000_000))]
    fn __new__(
        py: Python<'_>,
        path: Location,
        #[pyo3(from_py_with = fields::mode)] mode: &str,
        #[pyo3(from_py_with = fields::slots)] slots: i64,
        #[pyo3(from_py_with = fields::entries)] entries: i64,
    ) -> PyResult<Self> {
        let known = ["r", "r+", "a"].into_iter().find(|known| *known == mode);
        let mode = known.ok_or_else(|| not_one_of("mode", "r, r+, a", mode))?;
        let layout = layout_of(slots, entries)?;
        let Location { path, storage } = path;
        let how = if storage.is_remote() { IndexOpen::Read } else { IndexOpen::ReadMapped };
        let file = py.detach(|| match mode {
            "r" => file::IndexFile::open(&*storage, &path, layout, how),
            _ => open_to_write(&path, layout, mode == "a"),
        })?;
        let state = RwLock::new(State { file: Some(file), failed: None });
        Ok(Self { path, storage, mode, layout, generation: process::generation(), state })
    }

    /// The header as of now.
    #[getter]
    fn header(&self, py: Python<'_>) -> PyResult<IndexHeader> {
        let header = self.read(py, file::IndexFile::header)?;
        Ok(IndexHeader {
            begin_timestamp_ms: header.begin_timestamp_ms,
            end_timestamp_ms: header.end_timestamp_ms,
            begin_physical_offset: header.begin_physical_offset,
            end_physical_offset: header.end_physical_offset,
            hash_slot_count: header.hash_slot_count,
            index_count: header.index_count,
        })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let header = self.read(py, file::IndexFile::header)?;
        Ok(to_usize(clamp_u64(header.index_count.saturating_sub(1))))
    }

    /// Adds one key (``IndexFile#putKey``).
    ///
    /// Args:
    ///     key: ``"topic#key"``.
    ///     physical_offset: Where the message begins in the commit log.
    ///     store_timestamp_ms: Its store time, kept in whole seconds; also a ``datetime``.
    ///
    /// Returns:
    ///     ``False`` when the file is full, and then nothing was done.
    ///
    /// Raises:
    ///     StoreReadOnlyError: The file was opened with mode ``"r"``.
    ///     InvalidMessageError: A number does not fit 64 bits, or the key is no text in UTF-8.
    fn put(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::key)] key: PyBackedStr,
        #[pyo3(from_py_with = fields::physical_offset)] physical_offset: i64,
        #[pyo3(from_py_with = fields::index_timestamp_ms)] store_timestamp_ms: i64,
    ) -> PyResult<bool> {
        let key_hash = key_hash_of(key.as_bytes());
        self.write(py, |file| file.put_key(key_hash, physical_offset, store_timestamp_ms))
    }

    /// Adds many keys in order.
    ///
    /// Args:
    ///     keys: ``"topic#key"`` each: strings, or an Arrow array of a string type.
    ///     physical_offsets: As many integers, or an Arrow array or a buffer of ``int64``.
    ///     store_timestamps_ms: The same; among integers of a list also a ``datetime``.
    ///
    /// Returns:
    ///     How many of them fitted.
    ///
    /// Raises:
    ///     ValueError: The three differ in length, or an Arrow array has a null.
    ///     InvalidMessageError: A number does not fit 64 bits, or a key is no text in UTF-8.
    ///         Nothing was put then.
    fn put_many(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        physical_offsets: &Bound<'_, PyAny>,
        store_timestamps_ms: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let keys = IndexKeys::of("keys", keys)?;
        let offsets = Numbers::of("physical_offsets", physical_offsets, fields::number)?;
        let times =
            Numbers::of("store_timestamps_ms", store_timestamps_ms, fields::number_or_time)?;
        if offsets.len() != keys.len() || times.len() != keys.len() {
            let (keys, offsets, times) = (keys.len(), offsets.len(), times.len());
            return Err(value_error(
                "keys, physical_offsets, store_timestamps_ms",
                "equal lengths",
                format!("{keys}, {offsets} and {times}"),
            ));
        }
        self.write(py, |file| put_all(file, &keys, &offsets, &times))
    }

    /// Physical offsets under a key, newest first: exactly RocketMQ's ``selectPhyOffset``.
    ///
    /// Only hashes are compared, so another key's offsets may be among them.
    ///
    /// Args:
    ///     key: ``"topic#key"``.
    ///     begin_ms: First time that counts; the chain is left at the first entry before it.
    ///     end_ms: Last time that counts.
    ///     max_entries: At most this many.
    #[pyo3(signature = (key, *, begin_ms=0, end_ms=9_223_372_036_854_775_807, max_entries=32))]
    fn select(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::key)] key: PyBackedStr,
        #[pyo3(from_py_with = fields::least_ms)] begin_ms: i64,
        #[pyo3(from_py_with = fields::most_ms)] end_ms: i64,
        #[pyo3(from_py_with = fields::max_entries)] max_entries: i64,
    ) -> PyResult<Vec<i64>> {
        let key_hash = key_hash_of(key.as_bytes());
        let max = to_usize(clamp_u64(max_entries));
        self.read(py, |file| {
            // An invalid entry ends its chain; `verify` reports it.
            let (mut found, mut findings) = (Vec::new(), Vec::new());
            file.select(key_hash, begin_ms, end_ms, max, &mut found, &mut findings)?;
            Ok(found)
        })
    }

    /// The same for many keys: one list of offsets for each.
    #[pyo3(signature = (keys, *, begin_ms=0, end_ms=9_223_372_036_854_775_807, max_entries=32))]
    fn select_many(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = fields::least_ms)] begin_ms: i64,
        #[pyo3(from_py_with = fields::most_ms)] end_ms: i64,
        #[pyo3(from_py_with = fields::max_entries)] max_entries: i64,
    ) -> PyResult<OffsetLists> {
        let keys = IndexKeys::of("keys", keys)?;
        let max = to_usize(clamp_u64(max_entries));
        let lists = self.read(py, |file| {
            // Capacity for the usual answer, to avoid moving it.
            let mut lists = log::OffsetLists::with_capacity(keys.len());
            let mut findings = Vec::new();
            keys.hashes(|hashes| {
                file.select_many(hashes, begin_ms, end_ms, max, &mut lists, &mut findings)?;
                Ok(true)
            })?;
            Ok(lists)
        })?;
        let count = lists.offsets.len();
        py.detach(|| OffsetLists::new(lists))
            .ok_or_else(|| PyOverflowError::new_err(format!("{count} offsets in one answer")))
    }

    /// All entries in order, as columns named like the fields of ``IndexEntry``.
    fn entries(&self, py: Python<'_>) -> PyResult<ArrowScan> {
        self.read(py, |_| Ok(()))?;
        Ok(arrow::entries(Arc::clone(&self.storage), self.path.clone(), self.layout))
    }

    /// One entry by its number, 1 to ``len(index_file)``.
    ///
    /// Raises:
    ///     IndexError: The file holds no entry of that number.
    #[pyo3(signature = (number, /))]
    fn entry(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::saturated)] number: i64,
    ) -> PyResult<IndexEntry> {
        let found = self.read(py, |file| {
            let count = file.header()?.index_count;
            match u32::try_from(number) {
                Ok(known) if known > 0 && number < i64::from(count) => {
                    let mut raw = [0; ENTRY_LEN];
                    read_entries(file, known, &mut raw)?;
                    Ok(Some((known, format::IndexEntry::decode(&raw))))
                }
                _ => Ok(None),
            }
        })?;
        match found {
            Some(entry) => Ok(entry.into()),
            None => Err(PyIndexError::new_err(format!("the file holds no entry {number}"))),
        }
    }

    /// The entries of a key's slot from the newest on, those of other keys in it too.
    ///
    /// It ends where a link does not lead to an older entry.
    fn chain(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::key)] key: PyBackedStr,
    ) -> PyResult<Vec<IndexEntry>> {
        let key_hash = key_hash_of(key.as_bytes());
        let chain = self.read(py, |file| file.chain(key_hash, usize::MAX, &mut Vec::new()))?;
        Ok(chain.into_iter().map(IndexEntry::from).collect())
    }

    /// How many slots have a chain of each length that occurs, empty slots left out.
    ///
    /// It reads every entry, and counts a broken chain as whole.
    fn chain_lengths(&self, py: Python<'_>) -> PyResult<BTreeMap<u32, u32>> {
        self.read(py, file::IndexFile::chain_lengths)
    }

    /// Makes everything put so far durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        if self.mode == "r" {
            return self.read(py, |_| Ok(()));
        }
        self.write(py, |_| Ok(()))?;
        Ok(py.detach(|| self.flush_state(&mut self.state.write()))?)
    }

    /// Flushes what was put and closes the file; closing twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| {
            let mut state = self.state.write();
            // In a forked child the file is still the parent's.
            let ours = process::generation() == self.generation;
            let outcome = match &state.failed {
                None if ours => self.flush_state(&mut state),
                _ => Ok(()),
            };
            state.file = None;
            outcome
        })?)
    }

    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        slf.get().read(py, |_| Ok(()))?;
        Ok(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.path()?.into_pyobject(py)?;
        let (slots, entries) = (self.layout.slots(), self.layout.entries());
        let path = path.repr()?;
        Ok(format!("<IndexFile {path} mode={} slots={slots} entries={entries}>", self.mode))
    }
}

fn put_all(
    file: &mut file::IndexFile,
    keys: &IndexKeys,
    offsets: &Numbers,
    times: &Numbers,
) -> Result<usize> {
    let mut puts = Vec::with_capacity(HASH_CHUNK);
    let mut done = 0;
    let (mut offsets, mut times) = (offsets.iter(), times.iter());
    keys.hashes(|hashes| {
        puts.clear();
        puts.extend(hashes.iter().zip(offsets.by_ref().zip(times.by_ref())).map(
            |(&key_hash, (physical_offset, store_timestamp_ms))| IndexPut {
                key_hash,
                physical_offset,
                store_timestamp_ms,
            },
        ));
        let fitted = file.put_many(&puts)?;
        done += fitted;
        Ok(fitted == puts.len())
    })?;
    Ok(done)
}
