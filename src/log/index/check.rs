//! Reads index files as a whole, and checks their consistency.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Deref;

use super::file::IndexFile;
use super::reader::{Head, IndexBytes, ReadBytes};
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::system::memory::Zeros;
use crate::format::bytes::i32_in;
use crate::format::index::{ENTRY_LEN, IndexEntry, IndexHeader, SLOT_LEN};
use crate::format::width::{clamp_u32, saturating_u32, to_usize};

const BLOCK_LEN: usize = 1 << 16;

const CHECK_CHUNK: usize = 32;

/// With an entry for more slots a table's pages are taken one by one.
const SPARSE: u32 = 512;
/// Slots whose chains are counted at a time, which bounds memory.
const SLOTS_COUNTED: u32 = 16 << 20;

/// Sequential reader of structures of one length.
#[derive(Debug)]
pub(crate) struct Records<F, const N: usize> {
    pub(crate) file: F,
    position: u64,
    left: u32,
    block: Vec<u8>,
    at: usize,
}

impl<F: Deref<Target = IndexFile>, const N: usize> Records<F, N> {
    pub(crate) fn new(file: F, position: u64, count: u32) -> Self {
        Self { file, position, left: count, block: Vec::new(), at: 0 }
    }

    /// Number of records that are not passed yet.
    #[inline]
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// Those of them that were read.
    #[inline]
    pub(crate) fn ahead(&self) -> &[[u8; N]] {
        self.block.as_chunks().0.get(self.at..).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn pass(&mut self, count: usize) {
        self.at += count;
        self.left = self.left.saturating_sub(saturating_u32(count));
    }

    #[inline]
    pub(crate) fn head(&mut self) -> Result<Option<[u8; N]>> {
        if self.ahead().is_empty() {
            self.fill()?;
        }
        Ok(self.ahead().first().copied())
    }

    pub(crate) fn next_block(&mut self) -> Result<Option<&[[u8; N]]>> {
        self.fill()?;
        let (records, _) = self.block.as_chunks();
        self.left = self.left.saturating_sub(saturating_u32(records.len()));
        Ok(Some(records).filter(|records| !records.is_empty()))
    }

    fn fill(&mut self) -> Result<()> {
        self.at = 0;
        if self.left == 0 {
            self.block = Vec::new();
            return Ok(());
        }
        self.block.resize(to_usize(self.left).min(BLOCK_LEN / N) * N, 0);
        let (file, path) = (self.file.file(), self.file.path());
        let read = file.read_at(&mut self.block, self.position).map_err(Error::io("read", path));
        self.block.truncate(*read.as_ref().unwrap_or(&0) / N * N);
        self.position = self.position.saturating_add(read? as u64);
        if self.block.is_empty() {
            let expected = format!("{} more of {N} bytes", self.left);
            let (at, kind) = (self.position, CorruptionKind::FileLength);
            return Err(Error::corrupt(path, at, kind, expected, "the end of the file"));
        }
        Ok(())
    }
}

impl<F: Deref<Target = IndexFile>, const N: usize> Iterator for Records<F, N> {
    type Item = Result<[u8; N]>;

    fn next(&mut self) -> Option<Self::Item> {
        let head = self.head().transpose()?;
        // Nothing follows an error.
        self.pass(if head.is_ok() { 1 } else { to_usize(self.left) });
        Some(head)
    }
}

/// Newest entry of each slot, as in the file; 0 for none. By default 20 MB, accessed at random.
#[derive(Debug)]
pub(crate) struct SlotTable {
    memory: Zeros,
}

impl SlotTable {
    pub(crate) fn new(slots: u32, entries: u32) -> Result<Self> {
        let len = to_usize(slots).saturating_mul(SLOT_LEN);
        let memory = Zeros::new(len).map_err(Error::io("take memory for", "an index file"))?;
        if entries > slots / SPARSE {
            memory.take_all();
        }
        Ok(Self { memory })
    }

    #[must_use]
    pub(crate) fn raw(&self) -> &[[u8; SLOT_LEN]] {
        self.memory.as_chunks().0
    }

    /// Sets a slot's newest entry and returns the previous one, if the slot exists.
    #[inline]
    pub(crate) fn put(&mut self, slot: usize, entry: i32) -> Option<i32> {
        let raw = self.memory.as_chunks_mut().0.get_mut(slot)?;
        let before = std::mem::replace(raw, entry.to_be_bytes());
        Some(i32_in::<0, SLOT_LEN>(&before))
    }

    #[inline]
    pub(crate) fn fetch(&self, slots: impl Iterator<Item = usize>) {
        let raw = self.raw();
        let visited = slots.filter_map(|slot| raw.get(slot)).map(i32_in::<0, SLOT_LEN>);
        black_box(visited.fold(0, |all, slot| all | slot));
    }
}

impl IndexFile {
    /// All entries that the header counts now, oldest first.
    pub fn entries(&self) -> Result<impl Iterator<Item = Result<(u32, IndexEntry)>>> {
        let entries = self.records_before(self.head()?.count);
        Ok(entries.zip(1_u32..).map(|(raw, number)| Ok((number, IndexEntry::decode(&raw?)))))
    }

    /// Reads `count` entries from `number` on.
    pub fn entries_from(&self, number: u32, count: u32) -> Result<Vec<IndexEntry>> {
        Records::<_, ENTRY_LEN>::new(self, self.layout().entry_position(number), count)
            .map(|raw| Ok(IndexEntry::decode(&raw?)))
            .collect()
    }

    fn records_before(&self, count: u32) -> Records<&Self, ENTRY_LEN> {
        Records::new(self, self.layout().entry_position(1), count.saturating_sub(1))
    }

    /// Used slots with their newest entries, in order.
    pub fn slots(&self) -> impl Iterator<Item = Result<(u32, i32)>> {
        let first = self.layout().slot_position(0);
        Records::<_, SLOT_LEN>::new(self, first, self.layout().slots())
            .zip(0_u32..)
            .map(|(raw, slot)| Ok((slot, i32_in::<0, SLOT_LEN>(&raw?))))
            .filter(|slot| !matches!(slot, Ok((_, 0))))
    }

    fn entry_now(&self, number: u32) -> Result<IndexEntry> {
        let mut bytes = ReadBytes::new(&**self.file(), self.path());
        Ok(IndexEntry::decode(&bytes.fresh(self.layout().entry_position(number))?))
    }

    /// Number of the first entry at or behind `physical_offset`, or the count. Entries have the
    /// order of their records.
    pub fn first_entry_from(&self, physical_offset: i64) -> Result<u32> {
        let (mut low, mut high) = (1, self.head()?.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry_now(middle)?.physical_offset < physical_offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    pub(crate) fn physical_offset_of(&self, number: u32) -> Result<i64> {
        Ok(self.entry_now(number)?.physical_offset)
    }

    /// Number of slots for each chain length above 0. Counts entries by hash in one pass, so broken
    /// chains count as whole.
    pub fn chain_lengths(&self) -> Result<BTreeMap<u32, u32>> {
        let (mut lengths, mut first) = (BTreeMap::new(), 0);
        while first < self.layout().slots() {
            let window = SLOTS_COUNTED.min(self.layout().slots() - first);
            for length in self.entries_of(first, window)?.into_iter().filter(|length| *length > 0) {
                *lengths.entry(length).or_insert(0_u32) += 1;
            }
            first += window;
        }
        Ok(lengths)
    }

    fn entries_of(&self, first: u32, slots: u32) -> Result<Vec<u32>> {
        let mut counts = vec![0_u32; slots as usize];
        let mut entries = self.records_before(self.head()?.count);
        while let Some(block) = entries.next_block()? {
            for raw in block {
                let slot = self.layout().slot_of(IndexEntry::decode(raw).key_hash);
                let place = slot.checked_sub(first).map(to_usize);
                if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
                    *count += 1;
                }
            }
        }
        Ok(counts)
    }

    /// Checks header, slots and entries in one pass and returns the number of entries. In a valid
    /// file each entry links to the one that its slot named before; `report` gets everything else.
    /// Beside a running writer only entries counted at the start are judged.
    pub fn check(&self, report: &mut dyn FnMut(Corruption)) -> Result<u32> {
        let Head { header, count } = self.head()?;
        let layout = self.layout();
        let mut report = |offset: u64, kind, expected: String, found: String| {
            report(Corruption::new(self.path(), offset, kind, expected, found));
        };
        // After a clock was set back times are out of order in a valid file.
        if let Some((at, expected, found)) = header_fault(&header, false) {
            report(at, CorruptionKind::IndexHeader, expected.to_owned(), found);
        }
        let mut newest = SlotTable::new(layout.slots(), count)?;
        let (mut first, mut last) = (None, i64::MIN);
        let mut number: u32 = 0;
        let mut entries = self.records_before(count);
        while let Some(block) = entries.next_block()? {
            first =
                first.or_else(|| block.first().map(|raw| IndexEntry::decode(raw).physical_offset));
            for chunk in block.chunks(CHECK_CHUNK) {
                let mut slots = [0; CHECK_CHUNK];
                for (slot, raw) in slots.iter_mut().zip(chunk) {
                    let entry = IndexEntry::decode(raw);
                    *slot = to_usize(layout.slot_of(entry.key_hash));
                }
                let slots = slots.get(..chunk.len()).unwrap_or_default();
                newest.fetch(slots.iter().copied());
                for (raw, &slot) in chunk.iter().zip(slots) {
                    number += 1;
                    let entry = IndexEntry::decode(raw);
                    let newest = newest.put(slot, number.cast_signed());
                    let Some(newest) = newest.map(i32::cast_unsigned) else { continue };
                    if entry.key_hash < 0
                        || entry.seconds < 0
                        || entry.physical_offset < last
                        || clamp_u32(entry.prev_entry) != newest
                    {
                        let at = layout.entry_position(number);
                        report_entry(&mut report, at, &entry, last, newest);
                    }
                    last = entry.physical_offset;
                }
            }
        }
        if let Some(first) = first {
            let written = (header.begin_physical_offset, header.end_physical_offset);
            if written != (first, last) {
                let (expected, found) =
                    (format!("{first} to {last}"), format!("{} to {}", written.0, written.1));
                report(16, CorruptionKind::IndexHeader, expected, found);
            }
        }
        let mut slots = Records::<_, SLOT_LEN>::new(self, layout.slot_position(0), layout.slots());
        let mut expected = newest.raw();
        let mut first = 0;
        while let Some(block) = slots.next_block()? {
            let (of_block, more) = expected.split_at_checked(block.len()).unwrap_or_default();
            expected = more;
            if block != of_block {
                for ((slot, raw), newest) in (first..).zip(block).zip(of_block) {
                    let (value, newest) = (slot_value(raw), slot_value(newest));
                    if value == newest || (value >= count && value < self.head()?.count) {
                        continue;
                    }
                    let (expected, found) = (format!("entry {newest}"), format!("entry {value}"));
                    report(layout.slot_position(slot), CorruptionKind::IndexSlot, expected, found);
                }
            }
            first += saturating_u32(block.len());
        }
        Ok(count.saturating_sub(1))
    }
}

#[inline]
fn slot_value(raw: &[u8; SLOT_LEN]) -> u32 {
    clamp_u32(i32_in::<0, SLOT_LEN>(raw))
}

/// Reports what is wrong with the entry at byte `at`, after one of offset `before`; its slot named
/// `newest`.
#[cold]
fn report_entry(
    report: &mut dyn FnMut(u64, CorruptionKind, String, String),
    at: u64,
    entry: &IndexEntry,
    before: i64,
    newest: u32,
) {
    if entry.key_hash < 0 || entry.seconds < 0 {
        let found = format!("hash {}, seconds {}", entry.key_hash, entry.seconds);
        report(at, CorruptionKind::IndexEntry, "hash and seconds of 0 or more".into(), found);
    }
    if before > entry.physical_offset {
        let (expected, found) =
            (format!("an offset of {before} or more"), entry.physical_offset.to_string());
        report(at.saturating_add(4), CorruptionKind::IndexEntry, expected, found);
    }
    if clamp_u32(entry.prev_entry) != newest {
        let (expected, found) = (format!("entry {newest}"), format!("entry {}", entry.prev_entry));
        report(at.saturating_add(16), CorruptionKind::IndexChain, expected, found);
    }
}

pub(crate) fn header_fault(
    header: &IndexHeader,
    times_in_order: bool,
) -> Option<(u64, &'static str, String)> {
    let IndexHeader { begin_timestamp_ms: begin, end_timestamp_ms: end, .. } = *header;
    if begin < 0 || end < 0 || (times_in_order && end < begin) {
        return Some((0, "times of 0 or more, in order", format!("{begin} to {end}")));
    }
    let IndexHeader { begin_physical_offset: begin, end_physical_offset: end, .. } = *header;
    (begin > end).then(|| (16, "physical offsets in order", format!("{begin} to {end}")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files::Os;
    use crate::format::index::IndexLayout;
    use crate::log::index::file::{IndexOpen, IndexPut};
    use crate::log::index::layout::tests::file;

    #[test]
    fn entries_and_slots_of_more_than_a_block_are_listed_in_order() {
        let (_dir, path) = file(40_000, 10_000, 9_000);
        let layout = IndexLayout::new(40_000, 10_000).unwrap();
        let file = IndexFile::open(&Os, &path, layout, IndexOpen::Read).unwrap();
        let entries: Vec<_> = file.entries().unwrap().map(Result::unwrap).collect();
        assert_eq!(entries.len(), 9_000);
        assert!(entries.iter().zip(1_i64..).all(|((number, entry), expected)| {
            i64::from(*number) == expected && entry.physical_offset == (expected - 1) * 100
        }));
        let slots: Vec<_> = file.slots().map(Result::unwrap).collect();
        assert!(slots.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(slots.len(), 9_000);
        assert_eq!(file.check(&mut |corruption| panic!("{corruption}")).unwrap(), 9_000);
    }

    #[test]
    fn listing_a_file_cut_short_ends_with_an_error() {
        let (_dir, path) = file(25, 10_000, 9_000);
        let layout = IndexLayout::new(25, 10_000).unwrap();
        let file = IndexFile::open(&Os, &path, layout, IndexOpen::Read).unwrap();
        let cut = layout.entry_position(5_000) + 7;
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let entries: Vec<_> = file.entries().unwrap().collect();
        assert_eq!(entries.iter().filter(|entry| entry.is_ok()).count(), 4_999);
        assert!(matches!(entries.last(), Some(Err(Error::Corrupt(_)))));
        assert_eq!(entries.len(), 5_000);
        assert!(file.check(&mut |_| ()).is_err());
    }

    #[test]
    fn the_first_entry_from_an_offset_is_found() {
        let (_dir, path) = file(25, 100, 30);
        let layout = IndexLayout::new(25, 100).unwrap();
        let file = IndexFile::open(&Os, &path, layout, IndexOpen::Read).unwrap();
        for (offset, entry) in [(i64::MIN, 1), (0, 1), (1, 2), (2_900, 30), (2_901, 31)] {
            assert_eq!(file.first_entry_from(offset).unwrap(), entry, "{offset}");
        }
    }

    #[test]
    fn slots_are_counted_by_the_length_of_their_chains() {
        let dir = tempfile::tempdir().unwrap();
        let layout = IndexLayout::new(7, 200_000).unwrap();
        let path = dir.path().join("20261121073513325");
        let mut file = IndexFile::create(&Os, &path, layout, None).unwrap();
        assert_eq!(file.chain_lengths().unwrap(), BTreeMap::new());
        let many = 100_003;
        let hashes = [6, 5, 3, 3 + 7, 5].into_iter().chain((0..many).map(|_| 2));
        let puts: Vec<_> = hashes
            .map(|key_hash| IndexPut { key_hash, physical_offset: 0, store_timestamp_ms: 0 })
            .collect();
        file.put_many(&puts[..5]).unwrap();
        assert_eq!(file.chain_lengths().unwrap(), BTreeMap::from([(1, 1), (2, 2)]));
        file.put_many(&puts[5..]).unwrap();
        let lengths = BTreeMap::from([(1, 1), (2, 2), (many, 1)]);
        assert_eq!(file.chain_lengths().unwrap(), lengths);
        assert_eq!(file.entries_of(5, 2).unwrap(), [2, 1]);

        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10_000).unwrap();
        let Err(Error::Corrupt(found)) = file.chain_lengths() else { panic!("a file cut short") };
        assert_eq!((found.kind, found.offset), (CorruptionKind::FileLength, 10_000));
    }

    #[test]
    fn a_slot_names_its_newest_entry() {
        for entries in [1, 1_000_000] {
            let mut table = SlotTable::new(100_000, entries).unwrap();
            assert_eq!(table.put(99_999, 7), Some(0));
            assert_eq!(table.put(99_999, 8), Some(7));
            assert_eq!(table.put(100_000, 1), None);
            table.fetch([0, 99_999, 100_000].into_iter());
            assert_eq!(table.raw().len(), 100_000);
            assert_eq!(table.raw().last(), Some(&[0, 0, 0, 8]));
        }
    }
}
