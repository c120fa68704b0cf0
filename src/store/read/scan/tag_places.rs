//! Records whose tags code may match.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::{FileKind, Storage};
use crate::format::message::tag_filter::TagFilter;
use crate::format::width::at_most_i64;
use crate::log::commit_log::Found;
use crate::log::{CommitLog, QueueKind};

use super::places::{led_to, may_match, queue_at};

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
        let start = at_most_i64(within.start);
        let place = queue.first_not(|unit| unit.physical_offset < start)?;
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
    let below = |dir: &Path| -> Result<Vec<PathBuf>> {
        let entries = storage.list_if_there(dir)?.into_iter().flatten();
        let folders = entries.filter(|entry| entry.kind == FileKind::Directory);
        Ok(folders.map(|entry| dir.join(entry.name)).collect())
    };
    let is_queue = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|n| n.parse::<u32>().is_ok())
    };
    let mut queues = Vec::new();
    for kind in [QueueKind::Plain, QueueKind::Batch] {
        for topic in below(&root.join(kind.folder()))? {
            queues.extend(below(&topic)?.into_iter().filter(is_queue));
        }
    }
    Ok(queues)
}
