//! Opening for writing does what the plan of recovery says.

use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;

use mqstore::Error;
use mqstore::care::{Recover, recover};
use mqstore::files::{Os, Storage};
use mqstore::store::MessageStore;
use mqstore::store::open::plan::{RecoveryPlan, plan};

use crate::support::{Home, check, names_in, places, set_len};

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn planned(home: &Home) -> RecoveryPlan {
    let before = home.snapshot();
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let plan = plan(home.path(), home.config.clone(), &storage, &mut go_on).unwrap();
    assert!(home.snapshot() == before, "a plan changes nothing");
    plan
}

fn cut(home: &Home) -> mqstore::error::Result<MessageStore> {
    let (config, clock) = (home.config.clone(), Arc::clone(&home.clock) as Arc<_>);
    MessageStore::open_cutting(home.path(), config, Arc::new(Os), clock, true, &mut go_on)
}

/// A way to harm a store.
type Harm = fn(&Home);

const HARMS: &[(&str, Harm)] = &[
    ("none", |_| {}),
    ("abort", |home| fs::write(home.path().join("abort"), b"1").unwrap()),
    ("no queues", |home| fs::remove_dir_all(home.path().join("consumequeue")).unwrap()),
    ("no index", |home| fs::remove_dir_all(home.path().join("index")).unwrap()),
    ("an entry", |home| home.put_entry(1, 3, 77, 7, 7)),
    ("entries behind", |home| home.put_entry(1, 25, 1 << 20, 120, 0)),
    ("a queue file", |home| fs::remove_file(home.queue_file(2, 21).0).unwrap()),
    ("an index file", |home| fs::remove_file(&home.index_files()[1]).unwrap()),
    ("the newest index file", |home| {
        fs::remove_file(home.index_files().last().unwrap()).unwrap();
    }),
    ("an index header", |home| {
        crate::support::patch(&home.index_files()[0], 36, &i32::MAX.to_be_bytes());
    }),
    ("all index files cut short", |home| {
        for path in home.index_files() {
            set_len(&path, 500);
        }
    }),
    ("the last message", |home| {
        let (at, _) = *places(home).last().unwrap();
        home.patch(at + 4, &[0; 4]);
    }),
    ("bytes behind the end", |home| {
        let (at, size) = *places(home).last().unwrap();
        home.patch(at + size + 5, b"remains");
    }),
    ("no checkpoint", |home| fs::remove_file(home.path().join("checkpoint")).unwrap()),
    ("a message in the middle", |home| home.flip(places(home)[40].0 + 90)),
    ("all of the log", |home| {
        for path in names_in(&home.path().join("commitlog")) {
            fs::remove_file(path).unwrap();
        }
    }),
];

#[test]
fn a_plan_says_what_opening_does() {
    for &(name, harm) in HARMS {
        for also_crashed in [false, true] {
            let home = Home::closed(100);
            harm(&home);
            if also_crashed {
                fs::write(home.path().join("abort"), b"1").unwrap();
            }
            let plan = planned(&home);
            if plan.refusal.is_some() {
                let refused = home.open(mqstore::store::OpenMode::ReadWrite);
                assert!(matches!(refused, Err(Error::Corrupt(_))), "{name}: {refused:?}");
            }
            let store = match plan.refusal {
                Some(_) => cut(&home).unwrap(),
                None => home.write(),
            };
            let done = store.recovery().unwrap().clone();
            let mut said = plan.report;
            assert_eq!(done.quarantine.is_some(), said.cut_bytes > 0, "{name}");
            said.quarantine.clone_from(&done.quarantine);
            said.dispatched = done.dispatched;
            assert_eq!(said, done, "{name}, crashed: {also_crashed}");
            store.close().unwrap();
            let again = planned(&home);
            assert!(again.refusal.is_none() && again.report.rebuilt.is_empty(), "{name}");
        }
    }
}

#[test]
fn rc10_told_to_cut_it_keeps_what_lies_behind() {
    let home = Home::closed(100);
    let all = places(&home);
    home.flip(all[40].0 + 90);
    let plan = planned(&home);
    let refusal = plan.refusal.unwrap();
    assert_eq!((refusal.messages_beyond, refusal.can_cut), (59, true));
    assert_eq!(plan.report.end_physical_offset, all[40].0);
    let store = cut(&home).unwrap();
    check(&store, 40);
    let report = store.recovery().unwrap();
    assert_eq!(report.quarantined_messages.len(), 59);
    let kept: u64 = names_in(report.quarantine.as_ref().unwrap())
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert_eq!(kept, report.cut_bytes);
}

#[test]
fn files_of_the_log_that_are_missing_are_named() {
    let home = Home::closed(200);
    let second = names_in(&home.path().join("commitlog"))[1].clone();
    set_len(&second, 100);
    for _ in 0..2 {
        let plan = planned(&home);
        let refusal = plan.refusal.unwrap();
        assert!(!refusal.can_cut);
        assert!(matches!(cut(&home), Err(Error::Corrupt(_))));
        let _ = fs::remove_file(&second);
    }
}

#[test]
fn a_store_in_use_is_left_alone() {
    let home = Home::closed(10);
    let _store = home.write();
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let planned = plan(home.path(), home.config.clone(), &storage, &mut go_on);
    assert!(matches!(planned, Err(Error::Locked { .. })), "{planned:?}");
}

#[test]
fn told_to_end_neither_a_plan_nor_a_recovery_changes_anything() {
    let mut home = Home::new(crate::support::small());
    home.config.mapped_file_size_commit_log = Some(64 << 20);
    let store = home.create();
    for number in 0..600 {
        crate::support::append(&store, number, &[7; 60_000]).unwrap();
    }
    let copy = home.copy();
    drop(store);
    fs::write(copy.path().join("checkpoint"), [0; 4096]).unwrap();
    fs::remove_dir_all(copy.path().join("consumequeue")).unwrap();
    let names = || copy.snapshot().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let before = names();
    for what in [Recover::Plan, Recover::Apply] {
        let mut told = Vec::new();
        let ended = recover(copy.path(), copy.config.clone(), what, &mut |done, total| {
            told.push((done, total));
            ControlFlow::Break(())
        });
        assert!(
            matches!(&ended, Err(Error::Io { source, .. })
            if source.kind() == std::io::ErrorKind::Interrupted),
            "{what:?}: {ended:?}"
        );
        assert!(told.len() == 1 && told[0].0 <= told[0].1, "{told:?}");
        assert!(!names().iter().any(|path| path.starts_with("consumequeue")), "{what:?}");
    }
    assert!(before.len() > 2);
    let report =
        recover(copy.path(), copy.config.clone(), Recover::Apply, &mut go_on).unwrap().report;
    assert!(!report.rebuilt.is_empty(), "{report:?}");
}

#[test]
fn a_recovery_tells_how_far_it_has_come() {
    const FILE: u64 = 4 << 20;
    let mut home = Home::new(crate::support::small());
    home.config.mapped_file_size_commit_log = Some(FILE);
    let store = home.create();
    for number in 0..700 {
        crate::support::append(&store, number, &[7; 60_000]).unwrap();
    }
    store.close().unwrap();
    let files = names_in(&home.path().join("commitlog"));
    // As after retention: what is told is counted from the first file that is left.
    fs::remove_file(&files[0]).unwrap();
    // There is none on tmpfs.
    let _ = fs::remove_file(home.path().join("mqstore.seal"));
    let mut told = Vec::new();
    recover(home.path(), home.config.clone(), Recover::Plan, &mut |done, total| {
        told.push((done, total));
        ControlFlow::Continue(())
    })
    .unwrap();
    let total = (files.len() as u64 - 1) * FILE;
    assert_eq!(told.len(), 2, "{told:?}");
    for (step, told) in (1..).zip(told) {
        let done = step * (16 << 20);
        assert!(told.1 == total && (done..done + step * 61_000).contains(&told.0), "{told:?}");
    }
}

#[test]
fn bodies_are_believed_where_their_checksums_are_not_asked_for() {
    for check_crc_on_recover in [true, false] {
        let mut home = Home::closed(100);
        home.config.check_crc_on_recover = check_crc_on_recover;
        home.flip(places(&home)[40].0 + 90);
        assert_eq!(planned(&home).refusal.is_some(), check_crc_on_recover);
    }
}

#[test]
fn queues_that_lead_nowhere_need_no_log() {
    let lost = |home: &Home| {
        for path in names_in(&home.path().join("commitlog")) {
            fs::remove_file(path).unwrap();
        }
    };
    let home = Home::closed(100);
    lost(&home);
    let refused = home.open(mqstore::store::OpenMode::ReadWrite).unwrap_err();
    assert!(refused.to_string().contains("know 100 messages"), "{refused}");
    let home = Home::closed(0);
    lost(&home);
    fs::create_dir_all(home.queue_file(0, 0).0.parent().unwrap()).unwrap();
    fs::write(home.queue_file(0, 0).0, [0; 200]).unwrap();
    home.write();
}
