//! Compares two stores queue by queue: messages that one lacks or that differ.
//!
//! Both queues are read in order, a bounded piece at a time. Physical offsets are ignored.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::{Result, named};
use crate::files::Storage;
use crate::format::message::{Frame, Record, read_frame};
use crate::format::queue::consume_queue::TagFilter;
use crate::store::MessageStore;
use crate::store::progress::{Progress, report_progress};

pub const MOST_LISTED: usize = 10_000;
const PIECE_MESSAGES: usize = 512;
const PIECE_BYTES: u64 = 4 << 20;

named! {
    /// Kind of difference.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DifferenceKind {
        /// The second store lacks the message.
        Missing = "missing",
        /// Only the second store has it.
        Extra = "extra",
        /// Both have that queue offset, with different content.
        Different = "different",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub kind: DifferenceKind,
    pub topic: Box<[u8]>,
    pub queue_id: i32,
    pub queue_offset: i64,
    /// Differing fields of messages that both have.
    pub fields: Vec<&'static str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueDiff {
    pub topic: Box<[u8]>,
    pub queue_id: i32,
    pub same: u64,
    pub missing: u64,
    /// Messages that only the second store has.
    pub extra: u64,
    pub different: u64,
}

/// Result of [`diff`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffReport {
    /// Queues of both stores.
    pub queues: u64,
    /// Equal messages.
    pub messages: u64,
    /// Differing queues, sorted.
    pub differing: Vec<QueueDiff>,
    /// The first differences.
    pub differences: Vec<Difference>,
}

struct Side<'s> {
    store: &'s MessageStore,
    topic: &'s [u8],
    queue_id: i32,
    next: i64,
    ended: bool,
    held: VecDeque<(i64, Box<[u8]>)>,
}

impl<'s> Side<'s> {
    fn new(store: &'s MessageStore, topic: &'s [u8], queue_id: i32) -> Result<Self> {
        let queue = store.queue(topic, queue_id)?;
        let (min, max) = queue.map_or((0, 0), |queue| (queue.min_offset, queue.max_offset));
        Ok(Self { store, topic, queue_id, next: min, ended: min >= max, held: VecDeque::new() })
    }

    fn peek(&mut self) -> Result<Option<i64>> {
        while self.held.is_empty() && !self.ended {
            let found = self.store.read(
                self.topic,
                self.queue_id,
                self.next,
                PIECE_MESSAGES,
                Some(PIECE_BYTES),
                &TagFilter::ALL,
            )?;
            self.ended = found.next_queue_offset <= self.next;
            self.next = found.next_queue_offset;
            self.ended |= self.next >= found.max_queue_offset;
            self.held.extend(found.ends.into_iter().zip(found.records));
        }
        Ok(self.held.front().map(|(end, _)| *end))
    }

    fn take(&mut self) -> Option<Box<[u8]>> {
        self.held.pop_front().map(|(_, record)| record)
    }
}

/// Compares the store at `b` with the one at `a`. `progress` gets the number of queues done and in
/// all.
pub fn diff(
    a: (Arc<dyn Storage>, &Path),
    b: (Arc<dyn Storage>, &Path),
    config: &StoreConfig,
    progress: &mut Progress<'_>,
) -> Result<DiffReport> {
    let open = |(storage, path)| MessageStore::open_on(path, config.clone(), storage);
    let (path, first, second) = (a.1, open(a)?, open(b)?);
    let mut names: BTreeSet<(Box<[u8]>, i32)> = BTreeSet::new();
    for store in [&first, &second] {
        names.extend(store.queue_names()?);
    }
    let mut report = DiffReport { queues: names.len() as u64, ..DiffReport::default() };
    let (total, mut done) = (report.queues, 0);
    for (topic, queue_id) in &names {
        let sides = [Side::new(&first, topic, *queue_id)?, Side::new(&second, topic, *queue_id)?];
        let queue = compare(sides, &mut report.differences, &mut || {
            report_progress(progress, (done, total), "compare", path)
        })?;
        report.messages += queue.same;
        if queue.missing + queue.extra + queue.different > 0 {
            report.differing.push(queue);
        }
        done += 1;
    }
    let _ = progress(total, total);
    Ok(report)
}

fn compare(
    [mut first, mut second]: [Side<'_>; 2],
    listed: &mut Vec<Difference>,
    report: &mut dyn FnMut() -> Result<()>,
) -> Result<QueueDiff> {
    let mut queue =
        QueueDiff { topic: first.topic.into(), queue_id: first.queue_id, ..QueueDiff::default() };
    for step in 0_u64.. {
        if step % PIECE_MESSAGES as u64 == 0 {
            report()?;
        }
        let (here, there) = (first.peek()?, second.peek()?);
        if here.is_none() && there.is_none() {
            break;
        }
        // A queue that ended comes last.
        let place = |end: Option<i64>| (end.is_none(), end);
        let (kind, records) = match place(here).cmp(&place(there)) {
            Ordering::Less => (DifferenceKind::Missing, [first.take(), None]),
            Ordering::Greater => (DifferenceKind::Extra, [second.take(), None]),
            Ordering::Equal => (DifferenceKind::Different, [first.take(), second.take()]),
        };
        let Some(record) = records[0].as_deref().and_then(record) else { continue };
        let mut fields = Vec::new();
        match kind {
            DifferenceKind::Missing => queue.missing += 1,
            DifferenceKind::Extra => queue.extra += 1,
            DifferenceKind::Different => {
                if let Some(other) = records[1].as_deref().and_then(self::record) {
                    fields = differing(&record, &other);
                }
                if fields.is_empty() {
                    queue.same += 1;
                    continue;
                }
                queue.different += 1;
            }
        }
        if listed.len() < MOST_LISTED {
            let (topic, queue_id) = (queue.topic.clone(), queue.queue_id);
            let queue_offset = record.queue_offset;
            listed.push(Difference { kind, topic, queue_id, queue_offset, fields });
        }
    }
    Ok(queue)
}

fn record(bytes: &[u8]) -> Option<Record<'_>> {
    match read_frame(bytes) {
        Ok(Frame::Message(view)) => Some(Record::of(&view)),
        _ => None,
    }
}

fn differing(a: &Record<'_>, b: &Record<'_>) -> Vec<&'static str> {
    [
        ("body", a.body == b.body),
        ("properties", a.properties == b.properties),
        ("flag", a.flag == b.flag),
        ("sys_flag", a.sys_flag == b.sys_flag),
        ("born_timestamp_ms", a.born_timestamp_ms == b.born_timestamp_ms),
        ("born_host", a.born_host == b.born_host),
        ("store_timestamp_ms", a.store_timestamp_ms == b.store_timestamp_ms),
        ("store_host", a.store_host == b.store_host),
        ("reconsume_times", a.reconsume_times == b.reconsume_times),
        (
            "prepared_transaction_offset",
            a.prepared_transaction_offset == b.prepared_transaction_offset,
        ),
    ]
    .into_iter()
    .filter_map(|(name, same)| (!same).then_some(name))
    .collect()
}
