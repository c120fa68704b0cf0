//! Every call to the operating system goes through this trait, so that tests can let the n-th one
//! fail or let pages reach the disk in any order.
//!
//! The calls are dispatched dynamically: each is a system call of a microsecond or more, while bytes
//! of a mapped file are reached through a plain pointer, without a call.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading only; the access time is left alone where the system allows.
    Read,
    /// For reading and writing; it must exist.
    ReadWrite,
}

/// What a directory entry is, symbolic links not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, device, socket or pipe: never opened.
    Other,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name alone.
    pub name: OsString,
    /// What it names.
    pub kind: FileKind,
    /// Length in bytes, of a regular file.
    pub len: u64,
    /// The file's identity on its file system; 0 where that is not known.
    pub inode: u64,
}

/// What the system knows of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Length in bytes.
    pub len: u64,
    /// The file's identity on its file system.
    pub inode: u64,
    /// How many names it has.
    pub links: u64,
    /// When it was last written, Unix milliseconds.
    pub modified_ms: i64,
}

/// What tells whether a file was changed since it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The file's identity on its file system.
    pub inode: u64,
    /// Length in bytes.
    pub len: u64,
    /// When bytes or metadata were last changed, Unix nanoseconds; nobody can set it back.
    pub changed_ns: i64,
}

/// What tells one file or folder from all others that exist now, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file system's number.
    pub device: u64,
    /// The number on the file system.
    pub inode: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {} of device {}", self.inode, self.device)
    }
}

/// The largest page that the system keeps of a file, in bytes, where the least is 4 KiB. A page has its
/// disk space as a whole or cannot be written through a map, and the system alone decides how large
/// each is.
pub const LARGEST_PAGE: usize = 2 << 20;

/// The operating system's files, as far as the store needs them.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Opens a regular file; links, pipes and devices are refused without blocking.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>>;
    /// Makes a file of `len` zero bytes, sparse; it must not exist. Nothing is left behind where the
    /// file cannot be made at that length.
    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn StorageFile>>;
    /// The names in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Makes a directory and those above it.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes everything durable that lies on the file system of a directory, names and bytes.
    fn sync_all(&self, dir: &Path) -> io::Result<()>;
    /// Renames within one file system, replacing what is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Lets two names change places in one step: no other process ever finds one of them missing.
    fn exchange(&self, _one: &Path, _other: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes a file's name.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// What a path is, links not followed; `None` where there is nothing.
    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>>;
    /// When the file at a path was last changed, links not followed; `None` where that is not known.
    fn stamp(&self, _path: &Path) -> io::Result<Option<Stamp>> {
        Ok(None)
    }
    /// Whether writing to the file at a path through a map moves the time that [`Storage::stamp`]
    /// tells; on tmpfs it does not. The file's bytes stay as they are.
    fn stamps_mapped_writes(&self, _path: &Path) -> crate::error::Result<bool> {
        Ok(true)
    }
    /// What lies at a path; `None` where identities are not known.
    fn identity(&self, _path: &Path) -> io::Result<Option<Identity>> {
        Ok(None)
    }
    /// Fails where the folders that this storage is for were moved or replaced since it was made; see
    /// [`Anchored`](crate::files::Anchored).
    fn check_place(&self) -> io::Result<()> {
        Ok(())
    }
    /// Leaves a file or folder to its owner alone.
    fn make_private(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    /// How many bytes of the disk that holds a path, or will hold it, are free for this process.
    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// How many percent of the disk that holds a directory, or will hold it, are used.
    fn used_percent(&self, _dir: &Path) -> io::Result<u64> {
        Ok(0)
    }
}

/// An open file.
pub trait StorageFile: Send + Sync + fmt::Debug {
    /// Length, identity and times, of the open file and not of its name.
    fn stat(&self) -> io::Result<FileStat>;
    /// Length in bytes alone, where that is to be had faster.
    fn length(&self) -> io::Result<u64> {
        self.stat().map(|stat| stat.len)
    }
    /// Reads at `position` until `buffer` is full or the file ends; how much was read.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `position`.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Makes the file `len` bytes long.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Takes disk space for a range without data. Once all of a [`LARGEST_PAGE`] has it, writing there
    /// through a map cannot fail.
    fn reserve(&self, position: u64, len: u64) -> io::Result<()>;
    /// The first position from `position` on that may hold anything but zeros; `None` when none
    /// does.
    fn next_data(&self, position: u64) -> io::Result<Option<u64>>;
    /// Has the system begin to write a range to the disk, so that a flush has less to wait for.
    fn start_writing(&self, _position: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Makes data and length durable.
    fn sync(&self) -> io::Result<()>;
    /// Makes durable what was written to a range through `region`, a map of the file. Where the system
    /// can, nothing else is written: pages made ready behind the range then stay ready.
    fn sync_range(&self, _region: &dyn Region, _position: usize, _len: usize) -> io::Result<()> {
        self.sync()
    }
    /// Fails where the file system has given up on changes. One whose journal broke in the midst of a
    /// flush may have called that flush good, although the place of what was flushed is lost.
    fn confirm(&self) -> io::Result<()> {
        Ok(())
    }
    /// Maps the first `len` bytes for reading and writing, or for reading alone.
    fn map(&self, len: usize, access: Access) -> io::Result<Arc<dyn Region>>;
    /// Takes the exclusive record lock on byte 0 that RocketMQ takes; `false` when another open
    /// file holds it. Released by [`StorageFile::unlock`] or when the last copy of the open file is
    /// closed.
    fn try_lock(&self) -> io::Result<bool>;
    /// Takes an exclusive lock on another byte, which RocketMQ does not look at.
    fn try_lock_beside(&self, _byte: u64) -> io::Result<bool> {
        Ok(true)
    }
    /// Gives back the lock on a byte, whatever other processes have a copy of the open file.
    fn unlock(&self, _byte: u64) -> io::Result<()> {
        Ok(())
    }
    /// Whether another open file holds the lock of [`StorageFile::try_lock_beside`]; takes none.
    fn is_locked_beside(&self, _byte: u64) -> bool {
        false
    }
    /// Whether another open file holds a conflicting lock; takes none.
    fn is_locked(&self) -> bool;
    /// The process that holds a conflicting lock, where the system tells.
    fn lock_holder(&self) -> Option<i32>;
}

/// A mapped range of a file, which stays mapped for as long as this lives.
pub trait Region: Send + Sync + fmt::Debug {
    /// The first byte.
    fn pointer(&self) -> *mut u8;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Brings a reserved range into memory, ready to be written without a page fault. Advice only.
    fn prepare(&self, position: usize, len: usize);
    /// Makes a range durable, and nothing else.
    fn sync(&self, _position: usize, _len: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
