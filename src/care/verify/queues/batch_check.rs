//! Checks records that are batches, and finds their entries.
//!
//! An entry's position does not tell its number, so a record's entry is searched by physical offset
//! and by number, in case one is damaged.

use super::queue_check::Window;
use super::{Queue, Queues};
use crate::error::{CorruptionKind, FormatError, Result};
use crate::files::FileRun;
use crate::format::body;
use crate::format::message::{Frame, read_frame};
use crate::format::queue::batch;
use crate::format::width::{at_least_0, at_most_i64};
use crate::log::read::frames::Record;
use crate::log::{CqUnit, QueueKind};
use crate::store::dispatch::dispatcher::DispatchRequest;

const MOST_BODY: usize = 64 << 20;

/// Compares a batch's statements with its messages; positions count from the record's first
/// byte.
#[cold]
pub(in crate::care::verify) fn check_record(
    queues: &Queues,
    log: &FileRun,
    record: &Record<'_>,
    request: &DispatchRequest<'_>,
    is_batch: bool,
) -> Result<Option<FormatError>> {
    if !is_batch && queues.kind_of(request.topic) == QueueKind::Plain {
        return Ok(None);
    }
    let range = match batch::inner_range(&request.properties, request.queue_offset) {
        Ok(range) if is_batch => range,
        other => return Ok(other.err()),
    };
    let count = match messages_in(log, record)? {
        Ok(count) => count,
        Err(error) => return Ok(Some(FormatError { position: 0, ..error })),
    };
    Ok((count != i64::from(range.message_count)).then(|| {
        let expected = format!("{} messages in the body", range.message_count);
        FormatError::new(CorruptionKind::Batch, 0, expected, count.to_string())
    }))
}

fn messages_in(
    log: &FileRun,
    record: &Record<'_>,
) -> Result<std::result::Result<i64, FormatError>> {
    // The walk leaves out a large record's body.
    let mut whole = vec![0; if record.is_elided { record.size as usize } else { 0 }];
    let place = at_least_0(record.view.physical_offset());
    let read = log.read_at(&mut whole, place)?;
    let view = match read_frame(whole.get(..read).unwrap_or_default()) {
        Ok(Frame::Message(view)) => view,
        _ => record.view,
    };
    let body = match body::decompress(view.body(), view.sys_flag(), MOST_BODY) {
        Ok(body) => body,
        Err(error) => return Ok(Err(error.into())),
    };
    Ok(batch::items(&body).try_fold(0, |count, item| item.map(|_| count + 1)))
}

/// Entry of a record, if any.
pub(super) enum Has {
    Entry(i64, CqUnit),
    /// The entry of another record with that number.
    Other(CqUnit),
    Broken,
    Nothing,
}

/// Searches the entry of the record at `physical_offset` whose first message has `number`, and
/// keeps at most so many `entries` behind it.
pub(super) fn find(
    queue: &Queue,
    window: &mut Window,
    entries: usize,
    physical_offset: i64,
    number: i64,
) -> Result<Has> {
    if let Some((place, unit)) = window.find(physical_offset) {
        return Ok(Has::Entry(place, unit));
    }
    let by_place = first_not(queue, |unit| unit.physical_offset < physical_offset)?;
    window.read(queue, by_place, entries)?;
    if window.find(physical_offset).is_none() {
        let by_number = first_not(queue, |unit| unit.end() <= number)?;
        window.read(queue, by_number, entries)?;
    }
    Ok(match (window.find(physical_offset), window.units().next()) {
        (Some((place, unit)), _) => Has::Entry(place, unit),
        (None, Some(first)) if first.is_valid() && first.number == number => Has::Other(first),
        // An invalid entry between its neighbours.
        (None, Some(first)) if !first.is_valid() && number < queue.end => Has::Broken,
        (None, _) => Has::Nothing,
    })
}

fn first_not(queue: &Queue, before: impl Fn(&CqUnit) -> bool) -> Result<i64> {
    let entries = &queue.entries;
    let place =
        entries.first_not(entries.places(), |unit| unit.is_valid().then(|| before(unit)))?;
    Ok(at_most_i64(place))
}
