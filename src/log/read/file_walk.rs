//! Loop over the frames of a log file, for verify and rebuild: damage, where the file goes on behind
//! it, and remains of a recycled file.

use super::frames::{FrameAt, FrameReader, Record, is_own, misplaced};
use super::scanner::{Flow, Resync};
use crate::error::{CorruptionKind, FormatError, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Frame,
    /// A record that stores another offset.
    Place,
    /// A blank that does not end with its file.
    Blank,
    /// Zeros before other bytes.
    Hole,
}

#[derive(Clone, Debug)]
pub struct Damage {
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
    Bad(Damage),
    /// Damage, then so many records of the file's older life.
    Remains(Damage, u64),
}

pub trait Visitor {
    fn record(&mut self, at: u64, record: &Record<'_>) -> Result<Flow>;

    /// [`Visitor::record`] outside the fast path, which stays small without.
    #[cold]
    fn record_closely(&mut self, at: u64, record: &Record<'_>) -> Result<Flow> {
        self.record(at, record)
    }

    /// Store time of the newest record before damage.
    fn newest_ms(&mut self) -> i64 {
        i64::MIN
    }

    fn damage(&mut self, _: &Damage, _next: u64, _stored_ms: Option<i64>) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Whether a record behind damage remains of a recycled file's older life.
#[must_use]
pub fn is_of_older_life(stored_ms: i64, newest_ms: i64) -> bool {
    stored_ms < newest_ms
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
        while at < to {
            let (flow, size) = match self.whole(at) {
                Some(view) if is_own(&view, base.saturating_add(at)) => {
                    let record =
                        Record { view, size: view.store_size(), is_elided: false, faults: None };
                    (visitor.record(at, &record)?, record.size)
                }
                _ => match self.closely(at, sums, resync, visitor)? {
                    Ok(taken) => taken,
                    Err(FileEnd::Bad(damage)) if resync != Resync::Never => {
                        match self.pass(damage, visitor)? {
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
        let (place, left) = (self.base().saturating_add(at), self.left(at));
        let (fault, error) = match self.read(at, sums)? {
            FrameAt::Record(record) => match misplaced(&record.view, place) {
                None => return Ok(Ok((visitor.record_closely(at, &record)?, record.size))),
                Some(error) => (Fault::Place, error),
            },
            FrameAt::Blank(size) if u64::from(size) == left => return Ok(Err(FileEnd::Blank)),
            FrameAt::Blank(size) => {
                let expected = format!("a blank of {left} bytes, to the end of the file");
                let found = format!("{size} bytes");
                (Fault::Blank, FormatError::new(CorruptionKind::Blank, 0, expected, found))
            }
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
        Ok(Err(FileEnd::Bad(Damage { at, fault, error })))
    }

    /// Passes on damage, and returns where the file goes on, or why it does not.
    fn pass(
        &mut self,
        damage: Damage,
        visitor: &mut impl Visitor,
    ) -> Result<std::result::Result<u64, FileEnd>> {
        let has_claim = !matches!(damage.fault, Fault::Hole | Fault::Blank);
        let behind = self.behind(damage.at, |reader, end| {
            Ok(has_claim && reader.next_nonzero(end)?.is_some())
        })?;
        let Some(mut next) = behind.filter(|_| !visitor.is_cancelled()) else {
            return Ok(Err(FileEnd::Bad(damage)));
        };
        let stored_ms = self.stored_at(next)?;
        if let Some(stored_ms) = stored_ms {
            let newest_ms = visitor.newest_ms();
            if is_of_older_life(stored_ms, newest_ms) {
                match self.pass_older(next, newest_ms, visitor)? {
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
    pub fn behind(
        &mut self,
        at: u64,
        believe: impl FnOnce(&mut Self, u64) -> Result<bool>,
    ) -> Result<Option<u64>> {
        match self.claimed_end(at)? {
            Some(end) if believe(self, end)? => Ok(Some(end)),
            _ => self.resync(at.saturating_add(1)),
        }
    }

    /// Counts records from `at` on that are older than `newest_ms`, up to the first newer one.
    fn pass_older(
        &mut self,
        mut at: u64,
        newest_ms: i64,
        visitor: &impl Visitor,
    ) -> Result<(u64, Option<u64>)> {
        let mut older = Older { newest_ms, records: 0 };
        while !visitor.is_cancelled() {
            let (end, how) = self.walk(at, u64::MAX, false, Resync::Never, &mut older)?;
            if matches!(how, FileEnd::Whole) {
                return Ok((older.records, Some(end)));
            }
            // Older records may follow a blank, too.
            match self.resync(end.saturating_add(1))? {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok((older.records, None))
    }

    pub fn stored_at(&mut self, at: u64) -> Result<Option<i64>> {
        Ok(match self.read(at, false)? {
            FrameAt::Record(record) => Some(record.view.store_timestamp_ms()),
            _ => None,
        })
    }

    /// Whether a record or the file's blank begins at `at`.
    pub fn is_written(&mut self, at: u64) -> Result<bool> {
        let (place, left) = (self.base().saturating_add(at), self.left(at));
        Ok(match self.read(at, false)? {
            FrameAt::Record(record) => is_own(&record.view, place),
            FrameAt::Blank(size) => u64::from(size) == left,
            _ => false,
        })
    }
}

struct Older {
    newest_ms: i64,
    records: u64,
}

impl Visitor for Older {
    fn record(&mut self, _: u64, record: &Record<'_>) -> Result<Flow> {
        if !is_of_older_life(record.view.store_timestamp_ms(), self.newest_ms) {
            return Ok(Flow::Retry);
        }
        self.records += 1;
        Ok(Flow::Continue)
    }
}
