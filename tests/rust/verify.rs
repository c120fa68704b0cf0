//! `verify`: a sound store has no findings, every kind of damage has its own, and nothing is written.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;

use mqstore::care::{Code, Level, Severity, VerifyOptions, VerifyReport, verify};
use mqstore::store::OpenMode;

use crate::support::{Home, append, body, flip, patch, places, scan, set_len, small};

fn look(home: &Home) -> VerifyReport {
    look_as(home, &VerifyOptions { threads: Some(2), ..VerifyOptions::default() })
}

fn look_as(home: &Home, options: &VerifyOptions) -> VerifyReport {
    home.verify(options)
}

/// The codes found, with how often.
fn found(home: &Home) -> BTreeMap<Code, u64> {
    look(home).found
}

fn one(code: Code) -> BTreeMap<Code, u64> {
    BTreeMap::from([(code, 1)])
}

#[test]
fn a_sound_store_has_no_findings() {
    let home = Home::closed(300);
    let before = home.snapshot();
    for level in [Level::Quick, Level::Full] {
        let options = VerifyOptions { level, ..VerifyOptions::default() };
        let report = look_as(&home, &options);
        assert_eq!(report.findings, [], "{}", level.name());
        assert!(report.ok);
        assert_eq!(report.counts.messages, 300);
        assert_eq!(report.counts.log_bytes, home.read().end_offset());
        assert_eq!(report.counts.queues, 4);
        if level == Level::Full {
            assert_eq!(report.counts.queue_entries, 300);
            assert_eq!(report.counts.index_entries, 300);
        }
    }
    assert!(home.snapshot() == before, "verify wrote something");
}

#[test]
fn an_open_store_and_a_killed_one_are_sound() {
    let home = Home::new(small());
    let store = home.create();
    home.fill(&store, 0..100);
    let report = look(&home);
    assert!(report.ok, "{:?}", report.findings);
    assert!(report.found.contains_key(&Code::InUse));
    assert_eq!(report.counts.messages, 100);
    store.hold_dispatch(true);
    home.fill(&store, 100..110);
    let report = look(&home);
    assert!(report.ok, "{:?}", report.findings);
    assert!(report.found.contains_key(&Code::QueueTail));
    let copy = home.copy();
    let report = look(&copy);
    assert!(report.ok, "{:?}", report.findings);
    assert!(report.found.contains_key(&Code::NotClosed));
}

#[test]
fn a_changed_bit_in_each_field_is_found() {
    let home = Home::closed(40);
    let (place, _) = places(&home)[5];
    for (field, at, expected) in [
        ("size", 3, Code::LogFrame),
        ("magic", 5, Code::LogFrame),
        ("body checksum", 9, Code::LogBody),
        ("queue offset", 27, Code::QueueShifted),
        ("physical offset", 34, Code::LogPlace),
        ("body length", 87, Code::LogFrame),
        ("body", 90, Code::LogBody),
        ("topic length", 88 + body(5).len() as u64, Code::LogFrame),
    ] {
        let copy = home.copy();
        copy.flip(place + at);
        let report = look(&copy);
        assert!(report.found.contains_key(&expected), "{field}: {:?}", report.findings);
        let first = report.findings.iter().find(|finding| finding.code == expected).unwrap();
        // The queue leads to the message all the same.
        let is_shift = expected == Code::QueueShifted;
        let severity = if is_shift { Severity::Warning } else { Severity::Error };
        assert_eq!((first.severity, report.ok), (severity, false), "{field}");
        assert_eq!(
            report.counts.messages,
            if expected == Code::LogFrame || expected == Code::LogPlace { 39 } else { 40 }
        );
        assert_eq!(report.findings.len(), 1, "{field}: {:?}", report.findings);
        if !is_shift {
            assert!(first.path.starts_with("commitlog"), "{field}");
            let offset = first.offset.unwrap();
            assert!((place..place + 200).contains(&offset), "{field} at {offset}");
        }
    }
}

#[test]
fn a_thousand_damages_are_a_thousand_findings() {
    let home = Home::new(small());
    let store = home.create();
    let places: Vec<_> = home
        .fill(&store, 0..3000)
        .iter()
        .map(|result| u64::try_from(result.physical_offset).unwrap())
        .collect();
    store.close().unwrap();
    // Neighbours too, and every kind of field.
    let fields = [1, 3, 5, 9, 33, 90];
    for damage in 0..1000 {
        let record = damage * 3 / 2;
        home.flip(places[record] + fields[damage % fields.len()]);
    }
    let report = look(&home);
    let in_log = |finding: &&mqstore::care::Finding| finding.path.starts_with("commitlog");
    assert_eq!(report.findings.iter().filter(in_log).count(), 1000, "{:?}", report.found);
    // Unlisted findings are counted too.
    let options = VerifyOptions { most_findings: 10, ..VerifyOptions::default() };
    let short = look_as(&home, &options);
    assert_eq!(short.findings.len(), 10);
    assert_eq!(short.found, report.found);
    let again = look_as(&home, &VerifyOptions { threads: Some(1), ..options });
    assert_eq!(again.findings, short.findings);
}

#[test]
fn damage_of_queue_entries_is_named_one_by_one() {
    let home = Home::closed(100);
    let offset = |number: usize| {
        let store = home.read();
        let view = store.queue(b"Topic", 1).unwrap().unwrap();
        view.units(i64::try_from(number).unwrap(), 1).unwrap()[0].entry()
    };
    let (third, fourth) = (offset(3), offset(4));
    for (what, entry, code) in [
        ("inside a record", (third.physical_offset + 1, third.store_size, 0), Code::QueueNowhere),
        ("behind the log", (1 << 40, third.store_size, 0), Code::QueueNowhere),
        ("another's", (fourth.physical_offset, fourth.store_size, 0), Code::QueueOther),
        ("size", (third.physical_offset, third.store_size + 1, 0), Code::QueueSize),
        ("no size", (third.physical_offset, 0, 0), Code::QueueNowhere),
        ("negative", (-1, third.store_size, 0), Code::QueueNowhere),
        ("tags", (third.physical_offset, third.store_size, 77), Code::QueueTags),
        ("a hole", (0, 0, 0), Code::QueueHole),
    ] {
        let copy = home.copy();
        copy.put_entry(1, 3, entry.0, entry.1, entry.2);
        let report = look(&copy);
        let of_code: Vec<_> =
            report.findings.iter().filter(|finding| finding.code == code).collect();
        assert_eq!(of_code.len(), 1, "{what}: {:?}", report.findings);
        assert_eq!(of_code[0].offset, Some(60), "{what}");
        assert!(of_code[0].path.ends_with("consumequeue/Topic/1/00000000000000000000"));
        // Out of order is a finding of its own.
        let others =
            report.findings.iter().filter(|f| f.code != code && f.code != Code::QueueOrder);
        assert_eq!(others.count(), 0, "{what}: {:?}", report.findings);
    }
}

#[test]
fn queues_that_are_short_or_gone_lack_entries() {
    let home = Home::closed(100);
    let copy = home.copy();
    fs::remove_dir_all(copy.path().join("consumequeue/Topic/2")).unwrap();
    assert_eq!(found(&copy), one(Code::QueueMissing));
    let copy = home.copy();
    copy.put_entry(3, 24, 0, 0, 0);
    let report = look(&copy);
    assert_eq!(report.found, one(Code::QueueMissing));
    assert!(report.findings[0].found.contains("the queue ends at 24"), "{:?}", report.findings);
    let copy = home.copy();
    set_len(&copy.queue_file(0, 24).0, 93);
    let report = look(&copy);
    assert!(report.found.contains_key(&Code::FileLength) && !report.ok);
}

#[test]
fn damage_of_the_index_is_named_one_by_one() {
    let home = Home::closed(20);
    let slots = 40 + 4 * 7;
    for (what, position, bytes, code) in [
        ("another hash", slots + 20 * 5, &[1, 2, 3, 4][..], Code::IndexOther),
        ("inside a record", slots + 20 * 5 + 11, &[9], Code::IndexNowhere),
        ("far away", slots + 20 * 5 + 4, &[1], Code::IndexNowhere),
        ("negative", slots + 20 * 5 + 4, &[0xff], Code::IndexNowhere),
        ("seconds", slots + 20 * 5 + 12, &[1], Code::IndexTime),
        ("a circle", slots + 20 * 5 + 16, &[0, 0, 0, 9], Code::IndexChain),
        ("a slot", 40, &[0, 0, 0, 0], Code::IndexSlot),
        ("the header", 24, &[1], Code::IndexHeader),
        ("a count", 36, &[0x7f], Code::IndexUnusable),
    ] {
        let copy = home.copy();
        patch(&copy.index_files()[0], position, bytes);
        let report = look(&copy);
        let of_code = report.findings.iter().filter(|finding| finding.code == code).count();
        assert_eq!(of_code, 1, "{what}: {:?}", report.findings);
        assert!(!report.found.contains_key(&Code::IndexMissing), "{what}: {:?}", report.findings);
        assert!(!report.ok);
    }
}

#[test]
fn keys_that_are_in_no_index_file_are_told() {
    let home = Home::closed(100);
    let files = home.index_files();
    assert!(files.len() > 3);
    let copy = home.copy();
    fs::remove_file(&copy.index_files()[1]).unwrap();
    let report = look(&copy);
    assert_eq!(report.found, one(Code::IndexMissing), "{:?}", report.findings);
    let copy = home.copy();
    fs::remove_file(copy.index_files().last().unwrap()).unwrap();
    assert_eq!(found(&copy), one(Code::IndexTail));
    let copy = home.copy();
    fs::remove_dir_all(copy.path().join("index")).unwrap();
    assert_eq!(found(&copy), one(Code::IndexTail));
}

#[test]
fn files_that_are_short_missing_or_do_not_belong_are_named() {
    let home = Home::closed(100);
    let middle = home.log_file(4096).0;
    let copy = home.copy();
    fs::remove_file(copy.log_file(4096).0).unwrap();
    assert!(found(&copy).contains_key(&Code::FileGap));
    let copy = home.copy();
    set_len(&copy.log_file(4096).0, 1000);
    let report = look(&copy);
    let lengths: Vec<_> = report.findings.iter().filter(|f| f.code == Code::FileLength).collect();
    assert_eq!(lengths.len(), 1);
    assert!(lengths[0].expected.contains("4096") && lengths[0].found.contains("1000"));
    assert!(middle.ends_with(lengths[0].path.file_name().unwrap()));
    let copy = home.copy();
    fs::write(copy.path().join("commitlog/notes.txt"), b"x").unwrap();
    fs::create_dir(copy.path().join("consumequeue/Topic/x")).unwrap();
    fs::write(copy.path().join("index/readme"), b"x").unwrap();
    assert_eq!(found(&copy), BTreeMap::from([(Code::StrayName, 3)]));
    let copy = home.copy();
    std::os::unix::fs::symlink("/etc", copy.path().join("consumequeue/Topic/9")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", copy.path().join("commitlog/00000000000000409600"))
        .unwrap();
    assert_eq!(found(&copy), BTreeMap::from([(Code::NoRegularFile, 2)]));
}

#[test]
fn a_checkpoint_that_the_log_contradicts_is_told() {
    let home = Home::closed(20);
    let checkpoint = |copy: &Home, at, value: i64| {
        patch(&copy.path().join("checkpoint"), at, &value.to_be_bytes());
    };
    for (at, value, code) in [
        (0, i64::MAX, Code::CheckpointTime),
        (8, -1, Code::CheckpointTime),
        (16, i64::MAX, Code::CheckpointTime),
        (32, 1 << 40, Code::CheckpointConfirm),
        (32, -1, Code::CheckpointConfirm),
    ] {
        let copy = home.copy();
        checkpoint(&copy, at, value);
        assert_eq!(found(&copy), one(code), "{at}");
    }
    let copy = home.copy();
    fs::remove_file(copy.path().join("checkpoint")).unwrap();
    let report = look(&copy);
    assert_eq!((report.found, report.ok), (one(Code::CheckpointFile), true));
}

#[test]
fn the_end_of_a_log_is_judged_by_how_the_store_was_left() {
    let home = Home::closed(30);
    let end = home.read().end_offset();
    let torn = home.copy();
    torn.patch(end, &[0, 0, 0, 200, 0xDA, 0xA3, 0x20, 0xA7, 1, 2, 3]);
    assert_eq!(found(&torn), one(Code::LogFrame));
    fs::write(torn.path().join("abort"), b"1").unwrap();
    let report = look(&torn);
    assert!(report.found.contains_key(&Code::LogTail), "{:?}", report.findings);
    let zeros = home.copy();
    zeros.patch(end + 50, b"left behind");
    assert_eq!(found(&zeros), one(Code::LogRemains));
}

#[test]
fn remains_of_an_earlier_life_are_no_messages() {
    // As RocketMQ leaves it behind a cut: newer messages over the beginning of older ones.
    let home = Home::closed(12);
    let old = home.read();
    let (bodies, _) = scan(&old);
    drop(old);
    assert_eq!(bodies.len(), 12);
    let newer = Home::new(small());
    newer.clock.set(crate::support::START_MS + 1_000_000);
    let store = newer.create();
    append(&store, 0, &body(5)).unwrap();
    let end = store.end_offset();
    store.close().unwrap();
    let (path, _) = home.log_file(end);
    let behind = fs::read(path).unwrap();
    let (path, _) = newer.log_file(end);
    let at = usize::try_from(end).unwrap();
    patch(&path, end, &behind[at..]);
    let report = look(&newer);
    assert_eq!(report.found, one(Code::LogRemains), "{:?}", report.findings);
    assert_eq!(report.counts.messages, 1);
}

#[test]
fn large_records_are_read_in_pieces() {
    let mut config = small();
    config.mapped_file_size_commit_log = Some(4 << 20);
    config.enabled_append_prop_crc = true;
    let home = Home::new(config);
    let store = home.create();
    let large = vec![b'x'; 1 << 20];
    let places: Vec<_> = (0..3)
        .map(|number| append(&store, number, &large).unwrap())
        .map(|result| u64::try_from(result.physical_offset).unwrap())
        .collect();
    store.close().unwrap();
    let report = look(&home);
    assert_eq!((report.findings, report.counts.messages), (vec![], 3));
    for (at, codes) in [
        (700_000, vec![(Code::LogBody, 1), (Code::LogProperties, 1)]),
        (50, vec![(Code::LogProperties, 1)]),
        (87, vec![(Code::LogFrame, 1)]),
        (2, vec![(Code::LogFrame, 1)]),
    ] {
        let copy = home.copy();
        copy.flip(places[1] + at);
        assert_eq!(found(&copy), codes.into_iter().collect(), "byte {at}");
    }
}

#[test]
fn progress_rises_to_the_whole_and_can_end_the_check() {
    let home = Home::closed(50);
    let mut seen = Vec::new();
    let options = VerifyOptions::default();
    verify(home.path(), home.config.clone(), &options, &mut |done, total| {
        seen.push((done, total));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(
        seen.is_sorted() && seen.last().is_some_and(|(done, total)| done == total && *done > 0)
    );
    let ended =
        verify(home.path(), home.config.clone(), &options, &mut |_, _| ControlFlow::Break(()));
    assert!(ended.is_err());
}

#[test]
fn any_bytes_can_be_looked_at() {
    let home = Home::closed(60);
    let store = home.create();
    drop(store);
    let files: Vec<_> =
        home.snapshot().into_iter().map(|(path, bytes)| (path, bytes.len())).collect();
    let mut seed = 0x2026_1121_u64;
    let mut next = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below.max(1)
    };
    for round in 0..60 {
        let copy = home.copy();
        for _ in 0..=round % 8 {
            let (path, len) = &files[next(files.len())];
            let path = copy.path().join(path);
            match next(4) {
                0 => set_len(&path, next(len + 1) as u64),
                1 => patch(&path, next(len + 1) as u64, &vec![0xff; next(64)]),
                2 => patch(&path, next(len + 1) as u64, &vec![0; next(512)]),
                _ if *len > 0 => flip_if_there(&path, next(*len) as u64),
                _ => {}
            }
        }
        let before = copy.snapshot();
        // Sizes that contradict each other are an error, anything else is a report.
        let _ = verify(copy.path(), small(), &VerifyOptions::default(), &mut |_, _| {
            ControlFlow::Continue(())
        });
        assert!(copy.snapshot() == before);
        let _ = copy.open(OpenMode::Read).map(|store| scan(&store));
    }
}

fn flip_if_there(path: &std::path::Path, position: u64) {
    if fs::metadata(path).unwrap().len() > position {
        flip(path, position);
    }
}

#[test]
fn names_that_no_queue_has_are_strays() {
    let home = Home::closed(40);
    let queues = home.path().join("consumequeue");
    fs::write(queues.join("file"), b"x").unwrap();
    for name in ["01", "-1", "+1", "1x", "2147483648"] {
        fs::create_dir(queues.join("Topic").join(name)).unwrap();
    }
    fs::create_dir(queues.join("To\u{1}pic")).unwrap();
    assert_eq!(found(&home), BTreeMap::from([(Code::StrayName, 7)]));
    // A file that begins in the middle of an entry is none of the queue's.
    let copy = Home::closed(40);
    fs::write(copy.path().join("consumequeue/Topic/0/00000000000000000407"), [1; 200]).unwrap();
    let report = look(&copy);
    assert!(report.found.contains_key(&Code::FileGap), "{:?}", report.findings);
    let in_it = |f: &&mqstore::care::Finding| f.path.to_string_lossy().ends_with("0407");
    assert!(report.findings.iter().all(|f| in_it(&f)), "{:?}", report.findings);
}

#[test]
fn entries_of_an_index_out_of_order_are_told() {
    let home = Home::closed(20);
    let path = &home.index_files()[0];
    let slots = 40 + 4 * 7;
    let bytes = fs::read(path).unwrap();
    let entry = |number: usize| &bytes[slots + 20 * number..slots + 20 * number + 16];
    let (one, other) = (entry(5).to_vec(), entry(6).to_vec());
    patch(path, (slots + 20 * 5) as u64, &other);
    patch(path, (slots + 20 * 6) as u64, &one);
    let report = look(&home);
    let finding = report.findings.iter().find(|f| f.code == Code::IndexEntry).unwrap();
    assert!(finding.expected.starts_with("an offset of "), "{finding:?}");
    assert!(finding.found.starts_with("entry 6 with physical offset "), "{finding:?}");
    // Entries of what the log no longer holds are passed over.
    let late = Home::closed(120);
    let path = &late.index_files()[0];
    patch(path, (slots + 20 * 5) as u64, &other);
    patch(path, (slots + 20 * 6) as u64, &one);
    fs::remove_file(late.log_file(0).0).unwrap();
    let report = look(&late);
    let of_entries = |f: &&mqstore::care::Finding| f.code == Code::IndexEntry;
    assert_eq!(report.findings.iter().filter(of_entries).count(), 0, "{:?}", report.findings);
}

#[test]
fn a_link_in_the_index_is_named_and_an_index_that_is_not_asked_for_is_left_alone() {
    let mut home = Home::closed(20);
    let link = home.path().join("index/20300101000000000");
    std::os::unix::fs::symlink("/etc/hostname", link).unwrap();
    assert_eq!(found(&home), one(Code::NoRegularFile));
    fs::write(&home.index_files()[0], b"damaged").unwrap();
    assert!(look(&home).found.contains_key(&Code::IndexUnusable));
    home.config.message_index_enable = false;
    let report = look(&home);
    assert_eq!((report.found, report.counts.index_files), (BTreeMap::new(), 0));
}

#[test]
fn a_path_that_is_empty_or_not_there_is_no_store() {
    for (path, reason) in [("", "the path is empty"), ("/nowhere/at/all", "no such path")] {
        let options = VerifyOptions::default();
        let error = verify(path.as_ref(), small(), &options, &mut |_, _| ControlFlow::Continue(()));
        let error = error.unwrap_err().to_string();
        assert_eq!(error, format!("{path}: not a store: {reason}"));
    }
}

#[test]
fn of_a_message_with_very_many_keys_the_first_must_be_in_the_index() {
    let mut home = Home::new(small());
    home.config.max_index_num = Some(4000);
    home.config.mapped_file_size_commit_log = Some(64 << 10);
    let store = home.create();
    let keys: Vec<_> = (0..1500).map(|number| format!("k{number}")).collect();
    let mut raw = Vec::new();
    mqstore::format::message::properties::push(&mut raw, b"KEYS", keys.join(" ").as_bytes());
    for number in 0..2 {
        let message = mqstore::store::NewMessage {
            properties: if number == 0 { &raw } else { b"KEYS\x01k\x02" },
            ..mqstore::store::NewMessage::new(b"Topic", b"x")
        };
        store.append(&message).unwrap();
    }
    store.close().unwrap();
    let report = look(&home);
    assert_eq!((report.findings, report.ok), (vec![], true));
    // One of them is another's.
    let slots = 40 + 4 * 7;
    patch(&home.index_files()[0], slots + 20 * 700, &[1, 2, 3, 4]);
    assert!(found(&home).contains_key(&Code::IndexOther));
}

#[test]
fn looked_at_quickly_large_records_are_counted_and_their_bytes_are_not_summed_up() {
    let mut config = small();
    config.mapped_file_size_commit_log = Some(4 << 20);
    let home = Home::new(config);
    let store = home.create();
    let place = append(&store, 0, &vec![b'x'; 1 << 20]).unwrap().physical_offset;
    append(&store, 1, b"x").unwrap();
    store.close().unwrap();
    home.flip(u64::try_from(place).unwrap() + 700_000);
    let quick = VerifyOptions { level: Level::Quick, ..VerifyOptions::default() };
    let report = look_as(&home, &quick);
    assert_eq!((report.findings, report.counts.messages), (vec![], 2));
    assert_eq!(found(&home), one(Code::LogBody));
}
