//! Known facts of the log's parts between index files, and before the first: whether a message with
//! keys lies there that no index file has.

use std::ops::Range;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::log::index::run::Listing;
use crate::log::losses::join;

/// They are about the log: a new listing of the index keeps them.
#[derive(Debug, Default)]
pub(crate) struct Coverage(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The listing whose files leave nothing out up to this end of the log.
    whole: Weak<Listing>,
    until: u64,
    keyless: Vec<Range<u64>>,
    /// A message with keys in each other part.
    keyed: Vec<u64>,
}

impl Coverage {
    /// Whether the files leave out no message with keys before `until`.
    #[inline]
    pub(crate) fn is_whole(&self, listing: &Arc<Listing>, until: u64) -> bool {
        let known = self.0.lock();
        std::ptr::eq(known.whole.as_ptr(), Arc::as_ptr(listing)) && until <= known.until
    }

    pub(crate) fn set_whole(&self, listing: &Arc<Listing>, until: u64) {
        let mut known = self.0.lock();
        (known.whole, known.until) = (Arc::downgrade(listing), until);
    }

    pub(crate) fn forget(&self) {
        *self.0.lock() = Known::default();
    }

    /// The rest of a part from the first bytes on that may be messages with keys, and whether some
    /// are.
    pub(crate) fn rest(&self, part: Range<u64>) -> (Range<u64>, bool) {
        let known = self.0.lock();
        let begins = |range: &&Range<u64>| range.contains(&part.start);
        let from = known.keyless.iter().find(begins).map_or(part.start, |range| range.end);
        let rest = from..part.end.max(from);
        let is_keyed = known.keyed.iter().any(|at| rest.contains(at));
        (rest, is_keyed)
    }

    /// Remembers a part that was read to its end or to a message with keys. Returns whether that
    /// message is the first known there.
    pub(crate) fn note(&self, read: Range<u64>, keyed: Option<u64>) -> bool {
        let mut known = self.0.lock();
        let end = keyed.unwrap_or(read.end);
        if read.start < end {
            join(&mut known.keyless, read.start..end);
        }
        let is_new = keyed.is_some_and(|at| !known.keyed.contains(&at));
        known.keyed.extend(keyed.filter(|_| is_new));
        is_new
    }
}
