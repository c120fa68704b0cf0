//! The store's error type.
//!
//! A status of RocketMQ is a value ([`PutStatus`], `GetStatus`), an unexpected condition an error.
//! Every message is one line: file, byte, expected, found.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Makes an enum whose values have stable names.
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $kind:ident {
        $($(#[$doc:meta])* $variant:ident = $name:literal,)*
    }) => {
        $(#[$meta])*
        $vis enum $kind {
            $($(#[$doc])* $variant,)*
        }

        impl $kind {
            /// Every value, in order.
            #[allow(dead_code, reason = "not every kind is listed")]
            pub const EACH: &'static [Self] = &[$(Self::$variant,)*];

            /// Stable name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The value of a name.
            #[allow(dead_code, reason = "not every kind is searched")]
            #[must_use]
            pub fn by_name(name: &str) -> Option<Self> {
                Self::EACH.iter().copied().find(|known| known.name() == name)
            }
        }
    };
}
pub(crate) use named;

/// The start of a text of any length, for a message.
pub(crate) fn start_of(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{op} {}: {source}", path.display())]
    Io {
        /// The operation.
        op: Operation,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Damage on disk.
    #[error(transparent)]
    Corrupt(Box<Corruption>),
    /// The path holds no store or does not exist.
    #[error("{}: not a store: {reason}", path.display())]
    NotAStore {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The store refused a message; nothing was written.
    #[error("{field}: {reason}")]
    InvalidMessage {
        /// The invalid field.
        field: &'static str,
        /// The reason.
        reason: String,
        /// RocketMQ's status.
        status: PutStatus,
        /// The limit that was exceeded.
        limit: Option<u64>,
    },
    /// An invalid setting.
    #[error("{field}: {reason}")]
    InvalidConfig {
        /// The setting.
        field: String,
        /// The reason.
        reason: String,
    },
    /// Another process or handle writes to the store.
    #[error("{}: already open {}", path.display(), by_pid(*pid))]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The lock's holder, if known.
        pid: Option<i32>,
    },
    /// The store or file is closed.
    #[error("the store is closed")]
    Closed,
    /// The store or file is open for reading only.
    #[error("{}: opened read-only", path.display())]
    ReadOnly {
        /// The store or file.
        path: PathBuf,
    },
    /// A flush failed: nothing is written until the store is opened again.
    #[error("{}: writing has ended: {reason}", path.display())]
    Poisoned {
        /// The file whose flush failed.
        path: PathBuf,
        /// The failure.
        reason: String,
    },
    /// The message is stored but not flushed in time; it may not be durable.
    #[error(
        "the message at {} is stored, but was not flushed within {timeout_ms} ms",
        result.physical_offset
    )]
    FlushTimeout {
        /// The stored message.
        result: Box<AppendResult>,
        /// The timeout.
        timeout_ms: u64,
    },
    /// An offset outside the log.
    #[error("physical offset {physical_offset} is outside of the log, which holds {min} to {max}")]
    OffsetOutOfRange {
        /// The requested offset.
        physical_offset: i64,
        /// The first offset of the log.
        min: i64,
        /// One past the last byte of the log.
        max: i64,
    },
    /// A place in the log that was read, where another log lies now.
    #[error(
        "{}: another log than the one that was read up to {place}: expected {expected} at physical \
         offset {physical_offset}, found: {found}; nothing was refreshed; open the store again, and \
         read it from its beginning",
        path.display()
    )]
    OtherLog {
        /// The store.
        path: PathBuf,
        /// How far the log was read.
        place: u64,
        /// Start of the last record that was read.
        physical_offset: u64,
        /// That record.
        expected: String,
        /// The record that lies there now.
        found: String,
        /// The first offset of the log that lies there now.
        min: u64,
        /// Its end.
        max: u64,
    },
    /// No message at an offset or with an id.
    #[error("{what}")]
    MessageNotFound {
        /// The request and the finding.
        what: String,
    },
    /// More of the log is undispatched than a reader holds in memory.
    #[error(
        "{}: {bytes} bytes of the log from {physical_offset} on are in no queue, more than the \
         {limit} that a reader keeps; `mqstore rebuild` makes the queues from the log",
        path.display()
    )]
    NotDispatched {
        /// The store.
        path: PathBuf,
        /// Start of the undispatched part.
        physical_offset: u64,
        /// Its length.
        bytes: u64,
        /// The reader's limit.
        limit: u64,
    },
    /// A known but unsupported feature.
    #[error("{}: {what}", path.display())]
    Unsupported {
        /// The feature.
        what: String,
        /// The file or folder.
        path: PathBuf,
    },
}

/// The form of all errors about an argument, behind its name.
pub(crate) fn expected_got(expected: impl fmt::Display, got: impl fmt::Display) -> String {
    format!("expected {expected}, got {got}")
}

/// A word as a shell reads it; `None` for one with control characters, or that is no text.
pub(crate) fn quoted(word: impl AsRef<OsStr>) -> Option<String> {
    let word = word.as_ref().to_str()?;
    if word.chars().any(char::is_control) {
        return None;
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    Some(if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    })
}

fn by_pid(pid: Option<i32>) -> String {
    pid.map_or_else(|| "for writing".to_owned(), |pid| format!("by pid {pid}"))
}

/// An operation of the operating system that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// The system reports a failed flush once: what was not flushed may be lost.
    Flush,
    /// Any other, as a verb: `open`, `read`.
    Other(&'static str),
}

impl From<&'static str> for Operation {
    fn from(verb: &'static str) -> Self {
        Self::Other(verb)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flush => "flush",
            Self::Other(verb) => verb,
        })
    }
}

impl Error {
    /// Returns an [`Error::Io`] for `op` on `path`, for `map_err`.
    pub fn io(
        op: impl Into<Operation>,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        // The path is copied only on failure.
        move |source| Self::Io { op: op.into(), path: path.into(), source }
    }

    /// [`Error::io`] of a flush.
    pub fn flush(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        Self::io(Operation::Flush, path)
    }

    /// Whether the disk was full, which may pass.
    #[must_use]
    pub fn is_full_disk(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// A message that RocketMQ refuses too, without a limit to name.
    #[cold]
    pub fn illegal(field: &'static str, reason: impl Into<String>) -> Self {
        Self::beyond(field, None, reason)
    }

    /// With a limit.
    #[cold]
    pub fn beyond(field: &'static str, limit: Option<u64>, reason: impl Into<String>) -> Self {
        let (reason, status) = (reason.into(), PutStatus::MessageIllegal);
        Self::InvalidMessage { field, reason, status, limit }
    }

    /// [`Error::illegal`] for a value other than the expected one.
    #[cold]
    pub fn argument(
        field: &'static str,
        expected: impl fmt::Display,
        got: impl fmt::Display,
    ) -> Self {
        Self::illegal(field, expected_got(expected, got))
    }

    /// A topic that can have no queue.
    #[cold]
    pub fn no_folder(topic: &[u8]) -> Self {
        let shown = start_of(&String::from_utf8_lossy(topic));
        Self::argument("topic", "a name for a folder", format!("{shown:?}"))
    }

    /// [`Error::config`] for a value other than the expected one.
    #[cold]
    pub fn setting(
        field: impl Into<String>,
        expected: impl fmt::Display,
        got: impl fmt::Display,
    ) -> Self {
        Self::config(field, expected_got(expected, got))
    }

    /// An invalid setting.
    #[cold]
    pub fn config(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::InvalidConfig { field: field.into(), reason: reason.into() }
    }

    /// Whether a file or folder is missing: a running broker's retention may have deleted it.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether this process may not write there.
    #[must_use]
    pub fn is_write_refused(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        matches!(self, Self::Io { source, .. }
            if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem))
    }

    /// An [`Error::Corrupt`].
    pub fn corrupt(
        path: &Path,
        offset: u64,
        kind: CorruptionKind,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Corrupt(Box::new(Corruption::new(path, offset, kind, expected, found)))
    }
}

/// Damage: where it is, expected and found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The file; `None` for a caller's bytes.
    pub path: Option<PathBuf>,
    /// Byte in the file or in the bytes given.
    pub offset: u64,
    /// The broken rule.
    pub kind: CorruptionKind,
    /// Expected by the format.
    pub expected: String,
    /// Found there.
    pub found: String,
}

impl Corruption {
    pub(crate) fn new(
        path: &Path,
        offset: u64,
        kind: CorruptionKind,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        let (expected, found) = (expected.into(), found.into());
        Self { path: Some(path.to_owned()), offset, kind, expected, found }
    }
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

named! {
    /// A rule of the format.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum CorruptionKind {
        /// A record's total size is impossible.
        Size = "size",
        /// Unknown magic code.
        Magic = "magic",
        /// A record's lengths contradict its total size.
        Length = "length",
        /// A body longer than its record.
        BodyLength = "body-length",
        /// A topic longer than its record.
        TopicLength = "topic-length",
        /// Properties longer than their record.
        PropertiesLength = "properties-length",
        /// The body's checksum is wrong.
        BodyCrc = "body-crc",
        /// The property checksum is missing or wrong.
        PropertyCrc = "property-crc",
        /// A record stores an offset other than its own.
        PhysicalOffset = "physical-offset",
        /// A blank does not end with its file.
        Blank = "blank",
        /// A truncated structure.
        Truncated = "truncated",
        /// A queue entry without its message.
        QueueEntry = "queue-entry",
        /// An index header that contradicts its file.
        IndexHeader = "index-header",
        /// An index slot without an entry.
        IndexSlot = "index-slot",
        /// An index entry without its message.
        IndexEntry = "index-entry",
        /// An index chain whose numbers do not decrease.
        IndexChain = "index-chain",
        /// A file of the wrong length.
        FileLength = "file-length",
        /// An impossible file or folder name.
        FileName = "file-name",
        /// Files with a gap or overlap.
        Gap = "gap",
        /// A checkpoint that contradicts the log.
        Checkpoint = "checkpoint",
        /// A malformed configuration file.
        Json = "json",
        /// A body that cannot be decompressed.
        Body = "body",
        /// A batch with contradictory lengths.
        Batch = "batch",
        /// A malformed queue extension unit.
        Ext = "ext",
        /// Damage in a RocksDB database, or a row with another layout.
        RocksDb = "rocksdb",
    }
}

impl fmt::Display for CorruptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reason why bytes could not be decoded. [`FormatError::in_file`] adds the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// The broken rule.
    pub kind: CorruptionKind,
    /// Position from the first byte given.
    pub position: usize,
    /// Expected by the format.
    pub expected: String,
    /// Found there.
    pub found: String,
}

impl FormatError {
    /// Returns a new error.
    pub fn new(
        kind: CorruptionKind,
        position: usize,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self { kind, position, expected: expected.into(), found: found.into() }
    }

    /// Moves the error `bytes` further.
    #[must_use]
    pub fn at(mut self, bytes: usize) -> Self {
        self.position = self.position.saturating_add(bytes);
        self
    }

    /// Damage without a file.
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

    /// Damage in the file at `path`, from byte `base` on.
    #[must_use]
    pub fn damage_in(self, path: Option<&Path>, base: u64) -> Corruption {
        let offset = base.saturating_add(self.position as u64);
        Corruption { path: path.map(Path::to_owned), offset, ..self.into_corruption() }
    }

    /// [`FormatError::damage_in`] as an error.
    #[must_use]
    pub fn in_file(self, path: &Path, base: u64) -> Error {
        Error::Corrupt(Box::new(self.damage_in(Some(path), base)))
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        Self::Corrupt(Box::new(error.into_corruption()))
    }
}

named! {
    /// Outcome of a put, as far as this store uses it (`org.apache.rocketmq.store.PutMessageStatus`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum PutStatus {
        /// Stored.
        PutOk = "PUT_OK",
        /// Stored, but not flushed in time.
        FlushDiskTimeout = "FLUSH_DISK_TIMEOUT",
        /// The next file could not be made.
        CreateMappedFileFailed = "CREATE_MAPPED_FILE_FAILED",
        /// An invalid message.
        MessageIllegal = "MESSAGE_ILLEGAL",
        /// Properties over 32,767 bytes.
        PropertiesSizeExceeded = "PROPERTIES_SIZE_EXCEEDED",
        /// The store accepts no messages now.
        ServiceNotAvailable = "SERVICE_NOT_AVAILABLE",
    }
}

/// Position of an appended message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendResult {
    /// Offset in the commit log.
    pub physical_offset: i64,
    /// Length of the record.
    pub store_size: u32,
    /// Queue offset.
    pub queue_offset: i64,
    /// Store time, Unix milliseconds.
    pub store_timestamp_ms: i64,
}
