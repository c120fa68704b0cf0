//! The operating system's clock.

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
