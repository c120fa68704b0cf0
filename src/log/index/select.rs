//! Look-ups in one index file (`org.apache.rocketmq.store.index.IndexFile#selectPhyOffset`), one by
//! one or many at once.

use super::chain::{Head, IndexBytes, MapBytes, ReadBytes, Walk};

use super::file::{Bytes, IndexFile};
use super::lookup::{Around, Exact, Lookup, names_an_entry, wrong_slot};
use crate::error::{Corruption, Error, Result};
use crate::format::index::{IndexEntry, IndexLayout};

/// How many look-ups [`IndexFile::select_many`] keeps in flight: enough to hide the memory's latency,
/// few enough for the processor to keep count of.
const LANES: usize = 16;

/// Runs an expression with the bytes of a file, of whatever kind, and with whether another one may be
/// writing to them.
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
    /// The physical offsets under a key hash, newest first, appended to `out` until that holds `max`.
    ///
    /// As in RocketMQ times count in whole seconds since the file's begin, and the first entry before
    /// `begin_ms` ends the search: a message up to 999 ms after `end_ms` may be among those found, and
    /// one up to 999 ms after `begin_ms` missing. Unsound slots and links end the search and are added
    /// to `findings`.
    ///
    /// # Errors
    /// As [`IndexFile::header`].
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
        // The slot comes in from memory while the system is asked for the file's length.
        self.prefetch_slot(self.layout().slot_of(key_hash));
        self.batch()?.select(key_hash, begin_ms, end_ms, max, out, findings)
    }

    /// [`IndexFile::select`] for many key hashes, at most `max` offsets each; one answer for each is
    /// added to `out`. Through a map this is several times as fast as one by one.
    ///
    /// # Errors
    /// As [`IndexFile::header`]; no answer is added then.
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

    /// Look-ups that share one question to the system, whether the file still has its length. For
    /// short tight loops: while a batch is in use, a process that shortens the file, which RocketMQ
    /// and this library never do, turns reads through a map into a signal.
    ///
    /// # Errors
    /// As [`IndexFile::header`].
    #[inline]
    pub fn batch(&self) -> Result<IndexBatch<'_>> {
        self.check_length()?;
        Ok(IndexBatch::new(self))
    }

    /// The entries of a hash's slot with their numbers, newest first, at most `max`; other hashes
    /// that fall into the slot are among them.
    ///
    /// # Errors
    /// As [`IndexFile::header`].
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

    /// The beginning of a hash's chain, and the header it was read under. That the slot names the newest
    /// of its entries is held against the last entries of the file.
    pub(crate) fn walk(
        &self,
        key_hash: i32,
        findings: &mut Vec<Corruption>,
    ) -> Result<(Walk, Head)> {
        let mut head = self.head()?;
        let slot = self.layout().slot_of(key_hash);
        // Entries that were counted before the slot was read are in it.
        let count = head.count;
        let walk = with_bytes!(self, |bytes, live| {
            let walk = Walk::start(bytes, self.layout(), &mut head, slot, live, findings)?;
            let witnesses = self.witnesses.at(bytes, self.layout(), count)?;
            if witnesses.contradict(self.layout(), slot, walk)
                || (walk.is_at_end() && names_an_entry(bytes, self.layout(), slot)?)
            {
                findings.push(wrong_slot(self.path(), self.layout(), slot, walk));
            }
            Ok::<_, Error>(walk)
        })?;
        Ok((walk, head))
    }

    /// Goes on with a walk under that header, exactly: see [`Lookup::run`].
    pub(crate) fn go_on(
        &self,
        walk: &mut Walk,
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

/// See [`IndexFile::batch`].
#[derive(Clone, Copy, Debug)]
pub struct IndexBatch<'a> {
    file: &'a IndexFile,
}

impl<'a> IndexBatch<'a> {
    /// Of a file that was asked for its length.
    #[inline]
    pub(crate) fn new(file: &'a IndexFile) -> Self {
        Self { file }
    }

    /// As [`IndexFile::select`].
    ///
    /// # Errors
    /// As [`IndexFile::header`].
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

    /// The header as it is now.
    #[inline]
    pub(crate) fn head(&self) -> Result<Head> {
        with_bytes!(self.file, |bytes, _live| Head::read(bytes, self.file.layout()))
    }

    /// A look-up under a header that was read before.
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

/// What a look-up takes from a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Of topic and key, never negative.
    pub(crate) key_hash: i32,
    /// First store time that counts.
    pub(crate) begin_ms: i64,
    /// Last store time that counts.
    pub(crate) end_ms: i64,
    /// How many offsets may be found in all.
    pub(crate) max: usize,
}

impl Wanted {
    /// Takes one entry; whether the chain may hold more.
    #[inline]
    pub(crate) fn take(&self, file_begin_ms: i64, entry: &IndexEntry, out: &mut Vec<i64>) -> bool {
        let time_ms = file_begin_ms.saturating_add(i64::from(entry.seconds) * 1000);
        if entry.key_hash == self.key_hash && self.begin_ms <= time_ms && time_ms <= self.end_ms {
            out.push(entry.physical_offset);
        }
        time_ms >= self.begin_ms
    }
}

/// One file while look-ups go on in it.
struct Search<'a, B> {
    bytes: &'a mut B,
    layout: &'a IndexLayout,
    head: &'a mut Head,
    live: bool,
    findings: &'a mut Vec<Corruption>,
}

impl<B: IndexBytes> Search<'_, B> {
    #[inline]
    fn start(&mut self, slot: u32) -> Result<Walk> {
        Walk::start(self.bytes, self.layout, self.head, slot, self.live, self.findings)
    }
}

/// The physical offsets of a key, newest first, appended to `out` until that holds `wanted.max`.
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

/// The answers to several look-ups, one after the other. To be used again: it keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct OffsetLists {
    offsets: Vec<i64>,
    ends: Vec<usize>,
    scratch: Scratch,
}

impl OffsetLists {
    /// No answers yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No answers yet, and memory for so many look-ups of one offset each.
    #[must_use]
    pub fn with_capacity(look_ups: usize) -> Self {
        Self {
            offsets: Vec::with_capacity(look_ups),
            ends: Vec::with_capacity(look_ups),
            scratch: Scratch::default(),
        }
    }

    /// How many look-ups were answered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The physical offsets that look-up `number` found, newest first.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&[i64]> {
        let end = *self.ends.get(number)?;
        let start = match number.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.offsets.get(start..end)
    }

    /// The answers in order.
    pub fn iter(&self) -> impl Iterator<Item = &[i64]> {
        (0..self.len()).filter_map(|number| self.get(number))
    }

    /// All offsets, answer after answer.
    #[must_use]
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// Where each answer ends in [`OffsetLists::offsets`].
    #[must_use]
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// All offsets, answer after answer, and where each answer ends among them.
    #[must_use]
    pub fn into_parts(self) -> (Vec<i64>, Vec<usize>) {
        (self.offsets, self.ends)
    }

    /// Forgets all answers and keeps the memory.
    pub fn clear(&mut self) {
        self.offsets.clear();
        self.ends.clear();
    }
}

/// What look-ups in flight have found so far.
#[derive(Clone, Debug, Default)]
struct Scratch {
    lanes: Vec<Lane>,
    /// Answers in the order in which walks ended.
    found: Vec<i64>,
    /// For each query the start and length of its answer in `found`.
    places: Vec<(usize, usize)>,
}

/// One look-up in flight.
#[derive(Clone, Debug, Default)]
struct Lane {
    query: usize,
    key_hash: i32,
    slot: u32,
    /// `None` before the slot was read.
    walk: Option<Walk>,
    found: Vec<i64>,
}

impl Lane {
    /// Begins with a query: its slot is on the way when the lane is next looked at.
    #[inline]
    fn load<B: IndexBytes>(&mut self, bytes: &B, layout: &IndexLayout, query: usize, hash: i32) {
        self.query = query;
        self.key_hash = hash;
        self.slot = layout.slot_of(hash);
        self.walk = None;
        self.found.clear();
        bytes.prefetch(layout.slot_position(self.slot));
    }

    /// Does the one read that was fetched ahead, and fetches the next; whether there is a next.
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

/// Many look-ups at once, [`LANES`] of them in flight: while one waits for memory, others go on. The
/// answers are those of [`select`], each with an own maximum. It has a loop of its own because it is
/// several times as fast (`index_select` in `benches/index.rs`).
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
