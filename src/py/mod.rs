//! The extension module `mqstore._native`: converts values and maps errors, nothing else. Open
//! `store/mod.rs` first.

mod arguments;
mod arrays;
mod care;
mod errors;
mod fields;
mod files;
mod functions;
mod index;
mod log_scan;
mod process;
mod scan;
mod store;
mod values;

use pyo3::prelude::*;
use pyo3::types::PyString;

/// Adds everything in the stub; `python/mqstore/_native/_NAME.pyi` declares `NAME.rs`.
#[pymodule(name = "_native", gil_used = false)]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    process::watch(module.py())?;
    module.add_class::<store::message::Message>()?;
    module.add_class::<store::stored::StoredMessage>()?;
    module.add_class::<values::MessageId>()?;
    module.add_class::<values::AppendResult>()?;
    module.add_class::<values::AppendSummary>()?;
    module.add_class::<values::QueueInfo>()?;
    module.add_class::<values::GroupOffset>()?;
    module.add_class::<store::reading::ReadResult>()?;
    module.add_class::<store::message_scan::Damage>()?;
    module.add_class::<store::message_scan::MessageScan>()?;
    module.add_class::<store::Store>()?;
    store::fastcall::install(&module.py().get_type::<store::Store>())?;
    module.add_class::<scan::ArrowSchema>()?;
    module.add_class::<scan::ArrowScan>()?;
    module.add_class::<index::IndexHeader>()?;
    module.add_class::<index::IndexEntry>()?;
    module.add_class::<index::IndexFile>()?;
    module.add_class::<index::arrow::OffsetLists>()?;
    module.add_class::<files::QueueEntry>()?;
    module.add_class::<files::ConsumeQueue>()?;
    module.add_class::<files::CommitLog>()?;
    module.add_class::<files::Checkpoint>()?;
    module.add("ARROW_SCHEMA", scan::ArrowSchema::new(crate::columns::schema()))?;
    module.add_function(wrap_pyfunction!(store::stored::decode, module)?)?;
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
    module.add_function(wrap_pyfunction!(log_scan::tag_places, module)?)?;
    module.add_function(wrap_pyfunction!(care::verify::verify, module)?)?;
    module.add_function(wrap_pyfunction!(care::stats::stats, module)?)?;
    module.add_function(wrap_pyfunction!(care::doctor::doctor, module)?)?;
    module.add_function(wrap_pyfunction!(care::doctor::next_start, module)?)?;
    module.add_function(wrap_pyfunction!(care::rebuild::rebuild, module)?)?;
    module.add_function(wrap_pyfunction!(care::transfer::import_messages, module)?)?;
    module.add_function(wrap_pyfunction!(care::transfer::copy_store, module)?)?;
    module.add_function(wrap_pyfunction!(care::transfer::diff_stores, module)?)?;
    module.add_function(wrap_pyfunction!(care::salvage::salvage, module)?)?;
    module.add_function(wrap_pyfunction!(care::upkeep::recover, module)?)?;
    module.add_function(wrap_pyfunction!(care::upkeep::clean, module)?)?;
    // Internal, so not in `__all__`.
    let places = module.py().get_type::<store::group::GroupPlaces>();
    module.setattr("_GroupPlaces", places)?;
    module.setattr("_Requests", module.py().get_type::<store::requests::Requests>())?;
    let remote = module.py().get_type::<store::location::RemoteStorage>();
    module.setattr("_RemoteStorage", remote)?;
    let log_queues = module.py().get_type::<care::rocksdb::PythonLogQueues>();
    module.setattr("_LogQueues", log_queues)?;
    for function in [
        wrap_pyfunction!(arrays::_array_function, module)?,
        wrap_pyfunction!(care::stats::_survey, module)?,
        wrap_pyfunction!(care::verify::_code_text, module)?,
        wrap_pyfunction!(files::_checkpoint, module)?,
        wrap_pyfunction!(store::exporting::_export_columns, module)?,
        wrap_pyfunction!(store::stored::_stored_message, module)?,
        wrap_pyfunction!(care::rebuild::_rebuild_topics, module)?,
        wrap_pyfunction!(care::rebuild::_replace_folders, module)?,
        wrap_pyfunction!(care::rocksdb::_count_rows, module)?,
        wrap_pyfunction!(care::rocksdb::_offset_row, module)?,
        wrap_pyfunction!(care::rocksdb::_queue_ends, module)?,
        wrap_pyfunction!(care::rocksdb::_queue_files, module)?,
        wrap_pyfunction!(care::rocksdb::_index_rows, module)?,
        wrap_pyfunction!(functions::_anchors, module)?,
        wrap_pyfunction!(functions::_other_than, module)?,
        wrap_pyfunction!(functions::_names_a_folder, module)?,
        wrap_pyfunction!(functions::_store_name, module)?,
        wrap_pyfunction!(functions::_index_slots, module)?,
        wrap_pyfunction!(functions::_time_ms, module)?,
        wrap_pyfunction!(functions::_is_system_topic, module)?,
        wrap_pyfunction!(functions::_spare_page_cache, module)?,
        wrap_pyfunction!(functions::_timer_check, module)?,
        wrap_pyfunction!(functions::_is_system_group, module)?,
        wrap_pyfunction!(functions::_settings, module)?,
        wrap_pyfunction!(functions::_setting_refusal, module)?,
        wrap_pyfunction!(functions::_read_broker_line, module)?,
        wrap_pyfunction!(functions::_load_config_json, module)?,
        wrap_pyfunction!(functions::_write_config_json, module)?,
        wrap_pyfunction!(functions::_keep_config, module)?,
        wrap_pyfunction!(care::doctor::_swap_commands, module)?,
        wrap_pyfunction!(functions::_check_owner, module)?,
        wrap_pyfunction!(functions::_copy_folder, module)?,
        wrap_pyfunction!(functions::_replace_file, module)?,
    ] {
        module.setattr(function.getattr("__name__")?.cast::<PyString>()?, &function)?;
    }
    module.setattr("__version__", env!("CARGO_PKG_VERSION"))
}
