//! Checks each record of a part of a log file.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::context::{Context, State};
use super::index::Index;
use super::index::index_check::{IndexCheck, Keyed, Reach};
use super::oddities::{Oddities, Times};
use super::queues::Queues;
use super::queues::queue_check::QueueCheck;
use crate::care::broker::first_time_ms;
use crate::care::finding::Code;
use crate::error::{FormatError, Result, start_of};
use crate::files::{FileRun, RunFile};
use crate::format::java::TopicHash;
use crate::format::message::MessageView;
use crate::format::message::properties::Indexed;
use crate::format::message::sys_flag::{self, Compression, Transaction};
use crate::format::queue::consume_queue::delay_level;
use crate::format::queue::{most_queue_id, names_a_folder};
use crate::log::read::end::Flushed;
use crate::log::read::file_walk::{Fault, FileDamage, FileEnd, Visitor, open_at};
use crate::log::read::frames::FramedRecord;
use crate::log::read::scanner::{Flow, Resync};
use crate::store::dispatch::dispatcher::DispatchRequest;

const STEP: u64 = 4 << 20;
/// Bytes searched for the first record of a part that begins in damage; the part before reads on.
const LOOKED_THROUGH: u64 = 4 << 20;
pub(crate) const MOST_DAMAGED: usize = 100_000;
const MOST_TOPICS: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct FileWalk {
    pub(crate) messages: u64,
    pub(crate) newest_ms: i64,
    pub(crate) end: u64,
    pub(crate) last: Option<u64>,
    pub(crate) how: FileEnd,
    pub(crate) damaged: Vec<(u64, u64)>,
    pub(crate) forgot: bool,
    pub(crate) failed: bool,
    pub(crate) is_doubtful: bool,
    pub(crate) index: Reach,
    pub(crate) times: Times,
    pub(crate) oddities: Oddities,
}

impl FileWalk {
    pub(crate) fn goes_on(&self) -> bool {
        matches!(self.how, FileEnd::Whole)
    }
}

/// The log's files when they were listed, and the start of the last that began with a message.
pub(crate) struct Listed {
    pub(crate) files: Arc<Vec<Arc<RunFile>>>,
    last: Option<u64>,
}

pub(crate) fn list(cx: &Context<'_>, log: &FileRun) -> Listed {
    let files = log.files();
    let last = files.iter().rfind(|file| first_time_ms(cx.paths.storage(), file).is_some());
    Listed { last: last.map(|file| file.base_offset), files }
}

/// Walks the records that begin in `bytes` of a file; the first begins them, or is searched. Returns
/// its position too; `None` leaves no traces.
pub(crate) fn walk<'a>(
    cx: &'a Context<'a>,
    (log, listed): (&'a FileRun, &Listed),
    (queues, index): (&'a Queues, &'a Index),
    file: &'a Arc<RunFile>,
    bytes: Range<u64>,
    begins: bool,
) -> Option<(u64, FileWalk)> {
    let base = file.base_offset;
    let (from, to) = (bytes.start, bytes.end);
    let begins = begins || from == 0;
    let begun = (|| -> Result<_> {
        let to = if begins { to } else { to.min(from.saturating_add(LOOKED_THROUGH)) };
        let places = base.saturating_add(from)..base.saturating_add(to);
        let Some((reader, first)) = open_at(log, file, places, begins)? else { return Ok(None) };
        let index = IndexCheck::new(cx, index, log, base.saturating_add(first))?;
        Ok(Some((reader, first, index)))
    })();
    let (mut reader, first, index) = match begun {
        Ok(Some(begun)) => begun,
        Ok(None) => return None,
        Err(error) if error.is_not_found() && !begins => return None,
        Err(error) => {
            // Retention is no fault.
            if !error.is_not_found() {
                cx.error(&file.path, error);
            }
            cx.meter.advance(to - from);
            return Some((from, FileWalk { failed: true, ..FileWalk::default() }));
        }
    };
    let mut walk = RecordCheck {
        cx,
        log,
        path: &file.path,
        base,
        from: first,
        may_be_remains: listed.last.is_none_or(|last| base >= last),
        most_queue_id: most_queue_id(cx.config.validate_topic_names && !cx.in_database),
        all_queues: queues,
        queues: QueueCheck::new(cx, queues, log),
        index,
        topic: Vec::new(),
        topic_is_good: false,
        topic_hash: TopicHash::default(),
        topics: HashSet::new(),
        reported: first,
        result: FileWalk { end: first, ..FileWalk::default() },
    };
    (walk.result.end, walk.result.how) =
        match reader.walk(first, to, cx.full, Resync::InFile, &mut walk) {
            Ok((at, FileEnd::Whole)) if at >= file.len.min(log.file_size()) => {
                (at, FileEnd::Nothing)
            }
            Ok((_, FileEnd::Blank)) => (log.file_size(), FileEnd::Blank),
            Ok(ended) => ended,
            Err(error) => {
                cx.error(&file.path, error);
                walk.result.failed = true;
                (walk.result.end, FileEnd::Nothing)
            }
        };
    // Entries of the index behind the end are the next part's.
    let (end, done) = match walk.result.goes_on() {
        true => (walk.result.end, walk.result.end),
        false => (log.file_size(), file.len),
    };
    if let Err(error) = walk.finish(base.saturating_add(end)) {
        cx.error(&file.path, error);
    }
    cx.meter.advance(done.saturating_sub(walk.reported));
    Some((first, walk.result))
}

struct RecordCheck<'a> {
    cx: &'a Context<'a>,
    log: &'a FileRun,
    path: &'a Path,
    base: u64,
    from: u64,
    may_be_remains: bool,
    most_queue_id: i32,
    all_queues: &'a Queues,
    queues: QueueCheck<'a>,
    index: IndexCheck<'a>,
    topic: Vec<u8>,
    topic_is_good: bool,
    topic_hash: TopicHash,
    topics: HashSet<Box<[u8]>>,
    reported: u64,
    result: FileWalk,
}

impl Visitor for RecordCheck<'_> {
    #[inline(always)]
    fn record(&mut self, at: u64, record: &FramedRecord<'_>) -> Result<Flow> {
        self.check(at, record)?;
        let end = at + u64::from(record.size);
        (self.result.end, self.result.last) = (end, Some(at));
        if end - self.reported >= STEP {
            self.cx.meter.advance(end - self.reported);
            self.reported = end;
            if self.cx.meter.is_cancelled() {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Continue)
    }

    fn belongs(&mut self, at: u64, view: &MessageView<'_>) -> Result<bool> {
        if !self.may_be_remains {
            return Ok(true);
        }
        // The newest earlier message is unknown in a later part.
        self.result.is_doubtful |= self.from > 0;
        let flushed = Flushed { offset: self.cx.durable, before_ms: i64::MAX };
        let (place, time) = (self.base.saturating_add(at), view.store_timestamp_ms());
        // An unreadable queue has its own finding.
        let is_known = || Ok(self.queues.is_known(&DispatchRequest::of(view)).unwrap_or(false));
        flushed.proves(place, time, self.result.newest_ms, is_known)
    }

    fn damage(&mut self, damage: &FileDamage, next: u64, stored_ms: Option<i64>) {
        let unclean = self.cx.state == State::Crashed
            && self.base.saturating_add(damage.at) >= self.cx.durable
            && stored_ms.is_some_and(|time| time > self.cx.flushed_ms);
        let code = if unclean { Code::LogTail } else { code_of(damage.fault) };
        let found = format!(
            "{}; the next message begins {} bytes behind, at physical offset {}",
            damage.error.found,
            next - damage.at,
            self.base.saturating_add(next)
        );
        self.add(code, damage.at, &damage.error, found);
        let range = (self.base.saturating_add(damage.at), self.base.saturating_add(next));
        self.index.damage(range.0, range.1);
        if self.result.damaged.len() < MOST_DAMAGED {
            self.result.damaged.push(range);
        } else {
            self.result.forgot = true;
        }
        self.result.end = next;
    }

    fn is_cancelled(&self) -> bool {
        self.cx.meter.is_cancelled()
    }
}

impl RecordCheck<'_> {
    fn add(&self, code: Code, at: u64, error: &FormatError, found: String) {
        let offset = at.saturating_add(error.position as u64);
        let expected = error.expected.clone();
        self.cx.findings.add(code, self.path, Some(offset), expected, found);
    }

    #[inline(always)]
    fn check(&mut self, at: u64, record: &FramedRecord<'_>) -> Result<()> {
        let view = &record.view;
        self.result.messages += 1;
        let time = view.store_timestamp_ms();
        if self.result.times.add(self.cx, self.log, (self.base.saturating_add(at), time)) {
            self.result.newest_ms = self.result.newest_ms.max(time);
        }
        if !self.cx.full {
            return Ok(());
        }
        if self.cx.config.force_verify_prop_crc && view.property_crc().is_none() {
            self.result.oddities.count_checksum(self.base.saturating_add(at));
        }
        if let Some(error) = record.body_fault() {
            self.add(Code::LogBody, at, &error, error.found.clone());
        }
        if let Some(error) = record.property_fault() {
            self.add(Code::LogProperties, at, &error, error.found.clone());
        }
        let mut request = DispatchRequest::of(view);
        request.store_size = record.size;
        if self.topic != request.topic {
            self.go_to_topic(request.topic);
        }
        if let Some(error) = self.queues.check_batch(record, &request)? {
            self.add(Code::LogBatch, at, &error, error.found.clone());
        }
        if self.is_queueable(&request, at) {
            self.queues.check(&request)?;
        }
        if request.properties.multi_dispatch.is_some() {
            let lights = self.queues.has_lights();
            self.result.oddities.check_lists(&request, self.result.messages, lights);
        }
        if sys_flag::compression(view.sys_flag()) != Some(Compression::None) {
            self.result.oddities.check_body(self.log, record)?;
        }
        if let Some(delay) = request.properties.delay
            && delay_level(delay).is_none()
        {
            let found = start_of(&String::from_utf8_lossy(delay));
            let code = Code::LogDelay;
            let (expected, found) = ("a number in DELAY", format!("{found:?}"));
            self.cx.findings.add(code, self.path, Some(at), expected, found);
        }
        let rolled_back = request.transaction == Transaction::Rollback;
        let none = Indexed::default();
        let properties = if rolled_back { &none } else { &request.properties };
        let (topic, at) = (self.topic_hash, request.physical_offset);
        self.index.check(&Keyed { topic, properties, at, store_timestamp_ms: time })
    }

    fn go_to_topic(&mut self, topic: &[u8]) {
        self.topic.clear();
        self.topic.extend_from_slice(topic);
        self.topic_is_good = names_a_folder(topic);
        self.topic_hash = TopicHash::of(topic);
        self.queues.go_to_topic(topic);
    }

    #[inline]
    fn is_queueable(&mut self, request: &DispatchRequest<'_>, at: u64) -> bool {
        if !request.is_queued() {
            return true;
        }
        let id = request.queue_id;
        let usual = (0..=self.most_queue_id).contains(&id);
        if self.topic_is_good
            && request.queue_offset >= 0
            && (usual || self.all_queues.queue(request.topic, id).is_some())
        {
            return true;
        }
        self.report_unqueueable(request, at);
        false
    }

    #[cold]
    fn report_unqueueable(&mut self, request: &DispatchRequest<'_>, at: u64) {
        if !names_a_folder(request.topic) {
            // Another part may report the same topic.
            self.result.is_doubtful = true;
            if self.topics.len() < MOST_TOPICS && self.topics.insert(request.topic.into()) {
                let shown = start_of(&String::from_utf8_lossy(request.topic));
                let expected = "a topic that can name a folder";
                let (code, found) = (Code::LogTopic, format!("{shown:?}, first here"));
                self.cx.findings.add(code, self.path, Some(at), expected, found);
            }
            return;
        }
        let expected = "a queue and a number of 0 or more";
        let found = format!("queue {}, number {}", request.queue_id, request.queue_offset);
        self.cx.findings.add(Code::LogNumber, self.path, Some(at), expected, found);
    }

    fn finish(&mut self, end: u64) -> Result<()> {
        self.queues.finish();
        if matches!(self.result.how, FileEnd::Bad(_)) {
            let from = self.base.saturating_add(self.result.end);
            let to = if self.may_be_remains { from.saturating_add(1) } else { end };
            self.index.damage(from, to);
        }
        let outcome = if self.cx.full { self.index.finish(end) } else { Ok(()) };
        self.result.index = std::mem::take(&mut self.index.reach);
        outcome
    }
}

pub(crate) fn code_of(fault: Fault) -> Code {
    match fault {
        Fault::Frame => Code::LogFrame,
        Fault::Place => Code::LogPlace,
        Fault::Blank => Code::LogBlank,
        Fault::Hole => Code::LogHole,
    }
}
