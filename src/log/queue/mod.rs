//! A queue: the position of each message in the commit log, for table, dispatch, recovery and
//! readers (`org.apache.rocketmq.store.ConsumeQueue`, `BatchConsumeQueue`). `entry_run.rs` reads its
//! entries by position.

pub mod consume_queue_ext;
pub(crate) mod entry_run;
mod queue_folder;
pub mod unit;
pub mod verified_tags;

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::error::{Error, Result};
use crate::files::run::new_files::Wanted;
use crate::files::run::tail_run::{Tail, TailRun};
use crate::files::{FileRun, RunFile};
use crate::format::queue::consume_queue::{ENTRY_LEN, QueueEntry};
use crate::format::width::{clamp_u64, saturating_i64, to_usize};

use self::consume_queue_ext::{ConsumeQueueExt, TagsCode};
use self::entry_run::{EntryRun, FILES_SEARCHED};
pub use self::unit::{Added, CqUnit, QueueKind};
use self::verified_tags::VerifiedTags;

const ATTEMPTS: usize = 4;

#[derive(Debug)]
pub struct Queue {
    topic: Box<[u8]>,
    queue_id: i32,
    entries: EntryRun,
    ext: Option<Box<ConsumeQueueExt>>,
    min_offset: AtomicI64,
    max_offset: AtomicI64,
    max_physical_offset: AtomicI64,
    reach: AtomicI64,
    next_offset: AtomicI64,
    /// Offset of the message of the first entry in a plain queue's files; -1 if unknown.
    first: AtomicI64,
    verified_tags: VerifiedTags,
    has_end: AtomicBool,
}

impl Queue {
    /// A queue whose end is not known yet.
    pub(crate) fn new(kind: QueueKind, topic: &[u8], queue_id: i32, run: FileRun) -> Self {
        Self {
            topic: topic.into(),
            queue_id,
            entries: EntryRun::new(kind, run),
            ext: None,
            min_offset: AtomicI64::new(0),
            max_offset: AtomicI64::new(0),
            max_physical_offset: AtomicI64::new(-1),
            reach: AtomicI64::new(-1),
            next_offset: AtomicI64::new(0),
            first: AtomicI64::new(-1),
            verified_tags: VerifiedTags::default(),
            has_end: AtomicBool::new(false),
        }
    }

    /// Opens a queue without changing it; its end is searched from the third last file on
    /// (`ConsumeQueue.recover`).
    pub fn load(kind: QueueKind, topic: &[u8], queue_id: i32, run: FileRun) -> Result<Self> {
        Self::load_sealed(kind, topic, queue_id, run, false)
    }

    pub(crate) fn load_sealed(
        kind: QueueKind,
        topic: &[u8],
        queue_id: i32,
        run: FileRun,
        is_sealed: bool,
    ) -> Result<Self> {
        let queue = Self::new(kind, topic, queue_id, run);
        queue.search_end(is_sealed, 0)?;
        if kind == QueueKind::Batch {
            queue.correct_min_offset(0)?;
        }
        Ok(queue)
    }

    #[must_use]
    pub fn with_ext(self, ext: ConsumeQueueExt) -> Self {
        Self { ext: Some(Box::new(ext)), ..self }
    }

    /// Finds the last entry on disk. Zeros end a plain queue, while an invalid entry hides nothing
    /// behind it and readers skip it. The entries of a batch queue are valid and do not overlap.
    pub fn find_end(&self) -> Result<()> {
        self.search_end(false, 0)
    }

    /// [`Queue::find_end`] from an entry on, if it lies in its place.
    pub(crate) fn find_end_behind(&self, entry: &CqUnit) -> Result<()> {
        let (len, mut units) = (self.kind().entry_len(), Vec::new());
        let (mut bytes, position) = (vec![0; len], clamp_u64(entry.number));
        let read = self.run().read_at(&mut bytes, position.saturating_mul(len as u64))?;
        CqUnit::decode(self.kind(), position, &bytes[..read], &mut units);
        let is_there = units
            .first()
            .is_some_and(|unit| unit.leads() && unit.physical_offset == entry.physical_offset);
        self.search_end(false, if is_there { position } else { 0 })
    }

    fn search_end(&self, is_sealed: bool, from: u64) -> Result<()> {
        let is_plain = self.kind() == QueueKind::Plain;
        let (mut first, mut reached) = (None, 0);
        let (end, mut last) = self.entries.find_end(is_sealed && is_plain, from, |unit| {
            first.get_or_insert(*unit);
            if is_plain {
                return unit.entry() != QueueEntry::default();
            }
            let is_next = unit.is_valid() && unit.number >= reached;
            reached = if is_next { unit.end() } else { reached };
            is_next
        })?;
        let first = first.filter(|first| {
            let is_first = from == 0 && self.run().files().len() <= FILES_SEARCHED;
            is_plain && first.leads() && is_first
        });
        self.first.store(first.map_or(-1, |first| first.physical_offset), Ordering::Release);
        let mut max = last.map_or(0, |last| last.end());
        if is_plain {
            max = saturating_i64(end);
            last = match last.filter(CqUnit::is_valid) {
                None => self.entries.last_valid(self.entries.positions())?,
                last => last,
            };
        }
        self.max_offset.store(max, Ordering::Release);
        self.next_offset.store(max, Ordering::Release);
        self.set_last(last.filter(CqUnit::leads).as_ref());
        self.ext.as_ref().map_or(Ok(()), |ext| ext.find_end())?;
        self.has_end.store(true, Ordering::Release);
        Ok(())
    }

    #[inline]
    pub(crate) fn has_end(&self) -> bool {
        self.has_end.load(Ordering::Acquire)
    }

    #[inline]
    fn set_last(&self, last: Option<&CqUnit>) {
        let end = last.map_or(-1, CqUnit::physical_end);
        let of_kind = match self.kind() {
            QueueKind::Plain => end,
            QueueKind::Batch => last.map_or(-1, |last| last.physical_offset),
        };
        self.max_physical_offset.store(of_kind, Ordering::Release);
        self.reach.store(end, Ordering::Release);
    }

    #[inline]
    #[must_use]
    pub const fn kind(&self) -> QueueKind {
        self.entries.kind
    }

    #[must_use]
    pub fn topic(&self) -> &[u8] {
        &self.topic
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

    /// Runs of the queue. Units of the extension are written before the entries that name them.
    fn runs(&self) -> impl Iterator<Item = &TailRun> {
        self.ext().map(|ext| &ext.units).into_iter().chain([&self.entries.bytes])
    }

    #[must_use]
    pub fn has_lost_files(&self) -> bool {
        self.runs().any(|run| run.run().has_lost_files())
    }

    #[must_use]
    pub fn min_offset(&self) -> i64 {
        self.min_offset.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn max_offset(&self) -> i64 {
        self.max_offset.load(Ordering::Acquire)
    }

    /// RocketMQ's `maxPhysicOffset`: end of the last message with an entry, of a batch queue its
    /// start; or -1.
    #[must_use]
    pub fn max_physical_offset(&self) -> i64 {
        self.max_physical_offset.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn reach(&self) -> i64 {
        self.reach.load(Ordering::Acquire)
    }

    /// Queue offset of the next append. Appenders hold the lock.
    #[inline]
    #[must_use]
    pub fn next_offset(&self) -> i64 {
        self.next_offset.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn set_next_offset(&self, next: i64) {
        self.next_offset.store(next, Ordering::Relaxed);
    }

    /// Positions of the first entry and the end; in a plain queue they are queue offsets.
    #[must_use]
    pub fn positions(&self) -> Range<u64> {
        self.entries.positions()
    }

    /// Position of a queue offset: in a batch queue that of the first entry that is not `before` it.
    fn position_of(&self, number: i64, before: impl Fn(&CqUnit) -> bool) -> Result<u64> {
        match self.kind() {
            QueueKind::Plain => Ok(clamp_u64(number)),
            QueueKind::Batch => {
                self.entries.partition_point_by(self.entries.positions(), |unit| Some(before(unit)))
            }
        }
    }

    /// At most `count` units from the one that holds or follows `from`
    /// (`BatchConsumeQueue.iterateFrom`).
    pub fn units(&self, from: i64, count: usize) -> Result<Vec<CqUnit>> {
        let left = self.max_offset().saturating_sub(from);
        if from < 0 || left <= 0 {
            return Ok(Vec::new());
        }
        let position = self.position_of(from, |unit| unit.end() <= from)?;
        self.entries.units(position, to_usize(clamp_u64(left)).min(count))
    }

    pub fn each_unit(&self, mut take: impl FnMut(&CqUnit)) -> Result<()> {
        let first = self.min_offset();
        let position = self.position_of(first, |unit| unit.end() <= first)?;
        self.each_from(position, |unit| {
            take(unit);
            ControlFlow::Continue(())
        })
    }

    pub fn unit(&self, number: i64) -> Result<Option<CqUnit>> {
        Ok(self.units(number, 1)?.pop().filter(|unit| unit.holds(number)))
    }

    /// Number of a record's entry in a plain queue: its own one, or an earlier one from `from` on.
    pub fn number_of(&self, wanted: &CqUnit, from: i64) -> Result<Option<i64>> {
        let leads = |number: i64| -> Result<bool> {
            let unit = self.unit(number)?;
            Ok(unit.is_some_and(|unit| unit.physical_offset == wanted.physical_offset))
        };
        if leads(wanted.number)? {
            return Ok(Some(wanted.number));
        }
        let number = self.first_at_or_behind(clamp_u64(wanted.physical_offset))?;
        let is_known = (from..wanted.number).contains(&number) && leads(number)?;
        Ok(is_known.then_some(number))
    }

    pub fn last(&self) -> Result<Option<CqUnit>> {
        let positions = self.positions();
        let last = positions.end.checked_sub(1).filter(|last| positions.contains(last));
        last.map_or(Ok(None), |last| Ok(self.entries.units(last, 1)?.pop()))
    }

    /// Number of entries in the file from the one that holds a queue offset.
    pub fn units_to_file_end(&self, number: i64) -> Result<usize> {
        let in_file = self.entries.in_file().max(1);
        let position = self.position_of(number, |unit| unit.end() <= number)?;
        Ok(to_usize(in_file - position % in_file))
    }

    #[inline]
    pub fn resolve(&self, tags_code: i64) -> Result<TagsCode> {
        match &self.ext {
            Some(ext) => ext.resolve(tags_code),
            None => Ok(TagsCode::Known(tags_code)),
        }
    }

    #[must_use]
    pub const fn verified_tags(&self) -> &VerifiedTags {
        &self.verified_tags
    }

    /// Adds a record's entry (`ConsumeQueue.putMessagePositionInfoWrapper`,
    /// `BatchConsumeQueue.putBatchMessagePositionInfo`). An extension takes the tags code.
    ///
    /// A gap in a plain queue is filled with entries that lead nowhere, so that every message keeps
    /// its number.
    ///
    /// # Errors
    /// [`Error::Io`] when the disk is full, [`Error::InvalidMessage`] for an impossible
    /// queue offset; the queue is unchanged.
    #[inline]
    pub fn add(&self, unit: &CqUnit) -> Result<Added> {
        self.put(unit, self.ext())
    }

    /// Adds a record of another queue: the entry holds its code itself, and batch queues refuse it.
    pub fn add_plain(&self, unit: &CqUnit) -> Result<Added> {
        match self.kind() {
            QueueKind::Plain => self.put(unit, None),
            QueueKind::Batch => Err(Error::argument(
                "properties INNER_MULTI_DISPATCH",
                "plain queues",
                "a queue of batches",
            )),
        }
    }

    #[inline]
    fn put(&self, unit: &CqUnit, ext: Option<&ConsumeQueueExt>) -> Result<Added> {
        let position = match self.kind() {
            QueueKind::Plain => unit.physical_end(),
            QueueKind::Batch => unit.physical_offset,
        };
        let last = self.max_physical_offset.load(Ordering::Relaxed);
        if position <= last {
            return Ok(Added::Known);
        }
        let mut tail = self.entries.bytes.tail();
        let next = self.max_offset.load(Ordering::Relaxed);
        let is_free = match self.kind() {
            QueueKind::Plain if unit.number == next => true,
            QueueKind::Plain => self.fill_gap(&mut tail, next, unit.number)?,
            QueueKind::Batch => self.is_free(last < 0, next, unit)?,
        };
        if !is_free {
            return Ok(Added::Known);
        }
        match ext {
            None => self.entries.push(&mut tail, unit)?,
            Some(ext) => {
                let tags_code = ext.put(unit.tags_code, unit.store_timestamp_ms);
                self.entries.push(&mut tail, &CqUnit { tags_code, ..*unit })?;
            }
        }
        if last < 0 && self.kind() == QueueKind::Batch {
            self.min_offset.store(unit.number, Ordering::Release);
        }
        self.set_last(Some(unit));
        self.max_offset.store(unit.end(), Ordering::Release);
        Ok(Added::Appended)
    }

    /// Fills a plain queue up to `queue_offset`; returns whether that is free. The first entry may
    /// have any number: its file begins where that number requires (`ConsumeQueue.fillPreBlank`).
    #[cold]
    fn fill_gap(&self, tail: &mut Tail, next: i64, queue_offset: i64) -> Result<bool> {
        // RocketMQ adds a second message with number 0 too, and then drops the one with its number.
        if queue_offset < next {
            return Ok(false);
        }
        let size = self.run().file_size();
        let refused = || {
            let most = next.saturating_add(saturating_i64(size) / ENTRY_LEN as i64);
            let wanted = format!("at most {most}, a file behind the queue's end {next}");
            Error::argument("queue_offset", wanted, queue_offset)
        };
        let target = clamp_u64(queue_offset).checked_mul(ENTRY_LEN as u64);
        let target = target.filter(|&target| i64::try_from(target).is_ok());
        let target = target.ok_or_else(refused)?;
        if self.run().files().is_empty() && tail.is_empty() {
            tail.set_end(target / size * size);
            self.min_offset.store(queue_offset, Ordering::Release);
        }
        self.entries.bytes.write_out(tail)?;
        let missing = target - tail.end();
        if missing > size {
            return Err(refused());
        }
        let blanks = QueueEntry::PRE_BLANK.encode().repeat(to_usize(missing) / ENTRY_LEN);
        self.entries.bytes.push(tail, &blanks)?;
        self.max_offset.store(queue_offset, Ordering::Release);
        Ok(true)
    }

    /// Whether a batch's numbers are free. The first entry may have any number, but no more than a
    /// file to skip.
    fn is_free(&self, is_first: bool, next: i64, unit: &CqUnit) -> Result<bool> {
        let most_skipped =
            saturating_i64(self.entries.in_file()).saturating_mul(i64::from(i16::MAX));
        let in_reach = is_first || unit.number.saturating_sub(next) <= most_skipped;
        if !(in_reach && unit.is_valid()) {
            let CqUnit { number, count, .. } = unit;
            let wanted = format!("a number near the queue's end {next}");
            let got = format!("{count} messages from {number} on");
            return Err(Error::argument("queue_offset", wanted, got));
        }
        Ok(is_first || unit.number >= next)
    }

    #[must_use]
    pub fn wanted_files(&self) -> Vec<Wanted<'_>> {
        let mut wanted: Vec<_> = self.runs().map(|run| (run, run.wanted_files())).collect();
        for (_, files) in wanted.iter_mut().skip(1) {
            files.iter_mut().for_each(|file| file.bytes.clear());
        }
        wanted
    }

    #[must_use]
    pub fn wants_commit(&self) -> bool {
        self.runs().any(TailRun::wants_commit)
    }

    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.runs().any(TailRun::is_dirty)
    }

    pub(crate) fn mark_all_dirty(&self) {
        self.runs().for_each(TailRun::mark_all_dirty);
    }

    pub fn commit(&self) -> Result<()> {
        self.runs().try_for_each(TailRun::commit)
    }

    pub fn flush(&self) -> Result<bool> {
        self.runs().try_fold(false, |flushed, run| Ok(run.flush()? || flushed))
    }

    /// Whether non-zero bytes follow the last entry; they would become entries as the queue grows.
    pub fn has_remains(&self) -> Result<bool> {
        // Its lock is not held while files are read.
        let end = self.entries.bytes.tail().end();
        Ok(!self.run().is_empty_from(end)?)
    }

    /// Removes all entries from a queue offset on and zeroes the rest, so that nothing comes back.
    pub fn truncate(&self, queue_offset: i64) -> Result<()> {
        let position = self.position_of(queue_offset, |unit| unit.number < queue_offset)?;
        self.entries.bytes.cut(position.saturating_mul(self.kind().entry_len() as u64))?;
        self.find_end()?;
        self.ext().map_or(Ok(()), |ext| ext.cut_behind(self.last()?))
    }

    /// Number of the first entry whose message begins at or behind `physical_offset`, or the end.
    /// Pre-blank entries are skipped.
    pub fn first_at_or_behind(&self, physical_offset: u64) -> Result<i64> {
        let limit = saturating_i64(physical_offset);
        let positions = self.positions();
        let head = self.entries.head_end(&positions)?;
        let first = self.entries.partition_point_by(head..positions.end, |unit| {
            // An entry for a lost message tells nothing of its neighbours.
            unit.leads().then_some(unit.physical_offset < limit)
        })?;
        match self.kind() {
            QueueKind::Plain => Ok(saturating_i64(first)),
            QueueKind::Batch => {
                let unit = self.entries.units(first, 1)?.pop();
                Ok(unit.map_or(self.max_offset(), |unit| unit.number))
            }
        }
    }

    /// Advances the first entry to the first message at or behind `log_min`
    /// (`ConsumeQueue.correctMinOffset`, `BatchConsumeQueue.reviseMinOffsetInQueue`).
    pub fn correct_min_offset(&self, log_min: u64) -> Result<()> {
        let start = saturating_i64(self.positions().start);
        let first = self.first.load(Ordering::Acquire);
        let is_start = first >= 0 && (log_min == 0 || self.max_offset() == start + 1);
        let min = match is_start && u64::try_from(first).is_ok_and(|first| first >= log_min) {
            true => start,
            false => self.first_at_or_behind(log_min)?,
        };
        self.min_offset.store(min, Ordering::Release);
        Ok(())
    }

    /// Offset of the record named by the last entry of a file; `None` if it leads nowhere.
    pub fn last_place_in(&self, file: &RunFile) -> Result<Option<u64>> {
        let last = self.entries.last_in(file)?.filter(CqUnit::leads);
        Ok(last.and_then(|last| u64::try_from(last.physical_offset).ok()))
    }

    /// Deletes files whose messages all lie before `log_min`, oldest first, never the last. Returns
    /// their number.
    pub fn delete_expired(&self, log_min: u64) -> Result<usize> {
        let log_min = saturating_i64(log_min);
        self.first.store(-1, Ordering::Release);
        let deleted =
            self.entries.delete_while(|last| !last.leads() || last.physical_offset < log_min)?;
        if let Some(ext) = self.ext().filter(|_| deleted > 0) {
            ext.delete_before(self.entries.units(self.positions().start, 1)?.pop())?;
        }
        Ok(deleted)
    }

    /// Whether the files alone show damage: a wrong length, a missing file, or entries behind zeros.
    pub fn is_unsound(&self) -> Result<bool> {
        if !self.run().check().is_empty() {
            return Ok(true);
        }
        // A writer may have added entries.
        for _ in 0..ATTEMPTS {
            if !self.has_remains()? {
                return Ok(false);
            }
            let before = self.max_offset();
            self.find_end()?;
            if self.max_offset() == before {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
