//! Bytes to values and back: pure functions over slices, with no I/O, no clock and no threads.

pub mod batch;
pub mod body;
pub mod bytes;
pub mod checkpoint;
#[cfg(feature = "codecs")]
mod codecs;
pub mod config_json;
pub mod consume_queue;
pub mod cq_ext;
pub mod crc;
pub mod digest;
pub mod elided;
pub mod file_name;
pub mod host;
pub mod index;
pub mod java;
pub mod json;
#[cfg(feature = "codecs")]
mod lz4_frame;
pub mod message;
pub mod peek;
pub mod properties;
pub mod purpose;
mod record;
pub mod sys_flag;
mod tag_filter;
