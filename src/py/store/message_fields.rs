//! Arguments of a message.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::error::Error;
use crate::py::arguments::{shown, type_error};
use crate::py::fields::{self, each_key, each_pair, unexpected, utf8};
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
    /// The other fields, as a record has them.
    pub(super) record: NewMessage<'static>,
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
        let record = &mut self.record;
        match at {
            0 => self.topic = Some(fields::topic(value)?),
            1 => self.body = Some(value.clone()),
            2 => self.queue_id = fields::queue_id_if_given(value)?,
            3 => self.tags = fields::tags(value)?,
            4 => self.keys = given(),
            5 => self.unique_key = fields::unique_key(value)?,
            6 => self.properties = given(),
            7 => record.flag = fields::flag(value)?,
            8 => record.born_timestamp_ms = fields::born_timestamp_ms(value)?,
            9 => record.born_host = fields::born_host(value)?,
            10 => self.delay_level = fields::delay_level(value)?,
            11 => record.sys_flag = fields::sys_flag(value)?,
            12 => record.store_timestamp_ms = fields::store_timestamp_ms(value)?,
            13 => record.store_host = fields::store_host(value)?,
            14 => record.reconsume_times = fields::reconsume_times(value)?,
            _ => record.prepared_transaction_offset = fields::prepared_transaction_offset(value)?,
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
