//! Reading one file of the log frame by frame, in memory that does not grow with what a frame claims,
//! and finding the next record behind bytes that are none.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::error::{CorruptionKind, Error, FormatError, Result};
use crate::files::{FileRun, StorageFile};
use crate::format::bytes::i32_at;
use crate::format::crc;
use crate::format::message::elided::{self, Checksum, HEAD_MOST};
use crate::format::message::peek::{self, SIGNATURE};
use crate::format::message::{self, BLANK_LEN, Frame, FrameError, MIN_RECORD_LEN, MessageView};

/// What is read at a time: enough to be worth a call, little enough to stay in the processor's cache.
pub(in crate::care) const BLOCK: usize = 256 << 10;
/// How many doubtful places of a block are looked at more closely.
const LOOKS: usize = 256;

/// One file of the log, read in order.
pub(in crate::care) struct FileReader<'a> {
    file: Arc<dyn StorageFile>,
    path: &'a Path,
    /// The physical offset of the file's first byte.
    pub(in crate::care) base: u64,
    /// Bytes of it that belong to the log: all, but no more than a file has.
    pub(in crate::care) len: u64,
    /// Where a blank must end.
    pub(in crate::care) file_size: u64,
    block: Vec<u8>,
    start: u64,
    filled: usize,
    /// The last large record without its body, and what is wrong with its checksums.
    elided: Vec<u8>,
    faults: Faults,
    /// Zeros that were read last: from where on, and what ends them.
    zeros: Option<(u64, Option<u64>)>,
}

/// Which checksums of a record are wrong.
#[derive(Clone, Debug, Default)]
pub(in crate::care) struct Faults {
    pub(in crate::care) body: Option<FormatError>,
    pub(in crate::care) properties: Option<FormatError>,
}

/// A record as it lies in the file; of a large one the body is left out.
#[derive(Clone, Copy)]
pub(in crate::care) struct Record<'a> {
    pub(in crate::care) view: MessageView<'a>,
    pub(in crate::care) size: u32,
    pub(in crate::care) is_elided: bool,
}

/// What lies at a position.
pub(in crate::care) enum Lies<'a> {
    Record(Record<'a>),
    Blank(u32),
    Empty,
    Bad(FormatError),
    /// The file ends here.
    End,
}

impl<'a> FileReader<'a> {
    pub(in crate::care) fn new(
        file: Arc<dyn StorageFile>,
        path: &'a Path,
        base: u64,
        len: u64,
        file_size: u64,
    ) -> Self {
        Self {
            file,
            path,
            base,
            len: len.min(file_size),
            file_size,
            block: Vec::new(),
            start: 0,
            filled: 0,
            elided: Vec::new(),
            faults: Faults::default(),
            zeros: None,
        }
    }

    /// The same with the memory of a reader before.
    pub(in crate::care) fn with_block(self, block: Vec<u8>) -> Self {
        Self { block, ..self }
    }

    /// The memory, for another reader.
    pub(in crate::care) fn into_block(self) -> Vec<u8> {
        self.block
    }

    fn room(&self, at: u64) -> usize {
        usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX)
    }

    /// Sees to it that `wanted` bytes at `at` are in the block, or as many as the file has.
    fn fill(&mut self, at: u64, wanted: usize) -> Result<()> {
        let wanted = wanted.min(BLOCK).min(self.room(at));
        if rest(&self.block, self.start, self.filled, at).len() >= wanted {
            return Ok(());
        }
        let len = self.room(at).min(BLOCK);
        if self.block.len() < len {
            self.block.resize(len, 0);
        }
        self.filled = 0;
        self.start = at;
        let block = self.block.get_mut(..len).unwrap_or_default();
        self.filled = self.file.read_at(block, at).map_err(Error::io("read", self.path))?;
        if self.filled < len {
            // Cut short since its length was taken.
            self.len = self.len.min(at.saturating_add(self.filled as u64));
        }
        Ok(())
    }

    /// Up to [`BLOCK`] bytes at `at`.
    fn bytes(&mut self, at: u64, wanted: usize) -> Result<&[u8]> {
        self.fill(at, wanted)?;
        Ok(rest(&self.block, self.start, self.filled, at))
    }

    /// What lies at `at`. With `sums`, the checksums of a large record are taken on the way, for
    /// [`FileReader::faults`]; a smaller one is whole, and its own to check.
    pub(in crate::care) fn read(&mut self, at: u64, sums: bool) -> Result<Lies<'_>> {
        if at >= self.len {
            return Ok(Lies::End);
        }
        let there = rest(&self.block, self.start, self.filled, at);
        if peek::claimed_size(there).is_none_or(|size| size > there.len()) {
            return self.read_more(at, sums);
        }
        Ok(lies(message::read_frame(rest(&self.block, self.start, self.filled, at)), 0))
    }

    /// The record at `at`, where the block holds a sound one: what [`FileReader::read`] finds nearly
    /// always, in less time.
    #[inline(always)]
    pub(in crate::care) fn whole(&self, at: u64) -> Option<MessageView<'_>> {
        message::read_whole(rest(&self.block, self.start, self.filled, at))
    }

    /// The same, where the block does not hold all of it yet.
    #[cold]
    fn read_more(&mut self, at: u64, sums: bool) -> Result<Lies<'_>> {
        let room = self.room(at);
        // At most twice: the first bytes tell the record's size.
        let mut needed = peek::HEAD;
        for _ in 0..2 {
            self.fill(at, needed)?;
            needed = peek::claimed_size(rest(&self.block, self.start, self.filled, at))
                .unwrap_or(needed);
            if needed > BLOCK && needed <= room {
                return self.read_large(at, needed, sums);
            }
        }
        Ok(lies(message::read_frame(rest(&self.block, self.start, self.filled, at)), room))
    }

    /// A record that is larger than a block: what is before and behind its body.
    fn read_large(&mut self, at: u64, size: usize, sums: bool) -> Result<Lies<'_>> {
        let head = self.bytes(at, HEAD_MOST)?;
        let place = match elided::body_place(head, size) {
            Ok(place) => place,
            Err(error) => return Ok(Lies::Bad(error)),
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
            Ok(Frame::Message(view)) => Lies::Record(Record {
                view,
                size: u32::try_from(size).unwrap_or(u32::MAX),
                is_elided: true,
            }),
            Err(FrameError::Bad(mut error)) => {
                if error.position >= place.at {
                    error.position = error.position.saturating_add(place.len);
                }
                Lies::Bad(error)
            }
            Ok(_) | Err(FrameError::Incomplete { .. }) => Lies::Bad(FormatError::new(
                CorruptionKind::Length,
                0,
                format!("lengths that add up to {size} bytes"),
                "others",
            )),
        })
    }

    /// Both checksums of a large record, its body read piece by piece.
    fn sum_up(&mut self, at: u64, size: usize, head: &[u8], tail: &[u8]) -> Result<Faults> {
        let (mut body, mut whole) = (Checksum::default(), Checksum::default());
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
        let Ok(Frame::Message(view)) = message::read_frame(&self.elided) else {
            return Ok(faults);
        };
        if body_len > 0 && body.value() != view.body_crc() {
            faults.body = Some(FormatError::new(
                CorruptionKind::BodyCrc,
                8,
                format!("checksum {:#010x} of the body", view.body_crc()),
                format!("{:#010x}", body.value()),
            ));
        }
        if let Some(expected) = property_crc(&view) {
            let covered = tail.len().saturating_sub(crc::PROPERTY_CRC_LEN);
            whole.update(tail.get(..covered).unwrap_or_default());
            if whole.value().cast_unsigned() != expected {
                faults.properties = Some(FormatError::new(
                    CorruptionKind::PropertyCrc,
                    size.saturating_sub(crc::PROPERTY_CRC_LEN),
                    format!("checksum {expected:#010x} of the record"),
                    format!("{:#010x}", whole.value()),
                ));
            }
        }
        Ok(faults)
    }

    /// What is wrong with the checksums of the large record that was read last.
    pub(in crate::care) fn take_faults(&mut self) -> Faults {
        std::mem::take(&mut self.faults)
    }

    /// The first byte from `at` on that is not zero.
    pub(in crate::care) fn next_nonzero(&mut self, at: u64) -> Result<Option<u64>> {
        if let Some((from, to)) = self.zeros
            && from <= at
            && to.is_none_or(|to| at <= to)
        {
            return Ok(to);
        }
        let found = self.find_nonzero(at, self.len)?;
        self.zeros = Some((at, found));
        Ok(found)
    }

    /// The same, as far as it lies before `to`, or a block behind.
    fn find_nonzero(&mut self, at: u64, to: u64) -> Result<Option<u64>> {
        let mut at = at;
        while at < to.min(self.len) {
            let data = self.file.next_data(at).map_err(Error::io("read", self.path))?;
            let Some(data) = data.filter(|&data| data < to.min(self.len)) else { return Ok(None) };
            at = data;
            let bytes = self.bytes(at, BLOCK)?;
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

    /// The first bytes at `at`, as many of them as there are. The block stays where it is.
    fn signature(&self, at: u64) -> Result<([u8; SIGNATURE], usize)> {
        let mut bytes = [0; SIGNATURE];
        let there = rest(&self.block, self.start, self.filled, at);
        let len = SIGNATURE.min(self.room(at));
        if let (Some(from), Some(to)) = (there.get(..len), bytes.get_mut(..len)) {
            to.copy_from_slice(from);
            return Ok((bytes, len));
        }
        let wanted = bytes.get_mut(..len).unwrap_or_default();
        let read = self.file.read_at(wanted, at).map_err(Error::io("read", self.path))?;
        Ok((bytes, read))
    }

    /// Whether a frame of the log may begin at `at`: a record that names this place, a blank that
    /// ends with the file, zeros up to the end, or the end of the file.
    pub(in crate::care) fn looks_right(&mut self, at: u64) -> Result<bool> {
        if at >= self.len {
            return Ok(at == self.len);
        }
        let left = self.file_size - at;
        let (bytes, len) = self.signature(at)?;
        let bytes = bytes.get(..len).unwrap_or_default();
        if peek::is_record(bytes) {
            return Ok(peek::names_place(bytes, self.base.saturating_add(at)));
        }
        Ok(match message::read_frame(bytes.get(..BLANK_LEN).unwrap_or(bytes)) {
            Ok(Frame::Blank { size }) => u64::from(size) == left,
            Ok(Frame::Empty) => self.next_nonzero(at)?.is_none(),
            _ => false,
        })
    }

    /// Where the damaged frame at `at` seems to end: behind as many bytes as it claims, if its size
    /// is a record's and the log goes on there.
    pub(in crate::care) fn claimed_end(&mut self, at: u64) -> Result<Option<u64>> {
        let (head, _) = self.signature(at)?;
        let claim = i32_at(&head, 0).and_then(|size| u64::try_from(size).ok());
        let Some(claim) = claim.filter(|&size| size >= MIN_RECORD_LEN as u64) else {
            return Ok(None);
        };
        let end = at.saturating_add(claim);
        Ok((end <= self.len && self.looks_right(end)?).then_some(end))
    }

    /// The next place from `at` on where a record begins, whole or damaged: two of three must speak
    /// for it, that it has a record's magic code, that it names this place as its own, and that
    /// the log goes on where it ends.
    pub(in crate::care) fn resync(&mut self, at: u64) -> Result<Option<u64>> {
        let mut at = at;
        let mut likely: Vec<(u64, bool)> = Vec::new();
        while at < self.len {
            // Holes of a sparse file are passed over.
            match self.next_nonzero(at)? {
                Some(data) => at = at.max(data.saturating_sub(8)),
                None => return Ok(None),
            }
            let base = self.base;
            let bytes = self.bytes(at, BLOCK)?;
            if bytes.len() < SIGNATURE {
                return Ok(None);
            }
            likely.clear();
            for (position, window) in bytes.windows(SIGNATURE).enumerate() {
                let place = at + position as u64;
                let magic = peek::is_record(window);
                let own = peek::names_place(window, base.saturating_add(place));
                if magic && own {
                    likely.push((place, true));
                    break;
                }
                if magic || own {
                    likely.push((place, false));
                }
            }
            let looked_at = bytes.len() - SIGNATURE + 1;
            // Bytes made to look like records must not cost more than others do.
            let mut fuel = LOOKS;
            for &(place, certain) in &likely {
                if certain {
                    return Ok(Some(place));
                }
                if fuel > 0 {
                    fuel -= 1;
                    if self.may_begin_at(place)? {
                        return Ok(Some(place));
                    }
                }
            }
            at += looked_at as u64;
        }
        Ok(None)
    }

    /// The first place in `from..to` where bytes have a record's magic code and name the place as their
    /// own. That is a record, or a body made to look like one: whoever relies on it must come to the
    /// same place from a record before.
    pub(in crate::care) fn first_likely(&mut self, from: u64, to: u64) -> Result<Option<u64>> {
        let mut at = from;
        while at < to {
            // Each stretch of the zeros behind a log looks at its own alone.
            match self.find_nonzero(at, to)? {
                Some(data) => at = at.max(data.saturating_sub(8)),
                None => return Ok(None),
            }
            let base = self.base;
            let bytes = self.bytes(at, BLOCK)?;
            if bytes.len() < SIGNATURE {
                return Ok(None);
            }
            let found = bytes.windows(SIGNATURE).zip(at..to).find(|(window, place)| {
                peek::is_record(window) && peek::names_place(window, base.saturating_add(*place))
            });
            if let Some((_, place)) = found {
                return Ok(Some(place));
            }
            at += (bytes.len() - SIGNATURE + 1) as u64;
        }
        Ok(None)
    }

    /// Whether a record that lacks its magic code or its own place begins at `at` all the same.
    fn may_begin_at(&mut self, at: u64) -> Result<bool> {
        if self.claimed_end(at)?.is_none() {
            return Ok(false);
        }
        let (bytes, _) = self.signature(at)?;
        Ok(!peek::is_record(&bytes) || matches!(self.read(at, false)?, Lies::Record(_)))
    }
}

/// The place of the first byte that is not zero. Parts are looked at as a whole, which is many times as
/// fast as byte by byte.
fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    const PART: usize = 1024;
    let number =
        bytes.chunks(PART).position(|part| part.iter().fold(0, |all, byte| all | byte) != 0)?;
    let part = bytes.chunks(PART).nth(number)?;
    Some(number * PART + part.iter().position(|&byte| byte != 0)?)
}

/// What a frame amounts to, with `room` bytes to the end of its file.
#[inline]
fn lies(frame: std::result::Result<Frame<'_>, FrameError>, room: usize) -> Lies<'_> {
    match frame {
        Ok(Frame::Message(view)) => {
            Lies::Record(Record { view, size: view.store_size(), is_elided: false })
        }
        Ok(Frame::Blank { size }) => Lies::Blank(size),
        Ok(Frame::Empty) => Lies::Empty,
        Err(FrameError::Bad(error)) => Lies::Bad(error),
        Err(FrameError::Incomplete { needed }) => Lies::Bad(FormatError::new(
            CorruptionKind::Truncated,
            0,
            format!("{needed} bytes"),
            format!("{room} bytes to the end of the file"),
        )),
    }
}

/// The checksum that a record holds of itself, if it has one.
pub(in crate::care) fn property_crc(view: &MessageView<'_>) -> Option<u32> {
    view.raw_properties().last_chunk().and_then(crc::parse_property_crc)
}

#[inline]
fn rest(block: &[u8], start: u64, filled: usize, at: u64) -> &[u8] {
    at.checked_sub(start)
        .and_then(|skip| usize::try_from(skip).ok())
        .and_then(|skip| block.get(skip..filled))
        .unwrap_or_default()
}

/// The record at `place`, its body left out, and its size; `None` where no record begins that names
/// this place, or no longer any file holds it.
pub(in crate::care) fn probe<'b>(
    log: &FileRun,
    place: u64,
    buffer: &'b mut Vec<u8>,
) -> Result<Option<(MessageView<'b>, u32)>> {
    let Some(file) = log.find(place) else { return Ok(None) };
    let room = file.base_offset.saturating_add(log.file_size()).saturating_sub(place);
    let mut head = [0; HEAD_MOST];
    let read = match log.read_at(&mut head, place) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        other => other?,
    };
    let head = head.get(..read).unwrap_or_default();
    let size = peek::claimed_size(head).filter(|&size| size >= MIN_RECORD_LEN);
    let Some(size) = size.filter(|&size| size as u64 <= room && peek::names_place(head, place))
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
    Ok(match message::read_frame(buffer) {
        Ok(Frame::Message(view)) => Some((view, u32::try_from(size).unwrap_or(u32::MAX))),
        _ => None,
    })
}
