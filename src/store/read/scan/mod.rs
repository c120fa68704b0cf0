//! Scans messages of a byte range, or at given offsets, with a filter and a policy for damage.
//!
//! `filter.rs` chooses messages. `places.rs` and `tag_places.rs` find offsets that queues name.

pub mod filter;
pub mod places;
mod tag_places;

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Corruption, Error, FormatError, Result};
use crate::format::message::MessageView;
use crate::format::width::{at_least_0, at_most_i64, to_usize};
use crate::log::commit_log::Found;
use crate::log::read::range_scan::{DamagedRange, Lost, Met, RangeScan};
use crate::log::read::scanner::{Flow, zeros};
use crate::log::{Block, CommitLog};

pub use self::filter::ScanFilter;
pub use self::tag_places::{TagPlaces, tag_places};
use crate::store::progress::{ASK_EVERY, Halt};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    Fail,
    /// Continue with the next whole record, and count.
    Skip,
    /// Also pass it to the visitor.
    Report,
}

/// Bytes without a usable message.
#[derive(Clone, Debug)]
pub struct Damage {
    pub begin: u64,
    pub end: u64,
    /// Topic, queue and queue offset, if known.
    pub message: Option<(Box<[u8]>, i32, i64)>,
    pub corruption: Corruption,
}

impl Damage {
    /// Damage of a message; positions count from the record.
    #[must_use]
    pub fn of_message(view: &MessageView<'_>, error: FormatError) -> Self {
        let begin = at_least_0(view.physical_offset());
        let end = begin.saturating_add(u64::from(view.store_size()));
        Self { begin, end, message: Some(name(view)), corruption: error.into_corruption() }
    }

    #[must_use]
    pub fn length(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    #[must_use]
    pub fn error(&self) -> Error {
        let mut corruption = self.corruption.clone();
        let place = format!("physical offsets {} to {}", self.begin, self.end);
        corruption.found = match &self.message {
            Some((topic, queue_id, queue_offset)) => format!(
                "{} ({place}; topic {}, queue {queue_id}, queue offset {queue_offset})",
                corruption.found,
                String::from_utf8_lossy(topic)
            ),
            None => format!("{} ({place})", corruption.found),
        };
        Error::Corrupt(Box::new(corruption))
    }
}

fn name(view: &MessageView<'_>) -> (Box<[u8]>, i32, i64) {
    (view.topic().into(), view.queue_id(), view.queue_offset())
}

#[derive(Debug)]
pub enum ScanItem<'a, 'v> {
    /// A message and, if it may be shared, its block.
    Message(&'a MessageView<'v>, Option<&'a Arc<Block>>),
    Damage(Box<Damage>),
}

#[derive(Clone, Debug)]
pub enum Places {
    Range(Box<RangeScan>),
    Offsets(Offsets),
}

/// State of a scan; the log is passed to each call.
#[derive(Clone, Debug)]
pub struct Scan {
    places: Places,
    filter: ScanFilter,
    tally: Tally,
    /// Whether a record at the start counts, whatever lies before.
    trusts_start: bool,
    ended: bool,
    halt: Halt,
    asked_at: u64,
}

impl Scan {
    /// Scans messages that begin in `start..stop` of a log readable up to `end`.
    ///
    /// A `start` inside a record moves to the next one.
    #[must_use]
    pub fn new(start: u64, stop: u64, end: u64, filter: ScanFilter, on_damage: OnDamage) -> Self {
        let range = RangeScan::new(start, stop, end, true, Lost::Accept).ending_at_once();
        let scan = Self::of(Places::Range(Box::new(range)), filter, on_damage);
        Self { trusts_start: true, ..scan }
    }

    #[must_use]
    pub fn of(places: Places, filter: ScanFilter, on_damage: OnDamage) -> Self {
        let (asked_at, stop) = match &places {
            Places::Range(range) => (range.bytes().start, range.bytes().end),
            Places::Offsets(_) => (0, u64::MAX),
        };
        let tally = Tally { on_damage, stop, ranges: 0, bytes: 0, met_range: false };
        let halt = Halt::default();
        Self { places, filter, tally, trusts_start: false, ended: false, halt, asked_at }
    }

    #[must_use]
    pub fn verifying(mut self, verify_crc: bool) -> Self {
        match &mut self.places {
            Places::Range(range) => range.verify(verify_crc),
            Places::Offsets(offsets) => offsets.verify_crc = verify_crc,
        }
        self
    }

    /// Ends early when `halt` says so, as if [`Scan::run`] had enough.
    #[must_use]
    pub fn halting(mut self, halt: Halt) -> Self {
        self.halt = halt;
        self
    }

    #[must_use]
    pub fn on_damage(&self) -> OnDamage {
        self.tally.on_damage
    }

    /// Bytes to walk; none for offsets.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        match &self.places {
            Places::Range(range) => range.bytes(),
            Places::Offsets(_) => 0..0,
        }
    }

    #[must_use]
    pub fn physical_offset(&self) -> u64 {
        if self.ended { self.tally.stop } else { self.bytes().start }
    }

    #[must_use]
    pub fn stop_physical_offset(&self) -> u64 {
        self.tally.stop
    }

    #[must_use]
    pub fn skipped_ranges(&self) -> u64 {
        self.tally.ranges
    }

    #[must_use]
    pub fn skipped_bytes(&self) -> u64 {
        self.tally.bytes
    }

    #[must_use]
    pub fn met_damage(&self) -> bool {
        self.tally.met_range
    }

    /// As [`RangeScan::places`]; none for offsets.
    #[must_use]
    pub fn places(&self) -> Range<u64> {
        match &self.places {
            Places::Range(range) => range.places(),
            Places::Offsets(_) => 0..0,
        }
    }

    /// Moves to the first message, before taking parts.
    pub fn settle(&mut self, log: &CommitLog) -> Result<()> {
        let Places::Range(range) = &mut self.places else { return Ok(()) };
        if std::mem::take(&mut self.trusts_start) {
            let at = range.bytes().start;
            let mut buffer = Vec::new();
            if matches!(log.read(at, 0, &mut buffer)?, Found::Message(_) | Found::Blank(_)) {
                **range = (**range).clone().beginning_at_once();
            }
        }
        range.settle(log)
    }

    /// Messages that begin in a part of its bytes; `begins` means that its first byte starts a
    /// record.
    #[must_use]
    pub fn part(&self, bytes: Range<u64>, begins: bool) -> Self {
        let mut part = self.clone();
        part.asked_at = bytes.start;
        if let Places::Range(range) = &mut part.places {
            **range = range.part(bytes);
            if begins {
                **range = (**range).clone().beginning_at_once();
            }
        }
        part
    }

    /// Passes only messages to `take`, as [`Scan::visit`].
    #[inline]
    pub fn run(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(&MessageView<'_>, Option<&Arc<Block>>) -> Result<Flow, FormatError>,
    ) -> Result<bool> {
        self.visit(log, |item| match item {
            ScanItem::Message(view, block) => take(view, block),
            ScanItem::Damage(_) => Ok(Flow::Continue),
        })
    }

    /// Passes items to `take` until it has enough; returns whether there may be more. The next call
    /// continues behind the last item taken. A refused message counts as damage.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at damage with [`OnDamage::Fail`]; a further call meets it again.
    /// [`Error::Io`]. [`Error::OffsetOutOfRange`] where files are gone, with [`Lost::Refuse`].
    pub fn visit(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(ScanItem<'_, '_>) -> Result<Flow, FormatError>,
    ) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        if self.trusts_start {
            self.settle(log)?;
        }
        let Self { places, filter, tally, halt, asked_at, .. } = self;
        let more = match places {
            Places::Range(range) => range.run(log, |met| match met {
                Met::Message(view, block) => {
                    let at = at_least_0(view.physical_offset());
                    if at.saturating_sub(*asked_at) >= ASK_EVERY {
                        *asked_at = at;
                        if halt.is_wanted() {
                            return Ok(Flow::Retry);
                        }
                    }
                    if !filter.takes(view) {
                        return Ok(Flow::Continue);
                    }
                    tally.message(log, view, Some(block), &mut take)
                }
                Met::Damage(damaged) => {
                    tally.met_range = true;
                    tally.damage(log, damaged, &mut take)
                }
            }),
            Places::Offsets(offsets) => offsets.run(log, |found| match found {
                Ok(view) if !filter.takes(view) => Ok(Flow::Continue),
                Ok(view) => tally.message(log, view, None, &mut take),
                Err(damaged) => tally.damage(log, damaged, &mut take),
            }),
        };
        let more = more.inspect_err(|error| {
            // Damage is remembered already, and a refused message was read.
            if !matches!(error, Error::Corrupt(_)) {
                log.lose_by(error);
            }
        })?;
        self.ended = !more;
        Ok(more)
    }
}

/// The policy for damage, and the damage so far.
#[derive(Clone, Debug)]
struct Tally {
    on_damage: OnDamage,
    stop: u64,
    ranges: u64,
    bytes: u64,
    met_range: bool,
}

impl Tally {
    #[inline(always)]
    fn message(
        &mut self,
        log: &CommitLog,
        view: &MessageView<'_>,
        block: Option<&Arc<Block>>,
        take: &mut impl FnMut(ScanItem<'_, '_>) -> Result<Flow, FormatError>,
    ) -> Result<Flow> {
        match take(ScanItem::Message(view, block)) {
            Ok(flow) => Ok(flow),
            Err(error) => {
                let mut damage = Damage::of_message(view, error);
                damage.corruption = in_file(log, damage.begin, damage.corruption);
                self.pass(damage, take)
            }
        }
    }

    #[cold]
    fn damage(
        &mut self,
        log: &CommitLog,
        damaged: DamagedRange,
        take: &mut impl FnMut(ScanItem<'_, '_>) -> Result<Flow, FormatError>,
    ) -> Result<Flow> {
        let DamagedRange { begin, end, corruption } = damaged;
        log.lose(begin..end);
        let mut buffer = Vec::new();
        // If only the body is wrong, the rest identifies the message.
        let message = match self.on_damage {
            OnDamage::Skip => None,
            OnDamage::Fail | OnDamage::Report => match log.read(begin, 0, &mut buffer)? {
                Found::Message(view) => Some(name(&view)),
                _ => None,
            },
        };
        self.pass(Damage { begin, end, message, corruption }, take)
    }

    #[cold]
    fn pass(
        &mut self,
        damage: Damage,
        take: &mut impl FnMut(ScanItem<'_, '_>) -> Result<Flow, FormatError>,
    ) -> Result<Flow> {
        if self.on_damage == OnDamage::Fail {
            return Err(damage.error());
        }
        let bytes = damage.end.min(self.stop).saturating_sub(damage.begin);
        self.ranges = self.ranges.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.on_damage == OnDamage::Skip {
            return Ok(Flow::Continue);
        }
        Ok(take(ScanItem::Damage(Box::new(damage))).unwrap_or(Flow::Continue))
    }
}

#[derive(Clone, Debug)]
pub struct Offsets {
    records: Arc<[(u64, u32)]>,
    next: usize,
    verify_crc: bool,
    lost: Lost,
}

impl Offsets {
    /// Records at sorted offsets, each with its length, 0 if unknown.
    #[must_use]
    pub fn new(records: Arc<[(u64, u32)]>, verify_crc: bool, lost: Lost) -> Self {
        Self { records, next: 0, verify_crc, lost }
    }

    fn run(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(Result<&MessageView<'_>, DamagedRange>) -> Result<Flow>,
    ) -> Result<bool> {
        let mut buffer = Vec::new();
        while let Some(&(at, size)) = self.records.get(self.next) {
            self.next += 1;
            // A size given by a caller may be anything.
            let hint = to_usize(size).min(1 << 20);
            let corruption = match log.read(at, hint, &mut buffer)? {
                Found::Message(view) => match view.check_body_crc() {
                    Err(error) if self.verify_crc => in_file(log, at, error.into_corruption()),
                    _ => match take(Ok(&view)).inspect_err(|_| self.next -= 1)? {
                        Flow::Continue => continue,
                        Flow::Stop => return Ok(true),
                        Flow::Retry => {
                            self.next -= 1;
                            return Ok(true);
                        }
                    },
                },
                Found::Bad(error) => in_file(log, at, error.into_corruption()),
                Found::Blank(_) | Found::Empty => zeros(log, at),
                Found::OutOfRange if self.lost == Lost::Refuse => return Err(gone(log, at)),
                Found::OutOfRange => continue,
            };
            let end = at.saturating_add(u64::from(size));
            let damaged = DamagedRange { begin: at, end, corruption };
            if take(Err(damaged)).inspect_err(|_| self.next -= 1)? != Flow::Continue {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn in_file(log: &CommitLog, at: u64, mut corruption: Corruption) -> Corruption {
    if let Some(file) = log.run().find(at) {
        corruption.path = Some(file.path.clone());
        corruption.offset = corruption.offset.saturating_add(at.saturating_sub(file.base_offset));
    }
    corruption
}

fn gone(log: &CommitLog, at: u64) -> Error {
    let number = |offset| at_most_i64(offset);
    Error::OffsetOutOfRange {
        physical_offset: number(at),
        min: number(log.min_offset()),
        max: number(log.run().end_offset().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests;
