//! The JSON files below `config`: `json.rs` parses and formats, `tables.rs` holds topics, groups
//! and consumer offsets. `epochs.rs` holds epochs.

pub mod json;
pub mod tables;
