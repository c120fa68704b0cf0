//! Bugs put in on purpose, to show that the tests of crashes and faults would see them: a figure that
//! was never seen to fail does not count. They exist in builds with the feature `planted` only, which
//! nothing but `make controls` turns on; elsewhere [`is`] is a constant.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// The log is called flushed and was not.
    FlushLeftOut = 1,
    /// Of what is flushed the last page is left out.
    LastPageLeftOut,
    /// An append under `SYNC_FLUSH` does not wait for its flush.
    AcknowledgedEarly,
    /// A new file's name is not made durable.
    FolderNotFlushed,
    /// A new folder's name is not made durable.
    NewFolderNotFlushed,
    /// What is cut off the log stays in its file.
    TailNotZeroed,
    /// What is cut off the log is kept nowhere.
    QuarantineNotMade,
    /// The lock is asked for when the store was looked at and tidied.
    LockTakenLate,
    /// After a flush that failed comes another, which says that all is well.
    FlushTriedAgain,
    /// The checkpoint names a time that was not flushed yet.
    CheckpointAhead,
    /// A full file does not end in a blank.
    BlankNotWritten,
    /// Messages can be read before they are durable.
    ReadableEarly,
    /// Pages that a failed flush left behind are taken for durable.
    PagesNotWrittenAgain,
    /// What recovery accepted is not made durable.
    RecoveryNotFlushed,
    /// Recovery believes a body without its checksum.
    ChecksumNotChecked,
    /// A full disk is not asked for room.
    SpaceNotReserved,
    /// A store that is open looks like one that was closed.
    AbortNotWritten,
    /// A store is sealed before queues and index are flushed.
    SealedUnflushed,
    /// A seal is believed after a crash too.
    SealBelievedAfterCrash,
    /// Files are deleted by RocketMQ's rules though nobody asked for that.
    DeletedUnasked,
    /// The durable mark is written before the flush.
    MarkEarly,
}

/// Whether that bug is planted.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn is(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Whether that bug is planted.
#[cfg(feature = "planted")]
#[must_use]
pub fn is(bug: Bug) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::SeqCst) == bug as u8
}

/// Plants one bug in the whole process, or takes it out.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |bug| bug as u8), std::sync::atomic::Ordering::SeqCst);
}
