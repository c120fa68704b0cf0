//! A cleanly closed store is opened without reading its log, unless anything changed.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use mqstore::StoreConfig;
use mqstore::config::FlushDiskType;
use mqstore::store::RecoveryMode;
use mqstore::store::folder::paths::StorePaths;
use mqstore::store::folder::seal::Seal;

use crate::power_cuts::Place;
use crate::support::disk::Disk;
use crate::support::storage::Staged;
use crate::support::{Home, START_MS, append, by_key, check, flip, places, scan, small};

/// A storage on which a store can be sealed.
fn sealing() -> Arc<Staged> {
    let stage = Staged::new();
    stage.tell_stamps(false);
    stage
}

/// A closed store of `count` messages, and how many bytes of its log an opening for write reads.
fn opening(count: usize, change: impl FnOnce(&Home)) -> (Home, u64, u64) {
    let stage = sealing();
    let home = Home::on(stage.storage(), small());
    let store = home.create();
    home.fill(&store, 0..count);
    let end = store.end_offset();
    store.close().unwrap();
    change(&home);
    stage.take_log_read();
    let store = home.write();
    let read = stage.take_log_read();
    check(&store, count);
    store.close().unwrap();
    (home, end, read)
}

#[test]
fn a_store_closed_in_good_order_is_opened_without_reading_its_log() {
    for count in [100, 1000] {
        let (home, _, read) = opening(count, |_| {});
        assert!(read <= 2 * 4096, "{count} messages: {read} bytes");
        // Later writes are as safe as any.
        let store = home.write();
        home.fill(&store, count..count + 20);
        store.close().unwrap();
        check(&home.write(), count + 20);
    }
}

#[test]
fn a_seal_holds_where_no_release_is_remembered() {
    let stage = sealing();
    let home = Home::on(stage.storage(), small());
    let store = home.create();
    home.fill(&store, 0..100);
    store.close().unwrap();
    // As a broker's store has none.
    std::fs::remove_file(home.path().join("config/mqstore.json")).unwrap();
    home.write().close().unwrap();
    stage.take_log_read();
    home.write().close().unwrap();
    let read = stage.take_log_read();
    assert!(read <= 2 * 4096, "{read} bytes");
}

#[test]
fn zeros_behind_a_sealed_end_are_not_read() {
    const FILE: u64 = 4 << 20;
    let stage = sealing();
    let config = StoreConfig { mapped_file_size_commit_log: Some(FILE), ..small() };
    let home = Home::on(stage.storage(), config);
    let store = home.create();
    home.fill(&store, 0..100);
    let end = store.end_offset();
    // As pages do that were made ready ahead of the writer.
    let file = std::fs::OpenOptions::new().write(true).open(home.log_file(0).0).unwrap();
    file.write_all_at(&vec![0; (FILE - end) as usize], end).unwrap();
    store.close().unwrap();
    stage.take_log_read();
    let store = home.write();
    let read = stage.take_log_read();
    assert!(read < 1024, "{read} bytes");
    check(&store, 100);
}

#[test]
fn a_record_behind_a_sealed_end_is_read_although_no_time_moved() {
    for (stands_still, byte) in [(false, None), (true, None), (true, Some(1))] {
        let stage = Staged::new();
        stage.tell_stamps(stands_still);
        let home = Home::on(stage.storage(), small());
        let store = home.create();
        home.fill(&store, 0..100);
        let end = store.end_offset();
        store.close().unwrap();
        if let Some(byte) = byte {
            home.patch(end, &[0, 0, 0, byte]);
        }
        stage.take_log_read();
        let store = home.write();
        let read = stage.take_log_read();
        assert_eq!(read >= end, byte.is_some(), "{byte:?}: {read} of {end} bytes");
        check(&store, 100);
    }
}

/// Another program does not wait for `abort` to be durable: after a power cut its queues and index may
/// reach past the log, and nothing tell when they were changed.
#[test]
fn queues_and_index_past_a_sealed_end_are_met_although_no_time_moved() {
    let place = Place::new(Disk::new(), FlushDiskType::Async, START_MS);
    let fill = |numbers: std::ops::Range<usize>| {
        let store = place.open().unwrap();
        for number in numbers {
            append(&store, number, b"").unwrap();
        }
        store.close().unwrap();
        place.disk.image()
    };
    let (sealed, one, more) = (fill(0..10), fill(10..11), fill(11..20));
    for (part, later) in
        ["consumequeue", "index"].iter().flat_map(|part| [(part, &one), (part, &more)])
    {
        let mut image = sealed.clone();
        for (path, file) in &mut image {
            let is_of_part = path.iter().any(|name| name == *part);
            if let (true, Some(file), Some(Some(later))) = (is_of_part, file, later.get(path)) {
                file.bytes = Arc::clone(&later.bytes);
            }
        }
        assert!(image != sealed, "{part}");
        let place = Place::new(Disk::of(&image), FlushDiskType::Async, START_MS);
        let store = place.open().unwrap();
        append(&store, 30, b"another").unwrap();
        assert_eq!(scan(&store).0.len(), 11, "{part}");
        assert_eq!(by_key(&store, 10).len(), 0, "{part}");
        store.close().unwrap();
        assert_eq!(place.verify(), (vec![], 11), "{part}");
    }
}

#[test]
fn any_change_has_everything_read_again() {
    let touch = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let queue = |home: &Home| touch(&home.queue_file(1, 0).0);
    let index = |home: &Home| touch(&home.index_files()[1]);
    let log = |home: &Home| touch(&home.log_file(0).0);
    let extra = |home: &Home| std::fs::write(home.path().join("index/stray"), b"").unwrap();
    let seal = |home: &Home| flip(&home.path().join("mqstore.seal"), 20);
    let changes: [&dyn Fn(&Home); 5] = [&queue, &index, &log, &extra, &seal];
    for (number, change) in changes.into_iter().enumerate() {
        let (_, end, read) = opening(100, change);
        assert!(read >= end, "change {number}: {read} of {end} bytes");
    }
}

#[test]
fn damage_since_closing_is_met_at_once() {
    let home = Home::closed(100);
    let (begin, _) = places(&home)[40];
    home.flip(begin + 95);
    let error = home.open(mqstore::store::OpenMode::ReadWrite).unwrap_err();
    assert!(error.to_string().contains("whole messages lie beyond"), "{error}");
}

#[test]
fn a_store_that_was_not_closed_is_read_whatever_its_seal_says() {
    let (home, _, _) = opening(100, |_| {});
    std::fs::write(home.path().join("abort"), b"1").unwrap();
    let store = home.write();
    assert_eq!(store.recovery().unwrap().mode, RecoveryMode::Crash);
    check(&store, 100);
}

#[test]
fn a_seal_past_the_log_is_not_believed() {
    for beyond in [0, 1 << 40] {
        let put = |home: &Home| {
            let paths = StorePaths::new(Arc::clone(&home.storage), home.path(), &home.config);
            let store = home.read();
            let newest_ms = START_MS;
            let end = store.end_offset() + beyond;
            Seal::put(&paths, store.config(), end, newest_ms).unwrap();
        };
        let (home, end, read) = opening(100, put);
        // One that ends with the log is believed.
        assert_eq!(read < end, beyond == 0, "{read} of {end} bytes");
        assert_eq!(home.write().end_offset(), end);
    }
}
