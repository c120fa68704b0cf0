//! All operations on a store's files go through this trait, so tests can fail the n-th call or
//! reorder pages on their way to disk.

use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading; the access time stays unchanged where possible.
    Read,
    ReadWrite,
}

/// Kind of a directory entry, links not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    /// Link, device, socket or pipe: never opened.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub name: OsString,
    pub kind: FileKind,
    pub len: u64,
    /// Identity on its file system; 0 if unknown.
    pub inode: u64,
    /// As in [`Stamp`], of a regular file; `None` if unknown.
    pub changed_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    pub len: u64,
    pub inode: u64,
    /// Number of names.
    pub links: u64,
    /// Last write, Unix milliseconds.
    pub modified_ms: i64,
}

/// Detects whether a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub inode: u64,
    pub len: u64,
    /// Last change of bytes or metadata, Unix nanoseconds; cannot be set back.
    pub changed_ns: i64,
}

/// Identifies a file or folder independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// File system.
    pub device: u64,
    pub inode: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {} of device {}", self.inode, self.device)
    }
}

/// A folder in which new files would not get its owner and group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected new files of uid {} and gid {}, as the folder, found that the system makes them uid \
     {}'s and gid {}'s and lets this process give none away",
    .expected.0, .expected.1, .found.0, .found.1
)]
pub struct Foreign {
    pub folder: PathBuf,
    /// Uid and gid of the folder.
    pub expected: (u32, u32),
    /// Uid and gid of a new file.
    pub found: (u32, u32),
    /// Whether the folder's owner and group could read and write it as the folder's mode says.
    pub is_usable: bool,
}

/// Largest page of the page cache in bytes; the smallest is 4 KiB. The system alone chooses a
/// page's size, and a page needs disk space for all of it before a write through a map.
pub const LARGEST_PAGE: usize = 2 << 20;

/// File operations of the operating system; changes are refused by default.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Opens a regular file; refuses links, pipes and devices without blocking.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>>;
    /// Creates a sparse file of `len` zero bytes; it must not exist. A failure leaves nothing
    /// behind. Owner, group and mode are those of its folder.
    fn create(&self, _path: &Path, _len: u64) -> io::Result<Arc<dyn StorageFile>> {
        read_only(self.is_remote())
    }
    /// Creates an empty file that is to replace another file of its folder, if that exists: owner,
    /// group and mode are those of that file.
    fn create_to_replace(&self, path: &Path, _of: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.create(path, 0)
    }
    /// Lists a directory in no particular order.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Creates a directory and its parents; each has owner, group and mode of the one above.
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        read_only(self.is_remote())
    }
    /// Creates a directory that is not part of a store yet, and its parents: as the folder `like`,
    /// or as this process's own.
    fn create_outside(&self, dir: &Path, _like: Option<&Path>) -> io::Result<()> {
        self.create_dir(dir)
    }
    /// Whether files made in a folder would not get its owner and group. Nothing stays changed.
    fn foreign(&self, _dir: &Path) -> io::Result<Option<Foreign>> {
        Ok(None)
    }
    /// Makes the names in a directory durable.
    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        read_only(self.is_remote())
    }
    /// Flushes the file system of a directory, names and bytes.
    fn sync_all(&self, _dir: &Path) -> io::Result<()> {
        read_only(self.is_remote())
    }
    /// Renames within a file system, replacing the target.
    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        read_only(self.is_remote())
    }
    /// Exchanges two names atomically: neither is ever missing.
    fn exchange(&self, _one: &Path, _other: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes a file.
    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        read_only(self.is_remote())
    }
    /// Removes an empty directory.
    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        read_only(self.is_remote())
    }
    /// Says that ranges of files will be read from front to back, until the result is dropped. Where
    /// a read costs a request, they are then read in large parts, ahead of their readers.
    fn announce(&self, _ranges: &[(PathBuf, Range<u64>)]) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
    /// Kind of a path, links not followed; `None` if it does not exist.
    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>>;
    /// Whether this user owns it.
    fn is_own(&self, _path: &Path) -> bool {
        false
    }
    /// Whether this user may write there.
    fn may_write(&self, _path: &Path) -> bool {
        true
    }
    /// Whether a link leads to a folder of the owner of the folder that it lies in; why not otherwise.
    fn follow(&self, _link: &Path) -> Result<(), String> {
        Err("a link, pipe or device".to_owned())
    }
    /// Last change of the file at a path; `None` if unknown.
    fn stamp(&self, _path: &Path) -> io::Result<Option<Stamp>> {
        Ok(None)
    }
    /// Whether a write through a map changes the time of [`Storage::stamp`]; on tmpfs it does not.
    /// The file's bytes stay unchanged.
    fn stamps_mapped_writes(&self, _path: &Path) -> Result<bool> {
        Ok(true)
    }
    /// Identity of a path; `None` if unknown.
    fn identity(&self, _path: &Path) -> io::Result<Option<Identity>> {
        Ok(None)
    }
    /// Fails if the storage's folders were moved or replaced; see
    /// [`PinnedStorage`](crate::files::PinnedStorage).
    fn check_place(&self) -> io::Result<()> {
        Ok(())
    }
    /// Whether a read costs a request over a network.
    fn is_remote(&self) -> bool {
        false
    }
    /// Fails after an interrupt of the process. A caller that waits for its threads asks it.
    fn check_interrupt(&self) -> io::Result<()> {
        Ok(())
    }
    /// Restricts a file or folder to its owner.
    fn make_private(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    /// Free bytes on the disk of a path.
    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// Names that can still be made on the disk of a path; `u64::MAX` where nothing limits them.
    fn free_inodes(&self, _path: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// Usage of a path's disk in percent.
    fn used_percent(&self, _dir: &Path) -> io::Result<u64> {
        Ok(0)
    }
}

pub trait StorageFile: Send + Sync + fmt::Debug {
    /// Length, identity and times of the open file.
    fn stat(&self) -> io::Result<FileStat>;
    /// Length alone, which may be faster.
    fn length(&self) -> io::Result<u64> {
        self.stat().map(|stat| stat.len)
    }
    /// Reads at `position` until `buffer` is full or the file ends; returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// As [`Storage::is_remote`].
    fn is_remote(&self) -> bool {
        false
    }
    /// Reads `len` bytes or more at `position`, fewer at the end, as the storage's memory has them;
    /// `None` where only [`StorageFile::read_at`] does. Drop them where no lock is held.
    fn shared_at(&self, _position: u64, _len: usize) -> io::Result<Option<Bytes>> {
        Ok(None)
    }
    /// Reads places of a position and a length, each as [`StorageFile::read_at`]. Where a read
    /// costs a request all are asked for at once.
    fn read_many(&self, places: &[(u64, usize)]) -> io::Result<Vec<Vec<u8>>> {
        places.iter().map(|&(position, len)| self.read_most(position, len)).collect()
    }
    fn read_most(&self, position: u64, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; most];
        let read = self.read_at(&mut bytes, position)?;
        bytes.truncate(read);
        Ok(bytes)
    }
    fn write_at(&self, _bytes: &[u8], _position: u64) -> io::Result<()> {
        read_only(self.is_remote())
    }
    /// Sets the length.
    fn set_len(&self, _len: u64) -> io::Result<()> {
        read_only(self.is_remote())
    }
    /// Takes disk space for a range without data. Once all of a [`LARGEST_PAGE`] has it, a write
    /// through a map cannot fail.
    fn reserve(&self, _position: u64, _len: u64) -> io::Result<()> {
        read_only(self.is_remote())
    }
    /// Gives back the disk space of a range of zeros; does nothing where the system cannot.
    fn release(&self, _position: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// First position from `position` on that may hold non-zero bytes; `None` if none does.
    fn next_data(&self, position: u64) -> io::Result<Option<u64>>;
    /// Starts writeback of a range, which shortens a later flush.
    fn start_writing(&self, _position: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Flushes data and length.
    fn sync(&self) -> io::Result<()> {
        read_only(self.is_remote())
    }
    /// Flushes a range written through `region`. Where possible nothing else is written, so pages
    /// prepared behind it stay ready.
    fn sync_range(&self, _region: &dyn Region, _position: usize, _len: usize) -> io::Result<()> {
        self.sync()
    }
    /// Fails if the file system is read-only by an error: a broken journal may have reported a
    /// flush as success although metadata is lost.
    fn confirm(&self) -> io::Result<()> {
        Ok(())
    }
    /// Maps the first `len` bytes.
    fn map(&self, _len: usize, _access: Access) -> io::Result<Arc<dyn Region>> {
        read_only(self.is_remote())
    }
    /// Takes an exclusive record lock on these bytes; `false` if another open file holds one of
    /// them. Released by [`StorageFile::unlock`] or by closing the last copy of the open file.
    fn try_lock(&self, _bytes: Range<u64>) -> io::Result<bool> {
        read_only(self.is_remote())
    }
    /// Releases the lock, even if other processes have copies of the open file.
    fn unlock(&self, _bytes: Range<u64>) -> io::Result<()> {
        Ok(())
    }
    /// Whole range of another open file's lock that has any of these bytes.
    fn locked(&self, bytes: Range<u64>) -> Option<Range<u64>>;
    /// Process that holds a lock on the first byte.
    fn lock_holder(&self) -> Option<i32>;
}

/// Methods of a wrapper, behind a check if one is named.
macro_rules! forward {
    (to $field:ident: $(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($arg: $type),*) -> $answer {
            self.$field.$name($($arg),*)
        }
    )*};
    ($check:ident, to $field:ident: $(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($arg: $type),*) -> $answer {
            self.$check()?;
            self.$field.$name($($arg),*)
        }
    )*};
}
pub(super) use forward;

/// Calls whose error names the path, and for which a missing file is an answer.
impl dyn Storage + '_ {
    /// Opens a file that may be missing.
    pub fn open_if_there(
        &self,
        path: &Path,
        access: Access,
    ) -> Result<Option<Arc<dyn StorageFile>>> {
        if_there(self.open(path, access)).map_err(Error::io("open", path))
    }

    /// Lists a folder that may be missing.
    pub fn list_if_there(&self, dir: &Path) -> Result<Option<Vec<DirEntry>>> {
        if_there(self.list(dir)).map_err(Error::io("list", dir))
    }

    /// Folders in one that may be missing.
    pub fn folders_in(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let entries = self.list_if_there(dir)?.unwrap_or_default().into_iter();
        let folders = entries.filter(|entry| entry.kind == FileKind::Directory);
        let mut folders: Vec<_> = folders.map(|entry| dir.join(entry.name)).collect();
        folders.sort();
        Ok(folders)
    }

    /// Removes a file that may be missing.
    pub fn remove_if_there(&self, path: &Path) -> Result<()> {
        if_there(self.remove_file(path)).map(drop).map_err(Error::io("remove", path))
    }

    /// Kind of a path that may be missing.
    pub fn kind_of(&self, path: &Path) -> Result<Option<FileKind>> {
        self.kind(path).map_err(Error::io("stat", path))
    }
}

/// `None` for a file or folder that is missing.
pub fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// [`if_there`], also below a file.
pub fn if_reached<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(None),
        other => if_there(other),
    }
}

pub fn read_only<T>(is_remote: bool) -> io::Result<T> {
    if !is_remote {
        return Err(io::ErrorKind::ReadOnlyFilesystem.into());
    }
    let text = "a store behind a URL is read-only, and nothing was changed: copy it to a local \
                folder with `mqstore copy` or the tools of the object store, and work there";
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, text))
}

/// A mapped range, unmapped on drop.
pub trait Region: Send + Sync + fmt::Debug {
    fn pointer(&self) -> *mut u8;
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Loads a reserved range for writing without page faults. Advice only.
    fn prepare(&self, position: usize, len: usize);
    /// Flushes a range, and nothing else.
    fn sync(&self, _position: usize, _len: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
