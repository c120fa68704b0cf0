//! Loop over the frames of a log file, for recovery, rebuild and verify: damage, where the file goes on behind
//! it, and remains of a recycled file.

use std::ops::Range;
use std::sync::Arc;

use super::evidence::{Budget, guess};
use super::frames::{FrameAt, FrameReader, FramedRecord, is_own, misplaced, wrong_blank};
use super::scanner::{Flow, Resync};
use crate::error::{CorruptionKind, FormatError, Result};
use crate::files::{FileRun, RunFile};
use crate::format::message::MessageView;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Frame,
    Place,
    Blank,
    Hole,
}

#[derive(Clone, Debug)]
pub struct FileDamage {
    pub at: u64,
    pub fault: Fault,
    pub error: FormatError,
}

/// Why a walk ended.
#[derive(Clone, Debug, Default)]
pub enum FileEnd {
    /// End of the range, or the visitor's.
    Whole,
    /// Zeros, or the end of the file's bytes.
    #[default]
    Nothing,
    Blank,
    /// Damage without a record behind.
    Bad(FileDamage),
    /// Damage, then so many records of the file's older life.
    Remains(FileDamage, u64),
}

pub trait Visitor {
    fn record(&mut self, at: u64, record: &FramedRecord<'_>) -> Result<Flow>;

    /// [`Visitor::record`] outside the fast path, which stays small without.
    #[cold]
    fn record_closely(&mut self, at: u64, record: &FramedRecord<'_>) -> Result<Flow> {
        self.record(at, record)
    }

    /// Whether a whole record behind damage belongs to the log ([`Flushed::proves`](super::end::Flushed::proves)).
    fn belongs(&mut self, _at: u64, _: &MessageView<'_>) -> Result<bool> {
        Ok(true)
    }

    fn damage(&mut self, _: &FileDamage, _next: u64, _stored_ms: Option<i64>) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}

impl<F: FnMut(u64, &FramedRecord<'_>) -> Result<Flow>> Visitor for F {
    fn record(&mut self, at: u64, record: &FramedRecord<'_>) -> Result<Flow> {
        self(at, record)
    }
}

/// Opens a file at the first record in `offsets`, which begins them or is searched. Returns its
/// position in the file, too.
pub fn open_at(
    log: &FileRun,
    file: &Arc<RunFile>,
    offsets: Range<u64>,
    begins: bool,
) -> Result<Option<(FrameReader, u64)>> {
    let reader = FrameReader::open(log, file)?;
    let first = if begins { Some(offsets.start) } else { guess(log, file, offsets)? };
    Ok(first.map(|first| (reader, first.saturating_sub(file.base_offset))))
}

/// Whether a record or the file's blank begins at `at` of a file.
pub fn is_written(log: &FileRun, file: &Arc<RunFile>, at: u64) -> Result<bool> {
    let mut reader = FrameReader::open(log, file)?;
    let (offset, left) = (reader.base().saturating_add(at), reader.left(at));
    Ok(match reader.read(at, false)? {
        FrameAt::Record(record) => is_own(&record.view, offset),
        FrameAt::Blank(size) => u64::from(size) == left,
        _ => false,
    })
}

impl FrameReader {
    /// Passes the records that begin in `from..to` to `visitor`; `sums` adds checksums of large ones.
    /// Damage ends the walk unless [`Resync::InFile`] passes it on. Returns the end, and its reason.
    #[inline]
    pub fn walk(
        &mut self,
        from: u64,
        to: u64,
        sums: bool,
        resync: Resync,
        visitor: &mut impl Visitor,
    ) -> Result<(u64, FileEnd)> {
        let (base, mut at) = (self.base(), from);
        let mut budget = Budget::new(base.saturating_add(from));
        while at < to {
            let (flow, size) = match self.whole(at) {
                Some(view) if is_own(&view, base.saturating_add(at)) => {
                    let record = FramedRecord::whole(view);
                    (visitor.record(at, &record)?, record.size)
                }
                _ => match self.closely(at, sums, resync, visitor)? {
                    Ok(taken) => taken,
                    Err(FileEnd::Bad(damage)) if resync != Resync::Never => {
                        match self.pass(damage, visitor, &mut budget)? {
                            Ok(next) => at = next,
                            Err(end) => return Ok((at, end)),
                        }
                        continue;
                    }
                    Err(end) => return Ok((at, end)),
                },
            };
            if flow != Flow::Retry {
                at += u64::from(size);
            }
            if flow != Flow::Continue {
                break;
            }
        }
        Ok((at, FileEnd::Whole))
    }

    #[cold]
    fn closely(
        &mut self,
        at: u64,
        sums: bool,
        resync: Resync,
        visitor: &mut impl Visitor,
    ) -> Result<std::result::Result<(Flow, u32), FileEnd>> {
        let (offset, left) = (self.base().saturating_add(at), self.left(at));
        let (fault, error) = match self.read(at, sums)? {
            FrameAt::Record(record) => match misplaced(&record.view, offset) {
                None => return Ok(Ok((visitor.record_closely(at, &record)?, record.size))),
                Some(error) => (Fault::Place, error),
            },
            FrameAt::Blank(size) if u64::from(size) == left => return Ok(Err(FileEnd::Blank)),
            FrameAt::Blank(size) => (Fault::Blank, wrong_blank(left, size)),
            FrameAt::End => return Ok(Err(FileEnd::Nothing)),
            // The caller searches behind it.
            FrameAt::Empty if resync == Resync::Never => return Ok(Err(FileEnd::Nothing)),
            FrameAt::Empty => match self.next_nonzero(at)? {
                None => return Ok(Err(FileEnd::Nothing)),
                Some(data) => {
                    let found = format!("zeros up to byte {data}");
                    (Fault::Hole, FormatError::new(CorruptionKind::Magic, 0, "a message", found))
                }
            },
            FrameAt::Bad(error) => (Fault::Frame, error),
        };
        Ok(Err(FileEnd::Bad(FileDamage { at, fault, error })))
    }

    /// Passes on damage, and returns where the file goes on, or why it does not.
    fn pass(
        &mut self,
        damage: FileDamage,
        visitor: &mut impl Visitor,
        budget: &mut Budget,
    ) -> Result<std::result::Result<u64, FileEnd>> {
        let has_claim = !matches!(damage.fault, Fault::Hole | Fault::Blank);
        let behind = self.behind(damage.at, budget, |reader, end| {
            Ok(has_claim && reader.next_nonzero(end)?.is_some())
        })?;
        let Some(mut next) = behind.filter(|_| !visitor.is_cancelled()) else {
            return Ok(Err(FileEnd::Bad(damage)));
        };
        let mut stored_ms = None;
        if let FrameAt::Record(record) = self.read(next, false)? {
            stored_ms = Some(record.view.store_timestamp_ms());
            if !visitor.belongs(next, &record.view)? {
                match self.pass_older(next, visitor, budget)? {
                    (_, Some(newer)) => next = newer,
                    (older, None) => return Ok(Err(FileEnd::Remains(damage, older))),
                }
            }
        }
        visitor.damage(&damage, next, stored_ms);
        Ok(Ok(next))
    }

    /// Where the file goes on behind damage: the end that the frame claims, if `believe` confirms it,
    /// or else the next record.
    fn behind(
        &mut self,
        at: u64,
        budget: &mut Budget,
        believe: impl FnOnce(&mut Self, u64) -> Result<bool>,
    ) -> Result<Option<u64>> {
        match self.claimed_end(at)? {
            Some(end) if believe(self, end)? => Ok(Some(end)),
            _ => self.resync(at.saturating_add(1), budget),
        }
    }

    /// Counts records from `at` on that do not belong to the log, up to the first that does.
    fn pass_older(
        &mut self,
        mut at: u64,
        visitor: &mut dyn Visitor,
        budget: &mut Budget,
    ) -> Result<(u64, Option<u64>)> {
        let mut older = 0;
        while !visitor.is_cancelled() {
            let mut count = |at: u64, record: &FramedRecord<'_>| -> Result<Flow> {
                if visitor.belongs(at, &record.view)? {
                    return Ok(Flow::Retry);
                }
                older += 1;
                Ok(Flow::Continue)
            };
            let (end, how) = self.walk(at, u64::MAX, false, Resync::Never, &mut count)?;
            if matches!(how, FileEnd::Whole) {
                return Ok((older, Some(end)));
            }
            match self.resync(end.saturating_add(1), budget)? {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok((older, None))
    }
}

/// Where the log goes on behind the damage at `at`: the next whole or damaged record, in its file or
/// a later one, unless `belongs` says of it and of all behind it that the log ended before.
pub fn next_of_log(
    log: &FileRun,
    at: u64,
    budget: &mut Budget,
    mut belongs: impl FnMut(u64, &MessageView<'_>) -> Result<bool>,
) -> Result<Option<u64>> {
    let mut first = None;
    for file in log.files().iter() {
        let base = file.base_offset;
        if base.saturating_add(log.file_size()) <= at {
            continue;
        }
        let mut reader = match FrameReader::open(log, file) {
            Err(error) if error.is_not_found() => continue,
            opened => opened?,
        };
        let mut next = match at.checked_sub(base) {
            Some(at) => reader.behind(at, budget, |reader, end| {
                Ok(matches!(reader.read(end, false)?, FrameAt::Record(_)))
            })?,
            None => reader.resync(0, budget)?,
        };
        while let Some(begin) = next {
            let offset = base.saturating_add(begin);
            first.get_or_insert(offset);
            match reader.read(begin, false)? {
                FrameAt::Record(record) if !belongs(offset, &record.view)? => {
                    let behind = begin.saturating_add(u64::from(record.size));
                    next = reader.resync(behind, budget)?;
                }
                _ => return Ok(first),
            }
        }
    }
    Ok(None)
}
