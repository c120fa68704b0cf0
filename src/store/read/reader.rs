//! The reader of a store: how far log, queues and index can be read, and single queues.
//!
//! In mode `"r"` another process may write the files, and
//! the reader follows them (`view/follower.rs`).

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::locks::{Mutex, RwLockReadGuard};

use super::entry_search::EntrySearch;
use super::view::follower::SharedView;
use super::view::queue_view::QueueView;
use super::view::undispatched::UndispatchedEntries;
use crate::error::{Error, Result};
use crate::files::Waiters;
use crate::log::commit_log::join;
use crate::log::index::query::ExternalIndex;
use crate::log::index::run::Listing;
use crate::log::{CommitLog, Queue};
use crate::store::folder::lock::{Holder, StoreLock};
use crate::store::read::missing_end::MissingFiles;
use crate::store::store_files::StoreFiles;
use crate::store::write::writer::Writer;

/// Longest time between a message's append and a waiting reader's look at the log.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// Longest time where the writer wakes readers, which it may miss.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 16;

#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) files: Arc<StoreFiles>,
    source: Source,
    pub(crate) external_index: OnceLock<Box<dyn ExternalIndex>>,
    pub(crate) missing_end: Option<MissingFiles>,
    pub(crate) coverage: Coverage,
}

#[derive(Debug)]
pub(crate) enum Source {
    Writer(Arc<Writer>, Mutex<Option<Arc<UndispatchedEntries>>>),
    Files(SharedView),
}

impl Reader {
    pub(crate) fn of_writer(writer: Arc<Writer>) -> Self {
        let files = Arc::clone(&writer.files);
        Self::new(files, Source::Writer(writer, Mutex::default()), None)
    }

    fn new(files: Arc<StoreFiles>, source: Source, missing_end: Option<MissingFiles>) -> Self {
        let (external_index, coverage) = (OnceLock::new(), Coverage::default());
        Self { files, source, external_index, missing_end, coverage }
    }

    pub(crate) fn of_files(follower: SharedView, missing_end: Option<MissingFiles>) -> Self {
        let files = Arc::clone(&follower.files);
        if missing_end.is_some() {
            let end = files.log.end_offset();
            files.log.lose(end..end.saturating_add(1));
        }
        let reader = Self::new(files, Source::Files(follower), missing_end);
        lacking(reader.log()).into_iter().for_each(|part| reader.lose(part));
        reader
    }

    pub(crate) fn log(&self) -> &CommitLog {
        &self.files.log
    }

    pub(crate) fn is_writers(&self) -> bool {
        matches!(self.source, Source::Writer(..))
    }

    pub(crate) fn readable_end(&self) -> u64 {
        match &self.source {
            Source::Writer(writer, _) => writer.readable_end(),
            Source::Files(_) => self.files.log.end_offset(),
        }
    }

    pub(crate) fn dispatched_offset(&self) -> Result<u64> {
        Ok(match &self.source {
            Source::Writer(writer, _) => writer.dispatched.load(Ordering::Acquire),
            // Opening read the ends of some queues; another may show damage.
            Source::Files(follower) if self.files.paths.storage.is_remote() => loop {
                let first = follower.undispatched()?.first_missing();
                if !follower.audits_more()? {
                    break first;
                }
            },
            Source::Files(follower) => follower.view().audited_from,
        })
    }

    pub(crate) fn flushed_offset(&self) -> Result<u64> {
        match &self.source {
            Source::Writer(..) => Ok(self.files.log.flushed_offset()),
            Source::Files(follower) => follower.flushed_offset(),
        }
    }

    /// Offset up to which the index is trusted: queries read later records from the log. A writer
    /// publishes it, so no lock is taken.
    pub(crate) fn indexed_offset(&self) -> Result<u64> {
        match &self.source {
            _ if self.files.index.is_none() => Ok(self.files.log.min_offset()),
            Source::Writer(writer, _) => Ok(writer.indexed.load(Ordering::Acquire)),
            Source::Files(follower) => follower.indexed_offset(),
        }
    }

    pub(crate) fn leaves_out_last(&self) -> bool {
        match &self.source {
            Source::Writer(..) => false,
            Source::Files(follower) => follower.view().left_out.is_some(),
        }
    }

    pub(crate) fn refresh(&self) -> Result<()> {
        self.follow(SharedView::refresh)
    }

    pub(crate) fn forget_log(&self) {
        if let Source::Files(follower) = &self.source {
            follower.forget_log();
        }
    }

    pub(crate) fn refresh_if_grown(&self) -> Result<()> {
        self.follow(SharedView::refresh_if_grown)
    }

    /// Remembers messages that were there and are not any more, but for those at the beginning.
    fn follow(&self, refresh: impl FnOnce(&SharedView) -> Result<()>) -> Result<()> {
        let Source::Files(follower) = &self.source else { return Ok(()) };
        if !self.files.paths.storage.is_remote() {
            let before = self.log().end_offset();
            refresh(follower)?;
            self.note_losses(before);
        }
        Ok(())
    }

    fn note_losses(&self, before: u64) {
        let (log, end) = (self.log(), self.log().end_offset());
        if end < before {
            self.coverage.forget();
            self.lose(end..before);
        }
        lacking(log).into_iter().for_each(|part| self.lose(part));
    }

    /// Passes what is known about the log on to a reader of a later listing.
    pub(crate) fn hand_over(&self, next: &Self) -> Result<()> {
        if let Source::Files(follower) = &self.source {
            follower.check_log(next.log())?;
        }
        next.files.notices.follow(&self.files.notices);
        for part in self.log().losses() {
            next.log().lose(part);
        }
        next.note_losses(self.log().end_offset());
        Ok(())
    }

    fn lose(&self, part: Range<u64>) {
        let text = format!(
            "{}: the log's bytes from physical offset {} to {} are gone: queries by key are not complete until \
             the store is closed; put the files back and open it again, or let `mqstore doctor` report \
             what is left",
            self.log().run().dir().display(),
            part.start,
            part.end
        );
        if self.log().lose(part) {
            self.files.notices.push(text);
        }
    }

    pub(crate) fn wait(&self, physical_offset: u64, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now().checked_add(timeout);
        let mut pause = Duration::from_millis(1);
        let mut waiters = None;
        let began = self.readable_end();
        let mut seen = u64::MAX;
        loop {
            self.files.check_open()?;
            self.refresh_if_grown()?;
            let end = self.readable_end();
            if end > physical_offset {
                return Ok(true);
            }
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            // A log that was cut may grow past the place again, which would hide the cut.
            if left.is_zero() || end < began {
                return Ok(false);
            }
            // Not woken by each of many appends that do not suffice.
            let has_grown = end > std::mem::replace(&mut seen, end);
            match (waiters.take(), has_grown) {
                (Some(asked), false) => Waiters::wait(&asked, left.min(LONGEST_SLEEP)),
                // Looks once more after asking.
                (None, false) if self.register_waiter(&mut waiters) => {}
                _ => {
                    std::thread::sleep(pause.min(left));
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// `false` beside a broker or no writer, and where the store cannot be written.
    fn register_waiter(&self, asked: &mut Option<Waiters>) -> bool {
        let paths = &self.files.paths;
        if self.is_writers() || StoreLock::holder(paths) == Some(Holder::Writer) {
            let waiters = Waiters::open(paths.storage(), &paths.waiters()).ok();
            *asked = waiters.filter(|waiters| waiters.register().is_ok());
        }
        asked.is_some()
    }

    /// Reads one queue. If another process removed or swapped files meanwhile, lists them again and
    /// retries.
    pub(crate) fn read_queue<T>(
        &self,
        topic: &[u8],
        queue_id: i32,
        read: impl Fn(Option<&QueueView>) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..ATTEMPTS {
            let view = self.queue(topic, queue_id)?;
            if self.audits_more()? {
                continue;
            }
            let answer = read(view.as_ref());
            if !view.is_some_and(|view| view.has_lost_files()) {
                return answer;
            }
            self.list_again()?;
        }
        Err(self.never_still())
    }

    pub(crate) fn read_index<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        let (Source::Files(follower), Some(index)) = (&self.source, &self.files.index) else {
            return read();
        };
        for _ in 0..ATTEMPTS {
            let lost = index.lost();
            let answer = read();
            if index.lost() == lost {
                return answer;
            }
            follower.list_again()?;
        }
        Err(self.never_still())
    }

    /// Where the end of a queue that was read late shows damage, has all queues compared with the
    /// log from now on.
    pub(crate) fn audits_more(&self) -> Result<bool> {
        match &self.source {
            Source::Files(follower) if self.files.paths.storage.is_remote() => {
                follower.audits_more()
            }
            _ => Ok(false),
        }
    }

    fn list_again(&self) -> Result<()> {
        match &self.source {
            Source::Files(follower) => follower.list_again(),
            Source::Writer(..) => self.files.list_again(),
        }
    }

    #[cold]
    fn never_still(&self) -> Error {
        let what = "files were gone each time they were listed and read; \
                    nothing was changed; try again when no other process rebuilds the store";
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, what);
        Error::io("read", self.files.paths.root())(source)
    }

    fn queue(&self, topic: &[u8], queue_id: i32) -> Result<Option<QueueView>> {
        let StoreFiles { log, queues, paths, .. } = &*self.files;
        let _still = self.still();
        let undispatched = self.undispatched()?;
        let queue = queues.found(topic, queue_id)?;
        match undispatched {
            Some(undispatched) => {
                let kind = queues.kind_of(topic);
                undispatched.view(log, queue, kind, topic, queue_id, paths.root())
            }
            None => {
                let queue = queue.filter(|queue| queue.max_offset() > 0);
                queue.map(|queue| self.whole(queue, topic, queue_id)).transpose()
            }
        }
    }

    fn whole(&self, queue: Arc<Queue>, topic: &[u8], queue_id: i32) -> Result<QueueView> {
        let log = self.log();
        let mut view = QueueView::whole(Arc::clone(&queue));
        let held = EntrySearch { log, view: &view, topic, queue_id };
        view.min_offset = held.first(&queue, log.min_offset())?;
        Ok(view)
    }

    fn still(&self) -> Option<RwLockReadGuard<'_, ()>> {
        match &self.source {
            Source::Files(follower) => follower.still(),
            Source::Writer(..) => None,
        }
    }

    pub(crate) fn queue_names(&self) -> Result<Vec<(Box<[u8]>, i32)>> {
        let _still = self.still();
        let undispatched = self.undispatched()?;
        let is_writer = self.is_writers();
        let mut names: Vec<(Box<[u8]>, i32)> = self
            .files
            .queues
            .all()
            .iter()
            .filter(|queue| queue.max_offset() > 0 || !is_writer)
            .map(|queue| (queue.topic().into(), queue.queue_id()))
            .collect();
        if let Some(undispatched) = undispatched {
            names.extend(undispatched.names().map(|(topic, id)| (Box::from(topic), id)));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn undispatched(&self) -> Result<Option<Arc<UndispatchedEntries>>> {
        match &self.source {
            Source::Files(follower) => follower.undispatched().map(Some),
            Source::Writer(writer, kept) => {
                // The queues follow a moment later, or not at all while the disk is full.
                let (from, end) =
                    (writer.dispatched.load(Ordering::Acquire), writer.readable_end());
                if from >= end {
                    if let Some(mut kept) = kept.try_lock() {
                        *kept = None;
                    }
                    return Ok(None);
                }
                let mut kept = kept.lock();
                if let Some(undispatched) =
                    kept.as_ref().filter(|undispatched| undispatched.covers(from, end))
                {
                    return Ok(Some(Arc::clone(undispatched)));
                }
                let StoreFiles { log, queues, .. } = &*self.files;
                let undispatched = Arc::new(UndispatchedEntries::read(log, queues, from, end)?);
                *kept = Some(Arc::clone(&undispatched));
                Ok(Some(undispatched))
            }
        }
    }
}

/// Parts of the log before its end for which there is no file, or one cut short.
fn lacking(log: &CommitLog) -> Vec<Range<u64>> {
    let (end, mut at, mut parts) = (log.end_offset(), log.min_offset(), Vec::new());
    let files = log.run().files();
    let there = files.iter().map(|file| (file.base_offset, file.len.min(log.run().file_size())));
    for (base, len) in there.chain([(end, 0)]) {
        let base = base.min(end);
        if at < base {
            parts.push(at..base);
        }
        at = at.max(base.saturating_add(len));
    }
    parts
}

/// They are about the log: a new listing of the index keeps them.
#[derive(Debug, Default)]
pub(crate) struct Coverage(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The listing whose files leave nothing out up to this end of the log.
    whole: Weak<Listing>,
    until: u64,
    keyless: Vec<Range<u64>>,
    keyed: Vec<u64>,
}

impl Coverage {
    /// Whether the files leave out no message with keys before `until`.
    #[inline]
    pub(crate) fn is_whole(&self, listing: &Arc<Listing>, until: u64) -> bool {
        let known = self.0.lock();
        std::ptr::eq(known.whole.as_ptr(), Arc::as_ptr(listing)) && until <= known.until
    }

    pub(crate) fn set_whole(&self, listing: &Arc<Listing>, until: u64) {
        let mut known = self.0.lock();
        (known.whole, known.until) = (Arc::downgrade(listing), until);
    }

    pub(crate) fn forget(&self) {
        *self.0.lock() = Known::default();
    }

    /// The rest of a part from the first bytes on that may be messages with keys, and whether some
    /// are.
    pub(crate) fn rest(&self, part: Range<u64>) -> (Range<u64>, bool) {
        let known = self.0.lock();
        let begins = |range: &&Range<u64>| range.contains(&part.start);
        let from = known.keyless.iter().find(begins).map_or(part.start, |range| range.end);
        let rest = from..part.end.max(from);
        let is_keyed = known.keyed.iter().any(|at| rest.contains(at));
        (rest, is_keyed)
    }

    /// Remembers a part that was read to its end or to a message with keys. Returns whether that
    /// message is the first known there.
    pub(crate) fn note(&self, read: Range<u64>, keyed: Option<u64>) -> bool {
        let mut known = self.0.lock();
        let end = keyed.unwrap_or(read.end);
        if read.start < end {
            join(&mut known.keyless, read.start..end);
        }
        let is_new = keyed.is_some_and(|at| !known.keyed.contains(&at));
        known.keyed.extend(keyed.filter(|_| is_new));
        is_new
    }
}
