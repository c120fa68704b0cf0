//! Report of opening a store for writing.

use std::path::PathBuf;

use crate::error::{Corruption, named};

named! {
    /// State in which a store was found.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RecoveryMode {
        /// There was none.
        New = "new",
        /// Cleanly closed.
        Clean = "clean",
        /// Not closed: `abort` existed.
        Crash = "crash",
    }
}

/// Result of opening for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    /// State in which the store was found.
    pub mode: RecoveryMode,
    /// End of the log.
    pub end_physical_offset: u64,
    /// Bytes zeroed behind the end, up to the last non-zero one.
    pub cut_bytes: u64,
    /// Why the log ends there, if something lay behind.
    pub cut_reason: Option<Corruption>,
    /// Folder with the removed bytes.
    pub quarantine: Option<PathBuf>,
    /// The first ten thousand whole messages among them.
    pub quarantined_messages: Vec<QuarantinedMessage>,
    /// Number of these messages.
    pub quarantined_count: u64,
    /// Rebuilt structures, as paths below the root.
    pub rebuilt: Vec<String>,
    /// Messages dispatched again.
    pub dispatched: u64,
}

/// A whole message behind the log's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedMessage {
    pub physical_offset: u64,
    pub topic: Box<[u8]>,
    pub queue_id: i32,
    pub queue_offset: i64,
    pub store_timestamp_ms: i64,
}
