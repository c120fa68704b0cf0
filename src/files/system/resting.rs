//! Storage of a log that nobody writes, for commands that read it several times: keeps its files open
//! and reads no hole twice. It changes nothing.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::locks::Mutex;

use super::storage::{
    Access, DirEntry, FileKind, FileStat, Identity, Region, Stamp, Storage, StorageFile, forward,
    read_only,
};
use crate::format::width::to_usize;

const MOST_OPEN: usize = 64;
const MOST_RUNS: usize = 64;
const READ: u64 = 1 << 20;
const PIECE: u64 = 64 << 10;
const LOOK: u64 = 4 << 10;
/// Distance of looks: data behind zeros may be overlooked only where there is less of it.
const STRIDE: u64 = 8 << 20;

#[derive(Debug)]
pub struct Resting {
    storage: Arc<dyn Storage>,
    dirs: Vec<PathBuf>,
    /// Set once the end of zeros that are no hole was bisected; without it they are read.
    bisected: Option<Arc<AtomicBool>>,
    open: Mutex<HashMap<PathBuf, Arc<dyn StorageFile>>>,
}

impl Resting {
    #[must_use]
    pub fn new(
        storage: Arc<dyn Storage>,
        dirs: &[PathBuf],
        bisected: Option<Arc<AtomicBool>>,
    ) -> Self {
        Self { storage, dirs: dirs.to_vec(), bisected, open: Mutex::default() }
    }
}

impl Storage for Resting {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        if access == Access::ReadWrite {
            return read_only(self.is_remote());
        }
        let is_kept = path.parent().is_some_and(|above| self.dirs.iter().any(|dir| dir == above));
        // Files behind a URL look for zeros themselves, and no lock may be held meanwhile.
        if !is_kept || self.storage.is_remote() {
            return self.storage.open(path, access);
        }
        // Held while the file is opened, so that two threads share what they learn of it.
        let mut open = self.open.lock();
        if let Some(file) = open.get(path) {
            return Ok(Arc::clone(file));
        }
        let (file, bisected) = (self.storage.open(path, access)?, self.bisected.clone());
        let mut zeros = Vec::new();
        // A hole in front counts from its start, whichever thread asks first and where.
        note(&mut zeros, 0..file.next_data(0)?.unwrap_or(u64::MAX));
        let (zeros, stat) = (Mutex::new(zeros), OnceLock::new());
        let file: Arc<dyn StorageFile> = Arc::new(RestingFile { file, bisected, zeros, stat });
        if open.len() < MOST_OPEN {
            open.insert(path.to_owned(), Arc::clone(&file));
        }
        Ok(file)
    }

    forward! { to storage:
        fn list(dir: &Path) -> io::Result<Vec<DirEntry>>;
        fn is_remote() -> bool;
        fn check_interrupt() -> io::Result<()>;
        fn kind(path: &Path) -> io::Result<Option<FileKind>>;
        fn is_own(path: &Path) -> bool;
        fn may_write(path: &Path) -> bool;
        fn follow(link: &Path) -> Result<(), String>;
        fn stamp(path: &Path) -> io::Result<Option<Stamp>>;
        fn identity(path: &Path) -> io::Result<Option<Identity>>;
    }
}

#[derive(Debug)]
struct RestingFile {
    file: Arc<dyn StorageFile>,
    bisected: Option<Arc<AtomicBool>>,
    zeros: Mutex<Vec<Range<u64>>>,
    stat: OnceLock<FileStat>,
}

impl RestingFile {
    fn len(&self) -> io::Result<u64> {
        self.stat().map(|stat| stat.len)
    }

    /// Where the hole at `position` ends, or zeros that were met before.
    fn hole_end(&self, position: u64) -> io::Result<u64> {
        let known = |zeros: &Range<u64>| zeros.contains(&position).then_some(zeros.end);
        let mut zeros = self.zeros.lock();
        if let Some(end) = zeros.iter().find_map(known) {
            return Ok(end);
        }
        let end = self.file.next_data(position)?.unwrap_or(u64::MAX);
        note(&mut zeros, position..end);
        Ok(end)
    }

    fn data_in(&self, from: u64, to: u64) -> io::Result<Option<u64>> {
        let mut bytes = vec![0; to_usize(to.saturating_sub(from))];
        let read = self.file.read_at(&mut bytes, from)?;
        let found = bytes.iter().take(read).position(|byte| *byte != 0);
        Ok(found.map(|at| from.saturating_add(at as u64)))
    }

    fn bisect(&self, from: u64, bisected: &AtomicBool) -> io::Result<u64> {
        let end = self.len()?;
        let has_data = |at: u64, len: u64| self.data_in(at, at.saturating_add(len).min(end));
        let (mut zero, mut data) = (from, from);
        while data < end {
            let len = if data < from.saturating_add(READ) { PIECE } else { LOOK };
            if let Some(found) = has_data(data, len)? {
                if len == PIECE {
                    return Ok(found);
                }
                break;
            }
            zero = data;
            bisected.fetch_or(len == LOOK, Ordering::Relaxed);
            // The last look is at the end of the file.
            let last = end.saturating_sub(LOOK);
            let next = if len == PIECE { PIECE } else { STRIDE };
            data = if data < last { data.saturating_add(next).min(last) } else { end };
            data = self.hole_end(data)?;
        }
        while data < end && data - zero > LOOK {
            let middle = zero + (data - zero) / 2;
            if has_data(middle, LOOK)?.is_some() { data = middle } else { zero = middle }
        }
        Ok(if data < end { zero } else { u64::MAX })
    }
}

fn note(zeros: &mut Vec<Range<u64>>, run: Range<u64>) {
    if !run.is_empty() && zeros.len() < MOST_RUNS {
        zeros.push(run);
    }
}

impl StorageFile for RestingFile {
    fn stat(&self) -> io::Result<FileStat> {
        match self.stat.get() {
            Some(stat) => Ok(*stat),
            None => self.file.stat().map(|stat| *self.stat.get_or_init(|| stat)),
        }
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let wanted = buffer.len() as u64;
        if self.hole_end(position)? < position.saturating_add(wanted) {
            return self.file.read_at(buffer, position);
        }
        let there = to_usize(self.len()?.saturating_sub(position).min(wanted));
        buffer.get_mut(..there).unwrap_or_default().fill(0);
        Ok(there)
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        let mut end = self.hole_end(position)?;
        if let Some(bisected) = self.bisected.as_ref().filter(|_| end == position) {
            end = self.bisect(position, bisected)?;
            note(&mut self.zeros.lock(), position..end);
        }
        Ok((end < u64::MAX).then_some(end))
    }

    forward! { to file:
        fn map(len: usize, access: Access) -> io::Result<Arc<dyn Region>>;
        fn try_lock(bytes: Range<u64>) -> io::Result<bool>;
        fn locked(bytes: Range<u64>) -> Option<Range<u64>>;
        fn lock_holder() -> Option<i32>;
    }
}
