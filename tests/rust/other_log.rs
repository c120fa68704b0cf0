//! Logs in the place of the one that was read.

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use mqstore::format::crc;
use mqstore::log::read::anchor::Anchor;
use mqstore::log::read::scanner::{Flow, Item, Resync, Scanner};
use mqstore::log::{CommitLog, folder};
use mqstore::{Error, StoreConfig};

use crate::support::{Home, copy_folder, scan, small};

/// A closed store in one log file.
fn in_one_file(count: usize) -> Home {
    let home = Home::new(StoreConfig { mapped_file_size_commit_log: Some(1 << 20), ..small() });
    append_to(&home, 0..count);
    home
}

fn append_to(home: &Home, numbers: std::ops::Range<usize>) {
    let store = home.create();
    home.fill(&store, numbers);
    store.close().unwrap();
}

fn log_of(home: &Home) -> CommitLog {
    let folder = home.path().join("commitlog");
    let run = folder::open(Arc::clone(&home.storage), &folder, Some(4096), 0).unwrap();
    CommitLog::new(run, home.read().end_offset())
}

fn replace(home: &Home, with: &Home) {
    for entry in fs::read_dir(home.path()).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap();
        } else {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    copy_folder(with.path(), home.path());
}

#[test]
fn a_view_of_a_log_that_a_restored_copy_replaced_goes_on_with_nothing() {
    let home = in_one_file(40);
    let copy = home.copy();
    append_to(&home, 40..80);
    let reader = home.read();
    let place = reader.end_offset();
    // The log of the view itself, moved and grown.
    let moved = home.copy();
    replace(&home, &moved);
    append_to(&home, 80..81);
    reader.refresh().unwrap();
    let end = reader.end_offset();
    assert!(end > place);
    append_to(&copy, 500..580);
    replace(&home, &copy);
    for _ in 0..2 {
        let error = reader.refresh().unwrap_err();
        let Error::OtherLog { place: read, physical_offset, expected, found, .. } = &error else {
            panic!("{error}")
        };
        assert!((place..end).contains(physical_offset) && *read == end, "{error}");
        assert!(expected.contains("checksum") && expected != found, "{error}");
        assert_eq!(reader.end_offset(), end);
        assert!(matches!(reader.wait(end, Duration::ZERO), Err(Error::OtherLog { .. })));
    }
    reader.forget_log();
    reader.refresh().unwrap();
    assert_eq!(scan(&reader), scan(&home.read()));
}

#[test]
fn a_view_of_a_log_that_was_cut_shows_the_cut() {
    let home = in_one_file(40);
    let copy = home.copy();
    append_to(&home, 40..80);
    let reader = home.read();
    let end = reader.end_offset();
    replace(&home, &copy);
    // Even while it waits for more.
    assert!(!reader.wait(end, Duration::from_secs(60)).unwrap());
    assert!(reader.end_offset() < end);
    append_to(&home, 500..510);
    reader.refresh().unwrap();
    assert_eq!(scan(&reader), scan(&home.read()));
}

#[test]
fn a_view_whose_last_record_retention_deleted_goes_on() {
    let home = Home::closed(100);
    let reader = home.read();
    let end = reader.end_offset();
    append_to(&home, 100..200);
    for file in fs::read_dir(home.path().join("commitlog")).unwrap().map(Result::unwrap) {
        let base: u64 = file.file_name().to_str().unwrap().parse().unwrap();
        if base < end {
            fs::remove_file(file.path()).unwrap();
        }
    }
    reader.refresh().unwrap();
    assert_eq!(scan(&reader), scan(&home.read()));
}

#[test]
fn an_anchor_is_the_last_record_before_a_place_wherever_that_is() {
    let home = Home::closed(60);
    let log = log_of(&home);
    let mut scanner = Scanner::new(&log, 0, log.end_offset(), true);
    let mut last = None;
    let mut blanks = 0;
    let take = |range: Range<u64>, item: Item<'_, '_>| {
        match item {
            Item::Record(view, _) => {
                let crc = crc::crc32(view.as_bytes());
                let store_size = view.store_size();
                assert_eq!(Anchor::before(&log, range.start).unwrap(), last);
                last = Some(Anchor { physical_offset: range.start, store_size, crc });
            }
            _ => blanks += 1,
        }
        for place in [range.start + 1, range.start + 20, range.end] {
            assert_eq!(Anchor::before(&log, place).unwrap(), last, "{place}");
        }
        assert_eq!(last.unwrap().other(&log).unwrap(), None);
        Ok(Flow::Continue)
    };
    scanner.each(&log, log.end_offset(), Resync::Never, take).unwrap();
    assert!(blanks > 1, "{blanks}");
    let ladder = Anchor::ladder(&log, log.end_offset()).unwrap();
    assert_eq!(ladder[0], last.unwrap());
    assert!(ladder.len() == 2 && ladder[1].physical_offset + 4096 < log.end_offset(), "{ladder:?}");
    let other = Anchor { crc: 1, ..ladder[1] };
    assert_eq!(other.other(&log).unwrap().unwrap(), ladder[1].to_string());
    let inside = Anchor { physical_offset: ladder[1].physical_offset + 1, ..ladder[1] };
    assert_eq!(inside.other(&log).unwrap().unwrap(), "no record begins there");
}

#[test]
fn an_anchor_that_retention_deletes_while_it_is_compared_tells_nothing() {
    let home = Home::closed(60);
    let anchor = Anchor::before(&log_of(&home), 4096).unwrap().unwrap();
    let log = log_of(&home);
    // The listing still has the file, which is not open.
    fs::remove_file(&log.run().files()[0].path).unwrap();
    assert_eq!(log.min_offset(), 0);
    assert_eq!(anchor.other(&log).unwrap(), None);
}
