//! Counts lost messages: queue entries that lead to no whole message.

use crate::error::Result;
use crate::format::width::{clamp_u64, saturating_i64};
use crate::store::queue_table::QueueTable;
use crate::store::read::missing_end::MissingEnd;

const MOST_QUEUES: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) after_ms: Option<i64>,
    pub(super) before_ms: Option<i64>,
}

/// Lost messages of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostInQueue {
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue_id: i32,
    /// Number.
    pub messages: u64,
    /// First queue offset.
    pub first: i64,
    /// Last queue offset.
    pub last: i64,
}

/// Lost messages of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Number.
    pub messages: u64,
    /// The first thousand queues.
    pub queues: Vec<LostInQueue>,
    /// Store time before them.
    pub from_ms: Option<i64>,
    /// Store time behind them.
    pub to_ms: Option<i64>,
}

pub(super) fn count(
    queues: &QueueTable,
    gaps: &[Gap],
    missing: Option<&MissingEnd>,
) -> Result<Lost> {
    let mut lost = Lost::default();
    let first = gaps.first().map(|gap| gap.from).into_iter().chain(missing.map(|end| end.from));
    let Some(first) = first.min() else { return Ok(lost) };
    let end = missing.map_or(u64::MAX, |missing| missing.from);
    for queue in queues.all() {
        if queue.reach() < saturating_i64(first) {
            continue;
        }
        let mut found: Option<LostInQueue> = None;
        queue.each_unit(|unit| {
            let Ok(place) = u64::try_from(unit.physical_offset) else { return };
            if unit.store_size <= 0 {
                return;
            }
            let behind = gaps.partition_point(|gap| gap.from <= place);
            let gap = behind.checked_sub(1).and_then(|at| gaps.get(at));
            let gap = gap.filter(|gap| place < gap.to);
            if gap.is_none() && place < end {
                return;
            }
            if let Some(gap) = gap.or(gaps.last().filter(|_| place >= end)) {
                lost.from_ms = [lost.from_ms, gap.after_ms].into_iter().flatten().min();
                lost.to_ms = lost.to_ms.max(gap.before_ms);
            }
            let of_queue = found.get_or_insert_with(|| LostInQueue {
                topic: String::from_utf8_lossy(queue.topic()).into_owned(),
                queue_id: queue.queue_id(),
                messages: 0,
                first: unit.number,
                last: unit.number,
            });
            of_queue.messages += clamp_u64(unit.count.max(1));
            of_queue.last = unit.number;
        })?;
        if let Some(found) = found {
            lost.messages += found.messages;
            if lost.queues.len() < MOST_QUEUES {
                lost.queues.push(found);
            }
        }
    }
    lost.queues.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
    lost.messages = lost.messages.max(missing.map_or(0, MissingEnd::messages));
    Ok(lost)
}
