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

/// Everything in the stub; `python/mqstore/_native/_NAME.pyi` declares `NAME.rs`.
#[pymodule(name = "_native", gil_used = false)]
mod native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::{
        arrays::_array_function,
        care::doctor::{_swap_commands, doctor, next_start},
        care::rebuild::{_rebuild_topics, _replace_folders, rebuild},
        care::rocksdb::{
            _count_rows, _index_rows, _offset_row, _queue_ends, _queue_files, PythonLogQueues,
        },
        care::salvage::salvage,
        care::stats::{_survey, stats},
        care::transfer::{copy_store, diff_stores, import_messages},
        care::upkeep::{clean, recover},
        care::verify::{_code_text, verify},
        files::{_checkpoint, Checkpoint, CommitLog, ConsumeQueue, QueueEntry},
        functions::{
            _anchors, _check_owner, _copy_folder, _index_slots, _is_system_group, _is_system_topic,
            _keep_config, _load_config_json, _names_a_folder, _other_than, _read_broker_line,
            _replace_file, _setting_refusal, _settings, _spare_page_cache, _store_name, _time_ms,
            _timer_check, _write_config_json, encode, inventory, java_hash, key_hash, lock_state,
            parse_message_id, read_config_json, tags_code,
        },
        index::arrow::OffsetLists,
        index::{IndexEntry, IndexFile, IndexHeader},
        log_scan::{scan_log, scan_queue, tag_places},
        scan::{ArrowScan, ArrowSchema},
        store::Store,
        store::exporting::_export_columns,
        store::group::GroupPlaces,
        store::location::RemoteStorage,
        store::message::Message,
        store::message_scan::{Damage, MessageScan},
        store::reading::ReadResult,
        store::requests::Requests,
        store::stored::{_stored_message, StoredMessage, decode},
        values::{AppendResult, AppendSummary, GroupOffset, MessageId, Pattern, QueueInfo},
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::process::watch(module.py())?;
        super::store::fastcall::install(&module.py().get_type::<Store>())?;
        module.add("ARROW_SCHEMA", ArrowSchema::new(crate::columns::schema()))?;
        module.setattr("__version__", env!("CARGO_PKG_VERSION"))?;
        let names: Vec<String> = module.index()?.extract()?;
        // Internal ones are not in `__all__`.
        let public: Vec<_> = names.into_iter().filter(|name| !name.starts_with('_')).collect();
        module.setattr("__all__", public)
    }
}
