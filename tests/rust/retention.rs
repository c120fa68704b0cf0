//! Acceptance cases RT: what goes when its time has come, or the disk is full, and who still reads it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use mqstore::Error;
use mqstore::config::{Retention, StoreConfig};
use mqstore::format::message::properties::{self, names};
use mqstore::log::read::scanner::Flow;
use mqstore::store::read::queue_read::{GetStatus, view_of};
use mqstore::store::read::scan::{OnDamage, Scan, ScanFilter};
use mqstore::store::write::retention::clean::Cleaned;
use mqstore::store::write::retention::{DiskUse, Fate, Occasion};
use mqstore::store::{KeyQuery, MessageStore, NewMessage};
use mqstore::time::CalendarTime;

use crate::support::storage::Staged;
use crate::support::{Home, flip, names_in, read_queue};

pub(crate) const NOW_MS: i64 = 1_700_000_000_000;
const EXPIRED_HOURS: u64 = 73;
pub(crate) const EMPTY: DiskUse = DiskUse { log_percent: 10, queue_percent: 10 };

/// A log of 128 bytes a file, seven entries in each file of queues and index.
pub(crate) fn config(is_the_hour: bool) -> StoreConfig {
    let hour = CalendarTime::local(NOW_MS).hour;
    let hour = if is_the_hour { hour } else { (hour + 1) % 24 };
    StoreConfig {
        mapped_file_size_commit_log: Some(128),
        mapped_file_size_consume_queue: Some(140),
        max_hash_slot_num: Some(7),
        max_index_num: Some(8),
        retention: Some(Retention::RocketMq),
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
    home_with(config(is_the_hour), files, expired)
}

fn home_with(
    config: StoreConfig,
    files: usize,
    expired: impl Fn(usize) -> bool,
) -> (Home, MessageStore) {
    let home = Home::new(config);
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

pub(crate) fn occasion(disk: DiskUse) -> Occasion {
    Occasion { now_ms: NOW_MS, disk, by_hand: false, backed_up_to: None }
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
fn a_reader_finds_nothing_missing_while_a_file_goes() {
    let mut home = Home::new(config(true));
    let stage = Staged::new();
    home.storage = stage.storage();
    let store = Arc::new(home.create());
    for number in 0..30 {
        put(&store, number).unwrap();
    }
    store.flush().unwrap();
    age(home.path(), |number| number < 8);
    let (reader, gone) = (Arc::downgrade(&store), Arc::new(Mutex::new(Vec::new())));
    let told = Arc::clone(&gone);
    stage.after_remove(Box::new(move |path| {
        let Some(store) = reader.upgrade() else { return };
        store.log().run().close_files();
        let first = store.queue(b"Topic", 0).unwrap().unwrap().min_offset;
        let left = 30 - usize::try_from(store.log().min_offset() / 128).unwrap();
        assert_eq!(read_queue(&store, 0, first).records.len(), left);
        assert_eq!((key_count(&store, 0), key_count(&store, 29)), (0, 1));
        let end = store.end_offset();
        let mut scanned = 0;
        Scan::new(0, u64::MAX, end, ScanFilter::ALL, OnDamage::Fail)
            .run(store.log(), |_, _| {
                scanned += 1;
                Ok(Flow::Continue)
            })
            .unwrap();
        assert_eq!(scanned, left);
        told.lock().unwrap().push(path.to_owned());
    }));
    assert_eq!(store.clean_step(&occasion(EMPTY)).unwrap().log_files, 8);
    let is_of_log = |path: &&PathBuf| path.to_string_lossy().contains("/commitlog/");
    assert_eq!(gone.lock().unwrap().iter().filter(is_of_log).count(), 8);
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
        let mut scan = Scan::new(0, u64::MAX, store.end_offset(), ScanFilter::ALL, OnDamage::Fail);
        let mut held = Vec::new();
        let mut take = |scan: &mut Scan, count: usize| {
            let mut taken = Vec::new();
            let _ = scan.run(reading.log(), |view, _| {
                taken.push(view.physical_offset() / 128);
                held.push(view.body()[0]);
                Ok(if taken.len() == count { Flow::Stop } else { Flow::Continue })
            });
            taken
        };
        let begun = take(&mut scan, 2);
        store.clean_step(&occasion(EMPTY)).unwrap();
        let rest = take(&mut scan, 1000);
        // Messages deleted meanwhile are skipped, all others come.
        let first = i64::try_from(store.log().min_offset() / 128).unwrap();
        assert_eq!(begun.len(), 2);
        assert_eq!(rest, (first..40).collect::<Vec<_>>());
    }
    // A record at hand stays as it is; by its place it is told to be gone.
    assert!(matches!(reader.get(0), Err(Error::OffsetOutOfRange { .. })));
    assert!(matches!(store.get(0), Err(Error::OffsetOutOfRange { .. })));
    let read = read_queue(&reader, 0, 0);
    assert_eq!((read.status, read.next_queue_offset), (GetStatus::OffsetTooSmall, 15));
    assert!(store.queue(b"Topic", 0).unwrap().unwrap().min_offset > 0);
    reader.refresh().unwrap();
    assert_eq!(reader.queue(b"Topic", 0).unwrap().unwrap().min_offset, 15);
}

#[test]
fn a_scan_ends_where_all_that_it_had_left_is_deleted() {
    let (_home, store) = home(true, 40, |number| number < 15);
    let scan = |on_damage| Scan::new(0, u64::MAX, 10 * 128, ScanFilter::ALL, on_damage);
    let mut scans = [scan(OnDamage::Fail), scan(OnDamage::Skip)];
    for scan in &mut scans {
        scan.run(store.log(), |_, _| Ok(Flow::Stop)).unwrap();
    }
    while !store.clean_step(&occasion(EMPTY)).unwrap().is_empty() {}
    assert_eq!(store.log().min_offset(), 15 * 128);
    for scan in &mut scans {
        let mut rest = 0;
        let ended = scan.run(store.log(), |_, _| {
            rest += 1;
            Ok(Flow::Continue)
        });
        assert!(ended.is_ok(), "{ended:?}");
        assert_eq!((rest, scan.skipped_ranges(), scan.skipped_bytes()), (0, 0, 0));
    }
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
fn a_clean_deletes_the_files_that_its_plan_names() {
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

#[test]
fn nothing_goes_without_rules_however_old_the_files_and_however_full_the_disk() {
    for retention in [None, Some(Retention::Off)] {
        let config = StoreConfig { retention, ..config(true) };
        let (home, store) = home_with(config, 15, |_| true);
        for percent in [10, 76, 87, 99, 100] {
            let cleaned = store.clean_step(&occasion(full(percent))).unwrap();
            assert!(cleaned.is_empty(), "{percent} % full, {retention:?}: {cleaned:?}");
            let judged = store.judge(&occasion(full(percent))).unwrap();
            assert_eq!(judged.files[0].fate, Fate::Off);
            assert_eq!(judged.new_log_start, 0);
        }
        // The rule of 90 % is RocketMQ's as well.
        assert_eq!(put(&store, 15).unwrap(), 15);
        assert_eq!(counts(&home).0, 16);
        assert!(store.notices().all().is_empty());
        // By hand RocketMQ's rules hold.
        let by_hand = Occasion { by_hand: true, ..occasion(EMPTY) };
        age(home.path(), |number| number < 5);
        assert_eq!(store.clean_step(&by_hand).unwrap().log_files, 5);
    }
}

/// A store of files whose messages were stored ten hours apart, and the last one now. By its clock
/// none is old, so that its own thread deletes nothing by hours.
fn ten_hours_apart(config: StoreConfig, files: usize) -> (Home, MessageStore) {
    let mut home = Home::new(StoreConfig { keep_hours: None, keep_bytes: None, ..config.clone() });
    let store = home.create();
    let at = |number: usize| NOW_MS - 10 * 3_600_000 * i64::try_from(files - 1 - number).unwrap();
    for number in 0..files {
        home.clock.set(at(number));
        put(&store, number).unwrap();
    }
    store.close().unwrap();
    home.clock.set(at(0));
    home.config = config;
    let store = home.write();
    (home, store)
}

pub(crate) fn limits(keep_hours: Option<u64>, keep_bytes: Option<u64>) -> StoreConfig {
    StoreConfig { retention: None, keep_hours, keep_bytes, ..config(false) }
}

/// Deletes all that goes, beside the store's own thread; returns where the log begins then.
fn cleaned_to(store: &MessageStore) -> u64 {
    loop {
        store.clean_step(&occasion(EMPTY)).unwrap();
        let judged = store.judge(&occasion(EMPTY)).unwrap();
        if judged.new_log_start == judged.log_start {
            return judged.log_start;
        }
    }
}

#[test]
fn keep_hours_goes_by_store_time_and_not_by_the_files_own() {
    for expired in [true, false] {
        let (home, store) = ten_hours_apart(limits(Some(72), None), 11);
        age(home.path(), |_| expired);
        let judged = store.judge(&occasion(full(99))).unwrap();
        let fates: Vec<_> = judged.files.iter().map(|file| file.fate).take(11).collect();
        assert_eq!(fates[..2], [Fate::Old { age_hours: 100 }, Fate::Old { age_hours: 90 }]);
        assert_eq!(fates[2..5], [Fate::Old { age_hours: 80 }, Fate::Kept, Fate::BehindKept]);
        let expected = Cleaned { log_files: 3, queue_files: 0, index_files: 0 };
        assert_eq!(store.clean_step(&occasion(full(99))).unwrap(), expected);
        assert!(store.clean_step(&occasion(full(99))).unwrap().is_empty());
        let queue = store.queue(b"Topic", 0).unwrap().unwrap();
        assert_eq!((queue.min_offset, queue.max_offset), (3, 11));
        assert_eq!(store.log().min_offset(), 3 * 128);
        // The last file stays, however old it is.
        let later = Occasion { now_ms: NOW_MS + 300 * 24 * 3_600_000, ..occasion(EMPTY) };
        assert_eq!(store.clean_step(&later).unwrap().log_files, 7);
        assert_eq!(counts(&home).0, 1);
    }
}

#[test]
fn keep_hours_waits_for_the_newest_message_of_a_file() {
    let config = StoreConfig { mapped_file_size_commit_log: Some(384), ..limits(Some(72), None) };
    // Three messages a file: the second file's are 90, 80 and 70 hours old.
    let (_home, store) = ten_hours_apart(config, 13);
    assert_eq!(store.clean_step(&occasion(EMPTY)).unwrap().log_files, 1);
    let judged = store.judge(&occasion(EMPTY)).unwrap();
    assert_eq!(judged.files[0].fate, Fate::Kept);
    let in_two_hours = Occasion { now_ms: NOW_MS + 2 * 3_600_000, ..occasion(EMPTY) };
    assert_eq!(store.clean_step(&in_two_hours).unwrap().log_files, 1);
}

#[test]
fn keep_bytes_leaves_so_many_at_the_end_of_the_log() {
    let (home, store) = ten_hours_apart(limits(None, Some(3 * 128)), 10);
    // The tenth file is not full yet.
    assert_eq!(cleaned_to(&store), 6 * 128);
    assert_eq!(counts(&home).0, 4);
    put(&store, 10).unwrap();
    store.flush().unwrap();
    assert_eq!(cleaned_to(&store), 7 * 128);
    // Where both limits are given, one is enough.
    let (_home, store) = ten_hours_apart(limits(Some(10_000), Some(3 * 128)), 10);
    assert_eq!(cleaned_to(&store), 6 * 128);
}

#[test]
fn limits_keep_what_is_not_dispatched_and_what_damage_hides() {
    let (_home, store) = ten_hours_apart(limits(Some(1), Some(1)), 5);
    store.hold_dispatch(true);
    for number in 5..9 {
        put(&store, number).unwrap();
    }
    assert_eq!(cleaned_to(&store), 4 * 128);
    let judged = store.judge(&occasion(EMPTY)).unwrap();
    assert_eq!(judged.files[0].fate, Fate::InUse);
    store.hold_dispatch(false);

    let (home, store) = ten_hours_apart(limits(Some(1), None), 5);
    flip(&names_in(&home.path().join("commitlog"))[1], 4);
    assert_eq!(store.clean_step(&occasion(EMPTY)).unwrap().log_files, 1);
    let judged = store.judge(&occasion(EMPTY)).unwrap();
    assert_eq!(judged.files[0].fate, Fate::Damaged);
    assert!(judged.files[0].fate.reason(&home.config).contains("verify"));
}

#[test]
fn a_deletion_is_told_with_the_groups_that_had_not_read_it() {
    let (home, store) = ten_hours_apart(limits(Some(72), None), 11);
    let offsets = r#"{"offsetTable":{"Topic@slow":{0:1},"Topic@done":{0:3},"Gone@slow":{0:0},
        "Topic@new\u001b":{0:0},"Topic@elsewhere":{1:7}}}"#;
    fs::create_dir_all(home.path().join("config")).unwrap();
    fs::write(home.path().join("config/consumerOffset.json"), offsets).unwrap();
    let judged = store.judge(&occasion(EMPTY)).unwrap();
    let unread: Vec<_> =
        judged.unread.iter().map(|unread| (unread.group.as_str(), unread.messages)).collect();
    assert_eq!(unread, [("elsewhere", 3), ("new\u{1b}", 3), ("slow", 2)]);
    assert!(store.notices().all().is_empty());
    store.clean_step(&occasion(EMPTY)).unwrap();
    let told = store.notices().take_new();
    let [told] = told.as_slice() else { panic!("{told:?}") };
    for part in [
        "deleted 3 of the log's files, 384 bytes, physical offsets 0 to 384",
        "more than keep_hours=72",
        "not read by group elsewhere: 3 of Topic, queue 0, ",
        r"group new\u{1b}: 3 of Topic, queue 0, group slow: 2 of Topic, queue 0",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert!(store.warnings().contains(told));
    store.clean_step(&occasion(EMPTY)).unwrap();
    assert!(!store.notices().has_new());
}

#[test]
fn a_deletion_that_no_program_was_told_of_is_told_by_the_next_open() {
    let (home, store) = ten_hours_apart(limits(Some(72), None), 11);
    store.clean_step(&occasion(EMPTY)).unwrap();
    let told = store.notices().all();
    assert_eq!(told.len(), 1);
    // The process ends without a further call.
    drop(store);
    let file = home.path().join("mqstore.deleted");
    assert!(home.read().warnings().contains(&told[0]));
    let store = home.write();
    assert_eq!(store.notices().take_new(), told);
    store.close().unwrap();
    assert!(!file.exists());
    assert!(home.write().notices().all().is_empty());
}

#[test]
fn an_announced_deletion_is_told_as_far_as_it_came() {
    let (home, store) = ten_hours_apart(limits(None, None), 11);
    store.close().unwrap();
    let file = home.path().join("mqstore.deleted");
    let announced = r#"[[0,384,"of three files"]]"#;
    fs::write(&file, announced).unwrap();
    assert!(home.read().notices().all().is_empty());
    fs::remove_file(home.path().join("commitlog").join(format!("{:020}", 0))).unwrap();
    let told = home.read().notices().all();
    assert_eq!(told, ["of three files; done up to 128"]);
    fs::write(&file, "[[0,384]]").unwrap();
    let told = home.read().notices().all();
    assert!(told[0].contains("mqstore.deleted") && told[0].contains("unknown"), "{told:?}");
    let store = home.write();
    store.close().unwrap();
    assert!(file.exists(), "told by no program yet");
    let store = home.write();
    assert_eq!(store.notices().take_new().len(), 1);
    store.close().unwrap();
    assert!(!file.exists());
}

#[test]
fn the_store_s_own_thread_deletes_by_limits_and_not_without() {
    let by_hand = StoreConfig { deletes_by_itself: false, ..limits(Some(72), None) };
    for (config, goes) in
        [(limits(Some(72), None), true), (limits(None, None), false), (by_hand, false)]
    {
        let config = StoreConfig { clean_resource_interval: 1, ..config };
        let (home, store) = ten_hours_apart(config, 11);
        home.clock.set(NOW_MS);
        // The thread looks again after each of these; without limits it never deletes.
        for _ in 0..if goes { 1000 } else { 20 } {
            // Not after the first of the files alone.
            if store.log().min_offset() == 3 * 128 {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        assert_eq!(store.log().min_offset(), if goes { 3 * 128 } else { 0 });
        store.close().unwrap();
        assert_eq!(home.read().log().min_offset(), if goes { 3 * 128 } else { 0 });
    }
}
