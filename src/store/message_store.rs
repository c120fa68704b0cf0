//! The message store: open, append, read, flush, close (`DefaultMessageStore`).

mod by_id;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::locks::Mutex;

use super::open::version::Versions;
use super::open::{OpenMode, Opened, version};
use super::progress::{Halt, Progress, unwatched};
use super::read::key_query::{IndexType, KeyQuery, QueryResult};
use super::read::queue_read::Boundary;
use super::read::queue_read::{ReadRequest, ReadResult};
use super::read::reader::Reader;
use super::read::view::queue_view::QueueView;
use super::read::{key_query, queue_read};
use super::recovery_report::RecoveryReport;
use super::store_files::{Notices, StoreFiles};
use super::write::append::{Appended, BatchError, NewMessage, Sum};
use super::write::background::Services;
use super::write::retention::clean::{Cleaned, Judgement};
use super::write::retention::{DiskUse, Occasion};
use super::write::writer::{CHUNK, Writer};
use super::{open, topics};
use crate::config::{FlushDiskType, StoreConfig};
use crate::error::{AppendResult, Error, Result};
use crate::files::{Storage, memory_bytes};
use crate::format::queue::consume_queue::TagFilter;
use crate::format::width::clamp_u64;
use crate::log::CommitLog;
use crate::log::index::query::ExternalIndex;
use crate::log::read::scanner::Scanner;
use crate::time::Clock;

/// A store of messages.
#[derive(Debug)]
pub struct MessageStore {
    pub(super) files: Arc<StoreFiles>,
    pub(super) reader: Reader,
    /// `None` for a reader.
    pub(super) writer: Option<Arc<Writer>>,
    services: Mutex<Option<Services>>,
    pub(super) warnings: Vec<String>,
    pid: u32,
    pub(super) groups: Mutex<BTreeSet<String>>,
}

impl MessageStore {
    /// Opens the store at `path`.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::Locked`] when a process writes to it,
    /// [`Error::Corrupt`] when writing would hide damage, [`Error::InvalidConfig`] when a setting
    /// contradicts the files, [`Error::Io`].
    pub fn open(path: &Path, mode: OpenMode, config: StoreConfig) -> Result<Self> {
        let storage = Arc::new(crate::files::Os);
        Self::open_with(path, mode, config, storage, Arc::new(crate::files::SystemClock))
    }

    /// Opens to read on another storage.
    ///
    /// # Errors
    /// As [`MessageStore::open`].
    pub fn open_on(path: &Path, config: StoreConfig, storage: Arc<dyn Storage>) -> Result<Self> {
        let clock = Arc::new(crate::files::SystemClock);
        Self::open_with(path, OpenMode::Read, config, storage, clock)
    }

    /// Opens the store as a later listing of its URL has it. Reads of both go on meanwhile.
    ///
    /// # Errors
    /// [`Error::OtherLog`] where another log lies there now; as [`MessageStore::open`].
    pub(crate) fn opened_again(
        &self,
        config: StoreConfig,
        storage: Arc<dyn Storage>,
    ) -> Result<Self> {
        self.files.check_open()?;
        let next = Self::open_on(self.path(), config, storage)?;
        self.reader.hand_over(&next.reader)?;
        Ok(next)
    }

    /// Opens to read, with more queues and tables in `aside`.
    ///
    /// # Errors
    /// As [`MessageStore::open`].
    pub(crate) fn open_beside(path: &Path, config: StoreConfig, aside: &Path) -> Result<Self> {
        Self::start(open::open_beside(path, config, aside)?)
    }

    /// Gives another index for queries by key and tags; the first one counts.
    #[must_use]
    pub(crate) fn with_external_index(self, other: Box<dyn ExternalIndex>) -> Self {
        let _ = self.reader.external_index.set(other);
        self
    }

    /// Opens with another storage and clock.
    pub fn open_with(
        path: &Path,
        mode: OpenMode,
        config: StoreConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Self::start(open::open(path, mode, config, storage, clock, false, &mut unwatched)?)
    }

    /// Opens for writing. With `drop_beyond` the log ends at damage even if flushed messages lie
    /// behind it, and these are kept in quarantine.
    pub fn open_cutting(
        path: &Path,
        config: StoreConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        drop_beyond: bool,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        let mode = OpenMode::ReadWrite;
        Self::start(open::open(path, mode, config, storage, clock, drop_beyond, progress)?)
    }

    fn start(Opened { reader, writer, warnings }: Opened) -> Result<Self> {
        let services = writer.as_ref().map(Services::start).transpose()?;
        Ok(Self {
            files: Arc::clone(&reader.files),
            reader,
            writer,
            services: Mutex::new(services),
            warnings,
            pid: std::process::id(),
            groups: Mutex::default(),
        })
    }

    #[inline]
    pub(super) fn writer(&self) -> Result<&Writer> {
        self.files.check_open()?;
        match &self.writer {
            Some(writer) => Ok(writer),
            None => Err(Error::ReadOnly { path: self.files.paths.root().to_owned() }),
        }
    }

    /// The root folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.files.paths.root()
    }

    /// The settings, completed from the files.
    #[must_use]
    pub fn config(&self) -> &StoreConfig {
        &self.files.config
    }

    /// Result of recovery; `None` for a reader.
    #[must_use]
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.writer.as_ref().map(|writer| &writer.recovery)
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &CommitLog {
        &self.files.log
    }

    /// End of what is in queues and index.
    pub fn dispatched_offset(&self) -> Result<u64> {
        self.reader.dispatched_offset()
    }

    /// Appends one message.
    ///
    /// # Errors
    /// [`Error::InvalidMessage`], [`Error::Io`] when the disk is full,
    /// [`Error::FlushTimeout`] when it is stored but not flushed in time, [`Error::Poisoned`],
    /// [`Error::ReadOnly`], [`Error::Closed`].
    #[inline]
    pub fn append(&self, message: &NewMessage<'_>) -> Result<AppendResult> {
        self.writer()?.append(message)
    }

    pub(crate) fn spread(&self, topic: &[u8], key: Option<&[u8]>) -> Result<i32> {
        let writer = self.writer()?;
        writer.spread.queue(&self.files, topic, key)
    }

    /// Appends messages in order. Each chunk of 1,024 is checked before any of it is written; all
    /// wait for one flush.
    ///
    /// # Errors
    /// [`BatchError`]: the results so far, and the failed message's error.
    pub fn append_many(&self, messages: &[NewMessage<'_>]) -> Appended {
        self.append_parts(messages.chunks(CHUNK), Sum::Now)
    }

    /// [`MessageStore::append_many`] for bodies in memory that another thread may write to: each
    /// checksum is computed from the copy in the record.
    pub fn append_shared(&self, messages: &[NewMessage<'_>]) -> Appended {
        self.append_parts(messages.chunks(CHUNK), Sum::OfCopy)
    }

    /// [`Self::append_shared`], with all messages checked before any is written.
    pub(crate) fn append_whole(&self, messages: &[NewMessage<'_>]) -> Appended {
        self.append_parts(std::iter::once(messages), Sum::OfCopy)
    }

    fn append_parts<'a>(
        &self,
        parts: impl Iterator<Item = &'a [NewMessage<'a>]>,
        sum: Sum,
    ) -> Appended {
        match self.writer() {
            Ok(writer) => writer.append_many(parts, sum),
            Err(error) => Err(Box::new(BatchError { results: Vec::new(), index: 0, error })),
        }
    }

    /// Appends messages of one queue as a batch, all or none: consecutive in one file and in the
    /// queue, with one store time.
    ///
    /// # Errors
    /// As [`MessageStore::append`]; nothing is written if a message is invalid or the disk
    /// full.
    pub fn append_batch(&self, messages: &[NewMessage<'_>]) -> Result<Vec<AppendResult>> {
        self.writer()?.append_batch(messages)
    }

    /// Whether one of `messages` needs another queue while very many wait for their files.
    #[must_use]
    #[inline]
    pub(crate) fn lacks_queue_files(&self, messages: &[NewMessage<'_>]) -> bool {
        let are_too_many = |writer: &Arc<Writer>| writer.new_queues.are_too_many();
        let is_new = |message: &NewMessage<'_>| {
            self.files.queues.get(message.topic, message.queue_id).is_none()
        };
        self.writer.as_ref().is_some_and(are_too_many) && messages.iter().any(is_new)
    }

    pub(crate) fn wait_for_queue_files(&self, most: Duration) {
        if let Some(writer) = &self.writer {
            writer.new_queues.wait(most);
        }
    }

    /// Flushes everything appended so far, and queues and index.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Poisoned`]; nothing may be appended any more then.
    pub fn flush(&self) -> Result<()> {
        self.writer()?.flush()
    }

    /// Dispatches everything appended so far.
    pub fn wait_dispatched(&self) -> Result<()> {
        let writer = self.writer()?;
        if self.files.config.flush_disk_type == FlushDiskType::Sync {
            writer.flush_log()?;
        }
        writer.dispatch_step()
    }

    /// Reads one record by its offset.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`], [`Error::MessageNotFound`] when no record begins
    /// there, [`Error::Corrupt`] for a wrong body checksum.
    pub fn get(&self, physical_offset: i64) -> Result<Box<[u8]>> {
        self.files.check_open()?;
        self.noting(self.files.log.get(physical_offset, self.reader.readable_end()))
    }

    /// Remembers what an error says of the log, for the answers of later queries.
    #[inline]
    fn noting<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.files.log.lose_by(error))
    }

    /// Reads a queue from an offset on.
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
        let config = &self.files.config;
        let limits =
            config.emulate_transfer_limits.then(|| (&config.transfer_limits, memory_bytes()));
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
        let read = |view: Option<&QueueView>| queue_read::read(&self.files.log, view, &request);
        self.noting(self.reader.read_queue(topic, queue_id, read))
    }

    /// Finds the queue offset for a time.
    pub fn offset_at(
        &self,
        topic: &[u8],
        queue_id: i32,
        timestamp_ms: i64,
        boundary: Boundary,
    ) -> Result<i64> {
        self.check_open()?;
        self.reader.read_queue(topic, queue_id, |view| {
            queue_read::offset_at(&self.files.log, view, timestamp_ms, boundary)
        })
    }

    /// Store time of a message; `None` if there is none.
    pub fn stored_at(&self, topic: &[u8], queue_id: i32, number: i64) -> Result<Option<i64>> {
        self.check_open()?;
        self.reader.read_queue(topic, queue_id, |view| match view {
            Some(view) => queue_read::stored_at(&self.files.log, view, number),
            None => Ok(None),
        })
    }

    /// Finds messages by key.
    pub fn query(&self, query: &KeyQuery<'_>) -> Result<QueryResult> {
        self.files.check_open()?;
        self.noting(key_query::query(&self.reader, query, IndexType::Key))
    }

    /// Releases of RocketMQ that can have written the store.
    pub fn versions(&self) -> Result<Versions> {
        self.files.check_open()?;
        let StoreFiles { paths, log, index, .. } = &*self.files;
        version::read_marks(paths, log, index.as_deref())
    }

    /// Queries messages by the whole text of their tags, given as the key. If the index has no
    /// entries for tags (RocketMQ 5.3), the log is read instead.
    pub fn query_tags(&self, query: &KeyQuery<'_>) -> Result<QueryResult> {
        self.files.check_open()?;
        self.noting(key_query::query(&self.reader, query, IndexType::Tags))
    }

    /// Queries every topic that has a queue or is entered, exactly.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub fn query_topics(&self, query: &KeyQuery<'_>, by_tags: bool) -> Result<QueryResult> {
        self.query_all(query, if by_tags { IndexType::Tags } else { IndexType::Key })
    }

    pub(crate) fn query_all(&self, query: &KeyQuery<'_>, by: IndexType) -> Result<QueryResult> {
        let (entered, unread) = topics::entered(&self.files.paths)?;
        let queues = self.queue_names()?;
        let mut topics: Vec<&[u8]> = queues.iter().map(|(topic, _)| &**topic).collect();
        topics.extend(entered.kinds.keys().map(|topic| &**topic));
        topics.sort_unstable();
        topics.dedup();
        let query = KeyQuery { exact: true, ..*query };
        let found = key_query::query_topics(&self.reader, topics.into_iter(), &query, by);
        let found = self.noting(found)?;
        // An unreadable table may hide a topic without queues.
        Ok(QueryResult { complete: found.complete && unread.is_none(), ..found })
    }

    /// One queue as it is now.
    pub fn queue(&self, topic: &[u8], queue_id: i32) -> Result<Option<QueueView>> {
        self.files.check_open()?;
        self.reader.read_queue(topic, queue_id, |view| Ok(view.cloned()))
    }

    /// All queues, sorted.
    pub fn queue_names(&self) -> Result<Vec<(Box<[u8]>, i32)>> {
        self.files.check_open()?;
        self.reader.queue_names()
    }

    /// End of what readers see.
    #[must_use]
    pub fn end_offset(&self) -> u64 {
        self.reader.readable_end()
    }

    /// A walk over all records from `start` on that checks each.
    #[must_use]
    pub fn scanner(&self, start: u64) -> Scanner {
        Scanner::new(&self.files.log, start, self.reader.readable_end(), true)
    }

    /// Updates a reader's view; does nothing for a writer.
    pub fn refresh(&self) -> Result<()> {
        self.files.check_open()?;
        self.reader.refresh()
    }

    /// [`MessageStore::refresh`], but cheap if the log did not grow.
    pub fn refresh_if_grown(&self) -> Result<()> {
        self.files.check_open()?;
        self.reader.refresh_if_grown()
    }

    /// Reads the ends of all queues at once, where each costs a request.
    pub fn read_ends(&self) -> Result<()> {
        self.files.check_open()?;
        self.files.queues.read_ends()?;
        self.reader.audits_more().map(drop)
    }

    /// Lets the next refresh take whatever log lies there.
    pub fn forget_log(&self) {
        self.reader.forget_log();
    }

    /// Waits until the log exceeds `physical_offset`; `false` on timeout, or if the log was cut.
    pub fn wait(&self, physical_offset: u64, timeout: Duration) -> Result<bool> {
        self.reader.wait(physical_offset, timeout)
    }

    /// Events since the store was opened.
    #[must_use]
    #[inline]
    pub fn notices(&self) -> &Notices {
        &self.files.notices
    }

    /// Ends the threads, flushes everything, and releases lock, files and maps, except files that a
    /// reader holds. A second call, or one in a forked child, does nothing.
    ///
    /// # Errors
    /// [`Error::Io`]; `abort` stays then, and the next open recovers.
    pub fn close(&self) -> Result<()> {
        self.close_after(|| ())
    }

    /// Calls `last` when no thread leaves notices.
    pub(crate) fn close_after(&self, last: impl FnOnce()) -> Result<()> {
        if self.is_of_parent() {
            self.files.closed.store(true, Ordering::Release);
            return Ok(());
        }
        if self.files.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // A group that is committing holds the folder's lock.
        drop(self.groups.lock());
        let Some(writer) = &self.writer else {
            self.files.close();
            return Ok(());
        };
        let services = self.services.lock().take();
        if let Some(services) = services {
            services.stop(writer);
        }
        last();
        let closed = writer.close();
        writer.close_files();
        self.files.close();
        closed
    }

    #[must_use]
    pub(crate) fn is_of_parent(&self) -> bool {
        self.pid != std::process::id()
    }

    /// Whether `close` was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.files.closed.load(Ordering::Acquire)
    }

    #[doc(hidden)]
    pub fn hold_dispatch(&self, held: bool) {
        if let Some(writer) = &self.writer {
            writer.dispatch_held.store(held, Ordering::Release);
        }
    }

    /// Counts messages and bytes that the log no longer holds, by queue entries before its
    /// beginning.
    pub fn deleted(&self) -> Result<(u64, u64)> {
        self.files.check_open()?;
        let start = self.files.log.min_offset();
        let queues = if start == 0 {
            Vec::new()
        } else {
            self.files.queues.read_ends()?;
            self.files.queues.all()
        };
        let messages = queues.iter().try_fold(0_u64, |sum, queue| {
            let first = queue.first_at_or_behind(start)?;
            Ok::<_, Error>(sum.saturating_add(clamp_u64(first)))
        })?;
        Ok((messages, start))
    }

    /// Disk usage of the store.
    #[must_use]
    pub fn disk_use(&self) -> DiskUse {
        DiskUse::now(&self.files.paths)
    }

    /// Plans [`MessageStore::clean_step`] without a change.
    pub fn judge(&self, occasion: &Occasion) -> Result<Judgement> {
        self.files.check_open()?;
        let safe_end = self.writer.as_ref().map_or(u64::MAX, |writer| writer.safe_end());
        self.files.judge(occasion, safe_end)
    }

    /// One round of retention: deletes expired files, or files for lack of space.
    pub fn clean_step(&self, occasion: &Occasion) -> Result<Cleaned> {
        self.writer()?.clean_step(occasion)
    }
}

impl Drop for MessageStore {
    fn drop(&mut self) {
        if self.is_of_parent() {
            // Lock, maps and threads are the parent's.
            let services = self.services.get_mut();
            let shared = (Arc::clone(&self.files), self.writer.clone());
            std::mem::forget((services.take(), shared));
            return;
        }
        // On an error `abort` stays, and the next open recovers.
        let _ = self.close();
    }
}

#[derive(Clone, Debug)]
pub enum LogSource {
    Store(Arc<MessageStore>),
    Log(Arc<CommitLog>),
}

impl LogSource {
    pub fn log(&self) -> Result<&CommitLog> {
        match self {
            Self::Store(store) => store.check_open().map(|()| store.log()),
            Self::Log(log) => Ok(log),
        }
    }
}

#[cfg(test)]
mod tests;
