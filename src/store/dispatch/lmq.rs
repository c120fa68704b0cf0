//! Light message queues: one record with entries in several queues (`CommitLog.MultiDispatch`,
//! `ConsumeQueue.multiDispatchLmqQueue`).
//!
//! The producer names the queues in `INNER_MULTI_DISPATCH`; the store adds the queue offsets as
//! `INNER_MULTI_QUEUE_OFFSET`, in that order.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::message::properties::{self, Indexed, names};
use crate::format::message::purpose::DEAD_LETTER_PREFIX;
use crate::format::queue::consume_queue::SCHEDULE_TOPIC;
use crate::format::queue::names_a_folder;
use crate::format::release::Release;
use crate::log::Queue;
use crate::log::queue::unit::DispatchRequest;

use crate::store::queue_table::QueueTable;

/// Prefix of light queues (`MixAll.LMQ_PREFIX`).
pub const PREFIX: &[u8] = b"%LMQ%";

fn is_exempt(topic: &[u8]) -> bool {
    topic.starts_with(b"%RETRY%") || topic.starts_with(b"rmq_sys_") || topic == SCHEDULE_TOPIC
}

fn is_name(name: &[u8]) -> bool {
    name.starts_with(PREFIX) && names_a_folder(name)
}

/// The lists of a record as RocketMQ splits them: names with their numbers, none if there are more
/// of one than of the other. A name with a slash is skipped.
fn listed<'a>(
    topic: &[u8],
    properties: &Indexed<'a>,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
    let split = |text: &'a [u8]| {
        let last = text.iter().rposition(|&byte| byte != b',');
        let text = last.and_then(|last| text.get(..=last)).unwrap_or_default();
        text.split(|&byte| byte == b',').skip(usize::from(text.is_empty()))
    };
    let is_blank = |text: &[u8]| text.trim_ascii().is_empty();
    let (queues, numbers) = match (properties.multi_dispatch, properties.multi_queue_offset) {
        (Some(queues), Some(numbers))
            if !is_exempt(topic)
                && !is_blank(queues)
                && !is_blank(numbers)
                && split(queues).count() == split(numbers).count() =>
        {
            (queues, numbers)
        }
        _ => (&[][..], &[][..]),
    };
    split(queues).zip(split(numbers)).filter(|(name, _)| !name.contains(&b'/'))
}

fn number_of(text: &[u8]) -> Option<i64> {
    let number = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(number).filter(|number| *number >= 0)
}

/// Additional queues of a record, with its queue offsets (`MultiDispatchUtils`,
/// `ConsumeQueue.multiDispatchLmqQueue`). A name without the prefix is a topic, with a queue of the
/// record's own number.
pub fn pairs<'a>(
    request: &DispatchRequest<'a>,
) -> impl Iterator<Item = (&'a [u8], i32, i64)> + use<'a> {
    let queue_id = request.queue_id;
    listed(request.topic, &request.properties)
        .map_while(|(name, text)| Some((name, number_of(text)?)))
        .filter(|(name, _)| names_a_folder(name))
        .map(move |(name, number)| {
            (name, if name.starts_with(PREFIX) { 0 } else { queue_id }, number)
        })
}

/// The text of a queue offset at which RocketMQ's dispatch ends for good.
#[must_use]
pub fn end_of_dispatch<'a>(request: &DispatchRequest<'a>) -> Option<&'a [u8]> {
    let mut listed = listed(request.topic, &request.properties);
    listed.find(|(_, text)| number_of(text).is_none()).map(|(_, text)| text)
}

/// Whether an additional queue gets entries: the settings say so, or the light queue is there.
#[must_use]
pub fn is_taken(queues: &QueueTable, name: &[u8], queue_id: i32) -> bool {
    queues.takes_more_queues() || name.starts_with(PREFIX) && queues.get(name, queue_id).is_some()
}

/// Additional queues of a new message; from 5.5 on a dead letter has none
/// (`MixAll.topicAllowsLMQ`).
///
/// # Errors
/// [`Error::InvalidMessage`] for an invalid name, which would stop a broker's dispatch for
/// good.
pub fn queues_of<'a>(
    topic: &[u8],
    properties: &'a [u8],
    release: Option<Release>,
) -> Result<Vec<&'a [u8]>> {
    let is_dead_letter = topic.starts_with(DEAD_LETTER_PREFIX);
    if is_exempt(topic) || is_dead_letter && release >= Some(Release::V5_5) {
        return Ok(Vec::new());
    }
    let Some(queues) = properties::get(properties, names::INNER_MULTI_DISPATCH) else {
        return Ok(Vec::new());
    };
    let queues: Vec<_> = queues.split(|&byte| byte == b',').collect();
    match queues.iter().find(|name| !is_name(name)) {
        Some(bad) => Err(Error::argument(
            "properties",
            "names of %LMQ% queues in INNER_MULTI_DISPATCH",
            format!("{:?}", String::from_utf8_lossy(bad)),
        )),
        None => Ok(queues),
    }
}

/// Properties with the queue offsets added; `WAIT` stays last, as in RocketMQ.
#[must_use]
pub fn with_numbers(raw: &[u8], queues: &[Arc<Queue>]) -> Vec<u8> {
    let wait = properties::get(raw, names::WAIT);
    let mut out = properties::without(raw, names::WAIT).into_owned();
    if out.last().is_some_and(|&last| last != properties::PROPERTY_SEPARATOR) {
        out.push(properties::PROPERTY_SEPARATOR);
    }
    let numbers: Vec<_> = queues.iter().map(|queue| queue.next_offset().to_string()).collect();
    properties::push(&mut out, names::INNER_MULTI_QUEUE_OFFSET, numbers.join(",").as_bytes());
    if let Some(wait) = wait {
        properties::push(&mut out, names::WAIT, wait);
    }
    out
}

pub fn find(names: &[&[u8]], queues: &QueueTable) -> Result<Vec<Arc<Queue>>> {
    names.iter().map(|name| queues.get_or_create(name, 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(queues: &str, numbers: &str) -> Vec<u8> {
        let mut out = Vec::new();
        properties::push(&mut out, names::INNER_MULTI_DISPATCH, queues.as_bytes());
        properties::push(&mut out, names::INNER_MULTI_QUEUE_OFFSET, numbers.as_bytes());
        out
    }

    fn request<'a>(topic: &'a [u8], raw: &'a [u8]) -> DispatchRequest<'a> {
        let properties = properties::indexed(raw);
        DispatchRequest { topic, queue_id: 3, properties, ..DispatchRequest::default() }
    }

    #[test]
    fn lists_are_read_as_rocketmq_reads_them() {
        let (a, b, both) = (&b"%LMQ%a"[..], &b"%LMQ%b"[..], "%LMQ%a,%LMQ%b");
        for (queues, numbers, expected, end) in [
            (both, "0,1", &[(a, 0, 0), (b, 0, 1)][..], None),
            (both, "0,1,,", &[(a, 0, 0), (b, 0, 1)], None),
            (both, "0", &[], None),
            (both, "0,", &[], None),
            (both, " ", &[], None),
            (",", ",", &[], None),
            ("%LMQ%a,plain", "+0,1", &[(a, 0, 0), (b"plain", 3, 1)], None),
            ("%LMQ%a,%LMQ%x/y,%LMQ%b", "0,z,1", &[(a, 0, 0), (b, 0, 1)], None),
            (both, ",0", &[], Some("")),
            (both, "0,z", &[(a, 0, 0)], Some("z")),
            ("%LMQ%a", " 0", &[], Some(" 0")),
            ("%LMQ%a", "-1", &[], Some("-1")),
        ] {
            let raw = raw(queues, numbers);
            let request = request(b"T", &raw);
            assert_eq!(pairs(&request).collect::<Vec<_>>(), expected, "{queues} {numbers}");
            assert_eq!(end_of_dispatch(&request), end.map(str::as_bytes), "{queues} {numbers}");
        }
    }

    #[test]
    fn exempt_topics_have_no_queue_but_their_own() {
        let raw = raw("%LMQ%a", "1");
        for topic in [&b"%RETRY%g"[..], b"rmq_sys_x", b"SCHEDULE_TOPIC_XXXX"] {
            assert_eq!(pairs(&request(topic, &raw)).count(), 0);
            assert!(queues_of(topic, &raw, None).unwrap().is_empty());
        }
        // Each release enters a dead letter with numbers; 5.5 gives it none.
        assert_eq!(pairs(&request(b"%DLQ%g", &raw)).count(), 1);
        for (release, count) in [(None, 1), (Some(Release::V5_4), 1), (Some(Release::V5_5), 0)] {
            assert_eq!(queues_of(b"%DLQ%g", &raw, release).unwrap().len(), count);
        }
    }

    #[test]
    fn a_new_message_with_a_bad_name_is_refused() {
        for bad in ["plain", "%LMQ%a,", "%LMQ%../x", "%LMQ%a,plain,%LMQ%b"] {
            let error = queues_of(b"T", &raw(bad, ""), None).unwrap_err().to_string();
            assert!(error.contains("INNER_MULTI_DISPATCH"), "{error}");
        }
    }
}
