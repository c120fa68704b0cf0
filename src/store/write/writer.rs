//! The writer of a store: places a message at the end of the log, dispatches it into queues and index,
//! and makes it durable.
//!
//! The methods stand in the order in which a message passes them: append, dispatch, flush, close. Callers
//! and the store's threads (`background.rs`) share one writer.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::FlushDiskType;
use crate::error::{AppendResult, Error, Result};
use crate::files::{Bell, Front, Moved};
use crate::log::StoreCheckpoint;
use crate::log::index::writer::IndexService;
use crate::log::read::scanner::{Scanned, Scanner, Stop};

use super::append::{Appender, Checked, NewMessage, Sum};
use super::group_commit::{FlushGate, Waited};
use super::topics::TopicTable;
use crate::store::dispatch::dispatcher::{DispatchRequest, Dispatcher};
use crate::store::lock::{self, StoreLock};
use crate::store::mark::DurableMark;
use crate::store::open::recover::RecoveryReport;
use crate::store::open::seal::Seal;
use crate::store::store_files::StoreFiles;

/// After so many bytes of the log the entries of its messages are written to the queues' files, so
/// that they take little memory.
pub(crate) const COMMIT_BYTES: u64 = 32 << 20;

/// Disk space that one more queue may need at close: the block that its next entry begins, and its share
/// of folders and tables.
pub(crate) const QUEUE_BYTES: u64 = 8 << 10;
/// So many messages of a batch, which take some microseconds, share one look at the clock.
const ONE_TIME: usize = 32;
/// How many messages [`Writer::append_many`] checks before it writes any of them.
pub(crate) const CHUNK: usize = 1024;

/// The writer of a store. A store opened for reading has none.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) files: Arc<StoreFiles>,
    /// The store's lock; `None` once the store is closed.
    pub(crate) lock: Mutex<Option<StoreLock>>,
    /// The end of the log and the next queue offsets.
    pub(crate) appender: Mutex<Appender>,
    pub(crate) dispatcher: Mutex<Dispatcher>,
    /// The queues have an entry for each record before this physical offset; the index has its keys, or
    /// they wait in the dispatcher.
    pub(crate) dispatched: AtomicU64,
    /// The index files hold the keys of each record before this physical offset. A query reads it
    /// without a lock, and looks for later records in the log.
    pub(crate) indexed: AtomicU64,
    /// The newest store time in the queues.
    pub(crate) dispatched_ms: AtomicI64,
    pub(crate) gate: FlushGate,
    /// The files of the log and the index that are written now, for the threads that work ahead.
    pub(crate) log_front: Arc<Front>,
    pub(crate) index_front: Arc<Front>,
    /// Rings while appending goes on, for the thread that makes pages ready.
    pub(crate) bell: Arc<Bell>,
    /// Rings while appending is fast, for the thread that makes files.
    pub(crate) files_bell: Bell,
    /// Whether a flush makes the pages clean that were written last, and whether one did.
    pub(crate) log_flushing: AtomicBool,
    pub(crate) log_flushed: AtomicBool,
    pub(crate) checkpoint: Mutex<StoreCheckpoint>,
    /// The durable mark; `None` until recovery is done.
    pub(crate) mark: Option<DurableMark>,
    pub(crate) topics: Mutex<TopicTable>,
    /// Whether the disk is too full for anything to be appended.
    pub(crate) disk_full: AtomicBool,
    /// Where the log began when queues and index were cleaned last.
    pub(crate) cleaned_to: AtomicU64,
    /// Tests hold dispatch to see what is not dispatched.
    pub(crate) dispatch_held: AtomicBool,
    pub(crate) recovery: RecoveryReport,
}

/// Why [`MessageStore::append_many`](crate::MessageStore::append_many) stopped.
#[derive(Debug)]
pub struct BatchError {
    /// Where the messages lie that were written before.
    pub results: Vec<AppendResult>,
    /// Which message is at fault, counted from 0.
    pub index: usize,
    /// Its own error.
    pub error: Error,
}

/// Appending: a message is checked without a lock, placed and dispatched under the appender's, and
/// waits for its flush without one.
impl Writer {
    #[inline]
    pub(crate) fn append(&self, message: &NewMessage<'_>) -> Result<AppendResult> {
        let checked = self.check(message, Sum::Now)?;
        let result = self.append_checked(&mut self.appender.lock(), &checked)?;
        self.wait_durable(result)
    }

    /// Appends messages in order, chunk by chunk: a chunk is checked before any of it is written. All wait
    /// for one flush.
    pub(crate) fn append_many(
        &self,
        messages: &[NewMessage<'_>],
        sum: Sum,
    ) -> Result<Vec<AppendResult>, Box<BatchError>> {
        let mut results = Vec::with_capacity(messages.len());
        let fail = |results, index, error| Err(Box::new(BatchError { results, index, error }));
        let mut stopped = None;
        'chunks: for chunk in messages.chunks(CHUNK) {
            let mut checked = Vec::with_capacity(chunk.len());
            for message in chunk {
                match self.check(message, sum) {
                    Ok(message) => checked.push(message),
                    Err(error) => {
                        stopped = Some((results.len() + checked.len(), error));
                        break 'chunks;
                    }
                }
            }
            if let Err(error) = self.append_chunk(&checked, &mut results) {
                stopped = Some((results.len(), error));
                break 'chunks;
            }
        }
        // A result says that its message is durable, also where a later message was at fault.
        if let Some(last) = results.last().copied()
            && let Err(error) = self.wait_durable(last)
        {
            // After a failed flush nobody can tell which of them are safe; those that only wait
            // too long are stored.
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

    /// Appends checked messages and adds a result for each that is in the log; stops at the first that is
    /// not.
    fn append_chunk(&self, checked: &[Checked<'_>], results: &mut Vec<AppendResult>) -> Result<()> {
        let mut appender = self.appender.lock();
        for some in checked.chunks(ONE_TIME) {
            self.check_writable()?;
            let now_ms = self.files.clock.now_ms();
            for message in some {
                results.push(self.place_and_dispatch(&mut appender, message, now_ms)?);
            }
        }
        Ok(())
    }

    /// Appends the messages of one queue one behind the other in one file, all of them or none.
    pub(crate) fn append_batch(&self, messages: &[NewMessage<'_>]) -> Result<Vec<AppendResult>> {
        let checked = messages
            .iter()
            .map(|message| self.check(message, Sum::Now))
            .collect::<Result<Vec<_>>>()?;
        let results = {
            let mut appender = self.appender.lock();
            self.check_writable()?;
            let room = appender.make_room(&checked, &self.files.config);
            room.map_err(|error| self.end_if_damaged(error))?;
            let now_ms = self.files.clock.now_ms();
            checked
                .iter()
                .map(|message| self.place_and_dispatch(&mut appender, message, now_ms))
                .collect::<Result<Vec<_>>>()?
        };
        if let Some(last) = results.last() {
            self.wait_durable(*last)?;
        }
        Ok(results)
    }

    #[inline]
    pub(crate) fn check<'a>(&self, message: &'a NewMessage<'a>, sum: Sum) -> Result<Checked<'a>> {
        let files = &*self.files;
        Checked::new(message, &files.config, &files.queues, files.log.run().file_size(), sum)
    }

    #[inline]
    pub(crate) fn append_checked(
        &self,
        appender: &mut Appender,
        checked: &Checked<'_>,
    ) -> Result<AppendResult> {
        self.check_writable()?;
        self.place_and_dispatch(appender, checked, self.files.clock.now_ms())
    }

    /// Fails where nothing may be appended. Called by the thread that holds the appender: `close` takes the
    /// appender after it set `closed`, so nothing is written behind the last flush or without the lock.
    #[inline]
    fn check_writable(&self) -> Result<()> {
        self.files.check_open()?;
        if self.disk_full.load(Ordering::Relaxed) {
            return Err(self.disk_is_full());
        }
        if self.gate.has_failed() { self.check_failure() } else { Ok(()) }
    }

    /// Writes one record at the end of the log, and its entries straight into queues and index, unless
    /// those lack an earlier record.
    #[inline]
    fn place_and_dispatch(
        &self,
        appender: &mut Appender,
        checked: &Checked<'_>,
        now_ms: i64,
    ) -> Result<AppendResult> {
        let files = &*self.files;
        let (placed, queue, is_new) =
            match appender.place(checked, &files.config, &files.queues, now_ms) {
                Ok(placed) => placed,
                Err(error) => return Err(self.end_if_damaged(error)),
            };
        if is_new {
            self.topics.lock().used(queue.topic(), queue.queue_id(), queue.kind());
            if let Some(room) = files.log.room() {
                room.needs(QUEUE_BYTES);
            }
        }
        if files.config.flush_disk_type == FlushDiskType::Async
            && self.dispatched.load(Ordering::Acquire) >= placed.before
            && !self.dispatch_held.load(Ordering::Acquire)
        {
            let mut dispatcher = self.dispatcher.lock();
            // A reader may have dispatched it in between.
            let at = u64::try_from(placed.result.physical_offset).unwrap_or(0);
            if (placed.before..=at).contains(&self.dispatched.load(Ordering::Acquire)) {
                let outcome = if placed.as_given {
                    let request = checked.request(&placed.result);
                    dispatcher
                        .dispatch(&request, Some(queue), &files.queues)
                        .map(|()| self.has_dispatched(&dispatcher, &request))
                } else {
                    self.dispatch_to(&mut dispatcher, files.log.end_offset())
                };
                match outcome {
                    // The message is in the log; the queues follow when there is room again.
                    Ok(()) => {}
                    Err(error @ Error::Io { .. }) => drop(self.end_if_damaged(error)),
                    Err(error) => return Err(self.end_if_damaged(error)),
                }
            }
        }
        Ok(placed.result)
    }

    /// Waits under `SYNC_FLUSH` until a message is durable.
    #[inline]
    fn wait_durable(&self, result: AppendResult) -> Result<AppendResult> {
        if self.files.config.flush_disk_type == FlushDiskType::Async {
            return Ok(result);
        }
        let end = u64::try_from(result.physical_offset)
            .unwrap_or(0)
            .saturating_add(u64::from(result.store_size));
        let timeout_ms = self.files.config.sync_flush_timeout;
        match self.gate.wait(end, Duration::from_millis(timeout_ms))? {
            Waited::Flushed => Ok(result),
            Waited::TimedOut => Err(Error::FlushTimeout { result: Box::new(result), timeout_ms }),
        }
    }
}

/// Dispatching: from the log into queues and index.
impl Writer {
    /// One past the last byte that a reader may see. Under `SYNC_FLUSH` nobody sees a record that is not
    /// durable.
    pub(crate) fn readable_end(&self) -> u64 {
        match self.files.config.flush_disk_type {
            FlushDiskType::Sync => self.files.log.flushed_offset(),
            FlushDiskType::Async => self.files.log.end_offset(),
        }
    }

    /// Brings queues and index level with what readers may see of the log.
    pub(crate) fn dispatch_step(&self) -> Result<()> {
        let end = self.readable_end();
        if self.dispatched.load(Ordering::Acquire) < end
            && !self.dispatch_held.load(Ordering::Acquire)
        {
            self.dispatch_to(&mut self.dispatcher.lock(), end)?;
        }
        Ok(())
    }

    /// Dispatches the log up to `end` (`ReputMessageService.doReput`).
    fn dispatch_to(&self, dispatcher: &mut Dispatcher, end: u64) -> Result<()> {
        let (log, queues) = (&*self.files.log, &self.files.queues);
        let start = self.dispatched.load(Ordering::Acquire);
        let mut scanner = Scanner::new(log, start, end, false);
        let mut committed = start;
        loop {
            match scanner.step()? {
                Ok(Scanned::Message(view)) => {
                    let request = DispatchRequest::of(&view);
                    dispatcher.dispatch(&request, None, queues)?;
                    self.has_dispatched(dispatcher, &request);
                    if request.end() - committed >= COMMIT_BYTES {
                        queues.commit()?;
                        committed = request.end();
                    }
                }
                Ok(Scanned::Blank { physical_offset, size }) => {
                    let next = physical_offset.saturating_add(u64::from(size));
                    self.set_dispatched(dispatcher, next);
                }
                Err(Stop::End | Stop::Empty) => return Ok(()),
                Err(Stop::Damage(corruption)) => {
                    return Err(Error::Corrupt(Box::new(corruption)));
                }
            }
        }
    }

    #[inline]
    fn has_dispatched(&self, dispatcher: &Dispatcher, request: &DispatchRequest<'_>) {
        if request.store_timestamp_ms > self.dispatched_ms.load(Ordering::Relaxed) {
            self.dispatched_ms.store(request.store_timestamp_ms, Ordering::Release);
        }
        self.set_dispatched(dispatcher, request.end());
    }

    /// Publishes how far queues and index have come. The caller holds the dispatcher.
    #[inline]
    pub(crate) fn set_dispatched(&self, dispatcher: &Dispatcher, end: u64) {
        self.dispatched.store(end, Ordering::Release);
        self.indexed.store(dispatcher.indexed_end(end), Ordering::Release);
    }

    /// Puts the keys that wait in memory into the index, so that queries need not look for their messages
    /// in the log.
    pub(crate) fn index_step(&self) -> Result<()> {
        let is_behind =
            || self.indexed.load(Ordering::Acquire) < self.dispatched.load(Ordering::Acquire);
        if is_behind() { self.with_index(IndexService::drain).unwrap_or(Ok(())) } else { Ok(()) }
    }

    /// Runs `work` on the index, if there is one, and publishes how far that came.
    fn with_index<T>(&self, work: impl FnOnce(&mut IndexService) -> T) -> Option<T> {
        let mut dispatcher = self.dispatcher.lock();
        let done = dispatcher.index.as_mut().map(work);
        self.set_dispatched(&dispatcher, self.dispatched.load(Ordering::Acquire));
        done
    }

    /// Writes queue entries and keys that wait in memory into their files, where other processes see them.
    pub(crate) fn write_derived(&self) -> Result<()> {
        self.with_index(IndexService::drain).unwrap_or(Ok(()))?;
        let dispatched = self.dispatched.load(Ordering::Acquire);
        self.files.queues.commit()?;
        self.has_written_entries(dispatched);
        Ok(())
    }

    /// Frees the disk space that was kept for the entries of records before `offset`.
    fn has_written_entries(&self, offset: u64) {
        if let Some(room) = self.files.log.room() {
            room.entered(offset);
        }
    }
}

/// Flushing: first the log, then what is derived from it.
impl Writer {
    /// Makes all of it durable, queues and index included.
    pub(crate) fn flush(&self) -> Result<()> {
        self.flush_log()?;
        self.dispatch_step()?;
        self.flush_derived()
    }

    /// Flushes the log once, on the calling thread; a failure ends all writing.
    pub(crate) fn flush_log(&self) -> Result<()> {
        let files = &*self.files;
        let _turn = self.gate.turn();
        self.check_failure()?;
        let (newest_ms, end, last, mapped) = {
            let Appender { writer, newest_timestamp_ms, last_begin, .. } = &*self.appender.lock();
            (*newest_timestamp_ms, writer.end_offset(), *last_begin, writer.mapped())
        };
        self.log_flushing.store(true, Ordering::Release);
        let mut outcome = files.log.flush(end, mapped.as_ref());
        if let Some(lock) = &*self.lock.lock() {
            outcome = outcome.and_then(|end| lock.confirm_flush(&files.paths).map(|()| end));
        }
        // The flush went to open files; the next ones are found by their paths.
        outcome = outcome.and_then(|end| self.check_place().map(|()| end));
        // Under `ASYNC_FLUSH` a damaged last message is an unclean end, as it is for RocketMQ.
        let is_sync = files.config.flush_disk_type == FlushDiskType::Sync;
        outcome =
            outcome.and_then(|end| self.set_mark(if is_sync { end } else { last }).map(|()| end));
        self.log_flushing.store(false, Ordering::Release);
        self.log_flushed.store(true, Ordering::Release);
        match outcome {
            Ok(end) => {
                let mut checkpoint = self.checkpoint.lock();
                let known = &mut checkpoint.fields.physic_msg_timestamp_ms;
                *known = (*known).max(newest_ms);
                drop(checkpoint);
                self.gate.flushed(end);
                Ok(())
            }
            Err(error) => {
                self.end_writing(&error);
                Err(self.end_if_damaged(error))
            }
        }
    }

    /// Fails where the store is no longer at its path.
    fn check_place(&self) -> Result<()> {
        let files = &self.files;
        files.storage.check_place().map_err(Error::io("flush", files.paths.root()))
    }

    /// Writes the durable mark. On a full disk the mark stays behind, which is safe: a file system that
    /// writes each change to a new place may want room for it.
    fn set_mark(&self, place: u64) -> Result<()> {
        match self.mark.as_ref().map_or(Ok(()), |mark| mark.write(place)) {
            Err(error) if error.is_full_disk() => Ok(()),
            outcome => outcome,
        }
    }

    /// Flushes the durable mark.
    pub(crate) fn sync_mark(&self) -> Result<()> {
        self.mark.as_ref().map_or(Ok(()), DurableMark::sync)
    }

    /// Makes queues, index and checkpoint durable. A failed flush ends all writing, and so does a file
    /// that another process changed; a full disk is met again by the next call.
    pub(crate) fn flush_derived(&self) -> Result<()> {
        let _turn = self.gate.derived_turn();
        self.check_failure()?;
        self.check_locked()?;
        self.flush_queues_and_index().map_err(|error| {
            if matches!(error, Error::Io { op: "flush", .. }) {
                self.end_writing(&error);
            }
            self.end_if_damaged(error)
        })
    }

    fn flush_queues_and_index(&self) -> Result<()> {
        let files = &*self.files;
        let dispatched_ms = self.dispatched_ms.load(Ordering::Acquire);
        let dispatched = self.dispatched.load(Ordering::Acquire);
        // The checkpoint takes no time from the future: it would call flushed what comes later.
        let newest_ms = self.appender.lock().newest_timestamp_ms;
        files.queues.flush()?;
        self.has_written_entries(dispatched);
        // Appending goes on during the flush. A full and durable file need not be built again after a crash.
        let index_ms = match self.with_index(IndexService::begin_flush).transpose()? {
            Some(flush) => flush.run()?,
            None => None,
        };
        let mut checkpoint = self.checkpoint.lock();
        let fields = &mut checkpoint.fields;
        fields.logics_msg_timestamp_ms =
            fields.logics_msg_timestamp_ms.max(dispatched_ms.min(newest_ms));
        if let Some(index_ms) = index_ms.filter(|index_ms| *index_ms <= newest_ms) {
            fields.index_msg_timestamp_ms = fields.index_msg_timestamp_ms.max(index_ms);
        }
        checkpoint.flush(&*files.storage)?;
        drop(checkpoint);
        match self.topics.lock().save(&*files.storage, &files.paths, files.clock.now_ms()) {
            // Opening warned of it: a table that cannot be read is a broker's, and stays as it is.
            Err(Error::Corrupt(_)) => Ok(()),
            saved => saved,
        }
    }
}

/// Closing, and the end of writing after a failure.
impl Writer {
    /// Makes everything durable and lets the next writer in.
    pub(crate) fn close(&self) -> Result<()> {
        let outcome = self.flush_and_seal();
        let turns = (self.gate.turn(), self.gate.derived_turn());
        self.lock.lock().take();
        drop(turns);
        // The caller hears that writing has ended, whichever file it ended with.
        outcome.map_err(|error| self.check_failure().err().unwrap_or(error))
    }

    fn flush_and_seal(&self) -> Result<()> {
        let files = &*self.files;
        self.flush_log()?;
        self.dispatch_step()?;
        self.flush_derived()?;
        self.sync_mark()?;
        let mut appender = self.appender.lock();
        appender.writer.release();
        let end = files.log.end_offset();
        drop(appender);
        // A file made ahead that took no message goes.
        let size = files.log.run().file_size();
        let first_unused = if end == 0 { 0 } else { end.div_ceil(size) * size };
        files.log.run().remove_from(first_unused)?;
        if self.dispatched.load(Ordering::Acquire) >= files.log.end_offset() {
            let newest_ms = self.appender.lock().newest_timestamp_ms;
            let end = files.log.end_offset();
            // A missing seal only makes the next open slower.
            let _ = Seal::put(&*files.storage, &files.paths, &files.config, end, newest_ms);
            lock::remove_abort(&*files.storage, &files.paths)?;
        }
        Ok(())
    }

    /// Closes files and maps, those excepted that a reader still holds.
    pub(crate) fn close_files(&self) {
        self.appender.lock().writer.release();
        self.dispatcher.lock().index = None;
        self.checkpoint.lock().close_file();
        if let Some(mark) = &self.mark {
            mark.close_file();
        }
    }

    /// Fails if the store was closed while the caller waited: another process may own the files by now.
    pub(crate) fn check_locked(&self) -> Result<()> {
        if self.lock.lock().is_some() { Ok(()) } else { Err(Error::Closed) }
    }

    /// Fails once a flush failed, with that failure.
    pub(crate) fn check_failure(&self) -> Result<()> {
        match self.gate.failure() {
            Some((path, reason)) => Err(Error::Poisoned { path, reason }),
            None => Ok(()),
        }
    }

    /// Ends all writing: data that was to be made durable may be lost, and no later flush can tell.
    fn end_writing(&self, error: &Error) {
        if let Some(moved) = Moved::told_by(error) {
            return self.gate.fail(moved.path.clone(), moved.to_string());
        }
        let path = match error {
            Error::Io { path, .. } => path.clone(),
            Error::Corrupt(corruption) => corruption.path.clone().unwrap_or_default(),
            _ => PathBuf::new(),
        };
        self.gate.fail(path, error.to_string());
    }

    /// Ends all writing where another process changed a file or moved the store. Returns the error for the
    /// caller.
    fn end_if_damaged(&self, error: Error) -> Error {
        let moved = Moved::told_by(&error);
        if moved.is_some() || matches!(error, Error::Corrupt(_)) {
            self.end_writing(&error);
        }
        match moved {
            Some(moved) => Error::Poisoned { path: moved.path.clone(), reason: moved.to_string() },
            None => error,
        }
    }
}
