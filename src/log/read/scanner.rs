//! Reads the commit log record by record, file after file.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Corruption, CorruptionKind, FormatError, Result};
use crate::files::RunFile;
use crate::format::message::peek;
use crate::format::message::{self, MessageView};
use crate::format::width::{at_least_0, to_usize};

use super::block::{Block, BlockPool};
use super::evidence::Budget;
use super::frames::FrameReader;
use super::resync;
use crate::log::commit_log::{CommitLog, Found};

#[derive(Debug)]
enum Scanned<'a> {
    Message(MessageView<'a>),
    /// A blank that ends with its file.
    Blank {
        begin: u64,
        size: u32,
    },
}

type InBlock<'a> = (Scanned<'a>, &'a Arc<Block>);

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
    budget: Budget,
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
}

impl<'l> Scanner<'l> {
    /// A walk from `start`, where a record must begin, to `end`; `verify_crc` checks bodies.
    #[must_use]
    pub fn new(log: &'l CommitLog, start: u64, end: u64, verify_crc: bool) -> Self {
        let next = start.max(log.min_offset());
        let walk = Walk {
            budget: Budget::new(next),
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
            let before = self.walk.next;
            if before >= to {
                return Ok(None);
            }
            let corruption = match self.step()? {
                Ok((scanned, block)) => {
                    // Behind files that were deleted meanwhile it begins later than `before`.
                    let (begin, flow) = match scanned {
                        Scanned::Message(view) => {
                            let begin = at_least_0(view.physical_offset());
                            let end = begin + u64::from(view.store_size());
                            let flow = match begin < to {
                                true => visit(begin..end, Item::Record(&view, block))?,
                                false => Flow::Retry,
                            };
                            (begin, flow)
                        }
                        Scanned::Blank { begin, size } => {
                            let end = begin.saturating_add(u64::from(size));
                            (begin, visit(begin..end, Item::Blank)?)
                        }
                    };
                    match flow {
                        Flow::Continue => continue,
                        Flow::Stop => {}
                        Flow::Retry => self.walk.next = begin,
                    }
                    return Ok(None);
                }
                Err(stop) if resync == Resync::Never => return Ok(Some(stop)),
                Err(Stop::End) => return Ok(Some(Stop::End)),
                Err(Stop::Empty) => zeros(self.log, self.walk.next),
                Err(Stop::Damage(corruption)) => corruption,
            };
            let begin = self.walk.next;
            let goes_on = match resync {
                Resync::InFile => self.resync_in_file().map(|()| true)?,
                _ => self.resync()?,
            };
            if visit(begin..self.walk.next, Item::Damage(corruption))? != Flow::Continue {
                return Ok(None);
            }
            if !goes_on {
                return Ok(Some(Stop::End));
            }
        }
    }

    /// Next record or blank, or why there is none; then the walk stays.
    #[inline(always)]
    fn step(&mut self) -> Result<std::result::Result<InBlock<'_>, Stop>> {
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
                return Ok(Ok((Scanned::Blank { begin: at, size }, block)));
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
        Ok(Err(Stop::Damage(corruption(file.file(), at, error))))
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
                        Stop::Damage(gap_before(later, self.walk.next))
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

    /// Moves to the next whole record behind damage. Returns `false` if there is none before the end.
    pub fn resync(&mut self) -> Result<bool> {
        let Walk { next, end, ref mut budget, .. } = self.walk;
        let found = resync::next(self.log, next, end, budget)?;
        self.seek(found.unwrap_or(end));
        Ok(found.is_some())
    }

    /// [`Scanner::resync`] within the file.
    pub(super) fn resync_in_file(&mut self) -> Result<()> {
        let Walk { next, end, ref mut budget, .. } = self.walk;
        let place = resync::next_in_file(self.log, next, end, budget)?;
        self.seek(place);
        Ok(())
    }
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

/// An error in the frame at physical offset `at` of a file.
#[must_use]
pub fn corruption(file: &RunFile, at: u64, error: FormatError) -> Corruption {
    let mut corruption = error.into_corruption();
    corruption.path = Some(file.path.clone());
    corruption.offset = corruption.offset.saturating_add(at.saturating_sub(file.base_offset));
    corruption
}
