//! Queues and index made again from the log: the bytes, what is damaged, what stops half-way.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mqstore::Error;
use mqstore::care::rebuild::rebuild_on;
use mqstore::care::{RebuildOptions, RebuildReport, RebuildTarget, RebuildWhat};
use mqstore::error::Result;
use mqstore::files::{Os, Storage};
use mqstore::format::message::MAGIC_V1;
use mqstore::format::queue::consume_queue::TagFilter;
use mqstore::store::read::queue_read::view_of;
use mqstore::store::{GetStatus, MessageStore, NewMessage};

use crate::support::storage::{Call, Staged};
use crate::support::{
    Home, START_MS, append, body, by_key, check, check_queues, names_in, places, read_queue,
    scratch, set_len,
};

pub(crate) fn options(target: RebuildTarget) -> RebuildOptions {
    let what = RebuildWhat { queues: true, index: true };
    RebuildOptions { what, topics: None, target, threads: Some(2), aside: None }
}

pub(crate) fn rebuild_with(
    home: &Home,
    storage: Arc<dyn Storage>,
    options: &RebuildOptions,
) -> Result<RebuildReport> {
    let clock = Arc::clone(&home.clock) as Arc<_>;
    let config = home.config.clone();
    rebuild_on(storage, clock, home.path(), config, options, &mut |_, _| ControlFlow::Continue(()))
}

#[test]
fn files_that_are_missing_or_short_are_damage_up_to_the_next_file() {
    let home = Home::closed(60);
    let places = places(&home);
    let whole_before = |end: u64| places.iter().filter(|(at, len)| at + len <= end).count();
    let behind = places.iter().filter(|(at, _)| *at >= 8192).count();
    let cut = places.iter().map(|(at, _)| *at).rfind(|at| *at <= 4096 + 1000).unwrap();
    for (len, begin, before) in [
        (None, 4096, whole_before(4096)),
        (Some(1000), cut, whole_before(5096)),
        (Some(0), 4096, whole_before(4096)),
    ] {
        let copy = home.copy();
        let file = copy.log_file(4096).0;
        match len {
            None => fs::remove_file(file).unwrap(),
            Some(len) => set_len(&file, len),
        }
        let report = rebuild_with(&copy, Arc::new(Os), &options(RebuildTarget::Nothing)).unwrap();
        assert_eq!(report.damaged, [(begin, 8192)], "{len:?}");
        assert_eq!(report.messages, (before + behind) as u64, "{len:?}");
    }
}

fn rebuild(home: &Home) -> RebuildReport {
    rebuild_with(home, Arc::new(Os), &options(RebuildTarget::InPlace)).unwrap()
}

/// Files by name, with their bytes.
type Files = Vec<(PathBuf, Vec<u8>)>;

/// The queues' files by name, and the index files in order: their names are of the clock.
fn derived(files: Vec<(PathBuf, Vec<u8>)>) -> Vec<(PathBuf, Vec<u8>)> {
    let mut derived = Vec::new();
    for (name, bytes) in files {
        if name.starts_with("index") {
            derived.push((PathBuf::from(format!("index/{}", derived.len())), bytes));
        } else if ["consumequeue", "batchconsumequeue", "consumequeue_ext"]
            .iter()
            .any(|folder| name.starts_with(folder))
        {
            derived.push((name, bytes));
        }
    }
    derived
}

fn remove_derived(home: &Home) {
    for folder in ["consumequeue", "index"] {
        fs::remove_dir_all(home.path().join(folder)).unwrap();
    }
}

#[test]
fn lost_queues_and_index_come_back_byte_for_byte() {
    let home = Home::closed(300);
    let before = derived(home.snapshot());
    remove_derived(&home);
    let report = rebuild(&home);
    assert!(derived(home.snapshot()) == before);
    assert_eq!((report.messages, report.index.keys, report.queues.len()), (300, 300, 4));
    assert!(report.damaged.is_empty() && report.quarantine.is_none(), "{report:?}");
    check(&home.read(), 300);
    let store = home.write();
    assert_eq!(store.recovery().unwrap().rebuilt, Vec::<String>::new());
    home.fill(&store, 300..320);
    check(&store, 320);
}

#[test]
fn a_replaced_folder_is_kept_beside_the_data() {
    let home = Home::closed(100);
    let good = derived(home.snapshot());
    home.put_entry(1, 3, 77, 7, 7);
    let bad = derived(home.snapshot());
    let kept = rebuild(&home).quarantine.unwrap();
    assert!(kept.starts_with(home.path().join("quarantine")));
    assert!(derived(home.snapshot()) == good);
    let mut files = Vec::new();
    crate::support::collect(&kept, &kept, &mut files);
    files.sort();
    assert!(derived(files) == bad);
}

#[test]
fn a_rebuild_stopped_anywhere_leaves_the_old_or_the_new() {
    let first = Home::closed(60);
    let good = derived(first.snapshot());
    first.put_entry(2, 3, 77, 7, 7);
    let old = derived(first.snapshot());
    for exchanges in [false, true] {
        stop_anywhere(&first, &old, &good, exchanges);
    }
}

/// Stops a rebuild after each of its calls, on a system that can exchange two names or cannot.
fn stop_anywhere(first: &Home, old: &Files, good: &Files, exchanges: bool) {
    let (mut as_old, mut as_new, mut between) = (0, 0, 0);
    for calls in 0.. {
        let home = first.copy();
        let staged = Staged::new();
        if exchanges {
            staged.exchange_names();
        }
        staged.stop_after(calls);
        let outcome = rebuild_with(&home, staged.storage(), &options(RebuildTarget::InPlace));
        let now = derived(home.snapshot());
        match () {
            () if now == *old => as_old += 1,
            () if now == *good => as_new += 1,
            () => between += 1,
        }
        if now != *old && now != *good {
            let checkpoint = std::fs::read(home.path().join("checkpoint")).unwrap();
            let told = (&checkpoint[8..16], &checkpoint[40..48]);
            assert_eq!(told, (&[0; 8][..], &[0; 8][..]), "queues that are moved, after {calls}");
        }
        // A reader sees every message, whatever is moved.
        if now != *old {
            check_queues(&home.read(), &(0..60).collect::<Vec<_>>());
        }
        home.write().close().unwrap();
        assert!(!home.path().join("rebuild").exists(), "after {calls}");
        assert!(derived(home.snapshot()) == *good, "after {calls}");
        check(&home.read(), 60);
        if outcome.is_ok() {
            break;
        }
    }
    assert!(as_old > 20 && as_new > 3 && between > 0, "{as_old}, {as_new}, {between}");
}

#[test]
fn a_full_disk_leaves_everything_as_it_was() {
    for (call, errno) in [(Call::Write, 28), (Call::Create, 28), (Call::SyncDerived, 5)] {
        let home = Home::closed(200);
        let before = home.snapshot();
        let staged = Staged::new();
        staged.fail(call, "rebuild/new", 3, errno);
        let failed = rebuild_with(&home, staged.storage(), &options(RebuildTarget::InPlace));
        match failed {
            Err(Error::Io { source, .. }) => assert_eq!(source.raw_os_error(), Some(errno)),
            other => panic!("{other:?}"),
        }
        assert!(home.snapshot() == before, "{call:?}");
    }
}

#[test]
fn a_folder_that_cannot_be_moved_stops_no_later_opening() {
    let home = Home::closed(40);
    let before = home.snapshot();
    let staged = Staged::new();
    staged.fail(Call::Rename, "quarantine", 0, 16);
    let failed = rebuild_with(&home, staged.storage(), &options(RebuildTarget::InPlace));
    assert!(
        matches!(failed, Err(Error::Io { op: mqstore::Operation::Other("rename"), .. })),
        "{failed:?}"
    );
    assert!(home.snapshot() == before);
    check(&home.write(), 40);
    // Where the two had changed places before, the next opening takes the old one away.
    staged.exchange_names();
    let failed = rebuild_with(&home, staged.storage(), &options(RebuildTarget::InPlace));
    assert!(
        matches!(failed, Err(Error::Io { op: mqstore::Operation::Other("rename"), .. })),
        "{failed:?}"
    );
    check(&home.read(), 40);
    check(&home.write(), 40);
    assert!(!home.path().join("rebuild").exists());
}

/// Numbers that a seed gives (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        for shift in [13, -7, 17_i32] {
            self.0 ^= if shift > 0 { self.0 << shift } else { self.0 >> -shift };
        }
        self.0 % bound
    }
}

/// Asks for one message in one of the ways that there are.
fn ask(reader: &MessageStore, numbers: &mut Numbers) {
    let number = numbers.below(40) as usize;
    let (queue, offset) = ((number % 4) as i32, (number / 4) as i64);
    match numbers.below(4) {
        0 => {
            let found = by_key(reader, number);
            assert_eq!(found, [body(number)], "key of message {number}");
        }
        1 => {
            let queue = reader.queue(b"Topic", queue).unwrap().unwrap();
            assert_eq!((queue.min_offset, queue.max_offset), (0, 10));
        }
        _ => {
            let most = numbers.below(4) as usize + 1;
            let answer = reader.read(b"Topic", queue, offset, most, None, &TagFilter::ALL).unwrap();
            assert_eq!(answer.status, GetStatus::Found, "message {number}: {answer:?}");
            let wanted: Vec<_> = (number..40).step_by(4).take(most).map(body).collect();
            let found =
                answer.records.iter().map(|record| view_of(record).unwrap().body().to_vec());
            assert_eq!(found.collect::<Vec<_>>(), wanted, "message {number}");
            assert_eq!(answer.next_queue_offset, offset + wanted.len() as i64);
        }
    }
}

/// A listing that began in the old folder ends when the new one has its name and the old one is half removed.
#[test]
fn an_index_that_is_replaced_while_it_is_listed_hides_no_message() {
    let mut home = Home::closed(40);
    let staged = Staged::new();
    home.storage = staged.storage();
    let reader = home.read();
    let (index, new) = (home.path().join("index"), home.path().join("new"));
    let names: BTreeSet<_> =
        fs::read_dir(&index).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.len() > 1);
    fs::create_dir(&new).unwrap();
    for name in &names {
        fs::copy(index.join(name), new.join(name)).unwrap();
    }
    fs::remove_file(index.join(names.first().unwrap())).unwrap();
    let gone = home.path().join("gone");
    staged.after_list(Box::new(move |listed| {
        if listed == index && new.exists() {
            fs::rename(&index, &gone).unwrap();
            fs::rename(&new, &index).unwrap();
        }
    }));
    reader.refresh().unwrap();
    for number in 0..40 {
        assert_eq!(by_key(&reader, number), [body(number)], "key of message {number}");
    }
}

#[test]
fn a_reader_beside_a_rebuild_is_never_wrong() {
    let number_of = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
    };
    let rounds = number_of("MQSTORE_ROUNDS", 500);
    let seed = number_of("MQSTORE_SEED", 20_261_123);
    println!("MQSTORE_SEED={seed} MQSTORE_ROUNDS={rounds}");
    let home = Home::closed(40);
    let (is_done, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        let done = crate::reader::SetAtEnd(&is_done);
        for thread in 1..3 {
            let (home, is_done, asked) = (&home, &is_done, &asked);
            threads.spawn(move || {
                let mut numbers = Numbers(seed.wrapping_mul(thread) | 1);
                let mut reader = home.read();
                while !is_done.load(Ordering::Relaxed) {
                    match numbers.below(10) {
                        0 => reader.refresh().unwrap(),
                        1 => reader = home.read(),
                        _ => ask(&reader, &mut numbers),
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut numbers = Numbers(seed | 1);
        for round in 0..rounds {
            let topics = (numbers.below(2) == 0).then(|| vec![Box::from(&b"Topic"[..])]);
            // Half of them as on a system that can only rename.
            let staged = Staged::new();
            if numbers.below(2) == 0 {
                staged.exchange_names();
            }
            let what = RebuildWhat { queues: true, index: topics.is_none() };
            let target = RebuildTarget::InPlace;
            let options = RebuildOptions { what, topics, target, threads: Some(1), aside: None };
            home.clock.set(START_MS + 100_000 + round as i64);
            rebuild_with(&home, staged.storage(), &options).unwrap();
            if round % 64 == 63 {
                fs::remove_dir_all(home.path().join("quarantine")).unwrap();
            }
        }
        drop(done);
    });
    assert!(asked.into_inner() >= rounds);
}

#[test]
fn another_folder_takes_it_all_and_the_store_nothing() {
    let home = Home::closed(100);
    let before = home.snapshot();
    let writer = home.write();
    let in_use = home.snapshot();
    let out = scratch();
    let target = RebuildTarget::Folder(out.path().join("made"));
    let report = rebuild_with(&home, Arc::new(Os), &options(target.clone())).unwrap();
    assert_eq!(report.messages, 100);
    assert!(home.snapshot() == in_use);
    let mut files = Vec::new();
    crate::support::collect(&out.path().join("made"), &out.path().join("made"), &mut files);
    files.sort();
    assert!(derived(files) == derived(before));
    let refused = |target| match rebuild_with(&home, Arc::new(Os), &options(target)) {
        Err(Error::InvalidConfig { field, reason }) => format!("{field}: {reason}"),
        other => panic!("{other:?}"),
    };
    assert!(refused(target).contains("which has"));
    let inside = home.path().join("index/x");
    assert!(refused(RebuildTarget::Folder(inside)).contains("in the store"));
    let in_place = rebuild_with(&home, Arc::new(Os), &options(RebuildTarget::InPlace));
    assert!(matches!(in_place, Err(Error::Locked { .. })), "{in_place:?}");
    drop(writer);
}

#[test]
fn a_dry_run_changes_nothing() {
    let home = Home::closed(100);
    let before = home.snapshot();
    let report = rebuild_with(&home, Arc::new(Os), &options(RebuildTarget::Nothing)).unwrap();
    assert!(home.snapshot() == before);
    assert_eq!((report.messages, report.index.keys, report.index.files), (100, 100, 0));
    assert!(report.queues.iter().all(|queue| queue.was == Some((0, 25)) && queue.entries == 25));
}

#[test]
fn the_log_goes_on_behind_damage_that_was_flushed() {
    let home = Home::closed(100);
    let all = places(&home);
    let (at, size) = all[50];
    home.patch(at, &[0xAB; 40]);
    let report = rebuild(&home);
    assert_eq!(report.messages, 99);
    assert_eq!(report.damaged, [(at, at + size)]);
    let store = home.read();
    // Each message has its own number; that of the lost one leads nowhere.
    for number in [46, 54, 98] {
        let read = read_queue(&store, 2, i64::try_from(number / 4).unwrap());
        assert!(!read.records.is_empty(), "{number}: {read:?}");
        let first = mqstore::store::read::queue_read::view_of(&read.records[0]).unwrap();
        assert_eq!(first.body(), body(number));
    }
}

#[test]
fn an_unclean_end_is_not_entered() {
    let home = Home::killed(60);
    let end = places(&home).last().map(|(at, size)| at + size).unwrap();
    let (last, size) = *places(&home).last().unwrap();
    home.patch(last + size - 20, &[0; 20]);
    let report = rebuild(&home);
    assert_eq!((report.messages, report.log_end), (59, last));
    assert!(end > report.log_end && report.damaged.is_empty());
    assert!(home.abort_exists());
    let store = home.write();
    assert_eq!(store.end_offset(), last);
    check(&store, 59);
}

#[test]
fn queues_whose_messages_are_gone_keep_their_numbers() {
    let home = Home::new(crate::support::small());
    let store = home.create();
    let mut message = NewMessage::new(b"Old", b"x");
    message.queue_id = 7;
    for _ in 0..13 {
        store.append(&message).unwrap();
    }
    home.fill(&store, 0..100);
    store.close().unwrap();
    for base in [0, 4096] {
        fs::remove_file(home.path().join(format!("commitlog/{base:020}"))).unwrap();
    }
    let report = rebuild(&home);
    assert_eq!(report.kept, [(Box::from(&b"Old"[..]), 7)]);
    let store = home.write();
    let queue = store.queue(b"Old", 7).unwrap().unwrap();
    assert_eq!((queue.min_offset, queue.max_offset), (13, 13));
    assert_eq!(store.append(&message).unwrap().queue_offset, 13);
}

#[test]
fn one_topic_alone() {
    let home = Home::closed(40);
    let store = home.write();
    for _ in 0..5 {
        store.append(&NewMessage::new(b"Other", b"x")).unwrap();
    }
    store.close().unwrap();
    let good = derived(home.snapshot());
    home.put_entry(1, 3, 77, 7, 7);
    let other = home.path().join("consumequeue/Other/0");
    let stamp = fs::metadata(names_in(&other)[0].clone()).unwrap().modified().unwrap();
    let mut options = options(RebuildTarget::InPlace);
    options.topics = Some(vec![Box::from(&b"Topic"[..])]);
    options.what.index = false;
    let report = rebuild_with(&home, Arc::new(Os), &options).unwrap();
    assert_eq!(report.queues.len(), 4);
    assert!(derived(home.snapshot()) == good);
    assert_eq!(fs::metadata(names_in(&other)[0].clone()).unwrap().modified().unwrap(), stamp);
    options.topics = Some(vec![Box::from(&b"None"[..])]);
    let before = home.snapshot();
    let unknown = rebuild_with(&home, Arc::new(Os), &options);
    assert!(matches!(unknown, Err(Error::MessageNotFound { .. })), "{unknown:?}");
    assert!(home.snapshot() == before);
}

/// A log of several stretches, whose messages are made to mislead who looks for records.
#[test]
fn bytes_made_to_look_like_records_are_none() {
    let mut home = Home::new(crate::support::small());
    home.config.mapped_file_size_commit_log = Some(32 << 20);
    home.config.max_message_size = 8 << 20;
    let store = home.create();
    let fill = |store: &MessageStore, number, bytes: usize| {
        let mut large = body(number);
        large.resize(bytes, 7);
        append(store, number, &large).unwrap()
    };
    let mut number = 0;
    let mut place = 0;
    while place < (4 << 20) - (64 << 10) {
        place = fill(&store, number, 60 << 10).physical_offset + (61 << 10);
        number += 1;
    }
    // A body that holds a record's first bytes at the right place, behind the first 4 MiB and 8 MiB.
    let begin = store.end_offset();
    let mut body = vec![7; 6 << 20];
    for lie in [(4 << 20) + 11, (4 << 20) + 5000, (8 << 20) + 77_u64] {
        let at = usize::try_from(lie - begin).unwrap() - 88;
        body[at..at + 4].copy_from_slice(&200_i32.to_be_bytes());
        body[at + 4..at + 8].copy_from_slice(&MAGIC_V1.to_be_bytes());
        body[at + 28..at + 36].copy_from_slice(&lie.to_be_bytes());
    }
    append(&store, number, &body).unwrap();
    for more in 1..300 {
        fill(&store, number + more, 30 << 10);
    }
    store.close().unwrap();
    let good = derived(home.snapshot());
    remove_derived(&home);
    let report = rebuild(&home);
    assert_eq!(report.messages as usize, number + 300);
    assert!(report.damaged.is_empty());
    assert!(derived(home.snapshot()) == good);
}

#[test]
fn any_damage_is_survived() {
    let first = Home::closed(60);
    let len = fs::metadata(first.path().join(format!("commitlog/{:020}", 0))).unwrap().len();
    for seed in 0..60_u64 {
        let home = first.copy();
        let at = seed.wrapping_mul(2_654_435_761) % len;
        match seed % 3 {
            0 => home.patch(at, &seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()),
            1 => home.patch(at, &vec![0; usize::try_from((len - at).min(700)).unwrap()]),
            _ => set_len(&home.path().join(format!("commitlog/{:020}", 4096)), at),
        }
        let report = rebuild_with(&home, Arc::new(Os), &options(RebuildTarget::InPlace));
        // A file that is cut short tells no size; all else is made of what is whole.
        let report = report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(report.messages >= 30, "seed {seed}: {}", report.messages);
    }
}

#[test]
fn a_list_of_moves_that_nobody_wrote_is_refused() {
    let home = Home::closed(10);
    let dir = home.path().join("rebuild");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("moves"), "1-rebuild\n-commitlog\n").unwrap();
    let before = home.snapshot();
    assert!(matches!(home.open(mqstore::store::OpenMode::ReadWrite), Err(Error::Corrupt(_))));
    assert!(home.snapshot() == before);
    fs::remove_file(Path::new(&dir).join("moves")).unwrap();
    check(&home.write(), 10);
}
