//! Signals such as Ctrl-C during long work without the interpreter.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::store::progress::Halt;

const EVERY: Duration = Duration::from_millis(50);

/// Checks signals for one piece of work and keeps a handler's exception. The work must run inside
/// `Python::detach`.
pub(super) struct Signals {
    has_raised: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// The calling thread, the only one that may attach to the interpreter: others may be blocked
    /// while someone waits for them.
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

    /// Ends the work early once a handler raised.
    pub(super) fn halt(self: &Arc<Self>) -> Halt {
        let signals = Arc::clone(self);
        Halt::when(move || signals.has_raised())
    }

    pub(super) fn is_called(&self) {
        self.state().caller = thread::current().id();
    }

    pub(super) fn has_raised(&self) -> bool {
        if self.has_raised.load(Ordering::Relaxed) {
            return true;
        }
        {
            // Released while waiting for the interpreter, whose holder may want this lock.
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

    pub(super) fn take(&self) -> Option<PyErr> {
        if !self.has_raised.swap(false, Ordering::Relaxed) {
            return None;
        }
        self.state().raised.take()
    }

    pub(super) fn check(&self) -> PyResult<()> {
        self.take().map_or(Ok(()), Err)
    }
}

/// Drops an interrupted call's data on another thread, since freeing much of it takes long.
pub(super) fn drop_aside(read: impl Send + 'static) {
    // Without a thread it is dropped here.
    let _ = thread::Builder::new().spawn(move || drop(read));
}
