//! Progress callbacks to Python.

use std::ops::ControlFlow;

use pyo3::prelude::*;

use crate::error::Result;
use crate::store::progress::Progress;

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
            let told = Python::attach(|py| {
                // An interrupt must not wait for the end of a large store.
                py.check_signals()?;
                match progress {
                    Some(progress) => progress.call1(py, (done, total)).map(|_| ()),
                    None => Ok(()),
                }
            });
            match told {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    raised = Some(error);
                    ControlFlow::Break(())
                }
            }
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
        Some(_) => Err(pyo3::exceptions::PyValueError::new_err("threads is 1 or more")),
    }
}
