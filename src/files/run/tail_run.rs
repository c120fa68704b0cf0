//! A run of files whose end is kept in memory until a block is full or it is flushed. Queues use
//! it: a crash loses nothing that the log cannot rebuild.

use crate::locks::{Mutex, MutexGuard};

use super::file_run::FileRun;
use crate::error::{Error, Result};
use crate::files::zero_out;
use crate::format::width::to_usize;

/// Bytes in memory before the appender writes them out itself.
const BUFFER: usize = 256 << 10;
/// Bytes added between checks whether the next file is needed.
const LOOK: usize = 4 << 10;
/// Maximum bytes in memory if a new file is needed, which takes milliseconds.
const MOST_BUFFER: usize = 1 << 20;
/// Bytes of memory that every run keeps.
const KEPT_BUFFER: usize = 1 << 10;
/// A run keeps at most so many times the bytes added between two commits.
const KEPT_TIMES: usize = 4;
pub(crate) const BLOCK: usize = 64 << 10;
/// First read of a search for the end: most queues have few entries, and reading holes takes
/// memory.
pub(crate) const FIRST_BLOCK: usize = 4 << 10;

#[derive(Debug)]
pub struct TailRun {
    run: FileRun,
    tail: Mutex<Tail>,
}

/// A file to create, and bytes to write at a position of it.
#[derive(Debug)]
pub struct NewFile {
    pub base_offset: u64,
    pub position: u64,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct Tail {
    start: u64,
    buffer: Vec<u8>,
    dirty: Vec<u64>,
    committed: u64,
}

impl Tail {
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.buffer.len() as u64)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Makes room, and writes to new memory at once: otherwise later appends would wait for its pages.
    #[cold]
    fn grow(&mut self, len: usize) {
        let filled = self.buffer.len();
        self.buffer.reserve(len);
        self.buffer.resize(self.buffer.capacity(), 0);
        self.buffer.truncate(filled);
    }

    /// Sets the end, whatever the files hold there.
    pub(crate) fn set_end(&mut self, end: u64) {
        (self.start, self.committed) = (end, end);
        self.buffer.clear();
    }
}

impl TailRun {
    /// A run that ends at its first file's beginning until its end is set.
    pub(crate) fn new(run: FileRun) -> Self {
        let start = run.min_offset().unwrap_or(0);
        let tail = Tail { start, ..Tail::default() };
        Self { run, tail: Mutex::new(tail) }
    }

    pub(crate) fn run(&self) -> &FileRun {
        &self.run
    }

    #[inline]
    pub(crate) fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock()
    }

    pub(crate) fn start(&self) -> u64 {
        self.run.min_offset().unwrap_or_else(|| self.tail().start)
    }

    #[inline]
    pub(crate) fn push(&self, tail: &mut Tail, bytes: &[u8]) -> Result<()> {
        let waits = tail.buffer.len();
        if waits >= BUFFER && waits % LOOK < bytes.len() {
            let has_file = || self.run.find(tail.end() - 1).is_some();
            if waits >= MOST_BUFFER || has_file() {
                self.write_out(tail)?;
            }
        }
        if tail.buffer.capacity() - tail.buffer.len() < bytes.len() && bytes.len() < LOOK {
            tail.grow(bytes.len());
        }
        tail.buffer.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn write_out(&self, tail: &mut Tail) -> Result<()> {
        let size = self.run.file_size();
        while !tail.buffer.is_empty() {
            let base = tail.start / size * size;
            let room = to_usize(base + size - tail.start);
            let len = tail.buffer.len().min(room);
            let file = self.run.create_if_missing(base)?;
            let bytes = tail.buffer.get(..len).unwrap_or_default();
            self.run
                .open(&file)?
                .write_at(bytes, tail.start - base)
                .map_err(Error::io("write", &file.path))?;
            if tail.dirty.last() != Some(&base) {
                tail.dirty.push(base);
            }
            tail.start += len as u64;
            tail.buffer.drain(..len);
        }
        Ok(())
    }

    pub(crate) fn missing_files(&self) -> Vec<u64> {
        let (start, end) = {
            let tail = self.tail();
            if tail.is_empty() {
                return Vec::new();
            }
            (tail.start, tail.end())
        };
        let size = self.run.file_size();
        let bases = (start / size..end.div_ceil(size)).map(|number| number * size);
        bases.filter(|&base| self.run.find(base).is_none()).collect()
    }

    /// Missing files, the first with its bytes if there are few.
    pub(crate) fn wanted_files(&self) -> Vec<NewFile> {
        let file = |base_offset| NewFile { base_offset, position: 0, bytes: Vec::new() };
        let mut files: Vec<_> = self.missing_files().into_iter().map(file).collect();
        let tail = self.tail();
        if let Some(first) = files.first_mut()
            && let Some(position) = tail.start.checked_sub(first.base_offset)
            && position.saturating_add(tail.buffer.len() as u64) <= self.run.file_size()
            && tail.buffer.len() <= FIRST_BLOCK
        {
            (first.position, first.bytes) = (position, tail.buffer.clone());
        }
        files
    }

    /// Takes note of a file that was created with its bytes.
    pub(super) fn has_filled(&self, NewFile { base_offset, position, bytes }: &NewFile) {
        let mut tail = self.tail();
        // Not if the run was cut or written out meanwhile.
        let is_there = tail.start == base_offset + position && tail.buffer.starts_with(bytes);
        if is_there && !bytes.is_empty() {
            tail.start += bytes.len() as u64;
            tail.buffer.drain(..bytes.len());
            tail.dirty.push(*base_offset);
        }
    }

    pub(crate) fn wants_commit(&self) -> bool {
        let tail = self.tail();
        !tail.is_empty() || tail.buffer.capacity() / KEPT_TIMES > KEPT_BUFFER
    }

    pub(crate) fn is_dirty(&self) -> bool {
        let tail = self.tail();
        !tail.is_empty() || !tail.dirty.is_empty()
    }

    /// Counts all files as unflushed: a killed process may not have flushed them.
    pub(crate) fn mark_all_dirty(&self) {
        self.tail().dirty = self.run.files().iter().map(|file| file.base_offset).collect();
    }

    pub(crate) fn commit(&self) -> Result<()> {
        // So that appenders need not wait for new files.
        for base in self.missing_files() {
            self.run.create_if_missing(base)?;
        }
        let mut tail = self.tail();
        self.write_out(&mut tail)?;
        // Only runs that are written constantly need more memory.
        let end = tail.end();
        let added = to_usize(end.saturating_sub(tail.committed));
        let kept = added.max(KEPT_BUFFER);
        if tail.buffer.capacity() / KEPT_TIMES > kept {
            tail.buffer.shrink_to(kept);
        }
        tail.committed = end;
        Ok(())
    }

    /// Returns whether anything was pending.
    pub(crate) fn flush(&self) -> Result<bool> {
        let dirty = {
            let mut tail = self.tail();
            self.write_out(&mut tail)?;
            std::mem::take(&mut tail.dirty)
        };
        for (number, &base) in dirty.iter().enumerate() {
            if let Some(file) = self.run.find(base) {
                let synced = self.run.sync(&file);
                if let Err(error) = synced {
                    self.tail().dirty.extend(dirty.iter().skip(number));
                    return Err(error);
                }
            }
        }
        Ok(!dirty.is_empty())
    }

    /// As [`FileRun::read_at`], up to the run's end.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let (on_disk, in_memory) = {
            let tail = self.tail();
            let on_disk = tail.start.saturating_sub(offset);
            let on_disk = to_usize(on_disk).min(buffer.len());
            let skip = to_usize(offset.saturating_sub(tail.start));
            let bytes = tail.buffer.get(skip..).unwrap_or_default();
            let room = buffer.get_mut(on_disk..).unwrap_or_default();
            let len = bytes.len().min(room.len());
            room[..len].copy_from_slice(&bytes[..len]);
            (on_disk, len)
        };
        let read = self.read_disk(buffer.get_mut(..on_disk).unwrap_or_default(), offset)?;
        Ok(if read < on_disk { read } else { on_disk + in_memory })
    }

    /// [`TailRun::read_at`] of the files alone.
    pub(crate) fn read_disk(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut read = 0;
        while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.run.read_at(rest, offset.saturating_add(read as u64))? {
                0 => break,
                more => read += more,
            }
        }
        Ok(read)
    }

    /// Truncates at `end` and zeroes the rest, so that nothing comes back. Empty files are removed,
    /// even the first.
    pub(crate) fn cut(&self, end: u64) -> Result<()> {
        let mut tail = self.tail();
        self.write_out(&mut tail)?;
        let size = self.run.file_size();
        let first = self.run.min_offset().unwrap_or(0);
        let end = end.min(tail.end()).max(first);
        self.run.remove_from(if end == first { first } else { end.div_ceil(size) * size })?;
        if let Some(file) = self.run.find(end) {
            zero_out(&*self.run.open(&file)?, &file.path, end - file.base_offset..size)?;
            if !tail.dirty.contains(&file.base_offset) {
                tail.dirty.push(file.base_offset);
            }
        }
        tail.set_end(end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;
    use crate::files::run::new_files::{Wanted, create_all};
    use crate::files::{Access, Os};

    #[test]
    fn a_run_keeps_the_memory_that_it_needs_between_two_commits() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = vec![dir.path().to_owned()];
        let run = FileRun::load(Arc::new(Os), Arc::default(), dirs, 1 << 20, Access::ReadWrite);
        let run = TailRun::new(run.unwrap().0);
        let add = |bytes: usize| {
            run.push(&mut run.tail(), &vec![1; bytes]).unwrap();
            let had = run.tail().buffer.capacity();
            run.commit().unwrap();
            (had, run.tail().buffer.capacity())
        };
        let (had, kept) = add(100_000);
        assert_eq!(kept, had, "as much may come again");
        // Written out on the way, so little is left for the commit.
        for _ in 0..3 {
            run.push(&mut run.tail(), &[2; 30_000]).unwrap();
            let mut tail = run.tail();
            run.write_out(&mut tail).unwrap();
        }
        assert_eq!(add(20).1, kept);
        assert_eq!(add(20), (kept, KEPT_BUFFER));
        assert_eq!(add(20), (KEPT_BUFFER, KEPT_BUFFER));
    }

    #[test]
    fn nobody_waits_for_a_writer_that_waits_for_the_new_files() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = vec![dir.path().to_owned()];
        let run = FileRun::load(Arc::new(Os), Arc::default(), dirs, 1 << 20, Access::ReadWrite);
        let run = Arc::new(TailRun::new(run.unwrap().0));
        run.push(&mut run.tail(), b"entry").unwrap();
        let (done, ended) = mpsc::channel();
        let shared = Arc::clone(&run);
        std::thread::spawn(move || {
            let writer = Arc::clone(&shared);
            let wanted: [Wanted<'_>; 1] = [(&*shared, shared.wanted_files())];
            let made = create_all(&wanted, || {
                let (tell, told) = mpsc::channel();
                std::thread::spawn(move || {
                    let mut tail = writer.tail();
                    tell.send(()).unwrap();
                    writer.write_out(&mut tail).unwrap();
                });
                told.recv().unwrap();
                Ok(())
            });
            done.send(made).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(30)).expect("both go on").unwrap();
        run.commit().unwrap();
        assert_eq!(std::fs::read(&run.run().files()[0].path).unwrap()[..6], *b"entry\0");
    }
}
