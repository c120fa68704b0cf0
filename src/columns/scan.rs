//! A scan of a log as record batches.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::build::builder::BatchBuilder;
use crate::error::Error;
use crate::log::read::scanner::{Flow, Item};
use crate::store::LogSource;
use crate::store::read::scan::Scan;

/// Reason why there is no batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// Reading failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// Building columns failed.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

/// Batches of a scan's messages and reported damage. Rows before damage come before its error;
/// nothing follows it.
#[derive(Debug)]
pub struct MessageBatches {
    source: LogSource,
    whole: Scan,
    /// The scan, or the part of it at hand.
    pub(super) scan: Scan,
    builder: BatchBuilder,
    ended: bool,
    /// Error to return after the rows before it.
    held: Option<Error>,
}

impl MessageBatches {
    /// Batches of `scan`, built by `builder`.
    #[must_use]
    pub fn new(source: LogSource, scan: Scan, builder: BatchBuilder) -> Self {
        let whole = scan.clone();
        Self { source, whole, scan, builder, ended: false, held: None }
    }

    /// Whether it is known that no batches follow.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended && self.held.is_none()
    }

    pub(super) fn begin(&mut self, part: Range<u64>, begins: bool) {
        self.scan = self.whole.part(part, begins);
        (self.ended, self.held) = (false, None);
    }

    fn build(&mut self) -> Result<Option<RecordBatch>, BatchError> {
        if let Some(error) = self.held.take() {
            return Err(error.into());
        }
        if self.ended {
            return Ok(None);
        }
        let (log, builder) = (self.source.log()?, &mut self.builder);
        let visited = self.scan.visit(log, |_, item| match item {
            Item::Record(view, block) => builder.push(view, block),
            Item::Damage(damage) => Ok(builder.push_damage(damage)),
            Item::Blank => Ok(Flow::Continue),
        });
        match visited {
            Ok(more) => self.ended = !more,
            Err(error) => (self.ended, self.held) = (true, Some(error)),
        }
        if !self.builder.is_empty() {
            return Ok(Some(self.builder.finish()?));
        }
        self.held.take().map_or(Ok(None), |error| Err(error.into()))
    }
}

impl Iterator for MessageBatches {
    type Item = Result<RecordBatch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.build().transpose()
    }
}
