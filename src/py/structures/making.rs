//! Files and folders of a store that Python makes. Owner, group and mode are as
//! [`Storage`] gives them.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::error::{Error, Result};
use crate::files::{Os, Storage, copy_tree, make_folder};
use crate::py::fields::config_of;
use crate::store::folder::paths::StorePaths;
use crate::store::folder::{lock, owner};

/// Refuses if files made in a store would not get owner and group of its folders.
///
/// Raises:
///     StoreIOError: They would not, or the operating system refused something.
#[pyfunction]
#[pyo3(signature = (path, /, *, settings))]
pub(crate) fn _check_owner(
    py: Python<'_>,
    path: PathBuf,
    settings: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let path = std::path::absolute(&path).map_err(Error::io("find", &path))?;
    let paths = StorePaths::new(&path, &config_of(settings)?);
    Ok(py.detach(|| owner::check(&Os, &paths))?)
}

/// Makes a file of zeros and its folders, and writes bytes into it.
///
/// Args:
///     path: The file, which must not exist.
///     data: The bytes.
///     position: Where they begin.
///     size: Length of the file.
///
/// Raises:
///     StoreIOError: The operating system refused something.
#[pyfunction]
#[pyo3(signature = (path, data, /, *, position, size))]
pub(crate) fn _make_file(
    py: Python<'_>,
    path: PathBuf,
    data: PyBackedBytes,
    position: u64,
    size: u64,
) -> PyResult<()> {
    Ok(py.detach(|| -> Result<()> {
        // A folder that is swapped in is flushed as a whole.
        let above = path.parent().unwrap_or(&path);
        Os.create_dir(above).map_err(Error::io("create", above))?;
        let file = Os.create(&path, size).map_err(Error::io("create", &path))?;
        file.write_at(&data, position).map_err(Error::io("write", &path))
    })?)
}

/// Replaces a file, or makes it and its folders: atomically and durably.
///
/// Raises:
///     StoreIOError: The operating system refused something.
#[pyfunction]
#[pyo3(signature = (path, data, /))]
pub(crate) fn _replace_file(py: Python<'_>, path: PathBuf, data: PyBackedBytes) -> PyResult<()> {
    Ok(py.detach(|| -> Result<()> {
        make_folder(&Os, path.parent().unwrap_or(&path))?;
        lock::replace(&Os, &path, &data)
    })?)
}

/// Copies a folder, with what is in it and is no link, to a new one.
///
/// Raises:
///     StoreIOError: The operating system refused something.
#[pyfunction]
#[pyo3(signature = (source, target, /))]
pub(crate) fn _copy_folder(py: Python<'_>, source: PathBuf, target: PathBuf) -> PyResult<()> {
    Ok(py.detach(|| copy_tree(&Os, &source, &target))?)
}
