//! Walking the log on two threads: one reads blocks and checks their records, the other has the
//! records of the blocks before.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};

use super::{Scanned, Scanner, Stop};
use crate::error::{Error, Result};
use crate::format::message::{self, MessageView};
use crate::format::peek;
use crate::log::{Block, CommitLog};

/// A shorter walk is not worth a thread.
const LONG: u64 = 8 << 20;
/// How many blocks are read before they are asked for.
const AHEAD: usize = 8;

/// How a walk ended.
#[derive(Debug)]
pub struct Walked {
    /// Where the next record would begin.
    pub end: u64,
    /// Why there is none; `None` where the walk was broken off.
    pub stop: Option<Stop>,
}

/// Hands the records from `from`, where one must begin, up to `end` to `take` in order, until that
/// breaks. Of a long log blocks are read and checked on another thread, a few ahead.
///
/// # Errors
/// What `take` answers; [`Error::Io`] when the system cannot read.
pub fn each_ahead(
    log: &CommitLog,
    from: u64,
    end: u64,
    verify_crc: bool,
    mut take: impl FnMut(&MessageView<'_>) -> Result<ControlFlow<()>>,
) -> Result<Walked> {
    let mut scanner = Scanner::new(log, from, end, verify_crc);
    if end.saturating_sub(from) >= LONG {
        return on_two_threads(scanner, &mut take);
    }
    loop {
        match scanner.step()? {
            Ok(Scanned::Message(view)) => {
                if take(&view)?.is_break() {
                    return Ok(Walked { end: scanner.position(), stop: None });
                }
            }
            Ok(Scanned::Blank { .. }) => {}
            Err(stop) => return Ok(Walked { end: scanner.position(), stop: Some(stop) }),
        }
    }
}

/// Records that lie one behind the other, each of them checked.
#[derive(Debug, Default)]
struct Records {
    /// What holds them; its memory goes back to the reader.
    block: Option<Arc<Block>>,
    /// Where in the block they lie.
    begin: usize,
    end: usize,
    /// Where the walk stands behind them, and why it ends there if it does.
    next: u64,
    stop: Option<Stop>,
}

type Take<'t> = dyn FnMut(&MessageView<'_>) -> Result<ControlFlow<()>> + 't;

fn on_two_threads(mut scanner: Scanner<'_>, take: &mut Take<'_>) -> Result<Walked> {
    let (to_taker, blocks) = mpsc::sync_channel(AHEAD);
    let dir = scanner.log.run().dir();
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("mqstore-read".to_owned())
            .spawn_scoped(scope, move || scanner.send_blocks(&to_taker))
            .map_err(Error::io("start a thread that reads", dir))?;
        take_blocks(blocks, take)
    })
}

/// Lets go of `blocks` at the end, whatever it is: the reader may be waiting for room.
fn take_blocks(blocks: Receiver<Result<Records>>, take: &mut Take<'_>) -> Result<Walked> {
    let mut end = 0;
    // The reader ends only behind a stop or an error.
    while let Ok(block) = blocks.recv() {
        let records = block?;
        let bytes = records.block.as_deref().map(Block::as_bytes).unwrap_or_default();
        let mut left = bytes.get(records.begin..records.end).unwrap_or_default();
        while let Some(view) = message::read_whole(left) {
            let next = left.get(view.store_size() as usize..).unwrap_or_default();
            if take(&view)?.is_break() {
                let begin = u64::try_from(view.physical_offset()).unwrap_or(0);
                return Ok(Walked { end: begin + u64::from(view.store_size()), stop: None });
            }
            left = next;
        }
        end = records.next;
        if records.stop.is_some() {
            return Ok(Walked { end, stop: records.stop });
        }
    }
    Ok(Walked { end, stop: Some(Stop::End) })
}

impl Scanner<'_> {
    /// Reads on until the walk ends or nobody takes the blocks.
    fn send_blocks(&mut self, to_taker: &SyncSender<Result<Records>>) {
        loop {
            let records = self.next_records();
            let ends = !matches!(records, Ok(Records { stop: None, .. }));
            if to_taker.send(records).is_err() || ends {
                return;
            }
        }
    }

    /// Steps over records as far as one block holds them and hands it out.
    fn next_records(&mut self) -> Result<Records> {
        let mut records: Option<(u64, u64)> = None;
        let stop = loop {
            if records.is_some() && !self.has_next() {
                break None;
            }
            match self.step()? {
                Ok(Scanned::Message(view)) => {
                    let at = u64::try_from(view.physical_offset()).unwrap_or(0);
                    let end = at + u64::from(view.store_size());
                    records = Some((records.map_or(at, |(begin, _)| begin), end));
                }
                Ok(Scanned::Blank { .. }) => break None,
                Err(stop) => break Some(stop),
            }
        };
        let start = self.walk.block_start;
        let in_block = |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(0);
        let (begin, end) = records.map_or((0, 0), |(begin, end)| (in_block(begin), in_block(end)));
        self.walk.filled = 0;
        Ok(Records { block: self.walk.block.take(), begin, end, next: self.walk.next, stop })
    }

    /// Whether the next frame lies in the block as a whole.
    fn has_next(&self) -> bool {
        let end = self.walk.file_end.min(self.walk.end);
        let room = usize::try_from(end.saturating_sub(self.walk.next)).unwrap_or(usize::MAX);
        let bytes = self.walk.rest();
        room > 0 && bytes.len() >= peek::claimed_size(bytes).unwrap_or(peek::HEAD).min(room)
    }
}
