//! Spill files of a divided rebuild: one share after another, each with the segments of all chunks
//! in order.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::stretch::Chunk;
use crate::error::{Error, Result};
use crate::format::crc::crc32;
use crate::format::width::{at_most_u32, to_usize};
use crate::store::dispatch::gather::{Gathered, Keyed, Lane, QueuedUnit};

/// Consumer of a segment: a queue group or the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    Queues(u32),
    Index,
}

impl Share {
    pub(super) fn of_queue(topic: &[u8], queue_id: i32, groups: u32) -> u32 {
        // Neighbouring queues of a topic are likely equally full.
        crc32(topic).wrapping_add(queue_id.cast_unsigned()) % groups.max(1)
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct Segment {
    lanes: Vec<Lane>,
    units: Vec<QueuedUnit>,
    keyed: Vec<Keyed>,
    hashes: Vec<i32>,
}

#[derive(Debug)]
pub(super) struct Spill {
    /// Segments with their heads, for each group of queues and then the index.
    shares: Vec<Vec<u8>>,
    chunks: u32,
}

impl Spill {
    pub(super) fn new(groups: u32) -> Self {
        let count = to_usize(groups.max(1)).saturating_add(1);
        Self { shares: vec![Vec::new(); count], chunks: 0 }
    }

    /// Adds the next chunk; errors name `path`.
    pub(super) fn add(&mut self, chunk: &Chunk, path: &Path) -> Result<()> {
        let number = self.chunks;
        self.chunks += 1;
        let groups = self.shares.len() - 1;
        let mut segments: Vec<Segment> =
            std::iter::repeat_with(Segment::default).take(groups).collect();
        let mut places = Vec::with_capacity(chunk.gathered.lanes.len());
        for lane in &chunk.gathered.lanes {
            let groups = at_most_u32(groups);
            let group = Share::of_queue(&lane.topic, lane.queue_id, groups) as usize;
            let Some(segment) = segments.get_mut(group) else { continue };
            places.push((group, at_most_u32(segment.lanes.len())));
            segment.lanes.push(lane.clone());
        }
        for unit in &chunk.gathered.units {
            if let Some(&(group, lane)) = places.get(unit.lane as usize)
                && let Some(segment) = segments.get_mut(group)
            {
                segment.units.push(QueuedUnit { lane, ..*unit });
            }
        }
        let (keyed, hashes) = (chunk.gathered.keyed.clone(), chunk.gathered.hashes.clone());
        let index = Segment { keyed, hashes, ..Segment::default() };
        for (share, segment) in self.shares.iter_mut().zip(segments.iter().chain([&index])) {
            if segment.lanes.is_empty() && segment.keyed.is_empty() {
                continue;
            }
            let encoded = postcard::to_allocvec(segment).and_then(|bytes| {
                share.extend_from_slice(&postcard::to_allocvec(&(number, bytes.len()))?);
                share.extend_from_slice(&bytes);
                Ok(())
            });
            encoded.map_err(|error| Error::io("gather", path)(std::io::Error::other(error)))?;
        }
        Ok(())
    }

    /// Writes a new file; returns the end of each share.
    pub(super) fn write(self, path: &Path) -> Result<Vec<u64>> {
        let mut file = File::create_new(path).map_err(Error::io("create", path))?;
        let mut at = 0;
        let mut ends = Vec::with_capacity(self.shares.len());
        for share in self.shares {
            file.write_all(&share).map_err(Error::io("write", path))?;
            at += share.len() as u64;
            ends.push(at);
        }
        // Readers may run on other machines.
        file.sync_all().map_err(Error::io("flush", path))?;
        Ok(ends)
    }
}

/// Reads one share of several files in order.
#[derive(Debug)]
pub(super) struct SpillReader {
    /// Files with the ends of their shares.
    files: Vec<(PathBuf, Vec<u64>)>,
    share: Share,
    /// Unread parts of open files.
    open: HashMap<u32, Rest>,
}

#[derive(Debug)]
struct Rest {
    bytes: Vec<u8>,
    at: usize,
}

impl SpillReader {
    pub(super) fn new(files: Vec<(PathBuf, Vec<u64>)>, share: Share) -> Self {
        Self { files, share, open: HashMap::new() }
    }

    /// A chunk's data for this share; numbers of a file must increase.
    pub(super) fn chunk(&mut self, spill: u32, number: u32) -> Result<Option<Chunk>> {
        let Some((path, ends)) = self.files.get(spill as usize) else { return Ok(None) };
        if !self.open.contains_key(&spill) {
            // The last file is read beside all others.
            let last = at_most_u32(self.files.len()) - 1;
            self.open.retain(|open, _| *open == last);
            let share = match self.share {
                Share::Queues(group) => group as usize,
                Share::Index => ends.len().saturating_sub(1),
            };
            let from = share.checked_sub(1).and_then(|before| ends.get(before)).copied();
            let (from, to) = (from.unwrap_or(0), ends.get(share).copied().unwrap_or(0));
            let mut bytes = vec![0; to_usize(to.saturating_sub(from))];
            if !bytes.is_empty() {
                let file = File::open(path).map_err(Error::io("open", path))?;
                file.read_exact_at(&mut bytes, from).map_err(Error::io("read", path))?;
            }
            self.open.insert(spill, Rest { bytes, at: 0 });
        }
        let Some(rest) = self.open.get_mut(&spill) else { return Ok(None) };
        while let Some((found, segment)) = rest.next() {
            if found > number {
                break;
            }
            let chunk = (found == number).then(|| decode(segment, path)).transpose()?;
            rest.pass();
            if chunk.is_some() {
                return Ok(chunk);
            }
        }
        Ok(None)
    }
}

fn decode(segment: &[u8], path: &Path) -> Result<Chunk> {
    let Segment { lanes, units, keyed, hashes } = postcard::from_bytes(segment)
        .map_err(|error| Error::io("read", path)(std::io::Error::other(error)))?;
    let gathered = Gathered { lanes, units, keyed, hashes, ..Gathered::default() };
    Ok(Chunk { gathered, ..Chunk::default() })
}

impl Rest {
    fn next(&self) -> Option<(u32, &[u8])> {
        let head = postcard::take_from_bytes::<(u32, usize)>(self.bytes.get(self.at..)?);
        let ((number, len), rest) = head.ok()?;
        Some((number, rest.get(..len)?))
    }

    fn pass(&mut self) {
        let left = self.bytes.get(self.at..).unwrap_or_default();
        let head = postcard::take_from_bytes::<(u32, usize)>(left);
        self.at = match head {
            Ok(((_, len), rest)) => self.bytes.len() - rest.len().saturating_sub(len),
            Err(_) => self.bytes.len(),
        };
    }
}
