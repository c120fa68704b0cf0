//! Counts queue offsets of found messages before any is written.

use hashbrown::HashMap;

use crate::care::transfer::{QueueName, has_no_stand_ins, most_stand_ins};
use crate::format::message::MessageView;
use crate::format::message::properties;
use crate::format::message::sys_flag::{self, Transaction};
use crate::format::queue::batch::{self, InnerRange};
use crate::format::width::at_least_0;
use crate::log::QueueKind;
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;
use crate::store::queue_table::TopicKinds;

#[derive(Clone, Copy, Debug)]
struct Seen {
    first: i64,
    next: i64,
    missing: u64,
    stand_ins: u64,
    broken: bool,
}

#[derive(Debug, Default)]
pub(super) struct Census {
    kinds: TopicKinds,
    queues: HashMap<Box<[u8]>, HashMap<i32, Seen>>,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) first: Option<u64>,
}

impl Census {
    pub(super) fn new(kinds: TopicKinds) -> Self {
        Self { kinds, ..Self::default() }
    }

    pub(super) fn see(&mut self, view: &MessageView<'_>) {
        self.messages += 1;
        self.bytes += u64::from(view.store_size());
        self.first.get_or_insert(at_least_0(view.physical_offset()));
        let transaction = sys_flag::transaction(view.sys_flag());
        if !matches!(transaction, Transaction::None | Transaction::Commit) {
            return;
        }
        let topic = view.topic();
        let indexed = properties::indexed(view.raw_properties());
        if sys_flag::is_inner_batch(view.sys_flag()) {
            self.kinds.insert(topic.into(), QueueKind::Batch);
        }
        let kind = self.kinds.get(topic).copied().unwrap_or_default();
        let alone = InnerRange { base_queue_offset: view.queue_offset(), message_count: 1 };
        let range = match kind {
            QueueKind::Plain => alone,
            QueueKind::Batch => batch::inner_range(&indexed, view.queue_offset()).unwrap_or(alone),
        };
        let stands_in = kind == QueueKind::Plain && !has_no_stand_ins(topic);
        self.see_in(topic, view.queue_id(), (kind, stands_in), range);
        for (name, id, number) in lmq::pairs(&DispatchRequest::of(view)) {
            let range = InnerRange { base_queue_offset: number, message_count: 1 };
            self.see_in(name, id, (QueueKind::Plain, false), range);
        }
    }

    fn see_in(
        &mut self,
        topic: &[u8],
        queue_id: i32,
        (kind, stands_in): (QueueKind, bool),
        range: InnerRange,
    ) {
        let at = range.base_queue_offset;
        let end = at.saturating_add(i64::from(range.message_count));
        if !self.queues.contains_key(topic) {
            self.queues.insert(topic.into(), HashMap::new());
        }
        let Some(queues) = self.queues.get_mut(topic) else { return };
        match queues.get_mut(&queue_id) {
            None => {
                let (first, next) = (at, end);
                let seen = Seen { first, next, missing: 0, stand_ins: 0, broken: false };
                queues.insert(queue_id, seen);
            }
            Some(seen) => {
                let gap = at_least_0(at.saturating_sub(seen.next));
                seen.missing = seen.missing.saturating_add(gap);
                // Entries of a batch queue state their own numbers.
                let is_gap = gap > 0 && kind == QueueKind::Plain && !stands_in;
                seen.broken |= at < seen.next || is_gap;
                seen.stand_ins += if stands_in { gap } else { 0 };
                seen.next = seen.next.max(end);
            }
        }
    }

    pub(super) fn queues(&self) -> u64 {
        self.queues.values().map(|queues| queues.len() as u64).sum()
    }

    /// Missing queue offsets between a queue's first and last.
    pub(super) fn missing(&self) -> u64 {
        let all = self.queues.values().flat_map(HashMap::values);
        all.fold(0, |sum, seen| sum.saturating_add(seen.missing))
    }

    /// Gives up the numbers of the queues with the widest gaps, where they need too many stand-ins;
    /// returns how many all need.
    pub(super) fn limit_stand_ins(&mut self) -> u64 {
        let all = self.queues.values_mut().flat_map(HashMap::values_mut);
        let mut kept: Vec<_> = all.filter(|seen| !seen.broken).collect();
        kept.sort_unstable_by_key(|seen| seen.stand_ins);
        let mut sum = 0_u64;
        for seen in kept {
            let more = sum.saturating_add(seen.stand_ins);
            seen.broken = more > most_stand_ins(self.messages);
            sum = if seen.broken { sum } else { more };
        }
        sum
    }

    pub(super) fn broken(&self) -> Vec<QueueName> {
        let mut broken: Vec<QueueName> = Vec::new();
        for (topic, queues) in &self.queues {
            let of_topic = queues.iter().filter(|(_, seen)| seen.broken);
            broken.extend(of_topic.map(|(queue_id, _)| (topic.clone(), *queue_id)));
        }
        broken.sort();
        broken
    }

    pub(super) fn begins_late(&self) -> bool {
        self.queues.values().flat_map(HashMap::values).any(|seen| seen.first > 0)
    }
}
