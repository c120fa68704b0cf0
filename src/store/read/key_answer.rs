//! A query by key and its answer.

use std::ops::Range;

use crate::log::commit_log::join;

/// A query.
#[derive(Clone, Copy, Debug)]
pub struct KeyQuery<'a> {
    /// The topic, as its bytes.
    pub topic: &'a [u8],
    /// The key or unique key, or the whole text of the tags.
    pub key: &'a [u8],
    /// Earliest store time.
    pub begin_ms: i64,
    /// Latest store time.
    pub end_ms: i64,
    /// Maximum messages.
    pub max_messages: usize,
    /// Whether to check topic, key and store time of each message, unlike RocketMQ.
    pub exact: bool,
}

/// Answer.
#[derive(Clone, Debug)]
pub struct QueryResult {
    /// Records, newest first, or in RocketMQ's order.
    pub records: Vec<Box<[u8]>>,
    /// Whether there are more.
    pub truncated: bool,
    /// Messages with another key of this hash.
    pub rejected_by_hash: u64,
    /// Messages of the key outside the time range.
    pub rejected_by_time: u64,
    /// Whether the answer is complete. False if a part of the log could not be read, or is neither
    /// in an index file nor short enough to read.
    pub complete: bool,
    /// Parts of the log that may have more, as physical offsets; not all of them if another index
    /// answered.
    pub unread: Vec<Range<u64>>,
}

impl Default for QueryResult {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            truncated: false,
            rejected_by_hash: 0,
            rejected_by_time: 0,
            complete: true,
            unread: Vec::new(),
        }
    }
}

impl QueryResult {
    pub(super) fn leave_out(&mut self, part: Range<u64>) {
        self.complete = false;
        join(&mut self.unread, part);
    }
}
