//! `verify` where the system fails it, where files go while it looks, and where it is told to end.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mqstore::care::verify::verify_on;
use mqstore::care::{Code, Level, Severity, VerifyOptions, VerifyReport};
use mqstore::config::StoreConfig;
use mqstore::error::{Error, Result};
use mqstore::files::SystemClock;
use mqstore::store::folder::paths::StorePaths;
use mqstore::store::open::index_settings::index_layout;
use mqstore::store::write::retention::{DiskUse, Occasion};
use mqstore::store::{MessageStore, OpenMode};
use mqstore::time::Clock as _;

use crate::support::storage::{Call, Staged};
use crate::support::{Home, append, flip, set_len, small};

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;

fn try_look(stage: &Arc<Staged>, home: &Home) -> Result<VerifyReport> {
    let options = VerifyOptions { threads: Some(2), ..VerifyOptions::default() };
    let on = &mut |_, _| ControlFlow::Continue(());
    verify_on(stage.storage(), home.path(), home.config.clone(), &options, on)
}

/// A path from the store's root.
fn below(home: &Home, path: &Path) -> String {
    path.strip_prefix(home.path()).unwrap().to_string_lossy().into_owned()
}

/// The codes found, with how often, and whether all is well.
fn found(stage: &Arc<Staged>, home: &Home) -> (BTreeMap<Code, u64>, bool) {
    let report = try_look(stage, home).unwrap();
    (report.found, report.ok)
}

#[test]
fn a_file_that_goes_while_it_is_looked_for_is_no_fault() {
    // Retention of a running broker takes away what was listed a moment before.
    let home = Home::extended(120);
    for path in ["commitlog/00000000000000004096", "consumequeue/Topic/1/00000000000000000200"] {
        assert!(home.path().join(path).exists());
        let stage = Staged::new();
        stage.fail(Call::Open, path, 0, ENOENT);
        assert_eq!(found(&stage, &home), (BTreeMap::new(), true), "{path}");
    }
    // A unit that an entry leads to must be there, whoever took its file.
    let stage = Staged::new();
    stage.fail(Call::Open, "consumequeue_ext/Topic/1/00000000000000000130", 0, ENOENT);
    assert_eq!(found(&stage, &home), (BTreeMap::from([(Code::ExtAddress, 6)]), false));
}

#[test]
fn a_file_that_the_system_cannot_read_is_named_and_the_rest_is_checked() {
    let home = Home::extended(120);
    let indexes: Vec<_> = home.index_files().iter().map(|path| below(&home, path)).collect();
    for call in [Call::Open, Call::Read] {
        for (path, more) in [
            ("commitlog/00000000000000004096", &[][..]),
            ("consumequeue/Topic/1/00000000000000000200", &[(Code::QueueMissing, 1)]),
            (&*indexes[0], &[]),
            (&*indexes[1], &[]),
            ("checkpoint", &[]),
        ] {
            let stage = Staged::new();
            stage.fail(call, path, 0, EIO);
            let report = try_look(&stage, &home).unwrap();
            let wanted = more.iter().copied().chain([(Code::Unreadable, 1)]);
            assert_eq!(report.found, wanted.collect(), "{call:?} {path}: {:?}", report.findings);
            let finding = report.findings.iter().find(|f| f.code == Code::Unreadable).unwrap();
            assert_eq!((finding.severity, &*finding.expected), (Severity::Error, "to read it"));
            assert!(path.starts_with(&*finding.path.to_string_lossy()), "{finding:?}");
            let said = ["open ", "read "][usize::from(call == Call::Read)];
            assert!(finding.found.starts_with(said), "{finding:?}");
            assert!(finding.found.ends_with("Input/output error (os error 5)"), "{finding:?}");
            let all = report.counts.messages == 120;
            assert_eq!(all, !path.starts_with("commitlog"), "{:?}", report.counts);
        }
    }
}

#[test]
fn an_index_file_that_cannot_be_read_hides_no_damage_in_the_others() {
    let home = Home::closed(120);
    let files: Vec<_> = home.index_files().iter().map(|path| below(&home, path)).collect();
    assert_eq!(files.len(), 5);
    // An entry's hash, of the file in the middle.
    flip(&home.path().join(&files[2]), 40 + 7 * 4 + 5 * 20 + 3);
    let wanted = found(&Staged::new(), &home).0;
    assert!(wanted.contains_key(&Code::IndexOther), "{wanted:?}");
    for call in [Call::Open, Call::Read] {
        for file in [0, 1, 4] {
            let stage = Staged::new();
            stage.fail(call, &files[file], 0, EACCES);
            let report = try_look(&stage, &home).unwrap();
            let mut wanted = wanted.clone();
            wanted.insert(Code::Unreadable, 1);
            assert_eq!(report.found, wanted, "{call:?} {file}: {:?}", report.findings);
            let unreadable = report.findings.iter().find(|f| f.code == Code::Unreadable).unwrap();
            assert_eq!(unreadable.path, Path::new(&files[file]));
            let (counts, of_it) = (report.counts, if file == 4 { 120 - 4 * 27 } else { 27 });
            assert_eq!((counts.index_files, counts.index_entries), (5, 120 - of_it), "{file}");
            // A key query must not miss the messages there.
            let (config, clock) = (home.config.clone(), Arc::clone(&home.clock));
            for mode in [OpenMode::Read, OpenMode::ReadWrite] {
                let (config, clock) = (config.clone(), Arc::clone(&clock));
                let storage = stage.storage();
                let opened = MessageStore::open_with(home.path(), mode, config, storage, clock);
                assert!(matches!(opened, Err(Error::Io { .. })), "{call:?} {file} {opened:?}");
            }
        }
    }
}

#[test]
fn the_layout_of_the_index_is_told_by_the_files_that_can_be_read() {
    let home = Home::closed(120);
    let config =
        StoreConfig { max_hash_slot_num: None, max_index_num: None, ..home.config.clone() };
    let files: Vec<_> = home.index_files().iter().map(|path| below(&home, path)).collect();
    let layout = |stage: &Arc<Staged>| {
        index_layout(&StorePaths::new(stage.storage(), home.path(), &config), &config)
    };
    let whole = layout(&Staged::new()).unwrap().unwrap();
    for call in [Call::Open, Call::Read] {
        let stage = Staged::new();
        stage.fail(call, &files[0], 0, EIO);
        assert_eq!(layout(&stage).unwrap().unwrap(), whole, "{call:?}");
        stage.fail(call, "/index/", 0, EIO);
        assert!(matches!(layout(&stage), Err(Error::Io { .. })), "{call:?}");
    }
    // One that was removed since the folder was listed says nothing.
    let stage = Staged::new();
    stage.fail(Call::Open, &files[0], 0, ENOENT);
    assert_eq!(layout(&stage).unwrap().unwrap(), whole);
    stage.fail(Call::Open, "/index/", 0, ENOENT);
    assert!(layout(&stage).is_ok());
}

#[test]
fn a_table_of_topics_that_cannot_be_read_is_named_and_the_rest_is_looked_at() {
    let home = Home::extended(120);
    fs::create_dir_all(home.path().join("config")).unwrap();
    fs::write(home.path().join("config/topics.json"), r#"{"topicConfigTable":{}}"#).unwrap();
    for call in [Call::Open, Call::Read] {
        let stage = Staged::new();
        stage.fail(call, "config/topics.json", 0, EIO);
        let report = try_look(&stage, &home).unwrap();
        let wanted = [(Code::ConfigUnreadable, 1), (Code::Unreadable, 1)];
        assert_eq!(report.found, wanted.into(), "{call:?}: {:?}", report.findings);
        assert_eq!((report.counts.messages, report.ok), (120, false));
    }
}

#[test]
fn a_folder_that_cannot_be_read_is_an_error() {
    let home = Home::extended(120);
    for folder in ["commitlog", "consumequeue", "consumequeue_ext", "index"] {
        for (call, op) in [(Call::List, "list"), (Call::Kind, "stat")] {
            let stage = Staged::new();
            stage.fail(call, folder, 0, EIO);
            let error = try_look(&stage, &home).unwrap_err().to_string();
            let place = home.path().join(folder);
            assert_eq!(error, format!("{op} {}: Input/output error (os error 5)", place.display()));
        }
    }
}

/// Lets `meanwhile` happen before each of the check's reads in turn.
fn at_each_read(meanwhile: fn(&MessageStore)) {
    for skip in 0.. {
        let home = Home::new(small());
        let store = Arc::new(home.create());
        let mut count = 0;
        while count < 100 || store.end_offset() % 4096 < 2500 {
            home.fill(&store, count..count + 1);
            count += 1;
        }
        store.flush().unwrap();
        // The writer makes the next file in time.
        let next = store.end_offset().next_multiple_of(4096);
        while !home.log_file(next).0.exists() {
            std::thread::yield_now();
        }
        let stage = Staged::new();
        let (writer, happened) = (Arc::clone(&store), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&happened);
        let then = move |_: &Path| {
            meanwhile(&writer);
            told.store(true, Ordering::SeqCst);
        };
        stage.before_read(skip, Box::new(then));
        let options = VerifyOptions { threads: Some(1), ..VerifyOptions::default() };
        let on = &mut |_, _| ControlFlow::Continue(());
        let report =
            verify_on(stage.storage(), home.path(), home.config.clone(), &options, on).unwrap();
        let told: Vec<_> =
            report.findings.iter().filter(|f| f.severity != Severity::Info).collect();
        assert!(report.ok, "before read {skip}: {told:#?}");
        if !happened.load(Ordering::SeqCst) {
            assert!(skip > 50, "{skip}");
            return;
        }
    }
}

#[test]
fn messages_that_a_writer_appends_meanwhile_are_no_fault() {
    at_each_read(|store| {
        for number in 200..260 {
            append(store, number, &[7; 200]).unwrap();
        }
        store.flush().unwrap();
    });
}

#[test]
fn files_that_retention_deletes_meanwhile_are_no_fault() {
    at_each_read(|store| {
        let disk = DiskUse { log_percent: 10, queue_percent: 10 };
        let now_ms = SystemClock.now_ms() + 100 * 3_600_000;
        let days_later = Occasion { now_ms, disk, by_hand: true, backed_up_to: None };
        let cleaned = store.clean_step(&days_later).unwrap();
        assert!(cleaned.log_files > 1 && cleaned.queue_files > 1, "{cleaned:?}");
    });
}

#[test]
fn the_newest_files_may_be_empty_while_a_writer_makes_them() {
    let home = Home::new(small());
    let store = home.create();
    home.fill(&store, 0..4);
    store.flush().unwrap();
    let made = [
        "commitlog/00000000000000004096",
        "consumequeue/Topic/1/00000000000000000200",
        "index/20991231235959999",
    ];
    let files = made.map(|path| home.path().join(path));
    files.iter().for_each(|path| drop(fs::File::create_new(path).unwrap()));
    let (codes, ok) = found(&Staged::new(), &home);
    let told = [(Code::EmptyFile, 2), (Code::IndexUnusable, 1), (Code::InUse, 1)];
    assert_eq!((codes, ok), (BTreeMap::from(told), true));
    // Nobody makes it any more.
    let (_, ok) = found(&Staged::new(), &home.copy());
    assert!(!ok);
    files.iter().for_each(|path| fs::remove_file(path).unwrap());
    store.close().unwrap();
}

#[test]
fn a_check_that_is_told_to_end_reads_little_more() {
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(32 << 20),
        max_index_num: Some(1000),
        ..small()
    };
    let home = Home::new(config);
    let store = home.create();
    for number in 0..400 {
        append(&store, number, &[7; 60_000]).unwrap();
    }
    store.close().unwrap();
    let stage = Staged::new();
    assert_eq!(found(&stage, &home), (BTreeMap::new(), true));
    let whole = stage.count(Call::Read);
    for (level, held, skip) in
        [(Level::Full, "consumequeue/Topic/0", 0), (Level::Quick, "commitlog", 2)]
    {
        let stage = Staged::new();
        let mut calls = 0;
        let options = VerifyOptions { level, threads: Some(1), ..VerifyOptions::default() };
        stage.hold_reads(held, skip);
        let outcome =
            verify_on(stage.storage(), home.path(), home.config.clone(), &options, &mut |_, _| {
                calls += 1;
                // It is known by the second call what the first one said.
                if calls == 2 {
                    stage.release_reads();
                }
                ControlFlow::Break(())
            });
        match outcome.unwrap_err() {
            Error::Io { op: mqstore::Operation::Other("verify"), source, .. } => {
                assert_eq!(source.kind(), std::io::ErrorKind::Interrupted);
            }
            error => panic!("{error}"),
        }
        let read = stage.count(Call::Read);
        assert!(read < whole / 2, "{read} of {whole} reads, {}", level.name());
    }
}

#[test]
fn a_queue_or_an_index_that_fails_at_the_second_look_is_named() {
    // Its entries are looked at one by one, where not every one was met.
    let home = Home::closed(60);
    home.put_entry(1, 3, 77, 7, 7);
    let reads = |stage: &Arc<Staged>| stage.count(Call::Read);
    let stage = Staged::new();
    let sound = try_look(&stage, &home).unwrap();
    assert!(sound.found.contains_key(&Code::QueueNowhere));
    let mut failed = Vec::new();
    for skip in 0..reads(&stage) {
        let stage = Staged::new();
        stage.fail(Call::Read, "consumequeue/Topic/1", skip, EIO);
        let report = try_look(&stage, &home).unwrap();
        if !report.found.contains_key(&Code::Unreadable) {
            break;
        }
        assert!(!report.ok);
        let finding = report.findings.iter().find(|f| f.code == Code::Unreadable).unwrap();
        failed.push(finding.path.clone());
    }
    // While it is read through, while the log is walked, and behind that.
    assert!(failed.len() > 3, "{failed:?}");
    assert!(failed.iter().any(|path| path.ends_with("consumequeue/Topic/1")), "{failed:?}");
    assert!(failed.iter().any(|path| path.starts_with("commitlog")), "{failed:?}");
}

#[test]
fn a_folder_that_goes_while_it_is_looked_for_has_nothing() {
    let home = Home::closed(20);
    let stage = Staged::new();
    stage.fail(Call::List, "consumequeue/Topic", 0, ENOENT);
    assert_eq!(found(&stage, &home), (BTreeMap::from([(Code::QueueMissing, 4)]), false));
}

#[test]
fn a_checkpoint_that_is_none_is_told_as_what_it_is() {
    let home = Home::closed(20);
    let path = home.path().join("checkpoint");
    let look = |home: &Home| try_look(&Staged::new(), home).unwrap();
    set_len(&path, 10);
    let report = look(&home);
    assert_eq!((report.found, report.ok), ([(Code::CheckpointFile, 1)].into(), true));
    assert_eq!(report.findings[0].found, "10 bytes");
    set_len(&path, 0);
    assert_eq!(look(&home).findings[0].found, "none, or an empty one");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    let report = look(&home);
    assert_eq!((report.found.len(), report.ok), (1, false), "{:?}", report.findings);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let report = look(&home);
    assert_eq!((report.found, report.ok), ([(Code::NoRegularFile, 1)].into(), false));
    assert_eq!(report.findings[0].found, "no regular file");
}

#[test]
fn whatever_read_of_the_index_fails_it_is_named() {
    let home = Home::closed(60);
    let mut failed = 0;
    for skip in 0.. {
        let stage = Staged::new();
        stage.fail(Call::Read, "index/", skip, EIO);
        let report = try_look(&stage, &home).unwrap();
        if report.findings.is_empty() {
            break;
        }
        assert!(report.found.contains_key(&Code::Unreadable), "{skip}: {:?}", report.findings);
        assert!(!report.ok && report.findings.iter().any(|f| f.found.contains("os error 5")));
        failed += 1;
    }
    assert!(failed > 10, "{failed}");
}

#[test]
fn whatever_folder_cannot_be_listed_it_is_named() {
    let home = Home::closed(20);
    let (mut errors, mut findings) = (0, 0);
    for skip in 0.. {
        let stage = Staged::new();
        stage.fail(Call::List, "consumequeue/Topic", skip, EIO);
        match try_look(&stage, &home) {
            Err(error) => {
                assert!(error.to_string().starts_with("list "), "{error}");
                errors += 1;
            }
            Ok(report) if report.findings.is_empty() => break,
            Ok(report) => {
                assert!(report.found.contains_key(&Code::Unreadable), "{:?}", report.findings);
                findings += 1;
            }
        }
    }
    assert!(errors > 0 && findings > 0, "{errors} {findings}");
}

#[test]
fn a_checkpoint_or_an_extension_that_fails_is_named() {
    let home = Home::extended(120);
    for (call, path) in [
        (Call::Stat, "checkpoint"),
        (Call::Open, "consumequeue_ext/Topic/1/00000000000000000130"),
        (Call::Read, "consumequeue_ext/Topic/1/00000000000000000130"),
    ] {
        let stage = Staged::new();
        stage.fail(call, path, 0, EIO);
        let report = try_look(&stage, &home).unwrap();
        let named =
            |f: &&mqstore::care::Finding| f.code == Code::Unreadable && f.found.contains(path);
        assert!(report.findings.iter().any(|f| named(&f)), "{call:?} {:?}", report.findings);
    }
}

#[test]
fn damage_at_the_end_of_a_full_file_is_told_beside_a_writer() {
    let home = Home::new(small());
    let store = home.create();
    let placed = home.fill(&store, 0..60);
    store.flush().unwrap();

    let last = placed.iter().rfind(|at| at.physical_offset < 4096).unwrap();
    let record = u64::try_from(last.physical_offset).unwrap();
    let blank = record + u64::from(last.store_size);
    let place = (record + 28, &7_i64.to_be_bytes()[..]);
    let size = (blank, &9_i32.to_be_bytes()[..]);
    for ((at, bytes), code) in [(place, Code::LogPlace), (size, Code::LogBlank)] {
        let before = fs::read(home.log_file(at).0).unwrap();
        home.patch(at, bytes);
        let report = try_look(&Staged::new(), &home).unwrap();
        let told = report.findings.iter().find(|finding| finding.code == code);
        assert_eq!(told.map(|told| told.severity), Some(Severity::Error), "{report:#?}");
        assert!(report.found.contains_key(&Code::InUse) && !report.ok);
        home.patch(0, &before);
    }
    store.close().unwrap();
}
