//! Messages as objects, mappings or tuples of arguments.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyString, PyTuple};

use super::message::{Arguments, Message};
use super::stored::StoredMessage;
use crate::py::fields::{self, expected, unexpected, wrong_type};

/// Arguments of `Message`.
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

pub(super) enum Given<'py> {
    Object(Bound<'py, Message>),
    Made(Box<Message>),
}

impl<'py> Given<'py> {
    pub(super) fn of(given: Bound<'py, PyAny>) -> PyResult<Self> {
        let message = if let Ok(message) = given.cast::<Message>() {
            Self::Object(message.clone())
        } else if let Ok(arguments) = given.cast_exact::<PyTuple>() {
            Self::Made(Box::new(Arguments::of_tuple(arguments)?.make()?))
        } else if let Ok(arguments) = given.cast_exact::<PyDict>() {
            Self::Made(Box::new(Arguments::of_dict(arguments)?.make()?))
        } else if let Ok(stored) = given.cast::<StoredMessage>() {
            Self::Object(stored.get().to_message(given.py(), None)?)
        } else {
            let wanted = "a Message, a StoredMessage, or a mapping or tuple of its arguments";
            let mapping =
                given.cast::<PyMapping>().map_err(|_| expected("messages", wanted, &given))?;
            let arguments = PyDict::new(given.py());
            arguments.update(mapping)?;
            Self::Made(Box::new(Arguments::of_dict(&arguments)?.make()?))
        };
        message.get().check_inner_batch()?;
        Ok(message)
    }

    #[inline]
    pub(super) fn get(&self) -> &Message {
        match self {
            Self::Object(message) => message.get(),
            Self::Made(message) => message,
        }
    }
}

impl<'py> Arguments<'py> {
    fn of_tuple(given: &Bound<'py, PyTuple>) -> PyResult<Self> {
        let (most, len) = (POSITIONAL, given.len());
        if !(2..=most).contains(&len) {
            return Err(PyTypeError::new_err(format!(
                "messages: expected a tuple of 2 to {most} items ({}), got {len}",
                NAMES[..POSITIONAL].join(", ")
            )));
        }
        let mut arguments = Self::new();
        for (at, value) in given.iter_borrowed().enumerate() {
            arguments.set_at(at, &value)?;
        }
        Ok(arguments)
    }

    fn of_dict(given: &Bound<'py, PyDict>) -> PyResult<Self> {
        let mut arguments = Self::new();
        for (name, value) in given {
            let text = name.cast::<PyString>().map_err(|_| unexpected("Message", &name))?;
            if !arguments.set(text.to_str().unwrap_or_default(), &value)? {
                return Err(unexpected("Message", &name));
            }
        }
        Ok(arguments)
    }

    /// `false` if there is no such argument.
    fn set(&mut self, name: &str, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        let at = NAMES.iter().position(|known| *known == name);
        at.map(|at| self.set_at(at, value)).transpose().map(|set| set.is_some())
    }

    /// By place in [`NAMES`].
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

pub(super) fn key_tuple<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    if let Ok(keys) = keys.cast_exact::<PyTuple>() {
        return Ok(keys.clone());
    }
    let mut found = Vec::new();
    if keys.is_instance_of::<PyString>() {
        found.push(keys.clone());
    } else {
        let wanted = "str or a sequence of str";
        for key in keys.try_iter().map_err(|error| wrong_type("keys", wanted, keys, error))? {
            found.push(key?);
        }
    }
    PyTuple::new(keys.py(), found)
}
