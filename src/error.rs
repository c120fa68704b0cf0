//! The one error type of the store, and what each case carries.
//!
//! What RocketMQ answers with a status is a value ([`PutStatus`], `GetStatus`); an error is for what
//! a caller cannot have expected. Every message is one line that a person can act on: the file, the
//! byte, what was expected and what was found.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call to the operating system failed.
    #[error("{op} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb: `open`, `read`, `flush`.
        op: &'static str,
        /// The file or folder it was done on.
        path: PathBuf,
        /// The operating system's own answer.
        source: io::Error,
    },
    /// Bytes on disk are not what the format demands.
    #[error(transparent)]
    Corrupt(Box<Corruption>),
    /// The path exists but holds no store, or does not exist at all.
    #[error("{}: not a store: {reason}", path.display())]
    NotAStore {
        /// The path that was given.
        path: PathBuf,
        /// What is missing there.
        reason: String,
    },
    /// A message that the store refuses before it writes a byte.
    #[error("{field}: {reason}")]
    InvalidMessage {
        /// The field at fault.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
        /// The status RocketMQ gives for it.
        status: PutStatus,
        /// The limit it broke, if it broke one.
        limit: Option<u64>,
    },
    /// A setting that cannot be used.
    #[error("{field}: {reason}")]
    InvalidConfig {
        /// The setting at fault.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process, or another handle of this one, writes to the store.
    #[error("{}: already open {}", path.display(), by_pid(*pid))]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it, where the system tells.
        pid: Option<i32>,
    },
    /// The store or file was closed before.
    #[error("the store is closed")]
    Closed,
    /// A write was asked of a store opened for reading.
    #[error("{}: opened read-only", path.display())]
    ReadOnly {
        /// The store or file.
        path: PathBuf,
    },
    /// A flush failed before: nothing may be written until the store is opened again.
    #[error("{}: writing has ended: {reason}", path.display())]
    Poisoned {
        /// The file whose flush failed.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
    /// The message is stored, but its flush was not done in time: it may not be durable.
    #[error(
        "the message at {} is stored, but was not flushed within {timeout_ms} ms",
        result.physical_offset
    )]
    FlushTimeout {
        /// Where the message lies.
        result: Box<AppendResult>,
        /// The time that was allowed.
        timeout_ms: u64,
    },
    /// An offset outside of what the log holds.
    #[error("physical offset {physical_offset} is outside of the log, which holds {min} to {max}")]
    OffsetOutOfRange {
        /// The offset that was asked for.
        physical_offset: i64,
        /// The first offset of the log.
        min: i64,
        /// One past the last byte of the log.
        max: i64,
    },
    /// Nothing is there: no record starts at an offset, no message has an id.
    #[error("{what}")]
    MessageNotFound {
        /// What was looked for, and what lies there.
        what: String,
    },
    /// More of the log is missing from the queues than may be read on the side.
    #[error(
        "{}: {bytes} bytes of the log from {physical_offset} on are in no queue, more than the \
         {limit} that a reader keeps; `mqstore rebuild` makes the queues from the log",
        path.display()
    )]
    NotDispatched {
        /// The store.
        path: PathBuf,
        /// Where the undispatched part begins.
        physical_offset: u64,
        /// How long it is.
        bytes: u64,
        /// How much a reader keeps of it.
        limit: u64,
    },
    /// Something known and named, which is not done.
    #[error("{}: {what}", path.display())]
    Unsupported {
        /// What it is.
        what: String,
        /// Where it was met.
        path: PathBuf,
    },
}

fn by_pid(pid: Option<i32>) -> String {
    pid.map_or_else(|| "for writing".to_owned(), |pid| format!("by pid {pid}"))
}

impl Error {
    /// An [`Error::Io`] for `op` on `path`, for use with `map_err`.
    pub fn io(op: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        // Where nothing fails, no path is copied.
        move |source| Self::Io { op, path: path.into(), source }
    }

    /// Whether there was no room on the disk, which may pass.
    #[must_use]
    pub fn is_full_disk(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// An [`Error::Corrupt`].
    pub fn corrupt(
        path: &Path,
        offset: u64,
        kind: CorruptionKind,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Corrupt(Box::new(Corruption {
            path: Some(path.to_owned()),
            offset,
            kind,
            expected: expected.into(),
            found: found.into(),
        }))
    }
}

/// Damage: where it is, what should be there and what is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The file; `None` for bytes that came from a caller.
    pub path: Option<PathBuf>,
    /// The byte in that file, or in the bytes given.
    pub offset: u64,
    /// Which rule is broken.
    pub kind: CorruptionKind,
    /// What the format demands there.
    pub expected: String,
    /// What lies there.
    pub found: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        write!(
            f,
            "byte {}: {}: expected {}, found {}",
            self.offset, self.kind, self.expected, self.found
        )
    }
}

impl std::error::Error for Corruption {}

/// Which rule of the format is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[non_exhaustive]
pub enum CorruptionKind {
    /// A record's total size is impossible.
    Size,
    /// Neither a record's nor a blank's magic code.
    Magic,
    /// A record's lengths do not add up to its total size.
    Length,
    /// A body length that the record cannot hold.
    BodyLength,
    /// A topic length that the record cannot hold.
    TopicLength,
    /// A properties length that the record cannot hold.
    PropertiesLength,
    /// The body's checksum is wrong.
    BodyCrc,
    /// The property checksum is missing or wrong.
    PropertyCrc,
    /// A record names another place than the one where it lies.
    PhysicalOffset,
    /// A blank does not end where its file ends.
    Blank,
    /// The bytes end before the structure does.
    Truncated,
    /// A queue entry that leads nowhere.
    QueueEntry,
    /// An index header that contradicts its file.
    IndexHeader,
    /// An index slot that names no entry.
    IndexSlot,
    /// An index entry that leads nowhere.
    IndexEntry,
    /// An index chain that does not lead downward.
    IndexChain,
    /// A file of the wrong length.
    FileLength,
    /// A file or folder name that cannot be.
    FileName,
    /// Files that leave a gap or overlap.
    Gap,
    /// A checkpoint that contradicts the log.
    Checkpoint,
    /// A configuration file that cannot be read.
    Json,
    /// A body that cannot be decompressed.
    Body,
    /// A batch whose lengths do not add up.
    Batch,
    /// A queue extension unit that cannot be read.
    Ext,
}

impl CorruptionKind {
    /// The stable name, as programs see it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Magic => "magic",
            Self::Length => "length",
            Self::BodyLength => "body-length",
            Self::TopicLength => "topic-length",
            Self::PropertiesLength => "properties-length",
            Self::BodyCrc => "body-crc",
            Self::PropertyCrc => "property-crc",
            Self::PhysicalOffset => "physical-offset",
            Self::Blank => "blank",
            Self::Truncated => "truncated",
            Self::QueueEntry => "queue-entry",
            Self::IndexHeader => "index-header",
            Self::IndexSlot => "index-slot",
            Self::IndexEntry => "index-entry",
            Self::IndexChain => "index-chain",
            Self::FileLength => "file-length",
            Self::FileName => "file-name",
            Self::Gap => "gap",
            Self::Checkpoint => "checkpoint",
            Self::Json => "json",
            Self::Body => "body",
            Self::Batch => "batch",
            Self::Ext => "ext",
        }
    }
}

impl fmt::Display for CorruptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why bytes could not be read as a structure; positions count from the first byte given.
///
/// The layers above know the file: [`FormatError::in_file`] adds it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct FormatError {
    /// Which rule is broken.
    pub kind: CorruptionKind,
    /// The byte at fault.
    pub position: usize,
    /// What the format demands there.
    pub expected: String,
    /// What lies there.
    pub found: String,
}

impl FormatError {
    /// A new error at `position`.
    pub fn new(
        kind: CorruptionKind,
        position: usize,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self { kind, position, expected: expected.into(), found: found.into() }
    }

    /// The same error seen from `bytes` further up.
    #[must_use]
    pub fn at(mut self, bytes: usize) -> Self {
        self.position = self.position.saturating_add(bytes);
        self
    }

    /// The damage as the caller's bytes show it, with no file.
    #[must_use]
    pub fn into_corruption(self) -> Corruption {
        Corruption {
            path: None,
            offset: self.position as u64,
            kind: self.kind,
            expected: self.expected,
            found: self.found,
        }
    }

    /// The damage in the file at `path`, where the bytes given began at byte `base`.
    #[must_use]
    pub fn in_file(self, path: &Path, base: u64) -> Error {
        let mut corruption = self.into_corruption();
        corruption.path = Some(path.to_owned());
        corruption.offset = corruption.offset.saturating_add(base);
        Error::Corrupt(Box::new(corruption))
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        Self::Corrupt(Box::new(error.into_corruption()))
    }
}

/// What became of a put (`org.apache.rocketmq.store.PutMessageStatus`), as far as this store gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutStatus {
    /// Stored.
    PutOk,
    /// Stored, but not flushed in time.
    FlushDiskTimeout,
    /// The next file could not be made.
    CreateMappedFileFailed,
    /// A message that may not be.
    MessageIllegal,
    /// Properties over 32,767 bytes.
    PropertiesSizeExceeded,
    /// The store takes no messages now.
    ServiceNotAvailable,
}

impl PutStatus {
    /// RocketMQ's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PutOk => "PUT_OK",
            Self::FlushDiskTimeout => "FLUSH_DISK_TIMEOUT",
            Self::CreateMappedFileFailed => "CREATE_MAPPED_FILE_FAILED",
            Self::MessageIllegal => "MESSAGE_ILLEGAL",
            Self::PropertiesSizeExceeded => "PROPERTIES_SIZE_EXCEEDED",
            Self::ServiceNotAvailable => "SERVICE_NOT_AVAILABLE",
        }
    }
}

/// Where an appended message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendResult {
    /// Byte position in the whole commit log.
    pub physical_offset: i64,
    /// Length of the record in bytes.
    pub store_size: u32,
    /// Entry number in its queue.
    pub queue_offset: i64,
    /// The store's time of it, Unix milliseconds.
    pub store_timestamp_ms: i64,
}
