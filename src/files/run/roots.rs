//! The folders of a run, and the choice of one for the next file
//! (`org.apache.rocketmq.store.MultiPathMappedFileQueue`).

use std::path::{Path, PathBuf};

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
