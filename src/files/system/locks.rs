//! Lock files of this process, so that a forked child can close its copies: a lock is held until
//! the last copy of the descriptor is closed.

use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::files::map::mapped_file;

const FREE: RawFd = -1;

/// One descriptor, and the next slot. Slots are never removed and no thread waits for another's, so
/// a forked child may walk them in any state.
#[derive(Debug)]
struct Slot {
    descriptor: AtomicI32,
    next: OnceLock<Box<Self>>,
}

impl Slot {
    const fn new() -> Self {
        Self { descriptor: AtomicI32::new(FREE), next: OnceLock::new() }
    }
}

static SLOTS: Slot = Slot::new();

/// An entry for an open lock file; must be dropped before the file is closed.
#[derive(Debug)]
pub(crate) struct HeldLock(&'static Slot);

impl HeldLock {
    pub(crate) fn new(descriptor: RawFd) -> Self {
        let mut slot = &SLOTS;
        let (taken, not) = (Ordering::AcqRel, Ordering::Acquire);
        while slot.descriptor.compare_exchange(FREE, descriptor, taken, not).is_err() {
            slot = slot.next.get_or_init(|| Box::new(Slot::new()));
        }
        Self(slot)
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.0.descriptor.store(FREE, Ordering::Release);
    }
}

/// Closes this process's copies of all lock files. A forked child calls it first: the locks are its
/// parent's.
pub fn let_go_after_fork() {
    let mut slot = Some(&SLOTS);
    while let Some(this) = slot {
        let descriptor = this.descriptor.load(Ordering::Acquire);
        if descriptor != FREE {
            mapped_file::close_copy(descriptor);
        }
        slot = this.next.get().map(|next| &**next);
    }
}
