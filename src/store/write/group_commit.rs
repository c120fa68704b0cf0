//! Group commit: threads that append under `SYNC_FLUSH` request durability up to an offset, and one
//! flush answers all (`CommitLog.GroupCommitService`).

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::files::threads::processors;

/// Spin time of the flushing thread.
const SPIN: Duration = Duration::from_micros(50);
/// Spin time of a single waiting thread, a fast disk's flush. Waking up can take half of that
/// again.
const SPIN_ALONE: Duration = Duration::from_micros(250);

/// Meeting point of appending threads and the flushing thread.
#[derive(Debug, Default)]
pub struct FlushGate {
    turn: Mutex<()>,
    derived_turn: Mutex<()>,
    state: Mutex<State>,
    requested: AtomicU64,
    flushed: AtomicU64,
    has_failed: AtomicBool,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    sleeps: bool,
    waiting: Vec<(u64, Thread)>,
    failed: Option<(PathBuf, String)>,
    stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    Flushed,
    TimedOut,
}

impl FlushGate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Lock for flushing the log: the system reports a failed flush once, so a second concurrent
    /// flush would seem successful.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Lock for flushing queues, index and checkpoint, in that order, and for what deletes their files.
    pub fn derived_turn(&self) -> MutexGuard<'_, ()> {
        self.derived_turn.lock()
    }

    /// Waits until the log is durable up to `end`.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when a flush failed.
    pub fn wait(&self, end: u64, timeout: Duration) -> Result<Waited> {
        let deadline = Instant::now().checked_add(timeout);
        if !self.is_flushed(end) {
            let mut state = self.state();
            state.waiting.push((end, thread::current()));
            let alone = state.waiting.len() == 1;
            self.requested.fetch_max(end, Ordering::AcqRel);
            if state.sleeps {
                self.work.notify_one();
            }
            drop(state);
            if alone && has_other_processors() {
                spin(SPIN_ALONE.min(timeout), || self.is_flushed(end) || self.has_failed());
            }
        }
        loop {
            if self.is_flushed(end) {
                return Ok(Waited::Flushed);
            }
            if self.has_failed()
                && let Some((path, reason)) = self.failure()
            {
                return Err(Error::Poisoned { path, reason });
            }
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(Waited::TimedOut);
            }
            thread::park_timeout(left);
        }
    }

    fn is_flushed(&self, end: u64) -> bool {
        self.flushed.load(Ordering::Acquire) >= end
    }

    /// Waits, in the flushing thread, for a request or the end of `interval`. `None` when the store
    /// closes.
    #[must_use]
    pub fn next_work(&self, interval: Duration) -> Option<()> {
        let deadline = Instant::now().checked_add(interval);
        // An answered thread mostly asks again before this thread could sleep and wake.
        if self.requested.load(Ordering::Relaxed) > 0 {
            spin(SPIN, || self.is_requested());
        }
        let mut state = self.state();
        loop {
            if state.stopped {
                return None;
            }
            let left = deadline.map_or(interval, |at| at.saturating_duration_since(Instant::now()));
            if self.is_requested() || left.is_zero() {
                return Some(());
            }
            state.sleeps = true;
            self.work.wait_for(&mut state, left);
            state.sleeps = false;
        }
    }

    fn is_requested(&self) -> bool {
        !self.is_flushed(self.requested.load(Ordering::Acquire))
    }

    /// Reports that the log is durable up to `end`.
    pub fn flushed(&self, end: u64) {
        self.flushed.fetch_max(end, Ordering::AcqRel);
        let answered: Vec<_> = {
            let mut state = self.state();
            state.waiting.extract_if(.., |(wanted, _)| *wanted <= end).collect()
        };
        for (_, thread) in answered {
            thread.unpark();
        }
    }

    /// Reports a failed flush: waiting threads get the error.
    pub fn fail(&self, path: PathBuf, reason: String) {
        let mut state = self.state();
        state.failed.get_or_insert((path, reason));
        self.has_failed.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for (_, thread) in waiting {
            thread.unpark();
        }
        self.work.notify_all();
    }

    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn failure(&self) -> Option<(PathBuf, String)> {
        self.state().failed.clone()
    }

    /// Ends the flushing thread; the closing thread's last flush answers the rest.
    pub fn stop(&self) {
        self.state().stopped = true;
        self.work.notify_all();
    }
}

fn spin(most: Duration, is_there: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_there() && begin.elapsed() < most {
        std::hint::spin_loop();
    }
}

fn has_other_processors() -> bool {
    static MORE: OnceLock<bool> = OnceLock::new();
    *MORE.get_or_init(|| processors() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn waiting_threads_share_one_flush() {
        let gate = Arc::new(FlushGate::default());
        let waiting: Vec<_> = (1..=8)
            .map(|end| {
                let gate = Arc::clone(&gate);
                std::thread::spawn(move || gate.wait(end, Duration::from_secs(60)).unwrap())
            })
            .collect();
        while gate.requested.load(Ordering::Acquire) < 8 {
            std::thread::yield_now();
        }
        assert!(gate.next_work(Duration::from_secs(60)).is_some());
        gate.flushed(8);
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), Waited::Flushed);
        }
    }

    #[test]
    fn a_held_flush_times_out_and_a_failed_one_fails() {
        let gate = FlushGate::default();
        assert_eq!(gate.wait(1, Duration::from_millis(1)).unwrap(), Waited::TimedOut);
        gate.fail("f".into(), "no space".to_owned());
        let error = gate.wait(1, Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().contains("no space"));
        gate.flushed(1);
        assert_eq!(gate.wait(1, Duration::ZERO).unwrap(), Waited::Flushed);
    }

    #[test]
    fn closing_answers_those_who_wait_with_its_own_flush() {
        let gate = Arc::new(FlushGate::default());
        gate.stop();
        let waiting = {
            let gate = Arc::clone(&gate);
            std::thread::spawn(move || gate.wait(1, Duration::from_secs(60)).unwrap())
        };
        while gate.requested.load(Ordering::Acquire) < 1 {
            std::thread::yield_now();
        }
        gate.flushed(1);
        assert_eq!(waiting.join().unwrap(), Waited::Flushed);
    }

    #[test]
    fn a_stopped_gate_gives_no_more_work() {
        let gate = FlushGate::default();
        gate.stop();
        assert!(gate.next_work(Duration::from_secs(60)).is_none());
    }
}
