//! The real operating system behind [`Storage`].

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use memmap2::MmapRaw;
use nix::errno::Errno;
// On Linux an open-file-description lock: other closes in the process do not release it, and two
// handles of one process conflict. Elsewhere a plain record lock.
#[cfg(not(target_os = "linux"))]
use nix::fcntl::FcntlArg::{F_GETLK as GetLock, F_SETLK as SetLock};
#[cfg(target_os = "linux")]
use nix::fcntl::FcntlArg::{F_OFD_GETLK as GetLock, F_OFD_SETLK as SetLock};
use nix::fcntl::fcntl;
#[cfg(target_os = "linux")]
use nix::fcntl::{FallocateFlags, fallocate};

use super::locks::HeldLock;
use super::storage::{
    Access, DirEntry, FileKind, FileStat, Foreign, Identity, Region, Stamp, Storage, StorageFile,
    if_reached,
};
use super::{owner, sparing::SparingFile};
use crate::error::{Error, Result};
use crate::files::map::mapped_file::MappedFile;
use crate::format::width::{clamp_u64, saturating_i64, to_usize};

/// Milliseconds until file times must have advanced: twice the longest tick of Linux.
const STAMP_TICKS: u32 = 20;

/// The operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Os;

impl Storage for Os {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        let file = match access {
            Access::Read => open_quietly(path)?,
            Access::ReadWrite => {
                OpenOptions::new().read(true).write(true).custom_flags(SAFE_OPEN).open(path)?
            }
        };
        // The open file counts; its name may belong to another by now.
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        if access == Access::ReadWrite && metadata.nlink() > 1 {
            let more = "it has another name too, a hard link, whose bytes would change with it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, more));
        }
        OsFile::shared(file)
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn StorageFile>> {
        OsFile::shared(owner::create(path, None, len)?)
    }

    fn create_to_replace(&self, path: &Path, replaced: &Path) -> io::Result<Arc<dyn StorageFile>> {
        OsFile::shared(owner::create(path, Some(replaced), 0)?)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // Most systems return the kind with the name, which saves a call for each entry.
            let kind = entry.file_type().and_then(|file_type| match kind_of(file_type) {
                FileKind::File => {
                    entry.metadata().map(|file| (kind_of(file.file_type()), Some(stamp_of(&file))))
                }
                kind => Ok((kind, None)),
            });
            match kind {
                Ok((kind, stamp)) => entries.push(DirEntry {
                    name: entry.file_name(),
                    kind,
                    len: stamp.map_or(0, |stamp| stamp.len),
                    inode: stamp.map_or(0, |stamp| stamp.inode),
                    changed_ns: stamp.map(|stamp| stamp.changed_ns),
                }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        owner::create_dir(dir, None)
    }

    fn create_outside(&self, dir: &Path, like: Option<&Path>) -> io::Result<()> {
        match like {
            Some(_) => owner::create_dir(dir, like),
            None => DirBuilder::new().recursive(true).mode(0o750).create(dir),
        }
    }

    fn foreign(&self, dir: &Path) -> io::Result<Option<Foreign>> {
        owner::foreign(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        let dir = File::open(dir)?;
        #[cfg(target_os = "linux")]
        nix::unistd::syncfs(&dir)?;
        #[cfg(not(target_os = "linux"))]
        {
            nix::unistd::sync();
            dir.sync_all()?;
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
        Ok(renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        Ok(Some(stamp_of(&fs::symlink_metadata(path)?)))
    }

    fn stamps_mapped_writes(&self, path: &Path) -> Result<bool> {
        let changed_ns = || -> Result<Option<i64>> {
            let stamp = self.stamp(path).map_err(Error::io("stat", path))?;
            Ok(stamp.map(|stamp| stamp.changed_ns))
        };
        let before = changed_ns()?;
        for _ in 0..STAMP_TICKS {
            let file = self.open(path, Access::ReadWrite).map_err(Error::io("open", path))?;
            let mut map = MappedFile::map(path, file, Access::ReadWrite, 1)?;
            let Some(byte) = map.get_at::<1>(0) else { return Ok(false) };
            // Taking space would change the time by itself.
            map.assume_reserved(1);
            map.put_array(0, &byte)?;
            drop(map);
            if changed_ns()? > before {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(false)
    }

    fn identity(&self, path: &Path) -> io::Result<Option<Identity>> {
        let metadata = fs::metadata(path)?;
        Ok(Some(Identity { device: metadata.dev(), inode: metadata.ino() }))
    }

    fn is_own(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|found| found.uid() == nix::unistd::geteuid().as_raw())
    }

    fn may_write(&self, path: &Path) -> bool {
        nix::unistd::access(path, nix::unistd::AccessFlags::W_OK) != Err(Errno::EACCES)
    }

    fn follow(&self, link: &Path) -> std::result::Result<(), String> {
        owner::follow(link)
    }

    fn make_private(&self, path: &Path) -> io::Result<()> {
        owner::make_private(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let disk = disk_of(path)?;
        #[allow(clippy::useless_conversion, reason = "some systems count with 32 bits")]
        let [blocks, size] = [disk.blocks_available().into(), disk.fragment_size().into()];
        Ok(u64::saturating_mul(blocks, size))
    }

    fn free_inodes(&self, path: &Path) -> io::Result<u64> {
        let disk = disk_of(path)?;
        #[allow(clippy::useless_conversion, reason = "some systems count with 32 bits")]
        let [all, free] = [disk.files(), disk.files_available()].map(u64::from);
        Ok(if all == 0 { u64::MAX } else { free })
    }

    fn used_percent(&self, dir: &Path) -> io::Result<u64> {
        let disk = disk_of(dir)?;
        #[allow(clippy::useless_conversion, reason = "some systems count with 32 bits")]
        let [all, free, available] =
            [disk.blocks(), disk.blocks_free(), disk.blocks_available()].map(u64::from);
        // As `df`: blocks reserved for root are neither used nor free.
        let used = all.saturating_sub(free);
        let usable = used.saturating_add(available);
        Ok(used.saturating_mul(100).checked_div(usable).unwrap_or(0))
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        let metadata = if_reached(fs::symlink_metadata(path))?;
        Ok(metadata.map(|metadata| kind_of(metadata.file_type())))
    }
}

fn disk_of(path: &Path) -> io::Result<nix::sys::statvfs::Statvfs> {
    let there = path.ancestors().find(|above| above.exists()).unwrap_or(path);
    Ok(nix::sys::statvfs::statvfs(there)?)
}

/// Follows no links and does not wait for pipes.
const SAFE_OPEN: i32 = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;

/// Opens for reading without changing the access time, which only the owner may ask for.
fn open_quietly(path: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        let quiet =
            OpenOptions::new().read(true).custom_flags(SAFE_OPEN | nix::libc::O_NOATIME).open(path);
        match quiet {
            Err(error) if error.raw_os_error() == Some(nix::libc::EPERM) => {}
            other => return other,
        }
    }
    OpenOptions::new().read(true).custom_flags(SAFE_OPEN).open(path)
}

fn stamp_of(metadata: &fs::Metadata) -> Stamp {
    let seconds = metadata.ctime().saturating_mul(1_000_000_000);
    let changed_ns = seconds.saturating_add(metadata.ctime_nsec());
    Stamp { inode: metadata.ino(), len: metadata.len(), changed_ns }
}

fn kind_of(file_type: fs::FileType) -> FileKind {
    if file_type.is_file() {
        FileKind::File
    } else if file_type.is_dir() {
        FileKind::Directory
    } else {
        FileKind::Other
    }
}

pub(crate) fn open_files_allowed() -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit};
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    #[allow(clippy::useless_conversion, reason = "some systems count with signed numbers")]
    u64::try_from(soft).ok()
}

#[derive(Debug)]
struct OsFile {
    /// Set with the lock; dropped before the file is closed.
    held: OnceLock<HeldLock>,
    file: SparingFile,
}

impl OsFile {
    fn shared(file: File) -> io::Result<Arc<dyn StorageFile>> {
        // A clone is never a standard stream, into which the process may print.
        let file = if file.as_raw_fd() > 2 { file } else { file.try_clone()? };
        Ok(Arc::new(Self { held: OnceLock::new(), file: SparingFile::new(file) }))
    }

    /// `false` where the file system cannot.
    #[cfg(target_os = "linux")]
    fn allocate(&self, flags: FallocateFlags, position: u64, len: u64) -> io::Result<bool> {
        let (Ok(start), Ok(length)) = (i64::try_from(position), i64::try_from(len)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        loop {
            match fallocate(&*self.file, flags, start, length) {
                Ok(()) => return Ok(true),
                Err(Errno::EINTR) => {}
                Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => return Ok(false),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl StorageFile for OsFile {
    fn stat(&self) -> io::Result<FileStat> {
        let metadata = self.file.metadata()?;
        Ok(FileStat {
            len: metadata.len(),
            inode: metadata.ino(),
            links: metadata.nlink(),
            modified_ms: metadata
                .mtime()
                .saturating_mul(1000)
                .saturating_add(metadata.mtime_nsec() / 1_000_000),
        })
    }

    fn length(&self) -> io::Result<u64> {
        (&*self.file).seek(SeekFrom::End(0))
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, position.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn reserve(&self, position: u64, len: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if self.allocate(FallocateFlags::empty(), position, len)? {
            return Ok(());
        }
        // Without fallocate only writing takes the space.
        let zeros = vec![0; 1 << 16];
        let end = position.saturating_add(len);
        let mut at = position;
        while at < end {
            let step = to_usize(end - at).min(zeros.len());
            self.file.write_all_at(zeros.get(..step).unwrap_or_default(), at)?;
            at = at.saturating_add(step as u64);
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn release(&self, position: u64, len: u64) -> io::Result<()> {
        use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
        // There a read of a hole through a map takes space.
        if fstatfs(&*self.file)?.filesystem_type() == TMPFS_MAGIC {
            return Ok(());
        }
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        self.allocate(flags, position, len).map(drop)
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        #[cfg(target_os = "linux")]
        {
            use nix::unistd::{Whence, lseek64};
            let Ok(from) = i64::try_from(position) else { return Ok(None) };
            match lseek64(&*self.file, from, Whence::SeekData) {
                Ok(at) => return Ok(u64::try_from(at).ok()),
                Err(Errno::ENXIO) => return Ok(None),
                Err(Errno::EINVAL | Errno::EOPNOTSUPP) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok((position < self.file.metadata()?.len()).then_some(position))
    }

    #[cfg(target_os = "linux")]
    fn start_writing(&self, position: u64, len: u64) -> io::Result<()> {
        crate::files::map::mapped_file::start_writing(&self.file, position, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    // Elsewhere `msync` may stop at the disk's cache.
    #[cfg(target_os = "linux")]
    fn sync_range(&self, region: &dyn Region, position: usize, len: usize) -> io::Result<()> {
        region.sync(position, len)
    }

    fn confirm(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            // This byte already has space: nothing changes, but the journal is asked.
            let asked = fallocate(&*self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, 1);
            if let Err(errno @ (Errno::EIO | Errno::EROFS | Errno::ESHUTDOWN | Errno::EUCLEAN)) =
                asked
            {
                return Err(errno.into());
            }
        }
        Ok(())
    }

    fn map(&self, len: usize, access: Access) -> io::Result<Arc<dyn Region>> {
        let mut options = memmap2::MmapOptions::new();
        options.len(len);
        let raw = match access {
            Access::ReadWrite => options.map_raw(&*self.file)?,
            Access::Read => options.map_raw_read_only(&*self.file)?,
        };
        Ok(Arc::new(OsRegion(raw)))
    }

    fn try_lock(&self, bytes: Range<u64>) -> io::Result<bool> {
        self.held.get_or_init(|| HeldLock::new(self.file.as_raw_fd()));
        match fcntl(&*self.file, SetLock(&lock_on(bytes, nix::libc::F_WRLCK))) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn unlock(&self, bytes: Range<u64>) -> io::Result<()> {
        fcntl(&*self.file, SetLock(&lock_on(bytes, nix::libc::F_UNLCK)))?;
        Ok(())
    }

    fn locked(&self, bytes: Range<u64>) -> Option<Range<u64>> {
        let lock = conflicting_lock(&self.file, bytes)?;
        let start = clamp_u64(lock.l_start);
        // Without a length it reaches to the end of any file.
        let end = if lock.l_len == 0 { u64::MAX } else { start + clamp_u64(lock.l_len) };
        Some(start..end)
    }

    fn lock_holder(&self) -> Option<i32> {
        let lock = conflicting_lock(&self.file, 0..1)?;
        // The system returns -1 for an open-file-description lock.
        (lock.l_pid > 0).then_some(lock.l_pid).or_else(|| holder_in_proc(self.file.as_raw_fd()))
    }
}

#[allow(clippy::unnecessary_cast, reason = "the constants have other types on other systems")]
fn lock_on(bytes: Range<u64>, kind: i32) -> nix::libc::flock {
    nix::libc::flock {
        l_type: kind as nix::libc::c_short,
        l_whence: nix::libc::SEEK_SET as nix::libc::c_short,
        l_start: saturating_i64(bytes.start),
        l_len: saturating_i64(bytes.end - bytes.start),
        l_pid: 0,
    }
}

fn conflicting_lock(file: &File, bytes: Range<u64>) -> Option<nix::libc::flock> {
    let mut lock = lock_on(bytes, nix::libc::F_WRLCK);
    fcntl(file, GetLock(&mut lock)).ok()?;
    (lock.l_type != nix::libc::F_UNLCK as nix::libc::c_short).then_some(lock)
}

/// Finds a lock's holder in `/proc`: open-file-description locks name no process. Prefers another
/// process to this one.
fn holder_in_proc(fd: i32) -> Option<i32> {
    let target = fs::metadata(format!("/proc/self/fd/{fd}")).ok()?;
    let own = std::process::id();
    let mut pids: Vec<u32> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    // This process last: its handle may only be looking.
    pids.sort_by_key(|&pid| (pid == own, pid));
    for pid in pids {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for descriptor in descriptors.flatten() {
            let same = fs::metadata(descriptor.path())
                .is_ok_and(|m| m.ino() == target.ino() && m.dev() == target.dev());
            if same {
                return i32::try_from(pid).ok();
            }
        }
    }
    None
}

#[derive(Debug)]
struct OsRegion(MmapRaw);

impl Region for OsRegion {
    fn pointer(&self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn prepare(&self, position: usize, len: usize) {
        #[cfg(target_os = "linux")]
        {
            // Advice only: without this call pages come at their first write.
            let _ = self.0.advise_range(memmap2::Advice::PopulateWrite, position, len);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (position, len);
    }

    fn sync(&self, position: usize, len: usize) -> io::Result<()> {
        loop {
            match self.0.flush_range(position, len) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_refuses_links_pipes_and_directories_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::write(&target, b"x").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [&link, &pipe, &dir.path().to_path_buf()] {
            assert!(Os.open(path, Access::Read).is_err(), "{}", path.display());
        }
        assert!(Os.open(&target, Access::Read).is_ok());
    }

    #[test]
    fn lock_excludes_a_second_handle_of_the_same_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Os.create(&path, 4).unwrap();
        assert!(first.try_lock(0..1).unwrap());
        let second = Os.open(&path, Access::ReadWrite).unwrap();
        assert_eq!(second.try_lock(0..1).unwrap(), cfg!(not(target_os = "linux")));
        drop(first);
        assert!(second.try_lock(0..1).unwrap());
    }

    #[test]
    fn a_file_that_cannot_have_its_length_is_not_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        assert!(Os.create(&path, u64::MAX).is_err());
        assert!(!path.exists());
        Os.create(&path, 10).unwrap();
        assert!(Os.create(&path, u64::MAX).is_err());
        assert_eq!(fs::metadata(&path).unwrap().len(), 10, "a file that was there stays");
    }

    #[test]
    fn reading_past_the_end_reads_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let file = Os.create(&dir.path().join("f"), 10).unwrap();
        file.write_at(b"abc", 7).unwrap();
        let mut buffer = [9; 6];
        assert_eq!(file.read_at(&mut buffer, 6).unwrap(), 4);
        assert_eq!(&buffer, b"\0abc\x09\x09");
    }

    #[test]
    fn places_that_no_file_can_have_are_refused_or_hold_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = Os.create(&dir.path().join("f"), 10).unwrap();
        for (position, len) in [(u64::MAX, 1), (0, u64::MAX)] {
            let error = file.reserve(position, len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{position} {len}");
        }
        assert_eq!(file.next_data(u64::MAX).unwrap(), None);
        assert_eq!(file.stat().unwrap().len, 10);
    }
}
