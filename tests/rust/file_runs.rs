//! A run of files whose files others remove, resize or protect while it is used.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::files::{Access, FileRun, FileStat, Os, Roots, Storage};
use mqstore::log::folder;
use mqstore::{Error, Operation};

use crate::support::storage::{Call, Staged};
use crate::support::{names_in, scratch};

const SIZE: u64 = 100;
const EACCES: i32 = 13;
const EIO: i32 = 5;

fn load(storage: Arc<dyn Storage>, roots: Roots, access: Access) -> FileRun {
    FileRun::load(storage, Arc::default(), roots, SIZE, access).unwrap().0
}

fn run(dirs: Vec<PathBuf>, access: Access) -> FileRun {
    load(Arc::new(Os), dirs.into(), access)
}

/// So many files full of their number, from 1 on.
fn files(dir: &Path, count: u8) {
    for number in 0..count {
        let name = format!("{:020}", u64::from(number) * SIZE);
        fs::write(dir.join(name), vec![number + 1; 100]).unwrap();
    }
}

#[test]
fn who_holds_a_file_that_was_removed_here_learns_that_it_is_gone() {
    let dir = scratch();
    files(dir.path(), 3);
    let run = run(vec![dir.path().to_owned()], Access::ReadWrite);
    let held = run.files()[0].clone();
    assert_eq!(run.remove_first().unwrap().unwrap().base_offset, 0);
    assert!(run.open_if_there(&held).unwrap().is_none());
    let mut buffer = [0; 10];
    assert_eq!(run.read_file_at(&held, &mut buffer, 0).unwrap(), 0);
    // Nothing is before the first file.
    let next = run.files()[0].clone();
    assert_eq!(run.read_file_at(&next, &mut buffer, 99).unwrap(), 0);
    assert_eq!((run.read_file_at(&next, &mut buffer, 195).unwrap(), buffer[0]), (5, 2));
    // The last one stays, whatever is asked.
    assert!(run.remove_first().unwrap().is_some() && run.remove_first().unwrap().is_none());
    assert_eq!(names_in(dir.path()).len(), 1);
}

#[test]
fn a_file_that_another_process_removed_is_gone_for_a_reader_and_an_error_for_a_writer() {
    let dir = scratch();
    files(dir.path(), 3);
    let dirs = || vec![dir.path().to_owned()];
    let (reader, writer) = (run(dirs(), Access::Read), run(dirs(), Access::ReadWrite));
    let (of_reader, of_writer) = (reader.files()[1].clone(), writer.files()[1].clone());
    fs::remove_file(&of_reader.path).unwrap();
    assert!(reader.open_if_there(&of_reader).unwrap().is_none());
    assert_eq!(reader.files().len(), 2);
    match writer.open_if_there(&of_writer).map(drop).unwrap_err() {
        Error::Io { op: Operation::Other("open"), source, .. } => {
            assert_eq!(source.kind(), ErrorKind::NotFound)
        }
        error => panic!("{error}"),
    }
}

#[test]
fn a_file_that_changed_under_its_writer_keeps_nothing() {
    let dir = scratch();
    files(dir.path(), 2);
    let run = run(vec![dir.path().to_owned()], Access::ReadWrite);
    let [resized, removed] = [0, 1].map(|number| run.files()[number].clone());
    run.sync(&resized).unwrap();
    run.sync(&removed).unwrap();
    crate::support::set_len(&resized.path, 40);
    fs::remove_file(&removed.path).unwrap();
    for (file, found) in [
        (&resized, "40 bytes: another process changed it"),
        (&removed, "a file that another process removed"),
    ] {
        match run.sync(file).unwrap_err() {
            Error::Corrupt(corruption) => {
                assert_eq!(corruption.found, found);
                assert_eq!(corruption.expected, "the file of 100 bytes that is being written");
                assert_eq!(corruption.path.as_ref(), Some(&file.path));
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn of_several_folders_one_that_is_not_there_holds_nothing() {
    let dir = scratch();
    let (there, gone) = (dir.path().join("there"), dir.path().join("gone"));
    fs::create_dir(&there).unwrap();
    files(&there, 3);
    let run = run(vec![there.clone(), gone.clone()], Access::ReadWrite);
    assert_eq!(run.remove_from(SIZE).unwrap(), 2);
    assert_eq!((names_in(&there).len(), gone.exists()), (1, false));
}

#[test]
fn a_protected_file_is_read_where_its_folder_takes_no_new_ones() {
    let dir = scratch();
    files(dir.path(), 1);
    let path = dir.path().to_owned();
    let opened = |errno, is_read_only: bool| {
        let read_only = if is_read_only { vec![path.clone()] } else { vec![] };
        let roots = Roots::new(vec![path.clone()], read_only, 100);
        let stage = Staged::new();
        stage.fail(Call::OpenToWrite, "", 0, errno);
        let run = load(stage.storage(), roots, Access::ReadWrite);
        let file = run.files()[0].clone();
        assert_eq!(run.is_read_only(&file), is_read_only);
        let stat = run.open(&file).map(|open| open.stat().unwrap());
        stat.map(|FileStat { len, .. }| len)
    };
    assert_eq!(opened(EACCES, true).unwrap(), SIZE);
    for (errno, is_read_only) in [(EACCES, false), (EIO, true), (EIO, false)] {
        match opened(errno, is_read_only).unwrap_err() {
            Error::Io { op: Operation::Other("open"), source, .. } => {
                assert_eq!(source.raw_os_error(), Some(errno));
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn a_file_that_a_writer_is_making_is_no_fault_of_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let [whole, made] = [0, 200].map(|base| dir.path().join(format!("{base:020}")));
    fs::write(&whole, [1; 200]).unwrap();
    fs::write(&made, []).unwrap();
    let stage = Staged::new();
    let open = || folder::open(stage.storage(), dir.path(), None, 1000);
    assert!(matches!(open(), Err(Error::Corrupt(fault)) if fault.path == Some(made.clone())));
    let later = made.clone();
    stage.after_list(Box::new(move |_| fs::write(&later, [0; 200]).unwrap()));
    assert_eq!(open().unwrap().end_offset(), Some(400));
}
