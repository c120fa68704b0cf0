//! The operating system behind one trait.
//!
//! Open `storage.rs` first: every system call of the store. `os.rs` is the real system;
//! `pinned_storage.rs` and `resting.rs` wrap it.

pub mod locks;
pub mod memory;
pub mod os;
mod owner;
pub mod pinned_storage;
pub mod resting;
pub mod sparing;
pub mod storage;

use nix::time::{ClockId, clock_gettime};

use crate::time::Clock;

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        // Cannot fail.
        let Ok(now) = clock_gettime(ClockId::CLOCK_REALTIME) else { return 0 };
        now.tv_sec().saturating_mul(1000).saturating_add(now.tv_nsec() / 1_000_000)
    }
}
