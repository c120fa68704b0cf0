//! Texts and numbers from sequences, buffers or Arrow arrays, read without Python objects.

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

use super::fields::{number, text_bytes, too_wide};
use crate::columns::{Function, FunctionError, RowsError};
use crate::format::java::key_hash_of;
use crate::format::message::host::Host;
use crate::py::arguments::{shown, type_error, value_error};
use crate::py::errors::{invalid, raise};

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

/// Hashes of keys, each `topic#key`.
pub(super) fn key_hashes(argument: &'static str, keys: &Bound<'_, PyAny>) -> PyResult<Vec<i32>> {
    let mut hashes = Vec::new();
    if let Some(chunks) = chunks_of(argument, keys)? {
        hashes.reserve(chunks.iter().map(|chunk| chunk.len()).sum());
        let hash = |key: Option<&str>| key_hash_of(key.unwrap_or_default().as_bytes());
        for chunk in &chunks {
            keys.py().detach(|| {
                match chunk.data_type() {
                    DataType::Utf8 => hashes.extend(chunk.as_string::<i32>().iter().map(hash)),
                    DataType::LargeUtf8 => hashes.extend(chunk.as_string::<i64>().iter().map(hash)),
                    DataType::Utf8View => hashes.extend(chunk.as_string_view().iter().map(hash)),
                    other => return Err(type_error(argument, "texts", other)),
                }
                PyResult::Ok(())
            })?;
        }
        return Ok(hashes);
    }
    if keys.is_instance_of::<PyString>() {
        return Err(type_error(argument, "a list of texts", "str; write [key]"));
    }
    hashes.reserve(keys.len().unwrap_or(0));
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
    Ok(hashes)
}

/// Numbers of an argument; one too wide is refused by its name.
pub(super) fn numbers(argument: &'static str, given: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    if let Some(chunks) = chunks_of(argument, given)? {
        let arrays: Vec<_> =
            chunks.iter().map(|chunk| int64(argument, chunk)).collect::<PyResult<_>>()?;
        return Ok(arrays.iter().flat_map(|array| array.values()).copied().collect());
    }
    if let Ok(list) = given.cast_exact::<PyList>() {
        let mut numbers = Vec::with_capacity(list.len());
        for item in list {
            numbers.push(number(argument, &item)?);
        }
        return Ok(numbers);
    }
    if let Ok(buffer) = PyBuffer::<i64>::get(given) {
        return buffer.to_vec(given.py());
    }
    given.extract().map_err(|error| too_wide(argument, given, 64, error))
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
    let field = Field::new("", function.returns(), true);
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
