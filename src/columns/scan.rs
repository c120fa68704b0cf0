//! A scan of a log as record batches.

use std::ops::Range;

use arrow_array::RecordBatch;

use super::ahead::{BatchError, Maker};
use super::build::builder::BatchBuilder;
use crate::error::Error;
use crate::log::CommitLog;
use crate::store::LogSource;
use crate::store::read::scan::{Scan, ScanItem};

/// Batches of a scan's messages and reported damage.
#[derive(Debug)]
pub struct MessageBatches {
    scan: Scan,
    builder: BatchBuilder,
    ended: bool,
    /// Error to return after the rows before it.
    held: Option<Error>,
}

impl MessageBatches {
    /// Batches of `scan`, built by `builder`.
    #[must_use]
    pub fn new(scan: Scan, builder: BatchBuilder) -> Self {
        Self { scan, builder, ended: false, held: None }
    }

    /// Continues with another scan.
    pub fn begin(&mut self, scan: Scan) {
        (self.scan, self.ended, self.held) = (scan, false, None);
    }

    /// The scan.
    #[must_use]
    pub fn scan(&self) -> &Scan {
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
        let visited = self.scan.visit(log, |item| match item {
            ScanItem::Message(view, block) => builder.push(view, block),
            ScanItem::Damage(damage) => Ok(builder.push_damage(*damage)),
        });
        match visited {
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

/// Builds batches of a scan or of its parts, on one of several threads.
#[derive(Debug)]
pub struct ScanMaker {
    source: LogSource,
    whole: Scan,
    batches: MessageBatches,
}

impl ScanMaker {
    /// Batches of `scan`, built by `builder`.
    #[must_use]
    pub fn new(source: LogSource, scan: Scan, builder: BatchBuilder) -> Self {
        let batches = MessageBatches::new(scan.clone(), builder);
        Self { source, whole: scan, batches }
    }
}

impl Maker for ScanMaker {
    fn begin(&mut self, part: Range<u64>, begins: bool) {
        self.batches.begin(self.whole.part(part, begins));
    }

    fn next(&mut self) -> Result<Option<RecordBatch>, BatchError> {
        self.batches.next(self.source.log()?)
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
