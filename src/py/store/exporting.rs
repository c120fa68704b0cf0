//! Rows of an export: as lines of JSON, and what a scan's columns lack.

use std::io::Write;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, TimestampMillisecondBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::base64::{BASE64_STANDARD, Engine as _};
use arrow_schema::DataType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::{PyArray, PyRecordBatch};

use crate::format::crc::PROPERTY_CRC_LEN;
use crate::format::message::{MessageView, properties, read_whole};
use crate::format::width::clamp_u64;
use crate::py::arguments::type_error;
use crate::store::NewMessage;
use crate::store::write::append;

/// Whether the fields of a record make the same bytes again.
fn is_exact(view: &MessageView<'_>) -> bool {
    let raw = view.raw_properties();
    // The last property may be a checksum of the record, which is made anew at each place.
    let last = raw
        .split_last_chunk::<PROPERTY_CRC_LEN>()
        .filter(|(_, last)| last.starts_with(properties::names::CRC32));
    let properties = last.map_or(raw, |(rest, _)| rest);
    let message = NewMessage { properties, ..NewMessage::of(view) };
    let (at, number) = (view.physical_offset(), view.queue_offset());
    !view.topic().is_empty()
        && str::from_utf8(view.topic()).is_ok()
        && view.queue_id() >= 0
        && append::encode(&message, at, number, last.is_some())
            .is_ok_and(|record| record == view.as_bytes())
}

type Lines<'py> = (Bound<'py, PyBytes>, usize, u64, Vec<(u64, Option<i32>, String)>);

/// Records of a batch as lines of JSON: text where the bytes are text, base64 where not. With their
/// number, their bytes, and begin, length and reason of damage.
pub(crate) fn lines<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Lines<'py>> {
    let written = py.detach(|| {
        let (mut out, mut number, mut bytes) = (Vec::new(), 0, 0);
        let records =
            batch.column_by_name("record").and_then(|column| column.as_binary_opt::<i32>());
        for view in records.into_iter().flatten().flatten().filter_map(read_whole) {
            write_line(&mut out, &view)?;
            number += 1;
            bytes += u64::from(view.store_size());
        }
        std::io::Result::Ok((out, number, bytes))
    });
    let (out, number, bytes) = written?;
    let column = |name| batch.column_by_name(name);
    let mut damage = Vec::new();
    if let (Some(errors), Some(at), Some(len)) = (
        column("error").and_then(|column| column.as_string_opt::<i32>()),
        column("physical_offset").and_then(|column| column.as_primitive_opt::<Int64Type>()),
        column("store_size").and_then(|column| column.as_primitive_opt::<Int32Type>()),
    ) {
        for (row, reason) in errors.iter().enumerate() {
            if let Some(reason) = reason {
                let len = len.is_valid(row).then(|| len.value(row));
                damage.push((clamp_u64(at.value(row)), len, reason.to_owned()));
            }
        }
    }
    Ok((PyBytes::new(py, &out), number, bytes, damage))
}

fn write_line(out: &mut Vec<u8>, view: &MessageView<'_>) -> std::io::Result<()> {
    out.extend_from_slice(b"{\"topic\":");
    serde_json::to_writer(&mut *out, &String::from_utf8_lossy(view.topic()))?;
    write!(
        out,
        ",\"queue_id\":{},\"queue_offset\":{},\"physical_offset\":{},\"flag\":{},\"sys_flag\":{},\
         \"born_timestamp_ms\":{},\"born_host\":\"{}\",\"store_timestamp_ms\":{},\
         \"store_host\":\"{}\",\"reconsume_times\":{},\"prepared_transaction_offset\":{}",
        view.queue_id(),
        view.queue_offset(),
        view.physical_offset(),
        view.flag(),
        view.sys_flag(),
        view.born_timestamp_ms(),
        view.born_host(),
        view.store_timestamp_ms(),
        view.store_host(),
        view.reconsume_times(),
        view.prepared_transaction_offset(),
    )?;
    let raw = view.raw_properties();
    let pairs = properties::to_map(raw);
    let mut joined = Vec::with_capacity(raw.len());
    pairs.iter().for_each(|(name, value)| properties::push(&mut joined, name, value));
    if joined == raw && str::from_utf8(raw).is_ok() {
        out.extend_from_slice(b",\"properties\":{");
        for (place, (name, value)) in pairs.into_iter().enumerate() {
            out.extend_from_slice(if place > 0 { b"," } else { b"" });
            serde_json::to_writer(&mut *out, &String::from_utf8_lossy(name))?;
            out.push(b':');
            serde_json::to_writer(&mut *out, &String::from_utf8_lossy(value))?;
        }
        out.push(b'}');
    } else {
        write!(out, ",\"properties_base64\":\"{}\"", BASE64_STANDARD.encode(raw))?;
    }
    match str::from_utf8(view.body()) {
        Ok(body) => {
            out.extend_from_slice(b",\"body\":");
            serde_json::to_writer(&mut *out, body)?;
        }
        Err(_) => write!(out, ",\"body_base64\":\"{}\"", BASE64_STANDARD.encode(view.body()))?,
    }
    if !is_exact(view) {
        write!(out, ",\"record_base64\":\"{}\"", BASE64_STANDARD.encode(view.as_bytes()))?;
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Exact times, stored properties, and records that fields do not make again: a batch.
#[pyfunction]
#[pyo3(signature = (records, /))]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over the array")]
pub(crate) fn _export_columns(py: Python<'_>, records: PyArray) -> PyResult<Bound<'_, PyAny>> {
    let Some(records) = records.array().as_binary_opt::<i32>() else {
        return Err(type_error("records", DataType::Binary, records.array().data_type()));
    };
    let batch = py.detach(|| {
        let time = || TimestampMillisecondBuilder::new().with_timezone("UTC");
        let (mut stored, mut born) = (time(), time());
        let (mut raw, mut odd) = (BinaryBuilder::new(), BinaryBuilder::new());
        for view in records.iter().flatten().filter_map(read_whole) {
            stored.append_value(view.store_timestamp_ms());
            born.append_value(view.born_timestamp_ms());
            raw.append_value(view.raw_properties());
            odd.append_option((!is_exact(&view)).then(|| view.as_bytes()));
        }
        let columns: [(_, ArrayRef, _); 4] = [
            ("store_timestamp", Arc::new(stored.finish()), false),
            ("born_timestamp", Arc::new(born.finish()), false),
            ("raw_properties", Arc::new(raw.finish()), false),
            ("record", Arc::new(odd.finish()), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns)
    });
    let batch = batch.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyRecordBatch::new(batch).into_pyarrow(py)?.into_any())
}
