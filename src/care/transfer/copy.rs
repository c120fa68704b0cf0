//! Copies a store or part of it: by topic, tag, key and time, optionally with redacted content.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashSet;

use super::new_store::topic_table;
use super::{NumberRule, Plan, Transfer, config_files};
use crate::care::topics::is_deleted;
use crate::config::StoreConfig;
use crate::error::{CorruptionKind, Error, FormatError, Result};
use crate::files::{Os, Storage};
use crate::format::message::properties::{self, names};
use crate::format::message::{MessageView, Record, sys_flag};
use crate::format::queue::batch::{self, BatchItem};
use crate::format::{body, crc};
use crate::log::read::scanner::{Flow, Item, Resync, Stop};
use crate::store::MessageStore;
use crate::store::folder::paths::StorePaths;
use crate::store::progress::{Progress, report_progress};
use crate::store::read::missing_end::MissingFiles;
use crate::store::read::scan::ScanFilter;

const REPORT_EVERY: u64 = 4 << 20;

/// Options of [`copy`].
#[derive(Clone, Debug, Default)]
pub struct CopyOptions {
    /// Which messages to copy.
    pub filter: ScanFilter,
    /// Whether each queue is renumbered from 0.
    pub renumber: bool,
    /// Changes to the messages.
    pub redaction: Redaction,
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

/// Copies the requested messages of the store at `path` into a new one at `out`, with its
/// configuration. A deleted topic's messages are copied into the log alone, unless the filter names
/// it.
///
/// # Errors
/// [`Error::NotAStore`]; [`Error::Corrupt`] at the first damage; [`Error::InvalidMessage`]
/// for a queue with too many excluded messages to keep its numbers; [`Error::Io`].
pub fn copy(
    storage: Arc<dyn Storage>,
    path: &Path,
    out: &Path,
    config: StoreConfig,
    options: &CopyOptions,
    progress: &mut Progress<'_>,
) -> Result<CopyReport> {
    let store = MessageStore::open_on(path, config, Arc::clone(&storage))?;
    let topics = options.filter.topics.as_ref();
    let is_asked = |missing: &&MissingFiles| {
        topics.is_none_or(|topics| topics.iter().any(|topic| missing.concerns(topic, None)))
    };
    if let Some(missing) = store.missing_end().filter(is_asked) {
        return Err(Error::Corrupt(Box::new(missing.corruption.clone())));
    }
    let paths = StorePaths::new(Arc::clone(&storage), path, store.config());
    let files = config_files(&*storage, &paths.config())?;
    // A topic requested by name is served.
    let table = topic_table(&files).ok().flatten().filter(|_| topics.is_none());
    let mut copied: HashSet<Box<[u8]>> = HashSet::new();
    let begin = store.log().min_offset();
    let file_size = store.log().run().file_size();
    let base_offset = match (options.renumber, options.filter.takes_all()) {
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
        rule: if options.renumber { NumberRule::FromZero } else { NumberRule::Keep },
        closed_up: HashSet::new(),
        files,
        expected: 0,
    };
    let mut transfer = Transfer::begin(Arc::new(Os), out, plan)?;
    each_record(path, &store, progress, |at, view| {
        if !options.filter.takes(view) {
            report.left_out += 1;
            return Ok(());
        }
        if table.is_some() {
            copied.get_or_insert_with(view.topic(), |topic| topic.into());
        }
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
    for topic in copied {
        if table.as_ref().is_some_and(|table| is_deleted(&paths, table, &topic)) {
            report.deleted_topics.push(String::from_utf8_lossy(&topic).into_owned());
        }
    }
    report.deleted_topics.sort_unstable();
    transfer.finish(&report.deleted_topics)?;
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
    let mut reported = 0;
    let mut scanner = store.scanner(begin);
    let stop = scanner.each(store.log(), u64::MAX, Resync::Never, |range, item| {
        let done = range.start.saturating_sub(begin);
        if done >= reported {
            reported = done + REPORT_EVERY;
            report_progress(progress, (done, total), "copy", path)?;
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// Zeros of the same length: zero bytes for a body, digits for a value.
    Zeros,
    /// A hex digest with the salt: equal content stays equal.
    Hash,
    Constant(Vec<u8>),
    Remove,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Topic patterns with `*` and `?`; empty means all topics.
    pub topics: Vec<String>,
    pub body: Option<Replacement>,
    pub properties: Vec<(String, Replacement)>,
}

/// Rules; all that match a topic are applied in order.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    pub rules: Vec<Rule>,
    /// Hashed with every value, so that short ones cannot be guessed.
    pub salt: Vec<u8>,
}

const MOST_BODY: usize = 64 << 20;

/// Properties needed to read the record; they cannot be replaced.
const KEPT: [&[u8]; 6] = [
    names::INNER_NUM,
    names::INNER_BASE,
    names::INNER_MULTI_DISPATCH,
    names::INNER_MULTI_QUEUE_OFFSET,
    names::CRC32,
    names::DELAY,
];

/// Checks that a rule may name a property.
///
/// # Errors
/// [`Error::InvalidConfig`] otherwise.
pub fn check_property(name: &str) -> Result<()> {
    let expected = if name.is_empty() || name.bytes().any(|byte| byte == 1 || byte == 2) {
        "a property's name"
    } else if KEPT.contains(&name.as_bytes()) {
        "a property that readers of the message do not need"
    } else {
        return Ok(());
    };
    Err(Error::setting("redact.properties", expected, format!("{name:?}")))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    body: Option<Vec<u8>>,
    properties: Option<Vec<u8>>,
    sys_flag: i32,
}

impl Changed {
    #[must_use]
    pub fn of<'a>(&'a self, record: &Record<'a>) -> Record<'a> {
        let body = self.body.as_deref().unwrap_or(record.body);
        Record {
            body,
            body_crc: match self.body {
                Some(_) => crc::body_crc(body),
                None => record.body_crc,
            },
            properties: self.properties.as_deref().unwrap_or(record.properties),
            sys_flag: self.sys_flag,
            ..*record
        }
    }
}

impl Redaction {
    /// Applies the rules to a message; `None` if none changes it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a batch that cannot be decoded, and would be copied
    /// unredacted.
    pub fn changed(&self, view: &MessageView<'_>) -> Result<Option<Changed>> {
        let topic = String::from_utf8_lossy(view.topic());
        let rules: Vec<&Rule> = self.rules.iter().filter(|rule| rule.fits(&topic)).collect();
        if rules.is_empty() {
            return Ok(None);
        }
        let record = Record::of(view);
        let mut changed = Changed { body: None, properties: None, sys_flag: record.sys_flag };
        if let Cow::Owned(properties) = self.properties(&rules, record.properties) {
            changed.properties = Some(properties);
        }
        if sys_flag::is_inner_batch(record.sys_flag) {
            changed.body = self.members(&rules, &record).map_err(Error::from)?;
        } else {
            changed.body = self.body(&rules, record.body);
        }
        if changed.body.is_some() {
            // The replacement is not compressed.
            changed.sys_flag &= !(sys_flag::COMPRESSED | sys_flag::COMPRESSION_MASK);
        }
        let same = changed.body.is_none() && changed.properties.is_none();
        Ok((!same).then_some(changed))
    }

    fn members(
        &self,
        rules: &[&Rule],
        record: &Record<'_>,
    ) -> std::result::Result<Option<Vec<u8>>, FormatError> {
        let plain = body::decompress(record.body, record.sys_flag, MOST_BODY)?;
        let mut out = Vec::with_capacity(plain.len());
        let mut changed = false;
        for item in batch::items(&plain) {
            let item = item?;
            let body = self.body(rules, item.body);
            let properties = self.properties(rules, item.properties);
            changed |= body.is_some() || matches!(properties, Cow::Owned(_));
            BatchItem {
                flag: item.flag,
                body: body.as_deref().unwrap_or(item.body),
                properties: &properties,
            }
            .encode_to(&mut out)?;
        }
        Ok(changed.then_some(out))
    }

    fn body(&self, rules: &[&Rule], body: &[u8]) -> Option<Vec<u8>> {
        let mut now: Option<Vec<u8>> = None;
        for replacement in rules.iter().filter_map(|rule| rule.body.as_ref()) {
            let before = now.as_deref().unwrap_or(body);
            now = Some(match replacement {
                Replacement::Zeros => vec![0; before.len()],
                Replacement::Remove => Vec::new(),
                Replacement::Constant(bytes) => bytes.clone(),
                Replacement::Hash => self.hash(before),
            });
        }
        now.filter(|now| now != body)
    }

    fn properties<'p>(&self, rules: &[&Rule], raw: &'p [u8]) -> Cow<'p, [u8]> {
        let mut now = Cow::Borrowed(raw);
        for (name, replacement) in rules.iter().flat_map(|rule| &rule.properties) {
            let name = name.as_bytes();
            if properties::get(&now, name).is_some() {
                let new = |value: &[u8]| self.value(name, value, replacement);
                now = Cow::Owned(properties::replaced(&now, name, new).into_owned());
            }
        }
        now
    }

    fn value(&self, name: &[u8], value: &[u8], replacement: &Replacement) -> Option<Vec<u8>> {
        Some(match replacement {
            Replacement::Remove => return None,
            Replacement::Constant(bytes) => bytes.clone(),
            Replacement::Zeros => vec![b'0'; value.len()],
            // Each key by itself, so that messages still share keys.
            Replacement::Hash if name == names::KEYS => {
                let keys = properties::split_keys(value).map(|key| self.hash(key));
                keys.collect::<Vec<_>>().join(&b' ')
            }
            Replacement::Hash => self.hash(value),
        })
    }

    fn hash(&self, value: &[u8]) -> Vec<u8> {
        crc::salted_hex(&self.salt, value).into_bytes()
    }
}

impl Rule {
    fn fits(&self, topic: &str) -> bool {
        self.topics.is_empty() || self.topics.iter().any(|pattern| matches(pattern, topic))
    }
}

/// Matches `*` and `?`, in time proportional to the product of the lengths.
fn matches(pattern: &str, text: &str) -> bool {
    let (mut wanted, mut left) = (pattern.chars(), text.chars());
    // Where to go on if the rest behind the last star does not match.
    let mut star = None;
    loop {
        let here = left.clone();
        match (wanted.next(), left.next()) {
            (Some('*'), _) => {
                star = Some((wanted.clone(), here.clone()));
                left = here;
            }
            (Some(wanted), Some(character)) if wanted == '?' || wanted == character => {}
            (None, None) => return true,
            _ => {
                let Some((behind, from)) = &mut star else { return false };
                if from.next().is_none() {
                    return false;
                }
                (wanted, left) = (behind.clone(), from.clone());
            }
        }
    }
}
