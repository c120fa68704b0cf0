//! Readers beside the process that writes.

use std::sync::Arc;

use mqstore::StoreConfig;
use mqstore::store::{MessageStore, OpenMode};

use crate::support::{Home, body, check, scan, small};

/// A reader that was told nothing of the store.
fn reader(home: &Home) -> MessageStore {
    MessageStore::open_with(
        home.path(),
        OpenMode::Read,
        StoreConfig::default(),
        Arc::clone(&home.storage),
        Arc::clone(&home.clock) as Arc<_>,
    )
    .unwrap()
}

#[test]
fn a_reader_of_an_empty_store_learns_sizes_from_its_first_files() {
    let home = Home::new(small());
    let writer = home.create();
    let reader = reader(&home);
    assert_eq!(reader.end_offset(), 0);
    let mut before = 0;
    for count in [1, 100, 200] {
        home.fill(&writer, before..count);
        writer.flush().unwrap();
        reader.refresh().unwrap();
        let bodies: Vec<_> = (0..count).map(body).collect();
        assert!(scan(&reader) == (bodies, 0), "{count} messages");
        check(&reader, count);
        before = count;
    }
}
