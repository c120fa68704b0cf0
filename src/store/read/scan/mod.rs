//! Scans messages of a byte range, or at given offsets, with a filter and a policy for damage.
//!
//! `filter.rs` chooses messages. `places.rs` and `tag_places.rs` find offsets that queues name.

pub mod filter;
pub mod places;

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashSet;

use crate::error::{Error, FormatError, Result};
use crate::format::message::MessageView;
use crate::format::width::{clamp_u64, to_usize};
use crate::log::commit_log::Found;
use crate::log::read::damage::{in_file, zeros};
use crate::log::read::evidence::Budget;
use crate::log::read::range_scan::RangeScan;
use crate::log::read::resync;
use crate::log::read::scanner::{Flow, Item, Lost, Visit, gone};
use crate::log::{Block, CommitLog};

pub use self::filter::ScanFilter;
pub use self::places::tag_places;
pub use crate::log::read::damage::Damage;
use crate::store::progress::{ASK_EVERY, Halt};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    Fail,
    /// Continue with the next whole record, and count.
    Skip,
    /// Also pass it to the visitor.
    Report,
}

#[derive(Clone, Debug)]
pub enum Places {
    Range(Box<RangeScan>),
    Offsets(Offsets),
}

#[derive(Clone, Debug)]
pub struct Scan {
    places: Places,
    filter: ScanFilter,
    tally: Tally,
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
        let range = RangeScan::new(start, stop, end, true, Lost::Accept).alone();
        Self::of(Places::Range(Box::new(range)), filter, on_damage)
    }

    #[must_use]
    pub fn of(places: Places, filter: ScanFilter, on_damage: OnDamage) -> Self {
        let (asked_at, stop) = match &places {
            Places::Range(range) => (range.bytes().start, range.bytes().end),
            Places::Offsets(_) => (0, u64::MAX),
        };
        let tally = Tally { on_damage, stop, ranges: 0, bytes: 0 };
        let halt = Halt::default();
        Self { places, filter, tally, ended: false, halt, asked_at }
    }

    /// The records at sorted offsets only, each with its length, 0 if unknown.
    #[must_use]
    pub fn at(&self, records: Arc<[(u64, u32)]>) -> Self {
        let offsets = Offsets::new(records, true, Lost::Accept);
        Self::of(Places::Offsets(offsets), self.filter.clone(), self.tally.on_damage)
    }

    pub fn take_keys(&mut self, keys: HashSet<Box<[u8]>>) {
        self.filter.more.get_or_insert_default().keys = Some(keys);
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

    fn range(&self) -> Option<&RangeScan> {
        match &self.places {
            Places::Range(range) => Some(range),
            Places::Offsets(_) => None,
        }
    }

    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.range().map_or(0..0, RangeScan::bytes)
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
    pub fn found_damage(&self) -> bool {
        self.range().is_some_and(RangeScan::found_damage)
    }

    #[must_use]
    pub fn places(&self) -> Range<u64> {
        self.range().map_or(0..0, RangeScan::places)
    }

    /// Moves to the first message, before taking parts.
    pub fn find_start(&mut self, log: &CommitLog) -> Result<()> {
        match &mut self.places {
            Places::Range(range) => range.find_start(log),
            Places::Offsets(_) => Ok(()),
        }
    }

    /// Messages that begin in a part of its bytes; `begins` means that its first byte starts a
    /// record.
    #[must_use]
    pub fn part(&self, bytes: Range<u64>, begins: bool) -> Self {
        let mut part = self.clone();
        part.asked_at = bytes.start;
        if let Places::Range(range) = &mut part.places {
            let whole = range.part(bytes);
            **range = if begins { whole.beginning_at_once() } else { whole };
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
        self.visit(log, |_, item| match item {
            Item::Record(view, block) => take(view, block),
            Item::Blank | Item::Damage(_) => Ok(Flow::Continue),
        })
    }

    /// Passes messages and, with [`OnDamage::Report`], damage to `take` until it has enough; returns
    /// whether there may be more. The next call continues behind the last item taken. A refused
    /// message counts as damage.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at damage with [`OnDamage::Fail`]; a further call meets it again.
    /// [`Error::Io`]. [`Error::OffsetOutOfRange`] where files are gone, with [`Lost::Refuse`].
    #[inline]
    pub fn visit(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(Range<u64>, Item<'_, '_>) -> Result<Flow, FormatError>,
    ) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let Self { places, filter, tally, halt, asked_at, .. } = self;
        let mut each = |range: Range<u64>, item: Item<'_, '_>| {
            let Item::Record(view, _) = item else { return tally.damage(log, item, &mut take) };
            if range.start.saturating_sub(*asked_at) >= ASK_EVERY {
                *asked_at = range.start;
                if halt.is_wanted() {
                    return Ok(Flow::Retry);
                }
            }
            if !filter.takes(view) {
                return Ok(Flow::Continue);
            }
            match take(range, item) {
                Ok(flow) => Ok(flow),
                Err(error) => tally.refused(log, view, error, &mut take),
            }
        };
        let more = match places {
            Places::Range(range) => range.run(log, each),
            Places::Offsets(offsets) => offsets.run(log, &mut each),
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

type Take<'a> = dyn FnMut(Range<u64>, Item<'_, '_>) -> Result<Flow, FormatError> + 'a;

#[derive(Clone, Debug)]
struct Tally {
    on_damage: OnDamage,
    stop: u64,
    ranges: u64,
    bytes: u64,
}

impl Tally {
    #[cold]
    fn damage(&mut self, log: &CommitLog, item: Item<'_, '_>, take: &mut Take<'_>) -> Result<Flow> {
        let Item::Damage(mut damage) = item else { return Ok(Flow::Continue) };
        log.lose(damage.begin..damage.end);
        // If only the body is wrong, the rest identifies the message.
        if self.on_damage != OnDamage::Skip
            && let Found::Message(view) = log.read(damage.begin, 0, &mut Vec::new())?
        {
            damage.identify(&view);
        }
        self.pass(damage, take)
    }

    #[cold]
    fn refused(
        &mut self,
        log: &CommitLog,
        view: &MessageView<'_>,
        error: FormatError,
        take: &mut Take<'_>,
    ) -> Result<Flow> {
        let corruption = in_file(log, clamp_u64(view.physical_offset()), error);
        self.pass(Box::new(Damage::of_message(view, corruption)), take)
    }

    fn pass(&mut self, damage: Box<Damage>, take: &mut Take<'_>) -> Result<Flow> {
        if self.on_damage == OnDamage::Fail {
            return Err(damage.error());
        }
        let bytes = damage.end.min(self.stop).saturating_sub(damage.begin);
        self.ranges = self.ranges.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.on_damage == OnDamage::Skip {
            return Ok(Flow::Continue);
        }
        let range = damage.begin..damage.end;
        Ok(take(range, Item::Damage(damage)).unwrap_or(Flow::Continue))
    }
}

#[derive(Clone, Debug)]
pub struct Offsets {
    records: Arc<[(u64, u32)]>,
    next: usize,
    verify_crc: bool,
    lost: Lost,
    budget: Budget,
}

impl Offsets {
    /// As [`Scan::at`].
    #[must_use]
    pub fn new(records: Arc<[(u64, u32)]>, verify_crc: bool, lost: Lost) -> Self {
        let budget = Budget::new(records.first().map_or(0, |first| first.0));
        Self { records, next: 0, verify_crc, lost, budget }
    }

    fn run(&mut self, log: &CommitLog, take: &mut Visit<'_>) -> Result<bool> {
        let mut buffer = Vec::new();
        while let Some(&(at, size)) = self.records.get(self.next) {
            // A size given by a caller may be anything.
            let hint = to_usize(size).min(1 << 20);
            let corruption = match log.read(at, hint, &mut buffer)? {
                Found::Message(view) => match view.check_body_crc() {
                    Err(error) if self.verify_crc => in_file(log, at, error),
                    _ => {
                        let end = at.saturating_add(u64::from(view.store_size()));
                        let flow = take(at..end, Item::Record(&view, None))?;
                        self.next += usize::from(flow != Flow::Retry);
                        if flow != Flow::Continue {
                            return Ok(true);
                        }
                        continue;
                    }
                },
                Found::Bad(error) => in_file(log, at, error),
                Found::Blank(_) | Found::Empty => zeros(log, at),
                Found::OutOfRange if self.lost == Lost::Refuse => return Err(gone(log, at)),
                Found::OutOfRange => {
                    self.next += 1;
                    continue;
                }
            };
            let end = match size {
                // The frame's extent, as a range has it, but no other record of the list.
                0 => {
                    let later = self.records.get(self.next + 1).map_or(u64::MAX, |later| later.0);
                    let until = later.min(log.end_offset());
                    resync::next_in_file(log, at, until, &mut self.budget)?
                }
                size => at.saturating_add(u64::from(size)),
            };
            let damage = Damage::of_bytes(at..end, corruption);
            let flow = take(at..end, Item::Damage(Box::new(damage)))?;
            self.next += 1;
            if flow != Flow::Continue {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
