//! A storage that does what a test tells it: holds flushes, lets calls fail, counts and watches them.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use mqstore::files::system::storage::{Identity, Region, Stamp};
use mqstore::files::{Access, DirEntry, FileKind, FileStat, Os, Storage, StorageFile};

/// A call that a test can let fail or count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Open,
    OpenToWrite,
    Read,
    List,
    Kind,
    Stat,
    Create,
    Reserve,
    /// A file of the log that holds something.
    Sync,
    /// Any other file that holds something.
    SyncDerived,
    /// The durable mark, which a thread flushes at any time.
    SyncMark,
    Write,
    SyncDir,
    SyncAll,
    /// A flush of any file, counted beside the others.
    AnySync,
    Rename,
    Remove,
    SetLen,
    TryLock,
}

/// Calls that are to fail.
#[derive(Clone, Debug)]
struct Fault {
    call: Call,
    /// Part of the path.
    path: String,
    /// How many calls go well before.
    skip: usize,
    errno: i32,
}

/// When files were changed, as the storage tells.
#[derive(Debug, Default)]
enum Stamps {
    #[default]
    NotTold,
    Told,
    /// Those of the log stay what they were at first, as they do on some systems where a file is written
    /// through a map.
    StandStill(HashMap<PathBuf, Stamp>),
}

type Watch = Box<dyn Fn(&dyn StorageFile, &Path) + Send + Sync>;
type Named = Box<dyn Fn(&Path) + Send + Sync>;

/// The operating system's files, as a test wants them.
#[derive(Default)]
pub(crate) struct Staged {
    faults: Mutex<Vec<Fault>>,
    counts: Mutex<HashMap<Call, usize>>,
    /// Part of the path of files whose flushes wait.
    held: Mutex<Option<&'static str>>,
    released: Condvar,
    /// How many flushes wait to be released.
    blocked: AtomicUsize,
    /// How many flushes of the log are under way, and the most that ever were.
    waiting: Mutex<(usize, usize)>,
    before_sync: Mutex<Option<Watch>>,
    after_sync: Mutex<Option<Watch>>,
    after_list: Mutex<Option<Named>>,
    after_remove: Mutex<Option<Named>>,
    /// How many reads go first.
    before_read: Mutex<Option<(usize, Named)>>,
    /// Part of the path of files whose readers wait, and how many reads do not.
    held_reads: Mutex<Option<(&'static str, usize)>>,
    read_released: Condvar,
    /// Part of the path of a file, and its bytes that the disk does not give.
    bad: Mutex<Option<(String, std::ops::Range<u64>)>>,
    /// How many more calls that change something go well; all behind fail.
    budget: Mutex<Option<usize>>,
    stamps: Mutex<Stamps>,
    /// Whether disk space is taken by writing zeros there, as where the system has no call for it.
    reserves_by_writing: AtomicBool,
    /// Whether two names can change places in one step.
    exchanges: AtomicBool,
    /// How many bytes of the log were read.
    log_read: AtomicU64,
    /// How many calls were made on files of the log.
    log_calls: AtomicU64,
    /// How many bytes the disk says are free, where a test says so.
    free: Mutex<Option<u64>>,
    free_inodes: Mutex<Option<u64>>,
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Staged")
    }
}

impl Staged {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// The storage to open a store on.
    pub(crate) fn storage(self: &Arc<Self>) -> Arc<dyn Storage> {
        Arc::new(StagedStorage(Arc::clone(self)))
    }

    /// Lets every such call on a path with `path` in it fail, after `skip` that go well.
    pub(crate) fn fail(&self, call: Call, path: &str, skip: usize, errno: i32) {
        let path = path.to_owned();
        self.faults.lock().unwrap().push(Fault { call, path, skip, errno });
    }

    /// Has disk space taken as on a system that has no call for it.
    pub(crate) fn reserve_by_writing(&self) {
        self.reserves_by_writing.store(true, Ordering::SeqCst);
    }

    /// Lets two names change places, as a newer system can.
    pub(crate) fn exchange_names(&self) {
        self.exchanges.store(true, Ordering::SeqCst);
    }

    /// Lets reads of these bytes fail, of files with `path` in their path.
    pub(crate) fn lose(&self, path: &str, bytes: std::ops::Range<u64>) {
        *self.bad.lock().unwrap() = Some((path.to_owned(), bytes));
    }

    /// Has the disk say that so many bytes are free.
    pub(crate) fn set_free(&self, bytes: u64) {
        *self.free.lock().unwrap() = Some(bytes);
    }

    /// Has the disk say that so many names can be made.
    pub(crate) fn set_free_inodes(&self, inodes: u64) {
        *self.free_inodes.lock().unwrap() = Some(inodes);
    }

    /// Lets everything go well again.
    pub(crate) fn heal(&self) {
        self.faults.lock().unwrap().clear();
        *self.budget.lock().unwrap() = None;
    }

    /// After `calls` more that change something, all such calls fail, as if the process were gone.
    pub(crate) fn stop_after(&self, calls: usize) {
        *self.budget.lock().unwrap() = Some(calls);
    }

    /// Whether calls fail because of [`Staged::stop_after`].
    pub(crate) fn has_stopped(&self) -> bool {
        *self.budget.lock().unwrap() == Some(0)
    }

    /// How many such calls there were.
    pub(crate) fn count(&self, call: Call) -> usize {
        self.counts.lock().unwrap().get(&call).copied().unwrap_or(0)
    }

    /// Tells from now on when files were changed, so that a store can be sealed.
    pub(crate) fn tell_stamps(&self, log_stands_still: bool) {
        *self.stamps.lock().unwrap() = match log_stands_still {
            true => Stamps::StandStill(HashMap::new()),
            false => Stamps::Told,
        };
    }

    /// How many bytes of the log were read since this was asked last.
    pub(crate) fn take_log_read(&self) -> u64 {
        self.log_read.swap(0, Ordering::Relaxed)
    }

    /// How many calls were made on files of the log since this was asked last.
    pub(crate) fn take_log_calls(&self) -> u64 {
        self.log_calls.swap(0, Ordering::Relaxed)
    }

    /// Lets flushes of a log file that holds something wait until [`Staged::release`].
    pub(crate) fn hold_flushes(&self) {
        self.hold_flushes_of("/commitlog/");
    }

    /// The same of files with `path` in their path.
    pub(crate) fn hold_flushes_of(&self, path: &'static str) {
        *self.held.lock().unwrap() = Some(path);
    }

    pub(crate) fn release(&self) {
        *self.held.lock().unwrap() = None;
        self.released.notify_all();
    }

    /// After `skip` reads of files with `path` in their path, lets each wait until
    /// [`Staged::release_reads`].
    pub(crate) fn hold_reads(&self, path: &'static str, skip: usize) {
        *self.held_reads.lock().unwrap() = Some((path, skip));
    }

    pub(crate) fn release_reads(&self) {
        *self.held_reads.lock().unwrap() = None;
        self.read_released.notify_all();
    }

    /// Whether a flush waits to be released.
    pub(crate) fn is_waiting(&self) -> bool {
        self.blocked.load(Ordering::SeqCst) > 0
    }

    /// How many flushes were under way at the same time at the most.
    pub(crate) fn most_waiting(&self) -> usize {
        self.waiting.lock().unwrap().1
    }

    /// Calls `watch` before each flush, and `then` behind each that went well.
    pub(crate) fn watch(&self, watch: Watch, then: Watch) {
        *self.before_sync.lock().unwrap() = Some(watch);
        *self.after_sync.lock().unwrap() = Some(then);
    }

    /// Calls `then` behind each look at which names a folder holds.
    pub(crate) fn after_list(&self, then: Named) {
        *self.after_list.lock().unwrap() = Some(then);
    }

    /// Calls `then` behind each removal of a file.
    pub(crate) fn after_remove(&self, then: Named) {
        *self.after_remove.lock().unwrap() = Some(then);
    }

    /// Calls `then` once, before the read behind `skip` others.
    pub(crate) fn before_read(&self, skip: usize, then: Named) {
        *self.before_read.lock().unwrap() = Some((skip, then));
    }

    /// A call that changes something.
    fn enter(&self, call: Call, path: &Path) -> io::Result<()> {
        if let Some(left) = &mut *self.budget.lock().unwrap() {
            if *left == 0 {
                return Err(io::Error::other("the process is gone"));
            }
            *left -= 1;
        }
        self.look(call, path)
    }

    fn count_log_calls(&self, path: &Path) {
        self.log_calls.fetch_add(u64::from(is_of_log(path)), Ordering::Relaxed);
    }

    /// A call of any kind.
    fn look(&self, call: Call, path: &Path) -> io::Result<()> {
        self.count_log_calls(path);
        *self.counts.lock().unwrap().entry(call).or_default() += 1;
        let text = path.to_string_lossy().into_owned();
        let mut faults = self.faults.lock().unwrap();
        let hit = |fault: &Fault| fault.call == call && text.contains(&fault.path);
        let Some(at) = faults.iter().position(hit) else { return Ok(()) };
        if faults[at].skip > 0 {
            faults[at].skip -= 1;
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(faults[at].errno))
    }

    fn hold(&self, path: &Path) {
        let mut held = self.held_reads.lock().unwrap();
        while let Some((part, skip)) = &mut *held
            && path.to_string_lossy().contains(*part)
        {
            if *skip > 0 {
                *skip -= 1;
                return;
            }
            held = self.read_released.wait(held).unwrap();
        }
    }

    /// Counts a flush of the log until it ends, held or not.
    fn wait_counted(&self, path: &Path) {
        {
            let mut waiting = self.waiting.lock().unwrap();
            waiting.0 += 1;
            waiting.1 = waiting.1.max(waiting.0);
        }
        self.wait(path);
        self.waiting.lock().unwrap().0 -= 1;
    }

    fn wait(&self, path: &Path) {
        let path = path.to_string_lossy();
        let mut held = self.held.lock().unwrap();
        while held.is_some_and(|part| path.contains(part)) {
            self.blocked.fetch_add(1, Ordering::SeqCst);
            held = self.released.wait(held).unwrap();
            self.blocked.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[derive(Debug)]
struct StagedStorage(Arc<Staged>);

impl StagedStorage {
    fn wrap(&self, path: &Path, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(StagedFile { stage: Arc::clone(&self.0), path: path.to_owned(), file })
    }
}

impl Storage for StagedStorage {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        self.0.look(Call::Open, path)?;
        if access == Access::ReadWrite {
            self.0.look(Call::OpenToWrite, path)?;
        }
        Ok(self.wrap(path, Os.open(path, access)?))
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn StorageFile>> {
        self.0.enter(Call::Create, path)?;
        Ok(self.wrap(path, Os.create(path, len)?))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.0.look(Call::List, dir)?;
        let mut names = Os.list(dir)?;
        // `stamp` tells them, where a test wants it.
        names.iter_mut().for_each(|entry| entry.changed_ns = None);
        if let Some(then) = &*self.0.after_list.lock().unwrap() {
            then(dir);
        }
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        Os.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.enter(Call::SyncDir, dir)?;
        Os.sync_dir(dir)
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.0.enter(Call::SyncAll, dir)?;
        Os.sync_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.enter(Call::Rename, to)?;
        Os.rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        if !self.0.exchanges.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.0.enter(Call::Rename, other)?;
        Os.exchange(one, other)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.enter(Call::Remove, path)?;
        Os.remove_file(path)?;
        // A failed assertion in it is told once.
        if let Ok(then) = self.0.after_remove.lock()
            && let Some(then) = &*then
        {
            then(path);
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        Os.remove_dir(path)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        self.0.look(Call::Kind, path)?;
        Os.kind(path)
    }

    fn follow(&self, link: &Path) -> Result<(), String> {
        Os.follow(link)
    }

    fn make_private(&self, path: &Path) -> io::Result<()> {
        Os.make_private(path)
    }

    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(self.0.free.lock().unwrap().unwrap_or(u64::MAX))
    }

    fn free_inodes(&self, _path: &Path) -> io::Result<u64> {
        Ok(self.0.free_inodes.lock().unwrap().unwrap_or(u64::MAX))
    }

    fn identity(&self, path: &Path) -> io::Result<Option<Identity>> {
        Os.identity(path)
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        match &mut *self.0.stamps.lock().unwrap() {
            Stamps::NotTold => Ok(None),
            Stamps::StandStill(first) if is_of_log(path) => {
                let stamp = Os.stamp(path)?;
                Ok(stamp.map(|stamp| *first.entry(path.to_owned()).or_insert(stamp)))
            }
            Stamps::Told | Stamps::StandStill(_) => Os.stamp(path),
        }
    }
}

fn is_of_log(path: &Path) -> bool {
    path.parent().is_some_and(|dir| dir.ends_with("commitlog"))
}

#[derive(Debug)]
struct StagedFile {
    stage: Arc<Staged>,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
}

impl StorageFile for StagedFile {
    fn stat(&self) -> io::Result<FileStat> {
        self.stage.look(Call::Stat, &self.path)?;
        self.file.stat()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.stage.look(Call::Read, &self.path)?;
        let mut before = self.stage.before_read.lock().unwrap();
        match &mut *before {
            Some((0, _)) => before.take().into_iter().for_each(|(_, then)| then(&self.path)),
            Some((skip, _)) => *skip -= 1,
            None => {}
        }
        drop(before);
        self.stage.hold(&self.path);
        let end = position + buffer.len() as u64;
        if let Some((part, bad)) = &*self.stage.bad.lock().unwrap()
            && self.path.to_string_lossy().contains(part.as_str())
            && position < bad.end
            && bad.start < end
        {
            return Err(io::Error::from_raw_os_error(5));
        }
        let read = self.file.read_at(buffer, position)?;
        if is_of_log(&self.path) {
            self.stage.log_read.fetch_add(read as u64, Ordering::Relaxed);
        }
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.stage.enter(Call::Write, &self.path)?;
        self.file.write_at(bytes, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.stage.enter(Call::SetLen, &self.path)?;
        self.file.set_len(len)
    }

    fn reserve(&self, position: u64, len: u64) -> io::Result<()> {
        self.stage.enter(Call::Reserve, &self.path)?;
        if self.stage.reserves_by_writing.load(Ordering::SeqCst) {
            return self.file.write_at(&vec![0; usize::try_from(len).unwrap()], position);
        }
        self.file.reserve(position, len)
    }

    fn release(&self, position: u64, len: u64) -> io::Result<()> {
        self.file.release(position, len)
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        self.stage.count_log_calls(&self.path);
        self.file.next_data(position)
    }

    fn sync(&self) -> io::Result<()> {
        self.synced(|| self.file.sync())
    }

    fn sync_range(&self, region: &dyn Region, position: usize, len: usize) -> io::Result<()> {
        self.synced(|| self.file.sync_range(region, position, len))
    }

    fn map(&self, len: usize, access: Access) -> io::Result<Arc<dyn Region>> {
        self.file.map(len, access)
    }

    fn try_lock(&self, bytes: Range<u64>) -> io::Result<bool> {
        self.stage.look(Call::TryLock, &self.path)?;
        self.file.try_lock(bytes)
    }

    fn unlock(&self, bytes: Range<u64>) -> io::Result<()> {
        self.file.unlock(bytes)
    }

    fn locked(&self, bytes: Range<u64>) -> Option<Range<u64>> {
        self.file.locked(bytes)
    }

    fn lock_holder(&self) -> Option<i32> {
        self.file.lock_holder()
    }
}

impl StagedFile {
    /// One flush, by `sync`, as the stage has it.
    fn synced(&self, sync: impl Fn() -> io::Result<()>) -> io::Result<()> {
        self.stage.look(Call::AnySync, &self.path)?;
        let mut first = [0; 8];
        let is_log = is_of_log(&self.path);
        let holds_data = self.file.read_at(&mut first, 0)? == first.len() && first != [0; 8];
        if is_log && holds_data {
            self.stage.wait_counted(&self.path);
            self.stage.enter(Call::Sync, &self.path)?;
            if let Some(watch) = &*self.stage.before_sync.lock().unwrap() {
                watch(&*self.file, &self.path);
            }
            sync()?;
            if let Some(watch) = &*self.stage.after_sync.lock().unwrap() {
                watch(&*self.file, &self.path);
            }
            return Ok(());
        }
        if self.path.ends_with("mqstore.mark") {
            self.stage.enter(Call::SyncMark, &self.path)?;
        } else if holds_data {
            self.stage.wait(&self.path);
            self.stage.enter(Call::SyncDerived, &self.path)?;
        }
        sync()
    }
}
