//! Builds an index in bulk: the same bytes as [`IndexService`](crate::log::IndexService), without a
//! map.
//!
//! Entries are written in blocks; the slot table of the current file stays in memory (20 MB by
//! default) until the file is full.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::check::SlotTable;
use super::file::{IndexOpen, IndexPut};
use super::run::IndexRun;
use crate::error::{Error, Result};
use crate::files::{Storage, StorageFile};
use crate::format::index::{
    HEADER_LEN, IndexEntry, IndexHeader, IndexLayout, SLOT_LEN, seconds_since,
};
use crate::time::Clock;

const PUT_CHUNK: usize = 32;

const BLOCK: usize = 256 << 10;

#[derive(Debug)]
pub struct IndexBuilder {
    run: IndexRun,
    clock: Arc<dyn Clock>,
    file: Option<Building>,
    previous: Option<IndexHeader>,
    built: BuiltIndex,
    flush_every: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuiltIndex {
    pub files: u64,
    pub keys: u64,
    /// Store time of the last indexed message, Unix milliseconds; 0 without one.
    pub end_timestamp_ms: i64,
    /// Store time of the last message in a full, durable file.
    pub full_until_ms: Option<i64>,
}

#[derive(Debug)]
struct Building {
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    header: IndexHeader,
    slots: SlotTable,
    block: Vec<u8>,
    block_at: u64,
    /// The running flush, and bytes written since; `None` flushes at the end only.
    early: Option<Early>,
}

#[derive(Debug)]
struct Early {
    every: usize,
    flush: Option<JoinHandle<io::Result<()>>>,
    written: usize,
}

impl IndexBuilder {
    /// A builder for an empty folder `dir`.
    pub fn new(
        storage: Arc<dyn Storage>,
        dir: &Path,
        layout: IndexLayout,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let (run, _) = IndexRun::load(storage, dir, layout, IndexOpen::Read)?;
        Ok(Self {
            run,
            clock,
            file: None,
            previous: None,
            built: BuiltIndex::default(),
            flush_every: None,
        })
    }

    /// Starts a background flush after every `bytes`, so that less is left for the end.
    #[must_use]
    pub fn flush_every(self, bytes: usize) -> Self {
        Self { flush_every: Some(bytes), ..self }
    }

    /// A builder that continues the files below `dir`; `None` if the last has room, since it must
    /// be filled first.
    pub fn behind(
        storage: Arc<dyn Storage>,
        dir: &Path,
        layout: IndexLayout,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<Self>> {
        let builder = Self::new(storage, dir, layout, clock)?;
        let last = builder.run.files().pop();
        let last = last.map(|last| builder.run.open(&last)?.header()).transpose()?;
        let is_full =
            |header: &IndexHeader| header.index_count.unsigned_abs() >= layout.max_entry_count();
        let goes = last.as_ref().is_none_or(is_full);
        Ok(goes.then_some(Self { previous: last, ..builder }))
    }

    /// Puts the key hashes of the next message, in log order. Even a message without keys may
    /// create the next file, as in RocketMQ.
    #[inline]
    pub fn put(
        &mut self,
        physical_offset: i64,
        store_timestamp_ms: i64,
        key_hashes: &[i32],
    ) -> Result<()> {
        self.make_room()?;
        let layout = self.run.layout();
        for &key_hash in key_hashes {
            self.make_room()?;
            let slot = layout.slot_of(key_hash) as usize;
            let Some(building) = &mut self.file else { return Ok(()) };
            building.put(slot, &IndexPut { key_hash, physical_offset, store_timestamp_ms });
            self.built.keys += 1;
            if building.block.len() >= BLOCK {
                building.write_block()?;
            }
        }
        Ok(())
    }

    /// Prefetches the slots of coming keys; returns the hashes left.
    #[must_use]
    pub fn fetch<'a>(&self, key_hashes: &'a [i32]) -> &'a [i32] {
        let (near, far) =
            key_hashes.split_at_checked(PUT_CHUNK).unwrap_or((key_hashes, Default::default()));
        let layout = self.run.layout();
        if let Some(building) = &self.file {
            building.slots.fetch(near.iter().map(|&hash| layout.slot_of(hash) as usize));
        }
        far
    }

    #[inline]
    fn make_room(&mut self) -> Result<()> {
        let most = self.run.layout().max_entry_count();
        match &self.file {
            Some(building) if building.header.index_count.unsigned_abs() < most => Ok(()),
            _ => self.next_file(),
        }
    }

    #[cold]
    fn next_file(&mut self) -> Result<()> {
        let full = self.finish_file(true)?;
        let full_until_ms = full.map(|header| header.end_timestamp_ms);
        self.built.full_until_ms = full_until_ms.or(self.built.full_until_ms);
        let previous = full.or_else(|| self.previous.take());
        let layout = self.run.layout();
        let storage = Arc::clone(self.run.storage());
        let (file, listed) = self.run.create(self.clock.now_ms(), |path| {
            storage.create(path, layout.file_len()).map_err(Error::io("create", path))
        })?;
        self.built.files += 1;
        self.file = Some(Building {
            path: listed.path.clone(),
            file,
            header: previous.map(|previous| previous.next()).unwrap_or_default(),
            slots: SlotTable::new(layout.slots(), layout.max_entry_count())?,
            block: Vec::with_capacity(BLOCK + 64),
            block_at: layout.entry_position(1),
            early: self.flush_every.map(|every| Early { every, flush: None, written: 0 }),
        });
        Ok(())
    }

    fn finish_file(&mut self, flushes: bool) -> Result<Option<IndexHeader>> {
        let Some(mut building) = self.file.take() else { return Ok(None) };
        building.write_block()?;
        let at = self.run.layout().slot_position(0);
        for (number, slots) in building.slots.raw().chunks(BLOCK / SLOT_LEN).enumerate() {
            // Unused slots stay holes.
            if slots.iter().any(|slot| *slot != [0; SLOT_LEN]) {
                building.write(slots.as_flattened(), at + (number * BLOCK) as u64)?;
            }
        }
        const { assert!(BLOCK.is_multiple_of(SLOT_LEN) && HEADER_LEN < BLOCK) };
        building.write(&building.header.encode(), 0)?;
        building.end_early_flush()?;
        if flushes {
            building.file.sync().map_err(Error::flush(&building.path))?;
        }
        Ok(Some(building.header))
    }

    pub fn finish(self) -> Result<BuiltIndex> {
        self.end(true)
    }

    /// Finishes without flushing the last file, for a caller who adds keys to it.
    pub fn hand_over(self) -> Result<BuiltIndex> {
        self.end(false)
    }

    fn end(mut self, flushes: bool) -> Result<BuiltIndex> {
        let last = self.finish_file(flushes)?;
        let dir = self.run.dir();
        if self.built.files > 0 {
            self.run.storage().sync_dir(dir).map_err(Error::flush(dir))?;
        }
        let end_timestamp_ms = last.map_or(0, |header| header.end_timestamp_ms);
        Ok(BuiltIndex { end_timestamp_ms, ..self.built })
    }
}

impl Building {
    /// `IndexFile#putKey` with a known slot.
    #[inline]
    fn put(&mut self, slot: usize, put: &IndexPut) {
        let Some(newest) = self.slots.put(slot, self.header.index_count) else { return };
        let entry = IndexEntry {
            key_hash: put.key_hash,
            physical_offset: put.physical_offset,
            seconds: seconds_since(self.header.begin_timestamp_ms, put.store_timestamp_ms),
            prev_entry: newest,
        };
        self.block.extend_from_slice(&entry.encode());
        self.header.add(put.physical_offset, put.store_timestamp_ms, newest == 0);
    }

    fn write_block(&mut self) -> Result<()> {
        self.write(&self.block, self.block_at)?;
        self.block_at += self.block.len() as u64;
        if let Some(early) = &mut self.early {
            early.written += self.block.len();
        }
        self.block.clear();
        if self.early.as_ref().is_some_and(|early| early.written >= early.every) {
            self.flush_early()?;
        }
        Ok(())
    }

    #[cold]
    fn flush_early(&mut self) -> Result<()> {
        let Some(early) = &mut self.early else { return Ok(()) };
        if early.flush.as_ref().is_some_and(|flush| !flush.is_finished()) {
            return Ok(());
        }
        let every = early.every;
        self.end_early_flush()?;
        let file = Arc::clone(&self.file);
        // Without a thread everything is flushed at the end.
        let thread = thread::Builder::new().name("mqstore-durable".to_owned());
        self.early = thread.spawn(move || file.sync()).ok().map(|flush| Early {
            every,
            flush: Some(flush),
            written: 0,
        });
        Ok(())
    }

    /// Waits for the running flush: the system reports an error only once.
    fn end_early_flush(&mut self) -> Result<()> {
        match self.early.as_mut().and_then(|early| early.flush.take()).map(JoinHandle::join) {
            Some(Ok(flushed)) => flushed.map_err(Error::flush(&self.path)),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }

    fn write(&self, bytes: &[u8], position: u64) -> Result<()> {
        self.file.write_at(bytes, position).map_err(Error::io("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;
    use crate::format::message::properties::Indexed;
    use crate::format::message::sys_flag::Transaction;
    use crate::log::index::writer::IndexService;
    use crate::log::queue::unit::DispatchRequest;
    use crate::time::FixedClock;

    fn contents(dir: &Path) -> Vec<Vec<u8>> {
        let mut files: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|path| std::fs::read(path).unwrap()).collect()
    }

    #[test]
    fn the_bytes_are_those_of_the_service() {
        for (slots, entries, messages) in
            [(7, 40, 300), (1, 2, 9), (100, 60, 59), (50, 400, 0), (300_000, 20_000, 16_001)]
        {
            let dir = tempfile::tempdir().unwrap();
            let (put, built) = (dir.path().join("put"), dir.path().join("built"));
            let layout = IndexLayout::new(slots, entries).unwrap();
            let clock: Arc<dyn Clock> = Arc::new(FixedClock::new(1_700_000_000_000));
            let (mut service, _) =
                IndexService::load(Arc::new(Os), &put, layout, Arc::clone(&clock)).unwrap();
            let mut builder =
                IndexBuilder::new(Arc::new(Os), &built, layout, Arc::clone(&clock)).unwrap();
            for number in 0..messages {
                let keys = ["", "a", "a b", "c  a d"][number as usize % 4].to_owned();
                let transaction =
                    if number % 7 == 3 { Transaction::Rollback } else { Transaction::None };
                let unique = format!("u{}", number % 50);
                let message = DispatchRequest {
                    physical_offset: number * 100,
                    store_timestamp_ms: 1_000 * number * (1 - 2 * (number % 5 / 4)) + 5,
                    transaction,
                    topic: b"Topic",
                    properties: Indexed {
                        unique_key: (number % 3 == 0).then_some(unique.as_bytes()),
                        keys: Some(keys.as_bytes()),
                        ..Indexed::default()
                    },
                    ..DispatchRequest::default()
                };
                service.build(&message).unwrap();
                let hashes: Vec<_> = message.key_hashes().collect();
                builder.put(message.physical_offset, message.store_timestamp_ms, &hashes).unwrap();
            }
            service.begin_flush().unwrap().run().unwrap();
            let made = builder.finish().unwrap();
            let expected = if messages == 0 { Vec::new() } else { contents(&put) };
            assert_eq!(made.files, expected.len() as u64);
            if messages > 0 {
                assert!(contents(&built) == expected, "{slots} slots, {entries} entries");
            }
        }
    }
}
