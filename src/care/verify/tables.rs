//! Checks the broker's tables below `config`, the checkpoint and the durable mark: whether they are
//! readable, and contradict the queues or the log.
//!
//! Tables are read before queues: a running broker only moves the queues' ends forward, so offsets
//! read earlier are inside the queues later.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::context::{Context, State};
use super::queues::{Queue, Queues};
use crate::care::broker::{NO_OFFSET, OTHER_OFFSETS};
use crate::care::finding::{Code, Finding, Graded, Severity};
use crate::care::topics::{is_deleted, is_system, is_system_group};
use crate::error::{Error, FormatError};
use crate::files::{Access, FileKind};
use crate::format::checkpoint::{CHECKPOINT_LEN, CheckpointFields, FIRST_FIELDS_LEN};
use crate::format::config::json;
use crate::format::config::tables::{OffsetTable, TopicConfig, TopicTable, parse_delay_offsets};
use crate::format::queue::consume_queue::SCHEDULE_TOPIC;
use crate::format::queue::is_broker_topic;
use crate::log::StoreCheckpoint;
use crate::store::folder::config_file;
use crate::store::folder::mark::Mark;
use crate::store::folder::remembered::Remembered;
use crate::store::queue_table::TopicKinds;
use crate::store::topics;
use crate::time::utc_text;

const GROUPS: &str = "subscriptionGroup.json";
const OTHERS: [&str; 4] =
    [GROUPS, "consumerFilter.json", "consumerOrderInfo.json", "topicQueueMapping.json"];

const MOST_NAMED: usize = 10;

struct Place {
    of: String,
    topic: Box<[u8]>,
    queue_id: i32,
    queue_offset: i64,
}

#[derive(Default)]
pub(crate) struct Tables {
    topics: Option<TopicTable>,
    topics_are_gone: bool,
    places: Vec<(PathBuf, Vec<Place>)>,
    of_levels: Option<(PathBuf, Vec<Place>)>,
    no_offsets: String,
}

impl Tables {
    pub(crate) fn read(cx: &Context<'_>) -> crate::error::Result<Self> {
        let mut tables = Self { no_offsets: NO_FILE.to_owned(), ..Self::default() };
        if !cx.is_folder(&cx.paths.config())? {
            tables.topics_are_gone = true;
            return Ok(tables);
        }
        match read_table(cx, &cx.paths.topics(), TopicTable::parse, |_| true) {
            Ok(table) => {
                tables.topics_are_gone = table.is_none();
                tables.topics = table;
            }
            Err(why) => unreadable(cx, &cx.paths.topics(), &why),
        }
        for enable_lmq in [false, true] {
            let path = cx.paths.consumer_offsets(enable_lmq);
            let topics = tables.topics.as_ref().filter(|_| !enable_lmq);
            match read_table(cx, &path, OffsetTable::parse, |table| has_groups(cx, table, topics)) {
                Ok(Some(table)) => {
                    if !enable_lmq {
                        NO_OFFSET.clone_into(&mut tables.no_offsets);
                    }
                    tables.places.push((path, of_groups(&table)));
                }
                Ok(None) => {}
                Err(bad) if enable_lmq => unreadable(cx, &path, &bad),
                Err(bad) => tables.no_offsets = bad,
            }
        }
        let path = cx.paths.config().join("delayOffset.json");
        if let Some(levels) = read_one(cx, &path, parse_delay_offsets, true) {
            tables.of_levels = Some((path, of_levels(&levels)));
        }
        let own = Remembered::load(&cx.paths);
        if let (true, Some(warning)) = (own.is_unusable(), own.warning) {
            let code = Code::ConfigUnreadable.at(Severity::Warning);
            let (path, expected) = (cx.paths.settings(), "JSON as mqstore writes it");
            cx.findings.add(code, &path, None, expected, warning);
        }
        for name in OTHERS {
            // A broker empties the others itself.
            let is_filled = name == GROUPS;
            read_one(cx, &cx.paths.config().join(name), json::parse, is_filled);
        }
        Ok(tables)
    }

    fn check_offsets(&self, cx: &Context<'_>, queues: &Queues) {
        let has_queue = |topic: &[u8]| queues.list.iter().any(|queue| *queue.topic == *topic);
        let is_entered = |topic: &[u8]| {
            let name = std::str::from_utf8(topic).ok();
            name.zip(self.topics.as_ref()).is_some_and(|(name, table)| table.get(name).is_some())
        };
        let mut places = self.places.iter().flat_map(|(_, places)| places).peekable();
        let why = match places.peek() {
            None => &*self.no_offsets,
            Some(_) if queues.list.is_empty() => return,
            Some(_) => OTHER_OFFSETS,
        };
        if !places.any(|place| is_entered(&place.topic) || has_queue(&place.topic)) {
            self.report_offsets_gone(cx, queues, why);
        }
    }

    fn report_offsets_gone(&self, cx: &Context<'_>, queues: &Queues, why: &str) {
        let mut groups = BTreeSet::new();
        let is_damaged = ![NO_FILE, NO_OFFSET, OTHER_OFFSETS].contains(&why);
        let retried = |topic: &str| topic.strip_prefix("%RETRY%").map(str::to_owned);
        // Only a broker that had consumers writes it.
        let known = known_groups(cx);
        if known.is_some() || is_damaged {
            let topics = self.topics.iter().flat_map(TopicTable::iter);
            let topics = topics.filter_map(|topic| retried(&topic.name));
            groups.extend(known.iter().flatten().cloned().chain(topics));
        }
        if is_damaged || (known.is_none() && delays_retries(queues)) {
            let topics =
                queues.list.iter().filter_map(|queue| std::str::from_utf8(&queue.topic).ok());
            groups.extend(topics.filter_map(retried));
        }
        groups.retain(|group| !is_system_group(group));
        let path = cx.paths.consumer_offsets(false);
        if groups.is_empty() {
            if is_damaged {
                unreadable(cx, &path, why);
            }
            return;
        }
        let expected = format!("offsets of {} groups: {}", groups.len(), listed(&groups));
        cx.findings.add(Code::OffsetsGone, &path, None, expected, why);
    }

    pub(crate) fn kinds(&self) -> TopicKinds {
        self.topics.as_ref().map(topics::kinds_in).unwrap_or_default()
    }

    /// Neither in the table nor with queue folders.
    pub(crate) fn has_deleted(&self, cx: &Context<'_>, topic: &[u8]) -> bool {
        let table = self.topics.as_ref();
        table.is_some_and(|table| is_deleted(&cx.paths, table, topic))
    }

    pub(crate) fn check(&self, cx: &Context<'_>, queues: &Queues) {
        if let Some(topics) = &self.topics {
            check_topics(cx, topics, queues);
        } else if self.topics_are_gone {
            report_topics_gone(cx, queues);
        }
        self.check_offsets(cx, queues);
        for (path, places) in self.places.iter().chain(&self.of_levels) {
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

const NO_FILE: &str = "no such file";
const EMPTY_FILE: &str = "an empty file";

fn read_one<T>(
    cx: &Context<'_>,
    path: &Path,
    parse: fn(&[u8]) -> Result<T, FormatError>,
    is_filled: bool,
) -> Option<T> {
    read_table(cx, path, parse, |_| is_filled).unwrap_or_else(|why| {
        unreadable(cx, path, &why);
        None
    })
}

fn unreadable(cx: &Context<'_>, path: &Path, found: &str) {
    cx.findings.add(Code::ConfigUnreadable, path, None, "JSON as a broker writes it", found);
}

/// Reads a table or its backup, as a broker does (`ConfigManager#load`), or returns why neither can
/// be read.
fn read_table<T>(
    cx: &Context<'_>,
    path: &Path,
    parse: fn(&[u8]) -> Result<T, FormatError>,
    counts_if_bare: impl Fn(&T) -> bool,
) -> Result<Option<T>, String> {
    let backup_path = path.with_extension("json.bak");
    let add = |code: Graded, path: &Path, found: &str| {
        cx.findings.add(code, path, None, "JSON as a broker writes it", found);
    };
    match (read_file(cx, path, parse), read_file(cx, &backup_path, parse)) {
        (Ok((_, true)), Ok((table, false))) if counts_if_bare(&table) => {
            let found = "an empty table, which a broker takes; the backup has content";
            add(Code::ConfigBackup.into(), path, found);
            Ok(Some(table))
        }
        (Ok((table, _)), backup) => {
            let wrong = backup.err().filter(|why| why != NO_FILE && why != EMPTY_FILE);
            wrong.iter().for_each(|why| add(Code::ConfigNoBackup.into(), &backup_path, why));
            Ok(Some(table))
        }
        (Err(why), Ok((table, _))) => {
            let code = Code::ConfigBackup.at(Severity::Warning);
            add(code, path, &format!("{why}; the backup can be read"));
            Ok(Some(table))
        }
        (Err(why), Err(of_backup)) => match &*of_backup {
            NO_FILE if why == NO_FILE => Ok(None),
            NO_FILE | EMPTY_FILE => Err(format!("{why}; no backup")),
            _ => Err(format!("{why}; of the backup: {of_backup}")),
        },
    }
}

/// Reads a file, or returns why it cannot be read.
fn read_file<T>(
    cx: &Context<'_>,
    path: &Path,
    parse: fn(&[u8]) -> Result<T, FormatError>,
) -> Result<(T, bool), String> {
    match cx.paths.storage.kind(path) {
        Ok(Some(kind @ (FileKind::Directory | FileKind::Other))) => {
            cx.stray_as(Code::NoRegularFile.at(Severity::Warning), path, kind, "a file");
            return Err(NO_FILE.to_owned());
        }
        Ok(None) => return Err(NO_FILE.to_owned()),
        Ok(Some(FileKind::File)) | Err(_) => {}
    }
    match config_file::read_json(cx.paths.storage(), path) {
        Ok(None) => Err(NO_FILE.to_owned()),
        Ok(Some(bytes)) if bytes.is_empty() => Err(EMPTY_FILE.to_owned()),
        Ok(Some(bytes)) => {
            let why = |error: FormatError| format!("{} at byte {}", error.found, error.position);
            parse(&bytes).map(|table| (table, json::is_bare(&bytes))).map_err(why)
        }
        Err(Error::Corrupt(fault)) => Err(fault.found),
        Err(error) => {
            cx.error(path, error);
            Err("a file that the system cannot read".to_owned())
        }
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    let first: Vec<_> = names.iter().take(MOST_NAMED).map(String::as_str).collect();
    first.join(", ") + if names.len() > MOST_NAMED { ", ..." } else { "" }
}

fn known_groups(cx: &Context<'_>) -> Option<Vec<String>> {
    let path = cx.paths.config().join(GROUPS);
    let bytes = config_file::read_json(cx.paths.storage(), &path).ok()??;
    let root = json::parse(&bytes).unwrap_or_default();
    let table = root.get("subscriptionGroupTable").and_then(|table| table.as_object());
    Some(table.map(|table| table.keys().cloned().collect()).unwrap_or_default())
}

fn has_groups(cx: &Context<'_>, table: &OffsetTable, topics: Option<&TopicTable>) -> bool {
    let known = known_groups(cx).filter(|known| !known.is_empty());
    table.iter().any(|at| {
        known.as_ref().is_none_or(|known| known.iter().any(|name| *name == at.group))
            && topics.is_none_or(|topics| topics.get(at.topic).is_some())
    })
}

/// Whether a broker had consumers: it delays what it puts into a retry topic.
fn delays_retries(queues: &Queues) -> bool {
    let has_queue = |is_so: fn(&Queue) -> bool| queues.list.iter().any(is_so);
    has_queue(|queue| queue.topic.starts_with(b"%RETRY%"))
        && has_queue(|queue| &*queue.topic == SCHEDULE_TOPIC)
}

fn report_topics_gone(cx: &Context<'_>, queues: &Queues) {
    let config = cx.paths.config();
    let is_there = |path: PathBuf| matches!(cx.paths.storage.kind(&path), Ok(Some(_)));
    let has_folder = is_there(config.clone());
    let mut others = OTHERS.iter().chain(&["consumerOffset.json"]);
    let is_of_broker = match has_folder {
        true => others.any(|name| is_there(config.join(name))),
        // A writer of ours leaves marks.
        false => {
            [cx.paths.mark(), cx.paths.seal()].into_iter().any(is_there) || delays_retries(queues)
        }
    };
    let mut names = BTreeSet::new();
    for queue in &queues.list {
        if queue.first < queue.end && !is_system(&queue.topic) && is_broker_topic(&queue.topic) {
            names.insert(String::from_utf8_lossy(&queue.topic).into_owned());
        }
    }
    if names.is_empty() || (has_folder && !is_of_broker) {
        return;
    }
    let expected = format!("{} topics with queues: {}", names.len(), listed(&names));
    let (severity, path, found) = match (has_folder, is_of_broker) {
        (true, _) => {
            (Severity::Error, cx.paths.topics(), "neither the table of topics nor its backup")
        }
        (false, true) => (
            Severity::Error,
            config,
            "no folder: the offsets of groups and all settings are gone with the topics",
        ),
        (false, false) => (
            Severity::Info,
            config,
            "no folder: a broker would serve no topic, and no group would have an offset; nothing \
             tells whether there ever was one",
        ),
    };
    cx.findings.add(Code::ConfigTopicsGone.at(severity), &path, None, expected, found);
}

fn check_topics(cx: &Context<'_>, topics: &TopicTable, queues: &Queues) {
    let has_entries = |queue: &&Queue| queue.first < queue.end;
    for of_topic in queues.list.chunk_by(|a, b| a.topic == b.topic) {
        let mut of_topic = of_topic.iter().filter(has_entries).peekable();
        let Some(topic) = of_topic.peek().map(|queue| &queue.topic) else { continue };
        if is_system(topic) {
            continue;
        }
        let config = std::str::from_utf8(topic).ok().and_then(|name| topics.get(name));
        let Some(TopicConfig { read_queue_nums: most, .. }) = config else {
            report_topic(cx, topic);
            continue;
        };
        // No number of queues exceeds the highest queue.
        for queue in of_topic.filter(|queue| queue.id >= most && queue.id < i32::MAX) {
            let expected = format!("queues below {most}, by topics.json");
            let found = format!("queue {} with {} entries", queue.id, queue.end - queue.first);
            cx.findings.add(Code::ConfigQueues, &queue.dir(), None, expected, found);
        }
    }
}

pub(crate) fn topic_with_queues(found: &Finding) -> Option<&str> {
    let is_so = found.code == Code::ConfigTopic;
    found.expected.strip_prefix(THE_TOPIC)?.strip_suffix(HAS_QUEUES).filter(|_| is_so)
}

const THE_TOPIC: &str = "the topic ";
const HAS_QUEUES: &str = ", which has queues";

fn report_topic(cx: &Context<'_>, topic: &[u8]) {
    if is_broker_topic(topic) {
        let name = String::from_utf8_lossy(topic);
        let expected = format!("{THE_TOPIC}{name}{HAS_QUEUES}");
        cx.findings.add(Code::ConfigTopic, &cx.paths.topics(), None, expected, "no such topic");
    }
}

fn check_place(cx: &Context<'_>, path: &Path, place: &Place, queues: &Queues) {
    let Place { of, topic, queue_id, queue_offset } = place;
    let add = |code: Graded, expected: String, found: String| {
        cx.findings.add(code, path, None, format!("{of}: {expected}"), found);
    };
    let is_level = path.ends_with("delayOffset.json");
    let of_level = |code: Graded| if is_level { Code::DelayOffset.at(code.1) } else { code };
    let end = queues.end_of(topic, *queue_id);
    let Some((start, end)) = end else {
        if *queue_offset > 0 {
            let expected = format!("a queue {queue_id}, of which it has read");
            let found = format!("no such queue, and offset {queue_offset}");
            add(Code::OffsetNowhere.into(), expected, found);
        }
        return;
    };
    if *queue_offset < 0 {
        let expected = format!("an offset of queue {queue_id} from {start} to {end}");
        add(of_level(Code::OffsetNegative.into()), expected, queue_offset.to_string());
    } else if *queue_offset > end {
        // A queue in use may lack its newest entries.
        let severity = if cx.state == State::InUse { Severity::Info } else { Severity::Warning };
        let expected = format!("an offset of queue {queue_id} up to {end}");
        add(of_level(Code::OffsetBeyond.at(severity)), expected, queue_offset.to_string());
    } else if *queue_offset < start {
        let expected = format!("an offset of queue {queue_id} from {start} on");
        add(Code::OffsetBefore.into(), expected, queue_offset.to_string());
    }
}

pub(crate) fn read_checkpoint(cx: &Context<'_>) -> Option<CheckpointFields> {
    let path = cx.paths.checkpoint();
    let checkpoint = match StoreCheckpoint::load(cx.paths.storage(), &path, Access::Read) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            unopened(cx, &path, "checkpoint", error);
            return None;
        }
    };
    let len = match cx.paths.storage.open(&path, Access::Read).and_then(|file| file.stat()) {
        Ok(stat) => stat.len,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => {
            cx.error(&path, Error::io("stat", &path)(error));
            return Some(checkpoint.fields);
        }
    };
    if len < FIRST_FIELDS_LEN as u64 {
        let expected = format!("a file of {CHECKPOINT_LEN} bytes");
        let found =
            if len == 0 { "none, or an empty one".to_owned() } else { format!("{len} bytes") };
        cx.findings.add(Code::CheckpointFile, &path, None, expected, found);
    }
    Some(checkpoint.fields)
}

pub(crate) fn read_mark(cx: &Context<'_>) -> Option<Mark> {
    match Mark::read(&cx.paths) {
        Ok(mark) => mark,
        Err(Error::Corrupt(fault)) => {
            cx.corruption(Code::LogMark, *fault);
            None
        }
        Err(error) => {
            unopened(cx, &cx.paths.mark(), "mqstore.mark", error);
            None
        }
    }
}

fn unopened(cx: &Context<'_>, path: &Path, name: &str, error: Error) {
    match error {
        Error::Io { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
            let expected = format!("the file `{name}`");
            cx.findings.add(Code::NoRegularFile, path, None, expected, "no regular file");
        }
        error => cx.error(path, error),
    }
}

pub(crate) fn check_checkpoint(
    cx: &Context<'_>,
    fields: &CheckpointFields,
    newest_ms: i64,
    log_end: u64,
) {
    let path = cx.paths.checkpoint();
    let times = [
        (0, "the log", fields.physic_msg_timestamp_ms),
        (8, "the queues", fields.logics_msg_timestamp_ms),
        (16, "the index", fields.index_msg_timestamp_ms),
    ];
    for (at, what, time) in times {
        if !(0..=newest_ms.max(0)).contains(&time) {
            let newest = utc_text(newest_ms);
            let expected = format!("0, or a time of {what} up to {newest}, the newest message's");
            let mut found = utc_text(time);
            if at == 0 && (newest_ms..=cx.latest_ms).contains(&time) {
                found += "; files at the log's end may be missing: put them back before any cure";
            }
            cx.findings.add(Code::CheckpointTime, &path, Some(at), expected, found);
        }
    }
    let confirmed = fields.confirm_physical_offset;
    if !u64::try_from(confirmed).is_ok_and(|confirmed| confirmed <= log_end) {
        let expected = format!("a physical offset up to {log_end}");
        let found = confirmed.to_string();
        cx.findings.add(Code::CheckpointConfirm, &path, Some(32), expected, found);
    }
    let entered = fields.logics_physical_offset;
    if !u64::try_from(entered).is_ok_and(|entered| entered <= log_end) {
        let expected = format!("0, or the physical offset of a message before {log_end}");
        let found = entered.to_string();
        cx.findings.add(Code::CheckpointLogics, &path, Some(40), expected, found);
    }
}
