//! Transfers messages into a new store: queue offsets, stand-ins for missing ones, and
//! configuration. Open `copy.rs` for a copy of a store, `diff.rs` for the comparison of two.

pub mod copy;
pub mod diff;
pub mod new_store;
pub mod numbering;

use std::path::Path;
use std::sync::Arc;

use hashbrown::HashSet;
use serde_json::Value;

pub(super) use self::new_store::refuse_what_is_there;
pub use self::new_store::{ConfigFile, NewStore};
use self::new_store::{TOPICS, parse_table, topic_table};
use self::numbering::Numbering;
pub(super) use self::numbering::has_no_stand_ins;
pub use self::numbering::{NumberRule, QueueName};
use crate::config::StoreConfig;
use crate::error::{Error, FormatError, Result};
use crate::files::{FileKind, Storage, SystemClock};
use crate::format::config::json;
use crate::format::config::tables::{GroupOffset, OffsetTable, TopicConfig, TopicTable};
use crate::format::message::Record;
use crate::format::message::sys_flag::{BORN_HOST_V6, STORE_HOST_V6};
use crate::format::queue::consume_queue::SCHEDULE_TOPIC;
use crate::format::queue::is_broker_topic;
use crate::format::width::clamp_u64;
use crate::store::dispatch::lmq;
use crate::store::folder::config_file;
use crate::store::folder::paths::SETTINGS_FILE;
use crate::store::queue_table::TopicKinds;
use crate::store::topics::{self, LEAST_QUEUES};
use crate::time::Clock;

pub(super) const STAND_IN_PROPERTIES: &[u8] = b"MQSTORE_LEFT_OUT\x01true\x02";
/// Stand-ins allowed in any case; more need as many copied messages.
const FREE_STAND_INS: u64 = 1 << 16;

const OFFSET_FILES: [&str; 2] = ["consumerOffset.json", "lmqConsumerOffset.json"];
const DELAY_FILE: &str = "delayOffset.json";

#[derive(Debug)]
pub struct Transfer {
    new: NewStore,
    numbering: Numbering,
    files: Vec<ConfigFile>,
    pub messages: u64,
    pub bytes: u64,
    pub stand_ins: u64,
    expected: u64,
    /// Whether every record keeps its physical offset.
    pub in_place: bool,
}

#[derive(Debug)]
pub struct Plan {
    pub config: StoreConfig,
    pub base_offset: u64,
    pub rule: NumberRule,
    /// Queues to close up although others are kept.
    pub closed_up: HashSet<QueueName>,
    /// Files below `config` to copy.
    pub files: Vec<ConfigFile>,
    /// Number of messages, if known: as many stand-ins are allowed.
    pub expected: u64,
}

impl Transfer {
    /// Begins a transfer into a new store at `out`.
    ///
    /// # Errors
    /// [`Error::Io`] if something is in the way; [`Error::Corrupt`] for an unreadable
    /// table that would have to change.
    pub fn begin(storage: Arc<dyn Storage>, out: &Path, plan: Plan) -> Result<Self> {
        let Plan { config, base_offset, rule, closed_up, files, expected } = plan;
        let mut numbering = Numbering::new(rule, kinds(&files));
        numbering.closed_up = closed_up;
        for (name, bytes) in &files {
            if OFFSET_FILES.contains(&name.as_str()) {
                let table = parse_table(name, bytes, OffsetTable::parse)?;
                for at in table.iter() {
                    let done = table.done(&at).into_iter().flat_map(|(from, to)| [from, to]);
                    for place in std::iter::once(at.queue_offset).chain(done) {
                        numbering.watch(at.topic.as_bytes(), at.queue_id, place);
                    }
                }
            } else if name == DELAY_FILE {
                for (queue_id, at) in delays(&parse_table(name, bytes, json::parse)?) {
                    numbering.watch(SCHEDULE_TOPIC, queue_id, at);
                }
            } else if name == TOPICS {
                parse_table(name, bytes, TopicTable::parse)?;
            }
        }
        let new = NewStore::create(storage, out, config, base_offset)?;
        Ok(Self {
            new,
            numbering,
            files,
            messages: 0,
            bytes: 0,
            stand_ins: 0,
            expected,
            in_place: true,
        })
    }

    /// Number for a queue's next message that has none.
    pub fn next_number(&mut self, topic: &[u8], queue_id: i32) -> i64 {
        self.numbering.next(topic, queue_id)
    }

    /// Writes a record, after stand-ins for missing ones.
    pub fn put(&mut self, record: &Record<'_>) -> Result<()> {
        let numbered = self.numbering.number(record);
        let missing = numbered.missing;
        if !missing.is_empty() {
            let count = clamp_u64(missing.end.saturating_sub(missing.start));
            let allowed = most_stand_ins(self.messages.max(self.expected));
            if self.stand_ins.saturating_add(count) > allowed {
                return Err(too_many(record, missing.start, missing.end));
            }
            for queue_offset in missing {
                let stand_in = stand_in(record, queue_offset);
                self.new.put(&stand_in)?;
                self.stand_ins += 1;
            }
        }
        let changed = Record {
            queue_offset: numbered.queue_offset,
            properties: numbered.properties.as_deref().unwrap_or(record.properties),
            ..*record
        };
        let at = self.new.put(&changed)?;
        self.in_place &= u64::try_from(record.physical_offset) == Ok(at);
        self.messages += 1;
        self.bytes += changed.encoded_size() as u64;
        Ok(())
    }

    /// Finishes the store; offset tables get the new numbers. Messages of `deleted` topics get
    /// neither queues nor an entry in the table.
    pub fn finish(mut self, deleted: &[String]) -> Result<()> {
        let is_other = |topic: &[u8]| !deleted.iter().any(|name| name.as_bytes() == topic);
        self.numbering.batch_topics.retain(|topic, _| is_other(topic));
        if self.numbering.more_queues {
            let config = &mut self.new.config;
            (config.enable_lmq, config.enable_multi_dispatch) = (true, true);
        }
        enter_topics(&mut self.files, &self.numbering)?;
        for (name, bytes) in &mut self.files {
            if OFFSET_FILES.contains(&name.as_str()) {
                moved_offsets(name, bytes, &self.numbering)?;
            } else if name == DELAY_FILE {
                moved_delays(bytes, &self.numbering)?;
            }
        }
        self.new.finish(&self.files, deleted)
    }
}

pub(super) const fn most_stand_ins(messages: u64) -> u64 {
    if messages > FREE_STAND_INS { messages } else { FREE_STAND_INS }
}

fn stand_in<'a>(behind: &Record<'a>, queue_offset: i64) -> Record<'a> {
    Record {
        queue_offset,
        body: b"",
        body_crc: 0,
        properties: STAND_IN_PROPERTIES,
        flag: 0,
        sys_flag: behind.sys_flag & (BORN_HOST_V6 | STORE_HOST_V6),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        ..*behind
    }
}

#[cold]
fn too_many(record: &Record<'_>, from: i64, to: i64) -> Error {
    let (queue_id, topic) = (record.queue_id, String::from_utf8_lossy(record.topic));
    let expected = format!(
        "messages {from} to {to} of queue {queue_id} of {topic:?}, too many to stand in for, or \
         all of them numbered anew"
    );
    Error::argument("queue_offset", expected, "none of them")
}

/// A store's JSON files, without backups (`.bak`).
pub fn config_files(storage: &dyn Storage, folder: &Path) -> Result<Vec<ConfigFile>> {
    let mut files = Vec::new();
    for entry in storage.list_if_there(folder)?.into_iter().flatten() {
        let Some(name) =
            entry.name.to_str().filter(|name| name.ends_with(".json") && *name != SETTINGS_FILE)
        else {
            continue;
        };
        if entry.kind == FileKind::File {
            let bytes = config_file::read_existing(storage, &folder.join(name))?;
            files.push((name.to_owned(), bytes));
        }
    }
    files.sort();
    Ok(files)
}

/// Queue kinds by topic, from the table. An unreadable table names none.
#[must_use]
pub fn kinds(files: &[ConfigFile]) -> TopicKinds {
    topic_table(files).ok().flatten().as_ref().map(topics::kinds_in).unwrap_or_default()
}

/// Adds topics with batch queues to the table, since nothing else tells. Without a table all topics
/// are added.
fn enter_topics(files: &mut Vec<ConfigFile>, numbering: &Numbering) -> Result<()> {
    let known = topic_table(files)?;
    let mut changed = false;
    let is_new = known.is_none();
    let mut table = known.unwrap_or_default();
    if is_new {
        let mut topics: Vec<_> = numbering.topics().collect();
        topics.sort_unstable();
        for (topic, most) in topics {
            if is_broker_topic(topic) && !topic.starts_with(lmq::PREFIX) {
                let queues = most.saturating_add(1).max(LEAST_QUEUES);
                let entry = TopicConfig::new(String::from_utf8_lossy(topic), queues);
                table.put(&entry, SystemClock.now_ms());
                changed = true;
            }
        }
    }
    for (topic, queues) in &numbering.batch_topics {
        let name = String::from_utf8_lossy(topic);
        let entry =
            table.get(&name).unwrap_or_else(|| TopicConfig::new(name, (*queues).max(LEAST_QUEUES)));
        if !entry.is_batch_queue() {
            table.put(&entry.with_batch_queue(), SystemClock.now_ms());
            changed = true;
        }
    }
    if changed {
        files.retain(|(name, _)| name != TOPICS);
        files.push((TOPICS.to_owned(), table.to_bytes()));
    }
    Ok(())
}

/// Checks that a configuration file can be read, and adapted if needed.
pub fn check_table(name: &str, bytes: &[u8]) -> std::result::Result<(), FormatError> {
    match name {
        TOPICS => TopicTable::parse(bytes).map(|_| ()),
        name if OFFSET_FILES.contains(&name) => OffsetTable::parse(bytes).map(|_| ()),
        _ => json::parse(bytes).map(|_| ()),
    }
}

fn moved_offsets(name: &str, bytes: &mut Vec<u8>, numbering: &Numbering) -> Result<()> {
    let before = parse_table(name, bytes, OffsetTable::parse)?;
    let mut after = before.clone();
    let mut changed = false;
    for at in before.iter() {
        let moved = |place| numbering.place(at.topic.as_bytes(), at.queue_id, place);
        let queue_offset = moved(at.queue_offset);
        let done = before.done(&at);
        let ranges = done.iter().map(|&(from, to)| (moved(from), moved(to)));
        let ranges: Vec<_> = ranges.filter(|(from, to)| from < to).collect();
        if queue_offset != at.queue_offset || ranges != done {
            let at = GroupOffset { queue_offset, ..at };
            after.put(&at, SystemClock.now_ms());
            after.put_done(&at, &ranges);
            changed = true;
        }
    }
    if changed {
        *bytes = after.to_bytes();
    }
    Ok(())
}

/// Queues of delayed messages with their offsets: level `n` has queue `n - 1`.
fn delays(table: &Value) -> Vec<(i32, i64)> {
    let levels = table.get("offsetTable").and_then(Value::as_object).into_iter().flatten();
    levels
        .filter_map(|(level, at)| Some((level.parse::<i32>().ok()?.checked_sub(1)?, at.as_i64()?)))
        .collect()
}

fn moved_delays(bytes: &mut Vec<u8>, numbering: &Numbering) -> Result<()> {
    let mut table = parse_table(DELAY_FILE, bytes, json::parse)?;
    let mut changed = false;
    for (queue_id, at) in delays(&table) {
        let now = numbering.place(SCHEDULE_TOPIC, queue_id, at);
        let level = queue_id.saturating_add(1).to_string();
        if now != at
            && let Some(place) = table.get_mut("offsetTable").and_then(|all| all.get_mut(&level))
        {
            *place = now.into();
            changed = true;
        }
    }
    if changed {
        *bytes = json::to_text(&table).into_bytes();
    }
    Ok(())
}
