//! Checks consume queues by themselves, and whether every message has its entry. Each queue counts
//! its matched entries; single entries are checked only if some are unmatched.

pub(crate) mod entry_check;
pub(crate) mod queue_check;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::locks::Mutex;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::context::{Context, State, Walked};
use crate::care::finding::{Code, Finding, Graded, Severity};
use crate::error::{Error, Result};
use crate::files::run::file_run::{OpenFiles, Stray};
use crate::files::{Access, FileKind, FileRun};
use crate::format::queue::batch::{self, BatchQueueEntry, InnerRange};
use crate::format::queue::consume_queue::{QueueEntry, dispatch_tags_code};
use crate::format::queue::{names_a_folder, parse_queue_id};
use crate::format::width::{clamp_u64, saturating_i64, saturating_u32, to_usize};
use crate::log::queue::entry_run::EntryRun;
use crate::log::read::evidence::first_nonzero;
use crate::log::{CqUnit, QueueKind};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;
use crate::store::folder::inventory;
use crate::store::queue_table::{QueueLayout, TopicKinds};

const BLOCK: usize = 3200;
const EMPTY: [u8; batch::ENTRY_LEN] = [0; batch::ENTRY_LEN];
const MOST_MISSING: usize = 100_000;

pub(crate) type Name = (Box<[u8]>, i32);

pub(crate) struct Queue {
    pub(crate) topic: Box<[u8]>,
    pub(crate) id: i32,
    entries: EntryRun,
    pub(crate) ext: Option<FileRun>,
    /// Number at which its first file begins; for batch queues that of the first entry.
    pub(crate) first: i64,
    pub(crate) end: i64,
    pub(crate) live: u64,
    pub(crate) last_at: i64,
    pub(crate) matched: AtomicU64,
    /// Entries before their records' numbers: the first, the farthest shift, and the count.
    shifted: Mutex<Option<(i64, i64, u64)>>,
}

impl Queue {
    pub(crate) fn kind(&self) -> QueueKind {
        self.entries.kind
    }

    fn run(&self) -> &FileRun {
        self.entries.run()
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.run().dir()
    }

    /// Position of an entry that leads to a record and lies up to its number.
    #[cold]
    fn position_of(&self, number: i64, request: &DispatchRequest<'_>) -> Result<Option<i64>> {
        let wanted = request.physical_offset;
        if wanted > self.last_at {
            return Ok(None);
        }
        let before = |unit: &CqUnit| unit.leads().then_some(unit.physical_offset < wanted);
        let position = self.entries.partition_point_by(self.entries.positions(), before)?;
        let mut near = self.entries.units(position.saturating_sub(1), 3)?;
        near.retain(CqUnit::leads);
        // RocketMQ appends in the order of the log.
        let in_order = near.is_sorted_by_key(|unit| unit.physical_offset);
        let found = near.iter().find(|unit| unit.physical_offset == wanted);
        let number = found.map(|unit| unit.number).filter(|position| *position <= number);
        Ok(number.filter(|_| in_order))
    }

    /// Whether all its entries are right and lead behind a place, in whose order they are put.
    fn begins_behind(&self, at: u64) -> Result<bool> {
        let first = self.end.saturating_sub(saturating_i64(self.live));
        let is_right = self.live > 0 && self.matched.load(Ordering::Relaxed) == self.live;
        let unit = self.entries.units(clamp_u64(first), usize::from(is_right))?.pop();
        Ok(unit.is_some_and(|unit| clamp_u64(unit.physical_offset) > at))
    }

    /// Whether its first message, of a higher number, comes before `at` in the log.
    #[cold]
    fn is_past(&self, number: i64, at: i64) -> Result<bool> {
        let first = self.end.saturating_sub(saturating_i64(self.live));
        let unit = self.entries.units(clamp_u64(first), usize::from(number < first))?.pop();
        Ok(unit.is_some_and(|unit| unit.leads() && unit.physical_offset < at))
    }

    fn leads(&self, position: i64, other: &QueueEntry) -> Result<bool> {
        let unit = self.entries.units(clamp_u64(position), 1)?.pop();
        Ok(unit.is_some_and(|unit| unit.physical_offset == other.physical_offset))
    }

    #[cold]
    fn shift(&self, position: i64, shift: i64) {
        let mut shifted = self.shifted.lock();
        let (first, most, count) = shifted.unwrap_or((position, shift, 0));
        *shifted = Some((first.min(position), most.max(shift), count + 1));
    }

    fn report(
        &self,
        cx: &Context<'_>,
        code: impl Into<Graded>,
        position: i64,
        expected: impl Into<String>,
        found: String,
    ) {
        let offset = clamp_u64(position).saturating_mul(self.kind().entry_len() as u64);
        cx.report(self.run(), code, offset, expected, found);
    }

    pub(crate) fn bytes(&self) -> u64 {
        let runs = std::iter::once(self.run()).chain(&self.ext);
        runs.flat_map(|run| run.files().to_vec()).map(|file| file.len).sum()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Missing {
    pub(crate) behind: u64,
    pub(crate) oldest_ms: i64,
    pub(crate) inside: u64,
    pub(crate) position: u64,
    pub(crate) last: u64,
    pub(crate) numbers: Option<(i64, i64)>,
}

type Topics = HashMap<Box<[u8]>, Vec<(i32, u32)>>;

#[derive(Default)]
pub(crate) struct Queues {
    topics: [Topics; 2],
    kinds: TopicKinds,
    pub(crate) list: Vec<Queue>,
    pub(crate) has_lights: bool,
    missing: Mutex<HashMap<Name, Missing>>,
    pub(crate) missing_elsewhere: AtomicU64,
}

impl Queues {
    pub(crate) fn list(cx: &Context<'_>, layout: &QueueLayout, kinds: TopicKinds) -> Result<Self> {
        let mut queues = Self { kinds, ..Self::default() };
        let open_files = Arc::new(OpenFiles::default());
        for (kind, folder) in [(QueueKind::Plain, &layout.plain), (QueueKind::Batch, &layout.batch)]
        {
            each_folder(cx, &folder.dir, |topic, id, path| {
                if queues.is_wrong_kind(cx, kind, topic, &path) {
                    return Ok(());
                }
                queues.add(kind, topic, id, load(cx, &open_files, path, folder.file_size)?);
                Ok(())
            })?;
            let topics = &mut queues.topics[kind as usize];
            topics.values_mut().for_each(|of_topic| of_topic.sort_unstable());
        }
        each_folder(cx, &layout.ext.dir, |topic, id, path| {
            let run = load(cx, &open_files, path, layout.ext.file_size)?;
            let queue = queues.number_of(QueueKind::Plain, topic, id);
            if let Some(queue) = queue.and_then(|number| queues.list.get_mut(to_usize(number))) {
                queue.ext = Some(run);
            }
            Ok(())
        })?;
        Ok(queues)
    }

    fn is_wrong_kind(&self, cx: &Context<'_>, kind: QueueKind, topic: &[u8], path: &Path) -> bool {
        let is_wrong = self.kinds.get(topic).is_some_and(|&known| known != kind);
        if is_wrong {
            let expected = match kind {
                QueueKind::Plain => "no queue of single messages, by topics.json",
                QueueKind::Batch => "no queue of batches, by topics.json",
            };
            cx.findings.add(Code::ConfigKind, path, None, expected, "one");
        }
        is_wrong
    }

    fn add(&mut self, kind: QueueKind, topic: &[u8], id: i32, run: FileRun) {
        let number = saturating_u32(self.list.len());
        self.has_lights |= topic.starts_with(lmq::PREFIX);
        self.topics[kind as usize].entry(topic.into()).or_default().push((id, number));
        let entries = EntryRun::new(kind, run);
        entries.bytes.tail().set_end(entries.run().end_offset().unwrap_or(0));
        self.list.push(Queue {
            topic: topic.into(),
            id,
            entries,
            ext: None,
            first: 0,
            end: 0,
            live: 0,
            last_at: -1,
            matched: AtomicU64::new(0),
            shifted: Mutex::default(),
        });
    }

    #[inline]
    pub(crate) fn kind_of(&self, topic: &[u8]) -> QueueKind {
        let of_batches = &self.topics[QueueKind::Batch as usize];
        if self.kinds.is_empty() && of_batches.is_empty() {
            return QueueKind::Plain;
        }
        match self.kinds.get(topic) {
            Some(&kind) => kind,
            None if of_batches.contains_key(topic) => QueueKind::Batch,
            None => QueueKind::Plain,
        }
    }

    /// Numbers of a queue's messages still in the log, including those without entries. `None` if
    /// there is no such queue.
    pub(crate) fn end_of(&self, topic: &[u8], id: i32) -> Option<(i64, i64)> {
        let queue = self.queue(topic, id);
        let missing = self.missing.lock();
        let numbers = missing.get(&(topic.into(), id)).and_then(|missing| missing.numbers);
        let most = numbers.map(|(_, most)| most.saturating_add(1));
        match (queue, numbers) {
            (Some(queue), _) => {
                let live = saturating_i64(queue.live);
                let first = match queue.kind() {
                    QueueKind::Plain => queue.end.saturating_sub(live),
                    // An entry covers many messages.
                    QueueKind::Batch => queue.first,
                };
                Some((first, queue.end.max(most.unwrap_or(0))))
            }
            (None, Some((least, most))) => Some((least, most.saturating_add(1))),
            (None, None) => None,
        }
    }

    pub(crate) fn of_topic(&self, kind: QueueKind, topic: &[u8]) -> &[(i32, u32)] {
        self.topics[kind as usize].get(topic).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn number_of(&self, kind: QueueKind, topic: &[u8], id: i32) -> Option<u32> {
        find(self.of_topic(kind, topic), id)
    }

    pub(crate) fn queue(&self, topic: &[u8], id: i32) -> Option<&Queue> {
        self.get(self.number_of(self.kind_of(topic), topic, id)?)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Queue> {
        self.list.get(usize::try_from(number).ok()?)
    }
}

fn each_folder(
    cx: &Context<'_>,
    root: &Path,
    mut take: impl FnMut(&[u8], i32, PathBuf) -> Result<()>,
) -> Result<()> {
    if !cx.is_folder(root)? {
        return Ok(());
    }
    let has_database = inventory::is_database(cx.paths.storage(), root)?;
    let mut topics = cx.list(root);
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    for topic in topics {
        let topic_dir = root.join(&topic.name);
        let name = topic.name.as_encoded_bytes();
        if has_database && topic.kind == FileKind::File {
            continue;
        }
        if topic.kind != FileKind::Directory || !names_a_folder(name) {
            cx.stray(&Stray { path: topic_dir, kind: topic.kind });
            continue;
        }
        for queue in cx.list(&topic_dir) {
            let path = topic_dir.join(&queue.name);
            match (queue.name.to_str().and_then(parse_queue_id), queue.kind) {
                (Some(id), FileKind::Directory) => take(name, id, path)?,
                (_, kind) => cx.stray(&Stray { path, kind }),
            }
        }
    }
    Ok(())
}

fn load(cx: &Context<'_>, open: &Arc<OpenFiles>, dir: PathBuf, file_size: u64) -> Result<FileRun> {
    let (storage, open) = (Arc::clone(&cx.paths.storage), Arc::clone(open));
    let (run, strays) = FileRun::load(storage, open, vec![dir], file_size, Access::Read)?;
    strays.iter().for_each(|stray| cx.stray(stray));
    cx.check_files(&run);
    Ok(run)
}

#[inline]
pub(crate) fn find(of_topic: &[(i32, u32)], id: i32) -> Option<u32> {
    // Usually all from 0 on exist.
    let likely = usize::try_from(id).ok().and_then(|id| of_topic.get(id));
    if let Some((_, number)) = likely.filter(|(likely, _)| *likely == id) {
        return Some(*number);
    }
    let at = of_topic.binary_search_by_key(&id, |(id, _)| *id).ok()?;
    of_topic.get(at).map(|(_, number)| *number)
}

/// Consecutive whole entries, as bytes; none means an empty range.
pub(crate) struct Entries {
    kind: QueueKind,
    pub(crate) first: i64,
    pub(crate) bytes: Vec<u8>,
}

impl Entries {
    fn zeros(&self, at: usize) -> usize {
        let rest = self.bytes.get(at * self.kind.entry_len()..).unwrap_or_default();
        first_nonzero(rest).unwrap_or(rest.len()) / self.kind.entry_len()
    }

    /// An entry, within it `None` for zeros alone.
    pub(crate) fn entry(&self, at: usize) -> Option<Option<CqUnit>> {
        let len = self.kind.entry_len();
        let bytes = self.bytes.get(at.checked_mul(len)?..)?.get(..len)?;
        let unit = match self.kind {
            QueueKind::Plain => {
                let number = self.first.saturating_add(at as i64); // of a block
                CqUnit::plain(number, QueueEntry::decode(bytes.first_chunk()?))
            }
            QueueKind::Batch => CqUnit::batch(BatchQueueEntry::decode(bytes.first_chunk()?)),
        };
        Some((!EMPTY.starts_with(bytes)).then_some(unit))
    }
}

pub(crate) fn each_block(
    cx: &Context<'_>,
    queue: &Queue,
    mut take: impl FnMut(&Entries) -> Result<()>,
) -> Result<()> {
    let (run, kind) = (queue.run(), queue.kind());
    let entry_len = kind.entry_len() as u64;
    let most = to_usize(run.file_size() / entry_len);
    let mut block = Entries { kind, first: 0, bytes: Vec::new() };
    for file in run.files().iter() {
        if file.base_offset % entry_len != 0 {
            continue;
        }
        let len = file.len.min(run.file_size()) / entry_len * entry_len;
        let Some(open) = run.open_if_there(file)? else { continue };
        let mut position = 0;
        while position < len {
            block.first = saturating_i64(file.base_offset.saturating_add(position) / entry_len);
            // Files are sparse: holes are not read.
            let data = open.next_data(position).map_err(Error::io("read", &file.path))?;
            let data = data.unwrap_or(len).min(len) / entry_len * entry_len;
            if data > position {
                block.bytes.clear();
                take(&block)?;
                position = data;
                continue;
            }
            let wanted = to_usize(len - position).min(BLOCK.min(most) * kind.entry_len());
            block.bytes.resize(wanted, 0);
            let read =
                open.read_at(&mut block.bytes, position).map_err(Error::io("read", &file.path))?;
            block.bytes.truncate(read - read % kind.entry_len());
            if block.bytes.is_empty() {
                break;
            }
            take(&block)?;
            position += block.bytes.len() as u64;
            if cx.meter.is_cancelled() {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[inline]
pub(crate) fn tags_code(cx: &Context<'_>, request: &DispatchRequest<'_>) -> i64 {
    dispatch_tags_code(
        request.topic,
        &request.properties,
        request.store_timestamp_ms,
        &cx.config.message_delay_level,
    )
}

pub(crate) fn is_range(unit: &CqUnit, range: InnerRange) -> bool {
    (unit.number, unit.count) == (range.base_queue_offset, range.message_count)
}

pub(crate) fn is_of(queue: &Queue, request: &DispatchRequest<'_>) -> bool {
    *request.topic == *queue.topic && request.queue_id == queue.id && request.is_queued()
}

#[cold]
pub(crate) fn miss(
    queues: &Queues,
    topic: &[u8],
    id: i32,
    queue: Option<&Queue>,
    number: i64,
    request: &DispatchRequest<'_>,
) {
    let mut all = queues.missing.lock();
    let known = all.len();
    let missing = match all.entry((topic.into(), id)) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) if known < MOST_MISSING => {
            let none = Missing::default();
            entry.insert(Missing { position: u64::MAX, oldest_ms: i64::MAX, ..none })
        }
        Entry::Vacant(_) => {
            queues.missing_elsewhere.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    let at = clamp_u64(request.physical_offset);
    missing.position = missing.position.min(at);
    missing.last = missing.last.max(at);
    if queue.is_none_or(|queue| number >= queue.end) {
        missing.behind += 1;
        missing.oldest_ms = missing.oldest_ms.min(request.store_timestamp_ms);
        let (least, most) = missing.numbers.unwrap_or((number, number));
        missing.numbers = Some((least.min(number), most.max(number)));
    } else {
        missing.inside += 1;
    }
}

#[cold]
pub(crate) fn report_twice(
    cx: &Context<'_>,
    log: &FileRun,
    queue: &Queue,
    number: i64,
    leads: u64,
    request: &DispatchRequest<'_>,
) {
    let at = clamp_u64(request.physical_offset);
    let expected = format!(
        "one message with number {number} in queue {} of {}",
        queue.id,
        String::from_utf8_lossy(&queue.topic)
    );
    let found = format!("a second one; the queue leads to the one at {leads}");
    cx.report(log, Code::LogTwice, at, expected, found);
}

/// Reports queues that RocketMQ went on filling though numbers were left out. Light queues have no
/// other numbers than their entries.
pub(crate) fn report_shifted(cx: &Context<'_>, queues: &Queues) {
    for queue in queues.list.iter().filter(|queue| !queue.topic.starts_with(lmq::PREFIX)) {
        let Some((first, most, count)) = *queue.shifted.lock() else { continue };
        let (code, expected) = (Code::QueueShifted, "each message in the entry of its number");
        let found = format!("{count} messages from entry {first} on, shifted by {most}");
        queue.report(cx, code, first, expected, found);
    }
}

/// Reports messages without entries, after the whole walk. Messages up to `trusted_ms` were
/// dispatched even if the store was not closed; a deleted topic needs no queue. If the log `grew`,
/// numbers may be missing.
pub(crate) fn report_missing(
    cx: &Context<'_>,
    queues: &Queues,
    is_deleted: impl Fn(&[u8]) -> bool,
    trusted_ms: i64,
    (grew, walked): (bool, &Walked),
) -> Result<()> {
    let elsewhere = queues.missing_elsewhere.load(Ordering::Relaxed);
    let (mut tail, mut tail_from) = (elsewhere, u64::MAX);
    let mut all: Vec<_> = queues.missing.lock().drain().collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    for ((topic, id), missing) in all {
        let kind = queues.kind_of(&topic);
        let queue = queues.queue(&topic, id);
        let end = queue.map_or(0, |queue| queue.end);
        let below = cx.paths.root().join(kind.folder());
        let dir = below.join(&*String::from_utf8_lossy(&topic)).join(id.to_string());
        let behind = missing.behind;
        // Lower numbers than those of its entries are of files that are gone.
        if let Some(queue) = queue.filter(|queue| queue.kind() == QueueKind::Plain)
            && missing.inside == 0
            && queue.begins_behind(missing.last)?
        {
            let expected = "entries of all messages before that of the first entry";
            let found = format!(
                "none of {behind} from physical offset {} to {}: the queue was lost, or its topic \
                 deleted, and numbered anew",
                missing.position, missing.last
            );
            cx.findings.add(Code::LogTwice, &dir, None, expected, found);
            continue;
        }
        let late = cx.state == State::Closed || missing.oldest_ms <= trusted_ms;
        let lost = missing.inside + if late { behind } else { 0 };
        if lost > 0 {
            let expected = format!("entries of {lost} more messages");
            let deleted = queue.is_none() && is_deleted(&topic);
            let (severity, why) = match deleted {
                true => (Severity::Info, "topics.json does not have the topic".to_owned()),
                false => (Severity::Error, format!("the queue ends at {end}")),
            };
            let found = format!(
                "none; the first of these lies at physical offset {}, {why}",
                missing.position
            );
            let (code, first) = (Code::QueueMissing.at(severity), Some(missing.position));
            cx.findings.insert(Finding::of_missing(code, &dir, first, expected, found));
        } else {
            tail += behind;
            tail_from = tail_from.min(missing.position);
        }
        let span = missing.numbers.map(|(least, most)| {
            let count = clamp_u64(most.saturating_sub(least)).saturating_add(1);
            (least, most, count)
        });
        if let Some((least, most, count)) = span
            && kind == QueueKind::Plain
            && (count != behind || (end > 0 && least != end))
            && !(walked.is_damaged_before(missing.last)
                && count >= behind
                && (end == 0 || least >= end))
        {
            let expected =
                format!("{behind} numbers from {} on", if end > 0 { end } else { least });
            let found = format!("numbers from {least} to {most}");
            let severity = if grew { Severity::Info } else { Severity::Warning };
            cx.findings.add(Code::LogNumber.at(severity), &dir, None, expected, found);
        }
    }
    if tail > 0 {
        let first = (elsewhere == 0).then_some(tail_from);
        let found = match tail_from {
            u64::MAX => format!("{tail} messages that are in none"),
            from => format!("{tail} messages from physical offset {from} on that are in none"),
        };
        let dir = cx.paths.consume_queue();
        let expected = "every message in its queue";
        cx.findings.insert(Finding::of_missing(Code::QueueTail, &dir, first, expected, found));
    }
    Ok(())
}
