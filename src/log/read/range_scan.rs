//! Records that begin in a byte range of the log, for readers that share a log.
//!
//! The result equals that of a walk from each file's first byte, so adjacent ranges give each
//! record and each damaged range exactly once:
//!
//! - A file begins with a record. In another place the first record is searched: it stores its own
//!   offset, has valid lengths and checksum, and is followed by another record, a blank or the
//!   log's end. If that is not certain, or an earlier record seems to reach past it, a walk from
//!   the file's first byte decides.
//! - A damaged range belongs to the reader of the record before it, even if that record ends behind
//!   the range; at the beginning of a file or a gap, to the reader that begins there.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Corruption, Error, Result};
use crate::format::message::peek;
use crate::format::message::{self, Frame, MessageView};
use crate::format::width::{at_most_i64, to_usize};

use super::block::{Block, BlockPool};
use super::scanner::{Flow, Scanned, Scanner, Stop, Walk, zeros};
use crate::log::commit_log::{CommitLog, Found};

/// Maximum distance of a record that reaches into a range: the default `max_message_size`.
const LOOK_BACK: u64 = 5 << 20;
const LOOK: u64 = 256 << 10;

/// Bytes of a log without a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    pub begin: u64,
    /// End: the next record or the end of the file.
    pub end: u64,
    pub corruption: Corruption,
}

/// Item of a walk over a range.
#[derive(Debug)]
pub enum Met<'a, 'v> {
    Message(&'a MessageView<'v>, &'a Arc<Block>),
    Damage(DamagedRange),
}

/// State of a walk over a range; the log is passed to each call.
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
    /// Start of its first record or damage, once known.
    first: Option<u64>,
    /// Whether a record or blank of this range ends at `next`.
    follows: bool,
    walk: Option<Walk>,
    pool: Arc<BlockPool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    Refuse,
    Accept,
}

impl RangeScan {
    /// A walk over the records that begin in `begin..end` of a log that ends at `log_end`.
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

    /// Treats bytes at the very beginning that are no record as damage, since nobody reads what
    /// lies before.
    #[must_use]
    pub fn beginning_at_once(mut self) -> Self {
        self.begun = true;
        self
    }

    /// Leaves damage that begins at the end alone, since nobody reads what lies behind.
    #[must_use]
    pub fn ending_at_once(mut self) -> Self {
        self.looks_behind = false;
        self
    }

    pub fn verify(&mut self, verify_crc: bool) {
        self.verify_crc = verify_crc;
    }

    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.next..self.end.max(self.next)
    }

    /// Moves to the first record, before taking parts.
    pub fn settle(&mut self, log: &CommitLog) -> Result<()> {
        if !self.begun {
            self.begin(log)?;
            self.begun = true;
        }
        Ok(())
    }

    #[must_use]
    pub fn part(&self, bytes: Range<u64>) -> Self {
        let part = Self::new(bytes.start, bytes.end, self.log_end, self.verify_crc, self.lost);
        let begun = self.begun && bytes.start == self.next;
        let looks_behind = self.looks_behind || bytes.end != self.end;
        let pool = Arc::clone(&self.pool);
        Self { begun, looks_before: false, looks_behind, pool, ..part }
    }

    /// Start of its first record or damage, and its position.
    #[must_use]
    pub fn places(&self) -> Range<u64> {
        self.first.unwrap_or(self.next)..self.next
    }

    /// Passes items to `take` until it has enough; returns whether there may be more. Damage is
    /// never taken later; if `take` fails, its item comes again.
    pub fn run(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(Met<'_, '_>) -> Result<Flow>,
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
                        Flow::Continue => self.follows = true,
                        Flow::Stop => {
                            self.follows = true;
                            self.next = scanner.position();
                            self.walk = Some(scanner.pause());
                            return Ok(true);
                        }
                        Flow::Retry => {
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
            let damaged = DamagedRange { begin: at, end: scanner.position(), corruption };
            let flow = take(Met::Damage(damaged))?;
            self.follows = false;
            self.next = scanner.position();
            if flow != Flow::Continue {
                return Ok(true);
            }
        }
    }

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

    /// Start of the first record from `from` on in its file, or the file's end.
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

    /// Judges a likely record; `None` if there is none.
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
        let room = to_usize(file_end.saturating_sub(next));
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

    /// First record or blank from `from` on, by a walk from its file's first byte.
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
        let number = |offset| at_most_i64(offset);
        Err(Error::OffsetOutOfRange {
            physical_offset: number(at),
            min: number(log.min_offset()),
            max: number(log.run().end_offset().unwrap_or(0)),
        })
    }
}

/// Whether a likely record before `from` reaches past `at` in the same file.
fn reaches(log: &CommitLog, from: u64, at: u64) -> Result<bool> {
    let base = log.run().find(from).map_or(from, |file| file.base_offset);
    let mut place = from.saturating_sub(LOOK_BACK).max(base);
    let mut block = Vec::new();
    while place < from {
        let len = (from - place).min(LOOK) + peek::SIGNATURE as u64 - 1;
        block.resize(to_usize(len), 0);
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    Certain,
    Doubtful,
}

fn begins_part(log: &CommitLog, at: u64) -> bool {
    let run = log.run();
    match run.find(at) {
        Some(file) => file.base_offset == at,
        None => {
            run.files().iter().any(|file| file.base_offset.saturating_add(run.file_size()) == at)
        }
    }
}

fn file_end(log: &CommitLog, at: u64) -> u64 {
    let base = log.run().find(at).map_or(at, |file| file.base_offset);
    base.saturating_add(log.run().file_size())
}
