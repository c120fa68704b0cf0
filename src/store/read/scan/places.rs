//! Where the log's files and the messages of parts of queues lie, for readers that share a log.
//!
//! Opening a log only lists its files; the divider passes the log's end.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::Storage;
use crate::format::message::tag_filter::TagFilter;
use crate::format::queue::consume_queue;
use crate::format::queue::consume_queue::SCHEDULE_TOPIC;
use crate::format::width::saturating_i64;
use crate::log::commit_log::Found;
use crate::log::{CommitLog, CqUnit, Queue, QueueKind};
use crate::store::folder::found;
use crate::store::folder::paths::{BATCH_CONSUME_QUEUE, StorePaths};

/// Opens the log at `root`, readable up to `log_end`, by listing its files only.
pub fn open_log(
    storage: &Arc<dyn Storage>,
    root: &Path,
    config: &StoreConfig,
    log_end: u64,
) -> Result<CommitLog> {
    let paths = StorePaths::new(Arc::clone(storage), root, config);
    found::need_store(&paths)?;
    let log = found::open_log(&paths, config)?;
    log.run().refuse_twins()?;
    log.set_end(log_end);
    Ok(log)
}

/// Topic, queue, and a half-open range of queue offsets.
pub type QueuePart = (String, i32, i64, i64);

/// Offsets of records named by parts of queues, sorted and distinct, inside `within`. A missing
/// queue has none, and an entry whose tags code `tags` rules out names none.
pub fn places_of(
    storage: &Arc<dyn Storage>,
    root: &Path,
    config: &StoreConfig,
    queues: &[QueuePart],
    tags: &TagFilter,
    within: Range<u64>,
) -> Result<Vec<(u64, u32)>> {
    let mut places = Vec::new();
    for &(ref topic, queue_id, begin, end) in queues {
        for kind in [QueueKind::Plain, QueueKind::Batch] {
            let folder = root.join(kind.folder()).join(topic).join(queue_id.to_string());
            let Some(queue) = queue_at(storage, &folder, config)? else { continue };
            // An earlier batch may reach into the part.
            let place = queue.partition_point_by(|unit| unit.number < begin)?;
            queue.each_from(place.saturating_sub(1), |unit| {
                if unit.number >= end {
                    return ControlFlow::Break(());
                }
                if let Some((at, size)) = led_to(unit)
                    && unit.end() > begin
                    && within.contains(&at)
                    && may_match(tags, &queue, unit)
                {
                    places.push((at, size));
                }
                ControlFlow::Continue(())
            })?;
        }
    }
    places.sort_unstable();
    places.dedup_by_key(|place| place.0);
    Ok(places)
}

pub(super) fn queue_at(
    storage: &Arc<dyn Storage>,
    folder: &Path,
    config: &StoreConfig,
) -> Result<Option<Queue>> {
    let is_batch = folder.ancestors().nth(2).is_some_and(|dir| dir.ends_with(BATCH_CONSUME_QUEUE));
    let entry = consume_queue::ENTRY_LEN as u64;
    let given = config.mapped_file_size_consume_queue.filter(|_| !is_batch);
    let file_size = given.map(|size| size.div_ceil(entry) * entry);
    match Queue::open_folder(Arc::clone(storage), folder, file_size) {
        Err(Error::NotAStore { .. }) => Ok(None),
        queue => queue.map(Some),
    }
}

/// Place and size of an entry's record; `None` if the entry leads nowhere (the maximum size).
pub(super) fn led_to(unit: &CqUnit) -> Option<(u64, u32)> {
    unit.place().filter(|(_, size)| (1..i32::MAX.cast_unsigned()).contains(size))
}

/// Whether an entry's message may match. Batches, delivery times and extension addresses tell nothing.
pub(super) fn may_match(filter: &TagFilter, queue: &Queue, unit: &CqUnit) -> bool {
    queue.kind() == QueueKind::Batch
        || queue.topic() == SCHEDULE_TOPIC
        || i32::try_from(unit.tags_code).is_err()
        || filter.matches_code(unit.tags_code)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagPlaces {
    pub records: Vec<(u64, u32)>,
    pub gaps: Vec<Range<u64>>,
}

/// Finds what `filter` may match in `within`.
pub fn tag_places(
    storage: &Arc<dyn Storage>,
    root: &Path,
    config: &StoreConfig,
    log: &CommitLog,
    filter: &TagFilter,
    within: Range<u64>,
) -> Result<TagPlaces> {
    let mut entries = Vec::new();
    for folder in queue_folders(&**storage, root)? {
        // Messages of a damaged queue are in a gap.
        let queue = match queue_at(storage, &folder, config) {
            Ok(Some(queue)) => queue,
            Ok(None) | Err(Error::Corrupt(_)) => continue,
            Err(error) => return Err(error),
        };
        let start = saturating_i64(within.start);
        let place = queue.partition_point_by(|unit| unit.physical_offset < start)?;
        queue.each_from(place.saturating_sub(1), |unit| {
            let Some((at, size)) = led_to(unit) else { return ControlFlow::Continue(()) };
            if at >= within.end {
                return ControlFlow::Break(());
            }
            if at + u64::from(size) > within.start {
                entries.push((at, size, may_match(filter, &queue, unit)));
            }
            ControlFlow::Continue(())
        })?;
    }
    entries.sort_unstable();
    let mut found = TagPlaces::default();
    let mut end = within.start;
    let mut last = None;
    for (at, size, matches) in entries {
        if last != Some((at, size)) {
            // Entries that contradict each other prove nothing.
            if at < end && last.is_some() {
                return Ok(TagPlaces { records: Vec::new(), gaps: vec![within] });
            }
            found.add_gap(log, end..at)?;
            end = at + u64::from(size);
            last = Some((at, size));
        }
        if matches && at >= within.start && found.records.last() != Some(&(at, size)) {
            found.records.push((at, size));
        }
    }
    found.add_gap(log, end..within.end)?;
    Ok(found)
}

impl TagPlaces {
    fn add_gap(&mut self, log: &CommitLog, gap: Range<u64>) -> Result<()> {
        if gap.is_empty() {
            return Ok(());
        }
        if let Found::Blank(len) = log.read(gap.start, 0, &mut Vec::new())?
            && gap.start.saturating_add(u64::from(len)) >= gap.end
        {
            return Ok(());
        }
        self.gaps.push(gap);
        Ok(())
    }
}

fn queue_folders(storage: &dyn Storage, root: &Path) -> Result<Vec<PathBuf>> {
    let is_queue = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|n| n.parse::<u32>().is_ok())
    };
    let mut queues = Vec::new();
    for kind in [QueueKind::Plain, QueueKind::Batch] {
        for topic in storage.folders_in(&root.join(kind.folder()))? {
            queues.extend(storage.folders_in(&topic)?.into_iter().filter(is_queue));
        }
    }
    Ok(queues)
}
