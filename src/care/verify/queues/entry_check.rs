//! Checks the entries of a queue by themselves, and with the log where the walk left some unmatched.

use super::report::{is_of, is_range};
use super::{Entries, Met, Queue, each_block, each_entry};
use crate::care::finding::{Code, Severity};
use crate::care::verify::context::{Context, State, Walked};
use crate::error::Result;
use crate::files::FileRun;
use crate::format::message::MessageView;
use crate::format::width::at_most_i64;
use crate::log::read::frames::probe;
use crate::log::{CqUnit, QueueKind};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::read::entry_search::shift_of;

/// Reads a queue: first and last numbers, valid entries, and faults by itself.
pub(in crate::care::verify) fn read(
    cx: &Context<'_>,
    queue: &mut Queue,
    log_start: u64,
) -> Result<u64> {
    let is_plain = queue.kind() == QueueKind::Plain;
    let mut structure = Structure {
        cx,
        queue,
        is_plain,
        log_start: at_most_i64(log_start),
        count: 0,
        live: 0,
        first: None,
        end: None,
        last: None,
        empty: None,
        blanks: None,
    };
    each_block(cx, queue, |first, entries| {
        structure.take_block(first, entries);
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
    fn take_block(&mut self, first: i64, entries: &Entries) {
        if entries.units.is_empty() {
            self.take(first, &Met::Empty);
        }
        let mut at = 0;
        loop {
            at += self.pass_usual(entries.units.get(at..).unwrap_or_default());
            let Some(met) = entries.met_at(at) else { return };
            self.take(first + at as i64, &met); // of a block
            at += 1;
        }
    }

    /// Fast path: takes entries while each leads behind its predecessor; returns their number.
    #[inline]
    fn pass_usual(&mut self, units: &[CqUnit]) -> usize {
        let (Some(mut last), None, None) = (self.last, self.empty, self.blanks) else { return 0 };
        let (mut passed, mut live) = (0, 0);
        for unit in units.iter().take_while(|_| self.is_plain) {
            if unit.store_size <= 0 || unit.physical_offset <= last.physical_offset {
                break;
            }
            last = *unit;
            live += u64::from(last.physical_offset >= self.log_start);
            passed += 1;
        }
        if passed > 0 {
            self.count += passed as u64;
            self.live += live;
            self.end = Some(last.end());
            self.last = Some(last);
        }
        passed
    }

    fn take(&mut self, place: i64, met: &Met) {
        if self.is_plain {
            self.first.get_or_insert(place);
        }
        let unit = match met {
            Met::Empty => {
                self.empty.get_or_insert(place);
                return;
            }
            Met::Blank if self.last.is_none() => return,
            Met::Blank => {
                self.blanks.get_or_insert(place);
                self.end = Some(place.saturating_add(1));
                return;
            }
            Met::Entry(unit) | Met::Impossible(unit) => unit,
        };
        if let Some(from) = self.empty.take() {
            let found = format!("zeros up to entry {place}, which is there");
            self.add(Code::QueueHole, Severity::Error, from, format!("entry {from}"), found);
        }
        if let Some(from) = self.blanks.take() {
            let found = format!("fillers up to entry {place}");
            self.add(Code::QueueBlank, Severity::Warning, from, format!("entry {from}"), found);
        }
        if self.is_plain {
            self.end = Some(unit.end());
        }
        let CqUnit { number, count, physical_offset, store_size, .. } = *unit;
        if let Met::Impossible(_) = met {
            let mut found =
                format!("entry {place} with offset {physical_offset}, size {store_size}");
            let mut expected = "an offset of 0 or more, a size above 0";
            if !self.is_plain {
                expected = "an offset and a number of 0 or more, a size and a count above 0";
                found += &format!(", {count} messages from {number} on");
            }
            self.add(Code::QueueNowhere, Severity::Error, place, expected.to_owned(), found);
            return;
        }
        self.count += 1;
        self.live += u64::from(physical_offset >= self.log_start);
        if let Some(before) = self.last {
            if physical_offset <= before.physical_offset {
                let expected = format!("an offset behind {}", before.physical_offset);
                let found = format!("entry {place} with offset {physical_offset}");
                self.add(Code::QueueOrder, Severity::Error, place, expected, found);
            }
            if !self.is_plain && number != before.end() {
                // Missing numbers may be of lost messages.
                let gap = number > before.end();
                let severity = if gap { Severity::Warning } else { Severity::Error };
                let expected = format!("messages from {} on", before.end());
                let found = format!("entry {place} with those from {number}");
                self.add(Code::BatchNumbers, severity, place, expected, found);
            }
        }
        self.first.get_or_insert(number);
        self.end = Some(unit.end());
        self.last = Some(*unit);
    }

    fn finish(&self) {
        if let Some(from) = self.blanks {
            let found = "fillers up to the end".to_owned();
            self.add(Code::QueueBlank, Severity::Warning, from, format!("entry {from}"), found);
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
            let (code, severity) = (Code::QueueFileEmpty, Severity::Error);
            let found = "zeros, behind a full file or as the only one";
            self.cx.findings.add(code, severity, &file.path, Some(0), "an entry", found);
        }
    }

    fn add(&self, code: Code, severity: Severity, place: i64, expected: String, found: String) {
        let (path, offset) = self.queue.spot(place);
        self.cx.findings.add(code, severity, &path, Some(offset), expected, found);
    }
}

/// Checks whether each entry before the queue's end leads to its message.
pub(in crate::care::verify) fn check_entries(
    cx: &Context<'_>,
    queue: &Queue,
    log: &FileRun,
    walked: &Walked,
) -> Result<()> {
    let mut buffer = Vec::new();
    each_entry(cx, queue, |place, met| {
        let Met::Entry(unit) = met else { return Ok(()) };
        let Ok(at) = u64::try_from(unit.physical_offset) else { return Ok(()) };
        let is_behind = queue.kind() == QueueKind::Plain && place >= queue.end;
        if is_behind || at < walked.log_start || walked.is_damaged(at) {
            return Ok(());
        }
        let found = format!("entry {place} with physical offset {at}, size {}", unit.store_size);
        let wrong = if at >= walked.log_end {
            Some((Code::QueueNowhere, format!("an offset before {}", walked.log_end), found))
        } else {
            match probe(log, at, &mut buffer)? {
                // A missing file was reported.
                None if log.find(at).is_none() => None,
                None => Some((Code::QueueNowhere, "the beginning of a message".to_owned(), found)),
                Some((view, size)) => judge(queue, place, unit, found, &view, size),
            }
        };
        let Some((code, expected, found)) = wrong else { return Ok(()) };
        let (path, offset) = queue.spot(place);
        // A crash may leave entries of messages that were not flushed.
        let unclean = at >= walked.log_end && cx.state != State::Closed;
        let severity = if unclean { Severity::Warning } else { Severity::Error };
        cx.findings.add(code, severity, &path, Some(offset), expected, found);
        Ok(())
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
    place: i64,
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
            let expected = format!("message {place} of queue {} of {topic}", queue.id);
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
            Some((Code::BatchRange, expected, format!("entry {place} with {found}")))
        }
        _ => None,
    }
}
