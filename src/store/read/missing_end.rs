//! Finds files that are missing at the log's end.

use std::path::PathBuf;

use crate::error::{Corruption, Result};
use crate::files::FileRun;
use crate::format::file_name::offset_name;
use crate::format::width::{clamp_u64, to_usize};
use crate::log::index::run::IndexRun;
use crate::log::{CommitLog, Queue, QueueKind};
use crate::store::queue_table::QueueTable;

const BLOCK: usize = 512;
const MOST_ENTRIES: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRange {
    pub topic: Box<[u8]>,
    pub queue_id: i32,
    pub first: i64,
    pub end: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingEnd {
    pub from: u64,
    pub reach: u64,
    pub file_size: u64,
    pub queues: Vec<MissingRange>,
    pub indexed: u64,
    pub by_checkpoint: bool,
    pub spares: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct MissingFiles {
    pub corruption: Corruption,
    pub queues: Vec<MissingRange>,
}

impl MissingFiles {
    /// Whether it lost messages: of any topic where no queue tells.
    #[must_use]
    pub fn concerns(&self, topic: &[u8], queue_id: Option<i32>) -> bool {
        let is_of = |range: &MissingRange| {
            &*range.topic == topic && queue_id.is_none_or(|number| number == range.queue_id)
        };
        self.queues.is_empty() || self.queues.iter().any(is_of)
    }
}

impl MissingEnd {
    #[must_use]
    pub fn behind_files(run: &FileRun, reach: u64) -> Self {
        let (from, file_size) = (run.end_offset().unwrap_or(0), run.file_size());
        Self { from, reach, file_size, ..Self::default() }
    }

    /// Finds what queues and index know from the log's `end` on. One entry is no evidence, unless
    /// it leads to `end` itself.
    pub fn find(
        log: &CommitLog,
        end: u64,
        queues: &QueueTable,
        index: Option<&IndexRun>,
    ) -> Result<Option<Self>> {
        let mut found = Self { file_size: log.run().file_size(), ..Self::default() };
        let (mut first_place, mut units) = (u64::MAX, 0);
        for queue in queues.all() {
            let Ok(reach) = u64::try_from(queue.reach()) else { continue };
            if reach <= end {
                continue;
            }
            let Some((first, offset, behind)) = first_behind(&queue, end)? else { continue };
            first_place = first_place.min(offset);
            units += behind;
            found.reach = found.reach.max(reach);
            let (topic, queue_id) = (queue.topic().into(), queue.queue_id());
            found.queues.push(MissingRange { topic, queue_id, first, end: queue.max_offset() });
        }
        if let Some(((first, reach), records)) = index.map_or(Ok(None), |run| indexed(run, end))? {
            first_place = first_place.min(first);
            found.reach = found.reach.max(reach);
            found.indexed = records;
            units += to_usize(records);
        }
        // Damaged entries lead anywhere, those of a missing file to its first messages.
        let is_near = first_place < end.saturating_add(found.file_size.max(1));
        let is_sure = is_near && (units > 1 || first_place == end);
        if found.messages() == 0 || !(is_sure || log.run().files().is_empty()) {
            return Ok(None);
        }
        found.queues.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
        found.from = match log.run().files().is_empty() {
            true => first_place - first_place.checked_rem(found.file_size).unwrap_or(0),
            false => end,
        };
        Ok(Some(found))
    }

    /// As [`Self::find`], for a log that ends at a gap or an empty file.
    pub fn before_spares(
        log: &CommitLog,
        queues: &QueueTable,
        index: Option<&IndexRun>,
    ) -> Result<Option<Self>> {
        let (files, size) = (log.run().files(), log.run().file_size());
        let (mut end, mut whole) = (log.min_offset(), 0);
        while files.get(whole).is_some_and(|file| file.base_offset == end && file.len == size) {
            (end, whole) = (end.saturating_add(size), whole + 1);
        }
        let spares: Vec<_> = files.iter().skip(whole).map(|file| file.path.clone()).collect();
        if spares.is_empty() || !log.run().is_empty_from(end)? {
            return Ok(None);
        }
        let found = Self::find(log, end, queues, index)?;
        Ok(found.map(|found| Self { spares, ..found }))
    }

    #[must_use]
    pub fn messages(&self) -> u64 {
        let in_queues = self.queues.iter().map(|range| range.end.saturating_sub(range.first));
        in_queues.map(clamp_u64).fold(0, u64::saturating_add).max(self.indexed)
    }

    #[must_use]
    pub fn files(&self) -> String {
        let base = |at: u64| at - at.checked_rem(self.file_size).unwrap_or(0);
        let (first, last) = (base(self.from), base(self.reach.saturating_sub(1).max(self.from)));
        match first == last {
            true => format!("the file {}", offset_name(first)),
            false => format!("the files {} to {}", offset_name(first), offset_name(last)),
        }
    }
}

/// The first entry that leads to `end` or behind, with its message's place, and how many near it do:
/// two damaged ones far from each other are no evidence.
fn first_behind(queue: &Queue, end: u64) -> Result<Option<(i64, u64, usize)>> {
    let mut number = match queue.kind() {
        QueueKind::Plain => queue.first_at_or_behind(end)?,
        QueueKind::Batch => queue.min_offset(),
    };
    loop {
        let units = queue.units(number, BLOCK)?;
        let Some(last) = units.last() else { return Ok(None) };
        let next = last.number.saturating_add(i64::from(last.count.max(1)));
        let mut behind = units.iter().filter_map(|unit| {
            let offset = u64::try_from(unit.physical_offset).ok()?;
            (offset >= end && unit.store_size > 0).then_some((unit.number, offset))
        });
        if let Some((first, offset)) = behind.next() {
            return Ok(Some((first, offset, 1 + behind.count())));
        }
        // Damaged entries of batches may step back.
        if next <= number {
            return Ok(None);
        }
        number = next;
    }
}

type Places = (u64, u64);

fn indexed(index: &IndexRun, end: u64) -> Result<Option<(Places, u64)>> {
    let (mut found, mut looked): (Option<(Places, u64)>, u64) = (None, 0);
    for file in index.files().iter().rev() {
        let open = index.open(file)?;
        let mut number = open.head()?.count.saturating_sub(1);
        while number > 0 && looked < MOST_ENTRIES {
            let offset = clamp_u64(open.physical_offset_of(number)?);
            if offset < end {
                return Ok(found);
            }
            let ((first, _), records) =
                found.get_or_insert(((offset, offset.saturating_add(1)), 1));
            if offset < *first {
                (*first, *records) = (offset, *records + 1);
            }
            (number, looked) = (number - 1, looked + 1);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::files::Os;
    use crate::format::queue::batch::BatchQueueEntry;

    /// A queue of batches, of which `far` lead behind the log.
    fn queue_with(far: &[i64]) -> (tempfile::TempDir, Queue) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(QueueKind::Batch.folder()).join("batches").join("0");
        std::fs::create_dir_all(&path).unwrap();
        let entry = |base| BatchQueueEntry {
            physical_offset: if far.contains(&base) { 1_000_000 + base } else { 100 * base },
            store_size: 90,
            tags_code: 0,
            store_timestamp_ms: 1000,
            base_queue_offset: base,
            message_count: 1,
            compacted_offset: -1,
        };
        let bytes: Vec<u8> = (0..1000).flat_map(|base| entry(base).encode()).collect();
        std::fs::write(path.join(offset_name(0)), bytes).unwrap();
        let queue = Queue::open_folder(Arc::new(Os), &path, None).unwrap();
        (dir, queue)
    }

    #[test]
    fn damaged_entries_far_from_each_other_do_not_count_together() {
        for (far, found) in [
            (&[][..], None),
            (&[3, 900], Some((3, 1_000_003, 1))),
            (&[3, 5], Some((3, 1_000_003, 2))),
            (&[900, 901, 902], Some((900, 1_000_900, 3))),
        ] {
            let (_dir, queue) = queue_with(far);
            assert_eq!(first_behind(&queue, 500_000).unwrap(), found, "{far:?}");
        }
    }
}
