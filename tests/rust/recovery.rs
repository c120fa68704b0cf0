//! Acceptance cases RC: what a store is after a stop of any kind.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use mqstore::Error;
use mqstore::files::Access;
use mqstore::format::message::MIN_RECORD_LEN;
use mqstore::store::read::queue_read::view_of;
use mqstore::store::{MessageStore, OpenMode, RecoveryMode};

use crate::support::storage::Staged;
use crate::support::{
    Home, append, body, by_key, check, check_queues, key, names_in, places, read_queue, scan,
    set_len,
};

/// Lets a closed store look like one that RocketMQ wrote and did not close.
fn mark_crashed(home: &Home) {
    fs::write(home.path().join("abort"), b"1").unwrap();
    let _ = fs::remove_file(home.path().join("mqstore.mark"));
}

/// Sets what the checkpoint says of the log, the queues and the index.
fn set_checkpoint(home: &Home, times: [i64; 3]) {
    for (at, time) in (0_u64..).step_by(8).zip(times) {
        crate::support::patch(&home.path().join("checkpoint"), at, &time.to_be_bytes());
    }
}

fn max_offsets(store: &MessageStore) -> Vec<i64> {
    (0..4)
        .map(|queue| store.queue(b"Topic", queue).unwrap().map_or(0, |queue| queue.max_offset))
        .collect()
}

#[test]
fn rc01_a_clean_restart_changes_nothing() {
    let home = Home::closed(100);
    let (end, before) = {
        let store = home.read();
        (store.end_offset(), max_offsets(&store))
    };
    let files = home.snapshot();
    let store = home.write();
    assert_eq!(store.recovery().unwrap().mode, RecoveryMode::Clean);
    assert_eq!((store.end_offset(), max_offsets(&store)), (end, before));
    store.close().unwrap();
    for ((name, now), (_, then)) in home.snapshot().iter().zip(&files) {
        let may_differ =
            ["abort.bak", "checkpoint", "mqstore.mark"].iter().any(|file| name.ends_with(file));
        assert!(now == then || may_differ, "{}", name.display());
    }
}

#[test]
fn rc02_a_damaged_last_message_ends_the_log_before_it() {
    for crashed in [false, true] {
        let home = Home::closed(101);
        let all = places(&home);
        let (at, _) = all[100];
        home.patch(at + 88 + body(100).len() as u64, &[0; 16]);
        if crashed {
            mark_crashed(&home);
        }
        let store = home.write();
        assert_eq!(store.end_offset(), at);
        assert_eq!(max_offsets(&store), [25, 25, 25, 25]);
        let report = store.recovery().unwrap();
        assert!(report.cut_bytes > 0 && report.quarantine.is_some(), "{report:?}");
        check(&store, 100);
        home.fill(&store, 100..200);
        check(&store, 200);
        store.close().unwrap();
        check(&home.write(), 200);
    }
}

#[test]
fn rc03_what_was_not_dispatched_is_after_a_crash() {
    let home = Home::new(crate::support::small());
    let store = home.create();
    home.fill(&store, 0..60);
    store.hold_dispatch(true);
    home.fill(&store, 60..100);
    let copy = home.copy();
    drop(store);
    let store = copy.write();
    assert_eq!(store.recovery().unwrap().mode, RecoveryMode::Crash);
    check(&store, 100);
}

#[test]
fn rc04_queues_are_cut_to_the_end_of_the_log() {
    for crashed in [false, true] {
        let home = Home::closed(100);
        let end = home.read().end_offset();
        for extra in 0..10 {
            let at = i64::try_from(end + extra * 120).unwrap();
            home.put_entry(1, 25 + extra, at, 120, 0);
        }
        if crashed {
            mark_crashed(&home);
        }
        let reader = home.read();
        assert_eq!(max_offsets(&reader), [25, 25, 25, 25], "a reader");
        drop(reader);
        let store = home.write();
        assert_eq!(max_offsets(&store), [25, 25, 25, 25]);
        check(&store, 100);
        home.fill(&store, 100..120);
        check(&store, 120);
    }
}

#[test]
fn rc05_lost_queues_and_index_are_made_again() {
    for crashed in [false, true] {
        for lost in [&["consumequeue"][..], &["index"], &["consumequeue", "index"]] {
            let home = Home::closed(200);
            let before = home.snapshot();
            for folder in lost {
                fs::remove_dir_all(home.path().join(folder)).unwrap();
            }
            if crashed {
                mark_crashed(&home);
            }
            check(&home.read(), 200);
            let store = home.write();
            check(&store, 200);
            store.close().unwrap();
            let queues = |files: &[(PathBuf, Vec<u8>)]| -> Vec<_> {
                files.iter().filter(|(name, _)| name.starts_with("consumequeue")).cloned().collect()
            };
            assert!(queues(&home.snapshot()) == queues(&before), "{lost:?}");
        }
    }
}

#[test]
fn rc07_a_message_torn_at_any_byte_is_not_accepted() {
    let home = Home::killed(21);
    let all = places(&home);
    let (at, size) = *all.last().unwrap();
    let (path, position) = home.log_file(at);
    let whole = fs::read(&path).unwrap();
    for kept in 0..size {
        let mut torn = whole.clone();
        let from = usize::try_from(position + kept).unwrap();
        torn[from..].fill(0);
        let copy = home.copy();
        fs::write(copy.log_file(at).0, &torn).unwrap();
        let reader = copy.read();
        assert_eq!(reader.end_offset(), at, "{kept} of {size} bytes, for reading");
        check(&reader, 20);
        drop(reader);
        let store = copy.write();
        assert_eq!(store.end_offset(), at, "{kept} of {size} bytes");
        check(&store, 20);
        assert!(by_key(&store, 20).is_empty());
        home.fill(&store, 20..22);
        check(&store, 22);
    }
}

#[test]
fn rc08_what_was_cut_never_comes_back() {
    let home = Home::new(crate::support::small());
    let store = home.create();
    for number in 0..10 {
        append(&store, number, b"equal").unwrap();
    }
    let copy = home.copy();
    drop(store);
    let all = places(&copy);
    copy.patch(all[5].0 + 40, &vec![0; usize::try_from(all[5].1).unwrap() - 40]);
    let store = copy.write();
    let report = store.recovery().unwrap();
    assert_eq!(store.end_offset(), all[5].0);
    assert_eq!((report.quarantined_count, report.quarantined_messages.len()), (4, 4));
    let kept = report.quarantine.clone().unwrap();
    assert!(!names_in(&kept).is_empty() && !kept.starts_with(copy.path().join("commitlog")));
    append(&store, 5, b"other").unwrap();
    let again = copy.copy();
    drop(store);
    let store = again.write();
    let (bodies, damage) = scan(&store);
    assert_eq!((bodies.len(), damage), (6, 0));
    assert_eq!(bodies[5], b"other");
}

#[test]
fn rc09_damage_in_the_flushed_part_is_refused_and_nothing_is_touched() {
    for crashed in [false, true] {
        let home = Home::closed(1000);
        let all = places(&home);
        let (at, _) = all[500];
        home.flip(at + 90);
        if crashed {
            mark_crashed(&home);
        }
        let before = home.snapshot();
        let error = home.open(OpenMode::ReadWrite).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("physical offset {at}")), "{text}");
        assert!(text.contains("499 whole messages"), "{text}");
        let now = home.snapshot();
        for ((name, bytes), (_, then)) in now.iter().zip(&before) {
            assert!(bytes == then, "{} was changed", name.display());
        }
        assert_eq!(now.len(), before.len());
        let (bodies, damage) = scan(&home.read());
        assert_eq!((bodies.len(), damage), (999, 1));
    }
}

#[test]
fn rc11_a_blank_must_reach_the_end_of_its_file() {
    let mut config = crate::support::small();
    config.mapped_file_size_commit_log = Some(8192);
    let home = Home::new(config);
    let store = home.create();
    home.fill(&store, 0..20);
    store.close().unwrap();
    let all = places(&home);
    let (at, _) = all[10];
    let blank = [0, 0, 0, 100, 0xCB, 0xD4, 0x31, 0x94];
    home.patch(at, &blank);
    let error = home.open(OpenMode::ReadWrite).unwrap_err().to_string();
    assert!(error.contains("blank") && error.contains("end of the file"), "{error}");
    let (bodies, damage) = scan(&home.read());
    assert_eq!((bodies.len(), damage), (19, 1));
}

#[test]
fn rc12_a_message_that_names_another_place_is_none() {
    let home = Home::closed(20);
    let all = places(&home);
    let (at, size) = all[19];
    home.patch(at + 28, &(at + 1).to_be_bytes());
    let store = home.read();
    assert!(matches!(
        store.get(i64::try_from(at).unwrap()),
        Err(Error::OffsetOutOfRange { .. } | Error::MessageNotFound { .. })
    ));
    let (bodies, _) = scan(&store);
    assert_eq!(bodies.len(), 19);
    drop(store);
    let store = home.write();
    assert_eq!(store.end_offset(), at);
    check(&store, 19);
    assert_eq!(store.recovery().unwrap().cut_bytes, size);
}

#[test]
fn rc15_a_recovery_that_is_stopped_anywhere_ends_the_same() {
    // Much to mend: a torn message with whole ones behind, a lost queue, a short one, no index.
    let home = Home::killed(120);
    let all = places(&home);
    home.patch(all[100].0 + 20, &[0xee; 30]);
    fs::remove_dir_all(home.path().join("consumequeue/Topic/2")).unwrap();
    fs::remove_dir_all(home.path().join("index")).unwrap();
    let outcome = |home: &Home| {
        let store = home.write();
        check(&store, 100);
        let (bodies, damage) = scan(&store);
        assert_eq!((bodies.len(), damage), (100, 0));
        store.close().unwrap();
        let files = home.snapshot();
        let derived = |name: &PathBuf| {
            ["commitlog", "consumequeue"].iter().any(|folder| name.starts_with(folder))
        };
        files.into_iter().filter(|(name, _)| derived(name)).collect::<Vec<_>>()
    };
    let uninterrupted = outcome(&home.copy());
    let mut stopped = 0;
    for calls in 0..400 {
        let copy = home.copy();
        let stage = Staged::new();
        stage.stop_after(calls);
        let mut staged = copy.copy();
        staged.storage = stage.storage();
        let opened = staged.open(OpenMode::ReadWrite);
        if !stage.has_stopped() {
            break;
        }
        stopped += 1;
        drop(opened);
        staged.storage = Arc::new(mqstore::files::Os);
        assert!(outcome(&staged) == uninterrupted, "stopped after {calls} calls");
    }
    assert!(stopped >= 20, "only {stopped} points");
}

#[test]
fn rc16_what_a_restart_shows_is_durable() {
    let home = Home::killed(100);
    let stage = Staged::new();
    let synced = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&synced);
    stage.watch(
        Box::new(|_, _| {}),
        Box::new(move |_, path| {
            seen.lock().unwrap().insert(path.to_owned());
        }),
    );
    let mut staged = home.copy();
    staged.storage = stage.storage();
    let store = staged.write();
    check(&store, 100);
    let end = store.end_offset();
    let holding: BTreeSet<_> = names_in(&staged.path().join("commitlog"))
        .into_iter()
        .filter(|path| path.file_name().unwrap().to_str().unwrap().parse::<u64>().unwrap() < end)
        .collect();
    assert_eq!(*synced.lock().unwrap(), holding, "files of the log that were made durable");
    // The process is gone again, before anything was appended.
    let again = staged.copy();
    check(&again.write(), 100);
}

#[test]
fn rc18_one_lost_queue_is_made_again() {
    for crashed in [false, true] {
        let home = Home::closed(100);
        let before = fs::read(home.queue_file(2, 10).0).unwrap();
        fs::remove_dir_all(home.path().join("consumequeue/Topic/2")).unwrap();
        if crashed {
            mark_crashed(&home);
        }
        let store = home.write();
        assert_eq!(max_offsets(&store), [25, 25, 25, 25]);
        let rebuilt = &store.recovery().unwrap().rebuilt;
        let queues: Vec<_> = rebuilt.iter().filter(|path| path.starts_with("consume")).collect();
        assert_eq!(queues, ["consumequeue/Topic/2"]);
        let next = append(&store, 102, &body(102)).unwrap();
        assert_eq!(next.queue_offset, 25);
        store.close().unwrap();
        assert!(fs::read(home.queue_file(2, 10).0).unwrap() == before);
    }
}

#[test]
fn rc19_short_queues_are_made_whole_and_no_entry_moves() {
    for crashed in [false, true] {
        for queue in 0..4 {
            for short in
                ["its last entry", "7 bytes", "an entry's bytes", "a file", "the first file"]
            {
                let home = Home::closed(100);
                let (last, position) = home.queue_file(queue, 24);
                match short {
                    "its last entry" => home.put_entry(queue, 24, 0, 0, 0),
                    "7 bytes" => set_len(&last, position + 13),
                    "an entry's bytes" => set_len(&last, position),
                    "a file" => fs::remove_file(&last).unwrap(),
                    _ => fs::remove_file(home.queue_file(queue, 0).0).unwrap(),
                }
                if crashed {
                    mark_crashed(&home);
                }
                let what = format!("queue {queue} without {short}, crashed {crashed}");
                let store = home.write();
                assert_eq!(max_offsets(&store), [25, 25, 25, 25], "{what}");
                check(&store, 100);
                home.fill(&store, 100..140);
                check(&store, 140);
                store.close().unwrap();
                for path in names_in(&home.path().join(format!("consumequeue/Topic/{queue}"))) {
                    assert_eq!(fs::metadata(&path).unwrap().len(), 200, "{what}: {path:?}");
                }
                check(&home.write(), 140);
            }
        }
    }
}

#[test]
fn rc20_entries_of_cut_messages_do_not_hide_new_ones() {
    let home = Home::killed(100);
    let all = places(&home);
    home.patch(all[95].0, &[0xff; MIN_RECORD_LEN]);
    let store = home.write();
    assert_eq!(store.recovery().unwrap().quarantined_count, 4);
    check(&store, 95);
    for number in 95..100 {
        assert!(by_key(&store, number).is_empty(), "{}", key(number));
    }
    home.fill(&store, 200..205);
    for number in 200..205 {
        assert_eq!(by_key(&store, number), [body(number)], "{}", key(number));
    }
    for number in 95..100 {
        assert!(by_key(&store, number).is_empty(), "{}", key(number));
    }
    let expected: Vec<usize> = (0..95).chain(200..205).collect();
    check_queues(&store, &expected);
    store.close().unwrap();
    let store = home.write();
    for number in (0..95).chain(200..205) {
        assert_eq!(by_key(&store, number), [body(number)], "{}", key(number));
    }
}

#[test]
fn ck05_nothing_is_touched_before_the_lock_is_taken() {
    let home = Home::killed(60);
    // Changes that opening for writing would make.
    let last = names_in(&home.path().join("commitlog")).pop().unwrap();
    let base: u64 = last.file_name().unwrap().to_str().unwrap().parse().unwrap();
    fs::write(home.path().join(format!("commitlog/{:020}", base + 4096)), b"").unwrap();
    fs::write(home.path().join("lock"), b"lock").unwrap();
    let held = home.storage.open(&home.path().join("lock"), Access::ReadWrite).unwrap();
    assert!(held.try_lock(0..1).unwrap());
    let before = home.snapshot();
    let error = home.open(OpenMode::ReadWrite).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(home.snapshot() == before, "a store of another writer was changed");
    drop(held);
    check(&home.write(), 60);
}

#[test]
fn ck09_a_checkpoint_from_the_future_hides_nothing() {
    let home = Home::killed(100);
    let hour = crate::support::START_MS + 3_600_000;
    set_checkpoint(&home, [hour, hour, hour]);
    fs::remove_dir_all(home.path().join("consumequeue/Topic/3")).unwrap();
    let store = home.write();
    check(&store, 100);
}

#[test]
fn rt07_a_queue_whose_messages_are_all_gone_keeps_its_numbers() {
    let home = Home::new(crate::support::small());
    let store = home.create();
    home.fill(&store, 0..40);
    let numbers = max_offsets(&store);
    // The newest files hold messages of another topic only.
    let other = vec![b'x'; 1000];
    for _ in 0..12 {
        store.append(&mqstore::NewMessage::new(b"Other", &other)).unwrap();
    }
    store.close().unwrap();
    let store = home.read();
    let first_other = view_of(
        &store
            .read(b"Other", 0, 4, 1, None, &mqstore::format::queue::consume_queue::TagFilter::ALL)
            .unwrap()
            .records[0],
    )
    .unwrap()
    .physical_offset();
    drop(store);
    let keep = u64::try_from(first_other).unwrap() / 4096 * 4096;
    for path in names_in(&home.path().join("commitlog")) {
        let base: u64 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        if base < keep {
            fs::remove_file(path).unwrap();
        }
    }
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        let store = home.open(mode).unwrap();
        for (queue, old) in (0..4).zip(&numbers) {
            let view = store.queue(b"Topic", queue).unwrap().unwrap();
            assert_eq!((view.min_offset, view.max_offset), (*old, *old), "{mode:?}");
            assert!(read_queue(&store, queue, 0).records.is_empty());
        }
    }
    let store = home.write();
    let next = append(&store, 40, &body(40)).unwrap();
    assert_eq!(next.queue_offset, numbers[0]);
    assert_eq!(read_queue(&store, 0, numbers[0]).records.len(), 1);
}
