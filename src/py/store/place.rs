//! Turns a path of Python into a storage: the operating system's, or the objects behind a URL.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::remote;
use crate::error::{Error, Result};
use crate::files::{Access, FileKind, Os, Storage};
use crate::format::width::to_usize;
use crate::py::{fields, process};

/// A path, and the storage that has it.
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) storage: Arc<dyn Storage>,
}

/// The place of an argument: `mqstore.files.remote.RemotePath` carries the storage of its URL.
pub(crate) fn place_of(path: &Bound<'_, PyAny>) -> PyResult<Place> {
    if !path.is_exact_instance_of::<PyString>()
        && let Some(remote) = path.getattr_opt("_remote")?
        && let Ok(remote) = remote.cast::<RemoteStorage>()
    {
        let remote = remote.get();
        if remote.generation != process::generation() {
            return Err(remote::forked());
        }
        let storage = Arc::clone(&remote.storage);
        return Ok(Place { path: path.extract()?, storage });
    }
    Ok(Place { path: fields::absolute(path)?, storage: Arc::new(Os) })
}

/// The objects below a URL, listed once; readers of one URL share listing and blocks.
///
/// Args:
///     url: The root.
///     objects: The objects below it, as `mqstore.files.remote` gives them.
///
/// Raises:
///     NotAStoreError: No object lies below the URL.
///     StoreIOError: The objects cannot be listed.
#[pyclass(module = "mqstore._native", name = "_RemoteStorage", frozen)]
pub(crate) struct RemoteStorage {
    storage: Arc<dyn Storage>,
    generation: u64,
}

#[pymethods]
impl RemoteStorage {
    #[new]
    #[pyo3(signature = (url, objects, /))]
    fn new(py: Python<'_>, url: PathBuf, objects: Py<PyAny>) -> PyResult<Self> {
        let storage = py.detach(|| remote::storage(&url, objects))?;
        Ok(Self { storage, generation: process::generation() })
    }

    /// Lists again, if the listing at hand is as old.
    #[pyo3(signature = (least_age_s, /))]
    fn renew(&self, py: Python<'_>, least_age_s: f64) -> PyResult<()> {
        let least_age = Duration::try_from_secs_f64(least_age_s).unwrap_or_default();
        let renewed = py.detach(|| self.storage.renew(least_age));
        Ok(renewed.map_err(Error::io("list", ""))?)
    }

    /// Whether a path is a folder; ``None`` if nothing is there.
    #[pyo3(signature = (path, /))]
    fn is_folder(&self, path: PathBuf) -> PyResult<Option<bool>> {
        let kind = self.storage.kind_of(&path)?;
        Ok(kind.map(|kind| kind == FileKind::Directory))
    }

    /// Names in a folder, sorted.
    #[pyo3(signature = (path, /))]
    fn names(&self, path: PathBuf) -> PyResult<Vec<OsString>> {
        let entries = self.storage.list(&path).map_err(Error::io("list", &path))?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }

    /// Length in bytes and time of the last change, Unix milliseconds, of a file.
    #[pyo3(signature = (path, /))]
    fn stat(&self, path: PathBuf) -> PyResult<(u64, i64)> {
        let file = self.storage.open(&path, Access::Read).map_err(Error::io("open", &path))?;
        let stat = file.stat().map_err(Error::io("stat", &path))?;
        Ok((stat.len, stat.modified_ms))
    }

    /// Content of a file.
    #[pyo3(signature = (path, /))]
    fn read<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
        let read = py.detach(|| -> Result<Vec<u8>> {
            let read = || -> io::Result<Vec<u8>> {
                let file = self.storage.open(&path, Access::Read)?;
                let mut bytes = vec![0; to_usize(file.length()?)];
                let count = file.read_at(&mut bytes, 0)?;
                bytes.truncate(count);
                Ok(bytes)
            };
            read().map_err(Error::io("read", &path))
        });
        Ok(PyBytes::new(py, &read?))
    }
}
