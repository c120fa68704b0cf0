//! Creates many files with one flush of the file system: created one by one each takes four
//! flushes, and ten thousand queues took a minute.

use std::path::PathBuf;

use super::file_run::FileRun;
use super::folder::make_folder_by_name;
use crate::error::Result;
use crate::files::system::storage::Storage;

/// From this number on a flush of the whole file system pays.
pub const MANY: usize = 100;

/// A run, and base offsets of files to create.
pub type Wanted<'a> = (&'a FileRun, Vec<u64>);

/// Creates missing files as [`FileRun::create_if_missing`] does; `make_durable` flushes their file
/// systems. Concurrent callers must name runs in the same order.
pub fn create_all(wanted: &[Wanted<'_>], make_durable: impl FnOnce() -> Result<()>) -> Result<()> {
    let Some((first, _)) = wanted.first() else { return Ok(()) };
    let _creating: Vec<_> = wanted.iter().map(|(run, _)| run.creating()).collect();
    let mut new = NewFiles { storage: &**first.storage(), folders: Vec::new(), files: Vec::new() };
    let made = wanted.iter().try_for_each(|(run, bases)| new.make(run, bases));
    if let Err(error) = made.and_then(|()| make_durable()) {
        new.remove();
        return Err(error);
    }
    for file in new.files {
        file.run.add(file.base_offset, file.path);
    }
    Ok(())
}

struct NewFiles<'a> {
    storage: &'a dyn Storage,
    folders: Vec<PathBuf>,
    files: Vec<NewFile<'a>>,
}

struct NewFile<'a> {
    run: &'a FileRun,
    base_offset: u64,
    path: PathBuf,
}

impl<'a> NewFiles<'a> {
    fn make(&mut self, run: &'a FileRun, bases: &[u64]) -> Result<()> {
        for &base_offset in bases.iter().filter(|&&base| run.find(base).is_none()) {
            let path = run.next_path(base_offset)?;
            let dir = path.parent().unwrap_or(&path);
            let folders = make_folder_by_name(self.storage, dir)?;
            self.folders.extend(folders.into_iter().rev().map(PathBuf::from));
            // Not kept open: the number may exceed the process's limit.
            run.make(&path)?;
            self.files.push(NewFile { run, base_offset, path });
        }
        Ok(())
    }

    /// Removes what was created; the first error counts. A later call would take folders left
    /// behind for durable.
    fn remove(&self) {
        for file in &self.files {
            let _ = self.storage.remove_file(&file.path);
        }
        for folder in self.folders.iter().rev() {
            let _ = self.storage.remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::Error;
    use crate::files::{Access, Os};

    #[test]
    fn files_are_made_with_their_folders_or_none_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let run = |name: &str| {
            let dirs = vec![dir.path().join(name)];
            FileRun::load(Arc::new(Os), Arc::default(), dirs, 100, Access::ReadWrite).unwrap().0
        };
        let (one, two) = (run("topic/0"), run("topic/1"));
        one.create(100).unwrap();
        create_all(&[(&one, vec![0, 100, 200]), (&two, vec![300])], || Ok(())).unwrap();
        let bases = |run: &FileRun| run.files().iter().map(|f| f.base_offset).collect::<Vec<_>>();
        assert_eq!((bases(&one), bases(&two)), (vec![0, 100, 200], vec![300]));
        create_all(&[(&one, vec![0]), (&two, vec![])], || Ok(())).unwrap();
        assert_eq!(bases(&run("topic/0")), bases(&one));
        let (three, four) = (run("other/0"), run("other/deeper/1"));
        run("other/deeper/1").create(0).unwrap();
        let error = create_all(&[(&three, vec![0, 100]), (&four, vec![0])], || Ok(())).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        assert!(!dir.path().join("other/0").exists());
        assert!(three.files().is_empty());
    }
}
