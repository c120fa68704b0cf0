//! One kind of work a run, for `benches/counts.py`, which counts its instructions: `counts WORK FOLDER
//! COUNT`. `prepare` writes the store that later runs read. Only what runs inside of [`measured`] counts,
//! and on its thread, but of `recover` and `verify` everything.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "a benchmark")]

mod data;

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use data::Sample;
use mqstore::care::verify::{VerifyOptions, verify};
use mqstore::files::Os;
use mqstore::format::index::IndexLayout;
use mqstore::format::java::key_hash;
use mqstore::format::message::properties;
use mqstore::log::IndexService;
use mqstore::log::index::file::{IndexFile, IndexPut};
use mqstore::log::read::scanner::{Flow, Item, Resync};
use mqstore::store::{KeyQuery, MessageStore, NewMessage, OpenMode};
use mqstore::time::FixedClock;
use mqstore::{StoreConfig, TagFilter};

const TOPIC: &[u8] = b"BenchTopic";
const QUEUES: usize = 8;
/// Messages before those that count, so that the first files are there.
const BEFORE: usize = 2000;
const BATCH: usize = 1024;

const WORKS: [&str; 14] = [
    "append-128",
    "append-1024",
    "append-many-128",
    "append-many-1024",
    "append-arrow-128",
    "append-arrow-1024",
    "index-put",
    "index-put-many",
    "key-query",
    "queue-read",
    "scan",
    "scan-arrow",
    "scan-arrow-three",
    "verify",
];

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    // `cargo test --benches` runs it without arguments: once, small.
    if arguments.is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        run("prepare", &store, 1000);
        for work in WORKS {
            let own = if is_written(work) { folder.path().join(work) } else { store.clone() };
            run(work, &own, 1000);
        }
        run("recover", &store, 1000);
        return;
    }
    let [work, folder, count] = arguments.as_slice() else { panic!("counts WORK FOLDER COUNT") };
    run(work, Path::new(folder), count.parse().unwrap());
}

fn is_written(work: &str) -> bool {
    work.starts_with("append") || work.starts_with("index")
}

/// Its name is what the counter looks for.
#[inline(never)]
fn measured<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

fn run(work: &str, folder: &Path, count: usize) {
    match work {
        "prepare" => prepare(folder, count),
        "append-128" => append(folder, count, 128),
        "append-1024" => append(folder, count, 1024),
        "append-many-128" => append_many(folder, count, 128),
        "append-many-1024" => append_many(folder, count, 1024),
        "append-arrow-128" => append_arrow(folder, count, 128),
        "append-arrow-1024" => append_arrow(folder, count, 1024),
        "index-put" => index_put(folder, count),
        "index-put-many" => index_put_many(folder, count),
        "key-query" => key_query(folder, count),
        "queue-read" => queue_read(folder, count),
        "scan" => scan(folder, count),
        "scan-arrow" => scan_arrow(folder, count, false),
        "scan-arrow-three" => scan_arrow(folder, count, true),
        "recover" => recover(folder, count),
        "verify" => verified(folder),
        other => panic!("no work {other}"),
    }
}

fn config() -> StoreConfig {
    StoreConfig { mapped_file_size_commit_log: Some(256 << 20), ..StoreConfig::default() }
}

fn create(folder: &Path) -> MessageStore {
    MessageStore::open(folder, OpenMode::Create, config()).unwrap()
}

fn message(sample: &Sample, number: usize) -> NewMessage<'_> {
    let mut message = NewMessage::new(TOPIC, &sample.body);
    message.properties = &sample.properties[number];
    message.queue_id = i32::try_from(number % QUEUES).unwrap();
    message
}

fn append(folder: &Path, count: usize, body_bytes: usize) {
    let (store, sample) = (create(folder), Sample::new(body_bytes, BEFORE + count));
    let put = |number| {
        black_box(store.append(&message(&sample, number)).unwrap());
    };
    (0..BEFORE).for_each(put);
    measured(|| (BEFORE..BEFORE + count).for_each(put));
    store.close().unwrap();
}

fn append_many(folder: &Path, count: usize, body_bytes: usize) {
    let (store, sample) = (create(folder), Sample::new(body_bytes, BEFORE + count));
    let messages: Vec<_> = (0..BEFORE + count).map(|number| message(&sample, number)).collect();
    let (before, counted) = messages.split_at(BEFORE);
    let put = |part: &[_]| {
        black_box(store.append_many(part).unwrap());
    };
    before.chunks(BATCH).for_each(put);
    measured(|| counted.chunks(BATCH).for_each(put));
    store.close().unwrap();
}

fn prepare(folder: &Path, count: usize) {
    let (store, sample) = (create(folder), Sample::new(1024, count));
    for number in 0..count {
        store.append(&message(&sample, number)).unwrap();
    }
    store.close().unwrap();
}

fn puts(count: usize) -> Vec<IndexPut> {
    let sample = Sample::new(0, BEFORE + count);
    let keys = sample.properties.iter().map(|raw| properties::indexed(raw).unique_key.unwrap());
    let put = |(number, key): (usize, &[u8])| {
        let number = i64::try_from(number).unwrap();
        IndexPut {
            key_hash: key_hash(TOPIC, key),
            physical_offset: number * 1224,
            store_timestamp_ms: 1_795_246_513_325 + number,
        }
    };
    keys.enumerate().map(put).collect()
}

fn layout() -> IndexLayout {
    IndexLayout::new(5_000_000, 20_000_000).unwrap()
}

/// Through the store's index, where a put waits for its slot.
fn index_put(folder: &Path, count: usize) {
    let clock = Arc::new(FixedClock::new(1_795_246_513_325));
    let (mut index, _) = IndexService::load(Arc::new(Os), folder, layout(), clock).unwrap();
    let puts = puts(count);
    let (before, counted) = puts.split_at(BEFORE);
    let add = |index: &mut IndexService, puts: &[IndexPut]| {
        for put in puts {
            index.put(put.physical_offset, put.store_timestamp_ms, &[put.key_hash]).unwrap();
        }
    };
    add(&mut index, before);
    measured(|| {
        add(&mut index, counted);
        index.drain().unwrap();
    });
}

fn index_put_many(folder: &Path, count: usize) {
    std::fs::create_dir_all(folder).unwrap();
    let path = folder.join("20261121073513325");
    let mut file = IndexFile::create(&Os, &path, layout(), None).unwrap();
    let puts = puts(count);
    let (before, counted) = puts.split_at(BEFORE);
    file.put_many(before).unwrap();
    measured(|| {
        let put = counted.chunks(BATCH).map(|part| file.put_many(part).unwrap());
        assert_eq!(put.sum::<usize>(), count);
    });
}

fn reader(folder: &Path) -> MessageStore {
    MessageStore::open(folder, OpenMode::Read, config()).unwrap()
}

fn key_query(folder: &Path, count: usize) {
    let (store, sample) = (reader(folder), Sample::new(1024, count));
    let query = |number: usize| {
        let properties = &sample.properties[number * 7919 % count];
        let found = store.query(&KeyQuery {
            topic: TOPIC,
            key: properties::indexed(properties).unique_key.unwrap(),
            begin_ms: 0,
            end_ms: i64::MAX,
            max_messages: 1,
            exact: true,
        });
        assert_eq!(found.unwrap().records.len(), 1);
    };
    (0..count / 10).for_each(query);
    measured(|| (0..count).for_each(query));
}

fn queue_read(folder: &Path, count: usize) {
    const AT_ONCE: usize = 32;
    let store = reader(folder);
    let read = |queue: usize, from: usize| {
        let (queue, from) = (i32::try_from(queue).unwrap(), i64::try_from(from).unwrap());
        let read = store.read(TOPIC, queue, from, AT_ONCE, None, &TagFilter::ALL).unwrap();
        black_box(read.records.len())
    };
    for queue in 0..QUEUES {
        read(queue, 0);
    }
    let messages = measured(|| {
        let starts = || (0..count.div_ceil(QUEUES)).step_by(AT_ONCE);
        let all = (0..QUEUES).flat_map(|queue| starts().map(move |from| (queue, from)));
        all.map(|(queue, from)| read(queue, from)).sum::<usize>()
    });
    assert_eq!(messages, count);
}

fn scan(folder: &Path, count: usize) {
    let store = reader(folder);
    let messages = measured(|| {
        let mut scanner = store.scanner(0);
        let mut messages = 0;
        let take = |_, item: Item<'_, '_>| {
            if let Item::Record(view, _) = item {
                messages += 1;
                black_box(view.body());
            }
            Ok(Flow::Continue)
        };
        scanner.each(store.log(), u64::MAX, Resync::Never, take).unwrap();
        messages
    });
    assert_eq!(messages, count);
}

/// Queues, index and checkpoint are lost, and the process was killed.
fn recover(folder: &Path, count: usize) {
    for name in ["consumequeue", "index"] {
        std::fs::remove_dir_all(folder.join(name)).unwrap();
    }
    std::fs::remove_file(folder.join("checkpoint")).unwrap();
    std::fs::write(folder.join("abort"), b"1").unwrap();
    let store = MessageStore::open(folder, OpenMode::ReadWrite, config()).unwrap();
    assert_eq!(store.recovery().unwrap().dispatched, count as u64);
    // Closing is not counted: it writes what any close does.
    std::process::exit(0);
}

fn verified(folder: &Path) {
    let options = VerifyOptions { threads: Some(1), ..VerifyOptions::default() };
    let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
    let report = verify(folder, config(), &options, go_on).unwrap();
    assert!(report.ok, "{:?}", report.findings);
}

#[cfg(feature = "arrow")]
use in_columns::{append_arrow, scan_arrow};

#[cfg(not(feature = "arrow"))]
fn append_arrow(_: &Path, _: usize, _: usize) {}

#[cfg(not(feature = "arrow"))]
fn scan_arrow(_: &Path, _: usize, _: bool) {}

#[cfg(feature = "arrow")]
mod in_columns {
    use arrow_array::builder::{ListBuilder, StringBuilder};
    use arrow_array::{ArrayRef, BinaryArray, Int32Array, RecordBatch, StringArray};
    use mqstore::columns::{
        BatchBuilder, BatchLimits, Column, MessageBatches, MessageRows, schema_of,
    };
    use mqstore::store::LogSource;
    use mqstore::store::read::scan::{OnDamage, Scan, ScanFilter};

    use super::*;

    fn batch(sample: &Sample, numbers: std::ops::Range<usize>) -> RecordBatch {
        let count = numbers.len();
        let indexed: Vec<_> =
            sample.properties[numbers.clone()].iter().map(|raw| properties::indexed(raw)).collect();
        let text = |raw: Option<&[u8]>| String::from_utf8(raw.unwrap().to_vec()).unwrap();
        let mut keys = ListBuilder::new(StringBuilder::new());
        for one in &indexed {
            keys.values().append_value(text(one.keys));
            keys.append(true);
        }
        let queues = numbers.map(|number| i32::try_from(number % QUEUES).unwrap());
        let columns: [(&str, ArrayRef); 6] = [
            ("topic", Arc::new(StringArray::from(vec!["BenchTopic"; count]))),
            ("body", Arc::new(BinaryArray::from(vec![sample.body.as_slice(); count]))),
            ("queue_id", Arc::new(queues.collect::<Int32Array>())),
            (
                "tags",
                Arc::new(indexed.iter().map(|one| Some(text(one.tags))).collect::<StringArray>()),
            ),
            ("keys", Arc::new(keys.finish())),
            (
                "unique_key",
                Arc::new(
                    indexed.iter().map(|one| Some(text(one.unique_key))).collect::<StringArray>(),
                ),
            ),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// As `Store.append_arrow` does for each part of a batch.
    pub(crate) fn append_arrow(folder: &Path, count: usize, body_bytes: usize) {
        let (store, sample) = (create(folder), Sample::new(body_bytes, BEFORE + count));
        let mut blocks = Vec::new();
        let mut put = |batch: &RecordBatch| {
            let rows = MessageRows::new(batch).unwrap();
            let messages = rows.messages(0..rows.len(), &mut blocks).unwrap();
            black_box(store.append_shared(&messages).unwrap());
        };
        put(&batch(&sample, 0..BEFORE));
        let ends = (BEFORE..BEFORE + count).step_by(BATCH);
        let batches: Vec<_> =
            ends.map(|from| batch(&sample, from..(BEFORE + count).min(from + BATCH))).collect();
        measured(|| batches.iter().for_each(&mut put));
        store.close().unwrap();
    }

    /// On one thread, none of the batches kept.
    pub(crate) fn scan_arrow(folder: &Path, count: usize, three: bool) {
        let store = Arc::new(reader(folder));
        let columns: Vec<_> = match three {
            true => vec![Column::Topic, Column::QueueOffset, Column::StoreTimestamp],
            false => Column::usual().collect(),
        };
        let rows = measured(|| {
            let end = store.end_offset();
            let scan = Scan::new(0, end, end, ScanFilter::ALL, OnDamage::Fail);
            let limits = BatchLimits::default();
            let builder = BatchBuilder::new(&columns, schema_of(&columns), limits).unwrap();
            let source = LogSource::Store(Arc::clone(&store));
            let batches = MessageBatches::new(source, scan, builder);
            batches.map(|batch| black_box(batch).unwrap().num_rows()).sum::<usize>()
        });
        assert_eq!(rows, count);
    }
}
