//! Bugs planted on purpose, to show that the crash and fault tests notice them. They exist only
//! with the feature `planted` (`make controls`); elsewhere [`is`] is a constant.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A flush is skipped and reported as done.
    FlushLeftOut = 1,
    /// The last page of a flush is left out.
    LastPageLeftOut,
    /// A synchronous append does not wait for its flush.
    AcknowledgedEarly,
    /// A new file's name is not made durable.
    FolderNotFlushed,
    /// A new folder's name is not made durable.
    NewFolderNotFlushed,
    /// Truncated bytes stay in the file.
    TailNotZeroed,
    /// Truncated bytes are kept nowhere.
    QuarantineNotMade,
    /// The lock is taken after the store was read and tidied.
    LockTakenLate,
    /// A failed flush is retried and then reported as successful.
    FlushTriedAgain,
    /// The checkpoint is ahead of the flush.
    CheckpointAhead,
    /// A full file does not end in a blank.
    BlankNotWritten,
    /// Messages can be read before they are durable.
    ReadableEarly,
    /// Pages of a failed flush are taken for durable.
    PagesNotWrittenAgain,
    /// Recovery's result is not flushed.
    RecoveryNotFlushed,
    /// Recovery skips the body checksum.
    ChecksumNotChecked,
    /// Disk space is not reserved.
    SpaceNotReserved,
    /// An open store looks closed.
    AbortNotWritten,
    /// A store is sealed before queues and index are flushed.
    SealedUnflushed,
    /// A seal is trusted after a crash.
    SealBelievedAfterCrash,
    /// RocketMQ's retention runs unasked.
    DeletedUnasked,
    /// The durable mark precedes the flush.
    MarkEarly,
}

#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn is(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

#[cfg(feature = "planted")]
#[must_use]
pub fn is(bug: Bug) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::SeqCst) == bug as u8
}

#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |bug| bug as u8), std::sync::atomic::Ordering::SeqCst);
}
