//! Reads the log for queues and index: which records belong to it, and where it ends.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::care::meter::Meter;
use crate::error::Result;
use crate::files::{FileRun, RunFile};
use crate::format::message::peek;
use crate::log::read::block::BlockPool;
use crate::log::read::file_walk::{FileEnd, Visitor, is_of_older_life};
use crate::log::read::frames::{FrameReader, Record, is_gone};
use crate::log::read::parallel::{cut, read_in_parts};
use crate::log::read::scanner::{Flow, Resync};
use crate::store::dispatch::gather::{Gather, Gathered, SpareGathered, Wanted};
use crate::store::folder::mark::Flushed;
use crate::store::progress::interrupted;

const PART: u64 = 4 << 20;
const MOST_DAMAGED: usize = 10_000;

/// A log and the derived data to collect from it.
pub(super) struct Reading<'a> {
    log: &'a FileRun,
    wanted: Wanted<'a>,
    /// Records outside this flushed part may lack bytes, so they are checked closely.
    flushed: Flushed,
    blocks: Arc<BlockPool>,
    spare: SpareGathered,
}

struct Chunk {
    file: Arc<RunFile>,
    end: u64,
    how: FileEnd,
    gathered: Gathered,
}

impl<'a> Reading<'a> {
    pub(super) fn new(log: &'a FileRun, wanted: Wanted<'a>, flushed: Flushed) -> Self {
        let (blocks, spare) = (Arc::default(), SpareGathered::default());
        Self { log, wanted, flushed, blocks, spare }
    }

    pub(super) fn give_back(&self, gathered: impl Iterator<Item = Gathered>) {
        self.spare.give_back(gathered);
    }

    /// Passes what belongs to the log to `take` in order.
    pub(super) fn each(
        &self,
        threads: usize,
        root: &Path,
        meter: &Meter,
        mut take: impl FnMut(Gathered) -> Result<()>,
    ) -> Result<Walk> {
        let files = self.log.files();
        let parts = files.iter().flat_map(|file| {
            let end = file.base_offset.saturating_add(file.len.min(self.log.file_size()));
            cut(Arc::clone(file), file.base_offset..end, PART)
        });
        let parts: Vec<_> = parts.collect();
        let mut walk = Walk { end: self.log.min_offset().unwrap_or(0), ..Walk::default() };
        let read = |file: &Arc<RunFile>, bytes: Range<u64>, begins: bool| {
            let nothing = |end| {
                let (how, gathered) = (FileEnd::Nothing, Gathered::default());
                Ok(Some((end, Chunk { file: Arc::clone(file), end, how, gathered })))
            };
            // A file before it is short or missing.
            if bytes.start < file.base_offset {
                return nothing(bytes.start);
            }
            match self.read(file, &bytes, begins) {
                // The log goes on with a later file.
                Err(error) if is_gone(&error) => match begins {
                    true => nothing(bytes.start),
                    false => Ok(None),
                },
                read => read,
            }
        };
        read_in_parts(&parts, walk.end, true, threads, root, read, |begin, chunk| {
            walk.end = chunk.end;
            walk.records += chunk.gathered.records;
            walk.newest_ms = walk.newest_ms.max(chunk.gathered.newest_ms);
            walk.left_out += chunk.gathered.left_out;
            take(chunk.gathered)?;
            meter.advance(chunk.end - begin);
            if meter.is_cancelled() {
                return Err(interrupted("rebuild", root));
            }
            match chunk.how {
                FileEnd::Whole => Ok(Some(walk.end)),
                FileEnd::Blank => {
                    walk.end = chunk.file.base_offset.saturating_add(self.log.file_size());
                    Ok(Some(walk.end))
                }
                _ => self.pass(&chunk.file, &mut walk),
            }
        })?;
        Ok(walk)
    }

    fn read(
        &self,
        file: &Arc<RunFile>,
        bytes: &Range<u64>,
        begins: bool,
    ) -> Result<Option<(u64, Chunk)>> {
        let mut reader = FrameReader::open(self.log, file)?.sharing(&self.blocks);
        let base = file.base_offset;
        let (from, to) = (bytes.start.saturating_sub(base), bytes.end.saturating_sub(base));
        let first = match begins || from == 0 {
            true => Some(from),
            false => reader.first_likely(from, to)?,
        };
        let Some(first) = first else { return Ok(None) };
        let gather = Gather::new(&self.wanted, self.spare.take());
        let checks = self.flushed.before_ms < i64::MAX;
        let mut gathering = Gathering { reading: self, base, checks, gather, met_torn: false };
        let (end, mut how) = reader.walk(first, to, checks, Resync::Never, &mut gathering)?;
        if gathering.met_torn {
            how = FileEnd::Nothing;
        }
        let gathered = gathering.gather.into_gathered();
        let place = |at| base.saturating_add(at);
        let file = Arc::clone(file);
        Ok(Some((place(first), Chunk { file, end: place(end), how, gathered })))
    }

    /// Skips damage up to the next message of the log: flushed, and not older than earlier ones.
    /// Anything else remains of an unclean stop or a recycled file, and ends the log.
    fn pass(&self, file: &Arc<RunFile>, walk: &mut Walk) -> Result<Option<u64>> {
        let at = walk.end;
        let files = self.log.files();
        let later = files.iter().filter(|later| later.base_offset > file.base_offset);
        let later = later.map(|file| (file, None));
        let own = (file, at.checked_sub(file.base_offset));
        for (file, from) in std::iter::once(own).chain(later) {
            let mut reader = match FrameReader::open(self.log, file) {
                Err(error) if is_gone(&error) => continue,
                opened => opened?,
            };
            let next = match from {
                Some(at) => {
                    reader.behind(at, |reader, end| Ok(reader.stored_at(end)?.is_some()))?
                }
                None => reader.resync(0)?,
            };
            let Some(next) = next else { continue };
            let place = file.base_offset.saturating_add(next);
            if let Some(time) = reader.stored_at(next)?
                && place >= self.flushed.place
                && (is_of_older_life(time, walk.newest_ms) || time > self.flushed.before_ms)
            {
                break;
            }
            if walk.damaged.len() < MOST_DAMAGED {
                walk.damaged.push((at, place));
            }
            walk.end = place;
            return Ok(Some(place));
        }
        Ok(None)
    }
}

/// Result of reading the log.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) end: u64,
    pub(super) records: u64,
    pub(super) newest_ms: i64,
    /// Ranges of the log without messages, although messages follow.
    pub(super) damaged: Vec<(u64, u64)>,
    pub(super) left_out: u64,
}

struct Gathering<'a> {
    reading: &'a Reading<'a>,
    base: u64,
    checks: bool,
    gather: Gather<'a>,
    /// Whether a crash tore the next record.
    met_torn: bool,
}

impl Gathering<'_> {
    #[cold]
    fn is_torn(&self, at: u64, record: &Record<'_>) -> bool {
        let view = &record.view;
        let place = self.base.saturating_add(at);
        let is_flushed = self.reading.flushed.covers(place, view.store_timestamp_ms());
        !is_flushed
            && match record.faults {
                Some(faults) => faults.body.is_some(),
                None => view.check_body_crc().is_err() || peek::lacks_bytes(view),
            }
    }
}

impl Visitor for Gathering<'_> {
    #[inline(always)]
    fn record(&mut self, at: u64, record: &Record<'_>) -> Result<Flow> {
        if self.checks && self.is_torn(at, record) {
            self.met_torn = true;
            return Ok(Flow::Retry);
        }
        self.gather.add(&record.view, record.size);
        Ok(if self.gather.is_full() { Flow::Stop } else { Flow::Continue })
    }
}
