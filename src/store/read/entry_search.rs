//! Compares queue entries with the log: whether an entry leads to its message, and the search for a
//! message whose entry does not.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::format::message::sys_flag::{Transaction, transaction};
use crate::format::message::{MessageView, read_whole};
use crate::format::queue::batch::InnerRange;
use crate::format::queue::consume_queue::{DelayLevels, MOST_NUMBER};
use crate::format::width::{offset_or_max, saturating_i64, to_usize};
use crate::log::commit_log::Found;
use crate::log::queue::CqUnit;
use crate::log::read::damage::zeros;
use crate::log::read::scanner::{Flow, Item, Resync, Scanner};
use crate::log::{CommitLog, Queue, QueueKind};

use super::view::queue_view::QueueView;
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;

const MOST_SOUGHT_BYTES: u64 = 256 << 20;
/// Bytes read at the log's beginning for a queue's first message.
const MOST_BEFORE: u64 = 16 << 20;
/// Entries around a wrong one that bound the search.
const NEIGHBOURS: i64 = 64;
/// Queues examined for the end of their last record.
const ASKED: usize = 8;
const MOST_BEHIND: usize = 64 << 20;

#[derive(Clone, Copy, Debug)]
pub struct EntrySearch<'a> {
    pub log: &'a CommitLog,
    pub view: &'a QueueView,
    pub topic: &'a [u8],
    pub queue_id: i32,
}

#[derive(Debug)]
pub enum NextMessage {
    Record(CqUnit, Box<[u8]>),
    Nothing(i64),
}

impl EntrySearch<'_> {
    /// Whether an entry leads to its record; returns the record's end.
    pub fn end_of(&self, unit: &CqUnit, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        Ok(match self.shift_at(unit, buffer)? {
            Some((shift, end)) => self.is_shift(unit, shift)?.then_some(end),
            None => None,
        })
    }

    fn shift_at(&self, unit: &CqUnit, buffer: &mut Vec<u8>) -> Result<Option<(i64, u64)>> {
        let Some((at, size)) = unit.place() else { return Ok(None) };
        let Found::Message(view) = self.log.read(at, 0, buffer)? else { return Ok(None) };
        let shift = self.shift_of(&view, unit).filter(|_| view.store_size() == size);
        Ok(shift.map(|shift| (shift, at.saturating_add(u64::from(size)))))
    }

    pub fn shift_of(&self, view: &MessageView<'_>, unit: &CqUnit) -> Option<i64> {
        shift_of(view, self.view.kind, self.topic, self.queue_id, unit)
    }

    /// Whether RocketMQ appended an entry so many places before its record's number: the nearest
    /// valid entry before has that shift, too, or as many messages as entries lie in between.
    pub fn is_shift(&self, unit: &CqUnit, shift: i64) -> Result<bool> {
        if shift == 0 {
            return Ok(true);
        }
        let from = unit.number.saturating_sub(NEIGHBOURS).max(0);
        let before = self.view.units(from, NEIGHBOURS as usize)?;
        let (mut start, mut first) = (self.log.min_offset(), unit.number);
        for before in before.iter().rev().filter(|before| before.number < unit.number) {
            match self.shift_at(before, &mut Vec::new())? {
                Some(_) if before.physical_offset >= unit.physical_offset => return Ok(false),
                Some((known, _)) if known == shift => return Ok(true),
                Some((_, end)) => {
                    (start, first) = (end, before.end());
                    break;
                }
                None => {}
            }
        }
        let mut missing = unit.number.saturating_sub(first);
        let walked = self.walk(start, offset_or_max(unit.physical_offset), |view| {
            let range = self.range_in(view, first);
            missing -= range.map_or(0, |range| i64::from(range.message_count));
            missing >= 0
        });
        let is_next = missing == 0;
        match walked {
            // The log is too long to search.
            Err(Error::Corrupt(_)) => Ok(false),
            walked => walked.map(|_| is_next),
        }
    }

    /// [`EntrySearch::end_of`] for an entry behind the log's known end.
    fn leads_past_end(&self, unit: &CqUnit) -> Result<bool> {
        let Some((at, size)) = unit.place() else { return Ok(false) };
        let mut record = vec![0; to_usize(size).min(MOST_BEHIND)];
        let read = self.log.run().read_at(&mut record, at)?;
        Ok(record.get(..read).and_then(read_whole).is_some_and(|view| {
            view.physical_offset() == unit.physical_offset
                && view.store_size() == size
                && self.shift_of(&view, unit) == Some(0)
        }))
    }

    fn range_in(&self, view: &MessageView<'_>, number: i64) -> Option<InnerRange> {
        let is_own = view.topic() == self.topic && view.queue_id() == self.queue_id;
        if !is_own && self.queue_id != 0 && view.queue_id() != self.queue_id {
            return None;
        }
        let request = DispatchRequest::of(view);
        if !request.is_queued() {
            return None;
        }
        let own = is_own.then(|| request.range(self.view.kind));
        let beside = lmq::pairs(&request)
            .filter(|(name, id, _)| (*name, *id) == (self.topic, self.queue_id))
            .map(|(_, _, number)| InnerRange { base_queue_offset: number, message_count: 1 });
        own.into_iter().chain(beside).find(|range| {
            let end = range.base_queue_offset.saturating_add(i64::from(range.message_count));
            (0..=MOST_NUMBER).contains(&range.base_queue_offset) && end > number
        })
    }

    /// Searches the log for the first message at or behind `number`, between the valid entries
    /// around it; `from` is a record's end before it, `shift` the one of entries there.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the log is damaged before that message or too long to search;
    /// [`Error::Io`].
    pub fn seek(&self, number: i64, from: Option<u64>, mut shift: i64) -> Result<NextMessage> {
        let mut buffer = Vec::new();
        let mut start = from.unwrap_or(0).max(self.log.min_offset());
        if let Some((known, end)) = self.valid_before(number, &mut buffer)? {
            (start, shift) = (start.max(end), known);
        }
        let (mut stop, mut next) = (self.log.end_offset(), self.view.max_offset);
        let mut next_shift = shift;
        let first_behind = number.saturating_add(1).max(self.view.first_listed());
        for unit in self.view.units(first_behind, NEIGHBOURS as usize)? {
            if unit.number > number
                && let Some((known, _)) = self.shift_at(&unit, &mut buffer)?
                && self.is_shift(&unit, known)?
            {
                next_shift = known;
                if let Ok(at) = u64::try_from(unit.physical_offset) {
                    stop = at;
                }
                next = unit.number;
                break;
            }
        }
        let mut found = None;
        let damage = self.walk(start, stop, |view| {
            let Some(mut range) = self.range_in(view, number) else { return true };
            let base = range.base_queue_offset;
            let shifted = |by: i64| if by > 0 { base.saturating_sub(by).max(number) } else { base };
            range.base_queue_offset = shifted(shift);
            // The shift of the entry behind may begin here.
            if range.base_queue_offset >= next {
                range.base_queue_offset = shifted(next_shift);
            }
            // A number of another message, or beyond the queue, does not match.
            if range.base_queue_offset >= next {
                return true;
            }
            let unit = DispatchRequest::of(view).unit(range, &DelayLevels::default());
            found = Some((unit, Box::from(view.as_bytes())));
            false
        })?;
        match (found, damage) {
            (Some((unit, record)), damage) if damage.is_none() || unit.holds(number) => {
                Ok(NextMessage::Record(unit, record))
            }
            // It may lie in the damage.
            (_, Some(damage)) => Err(Error::Corrupt(Box::new(damage))),
            (_, None) => Ok(NextMessage::Nothing(next.max(number.saturating_add(1)))),
        }
    }

    /// Passes records that begin in `start..stop` to `take` until it returns `false`; returns the
    /// first damage.
    fn walk(
        &self,
        start: u64,
        stop: u64,
        mut take: impl FnMut(&MessageView<'_>) -> bool,
    ) -> Result<Option<Corruption>> {
        let mut scanner = Scanner::new(self.log, start, self.log.end_offset(), false);
        let mut damage = None;
        let mut has_enough = false;
        let ended = scanner.each(self.log, stop, Resync::Anywhere, |range, item| {
            if range.start.saturating_sub(start) > MOST_SOUGHT_BYTES {
                return Err(self.too_far(start, stop));
            }
            match item {
                Item::Record(view, _) => has_enough = !take(view),
                Item::Blank => {}
                Item::Damage(found) => {
                    damage.get_or_insert(found.corruption);
                }
            }
            Ok(if has_enough { Flow::Stop } else { Flow::Continue })
        })?;
        if ended.is_some() && damage.is_none() {
            damage = Some(zeros(self.log, scanner.position()));
        }
        Ok(damage)
    }

    /// First queue offset of a log that begins at `log_start`. The entry before may be damaged and
    /// seem to lead to a deleted message.
    pub fn first(&self, queue: &Queue, log_start: u64) -> Result<i64> {
        let first = queue.min_offset();
        // A batch entry states its number.
        if first == 0 || (log_start == 0 && self.view.kind == QueueKind::Plain) {
            return Ok(first);
        }
        let before = queue.verified_tags().first_in(log_start, || self.before(queue, log_start))?;
        Ok(first.min(before))
    }

    fn before(&self, queue: &Queue, log_start: u64) -> Result<i64> {
        let first = queue.min_offset();
        let mut stop = log_start.saturating_add(MOST_BEFORE).min(self.log.end_offset());
        if let Some(unit) = queue.unit(first)?
            && self.end_of(&unit, &mut Vec::new())?.is_some()
        {
            stop = stop.min(offset_or_max(unit.physical_offset).saturating_add(1));
        }
        let mut found = i64::MAX;
        self.walk(log_start, stop, |view| match self.range_in(view, -1) {
            Some(range) => {
                found = range.base_queue_offset;
                false
            }
            None => true,
        })?;
        Ok(found)
    }

    /// The queue's end by the log, which may be earlier than the queue's. Entries from `known_from`
    /// on were already compared.
    pub fn end(&self, queue: &Queue, known_from: u64) -> Result<i64> {
        let mut buffer = Vec::new();
        if queue.max_offset() == 0 {
            return Ok(0);
        }
        let unit = |number| queue.unit(number);
        if let Some(last) = queue.last()?
            && self.end_of(&last, &mut buffer)?.is_some()
        {
            return Ok(last.end());
        }
        let end = queue.first_at_or_behind(self.log.end_offset())?;
        let before = unit(end - 1)?;
        let start = before.map_or(Ok(None), |unit| self.end_of(&unit, &mut buffer))?;
        let next = unit(end)?;
        if start.is_some()
            && let Some(next) = next
            && self.leads_past_end(&next)?
        {
            return Ok(end);
        }
        // An entry behind the log's end, or one before it, may be damaged.
        let mut found = end;
        let start = match start {
            Some(start) => start,
            None => {
                self.valid_before(end, &mut buffer)?.map_or(self.log.min_offset(), |(_, end)| end)
            }
        };
        // A number may leave out as many others as a file holds.
        let in_file = queue.run().file_size() / queue.kind().entry_len() as u64;
        let in_file = saturating_i64(in_file);
        let walked = self.walk(start, known_from.min(self.log.end_offset()), |view| {
            let is_near = |range: &InnerRange| range.base_queue_offset - found <= in_file;
            if let Some(range) = self.range_in(view, found).filter(is_near) {
                found = range.base_queue_offset.saturating_add(i64::from(range.message_count));
            }
            true
        });
        match walked {
            // After a crash the last entries may lead to lost messages.
            Err(Error::Corrupt(_)) if !next.is_some_and(|next| self.is_far(&next)) => Ok(found),
            // A reader meets the damage itself.
            other => other.map(|_| found),
        }
    }

    fn is_far(&self, unit: &CqUnit) -> bool {
        let end = self.log.run().end_offset().unwrap_or(0);
        u64::try_from(unit.physical_offset).is_ok_and(|at| at >= end)
    }

    /// The nearest valid entry before `number`: its shift, and its record's end.
    fn valid_before(&self, number: i64, buffer: &mut Vec<u8>) -> Result<Option<(i64, u64)>> {
        let from = number.saturating_sub(NEIGHBOURS).max(0);
        let units = self.view.units(from, NEIGHBOURS as usize)?;
        for unit in units.iter().rev().filter(|unit| unit.end() <= number) {
            if let Some((shift, end)) = self.shift_at(unit, buffer)?
                && self.is_shift(unit, shift)?
            {
                return Ok(Some((shift, end)));
            }
        }
        Ok(None)
    }

    #[cold]
    fn too_far(&self, start: u64, stop: u64) -> Error {
        let path = self.view.path().unwrap_or_default();
        let expected = "an entry that leads to its message";
        let found = format!(
            "another one, and no such message within {MOST_SOUGHT_BYTES} bytes of the log between {start} \
             and {stop}; nothing was changed: run `mqstore rebuild`"
        );
        Error::corrupt(&path, 0, CorruptionKind::QueueEntry, expected, found)
    }
}

/// End of the last record that a queue entry leads to; `None` if the farthest entries lead to no
/// record of theirs.
pub fn end_of_queues(log: &CommitLog, queues: &[Arc<Queue>]) -> Result<Option<u64>> {
    let mut farthest: Vec<_> = queues.iter().filter(|queue| queue.reach() >= 0).collect();
    farthest.sort_by_key(|queue| Reverse(queue.reach()));
    let mut buffer = Vec::new();
    for queue in farthest.iter().take(ASKED) {
        let view = QueueView::whole(Arc::clone(queue));
        let (topic, queue_id) = (queue.topic(), queue.queue_id());
        let search = EntrySearch { log, view: &view, topic, queue_id };
        let Some(last) = queue.last()? else { continue };
        if search.end_of(&last, &mut buffer)?.is_some() || search.leads_past_end(&last)? {
            return Ok(u64::try_from(queue.reach()).ok());
        }
    }
    Ok(farthest.is_empty().then_some(0))
}

/// How far a record's number in a queue lies behind its entry there: 0, or more where RocketMQ
/// appended to a queue that lacked numbers. `None` if the entry is not this record's.
#[must_use]
pub fn shift_of(
    view: &MessageView<'_>,
    kind: QueueKind,
    topic: &[u8],
    queue_id: i32,
    unit: &CqUnit,
) -> Option<i64> {
    if matches!(transaction(view.sys_flag()), Transaction::Prepared | Transaction::Rollback) {
        return None;
    }
    let shift = |number: i64| number.checked_sub(unit.number).filter(|shift| *shift >= 0);
    if view.topic() == topic {
        if view.queue_id() != queue_id {
            return None;
        }
        return match kind {
            QueueKind::Plain => shift(view.queue_offset()),
            QueueKind::Batch => {
                let range = DispatchRequest::of(view).range(kind);
                let own = (range.base_queue_offset, range.message_count);
                (own == (unit.number, unit.count)).then_some(0)
            }
        };
    }
    let request = DispatchRequest::of(view);
    lmq::pairs(&request)
        .filter(|(name, id, _)| (*name, *id) == (topic, queue_id))
        .filter_map(|(_, _, number)| shift(number))
        .min()
}
