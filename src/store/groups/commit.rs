//! Commits of a group's places and acknowledgements.

use std::collections::BTreeMap;

use super::ConsumerGroup;
use super::progress::{Progress, Queue, merged};
use crate::error::{Error, Result};
use crate::files::Moved;
use crate::format::config::tables;
use crate::format::width::clamp_u64;
use crate::store::folder::config_file;
use crate::store::folder::lock::OffsetsLock;

impl ConsumerGroup {
    pub fn has_moved(&self) -> bool {
        !self.progress.lock().moved.is_empty()
    }

    /// Commits durably, and flushes the messages before the position. Readers can commit too,
    /// unless a broker writes.
    pub fn commit(&self) -> Result<()> {
        let mut progress = self.progress()?;
        self.commit_progress(&mut progress)
    }

    pub(super) fn commit_progress(&self, progress: &mut Progress) -> Result<()> {
        let files = &*self.store.files;
        if self.store.is_of_parent() {
            return Err(Error::ReadOnly { path: files.paths.root().to_owned() });
        }
        if progress.moved.is_empty() {
            return Ok(());
        }
        // One group at a time, and none once the store releases its lock.
        let live = self.store.groups.lock();
        self.store.check_open()?;
        self.check_place_of(progress)?;
        let held = self.take_moved(progress)?;
        let outcome = self.write_progress(progress);
        for (topic, queue_id) in held {
            if let Some(locks) = &progress.locks {
                locks.release(&self.name, &topic, queue_id);
            }
        }
        drop(live);
        outcome
    }

    fn write_progress(&self, progress: &mut Progress) -> Result<()> {
        let files = &*self.store.files;
        if progress.moved.is_empty() {
            return Ok(());
        }
        self.make_durable(progress)?;
        let paths = self.paths(progress);
        let _offsets = match &self.store.writer {
            Some(writer) => {
                // Another process may keep it for long; a flush needs the handle's lock meanwhile.
                let file = writer.lock.lock().as_ref().ok_or(Error::Closed)?.file();
                OffsetsLock::take(file, paths)?
            }
            None => OffsetsLock::take_beside(paths).map_err(Moved::end_writing)?,
        };
        let (path, mut table, before) = files.to_commit()?;
        let now_ms = files.clock.now_ms();
        let there: BTreeMap<Queue, i64> = table
            .iter()
            .filter(|at| at.group == self.name)
            .map(|at| ((at.topic.to_owned(), at.queue_id), at.queue_offset))
            .collect();
        let (mut written, mut ahead) = (Vec::new(), Vec::new());
        for queue in progress.moved.keys().filter(|queue| !progress.is_behind(queue)) {
            let (topic, queue_id) = (&queue.0, queue.1);
            let (other, known) = (there.get(queue), progress.committed.get(queue));
            // Another process began the group at the same time.
            let is_ours = progress.taken.contains_key(queue) || progress.has_acks(queue);
            if !is_ours && other.is_some() {
                continue;
            }
            let next = progress.next.get(queue).copied().unwrap_or(0);
            // A broker, or somebody, moved the group meanwhile; it does not go back.
            let moved_to = other.filter(|_| other != known).copied().unwrap_or(0);
            let least = next.max(moved_to);
            let done = progress.done.get(queue).into_iter().flatten().copied();
            let (queue_offset, done) = merged(least, done);
            let at = tables::GroupOffset { topic, group: &self.name, queue_id, queue_offset };
            table.put(&at, now_ms);
            table.put_done(&at, &done);
            written.push((queue.clone(), queue_offset));
            if least > next {
                ahead.push((queue.clone(), least));
            }
        }
        let outcome =
            config_file::write(paths.storage(), &path, before.as_deref(), &table.to_bytes());
        for (queue, _) in written.iter().filter(|_| outcome.is_ok()) {
            // A file that stays lies behind another offset than the table has, or says the same.
            let _ = paths.storage.remove_if_there(&self.ack_path(queue));
        }
        // A later commit must not put them back, nor one after the queue is taken again.
        for (queue, offset) in ahead {
            progress.taken.entry(queue.clone()).and_modify(|taken| taken.moved_to = offset);
            progress.next.insert(queue, offset);
        }
        if let Err(error) = outcome {
            self.read_again(progress, &written);
            return Err(Moved::end_writing(error));
        }
        let Progress { moved, acks, committed, .. } = progress;
        acks.retain(|queue, file| file.is_ahead || !moved.contains_key(queue));
        moved.retain(|queue, _| acks.contains_key(queue));
        committed.extend(written);
        Ok(())
    }

    /// Learns what the table has after a write that failed, perhaps when it was there.
    fn read_again(&self, progress: &mut Progress, queues: &[(Queue, i64)]) {
        let read = self.store.files.committed();
        for (queue, _) in queues {
            let key = (&*self.name, &*queue.0, queue.1);
            let known = progress.committed.get(queue).copied();
            if let Ok((_, loaded)) = &read {
                let mut all = loaded.iter().flat_map(|loaded| loaded.table.iter());
                let at = all.find(|at| (at.group, at.topic, at.queue_id) == key);
                let there = at.map(|at| at.queue_offset);
                if there == known {
                    continue;
                }
                progress.committed.extend(there.map(|offset| (queue.clone(), offset)));
            }
            // Rows of the file would count for the offset before.
            progress.acks.remove(queue);
            if !progress.taken.contains_key(queue) {
                progress.forget(queue);
            }
        }
    }

    fn make_durable(&self, progress: &mut Progress) -> Result<()> {
        let mut end = 0;
        for (queue, &offset) in &progress.moved {
            end = end.max(self.end_before(queue, offset)?);
        }
        let log = self.store.log();
        if let Some(writer) = &self.store.writer {
            return if log.flushed_offset() < end { writer.flush_log() } else { Ok(()) };
        }
        // Another process writes the log and may not have flushed it.
        let run = log.run();
        for file in run.files().iter() {
            let is_wanted = progress.durable..end;
            if file.base_offset < is_wanted.end
                && file.base_offset.saturating_add(run.file_size()) > is_wanted.start
                && let Some(open) = run.open_if_there(file)?
            {
                open.sync().map_err(Error::flush(&file.path))?;
            }
        }
        progress.durable = progress.durable.max(end);
        Ok(())
    }

    /// End of the message before a position in the log; 0 if there is none.
    fn end_before(&self, (topic, queue_id): &Queue, offset: i64) -> Result<u64> {
        let view = self.store.queue(topic.as_bytes(), *queue_id)?;
        let end = view.as_ref().map_or(0, |view| view.max_offset);
        if offset > end {
            let reason = format!(
                "group {} stands at {offset} of queue {queue_id} of topic {topic}, expected at most {end}, \
                 where the queue ends; nothing was committed: seek to an offset in the queue",
                self.name
            );
            return Err(Error::illegal("queue_offset", reason));
        }
        let unit = view.map(|view| view.unit(offset.saturating_sub(1))).transpose()?.flatten();
        Ok(unit.map_or(0, |unit| clamp_u64(unit.physical_end())))
    }
}
