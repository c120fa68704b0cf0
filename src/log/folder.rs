//! Files of one log or queue, opened from their folder alone.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::error::{CorruptionKind, Error, Result};
use crate::files::run::file_run::{OpenFiles, Stray};
use crate::files::{Access, FileKind, FileRun, Storage, folder_at};

const OPEN_FILES: usize = 16;

const LOOKS: usize = 5;
const PAUSE: Duration = Duration::from_millis(1);

/// Opens a folder's files for reading. Their size is `file_size`, or detected, or `otherwise`
/// without files; there may be no gap.
pub fn open(
    storage: Arc<dyn Storage>,
    path: &Path,
    file_size: Option<u64>,
    otherwise: u64,
) -> Result<FileRun> {
    // Beside a writer only a fault that stays is one.
    for _ in 1..LOOKS {
        match open_run(&storage, path, file_size, otherwise) {
            Err(Error::Corrupt(_)) => thread::sleep(PAUSE),
            opened => return opened,
        }
    }
    open_run(&storage, path, file_size, otherwise)
}

fn open_run(
    storage: &Arc<dyn Storage>,
    path: &Path,
    file_size: Option<u64>,
    otherwise: u64,
) -> Result<FileRun> {
    let reason = match folder_at(&**storage, path, false)? {
        Ok(true) => None,
        Ok(false) => Some("there is no such folder".to_owned()),
        Err(reason) => Some(reason),
    };
    if let Some(reason) = reason {
        return Err(Error::NotAStore { path: path.to_owned(), reason });
    }
    let load = |size| {
        let open_files = Arc::new(OpenFiles::new(OPEN_FILES));
        let dirs = vec![path.to_owned()];
        FileRun::load(Arc::clone(storage), open_files, dirs, size, Access::Read)
    };
    let (run, mut strays) = load(file_size.unwrap_or(otherwise))?;
    // An empty file has no part of what the folder holds.
    let is_empty = |stray: &Stray| {
        let open = storage.open(&stray.path, Access::Read).and_then(|file| file.length());
        stray.kind == FileKind::File && matches!(open, Ok(0))
    };
    strays.retain(|stray| !is_empty(stray));
    strays.sort_by(|a, b| a.path.cmp(&b.path));
    if let Some(stray) = strays.first() {
        let found = match stray.kind {
            FileKind::File => "a file of another name",
            FileKind::Directory => "a folder",
            FileKind::Other => "no regular file",
        };
        let wanted = "a file named by 20 digits";
        return Err(Error::corrupt(&stray.path, 0, CorruptionKind::FileName, wanted, found));
    }
    let first = run.files().first().map(|file| file.len);
    let run = match (file_size, first) {
        (None, Some(size)) if size != otherwise => load(size)?.0,
        _ => run,
    };
    match run.check().into_iter().next() {
        Some(error) => Err(error),
        None => Ok(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;

    fn opened(path: &Path, file_size: Option<u64>) -> Result<FileRun> {
        open(Arc::new(Os), path, file_size, 1000)
    }

    fn kind_of(result: Result<FileRun>) -> CorruptionKind {
        match result {
            Err(Error::Corrupt(corruption)) => corruption.kind,
            other => panic!("{other:?}"),
        }
    }

    fn write(dir: &Path, name: &str, len: usize) {
        std::fs::write(dir.join(name), vec![0; len]).unwrap();
    }

    #[test]
    fn the_size_comes_from_the_files_unless_it_is_given() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(opened(dir.path(), None).unwrap().file_size(), 1000);
        assert_eq!(opened(dir.path(), Some(7)).unwrap().file_size(), 7);
        write(dir.path(), "00000000000000000200", 100);
        write(dir.path(), "00000000000000000300", 100);
        let run = opened(dir.path(), None).unwrap();
        assert_eq!(
            (run.file_size(), run.min_offset(), run.end_offset()),
            (100, Some(200), Some(400))
        );
        assert_eq!(kind_of(opened(dir.path(), Some(50))), CorruptionKind::FileLength);
    }

    #[test]
    fn an_impossible_folder_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let missing = opened(&dir.path().join("none"), None);
        assert!(matches!(missing, Err(Error::NotAStore { .. })));
        write(dir.path(), "00000000000000000000", 100);
        let file = opened(&dir.path().join("00000000000000000000"), None);
        assert!(matches!(file, Err(Error::NotAStore { .. })));
        write(dir.path(), "00000000000000000200", 100);
        assert_eq!(kind_of(opened(dir.path(), None)), CorruptionKind::Gap);
        write(dir.path(), "00000000000000000100", 99);
        assert_eq!(kind_of(opened(dir.path(), None)), CorruptionKind::FileLength);
        write(dir.path(), "notes", 1);
        assert_eq!(kind_of(opened(dir.path(), None)), CorruptionKind::FileName);
    }

    #[test]
    fn an_empty_file_is_no_size() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "00000000000000000000", 0);
        assert_eq!(kind_of(opened(dir.path(), None)), CorruptionKind::Gap);
    }
}
