//! Evidence for a record (`docs/format.md`, Rules of all readers), and the bytes read to weigh it.

use crate::format::message::peek;

/// Bytes that a walk may read to tell records from look-alikes.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    from: u64,
    spent: u64,
}

impl Budget {
    /// For each byte walked.
    const EACH: u64 = 4;
    const LEAST: u64 = 64 << 20;
    /// A record of this size is always checked.
    pub const SMALL: u64 = 4 << 10;

    #[must_use]
    pub fn new(from: u64) -> Self {
        Self { from, spent: 0 }
    }

    /// Takes `bytes` for a look at `place`, if they are left.
    pub fn take(&mut self, place: u64, bytes: u64) -> bool {
        let walked = place.saturating_sub(self.from);
        let most = walked.saturating_mul(Self::EACH).saturating_add(Self::LEAST);
        let spent = self.spent.saturating_add(bytes);
        let is_left = spent <= most;
        if is_left {
            self.spent = spent;
        }
        is_left
    }
}

/// Whether a record's first bytes have both signs: the magic code and its own offset.
#[inline]
#[must_use]
pub fn is_likely(head: &[u8], place: u64) -> bool {
    peek::is_record(head) && peek::names_place(head, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_grows_with_the_walk_and_is_not_exceeded() {
        let mut budget = Budget::new(1000);
        assert!(budget.take(1000, Budget::LEAST));
        assert!(!budget.take(1000, 1));
        assert!(!budget.take(1010, 41));
        assert!(budget.take(1010, 40));
        assert!(!budget.take(1010, 1) && budget.take(1011, 4));
        assert!(!budget.take(0, 1));
        let mut far = Budget::new(0);
        assert!(far.take(u64::MAX, u64::MAX) && !Budget::new(u64::MAX).take(u64::MAX, u64::MAX));
    }
}
