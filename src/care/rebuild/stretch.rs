//! Reads one stretch of a log file into a compact form of what queues and index need.

use parking_lot::Mutex;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::care::verify::record::{FileReader, Lies, Record};
use crate::error::{Error, Result};
use crate::files::{FileRun, RunFile};
use crate::format::message::MessageView;
use crate::format::message::peek;
use crate::store::dispatch::gather::{Gather, Gathered, SpareGathered, Wanted};
use crate::store::mark::Flushed;

const STRETCH: u64 = 4 << 20;

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
    blocks: Mutex<Vec<Vec<u8>>>,
    gathered: SpareGathered,
}

impl Spare {
    pub(super) fn give_back(&self, chunks: impl Iterator<Item = Chunk>) {
        self.gathered.give_back(chunks.map(|chunk| chunk.gathered));
    }

    fn block(&self) -> Vec<u8> {
        let mut blocks = self.blocks.lock();
        blocks.pop().unwrap_or_default()
    }

    fn give_back_block(&self, block: Vec<u8>) {
        self.blocks.lock().push(block);
    }
}

/// Bytes `from..to` of a log file.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) file: Arc<RunFile>,
    pub(super) from: u64,
    pub(super) to: u64,
}

pub(super) fn stretches(log: &FileRun) -> impl Iterator<Item = Stretch> + use<> {
    let size = log.file_size();
    let files = log.files().as_ref().clone();
    files.into_iter().flat_map(move |file| {
        let len = file.len.min(size);
        (0..len).step_by(STRETCH as usize).map(move |from| Stretch {
            file: Arc::clone(&file),
            from,
            to: from.saturating_add(STRETCH).min(len),
        })
    })
}

impl Stretch {
    pub(super) fn len(&self) -> u64 {
        self.to - self.from
    }

    /// Physical offset of the first byte.
    pub(super) fn start(&self) -> u64 {
        self.file.base_offset.saturating_add(self.from)
    }

    pub(super) fn end(&self) -> u64 {
        self.file.base_offset.saturating_add(self.to)
    }

    pub(super) fn reader<'a>(&'a self, log: &FileRun) -> Result<FileReader<'a>> {
        let file = &self.file;
        let open = log.open(file)?;
        Ok(FileReader::new(open, &file.path, file.base_offset, file.len, log.file_size()))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
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
    /// Physical offset of the first record.
    pub(super) begin: Option<u64>,
    pub(super) end: u64,
    pub(super) how: ChunkEnd,
    pub(super) gathered: Gathered,
}

/// Reads a stretch from its likely first record on; the walk over the previous stretch confirms it
/// by ending there.
pub(super) fn read(reading: &Reading<'_>, stretch: &Stretch) -> Result<Chunk> {
    let mut reader = stretch.reader(reading.log)?.with_block(reading.spare.block());
    let first = match stretch.from {
        0 => Some(0),
        from => reader.first_likely(from, stretch.to)?,
    };
    let chunk = match first {
        Some(at) => walk(reading, stretch, &mut reader, at)?,
        None => Chunk { end: stretch.end(), ..Chunk::default() },
    };
    reading.spare.give_back_block(reader.into_block());
    Ok(chunk)
}

/// Reads a stretch from physical offset `at` on.
pub(super) fn read_from(reading: &Reading<'_>, stretch: &Stretch, at: u64) -> Result<Chunk> {
    let mut reader = stretch.reader(reading.log)?;
    walk(reading, stretch, &mut reader, at.saturating_sub(stretch.file.base_offset))
}

fn walk(
    reading: &Reading<'_>,
    stretch: &Stretch,
    reader: &mut FileReader<'_>,
    mut at: u64,
) -> Result<Chunk> {
    let base = stretch.file.base_offset;
    let begin = Some(base.saturating_add(at));
    let mut gather = Gather::new(&reading.wanted, reading.spare.gathered.take());
    let checks = reading.flushed.before_ms < i64::MAX;
    let how = loop {
        if at >= stretch.to || gather.is_full() {
            break ChunkEnd::Whole;
        }
        let left = reader.file_size.saturating_sub(at);
        let is_own = |view: &MessageView<'_>| {
            u64::try_from(view.physical_offset()) == Ok(base.saturating_add(at))
        };
        if !checks && let Some(view) = reader.whole(at).filter(is_own) {
            gather.add(&view, view.store_size());
            at += u64::from(view.store_size());
            continue;
        }
        match reader.read(at, checks)? {
            Lies::Record(record) => {
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
                    Lies::Record(record) if !torn => add_closely(&mut gather, &record),
                    _ => break ChunkEnd::Bad,
                }
                at = next;
            }
            Lies::Blank(size) if u64::from(size) == left => break ChunkEnd::Blank,
            Lies::Blank(_) | Lies::Bad(_) => break ChunkEnd::Bad,
            Lies::End | Lies::Empty => break ChunkEnd::Nothing,
        }
    };
    Ok(Chunk { begin, end: base.saturating_add(at), how, gathered: gather.into_gathered() })
}

#[cold]
fn add_closely(gather: &mut Gather<'_>, record: &Record<'_>) {
    gather.add(&record.view, record.size);
}

/// Store time of the record at `at`, if one begins there.
pub(super) fn stored_at(reader: &mut FileReader<'_>, at: u64) -> Result<Option<i64>> {
    Ok(match reader.read(at, false)? {
        Lies::Record(record) => Some(record.view.store_timestamp_ms()),
        _ => None,
    })
}

/// Whether the file is gone, deleted by a running broker's retention.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
