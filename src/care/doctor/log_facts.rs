//! Facts that only messages show: keys with one hash, times that step back, topics without queues.
//!
//! One walk over the log in bounded memory.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::ControlFlow;

use hashbrown::{DefaultHashBuilder, HashMap};

use super::losses::Gap;
use crate::error::Result;
use crate::format::java::key_hash;
use crate::format::message::sys_flag::{self, Transaction};
use crate::format::queue::consume_queue::ENTRY_LEN;
use crate::format::width::{clamp_u64, saturating_i64, to_usize};
use crate::log::CommitLog;
use crate::log::queue::unit::MAX_KEYS;
use crate::log::read::scanner::{Flow, Item, Resync, Scanner};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::progress::interrupted;

const KEYS: usize = 1 << 20;
const MOST_NAMES: usize = 100_000;
const MOST_GAPS: usize = 100_000;
const STEP: u64 = 16 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Collision {
    pub(super) hash: i32,
    pub(super) places: [u64; 2],
    pub(super) topic: Box<[u8]>,
    pub(super) key: Box<[u8]>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueuePlace {
    pub(super) topic: Box<[u8]>,
    pub(super) queue_id: i32,
    pub(super) queue_offset: i64,
    pub(super) time_ms: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally<T> {
    pub(super) count: u64,
    pub(super) first: Option<T>,
}

impl<T> Tally<T> {
    fn add(&mut self, what: impl FnOnce() -> T) {
        self.count += 1;
        self.first.get_or_insert_with(what);
    }
}

#[derive(Debug, Default)]
pub(super) struct LogFacts {
    pub(super) collisions: Tally<Collision>,
    /// Messages with a lower time than an earlier one: offset and time.
    pub(super) steps_back: Tally<(u64, i64)>,
    pub(super) furthest_back_ms: i64,
    /// Messages with a lower time than their predecessor in the queue.
    pub(super) queue_steps_back: Tally<QueuePlace>,
    /// First messages of queue files with their predecessor's time.
    pub(super) ties_at_edges: Tally<QueuePlace>,
    pub(super) topics: HashMap<Box<[u8]>, u64>,
    pub(super) batch_topics: BTreeSet<Box<[u8]>>,
    pub(super) messages: u64,
    pub(super) gaps: Vec<Gap>,
    /// Begins of files.
    pub(super) jumps: BTreeSet<u64>,
    pub(super) last_ms: Option<i64>,
    pub(super) end: u64,
}

impl LogFacts {
    fn add_gap(&mut self, from: u64, to: u64) {
        self.gaps.push(Gap { from, to, after_ms: self.last_ms, before_ms: None });
    }
}

pub(super) fn read(
    log: &CommitLog,
    queue_file_size: u64,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<LogFacts> {
    let mut facts = Facts {
        found: LogFacts::default(),
        hasher: DefaultHashBuilder::default(),
        keys: vec![Key::default(); KEYS],
        queues: HashMap::new(),
        file_size: log.run().file_size().max(1),
        queue_count: 0,
        newest_ms: i64::MIN,
        entries_of_file: saturating_i64(queue_file_size / ENTRY_LEN as u64),
    };
    let (begin, log_end) = (log.min_offset(), log.end_offset());
    let mut reported = begin;
    let (mut end, mut is_open) = (begin, false);
    let mut scanner = Scanner::new(log, begin, log_end, true);
    scanner.each(log, log_end, Resync::Anywhere, |range, item| {
        end = range.end;
        match item {
            Item::Record(view, _) => {
                facts.found.last_ms = Some(view.store_timestamp_ms());
                facts.found.end = end;
                facts.found.messages += 1;
                facts.read(&DispatchRequest::of(view));
                let batch_topics = &mut facts.found.batch_topics;
                if sys_flag::is_inner_batch(view.sys_flag())
                    && batch_topics.len() < MOST_NAMES
                    && !batch_topics.contains(view.topic())
                {
                    batch_topics.insert(view.topic().into());
                }
                if let Some(gap) = facts.found.gaps.last_mut().filter(|_| is_open) {
                    gap.before_ms = facts.found.last_ms;
                }
                is_open = false;
            }
            Item::Blank => facts.found.end = end,
            Item::Damage(_) if facts.found.gaps.len() < MOST_GAPS => {
                facts.found.add_gap(range.start, end);
                is_open = true;
            }
            Item::Damage(_) => {}
        }
        if end - reported >= STEP {
            reported = end;
            if progress(reported.saturating_sub(begin)).is_break() {
                return Err(interrupted("examine", &log.run().dir()));
            }
        }
        Ok(Flow::Continue)
    })?;
    let to = log.run().end_offset().unwrap_or(end);
    if end < to {
        facts.found.add_gap(end, to);
    }
    Ok(facts.found)
}

#[derive(Clone, Copy, Default)]
struct Key {
    hash: i32,
    /// Hash of topic and key; 0 for none.
    fingerprint: u64,
    place: u64,
}

type Last = (i64, u64, i64);

struct Facts {
    found: LogFacts,
    hasher: DefaultHashBuilder,
    keys: Vec<Key>,
    queues: HashMap<Vec<u8>, HashMap<i32, Last>>,
    file_size: u64,
    queue_count: usize,
    newest_ms: i64,
    entries_of_file: i64,
}

impl Facts {
    fn read(&mut self, request: &DispatchRequest<'_>) {
        let place = clamp_u64(request.physical_offset);
        let time_ms = request.store_timestamp_ms;
        if time_ms < self.newest_ms {
            self.found.steps_back.add(|| (place, time_ms));
            let back = self.newest_ms.saturating_sub(time_ms);
            self.found.furthest_back_ms = self.found.furthest_back_ms.max(back);
        }
        self.newest_ms = self.newest_ms.max(time_ms);
        if request.is_queued() {
            self.read_queue(request);
        }
        if request.transaction != Transaction::Rollback {
            for key in request.keys().take(MAX_KEYS) {
                self.read_key(request.topic, key, place);
            }
        }
    }

    fn read_queue(&mut self, request: &DispatchRequest<'_>) {
        let topics = &mut self.found.topics;
        if let Some(count) = topics.get_mut(request.topic) {
            *count += 1;
        } else if topics.len() < MOST_NAMES {
            topics.insert(request.topic.into(), 1);
        } else {
            return;
        }
        let here = || QueuePlace {
            topic: request.topic.into(),
            queue_id: request.queue_id,
            queue_offset: request.queue_offset,
            time_ms: request.store_timestamp_ms,
        };
        let time_ms = request.store_timestamp_ms;
        let of_topic = self.queues.entry_ref(request.topic).or_default();
        let place = clamp_u64(request.physical_offset);
        let now = (time_ms, place, request.queue_offset);
        if let Some(last) = of_topic.get_mut(&request.queue_id) {
            let file = place - place % self.file_size;
            if last.1 < file && last.2.saturating_add(1) != request.queue_offset {
                self.found.jumps.insert(file);
            }
            if time_ms < last.0 {
                self.found.queue_steps_back.add(here);
            } else if time_ms == last.0
                && request.queue_offset.checked_rem(self.entries_of_file) == Some(0)
            {
                self.found.ties_at_edges.add(here);
            }
            *last = now;
        } else if self.queue_count < MOST_NAMES {
            self.queue_count += 1;
            of_topic.insert(request.queue_id, now);
        }
    }

    fn read_key(&mut self, topic: &[u8], key: &[u8], place: u64) {
        let hash = key_hash(topic, key);
        let fingerprint = self.hasher.hash_one((topic, key)).max(1);
        let at = to_usize(clamp_u64(hash)) % KEYS;
        let Some(known) = self.keys.get_mut(at) else { return };
        if known.hash == hash && known.fingerprint != 0 && known.fingerprint != fingerprint {
            let places = [known.place, place];
            self.found.collisions.add(|| Collision {
                hash,
                places,
                topic: topic.into(),
                key: key.into(),
            });
        }
        *known = Key { hash, fingerprint, place };
    }
}
