//! Bytes to values and back: pure functions over slices, with no I/O, no clock and no threads.

pub mod config;
pub mod queue;

pub mod body;
pub mod bytes;
pub mod checkpoint;
pub mod crc;
pub mod digest;
pub mod file_name;
pub mod index;
pub mod java;
pub mod message;
