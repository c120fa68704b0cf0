//! A store's index files for queries, oldest first
//! (`org.apache.rocketmq.store.index.IndexService`).

use crate::locks::{Mutex, RwLock};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lru::LruCache;

use super::check::header_fault;
use super::file::{IndexFile, IndexOpen};
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::system::storage::Identity;
use crate::files::{FileKind, Storage, make_folder};
use crate::format::file_name::{INDEX_NAMES_END, index_name, next_index_name, parse_index_name};
use crate::format::index::{IndexHeader, IndexLayout};
use crate::time::CalendarTime;

const OPEN_FILES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

/// Attempts to list a folder whose files disappear meanwhile.
const LISTINGS: usize = 16;

/// More keys than a message's properties can hold: 32,767 bytes.
const MOST_KEYS: usize = 1 << 15;

#[derive(Debug)]
pub struct IndexRunFile {
    /// Name: 17 digits that order the files.
    pub name: u64,
    pub path: PathBuf,
    inode: u64,
    id: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Between {
    pub(crate) older: Option<IndexHeader>,
    pub(crate) newer: IndexHeader,
}

/// Usable index files of a folder, oldest first. Files are opened on demand; a removed file stays
/// readable for its holders.
#[derive(Debug)]
pub struct IndexRun {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    layout: IndexLayout,
    how: IndexOpen,
    listed: RwLock<Arc<Listing>>,
    open: Mutex<LruCache<u64, Arc<IndexFile>>>,
    next_id: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) files: Vec<Arc<IndexRunFile>>,
    pub(crate) unusable: Vec<Arc<IndexRunFile>>,
    newest: OnceLock<Arc<IndexFile>>,
}

impl Listing {
    fn copy(&self) -> Self {
        let (files, unusable) = (self.files.clone(), self.unusable.clone());
        Self { files, unusable, newest: OnceLock::new() }
    }

    #[inline]
    pub(crate) fn newest(&self) -> Option<&IndexFile> {
        self.newest.get().map(|newest| &**newest)
    }
}

impl IndexRun {
    /// Lists the index files below `dir`; a missing folder counts as empty. `how` is the way
    /// queries read. Also returns why files are unusable.
    pub fn load(
        storage: Arc<dyn Storage>,
        dir: &Path,
        layout: IndexLayout,
        how: IndexOpen,
    ) -> Result<(Self, Vec<Corruption>)> {
        let run = Self::new(storage, dir, layout, how);
        let findings = run.refresh()?;
        Ok((run, findings))
    }

    pub fn to_read(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        layout: Option<IndexLayout>,
    ) -> Result<Option<Self>> {
        let load = |layout| Self::load(Arc::clone(storage), dir, layout, IndexOpen::Read);
        Ok(layout.map(load).transpose()?.map(|(run, _)| run))
    }

    /// [`IndexRun::load`] for checks: `unreadable` gets each unreadable file, and the run skips it.
    pub fn load_readable(
        storage: Arc<dyn Storage>,
        dir: &Path,
        layout: IndexLayout,
        unreadable: &mut dyn FnMut(&Path, Error) -> Result<()>,
    ) -> Result<(Self, Vec<Corruption>)> {
        let run = Self::new(storage, dir, layout, IndexOpen::Read);
        let findings = run.list(unreadable)?;
        Ok((run, findings))
    }

    fn new(storage: Arc<dyn Storage>, dir: &Path, layout: IndexLayout, how: IndexOpen) -> Self {
        Self {
            storage,
            dir: dir.to_owned(),
            layout,
            // There must not be a second writer.
            how: if how == IndexOpen::Write { IndexOpen::ReadMapped } else { how },
            listed: RwLock::default(),
            open: Mutex::new(LruCache::new(OPEN_FILES)),
            next_id: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Lists the folder again and returns what is unusable.
    pub fn refresh(&self) -> Result<Vec<Corruption>> {
        self.list(&mut |_, error| Err(error))
    }

    fn list(
        &self,
        unreadable: &mut dyn FnMut(&Path, Error) -> Result<()>,
    ) -> Result<Vec<Corruption>> {
        for left in (0..LISTINGS).rev() {
            let folder = self.identity();
            let (listing, findings, is_whole) = self.list_once(unreadable)?;
            // Files that went, or a whole folder, may have been replaced by others with their keys.
            if is_whole && self.identity() == folder || left == 0 {
                self.replace(listing);
                return Ok(findings);
            }
        }
        Ok(Vec::new())
    }

    fn identity(&self) -> Option<Identity> {
        self.storage.identity(&self.dir).ok().flatten()
    }

    /// Lists once: files, faults, and whether no file disappeared meanwhile.
    fn list_once(
        &self,
        unreadable: &mut dyn FnMut(&Path, Error) -> Result<()>,
    ) -> Result<(Listing, Vec<Corruption>, bool)> {
        let (mut listing, mut findings, mut is_whole) = (Listing::default(), Vec::new(), true);
        let entries = self.storage.list_if_there(&self.dir)?.unwrap_or_default();
        let known = self.listing();
        for entry in entries {
            let path = self.dir.join(&entry.name);
            let name = entry.name.to_str().and_then(parse_index_name);
            let (Some(name), FileKind::File) = (name, entry.kind) else {
                findings.push(stray(&path, entry.kind));
                continue;
            };
            if name >= INDEX_NAMES_END {
                // The next file would have no name; opening for writing replaces this one.
                findings.push(without_successor(&path, name));
                listing.unusable.push(self.new_file(name, path, entry.inode));
                continue;
            }
            let is_same = |file: &&Arc<IndexRunFile>| {
                file.name == name && [0, entry.inode].contains(&file.inode)
            };
            let same = known.files.iter().find(is_same).map(Arc::clone);
            let file = same.unwrap_or_else(|| self.new_file(name, path, entry.inode));
            match self.open(&file).and_then(|open| open.header()) {
                Ok(_) => listing.files.push(file),
                Err(Error::Corrupt(corruption)) => {
                    self.forget(&file);
                    listing.unusable.push(file);
                    findings.push(*corruption);
                }
                // Removed since the listing.
                Err(error) if error.is_not_found() => is_whole = false,
                Err(error) => {
                    unreadable(&file.path, error)?;
                    listing.unusable.push(file);
                }
            }
        }
        listing.files.sort_by_key(|file| file.name);
        listing.unusable.sort_by_key(|file| file.name);
        findings.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((listing, findings, is_whole))
    }

    fn new_file(&self, name: u64, path: PathBuf, inode: u64) -> Arc<IndexRunFile> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Arc::new(IndexRunFile { name, path, inode, id })
    }

    pub(crate) fn listing(&self) -> Arc<Listing> {
        Arc::clone(&self.listed.read())
    }

    fn replace(&self, listing: Listing) {
        *self.listed.write() = Arc::new(listing);
    }

    #[must_use]
    pub fn files(&self) -> Vec<Arc<IndexRunFile>> {
        self.listing().files.clone()
    }

    #[must_use]
    pub fn unusable(&self) -> Vec<Arc<IndexRunFile>> {
        self.listing().unusable.clone()
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    #[must_use]
    pub fn layout(&self) -> IndexLayout {
        self.layout
    }

    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    pub fn open(&self, file: &IndexRunFile) -> Result<Arc<IndexFile>> {
        if let Some(open) = self.cache().get(&file.id) {
            return Ok(Arc::clone(open));
        }
        let open = IndexFile::open(&*self.storage, &file.path, self.layout, self.how);
        if open.as_ref().is_err_and(Error::is_not_found) {
            self.lost.fetch_add(1, Ordering::AcqRel);
        }
        let open = Arc::new(open?);
        self.cache().put(file.id, Arc::clone(&open));
        Ok(open)
    }

    /// Number of listed files found missing; if it grew during a query, the query may have missed
    /// their keys.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    pub(crate) fn open_if_there(&self, file: &IndexRunFile) -> Result<Option<Arc<IndexFile>>> {
        match self.open(file) {
            Err(error) if error.is_not_found() => Ok(None),
            other => other.map(Some),
        }
    }

    #[inline]
    pub(crate) fn newest<'a>(&self, listing: &'a Listing) -> Result<Option<&'a IndexFile>> {
        match listing.newest() {
            None => self.open_newest(listing),
            open => Ok(open),
        }
    }

    #[cold]
    fn open_newest<'a>(&self, listing: &'a Listing) -> Result<Option<&'a IndexFile>> {
        let Some(last) = listing.files.last() else { return Ok(None) };
        let open = self.open_if_there(last)?;
        Ok(open.map(|open| &**listing.newest.get_or_init(|| open)))
    }

    pub fn close_files(&self) {
        self.cache().clear();
        self.replace(self.listing().copy());
    }

    fn cache(&self) -> crate::locks::MutexGuard<'_, LruCache<u64, Arc<IndexFile>>> {
        self.open.lock()
    }

    fn forget(&self, file: &IndexRunFile) {
        self.cache().pop(&file.id);
    }

    pub(crate) fn sound_header(&self, file: &IndexRunFile) -> Option<IndexHeader> {
        let header = self.open(file).ok()?.header().ok()?;
        header_fault(&header, true).is_none().then_some(header)
    }

    /// Headers on both sides of the place before file `place`; `None` if one is unusable.
    pub(crate) fn between(&self, files: &[Arc<IndexRunFile>], place: usize) -> Option<Between> {
        let newer = self.sound_header(files.get(place)?)?;
        let older = match place.checked_sub(1) {
            Some(before) => Some(self.sound_header(files.get(before)?)?),
            None => None,
        };
        Some(Between { older, newer })
    }

    /// Physical offset of the last indexed message, `None` without files.
    pub fn last_keyed_offset(&self) -> Result<Option<i64>> {
        let listing = self.listing();
        let Some(last) = listing.files.last() else { return Ok(None) };
        Ok(Some(self.open(last)?.header()?.end_physical_offset))
    }

    /// That offset, with [`IndexRun::keys_put`].
    pub fn last_keys_put(&self) -> Result<Option<(i64, usize)>> {
        let last = self.last_keyed_offset()?;
        last.map(|at| self.keys_put(at).map(|keys| (at, keys))).transpose()
    }

    /// How many of the newest entries are for the record at `physical_offset`; they may lie in more
    /// than one file.
    pub fn keys_put(&self, physical_offset: i64) -> Result<usize> {
        self.keys_put_below(&self.files(), None, physical_offset)
    }

    /// [`IndexRun::keys_put`] before entry `count` of the newest file.
    pub(crate) fn keys_put_below(
        &self,
        files: &[Arc<IndexRunFile>],
        mut count: Option<u32>,
        physical_offset: i64,
    ) -> Result<usize> {
        let mut keys = 0;
        for file in files.iter().rev() {
            let open = self.open(file)?;
            let count = count.take().map_or_else(|| open.head().map(|head| head.count), Ok)?;
            let mut number = count.saturating_sub(1);
            while number > 0
                && keys < MOST_KEYS
                && open.physical_offset_of(number)? == physical_offset
            {
                number -= 1;
                keys += 1;
            }
            if number > 0 {
                break;
            }
        }
        Ok(keys)
    }

    /// Creates the next file with `create`, under a new name: local time, or later if the clock is
    /// behind the newest file.
    pub(crate) fn create<T>(
        &self,
        now_ms: i64,
        create: impl Fn(&Path) -> Result<T>,
    ) -> Result<(T, Arc<IndexRunFile>)> {
        make_folder(&*self.storage, &self.dir)?;
        let listing = self.listing();
        let newest = [&listing.files, &listing.unusable]
            .iter()
            .filter_map(|files| files.last())
            .map(|file| file.name)
            .max();
        // Each millisecond for a while, then longer steps for a clock set back by hours.
        let steps = (0..1000).chain((10..48).map(|power| 1_i64 << power));
        let by_clock =
            steps.map(|step| index_name(&CalendarTime::local(now_ms.saturating_add(step))));
        // A name far in the future, left by a wrong clock.
        let behind = newest.into_iter().flat_map(|newest| (0..1000).map(move |more| newest + more));
        for name in by_clock.chain(behind.map(next_index_name)) {
            let number = parse_index_name(&name);
            if number.is_none() || number <= newest {
                continue;
            }
            let path = self.dir.join(&name);
            match create(&path) {
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(made) => {
                    let file = self.new_file(number.unwrap_or_default(), path, 0);
                    let mut listing = listing.copy();
                    listing.files.push(Arc::clone(&file));
                    self.replace(listing);
                    return Ok((made, file));
                }
            }
        }
        let newest = newest.unwrap_or_default();
        let path = self.dir.join(format!("{newest:017}"));
        Err(Error::Corrupt(Box::new(without_successor(&path, newest))))
    }

    /// Removes the files named by `drop`, usable or not. Newest first, a crash leaves a whole
    /// beginning; oldest first, a whole end.
    pub(crate) fn remove(
        &self,
        newest_first: bool,
        drop: impl Fn(&IndexRunFile) -> bool,
    ) -> Result<Vec<PathBuf>> {
        let listing = self.listing();
        let mut doomed: Vec<_> =
            listing.files.iter().chain(&listing.unusable).filter(|file| drop(file)).collect();
        doomed.sort_by_key(|file| file.name);
        if newest_first {
            doomed.reverse();
        }
        let mut removed = Vec::new();
        for file in doomed {
            self.storage.remove_if_there(&file.path)?;
            self.forget(file);
            let mut left = self.listing().copy();
            left.files.retain(|other| other.id != file.id);
            left.unusable.retain(|other| other.id != file.id);
            self.replace(left);
            removed.push(file.path.clone());
        }
        if !removed.is_empty() {
            self.storage.sync_dir(&self.dir).map_err(Error::flush(&self.dir))?;
        }
        Ok(removed)
    }
}

fn without_successor(path: &Path, name: u64) -> Corruption {
    let expected = "a name that leaves room for a later one";
    Corruption::new(path, 0, CorruptionKind::FileName, expected, format!("{name:017}"))
}

fn stray(path: &Path, kind: FileKind) -> Corruption {
    let found = match kind {
        FileKind::File => path.file_name().unwrap_or_default().to_string_lossy(),
        FileKind::Directory => "a folder".into(),
        FileKind::Other => "no regular file".into(),
    };
    let expected = "a file whose name is 17 digits";
    Corruption::new(path, 0, CorruptionKind::FileName, expected, found)
}
