//! A scan of a log as record batches.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::builder::BatchBuilder;
use crate::error::Error;
use crate::log::CommitLog;
use crate::store::scan::Scan;

/// Why there is no batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The rows could not be read.
    #[error(transparent)]
    Store(#[from] Error),
    /// The columns could not be put together.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

/// Batches of the messages that a scan gives.
#[derive(Debug)]
pub struct MessageBatches {
    scan: Scan,
    builder: BatchBuilder,
    ended: bool,
    /// What ended the scan, while the rows before it are given.
    held: Option<Error>,
}

impl MessageBatches {
    /// The messages of `scan` in batches of `builder`.
    #[must_use]
    pub fn new(scan: Scan, builder: BatchBuilder) -> Self {
        Self { scan, builder, ended: false, held: None }
    }

    /// The scan, and so how far it has come and what it passed over.
    #[must_use]
    pub fn scan(&self) -> &Scan {
        &self.scan
    }

    /// The next batch, `None` behind the last. Rows before damage come before its error, and nothing
    /// comes after it.
    ///
    /// # Errors
    /// As [`Scan::run`].
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
