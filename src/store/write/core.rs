//! State shared by a store's threads and callers, and the threads' steps.

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::config::{FlushDiskType, StoreConfig};
use crate::error::{AppendResult, Error, Result};
use crate::files::{Bell, Front, Moved, Storage};
use crate::log::index::run::IndexRun;
use crate::log::index::writer::IndexService;
use crate::log::read::scanner::{Scanned, Scanner, Stop};
use crate::log::{CommitLog, StoreCheckpoint};
use crate::time::Clock;

use super::append::{self, Appender};
use super::group_commit::{FlushGate, Waited};
use super::notices::Notices;
use super::retention::file_ages::FileAges;
use super::topics::TopicTable;
use crate::store::dispatch::dispatcher::{DispatchRequest, Dispatcher};
use crate::store::lock::{self, StoreLock};
use crate::store::mark::{DurableMark, Flushed};
use crate::store::open::recover::RecoveryReport;
use crate::store::open::seal::Seal;
use crate::store::paths::StorePaths;
use crate::store::queue_table::QueueTable;
use crate::store::read::queue_view::Overlay;

/// Bytes of log after which queue entries are written to files, to save memory.
pub(crate) const COMMIT_BYTES: u64 = 32 << 20;

/// Disk space that one more queue may need at close: a block, folders and tables.
pub(crate) const QUEUE_BYTES: u64 = 8 << 10;
/// Messages of a batch per clock reading.
const ONE_TIME: usize = 32;

/// State shared by a store's threads and callers.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) paths: StorePaths,
    pub(crate) config: StoreConfig,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: QueueTable,
    /// The index for queries, if usable.
    pub(crate) index: Option<Arc<IndexRun>>,
    /// `None` for a reader.
    pub(crate) writing: Option<Writing>,
    pub(crate) reading: RwLock<Reading>,
    /// Lock of refreshing a view: the later result counts.
    pub(crate) refreshing: Mutex<()>,
    pub(crate) closed: AtomicBool,
    pub(crate) warnings: Vec<String>,
    pub(crate) notices: Notices,
    /// Store times of files for `keep_hours`.
    pub(crate) ages: FileAges,
}

#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) lock: Mutex<Option<StoreLock>>,
    pub(crate) appender: Mutex<Appender>,
    pub(crate) dispatcher: Mutex<Dispatcher>,
    /// End of what is in queues and index.
    pub(crate) dispatched: AtomicU64,
    /// Newest store time in the queues.
    pub(crate) dispatched_ms: AtomicI64,
    pub(crate) gate: FlushGate,
    /// Files being written, for the threads that work ahead.
    pub(crate) log_front: Arc<Front>,
    pub(crate) index_front: Arc<Front>,
    /// Rings as appends continue, for preparing pages.
    pub(crate) bell: Arc<Bell>,
    /// Rings during fast appends, for creating files.
    pub(crate) files_bell: Bell,
    /// Whether a flush is making the newest pages clean, and whether one did.
    pub(crate) log_flushing: AtomicBool,
    pub(crate) log_flushed: AtomicBool,
    pub(crate) checkpoint: Mutex<StoreCheckpoint>,
    /// The durable mark; `None` until recovery is done.
    pub(crate) mark: Option<DurableMark>,
    pub(crate) topics: Mutex<TopicTable>,
    pub(crate) disk_full: AtomicBool,
    /// The log's beginning when queues and index were last cleaned.
    pub(crate) cleaned_to: AtomicU64,
    pub(crate) dispatch_held: AtomicBool,
    pub(crate) recovery: RecoveryReport,
}

/// State of a reader beside the log.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) overlay: OnceLock<Arc<Overlay>>,
    /// Offset from which queues are compared with the log.
    pub(crate) doubt: u64,
    /// After a crash: index files with later messages are not trusted.
    pub(crate) index_trusted_until_ms: Option<i64>,
    /// The part of the log known to be durable, if `abort` exists.
    pub(crate) flushed: Option<Flushed>,
    /// Offset of a last record left out although it may be whole.
    pub(crate) left_out: Option<u64>,
}

impl Writing {
    /// Ends all writing: unflushed data may be lost, and no later flush can tell.
    fn poison(&self, error: &Error) {
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

    /// Ends all writing if a file was changed by others or the store moved; returns the error.
    pub(crate) fn heed(&self, error: Error) -> Error {
        let moved = Moved::told_by(&error);
        if moved.is_some() || matches!(error, Error::Corrupt(_)) {
            self.poison(&error);
        }
        match moved {
            Some(moved) => Error::Poisoned { path: moved.path.clone(), reason: moved.to_string() },
            None => error,
        }
    }

    /// Fails if the store was closed while the caller waited: another process may own the files by
    /// now.
    pub(crate) fn check_locked(&self) -> Result<()> {
        if self.lock.lock().is_some() { Ok(()) } else { Err(Error::Closed) }
    }

    /// Called with the dispatcher's lock.
    #[inline]
    pub(crate) fn has_dispatched(&self, request: &DispatchRequest<'_>) {
        if request.store_timestamp_ms > self.dispatched_ms.load(Ordering::Relaxed) {
            self.dispatched_ms.store(request.store_timestamp_ms, Ordering::Release);
        }
        self.dispatched.store(request.end(), Ordering::Release);
    }
}

impl Core {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn writing(&self) -> Result<&Writing> {
        self.check_open()?;
        self.writing.as_ref().ok_or_else(|| Error::ReadOnly { path: self.paths.root().to_owned() })
    }

    pub(crate) fn reading(&self) -> parking_lot::RwLockReadGuard<'_, Reading> {
        self.reading.read()
    }

    /// End visible to readers: under `SYNC_FLUSH` only durable records.
    pub(crate) fn readable_end(&self) -> u64 {
        match (&self.writing, self.config.flush_disk_type) {
            (Some(_), FlushDiskType::Sync) => self.log.flushed_offset(),
            _ => self.log.end_offset(),
        }
    }

    pub(crate) fn poisoned(&self, writing: &Writing) -> Result<()> {
        match writing.gate.failure() {
            Some((path, reason)) => Err(Error::Poisoned { path, reason }),
            None => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn append_locked(
        &self,
        writing: &Writing,
        appender: &mut Appender,
        checked: &append::Checked<'_>,
    ) -> Result<AppendResult> {
        self.may_append(writing)?;
        self.append_at(writing, appender, checked, self.clock.now_ms())
    }

    /// Appends messages into `results`; stops at the first failure.
    pub(crate) fn append_all_locked(
        &self,
        writing: &Writing,
        appender: &mut Appender,
        checked: &[append::Checked<'_>],
        results: &mut Vec<AppendResult>,
    ) -> Result<()> {
        for some in checked.chunks(ONE_TIME) {
            self.may_append(writing)?;
            let now_ms = self.clock.now_ms();
            for message in some {
                results.push(self.append_at(writing, appender, message, now_ms)?);
            }
        }
        Ok(())
    }

    /// Checked with the appender's lock: closing takes it afterwards, so nothing is written behind
    /// the last flush or without the store's lock.
    #[inline]
    pub(crate) fn may_append(&self, writing: &Writing) -> Result<()> {
        self.check_open()?;
        if writing.disk_full.load(Ordering::Relaxed) {
            return Err(self.disk_is_full());
        }
        if writing.gate.has_failed() { self.poisoned(writing) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn append_at(
        &self,
        writing: &Writing,
        appender: &mut Appender,
        checked: &append::Checked<'_>,
        now_ms: i64,
    ) -> Result<AppendResult> {
        let (placed, queue, new_queue) =
            match appender.place(checked, &self.config, &self.queues, now_ms) {
                Ok(placed) => placed,
                Err(error) => return Err(writing.heed(error)),
            };
        if new_queue {
            writing.topics.lock().used(queue.topic(), queue.queue_id(), queue.kind());
            if let Some(room) = self.log.room() {
                room.needs(QUEUE_BYTES);
            }
        }
        // Dispatched directly, unless earlier records are not yet.
        if self.config.flush_disk_type == FlushDiskType::Async
            && writing.dispatched.load(Ordering::Acquire) >= placed.before
            && !writing.dispatch_held.load(Ordering::Acquire)
        {
            let mut dispatcher = writing.dispatcher.lock();
            // A reader may have dispatched it meanwhile.
            let at = u64::try_from(placed.result.physical_offset).unwrap_or(0);
            if (placed.before..=at).contains(&writing.dispatched.load(Ordering::Acquire)) {
                let outcome = if placed.as_given {
                    let request = checked.request(&placed.result);
                    dispatcher
                        .dispatch(&request, Some(queue), &self.queues)
                        .map(|()| writing.has_dispatched(&request))
                } else {
                    self.reput(writing, &mut dispatcher, self.log.end_offset()).map(|_| ())
                };
                match outcome {
                    // The message is in the log; the queues follow when there is room.
                    Ok(()) => {}
                    Err(error @ Error::Io { .. }) => drop(writing.heed(error)),
                    Err(error) => return Err(writing.heed(error)),
                }
            }
        }
        Ok(placed.result)
    }

    #[inline]
    pub(crate) fn wait_durable(
        &self,
        writing: &Writing,
        result: AppendResult,
    ) -> Result<AppendResult> {
        if self.config.flush_disk_type == FlushDiskType::Async {
            return Ok(result);
        }
        let end = u64::try_from(result.physical_offset)
            .unwrap_or(0)
            .saturating_add(u64::from(result.store_size));
        let timeout_ms = self.config.sync_flush_timeout;
        match writing.gate.wait(end, Duration::from_millis(timeout_ms))? {
            Waited::Flushed => Ok(result),
            Waited::TimedOut => Err(Error::FlushTimeout { result: Box::new(result), timeout_ms }),
        }
    }

    /// Flushes the log once, on any thread; a failure ends all writing.
    pub(crate) fn flush_log(&self, writing: &Writing) -> Result<()> {
        let _turn = writing.gate.turn();
        self.poisoned(writing)?;
        let (newest_ms, end, last, mapped) = {
            let Appender { writer, newest_timestamp_ms, last_begin, .. } =
                &*writing.appender.lock();
            (*newest_timestamp_ms, writer.end_offset(), *last_begin, writer.mapped())
        };
        writing.log_flushing.store(true, Ordering::Release);
        let mut outcome = self.log.flush(end, mapped.as_ref());
        if let Some(lock) = &*writing.lock.lock() {
            outcome = outcome.and_then(|end| lock.confirm_flush(&self.paths).map(|()| end));
        }
        // The flush reached the open files; later ones are found by path.
        outcome = outcome.and_then(|end| self.check_place().map(|()| end));
        // Under `ASYNC_FLUSH` a damaged last message is an unclean end, as in RocketMQ.
        let is_sync = self.config.flush_disk_type == FlushDiskType::Sync;
        outcome = outcome
            .and_then(|end| writing.set_mark(if is_sync { end } else { last }).map(|()| end));
        writing.log_flushing.store(false, Ordering::Release);
        writing.log_flushed.store(true, Ordering::Release);
        match outcome {
            Ok(end) => {
                let mut checkpoint = writing.checkpoint.lock();
                let known = &mut checkpoint.fields.physic_msg_timestamp_ms;
                *known = (*known).max(newest_ms);
                drop(checkpoint);
                writing.gate.flushed(end);
                Ok(())
            }
            Err(error) => {
                writing.poison(&error);
                Err(writing.heed(error))
            }
        }
    }

    /// Fails if the store is no longer at its path.
    fn check_place(&self) -> Result<()> {
        self.storage.check_place().map_err(Error::io("flush", self.paths.root()))
    }

    /// Dispatches everything visible.
    pub(crate) fn catch_up(&self) -> Result<()> {
        let Some(writing) = &self.writing else { return Ok(()) };
        let end = self.readable_end();
        if writing.dispatched.load(Ordering::Acquire) < end
            && !writing.dispatch_held.load(Ordering::Acquire)
        {
            let mut dispatcher = writing.dispatcher.lock();
            self.reput(writing, &mut dispatcher, end)?;
        }
        Ok(())
    }

    /// Dispatches for a reader. On a full disk the reader gets the missing entries from the log.
    pub(crate) fn catch_up_to_read(&self) -> Result<Option<Overlay>> {
        match self.catch_up() {
            Err(error) if error.is_full_disk() => {
                let from = self.writing()?.dispatched.load(Ordering::Acquire);
                Overlay::read(&self.log, &self.queues, from, self.readable_end()).map(Some)
            }
            other => other.map(|()| None),
        }
    }

    /// Makes all put keys visible to queries.
    pub(crate) fn drain_index(&self, writing: &Writing) -> Result<()> {
        match &mut writing.dispatcher.lock().index {
            Some(index) => index.drain(),
            None => Ok(()),
        }
    }

    /// Offset from which keys must be read from the log, because the index lacks them or is not
    /// trusted.
    pub(crate) fn index_reach(&self) -> Result<u64> {
        if self.index.is_none() {
            return Ok(self.log.min_offset());
        }
        if let Some(writing) = &self.writing {
            return Ok(writing.dispatched.load(Ordering::Acquire));
        }
        self.index_files_reach(self.reading().index_trusted_until_ms)
    }

    /// [`Core::index_reach`] by the index files alone, as far as they are trusted.
    pub(crate) fn index_files_reach(&self, known_ms: Option<i64>) -> Result<u64> {
        let Some(index) = &self.index else { return Ok(self.log.min_offset()) };
        let mut reach = None;
        for file in index.files() {
            let header = index.open(&file)?.header()?;
            if known_ms.is_some_and(|known| header.end_timestamp_ms > known) {
                break;
            }
            reach = u64::try_from(header.end_physical_offset).ok();
        }
        Ok(reach.map_or(0, |reach| reach).max(self.log.min_offset()))
    }

    /// Dispatches the log up to `end` (`ReputMessageService.doReput`).
    fn reput(&self, writing: &Writing, dispatcher: &mut Dispatcher, end: u64) -> Result<u64> {
        let start = writing.dispatched.load(Ordering::Acquire);
        let mut scanner = Scanner::new(&self.log, start, end, false);
        let (mut count, mut committed) = (0, start);
        loop {
            match scanner.step()? {
                Ok(Scanned::Message(view)) => {
                    let request = DispatchRequest::of(&view);
                    dispatcher.dispatch(&request, None, &self.queues)?;
                    writing.has_dispatched(&request);
                    count += 1;
                    if request.end() - committed >= COMMIT_BYTES {
                        self.queues.commit()?;
                        committed = request.end();
                    }
                }
                Ok(Scanned::Blank { physical_offset, size }) => {
                    let next = physical_offset.saturating_add(u64::from(size));
                    writing.dispatched.store(next, Ordering::Release);
                }
                Err(Stop::End | Stop::Empty) => return Ok(count),
                Err(Stop::Damage(corruption)) => {
                    return Err(Error::Corrupt(Box::new(corruption)));
                }
            }
        }
    }

    /// Flushes queues, index and checkpoint. A failed flush or a foreign change ends all writing;
    /// after a full disk the next call retries.
    pub(crate) fn flush_derived(&self, writing: &Writing) -> Result<()> {
        let _turn = writing.gate.derived_turn();
        self.poisoned(writing)?;
        writing.check_locked()?;
        let outcome = self.flush_queues_and_index(writing);
        outcome.map_err(|error| {
            if matches!(error, Error::Io { op: "flush", .. }) {
                writing.poison(&error);
            }
            writing.heed(error)
        })
    }

    fn flush_queues_and_index(&self, writing: &Writing) -> Result<()> {
        let dispatched_ms = writing.dispatched_ms.load(Ordering::Acquire);
        let dispatched = writing.dispatched.load(Ordering::Acquire);
        // No time from the future: it would call later messages flushed.
        let newest_ms = writing.appender.lock().newest_timestamp_ms;
        self.queues.flush()?;
        self.entered(dispatched);
        let index = writing.dispatcher.lock().index.as_mut().map(IndexService::begin_flush);
        // Appends continue. Full, flushed files need no rebuild after a crash.
        let index_ms = match index.transpose()? {
            Some(flush) => flush.run()?,
            None => None,
        };
        let mut checkpoint = writing.checkpoint.lock();
        let fields = &mut checkpoint.fields;
        fields.logics_msg_timestamp_ms =
            fields.logics_msg_timestamp_ms.max(dispatched_ms.min(newest_ms));
        if let Some(index_ms) = index_ms.filter(|index_ms| *index_ms <= newest_ms) {
            fields.index_msg_timestamp_ms = fields.index_msg_timestamp_ms.max(index_ms);
        }
        checkpoint.flush(&*self.storage)?;
        drop(checkpoint);
        match writing.topics.lock().save(&*self.storage, &self.paths, self.clock.now_ms()) {
            // Open warned of it: an unreadable table is the broker's and stays.
            Err(Error::Corrupt(_)) => Ok(()),
            saved => saved,
        }
    }

    /// Writes queue entries to the files, visible to other processes.
    pub(crate) fn commit_step(&self, writing: &Writing) -> Result<()> {
        self.drain_index(writing)?;
        let dispatched = writing.dispatched.load(Ordering::Acquire);
        self.queues.commit()?;
        self.entered(dispatched);
        Ok(())
    }

    /// Releases disk space reserved for entries before an offset.
    fn entered(&self, offset: u64) {
        if let Some(room) = self.log.room() {
            room.entered(offset);
        }
    }

    pub(crate) fn close_writing(&self, writing: &Writing) -> Result<()> {
        let outcome = self.flush_log(writing).and_then(|()| {
            self.catch_up()?;
            self.flush_derived(writing)?;
            writing.sync_mark()?;
            let mut appender = writing.appender.lock();
            appender.writer.release();
            let spare = self.log.end_offset();
            drop(appender);
            // Removes an unused file created ahead.
            let size = self.log.run().file_size();
            let first_unused = if spare == 0 { 0 } else { spare.div_ceil(size) * size };
            self.log.run().remove_from(first_unused)?;
            if writing.dispatched.load(Ordering::Acquire) >= self.log.end_offset() {
                let newest_ms = writing.appender.lock().newest_timestamp_ms;
                let end = self.log.end_offset();
                // A missing seal only makes the next open slower.
                let _ = Seal::put(&*self.storage, &self.paths, &self.config, end, newest_ms);
                lock::remove_abort(&*self.storage, &self.paths)?;
            }
            Ok(())
        });
        let turns = (writing.gate.turn(), writing.gate.derived_turn());
        writing.lock.lock().take();
        drop(turns);
        // Reports the error that ended writing, whichever file failed.
        outcome.map_err(|error| self.poisoned(writing).err().unwrap_or(error))
    }

    /// Releases files and maps that no reader holds.
    pub(crate) fn close_files(&self) {
        if let Some(writing) = &self.writing {
            writing.appender.lock().writer.release();
            writing.dispatcher.lock().index = None;
            writing.checkpoint.lock().close_file();
            if let Some(mark) = &writing.mark {
                mark.close_file();
            }
        }
        if let Some(index) = &self.index {
            index.close_files();
        }
        // The queues share the log's open files.
        self.log.run().close_files();
    }
}
