//! Maps the crate's errors to the exceptions in `mqstore/errors.py`.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::locks::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::config::StoreConfig;
use crate::error::{Corruption, Error, FormatError};
use crate::format::message::host::Host;

use super::values::{AppendResult, topic_of};

macro_rules! import_exceptions {
    ($($name:ident)+) => { $(pyo3::import_exception!(mqstore.errors, $name);)+ };
}

import_exceptions! {
    StoreError NotAStoreError StoreIOError CorruptionError InvalidMessageError ConfigError
    StoreLockedError StoreClosedError StoreReadOnlyError StorePoisonedError FlushTimeoutError
    OffsetOutOfRangeError MessageNotFoundError NotDispatchedError UnsupportedError
}

pub(crate) type Slot = Arc<Mutex<Option<PyErr>>>;

/// An exception of Python on its way through the store.
#[derive(Debug)]
pub(crate) struct Raised {
    pub(crate) text: String,
    pub(crate) error: Slot,
}

impl Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}

impl Raised {
    /// The exception that an error carries, once.
    fn take(error: &io::Error) -> Option<PyErr> {
        error.get_ref()?.downcast_ref::<Self>()?.error.lock().take()
    }
}

/// Returns the exception; `store_host` is the address in the store's message ids.
///
/// The match is exhaustive, so a new variant needs a class to compile.
#[cold]
pub(crate) fn raise(error: Error, store_host: Host) -> PyErr {
    raise_at(error, store_host, b"", 0)
}

/// [`raise`] for the append of a message to a queue.
#[cold]
pub(crate) fn raise_at(error: Error, store_host: Host, topic: &[u8], queue_id: i32) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Io { op, path, source } => {
            if let Some(raised) = Raised::take(&source) {
                return raised;
            }
            // `ENOSPC` on Linux and macOS.
            let is_full = source.kind() == io::ErrorKind::StorageFull;
            let errno = source.raw_os_error().or(is_full.then_some(28));
            StoreIOError::new_err((message, errno, text(path), op.to_string()))
        }
        Error::Corrupt(corruption) => {
            let Corruption { path, offset, kind, expected, found } = *corruption;
            let path = path.map(text);
            CorruptionError::new_err((message, path, offset, kind.name(), expected, found))
        }
        Error::NotAStore { path, reason } => NotAStoreError::new_err((message, text(path), reason)),
        Error::InvalidMessage { field, status, limit, .. } => {
            InvalidMessageError::new_err((message, field, status.name(), limit))
        }
        Error::InvalidConfig { field, .. } => ConfigError::new_err((message, field)),
        Error::Locked { path, pid } => StoreLockedError::new_err((message, text(path), pid)),
        Error::Closed => StoreClosedError::new_err((message,)),
        Error::ReadOnly { path } => StoreReadOnlyError::new_err((message, text(path))),
        Error::Poisoned { path, reason } => {
            StorePoisonedError::new_err((message, text(path), reason))
        }
        Error::FlushTimeout { result, timeout_ms } => {
            let topic = topic_of(topic, None);
            let result = AppendResult::new(&result, store_host, topic, queue_id);
            FlushTimeoutError::new_err((message, result, timeout_ms))
        }
        Error::OffsetOutOfRange { physical_offset, min, max } => {
            OffsetOutOfRangeError::new_err((message, physical_offset, min, max))
        }
        Error::OtherLog { place, min, max, .. } => {
            OffsetOutOfRangeError::new_err((message, place, min, max))
        }
        Error::MessageNotFound { .. } => MessageNotFoundError::new_err((message,)),
        Error::NotDispatched { path, physical_offset, bytes, limit } => {
            NotDispatchedError::new_err((message, text(path), physical_offset, bytes, limit))
        }
        Error::Unsupported { what, path } => UnsupportedError::new_err((message, what, text(path))),
    }
}

/// The exception with another text.
pub(crate) fn with_text(
    py: Python<'_>,
    error: PyErr,
    change: impl FnOnce(String) -> String,
) -> PyErr {
    let value = error.value(py);
    let text = change(value.to_string());
    // An exception that takes no attribute is raised unchanged.
    let changed = value.getattr("args").and_then(|args| {
        let args: Vec<Bound<'_, PyAny>> = args.extract()?;
        let text = text.into_pyobject(py)?.into_any();
        let all: Vec<_> = std::iter::once(text.clone()).chain(args.into_iter().skip(1)).collect();
        value.setattr("args", PyTuple::new(py, all)?)?;
        if value.hasattr("message")? { value.setattr("message", text) } else { Ok(()) }
    });
    drop(changed);
    error
}

/// A path as Python decodes it, with lone surrogates.
fn text(path: PathBuf) -> std::ffi::OsString {
    path.into_os_string()
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        raise(error, StoreConfig::default().store_host)
    }
}

impl From<FormatError> for PyErr {
    fn from(error: FormatError) -> Self {
        Error::from(error).into()
    }
}

#[cold]
pub(crate) fn invalid(field: &'static str, reason: impl Into<String>) -> PyErr {
    let reason = reason.into();
    Error::illegal(field, reason).into()
}
