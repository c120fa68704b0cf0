//! Hostile input, rows HC: records and log files of any bytes, to a reader, to a writer and to verify.

use std::fs;

use mqstore::Error;
use mqstore::care::{Code, VerifyOptions, VerifyReport};
use mqstore::format::message::{Frame, FrameError, read_frame};
use mqstore::log::read::scanner::{Flow, Resync, Stop};
use mqstore::store::read::queue_read::view_of;
use mqstore::store::{MessageStore, NewMessage, OpenMode};
use mqstore::time::Clock;

use crate::support::{
    Home, body, check_queues, names_in, places, read_queue, scan, set_len, small,
};

fn look(home: &Home) -> VerifyReport {
    home.verify(&VerifyOptions::default())
}

/// First damage that a walk over the log reports.
fn first_damage(store: &MessageStore) -> mqstore::error::Corruption {
    let mut scanner = store.scanner(0);
    match scanner.each(store.log(), u64::MAX, Resync::Never, |_, _| Ok(Flow::Continue)).unwrap() {
        Some(Stop::Damage(corruption)) => corruption,
        stop => panic!("{stop:?}"),
    }
}

/// Damages message 5 of 20 and sees what comes of it: a reader goes on behind it, a writer refuses and
/// touches nothing, verify names it.
fn damaged(what: &str, damage: impl Fn(&Home, u64), code: Code, kind: &str) {
    let home = Home::closed(20);
    let (at, size) = places(&home)[5];
    damage(&home, at);
    let before = home.snapshot();
    let reader = home.read();
    let corruption = first_damage(&reader);
    assert_eq!(corruption.kind.name(), kind, "{what}");
    assert!((at..at + size).contains(&corruption.offset), "{what}: {corruption}");
    let (bodies, count) = scan(&reader);
    assert_eq!((bodies.len(), count), (19, 1), "{what}");
    assert_eq!(bodies[5], body(6), "{what}");
    drop(reader);
    let report = look(&home);
    let of_code = report.findings.iter().filter(|finding| finding.code == code).count();
    assert_eq!(of_code, 1, "{what}: {:?}", report.findings);
    let error = home.open(OpenMode::ReadWrite).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{what}: {error}");
    assert!(error.to_string().contains("14 whole messages"), "{what}: {error}");
    assert!(unchanged(&home, &before), "{what}: a refused open changed something");
}

/// Whether all files are as they were; the lock file is the one that a refused writer leaves.
fn unchanged(home: &Home, before: &[(std::path::PathBuf, Vec<u8>)]) -> bool {
    home.snapshot() == before
}

#[test]
fn hc01_impossible_sizes() {
    for (size, kind) in [
        (0, "size"),
        (-1, "size"),
        (i32::MIN, "size"),
        (90, "size"),
        (4096, "truncated"),
        (i32::MAX, "truncated"),
    ] {
        let damage = |home: &Home, at| home.patch(at, &size.to_be_bytes());
        damaged(&format!("size {size}"), damage, Code::LogFrame, kind);
    }
}

#[test]
fn hc01_a_size_allocates_nothing() {
    // Whatever a record claims, no more is asked for than there is.
    for size in [91, 1 << 20, i32::MAX] {
        let mut head = vec![0; 100];
        head[..4].copy_from_slice(&i32::to_be_bytes(size));
        head[4..8].copy_from_slice(&0xDAA3_20A7_u32.to_be_bytes());
        match read_frame(&head) {
            Err(FrameError::Incomplete { needed }) => {
                assert_eq!(needed, usize::try_from(size).unwrap());
            }
            Err(FrameError::Bad(_)) => assert_eq!(size, 91),
            Ok(Frame::Message(_) | Frame::Blank { .. } | Frame::Empty) => panic!("{size}"),
        }
    }
}

#[test]
fn hc02_unknown_magic_codes() {
    for magic in [0_u32, 1, 0xDAA3_20A8, 0xFFFF_FFFF] {
        let damage = |home: &Home, at| home.patch(at + 4, &magic.to_be_bytes());
        damaged(&format!("magic {magic:#x}"), damage, Code::LogFrame, "magic");
    }
}

#[test]
fn hc03_blanks_that_end_too_early_or_too_late() {
    for size in [8_i32, 100, 5000, i32::MAX] {
        let damage = |home: &Home, at| {
            home.patch(at, &size.to_be_bytes());
            home.patch(at + 4, &0xCBD4_3194_u32.to_be_bytes());
        };
        damaged(&format!("blank of {size}"), damage, Code::LogBlank, "blank");
    }
    for size in [0_i32, -1] {
        let damage = |home: &Home, at| {
            home.patch(at, &size.to_be_bytes());
            home.patch(at + 4, &0xCBD4_3194_u32.to_be_bytes());
        };
        damaged(&format!("blank of {size}"), damage, Code::LogFrame, "blank");
    }
}

#[test]
fn hc04_body_lengths_that_do_not_add_up() {
    for (length, kind) in [
        (-1, "body-length"),
        (i32::MAX, "body-length"),
        (4096, "body-length"),
        (i32::MIN, "body-length"),
    ] {
        let damage = |home: &Home, at| home.patch(at + 84, &length.to_be_bytes());
        damaged(&format!("body of {length}"), damage, Code::LogFrame, kind);
    }
}

#[test]
fn hc05_topic_lengths_that_cannot_be() {
    let topic_at = |at: u64| at + 88 + body(5).len() as u64;
    for length in [0_u8, 127, 0x80, 0xff] {
        let damage = |home: &Home, at| home.patch(topic_at(at), &[length]);
        damaged(&format!("topic of {length}"), damage, Code::LogFrame, "topic-length");
    }
    // A record of version 2 reads two bytes there.
    let damage = |home: &Home, at| {
        home.patch(at + 4, &0xDAA3_20AB_u32.to_be_bytes());
        home.patch(topic_at(at), &[0x7f, 0xff]);
    };
    damaged("topic of 32767", damage, Code::LogFrame, "topic-length");
}

#[test]
fn hc06_properties_lengths_that_cannot_be() {
    let properties_at = |at: u64| at + 89 + body(5).len() as u64 + 5;
    for length in [-1_i16, i16::MIN, i16::MAX, 200] {
        let damage = |home: &Home, at| home.patch(properties_at(at), &length.to_be_bytes());
        damaged(&format!("properties of {length}"), damage, Code::LogFrame, "properties-length");
    }
    let damage = |home: &Home, at| home.patch(properties_at(at), &1_i16.to_be_bytes());
    damaged("properties of 1", damage, Code::LogFrame, "length");
}

#[test]
fn hc07_records_that_name_another_place() {
    for place in [0_i64, -1, i64::MAX, 4096] {
        let damage = |home: &Home, at| home.patch(at + 28, &place.to_be_bytes());
        damaged(&format!("place {place}"), damage, Code::LogPlace, "physical-offset");
    }
}

#[test]
fn hc08_bodies_that_are_not_the_stored_ones() {
    damaged("a body", |home, at| home.flip(at + 88), Code::LogBody, "body-crc");
    damaged("a checksum", |home, at| home.flip(at + 10), Code::LogBody, "body-crc");
    // A reader that asks for it gets the error; the others are read.
    let home = Home::closed(20);
    let (at, _) = places(&home)[5];
    home.flip(at + 88);
    let error = home.read().get(i64::try_from(at).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

/// Opens a store whose message 5 (the second of queue 1) was changed, its queues taken away, for
/// reading and for writing; gives the numbers that queue 1 has then.
fn redispatched(home: &Home) -> Vec<i64> {
    fs::remove_dir_all(home.path().join("consumequeue")).unwrap();
    let numbers = |store: &MessageStore| -> Vec<i64> {
        let from = store.queue(b"Topic", 1).unwrap().unwrap().min_offset;
        assert!(from >= 0, "{from}");
        read_queue(store, 1, from)
            .records
            .iter()
            .map(|record| view_of(record).unwrap().queue_offset())
            .collect()
    };
    let reading = numbers(&home.read());
    let store = home.write();
    let writing = numbers(&store);
    assert_eq!(reading, writing, "a reader and a writer differ");
    // Nothing else is held up, and none of it is found wrong again by the next open.
    for queue in [0, 2, 3] {
        assert_eq!(read_queue(&store, queue, 0).records.len(), 5, "queue {queue}");
    }
    assert_eq!(store.dispatched_offset().unwrap(), store.end_offset());
    let end = store.queue(b"Topic", 1).unwrap().unwrap().max_offset;
    let mut message = NewMessage::new(b"Topic", b"next");
    message.queue_id = 1;
    assert_eq!(store.append(&message).unwrap().queue_offset, end);
    store.close().unwrap();
    let again = home.write();
    assert_eq!(again.recovery().unwrap().rebuilt, Vec::<String>::new());
    again.close().unwrap();
    writing
}

/// The names of all folders and files of the queues.
fn queue_files(home: &Home) -> Vec<String> {
    let mut found = Vec::new();
    for topic in names_in(&home.path().join("consumequeue")) {
        for queue in names_in(&topic) {
            for file in names_in(&queue) {
                let below = file.strip_prefix(home.path()).unwrap();
                found.push(below.to_str().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn hc10_queue_offsets_that_no_queue_can_have() {
    let home = Home::closed(20);
    for number in [-1_i64, i64::MIN, i64::MAX, i64::MAX / 20, 1_000_000, 0] {
        let copy = home.copy();
        let (at, _) = places(&copy)[9];
        copy.patch(at + 20, &number.to_be_bytes());
        let report = look(&copy);
        assert!(!report.ok, "{number}");
        // RocketMQ appends the third message under any number that a file can have.
        let third = Some(number).filter(|number| (3..i64::MAX / 10).contains(number));
        let expected: Vec<_> = [0, 1].into_iter().chain(third).chain([3, 4]).collect();
        assert_eq!(redispatched(&copy), expected, "{number}");
        let files = queue_files(&copy);
        let usual = ["00000000000000000000"];
        assert!(
            files.iter().all(|file| usual.iter().any(|name| file.ends_with(name))),
            "{files:?}"
        );
        let report = look(&copy);
        let told = [Code::LogNumber, Code::LogTwice, Code::QueueOther, Code::QueueShifted];
        assert!(told.iter().any(|code| report.found.contains_key(code)), "{number}: {report:?}");
    }
    // The first record of all.
    let copy = home.copy();
    let (at, _) = places(&copy)[1];
    copy.patch(at + 20, &(-5_i64).to_be_bytes());
    assert_eq!(redispatched(&copy), [1, 2, 3, 4]);
}

#[test]
fn hc11_queue_numbers_that_no_queue_can_have() {
    let home = Home::closed(20);
    for queue in [-1_i32, i32::MIN, (1 << 30) + 1, i32::MAX] {
        let copy = home.copy();
        let (at, _) = places(&copy)[17];
        copy.patch(at + 12, &queue.to_be_bytes());
        let report = look(&copy);
        assert!(report.found.contains_key(&Code::LogNumber), "{queue}: {:?}", report.findings);
        assert_eq!(redispatched(&copy), [0, 1, 2, 3], "{queue}");
        let folders = names_in(&copy.path().join("consumequeue/Topic"));
        assert_eq!(folders.len(), 4, "{folders:?}");
    }
}

#[test]
fn hc12_times_of_any_value_are_numbers() {
    let home = Home::closed(20);
    for time in [-1_i64, i64::MIN, i64::MAX, 253_402_300_800_000] {
        let copy = home.copy();
        for (at, _) in places(&copy) {
            copy.patch(at + 40, &time.to_be_bytes());
            copy.patch(at + 56, &time.to_be_bytes());
        }
        let reader = copy.read();
        let read = read_queue(&reader, 0, 0);
        assert_eq!(read.records.len(), 5);
        let view = view_of(&read.records[0]).unwrap();
        assert_eq!((view.born_timestamp_ms(), view.store_timestamp_ms()), (time, time));
        for boundary in [mqstore::store::Boundary::Lower, mqstore::store::Boundary::Upper] {
            reader.offset_at(b"Topic", 0, time, boundary).unwrap();
            reader.offset_at(b"Topic", 0, 0, boundary).unwrap();
        }
        let report = look(&copy);
        assert_eq!(report.counts.messages, 20);
        fs::remove_dir_all(copy.path().join("consumequeue")).unwrap();
        fs::remove_dir_all(copy.path().join("index")).unwrap();
        let store = copy.write();
        let whole: Vec<usize> = (0..20).collect();
        check_queues(&store, &whole);
        let result = store.append(&NewMessage::new(b"Topic", b"x")).unwrap();
        // None of these times is taken over.
        assert_eq!(result.store_timestamp_ms, home.clock.now_ms());
    }
}

#[test]
fn hc16_of_two_records_with_one_number_the_first_wins() {
    let home = Home::closed(20);
    for (second, number) in [(9, 1_i64), (9, 0), (17, 3)] {
        let copy = home.copy();
        let (at, _) = places(&copy)[second];
        copy.patch(at + 20, &number.to_be_bytes());
        let report = look(&copy);
        assert!(report.found.contains_key(&Code::LogTwice), "{number}: {:?}", report.findings);
        let expected: Vec<i64> =
            (0..5).filter(|other| *other != i64::try_from(second / 4).unwrap()).collect();
        assert_eq!(redispatched(&copy), expected, "{number}");
        let store = copy.read();
        let read = read_queue(&store, 1, number);
        let first = usize::try_from(number).unwrap() * 4 + 1;
        assert_eq!(view_of(&read.records[0]).unwrap().body(), body(first));
    }
    // One too many: those behind it keep their numbers.
    let copy = home.copy();
    let all = places(&copy);
    for (record, number) in [(9, 0_i64), (13, 2), (17, 3)] {
        copy.patch(all[record].0 + 20, &number.to_be_bytes());
    }
    assert_eq!(redispatched(&copy), [0, 1, 2, 3]);
}

#[test]
fn hc18_names_that_are_no_place_in_the_log() {
    let home = Home::closed(60);
    let whole: Vec<usize> = (0..60).collect();
    let log = |home: &Home| home.path().join("commitlog");
    // Names that no store makes are passed over.
    for name in
        ["0", "notes.txt", "9999999999999999999x", "99999999999999999999", "-0000000000000000001"]
    {
        let copy = home.copy();
        fs::write(log(&copy).join(name), [1; 4096]).unwrap();
        check_queues(&copy.read(), &whole);
        let report = look(&copy);
        assert!(report.found.contains_key(&Code::StrayName), "{name}: {:?}", report.findings);
        assert_eq!(report.counts.messages, 60);
        let store = copy.write();
        check_queues(&store, &whole);
        assert!(store.warnings().iter().any(|warning| warning.contains(name)), "{name}");
    }
    // Gaps and overlaps are refused for writing, and read on both sides.
    let copy = home.copy();
    fs::remove_file(log(&copy).join("00000000000000004096")).unwrap();
    assert!(look(&copy).found.contains_key(&Code::FileGap));
    let error = copy.open(OpenMode::ReadWrite).unwrap_err().to_string();
    assert!(error.contains("00000000000000004096"), "{error}");
    let (bodies, damage) = scan(&copy.read());
    assert!(damage == 1 && bodies.len() < 60 && bodies.contains(&body(59)), "{}", bodies.len());
    let copy = home.copy();
    fs::copy(log(&copy).join("00000000000000004096"), log(&copy).join("00000000000000004196"))
        .unwrap();
    assert!(look(&copy).found.contains_key(&Code::FileGap));
    assert!(copy.open(OpenMode::ReadWrite).is_err());
}

#[test]
fn hc19_files_shorter_or_longer_than_the_others() {
    let home = Home::closed(90);
    for len in [1000, 4095, 5000] {
        let copy = home.copy();
        set_len(&copy.log_file(4096).0, len);
        let report = look(&copy);
        assert!(report.found.contains_key(&Code::FileLength), "{len}: {:?}", report.findings);
        let before = copy.snapshot();
        let error = copy.open(OpenMode::ReadWrite).unwrap_err().to_string();
        assert!(error.contains("00000000000000004096") && error.contains("4096 bytes"), "{error}");
        assert!(error.contains(&len.to_string()), "{error}");
        assert!(unchanged(&copy, &before), "{len}");
        let (bodies, _) = scan(&copy.read());
        assert!(bodies.contains(&body(0)) && bodies.contains(&body(89)), "{len}");
        if len > 4096 {
            assert_eq!(bodies.len(), 90);
        }
    }
}

#[test]
fn hc_scan_is_bounded_on_bytes_that_look_like_records() {
    // Magic codes everywhere, each with the size of all that follows.
    let mut config = small();
    config.mapped_file_size_commit_log = Some(1 << 20);
    let home = Home::new(config);
    let store = home.create();
    home.fill(&store, 0..4);
    let end = usize::try_from(store.end_offset()).unwrap();
    store.close().unwrap();
    let mut bytes = vec![0; (1 << 20) - end - 64];
    let len = bytes.len();
    for at in (0..len - 64).step_by(40) {
        let size = u32::try_from(len - at).unwrap();
        bytes[at..at + 4].copy_from_slice(&size.to_be_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&0xDAA3_20A7_u32.to_be_bytes());
        bytes[at + 28..at + 36].copy_from_slice(&((end + 3 + at) as u64).to_be_bytes());
    }
    home.patch(end as u64 + 3, &bytes);
    let (bodies, _) = scan(&home.read());
    assert_eq!(bodies.len(), 4);
    assert!(!look(&home).ok);
    assert_eq!(places(&home).len(), 4);
}
