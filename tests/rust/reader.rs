//! Readers beside the process that writes.

use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, io};

use mqstore::config::FlushDiskType;
use mqstore::files::{Os, Waiters};
use mqstore::store::folder::lock::{Holder, StoreLock};
use mqstore::store::folder::mark::Mark;
use mqstore::store::folder::paths::StorePaths;
use mqstore::store::open::plan::plan;
use mqstore::store::{MessageStore, NewMessage, OpenMode};
use mqstore::{Error, StoreConfig};

use crate::support::storage::{Call, Staged};
use crate::support::{Home, body, check, copy_folder, read_queue, scan, small};

/// A reader that was told nothing of the store.
fn reader(home: &Home) -> MessageStore {
    MessageStore::open_with(
        home.path(),
        OpenMode::Read,
        StoreConfig::default(),
        Arc::clone(&home.storage),
        Arc::clone(&home.clock) as Arc<_>,
    )
    .unwrap()
}

#[test]
fn a_reader_of_an_empty_store_learns_sizes_from_its_first_files() {
    let home = Home::new(small());
    let writer = home.create();
    let reader = reader(&home);
    assert_eq!(reader.end_offset(), 0);
    let mut before = 0;
    for count in [1, 100, 200] {
        home.fill(&writer, before..count);
        writer.flush().unwrap();
        reader.refresh().unwrap();
        let bodies: Vec<_> = (0..count).map(body).collect();
        assert!(scan(&reader) == (bodies, 0), "{count} messages");
        check(&reader, count);
        before = count;
    }
}

#[test]
fn a_reader_searches_for_the_ends_of_a_queue_once() {
    let stage = Staged::new();
    let home = Home::on(stage.storage(), small());
    let store = home.create();
    home.fill(&store, 0..300);
    store.close().unwrap();
    let reader = home.read();
    let reads_of_a_read = || {
        let before = stage.count(Call::Read);
        assert_eq!(read_queue(&reader, 0, 73).records.len(), 2);
        stage.count(Call::Read) - before
    };
    let first = reads_of_a_read();
    // The entries, and of each record its size and itself.
    assert!(reads_of_a_read() <= 5 && first > 10, "{first} reads at first");
}

#[test]
fn accepted_messages_follow_the_settings() {
    let refused = |config: mqstore::StoreConfig, topic: &[u8], bytes: usize| {
        let home = Home::new(config);
        let store = home.create();
        let body = vec![7; bytes];
        let answer = store.append(&NewMessage::new(topic, &body));
        store.close().unwrap();
        match answer {
            Ok(_) => None,
            Err(Error::InvalidMessage { field, limit, .. }) => Some((field, limit)),
            Err(error) => panic!("{error}"),
        }
    };
    let bare = || mqstore::StoreConfig { validate_topic_names: false, ..small() };
    assert_eq!(refused(bare(), b"../x", 1), Some(("topic", None)));
    assert_eq!(refused(bare(), b"a.b", 1), None);
    // Longer names take another version of the record, which can be forbidden.
    let long = [b'T'; 200];
    assert_eq!(refused(bare(), &long, 1), None);
    let narrow = mqstore::StoreConfig { auto_message_version_on_topic_len: false, ..bare() };
    assert_eq!(refused(narrow, &long, 1), Some(("topic", Some(127))));
    // A record that fits into no file, though its body is no larger than it may be.
    assert_eq!(refused(bare(), b"T", 4050), Some(("message", Some(4088))));
}

#[test]
fn a_batch_s_bodies_together_are_no_larger_than_one_may_be() {
    let home = Home::new(mqstore::StoreConfig { max_message_size: 1000, ..small() });
    let store = home.create();
    let body = [7; 400];
    let batch = |count| store.append_batch(&vec![NewMessage::new(b"T", &body); count]);
    assert_eq!(batch(2).unwrap().len(), 2);
    match batch(3).unwrap_err() {
        Error::InvalidMessage { field: "messages", limit: Some(1000), .. } => {}
        error => panic!("{error}"),
    }
    assert_eq!(store.queue(b"T", 0).unwrap().unwrap().max_offset, 2);
}

#[test]
fn an_unreadable_file_beside_the_messages_keeps_no_reader_from_them() {
    type Put = fn(&std::path::Path) -> io::Result<()>;
    let puts: [Put; 2] = [|path| fs::create_dir(path), |path| symlink("/dev/null", path)];
    for name in ["config/topics.json", "checkpoint", "abort"] {
        for put in puts {
            let home = Home::closed(100);
            let path = home.path().join(name);
            let _ = fs::remove_file(&path);
            put(&path).unwrap();
            let reader = home.open(OpenMode::Read).unwrap();
            check(&reader, 100);
            reader.refresh().unwrap();
            check(&reader, 100);
            let told = |text: &String| text.contains(name);
            assert_eq!(reader.warnings().iter().filter(|text| told(text)).count(), 1, "{name}");
            // A writer would have to change it.
            assert!(matches!(home.open(OpenMode::ReadWrite), Err(Error::Io { .. })), "{name}");
            let go_on = &mut |_, _| ControlFlow::Continue(());
            let planned = plan(home.path(), home.config.clone(), &home.storage, go_on);
            assert!(matches!(planned, Err(Error::Io { .. })), "{name}");
        }
    }
}

/// A number from the environment.
fn number_of(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn a_handle_is_refreshed_by_some_threads_while_others_read() {
    let rounds = number_of("MQSTORE_ROUNDS", 200);
    let home = Home::new(small());
    let writer = home.create();
    home.fill(&writer, 0..8);
    let reader = reader(&home);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let done = SetAtEnd(&is_done);
        for _ in 0..2 {
            threads.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    reader.refresh().unwrap();
                }
            });
        }
        threads.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let end = writer.end_offset();
                // The writer may not have published the end of a message that is in the file.
                if reader.wait(end, Duration::ZERO).unwrap() {
                    match reader.get(end as i64) {
                        // The message had no room there and lies in the next file.
                        Err(Error::MessageNotFound { what }) if what.contains("filler") => {}
                        got => drop(got.unwrap()),
                    }
                }
            }
        });
        let mut before = 0;
        for round in 0..rounds {
            home.fill(&writer, 8 + round as usize..9 + round as usize);
            let end = reader.end_offset();
            assert!(end >= before, "round {round}: the end goes back from {before} to {end}");
            assert!(end <= writer.end_offset(), "round {round}: {end} is past the log's end");
            before = end;
            let (bodies, damaged) = scan(&reader);
            assert_eq!(damaged, 0, "round {round}: a whole log seems damaged");
            assert!(bodies.iter().enumerate().all(|(number, found)| *found == body(number)));
            let queue = read_queue(&reader, 0, 0).records.len();
            assert!(
                queue >= 2 && queue <= 3 + round as usize / 4,
                "round {round}: {queue} messages"
            );
        }
        drop(done);
    });
    check(&writer, 8 + rounds as usize);
}

#[test]
fn an_idle_reader_lists_no_queues() {
    let stage = Staged::new();
    let home = Home::on(stage.storage(), small());
    let store = home.create();
    for queue_id in 0..40 {
        let mut message = NewMessage::new(b"T", b"body");
        message.queue_id = queue_id;
        store.append(&message).unwrap();
    }
    store.flush().unwrap();
    let reader = reader(&home);
    let lists = |work: &dyn Fn()| {
        let before = stage.count(Call::List);
        work();
        stage.count(Call::List) - before
    };
    let idle = lists(&|| reader.refresh_if_grown().unwrap());
    let whole = lists(&|| reader.refresh().unwrap());
    assert!(idle <= 1 && whole > 40, "{idle} and {whole} listings");
    home.fill(&store, 0..1);
    let grown = lists(&|| reader.refresh_if_grown().unwrap());
    assert!(grown > 40, "{grown} listings");
    assert_eq!(reader.end_offset(), store.end_offset());
    // A broker deletes files of the log without a trace in the root.
    home.fill(&store, 1..300);
    store.flush().unwrap();
    // The writer may have made its next file already.
    let files = store.log().run().files();
    let full = files.iter().filter(|file| file.base_offset + 4096 <= store.end_offset());
    let removed = full.map(|file| fs::remove_file(&file.path).unwrap()).count();
    assert!(removed > 1);
    reader.refresh_if_grown().unwrap();
    assert_eq!(reader.end_offset(), store.end_offset());
    // Another session may have deleted, rebuilt or repaired.
    store.close().unwrap();
    let closed = lists(&|| reader.refresh_if_grown().unwrap());
    assert!(closed > 40, "{closed} listings");
}

#[test]
fn a_search_for_the_end_that_is_under_way_shows_no_other_end() {
    let stage = Staged::new();
    let home = Home::on(stage.storage(), small());
    let store = home.create();
    home.fill(&store, 0..9);
    store.flush().unwrap();
    let reader = reader(&home);
    let end = store.end_offset();
    for skip in 0..4 {
        stage.hold_reads("commitlog", skip);
        std::thread::scope(|threads| {
            let refresh = threads.spawn(|| reader.refresh());
            let mut seen = Vec::new();
            for _ in 0..20_000 {
                seen.push(reader.end_offset());
                if refresh.is_finished() {
                    break;
                }
                std::thread::yield_now();
            }
            stage.release_reads();
            refresh.join().unwrap().unwrap();
            seen.dedup();
            assert!(seen.iter().all(|seen| *seen == end), "{skip} reads later: {seen:?} of {end}");
        });
    }
}

/// Ends the other threads, also where an assertion fails.
pub(crate) struct SetAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_reader_misses_no_entry_that_a_broker_writes_while_queues_are_listed() {
    let add = |store: &MessageStore, queue_id: i32, body: &[u8]| {
        let mut message = NewMessage::new(b"T", body);
        message.queue_id = queue_id;
        store.append(&message).unwrap();
    };
    let before = Home::new(small());
    let store = before.create();
    add(&store, 0, b"first of queue 0");
    add(&store, 3, b"first of queue 3");
    store.close().unwrap();
    let after = before.copy();
    let store = after.write();
    add(&store, 0, b"second of queue 0");
    add(&store, 3, b"second of queue 3");
    store.close().unwrap();
    let stage = Staged::new();
    let home = Home::on(stage.storage(), small());
    copy_folder(before.path(), home.path());
    let reader = home.read();
    // The reader has read queue 0 and lists queue 3 next.
    let (from, to) = (after.path().to_owned(), home.path().to_owned());
    stage.after_list(Box::new(move |dir| {
        if dir.ends_with("T/3") {
            copy_folder(&from, &to);
        }
    }));
    reader.refresh().unwrap();
    for queue_id in [0, 3] {
        assert_eq!(reader.queue(b"T", queue_id).unwrap().unwrap().max_offset, 2, "{queue_id}");
    }
}

#[test]
fn a_reader_misses_no_entry_beside_a_writer_that_recovers() {
    let config = StoreConfig {
        flush_interval_consume_queue: 1,
        flush_consume_queue_thorough_interval: 3_600_000,
        ..small()
    };
    let whole = Home::new(config.clone());
    let store = whole.create();
    whole.fill(&store, 0..40);
    store.wait_dispatched().unwrap();
    let paths = StorePaths::new(Arc::new(Os), whole.path(), &config);
    let began = Instant::now();
    while Mark::written_queues(&paths).ok() != Some(store.end_offset()) {
        assert!(began.elapsed() < Duration::from_secs(60), "no thread writes the queues");
        std::thread::yield_now();
    }
    // The power goes: the disk has the mark and three queues, and not the fourth.
    let stage = Staged::new();
    let left = Home::on(stage.storage(), config);
    copy_folder(whole.path(), left.path());
    store.close().unwrap();
    let (file, _) = left.queue_file(1, 0);
    let len = fs::metadata(&file).unwrap().len();
    fs::write(&file, vec![0; usize::try_from(len).unwrap()]).unwrap();
    let ends = |path: &Path| {
        let reader = MessageStore::open(path, OpenMode::Read, small()).unwrap();
        [0, 1, 2, 3].map(|id| reader.queue(b"Topic", id).unwrap().map_or(0, |at| at.max_offset))
    };
    let (path, seen) = (left.path().to_owned(), Arc::new(Mutex::new(Vec::new())));
    let looks = Arc::clone(&seen);
    stage.watch(Box::new(move |_, _| looks.lock().unwrap().push(ends(&path))), Box::new(|_, _| {}));
    let store = left.write();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert!(!seen.is_empty() && seen.iter().all(|ends| *ends == [10; 4]), "{seen:?}");
    assert_eq!(ends(left.path()), [10; 4]);
    store.close().unwrap();
}

/// Sets the mark back to how far the queues were written earlier.
fn put_slot_back(path: &Path, earlier: &[u8]) {
    let mut mark = fs::read(path).unwrap();
    mark[2048..2080].copy_from_slice(&earlier[2048..2080]);
    fs::write(path, mark).unwrap();
}

#[test]
fn a_reader_misses_no_entry_when_a_writer_is_open_again_while_queues_are_listed() {
    let config = StoreConfig { flush_consume_queue_thorough_interval: 3_600_000, ..small() };
    let whole = Home::new(config.clone());
    let store = whole.create();
    whole.fill(&store, 0..4);
    store.flush().unwrap();
    let paths = StorePaths::new(Arc::new(Os), whole.path(), &config);
    let earlier = fs::read(paths.mark()).unwrap();
    whole.fill(&store, 4..40);
    store.flush().unwrap();
    let stage = Staged::new();
    let left = Home::on(stage.storage(), config);
    copy_folder(whole.path(), left.path());
    store.close().unwrap();
    // A writer that is killed has written some of its queues.
    let paths = StorePaths::new(Arc::new(Os), left.path(), &small());
    put_slot_back(&paths.mark(), &earlier);
    let (file, position) = left.queue_file(0, 9);
    crate::support::patch(&file, position, &[0; 20]);
    let killed = StoreLock::take(&paths).unwrap();
    killed.serve(&paths).unwrap();
    let reader = left.read();
    let ends =
        || [0, 1, 2, 3].map(|id| reader.queue(b"Topic", id).unwrap().map_or(0, |at| at.max_offset));
    assert_eq!(ends(), [10; 4]);
    drop(killed);
    // The reader has listed queue 0 when the next writer opens the store.
    let (path, next) = (left.path().to_owned(), Arc::new(Mutex::new(None)));
    let opened = Arc::clone(&next);
    stage.after_list(Box::new(move |dir| {
        let mut opened = opened.lock().unwrap();
        if dir.ends_with("Topic/3") && opened.is_none() {
            *opened = Some(MessageStore::open(&path, OpenMode::ReadWrite, small()).unwrap());
        }
    }));
    reader.refresh().unwrap();
    assert_eq!(ends(), [10; 4]);
    let next = next.lock().unwrap().take().expect("queue 3 was listed");
    next.close().unwrap();
}

#[test]
fn a_writer_that_found_the_disk_full_at_open_serves_later() {
    let stage = Staged::new();
    let home = Home::on(stage.storage(), small());
    let store = home.create();
    home.fill(&store, 0..40);
    store.flush().unwrap();
    let left = Home::on(stage.storage(), small());
    copy_folder(home.path(), left.path());
    store.close().unwrap();
    let (file, _) = left.queue_file(0, 0);
    fs::remove_file(&file).unwrap();
    let paths = StorePaths::new(Arc::new(Os), left.path(), &small());
    stage.fail(Call::Create, "consumequeue", 0, nix::libc::ENOSPC);
    let store = left.write();
    let holder = || StoreLock::holder(&paths);
    assert_eq!(holder(), Some(Holder::Opening));
    stage.heal();
    store.flush().unwrap();
    assert_eq!(holder(), Some(Holder::Writer));
    store.close().unwrap();
    assert_eq!(holder(), None);
}

#[test]
fn a_writer_is_never_taken_for_a_broker() {
    const TURNS: usize = 2000;
    let dir = tempfile::tempdir().unwrap();
    let paths = StorePaths::new(Arc::new(Os), dir.path(), &small());
    let (turns, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while turns.load(Ordering::Relaxed) < TURNS {
                    let Ok(lock) = StoreLock::take(&paths) else { continue };
                    assert_eq!(StoreLock::holder(&paths), Some(Holder::Opening));
                    lock.serve(&paths).unwrap();
                    assert_eq!(StoreLock::holder(&paths), Some(Holder::Writer));
                    turns.fetch_add(1, Ordering::Relaxed);
                }
                over.store(true, Ordering::Relaxed);
            });
        }
        while !over.load(Ordering::Relaxed) {
            assert_ne!(StoreLock::holder(&paths), Some(Holder::Broker));
        }
    });
}

#[test]
fn a_reader_beside_a_writer_reads_no_space_that_is_taken_ahead() {
    const FILE: usize = 8 << 20;
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(FILE as u64),
        flush_interval_consume_queue: 1,
        ..small()
    };
    let stage = Staged::new();
    let home = Home::on(stage.storage(), config);
    let store = home.create();
    home.fill(&store, 0..10);
    store.flush().unwrap();
    let (path, end) = home.log_file(store.end_offset());
    let zeros = vec![0; FILE - usize::try_from(end).unwrap()];
    crate::support::patch(&path, end, &zeros);
    let reader = home.read();
    stage.take_log_read();
    reader.refresh().unwrap();
    check(&reader, 10);
    home.fill(&store, 10..11);
    reader.refresh().unwrap();
    check(&reader, 11);
    let read = stage.take_log_read();
    assert!(read < 1 << 20, "{read} bytes of the log");
}

/// Longer than any test runs.
const EVER: Duration = Duration::from_secs(600);

#[test]
fn every_append_wakes_who_asked() {
    for flush_disk_type in [FlushDiskType::Async, FlushDiskType::Sync] {
        let home = Home::new(StoreConfig { flush_disk_type, ..small() });
        let store = home.create();
        let path = home.path().join("mqstore.wait");
        let waiters = Waiters::open(&Os, &path).unwrap();
        let message = NewMessage::new(b"orders", b"body");
        let appends: [(&str, &dyn Fn()); 3] = [
            ("append", &|| assert!(store.append(&message).is_ok())),
            ("append_many", &|| drop(store.append_many(&[message; 3]).unwrap())),
            ("append_batch", &|| drop(store.append_batch(&[message; 3]).unwrap())),
        ];
        for (name, append) in appends {
            waiters.register().unwrap();
            append();
            assert_eq!(fs::read(&path).unwrap()[..4], [0; 4], "{name}, {flush_disk_type:?}");
            waiters.wait(EVER);
        }
        store.close().unwrap();
        assert!(!path.exists());
    }
}

#[test]
fn a_waiting_reader_asks_to_be_woken() {
    let home = Home::new(small());
    let store = home.create();
    let path = home.path().join("mqstore.wait");
    let asks = || fs::read(&path).unwrap()[0] != 0;
    for reader in [&reader(&home), &store] {
        std::thread::scope(|scope| {
            let end = store.end_offset();
            let waits = scope.spawn(move || reader.wait(end, EVER));
            while !asks() {
                assert!(!waits.is_finished(), "it did not ask");
                std::thread::yield_now();
            }
            home.fill(&store, 0..1);
            assert!(waits.join().unwrap().unwrap());
        });
    }
}
