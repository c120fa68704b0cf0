//! Light message queues: one record with entries in several queues (`CommitLog.MultiDispatch`,
//! `ConsumeQueue.multiDispatchLmqQueue`).
//!
//! The producer names the queues in `INNER_MULTI_DISPATCH`; the store adds the queue offsets as
//! `INNER_MULTI_QUEUE_OFFSET`, in that order.

use std::sync::Arc;

use crate::error::{Error, PutStatus, Result};
use crate::format::message::properties::{self, Indexed, names};
use crate::format::message::purpose::DEAD_LETTER_PREFIX;
use crate::format::queue::consume_queue::SCHEDULE_TOPIC;
use crate::format::queue::names::names_a_folder;
use crate::format::release::Release;
use crate::log::Queue;

use crate::store::queue_table::QueueTable;

/// Prefix of light queues (`MixAll.LMQ_PREFIX`).
pub const PREFIX: &[u8] = b"%LMQ%";

fn is_exempt(topic: &[u8]) -> bool {
    topic.starts_with(b"%RETRY%") || topic.starts_with(b"rmq_sys_") || topic == SCHEDULE_TOPIC
}

fn is_name(name: &[u8]) -> bool {
    name.starts_with(PREFIX) && names_a_folder(name)
}

/// Additional queues of a record, with its queue offsets (`MultiDispatchUtils`,
/// `ConsumeQueue.multiDispatchLmqQueue`). Invalid names are skipped.
pub fn pairs<'a>(
    topic: &[u8],
    properties: &Indexed<'a>,
) -> impl Iterator<Item = (&'a [u8], i64)> + use<'a> {
    let (queues, numbers) = match (properties.multi_dispatch, properties.multi_queue_offset) {
        (Some(queues), Some(numbers)) if !is_exempt(topic) => (queues, numbers),
        _ => (&[][..], &[][..]),
    };
    let split = |text: &'a [u8]| text.split(|&byte| byte == b',');
    split(queues).zip(split(numbers)).filter_map(|(name, number)| {
        let number: i64 = std::str::from_utf8(number).ok()?.parse().ok()?;
        (is_name(name) && number >= 0).then_some((name, number))
    })
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
        Some(bad) => Err(Error::InvalidMessage {
            field: "properties",
            reason: format!(
                "INNER_MULTI_DISPATCH names {:?}, which is no %LMQ% queue",
                String::from_utf8_lossy(bad)
            ),
            status: PutStatus::MessageIllegal,
            limit: None,
        }),
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

    #[test]
    fn a_bad_name_or_number_stops_only_itself() {
        let raw = raw("%LMQ%a,plain,%LMQ%b,%LMQ%x/y,%LMQ%c,%LMQ%d", "1,,2,3,x,4");
        let pairs: Vec<_> = pairs(b"T", &properties::indexed(&raw)).collect();
        assert_eq!(pairs, [(&b"%LMQ%a"[..], 1), (b"%LMQ%b", 2), (b"%LMQ%d", 4)]);
    }

    #[test]
    fn exempt_topics_have_no_queue_but_their_own() {
        let raw = raw("%LMQ%a", "1");
        for topic in [&b"%RETRY%g"[..], b"rmq_sys_x", b"SCHEDULE_TOPIC_XXXX"] {
            assert_eq!(pairs(topic, &properties::indexed(&raw)).count(), 0);
            assert!(queues_of(topic, &raw, None).unwrap().is_empty());
        }
        // Each release enters a dead letter with numbers; 5.5 gives it none.
        assert_eq!(pairs(b"%DLQ%g", &properties::indexed(&raw)).count(), 1);
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
