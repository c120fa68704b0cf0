//! Resources of a store while it is written to: memory, open files, maps.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::hint::black_box;
use std::path::Path;

use allocation_counter::measure;
use mqstore::StoreConfig;
use mqstore::config::FlushDiskType;
use mqstore::store::{MessageStore, NewMessage, OpenMode};

/// How often memory is taken by `count` appends after as many to warm up.
fn taken(flush_disk_type: FlushDiskType, count: usize) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        flush_disk_type,
        mapped_file_size_commit_log: Some(64 << 20),
        max_hash_slot_num: Some(1000),
        max_index_num: Some(1_000_000),
        // Entries keep their memory until they reach the queues' files.
        flush_interval_consume_queue: 3_600_000,
        ..StoreConfig::default()
    };
    let store = MessageStore::open(folder.path(), OpenMode::Create, config).unwrap();
    let properties: Vec<String> = (0..count)
        .map(|n| format!("TAGS\u{1}paid\u{2}KEYS\u{1}order-{n}\u{2}UNIQ_KEY\u{1}U{n}\u{2}"))
        .collect();
    let put = || {
        for (queue_id, properties) in (0..8).cycle().zip(&properties) {
            let mut message = NewMessage::new(b"Orders", &[7; 128]);
            message.queue_id = queue_id;
            message.properties = properties.as_bytes();
            store.append(&message).unwrap();
        }
    };
    put();
    store.flush().unwrap();
    // Only this thread's memory counts. A buffer may grow once more while a helper thread is late.
    let taken = (0..3).map(|_| measure(put).count_total).min().unwrap();
    store.close().unwrap();
    taken
}

#[test]
fn ap_an_append_takes_no_memory_after_the_first_ones() {
    assert_eq!(measure(|| drop(black_box(Box::new(7)))).count_total, 1);
    assert_eq!(taken(FlushDiskType::Async, 10_000), 0);
}

#[test]
fn ap_nor_does_one_that_waits_for_its_flush() {
    assert_eq!(taken(FlushDiskType::Sync, 100), 0);
}

/// How many files this process has open, and how many of a folder's it has mapped.
fn held(folder: &Path) -> (usize, usize) {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapped = |line: &&str| line.contains(&*folder.to_string_lossy());
    (open, maps.lines().filter(mapped).count())
}

#[test]
fn ap_many_queues_take_few_files_and_maps() {
    const QUEUES: usize = 400;
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(16 << 20),
        max_hash_slot_num: Some(1000),
        max_index_num: Some(100_000),
        ..StoreConfig::default()
    };
    let open = |mode| MessageStore::open(folder.path(), mode, config.clone()).unwrap();
    let check = |store: &MessageStore| {
        assert_eq!(store.queue_names().unwrap().len(), QUEUES);
        let (files, maps) = held(folder.path());
        assert!(files < 400, "{files} open files");
        assert!(maps < 8, "{maps} maps");
    };
    let store = open(OpenMode::Create);
    for number in 0..10 * QUEUES {
        let topic = format!("Topic{}", number / 100 % 4);
        let mut message = NewMessage::new(topic.as_bytes(), b"body");
        message.queue_id = i32::try_from(number % 100).unwrap();
        assert_eq!(
            store.append(&message).unwrap().queue_offset,
            i64::try_from(number / QUEUES).unwrap()
        );
    }
    store.flush().unwrap();
    check(&store);
    drop(store);
    // All queues are made again from the log.
    std::fs::remove_dir_all(folder.path().join("consumequeue")).unwrap();
    std::fs::write(folder.path().join("abort"), b"").unwrap();
    let store = open(OpenMode::ReadWrite);
    check(&store);
    store.close().unwrap();
}
