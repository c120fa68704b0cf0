//! Detects impossible store times: far from their neighbours, of 1970 or before, or in the future.

use super::context::{Context, spot};
use crate::care::finding::{Code, Severity};
use crate::files::FileRun;
use crate::time::{FAR_MS, is_far_outside, utc_text};

type Stored = (u64, i64);

/// 1971-01-01: a clock that was never set gave earlier times.
const EARLIEST_MS: i64 = 31_536_000_000;

#[derive(Clone, Copy, Debug)]
struct Impossible {
    first: Stored,
    last: u64,
    count: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    first: [Option<Stored>; 2],
    last: [Option<Stored>; 2],
    impossible: [Option<Impossible>; 2],
}

impl Times {
    /// Takes the next message; returns whether its time is plausible.
    #[inline]
    pub(crate) fn add(&mut self, cx: &Context<'_>, log: &FileRun, stored: Stored) -> bool {
        if !(EARLIEST_MS..=cx.latest_ms).contains(&stored.1) {
            let [early, late] = &mut self.impossible;
            let of_kind = if stored.1 < EARLIEST_MS { early } else { late };
            note(of_kind, Impossible { first: stored, last: stored.0, count: 1 });
            return false;
        }
        if let [Some(before), Some(middle)] = self.last
            && is_far_outside(before.1, middle.1, stored.1)
        {
            let expected =
                format!("a store time near {} and {}", utc_text(before.1), utc_text(stored.1));
            report(cx, log, Severity::Warning, middle.0, expected, utc_text(middle.1));
        }
        let [first, second] = &mut self.first;
        if second.is_none() {
            let free = if first.is_none() { first } else { second };
            *free = Some(stored);
        }
        self.last = [self.last[1], Some(stored)];
        true
    }

    pub(crate) fn then(mut self, next: &Self, cx: &Context<'_>, log: &FileRun) -> Self {
        for stored in next.first.into_iter().flatten() {
            self.add(cx, log, stored);
        }
        if next.first[1].is_some() {
            self.last = next.last;
        }
        for (kind, next) in self.impossible.iter_mut().zip(next.impossible) {
            next.into_iter().for_each(|next| note(kind, next));
        }
        self
    }

    /// Older one of the last two times: one message alone may be wrong.
    pub(crate) fn reliable_ms(&self) -> i64 {
        let [before, last] = self.last.map(|stored| stored.map_or(0, |stored| stored.1));
        before.min(last)
    }

    /// Reports a file's impossible times, and one that is older than those before it.
    pub(crate) fn report(&self, before_ms: i64, newest_ms: i64, cx: &Context<'_>, log: &FileRun) {
        for Impossible { first, last, count } in self.impossible.into_iter().flatten() {
            let mut found = utc_text(first.1);
            if count > 1 {
                found += &format!("; {count} messages, up to physical offset {last}");
            }
            let expected = "a store time from 1971 on, at most an hour ahead of the clock";
            report(cx, log, Severity::Warning, first.0, expected.to_owned(), found);
        }
        if let Some((place, _)) = self.first[0]
            && newest_ms < before_ms.saturating_sub(FAR_MS)
        {
            let expected =
                format!("a store time near {}, as before this file", utc_text(before_ms));
            let found = format!("{} at the latest in this file", utc_text(newest_ms));
            report(cx, log, Severity::Info, place, expected, found);
        }
    }
}

fn note(kind: &mut Option<Impossible>, next: Impossible) {
    match kind {
        Some(known) => (known.last, known.count) = (next.last, known.count + next.count),
        None => *kind = Some(next),
    }
}

#[cold]
fn report(
    cx: &Context<'_>,
    log: &FileRun,
    severity: Severity,
    place: u64,
    expected: String,
    found: String,
) {
    let (path, at) = spot(log, place);
    cx.findings.add(Code::LogTime, severity, &path, Some(at), expected, found);
}
