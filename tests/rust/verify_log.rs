//! `verify` of the log alone: where it goes on behind damage, where it ends, and what its messages
//! claim of themselves.

use std::fs;

use mqstore::care::{Code, Finding, Severity, VerifyOptions, VerifyReport};
use mqstore::config::StoreConfig;
use mqstore::store::NewMessage;

use crate::support::{Home, START_MS, append, places, set_len, small};

fn look(home: &Home) -> VerifyReport {
    home.verify(&VerifyOptions { threads: Some(2), ..VerifyOptions::default() })
}

/// The one finding of a code.
fn the(report: &VerifyReport, code: Code) -> &Finding {
    let found: Vec<_> = report.findings.iter().filter(|finding| finding.code == code).collect();
    assert_eq!(found.len(), 1, "{:?}", report.findings);
    found[0]
}

/// A closed store in which each message was stored at one of these times, in seconds.
fn stored_at(seconds: &[i64]) -> Home {
    let home = Home::new(small());
    let store = home.create();
    for second in seconds {
        let message = NewMessage {
            store_timestamp_ms: Some(START_MS + second * 1000),
            ..NewMessage::new(b"Topic", &[7; 20])
        };
        store.append(&message).unwrap();
    }
    store.close().unwrap();
    home
}

#[test]
fn behind_damage_older_messages_are_passed_over_up_to_a_newer_one() {
    // Damage at message 3, older ones behind it, of which one is damaged too, then a newer one.
    let home = stored_at(&[10, 11, 12, 13, 1, 2, 3, 4, 20, 21]);
    let places = places(&home);
    let (bad, newer) = (places[3].0, places[8].0);
    home.flip(bad + 5);
    home.flip(places[5].0 + 34);
    // Neither the mark nor a queue says that they are messages.
    assert_eq!(look(&home).counts.messages, 8);
    std::fs::remove_file(home.path().join("mqstore.mark")).unwrap();
    assert_eq!(look(&home).counts.messages, 8);
    std::fs::remove_dir_all(home.path().join("consumequeue")).unwrap();
    let report = look(&home);
    let finding = the(&report, Code::LogFrame);
    assert_eq!((finding.offset, finding.severity), (Some(bad + 4), Severity::Error));
    let behind = newer - bad;
    let text = format!("begins {behind} bytes behind, at physical offset {newer}");
    assert!(finding.found.ends_with(&text), "{finding:?}");
    assert_eq!(report.counts.messages, 5);
}

#[test]
fn messages_behind_a_size_that_leads_into_zeros_are_no_less_there() {
    let home = Home::closed(60);
    let places = places(&home);
    let (last, size) = places[59];
    let (bad, _) = places[58];
    home.patch(bad, &(u32::try_from(last + size - bad).unwrap() + 512).to_be_bytes());
    let report = look(&home);
    let finding = the(&report, Code::LogFrame);
    assert!(finding.found.ends_with(&format!("at physical offset {last}")), "{finding:?}");
    assert_eq!(report.counts.messages, 59);
    assert_eq!(report.counts.log_bytes, last + size);
}

#[test]
fn damage_in_what_was_not_flushed_is_the_crash_s() {
    let home = Home::killed(40);
    let places = places(&home);
    home.flip(places[30].0 + 5);
    let report = look(&home);
    let finding = the(&report, Code::LogTail);
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.found.contains("the next message begins"), "{finding:?}");
    // The same before the checkpoint's time is damage.
    let home = Home::killed(40);
    home.flip(places[10].0 + 5);
    let report = look(&home);
    assert_eq!(the(&report, Code::LogFrame).severity, Severity::Error);
}

#[test]
fn a_file_that_ends_before_its_last_byte_is_told_once() {
    let home = Home::closed(120);
    let file = 4096;
    let records = places(&home);
    let inside: Vec<_> = records.iter().filter(|(at, _)| at / file == 1).collect();
    let last = inside.last().unwrap();
    let (end, path) = (last.0 + last.1 - file, home.log_file(file).0);
    // Zeros from behind a record on, with files behind.
    let copy = home.copy();
    let zeros = vec![0; usize::try_from(file - end).unwrap()];
    copy.patch(file + end, &zeros);
    let report = look(&copy);
    let finding = the(&report, Code::LogHole);
    assert_eq!((finding.offset, &*finding.found), (Some(end), "zeros to the end of the file"));
    assert_eq!((report.findings.len(), report.counts.messages), (1, 120));
    // Cut between two records, and in the middle of one: the length alone is told.
    for (len, messages) in [(end, 120), (end - 10, 119)] {
        let copy = home.copy();
        set_len(&copy.log_file(file).0, len);
        let report = look(&copy);
        assert_eq!(report.found.len(), 1, "{:?}", report.findings);
        let finding = the(&report, Code::FileLength);
        assert!(path.ends_with(finding.path.file_name().unwrap()));
        assert_eq!(finding.found, format!("{len} bytes"));
        assert_eq!(report.counts.messages, messages);
    }
    // A record's place full of zeros; the next one's first byte is in the end of its size.
    let (at, size) = *inside[2];
    let copy = home.copy();
    copy.patch(at, &vec![0; usize::try_from(size).unwrap()]);
    let report = look(&copy);
    let finding = the(&report, Code::LogHole);
    assert_eq!(finding.offset, Some(at - file));
    assert!(finding.found.starts_with(&format!("zeros up to byte {};", at - file + size + 3)));
}

#[test]
fn a_checksum_of_properties_tells_of_them_alone() {
    let home = Home::new(StoreConfig { enabled_append_prop_crc: true, ..small() });
    let store = home.create();
    home.fill(&store, 0..10);
    store.close().unwrap();
    let (at, _) = places(&home)[4];
    // In the born host, which only that checksum covers.
    home.flip(at + 50);
    let report = look(&home);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    let finding = the(&report, Code::LogProperties);
    assert!(finding.expected.starts_with("checksum "), "{finding:?}");
    // Told to ask every message for one, those without are found out.
    let mut home = Home::closed(3);
    home.config.force_verify_prop_crc = true;
    let report = look(&home);
    let finding = the(&report, Code::ConfigChecksum);
    assert!(finding.found.starts_with("3 messages without one"), "{finding:?}");
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
}

#[test]
fn transactions_that_came_to_nothing_need_no_entries() {
    let home = Home::new(small());
    let store = home.create();
    let mut properties = Vec::new();
    mqstore::format::message::properties::push(&mut properties, b"KEYS", b"k");
    // None, prepared, committed, rolled back.
    for (number, sys_flag) in [0, 4, 8, 12].into_iter().enumerate() {
        home.clock.set(START_MS + i64::try_from(number).unwrap());
        let message =
            NewMessage { sys_flag, properties: &properties, ..NewMessage::new(b"Topic", &[7; 20]) };
        store.append(&message).unwrap();
    }
    store.close().unwrap();
    let report = look(&home);
    assert_eq!((report.findings, report.counts.messages), (vec![], 4));
    assert_eq!((report.counts.queue_entries, report.counts.index_entries), (2, 3));
}

#[test]
fn a_queue_of_any_number_is_one_where_it_has_a_folder() {
    // Bare stores have more queues than a broker gives a topic.
    let home = Home::new(StoreConfig { validate_topic_names: false, ..small() });
    let store = home.create();
    let message = NewMessage { queue_id: i32::MAX, ..NewMessage::new(b"Topic", b"x") };
    store.append(&message).unwrap();
    store.close().unwrap();
    let strict = Home { config: small(), ..home };
    assert_eq!(look(&strict).findings, []);
    fs::remove_dir_all(strict.path().join("consumequeue")).unwrap();
    let report = look(&strict);
    let finding = the(&report, Code::LogNumber);
    assert_eq!((finding.severity, finding.offset), (Severity::Warning, Some(0)));
    assert_eq!(finding.found, "queue 2147483647, number 0");
    // A topic that can name no folder is told once for all its messages, and so is each of them not.
    let home = Home::closed(20);
    let (path, _) = home.log_file(0);
    let mut bytes = fs::read(&path).unwrap();
    let names: Vec<_> = bytes
        .windows(6)
        .enumerate()
        .filter(|(_, w)| *w == b"\x05Topic")
        .map(|(at, _)| at)
        .collect();
    for at in &names[3..6] {
        bytes[at + 1..at + 6].copy_from_slice(b"../xy");
    }
    fs::write(&path, bytes).unwrap();
    let report = look(&home);
    let finding = the(&report, Code::LogTopic);
    assert_eq!((finding.offset, finding.severity), (Some(places(&home)[3].0), Severity::Warning));
    assert_eq!(finding.found, "\"../xy\", first here");
}

#[test]
fn entries_that_lead_before_the_log_or_fill_a_queue_stand_for_no_message() {
    let home = Home::closed(120);
    std::fs::remove_file(home.log_file(0).0).unwrap();
    assert_eq!(look(&home).findings, []);
    let copy = home.copy();
    let entry = copy.read().queue(b"Topic", 1).unwrap().unwrap().units(20, 1).unwrap()[0];
    copy.put_entry(1, 20, 10, entry.store_size, entry.tags_code);
    let report = look(&copy);
    let finding = the(&report, Code::QueueMissing);
    assert!(finding.expected.contains("entries of 1 more messages"), "{finding:?}");
    assert!(finding.path.ends_with("consumequeue/Topic/1"), "{finding:?}");
    // Fillers before a queue's first entry are wrong behind one.
    for number in [20, 29] {
        let copy = home.copy();
        copy.put_entry(1, number, 0, i32::MAX, 0);
        let report = look(&copy);
        let finding = the(&report, Code::QueueBlank);
        let (path, at) = copy.queue_file(1, number);
        assert!(path.ends_with(&finding.path) && finding.offset == Some(at), "{finding:?}");
        let end = if number == 29 { "fillers up to the end" } else { "fillers up to entry 21" };
        assert_eq!(finding.found, end);
    }
}

#[test]
fn damage_behind_which_a_short_file_ends_is_told_beside_its_length() {
    let home = Home::closed(120);
    let inside: Vec<_> = places(&home).into_iter().filter(|(at, _)| at / 4096 == 1).collect();
    let (last, size) = *inside.last().unwrap();
    home.flip(last + 5);
    set_len(&home.log_file(4096).0, last + size - 4096);
    let report = look(&home);
    assert_eq!(the(&report, Code::FileLength).found, format!("{} bytes", last + size - 4096));
    let finding = the(&report, Code::LogFrame);
    assert_eq!(finding.offset, Some(last + 4 - 4096));
    assert!(finding.found.ends_with("no message behind in this file"), "{finding:?}");
}

#[test]
fn a_body_made_to_look_like_messages_is_no_place_to_begin_at() {
    /// Where the body of a record between hosts with IPv4 addresses lies.
    const BODY_AT: u64 = 88;
    let mut config = small();
    config.mapped_file_size_commit_log = Some(64 << 10);
    let home = Home::new(config);
    let store = home.create();
    let first = append(&store, 0, b"x").unwrap();
    let begin = store.end_offset() + BODY_AT;
    let record = fs::read(home.log_file(0).0).unwrap()[..first.store_size as usize].to_vec();
    // Two sound records in a row, each with the physical offset that it has there.
    let mut body = vec![b'x'; 3_000];
    for at in [700, 700 + record.len()] {
        body[at..at + record.len()].copy_from_slice(&record);
        body[at + 28..at + 36].copy_from_slice(&(begin + at as u64).to_be_bytes());
    }
    append(&store, 1, &body).unwrap();
    home.fill(&store, 2..9);
    store.close().unwrap();
    let at = usize::try_from(begin).unwrap() + 700;
    assert_eq!(fs::read(home.log_file(0).0).unwrap()[at + 28..at + 36], (at as u64).to_be_bytes());
    let report = look(&home);
    assert_eq!((report.findings, report.counts.messages), (vec![], 9));
}

#[test]
fn numbers_that_lie_in_damage_are_no_wrong_ones() {
    let home = Home::closed(20);
    fs::remove_dir_all(home.path().join("consumequeue/Topic/1")).unwrap();
    assert!(!look(&home).found.contains_key(&Code::LogNumber));
    let (path, _) = home.log_file(0);
    let mut bytes = fs::read(&path).unwrap();
    let place = |number: usize| usize::try_from(places(&home)[number].0).unwrap();
    let damaged = place(8)..place(12);
    bytes[damaged].fill(0);
    fs::write(&path, bytes).unwrap();
    let report = look(&home);
    assert!(report.found.contains_key(&Code::QueueMissing), "{:?}", report.findings);
    assert!(!report.found.contains_key(&Code::LogNumber), "{:?}", report.findings);
}
