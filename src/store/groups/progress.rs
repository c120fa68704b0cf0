//! State of an open consumer group.

use std::collections::BTreeMap;

use super::acks::AckFile;
use crate::store::folder::lock::QueueLocks;
use crate::store::store_files::OffsetsStamps;

pub(super) type Queue = (String, i32);

/// Sorted ranges of offsets.
pub(super) type Done = Vec<(i64, i64)>;

/// The place behind `offset` and sorted ranges that reach it, and the ranges behind.
pub(super) fn merged(offset: i64, ranges: impl IntoIterator<Item = (i64, i64)>) -> (i64, Done) {
    let (mut offset, mut done) = (offset, Done::new());
    for (from, to) in ranges {
        match done.last_mut() {
            _ if to <= offset => {}
            None if from <= offset => offset = to,
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => done.push((from, to)),
        }
    }
    (offset, done)
}

/// A queue that no other process of the group may take now.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// The group's place when the queue was taken, and what was done behind it.
    pub(super) place: i64,
    pub(super) done: Done,
    /// Offset to which others moved the group meanwhile.
    pub(super) moved_to: i64,
}

/// First message of a group in a topic that it has no offset in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    Earliest,
    /// Behind the messages that are there when the group is opened.
    Latest,
    /// Store time in milliseconds.
    Time(i64),
}

#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Offsets in the table when it was read or written last.
    pub(super) committed: BTreeMap<Queue, i64>,
    pub(super) next: BTreeMap<Queue, i64>,
    pub(super) done: BTreeMap<Queue, Done>,
    /// Queues moved since the last commit, and how far each was read for it.
    pub(super) moved: BTreeMap<Queue, i64>,
    pub(super) taken: BTreeMap<Queue, Taken>,
    /// Acknowledgements since the last commit, of queues that are taken or moved.
    pub(super) acks: BTreeMap<Queue, AckFile>,
    pub(super) locks: Option<QueueLocks>,
    pub(super) read_at: Option<OffsetsStamps>,
    /// Offset up to which another process's log was flushed for a commit.
    pub(super) durable: u64,
    pub(super) closed: bool,
}

impl Progress {
    pub(super) fn knows(&self, topic: &str) -> bool {
        let first = self.committed.range((topic.to_owned(), i32::MIN)..).next();
        first.is_some_and(|((known, _), _)| known == topic)
    }

    pub(super) fn has_acks(&self, queue: &Queue) -> bool {
        self.moved.contains_key(queue) && self.acks.contains_key(queue)
    }

    /// Whether only their file has some acknowledgements.
    pub(super) fn is_behind(&self, queue: &Queue) -> bool {
        self.acks.get(queue).is_some_and(|file| file.is_ahead)
    }

    /// The place in memory has all of them now.
    pub(super) fn count_acks(&mut self, queue: &Queue) {
        if let Some(file) = self.acks.get_mut(queue) {
            file.is_ahead = false;
        }
    }

    pub(super) fn forget(&mut self, queue: &Queue) {
        self.moved.remove(queue);
        self.next.remove(queue);
        self.done.remove(queue);
        self.acks.remove(queue);
        self.read_at = None;
    }
}
