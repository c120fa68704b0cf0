//! Acceptance cases RT: what goes when its time has come, or the disk is full, and who still reads it.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use mqstore::Error;
use mqstore::config::StoreConfig;
use mqstore::format::properties::{self, names};
use mqstore::log::scanner::Taken;
use mqstore::store::clean::Cleaned;
use mqstore::store::pull::{GetStatus, view_of};
use mqstore::store::retention::{DiskUse, Fate, Occasion};
use mqstore::store::scan::{OnDamage, Scan, ScanFilter};
use mqstore::store::{KeyQuery, MessageStore, NewMessage};
use mqstore::time::CalendarTime;

use crate::support::{Home, names_in, read_queue};

const NOW_MS: i64 = 1_700_000_000_000;
const EXPIRED_HOURS: u64 = 73;
const EMPTY: DiskUse = DiskUse { log_percent: 10, queue_percent: 10 };

/// A log of 128 bytes a file, seven entries in each file of queues and index.
fn config(is_the_hour: bool) -> StoreConfig {
    let hour = CalendarTime::local(NOW_MS).hour;
    let hour = if is_the_hour { hour } else { (hour + 1) % 24 };
    StoreConfig {
        mapped_file_size_commit_log: Some(128),
        mapped_file_size_consume_queue: Some(140),
        max_hash_slot_num: Some(7),
        max_index_num: Some(8),
        delete_when: format!("{hour:02}"),
        ..StoreConfig::default()
    }
}

/// Appends message `number` with a record of 120 bytes and a key of its own.
fn put(store: &MessageStore, number: usize) -> mqstore::error::Result<i64> {
    let mut block = Vec::new();
    properties::push(&mut block, names::KEYS, format!("k{number:02}").as_bytes());
    let body = vec![b'a' + u8::try_from(number % 26).unwrap(); 120 - 91 - 5 - block.len()];
    let mut message = NewMessage::new(b"Topic", &body);
    message.properties = &block;
    let result = store.append(&message)?;
    assert_eq!(result.store_size, 120);
    Ok(result.queue_offset)
}

/// A store of so many files, those in `expired` last written long ago.
fn home(is_the_hour: bool, files: usize, expired: impl Fn(usize) -> bool) -> (Home, MessageStore) {
    let home = Home::new(config(is_the_hour));
    let store = home.create();
    for number in 0..files {
        put(&store, number).unwrap();
    }
    store.flush().unwrap();
    age(home.path(), expired);
    (home, store)
}

fn age(root: &Path, expired: impl Fn(usize) -> bool) {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(NOW_MS.unsigned_abs());
    for path in names_in(&root.join("commitlog")) {
        let number = usize::try_from(base_of(&path) / 128).unwrap();
        let hours = if expired(number) { EXPIRED_HOURS } else { 1 };
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(now - Duration::from_secs(hours * 3600)).unwrap();
    }
}

fn base_of(path: &Path) -> u64 {
    path.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn occasion(disk: DiskUse) -> Occasion {
    Occasion { now_ms: NOW_MS, disk, by_hand: false }
}

fn full(percent: u64) -> DiskUse {
    DiskUse { log_percent: percent, queue_percent: 10 }
}

/// Files of the log, of the queue, of the index. One made ahead of the log's end is not counted.
fn counts(home: &Home) -> (usize, usize, usize) {
    let log = names_in(&home.path().join("commitlog"));
    let used = log.iter().filter(|path| fs::read(path).unwrap().iter().any(|byte| *byte != 0));
    let queue = names_in(&home.path().join("consumequeue/Topic/0"));
    (used.count(), queue.len(), home.index_files().len())
}

fn key_count(store: &MessageStore, number: usize) -> usize {
    let key = format!("k{number:02}");
    let query = KeyQuery {
        topic: b"Topic",
        key: key.as_bytes(),
        begin_ms: 0,
        end_ms: i64::MAX,
        max_messages: 9,
        exact: true,
    };
    store.query(&query).unwrap().records.len()
}

#[test]
fn rt01_ten_files_a_pass_and_queues_and_index_follow() {
    let (home, store) = home(true, 55, |number| number < 15);
    assert_eq!(counts(&home), (55, 8, 8));
    let first = store.clean_step(&occasion(EMPTY)).unwrap();
    assert_eq!(first, Cleaned { log_files: 10, queue_files: 1, index_files: 1 });
    assert_eq!(counts(&home), (45, 7, 7));
    let second = store.clean_step(&occasion(EMPTY)).unwrap();
    assert_eq!(second, Cleaned { log_files: 5, queue_files: 1, index_files: 1 });
    assert_eq!(counts(&home), (40, 6, 6));
    assert!(store.clean_step(&occasion(EMPTY)).unwrap().is_empty());
    let queue = store.queue(b"Topic", 0).unwrap().unwrap();
    assert_eq!((queue.min_offset, queue.max_offset), (15, 55));
    assert_eq!((key_count(&store, 14), key_count(&store, 15)), (0, 1));
    assert_eq!(read_queue(&store, 0, 15).records.len(), 40);
    assert_eq!(put(&store, 55).unwrap(), 55);
}

#[test]
fn rt02_the_first_that_is_not_expired_stops_it() {
    let (home, store) = home(true, 50, |number| !(5..=20).contains(&number));
    store.clean_step(&occasion(EMPTY)).unwrap();
    assert_eq!(counts(&home).0, 45);
    assert!(store.clean_step(&occasion(EMPTY)).unwrap().is_empty());
    // The last file is never deleted, however old.
    age(home.path(), |_| true);
    while !store.clean_step(&occasion(EMPTY)).unwrap().is_empty() {}
    assert_eq!(counts(&home).0, 1);
    assert_eq!(put(&store, 50).unwrap(), 50);
}

#[test]
fn rt03_nothing_goes_at_another_hour_while_the_disk_has_room() {
    let (home, store) = home(false, 55, |number| number < 15);
    assert!(store.clean_step(&occasion(EMPTY)).unwrap().is_empty());
    assert!(store.clean_step(&occasion(full(75))).unwrap().is_empty());
    assert_eq!(counts(&home), (55, 8, 8));
    let judged = store.judge(&occasion(EMPTY)).unwrap();
    assert_eq!(judged.files[0].fate, Fate::NotNow { age_hours: 73 });
    // Past the first level of space, or by hand, the hour does not matter.
    assert_eq!(store.clean_step(&occasion(full(76))).unwrap().log_files, 10);
    let by_hand = Occasion { by_hand: true, ..occasion(EMPTY) };
    assert_eq!(store.clean_step(&by_hand).unwrap().log_files, 5);
}

#[test]
fn rt04_past_the_second_level_files_go_before_their_time() {
    let (home, store) = home(false, 55, |_| false);
    assert!(store.clean_step(&occasion(full(85))).unwrap().is_empty());
    assert_eq!(store.clean_step(&occasion(full(86))).unwrap().log_files, 10);
    assert_eq!(store.clean_step(&occasion(full(86))).unwrap().log_files, 10);
    assert_eq!(counts(&home).0, 35);
    let queues = DiskUse { log_percent: 10, queue_percent: 86 };
    assert_eq!(store.clean_step(&occasion(queues)).unwrap().log_files, 10);
    store.close().unwrap();
    let mut tame = home;
    tame.config.clean_file_forcibly_enable = false;
    let store = tame.write();
    assert!(store.clean_step(&occasion(full(99))).unwrap().is_empty());
}

#[test]
fn rt05_past_the_third_level_nothing_is_appended_until_there_is_room() {
    let (_home, store) = home(false, 3, |_| false);
    store.clean_step(&occasion(full(91))).unwrap();
    match put(&store, 3) {
        Err(Error::Io { source, .. }) => {
            assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
        }
        other => panic!("{other:?}"),
    }
    store.clean_step(&occasion(full(90))).unwrap();
    assert_eq!(put(&store, 3).unwrap(), 3);
}

#[test]
fn rt06_who_reads_a_deleted_file_reads_on() {
    let (home, store) = home(true, 40, |number| number < 15);
    let reader = home.read();
    for reading in [&store, &reader] {
        let mut scan = Scan::new(0, u64::MAX, store.end_offset(), ScanFilter::ALL, OnDamage::Raise);
        let mut held = Vec::new();
        let mut take = |scan: &mut Scan, count: usize| {
            let mut taken = Vec::new();
            let _ = scan.run(reading.log(), |view, _| {
                taken.push(view.physical_offset() / 128);
                held.push(view.body()[0]);
                Ok(if taken.len() == count { Taken::Last } else { Taken::More })
            });
            taken
        };
        let begun = take(&mut scan, 2);
        store.clean_step(&occasion(EMPTY)).unwrap();
        let rest = take(&mut scan, 1000);
        // What was deleted meanwhile is left out, all else comes.
        let first = i64::try_from(store.log().min_offset() / 128).unwrap();
        assert_eq!(begun.len(), 2);
        assert_eq!(rest, (first..40).collect::<Vec<_>>());
    }
    // A record at hand stays as it is; by its place it is told to be gone.
    assert!(matches!(reader.get(0), Err(Error::OffsetOutOfRange { .. })));
    assert!(matches!(store.get(0), Err(Error::OffsetOutOfRange { .. })));
    let read = read_queue(&reader, 0, 0);
    assert_eq!((read.status, read.next_queue_offset), (GetStatus::OffsetFoundNull, 14));
    assert!(store.queue(b"Topic", 0).unwrap().unwrap().min_offset > 0);
    reader.refresh().unwrap();
    assert_eq!(reader.queue(b"Topic", 0).unwrap().unwrap().min_offset, 15);
}

#[test]
fn rt07_an_emptied_queue_keeps_its_numbers() {
    let (home, store) = home(true, 0, |_| false);
    for number in 0..9 {
        put(&store, number).unwrap();
    }
    for _ in 0..5 {
        store.append(&NewMessage::new(b"Other", &[0; 24])).unwrap();
    }
    store.flush().unwrap();
    age(home.path(), |number| number < 9);
    let emptied = |store: &MessageStore| {
        let queue = store.queue(b"Topic", 0).unwrap().unwrap();
        assert_eq!((queue.min_offset, queue.max_offset), (9, 9));
    };
    assert_eq!(store.clean_step(&occasion(EMPTY)).unwrap().log_files, 9);
    emptied(&store);
    store.close().unwrap();
    let store = home.write();
    emptied(&store);
    assert_eq!(store.recovery().unwrap().rebuilt, Vec::<String>::new());
    assert_eq!(put(&store, 9).unwrap(), 9);
}

#[test]
fn rt08_a_deletion_stopped_half_way_is_finished() {
    let (first, store) = home(true, 55, |number| number < 15);
    for gone in [1, 7, 10, 14] {
        let home = first.copy();
        for number in 0..gone {
            let name = format!("commitlog/{:020}", number * 128);
            fs::remove_file(home.path().join(name)).unwrap();
        }
        let start = u64::try_from(gone).unwrap() * 128;
        let reader = home.read();
        let read = read_queue(&reader, 0, 0);
        assert!(read.records.is_empty(), "{:?}", read.status);
        let opened = home.write();
        let queue = opened.queue(b"Topic", 0).unwrap().unwrap();
        assert_eq!((queue.min_offset, queue.max_offset), (i64::try_from(gone).unwrap(), 55));
        assert_eq!(key_count(&opened, gone - 1), 0);
        let all = read_queue(&opened, 0, queue.min_offset);
        assert_eq!(all.records.len(), 55 - gone);
        let begin = view_of(&all.records[0]).unwrap().physical_offset();
        assert_eq!(u64::try_from(begin).unwrap(), start);
        age(home.path(), |number| number < 15);
        while !opened.clean_step(&occasion(EMPTY)).unwrap().is_empty() {}
        assert_eq!(counts(&home), (40, 6, 6), "{gone} were gone");
        opened.close().unwrap();
    }
    drop(store);
}

#[test]
fn a_file_that_is_not_flushed_or_not_dispatched_stays() {
    let home = Home::new(config(true));
    let store = home.create();
    put(&store, 0).unwrap();
    put(&store, 1).unwrap();
    store.flush().unwrap();
    store.hold_dispatch(true);
    for number in 2..9 {
        put(&store, number).unwrap();
    }
    age(home.path(), |_| true);
    // The second file's blank is not dispatched either.
    let judged = store.judge(&occasion(EMPTY)).unwrap();
    assert_eq!(judged.files[1].fate, Fate::InUse);
    assert_eq!(store.clean_step(&occasion(EMPTY)).unwrap().log_files, 1);
    store.hold_dispatch(false);
    store.flush().unwrap();
    age(home.path(), |_| true);
    assert_eq!(store.clean_step(&occasion(EMPTY)).unwrap().log_files, 7);
    assert_eq!(read_queue(&store, 0, 8).records.len(), 1);
}

#[test]
fn what_is_judged_is_what_is_done() {
    for (disk, by_hand) in [(EMPTY, false), (EMPTY, true), (full(86), false), (full(95), true)] {
        let (home, store) = home(false, 55, |number| number < 15);
        let occasion = Occasion { disk, by_hand, ..occasion(EMPTY) };
        let judged = store.judge(&occasion).unwrap();
        let before: Vec<_> =
            judged.files.iter().filter(|file| file.path.exists()).cloned().collect();
        store.clean_step(&occasion).unwrap();
        for file in before {
            assert_eq!(file.path.exists(), !file.fate.goes(), "{file:?}");
            assert!(!file.fate.reason(&home.config).is_empty());
        }
    }
}
