//! The consume queue of a batch topic: one entry for each record, covering as many queue offsets as
//! the record has messages (`org.apache.rocketmq.store.queue.BatchConsumeQueue`).

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::error::{Error, PutStatus, Result};
use crate::files::FileRun;
use crate::files::run::new_files::{Filled, Wanted};
use crate::format::queue::batch::{BatchQueueEntry, ENTRY_LEN};
use crate::format::queue::consume_queue::QueueEntry;
use crate::format::width::{at_most_i64, to_usize};

use super::seen_codes::SeenCodes;
use super::tail_run::TailRun;
use super::{Added, Unit};

const ENTRY: u64 = ENTRY_LEN as u64;

#[derive(Debug)]
pub struct BatchConsumeQueue {
    topic: Box<[u8]>,
    queue_id: i32,
    entries: TailRun,
    min_offset: AtomicI64,
    /// End of the queue, including entries in memory.
    max_offset: AtomicI64,
    /// Start of the last record with an entry, or -1.
    max_physical_offset: AtomicI64,
    reach: AtomicI64,
    next_offset: AtomicI64,
    seen_codes: SeenCodes,
}

fn unit_of(bytes: &[u8; ENTRY_LEN]) -> Unit {
    let entry = BatchQueueEntry::decode(bytes);
    Unit {
        number: entry.base_queue_offset,
        count: entry.message_count,
        entry: QueueEntry {
            physical_offset: entry.physical_offset,
            store_size: entry.store_size,
            tags_code: entry.tags_code,
        },
    }
}

impl BatchConsumeQueue {
    /// Opens a queue without changing it; its end is searched from the third last file on
    /// (`BatchConsumeQueue.recover`).
    pub fn load(topic: &[u8], queue_id: i32, run: FileRun) -> Result<Self> {
        let queue = Self {
            topic: topic.into(),
            queue_id,
            entries: TailRun::new(run),
            min_offset: AtomicI64::new(0),
            max_offset: AtomicI64::new(0),
            max_physical_offset: AtomicI64::new(-1),
            reach: AtomicI64::new(-1),
            next_offset: AtomicI64::new(0),
            seen_codes: SeenCodes::default(),
        };
        queue.find_end()?;
        queue.correct_min_offset(0)?;
        Ok(queue)
    }

    /// Finds the last valid entry on disk; entries must not overlap.
    pub fn find_end(&self) -> Result<()> {
        let reached = Cell::new(0);
        let (_, last) = self.entries.find_end::<ENTRY_LEN>(|entry| {
            let entry = BatchQueueEntry::decode(entry);
            let end = entry.end_queue_offset();
            let end = end.filter(|_| entry.is_valid() && entry.base_queue_offset >= reached.get());
            reached.set(end.unwrap_or(reached.get()));
            end.is_some()
        })?;
        let last = last.map(|last| unit_of(&last));
        let max = last.map_or(0, |last| last.end());
        self.max_offset.store(max, Ordering::Release);
        self.next_offset.store(max, Ordering::Release);
        self.set_last(last.map(|last| last.entry));
        Ok(())
    }

    fn set_last(&self, last: Option<QueueEntry>) {
        let start = last.map_or(-1, |last| last.physical_offset);
        let end = last.map_or(-1, |last| start.saturating_add(i64::from(last.store_size)));
        self.max_physical_offset.store(start, Ordering::Release);
        self.reach.store(end, Ordering::Release);
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

    /// First queue offset still in the log.
    #[must_use]
    pub fn min_offset(&self) -> i64 {
        self.min_offset.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn max_offset(&self) -> i64 {
        self.max_offset.load(Ordering::Acquire)
    }

    /// Start of the last record with an entry, or -1; a plain queue has its end.
    #[must_use]
    pub fn max_physical_offset(&self) -> i64 {
        self.max_physical_offset.load(Ordering::Acquire)
    }

    /// End of the last record with an entry, or -1.
    #[must_use]
    pub fn reach(&self) -> i64 {
        self.reach.load(Ordering::Acquire)
    }

    /// Queue offset of the next append. Appenders hold the lock.
    #[must_use]
    pub fn next_offset(&self) -> i64 {
        self.next_offset.load(Ordering::Relaxed)
    }

    /// Sets [`BatchConsumeQueue::next_offset`].
    pub fn set_next_offset(&self, next: i64) {
        self.next_offset.store(next, Ordering::Relaxed);
    }

    /// Position of the first entry for which `before` is false.
    fn first_not(&self, mut before: impl FnMut(&Unit) -> bool) -> Result<u64> {
        let end = self.entries.tail().end() / ENTRY;
        let start = self.entries.start() / ENTRY;
        self.entries.first_not(start, end, |entry| Some(before(&unit_of(entry))))
    }

    /// At most `count` units from the one that holds or follows `from`
    /// (`BatchConsumeQueue.iterateFrom`).
    pub fn units(&self, from: i64, count: usize) -> Result<Vec<Unit>> {
        if from < 0 || from >= self.max_offset() {
            return Ok(Vec::new());
        }
        let first = self.first_not(|unit| unit.end() <= from)?;
        self.entries.entries(first, count, unit_of)
    }

    pub fn last(&self) -> Result<Option<Unit>> {
        let places = self.places();
        let last = places.end.checked_sub(1).filter(|last| places.contains(last));
        last.map_or(Ok(None), |last| Ok(self.entries.entries(last, 1, unit_of)?.pop()))
    }

    /// At most `count` entries from position `place` on, counted from the first ever.
    pub fn entries(&self, place: u64, count: usize) -> Result<Vec<BatchQueueEntry>> {
        let end = self.entries.tail().end() / ENTRY;
        let count = to_usize(end.saturating_sub(place)).min(count);
        self.entries.entries(place, count, BatchQueueEntry::decode)
    }

    /// Positions of the first entry and the end.
    #[must_use]
    pub fn places(&self) -> std::ops::Range<u64> {
        self.entries.start() / ENTRY..self.entries.tail().end() / ENTRY
    }

    /// Number of entries in the file from the one that holds a queue offset.
    pub fn units_to_file_end(&self, number: i64) -> Result<u64> {
        let in_file = (self.run().file_size() / ENTRY).max(1);
        Ok(in_file - self.first_not(|unit| unit.end() <= number)? % in_file)
    }

    /// Adds a record's entry (`BatchConsumeQueue.putBatchMessagePositionInfo`).
    ///
    /// # Errors
    /// [`Error::Io`] when the disk is full, [`Error::InvalidMessage`] for an impossible
    /// queue offset; the queue is unchanged.
    pub fn add(&self, entry: &BatchQueueEntry) -> Result<Added> {
        if entry.physical_offset <= self.max_physical_offset.load(Ordering::Relaxed) {
            return Ok(Added::Known);
        }
        let mut tail = self.entries.tail();
        let (base, next) = (entry.base_queue_offset, self.max_offset.load(Ordering::Relaxed));
        // The first entry may have any number, but no more than a file to skip.
        let is_first = self.max_physical_offset.load(Ordering::Relaxed) < 0;
        let in_reach = is_first || base.saturating_sub(next) <= self.most_skipped();
        let end = entry.end_queue_offset().filter(|_| in_reach && entry.is_valid());
        let Some(end) = end else {
            return Err(Error::InvalidMessage {
                field: "queue_offset",
                reason: format!(
                    "{} messages from {base} on are out of reach of a queue that ends at {next}",
                    entry.message_count
                ),
                status: PutStatus::MessageIllegal,
                limit: None,
            });
        };
        if base < next && !is_first {
            return Ok(Added::Known);
        }
        self.entries.push(&mut tail, &entry.encode())?;
        if is_first {
            self.min_offset.store(base, Ordering::Release);
        }
        self.set_last(Some(unit_of(&entry.encode()).entry));
        self.max_offset.store(end, Ordering::Release);
        Ok(Added::Appended)
    }

    /// Maximum gap in queue offsets: one file.
    #[must_use]
    pub fn most_skipped(&self) -> i64 {
        let in_file = at_most_i64(self.run().file_size() / ENTRY);
        in_file.saturating_mul(i64::from(i16::MAX))
    }

    /// Missing files for the entries in memory.
    pub fn wanted_files(&self) -> impl Iterator<Item = Wanted<'_>> {
        std::iter::once((&self.entries as &dyn Filled, self.entries.wanted_files()))
    }

    #[must_use]
    pub(crate) fn wants_commit(&self) -> bool {
        self.entries.wants_commit()
    }

    pub(crate) fn distrust(&self) {
        self.entries.distrust();
    }

    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.entries.is_dirty()
    }

    /// Writes the entries in memory to the files, visible to other processes.
    pub fn commit(&self) -> Result<()> {
        self.entries.commit()
    }

    pub fn flush(&self) -> Result<bool> {
        self.entries.flush()
    }

    /// Whether non-zero bytes follow the last entry.
    pub fn has_remains(&self) -> Result<bool> {
        self.entries.has_remains()
    }

    /// Removes all entries from a queue offset on and zeroes their bytes.
    pub fn truncate(&self, queue_offset: i64) -> Result<()> {
        let keep = self.first_not(|unit| unit.number < queue_offset)?;
        self.entries.cut(keep.saturating_mul(ENTRY))?;
        self.find_end()
    }

    /// First queue offset of the first record at or behind `physical_offset`, or the end.
    pub fn first_at_or_behind(&self, physical_offset: u64) -> Result<i64> {
        let limit = at_most_i64(physical_offset);
        let first = self.first_not(|unit| unit.entry.physical_offset < limit)?;
        let unit = self.entries(first, 1)?.pop();
        Ok(unit.map_or(self.max_offset(), |unit| unit.base_queue_offset))
    }

    /// Advances the first queue offset to the first record at or behind `log_min`
    /// (`BatchConsumeQueue.reviseMinOffsetInQueue`).
    pub fn correct_min_offset(&self, log_min: u64) -> Result<()> {
        self.min_offset.store(self.first_at_or_behind(log_min)?, Ordering::Release);
        Ok(())
    }

    /// Deletes files whose records all lie before `log_min`, oldest first, never the last. Returns
    /// their number.
    pub fn delete_expired(&self, log_min: u64) -> Result<usize> {
        let log_min = at_most_i64(log_min);
        self.entries.delete_while(|entry| {
            let entry = BatchQueueEntry::decode(entry);
            !entry.is_valid() || entry.physical_offset < log_min
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Access, Os};
    use std::path::Path;
    use std::sync::Arc;

    fn queue(dir: &Path) -> BatchConsumeQueue {
        let dirs = vec![dir.join("T/0")];
        let (run, _) =
            FileRun::load(Arc::new(Os), Arc::default(), dirs, 230, Access::ReadWrite).unwrap();
        BatchConsumeQueue::load(b"T", 0, run).unwrap()
    }

    fn entry(number: i64, base: i64, count: i16) -> BatchQueueEntry {
        BatchQueueEntry {
            physical_offset: number * 100,
            store_size: 100,
            tags_code: number,
            store_timestamp_ms: 1000 + number,
            base_queue_offset: base,
            message_count: count,
            compacted_offset: -1,
        }
    }

    /// Twelve records of 1, 2, 3, 1, 2, 3, ... messages, with their base offsets.
    fn twelve(queue: &BatchConsumeQueue) -> Vec<i64> {
        let mut bases = Vec::new();
        let mut base = 0;
        for number in 0..12 {
            let count = 1 + (number % 3) as i16;
            assert_eq!(queue.add(&entry(number, base, count)).unwrap(), Added::Appended);
            bases.push(base);
            base += i64::from(count);
        }
        bases
    }

    #[test]
    fn any_offset_of_a_batch_leads_to_its_record_in_memory_and_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let written = queue(dir.path());
        let bases = twelve(&written);
        assert_eq!((written.max_offset(), written.max_physical_offset()), (24, 1100));
        let check = |read: &BatchConsumeQueue| {
            for offset in 0..24 {
                let unit = read.units(offset, 1).unwrap()[0];
                let base = *bases.iter().rev().find(|&&base| base <= offset).unwrap();
                assert_eq!(unit.number, base, "offset {offset}");
                let rest = bases.iter().filter(|&&other| other >= base).count();
                assert_eq!(read.units(offset, 100).unwrap().len(), rest);
            }
            assert!(read.units(24, 1).unwrap().is_empty() && read.units(-1, 1).unwrap().is_empty());
            assert_eq!((read.min_offset(), read.max_offset(), read.reach()), (0, 24, 1200));
        };
        check(&written);
        written.flush().unwrap();
        check(&queue(dir.path()));
    }

    #[test]
    fn a_record_dispatched_before_and_an_offset_taken_before_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let queue = queue(dir.path());
        twelve(&queue);
        assert_eq!(queue.add(&entry(11, 24, 1)).unwrap(), Added::Known);
        assert_eq!(queue.add(&entry(12, 23, 1)).unwrap(), Added::Known);
        for (base, count) in [(-1, 1), (24, 0), (24, -1), (i64::MAX, 1), (1 << 40, 1)] {
            assert!(queue.add(&entry(12, base, count)).is_err(), "{base} {count}");
        }
        assert_eq!(queue.max_offset(), 24);
        assert_eq!(queue.add(&entry(12, 30, 5)).unwrap(), Added::Appended);
        assert_eq!(queue.units(26, 1).unwrap()[0].number, 30);
    }

    #[test]
    fn cut_entries_do_not_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let first = queue(dir.path());
        let bases = twelve(&first);
        first.flush().unwrap();
        first.truncate(bases[7]).unwrap();
        assert_eq!((first.max_offset(), first.max_physical_offset()), (bases[7], 600));
        first.flush().unwrap();
        let again = queue(dir.path());
        assert_eq!(again.max_offset(), bases[7]);
        again.truncate(0).unwrap();
        assert_eq!((again.max_offset(), again.max_physical_offset()), (0, -1));
        assert_eq!(queue(dir.path()).max_offset(), 0);
    }

    #[test]
    fn the_first_offset_follows_the_log_and_files_go() {
        let dir = tempfile::tempdir().unwrap();
        let queue = queue(dir.path());
        let bases = twelve(&queue);
        queue.flush().unwrap();
        for (log_min, expected) in [(0, 0), (600, bases[6]), (601, bases[7]), (9999, 24)] {
            queue.correct_min_offset(log_min).unwrap();
            assert_eq!(queue.min_offset(), expected);
        }
        assert_eq!(queue.delete_expired(500).unwrap(), 1);
        assert_eq!(queue.units(0, 1).unwrap()[0].number, bases[5]);
        assert_eq!(queue.places(), 5..12);
        assert_eq!(queue.delete_expired(u64::MAX).unwrap(), 1);
        assert_eq!((queue.places(), queue.max_offset()), (10..12, 24));
    }
}
