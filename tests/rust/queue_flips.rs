//! One flipped bit in a queue entry, any of them: a read gives every message, or says that it cannot.

use std::fs;
use std::path::{Path, PathBuf};

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::message::properties::{self, names};
use mqstore::format::queue::batch::{self, BatchItem};
use mqstore::format::queue::consume_queue::{ENTRY_LEN, TagFilter};
use mqstore::store::read::queue_read::view_of;
use mqstore::store::{GetStatus, MessageStore, NewMessage, OpenMode};

use crate::support::{Home, START_MS, patch, small};

/// A message of a store: its topic, and what its properties are made of.
#[derive(Clone, Copy)]
struct Made {
    topic: &'static [u8],
    queue_id: i32,
    tags: &'static [u8],
    light: bool,
    items: usize,
}

const TAGS: [&[u8]; 3] = [b"red", b"green", b"blue"];

fn append(home: &Home, store: &MessageStore, number: usize, made: Made) {
    home.clock.set(START_MS + i64::try_from(number).unwrap() * 1000);
    let mut raw = Vec::new();
    properties::push(&mut raw, names::TAGS, made.tags);
    if made.light {
        properties::push(&mut raw, names::INNER_MULTI_DISPATCH, b"%LMQ%light");
    }
    let mut body = format!("message {number}").into_bytes();
    let mut sys_flag = 0;
    if made.items > 0 {
        body.clear();
        for item in 0..made.items {
            let text = format!("{item} of {number}");
            BatchItem { flag: 0, body: text.as_bytes(), properties: b"" }
                .encode_to(&mut body)
                .unwrap();
        }
        properties::push(&mut raw, names::INNER_NUM, made.items.to_string().as_bytes());
        sys_flag = 0xC0;
    }
    let message = NewMessage {
        queue_id: made.queue_id,
        properties: &raw,
        sys_flag,
        ..NewMessage::new(made.topic, &body)
    };
    store.append(&message).unwrap();
}

/// The store times of all messages of a queue, or why they cannot be told.
fn times(
    store: &MessageStore,
    topic: &[u8],
    queue_id: i32,
    filter: &TagFilter,
) -> Result<Vec<i64>, Error> {
    let mut times = Vec::new();
    let mut next = 0;
    loop {
        let read = store.read(topic, queue_id, next, 7, None, filter)?;
        for record in &read.records {
            let view = view_of(record).unwrap();
            times.push((view.store_timestamp_ms() - START_MS) / 1000);
        }
        let ended = match read.status {
            GetStatus::OffsetTooSmall | GetStatus::Found => false,
            GetStatus::NoMatchedMessage | GetStatus::MessageWasRemoving => {
                read.next_queue_offset == next
            }
            _ => true,
        };
        if ended {
            return Ok(times);
        }
        next = read.next_queue_offset;
    }
}

struct Subject<'a> {
    topic: &'a [u8],
    queue_id: i32,
    entry_len: usize,
    files: PathBuf,
}

/// Flips every bit of some entries of a queue, in a closed store and under one that is open, and reads
/// it with and without a filter.
/// One, or `some` by default.
pub(crate) fn flips_each(some: usize) -> usize {
    if std::env::var_os("MQSTORE_FLIPS").is_some() { 1 } else { some }
}

fn flip_all(home: &Home, subject: &Subject<'_>, entries: &[usize], bits: usize) {
    let Subject { topic, queue_id, entry_len, files } = subject;
    let file = home.path().join(files);
    let sound = fs::read(&file).unwrap();
    let filters = [TagFilter::ALL, TagFilter::parse("red"), TagFilter::parse("green || blue")];
    let wanted: Vec<_> = filters
        .iter()
        .map(|filter| times(&home.read(), topic, *queue_id, filter).unwrap())
        .collect();
    assert!(wanted.iter().all(|times| !times.is_empty()), "{wanted:?}");
    let (mut raised, mut silent) = (0, Vec::new());
    let mut look = |what: String, store: &MessageStore| {
        for (filter, wanted) in filters.iter().zip(&wanted) {
            match times(store, topic, *queue_id, filter) {
                Ok(found) if found == *wanted => {}
                Ok(found) => silent.push(format!("{what}, {filter:?}: {found:?}")),
                Err(Error::Corrupt(_)) => raised += 1,
                Err(error) => panic!("{what}: {error}"),
            }
        }
    };
    for &entry in entries {
        for bit in 0..bits {
            let at = entry * entry_len + bit / 8;
            let byte = [sound[at] ^ (1 << (bit % 8))];
            patch(&file, at as u64, &byte);
            look(format!("entry {entry}, bit {bit}, read"), &home.read());
            patch(&file, at as u64, &sound[at..=at]);
        }
        let open = home.copy();
        let (file, store) = (open.path().join(files), open.write());
        let under = fs::read(&file).unwrap();
        for bit in 0..bits {
            let at = entry * entry_len + bit / 8;
            patch(&file, at as u64, &[under[at] ^ (1 << (bit % 8))]);
            look(format!("entry {entry}, bit {bit}, open for writing"), &store);
            patch(&file, at as u64, &under[at..=at]);
        }
        store.close().unwrap();
        // Each opening recovers, so that by default some bits are left out; `MQSTORE_FLIPS` asks for all.
        for bit in (0..bits).step_by(flips_each(5)) {
            let again = home.copy();
            let at = entry * entry_len + bit / 8;
            patch(&again.path().join(files), at as u64, &[sound[at] ^ (1 << (bit % 8))]);
            look(format!("entry {entry}, bit {bit}, opened for writing"), &again.write());
        }
    }
    assert!(
        silent.is_empty(),
        "{} silent, first {:?}",
        silent.len(),
        &silent[..silent.len().min(5)]
    );
    assert_eq!(raised, 0, "the log is sound, so nothing need be raised");
}

fn first_file(home: &Home, dir: &str) -> PathBuf {
    let mut names: Vec<_> =
        fs::read_dir(home.path().join(dir)).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names[0].strip_prefix(home.path()).unwrap().to_owned()
}

/// A closed store of two queues in one topic, and more files than one of the log.
fn plain(config: StoreConfig, count: usize) -> Home {
    let home = Home::new(config);
    let store = home.create();
    for number in 0..count {
        let queue_id = i32::from(number % 3 == 1);
        let tags = TAGS[number % 7 % 3];
        append(
            &home,
            &store,
            number,
            Made { topic: b"Topic", queue_id, tags, light: false, items: 0 },
        );
    }
    store.close().unwrap();
    home
}

#[test]
fn no_bit_of_a_queue_entry_hides_a_message() {
    let home = plain(small(), 40);
    let files = first_file(&home, "consumequeue/Topic/1");
    let subject = Subject { topic: b"Topic", queue_id: 1, entry_len: ENTRY_LEN, files };
    flip_all(&home, &subject, &[0, 4, 9], 160);
    // The last entry of the queue.
    let path = home.path().join("consumequeue/Topic/1");
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let last = names.last().unwrap();
    let files = last.strip_prefix(home.path()).unwrap().to_owned();
    flip_all(&home, &Subject { files, ..subject }, &[2], 160);
}

#[test]
fn no_bit_of_the_only_entry_hides_a_message() {
    let home = Home::new(small());
    let store = home.create();
    append(
        &home,
        &store,
        0,
        Made { topic: b"Topic", queue_id: 0, tags: b"red", light: false, items: 0 },
    );
    append(
        &home,
        &store,
        1,
        Made { topic: b"Other", queue_id: 0, tags: b"red", light: false, items: 0 },
    );
    store.close().unwrap();
    let file = home.path().join(first_file(&home, "consumequeue/Topic/0"));
    let sound = fs::read(&file).unwrap();
    for bit in 0..160 {
        let at = bit / 8;
        patch(&file, at as u64, &[sound[at] ^ (1 << (bit % 8))]);
        let found = times(&home.read(), b"Topic", 0, &TagFilter::ALL);
        assert_eq!(found.unwrap(), [0], "bit {bit}");
        patch(&file, at as u64, &sound[at..=at]);
    }
}

#[test]
fn no_bit_of_a_light_queue_s_entry_hides_a_message() {
    let config = StoreConfig { enable_lmq: true, enable_multi_dispatch: true, ..small() };
    let home = Home::new(config);
    let store = home.create();
    for number in 0..40 {
        let tags = TAGS[number % 7 % 3];
        let light = number % 2 == 0;
        append(&home, &store, number, Made { topic: b"Topic", queue_id: 0, tags, light, items: 0 });
    }
    store.close().unwrap();
    let files = first_file(&home, "consumequeue/%LMQ%light/0");
    let subject = Subject { topic: b"%LMQ%light", queue_id: 0, entry_len: ENTRY_LEN, files };
    flip_all(&home, &subject, &[0, 5, 9], 160);
}

#[test]
fn no_bit_of_a_batch_queue_s_entry_hides_a_message() {
    let len = batch::ENTRY_LEN;
    let config =
        StoreConfig { mapper_file_size_batch_consume_queue: Some(20 * len as u64), ..small() };
    let home = Home::new(config);
    fs::create_dir(home.path().join("config")).unwrap();
    let topics = r#"{"topicConfigTable":{"B":{"topicName":"B","readQueueNums":4,"writeQueueNums":4,
        "perm":6,"attributes":{"queue.type":"BatchCQ"}}}}"#;
    fs::write(home.path().join("config/topics.json"), topics).unwrap();
    let store = home.create();
    for number in 0..20 {
        let tags = TAGS[number % 7 % 3];
        let made = Made { topic: b"B", queue_id: 0, tags, light: false, items: number % 4 + 1 };
        append(&home, &store, number, made);
    }
    store.close().unwrap();
    let files = first_file(&home, "batchconsumequeue/B/0");
    let subject = Subject { topic: b"B", queue_id: 0, entry_len: len, files };
    flip_all(&home, &subject, &[0, 7, 12, 19], len * 8);
}

#[test]
fn no_bit_of_an_extension_hides_a_message() {
    let config = StoreConfig {
        enable_consume_queue_ext: true,
        mapped_file_size_consume_queue_ext: Some(2000),
        ..small()
    };
    let home = plain(config, 40);
    let files = first_file(&home, "consumequeue/Topic/1");
    let subject = Subject { topic: b"Topic", queue_id: 1, entry_len: ENTRY_LEN, files };
    flip_all(&home, &subject, &[0, 4, 9], 160);
    let files = first_file(&home, "consumequeue_ext/Topic/1");
    flip_all(&home, &Subject { entry_len: 20, files, ..subject }, &[0, 5, 12], 160);
}

#[test]
fn no_bit_hides_a_message_once_the_log_was_cleaned() {
    let home = plain(small(), 90);
    let logs = home.path().join("commitlog");
    let mut names: Vec<_> =
        fs::read_dir(logs).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for gone in &names[..1] {
        fs::remove_file(gone).unwrap();
    }
    let first = home.read().queue(b"Topic", 1).unwrap().unwrap().min_offset;
    assert!(first > 0);
    let place = usize::try_from(first % 10).unwrap();
    let base = format!("{:020}", first / 10 * 200);
    let files = Path::new("consumequeue/Topic/1").join(base);
    let subject = Subject { topic: b"Topic", queue_id: 1, entry_len: ENTRY_LEN, files };
    let around: Vec<_> = [place.saturating_sub(1), place, (place + 1).min(9)].into();
    flip_all(&home, &subject, &around, 160);
}

#[test]
fn a_message_that_the_log_lost_is_raised_and_the_next_read_goes_on_behind_it() {
    let home = plain(small(), 40);
    let (topic, all) = (&b"Topic"[..], &TagFilter::ALL);
    let third = home.read().read(topic, 1, 3, 1, None, all).unwrap();
    let at = view_of(&third.records[0]).unwrap().physical_offset();
    // Its magic code.
    home.flip(u64::try_from(at).unwrap() + 4);
    let store = home.open(OpenMode::Read).unwrap();
    let before = store.read(topic, 1, 0, 32, None, all).unwrap();
    assert_eq!((before.records.len(), before.next_queue_offset), (3, 3));
    let error = store.read(topic, 1, 3, 32, None, all).unwrap_err();
    let Error::Corrupt(corruption) = error else { panic!("{error}") };
    assert!(corruption.path.unwrap().starts_with(home.path().join("commitlog")));
    assert!(!store.read(topic, 1, 4, 32, None, all).unwrap().records.is_empty());
}
