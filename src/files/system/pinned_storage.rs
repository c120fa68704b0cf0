//! Storage of an open store. It fails once the store's folders were moved: the writer must not
//! continue in whatever lies there now.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::storage::{
    Access, DirEntry, FileKind, Foreign, Identity, Stamp, Storage, StorageFile, if_reached,
};
use crate::error::{Error, Result};

/// Storage that compares some paths with their identity at open before it changes names or opens
/// for writing.
#[derive(Debug)]
pub struct PinnedStorage {
    storage: Arc<dyn Storage>,
    anchors: Vec<(PathBuf, Identity)>,
}

/// A path no longer leads to the file or folder that it named at open.
#[derive(Debug)]
pub struct Moved {
    pub path: PathBuf,
    expected: Identity,
    found: Option<Identity>,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} there, as when the store was opened, found ", self.expected)?;
        match &self.found {
            Some(found) => write!(f, "{found}")?,
            None => write!(f, "nothing")?,
        }
        write!(
            f,
            "; the store was moved, removed or replaced, and nothing is written at this path; close \
             it and open it where it is now"
        )
    }
}

impl std::error::Error for Moved {}

impl Moved {
    /// Returns the moved path if `error` reports one.
    #[must_use]
    pub fn from_error(error: &Error) -> Option<&Self> {
        match error {
            Error::Io { source, .. } => source.get_ref()?.downcast_ref(),
            _ => None,
        }
    }

    /// Says that writing has ended if `error` reports a moved path.
    #[must_use]
    pub fn end_writing(error: Error) -> Error {
        match Self::from_error(&error) {
            Some(moved) => Error::Poisoned { path: moved.path.clone(), reason: moved.to_string() },
            None => error,
        }
    }
}

impl PinnedStorage {
    /// Guards `storage` by the identity of these paths: the root and paths in it that exist. Storage
    /// without identities is never refused.
    pub fn new(
        storage: Arc<dyn Storage>,
        paths: impl IntoIterator<Item = PathBuf>,
    ) -> Result<Self> {
        let mut anchors = Vec::new();
        for path in paths {
            let identity = if_reached(storage.identity(&path)).map_err(Error::io("stat", &path))?;
            anchors.extend(identity.flatten().map(|identity| (path, identity)));
        }
        Ok(Self { storage, anchors })
    }

    fn moved_of(&self, anchors: &[(PathBuf, Identity)]) -> io::Result<Option<Moved>> {
        for (path, expected) in anchors {
            let found = if_reached(self.storage.identity(path))?.flatten();
            if found != Some(*expected) {
                return Ok(Some(Moved { path: path.clone(), expected: *expected, found }));
            }
        }
        Ok(None)
    }
}

impl Storage for PinnedStorage {
    fn check_place(&self) -> io::Result<()> {
        self.storage.check_place()?;
        if self.moved_of(self.anchors.get(1..).unwrap_or_default())?.is_none() {
            return Ok(());
        }
        // The root first: it explains the others.
        match self.moved_of(&self.anchors)? {
            Some(moved) => Err(io::Error::other(moved)),
            None => Ok(()),
        }
    }

    fn is_remote(&self) -> bool {
        self.storage.is_remote()
    }

    fn check_interrupt(&self) -> io::Result<()> {
        self.storage.check_interrupt()
    }

    fn announce(&self, ranges: &[(PathBuf, Range<u64>)]) -> Option<Arc<dyn Any + Send + Sync>> {
        self.storage.announce(ranges)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        if access == Access::ReadWrite {
            self.check_place()?;
        }
        self.storage.open(path, access)
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn StorageFile>> {
        self.check_place()?;
        self.storage.create(path, len)
    }

    fn create_to_replace(&self, path: &Path, replaced: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.check_place()?;
        self.storage.create_to_replace(path, replaced)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.check_place()?;
        self.storage.create_dir(dir)
    }

    fn create_outside(&self, dir: &Path, like: Option<&Path>) -> io::Result<()> {
        self.check_place()?;
        self.storage.create_outside(dir, like)
    }

    fn foreign(&self, dir: &Path) -> io::Result<Option<Foreign>> {
        self.storage.foreign(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_place()?;
        self.storage.rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.check_place()?;
        self.storage.exchange(one, other)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.check_place()?;
        self.storage.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.check_place()?;
        self.storage.remove_dir(path)
    }

    fn make_private(&self, path: &Path) -> io::Result<()> {
        self.check_place()?;
        self.storage.make_private(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.storage.sync_dir(dir)
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.storage.sync_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.storage.list(dir)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        self.storage.kind(path)
    }

    fn follow(&self, link: &Path) -> std::result::Result<(), String> {
        self.storage.follow(link)
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        self.storage.stamp(path)
    }

    fn identity(&self, path: &Path) -> io::Result<Option<Identity>> {
        self.storage.identity(path)
    }

    fn stamps_mapped_writes(&self, path: &Path) -> Result<bool> {
        self.storage.stamps_mapped_writes(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.storage.free_bytes(path)
    }

    fn free_inodes(&self, path: &Path) -> io::Result<u64> {
        self.storage.free_inodes(path)
    }

    fn used_percent(&self, dir: &Path) -> io::Result<u64> {
        self.storage.used_percent(dir)
    }
}

#[cfg(test)]
mod tests {
    /// A call left to the trait's default would not reach the wrapped storage.
    #[test]
    fn every_call_reaches_the_storage_behind() {
        let calls = |text: &str, begin: &str| -> Vec<String> {
            let body = text.split_once(begin).unwrap().1.split_once("\n}").unwrap().0;
            let lines = body.lines().filter_map(|line| line.strip_prefix("    fn "));
            lines.map(|line| line.split('(').next().unwrap().to_owned()).collect()
        };
        let mut declared = calls(include_str!("storage.rs"), "pub trait Storage:");
        let mut forwarded =
            calls(include_str!("pinned_storage.rs"), "impl Storage for PinnedStorage");
        declared.sort();
        forwarded.sort();
        assert_eq!(forwarded, declared);
    }
}
