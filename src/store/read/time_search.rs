//! The queue offset that belongs to a time (`ConsumeQueue.getOffsetInQueueByTime`).

use crate::error::Result;
use crate::log::queue::Unit;
use crate::log::{CommitLog, QueueKind};
use crate::time::is_far_outside;

use super::queue_view::QueueView;

/// Which of the messages around a time is meant (`org.apache.rocketmq.common.BoundaryType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// The first stored at or after it; where all are earlier, one past the last, or in a queue of
    /// batches the first of the last batch.
    Lower,
    /// The last stored at or before it; the first where all are later.
    Upper,
}

/// The queue offset for `timestamp_ms`; 0 for a queue that never had a message. Store times are
/// taken to rise along the queue; one that lies far outside of both of its neighbours' leads nowhere.
///
/// # Errors
/// [`crate::Error::Io`] when the system cannot read.
pub fn offset_at(
    log: &CommitLog,
    view: Option<&QueueView>,
    timestamp_ms: i64,
    boundary: Boundary,
) -> Result<i64> {
    let Some(view) = view.filter(|view| view.max_offset > 0) else { return Ok(0) };
    let (min, max) = (view.min_offset, view.max_offset);
    // The first entry behind the bound: stored at or after the time, or after it.
    let (mut low, mut high) = (min, max);
    // The times found on both sides so far; none at first.
    let mut known = (None, None);
    while low < high {
        let middle = low + (high - low) / 2;
        let time = counting_at(log, view, middle, boundary, known)?;
        let before = match time {
            Some(time) => match boundary {
                Boundary::Lower => time < timestamp_ms,
                Boundary::Upper => time <= timestamp_ms,
            },
            // What the log no longer holds is older than what it holds.
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
        // Behind the last batch RocketMQ answers that batch itself.
        Boundary::Lower if low == max && view.kind == QueueKind::Batch => (max - 1).max(min),
        Boundary::Lower => return Ok(low),
        Boundary::Upper => (low - 1).max(min),
    };
    // All messages of a batch have one time, so the first of them is meant.
    match view.kind {
        QueueKind::Plain => Ok(found),
        QueueKind::Batch => Ok(view.unit(found)?.map_or(found, |unit| unit.number)),
    }
}

/// The store time that a search goes by at `number`: its message's own, or where that one lies far outside
/// of both of its neighbours', the time of the neighbour with which it is not the one that is sought. A
/// time between those `known` is as it should be.
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

/// The store time of the message of that number, `None` where it cannot be read.
///
/// # Errors
/// [`crate::Error::Io`] when the system cannot read.
pub fn stored_at(log: &CommitLog, view: &QueueView, number: i64) -> Result<Option<i64>> {
    let Some(Unit { entry, .. }) = view.unit(number)? else { return Ok(None) };
    let (Ok(at), Ok(size)) =
        (u64::try_from(entry.physical_offset), usize::try_from(entry.store_size))
    else {
        return Ok(None);
    };
    log.store_timestamp_ms(at, size)
}
