//! Runs bounded work on threads of its own: in any order, in order, or one piece beside another.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::Duration;

use crate::locks::Mutex;

use crate::error::{Error, Result};

/// Results that a thread of [`in_order`] may be ahead of the caller.
const AHEAD: usize = 2;
const WAIT_SLICE: Duration = Duration::from_millis(50);

#[must_use]
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Works on each part on up to `threads` threads. Fewer may start: the caller works too.
pub fn each<T: Send>(
    parts: impl ExactSizeIterator<Item = T> + Send,
    threads: usize,
    work: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    each_checked(parts, threads, work, || Ok(()))
}

/// [`each`]; while the caller waits for the other threads, it asks `check` whether to end.
pub fn each_checked<T: Send>(
    parts: impl ExactSizeIterator<Item = T> + Send,
    threads: usize,
    work: impl Fn(T) -> Result<()> + Sync,
    check: impl Fn() -> Result<()>,
) -> Result<()> {
    let helpers = threads.min(parts.len()).saturating_sub(1);
    let (parts, failed) = (Mutex::new(parts), Mutex::new(None));
    let next = || {
        let mut parts = parts.lock();
        if failed.lock().is_none() { parts.next() } else { None }
    };
    let run = || {
        while let Some(part) = next() {
            if let Err(error) = work(part) {
                failed.lock().get_or_insert(error);
            }
        }
    };
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        for _ in 0..helpers {
            let end = end.clone();
            let work = move || {
                run();
                drop(end);
            };
            let _ =
                thread::Builder::new().name("mqstore-work".to_owned()).spawn_scoped(scope, work);
        }
        run();
        drop(end);
        while ended.recv_timeout(WAIT_SLICE) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = check() {
                // It comes before what the other threads met.
                *failed.lock() = Some(error);
            }
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// Results in the order of their parts, from threads that take the next part when they are free.
#[derive(Debug)]
pub struct InOrder<T> {
    /// Threads in the order of the parts that they took.
    turns: Receiver<usize>,
    results: Vec<Receiver<T>>,
}

#[derive(Debug)]
pub struct Producer<T> {
    thread: usize,
    turns: Sender<usize>,
    results: SyncSender<T>,
}

impl<T> InOrder<T> {
    /// Each thread may be `ahead` results ahead: with 0 it waits until its result is taken.
    #[must_use]
    pub fn new(threads: usize, ahead: usize) -> (Self, Vec<Producer<T>>) {
        let (to_turns, turns) = mpsc::channel();
        let (results, producers) = (0..threads)
            .map(|thread| {
                let (to_taker, found) = mpsc::sync_channel(ahead);
                (found, Producer { thread, turns: to_turns.clone(), results: to_taker })
            })
            .unzip();
        (Self { turns, results }, producers)
    }

    #[must_use]
    pub fn threads(&self) -> usize {
        self.results.len()
    }

    /// Result of the next part; `None` if there is none or `is_halted` says so.
    pub fn next(&self, is_halted: &dyn Fn() -> bool) -> std::result::Result<Option<T>, EndedEarly> {
        let turn = received(&self.turns, is_halted);
        let Some(results) = turn.and_then(|thread| self.results.get(thread)) else {
            return Ok(None);
        };
        match received(results, is_halted) {
            None if !is_halted() => Err(EndedEarly),
            result => Ok(result),
        }
    }
}

#[derive(Debug)]
pub struct EndedEarly;

fn received<T>(from: &Receiver<T>, is_halted: &dyn Fn() -> bool) -> Option<T> {
    loop {
        match from.recv_timeout(WAIT_SLICE) {
            Ok(received) => return Some(received),
            Err(RecvTimeoutError::Timeout) if !is_halted() => {}
            Err(_) => return None,
        }
    }
}

impl<T> Producer<T> {
    pub fn run<S: ?Sized, P>(
        self,
        parts: &Mutex<S>,
        next: impl Fn(&mut S) -> Option<P>,
        mut work: impl FnMut(P) -> T,
    ) {
        let take = || {
            let mut parts = parts.lock();
            let part = next(&mut parts)?;
            // Sent with the lock held, to keep the order of turns.
            self.turns.send(self.thread).ok()?;
            Some(part)
        };
        while let Some(part) = take()
            && self.results.send(work(part)).is_ok()
        {}
    }
}

/// Reads parts on threads, and passes them to `take` in order until it breaks.
pub fn in_order<P: Sync, T: Send>(
    parts: &[P],
    threads: usize,
    dir: &Path,
    read: impl Fn(&P) -> Result<T> + Sync,
    mut take: impl FnMut(&P, T) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let threads = threads.min(parts.len());
    if threads < 2 {
        for part in parts {
            if take(part, read(part)?)?.is_break() {
                break;
            }
        }
        return Ok(());
    }
    let rest = Mutex::new(parts.iter());
    thread::scope(|scope| {
        let (results, producers) = InOrder::new(threads, AHEAD);
        for producer in producers {
            let (read, rest) = (&read, &rest);
            let work = move || producer.run(rest, Iterator::next, read);
            thread::Builder::new()
                .name("mqstore-read".to_owned())
                .spawn_scoped(scope, work)
                .map_err(Error::io("start a thread that reads", dir))?;
        }
        for part in parts {
            // The scope passes a panic on.
            let Ok(Some(found)) = results.next(&|| false) else { break };
            if take(part, found?)?.is_break() {
                break;
            }
        }
        Ok(())
    })
}

/// Runs `own` while a thread called `name` runs `other`.
pub fn beside<A: Send, B>(
    name: &str,
    path: &Path,
    other: impl FnOnce() -> Result<A> + Send,
    own: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    thread::scope(|scope| {
        let beside = thread::Builder::new()
            .name(name.to_owned())
            .spawn_scoped(scope, other)
            .map_err(Error::io("start a thread for", path))?;
        let own = own();
        match beside.join() {
            Ok(other) => Ok((other?, own?)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn each_part_is_worked_on_once_and_none_after_an_error() {
        let sum = AtomicU64::new(0);
        each(0..1001_u32, 4, |part| {
            sum.fetch_add(u64::from(part), Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        assert_eq!(sum.into_inner(), 500_500);

        let most = AtomicU64::new(0);
        let outcome = each([3, 2, 1].into_iter(), 1, |part| {
            most.fetch_max(part, Ordering::Relaxed);
            Err(Error::Closed)
        });
        assert!(matches!(outcome, Err(Error::Closed)));
        assert_eq!(most.into_inner(), 3);
    }

    #[test]
    fn parts_come_in_order_whoever_reads_them() {
        let parts: Vec<u32> = (0..50).collect();
        let dir = Path::new("log");
        for threads in 1..5 {
            let mut taken = Vec::new();
            in_order(
                &parts,
                threads,
                dir,
                |part| Ok(part * 2),
                |_, found| {
                    taken.push(found);
                    Ok(if found == 60 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                },
            )
            .unwrap();
            assert_eq!(taken, (0..=60).step_by(2).collect::<Vec<_>>(), "{threads} threads");
            let read = |part: &u32| match part {
                7 => Err(Error::Closed),
                part => Ok(*part),
            };
            let mut last = 0;
            let outcome = in_order(&parts, threads, dir, read, |part, _| {
                last = *part;
                Ok(ControlFlow::Continue(()))
            });
            assert!(matches!(outcome, Err(Error::Closed)) && last == 6, "{threads} threads");
        }
    }

    #[test]
    fn two_pieces_of_work_give_both_results_or_the_first_error() {
        let path = Path::new("store");
        let both = beside("beside", path, || Ok(1), || Ok("one"));
        assert_eq!(both.unwrap(), (1, "one"));
        let failed = beside("beside", path, || Err::<(), _>(Error::Closed), || Ok(1));
        assert!(matches!(failed, Err(Error::Closed)));
    }
}
