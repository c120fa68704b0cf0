//! The JSON files below `config`.
//!
//! `json.rs` reads and writes JSON as RocketMQ's serializer does; `tables.rs` holds the tables of topics,
//! groups and consumer offsets.

pub mod json;
pub mod tables;
