//! Many look-ups in one index file at once: while one waits for memory, others proceed.

use super::chain::ChainWalk;
use super::file::{IndexFile, with_reader};
use super::reader::{IndexBytes, IndexReader};
use super::rocketmq::Wanted;
use crate::error::{Corruption, Result};
use crate::format::index::IndexLayout;

/// Concurrent look-ups: enough to hide memory latency.
const LOOKUPS: usize = 16;

impl IndexFile {
    /// [`IndexFile::select`] for many hashes, `max` offsets each, one answer each in `out`. Through
    /// a map several times as fast as one by one.
    pub fn select_many(
        &self,
        key_hashes: &[i32],
        begin_ms: i64,
        end_ms: i64,
        max: usize,
        out: &mut OffsetLists,
        findings: &mut Vec<Corruption>,
    ) -> Result<()> {
        let wanted = Wanted { key_hash: 0, begin_ms, end_ms, max };
        with_reader!(self, &mut self.head()?, findings, |reader| {
            select_many(reader, key_hashes, &wanted, out)
        })
    }
}

/// Answers of several look-ups; reusable, keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct OffsetLists {
    /// Offsets of all answers, in each the newest first.
    pub offsets: Vec<i64>,
    /// End of each answer.
    pub ends: Vec<usize>,
    scratch: Scratch,
}

impl OffsetLists {
    /// With memory for so many look-ups of one offset each.
    #[must_use]
    pub fn with_capacity(look_ups: usize) -> Self {
        Self {
            offsets: Vec::with_capacity(look_ups),
            ends: Vec::with_capacity(look_ups),
            scratch: Scratch::default(),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Scratch {
    lookups: Vec<Lookup>,
    found: Vec<i64>,
    places: Vec<(usize, usize)>,
}

#[derive(Clone, Debug, Default)]
struct Lookup {
    query: usize,
    key_hash: i32,
    slot: u32,
    walk: Option<ChainWalk>,
    found: Vec<i64>,
}

impl Lookup {
    #[inline]
    fn load<B: IndexBytes>(&mut self, bytes: &B, layout: &IndexLayout, query: usize, hash: i32) {
        self.query = query;
        self.key_hash = hash;
        self.slot = layout.slot_of(hash);
        self.walk = None;
        self.found.clear();
        bytes.prefetch(layout.slot_position(self.slot));
    }

    /// Reads what was prefetched and prefetches the next; returns whether there is one.
    #[inline]
    fn advance<B: IndexBytes>(
        &mut self,
        reader: &mut IndexReader<'_, B>,
        wanted: &Wanted,
    ) -> Result<bool> {
        let walk = match &mut self.walk {
            Some(walk) => {
                let Some(entry) = reader.step(walk)? else { return Ok(false) };
                let wanted = Wanted { key_hash: self.key_hash, ..*wanted };
                let begin_ms = reader.head.header.begin_timestamp_ms;
                if !wanted.take(begin_ms, &entry, &mut self.found) {
                    return Ok(false);
                }
                walk
            }
            none => none.insert(reader.start(self.slot)?),
        };
        if walk.is_at_end() {
            return Ok(false);
        }
        walk.prefetch(reader.bytes, reader.layout);
        Ok(true)
    }
}

/// Runs [`LOOKUPS`] look-ups at once (`index_select` in `benches/index.rs`). The answers equal those
/// of [`IndexFile::select`], each with its own maximum.
fn select_many<B: IndexBytes>(
    reader: &mut IndexReader<'_, B>,
    key_hashes: &[i32],
    wanted: &Wanted,
    out: &mut OffsetLists,
) -> Result<()> {
    let OffsetLists { offsets, ends, scratch: Scratch { lookups, found, places } } = out;
    found.clear();
    places.clear();
    places.resize(key_hashes.len(), (0, 0));
    lookups.resize_with(LOOKUPS, Lookup::default);
    let mut queries = key_hashes.iter().copied().enumerate();
    let mut running = 0;
    if wanted.max > 0 {
        for (lookup, (query, hash)) in lookups.iter_mut().zip(queries.by_ref()) {
            lookup.load(reader.bytes, reader.layout, query, hash);
            running += 1;
        }
    }
    while running > 0 {
        let mut number = 0;
        while let Some(lookup) = lookups.get_mut(number).filter(|_| number < running) {
            if lookup.advance(reader, wanted)? {
                number += 1;
                continue;
            }
            if let Some(place) = places.get_mut(lookup.query) {
                *place = (found.len(), lookup.found.len());
                found.extend_from_slice(&lookup.found);
            }
            match queries.next() {
                Some((query, hash)) => {
                    lookup.load(reader.bytes, reader.layout, query, hash);
                    number += 1;
                }
                None => {
                    running -= 1;
                    lookups.swap(number, running);
                }
            }
        }
    }
    // Walks end in any order.
    for (start, len) in places.drain(..) {
        offsets.extend_from_slice(found.get(start..start + len).unwrap_or_default());
        ends.push(offsets.len());
    }
    Ok(())
}
