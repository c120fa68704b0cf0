//! Targets of the fuzzer: each function must return from any bytes, without a panic, in
//! little time and memory. Used by the fuzz targets, and with seeded damage by `tests/rust/fuzz.rs`.

mod memory;

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::StoreConfig;
use mqstore::care::verify::verify_on;
use mqstore::care::{Severity, VerifyOptions};
use mqstore::files::{Access, FileKind, Os, Storage, SystemClock};
use mqstore::format::body;
use mqstore::format::checkpoint::CheckpointFields;
use mqstore::format::config::json;
use mqstore::format::config::tables::{OffsetTable, TopicTable, parse_delay_offsets};
use mqstore::format::index::IndexLayout;
use mqstore::format::message::properties;
use mqstore::format::message::{Frame, read_frame};
use mqstore::format::queue::consume_queue::QueueEntry;
use mqstore::format::queue::{batch, consume_queue_ext};
use mqstore::log::OffsetLists;
use mqstore::log::index::file::{IndexFile, IndexOpen};
use mqstore::log::read::scanner::{Flow, Item, Resync};
use mqstore::store::{KeyQuery, MessageStore, NewMessage, OpenMode};
use tempfile::TempDir;

use memory::Memory;

/// A target: its name, and what takes the bytes.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Every target.
pub(crate) const TARGETS: [Target; 8] = [
    ("record", record),
    ("properties", raw_properties),
    ("queue", queue),
    ("index", index),
    ("checkpoint", checkpoint),
    ("configuration", configuration),
    ("batch", batch_body),
    ("directory", directory),
];

/// Most bytes that a compressed body may become here.
const BODY_LIMIT: usize = 1 << 16;

/// A record and everything that can be asked of it.
pub(crate) fn record(bytes: &[u8]) {
    let Ok(Frame::Message(view)) = read_frame(bytes) else { return };
    assert!(view.store_size() as usize <= bytes.len());
    black_box((view.topic(), view.born_host(), view.store_host(), view.message_id()));
    black_box((view.check_body_crc().is_ok(), view.check_property_crc().is_ok()));
    raw_properties(view.raw_properties());
    if let Ok(whole) = body::decompress(view.body(), view.sys_flag(), BODY_LIMIT) {
        batch_body(&whole);
    }
}

/// A property string.
pub(crate) fn raw_properties(bytes: &[u8]) {
    let indexed = properties::indexed(bytes);
    let _ = black_box(batch::inner_range(&indexed, 0));
    for (name, value) in properties::iter(bytes) {
        black_box(properties::get(bytes, name));
        black_box(properties::split_keys(value).count());
    }
    black_box(properties::to_map(bytes));
}

/// Units of a consume queue and of its extension.
pub(crate) fn queue(bytes: &[u8]) {
    for unit in bytes.as_chunks().0 {
        let entry = QueueEntry::decode(unit);
        assert_eq!(&entry.encode(), unit);
        black_box(entry.is_valid());
    }
    let mut rest = bytes;
    while let Ok(consume_queue_ext::ExtFrame::Unit(_, len)) = consume_queue_ext::read_unit(rest) {
        assert!(len > 0);
        rest = rest.get(len..).unwrap_or_default();
    }
}

/// An index file of 7 slots and 28 entries, its chains walked one by one by positional reads and all
/// together by map; in memory, and one in sixteen among the system's files too.
pub(crate) fn index(bytes: &[u8]) {
    // Made once: making folders and files takes longer than all that is done with them.
    thread_local! {
        static FOLDER: TempDir = folder();
        static MEMORY: Arc<Memory> = Memory::new();
    }
    let layout = IndexLayout::new(7, 28).unwrap();
    let mut whole = bytes.to_vec();
    whole.resize(layout.file_len() as usize, 0);
    let name = "20231001000000000";
    let selected = MEMORY.with(|memory| select(&**memory, &Path::new("/").join(name), &whole));
    if one_in(16, bytes) {
        let path = FOLDER.with(|folder| folder.path().join(name));
        assert_eq!(select(&Os, &path, &whole), selected);
    }
}

/// Looks up keys in an index file of those bytes, in every way of reading.
fn select(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Option<Selected> {
    let layout = IndexLayout::new(7, 28).unwrap();
    match storage.open(path, Access::ReadWrite) {
        Ok(file) => file,
        Err(_) => storage.create(path, bytes.len() as u64).unwrap(),
    }
    .write_at(bytes, 0)
    .unwrap();
    let file = IndexFile::open(storage, path, layout, IndexOpen::Read).ok()?;
    let (mut offsets, mut findings) = (Vec::new(), Vec::new());
    let mut ends = Vec::new();
    for hash in HASHES {
        let before = offsets.len();
        let most = before + 64;
        let _ = file.select(hash, 0, i64::MAX, most, &mut offsets, &mut findings);
        assert!(offsets.len() - before <= 28);
        ends.push(offsets.len());
    }
    let mapped = IndexFile::open(storage, path, layout, IndexOpen::ReadMapped).unwrap();
    let (mut together, mut met) = (OffsetLists::default(), Vec::new());
    let hashes: Vec<i32> = HASHES.collect();
    let _ = mapped.select_many(&hashes, 0, i64::MAX, 64, &mut together, &mut met);
    assert_eq!((&*together.offsets, &*together.ends), (&*offsets, &*ends), "one by one");
    assert_eq!(met.len(), findings.len(), "one by one");
    let mut faults = 0;
    let _ = black_box(file.check(&mut |_| faults += 1));
    Some((offsets, findings.len(), faults))
}

/// Two of each slot.
const HASHES: std::ops::Range<i32> = 0..14;

/// The offsets of all keys, how much damage was met on the way, and how much there is.
type Selected = (Vec<i64>, usize, usize);

/// Chosen by the bytes themselves, so that the same bytes always go the same way.
fn one_in(many: u8, bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)).is_multiple_of(many)
}

/// The checkpoint.
pub(crate) fn checkpoint(bytes: &[u8]) {
    let fields = CheckpointFields::decode_start(bytes);
    black_box((fields.min_timestamp_ms(), fields.min_timestamp_index_ms()));
}

/// Every JSON file of a broker.
pub(crate) fn configuration(bytes: &[u8]) {
    if let Ok(topics) = TopicTable::parse(bytes) {
        black_box(topics.iter().count());
        assert!(TopicTable::parse(&topics.to_bytes()).is_ok());
    }
    if let Ok(offsets) = OffsetTable::parse(bytes) {
        black_box(offsets.iter().count());
        assert!(OffsetTable::parse(&offsets.to_bytes()).is_ok());
    }
    let _ = black_box(parse_delay_offsets(bytes));
    if let Ok(strict) = json::to_strict(bytes) {
        assert!(json::parse(strict.as_bytes()).is_ok());
    }
}

/// The body of a batch.
pub(crate) fn batch_body(bytes: &[u8]) {
    for item in batch::items(bytes) {
        let Ok(item) = item else { return };
        raw_properties(item.properties);
    }
}

/// A whole store, of which the bytes say what to change: a file, a place in it, a new byte. All
/// but one in 64 are copies in memory of one that was closed, whose seal holds until something sealed
/// is changed; the others are made anew among the system's files.
pub(crate) fn directory(bytes: &[u8]) {
    thread_local!(static CLOSED: Arc<Memory> = {
        let memory = Memory::new();
        make_store(Arc::clone(&memory) as _, Path::new("/store"));
        memory
    });
    if one_in(64, bytes) {
        let folder = folder();
        make_store(Arc::new(Os), folder.path());
        changed_store(&(Arc::new(Os) as _), folder.path(), bytes);
    } else {
        changed_store(&(CLOSED.with(|closed| closed.copy()) as _), Path::new("/store"), bytes);
    }
}

fn changed_store(storage: &Arc<dyn Storage>, root: &Path, bytes: &[u8]) {
    let files = files(&**storage, root);
    let mut log_is_whole = true;
    for change in bytes.as_chunks::<4>().0.iter().take(64) {
        let path = &files[usize::from(change[0]) % files.len()];
        let Ok(file) = storage.open(path, Access::ReadWrite) else { continue };
        log_is_whole &= !path.starts_with(root.join("commitlog"));
        let len = file.stat().unwrap().len.max(1);
        let position = u64::from(u16::from_be_bytes([change[1], change[2]])) % len;
        match change[3] {
            255 => file.set_len(position).unwrap(),
            254 => drop(storage.remove_file(path)),
            byte => file.write_at(&[byte], position).unwrap(),
        }
    }
    let options = VerifyOptions { threads: Some(1), ..VerifyOptions::default() };
    let go_on = &mut |_, _| ControlFlow::Continue(());
    let mut look = || verify_on(Arc::clone(storage), root, config(), &options, go_on);
    let _ = black_box(look());
    let _ = ask(storage, root, OpenMode::Read);
    if let Some(met) = ask(storage, root, OpenMode::ReadWrite)
        && log_is_whole
    {
        assert_eq!(met, (u64::from(MESSAGES), 1), "messages, and those of one key");
        let report = look().unwrap();
        let errors = report.findings.iter().filter(|found| found.severity == Severity::Error);
        // The broker's own configuration is not ours to mend.
        let left: Vec<_> = errors.filter(|found| !found.path.starts_with("config")).collect();
        assert!(left.is_empty(), "after opening for writing: {left:?}");
    }
}

/// Opens the store, where that can be, and tries every way to a message; how many messages the log
/// gives, and how many the key of one.
fn ask(storage: &Arc<dyn Storage>, root: &Path, mode: OpenMode) -> Option<(u64, usize)> {
    let clock = Arc::new(SystemClock);
    let store = MessageStore::open_with(root, mode, config(), Arc::clone(storage), clock).ok()?;
    let mut scanner = store.scanner(0);
    let mut messages = 0;
    let _ = scanner.each(store.log(), u64::MAX, Resync::Never, |_, item| {
        messages += u64::from(matches!(item, Item::Record(..)));
        Ok(Flow::Continue)
    });
    for queue in 0..2 {
        for number in [0, 3, i64::MAX] {
            let filter = mqstore::format::queue::consume_queue::TagFilter::parse("*");
            let _ = black_box(store.read(b"Topic", queue, number, 32, None, &filter));
        }
        let boundary = mqstore::store::Boundary::Lower;
        let _ = black_box(store.offset_at(b"Topic", queue, 1, boundary));
    }
    let query = KeyQuery {
        topic: b"Topic",
        key: b"key-3",
        begin_ms: 0,
        end_ms: i64::MAX,
        max_messages: 32,
        exact: true,
    };
    let found = store.query(&query).map_or(0, |found| found.records.len());
    store.close().ok()?;
    Some((messages, found))
}

pub(crate) fn config() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(4096),
        mapped_file_size_consume_queue: Some(200),
        max_hash_slot_num: Some(7),
        max_index_num: Some(28),
        ..StoreConfig::default()
    }
}

/// How many messages the store has, over several files of each kind.
const MESSAGES: u8 = 40;

/// A store that was closed in good order.
pub(crate) fn make_store(storage: Arc<dyn Storage>, root: &Path) {
    let clock = Arc::new(SystemClock);
    let store = MessageStore::open_with(root, OpenMode::Create, config(), storage, clock).unwrap();
    for number in 0..MESSAGES {
        let properties = format!("TAGS\u{1}tag\u{2}KEYS\u{1}key-{number}\u{2}");
        let body = [number; 100];
        let mut message = NewMessage::new(b"Topic", &body);
        message.queue_id = i32::from(number % 2);
        message.properties = properties.as_bytes();
        store.append(&message).unwrap();
    }
    store.close().unwrap();
}

/// All files below a folder, in order.
pub(crate) fn files(storage: &dyn Storage, root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in storage.list(&folder).unwrap() {
            let path = folder.join(&entry.name);
            match entry.kind {
                FileKind::Directory => folders.push(path),
                FileKind::File | FileKind::Other => found.push(path),
            }
        }
    }
    found.sort();
    found
}

fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}
