//! Reads a log in parts on several threads, for queues and index: recovery, dispatch and rebuild.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use crate::error::{CorruptionKind, FormatError, Result};
use crate::files::{Access, FileRun, RunFile, threads};
use crate::format::message::peek;
use crate::log::read::block::BlockPool;
use crate::log::read::end::Flushed;
use crate::log::read::file_walk::{FileEnd, Visitor, open_at};
use crate::log::read::frames::FramedRecord;
use crate::log::read::parallel::{cut, read_in_parts};
use crate::log::read::scanner::{Flow, Resync, Stop, gap_before};

use super::collect::{DispatchBatch, DispatchBatchPool, DispatchCollector, Wanted};

const PART: u64 = 2 << 20;
const LONG: u64 = 8 << 20;
const MOST_THREADS: usize = 4;
const MOST_KEPT: usize = 32 << 20;

/// Records whose body's checksum is checked; a wrong one ends the reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    Nothing,
    Unflushed,
    All,
}

/// A range of the log and the derived data to collect from it.
#[derive(Debug)]
pub struct LogReading<'a> {
    log: &'a FileRun,
    wanted: Wanted<'a>,
    end: u64,
    checked: Checked,
    /// Records outside this part may lack bytes.
    flushed: Flushed,
    blocks: Arc<BlockPool>,
    pub spare: DispatchBatchPool,
}

#[derive(Debug, Default)]
pub struct LogPart {
    pub begin: u64,
    pub end: u64,
    pub stop: Option<Stop>,
    pub last_record: Option<u64>,
    pub unproven: Option<u64>,
    pub collected: DispatchBatch,
}

impl<'a> LogReading<'a> {
    #[must_use]
    pub fn new(log: &'a FileRun, wanted: Wanted<'a>, end: u64, checked: Checked) -> Self {
        Self {
            log,
            wanted,
            end,
            checked,
            flushed: Flushed { offset: 0, before_ms: i64::MAX },
            blocks: Arc::default(),
            spare: DispatchBatchPool::default(),
        }
    }

    #[must_use]
    pub fn flushed(self, flushed: Flushed) -> Self {
        Self { flushed, ..self }
    }

    /// Passes the parts from `from` on, where a record must begin, to `take` in order until it
    /// breaks, or the log does not go on. Returns where it ended, and why unless `take` broke.
    pub fn each(
        &self,
        from: u64,
        take: &mut dyn FnMut(LogPart) -> Result<ControlFlow<()>>,
    ) -> Result<(u64, Option<Stop>)> {
        let is_long = self.end.saturating_sub(from) >= LONG;
        let threads = if is_long { threads::processors().min(MOST_THREADS) } else { 1 };
        let mut ended = (from, Some(Stop::End));
        self.each_part(from, threads, &self.log.dir(), |mut part| {
            ended.0 = part.end;
            let stop = part.stop.take();
            if take(part)?.is_break() || stop.is_some() {
                ended.1 = stop;
                return Ok(None);
            }
            Ok(Some(ended.0))
        })?;
        Ok(ended)
    }

    /// Passes parts to `take` in order, which returns where the log goes on.
    pub fn each_part(
        &self,
        from: u64,
        threads: usize,
        dir: &Path,
        mut take: impl FnMut(LogPart) -> Result<Option<u64>>,
    ) -> Result<()> {
        let files = self.log.files();
        let parts = files.iter().flat_map(|file| {
            let end = file.base_offset.saturating_add(file.len.min(self.log.file_size()));
            cut(Arc::clone(file), file.base_offset.max(from)..end.min(self.end), PART)
        });
        let parts: Vec<_> = parts.collect();
        let read = |file: &Arc<RunFile>, bytes: Range<u64>, begins| self.read(file, bytes, begins);
        read_in_parts(&parts, from, true, threads, dir, read, |_, part| take(part)).map(drop)
    }

    /// Reads the records that begin in `bytes` of a file; the first begins them, or is searched.
    pub fn read(
        &self,
        file: &Arc<RunFile>,
        bytes: Range<u64>,
        begins: bool,
    ) -> Result<Option<(u64, LogPart)>> {
        let (base, at) = (file.base_offset, bytes.start);
        let stopped = |stop| {
            let stop = Some(stop);
            Ok(Some((at, LogPart { begin: at, end: at, stop, ..LogPart::default() })))
        };
        if at < base {
            return stopped(Stop::Damage(gap_before(file, at)));
        }
        let opened = match open_at(self.log, file, bytes.clone(), begins) {
            // Retention deleted it: the log goes on with a later file.
            Err(error) if error.is_not_found() && self.log.access() == Access::Read => match begins
            {
                true => return stopped(Stop::Empty),
                false => return Ok(None),
            },
            opened => opened?,
        };
        let Some((reader, first)) = opened else { return Ok(None) };
        let mut reader = reader.sharing(&self.blocks);
        let checks = self.checked == Checked::All || self.flushed.before_ms < i64::MAX;
        let mut visitor = PartVisitor {
            reading: self,
            base,
            all: self.checked == Checked::All,
            collector: DispatchCollector::new(&self.wanted, self.spare.take()),
            last_record: None,
            unproven: None,
            fault: None,
        };
        let to = bytes.end.saturating_sub(base);
        let (end, how) = reader.walk(first, to, checks, Resync::Never, &mut visitor)?;
        let PartVisitor { collector, last_record, unproven, fault, .. } = visitor;
        let damage = |error: FormatError| Stop::Damage(error.damage_in(Some(&file.path), end));
        let (end, stop) = match how {
            FileEnd::Whole => (end, fault.map(damage)),
            FileEnd::Blank => (self.log.file_size(), None),
            FileEnd::Bad(bad) => (end, Some(damage(bad.error))),
            FileEnd::Nothing | FileEnd::Remains(..) => (end, Some(Stop::Empty)),
        };
        let (begin, end) = (base.saturating_add(first), base.saturating_add(end));
        let mut collected = collector.collected;
        collected.whole_from = self.log.min_offset().unwrap_or(0);
        Ok(Some((begin, LogPart { begin, end, stop, last_record, unproven, collected })))
    }
}

struct PartVisitor<'a> {
    reading: &'a LogReading<'a>,
    base: u64,
    all: bool,
    collector: DispatchCollector<'a>,
    last_record: Option<u64>,
    unproven: Option<u64>,
    fault: Option<FormatError>,
}

impl PartVisitor<'_> {
    #[inline(never)]
    fn fault_of(&mut self, place: u64, record: &FramedRecord<'_>) -> Option<FormatError> {
        let is_unflushed = !self.reading.flushed.covers(place, record.view.store_timestamp_ms());
        if (self.all || is_unflushed && self.reading.checked == Checked::Unflushed)
            && let Some(fault) = record.body_fault()
        {
            return Some(fault);
        }
        if !is_unflushed {
            return None;
        }
        self.unproven = self.unproven.or(Some(place));
        peek::lacks_bytes(&record.view, record.size).then(|| {
            let (expected, found) = ("a whole message", "zeros in its topic or properties");
            FormatError::new(CorruptionKind::Truncated, 0, expected, found)
        })
    }
}

impl Visitor for PartVisitor<'_> {
    #[inline(always)]
    fn record(&mut self, at: u64, record: &FramedRecord<'_>) -> Result<Flow> {
        let place = self.base.saturating_add(at);
        let is_flushed = self.reading.flushed.covers(place, record.view.store_timestamp_ms());
        if (!is_flushed || self.all && record.body_fault().is_some())
            && let Some(fault) = self.fault_of(place, record)
        {
            self.fault = Some(fault);
            return Ok(Flow::Retry);
        }
        self.collector.add(&record.view, record.size);
        self.last_record = Some(place);
        Ok(if self.collector.is_full() { Flow::Stop } else { Flow::Continue })
    }
}

/// The last parts, as many as memory allows.
#[derive(Debug, Default)]
pub struct LastParts {
    parts: VecDeque<LogPart>,
    bytes: usize,
}

impl LastParts {
    pub(crate) fn keep(&mut self, part: LogPart, spare: &DispatchBatchPool) {
        self.bytes += part.collected.bytes();
        self.parts.push_back(part);
        while self.bytes > MOST_KEPT
            && let Some(oldest) = self.parts.pop_front()
        {
            self.bytes -= oldest.collected.bytes();
            spare.put_back([oldest.collected]);
        }
    }

    pub(crate) fn from(mut self, from: u64) -> VecDeque<LogPart> {
        let before = self.parts.partition_point(|part| part.begin < from);
        self.parts.drain(..before);
        self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_read_last_is_kept() {
        let spare = DispatchBatchPool::default();
        let mut last = LastParts::default();
        for begin in 0..10 {
            let hashes = Vec::with_capacity(1 << 20);
            let collected = DispatchBatch { hashes, ..DispatchBatch::default() };
            let begin = begin * 100;
            last.keep(LogPart { begin, collected, ..LogPart::default() }, &spare);
        }
        // 4 MiB each; a part that begins earlier would be wanted only in part.
        let begins: Vec<u64> = last.parts.iter().map(|part| part.begin).collect();
        assert_eq!(begins, [200, 300, 400, 500, 600, 700, 800, 900]);
        assert_eq!(last.from(701).iter().map(|part| part.begin).collect::<Vec<_>>(), [800, 900]);
    }
}
