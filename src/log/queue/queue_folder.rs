//! A consume queue of either kind, read from its folder without store and log.

use std::ffi::OsStr;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{CorruptionKind, Error, Result};
use crate::files::Storage;
use crate::format::width::{saturating_i64, to_usize};
use crate::log::folder;

use super::entry_run::EntryRun;
use super::{CqUnit, QueueKind};

/// Default entries of a file (`MessageStoreConfig`).
const USUAL_ENTRIES: u64 = 300_000;
const BLOCK: usize = 4096;

/// A queue as it was at open.
#[derive(Debug)]
pub struct QueueFolder {
    pub path: PathBuf,
    pub topic: String,
    pub queue_id: i32,
    entries: EntryRun,
    /// Positions of the first entry that leads somewhere, and the end.
    places: Range<u64>,
    pub min_offset: i64,
    pub max_offset: i64,
    /// End of the last entry's record; -1 if empty.
    pub max_physical_offset: i64,
}

impl QueueFolder {
    /// Opens the queue in `path`, an absolute path that ends in topic and number.
    pub fn open(storage: Arc<dyn Storage>, path: &Path, file_size: Option<u64>) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let above = path.parent().and_then(Path::file_name);
        let topic = above.unwrap_or_default().to_string_lossy().into_owned();
        let kinds = path.parent().and_then(Path::parent).and_then(Path::file_name);
        let kind = match kinds == Some(OsStr::new(QueueKind::Batch.folder())) {
            true => QueueKind::Batch,
            false => QueueKind::Plain,
        };
        let entry_len = kind.entry_len() as u64;
        let run = folder::open(storage, path, file_size, USUAL_ENTRIES * entry_len)?;
        let Ok(queue_id) = name.parse() else {
            let wanted = "a folder named by a queue's number";
            return Err(Error::corrupt(path, 0, CorruptionKind::FileName, wanted, name));
        };
        if run.file_size() % entry_len != 0 {
            let first = run.files().first().map_or(path.to_owned(), |file| file.path.clone());
            return Err(Error::corrupt(
                &first,
                run.file_size(),
                CorruptionKind::FileLength,
                format!("a multiple of {entry_len} bytes"),
                format!("{} bytes", run.file_size()),
            ));
        }
        let mut queue = Self {
            path: path.to_owned(),
            topic,
            queue_id,
            entries: EntryRun::new(kind, run),
            places: 0..0,
            min_offset: 0,
            max_offset: 0,
            max_physical_offset: -1,
        };
        queue.find_bounds()?;
        Ok(queue)
    }

    /// Finds the first entry that leads somewhere, and the end: the first invalid entry from the
    /// third last file on, as in `ConsumeQueue#recover`.
    fn find_bounds(&mut self) -> Result<()> {
        self.entries.find_end(CqUnit::is_valid)?;
        self.places = self.entries.places();
        self.places.start = self.entries.head_end(&self.places)?;
        let last = self.len().checked_sub(1).map_or(Ok(None), |last| self.unit(last))?;
        let first = self.unit(0)?;
        self.min_offset = first.map_or(saturating_i64(self.places.start), |unit| unit.number);
        self.max_offset = last.map_or(self.min_offset, |last| last.end());
        self.max_physical_offset = last.map_or(-1, |last| last.physical_end());
        Ok(())
    }

    #[must_use]
    pub fn kind(&self) -> QueueKind {
        self.entries.kind
    }

    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.entries.run().file_size()
    }

    #[must_use]
    pub fn len(&self) -> u64 {
        self.places.end.saturating_sub(self.places.start)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at a position, from 0.
    pub fn unit(&self, place: u64) -> Result<Option<CqUnit>> {
        Ok(self.units(place, 1)?.into_iter().next())
    }

    /// At most `count` entries from a position on, and at most a block; empty only at the end.
    pub fn units(&self, place: u64, count: usize) -> Result<Vec<CqUnit>> {
        let left = to_usize(self.len().saturating_sub(place));
        self.entries.units(self.places.start.saturating_add(place), left.min(count).min(BLOCK))
    }

    /// Passes entries to `take` until it breaks.
    pub fn each_from(
        &self,
        mut place: u64,
        mut take: impl FnMut(&CqUnit) -> ControlFlow<()>,
    ) -> Result<()> {
        loop {
            let units = self.units(place, usize::MAX)?;
            if units.is_empty() || units.iter().try_for_each(&mut take).is_break() {
                return Ok(());
            }
            place += units.len() as u64;
        }
    }

    /// Position of the first entry at or behind `queue_offset`, or the number of entries.
    pub fn place_of(&self, queue_offset: i64) -> Result<u64> {
        self.partition_point_by(|unit| unit.number < queue_offset)
    }

    /// Position of the first entry that leads to `physical_offset` or behind, or their number.
    pub fn place_at(&self, physical_offset: u64) -> Result<u64> {
        let limit = saturating_i64(physical_offset);
        self.partition_point_by(|unit| unit.physical_offset < limit)
    }

    fn partition_point_by(&self, before: impl Fn(&CqUnit) -> bool) -> Result<u64> {
        let place =
            self.entries.partition_point_by(self.places.clone(), |unit| Some(before(unit)))?;
        Ok(place - self.places.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;
    use crate::format::queue::batch::BatchQueueEntry;
    use crate::format::queue::consume_queue::QueueEntry;

    fn entry(number: i64) -> QueueEntry {
        QueueEntry { physical_offset: 1000 * number, store_size: 100, tags_code: number }
    }

    fn folder(root: &Path, first: u64, entries: &[QueueEntry]) -> PathBuf {
        let path = root.join("consumequeue").join("orders").join("3");
        std::fs::create_dir_all(&path).unwrap();
        for (number, chunk) in (first / 10..).zip(entries.chunks(10)) {
            let mut bytes: Vec<u8> = chunk.iter().flat_map(QueueEntry::encode).collect();
            bytes.resize(200, 0);
            std::fs::write(path.join(format!("{:020}", number * 200)), bytes).unwrap();
        }
        path
    }

    fn opened(path: &Path) -> QueueFolder {
        QueueFolder::open(Arc::new(Os), path, None).unwrap()
    }

    #[test]
    fn entries_have_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let entries: Vec<_> = (0..35).map(|number| entry(number + 20)).collect();
        let queue = opened(&folder(dir.path(), 20, &entries));
        assert_eq!((&*queue.topic, queue.queue_id, queue.kind()), ("orders", 3, QueueKind::Plain));
        assert_eq!((queue.file_size(), queue.len()), (200, 35));
        assert_eq!((queue.min_offset, queue.max_offset), (20, 55));
        assert_eq!(queue.max_physical_offset, 54_100);
        let unit = queue.unit(12).unwrap().unwrap();
        assert_eq!((unit.number, unit.physical_offset, unit.tags_code), (32, 32_000, 32));
        assert_eq!((unit.count, unit.store_timestamp_ms), (1, 0));
        assert_eq!(queue.unit(35).unwrap(), None);
        assert_eq!(queue.units(7, 100).unwrap().len(), 28);
        for (offset, place) in [(-5, 0), (20, 0), (21, 1), (54, 34), (55, 35), (99, 35)] {
            assert_eq!(queue.place_of(offset).unwrap(), place, "{offset}");
        }
    }

    #[test]
    fn filler_at_the_head_is_not_counted() {
        for blanks in [1, 7, 10] {
            let dir = tempfile::tempdir().unwrap();
            let mut entries = vec![QueueEntry::PRE_BLANK; blanks];
            entries.extend((0..6).map(|number| entry(number + 1)));
            let queue = opened(&folder(dir.path(), 10, &entries));
            let first = 10 + i64::try_from(blanks).unwrap();
            assert_eq!((queue.min_offset, queue.max_offset), (first, first + 6), "{blanks}");
            assert_eq!((queue.len(), queue.max_physical_offset), (6, 6100));
        }
        let dir = tempfile::tempdir().unwrap();
        let queue = opened(&folder(dir.path(), 0, &[QueueEntry::PRE_BLANK; 4]));
        assert_eq!((queue.min_offset, queue.max_offset, queue.len()), (4, 4, 0));
        assert_eq!(queue.max_physical_offset, -1);
    }

    #[test]
    fn the_first_invalid_entry_ends_the_queue() {
        let dir = tempfile::tempdir().unwrap();
        let mut entries: Vec<_> = (0..20).map(entry).collect();
        entries[13].store_size = 0;
        let queue = opened(&folder(dir.path(), 0, &entries));
        assert_eq!((queue.len(), queue.max_offset), (13, 13));
        let empty = tempfile::tempdir().unwrap();
        let queue = opened(&folder(empty.path(), 0, &[]));
        assert!(queue.is_empty() && queue.unit(0).unwrap().is_none());
        assert_eq!(queue.file_size(), 6_000_000);
    }

    #[test]
    fn batch_queues_have_larger_entries() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(QueueKind::Batch.folder()).join("batches").join("0");
        std::fs::create_dir_all(&path).unwrap();
        let mut bytes = Vec::new();
        for (base, count) in [(5, 3), (8, 1), (9, 4)] {
            let entry = BatchQueueEntry {
                physical_offset: base * 100,
                store_size: 90,
                tags_code: base,
                store_timestamp_ms: base * 1000,
                base_queue_offset: base,
                message_count: count,
                compacted_offset: -1,
            };
            bytes.extend(entry.encode());
        }
        bytes.resize(230, 0);
        std::fs::write(path.join("00000000000000000000"), bytes).unwrap();
        let queue = opened(&path);
        assert_eq!((queue.kind().name(), queue.len()), ("BatchCQ", 3));
        assert_eq!((queue.min_offset, queue.max_offset), (5, 13));
        assert_eq!(queue.max_physical_offset, 990);
        let unit = queue.unit(2).unwrap().unwrap();
        assert_eq!((unit.number, unit.count), (9, 4));
        assert_eq!(unit.store_timestamp_ms, 9000);
        for (offset, place) in [(0, 0), (5, 0), (6, 1), (9, 2), (10, 3)] {
            assert_eq!(queue.place_of(offset).unwrap(), place, "{offset}");
        }
    }

    #[test]
    fn folders_that_are_no_queue_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let queue = |path: &Path, size| QueueFolder::open(Arc::new(Os), path, size);
        let kind = |result: Result<QueueFolder>| match result {
            Err(Error::Corrupt(corruption)) => corruption.kind,
            other => panic!("{other:?}"),
        };
        let path = dir.path().join("orders").join("x");
        assert!(matches!(queue(&path, None), Err(Error::NotAStore { .. })));
        std::fs::create_dir_all(&path).unwrap();
        assert_eq!(kind(queue(&path, None)), CorruptionKind::FileName);
        let path = dir.path().join("orders").join("1");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("00000000000000000000"), [0; 130]).unwrap();
        assert_eq!(kind(queue(&path, None)), CorruptionKind::FileLength);
    }
}
