//! Reads the commit log record by record, file after file.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Corruption, CorruptionKind, FormatError, Result};
use crate::files::RunFile;
use crate::format::message::peek;
use crate::format::message::{self, MessageView};
use crate::format::width::to_usize;

use super::block::{BLOCK_BYTES, Block, BlockPool};
use super::frames::FrameReader;
use crate::log::commit_log::{CommitLog, Found};

/// How many times a walk's bytes may be read in search of records behind damage.
const LOOKS: u64 = 4;
const LEAST_FUEL: u64 = 64 << 20;
/// Records of this size are always checked.
const SMALL: u64 = 4 << 10;

/// First read of a search for a record.
const FIRST_LOOK: usize = 8 << 10;

#[derive(Debug)]
pub enum Scanned<'a> {
    Message(MessageView<'a>),
    /// A blank that ends with its file.
    Blank {
        physical_offset: u64,
        size: u32,
    },
}

pub type InBlock<'a> = (Scanned<'a>, &'a Arc<Block>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    Stop,
    /// Pause before the item: it comes first next time.
    Retry,
}

/// Policy for bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resync {
    Never,
    /// Go on with the next whole record.
    Anywhere,
    /// Go on with the next whole record of the file, or with the next file.
    InFile,
}

#[derive(Debug)]
pub enum Item<'v, 'b> {
    Record(&'v MessageView<'b>, &'b Arc<Block>),
    /// Filler to the end of its file.
    Blank,
    /// Bytes without a record, up to the walk's new position.
    Damage(Corruption),
}

#[derive(Debug)]
pub enum Stop {
    End,
    Empty,
    Damage(Corruption),
}

#[derive(Debug)]
pub struct Walked {
    pub end: u64,
    /// Reason; `None` if broken off.
    pub stop: Option<Stop>,
}

#[derive(Debug)]
pub struct Scanner<'l> {
    log: &'l CommitLog,
    walk: Walk,
}

/// A paused [`Scanner`], which holds no file open.
#[derive(Clone, Debug)]
pub struct Walk {
    next: u64,
    end: u64,
    verify_crc: bool,
    /// The current file, held open, and its end.
    file: Option<FrameReader>,
    file_end: u64,
    pool: Arc<BlockPool>,
    /// Bytes that may still be read to tell records from look-alikes.
    fuel: u64,
}

impl Walk {
    #[inline]
    fn is_ready(&self) -> bool {
        let Some(file) = self.file.as_ref().filter(|file| file.base() <= self.next) else {
            return false;
        };
        let bytes = file.rest(self.next - file.base());
        self.next < self.end.min(self.file_end)
            && peek::claimed_size(bytes).is_some_and(|size| size <= bytes.len())
    }

    fn room(&self) -> usize {
        let end = self.file_end.min(self.end);
        to_usize(end.saturating_sub(self.next))
    }

    /// Returns to `offset`, the start of a record just given.
    pub fn back_to(&mut self, offset: u64) {
        self.next = offset;
    }
}

impl<'l> Scanner<'l> {
    /// A walk from `start`, where a record must begin, to `end`; `verify_crc` checks bodies.
    #[must_use]
    pub fn new(log: &'l CommitLog, start: u64, end: u64, verify_crc: bool) -> Self {
        let next = start.max(log.min_offset());
        let walk = Walk {
            fuel: end.saturating_sub(next).saturating_mul(LOOKS).saturating_add(LEAST_FUEL),
            next,
            end,
            verify_crc,
            file: None,
            file_end: 0,
            pool: Arc::default(),
        };
        Self::resume(log, walk)
    }

    /// Uses memory of `pool`.
    #[must_use]
    pub fn sharing(mut self, pool: &Arc<BlockPool>) -> Self {
        self.walk.pool = Arc::clone(pool);
        self
    }

    /// Resumes a walk over the same log; deleted records are skipped.
    #[inline]
    #[must_use]
    pub fn resume(log: &'l CommitLog, walk: Walk) -> Self {
        let mut scanner = Self { log, walk };
        if scanner.walk.next < log.min_offset() {
            scanner.forget();
        }
        scanner
    }

    #[must_use]
    pub fn pause(mut self) -> Walk {
        if let Some(file) = &mut self.walk.file {
            file.close();
        }
        self.walk
    }

    #[must_use]
    pub fn position(&self) -> u64 {
        self.walk.next
    }

    /// Continues at `offset`.
    pub fn seek(&mut self, offset: u64) {
        self.walk.next = offset;
        self.forget();
    }

    fn forget(&mut self) {
        self.walk.file = None;
        self.walk.file_end = 0;
    }

    /// Passes each record, blank and damaged range that begins before `to` to `visit`, with its
    /// offset and its end, until `visit` ends the walk. Returns why the log ended it, if it did; the
    /// position is then that of the reason.
    ///
    /// The only loop over a log's records: readers differ in `resync` and in their visitor.
    #[inline]
    pub fn each(
        &mut self,
        to: u64,
        resync: Resync,
        mut visit: impl FnMut(Range<u64>, Item<'_, '_>) -> Result<Flow>,
    ) -> Result<Option<Stop>> {
        loop {
            let at = self.walk.next;
            if at >= to {
                return Ok(None);
            }
            let corruption = match self.step_in_block()? {
                Ok((scanned, block)) => {
                    let flow = match scanned {
                        Scanned::Message(view) => {
                            let end = at + u64::from(view.store_size());
                            visit(at..end, Item::Record(&view, block))?
                        }
                        Scanned::Blank { physical_offset, size } => {
                            let end = physical_offset.saturating_add(u64::from(size));
                            visit(at..end, Item::Blank)?
                        }
                    };
                    match flow {
                        Flow::Continue => continue,
                        Flow::Stop => {}
                        Flow::Retry => self.walk.next = at,
                    }
                    return Ok(None);
                }
                Err(stop) if resync == Resync::Never => return Ok(Some(stop)),
                Err(Stop::End) => return Ok(Some(Stop::End)),
                Err(Stop::Empty) => zeros(self.log, at),
                Err(Stop::Damage(corruption)) => corruption,
            };
            let goes_on = match resync {
                Resync::InFile => self.resync_in_file().map(|()| true)?,
                _ => self.resync()?,
            };
            if visit(at..self.walk.next, Item::Damage(corruption))? != Flow::Continue {
                return Ok(None);
            }
            if !goes_on {
                return Ok(Some(Stop::End));
            }
        }
    }

    /// Next record or blank, or why there is none. After [`Stop::Damage`] the walk stays;
    /// [`Scanner::resync`] finds the next whole record.
    #[inline(always)]
    pub fn step(&mut self) -> Result<std::result::Result<Scanned<'_>, Stop>> {
        Ok(self.step_in_block()?.map(|(scanned, _)| scanned))
    }

    /// [`Scanner::step`] with the record's block.
    #[inline(always)]
    pub fn step_in_block(&mut self) -> Result<std::result::Result<InBlock<'_>, Stop>> {
        if self.walk.next >= self.walk.end {
            return Ok(Err(Stop::End));
        }
        if !self.walk.is_ready()
            && let Some(stop) = self.read()?
        {
            return Ok(Err(stop));
        }
        let Some(file) = &self.walk.file else { return Ok(Err(Stop::End)) };
        let at = self.walk.next;
        let bytes = file.rest(at - file.base());
        let found = match message::read_whole(bytes) {
            Some(view) if u64::try_from(view.physical_offset()) == Ok(at) => Found::Message(view),
            _ => CommitLog::judge(message::read_frame(bytes), at, self.walk.room()),
        };
        let Some(block) = file.block() else { return Ok(Err(Stop::End)) };
        let error = match found {
            Found::Message(view) => {
                let checked = if self.walk.verify_crc { view.check_body_crc() } else { Ok(()) };
                match checked {
                    Ok(()) => {
                        self.walk.next = at + u64::from(view.store_size());
                        return Ok(Ok((Scanned::Message(view), block)));
                    }
                    Err(error) => error,
                }
            }
            Found::Blank(size) if at.saturating_add(u64::from(size)) == self.walk.file_end => {
                self.walk.next = self.walk.file_end;
                return Ok(Ok((Scanned::Blank { physical_offset: at, size }, block)));
            }
            Found::Blank(size) => FormatError::new(
                CorruptionKind::Blank,
                0,
                format!("a blank of {} bytes, to the end of the file", self.walk.file_end - at),
                format!("{size} bytes"),
            ),
            Found::Empty => return Ok(Err(Stop::Empty)),
            Found::Bad(error) => error,
            Found::OutOfRange => return Ok(Err(Stop::End)),
        };
        Ok(Err(damage(file.file(), at, error)))
    }

    /// Reads the next frame, or returns why there is none.
    fn read(&mut self) -> Result<Option<Stop>> {
        let lacks_file = self.walk.file.as_ref().is_none_or(|file| !file.is_open());
        if (lacks_file || self.walk.next >= self.walk.file_end)
            && let Some(stop) = self.find_file()?
        {
            return Ok(Some(stop));
        }
        let room = self.walk.room();
        if let Some(file) = &mut self.walk.file {
            file.read_whole(self.walk.next - file.base(), room)?;
        }
        Ok(None)
    }

    /// Opens the current file, or returns why there is none. Deleted files are skipped.
    fn find_file(&mut self) -> Result<Option<Stop>> {
        let run = self.log.run();
        loop {
            let Some(file) = run.find(self.walk.next) else {
                // One listing: others add and delete files meanwhile.
                let files = run.files();
                let behind = files.partition_point(|file| file.base_offset < self.walk.next);
                let stop = match files.get(behind) {
                    Some(later) if behind > 0 && later.base_offset > self.walk.next => {
                        Stop::Damage(self.gap_before(later))
                    }
                    Some(later) if later.base_offset < self.walk.end => {
                        self.walk.next = later.base_offset;
                        continue;
                    }
                    _ => Stop::End,
                };
                self.walk.file = None;
                return Ok(Some(stop));
            };
            if let Some(open) = run.open_if_there(&file)? {
                self.walk.file_end = file.base_offset.saturating_add(run.file_size());
                let reader = FrameReader::over(open, &file, run.file_size());
                self.walk.file = Some(reader.sharing(&self.walk.pool));
                return Ok(None);
            }
        }
    }

    fn gap_before(&self, later: &RunFile) -> Corruption {
        Corruption {
            path: Some(later.path.clone()),
            offset: 0,
            kind: CorruptionKind::Gap,
            expected: format!("a file that holds physical offset {}", self.walk.next),
            found: format!("the next file, which begins at {}", later.base_offset),
        }
    }

    /// Finds the next whole record, with its own offset, valid lengths and checksum, and moves
    /// there. Returns `false` if there is none before the end.
    pub fn resync(&mut self) -> Result<bool> {
        self.forget();
        let mut at = self.walk.next.saturating_add(1);
        while at < self.walk.end {
            let Some(file) = self.log.run().find(at) else {
                // A gap, or the end of the files.
                let files = self.log.run().files();
                let behind = files.partition_point(|file| file.base_offset < at);
                match files.get(behind) {
                    Some(later) => at = later.base_offset,
                    None => break,
                }
                if whole_record_at(self.log, at, self.walk.end)? {
                    self.walk.next = at;
                    return Ok(true);
                }
                at += 1;
                continue;
            };
            let file_end =
                file.base_offset.saturating_add(self.log.run().file_size()).min(self.walk.end);
            if at == file.base_offset && whole_record_at(self.log, at, self.walk.end)? {
                self.walk.next = at;
                return Ok(true);
            }
            match self.find_whole(at, file_end)? {
                Some(found) => {
                    self.walk.next = found;
                    return Ok(true);
                }
                None => at = file_end,
            }
        }
        self.walk.next = self.walk.end;
        Ok(false)
    }

    /// [`Scanner::resync`] within the file: the next file begins with a record anyway. Behind a gap
    /// it moves to the next file.
    pub fn resync_in_file(&mut self) -> Result<()> {
        self.forget();
        let at = self.walk.next;
        let Some(file) = self.log.run().find(at) else {
            let files = self.log.run().files();
            let behind = files.partition_point(|file| file.base_offset <= at);
            self.walk.next = files
                .get(behind)
                .map_or(self.walk.end, |later| later.base_offset.min(self.walk.end));
            return Ok(());
        };
        let file_end =
            file.base_offset.saturating_add(self.log.run().file_size()).min(self.walk.end);
        self.walk.next = self.find_whole(at.saturating_add(1), file_end)?.unwrap_or(file_end);
        Ok(())
    }

    /// Moves to the first likely record before `to`; returns whether there is one. It may be a
    /// look-alike in a body: the caller must reach the same offset from an earlier record.
    pub fn seek_likely(&mut self, to: u64) -> Result<bool> {
        let at = self.walk.next;
        let Some(file) = self.log.run().find(at) else { return Ok(false) };
        let file_end = file.base_offset.saturating_add(self.log.run().file_size());
        // A file begins with a record.
        if at == file.base_offset {
            return Ok(true);
        }
        let last = to.saturating_add(peek::SIGNATURE as u64 - 1).min(file_end).min(self.walk.end);
        let found = self.find_in_file(at, last, |_, place| Ok(Some(place)))?;
        let next = found.unwrap_or(file_end);
        self.walk.next = next;
        Ok(next < to)
    }

    fn find_whole(&mut self, at: u64, file_end: u64) -> Result<Option<u64>> {
        let end = self.walk.end;
        self.find_in_file(at, file_end, |log, place| {
            Ok(whole_record_at(log, place, end)?.then_some(place))
        })
    }

    /// First likely record in `at..file_end` for which `accept` has an answer.
    pub(crate) fn find_in_file<T>(
        &mut self,
        mut at: u64,
        file_end: u64,
        mut accept: impl FnMut(&CommitLog, u64) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        // Usually near.
        let mut step = FIRST_LOOK;
        let mut block = Vec::new();
        while at < file_end {
            let len = to_usize(file_end - at).min(step);
            step = (step * 4).min(BLOCK_BYTES);
            block.resize(len, 0);
            let read = self.log.run().read_at(&mut block, at)?;
            let bytes = block.get(..read).unwrap_or_default();
            if bytes.len() < peek::SIGNATURE {
                return Ok(None);
            }
            for (position, bytes) in bytes.windows(peek::SIGNATURE).enumerate() {
                let place = at + position as u64;
                if !peek::is_record(bytes) || !peek::names_place(bytes, place) {
                    continue;
                }
                // Look-alikes must not cost more than records.
                let claim = peek::claimed_size(bytes).unwrap_or(0) as u64;
                if claim > self.walk.fuel && claim > SMALL {
                    continue;
                }
                self.walk.fuel = self.walk.fuel.saturating_sub(claim);
                if let Some(found) = accept(self.log, place)? {
                    return Ok(Some(found));
                }
            }
            let scanned = (bytes.len() - peek::SIGNATURE + 1) as u64;
            at += scanned;
        }
        Ok(None)
    }
}

/// Whether a whole record begins at `at` in a log that ends at `end`.
fn whole_record_at(log: &CommitLog, at: u64, end: u64) -> Result<bool> {
    let mut buffer = Vec::new();
    Ok(match log.read_before(at, end, 0, &mut buffer)? {
        Found::Message(view) => view.check_body_crc().is_ok(),
        _ => false,
    })
}

#[must_use]
pub fn zeros(log: &CommitLog, at: u64) -> Corruption {
    let file = log.run().find(at);
    Corruption {
        path: file.as_ref().map(|file| file.path.clone()),
        offset: file.map_or(at, |file| at.saturating_sub(file.base_offset)),
        kind: CorruptionKind::Size,
        expected: "a record".to_owned(),
        found: "zeros".to_owned(),
    }
}

fn damage(file: &RunFile, at: u64, error: FormatError) -> Stop {
    let mut corruption = error.into_corruption();
    corruption.path = Some(file.path.clone());
    corruption.offset = corruption.offset.saturating_add(at - file.base_offset);
    Stop::Damage(corruption)
}
