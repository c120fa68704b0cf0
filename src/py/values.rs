//! Values of results, and shared methods of value classes.

use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyString, PyTuple};
use regex::bytes::{Regex, RegexBuilder};

use crate::error;
use crate::format::message::host::{self, Host};
use crate::format::width::{saturating_i64, to_usize};
use crate::py::arguments::{shown, value_error};
use crate::py::fields;

/// A value's fields by `__match_args__`.
pub(crate) fn parts<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let names = value.getattr("__match_args__")?.cast_into::<PyTuple>()?;
    let parts: Vec<_> = names
        .iter()
        .map(|name| value.getattr(name.cast_into::<PyString>()?))
        .collect::<PyResult<_>>()?;
    PyTuple::new(value.py(), parts)
}

/// `Name(field=value, ...)`.
pub(crate) fn repr(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let names = value.getattr("__match_args__")?.cast_into::<PyTuple>()?;
    let mut shown = format!("{}(", value.get_type().name()?);
    for (place, (name, part)) in names.iter().zip(parts(value)?.iter()).enumerate() {
        if place > 0 {
            shown.push_str(", ");
        }
        shown.push_str(&format!("{}={}", name.str()?, part.repr()?));
    }
    shown.push(')');
    Ok(shown)
}

pub(crate) fn equal<'py>(
    value: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    if !other.get_type().is(value.get_type()) {
        return Ok(py.NotImplemented().into_bound(py));
    }
    parts(value)?.eq(parts(other)?)?.into_bound_py_any(py)
}

/// Makes a class a value: `__match_args__`, comparison, hash, `repr`, pickling.
macro_rules! value_methods {
    ($class:ident { $($field:expr),+ $(,)? }) => {
        #[pymethods]
        impl $class {
            #[classattr]
            fn __match_args__(py: Python<'_>) -> PyResult<Py<pyo3::types::PyTuple>> {
                Ok(pyo3::types::PyTuple::new(py, [$($field),+])?.unbind())
            }

            fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
                $crate::py::values::repr(slf.as_any())
            }

            fn __eq__<'py>(
                slf: &Bound<'py, Self>,
                other: &Bound<'py, PyAny>,
            ) -> PyResult<Bound<'py, PyAny>> {
                $crate::py::values::equal(slf.as_any(), other)
            }

            fn __hash__(slf: &Bound<'_, Self>) -> PyResult<isize> {
                $crate::py::values::parts(slf.as_any())?.hash()
            }

            fn __reduce__<'py>(
                slf: &Bound<'py, Self>,
            ) -> PyResult<(Bound<'py, pyo3::types::PyType>, Bound<'py, pyo3::types::PyTuple>)> {
                Ok((slf.get_type(), $crate::py::values::parts(slf.as_any())?))
            }
        }
    };
}
pub(crate) use value_methods;

/// Makes a class with these fields, `new` by a signature if there is one, and its
/// [`value_methods`].
macro_rules! value {
    ($(#[$doc:meta])* struct $class:ident $(new $signature:tt)? {
        $($(#[$of_field:meta])* $field:ident: $type:ty,)+
    }) => {
        $(#[$doc])*
        #[pyclass(module = "mqstore", frozen, get_all)]
        #[derive(Clone, Debug)]
        pub(crate) struct $class {
            $($(#[$of_field])* pub(crate) $field: $type,)+
        }

        #[pymethods]
        impl $class {
            #[new]
            $(#[pyo3(signature = $signature)])?
            fn __new__($($field: $type),+) -> Self {
                Self { $($field),+ }
            }
        }

        $crate::py::values::value_methods!($class { $(stringify!($field)),+ });
    };
}
pub(crate) use value;

/// A `dict` of fields and of other values, by name.
macro_rules! dict {
    ($py:expr, $({ $($field:ident),+ } of $report:expr,)* $($name:ident: $value:expr,)*) => {{
        let dict = pyo3::types::PyDict::new($py);
        $($(dict.set_item(stringify!($field), &$report.$field)?;)+)*
        $(dict.set_item(stringify!($name), $value)?;)*
        dict
    }};
}
pub(crate) use dict;

/// Makes getters from rows of name, type and value; values are taken from `$of`, a part of `$this`.
macro_rules! getters {
    ($class:ident, $this:ident => $of:expr, {
        $($(#[$doc:meta])* $name:ident: $type:ty = $get:expr;)+
    }) => {
        #[pymethods]
        impl $class {
            $($(#[$doc])*
            #[getter]
            fn $name(&self) -> PyResult<$type> {
                let $this = self;
                Ok($crate::py::values::get($of, $get))
            })+
        }
    };
}
pub(crate) use getters;

/// Calls `get`, whose argument has the type of `of`.
#[inline]
pub(crate) fn get<T, V>(of: &T, get: impl FnOnce(&T) -> V) -> V {
    get(of)
}

/// A message's id: the caller's text, or its parts.
#[derive(Clone, Debug)]
enum Id {
    Of(Host),
    Text(Box<str>),
}

/// Result of an append: where the message is, its size, id and time.
#[pyclass(module = "mqstore", frozen)]
#[derive(Clone, Debug)]
pub(crate) struct AppendResult {
    /// Physical offset of its record.
    #[pyo3(get)]
    pub(super) physical_offset: i64,
    /// Length of its record in bytes.
    #[pyo3(get)]
    pub(super) store_size: u32,
    /// Its entry number in its queue.
    #[pyo3(get)]
    queue_offset: i64,
    id: Id,
    /// Its store time.
    #[pyo3(get)]
    store_timestamp_ms: i64,
    pub(super) topic: Arc<str>,
    /// Number of its queue.
    #[pyo3(get)]
    queue_id: i32,
}

impl AppendResult {
    #[inline]
    pub(crate) fn new(
        result: &error::AppendResult,
        store_host: Host,
        topic: Arc<str>,
        queue_id: i32,
    ) -> Self {
        Self {
            topic,
            queue_id,
            physical_offset: result.physical_offset,
            store_size: result.store_size,
            queue_offset: result.queue_offset,
            id: Id::Of(store_host),
            store_timestamp_ms: result.store_timestamp_ms,
        }
    }
}

#[pymethods]
impl AppendResult {
    #[new]
    #[pyo3(signature = (physical_offset, store_size, queue_offset, message_id, store_timestamp_ms,
        topic="", queue_id=0))]
    fn __new__(
        physical_offset: i64,
        store_size: u32,
        queue_offset: i64,
        message_id: String,
        store_timestamp_ms: i64,
        topic: &str,
        queue_id: i32,
    ) -> Self {
        let (id, topic) = (Id::Text(message_id.into()), topic.into());
        Self { physical_offset, store_size, queue_offset, id, store_timestamp_ms, topic, queue_id }
    }

    /// Name of its topic.
    #[getter]
    fn topic(&self) -> &str {
        &self.topic
    }

    /// Its id: the store's address and the physical offset in hex.
    #[getter]
    fn message_id(&self) -> String {
        match &self.id {
            Id::Of(store_host) => host::message_id(store_host, self.physical_offset),
            Id::Text(text) => text.to_string(),
        }
    }
}

value_methods!(AppendResult {
    "physical_offset",
    "store_size",
    "queue_offset",
    "message_id",
    "store_timestamp_ms",
    "topic",
    "queue_id",
});

/// The topic of a result as text, shared with the result before where it is the same.
pub(crate) fn topic_of(topic: &[u8], last: Option<&Arc<str>>) -> Arc<str> {
    match last {
        Some(last) if last.as_bytes() == topic => Arc::clone(last),
        _ => String::from_utf8_lossy(topic).into(),
    }
}

value! {
    /// Result of ``Store.append_arrow``, and of ``Store.append_many`` with ``summary=True``.
    struct AppendSummary {
        /// Number of messages.
        count: u64,
        /// Physical offset of the first message; the end of the log if there is none.
        first_physical_offset: i64,
        /// End of the last message.
        end_physical_offset: i64,
    }
}

impl AppendSummary {
    pub(super) fn before(end: u64) -> Self {
        let end = saturating_i64(end);
        Self { count: 0, first_physical_offset: end, end_physical_offset: end }
    }

    pub(super) fn add(&mut self, physical_offset: i64, store_size: u32) {
        if self.count == 0 {
            self.first_physical_offset = physical_offset;
        }
        self.count += 1;
        self.end_physical_offset = physical_offset.saturating_add(store_size.into());
    }

    pub(super) fn len(&self) -> usize {
        to_usize(self.count)
    }
}

/// The parts of a message id; ``str`` gives the id itself, in upper-case hex.
///
/// Args:
///     host: The store's IP address, without the port.
///     port: The store's port, as stored (a signed 32-bit number).
///     physical_offset: Where the record begins in that store's commit log.
#[pyclass(module = "mqstore", frozen)]
#[derive(Clone, Debug)]
pub(crate) struct MessageId(pub(super) host::MessageId);

#[pymethods]
impl MessageId {
    #[new]
    fn __new__(
        #[pyo3(from_py_with = fields::host_address)] host: PyBackedStr,
        #[pyo3(from_py_with = fields::port)] port: i32,
        #[pyo3(from_py_with = fields::physical_offset)] physical_offset: i64,
    ) -> PyResult<Self> {
        let address = host.parse();
        let address = address.map_err(|_| value_error("host", "an IP address", shown(&host)))?;
        Ok(Self(host::MessageId { host: Host::new(address, port), physical_offset }))
    }

    fn __str__(&self) -> String {
        host::message_id(&self.0.host, self.0.physical_offset)
    }
}

getters! {
    MessageId, this => &this.0, {
        /// The store's IP address.
        host: String = |id| id.host.address().to_string();
        /// The store's port.
        port: i32 = |id| id.host.port();
        /// Where the record begins in that store's commit log.
        physical_offset: i64 = |id| id.physical_offset;
    }
}

value_methods!(MessageId { "host", "port", "physical_offset" });

value! {
    /// One consume queue.
    struct QueueInfo {
        /// Name of the topic.
        topic: String,
        /// Number of the queue in its topic.
        queue_id: i32,
        /// First entry whose message the log still has.
        min_offset: i64,
        /// One past the last entry.
        max_offset: i64,
        /// ``"SimpleCQ"`` or ``"BatchCQ"``, RocketMQ's own names (``CQType``).
        kind: String,
        /// Store time of the message at ``min_offset``; ``None`` in an empty queue.
        first_store_timestamp_ms: Option<i64>,
        /// Store time of the message before ``max_offset``; ``None`` in an empty queue.
        last_store_timestamp_ms: Option<i64>,
    }
}

value! {
    /// Offset and lag of a consumer group in one queue (``config/consumerOffset.json``).
    struct GroupOffset {
        /// Name of the topic.
        topic: String,
        /// Number of the queue in its topic.
        queue_id: i32,
        /// Next queue offset that the group reads.
        queue_offset: i64,
        /// One past the queue's last entry; 0 where the store has no such queue.
        max_offset: i64,
        /// The group's lag: ``max_offset - queue_offset``, at least 0.
        lag: i64,
    }
}

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
