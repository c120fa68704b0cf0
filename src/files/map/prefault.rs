//! Prepares a mapped file ahead of its writer: other threads take disk space and load pages, so the
//! writer meets no page fault and no system call.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::disk_reserve::DiskReserve;
use crate::files::system::storage::{LARGEST_PAGE, Region, StorageFile};

const LEAST_WINDOW: usize = 1 << 20;
/// Largest window: pages written back before use go to the disk twice.
const MOST_WINDOW: usize = 40 << 20;
/// Bytes prepared at a time. Other users of memory wait meanwhile, and the writer's position is
/// read again after each piece.
const PIECE: usize = LARGEST_PAGE;
/// Steps of disk space ahead of a fast writer, since a busy disk answers slowly. Elsewhere than on
/// Linux taking space costs a write.
const STEPS_AHEAD: usize = if cfg!(target_os = "linux") { 4 } else { 1 };
const PAGE: usize = 4096;

/// State shared by a map's writer and the threads ahead of it.
#[derive(Debug)]
pub struct Prefaulter {
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    region: Arc<dyn Region>,
    position: AtomicUsize,
    reserved: AtomicUsize,
    /// Serializes taking disk space: where zeros are written for it, a second thread would
    /// overwrite messages.
    reserving: Mutex<()>,
    /// Reserve of the disk, and the offset of the file.
    room: OnceLock<(Arc<DiskReserve>, u64)>,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    prepared: usize,
    /// The writer's position when it was last read.
    seen: Option<usize>,
    window: usize,
}

impl Prefaulter {
    pub(crate) fn new(path: &Path, file: Arc<dyn StorageFile>, region: Arc<dyn Region>) -> Self {
        let progress = Mutex::new(Progress { prepared: 0, seen: None, window: 0 });
        let (position, reserved) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (path, reserving) = (path.to_owned(), Mutex::default());
        let room = OnceLock::new();
        Self { path, file, region, position, reserved, reserving, room, progress }
    }

    /// Takes disk space only beyond the reserve `room`.
    pub fn leave(&self, room: &Arc<DiskReserve>, offset: u64) {
        self.room.get_or_init(|| (Arc::clone(room), offset));
    }

    /// Whether the writer is in the second half of the file.
    #[must_use]
    pub fn is_past_half(&self) -> bool {
        self.left() < self.region.len() / 2
    }

    #[inline]
    pub fn advance_to(&self, position: usize) {
        self.position.store(position, Ordering::Relaxed);
    }

    #[must_use]
    pub fn position(&self) -> usize {
        self.position.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn left(&self) -> usize {
        self.region.len().saturating_sub(self.position())
    }

    pub(crate) fn file(&self) -> &dyn StorageFile {
        &*self.file
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Acquire)
    }

    pub(crate) fn assume_reserved(&self, position: usize) {
        self.reserved.fetch_max(position, Ordering::AcqRel);
    }

    /// Takes disk space up to `end`, in steps of `step` bytes or less.
    pub(crate) fn reserve(&self, end: usize, step: usize) -> io::Result<()> {
        let step = step.max(1);
        let target = end.div_ceil(step).saturating_mul(step);
        // If a whole step does not fit on the disk, the needed part may.
        match self.try_reserve(target) {
            Err(_) if target > end => self.try_reserve(end),
            outcome => outcome,
        }
    }

    /// Space ends at a page's end, even of the largest page: a first write without space raises a
    /// signal.
    fn try_reserve(&self, target: usize) -> io::Result<()> {
        let len = self.region.len();
        let target = target.min(len).next_multiple_of(LARGEST_PAGE).min(len);
        let _turn = self.reserving.lock();
        let reserved = self.reserved();
        let len = target.saturating_sub(reserved);
        if len > 0 {
            if let Some((room, offset)) = self.room.get() {
                room.check(&self.path, len as u64, offset.saturating_add(target as u64))?;
            }
            self.file.reserve(reserved as u64, len as u64)?;
            self.assume_reserved(target);
        }
        Ok(())
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    /// Reads the writer's position; the window is eight times what it used since the last look.
    ///
    /// A slow writer gets no window: its prepared pages would be written back again and again.
    pub fn sample_position(&self) {
        let position = self.position();
        let mut progress = self.progress();
        let used = position.saturating_sub(progress.seen.unwrap_or(position));
        let window = used.saturating_mul(8).min(MOST_WINDOW);
        progress.seen = Some(position);
        progress.window = if window < LEAST_WINDOW { 0 } else { window };
        if progress.window == 0 {
            // Prepared pages may have been written back meanwhile.
            progress.prepared = 0;
        }
    }

    /// Whether the writer is fast enough for pages to be prepared.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.progress().window > 0
    }

    /// Takes one step of disk space for a fast writer; returns whether there is more to do. On
    /// failure the writer meets the error itself.
    pub fn reserve_ahead(&self, step: usize) -> bool {
        let position = self.position();
        let end = position.saturating_add(step.saturating_mul(STEPS_AHEAD)).min(self.region.len());
        let target = self.reserved().max(position).saturating_add(step).min(end);
        target > self.reserved() && self.try_reserve(target).is_ok() && target < end
    }

    /// Whether the whole file has disk space.
    #[must_use]
    pub fn has_all_space(&self) -> bool {
        self.reserved() >= self.region.len()
    }

    /// Prepares one piece within the disk space; returns whether there is more to do.
    pub fn prepare(&self) -> bool {
        let position = self.position();
        let (from, to, end) = {
            let mut progress = self.progress();
            if progress.window == 0 {
                return false;
            }
            // Whole pieces match large pages.
            let end = position.saturating_add(progress.window).next_multiple_of(PIECE);
            let end = end.min(self.reserved());
            let from = progress.prepared.max(position / PAGE * PAGE);
            let to = end.min((from / PIECE + 1) * PIECE);
            if to <= from {
                return false;
            }
            progress.prepared = to.next_multiple_of(PAGE);
            (from, to, end)
        };
        self.region.prepare(from, to - from);
        to < end
    }

    /// Prepares the rest of the file, however fast the writer is. On a full disk the writer meets
    /// the error itself.
    pub fn prepare_rest(&self) {
        let end = self.region.len();
        if self.reserve(end, 1).is_ok() {
            self.progress().prepared = end;
            self.prepare_range(self.position() / PAGE * PAGE..end);
        }
    }

    /// [`Prefaulter::prepare`] for the file behind `other`.
    pub fn prepare_behind(&self, other: &Self) -> bool {
        self.progress().window = other.progress().window;
        self.prepare()
    }

    /// Prepares a range written at random, such as a table.
    pub fn prepare_range(&self, mut range: Range<usize>) {
        while self.prepare_piece(&mut range) {}
    }

    /// Prepares the first piece of a range and removes it from the range; returns whether there was
    /// one.
    pub fn prepare_piece(&self, range: &mut Range<usize>) -> bool {
        let end = range.end.min(self.reserved());
        let to = end.min(range.start.saturating_add(PIECE));
        let is_left = range.start < to;
        if is_left {
            self.region.prepare(range.start, to - range.start);
            range.start = to;
        }
        is_left
    }

    /// Flushes `range`; pages prepared behind it stay ready.
    pub(crate) fn sync(&self, range: Range<usize>) -> io::Result<()> {
        self.file.sync_range(&*self.region, range.start, range.len())
    }

    /// Prepares the writer's piece again: a flush made its pages clean, and the next write to each
    /// would fault.
    pub fn flushed(&self) {
        let position = self.position();
        let (from, end) = (position / PAGE * PAGE, (position / PIECE + 1) * PIECE);
        let end = end.min(self.progress().prepared);
        if from < end {
            self.region.prepare(from, end - from);
        }
    }
}

/// The files being written through maps, for the threads that work ahead. They do not take the
/// writer's lock, which a fast writer holds nearly always.
#[derive(Debug, Default)]
pub struct SharedActiveFiles(Mutex<ActiveFiles>);

#[derive(Clone, Debug, Default)]
pub struct ActiveFiles {
    pub active: Option<Arc<Prefaulter>>,
    pub next: Option<Arc<Prefaulter>>,
    /// Whether the previous file is full and may be released.
    pub has_full: bool,
}

impl SharedActiveFiles {
    fn known(&self) -> MutexGuard<'_, ActiveFiles> {
        self.0.lock()
    }

    #[must_use]
    pub fn files(&self) -> ActiveFiles {
        self.known().clone()
    }

    pub fn set(&self, files: ActiveFiles) {
        let before = std::mem::replace(&mut *self.known(), files);
        // Dropped last: unmapping takes a while.
        drop(before);
    }
}

#[derive(Debug, Default)]
pub struct Wakeup {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    fn rung(&self) -> MutexGuard<'_, bool> {
        self.rung.lock()
    }

    /// Ends the current wait, or the next one.
    pub fn ring(&self) {
        *self.rung() = true;
        self.changed.notify_one();
    }

    /// Waits for the bell, at most `most`.
    pub fn wait(&self, most: Duration) {
        let mut rung = self.rung();
        self.changed.wait_while_for(&mut rung, |rung| !*rung, most);
        *rung = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Access, Os, Storage};

    fn ahead(len: u64) -> (tempfile::TempDir, Prefaulter) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = Os.create(&path, len).unwrap();
        let region = file.map(usize::try_from(len).unwrap(), Access::ReadWrite).unwrap();
        (dir, Prefaulter::new(&path, file, region))
    }

    #[derive(Debug, Default)]
    struct Noted(Mutex<Vec<(usize, usize)>>);

    impl Region for Noted {
        fn pointer(&self) -> *mut u8 {
            std::ptr::null_mut()
        }

        fn len(&self) -> usize {
            12 * PIECE
        }

        fn prepare(&self, position: usize, len: usize) {
            self.0.lock().push((position, position + len));
        }
    }

    fn sample_at(ahead: &Prefaulter, position: usize) {
        ahead.advance_to(position);
        ahead.sample_position();
    }

    #[test]
    fn disk_space_is_taken_in_steps_ahead_of_the_writer() {
        let (_dir, ahead) = ahead(12 * PIECE as u64);
        assert!(ahead.reserve_ahead(PIECE));
        assert_eq!(ahead.reserved(), PIECE);
        while ahead.reserve_ahead(PIECE) {}
        assert_eq!(ahead.reserved(), STEPS_AHEAD * PIECE);
        ahead.advance_to(10 * PIECE);
        while ahead.reserve_ahead(PIECE) {}
        assert_eq!(ahead.reserved(), 12 * PIECE);
        ahead.advance_to(12 * PIECE);
        assert!(!ahead.reserve_ahead(PIECE));
    }

    #[test]
    fn pages_are_ready_one_window_ahead_where_there_is_disk_space() {
        let (_dir, ahead) = ahead(12 * PIECE as u64);
        ahead.sample_position();
        sample_at(&ahead, PIECE / 2 + 100);
        assert!(!ahead.prepare());
        assert_eq!(ahead.progress().prepared, 0);
        ahead.reserve(8 * PIECE, 1).unwrap();
        assert!(ahead.prepare());
        assert_eq!(ahead.progress().prepared, PIECE);
        while ahead.prepare() {}
        assert_eq!(ahead.progress().prepared, 5 * PIECE);
        sample_at(&ahead, 10 * PIECE);
        ahead.reserve(12 * PIECE, 1).unwrap();
        while ahead.prepare() {}
        assert_eq!(ahead.progress().prepared, 12 * PIECE);
        ahead.advance_to(12 * PIECE);
        assert!(!ahead.prepare());
    }

    #[test]
    fn nothing_is_done_for_a_writer_who_is_slow_or_rests() {
        let (_dir, ahead) = ahead(4 * PIECE as u64);
        sample_at(&ahead, PIECE);
        assert!(!ahead.is_busy());
        sample_at(&ahead, PIECE + LEAST_WINDOW / 8 - 1);
        assert!(!ahead.is_busy() && !ahead.prepare());
        sample_at(&ahead, 2 * PIECE);
        assert!(ahead.is_busy());
        ahead.sample_position();
        assert!(!ahead.is_busy() && !ahead.prepare());
        assert_eq!((ahead.progress().prepared, ahead.reserved()), (0, 0));
    }

    #[test]
    fn the_piece_that_a_flush_ended_in_is_made_ready_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = Os.create(&path, 12 * PIECE as u64).unwrap();
        let region = Arc::new(Noted::default());
        let noted = || std::mem::take(&mut *region.0.lock());
        let ahead = Prefaulter::new(&path, file, Arc::<Noted>::clone(&region));
        ahead.flushed();
        assert_eq!(noted(), []);
        ahead.sample_position();
        sample_at(&ahead, PIECE);
        ahead.reserve(4 * PIECE, 1).unwrap();
        while ahead.prepare() {}
        assert_eq!(noted(), [(PIECE, 2 * PIECE), (2 * PIECE, 3 * PIECE), (3 * PIECE, 4 * PIECE)]);
        ahead.advance_to(2 * PIECE + 5000);
        ahead.flushed();
        assert_eq!(noted(), [(2 * PIECE + PAGE, 3 * PIECE)]);
        ahead.advance_to(5 * PIECE);
        ahead.flushed();
        assert_eq!(noted(), []);
        // For a resting writer zeros would be written at each flush.
        ahead.sample_position();
        ahead.sample_position();
        ahead.flushed();
        assert_eq!(noted(), []);
    }

    #[test]
    fn the_rest_of_a_file_is_ready_however_slow_its_writer_is() {
        let (_dir, ahead) = ahead(3 * PIECE as u64 + 5);
        ahead.advance_to(PIECE + 5000);
        ahead.prepare_rest();
        assert_eq!((ahead.progress().prepared, ahead.reserved()), (3 * PIECE + 5, 3 * PIECE + 5));
    }

    #[test]
    fn a_table_is_made_ready_piece_by_piece_as_far_as_there_is_disk_space() {
        let (_dir, ahead) = ahead(4 * PIECE as u64);
        ahead.reserve(2 * PIECE + 1, 1).unwrap();
        let mut left = 100..4 * PIECE;
        let mut steps = Vec::new();
        while ahead.prepare_piece(&mut left) {
            steps.push(left.start);
        }
        assert_eq!(steps, [PIECE + 100, 2 * PIECE + 100, 3 * PIECE]);
    }

    #[test]
    fn a_bell_that_rang_before_ends_the_next_wait() {
        let bell = Wakeup::default();
        bell.ring();
        bell.wait(Duration::from_secs(600));
        assert!(!*bell.rung());
    }
}
