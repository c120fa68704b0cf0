//! The two kinds of queues, and what an entry of either stands for.

use serde::{Deserialize, Serialize};

use crate::format::queue::batch;
use crate::format::queue::consume_queue as plain;
use crate::format::queue::consume_queue::QueueEntry;

/// Which kind of queue a topic has (`org.apache.rocketmq.common.attribute.CQType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum QueueKind {
    /// An entry for each message.
    #[default]
    Plain,
    /// An entry for each record, which may hold a batch of messages.
    Batch,
}

impl QueueKind {
    /// RocketMQ's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "SimpleCQ",
            Self::Batch => "BatchCQ",
        }
    }

    /// The folder below a store's root that holds queues of it.
    #[must_use]
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Plain => "consumequeue",
            Self::Batch => "batchconsumequeue",
        }
    }

    /// Length of an entry in bytes.
    #[must_use]
    pub const fn entry_len(self) -> usize {
        match self {
            Self::Plain => plain::ENTRY_LEN,
            Self::Batch => batch::ENTRY_LEN,
        }
    }
}

/// The outcome of adding an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is the queue's last now.
    Appended,
    /// The queue has it already.
    Known,
}

/// A record in a queue: the queue offsets it stands for, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Unit {
    /// The first queue offset.
    pub number: i64,
    /// How many there are: 1 unless the record is a batch.
    pub count: i16,
    /// Where it lies, and the code of its tags.
    pub entry: QueueEntry,
}

impl Unit {
    /// One past the last queue offset.
    #[inline]
    #[must_use]
    pub fn end(&self) -> i64 {
        self.number.saturating_add(i64::from(self.count))
    }

    /// Whether it stands for that queue offset.
    #[must_use]
    pub fn holds(&self, number: i64) -> bool {
        (self.number..self.end()).contains(&number)
    }
}
