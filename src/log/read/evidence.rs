//! Evidence for a record (`docs/format.md`, Rules of all readers), and the bytes read to weigh it.

use std::ops::Range;

use super::block::BLOCK_BYTES;
use crate::error::{Error, Result};
use crate::files::{FileRun, RunFile, StorageFile};
use crate::format::message::peek::{self, SIGNATURE};
use crate::format::message::{self, BLANK_LEN, Frame};
use crate::format::width::to_usize;

const FIRST_READ: usize = 8 << 10;
/// At most so many zeros precede a record's magic code.
const ZEROS: usize = 4;

/// Bytes that a walk may read to tell records from look-alikes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    from: u64,
    spent: u64,
}

impl Budget {
    /// For each byte walked.
    const EACH: u64 = 4;
    const LEAST: u64 = 64 << 20;
    /// A record of this size is always checked.
    const SMALL: u64 = 4 << 10;

    #[must_use]
    pub fn new(from: u64) -> Self {
        Self { from, spent: 0 }
    }

    /// Takes `bytes` for a look at `offset`, if they are left.
    pub fn take(&mut self, offset: u64, bytes: u64) -> bool {
        let walked = offset.saturating_sub(self.from);
        let most = walked.saturating_mul(Self::EACH).saturating_add(Self::LEAST);
        let spent = self.spent.saturating_add(bytes);
        let is_left = spent <= most;
        if is_left {
            self.spent = spent;
        }
        is_left
    }

    /// Takes the bytes that a record's `head` claims, if its file has them.
    pub fn allows(&mut self, offset: u64, head: &[u8], file_end: u64) -> bool {
        let claim = peek::claimed_size(head).unwrap_or(0) as u64;
        // Its head alone refuses one too large for the file.
        let claim = if offset.saturating_add(claim) > file_end { 0 } else { claim };
        self.take(offset, claim) || claim <= Self::SMALL
    }
}

/// Whether a record begins at `offset` by both signs, or a blank that ends with its file.
pub fn begins_frame(head: &[u8], offset: u64, file_end: u64) -> bool {
    if peek::is_record(head) {
        return peek::names_offset(head, offset);
    }
    matches!(message::read_frame(head.get(..BLANK_LEN).unwrap_or(head)), Ok(Frame::Blank { size })
        if offset.saturating_add(u64::from(size)) == file_end)
}

/// Whether a record's first bytes have both signs: the magic code and its own offset.
#[inline]
#[must_use]
pub fn is_likely(head: &[u8], offset: u64) -> bool {
    peek::is_record(head) && peek::names_offset(head, offset)
}

/// [`is_likely`] by one sign.
#[inline]
pub(super) fn may_be(head: &[u8], offset: u64) -> bool {
    peek::is_record(head) || peek::names_offset(head, offset)
}

/// First likely record that begins in `offsets` of a file. It may be a look-alike in a body: the
/// caller must reach it from an earlier record.
pub fn guess(log: &FileRun, file: &RunFile, offsets: Range<u64>) -> Result<Option<u64>> {
    // A file begins with a record.
    if offsets.start == file.base_offset {
        return Ok(Some(offsets.start));
    }
    let Some(open) = log.open_if_there(file)? else { return Ok(None) };
    search(&*open, file, offsets, is_likely, |offset, _| Ok(Some(offset)))
}

/// First place of a file with signs of a record for which `accept` has an answer.
pub(super) fn search<T>(
    open: &dyn StorageFile,
    file: &RunFile,
    offsets: Range<u64>,
    has_signs: impl Fn(&[u8], u64) -> bool,
    mut accept: impl FnMut(u64, &[u8]) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let (mut at, mut step) = (offsets.start, FIRST_READ);
    let mut block = Vec::new();
    while at < offsets.end {
        let position = at.saturating_sub(file.base_offset);
        let Some(data) = open.next_data(position).map_err(Error::io("read", &file.path))? else {
            break;
        };
        at = at.max(file.base_offset.saturating_add(data).saturating_sub(ZEROS as u64));
        let wanted = to_usize(offsets.end.saturating_sub(at)).saturating_add(SIGNATURE - 1);
        block.resize(wanted.min(step), 0);
        step = (step * 4).min(BLOCK_BYTES);
        let position = at.saturating_sub(file.base_offset);
        let read = open.read_at(&mut block, position).map_err(Error::io("read", &file.path))?;
        let bytes = block.get(..read).unwrap_or_default();
        if bytes.len() < SIGNATURE {
            break;
        }
        let skipped = first_nonzero(bytes).map_or(bytes.len(), |first| first.saturating_sub(ZEROS));
        for (offset, head) in (at..offsets.end).zip(bytes.windows(SIGNATURE)).skip(skipped) {
            if has_signs(head, offset)
                && let Some(found) = accept(offset, head)?
            {
                return Ok(Some(found));
            }
        }
        at += (bytes.len() - SIGNATURE + 1) as u64;
    }
    Ok(None)
}

pub fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    const PART: usize = 1024;
    let number =
        bytes.chunks(PART).position(|part| part.iter().fold(0, |all, byte| all | byte) != 0)?;
    let part = bytes.chunks(PART).nth(number)?;
    Some(number * PART + part.iter().position(|&byte| byte != 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_grows_with_the_walk_and_is_not_exceeded() {
        let mut budget = Budget::new(1000);
        assert!(budget.take(1000, Budget::LEAST));
        assert!(!budget.take(1000, 1));
        assert!(!budget.take(1010, 41));
        assert!(budget.take(1010, 40));
        assert!(!budget.take(1010, 1) && budget.take(1011, 4));
        assert!(!budget.take(0, 1));
        let mut far = Budget::new(0);
        assert!(far.take(u64::MAX, u64::MAX) && !Budget::new(u64::MAX).take(u64::MAX, u64::MAX));
    }
}
