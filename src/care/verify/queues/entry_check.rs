//! Compares each queue entry with the log, where the walk left some unmatched.

use super::report::{is_of, is_range};
use super::{Met, Queue, each_entry};
use crate::care::finding::{Code, Severity};
use crate::care::verify::context::{Context, State, Walked};
use crate::error::Result;
use crate::files::FileRun;
use crate::format::message::MessageView;
use crate::log::read::frames::probe;
use crate::log::{CqUnit, QueueKind};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::read::entry_search::points_back;

/// Checks whether each entry before the queue's end leads to its message.
pub(in crate::care::verify) fn check_entries(
    cx: &Context<'_>,
    queue: &Queue,
    log: &FileRun,
    walked: &Walked,
) -> Result<()> {
    let mut buffer = Vec::new();
    each_entry(cx, queue, |place, met| {
        let Met::Entry(unit) = met else { return Ok(()) };
        let Ok(at) = u64::try_from(unit.physical_offset) else { return Ok(()) };
        let is_behind = queue.kind() == QueueKind::Plain && place >= queue.end;
        if is_behind || at < walked.log_start || walked.is_damaged(at) {
            return Ok(());
        }
        let found = format!("entry {place} with physical offset {at}, size {}", unit.store_size);
        let wrong = if at >= walked.log_end {
            Some((Code::QueueNowhere, format!("an offset before {}", walked.log_end), found))
        } else {
            match probe(log, at, &mut buffer)? {
                // A missing file was reported.
                None if log.find(at).is_none() => None,
                None => Some((Code::QueueNowhere, "the beginning of a message".to_owned(), found)),
                Some((view, size)) => judge(queue, place, unit, found, &view, size),
            }
        };
        let Some((code, expected, found)) = wrong else { return Ok(()) };
        let (path, offset) = queue.spot(place);
        // A crash may leave entries of messages that were not flushed.
        let unclean = at >= walked.log_end && cx.state != State::Closed;
        let severity = if unclean { Severity::Warning } else { Severity::Error };
        cx.findings.add(code, severity, &path, Some(offset), expected, found);
        Ok(())
    })
}

/// Compares an entry with the message, without its body, to which it leads.
fn judge(
    queue: &Queue,
    place: i64,
    unit: &CqUnit,
    found: String,
    view: &MessageView<'_>,
    size: u32,
) -> Option<(Code, String, String)> {
    let (kind, topic) = (queue.kind(), String::from_utf8_lossy(&queue.topic));
    let other = String::from_utf8_lossy(view.topic());
    let request = DispatchRequest::of(view);
    let range = request.range(kind);
    match kind {
        QueueKind::Plain if !points_back(view, kind, &queue.topic, queue.id, unit) => {
            let (number, id) = (view.queue_offset(), view.queue_id());
            let found = format!("{found}, which is message {number} of queue {id} of {other}");
            let expected = format!("message {place} of queue {} of {topic}", queue.id);
            Some((Code::QueueOther, expected, found))
        }
        QueueKind::Batch if !is_of(queue, &request) => {
            let found = format!("{found}, of queue {} of {other}", request.queue_id);
            let expected = format!("a message of queue {} of {topic}", queue.id);
            Some((Code::QueueOther, expected, found))
        }
        _ if u32::try_from(unit.store_size) != Ok(size) => {
            Some((Code::QueueSize, format!("size {size}"), found))
        }
        QueueKind::Batch if !is_range(unit, range) => {
            let messages = |base: i64, count: i16| format!("{count} messages from {base} on");
            let found = messages(unit.number, unit.count);
            let expected = messages(range.base_queue_offset, range.message_count);
            Some((Code::BatchRange, expected, format!("entry {place} with {found}")))
        }
        _ => None,
    }
}
