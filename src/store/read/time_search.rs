//! Finds the queue offset for a time (`ConsumeQueue.getOffsetInQueueByTime`).

use crate::error::Result;
use crate::log::{CommitLog, QueueKind};
use crate::time::is_far_outside;

use super::view::queue_view::QueueView;

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
    let Some(unit) = view.unit(number)? else { return Ok(None) };
    let (Ok(at), Ok(size)) =
        (u64::try_from(unit.physical_offset), usize::try_from(unit.store_size))
    else {
        return Ok(None);
    };
    log.store_timestamp_ms(at, size)
}
