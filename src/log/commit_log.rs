//! The commit log: every message of every topic, one record behind the other
//! (`org.apache.rocketmq.store.CommitLog`).
//!
//! [`CommitLog`] is what everybody reads, by position, up to what is published;
//! [`LogWriter`](super::log_writer::LogWriter) is the one that appends.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, FormatError, Result};
use crate::files::{Ahead, FileRun, Room, StorageFile};
use crate::format::message::peek;
use crate::format::message::{self, Frame, FrameError, MessageView};

use super::read::frames::{self, Lies, Record};

/// How much of a log is written over itself at a time.
const WRITTEN_AGAIN: usize = 1 << 20;
/// How much of it before the disk is told of it.
const PART: u64 = 8 << 20;
/// What a read of one record takes at first when its size is not known.
const FIRST_READ: usize = 4 << 10;

/// The log as its readers see it.
#[derive(Debug)]
pub struct CommitLog {
    run: FileRun,
    wrote: AtomicU64,
    flushed: AtomicU64,
    room: OnceLock<Arc<Room>>,
}

/// What lies at a physical offset.
#[derive(Debug)]
pub enum Found<'a> {
    /// A record begins there.
    Message(MessageView<'a>),
    /// The rest of the file is filler of this many bytes.
    Blank(u32),
    /// Nothing was written there.
    Empty,
    /// Bytes that are no record.
    Bad(FormatError),
    /// Outside of the log.
    OutOfRange,
}

impl CommitLog {
    /// A log over `run`, readable up to `end`.
    #[must_use]
    pub fn new(run: FileRun, end: u64) -> Self {
        let room = OnceLock::new();
        Self { run, wrote: AtomicU64::new(end), flushed: AtomicU64::new(end), room }
    }

    /// The disk space that appends leave free, once it was set.
    #[must_use]
    pub fn room(&self) -> Option<&Arc<Room>> {
        self.room.get()
    }

    /// Has appends leave that disk space free.
    pub fn leave(&self, room: Arc<Room>) {
        self.room.get_or_init(|| room);
    }

    /// The files below.
    #[must_use]
    pub fn run(&self) -> &FileRun {
        &self.run
    }

    /// The first offset of the log; its end where it has no file.
    #[must_use]
    pub fn min_offset(&self) -> u64 {
        self.run.min_offset().unwrap_or_else(|| self.end_offset())
    }

    /// One past the last byte that may be read.
    #[must_use]
    pub fn end_offset(&self) -> u64 {
        self.wrote.load(Ordering::Acquire)
    }

    /// One past the last byte that is known to be durable.
    #[must_use]
    pub fn flushed_offset(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Moves the readable end, for a reader whose log another process writes, or after a cut.
    pub fn set_end(&self, end: u64) {
        self.wrote.store(end, Ordering::Release);
        self.flushed.store(end, Ordering::Release);
    }

    /// Lets readers see the log up to `end`.
    #[inline]
    pub(super) fn publish(&self, end: u64) {
        self.wrote.store(end, Ordering::Release);
    }

    /// Makes everything before `target` durable, file by file, and tells how far that is. Of the file
    /// `mapped`, with its offset, no more than that is written to the disk: what is ready behind it
    /// would only have to be made ready again.
    ///
    /// # Errors
    /// [`Error::Io`]; nothing may be appended any more then.
    pub fn flush(&self, target: u64, mapped: Option<&(u64, Arc<Ahead>)>) -> Result<u64> {
        let from = self.flushed_offset();
        if target > from {
            for file in self.run.files().iter() {
                let base = file.base_offset;
                let begin = from.max(base);
                let end = target.min(base.saturating_add(self.run.file_size()));
                if begin < end {
                    match mapped.filter(|(mapped, _)| *mapped == base) {
                        // Positions in a mapped file fit into memory.
                        Some((_, ahead)) => {
                            let range = (begin - base) as usize..(end - base) as usize;
                            self.run.sync_range(file, ahead, range)?;
                        }
                        None => self.run.sync(file)?,
                    }
                }
            }
            self.flushed.fetch_max(target, Ordering::AcqRel);
        }
        Ok(target)
    }

    /// Writes what the files hold from `offset` on over itself, zeros that were written too, so that
    /// the next flush takes all of it to the disk. The disk begins with it at once. It ends early when
    /// that is no longer wanted.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_again(&self, offset: u64, is_wanted: impl Fn() -> bool) -> Result<()> {
        let size = self.run.file_size();
        let mut block = vec![0; WRITTEN_AGAIN];
        for file in self.run.files().iter().filter(|file| !self.run.is_read_only(file)) {
            let mut from = offset.saturating_sub(file.base_offset);
            if from >= size {
                continue;
            }
            let open = self.run.open(file)?;
            while from < size && is_wanted() {
                let to = (from / PART + 1).saturating_mul(PART).min(size);
                if write_part_again(&*open, &file.path, from, to, &mut block)? {
                    open.start_writing(from, to - from).map_err(Error::io("flush", &file.path))?;
                }
                from = to;
            }
        }
        Ok(())
    }

    /// How many bytes of its file lie between `offset` and `end`.
    fn room_at(&self, offset: u64, end: u64) -> usize {
        let size = self.run.file_size();
        let in_file = size - offset.checked_rem(size).unwrap_or(0);
        usize::try_from(in_file.min(end.saturating_sub(offset))).unwrap_or(usize::MAX)
    }

    /// Reads what lies at `offset` into `buffer`; `size_hint` is the record's length where a queue
    /// or the caller knows it, 0 otherwise.
    ///
    /// A record is taken only if its lengths add up and it names `offset` as its own place.
    ///
    /// # Errors
    /// [`Error::Io`] when the system cannot read.
    pub fn read<'b>(
        &self,
        offset: u64,
        size_hint: usize,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Found<'b>> {
        self.read_before(offset, self.end_offset(), size_hint, buffer)
    }

    /// Reads as [`CommitLog::read`] does, from a log that ends at `end`: for a search that must not
    /// move the end that other threads see.
    ///
    /// # Errors
    /// [`Error::Io`] when the system cannot read.
    pub fn read_before<'b>(
        &self,
        offset: u64,
        end: u64,
        size_hint: usize,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Found<'b>> {
        if offset < self.min_offset() || offset >= end {
            return Ok(Found::OutOfRange);
        }
        let room = self.room_at(offset, end);
        let mut wanted = if size_hint == 0 { FIRST_READ } else { size_hint }.min(room);
        // At most twice: the first bytes tell the record's size.
        loop {
            buffer.resize(wanted, 0);
            let read = self.run.read_at(buffer, offset)?;
            buffer.truncate(read);
            if read == 0 && offset < self.min_offset() {
                // Deleted since.
                return Ok(Found::OutOfRange);
            }
            match message::read_frame(buffer) {
                Err(FrameError::Incomplete { needed }) if read == wanted && needed <= room => {
                    if needed <= wanted {
                        break;
                    }
                    wanted = needed;
                }
                _ => break,
            }
        }
        Ok(Self::judge(message::read_frame(buffer), offset, room))
    }

    /// A copy of the record that begins at `physical_offset`, of a log that is read up to `end`.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`], [`Error::MessageNotFound`] when no record begins there,
    /// [`Error::Corrupt`] when one does but its body's checksum is wrong, [`Error::Io`].
    pub fn get(&self, physical_offset: i64, end: u64) -> Result<Box<[u8]>> {
        let min = self.min_offset();
        let at = u64::try_from(physical_offset).ok().filter(|&at| at >= min && at < end);
        let Some(at) = at else {
            return Err(Error::OffsetOutOfRange {
                physical_offset,
                min: i64::try_from(min).unwrap_or(i64::MAX),
                max: i64::try_from(end).unwrap_or(i64::MAX),
            });
        };
        let nothing = |what: String| Error::MessageNotFound {
            what: format!("no message begins at physical offset {physical_offset}: {what}"),
        };
        let mut buffer = Vec::new();
        match self.read(at, 0, &mut buffer)? {
            Found::Message(view) => {
                self.check_body(&view)?;
                Ok(view.as_bytes().into())
            }
            Found::Blank(size) => Err(nothing(format!("{size} bytes of filler lie there"))),
            Found::Empty => Err(nothing("zeros lie there".to_owned())),
            Found::Bad(error) => Err(nothing(format!(
                "{}: expected {}, found {}",
                error.kind, error.expected, error.found
            ))),
            Found::OutOfRange => Err(nothing("the log ends before it".to_owned())),
        }
    }

    /// Holds a record's body against its checksum.
    ///
    /// # Errors
    /// [`Error::Corrupt`], with the file and the byte.
    pub fn check_body(&self, view: &MessageView<'_>) -> Result<()> {
        view.check_body_crc().map_err(|error| {
            let at = u64::try_from(view.physical_offset()).unwrap_or(0);
            match self.run.find(at) {
                Some(file) => error.in_file(&file.path, at - file.base_offset),
                None => error.into(),
            }
        })
    }

    /// What a frame read at `offset`, with `room` bytes to its file's end, amounts to.
    pub(super) fn judge<'b>(
        frame: Result<Frame<'b>, FrameError>,
        offset: u64,
        room: usize,
    ) -> Found<'b> {
        match frames::lies(frame, room) {
            Lies::Record(Record { view, .. }) => match frames::misplaced(&view, offset) {
                None => Found::Message(view),
                Some(error) => Found::Bad(error),
            },
            Lies::Blank(size) => Found::Blank(size),
            Lies::Empty => Found::Empty,
            Lies::Bad(error) => Found::Bad(error),
            Lies::End => Found::OutOfRange,
        }
    }

    /// The store time of the record at `offset`, `None` where none is readable.
    ///
    /// # Errors
    /// [`Error::Io`] when the system cannot read.
    pub fn store_timestamp_ms(&self, offset: u64, size: usize) -> Result<Option<i64>> {
        // The time lies within the first 76 bytes, wherever the hosts end.
        let mut head = [0_u8; peek::HEAD];
        if offset < self.min_offset()
            || offset.saturating_add(size as u64) > self.end_offset()
            || self.run.read_at(&mut head, offset)? < head.len()
        {
            return Ok(None);
        }
        Ok(peek::store_timestamp_ms(&head, offset))
    }
}

/// Writes bytes `from..to` of a file over themselves, holes left out; whether there were any.
fn write_part_again(
    file: &dyn StorageFile,
    path: &Path,
    from: u64,
    to: u64,
    block: &mut [u8],
) -> Result<bool> {
    let (mut position, mut wrote) = (from, false);
    while position < to
        && let Some(data) = file.next_data(position).map_err(Error::io("read", path))?
        && data < to
    {
        // Blocks end at whole multiples: what is written in a hole must not count as data behind it.
        let left = WRITTEN_AGAIN as u64 - data % WRITTEN_AGAIN as u64;
        let len = usize::try_from(left.min(to - data)).unwrap_or(WRITTEN_AGAIN);
        let bytes = block.get_mut(..len).unwrap_or_default();
        let read = file.read_at(bytes, data).map_err(Error::io("read", path))?;
        if read == 0 {
            break;
        }
        let bytes = bytes.get(..read).unwrap_or_default();
        file.write_at(bytes, data).map_err(Error::io("write", path))?;
        position = data + read as u64;
        wrote = true;
    }
    Ok(wrote)
}
