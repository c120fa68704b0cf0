//! Owner, group and mode of new files and folders: those of the folder that they lie in.
//!
//! They are set on the descriptor of the new file, below an open folder. A path could lead elsewhere
//! at the next call, and a repair may run as root in a folder of another user.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::time::Duration;

use crate::locks::Mutex;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, getegid, geteuid, unlinkat};

use super::storage::{Foreign, if_reached};

/// Searching a folder is enough to make files in it; not every folder can be listed.
#[cfg(target_os = "linux")]
const FOLDER: i32 = nix::libc::O_DIRECTORY | nix::libc::O_PATH;
#[cfg(not(target_os = "linux"))]
const FOLDER: i32 = nix::libc::O_DIRECTORY;
/// Held from making a folder until it has its owner: another thread's folder below would get the wrong one.
static MAKING: Mutex<()> = Mutex::new(());
const LONGEST_TURN: Duration = Duration::from_secs(1);
/// Read, write and execute, setgid and sticky.
const MODE: u32 = 0o3777;
const SHARED_BY_GROUP: u32 = 0o2020;

/// An open folder: what is made by name below it is made there, wherever its path leads by then.
struct Folder {
    dir: File,
    owner: Owner,
}

#[derive(Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl Owner {
    fn of(metadata: &fs::Metadata) -> Self {
        Self { uid: metadata.uid(), gid: metadata.gid(), mode: metadata.mode() & MODE }
    }

    fn owns(self, other: Self) -> bool {
        (self.uid, self.gid) == (other.uid, other.gid)
    }

    fn for_file(self) -> Self {
        Self { mode: self.mode & 0o666 | 0o600, ..self }
    }

    fn for_folder(self) -> Self {
        Self { mode: self.mode | 0o700, ..self }
    }

    /// Gives a new file to this owner, with its group and mode.
    ///
    /// # Errors
    /// [`Foreign`], if the owner or the group cannot use the file as the mode says.
    fn apply_to(self, made: &File, folder: &Path) -> io::Result<()> {
        let before = made.metadata()?;
        let now = Self::of(&before);
        if now.owns(self) && now.mode == self.mode {
            return Ok(());
        }
        // The outcome counts: some file systems have no owners or modes and report either result.
        let _ = made.set_permissions(fs::Permissions::from_mode(self.mode));
        if !now.owns(self) && fchown(made, Some(self.uid), Some(self.gid)).is_err() {
            // Members of a group may give a file to it.
            let _ = fchown(made, None, Some(self.gid));
        }
        let now = Self::of(&made.metadata()?);
        match self.can_use(now, before.is_dir()) {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                self.foreign(folder, now, false),
            )),
        }
    }

    fn can_use(self, now: Self, is_folder: bool) -> bool {
        let all = if is_folder { 7 } else { 6 };
        let by_group = (if now.gid == self.gid { now.mode >> 3 } else { now.mode }) & all;
        let group_may = self.mode >> 3 & all;
        let owner_can = now.uid == self.uid || by_group == all;
        owner_can && by_group & group_may == group_may
    }

    fn foreign(self, folder: &Path, found: Self, is_usable: bool) -> Foreign {
        Foreign {
            folder: folder.to_owned(),
            expected: (self.uid, self.gid),
            found: (found.uid, found.gid),
            is_usable,
        }
    }
}

pub(super) fn follow(link: &Path) -> Result<(), String> {
    let Ok(to) = fs::read_link(link) else { return Err("a link, pipe or device".to_owned()) };
    let to = to.display();
    let above = link.parent().filter(|above| !above.as_os_str().is_empty());
    match (fs::metadata(link), fs::metadata(above.unwrap_or(Path::new(".")))) {
        (Ok(folder), Ok(above)) if folder.is_dir() && folder.uid() == above.uid() => Ok(()),
        (Ok(folder), Ok(above)) if folder.is_dir() => Err(format!(
            "a link to {to}, a folder of uid {}: only one of the store's owner, uid {}, is followed",
            folder.uid(),
            above.uid()
        )),
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("a link to {to}, which does not exist; is its disk mounted?"))
        }
        (Err(error), _) | (_, Err(error)) => Err(format!("a link to {to}: {error}")),
        _ => Err(format!("a link to {to}, which is no folder")),
    }
}

impl Folder {
    fn open(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let open = |flags| OpenOptions::new().read(true).custom_flags(FOLDER | flags).open(path);
        let dir = match open(nix::libc::O_NOFOLLOW) {
            Err(error) if fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink()) => {
                let (dir, link) = (open(0)?, fs::symlink_metadata(path)?);
                let leads_to = dir.metadata()?.uid();
                if ![0, geteuid().as_raw(), leads_to].contains(&link.uid()) {
                    let owner = link.uid();
                    return Err(io::Error::new(
                        error.kind(),
                        format!(
                            "a link of uid {owner} leads to a folder of uid {leads_to} and is not \
                             followed; nothing was made there"
                        ),
                    ));
                }
                dir
            }
            opened => opened?,
        };
        let owner = Owner::of(&dir.metadata()?);
        Ok(Self { dir, owner })
    }

    fn file(&self, name: &OsStr, flags: OFlag, owner: Owner) -> io::Result<File> {
        let flags = flags | OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.dir, name, flags, mode_of(owner))?))
    }

    fn owner_of(&self, name: &OsStr) -> Option<Owner> {
        let stat = fstatat(&self.dir, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        let is_file = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
        #[allow(clippy::useless_conversion, reason = "some systems have modes of 16 bits")]
        let mode = u32::from(stat.st_mode) & 0o777;
        is_file.then_some(Owner { uid: stat.st_uid, gid: stat.st_gid, mode })
    }

    fn make_folder(&self, name: &OsStr, path: &Path, owner: Owner) -> io::Result<Self> {
        let is_new = match mkdirat(&self.dir, name, mode_of(owner)) {
            Err(Errno::EEXIST) => false,
            made => made.map(|()| true)?,
        };
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let dir = File::from(openat(&self.dir, name, flags, Mode::empty())?);
        // Another folder may have got the name since. One that is this process's own and empty is as
        // good as the new one.
        if is_new && dir.metadata()?.uid() == geteuid().as_raw() && is_empty(&dir)? {
            owner.apply_to(&dir, path)?;
        }
        let owner = Owner::of(&dir.metadata()?);
        Ok(Self { dir, owner })
    }

    /// An empty file that has no name, or none any more; `None` if none can be made.
    fn probe(&self, owner: Owner) -> Option<File> {
        #[cfg(target_os = "linux")]
        if let Ok(unnamed) = self.file(OsStr::new("."), OFlag::O_TMPFILE, owner) {
            return Some(unnamed);
        }
        let name = format!(".mqstore-owner-{}", std::process::id());
        let made = self.file(OsStr::new(&name), OFlag::O_CREAT | OFlag::O_EXCL, owner).ok()?;
        unlinkat(&self.dir, name.as_str(), UnlinkatFlags::NoRemoveDir).ok()?;
        Some(made)
    }
}

fn is_empty(dir: &File) -> io::Result<bool> {
    let mut entries = Dir::from_fd(dir.try_clone()?.into())?;
    let is_itself = |name: &[u8]| matches!(name, b"." | b"..");
    Ok(entries.iter().flatten().all(|entry| is_itself(entry.file_name().to_bytes())))
}

#[allow(clippy::unnecessary_cast, reason = "some systems have modes of 16 bits")]
fn mode_of(owner: Owner) -> Mode {
    Mode::from_bits_truncate(owner.mode as nix::libc::mode_t)
}

fn name_of(path: &Path) -> io::Result<&OsStr> {
    path.file_name().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

pub(super) fn create(path: &Path, replaced: Option<&Path>, len: u64) -> io::Result<File> {
    let above = path.parent().unwrap_or(path);
    let (folder, name) = (Folder::open(above)?, name_of(path)?);
    let before = replaced.and_then(Path::file_name).and_then(|name| folder.owner_of(name));
    let owner = before.unwrap_or_else(|| folder.owner.for_file());
    let file = folder.file(name, OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NONBLOCK, owner)?;
    if let Err(error) = owner.apply_to(&file, above).and_then(|()| file.set_len(len)) {
        // A file that is left would block the next attempt.
        let _ = unlinkat(&folder.dir, name, UnlinkatFlags::NoRemoveDir);
        return Err(error);
    }
    Ok(file)
}

/// Creates a folder and its parents: each as the one above it, or as the folder `like`.
pub(super) fn create_dir(dir: &Path, like: Option<&Path>) -> io::Result<()> {
    // Not for ever: a forked child may find it locked.
    let _turn = MAKING.try_lock_for(LONGEST_TURN);
    let like = like.map(|like| Folder::open(like).map(|like| like.owner)).transpose()?;
    let mut missing = Vec::new();
    let mut ancestors = dir.ancestors();
    let mut folder = loop {
        let Some(above) = ancestors.next() else { return Err(io::ErrorKind::NotFound.into()) };
        match Folder::open(above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(above),
            opened => break opened?,
        }
    };
    while let Some(path) = missing.pop() {
        let owner = like.unwrap_or(folder.owner).for_folder();
        folder = folder.make_folder(name_of(path)?, path, owner)?;
    }
    Ok(())
}

pub(super) fn make_private(path: &Path) -> io::Result<()> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mode = if file.metadata()?.is_dir() { 0o700 } else { 0o600 };
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Whether files made in a folder would stay another user's or group's. In a setgid folder that its
/// group may write, the group alone counts: its members share the files.
pub(super) fn foreign(dir: &Path) -> io::Result<Option<Foreign>> {
    let Some(folder) = if_reached(Folder::open(dir))? else { return Ok(None) };
    let owner = folder.owner.for_file();
    if (owner.uid, owner.gid) == (geteuid().as_raw(), getegid().as_raw()) {
        return Ok(None);
    }
    // Where nothing can be made, the first file that is made reports why.
    let Some(probe) = folder.probe(owner) else { return Ok(None) };
    let is_usable = owner.apply_to(&probe, dir).is_ok();
    let found = Owner::of(&probe.metadata()?);
    let is_shared = folder.owner.mode & SHARED_BY_GROUP == SHARED_BY_GROUP;
    if found.owns(owner) || (is_shared && is_usable && found.gid == owner.gid) {
        return Ok(None);
    }
    Ok(Some(owner.foreign(dir, found, is_usable)))
}
