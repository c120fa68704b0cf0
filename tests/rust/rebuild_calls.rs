//! `rebuild` where files go while it reads, where the system fails it, where it is told to end, and of
//! a part of what there is.

use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use mqstore::Error;
use mqstore::care::rebuild::rebuild_on;
use mqstore::care::{RebuildReport, RebuildTarget, RebuildWhat, VerifyOptions};
use mqstore::files::Os;
use mqstore::store::NewMessage;

use crate::rebuild::{options, rebuild_with};
use crate::support::storage::{Call, Staged};
use crate::support::{
    Home, START_MS, append, check, copy_folder, names_in, places, scratch, small,
};

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const FILE: u64 = 4096;

fn dry(home: &Home) -> RebuildReport {
    rebuild_with(home, Arc::new(Os), &options(RebuildTarget::Nothing)).unwrap()
}

#[test]
fn a_file_that_retention_takes_meanwhile_is_passed_over() {
    let home = Home::closed(120);
    let whole = dry(&home);
    let all = places(&home);
    let in_file = |number: u64| all.iter().filter(|(at, _)| at / FILE == number).count() as u64;
    let last = all.last().unwrap().0 / FILE;
    for number in [0, 1, last] {
        let stage = Staged::new();
        stage.fail(Call::Open, &format!("commitlog/{:020}", number * FILE), 0, ENOENT);
        let options = options(RebuildTarget::Nothing);
        let report = rebuild_with(&home, stage.storage(), &options).unwrap();
        assert_eq!(report.messages, 120 - in_file(number), "file {number}");
        let between = [(number * FILE, (number + 1) * FILE)];
        let damaged = if number == last { &[][..] } else { &between[..] };
        assert_eq!(report.damaged, damaged, "file {number}");
        let end = if number == last { last * FILE } else { whole.log_end };
        assert_eq!(report.log_end, end, "file {number}");
    }
}

#[test]
fn a_file_that_cannot_be_read_ends_it_and_nothing_is_changed() {
    let home = Home::closed(120);
    let before = home.snapshot();
    let path = home.log_file(FILE).0;
    for (call, op) in [(Call::Open, "open"), (Call::Read, "read")] {
        for target in [RebuildTarget::Nothing, RebuildTarget::InPlace] {
            let stage = Staged::new();
            stage.fail(call, &path.to_string_lossy(), 0, EIO);
            let error = rebuild_with(&home, stage.storage(), &options(target)).unwrap_err();
            let text = format!("{op} {}: Input/output error (os error 5)", path.display());
            assert_eq!(error.to_string(), text);
            assert!(home.snapshot() == before);
        }
    }
}

#[test]
fn told_to_end_it_leaves_everything_as_it_was() {
    let home = Home::long();
    // Then no message is read to look for the store's release.
    let remembered = home.path().join("config/mqstore.json");
    let text = fs::read_to_string(&remembered).unwrap();
    assert!(text.contains("\"5.3\""), "{text}");
    fs::write(&remembered, text.replace("\"5.3\"", "\"5.4\"")).unwrap();
    let before: Vec<_> = home.snapshot().into_iter().map(|(path, _)| path).collect();
    let stage = Staged::new();
    stage.hold_reads("commitlog", 8);
    let mut options = options(RebuildTarget::InPlace);
    options.threads = Some(1);
    let (clock, config) = (Arc::clone(&home.clock) as Arc<_>, home.config.clone());
    let mut calls = 0;
    let error = rebuild_on(stage.storage(), clock, home.path(), config, &options, &mut |_, _| {
        calls += 1;
        // It is known by the second call what the first one said.
        if calls == 2 {
            stage.release_reads();
        }
        ControlFlow::Break(())
    });
    assert!(calls > 1, "reads were held");
    match error {
        Err(Error::Io { op: mqstore::Operation::Other("rebuild"), source, .. }) => {
            assert_eq!(source.kind(), ErrorKind::Interrupted);
        }
        other => panic!("{other:?}"),
    }
    let after: Vec<_> = home.snapshot().into_iter().map(|(path, _)| path).collect();
    assert_eq!(after, before);
}

#[test]
fn a_folder_that_is_no_store_is_refused() {
    let home = Home::new(small());
    let error = rebuild_with(&home, Arc::new(Os), &options(RebuildTarget::Nothing)).unwrap_err();
    let text = format!("{}: not a store: no folder `commitlog` in it", home.path().display());
    assert_eq!(error.to_string(), text);
}

#[test]
fn queues_or_the_index_alone() {
    let home = Home::closed(120);
    for (queues, index) in [(true, false), (false, true), (false, false)] {
        let out = scratch();
        let mut options = options(RebuildTarget::Folder(out.path().to_owned()));
        options.what = RebuildWhat { queues, index };
        let report = rebuild_with(&home, Arc::new(Os), &options).unwrap();
        assert_eq!(report.messages, 120);
        assert_eq!(report.queues.len(), if queues { 4 } else { 0 });
        assert_eq!(report.index.keys, if index { 120 } else { 0 });
        for (folder, is_made) in [("consumequeue", queues), ("index", index)] {
            let mut made = Vec::new();
            crate::support::collect(out.path(), &out.path().join(folder), &mut made);
            assert_eq!(!made.is_empty(), is_made, "{folder}");
            if folder == "consumequeue" {
                let same = home.snapshot().into_iter().filter(|(path, _)| path.starts_with(folder));
                assert!(!is_made || made == same.collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn of_the_topics_asked_for_queues_without_messages_are_kept() {
    let home = Home::new(small());
    let store = home.create();
    for topic in [&b"Old"[..], b"Older"] {
        for _ in 0..13 {
            store.append(&NewMessage::new(topic, b"x")).unwrap();
        }
    }
    home.fill(&store, 0..100);
    store.close().unwrap();
    fs::remove_file(home.log_file(0).0).unwrap();
    let kept = |topics: Option<&[&[u8]]>, queues| {
        let mut options = options(RebuildTarget::Nothing);
        options.topics = topics.map(|topics| topics.iter().map(|name| Box::from(*name)).collect());
        options.what.queues = queues;
        let report = rebuild_with(&home, Arc::new(Os), &options).unwrap();
        report.kept.iter().map(|(topic, _)| topic.to_vec()).collect::<Vec<_>>()
    };
    let [old, older] = [b"Old".to_vec(), b"Older".to_vec()];
    assert_eq!(kept(None, true), [old.clone(), older]);
    assert_eq!(kept(Some(&[b"Old"]), true), [old]);
    assert!(kept(Some(&[b"Topic"]), true).is_empty());
    assert!(kept(Some(&[b"Nobody"]), false).is_empty());
}

#[test]
fn of_what_was_not_flushed_a_wrong_body_ends_the_log() {
    let home = Home::killed(60);
    let all = places(&home);
    // Flushed: the message is damaged, and counts all the same.
    let flushed = home.copy();
    flushed.flip(all[10].0 + 90);
    assert_eq!(dry(&flushed).messages, 60);
    home.flip(all[40].0 + 90);
    let report = dry(&home);
    assert_eq!((report.messages, report.log_end), (40, all[40].0));
    assert_eq!(report.damaged, []);
    // The same of one that is read in pieces.
    let mut large = Home::new(small());
    large.config.mapped_file_size_commit_log = Some(4 << 20);
    let store = large.create();
    large.fill(&store, 0..1);
    store.flush().unwrap();
    large.clock.set(START_MS + 60_000);
    let at = append(&store, 1, &vec![7; 1 << 20]).unwrap().physical_offset;
    let copy = large.copy();
    drop(store);
    assert_eq!(dry(&copy).messages, 2);
    copy.flip(u64::try_from(at).unwrap() + 700_000);
    assert_eq!((dry(&copy).messages, dry(&copy).log_end), (1, u64::try_from(at).unwrap()));
}

#[test]
fn a_blank_that_does_not_end_its_file_is_damage() {
    let home = Home::closed(120);
    let last = places(&home).into_iter().rfind(|(at, _)| *at < FILE).unwrap();
    let blank = last.0 + last.1;
    for size in [7_u32, 100] {
        home.patch(blank, &size.to_be_bytes());
        let report = dry(&home);
        assert_eq!((report.messages, report.damaged), (120, vec![(blank, FILE)]), "{size}");
    }
}

#[test]
fn older_messages_behind_damage_are_remains_and_end_the_log() {
    let home = Home::new(small());
    let store = home.create();
    for second in [10, 11, 12, 13, 1, 2] {
        let store_timestamp_ms = Some(START_MS + second * 1000);
        let message = NewMessage { store_timestamp_ms, ..NewMessage::new(b"Topic", &[7; 20]) };
        store.append(&message).unwrap();
    }
    store.close().unwrap();
    // Our mark would tell that nothing there is of an earlier life of the file.
    std::fs::remove_file(home.path().join("mqstore.mark")).unwrap();
    let all = places(&home);
    assert_eq!(dry(&home).messages, 6);
    home.flip(all[3].0 + 5);
    let known = dry(&home);
    assert_eq!((known.messages, known.damaged), (5, vec![(all[3].0, all[4].0)]));
    // Nor does a queue.
    fs::remove_dir_all(home.path().join("consumequeue")).unwrap();
    let report = dry(&home);
    assert_eq!((report.messages, report.log_end, report.damaged), (3, all[3].0, vec![]));
}

#[test]
fn a_folder_for_which_nothing_is_made_goes_to_the_quarantine() {
    let home = Home::closed(40);
    let old = home.path().join("batchconsumequeue/Gone/0");
    fs::create_dir_all(&old).unwrap();
    fs::write(old.join("notes"), b"kept").unwrap();
    let first = home.copy();
    let report = rebuild_with(&home, Arc::new(Os), &options(RebuildTarget::InPlace)).unwrap();
    let kept = report.quarantine.unwrap();
    assert_eq!(fs::read(kept.join("batchconsumequeue/Gone/0/notes")).unwrap(), b"kept");
    assert!(!home.path().join("batchconsumequeue").exists());
    // Whichever move fails, what lay there is kept once, and the next opening goes well.
    for calls in 0.. {
        let again = first.copy();
        let stage = Staged::new();
        stage.fail(Call::Rename, "", calls, EIO);
        let outcome = rebuild_with(&again, stage.storage(), &options(RebuildTarget::InPlace));
        again.write().close().unwrap();
        assert!(!again.path().join("rebuild").exists(), "{calls}");
        let kept = again.snapshot().into_iter().filter(|(path, _)| path.ends_with("Gone/0/notes"));
        assert_eq!(kept.count(), 1, "{calls}");
        crate::support::check(&again.read(), 40);
        if outcome.is_ok() {
            assert!(calls > 3, "{calls}");
            break;
        }
    }
}

#[test]
fn o2_a_rebuild_behind_links_to_another_disk_survives_a_kill_at_any_change() {
    let home = Home::closed(12);
    // The store is in memory where there is room, and this is not.
    let disk = tempfile::tempdir().unwrap();
    for calls in 0.. {
        let copy = home.copy();
        for name in ["consumequeue", "index"] {
            let (folder, away) =
                (copy.path().join(name), disk.path().join(format!("{calls}/{name}")));
            fs::create_dir_all(&away).unwrap();
            copy_folder(&folder, &away);
            fs::remove_dir_all(&folder).unwrap();
            symlink(&away, &folder).unwrap();
        }
        let stage = Staged::new();
        stage.stop_after(calls);
        let options = options(RebuildTarget::InPlace);
        let is_done = rebuild_with(&copy, stage.storage(), &options).is_ok();
        check(&copy.read(), 12);
        let store = copy.write();
        check(&store, 12);
        store.close().unwrap();
        for name in ["consumequeue", "index"] {
            let folder = copy.path().join(name);
            assert!(fs::symlink_metadata(&folder).unwrap().is_symlink(), "{name}, {calls} calls");
            let names = names_in(&folder);
            assert!(!names.iter().any(|path| path.ends_with("mqstore.moving")), "{names:?}");
        }
        assert!(copy.verify(&VerifyOptions::default()).ok, "{calls} calls");
        if is_done {
            assert!(calls > 20, "{calls}");
            break;
        }
    }
}
