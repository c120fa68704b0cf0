//! Holding the consume queues against the log: which records have their entry, which lack it, and
//! which entries lead nowhere. Opening for write mends what is found here, opening for reading
//! answers from it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::error::Result;
use crate::format::batch::InnerRange;
use crate::format::consume_queue::{DelayLevels, SCHEDULE_TOPIC};
use crate::log::consume_queue_ext::TagsCode;
use crate::log::queue::Unit;
use crate::log::{Queue, QueueKind};

use super::dispatch::DispatchRequest;
use super::queues::{MOST_NEW_QUEUES, QueueTable, too_many};

/// How many entries of a queue are read at a time.
const BLOCK: usize = 512;

/// The state of one queue, as far as the records seen so far tell.
#[derive(Debug)]
pub struct QueueAudit {
    queue: Option<Arc<Queue>>,
    kind: QueueKind,
    block: Vec<Unit>,
    /// Where in the block the next record's unit is likely.
    at: usize,
    /// One past the last queue offset of the last record seen.
    next: i64,
    /// Number of the first record whose entry is missing or another's.
    broken_at: Option<i64>,
}

/// What an audit found in one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFinding {
    /// The topic, as its bytes.
    pub topic: Box<[u8]>,
    /// The queue's number.
    pub queue_id: i32,
    /// The queue offset up to which all is right; what lies behind must go.
    pub good: i64,
    /// Where the queue ends, or, where it has remains behind its end, one more.
    pub found: i64,
    /// Where it should end.
    pub expected: i64,
}

/// An audit of the queues, fed with the log's records in order.
#[derive(Debug)]
pub struct Audit<'q> {
    queues: &'q QueueTable,
    audits: HashMap<Box<[u8]>, BTreeMap<i32, QueueAudit>>,
    /// Queues of records that are not there.
    new_queues: usize,
    /// Where the first record lies that has no entry.
    pub first_missing: Option<u64>,
}

impl<'q> Audit<'q> {
    /// An audit of `queues`.
    #[must_use]
    pub fn new(queues: &'q QueueTable) -> Self {
        Self { queues, audits: HashMap::new(), new_queues: 0, first_missing: None }
    }

    /// Holds one record against its queue; whether its entry is there.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read, [`crate::Error::Unsupported`] for a log of
    /// more queues than are made from one.
    pub fn see(&mut self, request: &DispatchRequest<'_>) -> Result<bool> {
        if !request.is_queued() {
            return Ok(true);
        }
        let mut there = self.see_in(request.topic, request.queue_id, None, request)?;
        if request.properties.multi_dispatch.is_none() {
            return Ok(there);
        }
        for (name, number) in request.more_queues() {
            if self.queues.get(name, 0).is_some() || self.queues.takes_more_queues() {
                there &= self.see_in(name, 0, Some(number), request)?;
            }
        }
        Ok(there)
    }

    /// `number` is the record's in a queue beside its own.
    fn see_in(
        &mut self,
        topic: &[u8],
        queue_id: i32,
        number: Option<i64>,
        request: &DispatchRequest<'_>,
    ) -> Result<bool> {
        let queues = self.queues;
        if !self.audits.contains_key(topic) {
            self.audits.insert(topic.into(), BTreeMap::new());
        }
        let Some(audits) = self.audits.get_mut(topic) else { return Ok(true) };
        let kind = match audits.get(&queue_id) {
            Some(audit) => audit.kind,
            // A number that no new queue may have is not dispatched.
            None if queues.get(topic, queue_id).is_none()
                && queues.check_queue_id(queue_id).is_err() =>
            {
                return Ok(true);
            }
            None => queues.kind_of(topic),
        };
        let range = match number {
            // A queue of batches takes no records of others.
            Some(_) if kind == QueueKind::Batch => return Ok(true),
            Some(number) => InnerRange { base_queue_offset: number, message_count: 1 },
            None => request.range(kind),
        };
        let number = range.base_queue_offset;
        if number < 0 {
            return Ok(true);
        }
        let audit = match audits.entry(queue_id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let queue = queues.get(topic, queue_id);
                self.new_queues += usize::from(queue.is_none());
                if self.new_queues > MOST_NEW_QUEUES {
                    return Err(too_many(queues.dir()));
                }
                let (block, at, next) = (Vec::new(), 0, number);
                place.insert(QueueAudit { queue, kind, block, at, next, broken_at: None })
            }
        };
        // A number that was taken, or that is out of reach, gets no entry.
        if number < audit.next || number.saturating_sub(audit.next) > queues.most_skipped(kind) {
            return Ok(true);
        }
        let there = audit.has(range, request, queues.delay_levels())?;
        audit.next = number.saturating_add(i64::from(range.message_count));
        if !there {
            audit.broken_at.get_or_insert(number);
            if self.first_missing.is_none() {
                self.first_missing = u64::try_from(request.physical_offset).ok();
            }
        }
        Ok(there)
    }

    /// The queues that do not hold just what the log asks for, of which everything from `from` on
    /// was seen.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn findings(&self, from: u64) -> Result<Vec<QueueFinding>> {
        let mut findings = Vec::new();
        for queue in self.queues.all() {
            let found = queue.max_offset().saturating_add(i64::from(queue.has_remains()?));
            let audits = self.audits.get(queue.topic());
            let (good, expected) = match audits.and_then(|audits| audits.get(&queue.queue_id())) {
                Some(audit) => (audit.broken_at.unwrap_or(audit.next), audit.next),
                // No record of it was seen, so all it holds must lie before.
                None => {
                    let kept = queue.first_at_or_behind(from)?;
                    (kept, kept)
                }
            };
            if good != found || good != expected {
                findings.push(QueueFinding {
                    topic: queue.topic().into(),
                    queue_id: queue.queue_id(),
                    good: good.min(found),
                    found,
                    expected,
                });
            }
        }
        // Queues that have no folder at all.
        for (topic, audits) in &self.audits {
            for (&queue_id, audit) in audits.iter().filter(|(_, audit)| audit.queue.is_none()) {
                findings.push(QueueFinding {
                    topic: topic.clone(),
                    queue_id,
                    good: 0,
                    found: 0,
                    expected: audit.next,
                });
            }
        }
        findings.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
        Ok(findings)
    }
}

/// Whether the queues know a record: an entry leads just to the place where it lies.
///
/// # Errors
/// [`crate::Error::Io`] when the system cannot read.
pub fn is_known(queues: &QueueTable, request: &DispatchRequest<'_>) -> Result<bool> {
    let Some(queue) = queues.get(request.topic, request.queue_id) else { return Ok(false) };
    let unit = queue.unit(request.queue_offset)?;
    Ok(unit.is_some_and(|unit| unit.entry.physical_offset == request.physical_offset))
}

impl QueueAudit {
    fn has(
        &mut self,
        range: InnerRange,
        request: &DispatchRequest<'_>,
        levels: &DelayLevels,
    ) -> Result<bool> {
        let Some(queue) = &self.queue else { return Ok(false) };
        let number = range.base_queue_offset;
        // Mostly it is the one behind the last.
        while self.block.get(self.at).is_some_and(|unit| unit.number < number) {
            self.at += 1;
        }
        if self.block.get(self.at).is_none_or(|unit| self.at == 0 && unit.number > number) {
            self.block = queue.units(number, BLOCK)?;
            self.at = 0;
        }
        let Some(unit) = self.block.get(self.at).filter(|unit| {
            unit.number == number
                && unit.count == range.message_count
                && unit.entry.physical_offset == request.physical_offset
                && u32::try_from(unit.entry.store_size) == Ok(request.store_size)
        }) else {
            return Ok(false);
        };
        // A delayed message's code is a time, which depends on what the levels were then.
        if request.topic == SCHEDULE_TOPIC {
            return Ok(true);
        }
        let wanted = request.unit(range, levels).entry.tags_code;
        Ok(match queue.resolve(unit.entry.tags_code)? {
            TagsCode::Known(code) => code == wanted,
            TagsCode::Unreadable => true,
        })
    }
}
