//! Disk space that appends leave free so that the store can close cleanly: entries of queues and
//! index, and small files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::files::system::storage::Storage;

#[derive(Debug)]
pub struct DiskReserve {
    storage: Arc<dyn Storage>,
    /// Root folder; its disk holds all but the log.
    root: PathBuf,
    given: Option<u64>,
    fixed: AtomicU64,
    /// Bytes of entries per thousand bytes of the log.
    per_mille: u64,
    /// Offset up to which entries are written.
    entered: AtomicU64,
    inodes: AtomicU64,
}

/// Inodes of the small files and of the next files of log and index.
const SMALL_FILES: u64 = 24;

impl DiskReserve {
    /// Reserves `given` bytes, or else the need of closing: among that `per_mille` bytes of entries
    /// per thousand bytes of the log from `entered` on.
    #[must_use]
    pub fn new(
        storage: Arc<dyn Storage>,
        root: &Path,
        given: Option<u64>,
        per_mille: u64,
        entered: u64,
    ) -> Self {
        let (fixed, entered) = (AtomicU64::new(0), AtomicU64::new(entered));
        let inodes = AtomicU64::new(0);
        Self { storage, root: root.to_owned(), given, fixed, per_mille, entered, inodes }
    }

    pub fn needs(&self, bytes: u64) {
        self.fixed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reserves inodes for a new queue.
    pub fn check_inodes(&self, more: u64) -> io::Result<()> {
        let needed = self.inodes.load(Ordering::Relaxed).saturating_add(more + SMALL_FILES);
        let free = self.storage.free_inodes(&self.root).unwrap_or(u64::MAX);
        if free >= needed {
            self.inodes.fetch_add(more, Ordering::Relaxed);
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!(
                "the disk has {free} inodes free, and a clean close needs {needed}; nothing was written, \
                 remove files from the disk and append again"
            ),
        ))
    }

    /// Counts new queues that have their files now.
    pub fn made_inodes(&self, made: u64) {
        let left = |reserved: u64| Some(reserved.saturating_sub(made));
        let _ = self.inodes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }

    pub fn reserved_inodes(&self) -> u64 {
        self.inodes.load(Ordering::Relaxed)
    }

    /// Marks the entries before `offset` as written.
    pub fn entered(&self, offset: u64) {
        self.entered.fetch_max(offset, Ordering::Relaxed);
    }

    /// Bytes that must stay free if the log is written up to `end`.
    fn reserve(&self, end: u64) -> u64 {
        self.given.unwrap_or_else(|| {
            let log = end.saturating_sub(self.entered.load(Ordering::Relaxed));
            let entries = log.saturating_mul(self.per_mille) / 1000;
            self.fixed.load(Ordering::Relaxed).saturating_add(entries)
        })
    }

    /// Checks that the disk of `path` has room for `taking` bytes of the log up to `end`, and for
    /// the reserve.
    pub fn check(&self, path: &Path, taking: u64, end: u64) -> io::Result<()> {
        let reserve = self.reserve(end);
        self.check_inodes(0)?;
        self.check_disk(path, taking, reserve)?;
        if path.starts_with(&self.root) { Ok(()) } else { self.check_disk(&self.root, 0, reserve) }
    }

    /// Checks the reserve on the store's own disk before an append.
    pub fn check_root(&self) -> io::Result<()> {
        self.check_inodes(0)?;
        self.check_disk(&self.root, 0, self.reserve(0))
    }

    fn check_disk(&self, path: &Path, taking: u64, reserve: u64) -> io::Result<()> {
        // Unknown counts as enough, until a write fails.
        let free = self.storage.free_bytes(path).unwrap_or(u64::MAX);
        let needed = taking.saturating_add(reserve);
        if free >= needed {
            return Ok(());
        }
        let asked = match self.given {
            Some(_) => "disk_reserve_bytes asks to leave free",
            None => "a clean close needs",
        };
        Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!(
                "the disk has {free} bytes free, and {needed} are needed: {taking} for the log and \
                 {reserve} that {asked}; nothing was written, make room on the disk and append again"
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;

    fn message(room: &DiskReserve, taking: u64) -> Option<String> {
        let refused = room.check(&room.root, taking, 2000).err()?;
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        Some(refused.to_string())
    }

    #[test]
    fn a_given_reserve_is_left_free_and_else_what_closing_needs() {
        let dir = tempfile::tempdir().unwrap();
        let room = |given| DiskReserve::new(Arc::new(Os), dir.path(), given, 400, 1000);
        assert_eq!(message(&room(Some(0)), 1), None);
        let given = room(Some(u64::MAX >> 1));
        given.needs(5);
        assert!(message(&given, 1).unwrap().contains("disk_reserve_bytes asks"));
        assert!(given.check_root().is_err());
        let closing = room(None);
        assert_eq!(closing.reserve(2000), 400);
        assert!(message(&closing, 1).is_none() && closing.check_root().is_ok());
        closing.needs(u64::MAX >> 1);
        let refused = message(&closing, 7).unwrap();
        assert!(refused.contains(&format!("7 for the log and {}", (u64::MAX >> 1) + 400)));
        closing.entered(1500);
        assert_eq!(closing.reserve(2000), (u64::MAX >> 1) + 200);
    }
}
