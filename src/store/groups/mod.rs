//! Consumer groups: committed offsets in `config/consumerOffset.json` (`ConsumerOffsetManager`),
//! and a group that reads and keeps its position.

use crate::locks::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, FormatError, Result, expected_got, start_of};
use crate::files::Moved;
use crate::format::config::json;
use crate::format::config::tables::{self, OffsetTable};
use crate::format::queue::consume_queue::TagFilter;

use crate::store::folder::config_file;
use crate::store::folder::lock::QueueLocks;
use crate::store::folder::paths::StorePaths;
use crate::store::message_store::MessageStore;
use crate::store::read::queue_read::GetStatus;

mod acks;
mod commit;
mod progress;
mod taking;

use progress::{Done, Progress, Queue, Taken, merged};

pub use progress::Begin;

/// Maximum length of a group's name: with `%RETRY%` it names a topic.
const LONGEST_NAME: usize = 248;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOffset {
    pub topic: String,
    pub queue_id: i32,
    pub queue_offset: i64,
    /// The queue's end; 0 if it does not exist.
    pub max_offset: i64,
}

impl GroupOffset {
    #[must_use]
    pub fn lag(&self) -> i64 {
        self.max_offset.saturating_sub(self.queue_offset).max(0)
    }
}

type Parse = fn(&[u8]) -> std::result::Result<(), FormatError>;

impl MessageStore {
    /// Committed offsets of each group.
    pub fn groups(&self) -> Result<BTreeMap<String, Vec<GroupOffset>>> {
        self.check_open()?;
        let mut groups: BTreeMap<String, Vec<GroupOffset>> = BTreeMap::new();
        let committed = self.files.committed()?.1;
        for at in committed.iter().flat_map(|loaded| loaded.table.iter()) {
            let max_offset = self.max_offset(at.topic, at.queue_id)?;
            groups.entry(at.group.to_owned()).or_default().push(GroupOffset {
                topic: at.topic.to_owned(),
                queue_id: at.queue_id,
                queue_offset: at.queue_offset,
                max_offset,
            });
        }
        for offsets in groups.values_mut() {
            offsets.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
        }
        Ok(groups)
    }

    /// Warnings from open, later notices, and broker files now read from backups; one line each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let paths = &self.files.paths;
        let offsets = |bytes: &[u8]| OffsetTable::parse(bytes).map(drop);
        let delays = |bytes: &[u8]| tables::parse_delay_offsets(bytes).map(drop);
        let any = |bytes: &[u8]| json::to_strict(bytes).map(drop);
        let load = |path: PathBuf, parse: Parse| config_file::load(paths.storage(), &path, parse);
        let mut warnings = self.warnings.clone();
        warnings.extend(self.files.notices.all());
        if let Some(writer) = &self.writer {
            warnings.extend(writer.topics.lock().left_out().map(str::to_owned));
        }
        for loaded in [
            load(paths.consumer_offsets(false), offsets),
            load(paths.consumer_offsets(true), offsets),
            load(paths.config().join("subscriptionGroup.json"), any),
            load(paths.config().join("delayOffset.json"), delays),
        ] {
            match loaded {
                Ok(loaded) => {
                    warnings.extend(loaded.and_then(|at| at.warning().map(str::to_owned)));
                }
                Err(error) => warnings.push(error.to_string()),
            }
        }
        warnings
    }

    fn max_offset(&self, topic: &str, queue_id: i32) -> Result<i64> {
        Ok(self.queue(topic.as_bytes(), queue_id)?.map_or(0, |queue| queue.max_offset))
    }

    /// Lets queues reach what other processes may have read of the log.
    fn catch_up(&self) -> Result<()> {
        match &self.writer {
            Some(_) => self.wait_dispatched(),
            None => self.refresh_if_grown(),
        }
    }

    fn queues_of(&self, topic: &str) -> Result<Vec<i32>> {
        let names = self.queue_names()?.into_iter();
        Ok(names.filter(|(name, _)| **name == *topic.as_bytes()).map(|(_, id)| id).collect())
    }
}

/// A message to deliver, with its offset in the queue.
#[derive(Debug)]
pub struct Delivery {
    pub record: Box<[u8]>,
    /// Place of a group that has taken all before it.
    pub after: i64,
    pub end: i64,
}

/// A consumer group's offsets in its queues; one for each name and store. The caller says which
/// messages are done.
#[derive(Debug)]
pub struct ConsumerGroup {
    store: Arc<MessageStore>,
    name: String,
    begin: Begin,
    ends: BTreeMap<Queue, i64>,
    progress: Mutex<Progress>,
}

impl ConsumerGroup {
    pub fn open(store: Arc<MessageStore>, name: &str, begin: Begin) -> Result<Self> {
        store.check_open()?;
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"%|_-".contains(&byte);
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(legal) {
            let wanted = format!("1 to {LONGEST_NAME} letters, digits, %, |, _ and -");
            let reason = expected_got(wanted, format!("{:?}", start_of(name)));
            return Err(Error::beyond("group", Some(LONGEST_NAME as u64), reason));
        }
        let mut live = store.groups.lock();
        if live.contains(name) {
            let path = store.path().join(format!("group {name}"));
            let pid = i32::try_from(std::process::id()).ok();
            return Err(Error::Locked { path, pid });
        }
        let mut ends = BTreeMap::new();
        if begin == Begin::Latest {
            store.catch_up()?;
            for (topic, queue_id) in store.queue_names()? {
                let topic = String::from_utf8_lossy(&topic).into_owned();
                let end = store.max_offset(&topic, queue_id)?;
                ends.insert((topic, queue_id), end);
            }
        }
        let (name, progress) = (name.to_owned(), Mutex::default());
        let group = Self { store: Arc::clone(&store), name, begin, ends, progress };
        let loaded = group.load(&mut group.progress.lock());
        if let Err(error) = loaded {
            // Dropping it would release the name, which another may have.
            group.progress.lock().closed = true;
            return Err(error);
        }
        live.insert(group.name.clone());
        drop(live);
        Ok(group)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn store(&self) -> &Arc<MessageStore> {
        &self.store
    }

    fn progress(&self) -> Result<MutexGuard<'_, Progress>> {
        self.store.check_open()?;
        let progress = self.progress.lock();
        if progress.closed { Err(Error::Closed) } else { Ok(progress) }
    }

    /// Reads the committed offsets again; queues that are taken, or moved since the last commit,
    /// keep theirs.
    fn load(&self, progress: &mut Progress) -> Result<()> {
        let stamps = self.store.files.offsets_stamps();
        if stamps.is_some() && stamps == progress.read_at {
            return Ok(());
        }
        let committed = self.store.files.committed()?.1;
        progress.read_at = stamps;
        let Progress { next, done, moved, taken, committed: known, .. } = progress;
        let is_ours = |queue: &Queue| moved.contains_key(queue) || taken.contains_key(queue);
        next.retain(|queue, _| is_ours(queue));
        done.retain(|queue, _| is_ours(queue));
        known.retain(|queue, _| is_ours(queue));
        let Some(loaded) = &committed else { return Ok(()) };
        for at in loaded.table.iter().filter(|at| at.group == self.name) {
            let queue = (at.topic.to_owned(), at.queue_id);
            if !is_ours(&queue) {
                known.insert(queue.clone(), at.queue_offset);
                let ranges = loaded.table.done(&at);
                if !ranges.is_empty() {
                    done.insert(queue.clone(), ranges);
                }
                next.insert(queue, at.queue_offset);
            }
        }
        Ok(())
    }

    /// Fails if another store lies at the path by now.
    pub fn check_place(&self) -> Result<()> {
        let progress = self.progress()?;
        self.check_place_of(&progress)
    }

    fn check_place_of(&self, progress: &Progress) -> Result<()> {
        let root = self.store.path();
        let there = self.paths(progress).storage.check_place();
        there.map_err(|error| Moved::end_writing(Error::io("stat", root)(error)))
    }

    fn paths<'a>(&'a self, progress: &'a Progress) -> &'a StorePaths {
        progress.locks.as_ref().map_or(&self.store.files.paths, |locks| &locks.paths)
    }

    pub fn queues(&self, topic: &str) -> Result<Vec<i32>> {
        self.check_place()?;
        self.store.queues_of(topic)
    }

    /// Takes a queue for this handle alone; returns its offset, or `None` while it is taken, here
    /// or in another process. The system releases the queues of a process that ends.
    pub fn take(&self, topic: &str, queue_id: i32) -> Result<Option<i64>> {
        let mut progress = self.progress()?;
        let queue = (topic.to_owned(), queue_id);
        if progress.taken.contains_key(&queue) {
            return Ok(None);
        }
        if self.store.is_of_parent() {
            return Err(Error::Closed);
        }
        self.check_place_of(&progress)?;
        if progress.locks.is_none() {
            let files = &*self.store.files;
            // Where nothing can be written, nothing is shared.
            progress.locks = match QueueLocks::open(&files.paths) {
                Err(error) if error.is_write_refused() => None,
                opened => Some(opened?),
            };
        }
        if let Some(locks) = &progress.locks
            && !locks.try_take(&self.name, topic, queue_id)?
        {
            return Ok(None);
        }
        let offset = self.find(&mut progress, &queue);
        match (&offset, &progress.locks) {
            (Ok(place), _) => {
                let done = progress.done.get(&queue).cloned().unwrap_or_default();
                progress.taken.insert(queue, Taken { place: *place, done, moved_to: 0 });
            }
            (Err(_), locks) => {
                if let Some(locks) = locks {
                    locks.release(&self.name, topic, queue_id);
                }
                progress.taken.remove(&queue);
            }
        }
        offset.map(Some)
    }

    /// Lets others take a queue. Acknowledged offsets count for them, and for a later commit here;
    /// returns whether there are any. Other offsets that were not committed are forgotten.
    pub fn release(&self, topic: &str, queue_id: i32) -> bool {
        let mut progress = self.progress.lock();
        let queue = (topic.to_owned(), queue_id);
        if progress.taken.remove(&queue).is_none() {
            return false;
        }
        let is_left = progress.has_acks(&queue) && !progress.is_behind(&queue);
        // Where nothing can be written, the place is this handle's alone.
        if !is_left && progress.moved.contains_key(&queue) && progress.locks.is_some() {
            progress.forget(&queue);
        }
        if let (false, Some(locks)) = (self.store.is_of_parent(), &progress.locks) {
            locks.release(&self.name, topic, queue_id);
        }
        is_left
    }

    /// Reads messages of a queue from an offset on; returns them, the offset behind them, and how many
    /// that the group had not done retention deleted at `start`.
    pub fn read(
        &self,
        topic: &str,
        queue_id: i32,
        start: i64,
        most: usize,
        filter: &TagFilter,
    ) -> Result<(Vec<Delivery>, i64, i64)> {
        let done = self.begin(topic, queue_id)?;
        let view = self.store.queue(topic.as_bytes(), queue_id)?;
        let least = view.map_or(start, |queue| queue.min_offset.max(start));
        let taken: i64 =
            done.iter().map(|&(from, to)| (to.min(least) - from.max(start)).max(0)).sum();
        let lost = least - start - taken;
        let mut found = Vec::new();
        let (mut offset, mut after) = (start, start);
        let mut looked_again = false;
        while found.len() < most {
            let room = most - found.len();
            let answer = self.store.read(topic.as_bytes(), queue_id, offset, room, None, filter)?;
            let next = answer.next_queue_offset;
            if next < offset && !looked_again {
                // Others of the group may have read what is not dispatched, or not in this view.
                self.store.catch_up()?;
                looked_again = true;
                continue;
            }
            for (record, end) in answer.records.into_iter().zip(answer.ends) {
                let range = done.get(done.partition_point(|&(_, to)| to < end));
                if range.is_none_or(|&(from, _)| end <= from) {
                    found.push(Delivery { record, after, end });
                }
                after = end;
            }
            if answer.status == GetStatus::Found {
                // Filtered messages behind it are done, too.
                after = next;
            }
            if next == offset {
                break;
            }
            offset = next;
        }
        Ok((found, offset, lost))
    }

    /// Enters the group in the table before its first message of a topic; returns what is done.
    fn begin(&self, topic: &str, queue_id: i32) -> Result<Done> {
        let mut progress = self.progress()?;
        let queue = (topic.to_owned(), queue_id);
        let done = progress.taken.get(&queue).map(|taken| taken.done.clone()).unwrap_or_default();
        if !progress.knows(topic) {
            let was_moved = progress.moved.contains_key(&queue);
            self.enter(&mut progress, &queue);
            match self.commit_progress(&mut progress) {
                Err(error @ Error::Poisoned { .. }) => return Err(error),
                // A group reads where nothing can be written, and beside a broker.
                Err(_) if !was_moved => drop(progress.moved.remove(&queue)),
                Err(_) | Ok(()) => {}
            }
        }
        Ok(done)
    }

    pub fn seek(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<()> {
        let mut progress = self.progress()?;
        for (field, number) in [("queue_id", i64::from(queue_id)), ("queue_offset", queue_offset)] {
            if number < 0 {
                return Err(Error::argument(field, "0 or more", number));
            }
        }
        // Acknowledgements from before count if this process ends before the next commit.
        let queue = (topic.to_owned(), queue_id);
        if progress.has_acks(&queue) {
            self.commit_progress(&mut progress)?;
        }
        progress.count_acks(&queue);
        let had_done = progress.done.remove(&queue).is_some();
        progress.taken.entry(queue.clone()).and_modify(|taken| *taken = Taken::default());
        if progress.next.insert(queue.clone(), queue_offset) != Some(queue_offset) || had_done {
            progress.moved.insert(queue, queue_offset);
        }
        Ok(())
    }

    /// Moves the group in a taken queue that was read up to `end` to the first message in flight.
    /// Messages in the `ranges` behind it are done; `commit` makes that durable.
    pub fn advance(
        &self,
        topic: &str,
        queue_id: i32,
        offset: i64,
        ranges: Done,
        end: i64,
    ) -> Result<()> {
        let mut progress = self.progress()?;
        let queue = (topic.to_owned(), queue_id);
        let taken = progress.taken.get(&queue);
        let before = taken.map(|taken| &*taken.done).unwrap_or_default();
        let offset = taken.map_or(offset, |taken| offset.max(taken.moved_to));
        // The rest of what was done before has not been passed again.
        let left = before.iter().filter(|(_, to)| *to > end).map(|&(from, to)| (from.max(end), to));
        let (offset, done) = merged(offset, ranges.into_iter().chain(left));
        progress.count_acks(&queue);
        progress.done.remove(&queue);
        if !done.is_empty() {
            progress.done.insert(queue.clone(), done);
        }
        progress.next.insert(queue.clone(), offset);
        // The process that committed that rest made it durable.
        progress.moved.insert(queue, end);
        Ok(())
    }

    /// Lag of each queue, from `current` offsets where given.
    pub fn lag(&self, current: &BTreeMap<(String, i32), i64>) -> Result<Vec<GroupOffset>> {
        let mut progress = self.progress()?;
        self.load(&mut progress)?;
        let mut next = progress.next.clone();
        next.extend(current.iter().map(|(queue, offset)| (queue.clone(), *offset)));
        let mut queues: BTreeSet<Queue> = next.keys().cloned().collect();
        let topics: BTreeSet<String> = queues.iter().map(|(topic, _)| topic.clone()).collect();
        for topic in topics {
            let ids = self.store.queues_of(&topic)?;
            queues.extend(ids.into_iter().map(|queue_id| (topic.clone(), queue_id)));
        }
        queues
            .into_iter()
            .map(|queue| {
                let view = self.store.queue(queue.0.as_bytes(), queue.1)?;
                let (min, max_offset) =
                    view.map_or((0, 0), |view| (view.min_offset, view.max_offset));
                let queue_offset = next.get(&queue).copied().unwrap_or(min);
                Ok(GroupOffset { topic: queue.0, queue_id: queue.1, queue_offset, max_offset })
            })
            .collect()
    }

    /// Releases the name without a commit.
    pub fn close(&self) {
        let mut progress = self.progress.lock();
        if !self.store.is_of_parent() {
            progress.locks = None;
        }
        if !std::mem::replace(&mut progress.closed, true) && !self.store.is_of_parent() {
            self.store.groups.lock().remove(&self.name);
        }
    }
}

impl Drop for ConsumerGroup {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
