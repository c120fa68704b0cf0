//! Compares each queue entry with the log, where the walk left some unmatched.

use std::path::PathBuf;

use super::{Entry, Met, Queue, each_entry};
use crate::care::finding::{Code, Severity};
use crate::care::verify::context::{Context, State, Walked};
use crate::error::Result;
use crate::files::FileRun;
use crate::format::message::MessageView;
use crate::format::width::at_least_0;
use crate::log::read::frames::probe;

pub(in crate::care::verify) type Wrong = (Code, String, String);

pub(in crate::care::verify) fn spot<const LEN: usize>(queue: &Queue, place: i64) -> (PathBuf, u64) {
    let offset = at_least_0(place).saturating_mul(LEN as u64);
    match queue.run.find(offset) {
        Some(file) => (file.path.clone(), offset - file.base_offset),
        None => (queue.dir(), 0),
    }
}

/// Checks each entry before `end`: whether it leads to a message, and the result of `judge`. That
/// gets the entry, its position, a description, the message without its body, and its size.
pub(in crate::care::verify) fn check_entries<E: Entry<LEN>, const LEN: usize>(
    cx: &Context<'_>,
    queue: &Queue,
    log: &FileRun,
    walked: &Walked,
    end: i64,
    judge: impl Fn(i64, &E, String, &MessageView<'_>, u32) -> Option<Wrong>,
) -> Result<()> {
    let mut buffer = Vec::new();
    each_entry(cx, &queue.run, |place, met: &Met<E>| {
        let Met::Entry(entry) = met else { return Ok(()) };
        let (physical_offset, size) = entry.leads_to();
        let Ok(at) = u64::try_from(physical_offset) else { return Ok(()) };
        if place >= end || at < walked.log_start || walked.is_damaged(at) {
            return Ok(());
        }
        let found = format!("entry {place} with physical offset {at}, size {size}");
        let wrong = if at >= walked.log_end {
            Some((Code::QueueNowhere, format!("an offset before {}", walked.log_end), found))
        } else {
            match probe(log, at, &mut buffer)? {
                // A missing file was reported.
                None if log.find(at).is_none() => None,
                None => Some((Code::QueueNowhere, "the beginning of a message".to_owned(), found)),
                Some((view, size)) => judge(place, entry, found, &view, size),
            }
        };
        let Some((code, expected, found)) = wrong else { return Ok(()) };
        let (path, offset) = spot::<LEN>(queue, place);
        // A crash may leave entries of messages that were not flushed.
        let unclean = at >= walked.log_end && cx.state != State::Closed;
        let severity = if unclean { Severity::Warning } else { Severity::Error };
        cx.findings.add(code, severity, &path, Some(offset), expected, found);
        Ok(())
    })
}
