//! Builds batches on several threads, each from its own part of the log, still in its cache.
//!
//! A free thread takes the next part and guesses its first record, as in
//! [`crate::log::read::parallel`]. Batches are returned in order.

use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use crate::error::Error;
use crate::files::threads::processors;
use crate::log::read::parallel::Standing;
use crate::store::progress::Halt;

const LONG: u64 = 16 << 20;
/// Bytes of a part.
const PART: Range<u64> = 256 << 10..64 << 20;
/// Rows below which a part counts as small.
const FEW_ROWS: usize = 512;
const MOST_THREADS: usize = 4;
const WAIT_SLICE: Duration = Duration::from_millis(50);

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

type Made = Result<Option<RecordBatch>, BatchError>;

/// Builds the batches of parts.
pub trait Maker: Send + fmt::Debug {
    /// Begins a part: the records that start in these bytes. `begins` means that the first byte
    /// starts a record.
    fn begin(&mut self, part: Range<u64>, begins: bool);

    /// Next batch of the part.
    fn next(&mut self) -> Made;

    /// Whether the part is known to have no more.
    fn is_over(&self) -> bool;

    fn met_damage(&self) -> bool;

    /// Start of the part's first record or damage, and the position after what was returned.
    fn places(&self) -> Range<u64>;
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

#[derive(Debug)]
struct PartQueue {
    next: u64,
    end: u64,
    step: u64,
}

#[derive(Clone, Copy)]
struct PartResult {
    rows: usize,
    batches: usize,
    met_damage: bool,
}

impl PartQueue {
    /// Cuts a part for one batch; after damage a large one, since each search may start at a file's
    /// beginning.
    fn cut(&mut self, last: Option<PartResult>) -> Option<Range<u64>> {
        if let Some(PartResult { rows, batches, met_damage }) = last {
            if rows < FEW_ROWS || met_damage {
                self.step = (self.step * 2).min(PART.end);
            } else if batches > 1 {
                self.step = (self.step / 2).max(PART.start).min(self.step);
            }
        }
        let begin = self.next;
        self.next = begin.saturating_add(self.step).min(self.end);
        (begin < self.end).then_some(begin..self.next)
    }
}

struct Answer {
    made: Made,
    over: bool,
    part: Range<u64>,
    places: Range<u64>,
}

impl Answer {
    fn standing(&self, next: u64) -> Standing {
        let begin = Some(self.places.start).filter(|begin| *begin < self.part.end);
        Standing::of(next, &self.part, begin)
    }
}

#[derive(Debug)]
pub struct BatchesAhead {
    /// Numbers of makers in the order of their parts.
    turns: Receiver<usize>,
    turn: Option<usize>,
    makers: Vec<Receiver<Answer>>,
    cuts: Arc<Mutex<PartQueue>>,
    threads: Vec<JoinHandle<()>>,
    next: u64,
    /// Rebuilds parts with a wrong start, and whether it is at work.
    again: Box<dyn Maker>,
    makes_again: bool,
    process: u32,
    ended: bool,
    halt: Halt,
}

impl BatchesAhead {
    /// Starts one thread for each maker but the last, which rebuilds parts with a wrong start.
    /// `bytes` begin with a record; the first part has about `part_bytes`.
    pub fn start(
        makers: Vec<Box<dyn Maker>>,
        bytes: Range<u64>,
        part_bytes: u64,
    ) -> io::Result<Self> {
        Self::in_parts(makers, bytes, part_bytes.clamp(1 << 20, PART.end))
    }

    /// [`BatchesAhead::start`] with a fixed part size.
    pub(super) fn in_parts(
        mut makers: Vec<Box<dyn Maker>>,
        bytes: Range<u64>,
        step: u64,
    ) -> io::Result<Self> {
        let again = makers.pop().ok_or(io::ErrorKind::InvalidInput)?;
        let cuts = PartQueue { next: bytes.start, end: bytes.end, step };
        let (to_turns, turns) = mpsc::channel();
        let mut ahead = Self {
            turns,
            turn: None,
            makers: Vec::new(),
            cuts: Arc::new(Mutex::new(cuts)),
            threads: Vec::new(),
            next: bytes.start,
            again,
            makes_again: false,
            process: std::process::id(),
            ended: false,
            halt: Halt::default(),
        };
        for (number, maker) in makers.into_iter().enumerate() {
            // Rendezvous: a batch waits with its maker only, which saves memory.
            let (out, told) = mpsc::sync_channel(0);
            ahead.makers.push(told);
            let (cuts, turns) = (Arc::clone(&ahead.cuts), to_turns.clone());
            let thread = thread::Builder::new()
                .name("mqstore-columns".to_owned())
                .spawn(move || make(maker, number, &cuts, &turns, &out))?;
            ahead.threads.push(thread);
        }
        Ok(ahead)
    }

    /// Ends early when `halt` says so.
    #[must_use]
    pub fn halting(mut self, halt: Halt) -> Self {
        self.halt = halt;
        self
    }

    fn take(&mut self) -> Made {
        if self.process != std::process::id() {
            return Err(broken("the scan was begun before this process was forked off"));
        }
        loop {
            if self.makes_again {
                if let Some(batch) = self.again.next()? {
                    return Ok(Some(batch));
                }
                self.makes_again = false;
                self.next = self.again.places().end;
            }
            let is_first = self.turn.is_none();
            let Some(number) = self.turn.or_else(|| received(&self.turns, &self.halt)) else {
                if self.halt.is_wanted() {
                    return Ok(None);
                }
                let cuts = self.cuts.lock();
                return if cuts.next >= cuts.end { Ok(None) } else { Err(ended_early()) };
            };
            let maker = self.makers.get(number).ok_or_else(ended_early)?;
            let mut told = match received(maker, &self.halt) {
                Some(told) => told,
                None if self.halt.is_wanted() => return Ok(None),
                None => return Err(ended_early()),
            };
            let standing = told.standing(self.next);
            if is_first && standing != Standing::Counts {
                while !told.over {
                    told = maker.recv().map_err(|_| ended_early())?;
                }
                // Batches wait with their makers only, so the whole part is built again.
                if standing != Standing::Passed {
                    self.again.begin(self.next..told.part.end, true);
                    self.makes_again = true;
                }
                continue;
            }
            self.turn = (!told.over).then_some(number);
            if told.over && told.places.start < told.part.end {
                self.next = told.places.end;
            }
            if let Some(batch) = told.made? {
                return Ok(Some(batch));
            }
        }
    }
}

/// Receives from a thread; `None` when it ended or `halt` says so.
fn received<T>(from: &Receiver<T>, halt: &Halt) -> Option<T> {
    loop {
        match from.recv_timeout(WAIT_SLICE) {
            Ok(received) => return Some(received),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if halt.is_wanted() => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn ended_early() -> BatchError {
    broken("a thread of the scan ended early")
}

#[cold]
fn broken(what: &str) -> BatchError {
    ArrowError::ComputeError(what.to_owned()).into()
}

/// Rows before an error come first; nothing follows it.
impl Iterator for BatchesAhead {
    type Item = Result<RecordBatch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.take();
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

impl Drop for BatchesAhead {
    fn drop(&mut self) {
        let makers = std::mem::take(&mut self.makers);
        let threads = std::mem::take(&mut self.threads);
        if self.process != std::process::id() {
            // They belong to the parent process, and so do their locks.
            std::mem::forget((makers, threads));
            return;
        }
        // Makers with a batch learn that nobody takes it.
        drop(makers);
        for thread in threads {
            // A panicked thread has ended, too.
            let _ = thread.join();
        }
    }
}

fn make(
    mut maker: Box<dyn Maker>,
    number: usize,
    cuts: &Mutex<PartQueue>,
    turns: &Sender<usize>,
    out: &SyncSender<Answer>,
) {
    let mut last = None;
    loop {
        let part = {
            let mut cuts = cuts.lock();
            let Some(part) = cuts.cut(last) else { return };
            // Sent with the lock held, to keep the order of turns.
            if turns.send(number).is_err() {
                return;
            }
            part
        };
        maker.begin(part.clone(), false);
        let (mut rows, mut batches) = (0, 0);
        loop {
            let made = maker.next();
            let over = maker.is_over() || !matches!(made, Ok(Some(_)));
            if let Ok(Some(batch)) = &made {
                rows += batch.num_rows();
                batches += 1;
            }
            let (part, places) = (part.clone(), maker.places());
            // Bytes that are no record may give an error here.
            if out.send(Answer { made, over, part, places }).is_err() {
                return;
            }
            if over {
                break;
            }
        }
        last = Some(PartResult { rows, batches, met_damage: maker.met_damage() });
    }
}

#[cfg(test)]
mod tests;
