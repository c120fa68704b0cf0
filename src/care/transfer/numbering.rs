//! Queue offsets of messages that move to another store, kept or new, and the corresponding
//! consumer offsets.

use std::collections::BTreeMap;
use std::ops::Range;

use hashbrown::{HashMap, HashSet};

use crate::error::{Error, Result};
use crate::format::message::Record;
use crate::format::message::properties::{self, Indexed, names};
use crate::format::message::purpose::Purpose;
use crate::format::message::sys_flag::{self, Transaction};
use crate::format::queue::batch::{self, InnerRange};
use crate::format::queue::{most_queue_id, names_a_folder};
use crate::log::QueueKind;
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;
use crate::store::queue_table::TopicKinds;

pub type QueueName = (Box<[u8]>, i32);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumberRule {
    #[default]
    Keep,
    CloseUp,
    FromZero,
}

#[derive(Debug, Default)]
pub struct Numbered {
    pub queue_offset: i64,
    pub missing: Range<i64>,
    pub properties: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub struct Numbering {
    rule: NumberRule,
    pub(super) closed_up: HashSet<QueueName>,
    kinds: TopicKinds,
    next: HashMap<Vec<u8>, HashMap<i32, i64>>,
    watched: HashMap<QueueName, Watched>,
    pub more_queues: bool,
    pub batch_topics: BTreeMap<Box<[u8]>, i32>,
}

#[derive(Debug, Default)]
struct Watched {
    places: Vec<(i64, Option<i64>)>,
    at: usize,
}

impl Numbering {
    /// A numbering by `rule`; `kinds` are the topics' queue kinds.
    #[must_use]
    pub fn new(rule: NumberRule, kinds: TopicKinds) -> Self {
        Self { rule, kinds, ..Self::default() }
    }

    /// Watches a queue offset. Called before the first message.
    pub fn watch(&mut self, topic: &[u8], queue_id: i32, queue_offset: i64) {
        let watched = self.watched.entry((topic.into(), queue_id)).or_default();
        if let Err(at) = watched.places.binary_search_by_key(&queue_offset, |(old, _)| *old) {
            watched.places.insert(at, (queue_offset, None));
        }
    }

    #[must_use]
    pub fn place(&self, topic: &[u8], queue_id: i32, queue_offset: i64) -> i64 {
        if self.rule_of(topic, queue_id) == NumberRule::Keep {
            return queue_offset;
        }
        let of_none = if self.rule == NumberRule::FromZero { 0 } else { queue_offset };
        self.watched
            .get(&(Box::from(topic), queue_id))
            .and_then(|watched| {
                let at = watched.places.binary_search_by_key(&queue_offset, |(old, _)| *old);
                watched.places.get(at.ok()?)?.1
            })
            .unwrap_or(of_none)
    }

    /// Rule of a queue. A broker's own topics get no stand-ins: it would act on them.
    fn rule_of(&self, topic: &[u8], queue_id: i32) -> NumberRule {
        let closes_up = || {
            let of_broker = has_no_stand_ins(topic);
            let named = !self.closed_up.is_empty()
                && self.closed_up.contains(&(Box::from(topic), queue_id));
            of_broker || named
        };
        if self.rule == NumberRule::Keep && closes_up() { NumberRule::CloseUp } else { self.rule }
    }

    /// Topics with messages, and their highest queue number.
    pub fn topics(&self) -> impl Iterator<Item = (&[u8], i32)> {
        self.next
            .iter()
            .map(|(topic, queues)| (&**topic, queues.keys().copied().max().unwrap_or(0)))
    }

    pub fn next(&mut self, topic: &[u8], queue_id: i32) -> i64 {
        self.next.get(topic).and_then(|queues| queues.get(&queue_id)).copied().unwrap_or(0)
    }

    pub fn number(&mut self, record: &Record<'_>) -> Numbered {
        let request = request_of(record);
        if !request.is_queued() {
            let queue_offset = record.queue_offset;
            return Numbered { queue_offset, ..Numbered::default() };
        }
        if sys_flag::is_inner_batch(record.sys_flag) {
            let queues = record.queue_id.saturating_add(1);
            let known = self.batch_topics.entry(record.topic.into()).or_insert(queues);
            *known = queues.max(*known);
            self.kinds.insert(record.topic.into(), QueueKind::Batch);
        }
        let kind = self.kinds.get(record.topic).copied().unwrap_or_default();
        let InnerRange { base_queue_offset: old, message_count } = request.range(kind);
        let (new, mut missing) =
            self.take(record.topic, record.queue_id, old, message_count.into());
        if kind == QueueKind::Batch {
            // Entries state their numbers, and a broker continues after a gap.
            missing = Range::default();
        }
        let mut changed = None;
        if new != old && request.properties.inner_base.is_some() {
            let new = |_: &[u8]| Some(new.to_string().into_bytes());
            changed =
                Some(properties::replaced(record.properties, names::INNER_BASE, new).into_owned());
        }
        if let Some(numbers) = self.number_more(&request) {
            let raw = changed.as_deref().unwrap_or(record.properties);
            let new = |_: &[u8]| Some(numbers.clone().into_bytes());
            let name = names::INNER_MULTI_QUEUE_OFFSET;
            changed = Some(properties::replaced(raw, name, new).into_owned());
        }
        let queue_offset = record.queue_offset.wrapping_add(new.wrapping_sub(old));
        Numbered { queue_offset, missing, properties: changed }
    }

    fn number_more(&mut self, request: &DispatchRequest<'_>) -> Option<String> {
        let Indexed { multi_dispatch, multi_queue_offset, .. } = request.properties;
        let (queues, numbers) = (multi_dispatch?, multi_queue_offset?);
        let known: HashMap<&[u8], (i32, i64)> =
            lmq::pairs(request).map(|(name, id, number)| (name, (id, number))).collect();
        self.more_queues |= !known.is_empty();
        let mut changed = false;
        let new: Vec<String> = queues
            .split(|byte| *byte == b',')
            .zip(numbers.split(|byte| *byte == b','))
            .map(|(name, text)| match known.get(name) {
                Some(&(id, old)) => {
                    let (new, _) = self.take(name, id, old, 1);
                    changed |= new != old;
                    new.to_string()
                }
                None => String::from_utf8_lossy(text).into_owned(),
            })
            .collect();
        changed.then(|| new.join(","))
    }

    /// New number of `old`, and the missing numbers before it.
    fn take(&mut self, topic: &[u8], queue_id: i32, old: i64, count: i64) -> (i64, Range<i64>) {
        let rule = self.rule_of(topic, queue_id);
        let queues = self.next.entry_ref(topic).or_default();
        let next = queues.get(&queue_id).copied();
        let new = match rule {
            NumberRule::Keep => old,
            NumberRule::CloseUp => next.unwrap_or(old.max(0)),
            NumberRule::FromZero => next.unwrap_or(0),
        };
        let end = new.saturating_add(count);
        queues.insert(queue_id, next.map_or(end, |next| next.max(end)));
        if rule != NumberRule::Keep && !self.watched.is_empty() {
            self.follow(topic, queue_id, old, new, count);
        }
        // Nothing is needed before a queue's first message.
        (new, next.unwrap_or(new)..new)
    }

    fn follow(&mut self, topic: &[u8], queue_id: i32, old: i64, new: i64, count: i64) {
        let Some(watched) = self.watched.get_mut(&(Box::from(topic), queue_id)) else { return };
        for at in watched.at..watched.places.len() {
            let Some((place, now)) = watched.places.get_mut(at) else { break };
            if *place <= old {
                now.get_or_insert(new);
                watched.at = at + 1;
            } else {
                *now = Some(new.saturating_add((*place - old).min(count)));
            }
        }
    }
}

/// Whether a broker would act on stand-ins of a topic.
pub fn has_no_stand_ins(topic: &[u8]) -> bool {
    matches!(
        Purpose::of(topic),
        Purpose::Half | Purpose::TransactionOp | Purpose::Delayed | Purpose::Timer
    )
}

/// The last millisecond of the year 9999: no clock shows a later time.
const MOST_TIME_MS: i64 = 253_402_300_799_999;
/// Half of the entries that a queue's files can address, so that as many can follow.
const MOST_QUEUE_OFFSET: i64 = i64::MAX / 20 / 2;

/// Ends of the queues, by the rows so far.
#[derive(Debug, Default)]
pub struct Ends {
    ends: HashMap<QueueName, i64>,
}

impl Ends {
    /// Takes the queue offsets of a row.
    ///
    /// # Errors
    /// [`Error::InvalidMessage`] for one that is not above those before it in its queue.
    pub fn take(&mut self, record: &Record<'_>) -> Result<()> {
        let transaction = sys_flag::transaction(record.sys_flag);
        if !matches!(transaction, Transaction::None | Transaction::Commit) {
            return Ok(()); // It is in no queue.
        }
        let range = range(record)?;
        let first = range.base_queue_offset;
        let end = self.ends.entry((record.topic.into(), record.queue_id)).or_insert(0);
        if first < *end {
            let topic = String::from_utf8_lossy(record.topic);
            let expected = format!(
                "{end} or more in queue {} of {topic:?} (each row once, in the order of the rows)",
                record.queue_id
            );
            return Err(Error::argument("queue_offset", expected, first));
        }
        *end = first.saturating_add(range.message_count.into());
        Ok(())
    }
}

/// Checks a row's values. `is_whole` marks a record given as bytes: its topic may be any.
///
/// # Errors
/// [`Error::InvalidMessage`] for a value that no append takes, and for a time that no clock shows.
pub fn check_row(record: &Record<'_>, is_whole: bool) -> Result<()> {
    if !is_whole && !names_a_folder(record.topic) {
        return Err(Error::no_folder(record.topic));
    }
    check_range("queue_id", record.queue_id.into(), most_queue_id(false).into())?;
    check_range("store_timestamp_ms", record.store_timestamp_ms, MOST_TIME_MS)?;
    check_range("queue_offset", record.queue_offset, MOST_QUEUE_OFFSET)?;
    check_range("properties: INNER_BASE", range(record)?.base_queue_offset, MOST_QUEUE_OFFSET)?;
    for (_, _, number) in lmq::pairs(&request_of(record)) {
        check_range("properties: INNER_MULTI_QUEUE_OFFSET", number, MOST_QUEUE_OFFSET)?;
    }
    Ok(())
}

fn range(record: &Record<'_>) -> Result<InnerRange> {
    if !sys_flag::is_inner_batch(record.sys_flag) {
        return Ok(InnerRange { base_queue_offset: record.queue_offset, message_count: 1 });
    }
    let mut indexed = properties::indexed(record.properties);
    let first = record.queue_offset.to_string();
    indexed.inner_base.get_or_insert(first.as_bytes());
    batch::inner_range(&indexed, record.queue_offset)
        .map_err(|error| Error::argument("properties", error.expected, error.found))
}

fn check_range(field: &'static str, found: i64, most: i64) -> Result<()> {
    if (0..=most).contains(&found) {
        return Ok(());
    }
    Err(Error::argument(field, format!("0 to {most}"), found))
}

fn request_of<'a>(record: &Record<'a>) -> DispatchRequest<'a> {
    DispatchRequest {
        topic: record.topic,
        queue_id: record.queue_id,
        queue_offset: record.queue_offset,
        transaction: sys_flag::transaction(record.sys_flag),
        properties: properties::indexed(record.properties),
        ..DispatchRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::message::Version;
    use crate::format::message::host::Host;

    fn record<'a>(topic: &'a [u8], queue_offset: i64, properties: &'a [u8]) -> Record<'a> {
        let host = Host::V4([1; 4], 2);
        Record {
            version: Version::V1,
            body_crc: 0,
            queue_id: 0,
            flag: 0,
            queue_offset,
            physical_offset: 0,
            sys_flag: 0,
            born_timestamp_ms: 0,
            born_host: host,
            store_timestamp_ms: 0,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"",
            topic,
            properties,
            property_crc: false,
        }
    }

    fn numbers(numbering: &mut Numbering, topic: &[u8], old: &[i64]) -> Vec<(i64, Range<i64>)> {
        old.iter()
            .map(|old| {
                let numbered = numbering.number(&record(topic, *old, b""));
                (numbered.queue_offset, numbered.missing)
            })
            .collect()
    }

    #[test]
    fn kept_numbers_say_what_is_missing_between_them_but_not_before() {
        let mut numbering = Numbering::new(NumberRule::Keep, TopicKinds::new());
        let found = numbers(&mut numbering, b"T", &[5, 6, 9, 10]);
        assert_eq!(found, [(5, 5..5), (6, 6..6), (9, 7..9), (10, 10..10)]);
    }

    #[test]
    fn places_of_groups_move_with_the_messages() {
        for (rule, first) in [(NumberRule::CloseUp, 5), (NumberRule::FromZero, 0)] {
            let mut numbering = Numbering::new(rule, TopicKinds::new());
            for place in [0, 5, 6, 7, 8, 9, 10, 11, 50] {
                numbering.watch(b"T", 0, place);
            }
            let found = numbers(&mut numbering, b"T", &[5, 6, 9, 10]);
            let news: Vec<_> = found.iter().map(|(new, _)| *new).collect();
            assert_eq!(news, [first, first + 1, first + 2, first + 3]);
            let at = |old| numbering.place(b"T", 0, old) - first;
            let now: Vec<_> = [0, 5, 6, 7, 8, 9, 10, 11, 50].map(at).to_vec();
            // A group continues with the first message kept at or behind its offset.
            assert_eq!(now, [0, 0, 1, 2, 2, 2, 3, 4, 4]);
        }
    }

    #[test]
    fn queues_that_the_broker_reads_itself_are_closed_up() {
        let mut numbering = Numbering::new(NumberRule::Keep, TopicKinds::new());
        let found = numbers(&mut numbering, b"SCHEDULE_TOPIC_XXXX", &[3, 7]);
        assert_eq!(found, [(3, 3..3), (4, 4..4)]);
    }

    #[test]
    fn numbers_in_properties_change_with_the_messages() {
        let mut kinds = TopicKinds::new();
        kinds.insert(Box::from(&b"B"[..]), QueueKind::Batch);
        let mut numbering = Numbering::new(NumberRule::FromZero, kinds);
        let raw = b"a\x01b\x02INNER_NUM\x013\x02INNER_BASE\x0140\x02c\x01d\x02";
        let first = numbering.number(&record(b"B", 40, raw));
        assert_eq!(first.queue_offset, 0);
        let wanted = &b"a\x01b\x02INNER_NUM\x013\x02INNER_BASE\x010\x02c\x01d\x02"[..];
        assert_eq!(first.properties.as_deref(), Some(wanted));
        assert_eq!(numbering.number(&record(b"B", 50, b"")).queue_offset, 3);

        let raw = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x017,0\x02";
        let more = numbering.number(&record(b"T", 9, raw)).properties.unwrap();
        let indexed = properties::indexed(&more);
        assert_eq!(indexed.multi_queue_offset, Some(&b"0,0"[..]));
        assert!(numbering.more_queues);
    }
}
