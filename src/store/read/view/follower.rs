//! View of a store that another process may write: its readable end, and from which offset queues and
//! index are compared with the log.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::locks::{RwLock, RwLockReadGuard};

use crate::error::{CorruptionKind, Error, FormatError, Result};
use crate::files::Access;
use crate::files::system::storage::Stamp;
use crate::format::checkpoint::CheckpointFields;
use crate::log::commit_log::Found;
use crate::log::read::anchor::Anchor;
use crate::log::read::damage::in_file;
use crate::log::read::end::{self, LogState};
use crate::log::read::scanner::{Flow, Item, Resync, Scanner};
use crate::log::{CommitLog, StoreCheckpoint};

use super::log_end;
use super::undispatched::UndispatchedEntries;
use crate::store::folder::lock::{self, Holder, StoreLock};
use crate::store::folder::mark::{Flushed, Mark};
use crate::store::folder::paths::StorePaths;
use crate::store::folder::swap;
use crate::store::store_files::StoreFiles;
use crate::store::topics;

/// Checks for the end of another process's swap, a millisecond apart.
const SWAP_WAITS: u32 = 1000;
const SWAP_WAIT: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct SharedView {
    pub(crate) files: Arc<StoreFiles>,
    view: RwLock<View>,
    /// Held while files are listed and the view is made, so that no queue is looked up halfway.
    /// Behind a URL nothing is listed again: a refresh there makes another store.
    refreshing: RwLock<()>,
}

#[derive(Debug, Default)]
pub(crate) struct View {
    undispatched: Arc<OnceLock<Arc<UndispatchedEntries>>>,
    pub(crate) audited_from: u64,
    was_unsound: bool,
    /// Offset before which all entries will be in the queues' files when they are listed next.
    complete: u64,
    /// After a crash: index files with later messages are not trusted.
    index_trusted_until_ms: Option<i64>,
    /// If `abort` exists.
    flushed: Option<Flushed>,
    /// Offset of a last record left out although it may be whole.
    pub(crate) left_out: Option<u64>,
    session: Option<Session>,
    anchor: Option<Anchor>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Session {
    holder: Option<Holder>,
    stamp: Option<Stamp>,
}

impl Session {
    fn read(paths: &StorePaths) -> Self {
        let stamp = paths.storage.stamp(paths.root()).ok().flatten();
        Self { holder: StoreLock::holder(paths), stamp }
    }
}

/// Another process's work in the store, asked before its files are listed.
#[derive(Debug, PartialEq)]
pub(crate) struct ConcurrentWriter {
    session: Session,
    /// Offset before which a serving writer had written all queue entries.
    written: Option<u64>,
}

impl ConcurrentWriter {
    pub(crate) fn read(paths: &StorePaths) -> Self {
        let session = Session::read(paths);
        let read = || Mark::written_queues(paths).ok();
        let is_writer = session.holder == Some(Holder::Writer);
        let written = is_writer.then(|| read().or_else(read)).flatten();
        Self { session, written }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.session.holder.is_some()
    }
}

impl SharedView {
    /// Reads the files for the first time; returns errors of files that tell the view.
    pub(crate) fn new(
        files: Arc<StoreFiles>,
        beside: &ConcurrentWriter,
    ) -> Result<(Self, Vec<Error>)> {
        let view = RwLock::new(View { complete: u64::MAX, ..View::default() });
        let follower = Self { files, view, refreshing: RwLock::default() };
        let unread = follower.refresh_from(beside)?;
        if beside.written.is_none()
            && (beside.session.holder.is_some() || follower.beside() != *beside)
        {
            follower.list_again()?;
        }
        Ok((follower, unread))
    }

    fn beside(&self) -> ConcurrentWriter {
        ConcurrentWriter::read(&self.files.paths)
    }

    pub(crate) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read()
    }

    pub(crate) fn still(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (!self.files.paths.storage.is_remote()).then(|| self.refreshing.read())
    }

    pub(crate) fn refresh(&self) -> Result<()> {
        let files = &*self.files;
        let _turn = self.refreshing.write();
        let root = files.paths.root();
        if files.paths.storage.kind_of(root)?.is_none() {
            let gone = std::io::Error::new(
                std::io::ErrorKind::NotFound,
                "the store is gone: open it again where it lies now",
            );
            return Err(Error::io("open", root)(gone));
        }
        files.log.run().refresh()?;
        self.check_log(&files.log)?;
        if let Ok((entered, _)) = topics::entered(&files.paths) {
            files.queues.set_kinds(entered.kinds);
        }
        let beside = self.beside();
        files.list_again()?;
        self.refresh_from(&beside).map(drop)
    }

    /// Forgets which log was read: the next refresh takes the one that lies there then.
    pub(crate) fn forget_log(&self) {
        self.view.write().anchor = None;
    }

    /// Whether the log is still the one of the view, as far as it reaches.
    pub(crate) fn check_log(&self, log: &CommitLog) -> Result<()> {
        let Some(anchor) = self.view().anchor else { return Ok(()) };
        let Some(found) = anchor.other(log)? else { return Ok(()) };
        let end = end::find(log, LogState::Open, None, |_| Ok(false))?.offset;
        if end < anchor.end() {
            // It was cut, as the view will show.
            return Ok(());
        }
        Err(Error::OtherLog {
            path: self.files.paths.root().to_owned(),
            place: log.end_offset(),
            physical_offset: anchor.physical_offset,
            expected: anchor.to_string(),
            found,
            min: log.min_offset(),
            max: end,
        })
    }

    /// Refreshes if the log grew, its end was deleted, or another session began.
    pub(crate) fn refresh_if_grown(&self) -> Result<()> {
        let log = &self.files.log;
        log.run().refresh()?;
        let end = log.end_offset();
        let mut behind = [0; 4];
        log.run().read_at(&mut behind, end)?;
        let now = Session::read(&self.files.paths);
        let is_as_before = self.view().session == Some(now);
        let has_end = log.run().min_offset().is_none_or(|first| first <= end);
        if is_as_before && has_end && behind == [0; 4] { Ok(()) } else { self.refresh() }
    }

    /// Lists queues and index again after files were missing. The log's end stays.
    pub(crate) fn list_again(&self) -> Result<()> {
        let _turn = (!self.files.paths.storage.is_remote()).then(|| self.refreshing.write());
        let files = &*self.files;
        let beside = self.beside();
        files.list_again()?;
        self.judge_again(&beside)
    }

    fn judge_again(&self, beside: &ConcurrentWriter) -> Result<()> {
        let left_out = self.view().left_out;
        let (is_open_or_crashed, unread) = self.was_left_open();
        self.judge(is_open_or_crashed, left_out, unread, beside).map(drop)
    }

    pub(crate) fn audits_more(&self) -> Result<bool> {
        let is_news = self.files.queues.is_unsound() && !self.view().was_unsound;
        if is_news {
            self.files.queues.read_ends()?;
            // The listing is the same: only the view is made anew.
            self.judge_again(&self.beside())?;
        }
        Ok(is_news)
    }

    pub(crate) fn undispatched(&self) -> Result<Arc<UndispatchedEntries>> {
        let StoreFiles { log, queues, .. } = &*self.files;
        // Storage may wait for a thread that wants the view.
        let (undispatched, audited_from) = {
            let view = self.view();
            (Arc::clone(&view.undispatched), view.audited_from)
        };
        if let Some(undispatched) = undispatched.get() {
            return Ok(Arc::clone(undispatched));
        }
        let read =
            Arc::new(UndispatchedEntries::read(log, queues, audited_from, log.end_offset())?);
        Ok(Arc::clone(undispatched.get_or_init(|| read)))
    }

    /// Offset up to which the index files hold each key, as far as they are trusted.
    pub(crate) fn indexed_offset(&self) -> Result<u64> {
        let log_start = self.files.log.min_offset();
        let Some(index) = &self.files.index else { return Ok(log_start) };
        let known_ms = self.view().index_trusted_until_ms;
        let mut end = None;
        let listing = index.listing();
        // Without a limit of time the last file decides.
        let skipped = known_ms.map_or(listing.files.len().saturating_sub(1), |_| 0);
        for file in listing.files.iter().skip(skipped) {
            let header = index.open(file)?.header()?;
            if known_ms.is_some_and(|known| header.end_timestamp_ms > known) {
                break;
            }
            end = u64::try_from(header.end_physical_offset).ok();
        }
        Ok(end.unwrap_or(0).max(log_start))
    }

    pub(crate) fn flushed_offset(&self) -> Result<u64> {
        let log = &*self.files.log;
        let flushed = self.view().flushed;
        match flushed {
            None => Ok(log.end_offset()),
            // The mark of the current or last session.
            Some(Flushed { offset, before_ms: i64::MIN }) => Ok(offset.min(log.end_offset())),
            Some(Flushed { before_ms, .. }) => durable_end(log, before_ms),
        }
    }

    fn refresh_from(&self, beside: &ConcurrentWriter) -> Result<Vec<Error>> {
        let StoreFiles { log, queues, index, .. } = &*self.files;
        let (is_open_or_crashed, mut unread) = self.was_left_open();
        let left = match beside.written {
            _ if !is_open_or_crashed => LogState::Closed,
            Some(written) => LogState::InUse(written),
            None => LogState::Open,
        };
        let is_proven = log_end::prime(log, queues, index.as_deref())?;
        let mut left_out = log_end::find_end(log, queues, left)?;
        if is_proven && !log_end::is_plain(log, queues) {
            queues.read_ends()?;
            left_out = log_end::find_end(log, queues, left)?;
        }
        unread.extend(left_out.map(|at| half_there(log, at)));
        let unread = self.judge(is_open_or_crashed, left_out, unread, beside)?;
        let anchor = Anchor::before(log, log.end_offset())?;
        let mut view = self.view.write();
        (view.session, view.anchor) = (Some(beside.session), anchor);
        Ok(unread)
    }

    /// Whether `abort` exists. If unreadable, the store may be in use and nothing is known to be
    /// flushed.
    fn was_left_open(&self) -> (bool, Vec<Error>) {
        match lock::was_aborted(&self.files.paths) {
            Ok(aborted) => (aborted, Vec::new()),
            Err(error) => (true, vec![error]),
        }
    }

    fn judge(
        &self,
        open_or_crashed: bool,
        left_out: Option<u64>,
        mut unread: Vec<Error>,
        beside: &ConcurrentWriter,
    ) -> Result<Vec<Error>> {
        let paths = &self.files.paths;
        // Those before and after the files were listed.
        let holders = [beside.session.holder, StoreLock::holder(paths)];
        let may_be_crashed = holders.iter().any(|at| matches!(at, None | Some(Holder::Opening)));
        let crashed = open_or_crashed && may_be_crashed;
        let checkpoint =
            match StoreCheckpoint::load(paths.storage(), &paths.checkpoint(), Access::Read) {
                Ok(checkpoint) => checkpoint.fields,
                Err(error) => {
                    unread.push(error);
                    CheckpointFields::default()
                }
            };
        let reach = self.audited_from(&checkpoint, crashed)?;
        // A queue listed later may have later messages, and a writer writes queue after queue: one
        // queue tells nothing of the others. A broker writes entries in order.
        let complete = match beside.session.holder {
            Some(Holder::Writer) => beside.written.unwrap_or_else(|| {
                unread.extend(Mark::written_queues(paths).err());
                0
            }),
            _ => self.view().complete,
        };
        let audited_from = reach.min(complete.max(self.files.log.min_offset()));
        let complete = if holders.contains(&Some(Holder::Writer)) { audited_from } else { reach };
        let index_trusted_until_ms = crashed.then_some(checkpoint.index_msg_timestamp_ms);
        let needs_mark = open_or_crashed || !paths.storage.is_remote();
        let mark = needs_mark.then(|| Mark::read(paths)).transpose();
        let mark = mark.map(Option::flatten).unwrap_or_else(|error| {
            unread.push(error);
            None
        });
        let flushed = open_or_crashed.then(|| Flushed::of(paths, mark, &checkpoint, false));
        let View { session, anchor, .. } = *self.view();
        *self.view.write() = View {
            undispatched: Arc::default(),
            audited_from,
            was_unsound: self.files.queues.is_unsound(),
            complete,
            index_trusted_until_ms,
            flushed,
            left_out,
            session,
            anchor,
        };
        Ok(unread)
    }

    /// Offset from which queues are compared with the log. During another process's swap queues may
    /// be missing, so they are listed again afterwards.
    fn audited_from(&self, checkpoint: &CheckpointFields, crashed: bool) -> Result<u64> {
        let StoreFiles { paths, log, queues, .. } = &*self.files;
        for _ in 0..SWAP_WAITS {
            let is_swapping = swap::is_listed(paths);
            if is_swapping && !StoreLock::is_held(paths) {
                // That process was killed; the next writer finishes the swap.
                break;
            }
            let audited_from = log_end::audit_start(log, queues, checkpoint, crashed)?;
            if !is_swapping && !queues.have_lost_files() {
                return Ok(audited_from);
            }
            if is_swapping {
                std::thread::sleep(SWAP_WAIT);
            }
            self.files.list_again()?;
        }
        // The log alone tells everything.
        Ok(log.min_offset())
    }
}

#[cold]
fn half_there(log: &CommitLog, at: u64) -> Error {
    let mut buffer = Vec::new();
    if let Ok(Found::Message(view)) = log.read_before(at, u64::MAX, 0, &mut buffer)
        && let Err(error) = log.check_body(&view)
    {
        return error;
    }
    let expected = "a message whose topic and properties are there";
    let found = "zeros in them: it is left out, as one that did not come to the disk whole";
    let error = FormatError::new(CorruptionKind::Truncated, 0, expected, found);
    Error::Corrupt(Box::new(in_file(log, at, error)))
}

/// End of the last record stored before `flushed_ms`. Store times rise along the log.
fn durable_end(log: &CommitLog, flushed_ms: i64) -> Result<u64> {
    let from = log.last_file(|_, time| time < flushed_ms)?;
    let mut end = from;
    let to = log.end_offset();
    Scanner::new(log, from, to, false).each(log, to, Resync::Never, |range, item| {
        if let Item::Record(view, _) = item {
            if view.store_timestamp_ms() >= flushed_ms {
                return Ok(Flow::Stop);
            }
            end = range.end;
        }
        Ok(Flow::Continue)
    })?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::StoreConfig;
    use crate::store::{MessageStore, NewMessage, OpenMode};

    /// Queue 0 is written, queue 3 not.
    fn halfway(dir: &Path) -> (MessageStore, impl Fn(OpenMode) -> MessageStore) {
        let never = 3_600_000;
        let config = StoreConfig {
            mapped_file_size_commit_log: Some(64 << 10),
            mapped_file_size_consume_queue: Some(20_000),
            flush_interval_consume_queue: never,
            flush_consume_queue_thorough_interval: never,
            ..StoreConfig::default()
        };
        let dir = dir.to_owned();
        let open = move |mode| MessageStore::open(&dir, mode, config.clone()).unwrap();
        let store = open(OpenMode::Create);
        add(&store, 3);
        add(&store, 0);
        write_entries_of(&store, 0);
        (store, open)
    }

    fn add(store: &MessageStore, queue_id: i32) {
        let mut message = NewMessage::new(b"T", b"body");
        message.queue_id = queue_id;
        store.append(&message).unwrap();
        store.wait_dispatched().unwrap();
    }

    fn write_entries_of(store: &MessageStore, queue_id: i32) {
        store.files.queues.get(b"T", queue_id).unwrap().commit().unwrap();
    }

    fn ends(reader: &MessageStore) -> (i64, i64) {
        let end = |id| reader.queue(b"T", id).unwrap().map_or(0, |queue| queue.max_offset);
        (end(0), end(3))
    }

    #[test]
    fn no_entry_is_missed_while_the_writer_writes_queue_after_queue() {
        let dir = tempfile::tempdir().unwrap();
        let (store, open) = halfway(dir.path());
        let reader = open(OpenMode::Read);
        assert_eq!(ends(&reader), (1, 1));
        write_entries_of(&store, 3);
        add(&store, 3);
        add(&store, 0);
        write_entries_of(&store, 0);
        reader.refresh().unwrap();
        assert_eq!(ends(&reader), (2, 2));
        store.close().unwrap();
        reader.refresh().unwrap();
        assert_eq!(ends(&reader), (2, 2));
    }

    #[test]
    fn queues_are_compared_with_the_log_where_the_writer_cannot_tell_how_far_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (store, open) = halfway(dir.path());
        let path = dir.path().join("mqstore.mark");
        let mut mark = std::fs::read(&path).unwrap();
        mark[2060] ^= 1;
        std::fs::write(&path, mark).unwrap();
        let reader = open(OpenMode::Read);
        assert_eq!(ends(&reader), (1, 1));
        let warnings = reader.warnings();
        assert!(warnings.iter().any(|text| text.contains("how far the writer")), "{warnings:?}");
        std::fs::remove_file(&path).unwrap();
        reader.refresh().unwrap();
        assert_eq!(ends(&reader), (1, 1));
        store.close().unwrap();
    }
}
