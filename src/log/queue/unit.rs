//! Kinds of queues, and the unit of an entry.

use serde::{Deserialize, Serialize};

use crate::format::queue::batch;
use crate::format::queue::consume_queue as plain;
use crate::format::queue::consume_queue::QueueEntry;

/// Kind of a topic's queues (`org.apache.rocketmq.common.attribute.CQType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum QueueKind {
    #[default]
    Plain,
    /// One entry for each record, which may be a batch.
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

    /// Folder below a store's root.
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

/// Result of adding an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is the last now.
    Appended,
    /// The queue already has it.
    Known,
}

/// A record in a queue: its queue offsets and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Unit {
    /// First queue offset.
    pub number: i64,
    /// Number of messages: 1 unless a batch.
    pub count: i16,
    /// Position and tags code.
    pub entry: QueueEntry,
}

impl Unit {
    /// End of its queue offsets.
    #[inline]
    #[must_use]
    pub fn end(&self) -> i64 {
        self.number.saturating_add(i64::from(self.count))
    }

    /// Whether it covers that queue offset.
    #[must_use]
    pub fn holds(&self, number: i64) -> bool {
        (self.number..self.end()).contains(&number)
    }
}
