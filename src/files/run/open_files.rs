//! A bounded cache of open files, shared by runs.

use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use lru::LruCache;

use crate::error::{Error, Result};
use crate::files::system::storage::{Access, Storage, StorageFile};
use crate::format::width::to_usize;

/// Maximum open files of a store, beside mapped ones.
const MOST_OPEN: usize = 256;
/// Part of the process's limit that one store may use.
const PART_OF_ALLOWED: u64 = 4;

#[derive(Debug)]
pub struct RunFile {
    /// Offset of the first byte, the file's name.
    pub base_offset: u64,
    pub path: PathBuf,
    /// Length when listed, or the run's file size if created since.
    pub len: u64,
    /// Inode when listed; 0 if unknown.
    pub(super) inode: u64,
    pub(crate) id: u64,
}

/// Open files; the least recently used is closed first.
#[derive(Debug)]
pub struct OpenFiles {
    cache: Mutex<LruCache<u64, Arc<dyn StorageFile>>>,
    pub(crate) next_id: AtomicU64,
}

impl OpenFiles {
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let limit = NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN);
        Self { cache: Mutex::new(LruCache::new(limit)), next_id: AtomicU64::new(1) }
    }

    pub(crate) fn get(
        &self,
        storage: &dyn Storage,
        file: &RunFile,
        access: Access,
    ) -> Result<Arc<dyn StorageFile>> {
        let mut cache = self.cache.lock();
        if let Some(open) = cache.get(&file.id) {
            return Ok(Arc::clone(open));
        }
        let mut open = storage.open(&file.path, access);
        if open.as_ref().is_err_and(are_too_many) {
            // Other parts of the process have files open, too.
            cache.clear();
            open = storage.open(&file.path, access);
        }
        let open = open.map_err(Error::io("open", &file.path))?;
        cache.put(file.id, Arc::clone(&open));
        Ok(open)
    }

    pub(crate) fn put(&self, id: u64, open: &Arc<dyn StorageFile>) {
        self.cache.lock().put(id, Arc::clone(open));
    }

    pub(crate) fn forget(&self, id: u64) {
        self.cache.lock().pop(&id);
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.cache.lock().len()
    }

    pub(crate) fn clear(&self) {
        self.cache.lock().clear();
    }
}

impl Default for OpenFiles {
    /// The maximum, or a part of the process's limit.
    fn default() -> Self {
        let allowed = crate::files::system::os::open_files_allowed().unwrap_or(u64::MAX);
        Self::new(to_usize(allowed / PART_OF_ALLOWED).min(MOST_OPEN))
    }
}

pub(crate) fn are_too_many(error: &std::io::Error) -> bool {
    use nix::errno::Errno::{EMFILE, ENFILE};
    error.raw_os_error().is_some_and(|code| code == EMFILE as i32 || code == ENFILE as i32)
}
