//! Merges records from several files in log order, removes duplicates, and counts queue offsets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;
use std::sync::Arc;

use hashbrown::HashMap;

use super::carve::{Extent, Window};
use crate::care::transfer::{QueueName, has_no_stand_ins, most_stand_ins};
use crate::error::{Error, Result};
use crate::files::StorageFile;
use crate::format::message::{Frame, MessageView, read_frame, sys_flag};
use crate::format::queue::batch::InnerRange;
use crate::format::width::clamp_u64;
use crate::log::QueueKind;
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;
use crate::store::queue_table::TopicKinds;

const MOST_CONFLICTS: usize = 1_000;

#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn StorageFile>,
}

/// Two different messages with one physical offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Their offset.
    pub physical_offset: u64,
    /// File and position of the first.
    pub first: (PathBuf, u64),
    /// File and position of the second.
    pub second: (PathBuf, u64),
}

/// Result of merging.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Messages found again.
    pub duplicates: u64,
    /// Different messages with an offset already taken.
    pub conflicts: u64,
    /// First conflicts.
    pub listed: Vec<Conflict>,
    /// Messages that begin inside their predecessor.
    pub overlapping: u64,
}

/// Next record of an extent: physical offset, extent, position in the file.
type Next = Reverse<(u64, usize, u64)>;

/// Passes each message once to `take`, by physical offset; conflicting ones follow each other.
pub(super) fn merge(
    sources: &[Source],
    extents: &[Extent],
    take: &mut dyn FnMut(&MessageView<'_>) -> Result<()>,
) -> Result<Merged> {
    let mut windows = Vec::with_capacity(sources.len());
    for source in sources {
        windows.push((Window::new(&*source.file, &source.path)?, source));
    }
    let mut order: Vec<_> = extents.iter().enumerate().collect();
    order.sort_by_key(|(_, extent)| (extent.physical_offset, extent.source));
    let mut waiting = order.into_iter().peekable();
    let mut heap: BinaryHeap<Next> = BinaryHeap::new();
    let mut merged = Merged::default();
    let mut end = 0;
    loop {
        // Extents enter the heap when it is their turn, so it holds only overlapping ones.
        while let Some((at, extent)) = waiting.next_if(|(_, extent)| {
            heap.peek().is_none_or(|Reverse((place, ..))| extent.physical_offset <= *place)
        }) {
            heap.push(Reverse((extent.physical_offset, at, extent.start)));
        }
        let Some(Reverse((place, _, _))) = heap.peek().copied() else { break };
        let mut kept: Vec<(Vec<u8>, (PathBuf, u64))> = Vec::new();
        while let Some(Reverse((next, at, position))) = heap.peek().copied()
            && next == place
        {
            heap.pop();
            let Some(extent) = extents.get(at) else { continue };
            let which = extent.source as usize;
            let Some((window, source)) = windows.get_mut(which) else { continue };
            let Some(view) = window.record(position)? else {
                return Err(changed(source, position));
            };
            let after = position + u64::from(view.store_size());
            if kept.iter().any(|(bytes, _)| bytes == view.as_bytes()) {
                merged.duplicates += 1;
            } else {
                let lies = (source.path.clone(), position);
                if let Some((_, first)) = kept.first() {
                    merged.conflicts += 1;
                    if merged.listed.len() < MOST_CONFLICTS {
                        let (first, second) = (first.clone(), lies.clone());
                        merged.listed.push(Conflict { physical_offset: place, first, second });
                    }
                }
                kept.push((view.as_bytes().to_vec(), lies));
            }
            if after < extent.end {
                heap.push(Reverse((place + (after - position), at, after)));
            }
        }
        if place < end {
            merged.overlapping += 1;
        }
        for (bytes, _) in &kept {
            if let Ok(Frame::Message(view)) = read_frame(bytes) {
                end = end.max(place + u64::from(view.store_size()));
                take(&view)?;
            }
        }
    }
    Ok(merged)
}

fn changed(source: &Source, position: u64) -> Error {
    let text =
        format!("the message at byte {position} is gone: the file changed while it was read");
    Error::io("read", &source.path)(std::io::Error::other(text))
}

#[derive(Clone, Copy, Debug)]
struct QueueCensus {
    first: i64,
    next: i64,
    missing: u64,
    stand_ins: u64,
    /// Whether RocketMQ could not serve it unchanged.
    broken: bool,
}

#[derive(Debug, Default)]
pub(super) struct Census {
    kinds: TopicKinds,
    queues: HashMap<Vec<u8>, HashMap<i32, QueueCensus>>,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) first: Option<u64>,
}

impl Census {
    pub(super) fn new(kinds: TopicKinds) -> Self {
        Self { kinds, ..Self::default() }
    }

    pub(super) fn add(&mut self, view: &MessageView<'_>) {
        self.messages += 1;
        self.bytes += u64::from(view.store_size());
        self.first.get_or_insert(clamp_u64(view.physical_offset()));
        let request = DispatchRequest::of(view);
        if !request.is_queued() {
            return;
        }
        let topic = request.topic;
        if sys_flag::is_inner_batch(view.sys_flag()) {
            self.kinds.insert(topic.into(), QueueKind::Batch);
        }
        let kind = self.kinds.get(topic).copied().unwrap_or_default();
        let stands_in = kind == QueueKind::Plain && !has_no_stand_ins(topic);
        self.add_to(topic, request.queue_id, (kind, stands_in), request.range(kind));
        for (name, id, number) in lmq::pairs(&request) {
            let range = InnerRange { base_queue_offset: number, message_count: 1 };
            self.add_to(name, id, (QueueKind::Plain, false), range);
        }
    }

    fn add_to(
        &mut self,
        topic: &[u8],
        queue_id: i32,
        (kind, stands_in): (QueueKind, bool),
        range: InnerRange,
    ) {
        let at = range.base_queue_offset;
        let end = at.saturating_add(i64::from(range.message_count));
        let new = QueueCensus { first: at, next: at, missing: 0, stand_ins: 0, broken: false };
        let seen = self.queues.entry_ref(topic).or_default().entry(queue_id).or_insert(new);
        let gap = clamp_u64(at.saturating_sub(seen.next));
        seen.missing = seen.missing.saturating_add(gap);
        // Entries of a batch queue state their own numbers.
        let is_gap = gap > 0 && kind == QueueKind::Plain && !stands_in;
        seen.broken |= at < seen.next || is_gap;
        seen.stand_ins += if stands_in { gap } else { 0 };
        seen.next = seen.next.max(end);
    }

    pub(super) fn queues(&self) -> u64 {
        self.queues.values().map(|queues| queues.len() as u64).sum()
    }

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
            broken.extend(of_topic.map(|(queue_id, _)| (topic.as_slice().into(), *queue_id)));
        }
        broken.sort();
        broken
    }

    pub(super) fn begins_late(&self) -> bool {
        self.queues.values().flat_map(HashMap::values).any(|seen| seen.first > 0)
    }
}
