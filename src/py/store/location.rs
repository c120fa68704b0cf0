//! Turns a path of Python into a storage: the operating system's, or the objects behind a URL.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::remote;
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::{Access, FileKind, Os, Remote, Storage};
use crate::format::width::to_usize;
use crate::locks::Mutex;
use crate::py::{fields, process};
use crate::store::MessageStore;

/// A path, and the storage that has it.
pub(crate) struct Location {
    pub(crate) path: PathBuf,
    pub(crate) storage: Arc<dyn Storage>,
}

impl FromPyObject<'_, '_> for Location {
    type Error = PyErr;

    fn extract(path: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        location_of(&path)
    }
}

/// The place of an argument: `mqstore.files.remote.RemotePath` carries the storage of its URL.
pub(crate) fn location_of(path: &Bound<'_, PyAny>) -> PyResult<Location> {
    if !path.is_exact_instance_of::<PyString>()
        && let Some(remote) = path.getattr_opt("_remote")?
        && let Ok(remote) = remote.cast::<RemoteStorage>()
    {
        let remote = remote.get();
        if remote.generation != process::generation() {
            return Err(remote::forked());
        }
        return Ok(Location { path: path.extract()?, storage: remote.storage() });
    }
    Ok(Location { path: fields::absolute(path)?, storage: Arc::new(Os) })
}

/// A store behind a URL, opened anew for each listing with other objects. Nothing of an opened one
/// changes, so a reader holds no lock while Python is called.
pub(super) struct Listings {
    pub(super) path: Py<PyAny>,
    /// As it was given: each listing may have other files to take sizes from.
    config: StoreConfig,
    newest: Mutex<(Arc<Remote>, Arc<MessageStore>)>,
    /// Scans may still read these.
    older: Mutex<Vec<Weak<MessageStore>>>,
}

impl Listings {
    pub(super) fn open(
        py: Python<'_>,
        path: &Bound<'_, PyAny>,
        config: StoreConfig,
    ) -> PyResult<Self> {
        let root: PathBuf = path.extract()?;
        let remote = Self::remote(path)?;
        let storage = remote.get().storage();
        let beside = Arc::clone(&storage) as Arc<dyn Storage>;
        let given = config.clone();
        let store = py.detach(|| MessageStore::open_on(&root, given, beside))?;
        let newest = Mutex::new((storage, Arc::new(store)));
        Ok(Self { path: path.clone().unbind(), config, newest, older: Mutex::default() })
    }

    fn remote<'py>(path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, RemoteStorage>> {
        Ok(path.getattr("_remote")?.cast_into()?)
    }

    pub(super) fn newest(&self) -> Arc<MessageStore> {
        Arc::clone(&self.newest.lock().1)
    }

    /// Opens the store again, if it is as old and objects changed.
    pub(super) fn refresh(&self, py: Python<'_>, least_age: Duration) -> PyResult<()> {
        let remote = Self::remote(self.path.bind(py))?.unbind();
        Ok(py.detach(|| -> Result<()> {
            let (known, before) = self.newest.lock().clone();
            before.check_open()?;
            let listed =
                remote.get().renewed(least_age).map_err(Error::io("list", before.path()))?;
            if Arc::ptr_eq(&known, &listed) {
                return Ok(());
            }
            let beside = Arc::clone(&listed) as Arc<dyn Storage>;
            let next = Arc::new(before.opened_again(self.config.clone(), beside)?);
            let mut newest = self.newest.lock();
            if newest.1.is_closed() {
                drop(newest);
                return next.close();
            }
            if newest.0.listed_at < listed.listed_at {
                let mut older = self.older.lock();
                older.retain(|store| store.strong_count() > 0);
                older.push(Arc::downgrade(&newest.1));
                *newest = (listed, Arc::clone(&next));
            }
            Ok(())
        })?)
    }

    pub(super) fn close(&self) -> Result<()> {
        // A refresh puts no other store in its place meanwhile.
        let newest = self.newest.lock();
        newest.1.close()?;
        let older = std::mem::take(&mut *self.older.lock());
        older.iter().filter_map(Weak::upgrade).try_for_each(|store| store.close())
    }
}

/// The objects below a URL, as listed last; readers of one URL share listing and blocks.
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
    listed: Mutex<(Instant, Arc<Remote>)>,
    generation: u64,
}

impl RemoteStorage {
    fn storage(&self) -> Arc<Remote> {
        Arc::clone(&self.listed.lock().1)
    }

    /// Lists again, if the listing at hand is as old; the same storage where nothing changed.
    pub(super) fn renewed(&self, least_age: Duration) -> io::Result<Arc<Remote>> {
        let (checked_at, known) = self.listed.lock().clone();
        if checked_at.elapsed() < least_age {
            return Ok(known);
        }
        let now = known.listed_again()?;
        let mut listed = self.listed.lock();
        // The earlier of two concurrent listings must not replace the later.
        if listed.0 < now.listed_at {
            listed.0 = now.listed_at;
            if !now.has_same_objects(&listed.1) {
                listed.1 = Arc::new(now);
            }
        }
        Ok(Arc::clone(&listed.1))
    }
}

#[pymethods]
impl RemoteStorage {
    #[new]
    #[pyo3(signature = (url, objects, /))]
    fn new(py: Python<'_>, url: PathBuf, objects: Py<PyAny>) -> PyResult<Self> {
        let storage = py.detach(|| remote::storage(&url, objects))?;
        let listed = Mutex::new((storage.listed_at, Arc::new(storage)));
        Ok(Self { listed, generation: process::generation() })
    }

    /// Lists again, if the listing at hand is as old.
    #[pyo3(signature = (least_age_s, /))]
    fn renew(&self, py: Python<'_>, least_age_s: f64) -> PyResult<()> {
        let least_age = Duration::try_from_secs_f64(least_age_s).unwrap_or_default();
        let renewed = py.detach(|| self.renewed(least_age));
        Ok(renewed.map(drop).map_err(Error::io("list", ""))?)
    }

    /// Whether a path is a folder; ``None`` if nothing is there.
    #[pyo3(signature = (path, /))]
    fn is_folder(&self, path: PathBuf) -> PyResult<Option<bool>> {
        let storage: Arc<dyn Storage> = self.storage();
        let kind = storage.kind_of(&path)?;
        Ok(kind.map(|kind| kind == FileKind::Directory))
    }

    /// Names in a folder, sorted.
    #[pyo3(signature = (path, /))]
    fn names(&self, path: PathBuf) -> PyResult<Vec<OsString>> {
        let entries = self.storage().list(&path).map_err(Error::io("list", &path))?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }

    /// Length in bytes and time of the last change, Unix milliseconds, of a file.
    #[pyo3(signature = (path, /))]
    fn stat(&self, path: PathBuf) -> PyResult<(u64, i64)> {
        let file = self.storage().open(&path, Access::Read).map_err(Error::io("open", &path))?;
        let stat = file.stat().map_err(Error::io("stat", &path))?;
        Ok((stat.len, stat.modified_ms))
    }

    /// Content of a file.
    #[pyo3(signature = (path, /))]
    fn read<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
        let read = py.detach(|| -> Result<Vec<u8>> {
            let read = || -> io::Result<Vec<u8>> {
                let file = self.storage().open(&path, Access::Read)?;
                file.read_most(0, to_usize(file.length()?))
            };
            read().map_err(Error::io("read", &path))
        });
        Ok(PyBytes::new(py, &read?))
    }
}
