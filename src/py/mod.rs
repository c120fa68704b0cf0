//! The extension module `mqstore._native`: conversions only. Python values in, Python values out,
//! errors mapped; what is done is done below.

mod append_arrow;
mod array_functions;
mod arrays;
mod doctor;
mod errors;
mod fields;
mod files;
mod fork;
mod functions;
mod group;
mod index;
mod index_arrow;
mod log_scan;
mod message;
mod message_scan;
mod notices;
mod progress;
mod purpose;
mod reading;
mod rebuild;
mod salvage;
mod scan;
mod signals;
mod stats;
mod store;
mod stored;
mod survey;
mod transfer;
mod upkeep;
mod values;
mod verify;

use pyo3::prelude::*;
use pyo3::types::PyString;

/// Adds everything that the stub names; `python/mqstore/_native/_NAME.pyi` declares `NAME.rs`.
#[pymodule(name = "_native", gil_used = false)]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    fork::watch(module.py())?;
    module.add_class::<message::Message>()?;
    module.add_class::<stored::StoredMessage>()?;
    module.add_class::<values::MessageId>()?;
    module.add_class::<values::AppendResult>()?;
    module.add_class::<values::AppendSummary>()?;
    module.add_class::<values::QueueInfo>()?;
    module.add_class::<values::GroupOffset>()?;
    module.add_class::<reading::ReadResult>()?;
    module.add_class::<message_scan::MessageScan>()?;
    module.add_class::<store::Store>()?;
    module.add_class::<group::ConsumerGroup>()?;
    module.add_class::<scan::ArrowSchema>()?;
    module.add_class::<scan::ArrowScan>()?;
    module.add_class::<index::IndexHeader>()?;
    module.add_class::<index::IndexEntry>()?;
    module.add_class::<index::IndexFile>()?;
    module.add_class::<index_arrow::OffsetLists>()?;
    module.add_class::<files::QueueEntry>()?;
    module.add_class::<files::ConsumeQueue>()?;
    module.add_class::<files::CommitLog>()?;
    module.add_class::<files::Checkpoint>()?;
    module.add("ARROW_SCHEMA", scan::ArrowSchema::new(crate::columns::schema()))?;
    module.add_function(wrap_pyfunction!(store::open_store, module)?)?;
    module.add_function(wrap_pyfunction!(stored::decode, module)?)?;
    module.add_function(wrap_pyfunction!(functions::encode, module)?)?;
    module.add_function(wrap_pyfunction!(functions::java_hash, module)?)?;
    module.add_function(wrap_pyfunction!(functions::key_hash, module)?)?;
    module.add_function(wrap_pyfunction!(functions::tags_code, module)?)?;
    module.add_function(wrap_pyfunction!(functions::parse_message_id, module)?)?;
    module.add_function(wrap_pyfunction!(functions::lock_state, module)?)?;
    module.add_function(wrap_pyfunction!(functions::inventory, module)?)?;
    module.add_function(wrap_pyfunction!(functions::read_config_json, module)?)?;
    module.add_function(wrap_pyfunction!(log_scan::scan_log, module)?)?;
    module.add_function(wrap_pyfunction!(log_scan::scan_queue, module)?)?;
    module.add_function(wrap_pyfunction!(verify::verify, module)?)?;
    module.add_function(wrap_pyfunction!(stats::stats, module)?)?;
    module.add_function(wrap_pyfunction!(doctor::doctor, module)?)?;
    module.add_function(wrap_pyfunction!(rebuild::rebuild, module)?)?;
    module.add_function(wrap_pyfunction!(transfer::import_messages, module)?)?;
    module.add_function(wrap_pyfunction!(transfer::copy_store, module)?)?;
    module.add_function(wrap_pyfunction!(transfer::diff_stores, module)?)?;
    module.add_function(wrap_pyfunction!(salvage::salvage, module)?)?;
    module.add_function(wrap_pyfunction!(upkeep::recover, module)?)?;
    module.add_function(wrap_pyfunction!(upkeep::clean, module)?)?;
    // Not for users, and so not in `__all__`.
    let stored_message = wrap_pyfunction!(stored::_stored_message, module)?;
    module.setattr("_stored_message", stored_message)?;
    for function in [
        wrap_pyfunction!(verify::_verify_structures, module)?,
        wrap_pyfunction!(verify::_verify_log, module)?,
        wrap_pyfunction!(verify::_verify_join, module)?,
        wrap_pyfunction!(rebuild::_rebuild_scan, module)?,
        wrap_pyfunction!(rebuild::_rebuild_settle, module)?,
        wrap_pyfunction!(rebuild::_rebuild_queues, module)?,
        wrap_pyfunction!(rebuild::_rebuild_index, module)?,
    ] {
        module.setattr(function.getattr("__name__")?.cast::<PyString>()?, &function)?;
    }
    module.setattr("_survey", wrap_pyfunction!(survey::_survey, module)?)?;
    module.setattr("_checkpoint", wrap_pyfunction!(files::_checkpoint, module)?)?;
    let array_function = wrap_pyfunction!(array_functions::_array_function, module)?;
    module.setattr("_array_function", array_function)?;
    module.setattr("__version__", env!("CARGO_PKG_VERSION"))
}
