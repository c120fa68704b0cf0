//! Hostile input, rows HN and HK, and acceptance cases MF07 and MF08: names, links, pipes, and the small
//! files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use mqstore::Error;
use mqstore::store::{OpenMode, RecoveryMode};

use crate::support::storage::Staged;
use crate::support::{Home, START_MS, check, names_in, patch, places, read_queue, set_len, small};

fn pipe(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

/// Moves what is at `path` out of the store and leaves a link to it.
fn link_away(home: &Home, path: &Path) -> tempfile::TempDir {
    let away = crate::support::scratch();
    let target = away.path().join("target");
    // Not by a process: until it runs, a new one holds the locks of all tests beside this one.
    fs::rename(path, &target).unwrap();
    symlink(&target, path).unwrap();
    assert!(path.starts_with(home.path()));
    away
}

#[test]
fn hn02_folders_that_no_store_makes_are_not_opened() {
    let home = Home::closed(40);
    let queues = home.path().join("consumequeue");
    let names = ["a b", "...", "x\u{1}", "-1", "007", "x", "+3"];
    for name in &names[..3] {
        fs::create_dir_all(queues.join(name).join("0")).unwrap();
    }
    for name in &names[3..] {
        fs::create_dir_all(queues.join("Topic").join(name)).unwrap();
        fs::copy(
            home.queue_file(1, 0).0,
            queues.join("Topic").join(name).join(format!("{:020}", 0)),
        )
        .unwrap();
    }
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        let store = home.open(mode).unwrap();
        check(&store, 40);
        let known = store.queue_names().unwrap();
        assert_eq!(known.len(), 4, "{known:?}");
        for name in names {
            let told = store.warnings().iter().any(|line| line.contains(&format!("/{name}:")));
            assert!(told, "{name:?} in {mode:?}: {:?}", store.warnings());
        }
        store.close().unwrap();
    }
}

#[test]
fn hn03_a_link_may_be_the_root_and_no_folder_of_ours_below_it() {
    let home = Home::closed(40);
    let link = crate::support::scratch();
    let root = link.path().join("root");
    symlink(home.path(), &root).unwrap();
    let open = |mode| mqstore::MessageStore::open(&root, mode, small());
    check(&open(OpenMode::Read).unwrap(), 40);
    check(&open(OpenMode::ReadWrite).unwrap(), 40);
    for folder in ["batchconsumequeue", "consumequeue_ext", "quarantine", "rebuild"] {
        let copy = home.copy();
        fs::create_dir(copy.path().join(folder)).unwrap();
        let _away = link_away(&copy, &copy.path().join(folder));
        for mode in [OpenMode::Read, OpenMode::ReadWrite, OpenMode::Create] {
            let error = copy.open(mode).unwrap_err().to_string();
            assert!(error.contains(folder) && error.contains("link"), "{mode:?}: {error}");
        }
    }
}

#[test]
fn hn03_linked_topics_and_queues_are_not_followed() {
    for below in ["Topic", "Topic/1"] {
        let home = Home::closed(40);
        let path = home.path().join("consumequeue").join(below);
        let away = link_away(&home, &path);
        let reader = home.read();
        assert!(reader.warnings().iter().any(|line| line.contains(below)), "{below}");
        drop(reader);
        let outside = fs::read_dir(away.path().join("target")).unwrap().count();
        // The name is taken, so a writer cannot make the queue anew, and must not write through it.
        let opened = home.open(OpenMode::ReadWrite);
        if let Ok(store) = &opened {
            let _ = store.close();
        }
        drop(opened);
        assert_eq!(fs::read_dir(away.path().join("target")).unwrap().count(), outside);
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink(), "{below}");
    }
}

#[test]
fn hn03_and_hn04_files_that_are_none_are_refused_without_waiting() {
    let home = Home::closed(60);
    let log = home.log_file(4096).0;
    let queue = home.queue_file(1, 0).0;
    let index = home.index_files()[0].clone();
    let checkpoint = home.path().join("checkpoint");
    for file in [&log, &queue, &index, &checkpoint] {
        let name = file.strip_prefix(home.path()).unwrap();
        for what in ["pipe", "link", "folder"] {
            let copy = home.copy();
            let path = copy.path().join(name);
            let _away = if what == "link" {
                Some(link_away(&copy, &path))
            } else {
                fs::remove_file(&path).unwrap();
                if what == "pipe" {
                    pipe(&path);
                } else {
                    fs::create_dir(&path).unwrap();
                }
                None
            };
            // Not opened, not waited for; an answer or an error, and never what is outside.
            for mode in [OpenMode::Read, OpenMode::ReadWrite] {
                match copy.open(mode) {
                    Ok(store) => {
                        let _ = crate::support::scan(&store);
                        let _ = store.close();
                    }
                    Err(Error::Io { .. } | Error::Corrupt(_)) => {}
                    Err(error) => panic!("{what} at {}: {error}", name.display()),
                }
            }
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            assert!(!kind.is_file(), "{what} at {} was replaced", name.display());
        }
    }
}

#[test]
fn hn05_a_file_with_another_name_outside_is_not_written_to() {
    for name in ["lock", "commitlog", "consumequeue/Topic/0", "index"] {
        let home = Home::closed(40);
        let mut path = home.path().join(name);
        if path.is_dir() {
            path = names_in(&path).pop().unwrap();
        }
        let outside = home.path().parent().unwrap().join(format!("hn05-{}", std::process::id()));
        fs::hard_link(&path, &outside).unwrap();
        let kept = fs::read(&outside).unwrap();
        check(&home.read(), 40);
        let mut outcome = home.open(OpenMode::ReadWrite);
        if let Ok(store) = &outcome {
            // Names not written at open are refused on use.
            let appended: mqstore::Result<Vec<_>> = (40..80)
                .map(|n| crate::support::append(store, n, &crate::support::body(n)))
                .collect();
            outcome = match appended.and_then(|_| store.close()) {
                Ok(()) => Ok(home.read()),
                Err(error) => Err(error),
            };
        }
        let same = fs::read(&outside).unwrap() == kept;
        fs::remove_file(&outside).unwrap();
        assert!(same, "{name}: bytes outside of the store were changed");
        let error = outcome.expect_err(name).to_string();
        assert!(error.contains("hard link") && error.contains(name), "{error}");
    }
}

#[test]
fn hn06_what_counts_is_the_open_file_and_not_its_name() {
    for folder in ["commitlog", "consumequeue/Topic/1", "index", "config"] {
        for harm in ["pipe", "link"] {
            for mode in [OpenMode::Read, OpenMode::ReadWrite] {
                let home = Home::closed(40);
                let outside = crate::support::scratch();
                let secret = outside.path().join("secret");
                fs::write(&secret, b"kept").unwrap();
                let (stage, dir) = (Staged::new(), home.path().join(folder));
                let (watched, target) = (dir.clone(), secret.clone());
                // Between the look at the names and the opening of the first.
                stage.after_list(Box::new(move |listed| {
                    let Some(path) = names_in(listed).into_iter().next() else { return };
                    if listed == watched && fs::symlink_metadata(&path).unwrap().is_file() {
                        fs::remove_file(&path).unwrap();
                        match harm {
                            "pipe" => pipe(&path),
                            _ => symlink(&target, &path).unwrap(),
                        }
                    }
                }));
                let opened = mqstore::store::MessageStore::open_with(
                    home.path(),
                    mode,
                    home.config.clone(),
                    stage.storage(),
                    std::sync::Arc::clone(&home.clock) as std::sync::Arc<_>,
                );
                if let Ok(store) = opened {
                    let _ = crate::support::scan(&store);
                    let _ = store.close();
                }
                assert_eq!(fs::read(&secret).unwrap(), b"kept", "{folder}, {harm}, {mode:?}");
            }
        }
    }
}

#[test]
fn hn07_what_is_made_is_no_more_open_than_it_must_be() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::killed(100);
    let (at, _) = places(&home)[99];
    home.flip(at + 95);
    let store = home.write();
    assert!(store.recovery().unwrap().quarantine.is_some());
    home.fill(&store, 100..140);
    store.close().unwrap();
    let made = Home::new(small());
    // New folders and files are as open as the folder that they lie in.
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o750)).unwrap();
    let store = made.create();
    made.fill(&store, 0..100);
    store.close().unwrap();
    let mut dirs = vec![made.path().join("commitlog"), home.path().join("quarantine")];
    dirs.extend(["consumequeue", "index", "config"].map(|name| made.path().join(name)));
    let mut seen = 0;
    while let Some(dir) = dirs.pop() {
        let private = dir.starts_with(home.path());
        let mut all = vec![dir.clone()];
        all.extend(names_in(&dir));
        for path in all {
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() && path != dir {
                dirs.push(path.clone());
            }
            let most = match (metadata.is_dir(), private) {
                (true, true) => 0o700,
                (true, false) => 0o750,
                (false, true) => 0o600,
                (false, false) => 0o640,
            };
            let mode = metadata.permissions().mode() & 0o777;
            assert_eq!(mode & !most, 0, "{}: {mode:o}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn hk01_checkpoints_of_any_kind_hide_nothing() {
    let times = [i64::MIN, -1, 0, START_MS, START_MS + 3_600_000, i64::MAX];
    for crashed in [false, true] {
        for time in times {
            let home = Home::closed(100);
            for at in [0, 8, 16] {
                patch(&home.path().join("checkpoint"), at, &time.to_be_bytes());
            }
            if crashed {
                fs::write(home.path().join("abort"), b"1").unwrap();
            }
            check(&home.read(), 100);
            let store = home.write();
            check(&store, 100);
            store.close().unwrap();
        }
        for len in [0, 1, 24, 39, 40, 4095, 10_000] {
            let home = Home::closed(100);
            set_len(&home.path().join("checkpoint"), len);
            if crashed {
                fs::write(home.path().join("abort"), b"1").unwrap();
            }
            check(&home.read(), 100);
            let store = home.write();
            check(&store, 100);
            store.close().unwrap();
            assert!(fs::metadata(home.path().join("checkpoint")).unwrap().len() >= 4096);
        }
    }
}

#[test]
fn hk02_a_confirm_offset_beyond_the_log_is_ignored() {
    for offset in [-1, i64::MIN, 1 << 40, i64::MAX] {
        let home = Home::closed(100);
        patch(&home.path().join("checkpoint"), 32, &offset.to_be_bytes());
        check(&home.read(), 100);
        let store = home.write();
        check(&store, 100);
        home.fill(&store, 100..110);
        check(&store, 110);
    }
}

#[test]
fn hk03_abort_and_lock_must_be_files() {
    for name in ["abort", "lock"] {
        for what in ["pipe", "link", "folder"] {
            let home = Home::closed(20);
            let path = home.path().join(name);
            let _ = fs::remove_file(&path);
            let outside = home.path().join("outside");
            fs::write(&outside, b"kept").unwrap();
            match what {
                "pipe" => pipe(&path),
                "link" => symlink(&outside, &path).unwrap(),
                _ => fs::create_dir(&path).unwrap(),
            }
            let error = home.open(OpenMode::ReadWrite).unwrap_err();
            assert!(error.to_string().contains(name), "{what}: {error}");
            assert_eq!(fs::read(&outside).unwrap(), b"kept");
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            assert!(!kind.is_file(), "{name} as a {what} was replaced");
        }
    }
}

#[test]
fn hk04_of_a_large_abort_file_the_beginning_is_read() {
    let home = Home::closed(20);
    let abort = home.path().join("abort");
    fs::write(&abort, [b'7'; 1000]).unwrap();
    set_len(&abort, 1 << 30);
    let store = home.write();
    assert_eq!(store.recovery().unwrap().mode, RecoveryMode::Crash);
    check(&store, 20);
    assert_eq!(fs::read(home.path().join("abort.bak")).unwrap(), [b'7'; 64]);
    assert_eq!(fs::read(&abort).unwrap(), std::process::id().to_string().into_bytes());
}

#[test]
fn mf07_strays_are_passed_over_and_empty_files_told_apart() {
    let home = Home::closed(60);
    let log = home.path().join("commitlog");
    fs::write(log.join("notes.txt"), b"x").unwrap();
    fs::create_dir(log.join("old")).unwrap();
    let end = names_in(&log).iter().filter(|path| path.is_file()).count() - 1;
    let behind = log.join(format!("{:020}", end * 4096));
    fs::write(&behind, []).unwrap();
    let before = home.snapshot();
    let reader = home.read();
    check(&reader, 60);
    let told = |store: &mqstore::MessageStore, name: &str| {
        store.warnings().iter().any(|line| line.contains(name))
    };
    assert!(told(&reader, "notes.txt") && told(&reader, "old"));
    drop(reader);
    assert!(home.snapshot() == before);
    let store = home.write();
    check(&store, 60);
    assert!(told(&store, "notes.txt") && told(&store, "old"));
    store.close().unwrap();
    assert!(!behind.exists() && log.join("notes.txt").exists() && log.join("old").exists());
    set_len(&log.join("00000000000000004096"), 0);
    let before = home.snapshot();
    let error = home.open(OpenMode::ReadWrite).unwrap_err().to_string();
    assert!(error.contains("00000000000000004096"), "{error}");
    assert!(home.snapshot() == before);
    home.read();
}

#[test]
fn mf08_a_size_that_the_files_do_not_have_is_refused() {
    let home = Home::closed(60);
    let before = home.snapshot();
    let mut other = home.copy();
    other.config.mapped_file_size_commit_log = Some(2048);
    for mode in [OpenMode::Read, OpenMode::ReadWrite, OpenMode::Create] {
        let error = other.open(mode).unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("2048") && text.contains("4096"), "{text}");
        assert!(text.contains("commitlog/0000"), "{text}");
    }
    assert!(other.snapshot() == before);
    other.config.mapped_file_size_commit_log = None;
    other.config.mapped_file_size_consume_queue = None;
    let store = other.write();
    check(&store, 60);
    assert_eq!(store.config().mapped_file_size_commit_log, Some(4096));
    assert_eq!(store.config().mapped_file_size_consume_queue, Some(200));
}

#[test]
fn mf08_a_size_that_the_queues_do_not_have_is_refused_too() {
    let home = Home::closed(60);
    let mut other = home.copy();
    other.config.mapped_file_size_consume_queue = Some(400);
    let before = other.snapshot();
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        let text = other.open(mode).unwrap_err().to_string();
        assert!(text.contains("400") && text.contains("200"), "{text}");
        assert!(text.contains("consumequeue/Topic/"), "{text}");
    }
    assert!(other.snapshot() == before);
}

#[test]
fn an_index_file_that_tells_no_layout_is_a_reader_s_warning() {
    let mut home = Home::closed(20);
    fs::write(&home.index_files()[0], b"damaged").unwrap();
    (home.config.max_hash_slot_num, home.config.max_index_num) = (None, None);
    // As in a store that RocketMQ made: nothing else tells it.
    fs::remove_file(home.path().join("config/mqstore.json")).unwrap();
    let warned = |home: &Home| home.read().warnings().iter().any(|text| text.contains("index/"));
    assert!(warned(&home), "{:?}", home.read().warnings());
    let error = home.open(OpenMode::ReadWrite).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("does not fit the index file"), "{text}");
    assert!(
        text.contains("give max_hash_slot_num and max_index_num as the writer had them"),
        "{text}"
    );
    assert!(text.contains("5000000 and 20000000"), "{text}");
    // Without an index nobody asks what its files hold.
    home.config.message_index_enable = false;
    let store = home.write();
    assert_eq!(read_queue(&store, 0, 0).records.len(), 5);
}

#[test]
fn other_files_of_a_store_are_listed_by_kind() {
    let home = Home::closed(4);
    let found = || {
        let list =
            mqstore::store::folder::inventory::inventory(&mqstore::files::Os, home.path()).unwrap();
        list.into_iter().map(|found| found.path).collect::<Vec<_>>()
    };
    let before = found();
    // A database has one of two files at least: a damaged one lacks the other.
    let database = home.path().join("rocksdbstore");
    fs::create_dir(&database).unwrap();
    fs::write(database.join("000004.log"), b"").unwrap();
    assert_eq!(found(), before);
    fs::write(database.join("MANIFEST-000001"), b"").unwrap();
    let now = found();
    assert_eq!(now.len(), before.len() + 1, "{now:?}");
    assert!(now.iter().any(|path| path.contains("rocksdbstore")), "{now:?}");
}
