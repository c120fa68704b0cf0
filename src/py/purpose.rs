//! What a stored message is there for, and the messages in it.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::format::consume_queue::DelayLevels;
use crate::format::properties;
use crate::format::purpose::{self, Purpose};
use crate::store::{inner, lmq};

use super::stored::{MOST_BODY, StoredMessage, text};

#[pymethods]
impl StoredMessage {
    #[getter]
    fn purpose(&self) -> PyResult<&'static str> {
        Ok(Purpose::of(self.view()?.topic()).name())
    }

    #[getter]
    fn half(&self) -> PyResult<bool> {
        Ok(Purpose::of(self.view()?.topic()) == Purpose::Half)
    }

    #[getter]
    fn real_topic(&self) -> PyResult<Option<String>> {
        let topic = purpose::real_topic(self.view()?.raw_properties());
        Ok(topic.map(|topic| text(topic).into_owned()))
    }

    #[getter]
    fn real_queue_id(&self) -> PyResult<Option<i32>> {
        Ok(purpose::real_queue_id(self.view()?.raw_properties()))
    }

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

    #[getter]
    fn multi_dispatch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let view = self.view()?;
        let indexed = properties::indexed(view.raw_properties());
        let queues: Vec<_> =
            lmq::pairs(view.topic(), &indexed).map(|(name, number)| (text(name), number)).collect();
        PyTuple::new(py, queues)
    }

    #[getter]
    fn batch<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let view = self.view()?;
        let Some(members) = py.detach(|| inner::members(&view, MOST_BODY))? else {
            return Ok(None);
        };
        let members: Vec<_> = members
            .into_iter()
            .map(|record| Bound::new(py, StoredMessage::from(record)))
            .collect::<PyResult<_>>()?;
        PyTuple::new(py, members).map(Some)
    }
}
