//! Records that begin in a byte range of the log, for readers that share a log.
//!
//! Adjacent ranges give each record and each damaged range exactly once, as one walk does:
//!
//! - The first record of a range is searched, unless a file begins there. If it is not linked, or an
//!   earlier record seems to reach past it, a walk from the file's first byte decides.
//! - A damaged range belongs to the reader of the record before it; at the beginning of a file or a
//!   gap, to the reader that begins there.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;

use super::block::BlockPool;
use super::evidence::Budget;
use super::resync::{file_end, find_likely, is_linked, next_file, reaches};
use super::scanner::{Flow, Item, Lost, Resync, ScanState, Scanner, Stop, Visit, gone};
use crate::log::CommitLog;
use crate::log::commit_log::Found;

#[derive(Clone, Debug)]
pub struct RangeScan {
    next: u64,
    end: u64,
    log_end: u64,
    pub verify_crc: bool,
    lost: Lost,
    begun: bool,
    trusts_start: bool,
    checks_before: bool,
    checks_behind: bool,
    /// Start of its first record or damage, once known.
    first: Option<u64>,
    damaged_to: Option<u64>,
    walk: Option<ScanState>,
    pool: Arc<BlockPool>,
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
            trusts_start: false,
            checks_before: true,
            checks_behind: true,
            first: None,
            damaged_to: None,
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

    /// Nobody reads what lies around it: a record at the start counts, whatever lies before, and damage
    /// that begins at the end is left alone.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { trusts_start: true, checks_behind: false, ..self }
    }

    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.next..self.end.max(self.next)
    }

    /// Moves to the first record, before taking parts.
    pub fn find_start(&mut self, log: &CommitLog) -> Result<()> {
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
        let checks_behind = self.checks_behind || bytes.end != self.end;
        let pool = Arc::clone(&self.pool);
        Self { begun, checks_before: false, checks_behind, pool, ..part }
    }

    #[must_use]
    pub fn found_damage(&self) -> bool {
        self.damaged_to.is_some()
    }

    /// Start of its first record or damage, and its position.
    #[must_use]
    pub fn places(&self) -> Range<u64> {
        self.first.unwrap_or(self.next)..self.next
    }

    /// Passes items to `take` until it has enough; returns whether there may be more. Damage is never
    /// taken later; if `take` fails, its item comes again.
    #[inline]
    pub fn run(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(Range<u64>, Item<'_, '_>) -> Result<Flow>,
    ) -> Result<bool> {
        let mut scanner = self.resume(log)?;
        let ended = scanner.each(self.end, Resync::InFile, &mut take);
        self.pause(log, scanner, ended, &mut take)
    }

    fn resume<'l>(&mut self, log: &'l CommitLog) -> Result<Scanner<'l>> {
        if self.first.is_none() {
            self.find_start(log)?;
            self.first = Some(self.next);
        }
        if let Some(walk) = self.walk.take() {
            return Ok(Scanner::resume(log, walk));
        }
        let scanner = Scanner::new(log, self.next, self.log_end, self.verify_crc);
        if scanner.position() > self.next {
            self.gone(log, self.next)?;
        }
        Ok(scanner.sharing(&self.pool).losing(self.lost))
    }

    fn pause(
        &mut self,
        log: &CommitLog,
        mut scanner: Scanner<'_>,
        ended: Result<Option<Stop>>,
        take: &mut Visit<'_>,
    ) -> Result<bool> {
        let at = scanner.position();
        (self.next, self.damaged_to) = (at, scanner.damaged_to());
        let mut ended = ended?;
        if scanner.is_stopped() {
            self.walk = Some(scanner.pause());
            return Ok(true);
        }
        // A record or blank of this range ends here.
        let follows = self.damaged_to != Some(at) && self.first.is_some_and(|first| first < at);
        let is_own = self.checks_behind && follows && at < self.log_end;
        let mut is_enough = false;
        if ended.is_none() && is_own && !begins_part(log, at) {
            ended = scanner.each(at.saturating_add(1), Resync::InFile, |range, item| {
                if matches!(item, Item::Damage(_)) {
                    is_enough = take(range, item)? != Flow::Continue;
                }
                Ok(Flow::Retry)
            })?;
            (self.next, self.damaged_to) = (scanner.position(), scanner.damaged_to());
        }
        if let Some(Stop::End) = ended {
            self.gone(log, at)?;
        }
        Ok(is_enough)
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
        let is_trusted = |found| matches!(found, Found::Message(_) | Found::Blank(_));
        if at >= self.end
            || begins_part(log, at)
            || self.trusts_start && is_trusted(log.read(at, 0, &mut Vec::new())?)
        {
            return Ok(());
        }
        self.next = match log.run().find(at) {
            Some(_) => self.find_record(log, at)?,
            // Within a gap.
            None => next_file(log, at).unwrap_or(self.log_end),
        };
        // Its file may have been deleted during the search.
        if log.min_offset() > at { self.gone(log, at) } else { Ok(()) }
    }

    fn find_record(&self, log: &CommitLog, from: u64) -> Result<u64> {
        let file_end = file_end(log, from).unwrap_or(from);
        let limit = self.end.saturating_add(1).min(file_end).min(self.log_end);
        let mut budget = Budget::new(from);
        let found = find_likely(log, from..limit, |at, head| {
            if !budget.allows(at, head, file_end) {
                return Ok(None);
            }
            let is_linked = is_linked(log, at, self.log_end, self.verify_crc)?;
            Ok(is_linked.map(|is_linked| (at, is_linked)))
        })?;
        match found {
            None => Ok(file_end),
            Some((at, true)) if !self.checks_before || !reaches(log, from, at)? => Ok(at),
            Some(_) => self.walk_to(log, from, file_end),
        }
    }

    fn walk_to(&self, log: &CommitLog, from: u64, file_end: u64) -> Result<u64> {
        let base = log.run().find(from).map_or(from, |file| file.base_offset);
        let mut first = None;
        let scanner = Scanner::new(log, base, self.log_end, self.verify_crc);
        let mut scanner = scanner.losing(self.lost);
        scanner.each(file_end, Resync::InFile, |range, item| {
            if range.start < from || matches!(item, Item::Damage(_)) {
                return Ok(Flow::Continue);
            }
            first = Some(range.start);
            Ok(Flow::Stop)
        })?;
        Ok(first.map_or(file_end, |first| first.min(file_end)))
    }

    fn gone(&self, log: &CommitLog, at: u64) -> Result<()> {
        match self.lost {
            Lost::Accept => Ok(()),
            Lost::Refuse => Err(gone(log, at)),
        }
    }
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
