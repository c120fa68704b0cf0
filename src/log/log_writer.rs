//! Appends to the commit log through a map of the last file. Other threads prepare that file ahead
//! of the writer, and the next one.

use std::sync::Arc;

use crate::error::{CorruptionKind, Error, Result};
use crate::files::{
    Access, ActiveFiles, MappedFile, Prefaulter, SharedActiveFiles, Wakeup, fill_holes,
};
use crate::format::message::{self, BLANK_LEN};
use crate::format::width::PhysicalOffset;

use super::commit_log::CommitLog;

/// Step in which disk space is taken ahead of the writer.
pub const RESERVE_STEP: usize = 64 << 20;
/// Bytes after which the writer first wakes the thread ahead of it; the distance doubles each time.
const FIRST_TOLD: u64 = 128 << 10;
const MOST_UNDISPATCHED: u64 = 16 << 20;
/// Maximum bytes of the next record prefetched.
const FETCHED: usize = 2 << 10;
/// Distance from the end at which the next file is loaded into memory.
pub const NEAR_THE_END: usize = 64 << 20;

/// The single appender; it owns the map of the last file.
#[derive(Debug)]
pub struct LogWriter {
    log: Arc<CommitLog>,
    active: Option<Active>,
    end: u64,
    wake_at: u64,
    wake_after: u64,
    bell: Arc<Wakeup>,
    front: Arc<SharedActiveFiles>,
    /// A record to be written by a system call instead of the map.
    staged: Option<Vec<u8>>,
    warms: bool,
    next: Option<Active>,
    /// A full file; another thread unmaps it, which takes a while.
    full: Option<Active>,
}

#[derive(Debug)]
pub struct Active {
    base_offset: u64,
    map: MappedFile,
}

impl Active {
    /// Opens the file at `base_offset` for writing from `position` on, creating it if missing.
    pub fn open(log: &CommitLog, base_offset: u64, position: u64) -> Result<Active> {
        let file = log.run().create_if_missing(base_offset)?;
        let open = log.run().open(&file)?;
        let mut map = MappedFile::map(&file.path, open, Access::ReadWrite, RESERVE_STEP)?;
        if (map.len() as u64) < log.run().file_size() {
            return Err(Error::corrupt(
                &file.path,
                map.len() as u64,
                CorruptionKind::FileLength,
                format!("a file of {} bytes", log.run().file_size()),
                format!("{} bytes", map.len()),
            ));
        }
        if let Some(room) = log.room() {
            map.ahead().leave(room, base_offset);
        }
        // Pages before the position must not be touched: without a call for space, zeros are
        // written. But a sparse copy lacks space there, too.
        let position = position as usize;
        fill_holes(&**map.file(), &file.path, position..position)?;
        map.assume_reserved(position);
        map.ahead().advance_to(position);
        map.ahead().sample_position();
        Ok(Active { base_offset, map })
    }

    #[must_use]
    pub fn ahead(&self) -> &Arc<Prefaulter> {
        self.map.ahead()
    }
}

impl LogWriter {
    #[must_use]
    pub fn new(log: Arc<CommitLog>) -> Self {
        let end = log.end_offset();
        let (bell, front, wake_at) = (Arc::default(), Arc::default(), end);
        Self {
            log,
            active: None,
            end,
            wake_at,
            wake_after: FIRST_TOLD,
            bell,
            front,
            staged: None,
            warms: false,
            next: None,
            full: None,
        }
    }

    /// Prepares whole files at open (`warmMapedFileEnable`).
    #[must_use]
    pub fn warming(self) -> Self {
        Self { warms: true, ..self }
    }

    /// Writes records by system calls: an immediate flush is faster, since no page has to be
    /// write-protected and mapped again.
    #[must_use]
    pub fn through_the_file(self) -> Self {
        // No pages to prepare.
        Self { staged: Some(Vec::new()), wake_at: u64::MAX, ..self }
    }

    #[must_use]
    pub fn bell(&self) -> &Arc<Wakeup> {
        &self.bell
    }

    /// The current files, for the threads that work ahead.
    #[must_use]
    pub fn front(&self) -> &Arc<SharedActiveFiles> {
        &self.front
    }

    /// Offset of the next record if it fits into the last file.
    #[must_use]
    pub fn end_offset(&self) -> u64 {
        self.end
    }

    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.log.run().file_size()
    }

    /// Returns `len` writable bytes and their offset, after a blank and a new file if the last has
    /// no room (`CommitLog.DefaultAppendMessageCallback.doAppend`), for [`LogWriter::publish`].
    ///
    /// # Errors
    /// [`Error::Io`] when the next file cannot be created or the disk is full; nothing
    /// changes except, perhaps, an empty file at the end.
    #[inline]
    pub fn window(&mut self, len: usize) -> Result<(PhysicalOffset, &mut [u8])> {
        let size = self.log.run().file_size();
        let fits = self
            .active
            .as_ref()
            .is_some_and(|active| self.end - active.base_offset + (len + BLANK_LEN) as u64 <= size);
        if !fits {
            self.roll(len)?;
        }
        let end = self.end;
        let Some(active) = &mut self.active else { return Err(Error::Closed) };
        let offset = PhysicalOffset::new(end).ok_or_else(|| too_large(active))?;
        let position = (end - active.base_offset) as usize;
        match &mut self.staged {
            None => Ok((offset, active.map.window(position, len)?)),
            Some(staged) => {
                active.map.reserve(position + len)?;
                staged.resize(len, 0);
                Ok((offset, staged))
            }
        }
    }

    /// Publishes the `len` bytes of the last window.
    #[inline]
    pub fn publish(&mut self, len: usize) -> Result<()> {
        if let Some(active) = &self.active {
            let position = self.end - active.base_offset;
            if let Some(staged) = &self.staged {
                let written = active.map.file().write_at(staged, position);
                written.map_err(Error::io("write", active.map.path()))?;
            }
            let next = position as usize + len;
            active.ahead().advance_to(next);
            if self.staged.is_none() {
                // The next record is likely as long. Otherwise the following lock would wait for
                // this memory.
                active.map.prefetch_range(next, len.min(FETCHED));
            }
        }
        self.end += len as u64;
        self.log.publish(self.end);
        if self.end >= self.wake_at {
            self.wake_dispatch();
        }
        Ok(())
    }

    #[cold]
    fn wake_dispatch(&mut self) {
        self.wake_at = self.end.saturating_add(self.wake_after);
        self.wake_after = MOST_UNDISPATCHED.min(self.wake_after * 2);
        self.bell.ring();
    }

    #[cold]
    fn roll(&mut self, len: usize) -> Result<()> {
        let size = self.log.run().file_size();
        let base = self.end / size * size;
        let position = self.end - base;
        if position + (len + BLANK_LEN) as u64 <= size {
            let active = Active::open(&self.log, base, position)?;
            if self.warms {
                active.ahead().prepare_rest();
            }
            self.active = Some(active);
            self.publish_active_files();
            return Ok(());
        }
        // Without the next file the last must not be closed.
        if self.next.as_ref().is_none_or(|next| next.base_offset != base + size) {
            self.next = Some(Active::open(&self.log, base + size, 0)?);
        }
        if self.active.as_ref().is_none_or(|active| active.base_offset != base) {
            self.active = Some(Active::open(&self.log, base, position)?);
        }
        self.publish_active_files();
        let Some(last) = &mut self.active else { return Err(Error::Closed) };
        let blank = u32::try_from(size - position).map_err(|_| too_large(last))?;
        let window = last.map.window(position as usize, BLANK_LEN)?;
        message::write_blank(window, blank);
        self.end = base + size;
        self.log.publish(self.end);
        self.full = std::mem::replace(&mut self.active, self.next.take());
        self.publish_active_files();
        Ok(())
    }

    fn publish_active_files(&self) {
        self.front.set(ActiveFiles {
            active: self.mapped().map(|(_, ahead)| ahead),
            next: self.next.as_ref().map(|next| Arc::clone(next.ahead())),
            has_full: self.full.is_some(),
        });
    }

    /// The mapped file with its offset; `None` when records are written by calls.
    #[must_use]
    pub fn mapped(&self) -> Option<(u64, Arc<Prefaulter>)> {
        let mapped = self.active.as_ref().filter(|_| self.staged.is_none());
        mapped.map(|active| (active.base_offset, Arc::clone(active.ahead())))
    }

    /// Offset of the next file if it is due: the last is half full.
    #[must_use]
    pub fn missing(&self) -> Option<u64> {
        let size = self.file_size();
        let next_base = (self.end / size + 1) * size;
        let soon = self.active.is_some() && self.end % size > size / 2;
        let missing = soon && self.next.as_ref().is_none_or(|next| next.base_offset != next_base);
        missing.then_some(next_base)
    }

    /// A full file for another thread to release.
    #[must_use]
    pub fn take_full(&mut self) -> Option<Active> {
        let full = self.full.take();
        if full.is_some() {
            self.publish_active_files();
        }
        full
    }

    /// Sets the prepared next file; returns whether it is in time.
    pub fn set_next(&mut self, next: Active) -> bool {
        self.next = Some(next).filter(|next| next.base_offset > self.end);
        self.publish_active_files();
        self.next.is_some()
    }

    /// Releases the map; the next append maps again.
    pub fn release(&mut self) {
        (self.active, self.next, self.full) = (None, None, None);
        self.publish_active_files();
    }
}

fn too_large(active: &Active) -> Error {
    Error::io("write", active.map.path())(std::io::ErrorKind::FileTooLarge.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{FileRun, Os};

    const SIZE: u64 = 1 << 16;

    fn writer(dir: &std::path::Path) -> LogWriter {
        let dirs = vec![dir.to_owned()];
        let run = FileRun::load(Arc::new(Os), Arc::default(), dirs, SIZE, Access::ReadWrite);
        LogWriter::new(Arc::new(CommitLog::new(run.unwrap().0, 0)))
    }

    fn write(writer: &mut LogWriter, len: usize) {
        writer.window(len).unwrap();
        writer.publish(len).unwrap();
    }

    #[test]
    fn the_front_knows_what_is_written_and_how_far() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path());
        let front = Arc::clone(writer.front());
        let known = || {
            let ActiveFiles { active, next, has_full } = front.files();
            (active.map(|active| active.position()), next.is_some(), has_full)
        };
        assert_eq!(known(), (None, false, false));
        write(&mut writer, 1000);
        assert_eq!(known(), (Some(1000), false, false));
        write(&mut writer, 40_000);
        assert!(front.files().active.is_some_and(|active| active.is_past_half()));
        assert_eq!(writer.missing(), Some(SIZE));
        assert!(writer.set_next(Active::open(&writer.log, SIZE, 0).unwrap()));
        assert_eq!(known(), (Some(41_000), true, false));
        write(&mut writer, 30_000);
        assert_eq!(known(), (Some(30_000), false, true));
        assert!(writer.take_full().is_some());
        assert_eq!(known(), (Some(30_000), false, false));
        writer.release();
        assert_eq!(known(), (None, false, false));
    }

    #[test]
    fn nothing_is_made_ready_for_records_that_are_written_by_calls() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path()).through_the_file();
        write(&mut writer, 1000);
        assert!(writer.front().files().active.is_none());
    }
}
