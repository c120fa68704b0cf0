//! Notices of an open store, such as deleted files. They are kept for `warnings`, and each is
//! returned once for logging.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

const MOST: usize = 1000;

#[derive(Debug, Default)]
pub struct Notices {
    has_new: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    texts: VecDeque<String>,
    new: usize,
    forgotten: u64,
    pushed: u64,
}

impl Notices {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }

    pub fn push(&self, text: String) -> u64 {
        let mut kept = self.kept();
        if kept.texts.len() == MOST {
            kept.texts.pop_front();
            kept.forgotten += 1;
        }
        kept.texts.push_back(text);
        kept.new = (kept.new + 1).min(MOST);
        kept.pushed += 1;
        self.has_new.store(true, Ordering::Release);
        kept.pushed
    }

    /// Whether [`Notices::take_new`] returned it.
    pub(crate) fn is_taken(&self, number: u64) -> bool {
        let kept = self.kept();
        number + kept.new as u64 <= kept.pushed
    }

    #[must_use]
    pub fn all(&self) -> Vec<String> {
        let kept = self.kept();
        let forgotten = (kept.forgotten > 0).then(|| {
            format!("{} older notices are no longer kept; they were logged", kept.forgotten)
        });
        forgotten.into_iter().chain(kept.texts.iter().cloned()).collect()
    }

    /// Whether [`Notices::take_new`] has any; costs one load.
    #[must_use]
    #[inline]
    pub fn has_new(&self) -> bool {
        self.has_new.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn take_new(&self) -> Vec<String> {
        let mut kept = self.kept();
        self.has_new.store(false, Ordering::Release);
        let new = std::mem::take(&mut kept.new);
        kept.texts.iter().skip(kept.texts.len() - new).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_notice_is_handed_out_once_and_the_last_are_kept() {
        let notices = Notices::default();
        assert!(!notices.has_new());
        notices.push("one".to_owned());
        assert_eq!(notices.push("two".to_owned()), 2);
        assert!(notices.has_new() && !notices.is_taken(1));
        assert_eq!(notices.take_new(), ["one", "two"]);
        assert!(notices.is_taken(2) && !notices.is_taken(3));
        assert!(!notices.has_new() && notices.take_new().is_empty());
        for number in 0..MOST {
            notices.push(number.to_string());
        }
        assert_eq!(notices.all().len(), MOST + 1);
        assert!(notices.all()[0].starts_with("2 older notices"), "{}", notices.all()[0]);
        assert_eq!(notices.take_new().len(), MOST);
    }
}
