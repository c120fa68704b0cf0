//! Finds messages without an entry for their tags: RocketMQ 5.3 puts none, 5.4 and later do.

use crate::care::finding::{Code, Severity};
use crate::care::verify::context::Context;

/// Maximum runs; later messages are added to the last.
const MOST_RUNS: usize = 1000;

/// Consecutive messages with tags, all with an entry or all without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TagRun {
    has_entries: bool,
    messages: u64,
    /// Offsets of the first and last of them.
    first: i64,
    last: i64,
}

/// The messages with tags that the index reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::care::verify) struct TagRuns(Vec<TagRun>);

impl TagRuns {
    #[inline]
    pub(super) fn see(&mut self, at: i64, has_entries: bool) {
        match self.0.last_mut() {
            Some(last) if last.has_entries == has_entries => {
                last.messages += 1;
                last.last = at;
            }
            _ => self.push(TagRun { has_entries, messages: 1, first: at, last: at }),
        }
    }

    #[cold]
    fn push(&mut self, run: TagRun) {
        let is_full = self.0.len() >= MOST_RUNS;
        match self.0.last_mut() {
            Some(last) if is_full || last.has_entries == run.has_entries => {
                last.messages += run.messages;
                last.last = run.last;
            }
            _ => self.0.push(run),
        }
    }

    pub(in crate::care::verify) fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|run| self.push(*run));
    }

    pub(in crate::care::verify) fn report(&self, cx: &Context<'_>) {
        if !self.0.iter().any(|run| run.has_entries) {
            return;
        }
        for run in self.0.iter().filter(|run| !run.has_entries) {
            let expected = "an entry for the tags of each message";
            let TagRun { messages, first, last, .. } = run;
            let found =
                format!("none of {messages} messages at physical offsets {first} to {last}");
            let (code, dir) = (Code::IndexTags, cx.paths.index());
            cx.findings.add(code, Severity::Info, &dir, None, expected, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_on_from_part_to_part() {
        let mut all = TagRuns::default();
        for part in [&[(0, false), (10, false)][..], &[(20, false), (30, true)], &[(40, true)]] {
            let mut runs = TagRuns::default();
            part.iter().for_each(|(at, has_entries)| runs.see(*at, *has_entries));
            all.join(&runs);
        }
        let run =
            |has_entries, messages, first, last| TagRun { has_entries, messages, first, last };
        assert_eq!(all.0, [run(false, 3, 0, 20), run(true, 2, 30, 40)]);
    }
}
