//! Parts of a log that could not be read, known until the log is closed.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// More are joined with what lies between them.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Losses {
    is_any: AtomicBool,
    ranges: Mutex<Vec<Range<u64>>>,
}

impl Losses {
    pub(crate) fn add(&self, range: Range<u64>) -> bool {
        let mut ranges = self.ranges.lock();
        let is_known = |known: &Range<u64>| known.start <= range.start && range.end <= known.end;
        if range.is_empty() || ranges.iter().any(is_known) {
            return false;
        }
        join(&mut ranges, range);
        if ranges.len() > MOST
            && let Some(last) = ranges.pop()
            && let Some(before) = ranges.last_mut()
        {
            before.end = last.end;
        }
        self.is_any.store(true, Ordering::Release);
        true
    }

    #[inline]
    pub(crate) fn behind(&self, begin: u64) -> Vec<Range<u64>> {
        if !self.is_any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.ranges.lock().iter().filter(|range| range.end > begin).cloned().collect()
    }
}

/// Adds a range to sorted ones, as one with those that it touches.
pub(crate) fn join(ranges: &mut Vec<Range<u64>>, mut range: Range<u64>) {
    ranges.retain(|known| {
        let touches = known.start <= range.end && range.start <= known.end;
        if touches {
            range = range.start.min(known.start)..range.end.max(known.end);
        }
        !touches
    });
    let at = ranges.partition_point(|known| known.start < range.start);
    ranges.insert(at, range);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_that_touch_are_one_and_few_are_kept() {
        let losses = Losses::default();
        assert!(losses.behind(0).is_empty());
        assert!(losses.add(10..20) && losses.add(30..40) && losses.add(20..25));
        assert!(!losses.add(12..25) && !losses.add(7..7));
        assert_eq!(losses.behind(0), [10..25, 30..40]);
        assert_eq!(losses.behind(25), std::slice::from_ref(&(30..40)));
        for number in 10..200 {
            losses.add(number * 10..number * 10 + 1);
        }
        let kept = losses.behind(0);
        assert_eq!((kept.len(), kept[MOST - 1].end), (MOST, 1991));
    }
}
