//! Reads log files in parts on threads, and joins the results: the log's end, and faults before it.
//!
//! A check leaves traces: findings, and entries that count as matched. So if a part was read from a
//! wrong start, or has damage that only earlier messages explain, whole files are walked instead.

use std::ops::Range;
use std::sync::Arc;

use super::context::{Context, State, Walked};
use super::index::Index;
use super::log_walk::{self, FileWalk, Listed, MOST_DAMAGED, code_of};
use super::oddities::{Oddities, Times};
use super::queues::Queues;
use crate::care::finding::{Code, Graded, Severity};
use crate::error::{CorruptionKind, Result};
use crate::files::{FileRun, RunFile};
use crate::log::read::end::{LogState, is_left_out};
use crate::log::read::file_walk::{Fault, FileEnd, is_written};
use crate::log::read::parallel::{cut, read_in_parts};

/// Walks all files in parts of about so many bytes; `None` if the result may differ from walks over
/// whole files.
pub(crate) fn walk_all(
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
        if cx.meter.is_cancelled() {
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
        let mut index = self.index;
        index.join(&next.index, cx);
        let mut oddities = self.oddities;
        oddities.join(self.messages, &next.oddities);
        Some(Self {
            messages: self.messages + next.messages,
            newest_ms: self.newest_ms.max(next.newest_ms),
            last: next.last.or(self.last),
            damaged,
            index,
            oddities,
            times: self.times.then(&next.times, cx, log),
            ..next
        })
    }
}

#[derive(Default)]
pub(crate) struct Joined {
    pub(crate) messages: u64,
    pub(crate) end: u64,
    pub(crate) newest_ms: i64,
    pub(crate) walked: Walked,
    pub(crate) grew: bool,
}

pub(crate) fn join(cx: &Context<'_>, log: &FileRun, listed: &Listed, walks: &[FileWalk]) -> Joined {
    let log_start = log.min_offset().unwrap_or(0);
    let walked = Walked { log_start, log_end: log_start, ..Walked::default() };
    let mut joined = Joined { end: log_start, walked, ..Joined::default() };
    let has_data =
        |walk: &FileWalk| walk.end > 0 || walk.failed || !matches!(walk.how, FileEnd::Nothing);
    let last = walks.iter().rposition(has_data);
    let (mut reliable_ms, mut last_message) = (0, None);
    let mut oddities = Oddities::default();
    // Times on both sides of a file's end.
    walks.iter().fold(Times::default(), |times, walk| times.then(&walk.times, cx, log));
    for (number, (walk, file)) in walks.iter().zip(listed.files.iter()).enumerate() {
        oddities.join(joined.messages, &walk.oddities);
        joined.messages += walk.messages;
        walk.times.report(reliable_ms, walk.newest_ms, cx, log);
        reliable_ms = reliable_ms.max(walk.times.reliable_ms());
        joined.newest_ms = joined.newest_ms.max(walk.newest_ms);
        joined.walked.damaged.extend_from_slice(&walk.damaged);
        joined.walked.forgot |= walk.forgot;
        if last.is_none_or(|last| number > last) {
            continue;
        }
        let is_last = last == Some(number);
        let file_end = file.base_offset.saturating_add(log.file_size());
        joined.walked.log_end = file.base_offset.saturating_add(walk.end);
        if let Some(at) = walk.last {
            joined.end = joined.walked.log_end;
            last_message = Some((file, file.base_offset.saturating_add(at)));
        }
        let short = file.len < log.file_size();
        let add = |code: Graded, offset, expected: &str, found: String| {
            cx.findings.add(code, &file.path, Some(offset), expected, found);
        };
        let from = file.base_offset.saturating_add(walk.end);
        let damaged_to = match &walk.how {
            FileEnd::Blank | FileEnd::Whole => None,
            _ if walk.failed => Some(file_end),
            FileEnd::Nothing if is_last || short || cx.meter.is_cancelled() => None,
            FileEnd::Nothing | FileEnd::Bad(_)
                if !is_last
                    && cx.state == State::InUse
                    && is_written(log, file, walk.end).unwrap_or(false) =>
            {
                joined.grew = true;
                Some(file_end)
            }
            FileEnd::Nothing => {
                let found = match walk.end < log.file_size() {
                    true => "zeros to the end of the file".to_owned(),
                    false => "the end of the file".to_owned(),
                };
                add(Code::LogHole.into(), walk.end, "a message or a blank", found);
                Some(file_end)
            }
            FileEnd::Bad(damage) if short && damage.error.kind == CorruptionKind::Truncated => {
                Some(file_end)
            }
            FileEnd::Bad(damage) => {
                let code = match (is_last, cx.state) {
                    (true, State::InUse) => Code::LogTail.at(Severity::Info),
                    (true, State::Crashed) if from >= cx.durable => Code::LogTail.into(),
                    (true, State::Closed) if damage.fault == Fault::Hole => Code::LogRemains.into(),
                    _ => code_of(damage.fault).into(),
                };
                let offset = damage.at.saturating_add(damage.error.position as u64);
                let found = format!("{}; no message behind in this file", damage.error.found);
                add(code, offset, &damage.error.expected, found);
                Some(if is_last { from.saturating_add(1) } else { file_end })
            }
            FileEnd::Remains(damage, older) => {
                let found = format!(
                    "{}; {older} messages behind, all older than those before",
                    damage.error.found
                );
                let expected = "zeros behind the end of the log";
                add(Code::LogRemains.into(), damage.at, expected, found);
                None
            }
        };
        joined.walked.damaged.extend(damaged_to.map(|to| (from, to)));
    }
    oddities.report(cx, log, joined.messages);
    joined.walked.damaged.sort_unstable();
    let left = if cx.state == State::Closed { LogState::Closed } else { LogState::Open };
    if let Some((file, begin)) = last_message {
        match is_left_out(log, file, begin..u64::MAX, left) {
            Ok(None) => {}
            Ok(Some(_)) => (joined.messages, joined.end) = (joined.messages - 1, begin),
            Err(error) => cx.error(&file.path, error),
        }
    }
    joined
}
