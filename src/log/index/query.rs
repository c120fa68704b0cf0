//! Queries by key over all index files, newest first
//! (`org.apache.rocketmq.store.index.IndexService#queryOffset`).

use std::sync::Arc;

use super::chain::{ChainWalk, Head};
use super::check::header_fault;
use super::file::{IndexFile, IndexPut};
use super::run::{Between, IndexRun, IndexRunFile, Listing};
use super::select::{IndexBatch, Wanted};
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::format::index::{IndexEntry, IndexHeader, seconds_since};
use crate::format::java::key_hash;

/// RocketMQ's answer to a key query (`QueryOffsetResult`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexAnswer {
    /// Physical offsets under the key's hash, newest first. Includes duplicates and other keys of
    /// that hash.
    pub offsets: Vec<i64>,
    /// Store time of the last indexed message, 0 without files.
    pub last_update_timestamp_ms: i64,
    /// Physical offset of the last indexed message, 0 without files.
    pub last_update_physical_offset: i64,
    pub findings: Vec<Corruption>,
}

#[derive(Clone, Copy, Debug)]
pub struct OtherQuery<'a> {
    pub topic: &'a [u8],
    pub text: &'a [u8],
    pub is_tags: bool,
    pub span: (i64, i64),
    pub log: (u64, u64),
}

#[derive(Clone, Debug)]
pub struct OtherOffsets {
    pub offsets: Vec<u64>,
    pub until: u64,
}

/// An index outside of the store's files.
pub trait OtherIndex: std::fmt::Debug + Send + Sync {
    /// Answers; `None` if the log is to be read.
    fn ask(&self, query: &OtherQuery<'_>) -> Option<OtherOffsets>;
}

impl IndexAnswer {
    fn clear(&mut self) {
        self.offsets.clear();
        self.last_update_timestamp_ms = 0;
        self.last_update_physical_offset = 0;
        self.findings.clear();
    }
}

impl IndexRun {
    /// Finds the newest `max` offsets for a key between two store times by RocketMQ's rules: whole
    /// seconds; a walk ends at the first entry before `begin_ms`, the search at the first file that
    /// begins before it.
    pub fn query_offsets(
        &self,
        topic: &[u8],
        key: &[u8],
        begin_ms: i64,
        end_ms: i64,
        max: usize,
    ) -> Result<IndexAnswer> {
        let mut answer = IndexAnswer::default();
        self.query_batch().query_offsets(topic, key, begin_ms, end_ms, max, &mut answer)?;
        Ok(answer)
    }

    /// [`IndexRun::query_offsets`] with waiting keys of later messages, oldest first: equals the
    /// later answer of the index.
    pub fn query_offsets_with(
        &self,
        waiting: &[IndexPut],
        topic: &[u8],
        key: &[u8],
        (begin_ms, end_ms): (i64, i64),
        max: usize,
    ) -> Result<IndexAnswer> {
        if waiting.is_empty() {
            return self.query_offsets(topic, key, begin_ms, end_ms, max);
        }
        let wanted = Wanted { key_hash: key_hash(topic, key), begin_ms, end_ms, max };
        // Others were put meanwhile.
        let last = self.last_keyed_offset()?.unwrap_or(0);
        let waiting = waiting.get(waiting.partition_point(|put| put.physical_offset < last)..);
        let waiting = waiting.unwrap_or_default();
        let mut batch = self.query_batch();
        let (mut header, count) = match batch.newest_head(wanted.key_hash)? {
            Some(head) => (head.header, head.count),
            None => (IndexHeader::default(), 1),
        };
        // The first message may have some of its keys in the files already.
        let put = match waiting.first() {
            Some(first) => collect(self.keys_put(first.physical_offset), &mut Vec::new())?,
            None => None,
        };
        let waiting = waiting.get(put.unwrap_or(0)..).unwrap_or_default();
        let Some(first) = waiting.first() else {
            return self.query_offsets(topic, key, begin_ms, end_ms, max);
        };
        let (hits, ends) = self.take_waiting(waiting, &mut header, count, &wanted);
        let mut answer = IndexAnswer::default();
        let newest = Some(Newest { header, ends });
        let left = max.saturating_sub(hits.len());
        for more in [0, waiting.len()].into_iter().take_while(|_| left > 0) {
            let wanted = Wanted { max: left.saturating_add(more), ..wanted };
            batch.collect_offsets(&wanted, newest, &mut answer)?;
            if batch.newest_head(wanted.key_hash)?.is_none_or(|head| head.count == count) {
                break;
            }
            // Some that waited were put meanwhile, and are found twice.
            answer.offsets.retain(|&offset| offset < first.physical_offset);
        }
        answer.last_update_timestamp_ms = header.end_timestamp_ms;
        answer.last_update_physical_offset = header.end_physical_offset;
        answer.offsets.splice(0..0, hits);
        answer.offsets.truncate(max);
        Ok(answer)
    }

    /// Searches the waiting keys as a walk of their slot does, and updates the header. Returns the
    /// offsets, and whether the walk ends.
    fn take_waiting(
        &self,
        waiting: &[IndexPut],
        header: &mut IndexHeader,
        count: u32,
        wanted: &Wanted,
    ) -> (Vec<i64>, bool) {
        let slot = self.layout().slot_of(wanted.key_hash);
        let mut entries = Vec::new();
        for (number, put) in (count..).zip(waiting) {
            let seconds = seconds_since(header.begin_timestamp_ms, put.store_timestamp_ms);
            if number <= 1 {
                header.begin_timestamp_ms = put.store_timestamp_ms;
                header.begin_physical_offset = put.physical_offset;
            }
            header.end_timestamp_ms = put.store_timestamp_ms;
            header.end_physical_offset = put.physical_offset;
            if self.layout().slot_of(put.key_hash) == slot {
                let IndexPut { key_hash, physical_offset, .. } = *put;
                entries.push(IndexEntry { key_hash, physical_offset, seconds, prev_entry: 0 });
            }
        }
        let mut hits = Vec::new();
        if header_fault(header, true).is_none()
            && !is_time_matched(header, wanted.begin_ms, wanted.end_ms)
        {
            return (hits, false);
        }
        let ends = entries.iter().rev().any(|entry| {
            hits.len() >= wanted.max || !wanted.take(header.begin_timestamp_ms, entry, &mut hits)
        });
        (hits, ends)
    }

    /// Queries that share one listing and one length check of each file, for short loops.
    #[must_use]
    pub fn query_batch(&self) -> QueryBatch<'_> {
        let listing = self.listing();
        QueryBatch { run: self, listing, newest_is_checked: false, older: Vec::new() }
    }

    /// Finds all candidates under a key between two store times, newest first and lazily. The
    /// caller checks the messages; nothing is missing, except for what findings report.
    #[must_use]
    pub fn candidates(
        self: &Arc<Self>,
        topic: &[u8],
        key: &[u8],
        begin_ms: i64,
        end_ms: i64,
    ) -> Candidates {
        let listing = self.listing();
        let mut files = listing.files.clone();
        if !listing.unusable.is_empty() {
            files.extend(listing.unusable.iter().map(Arc::clone));
            files.sort_by_key(|file| file.name);
        }
        Candidates {
            run: Arc::clone(self),
            left: files.len(),
            files,
            listing,
            key_hash: key_hash(topic, key),
            begin_ms,
            end_ms,
            current: None,
        }
    }
}

#[derive(Debug)]
pub struct QueryBatch<'a> {
    run: &'a IndexRun,
    listing: Arc<Listing>,
    newest_is_checked: bool,
    /// Other files used so far, newest first.
    older: Vec<Option<Arc<IndexFile>>>,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    header: IndexHeader,
    /// Whether a waiting key ends the walk.
    ends: bool,
}

impl QueryBatch<'_> {
    /// [`IndexRun::query_offsets`] into a reused answer.
    pub fn query_offsets(
        &mut self,
        topic: &[u8],
        key: &[u8],
        begin_ms: i64,
        end_ms: i64,
        max: usize,
        answer: &mut IndexAnswer,
    ) -> Result<()> {
        let key_hash = key_hash(topic, key);
        // Early: the previous query may still be waiting for memory.
        if let Some(newest) = self.listing.newest() {
            newest.prefetch_slot(newest.layout().slot_of(key_hash));
        }
        let wanted = Wanted { key_hash, begin_ms, end_ms, max };
        self.collect_offsets(&wanted, None, answer)
    }

    /// The head of the newest file; `None` if gone or damaged, which a look-up reports.
    fn newest_head(&mut self, key_hash: i32) -> Result<Option<Head>> {
        let newest = self.file(0, key_hash);
        let head = newest.and_then(|newest| newest.map(IndexFile::head).transpose());
        Ok(collect(head, &mut Vec::new())?.flatten())
    }

    fn collect_offsets(
        &mut self,
        wanted: &Wanted,
        newest: Option<Newest>,
        answer: &mut IndexAnswer,
    ) -> Result<()> {
        answer.clear();
        for age in 0..self.listing.files.len() {
            let waiting = newest.filter(|_| age == 0);
            let looked_up = self.look_up(age, wanted, waiting, answer);
            let more = collect(looked_up, &mut answer.findings)?.unwrap_or(true);
            if answer.offsets.len() >= wanted.max || !more {
                break;
            }
        }
        Ok(())
    }

    /// Adds matches of one file; returns whether older files may hold more.
    fn look_up(
        &mut self,
        age: usize,
        wanted: &Wanted,
        waiting: Option<Newest>,
        answer: &mut IndexAnswer,
    ) -> Result<bool> {
        let Some(file) = self.file(age, wanted.key_hash)? else { return Ok(true) };
        let batch = IndexBatch::new(file);
        let mut head = batch.head()?;
        let header = &mut head.header;
        if let Some(newest) = waiting {
            *header = newest.header;
        }
        let begin_timestamp_ms = header.begin_timestamp_ms;
        if age == 0 {
            answer.last_update_timestamp_ms = header.end_timestamp_ms;
            answer.last_update_physical_offset = header.end_physical_offset;
        }
        let fault = header_fault(header, true);
        let walks = !waiting.is_some_and(|newest| newest.ends);
        if walks && (fault.is_some() || is_time_matched(header, wanted.begin_ms, wanted.end_ms)) {
            let IndexAnswer { offsets, findings, .. } = answer;
            let selected = batch.select_under(&mut head, wanted, offsets, findings);
            collect(selected, findings)?;
        }
        let Some((offset, expected, found)) = fault else {
            return Ok(begin_timestamp_ms >= wanted.begin_ms);
        };
        if answer.offsets.len() < wanted.max {
            answer.findings.push(Corruption {
                path: Some(file.path().to_owned()),
                offset,
                kind: CorruptionKind::IndexHeader,
                expected: expected.to_owned(),
                found,
            });
        }
        Ok(true)
    }

    /// A file with its checked length; `None` if it is gone.
    #[inline]
    fn file(&mut self, age: usize, key_hash: i32) -> Result<Option<&IndexFile>> {
        if age > 0 {
            return self.older_file(age, key_hash);
        }
        let newest = self.run.newest(&self.listing)?;
        if let Some(file) = newest
            && !self.newest_is_checked
        {
            file.check_length()?;
            self.newest_is_checked = true;
        }
        Ok(newest)
    }

    fn older_file(&mut self, age: usize, key_hash: i32) -> Result<Option<&IndexFile>> {
        if self.older.len() < age {
            self.older.resize(age, None);
        }
        let Some(open) = self.older.get_mut(age - 1) else { return Ok(None) };
        if open.is_none() {
            let Some(listed) = self.listing.files.iter().nth_back(age) else { return Ok(None) };
            let Some(file) = self.run.open_if_there(listed)? else { return Ok(None) };
            // Fetches the slot while the system returns the length.
            file.prefetch_slot(file.layout().slot_of(key_hash));
            file.check_length()?;
            *open = Some(file);
        }
        Ok(open.as_deref())
    }
}

fn collect<T>(result: Result<T>, findings: &mut Vec<Corruption>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Corrupt(corruption)) => {
            findings.push(*corruption);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether a file may hold messages between two store times (`IndexFile#isTimeMatched`).
fn is_time_matched(header: &IndexHeader, begin_ms: i64, end_ms: i64) -> bool {
    let IndexHeader { begin_timestamp_ms: first, end_timestamp_ms: last, .. } = *header;
    (begin_ms < first && end_ms > last)
        || (begin_ms >= first && begin_ms <= last)
        || (end_ms >= first && end_ms <= last)
}

/// An index entry to be compared with its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub physical_offset: i64,
    /// Offset of the previously indexed message, or -1.
    pub before: i64,
    /// Offset of the next indexed message; after the last its own plus one.
    pub behind: i64,
    /// The entry's hash: the key's, or one that differs in one bit and shares the slot.
    pub key_hash: i32,
    /// Base and seconds of its store time, if the entry tells.
    pub time: Option<(i64, i32)>,
    /// Whether its time is wanted. Other entries are candidates only at the edges, to check their
    /// times.
    pub is_wanted: bool,
}

impl Candidate {
    /// Whether a message of that store time gets this entry.
    #[must_use]
    pub fn is_time(&self, store_timestamp_ms: i64) -> bool {
        self.time.is_none_or(|(begin_ms, seconds)| {
            seconds == seconds_since(begin_ms, store_timestamp_ms)
        })
    }
}

/// Results of [`IndexRun::candidates`], file by file in chunks, so memory does not grow with a
/// chain.
#[derive(Debug)]
pub struct Candidates {
    run: Arc<IndexRun>,
    files: Vec<Arc<IndexRunFile>>,
    listing: Arc<Listing>,
    left: usize,
    key_hash: i32,
    begin_ms: i64,
    end_ms: i64,
    current: Option<CandidateFile>,
}

#[derive(Debug)]
struct CandidateFile {
    file: Arc<IndexFile>,
    walk: ChainWalk,
    head: Head,
    slot: u32,
    /// Last entry with a later time, until another came.
    late: Option<Candidate>,
    /// Whether the last entry had an earlier time.
    was_early: bool,
}

impl Candidates {
    /// Continues with the next older file; `false` without one. A file that is unreadable, or gone
    /// although its messages are not, gives a finding.
    pub fn next_file(&mut self, findings: &mut Vec<Corruption>) -> Result<bool> {
        self.current = None;
        let Some(left) = self.left.checked_sub(1) else { return Ok(false) };
        self.left = left;
        let Some(listed) = self.files.get(left) else { return Ok(false) };
        let Some(file) = collect(self.run.open_if_there(listed), findings)? else {
            return Ok(true);
        };
        let Some(file) = file else {
            findings.push(Corruption {
                path: Some(listed.path.clone()),
                offset: 0,
                kind: CorruptionKind::FileLength,
                expected: "an index file".to_owned(),
                found: "none: it was removed meanwhile".to_owned(),
            });
            return Ok(true);
        };
        let walked = file.walk(self.key_hash, findings);
        if let Some((walk, head)) = collect(walked, findings)? {
            let slot = file.layout().slot_of(self.key_hash);
            self.current =
                Some(CandidateFile { file, walk, head, slot, late: None, was_early: false });
        }
        Ok(true)
    }

    /// Appends candidates of the current file to `out`, newest first, up to `max`; returns whether
    /// there may be more. A message with the key twice comes twice in a row.
    pub fn next_chunk(
        &mut self,
        max: usize,
        out: &mut Vec<Candidate>,
        findings: &mut Vec<Corruption>,
    ) -> Result<bool> {
        let (key_hash, begin_ms, end_ms) = (self.key_hash, self.begin_ms, self.end_ms);
        let Some(current) = &mut self.current else { return Ok(false) };
        let CandidateFile { file, walk, head, slot, late, was_early } = current;
        let file_begin_ms = head.header.begin_timestamp_ms;
        let walked = file.go_on(walk, head, *slot, findings, |number, entry, around| {
            // One for a late entry that comes first.
            if out.len() + 1 >= max {
                return false;
            }
            let is_own = entry.key_hash == key_hash;
            if !is_own && (entry.key_hash ^ key_hash).count_ones() != 1 {
                return true;
            }
            let mut candidate = Candidate {
                physical_offset: entry.physical_offset,
                before: around.before,
                behind: around.behind,
                key_hash: entry.key_hash,
                time: (number > 1).then_some((file_begin_ms, entry.seconds)),
                is_wanted: true,
            };
            if !is_own || may_be_between(number, entry, file_begin_ms, begin_ms, end_ms) {
                out.extend(late.take());
                *was_early &= !is_own;
                out.push(candidate);
                return true;
            }
            candidate.is_wanted = false;
            let seconds_ms = i64::from(entry.seconds).saturating_mul(1000);
            if file_begin_ms.saturating_add(seconds_ms) > end_ms {
                *late = Some(candidate);
                *was_early = false;
            } else {
                out.extend(late.take());
                if !std::mem::replace(was_early, true) {
                    out.push(candidate);
                }
            }
            true
        });
        if collect(walked, findings)?.is_none() || current.walk.is_at_end() {
            out.extend(current.late.take());
            self.current = None;
        }
        Ok(self.current.is_some())
    }

    pub(crate) fn listing(&self) -> &Arc<Listing> {
        &self.listing
    }

    /// The place before the current file, unless it or its older neighbour is unusable.
    pub(crate) fn between(&self) -> Option<Between> {
        self.run.between(&self.files, self.left)
    }

    /// Range of the log that the current file covers: from the first offset up to and including the
    /// second.
    #[must_use]
    pub fn span(&self) -> (i64, Option<i64>) {
        let header = |file: &Arc<IndexRunFile>| self.run.sound_header(file);
        let older = self.files.iter().take(self.left).rev().find_map(header);
        let newer = self.files.iter().skip(self.left + 1).find_map(header);
        let from = older.map_or(0, |header| header.end_physical_offset);
        (from, newer.map(|header| header.begin_physical_offset))
    }
}

/// Whether an entry's message may have a store time in the range. An entry is skipped only if its
/// time is certain:
///
/// - seconds are rounded down: up to 999 ms;
/// - 0 also stands for earlier times, and in a file that begins at 0 for all;
/// - the field's maximum also stands for later ones;
/// - entry 1 has the file's begin.
fn may_be_between(
    number: u32,
    entry: &IndexEntry,
    file_begin_ms: i64,
    begin_ms: i64,
    end_ms: i64,
) -> bool {
    if number <= 1 {
        return begin_ms <= file_begin_ms && file_begin_ms <= end_ms;
    }
    if file_begin_ms <= 0 {
        return true;
    }
    let earliest = file_begin_ms.saturating_add(i64::from(entry.seconds).saturating_mul(1000));
    let latest = earliest.saturating_add(999);
    (entry.seconds <= 0 || earliest <= end_ms) && (entry.seconds == i32::MAX || latest >= begin_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_asked_where_its_times_touch_the_wanted_ones() {
        let header =
            IndexHeader { begin_timestamp_ms: 10, end_timestamp_ms: 20, ..IndexHeader::default() };
        for (begin, end) in [(0, 10), (0, 15), (0, 30), (10, 10), (15, 16), (20, 20), (20, 40)] {
            assert!(is_time_matched(&header, begin, end), "{begin} to {end}");
        }
        for (begin, end) in [(0, 9), (21, 40)] {
            assert!(!is_time_matched(&header, begin, end), "{begin} to {end}");
        }
    }
}
