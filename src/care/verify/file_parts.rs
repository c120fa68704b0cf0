//! Reads log files in parts on threads, and joins the results.
//!
//! A check leaves traces: findings, and entries that count as matched. So if a part was read from a
//! wrong start, or has damage that only earlier messages explain, whole files are walked instead.

use std::ops::Range;
use std::sync::Arc;

use super::context::Context;
use super::index::Index;
use super::index::index_check::Edges;
use super::log_walk::{self, FileWalk, Listed, MOST_DAMAGED};
use super::queues::Queues;
use crate::error::Result;
use crate::files::{FileRun, RunFile};
use crate::log::read::parallel::{cut, read_in_parts};

/// Walks all files in parts of about so many bytes; `None` if the result may differ from walks over
/// whole files.
pub(super) fn walk_all(
    cx: &Context<'_>,
    log: &FileRun,
    listed: &Listed,
    queues: &Queues,
    index: &Index,
    part_bytes: Option<u64>,
) -> Result<Option<Vec<FileWalk>>> {
    let (files, dir) = (&listed.files, log.dir());
    // One file after the other, whatever their names say: files may overlap or be missing.
    let lens = files.iter().map(|file| file.len.min(log.file_size()).max(1));
    let mut begins_at = vec![0];
    begins_at.extend(lens.scan(0, |end, len| {
        *end += len;
        Some(*end)
    }));
    let begin_of = |number: usize| begins_at.get(number).copied().unwrap_or(u64::MAX);
    let len = part_bytes.unwrap_or(u64::MAX).max(1);
    let parts = files.iter().enumerate().flat_map(|(number, file)| {
        cut((begin_of(number), file), begin_of(number)..begin_of(number + 1), len)
    });
    let parts: Vec<_> = parts.collect();
    let read = |&(begin, file): &(u64, &Arc<RunFile>), bytes: Range<u64>, begins: bool| {
        let bytes = bytes.start - begin..bytes.end - begin;
        let found = log_walk::walk(cx, (log, listed), (queues, index), file, bytes, begins);
        Ok(found.map(|(first, walk)| (begin + first, walk)))
    };
    let mut walks: Vec<FileWalk> = Vec::new();
    let mut is_sure = true;
    let all_count = read_in_parts(&parts, 0, false, cx.threads, &dir, read, |_, walk| {
        if cx.is_cancelled() {
            return Ok(None);
        }
        let joined = match walks.pop_if(|before| before.goes_on()) {
            None => (!walk.goes_on() || !walk.is_doubtful).then_some(walk),
            Some(before) => before.then(walk, cx, log),
        };
        is_sure = joined.is_some();
        let Some(joined) = joined else { return Ok(None) };
        let number = walks.len();
        // Damage and blanks end a file, and each file begins with a message.
        let next = match joined.goes_on() {
            true => begin_of(number) + joined.end,
            false => begin_of(number + 1),
        };
        walks.push(joined);
        Ok(Some(next))
    })?;
    Ok((is_sure && all_count).then_some(walks))
}

impl FileWalk {
    fn then(self, next: Self, cx: &Context<'_>, log: &FileRun) -> Option<Self> {
        let is_sure = |walk: &Self| !walk.is_doubtful && !walk.failed && !walk.forgot;
        if !is_sure(&self) || !is_sure(&next) {
            return None;
        }
        let damaged = [self.damaged, next.damaged].concat();
        if damaged.len() > MOST_DAMAGED {
            return None;
        }
        let (mut behind_index, mut before_index) = (self.behind_index, self.before_index);
        behind_index.join(&next.behind_index);
        before_index.join(&next.before_index);
        let mut oddities = self.oddities;
        oddities.join(self.messages, &next.oddities);
        let mut tag_runs = self.tag_runs;
        tag_runs.join(&next.tag_runs);
        Some(Self {
            messages: self.messages + next.messages,
            newest_ms: self.newest_ms.max(next.newest_ms),
            last: next.last.or(self.last),
            damaged,
            behind_index,
            before_index,
            tag_runs,
            oddities,
            index_gaps: self.index_gaps.then(&next.index_gaps, cx),
            times: self.times.then(&next.times, cx, log),
            ..next
        })
    }
}

impl Edges {
    fn then(self, next: &Self, cx: &Context<'_>) -> Self {
        let mut between = self.last;
        let Some(first) = &next.first else {
            between.join(&next.last);
            return Self { first: self.first, last: between };
        };
        between.join(first);
        let first = match self.first {
            Some(first) => {
                between.report(cx);
                first
            }
            None => between,
        };
        Self { first: Some(first), last: next.last }
    }
}
