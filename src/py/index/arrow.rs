//! Entries and look-ups of an index file as Arrow arrays.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, Int32Array, Int64Array, ListArray, PrimitiveArray, RecordBatch,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyTuple};
use pyo3_arrow::ffi::{to_array_pycapsules, to_schema_pycapsule};

use crate::columns::BatchError;
use crate::error::{CorruptionKind, Error, Result};
use crate::files::Storage;
use crate::format::index::{self as format, ENTRY_LEN, IndexLayout};
use crate::format::width::{clamp_u32, saturating_i32, to_usize};
use crate::log;
use crate::log::index::file::{IndexFile, IndexOpen};

use crate::py::scan::ArrowScan;

const BATCH_ROWS: usize = 8192;

pub(crate) fn read_entries(file: &IndexFile, first: u32, raw: &mut [u8]) -> Result<()> {
    let (path, position) = (file.path(), file.layout().entry_position(first));
    let wanted = raw.len();
    let read = file.file().read_at(raw, position).map_err(Error::io("read", path))?;
    if read == wanted {
        return Ok(());
    }
    let end = position.saturating_add(read as u64);
    let (expected, found) = (format!("{wanted} bytes of entries"), format!("{read} bytes"));
    Err(Error::corrupt(path, end, CorruptionKind::FileLength, expected, found))
}

/// Entries of a file; each stream opens it.
pub(crate) fn entries(storage: Arc<dyn Storage>, path: PathBuf, layout: IndexLayout) -> ArrowScan {
    let field = |(name, array): (_, ArrayRef)| Field::new(name, array.data_type().clone(), false);
    let schema = Schema::new(columns(0, &[]).map(field).to_vec());
    ArrowScan::new(Arc::new(schema), move |schema, _| {
        let file = IndexFile::open(&*storage, &path, layout, IndexOpen::Read)?;
        let end = clamp_u32(file.header()?.index_count);
        let starts = (1..end).step_by(BATCH_ROWS);
        let batch = move |first| {
            let rows = to_usize(end - first).min(BATCH_ROWS);
            entry_batch(&file, Arc::clone(&schema), first, rows)
        };
        Ok(Box::new(starts.map(batch)))
    })
}

fn entry_batch(
    file: &IndexFile,
    schema: SchemaRef,
    first: u32,
    rows: usize,
) -> std::result::Result<RecordBatch, BatchError> {
    let mut raw = vec![0; rows * ENTRY_LEN];
    read_entries(file, first, &mut raw)?;
    let (raw, _) = raw.as_chunks::<ENTRY_LEN>();
    let entries: Vec<_> = raw.iter().map(format::IndexEntry::decode).collect();
    let columns = columns(first, &entries).map(|(_, array)| array);
    Ok(RecordBatch::try_new(schema, columns.to_vec())?)
}

/// Names and values of the columns.
fn columns(first: u32, entries: &[format::IndexEntry]) -> [(&'static str, ArrayRef); 5] {
    let ints = |value: fn(&format::IndexEntry) -> i32| -> ArrayRef {
        Arc::new(entries.iter().map(|entry| Some(value(entry))).collect::<Int32Array>())
    };
    // A file has less than 2^31 bytes, so entry numbers fit.
    let numbers: Int32Array = (first.cast_signed()..).take(entries.len()).map(Some).collect();
    let offsets: Int64Array = entries.iter().map(|entry| Some(entry.physical_offset)).collect();
    [
        ("number", Arc::new(numbers)),
        ("key_hash", ints(|entry| entry.key_hash)),
        ("physical_offset", Arc::new(offsets)),
        ("seconds", ints(|entry| entry.seconds)),
        ("prev_entry", ints(|entry| entry.prev_entry)),
    ]
}

/// A list of physical offsets for each key asked for; an Arrow array of ``list<int64>``.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct OffsetLists {
    lists: ListArray,
}

impl OffsetLists {
    /// `None` if there are too many offsets for a list.
    pub(crate) fn new(lists: log::OffsetLists) -> Option<Self> {
        let log::OffsetLists { offsets, ends: list_ends, .. } = lists;
        // The last is the largest.
        i32::try_from(offsets.len()).ok()?;
        let mut ends = Vec::with_capacity(list_ends.len() + 1);
        ends.push(0);
        ends.extend(list_ends.iter().map(|&end| saturating_i32(end)));
        let offsets = PrimitiveArray::<Int64Type>::from(offsets);
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        Some(Self { lists: ListArray::new(item(), ends, Arc::new(offsets), None) })
    }

    fn field(&self) -> FieldRef {
        Arc::new(Field::new("", self.lists.data_type().clone(), false))
    }

    fn list(&self, number: usize) -> Option<&[i64]> {
        let ends = self.lists.value_offsets().get(number..number.checked_add(2)?)?;
        let range = usize::try_from(*ends.first()?).ok()?..usize::try_from(*ends.last()?).ok()?;
        self.lists.values().as_primitive::<Int64Type>().values().get(range)
    }
}

fn item() -> FieldRef {
    Arc::new(Field::new("item", DataType::Int64, true))
}

#[pymethods]
impl OffsetLists {
    fn __len__(&self) -> usize {
        self.lists.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<Vec<i64>> {
        let from_end = || self.lists.len().checked_sub(index.unsigned_abs());
        let place = usize::try_from(index).ok().or_else(from_end);
        match place.and_then(|place| self.list(place)) {
            Some(list) => Ok(list.to_vec()),
            None => Err(PyIndexError::new_err(format!("there is no list {index}"))),
        }
    }

    /// All lists as Python integers.
    fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, (0..self.lists.len()).map(|place| self.list(place).unwrap_or_default()))
    }

    /// The type as a capsule of the Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.field().as_ref())?)
    }

    /// Type and data as capsules of the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        Ok(to_array_pycapsules(py, self.field(), &self.lists, requested_schema)?)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.lists == other.lists
    }

    fn __repr__(&self) -> String {
        format!("<OffsetLists of {} keys>", self.lists.len())
    }
}
