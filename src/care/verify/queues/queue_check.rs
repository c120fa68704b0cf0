//! Compares each message with its queue entry during the log walk, and finds entries of other
//! messages.

use std::sync::atomic::Ordering;

use super::batch_check::BatchCheck;
use super::entry_check::{self, spot};
use super::ext_check::{EntryPlace, ExtCheck};
use super::report::{miss, tags_code, tell_twice};
use super::{Queue, Queues, find};
use crate::care::finding::{Code, Severity};
use crate::care::verify::context::{Context, Walked};
use crate::error::{FormatError, Result};
use crate::files::FileRun;
use crate::format::message::MessageView;
use crate::format::message::sys_flag;
use crate::format::queue::consume_queue::{ENTRY_LEN, QueueEntry, SCHEDULE_TOPIC};
use crate::format::queue::consume_queue_ext;
use crate::format::width::{at_least_0, to_usize};
use crate::log::QueueKind;
use crate::log::queue::Unit;
use crate::log::read::frames::{Record, probe};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;
use crate::store::read::entry_search::points_back;

/// Maximum memory for queue entries of all walks.
const BUDGET: usize = 48 << 20;
/// Entries read at a time, fewer with many queues.
const MOST_ENTRIES: usize = 512;
const LEAST_ENTRIES: usize = 64;
const NONE: u32 = u32::MAX;

pub(in crate::care::verify) struct QueueCheck<'a> {
    cx: &'a Context<'a>,
    queues: &'a Queues,
    log: &'a FileRun,
    windows: Vec<Window>,
    entries: usize,
    kind: QueueKind,
    of_topic: &'a [(i32, u32)],
    probed: Vec<u8>,
    batches: BatchCheck<'a>,
    exts: ExtCheck<'a>,
}

struct Window {
    queue: u32,
    from: i64,
    bytes: Vec<u8>,
    met: u64,
}

impl Window {
    const fn empty() -> Self {
        Self { queue: NONE, from: 0, bytes: Vec::new(), met: 0 }
    }

    #[inline]
    fn entry(&self, number: i64) -> Option<&[u8; ENTRY_LEN]> {
        let at = usize::try_from(number.checked_sub(self.from)?).ok()?;
        self.bytes.as_chunks().0.get(at)
    }
}

impl<'a> QueueCheck<'a> {
    pub(in crate::care::verify) fn new(
        cx: &'a Context<'a>,
        queues: &'a Queues,
        log: &'a FileRun,
    ) -> Self {
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
            batches: BatchCheck::new(cx, queues, log),
            exts: ExtCheck::new(cx),
        }
    }

    pub(in crate::care::verify) fn go_to_topic(&mut self, topic: &[u8]) {
        self.kind = self.queues.kind_of(topic);
        self.of_topic = self.queues.of_topic(self.kind, topic);
    }

    /// Whether an entry of the message's queue leads to it.
    pub(in crate::care::verify) fn is_known(&self, request: &DispatchRequest<'_>) -> Result<bool> {
        let number = request.queue_offset;
        let kind = self.queues.kind_of(request.topic);
        let queue = self.queues.number_of(kind, request.topic, request.queue_id);
        let Some(queue) = queue.and_then(|queue| self.queues.get(queue)) else { return Ok(false) };
        if kind != QueueKind::Plain || !(queue.first..queue.end).contains(&number) {
            return Ok(false);
        }
        let mut entry = Vec::new();
        read_entries(&queue.run, number, 1, &mut entry)?;
        let entry = entry.first_chunk::<ENTRY_LEN>().map(QueueEntry::decode);
        Ok(entry.is_some_and(|entry| entry.physical_offset == request.physical_offset))
    }

    /// Compares a message of the current topic with its queues.
    #[inline]
    pub(in crate::care::verify) fn see(&mut self, request: &DispatchRequest<'_>) -> Result<()> {
        if !request.is_queued() {
            return Ok(());
        }
        let number = request.range(self.kind).base_queue_offset;
        match (find(self.of_topic, request.queue_id), self.kind) {
            (Some(queue), QueueKind::Plain) => self.hold(queue, number, request)?,
            (Some(queue), QueueKind::Batch) => self.batches.hold(queue, request)?,
            (None, _) => miss(self.queues, request.topic, request.queue_id, None, number, request),
        }
        if request.properties.multi_dispatch.is_some() { self.see_more(request) } else { Ok(()) }
    }

    /// Compares a message with its additional queues, if enabled.
    #[cold]
    fn see_more(&mut self, request: &DispatchRequest<'_>) -> Result<()> {
        for (name, number) in lmq::pairs(request.topic, &request.properties) {
            match self.queues.number_of(QueueKind::Plain, name, 0) {
                Some(queue) => self.hold(queue, number, request)?,
                None if self.cx.config.enable_lmq && self.cx.config.enable_multi_dispatch => {
                    miss(self.queues, name, 0, None, number, request);
                }
                None => {}
            }
        }
        Ok(())
    }

    #[inline]
    fn hold(&mut self, queue: u32, number: i64, request: &DispatchRequest<'_>) -> Result<()> {
        let slot = slot_of(queue, self.windows.len());
        if let Some(window) = self.windows.get_mut(slot).filter(|window| window.queue == queue)
            && let Some(entry) = window.entry(number).map(QueueEntry::decode)
            && entry.physical_offset == request.physical_offset
            && u32::try_from(entry.store_size) == Ok(request.store_size)
            && entry.tags_code == tags_code(self.cx, request)
        {
            window.met += 1;
            return Ok(());
        }
        self.hold_closely(queue, slot, number, request)
    }

    /// Slow path: the entry is not read yet, or wrong.
    fn hold_closely(
        &mut self,
        queue: u32,
        slot: usize,
        number: i64,
        request: &DispatchRequest<'_>,
    ) -> Result<()> {
        let Some(known) = self.queues.get(queue) else { return Ok(()) };
        if number < known.first || number >= known.end {
            miss(self.queues, &known.topic, known.id, Some(known), number, request);
            return Ok(());
        }
        let Some(window) = self.windows.get_mut(slot) else { return Ok(()) };
        if window.queue != queue || window.entry(number).is_none() {
            if window.queue != queue {
                flush_window(window, self.queues);
                window.queue = queue;
            }
            let left = to_usize(at_least_0(known.end.saturating_sub(number)));
            read_entries(&known.run, number, left.min(self.entries), &mut window.bytes)?;
            window.from = number;
        }
        // A missing file was reported.
        let Some(entry) = window.entry(number).map(QueueEntry::decode) else { return Ok(()) };
        if entry.physical_offset == request.physical_offset
            && u32::try_from(entry.store_size) == Ok(request.store_size)
        {
            window.met += 1;
            if entry.tags_code != tags_code(self.cx, request) {
                return self.other_tags(known, queue, number, entry, request);
            }
            return Ok(());
        }
        self.other_entry(known, number, entry, request)
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
        let (path, offset) = spot::<ENTRY_LEN>(queue, number);
        if consume_queue_ext::is_address(entry.tags_code) {
            let at = EntryPlace { number, path, offset };
            return self.exts.hold(queue, queue_number, &at, entry.tags_code, request);
        }
        // The broker sets the delays.
        if request.topic == SCHEDULE_TOPIC {
            return Ok(());
        }
        let expected = format!("tags code {}", tags_code(self.cx, request));
        let found = format!("entry {number} with tags code {}", entry.tags_code);
        let severity = Severity::Error;
        self.cx.findings.add(Code::QueueTags, severity, &path, Some(offset), expected, found);
        Ok(())
    }

    /// Handles an entry of another message under this number.
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
            miss(self.queues, &queue.topic, queue.id, Some(queue), number, request);
            return Ok(());
        }
        // Invalid entries were reported, and those that lead nowhere will be, unless another
        // message has the number too.
        if let (true, Some(leads)) = (entry.is_valid(), leads)
            && i64::try_from(leads) != Ok(request.physical_offset)
            && let Some((view, size)) = probe(self.log, leads, &mut self.probed)?
            && leads_back(&view, queue, number, entry)
            && u32::try_from(entry.store_size) == Ok(size)
        {
            tell_twice(self.cx, self.log, queue, number, leads, request);
        }
        Ok(())
    }

    #[inline]
    pub(in crate::care::verify) fn check_batch(
        &self,
        record: &Record<'_>,
        request: &DispatchRequest<'_>,
    ) -> Result<Option<FormatError>> {
        let is_batch = sys_flag::is_inner_batch(record.view.sys_flag());
        if !is_batch && request.properties.inner_num.is_none() {
            return Ok(None);
        }
        self.batches.check_record(record, request, is_batch)
    }

    pub(in crate::care::verify) fn finish(&mut self) {
        for window in &mut self.windows {
            flush_window(window, self.queues);
        }
        self.batches.finish();
    }
}

/// Index of a queue's window; unique if there are enough.
#[inline]
fn slot_of(queue: u32, windows: usize) -> usize {
    match to_usize(queue) {
        slot if slot < windows => slot,
        number => number % windows.max(1),
    }
}

fn flush_window(window: &mut Window, queues: &Queues) {
    if let Some(queue) = queues.get(window.queue) {
        queue.met.fetch_add(window.met, Ordering::Relaxed);
    }
    window.met = 0;
    window.bytes.clear();
}

fn read_entries(run: &FileRun, number: i64, count: usize, bytes: &mut Vec<u8>) -> Result<()> {
    let at = at_least_0(number).saturating_mul(ENTRY_LEN as u64);
    bytes.resize(count * ENTRY_LEN, 0);
    let read = run.read_at(bytes, at)?;
    bytes.truncate(read);
    Ok(())
}

fn leads_back(view: &MessageView<'_>, queue: &Queue, number: i64, entry: QueueEntry) -> bool {
    let unit = Unit { number, count: 1, entry };
    points_back(view, QueueKind::Plain, &queue.topic, queue.id, &unit)
}

pub(in crate::care::verify) fn check_entries(
    cx: &Context<'_>,
    queue: &Queue,
    log: &FileRun,
    walked: &Walked,
) -> Result<()> {
    let judge = |number, entry: &QueueEntry, found, view: &MessageView<'_>, size| {
        if leads_back(view, queue, number, *entry) {
            let right = u32::try_from(entry.store_size) == Ok(size);
            return (!right).then(|| (Code::QueueSize, format!("size {size}"), found));
        }
        let topic = String::from_utf8_lossy(&queue.topic);
        let found = format!(
            "{found}, which is message {} of queue {} of {}",
            view.queue_offset(),
            view.queue_id(),
            String::from_utf8_lossy(view.topic())
        );
        let expected = format!("message {number} of queue {} of {topic}", queue.id);
        Some((Code::QueueOther, expected, found))
    };
    entry_check::check_entries(cx, queue, log, walked, queue.end, judge)
}
