//! Notices of an open store as log records of Python.
//!
//! The store's own threads never take the interpreter's lock. They leave notices, and the next call that
//! a program makes on the store hands them to `logging`; a call without any costs one load.

use pyo3::prelude::*;

use crate::store::MessageStore;

/// The logger's name.
const LOGGER: &str = "mqstore";

/// Logs what has happened to the store since the last call.
#[inline]
pub(crate) fn log_new(store: &MessageStore) {
    if store.notices().has_new() {
        Python::attach(|py| log(py, &store.notices().take_new()));
    }
}

/// Logs each text as a warning.
#[cold]
pub(crate) fn log(py: Python<'_>, texts: &[String]) {
    let logged = py
        .import("logging")
        .and_then(|logging| logging.call_method1("getLogger", (LOGGER,)))
        .and_then(|logger| {
            texts.iter().try_for_each(|text| logger.call_method1("warning", ("%s", text)).map(drop))
        });
    // A handler that fails must not make a call on the store fail.
    if let Err(error) = logged {
        error.write_unraisable(py, None);
    }
}
