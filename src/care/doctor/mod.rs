//! Diagnoses known broken states of a store, each with evidence and a cure, and gives a verdict. A
//! finding outside the known states is its own diagnosis.

mod cure;
mod databases;
mod log_facts;
mod losses;
mod missing_parts;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::cure::Words;
use self::log_facts::LogFacts;
pub use self::losses::{Fate, GroupFate, Lost, LostInQueue};
use self::verdict::{Barred, Cause, MOST_EVIDENCE, not_readable};
pub use self::verdict::{Diagnosis, Verdict, next_start, swap_commands};
use super::broker::{self, NextStart, foresee};
use super::finding::{Code, Finding, Severity};
use super::verify::{VerifyOptions, VerifyReport, at_rest, topic_with_queues, verify_at_rest};
use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::{Access, Os, Storage};
use crate::format::java::key_hash;
use crate::format::release::Release;
use crate::format::width::{Unsigned, saturating_i64};
use crate::log::{CommitLog, StoreCheckpoint};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::folder::found;
use crate::store::folder::lock::{self, StoreLock};
use crate::store::folder::paths::{self, StorePaths};
use crate::store::open::inspect::{self, load_parts};
use crate::store::open::{misplaced, plan, version};
use crate::store::progress::{Progress, unwatched};
use crate::store::read::queue_read;
use crate::time::utc_text;

const MOST_CURES: usize = 100;

/// Result of [`doctor`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorReport {
    /// Diagnoses by code.
    pub diagnoses: Vec<Diagnosis>,
    /// Verdict.
    pub verdict: Verdict,
}

pub use self::databases::with_databases;

/// Diagnoses the store at `path`. `progress` is called on the calling thread.
pub fn doctor(
    path: &Path,
    config: &StoreConfig,
    progress: &mut Progress<'_>,
) -> Result<DoctorReport> {
    doctor_on(Arc::new(Os), path, config, progress)
}

/// [`doctor`] on another storage.
pub fn doctor_on(
    storage: Arc<dyn Storage>,
    path: &Path,
    config: &StoreConfig,
    progress: &mut Progress<'_>,
) -> Result<DoctorReport> {
    let paths = StorePaths::new(storage, path, config);
    // Behind the zeros of a crash lies what no queue knows of.
    let is_closed = lock::was_aborted(&paths).is_ok_and(|aborted| !aborted);
    let bisected = Arc::new(AtomicBool::new(false));
    let quick = is_closed.then(|| Arc::clone(&bisected));
    // Its open files are closed before the next.
    let report = doctor_at_rest(&at_rest(paths.clone(), quick), config, progress)?;
    let is_wrong = |found: &Diagnosis| found.severity == Severity::Error;
    if bisected.load(Ordering::Relaxed) && report.diagnoses.iter().any(is_wrong) {
        // It may lie in what was not read.
        return doctor_at_rest(&at_rest(paths, None), config, progress);
    }
    Ok(report)
}

fn doctor_at_rest(
    paths: &StorePaths,
    config: &StoreConfig,
    progress: &mut Progress<'_>,
) -> Result<DoctorReport> {
    let path = paths.root();
    let refused = broker::refused(paths, true);
    if !refused.is_empty() {
        let (diagnosis, verdict) = not_readable(config, paths, &refused);
        return Ok(DoctorReport { diagnoses: vec![diagnosis], verdict });
    }
    let (mut whole, options) = (1, VerifyOptions::default());
    let mut report = |done, total: u64| {
        whole = total;
        progress(done, total.saturating_mul(2))
    };
    let report = verify_at_rest(paths, config, &options, &mut report)?;
    let (proven, _) = broker::proven(paths, config)?;
    // Repairs refuse sizes that the files contradict, until the settings are mended.
    let (is_contradicted, config) = (proven != *config, &proven);
    let in_use = StoreLock::is_held(paths);
    let mut read_config = config.clone();
    let parts = load_parts(paths, &mut read_config, Access::Read).ok();
    let log = found::open_log(paths, config)?;
    let queue_file_size = inspect::queue_layout(paths, config)
        .map_or(StoreConfig::CONSUME_QUEUE_FILE, |layout| layout.plain.file_size);
    let span = log.end_offset().saturating_sub(log.min_offset()).max(1);
    // The second walk reads the log alone.
    let facts = log_facts::read(&log, queue_file_size, &mut |done| {
        let done = u128::from(whole) * u128::from(done) / u128::from(span);
        progress(whole.saturating_add(done.widen()), whole.saturating_mul(2))
    })?;
    let mut cuts_messages = false;
    let cause = if in_use {
        Cause::None
    } else {
        let plan = plan::plan(path, config.clone(), &paths.storage, &mut unwatched).ok();
        let has = |code| report.found.contains_key(&code);
        cuts_messages = plan.as_ref().is_some_and(|plan| plan.report.quarantined_count > 0);
        let misplaced = misplaced::find(paths, log.run().file_size())?;
        match Cause::of(misplaced, plan.and_then(|plan| plan.refusal)) {
            Cause::None if has(Code::LogTwice) && has(Code::QueueOther) => Cause::Numbers,
            cause => cause,
        }
    };
    let versions = version::versions_of(paths, config).unwrap_or_default();
    let release = config.rocketmq_version.or(versions.newest()).unwrap_or(Release::V5_3);
    let queues = parts.as_ref().map(|parts| &parts.queues);
    let mut start = foresee(paths, (&log, config), release, queues)?;
    start.obstacles = broker::obstacles(&report.findings, paths, (&log, config), &start)?;
    let is_known = !in_use && !matches!(cause, Cause::Misplaced(_) | Cause::Ledger(_));
    let behind = match (cause.missing(), &parts) {
        (None, Some(parts)) if is_known => missing_parts::behind(paths, parts, &log, facts.end)?,
        (missing, _) => missing.cloned(),
    };
    let (diagnoses, given) = (BTreeMap::new(), BTreeSet::new());
    let mut examined = Examined { in_use, paths, log: &log, facts: &facts, diagnoses, given };
    examined.examine(&report, &start, &cause, config)?;
    start.obstacles.extend(examined.report_not_writable());
    queues.map_or(Ok(()), |queues| examined.report_beginning(queues))?;
    examined.report_batches(queues);
    let foreign = match queues.filter(|_| is_known) {
        Some(queues) if missing_parts::wrong_entries(&report) >= losses::LEAST_WRONG => {
            losses::foreign_files(&log, queues, (&facts.gaps, &facts.jumps))?
        }
        _ => Vec::new(),
    };
    let behind_log = behind.as_ref().filter(|_| cause.missing().is_none());
    examined.report_mixture(behind_log, &report, &foreign);
    let mut barred = Barred::by(&report, paths, &cause);
    barred.all |= examined.report_unmounted(&cause);
    // Entries of a log file that was cut lead nowhere, too.
    barred.all |= examined.diagnoses.contains_key(&Code::DocTwoBrokers)
        && !report.found.contains_key(&Code::FileLength);
    barred.rebuild |= is_contradicted;
    barred.recovery |= is_contradicted;
    barred.recovery |= cuts_messages;
    let out = verdict::salvaged(paths.storage(), path);
    let states = gathered(examined.diagnoses, &cause);
    let more: Vec<_> = states.iter().flat_map(|state| state.more_cures.clone()).collect();
    let mut diagnoses: Vec<_> = states
        .into_iter()
        .map(|state| state.diagnosis(path, &out, barred))
        .map(|diagnosis| verdict::with_log_folder(diagnosis, paths))
        .collect();
    let (missing, mut lost) = (behind.as_ref(), Lost::default());
    let mut groups = Vec::new();
    if let Some(queues) = queues {
        let gaps = match &cause {
            Cause::Misplaced(misplaced) => {
                missing_parts::emptied(paths, misplaced, log.run().file_size())
            }
            _ => losses::with_files(&facts.gaps, foreign),
        };
        let is_countable = is_known || matches!(cause, Cause::Misplaced(_));
        lost = if is_countable { losses::count(queues, &gaps, missing)? } else { lost };
        if missing.is_some() {
            let checkpoint =
                StoreCheckpoint::load(paths.storage(), &paths.checkpoint(), Access::Read);
            let newest = checkpoint.ok().map(|read| read.fields.physic_msg_timestamp_ms);
            lost.from_ms = [lost.from_ms, facts.last_ms].into_iter().flatten().min();
            lost.to_ms = lost.to_ms.max(newest.filter(|newest| Some(*newest) > facts.last_ms));
        }
        groups = losses::fates(paths, queues, &lost, missing, start.crashed);
        let is_wrong = |found: &&mut Diagnosis| {
            matches!(found.code, Code::OffsetBeyond | Code::OffsetNegative)
        };
        if losses::backup_helps(paths, queues) {
            for found in diagnoses.iter_mut().filter(is_wrong) {
                found.cure = cure::fill(cure::TO_BACKUP, path, &Words::default());
            }
        }
    }
    let (commands, last_resort) = match in_use {
        true => (Vec::new(), Vec::new()),
        false => verdict::commands(paths, &cause, &diagnoses, more),
    };
    let verdict =
        Verdict { release, in_use, next_start: start, lost, groups, commands, last_resort };
    Ok(DoctorReport { diagnoses, verdict })
}

fn gathered(states: BTreeMap<Code, State>, cause: &Cause) -> Vec<State> {
    let main = states.keys().copied().find(|code| cause.names(*code));
    let follows_it = |state: &State| {
        main.is_some() && !cause.names(state.found.code) && cause.explains(state.found.code)
    };
    let (follows, mut kept): (Vec<_>, Vec<_>) = states.into_values().partition(follows_it);
    if let Some(main) = kept.iter_mut().find(|state| Some(state.found.code) == main) {
        let count = |state: &State| (state.found.evidence.len() + state.more) as u64;
        main.found.follows = follows.iter().map(|state| (state.found.code, count(state))).collect();
    }
    kept
}

struct State {
    found: Diagnosis,
    /// Lines of evidence that are left out.
    more: usize,
    topics: BTreeSet<String>,
    /// Queue, time and key of an example.
    place: Option<(i32, i64, String)>,
    more_cures: Vec<String>,
}

impl State {
    fn report(&mut self, evidence: String) {
        self.add(self.found.code.severity(), evidence);
    }

    fn add(&mut self, severity: Severity, evidence: String) {
        let found = &mut self.found;
        debug_assert!(found.code.severities().contains(&severity), "{}: {severity:?}", found.code);
        found.severity = found.severity.min(severity);
        if found.evidence.len() < MOST_EVIDENCE {
            found.evidence.push(evidence);
        } else {
            self.more += 1;
        }
    }

    fn add_cure(&mut self, cure: Option<String>) {
        match (cure, &self.found.cure) {
            (cure, None) => self.found.cure = cure,
            (Some(cure), Some(_)) if self.more_cures.len() < MOST_CURES => {
                self.more_cures.push(cure);
            }
            _ => {}
        }
    }

    fn diagnosis(self, store: &Path, out: &Path, barred: Barred) -> Diagnosis {
        let mut found = self.found;
        if self.more > 0 {
            found.evidence.push(format!("and {} more", self.more));
        }
        let mut words =
            Words { topics: self.topics.iter().map(|t| &**t).collect(), ..Words::default() };
        words.out = out.to_str().unwrap_or_default();
        words.needs_topics = found.code == Code::DocTopicDeleted;
        if let Some((queue_id, time_ms, key)) = &self.place {
            (words.queue_id, words.time_ms, words.key) = (*queue_id, *time_ms, key.as_str());
        }
        let is_no_cure = match found.code {
            Code::ConfigUnreadable | Code::DocMisplaced | Code::Ledger | Code::DocTwoBrokers => {
                true
            }
            Code::LogTwice => !barred.rebuild,
            _ => false,
        };
        let mut commands = cure::commands_in(found.code.fix()).filter(|_| !is_no_cure);
        let own = commands.find(|command| !barred.bars(command));
        let own = || own.and_then(|own| cure::fill(own, store, &words));
        found.cure = found.cure.take().or_else(own);
        found
    }
}

struct Examined<'a> {
    in_use: bool,
    paths: &'a StorePaths,
    log: &'a CommitLog,
    facts: &'a LogFacts,
    diagnoses: BTreeMap<Code, State>,
    given: BTreeSet<PathBuf>,
}

impl Examined<'_> {
    fn state(&mut self, code: Code) -> &mut State {
        self.diagnoses.entry(code).or_insert_with(|| State {
            found: Diagnosis::new(code, Severity::Info, Vec::new()),
            more: 0,
            topics: BTreeSet::new(),
            place: None,
            more_cures: Vec::new(),
        })
    }

    fn examine(
        &mut self,
        report: &VerifyReport,
        start: &NextStart,
        cause: &Cause,
        config: &StoreConfig,
    ) -> Result<()> {
        let deleted = self.deleted_topics()?;
        let database = self.queues_in_database()?;
        for finding in &report.findings {
            self.take(finding, &deleted, database.is_some());
        }
        // The first may be among the findings beyond the limit.
        if report.found.values().sum::<u64>() > report.findings.len() as u64
            && let Some(state) = self.diagnoses.get_mut(&Code::DocUndispatched)
        {
            state.found.first_missing = None;
        }
        if let Some(database) = database {
            let evidence = format!("a RocksDB database in {database}, and no files of queues");
            self.state(Code::DocRocksDb).report(evidence);
        }
        self.report_deleted(&deleted);
        if !self.in_use && start.delivered_again > 0 {
            let evidence = format!(
                "config/delayOffset.json has no right offset of their levels; {} messages were due before \
                 the newest message was stored",
                start.delivered_again
            );
            self.state(Code::DelaysGone).report(evidence);
        }
        if !self.in_use && start.crashed {
            for doomed in &start.doomed {
                self.state(Code::DocIndexDoomed).report(doomed.clone());
            }
            let work = broker::work(start, self.paths)?;
            self.state(Code::DocSlowStart).report(work);
        }
        self.report_cause(cause)?;
        self.report_quarantine(config)?;
        self.report_keys()?;
        self.report_times()?;
        Ok(())
    }

    fn report_cause(&mut self, cause: &Cause) -> Result<()> {
        match cause {
            Cause::None | Cause::BrokenRun | Cause::Numbers => {}
            Cause::Epoch(ended) => self.report_epoch(ended),
            Cause::Ledger(dir) => {
                let cure = verdict::salvage_of(self.paths, dir);
                self.state(Code::Ledger).found.cure = cure;
            }
            Cause::Misplaced(misplaced) => {
                for line in &misplaced.evidence {
                    self.state(Code::DocMisplaced).report(line.clone());
                }
                let first = misplaced.moves.first();
                let packed = misplaced.packed.first().and_then(|path| verdict::unpacked(path));
                let cure = packed.or_else(|| first.and_then(|(from, to)| verdict::moved(from, to)));
                self.state(Code::DocMisplaced).found.cure = cure;
            }
            Cause::EndMissing(missing) => {
                let dir = self.log.run().dir();
                let code = self.code_of_end()?;
                let what = match code {
                    Code::DocCopy => format!("the log ends at {}", self.facts.end),
                    _ => format!("missing: {} of {}", missing.files(), dir.display()),
                };
                let line = format!(
                    "{what}; queues and index know {} messages from physical offset {} up to {}",
                    missing.messages(),
                    missing.from,
                    missing.reach
                );
                let state = self.state(code);
                state.report(line);
                for range in &missing.queues {
                    let topic = String::from_utf8_lossy(&range.topic);
                    let (first, last) = (range.first, range.end - 1);
                    let line = format!("queue {} of {topic}: {first} to {last}", range.queue_id);
                    state.report(line);
                }
            }
            Cause::Damage(refusal) => {
                let whole = self.facts.messages;
                let line = format!(
                    "{}; `mqstore salvage` keeps all {whole} whole messages, `mqstore recover --apply \
                     --drop-beyond` keeps {} and puts {} in the quarantine",
                    refusal.damage,
                    whole.saturating_sub(refusal.messages_beyond),
                    refusal.messages_beyond
                );
                let codes = self.diagnoses.keys().copied();
                let code = codes.into_iter().find(|code| cause.names(*code));
                let state = self.state(code.unwrap_or(Code::LogFrame));
                state.found.severity = state.found.severity.min(Severity::Error);
                state.found.evidence.insert(0, line);
            }
        }
        Ok(())
    }

    fn take(&mut self, finding: &Finding, deleted: &BTreeSet<String>, in_database: bool) {
        let topic = topic_of(&finding.path).or_else(|| topic_with_queues(finding));
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
            found @ (Code::OffsetBefore | Code::ConfigTopicsGone) => found,
            _ if finding.severity == Severity::Info => return,
            other => other,
        };
        let severity = match code {
            // Worth reporting even if RocketMQ's start mends it.
            Code::DocUndispatched | Code::DocIndexLacks => finding.severity.min(Severity::Warning),
            _ => finding.severity,
        };
        let topic = topic.map(str::to_owned);
        let cure = match code {
            Code::ConfigBackup => self.backup_put_back(&finding.path),
            Code::ConfigUnreadable if finding.path.ends_with("topics.json") => {
                let topics = "mqstore rebuild STORE --what topics --apply";
                cure::fill(topics, self.paths.root(), &Words::default())
            }
            _ if broker::is_in_the_way(finding, self.paths) => {
                let from = self.paths.root().join(&finding.path);
                let name = from.file_name().unwrap_or_default().display().to_string();
                let (storage, root) = (self.paths.storage(), self.paths.root());
                let to = misplaced::free(storage, root, &name, |to| self.given.contains(to));
                let cure = verdict::moved(&from, &to);
                self.given.insert(to);
                cure
            }
            _ => None,
        };
        let otherwise = self.otherwise(code, topic.as_deref()).unwrap_or_default();
        let state = self.state(code);
        state.add_cure(cure);
        state.topics.extend(topic);
        let known = state.found.first_missing.zip(finding.first_missing);
        let is_first = state.found.evidence.is_empty();
        state.found.first_missing =
            if is_first { finding.first_missing } else { known.map(|(a, b)| a.min(b)) };
        state.add(severity, format!("{}: {}{otherwise}", finding.code, finding.message()));
    }

    fn report_keys(&mut self) -> Result<()> {
        let Some(collision) = &self.facts.collisions.first else { return Ok(()) };
        let [older, newer] = collision.places;
        let (topic, key) =
            (String::from_utf8_lossy(&collision.topic), String::from_utf8_lossy(&collision.key));
        let other = self.keys_at(older)?.and_then(|(topic, keys)| {
            let key = keys.iter().find(|key| key_hash(&topic, key) == collision.hash)?;
            Some(format!("{}#{}", String::from_utf8_lossy(&topic), String::from_utf8_lossy(key)))
        });
        let other = other.unwrap_or_else(|| "another".to_owned());
        let evidence = format!(
            "{:?} at physical offset {newer} and {other:?} at {older} have the hash {}, as have {} \
             messages more",
            format!("{topic}#{key}"),
            collision.hash,
            self.facts.collisions.count - 1
        );
        let state = self.state(Code::DocKeyCollision);
        state.topics.insert(topic.into_owned());
        state.place = Some((0, 0, key.into_owned()));
        state.report(evidence);
        Ok(())
    }

    #[expect(clippy::type_complexity, reason = "a topic and its keys, used twice here")]
    fn keys_at(&self, place: u64) -> Result<Option<(Vec<u8>, Vec<Vec<u8>>)>> {
        let place = saturating_i64(place);
        let Ok(record) = self.log.get(place, self.log.end_offset()) else { return Ok(None) };
        let Some(view) = queue_read::view_of(&record) else { return Ok(None) };
        let request = DispatchRequest::of(&view);
        Ok(Some((request.topic.to_vec(), request.keys().map(<[u8]>::to_vec).collect())))
    }

    /// Adds times that step back, or tie at the end of a queue file.
    fn report_times(&mut self) -> Result<()> {
        let facts = self.facts;
        if let Some((place, time_ms)) = facts.steps_back.first {
            let evidence = format!(
                "{} messages with a time before that of an older one, the first at physical offset \
                 {place} with {}; by up to {} ms",
                facts.steps_back.count,
                utc_text(time_ms),
                facts.furthest_back_ms
            );
            let keys = self.keys_at(place)?;
            let state = self.state(Code::DocClockBack);
            if let Some((topic, keys)) = keys {
                let key = keys.first().map(|key| String::from_utf8_lossy(key).into_owned());
                state.topics.insert(String::from_utf8_lossy(&topic).into_owned());
                state.place = key.map(|key| (0, time_ms, key));
            }
            state.report(evidence);
        }
        for (tally, what) in [
            (&facts.queue_steps_back, "with a time before that of the one in front"),
            (&facts.ties_at_edges, "that begin a file with the time of the last one before"),
        ] {
            let Some(place) = &tally.first else { continue };
            let topic = String::from_utf8_lossy(&place.topic).into_owned();
            let evidence = format!(
                "{} messages {what}, the first in queue {} of {topic} at {} with {}",
                tally.count,
                place.queue_id,
                place.queue_offset,
                utc_text(place.time_ms)
            );
            let state = self.state(Code::DocTimeLookup);
            if state.place.is_none() {
                state.topics.insert(topic);
                state.place = Some((place.queue_id, place.time_ms, String::new()));
            }
            state.report(evidence);
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
