//! Fields of a record for queues and index, kinds of queues, and a queue's entry.

use crate::format::java::TopicHash;
use crate::format::message::MessageView;
use crate::format::message::properties::{Indexed, MAX_LEN, split_keys};
use crate::format::message::sys_flag::{self, Transaction};
use crate::format::queue::batch::{self, BatchQueueEntry, InnerRange};
use crate::format::queue::consume_queue as plain;
use crate::format::queue::consume_queue::{DelayLevels, QueueEntry};
use crate::format::width::{clamp_u64, saturating_i32, saturating_i64};

/// Maximum keys of a message: as many as its properties hold, and the unique key.
pub const MAX_KEYS: usize = MAX_LEN / 2 + 1;

/// Fields of a record for queues and index (`DispatchRequest`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchRequest<'a> {
    pub topic: &'a [u8],
    pub queue_id: i32,
    pub queue_offset: i64,
    pub physical_offset: i64,
    pub store_size: u32,
    pub store_timestamp_ms: i64,
    pub transaction: Transaction,
    pub properties: Indexed<'a>,
}

impl<'a> DispatchRequest<'a> {
    /// The request for a record (`CommitLog.checkMessageAndReturnSize`).
    #[inline(always)]
    #[must_use]
    pub fn of(view: &MessageView<'a>) -> Self {
        let mut request = Self {
            topic: view.topic(),
            queue_id: view.queue_id(),
            queue_offset: view.queue_offset(),
            physical_offset: view.physical_offset(),
            store_size: view.store_size(),
            store_timestamp_ms: view.store_timestamp_ms(),
            transaction: sys_flag::transaction(view.sys_flag()),
            properties: Indexed::default(),
        };
        request.properties.read(view.raw_properties());
        request
    }

    /// Whether the record gets a queue entry: a prepared or rolled back message does not.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        matches!(self.transaction, Transaction::None | Transaction::Commit)
    }

    #[must_use]
    pub fn end(&self) -> u64 {
        clamp_u64(self.physical_offset).saturating_add(u64::from(self.store_size))
    }

    /// Queue offsets of the record in a queue of that kind: one, or those of a batch. A batch with
    /// invalid properties counts as one message.
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

    /// The queue's unit for the record at `range`.
    #[inline]
    #[must_use]
    pub fn unit(&self, range: InnerRange, levels: &DelayLevels) -> CqUnit {
        CqUnit {
            number: range.base_queue_offset,
            count: range.message_count,
            physical_offset: self.physical_offset,
            store_size: saturating_i32(self.store_size),
            tags_code: plain::dispatch_tags_code(
                self.topic,
                &self.properties,
                self.store_timestamp_ms,
                levels,
            ),
            store_timestamp_ms: self.store_timestamp_ms,
        }
    }

    /// The keys in the order of entries.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let keys = self.properties.keys.unwrap_or_default();
        self.properties.unique_key.into_iter().chain(split_keys(keys))
    }

    /// Hashes of at most [`MAX_KEYS`] keys, in the order of entries; none for a rolled back
    /// message.
    pub fn key_hashes(&self) -> impl Iterator<Item = i32> + use<'a> {
        let topic = TopicHash::of(self.topic);
        let most = if self.transaction == Transaction::Rollback { 0 } else { MAX_KEYS };
        self.keys().take(most).map(move |key| topic.with_key(key))
    }

    /// Adds [`DispatchRequest::key_hashes`] of at most `most` keys to `hashes`.
    #[inline(always)]
    pub fn hash_keys(&self, topic: TopicHash, most: usize, hashes: &mut Vec<i32>) {
        if self.transaction != Transaction::Rollback {
            // A chain of iterators would be asked for its state at each key.
            let most = hashes.len().saturating_add(most);
            if let Some(key) = self.properties.unique_key {
                hashes.push(topic.with_key(key));
            }
            for key in split_keys(self.properties.keys.unwrap_or_default()) {
                if hashes.len() >= most {
                    break;
                }
                hashes.push(topic.with_key(key));
            }
        }
    }

    /// Hash of its tag entry, behind those of its keys; `None` without tags or if rolled back.
    #[inline]
    #[must_use]
    pub fn tag_hash_of(&self, topic: TopicHash) -> Option<i32> {
        let tags = self.properties.tags.filter(|tags| !tags.is_empty())?;
        (self.transaction != Transaction::Rollback).then(|| topic.with_tags(tags))
    }
}

/// Kind of a topic's queues (`org.apache.rocketmq.common.attribute.CQType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueueKind {
    #[default]
    Plain,
    /// One entry for each record, which may be a batch.
    Batch,
}

impl QueueKind {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "SimpleCQ",
            Self::Batch => "BatchCQ",
        }
    }

    #[must_use]
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Plain => "consumequeue",
            Self::Batch => "batchconsumequeue",
        }
    }

    #[must_use]
    pub const fn entry_len(self) -> usize {
        match self {
            Self::Plain => plain::ENTRY_LEN,
            Self::Batch => batch::ENTRY_LEN,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Appended,
    Known,
}

/// An entry of a queue of either kind (`CqUnit`): the record's queue offsets and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqUnit {
    /// Queue offset of the first message.
    pub number: i64,
    /// Number of messages: 1 unless a batch.
    pub count: i16,
    pub store_size: i32,
    pub physical_offset: i64,
    /// Hash, delivery time, or address of the extension.
    pub tags_code: i64,
    /// 0 if read from a plain queue, which does not keep it.
    pub store_timestamp_ms: i64,
}

impl CqUnit {
    #[inline]
    #[must_use]
    pub const fn plain(number: i64, entry: QueueEntry) -> Self {
        let QueueEntry { physical_offset, store_size, tags_code } = entry;
        Self { number, count: 1, store_size, physical_offset, tags_code, store_timestamp_ms: 0 }
    }

    #[must_use]
    pub const fn batch(entry: BatchQueueEntry) -> Self {
        Self {
            number: entry.base_queue_offset,
            count: entry.message_count,
            store_size: entry.store_size,
            physical_offset: entry.physical_offset,
            tags_code: entry.tags_code,
            store_timestamp_ms: entry.store_timestamp_ms,
        }
    }

    /// Appends the whole entries in `bytes`, the first of them at position `position`.
    #[inline]
    pub fn decode(kind: QueueKind, position: u64, bytes: &[u8], units: &mut Vec<Self>) {
        match kind {
            QueueKind::Plain => {
                let entries = bytes.as_chunks().0.iter().map(QueueEntry::decode);
                let numbered = (saturating_i64(position)..).zip(entries);
                units.extend(numbered.map(|(number, entry)| Self::plain(number, entry)));
            }
            QueueKind::Batch => {
                let entries = bytes.as_chunks().0.iter().map(BatchQueueEntry::decode);
                units.extend(entries.map(Self::batch));
            }
        }
    }

    /// The entry of a plain queue.
    #[inline]
    #[must_use]
    pub const fn entry(&self) -> QueueEntry {
        let Self { physical_offset, store_size, tags_code, .. } = *self;
        QueueEntry { physical_offset, store_size, tags_code }
    }

    /// The entry of a batch queue.
    #[must_use]
    pub const fn batch_entry(&self) -> BatchQueueEntry {
        BatchQueueEntry {
            physical_offset: self.physical_offset,
            store_size: self.store_size,
            tags_code: self.tags_code,
            store_timestamp_ms: self.store_timestamp_ms,
            base_queue_offset: self.number,
            message_count: self.count,
            compacted_offset: -1,
        }
    }

    #[inline]
    #[must_use]
    pub fn end(&self) -> i64 {
        self.number.saturating_add(i64::from(self.count))
    }

    /// Where the record ends in the commit log.
    #[inline]
    #[must_use]
    pub fn physical_end(&self) -> i64 {
        self.physical_offset.saturating_add(i64::from(self.store_size))
    }

    #[must_use]
    pub fn holds(&self, number: i64) -> bool {
        (self.number..self.end()).contains(&number)
    }

    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.batch_entry().is_valid() && self.number.checked_add(i64::from(self.count)).is_some()
    }

    #[must_use]
    pub const fn is_pre_blank(&self) -> bool {
        self.entry().is_pre_blank()
    }

    #[must_use]
    pub fn place(&self) -> Option<(u64, u32)> {
        u64::try_from(self.physical_offset).ok().zip(u32::try_from(self.store_size).ok())
    }

    /// Whether it leads to a message.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.is_valid() && !self.is_pre_blank()
    }
}
