//! A store whose folder is moved, removed or replaced under its writer.

use std::fs;
use std::path::{Path, PathBuf};

use mqstore::Error;
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::store::{MessageStore, OpenMode};

use crate::support::{append, collect, scan, scratch, small};

/// A folder with room for a store and for where it is moved to.
struct Place {
    _dir: tempfile::TempDir,
    store: PathBuf,
    moved: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = scratch();
        let (store, moved) = (dir.path().join("store"), dir.path().join("moved"));
        Self { _dir: dir, store, moved }
    }

    fn mv(&self) {
        fs::rename(&self.store, &self.moved).unwrap();
    }
}

fn open(path: &Path, flush: FlushDiskType) -> MessageStore {
    let config = StoreConfig { flush_disk_type: flush, ..small() };
    MessageStore::open(path, OpenMode::Create, config).unwrap()
}

fn body(number: usize) -> Vec<u8> {
    vec![u8::try_from(number % 251).unwrap(); 300]
}

/// Appends until the store refuses; how many it took, and the path that the error names.
fn append_on(store: &MessageStore, from: usize) -> (usize, PathBuf) {
    for number in from..from + 1000 {
        match append(store, number, &body(number)) {
            Ok(_) => {}
            Err(Error::Poisoned { path, reason }) => {
                assert!(reason.contains("moved, removed or replaced"), "{reason}");
                assert!(matches!(append(store, number, b"").unwrap_err(), Error::Poisoned { .. }));
                return (number, path);
            }
            Err(error) => panic!("message {number}: {error}"),
        }
    }
    panic!("1000 messages went somewhere");
}

/// Holds that the first `count` messages at least lie in a store.
fn holds(path: &Path, count: usize) {
    let store = open(path, FlushDiskType::Sync);
    let (found, damage) = scan(&store);
    assert_eq!(damage, 0);
    assert!(found.len() >= count, "{} of {count}", found.len());
    assert!(found.iter().enumerate().all(|(number, found)| *found == body(number)));
    store.close().unwrap();
}

fn files_in(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    collect(path, path, &mut files);
    files
}

fn filled(place: &Place, flush: FlushDiskType) -> MessageStore {
    let store = open(&place.store, flush);
    for number in 0..20 {
        append(&store, number, &body(number)).unwrap();
    }
    store
}

#[test]
fn a_store_that_is_moved_stops_its_writer_and_holds_all_that_was_acknowledged() {
    for flush in [FlushDiskType::Sync, FlushDiskType::Async] {
        let place = Place::new();
        let store = filled(&place, flush);
        place.mv();
        let (taken, named) = append_on(&store, 20);
        if flush == FlushDiskType::Sync {
            assert_eq!(taken, 20, "no message is acknowledged behind the move");
        }
        assert_eq!(named, place.store);
        assert!(matches!(store.flush().unwrap_err(), Error::Poisoned { .. }));
        assert!(matches!(store.close().unwrap_err(), Error::Poisoned { .. }));
        assert!(!place.store.exists(), "it is made again at the old path");
        holds(&place.moved, taken);
    }
}

#[test]
fn a_second_store_at_the_old_path_is_not_touched() {
    for flush in [FlushDiskType::Sync, FlushDiskType::Async] {
        let place = Place::new();
        let store = filled(&place, flush);
        // As long as the first one's log, so that the next file has the same name in both.
        let other = Place::new();
        filled(&other, flush).close().unwrap();
        place.mv();
        fs::rename(&other.store, &place.store).unwrap();
        let before = files_in(&place.store);
        let (taken, named) = append_on(&store, 20);
        assert_eq!(named, place.store);
        assert!(store.close().is_err());
        assert!(files_in(&place.store) == before, "the second store was changed");
        holds(&place.moved, taken);
        holds(&place.store, 20);
    }
}

#[test]
fn a_commit_log_or_a_lock_that_is_replaced_ends_writing_too() {
    for name in ["commitlog", "lock"] {
        let place = Place::new();
        let store = filled(&place, FlushDiskType::Sync);
        fs::rename(place.store.join(name), &place.moved).unwrap();
        let (taken, named) = append_on(&store, 20);
        assert_eq!((taken, named), (20, place.store.join(name)));
        assert!(!place.store.join(name).exists());
        assert!(store.close().is_err());
        fs::rename(&place.moved, place.store.join(name)).unwrap();
        holds(&place.store, 20);
    }
}

#[test]
fn a_flush_tells_that_the_store_was_moved() {
    let place = Place::new();
    let store = filled(&place, FlushDiskType::Async);
    place.mv();
    match store.flush().unwrap_err() {
        Error::Poisoned { path, .. } => assert_eq!(path, place.store),
        error => panic!("{error}"),
    }
    append(&store, 20, b"").unwrap_err();
    drop(store);
    holds(&place.moved, 20);
}
