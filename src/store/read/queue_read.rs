//! Reads a queue from an offset on (`DefaultMessageStore.getMessage`).

use super::entry_search::{EntrySearch, NextMessage};
use super::view::queue_view::QueueView;
use crate::config::TransferLimits;
use crate::error::{Result, named};
use crate::format::message::MessageView;
use crate::format::message::properties::names;
pub use crate::format::message::read_whole as view_of;
use crate::format::queue::consume_queue;
use crate::format::queue::consume_queue::{SCHEDULE_TOPIC, TagFilter};
use crate::format::width::{clamp_u64, offset_or_max, to_usize};
use crate::log::commit_log::Found;
use crate::log::queue::CqUnit;
use crate::log::queue::consume_queue_ext::TagsCode;
use crate::log::queue::verified_tags::VerifiedBlock;
use crate::log::{CommitLog, QueueKind};
use crate::store::progress::{ASK_EVERY, Halt};
use crate::time::is_far_outside;

named! {
    /// Status of a read (`GetMessageStatus`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum GetStatus {
        /// At least one message was taken.
        Found = "FOUND",
        /// No examined message matches.
        NoMatchedMessage = "NO_MATCHED_MESSAGE",
        /// The examined messages are deleted.
        MessageWasRemoving = "MESSAGE_WAS_REMOVING",
        /// Offset inside the queue without an entry.
        OffsetFoundNull = "OFFSET_FOUND_NULL",
        /// Far behind the queue's end.
        OffsetOverflowBadly = "OFFSET_OVERFLOW_BADLY",
        /// At the queue's end: the next message's offset.
        OffsetOverflowOne = "OFFSET_OVERFLOW_ONE",
        /// Before the queue's first message.
        OffsetTooSmall = "OFFSET_TOO_SMALL",
        /// No such queue.
        NoMatchedLogicQueue = "NO_MATCHED_LOGIC_QUEUE",
        /// The queue never had a message.
        NoMessageInQueue = "NO_MESSAGE_IN_QUEUE",
    }
}

/// Result of a read.
#[derive(Clone, Debug)]
pub struct ReadResult {
    /// Status.
    pub status: GetStatus,
    /// Records.
    pub records: Vec<Box<[u8]>>,
    /// Queue offset behind each record.
    pub ends: Vec<i64>,
    /// Next offset to read.
    pub next_queue_offset: i64,
    /// The queue's first offset.
    pub min_queue_offset: i64,
    /// The queue's end.
    pub max_queue_offset: i64,
}

#[derive(Clone, Debug)]
pub struct ReadRequest<'a> {
    pub topic: &'a [u8],
    pub queue_id: i32,
    pub queue_offset: i64,
    /// Maximum messages, counting those in batches; the first record is always taken.
    pub max_messages: usize,
    /// Maximum bytes of records; the first record is always taken.
    pub max_bytes: Option<u64>,
    pub filter: &'a TagFilter,
    /// RocketMQ's limits, if enabled, and the memory in bytes that they assume.
    pub limits: Option<(&'a TransferLimits, u64)>,
    /// Returns early with the messages so far.
    pub halt: &'a Halt,
}

/// Reads a queue.
///
/// # Errors
/// [`crate::Error::Corrupt`] if the first message has a wrong checksum, or has no entry
/// and the log is damaged at its place; [`crate::Error::Io`].
pub fn read(
    log: &CommitLog,
    view: Option<&QueueView>,
    request: &ReadRequest<'_>,
) -> Result<ReadResult> {
    let (min, max) = view.map_or((0, 0), |view| (view.min_offset, view.max_offset));
    let answer = |status, next| ReadResult {
        status,
        records: Vec::new(),
        ends: Vec::new(),
        next_queue_offset: next,
        min_queue_offset: min,
        max_queue_offset: max,
    };
    let offset = request.queue_offset;
    let Some(view) = view.filter(|_| max > 0) else {
        return Ok(answer(GetStatus::NoMessageInQueue, 0));
    };
    if offset < min {
        return Ok(answer(GetStatus::OffsetTooSmall, min));
    }
    if offset == max {
        return Ok(answer(GetStatus::OffsetOverflowOne, offset));
    }
    if offset > max {
        return Ok(answer(GetStatus::OffsetOverflowBadly, max));
    }
    let mut taken = QueueRead {
        log,
        view,
        request,
        records: Vec::new(),
        ends: Vec::new(),
        count: 0,
        bytes: 0,
        next: offset,
        end: None,
        shift: 0,
        seen: None,
        last_was_gone: false,
        nothing_there: false,
    };
    let ran = taken.run();
    taken.keep_verified();
    ran?;
    let status = if !taken.records.is_empty() {
        GetStatus::Found
    } else if taken.nothing_there {
        GetStatus::OffsetFoundNull
    } else if taken.last_was_gone {
        GetStatus::MessageWasRemoving
    } else {
        GetStatus::NoMatchedMessage
    };
    let mut next = taken.next;
    if taken.nothing_there {
        // Skips a listed file that was deleted.
        next = next.max(view.first_listed());
    }
    Ok(ReadResult { records: taken.records, ends: taken.ends, ..answer(status, next) })
}

const BLOCK: usize = 256;
const ENTRY_COST: u64 = 256;
/// Most bytes of a log fetched for the records of one block of entries.
const MOST_ANNOUNCED: u64 = 4 << 20;

struct QueueRead<'a> {
    log: &'a CommitLog,
    view: &'a QueueView,
    request: &'a ReadRequest<'a>,
    records: Vec<Box<[u8]>>,
    ends: Vec<i64>,
    count: usize,
    bytes: u64,
    next: i64,
    /// End of the last record that an entry led to, and how far its number was behind the entry.
    end: Option<u64>,
    shift: i64,
    /// Checked entries of the current block, and whether more were checked since.
    seen: Option<(i64, VerifiedBlock, bool)>,
    last_was_gone: bool,
    nothing_there: bool,
}

impl<'a> QueueRead<'a> {
    fn run(&mut self) -> Result<()> {
        let entry_len = self.view.kind.entry_len() as u64;
        let most_offsets = self.request.limits.map(|(limits, _)| {
            let by_size = i64::try_from(limits.max_filter_message_size / entry_len);
            let by_count = i64::try_from(self.request.max_messages);
            by_size.unwrap_or(i64::MAX).max(by_count.unwrap_or(i64::MAX))
        });
        let mut buffer = Vec::new();
        let mut examined = 0_usize;
        let mut unasked = 0_u64;
        let mut left_in_file = None;
        // Without a filter each entry gives a message; some more show where the log begins.
        let block = match self.request.filter.is_all() {
            true => self.request.max_messages.saturating_mul(2).clamp(16, BLOCK),
            false => BLOCK,
        };
        loop {
            let mut want = block;
            if self.request.limits.is_some() {
                // At most the rest of one queue file (`travelCqFileNumWhenGetMessage`).
                let left = match left_in_file {
                    Some(0) => return Ok(()),
                    Some(left) => left,
                    None => self.view.units_to_file_end(self.next)?,
                };
                want = want.min(left);
                left_in_file = Some(left - want);
            }
            let before = self.next;
            let units = self.view.units(self.next, want)?;
            if units.is_empty()
                && (self.next >= self.view.max_offset || self.next < self.view.first_listed())
            {
                self.nothing_there = examined == 0;
                return Ok(());
            }
            if self.log.run().storage().is_remote() && self.request.filter.is_all() {
                self.announce(&units);
            }
            let is_over = |next: i64| {
                let ahead = next.saturating_sub(self.request.queue_offset);
                most_offsets.is_some_and(|most| ahead >= most)
            };
            for (place, unit) in units.iter().enumerate() {
                if unit.end() <= self.next {
                    continue;
                }
                // Missing or misnumbered entries.
                while self.next < unit.number && !is_over(self.next) {
                    examined += 1;
                    if !self.or_stop(|taken| taken.fill())? {
                        return Ok(());
                    }
                }
                if unit.end() <= self.next {
                    continue;
                }
                let size = clamp_u64(unit.store_size);
                unasked = unasked.saturating_add(size).saturating_add(ENTRY_COST);
                if unasked >= ASK_EVERY {
                    unasked = 0;
                    if self.request.halt.is_wanted() {
                        return Ok(());
                    }
                }
                if is_over(unit.number) || self.is_full(unit) {
                    return Ok(());
                }
                examined += 1;
                let following = units.get(place + 1);
                if !self.or_stop(|taken| taken.take(unit, following, &mut buffer))? {
                    return Ok(());
                }
            }
            if self.next == before {
                examined += 1;
                if self.next >= self.view.max_offset
                    || is_over(self.next)
                    || !self.or_stop(|taken| taken.fill())?
                {
                    return Ok(());
                }
            }
        }
    }

    fn announce(&self, units: &[CqUnit]) {
        let mut left = self.request.max_bytes.unwrap_or(MOST_ANNOUNCED).min(MOST_ANNOUNCED);
        let units = units.iter().take(self.request.max_messages).filter(|unit| unit.leads());
        let places = units.map_while(|unit| {
            let size = clamp_u64(unit.store_size);
            left = left.checked_sub(size)?;
            Some((offset_or_max(unit.physical_offset), to_usize(size)))
        });
        self.log.run().will_read(&places.collect::<Vec<_>>());
    }

    /// Runs one step; returns whether there is room for more. Records before an error are returned:
    /// the next read begins with the error.
    fn or_stop(&mut self, step: impl FnOnce(&mut Self) -> Result<bool>) -> Result<bool> {
        let before = self.next;
        match step(self) {
            Err(_) if !self.records.is_empty() => {
                self.next = before;
                Ok(false)
            }
            other => other,
        }
    }

    fn take(
        &mut self,
        unit: &CqUnit,
        following: Option<&CqUnit>,
        buffer: &mut Vec<u8>,
    ) -> Result<bool> {
        let filter = self.request.filter;
        let mut left_out = None;
        // An unreadable code passes every filter.
        if !filter.is_all()
            && let TagsCode::Known(code) = self.view.resolve(unit.tags_code)?
            && !filter.matches_code(code)
        {
            // The code was compared with the message once.
            if self.request.topic == SCHEDULE_TOPIC || self.is_verified(unit, code) {
                self.last_was_gone = false;
                self.next = unit.end();
                return Ok(true);
            }
            left_out = Some(code);
        }
        let at = offset_or_max(unit.physical_offset);
        let size = clamp_u64(unit.store_size);
        let hint = to_usize(size);
        let size_hint = if size > 1 << 26 { 0 } else { hint };
        let Found::Message(view) = self.log.read(at, size_hint, buffer)? else {
            // Two consecutive entries before the log show that it begins behind them.
            let limit = self.log.min_offset();
            let is_before =
                |unit: &CqUnit| u64::try_from(unit.physical_offset).is_ok_and(|at| at < limit);
            if is_before(unit) && following.is_some_and(is_before) {
                self.last_was_gone = true;
                self.next = unit.end();
                return Ok(true);
            }
            return self.fill();
        };
        let shift = self.search().shift_of(&view, unit);
        let Some(shift) = shift.filter(|_| u64::from(view.store_size()) == size) else {
            return self.fill();
        };
        let is_known = shift == 0 || shift == self.shift && self.end.is_some_and(|end| end <= at);
        if !is_known && !self.search().is_shift(unit, shift)? {
            return self.fill();
        }
        self.shift = shift;
        if let Some(code) = left_out
            && consume_queue::tags_code(view.property(names::TAGS)) == code
        {
            self.add_verified(unit, code);
        }
        self.emit(unit, &view)
    }

    fn emit(&mut self, unit: &CqUnit, view: &MessageView<'_>) -> Result<bool> {
        self.end = Some(clamp_u64(unit.physical_end()));
        self.next = unit.end();
        self.last_was_gone = false;
        let filter = self.request.filter;
        if !filter.is_all() && !filter.matches_tags(view.property(names::TAGS)) {
            return Ok(true);
        }
        self.log.check_body(view)?;
        self.bytes += u64::from(view.store_size());
        self.count += messages_of(unit.count);
        self.records.push(view.as_bytes().into());
        self.ends.push(unit.end());
        Ok(true)
    }

    fn search(&self) -> EntrySearch<'a> {
        let (topic, queue_id) = (self.request.topic, self.request.queue_id);
        EntrySearch { log: self.log, view: self.view, topic, queue_id }
    }

    /// Takes the next message from the log, if its entry does not lead to it.
    #[cold]
    fn fill(&mut self) -> Result<bool> {
        match self.search().seek(self.next, self.end, self.shift)? {
            NextMessage::Record(unit, record) => {
                let Some(view) = view_of(&record) else { return Ok(true) };
                if self.is_full(&unit) { Ok(false) } else { self.emit(&unit, &view) }
            }
            NextMessage::Nothing(next) => {
                self.last_was_gone = true;
                self.next = next;
                Ok(true)
            }
        }
    }

    fn is_verified(&mut self, unit: &CqUnit, code: i64) -> bool {
        let first = VerifiedBlock::first(unit.number);
        if self.seen.as_ref().is_none_or(|(known, ..)| *known != first) {
            self.keep_verified();
            self.seen = self.view.verified_tags().map(|tags| (first, tags.get(first), false));
        }
        self.seen.as_ref().is_none_or(|(_, seen, _)| seen.has(unit, code))
    }

    fn add_verified(&mut self, unit: &CqUnit, code: i64) {
        if let Some((_, seen, is_new)) = &mut self.seen {
            seen.add(unit, code);
            *is_new = true;
        }
    }

    fn keep_verified(&mut self) {
        if let (Some((first, seen, true)), Some(tags)) =
            (self.seen.take(), self.view.verified_tags())
        {
            tags.put(first, seen);
        }
    }

    /// `DefaultMessageStore.isTheBatchFull`.
    fn is_full(&self, unit: &CqUnit) -> bool {
        if self.records.is_empty() {
            return false;
        }
        let count = self.count;
        let bytes = self.bytes + clamp_u64(unit.store_size);
        if count + messages_of(unit.count) > self.request.max_messages {
            return true;
        }
        let Some((limits, memory)) = self.request.limits else {
            return self.request.max_bytes.is_some_and(|most| bytes > most);
        };
        let most = self.request.max_bytes.unwrap_or(u64::MAX).clamp(100, 134_217_728);
        if bytes > most {
            return true;
        }
        let behind = self.log.end_offset().saturating_sub(clamp_u64(unit.physical_offset));
        let recent = behind <= memory / 100 * limits.access_message_in_memory_max_ratio;
        let (most_bytes, most_count) = if recent {
            (
                limits.max_transfer_bytes_on_message_in_memory,
                limits.max_transfer_count_on_message_in_memory,
            )
        } else {
            (
                limits.max_transfer_bytes_on_message_in_disk,
                limits.max_transfer_count_on_message_in_disk,
            )
        };
        bytes > most_bytes || count as u64 >= most_count
    }
}

fn messages_of(count: i16) -> usize {
    if count < 0 { 1 } else { to_usize(clamp_u64(count)) }
}

/// Choice among messages around a time (`org.apache.rocketmq.common.BoundaryType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// First message at or after it; if all are earlier the queue's end, or in a batch queue the
    /// last batch.
    Lower,
    /// Last message at or before it; the first if all are later.
    Upper,
}

/// Queue offset for `timestamp_ms`; 0 for a queue that never had a message. Assumes rising store
/// times; an outlier among its neighbours is ignored.
pub fn offset_at(
    log: &CommitLog,
    view: Option<&QueueView>,
    timestamp_ms: i64,
    boundary: Boundary,
) -> Result<i64> {
    let Some(view) = view.filter(|view| view.max_offset > 0) else { return Ok(0) };
    let (min, max) = (view.min_offset, view.max_offset);
    // First entry at or after the time, or after it.
    let (mut low, mut high) = (min, max);
    // Times found on both sides so far.
    let mut known = (None, None);
    while low < high {
        let middle = low + (high - low) / 2;
        let time = counting_at(log, view, middle, boundary, known)?;
        let before = match time {
            Some(time) => match boundary {
                Boundary::Lower => time < timestamp_ms,
                Boundary::Upper => time <= timestamp_ms,
            },
            // Deleted messages are older than the rest.
            None => true,
        };
        if before {
            low = middle + 1;
            known.0 = time;
        } else {
            high = middle;
            known.1 = time;
        }
    }
    let found = match boundary {
        // Behind the last batch RocketMQ returns that batch.
        Boundary::Lower if low == max && view.kind == QueueKind::Batch => (max - 1).max(min),
        Boundary::Lower => return Ok(low),
        Boundary::Upper => (low - 1).max(min),
    };
    // A batch has one store time, so its first message counts.
    match view.kind {
        QueueKind::Plain => Ok(found),
        QueueKind::Batch => Ok(view.unit(found)?.map_or(found, |unit| unit.number)),
    }
}

/// Store time used at `number`: its own, or for an outlier the neighbour's time that excludes it as
/// the result. A time between those in `known` is no outlier.
fn counting_at(
    log: &CommitLog,
    view: &QueueView,
    number: i64,
    boundary: Boundary,
    known: (Option<i64>, Option<i64>),
) -> Result<Option<i64>> {
    let Some(time) = stored_at(log, view, number)? else { return Ok(None) };
    if let (Some(low), Some(high)) = known
        && (low..=high).contains(&time)
    {
        return Ok(Some(time));
    }
    let before = stored_at(log, view, number.saturating_sub(1))?;
    let after = stored_at(log, view, number.saturating_add(1))?;
    match (before, after) {
        (Some(before), Some(after)) if is_far_outside(before, time, after) => match boundary {
            Boundary::Lower => Ok(Some(before)),
            Boundary::Upper => Ok(Some(after)),
        },
        _ => Ok(Some(time)),
    }
}

/// Store time of a message, `None` if unreadable.
pub fn stored_at(log: &CommitLog, view: &QueueView, number: i64) -> Result<Option<i64>> {
    match view.unit(number)?.and_then(|unit| unit.place()) {
        Some((at, size)) => log.store_timestamp_ms(at, to_usize(size)),
        None => Ok(None),
    }
}
