//! Messages of a replay, put into requests.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::message::Message;
use super::stored::{MOST_BODY, StoredMessage};
use crate::format::body;
use crate::format::message::request;
use crate::format::message::sys_flag::{self, Compression};
use crate::locks::Mutex;

/// Messages on their way to RocketMQ's client, put together into requests.
///
/// Args:
///     dropped: Names of properties that are left out.
///     broker: Name of the broker that the messages come from.
///     batch: Most messages of a request.
///     keeps_queue: Whether messages go to their own queue, and not to any.
///     most_body: Most bytes of a body, decompressed.
#[pyclass(module = "mqstore._native", frozen, name = "_Requests")]
pub(crate) struct Requests {
    requests: Mutex<request::Requests>,
    most_body: usize,
}

#[pymethods]
impl Requests {
    #[new]
    fn __new__(
        dropped: Vec<String>,
        broker: String,
        batch: usize,
        keeps_queue: bool,
        most_body: usize,
    ) -> Self {
        let dropped = dropped.into_iter().map(String::into_bytes).collect();
        let rules = request::Rules { dropped, broker, batch, keeps_queue };
        Self { requests: Mutex::new(request::Requests::new(rules)), most_body }
    }

    /// Puts a message into the request of its topic, queue and lane, with properties ``added``.
    ///
    /// Returns its bytes; 0 if its body has more than ``most_body``, and then it is not taken.
    #[pyo3(signature = (number, physical_offset, message, topic, queue_id, lane, added, /))]
    #[expect(clippy::too_many_arguments, reason = "one call for each message")]
    fn add(
        &self,
        py: Python<'_>,
        number: u64,
        physical_offset: u64,
        message: &Bound<'_, PyAny>,
        topic: &str,
        queue_id: i32,
        lane: i32,
        added: &[u8],
    ) -> PyResult<usize> {
        let (flag, sys_flag, properties, body) = if let Ok(stored) = message.cast::<StoredMessage>()
        {
            let view = stored.get().view()?;
            (view.flag(), view.sys_flag(), view.raw_properties(), view.body())
        } else if let Ok(new) = message.cast::<Message>() {
            let new = new.get().view();
            (new.flag, new.sys_flag, new.properties, new.body)
        } else {
            return Err(PyTypeError::new_err("expected a Message or a StoredMessage"));
        };
        // One that cannot be decompressed is sent only if that was asked for.
        let read = || body::decompress(body, sys_flag, MOST_BODY).unwrap_or(body.into());
        let is_plain = sys_flag::compression(sys_flag) == Some(Compression::None);
        let body = if is_plain { read() } else { py.detach(read) };
        if body.len() > self.most_body {
            return Ok(0);
        }
        self.requests.lock().add(&request::Outgoing {
            number,
            topic: topic.as_bytes(),
            queue_id,
            lane,
            added,
            physical_offset,
            flag,
            properties,
            body: &body,
        });
        Ok(properties.len() + body.len() + 1)
    }

    /// Frames of the full requests; of ``all``, the others as well.
    fn take<'py>(&self, py: Python<'py>, all: bool) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.requests.lock().take(all))
    }
}
