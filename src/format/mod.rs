//! Encoding and decoding: pure functions over slices, without I/O, clock or threads. Open
//! `message/mod.rs` first.

pub mod config;
pub mod queue;

pub mod body;
pub mod bytes;
pub mod checkpoint;
pub mod crc;
pub mod file_name;
pub mod index;
pub mod java;
pub mod message;
pub mod release;
pub mod rocksdb;
pub mod width;
