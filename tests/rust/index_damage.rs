//! An index that was damaged or lost in part is whole again once the store was opened for writing,
//! whatever was done to it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use mqstore::care::{Severity, VerifyOptions};
use mqstore::files::Os;
use mqstore::format::index::IndexLayout;
use mqstore::format::java::key_hash;
use mqstore::log::IndexBuilder;
use mqstore::store::{NewMessage, OpenMode};

use crate::queue_flips::flips_each;
use crate::support::{Home, START_MS, by_key, check, flip, key, small};

const MESSAGES: usize = 120;

/// Opens for writing, closes, and says what of the index is wrong then.
fn mended(home: &Home) -> Vec<String> {
    let store = home.write();
    check(&store, MESSAGES);
    for number in 0..MESSAGES {
        assert_eq!(by_key(&store, number).len(), 1, "{}", key(number));
    }
    store.close().unwrap();
    let report = home.verify(&VerifyOptions::default());
    report
        .findings
        .iter()
        .filter(|finding| finding.severity != Severity::Info)
        .map(|finding| format!("{finding:?}"))
        .collect()
}

fn is_used(path: &Path, position: usize) -> bool {
    // Header, slots, and the entries that are counted; entry 0 is never used.
    let (slots_end, len) = (40 + 4 * 7, fs::metadata(path).unwrap().len());
    let count = u32::from_be_bytes(fs::read(path).unwrap()[36..40].try_into().unwrap());
    let entries = slots_end + 20..slots_end + 20 * usize::try_from(count).unwrap();
    position < slots_end || (entries.contains(&position) && (position as u64) < len)
}

#[test]
fn any_missing_index_file_is_made_again() {
    let sound = Home::closed(MESSAGES);
    let files = sound.index_files();
    assert!(files.len() >= 4, "{files:?}");
    for lost in 0..files.len() {
        let home = sound.copy();
        fs::remove_file(&home.index_files()[lost]).unwrap();
        assert_eq!(mended(&home), [] as [&str; 0], "without file {lost}");
    }
}

#[test]
fn rc13_any_flipped_byte_of_an_index_file_is_mended() {
    let sound = Home::closed(MESSAGES);
    for file in [0, 1, sound.index_files().len() - 1] {
        let len = fs::metadata(&sound.index_files()[file]).unwrap().len();
        // Neither slots nor entries have seven bytes, so that each of their bytes has its turn.
        for position in (0..usize::try_from(len).unwrap()).step_by(flips_each(7)) {
            let home = sound.copy();
            let path = &home.index_files()[file];
            if !is_used(path, position) {
                continue;
            }
            flip(path, position as u64);
            assert_eq!(mended(&home), [] as [&str; 0], "file {file}, byte {position}");
        }
    }
}

#[test]
fn an_index_that_was_made_again_has_the_bytes_it_had() {
    let sound = Home::closed(MESSAGES);
    let before: Vec<_> = sound.index_files().iter().map(|path| fs::read(path).unwrap()).collect();
    let home = sound.copy();
    fs::remove_file(&home.index_files()[1]).unwrap();
    home.open(OpenMode::ReadWrite).unwrap().close().unwrap();
    let after: Vec<_> = home.index_files().iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(before == after);
}

#[test]
fn an_index_that_has_one_key_twice_and_another_not_at_all_is_made_again() {
    let home = Home::new(small());
    let store = home.create();
    let mut places = Vec::new();
    for number in 0..MESSAGES {
        let properties = format!("KEYS\u{1}{} other\u{2}", key(number));
        let mut message = NewMessage::new(b"Topic", b"body");
        message.properties = properties.as_bytes();
        places.push(store.append(&message).unwrap().physical_offset);
    }
    store.close().unwrap();
    fs::remove_dir_all(home.path().join("index")).unwrap();
    let layout = IndexLayout::new(7, 28).unwrap();
    let clock = Arc::clone(&home.clock) as Arc<_>;
    let mut index =
        IndexBuilder::new(Arc::new(Os), &home.path().join("index"), layout, clock).unwrap();
    for (number, place) in places.into_iter().enumerate() {
        let mut hashes =
            [key(number).as_str(), "other"].map(|key| key_hash(b"Topic", key.as_bytes()));
        if number == 40 {
            hashes[0] = hashes[1];
        }
        index.put(place, START_MS, &hashes).unwrap();
    }
    index.finish().unwrap();
    let store = home.write();
    for number in 0..MESSAGES {
        assert_eq!(by_key(&store, number).len(), 1, "{}", key(number));
    }
}

#[test]
fn an_index_whose_messages_are_deleted_or_cut_keeps_no_store_from_opening() {
    let home = Home::new(small());
    let store = home.create();
    home.fill(&store, 0..10);
    // Two files of the log without keys, then one message with a key, which is damaged.
    while store.end_offset() < 3 * 4096 {
        store.append(&NewMessage::new(b"Topic", &[b'x'; 300])).unwrap();
    }
    let last = home.fill(&store, 10..11)[0];
    store.close().unwrap();
    assert_eq!(home.index_files().len(), 1);
    fs::remove_file(home.log_file(0).0).unwrap();
    let end = u64::try_from(last.physical_offset).unwrap();
    home.flip(end + 90);
    let store = home.write();
    assert_eq!(store.end_offset(), end);
    home.fill(&store, 11..12);
    assert_eq!((by_key(&store, 11).len(), by_key(&store, 10).len()), (1, 0));
    store.close().unwrap();
    let report = home.verify(&VerifyOptions::default());
    assert!(report.ok, "{:?}", report.findings);
}
