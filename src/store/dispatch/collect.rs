//! Collects what queues and index need of records, without keeping their bytes.

use crate::locks::Mutex;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::error::Result;
use crate::format::java::TopicHash;
use crate::format::message::MessageView;
use crate::format::message::sys_flag::Transaction;
use crate::format::queue::consume_queue::MOST_NUMBER;
use crate::format::width::{saturating_i64, saturating_u32};
use crate::log::queue::CqUnit;
use crate::log::queue::unit::MAX_KEYS;
use crate::log::{IndexBuilder, Queue, QueueKind};

use super::dispatcher::{DispatchRequest, unless_refused};
use super::lmq;
use crate::store::queue_table::QueueTable;

/// Units and keys collected at once: some records have thousands.
const MOST_COLLECTED: usize = 256 << 10;
const MOST_SPARE: usize = 32;

#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Current queues, for kinds and light queues.
    pub queues: &'a QueueTable,
    pub topics: Option<&'a [Box<[u8]>]>,
    pub with_queues: bool,
    pub with_index: bool,
    pub with_tags: bool,
    pub with_surplus_keys: bool,
    /// Later store times do not count as the newest.
    pub latest_ms: i64,
}

impl<'a> Wanted<'a> {
    #[must_use]
    pub fn all(queues: &'a QueueTable) -> Self {
        Self {
            queues,
            topics: None,
            with_queues: true,
            with_index: true,
            with_tags: false,
            with_surplus_keys: false,
            latest_ms: i64::MAX,
        }
    }
}

#[derive(Clone, Debug)]
pub struct QueueBatch {
    pub topic: Arc<[u8]>,
    pub queue_id: i32,
    pub kind: QueueKind,
    pub units: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Queued {
    pub batch: u32,
    /// Whether it is the record's own queue, not a light one.
    pub is_own: bool,
    pub unit: CqUnit,
}

impl Queued {
    pub fn add_to(&self, queue: &Queue, unit: &CqUnit) -> Result<bool> {
        let added = if self.is_own { queue.add(unit) } else { queue.add_plain(unit) };
        Ok(unless_refused(added)?.is_some())
    }
}

/// A record's number in a queue that ends at the number and the physical offset of `ends`. If the
/// log lost nothing in between, RocketMQ never had the numbers left out, and appends.
#[inline]
#[must_use]
pub fn placed(own: i64, kind: QueueKind, (next, reach): (i64, i64), whole_from: u64) -> i64 {
    let is_whole = kind == QueueKind::Plain && reach >= saturating_i64(whole_from);
    // RocketMQ drops a number whose entry no file can have.
    if is_whole && own <= MOST_NUMBER { own.min(next) } else { own }
}

#[derive(Clone, Copy, Debug)]
pub struct Keyed {
    pub physical_offset: i64,
    pub store_timestamp_ms: i64,
    pub keys: u32,
    pub has_tags: bool,
    /// Whether it was rolled back and gets no entry.
    pub is_rolled_back: bool,
}

#[derive(Debug, Default)]
pub struct DispatchBatch {
    pub records: u64,
    pub newest_ms: i64,
    /// The first record from the future, and its time.
    pub ahead: Option<(i64, i64)>,
    pub left_out: u64,
    /// The log is whole from here to these records.
    pub whole_from: u64,
    pub batches: Vec<QueueBatch>,
    pub units: Vec<Queued>,
    pub keyed: Vec<Keyed>,
    pub hashes: Vec<i32>,
}

impl DispatchBatch {
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.units.capacity() * size_of::<Queued>()
            + self.keyed.capacity() * size_of::<Keyed>()
            + self.hashes.capacity() * size_of::<i32>()
    }

    pub fn keyed(&self) -> impl Iterator<Item = (&Keyed, &[i32])> {
        let mut left = self.hashes.as_slice();
        self.keyed.iter().map(move |keyed| {
            let (own, rest) = left.split_at_checked(keyed.keys as usize).unwrap_or_default();
            left = rest;
            (keyed, own)
        })
    }

    /// Puts each record's keys into an index being built, except its first ones that `known` says
    /// exist.
    pub fn put_keys(
        &self,
        index: &mut IndexBuilder,
        known: impl Fn(&Keyed) -> usize,
    ) -> Result<()> {
        let mut left = self.hashes.as_slice();
        let mut fetched = left.len();
        for (keyed, hashes) in self.keyed() {
            left = left.get(hashes.len()..).unwrap_or_default();
            if left.len() < fetched {
                fetched = index.fetch(left).len();
            }
            let hashes = hashes.get(..MAX_KEYS).unwrap_or(hashes);
            let hashes = hashes.get(known(keyed)..).unwrap_or_default();
            index.put(keyed.physical_offset, keyed.store_timestamp_ms, hashes)?;
        }
        Ok(())
    }

    /// Adds collected records to their queues, except refused ones, which must not block others.
    pub fn add_to(&self, table: &QueueTable) -> Result<()> {
        let mut queues = Vec::with_capacity(self.batches.len());
        for batch in &self.batches {
            queues.push(unless_refused(table.get_or_create(&batch.topic, batch.queue_id))?);
        }
        for queued in &self.units {
            let Some(Some(queue)) = queues.get(queued.batch as usize) else { continue };
            let ends = (queue.max_offset(), queue.reach());
            let number = placed(queued.unit.number, queue.kind(), ends, self.whole_from);
            queued.add_to(queue, &CqUnit { number, ..queued.unit })?;
        }
        Ok(())
    }

    fn cleared(mut self) -> Self {
        self.batches.clear();
        self.units.clear();
        self.keyed.clear();
        self.hashes.clear();
        Self { records: 0, newest_ms: 0, ahead: None, left_out: 0, ..self }
    }
}

/// Reusable memory: fresh pages cost more than filling them.
#[derive(Debug, Default)]
pub struct DispatchBatchPool(Mutex<Vec<DispatchBatch>>);

impl DispatchBatchPool {
    pub fn put_back(&self, collected: impl IntoIterator<Item = DispatchBatch>) {
        let mut spare = self.0.lock();
        let room = MOST_SPARE.saturating_sub(spare.len());
        let is_usual = |one: &DispatchBatch| {
            one.units.capacity().max(one.hashes.capacity()) <= MOST_COLLECTED / 4
        };
        spare.extend(collected.into_iter().filter(is_usual).take(room));
    }

    #[must_use]
    pub fn take(&self) -> DispatchBatch {
        let spare = self.0.lock().pop();
        spare.unwrap_or_default().cleared()
    }
}

#[derive(Debug)]
struct Topic {
    name: Arc<[u8]>,
    hash: TopicHash,
    kind: QueueKind,
    is_wanted: bool,
    batches: HashMap<i32, u32>,
}

#[derive(Debug)]
pub struct DispatchCollector<'a> {
    wanted: &'a Wanted<'a>,
    topics: Vec<Topic>,
    by_name: HashMap<Arc<[u8]>, usize>,
    last: usize,
    pub collected: DispatchBatch,
}

impl<'a> DispatchCollector<'a> {
    #[must_use]
    pub fn new(wanted: &'a Wanted<'a>, collected: DispatchBatch) -> Self {
        Self { wanted, topics: Vec::new(), by_name: HashMap::new(), last: 0, collected }
    }

    #[must_use]
    pub fn is_full(&self) -> bool {
        self.collected.units.len().max(self.collected.hashes.len()) >= MOST_COLLECTED
    }

    /// Adds a record of `size` bytes; the view may lack its body.
    #[inline(always)]
    pub fn add(&mut self, view: &MessageView<'_>, size: u32) {
        let mut request = DispatchRequest::of(view);
        request.store_size = size;
        self.collected.records += 1;
        let time = request.store_timestamp_ms;
        if time <= self.wanted.latest_ms {
            self.collected.newest_ms = self.collected.newest_ms.max(time);
        } else {
            self.collected.ahead.get_or_insert((request.physical_offset, time));
        }
        if self.topics.get(self.last).is_none_or(|last| *last.name != *request.topic) {
            self.last = self.find_topic(request.topic);
        }
        if self.wanted.with_index {
            self.index(&request);
        }
        if self.wanted.with_queues && request.is_queued() {
            self.queue(&request);
        }
    }

    #[inline]
    fn index(&mut self, request: &DispatchRequest<'_>) {
        let hashes = &mut self.collected.hashes;
        let before = hashes.len();
        let topic = self.topics.get(self.last).map(|topic| topic.hash).unwrap_or_default();
        let most = if self.wanted.with_surplus_keys { usize::MAX } else { MAX_KEYS };
        request.hash_keys(topic, most, hashes);
        let tags = if self.wanted.with_tags { request.tag_hash_of(topic) } else { None };
        hashes.extend(tags);
        self.collected.keyed.push(Keyed {
            physical_offset: request.physical_offset,
            store_timestamp_ms: request.store_timestamp_ms,
            keys: saturating_u32(hashes.len() - before),
            has_tags: tags.is_some(),
            is_rolled_back: request.transaction == Transaction::Rollback,
        });
    }

    #[inline]
    fn queue(&mut self, request: &DispatchRequest<'_>) {
        let queues = self.wanted.queues;
        let levels = queues.delay_levels();
        if let Some((batch, kind)) = self.batch(request.queue_id) {
            self.push(batch, true, request.unit(request.range(kind), levels));
        }
        if request.properties.multi_dispatch.is_some() {
            for (name, id, number) in lmq::pairs(request) {
                if !lmq::is_taken(queues, name, id) {
                    self.collected.left_out += 1;
                    continue;
                }
                self.last = self.find_topic(name);
                if let Some((batch, _)) = self.batch(id) {
                    let mut unit = request.unit(request.range(QueueKind::Plain), levels);
                    unit.number = number;
                    self.push(batch, false, unit);
                }
            }
        }
    }

    #[inline]
    fn push(&mut self, batch: u32, is_own: bool, unit: CqUnit) {
        if let Some(batch) = self.collected.batches.get_mut(batch as usize) {
            batch.units += 1;
        }
        self.collected.units.push(Queued { batch, is_own, unit });
    }

    /// Batch and kind of a queue of the last topic; `None` if the topic is not wanted.
    #[inline]
    fn batch(&mut self, queue_id: i32) -> Option<(u32, QueueKind)> {
        let known = self.topics.get_mut(self.last)?;
        if !known.is_wanted {
            return None;
        }
        if let Some(&batch) = known.batches.get(&queue_id) {
            return Some((batch, known.kind));
        }
        let batches = &mut self.collected.batches;
        let (number, kind) = (saturating_u32(batches.len()), known.kind);
        batches.push(QueueBatch { topic: Arc::clone(&known.name), queue_id, kind, units: 0 });
        known.batches.insert(queue_id, number);
        Some((number, kind))
    }

    #[cold]
    fn find_topic(&mut self, topic: &[u8]) -> usize {
        if let Some(&number) = self.by_name.get(topic) {
            return number;
        }
        let name: Arc<[u8]> = topic.into();
        let wanted = self.wanted.topics;
        self.topics.push(Topic {
            name: Arc::clone(&name),
            hash: TopicHash::of(topic),
            // Light queues hold single messages, whatever their folder says.
            kind: match topic.starts_with(lmq::PREFIX) {
                true => QueueKind::Plain,
                false => self.wanted.queues.kind_of(topic),
            },
            is_wanted: wanted.is_none_or(|wanted| wanted.iter().any(|name| **name == *topic)),
            batches: HashMap::new(),
        });
        self.by_name.insert(name, self.topics.len() - 1);
        self.topics.len() - 1
    }
}
