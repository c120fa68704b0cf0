//! The parallel reader of a log: threads read parts ahead ([`crate::files::threads::in_order`]).
//!
//! A thread guesses where its part's first record begins. If the part before ends earlier, the bytes
//! between are read first; if later, the guess was a look-alike in a body, and is dropped.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use crate::error::Result;
use crate::files::threads;
use crate::format::width::to_usize;

/// A byte range of the log, and the file `of` it.
#[derive(Clone, Debug)]
pub struct Part<F> {
    pub of: F,
    pub bytes: Range<u64>,
}

pub fn cut<F: Clone>(of: F, bytes: Range<u64>, len: u64) -> impl Iterator<Item = Part<F>> {
    let starts = bytes.clone().step_by(to_usize(len));
    starts.map(move |at| Part { of: of.clone(), bytes: at..at.saturating_add(len).min(bytes.end) })
}

/// Standing of a guess where the part before ends at `next`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Counts,
    /// The log goes on behind the part.
    Passed,
    /// A record begins these bytes, which are to be read first.
    ReadFirst(Range<u64>),
}

impl Standing {
    #[must_use]
    pub fn of(next: u64, bytes: &Range<u64>, begin: Option<u64>) -> Self {
        match begin {
            _ if next >= bytes.end => Self::Passed,
            Some(begin) if begin == next => Self::Counts,
            Some(begin) if begin > next => Self::ReadFirst(next..begin),
            _ => Self::ReadFirst(next..bytes.end),
        }
    }
}

/// Reads parts on threads from the record at `next` on, and passes them to `take` in order.
///
/// `read` gets bytes, behind a gap of files from before its part on, and whether a record begins
/// them; it returns the first record's offset too. `take` returns where the log continues.
///
/// Returns `false` if a wrong guess left traces; `may_drop` says that none does.
pub fn read_in_parts<F: Sync, T: Send>(
    parts: &[Part<F>],
    mut next: u64,
    may_drop: bool,
    threads: usize,
    dir: &Path,
    read: impl Fn(&F, Range<u64>, bool) -> Result<Option<(u64, T)>> + Sync,
    mut take: impl FnMut(u64, T) -> Result<Option<u64>>,
) -> Result<bool> {
    let mut is_sure = true;
    let guess = |part: &Part<F>| match threads {
        // On one thread a part is read once its start is known.
        ..2 => Ok(None),
        2.. => read(&part.of, part.bytes.clone(), false),
    };
    threads::in_order(parts, threads, dir, guess, |part, mut found| {
        loop {
            let begin = found.as_ref().map(|(begin, _)| *begin);
            let read = match Standing::of(next, &part.bytes, begin) {
                Standing::Counts => found.take(),
                Standing::Passed => break,
                Standing::ReadFirst(bytes) => read(&part.of, bytes, true)?,
            };
            let Some((begin, read)) = read else { break };
            match take(begin, read)? {
                Some(place) => next = place,
                None => return Ok(ControlFlow::Break(())),
            }
        }
        is_sure = may_drop || found.is_none();
        Ok(if is_sure { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(is_sure)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads parts whose guesses are given, and pieces of 40 bytes; returns what was taken, and
    /// whether it is sure.
    fn taken(parts: &[(Range<u64>, Option<u64>)], may_drop: bool) -> (Vec<Range<u64>>, bool) {
        let parts: Vec<_> =
            parts.iter().map(|(bytes, of)| Part { of: *of, bytes: bytes.clone() }).collect();
        let mut taken = Vec::new();
        let read = |guess: &Option<u64>, bytes: Range<u64>, begins: bool| {
            let begin = if begins { Some(bytes.start) } else { *guess };
            Ok(begin.map(|begin| (begin, begin.saturating_add(40))))
        };
        let dir = Path::new("log");
        let is_sure = read_in_parts(&parts, 0, may_drop, 2, dir, read, |begin, end| {
            taken.push(begin..end);
            Ok((end < 400).then_some(end))
        });
        (taken, is_sure.unwrap())
    }

    #[test]
    fn a_guess_counts_where_the_part_before_ends() {
        let right = [(0..40, Some(0)), (40..80, Some(40)), (80..120, None)];
        assert_eq!(taken(&right, false), (vec![0..40, 40..80, 80..120], true));
        // The part before ends earlier: the bytes between come first.
        let late = [(0..40, Some(0)), (40..120, Some(80))];
        assert_eq!(taken(&late, false), (vec![0..40, 40..80, 80..120], true));
        // It reaches past the guess, or past the whole part.
        let early = [(0..30, Some(0)), (30..60, Some(35)), (60..79, Some(70)), (79..90, None)];
        assert_eq!(taken(&early, true), (vec![0..40, 40..80, 80..120], true));
        assert_eq!(taken(&early, false), (vec![0..40, 40..80], false));
        assert!(taken(&early[..1], false).1);
        // Nothing behind the end counts.
        assert_eq!(taken(&[(0..900, None), (900..950, Some(900))], true).0.len(), 10);
    }
}
