//! Regular expressions that users give.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use regex::bytes::{Regex, RegexBuilder};

/// A regular expression of bytes, in whatever form searched in time in proportion to the bytes.
///
/// Args:
///     pattern: In the syntax of Rust's crate regex, without lookaround and backreferences.
///         ``(?u)`` in front makes it one of characters.
///
/// Raises:
///     ValueError: It is none.
#[pyclass(module = "mqstore", frozen, name = "_Pattern")]
pub(crate) struct Pattern(Regex);

#[pymethods]
impl Pattern {
    #[new]
    #[pyo3(signature = (pattern, /))]
    fn new(pattern: &str) -> PyResult<Self> {
        RegexBuilder::new(pattern).unicode(false).build().map(Self).map_err(|error| {
            // The lines before show the place.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            let advice = match reason {
                "Unicode not allowed here" => "; (?u) in front makes it one of characters",
                _ if reason.starts_with("repetition") => "; a brace itself is \\{",
                _ => "",
            };
            PyValueError::new_err(format!(
                "not a regular expression in the syntax of Rust's crate regex: {reason}{advice}"
            ))
        })
    }

    /// The expression.
    #[getter]
    fn pattern(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it is found in the bytes.
    #[pyo3(signature = (data, /))]
    fn is_in(&self, py: Python<'_>, data: &[u8]) -> bool {
        py.detach(|| self.0.is_match(data))
    }

    /// Begin and end of each match in the bytes that begins before ``stop``.
    #[pyo3(signature = (data, stop, /))]
    fn spans(&self, data: &[u8], stop: usize) -> Vec<(usize, usize)> {
        let spans = self.0.find_iter(data).map(|found| (found.start(), found.end()));
        spans.take_while(|(begin, _)| *begin < stop).collect()
    }
}
