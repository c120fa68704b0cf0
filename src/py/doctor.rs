//! Naming what is wrong with a store: diagnoses, as rows that the Python side makes values of.

use std::ops::ControlFlow;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::care::{self, Diagnosis};
use crate::error::Error;

use super::store::config_of;

/// Code, severity, title, evidence, cure, fix.
type Row = (&'static str, &'static str, &'static str, Vec<String>, Option<String>, &'static str);

/// Examines a store.
#[pyfunction]
#[pyo3(signature = (path, /, *, progress, settings))]
pub(super) fn doctor(
    py: Python<'_>,
    path: PathBuf,
    progress: Option<Py<PyAny>>,
    settings: &Bound<'_, PyAny>,
) -> PyResult<Vec<Row>> {
    let given = PyDict::new(py);
    given.update(settings.cast()?)?;
    let config = config_of(&given)?;
    let path = std::path::absolute(&path).map_err(Error::io("find", &path))?;
    let mut raised = None;
    let outcome = py.detach(|| {
        care::doctor(&path, &config, &mut |done, total| {
            let told = Python::attach(|py| {
                // An interrupt must not wait for the end of a large store.
                py.check_signals()?;
                match &progress {
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
    if let Some(error) = raised {
        return Err(error);
    }
    Ok(outcome?.into_iter().map(row).collect())
}

fn row(diagnosis: Diagnosis) -> Row {
    let Diagnosis { code, severity, evidence, cure } = diagnosis;
    (code.name(), severity.name(), code.title(), evidence, cure, code.fix())
}
