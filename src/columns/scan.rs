//! A scan of a log as record batches.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::ahead::{BatchError, Maker};
use super::build::builder::BatchBuilder;
use crate::error::{Error, FormatError};
use crate::format::message::MessageView;
use crate::log::read::scanner::Flow;
use crate::log::{Block, CommitLog};
use crate::store::MessageStore;
use crate::store::read::scan::Scan;
use crate::store::read::scan::part::{ScanPart, ScanParts};

pub trait Scans {
    fn run(
        &mut self,
        log: &CommitLog,
        take: impl FnMut(&MessageView<'_>, &Arc<Block>) -> Result<Flow, FormatError>,
    ) -> Result<bool, Error>;
}

impl Scans for Scan {
    #[inline]
    fn run(
        &mut self,
        log: &CommitLog,
        take: impl FnMut(&MessageView<'_>, &Arc<Block>) -> Result<Flow, FormatError>,
    ) -> Result<bool, Error> {
        Self::run(self, log, take)
    }
}

impl Scans for ScanPart {
    #[inline]
    fn run(
        &mut self,
        log: &CommitLog,
        take: impl FnMut(&MessageView<'_>, &Arc<Block>) -> Result<Flow, FormatError>,
    ) -> Result<bool, Error> {
        Self::run(self, log, take)
    }
}

/// Batches of a scan's messages.
#[derive(Debug)]
pub struct MessageBatches<S = Scan> {
    scan: S,
    builder: BatchBuilder,
    ended: bool,
    /// Error to return after the rows before it.
    held: Option<Error>,
}

impl<S: Scans> MessageBatches<S> {
    /// Batches of `scan`, built by `builder`.
    #[must_use]
    pub fn new(scan: S, builder: BatchBuilder) -> Self {
        Self { scan, builder, ended: false, held: None }
    }

    /// Continues with another scan.
    pub fn begin(&mut self, scan: S) {
        (self.scan, self.ended, self.held) = (scan, false, None);
    }

    /// The scan.
    #[must_use]
    pub fn scan(&self) -> &S {
        &self.scan
    }

    /// Whether it is known that no batches follow.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended && self.held.is_none()
    }

    /// Next batch, `None` after the last. Rows before damage come before its error; nothing follows
    /// it.
    pub fn next(&mut self, log: &CommitLog) -> Result<Option<RecordBatch>, BatchError> {
        if let Some(error) = self.held.take() {
            return Err(error.into());
        }
        if self.ended {
            return Ok(None);
        }
        let builder = &mut self.builder;
        match self.scan.run(log, |view, block| builder.push(view, Some(block))) {
            Ok(more) => self.ended = !more,
            Err(error) => {
                self.ended = true;
                self.held = Some(error);
            }
        }
        if !self.builder.is_empty() {
            return Ok(Some(self.builder.finish()?));
        }
        match self.held.take() {
            Some(error) => Err(error.into()),
            None => Ok(None),
        }
    }
}

/// Builds batches of a scan's parts, on one of several threads.
#[derive(Debug)]
pub struct ScanMaker {
    store: Arc<MessageStore>,
    parts: ScanParts,
    batches: MessageBatches<ScanPart>,
}

impl ScanMaker {
    /// Batches of `parts`, built by `builder`.
    #[must_use]
    pub fn new(store: Arc<MessageStore>, parts: ScanParts, builder: BatchBuilder) -> Self {
        let batches = MessageBatches::new(parts.part(0..0), builder);
        Self { store, parts, batches }
    }
}

impl Maker for ScanMaker {
    fn begin(&mut self, part: Range<u64>, begins: bool) {
        let part = self.parts.part(part);
        self.batches.begin(if begins { part.beginning_at_once() } else { part });
    }

    fn next(&mut self) -> Result<Option<RecordBatch>, BatchError> {
        self.store.check_open()?;
        self.batches.next(self.store.log())
    }

    fn is_over(&self) -> bool {
        self.batches.is_over()
    }

    fn met_damage(&self) -> bool {
        self.batches.scan().met_damage()
    }

    fn places(&self) -> Range<u64> {
        self.batches.scan().places()
    }
}
