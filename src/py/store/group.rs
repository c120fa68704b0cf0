//! Consumer groups.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::error::{Error, Result};
use crate::store::groups;

use super::reading::{filter_of, messages};
use super::stored::StoredMessage;
use super::{Store, refuse_after_fork};
use crate::py::errors::StoreClosedError;
use crate::py::{fields, process, values};

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

    /// A group's places, for this handle alone.
    ///
    /// A new topic begins at the time ``begin_ms``, without it behind what is there if
    /// ``from_end``.
    #[pyo3(signature = (name, begin_ms, from_end, /))]
    fn _group_places(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::name)] name: &str,
        #[pyo3(from_py_with = fields::group_begin)] begin_ms: Option<i64>,
        from_end: bool,
    ) -> PyResult<GroupPlaces> {
        let store = self.reading()?;
        let begin = match begin_ms {
            Some(ms) => groups::Begin::Time(ms),
            None if from_end => groups::Begin::Latest,
            None => groups::Begin::Earliest,
        };
        let group = py.detach(|| groups::ConsumerGroup::open(store, name, begin))?;
        Ok(GroupPlaces { group, generation: process::generation() })
    }

    fn _keep_group(&self, group: &Bound<'_, PyAny>) -> PyResult<()> {
        let known = PyWeakrefReference::new(group)?.unbind();
        let all: Vec<_> = {
            let mut groups = self.groups.lock();
            groups.push(known);
            groups.iter().map(|known| known.clone_ref(group.py())).collect()
        };
        // Python may run other threads here, so the lock is not held; the list stays whole, since
        // `close` commits what it holds.
        let is_dead = |known: &&Py<PyWeakrefReference>| known.bind(group.py()).upgrade().is_none();
        let dead: Vec<_> = all.iter().filter(is_dead).map(Py::as_ptr).collect();
        self.groups.lock().retain(|known| !dead.contains(&known.as_ptr()));
        Ok(())
    }
}

/// Messages, the places before and behind each, the place behind all, and how many were deleted.
type Read<'py> = (Vec<Bound<'py, StoredMessage>>, Vec<(i64, i64)>, i64, i64);

/// Places of a consumer group in its queues, for ``mqstore.ConsumerGroup``.
#[pyclass(module = "mqstore._native", frozen, name = "_GroupPlaces")]
pub(crate) struct GroupPlaces {
    group: groups::ConsumerGroup,
    generation: u64,
}

impl GroupPlaces {
    /// The group; fails in a forked child.
    fn with_group<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&groups::ConsumerGroup) -> Result<T> + Send,
    ) -> PyResult<T> {
        refuse_after_fork(self.generation)?;
        process::log_new(self.group.store());
        let store = self.group.store();
        py.detach(|| work(&self.group)).map_err(|error| match error {
            Error::Closed if !store.is_closed() => {
                StoreClosedError::new_err(("the group is closed",))
            }
            other => other.into(),
        })
    }
}

#[pymethods]
impl GroupPlaces {
    /// Name of the group.
    #[getter]
    fn name(&self) -> &str {
        self.group.name()
    }

    /// Numbers of a topic's queues, ascending.
    fn queues(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::topic)] topic: PyBackedStr,
    ) -> PyResult<Vec<i32>> {
        self.with_group(py, |group| group.queues(&topic))
    }

    /// Takes a queue for this handle alone; its place, or ``None`` while another has it.
    fn take(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::topic)] topic: PyBackedStr,
        queue_id: i32,
    ) -> PyResult<Option<i64>> {
        self.with_group(py, |group| group.take(&topic, queue_id))
    }

    /// Whether places wait for a commit.
    #[getter]
    fn has_moved(&self) -> bool {
        self.group.has_moved()
    }

    /// Lets other processes take a queue; whether acknowledgements of it wait for a commit.
    fn release(
        &self,
        #[pyo3(from_py_with = fields::topic)] topic: PyBackedStr,
        queue_id: i32,
    ) -> bool {
        self.group.release(&topic, queue_id)
    }

    /// Writes acknowledged messages, so that a kill does not lose them.
    ///
    /// Each has the places before and behind it, and its store time.
    fn ack(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::topic)] topic: PyBackedStr,
        queue_id: i32,
        acks: Vec<(i64, i64, i64)>,
    ) -> PyResult<()> {
        self.with_group(py, |group| group.ack(&topic, queue_id, &acks))
    }

    /// Reads messages from a place on: they, the span of each, the place behind all, and a loss.
    ///
    /// The loss is how many messages retention deleted there.
    fn read<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = fields::topic)] topic: PyBackedStr,
        queue_id: i32,
        place: i64,
        #[pyo3(from_py_with = fields::max_messages)] max_messages: usize,
        #[pyo3(from_py_with = fields::tags)] tags: Option<PyBackedStr>,
    ) -> PyResult<Read<'py>> {
        let filter = filter_of(tags.as_deref());
        let (found, next, lost) = self
            .with_group(py, |group| group.read(&topic, queue_id, place, max_messages, &filter))?;
        let (records, spans) =
            found.into_iter().map(|found| (found.record, (found.after, found.end))).unzip();
        Ok((messages(py, records)?, spans, next, lost))
    }

    /// Sets the group's place in one queue.
    fn seek(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::topic)] topic: PyBackedStr,
        #[pyo3(from_py_with = fields::queue_id)] queue_id: i32,
        queue_offset: i64,
    ) -> PyResult<()> {
        self.with_group(py, |group| group.seek(&topic, queue_id, queue_offset))
    }

    /// Moves the group to its first message in flight; ``ranges`` behind it are done.
    ///
    /// The queue was read up to ``end``.
    fn advance(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = fields::topic)] topic: PyBackedStr,
        queue_id: i32,
        place: i64,
        ranges: Vec<(i64, i64)>,
        end: i64,
    ) -> PyResult<()> {
        self.with_group(py, |group| group.advance(&topic, queue_id, place, ranges, end))
    }

    /// Fails if another store lies at the path by now.
    fn check_place(&self, py: Python<'_>) -> PyResult<()> {
        self.with_group(py, |group| group.check_place())
    }

    /// Commits the places that were set, durable on return.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.with_group(py, |group| group.commit())
    }

    /// Lag in each queue, from the given places where there are any.
    fn lag(
        &self,
        py: Python<'_>,
        places: BTreeMap<(String, i32), i64>,
    ) -> PyResult<Vec<values::GroupOffset>> {
        let lag = self.with_group(py, |group| group.lag(&places))?;
        Ok(lag.into_iter().map(offset).collect())
    }

    /// Releases the group's name and its queues.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.group.close());
    }
}
