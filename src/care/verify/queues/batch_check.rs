//! Checks batch queues in both directions.
//!
//! An entry's position does not tell its number, so a record's entry is searched by physical offset
//! and by number, in case one is damaged.

use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use super::entry_check::{self, spot};
use super::report::{miss, tags_code, tell_twice};
use super::{Entry, Met, Queue, Queues, each_entry};
use crate::care::finding::{Code, Severity};
use crate::care::verify::context::{Context, Walked};
use crate::error::{CorruptionKind, FormatError, Result};
use crate::files::FileRun;
use crate::format::body;
use crate::format::message::{Frame, MessageView, read_frame};
use crate::format::queue::batch::{self, BatchQueueEntry, ENTRY_LEN, InnerRange};
use crate::format::width::{at_least_0, at_most_i32, at_most_i64};
use crate::log::QueueKind;
use crate::log::read::frames::{Record, probe};
use crate::store::dispatch::dispatcher::DispatchRequest;

const ENTRY: u64 = ENTRY_LEN as u64;
const WINDOW: usize = 128;
const MOST_WINDOWS: usize = 1024;
const MOST_BODY: usize = 64 << 20;
/// Invalid entries skipped at a time in a search.
const MOST_PASSED: usize = 64;

impl Entry<ENTRY_LEN> for BatchQueueEntry {
    fn met(bytes: &[u8; ENTRY_LEN]) -> Met<Self> {
        let entry = Self::decode(bytes);
        if is_sound(&entry) {
            Met::Entry(entry)
        } else if bytes.iter().all(|&byte| byte == 0) {
            Met::Empty
        } else {
            Met::Impossible(entry)
        }
    }

    fn leads_to(&self) -> (i64, i32) {
        (self.physical_offset, self.store_size)
    }
}

fn is_sound(entry: &BatchQueueEntry) -> bool {
    entry.is_valid() && entry.end_queue_offset().is_some()
}

/// Reads a queue: first and last numbers, valid entries, and faults by itself.
pub(in crate::care::verify) fn read_structure(
    cx: &Context<'_>,
    queue: &mut Queue,
    log_start: u64,
) -> Result<u64> {
    let log_start = at_most_i64(log_start);
    let (mut count, mut live) = (0_u64, 0_u64);
    let (mut first, mut empty) = (None, None);
    let mut last: Option<BatchQueueEntry> = None;
    let tell = |code, severity, place, expected: String, found: String| {
        let (path, offset) = spot::<ENTRY_LEN>(queue, place);
        cx.findings.add(code, severity, &path, Some(offset), expected, found);
    };
    each_entry(cx, &queue.run, |place, met: &Met<BatchQueueEntry>| {
        let entry = match met {
            Met::Empty | Met::Blank => {
                empty = empty.or(Some(place));
                return Ok(());
            }
            Met::Entry(entry) | Met::Impossible(entry) => entry,
        };
        if let Some(from) = empty.take() {
            let found = format!("zeros up to entry {place}, which is there");
            tell(Code::QueueHole, Severity::Error, from, format!("entry {from}"), found);
        }
        if let Met::Impossible(entry) = met {
            let found = format!(
                "entry {place} with offset {}, size {}, {} messages from {} on",
                entry.physical_offset,
                entry.store_size,
                entry.message_count,
                entry.base_queue_offset
            );
            let expected = "an offset and a number of 0 or more, a size and a count above 0";
            tell(Code::QueueNowhere, Severity::Error, place, expected.to_owned(), found);
            return Ok(());
        }
        count += 1;
        live += u64::from(entry.physical_offset >= log_start);
        if let Some(before) = last {
            if entry.physical_offset <= before.physical_offset {
                let expected = format!("an offset behind {}", before.physical_offset);
                let found = format!("entry {place} with offset {}", entry.physical_offset);
                tell(Code::QueueOrder, Severity::Error, place, expected, found);
            }
            let next = before.end_queue_offset().unwrap_or(i64::MAX);
            if entry.base_queue_offset != next {
                // Missing numbers may be of lost messages.
                let gap = entry.base_queue_offset > next;
                let severity = if gap { Severity::Warning } else { Severity::Error };
                let expected = format!("messages from {next} on");
                let found = format!("entry {place} with those from {}", entry.base_queue_offset);
                tell(Code::BatchNumbers, severity, place, expected, found);
            }
        }
        first = first.or(Some(entry.base_queue_offset));
        last = Some(*entry);
        Ok(())
    })?;
    queue.first = first.unwrap_or(0);
    queue.end = last.and_then(|last| last.end_queue_offset()).unwrap_or(0);
    queue.live = live;
    Ok(count)
}

pub(in crate::care::verify) struct BatchCheck<'a> {
    cx: &'a Context<'a>,
    queues: &'a Queues,
    log: &'a FileRun,
    windows: HashMap<u32, Window>,
    probed: Vec<u8>,
}

#[derive(Default)]
struct Window {
    from: u64,
    entries: Vec<BatchQueueEntry>,
    met: u64,
}

impl Window {
    fn find(&self, physical_offset: i64) -> Option<(u64, BatchQueueEntry)> {
        let at = self.entries.iter().position(|e| e.physical_offset == physical_offset)?;
        Some((self.from + at as u64, *self.entries.get(at)?))
    }
}

enum Has {
    Entry(u64, BatchQueueEntry),
    Other(BatchQueueEntry),
    Broken,
    Nothing,
}

impl<'a> BatchCheck<'a> {
    pub(in crate::care::verify) fn new(
        cx: &'a Context<'a>,
        queues: &'a Queues,
        log: &'a FileRun,
    ) -> Self {
        Self { cx, queues, log, windows: HashMap::new(), probed: Vec::new() }
    }

    /// Compares a batch's statements with its messages; positions count from the record's first
    /// byte.
    #[cold]
    pub(in crate::care::verify) fn check_record(
        &self,
        record: &Record<'_>,
        request: &DispatchRequest<'_>,
        is_batch: bool,
    ) -> Result<Option<FormatError>> {
        if !is_batch && self.queues.kind_of(request.topic) == QueueKind::Plain {
            return Ok(None);
        }
        let range = match batch::inner_range(&request.properties, request.queue_offset) {
            Ok(range) if is_batch => range,
            other => return Ok(other.err()),
        };
        let count = match self.messages_in(record)? {
            Ok(count) => count,
            Err(error) => return Ok(Some(FormatError { position: 0, ..error })),
        };
        Ok((count != i64::from(range.message_count)).then(|| {
            let expected = format!("{} messages in the body", range.message_count);
            FormatError::new(CorruptionKind::Batch, 0, expected, count.to_string())
        }))
    }

    fn messages_in(&self, record: &Record<'_>) -> Result<std::result::Result<i64, FormatError>> {
        // The walk leaves out a large record's body.
        let mut whole = vec![0; if record.is_elided { record.size as usize } else { 0 }];
        let place = at_least_0(record.view.physical_offset());
        let read = self.log.read_at(&mut whole, place)?;
        let view = match read_frame(whole.get(..read).unwrap_or_default()) {
            Ok(Frame::Message(view)) => view,
            _ => record.view,
        };
        let body = match body::decompress(view.body(), view.sys_flag(), MOST_BODY) {
            Ok(body) => body,
            Err(error) => return Ok(Err(error.into())),
        };
        Ok(batch::items(&body).try_fold(0, |count, item| item.map(|_| count + 1)))
    }

    pub(in crate::care::verify) fn hold(
        &mut self,
        queue: u32,
        request: &DispatchRequest<'_>,
    ) -> Result<()> {
        let Some(known) = self.queues.get(queue) else { return Ok(()) };
        let range = request.range(QueueKind::Batch);
        let number = range.base_queue_offset;
        if !self.windows.contains_key(&queue) && self.windows.len() >= MOST_WINDOWS {
            self.finish();
        }
        let window = self.windows.entry(queue).or_default();
        let has = match window.find(request.physical_offset) {
            Some((place, entry)) => Has::Entry(place, entry),
            None => look_up(known, window, request.physical_offset, number)?,
        };
        match has {
            Has::Entry(place, entry) => {
                let right = entry.store_size == size_of(request) && is_range(&entry, range);
                window.met += u64::from(right);
                self.fields(known, place, &entry, request);
            }
            Has::Broken => {}
            Has::Other(entry) => {
                let leads = at_least_0(entry.physical_offset);
                if let Some((view, _)) = probe(self.log, leads, &mut self.probed)? {
                    let other = DispatchRequest::of(&view);
                    if is_of(known, &other) && is_range(&entry, other.range(QueueKind::Batch)) {
                        tell_twice(self.cx, self.log, known, number, leads, request);
                    }
                }
            }
            Has::Nothing => {
                miss(self.queues, &known.topic, known.id, Some(known), number, request);
            }
        }
        Ok(())
    }

    fn fields(
        &self,
        queue: &Queue,
        place: u64,
        entry: &BatchQueueEntry,
        request: &DispatchRequest<'_>,
    ) {
        let place = at_most_i64(place);
        let tell = |code, expected, found| {
            let (path, offset) = spot::<ENTRY_LEN>(queue, place);
            self.cx.findings.add(code, Severity::Error, &path, Some(offset), expected, found);
        };
        let tags = tags_code(self.cx, request);
        if entry.tags_code != tags {
            let found = format!("entry {place} with tags code {}", entry.tags_code);
            tell(Code::QueueTags, format!("tags code {tags}"), found);
        }
        let time = request.store_timestamp_ms;
        if entry.store_timestamp_ms != time {
            let found = format!("entry {place} with time {}", entry.store_timestamp_ms);
            tell(Code::BatchTime, format!("time {time}"), found);
        }
    }

    pub(in crate::care::verify) fn finish(&mut self) {
        for (number, window) in self.windows.drain() {
            if let Some(queue) = self.queues.get(number) {
                queue.met.fetch_add(window.met, Ordering::Relaxed);
            }
        }
    }
}

fn size_of(request: &DispatchRequest<'_>) -> i32 {
    at_most_i32(request.store_size)
}

fn is_range(entry: &BatchQueueEntry, range: InnerRange) -> bool {
    (entry.base_queue_offset, entry.message_count) == (range.base_queue_offset, range.message_count)
}

fn is_of(queue: &Queue, request: &DispatchRequest<'_>) -> bool {
    *request.topic == *queue.topic && request.queue_id == queue.id && request.is_queued()
}

fn look_up(queue: &Queue, window: &mut Window, physical_offset: i64, number: i64) -> Result<Has> {
    let by_place = first_not(queue, |entry| entry.physical_offset < physical_offset)?;
    read_window(queue, window, by_place)?;
    if let Some((place, entry)) = window.find(physical_offset) {
        return Ok(Has::Entry(place, entry));
    }
    let by_number =
        first_not(queue, |entry| entry.end_queue_offset().is_some_and(|end| end <= number))?;
    read_window(queue, window, by_number)?;
    if let Some((place, entry)) = window.find(physical_offset) {
        return Ok(Has::Entry(place, entry));
    }
    if let Some(entry) = window.entries.first()
        && is_sound(entry)
        && entry.base_queue_offset == number
    {
        return Ok(Has::Other(*entry));
    }
    // An invalid entry between its neighbours.
    let before = by_number.checked_sub(1).map(|place| entry_at(queue, place)).transpose()?;
    let broken = before.flatten().is_some_and(|entry| !is_sound(&entry));
    Ok(if broken && number < queue.end { Has::Broken } else { Has::Nothing })
}

fn entry_at(queue: &Queue, place: u64) -> Result<Option<BatchQueueEntry>> {
    let mut bytes = [0; ENTRY_LEN];
    let read = queue.run.read_at(&mut bytes, place.saturating_mul(ENTRY))?;
    Ok((read == ENTRY_LEN).then(|| BatchQueueEntry::decode(&bytes)))
}

fn read_window(queue: &Queue, window: &mut Window, from: u64) -> Result<()> {
    let mut bytes = [0; WINDOW * ENTRY_LEN];
    window.from = from;
    window.entries.clear();
    let read = match queue.run.find(from.saturating_mul(ENTRY)) {
        Some(_) => queue.run.read_at(&mut bytes, from.saturating_mul(ENTRY))?,
        None => 0,
    };
    let (entries, _) = bytes.get(..read).unwrap_or_default().as_chunks::<ENTRY_LEN>();
    window.entries.extend(entries.iter().map(BatchQueueEntry::decode));
    Ok(())
}

fn first_sound(
    queue: &Queue,
    places: impl Iterator<Item = u64>,
) -> Result<Option<(u64, BatchQueueEntry)>> {
    for place in places.take(MOST_PASSED) {
        if let Some(entry) = entry_at(queue, place)?.filter(is_sound) {
            return Ok(Some((place, entry)));
        }
    }
    Ok(None)
}

fn first_not(queue: &Queue, before: impl Fn(&BatchQueueEntry) -> bool) -> Result<u64> {
    let mut low = queue.run.min_offset().unwrap_or(0) / ENTRY;
    let mut high = queue.run.end_offset().unwrap_or(0) / ENTRY;
    while low < high {
        let middle = low + (high - low) / 2;
        if let Some((place, entry)) = first_sound(queue, (low..=middle).rev())? {
            if before(&entry) { low = middle + 1 } else { high = place }
        } else if let Some((place, entry)) = first_sound(queue, middle + 1..high)? {
            if before(&entry) { low = place + 1 } else { return Ok(place) }
        } else {
            // Nothing was written there.
            high = middle;
        }
    }
    Ok(low)
}

pub(in crate::care::verify) fn check_entries(
    cx: &Context<'_>,
    queue: &Queue,
    log: &FileRun,
    walked: &Walked,
) -> Result<()> {
    let topic = String::from_utf8_lossy(&queue.topic);
    let judge = |place, entry: &BatchQueueEntry, found, view: &MessageView<'_>, size| {
        let request = DispatchRequest::of(view);
        let range = request.range(QueueKind::Batch);
        if !is_of(queue, &request) {
            let other = String::from_utf8_lossy(request.topic);
            let found = format!("{found}, of queue {} of {other}", request.queue_id);
            let expected = format!("a message of queue {} of {topic}", queue.id);
            return Some((Code::QueueOther, expected, found));
        }
        if u32::try_from(entry.store_size) != Ok(size) {
            return Some((Code::QueueSize, format!("size {size}"), found));
        }
        (!is_range(entry, range)).then(|| {
            let said = |base: i64, count: i16| format!("{count} messages from {base} on");
            let found = said(entry.base_queue_offset, entry.message_count);
            let expected = said(range.base_queue_offset, range.message_count);
            (Code::BatchRange, expected, format!("entry {place} with {found}"))
        })
    };
    entry_check::check_entries(cx, queue, log, walked, i64::MAX, judge)
}
