//! Records of a log read on a thread of their own, a few ahead of who takes them.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};
use crate::log::scanner::Taken;
use crate::log::{Block, CommitLog};
use crate::store::MessageStore;
use crate::store::scan::Scan;

/// Where a scan's log is.
#[derive(Clone)]
pub(super) enum Source {
    Store(Arc<MessageStore>),
    Log(Arc<CommitLog>),
}

impl Source {
    fn log(&self) -> Result<&CommitLog> {
        match self {
            Self::Store(store) => store.check_open().map(|()| store.log()),
            Self::Log(log) => Ok(log),
        }
    }
}

/// How far a scan has come.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    pub(super) physical_offset: u64,
    pub(super) skipped_ranges: u64,
    pub(super) skipped_bytes: u64,
}

impl Progress {
    pub(super) fn of(scan: &Scan) -> Self {
        Self {
            physical_offset: scan.physical_offset(),
            skipped_ranges: scan.skipped_ranges(),
            skipped_bytes: scan.skipped_bytes(),
        }
    }
}

/// The records of one block.
pub(super) struct Piece {
    block: Option<Arc<Block>>,
    /// Where each ends in the log, and where it lies in the block.
    records: VecDeque<(u64, Range<usize>)>,
    /// How far the scan is behind them.
    pub(super) progress: Progress,
    /// Whether there may be more. An error comes behind all records that lie before it.
    more: Result<bool>,
}

impl Piece {
    /// No records, with a scan that has not begun.
    pub(super) fn before(scan: &Scan) -> Self {
        let records = VecDeque::new();
        Self { block: None, records, progress: Progress::of(scan), more: Ok(true) }
    }

    /// Reads on as far as one block goes.
    pub(super) fn read(scan: &mut Scan, source: &Source) -> Self {
        let mut known: Option<Arc<Block>> = None;
        let mut records = VecDeque::new();
        let outcome = source.log().and_then(|log| {
            scan.run(log, |view, block| {
                let known = known.get_or_insert_with(|| Arc::clone(block));
                let bytes = view.as_bytes();
                let place = known.place_of(bytes).filter(|_| Arc::ptr_eq(known, block));
                let Some(place) = place else { return Ok(Taken::Later) };
                // A record names its own place, or it would not be here.
                let at = u64::try_from(view.physical_offset()).unwrap_or(0);
                records.push_back((at + u64::from(view.store_size()), place..place + bytes.len()));
                Ok(Taken::More)
            })
        });
        let more = match outcome {
            // What lies before the damage comes first; then it is met again.
            Err(_) if !records.is_empty() => Ok(true),
            outcome => outcome,
        };
        Self { block: known, records, progress: Progress::of(scan), more }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The next record, and where it ends in the log.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(u64, Box<[u8]>)> {
        let (end, place) = self.records.pop_front()?;
        let record = self.block.as_ref()?.as_bytes().get(place)?.into();
        Some((end, record))
    }

    /// Whether more may follow; what is an error is told once.
    pub(super) fn take_more(&mut self) -> Result<bool> {
        std::mem::replace(&mut self.more, Ok(false))
    }
}

/// How many pieces wait: what the processors share of their memory holds them.
const PIECES: usize = 4;

/// A scan on a thread of its own.
pub(super) struct RecordsAhead {
    pieces: Option<Receiver<Piece>>,
    given_up: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Threads do not cross a fork.
    process: u32,
}

impl RecordsAhead {
    /// Goes on with `scan`.
    ///
    /// # Errors
    /// The system's, when it gives no thread.
    pub(super) fn start(scan: Scan, source: Source) -> io::Result<Self> {
        let given_up = Arc::new(AtomicBool::new(false));
        let scan = scan.until(Arc::clone(&given_up));
        let (out, pieces) = mpsc::sync_channel(PIECES);
        let thread = thread::Builder::new()
            .name("mqstore-scan".to_owned())
            .spawn(move || read(scan, &source, &out))?;
        let process = std::process::id();
        Ok(Self { pieces: Some(pieces), given_up, thread: Some(thread), process })
    }

    /// The next piece; `None` behind the last.
    ///
    /// # Errors
    /// In another process than the one that began.
    pub(super) fn next(&self, source: &Source) -> Result<Option<Piece>> {
        if self.process != std::process::id() {
            let forked = "the scan was begun before this process was forked off";
            let dir = source.log()?.run().dir();
            return Err(Error::io("scan", dir)(io::Error::other(forked)));
        }
        Ok(self.pieces.as_ref().and_then(|pieces| pieces.recv().ok()))
    }
}

impl Drop for RecordsAhead {
    fn drop(&mut self) {
        let (pieces, thread) = (self.pieces.take(), self.thread.take());
        if self.process != std::process::id() {
            // They belong to the other process.
            std::mem::forget((pieces, thread));
            return;
        }
        self.given_up.store(true, Ordering::Relaxed);
        // Whoever has a piece learns that nobody takes it.
        drop(pieces);
        // One that panicked has ended, too.
        let _ = thread.map(JoinHandle::join);
    }
}

fn read(mut scan: Scan, source: &Source, out: &SyncSender<Piece>) {
    loop {
        let piece = Piece::read(&mut scan, source);
        let more = matches!(piece.more, Ok(true));
        if out.send(piece).is_err() || !more {
            return;
        }
    }
}
