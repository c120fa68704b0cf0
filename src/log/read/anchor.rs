//! Evidence that a log is still the one that was read up to a place.

use std::fmt;

use crate::error::Result;
use crate::format::crc::Crc32;
use crate::format::message::peek;
use crate::format::width::to_usize;

use super::block::BLOCK_BYTES;
use super::evidence::is_likely;
use super::resync::find_likely;
use crate::log::CommitLog;

/// First step of a search backwards; each next one is four times as long.
const FIRST_STEP: u64 = 4 << 10;
/// Bytes searched for a record, more than a blank or the largest record has.
const MOST_SEARCHED: u64 = 64 << 20;

const FIRST_RUNG: u64 = 4 << 10;
const RUNGS: u32 = 7;

/// The last record before a place, which another log does not have there. Bytes before a
/// log's end never change, so a place that is kept without them may lie in another log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    pub physical_offset: u64,
    pub store_size: u32,
    pub crc: u32,
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a record of {} bytes with checksum {:08x}", self.store_size, self.crc)
    }
}

impl Anchor {
    /// The last record that begins before `offset`; `None` if the log holds none, or none that is
    /// near.
    ///
    /// A look-alike in a body may be taken for it: its bytes are evidence as well.
    pub fn before(log: &CommitLog, offset: u64) -> Result<Option<Self>> {
        let (mut to, mut step, mut searched) = (offset, FIRST_STEP, 0);
        while searched < MOST_SEARCHED {
            let files = log.run().files();
            let behind = files.partition_point(|file| file.base_offset < to);
            let Some(file) = behind.checked_sub(1).and_then(|at| files.get(at)) else { break };
            let file_end = file.base_offset.saturating_add(log.run().file_size());
            to = to.min(file_end);
            let from = to.saturating_sub(step).max(file.base_offset);
            let mut offsets = Vec::new();
            find_likely(log, from..to, |offset, _| {
                offsets.push(offset);
                Ok(None::<()>)
            })?;
            for &offset in offsets.iter().rev() {
                if let Some(anchor) = Self::at(log, offset)? {
                    return Ok(Some(anchor));
                }
            }
            searched = searched.saturating_add(to - from);
            (to, step) = (from, step.saturating_mul(4));
        }
        Ok(None)
    }

    fn at(log: &CommitLog, physical_offset: u64) -> Result<Option<Self>> {
        let mut head = [0; peek::SIGNATURE];
        if log.run().read_at(&mut head, physical_offset)? < head.len()
            || !is_likely(&head, physical_offset)
        {
            return Ok(None);
        }
        let size = peek::claimed_size(&head).and_then(|size| u32::try_from(size).ok());
        let Some(store_size) = size
            .filter(|&size| physical_offset.saturating_add(u64::from(size)) <= log.end_offset())
        else {
            return Ok(None);
        };
        let crc = crc_of(log, physical_offset, store_size)?;
        Ok(crc.map(|crc| Self { physical_offset, store_size, crc }))
    }

    /// The last records before `offset`, before 4 KiB less than that, 64 KiB, and so on, newest first.
    /// Where the log is another one, the first of these that it has says from where on it is.
    pub fn ladder(log: &CommitLog, offset: u64) -> Result<Vec<Self>> {
        let mut ladder = Vec::new();
        for rung in 0..RUNGS {
            let back = if rung == 0 { 0 } else { FIRST_RUNG << (4 * (rung - 1)) };
            let Some(at) = offset.checked_sub(back) else { break };
            ladder.extend(Self::before(log, at)?);
        }
        ladder.dedup();
        Ok(ladder)
    }

    #[must_use]
    pub fn end(&self) -> u64 {
        self.physical_offset.saturating_add(u64::from(self.store_size))
    }

    /// The record that lies there now, if it is another one. A deleted record tells nothing.
    pub fn other(&self, log: &CommitLog) -> Result<Option<String>> {
        let at = self.physical_offset;
        if crc_of(log, at, self.store_size)? == Some(self.crc) {
            return Ok(None);
        }
        let found = Self::at(log, at)?;
        // After the reads: a running broker deletes files, which only a failed read notices.
        if at < log.min_offset() {
            return Ok(None);
        }
        Ok(Some(found.map_or_else(|| "no record begins there".to_owned(), |now| now.to_string())))
    }
}

fn crc_of(log: &CommitLog, mut at: u64, size: u32) -> Result<Option<u32>> {
    let end = at.saturating_add(u64::from(size));
    let mut crc = Crc32::default();
    let mut block = vec![0; to_usize(end - at).min(BLOCK_BYTES)];
    while at < end {
        let len = to_usize(end - at).min(block.len());
        let read = log.run().read_at(&mut block[..len], at)?;
        if read == 0 {
            return Ok(None);
        }
        crc.update(&block[..read]);
        at += read as u64;
    }
    Ok(Some(crc.value()))
}
