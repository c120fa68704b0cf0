//! Compares each message's keys and tags with the index during the log walk, side by side: both
//! have the same order.

use super::{Entries, Index, Judge, keys_of};
use crate::care::finding::{Code, Severity};
use crate::care::verify::context::{Context, State, Walked};
use crate::error::Result;
use crate::files::FileRun;
use crate::format::index::{IndexEntry, seconds_since};
use crate::format::java::TopicHash;
use crate::format::message::properties::Indexed;
use crate::format::width::saturating_i64;
use crate::log::queue::unit::MAX_KEYS;

pub(crate) struct Keyed<'a> {
    pub(crate) topic: TopicHash,
    pub(crate) properties: &'a Indexed<'a>,
    pub(crate) at: i64,
    pub(crate) store_timestamp_ms: i64,
}

/// Keys of a message that must be indexed.
const KEYS_ASKED: usize = MAX_KEYS;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unindexed {
    messages: u64,
    span: Option<(i64, i64)>,
}

impl Unindexed {
    fn add(&mut self, at: i64) {
        self.join(&Self { messages: 1, span: Some((at, at)) });
    }

    fn join(&mut self, other: &Self) {
        self.messages += other.messages;
        if let Some((from, to)) = other.span {
            let (first, last) = self.span.unwrap_or((from, to));
            self.span = Some((first.min(from), last.max(to)));
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    messages: Unindexed,
    missing: u64,
    /// Wrong entries: each stands for its message's missing one.
    wrong: u64,
}

impl Gap {
    fn join(&mut self, other: &Self) {
        self.messages.join(&other.messages);
        self.missing += other.missing;
        self.wrong += other.wrong;
    }

    fn report(&self, cx: &Context<'_>) {
        let Some((from, to)) = self.messages.span.filter(|_| self.missing > self.wrong) else {
            return;
        };
        let expected = format!(
            "{} keys of {} messages at physical offsets {from} to {to}",
            self.missing - self.wrong,
            self.messages.messages
        );
        cx.findings.add(Code::IndexMissing, &cx.paths.index(), None, expected, "none");
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    /// Gaps at the walk's start and end, which its neighbours may continue; a walk that is one gap
    /// has only the second.
    first_gap: Option<Gap>,
    gap: Gap,
    /// Messages after and before the index's range.
    behind: Unindexed,
    before: Unindexed,
    tags: TagRuns,
}

impl Reach {
    pub(crate) fn join(&mut self, next: &Self, cx: &Context<'_>) {
        self.behind.join(&next.behind);
        self.before.join(&next.before);
        self.tags.join(&next.tags);
        if let Some(first) = &next.first_gap {
            self.gap.join(first);
            let between = std::mem::take(&mut self.gap);
            match self.first_gap {
                Some(_) => between.report(cx),
                None => self.first_gap = Some(between),
            }
        }
        self.gap.join(&next.gap);
    }

    /// Reports gaps after the whole walk, and how far the index reaches if it is `known`.
    pub(crate) fn report(&self, cx: &Context<'_>, known: bool) {
        self.first_gap.iter().chain([&self.gap]).for_each(|gap| gap.report(cx));
        self.tags.report(cx);
        if known {
            report_reach(cx, &self.behind, &self.before);
        }
    }
}

pub(crate) struct IndexCheck<'a> {
    cx: &'a Context<'a>,
    index: &'a Index,
    judge: Judge<'a>,
    at: usize,
    entries: Option<Entries>,
    damaged: Walked,
    wanted: Vec<(i32, bool)>,
    /// Its gap has the missing keys since the last correct message, its first gap is set once a
    /// correct message followed.
    pub(crate) reach: Reach,
}

impl<'a> IndexCheck<'a> {
    pub(crate) fn new(
        cx: &'a Context<'a>,
        index: &'a Index,
        log: &'a FileRun,
        start: u64,
    ) -> Result<Self> {
        let mut check = Self {
            cx,
            index,
            judge: Judge::new(cx, log),
            at: 0,
            entries: None,
            damaged: Walked::default(),
            wanted: Vec::new(),
            reach: Reach::default(),
        };
        let start = saturating_i64(start);
        check.go_to(index.files.partition_point(|state| state.last < start), start)?;
        Ok(check)
    }

    /// Goes to a file, and there to its first entry at or behind `start`.
    fn go_to(&mut self, file: usize, start: i64) -> Result<()> {
        (self.at, self.entries) = (file, None);
        if let (Some(state), Some(run)) = (self.index.files.get(file), &self.index.run) {
            let open = run.open(&state.file)?;
            let number = if state.first >= start { 1 } else { open.first_entry_from(start)? };
            self.entries = Some(Entries::new(state, open, number));
        }
        Ok(())
    }

    #[inline]
    fn head(&mut self) -> Result<Option<(u32, IndexEntry)>> {
        loop {
            let Some(entries) = &mut self.entries else { return Ok(None) };
            if let Some(head) = entries.head()? {
                return Ok(Some(head));
            }
            self.go_to(self.at + 1, i64::MIN)?;
        }
    }

    #[inline]
    fn advance(&mut self) {
        if let Some(entries) = &mut self.entries {
            entries.records.pass(1);
        }
    }

    /// Notes damage of the log: its entries are no fault of the index.
    pub(crate) fn damage(&mut self, from: u64, to: u64) {
        self.damaged.damaged.push((from, to));
    }

    #[inline]
    pub(crate) fn check(&mut self, message: &Keyed<'_>) -> Result<()> {
        if self.pass_own(message) { Ok(()) } else { self.check_closely(message) }
    }

    /// Fast path: whether the next entries are exactly the message's keys, followed by another
    /// message's; skips them then. False if more must be read.
    #[inline]
    fn pass_own(&mut self, message: &Keyed<'_>) -> bool {
        let Keyed { topic, properties, at, store_timestamp_ms } = *message;
        let Some(entries) = &mut self.entries else { return false };
        let seconds = seconds_since(entries.begin_ms, store_timestamp_ms);
        let mut left = entries.records.ahead().iter().map(IndexEntry::decode);
        let mut passed = 0;
        for key in keys_of(properties) {
            let is_own = left.next().is_some_and(|entry| {
                entry.key_hash == topic.with_key(key)
                    && entry.physical_offset == at
                    && entry.seconds == seconds
            });
            if !is_own || passed == KEYS_ASKED {
                return false;
            }
            passed += 1;
        }
        let mut next = left.next();
        let tags = tags_of(properties);
        let mut has_tags = false;
        if let (Some(tags), Some(entry)) = (tags, &next)
            && entry.physical_offset == at
            && entry.key_hash == topic.with_tags(tags)
            && entry.seconds == seconds
        {
            (passed, has_tags, next) = (passed + 1, true, left.next());
        }
        if next.is_none_or(|entry| entry.physical_offset <= at) {
            return false;
        }
        if tags.is_some() {
            self.reach.tags.add(at, has_tags);
        }
        entries.records.pass(passed);
        if self.reach.first_gap.is_none() || self.reach.gap.missing > 0 || self.reach.gap.wrong > 0
        {
            self.close_gap();
        }
        self.damaged.damaged.clear();
        true
    }

    fn check_closely(&mut self, message: &Keyed<'_>) -> Result<()> {
        let Keyed { topic, properties, at, store_timestamp_ms } = *message;
        while let Some((number, entry)) = self.head()?.filter(|(_, e)| e.physical_offset < at) {
            self.astray(number, &entry)?;
        }
        self.damaged.damaged.clear();
        if self.entries.is_none() {
            // Behind the last entry of the index.
            let count = keys_of(properties).take(KEYS_ASKED).count() as u64;
            if count > 0 {
                self.miss(at, count);
            }
            return Ok(());
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        wanted.extend(keys_of(properties).map(|key| (topic.with_key(key), false)));
        let keys = wanted.len();
        wanted.extend(tags_of(properties).map(|tags| (topic.with_tags(tags), false)));
        while let Some((number, entry)) = self.head()?.filter(|(_, e)| e.physical_offset == at) {
            let hash = entry.key_hash;
            let unseen = wanted.iter().position(|(key, seen)| *key == hash && !seen);
            // RocketMQ puts the keys of the message at which it resumes twice.
            let again = unseen.is_none() && wanted.iter().any(|(key, _)| *key == hash);
            if let Some(wanted) = unseen.and_then(|key| wanted.get_mut(key)) {
                wanted.1 = true;
            }
            let Some(entries) = &self.entries else { break };
            if unseen.is_some() || again {
                self.judge.time(entries, number, &entry, store_timestamp_ms);
            } else {
                self.reach.gap.wrong += 1;
                let expected = "a message with a key of this hash";
                let found = format!("entry {number} with hash {hash}, physical offset {at}");
                self.judge.add(Code::IndexOther, entries.open(), number, 0, expected, found);
            }
            self.advance();
        }
        let has_tags = wanted.get(keys).map(|(_, seen)| *seen);
        let missing =
            wanted.iter().take(keys.min(KEYS_ASKED)).filter(|(_, seen)| !seen).count() as u64;
        self.wanted = wanted;
        self.note_tags(at, has_tags);
        if missing == 0 {
            self.close_gap();
        } else {
            self.miss(at, missing);
        }
        Ok(())
    }

    fn note_tags(&mut self, at: i64, has_tags: Option<bool>) {
        let is_within = self.index.span().is_some_and(|(first, last)| first <= at && at < last);
        if let Some(has_tags) = has_tags.filter(|has_tags| *has_tags || is_within) {
            self.reach.tags.add(at, has_tags);
        }
    }

    fn miss(&mut self, at: i64, keys: u64) {
        let unknown = |(from, to): &(i64, i64)| *from <= at && at <= *to;
        if self.index.unknown.iter().any(unknown) {
            return;
        }
        let is_closed = self.cx.state == State::Closed;
        match self.index.span() {
            Some((first, _)) if at < first => self.reach.before.add(at),
            Some((_, last)) if at < last || (at == last && is_closed) => {
                self.reach.gap.messages.add(at);
                self.reach.gap.missing += keys;
            }
            _ => self.reach.behind.add(at),
        }
    }

    #[cold]
    fn astray(&mut self, number: u32, entry: &IndexEntry) -> Result<()> {
        let Some(entries) = &self.entries else { return Ok(()) };
        if !self.judge.entry(entries, number, entry, &self.damaged)? {
            self.reach.gap.wrong += 1;
        }
        self.advance();
        Ok(())
    }

    #[cold]
    fn close_gap(&mut self) {
        let gap = std::mem::take(&mut self.reach.gap);
        if self.reach.first_gap.is_none() {
            // It may have begun in the previous file.
            self.reach.first_gap = Some(gap);
        } else {
            gap.report(self.cx);
        }
    }

    pub(crate) fn finish(&mut self, end: u64) -> Result<()> {
        let end = saturating_i64(end);
        while let Some((number, entry)) = self.head()?.filter(|(_, e)| e.physical_offset < end) {
            if self.cx.meter.is_cancelled() {
                return Ok(());
            }
            self.astray(number, &entry)?;
        }
        Ok(())
    }
}

#[inline]
fn tags_of<'a>(properties: &Indexed<'a>) -> Option<&'a [u8]> {
    properties.tags.filter(|tags| !tags.is_empty())
}

fn report_reach(cx: &Context<'_>, behind: &Unindexed, before: &Unindexed) {
    let dir = cx.paths.index();
    let text = |of: &Unindexed| {
        of.span.map(|(from, to)| {
            format!("none of {} messages at physical offsets {from} to {to}", of.messages)
        })
    };
    if let Some(found) = text(behind) {
        // A broker adds what a crash or its own activity left out.
        let closed = cx.state == State::Closed;
        let severity = if closed { Severity::Warning } else { Severity::Info };
        let expected = "the keys of the newest messages";
        cx.findings.add(Code::IndexTail.at(severity), &dir, None, expected, found);
    }
    if let Some(found) = text(before) {
        let expected = "the keys of the oldest messages";
        let code = Code::IndexMissing.at(Severity::Warning);
        cx.findings.add(code, &dir, None, expected, found);
    }
}

pub(crate) fn check_behind(
    cx: &Context<'_>,
    index: &Index,
    log: &FileRun,
    walked: &Walked,
) -> Result<()> {
    let start = log.end_offset().unwrap_or(walked.log_end);
    IndexCheck::new(cx, index, log, start)?.finish(u64::MAX)
}

/// Maximum runs; later messages are added to the last.
const MOST_RUNS: usize = 1000;

/// Consecutive messages with tags, all with an entry or all without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TagRun {
    has_entries: bool,
    messages: u64,
    first: i64,
    last: i64,
}

/// The messages with tags that the index reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TagRuns(Vec<TagRun>);

impl TagRuns {
    #[inline]
    fn add(&mut self, at: i64, has_entries: bool) {
        self.push(TagRun { has_entries, messages: 1, first: at, last: at });
    }

    #[inline]
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

    fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|run| self.push(*run));
    }

    fn report(&self, cx: &Context<'_>) {
        if !self.0.iter().any(|run| run.has_entries) {
            return;
        }
        for run in self.0.iter().filter(|run| !run.has_entries) {
            let expected = "an entry for the tags of each message";
            let TagRun { messages, first, last, .. } = run;
            let found =
                format!("none of {messages} messages at physical offsets {first} to {last}");
            let (code, dir) = (Code::IndexTags, cx.paths.index());
            cx.findings.add(code, &dir, None, expected, found);
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
            part.iter().for_each(|(at, has_entries)| runs.add(*at, *has_entries));
            all.join(&runs);
        }
        let run =
            |has_entries, messages, first, last| TagRun { has_entries, messages, first, last };
        assert_eq!(all.0, [run(false, 3, 0, 20), run(true, 2, 30, 40)]);
    }
}
