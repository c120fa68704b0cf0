//! One flipped bit in an index entry or a slot, any of them: a query by key gives every message, or says
//! that it may not.

use std::fs;

use mqstore::care::VerifyOptions;
use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::index::{ENTRY_LEN, IndexLayout};
use mqstore::format::java::key_hash;
use mqstore::format::message::properties::{self, names};
use mqstore::store::read::queue_read::view_of;
use mqstore::store::{KeyQuery, MessageStore, NewMessage};

use crate::support::{Home, START_MS, patch, set_len, small};

const SLOTS: u32 = 7;

fn append(home: &Home, store: &MessageStore, number: usize, keys: &str) {
    home.clock.set(START_MS + i64::try_from(number).unwrap() * 1000);
    let mut raw = Vec::new();
    properties::push(&mut raw, names::KEYS, keys.as_bytes());
    let body = format!("message {number:04}");
    let message = NewMessage { properties: &raw, ..NewMessage::new(b"Topic", body.as_bytes()) };
    store.append(&message).unwrap();
}

/// A closed store of one index file with so many messages, each with the keys that `keys` gives it.
fn made(slots: u32, count: usize, keys: impl Fn(usize) -> String) -> Home {
    let home = Home::new(StoreConfig {
        max_hash_slot_num: Some(slots),
        max_index_num: Some(400),
        ..small()
    });
    let store = home.create();
    (0..count).for_each(|number| append(&home, &store, number, &keys(number)));
    store.close().unwrap();
    home
}

fn layout(home: &Home) -> IndexLayout {
    let config = &home.config;
    IndexLayout::new(config.max_hash_slot_num.unwrap(), config.max_index_num.unwrap()).unwrap()
}

/// A query: a key, and the seconds between which its messages were stored.
type Question<'a> = (&'a str, i64, i64);

/// The store times, in seconds, that a query gives, and whether it says that these are all.
fn ask(store: &MessageStore, question: Question<'_>) -> Result<(Vec<i64>, bool), Error> {
    let (key, begin, end) = question;
    let found = store.query(&KeyQuery {
        topic: b"Topic",
        key: key.as_bytes(),
        begin_ms: START_MS + begin * 1000,
        end_ms: START_MS + end * 1000,
        max_messages: 1000,
        exact: true,
    })?;
    let time = |record: &[u8]| (view_of(record).unwrap().store_timestamp_ms() - START_MS) / 1000;
    Ok((found.records.iter().map(|record| time(record)).collect(), found.complete))
}

/// Flips every bit of some places of the only index file, in a closed store and under one that is open,
/// and asks.
fn flip_all(home: &Home, places: &[(u64, usize)], questions: &[Question<'_>], verify_each: usize) {
    let path = home.index_files()[0].clone();
    let sound = fs::read(&path).unwrap();
    let wanted: Vec<_> = questions.iter().map(|&one| ask(&home.read(), one).unwrap()).collect();
    assert!(wanted.iter().all(|(times, complete)| *complete && !times.is_empty()), "{wanted:?}");
    let open = home.copy();
    let store = open.write();
    let open_path = open.index_files()[0].clone();
    let (mut wrong, mut unseen) = (Vec::new(), Vec::new());
    for &(from, bytes) in places {
        for bit in 0..bytes * 8 {
            let at = from + bit as u64 / 8;
            let old = sound[usize::try_from(at).unwrap()];
            let new = [old ^ (1 << (bit % 8))];
            patch(&path, at, &new);
            patch(&open_path, at, &new);
            for (mode, store) in [("r", &home.read()), ("r+", &store)] {
                for (question, wanted) in questions.iter().zip(&wanted) {
                    match ask(store, *question) {
                        // The log is small, so that it is always read where the index is damaged.
                        Ok(found) if found == *wanted => {}
                        other => wrong.push(format!("{mode}, {at}.{bit}, {question:?}: {other:?}")),
                    }
                }
            }
            // The first entry of the first file counts its seconds from nothing that is known.
            let is_free = from == layout(home).entry_position(1) && (96..128).contains(&bit);
            // A link that ends a chain ends it below 0 too.
            let is_end = from == layout(home).entry_position(1) && bit == 135;
            let verifies = bit % verify_each == 0 && !is_free && !is_end;
            if verifies && home.verify(&VerifyOptions::default()).ok {
                unseen.push((at, bit));
            }
            patch(&path, at, &[old]);
            patch(&open_path, at, &[old]);
        }
    }
    assert!(wrong.is_empty(), "{} wrong, first {:?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    assert_eq!(unseen, [], "verify says nothing of these");
    store.close().unwrap();
}

fn entry(home: &Home, number: u32) -> (u64, usize) {
    (layout(home).entry_position(number), ENTRY_LEN)
}

fn slot(home: &Home, key: &str) -> (u64, usize) {
    let layout = layout(home);
    (layout.slot_position(layout.slot_of(key_hash(b"Topic", key.as_bytes()))), 4)
}

#[test]
fn no_bit_of_an_index_entry_hides_a_message_of_a_key_that_all_have() {
    let home = made(SLOTS, 60, |_| "k".to_owned());
    let places = [entry(&home, 1), entry(&home, 17), entry(&home, 33), entry(&home, 60)];
    flip_all(&home, &places, &[("k", 0, 1000), ("k", 10, 40)], 1);
    flip_all(&home, &[slot(&home, "k")], &[("k", 0, 1000)], 1);
}

#[test]
fn no_bit_of_an_index_entry_hides_a_message_of_one_key_in_many() {
    let home = made(SLOTS, 80, |number| format!("k{} own{number}", number % 9));
    let questions = [("k3", 0, 1000), ("k3", 20, 50), ("own30", 0, 1000), ("own30", 30, 30)];
    // Those of message 30, and of one behind and one before it with the key.
    let places: Vec<_> = [61, 62, 43, 79, 80].map(|number| entry(&home, number)).into();
    flip_all(&home, &places, &questions, 5);
    flip_all(&home, &[slot(&home, "k3"), slot(&home, "own30")], &questions, 5);
}

#[test]
fn no_bit_of_a_hash_hides_a_message_where_slots_are_a_power_of_two() {
    for slots in [1, 4] {
        let home = made(slots, 40, |number| format!("k{}", number % 5));
        let places: Vec<_> = [8, 18, 38].map(|number| entry(&home, number)).into();
        flip_all(&home, &places, &[("k2", 0, 1000), ("k0", 0, 1000)], 7);
        flip_all(&home, &[slot(&home, "k2")], &[("k2", 0, 1000)], 7);
    }
}

#[test]
fn records_of_one_size_hide_no_message_behind_their_neighbour() {
    // 256 bytes each, so that an offset that lost a bit is that of another message of the key.
    let home = Home::new(StoreConfig { max_index_num: Some(400), ..small() });
    let store = home.create();
    let mut raw = Vec::new();
    properties::push(&mut raw, names::KEYS, b"k");
    for number in 0..40 {
        home.clock.set(START_MS + number * 1000 / 8);
        let overhead = 91 + b"Topic".len() + raw.len();
        let body = vec![b'x'; 256 - overhead];
        let at = store
            .append(&NewMessage { properties: &raw, ..NewMessage::new(b"Topic", &body) })
            .unwrap();
        assert_eq!(at.store_size, 256);
    }
    store.close().unwrap();
    let places: Vec<_> = [1, 2, 20, 39, 40].map(|number| entry(&home, number)).into();
    flip_all(&home, &places, &[("k", 0, 1000)], 3);
}

#[test]
fn a_key_twice_in_a_message_and_keys_that_share_a_hash_are_no_damage() {
    // "Aa" and "BB" have one hash.
    let home = made(SLOTS, 30, |number| ["Aa Aa", "BB", "BB Aa", "other"][number % 4].to_owned());
    for store in [home.read(), home.write()] {
        for key in ["Aa", "BB"] {
            let (times, complete) = ask(&store, (key, 0, 1000)).unwrap();
            assert!(complete);
            assert_eq!(times.len(), 15, "{key}");
        }
    }
}

#[test]
fn an_index_file_that_cannot_be_used_hides_no_message() {
    let home = Home::closed(120);
    let files = home.index_files();
    assert!(files.len() > 3);
    for file in &files {
        let len = fs::metadata(file).unwrap().len();
        let whole = fs::read(file).unwrap();
        let reader = home.read();
        set_len(file, 99);
        for store in [&reader, &home.read()] {
            for number in 0..120 {
                let key = crate::support::key(number);
                match ask(store, (&key, 0, 1000)) {
                    Ok((times, complete)) => assert!(times.len() == 1 || !complete, "{key}"),
                    Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{error}"),
                }
            }
        }
        fs::write(file, &whole).unwrap();
        assert_eq!(fs::metadata(file).unwrap().len(), len);
    }
}

#[test]
fn a_log_file_cut_short_under_a_reader_is_told() {
    let home = made(SLOTS, 60, |_| "k".to_owned());
    let mut names: Vec<_> = fs::read_dir(home.path().join("commitlog"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    for cut in [0, names.len() - 1] {
        let copy = home.copy();
        let reader = copy.read();
        let file = copy.path().join("commitlog").join(names[cut].file_name().unwrap());
        set_len(&file, 10);
        let told = match ask(&reader, ("k", 0, 1000)) {
            Ok((times, complete)) => times.len() < 60 && !complete,
            Err(error) => matches!(error, Error::Corrupt(_)),
        };
        assert!(told, "file {cut}");
    }
}

#[test]
fn every_key_of_a_message_is_found_however_many_it_has() {
    let keys = |number: usize| {
        (0..2000).map(|key| format!("k{number}x{key}")).collect::<Vec<_>>().join(" ")
    };
    let home = Home::new(StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        max_index_num: Some(1500),
        ..small()
    });
    let store = home.create();
    (0..3).for_each(|number| append(&home, &store, number, &keys(number)));
    let asked = |store: &MessageStore| {
        for (number, key) in [(0, 0), (1, 1023), (1, 1024), (2, 1999)] {
            let key = format!("k{number}x{key}");
            assert_eq!(ask(store, (&key, 0, 1000)).unwrap(), (vec![number], true), "{key}");
        }
    };
    asked(&store);
    store.close().unwrap();
    asked(&home.read());
    assert!(home.verify(&VerifyOptions::default()).ok);
    // Made again from the log it has them all too.
    fs::remove_dir_all(home.path().join("index")).unwrap();
    asked(&home.write());
    assert!(home.verify(&VerifyOptions::default()).ok);
}

#[test]
fn a_question_asked_again_loses_no_key_of_the_last_message() {
    let keys: Vec<_> = (0..300).map(|number| format!("k{number}")).collect();
    let home = made(2000, 1, |_| keys.join(" "));
    let path = home.index_files()[0].clone();
    let damages = keys.iter().map(|key| (key.as_str(), slot(&home, key), [0; 4]));
    let begins = [(keys[0].as_str(), (0, 4), [0x7F; 4])].into_iter();
    for (key, (at, _), bytes) in damages.chain(begins) {
        let old = fs::read(&path).unwrap();
        patch(&path, at, &bytes);
        let reader = home.read();
        for _ in 0..3 {
            match ask(&reader, (key, 0, 1)) {
                Ok((times, complete)) => assert!(times == [0] || !complete, "{key}"),
                Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{error}"),
            }
        }
        patch(&path, at, &old[usize::try_from(at).unwrap()..][..4]);
    }
}
