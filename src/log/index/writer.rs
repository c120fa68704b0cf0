//! Writes the index: puts keys to the newest file
//! (`org.apache.rocketmq.store.index.IndexService#buildIndex`).
//!
//! A put first reads its slot, at a random place of a large table. So puts lag: a key is hashed,
//! its slot prefetched, and the key put after some others. After [`IndexService::drain`] the bytes
//! are the same.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{IndexFile, IndexOpen, IndexPut};
use super::run::IndexRun;
use crate::error::{Corruption, Result};
use crate::files::run::file_run::check_unchanged;
use crate::files::{ActiveFiles, SharedActiveFiles, Storage, StorageFile};
use crate::format::index::{IndexHeader, IndexLayout};
use crate::format::java::TopicHash;
use crate::format::width::{clamp_u64, saturating_u32, to_usize};
use crate::log::queue::unit::{DispatchRequest, MAX_KEYS};
use crate::time::Clock;

/// Least number of later keys that wait when a key is put: enough to hide memory latency.
const LAG: usize = 8;

/// Flushes an index's state at one moment while others add keys.
#[derive(Debug)]
pub struct IndexFlush {
    /// The index, if it has a file without a durable name.
    named_anew: Option<Arc<IndexRun>>,
    /// Full files: after their flush the checkpoint's index time is that of the last message in
    /// them. The flusher drops them, since unmapping takes a while.
    full: Vec<IndexFile>,
    current: Option<(PathBuf, Arc<dyn StorageFile>, u64)>,
}

impl IndexFlush {
    /// Flushes. Returns the store time of the last message in a full file, if one became full, Unix
    /// milliseconds.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Corrupt`](crate::Error::Corrupt) when
    /// another process changed the current file; no later flush can tell what was lost.
    pub fn run(self) -> Result<Option<i64>> {
        if let Some(run) = self.named_anew {
            let flushed = run.storage().sync_dir(run.dir());
            flushed.map_err(crate::Error::flush(run.dir()))?;
        }
        let mut full_until_ms = None;
        for full in self.full {
            full.file().sync().map_err(crate::Error::flush(full.path()))?;
            full_until_ms = Some(full.kept_header().end_timestamp_ms);
        }
        if let Some((path, file, len)) = &self.current {
            file.sync().map_err(crate::Error::flush(path))?;
            check_unchanged(&**file, path, *len)?;
        }
        Ok(full_until_ms)
    }
}

#[derive(Debug)]
pub struct IndexService {
    run: Arc<IndexRun>,
    clock: Arc<dyn Clock>,
    current: Option<IndexFile>,
    front: Arc<SharedActiveFiles>,
    waiting: Vec<IndexPut>,
    full: Vec<IndexFile>,
    /// Whether a file's name is not durable yet: that takes milliseconds, so the flusher does it.
    has_new_name: bool,
    begun: Option<(i64, usize)>,
    /// Whether the tags of a message get an entry behind those of its keys, as from RocketMQ 5.4 on.
    pub(crate) tag_entries: bool,
    topic: (Vec<u8>, TopicHash),
    hashes: Vec<i32>,
    /// Number of puts for which the current file has entries and disk space, beside those that wait.
    ready: u32,
}

impl Drop for IndexService {
    fn drop(&mut self) {
        // The threads that work ahead must not keep the map.
        self.front.set(ActiveFiles::default());
    }
}

impl IndexService {
    /// Lists the index files below `dir` and what is unusable. Nothing changes before the first
    /// write.
    pub fn load(
        storage: Arc<dyn Storage>,
        dir: &Path,
        layout: IndexLayout,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Vec<Corruption>)> {
        let (run, findings) = IndexRun::load(storage, dir, layout, IndexOpen::ReadMapped)?;
        let service = Self {
            run: Arc::new(run),
            clock,
            current: None,
            front: Arc::default(),
            waiting: Vec::with_capacity(2 * LAG),
            full: Vec::new(),
            has_new_name: false,
            begun: None,
            tag_entries: false,
            topic: (Vec::new(), TopicHash::of(b"")),
            hashes: Vec::new(),
            ready: 0,
        };
        Ok((service, findings))
    }

    /// Files for queries, which may run while keys are put and find what was drained.
    #[must_use]
    pub fn run(&self) -> &Arc<IndexRun> {
        &self.run
    }

    /// Puts a message's keys and returns their number (`IndexService#buildIndex`). May be repeated
    /// after an error: keys already put are skipped.
    pub fn build(&mut self, message: &DispatchRequest<'_>) -> Result<usize> {
        if *self.topic.0 != *message.topic {
            message.topic.clone_into(&mut self.topic.0);
            self.topic.1 = TopicHash::of(message.topic);
        }
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        message.hash_keys(self.topic.1, MAX_KEYS, &mut hashes);
        if self.tag_entries && hashes.len() < MAX_KEYS {
            hashes.extend(message.tag_hash_of(self.topic.1));
        }
        let put = self.put(message.physical_offset, message.store_timestamp_ms, &hashes);
        self.hashes = hashes;
        put
    }

    /// [`IndexService::build`] with [`DispatchRequest::key_hashes`].
    #[inline(always)]
    pub fn put(
        &mut self,
        physical_offset: i64,
        store_timestamp_ms: i64,
        key_hashes: &[i32],
    ) -> Result<usize> {
        // RocketMQ creates the file before it reads the message, so even a first message without
        // keys creates one.
        self.make_room()?;
        if physical_offset < self.end_physical_offset() {
            return Ok(0);
        }
        let begun = self.begun.take().filter(|(of, _)| *of == physical_offset);
        let done = begun.map_or(0, |(_, keys)| keys);
        let left = key_hashes.get(done..).unwrap_or_default();
        for (number, &key_hash) in (done..).zip(left) {
            let put = IndexPut { key_hash, physical_offset, store_timestamp_ms };
            if let Err(error) = self.push(put) {
                self.begun = Some((physical_offset, number));
                return Err(error);
            }
        }
        Ok(left.len())
    }

    /// Offset of the last message with a key in the current file, waiting puts included.
    fn end_physical_offset(&self) -> i64 {
        match self.waiting.last() {
            Some(last) => last.physical_offset,
            None => self.current.as_ref().map_or(0, |file| file.kept_header().end_physical_offset),
        }
    }

    #[inline(always)]
    fn push(&mut self, put: IndexPut) -> Result<()> {
        if self.ready == 0 {
            self.get_ready()?;
        }
        let Some(file) = &self.current else { return Ok(()) };
        file.prefetch_slot(file.layout().slot_of(put.key_hash));
        self.ready = self.ready.saturating_sub(1);
        self.waiting.push(put);
        if self.waiting.len() < 2 * LAG { Ok(()) } else { self.put_oldest(LAG) }
    }

    #[cold]
    fn get_ready(&mut self) -> Result<()> {
        self.make_room()?;
        let waiting = saturating_u32(self.waiting.len());
        if let Some(file) = &mut self.current {
            self.ready = file.reserve(waiting + 1)?.saturating_sub(waiting);
        }
        Ok(())
    }

    fn put_oldest(&mut self, count: usize) -> Result<()> {
        let Some(file) = &mut self.current else { return Ok(()) };
        let room = file.room();
        let put = file.put_fetched(self.waiting.get(..count).unwrap_or_default());
        self.waiting.drain(..to_usize(room - file.room()));
        put.map(|_| ())
    }

    /// Puts everything that waits; done before a query.
    ///
    /// # Errors
    /// None that a disk can cause: space is taken when a key begins to wait.
    pub fn drain(&mut self) -> Result<()> {
        self.put_oldest(self.waiting.len())
    }

    /// Offset of the first message with waiting keys: queries find earlier ones in the index.
    #[inline]
    #[must_use]
    pub fn waiting_from(&self) -> Option<u64> {
        let oldest = self.waiting.first()?;
        Some(clamp_u64(oldest.physical_offset))
    }

    #[inline]
    fn make_room(&mut self) -> Result<()> {
        if self.ready > 0 {
            return Ok(());
        }
        if let Some(file) = &self.current {
            let room = to_usize(file.room());
            if room > self.waiting.len() {
                return Ok(());
            }
        }
        self.next_file()
    }

    #[cold]
    fn next_file(&mut self) -> Result<()> {
        self.drain()?;
        if self.current.is_none()
            && let Some(last) = self.run.files().last()
        {
            let last = self.open(&last.path)?;
            let is_full = last.is_full();
            self.set_current(Some(last));
            if !is_full {
                return Ok(());
            }
        }
        let previous = self.current.as_ref().map(IndexFile::kept_header);
        let (storage, layout) = (self.run.storage(), self.run.layout());
        let create =
            |path: &Path| IndexFile::create_unnamed(&**storage, path, layout, previous.as_ref());
        let (file, _) = self.run.create(self.clock.now_ms(), create)?;
        self.has_new_name = true;
        let full = self.set_current(Some(file));
        self.full.extend(full);
        Ok(())
    }

    fn set_current(&mut self, file: Option<IndexFile>) -> Option<IndexFile> {
        let active = file.as_ref().and_then(IndexFile::ahead).map(Arc::clone);
        self.front.set(ActiveFiles { active, ..ActiveFiles::default() });
        self.ready = 0;
        std::mem::replace(&mut self.current, file)
    }

    fn open(&self, path: &Path) -> Result<IndexFile> {
        IndexFile::open(&**self.run.storage(), path, self.run.layout(), IndexOpen::Write)
    }

    /// Drains, and returns the flush of this state and of full files, which must not block puts.
    pub fn begin_flush(&mut self) -> Result<IndexFlush> {
        self.drain()?;
        let mut current = None;
        if let Some(file) = &mut self.current {
            file.write_header()?;
            let len = file.layout().file_len();
            current = Some((file.path().to_owned(), Arc::clone(file.file()), len));
        }
        let named_anew = std::mem::take(&mut self.has_new_name).then(|| Arc::clone(&self.run));
        Ok(IndexFlush { named_anew, full: std::mem::take(&mut self.full), current })
    }

    /// The current file; `None` before the first message.
    #[must_use]
    pub fn current(&self) -> Option<&IndexFile> {
        self.current.as_ref()
    }

    /// The current file, for the threads that work ahead.
    #[must_use]
    pub fn front(&self) -> &Arc<SharedActiveFiles> {
        &self.front
    }

    /// Offset of the last indexed message, waiting puts included; `None` without files.
    pub fn last_keyed_offset(&self) -> Result<Option<i64>> {
        if self.current.is_some() {
            Ok(Some(self.end_physical_offset()))
        } else {
            self.run.last_keyed_offset()
        }
    }

    /// Removes the first unusable file and all newer files. Returns the removed paths.
    pub fn remove_from_unusable(&mut self) -> Result<Vec<PathBuf>> {
        let first = self.run.unusable().first().map(|file| file.name);
        first.map_or(Ok(Vec::new()), |name| self.remove_from_name(name))
    }

    /// Removes the file of that name and all newer files, usable or not.
    pub fn remove_from_name(&mut self, name: u64) -> Result<Vec<PathBuf>> {
        // Waiting puts belong to the newest file.
        self.waiting.clear();
        self.set_current(None);
        self.begun = None;
        let removed = self.run.remove(true, |file| file.name >= name)?;
        self.full.retain(|full| !removed.iter().any(|path| path == full.path()));
        Ok(removed)
    }

    /// Keeps the files up to the first whose header `keep` refuses, and removes the rest.
    pub fn keep_while(
        &mut self,
        mut keep: impl FnMut(&IndexHeader) -> bool,
    ) -> Result<Vec<PathBuf>> {
        self.drain()?;
        for file in self.run.files() {
            if !keep(&self.run.open(&file)?.header()?) {
                return self.remove_from_name(file.name);
            }
        }
        Ok(Vec::new())
    }

    /// Removes the entries of records from `physical_offset` on, durably; files left without
    /// entries are removed. `store_timestamp_ms` returns the last remaining record's store time; if
    /// that record is gone, its file goes too, since the header cannot be corrected. Returns the
    /// number of entries removed from the last file and the removed files.
    pub fn truncate(
        &mut self,
        physical_offset: i64,
        mut store_timestamp_ms: impl FnMut(i64) -> Result<Option<i64>>,
    ) -> Result<(u32, Vec<PathBuf>)> {
        self.drain()?;
        let mut removed = Vec::new();
        let mut files = self.run.files();
        while let Some(last) = files.pop() {
            let open = self.run.open(&last)?;
            let head = open.head()?;
            let kept = open.first_entry_from(physical_offset)?;
            if head.count > 1 && kept >= head.count {
                break;
            }
            // A file without entries goes only if the previous one is no longer full.
            if head.count <= 1 && head.header.end_physical_offset < physical_offset {
                break;
            }
            let end = match kept > 1 {
                true => store_timestamp_ms(open.physical_offset_of(kept - 1)?)?,
                false => None,
            };
            if let Some(end) = end {
                let mut file = match self.set_current(None) {
                    Some(current) if current.path() == last.path => current,
                    _ => self.open(&last.path)?,
                };
                file.truncate(kept, end)?;
                file.flush()?;
                self.set_current(Some(file));
                return Ok((head.count - kept, removed));
            }
            removed.extend(self.remove_from_name(last.name)?);
        }
        Ok((0, removed))
    }

    /// Allows the last indexed message to come again after a restart: existing entries are not put
    /// twice, as RocketMQ would.
    pub fn skip_keys_already_put(&mut self) -> Result<()> {
        self.drain()?;
        self.begun = self.run.last_keys_put()?;
        Ok(())
    }

    /// Removes the oldest files whose messages all lie before `min_physical_offset`, never the last
    /// (`IndexService#deleteExpiredFile`).
    pub fn delete_before(&mut self, min_physical_offset: i64) -> Result<Vec<PathBuf>> {
        let files = self.run.files();
        let mut expired = Vec::new();
        for file in files.iter().take(files.len().saturating_sub(1)) {
            if self.run.open(file)?.header()?.end_physical_offset >= min_physical_offset {
                break;
            }
            expired.push(file.name);
        }
        let removed = self.run.remove(false, |file| expired.contains(&file.name))?;
        self.full.retain(|full| !removed.iter().any(|path| path == full.path()));
        Ok(removed)
    }
}

#[cfg(test)]
mod tests;
