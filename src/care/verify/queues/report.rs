//! Reports messages without an entry, and numbers that two messages have.

use std::sync::atomic::Ordering;

use super::{Missing, Queue, Queues};
use crate::care::finding::{Code, Severity};
use crate::care::verify::context::{Context, State};
use crate::care::verify::tables::Tables;
use crate::files::FileRun;
use crate::format::queue::batch::InnerRange;
use crate::format::queue::consume_queue::dispatch_tags_code;
use crate::format::width::at_least_0;
use crate::log::{CqUnit, QueueKind};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;

#[inline]
pub(in crate::care::verify) fn tags_code(cx: &Context<'_>, request: &DispatchRequest<'_>) -> i64 {
    dispatch_tags_code(
        request.topic,
        &request.properties,
        request.store_timestamp_ms,
        &cx.config.message_delay_level,
    )
}

pub(in crate::care::verify) fn is_range(unit: &CqUnit, range: InnerRange) -> bool {
    (unit.number, unit.count) == (range.base_queue_offset, range.message_count)
}

pub(in crate::care::verify) fn is_of(queue: &Queue, request: &DispatchRequest<'_>) -> bool {
    *request.topic == *queue.topic && request.queue_id == queue.id && request.is_queued()
}

#[cold]
pub(in crate::care::verify) fn miss(
    queues: &Queues,
    topic: &[u8],
    id: i32,
    queue: Option<&Queue>,
    number: i64,
    request: &DispatchRequest<'_>,
) {
    let behind = queue.is_none_or(|queue| number >= queue.end);
    let at = at_least_0(request.physical_offset);
    queues.miss(topic, id, |missing: &mut Missing| {
        missing.place = missing.place.min(at);
        if behind {
            missing.behind += 1;
            missing.oldest_ms = missing.oldest_ms.min(request.store_timestamp_ms);
            let (least, most) = missing.numbers.unwrap_or((number, number));
            missing.numbers = Some((least.min(number), most.max(number)));
        } else {
            missing.inside += 1;
        }
    });
}

#[cold]
pub(in crate::care::verify) fn tell_twice(
    cx: &Context<'_>,
    log: &FileRun,
    queue: &Queue,
    number: i64,
    leads: u64,
    request: &DispatchRequest<'_>,
) {
    let at = at_least_0(request.physical_offset);
    let file = log.find(at);
    let path = file.as_ref().map(|file| file.path.clone()).unwrap_or_default();
    let offset = file.map_or(0, |file| at - file.base_offset);
    let expected = format!(
        "one message with number {number} in queue {} of {}",
        queue.id,
        String::from_utf8_lossy(&queue.topic)
    );
    let found = format!("a second one; the queue leads to the one at {leads}");
    let severity = Severity::Warning;
    cx.findings.add(Code::LogTwice, severity, &path, Some(offset), expected, found);
}

/// Reports queues that RocketMQ went on filling though numbers were left out. Light queues have no
/// other numbers than their entries.
pub(in crate::care::verify) fn report_shifted(cx: &Context<'_>, queues: &Queues) {
    for queue in queues.list.iter().filter(|queue| !queue.topic.starts_with(lmq::PREFIX)) {
        let Some((first, most, count)) = *queue.shifted.lock() else { continue };
        let (path, offset) = queue.spot(first);
        // One message alone claims a number that the queue never reached.
        let beyond = first.saturating_add(2)..=first.saturating_add(most);
        let (code, severity) = match count == 1 && beyond.contains(&queue.end) {
            true => (Code::QueueOther, Severity::Error),
            false => (Code::QueueShifted, Severity::Warning),
        };
        let found = format!("{count} messages from entry {first} on, shifted by {most}");
        let expected = "each message in the entry of its number";
        cx.findings.add(code, severity, &path, Some(offset), expected, found);
    }
}

/// Reports messages without entries, after the whole walk. Messages up to `trusted_ms` were
/// dispatched even if the store was not closed; a deleted topic needs no queue. If the log `grew`,
/// numbers may be missing.
pub(in crate::care::verify) fn report_missing(
    cx: &Context<'_>,
    queues: &Queues,
    tables: &Tables,
    trusted_ms: i64,
    grew: bool,
) {
    let (mut tail, mut tail_from) = (queues.missing_elsewhere.load(Ordering::Relaxed), u64::MAX);
    for ((topic, id), missing) in queues.take_missing() {
        let kind = queues.kind_of(&topic);
        let queue = queues.number_of(kind, &topic, id).and_then(|number| queues.get(number));
        let end = queue.map_or(0, |queue| queue.end);
        let below = cx.paths.root().join(kind.folder());
        let dir = below.join(&*String::from_utf8_lossy(&topic)).join(id.to_string());
        let behind = missing.behind;
        let late = cx.state == State::Closed || missing.oldest_ms <= trusted_ms;
        let lost = missing.inside + if late { behind } else { 0 };
        if lost > 0 {
            let expected = format!("entries of {lost} more messages");
            let deleted = queue.is_none() && tables.has_deleted(cx, &topic);
            let (severity, why) = match deleted {
                true => (Severity::Info, "topics.json does not have the topic".to_owned()),
                false => (Severity::Error, format!("the queue ends at {end}")),
            };
            let found = format!(
                "none; the first of these lies at physical offset {}, {why}",
                missing.place
            );
            cx.findings.add(Code::QueueMissing, severity, &dir, None, expected, found);
        } else {
            tail += behind;
            tail_from = tail_from.min(missing.place);
        }
        let span = missing.numbers.map(|(least, most)| {
            let count = at_least_0(most.saturating_sub(least)).saturating_add(1);
            (least, most, count)
        });
        if let Some((least, most, count)) = span
            && kind == QueueKind::Plain
            && (count != behind || (end > 0 && least != end))
        {
            let expected =
                format!("{behind} numbers from {} on", if end > 0 { end } else { least });
            let found = format!("numbers from {least} to {most}");
            let severity = if grew { Severity::Info } else { Severity::Warning };
            cx.findings.add(Code::LogNumber, severity, &dir, None, expected, found);
        }
    }
    if tail > 0 {
        let found = match tail_from {
            u64::MAX => format!("{tail} messages that are in none"),
            from => format!("{tail} messages from physical offset {from} on that are in none"),
        };
        let dir = cx.paths.consume_queue();
        let expected = "every message in its queue";
        cx.findings.add(Code::QueueTail, Severity::Info, &dir, None, expected, found);
    }
}
