//! Hostile input, rows HQ, and acceptance case CQ09: queue files of any bytes.

use std::collections::BTreeSet;
use std::fs;

use mqstore::care::{VerifyOptions, VerifyReport};
use mqstore::store::read::queue_read::view_of;
use mqstore::store::{Boundary, MessageStore};

use crate::support::{Home, body, check, names_in, places, read_queue, set_len};

fn look(home: &Home) -> VerifyReport {
    home.verify(&VerifyOptions::default())
}

/// The bodies that a read of queue 1 gives.
fn bodies(store: &MessageStore) -> Vec<Vec<u8>> {
    let from = store.queue(b"Topic", 1).unwrap().map_or(0, |queue| queue.min_offset);
    let read = read_queue(store, 1, from);
    read.records.iter().map(|record| view_of(record).unwrap().body().to_vec()).collect()
}

/// The bodies that queue 1 of a store of `count` messages holds.
fn expected(count: usize) -> Vec<Vec<u8>> {
    (0..count).filter(|number| number % 4 == 1).map(body).collect()
}

/// Damages queue 1 of a store of 100 messages and sees what comes of it: a reader gives no message
/// that does not belong there and at most `lost` fewer, verify names it, a writer makes it whole.
fn damaged(what: &str, lost: usize, damage: impl Fn(&Home)) {
    let home = Home::closed(100);
    damage(&home);
    let before = home.snapshot();
    let reader = home.read();
    let (found, wanted) = (bodies(&reader), expected(100));
    let missing = wanted.iter().filter(|body| !found.contains(body)).count();
    assert!(missing <= lost, "{what}: {missing} are missing");
    assert_eq!(found.len() + missing, wanted.len(), "{what}: what does not belong there");
    // Whatever lies there, searches end.
    for time in [0, crate::support::START_MS + 50_000, i64::MAX] {
        for boundary in [Boundary::Lower, Boundary::Upper] {
            let number = reader.offset_at(b"Topic", 1, time, boundary).unwrap();
            assert!((0..=25).contains(&number), "{what}: {number}");
        }
    }
    drop(reader);
    let report = look(&home);
    assert!(!report.ok, "{what}");
    assert!(
        report.findings.iter().any(|finding| finding.path.starts_with("consumequeue/Topic/1")),
        "{what}: {:?}",
        report.findings
    );
    assert!(home.snapshot() == before, "{what}: a reader changed something");
    let store = home.write();
    check(&store, 100);
    store.close().unwrap();
    let report = look(&home);
    assert!(report.ok, "{what}, after it was mended: {:?}", report.findings);
    let store = home.write();
    assert_eq!(store.recovery().unwrap().rebuilt, Vec::<String>::new(), "{what}");
    home.fill(&store, 100..120);
    check(&store, 120);
}

#[test]
fn hq01_entries_that_lead_to_no_message() {
    for number in [0, 3, 13, 24] {
        for offset in [-1, i64::MIN, i64::MAX, 1 << 40, 1] {
            damaged(&format!("entry {number} to {offset}"), 1, |home| {
                home.put_entry(1, number, offset, 132, 0);
            });
        }
    }
    // Before the log's first file.
    let home = Home::closed(100);
    fs::remove_file(home.log_file(0).0).unwrap();
    let first = 4096;
    let gone = places(&home).first().map(|(at, _)| *at).unwrap();
    assert_eq!(gone, first);
    let reader = home.read();
    let view = reader.queue(b"Topic", 1).unwrap().unwrap();
    assert!(view.min_offset > 0);
    let read = read_queue(&reader, 1, view.min_offset);
    assert!(read.records.iter().all(|r| view_of(r).unwrap().physical_offset() >= 4096));
    assert!(look(&home).ok);
}

#[test]
fn hq02_sizes_that_are_not_the_message_s() {
    let offset =
        |home: &Home, number: usize| i64::try_from(places(home)[number * 4 + 1].0).unwrap();
    for number in [0_u64, 3, 24] {
        for size in [0, -1, i32::MIN, i32::MAX, 91, 133] {
            damaged(&format!("entry {number} of {size}"), 1, |home| {
                let at = offset(home, usize::try_from(number).unwrap());
                home.put_entry(1, number, at, size, 0);
            });
        }
    }
}

#[test]
fn hq03_entries_that_lead_to_other_messages() {
    for number in [0_u64, 3, 24] {
        for other in [0_usize, 2, 5, 98] {
            damaged(&format!("entry {number} to message {other}"), 1, |home| {
                let (at, size) = places(home)[other];
                let size = i32::try_from(size).unwrap();
                home.put_entry(1, number, i64::try_from(at).unwrap(), size, 0);
            });
        }
    }
}

#[test]
fn hq04_entries_out_of_order() {
    damaged("the first ten backwards", 10, |home| {
        let all = places(home);
        for number in 0..10_u64 {
            let (at, size) = all[usize::try_from(9 - number).unwrap() * 4 + 1];
            let size = i32::try_from(size).unwrap();
            home.put_entry(1, number, i64::try_from(at).unwrap(), size, 0);
        }
    });
}

#[test]
fn hq05_and_cq09_files_without_whole_entries() {
    for len in [0, 7, 20, 59, 199, 207] {
        damaged(&format!("the last file of {len} bytes"), 5, |home| {
            set_len(&home.queue_file(1, 24).0, len);
        });
        damaged(&format!("the first file of {len} bytes"), 10, |home| {
            set_len(&home.queue_file(1, 0).0, len);
        });
    }
    damaged("an empty file behind the last", 0, |home| {
        let last = home.queue_file(1, 30).0;
        fs::write(last, []).unwrap();
    });
}

#[test]
fn cq09_a_file_between_two_names_goes_although_its_entries_are_right() {
    damaged("a file named 20", 0, |home| {
        let first = home.queue_file(1, 0).0;
        let mut bytes = fs::read(&first).unwrap().split_off(20);
        bytes.resize(200, 0);
        fs::write(first.with_file_name(format!("{:020}", 20)), bytes).unwrap();
    });
}

#[test]
fn cq09_an_empty_file_for_entries_to_come_is_no_fault() {
    // RocketMQ makes the next file before its first entry comes.
    let home = Home::closed(100);
    let next = home.queue_file(1, 30).0;
    fs::write(&next, []).unwrap();
    set_len(&next, 200);
    assert!(look(&home).ok, "{:?}", look(&home).findings);
    check(&home.read(), 100);
    let store = home.write();
    check(&store, 100);
    home.fill(&store, 100..140);
    check(&store, 140);
}

#[test]
fn hq06_zeros_end_a_queue() {
    damaged("a file of zeros in the middle", 20, |home| {
        fs::write(home.queue_file(1, 10).0, [0; 200]).unwrap();
    });
    damaged("one entry of zeros", 22, |home| home.put_entry(1, 3, 0, 0, 0));
    damaged("all of it zeros", 25, |home| {
        for path in names_in(&home.path().join("consumequeue/Topic/1")) {
            fs::write(path, [0; 200]).unwrap();
        }
    });
}

#[test]
fn a_queue_of_any_bytes_is_made_whole() {
    let mut seed = 20_261_121_u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let mut shapes = BTreeSet::new();
    for round in 0..40 {
        let home = Home::closed(100);
        let what = next() % 4;
        shapes.insert(what);
        for path in names_in(&home.path().join("consumequeue/Topic/1")) {
            let mut bytes = fs::read(&path).unwrap();
            match what {
                0 => bytes.iter_mut().for_each(|byte| *byte = next().to_be_bytes()[7]),
                1 => bytes.fill(0xff),
                2 => bytes.rotate_left(usize::try_from(next() % 200).unwrap()),
                _ => bytes.truncate(usize::try_from(next() % 200).unwrap()),
            }
            fs::write(&path, bytes).unwrap();
        }
        let reader = home.read();
        let (found, wanted) = (bodies(&reader), expected(100));
        assert!(found.iter().all(|body| wanted.contains(body)), "round {round}");
        drop(reader);
        look(&home);
        let store = home.write();
        check(&store, 100);
        store.close().unwrap();
        let report = look(&home);
        assert!(report.ok, "round {round}: {:?}", report.findings);
    }
    assert_eq!(shapes.len(), 4);
}
