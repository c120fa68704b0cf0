use super::*;
use crate::files::{Access, Os};
use crate::format::queue::batch::BatchQueueEntry;
use std::path::Path;
use std::sync::Arc;

fn load(kind: QueueKind, dir: &Path, file_size: u64) -> Queue {
    let dirs = vec![dir.join("T/0")];
    let (run, _) =
        FileRun::load(Arc::new(Os), Arc::default(), dirs, file_size, Access::ReadWrite).unwrap();
    Queue::load(kind, b"T", 0, run).unwrap()
}

fn queue(dir: &Path, file_size: u64) -> Queue {
    load(QueueKind::Plain, dir, file_size)
}

fn batch_queue(dir: &Path) -> Queue {
    load(QueueKind::Batch, dir, 230)
}

fn add(queue: &Queue, number: i64, entry: QueueEntry) -> Result<Added> {
    queue.add(&CqUnit::plain(number, entry))
}

fn read(queue: &Queue, from: i64, count: usize) -> Vec<QueueEntry> {
    queue.units(from, count).unwrap().iter().map(CqUnit::entry).collect()
}

fn entry(number: i64) -> QueueEntry {
    QueueEntry { physical_offset: number * 1000, store_size: 1000, tags_code: number }
}

fn hundred(dir: &Path) -> Queue {
    let queue = queue(dir, 140);
    for number in 0..100 {
        assert_eq!(add(&queue, number, entry(number)).unwrap(), Added::Appended);
    }
    queue
}

#[test]
fn cq01_reading_outside_gives_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let queue = hundred(dir.path());
    assert!(read(&queue, -1, 10).is_empty());
    assert!(read(&queue, 100, 10).is_empty());
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
            assert_eq!(read(&queue, from, 1000), expected);
        }
    }
}

#[test]
fn cq03_first_last_and_total_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    hundred(dir.path()).flush().unwrap();
    let queue = queue(dir.path(), 140);
    assert_eq!((queue.min_offset(), queue.max_offset()), (0, 100));
    assert_eq!(queue.unit(0).unwrap().map(|unit| unit.entry()), Some(entry(0)));
    assert_eq!(queue.unit(99).unwrap().map(|unit| unit.entry()), Some(entry(99)));
    assert_eq!(queue.max_physical_offset(), 100_000);
}

#[test]
fn cq06_a_message_dispatched_before_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let queue = hundred(dir.path());
    assert_eq!(add(&queue, 0, entry(0)).unwrap(), Added::Known);
    assert_eq!(queue.max_offset(), 100);
}

#[test]
fn cq07_a_queue_may_begin_at_any_number() {
    let dir = tempfile::tempdir().unwrap();
    let queue = queue(dir.path(), 6_000_000);
    add(&queue, 1000, QueueEntry { physical_offset: 0, store_size: 100, tags_code: 7 }).unwrap();
    assert_eq!((queue.min_offset(), queue.max_offset()), (1000, 1001));
    for number in [0, 999] {
        let blank = queue.unit(number).unwrap().map(|unit| unit.entry()).unwrap();
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
    add(&queue, 16, entry(16)).unwrap();
    queue.flush().unwrap();
    assert_eq!(queue.run().min_offset(), Some(280));
    assert_eq!(read(&queue, 14, 5).len(), 3);
}

#[test]
fn cq08_min_offset_follows_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let queue = queue(dir.path(), 6_000_000);
    for number in 0..10_000_i64 {
        let at = QueueEntry { physical_offset: number * 100, store_size: 100, tags_code: 0 };
        add(&queue, number, at).unwrap();
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
        assert!(add(&queue, number, far).is_err());
    }
    assert_eq!(queue.max_offset(), 100);
}

fn batch(number: i64, base: i64, count: i16) -> CqUnit {
    CqUnit::batch(BatchQueueEntry {
        physical_offset: number * 100,
        store_size: 100,
        tags_code: number,
        store_timestamp_ms: 1000 + number,
        base_queue_offset: base,
        message_count: count,
        compacted_offset: -1,
    })
}

/// Twelve records of 1, 2, 3, 1, 2, 3, ... messages, with their base offsets.
fn twelve(queue: &Queue) -> Vec<i64> {
    let mut bases = Vec::new();
    let mut base = 0;
    for number in 0..12 {
        let count = 1 + (number % 3) as i16;
        assert_eq!(queue.add(&batch(number, base, count)).unwrap(), Added::Appended);
        bases.push(base);
        base += i64::from(count);
    }
    bases
}

#[test]
fn any_offset_of_a_batch_leads_to_its_record_in_memory_and_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let written = batch_queue(dir.path());
    let bases = twelve(&written);
    assert_eq!((written.max_offset(), written.max_physical_offset()), (24, 1100));
    let check = |read: &Queue| {
        for offset in 0..24 {
            let unit = read.units(offset, 1).unwrap()[0];
            let base = *bases.iter().rev().find(|&&base| base <= offset).unwrap();
            assert_eq!(unit.number, base, "offset {offset}");
            let rest = bases.iter().filter(|&&other| other >= base).count();
            assert_eq!(read.units(offset, 100).unwrap().len(), rest);
        }
        assert!(read.units(24, 1).unwrap().is_empty() && read.units(-1, 1).unwrap().is_empty());
        assert_eq!((read.min_offset(), read.max_offset(), read.reach()), (0, 24, 1200));
    };
    check(&written);
    written.flush().unwrap();
    check(&batch_queue(dir.path()));
}

#[test]
fn a_record_dispatched_before_and_an_offset_taken_before_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let queue = batch_queue(dir.path());
    twelve(&queue);
    assert_eq!(queue.add(&batch(11, 24, 1)).unwrap(), Added::Known);
    assert_eq!(queue.add(&batch(12, 23, 1)).unwrap(), Added::Known);
    for (base, count) in [(-1, 1), (24, 0), (24, -1), (i64::MAX, 1), (1 << 40, 1)] {
        assert!(queue.add(&batch(12, base, count)).is_err(), "{base} {count}");
    }
    assert_eq!(queue.max_offset(), 24);
    assert_eq!(queue.add(&batch(12, 30, 5)).unwrap(), Added::Appended);
    assert_eq!(queue.units(26, 1).unwrap()[0].number, 30);
}

#[test]
fn cut_batch_entries_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let first = batch_queue(dir.path());
    let bases = twelve(&first);
    first.flush().unwrap();
    first.truncate(bases[7]).unwrap();
    assert_eq!((first.max_offset(), first.max_physical_offset()), (bases[7], 600));
    first.flush().unwrap();
    let again = batch_queue(dir.path());
    assert_eq!(again.max_offset(), bases[7]);
    again.truncate(0).unwrap();
    assert_eq!((again.max_offset(), again.max_physical_offset()), (0, -1));
    assert_eq!(batch_queue(dir.path()).max_offset(), 0);
}

#[test]
fn the_first_offset_of_a_batch_queue_follows_the_log_and_files_go() {
    let dir = tempfile::tempdir().unwrap();
    let queue = batch_queue(dir.path());
    let bases = twelve(&queue);
    queue.flush().unwrap();
    for (log_min, expected) in [(0, 0), (600, bases[6]), (601, bases[7]), (9999, 24)] {
        queue.correct_min_offset(log_min).unwrap();
        assert_eq!(queue.min_offset(), expected);
    }
    assert_eq!(queue.delete_expired(500).unwrap(), 1);
    assert_eq!(queue.units(0, 1).unwrap()[0].number, bases[5]);
    assert_eq!(queue.positions(), 5..12);
    assert_eq!(queue.delete_expired(u64::MAX).unwrap(), 1);
    assert_eq!((queue.positions(), queue.max_offset()), (10..12, 24));
}
