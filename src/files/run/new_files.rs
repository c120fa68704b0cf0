//! Creates many files with one flush of the file system, where each alone takes four; copies
//! files.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::locks::Mutex;

use super::folder::make_folder_by_name;
use super::tail_run::{NewFile, TailRun};
use crate::error::{Error, Result};
use crate::files::threads::{each, processors};
use crate::files::{Access, FileKind, Storage, each_data};
use crate::format::bytes::are_zeros;

/// From this number on a flush of the whole file system pays.
pub const MANY: usize = 100;

/// A run, and files that it lacks.
pub type Wanted<'a> = (&'a TailRun, Vec<NewFile>);

const RUNS_AT_ONCE: usize = 64;

/// Creates missing files as `FileRun::create_if_missing` does; `make_durable` flushes their file
/// systems. Concurrent callers must name runs in the same order.
pub fn create_all(wanted: &[Wanted<'_>], make_durable: impl FnOnce() -> Result<()>) -> Result<()> {
    let Some((first, _)) = wanted.first() else { return Ok(()) };
    let creating: Vec<_> = wanted.iter().map(|(run, _)| run.run().creating()).collect();
    let storage = &**first.run().storage();
    let made = Mutex::new(Made::default());
    let all = each(wanted.chunks(RUNS_AT_ONCE), processors(), |wanted| {
        wanted.iter().try_for_each(|wanted| make(storage, wanted, &made))
    });
    let made = made.into_inner();
    if let Err(error) = all.and_then(|()| make_durable()) {
        made.remove(storage);
        return Err(error);
    }
    for (run, file, path) in &made.files {
        run.run().add(file.base_offset, path.clone());
    }
    // A writer that waits for these locks holds what `has_filled` needs.
    drop(creating);
    for (run, file, _) in &made.files {
        run.has_filled(file);
    }
    Ok(())
}

#[derive(Default)]
struct Made<'a> {
    folders: Vec<PathBuf>,
    files: Vec<(&'a TailRun, &'a NewFile, PathBuf)>,
}

fn make<'a>(
    storage: &dyn Storage,
    (tail_run, files): &'a Wanted<'_>,
    made: &Mutex<Made<'a>>,
) -> Result<()> {
    let run = tail_run.run();
    for file in files.iter().filter(|file| run.find(file.base_offset).is_none()) {
        let path = run.next_path(file.base_offset)?;
        let folders = make_folder_by_name(storage, path.parent().unwrap_or(&path))?;
        made.lock().folders.extend(folders.into_iter().map(PathBuf::from));
        // Not kept open: the number may exceed the process's limit.
        let open = run.make(&path)?;
        let wrote = match file.bytes.is_empty() {
            true => Ok(()),
            false => open.write_at(&file.bytes, file.position),
        };
        let wrote = wrote.map_err(Error::io("write", &path));
        made.lock().files.push((*tail_run, file, path));
        wrote?;
    }
    Ok(())
}

impl Made<'_> {
    /// Removes what was created; the first error counts. A later call would take folders left
    /// behind for durable.
    fn remove(mut self, storage: &dyn Storage) {
        for (_, _, path) in &self.files {
            let _ = storage.remove_file(path);
        }
        // Several threads may have made those of one topic.
        self.folders.sort();
        for folder in self.folders.iter().rev() {
            let _ = storage.remove_dir(folder);
        }
    }
}

/// Copies a folder with what is in it to `to`, which is created. Links are left out.
pub fn copy_tree(storage: &dyn Storage, from: &Path, to: &Path) -> Result<()> {
    storage.create_dir(to).map_err(Error::io("create", to))?;
    for entry in storage.list(from).map_err(Error::io("list", from))? {
        let path = from.join(&entry.name);
        match entry.kind {
            FileKind::Directory => copy_tree(storage, &path, &to.join(&entry.name))?,
            FileKind::File => copy_file(storage, &path, to)?,
            FileKind::Other => {}
        }
    }
    Ok(())
}

/// Copies a file into a folder, which is created if missing.
pub fn copy_file(storage: &dyn Storage, from: &Path, dir: &Path) -> Result<()> {
    storage.create_dir(dir).map_err(Error::io("create", dir))?;
    let to = dir.join(from.file_name().unwrap_or_default());
    let source = storage.open(from, Access::Read).map_err(Error::io("open", from))?;
    let len = source.stat().map_err(Error::io("stat", from))?.len;
    let copy = storage.create(&to, len).map_err(Error::io("create", &to))?;
    let _ = each_data(&*source, from, 0..u64::MAX, |at, bytes| {
        if !are_zeros(bytes) {
            copy.write_at(bytes, at).map_err(Error::io("write", &to))?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    copy.sync().map_err(Error::flush(&to))?;
    storage.sync_dir(dir).map_err(Error::flush(dir))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::files::{Access, FileRun, Os};

    #[test]
    fn files_are_made_with_their_folders_or_none_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let run = |name: &str| {
            let dirs = vec![dir.path().join(name)];
            let run = FileRun::load(Arc::new(Os), Arc::default(), dirs, 100, Access::ReadWrite);
            TailRun::new(run.unwrap().0)
        };
        let (one, two) = (run("topic/0"), run("topic/1"));
        one.run().create(100).unwrap();
        let all = |bases: &[u64]| -> Vec<NewFile> {
            let file = |&base_offset| NewFile { base_offset, position: 3, bytes: b"x".to_vec() };
            bases.iter().map(file).collect()
        };
        create_all(&[(&one, all(&[0, 100, 200])), (&two, all(&[300]))], || Ok(())).unwrap();
        assert_eq!(std::fs::read(&two.run().files()[0].path).unwrap()[..5], *b"\0\0\0x\0");
        let bases =
            |run: &TailRun| run.run().files().iter().map(|f| f.base_offset).collect::<Vec<_>>();
        assert_eq!((bases(&one), bases(&two)), (vec![0, 100, 200], vec![300]));
        create_all(&[(&one, all(&[0])), (&two, vec![])], || Ok(())).unwrap();
        assert_eq!(bases(&run("topic/0")), bases(&one));
        let (three, four) = (run("other/0"), run("other/deeper/1"));
        run("other/deeper/1").run().create(0).unwrap();
        let wanted: [Wanted<'_>; 2] = [(&three, all(&[0, 100])), (&four, all(&[0]))];
        let error = create_all(&wanted, || Ok(())).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        assert!(!dir.path().join("other/0").exists());
        assert!(three.run().files().is_empty());
    }
}
