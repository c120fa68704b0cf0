//! Consumer groups.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;

use crate::error::{Error, Result};
use crate::format::queue::consume_queue::TagFilter;
use crate::store::read::groups::{self, Delivery};

use super::reading::{Deadline, filter_of, messages};
use super::stored::StoredMessage;
use super::{Store, notices, refuse_after_fork};
use crate::py::{fields, fork, values};

/// Messages that an iterator reads at a time.
const AHEAD: usize = 32;

fn offset(offset: groups::GroupOffset) -> values::GroupOffset {
    let lag = offset.lag();
    let groups::GroupOffset { topic, queue_id, queue_offset, max_offset } = offset;
    values::GroupOffset { topic, queue_id, queue_offset, max_offset, lag }
}

#[pymethods]
impl Store {
    /// Returns each consumer group's committed offsets and lag, by group name.
    ///
    /// The offsets are those of ``config/consumerOffset.json``.
    fn groups(&self, py: Python<'_>) -> PyResult<BTreeMap<String, Vec<values::GroupOffset>>> {
        let store = self.reading()?;
        let groups = py.detach(|| store.groups())?;
        Ok(groups
            .into_iter()
            .map(|(name, offsets)| (name, offsets.into_iter().map(offset).collect()))
            .collect())
    }

    /// A consumer group of this store, to read and to keep its place.
    ///
    /// Raises:
    ///     StoreLockedError: This group is in use already; one live group of a name.
    ///     InvalidMessageError: Not a name that RocketMQ takes for a group.
    #[pyo3(signature = (name, /))]
    fn group(&self, py: Python<'_>, name: &str) -> PyResult<ConsumerGroup> {
        let store = self.reading()?;
        let group = py.detach(|| groups::ConsumerGroup::open(store, name))?;
        Ok(ConsumerGroup { group: Arc::new(group), generation: fork::generation() })
    }
}

/// A consumer group: reads topics and commits its offsets. Returned by ``Store.group``.
///
/// Offsets are stored in ``config/consumerOffset.json``, with ``enable_lmq`` in
/// ``config/lmqConsumerOffset.json``, as in a broker. Without that setting the file changed last
/// is used. A new topic is read from the first entry of each queue. Several processes may commit,
/// also with a store in mode ``"r"``, but not while a broker has the store open. ``close``, or
/// leaving a ``with`` block, releases the group without a commit.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct ConsumerGroup {
    group: Arc<groups::ConsumerGroup>,
    generation: u64,
}

impl ConsumerGroup {
    /// The group; fails in a forked child.
    fn live(&self) -> PyResult<&Arc<groups::ConsumerGroup>> {
        refuse_after_fork(self.generation)?;
        notices::log_new(self.group.store());
        Ok(&self.group)
    }
}

/// Waits briefly for the store to grow.
fn wait_for_more(group: &groups::ConsumerGroup, slice: Duration) -> Result<()> {
    let store = group.store();
    store.wait(store.end_offset(), slice).map(|_| ())
}

#[pymethods]
impl ConsumerGroup {
    /// Name of the group.
    #[getter]
    fn name(&self) -> &str {
        self.group.name()
    }

    /// Returns the next messages of a topic, its queues in turn; advances the group's offsets.
    ///
    /// Args:
    ///     topic: Name of the topic.
    ///     max_messages: At most this many.
    ///     tags: A tag expression; other messages are skipped.
    ///     timeout_s: Waits up to so many seconds for the first message.
    ///
    /// Returns:
    ///     The messages; empty after a timeout.
    ///
    /// Raises:
    ///     ValueError: ``max_messages`` below 0.
    #[pyo3(
        signature = (topic, *, max_messages=32, tags=None, timeout_s=0.0),
        text_signature = "($self, topic, *, max_messages=32, tags=None, timeout_s=0)"
    )]
    fn poll<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        #[pyo3(from_py_with = fields::max_messages)] max_messages: usize,
        tags: Option<&str>,
        timeout_s: f64,
    ) -> PyResult<Vec<Bound<'py, StoredMessage>>> {
        let group = self.live()?;
        let filter = filter_of(tags);
        let deadline = Deadline::after(timeout_s);
        loop {
            let records = py.detach(|| {
                let records = group.poll(topic, max_messages, &filter)?;
                if records.is_empty() && max_messages > 0 && !deadline.is_over() {
                    wait_for_more(group, deadline.slice())?;
                    return group.poll(topic, max_messages, &filter);
                }
                Ok(records)
            })?;
            if !records.is_empty() || max_messages == 0 || deadline.is_over() {
                return messages(py, records);
            }
            py.check_signals()?;
        }
    }

    /// Iterates over the messages of a topic; waits for new ones until the store is closed.
    ///
    /// The group's offset advances past each message. After ``seek`` or ``poll`` the iteration goes
    /// on from the new offset.
    #[pyo3(signature = (topic, *, tags=None))]
    fn messages(&self, topic: String, tags: Option<&str>) -> PyResult<GroupMessages> {
        Ok(GroupMessages {
            group: Arc::clone(self.live()?),
            generation: self.generation,
            topic,
            filter: filter_of(tags),
            ahead: Mutex::default(),
        })
    }

    /// Commits the group's offsets; they and the messages before them are durable on return.
    ///
    /// Raises:
    ///     InvalidMessageError: After a ``seek`` beyond the end of a queue; nothing was committed.
    ///     UnsupportedError: A broker has the store open and would overwrite the offsets; nothing
    ///         was committed.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let group = self.live()?;
        Ok(py.detach(|| group.commit())?)
    }

    /// Sets the group's offset in one queue.
    fn seek(&self, py: Python<'_>, topic: &str, queue_id: i32, queue_offset: i64) -> PyResult<()> {
        let group = self.live()?;
        Ok(py.detach(|| group.seek(topic, queue_id, queue_offset))?)
    }

    /// Returns the group's lag in each queue, from its current offsets, committed or not.
    fn lag(&self, py: Python<'_>) -> PyResult<Vec<values::GroupOffset>> {
        let group = self.live()?;
        let lag = py.detach(|| group.lag())?;
        Ok(lag.into_iter().map(offset).collect())
    }

    /// Releases the group's name; a second call does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.group.close());
    }

    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        slf.get().live()?;
        Ok(slf)
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) {
        let _ = (exc_type, exc_value, traceback);
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<ConsumerGroup {:?}>", self.group.name())
    }
}

/// Iterates over a topic's messages; the group's position follows the last one returned.
#[pyclass(module = "mqstore", frozen)]
struct GroupMessages {
    group: Arc<groups::ConsumerGroup>,
    generation: u64,
    topic: String,
    filter: TagFilter,
    ahead: Mutex<VecDeque<Delivery>>,
}

impl GroupMessages {
    /// Next message, after a brief wait if needed.
    fn step(&self, slice: Duration) -> Result<Option<Delivery>> {
        let group = &self.group;
        let mut ahead = self.ahead.lock();
        loop {
            if ahead.is_empty() {
                ahead.extend(group.peek(&self.topic, AHEAD, &self.filter)?);
            }
            match ahead.pop_front() {
                Some(message) if group.take(&self.topic, &message)? => return Ok(Some(message)),
                // `seek` or another reader moved the group.
                Some(_) => ahead.clear(),
                None => break,
            }
        }
        drop(ahead);
        wait_for_more(group, slice).map(|()| None)
    }
}

#[pymethods]
impl GroupMessages {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<StoredMessage>> {
        refuse_after_fork(self.generation)?;
        let forever = Deadline::after(f64::INFINITY);
        loop {
            notices::log_new(self.group.store());
            match py.detach(|| self.step(forever.slice())) {
                Ok(Some(message)) => return Ok(Some(message.record.into())),
                Ok(None) => py.check_signals()?,
                Err(Error::Closed) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
