//! The parallel reader of a log: threads read parts ahead ([`crate::files::threads::in_order`]).
//!
//! A thread guesses where its part's first record begins. If the previous part does not end there,
//! the part is read again from that end.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::files::{FileRun, RunFile};

/// A byte range of one log file, whose records are read together.
#[derive(Clone, Debug)]
pub struct Stretch {
    pub file: Arc<RunFile>,
    pub bytes: Range<u64>,
}

impl Stretch {
    #[must_use]
    pub fn places(&self) -> Range<u64> {
        let at = |position| self.file.base_offset.saturating_add(position);
        at(self.bytes.start)..at(self.bytes.end)
    }
}

/// Stretches of about `len` bytes, in order.
#[must_use]
pub fn stretches(log: &FileRun, len: u64) -> Vec<Stretch> {
    let (size, mut all) = (log.file_size(), Vec::new());
    for file in log.files().iter() {
        let end = file.len.min(size);
        let mut from = 0_u64;
        while from < end {
            let to = from.saturating_add(len).min(end);
            all.push(Stretch { file: Arc::clone(file), bytes: from..to });
            from = to;
        }
    }
    all
}

/// Result of reading a part of a log.
pub trait Part {
    fn begin(&self) -> Option<u64>;
}

/// Passes on the part `found` in a range of a log if it begins at `next`, the previous record's
/// end; otherwise reads `again` from there. `take` returns where the log continues, `None` to end.
/// Returns the position for the next range, and whether there is one.
pub fn put_together<P: Part>(
    mut next: u64,
    range: Range<u64>,
    mut found: Option<P>,
    mut again: impl FnMut(u64) -> Result<Option<P>>,
    mut take: impl FnMut(P) -> Result<Option<u64>>,
) -> Result<(u64, bool)> {
    while next < range.end {
        let part = match found.take_if(|part| part.begin() == Some(next)) {
            Some(part) => part,
            None => match again(next)? {
                Some(part) => part,
                None => break,
            },
        };
        match take(part)? {
            Some(place) => next = place,
            None => return Ok((next, false)),
        }
    }
    Ok((next, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Piece(Option<u64>, u64);

    impl Part for Piece {
        fn begin(&self) -> Option<u64> {
            self.0
        }
    }

    #[test]
    fn a_guess_counts_where_the_part_before_ends() {
        let (mut taken, mut read_again) = (Vec::new(), Vec::new());
        let mut put = |next, range, found: Piece| {
            let again = |at| {
                read_again.push(at);
                Ok(Some(Piece(Some(at), at + 40)))
            };
            let take = |part: Piece| {
                taken.push(part.clone());
                Ok(Some(part.1))
            };
            put_together(next, range, Some(found), again, take).unwrap()
        };
        assert_eq!(put(0, 0..100, Piece(Some(0), 105)), (105, true));
        // The record before reaches past the guess, or nothing was guessed.
        assert_eq!(put(105, 100..200, Piece(Some(101), 200)), (225, true));
        assert_eq!(put(225, 200..250, Piece(None, 0)), (265, true));
        assert_eq!(put(265, 250..260, Piece(Some(250), 260)), (265, true));
        assert_eq!(read_again, [105, 145, 185, 225]);
        assert_eq!(taken.first(), Some(&Piece(Some(0), 105)));
    }
}
