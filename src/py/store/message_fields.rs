//! Arguments of a message.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::format::message::host::Host;
use crate::py::arguments::type_error;
use crate::py::fields::{self, unexpected};

pub(super) const NAMES: [&str; 16] = [
    "topic",
    "body",
    "queue_id",
    "tags",
    "keys",
    "unique_key",
    "properties",
    "flag",
    "born_timestamp_ms",
    "born_host",
    "delay_level",
    "sys_flag",
    "store_timestamp_ms",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
];
/// In a tuple.
const POSITIONAL: usize = 7;

#[derive(Default)]
pub(super) struct MessageFields<'py> {
    pub(super) topic: Option<PyBackedStr>,
    pub(super) body: Option<Bound<'py, PyAny>>,
    pub(super) queue_id: Option<i32>,
    pub(super) tags: Option<PyBackedStr>,
    pub(super) keys: Option<Bound<'py, PyAny>>,
    pub(super) unique_key: Option<PyBackedStr>,
    pub(super) properties: Option<Bound<'py, PyAny>>,
    pub(super) flag: i32,
    pub(super) born_timestamp_ms: Option<i64>,
    pub(super) born_host: Option<Host>,
    pub(super) delay_level: i32,
    pub(super) sys_flag: i32,
    pub(super) store_timestamp_ms: Option<i64>,
    pub(super) store_host: Option<Host>,
    pub(super) reconsume_times: i32,
    pub(super) prepared_transaction_offset: i64,
}

impl<'py> MessageFields<'py> {
    pub(super) fn new() -> Self {
        Self { queue_id: Some(0), ..Self::default() }
    }

    pub(super) fn of_tuple(given: &Bound<'py, PyTuple>) -> PyResult<Self> {
        let (most, len) = (POSITIONAL, given.len());
        if !(2..=most).contains(&len) {
            let names = NAMES[..POSITIONAL].join(", ");
            let wanted = format!("a tuple of 2 to {most} items ({names})");
            return Err(type_error("messages", wanted, len));
        }
        let mut arguments = Self::new();
        for (at, value) in given.iter_borrowed().enumerate() {
            arguments.set_at(at, &value)?;
        }
        Ok(arguments)
    }

    pub(super) fn of_dict(given: &Bound<'py, PyDict>) -> PyResult<Self> {
        let mut arguments = Self::new();
        for (name, value) in given {
            let text = name.cast::<PyString>().map_err(|_| unexpected("Message", &name))?;
            let text = text.to_str().unwrap_or_default();
            let at = NAMES.iter().position(|known| *known == text);
            arguments.set_at(at.ok_or_else(|| unexpected("Message", &name))?, &value)?;
        }
        Ok(arguments)
    }

    #[inline]
    pub(super) fn set_at(&mut self, at: usize, value: &Bound<'py, PyAny>) -> PyResult<()> {
        let given = || (!value.is_none()).then(|| value.clone());
        match at {
            0 => self.topic = Some(fields::topic(value)?),
            1 => self.body = Some(value.clone()),
            2 => self.queue_id = fields::queue_id_if_given(value)?,
            3 => self.tags = fields::tags(value)?,
            4 => self.keys = given(),
            5 => self.unique_key = fields::unique_key(value)?,
            6 => self.properties = given(),
            7 => self.flag = fields::flag(value)?,
            8 => self.born_timestamp_ms = fields::born_timestamp_ms(value)?,
            9 => self.born_host = fields::born_host(value)?,
            10 => self.delay_level = fields::delay_level(value)?,
            11 => self.sys_flag = fields::sys_flag(value)?,
            12 => self.store_timestamp_ms = fields::store_timestamp_ms(value)?,
            13 => self.store_host = fields::store_host(value)?,
            14 => self.reconsume_times = fields::reconsume_times(value)?,
            _ => self.prepared_transaction_offset = fields::prepared_transaction_offset(value)?,
        }
        Ok(())
    }
}
