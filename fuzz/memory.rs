//! Files in memory, change times included: a whole store is copied in microseconds, and the seal of
//! one that was closed holds in the copy too.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mqstore::files::system::storage::{Region, Stamp};
use mqstore::files::{Access, DirEntry, FileKind, FileStat, Storage, StorageFile};

type Cells = Arc<[AtomicU8]>;

/// A file, whatever it is called.
#[derive(Debug)]
struct Inode {
    id: u64,
    cells: Mutex<Cells>,
    /// When it was last changed, as the memory's clock goes.
    changed: AtomicI64,
    is_locked: AtomicBool,
}

impl Inode {
    fn new(id: u64, cells: Cells, changed: i64) -> Arc<Self> {
        let (cells, changed) = (Mutex::new(cells), AtomicI64::new(changed));
        Arc::new(Self { id, cells, changed, is_locked: AtomicBool::new(false) })
    }

    fn cells(&self) -> Cells {
        Arc::clone(&self.cells.lock().unwrap())
    }

    fn len(&self) -> u64 {
        self.cells.lock().unwrap().len() as u64
    }

    fn resize(&self, len: usize) {
        let mut cells = self.cells.lock().unwrap();
        let grown = copied(&cells).chain(std::iter::repeat_with(AtomicU8::default));
        let changed = grown.take(len).collect();
        *cells = changed;
    }
}

fn copied(cells: &Cells) -> impl Iterator<Item = AtomicU8> + '_ {
    cells.iter().map(|cell| AtomicU8::new(cell.load(Ordering::Relaxed)))
}

#[derive(Clone, Debug)]
enum Entry {
    Folder,
    File(Arc<Inode>),
}

/// Files and folders by their paths.
#[derive(Debug)]
pub(crate) struct Memory {
    entries: Mutex<BTreeMap<OsString, Entry>>,
    /// Moves with every change, and names new files.
    clock: Arc<AtomicI64>,
}

impl Memory {
    /// Memory with nothing in it but the root.
    pub(crate) fn new() -> Arc<Self> {
        let entries = Mutex::new(BTreeMap::from([(OsString::from("/"), Entry::Folder)]));
        Arc::new(Self { entries, clock: Arc::default() })
    }

    /// The same files, which go ways of their own from now on.
    pub(crate) fn copy(&self) -> Arc<Self> {
        let copy = |entry: &Entry| match entry {
            Entry::Folder => Entry::Folder,
            Entry::File(inode) => {
                let changed = inode.changed.load(Ordering::Relaxed);
                Entry::File(Inode::new(inode.id, copied(&inode.cells()).collect(), changed))
            }
        };
        let entries = self.entries();
        let entries = entries.iter().map(|(path, entry)| (path.clone(), copy(entry))).collect();
        let clock = Arc::new(AtomicI64::new(self.clock.load(Ordering::Relaxed)));
        Arc::new(Self { entries: Mutex::new(entries), clock })
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<OsString, Entry>> {
        self.entries.lock().unwrap()
    }

    fn entry(&self, path: &Path) -> Option<Entry> {
        self.entries().get(path.as_os_str()).cloned()
    }

    fn inode(&self, path: &Path) -> io::Result<Arc<Inode>> {
        match self.entry(path) {
            Some(Entry::File(inode)) => Ok(inode),
            Some(Entry::Folder) => Err(io::ErrorKind::InvalidInput.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn file(&self, inode: Arc<Inode>) -> Arc<dyn StorageFile> {
        let clock = Arc::clone(&self.clock);
        Arc::new(MemoryFile { clock, inode, holds_lock: AtomicBool::new(false) })
    }

    fn tick(&self) -> i64 {
        self.clock.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Storage for Memory {
    fn open(&self, path: &Path, _access: Access) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(self.inode(path)?))
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn StorageFile>> {
        let now = self.tick();
        let cells = std::iter::repeat_with(AtomicU8::default).take(usize::try_from(len).unwrap());
        let inode = Inode::new(now.cast_unsigned(), cells.collect(), now);
        let mut entries = self.entries();
        if !matches!(entries.get(path.parent().unwrap().as_os_str()), Some(Entry::Folder)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if entries.contains_key(path.as_os_str()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        entries.insert(path.as_os_str().to_owned(), Entry::File(Arc::clone(&inode)));
        Ok(self.file(inode))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let entries = self.entries();
        match entries.get(dir.as_os_str()) {
            Some(Entry::Folder) => {}
            Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        let start = dir.join("").into_os_string();
        let below = entries.range(start.clone()..);
        let named = below.map_while(|(path, entry)| {
            Some((path.as_bytes().strip_prefix(start.as_bytes())?, entry))
        });
        let here = named.filter(|(name, _)| !name.is_empty() && !name.contains(&b'/'));
        let listed = here.map(|(name, entry)| {
            let (kind, len) = match entry {
                Entry::Folder => (FileKind::Directory, 0),
                Entry::File(inode) => (FileKind::File, inode.len()),
            };
            DirEntry {
                name: OsStr::from_bytes(name).to_owned(),
                kind,
                len,
                inode: 0,
                changed_ns: None,
            }
        });
        Ok(listed.collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut entries = self.entries();
        for folder in dir.ancestors() {
            let entry = entries.entry(folder.as_os_str().to_owned()).or_insert(Entry::Folder);
            if matches!(entry, Entry::File(_)) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = self.inode(from)?;
        inode.changed.store(self.tick(), Ordering::Relaxed);
        let mut entries = self.entries();
        entries.remove(from.as_os_str());
        entries.insert(to.as_os_str().to_owned(), Entry::File(inode));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inode(path)?;
        self.entries().remove(path.as_os_str());
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.entries().remove(path.as_os_str());
        Ok(())
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        Ok(self.entry(path).map(|entry| match entry {
            Entry::Folder => FileKind::Directory,
            Entry::File(_) => FileKind::File,
        }))
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let inode = self.inode(path)?;
        let changed_ns = inode.changed.load(Ordering::Relaxed);
        Ok(Some(Stamp { inode: inode.id, len: inode.len(), changed_ns }))
    }
}

#[derive(Debug)]
struct MemoryFile {
    clock: Arc<AtomicI64>,
    inode: Arc<Inode>,
    holds_lock: AtomicBool,
}

impl MemoryFile {
    fn has_changed(&self) {
        let now = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        self.inode.changed.store(now, Ordering::Relaxed);
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if *self.holds_lock.get_mut() {
            self.inode.is_locked.store(false, Ordering::SeqCst);
        }
    }
}

impl StorageFile for MemoryFile {
    fn stat(&self) -> io::Result<FileStat> {
        let inode = &self.inode;
        Ok(FileStat { len: inode.len(), inode: inode.id, links: 1, modified_ms: 0 })
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let cells = self.inode.cells();
        let from = usize::try_from(position).unwrap_or(usize::MAX).min(cells.len());
        let len = buffer.len().min(cells.len() - from);
        for (byte, cell) in buffer.iter_mut().zip(&cells[from..from + len]) {
            *byte = cell.load(Ordering::Relaxed);
        }
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let from = usize::try_from(position).unwrap();
        if (from + bytes.len()) as u64 > self.inode.len() {
            self.inode.resize(from + bytes.len());
        }
        for (cell, byte) in self.inode.cells()[from..].iter().zip(bytes) {
            cell.store(*byte, Ordering::Relaxed);
        }
        self.has_changed();
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inode.resize(usize::try_from(len).unwrap());
        self.has_changed();
        Ok(())
    }

    fn reserve(&self, _position: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        // Zeros that were written are data.
        Ok((position < self.inode.len()).then_some(position))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, len: usize, _access: Access) -> io::Result<Arc<dyn Region>> {
        let cells = self.inode.cells();
        let len = len.min(cells.len());
        Ok(Arc::new(MemoryRegion { cells, len }))
    }

    fn try_lock(&self, bytes: Range<u64>) -> io::Result<bool> {
        if bytes.start > 0 {
            return Ok(true);
        }
        let is_taken = !self.inode.is_locked.swap(true, Ordering::SeqCst);
        self.holds_lock.fetch_or(is_taken, Ordering::SeqCst);
        Ok(is_taken)
    }

    fn locked(&self, bytes: Range<u64>) -> Option<Range<u64>> {
        (bytes.start == 0 && self.inode.is_locked.load(Ordering::SeqCst)).then_some(0..2)
    }

    fn lock_holder(&self) -> Option<i32> {
        None
    }
}

#[derive(Debug)]
struct MemoryRegion {
    cells: Cells,
    len: usize,
}

impl Region for MemoryRegion {
    fn pointer(&self) -> *mut u8 {
        self.cells.as_ptr().cast_mut().cast::<u8>()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn prepare(&self, _position: usize, _len: usize) {}
}
