//! Adding, reading, truncating and expiring entries.

use super::*;
use crate::files::{Access, Os};
use std::path::Path;
use std::sync::Arc;

fn queue(dir: &Path, file_size: u64) -> ConsumeQueue {
    let dirs = vec![dir.join("T/0")];
    let (run, _) =
        FileRun::load(Arc::new(Os), Arc::default(), dirs, file_size, Access::ReadWrite).unwrap();
    ConsumeQueue::load(b"T", 0, run).unwrap()
}

fn entry(number: i64) -> QueueEntry {
    QueueEntry { physical_offset: number * 1000, store_size: 1000, tags_code: number }
}

fn hundred(dir: &Path) -> ConsumeQueue {
    let queue = queue(dir, 140);
    for number in 0..100 {
        assert_eq!(queue.add(number, entry(number)).unwrap(), Added::Appended);
    }
    queue
}

#[test]
fn cq01_reading_outside_gives_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let queue = hundred(dir.path());
    assert!(queue.read(-1, 10).unwrap().is_empty());
    assert!(queue.read(100, 10).unwrap().is_empty());
}

#[test]
fn cq02_reading_from_any_entry_gives_the_rest_in_memory_and_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let queue = hundred(dir.path());
    for flushed in [false, true] {
        if flushed {
            queue.flush().unwrap();
        }
        for from in 0..100_i64 {
            let expected: Vec<_> = (from..100).map(entry).collect();
            assert_eq!(queue.read(from, 1000).unwrap(), expected);
        }
    }
}

#[test]
fn cq03_first_last_and_total_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    hundred(dir.path()).flush().unwrap();
    let queue = queue(dir.path(), 140);
    assert_eq!((queue.min_offset(), queue.max_offset()), (0, 100));
    assert_eq!(queue.entry(0).unwrap(), Some(entry(0)));
    assert_eq!(queue.entry(99).unwrap(), Some(entry(99)));
    assert_eq!(queue.max_physical_offset(), 100_000);
}

#[test]
fn cq06_a_message_dispatched_before_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let queue = hundred(dir.path());
    assert_eq!(queue.add(0, entry(0)).unwrap(), Added::Known);
    assert_eq!(queue.max_offset(), 100);
}

#[test]
fn cq07_a_queue_may_begin_at_any_number() {
    let dir = tempfile::tempdir().unwrap();
    let queue = queue(dir.path(), 6_000_000);
    queue.add(1000, QueueEntry { physical_offset: 0, store_size: 100, tags_code: 7 }).unwrap();
    assert_eq!((queue.min_offset(), queue.max_offset()), (1000, 1001));
    for number in [0, 999] {
        let blank = queue.entry(number).unwrap().unwrap();
        assert_eq!(
            (blank.physical_offset, blank.store_size, blank.tags_code),
            (0, 2_147_483_647, 0)
        );
    }
    queue.flush().unwrap();
    queue.correct_min_offset(0).unwrap();
    assert_eq!(queue.min_offset(), 1000);
}

#[test]
fn cq07_a_far_number_begins_in_its_own_file() {
    let dir = tempfile::tempdir().unwrap();
    let queue = queue(dir.path(), 140);
    queue.add(16, entry(16)).unwrap();
    queue.flush().unwrap();
    assert_eq!(queue.run().min_offset(), Some(280));
    assert_eq!(queue.read(14, 5).unwrap().len(), 3);
}

#[test]
fn cq08_min_offset_follows_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let queue = queue(dir.path(), 6_000_000);
    for number in 0..10_000_i64 {
        let at = QueueEntry { physical_offset: number * 100, store_size: 100, tags_code: 0 };
        queue.add(number, at).unwrap();
    }
    for (log_min, expected) in [(0, 0), (2_000, 20), (1_000_000, 10_000)] {
        queue.correct_min_offset(log_min).unwrap();
        assert_eq!((queue.min_offset(), queue.max_offset()), (expected, 10_000));
    }
}

#[test]
fn truncated_entries_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let first = hundred(dir.path());
    first.flush().unwrap();
    first.truncate(45).unwrap();
    assert_eq!((first.max_offset(), first.max_physical_offset()), (45, 45_000));
    first.flush().unwrap();
    let again = queue(dir.path(), 140);
    assert_eq!(again.max_offset(), 45);
    again.truncate(0).unwrap();
    assert_eq!((again.max_offset(), again.max_physical_offset()), (0, -1));
    assert_eq!(queue(dir.path(), 140).max_offset(), 0);
}

#[test]
fn expired_files_go_but_never_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let queue = hundred(dir.path());
    queue.flush().unwrap();
    assert_eq!(queue.run().files().len(), 15);
    assert_eq!(queue.delete_expired(14_000).unwrap(), 2);
    assert_eq!(queue.delete_expired(u64::MAX).unwrap(), 12);
    assert_eq!(queue.max_offset(), 100);
}

#[test]
fn a_number_out_of_reach_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let queue = hundred(dir.path());
    for number in [i64::MAX, 1000] {
        let far = QueueEntry { physical_offset: 1 << 40, store_size: 1, tags_code: 0 };
        assert!(queue.add(number, far).is_err());
    }
    assert_eq!(queue.max_offset(), 100);
}
