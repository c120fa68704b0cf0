//! The records that begin in a byte range of the log, for readers that share a log between them.
//!
//! What a range gives is what a walk over each file from its first byte gives there, so that ranges
//! that meet give each record once, and each damaged range once:
//!
//! - A file begins with a record. A range that begins anywhere else looks for the first record behind
//!   its beginning: one that names its own place, whose lengths and checksum are right, and that is
//!   followed by another, by the blank at the file's end or by the log's end. Where one is not followed
//!   by any, or the checksums are not to be looked at and this one is wrong, or one before the range
//!   claims to reach past it, as where records lie in a body, the walk from the file's first byte
//!   decides. Of the parts that one reader takes, only the first looks before itself: whoever puts them
//!   together sees whether each begins where the one before ends ([`RangeScan::places`]).
//! - A damaged range belongs to whoever read the record before it, also where that record ends behind
//!   the range; at the beginning of a file, and of a gap between files, to whoever begins there.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Corruption, Error, Result};
use crate::format::message::peek;
use crate::format::message::{self, Frame, MessageView};

use super::block::{Block, BlockPool};
use super::scanner::{Scanned, Scanner, Stop, Taken, Walk, zeros};
use crate::log::commit_log::{CommitLog, Found};

/// How far before a range a record may begin that reaches into it: as long as records are, the setting
/// `max_message_size` left as it is.
const LOOK_BACK: u64 = 5 << 20;
/// How many bytes are looked at at a time.
const LOOK: u64 = 256 << 10;

/// Bytes of a log that hold no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Where they begin in the whole log.
    pub begin: u64,
    /// One past the last: where the next record begins, or the file ends.
    pub end: u64,
    /// What is wrong at the first of them.
    pub corruption: Corruption,
}

/// What a walk over a range meets.
#[derive(Debug)]
pub enum Met<'a, 'v> {
    /// A record, and the block that it lies in.
    Message(&'a MessageView<'v>, &'a Arc<Block>),
    /// Damage.
    Damage(DamagedRange),
}

/// Where a walk over a range stands. The log is handed to each call.
#[derive(Clone, Debug)]
pub struct RangeScan {
    next: u64,
    end: u64,
    log_end: u64,
    verify_crc: bool,
    lost: Lost,
    begun: bool,
    looks_before: bool,
    looks_behind: bool,
    /// Where its own first record, or damage, begins, once it was run.
    first: Option<u64>,
    /// Whether a record, or a blank, of this range ends at `next`.
    follows: bool,
    /// What was read and not yet given, while nobody runs the scan.
    walk: Option<Walk>,
    /// The memory of all parts of a range.
    pool: Arc<BlockPool>,
}

/// What to do where files of the range are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It is an error.
    Refuse,
    /// Go on with what is there.
    Accept,
}

impl RangeScan {
    /// A walk over the records that begin in `begin..end`, of a log that is read up to `log_end`.
    #[must_use]
    pub fn new(begin: u64, end: u64, log_end: u64, verify_crc: bool, lost: Lost) -> Self {
        let end = end.min(log_end);
        Self {
            next: begin,
            end,
            log_end,
            verify_crc,
            lost,
            begun: false,
            looks_before: true,
            looks_behind: true,
            first: None,
            follows: false,
            walk: None,
            pool: Arc::default(),
        }
    }

    /// The same where nobody reads what lies before it: what is no record at its very beginning is
    /// damage.
    #[must_use]
    pub fn beginning_at_once(mut self) -> Self {
        self.begun = true;
        self
    }

    /// The same where nobody reads what lies behind it: damage that begins at its end is left alone.
    #[must_use]
    pub fn ending_at_once(mut self) -> Self {
        self.looks_behind = false;
        self
    }

    /// The bytes of the range, as far as they were not walked over.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.next..self.end.max(self.next)
    }

    /// Moves to its first record, for a caller who takes it in parts.
    ///
    /// # Errors
    /// As [`RangeScan::run`].
    pub fn settle(&mut self, log: &CommitLog) -> Result<()> {
        if !self.begun {
            self.begin(log)?;
            self.begun = true;
        }
        Ok(())
    }

    /// The records that begin in a part of its bytes.
    #[must_use]
    pub fn part(&self, bytes: Range<u64>) -> Self {
        let part = Self::new(bytes.start, bytes.end, self.log_end, self.verify_crc, self.lost);
        let begun = self.begun && bytes.start == self.next;
        Self { begun, looks_before: false, pool: Arc::clone(&self.pool), ..part }
    }

    /// From where to where it has come: its own first record, or damage, and what would be next.
    #[must_use]
    pub fn places(&self) -> Range<u64> {
        self.first.unwrap_or(self.next)..self.next
    }

    /// Hands what it meets to `take` until that has enough; whether there may be more. Damage is
    /// never taken later.
    ///
    /// # Errors
    /// What `take` answers; [`Error::OffsetOutOfRange`] when the log no longer holds the range;
    /// [`Error::Io`] when the system cannot read.
    pub fn run(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(Met<'_, '_>) -> Result<Taken>,
    ) -> Result<bool> {
        if self.first.is_none() {
            if self.begun && self.next < log.min_offset() {
                self.gone(log, self.next)?;
            }
            self.settle(log)?;
            self.first = Some(self.next);
        }
        let mut scanner = match self.walk.take() {
            Some(walk) => Scanner::resume(log, walk),
            None => {
                let scanner = Scanner::new(log, self.next, self.log_end, self.verify_crc);
                scanner.sharing(&self.pool)
            }
        };
        loop {
            let at = scanner.position();
            self.next = at;
            let inside = at < self.end;
            let behind = self.looks_behind && self.follows;
            if !inside && (!behind || at >= self.log_end || begins_part(log, at)) {
                return Ok(false);
            }
            let step = scanner.step_in_block()?;
            let corruption = match step {
                Ok(_) if !inside => return Ok(false),
                Ok((Scanned::Message(view), block)) => {
                    match take(Met::Message(&view, block))? {
                        Taken::More => self.follows = true,
                        Taken::Last => {
                            self.follows = true;
                            self.next = scanner.position();
                            self.walk = Some(scanner.pause());
                            return Ok(true);
                        }
                        Taken::Later => {
                            let mut walk = scanner.pause();
                            walk.back_to(at);
                            self.walk = Some(walk);
                            return Ok(true);
                        }
                    }
                    continue;
                }
                Ok((Scanned::Blank { .. }, _)) => {
                    self.follows = true;
                    continue;
                }
                Err(Stop::End) => return self.gone(log, at).map(|()| false),
                Err(Stop::Empty) => zeros(log, at),
                Err(Stop::Damage(corruption)) => corruption,
            };
            scanner.resync_in_file()?;
            self.follows = false;
            self.next = scanner.position();
            let damaged = DamagedRange { begin: at, end: self.next, corruption };
            if take(Met::Damage(damaged))? != Taken::More {
                return Ok(true);
            }
        }
    }

    /// Moves to the first record, or damage, that is the range's own.
    fn begin(&mut self, log: &CommitLog) -> Result<()> {
        if self.next >= self.end {
            return Ok(());
        }
        if self.next < log.min_offset() {
            self.gone(log, self.next)?;
            self.next = log.min_offset();
        }
        let at = self.next;
        if at >= self.end || begins_part(log, at) {
            return Ok(());
        }
        self.next = match log.run().find(at) {
            Some(_) => self.find_record(log, at)?,
            // Within a gap.
            None => {
                let files = log.run().files();
                let behind = files.partition_point(|file| file.base_offset < at);
                files.get(behind).map_or(self.log_end, |later| later.base_offset)
            }
        };
        Ok(())
    }

    /// Where the first record from `from` on begins, in the file that holds it; the file's end when
    /// there is none in the range.
    fn find_record(&self, log: &CommitLog, from: u64) -> Result<u64> {
        let file_end = file_end(log, from);
        let limit = self.end.saturating_add(peek::SIGNATURE as u64).min(file_end).min(self.log_end);
        let mut search = Scanner::new(log, from, self.log_end, self.verify_crc);
        let found = search
            .find_in_file(from, limit, |log, at| Ok(self.judge(log, at)?.map(|v| (at, v))))?;
        match found {
            None => Ok(file_end),
            Some((at, Judged::Certain)) if !self.looks_before || !reaches(log, from, at)? => Ok(at),
            Some(_) => self.walk_to(log, from, file_end),
        }
    }

    /// Whether a record begins at a place where one seems to; `None` when none does.
    fn judge(&self, log: &CommitLog, at: u64) -> Result<Option<Judged>> {
        let mut buffer = Vec::new();
        let Found::Message(view) = log.read(at, 0, &mut buffer)? else { return Ok(None) };
        if view.check_body_crc().is_err() {
            return Ok((!self.verify_crc).then_some(Judged::Doubtful));
        }
        let next = at.saturating_add(u64::from(view.store_size()));
        let file_end = file_end(log, at);
        if next == self.log_end {
            return Ok(Some(Judged::Certain));
        }
        let mut head = [0; peek::SIGNATURE];
        let room = usize::try_from(file_end.saturating_sub(next)).unwrap_or(usize::MAX);
        let head = head.get_mut(..room.min(peek::SIGNATURE)).unwrap_or_default();
        let read = log.run().read_at(head, next)?;
        let head = head.get(..read).unwrap_or_default();
        let goes_on = if peek::is_record(head) {
            peek::names_place(head, next)
        } else {
            matches!(message::read_frame(head), Ok(Frame::Blank { size })
                if next.saturating_add(u64::from(size)) == file_end)
        };
        Ok(Some(if goes_on { Judged::Certain } else { Judged::Doubtful }))
    }

    /// The first record or blank from `from` on, by a walk from its file's first byte.
    fn walk_to(&self, log: &CommitLog, from: u64, file_end: u64) -> Result<u64> {
        let base = log.run().find(from).map_or(from, |file| file.base_offset);
        let mut scanner = Scanner::new(log, base, self.log_end, self.verify_crc);
        loop {
            let at = scanner.position();
            if at >= file_end {
                return Ok(file_end);
            }
            match scanner.step()? {
                Ok(_) if at >= from => return Ok(at),
                Ok(_) => {}
                Err(Stop::End) => return Ok(file_end),
                Err(Stop::Empty | Stop::Damage(_)) => scanner.resync_in_file()?,
            }
        }
    }

    fn gone(&self, log: &CommitLog, at: u64) -> Result<()> {
        if self.lost == Lost::Accept {
            return Ok(());
        }
        let number = |offset| i64::try_from(offset).unwrap_or(i64::MAX);
        Err(Error::OffsetOutOfRange {
            physical_offset: number(at),
            min: number(log.min_offset()),
            max: number(log.run().end_offset().unwrap_or(0)),
        })
    }
}

/// Whether what seems to be a record begins before `from` and reaches past `at`, in the file of both.
fn reaches(log: &CommitLog, from: u64, at: u64) -> Result<bool> {
    let base = log.run().find(from).map_or(from, |file| file.base_offset);
    let mut place = from.saturating_sub(LOOK_BACK).max(base);
    let mut block = Vec::new();
    while place < from {
        let len = (from - place).min(LOOK) + peek::SIGNATURE as u64 - 1;
        block.resize(usize::try_from(len).unwrap_or(0), 0);
        let read = log.run().read_at(&mut block, place)?;
        let bytes = block.get(..read).unwrap_or_default();
        for (position, bytes) in bytes.windows(peek::SIGNATURE).enumerate() {
            let begin = place + position as u64;
            let claimed = peek::claimed_size(bytes).unwrap_or(0) as u64;
            if peek::is_record(bytes) && peek::names_place(bytes, begin) && begin + claimed > at {
                return Ok(true);
            }
        }
        if bytes.len() < peek::SIGNATURE {
            return Ok(false);
        }
        place += (bytes.len() - peek::SIGNATURE + 1) as u64;
    }
    Ok(false)
}

/// How sure it is that a record begins somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    Certain,
    Doubtful,
}

/// Whether a file begins at a place, or a gap between two.
fn begins_part(log: &CommitLog, at: u64) -> bool {
    let run = log.run();
    match run.find(at) {
        Some(file) => file.base_offset == at,
        None => {
            run.files().iter().any(|file| file.base_offset.saturating_add(run.file_size()) == at)
        }
    }
}

/// Where the file that holds a place ends.
fn file_end(log: &CommitLog, at: u64) -> u64 {
    let base = log.run().find(at).map_or(at, |file| file.base_offset);
    base.saturating_add(log.run().file_size())
}
