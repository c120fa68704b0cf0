//! Reads a log in parts on several threads, for queues and index.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::error::Result;
use crate::files::threads;
use crate::format::message::peek;
use crate::log::CommitLog;
use crate::log::read::block::BlockPool;
use crate::log::read::parallel::{cut, read_in_parts};
use crate::log::read::scanner::{Flow, Item, Resync, Scanner, Stop, Walked};

use super::gather::{Gather, Gathered, SpareGathered, Wanted};
use crate::store::folder::mark::Flushed;

const PART: u64 = 2 << 20;
const SOUGHT: u64 = 512 << 10;
const LONG: u64 = 8 << 20;
const MOST_THREADS: usize = 4;
const MOST_KEPT: usize = 32 << 20;

/// A range of the log and the derived data to collect from it.
#[derive(Debug)]
pub struct LogReading<'a> {
    log: &'a CommitLog,
    wanted: Wanted<'a>,
    end: u64,
    verify_crc: bool,
    /// Records outside this part may lack bytes.
    flushed: Flushed,
    blocks: Arc<BlockPool>,
    spare: SpareGathered,
}

#[derive(Debug, Default)]
pub struct LogPart {
    pub begin: u64,
    pub end: u64,
    stop: Option<Stop>,
    pub last_record: Option<u64>,
    /// Start of the first record that may lack bytes.
    pub unproven: Option<u64>,
    pub lacks_bytes: bool,
    pub gathered: Gathered,
}

impl<'a> LogReading<'a> {
    /// Reads `log` up to `end`; `verify_crc` checks bodies.
    #[must_use]
    pub fn new(log: &'a CommitLog, wanted: Wanted<'a>, end: u64, verify_crc: bool) -> Self {
        Self {
            log,
            wanted,
            end,
            verify_crc,
            flushed: Flushed { place: 0, before_ms: i64::MAX },
            blocks: Arc::default(),
            spare: SpareGathered::default(),
        }
    }

    /// Checks records closely that are not known to be flushed.
    #[must_use]
    pub fn flushed(self, flushed: Flushed) -> Self {
        Self { flushed, ..self }
    }

    /// Passes the parts from `from` on, where a record must begin, to `take` in order until it
    /// breaks.
    pub fn each(
        &self,
        from: u64,
        take: &mut dyn FnMut(LogPart) -> Result<ControlFlow<()>>,
    ) -> Result<Walked> {
        let parts: Vec<_> = cut((), from..self.end, PART).collect();
        let is_long = self.end.saturating_sub(from) >= LONG;
        let threads = if is_long { threads::processors().min(MOST_THREADS) } else { 1 };
        let read = |(): &(), bytes: Range<u64>, begins: bool| {
            self.read(bytes.start, begins || bytes.start == from, bytes.end)
        };
        let mut walked = Walked { end: from, stop: Some(Stop::End) };
        read_in_parts(&parts, from, true, threads, &self.log.run().dir(), read, |_, mut part| {
            walked.end = part.end;
            let stop = part.stop.take();
            if take(part)?.is_break() || stop.is_some() {
                walked.stop = stop;
                return Ok(None);
            }
            Ok(Some(walked.end))
        })?;
        Ok(walked)
    }

    /// Reads the records that begin in `from..to`; the first is at `from`, or is searched.
    fn read(&self, from: u64, is_record: bool, to: u64) -> Result<Option<(u64, LogPart)>> {
        let mut scanner =
            Scanner::new(self.log, from, self.end, self.verify_crc).sharing(&self.blocks);
        if !is_record && !scanner.seek_likely(to.min(from.saturating_add(SOUGHT)))? {
            return Ok(None);
        }
        let begin = scanner.position();
        let mut part = LogPart { begin, ..LogPart::default() };
        let mut gather = Gather::new(&self.wanted, self.spare.take());
        let stop = scanner.each(to, Resync::Never, |range, item| {
            if let Item::Record(view, _) = item {
                let at = range.start;
                if !self.flushed.covers(at, view.store_timestamp_ms()) {
                    part.unproven = part.unproven.or(Some(at));
                    if peek::lacks_bytes(view) {
                        part.lacks_bytes = true;
                        return Ok(Flow::Retry);
                    }
                }
                gather.add(view, view.store_size());
                part.last_record = Some(at);
            }
            Ok(if gather.is_full() { Flow::Stop } else { Flow::Continue })
        })?;
        (part.end, part.stop) = (scanner.position(), stop);
        part.gathered = gather.into_gathered();
        Ok(Some((begin, part)))
    }

    #[must_use]
    pub fn spare(&self) -> &SpareGathered {
        &self.spare
    }
}

/// The last parts, as many as memory allows.
#[derive(Debug, Default)]
pub struct LastParts {
    parts: VecDeque<LogPart>,
    bytes: usize,
}

impl LastParts {
    pub(crate) fn keep(&mut self, part: LogPart, spare: &SpareGathered) {
        self.bytes += part.gathered.bytes();
        self.parts.push_back(part);
        while self.bytes > MOST_KEPT
            && let Some(oldest) = self.parts.pop_front()
        {
            self.bytes -= oldest.gathered.bytes();
            spare.give_back([oldest.gathered]);
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
    fn what_was_read_last_is_kept() {
        let spare = SpareGathered::default();
        let mut last = LastParts::default();
        for begin in 0..10 {
            let hashes = Vec::with_capacity(1 << 20);
            let gathered = Gathered { hashes, ..Gathered::default() };
            let begin = begin * 100;
            last.keep(LogPart { begin, gathered, ..LogPart::default() }, &spare);
        }
        // 4 MiB each; a part that begins earlier would be wanted only in part.
        let begins: Vec<u64> = last.parts.iter().map(|part| part.begin).collect();
        assert_eq!(begins, [200, 300, 400, 500, 600, 700, 800, 900]);
        assert_eq!(last.from(701).iter().map(|part| part.begin).collect::<Vec<_>>(), [800, 900]);
    }
}
