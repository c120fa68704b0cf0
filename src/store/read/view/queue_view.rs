//! A queue as a reader sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Result;
use crate::format::checkpoint::CheckpointFields;
use crate::format::message::peek;
use crate::format::width::{at_least_0, at_most_i64};
use crate::log::commit_log::Found;
use crate::log::queue::CqUnit;
use crate::log::queue::consume_queue_ext::TagsCode;
use crate::log::queue::seen_codes::Seen256;
use crate::log::read::end;
use crate::log::read::end::Left;
use crate::log::{CommitLog, Queue, QueueKind};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::queue_audit::is_known;
use crate::store::queue_table::QueueTable;
use crate::store::read::entry_search;

pub(super) type Extra = Arc<Vec<CqUnit>>;

#[derive(Clone, Debug)]
pub struct QueueView {
    pub(super) queue: Option<Arc<Queue>>,
    pub(super) extra: Option<Extra>,
    pub kind: QueueKind,
    /// First queue offset still in the log.
    pub min_offset: i64,
    pub max_offset: i64,
}

impl QueueView {
    #[must_use]
    pub fn whole(queue: Arc<Queue>) -> Self {
        let (min_offset, max_offset) = (queue.min_offset(), queue.max_offset());
        Self { kind: queue.kind(), queue: Some(queue), extra: None, min_offset, max_offset }
    }

    /// Whether files were missing, so that no answer counts.
    #[must_use]
    pub fn has_lost_files(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.has_lost_files())
    }

    /// At most `count` units from the one that holds or follows `from`.
    pub fn units(&self, from: i64, count: usize) -> Result<Vec<CqUnit>> {
        let mut units = match &self.queue {
            Some(queue) => queue.units(from, count)?,
            None => Vec::new(),
        };
        // A queue may hold more than the log confirms.
        units.truncate(units.partition_point(|unit| unit.number < self.max_offset));
        let Some(extra) = &self.extra else { return Ok(units) };
        let start = extra.partition_point(|unit| unit.end() <= from);
        let extra = extra.get(start..).unwrap_or_default();
        let extra = extra.get(..count).unwrap_or(extra);
        if !extra.is_empty() {
            // Where both have a number, the log is right.
            units.extend_from_slice(extra);
            units.reverse();
            units.sort_by_key(|unit| unit.number);
            units.dedup_by_key(|unit| unit.number);
            units.truncate(count);
        }
        Ok(units)
    }

    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        let queue = self.queue.as_deref()?;
        queue.run().files().first()?.path.parent().map(Path::to_path_buf)
    }

    /// Checked entries among the 256 from `first` on.
    #[must_use]
    pub fn seen_codes(&self, first: i64) -> Option<Seen256> {
        self.queue.as_ref().map(|queue| queue.seen_codes().get(first))
    }

    pub fn put_seen_codes(&self, first: i64, seen: Seen256) {
        if let Some(queue) = &self.queue {
            queue.seen_codes().put(first, seen);
        }
    }

    #[must_use]
    pub fn first_listed(&self) -> i64 {
        let plain = self.queue.as_ref().filter(|queue| queue.kind() == QueueKind::Plain);
        plain.map_or(0, |queue| at_most_i64(queue.places().start))
    }

    /// The unit that holds a queue offset.
    pub fn unit(&self, number: i64) -> Result<Option<CqUnit>> {
        Ok(self.units(number, 1)?.pop().filter(|unit| unit.holds(number)))
    }

    #[inline]
    pub fn resolve(&self, tags_code: i64) -> Result<TagsCode> {
        match &self.queue {
            Some(queue) => queue.resolve(tags_code),
            None => Ok(TagsCode::Known(tags_code)),
        }
    }

    /// Units in a file from a queue offset on, for RocketMQ's limits.
    pub fn units_to_file_end(&self, number: i64) -> Result<usize> {
        self.queue.as_ref().map_or(Ok(usize::MAX), |queue| queue.units_to_file_end(number))
    }
}

/// Offset from which a reader must compare queues with the log: the queues' end, or after a crash
/// where recovery would begin (`CommitLog.isMappedFileMatchedRecover`).
pub fn start_of_doubt(
    log: &CommitLog,
    queues: &QueueTable,
    checkpoint: &CheckpointFields,
    crashed: bool,
) -> Result<u64> {
    if queues.is_unsound() {
        return Ok(log.min_offset());
    }
    let all = queues.all();
    let reach = all.iter().map(|queue| queue.reach()).max().unwrap_or(-1);
    let reach = at_least_0(reach).max(log.min_offset());
    // An entry without its message tells nothing.
    if !crashed && let Some(end) = entry_search::end_of_queues(log, &all)? {
        let reach = end.max(log.min_offset());
        let mut buffer = Vec::new();
        let begins = |found: &Found<'_>| !matches!(found, Found::Bad(_) | Found::OutOfRange);
        if reach >= log.end_offset() || begins(&log.read(reach, 0, &mut buffer)?) {
            return Ok(reach.min(log.end_offset()));
        }
    }
    let known_ms = checkpoint.min_timestamp_ms();
    for file in log.run().files().iter().rev() {
        if file.base_offset >= log.end_offset() {
            continue;
        }
        let mut head = [0; peek::HEAD];
        let read = log.run().read_at(&mut head, file.base_offset)?;
        let time =
            head.get(..read).and_then(|head| peek::store_timestamp_ms(head, file.base_offset));
        // At most the file where the queues end: a checkpoint from the future proves nothing.
        if time.is_some_and(|time| time != 0 && time <= known_ms) && file.base_offset <= reach {
            return Ok(file.base_offset);
        }
    }
    Ok(log.min_offset())
}

/// Sets the end by [`end::find`]. Returns the last record if it is left out.
pub fn find_end(log: &CommitLog, queues: &QueueTable, left: Left) -> Result<Option<u64>> {
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
