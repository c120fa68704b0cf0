//! Reads one stretch of a log file into a compact form of what queues and index need.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::files::FileRun;
use crate::format::message::MessageView;
use crate::format::message::peek;
use crate::log::read::block::BlockPool;
use crate::log::read::frames::{FrameAt, FrameReader, Record};
use crate::log::read::parallel::{Part, Stretch};
use crate::store::dispatch::gather::{Gather, Gathered, SpareGathered, Wanted};
use crate::store::folder::mark::Flushed;

pub(super) const STRETCH: u64 = 4 << 20;

/// A range of the log and the derived data to collect from it.
pub(super) struct Reading<'a> {
    pub(super) log: &'a FileRun,
    pub(super) wanted: Wanted<'a>,
    /// Records outside this flushed part may lack bytes, so they are checked closely.
    pub(super) flushed: Flushed,
    pub(super) spare: Spare,
}

/// Reusable memory: fresh pages cost more than filling them.
#[derive(Debug, Default)]
pub(super) struct Spare {
    blocks: Arc<BlockPool>,
    gathered: SpareGathered,
}

impl Spare {
    pub(super) fn give_back(&self, chunks: impl Iterator<Item = Chunk>) {
        self.gathered.give_back(chunks.map(|chunk| chunk.gathered));
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ChunkEnd {
    /// End of the stretch, or enough gathered.
    #[default]
    Whole,
    Blank,
    /// Zeros, or the end of the file's bytes.
    Nothing,
    Bad,
}

#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) begin: Option<u64>,
    pub(super) end: u64,
    pub(super) how: ChunkEnd,
    pub(super) gathered: Gathered,
}

impl Part for Chunk {
    fn begin(&self) -> Option<u64> {
        self.begin
    }
}

/// Reads a stretch from its likely first record on; the walk over the previous stretch confirms it
/// by ending there.
pub(super) fn read(reading: &Reading<'_>, stretch: &Stretch) -> Result<Chunk> {
    let mut reader = FrameReader::open(reading.log, &stretch.file)?.sharing(&reading.spare.blocks);
    let first = match stretch.bytes.start {
        0 => Some(0),
        from => reader.first_likely(from, stretch.bytes.end)?,
    };
    let chunk = match first {
        Some(at) => walk(reading, stretch, &mut reader, at)?,
        None => Chunk { end: stretch.places().end, ..Chunk::default() },
    };
    Ok(chunk)
}

pub(super) fn read_from(reading: &Reading<'_>, stretch: &Stretch, at: u64) -> Result<Chunk> {
    let mut reader = FrameReader::open(reading.log, &stretch.file)?;
    walk(reading, stretch, &mut reader, at.saturating_sub(stretch.file.base_offset))
}

fn walk(
    reading: &Reading<'_>,
    stretch: &Stretch,
    reader: &mut FrameReader,
    mut at: u64,
) -> Result<Chunk> {
    let base = stretch.file.base_offset;
    let begin = Some(base.saturating_add(at));
    let mut gather = Gather::new(&reading.wanted, reading.spare.gathered.take());
    let checks = reading.flushed.before_ms < i64::MAX;
    let how = loop {
        if at >= stretch.bytes.end || gather.is_full() {
            break ChunkEnd::Whole;
        }
        let left = reader.left(at);
        let is_own = |view: &MessageView<'_>| {
            u64::try_from(view.physical_offset()) == Ok(base.saturating_add(at))
        };
        if !checks && let Some(view) = reader.whole(at).filter(is_own) {
            gather.add(&view, view.store_size());
            at += u64::from(view.store_size());
            continue;
        }
        match reader.read(at, checks)? {
            FrameAt::Record(record) => {
                let next = at + u64::from(record.size);
                if !is_own(&record.view) {
                    break ChunkEnd::Bad;
                }
                let place = base.saturating_add(at);
                if !checks || reading.flushed.covers(place, record.view.store_timestamp_ms()) {
                    add_closely(&mut gather, &record);
                    at = next;
                    continue;
                }
                let torn = match record.is_elided {
                    true => reader.take_faults().body.is_some(),
                    false => {
                        record.view.check_body_crc().is_err() || peek::lacks_bytes(&record.view)
                    }
                };
                // The reader has a large record's checksum faults, so it is read again.
                match reader.read(at, false)? {
                    FrameAt::Record(record) if !torn => add_closely(&mut gather, &record),
                    _ => break ChunkEnd::Bad,
                }
                at = next;
            }
            FrameAt::Blank(size) if u64::from(size) == left => break ChunkEnd::Blank,
            FrameAt::Blank(_) | FrameAt::Bad(_) => break ChunkEnd::Bad,
            FrameAt::End | FrameAt::Empty => break ChunkEnd::Nothing,
        }
    };
    Ok(Chunk { begin, end: base.saturating_add(at), how, gathered: gather.into_gathered() })
}

#[cold]
fn add_closely(gather: &mut Gather<'_>, record: &Record<'_>) {
    gather.add(&record.view, record.size);
}

/// Store time of the record at `at`, if one begins there.
pub(super) fn stored_at(reader: &mut FrameReader, at: u64) -> Result<Option<i64>> {
    Ok(match reader.read(at, false)? {
        FrameAt::Record(record) => Some(record.view.store_timestamp_ms()),
        _ => None,
    })
}

/// Whether the file is gone, deleted by a running broker's retention.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
