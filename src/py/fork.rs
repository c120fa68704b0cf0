//! Whether this process was forked off the one in which a store was opened.
//!
//! Threads do not cross a fork, and what they held stays held: a store for writing is of no use in the
//! child, and must leave the parent's files alone. The child closes its copy of the lock, so that the
//! parent's end is the lock's.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How many forks lie between this process and the one that loaded the module.
#[inline]
pub(super) fn generation() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Runs in a forked child before any other code of Python's.
#[pyfunction]
fn count_fork() {
    crate::files::system::locks::let_go_after_fork();
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Has Python count its forks, where it can fork.
pub(super) fn watch(py: Python<'_>) -> PyResult<()> {
    let os = py.import("os")?;
    if let Some(register) = os.getattr_opt("register_at_fork")? {
        let options = pyo3::types::PyDict::new(py);
        options.set_item("after_in_child", pyo3::wrap_pyfunction!(count_fork, py)?)?;
        register.call((), Some(&options))?;
    }
    Ok(())
}
