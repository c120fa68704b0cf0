//! Read-only storage over the objects below a URL. One listing gives names, lengths and times, and
//! never changes; reads go through a bounded cache of blocks. No lock is held while objects are
//! asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::iter;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lru::LruCache;

use crate::locks::Mutex;

use super::system::storage::{
    Access, DirEntry, FileKind, FileStat, Region, Stamp, Storage, StorageFile,
};
use crate::format::width::to_usize;

const BLOCK: u64 = 64 << 10;
const MOST_BLOCKS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Bytes of a probe for data behind zeros.
const LOOK: u64 = 4 << 10;
/// Length of the parts in which much is read, several at once.
const PART: u64 = 8 << 20;
/// Bytes read ahead at once; less than the cache holds.
const MOST_AHEAD: u64 = 2 * PART;
/// Folders above an object: a store has three, and each level of a listing takes memory.
const MOST_LEVELS: usize = 16;
/// Blocks between two that are fetched together with them: a request costs more.
const MOST_SKIPPED: u64 = 4;
/// Places of a file that are read on from.
const MOST_ENDS: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// An object as listed.
#[derive(Clone, Debug, Hash, PartialEq)]
pub struct Object {
    /// Name below the URL, with `/` between its parts.
    pub key: String,
    pub len: u64,
    pub etag: Option<String>,
    /// Unix milliseconds.
    pub modified_ms: i64,
}

/// The objects below one URL.
pub trait Objects: Send + Sync + fmt::Debug {
    fn list(&self) -> io::Result<Vec<Object>>;
    /// Reads ranges of an object, each whole. Fails if the object is not the listed one any more.
    fn ranges(&self, object: &Object, parts: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>>;
    /// As [`Storage::check_interrupt`].
    fn check_interrupt(&self) -> io::Result<()> {
        Ok(())
    }
}

type Blocks = Mutex<LruCache<(u64, u64), Arc<[u8]>>>;

/// Storage whose root is a URL, as it was listed once.
#[derive(Debug)]
pub struct Remote {
    objects: Arc<dyn Objects>,
    root: PathBuf,
    /// When the listing began.
    pub listed_at: Instant,
    listing: Listing,
    blocks: Arc<Blocks>,
}

#[derive(Debug, Default, PartialEq)]
struct Listing {
    folders: BTreeMap<PathBuf, BTreeMap<OsString, DirEntry>>,
    files: BTreeMap<PathBuf, (u64, Arc<Object>)>,
}

impl Listing {
    fn of(root: &Path, objects: Vec<Object>) -> Self {
        let mut listing = Self::default();
        listing.folders.entry(root.to_owned()).or_default();
        for object in objects {
            // A name that ends in `/` marks a folder.
            let (key, is_folder) = match object.key.strip_suffix('/') {
                Some(key) => (key, true),
                None => (object.key.as_str(), false),
            };
            // No path can lead to these.
            if key.split('/').count() > MOST_LEVELS
                || key.split('/').any(|name| ["", ".", ".."].contains(&name))
            {
                continue;
            }
            let mut path = root.to_owned();
            let mut names = key.split('/').peekable();
            while let Some(name) = names.next() {
                let is_last = names.peek().is_none();
                let folder = path.clone();
                path.push(name);
                if is_last && !is_folder {
                    let id = id_of(&object);
                    let entry = DirEntry {
                        name: name.into(),
                        kind: FileKind::File,
                        len: object.len,
                        inode: id,
                        changed_ns: Some(ns(object.modified_ms)),
                    };
                    let entries = listing.folders.entry(folder).or_default();
                    // An object may have the name of a folder, and mark it.
                    entries.entry(name.into()).or_insert(entry);
                    listing.files.insert(path.clone(), (id, Arc::new(object.clone())));
                } else {
                    let kind = FileKind::Directory;
                    let entry =
                        DirEntry { name: name.into(), kind, len: 0, inode: 0, changed_ns: None };
                    listing.folders.entry(folder).or_default().insert(name.into(), entry);
                    listing.folders.entry(path.clone()).or_default();
                }
            }
        }
        listing
    }
}

/// Changes with the object's content.
fn id_of(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish().max(1)
}

fn ns(ms: i64) -> i64 {
    ms.saturating_mul(1_000_000)
}

impl Remote {
    /// Lists the objects, whose paths are `root` and their keys.
    pub fn new(objects: Arc<dyn Objects>, root: PathBuf) -> io::Result<Self> {
        let listed_at = Instant::now();
        let listing = Listing::of(&root, objects.list()?);
        let blocks = Arc::new(Mutex::new(LruCache::new(MOST_BLOCKS)));
        Ok(Self { objects, root, listed_at, listing, blocks })
    }

    /// Lists the objects again; blocks of those that did not change stay in memory.
    pub fn listed_again(&self) -> io::Result<Self> {
        let again = Self::new(Arc::clone(&self.objects), self.root.clone())?;
        Ok(Self { blocks: Arc::clone(&self.blocks), ..again })
    }

    #[must_use]
    pub fn has_same_objects(&self, other: &Self) -> bool {
        self.listing == other.listing
    }
}

fn read_only<T>() -> io::Result<T> {
    let text = "a store behind a URL is read-only, and nothing was changed: copy it to a local \
                folder with `mqstore copy` or the tools of the object store, and work there";
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, text))
}

impl Storage for Remote {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        let listing = &self.listing;
        let found = listing.files.get(path).filter(|_| !listing.folders.contains_key(path));
        let Some((id, object)) = found else { return Err(io::ErrorKind::NotFound.into()) };
        if access == Access::ReadWrite {
            return read_only();
        }
        Ok(Arc::new(RemoteFile {
            objects: Arc::clone(&self.objects),
            id: *id,
            object: Arc::clone(object),
            blocks: Arc::clone(&self.blocks),
            ends: Mutex::new(LruCache::new(MOST_ENDS)),
            empty_from: AtomicU64::new(u64::MAX),
        }))
    }

    fn create(&self, _: &Path, _: u64) -> io::Result<Arc<dyn StorageFile>> {
        read_only()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        match self.listing.folders.get(dir) {
            Some(entries) => Ok(entries.values().cloned().collect()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn sync_all(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_file(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
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

    fn check_interrupt(&self) -> io::Result<()> {
        self.objects.check_interrupt()
    }
}

#[derive(Debug)]
struct RemoteFile {
    objects: Arc<dyn Objects>,
    id: u64,
    object: Arc<Object>,
    blocks: Arc<Blocks>,
    /// Ends of what was read, each with the bytes to read if reading goes on there.
    ends: Mutex<LruCache<u64, u64>>,
    /// Position from which on only zeros were found.
    empty_from: AtomicU64,
}

type Found = BTreeMap<u64, Arc<[u8]>>;

impl RemoteFile {
    /// The blocks of parts of the file, by number; those that no memory has are fetched at once.
    fn blocks_of(&self, parts: &[Range<u64>]) -> io::Result<Found> {
        let (mut found, mut missing) = (Found::new(), BTreeSet::new());
        {
            let mut cache = self.blocks.lock();
            for part in parts.iter().filter(|part| part.start < part.end) {
                for number in part.start / BLOCK..part.end.div_ceil(BLOCK) {
                    match cache.get(&(self.id, number)) {
                        Some(bytes) => drop(found.insert(number, Arc::clone(bytes))),
                        None => drop(missing.insert(number)),
                    }
                }
            }
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for number in missing {
            match runs.last_mut() {
                Some((_, last)) if number - *last <= MOST_SKIPPED => *last = number,
                _ => runs.push((number, number)),
            }
        }
        if !runs.is_empty() {
            self.fetch(&runs, &mut found)?;
        }
        Ok(found)
    }

    /// Fetches runs of blocks, each from its first to its last, and more where a reader goes on.
    fn fetch(&self, runs: &[(u64, u64)], found: &mut Found) -> io::Result<()> {
        let (mut parts, mut least_sum, mut reach) = (Vec::new(), 0, 0);
        for &(first, last) in runs {
            let until = (last + 1).saturating_mul(BLOCK);
            // The run before may have read ahead.
            let start = (first * BLOCK).max(reach);
            if until <= start {
                continue;
            }
            let least = until - start;
            let mut ends = self.ends.lock();
            let ahead = ends.pop(&start).unwrap_or(0);
            let end = start.saturating_add(least.max(ahead)).min(self.object.len);
            let next = if ahead == 0 { least } else { least.max(ahead).saturating_mul(4) };
            ends.put(end, next.min(MOST_AHEAD));
            (least_sum, reach) = (least_sum + least, end);
            let begins = (start..end).step_by(to_usize(PART));
            parts.extend(begins.map(|at| at..at.saturating_add(PART).min(end)));
        }
        let read = self.objects.ranges(&self.object, &parts)?;
        if !read.iter().map(|bytes| bytes.len() as u64).eq(parts.iter().map(|p| p.end - p.start)) {
            return Err(io::Error::other("expected the bytes asked for, found fewer or more"));
        }
        for (part, bytes) in parts.iter().zip(&read) {
            let pieces = bytes.chunks(to_usize(BLOCK)).map(Arc::from);
            found.extend((part.start / BLOCK..).zip(pieces));
        }
        // Much at once would push out what is read again.
        if least_sum <= MOST_AHEAD {
            let mut cache = self.blocks.lock();
            for (number, bytes) in found.iter() {
                cache.put((self.id, *number), Arc::clone(bytes));
            }
        }
        Ok(())
    }

    fn part(&self, position: u64, len: usize) -> Range<u64> {
        let end = position.saturating_add(len as u64).min(self.object.len);
        position.min(end)..end
    }
}

/// Copies the bytes from `position` on; `buffer` ends before the blocks do.
fn copy(blocks: &Found, position: u64, buffer: &mut [u8]) {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = position + filled as u64;
        let block = blocks.get(&(at / BLOCK)).map(|bytes| &**bytes).unwrap_or_default();
        let Some(bytes) = block.get(to_usize(at % BLOCK)..).filter(|b| !b.is_empty()) else {
            break;
        };
        let to = buffer.get_mut(filled..).unwrap_or_default();
        let count = bytes.len().min(to.len());
        to[..count].copy_from_slice(&bytes[..count]);
        filled += count;
    }
}

impl StorageFile for RemoteFile {
    fn stat(&self) -> io::Result<FileStat> {
        let Object { len, modified_ms, .. } = *self.object;
        Ok(FileStat { len, inode: self.id, links: 1, modified_ms })
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let part = self.part(position, buffer.len());
        let len = to_usize(part.end - part.start);
        copy(&self.blocks_of(&[part])?, position, buffer.get_mut(..len).unwrap_or_default());
        Ok(len)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn read_many(&self, places: &[(u64, usize)]) -> io::Result<Vec<Vec<u8>>> {
        let parts: Vec<_> = places.iter().map(|&(at, len)| self.part(at, len)).collect();
        let blocks = self.blocks_of(&parts)?;
        let read = parts.into_iter().map(|part| {
            let mut bytes = vec![0; to_usize(part.end - part.start)];
            copy(&blocks, part.start, &mut bytes);
            bytes
        });
        Ok(read.collect())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        read_only()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        read_only()
    }

    fn reserve(&self, _: u64, _: u64) -> io::Result<()> {
        read_only()
    }

    /// Zeros at the end are not read: looks ever further apart decide. Data between two looks, behind
    /// a whole block of zeros, may be overlooked.
    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        let len = self.object.len;
        if position >= len.min(self.empty_from.load(Ordering::Relaxed)) {
            return Ok(None);
        }
        let end = (position / BLOCK + 1).saturating_mul(BLOCK).min(len);
        let mut bytes = vec![0; to_usize(end - position)];
        let read = self.read_at(&mut bytes, position)?;
        if let Some(at) = bytes[..read].iter().position(|byte| *byte != 0) {
            return Ok(Some(position + at as u64));
        }
        if end == len || end - position < LOOK {
            return Ok((end < len).then_some(end));
        }
        let distances = iter::successors(Some(4 * BLOCK), |distance| distance.checked_mul(8));
        let looks = distances.map(|distance| position.saturating_add(distance));
        let last = end.max(len.saturating_sub(LOOK));
        let looks = looks.take_while(|look| *look < last && len > PART).chain([last]);
        let looks: Vec<_> = looks.map(|look| look..look.saturating_add(LOOK).min(len)).collect();
        let seen = self.objects.ranges(&self.object, &looks)?;
        if seen.iter().flatten().any(|byte| *byte != 0) {
            return Ok(Some(end));
        }
        self.empty_from.fetch_min(position, Ordering::Relaxed);
        Ok(None)
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }

    fn map(&self, _: usize, _: Access) -> io::Result<Arc<dyn Region>> {
        read_only()
    }

    fn try_lock(&self, _: Range<u64>) -> io::Result<bool> {
        read_only()
    }

    fn locked(&self, _: Range<u64>) -> Option<Range<u64>> {
        None
    }

    fn lock_holder(&self) -> Option<i32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects in memory, which note each range that is read.
    #[derive(Debug, Default)]
    struct Memory {
        objects: Mutex<Vec<(Object, Vec<u8>)>>,
        read: Mutex<Vec<Range<u64>>>,
    }

    impl Memory {
        fn put(&self, key: &str, bytes: Vec<u8>, etag: &str) {
            let (key, len, etag) = (key.to_owned(), bytes.len() as u64, Some(etag.to_owned()));
            let object = Object { key, len, etag, modified_ms: 7 };
            let mut objects = self.objects.lock();
            objects.retain(|(known, _)| known.key != object.key);
            objects.push((object, bytes));
        }
    }

    impl Objects for Memory {
        fn list(&self) -> io::Result<Vec<Object>> {
            Ok(self.objects.lock().iter().map(|(object, _)| object.clone()).collect())
        }

        fn ranges(&self, object: &Object, parts: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
            let objects = self.objects.lock();
            let there = |(known, _): &&(Object, Vec<u8>)| {
                known.key == object.key && known.etag == object.etag
            };
            let Some((_, bytes)) = objects.iter().find(there) else {
                return Err(io::Error::other("changed"));
            };
            self.read.lock().extend(parts.iter().cloned());
            Ok(parts.iter().map(|p| bytes[p.start as usize..p.end as usize].to_vec()).collect())
        }
    }

    fn remote(memory: &Arc<Memory>) -> Remote {
        Remote::new(Arc::clone(memory) as Arc<dyn Objects>, "s3://b/p".into()).unwrap()
    }

    #[test]
    fn keys_become_folders_and_files() {
        let memory = Arc::new(Memory::default());
        for key in ["a/b/c", "a/", "d/", "e", "e/f", "x//y", "../z", "a/b/%R G"] {
            memory.put(key, vec![1; key.len()], "1");
        }
        let remote = remote(&memory);
        let names = |dir: &str| {
            let entries = remote.list(Path::new(dir)).unwrap();
            entries.into_iter().map(|e| (e.name.into_string().unwrap(), e.kind)).collect::<Vec<_>>()
        };
        let (file, folder) = (FileKind::File, FileKind::Directory);
        let expected = ["a", "d", "e"].map(|name| (name.to_owned(), folder));
        assert_eq!(names("s3://b/p"), expected);
        assert_eq!(names("s3://b/p/a/b"), [("%R G".to_owned(), file), ("c".to_owned(), file)]);
        assert_eq!(names("s3://b/p/d"), []);
        let missing = remote.list(Path::new("s3://b/p/q")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        // A folder of that name counts.
        assert!(remote.open(Path::new("s3://b/p/e"), Access::Read).is_err());
        let written = remote.open(Path::new("s3://b/p/a/b/c"), Access::ReadWrite).unwrap_err();
        assert_eq!(written.kind(), io::ErrorKind::ReadOnlyFilesystem);
    }

    #[test]
    fn every_read_is_the_bytes_there_and_reading_on_reads_ahead() {
        let memory = Arc::new(Memory::default());
        let len = 40 * PART / 10 + 77;
        let bytes: Vec<u8> = (0..len).map(|at| ((at * 31) >> 7) as u8).collect();
        memory.put("f", bytes.clone(), "1");
        let remote = remote(&memory);
        let file = remote.open(Path::new("s3://b/p/f"), Access::Read).unwrap();
        assert!(memory.read.lock().is_empty());
        let mut seed = 7_u64;
        for _ in 0..300 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let position = (seed >> 20) % (len + 1000);
            let mut buffer = vec![0; (seed >> 50) as usize * 20];
            let read = file.read_at(&mut buffer, position).unwrap();
            let expected = bytes.get(position as usize..).unwrap_or_default();
            assert_eq!(read, expected.len().min(buffer.len()), "{position}");
            assert!(buffer[..read] == expected[..read], "{position}");
        }
        memory.read.lock().clear();
        let file = remote.open(Path::new("s3://b/p/f"), Access::Read).unwrap();
        remote.blocks.lock().clear();
        let mut buffer = vec![0; 100_000];
        for position in (0..len).step_by(buffer.len()) {
            let read = file.read_at(&mut buffer, position).unwrap();
            assert!(buffer[..read] == bytes[position as usize..][..read], "{position}");
        }
        let read = memory.read.lock();
        // Each byte once, in few parts.
        assert_eq!(read.iter().map(|part| part.end - part.start).sum::<u64>(), len);
        assert!(read.len() < 10, "{read:?}");
    }

    #[test]
    fn places_are_asked_for_at_once_and_each_block_once() {
        let memory = Arc::new(Memory::default());
        let len = 3 * PART + 5;
        let bytes: Vec<u8> = (0..len).map(|at| ((at * 31) >> 7) as u8).collect();
        memory.put("f", bytes.clone(), "1");
        let file = remote(&memory).open(Path::new("s3://b/p/f"), Access::Read).unwrap();
        let places =
            [(2 * PART, 9), (3, BLOCK as usize), (len - 2, 7), (2 * PART + 4, 1), (len, 1)];
        let read = file.read_many(&places).unwrap();
        for ((at, wanted), found) in places.iter().zip(&read) {
            let expected = bytes.iter().skip(*at as usize).take(*wanted);
            assert!(found.iter().eq(expected), "{at}");
        }
        let asked = std::mem::take(&mut *memory.read.lock());
        assert_eq!(asked.len(), 3, "{asked:?}");
        assert_eq!(file.read_many(&places).unwrap(), read);
        assert!(memory.read.lock().is_empty());
    }

    #[test]
    fn zeros_at_the_end_are_not_read() {
        let memory = Arc::new(Memory::default());
        let mut bytes = vec![0; 5 * PART as usize];
        bytes[..100].fill(1);
        memory.put("f", bytes.clone(), "1");
        bytes[3 * PART as usize..].fill(2);
        memory.put("g", bytes, "1");
        let remote = remote(&memory);
        let open = |name: &str| remote.open(&Path::new("s3://b/p").join(name), Access::Read);
        let (f, g) = (open("f").unwrap(), open("g").unwrap());
        assert_eq!(f.next_data(7).unwrap(), Some(7));
        assert_eq!(f.next_data(100).unwrap(), None);
        let read: u64 = memory.read.lock().iter().map(|part| part.end - part.start).sum();
        assert!(read < 2 * BLOCK, "{read}");
        let asked = memory.read.lock().len();
        assert_eq!(f.next_data(PART).unwrap(), None);
        assert_eq!(memory.read.lock().len(), asked);
        assert_eq!(g.next_data(100).unwrap(), Some(BLOCK));
        assert_eq!(g.next_data(3 * PART - 1).unwrap(), Some(3 * PART));
        assert_eq!(g.next_data(5 * PART).unwrap(), None);
    }

    #[test]
    fn a_changed_object_is_another_file_once_listed_again() {
        let memory = Arc::new(Memory::default());
        memory.put("f", vec![1; 3 * BLOCK as usize], "1");
        let remote = remote(&memory);
        let path = Path::new("s3://b/p/f");
        let (before, stamp) = (remote.open(path, Access::Read).unwrap(), remote.stamp(path));
        let mut byte = [0];
        before.read_at(&mut byte, 0).unwrap();
        memory.put("f", vec![2; 3 * BLOCK as usize], "2");
        assert!(before.read_at(&mut byte, 2 * BLOCK).is_err());
        assert_eq!(remote.stamp(path).unwrap(), stamp.unwrap());
        let remote = remote.listed_again().unwrap();
        let after = remote.open(path, Access::Read).unwrap();
        after.read_at(&mut byte, 0).unwrap();
        assert_eq!(byte, [2]);
        assert_ne!(after.stat().unwrap().inode, before.stat().unwrap().inode);
    }
}
