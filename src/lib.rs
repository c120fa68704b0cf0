//! A fast, crash-safe message store in the file format of Apache RocketMQ.
//!
//! Layers, each importing only from those before it: `format` (bytes and values, pure functions),
//! `files` (mapped files and plain ones), `log` (one type for each on-disk structure), `store` (the
//! message store), `care` (what is done to a store from outside), `columns` (messages as Arrow arrays).

#[cfg(windows)]
compile_error!("mqstore runs on Linux and macOS; Windows is not supported, use WSL there");

pub mod care;
#[cfg(feature = "arrow")]
pub mod columns;
pub mod config;
pub mod error;
pub mod files;
pub mod format;
pub mod log;
#[cfg(feature = "python")]
mod py;
pub mod store;
pub mod time;

pub use crate::config::StoreConfig;
pub use crate::error::{Error, Result};
pub use crate::store::{MessageStore, NewMessage, OpenMode};
