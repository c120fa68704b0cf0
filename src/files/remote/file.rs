//! A file behind a URL: which blocks to ask for, together with which others, and in what parts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::iter;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::kept::{BLOCK, Kept, Memory, PART, Part};
use super::listing::{Listing, Object, Objects};
use crate::files::system::storage::{FileStat, StorageFile};
use crate::format::bytes::are_zeros;
use crate::format::width::to_usize;
use crate::locks::wait_for;

/// Bytes of a probe for data behind zeros.
const LOOK: u64 = 4 << 10;
/// Parts that are asked for before their reader comes to them.
const AHEAD: u64 = 5;
/// Bytes that a reader has read on end when it begins to read in parts.
const LONG: u64 = 1 << 20;
/// How long a reader waits for a part that another thread reads. That thread may wait for this one,
/// which then reads the part as well.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_millis(100);
/// Blocks between two that are fetched together with them: a request costs more.
const MOST_SKIPPED: u64 = 4;

#[derive(Debug)]
pub(super) struct RemoteFile {
    pub(super) objects: Arc<dyn Objects>,
    pub(super) id: u64,
    pub(super) object: Arc<Object>,
    pub(super) path: PathBuf,
    pub(super) listing: Arc<Listing>,
    pub(super) memory: Arc<Memory>,
    /// Position from which on only zeros were found.
    pub(super) empty_from: AtomicU64,
}

type Found = BTreeMap<u64, Part>;

#[derive(Clone, Debug)]
struct Request {
    bytes: Range<u64>,
    /// Bytes that its reader has read on end before.
    before: u64,
    /// Whether it is one of the parts in which much is read.
    is_part: bool,
}

impl RemoteFile {
    /// The blocks of parts of the file, by number; those that no memory has are asked for at once.
    /// A reader that goes `on` may read what was announced.
    fn blocks_of(&self, parts: &[Range<u64>], on: bool) -> io::Result<Found> {
        let began = Instant::now();
        loop {
            let (mut found, mut missing) = (Found::new(), BTreeSet::new());
            let mut kept = self.memory.kept.lock();
            for part in parts.iter().filter(|part| part.start < part.end) {
                for number in part.start / BLOCK..part.end.div_ceil(BLOCK) {
                    match kept.block(self.id, number) {
                        Some(block) => drop(found.insert(number, block)),
                        None => drop(missing.insert(number)),
                    }
                }
            }
            if missing.is_empty() {
                return Ok(found);
            }
            let requests = self.requests(&kept, parts, missing, on);
            let keys = requests.iter().filter(|request| request.is_part);
            let keys: Vec<_> = keys.map(|part| (self.id, part.bytes.start / PART)).collect();
            let asker = thread::current().id();
            let is_others = |key| kept.asked.get(key).is_some_and(|other| *other != asker);
            if keys.iter().any(is_others) && began.elapsed() < LONGEST_WAIT {
                drop(kept);
                self.wait(&keys)?;
                continue;
            }
            kept.asked.extend(keys.iter().map(|key| (*key, asker)));
            let ahead = self.ahead(&mut kept, &requests);
            drop(kept);
            let ranges: Vec<_> = requests.iter().map(|request| request.bytes.clone()).collect();
            let read = self.objects.ranges(&self.object, &ranges, &ahead);
            let mut kept = self.memory.kept.lock();
            kept.asked.retain(|key, other| !keys.contains(key) || *other != asker);
            self.memory.arrived.notify_all();
            if read.as_ref().is_ok_and(|read| {
                !read.iter().map(Bytes::len).eq(ranges.iter().map(|r| to_usize(r.end - r.start)))
            }) {
                return Err(io::Error::other("expected the bytes asked for, found fewer or more"));
            }
            let unneeded = self.keep(&mut kept, &requests, read?, &mut found);
            drop(kept);
            drop(unneeded);
            return Ok(found);
        }
    }

    fn wait(&self, keys: &[(u64, u64)]) -> io::Result<()> {
        self.objects.waiting(&|| {
            let mut kept = self.memory.kept.lock();
            if keys.iter().any(|key| kept.asked.contains_key(key)) {
                wait_for(&self.memory.arrived, &mut kept, WAIT);
            }
        });
        self.objects.check_interrupt()
    }

    /// Ranges to read for missing blocks: more than these where a reader goes on.
    fn requests(
        &self,
        kept: &Kept,
        parts: &[Range<u64>],
        missing: BTreeSet<u64>,
        on: bool,
    ) -> Vec<Request> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for number in missing {
            match runs.last_mut() {
                Some(run) if number - run.end <= MOST_SKIPPED => run.end = number + 1,
                _ => runs.push(number..number + 1),
            }
        }
        let (mut requests, mut reach) = (Vec::new(), 0);
        for run in runs {
            let until = (run.end * BLOCK).min(self.object.len);
            // The run before may have read on.
            let start = (run.start * BLOCK).max(reach);
            if until <= start {
                continue;
            }
            // Its reader may have come over blocks that were there.
            let began = parts.iter().map(|part| part.start / BLOCK);
            let began = began.filter(|at| *at <= run.start).max().unwrap_or(run.start);
            let ends = (began..=run.start).filter_map(|at| kept.ends.peek(&(self.id, at * BLOCK)));
            let before = ends.copied().max().unwrap_or(0);
            let (part_begin, part_end) = (start / PART * PART, until.next_multiple_of(PART));
            let (bytes, is_part) = match kept.announced(self.id, start).filter(|_| on) {
                Some(range) => {
                    let begin = part_begin.max(range.start / BLOCK * BLOCK);
                    let end = range.end.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
                    (begin.max(reach)..part_end.min(end).max(until), true)
                }
                None if before >= PART => (part_begin.max(reach)..part_end, true),
                None if before >= LONG => (start..part_end, true),
                // Whole blocks: the file before may have ended within one.
                None => {
                    let more = (3 * before).next_multiple_of(BLOCK);
                    (start..until.max(start.saturating_add(more)), false)
                }
            };
            let end = bytes.end.min(self.object.len);
            reach = end;
            let bytes_start = bytes.start;
            let mut at = bytes_start;
            while at < end {
                let next = if is_part { (at / PART + 1) * PART } else { at.saturating_add(PART) };
                let bytes = at..next.min(end);
                requests.push(Request { before: before + (at - bytes_start), bytes, is_part });
                at = next;
            }
        }
        requests
    }

    /// The parts behind the last request, where its reader goes on.
    fn ahead<'a>(&'a self, kept: &mut Kept, requests: &[Request]) -> Vec<(&'a Object, Range<u64>)> {
        let Some(last) = requests.last().filter(|request| request.is_part) else {
            return Vec::new();
        };
        let is_announced = kept.announced(self.id, last.bytes.start).is_some();
        let on_end = last.before + (last.bytes.end - last.bytes.start);
        let count = if is_announced { AHEAD } else { (on_end / PART).min(AHEAD) };
        let own = iter::once((self.id, &*self.object, last.bytes.end));
        let behind = self.listing.behind(&self.path).map(|(id, object)| (*id, &**object, 0));
        let parts = own.chain(behind).flat_map(|(id, object, from)| {
            let starts = (from..object.len).step_by(to_usize(PART));
            starts.map(move |at| (id, object, at..at.saturating_add(PART).min(object.len)))
        });
        let parts = parts.take(to_usize(count)).filter_map(|(id, object, part)| {
            let range = kept.announced(id, part.start);
            if is_announced && range.is_none() {
                return None;
            }
            let end = range.and_then(|range| range.end.checked_next_multiple_of(BLOCK));
            let end = end.unwrap_or(u64::MAX);
            let is_there = kept.parts.contains(&(id, part.start / PART));
            let is_asked = kept.asked.contains_key(&(id, part.start / PART));
            // One that ends earlier is not what its reader will ask for.
            (!is_there && !is_asked && part.end <= end).then_some((object, part))
        });
        parts.collect()
    }

    /// Keeps what was read; returns bytes that nobody needs, to be dropped without the lock.
    fn keep(
        &self,
        kept: &mut Kept,
        requests: &[Request],
        read: Vec<Bytes>,
        found: &mut Found,
    ) -> Vec<Bytes> {
        // Much at once would push out what is read again.
        let is_much = read.iter().map(Bytes::len).sum::<usize>() as u64 > 2 * PART;
        let mut unneeded = Vec::new();
        for (Request { bytes, before, is_part }, read) in requests.iter().zip(read) {
            let numbers = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
            if *is_part {
                let part = Part { start: bytes.start, bytes: read };
                found.extend(numbers.map(|number| (number, part.clone())));
                let other = kept.parts.push((self.id, bytes.start / PART), part);
                unneeded.extend(other.map(|(_, part)| part.bytes));
            } else {
                for (number, block) in numbers.zip(read.chunks(to_usize(BLOCK))) {
                    let bytes = Bytes::copy_from_slice(block);
                    let block = Part { start: number * BLOCK, bytes };
                    if !is_much {
                        kept.blocks.put((self.id, number), block.clone());
                    }
                    found.insert(number, block);
                }
                unneeded.push(read);
            }
            let on_end = before + (bytes.end - bytes.start);
            kept.ends.pop(&(self.id, bytes.start));
            // Where the announced ends its reader does.
            if !is_part || bytes.end % PART == 0 || bytes.end == self.object.len {
                kept.ends.put((self.id, bytes.end), on_end);
            }
            if bytes.end == self.object.len
                && let Some((next, _)) = self.listing.behind(&self.path).next()
            {
                kept.ends.put((*next, 0), on_end);
            }
        }
        unneeded
    }

    fn part(&self, position: u64, len: usize) -> Range<u64> {
        let end = position.saturating_add(len as u64).min(self.object.len);
        position.min(end)..end
    }
}

/// Copies the bytes from `position` on; `buffer` ends before the blocks do.
fn copy(blocks: &Found, position: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = position + filled as u64;
        let block = blocks.get(&(at / BLOCK)).and_then(|part| part.block(at / BLOCK));
        let block = block.unwrap_or_default();
        let Some(bytes) = block.get(to_usize(at % BLOCK)..).filter(|b| !b.is_empty()) else {
            return Err(io::Error::other("expected the bytes asked for, found fewer"));
        };
        let to = buffer.get_mut(filled..).unwrap_or_default();
        let count = bytes.len().min(to.len());
        to[..count].copy_from_slice(&bytes[..count]);
        filled += count;
    }
    Ok(())
}

impl StorageFile for RemoteFile {
    fn stat(&self) -> io::Result<FileStat> {
        let Object { len, modified_ms, .. } = *self.object;
        Ok(FileStat { len, inode: self.id, links: 1, modified_ms })
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let part = self.part(position, buffer.len());
        let len = to_usize(part.end - part.start);
        let found = self.blocks_of(&[part], true)?;
        copy(&found, position, buffer.get_mut(..len).unwrap_or_default())?;
        Ok(len)
    }

    fn shared_at(&self, position: u64, len: usize) -> io::Result<Option<Bytes>> {
        let wanted = self.part(position, len);
        let found = self.blocks_of(std::slice::from_ref(&wanted), true)?;
        let first = found.first_key_value().map(|(_, part)| part);
        let whole = first.filter(|part| wanted.end - part.start <= part.bytes.len() as u64);
        if let Some(part) = whole {
            return Ok(Some(part.bytes.slice(to_usize(wanted.start - part.start)..)));
        }
        let mut bytes = vec![0; to_usize(wanted.end - wanted.start)];
        copy(&found, wanted.start, &mut bytes)?;
        Ok(Some(bytes.into()))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn read_many(&self, places: &[(u64, usize)]) -> io::Result<Vec<Vec<u8>>> {
        let parts: Vec<_> = places.iter().map(|&(at, len)| self.part(at, len)).collect();
        let blocks = self.blocks_of(&parts, false)?;
        let read = parts.into_iter().map(|part| {
            let mut bytes = vec![0; to_usize(part.end - part.start)];
            copy(&blocks, part.start, &mut bytes).map(|()| bytes)
        });
        read.collect()
    }

    /// Zeros at the end are not read: looks ever further apart decide. Data between two looks, behind
    /// a whole block of zeros, may be overlooked.
    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        let len = self.object.len;
        if position >= len.min(self.empty_from.load(Ordering::Relaxed)) {
            return Ok(None);
        }
        let end = (position / BLOCK + 1).saturating_mul(BLOCK).min(len);
        let mut bytes = vec![0; to_usize(end - position)];
        let read = self.read_at(&mut bytes, position)?;
        if let Some(at) = bytes[..read].iter().position(|byte| *byte != 0) {
            return Ok(Some(position + at as u64));
        }
        if end == len || end - position < LOOK {
            return Ok((end < len).then_some(end));
        }
        let distances = iter::successors(Some(4 * BLOCK), |distance| distance.checked_mul(8));
        let looks = distances.map(|distance| position.saturating_add(distance));
        let last = end.max(len.saturating_sub(LOOK));
        let looks = looks.take_while(|look| *look < last && len > PART).chain([last]);
        let looks: Vec<_> = looks.map(|look| look..look.saturating_add(LOOK).min(len)).collect();
        let seen = self.objects.ranges(&self.object, &looks, &[])?;
        if seen.iter().any(|look| !are_zeros(look)) {
            return Ok(Some(end));
        }
        self.empty_from.fetch_min(position, Ordering::Relaxed);
        Ok(None)
    }

    fn locked(&self, _: Range<u64>) -> Option<Range<u64>> {
        None
    }

    fn lock_holder(&self) -> Option<i32> {
        None
    }
}
