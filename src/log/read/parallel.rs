//! The parallel reader of a log: threads read parts ahead, and their results come in the log's order.
//!
//! A thread guesses where its part's first record begins. If the part before ends earlier, the bytes
//! between are read first; if later, the guess was a look-alike in a body, and is dropped.

use crate::locks::Mutex;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crate::error::{Error, Result};
use crate::files::threads::{EndedEarly, InOrder};
use crate::format::width::to_usize;

const AHEAD: usize = 2;

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

/// Reads the records that begin in bytes of a part; `begins` says that the first byte begins one.
/// Returns the offset of the first record, a guess unless it `begins`, and the result, which may
/// leave out the last records.
pub type Read<'a, F, T> = Box<dyn FnMut(&F, Range<u64>, bool) -> Option<(u64, T)> + Send + 'a>;

type Cut<'a, F> = dyn FnMut() -> Option<Part<F>> + Send + 'a;
type Guess<F, T> = (Part<F>, Option<(u64, T)>);

pub struct PartsInOrder<'a, F, T> {
    /// Where the log goes on; the caller sets it.
    pub next: u64,
    pub has_dropped: bool,
    cut: Arc<Mutex<Cut<'a, F>>>,
    guesses: InOrder<Guess<F, T>>,
    held: Option<Guess<F, T>>,
    /// Reads bytes that no thread has read.
    again: Read<'a, F, T>,
}

impl<'a, F: Clone + Send + 'a, T: Send + 'a> PartsInOrder<'a, F, T> {
    /// Starts a thread for each of `readers`, at most `ahead` results ahead. A record begins at
    /// `next`. Without readers a part is read once its start is known.
    pub fn start(
        next: u64,
        again: Read<'a, F, T>,
        readers: Vec<Read<'a, F, T>>,
        ahead: usize,
        cut: impl FnMut() -> Option<Part<F>> + Send + 'a,
        mut spawn: impl FnMut(Box<dyn FnOnce() + Send + 'a>) -> io::Result<()>,
    ) -> io::Result<Self> {
        let cut: Arc<Mutex<Cut<'a, F>>> = Arc::new(Mutex::new(cut));
        let (guesses, producers) = InOrder::new(readers.len(), ahead);
        for (mut read, producer) in readers.into_iter().zip(producers) {
            let cut = Arc::clone(&cut);
            spawn(Box::new(move || {
                producer.run(
                    &cut,
                    |cut| cut(),
                    |part| {
                        let guess = read(&part.of, part.bytes.clone(), false);
                        (part, guess)
                    },
                );
            }))?;
        }
        Ok(Self { next, has_dropped: false, cut, guesses, held: None, again })
    }

    /// Next result and its first offset; `None` after the last, or once halted.
    pub fn result(
        &mut self,
        is_halted: &dyn Fn() -> bool,
    ) -> std::result::Result<Option<(u64, T)>, EndedEarly> {
        loop {
            let part = match self.held.take() {
                Some(held) => Some(held),
                None if self.guesses.threads() == 0 => (self.cut.lock())().map(|part| (part, None)),
                None => self.guesses.next(is_halted)?,
            };
            let Some((part, mut guess)) = part else { return Ok(None) };
            let (next, end) = (self.next, part.bytes.end);
            let found = match guess.as_ref().map(|(begin, _)| *begin) {
                // The log goes on behind the part.
                _ if next >= end => None,
                Some(begin) if begin == next => guess.take(),
                // The bytes before it come first.
                Some(begin) if begin > next => (self.again)(&part.of, next..begin, true),
                _ => (self.again)(&part.of, next..end, true),
            };
            if found.is_some() {
                self.held = Some((part, guess));
                return Ok(found);
            }
            self.has_dropped |= guess.is_some();
        }
    }
}

/// Reads parts on threads from the record at `next` on, and passes them to `take` in order.
///
/// `read` gets bytes, behind a gap of files from before its part on, and whether a record begins
/// them; it returns the first record's offset too. `take` returns where the log continues.
///
/// Returns `false` if a wrong guess left traces; `may_drop` says that none does.
pub fn read_in_parts<F: Clone + Send + Sync, T: Send>(
    parts: &[Part<F>],
    next: u64,
    may_drop: bool,
    threads: usize,
    dir: &Path,
    read: impl Fn(&F, Range<u64>, bool) -> Result<Option<(u64, T)>> + Sync,
    mut take: impl FnMut(u64, T) -> Result<Option<u64>>,
) -> Result<bool> {
    let read = |of: &F, bytes: Range<u64>, begins: bool| {
        let at = bytes.start;
        match read(of, bytes, begins) {
            Ok(found) => found.map(|(begin, found)| (begin, Ok(found))),
            Err(error) => Some((at, Err(error))),
        }
    };
    let threads = match threads.min(parts.len()) {
        ..2 => 0,
        threads => threads,
    };
    let mut rest = parts.iter();
    thread::scope(|scope| {
        let readers = (0..threads).map(|_| Box::new(&read) as Read<'_, _, _>).collect();
        let spawn = |work| {
            let thread = thread::Builder::new().name("mqstore-read".to_owned());
            thread.spawn_scoped(scope, work).map(drop)
        };
        let cut = || rest.next().cloned();
        let mut parts = PartsInOrder::start(next, Box::new(&read), readers, AHEAD, cut, spawn)
            .map_err(Error::io("start a thread that reads", dir))?;
        // The scope passes a panic on.
        while let Ok(Some((begin, found))) = parts.result(&|| false) {
            if parts.has_dropped && !may_drop {
                break;
            }
            match take(begin, found?)? {
                Some(place) => parts.next = place,
                None => return Ok(true),
            }
        }
        Ok(may_drop || !parts.has_dropped)
    })
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

    #[test]
    fn a_thread_that_breaks_is_an_error_and_no_end() {
        let reader = || -> Read<'static, (), ()> {
            Box::new(|(), bytes, begins| {
                assert!(bytes.start == 0, "planned");
                begins.then_some((bytes.start, ()))
            })
        };
        let mut rest = cut((), 0..9, 5);
        let spawn = |work| thread::Builder::new().spawn(work).map(drop);
        let (again, readers) = (reader(), vec![reader()]);
        let mut parts =
            PartsInOrder::start(0, again, readers, 0, move || rest.next(), spawn).unwrap();
        assert_eq!(parts.result(&|| false).unwrap(), Some((0, ())));
        parts.next = 5;
        assert!(parts.result(&|| false).is_err());
    }
}
