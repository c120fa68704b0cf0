//! Converts arguments of `append` and `Message`.

use std::cell::Cell;
use std::path::PathBuf;

use arrow_array::timezone::Tz;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeEncodeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{
    PyBool, PyBytes, PyDateTime, PyDelta, PyDeltaAccess, PyDict, PyFloat, PyInt, PyMapping,
    PyMemoryView, PyString, PyTuple, PyTzInfo,
};

use crate::config::StoreConfig;
use crate::error::{Error, expected_got, start_of};
use crate::format::message::host::Host;
use crate::time::other_unit;

use crate::py::arguments::{shown, type_error, value_error};

/// The path from the root; the working folder may change later.
pub(super) fn absolute(path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let path = path_of("path", path)?;
    if let Some(path) = path.to_str().and_then(shown_url) {
        let what = "this call does not read URLs; nothing was read or changed: copy the store to a \
                    local folder first, with the tools of the object store";
        return Err(Error::Unsupported { what: what.to_owned(), path }.into());
    }
    Ok(std::path::absolute(&path).map_err(Error::io("find", path))?)
}

/// The path as it was given; one that no name of a file can be is refused.
pub(super) fn path_of(field: &str, path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    path.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyUnicodeEncodeError>(path.py()) {
            return wrong_type(field, "str or os.PathLike", path, error);
        }
        let reason = expected_got("a path in the system's encoding", error.value(path.py()));
        Error::InvalidConfig { field: field.to_owned(), reason }.into()
    })
}

/// A URL without what may be a secret in it; `None` for another path.
fn shown_url(text: &str) -> Option<PathBuf> {
    let (scheme, rest) = text.split_once("://")?;
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let host = rest.find('/').unwrap_or(rest.len());
    let begin = rest[..host].rfind('@').map_or(0, |at| at + 1);
    Some(format!("{scheme}://{}", &rest[begin..]).into())
}

pub(super) fn out_if_given(path: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    if path.is_none() { Ok(None) } else { absolute(path).map(Some) }
}

impl FromPyObject<'_, '_> for StoreConfig {
    type Error = PyErr;

    fn extract(settings: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        config_of(&settings)
    }
}

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
            return Err(expected(name.to_str()?, "bool, int or str", &value));
        };
        if name == StoreConfig::BROKER_CONF {
            config.given.insert(StoreConfig::BROKER_CONF.to_owned());
        } else {
            config.set(name.to_str()?, &text)?;
        }
    }
    Ok(config)
}

#[cold]
pub(super) fn expected(argument: &str, wanted: &str, found: &Bound<'_, PyAny>) -> PyErr {
    let found = found.get_type();
    let found = found.name().map_or_else(|_| String::new(), |name| name.to_string());
    type_error(argument, wanted, found)
}

/// Bytes of a buffer; only `bytes` is not copied.
#[inline]
pub(super) fn bytes_of<'py>(
    argument: &str,
    buffer: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    match buffer.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.clone()),
        Err(_) if buffer.is_instance_of::<PyString>() => {
            Err(expected(argument, "bytes (encode text: text.encode())", buffer))
        }
        Err(_) => {
            let view = PyMemoryView::from(buffer)
                .map_err(|error| wrong_type(argument, "bytes or another buffer", buffer, error))?;
            Ok(view.call_method0("tobytes")?.cast_into::<PyBytes>()?)
        }
    }
}

#[inline]
pub(super) fn number<'py, T>(field: &'static str, value: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    value.extract().map_err(|error: PyErr| too_wide(field, value, 8 * size_of::<T>(), error))
}

#[cold]
pub(super) fn wrong_type(
    argument: &str,
    wanted: &str,
    found: &Bound<'_, PyAny>,
    error: PyErr,
) -> PyErr {
    match error.is_instance_of::<PyTypeError>(found.py()) {
        true => expected(argument, wanted, found),
        false => error,
    }
}

#[cold]
pub(super) fn too_wide(
    field: &'static str,
    value: &Bound<'_, PyAny>,
    bits: usize,
    error: PyErr,
) -> PyErr {
    if !error.is_instance_of::<PyOverflowError>(value.py()) {
        return wrong_type(field, "int", value, error);
    }
    Error::argument(field, format!("a number of {bits} bits"), start_of(&value.to_string())).into()
}

#[inline]
pub(super) fn text_bytes<'a>(
    field: &'static str,
    text: &'a Bound<'_, PyString>,
) -> PyResult<&'a [u8]> {
    text.to_str().map(str::as_bytes).map_err(|error| not_utf8(text.py(), field, error))
}

/// The text's bytes; a lone surrogate is refused.
pub(super) fn utf8(field: &'static str, text: &Bound<'_, PyAny>) -> PyResult<PyBackedStr> {
    let text = text.cast::<PyString>().map_err(|_| expected(field, "str", text))?;
    text.extract().map_err(|error: PyErr| not_utf8(text.py(), field, error))
}

fn not_utf8(py: Python<'_>, field: &'static str, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyUnicodeEncodeError>(py) {
        Error::argument(field, "text in UTF-8", error.value(py)).into()
    } else {
        error
    }
}

/// The text itself; a lone surrogate is refused.
fn text_of<'a>(field: &'static str, text: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    let text = text.cast::<PyString>().map_err(|_| expected(field, "str", text))?;
    text.to_str().map_err(|error| not_utf8(text.py(), field, error))
}

macro_rules! texts {
    ($($name:ident)*) => {
        $(pub(super) fn $name<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
            text_of(stringify!($name), value)
        })*
    };
}

texts! { boundary level message_id mode name on_error text to }

macro_rules! arguments {
    ($($name:ident = $take:ident($field:literal $(, $inner:ident)?) -> $type:ty;)*) => {
        $(pub(super) fn $name(value: &Bound<'_, PyAny>) -> PyResult<$type> {
            $take($field, value $(, $inner)?)
        })*
    };
}

arguments! {
    topic = utf8("topic") -> PyBackedStr;
    key = utf8("key") -> PyBackedStr;
    one_of_keys = utf8("keys") -> PyBackedStr;
    key_if_given = optional("key", utf8) -> Option<PyBackedStr>;
    physical_offset = number("physical_offset") -> i64;
    any_physical_offset = saturated_as("physical_offset") -> i64;
    queue_offset = saturated_as("queue_offset") -> i64;
    start_physical_offset = optional("start_physical_offset", saturated_as) -> Option<i64>;
    stop_physical_offset = optional("stop_physical_offset", saturated_as) -> Option<i64>;
    timestamp_ms = time("timestamp_ms") -> i64;
    at_ms = time("at") -> i64;
    least_ms = time("begin_ms") -> i64;
    most_ms = time("end_ms") -> i64;
    now_ms = optional("now_ms", time) -> Option<i64>;
    begin_ms = optional("begin_ms", time) -> Option<i64>;
    end_ms = optional("end_ms", time) -> Option<i64>;
    group_begin = optional("begin", time) -> Option<i64>;
    timeout_s = seconds("timeout_s") -> f64;
    topic_if_given = optional("topic", utf8) -> Option<PyBackedStr>;
    index_timestamp_ms = number_or_time("store_timestamp_ms") -> i64;
    encoded_timestamp_ms = optional("store_timestamp_ms", number_or_time) -> Option<i64>;
    queue_id = number("queue_id") -> i32;
    queue_id_if_given = optional("queue_id", number) -> Option<i32>;
    flag = number("flag") -> i32;
    sys_flag = number("sys_flag") -> i32;
    delay_level = number("delay_level") -> i32;
    reconsume_times = number("reconsume_times") -> i32;
    prepared_transaction_offset = number("prepared_transaction_offset") -> i64;
    born_timestamp_ms = optional("born_timestamp_ms", record_time) -> Option<i64>;
    store_timestamp_ms = optional("store_timestamp_ms", record_time) -> Option<i64>;
    born_host = optional("born_host", host) -> Option<Host>;
    store_host = optional("store_host", host) -> Option<Host>;
    tags = optional("tags", utf8) -> Option<PyBackedStr>;
    unique_key = optional("unique_key", utf8) -> Option<PyBackedStr>;
    assume_timezone = optional("assume_timezone", utf8) -> Option<PyBackedStr>;
    max_messages = most("max_messages") -> usize;
    resume_from = most("resume_from") -> usize;
    max_bytes = optional("max_bytes", most) -> Option<u64>;
    max_entries = saturated_as("max_entries") -> i64;
    batch_rows = most("batch_rows") -> usize;
    batch_bytes = most("batch_bytes") -> usize;
    slots = saturated_as("slots") -> i64;
    entries = saturated_as("entries") -> i64;
    host_address = utf8("host") -> PyBackedStr;
    port = number("port") -> i32;
    exact = truth("exact") -> bool;
    atomic = truth("atomic") -> bool;
    decompress = truth("decompress") -> bool;
    verify_crc = truth("verify_crc") -> bool;
}

#[inline]
fn optional<'py, T>(
    field: &'static str,
    value: &Bound<'py, PyAny>,
    take: impl FnOnce(&'static str, &Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    if value.is_none() { Ok(None) } else { take(field, value).map(Some) }
}

fn host(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Host> {
    let text = utf8(field, value)?;
    text.parse().map_err(|_| {
        Error::argument(field, "an address such as 10.0.0.1:10911", shown(&text)).into()
    })
}

fn truth(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.extract().map_err(|error| wrong_type(field, "bool", value, error))
}

pub(super) fn number_or_time(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    if value.is_instance_of::<PyDateTime>() { time(field, value) } else { number(field, value) }
}

/// Unix milliseconds in a record.
fn record_time(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    match value.is_exact_instance_of::<PyInt>() {
        true => number(field, value).and_then(|given| milliseconds(field, given)),
        false => time(field, value),
    }
}

/// A record's time as an argument that [`record_time`] takes unchanged.
pub(super) fn kept_time(py: Python<'_>, ms: i64) -> PyResult<Bound<'_, PyAny>> {
    let ms = ms.into_pyobject(py)?.into_any();
    if record_time("born_timestamp_ms", &ms).is_ok() {
        return Ok(ms);
    }
    py.import("mqstore.text")?.getattr("Milliseconds")?.call1((ms,))
}

/// Refuses a number that can only be meant in another unit than milliseconds.
fn milliseconds(field: &'static str, given: i64) -> PyResult<i64> {
    match other_unit(given) {
        None => Ok(given),
        Some((unit, cure)) => {
            let got = format!("{given}, which looks like {unit}; {cure}, or give a datetime");
            Err(value_error(field, "milliseconds since 1970", got))
        }
    }
}

#[inline]
pub(super) fn no_others(function: &str, others: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    match others {
        None => Ok(()),
        Some(others) => Err(unexpected(function, &others.keys().get_item(0)?)),
    }
}

#[cold]
pub(super) fn unexpected(function: &str, name: &Bound<'_, PyAny>) -> PyErr {
    let names = name.py().import("mqstore.errors");
    let error = names.and_then(|names| names.call_method1("unexpected", (function, name)));
    error.map_or_else(|error| error, PyErr::from_value)
}

/// Unix milliseconds of an `int` or `datetime`, clamped.
fn time(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    if let Ok(at) = value.cast::<PyDateTime>() {
        if at.call_method0("utcoffset")?.is_none() {
            return Err(value_error(
                field,
                "a datetime with a time zone",
                "one without; for example datetime.now(timezone.utc), or .astimezone() for local time",
            ));
        }
        let utc = PyTzInfo::utc(value.py())?;
        let since = at.sub(PyDateTime::from_timestamp(value.py(), 0.0, Some(&utc))?)?;
        let since = since.cast_into::<PyDelta>()?;
        let (days, seconds) = (since.get_days(), since.get_seconds());
        let whole = i64::from(days) * 86_400_000 + i64::from(seconds) * 1000;
        return Ok(whole + i64::from(since.get_microseconds() / 1000));
    }
    if value.is_instance_of::<PyFloat>() {
        let wanted = "int (milliseconds; int(time.time() * 1000)) or datetime";
        return Err(expected(field, wanted, value));
    }
    let given = saturated(value)
        .map_err(|error| wrong_type(field, "int (milliseconds) or datetime", value, error))?;
    let is_plain = !value.is_instance_of::<PyInt>() || value.is_exact_instance_of::<PyInt>();
    if is_plain { milliseconds(field, given) } else { Ok(given) }
}

pub(super) fn zone(name: Option<&str>) -> PyResult<()> {
    match name.map(str::parse::<Tz>) {
        Some(Err(_)) => {
            let wanted = "a time zone, such as \"UTC\", \"Europe/Berlin\" or \"+08:00\"";
            Err(value_error("assume_timezone", wanted, shown(name.unwrap_or_default())))
        }
        _ => Ok(()),
    }
}

fn seconds(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    let wanted = "a number of seconds or timedelta";
    let given: f64 = match value.is_instance_of::<PyDelta>() {
        true => value.call_method0("total_seconds")?.extract()?,
        false => value.extract().map_err(|error| wrong_type(field, wanted, value, error))?,
    };
    if given >= 0.0 {
        return Ok(given);
    }
    Err(value_error(field, "0 s or more", format!("{given} s")))
}

fn saturated_as(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    saturated(value).map_err(|error| wrong_type(field, "int", value, error))
}

pub(super) fn saturated(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract().or_else(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(value.py()) {
            return Err(error);
        }
        Ok(if value.lt(0)? { i64::MIN } else { i64::MAX })
    })
}

fn most<T: TryFrom<i64>>(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<T> {
    let number = saturated_as(name, value)?;
    T::try_from(number).map_err(|_| value_error(name, "0 or more", number))
}

#[inline]
pub(super) fn each_key<'py>(
    keys: &Bound<'py, PyAny>,
    take: impl FnMut(&str) -> PyResult<()>,
) -> PyResult<()> {
    each_text("keys", keys, take)
}

#[inline]
pub(crate) fn each_text<'py>(
    argument: &'static str,
    texts: &Bound<'py, PyAny>,
    mut take: impl FnMut(&str) -> PyResult<()>,
) -> PyResult<()> {
    let py = texts.py();
    let mut take = |text: &Bound<'py, PyAny>| {
        let given = text.cast::<PyString>();
        let text = given.map_err(|_| expected(argument, "str or a sequence of str", text))?;
        take(text.to_str().map_err(|error| not_utf8(py, argument, error))?)
    };
    if texts.is_instance_of::<PyString>() {
        return take(texts);
    }
    if let Ok(texts) = texts.cast_exact::<PyTuple>() {
        return texts.iter().try_for_each(|text| take(&text));
    }
    let wanted = "str or a sequence of str";
    let all = texts.try_iter().map_err(|error| wrong_type(argument, wanted, texts, error))?;
    for text in all {
        take(&text?)?;
    }
    Ok(())
}

pub(super) fn each_pair<'py>(
    properties: &Bound<'py, PyAny>,
    mut take: impl FnMut(&Bound<'py, PyString>, &Bound<'py, PyString>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(pairs) = properties.cast_exact::<PyDict>() {
        // Another thread may change the dict during iteration, but not its copy.
        for (name, value) in pairs.copy()? {
            pair(&name, &value, &mut take)?;
        }
        return Ok(());
    }
    let wanted = "a mapping of str to str, or bytes";
    let pairs =
        properties.cast::<PyMapping>().map_err(|_| expected("properties", wanted, properties))?;
    for item in pairs.items()?.iter() {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        pair(&name, &value, &mut take)?;
    }
    Ok(())
}

fn pair<'py>(
    name: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
    take: &mut impl FnMut(&Bound<'py, PyString>, &Bound<'py, PyString>) -> PyResult<()>,
) -> PyResult<()> {
    let name = name.cast::<PyString>().map_err(|_| expected("properties", "names of str", name))?;
    let value = value.cast::<PyString>().map_err(|_| {
        let name = shown(&name.to_string());
        expected(&format!("properties[{name}]"), "str", value)
    })?;
    take(name, value)
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
