//! Where a log goes on behind damage.

use std::ops::Range;

use crate::error::Result;
use crate::format::message::peek::{self, SIGNATURE};
use crate::format::width::to_usize;

use super::evidence::{Budget, begins_frame, is_likely, search};
use crate::log::commit_log::{CommitLog, Found};

/// Maximum distance of a record that reaches into a range: the default `max_message_size`.
const LOOK_BACK: u64 = 5 << 20;

/// Next whole record behind the damage at `damaged`, in a log that ends at `end`.
pub fn next(log: &CommitLog, damaged: u64, end: u64, budget: &mut Budget) -> Result<Option<u64>> {
    for file in log.run().files().iter() {
        let from = file.base_offset.max(damaged.saturating_add(1));
        let to = file.base_offset.saturating_add(log.run().file_size()).min(end);
        if from < to
            && let Some(found) = next_before(log, from, to, end, budget)?
        {
            return Ok(Some(found));
        }
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
    let file_end = file_end(log, at).unwrap_or(to);
    find_likely(log, at..to, |offset, head| {
        let is_whole = budget.allows(offset, head, file_end)
            && matches!(log.read_before(offset, end, 0, &mut Vec::new())?,
                Found::Message(view) if view.check_body_crc().is_ok());
        Ok(is_whole.then_some(offset))
    })
}

/// First likely record in `offsets` of one file for which `accept` has an answer.
pub(super) fn find_likely<T>(
    log: &CommitLog,
    offsets: Range<u64>,
    accept: impl FnMut(u64, &[u8]) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let Some(file) = log.run().find(offsets.start) else { return Ok(None) };
    let Some(open) = log.run().open_if_there(&file)? else { return Ok(None) };
    search(&*open, &file, offsets, is_likely, accept)
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
    Ok(Some(begins_frame(head.get(..read).unwrap_or_default(), next, file_end)))
}

/// Whether a likely record before `from` reaches past `at` in the same file.
pub(super) fn reaches(log: &CommitLog, from: u64, at: u64) -> Result<bool> {
    let base = log.run().find(from).map_or(from, |file| file.base_offset);
    let earlier = from.saturating_sub(LOOK_BACK).max(base)..from;
    let reaching = find_likely(log, earlier, |offset, head| {
        let claimed = peek::claimed_size(head).unwrap_or(0) as u64;
        Ok((offset.saturating_add(claimed) > at).then_some(()))
    })?;
    Ok(reaching.is_some())
}

pub(super) fn file_end(log: &CommitLog, at: u64) -> Option<u64> {
    let file = log.run().find(at)?;
    Some(file.base_offset.saturating_add(log.run().file_size()))
}

pub fn next_file(log: &CommitLog, at: u64) -> Option<u64> {
    let files = log.run().files();
    let behind = files.partition_point(|file| file.base_offset <= at);
    files.get(behind).map(|later| later.base_offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Access, FileRun, Os};
    use crate::format::message::Version;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    #[test]
    fn a_search_reads_no_holes_and_misses_no_record_beside_one() {
        const SIZE: u64 = 64 << 30;
        let dir = tempfile::tempdir().unwrap();
        let sparse = File::create(dir.path().join(format!("{:020}", SIZE))).unwrap();
        sparse.set_len(SIZE).unwrap();
        let offsets = [1 << 20, (1 << 20) + 4096 - 2, SIZE - 4096];
        for at in offsets {
            let mut head = [0; SIGNATURE];
            // Without a size four zeros precede the magic code.
            head[4..8].copy_from_slice(&Version::V1.magic().to_be_bytes());
            head[28..36].copy_from_slice(&(SIZE + at).to_be_bytes());
            sparse.write_all_at(&head, at).unwrap();
        }
        let dirs = vec![dir.path().to_owned()];
        let (run, _) =
            FileRun::load(Arc::new(Os), Arc::default(), dirs, SIZE, Access::Read).unwrap();
        let log = CommitLog::new(run, 2 * SIZE);
        let mut found = Vec::new();
        let none = find_likely(&log, SIZE + 1..2 * SIZE, |offset, _| {
            found.push(offset - SIZE);
            Ok(None::<()>)
        });
        assert_eq!((none.unwrap(), found), (None, offsets.to_vec()));
    }
}
