//! `lock` excludes a second writer; `abort` marks a store that was not closed
//! (`DefaultMessageStore.start`, `createTempFile`).

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::paths::StorePaths;
use crate::error::{Error, Result};
use crate::files::{Access, FileKind, PinnedStorage, Storage, StorageFile};
use crate::format::crc::sha256;

#[derive(Debug)]
pub struct StoreLock {
    file: Arc<dyn StorageFile>,
    pid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    Broker,
    Opening,
    Writer,
}

impl Holder {
    fn of(lock: &dyn StorageFile) -> Option<Self> {
        let taken = lock.locked(WRITER)?;
        Some(if taken.end < WRITER.end {
            Self::Broker
        } else if lock.locked(SERVING).is_none() {
            Self::Opening
        } else {
            Self::Writer
        })
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        // A forked child has a copy of the open file; the lock is its parent's.
        if self.pid == std::process::id() {
            // Before the next writer can take the store.
            let _ = self.file.unlock(SERVING);
            let _ = self.file.unlock(WRITER);
        }
    }
}

/// Bytes that a writer of this library locks at once; a broker locks byte 0 alone
/// (`DefaultMessageStore.start`).
const WRITER: Range<u64> = 0..2;
const OFFSETS: Range<u64> = 2..3;
/// Byte that a writer locks once it is open.
const SERVING: Range<u64> = 3..4;
/// Attempts, a millisecond apart, to lock the offsets.
const OFFSETS_TRIES: u32 = 10_000;

/// Lock for changing consumer offsets, shared by processes in turn.
#[derive(Debug)]
pub struct OffsetsLock {
    file: Arc<dyn StorageFile>,
}

impl Drop for OffsetsLock {
    fn drop(&mut self) {
        let _ = self.file.unlock(OFFSETS);
    }
}

impl OffsetsLock {
    /// Waits for the lock, beside a writer of this library or none.
    pub fn take_beside(paths: &StorePaths) -> Result<Self> {
        Self::take(Self::refuse_broker(paths)?, paths)
    }

    /// Fails while a broker has the store open; returns the file of the locks.
    pub fn refuse_broker(paths: &StorePaths) -> Result<Arc<dyn StorageFile>> {
        let path = paths.lock();
        let file = open_or_create(paths.storage(), &path)?;
        if Holder::of(&*file) == Some(Holder::Broker) {
            let what = "a broker has the store open and writes its own offsets over all others; \
                        nothing was committed: commit through the broker, or stop it first";
            return Err(Error::Unsupported { what: what.to_owned(), path });
        }
        Ok(file)
    }

    /// Waits for the lock.
    pub fn take(file: Arc<dyn StorageFile>, paths: &StorePaths) -> Result<Self> {
        let path = paths.lock();
        for _ in 0..OFFSETS_TRIES {
            if file.try_lock(OFFSETS).map_err(Error::io("lock", &path))? {
                return Ok(Self { file });
            }
            std::thread::sleep(TRY_AGAIN);
        }
        Err(Error::Locked { path, pid: None })
    }
}

/// Locks of consumer groups' queues: a byte of `lock` for each, far behind the others.
#[derive(Debug)]
pub struct QueueLocks {
    file: Arc<dyn StorageFile>,
    /// Their storage fails once another `lock` lies at the path.
    pub paths: StorePaths,
}

impl QueueLocks {
    pub fn open(paths: &StorePaths) -> Result<Self> {
        let path = paths.lock();
        let file = open_or_create(paths.storage(), &path)?;
        // While the file is open, no other has its inode.
        let anchors = [paths.root().to_owned(), path];
        let storage = PinnedStorage::new(Arc::clone(&paths.storage), anchors)?;
        Ok(Self { file, paths: paths.clone().on(Arc::new(storage)) })
    }

    pub fn try_take(&self, group: &str, topic: &str, queue_id: i32) -> Result<bool> {
        let byte = Self::byte(group, topic, queue_id);
        self.file.try_lock(byte).map_err(Error::io("lock", self.paths.lock()))
    }

    pub fn release(&self, group: &str, topic: &str, queue_id: i32) {
        let _ = self.file.unlock(Self::byte(group, topic, queue_id));
    }

    fn byte(group: &str, topic: &str, queue_id: i32) -> Range<u64> {
        let queue = queue_id.to_be_bytes();
        let sum = sha256(&[group.as_bytes(), b"\0", topic.as_bytes(), b"\0", &queue]);
        let number = sum.iter().take(7).fold(0, |number, &byte| number << 8 | u64::from(byte));
        let byte = 1 << 62 | number;
        byte..byte + 1
    }
}

const TRY_AGAIN: Duration = Duration::from_millis(1);

fn open_or_create(storage: &dyn Storage, path: &Path) -> Result<Arc<dyn StorageFile>> {
    match storage.open_if_there(path, Access::ReadWrite)? {
        None => storage.create(path, 0).map_err(Error::io("open", path)),
        Some(file) => Ok(file),
    }
}

impl StoreLock {
    /// Takes the lock, a writer's first action.
    pub fn take(paths: &StorePaths) -> Result<Self> {
        let path = paths.lock();
        let file = open_or_create(paths.storage(), &path)?;
        if !file.try_lock(WRITER).map_err(Error::io("lock", &path))? {
            return Err(Error::Locked { path, pid: file.lock_holder() });
        }
        Ok(Self { file, pid: std::process::id() })
    }

    /// The file of the locks.
    #[must_use]
    pub fn file(&self) -> Arc<dyn StorageFile> {
        Arc::clone(&self.file)
    }

    /// Whether a process writes to the store at `root`, and which if known. Nothing is changed.
    #[must_use]
    pub fn state(storage: &dyn Storage, root: &Path) -> (bool, Option<i32>) {
        match storage.open(&root.join("lock"), Access::Read) {
            Ok(file) if Holder::of(&*file).is_some() => (true, file.lock_holder()),
            _ => (false, None),
        }
    }

    /// Writes RocketMQ's four letters into the lock file.
    pub fn mark(&self, paths: &StorePaths) -> Result<()> {
        self.file.write_at(b"lock", 0).map_err(Error::io("write", paths.lock()))
    }

    /// Checks that a successful flush can be trusted (see [`StorageFile::confirm`]), by this file,
    /// so that the log's next flush has nothing more to write.
    pub fn confirm_flush(&self, paths: &StorePaths) -> Result<()> {
        self.file.confirm().map_err(Error::flush(paths.lock()))
    }

    /// Tells readers that the writer is open.
    pub fn serve(&self, paths: &StorePaths) -> Result<()> {
        self.file.try_lock(SERVING).map(drop).map_err(Error::io("lock", paths.lock()))
    }

    #[must_use]
    pub fn holder(paths: &StorePaths) -> Option<Holder> {
        let file = paths.storage.open(&paths.lock(), Access::Read).ok()?;
        Holder::of(&*file)
    }

    /// Whether a process writes to the store now.
    #[must_use]
    pub fn is_held(paths: &StorePaths) -> bool {
        Self::holder(paths).is_some()
    }
}

pub fn was_aborted(paths: &StorePaths) -> Result<bool> {
    let path = paths.abort();
    match paths.storage.kind_of(&path)? {
        None => Ok(false),
        Some(FileKind::File) => Ok(true),
        Some(_) => Err(Error::Io {
            op: "open".into(),
            path,
            source: io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"),
        }),
    }
}

/// Writes `abort` with this process's id; its old content goes to `abort.bak`.
pub fn write_abort(paths: &StorePaths) -> Result<()> {
    let before = read_start(paths.storage(), &paths.abort(), 64)?;
    put(paths.storage(), &paths.abort_backup(), &before)?;
    replace(paths.storage(), &paths.abort(), std::process::id().to_string().as_bytes())
}

/// Removes `abort`: everything is flushed and dispatched.
pub fn remove_abort(paths: &StorePaths) -> Result<()> {
    paths.storage.remove_if_there(&paths.abort())?;
    paths.storage.sync_dir(paths.root()).map_err(Error::flush(paths.root()))
}

/// First bytes of a small file; none if missing.
pub fn read_start(storage: &dyn Storage, path: &Path, most: usize) -> Result<Vec<u8>> {
    let Some(file) = storage.open_if_there(path, Access::Read)? else { return Ok(Vec::new()) };
    file.read_most(0, most).map_err(Error::io("read", path))
}

/// Replaces a small file atomically: a temporary name, flushed, then renamed.
pub fn replace(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<()> {
    replace_as(storage, path, path, bytes)
}

/// [`replace`] without a flush, for a file that may be lost in a power cut.
pub fn put(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<()> {
    rename_new(storage, path, path, bytes, false)
}

/// [`replace`], with owner, group and mode of the file `like` of the same folder, if that exists.
pub fn replace_as(storage: &dyn Storage, path: &Path, like: &Path, bytes: &[u8]) -> Result<()> {
    rename_new(storage, path, like, bytes, true)?;
    let dir = path.parent().unwrap_or(path);
    storage.sync_dir(dir).map_err(Error::flush(dir))
}

fn rename_new(
    storage: &dyn Storage,
    path: &Path,
    like: &Path,
    bytes: &[u8],
    syncs: bool,
) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    storage.remove_if_there(&temporary)?;
    let file =
        storage.create_to_replace(&temporary, like).map_err(Error::io("create", &temporary))?;
    file.write_at(bytes, 0).map_err(Error::io("write", &temporary))?;
    if syncs {
        file.sync().map_err(Error::flush(&temporary))?;
    }
    storage.rename(&temporary, path).map_err(Error::io("rename", path))
}
