//! The broker's tables of topics and consumer offsets (`config/topics.json`, `consumerOffset.json`,
//! `delayOffset.json`). Unknown fields are kept.

use serde_json::{Map, Value, json};

use super::json::{self, bad};
use crate::error::FormatError;

/// Version counter of a file (`DataVersion`).
const DATA_VERSION: &str = "dataVersion";
const TOPIC_TABLE: &str = "topicConfigTable";
const OFFSET_TABLE: &str = "offsetTable";
const GROUP_TOPICS: &str = "groupTopicMap";

/// Attribute for the kind of queue (`TopicAttributes.QUEUE_TYPE_ATTRIBUTE`).
const QUEUE_TYPE: &str = "queue.type";
/// Offsets of light groups, one queue each (`LmqConsumerOffsetManager`).
const LMQ_OFFSET_TABLE: &str = "lmqOffsetTable";
/// Prefix of light groups (`MixAll.LMQ_PREFIX`).
const LMQ_PREFIX: &str = "%LMQ%";
const BATCH_QUEUE: &str = "BatchCQ";
/// Attribute for cleanup (`TopicAttributes.CLEANUP_POLICY_ATTRIBUTE`).
const CLEANUP_POLICY: &str = "cleanup.policy";

#[derive(Clone, Debug, Default, PartialEq)]
struct Root(Map<String, Value>);

impl Root {
    fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        match json::parse(bytes)? {
            Value::Object(root) => Ok(Self(root)),
            other => Err(not_an_object("the file", &other)),
        }
    }

    fn table(&self, name: &str) -> Result<Option<&Map<String, Value>>, FormatError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(table)) => Ok(Some(table)),
            Some(other) => Err(not_an_object(name, other)),
        }
    }

    fn table_mut(&mut self, name: &str) -> &mut Map<String, Value> {
        object_in(&mut self.0, name)
    }

    fn touch(&mut self, now_ms: i64) {
        let version = self.table_mut(DATA_VERSION);
        let counter = version.get("counter").and_then(Value::as_i64).unwrap_or(0);
        let state = version.get("stateVersion").and_then(Value::as_i64).unwrap_or(0);
        *version = Map::new();
        version.insert("counter".into(), counter.wrapping_add(1).into());
        version.insert("stateVersion".into(), state.into());
        version.insert("timestamp".into(), now_ms.into());
    }

    /// Serializes; the fields are sorted by name, as in RocketMQ.
    fn to_bytes(&self) -> Vec<u8> {
        let mut fields: Vec<_> = self.0.iter().collect();
        fields.sort_by_key(|(name, _)| *name);
        if fields.is_empty() { b"{}".to_vec() } else { json::object_to_text(&fields).into_bytes() }
    }
}

/// The object at `name`, created if missing.
fn object_in<'a>(parent: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let value = parent.entry(name).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(object) => object,
        _ => unreachable!("an object was put there"),
    }
}

fn not_an_object(what: &str, found: &Value) -> FormatError {
    bad(0, format!("an object as {what}"), kind_of(found).into())
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A topic's configuration (`org.apache.rocketmq.common.TopicConfig`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfig {
    pub name: String,
    pub read_queue_nums: i32,
    pub write_queue_nums: i32,
    /// 4 to read, 2 to write, 6 both.
    pub perm: i32,
    /// `SINGLE_TAG` or `MULTI_TAG`.
    pub topic_filter_type: String,
    pub topic_sys_flag: i32,
    /// Whether the order of queues is kept when a broker is gone.
    pub order: bool,
    pub attributes: Vec<(String, String)>,
}

impl TopicConfig {
    #[must_use]
    pub fn new(name: impl Into<String>, queues: i32) -> Self {
        Self {
            name: name.into(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: 6,
            topic_filter_type: "SINGLE_TAG".into(),
            topic_sys_flag: 0,
            order: false,
            attributes: Vec::new(),
        }
    }

    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    #[must_use]
    pub fn with_batch_queue(mut self) -> Self {
        self.attributes.retain(|(name, _)| name != QUEUE_TYPE);
        self.attributes.push((QUEUE_TYPE.into(), BATCH_QUEUE.into()));
        self
    }

    /// Whether its queues are batch queues (`QueueTypeUtils#isBatchCq`).
    #[must_use]
    pub fn is_batch_queue(&self) -> bool {
        self.attribute(QUEUE_TYPE) == Some(BATCH_QUEUE)
    }

    /// Whether the topic is compacted (`CleanupPolicyUtils#isCompaction`).
    #[must_use]
    pub fn is_compacted(&self) -> bool {
        self.attribute(CLEANUP_POLICY) == Some("COMPACTION")
    }

    /// Reads a topic; a missing field has the default of a new topic with 16 queues.
    fn read(name: &str, value: &Value) -> Result<Self, FormatError> {
        let Value::Object(fields) = value else { return Err(not_an_object(name, value)) };
        let mut config = Self::new(name, 16);
        for (field, value) in fields {
            match field.as_str() {
                "topicName" => config.name = text(field, value)?,
                "readQueueNums" => config.read_queue_nums = integer(field, value)?,
                "writeQueueNums" => config.write_queue_nums = integer(field, value)?,
                "perm" => config.perm = integer(field, value)?,
                "topicFilterType" => config.topic_filter_type = text(field, value)?,
                "topicSysFlag" => config.topic_sys_flag = integer(field, value)?,
                "order" => {
                    config.order =
                        value.as_bool().ok_or_else(|| wrong("a boolean", field, value))?;
                }
                "attributes" => config.attributes = attributes(field, value)?,
                _ => {}
            }
        }
        Ok(config)
    }

    /// Sets the known fields in `value` and keeps the others.
    fn write(&self, fields: &mut Map<String, Value>) {
        let attributes: Map<String, Value> =
            self.attributes.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        for (name, value) in [
            ("attributes", Value::Object(attributes)),
            ("order", json!(self.order)),
            ("perm", json!(self.perm)),
            ("readQueueNums", json!(self.read_queue_nums)),
            ("topicFilterType", json!(self.topic_filter_type)),
            ("topicName", json!(self.name)),
            ("topicSysFlag", json!(self.topic_sys_flag)),
            ("writeQueueNums", json!(self.write_queue_nums)),
        ] {
            fields.insert(name.into(), value);
        }
        fields.sort_keys();
    }
}

fn wrong(expected: &str, field: &str, found: &Value) -> FormatError {
    let found = match found {
        Value::Number(number) => number.to_string(),
        other => kind_of(other).into(),
    };
    bad(0, format!("{expected} as {field}"), found)
}

fn text(field: &str, value: &Value) -> Result<String, FormatError> {
    value.as_str().map(Into::into).ok_or_else(|| wrong("a text", field, value))
}

fn integer<T: TryFrom<i64>>(field: &str, value: &Value) -> Result<T, FormatError> {
    let integer = value.as_i64().and_then(|integer| T::try_from(integer).ok());
    integer.ok_or_else(|| wrong("an integer", field, value))
}

fn attributes(field: &str, value: &Value) -> Result<Vec<(String, String)>, FormatError> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Object(all) => {
            all.iter().map(|(name, value)| Ok((name.clone(), text(name, value)?))).collect()
        }
        other => Err(not_an_object(field, other)),
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicTable(Root);

impl TopicTable {
    /// Parses the file.
    ///
    /// # Errors
    /// For malformed JSON or a field of the wrong type.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let table = Self(Root::parse(bytes)?);
        for (name, value) in table.0.table(TOPIC_TABLE)?.into_iter().flatten() {
            TopicConfig::read(name, value)?;
        }
        Ok(table)
    }

    pub fn iter(&self) -> impl Iterator<Item = TopicConfig> + '_ {
        let table = self.0.table(TOPIC_TABLE).ok().flatten();
        table.into_iter().flatten().filter_map(|(name, value)| TopicConfig::read(name, value).ok())
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<TopicConfig> {
        let value = self.0.table(TOPIC_TABLE).ok().flatten()?.get(name)?;
        TopicConfig::read(name, value).ok()
    }

    /// Adds or replaces a topic.
    pub fn put(&mut self, config: &TopicConfig, now_ms: i64) {
        config.write(object_in(self.0.table_mut(TOPIC_TABLE), &config.name));
        self.0.touch(now_ms);
    }

    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }
}

/// A group's position in a queue: the next entry it will consume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOffset<'a> {
    pub topic: &'a str,
    pub group: &'a str,
    pub queue_id: i32,
    pub queue_offset: i64,
}

/// `config/consumerOffset.json` (`ConsumerOffsetManager`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OffsetTable(Root);

impl OffsetTable {
    /// Parses the file.
    ///
    /// # Errors
    /// For malformed JSON, or a queue or offset that is no integer.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let table = Self(Root::parse(bytes)?);
        for (name, value) in table.0.table(OFFSET_TABLE)?.into_iter().flatten() {
            let Value::Object(queues) = value else { return Err(not_an_object(name, value)) };
            for (queue, offset) in queues {
                queue_id(name, queue)?;
                integer::<i64>(queue, offset)?;
            }
        }
        for (name, offset) in table.0.table(LMQ_OFFSET_TABLE)?.into_iter().flatten() {
            integer::<i64>(name, offset)?;
        }
        Ok(table)
    }

    /// All offsets in the order of the file, light groups last. Keys other than `topic@group` are
    /// skipped.
    pub fn iter(&self) -> impl Iterator<Item = GroupOffset<'_>> {
        let light = self.0.table(LMQ_OFFSET_TABLE).ok().flatten();
        let light = light.into_iter().flatten().filter_map(|(name, offset)| {
            let (topic, group) = topic_and_group(name)?;
            Some(GroupOffset { topic, group, queue_id: 0, queue_offset: offset.as_i64()? })
        });
        self.of_queues().chain(light)
    }

    fn of_queues(&self) -> impl Iterator<Item = GroupOffset<'_>> {
        let table = self.0.table(OFFSET_TABLE).ok().flatten();
        table.into_iter().flatten().flat_map(|(name, queues)| {
            let names = topic_and_group(name);
            let queues = queues.as_object().filter(|_| names.is_some());
            let (topic, group) = names.unwrap_or_default();
            queues.into_iter().flatten().filter_map(move |(queue, offset)| {
                let queue_id = queue.parse().ok()?;
                Some(GroupOffset { topic, group, queue_id, queue_offset: offset.as_i64()? })
            })
        })
    }

    /// Order by which the newer of two tables wins: time of change, then size.
    #[must_use]
    pub fn age(&self) -> (i64, i64, usize) {
        let version = self.0.table(DATA_VERSION).ok().flatten();
        let number = |name| version.and_then(|version| version.get(name)?.as_i64()).unwrap_or(0);
        (number("timestamp"), number("counter"), self.iter().count())
    }

    /// Switches to a broker with light queues (`LmqConsumerOffsetManager`).
    pub fn keep_light(&mut self) {
        self.0.table_mut(LMQ_OFFSET_TABLE);
    }

    /// The group's offset; `None` if it has consumed nothing.
    #[must_use]
    pub fn get(&self, topic: &str, group: &str, queue_id: i32) -> Option<i64> {
        let queues = self.0.table(OFFSET_TABLE).ok().flatten()?.get(&format!("{topic}@{group}"))?;
        queues.get(queue_id.to_string())?.as_i64()
    }

    /// Sets a group's offset (`ConsumerOffsetManager#commitOffset`).
    pub fn put(&mut self, at: &GroupOffset<'_>, now_ms: i64) {
        let key = format!("{}@{}", at.topic, at.group);
        if at.group.starts_with(LMQ_PREFIX) && self.0.0.contains_key(LMQ_OFFSET_TABLE) {
            self.0.table_mut(LMQ_OFFSET_TABLE).insert(key, at.queue_offset.into());
            self.0.touch(now_ms);
            return;
        }
        let queues = object_in(self.0.table_mut(OFFSET_TABLE), &key);
        queues.insert(at.queue_id.to_string(), at.queue_offset.into());
        let mut by_number: Vec<(String, Value)> = std::mem::take(queues).into_iter().collect();
        by_number.sort_by_key(|(queue, _)| queue.parse::<i32>().unwrap_or(i32::MAX));
        queues.extend(by_number);

        let topics = self.0.table_mut(GROUP_TOPICS).entry(at.group).or_insert(json!([]));
        if let Value::Array(topics) = topics
            && !topics.iter().any(|topic| topic == at.topic)
        {
            topics.push(at.topic.into());
        }
        self.0.touch(now_ms);
    }

    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }
}

/// The two names in `topic@group`; neither can hold `@`.
fn topic_and_group(key: &str) -> Option<(&str, &str)> {
    key.split_once('@').filter(|(_, group)| !group.contains('@'))
}

fn queue_id(table: &str, key: &str) -> Result<i32, FormatError> {
    key.parse().map_err(|_| bad(0, format!("a queue in {table}"), key.chars().take(64).collect()))
}

/// The next entry of `SCHEDULE_TOPIC_XXXX` for each delay level (`config/delayOffset.json`,
/// `ScheduleMessageService`); level `n` has queue `n - 1`.
///
/// # Errors
/// For malformed JSON, or a level or offset that is no integer.
pub fn parse_delay_offsets(bytes: &[u8]) -> Result<Vec<(i32, i64)>, FormatError> {
    let root = Root::parse(bytes)?;
    let levels = root.table(OFFSET_TABLE)?.into_iter().flatten();
    levels
        .map(|(level, offset)| Ok((queue_id(OFFSET_TABLE, level)?, integer(level, offset)?)))
        .collect()
}

#[cfg(test)]
mod tests {
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
        assert!(topic.is_batch_queue() && !topic.is_compacted());
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
        assert!(config.is_compacted());
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
        assert!(
            text.contains("\"orders@billing\":{0:58,2:9223372036854775807,10:60\n\t\t}"),
            "{text}"
        );
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
}
