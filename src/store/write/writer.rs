//! The writer of a store: appends, dispatches and flushes.
//!
//! Methods have the order in which a message passes them: append, dispatch, flush, close. Callers
//! and threads (`background.rs`) share it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::locks::Mutex;

use crate::config::FlushDiskType;
use crate::error::{AppendResult, Error, Operation, Result};
use crate::files::{Moved, SharedActiveFiles, Wakeup};
use crate::format::release::Release;
use crate::format::width::clamp_u64;
use crate::log::StoreCheckpoint;
use crate::log::index::file::IndexFile;
use crate::log::index::writer::IndexService;
use crate::log::read::scanner::{Flow, Item, Resync, Scanner, Stop};

use super::append::{Appender, BatchError, Checked, NewMessage, Sum};
use super::group_commit::{FlushGate, Waited};
use super::new_queues::NewQueues;
use super::queue_selector::QueueSelector;
use super::retention::Cleaning;
use crate::log::read::end::data_end;
use crate::store::dispatch::dispatcher::{DispatchRequest, Dispatcher};
use crate::store::folder::lock::{self, StoreLock};
use crate::store::folder::mark::DurableMark;
use crate::store::folder::seal::Seal;
use crate::store::recovery_report::RecoveryReport;
use crate::store::store_files::StoreFiles;
use crate::store::topics::NewTopics;

/// Bytes of log after which queue entries are written to files, to save memory.
pub(crate) const COMMIT_BYTES: u64 = 32 << 20;
/// Disk space that one more queue may need at close: a block, folders and tables.
pub(crate) const QUEUE_BYTES: u64 = 8 << 10;
const MESSAGES_PER_CLOCK_READING: usize = 32;
pub(crate) const CHUNK: usize = 1024;

/// Locks are taken in the order that `docs/architecture.md` gives. `appender`, `topics` and `lock`
/// are released before anything is flushed or waited for.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) files: Arc<StoreFiles>,
    pub(crate) lock: Mutex<Option<StoreLock>>,
    pub(crate) appender: Mutex<Appender>,
    pub(crate) dispatcher: Mutex<Dispatcher>,
    /// Each record before this offset has its queue entry; its keys are in the index or wait in the
    /// dispatcher.
    pub(crate) dispatched: AtomicU64,
    /// The index files hold all keys before this offset. Queries read it without a lock, and read
    /// later records from the log.
    pub(crate) indexed: AtomicU64,
    /// Store time of the newest message that was dispatched.
    pub(crate) dispatched_ms: AtomicI64,
    /// Physical offset behind the newest queue entry, for RocketMQ 5.5's checkpoint.
    pub(crate) entered: AtomicI64,
    /// Store time of the newest durable message, for the next checkpoint.
    pub(crate) durable_ms: AtomicI64,
    pub(crate) gate: FlushGate,
    pub(crate) log_front: Arc<SharedActiveFiles>,
    pub(crate) index_front: Arc<SharedActiveFiles>,
    /// Rings as appends continue, for preparing pages.
    pub(crate) bell: Arc<Wakeup>,
    /// Rings during fast appends, for creating files.
    pub(crate) files_bell: Wakeup,
    /// Whether a flush is making the newest pages clean, and whether one did.
    pub(crate) log_flushing: AtomicBool,
    pub(crate) log_flushed: AtomicBool,
    pub(crate) checkpoint: Mutex<StoreCheckpoint>,
    /// `None` until recovery is done.
    pub(crate) mark: Option<DurableMark>,
    pub(crate) topics: Mutex<NewTopics>,
    pub(crate) spread: QueueSelector,
    pub(crate) new_queues: NewQueues,
    pub(crate) cleaning: Cleaning,
    pub(crate) dispatch_held: AtomicBool,
    pub(crate) recovery: RecoveryReport,
}

/// Append: checked without a lock, placed and dispatched under the appender's, flushed without one.
impl Writer {
    #[inline]
    pub(crate) fn append(&self, message: &NewMessage<'_>) -> Result<AppendResult> {
        let checked = self.check(message, Sum::Now)?;
        let result = self.append_checked(&mut self.appender.lock(), &checked)?;
        self.wait_durable(result)
    }

    /// Appends messages in order, each part checked before any of it is written; all wait for one
    /// flush.
    pub(crate) fn append_many<'a>(
        &self,
        parts: impl Iterator<Item = &'a [NewMessage<'a>]>,
        sum: Sum,
    ) -> Result<Vec<AppendResult>, Box<BatchError>> {
        let mut results = Vec::new();
        let fail = |results, index, error| Err(Box::new(BatchError { results, index, error }));
        let mut stopped = None;
        'parts: for part in parts {
            results.reserve(part.len());
            let mut checked = Vec::with_capacity(part.len());
            for message in part {
                match self.check(message, sum) {
                    Ok(message) => checked.push(message),
                    Err(error) => {
                        stopped = Some((results.len() + checked.len(), error));
                        break 'parts;
                    }
                }
            }
            for chunk in checked.chunks(CHUNK) {
                if let Err(error) = self.append_chunk(chunk, &mut results) {
                    stopped = Some((results.len(), error));
                    break 'parts;
                }
            }
        }
        // Reported messages are durable even if a later one failed.
        if let Some(last) = results.last().copied()
            && let Err(error) = self.wait_durable(last)
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

    fn append_chunk(&self, checked: &[Checked<'_>], results: &mut Vec<AppendResult>) -> Result<()> {
        let mut appender = self.appender.lock();
        for some in checked.chunks(MESSAGES_PER_CLOCK_READING) {
            self.check_writable()?;
            let now_ms = self.files.clock.now_ms();
            for message in some {
                results.push(self.place_and_dispatch(&mut appender, message, now_ms)?);
            }
        }
        Ok(())
    }

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

    /// Fails if appending is not allowed. Checked with the appender's lock: `close` takes it after
    /// setting `closed`, so nothing is written behind the last flush.
    #[inline]
    fn check_writable(&self) -> Result<()> {
        self.files.check_open()?;
        if self.cleaning.disk_full.load(Ordering::Relaxed) {
            return Err(self.disk_is_full());
        }
        if self.gate.has_failed() { self.check_failure() } else { Ok(()) }
    }

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
            self.topics.lock().note_use(queue.topic(), queue.queue_id(), queue.kind());
            if let Some(room) = files.log.room() {
                room.needs(QUEUE_BYTES);
            }
            self.new_queues.push(Arc::clone(queue));
        }
        if files.config.flush_disk_type == FlushDiskType::Async
            && self.dispatched.load(Ordering::Acquire) >= placed.before
            && !self.dispatch_held.load(Ordering::Acquire)
        {
            let mut dispatcher = self.dispatcher.lock();
            // A thread of ours may have dispatched it meanwhile.
            let at = clamp_u64(placed.result.physical_offset);
            if (placed.before..=at).contains(&self.dispatched.load(Ordering::Acquire)) {
                let outcome = if placed.as_given {
                    let mut request = checked.request(&placed.result);
                    request.properties.read(checked.properties());
                    dispatcher
                        .dispatch(&request, Some(queue), &files.queues)
                        .map(|()| self.record_dispatched(&dispatcher, &request))
                } else {
                    self.dispatch_to(&mut dispatcher, files.log.end_offset())
                };
                match outcome {
                    // The message is in the log; the queues follow when there is room.
                    Ok(()) => {}
                    Err(error @ Error::Io { .. }) => drop(self.end_if_damaged(error)),
                    Err(error) => return Err(self.end_if_damaged(error)),
                }
            }
        }
        appender.waiters.wake();
        Ok(placed.result)
    }

    #[inline]
    fn wait_durable(&self, result: AppendResult) -> Result<AppendResult> {
        if self.files.config.flush_disk_type == FlushDiskType::Async {
            return Ok(result);
        }
        let end = clamp_u64(result.physical_offset).saturating_add(u64::from(result.store_size));
        let timeout_ms = self.files.config.sync_flush_timeout;
        match self.gate.wait(end, Duration::from_millis(timeout_ms))? {
            Waited::Flushed => Ok(result),
            Waited::TimedOut => Err(Error::FlushTimeout { result: Box::new(result), timeout_ms }),
        }
    }
}

impl Writer {
    /// End visible to readers: under `SYNC_FLUSH` only durable records.
    pub(crate) fn readable_end(&self) -> u64 {
        match self.files.config.flush_disk_type {
            FlushDiskType::Sync => self.files.log.flushed_offset(),
            FlushDiskType::Async => self.files.log.end_offset(),
        }
    }

    pub(crate) fn dispatch_step(&self) -> Result<()> {
        let end = self.readable_end();
        if self.dispatched.load(Ordering::Acquire) < end
            && !self.dispatch_held.load(Ordering::Acquire)
        {
            self.dispatch_to(&mut self.dispatcher.lock(), end)?;
        }
        Ok(())
    }

    /// Dispatches durable records unless another thread does. The next step meets an error again.
    pub(crate) fn dispatch_if_free(&self) {
        if let Some(mut dispatcher) = self.dispatcher.try_lock()
            && !self.dispatch_held.load(Ordering::Acquire)
        {
            let _ = self.dispatch_to(&mut dispatcher, self.readable_end());
        }
    }

    /// Dispatches the log up to `end` (`ReputMessageService.doReput`).
    fn dispatch_to(&self, dispatcher: &mut Dispatcher, end: u64) -> Result<()> {
        let (log, queues) = (&*self.files.log, &self.files.queues);
        let start = self.dispatched.load(Ordering::Acquire);
        let mut scanner = Scanner::new(log, start, end, false);
        let mut committed = start;
        let stop = scanner.each(log, end, Resync::Never, |range, item| {
            if let Item::Record(view, _) = item {
                let request = DispatchRequest::of(view);
                dispatcher.dispatch(&request, None, queues)?;
                self.record_dispatched(dispatcher, &request);
                if range.end - committed >= COMMIT_BYTES {
                    queues.commit()?;
                    committed = range.end;
                }
            } else {
                self.set_dispatched(dispatcher, range.end);
            }
            Ok(Flow::Continue)
        })?;
        match stop {
            Some(Stop::Damage(corruption)) => Err(Error::Corrupt(Box::new(corruption))),
            None | Some(Stop::End | Stop::Empty) => Ok(()),
        }
    }

    #[inline]
    fn record_dispatched(&self, dispatcher: &Dispatcher, request: &DispatchRequest<'_>) {
        if request.store_timestamp_ms > self.dispatched_ms.load(Ordering::Relaxed) {
            self.dispatched_ms.store(request.store_timestamp_ms, Ordering::Release);
        }
        if request.is_queued() {
            self.entered.store(request.physical_offset, Ordering::Release);
        }
        self.set_dispatched(dispatcher, request.end());
    }

    #[inline]
    pub(crate) fn set_dispatched(&self, dispatcher: &Dispatcher, end: u64) {
        self.dispatched.store(end, Ordering::Release);
        self.indexed.store(dispatcher.indexed_end(end), Ordering::Release);
    }

    /// Puts waiting keys into the index, so that queries need not read their messages from the log.
    pub(crate) fn index_step(&self) -> Result<()> {
        let is_behind =
            || self.indexed.load(Ordering::Acquire) < self.dispatched.load(Ordering::Acquire);
        if is_behind() { self.with_index(IndexService::drain).unwrap_or(Ok(())) } else { Ok(()) }
    }

    fn with_index<T>(&self, work: impl FnOnce(&mut IndexService) -> T) -> Option<T> {
        let mut dispatcher = self.dispatcher.lock();
        let done = dispatcher.index.as_mut().map(work);
        self.set_dispatched(&dispatcher, self.dispatched.load(Ordering::Acquire));
        done
    }

    pub(crate) fn write_derived(&self) -> Result<()> {
        self.with_index(IndexService::drain).unwrap_or(Ok(()))?;
        let dispatched = self.dispatched.load(Ordering::Acquire);
        self.files.queues.commit()?;
        self.record_written_entries(dispatched);
        Ok(())
    }

    fn record_written_entries(&self, offset: u64) {
        if let Some(room) = self.files.log.room() {
            room.entered(offset);
        }
        // An older offset only makes readers compare more.
        let _ = self.publish_written(offset);
    }

    fn publish_written(&self, written: u64) -> Result<()> {
        let Some(mark) = &self.mark else { return Ok(()) };
        mark.write_queues(written)?;
        self.lock.lock().as_ref().map_or(Ok(()), |lock| lock.serve(&self.files.paths))
    }

    /// Writes the queue entries of recovery to files, and lets readers trust them.
    pub(crate) fn serve(&self) -> Result<()> {
        let dispatched = self.dispatched.load(Ordering::Acquire);
        let served = self.files.queues.commit().and_then(|()| self.publish_written(dispatched));
        if served.as_ref().is_err_and(Error::is_full_disk) { Ok(()) } else { served }
    }
}

/// Flush: first the log, then queues and index.
impl Writer {
    pub(crate) fn flush(&self) -> Result<()> {
        self.flush_log()?;
        self.dispatch_step()?;
        self.flush_derived()
    }

    /// Flushes the log once, on any thread; a failure ends all writing.
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
        outcome = outcome.and_then(|end| self.check_place().map(|()| end));
        // Under `ASYNC_FLUSH` a damaged last message is an unclean end, as in RocketMQ.
        let is_sync = files.config.flush_disk_type == FlushDiskType::Sync;
        outcome =
            outcome.and_then(|end| self.set_mark(if is_sync { end } else { last }).map(|()| end));
        self.log_flushing.store(false, Ordering::Release);
        self.log_flushed.store(true, Ordering::Release);
        match outcome {
            Ok(end) => {
                self.durable_ms.fetch_max(newest_ms, Ordering::AcqRel);
                self.gate.flushed(end);
                if is_sync {
                    self.appender.lock().waiters.wake();
                }
                Ok(())
            }
            Err(error) => {
                self.end_writing(&error);
                Err(self.end_if_damaged(error))
            }
        }
    }

    fn check_place(&self) -> Result<()> {
        let files = &self.files;
        files.paths.storage.check_place().map_err(Error::flush(files.paths.root()))
    }

    /// Writes the durable mark. On a full disk it stays behind, which is safe: a copy-on-write file
    /// system may need room for it.
    fn set_mark(&self, place: u64) -> Result<()> {
        match self.mark.as_ref().map_or(Ok(()), |mark| mark.write(place)) {
            Err(error) if error.is_full_disk() => Ok(()),
            outcome => outcome,
        }
    }

    pub(crate) fn sync_mark(&self) -> Result<()> {
        self.mark.as_ref().map_or(Ok(()), DurableMark::sync)
    }

    /// Flushes queues, index and checkpoint. A failed flush or a foreign change ends all writing;
    /// after a full disk the next call retries.
    pub(crate) fn flush_derived(&self) -> Result<()> {
        self.in_derived_turn(|| self.flush_queues_and_index())
    }

    pub(crate) fn in_derived_turn(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let _turn = self.gate.derived_turn();
        self.check_failure()?;
        self.check_locked()?;
        flush().map_err(|error| {
            if matches!(error, Error::Io { op: Operation::Flush, .. }) {
                self.end_writing(&error);
            }
            self.end_if_damaged(error)
        })
    }

    fn flush_queues_and_index(&self) -> Result<()> {
        let files = &*self.files;
        let dispatched_ms = self.dispatched_ms.load(Ordering::Acquire);
        let dispatched = self.dispatched.load(Ordering::Acquire);
        let entered = self.entered.load(Ordering::Acquire);
        // No time from the future: it would call later messages flushed.
        let newest_ms = self.appender.lock().newest_timestamp_ms;
        let room = files.log.room();
        let reserved = room.map_or(0, |room| room.reserved_inodes());
        files.queues.flush()?;
        room.inspect(|room| room.made_inodes(reserved));
        self.record_written_entries(dispatched);
        // Appends continue. Full, flushed files need no rebuild after a crash.
        let index_ms = match self.with_index(IndexService::begin_flush).transpose()? {
            Some(flush) => flush.run()?,
            None => None,
        };
        let mut checkpoint = self.checkpoint.lock();
        let fields = &mut checkpoint.fields;
        let durable_ms = self.durable_ms.load(Ordering::Acquire);
        fields.physic_msg_timestamp_ms = fields.physic_msg_timestamp_ms.max(durable_ms);
        fields.logics_msg_timestamp_ms =
            fields.logics_msg_timestamp_ms.max(dispatched_ms.min(newest_ms));
        if files.config.rocketmq_version.is_some_and(Release::has_logics_offset) {
            fields.logics_physical_offset = fields.logics_physical_offset.max(entered);
        }
        if let Some(index_ms) = index_ms.filter(|index_ms| *index_ms <= newest_ms) {
            fields.index_msg_timestamp_ms = fields.index_msg_timestamp_ms.max(index_ms);
        }
        checkpoint.flush(files.paths.storage())?;
        drop(checkpoint);
        let now_ms = files.clock.now_ms();
        match NewTopics::save_unlocked(&self.topics, &files.paths, now_ms) {
            // Open warned of it: an unreadable table is the broker's and stays.
            Err(Error::Corrupt(_)) => Ok(()),
            saved => saved,
        }
    }
}

/// Close, and the end of writing after a failure.
impl Writer {
    pub(crate) fn close(&self) -> Result<()> {
        let _ = self.cleaning.pending_notices.clear_delivered(&self.files);
        let outcome = self.flush_and_seal();
        let turns = (self.gate.turn(), self.gate.derived_turn());
        self.lock.lock().take();
        drop(turns);
        // Reports the error that ended writing, whichever file failed.
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
        // Removes an unused file created ahead.
        let size = files.log.run().file_size();
        let first_unused = if end == 0 { 0 } else { end.div_ceil(size) * size };
        files.log.run().remove_from(first_unused)?;
        if self.dispatched.load(Ordering::Acquire) >= files.log.end_offset() {
            let newest_ms = self.appender.lock().newest_timestamp_ms;
            let end = files.log.end_offset();
            self.release_space(end);
            let _ = files.paths.storage.remove_file(&files.paths.waiters());
            // A missing seal only makes the next open slower.
            let _ = Seal::put(&files.paths, &files.config, end, newest_ms);
            lock::remove_abort(&files.paths)?;
        }
        Ok(())
    }

    /// Space that stays taken does no harm.
    fn release_space(&self, end: u64) {
        let run = self.files.log.run();
        let is_zeros = || matches!(data_end(&self.files.log, end), Ok(None));
        if let Some(file) = run.find(end).filter(|_| is_zeros())
            && let Ok(open) = run.open(&file)
        {
            let position = (end - file.base_offset).next_multiple_of(4096);
            let len = run.file_size().saturating_sub(position);
            let _ = if len > 0 { open.release(position, len) } else { Ok(()) };
        }
        let dispatcher = self.dispatcher.lock();
        let index = dispatcher.index.as_ref().and_then(IndexService::current);
        let _ = index.map_or(Ok(()), IndexFile::release_space);
    }

    pub(crate) fn close_files(&self) {
        let mut appender = self.appender.lock();
        appender.writer.release();
        appender.waiters.close();
        drop(appender);
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

    pub(crate) fn check_failure(&self) -> Result<()> {
        match self.gate.failure() {
            Some((path, reason)) => Err(Error::Poisoned { path, reason }),
            None => Ok(()),
        }
    }

    /// Ends all writing: unflushed data may be lost, and no later flush can tell.
    fn end_writing(&self, error: &Error) {
        if let Some(moved) = Moved::from_error(error) {
            return self.gate.fail(moved.path.clone(), moved.to_string());
        }
        let path = match error {
            Error::Io { path, .. } => path.clone(),
            Error::Corrupt(corruption) => corruption.path.clone().unwrap_or_default(),
            _ => PathBuf::new(),
        };
        self.gate.fail(path, error.to_string());
    }

    /// Ends all writing if a file was changed by others or the store moved; returns the error.
    fn end_if_damaged(&self, error: Error) -> Error {
        if Moved::from_error(&error).is_some() || matches!(error, Error::Corrupt(_)) {
            self.end_writing(&error);
        }
        Moved::end_writing(error)
    }
}
