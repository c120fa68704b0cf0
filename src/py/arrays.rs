//! Texts and numbers as they are given: sequences, or Arrow arrays, of which no value becomes a Python
//! object.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::DataType;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3_arrow::error::PyArrowError;
use pyo3_arrow::input::AnyArray;

use crate::format::java::key_hash_of;

/// The chunks of an object that gives Arrow arrays; `None` for any other.
fn chunks_of(argument: &str, given: &Bound<'_, PyAny>) -> PyResult<Option<Vec<ArrayRef>>> {
    if !given.hasattr("__arrow_c_array__")? && !given.hasattr("__arrow_c_stream__")? {
        return Ok(None);
    }
    let chunks = given
        .extract::<AnyArray>()?
        .into_reader()?
        .collect::<Result<Vec<_>, _>>()
        .map_err(PyArrowError::from)?;
    if chunks.iter().any(|chunk| chunk.null_count() > 0) {
        return Err(PyValueError::new_err(format!("{argument} has a null")));
    }
    Ok(Some(chunks))
}

/// The hashes of keys that are given as `topic#key`.
pub(super) fn key_hashes(argument: &str, keys: &Bound<'_, PyAny>) -> PyResult<Vec<i32>> {
    if let Some(chunks) = chunks_of(argument, keys)? {
        return keys.py().detach(|| {
            let mut hashes = Vec::with_capacity(chunks.iter().map(|chunk| chunk.len()).sum());
            for chunk in &chunks {
                hash_chunk(argument, chunk, &mut hashes)?;
            }
            Ok(hashes)
        });
    }
    if keys.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(format!("{argument} are several texts, not one")));
    }
    let mut hashes = Vec::with_capacity(keys.len().unwrap_or(0));
    for key in keys.try_iter()? {
        hashes.push(key_hash_of(key?.cast::<PyString>()?.to_str()?.as_bytes()));
    }
    Ok(hashes)
}

fn hash_chunk(argument: &str, chunk: &ArrayRef, hashes: &mut Vec<i32>) -> PyResult<()> {
    let hash = |key: Option<&str>| key_hash_of(key.unwrap_or_default().as_bytes());
    match chunk.data_type() {
        DataType::Utf8 => hashes.extend(chunk.as_string::<i32>().iter().map(hash)),
        DataType::LargeUtf8 => hashes.extend(chunk.as_string::<i64>().iter().map(hash)),
        DataType::Utf8View => hashes.extend(chunk.as_string_view().iter().map(hash)),
        other => {
            return Err(PyTypeError::new_err(format!("{argument} are texts, not {other}")));
        }
    }
    Ok(())
}

/// Numbers of 64 bits.
pub(super) fn numbers(argument: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    let Some(chunks) = chunks_of(argument, given)? else {
        return given.extract();
    };
    let mut numbers = Vec::with_capacity(chunks.iter().map(|chunk| chunk.len()).sum());
    for chunk in &chunks {
        if !chunk.data_type().is_integer() {
            let found = chunk.data_type();
            return Err(PyTypeError::new_err(format!("{argument} are int64, not {found}")));
        }
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let chunk = cast_with_options(chunk, &DataType::Int64, &strict)
            .map_err(|error| PyOverflowError::new_err(format!("{argument}: {error}")))?;
        numbers.extend_from_slice(chunk.as_primitive::<Int64Type>().values());
    }
    Ok(numbers)
}
