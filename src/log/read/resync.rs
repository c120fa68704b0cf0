//! Where a log goes on behind damage.

use crate::error::Result;
use crate::format::message::peek::{self, SIGNATURE};
use crate::format::message::{self, Frame};
use crate::format::width::to_usize;

use super::block::BLOCK_BYTES;
use super::evidence::{Budget, is_likely};
use crate::log::commit_log::{CommitLog, Found};

const FIRST_READ: usize = 8 << 10;

/// Maximum distance of a record that reaches into a range: the default `max_message_size`.
const LOOK_BACK: u64 = 5 << 20;
const LOOK: u64 = 256 << 10;

/// Whether a whole record begins at `at` in a log that ends at `end`.
pub fn is_whole(log: &CommitLog, at: u64, end: u64) -> Result<bool> {
    let mut buffer = Vec::new();
    Ok(match log.read_before(at, end, 0, &mut buffer)? {
        Found::Message(view) => view.check_body_crc().is_ok(),
        _ => false,
    })
}

/// Next whole record behind the damage at `damaged`, in a log that ends at `end`.
pub fn next(log: &CommitLog, damaged: u64, end: u64, budget: &mut Budget) -> Result<Option<u64>> {
    let mut at = damaged.saturating_add(1);
    while at < end {
        let Some(file_end) = file_end(log, at) else {
            // A gap, or the end of the files.
            match next_file(log, at) {
                Some(later) => at = later,
                None => break,
            }
            continue;
        };
        let file_end = file_end.min(end);
        if let Some(found) = next_before(log, at, file_end, end, budget)? {
            return Ok(Some(found));
        }
        at = file_end;
    }
    Ok(None)
}

/// [`next`] in the file, otherwise the beginning of the next file.
pub fn next_in_file(log: &CommitLog, at: u64, end: u64, budget: &mut Budget) -> Result<u64> {
    let Some(file_end) = file_end(log, at) else {
        return Ok(next_file(log, at).map_or(end, |later| later.min(end)));
    };
    let file_end = file_end.min(end);
    Ok(next_before(log, at.saturating_add(1), file_end, end, budget)?.unwrap_or(file_end))
}

fn next_before(
    log: &CommitLog,
    at: u64,
    to: u64,
    end: u64,
    budget: &mut Budget,
) -> Result<Option<u64>> {
    find_likely(log, at, to, budget, |place| Ok(is_whole(log, place, end)?.then_some(place)))
}

/// First likely record that begins in `at..to` of its file. It may be a look-alike in a body: the
/// caller must reach it from an earlier record.
pub fn guess(log: &CommitLog, at: u64, to: u64, budget: &mut Budget) -> Result<Option<u64>> {
    let Some(file) = log.run().find(at) else { return Ok(None) };
    // A file begins with a record.
    if at == file.base_offset {
        return Ok(Some(at));
    }
    let file_end = file.base_offset.saturating_add(log.run().file_size());
    let last = to.saturating_add(SIGNATURE as u64 - 1).min(file_end);
    find_likely(log, at, last, budget, |place| Ok(Some(place)))
}

/// First likely record in `at..to` of one file for which `accept` has an answer.
pub(super) fn find_likely<T>(
    log: &CommitLog,
    mut at: u64,
    to: u64,
    budget: &mut Budget,
    mut accept: impl FnMut(u64) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let file_end = file_end(log, at).unwrap_or(to);
    let mut step = FIRST_READ;
    let mut block = Vec::new();
    while at < to {
        let len = to_usize(to - at).min(step);
        step = (step * 4).min(BLOCK_BYTES);
        block.resize(len, 0);
        let read = log.run().read_at(&mut block, at)?;
        let bytes = block.get(..read).unwrap_or_default();
        if bytes.len() < SIGNATURE {
            return Ok(None);
        }
        for (place, head) in (at..).zip(bytes.windows(SIGNATURE)) {
            if !is_likely(head, place) {
                continue;
            }
            let claim = peek::claimed_size(head).unwrap_or(0) as u64;
            // Its head alone refuses one too large for the file.
            let claim = if place.saturating_add(claim) > file_end { 0 } else { claim };
            if !budget.take(place, claim) && claim > Budget::SMALL {
                continue;
            }
            if let Some(found) = accept(place)? {
                return Ok(Some(found));
            }
        }
        at += (bytes.len() - SIGNATURE + 1) as u64;
    }
    Ok(None)
}

/// Whether the record at `at` is linked, too; `None` if it is not whole. Readers that do not check
/// checksums accept a wrong one.
pub(super) fn is_linked(
    log: &CommitLog,
    at: u64,
    end: u64,
    verify_crc: bool,
) -> Result<Option<bool>> {
    let mut buffer = Vec::new();
    let Found::Message(view) = log.read(at, 0, &mut buffer)? else { return Ok(None) };
    if view.check_body_crc().is_err() {
        return Ok((!verify_crc).then_some(false));
    }
    let next = at.saturating_add(u64::from(view.store_size()));
    if next == end {
        return Ok(Some(true));
    }
    let file_end = file_end(log, at).unwrap_or(at);
    let mut head = [0; SIGNATURE];
    let room = to_usize(file_end.saturating_sub(next));
    let head = head.get_mut(..room.min(SIGNATURE)).unwrap_or_default();
    let read = log.run().read_at(head, next)?;
    let head = head.get(..read).unwrap_or_default();
    Ok(Some(match peek::is_record(head) {
        true => peek::names_place(head, next),
        false => matches!(message::read_frame(head), Ok(Frame::Blank { size })
            if next.saturating_add(u64::from(size)) == file_end),
    }))
}

/// Whether a likely record before `from` reaches past `at` in the same file.
pub(super) fn reaches(log: &CommitLog, from: u64, at: u64) -> Result<bool> {
    let base = log.run().find(from).map_or(from, |file| file.base_offset);
    let mut place = from.saturating_sub(LOOK_BACK).max(base);
    let mut block = Vec::new();
    while place < from {
        let len = (from - place).min(LOOK) + SIGNATURE as u64 - 1;
        block.resize(to_usize(len), 0);
        let read = log.run().read_at(&mut block, place)?;
        let bytes = block.get(..read).unwrap_or_default();
        for (begin, head) in (place..).zip(bytes.windows(SIGNATURE)) {
            let claimed = peek::claimed_size(head).unwrap_or(0) as u64;
            if is_likely(head, begin) && begin + claimed > at {
                return Ok(true);
            }
        }
        if bytes.len() < SIGNATURE {
            return Ok(false);
        }
        place += (bytes.len() - SIGNATURE + 1) as u64;
    }
    Ok(false)
}

/// End of the file that holds `at`; `None` within a gap.
pub(super) fn file_end(log: &CommitLog, at: u64) -> Option<u64> {
    let file = log.run().find(at)?;
    Some(file.base_offset.saturating_add(log.run().file_size()))
}

/// Beginning of the first file behind `at`.
pub(super) fn next_file(log: &CommitLog, at: u64) -> Option<u64> {
    let files = log.run().files();
    let behind = files.partition_point(|file| file.base_offset <= at);
    files.get(behind).map(|later| later.base_offset)
}
