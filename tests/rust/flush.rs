//! Acceptance cases FL: when an append returns, and what a flush that is held, late or failing means.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use mqstore::Error;
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::files::{Os, StorageFile};
use mqstore::format::message::properties::{self, names};
use mqstore::store::folder::lock::OffsetsLock;
use mqstore::store::folder::paths::StorePaths;
use mqstore::store::groups::{Begin, ConsumerGroup};
use mqstore::store::{GetStatus, KeyQuery, MessageStore, NewMessage, OpenMode};

use crate::support::storage::{Call, Staged};
use crate::support::{Home, append, body, check, check_queues, read_queue, small};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn sync() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        flush_disk_type: FlushDiskType::Sync,
        sync_flush_timeout: 600_000,
        ..small()
    }
}

/// A message of 158 bytes, as in the acceptance cases: 32 of body, 29 of properties, 6 of topic.
fn of_158_bytes(store: &MessageStore) -> mqstore::Result<mqstore::error::AppendResult> {
    let mut properties = Vec::new();
    properties::push(&mut properties, names::KEYS, &[b'k'; 23]);
    let mut message = NewMessage::new(b"FooBar", &[b'b'; 32]);
    message.properties = &properties;
    store.append(&message)
}

/// Waits, without a clock, until something is so.
fn until(mut so: impl FnMut() -> bool) {
    while !so() {
        thread::yield_now();
    }
}

#[test]
fn fl01_a_held_flush_holds_every_append_and_hides_what_it_wrote() {
    let stage = Staged::new();
    let home = Home::on(stage.storage(), sync());
    let store = Arc::new(home.create());
    stage.hold_flushes();
    let returned = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let (store, returned) = (Arc::clone(&store), Arc::clone(&returned));
            thread::spawn(move || {
                assert_eq!(of_158_bytes(&store).unwrap().store_size, 158);
                returned.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    until(|| store.log().end_offset() == 1580 && stage.is_waiting());
    assert_eq!(store.log().flushed_offset(), 0);
    assert_eq!(returned.load(Ordering::SeqCst), 0);
    assert!(store.queue(b"FooBar", 0).unwrap().is_none_or(|queue| queue.max_offset == 0));
    let read = store
        .read(b"FooBar", 0, 0, 32, None, &mqstore::format::queue::consume_queue::TagFilter::ALL)
        .unwrap();
    assert_eq!(read.status, GetStatus::NoMessageInQueue);
    stage.release();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(store.log().flushed_offset(), 1580);
    assert_eq!(store.queue(b"FooBar", 0).unwrap().unwrap().max_offset, 10);
}

#[test]
fn fl02_without_waiting_for_flushes_all_return_and_can_be_read() {
    let stage = Staged::new();
    let home =
        Home::on(stage.storage(), StoreConfig { flush_disk_type: FlushDiskType::Async, ..sync() });
    let store = home.create();
    stage.hold_flushes();
    for number in 0..10 {
        assert_eq!(of_158_bytes(&store).unwrap().queue_offset, number);
    }
    assert_eq!(store.queue(b"FooBar", 0).unwrap().unwrap().max_offset, 10);
    let read = store
        .read(b"FooBar", 0, 0, 32, None, &mqstore::format::queue::consume_queue::TagFilter::ALL)
        .unwrap();
    assert_eq!(read.records.len(), 10);
    assert_eq!(store.log().flushed_offset(), 0);
    stage.release();
}

#[test]
fn appending_and_queries_go_on_while_the_index_is_flushed() {
    let stage = Staged::new();
    let home =
        Home::on(stage.storage(), StoreConfig { flush_disk_type: FlushDiskType::Async, ..sync() });
    let store = Arc::new(home.create());
    of_158_bytes(&store).unwrap();
    stage.hold_flushes_of("/index/");
    let flushing = thread::spawn({
        let store = Arc::clone(&store);
        move || store.flush()
    });
    until(|| stage.is_waiting());
    let (tell, told) = mpsc::channel();
    let going_on = thread::spawn({
        let store = Arc::clone(&store);
        move || {
            of_158_bytes(&store).unwrap();
            let query = KeyQuery {
                topic: b"FooBar",
                key: &[b'k'; 23],
                begin_ms: 0,
                end_ms: i64::MAX,
                max_messages: 10,
                exact: true,
            };
            tell.send(store.query(&query).unwrap().records.len()).unwrap();
        }
    });
    let found = told.recv_timeout(Duration::from_secs(20));
    stage.release();
    going_on.join().unwrap();
    flushing.join().unwrap().unwrap();
    assert_eq!(found, Ok(2));
}

/// Whether another thread can append to a new queue and to an old one; if not, it goes on trying.
fn appending_goes_on<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    store: &'scope MessageStore,
) -> bool {
    let (tell, told) = mpsc::channel();
    scope.spawn(move || {
        let mut message = NewMessage::new(b"FooBar", b"body");
        message.queue_id = 5;
        store.append(&message).unwrap();
        of_158_bytes(store).unwrap();
        let _ = tell.send(());
    });
    told.recv_timeout(Duration::from_secs(20)).is_ok()
}

#[test]
fn appending_goes_on_while_the_checkpoint_or_the_topics_are_flushed() {
    for (held, flush_disk_type) in [
        ("checkpoint", FlushDiskType::Sync),
        ("topics.json", FlushDiskType::Sync),
        ("topics.json", FlushDiskType::Async),
    ] {
        let stage = Staged::new();
        let home = Home::on(stage.storage(), StoreConfig { flush_disk_type, ..sync() });
        let store = home.create();
        of_158_bytes(&store).unwrap();
        stage.hold_flushes_of(held);
        let goes_on = thread::scope(|scope| {
            let flushing = scope.spawn(|| store.flush());
            until(|| stage.is_waiting());
            let goes_on = appending_goes_on(scope, &store);
            stage.release();
            flushing.join().unwrap().unwrap();
            goes_on
        });
        assert!(goes_on, "{held}");
        store.close().unwrap();
        let topics = std::fs::read_to_string(home.path().join("config/topics.json")).unwrap();
        assert!(topics.contains("\"writeQueueNums\":6"), "{topics}");
    }
}

#[test]
fn appending_goes_on_while_another_process_writes_offsets() {
    let stage = Staged::new();
    let home = Home::on(stage.storage(), sync());
    let store = Arc::new(home.create());
    of_158_bytes(&store).unwrap();
    let group = ConsumerGroup::open(Arc::clone(&store), "readers", Begin::Earliest).unwrap();
    group.seek("FooBar", 0, 1).unwrap();
    let other =
        OffsetsLock::take_beside(&StorePaths::new(Arc::new(Os), home.path(), &sync())).unwrap();
    let goes_on = thread::scope(|scope| {
        let before = stage.count(Call::TryLock);
        let committing = scope.spawn(|| group.commit());
        until(|| stage.count(Call::TryLock) > before + 2);
        let goes_on = appending_goes_on(scope, &store);
        drop(other);
        committing.join().unwrap().unwrap();
        goes_on
    });
    assert!(goes_on);
}

#[test]
fn the_name_of_a_new_index_file_is_made_durable_by_the_flush_and_not_by_the_append() {
    let stage = Staged::new();
    let home =
        Home::on(stage.storage(), StoreConfig { flush_disk_type: FlushDiskType::Async, ..sync() });
    let store = home.create();
    stage.fail(Call::SyncDir, "/index", 0, EIO);
    of_158_bytes(&store).unwrap();
    assert_eq!(store.dispatched_offset().unwrap(), 158);
    assert!(matches!(store.flush(), Err(Error::Io { op: mqstore::Operation::Flush, .. })));
    assert!(matches!(of_158_bytes(&store), Err(Error::Poisoned { .. })));
}

#[test]
fn no_message_is_written_over_where_disk_space_is_zeros_that_are_written() {
    for flush_disk_type in [FlushDiskType::Async, FlushDiskType::Sync] {
        let stage = Staged::new();
        stage.reserve_by_writing();
        let home = Home::on(stage.storage(), StoreConfig { flush_disk_type, ..sync() });
        home.create().close().unwrap();
        for number in 0..5 {
            // Each goes on in the midst of a page.
            let store = home.write();
            append(&store, number, &body(number)).unwrap();
            store.close().unwrap();
        }
        check(&home.write(), 5);
    }
}

#[test]
fn fl03_a_late_flush_gives_the_result_inside_of_the_error() {
    let stage = Staged::new();
    let home = Home::on(stage.storage(), StoreConfig { sync_flush_timeout: 20, ..sync() });
    let store = home.create();
    stage.hold_flushes();
    let error = append(&store, 0, b"late").unwrap_err();
    let Error::FlushTimeout { result, timeout_ms } = error else { panic!("{error}") };
    assert_eq!((result.physical_offset, result.queue_offset, timeout_ms), (0, 0, 20));
    stage.release();
    until(|| store.log().flushed_offset() > 0);
    assert_eq!(read_queue(&store, 0, 0).records.len(), 1);
    append(&store, 4, b"in time").unwrap();
    assert_eq!(read_queue(&store, 0, 0).records.len(), 2);
}

#[test]
fn fl04_a_failed_flush_ends_writing_for_all_and_is_never_tried_again() {
    for (skip, errno) in [(0, EIO), (3, EIO), (3, ENOSPC)] {
        let stage = Staged::new();
        let home = Home::on(stage.storage(), sync());
        let store = Arc::new(home.create());
        for number in 0..skip {
            append(&store, number, &body(number)).unwrap();
        }
        stage.fail(Call::Sync, "commitlog", 0, errno);
        stage.hold_flushes();
        let threads: Vec<_> = (0..5)
            .map(|number| {
                let store = Arc::clone(&store);
                thread::spawn(move || append(&store, number, b"never").unwrap_err())
            })
            .collect();
        until(|| stage.is_waiting());
        stage.release();
        for thread in threads {
            let error = thread.join().unwrap();
            assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        }
        let tried = stage.count(Call::Sync);
        assert!(matches!(append(&store, 9, b"x"), Err(Error::Poisoned { .. })));
        assert!(matches!(store.flush(), Err(Error::Poisoned { .. })));
        // Acknowledged messages can still be read.
        let kept: Vec<usize> = (0..skip).collect();
        check_queues(&store, &kept);
        assert!(store.close().is_err());
        assert_eq!(stage.count(Call::Sync), tried, "a flush was tried again");
        assert!(home.abort_exists());
        stage.heal();
        let again = home.write();
        let found = read_queue(&again, 0, 0).records.len();
        assert!(found >= kept.iter().filter(|number| *number % 4 == 0).count());
        append(&again, 0, b"goes on").unwrap();
    }
}

#[test]
fn fl04_two_flushes_at_once_cannot_hide_a_failure() {
    // A failed flush is told once: another of the same file would say that all is well.
    let stage = Staged::new();
    let home = Home::on(stage.storage(), sync());
    let store = Arc::new(home.create());
    stage.hold_flushes();
    let appending = {
        let store = Arc::clone(&store);
        thread::spawn(move || append(&store, 0, b"lost"))
    };
    until(|| stage.is_waiting());
    let entered = Arc::new(AtomicUsize::new(0));
    let flushing = {
        let (store, entered) = (Arc::clone(&store), Arc::clone(&entered));
        thread::spawn(move || {
            entered.store(1, Ordering::SeqCst);
            store.flush()
        })
    };
    until(|| entered.load(Ordering::SeqCst) == 1);
    // Long enough for a flush that does not wait for the first one to come.
    (0..20_000).for_each(|_| thread::yield_now());
    assert_eq!(stage.most_waiting(), 1, "a flush began while another was under way");
    stage.fail(Call::Sync, "commitlog", 0, EIO);
    stage.release();
    assert!(matches!(appending.join().unwrap(), Err(Error::Poisoned { .. })));
    assert!(flushing.join().unwrap().is_err());
    assert!(matches!(append(&store, 1, b"x"), Err(Error::Poisoned { .. })));
}

#[test]
fn fl04_a_failed_flush_of_queues_or_index_ends_writing_too() {
    for path in ["consumequeue", "index", "checkpoint"] {
        let stage = Staged::new();
        let home = Home::on(stage.storage(), small());
        let store = home.create();
        home.fill(&store, 0..30);
        stage.fail(Call::SyncDerived, path, 0, EIO);
        assert!(store.flush().is_err(), "{path}");
        // The next flush could not tell what was lost.
        stage.heal();
        let tried = stage.count(Call::SyncDerived);
        let refused = append(&store, 30, &body(30));
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "{path}");
        assert!(store.close().is_err(), "{path}");
        assert_eq!(stage.count(Call::SyncDerived), tried, "{path}: a flush was tried again");
        crate::support::check(&home.write(), 30);
    }
}

#[test]
fn fl06_a_full_disk_is_an_error_before_anything_is_taken_and_passes() {
    for call in [Call::Create, Call::Reserve] {
        let stage = Staged::new();
        let home = Home::on(stage.storage(), StoreConfig { ..small() });
        let store = home.create();
        let taken = home.fill(&store, 0..20).len();
        stage.fail(call, "commitlog", 0, ENOSPC);
        let mut count = taken;
        let error = loop {
            match append(&store, count, &body(count)) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
            assert!(count < 1000, "{call:?}");
        };
        let Error::Io { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.raw_os_error(), Some(ENOSPC), "{error}");
        let whole: Vec<usize> = (0..count).collect();
        check_queues(&store, &whole);
        assert!(append(&store, count, &body(count)).is_err());
        stage.heal();
        home.fill(&store, count..count + 100);
        let whole: Vec<usize> = (0..count + 100).collect();
        check_queues(&store, &whole);
        store.close().unwrap();
        crate::support::check(&home.write(), count + 100);
    }
}

#[test]
fn fl06_a_disk_too_full_for_queues_and_index_loses_no_message() {
    for path in ["consumequeue", "index"] {
        for call in [Call::Create, Call::Reserve, Call::Write] {
            let stage = Staged::new();
            let home = Home::on(stage.storage(), small());
            let store = home.create();
            home.fill(&store, 0..20);
            stage.fail(call, path, 0, ENOSPC);
            home.fill(&store, 20..200);
            // A concurrent reader gets all of it.
            crate::support::check(&store, 200);
            assert_eq!(store.queue_names().unwrap().len(), 4, "{path} {call:?}");
            stage.heal();
            store.wait_dispatched().unwrap();
            crate::support::check(&store, 200);
            store.close().unwrap();
            crate::support::check(&home.write(), 200);
        }
    }
}

#[test]
fn fl08_flushes_are_shared_and_no_append_returns_before_its_own() {
    const PRODUCERS: usize = 8;
    const EACH: usize = 1250;
    const RECORD: u64 = 158;
    let stage = Staged::new();
    let config = StoreConfig { mapped_file_size_commit_log: Some(4 << 20), ..sync() };
    let home = Home::on(stage.storage(), config);
    let store = Arc::new(home.create());
    // How many records were whole when the flush under way began, and when the last good one did.
    let begun = Arc::new(Mutex::new((0_u64, 0_u64)));
    let durable = Arc::new(AtomicU64::new(0));
    let (before, after) = (Arc::clone(&begun), (Arc::clone(&begun), Arc::clone(&durable)));
    stage.watch(
        Box::new(move |file: &dyn StorageFile, _| {
            let mut begun = before.lock().unwrap();
            let mut last = [0];
            // The last byte of a record is written last, and is never 0.
            while file.read_at(&mut last, (begun.0 + 1) * RECORD - 1).unwrap() == 1 && last != [0] {
                begun.0 += 1;
            }
            begun.1 = begun.0;
        }),
        Box::new(move |_, _| {
            let begun = after.0.lock().unwrap();
            after.1.fetch_max(begun.1, Ordering::SeqCst);
        }),
    );
    let (late, heard) = mpsc::channel();
    let threads: Vec<_> = (0..PRODUCERS)
        .map(|_| {
            let (store, durable, late) = (Arc::clone(&store), Arc::clone(&durable), late.clone());
            thread::spawn(move || {
                for _ in 0..EACH {
                    let result = of_158_bytes(&store).unwrap();
                    let end = u64::try_from(result.physical_offset).unwrap() + RECORD;
                    if durable.load(Ordering::SeqCst) * RECORD < end {
                        late.send(end).unwrap();
                    }
                }
            })
        })
        .collect();
    drop(late);
    assert_eq!(heard.into_iter().count(), 0, "appends returned before a flush of theirs ended");
    for thread in threads {
        thread.join().unwrap();
    }
    let appends = PRODUCERS * EACH;
    assert!(stage.count(Call::Sync) <= appends, "{} flushes", stage.count(Call::Sync));
    let queue = store.queue(b"FooBar", 0).unwrap().unwrap();
    assert_eq!(queue.max_offset, i64::try_from(appends).unwrap());
    drop(store);
    assert_eq!(home.open(OpenMode::Read).unwrap().end_offset(), appends as u64 * RECORD);
}

#[test]
fn in_the_background_log_and_queues_are_flushed_when_their_time_comes() {
    let stage = Staged::new();
    let config = StoreConfig {
        flush_interval_commit_log: 1,
        flush_commit_log_thorough_interval: 1,
        flush_consume_queue_thorough_interval: 1,
        flush_interval_consume_queue: 1,
        ..small()
    };
    let home = Home::on(stage.storage(), config);
    let store = home.create();
    home.fill(&store, 0..20);
    // Far fewer pages than are worth a flush of their own.
    until(|| store.log().flushed_offset() == store.log().end_offset());
    let flushed = stage.count(Call::SyncDerived);
    home.fill(&store, 20..40);
    until(|| stage.count(Call::SyncDerived) > flushed);
    store.close().unwrap();
    crate::support::check(&home.read(), 40);
}

#[test]
fn of_many_messages_those_before_the_one_at_fault_are_told() {
    let bodies: Vec<_> = (0..200).map(body).collect();
    let messages: Vec<_> = bodies.iter().map(|body| NewMessage::new(b"Topic", body)).collect();
    // No room for the second file.
    let stage = Staged::new();
    let home = Home::on(stage.storage(), small());
    let store = home.create();
    stage.fail(Call::Create, "commitlog", 1, ENOSPC);
    let error = store.append_many(&messages).unwrap_err();
    assert!(
        matches!(&error.error, Error::Io { source, .. }
        if source.raw_os_error() == Some(ENOSPC)),
        "{error:?}"
    );
    let told = error.results.len();
    assert!(told > 10 && error.index == told, "{told} {}", error.index);
    assert_eq!(read_queue(&store, 0, 0).records.len(), told);
    stage.heal();
    assert_eq!(store.append_many(&messages[told..]).unwrap().len(), 200 - told);
    assert_eq!(read_queue(&store, 0, 0).records.len(), 200);
    store.close().unwrap();
    // Late they are stored all the same; of a failed flush nobody can tell.
    let stage = Staged::new();
    let home = Home::on(stage.storage(), StoreConfig { sync_flush_timeout: 20, ..sync() });
    let store = home.create();
    stage.hold_flushes();
    let late = store.append_many(&messages[..5]).unwrap_err();
    assert!(matches!(late.error, Error::FlushTimeout { .. }), "{late:?}");
    assert_eq!((late.results.len(), late.index), (5, 4));
    stage.release();
    until(|| store.log().flushed_offset() == store.log().end_offset());
    stage.fail(Call::Sync, "commitlog", 0, EIO);
    let failed = store.append_many(&messages[5..10]).unwrap_err();
    assert!(matches!(failed.error, Error::Poisoned { .. }), "{failed:?}");
    assert_eq!((failed.results.len(), failed.index), (0, 0));
    let closed = store.append_many(&messages[..1]).unwrap_err();
    assert!(matches!(closed.error, Error::Poisoned { .. }) && closed.results.is_empty());
}

#[test]
fn a_group_that_writes_its_places_has_the_lock_until_it_is_done() {
    let stage = Staged::new();
    let home = Home::on(stage.storage(), small());
    let store = Arc::new(home.create());
    append(&store, 0, &body(0)).unwrap();
    let group = ConsumerGroup::open(Arc::clone(&store), "readers", Begin::Earliest).unwrap();
    group.seek("Topic", 0, 1).unwrap();
    stage.hold_flushes_of("consumerOffset");
    thread::scope(|scope| {
        let committing = scope.spawn(|| group.commit());
        until(|| stage.is_waiting());
        let (tell, told) = mpsc::channel();
        let closed = &store;
        scope.spawn(move || tell.send(closed.close()));
        until(|| store.is_closed());
        let early = told.recv_timeout(Duration::from_millis(100));
        stage.release();
        assert!(early.is_err(), "the store was closed beside a commit");
        committing.join().unwrap().unwrap();
        told.recv().unwrap().unwrap();
    });
    assert!(matches!(group.commit(), Err(Error::Closed)));
    drop(group);
    let reader = Arc::new(home.open(OpenMode::Read).unwrap());
    let again = ConsumerGroup::open(reader, "readers", Begin::Earliest).unwrap();
    assert_eq!(again.lag(&BTreeMap::new()).unwrap()[0].queue_offset, 1);
}

#[test]
fn open_one_append_and_close_flush_nine_times_at_the_most() {
    for flush_disk_type in [FlushDiskType::Async, FlushDiskType::Sync] {
        let stage = Staged::new();
        stage.tell_stamps(false);
        let config =
            StoreConfig { mapped_file_size_consume_queue: Some(20_000), flush_disk_type, ..sync() };
        let home = Home::on(stage.storage(), config);
        let store = home.create();
        of_158_bytes(&store).unwrap();
        store.close().unwrap();
        let flushes =
            || [Call::AnySync, Call::SyncDir, Call::SyncAll].map(|call| stage.count(call));
        // A slow machine gives background flushes their turn.
        let fewest = (0..5).map(|_| {
            let before: usize = flushes().iter().sum();
            let store = home.write();
            of_158_bytes(&store).unwrap();
            store.close().unwrap();
            flushes().iter().sum::<usize>() - before
        });
        let fewest = fewest.min();
        assert!(fewest.is_some_and(|fewest| fewest <= 9), "{flush_disk_type:?}: {fewest:?}");
    }
}

#[test]
fn close_reads_the_pages_of_an_index_that_were_written_and_no_others() {
    let stage = Staged::new();
    let config = StoreConfig { max_hash_slot_num: Some(5_000_000), ..sync() };
    let home = Home::on(stage.storage(), config);
    let store = home.create();
    of_158_bytes(&store).unwrap();
    let before = stage.count(Call::Read);
    store.close().unwrap();
    // Its 20 MB of slots have one page with a byte.
    let read = stage.count(Call::Read) - before;
    assert!(read <= 40, "{read} reads");
}
