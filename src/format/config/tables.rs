//! The broker's tables of topics and consumer offsets (`config/topics.json`, `consumerOffset.json`,
//! `delayOffset.json`). Unknown fields are kept.

use std::borrow::Cow;
use std::fmt;

use indexmap::IndexMap;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::json;
use super::json::{Field, bad};
use crate::error::{FormatError, start_of};
use crate::format::crc::crc32;

const DATA_VERSION: &str = "dataVersion";
const TOPIC_TABLE: &str = "topicConfigTable";
const OFFSET_TABLE: &str = "offsetTable";
const GROUP_TOPICS: &str = "groupTopicMap";

const QUEUE_TYPE: &str = "queue.type";
/// Offsets of light groups, one queue each (`LmqConsumerOffsetManager`).
const LMQ_OFFSET_TABLE: &str = "lmqOffsetTable";
const LMQ_PREFIX: &str = "%LMQ%";
/// Ours: messages behind a group's offset that are done. A broker ignores and drops it.
const DONE_TABLE: &str = "mqstoreDone";
const BATCH_QUEUE: &str = "BatchCQ";

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
    fn to_bytes(&self, more: Option<(&str, Field<'_>)>) -> Vec<u8> {
        let own = self.0.iter().map(|(name, value)| (name.as_str(), Field::Value(value)));
        let mut fields: Vec<_> = own.chain(more).collect();
        fields.sort_by_key(|(name, _)| *name);
        if fields.is_empty() { b"{}".to_vec() } else { json::object_to_text(&fields).into_bytes() }
    }
}

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

struct Texts<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Texts<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Texts<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Texts(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

fn read_text<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, FormatError> {
    serde_json::from_str(text).map_err(|error| bad(0, "JSON".into(), error.to_string()))
}

fn fields_of<'a>(what: &str, text: &'a RawValue) -> Result<Texts<'a>, FormatError> {
    match text.get().starts_with('{') {
        true => read_text(text.get()),
        false => Err(not_an_object(what, &read_text(text.get())?)),
    }
}

/// `config/topics.json` (`TopicConfigManager`). Topics are kept as text: as values, a hundred
/// thousand of them take some hundred megabytes.
#[derive(Clone, Debug, Default)]
pub struct TopicTable {
    root: Root,
    topics: IndexMap<Box<str>, Box<str>>,
}

impl PartialEq for TopicTable {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root && self.topics.as_slice() == other.topics.as_slice()
    }
}

impl TopicTable {
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut table = Self::default();
        table.root = Self::each(bytes, |name, value, _| table.insert(name, &value))?;
        Ok(table)
    }

    /// Passes each topic to `take`, with its name in the table, and returns the other fields. The
    /// last of topics of one name counts.
    fn each(
        bytes: &[u8],
        mut take: impl FnMut(&str, Value, TopicConfig),
    ) -> Result<Root, FormatError> {
        json::parse_by(bytes, |text| {
            let text: &RawValue = serde_json::from_slice(text)?;
            let mut root = Root::default();
            let mut read = || {
                let fields = fields_of("the file", text)?.0;
                let last = fields.iter().rposition(|(name, _)| name == TOPIC_TABLE);
                for (at, (name, text)) in fields.into_iter().enumerate() {
                    if name != TOPIC_TABLE {
                        root.0.insert(name.into_owned(), read_text(text.get())?);
                    } else if Some(at) == last && text.get() != "null" {
                        for (name, text) in fields_of(TOPIC_TABLE, text)?.0 {
                            let value = read_text(text.get())?;
                            let config = TopicConfig::read(&name, &value)?;
                            take(&name, value, config);
                        }
                    }
                }
                Ok(())
            };
            let outcome = read();
            Ok(outcome.map(|()| root))
        })?
    }

    pub fn configs(bytes: &[u8], mut take: impl FnMut(TopicConfig)) -> Result<(), FormatError> {
        Self::each(bytes, |_, _, config| take(config)).map(drop)
    }

    fn insert(&mut self, name: &str, value: &Value) {
        self.topics.insert(name.into(), value.to_string().into_boxed_str());
    }

    fn value(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.topics.get(name)?).ok()
    }

    pub fn iter(&self) -> impl Iterator<Item = TopicConfig> + '_ {
        self.topics.iter().filter_map(|(name, text)| {
            TopicConfig::read(name, &serde_json::from_str(text).ok()?).ok()
        })
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<TopicConfig> {
        TopicConfig::read(name, &self.value(name)?).ok()
    }

    pub fn put(&mut self, config: &TopicConfig, now_ms: i64) {
        let mut value = self.value(&config.name).unwrap_or_else(|| json!({}));
        if let Value::Object(fields) = &mut value {
            config.write(fields);
        }
        self.insert(&config.name, &value);
        self.root.touch(now_ms);
    }

    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let topics = (TOPIC_TABLE, Field::Texts(&self.topics));
        self.root.to_bytes((!self.topics.is_empty()).then_some(topics))
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
        table.0.table(DONE_TABLE)?;
        Ok(table)
    }

    /// All offsets in the order of the file, light groups last. Their table counts for queue 0, as
    /// in a broker. Keys other than `topic@group` are skipped.
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
        let light = self.0.table(LMQ_OFFSET_TABLE).ok().flatten();
        table.into_iter().flatten().flat_map(move |(name, queues)| {
            let is_light = light.is_some_and(|table| table.contains_key(name));
            let names = topic_and_group(name);
            let queues = queues.as_object().filter(|_| names.is_some());
            let (topic, group) = names.unwrap_or_default();
            queues.into_iter().flatten().filter_map(move |(queue, offset)| {
                let queue_id = queue.parse::<i32>().ok().filter(|id| *id != 0 || !is_light)?;
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

    /// Ranges behind a group's offset whose messages are done. They count with this offset alone: a
    /// broker or an operator may move the group.
    #[must_use]
    pub fn done(&self, at: &GroupOffset<'_>) -> Vec<(i64, i64)> {
        let ranges = || {
            let queues =
                self.0.table(DONE_TABLE).ok()??.get(&format!("{}@{}", at.topic, at.group))?;
            let numbers = queues.get(at.queue_id.to_string())?.as_array()?;
            let numbers = numbers.iter().map(Value::as_i64).collect::<Option<Vec<_>>>()?;
            let (&offset, ends) = numbers.split_first()?;
            let (pairs, rest) = ends.as_chunks::<2>();
            let is_valid = offset == at.queue_offset && rest.is_empty();
            is_valid.then(|| pairs.iter().map(|&[start, end]| (start, end)).collect())
        };
        ranges().unwrap_or_default()
    }

    pub fn put_done(&mut self, at: &GroupOffset<'_>, ranges: &[(i64, i64)]) {
        if ranges.is_empty() {
            return;
        }
        let key = format!("{}@{}", at.topic, at.group);
        let numbers = ranges.iter().flat_map(|&(start, end)| [start, end]);
        let numbers: Vec<Value> =
            [at.queue_offset].into_iter().chain(numbers).map(Value::from).collect();
        let queues = object_in(self.0.table_mut(DONE_TABLE), &key);
        queues.insert(at.queue_id.to_string(), numbers.into());
    }

    fn forget_done(&mut self, key: &str, queue_id: i32) {
        let Some(Value::Object(table)) = self.0.0.get_mut(DONE_TABLE) else { return };
        if let Some(Value::Object(queues)) = table.get_mut(key) {
            queues.shift_remove(&queue_id.to_string());
        }
        table.retain(|_, queues| queues.as_object().is_some_and(|queues| !queues.is_empty()));
        if table.is_empty() {
            self.0.0.shift_remove(DONE_TABLE);
        }
    }

    /// Sets a group's offset (`ConsumerOffsetManager#commitOffset`).
    pub fn put(&mut self, at: &GroupOffset<'_>, now_ms: i64) {
        let key = format!("{}@{}", at.topic, at.group);
        self.forget_done(&key, at.queue_id);
        let is_light = at.queue_id == 0 && at.group.starts_with(LMQ_PREFIX);
        if is_light && self.0.0.contains_key(LMQ_OFFSET_TABLE) {
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
        self.0.to_bytes(None)
    }
}

/// The two names in `topic@group`; neither can hold `@`.
fn topic_and_group(key: &str) -> Option<(&str, &str)> {
    key.split_once('@').filter(|(_, group)| !group.contains('@'))
}

fn queue_id(table: &str, key: &str) -> Result<i32, FormatError> {
    key.parse().map_err(|_| bad(0, format!("a queue in {table}"), start_of(key)))
}

/// The next entry of `SCHEDULE_TOPIC_XXXX` for each delay level (`config/delayOffset.json`,
/// `ScheduleMessageService`); level `n` has queue `n - 1`.
pub fn parse_delay_offsets(bytes: &[u8]) -> Result<Vec<(i32, i64)>, FormatError> {
    let root = Root::parse(bytes)?;
    let levels = root.table(OFFSET_TABLE)?.into_iter().flatten();
    levels
        .map(|(level, offset)| Ok((queue_id(OFFSET_TABLE, level)?, integer(level, offset)?)))
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    pub number: i32,
    pub begin: u64,
}

#[must_use]
pub fn parse_epochs(bytes: &[u8]) -> Option<Vec<Epoch>> {
    let mut lines: Vec<_> = std::str::from_utf8(bytes).ok()?.lines().collect();
    let is_epoch = |line: &&str| line.contains('-');
    let entries = lines.split_off(lines.iter().position(is_epoch).unwrap_or(lines.len()));
    let (count, sum) = match *lines {
        [count] => (count, "0"),
        [count, sum] => (count, sum),
        _ => return None,
    };
    let sum: u32 = sum.parse().ok()?;
    let text: String = entries.iter().flat_map(|line| [*line, "\n"]).collect();
    if count.parse() != Ok(entries.len())
        || ![0, crc32(text.as_bytes()) & 0x7FFF_FFFF].contains(&sum)
    {
        return None;
    }
    let entry = |line: &str| {
        let (number, begin) = line.split_once('-')?;
        Some(Epoch { number: number.parse().ok()?, begin: begin.parse().ok()? })
    };
    entries.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod epochs_tests {
    use super::*;

    #[test]
    fn epochs_are_read_with_their_checksum_or_without() {
        let both = Some(vec![Epoch { number: 7, begin: 7000 }, Epoch { number: 8, begin: 8000 }]);
        for head in ["2\n773307083\n", "2\n0\n", "2\n"] {
            assert_eq!(parse_epochs(format!("{head}7-7000\n8-8000\n").as_bytes()), both, "{head}");
        }
    }

    #[test]
    fn epochs_that_are_damaged_are_none() {
        for text in [
            "",
            "2\n",
            "1\n0\n7-7000\n8-8000\n",
            "2\n773307084\n7-7000\n8-8000\n",
            "2\n773307083\n7-7000\n8-8001\n",
            "2\n0\n1\n7-7000\n8-8000\n",
            "1\n0\n7--7000\n",
            "1\n0\nx-1\n",
            "1\n0\n1-99999999999999999999\n",
        ] {
            assert_eq!(parse_epochs(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_epochs(b"1\n\xff-1\n"), None);
    }
}
