//! Places of queues that a group takes: committed ones, acknowledgements that no commit has, and
//! first ones.

use std::path::PathBuf;

use super::ConsumerGroup;
use super::acks::{Ack, AckFile};
use super::progress::{Begin, Progress, Queue, Taken, merged};
use crate::error::{Error, Result};
use crate::files::Moved;
use crate::store::folder::lock::OffsetsLock;
use crate::store::read::queue_read::Boundary;

impl ConsumerGroup {
    /// The group's offset in a queue whose lock is held. Another process may have moved on since.
    pub(super) fn find(&self, progress: &mut Progress, queue: &Queue) -> Result<i64> {
        if !Self::is_current(progress, queue) {
            progress.forget(queue);
        }
        self.load(progress)?;
        progress.taken.insert(queue.clone(), Taken::default());
        let offset = match progress.next.get(queue) {
            Some(&offset) => offset,
            None => self.first(progress, queue)?,
        };
        let is_known = progress.has_acks(queue) || progress.locks.is_none();
        if is_known { Ok(offset) } else { self.take_over(progress, queue, offset) }
    }

    fn is_current(progress: &Progress, queue: &Queue) -> bool {
        progress.acks.get(queue).is_none_or(AckFile::is_unchanged)
    }

    /// Adds acknowledgements of another process that may be gone.
    fn take_over(&self, progress: &mut Progress, queue: &Queue, offset: i64) -> Result<i64> {
        let (topic, queue_id) = (&queue.0, queue.1);
        let path = self.ack_path(queue);
        let committed = progress.committed.get(queue).copied().unwrap_or(-1);
        let rows = AckFile::rows_behind(self.paths(progress).storage(), &path, committed)?;
        let Some(mut rows) = rows else {
            self.paths(progress).storage.remove_if_there(&path).map_err(Moved::end_writing)?;
            return Ok(offset);
        };
        rows.retain(|&(from, to, _)| from < to && to > offset);
        let end = rows.iter().map(|&(_, to, _)| to).max().unwrap_or(offset);
        if self.store.max_offset(topic, queue_id)? < end {
            self.store.catch_up()?;
        }
        let mut ranges = progress.done.get(queue).cloned().unwrap_or_default();
        for (from, to, stored_ms) in rows {
            // After a power cut another message may have the number.
            let found = self.store.stored_at(topic.as_bytes(), queue_id, to.saturating_sub(1))?;
            if found == Some(stored_ms) {
                ranges.push((from.max(offset), to));
            }
        }
        ranges.sort_unstable();
        let (next, done) = merged(offset, ranges);
        let end = done.last().map_or(next, |last| last.1);
        if end > offset {
            let file = AckFile::create(self.paths(progress).storage(), path, committed);
            progress.acks.insert(queue.clone(), file.map_err(Moved::end_writing)?);
            progress.moved.insert(queue.clone(), end);
        }
        progress.done.remove(queue);
        if !done.is_empty() {
            progress.done.insert(queue.clone(), done);
        }
        progress.next.insert(queue.clone(), next);
        Ok(next)
    }

    fn first(&self, progress: &mut Progress, queue: &Queue) -> Result<i64> {
        let (topic, queue_id) = (queue.0.as_bytes(), queue.1);
        let view = self.store.queue(topic, queue_id)?;
        let least = view.map_or(0, |queue| queue.min_offset);
        // A queue that a topic got later is read from its start.
        if self.begin == Begin::Earliest || progress.knows(&queue.0) {
            return Ok(least);
        }
        let mut starts = Vec::new();
        for queue_id in self.store.queues_of(&queue.0)? {
            let key = (queue.0.clone(), queue_id);
            let start = match self.begin {
                Begin::Time(ms) => self.store.offset_at(topic, queue_id, ms, Boundary::Lower)?,
                Begin::Earliest | Begin::Latest => self.ends.get(&key).copied().unwrap_or(0),
            };
            starts.push((key, start));
        }
        for (key, start) in &starts {
            progress.next.insert(key.clone(), *start);
            progress.moved.insert(key.clone(), *start);
        }
        match self.commit_progress(progress) {
            Err(error @ Error::Poisoned { .. }) => return Err(error),
            // Nothing can be committed, such as beside a broker: the group reads all the same.
            Err(_) => progress.moved.retain(|key, _| starts.iter().all(|(start, _)| start != key)),
            Ok(()) => {}
        }
        Ok(progress.next.get(queue).copied().unwrap_or(least))
    }

    /// Moves the group to the place where a queue was taken, for a topic that the table lacks.
    pub(super) fn enter(&self, progress: &mut Progress, queue: &Queue) {
        let place = progress.taken.get(queue).map_or(0, |taken| taken.place);
        let place = *progress.next.entry(queue.clone()).or_insert(place);
        progress.moved.entry(queue.clone()).or_insert(place);
    }

    pub(super) fn ack_path(&self, queue: &Queue) -> PathBuf {
        AckFile::path(&self.store.files.paths, &self.name, &queue.0, queue.1)
    }

    /// Writes acknowledgements of a taken queue, which survive this process from then on. A place
    /// that they lie behind is committed before.
    pub fn ack(&self, topic: &str, queue_id: i32, acks: &[Ack]) -> Result<()> {
        let mut progress = self.progress()?;
        self.check_place_of(&progress)?;
        let queue = (topic.to_owned(), queue_id);
        let Some(locks) = &progress.locks else { return Ok(()) };
        if !progress.acks.contains_key(&queue) {
            if self.store.writer.is_none() {
                OffsetsLock::refuse_broker(&locks.paths)?;
            }
            // Another process would begin elsewhere.
            if self.begin != Begin::Earliest && !progress.knows(topic) {
                self.enter(&mut progress, &queue);
            }
            if progress.moved.contains_key(&queue) {
                self.commit_progress(&mut progress)?;
            }
            let committed = progress.committed.get(&queue).copied().unwrap_or(-1);
            let path = self.ack_path(&queue);
            let file = AckFile::create(self.paths(&progress).storage(), path, committed)
                .map_err(Moved::end_writing)?;
            progress.acks.insert(queue.clone(), file);
        }
        progress.acks.get_mut(&queue).map_or(Ok(()), |file| file.put(acks))
    }

    /// Locks moved queues that were released; those of them that others have now are theirs.
    pub(super) fn take_moved(&self, progress: &mut Progress) -> Result<Vec<Queue>> {
        let mut held: Vec<Queue> = Vec::new();
        let moved = progress.moved.keys().filter(|queue| !progress.taken.contains_key(*queue));
        for queue in moved.cloned().collect::<Vec<_>>() {
            let Some(locks) = &progress.locks else { continue };
            let taken = locks.try_take(&self.name, &queue.0, queue.1);
            if taken.is_err() {
                held.iter().for_each(|(topic, id)| locks.release(&self.name, topic, *id));
            }
            let is_ours = taken?;
            // Places of a new group have no acknowledgements.
            let is_new = !progress.acks.contains_key(&queue);
            if is_ours && !is_new && !Self::is_current(progress, &queue) {
                locks.release(&self.name, &queue.0, queue.1);
                progress.forget(&queue);
            } else if is_ours {
                held.push(queue);
            } else {
                progress.forget(&queue);
            }
        }
        Ok(held)
    }
}
