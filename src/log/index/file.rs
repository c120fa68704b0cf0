//! One index file: a hash table on disk from keys to physical offsets
//! (`org.apache.rocketmq.store.index.IndexFile`).
//!
//! A key is `topic#key`; only its hash is stored. Each slot names its newest entry, each entry the
//! next older one. `format::index` has the layout, `chain` the look-up.
//!
//! A file has one writer. Readers have their own handles, by map or positional reads, even beside
//! it or RocketMQ: an entry is written before its slot and never changes then, and the slot before
//! the count that covers it.

use std::hint::select_unpredictable;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::evidence::SampledSlots;
use super::reader::{Head, MapBytes, ReadBytes};
use crate::error::{CorruptionKind, Error, Result};
use crate::files::{
    Access, LARGEST_PAGE, MappedFile, Prefaulter, Storage, StorageFile, fill_holes, release_zeros,
};
use crate::format::bytes::i32_in;
use crate::format::index::{
    ENTRY_LEN, IndexEntry, IndexHeader, IndexLayout, SLOT_LEN, seconds_since,
};
use crate::format::width::{saturating_u32, to_usize};

/// Step in which disk space for entries is taken and pages are loaded: the preferred piece of the
/// page cache.
pub const RESERVE_STEP: usize = 2 << 20;
/// With an entry for fewer bytes of slots most of their pages are in use.
const SPARSE: u64 = 64 << 10;

/// Entries put before pages are prepared: a file of a few keys is not worth its slot table.
const UNPREPARED_ENTRIES: u32 = 4096;

/// Slots prefetched in a batch: enough to hide memory latency.
const PUT_AHEAD: usize = 32;

/// A key to put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexPut {
    /// [`key_hash`](crate::format::java::key_hash) of topic and key.
    pub key_hash: i32,
    /// The record's offset.
    pub physical_offset: i64,
    /// Store time, Unix milliseconds.
    pub store_timestamp_ms: i64,
}

/// Access to an index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexOpen {
    /// Writes through a map; one such handle for each file.
    Write,
    /// Reads through a map: fast, for files that nobody shortens, as neither RocketMQ nor this
    /// library does.
    ReadMapped,
    /// Positional reads: a truncated file gives an error.
    Read,
}

/// An open index file.
#[derive(Debug)]
pub struct IndexFile {
    path: PathBuf,
    layout: IndexLayout,
    pub(crate) bytes: Bytes,
    pub(crate) sampled: SampledSlots,
}

#[derive(Debug)]
pub(crate) enum Bytes {
    Written(Writer),
    Mapped(MappedFile),
    Read(Arc<dyn StorageFile>),
}

macro_rules! with_reader {
    ($file:expr, $head:expr, $findings:expr, |$reader:ident| $body:expr) => {{
        use $crate::log::index::file::{Bytes, Writer};
        use $crate::log::index::reader::{IndexReader, MapBytes, ReadBytes};
        let (layout, head, findings) = ($file.layout(), $head, $findings);
        match &$file.bytes {
            Bytes::Written(Writer { map, .. }) | Bytes::Mapped(map) => {
                let live = matches!($file.bytes, Bytes::Mapped(_));
                let bytes = &mut MapBytes(map);
                let $reader = &mut IndexReader { bytes, layout, head, live, findings };
                $body
            }
            Bytes::Read(file) => {
                let bytes = &mut ReadBytes::new(&**file, $file.path());
                let $reader = &mut IndexReader { bytes, layout, head, live: true, findings };
                $body
            }
        }
    }};
}
pub(crate) use with_reader;

/// A map, and the header, written through at each put.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) map: MappedFile,
    header: IndexHeader,
    /// Entries below this number have disk space; never above the layout's maximum.
    room_end: u32,
    is_prepared: bool,
}

impl IndexFile {
    /// Creates a file for writing. Disk space is taken for all slots at once, for entries in steps.
    ///
    /// `previous` is the header of the full file before it; this file begins with its end if above
    /// 0 (`IndexFile`'s constructor).
    pub fn create(
        storage: &dyn Storage,
        path: &Path,
        layout: IndexLayout,
        previous: Option<&IndexHeader>,
    ) -> Result<Self> {
        let made = Self::create_unnamed(storage, path, layout, previous)?;
        if let Some(dir) = path.parent() {
            let named = storage.sync_dir(dir).map_err(Error::flush(dir));
            // The caller needs the first error.
            named.inspect_err(|_| drop(storage.remove_file(path)))?;
        }
        Ok(made)
    }

    /// Creates a file whose name the caller makes durable later.
    pub(crate) fn create_unnamed(
        storage: &dyn Storage,
        path: &Path,
        layout: IndexLayout,
        previous: Option<&IndexHeader>,
    ) -> Result<Self> {
        let file = storage.create(path, layout.file_len()).map_err(Error::io("create", path))?;
        let fill = || {
            let mut map = MappedFile::map(path, file, Access::ReadWrite, RESERVE_STEP)?;
            map.reserve(position(layout.entry_position(0)))?;
            let mut header = IndexHeader::default();
            if let Some(previous) = previous {
                header = previous.next();
                // RocketMQ writes these fields one by one, and the count not before the first put or
                // flush.
                map.put_at(0, &IndexHeader { index_count: 0, ..header }.encode())?;
            }
            map.ahead().advance_to(position(layout.entry_position(1)));
            Ok(Self::with(path, layout, Bytes::Written(Writer::new(map, header))))
        };
        fill().inspect_err(|_| drop(storage.remove_file(path)))
    }

    fn with(path: &Path, layout: IndexLayout, bytes: Bytes) -> Self {
        Self { path: path.to_owned(), layout, bytes, sampled: SampledSlots::default() }
    }

    /// Opens a file of a known layout; see [`detect_layout`](super::layout::detect_layout).
    pub fn open(
        storage: &dyn Storage,
        path: &Path,
        layout: IndexLayout,
        how: IndexOpen,
    ) -> Result<Self> {
        let access = if how == IndexOpen::Write { Access::ReadWrite } else { Access::Read };
        let file = storage.open(path, access).map_err(Error::io("open", path))?;
        let len = file.stat().map_err(Error::io("stat", path))?.len;
        if len != layout.file_len() {
            return Err(wrong_length(path, &layout, len));
        }
        let head = Head::read(&mut ReadBytes::new(&*file, path), &layout)?;
        let bytes = match how {
            IndexOpen::Read => Bytes::Read(file),
            IndexOpen::ReadMapped => {
                Bytes::Mapped(MappedFile::map(path, file, Access::Read, RESERVE_STEP)?)
            }
            IndexOpen::Write => {
                let slots_end = position(layout.entry_position(0));
                fill_holes(&*file, path, 0..slots_end)?;
                let goes_on = position(layout.entry_position(head.count));
                // A page not checked with the slots.
                if goes_on >= slots_end.next_multiple_of(LARGEST_PAGE) {
                    fill_holes(&*file, path, goes_on..goes_on)?;
                }
                let mut map = MappedFile::map(path, file, Access::ReadWrite, RESERVE_STEP)?;
                map.assume_reserved(goes_on);
                map.ahead().advance_to(goes_on);
                Bytes::Written(Writer::new(map, head.header))
            }
        };
        Ok(Self::with(path, layout, bytes))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Slots and entries.
    #[must_use]
    pub fn layout(&self) -> &IndexLayout {
        &self.layout
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &Arc<dyn StorageFile> {
        match &self.bytes {
            Bytes::Written(writer) => writer.map.file(),
            Bytes::Mapped(map) => map.file(),
            Bytes::Read(file) => file,
        }
    }

    /// Reads the header.
    pub fn header(&self) -> Result<IndexHeader> {
        Ok(self.head()?.header)
    }

    pub(crate) fn head(&self) -> Result<Head> {
        match &self.bytes {
            Bytes::Written(writer) => Ok(writer.head()),
            Bytes::Mapped(map) => {
                self.check_length()?;
                Head::read(&mut MapBytes(map), &self.layout)
            }
            Bytes::Read(file) => Head::read(&mut ReadBytes::new(&**file, &self.path), &self.layout),
        }
    }

    /// The writer's header in memory; an empty one for readers.
    #[inline]
    pub(crate) fn kept_header(&self) -> IndexHeader {
        match &self.bytes {
            Bytes::Written(writer) => writer.header,
            Bytes::Mapped(_) | Bytes::Read(_) => IndexHeader::default(),
        }
    }

    /// Checks the length before reads: another process that shortens a mapped file turns the next
    /// read into a signal.
    #[inline]
    pub(crate) fn check_length(&self) -> Result<()> {
        let Bytes::Mapped(map) = &self.bytes else { return Ok(()) };
        let len = map.file().length().map_err(Error::io("stat", &self.path))?;
        if len < self.layout.file_len() {
            return Err(wrong_length(&self.path, &self.layout, len));
        }
        Ok(())
    }

    /// State for threads that work ahead; `None` for readers.
    pub(crate) fn ahead(&self) -> Option<&Arc<Prefaulter>> {
        let Bytes::Written(writer) = &self.bytes else { return None };
        Some(writer.map.ahead())
    }

    /// Whether a writer would refuse a put.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Number of entries that fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> u32 {
        match &self.bytes {
            Bytes::Written(writer) => self.layout.max_entry_count().saturating_sub(writer.count()),
            Bytes::Mapped(_) | Bytes::Read(_) => 0,
        }
    }

    fn writer(&mut self) -> Result<&mut Writer> {
        match &mut self.bytes {
            Bytes::Written(writer) => Ok(writer),
            Bytes::Mapped(_) | Bytes::Read(_) => Err(Error::ReadOnly { path: self.path.clone() }),
        }
    }

    /// Puts one key; `false` when the file is full (`IndexFile#putKey`).
    #[inline]
    pub fn put_key(
        &mut self,
        key_hash: i32,
        physical_offset: i64,
        store_timestamp_ms: i64,
    ) -> Result<bool> {
        let put = IndexPut { key_hash, physical_offset, store_timestamp_ms };
        Ok(self.put_fetched(&[put])? == 1)
    }

    /// Puts keys in order and returns how many fitted. The bytes equal those of
    /// [`IndexFile::put_key`] for each, but slots are prefetched.
    pub fn put_many(&mut self, puts: &[IndexPut]) -> Result<usize> {
        let layout = self.layout;
        let writer = self.writer()?;
        puts.iter().take(PUT_AHEAD).for_each(|put| writer.prefetch(&layout, put));
        let mut ahead = puts.iter().skip(PUT_AHEAD);
        for (number, put) in puts.iter().enumerate() {
            if let Some(later) = ahead.next() {
                writer.prefetch(&layout, later);
            }
            if !writer.put(&layout, put)? {
                return Ok(number);
            }
        }
        Ok(puts.len())
    }

    /// [`IndexFile::put_many`] for keys whose slots are prefetched.
    pub(crate) fn put_fetched(&mut self, puts: &[IndexPut]) -> Result<usize> {
        let layout = self.layout;
        let writer = self.writer()?;
        for (number, put) in puts.iter().enumerate() {
            if !writer.put(&layout, put)? {
                return Ok(number);
            }
        }
        Ok(puts.len())
    }

    #[inline]
    pub(crate) fn prefetch_slot(&self, slot: u32) {
        match &self.bytes {
            Bytes::Written(Writer { map, .. }) | Bytes::Mapped(map) => {
                map.prefetch(position(self.layout.slot_position(slot)));
            }
            Bytes::Read(_) => {}
        }
    }

    /// Takes disk space for the next `count` entries, so that puts cannot fail; returns for how many
    /// there is.
    pub(crate) fn reserve(&mut self, count: u32) -> Result<u32> {
        let layout = self.layout;
        let writer = self.writer()?;
        let end = writer.count().saturating_add(count).min(layout.max_entry_count());
        if end > writer.room_end {
            writer.make_room(&layout, end)?;
        }
        Ok(writer.room_end.saturating_sub(writer.count()))
    }

    /// Flushes all puts; does nothing for readers.
    pub fn flush(&mut self) -> Result<()> {
        self.write_header()?;
        if let Bytes::Written(writer) = &self.bytes { writer.map.flush() } else { Ok(()) }
    }

    pub(crate) fn write_header(&mut self) -> Result<()> {
        let Bytes::Written(writer) = &mut self.bytes else { return Ok(()) };
        writer.write_header()
    }

    /// Gives back space without data, if few slots are used. Nothing may be put meanwhile.
    pub(crate) fn release_space(&self) -> Result<()> {
        let Bytes::Written(writer) = &self.bytes else { return Ok(()) };
        let (file, count) = (&**writer.map.file(), u64::from(writer.count()));
        let slots = position(self.layout.entry_position(0));
        if count < slots as u64 / SPARSE {
            release_zeros(file, &self.path, 0..slots)?;
        }
        release_zeros(
            file,
            &self.path,
            position(self.layout.entry_position(writer.count()))..writer.map.reserved(),
        )
    }

    /// Removes the entries from number `count` on. The caller gives the store time of the last
    /// remaining message, since the file has whole seconds only.
    ///
    /// Returns `false` without a change if no entry would remain: the header's begin comes from the
    /// previous file.
    pub fn truncate(&mut self, count: u32, end_timestamp_ms: i64) -> Result<bool> {
        let layout = self.layout;
        let writer = self.writer()?;
        if count <= 1 {
            return Ok(false);
        }
        if count >= writer.count() {
            return Ok(true);
        }
        let [from, to] = [count, writer.count()].map(|n| position(layout.entry_position(n)));
        fill_holes(&**writer.map.file(), writer.map.path(), from..to)?;
        while writer.count() > count {
            writer.take_last(&layout)?;
        }
        let last = writer.entry(&layout, writer.count().saturating_sub(1))?;
        writer.header.end_physical_offset = last.physical_offset;
        writer.header.end_timestamp_ms = end_timestamp_ms;
        writer.write_header()?;
        Ok(true)
    }
}

impl Writer {
    fn new(map: MappedFile, header: IndexHeader) -> Self {
        Self { map, header, room_end: 0, is_prepared: false }
    }

    #[inline]
    fn count(&self) -> u32 {
        // At least 1: checked at open, and never lowered below.
        self.header.index_count.unsigned_abs()
    }

    fn head(&self) -> Head {
        Head { header: self.header, count: self.count() }
    }

    #[inline]
    fn write_header(&mut self) -> Result<()> {
        self.map.put_array(0, &self.header.encode())
    }

    #[inline]
    fn slot(&self, slot_position: usize) -> Result<i32> {
        match self.map.get_at::<SLOT_LEN>(slot_position) {
            Some(raw) => Ok(i32_in::<0, SLOT_LEN>(&raw)),
            None => Err(self.outside(slot_position)),
        }
    }

    fn entry(&self, layout: &IndexLayout, number: u32) -> Result<IndexEntry> {
        let at = position(layout.entry_position(number));
        match self.map.get_at::<ENTRY_LEN>(at) {
            Some(raw) => Ok(IndexEntry::decode(&raw)),
            None => Err(self.outside(at)),
        }
    }

    #[cold]
    fn outside(&self, at: usize) -> Error {
        let len = self.map.len();
        let (expected, found) = (format!("more than {at} bytes"), format!("{len} bytes"));
        Error::corrupt(self.map.path(), at as u64, CorruptionKind::FileLength, expected, found)
    }

    #[inline]
    fn prefetch(&self, layout: &IndexLayout, put: &IndexPut) {
        self.map.prefetch(position(layout.slot_position(layout.slot_of(put.key_hash))));
    }

    #[inline(always)]
    fn put(&mut self, layout: &IndexLayout, put: &IndexPut) -> Result<bool> {
        let (count, number) = (self.header.index_count, self.count());
        if number >= self.room_end {
            if number >= layout.max_entry_count() {
                return Ok(false);
            }
            self.make_room(layout, number + 1)?;
        }
        let slot_position = position(layout.slot_position(layout.slot_of(put.key_hash)));
        let newest = self.slot(slot_position)?;
        // A slot may name a later entry left by a crash. Branchless: a branch would often be
        // predicted wrongly.
        let is_linked =
            newest.wrapping_sub(1).cast_unsigned() < count.wrapping_sub(1).cast_unsigned();
        let prev_entry = select_unpredictable(is_linked, newest, 0);
        let entry = IndexEntry {
            key_hash: put.key_hash,
            physical_offset: put.physical_offset,
            seconds: seconds_since(self.header.begin_timestamp_ms, put.store_timestamp_ms),
            prev_entry,
        };
        let at = position(layout.entry_position(number));
        self.map.put_array(at, &entry.encode())?;
        self.map.ahead().advance_to(at + ENTRY_LEN);
        // A reader that finds the entry through its slot must find it whole.
        fence(Ordering::Release);
        self.map.put_array(slot_position, &count.to_be_bytes())?;
        self.header.add(put.physical_offset, put.store_timestamp_ms, prev_entry == 0);
        fence(Ordering::Release);
        self.write_header()?;
        Ok(true)
    }

    /// Takes disk space for entries below `end` and some more, and loads its pages at once: first
    /// touches cost more than puts.
    #[cold]
    fn make_room(&mut self, layout: &IndexLayout, end: u32) -> Result<()> {
        self.map.reserve(position(layout.entry_position(end)))?;
        let begin = layout.entry_position(0);
        let entries = (self.map.reserved() as u64).saturating_sub(begin) / ENTRY_LEN as u64;
        let reserved = saturating_u32(entries).min(layout.max_entry_count());
        if self.room_end == 0 {
            self.room_end = end.saturating_add(UNPREPARED_ENTRIES).min(reserved);
            return Ok(());
        }
        if !self.is_prepared {
            self.is_prepared = true;
            self.map.ahead().prepare_range(0..position(begin));
        }
        let entries = position(layout.entry_position(self.room_end));
        self.map.ahead().prepare_range(entries..self.map.reserved());
        self.room_end = reserved;
        Ok(())
    }

    /// Undoes the last put except for the header's end.
    fn take_last(&mut self, layout: &IndexLayout) -> Result<()> {
        let number = self.count().saturating_sub(1);
        let entry = self.entry(layout, number)?;
        let slot_position = position(layout.slot_position(layout.slot_of(entry.key_hash)));
        let newest = self.slot(slot_position)?;
        if u32::try_from(newest) != Ok(number) || entry.prev_entry >= newest {
            return Err(Error::corrupt(
                self.map.path(),
                slot_position as u64,
                CorruptionKind::IndexSlot,
                format!("entry {number}, the newest of the slot"),
                format!("entry {newest}, linked to {}", entry.prev_entry),
            ));
        }
        self.header.index_count = newest;
        if entry.prev_entry <= 0 {
            self.header.hash_slot_count = self.header.hash_slot_count.saturating_sub(1);
        }
        self.write_header()?;
        self.map.put_at(slot_position, &entry.prev_entry.max(0).to_be_bytes())?;
        self.map.put_at(position(layout.entry_position(number)), &[0; ENTRY_LEN])
    }
}

/// A position in a map: a layout has less than 2^31 bytes.
#[inline]
fn position(position: u64) -> usize {
    to_usize(position)
}

fn wrong_length(path: &Path, layout: &IndexLayout, len: u64) -> Error {
    Error::corrupt(
        path,
        len,
        CorruptionKind::FileLength,
        format!(
            "{} bytes, for {} slots and {} entries",
            layout.file_len(),
            layout.slots(),
            layout.entries()
        ),
        format!("{len} bytes"),
    )
}

#[cfg(test)]
mod tests;
