//! The end of a log that was not closed or grows, and the offset from which queues are compared with
//! it.

use crate::error::Result;
use crate::format::checkpoint::CheckpointFields;
use crate::format::message::peek;
use crate::format::width::{clamp_u64, offset_or_max};
use crate::log::commit_log::Found;
use crate::log::index::run::IndexRun;
use crate::log::read::end::{self, LogState};
use crate::log::{CommitLog, QueueKind};

use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::queue_audit::is_known;
use crate::store::queue_table::QueueTable;
use crate::store::read::entry_search;

/// Offset from which a reader must compare queues with the log: the queues' end, or after a crash
/// where recovery would begin (`CommitLog.isMappedFileMatchedRecover`).
pub fn audit_start(
    log: &CommitLog,
    queues: &QueueTable,
    checkpoint: &CheckpointFields,
    crashed: bool,
) -> Result<u64> {
    if queues.is_unsound() {
        return Ok(log.min_offset());
    }
    let reach = reach_of(queues).max(log.min_offset());
    // An entry without its message tells nothing.
    if !crashed && let Some(end) = entry_search::end_of_queues(log, &queues.all())? {
        let reach = end.max(log.min_offset());
        let mut buffer = Vec::new();
        let begins = |found: &Found<'_>| !matches!(found, Found::Bad(_) | Found::OutOfRange);
        if reach >= log.end_offset() || begins(&log.read(reach, 0, &mut buffer)?) {
            return Ok(reach.min(log.end_offset()));
        }
    }
    let known_ms = checkpoint.min_timestamp_ms();
    // At most the file where the queues end: a checkpoint from the future proves nothing.
    log.last_file(|base, time| time != 0 && time <= known_ms && base <= reach)
}

/// Bytes of the log behind the queues that are compared with them at opening.
const MOST_BEHIND: u64 = 1 << 20;

/// Where ends of queues cost requests, reads that of the last record in the index, or of all queues
/// where it proves nothing. Returns whether it does.
pub fn prime(log: &CommitLog, queues: &QueueTable, index: Option<&IndexRun>) -> Result<bool> {
    if !queues.is_lazy() {
        return Ok(false);
    }
    // An index that cannot be read proves nothing; the search for missing files reports it.
    let mut is_proven = leads_to_index_end(log, queues, index).unwrap_or(false);
    if is_proven {
        // Messages without keys may follow: all queues find the end then, without a walk to it.
        let mut look = [0; 4096];
        let read = log.run().read_at(&mut look, reach_of(queues).saturating_add(MOST_BEHIND))?;
        is_proven = look.iter().take(read).all(|byte| *byte == 0);
    }
    if !is_proven {
        queues.read_ends()?;
    }
    Ok(is_proven)
}

fn leads_to_index_end(
    log: &CommitLog,
    queues: &QueueTable,
    index: Option<&IndexRun>,
) -> Result<bool> {
    let Some(index) = index else { return Ok(false) };
    let listing = index.listing();
    let (Some(newest), true) = (listing.files.last(), listing.unusable.is_empty()) else {
        return Ok(false);
    };
    let begin = index.open(newest)?.header()?.end_physical_offset;
    let files_end = log.run().end_offset().unwrap_or(0);
    let mut buffer = Vec::new();
    let begin = offset_or_max(begin);
    let Found::Message(view) = log.read_before(begin, files_end, 0, &mut buffer)? else {
        return Ok(false);
    };
    let request = DispatchRequest::of(&view);
    let entry = request.unit(request.range(QueueKind::Plain), queues.delay_levels());
    queues.read_end_behind(request.topic, request.queue_id, &entry)?;
    is_known(queues, &request)
}

/// Whether the queue that was read reaches the log's end, and the last file has room: no later
/// file is missing then.
pub fn is_plain(log: &CommitLog, queues: &QueueTable) -> bool {
    let end = log.end_offset();
    !queues.is_unsound()
        && end < log.run().end_offset().unwrap_or(0)
        && end <= reach_of(queues).saturating_add(MOST_BEHIND)
}

/// Log offset that the queues reach, of which some may not be read yet.
fn reach_of(queues: &QueueTable) -> u64 {
    clamp_u64(queues.all().iter().map(|queue| queue.reach()).max().unwrap_or(-1))
}

/// Sets the end by [`end::find`]. Returns the last record if it is left out.
pub fn find_end(log: &CommitLog, queues: &QueueTable, left: LogState) -> Result<Option<u64>> {
    let files_end = log.run().end_offset().unwrap_or(0);
    let known = last_known(log, files_end, queues)?;
    let found = end::find(log, left, known, |view| is_known(queues, &DispatchRequest::of(view)))?;
    log.set_end(found.offset);
    Ok(found.left_out)
}

/// Start of the last record that the queues lead to, if it is whole: earlier ones need not be
/// walked.
fn last_known(log: &CommitLog, end: u64, queues: &QueueTable) -> Result<Option<u64>> {
    let mut buffer = Vec::new();
    let all = queues.all();
    let Some(queue) = all.iter().max_by_key(|queue| queue.reach()) else { return Ok(None) };
    let last = queue.units(queue.max_offset().saturating_sub(1), 1)?.pop();
    let begin = last.and_then(|unit| u64::try_from(unit.physical_offset).ok());
    let Some(begin) = begin else { return Ok(None) };
    let Found::Message(view) = log.read_before(begin, end, 0, &mut buffer)? else {
        return Ok(None);
    };
    let is_whole = view.check_body_crc().is_ok() && !peek::lacks_bytes(&view, view.store_size());
    Ok((is_whole && is_known(queues, &DispatchRequest::of(&view))?).then_some(begin))
}
