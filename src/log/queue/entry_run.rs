//! Entries of a queue of either kind, by position: counted from the first that the queue ever had.

use std::ops::Range;

use crate::error::Result;
use crate::files::run::tail_run::{BLOCK, FIRST_BLOCK, Tail, TailRun};
use crate::files::{FileRun, RunFile};
use crate::format::width::to_usize;

use super::unit::{CqUnit, QueueKind};

pub(crate) const FILES_SEARCHED: usize = 3;
/// Consecutive entries without a usable value after which a binary search gives up.
const MOST_SILENT: usize = 1024;

#[derive(Debug)]
pub(crate) struct EntryRun {
    pub(crate) kind: QueueKind,
    pub(crate) bytes: TailRun,
}

impl EntryRun {
    pub(crate) fn new(kind: QueueKind, run: FileRun) -> Self {
        Self { kind, bytes: TailRun::new(run) }
    }

    pub(crate) fn run(&self) -> &FileRun {
        self.bytes.run()
    }

    fn entry_len(&self) -> u64 {
        self.kind.entry_len() as u64
    }

    pub(crate) fn positions(&self) -> Range<u64> {
        self.bytes.start() / self.entry_len()..self.bytes.tail().end() / self.entry_len()
    }

    pub(crate) fn in_file(&self) -> u64 {
        self.run().file_size() / self.entry_len()
    }

    #[inline]
    pub(crate) fn push(&self, tail: &mut Tail, unit: &CqUnit) -> Result<()> {
        match self.kind {
            QueueKind::Plain => self.bytes.push(tail, &unit.entry().encode()),
            QueueKind::Batch => self.bytes.push(tail, &unit.batch_entry().encode()),
        }
    }

    pub(crate) fn units(&self, position: u64, count: usize) -> Result<Vec<CqUnit>> {
        let len = self.kind.entry_len();
        let mut units = Vec::new();
        // Bounded for any `count`.
        let mut block = vec![0; count.min(BLOCK / len) * len];
        while units.len() < count && !block.is_empty() {
            let (known, wanted) = (units.len(), (count - units.len()).saturating_mul(len));
            let next = position.saturating_add(known as u64);
            let wanted = wanted.min(block.len());
            let at = next.saturating_mul(len as u64);
            let read = self.bytes.read_at(&mut block[..wanted], at)?;
            CqUnit::decode(self.kind, next, &block[..read], &mut units);
            if units.len() == known {
                break;
            }
        }
        Ok(units)
    }

    /// Binary search for the first entry in `low..high` for which `before` is false, or `high`. An
    /// entry that tells nothing, or is in a missing file, is judged by the next.
    pub(crate) fn partition_point_by(
        &self,
        Range { start: mut low, end: mut high }: Range<u64>,
        mut before: impl FnMut(&CqUnit) -> Option<bool>,
    ) -> Result<u64> {
        let mut judged = |position, count| -> Result<Vec<Option<bool>>> {
            Ok(self.units(position, count)?.iter().map(&mut before).collect())
        };
        while low < high {
            let middle = low + (high - low) / 2;
            let (mut at, mut verdicts) = (middle, judged(middle, 1)?);
            if verdicts.is_empty() {
                at = self.next_file(middle).filter(|position| *position < high).unwrap_or(high);
                verdicts = judged(at, usize::from(at < high))?;
            }
            if verdicts == [None] {
                verdicts = judged(at, to_usize(high - at).min(MOST_SILENT))?;
                let silent = verdicts.iter().take_while(|verdicts| verdicts.is_none()).count();
                verdicts.drain(..silent);
                at += silent as u64;
            }
            match verdicts.first() {
                Some(Some(true)) => low = at + 1,
                _ => high = middle,
            }
        }
        match self.run().find(low.saturating_mul(self.entry_len())) {
            None => Ok(self.next_file(low).unwrap_or(low)),
            Some(_) => Ok(low),
        }
    }

    fn next_file(&self, position: u64) -> Option<u64> {
        let files = self.run().files();
        files.iter().map(|file| file.base_offset / self.entry_len()).find(|first| *first > position)
    }

    /// Position of the first entry of `positions` behind the pre-blank ones.
    pub(crate) fn head_end(&self, positions: &Range<u64>) -> Result<u64> {
        let (mut at, mut count) = (positions.start, 1);
        while at < positions.end {
            let units = self.units(at, to_usize(positions.end - at).min(count))?;
            let blanks = units.iter().take_while(|unit| unit.is_pre_blank()).count();
            at += blanks as u64;
            if blanks < units.len() || units.is_empty() {
                break;
            }
            count = 1024;
        }
        Ok(at)
    }

    /// Finds the end on disk, behind the last `valid` entry, and that entry. Searches from the
    /// third last file on, or from the place `from` there; of a sealed store, whose entries have no
    /// gap, by halves.
    pub(crate) fn find_end(
        &self,
        is_sealed: bool,
        from: u64,
        mut valid: impl FnMut(&CqUnit) -> bool,
    ) -> Result<(u64, Option<CqUnit>)> {
        let len = self.kind.entry_len();
        let files = self.run().files();
        let first = files.first().map_or(0, |file| file.base_offset);
        let (mut end, mut last) = (first, None);
        let (mut block, mut units) = (vec![0; FIRST_BLOCK / len * len], Vec::new());
        'files: for file in files.iter().skip(files.len().saturating_sub(FILES_SEARCHED)) {
            if file.base_offset % len as u64 != 0 {
                break;
            }
            let from = from.saturating_mul(len as u64);
            if file.base_offset.saturating_add(self.run().file_size()) <= from {
                continue;
            }
            end = file.base_offset.max(from);
            if is_sealed {
                let read = self.run().read_at(block.get_mut(..len).unwrap_or_default(), end)?;
                units.clear();
                CqUnit::decode(self.kind, end / len as u64, &block[..read], &mut units);
                if units.first().is_some_and(&mut valid) {
                    end = end.saturating_add(self.last_filled(file)? * len as u64);
                }
            }
            while end - file.base_offset < self.run().file_size() {
                let read = self.run().read_at(&mut block, end)?;
                units.clear();
                CqUnit::decode(self.kind, end / len as u64, &block[..read], &mut units);
                let good = units.iter().take_while(|unit| valid(unit)).count();
                end += (good * len) as u64;
                last = units.get(good.wrapping_sub(1)).copied().or(last);
                if good < units.len() || good == 0 {
                    break 'files;
                }
                block.resize((4 * block.len()).min(BLOCK / len * len), 0);
            }
        }
        self.bytes.tail().set_end(end);
        let end = end / len as u64;
        // If the last files are empty, the entry before them is the last.
        if last.is_none() && end > first / len as u64 {
            last = self.units(end - 1, 1)?.pop().filter(valid);
        }
        Ok((end, last))
    }

    /// Place in a file of its last entry that is not zeros alone, 0 without one.
    fn last_filled(&self, file: &RunFile) -> Result<u64> {
        let mut entry = vec![0; self.kind.entry_len()];
        let (mut low, mut high) = (0, self.in_file());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let at = file.base_offset.saturating_add(middle * self.entry_len());
            let read = self.run().read_at(&mut entry, at)?;
            let is_filled = read == entry.len() && entry.iter().any(|byte| *byte != 0);
            if is_filled { low = middle } else { high = middle }
        }
        Ok(low)
    }

    pub(crate) fn last_valid(&self, positions: Range<u64>) -> Result<Option<CqUnit>> {
        // Usually the very last.
        let (mut end, mut count) = (positions.end, 1);
        while end > positions.start {
            let from = end.saturating_sub(count).max(positions.start);
            let units = self.units(from, to_usize(end - from))?;
            if let Some(last) = units.into_iter().rfind(CqUnit::is_valid) {
                return Ok(Some(last));
            }
            (end, count) = (from, 1024);
        }
        Ok(None)
    }

    pub(crate) fn last_in(&self, file: &RunFile) -> Result<Option<CqUnit>> {
        let mut last = vec![0; self.kind.entry_len()];
        let end = file.base_offset.saturating_add(self.run().file_size());
        let at = end.saturating_sub(last.len() as u64);
        let read = self.run().read_file_at(file, &mut last, at)?;
        let mut units = Vec::new();
        CqUnit::decode(self.kind, at / last.len() as u64, &last[..read], &mut units);
        Ok(units.pop())
    }

    /// Deletes files whose last entry is `gone`, oldest first, never the last
    /// (`MappedFileQueue.deleteExpiredFileByOffset`). Returns their number.
    pub(crate) fn delete_while(&self, gone: impl Fn(&CqUnit) -> bool) -> Result<usize> {
        let mut deleted = 0;
        loop {
            let files = self.run().files();
            let [first, _, ..] = files.as_slice() else { break };
            let is_gone = self.last_in(first)?.is_some_and(|last| gone(&last));
            if !is_gone || self.run().remove_first()?.is_none() {
                break;
            }
            deleted += 1;
        }
        Ok(deleted)
    }
}
