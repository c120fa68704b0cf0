//! A consume queue read from its folder, without store and log.
//!
//! Reads both kinds of RocketMQ: `org.apache.rocketmq.store.ConsumeQueue` with 20 bytes for each
//! message, `org.apache.rocketmq.store.queue.BatchConsumeQueue` with 46 for each batch.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{CorruptionKind, Error, Result};
use crate::files::{FileRun, Storage};
use crate::format::queue::batch::{self, BatchQueueEntry};
use crate::format::queue::consume_queue::{self, QueueEntry};
use crate::format::width::{at_most_i64, to_usize};
use crate::log::folder;
use crate::log::queue::QueueKind;

/// Default entries of a file (`MessageStoreConfig`).
const USUAL_ENTRIES: u64 = 300_000;
const BLOCK: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueUnit {
    /// Entry number; of a batch that of its first message.
    pub queue_offset: i64,
    /// The record's offset in the commit log.
    pub physical_offset: i64,
    pub store_size: i32,
    /// Hash, delivery time, or address of the extension.
    pub tags_code: i64,
    pub message_count: i16,
    pub store_timestamp_ms: Option<i64>,
}

impl QueueUnit {
    fn end_queue_offset(&self) -> i64 {
        self.queue_offset.saturating_add(i64::from(self.message_count))
    }
}

/// A queue as it was at open.
#[derive(Debug)]
pub struct QueueFolder {
    path: PathBuf,
    topic: String,
    queue_id: i32,
    kind: QueueKind,
    run: FileRun,
    /// First entry that leads somewhere, in entries of the files.
    first: u64,
    end: u64,
    min_offset: i64,
    max_offset: i64,
    max_physical_offset: i64,
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
            kind,
            first: run.min_offset().unwrap_or(0) / entry_len,
            end: run.end_offset().unwrap_or(0) / entry_len,
            run,
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
        let files = self.run.files();
        let entry_len = self.kind.entry_len() as u64;
        let in_file = self.run.file_size() / entry_len;
        let (files_end, begin) = (self.end, self.first);
        while self.kind == QueueKind::Plain && self.first < begin.saturating_add(in_file) {
            let block = self.raw(self.first, files_end)?;
            let blanks = block.iter().take_while(|unit| is_pre_blank(unit)).count();
            self.first = self.first.saturating_add(blanks as u64);
            if blanks == 0 || blanks < block.len() {
                break;
            }
        }
        let from = files.iter().rev().take(3).next_back().map_or(0, |file| file.base_offset);
        self.end = (from / entry_len).max(self.first);
        loop {
            let block = self.raw(self.end, files_end)?;
            let sound = block.iter().take_while(|unit| is_sound(unit)).count();
            self.end = self.end.saturating_add(sound as u64);
            if sound < block.len() || block.is_empty() {
                break;
            }
        }
        let blank_number = at_most_i64(self.first);
        let first = self.unit(0)?;
        let last = match self.len().checked_sub(1) {
            Some(last) => self.unit(last)?,
            None => None,
        };
        self.min_offset = first.map_or(blank_number, |unit| unit.queue_offset);
        self.max_offset = last.map_or(self.min_offset, |unit| unit.end_queue_offset());
        self.max_physical_offset =
            last.map_or(-1, |unit| unit.physical_offset.saturating_add(i64::from(unit.store_size)));
        Ok(())
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    #[must_use]
    pub fn queue_id(&self) -> i32 {
        self.queue_id
    }

    #[must_use]
    pub fn kind(&self) -> QueueKind {
        self.kind
    }

    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.run.file_size()
    }

    #[must_use]
    pub fn min_offset(&self) -> i64 {
        self.min_offset
    }

    #[must_use]
    pub fn max_offset(&self) -> i64 {
        self.max_offset
    }

    /// End of the last entry's record; -1 if empty.
    #[must_use]
    pub fn max_physical_offset(&self) -> i64 {
        self.max_physical_offset
    }

    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.first)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at a position, from 0.
    pub fn unit(&self, place: u64) -> Result<Option<QueueUnit>> {
        Ok(self.units(place, 1)?.into_iter().next())
    }

    /// At most `count` entries from a position on; empty only at the end.
    pub fn units(&self, place: u64, count: usize) -> Result<Vec<QueueUnit>> {
        let from = self.first.saturating_add(place);
        let end = self.end.min(from.saturating_add(count as u64));
        self.raw(from, end)
    }

    /// Passes entries to `take` until it breaks.
    pub fn each_from(
        &self,
        mut place: u64,
        mut take: impl FnMut(&QueueUnit) -> ControlFlow<()>,
    ) -> Result<()> {
        loop {
            let units = self.units(place, usize::MAX)?;
            if units.is_empty() || units.iter().try_for_each(&mut take).is_break() {
                return Ok(());
            }
            place += units.len() as u64;
        }
    }

    /// Entries `from..end` of the files, at most one block.
    fn raw(&self, from: u64, end: u64) -> Result<Vec<QueueUnit>> {
        let entry_len = self.kind.entry_len();
        let count = to_usize(end.saturating_sub(from)).min(BLOCK);
        let mut block = vec![0; count * entry_len];
        let read = self.run.read_at(&mut block, from.saturating_mul(entry_len as u64))?;
        let bytes = block.get(..read).unwrap_or_default();
        let numbers = from..u64::MAX;
        Ok(match self.kind {
            QueueKind::Plain => {
                let (entries, _) = bytes.as_chunks();
                entries.iter().zip(numbers).map(|(raw, number)| simple(raw, number)).collect()
            }
            QueueKind::Batch => {
                let (entries, _) = bytes.as_chunks();
                entries.iter().map(batched).collect()
            }
        })
    }

    /// Position of the first entry at or behind `queue_offset`, or the number of entries.
    pub fn place_of(&self, queue_offset: i64) -> Result<u64> {
        self.first_place(|unit| unit.queue_offset >= queue_offset)
    }

    /// Position of the first entry that leads to `physical_offset` or behind, or their number.
    pub fn place_at(&self, physical_offset: u64) -> Result<u64> {
        self.first_place(|unit| {
            u64::try_from(unit.physical_offset).is_ok_and(|at| at >= physical_offset)
        })
    }

    fn first_place(&self, is_behind: impl Fn(&QueueUnit) -> bool) -> Result<u64> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.unit(middle)? {
                Some(unit) if !is_behind(&unit) => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }
}

fn simple(raw: &[u8; consume_queue::ENTRY_LEN], number: u64) -> QueueUnit {
    let QueueEntry { physical_offset, store_size, tags_code } = QueueEntry::decode(raw);
    QueueUnit {
        queue_offset: at_most_i64(number),
        physical_offset,
        store_size,
        tags_code,
        message_count: 1,
        store_timestamp_ms: None,
    }
}

fn batched(raw: &[u8; batch::ENTRY_LEN]) -> QueueUnit {
    let entry = BatchQueueEntry::decode(raw);
    QueueUnit {
        queue_offset: entry.base_queue_offset,
        physical_offset: entry.physical_offset,
        store_size: entry.store_size,
        tags_code: entry.tags_code,
        message_count: entry.message_count,
        store_timestamp_ms: Some(entry.store_timestamp_ms),
    }
}

fn is_pre_blank(unit: &QueueUnit) -> bool {
    let QueueUnit { physical_offset, store_size, tags_code, .. } = *unit;
    QueueEntry { physical_offset, store_size, tags_code }.is_pre_blank()
}

fn is_sound(unit: &QueueUnit) -> bool {
    unit.physical_offset >= 0
        && unit.store_size > 0
        && unit.queue_offset >= 0
        && unit.message_count > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;

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
        assert_eq!(
            (queue.topic(), queue.queue_id(), queue.kind()),
            ("orders", 3, QueueKind::Plain)
        );
        assert_eq!((queue.file_size(), queue.len()), (200, 35));
        assert_eq!((queue.min_offset(), queue.max_offset()), (20, 55));
        assert_eq!(queue.max_physical_offset(), 54_100);
        let unit = queue.unit(12).unwrap().unwrap();
        assert_eq!((unit.queue_offset, unit.physical_offset, unit.tags_code), (32, 32_000, 32));
        assert_eq!((unit.message_count, unit.store_timestamp_ms), (1, None));
        assert_eq!(queue.unit(35).unwrap(), None);
        // A read ends with its file, never before its first entry.
        assert_eq!(queue.units(7, 100).unwrap().len(), 3);
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
            assert_eq!((queue.min_offset(), queue.max_offset()), (first, first + 6), "{blanks}");
            assert_eq!((queue.len(), queue.max_physical_offset()), (6, 6100));
        }
        let dir = tempfile::tempdir().unwrap();
        let queue = opened(&folder(dir.path(), 0, &[QueueEntry::PRE_BLANK; 4]));
        assert_eq!((queue.min_offset(), queue.max_offset(), queue.len()), (4, 4, 0));
        assert_eq!(queue.max_physical_offset(), -1);
    }

    #[test]
    fn the_first_invalid_entry_ends_the_queue() {
        let dir = tempfile::tempdir().unwrap();
        let mut entries: Vec<_> = (0..20).map(entry).collect();
        entries[13].store_size = 0;
        let queue = opened(&folder(dir.path(), 0, &entries));
        assert_eq!((queue.len(), queue.max_offset()), (13, 13));
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
        assert_eq!((queue.min_offset(), queue.max_offset()), (5, 13));
        assert_eq!(queue.max_physical_offset(), 990);
        let unit = queue.unit(2).unwrap().unwrap();
        assert_eq!((unit.queue_offset, unit.message_count), (9, 4));
        assert_eq!(unit.store_timestamp_ms, Some(9000));
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
