//! The disk space that appends leave free.

use std::sync::Arc;

use mqstore::Error;
use mqstore::config::StoreConfig;
use mqstore::error::Result;
use mqstore::files::LARGEST_PAGE;
use mqstore::store::MessageStore;

use crate::support::storage::Staged;
use crate::support::{Home, append, body, check, scan, small};

/// Appends until an append fails or `most` messages are there; how many are, and the error.
fn append_until_full(store: &MessageStore, from: usize, most: usize) -> (usize, Option<Error>) {
    let append = |number: usize| -> Result<_> { append(store, number, &body(number)) };
    match (from..most).find_map(|number| append(number).err().map(|error| (number, error))) {
        Some((number, error)) => (number, Some(error)),
        None => (most, None),
    }
}

fn home(disk_reserve_bytes: Option<u64>) -> (Arc<Staged>, Home) {
    let staged = Staged::new();
    let home = Home::on(staged.storage(), StoreConfig { disk_reserve_bytes, ..small() });
    (staged, home)
}

#[test]
fn an_append_that_takes_space_leaves_the_reserve_and_says_what_is_free() {
    let (staged, home) = home(Some(1_000_000));
    staged.set_free(1_000_000 + 4096);
    let store = home.create();
    assert_eq!(append_until_full(&store, 0, 10).0, 10);
    staged.set_free(1_000_000 + 4095);
    let (count, error) = append_until_full(&store, 10, 1000);
    let error = error.unwrap();
    assert!(error.is_full_disk() && count < 100, "{count} {error}");
    let told = error.to_string();
    let file = home.path().join("commitlog");
    for part in [file.to_str().unwrap(), "1004095 bytes free", "1004096 are needed"] {
        assert!(told.contains(part), "{told}");
    }
    // Nothing of it was written, and it goes on when there is room again.
    check(&store, count);
    staged.set_free(u64::MAX);
    assert_eq!(append_until_full(&store, count, count + 50).0, count + 50);
    check(&store, count + 50);
    store.close().unwrap();
}

#[test]
fn a_disk_that_is_full_at_open_is_told_and_the_first_append_fails() {
    for reserve in [None, Some(50_000)] {
        let (staged, home) = home(reserve);
        staged.set_free(10_000);
        let store = home.create();
        let warnings = store.warnings();
        let told = |part: &str| warnings.iter().any(|warning| warning.contains(part));
        assert!(told("nothing can be appended") && told("10000 bytes free"), "{warnings:?}");
        let (count, error) = append_until_full(&store, 0, 10);
        assert!(count == 0 && error.is_some_and(|error| error.is_full_disk()));
        // It is no minute until there is room again.
        staged.set_free(u64::MAX);
        assert_eq!(append_until_full(&store, 0, 10).0, 10);
        store.close().unwrap();
    }
}

#[test]
fn a_reserve_of_nothing_asks_for_nothing() {
    let (staged, home) = home(Some(0));
    staged.set_free(4096);
    let store = home.create();
    assert!(store.warnings().is_empty());
    assert_eq!(append_until_full(&store, 0, 100).0, 100);
    staged.set_free(4095);
    assert!(append_until_full(&store, 100, 200).1.is_some());
}

#[test]
fn by_default_what_closing_needs_grows_with_queues_and_index() {
    let (staged, mut home) = home(None);
    let needed = |home: &Home, store: &MessageStore| {
        staged.set_free(0);
        let error = append_until_full(store, 0, 1).1.unwrap().to_string();
        staged.set_free(u64::MAX);
        assert!(error.contains("a clean close needs"), "{error}");
        let (_, behind) = error.split_once("free, and ").unwrap();
        let needed: u64 = behind.split(' ').next().unwrap().parse().unwrap();
        home.fill(store, 0..8);
        needed
    };
    let store = home.create();
    let empty = needed(&home, &store);
    store.close().unwrap();
    let store = home.write();
    // Four queues, each with its block.
    assert!(needed(&home, &store) >= empty + 4 * 4096);
    store.close().unwrap();
    let (staged, large) = self::home(None);
    home = large;
    home.config.max_hash_slot_num = Some(5_000_000);
    home.config.max_index_num = Some(20_000_000);
    staged.set_free(20_000_000 + LARGEST_PAGE as u64);
    let store = home.create();
    assert!(append_until_full(&store, 0, 1).1.is_some());
}

#[test]
fn a6_an_append_for_a_new_queue_leaves_the_inodes_that_closing_needs() {
    let (staged, home) = home(None);
    staged.set_free_inodes(24 + 2 * 6);
    let store = home.create();
    // Messages 0 to 3 are of four queues.
    let (count, error) = append_until_full(&store, 0, 4);
    let error = error.unwrap();
    assert!(error.is_full_disk(), "{error}");
    assert!(count == 2 && error.to_string().contains("36 inodes free"), "{count} {error}");
    append(&store, 4, &body(4)).unwrap();
    store.flush().unwrap();
    staged.set_free_inodes(1000);
    append(&store, 2, &body(2)).unwrap();
    store.close().unwrap();
    assert_eq!(scan(&home.read()).0.len(), 4);
    // A store that is full at open says so.
    staged.set_free_inodes(0);
    let warnings = home.write().warnings();
    assert!(warnings.iter().any(|warning| warning.contains("0 inodes free")), "{warnings:?}");
}
