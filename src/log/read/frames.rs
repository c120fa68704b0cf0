//! Reads one log file frame by frame.
//!
//! [`Scanner`](super::scanner::Scanner) walks all files with it and reads every record whole.
//! Recovery, rebuild and verify read a large record without its body, in bounded memory.

use std::path::Path;
use std::sync::Arc;

use super::block::{BLOCK_BYTES, Block, BlockPool};
use super::evidence::{Budget, begins_frame, first_nonzero, is_likely, may_be, search};
use crate::error::{CorruptionKind, Error, FormatError, Result};
use crate::files::{FileRun, RunFile, StorageFile};
use crate::format::bytes::i32_at;
use crate::format::crc::{self, Crc32};
use crate::format::message::elided::{self, HEAD_MOST};
use crate::format::message::peek::{self, SIGNATURE};
use crate::format::message::{self, Frame, FrameError, MIN_RECORD_LEN, MessageView};
use crate::format::width::{saturating_u32, to_usize};

/// Cost of a look at a frame's end, in bytes.
const LOOK: u64 = 1 << 10;

#[derive(Clone, Debug)]
pub struct FrameReader {
    /// `None` until the first read.
    open: Option<Arc<dyn StorageFile>>,
    file: Arc<RunFile>,
    len: u64,
    file_size: u64,
    /// Bytes of the file: `filled` of them, from `start` on.
    block: Option<Arc<Block>>,
    start: u64,
    filled: usize,
    pool: Arc<BlockPool>,
    /// The last large record without its body, and its checksum faults.
    elided: Vec<u8>,
    faults: Faults,
    /// Last zeros: start, and the position that ends them.
    zeros: Option<(u64, Option<u64>)>,
}

#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub body: Option<FormatError>,
    pub properties: Option<FormatError>,
}

/// A record in the file; a large one without its body.
#[derive(Clone, Copy, Debug)]
pub struct FramedRecord<'a> {
    pub view: MessageView<'a>,
    pub size: u32,
    pub is_elided: bool,
    /// Set if a large record's checksums were computed.
    pub faults: Option<&'a Faults>,
}

impl<'a> FramedRecord<'a> {
    #[inline(always)]
    pub(super) fn whole(view: MessageView<'a>) -> Self {
        Self { view, size: view.store_size(), is_elided: false, faults: None }
    }

    /// A wrong checksum of its body; of a large one if checksums were computed.
    #[inline(always)]
    #[must_use]
    pub fn body_fault(&self) -> Option<FormatError> {
        match self.faults {
            Some(faults) => faults.body.clone(),
            None if self.is_elided => None,
            None => self.view.check_body_crc().err(),
        }
    }

    /// [`FramedRecord::body_fault`] of the checksum in its last property, if there is one.
    #[inline]
    #[must_use]
    pub fn property_fault(&self) -> Option<FormatError> {
        match self.faults {
            Some(faults) => faults.properties.clone(),
            None if self.is_elided || self.view.property_crc().is_none() => None,
            None => self.view.check_property_crc().err(),
        }
    }
}

#[derive(Debug)]
pub enum FrameAt<'a> {
    /// A record, which may store another offset.
    Record(FramedRecord<'a>),
    Blank(u32),
    Empty,
    Bad(FormatError),
    End,
}

impl FrameReader {
    pub fn open(log: &FileRun, file: &Arc<RunFile>) -> Result<Self> {
        Ok(Self::over(log.open(file)?, file, log.file_size()))
    }

    #[must_use]
    pub fn over(open: Arc<dyn StorageFile>, file: &Arc<RunFile>, file_size: u64) -> Self {
        Self {
            open: Some(open),
            file: Arc::clone(file),
            len: file.len.min(file_size),
            file_size,
            block: None,
            start: 0,
            filled: 0,
            pool: Arc::default(),
            elided: Vec::new(),
            faults: Faults::default(),
            zeros: None,
        }
    }

    /// Reads up to position `end`, whatever length was listed.
    #[must_use]
    pub fn until(mut self, end: u64) -> Self {
        self.len = end.min(self.file_size);
        self
    }

    #[must_use]
    pub fn sharing(mut self, pool: &Arc<BlockPool>) -> Self {
        self.pool = Arc::clone(pool);
        self
    }

    #[inline]
    #[must_use]
    pub fn base(&self) -> u64 {
        self.file.base_offset
    }

    /// Bytes to the end of the file, where a blank must end.
    #[inline]
    #[must_use]
    pub fn left(&self, at: u64) -> u64 {
        self.file_size.saturating_sub(at)
    }

    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    #[inline]
    pub(super) fn block(&self) -> Option<&Arc<Block>> {
        self.block.as_ref()
    }

    pub(super) fn close(&mut self) {
        self.open = None;
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    #[inline]
    pub(super) fn rest(&self, at: u64) -> &[u8] {
        let Some(block) = &self.block else { return &[] };
        at.checked_sub(self.start)
            .and_then(|skip| usize::try_from(skip).ok())
            .and_then(|skip| block.as_bytes().get(skip..self.filled))
            .unwrap_or_default()
    }

    /// Reads `len` bytes, or up to `most` of them where the storage has them in memory.
    fn read_block(&mut self, at: u64, len: usize, most: usize) -> Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        (self.filled, self.start) = (0, at);
        if let Some(bytes) = open.shared_at(at, len).map_err(Error::io("read", &self.file.path))? {
            self.filled = bytes.len().min(most);
            self.block = Some(Arc::new(Block::of_shared(bytes)));
            return Ok(());
        }
        let block = self.block.get_or_insert_with(|| Arc::new(self.pool.take()));
        if Arc::get_mut(block).is_none_or(|block| block.is_shared()) {
            *block = Arc::new(self.pool.take());
        }
        let room = Arc::get_mut(block).map(|block| block.room(len)).unwrap_or_default();
        self.filled = open.read_at(room, at).map_err(Error::io("read", &self.file.path))?;
        Ok(())
    }

    pub(super) fn read_whole(&mut self, at: u64, room: usize) -> Result<()> {
        // At most twice: the first bytes tell the record's size.
        for _ in 0..2 {
            let bytes = self.rest(at);
            let needed = peek::claimed_size(bytes).unwrap_or(peek::HEAD).min(room);
            if bytes.len() >= needed {
                break;
            }
            self.read_block(at, needed.max(BLOCK_BYTES).min(room), room)?;
        }
        Ok(())
    }

    fn room(&self, at: u64) -> usize {
        to_usize(self.len.saturating_sub(at))
    }

    /// Bytes at `at`: at least `wanted` of up to [`BLOCK_BYTES`], or as many as the file has.
    fn bytes(&mut self, at: u64, wanted: usize) -> Result<&[u8]> {
        let most = self.room(at);
        let room = most.min(BLOCK_BYTES);
        if self.rest(at).len() < wanted.min(room) {
            self.read_block(at, room, most)?;
            if self.filled < room {
                // Truncated since its length was read.
                self.len = self.len.min(at.saturating_add(self.filled as u64));
            }
        }
        Ok(self.rest(at))
    }

    /// Reads the frame at `at`, with `sums` a large record's checksums; the caller checks small ones.
    pub fn read(&mut self, at: u64, sums: bool) -> Result<FrameAt<'_>> {
        if at >= self.len {
            return Ok(FrameAt::End);
        }
        let there = self.rest(at);
        // A large one is read as large, whatever its block has.
        let most = there.len().min(BLOCK_BYTES);
        if peek::claimed_size(there).is_none_or(|size| size > most) {
            return self.read_more(at, sums);
        }
        Ok(lies(message::read_frame(self.rest(at)), 0))
    }

    /// Fast path of [`FrameReader::read`]: a valid record inside the block.
    #[inline(always)]
    pub fn whole(&self, at: u64) -> Option<MessageView<'_>> {
        message::read_whole(self.rest(at))
    }

    #[cold]
    fn read_more(&mut self, at: u64, sums: bool) -> Result<FrameAt<'_>> {
        let room = self.room(at);
        // At most twice: the first bytes tell the record's size.
        let mut needed = peek::HEAD;
        for _ in 0..2 {
            needed = peek::claimed_size(self.bytes(at, needed)?).unwrap_or(needed);
            if needed > BLOCK_BYTES && needed <= room {
                return self.read_large(at, needed, sums);
            }
        }
        Ok(lies(message::read_frame(self.rest(at)), room))
    }

    fn read_large(&mut self, at: u64, size: usize, sums: bool) -> Result<FrameAt<'_>> {
        let head = self.bytes(at, HEAD_MOST)?;
        let place = match elided::body_place(head, size) {
            Ok(place) => place,
            Err(error) => return Ok(FrameAt::Bad(error)),
        };
        let head = head.get(..place.at).unwrap_or_default().to_vec();
        let tail_at = at.saturating_add((place.at + place.len) as u64);
        let tail = self.bytes(tail_at, place.tail)?;
        let tail = tail.get(..place.tail.min(tail.len())).unwrap_or_default().to_vec();
        elided::without_body(&head, &tail, &mut self.elided);
        if sums {
            self.faults = self.sum_up(at, size, &head, &tail)?;
        }
        Ok(match message::read_frame(&self.elided) {
            Ok(Frame::Message(view)) => {
                let faults = sums.then_some(&self.faults);
                FrameAt::Record(FramedRecord {
                    view,
                    size: saturating_u32(size),
                    is_elided: true,
                    faults,
                })
            }
            Err(FrameError::Bad(mut error)) => {
                if error.position >= place.at {
                    error.position = error.position.saturating_add(place.len);
                }
                FrameAt::Bad(error)
            }
            Ok(_) | Err(FrameError::Incomplete { .. }) => FrameAt::Bad(FormatError::new(
                CorruptionKind::Length,
                0,
                format!("lengths that add up to {size} bytes"),
                "others",
            )),
        })
    }

    fn sum_up(&mut self, at: u64, size: usize, head: &[u8], tail: &[u8]) -> Result<Faults> {
        let (mut body, mut whole) = (Crc32::default(), Crc32::default());
        whole.update(head);
        let from = at.saturating_add(head.len() as u64);
        let body_len = size.saturating_sub(head.len()).saturating_sub(tail.len());
        let mut done = 0;
        while done < body_len {
            let position = from.saturating_add(done as u64);
            let piece = self.bytes(position, body_len - done)?;
            let piece = piece.get(..piece.len().min(body_len - done)).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            body.update(piece);
            whole.update(piece);
            done += piece.len();
        }
        let mut faults = Faults::default();
        let Some(view) = message::read_whole(&self.elided) else { return Ok(faults) };
        let found = body.masked().cast_signed();
        if body_len > 0 && found != view.body_crc() {
            faults.body = Some(view.wrong_body_crc(found));
        }
        if let Some(expected) = view.property_crc() {
            let covered = tail.len().saturating_sub(crc::PROPERTY_CRC_LEN);
            whole.update(tail.get(..covered).unwrap_or_default());
            let (covered, found) = (size.saturating_sub(crc::PROPERTY_CRC_LEN), whole.masked());
            if found != expected {
                faults.properties = Some(message::wrong_property_crc(covered, expected, found));
            }
        }
        Ok(faults)
    }

    pub fn next_nonzero(&mut self, at: u64) -> Result<Option<u64>> {
        if let Some((from, to)) = self.zeros
            && from <= at
            && to.is_none_or(|to| at <= to)
        {
            return Ok(to);
        }
        let found = self.find_nonzero(at)?;
        self.zeros = Some((at, found));
        Ok(found)
    }

    /// Reads through the block of frames: bytes that a writer added since then must not make its
    /// zeros a hole before them.
    fn find_nonzero(&mut self, mut at: u64) -> Result<Option<u64>> {
        while at < self.len {
            let Some(open) = &self.open else { break };
            let data = open.next_data(at).map_err(Error::io("read", &self.file.path))?;
            let Some(data) = data.filter(|&data| data < self.len) else { return Ok(None) };
            at = data;
            let bytes = self.bytes(at, BLOCK_BYTES)?;
            if bytes.is_empty() {
                break;
            }
            if let Some(found) = first_nonzero(bytes) {
                return Ok(Some(at + found as u64));
            }
            at += bytes.len() as u64;
        }
        Ok(None)
    }

    fn signature(&self, at: u64) -> Result<([u8; SIGNATURE], usize)> {
        let mut bytes = [0; SIGNATURE];
        let there = self.rest(at);
        let len = SIGNATURE.min(self.room(at));
        if let (Some(from), Some(to)) = (there.get(..len), bytes.get_mut(..len)) {
            to.copy_from_slice(from);
            return Ok((bytes, len));
        }
        let Some(open) = &self.open else { return Ok((bytes, 0)) };
        let wanted = bytes.get_mut(..len).unwrap_or_default();
        let read = open.read_at(wanted, at).map_err(Error::io("read", &self.file.path))?;
        Ok((bytes, read))
    }

    /// Whether a frame may begin at `at`: a record with this offset, a blank that ends with the
    /// file, zeros to the end, or the end.
    pub fn is_plausible(&mut self, at: u64) -> Result<bool> {
        if at >= self.len {
            return Ok(at == self.len);
        }
        let base = self.base();
        let (bytes, len) = self.signature(at)?;
        let bytes = bytes.get(..len).unwrap_or_default();
        if begins_frame(bytes, base.saturating_add(at), base.saturating_add(self.file_size)) {
            return Ok(true);
        }
        let is_empty = matches!(message::read_frame(bytes), Ok(Frame::Empty));
        Ok(is_empty && self.next_nonzero(at)?.is_none())
    }

    /// End that the damaged frame at `at` claims, if the log continues there.
    pub fn claimed_end(&mut self, at: u64) -> Result<Option<u64>> {
        let (head, _) = self.signature(at)?;
        let claim = i32_at(&head, 0).and_then(|size| u64::try_from(size).ok());
        let Some(claim) = claim.filter(|&size| size >= MIN_RECORD_LEN as u64) else {
            return Ok(None);
        };
        let end = at.saturating_add(claim);
        Ok((end <= self.len && self.is_plausible(end)?).then_some(end))
    }

    /// Next whole or damaged record from `at` on, by two of three signs: the magic code, its own
    /// offset, and a log that continues at its end.
    pub fn resync(&mut self, at: u64, budget: &mut Budget) -> Result<Option<u64>> {
        let Some(open) = self.open.clone() else { return Ok(None) };
        let (file, base) = (Arc::clone(&self.file), self.base());
        let places = base.saturating_add(at)..base.saturating_add(self.len);
        let found = search(&*open, &file, places, may_be, |place, head| {
            Ok(self.may_begin(place, head, budget)?.then_some(place))
        })?;
        Ok(found.map(|place| place - base))
    }

    fn may_begin(&mut self, place: u64, head: &[u8], budget: &mut Budget) -> Result<bool> {
        if is_likely(head, place) {
            return Ok(true);
        }
        let at = place - self.base();
        // Look-alikes must not cost more.
        if !budget.take(place, LOOK) || self.claimed_end(at)?.is_none() {
            return Ok(false);
        }
        if !peek::is_record(head) {
            return Ok(true);
        }
        let file_end = self.base().saturating_add(self.file_size);
        Ok(budget.allows(place, head, file_end)
            && matches!(self.read(at, false)?, FrameAt::Record(_)))
    }
}

/// Judges a frame `room` bytes before the end of its file, or of the log.
#[inline]
pub(in crate::log) fn lies(
    frame: std::result::Result<Frame<'_>, FrameError>,
    room: usize,
) -> FrameAt<'_> {
    match frame {
        Ok(Frame::Message(view)) => FrameAt::Record(FramedRecord::whole(view)),
        Ok(Frame::Blank { size }) => FrameAt::Blank(size),
        Ok(Frame::Empty) => FrameAt::Empty,
        Err(FrameError::Bad(error)) => FrameAt::Bad(error),
        Err(FrameError::Incomplete { needed }) => FrameAt::Bad(FormatError::new(
            CorruptionKind::Truncated,
            0,
            format!("{needed} bytes"),
            format!("{room} bytes to the end"),
        )),
    }
}

/// Whether a record stores its place: a recycled or renamed file holds whole records of others.
#[inline]
#[must_use]
pub fn is_own(view: &MessageView<'_>, place: u64) -> bool {
    u64::try_from(view.physical_offset()) == Ok(place)
}

/// Reason why a record may not lie at an offset; `None` if it stores that offset.
#[inline]
#[must_use]
pub fn misplaced(view: &MessageView<'_>, place: u64) -> Option<FormatError> {
    (!is_own(view, place)).then(|| {
        FormatError::new(
            CorruptionKind::PhysicalOffset,
            28,
            format!("physical offset {place}"),
            view.physical_offset().to_string(),
        )
    })
}

#[must_use]
pub fn wrong_blank(left: u64, size: u32) -> FormatError {
    let expected = format!("a blank of {left} bytes, to the end of the file");
    FormatError::new(CorruptionKind::Blank, 0, expected, format!("{size} bytes"))
}

/// Reads the record at `place` without its body, and its size; `None` if there is none with this
/// offset, or no file.
pub fn probe<'b>(
    log: &FileRun,
    place: u64,
    buffer: &'b mut Vec<u8>,
) -> Result<Option<(MessageView<'b>, u32)>> {
    let Some(file) = log.find(place) else { return Ok(None) };
    let room = file.base_offset.saturating_add(log.file_size()).saturating_sub(place);
    let mut head = [0; HEAD_MOST];
    let read = match log.read_at(&mut head, place) {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other?,
    };
    let head = head.get(..read).unwrap_or_default();
    let size = peek::claimed_size(head).filter(|&size| size >= MIN_RECORD_LEN);
    let Some(size) = size.filter(|&size| size as u64 <= room && peek::names_offset(head, place))
    else {
        return Ok(None);
    };
    let Ok(body) = elided::body_place(head, size) else { return Ok(None) };
    let mut tail = vec![0; body.tail];
    let tail_at = place.saturating_add((body.at + body.len) as u64);
    if log.read_at(&mut tail, tail_at)? < tail.len() {
        return Ok(None);
    }
    let Some(head) = head.get(..body.at) else { return Ok(None) };
    elided::without_body(head, &tail, buffer);
    Ok(message::read_whole(buffer).map(|view| (view, saturating_u32(size))))
}
