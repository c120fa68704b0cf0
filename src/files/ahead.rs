//! A mapped file made ready ahead of its writer: disk space is taken and pages are brought into
//! memory by another thread, so that the writer meets neither a page fault nor a call to the system.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::storage::{Region, StorageFile};

/// The least that is ready ahead of a writer who writes at all.
const LEAST_WINDOW: usize = 8 << 20;
/// The most: pages that are ready and not yet written go to the disk twice.
const MOST_WINDOW: usize = 128 << 20;
/// How much is made ready at a time, before the writer's place is looked at again.
const PIECE: usize = 8 << 20;
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
    /// Where the writer stood at the last look.
    seen: usize,
    /// How far ahead of the writer pages are to be ready.
    window: usize,
}

impl Ahead {
    pub(super) fn new(path: &Path, file: Arc<dyn StorageFile>, region: Arc<dyn Region>) -> Self {
        let progress = Mutex::new(Progress { prepared: 0, seen: 0, window: LEAST_WINDOW });
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

    /// Makes one more piece ready for a writer who stands at `position`; whether there is more to do
    /// at once. The window grows while the writer comes close to its end, and is the least again
    /// when the writer rests. Disk space is taken `reserve_step` bytes at a time; the writer meets
    /// the error where there is none.
    pub fn prepare(&self, position: usize, reserve_step: usize) -> bool {
        let (from, to) = {
            let mut progress = self.progress();
            let rests = progress.seen == position;
            let left = progress.prepared.saturating_sub(position);
            if rests {
                progress.window = LEAST_WINDOW;
            } else if left < progress.window / 2 && progress.prepared > 0 {
                progress.window = (progress.window * 2).min(MOST_WINDOW);
            }
            progress.seen = position;
            let end = position.saturating_add(progress.window).min(self.region.len());
            let from = progress.prepared.max(position / PAGE * PAGE);
            let to = end.min(from.saturating_add(PIECE));
            if to <= from {
                return false;
            }
            progress.prepared = to;
            (from, to)
        };
        if to > self.reserved() && self.reserve(to, reserve_step).is_err() {
            return false;
        }
        self.region.prepare(from, to - from);
        to - from == PIECE
    }

    /// Makes a range ready that is written here and there, such as a table.
    pub fn prepare_range(&self, from: usize, to: usize) {
        if from < to && to <= self.reserved() {
            self.region.prepare(from, to - from);
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
        let (_dir, ahead) = ahead(3 * LEAST_WINDOW as u64);
        ahead.prepare(100, 1);
        assert_eq!(ahead.progress().prepared, PIECE);
        while ahead.prepare(100, 1) {}
        assert_eq!(ahead.progress().prepared, LEAST_WINDOW + 100);
        assert!(ahead.reserved() >= LEAST_WINDOW + 100);
        // Half of it is used: the window grows, as far as there is a file.
        while ahead.prepare(LEAST_WINDOW, 1) {}
        assert_eq!(ahead.progress().window, 2 * LEAST_WINDOW);
        assert_eq!(ahead.progress().prepared, 3 * LEAST_WINDOW);
        assert!(!ahead.prepare(3 * LEAST_WINDOW, 1));
    }

    #[test]
    fn a_writer_who_rests_has_the_least_window_and_a_flush_makes_pages_clean() {
        let (_dir, ahead) = ahead(8 * LEAST_WINDOW as u64);
        while ahead.prepare(0, 1) {}
        while ahead.prepare(LEAST_WINDOW, 1) {}
        assert!(ahead.progress().window > LEAST_WINDOW);
        ahead.prepare(LEAST_WINDOW, 1);
        assert_eq!(ahead.progress().window, LEAST_WINDOW);
        ahead.flushed();
        ahead.prepare(LEAST_WINDOW, 1);
        assert_eq!(ahead.progress().prepared, 2 * LEAST_WINDOW);
    }

    #[test]
    fn a_bell_that_rang_before_ends_the_next_wait() {
        let bell = Bell::default();
        bell.ring();
        bell.wait(Duration::from_secs(600));
        assert!(!*bell.rung());
    }
}
