//! A file of fixed length, written through a map: the active end of the commit log, and index
//! files.
//!
//! The writer owns the map (`&mut self`), so no slice is ever shared. Disk space is taken before a
//! write, so a full disk is an error and no signal.
#![allow(unsafe_code, reason = "the one file of the crate that reaches into mapped memory")]

use std::io;
use std::path::{Path, PathBuf};
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::prefault::Prefaulter;
use crate::error::{Error, Result};
use crate::files::system::storage::{Access, LARGEST_PAGE, StorageFile};

const CACHE_LINE: usize = 64;

#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    ahead: Arc<Prefaulter>,
    /// Start and length of the region, kept here to avoid a virtual call.
    start: AtomicPtr<u8>,
    len: usize,
    writable: bool,
    /// Bytes from the start known to have disk space.
    reserved: usize,
    begun: usize,
    reserve_step: usize,
}

impl MappedFile {
    /// Maps all of `file`; disk space is taken in doubling steps of up to `reserve_step` bytes.
    pub fn map(
        path: &Path,
        file: Arc<dyn StorageFile>,
        access: Access,
        reserve_step: usize,
    ) -> Result<Self> {
        let len = file.stat().map_err(Error::io("stat", path))?.len;
        let len = usize::try_from(len)
            .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
            .map_err(Error::io("map", path))?;
        let region = file.map(len, access).map_err(Error::io("map", path))?;
        let writable = access == Access::ReadWrite;
        let (start, len) = (AtomicPtr::new(region.pointer()), region.len());
        let ahead = Arc::new(Prefaulter::new(path, Arc::clone(&file), region));
        let path = path.to_owned();
        Ok(Self { path, file, ahead, start, len, writable, reserved: 0, begun: 0, reserve_step })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    #[must_use]
    pub fn ahead(&self) -> &Arc<Prefaulter> {
        &self.ahead
    }

    #[allow(clippy::len_without_is_empty, reason = "a map is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The region's first byte. It never changes, so relaxed ordering suffices.
    #[inline]
    fn start(&self) -> *mut u8 {
        self.start.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Marks the bytes before `position` as having disk space.
    pub fn assume_reserved(&mut self, position: usize) {
        if self.writable {
            self.ahead.assume_reserved(position.min(self.len()));
            self.reserved = self.ahead.reserved();
            self.begun = self.reserved;
        }
    }

    /// Takes disk space up to `end`, in whole steps; on a full disk nothing changes.
    #[inline]
    pub fn reserve(&mut self, end: usize) -> Result<()> {
        if end <= self.reserved {
            return Ok(());
        }
        self.reserve_more(end)
    }

    #[cold]
    fn reserve_more(&mut self, end: usize) -> Result<()> {
        if !self.writable {
            return Err(Error::ReadOnly { path: self.path.clone() });
        }
        self.reserved = self.ahead.reserved();
        if end <= self.reserved {
            return Ok(());
        }
        let taken = self.reserved.saturating_sub(self.begun).max(LARGEST_PAGE);
        let reserved = self.ahead.reserve(end, self.reserve_step.min(taken));
        self.reserved = self.ahead.reserved();
        reserved.map_err(Error::io("reserve space in", &self.path))
    }

    /// Returns `position..position + len` for writing.
    ///
    /// # Panics
    /// When the range leaves the file, a bug of the caller.
    #[inline]
    pub fn window(&mut self, position: usize, len: usize) -> Result<&mut [u8]> {
        let end = position.checked_add(len).filter(|&end| end <= self.len());
        assert!(end.is_some(), "window {position}+{len} leaves a file of {} bytes", self.len());
        self.reserve(position + len)?;
        // SAFETY: the assertion keeps the range inside the region.
        let start = unsafe { self.start().add(position) };
        // SAFETY: the region lives as long as `self`; `&mut self` is the only way to a slice of it,
        // and a range is reserved only in a writable map, so writing raises no signal.
        Ok(unsafe { slice::from_raw_parts_mut(start, len) })
    }

    /// Copies `N` bytes at `position`; `None` outside the file.
    ///
    /// The copy goes through a raw pointer, because another process may be writing there.
    #[inline]
    #[must_use]
    pub fn get_at<const N: usize>(&self, position: usize) -> Option<[u8; N]> {
        position.checked_add(N).filter(|&end| end <= self.len())?;
        let mut bytes = [0; N];
        // SAFETY: the check above keeps the range inside the region.
        let start = unsafe { self.start().add(position) };
        // SAFETY: `N` bytes from `start` lie in the region, and `bytes` is ours and `N` long.
        unsafe { ptr::copy_nonoverlapping(start, bytes.as_mut_ptr(), N) };
        Some(bytes)
    }

    /// The first four bytes, which other processes may write; `None` in a shorter file.
    #[inline]
    #[must_use]
    pub fn word(&self) -> Option<&AtomicU32> {
        let start = self.start().cast::<AtomicU32>();
        if self.len() < 4 || !start.is_aligned() {
            return None;
        }
        // SAFETY: aligned, and in the region, which lives as long as `self`; an atomic may change.
        Some(unsafe { &*start })
    }

    /// Writes `bytes` at `position`.
    #[inline]
    pub fn put_at(&mut self, position: usize, bytes: &[u8]) -> Result<()> {
        self.window(position, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes `N` bytes at `position` with one bounds check.
    #[inline]
    pub fn put_array<const N: usize>(&mut self, position: usize, bytes: &[u8; N]) -> Result<()> {
        if position.saturating_add(N) > self.reserved {
            self.reserve_window(position, N)?;
        }
        // SAFETY: nothing past the region's end is ever reserved.
        let start = unsafe { self.start().add(position) };
        // SAFETY: `N` bytes from `start` lie in the region; `&mut self` is the only way to write
        // there, and a range is reserved only in a writable map, so writing raises no signal.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, N) };
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn reserve_window(&mut self, position: usize, len: usize) -> Result<()> {
        self.window(position, len).map(|_| ())
    }

    /// Prefetches the bytes at `position`.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn prefetch(&self, position: usize) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        if position < self.len() {
            // SAFETY: the position lies inside the region.
            let address = unsafe { self.start().add(position) };
            // SAFETY: a prefetch changes nothing, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) };
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn prefetch(&self, _: usize) {}

    /// Prefetches `len` bytes from `position` on.
    #[inline]
    pub fn prefetch_range(&self, position: usize, len: usize) {
        let end = position.saturating_add(len).min(self.len());
        let mut at = position;
        while at < end {
            self.prefetch(at);
            at += CACHE_LINE;
        }
    }

    /// Flushes all writes.
    ///
    /// # Errors
    /// [`Error::Io`]; writes since the last successful flush may be lost, and no later
    /// flush can tell.
    pub fn flush(&self) -> Result<()> {
        self.file.sync().map_err(Error::flush(&self.path))
    }
}

/// Starts writeback of a range; here because of `unsafe`.
#[cfg(target_os = "linux")]
pub(crate) fn start_writing(file: &std::fs::File, position: u64, len: u64) -> io::Result<()> {
    use nix::errno::Errno;
    use std::os::fd::AsRawFd;
    let (Ok(position), Ok(len)) = (i64::try_from(position), i64::try_from(len)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // Without a flag that waits, the flush reports the disk's errors.
    let flags = nix::libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: the call takes an open file and numbers, and reaches no memory of ours.
    let result = unsafe { nix::libc::sync_file_range(file.as_raw_fd(), position, len, flags) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ESPIPE) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Points a descriptor of other code at an empty device, which closes its file; here because of
/// `unsafe`.
pub(crate) fn close_copy(descriptor: std::os::fd::RawFd) {
    use std::os::fd::AsRawFd;
    // On failure the copy stays open, and the lock is released later.
    if let Ok(nothing) = std::fs::File::open("/dev/null") {
        // SAFETY: the call takes two numbers and reaches no memory of ours; the descriptor stays open
        // and its owner's.
        unsafe { nix::libc::dup2(nothing.as_raw_fd(), descriptor) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Os, Storage};

    fn mapped(len: u64) -> (tempfile::TempDir, MappedFile) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = Os.create(&path, len).unwrap();
        let mapped = MappedFile::map(&path, file, Access::ReadWrite, 4096).unwrap();
        (dir, mapped)
    }

    #[test]
    fn put_bytes_are_read_by_map_and_by_file() {
        let (_dir, mut mapped) = mapped(10_000);
        mapped.put_at(5_000, b"hello").unwrap();
        assert_eq!(&mapped.get_at::<5>(5_000).unwrap(), b"hello");
        let mut buffer = [0; 5];
        mapped.file().read_at(&mut buffer, 5_000).unwrap();
        assert_eq!(&buffer, b"hello");
        mapped.flush().unwrap();
    }

    #[test]
    fn space_is_reserved_in_steps_and_never_past_the_end() {
        let (_dir, mut mapped) = mapped(3 * LARGEST_PAGE as u64 + 5);
        mapped.window(0, 1).unwrap();
        assert_eq!(mapped.reserved(), LARGEST_PAGE);
        mapped.window(LARGEST_PAGE, 1).unwrap();
        assert_eq!(mapped.reserved(), 2 * LARGEST_PAGE);
        mapped.window(3 * LARGEST_PAGE, 5).unwrap();
        assert_eq!(mapped.reserved(), 3 * LARGEST_PAGE + 5);
    }

    #[test]
    fn reads_past_the_end_give_nothing() {
        let (_dir, mapped) = mapped(100);
        assert!(mapped.get_at::<4>(97).is_none());
        assert!(mapped.get_at::<4>(usize::MAX).is_none());
        mapped.prefetch(usize::MAX);
        mapped.prefetch_range(90, 1000);
        mapped.prefetch_range(usize::MAX - 10, 1000);
    }
}
