//! Objects behind a URL, asked for by one Python object. The interpreter is attached for the call
//! only.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3_bytes::PyBytes;

use crate::error::{Error, Result};
use crate::files::{Object, Objects, Remote};
use crate::locks;
use crate::py::errors::{Raised, Slot, UnsupportedError};
use crate::py::process;

/// The objects that Python lists and reads: `mqstore.files.remote`.
#[derive(Debug)]
struct PyObjects {
    objects: Py<PyAny>,
    generation: u64,
    /// An interrupt that no caller has raised yet: until then every call fails.
    interrupt: Slot,
}

/// Storage over objects of Python.
pub(crate) fn storage(root: &Path, objects: Py<PyAny>) -> Result<Remote> {
    let generation = process::generation();
    let objects = PyObjects { objects, generation, interrupt: Slot::default() };
    Remote::new(Arc::new(objects), root.to_owned()).map_err(Error::io("list", root))
}

#[cold]
pub(crate) fn forked() -> PyErr {
    let what = "this process was forked off one that had read behind a URL, and the network's \
                threads do not come back here; nothing was read: start processes with \
                multiprocessing.get_context(\"spawn\") or \"forkserver\", and open the store there";
    UnsupportedError::new_err((what, what, ""))
}

/// As Python knows an object.
fn state(object: &Object) -> (&str, u64, Option<&str>, i64) {
    (&object.key, object.len, object.etag.as_deref(), object.modified_ms)
}

/// Bytes that Python frees.
struct Borrowed(Bytes);

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        locks::assert_none_held();
    }
}

/// The bytes of a Python object, without a copy where they cannot change.
fn bytes_of(given: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let buffer = PyBuffer::<u8>::get(given)?;
    if buffer.readonly() && buffer.is_c_contiguous() {
        return Ok(Bytes::from_owner(Borrowed(given.extract::<PyBytes>()?.into_inner())));
    }
    Ok(buffer.to_vec(given.py())?.into())
}

impl PyObjects {
    fn ask<T>(&self, ask: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        locks::assert_none_held();
        if self.interrupt.lock().is_some() {
            let text = "interrupted".to_owned();
            return Err(io::Error::other(Raised { text, error: Arc::clone(&self.interrupt) }));
        }
        let asked = Python::try_attach(|py| {
            let answer = match process::generation() == self.generation {
                true => ask(self.objects.bind(py)),
                false => Err(forked()),
            };
            answer.map_err(|error| {
                let text = error.value(py).to_string();
                let mut slot = Slot::default();
                let is_interrupt = !error.is_instance_of::<PyException>(py);
                if is_interrupt {
                    // Other threads may wait for requests of this call.
                    let _ = self.objects.bind(py).call_method0("interrupted");
                    slot = Arc::clone(&self.interrupt);
                }
                *slot.lock() = Some(error);
                io::Error::other(Raised { text, error: slot })
            })
        });
        asked.unwrap_or_else(|| Err(io::Error::other("the interpreter has ended")))
    }
}

impl Objects for PyObjects {
    fn list(&self) -> io::Result<Vec<Object>> {
        self.ask(|objects| {
            let mut found = Vec::new();
            for object in objects.call_method0("list")?.try_iter()? {
                let (key, len, etag, modified_ms) = object?.extract()?;
                found.push(Object { key, len, etag, modified_ms });
            }
            Ok(found)
        })
    }

    fn ranges(
        &self,
        object: &Object,
        parts: &[Range<u64>],
        ahead: &[(&Object, Range<u64>)],
    ) -> io::Result<Vec<Bytes>> {
        self.ask(|objects| {
            let parts: Vec<_> = parts.iter().map(|part| (part.start, part.end)).collect();
            let ahead = ahead.iter().map(|(object, part)| (state(object), (part.start, part.end)));
            let ahead: Vec<_> = ahead.collect();
            let answer = objects.call_method1("ranges", (state(object), parts, ahead))?;
            answer.try_iter()?.map(|bytes| bytes_of(&bytes?)).collect()
        })
    }

    fn waiting(&self, wait: &(dyn Fn() + Sync)) {
        // The other thread calls Python.
        if Python::try_attach(|py| py.detach(wait)).is_none() {
            wait();
        }
    }

    fn check_interrupt(&self) -> io::Result<()> {
        self.ask(|objects| objects.py().check_signals())
    }
}
