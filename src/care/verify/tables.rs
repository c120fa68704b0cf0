//! Checks the broker's tables below `config`: whether they are readable and match the queues.
//!
//! Tables are read before queues: a running broker only moves the queues' ends forward, so offsets
//! read earlier are inside the queues later.

use std::path::{Path, PathBuf};

use super::context::{Context, State};
use super::queues::Queues;
use crate::care::finding::{Code, Severity};
use crate::care::topics::{is_deleted, is_system};
use crate::error::{Error, FormatError};
use crate::files::FileKind;
use crate::format::config::json;
use crate::format::config::tables::{OffsetTable, TopicConfig, TopicTable, parse_delay_offsets};
use crate::format::queue::consume_queue::SCHEDULE_TOPIC;
use crate::store::config_file;
use crate::store::queue_table::{TopicKinds, is_broker_topic};
use crate::store::remembered::Remembered;
use crate::store::write::topics;

/// Files that need only be readable.
const OTHERS: [&str; 4] = [
    "subscriptionGroup.json",
    "consumerFilter.json",
    "consumerOrderInfo.json",
    "topicQueueMapping.json",
];

/// Offset of a group or delay level in a queue.
struct Place {
    of: String,
    topic: Box<[u8]>,
    queue_id: i32,
    queue_offset: i64,
}

#[derive(Default)]
pub(super) struct Tables {
    topics: Option<TopicTable>,
    places: Vec<(PathBuf, Vec<Place>)>,
}

impl Tables {
    /// Reads the tables and reports unreadable ones.
    pub(super) fn read(cx: &Context<'_>) -> crate::error::Result<Self> {
        let mut tables = Self::default();
        if !cx.is_folder(&cx.paths.config())? {
            return Ok(tables);
        }
        tables.topics = read_one(cx, &cx.paths.topics(), TopicTable::parse);
        for enable_lmq in [false, true] {
            let path = cx.paths.consumer_offsets(enable_lmq);
            if let Some(table) = read_one(cx, &path, OffsetTable::parse) {
                tables.places.push((path, of_groups(&table)));
            }
        }
        let path = cx.paths.config().join("delayOffset.json");
        if let Some(levels) = read_one(cx, &path, parse_delay_offsets) {
            tables.places.push((path, of_levels(&levels)));
        }
        let own = Remembered::load(&*cx.storage, &cx.paths);
        if let (true, Some(warning)) = (own.is_unusable(), own.warning) {
            let (code, path) = (Code::ConfigUnreadable, cx.paths.settings());
            cx.findings.add(
                code,
                Severity::Warning,
                &path,
                None,
                "JSON as mqstore writes it",
                warning,
            );
        }
        for name in OTHERS {
            read_one(cx, &cx.paths.config().join(name), json::parse);
        }
        Ok(tables)
    }

    /// Known queue kinds; folders tell the others.
    pub(super) fn kinds(&self) -> TopicKinds {
        self.topics.as_ref().map(topics::kinds_in).unwrap_or_default()
    }

    /// Whether a topic with messages was deleted: neither in the table nor with queue folders.
    pub(super) fn has_deleted(&self, cx: &Context<'_>, topic: &[u8]) -> bool {
        let table = self.topics.as_ref();
        table.is_some_and(|table| is_deleted(&*cx.storage, &cx.paths, table, topic))
    }

    pub(super) fn check(&self, cx: &Context<'_>, queues: &Queues) {
        if let Some(topics) = &self.topics {
            check_topics(cx, topics, queues);
        }
        for (path, places) in &self.places {
            places.iter().for_each(|place| check_place(cx, path, place, queues));
        }
    }
}

fn of_groups(table: &OffsetTable) -> Vec<Place> {
    let place = |at: crate::format::config::tables::GroupOffset<'_>| Place {
        of: format!("group {} in {}", at.group, at.topic),
        topic: at.topic.as_bytes().into(),
        queue_id: at.queue_id,
        queue_offset: at.queue_offset,
    };
    table.iter().map(place).collect()
}

fn of_levels(levels: &[(i32, i64)]) -> Vec<Place> {
    let place = |&(level, queue_offset): &(i32, i64)| Place {
        of: format!("delay level {level}"),
        topic: SCHEDULE_TOPIC.into(),
        queue_id: level.saturating_sub(1),
        queue_offset,
    };
    levels.iter().map(place).collect()
}

enum Read<T> {
    Missing,
    Empty,
    Table(T),
    Bad(String),
}

/// Reads a table or its backup, as a broker does (`ConfigManager#load`).
fn read_one<T>(
    cx: &Context<'_>,
    path: &Path,
    parse: fn(&[u8]) -> Result<T, FormatError>,
) -> Option<T> {
    let backup_path = path.with_extension("json.bak");
    let (main, backup) = (read_file(cx, path, parse), read_file(cx, &backup_path, parse));
    let expected = "JSON as a broker writes it";
    let add = |code, severity, path: &Path, found: &str| {
        cx.findings.add(code, severity, path, None, expected, found);
    };
    let what_is_wrong = match main {
        Read::Table(table) => {
            if let Read::Bad(why) = backup {
                add(Code::ConfigNoBackup, Severity::Info, &backup_path, &why);
            }
            return Some(table);
        }
        Read::Missing => "no such file".to_owned(),
        Read::Empty => "an empty file".to_owned(),
        Read::Bad(why) => why,
    };
    match backup {
        Read::Table(table) => {
            let found = format!("{what_is_wrong}; the backup can be read");
            add(Code::ConfigBackup, Severity::Warning, path, &found);
            Some(table)
        }
        Read::Missing if what_is_wrong == "no such file" => None,
        Read::Missing | Read::Empty => {
            let found = format!("{what_is_wrong}; no backup");
            add(Code::ConfigUnreadable, Severity::Error, path, &found);
            None
        }
        Read::Bad(why) => {
            let found = format!("{what_is_wrong}; of the backup: {why}");
            add(Code::ConfigUnreadable, Severity::Error, path, &found);
            None
        }
    }
}

fn read_file<T>(
    cx: &Context<'_>,
    path: &Path,
    parse: fn(&[u8]) -> Result<T, FormatError>,
) -> Read<T> {
    match cx.storage.kind(path) {
        Ok(Some(kind @ (FileKind::Directory | FileKind::Other))) => {
            cx.stray_as(Code::NoRegularFile, Severity::Warning, path, kind, "a file");
            return Read::Missing;
        }
        Ok(None) => return Read::Missing,
        Ok(Some(FileKind::File)) | Err(_) => {}
    }
    match config_file::read_json(&*cx.storage, path) {
        Ok(None) => Read::Missing,
        Ok(Some(bytes)) if bytes.is_empty() => Read::Empty,
        Ok(Some(bytes)) => match parse(&bytes) {
            Ok(table) => Read::Table(table),
            Err(error) => Read::Bad(format!("{} at byte {}", error.found, error.position)),
        },
        Err(Error::Corrupt(fault)) => Read::Bad(fault.found),
        Err(error) => {
            cx.error(path, error);
            Read::Bad("a file that the system cannot read".to_owned())
        }
    }
}

fn check_topics(cx: &Context<'_>, topics: &TopicTable, queues: &Queues) {
    let mut known: Option<(&[u8], Option<TopicConfig>)> = None;
    for queue in &queues.list {
        if queue.first >= queue.end || is_system(&queue.topic) {
            continue;
        }
        if known.as_ref().is_none_or(|(topic, _)| **topic != *queue.topic) {
            let config = std::str::from_utf8(&queue.topic).ok().and_then(|name| topics.get(name));
            if config.is_none() {
                report_topic(cx, &queue.topic);
            }
            known = Some((&queue.topic, config));
        }
        if let Some((_, Some(config))) = &known
            && queue.id >= config.read_queue_nums
            // No number of queues exceeds the highest queue.
            && queue.id < i32::MAX
        {
            let expected = format!("queues below {}, by topics.json", config.read_queue_nums);
            let found = format!("queue {} with {} entries", queue.id, queue.end - queue.first);
            let (code, severity) = (Code::ConfigQueues, Severity::Warning);
            cx.findings.add(code, severity, &queue.dir(), None, expected, found);
        }
    }
}

/// Reports a topic missing in the table, if a broker would accept it.
fn report_topic(cx: &Context<'_>, topic: &[u8]) {
    if is_broker_topic(topic) {
        let name = String::from_utf8_lossy(topic);
        let expected = format!("the topic {name}, which has queues");
        let (code, severity) = (Code::ConfigTopic, Severity::Warning);
        cx.findings.add(code, severity, &cx.paths.topics(), None, expected, "no such topic");
    }
}

fn check_place(cx: &Context<'_>, path: &Path, place: &Place, queues: &Queues) {
    let Place { of, topic, queue_id, queue_offset } = place;
    let add = |code, severity, expected: String, found: String| {
        cx.findings.add(code, severity, path, None, format!("{of}: {expected}"), found);
    };
    let end = queues.end_of(topic, *queue_id);
    let Some((start, end)) = end else {
        if *queue_offset > 0 {
            let expected = format!("a queue {queue_id}, of which it has read");
            let found = format!("no such queue, and offset {queue_offset}");
            add(Code::OffsetNowhere, Severity::Warning, expected, found);
        }
        return;
    };
    if *queue_offset > end {
        // A queue in use may lack its newest entries.
        let severity = if cx.state == State::InUse { Severity::Info } else { Severity::Warning };
        let expected = format!("an offset of queue {queue_id} up to {end}");
        add(Code::OffsetBeyond, severity, expected, queue_offset.to_string());
    } else if *queue_offset < start {
        let expected = format!("an offset of queue {queue_id} from {start} on");
        add(Code::OffsetBefore, Severity::Info, expected, queue_offset.to_string());
    }
}
