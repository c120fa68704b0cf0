//! A mapped file made ready ahead of its writer: disk space is taken and pages are brought into
//! memory by another thread, so that the writer meets neither a page fault nor a call to the system.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::storage::{Region, StorageFile};

/// A window below this is not worth the work.
const LEAST_WINDOW: usize = 1 << 20;
/// The most: pages that are ready and not yet written go to the disk twice.
const MOST_WINDOW: usize = 128 << 20;
/// How much is made ready at a time. Whoever takes memory from the system waits meanwhile, and the
/// writer's place is looked at again afterwards.
const PIECE: usize = 2 << 20;
const PAGE: usize = 4096;

/// What the writer of a map and the thread that prepares it share.
#[derive(Debug)]
pub struct Ahead {
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    region: Arc<dyn Region>,
    /// Bytes from the start that have disk space of their own.
    reserved: AtomicUsize,
    progress: Mutex<Progress>,
}

/// What the preparing thread knows.
#[derive(Debug)]
struct Progress {
    /// Pages before this place are in memory, ready to be written.
    prepared: usize,
    /// Where the writer stood at the last look, if there was one.
    seen: Option<usize>,
    /// How far ahead of the writer pages are to be ready.
    window: usize,
}

impl Ahead {
    pub(super) fn new(path: &Path, file: Arc<dyn StorageFile>, region: Arc<dyn Region>) -> Self {
        let progress = Mutex::new(Progress { prepared: 0, seen: None, window: 0 });
        Self { path: path.to_owned(), file, region, reserved: AtomicUsize::new(0), progress }
    }

    /// Where the file lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Acquire)
    }

    pub(super) fn assume_reserved(&self, position: usize) {
        self.reserved.fetch_max(position, Ordering::AcqRel);
    }

    /// Takes disk space up to `end`, of `step` bytes or as much as there is.
    pub(super) fn reserve(&self, end: usize, step: usize) -> io::Result<()> {
        let step = step.max(1);
        let target = end.div_ceil(step).saturating_mul(step).min(self.region.len());
        // Where a whole step no longer fits on the disk, what is needed may still.
        match self.try_reserve(target) {
            Err(_) if target > end => self.try_reserve(end.min(self.region.len())),
            outcome => outcome,
        }
    }

    fn try_reserve(&self, target: usize) -> io::Result<()> {
        let reserved = self.reserved();
        let len = target.saturating_sub(reserved);
        if len > 0 {
            self.file.reserve(reserved as u64, len as u64)?;
            self.assume_reserved(target);
        }
        Ok(())
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks where the writer is: the window is what it used since the last look, eight times.
    ///
    /// A writer who rests or is slow gets none. Its page faults cost nothing that anyone notices,
    /// while pages made ready would go to the disk at every flush.
    pub fn look(&self, position: usize) {
        let mut progress = self.progress();
        let used = position.saturating_sub(progress.seen.unwrap_or(position));
        let window = used.saturating_mul(8).min(MOST_WINDOW);
        progress.seen = Some(position);
        progress.window = if window < LEAST_WINDOW { 0 } else { window };
    }

    /// Whether the writer is so fast that pages are made ready for it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.progress().window > 0
    }

    /// Makes one more piece ready for a writer who stands at `position`; whether there is more to do
    /// at once. Disk space is taken `reserve_step` bytes at a time; the writer meets the error where
    /// there is none.
    pub fn prepare(&self, position: usize, reserve_step: usize) -> bool {
        let (from, to, end) = {
            let mut progress = self.progress();
            if progress.window == 0 {
                return false;
            }
            // Whole pieces lie where large pages do.
            let end = position.saturating_add(progress.window).next_multiple_of(PIECE);
            let end = end.min(self.region.len());
            let from = progress.prepared.max(position / PAGE * PAGE);
            let to = end.min((from / PIECE + 1) * PIECE);
            if to <= from {
                return false;
            }
            progress.prepared = to;
            (from, to, end)
        };
        if to > self.reserved() && self.reserve(to, reserve_step).is_err() {
            return false;
        }
        self.region.prepare(from, to - from);
        to < end
    }

    /// Makes everything behind `position` ready, however fast its writer is. Where the disk has not the
    /// room, the writer meets the error when it gets there.
    pub fn prepare_rest(&self, position: usize) {
        let end = self.region.len();
        if self.reserve(end, 1).is_ok() {
            self.progress().prepared = end;
            self.prepare_range(position / PAGE * PAGE, end);
        }
    }

    /// [`Ahead::prepare`] for a file that `other`'s writer goes on in when the present one is full.
    pub fn prepare_behind(&self, other: &Self, reserve_step: usize) -> bool {
        self.progress().window = other.progress().window;
        self.prepare(0, reserve_step)
    }

    /// Makes a range ready that is written here and there, such as a table.
    pub fn prepare_range(&self, from: usize, to: usize) {
        for at in (from..to.min(self.reserved())).step_by(PIECE) {
            self.region.prepare(at, PIECE.min(to - at));
        }
    }

    /// Says that a flush made pages clean: the next write to each is a page fault again.
    pub fn flushed(&self) {
        self.progress().prepared = 0;
    }
}

/// Wakes the thread that prepares.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn rung(&self) -> MutexGuard<'_, bool> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the present wait, or the next one.
    pub fn ring(&self) {
        *self.rung() = true;
        self.changed.notify_one();
    }

    /// Waits until the bell rings, but no longer than `most`.
    pub fn wait(&self, most: Duration) {
        let rung = self.rung();
        let waited = self.changed.wait_timeout_while(rung, most, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Access, Os, Storage};

    fn ahead(len: u64) -> (tempfile::TempDir, Ahead) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = Os.create(&path, len).unwrap();
        let region = file.map(usize::try_from(len).unwrap(), Access::ReadWrite).unwrap();
        (dir, Ahead::new(&path, file, region))
    }

    #[test]
    fn pages_are_ready_one_window_ahead_and_never_past_the_end() {
        let (_dir, ahead) = ahead(12 * PIECE as u64);
        ahead.look(0);
        ahead.look(PIECE / 2 + 100);
        assert!(ahead.prepare(PIECE / 2 + 100, 1));
        assert_eq!(ahead.progress().prepared, PIECE);
        while ahead.prepare(PIECE / 2 + 100, 1) {}
        assert_eq!(ahead.progress().prepared, 5 * PIECE);
        assert_eq!(ahead.reserved(), 5 * PIECE);
        ahead.look(10 * PIECE);
        while ahead.prepare(10 * PIECE, 1) {}
        assert_eq!(ahead.progress().prepared, 12 * PIECE);
        assert!(!ahead.prepare(12 * PIECE, 1));
    }

    #[test]
    fn nothing_is_done_for_a_writer_who_is_slow_or_rests() {
        let (_dir, ahead) = ahead(4 * PIECE as u64);
        // Where it goes on says nothing.
        ahead.look(PIECE);
        assert!(!ahead.is_busy());
        ahead.look(PIECE + LEAST_WINDOW / 8 - 1);
        assert!(!ahead.is_busy() && !ahead.prepare(PIECE, 1));
        ahead.look(2 * PIECE);
        assert!(ahead.is_busy());
        ahead.look(2 * PIECE);
        assert!(!ahead.is_busy() && !ahead.prepare(2 * PIECE, 1));
        assert_eq!((ahead.progress().prepared, ahead.reserved()), (0, 0));
    }

    #[test]
    fn a_flush_makes_pages_clean() {
        let (_dir, ahead) = ahead(4 * PIECE as u64);
        ahead.look(0);
        ahead.look(PIECE);
        while ahead.prepare(PIECE, 1) {}
        assert_eq!(ahead.progress().prepared, 4 * PIECE);
        ahead.flushed();
        assert!(ahead.prepare(PIECE, 1));
        assert_eq!(ahead.progress().prepared, 2 * PIECE);
    }

    #[test]
    fn the_rest_of_a_file_is_ready_however_slow_its_writer_is() {
        let (_dir, ahead) = ahead(3 * PIECE as u64 + 5);
        ahead.prepare_rest(PIECE + 5000);
        assert_eq!((ahead.progress().prepared, ahead.reserved()), (3 * PIECE + 5, 3 * PIECE + 5));
        // What a flush made clean is made ready again as far as the writer is fast.
        ahead.flushed();
        ahead.look(PIECE + 5000);
        assert!(!ahead.prepare(PIECE + 5000, 1));
    }

    #[test]
    fn a_bell_that_rang_before_ends_the_next_wait() {
        let bell = Bell::default();
        bell.ring();
        bell.wait(Duration::from_secs(600));
        assert!(!*bell.rung());
    }
}
