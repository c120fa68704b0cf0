use super::*;
use crate::format::message::properties::{self, names};
use crate::log::read::scanner::{Flow, Item, Resync};
use crate::store::read::queue_read::view_of;
use crate::store::write::retention::{DiskUse, Occasion};
use crate::store::write::writer::CHUNK;
use crate::store::{GetStatus, RecoveryMode};

fn config() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(4096),
        mapped_file_size_consume_queue: Some(200),
        max_hash_slot_num: Some(7),
        max_index_num: Some(28),
        ..StoreConfig::default()
    }
}

fn open(path: &Path, mode: OpenMode) -> Result<MessageStore> {
    MessageStore::open(path, mode, config())
}

fn properties(number: usize) -> Vec<u8> {
    let mut out = Vec::new();
    properties::push(&mut out, names::TAGS, format!("tag{}", number % 3).as_bytes());
    properties::push(&mut out, names::KEYS, format!("k{number} even{}", number % 2).as_bytes());
    out
}

fn fill(store: &MessageStore, from: usize, to: usize) {
    for number in from..to {
        let properties = properties(number);
        let body = format!("body {number}").repeat(number % 7 + 1);
        let mut message = NewMessage::new(b"Topic", body.as_bytes());
        message.queue_id = i32::try_from(number % 4).unwrap();
        message.properties = &properties;
        store.append(&message).unwrap();
    }
}

fn check(store: &MessageStore, count: usize) {
    for queue in 0..4_usize {
        let queue_id = i32::try_from(queue).unwrap();
        let wanted = (0..count).filter(|number| number % 4 == queue).count();
        let filter = TagFilter::ALL;
        let read = store.read(b"Topic", queue_id, 0, 100_000, None, &filter).unwrap();
        assert_eq!(read.records.len(), wanted, "queue {queue} of {count}");
        for (at, record) in read.records.iter().enumerate() {
            let number = at * 4 + queue;
            let view = view_of(record).unwrap();
            assert_eq!(view.queue_offset(), i64::try_from(at).unwrap());
            assert!(view.body().starts_with(format!("body {number}").as_bytes()));
        }
    }
    for number in (0..count).step_by(17) {
        let key = format!("k{number}");
        let query = KeyQuery {
            topic: b"Topic",
            key: key.as_bytes(),
            begin_ms: 0,
            end_ms: i64::MAX,
            max_messages: 10,
            exact: true,
        };
        let found = store.query(&query).unwrap();
        assert_eq!(found.records.len(), 1, "key {key} of {count}");
    }
    let evens = KeyQuery {
        topic: b"Topic",
        key: b"even0",
        begin_ms: 0,
        end_ms: i64::MAX,
        max_messages: count,
        exact: true,
    };
    let found = store.query(&evens).unwrap();
    assert_eq!((found.records.len(), found.truncated), (count.div_ceil(2), false));
    let offsets: Vec<_> =
        found.records.iter().map(|record| view_of(record).unwrap().physical_offset()).collect();
    assert!(offsets.is_sorted_by(|a, b| a > b));
}

#[test]
fn appended_messages_are_read_before_and_after_a_clean_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create).unwrap();
    assert_eq!(store.recovery().unwrap().mode, RecoveryMode::New);
    fill(&store, 0, 500);
    check(&store, 500);
    let reader = open(dir.path(), OpenMode::Read).unwrap();
    check(&reader, 500);
    let end = store.end_offset();
    store.close().unwrap();
    assert!(!dir.path().join("abort").exists());
    let store = open(dir.path(), OpenMode::ReadWrite).unwrap();
    assert_eq!(store.recovery().unwrap().mode, RecoveryMode::Clean);
    assert_eq!(store.recovery().unwrap().rebuilt, Vec::<String>::new());
    assert_eq!(store.end_offset(), end);
    fill(&store, 500, 600);
    check(&store, 600);
}

#[test]
fn files_made_ready_whole_hold_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { warm_maped_file_enable: true, ..config() };
    let warm = |mode| MessageStore::open(dir.path(), mode, config.clone()).unwrap();
    let store = warm(OpenMode::Create);
    fill(&store, 0, 100);
    store.close().unwrap();
    let store = warm(OpenMode::ReadWrite);
    fill(&store, 100, 200);
    assert!(store.log().run().files().len() > 3);
    check(&store, 200);
    store.close().unwrap();
}

/// As a killed process leaves a store.
fn crashed_copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            crashed_copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_crashed_store_answers_whole_for_reading_and_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create).unwrap();
    fill(&store, 0, 300);
    let copy = tempfile::tempdir().unwrap();
    crashed_copy(dir.path(), copy.path());
    drop(store);
    let reader = open(copy.path(), OpenMode::Read).unwrap();
    check(&reader, 300);
    drop(reader);
    let store = open(copy.path(), OpenMode::ReadWrite).unwrap();
    assert_eq!(store.recovery().unwrap().mode, RecoveryMode::Crash);
    check(&store, 300);
    fill(&store, 300, 400);
    check(&store, 400);
}

#[test]
fn lost_queues_and_index_are_made_again_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create).unwrap();
    fill(&store, 0, 300);
    store.close().unwrap();
    let queue = dir.path().join("consumequeue/Topic/1/00000000000000000200");
    let before = std::fs::read(&queue).unwrap();
    for lost in
        [&["consumequeue"][..], &["index"], &["consumequeue", "index"], &["consumequeue/Topic/1"]]
    {
        for folder in lost {
            std::fs::remove_dir_all(dir.path().join(folder)).unwrap();
        }
        let reader = open(dir.path(), OpenMode::Read).unwrap();
        if lost != ["consumequeue/Topic/1"] {
            check(&reader, 300);
        }
        let store = open(dir.path(), OpenMode::ReadWrite).unwrap();
        assert!(!store.recovery().unwrap().rebuilt.is_empty());
        check(&store, 300);
        store.close().unwrap();
        assert!(std::fs::read(&queue).unwrap() == before, "{lost:?}");
    }
}

#[test]
fn ck05_a_second_writer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create).unwrap();
    let error = open(dir.path(), OpenMode::ReadWrite).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    store.close().unwrap();
    open(dir.path(), OpenMode::ReadWrite).unwrap();
}

#[test]
fn sync_flush_answers_after_the_flush_and_dispatches() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { flush_disk_type: FlushDiskType::Sync, ..config() };
    let store = Arc::new(MessageStore::open(dir.path(), OpenMode::Create, config).unwrap());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                for _ in 0..50 {
                    let result = store.append(&NewMessage::new(b"Topic", b"x")).unwrap();
                    let end = u64::try_from(result.physical_offset).unwrap();
                    assert!(store.log().flushed_offset() > end);
                    assert!(store.get(result.physical_offset).is_ok());
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let read = store.read(b"Topic", 0, 0, 1000, None, &TagFilter::ALL).unwrap();
    assert_eq!((read.status, read.records.len()), (GetStatus::Found, 200));
}

#[test]
fn cq12_undispatched_messages_are_in_the_log_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create).unwrap();
    fill(&store, 0, 3);
    let committed = store.dispatched_offset().unwrap();
    store.hold_dispatch(true);
    fill(&store, 3, 5);
    assert_eq!(store.dispatched_offset().unwrap(), committed);
    assert!(store.end_offset() > committed);
    // A read takes them from there and leaves the queues alone.
    check(&store, 5);
    assert_eq!(store.dispatched_offset().unwrap(), committed);
    store.hold_dispatch(false);
    store.wait_dispatched().unwrap();
    check(&store, 5);
    assert_eq!(store.dispatched_offset().unwrap(), store.end_offset());
}

#[test]
fn ck06_a_file_that_changes_under_us_ends_all_writing_and_names_the_file() {
    for victim in ["commitlog", "consumequeue/Topic/0", "index"] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), OpenMode::Create).unwrap();
        fill(&store, 0, 8);
        store.flush().unwrap();
        let folder = dir.path().join(victim);
        let last =
            std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).max().unwrap();
        std::fs::remove_file(&last).unwrap();
        fill(&store, 8, 10);
        let error = store.flush().unwrap_err().to_string();
        assert!(error.contains(&last.display().to_string()), "{error}");
        let message = NewMessage::new(b"Topic", b"more");
        let refused = store.append(&message).unwrap_err();
        assert!(matches!(refused, Error::Poisoned { .. }), "{victim}: {refused}");
        drop(store);
        assert!(dir.path().join("abort").exists());
    }
}

#[test]
fn ap05_and_ap06_a_batch_is_never_split() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create).unwrap();
    let filler = vec![7; 4096 - 1000 - 91 - 1];
    let before = store.append(&NewMessage::new(b"T", &filler)).unwrap();
    assert_eq!(before.store_size, 3096);
    let body = [1; 114 - 92];
    let batch = [NewMessage::new(b"B", &body); 10];
    let results = store.append_batch(&batch).unwrap();
    for (number, result) in (0..).zip(&results) {
        assert_eq!(result.physical_offset, 4096 + number * 114);
        assert_eq!((result.queue_offset, result.store_size), (number, 114));
        assert_eq!(result.store_timestamp_ms, results[0].store_timestamp_ms);
    }
    let mut scanner = store.scanner(3096);
    let mut blank = None;
    let take = |range, item: Item<'_, '_>| {
        blank = matches!(item, Item::Blank).then_some(range);
        Ok(Flow::Stop)
    };
    scanner.each(store.log(), 4096, Resync::Never, take).unwrap();
    assert_eq!(blank, Some(3096..4096));
    let other = NewMessage { queue_id: 1, ..batch[0] };
    let end = store.end_offset();
    assert!(store.append_batch(&[batch[0], other]).is_err());
    assert!(store.append_batch(&[NewMessage::new(b"B", &filler); 2]).is_err());
    assert_eq!(store.end_offset(), end);
}

#[test]
fn cq14_a_message_for_more_queues_is_read_from_each() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { enable_lmq: true, enable_multi_dispatch: true, ..config() };
    let mut properties = Vec::new();
    properties::push(&mut properties, names::INNER_MULTI_DISPATCH, b"%LMQ%123,%LMQ%456");
    let message = NewMessage { properties: &properties, ..NewMessage::new(b"T", b"x") };
    let names: [&[u8]; 3] = [b"T", b"%LMQ%123", b"%LMQ%456"];
    let check = |store: &MessageStore, count: usize| {
        for name in names {
            let read = store.read(name, 0, 0, 32, None, &TagFilter::ALL).unwrap();
            assert_eq!(read.records.len(), count, "{}", String::from_utf8_lossy(name));
        }
    };
    let store = MessageStore::open(dir.path(), OpenMode::Create, config.clone()).unwrap();
    for _ in 0..3 {
        store.append(&message).unwrap();
    }
    check(&store, 3);
    store.close().unwrap();
    let store = open(dir.path(), OpenMode::ReadWrite).unwrap();
    check(&store, 3);
    assert!(store.recovery().unwrap().rebuilt.is_empty());
    store.close().unwrap();
    std::fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    let store = MessageStore::open(dir.path(), OpenMode::ReadWrite, config).unwrap();
    check(&store, 3);
    store.append(&message).unwrap();
    check(&store, 4);
    store.hold_dispatch(true);
    store.append(&message).unwrap();
    check(&store, 5);
}

#[test]
fn nothing_is_appended_behind_the_close_by_a_thread_that_came_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create).unwrap();
    fill(&store, 0, 3);
    let message = NewMessage::new(b"Topic", b"late");
    // Checked that the store is open, and does not have the appender yet.
    let writer = store.writer().unwrap();
    let checked = writer.check(&message, Sum::Now).unwrap();
    let end = store.end_offset();
    store.close().unwrap();
    let late = writer.append_checked(&mut writer.appender.lock(), &checked);
    assert!(matches!(late, Err(Error::Closed)), "{late:?}");
    assert!(matches!(writer.flush_derived(), Err(Error::Closed)));
    assert_eq!(store.log().end_offset(), end);
}

#[test]
fn nothing_is_deleted_behind_the_close_by_a_thread_that_came_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create).unwrap();
    fill(&store, 0, 100);
    let writer = store.writer().unwrap();
    store.close().unwrap();
    let files = store.log().run().files().len();
    assert!(files > 1);
    let occasion =
        Occasion { now_ms: i64::MAX, disk: DiskUse::default(), by_hand: true, backed_up_to: None };
    assert!(matches!(writer.clean_step(&occasion), Err(Error::Closed)));
    assert_eq!(store.log().run().files().len(), files);
}

fn stop_threads(store: &MessageStore) {
    let services = store.services.lock().take();
    services.unwrap().stop(store.writer().unwrap());
}

/// A key's records, exactly and by RocketMQ's rules, and whether the answer is complete.
fn asked(
    store: &MessageStore,
    key: &[u8],
    span: (i64, i64),
    most: usize,
) -> [(Vec<Box<[u8]>>, bool); 2] {
    let (begin_ms, end_ms) = span;
    [true, false].map(|exact| {
        let query = KeyQuery { topic: b"Topic", key, begin_ms, end_ms, max_messages: most, exact };
        let answer = store.query(&query).unwrap();
        (answer.records, answer.complete)
    })
}

#[test]
fn a_key_query_answers_while_another_thread_holds_every_lock_of_the_writer() {
    for flush_disk_type in [FlushDiskType::Async, FlushDiskType::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig { flush_disk_type, ..config() };
        let store = MessageStore::open(dir.path(), OpenMode::Create, config).unwrap();
        let writer = store.writer().unwrap();
        if flush_disk_type == FlushDiskType::Async {
            stop_threads(&store);
            fill(&store, 0, 30);
            assert!(writer.indexed.load(Ordering::Acquire) < store.end_offset(), "no key waits");
        } else {
            fill(&store, 0, 30);
            stop_threads(&store);
        }
        let Writer { lock, appender, dispatcher, checkpoint, topics, gate, .. } = writer;
        let held = (lock.lock(), appender.lock(), dispatcher.lock());
        let more_held = (checkpoint.lock(), topics.lock(), gate.turn(), gate.derived_turn());
        let (sender, answers) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..30 {
                    let key = format!("k{number}");
                    let found = asked(&store, key.as_bytes(), (0, i64::MAX), 64);
                    sender.send(found.map(|(records, _)| records.len())).unwrap();
                }
            });
            let mut found = Vec::new();
            while let Ok(answer) = answers.recv_timeout(Duration::from_secs(60)) {
                found.push(answer);
                if found.len() == 30 {
                    break;
                }
            }
            drop((held, more_held));
            assert_eq!(found, [[1, 1]; 30]);
        });
        store.close().unwrap();
    }
}

/// RocketMQ's answer depends on the order and times of all entries in a slot.
#[test]
fn keys_that_wait_are_found_as_they_are_once_they_are_put() {
    for seed in 0..20_u64 {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), OpenMode::Create).unwrap();
        stop_threads(&store);
        let writer = store.writer().unwrap();
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..40 {
            for _ in 0..random(6) {
                let mut raw = Vec::new();
                let keys = format!("k{} k{}", random(4), random(12));
                properties::push(&mut raw, names::KEYS, keys.as_bytes());
                let time = 1_000_000 + i64::try_from(random(20)).unwrap() * 700;
                let message = NewMessage {
                    properties: &raw,
                    store_timestamp_ms: Some(time),
                    ..NewMessage::new(b"Topic", b"body")
                };
                store.append(&message).unwrap();
            }
            let key = format!("k{}", random(5));
            let begin = 998_000 + i64::try_from(random(20)).unwrap() * 700;
            let span = (begin, begin + i64::try_from(random(20)).unwrap() * 700);
            let most = usize::try_from(random(6)).unwrap() + 1;
            let waiting = asked(&store, key.as_bytes(), span, most);
            writer.index_step().unwrap();
            assert!(writer.indexed.load(Ordering::Acquire) == store.end_offset());
            let put = asked(&store, key.as_bytes(), span, most);
            assert!(waiting == put, "seed {seed}, key {key}, times {span:?}, most {most}");
        }
        store.close().unwrap();
    }
}

#[test]
fn messages_reported_by_a_failed_append_of_many_are_durable() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        flush_interval_commit_log: 3_600_000,
        mapped_file_size_commit_log: Some(1 << 20),
        ..config()
    };
    let store = MessageStore::open(dir.path(), OpenMode::Create, config).unwrap();
    let mut messages = vec![NewMessage::new(b"Topic", b"body"); CHUNK + 2];
    messages[CHUNK + 1].topic = b"no topic";
    let error = store.append_many(&messages).unwrap_err();
    assert_eq!((error.results.len(), error.index), (CHUNK, CHUNK + 1));
    assert!(matches!(error.error, Error::InvalidMessage { .. }));
    let last = error.results.last().unwrap();
    let end = u64::try_from(last.physical_offset).unwrap() + u64::from(last.store_size);
    assert!(store.log().flushed_offset() >= end);
}

#[test]
fn a_queue_file_of_another_length_is_mended_for_writing() {
    for len in [0, 7, 142, 300] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), OpenMode::Create).unwrap();
        fill(&store, 0, 100);
        store.close().unwrap();
        let queue = dir.path().join("consumequeue/Topic/2");
        let last = std::fs::read_dir(&queue).unwrap().map(|e| e.unwrap().path()).max().unwrap();
        std::fs::OpenOptions::new().write(true).open(&last).unwrap().set_len(len).unwrap();
        let store = open(dir.path(), OpenMode::ReadWrite).unwrap();
        check(&store, 100);
        fill(&store, 100, 120);
        store.close().unwrap();
        assert_eq!(std::fs::metadata(&last).unwrap().len(), 200, "{len}");
        check(&open(dir.path(), OpenMode::ReadWrite).unwrap(), 120);
    }
}

#[test]
fn unreadable_topics_are_told_and_end_no_writing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create).unwrap();
    fill(&store, 0, 30);
    store.close().unwrap();
    let topics = dir.path().join("config/topics.json");
    std::fs::write(&topics, b"{ no JSON").unwrap();
    let store = open(dir.path(), OpenMode::ReadWrite).unwrap();
    assert!(store.warnings().iter().any(|warning| warning.contains("topics.json")));
    store.flush().unwrap();
    fill(&store, 30, 40);
    store.close().unwrap();
    assert_eq!(std::fs::read(&topics).unwrap(), b"{ no JSON");
    assert!(!dir.path().join("abort").exists());
    check(&open(dir.path(), OpenMode::Read).unwrap(), 40);
}

/// A clock that steps back does not turn whole messages behind damage into remains.
#[test]
fn rc09_messages_older_than_those_before_them_are_not_cut_either() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create).unwrap();
    let offsets: Vec<_> = (0..20)
        .map(|number| {
            let mut message = NewMessage::new(b"Topic", b"body");
            message.store_timestamp_ms = Some(2_000_000 - number);
            u64::try_from(store.append(&message).unwrap().physical_offset).unwrap()
        })
        .collect();
    store.close().unwrap();
    let path = dir.path().join("commitlog/00000000000000000000");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[usize::try_from(offsets[5]).unwrap() + 4] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let refused = open(dir.path(), OpenMode::ReadWrite).unwrap_err().to_string();
    assert!(refused.contains("14 whole messages"), "{refused}");
    assert!(std::fs::read(&path).unwrap() == bytes);
    let reader = open(dir.path(), OpenMode::Read).unwrap();
    assert_eq!(reader.get(i64::try_from(offsets[19]).unwrap()).unwrap().len(), 91 + 5 + 4);
}
