use super::*;
use crate::error::CorruptionKind;

const TOPICS: &str = concat!(
    "{\n\t\"dataVersion\":{\n\t\t\"counter\":8,\n\t\t\"stateVersion\":0,\n",
    "\t\t\"timestamp\":1795247438790\n\t},\n\t\"topicConfigTable\":{\n",
    "\t\t\"BatchInner\":{\n\t\t\t\"attributes\":{\n\t\t\t\t\"queue.type\":\"BatchCQ\"\n\t\t\t},\n",
    "\t\t\t\"order\":false,\n\t\t\t\"perm\":6,\n\t\t\t\"readQueueNums\":2,\n",
    "\t\t\t\"topicFilterType\":\"SINGLE_TAG\",\n\t\t\t\"topicName\":\"BatchInner\",\n",
    "\t\t\t\"topicSysFlag\":0,\n\t\t\t\"writeQueueNums\":2\n\t\t}\n\t}\n}"
);

const OFFSETS: &str = concat!(
    "{\n\t\"dataVersion\":{\n\t\t\"counter\":0,\n\t\t\"stateVersion\":0,\n",
    "\t\t\"timestamp\":1795247399796\n\t},\n",
    "\t\"groupTopicMap\":{\n\t\t\"billing\":[\"orders\"]\n\t},\n",
    "\t\"offsetTable\":{\n\t\t\"orders@billing\":{0:57,10:60\n\t\t}\n\t}\n}"
);

#[test]
fn topics_are_read_and_written_as_the_broker_does() {
    let table = TopicTable::parse(TOPICS.as_bytes()).unwrap();
    let topic = table.get("BatchInner").unwrap();
    assert!(topic.is_batch_queue());
    assert_eq!((topic.read_queue_nums, topic.write_queue_nums, topic.perm), (2, 2, 6));
    assert_eq!(table.iter().collect::<Vec<_>>(), [topic]);
    assert_eq!(table.get("orders"), None);
    assert_eq!(String::from_utf8(table.to_bytes()).unwrap(), TOPICS);
}

#[test]
fn a_new_topic_is_entered_with_every_field() {
    let mut table = TopicTable::parse(TOPICS.as_bytes()).unwrap();
    table.put(&TopicConfig::new("orders", 4), 1_800_000_000_000);
    let bytes = table.to_bytes();
    let read = TopicTable::parse(&bytes).unwrap();
    assert_eq!(read, table);
    assert_eq!(read.get("orders").unwrap(), TopicConfig::new("orders", 4));
    assert_eq!(read.iter().count(), 2);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains("\"counter\":9,") && text.contains("\"timestamp\":1800000000000"));
    assert!(text.contains("\"orders\":{\n\t\t\t\"attributes\":{},\n\t\t\t\"order\":false,"));
}

#[test]
fn a_table_from_nothing_has_all_a_broker_reads() {
    let mut table = TopicTable::default();
    assert_eq!(table.iter().count(), 0);
    table.put(&TopicConfig::new("a", 1), 7);
    let text = String::from_utf8(table.to_bytes()).unwrap();
    assert!(
        text.starts_with("{\n\t\"dataVersion\":{\n\t\t\"counter\":1,\n\t\t\"stateVersion\":0,")
    );
}

#[test]
fn unknown_fields_are_kept() {
    let text = r#"{"topicConfigTable":{"a":{"perm":2,"new":[1],"topicFilterType":"MULTI_TAG",
        "topicSysFlag":3}},"more":{"x":1}}"#;
    let mut table = TopicTable::parse(text.as_bytes()).unwrap();
    let mut config = table.get("a").unwrap();
    assert_eq!((config.perm, config.read_queue_nums, config.name.as_str()), (2, 16, "a"));
    config.attributes.push(("cleanup.policy".into(), "COMPACTION".into()));
    assert_eq!((config.topic_filter_type.as_str(), config.topic_sys_flag), ("MULTI_TAG", 3));
    assert_eq!(config.clone().with_batch_queue().attributes.len(), 2);
    table.put(&config, 7);
    let text = String::from_utf8(table.to_bytes()).unwrap();
    assert!(text.contains("\"new\":[1]") && text.contains("\"x\":1"), "{text}");
    assert_eq!(TopicTable::parse(text.as_bytes()).unwrap().get("a"), Some(config));
}

#[test]
fn topics_of_the_wrong_kind_are_refused() {
    for text in [
        "[]",
        r#"{"topicConfigTable":[]}"#,
        r#"{"topicConfigTable":{"a":1}}"#,
        r#"{"topicConfigTable":{"a":{"perm":"6"}}}"#,
        r#"{"topicConfigTable":{"a":{"perm":2147483648}}}"#,
        r#"{"topicConfigTable":{"a":{"perm":1.5}}}"#,
        r#"{"topicConfigTable":{"a":{"order":0}}}"#,
        r#"{"topicConfigTable":{"a":{"topicName":null}}}"#,
        r#"{"topicConfigTable":{"a":{"attributes":{"b":1}}}}"#,
        r#"{"topicConfigTable":{"a":{"attributes":[]}}}"#,
    ] {
        let error = TopicTable::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.kind, CorruptionKind::Json, "{text}");
    }
    assert_eq!(TopicTable::parse(b"[]").unwrap_err().found, "an array");
    assert_eq!(TopicTable::parse(b"{}").unwrap(), TopicTable::default());
    assert_eq!(TopicTable::parse(br#"{"topicConfigTable":null}"#).unwrap().iter().count(), 0);
}

#[test]
fn offsets_are_read_and_written_as_the_broker_does() {
    let table = OffsetTable::parse(OFFSETS.as_bytes()).unwrap();
    let at = |queue_id, queue_offset| GroupOffset {
        topic: "orders",
        group: "billing",
        queue_id,
        queue_offset,
    };
    assert_eq!(table.iter().collect::<Vec<_>>(), [at(0, 57), at(10, 60)]);
    assert_eq!(table.get("orders", "billing", 10), Some(60));
    assert_eq!(table.get("orders", "billing", 1), None);
    assert_eq!(table.get("orders", "other", 0), None);
    assert_eq!(String::from_utf8(table.to_bytes()).unwrap(), OFFSETS);
}

#[test]
fn a_noted_offset_stands_among_the_queues_by_number() {
    let mut table = OffsetTable::parse(OFFSETS.as_bytes()).unwrap();
    let mut put = |topic, queue_id, queue_offset| {
        table.put(&GroupOffset { topic, group: "billing", queue_id, queue_offset }, 7);
    };
    put("orders", 2, i64::MAX);
    put("orders", 0, 58);
    put("stock", 1, 3);
    let text = String::from_utf8(table.to_bytes()).unwrap();
    assert!(text.contains("\"orders@billing\":{0:58,2:9223372036854775807,10:60\n\t\t}"), "{text}");
    assert!(text.contains("\"stock@billing\":{1:3\n\t\t}"), "{text}");
    assert!(text.contains("\"billing\":[\"orders\",\"stock\"]"), "{text}");
    assert!(text.contains("\"counter\":3,"), "{text}");
    assert_eq!(OffsetTable::parse(text.as_bytes()).unwrap(), table);
}

#[test]
fn names_without_a_group_are_passed_over() {
    let text = r#"{"offsetTable":{"a":{0:1},"a@b@c":{0:1},"@":{0:1},"a@b":{0:-1}}}"#;
    let table = OffsetTable::parse(text.as_bytes()).unwrap();
    let read: Vec<_> = table.iter().map(|at| (at.topic, at.group, at.queue_offset)).collect();
    assert_eq!(read, [("", "", 1), ("a", "b", -1)]);
}

#[test]
fn offsets_that_are_no_integers_are_refused() {
    for text in [
        r#"{"offsetTable":{"a@b":{0:1.5}}}"#,
        r#"{"offsetTable":{"a@b":{0:"1"}}}"#,
        r#"{"offsetTable":{"a@b":{0:9223372036854775808}}}"#,
        r#"{"offsetTable":{"a@b":{"x":1}}}"#,
        r#"{"offsetTable":{"a@b":{2147483648:1}}}"#,
        r#"{"offsetTable":{"a@b":[1]}}"#,
        r#"{"offsetTable":7}"#,
    ] {
        assert!(OffsetTable::parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn offsets_of_light_groups_are_read_and_kept_in_their_own_table() {
    let text = r#"{"offsetTable":{"a@b":{0:1}},"lmqOffsetTable":{"%LMQ%t@%LMQ%g":7}}"#;
    let mut table = OffsetTable::parse(text.as_bytes()).unwrap();
    let read: Vec<_> = table.iter().map(|at| (at.topic, at.group, at.queue_offset)).collect();
    assert_eq!(read, [("a", "b", 1), ("%LMQ%t", "%LMQ%g", 7)]);
    let light = GroupOffset { topic: "%LMQ%t", group: "%LMQ%g", queue_id: 0, queue_offset: 9 };
    table.put(&light, 5);
    let written = String::from_utf8(table.to_bytes()).unwrap();
    assert!(written.contains("\"%LMQ%t@%LMQ%g\":9"), "{written}");
    assert_eq!(OffsetTable::parse(written.as_bytes()).unwrap().iter().count(), 2);
    assert_eq!(table.age(), (5, 1, 2));
    // The light table has one offset for a topic; those of further queues would be lost in it.
    table.put(&GroupOffset { queue_id: 1, queue_offset: 3, ..light }, 6);
    let read: Vec<_> = table.iter().skip(1).map(|at| (at.queue_id, at.queue_offset)).collect();
    assert_eq!(read, [(1, 3), (0, 9)]);
    let text =
        r#"{"offsetTable":{"%LMQ%t@%LMQ%g":{0:4,1:5}},"lmqOffsetTable":{"%LMQ%t@%LMQ%g":7}}"#;
    let both = OffsetTable::parse(text.as_bytes()).unwrap();
    let read: Vec<_> = both.iter().map(|at| (at.queue_id, at.queue_offset)).collect();
    assert_eq!(read, [(1, 5), (0, 7)]);
    let mut plain = OffsetTable::default();
    plain.put(&light, 5);
    assert_eq!(plain.get("%LMQ%t", "%LMQ%g", 0), Some(9));
    plain.keep_light();
    assert!(String::from_utf8(plain.to_bytes()).unwrap().contains("\"lmqOffsetTable\":{}"));
    for bad in [r#"{"lmqOffsetTable":{"a@b":"x"}}"#, r#"{"lmqOffsetTable":[]}"#] {
        assert!(OffsetTable::parse(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn delay_offsets_are_by_level() {
    let text =
        "{\n\t\"dataVersion\":{\n\t\t\"counter\":0\n\t},\n\t\"offsetTable\":{1:3,2:2\n\t}\n}";
    assert_eq!(parse_delay_offsets(text.as_bytes()).unwrap(), [(1, 3), (2, 2)]);
    assert_eq!(parse_delay_offsets(b"{}").unwrap(), []);
    assert!(parse_delay_offsets(br#"{"offsetTable":{"x":1}}"#).is_err());
    assert!(parse_delay_offsets(br#"{"offsetTable":{1:"x"}}"#).is_err());
}
