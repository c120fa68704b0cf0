//! The work that `benches/compare.py` times, done from Rust: `race WORK FOLDER COUNT BODY_BYTES
//! THREADS` prints the seconds it took. The messages are those of `Race.java`.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "a benchmark")]

use std::hint::black_box;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use mqstore::StoreConfig;
use mqstore::config::FlushDiskType;
use mqstore::files::{Os, SystemClock};
use mqstore::format::crc::crc32;
use mqstore::format::index::IndexLayout;
use mqstore::format::java::key_hash;
use mqstore::log::IndexService;
use mqstore::log::index::file::{IndexFile, IndexOpen, IndexPut};
use mqstore::log::index::run::IndexRun;
use mqstore::log::read::scanner::{Flow, Item, Resync};
use mqstore::store::{MessageStore, NewMessage, OpenMode};

const TOPIC: &[u8] = b"BenchTopic";
const QUEUES: usize = 8;
/// How many messages are put before the clock starts, so that the first files are there; `Race.java`
/// does the same.
const BEFORE: usize = 5000;
/// How many messages there are where more are put than fit into memory; `Race.java` has as many.
const FEW: usize = 200_000;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    // `cargo test --benches` runs it without arguments: once, small.
    if arguments.is_empty() {
        let folder = tempfile::tempdir().unwrap();
        for work in [
            "append",
            "append-warm",
            "append-random-keys",
            "append-latency",
            "append-queues",
            "index-put",
            "index-put-lagging",
            "index-put-many",
            "limit-random",
            "limit-page",
        ] {
            black_box(run(work, &folder.path().join(work), 1000, 1024, 1));
        }
        for work in ["key-query", "scan", "bare-read", "recover"] {
            black_box(run(work, &folder.path().join("append"), BEFORE + 1000, 1024, 1));
        }
        return;
    }
    let [work, folder, count, body_bytes, threads] = arguments.as_slice() else {
        panic!("race WORK FOLDER COUNT BODY_BYTES THREADS");
    };
    let number = |text: &String| text.parse::<usize>().unwrap();
    let (count, body_bytes, threads) = (number(count), number(body_bytes), number(threads));
    println!("{}", run(work, Path::new(folder), count, body_bytes, threads));
}

fn run(work: &str, folder: &Path, count: usize, body_bytes: usize, threads: usize) -> f64 {
    let (work, random_keys) = match work.strip_suffix("-random-keys") {
        Some(work) => (work, true),
        None => (work, false),
    };
    let burst = || Messages::new(BEFORE + count, body_bytes, random_keys);
    let few = || Messages::new(FEW, body_bytes, random_keys);
    match work {
        "append" => append(folder, count, &burst(), threads, FlushDiskType::Async),
        "append-warm" => {
            let warm = StoreConfig { warm_maped_file_enable: true, ..config(FlushDiskType::Async) };
            append_by(warm, folder, count, &burst(), threads)
        }
        "append-sync" => append(folder, count, &burst(), threads, FlushDiskType::Sync),
        "append-long" => append(folder, count, &few(), threads, FlushDiskType::Async),
        "append-latency" => latency(folder, count, &few()),
        "append-queues" => {
            let topics = (0..100).map(|number| format!("BenchTopic{number}")).collect();
            let messages = Messages { topics, queues: 100, ..few() };
            append(folder, count, &messages, threads, FlushDiskType::Async)
        }
        "index-put" => index_put(folder, count, 1),
        "index-put-lagging" => index_put_lagging(folder, count),
        "index-put-many" => index_put(folder, count, 1024),
        "key-query" => key_query(folder, count),
        "scan" => scan(folder, count),
        "bare-read" => bare_read(folder),
        "recover" => recover(folder, count),
        "limit-random" => random_access(count),
        "limit-page" => fresh_pages(count),
        other => panic!("no work {other}"),
    }
}

fn config(flush_disk_type: FlushDiskType) -> StoreConfig {
    StoreConfig {
        flush_disk_type,
        mapped_file_size_commit_log: Some(512 << 20),
        ..StoreConfig::default()
    }
}

/// A generator whose numbers need not be good, only the same each time.
fn random() -> impl FnMut() -> u64 {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Looks random; the same in `Race.java` and `compare.py`.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The key of a message: an order's id, which is random.
fn key(number: u64) -> String {
    format!("order-{:016x}", scattered(number))
}

/// Counts up, as RocketMQ's client makes it, or is random too.
fn unique_key(number: u64, random: bool) -> String {
    match random {
        true => format!("{:016X}{:016X}", scattered(!number), scattered(number + 1)),
        false => format!("7F0000010000{number:020}"),
    }
}

/// Messages that are put one after the other, over and over where more are to be put than there are.
struct Messages {
    body: Vec<u8>,
    properties: Vec<String>,
    /// The topics they go to in turn, each with so many queues.
    topics: Vec<String>,
    queues: usize,
}

impl Messages {
    fn new(count: usize, body_bytes: usize, random_keys: bool) -> Self {
        let mut next = random();
        let body = (0..body_bytes).map(|_| (next() >> 56) as u8).collect();
        let properties = (0..count as u64)
            .map(|n| {
                let (key, unique) = (key(n), unique_key(n, random_keys));
                format!("TAGS\u{1}paid\u{2}KEYS\u{1}{key}\u{2}UNIQ_KEY\u{1}{unique}\u{2}")
            })
            .collect();
        Self {
            body,
            properties,
            topics: vec![String::from_utf8_lossy(TOPIC).into_owned()],
            queues: QUEUES,
        }
    }

    fn get(&self, number: usize) -> NewMessage<'_> {
        let topic = &self.topics[number / self.queues % self.topics.len()];
        let mut message = NewMessage::new(topic.as_bytes(), &self.body);
        message.queue_id = i32::try_from(number % self.queues).unwrap();
        message.properties = self.properties[number % self.properties.len()].as_bytes();
        message
    }
}

fn put(store: &MessageStore, messages: &Messages, numbers: Range<usize>, threads: usize) {
    if threads == 1 {
        for number in numbers {
            black_box(store.append(&messages.get(number)).unwrap());
        }
        return;
    }
    std::thread::scope(|scope| {
        for first in numbers.start..numbers.start + threads {
            scope.spawn(move || {
                for number in (first..numbers.end).step_by(threads) {
                    black_box(store.append(&messages.get(number)).unwrap());
                }
            });
        }
    });
}

fn append(
    folder: &Path,
    count: usize,
    messages: &Messages,
    threads: usize,
    flush: FlushDiskType,
) -> f64 {
    append_by(config(flush), folder, count, messages, threads)
}

fn append_by(
    config: StoreConfig,
    folder: &Path,
    count: usize,
    messages: &Messages,
    threads: usize,
) -> f64 {
    let store = MessageStore::open(folder, OpenMode::Create, config).unwrap();
    put(&store, messages, 0..BEFORE, threads);
    store.wait_dispatched().unwrap();
    let begin = Instant::now();
    put(&store, messages, BEFORE..BEFORE + count, threads);
    store.wait_dispatched().unwrap();
    let seconds = begin.elapsed().as_secs_f64();
    store.close().unwrap();
    seconds
}

/// How long single appends take while files roll: tells percentiles, gives the time of all. Beside them
/// those of copies of the bodies, three calls of which take as long, into memory that was in use
/// before: what the machine itself interrupts.
fn latency(folder: &Path, count: usize, messages: &Messages) -> f64 {
    let store = MessageStore::open(folder, OpenMode::Create, config(FlushDiskType::Async)).unwrap();
    put(&store, messages, 0..BEFORE, 1);
    let (seconds, appends) = percentiles(count, |number| {
        black_box(store.append(&messages.get(BEFORE + number)).unwrap());
    });
    store.close().unwrap();
    let body = messages.body.as_slice();
    let mut memory = vec![1_u8; body.len() << 12];
    let (_, copies) = percentiles(count, |number| {
        let at = number % (1 << 9) * body.len() * 8;
        let places = black_box(&mut memory)[at..].chunks_exact_mut(body.len());
        places.take(8).for_each(|place| place.copy_from_slice(body));
    });
    eprintln!("appends: {appends}\ncopies:  {copies}");
    seconds
}

/// The seconds that `count` calls take, and the percentiles of single ones.
fn percentiles(count: usize, mut call: impl FnMut(usize)) -> (f64, String) {
    // Written before: its own fresh pages, one for 512 calls, would be what is measured.
    let mut took = vec![u64::MAX; count];
    let begin = Instant::now();
    let mut last = begin;
    for (number, took) in took.iter_mut().enumerate() {
        call(number);
        let now = Instant::now();
        *took = u64::try_from((now - last).as_nanos()).unwrap();
        last = now;
    }
    let seconds = begin.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |share: f64| took[((count - 1) as f64 * share) as usize];
    let shares =
        [("median", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("longest", 1.0)];
    let told = shares.map(|(name, share)| format!("{name} {} ns", at(share)));
    (seconds, told.join(", "))
}

/// Keys into a file that has some already, one by one or in batches of 1,024.
fn index_put(folder: &Path, count: usize, batch: usize) -> f64 {
    let mut next = random();
    let keys: Vec<String> =
        (0..BEFORE + count).map(|_| format!("order-{}", next() as i32)).collect();
    std::fs::create_dir_all(folder).unwrap();
    let path = folder.join("20231001000000000");
    let layout = IndexLayout::new(5_000_000, 20_000_000).unwrap();
    let mut file = IndexFile::create(&Os, &path, layout, None).unwrap();
    let put = |number: usize| {
        let number_of = i64::try_from(number).unwrap();
        IndexPut {
            key_hash: key_hash(TOPIC, keys[number].as_bytes()),
            physical_offset: number_of * 1024,
            store_timestamp_ms: 1_700_000_000_000 + number_of,
        }
    };
    let mut puts = Vec::with_capacity(batch);
    let mut all = |from: usize, to: usize| {
        if batch == 1 {
            for number in from..to {
                let put = put(number);
                let (offset, time_ms) = (put.physical_offset, put.store_timestamp_ms);
                assert!(file.put_key(put.key_hash, offset, time_ms).unwrap());
            }
        } else {
            for begin in (from..to).step_by(batch) {
                puts.clear();
                puts.extend((begin..to.min(begin + batch)).map(put));
                assert_eq!(file.put_many(&puts).unwrap(), puts.len());
            }
        }
    };
    all(0, BEFORE);
    let begin = Instant::now();
    all(BEFORE, BEFORE + count);
    let seconds = begin.elapsed().as_secs_f64();
    std::fs::remove_file(&path).unwrap();
    seconds
}

/// The same one by one through the store's own index, where a put lags a few behind.
fn index_put_lagging(folder: &Path, count: usize) -> f64 {
    let mut next = random();
    let keys: Vec<String> =
        (0..BEFORE + count).map(|_| format!("order-{}", next() as i32)).collect();
    let layout = IndexLayout::new(5_000_000, 20_000_000).unwrap();
    let clock = Arc::new(SystemClock);
    let (mut index, _) = IndexService::load(Arc::new(Os), folder, layout, clock).unwrap();
    let mut all = |from: usize, to: usize| {
        for (number, key) in keys.iter().enumerate().take(to).skip(from) {
            let number = i64::try_from(number).unwrap();
            let hash = key_hash(TOPIC, key.as_bytes());
            index.put(number * 1024, 1_700_000_000_000 + number, &[hash]).unwrap();
        }
        index.drain().unwrap();
    };
    all(0, BEFORE);
    let begin = Instant::now();
    all(BEFORE, BEFORE + count);
    let seconds = begin.elapsed().as_secs_f64();
    drop(index);
    std::fs::remove_dir_all(folder).unwrap();
    seconds
}

/// The offsets of each key, as `IndexService#queryOffset` gives them, one key after the other.
fn key_query(folder: &Path, count: usize) -> f64 {
    let layout = IndexLayout::new(5_000_000, 20_000_000).unwrap();
    let (run, _) =
        IndexRun::load(Arc::new(Os), &folder.join("index"), layout, IndexOpen::ReadMapped).unwrap();
    let mut next = random();
    let keys: Vec<String> = (0..count).map(|_| key(next() % count as u64)).collect();
    let begin = Instant::now();
    for key in keys {
        let answer = run.query_offsets(&[], TOPIC, key.as_bytes(), (0, i64::MAX), 32).unwrap();
        assert!(!answer.offsets.is_empty());
    }
    begin.elapsed().as_secs_f64()
}

fn scan(folder: &Path, count: usize) -> f64 {
    let store = MessageStore::open(folder, OpenMode::Read, StoreConfig::default()).unwrap();
    let begin = Instant::now();
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
    assert_eq!(messages, count);
    begin.elapsed().as_secs_f64()
}

/// The least that a scan with positional reads comes to: the same bytes into one block of 256 KiB,
/// and a checksum over each block.
fn bare_read(folder: &Path) -> f64 {
    let store = MessageStore::open(folder, OpenMode::Read, StoreConfig::default()).unwrap();
    let files: Vec<_> = store.log().run().files().iter().map(|file| file.path.clone()).collect();
    let (size, end) = (store.log().run().file_size(), store.end_offset());
    let begin = Instant::now();
    let mut block = vec![0; 256 << 10];
    let mut read = store.log().min_offset();
    for path in files {
        let file = std::fs::File::open(path).unwrap();
        let stop = end.min((read / size + 1) * size);
        while read < stop {
            let len = usize::try_from(stop - read).unwrap().min(block.len());
            file.read_exact_at(&mut block[..len], read % size).unwrap();
            black_box(crc32(&block[..len]));
            read += len as u64;
        }
    }
    assert_eq!(read, end);
    begin.elapsed().as_secs_f64()
}

/// From a log alone, left by a process that was killed.
fn recover(folder: &Path, count: usize) -> f64 {
    for name in ["consumequeue", "index"] {
        let _ = std::fs::remove_dir_all(folder.join(name));
    }
    std::fs::write(folder.join("abort"), b"1").unwrap();
    let begin = Instant::now();
    let store =
        Arc::new(MessageStore::open(folder, OpenMode::ReadWrite, StoreConfig::default()).unwrap());
    store.wait_dispatched().unwrap();
    let seconds = begin.elapsed().as_secs_f64();
    assert_eq!(store.recovery().unwrap().dispatched, count as u64);
    store.close().unwrap();
    seconds
}

/// Numbers changed at random places of 20 MB, as in the slot table of an index file.
fn random_access(count: usize) -> f64 {
    let mut table = vec![1_u32; 5_000_000];
    let mut next = random();
    let begin = Instant::now();
    for number in 0..count as u32 {
        let place = usize::try_from(next() >> 32).unwrap() % table.len();
        table[place] ^= number;
    }
    let seconds = begin.elapsed().as_secs_f64();
    black_box(table);
    seconds
}

/// The first touch of pages of memory, which the system fills with zeros.
fn fresh_pages(count: usize) -> f64 {
    const PAGE: usize = 4096;
    let mut memory = vec![0_u8; count * PAGE];
    let begin = Instant::now();
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    let seconds = begin.elapsed().as_secs_f64();
    black_box(memory);
    seconds
}
