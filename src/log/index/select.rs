//! Look-ups in one index file, single or many at once
//! (`org.apache.rocketmq.store.index.IndexFile#selectPhyOffset`).

use super::chain::{ChainWalk, Head, IndexBytes, MapBytes, ReadBytes};

use super::file::{Bytes, IndexFile};
use super::lookup::{Around, Exact, Lookup, names_an_entry, wrong_slot};
use crate::error::{Corruption, Error, Result};
use crate::format::index::{IndexEntry, IndexLayout};

/// Concurrent look-ups of [`IndexFile::select_many`]: enough to hide memory latency.
const LANES: usize = 16;

/// Runs an expression with a file's bytes and whether a writer may be active.
macro_rules! with_bytes {
    ($file:expr, |$bytes:ident, $live:ident| $body:expr) => {
        match &$file.bytes {
            Bytes::Written(writer) => {
                let ($bytes, $live) = (&mut MapBytes(&writer.map), false);
                $body
            }
            Bytes::Mapped(map) => {
                let ($bytes, $live) = (&mut MapBytes(map), true);
                $body
            }
            Bytes::Read(file) => {
                let ($bytes, $live) = (&mut ReadBytes::new(&**file, $file.path()), true);
                $body
            }
        }
    };
}

impl IndexFile {
    /// Appends the offsets under a hash to `out`, newest first, up to `max` in all.
    ///
    /// As in RocketMQ times are whole seconds since the file's begin, and the first entry before
    /// `begin_ms` ends the search: results may be up to 999 ms after `end_ms`, and messages up to
    /// 999 ms after `begin_ms` may be missing. Damage ends the search and goes to `findings`.
    #[inline]
    pub fn select(
        &self,
        key_hash: i32,
        begin_ms: i64,
        end_ms: i64,
        max: usize,
        out: &mut Vec<i64>,
        findings: &mut Vec<Corruption>,
    ) -> Result<()> {
        // Fetches the slot while the system returns the length.
        self.prefetch_slot(self.layout().slot_of(key_hash));
        self.batch()?.select(key_hash, begin_ms, end_ms, max, out, findings)
    }

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
        self.check_length()?;
        let wanted = Wanted { key_hash: 0, begin_ms, end_ms, max };
        with_bytes!(self, |bytes, live| {
            let layout = self.layout();
            let head = &mut Head::read(bytes, layout)?;
            select_many(Search { bytes, layout, head, live, findings }, key_hashes, &wanted, out)
        })
    }

    /// Look-ups that share one length check. For short loops: if a process shortens the file
    /// meanwhile, which RocketMQ and this library never do, reads through a map raise a signal.
    #[inline]
    pub fn batch(&self) -> Result<IndexBatch<'_>> {
        self.check_length()?;
        Ok(IndexBatch::new(self))
    }

    /// Entries of a hash's slot with their numbers, newest first, at most `max`, including other
    /// hashes.
    pub fn chain(
        &self,
        key_hash: i32,
        max: usize,
        findings: &mut Vec<Corruption>,
    ) -> Result<Vec<(u32, IndexEntry)>> {
        let (mut walk, _) = self.walk(key_hash, findings)?;
        let mut chain = Vec::new();
        self.check_length()?;
        with_bytes!(self, |bytes, _live| {
            let mut lookup = Lookup { bytes, layout: self.layout(), exact: None, findings };
            lookup.run(&mut walk, |number, entry, _| {
                let wanted = chain.len() < max;
                if wanted {
                    chain.push((number, *entry));
                }
                wanted
            })
        })?;
        Ok(chain)
    }

    /// Start of a hash's chain and the header. Checks against the file's last entries that the slot
    /// names its newest.
    pub(crate) fn walk(
        &self,
        key_hash: i32,
        findings: &mut Vec<Corruption>,
    ) -> Result<(ChainWalk, Head)> {
        let mut head = self.head()?;
        let slot = self.layout().slot_of(key_hash);
        // Entries counted before the slot was read are in it.
        let count = head.count;
        let walk = with_bytes!(self, |bytes, live| {
            let walk = ChainWalk::start(bytes, self.layout(), &mut head, slot, live, findings)?;
            let witnesses = self.witnesses.at(bytes, self.layout(), count)?;
            if witnesses.contradict(slot, walk)
                || (walk.is_at_end() && names_an_entry(bytes, self.layout(), slot)?)
            {
                findings.push(wrong_slot(self.path(), self.layout(), slot, walk));
            }
            Ok::<_, Error>(walk)
        })?;
        Ok((walk, head))
    }

    /// Continues an exact walk: see [`Lookup::run`].
    pub(crate) fn go_on(
        &self,
        walk: &mut ChainWalk,
        head: &Head,
        slot: u32,
        findings: &mut Vec<Corruption>,
        take: impl FnMut(u32, &IndexEntry, Around) -> bool,
    ) -> Result<()> {
        self.check_length()?;
        let layout = self.layout();
        with_bytes!(self, |bytes, _live| {
            let witnesses = self.witnesses.at(bytes, layout, head.count)?;
            let exact = Some(Exact { head, slot, witnesses });
            Lookup { bytes, layout, exact, findings }.run(walk, take)
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct IndexBatch<'a> {
    file: &'a IndexFile,
}

impl<'a> IndexBatch<'a> {
    /// For a file whose length was checked.
    #[inline]
    pub(crate) fn new(file: &'a IndexFile) -> Self {
        Self { file }
    }

    #[inline]
    pub fn select(
        &self,
        key_hash: i32,
        begin_ms: i64,
        end_ms: i64,
        max: usize,
        out: &mut Vec<i64>,
        findings: &mut Vec<Corruption>,
    ) -> Result<()> {
        let mut head = self.head()?;
        self.select_under(&mut head, &Wanted { key_hash, begin_ms, end_ms, max }, out, findings)
    }

    #[inline]
    pub(crate) fn head(&self) -> Result<Head> {
        with_bytes!(self.file, |bytes, _live| Head::read(bytes, self.file.layout()))
    }

    #[inline]
    pub(crate) fn select_under(
        &self,
        head: &mut Head,
        wanted: &Wanted,
        out: &mut Vec<i64>,
        findings: &mut Vec<Corruption>,
    ) -> Result<()> {
        with_bytes!(self.file, |bytes, live| {
            let layout = self.file.layout();
            select(Search { bytes, layout, head, live, findings }, wanted, out)
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) key_hash: i32,
    pub(crate) begin_ms: i64,
    pub(crate) end_ms: i64,
    pub(crate) max: usize,
}

impl Wanted {
    /// Takes one entry; returns whether the chain may hold more.
    #[inline]
    pub(crate) fn take(&self, file_begin_ms: i64, entry: &IndexEntry, out: &mut Vec<i64>) -> bool {
        let time_ms = file_begin_ms.saturating_add(i64::from(entry.seconds) * 1000);
        if entry.key_hash == self.key_hash && self.begin_ms <= time_ms && time_ms <= self.end_ms {
            out.push(entry.physical_offset);
        }
        time_ms >= self.begin_ms
    }
}

struct Search<'a, B> {
    bytes: &'a mut B,
    layout: &'a IndexLayout,
    head: &'a mut Head,
    live: bool,
    findings: &'a mut Vec<Corruption>,
}

impl<B: IndexBytes> Search<'_, B> {
    #[inline]
    fn start(&mut self, slot: u32) -> Result<ChainWalk> {
        ChainWalk::start(self.bytes, self.layout, self.head, slot, self.live, self.findings)
    }
}

/// Appends a key's offsets to `out`, newest first, up to `wanted.max`.
#[inline]
fn select<B: IndexBytes>(
    mut search: Search<'_, B>,
    wanted: &Wanted,
    out: &mut Vec<i64>,
) -> Result<()> {
    let mut walk = search.start(search.layout.slot_of(wanted.key_hash))?;
    if out.len() >= wanted.max {
        return Ok(());
    }
    let begin_ms = search.head.header.begin_timestamp_ms;
    let Search { bytes, layout, findings, .. } = search;
    Lookup { bytes, layout, exact: None, findings }
        .run(&mut walk, |_, entry, _| wanted.take(begin_ms, entry, out) && out.len() < wanted.max)
}

/// Answers of several look-ups; reusable, keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct OffsetLists {
    offsets: Vec<i64>,
    ends: Vec<usize>,
    scratch: Scratch,
}

impl OffsetLists {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With memory for so many look-ups of one offset each.
    #[must_use]
    pub fn with_capacity(look_ups: usize) -> Self {
        Self {
            offsets: Vec::with_capacity(look_ups),
            ends: Vec::with_capacity(look_ups),
            scratch: Scratch::default(),
        }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Offsets of look-up `number`, newest first.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&[i64]> {
        let end = *self.ends.get(number)?;
        let start = match number.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.offsets.get(start..end)
    }

    pub fn iter(&self) -> impl Iterator<Item = &[i64]> {
        (0..self.len()).filter_map(|number| self.get(number))
    }

    #[must_use]
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// End of each answer in [`OffsetLists::offsets`].
    #[must_use]
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// All offsets, and the end of each answer.
    #[must_use]
    pub fn into_parts(self) -> (Vec<i64>, Vec<usize>) {
        (self.offsets, self.ends)
    }

    pub fn clear(&mut self) {
        self.offsets.clear();
        self.ends.clear();
    }
}

#[derive(Clone, Debug, Default)]
struct Scratch {
    lanes: Vec<Lane>,
    /// In the order in which walks ended.
    found: Vec<i64>,
    /// Start and length of each answer in `found`.
    places: Vec<(usize, usize)>,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    query: usize,
    key_hash: i32,
    slot: u32,
    /// `None` before the slot is read.
    walk: Option<ChainWalk>,
    found: Vec<i64>,
}

impl Lane {
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
        search: &mut Search<'_, B>,
        wanted: &Wanted,
    ) -> Result<bool> {
        let layout = search.layout;
        let walk = match &mut self.walk {
            Some(walk) => {
                let step = walk.step(search.bytes, layout, search.findings)?;
                let Some((_, entry)) = step else { return Ok(false) };
                let wanted = Wanted { key_hash: self.key_hash, ..*wanted };
                let begin_ms = search.head.header.begin_timestamp_ms;
                if !wanted.take(begin_ms, &entry, &mut self.found) || self.found.len() >= wanted.max
                {
                    return Ok(false);
                }
                walk
            }
            none => none.insert(search.start(self.slot)?),
        };
        if walk.is_at_end() {
            return Ok(false);
        }
        walk.prefetch(search.bytes, layout);
        Ok(true)
    }
}

/// Runs [`LANES`] look-ups at once: while one waits for memory, others proceed (`index_select` in
/// `benches/index.rs`). The answers equal those of [`select`], each with its own maximum.
fn select_many<B: IndexBytes>(
    mut search: Search<'_, B>,
    key_hashes: &[i32],
    wanted: &Wanted,
    out: &mut OffsetLists,
) -> Result<()> {
    let OffsetLists { offsets, ends, scratch: Scratch { lanes, found, places } } = out;
    found.clear();
    places.clear();
    places.resize(key_hashes.len(), (0, 0));
    lanes.resize_with(LANES, Lane::default);
    let mut queries = key_hashes.iter().copied().enumerate();
    let mut running = 0;
    if wanted.max > 0 {
        for (lane, (query, hash)) in lanes.iter_mut().zip(queries.by_ref()) {
            lane.load(search.bytes, search.layout, query, hash);
            running += 1;
        }
    }
    while running > 0 {
        let mut number = 0;
        while let Some(lane) = lanes.get_mut(number).filter(|_| number < running) {
            if lane.advance(&mut search, wanted)? {
                number += 1;
                continue;
            }
            if let Some(place) = places.get_mut(lane.query) {
                *place = (found.len(), lane.found.len());
                found.extend_from_slice(&lane.found);
            }
            match queries.next() {
                Some((query, hash)) => {
                    lane.load(search.bytes, search.layout, query, hash);
                    number += 1;
                }
                None => {
                    running -= 1;
                    lanes.swap(number, running);
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
