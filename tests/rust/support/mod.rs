//! Helpers for tests of whole stores: small stores, copies, damage.

pub(crate) mod disk;
mod inode;
pub(crate) mod power_cut;
pub(crate) mod storage;

use std::fs;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::care::{Code, VerifyOptions, VerifyReport, verify};
use mqstore::config::StoreConfig;
use mqstore::error::{AppendResult, Result};
use mqstore::files::{Os, Storage};
use mqstore::format::crc;
use mqstore::format::message::host::Host;
use mqstore::format::message::properties::{self, names};
use mqstore::format::message::{MessageView, Record, Version};
use mqstore::format::queue::consume_queue::TagFilter;
use mqstore::log::read::scanner::{Flow, Item, Resync};
use mqstore::store::read::queue_read::view_of;
use mqstore::store::{KeyQuery, MessageStore, NewMessage, OpenMode, ReadResult};
use mqstore::time::FixedClock;

/// When the first message of a store is stored; each further one a second later.
pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// Files so small that everything rolls soon: logs of 4 KiB, queues of 10 entries, indexes of 7 slots.
pub(crate) fn small() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(4096),
        mapped_file_size_consume_queue: Some(200),
        max_hash_slot_num: Some(7),
        max_index_num: Some(28),
        ..StoreConfig::default()
    }
}

/// A folder with a store in it, and the clock that it goes by.
pub(crate) struct Home {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) clock: Arc<FixedClock>,
    pub(crate) config: StoreConfig,
    pub(crate) storage: Arc<dyn Storage>,
}

impl Home {
    /// Runs `verify`; in parts of the log's files or in whole ones the result is equal, unless the
    /// store goes on meanwhile.
    pub(crate) fn verify(&self, options: &VerifyOptions) -> VerifyReport {
        let look = |part_bytes| {
            let options = VerifyOptions { part_bytes, ..*options };
            let on = &mut |_, _| ControlFlow::Continue(());
            verify(self.path(), self.config.clone(), &options, on).unwrap()
        };
        let whole = look(options.part_bytes);
        if !whole.found.contains_key(&Code::InUse) {
            let in_parts = look(700);
            assert_eq!(in_parts.findings, whole.findings, "in parts, and whole");
            assert_eq!((&in_parts.found, in_parts.ok), (&whole.found, whole.ok));
            assert_eq!(in_parts.counts, whole.counts);
        }
        whole
    }

    pub(crate) fn new(config: StoreConfig) -> Self {
        Self::on(Arc::new(Os), config)
    }

    pub(crate) fn on(storage: Arc<dyn Storage>, config: StoreConfig) -> Self {
        let clock = Arc::new(FixedClock::new(START_MS));
        Self { dir: scratch(), clock, config, storage }
    }

    /// A store of `count` messages, closed in good order.
    pub(crate) fn closed(count: usize) -> Self {
        let home = Self::new(small());
        let store = home.create();
        home.fill(&store, 0..count);
        store.close().unwrap();
        home
    }

    /// A closed store of `count` messages whose queues have extensions, in files of six units each, so that
    /// every kind of file is there.
    pub(crate) fn extended(count: usize) -> Self {
        let home = Self::new(StoreConfig {
            enable_consume_queue_ext: true,
            mapped_file_size_consume_queue_ext: Some(130),
            ..small()
        });
        let store = home.create();
        home.fill(&store, 0..count);
        store.close().unwrap();
        home
    }

    /// A closed store of 36 MB in one file, so that a walk over it tells several times how far it is.
    pub(crate) fn long() -> Self {
        let config = StoreConfig { mapped_file_size_commit_log: Some(64 << 20), ..small() };
        let home = Self::new(config);
        let store = home.create();
        for number in 0..600 {
            append(&store, number, &[7; 60_000]).unwrap();
        }
        store.close().unwrap();
        home
    }

    /// A copy of a store of `count` messages that was never closed, as a killed process leaves it: the
    /// first half was flushed, what came since is in the log alone.
    pub(crate) fn killed(count: usize) -> Self {
        let home = Self::new(small());
        let store = home.create();
        home.fill(&store, 0..count / 2);
        store.flush().unwrap();
        home.fill(&store, count / 2..count);
        let copy = home.copy();
        drop(store);
        copy
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn open(&self, mode: OpenMode) -> Result<MessageStore> {
        MessageStore::open_with(
            self.path(),
            mode,
            self.config.clone(),
            Arc::clone(&self.storage),
            Arc::clone(&self.clock) as Arc<_>,
        )
    }

    pub(crate) fn create(&self) -> MessageStore {
        self.open(OpenMode::Create).unwrap()
    }

    pub(crate) fn write(&self) -> MessageStore {
        self.open(OpenMode::ReadWrite).unwrap()
    }

    pub(crate) fn read(&self) -> MessageStore {
        self.open(OpenMode::Read).unwrap()
    }

    /// The same files in another folder.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self {
            dir: scratch(),
            clock: Arc::clone(&self.clock),
            config: self.config.clone(),
            storage: Arc::new(Os),
        };
        copy_folder(self.path(), copy.path());
        copy
    }

    /// Appends messages `numbers`, a second apart: four queues in turn, a key for each.
    pub(crate) fn fill(
        &self,
        store: &MessageStore,
        numbers: std::ops::Range<usize>,
    ) -> Vec<AppendResult> {
        numbers
            .map(|number| {
                self.clock.set(START_MS + i64::try_from(number).unwrap() * 1000);
                append(store, number, &body(number)).unwrap()
            })
            .collect()
    }

    /// The log's file that holds `offset`, and the byte there.
    pub(crate) fn log_file(&self, offset: u64) -> (PathBuf, u64) {
        let size = self.config.mapped_file_size_commit_log.unwrap();
        let name = format!("{:020}", offset / size * size);
        (self.path().join("commitlog").join(name), offset % size)
    }

    /// Writes `bytes` at a physical offset of the log.
    pub(crate) fn patch(&self, offset: u64, bytes: &[u8]) {
        let (path, position) = self.log_file(offset);
        patch(&path, position, bytes);
    }

    /// Changes one bit of the log.
    pub(crate) fn flip(&self, offset: u64) {
        let (path, position) = self.log_file(offset);
        flip(&path, position);
    }

    /// The file of a queue that holds entry `number`, and the byte there.
    pub(crate) fn queue_file(&self, queue: i32, number: u64) -> (PathBuf, u64) {
        let size = self.config.mapped_file_size_consume_queue.unwrap();
        let name = format!("{:020}", number * 20 / size * size);
        let dir = self.path().join("consumequeue/Topic").join(queue.to_string());
        (dir.join(name), number * 20 % size)
    }

    /// Writes an entry of a queue.
    pub(crate) fn put_entry(&self, queue: i32, number: u64, offset: i64, size: i32, tags: i64) {
        let (path, position) = self.queue_file(queue, number);
        if !path.exists() {
            fs::write(&path, []).unwrap();
            set_len(&path, self.config.mapped_file_size_consume_queue.unwrap());
        }
        let entry = mqstore::format::queue::consume_queue::QueueEntry {
            physical_offset: offset,
            store_size: size,
            tags_code: tags,
        };
        patch(&path, position, &entry.encode());
    }

    /// The index files, oldest first.
    pub(crate) fn index_files(&self) -> Vec<PathBuf> {
        names_in(&self.path().join("index"))
    }

    /// All bytes of all files below the root, by name.
    pub(crate) fn snapshot(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        collect(self.path(), self.path(), &mut files);
        files.sort();
        files
    }

    pub(crate) fn abort_exists(&self) -> bool {
        self.path().join("abort").exists()
    }
}

/// A folder that is gone with the test. In memory where there is room: these tests flush a lot, and
/// none of them asks what a disk keeps.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let room = nix::sys::statvfs::statvfs(memory)
        .map_or(0, |stat| stat.fragment_size().saturating_mul(stat.blocks_available()));
    if room >= 1 << 30 { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// The body of message `number`: of many lengths, so that records end anywhere.
pub(crate) fn body(number: usize) -> Vec<u8> {
    format!("body {number} ").repeat(number % 7 + 1).into_bytes()
}

/// The key of message `number`.
pub(crate) fn key(number: usize) -> String {
    format!("k{number:05}")
}

/// A message in the log of a new store.
pub(crate) fn record<'a>(topic: &'a [u8], queue_offset: i64, body: &'a [u8]) -> Record<'a> {
    let host = Host::V4([10, 0, 0, 1], 1);
    Record {
        version: Version::V1,
        body_crc: crc::body_crc(body),
        queue_id: 0,
        flag: 0,
        queue_offset,
        physical_offset: 0,
        sys_flag: 0,
        born_timestamp_ms: START_MS,
        born_host: host,
        store_timestamp_ms: START_MS,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        topic,
        properties: b"",
        property_crc: false,
    }
}

/// Appends message `number`, to queue `number % 4`, with a key of its own.
pub(crate) fn append(store: &MessageStore, number: usize, body: &[u8]) -> Result<AppendResult> {
    let mut properties = Vec::new();
    properties::push(&mut properties, names::KEYS, key(number).as_bytes());
    let mut message = NewMessage::new(b"Topic", body);
    message.queue_id = i32::try_from(number % 4).unwrap();
    message.properties = &properties;
    store.append(&message)
}

/// Holds a store against what [`Home::fill`] put in: messages `0..count`, by queue and by key.
pub(crate) fn check(store: &MessageStore, count: usize) {
    let whole: Vec<usize> = (0..count).collect();
    check_queues(store, &whole);
    for number in 0..count {
        assert_eq!(by_key(store, number).len(), 1, "key of message {number} of {count}");
    }
}

/// Holds the queues of a store against messages that were put in by [`Home::fill`]: of each queue
/// these numbers and no others.
pub(crate) fn check_queues(store: &MessageStore, numbers: &[usize]) {
    for queue in 0..4_usize {
        let expected: Vec<_> = numbers
            .iter()
            .filter(|number| *number % 4 == queue)
            .map(|number| body(*number))
            .collect();
        let read = read_queue(store, i32::try_from(queue).unwrap(), 0);
        let found: Vec<_> =
            read.records.iter().map(|record| view_of(record).unwrap().body().to_vec()).collect();
        assert_eq!(found, expected, "queue {queue}");
    }
}

/// All messages of a queue of `Topic` from a number on.
pub(crate) fn read_queue(store: &MessageStore, queue: i32, from: i64) -> ReadResult {
    store.read(b"Topic", queue, from, 100_000, None, &TagFilter::ALL).unwrap()
}

/// The bodies of the messages found by the key of message `number`.
pub(crate) fn by_key(store: &MessageStore, number: usize) -> Vec<Vec<u8>> {
    let key = key(number);
    let query = KeyQuery {
        topic: b"Topic",
        key: key.as_bytes(),
        begin_ms: 0,
        end_ms: i64::MAX,
        max_messages: 10,
        exact: true,
    };
    let found = store.query(&query).unwrap();
    found.records.iter().map(|record| view_of(record).unwrap().body().to_vec()).collect()
}

/// The bodies of all messages that a walk over the log gives, and how much damage it met.
pub(crate) fn scan(store: &MessageStore) -> (Vec<Vec<u8>>, usize) {
    let (mut bodies, mut damage) = (Vec::new(), 0);
    let end = store.end_offset();
    let take = |range: Range<u64>, item: Item<'_, '_>| {
        match item {
            Item::Record(view, _) => bodies.push(MessageView::body(view).to_vec()),
            Item::Blank => {}
            Item::Damage(_) => damage += usize::from(range.end < end),
        }
        Ok(Flow::Continue)
    };
    store.scanner(0).each(store.log(), end, Resync::Anywhere, take).unwrap();
    (bodies, damage)
}

/// Where each message of a store lies, and how long it is, up to the first damage.
pub(crate) fn places(home: &Home) -> Vec<(u64, u64)> {
    let store = home.read();
    let mut places = Vec::new();
    let take = |range: Range<u64>, item: Item<'_, '_>| {
        if let Item::Record(..) = item {
            places.push((range.start, range.end - range.start));
        }
        Ok(Flow::Continue)
    };
    store.scanner(0).each(store.log(), u64::MAX, Resync::Never, take).unwrap();
    places
}

/// Writes `bytes` into a file.
pub(crate) fn patch(path: &Path, position: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, position).unwrap();
}

/// Changes one bit of a file.
pub(crate) fn flip(path: &Path, position: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], position).unwrap();
}

/// Makes a file shorter or longer.
pub(crate) fn set_len(path: &Path, len: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Paths in a folder, sorted.
pub(crate) fn names_in(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(std::result::Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub(crate) fn collect(root: &Path, dir: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for path in names_in(dir) {
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            files.push((path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap()));
        }
    }
}
