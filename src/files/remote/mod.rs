//! Read-only storage over the objects below a URL. One listing gives names, lengths and times, and
//! never changes; reads go through a bounded cache of blocks and parts. No lock is held while objects
//! are asked for.

use std::any::Any;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use self::file::RemoteFile;
use self::kept::{Announced, Memory};
use self::listing::{Listing, ns};
pub use self::listing::{Object, Objects};
use super::system::storage::{Access, DirEntry, FileKind, Stamp, Storage, StorageFile, read_only};

mod file;
mod kept;
mod listing;

/// Storage whose root is a URL, as it was listed once.
#[derive(Debug)]
pub struct Remote {
    objects: Arc<dyn Objects>,
    root: PathBuf,
    /// When the listing began.
    pub listed_at: Instant,
    listing: Arc<Listing>,
    memory: Arc<Memory>,
}

impl Remote {
    /// Lists the objects, whose paths are `root` and their keys.
    pub fn new(objects: Arc<dyn Objects>, root: PathBuf) -> io::Result<Self> {
        let listed_at = Instant::now();
        let listing = Arc::new(Listing::of(&root, objects.list()?));
        Ok(Self { objects, root, listed_at, listing, memory: Arc::default() })
    }

    /// Lists the objects again; blocks of those that did not change stay in memory.
    pub fn listed_again(&self) -> io::Result<Self> {
        let again = Self::new(Arc::clone(&self.objects), self.root.clone())?;
        Ok(Self { memory: Arc::clone(&self.memory), ..again })
    }

    #[must_use]
    pub fn has_same_objects(&self, other: &Self) -> bool {
        self.listing == other.listing
    }
}

impl Storage for Remote {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        let listing = &self.listing;
        let found = listing.files.get(path).filter(|_| !listing.folders.contains_key(path));
        let Some((id, object)) = found else { return Err(io::ErrorKind::NotFound.into()) };
        if access == Access::ReadWrite {
            return read_only(true);
        }
        Ok(Arc::new(RemoteFile {
            objects: Arc::clone(&self.objects),
            id: *id,
            object: Arc::clone(object),
            path: path.to_owned(),
            listing: Arc::clone(listing),
            memory: Arc::clone(&self.memory),
            empty_from: AtomicU64::new(u64::MAX),
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        match self.listing.folders.get(dir) {
            Some(entries) => Ok(entries.values().cloned().collect()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        let listing = &self.listing;
        Ok(match listing.folders.contains_key(path) {
            true => Some(FileKind::Directory),
            false => listing.files.get(path).map(|_| FileKind::File),
        })
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let found = self.listing.files.get(path);
        Ok(found.map(|(id, object)| {
            let changed_ns = ns(object.modified_ms);
            Stamp { inode: *id, len: object.len, changed_ns }
        }))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn announce(&self, ranges: &[(PathBuf, Range<u64>)]) -> Option<Arc<dyn Any + Send + Sync>> {
        let known = ranges.iter().filter_map(|(path, range)| {
            self.listing.files.get(path).map(|(id, _)| (*id, range.clone()))
        });
        let announced: Arc<Announced> = Arc::new(known.collect());
        let mut kept = self.memory.kept.lock();
        kept.announced.retain(|other| other.strong_count() > 0);
        kept.announced.push(Arc::downgrade(&announced));
        Some(announced)
    }

    fn check_interrupt(&self) -> io::Result<()> {
        self.objects.check_interrupt()
    }
}

#[cfg(test)]
mod tests;
