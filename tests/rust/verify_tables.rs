//! `verify` of the broker's tables: topics and what consumers have read, held against the queues.

use std::collections::BTreeMap;
use std::fs;

use mqstore::care::{Code, Level, Severity, VerifyOptions, VerifyReport};

use crate::support::Home;

fn look_at(home: &Home, level: Level) -> VerifyReport {
    home.verify(&VerifyOptions { level, threads: Some(2), ..VerifyOptions::default() })
}

fn look(home: &Home) -> VerifyReport {
    look_at(home, Level::Full)
}

fn one(code: Code) -> BTreeMap<Code, u64> {
    BTreeMap::from([(code, 1)])
}

/// Writes a file below `config`.
fn put(home: &Home, name: &str, text: &str) {
    fs::write(home.path().join("config").join(name), text).unwrap();
}

fn topic(kind: &str, queues: i32) -> String {
    format!(
        r#"{{"topicConfigTable":{{"Topic":{{"topicName":"Topic","readQueueNums":{queues},
        "writeQueueNums":{queues},"attributes":{{{kind}}}}}}}}}"#
    )
}

/// A group's offset in a queue of a topic.
fn offset(topic: &str, queue: i32, offset: i64) -> String {
    format!(r#"{{"offsetTable":{{"{topic}@g":{{{queue}:{offset}}}}}}}"#)
}

#[test]
fn tables_that_cannot_be_read_are_told_with_their_backups() {
    let home = Home::closed(20);
    let good = fs::read_to_string(home.path().join("config/topics.json")).unwrap();
    let (error, warning, info) = (Severity::Error, Severity::Warning, Severity::Info);
    for (main, backup, expected) in [
        (Some("{"), None, Some((Code::ConfigUnreadable, error))),
        (Some(""), None, Some((Code::ConfigUnreadable, error))),
        (Some(""), Some(""), Some((Code::ConfigUnreadable, error))),
        (Some("{"), Some("[]"), Some((Code::ConfigUnreadable, error))),
        (None, Some("{"), Some((Code::ConfigUnreadable, error))),
        (None, None, None),
        (Some("{"), Some(good.as_str()), Some((Code::ConfigBackup, warning))),
        (None, Some(good.as_str()), Some((Code::ConfigBackup, warning))),
        (Some(good.as_str()), Some("{"), Some((Code::ConfigNoBackup, info))),
        (Some(good.as_str()), Some(""), None),
        (Some("{}"), Some(good.as_str()), Some((Code::ConfigBackup, error))),
        (
            Some(r#"{"dataVersion":{"counter":3},"topicConfigTable":null}"#),
            Some(good.as_str()),
            Some((Code::ConfigBackup, error)),
        ),
    ] {
        let copy = home.copy();
        fs::remove_file(copy.path().join("config/topics.json")).unwrap();
        for (name, text) in [("topics.json", main), ("topics.json.bak", backup)] {
            if let Some(text) = text {
                put(&copy, name, text);
            }
        }
        let before = copy.snapshot();
        for level in [Level::Quick, Level::Full] {
            let report = look_at(&copy, level);
            let found: Vec<_> = report.findings.iter().map(|f| (f.code, f.severity)).collect();
            assert_eq!(found, Vec::from_iter(expected), "{main:?} {backup:?}");
            assert_eq!(report.ok, expected.is_none_or(|(_, severity)| severity == info));
        }
        assert!(copy.snapshot() == before, "verify wrote something");
    }
    for name in ["consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"] {
        let copy = home.copy();
        put(&copy, name, "{\"offsetTable\":{\"a@b\":{0:");
        let report = look(&copy);
        assert_eq!(report.found, one(Code::ConfigUnreadable), "{name}");
        assert!(report.findings[0].path.ends_with(name));
    }
}

#[test]
fn of_an_empty_table_beside_a_fuller_backup_the_backup_counts() {
    let groups = r#"{"subscriptionGroupTable":{"g":{"retryQueueNums":1}}}"#;
    let own = r#"{"subscriptionGroupTable":{"TOOLS_CONSUMER":{}}}"#;
    let full = offset("Topic", 1, 3);
    for (name, backup, list, is_lost) in [
        ("consumerOffset.json", full.as_str(), None, true),
        ("consumerOffset.json", full.as_str(), Some(groups), true),
        ("consumerOffset.json", full.as_str(), Some("{}"), true),
        // The group was deleted.
        ("consumerOffset.json", full.as_str(), Some(own), false),
        ("consumerOffset.json", r#"{"offsetTable":{"Topic@g":{}}}"#, None, false),
        ("subscriptionGroup.json", groups, None, true),
        ("delayOffset.json", r#"{"offsetTable":{1:0}}"#, None, true),
        ("consumerFilter.json", r#"{"filterDataByTopic":{"Topic":{"g":1}}}"#, None, false),
    ] {
        let home = Home::closed(20);
        put(&home, name, r#"{"offsetTable":{}}"#);
        put(&home, &format!("{name}.bak"), backup);
        list.iter().for_each(|list| put(&home, "subscriptionGroup.json", list));
        let expected = if is_lost { one(Code::ConfigBackup) } else { BTreeMap::new() };
        assert_eq!(look(&home).found, expected, "{name} {backup} {list:?}");
    }
}

#[test]
fn a_table_that_is_no_file_is_not_opened() {
    let home = Home::closed(4);
    std::os::unix::fs::symlink("/etc/passwd", home.path().join("config/delayOffset.json")).unwrap();
    assert_eq!(look(&home).found, one(Code::NoRegularFile));
}

#[test]
fn queues_that_the_table_of_topics_does_not_have_are_told() {
    let home = Home::closed(20);
    for (table, expected) in [
        (topic("", 4), BTreeMap::new()),
        (topic("", 2), BTreeMap::from([(Code::ConfigQueues, 2)])),
        (r#"{"topicConfigTable":{}}"#.to_owned(), one(Code::ConfigTopic)),
    ] {
        let copy = home.copy();
        put(&copy, "topics.json", &table);
        assert_eq!(look(&copy).found, expected, "{table}");
        assert_eq!(look_at(&copy, Level::Quick).found, BTreeMap::new(), "{table}");
    }
}

#[test]
fn messages_of_a_deleted_topic_need_no_queue() {
    let home = Home::closed(20);
    fs::remove_dir_all(home.path().join("consumequeue/Topic")).unwrap();
    let report = look(&home);
    assert_eq!((report.found, report.ok), (BTreeMap::from([(Code::QueueMissing, 4)]), false));
    put(&home, "topics.json", r#"{"topicConfigTable":{}}"#);
    let report = look(&home);
    assert_eq!((report.found, report.ok), (BTreeMap::from([(Code::QueueMissing, 4)]), true));
}

#[test]
fn queues_of_another_kind_than_the_table_says_are_told() {
    let home = Home::closed(20);
    put(&home, "topics.json", &topic(r#""queue.type":"BatchCQ""#, 4));
    for level in [Level::Quick, Level::Full] {
        let report = look_at(&home, level);
        assert_eq!(report.found.get(&Code::ConfigKind), Some(&4), "{:?}", report.findings);
    }
}

#[test]
fn offsets_of_consumers_are_compared_with_the_queues() {
    // Queue 1 has 5 messages, 0 to 4; there are queues 0 to 3.
    let home = Home::closed(20);
    for (table, expected) in [
        (offset("Topic", 1, 0), BTreeMap::new()),
        (offset("Topic", 1, 5), BTreeMap::new()),
        (offset("Topic", 1, 6), one(Code::OffsetBeyond)),
        (offset("Topic", 1, i64::MAX), one(Code::OffsetBeyond)),
        (offset("Topic", 1, -1), one(Code::OffsetNegative)),
        (offset("Topic", 9, 1), one(Code::OffsetNowhere)),
        (offset("Topic", 9, 0), BTreeMap::new()),
        (offset("Other", 1, 3), one(Code::OffsetNowhere)),
        ("{}".to_owned(), BTreeMap::new()),
    ] {
        for name in ["consumerOffset.json", "lmqConsumerOffset.json"] {
            let copy = home.copy();
            put(&copy, name, &table);
            let report = look(&copy);
            assert_eq!(report.found, expected, "{name} {table}");
            assert!(report.findings.iter().all(|finding| finding.path.ends_with(name)));
        }
    }
    let report = {
        put(&home, "delayOffset.json", r#"{"offsetTable":{1:0,2:7}}"#);
        look(&home)
    };
    assert_eq!(report.found, one(Code::OffsetNowhere));
    let store = home.write();
    let topic = mqstore::format::queue::consume_queue::SCHEDULE_TOPIC;
    store.append(&mqstore::store::NewMessage::new(topic, b"x")).unwrap();
    store.close().unwrap();
    for (at, expected) in [(1, None), (2, Some(Code::DelayOffset)), (-5, Some(Code::DelayOffset))] {
        let home = home.copy();
        put(&home, "delayOffset.json", &format!(r#"{{"offsetTable":{{1:{at}}}}}"#));
        let found: Vec<_> = look(&home).found.into_keys().collect();
        assert_eq!(found, Vec::from_iter(expected), "{at}");
    }
    let message = report.findings[0].message();
    assert!(message.contains("delay level 2") && message.contains("offset 7"), "{message}");
}

#[test]
fn entries_before_the_log_lie_before_the_start() {
    let home = Home::closed(100);
    fs::remove_file(home.log_file(0).0).unwrap();
    let start = home.read().queue(b"Topic", 1).unwrap().unwrap().min_offset;
    assert!(start > 0);
    for (at, expected) in [(start, BTreeMap::new()), (start - 1, one(Code::OffsetBefore))] {
        put(&home, "consumerOffset.json", &offset("Topic", 1, at));
        let report = look(&home);
        assert_eq!(report.found, expected);
        assert!(report.ok);
    }
}

#[test]
fn messages_that_wait_for_their_entries_count() {
    let home = Home::killed(40);
    put(&home, "consumerOffset.json", &offset("Topic", 1, 10));
    assert!(!look(&home).found.contains_key(&Code::OffsetBeyond));
    put(&home, "consumerOffset.json", &offset("Topic", 1, 11));
    assert!(look(&home).found.contains_key(&Code::OffsetBeyond));
}

#[test]
fn without_a_table_that_can_be_read_no_topic_counts_as_deleted() {
    let home = Home::closed(20);
    fs::remove_dir_all(home.path().join("consumequeue/Topic/1")).unwrap();
    put(&home, "topics.json", "{");
    let report = look(&home);
    assert_eq!(report.found, [(Code::ConfigUnreadable, 1), (Code::QueueMissing, 1)].into());
    let finding = report.findings.iter().find(|f| f.code == Code::QueueMissing).unwrap();
    assert_eq!(finding.severity, Severity::Error);
}

#[test]
fn topics_that_every_broker_has_need_no_entry() {
    let home = Home::closed(20);
    let store = home.write();
    for topic in [&b"DefaultCluster_REPLY_TOPIC"[..], b"TBW102"] {
        store.append(&mqstore::store::NewMessage::new(topic, b"x")).unwrap();
    }
    store.close().unwrap();
    put(&home, "topics.json", &topic("", 4));
    assert_eq!(look(&home).findings, []);
}

#[test]
fn beside_a_writer_consumers_may_be_ahead_of_what_is_seen() {
    let home = Home::new(crate::support::small());
    let store = home.create();
    home.fill(&store, 0..20);
    store.flush().unwrap();
    put(&home, "consumerOffset.json", &offset("Topic", 1, 9));
    let report = look(&home);
    let finding = report.findings.iter().find(|f| f.code == Code::OffsetBeyond).unwrap();
    assert_eq!((finding.severity, report.ok), (Severity::Info, true));
    store.close().unwrap();
    let report = look(&home);
    let finding = report.findings.iter().find(|f| f.code == Code::OffsetBeyond).unwrap();
    assert_eq!((finding.severity, report.ok), (Severity::Warning, false));
}
