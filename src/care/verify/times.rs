//! Detects impossible store times: far from their neighbours, before 1970, or in the future.

use super::context::Context;
use crate::care::finding::{Code, Severity};
use crate::files::FileRun;
use crate::time::{is_far_outside, utc_text};

type Stored = (u64, i64);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    first: [Option<Stored>; 2],
    last: [Option<Stored>; 2],
}

impl Times {
    /// Takes the next message; returns whether its time is plausible.
    #[inline]
    pub(super) fn see(&mut self, cx: &Context<'_>, log: &FileRun, stored: Stored) -> bool {
        if !(0..=cx.latest_ms).contains(&stored.1) {
            let expected = "a store time from 1970 on, at most an hour ahead of the clock";
            report(cx, log, stored, expected.to_owned());
            return false;
        }
        if let [Some(before), Some(middle)] = self.last
            && is_far_outside(before.1, middle.1, stored.1)
        {
            report(
                cx,
                log,
                middle,
                format!("a store time near {} and {}", utc_text(before.1), utc_text(stored.1)),
            );
        }
        let [first, second] = &mut self.first;
        if second.is_none() {
            let free = if first.is_none() { first } else { second };
            *free = Some(stored);
        }
        self.last = [self.last[1], Some(stored)];
        true
    }

    pub(super) fn then(mut self, next: &Self, cx: &Context<'_>, log: &FileRun) -> Self {
        for stored in next.first.into_iter().flatten() {
            self.see(cx, log, stored);
        }
        if next.first[1].is_some() {
            self.last = next.last;
        }
        self
    }
}

#[cold]
fn report(cx: &Context<'_>, log: &FileRun, (place, time): Stored, expected: String) {
    let file = log.find(place);
    let base = file.as_ref().map_or(0, |file| file.base_offset);
    let path = file.map_or_else(|| log.dir(), |file| file.path.clone());
    let at = Some(place.saturating_sub(base));
    cx.findings.add(Code::LogTime, Severity::Warning, &path, at, expected, utc_text(time));
}
