//! Checks the entries and the extension of a queue by themselves, and with the log where the walk left
//! some unmatched.

use super::{Entries, Queue, each_block, is_of, is_range, tags_code};
use crate::care::finding::{Code, Graded, Severity};
use crate::care::verify::context::{Context, State, Walked};
use crate::error::{Error, Result};
use crate::files::FileRun;
use crate::format::message::MessageView;
use crate::format::queue::consume_queue::{QueueEntry, SCHEDULE_TOPIC};
use crate::format::queue::consume_queue_ext::{self, ExtFrame, MAX_UNIT_LEN, MIN_UNIT_LEN};
use crate::format::width::{saturating_i64, to_usize};
use crate::log::read::frames::probe;
use crate::log::{CqUnit, QueueKind};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::read::entry_search::shift_of;

pub(crate) fn read(cx: &Context<'_>, queue: &mut Queue, log_start: u64) -> Result<u64> {
    let is_plain = queue.kind() == QueueKind::Plain;
    let mut structure = Structure {
        cx,
        queue,
        is_plain,
        log_start: saturating_i64(log_start),
        count: 0,
        live: 0,
        first: None,
        end: None,
        last: None,
        empty: None,
        blanks: None,
    };
    each_block(cx, queue, |entries| {
        structure.take_block(entries);
        Ok(())
    })?;
    if is_plain {
        structure.finish();
    }
    let Structure { count, live, first, end, last, .. } = structure;
    queue.first = first.unwrap_or(0);
    queue.end = end.or(first).unwrap_or(0);
    queue.live = live;
    queue.last_at = last.map_or(-1, |last| last.physical_offset);
    Ok(count)
}

struct Structure<'a> {
    cx: &'a Context<'a>,
    queue: &'a Queue,
    is_plain: bool,
    log_start: i64,
    count: u64,
    live: u64,
    first: Option<i64>,
    end: Option<i64>,
    last: Option<CqUnit>,
    /// Start of zeros or fillers not followed by anything yet.
    empty: Option<i64>,
    blanks: Option<i64>,
}

impl Structure<'_> {
    fn take_block(&mut self, entries: &Entries) {
        if entries.bytes.is_empty() {
            self.take(entries.first, None);
        }
        let mut at = 0;
        loop {
            at += match self.empty {
                None => self.pass_usual(entries, at),
                Some(_) => entries.zeros(at),
            };
            let Some(entry) = entries.entry(at) else { return };
            self.take(entries.first + at as i64, entry); // of a block
            at += 1;
        }
    }

    /// Fast path: takes entries of a plain queue while each leads behind its predecessor; returns
    /// their number.
    #[inline]
    fn pass_usual(&mut self, entries: &Entries, from: usize) -> usize {
        let (true, Some(before), None) = (self.is_plain, self.last, self.blanks) else { return 0 };
        let (mut last, mut passed, mut live) = (before.entry(), 0, 0);
        for entry in entries.bytes.as_chunks().0.iter().skip(from).map(QueueEntry::decode) {
            if entry.store_size <= 0 || entry.physical_offset <= last.physical_offset {
                break;
            }
            last = entry;
            live += u64::from(last.physical_offset >= self.log_start);
            passed += 1;
        }
        if passed > 0 {
            let last = CqUnit::plain(entries.first + (from + passed - 1) as i64, last); // of a block
            self.count += passed as u64;
            self.live += live;
            self.end = Some(last.end());
            self.last = Some(last);
        }
        passed
    }

    fn take(&mut self, position: i64, entry: Option<CqUnit>) {
        if self.is_plain {
            self.first.get_or_insert(position);
        }
        let Some(unit) = entry else {
            self.empty.get_or_insert(position);
            return;
        };
        if self.is_plain && unit.is_pre_blank() {
            if self.last.is_some() {
                self.blanks.get_or_insert(position);
                self.end = Some(position.saturating_add(1));
            }
            return;
        }
        if let Some(from) = self.empty.take() {
            let found = format!("zeros up to entry {position}, which is there");
            self.add(Code::QueueHole, from, format!("entry {from}"), found);
        }
        if let Some(from) = self.blanks.take() {
            let found = format!("fillers up to entry {position}");
            self.add(Code::QueueBlank, from, format!("entry {from}"), found);
        }
        if self.is_plain {
            self.end = Some(unit.end());
        }
        let CqUnit { number, count, physical_offset, store_size, .. } = unit;
        if !unit.is_valid() {
            let mut found =
                format!("entry {position} with offset {physical_offset}, size {store_size}");
            let mut expected = "an offset of 0 or more, a size above 0";
            if !self.is_plain {
                expected = "an offset and a number of 0 or more, a size and a count above 0";
                found += &format!(", {count} messages from {number} on");
            }
            self.add(Code::QueueNowhere, position, expected.to_owned(), found);
            return;
        }
        self.count += 1;
        self.live += u64::from(physical_offset >= self.log_start);
        if let Some(before) = self.last {
            if physical_offset <= before.physical_offset {
                let expected = format!("an offset behind {}", before.physical_offset);
                let found = format!("entry {position} with offset {physical_offset}");
                self.add(Code::QueueOrder, position, expected, found);
            }
            if !self.is_plain && number != before.end() {
                // Missing numbers may be of lost messages.
                let gap = number > before.end();
                let severity = if gap { Severity::Warning } else { Severity::Error };
                let expected = format!("messages from {} on", before.end());
                let found = format!("entry {position} with those from {number}");
                self.add(Code::BatchNumbers.at(severity), position, expected, found);
            }
        }
        self.first.get_or_insert(number);
        self.end = Some(unit.end());
        self.last = Some(unit);
    }

    fn finish(&self) {
        if let Some(from) = self.blanks {
            let found = "fillers up to the end".to_owned();
            self.add(Code::QueueBlank, from, format!("entry {from}"), found);
        }
        let files = self.queue.run().files();
        let entry_len = self.queue.kind().entry_len() as u64;
        // If its first file is empty, RocketMQ takes the queue for a new one.
        if let Some(file) = files.last().filter(|file| file.base_offset > 0 && file.len > 0)
            && self.cx.state != State::InUse
            && self
                .empty
                .is_some_and(|from| i64::try_from(file.base_offset / entry_len) == Ok(from))
        {
            let found = "zeros, behind a full file or as the only one";
            self.cx.findings.add(Code::QueueFileEmpty, &file.path, Some(0), "an entry", found);
        }
    }

    fn add(&self, code: impl Into<Graded>, position: i64, expected: String, found: String) {
        self.queue.report(self.cx, code, position, expected, found);
    }
}

pub(crate) fn check_entries(
    cx: &Context<'_>,
    queue: &Queue,
    log: &FileRun,
    walked: &Walked,
) -> Result<()> {
    let mut buffer = Vec::new();
    let mut check = |(position, entry): (i64, Option<CqUnit>)| {
        let is_plain = queue.kind() == QueueKind::Plain;
        let is_entry = |unit: &CqUnit| unit.is_valid() && !(is_plain && unit.is_pre_blank());
        let Some(unit) = entry.filter(is_entry) else { return Ok(()) };
        let Ok(at) = u64::try_from(unit.physical_offset) else { return Ok(()) };
        let is_behind = is_plain && position >= queue.end;
        if is_behind || at < walked.log_start || walked.is_damaged(at) {
            return Ok(());
        }
        let found = format!("entry {position} with physical offset {at}, size {}", unit.store_size);
        let wrong = if at >= walked.log_end {
            Some((Code::QueueNowhere, format!("an offset before {}", walked.log_end), found))
        } else {
            match probe(log, at, &mut buffer)? {
                // A missing file was reported.
                None if log.find(at).is_none() => None,
                None => Some((Code::QueueNowhere, "the beginning of a message".to_owned(), found)),
                Some((view, size)) => judge(queue, position, &unit, found, &view, size),
            }
        };
        let Some((code, expected, found)) = wrong else { return Ok(()) };
        // A crash may leave entries of messages that were not flushed.
        let unclean = at >= walked.log_end && cx.state != State::Closed;
        let code = if unclean { code.at(Severity::Warning) } else { code.into() };
        queue.report(cx, code, position, expected, found);
        Ok(())
    };
    each_block(cx, queue, |block| {
        (block.first..).zip((0..).map_while(|at| block.entry(at))).try_for_each(&mut check)
    })
}

fn is_of_queue(queue: &Queue, unit: &CqUnit, view: &MessageView<'_>) -> bool {
    match shift_of(view, queue.kind(), &queue.topic, queue.id, unit) {
        Some(0) => true,
        Some(shift) => {
            let shifted = *queue.shifted.lock();
            shifted.is_some_and(|(first, most, _)| first <= unit.number && shift <= most)
        }
        None => false,
    }
}

/// Compares an entry with the message, without its body, to which it leads.
fn judge(
    queue: &Queue,
    position: i64,
    unit: &CqUnit,
    found: String,
    view: &MessageView<'_>,
    size: u32,
) -> Option<(Code, String, String)> {
    let (kind, topic) = (queue.kind(), String::from_utf8_lossy(&queue.topic));
    let other = String::from_utf8_lossy(view.topic());
    let request = DispatchRequest::of(view);
    let range = request.range(kind);
    match kind {
        QueueKind::Plain if !is_of_queue(queue, unit, view) => {
            let (number, id) = (view.queue_offset(), view.queue_id());
            let found = format!("{found}, which is message {number} of queue {id} of {other}");
            let expected = format!("message {position} of queue {} of {topic}", queue.id);
            Some((Code::QueueOther, expected, found))
        }
        QueueKind::Batch if !is_of(queue, &request) => {
            let found = format!("{found}, of queue {} of {other}", request.queue_id);
            let expected = format!("a message of queue {} of {topic}", queue.id);
            Some((Code::QueueOther, expected, found))
        }
        _ if u32::try_from(unit.store_size) != Ok(size) => {
            Some((Code::QueueSize, format!("size {size}"), found))
        }
        QueueKind::Batch if !is_range(unit, range) => {
            let messages = |base: i64, count: i16| format!("{count} messages from {base} on");
            let found = messages(unit.number, unit.count);
            let expected = messages(range.base_queue_offset, range.message_count);
            Some((Code::BatchRange, expected, format!("entry {position} with {found}")))
        }
        _ => None,
    }
}

/// Bytes read at a time: the longest unit, and more usual ones.
const BLOCK: usize = 2 * MAX_UNIT_LEN;

pub(crate) fn read_extension(cx: &Context<'_>, run: &FileRun) -> Result<()> {
    let mut block = vec![0; BLOCK];
    for file in run.files().iter() {
        let Some(open) = run.open_if_there(file)? else { continue };
        let len = file.len.min(run.file_size());
        let (mut position, mut begins, mut filled) = (0_u64, 0_u64, 0_usize);
        while position < len && !cx.meter.is_cancelled() {
            let mut at = to_usize(position - begins);
            if at.saturating_add(MAX_UNIT_LEN) > filled {
                let room = to_usize(len - position).min(BLOCK);
                let bytes = block.get_mut(..room).unwrap_or_default();
                filled = open.read_at(bytes, position).map_err(Error::io("read", &file.path))?;
                (begins, at) = (position, 0);
            }
            let bytes = block.get(at..filled).unwrap_or_default();
            let wrong = match consume_queue_ext::read_unit(bytes) {
                Ok(ExtFrame::Unit(unit, size)) if unit.encoded_size() == size => {
                    position += size as u64;
                    continue;
                }
                Ok(ExtFrame::Unit(unit, size)) => (
                    position + 18,
                    format!("a bit map of {} bytes", size - MIN_UNIT_LEN),
                    format!("{}", unit.bitmap.len()),
                ),
                Ok(ExtFrame::End | ExtFrame::Empty) => break,
                Err(error) => (position + error.position as u64, error.expected, error.found),
            };
            let (offset, expected, found) = wrong;
            cx.findings.add(Code::ExtUnit, &file.path, Some(offset), expected, found);
            break;
        }
    }
    Ok(())
}

pub(crate) struct ExtCheck<'a> {
    cx: &'a Context<'a>,
    queue: Option<u32>,
    from: u64,
    block: Vec<u8>,
}

impl<'a> ExtCheck<'a> {
    pub(crate) const fn new(cx: &'a Context<'a>) -> Self {
        Self { cx, queue: None, from: 0, block: Vec::new() }
    }

    pub(crate) fn compare(
        &mut self,
        queue: &Queue,
        queue_number: u32,
        number: i64,
        address: i64,
        request: &DispatchRequest<'_>,
    ) -> Result<()> {
        let cx = self.cx;
        let offset =
            consume_queue_ext::offset_of(address).and_then(|offset| u64::try_from(offset).ok());
        let offset = offset.unwrap_or(u64::MAX);
        let expected = match &queue.ext {
            None => Some("no address, as there is no extension".to_owned()),
            Some(run) => {
                let bytes = self.bytes(queue_number, run, offset)?;
                match bytes.map(consume_queue_ext::read_unit) {
                    None => Some(format!("an address in {}", span(run))),
                    Some(Ok(ExtFrame::Unit(unit, _))) => {
                        // The broker sets the delays.
                        let code = match request.topic == SCHEDULE_TOPIC {
                            true => unit.tags_code,
                            false => tags_code(cx, request),
                        };
                        let time = request.store_timestamp_ms;
                        if (unit.tags_code, unit.store_timestamp_ms) != (code, time) {
                            let found = format!(
                                "tags code {}, time {}, where entry {number} leads",
                                unit.tags_code, unit.store_timestamp_ms
                            );
                            let expected = format!("tags code {code}, time {time}");
                            cx.report(run, Code::ExtTags, offset, expected, found);
                        }
                        None
                    }
                    Some(_) => Some("the address of a unit".to_owned()),
                }
            }
        };
        if let Some(expected) = expected {
            let found = format!("entry {number} with address {offset}");
            queue.report(cx, Code::ExtAddress, number, expected, found);
        }
        Ok(())
    }

    fn bytes(&mut self, queue: u32, run: &FileRun, offset: u64) -> Result<Option<&[u8]>> {
        let Some(file) = run.find(offset) else { return Ok(None) };
        let end = file.base_offset.saturating_add(file.len.min(run.file_size()));
        let needed = to_usize(end.saturating_sub(offset));
        let needed = needed.min(MAX_UNIT_LEN);
        let skip = offset.checked_sub(self.from).and_then(|skip| usize::try_from(skip).ok());
        let there = skip.and_then(|skip| self.block.get(skip..)).map_or(0, <[u8]>::len);
        if self.queue != Some(queue) || there < needed {
            let room = to_usize(end.saturating_sub(offset));
            self.block.resize(room.min(BLOCK), 0);
            let read = run.read_at(&mut self.block, offset)?;
            self.block.truncate(read);
            (self.queue, self.from) = (Some(queue), offset);
        }
        let skip = to_usize(offset - self.from);
        Ok(self.block.get(skip..))
    }
}

fn span(run: &FileRun) -> String {
    let (from, to) = (run.min_offset().unwrap_or(0), run.end_offset().unwrap_or(0));
    format!("the extension, {from} to {to}")
}
