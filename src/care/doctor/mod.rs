//! Diagnoses known broken states of a store, each with evidence and a cure.
//!
//! Input: findings of [`verify`](super::verify()), facts of the messages, and a forecast of
//! RocketMQ's next start. A finding outside the known states is its own diagnosis.

mod cure;
mod log_facts;
mod next_start;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::sync::Arc;

use self::cure::Words;
use self::log_facts::{LogFacts, QueuePlace};
use super::finding::{Code, Finding, Severity};
use super::topics::is_deleted;
use super::verify::{VerifyOptions, VerifyReport, verify};
use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::{Access, FileRun, Os, Storage};
use crate::format::config::tables::TopicTable;
use crate::format::java::key_hash;
use crate::format::message::properties::{self, split_keys};
use crate::format::width::Unsigned;
use crate::format::width::at_most_i64;
use crate::log::CommitLog;
use crate::store::config_file;
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::inventory::{self, Structure};
use crate::store::lock::StoreLock;
use crate::store::open::inspect;
use crate::store::paths::{self, StorePaths};
use crate::store::progress::Progress;
use crate::store::read::queue_read;

const MOST_EVIDENCE: usize = 5;

/// A state of a store and its cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Its code.
    pub code: Code,
    /// Severity.
    pub severity: Severity,
    /// Evidence, a line each.
    pub evidence: Vec<String>,
    /// The shell command that cures it, if there is one.
    pub cure: Option<String>,
}

/// Diagnoses the store at `path`. `progress` is called on the calling thread.
///
/// # Errors
/// As [`verify`].
pub fn doctor(
    path: &Path,
    config: &StoreConfig,
    progress: &mut Progress<'_>,
) -> Result<Vec<Diagnosis>> {
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let paths = StorePaths::new(path, config);
    let mut whole = 1;
    let report = verify(path, config.clone(), &VerifyOptions::default(), &mut |done, total| {
        whole = total;
        progress(done, total.saturating_mul(2))
    })?;
    let log_size = inspect::commit_log_file_size(&storage, &paths, config)?;
    let (run, _) = FileRun::load(
        Arc::clone(&storage),
        Arc::default(),
        paths.commit_log().to_vec(),
        log_size,
        Access::Read,
    )?;
    let end = run.end_offset().unwrap_or(0);
    let log = CommitLog::new(run, end);
    let queue_file_size = inspect::queue_layout(&*storage, &paths, config)
        .map_or(StoreConfig::CONSUME_QUEUE_FILE, |layout| layout.file_size);
    let span = end.saturating_sub(log.min_offset()).max(1);
    // The second walk reads the log alone.
    let facts = log_facts::read(&log, queue_file_size, &mut |done| {
        let done = u128::from(whole) * u128::from(done) / u128::from(span);
        progress(whole.saturating_add(done.widen()), whole.saturating_mul(2))
    })?;
    let mut examined = Examined {
        path,
        storage: &*storage,
        in_use: StoreLock::is_held(&*storage, &paths),
        paths: &paths,
        log: &log,
        facts: &facts,
        diagnoses: BTreeMap::new(),
    };
    examined.examine(&report)?;
    let barred = Barred::by(&report);
    Ok(examined.diagnoses.into_values().map(|state| state.diagnosis(path, barred)).collect())
}

/// Operations that need a repair by hand first.
#[derive(Clone, Copy)]
struct Barred {
    /// Opening for writing: log files are missing or have the wrong length.
    recovery: bool,
    /// Rebuilding too: something else has the name of a folder or file.
    repair: bool,
}

impl Barred {
    fn by(report: &VerifyReport) -> Self {
        let any = |is: &dyn Fn(&Finding) -> bool| report.findings.iter().any(is);
        let of_log = |found: &Finding| {
            matches!(found.code, Code::FileLength | Code::FileGap)
                && found.path.starts_with(paths::COMMIT_LOG)
        };
        let in_the_way = |found: &Finding| {
            found.code == Code::NoRegularFile && found.severity == Severity::Error
        };
        // A rebuild clears a queue's folder anyway.
        let repair = any(&|found| in_the_way(found) && found.path.components().count() == 1);
        Self { recovery: any(&in_the_way) || any(&of_log), repair }
    }

    fn bars(self, command: &str) -> bool {
        (self.recovery && command.starts_with("mqstore recover "))
            || (self.repair && command.starts_with("mqstore rebuild "))
    }
}

struct State {
    code: Code,
    severity: Severity,
    evidence: Vec<String>,
    more: usize,
    topics: BTreeSet<String>,
    place: Option<(QueuePlace, String)>,
}

impl State {
    fn add(&mut self, severity: Severity, evidence: String) {
        // Ordered with the worst first.
        self.severity = self.severity.min(severity);
        if self.evidence.len() < MOST_EVIDENCE {
            self.evidence.push(evidence);
        } else {
            self.more += 1;
        }
    }

    fn diagnosis(mut self, store: &Path, barred: Barred) -> Diagnosis {
        if self.more > 0 {
            self.evidence.push(format!("and {} more", self.more));
        }
        let mut words =
            Words { topics: self.topics.iter().map(|t| &**t).collect(), ..Words::default() };
        words.needs_topics = self.code == Code::DocTopicDeleted;
        if let Some((place, key)) = &self.place {
            words.queue_id = place.queue_id;
            words.time_ms = place.time_ms;
            words.key = key;
        }
        let cure = cure::command_in(self.code.fix())
            .filter(|command| !barred.bars(command))
            .and_then(|command| cure::fill(command, store, &words));
        let Self { code, severity, evidence, .. } = self;
        Diagnosis { code, severity, evidence, cure }
    }
}

struct Examined<'a> {
    path: &'a Path,
    storage: &'a dyn Storage,
    in_use: bool,
    paths: &'a StorePaths,
    log: &'a CommitLog,
    facts: &'a LogFacts,
    diagnoses: BTreeMap<Code, State>,
}

impl Examined<'_> {
    fn state(&mut self, code: Code) -> &mut State {
        self.diagnoses.entry(code).or_insert_with(|| State {
            code,
            severity: Severity::Info,
            evidence: Vec::new(),
            more: 0,
            topics: BTreeSet::new(),
            place: None,
        })
    }

    fn examine(&mut self, report: &VerifyReport) -> Result<()> {
        let deleted = self.deleted_topics()?;
        let database = self.queues_in_database()?;
        for finding in &report.findings {
            self.take(finding, &deleted, database.is_some());
        }
        // Queues elsewhere: nothing else matters then.
        if let Some(database) = database {
            let evidence = format!("a RocksDB database in {database}, and no files of queues");
            self.state(Code::DocRocksDb).add(Severity::Info, evidence);
        }
        self.tell_deleted(&deleted);
        if !self.in_use {
            self.tell_next_start()?;
        }
        self.tell_keys()?;
        self.tell_times()?;
        Ok(())
    }

    fn take(&mut self, finding: &Finding, deleted: &BTreeSet<String>, in_database: bool) {
        let topic = topic_of(&finding.path);
        let in_queues = finding.path.starts_with(paths::CONSUME_QUEUE);
        if topic.is_some_and(|topic| deleted.contains(topic)) {
            return;
        }
        let code = match finding.code {
            Code::QueueMissing | Code::QueueTail if in_database => return,
            Code::QueueTail if self.in_use => return,
            Code::QueueMissing | Code::QueueTail => Code::DocUndispatched,
            Code::IndexTail if self.in_use => return,
            Code::IndexTail | Code::IndexMissing => Code::DocIndexLacks,
            Code::IndexUnusable
            | Code::IndexHeader
            | Code::IndexSlot
            | Code::IndexChain
            | Code::IndexNowhere
            | Code::IndexOther
            | Code::IndexEntry => Code::DocIndexLacks,
            Code::QueueOrder | Code::QueueHole => Code::DocQueueOrder,
            Code::FileLength | Code::FileGap if in_queues => Code::DocQueueOrder,
            Code::QueueNowhere | Code::QueueOther | Code::QueueSize => Code::DocQueueWrong,
            Code::QueueFileEmpty => Code::DocEmptyLast,
            Code::EmptyFile if in_queues => Code::DocEmptyLast,
            // Another state covers the next start.
            Code::NotClosed => return,
            _ if finding.severity == Severity::Info => return,
            other => other,
        };
        let severity = match code {
            // Worth reporting even if RocketMQ's start mends it.
            Code::DocUndispatched | Code::DocIndexLacks => finding.severity.min(Severity::Warning),
            _ => finding.severity,
        };
        let topic = topic.map(str::to_owned);
        let state = self.state(code);
        state.topics.extend(topic);
        state.add(severity, format!("{}: {}", finding.code, finding.message()));
    }

    /// Topics with messages, but neither in the table nor with queue folders.
    fn deleted_topics(&self) -> Result<BTreeSet<String>> {
        let Ok(Some(bytes)) = config_file::read_json(self.storage, &self.paths.topics()) else {
            return Ok(BTreeSet::new());
        };
        let Ok(table) = TopicTable::parse(&bytes) else { return Ok(BTreeSet::new()) };
        let mut deleted = BTreeSet::new();
        for topic in self.facts.topics.keys() {
            let Ok(name) = std::str::from_utf8(topic) else { continue };
            if is_deleted(self.storage, self.paths, &table, topic) {
                deleted.insert(name.to_owned());
            }
        }
        Ok(deleted)
    }

    fn tell_deleted(&mut self, deleted: &BTreeSet<String>) {
        if deleted.is_empty() {
            return;
        }
        for name in deleted {
            let count = self.facts.topics.get(name.as_bytes()).copied().unwrap_or(0);
            let evidence =
                format!("{count} messages of {name}, which config/topics.json does not have");
            self.state(Code::DocTopicDeleted).add(Severity::Info, evidence);
        }
        let others = self.facts.topics.keys().filter_map(|topic| std::str::from_utf8(topic).ok());
        let others: BTreeSet<String> =
            others.filter(|topic| !deleted.contains(*topic)).map(str::to_owned).collect();
        self.state(Code::DocTopicDeleted).topics = others;
    }

    fn queues_in_database(&self) -> Result<Option<String>> {
        let has_files = self.storage.list(&self.paths.consume_queue()).is_ok_and(|d| !d.is_empty());
        if has_files || self.facts.topics.is_empty() {
            return Ok(None);
        }
        let found = inventory::inventory(self.storage, self.path)?;
        let of_queues = |found: &&inventory::Found| {
            found.structure == Structure::RocksDb && !found.path.starts_with("config")
        };
        Ok(found.iter().find(of_queues).map(|found| found.path.clone()))
    }

    fn tell_next_start(&mut self) -> Result<()> {
        let Some(start) = next_start::foresee(self.storage, self.paths, self.log)? else {
            return Ok(());
        };
        for doomed in &start.doomed {
            self.state(Code::DocIndexDoomed).add(Severity::Warning, doomed.clone());
        }
        self.state(Code::DocSlowStart).add(Severity::Warning, start.work);
        Ok(())
    }

    fn tell_keys(&mut self) -> Result<()> {
        let Some(collision) = &self.facts.collisions.first else { return Ok(()) };
        let [older, newer] = collision.places;
        let (topic, key) =
            (String::from_utf8_lossy(&collision.topic), String::from_utf8_lossy(&collision.key));
        let other = self.key_with(older, collision.hash)?.unwrap_or_else(|| "another".to_owned());
        let evidence = format!(
            "{:?} at physical offset {newer} and {other:?} at {older} have the hash {}, as have {} \
             messages more",
            format!("{topic}#{key}"),
            collision.hash,
            self.facts.collisions.count - 1
        );
        let place =
            QueuePlace { topic: collision.topic.clone(), queue_id: 0, queue_offset: 0, time_ms: 0 };
        let state = self.state(Code::DocKeyCollision);
        state.topics.insert(topic.into_owned());
        state.place = Some((place, key.into_owned()));
        state.add(Severity::Info, evidence);
        Ok(())
    }

    fn key_with(&self, place: u64, hash: i32) -> Result<Option<String>> {
        let Some((topic, keys)) = self.keys_at(place)? else { return Ok(None) };
        let key = keys.iter().find(|key| key_hash(&topic, key) == hash);
        Ok(key.map(|key| {
            format!("{}#{}", String::from_utf8_lossy(&topic), String::from_utf8_lossy(key))
        }))
    }

    #[expect(clippy::type_complexity, reason = "a topic and its keys, used twice here")]
    fn keys_at(&self, place: u64) -> Result<Option<(Vec<u8>, Vec<Vec<u8>>)>> {
        let place = at_most_i64(place);
        let Ok(record) = self.log.get(place, self.log.end_offset()) else { return Ok(None) };
        let Some(view) = queue_read::view_of(&record) else { return Ok(None) };
        let request = DispatchRequest::of(&view);
        let properties = properties::indexed(view.raw_properties());
        let keys = properties.unique_key.into_iter();
        let keys = keys.chain(split_keys(properties.keys.unwrap_or_default()));
        Ok(Some((request.topic.to_vec(), keys.map(<[u8]>::to_vec).collect())))
    }

    /// Adds times that step back, or tie at the end of a queue file.
    fn tell_times(&mut self) -> Result<()> {
        let facts = self.facts;
        if let Some((place, time_ms)) = facts.steps_back.first {
            let evidence = format!(
                "{} messages with a time before that of an older one, the first at physical offset \
                 {place} with {time_ms} ms; by up to {} ms",
                facts.steps_back.count, facts.furthest_back_ms
            );
            let keys = self.keys_at(place)?;
            let state = self.state(Code::DocClockBack);
            if let Some((topic, keys)) = keys {
                let key = keys.first().map(|key| String::from_utf8_lossy(key).into_owned());
                state.topics.insert(String::from_utf8_lossy(&topic).into_owned());
                let (queue_id, queue_offset) = (0, 0);
                let topic = topic.into();
                let place = QueuePlace { topic, queue_id, queue_offset, time_ms };
                state.place = key.map(|key| (place, key));
            }
            state.add(Severity::Info, evidence);
        }
        for (tally, what) in [
            (&facts.queue_steps_back, "with a time before that of the one in front"),
            (&facts.ties_at_edges, "that begin a file with the time of the last one before"),
        ] {
            let Some(place) = &tally.first else { continue };
            let topic = String::from_utf8_lossy(&place.topic).into_owned();
            let evidence = format!(
                "{} messages {what}, the first in queue {} of {topic} at {} with {} ms",
                tally.count, place.queue_id, place.queue_offset, place.time_ms
            );
            let state = self.state(Code::DocTimeLookup);
            if state.place.is_none() {
                state.topics.insert(topic);
                state.place = Some((place.clone(), String::new()));
            }
            state.add(Severity::Info, evidence);
        }
        Ok(())
    }
}

fn topic_of(path: &Path) -> Option<&str> {
    let mut parts = path.components();
    let first = parts.next()?;
    if !paths::QUEUE_FOLDERS.iter().any(|dir| first.as_os_str() == *dir) {
        return None;
    }
    match parts.next()? {
        Component::Normal(topic) => topic.to_str(),
        _ => None,
    }
}
