//! The functions over columns that Spark's `mq_*` call.

use arrow_array::ArrayRef;
use arrow_schema::Field;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3_arrow::PyArray;
use pyo3_arrow::error::PyArrowError;

use crate::columns::{Function, FunctionError, RowsError};
use crate::format::message::host::Host;

use crate::py::errors::raise;

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
        return Err(PyValueError::new_err(format!("there is no function {name:?}")));
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
