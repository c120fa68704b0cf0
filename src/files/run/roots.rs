//! The folders of a run, and the choice of one for the next file
//! (`org.apache.rocketmq.store.MultiPathMappedFileQueue`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::open_files::RunFile;
use crate::error::{CorruptionKind, Error, Result};
use crate::files::system::storage::{Access, Storage};

/// Folders of a run; several only for a commit log on several disks.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    dirs: Vec<PathBuf>,
    read_only: Vec<PathBuf>,
    full_percent: u64,
}

impl From<Vec<PathBuf>> for Roots {
    fn from(mut dirs: Vec<PathBuf>) -> Self {
        dirs.iter_mut().for_each(PathBuf::shrink_to_fit);
        Self { dirs, read_only: Vec::new(), full_percent: 101 }
    }
}

impl Roots {
    /// Folders without new files in `read_only`, nor on a disk at least so many percent full while
    /// others are usable.
    #[must_use]
    pub fn new(mut dirs: Vec<PathBuf>, read_only: Vec<PathBuf>, full_percent: u64) -> Self {
        dirs.sort();
        dirs.dedup();
        Self { dirs, read_only, full_percent }
    }

    #[must_use]
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Whether the file is in a folder that takes no new ones.
    #[must_use]
    pub fn is_read_only(&self, file: &Path) -> bool {
        !self.read_only.is_empty()
            && file.parent().is_some_and(|dir| self.read_only.iter().any(|other| other == dir))
    }

    /// Folder for file `number`; `None` if no folder takes files.
    pub fn of_file(&self, number: u64, used_percent: impl Fn(&Path) -> u64) -> Option<&Path> {
        let writable: Vec<_> =
            self.dirs.iter().filter(|dir| !self.read_only.contains(dir)).collect();
        // A full folder is better than none: a full disk has its own error.
        let mut usable = writable.clone();
        if writable.len() > 1 {
            usable.retain(|dir| used_percent(dir) < self.full_percent);
        }
        let usable = if usable.is_empty() { writable } else { usable };
        let which = number.checked_rem(usable.len() as u64)?;
        usable.get(usize::try_from(which).ok()?).map(|dir| dir.as_path())
    }
}

const BLOCK: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Twin {
    pub(super) read: Arc<RunFile>,
    pub other: PathBuf,
    pub(super) other_inode: u64,
    /// Where both have bytes that differ; otherwise the file that is read has all bytes of the other.
    pub differs_at: Option<u64>,
}

impl Twin {
    /// Compares two files; one lacks what stands behind its last byte that is not zero.
    pub(super) fn compare(
        storage: &dyn Storage,
        first: &Arc<RunFile>,
        second: &Arc<RunFile>,
    ) -> Result<Self> {
        let files = [first, second];
        let mut open = Vec::new();
        for file in files {
            let opened = storage.open(&file.path, Access::Read);
            open.push(opened.map_err(Error::io("open", &file.path))?);
        }
        // Where the bytes differ first, and of which file only zeros may follow.
        let mut differs: Option<(u64, usize)> = None;
        let (mut other_bytes, mut goes_on) = (0_u64, false);
        let mut blocks = [vec![0; BLOCK], vec![0; BLOCK]];
        let mut at = 0;
        while !goes_on {
            let mut next = None;
            for (open, file) in open.iter().zip(files) {
                let data = open.next_data(at).map_err(Error::io("read", &file.path))?;
                next = [next, data].into_iter().flatten().min();
            }
            let Some(begin) = next else { break };
            for ((open, file), block) in open.iter().zip(files).zip(&mut blocks) {
                let read = open.read_at(block, begin).map_err(Error::io("read", &file.path))?;
                block.get_mut(read..).unwrap_or_default().fill(0);
            }
            at = begin.saturating_add(BLOCK as u64);
            let [one, two] = &blocks;
            if one == two && differs.is_none() {
                continue;
            }
            for (position, (one, two)) in (begin..).zip(one.iter().zip(two)) {
                if one != two {
                    differs.get_or_insert((position, usize::from(*one != 0)));
                    other_bytes += 1;
                }
                goes_on |=
                    differs.is_some_and(|(_, shorter)| if shorter == 0 { *one } else { *two } != 0);
            }
        }
        // One byte is no message: it was damaged in one of them.
        let is_conflict = goes_on || other_bytes == 1;
        let differs_at = differs.map(|(at, _)| at).filter(|_| is_conflict);
        let first_is_shorter = matches!(differs, Some((_, 0))) && !is_conflict;
        let (read, other) = if first_is_shorter { (second, first) } else { (first, second) };
        let (other, other_inode) = (other.path.clone(), other.inode);
        Ok(Self { read: Arc::clone(read), other, other_inode, differs_at })
    }

    pub(super) fn is_of(&self, one: &RunFile, two: &RunFile) -> bool {
        let is_so = |read: &RunFile, other: &RunFile| {
            self.read.id == read.id && self.other == other.path && self.other_inode == other.inode
        };
        is_so(one, two) || is_so(two, one)
    }

    #[must_use]
    pub fn expected(&self) -> String {
        format!(
            "one file of this name in the folders of the log; {} is another",
            self.read.path.display()
        )
    }

    #[must_use]
    pub fn found(&self) -> String {
        match self.differs_at {
            None => "no byte that the other lacks, and the other is read".to_owned(),
            Some(at) => format!(
                "other bytes from byte {at} on; nothing was changed: move the file that is not this log's \
                 out of the folder; `mqstore salvage` copies the messages of both"
            ),
        }
    }
}

impl From<&Twin> for Error {
    fn from(twin: &Twin) -> Self {
        let at = twin.differs_at.unwrap_or(0);
        Self::corrupt(&twin.other, at, CorruptionKind::FileName, twin.expected(), twin.found())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs() -> Vec<PathBuf> {
        ["/c", "/a", "/b"].map(PathBuf::from).to_vec()
    }

    fn chosen(roots: &Roots, full: &[&str]) -> Vec<String> {
        let used =
            |dir: &Path| if full.iter().any(|other| Path::new(other) == dir) { 85 } else { 84 };
        let of_file = |number| roots.of_file(number, used).unwrap().display().to_string();
        (0..6).map(of_file).collect()
    }

    #[test]
    fn mf09_files_take_turns() {
        let roots = Roots::new(dirs(), Vec::new(), 85);
        assert_eq!(chosen(&roots, &[]), ["/a", "/b", "/c", "/a", "/b", "/c"]);
    }

    #[test]
    fn mf10_a_full_folder_is_passed_over() {
        let roots = Roots::new(dirs(), Vec::new(), 85);
        assert_eq!(chosen(&roots, &["/b"]), ["/a", "/c", "/a", "/c", "/a", "/c"]);
        assert_eq!(chosen(&roots, &["/a", "/b", "/c"]), chosen(&roots, &[]));
    }

    #[test]
    fn a_folder_that_is_only_read_takes_nothing() {
        let roots = Roots::new(dirs(), vec!["/a".into(), "/c".into()], 85);
        assert_eq!(chosen(&roots, &["/b"]), ["/b"; 6]);
        assert!(roots.is_read_only(Path::new("/a/0")) && !roots.is_read_only(Path::new("/b/0")));
        let none = Roots::new(dirs(), dirs(), 85);
        assert_eq!(none.of_file(0, |_| 0), None);
    }
}
