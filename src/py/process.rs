//! The Python process: signals such as Ctrl-C during long work without the interpreter, progress
//! callbacks, forks after a store was opened, and notices of a store as log records.
//!
//! Threads do not survive a fork and their locks stay held, so a writer is unusable in the child.
//! The child closes its copy of the lock file, so the parent's close releases the lock.
//!
//! The store's threads never take the interpreter's lock. They leave notices, and the program's
//! next call hands them to `logging`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::locks::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::Result;
use crate::py::arguments::value_error;
use crate::store::MessageStore;
use crate::store::progress::{Halt, Progress};

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

    /// Ends the work early once a handler raised.
    pub(super) fn halt(self: &Arc<Self>) -> Halt {
        let signals = Arc::clone(self);
        Halt::when(move || signals.has_raised())
    }

    pub(super) fn is_called(&self) {
        self.state.lock().caller = thread::current().id();
    }

    pub(super) fn has_raised(&self) -> bool {
        if self.has_raised.load(Ordering::Relaxed) {
            return true;
        }
        {
            // Released while waiting for the interpreter, whose holder may want this lock.
            let mut state = self.state.lock();
            let now = Instant::now();
            if state.caller != thread::current().id() || now < state.next {
                return false;
            }
            state.next = now + EVERY;
        }
        let Some(Err(raised)) = Python::try_attach(|py| py.check_signals()) else { return false };
        self.state.lock().raised = Some(raised);
        self.has_raised.store(true, Ordering::Relaxed);
        true
    }

    pub(super) fn take(&self) -> Option<PyErr> {
        if !self.has_raised.swap(false, Ordering::Relaxed) {
            return None;
        }
        self.state.lock().raised.take()
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

static FORKS: AtomicU64 = AtomicU64::new(0);

/// Number of forks since the module was loaded.
#[inline]
pub(super) fn generation() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Runs in a forked child before other Python code.
#[pyfunction]
fn count_fork() {
    crate::files::system::locks::let_go_after_fork();
    FORKS.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn watch(py: Python<'_>) -> PyResult<()> {
    let os = py.import("os")?;
    if let Some(register) = os.getattr_opt("register_at_fork")? {
        let options = PyDict::new(py);
        options.set_item("after_in_child", pyo3::wrap_pyfunction!(count_fork, py)?)?;
        register.call((), Some(&options))?;
    }
    Ok(())
}

/// Runs `work` without the interpreter and reports to `progress`. An exception there, or an
/// interrupt, ends the work and is raised.
pub(super) fn with_progress<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&mut Progress<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let outcome = py.detach(|| {
        work(&mut |done, total| {
            let answer = Python::attach(|py| {
                // An interrupt must not wait for the end of a large store.
                py.check_signals()?;
                progress.map_or(Ok(()), |progress| progress.call1(py, (done, total)).map(drop))
            });
            answer.map_or_else(
                |error| {
                    raised = Some(error);
                    ControlFlow::Break(())
                },
                ControlFlow::Continue,
            )
        })
    });
    match raised {
        Some(error) => Err(error),
        None => Ok(outcome?),
    }
}

pub(super) fn threads_of(threads: Option<i64>) -> PyResult<Option<usize>> {
    match threads.map(usize::try_from) {
        None => Ok(None),
        Some(Ok(count)) if count > 0 => Ok(Some(count)),
        Some(_) => Err(value_error("threads", "1 or more", threads.unwrap_or_default())),
    }
}

const LOGGER: &str = "mqstore";

#[inline]
pub(crate) fn log_new(store: &MessageStore) {
    if store.notices().has_new() {
        Python::attach(|py| log(py, &store.notices().take_new()));
    }
}

#[cold]
pub(crate) fn log(py: Python<'_>, texts: &[String]) {
    let logged = py
        .import("logging")
        .and_then(|logging| logging.call_method1("getLogger", (LOGGER,)))
        .and_then(|logger| {
            texts.iter().try_for_each(|text| logger.call_method1("warning", ("%s", text)).map(drop))
        });
    // A failing handler must not fail the call.
    if let Err(error) = logged {
        error.write_unraisable(py, None);
    }
}
