//! A stored message as a mapping, as JSON, and as a message to be written again.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDateTime, PyDelta, PyDict, PyString, PyTzInfo};

use crate::py::errors::invalid;

use super::message::Message;
use super::stored::StoredMessage;

const COMPRESSION: i32 = 0x701;

const DAY_MS: i64 = 86_400_000;

#[pymethods]
impl StoredMessage {
    /// The producer's time as a ``datetime``; ``None`` outside the years 1 to 9999.
    #[getter]
    fn born_timestamp<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        datetime(py, self.view()?.born_timestamp_ms())
    }

    /// The store's time as a ``datetime``; ``None`` outside the years 1 to 9999.
    #[getter]
    fn store_timestamp<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        datetime(py, self.view()?.store_timestamp_ms())
    }

    /// All fields by name, ``body`` as bytes.
    ///
    /// Raises:
    ///     CorruptionError: The body cannot be decompressed.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("mqstore._documents")?.call_method1("to_dict", (slf,))
    }

    /// A JSON document of one line, as ``mqstore get --json`` prints it.
    ///
    /// A body that is not UTF-8 is in ``body_base64`` instead of ``body``.
    fn json<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("mqstore._documents")?.call_method1("to_json", (slf,))
    }

    /// The message to be written again, here or elsewhere.
    ///
    /// It has topic, queue, body, properties, flag, ``reconsume_times``, and the producer's time
    /// and host. The store's time and host and a transaction are left out.
    ///
    /// Args:
    ///     changes: Arguments of ``Message`` that differ, such as ``topic`` and ``queue_id``.
    ///
    /// Raises:
    ///     InvalidMessageError: The topic is no text in UTF-8.
    #[pyo3(signature = (**changes))]
    pub(super) fn to_message<'py>(
        &self,
        py: Python<'py>,
        changes: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Message>> {
        let view = self.view()?;
        let Ok(topic) = str::from_utf8(view.topic()) else {
            return Err(invalid("topic", "is no text in UTF-8; give topic="));
        };
        let given = PyDict::new(py);
        given.set_item("topic", PyString::new(py, topic))?;
        given.set_item("body", PyBytes::new(py, view.body()))?;
        given.set_item("queue_id", view.queue_id())?;
        given.set_item("properties", PyBytes::new(py, view.raw_properties()))?;
        given.set_item("flag", view.flag())?;
        given.set_item("sys_flag", view.sys_flag() & COMPRESSION)?;
        given.set_item("born_timestamp_ms", view.born_timestamp_ms())?;
        given.set_item("born_host", view.born_host().to_string())?;
        given.set_item("reconsume_times", view.reconsume_times())?;
        if let Some(changes) = changes {
            given.update(changes.as_mapping())?;
        }
        Ok(py.get_type::<Message>().call((), Some(&given))?.cast_into()?)
    }
}

fn datetime(py: Python<'_>, ms: i64) -> PyResult<Option<Bound<'_, PyAny>>> {
    let utc = PyTzInfo::utc(py)?;
    let epoch = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc))?;
    let (Ok(days), Ok(rest)) =
        (i32::try_from(ms.div_euclid(DAY_MS)), i32::try_from(ms.rem_euclid(DAY_MS)))
    else {
        return Ok(None);
    };
    let since = PyDelta::new(py, days, rest / 1000, rest % 1000 * 1000, true);
    match since.and_then(|since| epoch.add(since)) {
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => Ok(None),
        found => found.map(Some),
    }
}
