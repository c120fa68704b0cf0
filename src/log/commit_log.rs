//! The commit log: all messages, one record after another (`org.apache.rocketmq.store.CommitLog`).
//!
//! [`CommitLog`] reads published bytes by position, [`LogWriter`](super::log_writer::LogWriter)
//! appends.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::locks::Mutex;

use super::read::frames;
use super::read::frames::{FrameAt, FramedRecord};
use crate::error::{Error, FormatError, Result};
use crate::files::{DiskReserve, FileRun, Prefaulter, each_data};
use crate::format::message;
use crate::format::message::{Frame, FrameError, MessageView, peek};
use crate::format::width::{clamp_u64, saturating_i64, to_usize};

const PART: u64 = 8 << 20;
const FIRST_READ: usize = 4 << 10;

/// The log for readers.
#[derive(Debug)]
pub struct CommitLog {
    run: FileRun,
    wrote: AtomicU64,
    flushed: AtomicU64,
    room: OnceLock<Arc<DiskReserve>>,
    losses: Losses,
}

#[derive(Debug)]
pub enum Found<'a> {
    Message(MessageView<'a>),
    /// The rest of the file, in bytes.
    Blank(u32),
    Empty,
    Bad(FormatError),
    OutOfRange,
}

impl CommitLog {
    /// A log over `run`, readable up to `end`.
    #[must_use]
    pub fn new(run: FileRun, end: u64) -> Self {
        Self {
            run,
            wrote: AtomicU64::new(end),
            flushed: AtomicU64::new(end),
            room: OnceLock::new(),
            losses: Losses::default(),
        }
    }

    /// Remembers a part that could not be read; returns whether it was unknown.
    pub(crate) fn lose(&self, range: Range<u64>) -> bool {
        self.losses.add(range)
    }

    /// Remembers the part that an error is about, if it is one of reading this log.
    #[cold]
    pub(crate) fn lose_by(&self, error: &Error) {
        let (path, offset) = match error {
            Error::Corrupt(corruption) => (corruption.path.as_deref(), Some(corruption.offset)),
            Error::Io { path, .. } => (Some(&**path), None),
            _ => return,
        };
        let files = self.run.files();
        if let Some(file) = files.iter().find(|file| Some(&*file.path) == path) {
            let (base, size) = (file.base_offset, self.run.file_size());
            let (from, len) = offset.map_or((0, size), |offset| (offset, 1));
            self.lose(base.saturating_add(from)..base.saturating_add(from).saturating_add(len));
        }
    }

    /// Known parts that could not be read. Files that retention deleted do not count.
    #[inline]
    pub(crate) fn losses(&self) -> Vec<Range<u64>> {
        self.losses.behind(self.min_offset())
    }

    /// Disk space that appends leave free.
    #[must_use]
    pub fn room(&self) -> Option<&Arc<DiskReserve>> {
        self.room.get()
    }

    /// Sets the disk space that appends leave free.
    pub fn leave(&self, room: Arc<DiskReserve>) {
        self.room.get_or_init(|| room);
    }

    /// Its files.
    #[must_use]
    pub fn run(&self) -> &FileRun {
        &self.run
    }

    /// The first offset; without files the end.
    #[must_use]
    pub fn min_offset(&self) -> u64 {
        self.run.min_offset().unwrap_or_else(|| self.end_offset())
    }

    /// End of the readable bytes.
    #[must_use]
    pub fn end_offset(&self) -> u64 {
        self.wrote.load(Ordering::Acquire)
    }

    /// End of the bytes known to be durable.
    #[must_use]
    pub fn flushed_offset(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Moves the readable end: another process writes the log, or it was truncated.
    pub fn set_end(&self, end: u64) {
        self.wrote.store(end, Ordering::Release);
        self.flushed.store(end, Ordering::Release);
    }

    #[inline]
    pub(super) fn publish(&self, end: u64) {
        self.wrote.store(end, Ordering::Release);
    }

    /// Flushes everything before `target` and returns how far the log is durable. Of the file
    /// `mapped` only this range is written: prepared pages behind it stay ready.
    ///
    /// # Errors
    /// [`Error::Io`]; nothing may be appended any more then.
    pub fn flush(&self, target: u64, mapped: Option<&(u64, Arc<Prefaulter>)>) -> Result<u64> {
        let from = self.flushed_offset();
        if target > from {
            for file in self.run.files().iter() {
                let base = file.base_offset;
                let begin = from.max(base);
                let end = target.min(base.saturating_add(self.run.file_size()));
                if begin < end {
                    match mapped.filter(|(mapped, _)| *mapped == base) {
                        Some((_, ahead)) => {
                            let range = (begin - base) as usize..(end - base) as usize;
                            self.run.sync_range(file, ahead, range)?;
                        }
                        None => self.run.sync(file)?,
                    }
                }
            }
            self.flushed.fetch_max(target, Ordering::AcqRel);
        }
        Ok(target)
    }

    /// Rewrites the files' bytes from `offset` on, so that the next flush writes them again, and
    /// starts writeback. Ends early when `is_wanted` says so.
    pub fn write_again(&self, offset: u64, is_wanted: impl Fn() -> bool) -> Result<()> {
        let size = self.run.file_size();
        for file in self.run.files().iter().filter(|file| !self.run.is_read_only(file)) {
            let mut from = offset.saturating_sub(file.base_offset);
            if from >= size {
                continue;
            }
            let open = self.run.open(file)?;
            while from < size && is_wanted() {
                let to = (from / PART + 1).saturating_mul(PART).min(size);
                let mut wrote = false;
                let _ = each_data(&*open, &file.path, from..to, |at, bytes| {
                    wrote = true;
                    open.write_at(bytes, at).map_err(Error::io("write", &file.path))?;
                    Ok(ControlFlow::Continue(()))
                })?;
                if wrote {
                    open.start_writing(from, to - from).map_err(Error::flush(&file.path))?;
                }
                from = to;
            }
        }
        Ok(())
    }

    fn room_at(&self, offset: u64, end: u64) -> usize {
        let size = self.run.file_size();
        let in_file = size - offset.checked_rem(size).unwrap_or(0);
        to_usize(in_file.min(end.saturating_sub(offset)))
    }

    /// Reads the frame at `offset` into `buffer`; `size_hint` is the record's length or 0.
    ///
    /// A record must have consistent lengths and store `offset` as its own.
    pub fn read<'b>(
        &self,
        offset: u64,
        size_hint: usize,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Found<'b>> {
        self.read_before(offset, self.end_offset(), size_hint, buffer)
    }

    /// [`CommitLog::read`] of a log that ends at `end`, for searches that must not move the end for
    /// other threads.
    pub fn read_before<'b>(
        &self,
        offset: u64,
        end: u64,
        size_hint: usize,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Found<'b>> {
        if offset < self.min_offset() || offset >= end {
            return Ok(Found::OutOfRange);
        }
        let room = self.room_at(offset, end);
        let mut wanted = if size_hint == 0 { FIRST_READ } else { size_hint }.min(room);
        // At most twice: the first bytes tell the record's size.
        loop {
            buffer.resize(wanted, 0);
            let read = self.run.read_at(buffer, offset)?;
            buffer.truncate(read);
            if read == 0 && offset < self.min_offset() {
                // Deleted meanwhile.
                return Ok(Found::OutOfRange);
            }
            match message::read_frame(buffer) {
                Err(FrameError::Incomplete { needed }) if read == wanted && needed <= room => {
                    if needed <= wanted {
                        break;
                    }
                    wanted = needed;
                }
                _ => break,
            }
        }
        Ok(Self::judge(message::read_frame(buffer), offset, room))
    }

    /// Copies the record at `physical_offset` from a log that ends at `end`.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`], [`Error::MessageNotFound`] when no record begins
    /// there, [`Error::Corrupt`] for a wrong body checksum, [`Error::Io`].
    pub fn get(&self, physical_offset: i64, end: u64) -> Result<Box<[u8]>> {
        let min = self.min_offset();
        let at = u64::try_from(physical_offset).ok().filter(|&at| at >= min && at < end);
        let Some(at) = at else {
            return Err(Error::OffsetOutOfRange {
                physical_offset,
                min: saturating_i64(min),
                max: saturating_i64(end),
            });
        };
        let nothing = |what: String| Error::MessageNotFound {
            what: format!("no message begins at physical offset {physical_offset}: {what}"),
        };
        let mut buffer = Vec::new();
        match self.read(at, 0, &mut buffer)? {
            Found::Message(view) => {
                self.check_body(&view)?;
                Ok(view.as_bytes().into())
            }
            Found::Blank(size) => Err(nothing(format!("{size} bytes of filler lie there"))),
            Found::Empty => Err(nothing("zeros lie there".to_owned())),
            Found::Bad(error) => Err(nothing(format!(
                "{}: expected {}, found {}",
                error.kind, error.expected, error.found
            ))),
            Found::OutOfRange => Err(nothing("the log ends before it".to_owned())),
        }
    }

    /// Checks a record's body checksum.
    pub fn check_body(&self, view: &MessageView<'_>) -> Result<()> {
        view.check_body_crc().map_err(|error| {
            let at = clamp_u64(view.physical_offset());
            match self.run.find(at) {
                Some(file) => error.in_file(&file.path, at - file.base_offset),
                None => error.into(),
            }
        })
    }

    /// Judges a frame read at `offset`, `room` bytes before its file's end.
    pub(super) fn judge<'b>(
        frame: Result<Frame<'b>, FrameError>,
        offset: u64,
        room: usize,
    ) -> Found<'b> {
        match frames::lies(frame, room) {
            FrameAt::Record(FramedRecord { view, .. }) => match frames::misplaced(&view, offset) {
                None => Found::Message(view),
                Some(error) => Found::Bad(error),
            },
            FrameAt::Blank(size) => Found::Blank(size),
            FrameAt::Empty => Found::Empty,
            FrameAt::Bad(error) => Found::Bad(error),
            FrameAt::End => Found::OutOfRange,
        }
    }

    /// Store time of the record at `offset`; `None` if unreadable.
    pub fn store_timestamp_ms(&self, offset: u64, size: usize) -> Result<Option<i64>> {
        let mut head = [0_u8; peek::HEAD];
        if offset < self.min_offset()
            || offset.saturating_add(size as u64) > self.end_offset()
            || self.run.read_at(&mut head, offset)? < head.len()
        {
            return Ok(None);
        }
        Ok(peek::store_timestamp_ms(&head, offset))
    }

    /// Start of the last file that begins with a record whose start and store time `is_wanted`;
    /// without such a file, of the log.
    pub fn last_file(&self, is_wanted: impl Fn(u64, i64) -> bool) -> Result<u64> {
        for file in self.run.files().iter().rev() {
            let base = file.base_offset;
            if base < self.end_offset()
                && self.store_timestamp_ms(base, 0)?.is_some_and(|time| is_wanted(base, time))
            {
                return Ok(base);
            }
        }
        Ok(self.min_offset())
    }
}

/// More are joined with what lies between them.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Losses {
    is_any: AtomicBool,
    ranges: Mutex<Vec<Range<u64>>>,
}

impl Losses {
    pub(crate) fn add(&self, range: Range<u64>) -> bool {
        let mut ranges = self.ranges.lock();
        let is_known = |known: &Range<u64>| known.start <= range.start && range.end <= known.end;
        if range.is_empty() || ranges.iter().any(is_known) {
            return false;
        }
        join(&mut ranges, range);
        if ranges.len() > MOST
            && let Some(last) = ranges.pop()
            && let Some(before) = ranges.last_mut()
        {
            before.end = last.end;
        }
        self.is_any.store(true, Ordering::Release);
        true
    }

    #[inline]
    pub(crate) fn behind(&self, begin: u64) -> Vec<Range<u64>> {
        if !self.is_any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.ranges.lock().iter().filter(|range| range.end > begin).cloned().collect()
    }
}

/// Adds a range to sorted ones, as one with those that it touches.
pub(crate) fn join(ranges: &mut Vec<Range<u64>>, mut range: Range<u64>) {
    ranges.retain(|known| {
        let touches = known.start <= range.end && range.start <= known.end;
        if touches {
            range = range.start.min(known.start)..range.end.max(known.end);
        }
        !touches
    });
    let at = ranges.partition_point(|known| known.start < range.start);
    ranges.insert(at, range);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_that_touch_are_one_and_few_are_kept() {
        let losses = Losses::default();
        assert!(losses.behind(0).is_empty());
        assert!(losses.add(10..20) && losses.add(30..40) && losses.add(20..25));
        assert!(!losses.add(12..25) && !losses.add(7..7));
        assert_eq!(losses.behind(0), [10..25, 30..40]);
        assert_eq!(losses.behind(25), std::slice::from_ref(&(30..40)));
        for number in 10..200 {
            losses.add(number * 10..number * 10 + 1);
        }
        let kept = losses.behind(0);
        assert_eq!((kept.len(), kept[MOST - 1].end), (MOST, 1991));
    }
}
