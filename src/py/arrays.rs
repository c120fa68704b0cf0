//! Texts and numbers from sequences, buffers or Arrow arrays, read in place without Python objects.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use pyo3_arrow::PyArray;
use pyo3_arrow::error::PyArrowError;
use pyo3_arrow::input::AnyArray;

use super::fields::{text_bytes, wrong_type};
use crate::columns::{Function, FunctionError, RowsError};
use crate::error::Result;
use crate::format::java::key_hash_of;
use crate::format::message::host::Host;
use crate::py::arguments::{shown, type_error, value_error};
use crate::py::errors::{invalid, raise};

/// Keys hashed at a time, so that hashes stay in the cache.
pub(super) const HASH_CHUNK: usize = 1024;

/// Chunks of an Arrow object; `None` for any other.
fn chunks_of(argument: &str, given: &Bound<'_, PyAny>) -> PyResult<Option<Vec<ArrayRef>>> {
    // The most common case, and the slowest to probe for attributes.
    if given.is_exact_instance_of::<PyList>()
        || !given.hasattr("__arrow_c_array__")? && !given.hasattr("__arrow_c_stream__")?
    {
        return Ok(None);
    }
    let chunks = given
        .extract::<AnyArray>()?
        .into_reader()?
        .collect::<Result<Vec<_>, _>>()
        .map_err(PyArrowError::from)?;
    if chunks.iter().any(|chunk| chunk.null_count() > 0) {
        return Err(value_error(argument, "no null", "one; drop it or fill it"));
    }
    Ok(Some(chunks))
}

/// Keys as `topic#key`: hashes or texts.
pub(super) enum IndexKeys {
    Hashes(Vec<i32>),
    Texts(Vec<ArrayRef>),
}

impl IndexKeys {
    pub(super) fn of(argument: &'static str, keys: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Some(chunks) = chunks_of(argument, keys)? {
            for chunk in &chunks {
                let texts = [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View];
                if !texts.contains(chunk.data_type()) {
                    return Err(type_error(argument, "texts", chunk.data_type()));
                }
            }
            return Ok(Self::Texts(chunks));
        }
        if keys.is_instance_of::<PyString>() {
            return Err(type_error(argument, "a list of texts", "str; write [key]"));
        }
        let mut hashes = Vec::with_capacity(keys.len().unwrap_or(0));
        let mut take = |key: Bound<'_, PyAny>| {
            hashes.push(key_hash_of(text_bytes(argument, key.cast::<PyString>()?)?));
            PyResult::Ok(())
        };
        match keys.cast_exact::<PyList>() {
            Ok(list) => list.iter().try_for_each(take)?,
            Err(_) => {
                for key in keys.try_iter()? {
                    take(key?)?;
                }
            }
        }
        Ok(Self::Hashes(hashes))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Hashes(hashes) => hashes.len(),
            Self::Texts(chunks) => chunks.iter().map(|chunk| chunk.len()).sum(),
        }
    }

    /// Passes the hashes to `take` in chunks until it returns `false`.
    pub(super) fn hashes(&self, mut take: impl FnMut(&[i32]) -> Result<bool>) -> Result<()> {
        match self {
            Self::Hashes(hashes) => {
                for chunk in hashes.chunks(HASH_CHUNK) {
                    if !take(chunk)? {
                        break;
                    }
                }
            }
            Self::Texts(chunks) => {
                let mut hashes = Vec::with_capacity(HASH_CHUNK);
                for chunk in chunks {
                    for begin in (0..chunk.len()).step_by(HASH_CHUNK) {
                        hashes.clear();
                        let len = HASH_CHUNK.min(chunk.len() - begin);
                        hash_texts(&chunk.slice(begin, len), &mut hashes);
                        if !take(&hashes)? {
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn hash_texts(texts: &ArrayRef, hashes: &mut Vec<i32>) {
    let hash = |key: Option<&str>| key_hash_of(key.unwrap_or_default().as_bytes());
    match texts.data_type() {
        DataType::LargeUtf8 => hashes.extend(texts.as_string::<i64>().iter().map(hash)),
        DataType::Utf8View => hashes.extend(texts.as_string_view().iter().map(hash)),
        _ => hashes.extend(texts.as_string::<i32>().iter().map(hash)),
    }
}

pub(super) enum Numbers {
    Copied(Vec<i64>),
    Arrays(Vec<Int64Array>),
}

impl Numbers {
    /// Reads numbers; one too wide is refused by the argument's name.
    pub(super) fn of<'py>(
        argument: &'static str,
        given: &Bound<'py, PyAny>,
        take: impl Fn(&'static str, &Bound<'py, PyAny>) -> PyResult<i64>,
    ) -> PyResult<Self> {
        if let Some(chunks) = chunks_of(argument, given)? {
            let arrays = chunks.iter().map(|chunk| int64(argument, chunk)).collect::<PyResult<_>>();
            return arrays.map(Self::Arrays);
        }
        if let Ok(list) = given.cast_exact::<PyList>() {
            let mut numbers = Vec::with_capacity(list.len());
            for item in list {
                numbers.push(take(argument, &item)?);
            }
            return Ok(Self::Copied(numbers));
        }
        if let Ok(buffer) = PyBuffer::<i64>::get(given) {
            return buffer.to_vec(given.py()).map(Self::Copied);
        }
        let items = given.try_iter();
        let items = items.map_err(|error| wrong_type(argument, "a sequence of int", given, error));
        items?.map(|item| take(argument, &item?)).collect::<PyResult<_>>().map(Self::Copied)
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Copied(numbers) => numbers.len(),
            Self::Arrays(chunks) => chunks.iter().map(Array::len).sum(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = i64> {
        let (copied, arrays) = match self {
            Self::Copied(numbers) => (numbers.as_slice(), [].as_slice()),
            Self::Arrays(chunks) => ([].as_slice(), chunks.as_slice()),
        };
        copied.iter().chain(arrays.iter().flat_map(|chunk| chunk.values())).copied()
    }
}

fn int64(argument: &'static str, chunk: &ArrayRef) -> PyResult<Int64Array> {
    if !chunk.data_type().is_integer() {
        return Err(type_error(argument, "int64", chunk.data_type()));
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let numbers = cast_with_options(chunk, &DataType::Int64, &strict);
    let numbers = numbers.map_err(|error| invalid(argument, error.to_string()))?;
    Ok(numbers.as_primitive::<Int64Type>().clone())
}

/// A function of ``mqstore.spark.functions`` on whole columns; it gives a ``pyarrow.Array``.
///
/// Raises:
///     InvalidMessageError: A message that no record can hold; a note names its row.
///     TypeError: Columns of another kind or number.
///     ValueError: No such function, a struct that is no message's, more than 1 GiB of a column.
#[pyfunction]
#[pyo3(signature = (name, /, *arguments))]
pub(crate) fn _array_function<'py>(
    py: Python<'py>,
    name: &str,
    arguments: Vec<PyArray>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(function) = Function::by_name(name) else {
        return Err(value_error("name", "a function's name", shown(name)));
    };
    let arguments: Vec<ArrayRef> =
        arguments.into_iter().map(|array| array.into_inner().0).collect();
    let column = py.detach(|| function.call(&arguments)).map_err(exception)?;
    let field = Field::new("", column.data_type().clone(), true);
    let array = PyArray::try_new(column, field.into()).map_err(PyArrowError::from)?;
    let given = array.to_pyarrow(py)?.unbind();
    Ok(given.into_bound(py))
}

fn exception(error: FunctionError) -> PyErr {
    match error {
        FunctionError::Message { row, error } => {
            let raised = raise(error, Host::V4([0; 4], 0));
            Python::attach(|py| {
                // An exception that takes no note is raised unchanged.
                drop(
                    raised
                        .value(py)
                        .call_method1("add_note", (format!("in row {row} of the batch"),)),
                );
            });
            raised
        }
        FunctionError::Arguments { .. } | FunctionError::Rows(RowsError::Type { .. }) => {
            PyTypeError::new_err(error.to_string())
        }
        _ => PyValueError::new_err(error.to_string()),
    }
}
