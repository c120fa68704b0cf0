//! Recovery of a log so long that it is read in parts on several threads and dispatched in bulk.

use std::cell::Cell;
use std::fs;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use mqstore::config::StoreConfig;
use mqstore::files::{Access, FileRun, Os};
use mqstore::format::message::MAGIC_V1;
use mqstore::log::CommitLog;
use mqstore::log::read::scanner::{Flow, Item, Resync, Stop};
use mqstore::store::dispatch::collect::Wanted;
use mqstore::store::dispatch::log_parts::{Checked, LogReading};
use mqstore::store::folder::paths::StorePaths;
use mqstore::store::open::inspect::queue_layout;
use mqstore::store::queue_table::QueueTable;
use mqstore::store::{MessageStore, NewMessage};

use crate::support::{Home, START_MS, append, by_key, key, names_in, places, set_len, small};

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
fn lost_files_are_made_again_byte_for_byte() {
    let home = long();
    let (queues, index) = (queue_bytes(&home), index_bytes(&home));
    assert!(index.len() > 10);
    type Lose = fn(&Home);
    let lose: [(&str, Lose); 5] = [
        ("all", |home| {
            fs::remove_dir_all(home.path().join("consumequeue")).unwrap();
            fs::remove_dir_all(home.path().join("index")).unwrap();
            fs::remove_file(home.path().join("checkpoint")).unwrap();
            fs::remove_file(home.path().join("mqstore.mark")).unwrap();
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
            let recovery = store.recovery().unwrap();
            assert!(!recovery.rebuilt.is_empty(), "{what}");
            // Without one of its parts all of the log is dispatched.
            if !what.contains("files") {
                assert_eq!(recovery.dispatched, MESSAGES as u64, "{what}");
            }
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
    fs::remove_file(home.path().join("mqstore.mark")).unwrap();
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

/// The queues of a home, of which there are none yet.
fn no_queues(home: &Home) -> QueueTable {
    let paths = StorePaths::new(Arc::new(Os), home.path(), &home.config);
    let mut layout = queue_layout(&paths, &home.config).unwrap();
    layout.plain.dir = home.path().join("none");
    let kinds = Default::default();
    QueueTable::load(Arc::new(Os), layout, kinds, Access::Read).unwrap()
}

#[test]
fn a_log_read_in_parts_gives_what_a_walk_gives() {
    let home = long();
    let all: Vec<i64> =
        places(&home).iter().map(|(place, _)| i64::try_from(*place).unwrap()).collect();
    let (store, queues) = (home.read(), no_queues(&home));
    let wanted = Wanted { with_surplus_keys: true, ..Wanted::all(&queues) };
    let walked = |from: u64, most: usize| {
        let (mut units, mut keyed) = (Vec::new(), Vec::new());
        let walked = LogReading::new(store.log().run(), wanted, store.end_offset(), Checked::All)
            .each(from, &mut |part| {
                units.extend(part.collected.units.iter().map(|one| one.unit.physical_offset));
                keyed.extend(part.collected.keyed().map(|(one, keys)| {
                    assert_eq!(keys.len(), 2);
                    one.physical_offset
                }));
                Ok(if units.len() < most {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                })
            });
        let (end, stop) = walked.unwrap();
        assert_eq!(units, keyed);
        (units, end, stop)
    };
    for first in [0, 1, 70, 250, MESSAGES - 1] {
        let (found, end, stop) = walked(u64::try_from(all[first]).unwrap(), usize::MAX);
        assert_eq!(found, all[first..]);
        assert!(matches!(stop, Some(Stop::End | Stop::Empty)), "{stop:?}");
        assert_eq!(end, store.end_offset());
    }
    for most in [1, 100, 399] {
        let (found, end, stop) = walked(0, most);
        assert!((most..most + 40).contains(&found.len()), "{most}: {}", found.len());
        assert_eq!(found, all[..found.len()]);
        assert_eq!(i64::try_from(end).unwrap(), next_place(&store, all[found.len() - 1]));
        assert!(stop.is_none());
    }
    let reading = LogReading::new(store.log().run(), wanted, store.end_offset(), Checked::All);
    let error = reading.each(0, &mut |_| Err(mqstore::Error::Closed));
    assert!(matches!(error, Err(mqstore::Error::Closed)));
}

/// Where the record ends that begins at `place`.
fn next_place(store: &MessageStore, place: i64) -> i64 {
    let mut scanner = store.scanner(u64::try_from(place).unwrap());
    let mut next = None;
    let take = |range: Range<u64>, item: Item<'_, '_>| {
        next = matches!(item, Item::Record(..)).then_some(range.end);
        Ok(Flow::Stop)
    };
    scanner.each(store.log(), u64::MAX, Resync::Never, take).unwrap();
    i64::try_from(next.unwrap()).unwrap()
}

/// A reader that begins inside a log meets bodies that look like records of that place.
#[test]
fn bytes_made_to_look_like_records_are_none() {
    const PART: u64 = 2 << 20;
    let mut home = Home::new(small());
    home.config.mapped_file_size_commit_log = Some(64 << 20);
    let store = home.create();
    let mut number = 0;
    while store.end_offset() < 20 << 20 {
        let begin = store.end_offset();
        let mut body = large(number);
        for lie in (1..10).map(|part| part * PART + 1000) {
            let Some(at) = lie.checked_sub(begin + 88).and_then(|at| usize::try_from(at).ok())
            else {
                continue;
            };
            if at + 200 < body.len() {
                body[at..at + 4].copy_from_slice(&200_i32.to_be_bytes());
                body[at + 4..at + 8].copy_from_slice(&MAGIC_V1.to_be_bytes());
                body[at + 28..at + 36].copy_from_slice(&lie.to_be_bytes());
            }
        }
        append(&store, number, &body).unwrap();
        number += 1;
    }
    store.close().unwrap();
    let (queues, index) = (queue_bytes(&home), index_bytes(&home));
    for lost in ["consumequeue", "index"] {
        fs::remove_dir_all(home.path().join(lost)).unwrap();
    }
    fs::write(home.path().join("abort"), b"1").unwrap();
    let store = home.write();
    assert_eq!(store.recovery().unwrap().dispatched, number as u64);
    store.close().unwrap();
    assert!(queue_bytes(&home) == queues && index_bytes(&home) == index);
}

/// A log not known to be flushed is rewritten while it is found where it
/// ends: what lies behind is zeros all the same.
#[test]
fn a_cut_stays_cut_in_a_log_that_is_written_again() {
    let home = long();
    let all = places(&home);
    let end = all[MESSAGES - 1].0;
    home.flip(end + 200);
    fs::write(home.path().join("abort"), b"1").unwrap();
    fs::remove_file(home.path().join("checkpoint")).unwrap();
    fs::remove_file(home.path().join("mqstore.mark")).unwrap();
    let store = home.write();
    let report = store.recovery().unwrap();
    assert_eq!((report.end_physical_offset, report.cut_bytes > 0), (end, true));
    store.close().unwrap();
    let (path, position) = home.log_file(end);
    let bytes = fs::read(path).unwrap();
    assert!(bytes[usize::try_from(position).unwrap()..].iter().all(|&byte| byte == 0));
    let store = home.write();
    assert_eq!(store.recovery().unwrap().cut_bytes, 0);
    assert_eq!(store.end_offset(), end);
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
    let log = CommitLog::new(run, size);
    let asked = Cell::new(0);
    log.write_again(1000, || asked.replace(asked.get() + 1) < 2).unwrap();
    assert_eq!(asked.get(), 3, "it ends when it is no longer wanted");
    log.write_again(1000, || true).unwrap();
    assert_eq!(names_in(&dir), std::slice::from_ref(&path));
    let bytes = fs::read(&path).unwrap();
    assert!(bytes[..data].iter().all(|&byte| byte == 7) && bytes[data..].iter().all(|&b| b == 0));
    let on_disk = fs::metadata(&path).unwrap().blocks() * 512;
    assert!(on_disk <= 5 << 20, "{on_disk} bytes on disk");
}
