//! A run of files of one size that form one address space, each named after the offset of its first
//! byte (`org.apache.rocketmq.store.MappedFileQueue`).
//!
//! Reads go by position through a bounded cache of open files, so any number of files needs few
//! descriptors.

use crate::locks::{Mutex, MutexGuard, RwLock};
use std::any::Any;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::folder::make_folder;
pub use super::open_files::OpenFiles;
use super::open_files::{RunFile, file_size_of};
use super::roots::Roots;
use super::roots::Twin;
use crate::error::{CorruptionKind, Error, Result};
use crate::files::map::holes::each_data;
use crate::files::map::prefault::Prefaulter;
use crate::files::system::storage::{Access, FileKind, Storage, StorageFile, if_there};
use crate::format::bytes::are_zeros;
use crate::format::file_name;
use crate::format::width::to_usize;

/// An entry of a run's folder that is no file of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    pub path: PathBuf,
    pub kind: FileKind,
}

/// The files of one commit log or queue.
#[derive(Debug)]
pub struct FileRun {
    storage: Arc<dyn Storage>,
    open_files: Arc<OpenFiles>,
    access: Access,
    roots: Roots,
    file_size: AtomicU64,
    learns_file_size: AtomicBool,
    files: RwLock<Arc<Vec<Arc<RunFile>>>>,
    twins: RwLock<Arc<Vec<Twin>>>,
    creating: Mutex<()>,
    has_lost_files: AtomicBool,
    lacks_folder: AtomicBool,
}

impl FileRun {
    /// Lists the files below `dirs` without changing anything; a missing folder counts as empty.
    pub fn load(
        storage: Arc<dyn Storage>,
        open_files: Arc<OpenFiles>,
        roots: impl Into<Roots>,
        file_size: u64,
        access: Access,
    ) -> Result<(Self, Vec<Stray>)> {
        let run = Self {
            storage,
            open_files,
            access,
            roots: roots.into(),
            file_size: AtomicU64::new(file_size),
            learns_file_size: AtomicBool::new(false),
            files: RwLock::new(Arc::new(Vec::new())),
            twins: RwLock::default(),
            creating: Mutex::default(),
            has_lost_files: AtomicBool::new(false),
            lacks_folder: AtomicBool::new(false),
        };
        let strays = run.refresh()?;
        Ok((run, strays))
    }

    /// Treats the file size as a guess until the first file shows it.
    pub fn learn_file_size(&mut self) {
        self.learns_file_size = AtomicBool::new(self.files().is_empty());
    }

    pub fn refresh(&self) -> Result<Vec<Stray>> {
        // The earlier of two concurrent listings must not overwrite the later.
        let _listing = self.creating();
        let (files, strays) = self.list()?;
        self.replace(files);
        Ok(strays)
    }

    /// Lists again if files were only added. Returns `None` without a change if a known file is
    /// gone or replaced: everything known of the run is stale then.
    pub fn refresh_grown(&self) -> Result<Option<Vec<Stray>>> {
        let _listing = self.creating();
        let (files, strays) = self.list()?;
        let is_there = |known: &Arc<RunFile>| files.iter().any(|file| file.id == known.id);
        if self.has_lost_files() || !self.files().iter().all(is_there) {
            return Ok(None);
        }
        self.replace(files);
        Ok(Some(strays))
    }

    /// Whether a reader found a listed file missing: another process removed or replaced files.
    #[must_use]
    pub fn has_lost_files(&self) -> bool {
        self.has_lost_files.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn lacks_folder(&self) -> bool {
        self.lacks_folder.load(Ordering::Acquire)
    }

    /// Lists the folders; known files keep their state.
    fn list(&self) -> Result<(Vec<Arc<RunFile>>, Vec<Stray>)> {
        let known = self.files();
        let mut files: Vec<Arc<RunFile>> = Vec::new();
        let mut strays = Vec::new();
        self.lacks_folder.store(false, Ordering::Release);
        for dir in self.roots.dirs() {
            let Some(entries) = self.storage.list_if_there(dir)? else {
                self.lacks_folder.store(true, Ordering::Release);
                continue;
            };
            for entry in entries {
                let path = dir.join(&entry.name);
                let base = entry.name.to_str().and_then(file_name::parse_offset_name);
                match (base, entry.kind) {
                    (Some(base_offset), FileKind::File) => {
                        let same = known
                            .binary_search_by_key(&base_offset, |file| file.base_offset)
                            .ok()
                            .and_then(|at| known.get(at))
                            .filter(|file| file.len == entry.len && file.path == path)
                            .filter(|file| [0, entry.inode].contains(&file.inode));
                        files.push(same.map_or_else(
                            || self.run_file(base_offset, path, entry.len, entry.inode),
                            Arc::clone,
                        ));
                    }
                    (Some(_), FileKind::Directory) if self.access == Access::ReadWrite => {
                        let error = std::io::ErrorKind::IsADirectory.into();
                        return Err(Error::io("open as a file", path)(error));
                    }
                    (_, kind) => strays.push(Stray { path, kind }),
                }
            }
        }
        files.sort_by(|a, b| (a.base_offset, &a.path).cmp(&(b.base_offset, &b.path)));
        self.drop_twins(&mut files)?;
        // Before readers see the files.
        if self.learns_file_size.load(Ordering::Acquire)
            && let Some(size) = file_size_of(&files)
        {
            self.file_size.store(size, Ordering::Release);
            self.learns_file_size.store(false, Ordering::Release);
        }
        Ok((files, strays))
    }

    /// Leaves one file of each name, which a log on several disks may have twice.
    fn drop_twins(&self, files: &mut Vec<Arc<RunFile>>) -> Result<()> {
        let (known, mut twins) = (self.twins(), Vec::new());
        let mut at = 1;
        while let Some([one, two]) = files.get(at - 1..=at) {
            if one.base_offset < two.base_offset {
                at += 1;
                continue;
            }
            let twin = match known.iter().find(|twin| twin.is_of(one, two)) {
                Some(twin) => twin.clone(),
                None => Twin::compare(&*self.storage, one, two)?,
            };
            let is_first = twin.other == one.path;
            files.remove(if is_first { at - 1 } else { at });
            twins.push(twin);
        }
        *self.twins.write() = Arc::new(twins);
        Ok(())
    }

    pub fn refuse_twins(&self) -> Result<()> {
        match self.twins().iter().find(|twin| twin.differs_at.is_some()) {
            Some(twin) => Err(twin.into()),
            None => Ok(()),
        }
    }

    #[must_use]
    pub fn twins(&self) -> Arc<Vec<Twin>> {
        Arc::clone(&self.twins.read())
    }

    fn run_file(&self, base_offset: u64, mut path: PathBuf, len: u64, inode: u64) -> Arc<RunFile> {
        path.shrink_to_fit();
        let id = self.open_files.next_id.fetch_add(1, Ordering::Relaxed);
        Arc::new(RunFile { base_offset, path, len, inode, id })
    }

    fn replace(&self, mut files: Vec<Arc<RunFile>>) {
        files.shrink_to_fit();
        *self.files.write() = Arc::new(files);
    }

    /// Changes the list: one thread may remove the first file while another adds one.
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<RunFile>>)) {
        let mut files = self.files.write();
        let mut changed = files.as_ref().clone();
        change(&mut changed);
        changed.shrink_to_fit();
        *files = Arc::new(changed);
    }

    #[must_use]
    pub fn files(&self) -> Arc<Vec<Arc<RunFile>>> {
        Arc::clone(&self.files.read())
    }

    #[must_use]
    #[inline]
    pub fn file_size(&self) -> u64 {
        self.file_size.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn dirs(&self) -> &[PathBuf] {
        self.roots.dirs()
    }

    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.dirs().first().cloned().unwrap_or_default()
    }

    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    #[must_use]
    pub fn min_offset(&self) -> Option<u64> {
        self.files().first().map(|file| file.base_offset)
    }

    #[must_use]
    pub fn end_offset(&self) -> Option<u64> {
        self.files().last().map(|file| file.base_offset.saturating_add(self.file_size()))
    }

    /// The file that holds `offset` (`MappedFileQueue.findMappedFileByOffset`).
    #[must_use]
    pub fn find(&self, offset: u64) -> Option<Arc<RunFile>> {
        let files = self.files();
        let behind = files.partition_point(|file| file.base_offset <= offset);
        let file = files.get(behind.checked_sub(1)?)?;
        (offset - file.base_offset < self.file_size()).then(|| Arc::clone(file))
    }

    /// Closes cached files of runs that share the cache; holders of an open file keep it.
    pub fn close_files(&self) {
        self.open_files.clear();
    }

    pub fn open(&self, file: &RunFile) -> Result<Arc<dyn StorageFile>> {
        let open = self.open_files.get(&*self.storage, file, self.access);
        match open {
            // A read-only folder takes no new files; its files may be protected.
            Err(error) if error.is_write_refused() && self.is_read_only(file) => {
                self.open_files.get(&*self.storage, file, Access::Read)
            }
            open => open,
        }
    }

    /// As [`Storage::announce`], of bytes of the run.
    #[must_use]
    pub fn announce(&self, bytes: Range<u64>) -> Option<Arc<dyn Any + Send + Sync>> {
        let files = self.files();
        let ranges = files.iter().filter_map(|file| {
            let base = file.base_offset;
            let range = bytes.start.saturating_sub(base)
                ..bytes.end.saturating_sub(base).min(self.file_size());
            (range.start < range.end).then(|| (file.path.clone(), range))
        });
        self.storage.announce(&ranges.collect::<Vec<_>>())
    }

    #[must_use]
    pub fn is_read_only(&self, file: &RunFile) -> bool {
        self.roots.is_read_only(&file.path)
    }

    /// Flushes one file, and checks that no other process removed, replaced or resized it.
    pub fn sync(&self, file: &RunFile) -> Result<()> {
        let open = self.open(file)?;
        open.sync().map_err(Error::flush(&file.path))?;
        check_unchanged(&*open, &file.path, self.file_size())
    }

    /// Flushes a range written through the file's map, with the checks of [`FileRun::sync`].
    pub fn sync_range(&self, file: &RunFile, map: &Prefaulter, range: Range<usize>) -> Result<()> {
        map.sync(range).map_err(Error::flush(&file.path))?;
        check_unchanged(map.file(), &file.path, self.file_size())
    }

    /// Reads from `offset` until `buffer` is full or the file ends. Returns the bytes read, 0 if no
    /// file holds `offset`.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let Some(file) = self.find(offset) else { return Ok(0) };
        self.read_file_at(&file, buffer, offset)
    }

    /// Brings sorted places of an offset and a length, which are about to be read, into memory
    /// where a read costs a request. Advice only: the read itself reports an error.
    pub fn will_read(&self, places: &[(u64, usize)]) {
        for places in places.chunk_by(|(a, _), (b, _)| a / self.file_size() == b / self.file_size())
        {
            let Some(file) = places.first().and_then(|(at, _)| self.find(*at)) else { continue };
            let Ok(Some(open)) = self.open_if_there(&file) else { continue };
            let inside = places
                .iter()
                .filter_map(|(at, len)| Some((at.checked_sub(file.base_offset)?, *len)));
            let _ = open.read_many(&inside.collect::<Vec<_>>());
        }
    }

    /// As [`each_data`] of the files from `offset` on; those that were deleted are skipped.
    pub fn each_data(
        &self,
        offset: u64,
        mut take: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        for file in self.files().iter() {
            let places = offset.saturating_sub(file.base_offset)..self.file_size();
            if !places.is_empty()
                && let Some(open) = self.open_if_there(file)?
                && each_data(&*open, &file.path, places, |at, bytes| {
                    Ok(take(file.base_offset + at, bytes))
                })?
                .is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether only zeros and holes lie in the files from `offset` on.
    pub fn is_empty_from(&self, offset: u64) -> Result<bool> {
        let walked = self.each_data(offset, |_, bytes| match are_zeros(bytes) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        Ok(walked?.is_continue())
    }

    pub fn read_file_at(&self, file: &RunFile, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let Some(position) = offset.checked_sub(file.base_offset) else { return Ok(0) };
        let room = to_usize(self.file_size().saturating_sub(position));
        let len = buffer.len().min(room);
        let Some(wanted) = buffer.get_mut(..len) else { return Ok(0) };
        let Some(open) = self.open_if_there(file)? else { return Ok(0) };
        open.read_at(wanted, position).map_err(Error::io("read", &file.path))
    }

    /// Opens a file of the run; `None` if it was deleted since the listing, which the run then
    /// remembers.
    pub fn open_if_there(&self, file: &RunFile) -> Result<Option<Arc<dyn StorageFile>>> {
        match self.open(file) {
            Err(error) if error.is_not_found() && self.access == Access::Read => {
                self.has_lost_files.store(true, Ordering::Release);
                self.refresh()?;
                Ok(None)
            }
            // The retention of this process deleted it and left it out of the list.
            Err(Error::Io { .. }) if !self.files().iter().any(|known| known.id == file.id) => {
                Ok(None)
            }
            open => open.map(Some),
        }
    }

    /// Returns the file at `base_offset`, creating it if missing.
    pub fn create_if_missing(&self, base_offset: u64) -> Result<Arc<RunFile>> {
        let _creating = self.creating();
        match self.find(base_offset) {
            Some(file) => Ok(file),
            None => self.create(base_offset),
        }
    }

    pub(crate) fn creating(&self) -> MutexGuard<'_, ()> {
        self.creating.lock()
    }

    /// Creates the next file, sparse and zeroed, and makes its name durable.
    pub fn create(&self, base_offset: u64) -> Result<Arc<RunFile>> {
        let path = self.next_path(base_offset)?;
        let dir = path.parent().unwrap_or(&path);
        make_folder(&*self.storage, dir)?;
        let open = self.make(&path)?;
        let durable = open.sync().map_err(Error::flush(&path)).and_then(|()| self.sync_name(dir));
        if let Err(error) = durable {
            // The caller needs the first error; a name left behind is an empty last file.
            let _ = self.storage.remove_file(&path);
            return Err(error);
        }
        let file = self.add(base_offset, path);
        self.open_files.put(file.id, &open);
        Ok(file)
    }

    pub(crate) fn next_path(&self, base_offset: u64) -> Result<PathBuf> {
        let which = base_offset.checked_div(self.file_size()).unwrap_or(0);
        // Unknown disk usage counts as empty.
        let used_percent = |dir: &Path| self.storage.used_percent(dir).unwrap_or(0);
        let dir = self.roots.of_file(which, used_percent).ok_or_else(|| {
            Error::setting("store_path_commit_log", "a folder that takes new files", "none")
        })?;
        Ok(dir.join(file_name::offset_name(base_offset)))
    }

    /// Creates a sparse, zeroed file without making its name durable.
    pub(crate) fn make(&self, path: &Path) -> Result<Arc<dyn StorageFile>> {
        let made = self.open_files.with_room(|| self.storage.create(path, self.file_size()));
        made.map_err(|error| in_the_way(error, path))
    }

    pub(crate) fn add(&self, base_offset: u64, path: PathBuf) -> Arc<RunFile> {
        let file = self.run_file(base_offset, path, self.file_size(), 0);
        self.insert(&file);
        file
    }

    fn insert(&self, file: &Arc<RunFile>) {
        self.change(|files| {
            let at = files.partition_point(|other| other.base_offset < file.base_offset);
            files.insert(at, Arc::clone(file));
        });
    }

    fn sync_name(&self, dir: &Path) -> Result<()> {
        let synced = self.open_files.with_room(|| self.storage.sync_dir(dir));
        synced.map_err(Error::flush(dir))
    }

    /// Removes the files from `offset` on, the last first.
    pub fn remove_from(&self, offset: u64) -> Result<usize> {
        let mut removed = 0;
        while let Some(last) = self.files().last().filter(|last| last.base_offset >= offset) {
            self.remove(last)?;
            removed += 1;
        }
        self.sync_names(removed)?;
        Ok(removed)
    }

    pub fn remove_first(&self) -> Result<Option<Arc<RunFile>>> {
        let files = self.files();
        let [first, _, ..] = files.as_slice() else { return Ok(None) };
        self.remove(first)?;
        self.sync_names(1)?;
        Ok(Some(Arc::clone(first)))
    }

    /// Removes a file, first from the list: readers must not look for a file that is gone.
    fn remove(&self, file: &Arc<RunFile>) -> Result<()> {
        // The other one would come back in its place.
        if let Some(twin) = self.twins().iter().find(|twin| twin.read.id == file.id) {
            return Err(twin.into());
        }
        self.change(|files| files.retain(|other| other.id != file.id));
        if let Err(error) = self.storage.remove_file(&file.path) {
            self.insert(file);
            return Err(Error::io("remove", &file.path)(error));
        }
        self.open_files.forget(file.id);
        Ok(())
    }

    fn sync_names(&self, removed: usize) -> Result<()> {
        if removed > 0 {
            for dir in self.roots.dirs() {
                if_there(self.storage.sync_dir(dir)).map_err(Error::flush(dir))?;
            }
        }
        Ok(())
    }

    /// Checks each file's length and position; returns errors in order.
    #[must_use]
    pub fn check(&self) -> Vec<Error> {
        let files = self.files();
        let mut findings = Vec::new();
        let mut expected_base = None;
        for file in files.iter() {
            if file.len != self.file_size() {
                findings.push(Error::corrupt(
                    &file.path,
                    file.len,
                    CorruptionKind::FileLength,
                    format!("a file of {} bytes", self.file_size()),
                    format!("{} bytes", file.len),
                ));
            }
            let aligned = file.base_offset.checked_rem(self.file_size()) == Some(0);
            if !aligned || expected_base.is_some_and(|expected| expected != file.base_offset) {
                findings.push(Error::corrupt(
                    &file.path,
                    0,
                    CorruptionKind::Gap,
                    expected_base.map_or_else(
                        || format!("a name that is a multiple of {}", self.file_size()),
                        |base: u64| format!("the file {}", file_name::offset_name(base)),
                    ),
                    file_name::offset_name(file.base_offset),
                ));
            }
            expected_base = Some(file.base_offset.saturating_add(self.file_size()));
        }
        findings
    }
}

fn in_the_way(error: std::io::Error, path: &Path) -> Error {
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        let found = "a file there, which another process made";
        return Error::corrupt(path, 0, CorruptionKind::FileName, "no file", found);
    }
    Error::io("create", path)(error)
}

pub fn check_unchanged(open: &dyn StorageFile, path: &Path, len: u64) -> Result<()> {
    let stat = open.stat().map_err(Error::io("stat", path))?;
    if stat.links > 0 && stat.len == len {
        return Ok(());
    }
    let found = if stat.links == 0 {
        "a file that another process removed".to_owned()
    } else {
        format!("{} bytes: another process changed it", stat.len)
    };
    let expected = format!("the file of {len} bytes that is being written");
    Err(Error::corrupt(path, 0, CorruptionKind::FileLength, expected, found))
}

#[cfg(test)]
mod tests;
