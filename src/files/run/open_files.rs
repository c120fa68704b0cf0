//! A bounded cache of open files, shared by runs.

use crate::locks::Mutex;
use std::io;
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
const LEAST_OPEN: usize = 16;
/// Other threads may take the room meanwhile.
const ATTEMPTS: usize = 4;

#[derive(Debug)]
pub struct RunFile {
    /// Offset of the first byte, the file's name.
    pub base_offset: u64,
    pub path: PathBuf,
    /// Length when listed, or the run's file size if created since.
    pub len: u64,
    pub(super) inode: u64,
    pub(crate) id: u64,
}

/// Open files; the least recently used is closed first.
#[derive(Debug)]
pub struct OpenFiles {
    cache: Mutex<Cache>,
    pub(crate) next_id: AtomicU64,
}

#[derive(Debug)]
struct Cache {
    open: LruCache<u64, Arc<dyn StorageFile>>,
    forgotten: u64,
}

impl OpenFiles {
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let limit = NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN);
        let cache = Cache { open: LruCache::new(limit), forgotten: 0 };
        Self { cache: Mutex::new(cache), next_id: AtomicU64::new(1) }
    }

    pub(crate) fn get(
        &self,
        storage: &dyn Storage,
        file: &RunFile,
        access: Access,
    ) -> Result<Arc<dyn StorageFile>> {
        let forgotten = {
            let mut cache = self.cache.lock();
            if let Some(open) = cache.open.get(&file.id) {
                return Ok(Arc::clone(open));
            }
            cache.forgotten
        };
        let open = self.with_room(|| storage.open(&file.path, access));
        let open = open.map_err(Error::io("open", &file.path))?;
        let mut cache = self.cache.lock();
        if cache.forgotten == forgotten {
            let closed = cache.open.push(file.id, Arc::clone(&open));
            drop(cache);
            drop(closed);
        }
        Ok(open)
    }

    /// Runs a call that opens a file; if too many are open, keeps fewer here and runs it again.
    pub(crate) fn with_room<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let mut opened = open();
        for _ in 1..ATTEMPTS {
            if !opened.as_ref().is_err_and(are_too_many) {
                break;
            }
            let mut cache = self.cache.lock();
            let fewer = (cache.open.len() / 2).max(LEAST_OPEN);
            cache.open.clear();
            if let Some(fewer) = NonZeroUsize::new(fewer).filter(|fewer| *fewer < cache.open.cap())
            {
                cache.open.resize(fewer);
            }
            drop(cache);
            opened = open();
        }
        opened
    }

    pub(crate) fn put(&self, id: u64, open: &Arc<dyn StorageFile>) {
        self.cache.lock().open.put(id, Arc::clone(open));
    }

    pub(crate) fn forget(&self, id: u64) {
        let mut cache = self.cache.lock();
        cache.open.pop(&id);
        cache.forgotten += 1;
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.cache.lock().open.len()
    }

    pub(crate) fn clear(&self) {
        self.cache.lock().open.clear();
    }
}

impl Default for OpenFiles {
    fn default() -> Self {
        let allowed = crate::files::system::os::open_files_allowed().unwrap_or(u64::MAX);
        Self::new(to_usize(allowed / PART_OF_ALLOWED).min(MOST_OPEN))
    }
}

fn are_too_many(error: &io::Error) -> bool {
    use nix::errno::Errno::{EMFILE, ENFILE};
    error.raw_os_error().is_some_and(|code| code == EMFILE as i32 || code == ENFILE as i32)
}

/// Detects the size; `None` without files or if all are empty.
#[must_use]
pub fn file_size_of(files: &[Arc<RunFile>]) -> Option<u64> {
    let mut votes = Votes::default();
    for file in files.iter().filter(|file| file.len > 0) {
        votes.add(file.len);
    }
    // Names of neighbours tell the size, even if one was truncated.
    for pair in files.windows(2) {
        if let [a, b] = pair {
            votes.add(b.base_offset.saturating_sub(a.base_offset));
        }
    }
    votes.winner()
}

/// Votes for sizes; the first of equals wins.
#[derive(Default)]
pub(crate) struct Votes(Vec<(u64, usize)>);

impl Votes {
    /// Maximum number of distinct sizes; a valid store has one.
    const MOST: usize = 64;

    pub(crate) fn add(&mut self, size: u64) {
        let room = size > 0 && self.0.len() < Self::MOST;
        match self.0.iter_mut().find(|(known, _)| *known == size) {
            Some((_, count)) => *count += 1,
            None if room => self.0.push((size, 1)),
            None => {}
        }
    }

    pub(crate) fn winner(&self) -> Option<u64> {
        let most = self.0.iter().map(|(_, count)| *count).max()?;
        self.0.iter().find(|(_, count)| *count == most).map(|(size, _)| *size)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::files::Os;

    #[test]
    fn where_the_process_has_too_many_files_open_fewer_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let open = Os.create(&dir.path().join("file"), 1).unwrap();
        let files = OpenFiles::new(100);
        let fill = || (0..100).for_each(|id| files.put(id, &open));
        fill();
        let calls = Cell::new(0);
        let is_open_at = |nth: usize| {
            calls.set(calls.get() + 1);
            if calls.get() == nth { Ok(()) } else { Err(io::Error::from_raw_os_error(24)) }
        };
        files.with_room(|| is_open_at(2)).unwrap();
        assert_eq!((calls.get(), files.kept()), (2, 0));
        fill();
        assert_eq!(files.kept(), 50);
        calls.set(0);
        let error = files.with_room(|| is_open_at(ATTEMPTS + 1)).unwrap_err();
        assert_eq!((calls.get(), error.raw_os_error()), (ATTEMPTS, Some(24)));
        fill();
        assert_eq!(files.kept(), LEAST_OPEN);
        calls.set(0);
        let other = files.with_room(|| -> io::Result<()> {
            calls.set(calls.get() + 1);
            Err(io::ErrorKind::NotFound.into())
        });
        assert_eq!((calls.get(), other.unwrap_err().kind()), (1, io::ErrorKind::NotFound));
    }
}
