//! A disk in memory that knows what of it a power cut would leave: a file's bytes are safe once the
//! file was flushed, a name once its folder was. What was neither may be there or not, in any order. When
//! a file was changed is safe once the whole disk was flushed, whatever of its bytes is.
//!
//! It also lets the n-th call fail. A flush that fails loses what it was to write: the system calls
//! those pages clean, and a later flush of the same file says that all is well.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mqstore::files::system::storage::{Region, Stamp};
use mqstore::files::{Access, DirEntry, FileKind, FileStat, Storage, StorageFile};

use super::inode::{Cells, FileClock, Inode, Kept};
use super::power_cut::{Cut, FileCut, FolderCut};

/// One name that came, went or changed; several where they do so at once.
pub(crate) type NameChange = Vec<(OsString, Option<Entry>)>;

/// Target of a name.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    File(Arc<Inode>),
    Folder,
}

#[derive(Clone, Debug, Default)]
struct Folder {
    names: BTreeMap<OsString, Entry>,
    durable: BTreeMap<OsString, Entry>,
    pending: Vec<NameChange>,
}

impl Folder {
    fn change(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.pending.push(change);
    }

    fn flushed(&mut self) {
        self.durable = self.names.clone();
        self.pending.clear();
    }
}

/// Lets a change of names happen.
pub(crate) fn apply(names: &mut BTreeMap<OsString, Entry>, change: &NameChange) {
    for (name, entry) in change {
        match entry {
            Some(entry) => names.insert(name.clone(), entry.clone()),
            None => names.remove(name),
        };
    }
}

/// Names and files that are on a disk when the power comes back.
pub(crate) type Image = BTreeMap<PathBuf, Option<Kept>>;

#[derive(Debug, Default)]
struct State {
    folders: BTreeMap<PathBuf, Folder>,
    inodes: u64,
    calls: u64,
    /// Which process has the disk: those before it were killed.
    process: u64,
    /// Which call fails, and how.
    fail: Option<(u64, i32)>,
    failed: Option<String>,
    /// How many power cuts are looked at, of those that could be; 0 for none.
    every: u64,
    changes: u64,
    cuts: Vec<Cut>,
    /// Messages that must be found after a power cut now.
    safe: usize,
}

/// The disk.
#[derive(Debug)]
pub(crate) struct Disk {
    state: Mutex<State>,
    pub(crate) clock: Arc<FileClock>,
}

impl Disk {
    /// An empty disk.
    pub(crate) fn new() -> Arc<Self> {
        Self::of(&Image::new())
    }

    /// A disk on which everything is safe.
    pub(crate) fn of(image: &Image) -> Arc<Self> {
        let mut state = State::default();
        let kept = || image.values().flatten();
        state.inodes = kept().map(|file| file.inode).max().unwrap_or(0);
        let clock = FileClock::after(kept().map(|file| file.changed_ns).max().unwrap_or(0));
        state.folders.insert(PathBuf::from("/"), Folder::default());
        for (path, content) in image {
            let entry = match content {
                None => {
                    state.folders.insert(path.clone(), Folder::default());
                    Entry::Folder
                }
                Some(kept) => Entry::File(Inode::of(kept, &clock)),
            };
            let (parent, name) = split(path);
            let folder = state.folders.get_mut(parent).unwrap();
            folder.durable.insert(name.clone(), entry.clone());
            folder.names.insert(name, entry);
        }
        Arc::new(Self { state: Mutex::new(state), clock })
    }

    /// The storage to open a store on.
    pub(crate) fn storage(self: &Arc<Self>) -> Arc<dyn Storage> {
        Arc::new(SimulatedStorage { disk: Arc::clone(self), process: self.state().process })
    }

    /// Kills the process that has the disk: it changes nothing any more, and what it locked is free.
    pub(crate) fn kill(&self) {
        let mut state = self.state();
        state.process += 1;
        for inode in inodes(&state) {
            inode.locked.store(false, Ordering::SeqCst);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// A minute goes by, in which the system writes everything to the disk.
    pub(crate) fn settle(&self) {
        let mut state = self.state();
        inodes(&state).iter().for_each(|inode| inode.settled());
        state.folders.values_mut().for_each(Folder::flushed);
    }

    /// Lets call number `number` fail, counted from 1.
    pub(crate) fn fail(&self, number: u64, errno: i32) {
        self.state().fail = Some((number, errno));
    }

    /// The failed call, if it was made.
    pub(crate) fn failed(&self) -> Option<String> {
        self.state().failed.clone()
    }

    /// From now on the power may be cut at every `every`-th call that changes something.
    pub(crate) fn cut_at_every(&self, every: u64) {
        self.state().every = every;
    }

    /// Records what a power cut now would leave.
    pub(crate) fn cut(&self, what: &str) {
        self.observe();
        let cut = cut_of(&self.state(), what);
        self.state().cuts.push(cut);
    }

    /// The power cuts noted since the last time.
    pub(crate) fn take_cuts(&self) -> Vec<Cut> {
        std::mem::take(&mut self.state().cuts)
    }

    /// Says that messages before `number` must outlive a power cut from now on.
    pub(crate) fn promise(&self, number: usize) {
        self.state().safe = number;
    }

    /// Everything as a process finds it that comes after one that was killed: nothing is lost.
    pub(crate) fn image(&self) -> Image {
        let state = self.state();
        let mut image = Image::new();
        for (path, folder) in &state.folders {
            for (name, entry) in &folder.names {
                let content = match entry {
                    Entry::File(inode) => Some(inode.kept()),
                    Entry::Folder => None,
                };
                image.insert(path.join(name), content);
            }
        }
        image
    }

    fn observe(&self) {
        for inode in inodes(&self.state()) {
            inode.observe();
        }
    }

    /// One call: noted, counted, and perhaps failing.
    fn enter(&self, process: u64, call: &str, path: &Path, changes: bool) -> io::Result<()> {
        let mut state = self.state();
        if process != state.process {
            return Err(io::Error::other("the process was killed"));
        }
        if of_care() {
            // That thread works at any time; without it a seed decides everything.
            return Err(io::ErrorKind::Interrupted.into());
        }
        if changes {
            self.clock.count();
        }
        if changes && state.every > 0 {
            state.changes += 1;
            // A flush of a whole file system is rare and settles much: the power may go before each.
            if state.changes.is_multiple_of(state.every) || call == "sync_all" {
                for inode in inodes(&state) {
                    inode.observe();
                }
                let cut = cut_of(&state, &format!("before {call} {}", path.display()));
                state.cuts.push(cut);
            }
        }
        state.calls += 1;
        match state.fail {
            Some((number, errno)) if number == state.calls => {
                state.failed = Some(format!("{call} {}", path.display()));
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => Ok(()),
        }
    }
}

fn of_care() -> bool {
    matches!(std::thread::current().name(), Some("mqstore-derived" | "mqstore-mark"))
}

fn split(path: &Path) -> (&Path, OsString) {
    (path.parent().unwrap(), path.file_name().unwrap().to_owned())
}

fn inodes(state: &State) -> Vec<Arc<Inode>> {
    let mut found = BTreeMap::new();
    for folder in state.folders.values() {
        let pending = folder.pending.iter().flatten().filter_map(|(_, entry)| entry.as_ref());
        for entry in folder.names.values().chain(folder.durable.values()).chain(pending) {
            if let Entry::File(inode) = entry {
                found.insert(inode.id, Arc::clone(inode));
            }
        }
    }
    found.into_values().collect()
}

fn cut_of(state: &State, what: &str) -> Cut {
    let folders = state.folders.iter().map(|(path, folder)| {
        (
            path.clone(),
            FolderCut { durable: folder.durable.clone(), pending: folder.pending.clone() },
        )
    });
    let files = inodes(state).into_iter().map(|inode| {
        let (versions, times) = inode.states();
        (inode.id, FileCut { versions, times })
    });
    Cut {
        what: what.to_owned(),
        safe: state.safe,
        folders: folders.collect(),
        files: files.collect(),
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

#[derive(Debug)]
struct SimulatedStorage {
    disk: Arc<Disk>,
    process: u64,
}

impl SimulatedStorage {
    fn enter(&self, call: &str, path: &Path, changes: bool) -> io::Result<()> {
        self.disk.enter(self.process, call, path, changes)
    }

    fn file(&self, path: &Path, inode: Arc<Inode>) -> Arc<dyn StorageFile> {
        let disk = Arc::clone(&self.disk);
        let (path, holds) = (path.to_owned(), AtomicBool::new(false));
        Arc::new(SimulatedFile { disk, process: self.process, path, inode, holds })
    }

    fn entry(&self, path: &Path) -> Option<Entry> {
        if path == Path::new("/") {
            return Some(Entry::Folder);
        }
        let (parent, name) = split(path);
        self.disk.state().folders.get(parent)?.names.get(&name).cloned()
    }

    fn change(&self, path: &Path, entry: Option<Entry>) -> io::Result<()> {
        let (parent, name) = split(path);
        let mut state = self.disk.state();
        state.folders.get_mut(parent).ok_or_else(missing)?.change(vec![(name, entry)]);
        Ok(())
    }
}

impl Storage for SimulatedStorage {
    fn open(&self, path: &Path, _access: Access) -> io::Result<Arc<dyn StorageFile>> {
        self.enter("open", path, false)?;
        match self.entry(path) {
            Some(Entry::File(inode)) => Ok(self.file(path, inode)),
            Some(Entry::Folder) => Err(io::ErrorKind::InvalidInput.into()),
            None => Err(missing()),
        }
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn StorageFile>> {
        self.enter("create", path, true)?;
        if self.entry(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = {
            let mut state = self.disk.state();
            state.inodes += 1;
            state.inodes
        };
        let inode = Inode::new(id, usize::try_from(len).unwrap(), &self.disk.clock);
        self.change(path, Some(Entry::File(Arc::clone(&inode))))?;
        Ok(self.file(path, inode))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.enter("list", dir, false)?;
        let state = self.disk.state();
        let folder = state.folders.get(dir).ok_or_else(missing)?;
        let entry = |(name, entry): (&OsString, &Entry)| {
            let (kind, len) = match entry {
                Entry::File(inode) => (FileKind::File, inode.cells().len() as u64),
                Entry::Folder => (FileKind::Directory, 0),
            };
            DirEntry { name: name.clone(), kind, len, inode: 0, changed_ns: None }
        };
        Ok(folder.names.iter().map(entry).collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.enter("create_dir", dir, true)?;
        let above: Vec<_> = dir.ancestors().collect();
        for folder in above.into_iter().rev() {
            match self.entry(folder) {
                Some(Entry::Folder) => {}
                Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => {
                    // Two threads may make it at once: neither empties the other's.
                    self.disk.state().folders.entry(folder.to_owned()).or_default();
                    self.change(folder, Some(Entry::Folder))?;
                }
            }
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.enter("sync_dir", dir, true)?;
        self.disk.state().folders.get_mut(dir).ok_or_else(missing)?.flushed();
        Ok(())
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        let inodes = inodes(&self.disk.state());
        inodes.iter().for_each(|inode| inode.observe());
        let outcome = self.enter("sync_all", dir, true);
        match &outcome {
            Ok(()) => self.disk.settle(),
            Err(_) => inodes.iter().for_each(|inode| inode.flush_failed()),
        }
        outcome
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.enter("rename", to, true)?;
        let entry = self.entry(from).ok_or_else(missing)?;
        if let Entry::File(inode) = &entry {
            inode.touch();
        }
        let ((dir, old), (other, new)) = (split(from), split(to));
        assert_eq!(dir, other, "a rename into another folder is not simulated");
        let mut state = self.disk.state();
        state.folders.get_mut(dir).unwrap().change(vec![(old, None), (new, Some(entry))]);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.enter("remove_file", path, true)?;
        let Some(Entry::File(inode)) = self.entry(path) else { return Err(missing()) };
        inode.links.store(0, Ordering::SeqCst);
        self.change(path, None)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.enter("remove_dir", path, true)?;
        let empty = self.disk.state().folders.get(path).ok_or_else(missing)?.names.is_empty();
        if !empty {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.change(path, None)?;
        self.disk.state().folders.remove(path);
        Ok(())
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        self.enter("kind", path, false)?;
        Ok(self.entry(path).map(|entry| match entry {
            Entry::File(_) => FileKind::File,
            Entry::Folder => FileKind::Directory,
        }))
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        self.enter("stamp", path, false)?;
        let Some(Entry::File(inode)) = self.entry(path) else { return Err(missing()) };
        let len = inode.cells().len() as u64;
        Ok(Some(Stamp { inode: inode.id, len, changed_ns: inode.changed_ns() }))
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: Arc<Disk>,
    process: u64,
    path: PathBuf,
    inode: Arc<Inode>,
    holds: AtomicBool,
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let lives = self.process == self.disk.state().process;
        if lives && self.holds.load(Ordering::SeqCst) {
            self.inode.locked.store(false, Ordering::SeqCst);
        }
    }
}

impl StorageFile for SimulatedFile {
    fn stat(&self) -> io::Result<FileStat> {
        self.enter("stat", false)?;
        Ok(FileStat {
            len: self.inode.cells().len() as u64,
            inode: self.inode.id,
            links: self.inode.links.load(Ordering::SeqCst),
            modified_ms: 0,
        })
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.enter("read_at", false)?;
        let cells = self.inode.cells();
        let from = usize::try_from(position).unwrap().min(cells.len());
        let len = buffer.len().min(cells.len() - from);
        for (byte, cell) in buffer.iter_mut().zip(&cells[from..from + len]) {
            *byte = cell.load(Ordering::Relaxed);
        }
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.enter("write_at", true)?;
        let from = usize::try_from(position).unwrap();
        if from + bytes.len() > self.inode.cells().len() {
            self.resize(from + bytes.len());
        }
        for (cell, byte) in self.inode.cells()[from..].iter().zip(bytes) {
            cell.store(*byte, Ordering::Relaxed);
        }
        self.inode.wrote(from, bytes.len());
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.enter("set_len", true)?;
        self.resize(usize::try_from(len).unwrap());
        self.inode.touch();
        self.inode.observe();
        Ok(())
    }

    fn reserve(&self, _position: u64, _len: u64) -> io::Result<()> {
        self.enter("reserve", true)?;
        self.inode.touch();
        Ok(())
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        self.enter("next_data", false)?;
        // Zeros that were written are data.
        Ok((position < self.inode.cells().len() as u64).then_some(position))
    }

    fn sync(&self) -> io::Result<()> {
        self.flush(0..usize::MAX)
    }

    fn sync_range(&self, _region: &dyn Region, position: usize, len: usize) -> io::Result<()> {
        self.flush(position..position + len)
    }

    fn map(&self, len: usize, _access: Access) -> io::Result<Arc<dyn Region>> {
        self.enter("map", false)?;
        Ok(Arc::new(SimulatedRegion(self.inode.cells(), len)))
    }

    fn try_lock(&self, bytes: Range<u64>) -> io::Result<bool> {
        self.enter("try_lock", false)?;
        if bytes.start > 0 {
            return Ok(true);
        }
        let taken = !self.inode.locked.swap(true, Ordering::SeqCst);
        self.holds.fetch_or(taken, Ordering::SeqCst);
        Ok(taken)
    }

    fn locked(&self, bytes: Range<u64>) -> Option<Range<u64>> {
        (bytes.start == 0 && self.inode.locked.load(Ordering::SeqCst)).then_some(0..2)
    }

    fn lock_holder(&self) -> Option<i32> {
        None
    }
}

impl SimulatedFile {
    fn enter(&self, call: &str, changes: bool) -> io::Result<()> {
        self.disk.enter(self.process, call, &self.path, changes)
    }

    fn flush(&self, range: Range<usize>) -> io::Result<()> {
        self.inode.observe();
        let outcome = self.enter("sync", true);
        match &outcome {
            Ok(()) => self.inode.flushed(range),
            // A call of a killed process never reached the disk.
            Err(error) if error.raw_os_error().is_some() => self.inode.flush_failed(),
            Err(_) => {}
        }
        outcome
    }

    fn resize(&self, len: usize) {
        let mut bytes = self.inode.bytes();
        bytes.resize(len, 0);
        self.inode.replace(&bytes);
    }
}

#[derive(Debug)]
struct SimulatedRegion(Cells, usize);

impl Region for SimulatedRegion {
    fn pointer(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast::<u8>()
    }

    fn len(&self) -> usize {
        self.1.min(self.0.len())
    }

    fn prepare(&self, _position: usize, _len: usize) {}
}
