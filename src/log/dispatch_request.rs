//! The fields of a record that queues and index are made from (`DispatchRequest`).

use super::QueueKind;
use super::queue::Unit;
use crate::format::java::TopicHash;
use crate::format::message::MessageView;
use crate::format::message::properties::{self, Indexed, MAX_LEN, split_keys};
use crate::format::message::sys_flag::{self, Transaction};
use crate::format::queue::batch::{self, InnerRange};
use crate::format::queue::consume_queue::{self, DelayLevels, QueueEntry};

/// How many keys of one message are put: all that its properties have room for, and the unique one.
pub const MAX_KEYS: usize = MAX_LEN / 2 + 1;

/// What the queues and the index take from one record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchRequest<'a> {
    /// The topic, as its bytes.
    pub topic: &'a [u8],
    /// The queue's number.
    pub queue_id: i32,
    /// The record's entry number there.
    pub queue_offset: i64,
    /// Where the record lies.
    pub physical_offset: i64,
    pub store_size: u32,
    /// The store's time of it.
    pub store_timestamp_ms: i64,
    /// What kind of transaction message it is, if it is one.
    pub transaction: Transaction,
    /// The properties that matter here.
    pub properties: Indexed<'a>,
}

impl<'a> DispatchRequest<'a> {
    /// The request of a stored record (`CommitLog.checkMessageAndReturnSize`).
    #[inline(always)]
    #[must_use]
    pub fn of(view: &MessageView<'a>) -> Self {
        Self {
            topic: view.topic(),
            queue_id: view.queue_id(),
            queue_offset: view.queue_offset(),
            physical_offset: view.physical_offset(),
            store_size: view.store_size(),
            store_timestamp_ms: view.store_timestamp_ms(),
            transaction: sys_flag::transaction(view.sys_flag()),
            properties: properties::indexed(view.raw_properties()),
        }
    }

    /// Whether the record has an entry in a queue: a prepared or rolled back message has none.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        matches!(self.transaction, Transaction::None | Transaction::Commit)
    }

    /// One past the record's last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        u64::try_from(self.physical_offset).unwrap_or(0).saturating_add(u64::from(self.store_size))
    }

    /// The queue offsets that the record stands for in a queue of that kind: one, or those of a batch
    /// that is kept together. A batch whose properties do not tell them counts as one message.
    #[inline]
    #[must_use]
    pub fn range(&self, kind: QueueKind) -> InnerRange {
        let alone = InnerRange { base_queue_offset: self.queue_offset, message_count: 1 };
        match kind {
            QueueKind::Plain => alone,
            QueueKind::Batch => {
                batch::inner_range(&self.properties, self.queue_offset).unwrap_or(alone)
            }
        }
    }

    /// The record in a queue that has it at `range`.
    #[inline]
    #[must_use]
    pub fn unit(&self, range: InnerRange, levels: &DelayLevels) -> Unit {
        Unit {
            number: range.base_queue_offset,
            count: range.message_count,
            entry: QueueEntry {
                physical_offset: self.physical_offset,
                store_size: i32::try_from(self.store_size).unwrap_or(i32::MAX),
                tags_code: consume_queue::dispatch_tags_code(
                    self.topic,
                    &self.properties,
                    self.store_timestamp_ms,
                    levels,
                ),
            },
        }
    }

    /// The keys in the order of their entries.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let keys = self.properties.keys.unwrap_or_default();
        self.properties.unique_key.into_iter().chain(split_keys(keys))
    }

    /// The hashes that its entries hold, in order: those of at most [`MAX_KEYS`] keys, and none of a
    /// message that was rolled back.
    pub fn key_hashes(&self) -> impl Iterator<Item = i32> + use<'a> {
        self.key_hashes_of(TopicHash::of(self.topic))
    }

    /// [`DispatchRequest::key_hashes`] where the hash of the topic is known.
    #[inline]
    pub fn key_hashes_of(&self, topic: TopicHash) -> impl Iterator<Item = i32> + use<'a> {
        let most = if self.transaction == Transaction::Rollback { 0 } else { MAX_KEYS };
        self.keys().take(most).map(move |key| topic.with_key(key))
    }

    /// The hashes of the keys beyond [`MAX_KEYS`], which get no entry.
    pub fn surplus_key_hashes_of(&self, topic: TopicHash) -> impl Iterator<Item = i32> + use<'a> {
        let all = if self.transaction == Transaction::Rollback { 0 } else { usize::MAX };
        self.keys().take(all).skip(MAX_KEYS).map(move |key| topic.with_key(key))
    }
}
