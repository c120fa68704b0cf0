//! Finds whole messages in any bytes: a damaged commit log file, parts of one or several, a disk
//! image.
//!
//! A record may begin at any byte. It counts if its lengths are consistent and its checksums valid;
//! without a body it needs a valid topic. A budget for failed checks, which grows with each byte
//! passed, bounds the whole to a few reads of the file.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::StorageFile;
use crate::format::message::elided::{HEAD_MOST, body_place, without_body};
use crate::format::message::peek;
use crate::format::message::{BLANK_LEN, Frame, MIN_RECORD_LEN, MessageView, Record, read_frame};
use crate::format::queue::names_a_folder;
use crate::format::width::{clamp_u64, to_usize};

const BLOCK: usize = 1 << 20;
const FUEL_EACH: u64 = 16;
const MOST_FUEL: u64 = 256 << 20;
const LEAST_HOLE: usize = 64 << 10;
/// Bytes read at a time around unreadable places.
const PIECE: usize = 4 << 10;
const EIO: i32 = 5;
const MOST_LISTED: usize = 1_000;

/// Consecutive records, both in the file and in their log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) source: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) physical_offset: u64,
}

impl Extent {
    #[must_use]
    pub(super) fn next_physical_offset(&self) -> u64 {
        self.physical_offset.saturating_add(self.end - self.start)
    }

    #[must_use]
    pub(super) fn fits(&self, size: u64) -> bool {
        let last = self.next_physical_offset().saturating_sub(1);
        self.physical_offset.checked_div(size) == last.checked_div(size)
    }
}

/// Content of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carved {
    /// Bytes.
    pub bytes: u64,
    /// Whole messages.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Ranges that are neither messages nor zeros.
    pub other_ranges: u64,
    /// Their bytes.
    pub other_bytes: u64,
    /// Likely messages not checked because the budget was used up.
    pub left: u64,
    /// Messages with valid lengths that are not whole.
    pub passed_over: u64,
}

/// A message with valid lengths that is not whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// File that has it.
    pub path: PathBuf,
    /// Position in the file.
    pub offset: u64,
    /// Length of the record by its own head.
    pub bytes: u64,
    /// Physical offset stored in it.
    pub physical_offset: i64,
    /// Why it is not whole.
    pub reason: &'static str,
}

enum Candidate {
    Nothing,
    /// Length, physical offset and reason.
    Flawed(u64, i64, &'static str),
    Whole(usize, u64),
}

pub(super) struct Window<'f> {
    file: &'f dyn StorageFile,
    path: &'f Path,
    pub(super) len: u64,
    block: Vec<u8>,
    start: u64,
    filled: usize,
    pub(super) unreadable: u64,
    told_to: u64,
}

impl<'f> Window<'f> {
    pub(super) fn new(file: &'f dyn StorageFile, path: &'f Path) -> Result<Self> {
        let len = file.stat().map_err(Error::io("stat", path))?.len;
        let block = Vec::new();
        Ok(Self { file, path, len, block, start: 0, filled: 0, unreadable: 0, told_to: 0 })
    }

    pub(super) fn bytes(&mut self, at: u64, wanted: usize) -> Result<&[u8]> {
        let inside = at
            .checked_sub(self.start)
            .and_then(|skip| usize::try_from(skip).ok())
            .filter(|skip| skip.saturating_add(wanted) <= self.filled);
        let skip = match inside {
            Some(skip) => skip,
            None => {
                let left = to_usize(self.len.saturating_sub(at));
                let len = wanted.max(BLOCK).min(left);
                // A huge record must not keep its memory.
                if self.block.len() < len || self.block.len() > len.max(4 * BLOCK) {
                    self.block = vec![0; len];
                }
                let mut block = std::mem::take(&mut self.block);
                let read = self.read(block.get_mut(..len).unwrap_or_default(), at);
                self.block = block;
                (self.filled, self.start) = (read?, at);
                0
            }
        };
        Ok(self.block.get(skip..self.filled).unwrap_or_default())
    }

    fn holds(&self, at: u64, wanted: usize) -> bool {
        let end = self.start.saturating_add(self.filled as u64);
        at >= self.start && at.saturating_add(wanted as u64) <= end
    }

    fn next_data(&self, at: u64) -> Result<u64> {
        let data = self.file.next_data(at).map_err(Error::io("read", self.path))?;
        Ok(data.unwrap_or(self.len).min(self.len))
    }

    fn read(&mut self, buffer: &mut [u8], at: u64) -> Result<usize> {
        match self.file.read_at(buffer, at) {
            Err(error) if error.raw_os_error() == Some(EIO) => Ok(self.read_around(buffer, at)),
            read => read.map_err(Error::io("read", self.path)),
        }
    }

    #[cold]
    fn read_around(&mut self, buffer: &mut [u8], from: u64) -> usize {
        let mut at = from;
        for piece in buffer.chunks_mut(PIECE) {
            let end = at + piece.len() as u64;
            if self.file.read_at(piece, at).is_err() {
                piece.fill(0);
                self.unreadable += end.saturating_sub(self.told_to.max(at));
                self.told_to = self.told_to.max(end);
            }
            at = end;
        }
        buffer.len()
    }

    pub(super) fn record(&mut self, at: u64) -> Result<Option<MessageView<'_>>> {
        let size = peek::claimed_size(self.bytes(at, BLANK_LEN)?).unwrap_or(0);
        match read_frame(self.bytes(at, size)?) {
            Ok(Frame::Message(view)) => Ok(Some(view)),
            _ => Ok(None),
        }
    }
}

struct Carver<'w, 'f> {
    window: &'w mut Window<'f>,
    source: u32,
    most_record: usize,
    fuel: u64,
    found: Carved,
    extent: Option<Extent>,
    /// Start of the bytes outside messages, and whether one is not zero.
    other: Option<(u64, bool)>,
}

/// Adds whole messages of a file to `extents` and doubtful ones to `flawed`. `tell` gets the
/// progress.
pub(super) fn carve(
    window: &mut Window<'_>,
    source: u32,
    most_record: usize,
    extents: &mut Vec<Extent>,
    flawed: &mut Vec<PassedOver>,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Carved> {
    let bytes = window.len;
    let mut carver = Carver {
        window,
        source,
        most_record,
        fuel: MOST_FUEL,
        found: Carved { bytes, ..Carved::default() },
        extent: None,
        other: None,
    };
    let mut at = 0;
    while at < bytes {
        tell(at)?;
        let carved = carver.carve_at(at)?;
        if let Candidate::Flawed(bytes, physical_offset, reason) = carved {
            carver.found.passed_over += 1;
            if flawed.len() < MOST_LISTED {
                let path = carver.window.path.to_owned();
                flawed.push(PassedOver { path, offset: at, bytes, physical_offset, reason });
            }
        }
        let next = match carved {
            Candidate::Whole(size, physical_offset) => {
                carver.end_of_other(at);
                carver.take(at, size as u64, physical_offset, extents);
                at + size as u64
            }
            Candidate::Flawed(..) | Candidate::Nothing => match carver.blank(at)? {
                Some(end) => {
                    carver.end_of_other(at);
                    end
                }
                None => carver.pass(at)?,
            },
        };
        carver.fuel =
            carver.fuel.saturating_add((next - at).saturating_mul(FUEL_EACH)).min(MOST_FUEL);
        at = next;
    }
    carver.end_of_other(bytes);
    extents.extend(carver.extent.take());
    Ok(carver.found)
}

impl Carver<'_, '_> {
    fn carve_at(&mut self, at: u64) -> Result<Candidate> {
        let left = to_usize(self.window.len - at);
        let head = self.window.bytes(at, HEAD_MOST.min(left))?;
        if head.len() < MIN_RECORD_LEN || !peek::is_record(head) {
            return Ok(Candidate::Nothing);
        }
        let size = peek::claimed_size(head).unwrap_or(0);
        if size < MIN_RECORD_LEN || size > left || size > self.most_record {
            return Ok(Candidate::Nothing);
        }
        let Ok(place) = body_place(head.get(..HEAD_MOST.min(size)).unwrap_or(head), size) else {
            return Ok(Candidate::Nothing);
        };
        let cost = size as u64;
        if cost > self.fuel {
            self.found.left += 1;
            return Ok(Candidate::Nothing);
        }
        let head = head.get(..place.at).unwrap_or_default().to_vec();
        // A large record is read only if the bytes behind its body fit.
        if !self.window.holds(at, size) {
            let mut tail = vec![0; place.tail];
            self.window.read(&mut tail, at + (place.at + place.len) as u64)?;
            let mut rest = Vec::with_capacity(place.at + place.tail);
            without_body(&head, &tail, &mut rest);
            if !matches!(read_frame(&rest), Ok(Frame::Message(_))) {
                self.fuel -= cost.min(rest.len() as u64 + LOOK_COST);
                return Ok(Candidate::Nothing);
            }
        }
        let Ok(Frame::Message(view)) = read_frame(self.window.bytes(at, size)?) else {
            self.fuel -= cost.min(LOOK_COST);
            return Ok(Candidate::Nothing);
        };
        let physical_offset = view.physical_offset();
        match flaw(&view) {
            None => Ok(Candidate::Whole(size, clamp_u64(physical_offset))),
            Some(reason) => {
                self.fuel -= cost;
                Ok(Candidate::Flawed(cost, physical_offset, reason))
            }
        }
    }

    /// End of a blank at `at`, if it follows a record and leads to the next or to the end of the
    /// file. Its bytes are older content.
    fn blank(&mut self, at: u64) -> Result<Option<u64>> {
        let Some(last) = self.extent.filter(|last| last.end == at) else { return Ok(None) };
        let Ok(Frame::Blank { size }) = read_frame(self.window.bytes(at, BLANK_LEN)?) else {
            return Ok(None);
        };
        let end = at.saturating_add(u64::from(size));
        if end == self.window.len {
            return Ok(Some(end));
        }
        if end > self.window.len {
            return Ok(None);
        }
        let next = last.next_physical_offset().saturating_add(u64::from(size));
        let leads_on =
            matches!(self.carve_at(end)?, Candidate::Whole(_, physical) if physical == next);
        Ok(leads_on.then_some(end))
    }

    fn pass(&mut self, at: u64) -> Result<u64> {
        let len = self.window.len;
        let (begin, dirty) = self.other.unwrap_or((at, false));
        let bytes = self.window.bytes(at, peek::SIGNATURE)?;
        let mut next = at + bytes.len().max(1) as u64;
        let rest = bytes.get(1..).unwrap_or_default();
        for (skip, start) in rest.windows(8).enumerate() {
            if start.get(4) == Some(&MAGIC_START) && peek::is_record(start) {
                next = at + 1 + skip as u64;
                break;
            }
        }
        let last_block = at + bytes.len() as u64 >= len;
        if next == at + bytes.len() as u64 && !last_block {
            // The magic code may span two reads.
            next -= 7;
        }
        let mut next = next.max(at + 1);
        let passed = to_usize(next - at);
        let zeros = bytes.iter().take(passed).all(|byte| *byte == 0);
        if zeros && passed >= LEAST_HOLE {
            // The rest of a log file is mostly a hole. A record's size may begin with zeros in it.
            next = self.window.next_data(next)?.saturating_sub(4).max(next);
        }
        self.other = Some((begin, dirty || !zeros));
        Ok(next)
    }

    fn end_of_other(&mut self, at: u64) {
        if let Some((begin, true)) = self.other.take() {
            self.found.other_ranges += 1;
            self.found.other_bytes += at - begin;
        }
    }

    fn take(&mut self, at: u64, size: u64, physical_offset: u64, extents: &mut Vec<Extent>) {
        self.found.messages += 1;
        self.found.message_bytes += size;
        match &mut self.extent {
            Some(last) if last.end == at && last.next_physical_offset() == physical_offset => {
                last.end += size;
            }
            last => {
                let new =
                    Extent { source: self.source, start: at, end: at + size, physical_offset };
                extents.extend(last.replace(new));
            }
        }
    }
}

const MAGIC_START: u8 = 0xDA;
/// Cost of finding that a record's parts are inconsistent.
const LOOK_COST: u64 = 256;

fn flaw(view: &MessageView<'_>) -> Option<&'static str> {
    let numbers = [view.physical_offset(), view.queue_offset(), view.store_timestamp_ms()];
    if view.queue_id() < 0 || numbers.iter().any(|number| *number < 0) {
        return Some("its queue, one of its offsets or its store time is negative");
    }
    if view.check_body_crc().is_err() {
        return Some("its body is not the one that was stored");
    }
    if Record::of(view).property_crc {
        // A valid property checksum suffices.
        let is_whole = view.check_property_crc().is_ok();
        return (!is_whole)
            .then_some("it is not the one that was stored, by its property checksum");
    }
    if view.topic().contains(&0) {
        return Some("its topic has a zero byte: the page was never written");
    }
    if peek::lacks_bytes(view, view.store_size()) {
        return Some("its properties have zeros, as where they did not come to the disk");
    }
    // Without a body only lengths speak for a record.
    (view.body().is_empty() && !names_a_folder(view.topic()))
        .then_some("it has no body, and a topic that no broker takes")
}
