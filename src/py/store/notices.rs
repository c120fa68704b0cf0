//! Notices of a store as Python log records.
//!
//! The store's threads never take the interpreter's lock. They leave notices, and the program's
//! next call hands them to `logging`.

use pyo3::prelude::*;

use crate::store::MessageStore;

const LOGGER: &str = "mqstore";

#[inline]
pub(crate) fn log_new(store: &MessageStore) {
    if store.notices().has_new() {
        Python::attach(|py| log(py, &store.notices().take_new()));
    }
}

#[cold]
pub(crate) fn log(py: Python<'_>, texts: &[String]) {
    let logged = py
        .import("logging")
        .and_then(|logging| logging.call_method1("getLogger", (LOGGER,)))
        .and_then(|logger| {
            texts.iter().try_for_each(|text| logger.call_method1("warning", ("%s", text)).map(drop))
        });
    // A failing handler must not fail the call.
    if let Err(error) = logged {
        error.write_unraisable(py, None);
    }
}
