//! A message to be written.

use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict, PyMapping, PyString, PyTuple};

use super::fastcall::untracked;
use super::message_fields::{Block, MessageFields, NAMES};
use super::stored::{StoredMessage, shown_body};
use crate::error::{Error, Result};
use crate::format::message::host::Host;
use crate::py::arguments::type_error;
use crate::py::fields::{self, bytes_of, each_pair, expected, with_block, wrong_type};
use crate::py::values::getters;
use crate::store::NewMessage;
use crate::store::write::property_block::check_inner_batch;

#[derive(PartialEq, Eq, Hash)]
enum Properties {
    Pairs(Vec<(PyBackedStr, PyBackedStr)>),
    Block(PyBackedBytes),
}

/// Bits of a stored `sys_flag` that a copy keeps.
const COMPRESSION: i32 = 0x701;

/// A message to be written, with everything that a record can hold.
///
/// ``Store.append`` takes the same fields one by one and is enough for new messages; a
/// ``Message`` is for many at once, for import and for migration, where the store's time and host
/// come from elsewhere.
///
/// Args:
///     topic: Name of the topic; see ``validate_topic_names`` of ``mqstore.StoreConfig``.
///     body: The body, any object with the buffer protocol, stored unchanged.
///     queue_id: Number of the queue in its topic, from 0. ``None``: as for ``Store.append``.
///     tags: The one tag of the message, stored as property ``TAGS``.
///     keys: One key, or an iterable of keys, stored joined by spaces as property ``KEYS``. An
///         empty key or one with a space in it is refused.
///     unique_key: The client's id of the message, stored as property ``UNIQ_KEY``.
///     properties: A mapping, written in its own order behind ``TAGS``, ``KEYS``, ``UNIQ_KEY`` and
///         ``DELAY``; or ``bytes``, the property block as it is to be stored, and then ``tags``,
///         ``keys``, ``unique_key`` and ``delay_level`` must be left out.
///     flag: An application-defined 32-bit number, never interpreted.
///     born_timestamp_ms: The producer's time; ``None`` is the time of the append.
///     born_host: The producer's address, ``"ip:port"`` or ``"[v6]:port"``; ``None`` is the store's
///         own.
///     delay_level: Written as property ``DELAY`` where it is not 0, and no more:
///         ``append(..., delay=)`` delays. Below 0 is written too; a broker takes it for none.
///     sys_flag: RocketMQ's bits, such as compression or transaction type. The two bits that say
///         whether a host is IPv6 are set from the hosts.
///     store_timestamp_ms: The store's time; ``None`` is the time of the append. An append refuses
///         one below 0. It moves no later message.
///     store_host: The store's address; ``None`` is the store's own.
///     reconsume_times: Number of redeliveries.
///     prepared_transaction_offset: Physical offset of the half message that a commit belongs to.
///
/// Raises:
///     InvalidMessageError: A field that no record can hold, or that contradicts another.
///     TypeError: A value of the wrong type.
#[pyclass(module = "mqstore", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Message {
    topic: PyBackedStr,
    body: PyBackedBytes,
    /// Number of the queue in its topic; ``None`` where its key chooses it.
    #[pyo3(get)]
    pub(super) queue_id: Option<i32>,
    /// The one tag, or ``None``.
    #[pyo3(get)]
    tags: Option<PyBackedStr>,
    keys: Vec<PyBackedStr>,
    /// The client's id of the message, or ``None``.
    #[pyo3(get)]
    unique_key: Option<PyBackedStr>,
    properties: Properties,
    /// The delay level, 0 for none.
    #[pyo3(get)]
    delay_level: i32,
    /// The other fields, as a record has them.
    record: NewMessage<'static>,
    /// The stored property block, unless given as one.
    block: Box<[u8]>,
    counts_inner_messages: bool,
}

impl Message {
    /// Checks what the bytes do not show.
    pub(crate) fn check_inner_batch(&self) -> Result<()> {
        check_inner_batch(self.counts_inner_messages, self.record.sys_flag)
    }

    #[inline]
    pub(crate) fn view(&self) -> NewMessage<'_> {
        NewMessage {
            topic: self.topic.as_bytes(),
            queue_id: self.queue_id.unwrap_or_default(),
            body: &self.body,
            properties: match &self.properties {
                Properties::Pairs(_) => &self.block,
                Properties::Block(block) => block,
            },
            ..self.record
        }
    }

    /// Keyword arguments that differ from those of a message of topic and body alone.
    fn given<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (py, given) = (slf.py(), PyDict::new(slf.py()));
        let usual = slf.get_type().call1((slf.get().topic(py), slf.get().body(py)?))?;
        for name in &NAMES[2..] {
            let value = slf.getattr(*name)?;
            if value.eq(usual.getattr(*name)?)? {
                continue;
            }
            let is_time = name.ends_with("_ms");
            let value = if is_time { fields::kept_time(py, value.extract()?)? } else { value };
            given.set_item(name, value)?;
        }
        Ok(given)
    }
}

#[pymethods]
impl Message {
    #[new]
    #[pyo3(
        signature = (
            topic, body, *, queue_id=Some(0), tags=None, keys=None, unique_key=None,
            properties=None, flag=0, born_timestamp_ms=None, born_host=None, delay_level=0,
            sys_flag=0, store_timestamp_ms=None, store_host=None, reconsume_times=0,
            prepared_transaction_offset=0, **others
        ),
        text_signature = "(topic, body, *, queue_id=0, tags=None, keys=(), unique_key=None, \
            properties=None, flag=0, born_timestamp_ms=None, born_host=None, delay_level=0, \
            sys_flag=0, store_timestamp_ms=None, store_host=None, reconsume_times=0, \
            prepared_transaction_offset=0)"
    )]
    #[expect(clippy::too_many_arguments, reason = "a record has as many fields")]
    fn __new__(
        #[pyo3(from_py_with = fields::topic)] topic: PyBackedStr,
        body: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = fields::queue_id_if_given)] queue_id: Option<i32>,
        #[pyo3(from_py_with = fields::tags)] tags: Option<PyBackedStr>,
        keys: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = fields::unique_key)] unique_key: Option<PyBackedStr>,
        properties: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = fields::flag)] flag: i32,
        #[pyo3(from_py_with = fields::born_timestamp_ms)] born_timestamp_ms: Option<i64>,
        #[pyo3(from_py_with = fields::born_host)] born_host: Option<Host>,
        #[pyo3(from_py_with = fields::delay_level)] delay_level: i32,
        #[pyo3(from_py_with = fields::sys_flag)] sys_flag: i32,
        #[pyo3(from_py_with = fields::store_timestamp_ms)] store_timestamp_ms: Option<i64>,
        #[pyo3(from_py_with = fields::store_host)] store_host: Option<Host>,
        #[pyo3(from_py_with = fields::reconsume_times)] reconsume_times: i32,
        #[pyo3(from_py_with = fields::prepared_transaction_offset)]
        prepared_transaction_offset: i64,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Self>> {
        fields::no_others("Message", others)?;
        let message = MessageFields {
            topic: Some(topic),
            body: Some(body.clone()),
            queue_id,
            tags,
            keys: keys.cloned(),
            unique_key,
            properties: properties.cloned(),
            delay_level,
            record: NewMessage {
                flag,
                sys_flag,
                born_timestamp_ms,
                born_host,
                store_timestamp_ms,
                store_host,
                reconsume_times,
                prepared_transaction_offset,
                ..NewMessage::default()
            },
        }
        .make()?;
        Bound::new(body.py(), message).map(|message| untracked(message).unbind())
    }

    /// Name of the topic.
    #[getter]
    fn topic<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.topic.as_py_str().bind(py).clone()
    }

    /// The body as stored.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok((&self.body).into_pyobject(py)?.into_any())
    }

    /// The keys, in the order given.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.keys)
    }

    /// The further properties as they were given; an empty ``dict`` where there are none.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.properties {
            Properties::Pairs(pairs) => {
                let given = PyDict::new(py);
                for (name, value) in pairs {
                    given.set_item(name, value)?;
                }
                Ok(given.into_any())
            }
            Properties::Block(block) => Ok(block.into_pyobject(py)?.into_any()),
        }
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (py, this) = (slf.py(), slf.get());
        let body = shown_body(py, &this.body)?;
        let mut shown = format!("Message({}, {body}", this.topic(py).repr()?);
        for (name, value) in &Self::given(slf)? {
            shown.push_str(&format!(", {name}={}", value.repr()?));
        }
        shown.push(')');
        Ok(shown)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (py, message) = (slf.py(), slf.get());
        // `functools.partial` carries keywords, unlike plain pickling.
        let partial = py.import("functools")?.getattr("partial")?;
        let make = partial.call((slf.get_type(),), Some(&Self::given(slf)?))?;
        PyTuple::new(
            py,
            [make, PyTuple::new(py, [message.topic(py).into_any(), message.body(py)?])?.into_any()],
        )
    }
}

getters! {
    Message, this => &this.record, {
        /// The user's own number.
        flag: i32 = |record| record.flag;
        /// The producer's time, or ``None`` for the time of the append.
        born_timestamp_ms: Option<i64> = |record| record.born_timestamp_ms;
        /// The producer's address, or ``None`` for the store's own.
        born_host: Option<String> = |record| record.born_host.map(|host| host.to_string());
        /// RocketMQ's bits, as given.
        sys_flag: i32 = |record| record.sys_flag;
        /// The store's time, or ``None`` for the time of the append.
        store_timestamp_ms: Option<i64> = |record| record.store_timestamp_ms;
        /// The store's address, or ``None`` for the store's own.
        store_host: Option<String> = |record| record.store_host.map(|host| host.to_string());
        /// How often consumption was tried again.
        reconsume_times: i32 = |record| record.reconsume_times;
        /// Physical offset of the half message that a commit belongs to.
        prepared_transaction_offset: i64 = |record| record.prepared_transaction_offset;
    }
}

impl MessageFields<'_> {
    pub(super) fn make(mut self) -> PyResult<Message> {
        let missing =
            |name| type_error("messages", "topic and body in each message", format!("only {name}"));
        let topic = self.topic.take().ok_or_else(|| missing("body"))?;
        let body = self.body.take().ok_or_else(|| missing("topic"))?;
        if topic.is_empty() {
            return Err(Error::argument("topic", "a name", "an empty text").into());
        }
        if let Some(queue_id) = self.queue_id.filter(|queue_id| *queue_id < 0) {
            return Err(Error::argument("queue_id", "0 or more", queue_id).into());
        }
        // An iterator gives its keys only once.
        let keys = self.keys.as_ref().map(key_list).transpose()?.unwrap_or_default();
        let (block, properties, counts_inner_messages) = with_block(|block| {
            PyResult::Ok(match self.to_block(Some(&keys), block)? {
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
            delay_level: self.delay_level,
            record: self.record,
            block,
            counts_inner_messages,
        })
    }
}

pub(super) fn key_list(given: &Bound<'_, PyAny>) -> PyResult<Vec<PyBackedStr>> {
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

pub(super) enum AnyMessage<'py> {
    Object(Bound<'py, Message>),
    Built(Box<Message>),
}

impl<'py> AnyMessage<'py> {
    pub(super) fn of(given: Bound<'py, PyAny>) -> PyResult<Self> {
        let message = if let Ok(message) = given.cast::<Message>() {
            Self::Object(message.clone())
        } else if let Ok(arguments) = given.cast_exact::<PyTuple>() {
            Self::Built(Box::new(MessageFields::of_tuple(arguments)?.make()?))
        } else if let Ok(arguments) = given.cast_exact::<PyDict>() {
            Self::Built(Box::new(MessageFields::of_dict(arguments)?.make()?))
        } else if let Ok(stored) = given.cast::<StoredMessage>() {
            Self::Object(stored.get().to_message(given.py(), None)?)
        } else {
            let wanted = "a Message, a StoredMessage, or a mapping or tuple of its arguments";
            let mapping =
                given.cast::<PyMapping>().map_err(|_| expected("messages", wanted, &given))?;
            let arguments = PyDict::new(given.py());
            arguments.update(mapping)?;
            Self::Built(Box::new(MessageFields::of_dict(&arguments)?.make()?))
        };
        message.get().check_inner_batch()?;
        Ok(message)
    }

    #[inline]
    pub(super) fn get(&self) -> &Message {
        match self {
            Self::Object(message) => message.get(),
            Self::Built(message) => message,
        }
    }
}

#[pymethods]
impl StoredMessage {
    /// The message to be written again, here or elsewhere.
    ///
    /// It has topic, queue, body, properties, flag, ``reconsume_times``, and the producer's time
    /// and host. The store's time and host and a transaction are left out. A compressed body stays
    /// as it is stored, and ``sys_flag`` says so; another one counts as not compressed.
    ///
    /// Args:
    ///     changes: MessageFields of ``Message`` that differ, such as ``topic`` and ``queue_id``.
    ///
    /// Raises:
    ///     InvalidMessageError: The topic is no text in UTF-8.
    #[pyo3(signature = (**changes))]
    fn to_message<'py>(
        &self,
        py: Python<'py>,
        changes: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Message>> {
        let view = self.view()?;
        let Ok(topic) = str::from_utf8(view.topic()) else {
            return Err(
                Error::argument("topic", "text in UTF-8", "other bytes; give topic=").into()
            );
        };
        let given = PyDict::new(py);
        given.set_item("topic", PyString::new(py, topic))?;
        given.set_item("body", PyBytes::new(py, view.body()))?;
        given.set_item("queue_id", view.queue_id())?;
        given.set_item("properties", PyBytes::new(py, view.raw_properties()))?;
        given.set_item("flag", view.flag())?;
        given.set_item("sys_flag", view.sys_flag() & COMPRESSION)?;
        let born = fields::kept_time(py, view.born_timestamp_ms())?;
        given.set_item("born_timestamp_ms", born)?;
        given.set_item("born_host", view.born_host().to_string())?;
        given.set_item("reconsume_times", view.reconsume_times())?;
        if let Some(changes) = changes {
            if changes.contains("body")? {
                given.del_item("sys_flag")?;
            }
            given.update(changes.as_mapping())?;
        }
        Ok(py.get_type::<Message>().call((), Some(&given))?.cast_into()?)
    }
}
