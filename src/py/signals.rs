//! Signals, such as that of Ctrl-C, which arrive while long work goes on without the interpreter.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::store::read::halt::Halt;

/// How long a signal may wait.
const EVERY: Duration = Duration::from_millis(50);

/// Looks for signals on behalf of one piece of work, and keeps the exception that a handler raised. The
/// work must run inside of `Python::detach`.
pub(super) struct Signals {
    has_raised: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// The thread that called: it may ask the interpreter, which others may be kept from for as long as
    /// somebody waits for them.
    caller: ThreadId,
    next: Instant,
    raised: Option<PyErr>,
}

impl Signals {
    pub(super) fn new() -> Arc<Self> {
        let caller = thread::current().id();
        let state = State { caller, next: Instant::now() + EVERY, raised: None };
        Arc::new(Self { has_raised: AtomicBool::new(false), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The work ends early when a handler raises an exception.
    pub(super) fn halt(self: &Arc<Self>) -> Halt {
        let signals = Arc::clone(self);
        Halt::when(move || signals.has_raised())
    }

    /// Says that the calling thread is the one that works from now on.
    pub(super) fn is_called(&self) {
        self.state().caller = thread::current().id();
    }

    /// Whether a handler raised an exception.
    pub(super) fn has_raised(&self) -> bool {
        if self.has_raised.load(Ordering::Relaxed) {
            return true;
        }
        {
            // Not held while the interpreter is waited for: its holder may want this lock.
            let mut state = self.state();
            let now = Instant::now();
            if state.caller != thread::current().id() || now < state.next {
                return false;
            }
            state.next = now + EVERY;
        }
        let Some(Err(raised)) = Python::try_attach(|py| py.check_signals()) else { return false };
        self.state().raised = Some(raised);
        self.has_raised.store(true, Ordering::Relaxed);
        true
    }

    /// The exception, if there is one.
    pub(super) fn take(&self) -> Option<PyErr> {
        if !self.has_raised.swap(false, Ordering::Relaxed) {
            return None;
        }
        self.state().raised.take()
    }

    /// Fails with the exception, if there is one.
    pub(super) fn check(&self) -> PyResult<()> {
        self.take().map_or(Ok(()), Err)
    }
}

/// Drops what an interrupted call has read on another thread: very much of it takes longer than the user
/// should wait.
pub(super) fn drop_aside(read: impl Send + 'static) {
    // Where the system gives no thread, it is dropped here.
    let _ = thread::Builder::new().spawn(move || drop(read));
}
