//! The message store: open, append, read, flush, close (`DefaultMessageStore`).

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::config::{FlushDiskType, StoreConfig};
use crate::error::{AppendResult, Error, Result};
use crate::files::{Storage, memory_bytes};
use crate::format::queue::consume_queue::TagFilter;
use crate::log::CommitLog;
use crate::log::read::scanner::Scanner;
use crate::time::Clock;

use super::write::append::{self, NewMessage};
use super::write::core::Core;
use crate::store::progress::Progress;

use super::open::recover::RecoveryReport;
use super::open::{self, OnFlushedDamage, Opened};
use super::read::halt::Halt;
use super::read::key_query::{self, KeyQuery, QueryResult};
use super::read::queue_read::{self, ReadRequest, ReadResult};
use super::read::queue_view::QueueView;
use super::read::time_search::{self, Boundary};
use super::write::background::Services;
use super::write::notices::Notices;

/// Purpose of opening a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading: nothing is locked, created or changed.
    Read,
    /// Reading and writing an existing store.
    ReadWrite,
    /// Reading and writing; created if missing.
    Create,
}

type Check = for<'a> fn(
    &'a NewMessage<'a>,
    &StoreConfig,
    &super::queue_table::QueueTable,
    u64,
) -> Result<append::Checked<'a>>;

/// Messages that [`MessageStore::append_many`] checks before writing any of them.
const CHUNK: usize = 1024;

/// A store of messages.
#[derive(Debug)]
pub struct MessageStore {
    pub(super) core: Arc<Core>,
    services: Mutex<Option<Services>>,
    pid: u32,
    /// Open consumer groups by name.
    pub(super) groups: Mutex<BTreeSet<String>>,
}

/// Why [`MessageStore::append_many`] stopped.
#[derive(Debug)]
pub struct BatchError {
    /// Messages written before.
    pub results: Vec<AppendResult>,
    /// Index of the failed message.
    pub index: usize,
    /// Its error.
    pub error: Error,
}

impl MessageStore {
    /// Opens the store at `path`.
    ///
    /// # Errors [`Error::NotAStore`], [`Error::Locked`] when a process writes to it,
    /// [`Error::Corrupt`] when writing would hide damage, [`Error::InvalidConfig`] when a setting
    /// contradicts the files, [`Error::Io`].
    pub fn open(path: &Path, mode: OpenMode, config: StoreConfig) -> Result<Self> {
        let storage = Arc::new(crate::files::Os);
        Self::open_with(path, mode, config, storage, Arc::new(crate::time::SystemClock))
    }

    /// Opens with another storage and clock.
    ///
    /// # Errors As [`MessageStore::open`].
    pub fn open_with(
        path: &Path,
        mode: OpenMode,
        config: StoreConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let mut nobody = |_, _| ControlFlow::Continue(());
        let damage = OnFlushedDamage::Refuse;
        Self::start(open::open(path, mode, config, storage, clock, damage, &mut nobody)?)
    }

    /// Opens for writing and ends the log at damage even if flushed messages lie behind it; these
    /// are kept in quarantine. `progress` gets the bytes read and in all, and can end it.
    ///
    /// # Errors As [`MessageStore::open`] except for that damage; [`Error::Io`] of kind
    /// `Interrupted` if `progress` ended it.
    pub fn open_cutting(
        path: &Path,
        config: StoreConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        let (mode, damage) = (OpenMode::ReadWrite, OnFlushedDamage::Cut);
        Self::start(open::open(path, mode, config, storage, clock, damage, progress)?)
    }

    fn start(Opened { core }: Opened) -> Result<Self> {
        let core = Arc::new(core);
        let services = match &core.writing {
            Some(_) => Some(Services::start(&core)?),
            None => None,
        };
        let (services, pid) = (Mutex::new(services), std::process::id());
        Ok(Self { core, services, pid, groups: Mutex::default() })
    }

    /// The root folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.core.paths.root()
    }

    /// The settings, completed from the files.
    #[must_use]
    pub fn config(&self) -> &StoreConfig {
        &self.core.config
    }

    /// Whether it was opened for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.core.writing.is_some()
    }

    /// Result of recovery; `None` for a reader.
    #[must_use]
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.core.writing.as_ref().map(|writing| &writing.recovery)
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &CommitLog {
        &self.core.log
    }

    /// End of what is in queues and index.
    #[must_use]
    pub fn dispatched_offset(&self) -> u64 {
        match &self.core.writing {
            Some(writing) => writing.dispatched.load(Ordering::Acquire),
            None => self.core.reading().doubt,
        }
    }

    /// Appends one message.
    ///
    /// # Errors [`Error::InvalidMessage`], [`Error::Io`] when the disk is full,
    /// [`Error::FlushTimeout`] when it is stored but not flushed in time, [`Error::Poisoned`],
    /// [`Error::ReadOnly`], [`Error::Closed`].
    #[inline]
    pub fn append(&self, message: &NewMessage<'_>) -> Result<AppendResult> {
        let core = &*self.core;
        let writing = core.writing()?;
        let checked =
            append::check(message, &core.config, &core.queues, core.log.run().file_size())?;
        let result = {
            let mut appender = writing.appender.lock();
            core.append_locked(writing, &mut appender, &checked)?
        };
        core.wait_durable(writing, result)
    }

    /// Appends messages in order. Each chunk of 1,024 is checked before any of it is written; all
    /// wait for one flush.
    ///
    /// # Errors [`BatchError`]: the results so far, and the failed message's error.
    pub fn append_many(
        &self,
        messages: &[NewMessage<'_>],
    ) -> std::result::Result<Vec<AppendResult>, Box<BatchError>> {
        self.append_checked(messages, append::check)
    }

    /// [`MessageStore::append_many`] for bodies in memory that another thread may write to: each
    /// checksum is computed from the copy in the record.
    ///
    /// # Errors As [`MessageStore::append_many`].
    pub fn append_shared(
        &self,
        messages: &[NewMessage<'_>],
    ) -> std::result::Result<Vec<AppendResult>, Box<BatchError>> {
        self.append_checked(messages, append::check_all_but_sum)
    }

    fn append_checked(
        &self,
        messages: &[NewMessage<'_>],
        check: Check,
    ) -> std::result::Result<Vec<AppendResult>, Box<BatchError>> {
        let core = &*self.core;
        let mut results = Vec::with_capacity(messages.len());
        let fail = |results, index, error| Err(Box::new(BatchError { results, index, error }));
        let writing = match core.writing() {
            Ok(writing) => writing,
            Err(error) => return fail(results, 0, error),
        };
        let mut stopped = None;
        'chunks: for chunk in messages.chunks(CHUNK) {
            let mut checked = Vec::with_capacity(chunk.len());
            for message in chunk {
                match check(message, &core.config, &core.queues, core.log.run().file_size()) {
                    Ok(message) => checked.push(message),
                    Err(error) => {
                        stopped = Some((results.len() + checked.len(), error));
                        break 'chunks;
                    }
                }
            }
            let mut appender = writing.appender.lock();
            let appended = core.append_all_locked(writing, &mut appender, &checked, &mut results);
            if let Err(error) = appended {
                stopped = Some((results.len(), error));
                break 'chunks;
            }
        }
        // Reported messages are durable even if a later one failed.
        if let Some(last) = results.last().copied()
            && let Err(error) = core.wait_durable(writing, last)
        {
            // After a failed flush none is known to be durable; after a timeout all are stored.
            if !matches!(error, Error::FlushTimeout { .. }) {
                results.clear();
            }
            let index = results.len().saturating_sub(1);
            return fail(results, index, error);
        }
        match stopped {
            Some((index, error)) => fail(results, index, error),
            None => Ok(results),
        }
    }

    /// Appends messages of one queue as a batch, all or none: consecutive in one file and in the
    /// queue, with one store time.
    ///
    /// # Errors As [`MessageStore::append`]; nothing is written if a message is invalid or the disk
    /// full.
    pub fn append_batch(&self, messages: &[NewMessage<'_>]) -> Result<Vec<AppendResult>> {
        let core = &*self.core;
        let writing = core.writing()?;
        let checked = messages
            .iter()
            .map(|message| {
                append::check(message, &core.config, &core.queues, core.log.run().file_size())
            })
            .collect::<Result<Vec<_>>>()?;
        let results = {
            let mut appender = writing.appender.lock();
            core.may_append(writing)?;
            appender.make_room(&checked, &core.config).map_err(|error| writing.heed(error))?;
            let now_ms = core.clock.now_ms();
            checked
                .iter()
                .map(|message| core.append_at(writing, &mut appender, message, now_ms))
                .collect::<Result<Vec<_>>>()?
        };
        if let Some(last) = results.last() {
            core.wait_durable(writing, *last)?;
        }
        Ok(results)
    }

    /// Flushes everything appended so far, and queues and index.
    ///
    /// # Errors [`Error::Io`] or [`Error::Poisoned`]; nothing may be appended any more then.
    pub fn flush(&self) -> Result<()> {
        let writing = self.core.writing()?;
        self.core.flush_log(writing)?;
        self.core.catch_up()?;
        self.core.flush_derived(writing)
    }

    /// Dispatches everything appended so far.
    ///
    /// # Errors [`Error::Io`] when the disk is full.
    pub fn wait_dispatched(&self) -> Result<()> {
        let writing = self.core.writing()?;
        if self.core.config.flush_disk_type == FlushDiskType::Sync {
            self.core.flush_log(writing)?;
        }
        self.core.catch_up()
    }

    /// Reads one record by its offset.
    ///
    /// # Errors [`Error::OffsetOutOfRange`], [`Error::MessageNotFound`] when no record begins
    /// there, [`Error::Corrupt`] for a wrong body checksum.
    pub fn get(&self, physical_offset: i64) -> Result<Box<[u8]>> {
        self.core.check_open()?;
        self.core.log.get(physical_offset, self.core.readable_end())
    }

    /// Reads a queue from an offset on.
    ///
    /// # Errors [`Error::Io`], [`Error::NotDispatched`], [`Error::Closed`].
    pub fn read(
        &self,
        topic: &[u8],
        queue_id: i32,
        queue_offset: i64,
        max_messages: usize,
        max_bytes: Option<u64>,
        filter: &TagFilter,
    ) -> Result<ReadResult> {
        let halt = &Halt::default();
        self.read_halting(topic, queue_id, queue_offset, max_messages, max_bytes, filter, halt)
    }

    /// [`MessageStore::read`] that returns early when `halt` says so.
    ///
    /// # Errors As [`MessageStore::read`].
    #[expect(clippy::too_many_arguments, reason = "those of a read, and one")]
    pub fn read_halting(
        &self,
        topic: &[u8],
        queue_id: i32,
        queue_offset: i64,
        max_messages: usize,
        max_bytes: Option<u64>,
        filter: &TagFilter,
        halt: &Halt,
    ) -> Result<ReadResult> {
        self.check_open()?;
        let limits = self
            .core
            .config
            .emulate_transfer_limits
            .then(|| (&self.core.config.transfer_limits, memory_bytes()));
        let request = ReadRequest {
            topic,
            queue_id,
            queue_offset,
            max_messages,
            max_bytes,
            filter,
            limits,
            halt,
        };
        self.core.ask(topic, queue_id, |view| queue_read::read(&self.core.log, view, &request))
    }

    /// Finds the queue offset for a time.
    ///
    /// # Errors [`Error::Io`], [`Error::NotDispatched`], [`Error::Closed`].
    pub fn offset_at(
        &self,
        topic: &[u8],
        queue_id: i32,
        timestamp_ms: i64,
        boundary: Boundary,
    ) -> Result<i64> {
        self.check_open()?;
        self.core.ask(topic, queue_id, |view| {
            time_search::offset_at(&self.core.log, view, timestamp_ms, boundary)
        })
    }

    /// Store time of a message; `None` if there is none.
    ///
    /// # Errors [`Error::Io`], [`Error::NotDispatched`], [`Error::Closed`].
    pub fn stored_at(&self, topic: &[u8], queue_id: i32, number: i64) -> Result<Option<i64>> {
        self.check_open()?;
        self.core.ask(topic, queue_id, |view| match view {
            Some(view) => time_search::stored_at(&self.core.log, view, number),
            None => Ok(None),
        })
    }

    /// Finds messages by key.
    ///
    /// # Errors [`Error::Io`], [`Error::Closed`].
    pub fn query(&self, query: &KeyQuery<'_>) -> Result<QueryResult> {
        self.core.check_open()?;
        self.core.catch_up_to_read()?;
        self.core.ask_index(|| key_query::query(&self.core, query))
    }

    /// One queue as it is now.
    ///
    /// # Errors [`Error::Io`], [`Error::NotDispatched`], [`Error::Closed`].
    pub fn queue(&self, topic: &[u8], queue_id: i32) -> Result<Option<QueueView>> {
        self.core.check_open()?;
        self.core.ask(topic, queue_id, |view| Ok(view.cloned()))
    }

    /// All queues, sorted.
    ///
    /// # Errors [`Error::Io`], [`Error::NotDispatched`], [`Error::Closed`].
    pub fn queue_names(&self) -> Result<Vec<(Box<[u8]>, i32)>> {
        self.core.check_open()?;
        let lacking = self.core.catch_up_to_read()?;
        let queues = self.core.queues.all();
        let mut names: Vec<(Box<[u8]>, i32)> = queues
            .iter()
            .filter(|queue| queue.max_offset() > 0 || self.core.writing.is_none())
            .map(|queue| (queue.topic().into(), queue.queue_id()))
            .collect();
        if self.core.writing.is_none() || lacking.is_some() {
            let overlay =
                lacking.map_or_else(|| self.core.overlay(), |overlay| Ok(overlay.into()))?;
            names.extend(overlay.names().map(|(topic, id)| (Box::from(topic), id)));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// End of what readers see.
    #[must_use]
    pub fn end_offset(&self) -> u64 {
        self.core.readable_end()
    }

    /// Walks over all records from `start` to `end` and checks each.
    #[must_use]
    pub fn scanner(&self, start: u64, end: Option<u64>, verify_crc: bool) -> Scanner<'_> {
        let readable = self.core.readable_end();
        Scanner::new(
            &self.core.log,
            start,
            end.map_or(readable, |end| end.min(readable)),
            verify_crc,
        )
    }

    /// Updates a reader's view; does nothing for a writer.
    ///
    /// # Errors [`Error::Io`], [`Error::Closed`].
    pub fn refresh(&self) -> Result<()> {
        self.core.check_open()?;
        if self.core.writing.is_some() { Ok(()) } else { open::refresh(&self.core) }
    }

    /// Waits until the log exceeds `physical_offset`; polls a store that another process writes.
    /// `false` on timeout.
    ///
    /// # Errors [`Error::Io`], [`Error::Closed`].
    pub fn wait(&self, physical_offset: u64, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now().checked_add(timeout);
        let mut pause = Duration::from_millis(1);
        loop {
            self.refresh()?;
            if self.core.readable_end() > physical_offset {
                return Ok(true);
            }
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Events since the store was opened.
    #[must_use]
    #[inline]
    pub fn notices(&self) -> &Notices {
        &self.core.notices
    }

    /// Ends the threads, flushes everything, and releases lock, files and maps, except files that a
    /// reader holds. A second call does nothing, nor one in a forked child: the store is its
    /// parent's.
    ///
    /// # Errors [`Error::Io`]; `abort` stays then, and the next open recovers.
    pub fn close(&self) -> Result<()> {
        if self.is_of_parent() {
            self.core.closed.store(true, Ordering::Release);
            return Ok(());
        }
        if self.core.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // A group that is committing holds the folder's lock.
        drop(self.groups.lock());
        let services = self.services.lock().take();
        if let Some(services) = services {
            services.stop(&self.core);
        }
        let closed = match &self.core.writing {
            Some(writing) => self.core.close_writing(writing),
            None => Ok(()),
        };
        self.core.close_files();
        closed
    }

    /// Whether this process is a fork of the one that opened the store.
    #[must_use]
    pub fn is_of_parent(&self) -> bool {
        self.pid != std::process::id()
    }

    /// Whether the store is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.closed.load(Ordering::Acquire)
    }

    /// Holds or releases dispatch, for tests.
    pub fn hold_dispatch(&self, held: bool) {
        if let Some(writing) = &self.core.writing {
            writing.dispatch_held.store(held, Ordering::Release);
        }
    }
}

impl Drop for MessageStore {
    fn drop(&mut self) {
        if self.is_of_parent() {
            // Lock, maps and threads are the parent's.
            let services = self.services.get_mut();
            std::mem::forget((services.take(), Arc::clone(&self.core)));
            return;
        }
        // On an error `abort` stays, and the next open recovers.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests;
