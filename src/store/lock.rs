//! `lock`, which keeps a second writer out, and `abort`, which says that a store was not closed
//! (`DefaultMessageStore.start`, `createTempFile`).

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::paths::StorePaths;
use crate::error::{Error, Result};
use crate::files::planted::{self, Bug};
use crate::files::{Access, FileKind, Storage, StorageFile};

/// The right to write to a store, held until it is dropped.
#[derive(Debug)]
pub struct StoreLock {
    file: Arc<dyn StorageFile>,
}

impl StoreLock {
    /// Takes the lock, which is the first thing a writer does.
    ///
    /// # Errors
    /// [`Error::Locked`] when another writer has it, RocketMQ or this library.
    pub fn take(storage: &dyn Storage, paths: &StorePaths) -> Result<Self> {
        let path = paths.lock();
        let file = match storage.open(&path, Access::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => storage.create(&path, 0),
            other => other,
        }
        .map_err(Error::io("open", &path))?;
        if !planted::is(Bug::LockTakenLate) && !file.try_lock().map_err(Error::io("lock", &path))? {
            return Err(Error::Locked { path, pid: file.lock_holder() });
        }
        Ok(Self { file })
    }

    /// Whether somebody writes to the store at `root`, and who, where the system tells. Nothing is
    /// created or changed.
    #[must_use]
    pub fn state(storage: &dyn Storage, root: &Path) -> (bool, Option<i32>) {
        match storage.open(&root.join("lock"), Access::Read) {
            Ok(file) if file.is_locked() => (true, file.lock_holder()),
            _ => (false, None),
        }
    }

    /// Writes RocketMQ's four letters into the lock file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn mark(&self, paths: &StorePaths) -> Result<()> {
        let path = paths.lock();
        if planted::is(Bug::LockTakenLate)
            && !self.file.try_lock().map_err(Error::io("lock", &path))?
        {
            return Err(Error::Locked { path, pid: self.file.lock_holder() });
        }
        self.file.write_at(b"lock", 0).map_err(Error::io("write", paths.lock()))
    }

    /// Says whether a flush that went well can be believed (see [`StorageFile::confirm`]). It is this
    /// file that is asked for, so that the next flush of the log has nothing more to write.
    ///
    /// # Errors
    /// [`Error::Io`] where the file system takes no more changes.
    pub fn confirm_flush(&self, paths: &StorePaths) -> Result<()> {
        self.file.confirm().map_err(Error::io("flush", paths.lock()))
    }

    /// Whether somebody writes to the store now: nothing is created or changed.
    #[must_use]
    pub fn is_held(storage: &dyn Storage, paths: &StorePaths) -> bool {
        storage.open(&paths.lock(), Access::Read).is_ok_and(|file| file.is_locked())
    }
}

/// Whether the store was left without being closed.
///
/// # Errors
/// [`Error::Io`] when that cannot be told, or when `abort` is no plain file.
pub fn was_aborted(storage: &dyn Storage, paths: &StorePaths) -> Result<bool> {
    let path = paths.abort();
    match storage.kind(&path).map_err(Error::io("stat", &path))? {
        None => Ok(false),
        Some(FileKind::File) => Ok(true),
        Some(_) => Err(Error::Io {
            op: "open",
            path,
            source: io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"),
        }),
    }
}

/// Writes `abort` with this process's id, and what it held before into `abort.bak`.
///
/// # Errors
/// [`Error::Io`].
pub fn write_abort(storage: &dyn Storage, paths: &StorePaths) -> Result<()> {
    if planted::is(Bug::AbortNotWritten) {
        return Ok(());
    }
    let before = read_start(storage, &paths.abort(), 64)?;
    replace(storage, &paths.abort_backup(), &before)?;
    replace(storage, &paths.abort(), std::process::id().to_string().as_bytes())
}

/// Takes `abort` away: everything is on disk and dispatched.
///
/// # Errors
/// [`Error::Io`].
pub fn remove_abort(storage: &dyn Storage, paths: &StorePaths) -> Result<()> {
    let path = paths.abort();
    match storage.remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove", path)(error));
        }
        _ => {}
    }
    storage.sync_dir(paths.root()).map_err(Error::io("flush", paths.root()))
}

/// Returns the first bytes of a small file; none where it is missing.
///
/// # Errors
/// [`Error::Io`].
pub fn read_start(storage: &dyn Storage, path: &Path, most: usize) -> Result<Vec<u8>> {
    let file = match storage.open(path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(Error::io("open", path))?,
    };
    let mut bytes = vec![0; most];
    let read = file.read_at(&mut bytes, 0).map_err(Error::io("read", path))?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Writes a whole small file so that a crash leaves either the old one or the new one: a temporary
/// name, made durable, then renamed.
///
/// # Errors
/// [`Error::Io`]; the old file is untouched then.
pub fn replace(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    match storage.remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove", temporary)(error));
        }
        _ => {}
    }
    let file = storage.create(&temporary, 0).map_err(Error::io("create", &temporary))?;
    file.write_at(bytes, 0).map_err(Error::io("write", &temporary))?;
    file.sync().map_err(Error::io("flush", &temporary))?;
    storage.rename(&temporary, path).map_err(Error::io("rename", path))?;
    let dir = path.parent().unwrap_or(path);
    storage.sync_dir(dir).map_err(Error::io("flush", dir))
}
