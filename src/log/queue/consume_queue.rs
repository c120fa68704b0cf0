//! A consume queue: the position of each message of a queue in the commit log
//! (`org.apache.rocketmq.store.ConsumeQueue`).

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::error::{Error, Result};
use crate::files::FileRun;
use crate::files::run::new_files::{Filled, Wanted};
use crate::format::queue::consume_queue::{ENTRY_LEN, QueueEntry};
use crate::format::width::{at_least_0, at_most_i64, to_usize};

use super::consume_queue_ext::ConsumeQueueExt;
use super::seen_codes::SeenCodes;
use super::tail_run::{FILES_SEARCHED, Tail, TailRun};
use super::{Added, Unit};

const ENTRY: u64 = ENTRY_LEN as u64;

#[derive(Debug)]
pub struct ConsumeQueue {
    topic: Box<[u8]>,
    queue_id: i32,
    entries: TailRun,
    ext: Option<Box<ConsumeQueueExt>>,
    min_offset: AtomicI64,
    /// End of the queue, including entries in memory.
    max_offset: AtomicI64,
    /// End of the last message with an entry, or -1.
    max_physical_offset: AtomicI64,
    next_offset: AtomicI64,
    /// Offset of the message of the first entry in the files; -1 if unknown.
    first: AtomicI64,
    seen_codes: SeenCodes,
}

fn number_of(entries: u64) -> i64 {
    at_most_i64(entries)
}

impl ConsumeQueue {
    /// Opens a queue without changing it; its end is searched from the third last file on
    /// (`ConsumeQueue.recover`).
    pub fn load(topic: &[u8], queue_id: i32, run: FileRun) -> Result<Self> {
        let queue = Self {
            topic: topic.into(),
            queue_id,
            entries: TailRun::new(run),
            ext: None,
            min_offset: AtomicI64::new(0),
            max_offset: AtomicI64::new(0),
            max_physical_offset: AtomicI64::new(-1),
            next_offset: AtomicI64::new(0),
            first: AtomicI64::new(-1),
            seen_codes: SeenCodes::default(),
        };
        queue.find_end()?;
        Ok(queue)
    }

    #[must_use]
    pub fn with_ext(self, ext: ConsumeQueueExt) -> Self {
        Self { ext: Some(Box::new(ext)), ..self }
    }

    /// Finds the last entry on disk: zeros end the queue, while an invalid entry hides nothing
    /// behind it and readers skip it.
    pub fn find_end(&self) -> Result<()> {
        let first = Cell::new(None);
        let (end, last) = self.entries.find_end::<ENTRY_LEN>(|entry| {
            first.set(first.get().or(Some(*entry)));
            *entry != [0; ENTRY_LEN]
        })?;
        let first = first.get().as_ref().map(QueueEntry::decode);
        let first = first.filter(|entry| entry.is_valid() && !entry.is_pre_blank());
        let first = first.filter(|_| self.run().files().len() <= FILES_SEARCHED);
        self.first.store(first.map_or(-1, |entry| entry.physical_offset), Ordering::Release);
        let max = number_of(end / ENTRY);
        self.max_offset.store(max, Ordering::Release);
        self.next_offset.store(max, Ordering::Release);
        let last = match last.as_ref().map(QueueEntry::decode).filter(QueueEntry::is_valid) {
            None => self.last_valid(end / ENTRY)?,
            last => last,
        };
        self.max_physical_offset.store(
            last.filter(|entry| !entry.is_pre_blank()).map_or(-1, |entry| {
                entry.physical_offset.saturating_add(i64::from(entry.store_size))
            }),
            Ordering::Release,
        );
        if let Some(ext) = &self.ext {
            ext.find_end()?;
        }
        Ok(())
    }

    fn last_valid(&self, end: u64) -> Result<Option<QueueEntry>> {
        let (start, mut end) = (self.entries.start() / ENTRY, end);
        // Usually the very last.
        let mut count = 1;
        while end > start {
            let from = end.saturating_sub(count).max(start);
            let wanted = to_usize(end - from);
            let entries = self.entries.entries(from, wanted, QueueEntry::decode)?;
            if let Some(last) = entries.into_iter().rfind(QueueEntry::is_valid) {
                return Ok(Some(last));
            }
            (end, count) = (from, 1024);
        }
        Ok(None)
    }

    /// Whether non-zero bytes follow the last entry; they would become entries as the queue grows.
    pub fn has_remains(&self) -> Result<bool> {
        self.entries.has_remains()
    }

    #[must_use]
    pub fn topic(&self) -> &[u8] {
        &self.topic
    }

    #[must_use]
    pub const fn seen_codes(&self) -> &SeenCodes {
        &self.seen_codes
    }

    #[must_use]
    pub fn queue_id(&self) -> i32 {
        self.queue_id
    }

    #[must_use]
    pub fn run(&self) -> &FileRun {
        self.entries.run()
    }

    #[must_use]
    pub fn ext(&self) -> Option<&ConsumeQueueExt> {
        self.ext.as_deref()
    }

    #[must_use]
    pub fn min_offset(&self) -> i64 {
        self.min_offset.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn max_offset(&self) -> i64 {
        self.max_offset.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn max_physical_offset(&self) -> i64 {
        self.max_physical_offset.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn next_offset(&self) -> i64 {
        self.next_offset.load(Ordering::Relaxed)
    }

    pub fn set_next_offset(&self, next: i64) {
        self.next_offset.store(next, Ordering::Relaxed);
    }

    /// At most `count` entries from number `from` on.
    pub fn read(&self, from: i64, count: usize) -> Result<Vec<QueueEntry>> {
        self.decoded(from, count, QueueEntry::decode)
    }

    pub fn units(&self, from: i64, count: usize) -> Result<Vec<Unit>> {
        let mut number = from;
        self.decoded(from, count, |entry| {
            let unit = Unit { number, count: 1, entry: QueueEntry::decode(entry) };
            number += 1;
            unit
        })
    }

    fn decoded<T>(
        &self,
        from: i64,
        count: usize,
        decode: impl FnMut(&[u8; ENTRY_LEN]) -> T,
    ) -> Result<Vec<T>> {
        let (Ok(start), left) = (u64::try_from(from), self.max_offset().saturating_sub(from))
        else {
            return Ok(Vec::new());
        };
        let count = to_usize(at_least_0(left)).min(count);
        self.entries.entries(start, count, decode)
    }

    pub fn entry(&self, number: i64) -> Result<Option<QueueEntry>> {
        Ok(self.read(number, 1)?.pop())
    }

    /// Adds the entry for `queue_offset` (`ConsumeQueue.putMessagePositionInfo`).
    ///
    /// A gap is filled with entries that lead nowhere, so that every message keeps its number.
    ///
    /// # Errors
    /// [`Error::Io`] when the disk is full; the queue is unchanged.
    #[inline]
    pub fn add(&self, queue_offset: i64, entry: QueueEntry) -> Result<Added> {
        self.add_with(queue_offset, entry, |code| code)
    }

    /// [`ConsumeQueue::add`] with the tags code in the extension, if enabled
    /// (`ConsumeQueue.putMessagePositionInfoWrapper`).
    #[inline]
    pub fn add_extended(
        &self,
        queue_offset: i64,
        entry: QueueEntry,
        store_timestamp_ms: i64,
    ) -> Result<Added> {
        match &self.ext {
            None => self.add(queue_offset, entry),
            Some(ext) => {
                self.add_with(queue_offset, entry, |code| ext.put(code, store_timestamp_ms))
            }
        }
    }

    #[inline]
    fn add_with(
        &self,
        queue_offset: i64,
        mut entry: QueueEntry,
        tags_code: impl FnOnce(i64) -> i64,
    ) -> Result<Added> {
        let end = entry.physical_offset.saturating_add(i64::from(entry.store_size));
        if end <= self.max_physical_offset.load(Ordering::Relaxed) {
            return Ok(Added::Known);
        }
        let mut tail = self.entries.tail();
        let next = self.max_offset.load(Ordering::Relaxed);
        if queue_offset != next {
            // RocketMQ adds a second message with number 0 too, and then drops the one with its
            // number.
            if queue_offset < next {
                return Ok(Added::Known);
            }
            if queue_offset > next {
                self.fill_gap(&mut tail, next, queue_offset)?;
            }
        }
        entry.tags_code = tags_code(entry.tags_code);
        self.entries.push(&mut tail, &entry.encode())?;
        let next = self.max_offset.load(Ordering::Relaxed);
        self.max_physical_offset.store(end, Ordering::Release);
        self.max_offset.store(next + 1, Ordering::Release);
        Ok(Added::Appended)
    }

    /// Fills a gap. The first entry may have any number: its file begins where that number requires
    /// (`ConsumeQueue.fillPreBlank`).
    #[cold]
    fn fill_gap(&self, tail: &mut Tail, next: i64, queue_offset: i64) -> Result<()> {
        let too_far = || Error::InvalidMessage {
            field: "queue_offset",
            reason: format!("{queue_offset} is out of reach of a queue that ends at {next}"),
            status: crate::error::PutStatus::MessageIllegal,
            limit: None,
        };
        let target = u64::try_from(queue_offset).map_err(|_| too_far())?;
        let target = target.checked_mul(ENTRY).ok_or_else(too_far)?;
        if i64::try_from(target).is_err() {
            return Err(too_far());
        }
        let size = self.run().file_size();
        if self.run().files().is_empty() && tail.is_empty() {
            tail.set_end(target / size * size);
            self.min_offset.store(queue_offset, Ordering::Release);
        }
        self.entries.write_out(tail)?;
        if target - tail.end() > size {
            return Err(too_far());
        }
        let blanks = to_usize((target - tail.end()) / ENTRY);
        self.entries.push(tail, &QueueEntry::PRE_BLANK.encode().repeat(blanks))?;
        self.max_offset.store(queue_offset, Ordering::Release);
        Ok(())
    }

    /// Missing files for the entries in memory.
    pub fn wanted_files(&self) -> impl Iterator<Item = Wanted<'_>> {
        let ext = self.ext().map(ConsumeQueueExt::wanted_files);
        let mut files = self.entries.wanted_files();
        if ext.is_some() {
            // Units are written before the entries that name them.
            files.iter_mut().for_each(|file| file.bytes.clear());
        }
        ext.into_iter().chain([(&self.entries as &dyn Filled, files)])
    }

    #[must_use]
    pub(crate) fn wants_commit(&self) -> bool {
        self.entries.wants_commit() || self.ext().is_some_and(ConsumeQueueExt::wants_commit)
    }

    pub(crate) fn distrust(&self) {
        self.entries.distrust();
        if let Some(ext) = &self.ext {
            ext.distrust();
        }
    }

    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.entries.is_dirty() || self.ext().is_some_and(ConsumeQueueExt::is_dirty)
    }

    /// Writes the entries in memory to the files, visible to other processes.
    pub fn commit(&self) -> Result<()> {
        if let Some(ext) = &self.ext {
            ext.commit()?;
        }
        self.entries.commit()
    }

    pub fn flush(&self) -> Result<bool> {
        let flushed = self.ext().map_or(Ok(false), ConsumeQueueExt::flush)?;
        Ok(self.entries.flush()? || flushed)
    }

    /// Truncates to the first `count` entries and zeroes the rest, so that nothing comes back.
    pub fn truncate(&self, count: i64) -> Result<()> {
        self.entries.cut(at_least_0(count).saturating_mul(ENTRY))?;
        self.find_end()?;
        if let Some(ext) = &self.ext {
            ext.cut_behind(self.entry(self.max_offset().saturating_sub(1))?)?;
        }
        Ok(())
    }

    /// Number of the first entry whose message begins at or behind `physical_offset`, or the end.
    /// Pre-blank entries are skipped.
    pub fn first_at_or_behind(&self, physical_offset: u64) -> Result<i64> {
        let limit = at_most_i64(physical_offset);
        let end = at_least_0(self.max_offset());
        let first = self.entries.first_not(self.head_end(end)?, end, |entry| {
            let entry = QueueEntry::decode(entry);
            // An entry for a lost message tells nothing of its neighbours.
            let tells = entry.is_valid() && !entry.is_pre_blank();
            tells.then_some(entry.physical_offset < limit)
        })?;
        Ok(number_of(first))
    }

    /// Number of the first entry behind the pre-blank ones, at most `end`.
    fn head_end(&self, end: u64) -> Result<u64> {
        let (mut at, mut count) = (self.entries.start() / ENTRY, 1);
        while at < end {
            let wanted = to_usize(end - at).min(count);
            let entries = self.entries.entries(at, wanted, QueueEntry::decode)?;
            let blanks = entries.iter().take_while(|entry| entry.is_pre_blank()).count();
            at += blanks as u64;
            if blanks < entries.len() || entries.is_empty() {
                break;
            }
            count = 1024;
        }
        Ok(at)
    }

    /// Advances the first entry to the first message at or behind `log_min`
    /// (`ConsumeQueue.correctMinOffset`).
    pub fn correct_min_offset(&self, log_min: u64) -> Result<()> {
        let start = number_of(self.entries.start() / ENTRY);
        let first = self.first.load(Ordering::Acquire);
        let is_start = first >= 0 && (log_min == 0 || self.max_offset() == start + 1);
        let min = match is_start && u64::try_from(first).is_ok_and(|first| first >= log_min) {
            true => start,
            false => self.first_at_or_behind(log_min)?,
        };
        self.min_offset.store(min, Ordering::Release);
        Ok(())
    }

    /// Deletes files whose messages all lie before `log_min`, oldest first, never the last
    /// (`MappedFileQueue.deleteExpiredFileByOffset`). Returns their number.
    pub fn delete_expired(&self, log_min: u64) -> Result<usize> {
        let log_min = at_most_i64(log_min);
        self.first.store(-1, Ordering::Release);
        let deleted = self.entries.delete_while(|entry| {
            let entry = QueueEntry::decode(entry);
            entry.is_pre_blank() || !entry.is_valid() || entry.physical_offset < log_min
        })?;
        if let Some(ext) = self.ext.as_ref().filter(|_| deleted > 0) {
            let first = self.entries.start() / ENTRY;
            ext.delete_before(self.entry(number_of(first))?)?;
        }
        Ok(deleted)
    }
}

#[cfg(test)]
mod tests;
