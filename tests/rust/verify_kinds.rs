//! `verify` of what only some stores have: queues that keep batches together, and the extensions of
//! queues.

use std::fs;
use std::path::PathBuf;

use mqstore::care::{Code, Severity, VerifyOptions, VerifyReport};
use mqstore::config::StoreConfig;
use mqstore::format::message::properties::{self, names};
use mqstore::format::queue::batch::{BatchItem, BatchQueueEntry, ENTRY_LEN};
use mqstore::format::queue::consume_queue::DelayLevels;
use mqstore::format::queue::consume_queue_ext;
use mqstore::store::{MessageStore, NewMessage};

use crate::support::{Home, START_MS, patch, set_len, small};

/// Entries in a file of the batch queues here.
const IN_FILE: u64 = 10;

fn look(home: &Home) -> VerifyReport {
    home.verify(&VerifyOptions { threads: Some(2), ..VerifyOptions::default() })
}

fn batch_store() -> Home {
    let config = StoreConfig {
        mapper_file_size_batch_consume_queue: Some(IN_FILE * ENTRY_LEN as u64),
        ..small()
    };
    let home = Home::new(config);
    fs::create_dir(home.path().join("config")).unwrap();
    let topics = r#"{"topicConfigTable":{"B":{"topicName":"B","readQueueNums":4,"writeQueueNums":4,
        "perm":6,"attributes":{"queue.type":"BatchCQ"}}}}"#;
    fs::write(home.path().join("config/topics.json"), topics).unwrap();
    home
}

/// Appends batch `number`: of one to four messages, to queue 0 or 1.
fn append_batch(home: &Home, store: &MessageStore, number: usize) {
    home.clock.set(START_MS + i64::try_from(number).unwrap() * 1000);
    let mut body = Vec::new();
    for item in 0..=number % 4 {
        let text = format!("message {item} of {number}");
        BatchItem { flag: 0, body: text.as_bytes(), properties: b"" }.encode_to(&mut body).unwrap();
    }
    let mut raw = Vec::new();
    properties::push(&mut raw, names::TAGS, b"t");
    properties::push(&mut raw, names::INNER_NUM, (number % 4 + 1).to_string().as_bytes());
    let message = NewMessage {
        queue_id: i32::try_from(number % 2).unwrap(),
        sys_flag: 0xC0,
        properties: &raw,
        ..NewMessage::new(b"B", &body)
    };
    store.append(&message).unwrap();
}

/// A closed store of so many batches, half of them in each queue.
fn batches(count: usize) -> Home {
    let home = batch_store();
    let store = home.create();
    (0..count).for_each(|number| append_batch(&home, &store, number));
    store.close().unwrap();
    home
}

/// The file of queue 0 that holds an entry, and the byte there.
fn entry_at(home: &Home, place: u64) -> (PathBuf, u64) {
    let size = IN_FILE * ENTRY_LEN as u64;
    let offset = place * ENTRY_LEN as u64;
    let name = format!("{:020}", offset / size * size);
    (home.path().join("batchconsumequeue/B/0").join(name), offset % size)
}

fn entry(home: &Home, place: u64) -> BatchQueueEntry {
    let (path, at) = entry_at(home, place);
    let bytes = fs::read(path).unwrap();
    let at = usize::try_from(at).unwrap();
    BatchQueueEntry::decode(bytes[at..].first_chunk().unwrap())
}

#[test]
fn sound_queues_of_batches_have_no_findings() {
    let home = batches(60);
    let before = home.snapshot();
    let report = look(&home);
    assert_eq!(report.findings, []);
    assert_eq!((report.counts.messages, report.counts.queue_entries), (60, 60));
    assert_eq!(report.counts.queues, 2);
    assert!(home.snapshot() == before, "verify wrote something");
}

#[test]
fn damage_of_a_batch_entry_is_named() {
    let home = batches(60);
    let (third, fourth) = (entry(&home, 3), entry(&home, 4));
    assert_eq!(third.message_count, 3);
    for (what, bad, code) in [
        (
            "inside a record",
            BatchQueueEntry { physical_offset: third.physical_offset + 1, ..third },
            Code::QueueNowhere,
        ),
        ("behind", BatchQueueEntry { physical_offset: 1 << 40, ..third }, Code::QueueNowhere),
        ("negative", BatchQueueEntry { physical_offset: -1, ..third }, Code::QueueNowhere),
        ("size", BatchQueueEntry { store_size: third.store_size + 1, ..third }, Code::QueueSize),
        ("tags", BatchQueueEntry { tags_code: 7, ..third }, Code::QueueTags),
        ("time", BatchQueueEntry { store_timestamp_ms: 7, ..third }, Code::BatchTime),
        ("count", BatchQueueEntry { message_count: 2, ..third }, Code::BatchRange),
        (
            "first",
            BatchQueueEntry { base_queue_offset: third.base_queue_offset + 1, ..third },
            Code::BatchRange,
        ),
        ("far", BatchQueueEntry { base_queue_offset: 1 << 50, ..third }, Code::BatchRange),
        ("none", BatchQueueEntry { message_count: 0, ..third }, Code::QueueNowhere),
        // The record behind it is one of queue 1.
        (
            "another's",
            BatchQueueEntry {
                physical_offset: third.physical_offset + i64::from(third.store_size),
                ..third
            },
            Code::QueueOther,
        ),
        ("the next one's", fourth, Code::QueueOrder),
    ] {
        let copy = home.copy();
        let (path, at) = entry_at(&copy, 3);
        patch(&path, at, &bad.encode());
        let report = look(&copy);
        let found: Vec<_> = report.findings.iter().filter(|f| f.code == code).collect();
        assert!(!report.ok && !found.is_empty(), "{what}: {:?}", report.findings);
        // The entry's own place, or its follower where both have the same record.
        let place = if code == Code::QueueOrder { at + ENTRY_LEN as u64 } else { at };
        assert_eq!(found[0].offset, Some(place), "{what}");
        assert!(found[0].path.starts_with("batchconsumequeue/B/0"), "{what}: {:?}", found[0].path);
        // Other findings follow from the same entry: the next one's number and offset, the message.
        let near = report.findings.iter().all(|finding| {
            finding.offset.is_none_or(|byte| byte == at || byte == at + ENTRY_LEN as u64)
                && finding.path.starts_with("batchconsumequeue/B/0")
        });
        assert!(near && report.findings.len() <= 4, "{what}: {:?}", report.findings);
        let lacks = report.found.contains_key(&Code::QueueMissing);
        assert_eq!(lacks, what == "the next one's", "{what}: {:?}", report.findings);
    }
}

#[test]
fn a_gap_in_the_numbers_of_batches_is_told_and_an_overlap() {
    for (by, severity) in [(5, Severity::Warning), (-1, Severity::Error)] {
        let copy = batches(24);
        for place in 6..12 {
            let found = entry(&copy, place);
            let moved =
                BatchQueueEntry { base_queue_offset: found.base_queue_offset + by, ..found };
            let (path, at) = entry_at(&copy, place);
            patch(&path, at, &moved.encode());
        }
        let report = look(&copy);
        assert_eq!(report.found[&Code::BatchNumbers], 1, "{:?}", report.findings);
        assert_eq!(report.found[&Code::BatchRange], 6, "{:?}", report.findings);
        let numbers = report.findings.iter().find(|f| f.code == Code::BatchNumbers).unwrap();
        assert_eq!(numbers.severity, severity);
    }
}

#[test]
fn batches_that_have_no_entry_are_counted() {
    let home = batches(60);
    let copy = home.copy();
    let (path, at) = entry_at(&copy, 3);
    patch(&path, at, &[0; ENTRY_LEN]);
    let report = look(&copy);
    assert_eq!(report.found, [(Code::QueueHole, 1), (Code::BatchNumbers, 1)].into());
    let copy = home.copy();
    fs::remove_dir_all(copy.path().join("batchconsumequeue/B/1")).unwrap();
    let report = look(&copy);
    assert_eq!(report.found, [(Code::QueueMissing, 1)].into(), "{:?}", report.findings);
    assert!(report.findings[0].expected.contains("30 more"), "{:?}", report.findings);
    assert!(report.findings[0].path.ends_with("batchconsumequeue/B/1"));
    let copy = home.copy();
    let (path, at) = entry_at(&copy, 29);
    patch(&path, at, &[0; ENTRY_LEN]);
    let report = look(&copy);
    assert_eq!(report.found, [(Code::QueueMissing, 1)].into(), "{:?}", report.findings);
    let copy = home.copy();
    fs::remove_file(entry_at(&copy, 10).0).unwrap();
    let report = look(&copy);
    assert!(report.found.contains_key(&Code::FileGap), "{:?}", report.findings);
    assert!(report.findings.iter().any(|f| f.expected.contains("10 more")), "{report:?}");
    let copy = home.copy();
    set_len(&entry_at(&copy, 0).0, 93);
    assert!(look(&copy).found.contains_key(&Code::FileLength));
}

#[test]
fn hc14_a_batch_that_counts_wrongly_is_reported_and_the_rest_goes_on() {
    let home = batches(60);
    let place = u64::try_from(entry(&home, 3).physical_offset).unwrap();
    let (path, at) = home.log_file(place);
    let bytes = fs::read(path).unwrap();
    let find = |text: &[u8]| {
        let from = usize::try_from(at).unwrap();
        let found = bytes[from..].windows(text.len()).position(|window| window == text).unwrap();
        place + (found + text.len()) as u64
    };
    let (num, base) = (find(b"INNER_NUM\x01"), find(b"INNER_BASE\x01"));
    for (what, at, value) in [
        ("no number", num, b"x"),
        ("none", num, b"0"),
        ("another number", num, b"2"),
        ("more than there are", num, b"9"),
        ("no base", base, b"-"),
    ] {
        let copy = home.copy();
        copy.patch(at, value);
        let report = look(&copy);
        assert_eq!(report.found.get(&Code::LogBatch), Some(&1), "{what}: {:?}", report.findings);
        let finding = report.findings.iter().find(|f| f.code == Code::LogBatch).unwrap();
        let (file, byte) = copy.log_file(place);
        assert!(file.ends_with(&finding.path) && finding.offset == Some(byte), "{finding:?}");
        assert_eq!(report.counts.messages, 60, "{what}");
        // The queue stands for other messages than the record now, and nothing else is touched.
        let others: Vec<_> = report.findings.iter().filter(|f| f.code != Code::LogBatch).collect();
        let of_the_queue = others.iter().all(|f| f.code == Code::BatchRange);
        assert!(of_the_queue && others.len() <= 1, "{what}: {others:?}");
    }
}

#[test]
fn batches_beside_a_writer_are_sound() {
    let home = batch_store();
    let store = home.create();
    (0..30).for_each(|number| append_batch(&home, &store, number));
    let report = look(&home);
    assert!(report.ok, "{:?}", report.findings);
    store.hold_dispatch(true);
    (30..40).for_each(|number| append_batch(&home, &store, number));
    let report = look(&home);
    assert!(report.ok, "{:?}", report.findings);
    assert!(report.found.contains_key(&Code::QueueTail));
}

/// Bytes of a unit without a bit map.
const UNIT: usize = 20;

fn unit_at(home: &Home, number: usize) -> (PathBuf, u64) {
    let name = format!("{:020}", number / 6 * 130);
    let path = home.path().join("consumequeue_ext/Topic/1").join(name);
    (path, (number % 6 * UNIT) as u64)
}

#[test]
fn sound_extensions_have_no_findings() {
    let home = Home::extended(80);
    let report = look(&home);
    assert_eq!(report.findings, []);
    assert_eq!(report.counts.queue_entries, 80);
}

#[test]
fn damage_of_an_extension_is_named() {
    let home = Home::extended(80);
    for (what, position, bytes, codes) in [
        ("size", 0, &[0, 19][..], &[(Code::ExtUnit, 1), (Code::ExtAddress, 1)][..]),
        ("too long", 0, &[0x7f, 0xff], &[(Code::ExtUnit, 1), (Code::ExtAddress, 1)]),
        ("tags code", 9, &[9], &[(Code::ExtTags, 1)]),
        ("time", 10, &[1], &[(Code::ExtTags, 1)]),
        ("bit map", 18, &[0, 9], &[(Code::ExtUnit, 1), (Code::ExtAddress, 1)]),
    ] {
        let copy = home.copy();
        let (path, at) = unit_at(&copy, 8);
        patch(&path, at + position, bytes);
        let report = look(&copy);
        assert_eq!(report.found, codes.iter().copied().collect(), "{what}: {:?}", report.findings);
        let first = report.findings.last().unwrap();
        assert!(first.path.starts_with("consumequeue_ext/Topic/1"), "{what}: {first:?}");
        assert!((at..at + UNIT as u64).contains(&first.offset.unwrap()), "{what}: {first:?}");
    }
}

#[test]
fn an_address_beyond_its_extension_is_told_and_the_rest_still_read() {
    let home = Home::extended(80);
    for (what, address) in [
        ("beyond", consume_queue_ext::address_of(1 << 40).unwrap()),
        ("far beyond", consume_queue_ext::address_of(consume_queue_ext::MAX_OFFSET).unwrap()),
        ("inside a unit", consume_queue_ext::address_of(130 + 8).unwrap()),
        ("at the end of a file", consume_queue_ext::address_of(120).unwrap()),
    ] {
        let copy = home.copy();
        let entry = copy.read().queue(b"Topic", 1).unwrap().unwrap().units(3, 1).unwrap()[0];
        copy.put_entry(1, 3, entry.physical_offset, entry.store_size, address);
        let report = look(&copy);
        assert_eq!(report.found, [(Code::ExtAddress, 1)].into(), "{what}: {:?}", report.findings);
        let finding = &report.findings[0];
        assert!(finding.path.starts_with("consumequeue/Topic/1"), "{finding:?}");
        assert_eq!((finding.offset, finding.severity), (Some(60), Severity::Error), "{what}");
        crate::support::check(&copy.read(), 80);
    }
    let copy = home.copy();
    fs::remove_dir_all(copy.path().join("consumequeue_ext/Topic/1")).unwrap();
    assert_eq!(look(&copy).found, [(Code::ExtAddress, 20)].into());
    let copy = home.copy();
    fs::write(copy.path().join("consumequeue_ext/Topic/notes"), b"x").unwrap();
    assert_eq!(look(&copy).found, [(Code::StrayName, 1)].into());
}

#[test]
fn hc15_a_delay_that_is_no_number_counts_as_none_and_is_told() {
    let home = Home::new(small());
    let store = home.create();
    for (number, delay) in ["3", "x", "+2", "99999999999", "0"].into_iter().enumerate() {
        let mut properties = Vec::new();
        properties::push(&mut properties, names::DELAY, delay.as_bytes());
        let mut message = NewMessage::new(b"Topic", b"body");
        message.queue_id = i32::try_from(number).unwrap();
        message.properties = &properties;
        store.append(&message).unwrap();
    }
    store.close().unwrap();
    let report = look(&home);
    let expected = std::collections::BTreeMap::from([(Code::LogDelay, 2)]);
    assert_eq!(report.found, expected, "{:?}", report.findings);
    let found: Vec<_> = report.findings.iter().map(|finding| finding.found.as_str()).collect();
    assert_eq!(found, ["\"x\"", "\"99999999999\""]);
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::Warning));
}

#[test]
fn a_unit_with_room_behind_its_bit_map_is_told() {
    let home = Home::extended(80);
    let (path, at) = unit_at(&home, 5);
    // The last of its file: the end mark goes along.
    patch(&path, at, &[0, 22]);
    let report = look(&home);
    let finding = report.findings.iter().find(|finding| finding.code == Code::ExtUnit).unwrap();
    assert_eq!((finding.offset, &*finding.expected), (Some(at + 18), "a bit map of 2 bytes"));
    assert_eq!(finding.found, "0");
}

#[test]
fn single_messages_that_speak_of_a_batch_are_no_batches() {
    let home = batch_store();
    let store = home.create();
    (0..10).for_each(|number| append_batch(&home, &store, number));
    for count in ["x", "3"] {
        let mut raw = Vec::new();
        properties::push(&mut raw, names::INNER_NUM, count.as_bytes());
        let message = NewMessage { properties: &raw, ..NewMessage::new(b"Plain", b"x") };
        store.append(&message).unwrap();
    }
    store.close().unwrap();
    assert_eq!(look(&home).findings, []);
}

#[test]
fn a_batch_larger_than_a_block_is_counted_too() {
    let mut home = batch_store();
    home.config.mapped_file_size_commit_log = Some(4 << 20);
    let store = home.create();
    append_batch(&home, &store, 0);
    let mut body = Vec::new();
    for _ in 0..2 {
        let item = BatchItem { flag: 0, body: &[7; 200_000], properties: b"" };
        item.encode_to(&mut body).unwrap();
    }
    let mut raw = Vec::new();
    properties::push(&mut raw, names::INNER_NUM, b"2");
    let message = NewMessage { sys_flag: 0xC0, properties: &raw, ..NewMessage::new(b"B", &body) };
    let place = u64::try_from(store.append(&message).unwrap().physical_offset).unwrap();
    append_batch(&home, &store, 2);
    store.close().unwrap();
    let report = look(&home);
    assert_eq!((report.findings, report.counts.messages), (vec![], 3));
    // One that says it holds more.
    let path = home.log_file(place).0;
    let bytes = fs::read(&path).unwrap();
    let from = usize::try_from(place).unwrap();
    let text = b"INNER_NUM\x012";
    let found = bytes[from..].windows(text.len()).position(|window| window == text).unwrap();
    home.patch(place + (found + text.len() - 1) as u64, b"3");
    let report = look(&home);
    let finding = report.findings.iter().find(|finding| finding.code == Code::LogBatch).unwrap();
    assert_eq!((finding.offset, &*finding.found), (Some(place), "2"), "{finding:?}");
    assert_eq!(finding.expected, "3 messages in the body");
}

#[test]
fn a_delay_s_queue_holds_the_time_that_its_broker_set() {
    let mut home = Home::new(small());
    let store = home.create();
    let mut raw = Vec::new();
    properties::push(&mut raw, names::DELAY, b"3");
    for queue_id in [2, 2, 3] {
        let message = NewMessage {
            queue_id,
            properties: &raw,
            ..NewMessage::new(b"SCHEDULE_TOPIC_XXXX", b"body")
        };
        store.append(&message).unwrap();
    }
    store.close().unwrap();
    assert_eq!(look(&home).findings, []);
    // With other levels other times would be due; what the queue has is no damage.
    home.config.message_delay_level = DelayLevels::parse("1h 2h 3h").unwrap();
    assert_eq!(look(&home).findings, []);
}

#[test]
fn an_extension_longer_than_a_block_is_held_against_its_queue() {
    let config = StoreConfig {
        enable_consume_queue_ext: true,
        mapped_file_size_consume_queue_ext: Some(200_000),
        mapped_file_size_consume_queue: Some(200_000),
        mapped_file_size_commit_log: Some(4 << 20),
        max_index_num: Some(10_000),
        ..small()
    };
    let home = Home::new(config);
    let store = home.create();
    for _ in 0..6000 {
        store.append(&NewMessage::new(b"Topic", b"x")).unwrap();
    }
    store.close().unwrap();
    let report = look(&home);
    assert_eq!((report.findings, report.counts.queue_entries), (vec![], 6000));
    // The tags code of a unit far behind.
    let path = home.path().join("consumequeue_ext/Topic/0/00000000000000000000");
    patch(&path, 5000 * UNIT as u64 + 9, &[9]);
    let report = look(&home);
    assert_eq!(report.found, [(Code::ExtTags, 1)].into(), "{:?}", report.findings);
    assert_eq!(report.findings[0].offset, Some(5000 * UNIT as u64));
}

#[test]
fn in_a_topic_of_batches_a_single_message_may_speak_of_one() {
    for count in ["3", "x"] {
        let home = Home::new(small());
        let store = home.create();
        let mut raw = Vec::new();
        properties::push(&mut raw, names::INNER_NUM, count.as_bytes());
        let message = NewMessage { properties: &raw, ..NewMessage::new(b"Topic", b"x") };
        store.append(&message).unwrap();
        store.close().unwrap();
        let topics = r#"{"topicConfigTable":{"Topic":{"topicName":"Topic","readQueueNums":4,
            "writeQueueNums":4,"perm":6,"attributes":{"queue.type":"BatchCQ"}}}}"#;
        fs::write(home.path().join("config/topics.json"), topics).unwrap();
        let report = look(&home);
        assert_eq!(report.found.get(&Code::ConfigKind), Some(&1), "{:?}", report.findings);
        assert!(!report.found.contains_key(&Code::LogBatch), "{count}: {:?}", report.findings);
    }
}
