//! Compares each message with its queue entry during the log walk.

use std::sync::atomic::Ordering;

use super::entry_check::ExtCheck;
use super::{Queue, Queues, find, is_of, is_range, miss, report_twice, tags_code};
use crate::care::finding::Code;
use crate::care::verify::context::Context;
use crate::care::verify::oddities::{MOST_BODY, with_body};
use crate::error::{CorruptionKind, FormatError, Result};
use crate::files::FileRun;
use crate::format::body;
use crate::format::message::sys_flag;
use crate::format::queue::batch::{self, BatchQueueEntry};
use crate::format::queue::consume_queue::{ENTRY_LEN, MOST_NUMBER, QueueEntry, SCHEDULE_TOPIC};
use crate::format::queue::consume_queue_ext;
use crate::format::width::{clamp_u64, saturating_i64, to_usize};
use crate::log::read::frames::{FramedRecord, probe};
use crate::log::{CqUnit, QueueKind};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;
use crate::store::read::entry_search::shift_of;

const BUDGET: usize = 48 << 20;
/// Entries read at a time, fewer with many queues.
const MOST_ENTRIES: usize = 512;
const LEAST_ENTRIES: usize = 64;
const NONE: u32 = u32::MAX;

pub(crate) struct QueueCheck<'a> {
    cx: &'a Context<'a>,
    queues: &'a Queues,
    log: &'a FileRun,
    windows: Vec<Window>,
    entries: usize,
    kind: QueueKind,
    of_topic: &'a [(i32, u32)],
    probed: Vec<u8>,
    exts: ExtCheck<'a>,
}

/// Some entries of a queue, as bytes: there may be very many windows.
struct Window {
    queue: u32,
    from: i64,
    bytes: Vec<u8>,
    matched: u64,
    /// How far the last record's number was behind its entry.
    shift: i64,
}

impl Window {
    const fn empty() -> Self {
        Self { queue: NONE, from: 0, bytes: Vec::new(), matched: 0, shift: 0 }
    }

    #[inline]
    fn entry(&self, number: i64) -> Option<QueueEntry> {
        let at = usize::try_from(number.checked_sub(self.from)?).ok()?;
        self.bytes.as_chunks().0.get(at).map(QueueEntry::decode)
    }

    fn first(&self) -> Option<CqUnit> {
        self.bytes.as_chunks().0.first().map(BatchQueueEntry::decode).map(CqUnit::batch)
    }

    fn find(&self, physical_offset: i64) -> Option<(i64, CqUnit)> {
        let (entries, _) = self.bytes.as_chunks();
        let position_of = |entry: &_| BatchQueueEntry::decode(entry).physical_offset;
        // Usually they have the order of the log.
        let likely = entries.partition_point(|entry| position_of(entry) < physical_offset);
        let is_likely =
            entries.get(likely).is_some_and(|entry| position_of(entry) == physical_offset);
        let at = match is_likely {
            true => likely,
            false => entries.iter().position(|entry| position_of(entry) == physical_offset)?,
        };
        let unit = CqUnit::batch(BatchQueueEntry::decode(entries.get(at)?));
        Some((self.from.saturating_add(at as i64), unit)) // of a window
    }

    fn read(&mut self, queue: &Queue, position: i64, count: usize) -> Result<()> {
        let len = queue.kind().entry_len();
        self.from = position;
        self.bytes.resize(count * len, 0);
        let at = clamp_u64(position).saturating_mul(len as u64);
        let read = queue.run().read_at(&mut self.bytes, at)?;
        self.bytes.truncate(read);
        Ok(())
    }

    fn entry_of(
        &mut self,
        queue: &Queue,
        position: i64,
        most: usize,
    ) -> Result<Option<QueueEntry>> {
        if !(queue.first..queue.end).contains(&position) {
            return Ok(None);
        }
        if self.entry(position).is_none() {
            let left = to_usize(clamp_u64(queue.end.saturating_sub(position)));
            self.read(queue, position, left.min(most))?;
        }
        Ok(self.entry(position))
    }

    fn change(&mut self, queue: u32, queues: &Queues) {
        if let Some(queue) = queues.get(self.queue) {
            queue.matched.fetch_add(self.matched, Ordering::Relaxed);
        }
        (self.queue, self.matched, self.shift) = (queue, 0, 0);
        self.bytes.clear();
    }
}

impl<'a> QueueCheck<'a> {
    pub(crate) fn new(cx: &'a Context<'a>, queues: &'a Queues, log: &'a FileRun) -> Self {
        let budget = BUDGET / cx.threads.max(1);
        let count = queues.list.len().max(1);
        let entries = (budget / count / ENTRY_LEN).clamp(LEAST_ENTRIES, MOST_ENTRIES);
        let windows = (budget / (entries * ENTRY_LEN)).clamp(1, count);
        Self {
            cx,
            queues,
            log,
            windows: std::iter::repeat_with(Window::empty).take(windows).collect(),
            entries,
            kind: QueueKind::Plain,
            of_topic: &[],
            probed: Vec::new(),
            exts: ExtCheck::new(cx),
        }
    }

    pub(crate) fn go_to_topic(&mut self, topic: &[u8]) {
        self.kind = self.queues.kind_of(topic);
        self.of_topic = self.queues.of_topic(self.kind, topic);
    }

    pub(crate) fn is_known(&self, request: &DispatchRequest<'_>) -> Result<bool> {
        let queue = self.queues.queue(request.topic, request.queue_id);
        let Some(queue) = queue else { return Ok(false) };
        let wanted = request.physical_offset;
        let entries = &queue.entries;
        let position = entries
            .partition_point_by(entries.positions(), |unit| Some(unit.physical_offset < wanted))?;
        Ok(entries.units(position, 1)?.first().is_some_and(|unit| unit.physical_offset == wanted))
    }

    #[inline]
    pub(crate) fn check(&mut self, request: &DispatchRequest<'_>) -> Result<()> {
        if !request.is_queued() {
            return Ok(());
        }
        let number = request.range(self.kind).base_queue_offset;
        match (find(self.of_topic, request.queue_id), self.kind) {
            (Some(queue), QueueKind::Plain) => self.compare(queue, number, request)?,
            (Some(queue), QueueKind::Batch) => self.compare_batch(queue, request)?,
            (None, _) => self.miss((request.topic, request.queue_id), None, number, request)?,
        }
        if request.properties.multi_dispatch.is_some() { self.check_more(request) } else { Ok(()) }
    }

    #[cold]
    fn check_more(&mut self, request: &DispatchRequest<'_>) -> Result<()> {
        let is_enabled = self.cx.config.enable_lmq && self.cx.config.enable_multi_dispatch;
        for (name, id, number) in lmq::pairs(request) {
            match self.queues.number_of(QueueKind::Plain, name, id) {
                Some(queue) if is_enabled || name.starts_with(lmq::PREFIX) => {
                    self.compare(queue, number, request)?;
                }
                None if is_enabled && self.queues.kind_of(name) == QueueKind::Plain => {
                    self.miss((name, id), None, number, request)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn compare(&mut self, queue: u32, number: i64, request: &DispatchRequest<'_>) -> Result<()> {
        let slot = slot_of(queue, self.windows.len());
        if let Some(window) = self.windows.get_mut(slot).filter(|window| window.queue == queue)
            && let Some(entry) = window.entry(number)
            && is_entry(&entry, request)
            && entry.tags_code == tags_code(self.cx, request)
        {
            window.matched += 1;
            return Ok(());
        }
        self.compare_closely(queue, slot, number, request)
    }

    /// Leaves out numbers that no queue can have.
    #[cold]
    fn miss(
        &self,
        (topic, id): (&[u8], i32),
        queue: Option<&Queue>,
        number: i64,
        request: &DispatchRequest<'_>,
    ) -> Result<()> {
        let at = request.physical_offset;
        let is_past = queue.map_or(Ok(false), |queue| queue.is_past(number, at))?;
        if self.queues.kind_of(topic) == QueueKind::Batch || (number <= MOST_NUMBER && !is_past) {
            miss(self.queues, topic, id, queue, number, request);
            return Ok(());
        }
        let expected = "a number that an entry can have, not below the queue's first message";
        let found = format!("number {number} in queue {id} of {}", String::from_utf8_lossy(topic));
        self.cx.report(self.log, Code::LogNumber, clamp_u64(at), expected, found);
        Ok(())
    }

    /// Slow path: the entry is not read yet, or wrong.
    fn compare_closely(
        &mut self,
        queue: u32,
        slot: usize,
        number: i64,
        request: &DispatchRequest<'_>,
    ) -> Result<()> {
        let Some(known) = self.queues.get(queue) else { return Ok(()) };
        let Some(window) = self.windows.get_mut(slot) else { return Ok(()) };
        if window.queue != queue {
            window.change(queue, self.queues);
        }
        let mut position = number.saturating_sub(window.shift);
        let mut entry = window.entry_of(known, position, self.entries)?;
        if !entry.is_some_and(|entry| is_entry(&entry, request))
            && let Some(other) = known.position_of(number, request)?
        {
            position = other;
            entry = window.entry_of(known, position, self.entries)?;
        }
        let Some(entry) = entry.filter(|entry| is_entry(entry, request)) else {
            window.shift = 0;
            if number < known.first || number >= known.end {
                return self.miss((&known.topic, known.id), Some(known), number, request);
            }
            // A missing file was reported.
            let entry = window.entry_of(known, number, self.entries)?;
            return entry.map_or(Ok(()), |entry| self.other_entry(known, number, entry, request));
        };
        window.matched += 1;
        window.shift = number.saturating_sub(position);
        if window.shift > 0 {
            known.shift(position, window.shift);
        }
        if entry.tags_code != tags_code(self.cx, request) {
            return self.other_tags(known, queue, position, entry, request);
        }
        Ok(())
    }

    #[cold]
    fn other_tags(
        &mut self,
        queue: &'a Queue,
        queue_number: u32,
        number: i64,
        entry: QueueEntry,
        request: &DispatchRequest<'_>,
    ) -> Result<()> {
        if consume_queue_ext::is_address(entry.tags_code) {
            return self.exts.compare(queue, queue_number, number, entry.tags_code, request);
        }
        // The broker sets the delays.
        if request.topic == SCHEDULE_TOPIC {
            return Ok(());
        }
        let expected = format!("tags code {}", tags_code(self.cx, request));
        let found = format!("entry {number} with tags code {}", entry.tags_code);
        queue.report(self.cx, Code::QueueTags, number, expected, found);
        Ok(())
    }

    #[cold]
    fn other_entry(
        &mut self,
        queue: &Queue,
        number: i64,
        entry: QueueEntry,
        request: &DispatchRequest<'_>,
    ) -> Result<()> {
        let start = self.log.min_offset().unwrap_or(0);
        let leads = u64::try_from(entry.physical_offset).ok().filter(|&at| at >= start);
        if entry.is_pre_blank() || (entry.is_valid() && leads.is_none()) {
            return self.miss((&queue.topic, queue.id), Some(queue), number, request);
        }
        let unit = CqUnit::plain(number, entry);
        // Invalid entries were reported, and those that lead nowhere will be, unless another
        // message has the number too.
        if let (true, Some(leads)) = (entry.is_valid(), leads)
            && i64::try_from(leads) != Ok(request.physical_offset)
            && let Some((view, size)) = probe(self.log, leads, &mut self.probed)?
            && u32::try_from(entry.store_size) == Ok(size)
        {
            match shift_of(&view, queue.kind(), &queue.topic, queue.id, &unit) {
                Some(0) => report_twice(self.cx, self.log, queue, number, leads, request),
                // The only entry of a later message.
                Some(shift) if !queue.leads(number.saturating_add(shift), &entry)? => {
                    self.miss((&queue.topic, queue.id), Some(queue), number, request)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn check_batch(
        &self,
        record: &FramedRecord<'_>,
        request: &DispatchRequest<'_>,
    ) -> Result<Option<FormatError>> {
        let is_batch = sys_flag::is_inner_batch(record.view.sys_flag());
        if !is_batch && request.properties.inner_num.is_none() {
            return Ok(None);
        }
        check_record(self.queues, self.log, record, request, is_batch)
    }

    fn compare_batch(&mut self, queue: u32, request: &DispatchRequest<'_>) -> Result<()> {
        let slot = slot_of(queue, self.windows.len());
        let (Some(known), Some(window)) = (self.queues.get(queue), self.windows.get_mut(slot))
        else {
            return Ok(());
        };
        if window.queue != queue {
            window.change(queue, self.queues);
        }
        let range = request.range(QueueKind::Batch);
        let number = range.base_queue_offset;
        let entries = self.entries * ENTRY_LEN / QueueKind::Batch.entry_len();
        match find_batch(known, window, entries, request.physical_offset, number)? {
            Ok((position, unit)) => {
                let is_size = u32::try_from(unit.store_size) == Ok(request.store_size);
                window.matched += u64::from(is_size && is_range(&unit, range));
                self.check_fields(known, position, &unit, request);
            }
            // An invalid entry between its neighbours.
            Err(Some(unit)) if !unit.is_valid() && number < known.end => {}
            Err(Some(unit)) if unit.is_valid() && unit.number == number => {
                let leads = clamp_u64(unit.physical_offset);
                if let Some((view, _)) = probe(self.log, leads, &mut self.probed)? {
                    let other = DispatchRequest::of(&view);
                    if is_of(known, &other) && is_range(&unit, other.range(QueueKind::Batch)) {
                        report_twice(self.cx, self.log, known, number, leads, request);
                    }
                }
            }
            Err(_) => {
                self.miss((&known.topic, known.id), Some(known), number, request)?;
            }
        }
        Ok(())
    }

    fn check_fields(
        &self,
        queue: &Queue,
        position: i64,
        unit: &CqUnit,
        request: &DispatchRequest<'_>,
    ) {
        let (tags, time) = (tags_code(self.cx, request), request.store_timestamp_ms);
        for (code, name, expected, found) in [
            (Code::QueueTags, "tags code", tags, unit.tags_code),
            (Code::BatchTime, "time", time, unit.store_timestamp_ms),
        ] {
            if expected != found {
                let found = format!("entry {position} with {name} {found}");
                let expected = format!("{name} {expected}");
                queue.report(self.cx, code, position, expected, found);
            }
        }
    }

    pub(crate) fn has_lights(&self) -> bool {
        let config = self.cx.config;
        config.enable_lmq && config.enable_multi_dispatch || self.queues.has_lights
    }

    pub(crate) fn finish(&mut self) {
        for window in &mut self.windows {
            window.change(NONE, self.queues);
        }
    }
}

fn is_entry(entry: &QueueEntry, request: &DispatchRequest<'_>) -> bool {
    entry.physical_offset == request.physical_offset
        && u32::try_from(entry.store_size) == Ok(request.store_size)
}

/// Index of a queue's window; unique if there are enough.
#[inline]
fn slot_of(queue: u32, windows: usize) -> usize {
    match to_usize(queue) {
        slot if slot < windows => slot,
        number => number % windows.max(1),
    }
}

/// Compares a batch's statements with its messages; positions count from the record's first
/// byte.
#[cold]
fn check_record(
    queues: &Queues,
    log: &FileRun,
    record: &FramedRecord<'_>,
    request: &DispatchRequest<'_>,
    is_batch: bool,
) -> Result<Option<FormatError>> {
    if !is_batch && queues.kind_of(request.topic) == QueueKind::Plain {
        return Ok(None);
    }
    let range = match batch::inner_range(&request.properties, request.queue_offset) {
        Ok(range) if is_batch => range,
        other => return Ok(other.err()),
    };
    let count = match messages_in(log, record)? {
        Ok(count) => count,
        Err(error) => return Ok(Some(FormatError { position: 0, ..error })),
    };
    Ok((count != i64::from(range.message_count)).then(|| {
        let expected = format!("{} messages in the body", range.message_count);
        FormatError::new(CorruptionKind::Batch, 0, expected, count.to_string())
    }))
}

fn messages_in(
    log: &FileRun,
    record: &FramedRecord<'_>,
) -> Result<std::result::Result<i64, FormatError>> {
    with_body(log, record, |view| {
        let body = body::decompress(view.body(), view.sys_flag(), MOST_BODY)?;
        batch::items(&body).try_fold(0, |count, item| item.map(|_| count + 1))
    })
}

/// Searches the entry of the record at `physical_offset` whose first message has `number`: by both,
/// in case one is damaged; an error is the entry in its place. Keeps at most so many `entries` behind
/// it.
fn find_batch(
    queue: &Queue,
    window: &mut Window,
    entries: usize,
    physical_offset: i64,
    number: i64,
) -> Result<std::result::Result<(i64, CqUnit), Option<CqUnit>>> {
    if let Some(found) = window.find(physical_offset) {
        return Ok(Ok(found));
    }
    let by_place = partition_point_by(queue, |unit| unit.physical_offset < physical_offset)?;
    window.read(queue, by_place, entries)?;
    if window.find(physical_offset).is_none() {
        let by_number = partition_point_by(queue, |unit| unit.end() <= number)?;
        window.read(queue, by_number, entries)?;
    }
    Ok(window.find(physical_offset).ok_or_else(|| window.first()))
}

fn partition_point_by(queue: &Queue, before: impl Fn(&CqUnit) -> bool) -> Result<i64> {
    let entries = &queue.entries;
    let position = entries
        .partition_point_by(entries.positions(), |unit| unit.is_valid().then(|| before(unit)))?;
    Ok(saturating_i64(position))
}
