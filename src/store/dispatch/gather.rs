//! What queues and index need of records, gathered in a form that does not hold on to their bytes.

use parking_lot::Mutex;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::format::java::TopicHash;
use crate::format::message::MessageView;
use crate::format::message::sys_flag::Transaction;
use crate::log::dispatch_request::MAX_KEYS;
use crate::log::queue::Unit;
use crate::log::{IndexBuilder, Queue, QueueKind};

use super::dispatcher::DispatchRequest;
use super::lmq;
use crate::store::queue_table::QueueTable;

/// How many units and keys are gathered at once: some records make thousands.
const MOST_GATHERED: usize = 256 << 10;
/// How many lists' memory waits to be used again.
const MOST_SPARE: usize = 32;

/// What is gathered.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The queues as they are now, which tell kinds and light queues.
    pub queues: &'a QueueTable,
    /// The topics whose queues are wanted; all of them where it is left out.
    pub topics: Option<&'a [Box<[u8]>]>,
    /// Whether queues are.
    pub with_queues: bool,
    /// Whether keys are.
    pub with_index: bool,
    /// Whether those keys of a message are gathered too that are more than the index takes.
    pub with_surplus_keys: bool,
    /// A record stored later than this does not count as the newest.
    pub latest_ms: i64,
}

impl<'a> Wanted<'a> {
    /// Everything of every topic, and no more keys than the index takes.
    #[must_use]
    pub fn all(queues: &'a QueueTable) -> Self {
        Self {
            queues,
            topics: None,
            with_queues: true,
            with_index: true,
            with_surplus_keys: false,
            latest_ms: i64::MAX,
        }
    }
}

/// A queue that some of the records go to.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Lane {
    /// Its topic, as its bytes.
    pub topic: Arc<[u8]>,
    /// Its number.
    pub queue_id: i32,
    /// Its kind.
    pub kind: QueueKind,
    /// How many units go there.
    pub units: u64,
    /// The first queue offset.
    pub first: i64,
    /// One past the last.
    pub end: i64,
}

/// A record in a queue.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct QueuedUnit {
    /// The queue, as the number of its lane.
    pub lane: u32,
    /// Whether the queue is the record's own, and not a light one beside it.
    pub is_own: bool,
    /// The store's time of the record.
    pub store_timestamp_ms: i64,
    /// What the queue has of it.
    pub unit: Unit,
}

/// A record as the index takes it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Keyed {
    pub physical_offset: i64,
    /// The store's time of it.
    pub store_timestamp_ms: i64,
    /// How many of the hashes are its.
    pub keys: u32,
    /// Whether it is a message that was rolled back, which gets no entry.
    pub is_rolled_back: bool,
}

/// What was gathered of records that lie one behind the other.
#[derive(Debug, Default)]
pub struct Gathered {
    /// How many records there were.
    pub records: u64,
    /// Their newest store time.
    pub newest_ms: i64,
    /// The first that was stored too late to count, and its time.
    pub ahead: Option<(i64, i64)>,
    /// Names of light queues that are not made.
    pub left_out: u64,
    /// The queues they go to.
    pub lanes: Vec<Lane>,
    /// What the queues have of them, in the order of the log.
    pub units: Vec<QueuedUnit>,
    /// What the index has of each of them.
    pub keyed: Vec<Keyed>,
    /// Their keys.
    pub hashes: Vec<i32>,
}

impl Gathered {
    /// The memory that it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.units.capacity() * size_of::<QueuedUnit>()
            + self.keyed.capacity() * size_of::<Keyed>()
            + self.hashes.capacity() * size_of::<i32>()
    }

    /// Each record as the index takes it, with its keys.
    pub fn keyed(&self) -> impl Iterator<Item = (&Keyed, &[i32])> {
        let mut left = self.hashes.as_slice();
        self.keyed.iter().map(move |keyed| {
            let (own, rest) = left.split_at_checked(keyed.keys as usize).unwrap_or_default();
            left = rest;
            (keyed, own)
        })
    }

    /// Puts the keys of each record into an index in the making, without as many of the first as `known`
    /// tells to be in it already.
    ///
    /// # Errors
    /// As [`IndexBuilder::put`].
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

    /// Adds the units to their queues, which are given lane by lane; how many a queue does not take: such
    /// a one must not hold up those behind it.
    ///
    /// # Errors
    /// [`Error::Io`] when the disk is full.
    pub fn add_units(&self, queues: &[Option<Arc<Queue>>]) -> Result<u64> {
        let mut refused = 0;
        for queued in &self.units {
            let Some(Some(queue)) = queues.get(queued.lane as usize) else { continue };
            let added = match queued.is_own {
                true => queue.add(&queued.unit, queued.store_timestamp_ms),
                false => queue.add_plain(&queued.unit),
            };
            match added {
                Ok(_) => {}
                Err(Error::InvalidMessage { .. }) => refused += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(refused)
    }

    /// Adds what was gathered of records to their queues, but for what no queue takes.
    ///
    /// # Errors
    /// [`Error::Io`] when the disk is full.
    pub fn add_to(&self, table: &QueueTable) -> Result<()> {
        let mut queues = Vec::with_capacity(self.lanes.len());
        for lane in &self.lanes {
            queues.push(match table.get_or_create(&lane.topic, lane.queue_id) {
                Ok(queue) => Some(queue),
                // Such as a topic that would lead out of the folder.
                Err(Error::InvalidMessage { .. }) => None,
                Err(error) => return Err(error),
            });
        }
        self.add_units(&queues).map(drop)
    }

    fn cleared(mut self) -> Self {
        self.lanes.clear();
        self.units.clear();
        self.keyed.clear();
        self.hashes.clear();
        Self { records: 0, newest_ms: 0, ahead: None, left_out: 0, ..self }
    }
}

/// Memory of what was gathered before: fresh pages cost more than what is put into them.
#[derive(Debug, Default)]
pub struct SpareGathered(Mutex<Vec<Gathered>>);

impl SpareGathered {
    /// Takes back what is no longer needed.
    pub fn give_back(&self, gathered: impl IntoIterator<Item = Gathered>) {
        let mut spare = self.0.lock();
        let room = MOST_SPARE.saturating_sub(spare.len());
        let is_usual =
            |one: &Gathered| one.units.capacity().max(one.hashes.capacity()) <= MOST_GATHERED / 4;
        spare.extend(gathered.into_iter().filter(is_usual).take(room));
    }

    /// An empty one.
    #[must_use]
    pub fn take(&self) -> Gathered {
        let spare = self.0.lock().pop();
        spare.unwrap_or_default().cleared()
    }
}

/// A topic, and its queues' lanes.
#[derive(Debug)]
struct Topic {
    name: Arc<[u8]>,
    hash: TopicHash,
    kind: QueueKind,
    is_wanted: bool,
    lanes: HashMap<i32, u32>,
}

/// Gathers record after record.
#[derive(Debug)]
pub struct Gather<'a> {
    wanted: &'a Wanted<'a>,
    topics: Vec<Topic>,
    by_name: HashMap<Arc<[u8]>, usize>,
    /// The topic of the last record.
    last: usize,
    gathered: Gathered,
}

impl<'a> Gather<'a> {
    /// Gathers what is wanted behind what `gathered` holds, which is nothing yet.
    #[must_use]
    pub fn new(wanted: &'a Wanted<'a>, gathered: Gathered) -> Self {
        Self { wanted, topics: Vec::new(), by_name: HashMap::new(), last: 0, gathered }
    }

    /// Whether it is time to stop.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.gathered.units.len().max(self.gathered.hashes.len()) >= MOST_GATHERED
    }

    /// What was gathered.
    #[must_use]
    pub fn into_gathered(self) -> Gathered {
        self.gathered
    }

    /// Adds a record of `size` bytes, of which the view may lack some of the body.
    #[inline(always)]
    pub fn add(&mut self, view: &MessageView<'_>, size: u32) {
        let mut request = DispatchRequest::of(view);
        request.store_size = size;
        self.gathered.records += 1;
        let time = request.store_timestamp_ms;
        if time <= self.wanted.latest_ms {
            self.gathered.newest_ms = self.gathered.newest_ms.max(time);
        } else {
            self.gathered.ahead.get_or_insert((request.physical_offset, time));
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
        let hashes = &mut self.gathered.hashes;
        let before = hashes.len();
        let topic = self.topics.get(self.last).map(|topic| topic.hash).unwrap_or_default();
        hashes.extend(request.key_hashes_of(topic));
        if self.wanted.with_surplus_keys {
            hashes.extend(request.surplus_key_hashes_of(topic));
        }
        self.gathered.keyed.push(Keyed {
            physical_offset: request.physical_offset,
            store_timestamp_ms: request.store_timestamp_ms,
            keys: u32::try_from(hashes.len() - before).unwrap_or(0),
            is_rolled_back: request.transaction == Transaction::Rollback,
        });
    }

    #[inline]
    fn queue(&mut self, request: &DispatchRequest<'_>) {
        let queues = self.wanted.queues;
        let levels = queues.delay_levels();
        if let Some((lane, kind)) = self.lane(request.topic, request.queue_id) {
            self.push(request, lane, true, request.unit(request.range(kind), levels));
        }
        if request.properties.multi_dispatch.is_some() {
            for (name, number) in lmq::pairs(request.topic, &request.properties) {
                if !queues.takes_more_queues() && queues.get(name, 0).is_none() {
                    self.gathered.left_out += 1;
                } else if let Some((lane, _)) = self.lane(name, 0) {
                    let mut unit = request.unit(request.range(QueueKind::Plain), levels);
                    unit.number = number;
                    self.push(request, lane, false, unit);
                }
            }
        }
    }

    #[inline]
    fn push(&mut self, request: &DispatchRequest<'_>, lane: u32, is_own: bool, unit: Unit) {
        if let Some(lane) = self.gathered.lanes.get_mut(lane as usize) {
            if lane.units == 0 {
                lane.first = unit.number;
            }
            lane.units += 1;
            lane.end = unit.end();
        }
        let store_timestamp_ms = request.store_timestamp_ms;
        self.gathered.units.push(QueuedUnit { lane, is_own, store_timestamp_ms, unit });
    }

    /// The lane of a queue and its kind; `None` where the topic is not wanted.
    #[inline]
    fn lane(&mut self, topic: &[u8], queue_id: i32) -> Option<(u32, QueueKind)> {
        if self.topics.get(self.last).is_none_or(|last| *last.name != *topic) {
            self.last = self.find_topic(topic);
        }
        let known = self.topics.get_mut(self.last)?;
        if !known.is_wanted {
            return None;
        }
        let lanes = &mut self.gathered.lanes;
        let lane = *known.lanes.entry(queue_id).or_insert_with(|| {
            let (units, first, end) = (0, 0, 0);
            let (topic, kind) = (Arc::clone(&known.name), known.kind);
            lanes.push(Lane { topic, queue_id, kind, units, first, end });
            u32::try_from(lanes.len() - 1).unwrap_or(u32::MAX)
        });
        Some((lane, known.kind))
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
            lanes: HashMap::new(),
        });
        self.by_name.insert(name, self.topics.len() - 1);
        self.topics.len() - 1
    }
}
