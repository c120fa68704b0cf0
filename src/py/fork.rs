//! Detects forks after a store was opened.
//!
//! Threads do not survive a fork and their locks stay held, so a writer is unusable in the child.
//! The child closes its copy of the lock file, so the parent's close releases the lock.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

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
        let options = pyo3::types::PyDict::new(py);
        options.set_item("after_in_child", pyo3::wrap_pyfunction!(count_fork, py)?)?;
        register.call((), Some(&options))?;
    }
    Ok(())
}
