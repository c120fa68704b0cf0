//! The view of a store that another process may write: how far its log reaches, and from where on its
//! queues and index are not relied on. `refresh` moves the view forward.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::error::{CorruptionKind, Error, Result};
use crate::files::Access;
use crate::format::checkpoint::CheckpointFields;
use crate::log::read::scanner::{Scanned, Scanner, Stop};
use crate::log::{CommitLog, StoreCheckpoint};

use super::queue_view::{self, Overlay};
use crate::store::lock::{self, StoreLock};
use crate::store::mark::{Flushed, Mark};
use crate::store::store_files::StoreFiles;
use crate::store::swap;
use crate::store::write::topics;

/// How often a reader looks whether another process is done with swapping folders, and the time in
/// between: a second in all.
const SWAP_WAITS: u32 = 1000;
const SWAP_WAIT: Duration = Duration::from_millis(1);

/// The view of a store that another process may write.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) files: Arc<StoreFiles>,
    view: RwLock<View>,
    /// Held during a refresh: of two the later one counts.
    refreshing: Mutex<()>,
}

/// How far the files of a store were relied on at the last look.
#[derive(Debug, Default)]
pub(crate) struct View {
    overlay: OnceLock<Arc<Overlay>>,
    /// From this offset on the queues are compared with the log.
    pub(crate) doubt: u64,
    /// After a crash: index files with messages stored later than this are not relied on.
    index_known_ms: Option<i64>,
    /// Where `abort` lies: the part of the log that is known to be durable.
    flushed: Option<Flushed>,
    /// The offset of the last record, where it was left out although it may be whole.
    pub(crate) left_out: Option<u64>,
}

impl Follower {
    /// Looks at the files for the first time. With the view comes what could not be read of the files that
    /// say how far it reaches.
    pub(crate) fn new(files: Arc<StoreFiles>) -> Result<(Self, Vec<Error>)> {
        let follower = Self { files, view: RwLock::default(), refreshing: Mutex::default() };
        let unread = follower.look()?;
        Ok((follower, unread))
    }

    pub(crate) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read()
    }

    /// Moves the view forward to the files as they are now.
    pub(crate) fn refresh(&self) -> Result<()> {
        let files = &*self.files;
        let _turn = self.refreshing.lock();
        files.log.run().refresh()?;
        if let Ok((kinds, _)) = topics::kinds(&*files.storage, &files.paths) {
            files.queues.set_kinds(kinds);
        }
        files.list_again()?;
        self.look().map(drop)
    }

    /// Lists queues and index again, because files of them were gone. The log's readable end stays.
    pub(crate) fn list_again(&self) -> Result<()> {
        let _turn = self.refreshing.lock();
        self.files.list_again()?;
        let left_out = self.view().left_out;
        let (is_open_or_crashed, unread) = self.was_left_open();
        self.judge(is_open_or_crashed, left_out, unread).map(drop)
    }

    /// The entries that the queues lack, read from the log once for each look.
    pub(crate) fn overlay(&self) -> Result<Arc<Overlay>> {
        let StoreFiles { log, queues, .. } = &*self.files;
        let view = self.view();
        if let Some(overlay) = view.overlay.get() {
            return Ok(Arc::clone(overlay));
        }
        let read = Arc::new(Overlay::read(log, queues, view.doubt, log.end_offset())?);
        Ok(Arc::clone(view.overlay.get_or_init(|| read)))
    }

    /// The offset up to which the index files hold each key, as far as they are known to be whole.
    pub(crate) fn indexed_offset(&self) -> Result<u64> {
        let log_start = self.files.log.min_offset();
        let Some(index) = &self.files.index else { return Ok(log_start) };
        let known_ms = self.view().index_known_ms;
        let mut end = None;
        for file in index.files() {
            let header = index.open(&file)?.header()?;
            if known_ms.is_some_and(|known| header.end_timestamp_ms > known) {
                break;
            }
            end = u64::try_from(header.end_physical_offset).ok();
        }
        Ok(end.unwrap_or(0).max(log_start))
    }

    /// The offset up to which the log is known to be durable: its end where no `abort` lies, else the
    /// durable mark, or where RocketMQ has written since, the end of the last record that is older than the
    /// checkpoint's newest.
    pub(crate) fn flushed_offset(&self) -> Result<u64> {
        let log = &*self.files.log;
        let flushed = self.view().flushed;
        match flushed {
            None => Ok(log.end_offset()),
            // The mark of the session that has the store, or had it last.
            Some(Flushed { place, before_ms: i64::MIN }) => Ok(place.min(log.end_offset())),
            Some(Flushed { before_ms, .. }) => durable_end(log, before_ms),
        }
    }

    /// Finds how far the log reaches now, and from where on queues and index are not relied on. Returns
    /// what could not be read of the files that say so.
    fn look(&self) -> Result<Vec<Error>> {
        let (log, queues) = (&self.files.log, &self.files.queues);
        let (is_open_or_crashed, mut unread) = self.was_left_open();
        let left_out = queue_view::find_end(log, Some(queues), !is_open_or_crashed)?;
        unread.extend(left_out.map(|at| half_there(log, at)));
        self.judge(is_open_or_crashed, left_out, unread)
    }

    /// Whether `abort` lies there. An `abort` that cannot be read counts as there: the store may be in use,
    /// and nothing is known to be flushed.
    fn was_left_open(&self) -> (bool, Vec<Error>) {
        match lock::was_aborted(&*self.files.storage, &self.files.paths) {
            Ok(aborted) => (aborted, Vec::new()),
            Err(error) => (true, vec![error]),
        }
    }

    /// Finds from where on queues and index are not relied on.
    fn judge(
        &self,
        open_or_crashed: bool,
        left_out: Option<u64>,
        mut unread: Vec<Error>,
    ) -> Result<Vec<Error>> {
        let (storage, paths) = (&*self.files.storage, &self.files.paths);
        let crashed = open_or_crashed && !StoreLock::is_held(storage, paths);
        let checkpoint = match StoreCheckpoint::load(storage, &paths.checkpoint(), Access::Read) {
            Ok(checkpoint) => checkpoint.fields,
            Err(error) => {
                unread.push(error);
                CheckpointFields::default()
            }
        };
        let doubt = self.doubt(&checkpoint, crashed)?;
        let index_known_ms = crashed.then_some(checkpoint.index_msg_timestamp_ms);
        let mark = Mark::read(storage, paths).unwrap_or_else(|error| {
            unread.push(error);
            None
        });
        let flushed =
            open_or_crashed.then(|| Flushed::of(storage, paths, mark, &checkpoint, false));
        *self.view.write() =
            View { overlay: OnceLock::new(), doubt, index_known_ms, flushed, left_out };
        Ok(unread)
    }

    /// Finds the offset from which on the queues are compared with the log. While another process swaps
    /// folders some queues may be missing: they are listed again when it is done.
    fn doubt(&self, checkpoint: &CheckpointFields, crashed: bool) -> Result<u64> {
        let StoreFiles { storage, paths, log, queues, .. } = &*self.files;
        for _ in 0..SWAP_WAITS {
            let is_swapping = swap::is_listed(&**storage, paths);
            if is_swapping && !StoreLock::is_held(&**storage, paths) {
                // The other process was killed on the way, and the next writer finishes the swap.
                break;
            }
            let doubt = queue_view::start_of_doubt(log, queues, checkpoint, crashed)?;
            if !is_swapping && !queues.have_lost_files() {
                return Ok(doubt);
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

/// The warning of a last record that a reader leaves out.
#[cold]
fn half_there(log: &CommitLog, at: u64) -> Error {
    let file = log.run().find(at);
    let (path, base) =
        file.map_or_else(Default::default, |file| (file.path.clone(), file.base_offset));
    let expected = "a message whose topic and properties are there";
    let found = "zeros in them: it is left out, as one that did not come to the disk whole";
    Error::corrupt(&path, at - base, CorruptionKind::Truncated, expected, found)
}

/// The end of the last record stored before `flushed_ms`. Store times rise along the log.
fn durable_end(log: &CommitLog, flushed_ms: i64) -> Result<u64> {
    let files = log.run().files();
    let mut from = log.min_offset();
    for file in files.iter().rev().filter(|file| file.base_offset < log.end_offset()) {
        let time = log.store_timestamp_ms(file.base_offset, 0)?;
        if time.is_some_and(|time| time < flushed_ms) {
            from = file.base_offset;
            break;
        }
    }
    let mut scanner = Scanner::new(log, from, log.end_offset(), false);
    let mut end = from;
    loop {
        match scanner.step()? {
            Ok(Scanned::Message(view)) => {
                if view.store_timestamp_ms() >= flushed_ms {
                    return Ok(end);
                }
                end = u64::try_from(view.physical_offset())
                    .unwrap_or(0)
                    .saturating_add(u64::from(view.store_size()));
            }
            Ok(Scanned::Blank { .. }) => {}
            Err(Stop::End | Stop::Empty | Stop::Damage(_)) => return Ok(end),
        }
    }
}
