//! Releases of RocketMQ that can have written a store.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::format::release::Release;

use super::Store;

#[pymethods]
impl Store {
    /// Which releases of RocketMQ can have written the store, and what shows it.
    ///
    /// No file carries a version of RocketMQ, and a store may have been written by several.
    ///
    /// Returns:
    ///     ``can_be``: the releases, of ``"5.3"``, ``"5.4"`` and ``"5.5"``; ``writes``: whose files
    ///     this store writes, ``None`` in mode ``"r"``; ``marks``: a mapping for each mark, with
    ///     the oldest and the newest release that leave it (``since``, ``until``), its ``path``
    ///     below the root, and ``what`` it is.
    ///
    /// Raises:
    ///     StoreIOError: A file cannot be read.
    fn versions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let store = self.reading()?;
        let found = py.detach(|| store.versions())?;
        let names: Vec<_> = found.can_be().into_iter().map(Release::name).collect();
        let marks = PyList::empty(py);
        for mark in &found.marks {
            let row = PyDict::new(py);
            row.set_item("since", mark.since.name())?;
            row.set_item("until", mark.until.name())?;
            row.set_item("path", &mark.path)?;
            row.set_item("what", &mark.what)?;
            marks.append(row)?;
        }
        let is_written = self.mode != "r";
        let writes = self.store.config().rocketmq_version.filter(|_| is_written);
        let versions = PyDict::new(py);
        versions.set_item("can_be", names)?;
        versions.set_item("writes", writes.map(Release::name))?;
        versions.set_item("marks", marks)?;
        Ok(versions)
    }
}
