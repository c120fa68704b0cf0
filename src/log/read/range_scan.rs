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

use super::evidence::Budget;
use super::resync::{file_end, find_likely, is_linked, next_file, reaches};
use super::scanner::{Flow, Item, Lost, Resync, Scanner, Stop, Visit, gone};
use crate::log::CommitLog;
use crate::log::commit_log::Found;

#[derive(Clone, Debug)]
pub struct RangeScan {
    walk: Scanner,
    end: u64,
    begun: bool,
    trusts_start: bool,
    checks_before: bool,
    checks_behind: bool,
    /// Start of its first record or damage, once known.
    first: Option<u64>,
}

impl RangeScan {
    /// A walk over the records that begin in `begin..end` of a log that ends at `log_end`.
    #[must_use]
    pub fn new(begin: u64, end: u64, log_end: u64, verify_crc: bool, lost: Lost) -> Self {
        Self {
            walk: Scanner::of_range(begin, log_end, verify_crc, lost),
            end: end.min(log_end),
            begun: false,
            trusts_start: false,
            checks_before: true,
            checks_behind: true,
            first: None,
        }
    }

    /// Treats bytes at the very beginning that are no record as damage, since nobody reads what
    /// lies before.
    #[must_use]
    pub fn beginning_at_once(mut self) -> Self {
        self.begun = true;
        self
    }

    /// Nobody reads around it: a record at the start counts, and damage that begins at the end does not.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { trusts_start: true, checks_behind: false, ..self }
    }

    pub fn verify(&mut self, verify_crc: bool) {
        self.walk.verify_crc = verify_crc;
    }

    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.walk.next..self.end.max(self.walk.next)
    }

    /// Moves to the first record, before taking parts.
    pub fn find_start(&mut self, log: &CommitLog) -> Result<()> {
        if !self.begun {
            self.begin(log)?;
            // Bytes before its start allow no search behind damage.
            self.walk.renew();
            self.begun = true;
        }
        Ok(())
    }

    #[must_use]
    pub fn part(&self, bytes: Range<u64>) -> Self {
        let Scanner { next, end, verify_crc, lost, ref pool, .. } = self.walk;
        let mut part = Self::new(bytes.start, bytes.end, end, verify_crc, lost);
        part.walk.pool = Arc::clone(pool);
        let begun = self.begun && bytes.start == next;
        let checks_behind = self.checks_behind || bytes.end != self.end;
        Self { begun, checks_before: false, checks_behind, ..part }
    }

    #[must_use]
    pub fn found_damage(&self) -> bool {
        self.walk.damaged_to.is_some()
    }

    /// Start of its first record or damage, and its position.
    #[must_use]
    pub fn places(&self) -> Range<u64> {
        self.first.unwrap_or(self.walk.next)..self.walk.next
    }

    /// Passes items to `take` until it has enough; returns whether there may be more. Damage is never
    /// taken later; if `take` fails, its item comes again.
    #[inline]
    pub fn run(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(Range<u64>, Item<'_, '_>) -> Result<Flow>,
    ) -> Result<bool> {
        if self.first.is_none() {
            self.find_start(log)?;
            self.first = Some(self.walk.next);
        }
        if self.walk.next < log.min_offset() {
            // Deleted records do not count.
            self.walk.forget();
        }
        let ended = self.walk.each(log, self.end, Resync::InFile, &mut take);
        if self.walk.is_stopped {
            self.walk.pause();
            return Ok(true);
        }
        let more = ended.and_then(|ended| self.finish(log, ended, &mut take));
        self.walk.renew();
        more
    }

    fn finish(
        &mut self,
        log: &CommitLog,
        mut ended: Option<Stop>,
        take: &mut Visit<'_>,
    ) -> Result<bool> {
        let Scanner { next: at, end: log_end, damaged_to, .. } = self.walk;
        // A record or blank of this range ends here.
        let follows = damaged_to != Some(at) && self.first.is_some_and(|first| first < at);
        let is_own = self.checks_behind && follows && at < log_end;
        let mut is_enough = false;
        if ended.is_none() && is_own && !begins_part(log, at) {
            ended = self.walk.each(log, at.saturating_add(1), Resync::InFile, |range, item| {
                if matches!(item, Item::Damage(_)) {
                    is_enough = take(range, item)? != Flow::Continue;
                }
                Ok(Flow::Retry)
            })?;
        }
        if let Some(Stop::End) = ended {
            self.gone(log, at)?;
        }
        Ok(is_enough)
    }

    fn begin(&mut self, log: &CommitLog) -> Result<()> {
        if self.walk.next >= self.end {
            return Ok(());
        }
        if self.walk.next < log.min_offset() {
            self.gone(log, self.walk.next)?;
            self.walk.next = log.min_offset();
        }
        let at = self.walk.next;
        let is_trusted = |found| matches!(found, Found::Message(_) | Found::Blank(_));
        if at >= self.end
            || begins_part(log, at)
            || self.trusts_start && is_trusted(log.read(at, 0, &mut Vec::new())?)
        {
            return Ok(());
        }
        self.walk.next = match log.run().find(at) {
            Some(_) => self.find_record(log, at)?,
            // Within a gap.
            None => next_file(log, at).unwrap_or(self.walk.end),
        };
        // Its file may have been deleted during the search.
        if log.min_offset() > at { self.gone(log, at) } else { Ok(()) }
    }

    fn find_record(&self, log: &CommitLog, from: u64) -> Result<u64> {
        let file_end = file_end(log, from).unwrap_or(from);
        let Scanner { end: log_end, verify_crc, .. } = self.walk;
        let limit = self.end.saturating_add(1).min(file_end).min(log_end);
        let mut budget = Budget::new(from);
        let found = find_likely(log, from..limit, |at, head| {
            if !budget.allows(at, head, file_end) {
                return Ok(None);
            }
            let is_linked = is_linked(log, at, log_end, verify_crc)?;
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
        let Scanner { end, verify_crc, lost, .. } = self.walk;
        let mut walk = Scanner::of_range(base.max(log.min_offset()), end, verify_crc, lost);
        walk.each(log, file_end, Resync::InFile, |range, item| {
            if range.start < from || matches!(item, Item::Damage(_)) {
                return Ok(Flow::Continue);
            }
            first = Some(range.start);
            Ok(Flow::Stop)
        })?;
        Ok(first.map_or(file_end, |first| first.min(file_end)))
    }

    fn gone(&self, log: &CommitLog, at: u64) -> Result<()> {
        match self.walk.lost {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Access, FileRun, Os};

    #[test]
    fn bytes_before_the_log_allow_no_search() {
        const SIZE: u64 = 1 << 40;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(format!("{SIZE:020}")), [0; 4096]).unwrap();
        let dirs = vec![dir.path().to_owned()];
        let (run, _) =
            FileRun::load(Arc::new(Os), Arc::default(), dirs, SIZE, Access::Read).unwrap();
        let log = CommitLog::new(run, SIZE + 4096);
        let mut scan = RangeScan::new(0, SIZE + 4096, SIZE + 4096, true, Lost::Accept);
        scan.find_start(&log).unwrap();
        assert_eq!(scan.walk.next, SIZE);
        let mut budget = scan.walk.budget;
        assert!(budget.take(SIZE, 64 << 20) && !budget.take(SIZE, 1));
    }
}
