//! A queue of either kind, read from its folder without store and log, as it was at open.

use std::ffi::OsStr;
use std::ops::{ControlFlow, Range};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{CorruptionKind, Error, Result};
use crate::files::Storage;
use crate::format::width::{saturating_i64, to_usize};
use crate::log::folder;

use super::{CqUnit, Queue, QueueKind};

/// Default entries of a file (`MessageStoreConfig`).
const USUAL_ENTRIES: u64 = 300_000;
const BLOCK: usize = 4096;

impl Queue {
    /// Opens the queue in `path`, an absolute path that ends in topic and number. The first invalid
    /// entry from the third last file on ends it, as in `ConsumeQueue#recover`.
    pub fn open_folder(
        storage: Arc<dyn Storage>,
        path: &Path,
        file_size: Option<u64>,
    ) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let above = path.parent().and_then(Path::file_name).unwrap_or_default();
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
        let queue = Self::new(kind, above.as_bytes(), queue_id, run);
        queue.entries.find_end(false, 0, CqUnit::is_valid)?;
        let positions = queue.leading_positions()?;
        let (first, last) = (queue.units_at(positions.start, 1)?.pop(), queue.last()?);
        let min = first.map_or(saturating_i64(positions.start), |unit| unit.number);
        queue.min_offset.store(min, Ordering::Release);
        let last = last.filter(|_| first.is_some());
        queue.max_offset.store(last.map_or(min, |last| last.end()), Ordering::Release);
        queue.set_last(last.as_ref());
        Ok(queue)
    }

    /// Positions of the first entry that leads somewhere, and the end.
    pub fn leading_positions(&self) -> Result<Range<u64>> {
        let positions = self.positions();
        Ok(self.entries.head_end(&positions)?..positions.end)
    }

    /// At most `count` entries from a position on, and at most a block; empty only at the end.
    pub fn units_at(&self, position: u64, count: usize) -> Result<Vec<CqUnit>> {
        let left = to_usize(self.positions().end.saturating_sub(position));
        self.entries.units(position, left.min(count).min(BLOCK))
    }

    /// Passes entries from a position on to `take` until it breaks.
    pub fn each_from(
        &self,
        position: u64,
        mut take: impl FnMut(&CqUnit) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut position = position.max(self.positions().start);
        loop {
            let units = self.units_at(position, usize::MAX)?;
            if units.is_empty() || units.iter().try_for_each(&mut take).is_break() {
                return Ok(());
            }
            position += units.len() as u64;
        }
    }

    /// Position of the first entry for which `before` is false, or the end.
    pub fn partition_point_by(&self, before: impl Fn(&CqUnit) -> bool) -> Result<u64> {
        self.entries.partition_point_by(self.positions(), |unit| Some(before(unit)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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

    fn opened(path: &Path) -> Queue {
        Queue::open_folder(Arc::new(Os), path, None).unwrap()
    }

    /// Positions of the entries, and the queue's first and last offset, and where its messages end.
    fn bounds(queue: &Queue) -> (Range<u64>, i64, i64, i64) {
        let positions = queue.leading_positions().unwrap();
        (positions, queue.min_offset(), queue.max_offset(), queue.reach())
    }

    fn assert_places(queue: &Queue, positions: &[(i64, u64)]) {
        for (offset, position) in positions {
            assert_eq!(
                queue.partition_point_by(|unit| unit.number < *offset).unwrap(),
                *position,
                "{offset}"
            );
        }
    }

    #[test]
    fn entries_have_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let entries: Vec<_> = (0..35).map(|number| entry(number + 20)).collect();
        let queue = opened(&folder(dir.path(), 20, &entries));
        let name = (queue.topic(), queue.queue_id(), queue.kind());
        assert_eq!(name, (&b"orders"[..], 3, QueueKind::Plain));
        assert_eq!(queue.run().file_size(), 200);
        assert_eq!(bounds(&queue), (20..55, 20, 55, 54_100));
        let unit = queue.unit(32).unwrap().unwrap();
        assert_eq!((unit.number, unit.physical_offset, unit.tags_code), (32, 32_000, 32));
        assert_eq!((unit.count, unit.store_timestamp_ms), (1, 0));
        assert_eq!(queue.unit(55).unwrap(), None);
        assert_eq!(queue.units_at(27, 100).unwrap().len(), 28);
        assert_places(&queue, &[(-5, 20), (20, 20), (21, 21), (54, 54), (55, 55), (99, 55)]);
    }

    #[test]
    fn filler_at_the_head_is_not_counted() {
        for blanks in [1, 7, 10] {
            let dir = tempfile::tempdir().unwrap();
            let mut entries = vec![QueueEntry::PRE_BLANK; blanks];
            entries.extend((0..6).map(|number| entry(number + 1)));
            let queue = opened(&folder(dir.path(), 10, &entries));
            let first = 10 + blanks as u64;
            let min = i64::try_from(first).unwrap();
            assert_eq!(bounds(&queue), (first..first + 6, min, min + 6, 6100));
        }
        let dir = tempfile::tempdir().unwrap();
        let queue = opened(&folder(dir.path(), 0, &[QueueEntry::PRE_BLANK; 4]));
        assert_eq!(bounds(&queue), (4..4, 4, 4, -1));
    }

    #[test]
    fn the_first_invalid_entry_ends_the_queue() {
        let dir = tempfile::tempdir().unwrap();
        let mut entries: Vec<_> = (0..20).map(entry).collect();
        entries[13].store_size = 0;
        let queue = opened(&folder(dir.path(), 0, &entries));
        assert_eq!(bounds(&queue), (0..13, 0, 13, 12_100));
        let empty = tempfile::tempdir().unwrap();
        let queue = opened(&folder(empty.path(), 0, &[]));
        assert_eq!((bounds(&queue), queue.unit(0).unwrap()), ((0..0, 0, 0, -1), None));
        assert_eq!(queue.run().file_size(), 6_000_000);
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
        assert_eq!(queue.kind().name(), "BatchCQ");
        assert_eq!(bounds(&queue), (0..3, 5, 13, 990));
        let unit = queue.unit(9).unwrap().unwrap();
        assert_eq!((unit.number, unit.count), (9, 4));
        assert_eq!(unit.store_timestamp_ms, 9000);
        assert_places(&queue, &[(0, 0), (5, 0), (6, 1), (9, 2), (10, 3)]);
    }

    #[test]
    fn folders_that_are_no_queue_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let queue = |path: &Path, size| Queue::open_folder(Arc::new(Os), path, size);
        let kind = |result: Result<Queue>| match result {
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
