//! Reads the commit log record by record, file after file.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::RunFile;
use crate::format::message::peek;
use crate::format::message::{self, MessageView};
use crate::format::width::{clamp_u64, saturating_i64, to_usize};

use super::block::{Block, BlockPool};
use super::damage::{Damage, zeros};
use super::evidence::Budget;
use super::frames::{FrameReader, is_own, wrong_blank};
use super::resync;
use crate::log::commit_log::{CommitLog, Found};

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
    /// A record and, if it may be shared, its block.
    Record(&'v MessageView<'b>, Option<&'b Arc<Block>>),
    /// Filler to the end of its file.
    Blank,
    /// Bytes without a usable record, up to where the log goes on.
    Damage(Box<Damage>),
}

/// Policy for deleted files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    Refuse,
    Accept,
}

type InBlock<'a> = (MessageView<'a>, &'a Arc<Block>);
pub type Visit<'a> = dyn FnMut(Range<u64>, Item<'_, '_>) -> Result<Flow> + 'a;

#[derive(Debug)]
pub enum Stop {
    End,
    Empty,
    Damage(Corruption),
}

/// A walk over the records of a log, which its caller passes each time.
#[derive(Clone, Debug)]
pub struct Scanner {
    pub(super) next: u64,
    pub(super) end: u64,
    pub(super) verify_crc: bool,
    pub(super) lost: Lost,
    pub(super) damaged_to: Option<u64>,
    pub(super) is_stopped: bool,
    pub(super) pool: Arc<BlockPool>,
    /// The current file, held open, and its end.
    file: Option<FrameReader>,
    file_end: u64,
    pub(super) budget: Budget,
}

impl Scanner {
    /// A walk from `start`, where a record must begin, to `end`; `verify_crc` checks bodies.
    #[must_use]
    pub fn new(log: &CommitLog, start: u64, end: u64, verify_crc: bool) -> Self {
        Self::of_range(start.max(log.min_offset()), end, verify_crc, Lost::Accept)
    }

    pub(super) fn of_range(next: u64, end: u64, verify_crc: bool, lost: Lost) -> Self {
        Self {
            next,
            end,
            verify_crc,
            lost,
            damaged_to: None,
            is_stopped: false,
            pool: Arc::default(),
            file: None,
            file_end: 0,
            budget: Budget::new(next),
        }
    }

    #[must_use]
    pub fn position(&self) -> u64 {
        self.next
    }

    #[inline(always)]
    fn record(&self) -> Option<(MessageView<'_>, &Arc<Block>)> {
        let file = self.file.as_ref()?;
        let view = file.whole(self.next.checked_sub(file.base())?)?;
        if !is_own(&view, self.next) || (self.verify_crc && view.check_body_crc().is_err()) {
            return None;
        }
        Some((view, file.block()?))
    }

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

    /// Holds no file open.
    pub(super) fn pause(&mut self) {
        if let Some(file) = &mut self.file {
            file.close();
        }
    }

    fn seek(&mut self, offset: u64) {
        self.next = offset;
        self.forget();
    }

    pub(super) fn forget(&mut self) {
        self.file = None;
        self.file_end = 0;
    }

    pub(super) fn renew(&mut self) {
        self.forget();
        self.budget = Budget::new(self.next);
    }

    /// Passes each record, blank and damaged range that begins before `to` to `visit`, with its
    /// offset and its end, until `visit` ends the walk. Returns why the log ended it, if it did; the
    /// position is then that of the reason. If `visit` fails, it is that of the item.
    ///
    /// The only loop over a log's records: readers differ in `resync` and in their visitor.
    #[inline]
    pub fn each(
        &mut self,
        log: &CommitLog,
        to: u64,
        resync: Resync,
        mut visit: impl FnMut(Range<u64>, Item<'_, '_>) -> Result<Flow>,
    ) -> Result<Option<Stop>> {
        self.is_stopped = false;
        loop {
            // One call of `visit`, so that it becomes part of the loop.
            while self.next < to
                && let Some((view, block)) = self.record()
            {
                let end = self.next + u64::from(view.store_size());
                let flow = visit(self.next..end, Item::Record(&view, Some(block)))?;
                if flow != Flow::Retry {
                    self.next = end;
                }
                if flow != Flow::Continue {
                    self.is_stopped = true;
                    return Ok(None);
                }
            }
            if let ControlFlow::Break(stop) = self.closely(log, to, resync, &mut visit)? {
                return Ok(stop);
            }
        }
    }

    /// One turn of [`Scanner::each`] where no sound record lies ready.
    #[cold]
    fn closely(
        &mut self,
        log: &CommitLog,
        to: u64,
        resync: Resync,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<Option<Stop>>> {
        if self.next >= to {
            return Ok(ControlFlow::Break(None));
        }
        let corruption = match self.step(log)? {
            Ok(found) => {
                let (range, flow) = match found {
                    Some((view, block)) => {
                        // Behind files that were deleted meanwhile it begins later.
                        let begin = clamp_u64(view.physical_offset());
                        let range = begin..begin + u64::from(view.store_size());
                        if begin >= to {
                            return Ok(ControlFlow::Break(None));
                        }
                        (range.clone(), visit(range, Item::Record(&view, Some(block)))?)
                    }
                    None => {
                        let range = self.next..self.file_end;
                        (range.clone(), visit(range, Item::Blank)?)
                    }
                };
                if flow != Flow::Retry {
                    self.next = range.end;
                }
                return Ok(self.go_on(flow));
            }
            Err(stop) if resync == Resync::Never => return Ok(ControlFlow::Break(Some(stop))),
            Err(Stop::End) => return Ok(ControlFlow::Break(Some(Stop::End))),
            Err(Stop::Empty) => zeros(log, self.next),
            Err(Stop::Damage(corruption)) => corruption,
        };
        let begin = self.next;
        let goes_on = self.resync(log, resync)?;
        let bytes = begin..self.next;
        let damage = Damage::of_bytes(bytes.clone(), corruption);
        let flow =
            visit(bytes, Item::Damage(Box::new(damage))).inspect_err(|_| self.seek(begin))?;
        self.damaged_to = Some(self.next);
        Ok(match self.go_on(flow) {
            ControlFlow::Continue(()) if !goes_on => ControlFlow::Break(Some(Stop::End)),
            next => next,
        })
    }

    fn go_on(&mut self, flow: Flow) -> ControlFlow<Option<Stop>> {
        self.is_stopped = flow != Flow::Continue;
        if self.is_stopped { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
    }

    /// The next record, `None` for a blank that ends its file, or why there is neither.
    fn step(&mut self, log: &CommitLog) -> Result<std::result::Result<Option<InBlock<'_>>, Stop>> {
        if self.next >= self.end {
            return Ok(Err(Stop::End));
        }
        if !self.is_ready()
            && let Some(stop) = self.read(log)?
        {
            return Ok(Err(stop));
        }
        let Some(file) = &self.file else { return Ok(Err(Stop::End)) };
        let Some(block) = file.block() else { return Ok(Err(Stop::End)) };
        let (at, file_end) = (self.next, self.file_end);
        let frame = message::read_frame(file.rest(at - file.base()));
        let error = match CommitLog::judge(frame, at, self.room()) {
            Found::Message(view) => match self.verify_crc.then(|| view.check_body_crc()) {
                Some(Err(error)) => error,
                _ => return Ok(Ok(Some((view, block)))),
            },
            Found::Blank(size) if at.saturating_add(u64::from(size)) == file_end => {
                return Ok(Ok(None));
            }
            Found::Blank(size) => wrong_blank(file_end - at, size),
            Found::Empty => return Ok(Err(Stop::Empty)),
            Found::Bad(error) => error,
            Found::OutOfRange => return Ok(Err(Stop::End)),
        };
        Ok(Err(Stop::Damage(error.damage_in(Some(file.path()), at.saturating_sub(file.base())))))
    }

    fn read(&mut self, log: &CommitLog) -> Result<Option<Stop>> {
        let lacks_file = self.file.as_ref().is_none_or(|file| !file.is_open());
        if (lacks_file || self.next >= self.file_end)
            && let Some(stop) = self.find_file(log)?
        {
            return Ok(Some(stop));
        }
        let room = self.room();
        if let Some(file) = &mut self.file {
            file.read_whole(self.next - file.base(), room)?;
        }
        Ok(None)
    }

    /// Opens the current file, or returns why there is none. Deleted files are skipped.
    fn find_file(&mut self, log: &CommitLog) -> Result<Option<Stop>> {
        let run = log.run();
        loop {
            let Some(file) = run.find(self.next) else {
                // One listing: others add and delete files meanwhile.
                let files = run.files();
                let behind = files.partition_point(|file| file.base_offset < self.next);
                let stop = match files.get(behind) {
                    Some(later) if behind > 0 && later.base_offset > self.next => {
                        Stop::Damage(gap_before(later, self.next))
                    }
                    Some(later) if later.base_offset < self.end => {
                        if self.lost == Lost::Refuse {
                            return Err(gone(log, self.next));
                        }
                        self.next = later.base_offset;
                        continue;
                    }
                    _ => Stop::End,
                };
                self.file = None;
                return Ok(Some(stop));
            };
            if let Some(open) = run.open_if_there(&file)? {
                self.file_end = file.base_offset.saturating_add(run.file_size());
                let reader = FrameReader::over(open, &file, run.file_size());
                self.file = Some(reader.sharing(&self.pool));
                return Ok(None);
            }
        }
    }

    /// Moves to where the log goes on behind damage. Returns `false` if it does not.
    pub fn resync(&mut self, log: &CommitLog, how: Resync) -> Result<bool> {
        let Self { next, end, budget, .. } = self;
        let (next, end) = (*next, *end);
        let found = match how {
            Resync::InFile => Some(resync::next_in_file(log, next, end, budget)?),
            _ => resync::next(log, next, end, budget)?,
        };
        self.seek(found.unwrap_or(end));
        Ok(found.is_some())
    }
}

#[must_use]
pub fn gone(log: &CommitLog, at: u64) -> Error {
    Error::OffsetOutOfRange {
        physical_offset: saturating_i64(at),
        min: saturating_i64(log.min_offset()),
        max: saturating_i64(log.run().end_offset().unwrap_or(0)),
    }
}

#[must_use]
pub fn gap_before(later: &RunFile, at: u64) -> Corruption {
    Corruption {
        path: Some(later.path.clone()),
        offset: 0,
        kind: CorruptionKind::Gap,
        expected: format!("a file that holds physical offset {at}"),
        found: format!("the next file, which begins at {}", later.base_offset),
    }
}
