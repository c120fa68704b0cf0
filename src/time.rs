//! Clocks: what they tell, and a fixed one for tests and byte-exact rewrites.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{Datelike, Local, TimeZone, Timelike, Utc};

/// Maximum distance in milliseconds of a plausible store time from the clock or its neighbours.
pub const FAR_MS: i64 = 3_600_000;

/// Whether the middle of three store times is far from both others.
#[must_use]
pub const fn is_far_outside(before_ms: i64, ms: i64, after_ms: i64) -> bool {
    let (low, high) =
        if before_ms < after_ms { (before_ms, after_ms) } else { (after_ms, before_ms) };
    ms > high.saturating_add(FAR_MS) || ms < low.saturating_sub(FAR_MS)
}

/// The unit that a number for milliseconds can only be meant in, and the cure; the numbers are
/// times from 2001 on in seconds, and up to 2100 in micro- and nanoseconds.
#[must_use]
pub const fn other_unit(ms: i64) -> Option<(&'static str, &'static str)> {
    match ms {
        1_000_000_000..=9_999_999_999 => Some(("seconds", "multiply it by 1000")),
        253_402_300_800_000..=4_102_444_800_000_000 => Some(("microseconds", "divide it by 1000")),
        100_000_000_000_000_000..=4_102_444_800_000_000_000 => {
            Some(("nanoseconds", "divide it by 1000000"))
        }
        _ => None,
    }
}

/// A source of Unix time in milliseconds.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Now, in Unix milliseconds.
    fn now_ms(&self) -> i64;
}

/// A clock that a caller sets.
#[derive(Debug, Default)]
pub struct FixedClock(AtomicI64);

impl FixedClock {
    /// A clock that shows `now_ms`.
    #[must_use]
    pub const fn new(now_ms: i64) -> Self {
        Self(AtomicI64::new(now_ms))
    }

    /// Sets the time.
    pub fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::Release);
    }
}

impl Clock for FixedClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarTime {
    pub year: u16,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    pub millisecond: u16,
}

impl CalendarTime {
    /// `now_ms` in the machine's time zone, clamped to the calendar.
    #[must_use]
    pub fn local(now_ms: i64) -> Self {
        Self::from_datetime(
            &Local.timestamp_millis_opt(clamped(now_ms)).latest().unwrap_or_default(),
        )
    }

    fn from_datetime<Z: TimeZone>(at: &chrono::DateTime<Z>) -> Self {
        let small = |value: u32| u8::try_from(value).unwrap_or(0);
        Self {
            year: u16::try_from(at.year().clamp(0, 9999)).unwrap_or(0),
            month: small(at.month()),
            day: small(at.day()),
            hour: small(at.hour()),
            minute: small(at.minute()),
            second: small(at.second().min(59)),
            millisecond: u16::try_from(at.timestamp_subsec_millis().min(999)).unwrap_or(0),
        }
    }
}

/// A time for people, in UTC; its number outside of the calendar.
#[must_use]
pub fn utc_text(ms: i64) -> String {
    if clamped(ms) != ms {
        return format!("{ms} ms since 1970");
    }
    let at = Utc.timestamp_millis_opt(ms).latest().unwrap_or_default();
    at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Clamps to the years 1 to 9998, so that no time zone leaves four digits.
fn clamped(now_ms: i64) -> i64 {
    now_ms.clamp(-62_135_596_800_000, 253_370_764_800_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl CalendarTime {
        pub(crate) fn utc(now_ms: i64) -> Self {
            Self::from_datetime(&Utc.timestamp_millis_opt(clamped(now_ms)).unwrap())
        }
    }

    #[test]
    fn utc_calendar_of_a_known_moment() {
        let at = CalendarTime::utc(1_795_246_513_325);
        assert_eq!((at.year, at.month, at.day), (2026, 11, 21));
        assert_eq!((at.hour, at.minute, at.second, at.millisecond), (7, 35, 13, 325));
        assert_eq!(utc_text(1_795_246_513_325), "2026-11-21T07:35:13.325Z");
        assert_eq!(utc_text(i64::MAX), "9223372036854775807 ms since 1970");
    }

    #[test]
    fn extreme_times_stay_in_the_calendar() {
        for ms in [i64::MIN, i64::MAX, 0, -1] {
            let at = CalendarTime::local(ms);
            assert!(at.year <= 9999 && (1..=12).contains(&at.month));
        }
    }

    #[test]
    fn fixed_clock_shows_what_it_was_set_to() {
        let clock = FixedClock::new(5);
        clock.set(7);
        assert_eq!(clock.now_ms(), 7);
    }
}
