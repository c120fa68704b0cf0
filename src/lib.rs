//! A fast, crash-safe message store in the file format of Apache RocketMQ.
//!
//! [`MessageStore`] is the front door: it opens a store's directory, appends messages, and reads them by
//! queue offset, by time and by key.
//!
//! ```
//! use mqstore::{MessageStore, NewMessage, OpenMode, StoreConfig, TagFilter};
//!
//! # fn main() -> mqstore::Result<()> {
//! # let folder = tempfile::tempdir().map_err(mqstore::Error::io("create", "a folder"))?;
//! # let path = folder.path().join("store");
//! let store = MessageStore::open(&path, OpenMode::Create, StoreConfig::default())?;
//! store.append(&NewMessage::new(b"orders", b"paid"))?;
//! let read = store.read(b"orders", 0, 0, 32, None, &TagFilter::parse("*"))?;
//! assert_eq!(read.records.len(), 1);
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`verify()`], [`doctor()`], [`rebuild()`], [`salvage()`] and their like work on a directory from outside.
//! [`IndexFile`] and [`CommitLog`] are single structures.
//!
//! The layers below are private. Each imports only from those before it: `format` (bytes and values, pure
//! functions), `files` (mapped files and plain ones), `log` (one type for each on-disk structure), `store`
//! (the message store), `care` (operations on a store from outside), `columns` (messages as Arrow arrays).
//! The feature `internals` opens them to this repository's own tests, benchmarks and fuzz targets; it
//! promises nothing.

#![cfg_attr(
    not(all(feature = "python", feature = "internals")),
    allow(
        dead_code,
        unused_imports,
        reason = "the extension module, and the tests, use what no Rust caller does"
    )
)]

#[cfg(windows)]
compile_error!("mqstore runs on Linux and macOS; Windows is not supported, use WSL there");

#[cfg(not(feature = "internals"))]
mod care;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod care;
#[cfg(all(feature = "arrow", not(feature = "internals")))]
mod columns;
#[cfg(all(feature = "arrow", feature = "internals"))]
#[doc(hidden)]
pub mod columns;
#[cfg(not(feature = "internals"))]
mod config;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod config;
#[cfg(not(feature = "internals"))]
mod error;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod error;
#[cfg(not(feature = "internals"))]
mod files;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod files;
#[cfg(not(feature = "internals"))]
mod format;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod format;
mod locks;
#[cfg(not(feature = "internals"))]
mod log;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod log;
#[cfg(feature = "python")]
mod py;
#[cfg(not(feature = "internals"))]
mod store;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod store;
#[cfg(not(feature = "internals"))]
mod time;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod time;

pub use care::{
    CleanReport, Code, CopyOptions, CopyReport, Cut, Diagnosis, DiffReport, DifferenceKind,
    DoctorReport, Fate, Finding, GroupFate, Level, Lost, LostInQueue, NextStart, RebuildOptions,
    RebuildReport, RebuildTarget, RebuildWhat, RebuiltQueue, Recover, SalvageReport, Severity,
    Skipped, Stats, StatsOptions, Verdict, VerifyOptions, VerifyReport, clean, copy, diff, doctor,
    next_start, rebuild, recover, salvage, stats, verify,
};
#[cfg(feature = "arrow")]
pub use columns::{
    BatchError, BatchLimits, Column, MessageBatches, MessageRows, RowsError, schema,
};
pub use config::{FlushDiskType, StoreConfig, TransferLimits};
pub use error::{
    AppendResult, Corruption, CorruptionKind, Error, FormatError, Operation, PutStatus, Result,
};
pub use files::{Os, Storage, SystemClock};
pub use format::message::{MessageView, host::Host};
pub use format::queue::consume_queue::TagFilter;
pub use log::index::file::{IndexOpen, IndexPut};
pub use log::{CommitLog, IndexFile};
pub use store::{
    BatchError as AppendManyError, Boundary, GetStatus, KeyQuery, MessageStore, NewMessage,
    OpenMode, QueryResult, ReadResult, RecoveryMode, RecoveryReport,
};
pub use time::{Clock, FixedClock};
