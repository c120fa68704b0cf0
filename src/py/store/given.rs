//! Messages as objects, mappings or tuples of arguments.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyMapping, PyString, PyTuple};

use super::message::{Message, Properties};
use super::stored::StoredMessage;
use crate::format::message::host::Host;
use crate::py::errors::invalid;
use crate::py::fields::{
    self, Block, Keys, Named, bytes_of, each_pair, expected, unexpected, with_block, wrong_type,
};

const POSITIONAL: [&str; 7] =
    ["topic", "body", "queue_id", "tags", "keys", "unique_key", "properties"];

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

pub(super) struct Arguments<'py> {
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

impl<'py> Arguments<'py> {
    const fn new() -> Self {
        Self {
            topic: None,
            body: None,
            queue_id: Some(0),
            tags: None,
            keys: None,
            unique_key: None,
            properties: None,
            flag: 0,
            born_timestamp_ms: None,
            born_host: None,
            delay_level: 0,
            sys_flag: 0,
            store_timestamp_ms: None,
            store_host: None,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
        }
    }

    fn of_tuple(given: &Bound<'py, PyTuple>) -> PyResult<Self> {
        let (most, len) = (POSITIONAL.len(), given.len());
        if !(2..=most).contains(&len) {
            return Err(PyTypeError::new_err(format!(
                "messages: expected a tuple of 2 to {most} items ({}), got {len}",
                POSITIONAL.join(", ")
            )));
        }
        let mut arguments = Self::new();
        for (name, value) in POSITIONAL.iter().zip(given.iter_borrowed()) {
            arguments.set(name, &value)?;
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
        let given = || (!value.is_none()).then(|| value.clone());
        match name {
            "topic" => self.topic = Some(fields::topic(value)?),
            "body" => self.body = Some(value.clone()),
            "queue_id" => self.queue_id = fields::queue_id_if_given(value)?,
            "tags" => self.tags = fields::tags(value)?,
            "keys" => self.keys = given(),
            "unique_key" => self.unique_key = fields::unique_key(value)?,
            "properties" => self.properties = given(),
            "flag" => self.flag = fields::flag(value)?,
            "born_timestamp_ms" => self.born_timestamp_ms = fields::born_timestamp_ms(value)?,
            "born_host" => self.born_host = fields::born_host(value)?,
            "delay_level" => self.delay_level = fields::delay_level(value)?,
            "sys_flag" => self.sys_flag = fields::sys_flag(value)?,
            "store_timestamp_ms" => self.store_timestamp_ms = fields::store_timestamp_ms(value)?,
            "store_host" => self.store_host = fields::store_host(value)?,
            "reconsume_times" => self.reconsume_times = fields::reconsume_times(value)?,
            "prepared_transaction_offset" => {
                self.prepared_transaction_offset = fields::prepared_transaction_offset(value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn make(self) -> PyResult<Message> {
        let missing = |name| {
            PyTypeError::new_err(format!(
                "messages: a message needs topic and body, not only {name}"
            ))
        };
        let topic = self.topic.ok_or_else(|| missing("body"))?;
        let body = self.body.ok_or_else(|| missing("topic"))?;
        if topic.is_empty() {
            return Err(invalid("topic", "is empty"));
        }
        if let Some(queue_id) = self.queue_id.filter(|queue_id| *queue_id < 0) {
            return Err(invalid("queue_id", format!("{queue_id} is below 0")));
        }
        // An iterator gives its keys only once.
        let mut keys: Vec<PyBackedStr> = Vec::new();
        if let Some(given) = &self.keys {
            keys = key_list(given)?;
        }
        let (block, properties, counts_inner_messages) = with_block(|block| {
            let given = Named {
                tags: self.tags.as_deref(),
                keys: Keys::Taken(&keys),
                unique_key: self.unique_key.as_deref(),
                delay_level: self.delay_level,
                properties: self.properties.as_ref(),
            }
            .to_block(block)?;
            PyResult::Ok(match given {
                Block::Whole(whole) => {
                    (Box::default(), Properties::Block(whole.clone().into()), false)
                }
                Block::Written { counts_inner_messages } => (
                    Box::from(block.as_slice()),
                    Properties::Pairs(pairs(self.properties.as_ref())?),
                    counts_inner_messages,
                ),
            })
        })?;
        Ok(Message {
            topic,
            body: bytes_of("body", &body)?.into(),
            queue_id: self.queue_id,
            tags: self.tags,
            keys,
            unique_key: self.unique_key,
            properties,
            flag: self.flag,
            born_timestamp_ms: self.born_timestamp_ms,
            born_host: self.born_host,
            delay_level: self.delay_level,
            sys_flag: self.sys_flag,
            store_timestamp_ms: self.store_timestamp_ms,
            store_host: self.store_host,
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: self.prepared_transaction_offset,
            block,
            counts_inner_messages,
        })
    }
}

fn key_list(given: &Bound<'_, PyAny>) -> PyResult<Vec<PyBackedStr>> {
    let wanted = "str or a sequence of str";
    let text = |key: &Bound<'_, PyAny>| match key.is_instance_of::<PyString>() {
        true => fields::one_of_keys(key),
        false => Err(expected("keys", wanted, key)),
    };
    if given.is_instance_of::<PyString>() {
        return Ok(vec![text(given)?]);
    }
    if let Ok(keys) = given.cast_exact::<PyTuple>() {
        return keys.iter_borrowed().map(|key| text(&key)).collect();
    }
    let keys = given.try_iter().map_err(|error| wrong_type("keys", wanted, given, error))?;
    keys.map(|key| text(&key?)).collect()
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

fn pairs(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<(PyBackedStr, PyBackedStr)>> {
    let mut pairs = Vec::new();
    if let Some(given) = given {
        each_pair(given, |name, value| {
            pairs.push((name.clone().try_into()?, value.clone().try_into()?));
            Ok(())
        })?;
    }
    Ok(pairs)
}
