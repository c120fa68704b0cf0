//! Compares consume queues with the log: missing entries, and entries that lead nowhere. Opening
//! for writing repairs them, a reader works around them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::error::Result;
use crate::format::queue::batch::InnerRange;
use crate::format::queue::consume_queue::SCHEDULE_TOPIC;
use crate::format::width::saturating_i64;
use crate::log::queue::CqUnit;
use crate::log::queue::consume_queue_ext::TagsCode;
use crate::log::{Queue, QueueKind};

use super::collect::{DispatchBatch, Queued, placed};
use super::dispatcher::DispatchRequest;
use super::lmq;
use crate::store::queue_table::{MOST_NEW_QUEUES, QueueTable, too_many};

const BLOCK: usize = 512;

#[derive(Debug)]
pub struct QueueAudit {
    queue: Option<Arc<Queue>>,
    kind: QueueKind,
    most_skipped: i64,
    block: Vec<CqUnit>,
    at: usize,
    /// End of the last record's queue offsets, and its end in the log.
    next: i64,
    reach: i64,
    first_missing: Option<CqUnit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFinding {
    pub topic: Box<[u8]>,
    pub queue_id: i32,
    /// Queue offset up to which entries are right; the rest must go.
    pub good: i64,
    /// The queue's end, plus one if remains follow it.
    pub found: i64,
    pub expected: i64,
}

impl QueueFinding {
    #[must_use]
    pub fn folder(&self, queues: &QueueTable) -> String {
        let (kind, topic) = (queues.kind_of(&self.topic), String::from_utf8_lossy(&self.topic));
        format!("{}/{topic}/{}", kind.folder(), self.queue_id)
    }
}

/// Fed with records in log order.
#[derive(Debug)]
pub struct Audit<'q> {
    queues: &'q QueueTable,
    places: HashMap<Box<[u8]>, BTreeMap<i32, usize>>,
    audits: Vec<QueueAudit>,
    new_queues: usize,
    /// The log is whole from here to the next record.
    pub whole_from: u64,
}

impl<'q> Audit<'q> {
    #[must_use]
    pub fn new(queues: &'q QueueTable) -> Self {
        Self { queues, places: HashMap::new(), audits: Vec::new(), new_queues: 0, whole_from: 0 }
    }

    /// Compares one record with its queues; passes entries that they lack to `miss`.
    pub fn check(
        &mut self,
        request: &DispatchRequest<'_>,
        mut miss: impl FnMut(&[u8], i32, CqUnit),
    ) -> Result<()> {
        if !request.is_queued() {
            return Ok(());
        }
        let (queues, topic) = (self.queues, request.topic);
        let levels = queues.delay_levels();
        let unit = |range| request.unit(range, levels);
        let kind = self.kind_of(topic, request.queue_id);
        let own = unit(request.range(kind));
        let place = self.place(topic, request.queue_id, &own)?;
        if let Some(unit) = self.check_at(place, &own, topic)? {
            miss(topic, request.queue_id, unit);
        }
        if request.properties.multi_dispatch.is_none() {
            return Ok(());
        }
        for (name, id, number) in lmq::pairs(request) {
            if lmq::is_taken(queues, name, id) {
                let range = InnerRange { base_queue_offset: number, message_count: 1 };
                let own = unit(range);
                let place = self.place_beside(name, id, &own)?;
                if let Some(unit) = self.check_at(place, &own, name)? {
                    miss(name, id, unit);
                }
            }
        }
        Ok(())
    }

    pub fn check_all(&mut self, collected: &DispatchBatch) -> Result<()> {
        self.whole_from = collected.whole_from;
        let mut places = vec![None; collected.batches.len()];
        for Queued { batch, is_own, unit } in &collected.units {
            let number = *batch as usize;
            let Some(batch) = collected.batches.get(number) else { continue };
            let Some(place) = places.get_mut(number) else { continue };
            if place.is_none() {
                *place = match is_own {
                    true => self.place(&batch.topic, batch.queue_id, unit)?,
                    false => self.place_beside(&batch.topic, batch.queue_id, unit)?,
                };
            }
            self.check_at(*place, unit, &batch.topic)?;
        }
        Ok(())
    }

    fn of(&self, topic: &[u8], queue_id: i32) -> Option<&QueueAudit> {
        self.audits.get(*self.places.get(topic)?.get(&queue_id)?)
    }

    fn kind_of(&self, topic: &[u8], queue_id: i32) -> QueueKind {
        self.of(topic, queue_id).map_or_else(|| self.queues.kind_of(topic), |audit| audit.kind)
    }

    /// Index of an additional queue; batch queues take no other records.
    fn place_beside(&mut self, topic: &[u8], id: i32, first: &CqUnit) -> Result<Option<usize>> {
        match self.kind_of(topic, id) {
            QueueKind::Batch => Ok(None),
            QueueKind::Plain => self.place(topic, id, first),
        }
    }

    /// Index of a queue's audit, which begins at `first` if new, or at the queue's end before it;
    /// `None` if records are not dispatched to it.
    fn place(&mut self, topic: &[u8], queue_id: i32, first: &CqUnit) -> Result<Option<usize>> {
        let queues = self.queues;
        if let Some(&place) = self.places.get(topic).and_then(|places| places.get(&queue_id)) {
            return Ok(Some(place));
        }
        let queue = queues.found(topic, queue_id)?;
        let is_refused = queue.is_none() && queues.check_queue_id(queue_id).is_err();
        if is_refused || first.number < 0 {
            return Ok(None);
        }
        self.new_queues += usize::from(queue.is_none());
        if self.new_queues > MOST_NEW_QUEUES {
            return Err(too_many(queues.dir()));
        }
        let place = self.audits.len();
        let kind = queues.kind_of(topic);
        let near = saturating_i64(self.whole_from).max(1)..=first.physical_offset;
        // A damaged last entry may seem to end before all records.
        let ended = queue.as_ref().filter(|queue| {
            kind == QueueKind::Plain
                && first.number >= queue.max_offset()
                && near.contains(&queue.reach())
        });
        let ends = ended.map(|queue| (queue.max_offset(), queue.reach()));
        let (next, reach) = ends.unwrap_or((first.number, -1));
        self.audits.push(QueueAudit {
            queue,
            kind,
            most_skipped: queues.most_skipped(kind),
            block: Vec::new(),
            at: 0,
            next,
            reach,
            first_missing: None,
        });
        self.places.entry(topic.into()).or_default().insert(queue_id, place);
        Ok(Some(place))
    }

    /// Returns the unit, in its place, that the queue lacks.
    #[inline(always)]
    fn check_at(
        &mut self,
        place: Option<usize>,
        own: &CqUnit,
        topic: &[u8],
    ) -> Result<Option<CqUnit>> {
        let audit = place.and_then(|place| self.audits.get_mut(place));
        let Some(audit) = audit.filter(|_| own.number >= 0) else { return Ok(None) };
        let number = placed(own.number, audit.kind, (audit.next, audit.reach), self.whole_from);
        // A taken or unreachable number gets no entry, nor does a record that has one.
        let is_known = audit.kind == QueueKind::Plain && own.physical_end() <= audit.reach;
        if is_known || number.saturating_sub(audit.next) > audit.most_skipped {
            return Ok(None);
        }
        if number < audit.next {
            audit.begin_again_at(own, topic)?;
            return Ok(None);
        }
        let mut unit = CqUnit { number, ..*own };
        let mut there = false;
        if audit.queue.is_some() {
            there = audit.has(&unit, topic)?;
            if !there && let Some(number) = audit.known_number(own)? {
                unit.number = number;
                there = audit.has(&unit, topic)?;
            }
        }
        (audit.next, audit.reach) = (unit.end(), unit.physical_end());
        if !there {
            audit.first_missing.get_or_insert(unit);
        }
        Ok((!there).then_some(unit))
    }

    #[must_use]
    pub fn first_missing_of(&self, topic: &[u8], queue_id: i32) -> Option<u64> {
        u64::try_from(self.of(topic, queue_id)?.first_missing?.physical_offset).ok()
    }

    /// Physical offset.
    #[must_use]
    pub fn first_missing(&self) -> Option<u64> {
        let missing = self.audits.iter().filter_map(|audit| audit.first_missing);
        u64::try_from(missing.map(|unit| unit.physical_offset).min()?).ok()
    }

    /// Queues that differ from the log, after everything from `from` on was seen.
    pub fn findings(&self, from: u64) -> Result<Vec<QueueFinding>> {
        let mut findings = Vec::new();
        for queue in self.queues.all() {
            let found = queue.max_offset().saturating_add(i64::from(queue.has_remains()?));
            let (topic, queue_id) = (queue.topic(), queue.queue_id());
            let (good, expected) = match self.of(topic, queue_id) {
                Some(audit) => {
                    (audit.first_missing.map_or(audit.next, |unit| unit.number), audit.next)
                }
                // No record of it was seen, so all its entries must be older.
                None => {
                    let kept = queue.first_at_or_behind(from)?;
                    (kept, kept)
                }
            };
            if good != found || good != expected {
                let (topic, good) = (topic.into(), good.min(found));
                findings.push(QueueFinding { topic, queue_id, good, found, expected });
            }
        }
        for (topic, places) in &self.places {
            for (&queue_id, &place) in places {
                let audit = self.audits.get(place).filter(|audit| audit.queue.is_none());
                let Some(audit) = audit else { continue };
                let (topic, expected) = (topic.clone(), audit.next);
                findings.push(QueueFinding { topic, queue_id, good: 0, found: 0, expected });
            }
        }
        findings.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
        Ok(findings)
    }
}

/// Whether an entry leads exactly to this record.
pub fn is_known(queues: &QueueTable, request: &DispatchRequest<'_>) -> Result<bool> {
    let Some(queue) = queues.found(request.topic, request.queue_id)? else { return Ok(false) };
    let unit = request.unit(request.range(queue.kind()), queues.delay_levels());
    Ok(queue.number_of(&unit, 0)?.is_some())
}

impl QueueAudit {
    /// Begins anew at a record with an entry whose number another record seemed to have: the topic
    /// was deleted in between, with the entries of the records before.
    fn begin_again_at(&mut self, own: &CqUnit, topic: &[u8]) -> Result<()> {
        if self.first_missing.is_none() {
            return Ok(());
        }
        self.block.clear();
        self.at = 0;
        if self.has(own, topic)? {
            (self.next, self.reach) = (own.end(), own.physical_end());
            self.first_missing = None;
        }
        Ok(())
    }

    /// Number of the entry that leads to a record, where other records do not settle it.
    fn known_number(&self, own: &CqUnit) -> Result<Option<i64>> {
        let is_open = self.reach < 0 || own.number > self.next;
        let from = if self.reach < 0 { 0 } else { self.next };
        let is_open = is_open && self.kind == QueueKind::Plain && self.first_missing.is_none();
        let queue = self.queue.as_ref().filter(|_| is_open);
        queue.map_or(Ok(None), |queue| queue.number_of(own, from))
    }

    fn has(&mut self, wanted: &CqUnit, topic: &[u8]) -> Result<bool> {
        let Some(queue) = &self.queue else { return Ok(false) };
        let number = wanted.number;
        while self.block.get(self.at).is_some_and(|unit| unit.number < number) {
            self.at += 1;
        }
        if self.block.get(self.at).is_none_or(|unit| self.at == 0 && unit.number > number) {
            self.block = queue.units(number, BLOCK)?;
            self.at = 0;
        }
        let Some(unit) = self.block.get(self.at).filter(|unit| {
            unit.number == number
                && unit.count == wanted.count
                && unit.physical_offset == wanted.physical_offset
                && unit.store_size == wanted.store_size
        }) else {
            return Ok(false);
        };
        // A delayed message's code depends on the levels at that time.
        if topic == SCHEDULE_TOPIC {
            return Ok(true);
        }
        Ok(match queue.resolve(unit.tags_code)? {
            TagsCode::Known(code) => code == wanted.tags_code,
            TagsCode::Unreadable => true,
        })
    }
}
