//! Batches of a scan, also built on several threads, each from its own part of the log, still in its
//! cache.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::vec;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::builder::{BatchBuilder, MOST_PART};
use crate::error::Error;
use crate::files::threads::processors;
use crate::log::read::parallel::{Part, PartsInOrder, Read};
use crate::log::read::scanner::{Flow, Item};
use crate::store::LogSource;
use crate::store::progress::Halt;
use crate::store::read::scan::Scan;

const LONG: u64 = 16 << 20;
const PART: Range<u64> = 256 << 10..MOST_PART;
/// Rows below which a part counts as small.
const FEW_ROWS: usize = 512;
const MOST_THREADS: usize = 4;

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
    pub(super) scan: Scan,
    builder: BatchBuilder,
    ended: bool,
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

/// Number of threads for so many bytes; `None` allows one for each processor. Returns 0 instead of
/// 1.
#[must_use]
pub fn makers(bytes: u64, threads: Option<usize>) -> usize {
    if bytes < LONG {
        return 0;
    }
    let threads = threads.unwrap_or_else(processors);
    if threads < 2 { 0 } else { threads.min(MOST_THREADS) }
}

/// Length of the next parts: each has about one batch, or the least length.
#[derive(Debug)]
struct Step(AtomicU64);

impl Step {
    fn adapt(&self, rows: usize, has_more: bool, found_damage: bool) {
        let step = self.0.load(Ordering::Relaxed);
        let next = match has_more {
            // Each search behind damage may start at a file's beginning.
            _ if found_damage => (step * 2).min(PART.end),
            true => (step / 2).max(PART.start).min(step),
            false if rows < FEW_ROWS => (step * 2).min(PART.end),
            false => step,
        };
        self.0.store(next, Ordering::Relaxed);
    }

    fn cut(&self, rest: &mut Range<u64>) -> Option<Part<()>> {
        let begin = rest.start;
        rest.start = begin.saturating_add(self.0.load(Ordering::Relaxed)).min(rest.end);
        (begin < rest.end).then_some(Part { of: (), bytes: begin..rest.start })
    }
}

/// Batches at the beginning of a part, and where the scan goes on behind them.
struct PartBatches {
    batches: Vec<Result<RecordBatch, BatchError>>,
    end: u64,
}

/// Builds batches of a part's first bytes, at its end also the damage behind.
fn build(
    scan: &mut MessageBatches,
    part: Range<u64>,
    begins: bool,
    step: &Step,
) -> Option<(u64, PartBatches)> {
    let (to, enough) = (part.end, part.start.saturating_add(PART.start));
    scan.begin(part, begins);
    let mut batches = Vec::new();
    while let Some(batch) = scan.next() {
        batches.push(batch);
        if scan.is_over() || (enough..to).contains(&scan.scan.places().end) {
            break;
        }
    }
    if !begins {
        let rows = |batch: &Result<RecordBatch, _>| batch.as_ref().map_or(0, RecordBatch::num_rows);
        step.adapt(batches.iter().map(rows).sum(), !scan.is_over(), scan.scan.found_damage());
    }
    let Range { start, end } = scan.scan.places();
    let is_there = !batches.is_empty() || start < end;
    (start < to && is_there).then_some((start, PartBatches { batches, end }))
}

/// [`MessageBatches`] that are built ahead.
pub struct BatchesAhead {
    /// `None` after the last batch.
    parts: Option<PartsInOrder<'static, (), PartBatches>>,
    ready: vec::IntoIter<Result<RecordBatch, BatchError>>,
    threads: Vec<JoinHandle<()>>,
    process: u32,
    halt: Halt,
}

impl BatchesAhead {
    /// Starts one thread for each of `batches` but the last, which rebuilds parts with a wrong start,
    /// until `halt` says so. `bytes` begin with a record; the first part has about `step` of them.
    pub fn start(
        mut batches: Vec<MessageBatches>,
        bytes: Range<u64>,
        step: u64,
        halt: Halt,
    ) -> io::Result<Self> {
        let (ready, process) = (Vec::new().into_iter(), std::process::id());
        let mut ahead = Self { parts: None, ready, threads: Vec::new(), process, halt };
        let step = Arc::new(Step(AtomicU64::new(step)));
        let reader = |mut batches: MessageBatches| -> Read<'static, (), PartBatches> {
            let step = Arc::clone(&step);
            Box::new(move |(), bytes, begins| build(&mut batches, bytes, begins, &step))
        };
        let again = reader(batches.pop().ok_or(io::ErrorKind::InvalidInput)?);
        let readers = batches.into_iter().map(reader).collect();
        let (next, mut rest) = (bytes.start, bytes);
        let spawn = |work| {
            let thread = thread::Builder::new().name("mqstore-columns".to_owned());
            ahead.threads.push(thread.spawn(work)?);
            Ok(())
        };
        // A batch waits with its thread only, which saves memory.
        let cut = move || step.cut(&mut rest);
        ahead.parts = Some(PartsInOrder::start(next, again, readers, 0, cut, spawn)?);
        Ok(ahead)
    }

    fn take(&mut self) -> Option<Result<RecordBatch, BatchError>> {
        let broken = |what: &str| Some(Err(ArrowError::ComputeError(what.to_owned()).into()));
        let parts = self.parts.as_mut()?;
        if self.process != std::process::id() {
            return broken("the scan was begun before this process was forked off");
        }
        let is_halted = || self.halt.is_wanted();
        while !is_halted() {
            if let Some(batch) = self.ready.next() {
                return Some(batch);
            }
            let Ok(found) = parts.result(&is_halted) else {
                return broken("a thread of the scan ended early");
            };
            let (_, PartBatches { batches, end }) = found?;
            parts.next = end;
            self.ready = batches.into_iter();
        }
        None
    }
}

impl Iterator for BatchesAhead {
    type Item = Result<RecordBatch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.take();
        if !matches!(next, Some(Ok(_))) {
            self.end();
        }
        next
    }
}

impl BatchesAhead {
    fn end(&mut self) {
        let (parts, threads) = (self.parts.take(), std::mem::take(&mut self.threads));
        if self.process != std::process::id() {
            // They belong to the parent process, and so do their locks.
            std::mem::forget((parts, threads));
            return;
        }
        // Threads with a batch learn that nobody takes it.
        drop(parts);
        // After an interrupt a thread may still wait for a server.
        for thread in threads.into_iter().filter(|_| !self.halt.is_wanted()) {
            // A panicked thread has ended, too.
            let _ = thread.join();
        }
    }
}

impl Drop for BatchesAhead {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
