//! The lock files that this process holds open, so that a child that was forked off can let go of its
//! copies: a lock of an open file stays held until the last copy of the descriptor is closed.

use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::files::map::mapped_file;

/// No descriptor.
const FREE: RawFd = -1;

/// Room for one descriptor, and the next one. Slots are never removed and no thread waits for another
/// one's, so a child may walk them whatever the parent's threads did at the fork.
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

/// The entry of an open lock file; it must be dropped before the file is closed.
#[derive(Debug)]
pub(crate) struct Held(&'static Slot);

impl Held {
    pub(crate) fn new(descriptor: RawFd) -> Self {
        let mut slot = &SLOTS;
        let (taken, not) = (Ordering::AcqRel, Ordering::Acquire);
        while slot.descriptor.compare_exchange(FREE, descriptor, taken, not).is_err() {
            slot = slot.next.get_or_init(|| Box::new(Slot::new()));
        }
        Self(slot)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.descriptor.store(FREE, Ordering::Release);
    }
}

/// Closes this process's copies of all lock files. To be called in a child right after it was forked
/// off: the locks are its parent's, and must not outlive it here.
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
