//! Time of verify, rebuild and recovery of a store, beside two threads that only read it
//! and its checksums: `care FOLDER MIB [ROUNDS [WORK ...]]` makes a store of that size below the folder
//! unless it is there, does each work, or those named beside the limit, in turns, and prints a line of
//! JSON for each: the median of the rounds, the rate, the share of the limit's and the most memory that
//! was held. Without arguments it runs once, small.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "a benchmark")]

use std::fs::File;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mqstore::StoreConfig;
use mqstore::care::rebuild::{RebuildOptions, Target, What, rebuild};
use mqstore::care::verify::{VerifyOptions, verify};
use mqstore::format::crc::crc32;
use mqstore::store::{MessageStore, NewMessage, OpenMode};

const TOPIC: &[u8] = b"BenchTopic";
const BLOCK: usize = 256 << 10;
const THREADS: usize = 2;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |text: &String| text.parse::<u64>().unwrap();
    match arguments.as_slice() {
        [] => {
            let folder = tempfile::tempdir().unwrap();
            bench(folder.path(), 8 << 20, 1, &[]);
        }
        [folder, mib] => bench(Path::new(folder), number(mib) << 20, 3, &[]),
        [folder, mib, rounds, works @ ..] => {
            bench(Path::new(folder), number(mib) << 20, number(rounds), works);
        }
        _ => panic!("care FOLDER MIB [ROUNDS [WORK ...]]"),
    }
}

/// A store, and where its log ends.
struct Filled {
    path: PathBuf,
    end: u64,
}

/// A work: its name, and what does it on a store.
type Work = (&'static str, fn(&Filled));

const WORKS: &[Work] = &[
    ("limit", limit),
    ("verify", verified),
    ("rebuild", rebuilt),
    ("open", opened),
    ("recover", recovered),
    ("recover-log-alone", recovered_log_alone),
];

fn bench(folder: &Path, bytes: u64, rounds: u64, named: &[String]) {
    let names: Vec<_> = WORKS.iter().map(|(name, _)| *name).collect();
    assert!(named.iter().all(|name| names.contains(&name.as_str())), "works: {names:?}");
    let is_wanted = |(name, _): &&Work| {
        *name == "limit" || named.is_empty() || named.iter().any(|wanted| wanted == name)
    };
    let works: Vec<&Work> = WORKS.iter().filter(is_wanted).collect();
    let store = folder.join("store");
    if !store.exists() {
        fill(&store, bytes);
    }
    let reader = MessageStore::open(&store, OpenMode::Read, StoreConfig::default()).unwrap();
    let end = reader.end_offset();
    drop(reader);
    let filled = Filled { path: store.clone(), end };
    // Each work is done once before the clock counts, so that each finds the log in memory.
    let mut seconds = vec![Vec::new(); works.len()];
    let mut peak_kib = vec![0; works.len()];
    for round in 0..=rounds {
        for (at, (name, work)) in works.iter().enumerate() {
            prepare(name, &store);
            let _ = std::fs::write("/proc/self/clear_refs", "5");
            let before = Instant::now();
            work(&filled);
            if round > 0 || rounds == 1 {
                seconds[at].push(before.elapsed().as_secs_f64());
                peak_kib[at] = peak_kib[at].max(most_memory_kib());
            }
            let _ = std::fs::remove_dir_all(store.with_file_name("out"));
        }
    }
    let median = |of: &mut Vec<f64>| {
        of.sort_by(f64::total_cmp);
        of[of.len() / 2]
    };
    let medians: Vec<f64> = seconds.iter_mut().map(median).collect();
    for (at, (name, _)) in works.iter().enumerate() {
        let (took, share) = (medians[at], medians[0] / medians[at]);
        let rate = bytes as f64 / took / 1e9;
        let peak_mib = peak_kib[at] / 1024;
        println!(
            "{{\"work\": \"{name}\", \"bytes\": {bytes}, \"seconds\": {took:.4}, \"gb_s\": {rate:.2}, \
             \"share_of_limit\": {share:.3}, \"peak_mib\": {peak_mib}}}"
        );
    }
}

/// The most memory that was held since the last look, in KiB; 0 where the system does not tell.
fn most_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}

fn fill(folder: &Path, bytes: u64) {
    let store = MessageStore::open(folder, OpenMode::Create, StoreConfig::default()).unwrap();
    let body: Vec<u8> = (0..1024_u32).map(|n| (n * 31 % 251) as u8).collect();
    let mut number = 0_u64;
    while store.end_offset() < bytes {
        let properties = format!(
            "TAGS\u{1}paid\u{2}KEYS\u{1}order-{number}\u{2}UNIQ_KEY\u{1}7F{number:030}\u{2}"
        );
        let mut message = NewMessage::new(TOPIC, &body);
        message.queue_id = i32::try_from(number % 8).unwrap();
        message.properties = properties.as_bytes();
        black_box(store.append(&message).unwrap());
        number += 1;
    }
    store.close().unwrap();
}

/// Prepares the state after a crash: everything, or the log alone.
fn prepare(name: &str, store: &Path) {
    if name.starts_with("recover") {
        std::fs::write(store.join("abort"), b"1").unwrap();
        let _ = std::fs::remove_dir_all(store.join("consumequeue"));
        let _ = std::fs::remove_dir_all(store.join("index"));
    }
    if name == "recover-log-alone" {
        let _ = std::fs::remove_file(store.join("checkpoint"));
    }
}

/// Two threads that only read the log into blocks and take the checksum of each.
fn limit(store: &Filled) {
    let log = std::fs::read_dir(store.path.join("commitlog")).unwrap();
    let mut files: Vec<_> = log.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let files: Vec<_> = files.iter().map(|path| File::open(path).unwrap()).collect();
    let (next, whole) = (AtomicU64::new(0), store.end.div_ceil(BLOCK as u64));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut block = vec![0; BLOCK];
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= whole {
                        return;
                    }
                    let at = number * BLOCK as u64;
                    let file = &files[usize::try_from(at >> 30).unwrap()];
                    let read = file.read_at(&mut block, at % (1 << 30)).unwrap();
                    black_box(crc32(&block[..read]));
                }
            });
        }
    });
}

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn verified(store: &Filled) {
    let options =
        VerifyOptions { threads: Some(THREADS), most_findings: 100, ..VerifyOptions::default() };
    let report = verify(&store.path, StoreConfig::default(), &options, &mut go_on).unwrap();
    assert!(report.ok, "{:?}", report.findings);
}

fn rebuilt(store: &Filled) {
    let options = RebuildOptions {
        what: What { queues: true, index: true },
        topics: None,
        target: Target::Folder(store.path.with_file_name("out")),
        threads: Some(THREADS),
        aside: None,
    };
    let report = rebuild(&store.path, StoreConfig::default(), &options, &mut go_on).unwrap();
    assert!(report.damaged.is_empty() && report.messages > 0);
}

/// A store that was closed in good order.
fn opened(store: &Filled) {
    let store =
        MessageStore::open(&store.path, OpenMode::ReadWrite, StoreConfig::default()).unwrap();
    assert_eq!(store.recovery().unwrap().dispatched, 0);
    store.close().unwrap();
}

fn recovered(store: &Filled) {
    let store =
        MessageStore::open(&store.path, OpenMode::ReadWrite, StoreConfig::default()).unwrap();
    assert!(store.recovery().unwrap().dispatched > 0);
    store.close().unwrap();
}

fn recovered_log_alone(store: &Filled) {
    recovered(store);
}
