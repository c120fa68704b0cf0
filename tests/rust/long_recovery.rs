//! Recovery of a log so long that it is read on two threads and dispatched in bulk.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use mqstore::config::StoreConfig;
use mqstore::files::{Access, FileRun, Os};
use mqstore::log::CommitLog;
use mqstore::log::scanner::{Scanned, Stop, each_ahead};
use mqstore::store::{MessageStore, NewMessage};

use crate::support::{Home, START_MS, by_key, key, names_in, places, set_len, small};

const MESSAGES: usize = 400;

/// A body of some 60 KiB.
fn large(number: usize) -> Vec<u8> {
    let byte = u8::try_from(number % 200).unwrap() + 1;
    vec![byte; 60_000 + number % 13]
}

/// Appends message `number` with two keys, so that those of one message may lie in two index files.
fn append_long(store: &MessageStore, number: usize) {
    let properties = format!("KEYS\u{1}{} also-{number}\u{2}", key(number));
    let body = large(number);
    let mut message = NewMessage::new(b"Topic", &body);
    message.queue_id = i32::try_from(number % 4).unwrap();
    message.properties = properties.as_bytes();
    store.append(&message).unwrap();
}

fn long() -> Home {
    let home = Home::new(StoreConfig { mapped_file_size_commit_log: Some(4 << 20), ..small() });
    let store = home.create();
    for number in 0..MESSAGES {
        home.clock.set(START_MS + i64::try_from(number).unwrap() * 1000);
        append_long(&store, number);
    }
    store.close().unwrap();
    home
}

fn queue_bytes(home: &Home) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = home.snapshot();
    files.retain(|(name, _)| name.starts_with("consumequeue"));
    files
}

/// The names tell the time at which a file was made.
fn index_bytes(home: &Home) -> Vec<Vec<u8>> {
    home.index_files().iter().map(|path| fs::read(path).unwrap()).collect()
}

fn check_keys(store: &MessageStore) {
    for number in (0..MESSAGES).step_by(19).chain([MESSAGES - 1]) {
        assert!(by_key(store, number) == [large(number)], "message {number}");
    }
}

#[test]
fn what_is_lost_is_made_again_byte_for_byte() {
    let home = long();
    let (queues, index) = (queue_bytes(&home), index_bytes(&home));
    assert!(index.len() > 10);
    type Lose = fn(&Home);
    let lose: [(&str, Lose); 5] = [
        ("all", |home| {
            fs::remove_dir_all(home.path().join("consumequeue")).unwrap();
            fs::remove_dir_all(home.path().join("index")).unwrap();
            fs::remove_file(home.path().join("checkpoint")).unwrap();
        }),
        ("the queues", |home| fs::remove_dir_all(home.path().join("consumequeue")).unwrap()),
        ("the index", |home| fs::remove_dir_all(home.path().join("index")).unwrap()),
        ("all but the first index files", |home| {
            home.index_files().iter().skip(2).for_each(|path| fs::remove_file(path).unwrap());
        }),
        ("the last index files, and the one before cut", |home| {
            home.index_files().iter().skip(3).for_each(|path| fs::remove_file(path).unwrap());
            set_len(&home.index_files()[2], 40);
        }),
    ];
    for (what, lose) in lose {
        for crashed in [false, true] {
            let copy = home.copy();
            lose(&copy);
            if crashed {
                fs::write(copy.path().join("abort"), b"1").unwrap();
            }
            let store = copy.write();
            assert!(!store.recovery().unwrap().rebuilt.is_empty(), "{what}");
            check_keys(&store);
            store.close().unwrap();
            assert!(queue_bytes(&copy) == queues, "{what}, crashed: {crashed}");
            assert!(index_bytes(&copy) == index, "{what}, crashed: {crashed}");
            // All of it is known to be whole now.
            let store = copy.write();
            assert_eq!(store.recovery().unwrap().dispatched, 0, "{what}");
            // And goes on.
            append_long(&store, MESSAGES);
            assert!(by_key(&store, MESSAGES) == [large(MESSAGES)], "{what}");
            check_keys(&store);
        }
    }
}

#[test]
fn damage_ends_the_log_where_a_short_walk_would_end_it() {
    let home = long();
    let all = places(&home);
    fs::write(home.path().join("abort"), b"1").unwrap();
    fs::remove_file(home.path().join("checkpoint")).unwrap();
    for (number, inside) in [(0, 4), (137, 100), (250, 50_000), (MESSAGES - 1, 200)] {
        let copy = home.copy();
        copy.flip(all[number].0 + inside);
        let store = copy.write();
        let report = store.recovery().unwrap();
        assert_eq!(report.end_physical_offset, all[number].0, "message {number}");
        assert_eq!(report.quarantined_count, (MESSAGES - 1 - number) as u64, "message {number}");
        for other in (0..number).step_by(23) {
            assert!(by_key(&store, other) == [large(other)], "message {other} of {number}");
        }
    }
}

/// Where the records begin that a walk on two threads gives, as many as asked for, and how it ends.
fn walked(log: &CommitLog, most: usize) -> (Vec<i64>, u64, Option<Stop>) {
    let mut places = Vec::new();
    let walked = each_ahead(log, 0, log.end_offset(), true, |view| {
        places.push(view.physical_offset());
        Ok(if places.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    let walked = walked.unwrap();
    (places, walked.end, walked.stop)
}

#[test]
fn a_walk_on_two_threads_gives_what_one_on_one_gives() {
    let home = long();
    let all: Vec<i64> =
        places(&home).iter().map(|(place, _)| i64::try_from(*place).unwrap()).collect();
    let store = home.read();
    let (found, end, stop) = walked(store.log(), usize::MAX);
    assert_eq!(found, all);
    assert!(matches!(stop, Some(Stop::End | Stop::Empty)), "{stop:?}");
    assert_eq!(end, store.end_offset());
    for most in [1, 100, 399] {
        let (found, end, stop) = walked(store.log(), most);
        assert_eq!(found, all[..most]);
        assert_eq!(i64::try_from(end).unwrap(), next_place(&store, all[most - 1]));
        assert!(stop.is_none());
    }
    let error =
        each_ahead(store.log(), 0, store.end_offset(), true, |_| Err(mqstore::Error::Closed));
    assert!(matches!(error, Err(mqstore::Error::Closed)));
}

/// Where the record ends that begins at `place`.
fn next_place(store: &MessageStore, place: i64) -> i64 {
    let mut scanner = store.scanner(u64::try_from(place).unwrap(), None, true);
    match scanner.step().unwrap() {
        Ok(Scanned::Message(view)) => place + i64::from(view.store_size()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn writing_again_leaves_holes() {
    let home = Home::new(small());
    let dir = home.path().join("commitlog");
    fs::create_dir(&dir).unwrap();
    let (size, data) = (96 << 20, (3 << 20) + 17);
    let path = dir.join(format!("{:020}", 0));
    fs::write(&path, vec![7; data]).unwrap();
    set_len(&path, size);
    let (run, _) =
        FileRun::load(Arc::new(Os), Arc::default(), vec![dir.clone()], size, Access::ReadWrite)
            .unwrap();
    CommitLog::new(run, size).write_again(1000).unwrap();
    assert_eq!(names_in(&dir), std::slice::from_ref(&path));
    let bytes = fs::read(&path).unwrap();
    assert!(bytes[..data].iter().all(|&byte| byte == 7) && bytes[data..].iter().all(|&b| b == 0));
    let on_disk = fs::metadata(&path).unwrap().blocks() * 512;
    assert!(on_disk <= 5 << 20, "{on_disk} bytes on disk");
}
