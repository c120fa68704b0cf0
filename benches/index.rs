//! Puts to and look-ups in an index file of the default size: 5,000,000 slots, 20,000,000 entries,
//! four to a slot when it is full. Every key is looked up among the keys that are there.
//!
//! Ids are `operation/how/entries`. `MQSTORE_BENCH_ENTRIES=10000,1000000` looks up in files that are not
//! full, one after the other: what a look-up costs as a file fills. All memory is
//! touched before it is measured, but for the pages of files that are written.
#![expect(clippy::expect_used, reason = "a benchmark may stop at the first surprise")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use mqstore::files::Os;
use mqstore::format::index::IndexLayout;
use mqstore::format::message::properties::Indexed;
use mqstore::format::message::sys_flag::Transaction;
use mqstore::log::index::file::{IndexFile, IndexOpen, IndexPut};
use mqstore::log::queue::unit::DispatchRequest;
use mqstore::log::{IndexService, OffsetLists};
use mqstore::time::FixedClock;

const SLOTS: u32 = 5_000_000;
const ENTRIES: u32 = 20_000_000;
const NOW_MS: i64 = 1_795_246_513_325;
const BATCH: usize = 1024;
/// Look-ups that are timed together.
const ROUND: usize = 1 << 14;

/// Hashes as keys would have them, the same in every run (splitmix64).
fn key_hash(number: u64) -> i32 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    i32::try_from(z >> 33).expect("31 bits")
}

fn put(number: u64) -> IndexPut {
    let offset = i64::try_from(number).expect("a small number");
    IndexPut {
        key_hash: key_hash(number),
        physical_offset: offset * 1224,
        store_timestamp_ms: NOW_MS + offset / 100,
    }
}

fn create(path: &Path) -> IndexFile {
    let layout = IndexLayout::new(SLOTS, ENTRIES).expect("the default layout");
    // The file of an earlier round; there is none in the first.
    let _ = std::fs::remove_file(path);
    IndexFile::create(&Os, path, layout, None).expect("a new file")
}

/// Times `rounds` of work on files made anew whenever one is full; making them is not timed.
fn timed_puts(
    path: &Path,
    rounds: u64,
    keys_a_round: u32,
    mut work: impl FnMut(&mut IndexFile, u64),
) -> Duration {
    let mut file = create(path);
    let mut spent = Duration::ZERO;
    let mut round = 0;
    while round < rounds {
        if file.room() < keys_a_round {
            file = create(path);
        }
        let fitting = u64::from(file.room() / keys_a_round).min(rounds - round);
        let start = Instant::now();
        for number in round..round + fitting {
            work(&mut file, number);
        }
        spent += start.elapsed();
        round += fitting;
    }
    spent
}

fn group<'c>(c: &'c mut Criterion, name: &str, elements: usize) -> BenchmarkGroup<'c, WallTime> {
    let mut group = c.benchmark_group(name);
    group.sample_size(10);
    group.warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_millis(1_500));
    group.throughput(Throughput::Elements(elements as u64));
    group
}

fn puts(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("20261121073513325");
    let mut group = group(c, "index_put", BATCH);
    let batch = u32::try_from(BATCH).expect("a small number");
    group.bench_function(BenchmarkId::new("one_by_one", ENTRIES), |b| {
        b.iter_custom(|rounds| {
            timed_puts(&path, rounds, batch, |file, round| {
                for number in round * 1024..(round + 1) * 1024 {
                    let put = put(number);
                    file.put_key(put.key_hash, put.physical_offset, put.store_timestamp_ms)
                        .expect("room");
                }
            })
        });
    });
    let mut puts = Vec::with_capacity(BATCH);
    group.bench_function(BenchmarkId::new("many", ENTRIES), |b| {
        b.iter_custom(|rounds| {
            timed_puts(&path, rounds, batch, |file, round| {
                puts.clear();
                puts.extend((round * 1024..(round + 1) * 1024).map(put));
                file.put_many(&puts).expect("room");
            })
        });
    });
    group.finish();
}

/// Messages with a unique key and a key, hashed in the measured time, files rolled when full.
fn service(c: &mut Criterion) {
    let mut group = group(c, "index_put", 2 * BATCH);
    group.bench_function(BenchmarkId::new("service_two_keys", ENTRIES), |b| {
        b.iter_custom(|rounds| {
            let dir = tempfile::tempdir().expect("a folder");
            let layout = IndexLayout::new(SLOTS, ENTRIES).expect("the default layout");
            let clock = Arc::new(FixedClock::new(NOW_MS));
            let (mut service, _) =
                IndexService::load(Arc::new(Os), &dir.path().join("index"), layout, clock)
                    .expect("an empty index");
            let mut unique_key = *b"7F000001000018B4AAC2000000000000";
            let mut key = *b"order-000000000000";
            let mut number = 0;
            let start = Instant::now();
            for _ in 0..rounds {
                for _ in 0..BATCH {
                    number += 1;
                    write_digits(&mut unique_key[20..], number);
                    write_digits(&mut key[6..], number);
                    let built = service.build(&DispatchRequest {
                        physical_offset: i64::try_from(number).expect("a small number"),
                        store_timestamp_ms: NOW_MS,
                        transaction: Transaction::None,
                        topic: b"TopicTest",
                        properties: Indexed {
                            unique_key: Some(&unique_key),
                            keys: Some(&key),
                            ..Indexed::default()
                        },
                        ..DispatchRequest::default()
                    });
                    assert_eq!(built.expect("room"), 2);
                }
                drop(service.begin_flush().expect("room"));
            }
            service.drain().expect("room");
            start.elapsed()
        });
    });
    group.finish();
}

fn write_digits(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
}

fn selects(c: &mut Criterion) {
    let wanted = std::env::var("MQSTORE_BENCH_ENTRIES");
    let full = (ENTRIES - 1).to_string();
    for entries in wanted.unwrap_or(full).split(',') {
        selects_among(c, entries.parse().expect("numbers"));
    }
}

fn selects_among(c: &mut Criterion, entries: u64) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("20261121073513325");
    let mut written = create(&path);
    for start in (0..entries).step_by(BATCH) {
        let puts: Vec<_> = (start..(start + BATCH as u64).min(entries)).map(put).collect();
        assert_eq!(written.put_many(&puts).expect("room"), puts.len());
    }
    let layout = *written.layout();
    drop(written);
    // So many that those of one round are out of the caches when they come again.
    let wanted: Vec<_> =
        (0..1 << 21).map(|number| key_hash(number * 7_919_179 % entries)).collect();
    let mut rounds = wanted.chunks(ROUND).cycle();
    let mut next_round = move || rounds.next().expect("a cycle never ends");

    let mut group = group(c, "index_select", ROUND);
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    for (how, open) in [("mapped", IndexOpen::ReadMapped), ("positional", IndexOpen::Read)] {
        let file = IndexFile::open(&Os, &path, layout, open).expect("the file");
        group.bench_function(BenchmarkId::new(format!("one_by_one_{how}"), entries), |b| {
            b.iter(|| {
                for hash in next_round() {
                    found.clear();
                    file.select(*hash, 0, i64::MAX, 32, &mut found, &mut findings).expect("read");
                    assert!(!black_box(&found).is_empty());
                }
            });
        });
    }
    let file = IndexFile::open(&Os, &path, layout, IndexOpen::ReadMapped).expect("the file");
    let mut lists = OffsetLists::default();
    for batch in [16, BATCH] {
        group.bench_function(BenchmarkId::new(format!("many_{batch}"), entries), |b| {
            b.iter(|| {
                for hashes in next_round().chunks(batch) {
                    lists.offsets.clear();
                    lists.ends.clear();
                    file.select_many(hashes, 0, i64::MAX, 32, &mut lists, &mut findings)
                        .expect("read");
                    assert_eq!(black_box(&lists).ends.len(), batch);
                }
            });
        });
    }
    assert!(findings.is_empty());
    group.finish();
}

criterion_group!(benches, puts, service, selects);
criterion_main!(benches);
