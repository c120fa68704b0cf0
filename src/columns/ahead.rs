//! Batches made on several threads, each from parts of the log of its own: it reads them, checks their
//! records and fills in the columns, so that what was read is still in the processor's cache.
//!
//! The log is cut while it is read: whoever is free takes the next part, and guesses where the first
//! record in it begins. Batches are given in the order of the parts; where a part does not begin at the
//! place to which the one before has come, since there was a record in a body, it is made again from
//! there. What is made ahead is bounded: one batch waits with each thread.

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

use super::scan::BatchError;
use crate::store::read::halt::Halt;

/// A shorter log is not worth the threads.
const LONG: u64 = 16 << 20;
/// Bytes of the smallest part and of the largest.
const PART: Range<u64> = 256 << 10..64 << 20;
/// A part with fewer rows was small.
const FEW_ROWS: usize = 512;
/// More threads than this are not begun: each holds some batches.
const MOST_THREADS: usize = 4;
/// How long a wait for a batch goes on before it is asked whether to end it.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// A batch, or `None` behind the last.
type Made = Result<Option<RecordBatch>, BatchError>;

/// Who makes the batches of one part after the other.
pub trait Maker: Send + fmt::Debug {
    /// Begins a part: the records that begin in these bytes of the log; where it `begins` with one that
    /// need not be sought.
    fn begin(&mut self, part: Range<u64>, begins: bool);

    /// The next batch of the part, `None` behind its last.
    ///
    /// # Errors
    /// What ends the whole.
    fn next(&mut self) -> Made;

    /// Whether it is known that the part has no more.
    fn is_over(&self) -> bool;

    /// Whether damage was met in the part.
    fn met_damage(&self) -> bool;

    /// Where the first record, or damage, of the part begins, and what would be next behind those that
    /// were given.
    fn places(&self) -> Range<u64>;
}

/// How many threads make batches of so many bytes of a log, where `threads` may be used; `None` is as
/// many as there are processors. Fewer than two are none.
#[must_use]
pub fn makers(bytes: u64, threads: Option<usize>) -> usize {
    if bytes < LONG {
        return 0;
    }
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    if threads < 2 { 0 } else { threads.min(MOST_THREADS) }
}

/// Where the log is cut.
#[derive(Debug)]
struct Cuts {
    next: u64,
    end: u64,
    step: u64,
}

/// What a part came to.
#[derive(Clone, Copy)]
struct Came {
    rows: usize,
    batches: usize,
    met_damage: bool,
}

impl Cuts {
    /// The next part. It is to have one batch, so that nobody waits for the turn with the second; and
    /// where there is damage, which may be searched from a file's beginning, parts are to be few.
    fn cut(&mut self, last: Option<Came>) -> Option<Range<u64>> {
        if let Some(Came { rows, batches, met_damage }) = last {
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

/// What a maker tells: a batch, if there is one, whether the part has no more, which part it is, and
/// where in it the maker was.
struct Told {
    made: Made,
    over: bool,
    part: Range<u64>,
    places: Range<u64>,
}

impl Told {
    /// Whether the part begins at `next`, to which the part before has come, or is passed over by both.
    fn begins_at(&self, next: u64) -> bool {
        self.places.start == next || self.places.start.min(next) >= self.part.end
    }
}

/// The batches of a log, in order.
#[derive(Debug)]
pub struct BatchesAhead {
    /// Whose part comes next.
    turns: Receiver<usize>,
    turn: Option<usize>,
    makers: Vec<Receiver<Told>>,
    cuts: Arc<Mutex<Cuts>>,
    threads: Vec<JoinHandle<()>>,
    /// Where the next record begins, of all that was given.
    next: u64,
    /// Who makes a part again that began elsewhere, and whether that goes on.
    again: Box<dyn Maker>,
    makes_again: bool,
    /// Threads do not cross a fork.
    process: u32,
    ended: bool,
    halt: Halt,
}

impl BatchesAhead {
    /// The batches of `bytes` of a log, which begin with a record, each made by one of the makers on a
    /// thread of its own; the last of them makes again what the others began at a wrong place. The first
    /// part has about `part_bytes`.
    ///
    /// # Errors
    /// The system's, when it gives no thread.
    pub fn start(
        makers: Vec<Box<dyn Maker>>,
        bytes: Range<u64>,
        part_bytes: u64,
    ) -> io::Result<Self> {
        Self::in_parts(makers, bytes, part_bytes.clamp(1 << 20, PART.end))
    }

    /// The same with just so many bytes.
    pub(super) fn in_parts(
        mut makers: Vec<Box<dyn Maker>>,
        bytes: Range<u64>,
        step: u64,
    ) -> io::Result<Self> {
        let again = makers.pop().ok_or(io::ErrorKind::InvalidInput)?;
        let cuts = Cuts { next: bytes.start, end: bytes.end, step };
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
            // A batch waits with its maker and not beside it, which holds less memory.
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

    /// The same, ended early when `halt` says so.
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
            if is_first && !told.begins_at(self.next) {
                while !told.over {
                    told = maker.recv().map_err(|_| ended_early())?;
                }
                if self.next < told.part.end {
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

/// What a thread of the scan sends; `None` when it ended, or this is to end.
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

/// Rows before an error come before it, and nothing comes after it.
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
            // They belong to the other process, and so do the locks that they hold.
            std::mem::forget((makers, threads));
            return;
        }
        // Whoever has made a batch learns that nobody takes it.
        drop(makers);
        for thread in threads {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// Makes the batches of one part after the other, until there is none or nobody takes them.
fn make(
    mut maker: Box<dyn Maker>,
    number: usize,
    cuts: &Mutex<Cuts>,
    turns: &Sender<usize>,
    out: &SyncSender<Told>,
) {
    let mut last = None;
    loop {
        let part = {
            let mut cuts = cuts.lock();
            let Some(part) = cuts.cut(last) else { return };
            // With the cuts locked, so that turns come in their order.
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
            // An error may be of what is no record at all.
            if out.send(Told { made, over, part, places }).is_err() {
                return;
            }
            if over {
                break;
            }
        }
        last = Some(Came { rows, batches, met_damage: maker.met_damage() });
    }
}

#[cfg(test)]
mod tests;
