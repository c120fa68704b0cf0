//! Latency histogram of fixed size, with a precision of one part in sixteen.

use crate::format::width::{at_most_i64, at_most_u32, to_usize};
/// Ranges of each power of two; lower milliseconds have their own.
const PARTS: u32 = 16;
const PARTS_BITS: u32 = PARTS.trailing_zeros();
const RANGES: usize = ((64 - PARTS_BITS) * PARTS) as usize;

#[derive(Clone, Debug)]
pub struct Latency {
    counts: Vec<u64>,
    pub negative: u64,
    pub unknown: u64,
    pub max_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyRange {
    pub begin_ms: i64,
    pub end_ms: i64,
    pub messages: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { counts: vec![0; RANGES], negative: 0, unknown: 0, max_ms: 0 }
    }
}

impl Latency {
    pub(super) fn add(&mut self, born_ms: i64, stored_ms: i64) {
        if born_ms <= 0 {
            self.unknown = self.unknown.saturating_add(1);
            return;
        }
        let Ok(time_ms) = u64::try_from(stored_ms.saturating_sub(born_ms)) else {
            self.negative = self.negative.saturating_add(1);
            return;
        };
        self.max_ms = self.max_ms.max(time_ms.cast_signed());
        if let Some(count) = self.counts.get_mut(range_of(time_ms)) {
            *count = count.saturating_add(1);
        }
    }

    #[must_use]
    pub fn messages(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Quantile `part` in milliseconds; 0 without messages.
    #[must_use]
    pub fn quantile_ms(&self, part: f64) -> i64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank may be off where nobody can count any more"
        )]
        let rank = ((self.messages() as f64 * part).ceil() as u64).max(1);
        let mut seen = 0_u64;
        for range in self.ranges() {
            seen = seen.saturating_add(range.messages);
            if seen >= rank {
                return range.end_ms.saturating_sub(1).min(self.max_ms);
            }
        }
        self.max_ms
    }

    pub fn ranges(&self) -> impl Iterator<Item = LatencyRange> {
        self.counts.iter().enumerate().filter(|(_, messages)| **messages > 0).map(
            |(range, &messages)| LatencyRange {
                begin_ms: begin_ms(range),
                end_ms: begin_ms(range + 1),
                messages,
            },
        )
    }
}

fn range_of(time_ms: u64) -> usize {
    let power = time_ms.checked_ilog2().unwrap_or(0);
    let Some(shift) = power.checked_sub(PARTS_BITS) else {
        return to_usize(time_ms);
    };
    let part = (time_ms >> shift) & u64::from(PARTS - 1);
    ((shift + 1) * PARTS) as usize + to_usize(part)
}

fn begin_ms(range: usize) -> i64 {
    let range = at_most_u32(range);
    let Some(shift) = (range / PARTS).checked_sub(1) else { return i64::from(range) };
    let begin = u128::from(PARTS + range % PARTS).checked_shl(shift).unwrap_or(u128::MAX);
    at_most_i64(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_range() {
        let mut times: Vec<u64> = (0..70).collect();
        times.extend((0..63).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        times.push(i64::MAX as u64);
        for time in times {
            let range = range_of(time);
            assert!(range < RANGES, "{time}");
            let (begin, end) = (begin_ms(range), begin_ms(range + 1));
            let time = time.cast_signed();
            assert!(begin <= time && (time < end || time == i64::MAX), "{time}: {begin}..{end}");
            assert!(end - begin <= (begin / 16).max(1), "{time}: {begin}..{end}");
        }
    }

    #[test]
    fn quantiles_are_right_to_one_part_in_sixteen() {
        let mut latency = Latency::default();
        assert_eq!((latency.messages(), latency.quantile_ms(0.5)), (0, 0));
        for time_ms in 1..=1000 {
            latency.add(1_000_000, 1_000_000 + time_ms);
        }
        latency.add(0, 5);
        latency.add(10, 9);
        latency.add(i64::MAX, i64::MIN);
        assert_eq!((latency.messages(), latency.unknown, latency.negative), (1000, 1, 2));
        for (part, time_ms) in [(0.001, 1), (0.5, 500), (0.9, 900), (0.99, 990), (1.0, 1000)] {
            let found = latency.quantile_ms(part);
            assert!((time_ms..=time_ms + time_ms / 16).contains(&found), "{part}: {found}");
        }
        assert_eq!(latency.quantile_ms(1.0), 1000);
    }
}
