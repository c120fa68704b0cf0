//! Converts arguments of `append` and `Message`.

use std::cell::Cell;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeEncodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyMapping, PyMemoryView, PyString, PyTuple};

use crate::config::StoreConfig;
use crate::format::message::host::Host;
use crate::store::write::property_block::PropertyBlock;

use super::errors::invalid;

/// Settings by name; unknown ones are left.
pub(super) fn config_of(settings: &Bound<'_, PyAny>) -> PyResult<StoreConfig> {
    let given = PyDict::new(settings.py());
    given.update(settings.cast()?)?;
    let mut config = StoreConfig::default();
    for (name, value) in given {
        let name: Bound<'_, PyString> = name.cast_into()?;
        let text = if let Ok(truth) = value.cast::<PyBool>() {
            truth.is_true().to_string()
        } else if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyString>() {
            value.str()?.to_str()?.to_owned()
        } else {
            let found = value.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{name} is bool, int or str, not {found}")));
        };
        config.set(name.to_str()?, &text)?;
    }
    Ok(config)
}

/// Bytes of a buffer; only `bytes` is not copied.
#[inline]
pub(super) fn bytes_of<'py>(buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    match buffer.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.clone()),
        Err(_) => {
            let view = PyMemoryView::from(buffer)?;
            Ok(view.call_method0("tobytes")?.cast_into::<PyBytes>()?)
        }
    }
}

/// A message's number; one too wide is an invalid message.
#[inline]
pub(super) fn number<'py, T>(field: &'static str, value: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    value.extract().map_err(|error: PyErr| too_wide(field, value, 8 * size_of::<T>(), error))
}

/// Replaces an overflow error; others stay unchanged.
#[cold]
pub(super) fn too_wide(
    field: &'static str,
    value: &Bound<'_, PyAny>,
    bits: usize,
    error: PyErr,
) -> PyErr {
    if !error.is_instance_of::<PyOverflowError>(value.py()) {
        return error;
    }
    let shown: String = value.to_string().chars().take(64).collect();
    invalid(field, format!("{shown} does not fit {bits} bits"))
}

#[inline]
pub(super) fn text_bytes<'a>(
    field: &'static str,
    text: &'a Bound<'_, PyString>,
) -> PyResult<&'a [u8]> {
    text.to_str().map(str::as_bytes).map_err(|error| not_utf8(text.py(), field, error))
}

/// The text's bytes; a lone surrogate is refused.
fn utf8(field: &'static str, text: &Bound<'_, PyAny>) -> PyResult<PyBackedStr> {
    text.extract().map_err(|error: PyErr| not_utf8(text.py(), field, error))
}

fn not_utf8(py: Python<'_>, field: &'static str, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyUnicodeEncodeError>(py) {
        invalid(field, format!("is no text in UTF-8: {}", error.value(py)))
    } else {
        error
    }
}

macro_rules! arguments {
    ($($name:ident = $take:ident($field:literal) -> $type:ty;)*) => {
        $(pub(super) fn $name(value: &Bound<'_, PyAny>) -> PyResult<$type> {
            $take($field, value)
        })*
    };
}

arguments! {
    topic = utf8("topic") -> PyBackedStr;
    key = utf8("key") -> PyBackedStr;
    physical_offset = number("physical_offset") -> i64;
    index_timestamp_ms = number("store_timestamp_ms") -> i64;
    queue_id = number("queue_id") -> i32;
    flag = number("flag") -> i32;
    sys_flag = number("sys_flag") -> i32;
    delay_level = number("delay_level") -> i32;
    reconsume_times = number("reconsume_times") -> i32;
    prepared_transaction_offset = number("prepared_transaction_offset") -> i64;
    born_timestamp_ms = optional_number("born_timestamp_ms") -> Option<i64>;
    store_timestamp_ms = optional_number("store_timestamp_ms") -> Option<i64>;
    tags = optional_utf8("tags") -> Option<PyBackedStr>;
    unique_key = optional_utf8("unique_key") -> Option<PyBackedStr>;
    max_messages = most("max_messages") -> usize;
    max_bytes = optional_most("max_bytes") -> Option<u64>;
}

fn optional_number(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if value.is_none() { Ok(None) } else { number(field, value).map(Some) }
}

fn optional_utf8(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Option<PyBackedStr>> {
    if value.is_none() { Ok(None) } else { utf8(field, value).map(Some) }
}

/// A bound, clamped to 64 bits.
pub(super) fn saturated(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract().or_else(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(value.py()) {
            return Err(error);
        }
        Ok(if value.lt(0)? { i64::MIN } else { i64::MAX })
    })
}

/// [`saturated`] for an optional argument.
pub(super) fn saturated_if_given(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if value.is_none() { Ok(None) } else { saturated(value).map(Some) }
}

fn most<T: TryFrom<i64>>(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<T> {
    let number = saturated(value)?;
    T::try_from(number)
        .map_err(|_| PyValueError::new_err(format!("{name} is 0 or more, not {number}")))
}

fn optional_most(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if value.is_none() { Ok(None) } else { most(name, value).map(Some) }
}

pub(super) fn host_of(field: &'static str, text: Option<&str>) -> PyResult<Option<Host>> {
    match text {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(host) => Ok(Some(host)),
            Err(error) => Err(invalid(field, format!("{text:?} is {error}"))),
        },
    }
}

pub(super) struct Named<'a, 'py> {
    pub(super) tags: Option<&'a str>,
    pub(super) keys: Option<&'a Bound<'py, PyAny>>,
    pub(super) unique_key: Option<&'a str>,
    pub(super) delay_level: i32,
    pub(super) properties: Option<&'a Bound<'py, PyAny>>,
}

impl<'a, 'py> Named<'a, 'py> {
    /// Writes the property block to `out`, or returns the block that was given.
    #[inline]
    pub(super) fn to_block(&self, out: &mut Vec<u8>) -> PyResult<Block<'a, 'py>> {
        if let Some(whole) = self.properties.and_then(|given| given.cast::<PyBytes>().ok()) {
            return self.alone(whole).map(Block::Whole);
        }
        let mut block = PropertyBlock::new(out);
        if let Some(tags) = self.tags {
            block.tags(tags.as_bytes())?;
        }
        if let Some(keys) = self.keys {
            each_key(keys, |key| Ok(block.key(key.as_bytes())?))?;
            block.end_keys();
        }
        if let Some(unique_key) = self.unique_key {
            block.unique_key(unique_key.as_bytes())?;
        }
        block.delay_level(self.delay_level)?;
        if let Some(properties) = self.properties {
            each_pair(properties, |name, value| {
                let text = |of: &'_ Bound<'py, PyString>| utf8("properties", of.as_any());
                let (name, value) = (text(name)?, text(value)?);
                Ok(block.pair(name.as_bytes(), value.as_bytes())?)
            })?;
        }
        Ok(Block::Written { counts_inner_messages: block.counts_inner_messages() })
    }

    /// The given block, which excludes other properties.
    fn alone(&self, whole: &'a Bound<'py, PyBytes>) -> PyResult<&'a Bound<'py, PyBytes>> {
        let beside = if self.tags.is_some() {
            "tags"
        } else if self.unique_key.is_some() {
            "unique_key"
        } else if self.delay_level != 0 {
            "delay_level"
        } else {
            let mut has_keys = false;
            if let Some(keys) = self.keys {
                each_key(keys, |_| {
                    has_keys = true;
                    Ok(())
                })?;
            }
            if !has_keys {
                return Ok(whole);
            }
            "keys"
        };
        Err(invalid(beside, "cannot stand beside properties given as bytes, which are all of them"))
    }
}

pub(super) enum Block<'a, 'py> {
    Written {
        /// Whether it has a property reserved for batches.
        counts_inner_messages: bool,
    },
    Whole(&'a Bound<'py, PyBytes>),
}

#[inline]
pub(super) fn each_key<'py>(
    keys: &Bound<'py, PyAny>,
    mut take: impl FnMut(&str) -> PyResult<()>,
) -> PyResult<()> {
    let py = keys.py();
    let mut take = |key: &Bound<'py, PyString>| {
        take(key.to_str().map_err(|error| not_utf8(py, "keys", error))?)
    };
    if let Ok(one) = keys.cast::<PyString>() {
        return take(one);
    }
    if let Ok(keys) = keys.cast_exact::<PyTuple>() {
        for key in keys.iter() {
            take(key.cast::<PyString>()?)?;
        }
        return Ok(());
    }
    for key in keys.try_iter()? {
        take(&key?.cast_into::<PyString>()?)?;
    }
    Ok(())
}

/// Calls `take` with each pair of a mapping, in order.
pub(super) fn each_pair<'py>(
    properties: &Bound<'py, PyAny>,
    mut take: impl FnMut(&Bound<'py, PyString>, &Bound<'py, PyString>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(pairs) = properties.cast_exact::<PyDict>() {
        // Another thread may change the dict during iteration, but not its copy.
        for (name, value) in pairs.copy()? {
            take(name.cast()?, value.cast()?)?;
        }
        return Ok(());
    }
    for pair in properties.cast::<PyMapping>()?.items()?.iter() {
        let (name, value): (Bound<'_, PyString>, Bound<'_, PyString>) = pair.extract()?;
        take(&name, &value)?;
    }
    Ok(())
}

thread_local! {
    static BLOCK: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends the thread's empty buffer. It is taken out meanwhile, since `work` may call this again.
#[inline]
pub(super) fn with_block<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut block = BLOCK.take();
    block.clear();
    let result = work(&mut block);
    BLOCK.set(block);
    result
}
