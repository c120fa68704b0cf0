//! Arguments of a message.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::error::Error;
use crate::py::arguments::{shown, type_error};
use crate::py::fields::{
    each_key, each_pair, host, number, optional, record_time, unexpected, utf8,
};
use crate::store::NewMessage;
use crate::store::write::property_block::PropertyBlock;

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
/// A function by its name, and how many of [`NAMES`] it takes.
type Function = (&'static str, usize);
pub(super) const MESSAGE: Function = ("Message", NAMES.len());
pub(super) const APPEND: Function = ("Store.append", 11);
/// The objects of literal names.
static INTERNED: PyOnceLock<[Py<PyString>; NAMES.len()]> = PyOnceLock::new();

pub(super) fn place_of(name: &Bound<'_, PyAny>, (_, count): Function) -> Option<usize> {
    let py = name.py();
    let interned =
        INTERNED.get_or_init(py, || NAMES.map(|name| PyString::intern(py, name).unbind()));
    interned[..count].iter().position(|known| known.as_ptr() == name.as_ptr()).or_else(|| {
        let name = name.cast::<PyString>().ok()?.to_str().ok()?;
        NAMES[..count].iter().position(|known| *known == name)
    })
}

#[derive(Default)]
pub(super) struct MessageFields<'py> {
    pub(super) topic: Option<PyBackedStr>,
    pub(super) body: Option<Bound<'py, PyAny>>,
    pub(super) queue_id: Option<i32>,
    pub(super) tags: Option<PyBackedStr>,
    pub(super) keys: Option<Bound<'py, PyAny>>,
    pub(super) unique_key: Option<PyBackedStr>,
    pub(super) properties: Option<Bound<'py, PyAny>>,
    pub(super) delay_level: i32,
    /// Flags, times, hosts and counts; all else is empty.
    pub(super) rest: NewMessage<'static>,
}

impl<'py> MessageFields<'py> {
    pub(super) fn new() -> Self {
        Self { queue_id: Some(0), ..Self::default() }
    }

    pub(super) fn of_call(
        function: Function,
        topic: &Bound<'py, PyAny>,
        body: &Bound<'py, PyAny>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        let mut arguments = Self::new();
        arguments.set_at(0, topic)?;
        arguments.set_at(1, body)?;
        named.map_or(Ok(()), |named| arguments.set_named(function, named))?;
        Ok(arguments)
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
        arguments.set_named(MESSAGE, given)?;
        Ok(arguments)
    }

    fn set_named(&mut self, function: Function, given: &Bound<'py, PyDict>) -> PyResult<()> {
        for (name, value) in given {
            let at = place_of(&name, function).ok_or_else(|| unexpected(function.0, &name))?;
            self.set_at(at, &value)?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn set_at(&mut self, at: usize, value: &Bound<'py, PyAny>) -> PyResult<()> {
        let name = NAMES[at];
        let given = || (!value.is_none()).then(|| value.clone());
        match at {
            0 => self.topic = Some(utf8(name, value)?),
            1 => self.body = Some(value.clone()),
            2 => self.queue_id = optional(name, value, number)?,
            3 => self.tags = optional(name, value, utf8)?,
            4 => self.keys = given(),
            5 => self.unique_key = optional(name, value, utf8)?,
            6 => self.properties = given(),
            7 => self.rest.flag = number(name, value)?,
            8 => self.rest.born_timestamp_ms = optional(name, value, record_time)?,
            9 => self.rest.born_host = optional(name, value, host)?,
            10 => self.delay_level = number(name, value)?,
            11 => self.rest.sys_flag = number(name, value)?,
            12 => self.rest.store_timestamp_ms = optional(name, value, record_time)?,
            13 => self.rest.store_host = optional(name, value, host)?,
            14 => self.rest.reconsume_times = number(name, value)?,
            _ => self.rest.prepared_transaction_offset = number(name, value)?,
        }
        Ok(())
    }

    /// Writes the property block to `out`, or returns the one given. `taken`: keys read before.
    #[inline]
    pub(super) fn to_block(
        &self,
        taken: Option<&[PyBackedStr]>,
        out: &mut Vec<u8>,
    ) -> PyResult<Block<'_, 'py>> {
        let properties = self.properties.as_ref();
        if let Some(whole) = properties.and_then(|given| given.cast::<PyBytes>().ok()) {
            return self.alone(taken, whole).map(Block::Whole);
        }
        let mut block = PropertyBlock::new(out);
        if let Some(tags) = self.tags.as_deref() {
            check_tag(tags)?;
            block.tags(tags.as_bytes())?;
        }
        match (taken, &self.keys) {
            (Some(taken), _) => taken.iter().try_for_each(|key| block.key(key.as_bytes()))?,
            (None, Some(keys)) => each_key(keys, |key| Ok(block.key(key.as_bytes())?))?,
            (None, None) => {}
        }
        block.end_keys();
        if let Some(unique_key) = &self.unique_key {
            block.unique_key(unique_key.as_bytes())?;
        }
        block.delay_level(self.delay_level)?;
        if let Some(properties) = properties {
            each_pair(properties, |name, value| {
                let text = |of: &'_ Bound<'py, PyString>| utf8("properties", of.as_any());
                let (name, value) = (text(name)?, text(value)?);
                Ok(block.pair(name.as_bytes(), value.as_bytes())?)
            })?;
        }
        Ok(Block::Written { counts_inner_messages: block.counts_inner_messages() })
    }

    fn alone<'a>(
        &self,
        taken: Option<&[PyBackedStr]>,
        whole: &'a Bound<'py, PyBytes>,
    ) -> PyResult<&'a Bound<'py, PyBytes>> {
        let mut has_keys = taken.is_some_and(|keys| !keys.is_empty());
        if let (None, Some(keys)) = (taken, &self.keys) {
            each_key(keys, |_| {
                has_keys = true;
                Ok(())
            })?;
        }
        let others = [
            ("tags", self.tags.is_some()),
            ("unique_key", self.unique_key.is_some()),
            ("delay_level", self.delay_level != 0),
            ("keys", has_keys),
        ];
        let Some((beside, _)) = others.into_iter().find(|(_, given)| *given) else {
            return Ok(whole);
        };
        Err(Error::argument(
            beside,
            "nothing beside properties given as bytes",
            "both; put it into the properties",
        )
        .into())
    }
}

#[inline]
fn check_tag(tag: &str) -> PyResult<()> {
    let outer = |byte: Option<&u8>| byte.is_some_and(|byte| *byte <= b' ');
    let bytes = tag.as_bytes();
    if tag != "*" && !outer(bytes.first()) && !outer(bytes.last()) && !tag.contains("||") {
        return Ok(());
    }
    let why = match tag {
        "*" => "selects every tag",
        _ if tag.contains("||") => "has ||, which divides the tags of an expression",
        _ => "begins or ends with white space, which an expression loses",
    };
    let shown = shown(tag);
    let expected = "a tag that can be selected again, or properties={\"TAGS\": ...}";
    Err(Error::argument("tags", expected, format!("{shown}, which {why}")).into())
}

pub(super) enum Block<'a, 'py> {
    Written {
        /// Whether it has a property reserved for batches.
        counts_inner_messages: bool,
    },
    Whole(&'a Bound<'py, PyBytes>),
}
