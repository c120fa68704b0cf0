//! Retention by age where a clock was wrong.

use std::fs;
use std::time::{Duration, SystemTime};

use mqstore::config::{Retention, StoreConfig};
use mqstore::store::write::retention::{Fate, Occasion};
use mqstore::store::{MessageStore, NewMessage};

use crate::retention::{EMPTY, NOW_MS, config, limits, occasion};
use crate::support::{Home, names_in};

/// A store with one message in each file, stored by a clock that showed `times`. Each file was last
/// written at the time in `modified`.
fn stored_at(config: StoreConfig, times: &[i64], modified: &[i64]) -> (Home, MessageStore) {
    let mut home = Home::new(StoreConfig { keep_hours: None, ..config.clone() });
    home.clock.set(NOW_MS);
    let store = home.create();
    for (number, &given) in times.iter().enumerate() {
        put_at(&store, number, given);
    }
    store.close().unwrap();
    // Nothing is old by this clock, so that the store's own thread deletes nothing.
    home.clock.set(0);
    home.config = config;
    let store = home.write();
    for (path, &modified) in names_in(&home.path().join("commitlog")).iter().zip(modified) {
        let file = fs::File::options().write(true).open(path).unwrap();
        let since = Duration::from_millis(modified.unsigned_abs());
        file.set_modified(SystemTime::UNIX_EPOCH + since).unwrap();
    }
    (home, store)
}

fn put_at(store: &MessageStore, number: usize, store_ms: i64) {
    let body = vec![b'a' + u8::try_from(number % 26).unwrap(); 120 - 91 - 5];
    let mut message = NewMessage::new(b"Topic", &body);
    message.store_timestamp_ms = Some(store_ms);
    store.append(&message).unwrap();
}

const HOUR_MS: i64 = 3_600_000;

fn hours_ago(hours: i64) -> i64 {
    NOW_MS - hours * HOUR_MS
}

#[test]
fn a_wrong_clock_deletes_nothing_by_hours() {
    let right: Vec<_> = [100, 90, 10, 9, 8, 7].map(hours_ago).to_vec();
    let year_2040 = 2_208_988_800_000;
    // Number of the wrong file, its store time, its modification time, and the files that go.
    let cases = [
        // 1970, 2000, and a modification time of that clock.
        (0, 5_000, NOW_MS, 0),
        (0, 5_000, 5_000, 2),
        (2, 5_000, hours_ago(10), 2),
        (2, 5_000, 5_000, 2),
        (2, 946_684_800_000, 946_684_800_000, 2),
        (4, 0, 0, 2),
        // Set back by a month: the second file is what shows it.
        (2, hours_ago(800), hours_ago(800), 1),
        // The future, with a modification time that is right, or as wrong.
        (1, year_2040, hours_ago(10), 1),
        (1, year_2040, hours_ago(80), 2),
        (1, year_2040, year_2040, 1),
        (0, year_2040, hours_ago(100), 2),
    ];
    for (number, store_ms, modified_ms, goes) in cases {
        let (mut times, mut modified) = (right.clone(), right.clone());
        (times[number], modified[number]) = (store_ms, modified_ms);
        let (_home, store) = stored_at(limits(Some(72), None), &times, &modified);
        let case = format!("file {number} at {store_ms}, modified {modified_ms}");
        for _ in 0..3 {
            // No later round deletes more.
            let judged = store.judge(&occasion(EMPTY)).unwrap();
            store.clean_step(&occasion(EMPTY)).unwrap();
            assert_eq!(store.log().min_offset(), judged.new_log_start, "{case}");
        }
        assert_eq!(store.log().min_offset(), goes * 128, "{case}");
    }
}

#[test]
fn a_clock_that_is_years_ahead_or_before_all_data_makes_nothing_old() {
    let times = [100, 90, 80, 0].map(hours_ago);
    let (_home, store) = stored_at(limits(Some(200), None), &times, &times);
    let year_ms = 365 * 24 * HOUR_MS;
    for (now_ms, fate) in [
        (4_102_444_800_000, Fate::ClockAhead),
        (NOW_MS + 2 * year_ms, Fate::ClockAhead),
        (5_000, Fate::Kept),
    ] {
        let wrong = Occasion { now_ms, ..occasion(EMPTY) };
        let judged = store.judge(&wrong).unwrap();
        assert_eq!(judged.new_log_start, 0, "{now_ms}");
        if fate == Fate::ClockAhead {
            assert_eq!(judged.files[0].fate, fate, "{now_ms}");
        }
        assert!(store.clean_step(&wrong).unwrap().is_empty(), "{now_ms}");
    }
    // A store that rested for months still ages.
    let rested = Occasion { now_ms: NOW_MS + year_ms / 2, ..occasion(EMPTY) };
    assert_eq!(store.clean_step(&rested).unwrap().log_files, 3);
}

#[test]
fn a_modification_time_of_a_wrong_clock_deletes_nothing_by_rocketmq_s_rules() {
    let right = [100, 90, 10, 9, 8].map(hours_ago);
    // Number of the wrong file, its modification time, and the files that go.
    for (number, modified_ms, goes) in [
        (0, 0, 2),
        (1, 5_000, 1),
        (2, 5_000, 2),
        (2, hours_ago(800), 1),
        (1, NOW_MS + 100 * HOUR_MS, 1),
        (3, 0, 2),
    ] {
        let mut modified = right;
        modified[number] = modified_ms;
        let rules = StoreConfig { retention: Some(Retention::RocketMq), ..config(true) };
        let (_home, store) = stored_at(rules, &right, &modified);
        for _ in 0..3 {
            store.clean_step(&occasion(EMPTY)).unwrap();
        }
        assert_eq!(store.log().min_offset(), goes * 128, "file {number} at {modified_ms}");
    }
}
