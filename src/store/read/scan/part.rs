//! Parts of a scan, which together give the whole scan.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, FormatError, Result};
use crate::format::message::MessageView;
use crate::format::width::at_least_0;
use crate::log::read::range_scan::{Met, RangeScan};
use crate::log::read::scanner::Flow;
use crate::log::{Block, CommitLog};

use super::{Damage, OnDamage, ScanFilter, raised};
use crate::store::progress::{ASK_EVERY, Halt};

#[derive(Clone, Debug)]
pub struct ScanParts {
    pub(crate) filter: ScanFilter,
    pub(crate) on_damage: OnDamage,
    pub(crate) range: RangeScan,
    pub(crate) halt: Halt,
}

impl ScanParts {
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.range.bytes()
    }

    /// Messages that begin in `bytes`.
    #[must_use]
    pub fn part(&self, bytes: Range<u64>) -> ScanPart {
        let whole = self.bytes();
        let mut range = self.range.part(bytes.clone());
        if bytes.start == whole.start {
            range = range.beginning_at_once();
        }
        if bytes.end == whole.end {
            range = range.ending_at_once();
        }
        let Self { filter, on_damage, halt, .. } = self.clone();
        ScanPart { filter, on_damage, range, halt, asked_at: bytes.start, met_damage: false }
    }
}

#[derive(Clone, Debug)]
pub struct ScanPart {
    filter: ScanFilter,
    on_damage: OnDamage,
    range: RangeScan,
    halt: Halt,
    asked_at: u64,
    met_damage: bool,
}

impl ScanPart {
    #[must_use]
    pub fn met_damage(&self) -> bool {
        self.met_damage
    }

    /// As [`RangeScan::places`].
    #[must_use]
    pub fn places(&self) -> Range<u64> {
        self.range.places()
    }

    /// Assumes that a record begins at its start.
    #[must_use]
    pub fn beginning_at_once(self) -> Self {
        Self { range: self.range.beginning_at_once(), ..self }
    }

    /// As [`Scan::run`](super::Scan::run).
    pub fn run(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(&MessageView<'_>, &Arc<Block>) -> Result<Flow, FormatError>,
    ) -> Result<bool> {
        let Self { filter, on_damage, range, halt, asked_at, met_damage } = self;
        let mut pass_over = |at: u64, damage: Damage| -> Result<Flow, Error> {
            *met_damage = true;
            match on_damage {
                OnDamage::Raise => Err(raised(log, at, damage)),
                OnDamage::Skip => Ok(Flow::Continue),
            }
        };
        range.run(log, |met| match met {
            Met::Message(view, _) if !filter.takes(view) => {
                let at = at_least_0(view.physical_offset());
                if at.saturating_sub(*asked_at) < ASK_EVERY {
                    return Ok(Flow::Continue);
                }
                *asked_at = at;
                Ok(if halt.is_wanted() { Flow::Stop } else { Flow::Continue })
            }
            Met::Message(view, block) => take(view, block).or_else(|error| {
                let at = at_least_0(view.physical_offset());
                pass_over(at, Damage::Content(error))
            }),
            Met::Damage(damaged) => {
                log.lose(damaged.begin..damaged.end);
                pass_over(damaged.begin, Damage::Frame(damaged.corruption))
            }
        })
    }
}
