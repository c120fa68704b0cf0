//! A message as the commit log holds it.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::error::{CorruptionKind, Error, FormatError};
use crate::format::body;
use crate::format::message::{self, Frame, FrameError, MessageView};
use crate::format::properties::{self, names};
use crate::format::sys_flag::{self, Compression, Transaction};

use super::fields::bytes_of;

/// What a body may come to when it is decompressed.
pub(super) const MOST_BODY: usize = 64 << 20;
/// How many bytes of a body a `repr` shows.
const SHOWN_BODY: usize = 64;

/// A message as the commit log holds it: its record, of which fields are read when asked.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct StoredMessage {
    record: Box<[u8]>,
}

impl From<Box<[u8]>> for StoredMessage {
    /// `record` was checked: its lengths add up.
    #[inline]
    fn from(record: Box<[u8]>) -> Self {
        Self { record }
    }
}

/// Text as the store's own properties hold it.
pub(super) fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// What a frame is not, as damage.
fn no_record(found: Result<Frame<'_>, FrameError>, len: usize) -> FormatError {
    let expected = |what: &str| ("a record".to_owned(), what.to_owned());
    let (kind, (expected, found)) = match found {
        Err(FrameError::Bad(error)) => return error,
        Err(FrameError::Incomplete { needed }) => {
            (CorruptionKind::Truncated, (format!("{needed} bytes"), format!("{len} bytes")))
        }
        Ok(Frame::Blank { size }) => {
            (CorruptionKind::Magic, expected(&format!("{size} bytes of filler")))
        }
        Ok(Frame::Empty) | Ok(Frame::Message(_)) => (CorruptionKind::Size, expected("zeros")),
    };
    FormatError::new(kind, 0, expected, found)
}

impl StoredMessage {
    #[inline]
    pub(super) fn view(&self) -> PyResult<MessageView<'_>> {
        message::read_whole(&self.record)
            .ok_or_else(|| no_record(message::read_frame(&self.record), self.record.len()).into())
    }

    fn property(&self, name: &[u8]) -> PyResult<Option<String>> {
        Ok(self.view()?.property(name).map(|value| text(value).into_owned()))
    }
}

#[pymethods]
impl StoredMessage {
    #[getter]
    fn topic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        Ok(PyString::new(py, &text(self.view()?.topic())))
    }

    #[getter]
    fn queue_id(&self) -> PyResult<i32> {
        Ok(self.view()?.queue_id())
    }

    #[getter]
    fn queue_offset(&self) -> PyResult<i64> {
        Ok(self.view()?.queue_offset())
    }

    #[getter]
    fn physical_offset(&self) -> PyResult<i64> {
        Ok(self.view()?.physical_offset())
    }

    #[getter]
    fn store_size(&self) -> usize {
        self.record.len()
    }

    #[getter]
    fn flag(&self) -> PyResult<i32> {
        Ok(self.view()?.flag())
    }

    #[getter]
    fn sys_flag(&self) -> PyResult<i32> {
        Ok(self.view()?.sys_flag())
    }

    #[getter]
    fn born_timestamp_ms(&self) -> PyResult<i64> {
        Ok(self.view()?.born_timestamp_ms())
    }

    #[getter]
    fn born_host(&self) -> PyResult<String> {
        Ok(self.view()?.born_host().to_string())
    }

    #[getter]
    fn store_timestamp_ms(&self) -> PyResult<i64> {
        Ok(self.view()?.store_timestamp_ms())
    }

    #[getter]
    fn store_host(&self) -> PyResult<String> {
        Ok(self.view()?.store_host().to_string())
    }

    #[getter]
    fn reconsume_times(&self) -> PyResult<i32> {
        Ok(self.view()?.reconsume_times())
    }

    #[getter]
    fn prepared_transaction_offset(&self) -> PyResult<i64> {
        Ok(self.view()?.prepared_transaction_offset())
    }

    #[getter]
    fn body_crc(&self) -> PyResult<i32> {
        Ok(self.view()?.body_crc())
    }

    #[getter]
    fn raw_body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.view()?.body()))
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let view = self.view()?;
        let (stored, sys_flag) = (view.body(), view.sys_flag());
        let plain = sys_flag::compression(sys_flag) == Some(Compression::None);
        if plain {
            return Ok(PyBytes::new(py, stored));
        }
        match py.detach(|| body::decompress(stored, sys_flag, MOST_BODY)) {
            Ok(body) => Ok(PyBytes::new(py, &body)),
            Err(error) => {
                let at = view.body().as_ptr().addr() - self.record.as_ptr().addr();
                Err(FormatError::from(error).at(at).into())
            }
        }
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        // A dict, too, keeps the place of the first and the value of the last.
        for (name, value) in properties::iter(self.view()?.raw_properties()).take(1024) {
            all.set_item(text(name), text(value))?;
        }
        Ok(all)
    }

    #[getter]
    fn raw_properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.view()?.raw_properties()))
    }

    #[getter]
    fn tags(&self) -> PyResult<Option<String>> {
        self.property(names::TAGS)
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let keys = self.view()?.property(names::KEYS).unwrap_or_default();
        let keys: Vec<_> = properties::split_keys(keys).map(text).collect();
        PyTuple::new(py, keys)
    }

    #[getter]
    fn unique_key(&self) -> PyResult<Option<String>> {
        self.property(names::UNIQ_KEY)
    }

    #[getter]
    fn message_id(&self) -> PyResult<String> {
        Ok(self.view()?.message_id())
    }

    #[getter]
    fn transaction(&self) -> PyResult<&'static str> {
        Ok(match self.view()?.transaction() {
            Transaction::None => "none",
            Transaction::Prepared => "prepared",
            Transaction::Commit => "commit",
            Transaction::Rollback => "rollback",
        })
    }

    #[getter]
    fn delay_level(&self) -> PyResult<i32> {
        let level = self.property(names::DELAY)?;
        Ok(level.and_then(|level| level.parse().ok()).unwrap_or(0))
    }

    #[getter]
    fn record<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.record)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.record == other.record
    }

    fn __hash__(&self) -> u64 {
        // Place, times and checksum lie at the front.
        let mut hasher = DefaultHasher::new();
        self.record.len().hash(&mut hasher);
        self.record.get(..128).unwrap_or(&self.record).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let view = self.view()?;
        let mut shown = format!(
            "StoredMessage(topic={}, queue_id={}, queue_offset={}, physical_offset={}, \
             store_size={}, store_timestamp_ms={}",
            short(py, view.topic())?,
            view.queue_id(),
            view.queue_offset(),
            view.physical_offset(),
            view.store_size(),
            view.store_timestamp_ms(),
        );
        for (field, name) in [("tags", names::TAGS), ("unique_key", names::UNIQ_KEY)] {
            if let Some(value) = view.property(name) {
                shown.push_str(&format!(", {field}={}", short(py, value)?));
            }
        }
        shown.push_str(&format!(", raw_body={})", shown_body(py, view.body())?));
        Ok(shown)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let make = py.import("mqstore._native")?.getattr("_stored_message")?;
        let record = PyTuple::new(py, [slf.get().record(py)])?;
        PyTuple::new(py, [make, record.into_any()])
    }
}

/// Text as Python shows it, at most 64 characters of it.
fn short(py: Python<'_>, bytes: &[u8]) -> PyResult<String> {
    let whole = text(bytes);
    let start: String = whole.chars().take(64).collect();
    let dots = if start.len() < whole.len() { "..." } else { "" };
    Ok(format!("{}{dots}", PyString::new(py, &start).repr()?))
}

/// A body as Python shows bytes, at most the first 64.
pub(super) fn shown_body(py: Python<'_>, body: &[u8]) -> PyResult<String> {
    match body.get(..SHOWN_BODY) {
        Some(start) if start.len() < body.len() => {
            Ok(format!("{}... of {} bytes", PyBytes::new(py, start).repr()?, body.len()))
        }
        _ => Ok(PyBytes::new(py, body).repr()?.to_string()),
    }
}

/// Reads one record.
#[pyfunction]
#[pyo3(signature = (buffer, /, *, verify_crc=true))]
pub(super) fn decode(buffer: &Bound<'_, PyAny>, verify_crc: bool) -> PyResult<StoredMessage> {
    let buffer = bytes_of(buffer)?;
    let bytes = buffer.as_bytes();
    match message::read_frame(bytes) {
        Ok(Frame::Message(view)) => {
            if verify_crc {
                buffer.py().detach(|| view.check_body_crc())?;
            }
            Ok(Box::<[u8]>::from(view.as_bytes()).into())
        }
        other => Err(no_record(other, bytes.len()).into()),
    }
}

/// The message of a record that was one before: what a pickle calls.
#[pyfunction]
pub(super) fn _stored_message(record: &Bound<'_, PyAny>) -> PyResult<StoredMessage> {
    let message = decode(record, false)?;
    let whole = bytes_of(record)?.as_bytes().len();
    if message.record.len() == whole {
        Ok(message)
    } else {
        let expected = format!("{} bytes", message.record.len());
        let error = FormatError::new(CorruptionKind::Length, 0, expected, format!("{whole}"));
        Err(Error::from(error).into())
    }
}
