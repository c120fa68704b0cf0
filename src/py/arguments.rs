//! Errors of arguments.

use std::fmt::Display;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::error::{expected_got, start_of};

/// A value other than the expected one.
#[cold]
pub(crate) fn value_error(argument: &str, expected: impl Display, got: impl Display) -> PyErr {
    PyValueError::new_err(format!("{argument}: {}", expected_got(expected, got)))
}

/// A value of another type than the expected one.
#[cold]
pub(crate) fn type_error(argument: &str, expected: impl Display, got: impl Display) -> PyErr {
    PyTypeError::new_err(format!("{argument}: {}", expected_got(expected, got)))
}

/// A text as an error shows it.
pub(crate) fn shown(text: &str) -> String {
    format!("{:?}", start_of(text))
}

#[cold]
pub(crate) fn not_one_of(argument: &str, words: &str, found: &str) -> PyErr {
    value_error(argument, format!("one of {words}"), shown(found))
}
