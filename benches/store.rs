//! Append, read, scan and recovery of a whole store, by body size and flush.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

mod data;

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use data::Sample;
use mqstore::StoreConfig;
use mqstore::config::FlushDiskType;
use mqstore::format::queue::consume_queue::TagFilter;
use mqstore::log::read::scanner::{Flow, Item, Resync};
use mqstore::store::{KeyQuery, MessageStore, NewMessage, OpenMode};

/// Bodies of the three sizes that every benchmark is run with.
const BODY_BYTES: [usize; 3] = [128, 1024, 16 * 1024];
/// How many bytes of records one round of a benchmark writes.
const ROUND_BYTES: usize = 64 << 20;

fn open(path: &Path, flush: FlushDiskType) -> MessageStore {
    let config = StoreConfig {
        flush_disk_type: flush,
        mapped_file_size_commit_log: Some(256 << 20),
        max_hash_slot_num: Some(500_000),
        max_index_num: Some(2_000_000),
        ..StoreConfig::default()
    };
    MessageStore::open(path, OpenMode::Create, config).unwrap()
}

fn fill(store: &MessageStore, sample: &Sample, count: usize) {
    let mut message = NewMessage::new(b"BenchTopic", &sample.body);
    for number in 0..count {
        message.properties = &sample.properties[number % sample.properties.len()];
        message.queue_id = (number & 7) as i32;
        black_box(store.append(&message).unwrap());
    }
}

fn round(body_bytes: usize) -> usize {
    ROUND_BYTES / (body_bytes + 200)
}

fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("append");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for body_bytes in BODY_BYTES {
        let sample = Sample::new(body_bytes, 10_000);
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("async", body_bytes), |b| {
            b.iter_custom(|iterations| {
                let mut spent = Duration::ZERO;
                let mut left = iterations as usize;
                while left > 0 {
                    let count = left.min(round(body_bytes));
                    let dir = tempfile::tempdir().unwrap();
                    let store = open(dir.path(), FlushDiskType::Async);
                    let start = Instant::now();
                    fill(&store, &sample, count);
                    store.wait_dispatched().unwrap();
                    spent += start.elapsed();
                    left -= count;
                }
                spent
            });
        });
        group.bench_function(BenchmarkId::new("sync", body_bytes), |b| {
            let dir = tempfile::tempdir().unwrap();
            let store = open(dir.path(), FlushDiskType::Sync);
            let mut message = NewMessage::new(b"BenchTopic", &sample.body);
            message.properties = &sample.properties[0];
            b.iter(|| black_box(store.append(&message).unwrap()));
        });
    }
    group.finish();
}

fn read(c: &mut Criterion) {
    for body_bytes in BODY_BYTES {
        let sample = Sample::new(body_bytes, 10_000);
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), FlushDiskType::Async);
        let count = round(body_bytes);
        fill(&store, &sample, count);
        store.wait_dispatched().unwrap();

        let mut group = c.benchmark_group("read");
        group.sample_size(10).measurement_time(Duration::from_secs(2));
        group.throughput(Throughput::Elements(32));
        group.bench_function(BenchmarkId::new("queue", body_bytes), |b| {
            let most = (count / 8 - 32) as i64;
            let mut at = 0;
            b.iter(|| {
                at = (at + 32) % most;
                let read = store.read(b"BenchTopic", 1, at, 32, None, &TagFilter::ALL).unwrap();
                assert_eq!(read.records.len(), 32);
            });
        });
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("key", body_bytes), |b| {
            let mut at = 0;
            b.iter(|| {
                at = (at + 7919) % sample.properties.len().min(count);
                let key = mqstore::format::message::properties::indexed(&sample.properties[at])
                    .unique_key;
                let found = store
                    .query(&KeyQuery {
                        topic: b"BenchTopic",
                        key: key.unwrap(),
                        begin_ms: 0,
                        end_ms: i64::MAX,
                        max_messages: 1,
                        exact: true,
                    })
                    .unwrap();
                assert_eq!(found.records.len(), 1);
            });
        });
        group.throughput(Throughput::Bytes(store.end_offset()));
        group.bench_function(BenchmarkId::new("scan", body_bytes), |b| {
            b.iter(|| {
                let mut scanner = store.scanner(0);
                let mut seen = 0;
                let take = |_, item: Item<'_, '_>| {
                    black_box(&item);
                    seen += 1;
                    Ok(Flow::Continue)
                };
                scanner.each(store.log(), u64::MAX, Resync::Never, take).unwrap();
                assert!(seen >= count);
            });
        });
        group.finish();
    }
}

/// As batches of columns, none kept: all, all with views, and three without bodies.
#[cfg(feature = "arrow")]
fn columns(c: &mut Criterion) {
    use arrow_schema::{DataType, Field, Schema};
    use mqstore::columns::{
        BatchBuilder, BatchLimits, Column, MessageBatches, schema_like, schema_of,
    };
    use mqstore::store::LogSource;
    use mqstore::store::read::scan::{OnDamage, Scan, ScanFilter};

    let all: Vec<_> = Column::usual().collect();
    let three = vec![Column::Topic, Column::QueueOffset, Column::StoreTimestamp];
    let views: Schema = Schema::new(
        all.iter()
            .map(|column| match column.data_type() {
                DataType::Utf8 => Field::new(column.name(), DataType::Utf8View, true),
                DataType::Binary => Field::new(column.name(), DataType::BinaryView, true),
                _ => column.field(),
            })
            .collect::<Vec<_>>(),
    );
    for body_bytes in BODY_BYTES {
        let sample = Sample::new(body_bytes, 10_000);
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(open(dir.path(), FlushDiskType::Async));
        let count = round(body_bytes);
        fill(&store, &sample, count);

        let mut group = c.benchmark_group("scan_arrow");
        group.sample_size(10).measurement_time(Duration::from_secs(2));
        group.throughput(Throughput::Elements(count as u64));
        for (name, columns, schema) in [
            ("all", &all, schema_of(&all)),
            ("all-views", &all, schema_like(&all, &views)),
            ("three", &three, schema_of(&three)),
        ] {
            group.bench_function(BenchmarkId::new(name, body_bytes), |b| {
                b.iter(|| {
                    let end = store.end_offset();
                    let scan = Scan::new(0, end, end, ScanFilter::ALL, OnDamage::Fail);
                    let limits = BatchLimits::default();
                    let builder = BatchBuilder::new(columns, schema.clone(), limits).unwrap();
                    let source = LogSource::Store(Arc::clone(&store));
                    let batches = MessageBatches::new(source, scan, builder);
                    let rows = batches.map(|batch| black_box(batch).unwrap().num_rows());
                    assert_eq!(rows.sum::<usize>(), count);
                });
            });
        }
        group.finish();
    }
}

#[cfg(not(feature = "arrow"))]
fn columns(_: &mut Criterion) {}

fn recover(c: &mut Criterion) {
    let mut group = c.benchmark_group("recover");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for body_bytes in BODY_BYTES {
        let sample = Sample::new(body_bytes, 10_000);
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), FlushDiskType::Async);
        fill(&store, &sample, round(body_bytes));
        store.close().unwrap();
        group.throughput(Throughput::Bytes(store.end_offset()));
        group.bench_function(BenchmarkId::new("crash", body_bytes), |b| {
            b.iter_custom(|iterations| {
                let mut spent = Duration::ZERO;
                for _ in 0..iterations {
                    std::fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
                    std::fs::remove_dir_all(dir.path().join("index")).unwrap();
                    std::fs::write(dir.path().join("abort"), b"1").unwrap();
                    let start = Instant::now();
                    let store = open(dir.path(), FlushDiskType::Async);
                    spent += start.elapsed();
                    drop(store);
                }
                spent
            });
        });
    }
    group.finish();
}

criterion_group!(benches, append, read, columns, recover);
criterion_main!(benches);
