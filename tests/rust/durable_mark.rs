//! The durable mark: what lies before it is never cut unasked, whatever times and the checkpoint say.

use std::fs;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use mqstore::Error;
use mqstore::care::{Code, VerifyOptions};
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Result;
use mqstore::files::Os;
use mqstore::store::folder::mark::Mark;
use mqstore::store::folder::paths::StorePaths;
use mqstore::store::open::plan::plan;
use mqstore::store::{MessageStore, NewMessage, OpenMode, RecoveryReport};

use crate::support::storage::{Call, Staged};
use crate::support::{Home, append, names_in, places, scan, small};

/// A store of messages `flushed`, then `more` that were not flushed, as a killed process leaves it.
/// Nothing is flushed unasked, and no checkpoint was written.
fn killed(flush: FlushDiskType, flushed: Range<usize>, more: Range<usize>) -> Home {
    let never = 3_600_000;
    let home = Home::new(StoreConfig {
        flush_disk_type: flush,
        flush_interval_commit_log: never,
        flush_commit_log_thorough_interval: never,
        flush_consume_queue_thorough_interval: never,
        ..small()
    });
    let store = home.create();
    home.fill(&store, flushed);
    store.flush().unwrap();
    home.fill(&store, more);
    home.copy()
}

fn paths(home: &Home) -> StorePaths {
    StorePaths::new(Arc::new(Os), home.path(), &home.config)
}

fn place(home: &Home) -> u64 {
    Mark::read(&paths(home)).unwrap().unwrap().offset
}

/// Opens a store for writing, with the flushed part cut where it is damaged if `cut` is set.
fn open(home: &Home, cut: bool) -> Result<MessageStore> {
    if cut {
        let (storage, clock) = (Arc::clone(&home.storage), Arc::clone(&home.clock) as Arc<_>);
        let config = home.config.clone();
        return MessageStore::open_cutting(
            home.path(),
            config,
            storage,
            clock,
            true,
            &mut |_, _| ControlFlow::Continue(()),
        );
    }
    home.open(OpenMode::ReadWrite)
}

fn refused(home: &Home) -> String {
    let before = home.snapshot();
    let error = open(home, false).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    let changed: Vec<_> =
        home.snapshot().into_iter().filter(|file| !before.contains(file)).collect();
    assert!(changed.is_empty(), "{changed:?}");
    error.to_string()
}

#[test]
fn damage_in_an_acknowledged_message_is_refused_before_any_checkpoint() {
    let whole = killed(FlushDiskType::Sync, 0..10, 0..0);
    for number in [0, 4, 9] {
        let home = whole.copy();
        let (at, _) = places(&home)[number];
        home.flip(at + 90);
        let told = refused(&home);
        assert!(told.contains(&format!("{} whole messages", 9 - number)), "{told}");
        assert!(told.contains("recover --apply"), "{told}");
        let told = home.verify(&VerifyOptions::default());
        assert!(!told.ok && !told.found.contains_key(&Code::LogTail), "{:?}", told.found);
    }
}

#[test]
fn a_clock_that_was_ahead_once_leaves_no_acknowledged_message_unproven() {
    let home = killed(FlushDiskType::Sync, 0..0, 0..0);
    let store = home.write();
    let mut message = NewMessage::new(b"Topic", b"ahead");
    message.store_timestamp_ms = Some(i64::MAX);
    store.append(&message).unwrap();
    for number in 0..5 {
        append(&store, number, b"later").unwrap();
    }
    let copy = home.copy();
    let (at, _) = places(&copy)[2];
    copy.flip(at + 90);
    assert!(refused(&copy).contains("3 whole messages"));
}

#[test]
fn behind_the_mark_the_first_bad_record_ends_the_log() {
    let home = killed(FlushDiskType::Async, 0..5, 5..10);
    let all = places(&home);
    assert_eq!(place(&home), all[4].0, "the beginning of the last message that was flushed");
    home.flip(all[7].0 + 90);
    let store = open(&home, false).unwrap();
    assert_eq!(scan(&store).0.len(), 7);
    assert_eq!(store.recovery().unwrap().quarantined_count, 2);
    store.close().unwrap();
    assert_eq!(place(&home), all[6].0);
}

#[test]
fn a_cut_that_was_asked_for_takes_the_mark_along() {
    let home = killed(FlushDiskType::Sync, 0..10, 0..0);
    let (at, _) = places(&home)[6];
    home.flip(at + 90);
    refused(&home);
    let store = open(&home, true).unwrap();
    assert_eq!((scan(&store).0.len(), place(&home)), (6, at));
    append(&store, 6, b"again").unwrap();
    assert!(place(&home) > at);
    store.close().unwrap();
    open(&home, false).unwrap().close().unwrap();
}

#[test]
fn a_log_that_ends_before_the_mark_is_refused_until_it_is_told() {
    for clean in [false, true] {
        let home = killed(FlushDiskType::Sync, 0..60, 0..0);
        if clean {
            home.write().close().unwrap();
        }
        let files = names_in(&home.path().join("commitlog"));
        let (whole, kept) = (place(&home), files.len() as u64 - 2);
        for file in &files[usize::try_from(kept).unwrap()..] {
            fs::remove_file(file).unwrap();
        }
        // As RocketMQ would leave it: queues end with the log, and there is no seal.
        for name in ["consumequeue", "index"] {
            fs::remove_dir_all(home.path().join(name)).unwrap();
        }
        let _ = fs::remove_file(home.path().join("mqstore.seal"));
        let told = refused(&home);
        assert!(told.contains(&format!("by the durable mark it reached {whole}")), "{told}");
        let report = home.verify(&VerifyOptions::default());
        assert!(report.found.contains_key(&Code::LogShort), "{:?}", report.found);
        let planned = plan(home.path(), home.config.clone(), &home.storage, &mut |_, _| {
            ControlFlow::Continue(())
        });
        assert!(planned.unwrap().refusal.unwrap().can_cut);
        let store = open(&home, true).unwrap();
        assert_eq!(store.end_offset(), kept * 4096);
        store.close().unwrap();
        let report = home.verify(&VerifyOptions::default());
        assert!(!report.found.contains_key(&Code::LogShort), "{:?}", report.found);
    }
}

#[test]
fn behind_the_mark_of_an_earlier_session_the_checkpoint_still_counts() {
    let home = killed(FlushDiskType::Sync, 0..10, 0..0);
    home.write().close().unwrap();
    // As RocketMQ leaves it: its own `abort`, messages and a checkpoint, and the mark as it was.
    let before = fs::read(paths(&home).mark()).unwrap();
    let store = home.write();
    home.fill(&store, 10..20);
    store.close().unwrap();
    fs::write(paths(&home).mark(), before).unwrap();
    fs::write(home.path().join("abort"), b"1").unwrap();
    let (at, _) = places(&home)[15];
    home.flip(at + 90);
    assert!(refused(&home).contains("4 whole messages"));
}

#[test]
fn a_mark_that_cannot_be_believed_is_told_and_made_anew() {
    let home = killed(FlushDiskType::Sync, 0..5, 0..0);
    fs::write(paths(&home).mark(), [7; 100]).unwrap();
    let report = home.verify(&VerifyOptions::default());
    assert!(report.found.contains_key(&Code::LogMark), "{:?}", report.found);
    let store = home.write();
    assert!(store.warnings().iter().any(|warning| warning.contains("mqstore.mark")));
    assert_eq!(place(&home), store.end_offset());
}

#[test]
fn the_mark_reaches_the_disk_unasked() {
    let stage = Staged::new();
    let config = StoreConfig { flush_disk_type: FlushDiskType::Sync, ..small() };
    let home = Home::on(stage.storage(), config);
    let store = home.create();
    for number in 0..3 {
        let before = stage.count(Call::SyncMark);
        append(&store, number, b"durable").unwrap();
        assert_eq!(place(&home), store.end_offset());
        // A thread does it at least each second.
        while stage.count(Call::SyncMark) == before {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_plan_says_what_a_cut_would_take() {
    let home = killed(FlushDiskType::Sync, 0..10, 0..0);
    let (at, _) = places(&home)[6];
    home.flip(at + 90);
    let planned =
        plan(
            home.path(),
            home.config.clone(),
            &home.storage,
            &mut |_, _| ControlFlow::Continue(()),
        )
        .unwrap();
    let RecoveryReport { end_physical_offset, quarantined_count, .. } = planned.report;
    assert_eq!((end_physical_offset, quarantined_count), (at, 3));
    assert_eq!(planned.refusal.unwrap().messages_beyond, 3);
}
