//! Checks index files by themselves, and single entries against the log.

pub(crate) mod index_check;

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::locks::Mutex;

use super::context::{Context, Walked};
use crate::care::finding::{Code, Severity};
use crate::config::StoreConfig;
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::FileRun;
use crate::files::threads::{each, in_order};
use crate::format::index::{ENTRY_LEN, IndexEntry, IndexLayout, seconds_since};
use crate::format::java::TopicHash;
use crate::format::message::MessageView;
use crate::format::message::properties::{self, Indexed, split_keys};
use crate::log::index::check::Records;
use crate::log::index::file::IndexFile;
use crate::log::index::run::{IndexRun, IndexRunFile};
use crate::log::index::sums::Sum;
use crate::log::read::frames::probe;
use crate::store::open::index_settings::{self, NoLayout};

/// Index files checked at once: each needs memory for its slots.
const INDEX_READERS: usize = 4;

pub(crate) struct IndexState {
    pub(crate) file: Arc<IndexRunFile>,
    count: u32,
    pub(crate) first: i64,
    pub(crate) last: i64,
    begin_ms: i64,
    in_order: bool,
}

#[derive(Default)]
pub(crate) struct Index {
    pub(crate) run: Option<IndexRun>,
    /// Files with ordered entries, which a walk can follow.
    pub(crate) files: Vec<IndexState>,
    unordered: Vec<IndexState>,
    pub(crate) unknown: Vec<(i64, i64)>,
    pub(crate) is_known: bool,
    pub(crate) file_count: u64,
    pub(crate) entry_count: u64,
}

impl Index {
    /// One unreadable file does not end the check.
    pub(crate) fn read(cx: &Context<'_>) -> Result<Self> {
        match Self::list(cx) {
            Err(Error::Io { op, path, source }) if path != cx.paths.index() => {
                cx.error(&path, Error::io(op, &path)(source));
                Ok(Self::default())
            }
            index => index,
        }
    }

    fn list(cx: &Context<'_>) -> Result<Self> {
        if !cx.config.message_index_enable {
            return Ok(Self::default());
        }
        cx.is_folder(&cx.paths.quarantine())?;
        if !cx.is_folder(&cx.paths.index())? {
            return Ok(Self { is_known: true, ..Self::default() });
        }
        let layout = match index_settings::index_layout(&cx.paths, cx.config)? {
            // A damaged file has its own finding.
            Ok(layout) | Err(NoLayout { fits: Some(layout), .. }) => layout,
            Err(NoLayout { path, reason, .. }) => {
                let expected = "a file that tells its layout, or maxHashSlotNum and maxIndexNum as the \
                                broker has them: until then the store cannot be opened for writing";
                // A valid file that only contradicts the settings is no fault.
                let pending_notices = StoreConfig {
                    max_hash_slot_num: None,
                    max_index_num: None,
                    ..cx.config.clone()
                };
                let is_whole = index_settings::index_layout(&cx.paths, &pending_notices)?.is_ok();
                let severity = if is_whole { Severity::Info } else { Severity::Warning };
                cx.findings.add(Code::IndexLayout.at(severity), &path, None, expected, reason);
                return Ok(Self::default());
            }
        };
        Self::load(cx, layout)
    }

    fn load(cx: &Context<'_>, layout: IndexLayout) -> Result<Self> {
        let dir = cx.paths.index();
        let storage = Arc::clone(&cx.paths.storage);
        let unreadable = &mut |path: &_, error| {
            cx.error(path, error);
            Ok(())
        };
        let (run, faults) = IndexRun::load_readable(storage, &dir, layout, unreadable)?;
        let newest = run.files().last().map(|file| file.path.clone());
        for fault in faults {
            let code = match fault.kind {
                CorruptionKind::FileName if fault.found == "no regular file" => {
                    Code::NoRegularFile.at(Severity::Warning)
                }
                CorruptionKind::FileName => Code::StrayName.into(),
                CorruptionKind::FileLength if fault.path > newest && fault.offset == 0 => {
                    cx.new_file(Code::IndexUnusable)
                }
                _ => Code::IndexUnusable.into(),
            };
            cx.corruption(code, fault);
        }
        let mut unusable: Vec<_> = run.unusable().iter().map(|file| file.name).collect();
        let listed = run.files();
        let mut states = Vec::with_capacity(listed.len());
        let read = |file: &Arc<IndexRunFile>| match read_state(cx, &run, file) {
            Err(error) => {
                if !error.is_not_found() {
                    cx.error(&file.path, error);
                }
                Ok(None)
            }
            state => state.map(Some),
        };
        in_order(&listed, cx.threads.min(INDEX_READERS), &dir, read, |_, state| {
            states.push(state);
            Ok(ControlFlow::Continue(()))
        })?;
        let file_count = (listed.len() + unusable.len()) as u64;
        let mut index = Self { is_known: true, file_count, ..Self::default() };
        for (file, state) in listed.iter().zip(states) {
            let Some(state) = state else {
                unusable.push(file.name);
                continue;
            };
            index.entry_count += u64::from(state.count.saturating_sub(1));
            if state.count <= 1 {
                continue;
            }
            let follows = index.files.last().is_none_or(|before| before.last <= state.first);
            if state.in_order && follows {
                index.files.push(state);
            } else {
                index.unordered.push(state);
            }
        }
        unusable.extend(index.unordered.iter().map(|state| state.file.name));
        for name in unusable {
            let next = index.files.partition_point(|state| state.file.name < name);
            let before = next.checked_sub(1).and_then(|at| index.files.get(at));
            let from = before.map_or(i64::MIN, |state| state.last);
            let to = index.files.get(next).map_or(i64::MAX, |state| state.first);
            index.unknown.push((from, to));
        }
        index.run = Some(run);
        Ok(index)
    }

    pub(crate) fn span(&self) -> Option<(i64, i64)> {
        Some((self.files.first()?.first, self.files.last()?.last))
    }

    pub(crate) fn check_unordered(
        &self,
        cx: &Context<'_>,
        log: &FileRun,
        walked: &Walked,
    ) -> Result<()> {
        let Some(run) = &self.run else { return Ok(()) };
        for state in &self.unordered {
            let open = run.open(&state.file)?;
            let mut entries = Entries::new(state, open, 1);
            let mut judge = Judge::new(cx, log);
            let mut before = i64::MIN;
            let mut misplaced = None;
            while let Some((number, entry)) = entries.head()? {
                entries.records.pass(1);
                let at = u64::try_from(entry.physical_offset).ok();
                if at.is_some_and(|at| at < walked.log_start) {
                    continue;
                }
                if judge.entry(&entries, number, &entry, walked)? {
                    if entry.physical_offset < before {
                        misplaced.get_or_insert((number, entry.physical_offset, before));
                    }
                    before = before.max(entry.physical_offset);
                }
            }
            if let Some((number, offset, before)) = misplaced {
                let expected = format!("an offset of {before} or more");
                let found = format!("entry {number} with physical offset {offset}");
                judge.add(Code::IndexEntry, entries.open(), number, 0, expected, found);
            }
        }
        Ok(())
    }
}

fn read_state(cx: &Context<'_>, run: &IndexRun, file: &Arc<IndexRunFile>) -> Result<IndexState> {
    let open = run.open(file)?;
    let header = open.header()?;
    let layout = *open.layout();
    let mut state = IndexState {
        file: Arc::clone(file),
        count: header.index_count.unsigned_abs(),
        first: 0,
        last: 0,
        begin_ms: header.begin_timestamp_ms,
        in_order: true,
    };
    if !cx.full {
        return Ok(state);
    }
    if let Some((count, span)) = sound(&open, cx.threads)? {
        state.count = count.saturating_add(1);
        (state.first, state.last) = span;
        state.in_order = span.0 >= 0;
        return Ok(state);
    }
    let read = open.check(&mut |fault: Corruption| {
        let in_entry = fault
            .offset
            .checked_sub(layout.entry_position(0))
            .and_then(|offset| offset.checked_rem(ENTRY_LEN as u64));
        // Only the log tells which of two entries is out of order.
        if fault.kind == CorruptionKind::IndexEntry && in_entry == Some(4) {
            state.in_order = false;
            return;
        }
        let code = match fault.kind {
            CorruptionKind::IndexHeader => Code::IndexHeader,
            CorruptionKind::IndexSlot => Code::IndexSlot,
            CorruptionKind::IndexChain => Code::IndexChain,
            _ => Code::IndexEntry,
        };
        cx.corruption(code, fault);
    })?;
    state.count = read.saturating_add(1);
    if state.count > 1 {
        let mut entries = Entries::new(&state, Arc::clone(&open), 1);
        let first = entries.head()?.map(|(_, entry)| entry.physical_offset);
        let mut entries = Entries::new(&state, open, state.count - 1);
        let last = entries.head()?.map(|(_, entry)| entry.physical_offset);
        (state.first, state.last) = (first.unwrap_or(0), last.unwrap_or(0));
        state.in_order &= state.first >= 0;
    }
    Ok(state)
}

/// A valid file's number of entries and first and last offset; `None` if each entry must be
/// checked.
fn sound(file: &IndexFile, threads: usize) -> Result<Option<(u32, (i64, i64))>> {
    let sums = file.sums()?;
    let whole = Mutex::new(Sum::default());
    each(sums.parts().into_iter(), threads, |part| {
        let sum = sums.sum(&part)?;
        let mut whole = whole.lock();
        *whole = std::mem::take(&mut *whole).join(sum);
        Ok(())
    })?;
    let whole = whole.into_inner();
    let is_sound = sums.is_sound(&whole);
    Ok(is_sound.then(|| (sums.entry_count(), whole.span().unwrap_or_default())))
}

pub(crate) struct Entries {
    pub(crate) records: Records<Arc<IndexFile>, ENTRY_LEN>,
    pub(crate) begin_ms: i64,
    count: u32,
}

impl Entries {
    pub(crate) fn new(state: &IndexState, open: Arc<IndexFile>, number: u32) -> Self {
        let position = open.layout().entry_position(number);
        let records = Records::new(open, position, state.count.saturating_sub(number));
        Self { records, begin_ms: state.begin_ms, count: state.count }
    }

    pub(crate) fn open(&self) -> &IndexFile {
        &self.records.file
    }

    #[inline]
    pub(crate) fn head(&mut self) -> Result<Option<(u32, IndexEntry)>> {
        let raw = self.records.head()?;
        Ok(raw.map(|raw| (self.count - self.records.left(), IndexEntry::decode(&raw))))
    }
}

pub(crate) struct Judge<'a> {
    cx: &'a Context<'a>,
    log: &'a FileRun,
    buffer: Vec<u8>,
}

impl<'a> Judge<'a> {
    pub(crate) const fn new(cx: &'a Context<'a>, log: &'a FileRun) -> Self {
        Self { cx, log, buffer: Vec::new() }
    }

    pub(crate) fn add(
        &self,
        code: Code,
        open: &IndexFile,
        number: u32,
        field: u64,
        expected: impl Into<String>,
        found: String,
    ) {
        let at = open.layout().entry_position(number).saturating_add(field);
        self.cx.findings.add(code, open.path(), Some(at), expected, found);
    }

    /// Whether an entry leads to a message with its key, where the log is whole; reports it
    /// otherwise.
    pub(crate) fn entry(
        &mut self,
        entries: &Entries,
        number: u32,
        entry: &IndexEntry,
        walked: &Walked,
    ) -> Result<bool> {
        let open = entries.open();
        let found = format!(
            "entry {number} with hash {}, physical offset {}",
            entry.key_hash, entry.physical_offset
        );
        let at = u64::try_from(entry.physical_offset).ok();
        let mut buffer = std::mem::take(&mut self.buffer);
        let record = match at {
            Some(at) => probe(self.log, at, &mut buffer)?,
            None => None,
        };
        let good = match record {
            None => {
                let known = at.is_some_and(|at| {
                    walked.is_damaged(at)
                        || (self.log.find(at).is_none() && at < self.log.end_offset().unwrap_or(0))
                });
                if !known {
                    let expected = "the beginning of a message";
                    self.add(Code::IndexNowhere, open, number, 4, expected, found);
                }
                known
            }
            Some((view, _)) => {
                let has_key = hashes(&view).any(|hash| hash == entry.key_hash);
                if has_key {
                    self.time(entries, number, entry, view.store_timestamp_ms());
                } else {
                    let expected = "a message with a key of this hash";
                    self.add(Code::IndexOther, open, number, 0, expected, found);
                }
                has_key
            }
        };
        self.buffer = buffer;
        Ok(good)
    }

    /// The first entry's time counts from the previous file's end, so it proves nothing.
    #[inline]
    pub(crate) fn time(
        &self,
        entries: &Entries,
        number: u32,
        entry: &IndexEntry,
        store_timestamp_ms: i64,
    ) {
        let seconds = seconds_since(entries.begin_ms, store_timestamp_ms);
        if entry.seconds != seconds && number > 1 && entry.seconds >= 0 {
            let expected = format!("{seconds} seconds");
            let found = format!("entry {number} with {}", entry.seconds);
            self.add(Code::IndexTime, entries.open(), number, 12, expected, found);
        }
    }
}

/// The hashes of all entries that a message may have, that of its tags last.
fn hashes<'a>(view: &MessageView<'a>) -> impl Iterator<Item = i32> + use<'a> {
    let properties = properties::indexed(view.raw_properties());
    let topic = TopicHash::of(view.topic());
    let tags = properties.tags.filter(|tags| !tags.is_empty());
    keys_of(&properties).map(move |key| topic.with_key(key)).chain(tags.map(|t| topic.with_tags(t)))
}

#[inline]
pub(crate) fn keys_of<'a>(properties: &Indexed<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    properties.unique_key.into_iter().chain(split_keys(properties.keys.unwrap_or_default()))
}
