//! Deleted messages that a consumer group had not read.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::locks::Mutex;
use serde_json::{Value, json};

use crate::error::{CorruptionKind, Error, Result};
use crate::format::config::json;
use crate::format::width::clamp_u64;
use crate::store::folder::config_file::read_json;
use crate::store::folder::lock;
use crate::store::folder::paths::StorePaths;
use crate::store::store_files::{Notices, StoreFiles};

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

const MOST: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) text: String,
}

#[derive(Debug, Default)]
pub(crate) struct PendingNotices(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    deletions: Vec<(u64, Deletion)>,
    in_file: usize,
}

impl Kept {
    fn write(&mut self, files: &StoreFiles, more: Option<&Deletion>) -> Result<()> {
        let (storage, path) = (files.paths.storage(), files.paths.deleted());
        let all = self.deletions.iter().map(|(_, deletion)| deletion).chain(more);
        let all: Vec<_> = all.map(|Deletion { from, to, text }| json!([from, to, text])).collect();
        let count = all.len();
        match count {
            0 => storage.remove_if_there(&path)?,
            _ => lock::replace(storage, &path, Value::Array(all).to_string().as_bytes())?,
        }
        self.in_file = count;
        Ok(())
    }
}

impl PendingNotices {
    pub(crate) fn record(&self, files: &StoreFiles, deletion: &Deletion) -> Result<()> {
        self.0.lock().write(files, Some(deletion))
    }

    pub(crate) fn notify(&self, notices: &Notices, deletion: Deletion) {
        let mut kept = self.0.lock();
        let number = notices.push(deletion.text.clone());
        kept.deletions.push((number, deletion));
        let more = kept.deletions.len().saturating_sub(MOST);
        kept.deletions.drain(..more);
    }

    pub(crate) fn clear_delivered(&self, files: &StoreFiles) -> Result<()> {
        let mut kept = self.0.lock();
        kept.deletions.retain(|(number, _)| !files.notices.is_taken(*number));
        if kept.deletions.len() != kept.in_file {
            kept.write(files, None)?;
        }
        Ok(())
    }

    pub(crate) fn of_earlier(files: &StoreFiles) -> Self {
        let pending_notices = Self::default();
        match load(&files.paths) {
            Ok(deletions) => {
                pending_notices.0.lock().in_file = deletions.len();
                let begin = files.log.min_offset();
                for mut deletion in deletions.into_iter().filter(|one| one.from < begin) {
                    if begin < deletion.to {
                        deletion.text += &format!("; done up to {begin}");
                    }
                    pending_notices.notify(&files.notices, deletion);
                }
            }
            Err(error) => {
                pending_notices.0.lock().in_file = 1;
                let text = format!("{error}; which deletions it reported is unknown");
                pending_notices.notify(&files.notices, Deletion { from: 0, to: 0, text });
            }
        }
        pending_notices
    }
}

fn load(paths: &StorePaths) -> Result<Vec<Deletion>> {
    let path = paths.deleted();
    let Some(bytes) = read_json(paths.storage(), &path)? else { return Ok(Vec::new()) };
    let root = json::parse(&bytes).map_err(|error| error.in_file(&path, 0))?;
    let deletion = |value: &Value| {
        let &[ref from, ref to, Value::String(ref text)] = value.as_array()?.as_slice() else {
            return None;
        };
        Some(Deletion { from: from.as_u64()?, to: to.as_u64()?, text: text.clone() })
    };
    let all = root.as_array().and_then(|all| all.iter().map(deletion).collect());
    all.ok_or_else(|| {
        let expected = "arrays of two offsets and a text";
        Error::corrupt(&path, 0, CorruptionKind::Json, expected, "another value".to_owned())
    })
}
