//! Walks one log file, and joins the results of all walks.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::context::{Context, State, Walked};
use super::index::Index;
use super::index::index_check::{Edges, IndexCheck, Unindexed};
use super::index::tag_runs::TagRuns;
use super::queues::Queues;
use super::queues::queue_check::QueueCheck;
use super::times::Times;
use crate::care::finding::{Code, Severity};
use crate::error::{CorruptionKind, Error, FormatError, Result};
use crate::files::{FileRun, RunFile};
use crate::format::java::TopicHash;
use crate::format::message::peek;
use crate::format::message::properties::Indexed;
use crate::format::message::sys_flag::Transaction;
use crate::format::queue::consume_queue::delay_level;
use crate::format::queue::names::{most_queue_id, names_a_folder};
use crate::log::read::frames::{Faults, FrameAt, FrameReader, Record, misplaced, property_crc};
use crate::store::dispatch::dispatcher::DispatchRequest;

const STEP: u64 = 4 << 20;
pub(super) const MOST_DAMAGED: usize = 100_000;
const MOST_TOPICS: usize = 1_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct FilePart {
    pub(super) file: usize,
    /// Start, as a position in the file.
    pub(super) from: u64,
    /// Start of the next part; `None` for the last.
    pub(super) to: Option<u64>,
}

impl FilePart {
    pub(super) fn whole(file: usize) -> Self {
        Self { file, from: 0, to: None }
    }
}

#[derive(Debug, Default)]
pub(super) struct FileWalk {
    pub(super) messages: u64,
    pub(super) newest_ms: i64,
    pub(super) end: u64,
    pub(super) how: FileEnd,
    pub(super) damaged: Vec<(u64, u64)>,
    pub(super) forgot: bool,
    /// Whether the file could not be read, which was reported.
    pub(super) failed: bool,
    pub(super) is_doubtful: bool,
    pub(super) behind_index: Unindexed,
    pub(super) before_index: Unindexed,
    pub(super) index_gaps: Edges,
    pub(super) tag_runs: TagRuns,
    pub(super) times: Times,
}

#[derive(Debug, Default)]
pub(super) enum FileEnd {
    /// Zeros, or the end of the file or part.
    #[default]
    Nothing,
    Blank,
    Bad(Damage),
    /// Damage, then messages older than those before: a recycled file.
    Remains(Damage, u64),
}

#[derive(Clone, Debug)]
pub(super) struct Damage {
    at: u64,
    code: Code,
    error: FormatError,
}

/// The log's files when they were listed, and the index of the last that began with a message.
pub(super) struct Listed {
    pub(super) files: Arc<Vec<Arc<RunFile>>>,
    last: Option<usize>,
}

pub(super) fn list(cx: &Context<'_>, log: &FileRun) -> Listed {
    let begins = |path: &Path, base: u64| -> Option<bool> {
        let file = cx.storage.open(path, crate::files::Access::Read).ok()?;
        let mut head = [0; peek::HEAD];
        let read = file.read_at(&mut head, 0).ok()?;
        let head = head.get(..read)?;
        Some(peek::store_timestamp_ms(head, base).is_some())
    };
    let files = log.files();
    let last = files.iter().rposition(|file| begins(&file.path, file.base_offset) == Some(true));
    Listed { files, last }
}

pub(super) fn walk<'a>(
    cx: &'a Context<'a>,
    log: &'a FileRun,
    listed: &Listed,
    part: FilePart,
    queues: &'a Queues,
    index: &'a Index,
) -> FileWalk {
    let Some(file) = listed.files.get(part.file) else { return FileWalk::default() };
    let len = part.to.unwrap_or(file.len).saturating_sub(part.from);
    let checks = (|| {
        let reader = FrameReader::open(log, file)?;
        let index = IndexCheck::new(cx, index, log, file.base_offset.saturating_add(part.from))?;
        Ok((reader, index))
    })();
    let (mut reader, index) = match checks {
        Ok(parts) => parts,
        // Deleted by a running broker's retention.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            cx.advance(len);
            return FileWalk { failed: true, ..FileWalk::default() };
        }
        Err(error) => {
            cx.error(&file.path, error);
            cx.advance(len);
            return FileWalk { failed: true, ..FileWalk::default() };
        }
    };
    let mut walk = Walk {
        cx,
        log,
        path: &file.path,
        base: file.base_offset,
        part,
        may_be_remains: listed.last.is_none_or(|last| part.file >= last),
        most_queue_id: most_queue_id(cx.config.validate_topic_names),
        all_queues: queues,
        queues: QueueCheck::new(cx, queues, log),
        index,
        topic: Vec::new(),
        topic_is_good: false,
        topic_hash: TopicHash::default(),
        topics: HashSet::new(),
        told: part.from,
        result: FileWalk::default(),
    };
    if let Err(error) = walk.run(&mut reader) {
        cx.error(&file.path, error);
        walk.result.failed = true;
    }
    let end = file.base_offset.saturating_add(part.to.unwrap_or(log.file_size()));
    if let Err(error) = walk.finish(end) {
        cx.error(&file.path, error);
    }
    cx.advance(len.saturating_sub(walk.told - part.from));
    walk.result
}

struct Walk<'a> {
    cx: &'a Context<'a>,
    log: &'a FileRun,
    path: &'a Path,
    base: u64,
    part: FilePart,
    may_be_remains: bool,
    most_queue_id: i32,
    all_queues: &'a Queues,
    queues: QueueCheck<'a>,
    index: IndexCheck<'a>,
    /// Last message's topic, whether it can name a folder, and its hash state.
    topic: Vec<u8>,
    topic_is_good: bool,
    topic_hash: TopicHash,
    topics: HashSet<Box<[u8]>>,
    told: u64,
    result: FileWalk,
}

impl Walk<'_> {
    fn run(&mut self, reader: &mut FrameReader) -> Result<()> {
        let mut at = self.part.from;
        let to = self.part.to.unwrap_or(u64::MAX);
        loop {
            if at - self.told >= STEP {
                self.cx.advance(at - self.told);
                self.told = at;
                if self.cx.is_cancelled() {
                    return Ok(());
                }
            }
            self.result.end = at;
            if at >= to {
                return Ok(());
            }
            if let Some(view) = reader.whole(at) {
                let record = Record { view, size: view.store_size(), is_elided: false };
                if self.misplaced(&record, at).is_none() {
                    self.record(&record, at)?;
                    at += u64::from(record.size);
                    continue;
                }
            }
            let left = reader.left(at);
            let damage = match reader.read(at, self.cx.full)? {
                FrameAt::Record(record) => match self.misplaced(&record, at) {
                    None => {
                        let elided = record.is_elided;
                        let next = at + u64::from(record.size);
                        self.record_large(&record, at)?;
                        if elided && self.cx.full {
                            let faults = reader.take_faults();
                            self.checksums(&faults, at);
                        }
                        at = next;
                        continue;
                    }
                    Some(error) => Damage { at, code: Code::LogPlace, error },
                },
                FrameAt::Blank(size) if u64::from(size) == left => {
                    self.result.how = FileEnd::Blank;
                    self.result.end = at.saturating_add(left);
                    return Ok(());
                }
                FrameAt::Blank(size) => {
                    let error = FormatError::new(
                        CorruptionKind::Blank,
                        0,
                        format!("a blank of {left} bytes, to the end of the file"),
                        format!("{size} bytes"),
                    );
                    Damage { at, code: Code::LogBlank, error }
                }
                FrameAt::End => return Ok(()),
                FrameAt::Empty => match reader.next_nonzero(at)? {
                    None => return Ok(()),
                    Some(data) => {
                        let found = format!("zeros up to byte {data}");
                        let error = FormatError::new(CorruptionKind::Magic, 0, "a message", found);
                        Damage { at, code: Code::LogHole, error }
                    }
                },
                FrameAt::Bad(error) => Damage { at, code: Code::LogFrame, error },
            };
            match self.behind(reader, damage)? {
                Some(next) => at = next,
                None => return Ok(()),
            }
        }
    }

    #[inline]
    fn misplaced(&self, record: &Record<'_>, at: u64) -> Option<FormatError> {
        misplaced(&record.view, self.base.saturating_add(at))
    }

    /// Finds where the log continues behind damage, and reports the damage; `None` if it ends.
    fn behind(&mut self, reader: &mut FrameReader, damage: Damage) -> Result<Option<u64>> {
        let at = damage.at;
        let next = match damage.code {
            Code::LogHole | Code::LogBlank => None,
            _ => reader.claimed_end(at)?,
        };
        let next = match next {
            Some(next) => Some(next),
            None => reader.resync(at.saturating_add(1))?,
        };
        let next = match next {
            Some(next) if reader.next_nonzero(next)?.is_some() => next,
            _ => {
                self.result.how = FileEnd::Bad(damage);
                return Ok(None);
            }
        };
        let time = match reader.read(next, false)? {
            FrameAt::Record(record) => Some(record.view.store_timestamp_ms()),
            _ => None,
        };
        // The newest earlier message is unknown in a later part.
        self.result.is_doubtful |= self.may_be_remains && self.part.from > 0 && time.is_some();
        if self.may_be_remains && time.is_some_and(|time| time < self.result.newest_ms) {
            let (older, newer) = self.pass_remains(reader, next)?;
            let Some(newer) = newer else {
                self.result.how = FileEnd::Remains(damage, older);
                return Ok(None);
            };
            self.report(&damage, newer, time);
            return Ok(Some(newer));
        }
        self.report(&damage, next, time);
        Ok(Some(next))
    }

    /// Counts messages from `at` on that are older than those before, up to the first newer one.
    fn pass_remains(&self, reader: &mut FrameReader, mut at: u64) -> Result<(u64, Option<u64>)> {
        let mut older = 0;
        loop {
            match reader.read(at, false)? {
                FrameAt::Record(record) if self.misplaced(&record, at).is_none() => {
                    if record.view.store_timestamp_ms() >= self.result.newest_ms {
                        return Ok((older, Some(at)));
                    }
                    older += 1;
                    at += u64::from(record.size);
                }
                FrameAt::End => return Ok((older, None)),
                _ => match reader.resync(at.saturating_add(1))? {
                    Some(next) => at = next,
                    None => return Ok((older, None)),
                },
            }
            if self.cx.is_cancelled() {
                return Ok((older, None));
            }
        }
    }

    fn report(&mut self, damage: &Damage, next: u64, time: Option<i64>) {
        let unclean = self.cx.state == State::Crashed
            && self.base.saturating_add(damage.at) >= self.cx.durable
            && time.is_some_and(|time| time > self.cx.flushed_ms);
        let (code, severity) = if unclean {
            (Code::LogTail, Severity::Warning)
        } else {
            (damage.code, Severity::Error)
        };
        let found = format!(
            "{}; the next message begins {} bytes behind, at physical offset {}",
            damage.error.found,
            next - damage.at,
            self.base.saturating_add(next)
        );
        self.add(code, severity, damage, found);
        let range = (self.base.saturating_add(damage.at), self.base.saturating_add(next));
        self.index.damage(range.0, range.1);
        if self.result.damaged.len() < MOST_DAMAGED {
            self.result.damaged.push(range);
        } else {
            self.result.forgot = true;
        }
    }

    fn add(&self, code: Code, severity: Severity, damage: &Damage, found: String) {
        let offset = damage.at.saturating_add(damage.error.position as u64);
        let expected = damage.error.expected.clone();
        self.cx.findings.add(code, severity, self.path, Some(offset), expected, found);
    }

    fn checksums(&self, faults: &Faults, at: u64) {
        for (code, error) in
            [(Code::LogBody, &faults.body), (Code::LogProperties, &faults.properties)]
        {
            if let Some(error) = error {
                let damage = Damage { at, code, error: error.clone() };
                let found = damage.error.found.clone();
                self.add(code, Severity::Error, &damage, found);
            }
        }
    }

    #[cold]
    fn record_large(&mut self, record: &Record<'_>, at: u64) -> Result<()> {
        self.record(record, at)
    }

    #[inline(always)]
    fn record(&mut self, record: &Record<'_>, at: u64) -> Result<()> {
        let view = &record.view;
        self.result.messages += 1;
        let time = view.store_timestamp_ms();
        if self.result.times.see(self.cx, self.log, (self.base.saturating_add(at), time)) {
            self.result.newest_ms = self.result.newest_ms.max(time);
        }
        if !self.cx.full {
            return Ok(());
        }
        if !record.is_elided {
            let body = view.check_body_crc().err();
            let demanded = self.cx.config.force_verify_prop_crc;
            let properties = match demanded || property_crc(view).is_some() {
                true => view.check_property_crc().err(),
                false => None,
            };
            if body.is_some() || properties.is_some() {
                self.checksums(&Faults { body, properties }, at);
            }
        }
        let mut request = DispatchRequest::of(view);
        request.store_size = record.size;
        if self.topic != request.topic {
            self.go_to_topic(request.topic);
        }
        if let Some(error) = self.queues.check_batch(record, &request)? {
            let found = error.found.clone();
            let damage = Damage { at, code: Code::LogBatch, error };
            self.add(Code::LogBatch, Severity::Warning, &damage, found);
        }
        if self.is_queueable(&request, at) {
            self.queues.see(&request)?;
        }
        if let Some(delay) = request.properties.delay
            && delay_level(delay).is_none()
        {
            let found: String = String::from_utf8_lossy(delay).chars().take(64).collect();
            let (code, severity) = (Code::LogDelay, Severity::Warning);
            let (expected, found) = ("a number in DELAY", format!("{found:?}"));
            self.cx.findings.add(code, severity, self.path, Some(at), expected, found);
        }
        let rolled_back = request.transaction == Transaction::Rollback;
        let none = Indexed::default();
        let properties = if rolled_back { &none } else { &request.properties };
        self.index.see(self.topic_hash, properties, request.physical_offset, time)
    }

    fn go_to_topic(&mut self, topic: &[u8]) {
        self.topic.clear();
        self.topic.extend_from_slice(topic);
        self.topic_is_good = names_a_folder(topic);
        self.topic_hash = TopicHash::of(topic);
        self.queues.go_to_topic(topic);
    }

    /// Whether a queue can hold the message; reports why not.
    #[inline]
    fn is_queueable(&mut self, request: &DispatchRequest<'_>, at: u64) -> bool {
        if !request.is_queued() {
            return true;
        }
        let id = request.queue_id;
        let usual = (0..=self.most_queue_id).contains(&id);
        if self.topic_is_good
            && request.queue_offset >= 0
            && (usual || self.all_queues.has(request.topic, id))
        {
            return true;
        }
        self.tell_unqueueable(request, at);
        false
    }

    #[cold]
    fn tell_unqueueable(&mut self, request: &DispatchRequest<'_>, at: u64) {
        let severity = Severity::Warning;
        if !names_a_folder(request.topic) {
            // Another part may report the same topic.
            self.result.is_doubtful = true;
            if self.topics.len() < MOST_TOPICS && self.topics.insert(request.topic.into()) {
                let shown: String =
                    String::from_utf8_lossy(request.topic).chars().take(64).collect();
                let expected = "a topic that can name a folder";
                let found = format!("{shown:?}, first here");
                self.cx.findings.add(
                    Code::LogTopic,
                    severity,
                    self.path,
                    Some(at),
                    expected,
                    found,
                );
            }
            return;
        }
        let expected = "a queue and a number of 0 or more";
        let found = format!("queue {}, number {}", request.queue_id, request.queue_offset);
        self.cx.findings.add(Code::LogNumber, severity, self.path, Some(at), expected, found);
    }

    fn finish(&mut self, end: u64) -> Result<()> {
        self.queues.finish();
        if matches!(self.result.how, FileEnd::Bad(_)) {
            let from = self.base.saturating_add(self.result.end);
            let to = if self.may_be_remains { from.saturating_add(1) } else { end };
            self.index.damage(from, to);
        }
        let outcome = if self.cx.full { self.index.finish(end) } else { Ok(()) };
        self.result.behind_index = self.index.behind;
        self.result.before_index = self.index.before;
        self.result.index_gaps = self.index.edges();
        self.result.tag_runs = std::mem::take(&mut self.index.tags);
        outcome
    }
}

/// Whether a message is now where a walk found none.
fn is_written_now(cx: &Context<'_>, log: &FileRun, file: &Arc<RunFile>, at: u64) -> bool {
    let read = || {
        let mut reader = FrameReader::open(log, file)?;
        let left = reader.left(at);
        Ok::<_, Error>(match reader.read(at, false)? {
            FrameAt::Record(record) => {
                misplaced(&record.view, file.base_offset.saturating_add(at)).is_none()
            }
            FrameAt::Blank(size) => u64::from(size) == left,
            _ => false,
        })
    };
    cx.state == State::InUse && read().unwrap_or(false)
}

pub(super) struct Joined {
    pub(super) messages: u64,
    pub(super) newest_ms: i64,
    pub(super) walked: Walked,
    /// Whether the walk passed over new messages.
    pub(super) grew: bool,
}

/// Joins the walks in order: finds the log's end and faults before it.
pub(super) fn join(cx: &Context<'_>, log: &FileRun, listed: &Listed, walks: &[FileWalk]) -> Joined {
    let log_start = log.min_offset().unwrap_or(0);
    let mut joined = Joined {
        messages: 0,
        newest_ms: 0,
        walked: Walked { log_start, log_end: log_start, damaged: Vec::new(), forgot: false },
        grew: false,
    };
    let has_data =
        |walk: &FileWalk| walk.end > 0 || walk.failed || !matches!(walk.how, FileEnd::Nothing);
    let last = walks.iter().rposition(has_data);
    let mut settled_ms = 0;
    // Times on both sides of a file's end.
    walks.iter().fold(Times::default(), |times, walk| times.then(&walk.times, cx, log));
    for (number, (walk, file)) in walks.iter().zip(listed.files.iter()).enumerate() {
        joined.messages += walk.messages;
        walk.times.report(settled_ms, walk.newest_ms, cx, log);
        settled_ms = settled_ms.max(walk.times.settled_ms());
        joined.newest_ms = joined.newest_ms.max(walk.newest_ms);
        joined.walked.damaged.extend_from_slice(&walk.damaged);
        joined.walked.forgot |= walk.forgot;
        if last.is_none_or(|last| number > last) {
            continue;
        }
        let is_last = last == Some(number);
        let file_end = file.base_offset.saturating_add(log.file_size());
        joined.walked.log_end = file.base_offset.saturating_add(walk.end);
        let short = file.len < log.file_size();
        let add = |code, severity, offset, expected: &str, found: String| {
            cx.findings.add(code, severity, &file.path, Some(offset), expected, found);
        };
        let from = file.base_offset.saturating_add(walk.end);
        match &walk.how {
            FileEnd::Blank => {}
            _ if walk.failed => joined.walked.damaged.push((from, file_end)),
            FileEnd::Nothing if is_last || short || cx.is_cancelled() => {}
            FileEnd::Nothing | FileEnd::Bad(_)
                if !is_last && is_written_now(cx, log, file, walk.end) =>
            {
                joined.grew = true;
                joined.walked.damaged.push((from, file_end));
            }
            FileEnd::Nothing => {
                let found = match walk.end < log.file_size() {
                    true => "zeros to the end of the file".to_owned(),
                    false => "the end of the file".to_owned(),
                };
                add(Code::LogHole, Severity::Error, walk.end, "a message or a blank", found);
                joined.walked.damaged.push((from, file_end));
            }
            // The short file was reported.
            FileEnd::Bad(damage) if short && damage.error.kind == CorruptionKind::Truncated => {
                joined.walked.damaged.push((from, file_end));
            }
            FileEnd::Bad(damage) => {
                let (code, severity) = match (is_last, cx.state) {
                    (true, State::InUse) => (Code::LogTail, Severity::Info),
                    (true, State::Crashed) if from >= cx.durable => {
                        (Code::LogTail, Severity::Warning)
                    }
                    (true, State::Closed) if damage.code == Code::LogHole => {
                        (Code::LogRemains, Severity::Warning)
                    }
                    _ => (damage.code, Severity::Error),
                };
                let offset = damage.at.saturating_add(damage.error.position as u64);
                let found = format!("{}; no message behind in this file", damage.error.found);
                add(code, severity, offset, &damage.error.expected, found);
                let to = if is_last { from.saturating_add(1) } else { file_end };
                joined.walked.damaged.push((from, to));
            }
            FileEnd::Remains(damage, older) => {
                let found = format!(
                    "{}; {older} messages behind, all older than those before",
                    damage.error.found
                );
                let severity = Severity::Warning;
                add(
                    Code::LogRemains,
                    severity,
                    damage.at,
                    "zeros behind the end of the log",
                    found,
                );
            }
        }
    }
    joined.walked.damaged.sort_unstable();
    joined
}
