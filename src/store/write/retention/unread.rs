//! Deleted messages that a consumer group had not read.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::error::Result;
use crate::format::width::clamp_u64;

use crate::store::store_files::StoreFiles;

const MOST_NAMED: usize = 20;

/// Unread messages of one queue and group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    pub group: String,
    pub topic: String,
    pub queue_id: i32,
    pub messages: u64,
}

impl StoreFiles {
    /// Lists unread messages between `old_start` and `new_start` of the log, by group, topic and
    /// queue. A group with an offset in one queue of a topic counts in all of them.
    pub(crate) fn unread(&self, old_start: u64, new_start: u64) -> Result<Vec<Unread>> {
        if old_start == new_start {
            return Ok(Vec::new());
        }
        let Some(committed) = self.committed()?.1 else { return Ok(Vec::new()) };
        let mut gone: HashMap<_, Vec<_>> = HashMap::new();
        for queue in self.queues.all() {
            let first = queue.first_at_or_behind(old_start)?;
            let end = queue.first_at_or_behind(new_start)?;
            if end > first {
                let of_topic = gone.entry(queue.topic().to_vec()).or_default();
                of_topic.push((queue.queue_id(), first, end));
            }
        }
        let mut offsets: HashMap<_, HashMap<_, _>> = HashMap::new();
        for at in committed.table.iter() {
            let done = committed.table.done(&at);
            let queues = offsets.entry((at.group, at.topic)).or_default();
            queues.insert(at.queue_id, (at.queue_offset, done));
        }
        let mut unread = Vec::new();
        for ((group, topic), read) in offsets {
            for &(queue_id, first, end) in gone.get(topic.as_bytes()).into_iter().flatten() {
                let (next, done) = read
                    .get(&queue_id)
                    .map_or((first, &[][..]), |(next, done)| (first.max(*next), &done[..]));
                let done = done
                    .iter()
                    .map(|&(from, to)| to.min(end).saturating_sub(from.max(next)).max(0));
                let messages = clamp_u64(end.saturating_sub(next).saturating_sub(done.sum()));
                if messages > 0 {
                    let (group, topic) = (group.to_owned(), topic.to_owned());
                    unread.push(Unread { group, topic, queue_id, messages });
                }
            }
        }
        unread.sort_by(|a, b| {
            (&a.group, &a.topic, a.queue_id).cmp(&(&b.group, &b.topic, b.queue_id))
        });
        Ok(unread)
    }
}

/// Describes the groups in one line, with names escaped.
#[must_use]
pub fn describe(unread: &[Unread]) -> String {
    if unread.is_empty() {
        return "no consumer group is known that had still to read them".to_owned();
    }
    let mut text = "not read by".to_owned();
    for (number, Unread { group, topic, queue_id, messages }) in
        unread.iter().take(MOST_NAMED).enumerate()
    {
        let sign = if number == 0 { "" } else { "," };
        let (group, topic) = (group.escape_debug(), topic.escape_debug());
        // Writing to a string cannot fail.
        let _ = write!(text, "{sign} group {group}: {messages} of {topic}, queue {queue_id}");
    }
    if let Some(more) = unread.len().checked_sub(MOST_NAMED).filter(|&more| more > 0) {
        let _ = write!(text, ", and {more} more queues of groups");
    }
    text
}
