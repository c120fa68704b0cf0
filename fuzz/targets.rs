//! What a fuzzer feeds bytes to: each function must come back from any bytes, without a panic, in
//! little time and memory. Used by the fuzz targets, and with seeded damage by `tests/rust/fuzz.rs`.

use std::fs;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use mqstore::StoreConfig;
use mqstore::care::{Severity, VerifyOptions, verify};
use mqstore::files::Os;
use mqstore::format::checkpoint::CheckpointFields;
use mqstore::format::config_json::{OffsetTable, TopicTable, parse_delay_offsets};
use mqstore::format::consume_queue::QueueEntry;
use mqstore::format::index::IndexLayout;
use mqstore::format::message::{Frame, read_frame};
use mqstore::format::{batch, body, cq_ext, json, properties};
use mqstore::log::index_file::{IndexFile, IndexOpen};
use mqstore::store::{KeyQuery, MessageStore, NewMessage, OpenMode};
use tempfile::TempDir;

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
    while let Ok(cq_ext::ExtFrame::Unit(_, len)) = cq_ext::read_unit(rest) {
        assert!(len > 0);
        rest = rest.get(len..).unwrap_or_default();
    }
}

/// An index file of 7 slots and 28 entries, its chains walked.
pub(crate) fn index(bytes: &[u8]) {
    // Made once: making folders and files takes longer than all that is done with them.
    thread_local!(static FOLDER: TempDir = folder());
    let path = FOLDER.with(|folder| folder.path().join("20231001000000000"));
    let layout = IndexLayout::new(7, 28).unwrap();
    let mut whole = bytes.to_vec();
    whole.resize(layout.file_len() as usize, 0);
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    file.unwrap().write_all_at(&whole, 0).unwrap();
    let Ok(file) = IndexFile::open(&Os, &path, layout, IndexOpen::Read) else { return };
    for hash in 0..14 {
        let (mut offsets, mut findings) = (Vec::new(), Vec::new());
        let _ = file.select(hash, 0, i64::MAX, 64, &mut offsets, &mut findings);
        assert!(offsets.len() <= 28);
    }
    let _ = black_box(file.check(&mut |_| {}));
}

/// The checkpoint.
pub(crate) fn checkpoint(bytes: &[u8]) {
    let fields = CheckpointFields::decode(bytes);
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

/// A whole store, of which the bytes say what to change: a file, a place in it, a new byte.
pub(crate) fn directory(bytes: &[u8]) {
    let folder = folder();
    make_store(folder.path());
    let files = files(folder.path());
    let mut log_is_whole = true;
    for change in bytes.as_chunks::<4>().0.iter().take(64) {
        let path = &files[usize::from(change[0]) % files.len()];
        let Ok(file) = fs::OpenOptions::new().write(true).open(path) else { continue };
        log_is_whole &= !path.starts_with(folder.path().join("commitlog"));
        let len = file.metadata().unwrap().len().max(1);
        let position = u64::from(u16::from_be_bytes([change[1], change[2]])) % len;
        match change[3] {
            255 => file.set_len(position).unwrap(),
            254 => drop(fs::remove_file(path)),
            byte => file.write_all_at(&[byte], position).unwrap(),
        }
    }
    let options = VerifyOptions { threads: Some(1), ..VerifyOptions::default() };
    let look = || verify(folder.path(), config(), &options, &mut |_, _| ControlFlow::Continue(()));
    let _ = black_box(look());
    ask(folder.path(), OpenMode::Read);
    if ask(folder.path(), OpenMode::ReadWrite) && log_is_whole {
        let report = look().unwrap();
        let errors = report.findings.iter().filter(|found| found.severity == Severity::Error);
        // The broker's own configuration is not ours to mend.
        let left: Vec<_> = errors.filter(|found| !found.path.starts_with("config")).collect();
        assert!(left.is_empty(), "after opening for writing: {left:?}");
    }
}

/// Whether the store opens; every way to a message is tried then.
fn ask(path: &Path, mode: OpenMode) -> bool {
    let Ok(store) = MessageStore::open(path, mode, config()) else { return false };
    let mut scanner = store.scanner(0, None, true);
    while let Ok(Ok(_)) = scanner.step() {}
    for queue in 0..2 {
        for number in [0, 3, i64::MAX] {
            let filter = mqstore::format::consume_queue::TagFilter::parse("*");
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
    let _ = black_box(store.query(&query));
    store.close().is_ok() && mode != OpenMode::Read
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

/// Forty messages over several files of each kind.
pub(crate) fn make_store(path: &Path) {
    let store = MessageStore::open(path, OpenMode::Create, config()).unwrap();
    for number in 0..40 {
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
pub(crate) fn files(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}
