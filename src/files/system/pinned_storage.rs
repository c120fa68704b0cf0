//! Storage of an open store. It fails once the store's folders were moved: the writer must not
//! continue in whatever lies there now.

use std::any::Any;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::storage::{
    Access, DirEntry, FileKind, Foreign, Identity, Stamp, Storage, StorageFile, forward, if_reached,
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
#[derive(Debug, thiserror::Error)]
#[error(
    "expected {expected} there, as when the store was opened, found {}; the store was moved, removed \
     or replaced, and nothing is written at this path; close it and open it where it is now",
    .found.as_ref().map_or_else(|| "nothing".to_owned(), Identity::to_string)
)]
pub struct Moved {
    pub path: PathBuf,
    expected: Identity,
    found: Option<Identity>,
}

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

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        if access == Access::ReadWrite {
            self.check_place()?;
        }
        self.storage.open(path, access)
    }

    forward! { check_place, to storage:
        fn create(path: &Path, len: u64) -> io::Result<Arc<dyn StorageFile>>;
        fn create_to_replace(path: &Path, replaced: &Path) -> io::Result<Arc<dyn StorageFile>>;
        fn create_dir(dir: &Path) -> io::Result<()>;
        fn create_outside(dir: &Path, like: Option<&Path>) -> io::Result<()>;
        fn rename(from: &Path, to: &Path) -> io::Result<()>;
        fn exchange(one: &Path, other: &Path) -> io::Result<()>;
        fn remove_file(path: &Path) -> io::Result<()>;
        fn remove_dir(path: &Path) -> io::Result<()>;
        fn make_private(path: &Path) -> io::Result<()>;
    }

    forward! { to storage:
        fn is_remote() -> bool;
        fn check_interrupt() -> io::Result<()>;
        fn announce(ranges: &[(PathBuf, Range<u64>)]) -> Option<Arc<dyn Any + Send + Sync>>;
        fn foreign(dir: &Path) -> io::Result<Option<Foreign>>;
        fn sync_dir(dir: &Path) -> io::Result<()>;
        fn sync_all(dir: &Path) -> io::Result<()>;
        fn list(dir: &Path) -> io::Result<Vec<DirEntry>>;
        fn kind(path: &Path) -> io::Result<Option<FileKind>>;
        fn follow(link: &Path) -> std::result::Result<(), String>;
        fn is_own(path: &Path) -> bool;
        fn may_write(path: &Path) -> bool;
        fn stamp(path: &Path) -> io::Result<Option<Stamp>>;
        fn identity(path: &Path) -> io::Result<Option<Identity>>;
        fn stamps_mapped_writes(path: &Path) -> Result<bool>;
        fn free_bytes(path: &Path) -> io::Result<u64>;
        fn free_inodes(path: &Path) -> io::Result<u64>;
        fn used_percent(dir: &Path) -> io::Result<u64>;
    }
}

#[cfg(test)]
mod tests {
    /// A call left to the trait's default would not reach the wrapped storage.
    #[test]
    fn every_call_reaches_the_storage_behind() {
        let calls = |text: &str, begin: &str| -> Vec<String> {
            let body = text.split_once(begin).unwrap().1.split_once("\n}").unwrap().0;
            let lines = body.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
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
