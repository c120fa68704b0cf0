//! Copies a store or part of it: by topic, tag, key and time, optionally with redacted content.

pub mod redact;

use std::path::Path;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use self::redact::Redaction;
use super::{ConfigFile, Plan, Rule, TOPICS, Transfer, config_files};
use crate::care::topics::is_deleted;
use crate::config::StoreConfig;
use crate::error::{CorruptionKind, Error, Result};
use crate::files::{Os, Storage};
use crate::format::config::tables::TopicTable;
use crate::format::message::properties;
use crate::format::message::{MessageView, Record};
use crate::log::read::scanner::{Flow, Item, Resync, Stop};
use crate::store::folder::paths::StorePaths;
use crate::store::progress::{Progress, tell};
use crate::store::read::missing_end::MissingFiles;
use crate::store::read::scan::ScanFilter;
use crate::store::{MessageStore, OpenMode};

const TELL_EVERY: u64 = 4 << 20;

/// Options of [`copy`].
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Which messages to copy.
    pub filter: ScanFilter,
    /// Only messages with one of these keys or unique keys; `None` means all.
    pub keys: Option<HashSet<Box<[u8]>>>,
    /// Whether each queue is renumbered from 0.
    pub renumber: bool,
    /// Changes to the messages.
    pub redaction: Redaction,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            filter: ScanFilter::ALL,
            keys: None,
            renumber: false,
            redaction: Redaction::default(),
        }
    }
}

impl CopyOptions {
    fn takes_all(&self) -> bool {
        let filter = &self.filter;
        let any_time = (filter.begin_ms, filter.end_ms) == (i64::MIN, i64::MAX);
        self.keys.is_none() && filter.topics.is_none() && filter.tags.is_all() && any_time
    }

    fn takes(&self, view: &MessageView<'_>) -> bool {
        self.filter.takes(view)
            && self.keys.as_ref().is_none_or(|keys| {
                let found = properties::indexed(view.raw_properties());
                found.unique_key.is_some_and(|key| keys.contains(key))
                    || properties::split_keys(found.keys.unwrap_or_default())
                        .any(|key| keys.contains(key))
            })
    }
}

/// Result of [`copy`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Messages copied.
    pub messages: u64,
    /// Bytes of their records.
    pub bytes: u64,
    /// Messages that the options exclude.
    pub left_out: u64,
    /// Stand-ins for excluded messages, which keep the others' queue offsets.
    pub stand_ins: u64,
    /// Changed messages.
    pub redacted: u64,
    /// Whether queue offsets are new.
    pub renumbered: bool,
    /// Whether every record keeps its physical offset.
    pub in_place: bool,
    /// Copied configuration files.
    pub config_files: Vec<String>,
    /// Topics deleted in the source: their messages are in the copy's log and in no queue.
    pub deleted_topics: Vec<String>,
}

/// Detects deleted topics that are not requested by name.
struct Deleted<'a> {
    storage: &'a dyn Storage,
    paths: StorePaths,
    table: Option<TopicTable>,
    judged: HashMap<Box<[u8]>, bool>,
}

impl<'a> Deleted<'a> {
    fn new(
        storage: &'a dyn Storage,
        paths: StorePaths,
        files: &[ConfigFile],
        filter: &ScanFilter,
    ) -> Self {
        let table = files.iter().find(|(name, bytes)| name == TOPICS && !bytes.is_empty());
        // A topic requested by name is served.
        let table = table.filter(|_| filter.topics.is_none());
        let table = table.and_then(|(_, bytes)| TopicTable::parse(bytes).ok());
        Self { storage, paths, table, judged: HashMap::new() }
    }

    fn see(&mut self, topic: &[u8]) {
        let Some(table) = &self.table else { return };
        if !self.judged.contains_key(topic) {
            let is_deleted = is_deleted(self.storage, &self.paths, table, topic);
            self.judged.insert(topic.into(), is_deleted);
        }
    }

    fn into_names(self) -> Vec<String> {
        let deleted = self.judged.into_iter().filter(|(_, is_deleted)| *is_deleted);
        let names = deleted.map(|(topic, _)| String::from_utf8_lossy(&topic).into_owned());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    }
}

/// Copies the requested messages of the store at `path` into a new one at `out`, with its
/// configuration. A deleted topic's messages are copied into the log alone, unless the filter names
/// it.
///
/// # Errors
/// [`Error::NotAStore`]; [`Error::Corrupt`] at the first damage; [`Error::InvalidMessage`]
/// for a queue with too many excluded messages to keep its numbers; [`Error::Io`].
pub fn copy(
    path: &Path,
    out: &Path,
    config: StoreConfig,
    options: &CopyOptions,
    progress: &mut Progress<'_>,
) -> Result<CopyReport> {
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let store = MessageStore::open(path, OpenMode::Read, config)?;
    let topics = options.filter.topics.as_ref();
    let is_asked = |missing: &&MissingFiles| {
        topics.is_none_or(|topics| topics.iter().any(|topic| missing.concerns(topic, None)))
    };
    if let Some(missing) = store.missing_end().filter(is_asked) {
        return Err(Error::Corrupt(Box::new(missing.corruption.clone())));
    }
    let paths = StorePaths::new(path, store.config());
    let files = config_files(&*storage, &paths.config())?;
    let mut deleted = Deleted::new(&*storage, paths, &files, &options.filter);
    let begin = store.log().min_offset();
    let file_size = store.log().run().file_size();
    let base_offset = match (options.renumber, options.takes_all()) {
        (true, _) => 0,
        (false, true) => begin,
        // Behind the first file: a broker skips entries before the log, but nothing lies before
        // offset 0.
        (false, false) => begin.max(file_size),
    };
    let mut report = CopyReport {
        renumbered: options.renumber,
        config_files: files.iter().map(|(name, _)| name.clone()).collect(),
        ..CopyReport::default()
    };
    let plan = Plan {
        config: StoreConfig {
            rocketmq_version: store.config().rocketmq_version.max(store.versions()?.newest()),
            ..store.config().clone()
        },
        base_offset,
        rule: if options.renumber { Rule::FromZero } else { Rule::Keep },
        closed_up: HashSet::new(),
        files,
        expected: 0,
    };
    let mut transfer = Transfer::begin(Arc::clone(&storage), out, plan)?;
    each_record(path, &store, progress, |at, view| {
        if !options.takes(view) {
            report.left_out += 1;
            return Ok(());
        }
        deleted.see(view.topic());
        let record = Record::of(view);
        if record.property_crc {
            // A new checksum must not hide damage.
            view.check_property_crc().map_err(|error| error.in_file(path, at))?;
        }
        match options.redaction.changed(view)? {
            None => transfer.put(&record),
            Some(changed) => {
                report.redacted += 1;
                transfer.put(&changed.of(&record))
            }
        }
    })?;
    report.messages = transfer.messages;
    report.bytes = transfer.bytes;
    report.stand_ins = transfer.stand_ins;
    report.in_place = transfer.in_place;
    report.deleted_topics = deleted.into_names();
    transfer.delete_topics(report.deleted_topics.clone());
    transfer.finish()?;
    Ok(report)
}

/// Gives each record of the log, with its offset, to `take`. Damage is an error.
fn each_record(
    path: &Path,
    store: &MessageStore,
    progress: &mut Progress<'_>,
    mut take: impl FnMut(u64, &MessageView<'_>) -> Result<()>,
) -> Result<()> {
    let begin = store.log().min_offset();
    let total = store.end_offset().saturating_sub(begin);
    let mut told = 0;
    let mut scanner = store.scanner(begin, None, true);
    let stop = scanner.each(u64::MAX, Resync::Never, |range, item| {
        let done = range.start.saturating_sub(begin);
        if done >= told {
            told = done + TELL_EVERY;
            tell(progress, (done, total), "copy", path)?;
        }
        if let Item::Record(view, _) = item {
            take(range.start, view)?;
        }
        Ok(Flow::Continue)
    })?;
    match stop {
        None | Some(Stop::End) => {}
        Some(Stop::Empty) => {
            let at = scanner.position();
            return Err(Error::corrupt(path, at, CorruptionKind::Size, "a record", "zeros"));
        }
        Some(Stop::Damage(corruption)) => return Err(Error::Corrupt(Box::new(corruption))),
    }
    let _ = progress(total, total);
    Ok(())
}
