//! Purpose of a stored message, and the messages of a batch.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::format::message::purpose::{self, Purpose};
use crate::format::queue::consume_queue::DelayLevels;
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;
use crate::store::write::inner_batch;

use super::stored::{MOST_BODY, StoredMessage, text};

/// `MessageConst.PROPERTY_LITE_TOPIC` and `PROPERTY_PRIORITY`.
const LITE_TOPIC: &[u8] = b"__LITE_TOPIC";
const PRIORITY: &[u8] = b"_SYS_MSG_PRIORITY_";

#[pymethods]
impl StoredMessage {
    /// Purpose of the topic, by its name.
    ///
    /// ``half``: hidden until its transaction is committed (``RMQ_SYS_TRANS_HALF_TOPIC``);
    /// ``transaction-op``: names half messages whose transactions have ended
    /// (``RMQ_SYS_TRANS_OP_HALF_TOPIC``); ``delayed``: waits for the time of its delay level
    /// (``SCHEDULE_TOPIC_XXXX``); ``timer``: waits for the timer (``rmq_sys_wheel_timer``);
    /// ``retry`` and ``dead-letter``: a group failed to consume it (``%RETRY%...``, ``%DLQ%...``).
    #[getter]
    fn purpose(&self) -> PyResult<&'static str> {
        Ok(Purpose::of(self.view()?.topic()).name())
    }

    /// Whether it is a half message, hidden until its transaction is committed.
    #[getter]
    fn half(&self) -> PyResult<bool> {
        Ok(Purpose::of(self.view()?.topic()) == Purpose::Half)
    }

    /// Destination topic of a message that waits in another one (property ``REAL_TOPIC``).
    #[getter]
    fn real_topic(&self) -> PyResult<Option<String>> {
        let topic = purpose::real_topic(self.view()?.raw_properties());
        Ok(topic.map(|topic| text(topic).into_owned()))
    }

    /// Destination queue (property ``REAL_QID``); ``None`` if it is not a number.
    #[getter]
    fn real_queue_id(&self) -> PyResult<Option<i32>> {
        Ok(purpose::real_queue_id(self.view()?.raw_properties()))
    }

    /// When a delayed or a timer message is given out, Unix milliseconds.
    ///
    /// By RocketMQ's own delay levels: a message does not know what ``message_delay_level`` is set
    /// to; its queue entry does, which holds the time as its tags code. ``None`` for a message that
    /// waits for no time.
    #[getter]
    fn deliver_timestamp_ms(&self) -> PyResult<Option<i64>> {
        let view = self.view()?;
        Ok(purpose::deliver_timestamp_ms(
            view.topic(),
            view.raw_properties(),
            view.store_timestamp_ms(),
            &DelayLevels::default(),
        ))
    }

    /// Lite topic of RocketMQ 5.5 (property ``__LITE_TOPIC``).
    ///
    /// Its queue is ``%LMQ%$parent$lite``; the message lies in its parent's topic.
    #[getter]
    fn lite_topic(&self) -> PyResult<Option<String>> {
        Ok(self.view()?.property(LITE_TOPIC).map(|name| text(name).into_owned()))
    }

    /// Priority (property ``_SYS_MSG_PRIORITY_`` of RocketMQ 5.4).
    ///
    /// ``None`` if it is no number.
    #[getter]
    fn priority(&self) -> PyResult<Option<i32>> {
        let value = self.view()?.property(PRIORITY);
        Ok(value.and_then(|value| str::from_utf8(value).ok()?.parse().ok()))
    }

    /// The ``%LMQ%`` queues beside its own that it is in, each with its queue offset there.
    #[getter]
    fn multi_dispatch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let view = self.view()?;
        let queues: Vec<_> = lmq::pairs(&DispatchRequest::of(&view))
            .filter(|(name, ..)| name.starts_with(lmq::PREFIX))
            .map(|(name, _, number)| (text(name), number))
            .collect();
        PyTuple::new(py, queues)
    }

    /// The messages of a batch that is kept together; ``None`` for any other message.
    ///
    /// Each is a message of its own: with the batch's place, times and hosts, its own body and
    /// properties, and queue offsets counting from the batch's.
    ///
    /// Raises:
    ///     CorruptionError: ``kind`` is ``batch``: the lengths in the body do not add up, or it
    ///         holds another number of messages than its properties say; or ``body``: it cannot be
    ///         decompressed. ``raw_body`` has the bytes.
    #[getter]
    fn batch<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let view = self.view()?;
        let Some(members) = py.detach(|| inner_batch::members(&view, MOST_BODY))? else {
            return Ok(None);
        };
        let members: Vec<_> = members
            .into_iter()
            .map(|record| Bound::new(py, StoredMessage::from(record)))
            .collect::<PyResult<_>>()?;
        PyTuple::new(py, members).map(Some)
    }
}
