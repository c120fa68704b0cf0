//! Queries by key over all index files, newest first
//! (`org.apache.rocketmq.store.index.IndexService#queryOffset`).

use std::sync::Arc;

use super::chain::{Head, Walk};
use super::check::header_fault;
use super::file::{IndexFile, IndexPut};
use super::run::{IndexRun, IndexRunFile, Listing};
use super::select::{IndexBatch, Wanted};
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::format::index::{IndexEntry, IndexHeader, seconds_since};
use crate::format::java::key_hash;

/// RocketMQ's own answer to a query by key (`QueryOffsetResult`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexAnswer {
    /// Physical offsets under the key's hash, newest first. One comes twice when its message has the
    /// key twice, and other keys of the same hash are among them.
    pub offsets: Vec<i64>,
    /// Store time of the last indexed message, 0 without files.
    pub last_update_timestamp_ms: i64,
    /// Physical offset of the last indexed message, 0 without files.
    pub last_update_physical_offset: i64,
    /// What was not as it should be on the way.
    pub findings: Vec<Corruption>,
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
    /// The newest `max` physical offsets for a key between two store times, as RocketMQ finds them:
    /// times in whole seconds, a walk ends at the first entry before `begin_ms`, and the search at the
    /// first file that begins before it. The caller lowers `max` to `maxMsgsNumBatch`.
    ///
    /// # Errors
    /// [`Error::Io`] when a file cannot be read; damage is among the findings instead.
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

    /// [`IndexRun::query_offsets`] with the keys of later messages, oldest first, that wait to be put: the
    /// answer is the one that the index gives once it holds them.
    ///
    /// # Errors
    /// As [`IndexRun::query_offsets`].
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

    /// Looks through the keys that wait for the newest file as a walk of their slot does, and brings the
    /// file's header up to date. Returns what was found, and whether the walk ends there.
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

    /// Queries that share one look at the files: the list of them, and for each that is read whether
    /// it still has its length. For short tight loops, as [`IndexFile::batch`].
    #[must_use]
    pub fn query_batch(&self) -> QueryBatch<'_> {
        let listing = self.listing();
        QueryBatch { run: self, listing, newest_is_checked: false, older: Vec::new() }
    }

    /// Everything under a key that may be between two store times, newest first, for a caller who
    /// looks at the messages: nothing is missing, whatever the index has rounded, unless it is among the
    /// findings. Found as it is asked for.
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
            key_hash: key_hash(topic, key),
            begin_ms,
            end_ms,
            current: None,
        }
    }
}

/// See [`IndexRun::query_batch`].
#[derive(Debug)]
pub struct QueryBatch<'a> {
    run: &'a IndexRun,
    listing: Arc<Listing>,
    /// Whether the newest file was asked for its length.
    newest_is_checked: bool,
    /// Those of the others that were read, the newest first.
    older: Vec<Option<Arc<IndexFile>>>,
}

/// The newest file, once the keys that wait are put.
#[derive(Clone, Copy, Debug)]
struct Newest {
    header: IndexHeader,
    /// Whether one of these keys ends the walk of the wanted slot.
    ends: bool,
}

impl QueryBatch<'_> {
    /// As [`IndexRun::query_offsets`]; the answer before, whose memory is used again, is forgotten.
    ///
    /// # Errors
    /// As [`IndexRun::query_offsets`].
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
        // As soon as it is known where: what the query before waits for may still be on the way then.
        if let Some(newest) = self.listing.newest() {
            newest.prefetch_slot(newest.layout().slot_of(key_hash));
        }
        let wanted = Wanted { key_hash, begin_ms, end_ms, max };
        self.collect_offsets(&wanted, None, answer)
    }

    /// The head of the newest file; `None` where it is gone or damaged, which a look-up tells.
    fn newest_head(&mut self, key_hash: i32) -> Result<Option<Head>> {
        let newest = self.file(0, key_hash);
        let head = newest.and_then(|newest| newest.map(IndexFile::head).transpose());
        Ok(collect(head, &mut Vec::new())?.flatten())
    }

    /// Looks into the files, the newest first.
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

    /// Adds what one file holds; whether an older one may hold more.
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

    /// A file of its length; `None` for one that is gone.
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
            // The slot comes in from memory while the system is asked for the file's length.
            file.prefetch_slot(file.layout().slot_of(key_hash));
            file.check_length()?;
            *open = Some(file);
        }
        Ok(open.as_deref())
    }
}

/// Turns damage into a finding.
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

/// What an index entry under a key says of a message, for a caller who holds it against the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The stored message.
    pub physical_offset: i64,
    /// Where the message lies that was indexed before it, or -1.
    pub before: i64,
    /// Where the message lies that was indexed behind it; of the last, one more than where that lies.
    pub behind: i64,
    /// The entry's hash: that of the key, or one that differs in a single bit and shares its slot.
    pub key_hash: i32,
    /// What its store time counts from and how many seconds it is, where the entry tells.
    pub time: Option<(i64, i32)>,
    /// Whether its time is a wanted one. Of entries of other times only those at the edges are
    /// candidates, to see whether they are right: the times of the others lie behind theirs.
    pub is_wanted: bool,
}

impl Candidate {
    /// Whether a message stored then gets such an entry.
    #[must_use]
    pub fn is_time(&self, store_timestamp_ms: i64) -> bool {
        self.time.is_none_or(|(begin_ms, seconds)| {
            seconds == seconds_since(begin_ms, store_timestamp_ms)
        })
    }
}

/// The answers of [`IndexRun::candidates`], found file by file and chunk by chunk: memory does not grow
/// with the length of a chain.
#[derive(Debug)]
pub struct Candidates {
    run: Arc<IndexRun>,
    /// Those that cannot be used among them, oldest first.
    files: Vec<Arc<IndexRunFile>>,
    /// How many of them were not begun yet.
    left: usize,
    key_hash: i32,
    begin_ms: i64,
    end_ms: i64,
    current: Option<CandidateFile>,
}

#[derive(Debug)]
struct CandidateFile {
    file: Arc<IndexFile>,
    walk: Walk,
    head: Head,
    slot: u32,
    /// The last entry of a later time than the wanted ones, while no other came.
    late: Option<Candidate>,
    /// Whether the last entry was of an earlier time.
    was_early: bool,
}

impl Candidates {
    /// Goes on to the next older file; `false` when there is none. Of one that cannot be read there are
    /// no candidates, and a finding tells; one that is gone was removed with its messages, or is
    /// a finding too.
    ///
    /// # Errors
    /// [`Error::Io`] when a file cannot be read.
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

    /// Appends some more candidates of the present file to `out`, newest first, until that holds `max`;
    /// whether there may be more. A message that has the key twice comes twice, one after the other.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be read; damage is added to `findings`, and nothing more comes
    /// of that file.
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

    /// Where in the log the messages of the present file lie, by what the files around it say: from the
    /// first place on, and up to the second, which is one of them.
    #[must_use]
    pub fn span(&self) -> (i64, Option<i64>) {
        let header = |file: &Arc<IndexRunFile>| {
            let open = self.run.open(file).ok()?;
            open.header().ok().filter(|header| header_fault(header, true).is_none())
        };
        let older = self.files.iter().take(self.left).rev().find_map(header);
        let newer = self.files.iter().skip(self.left + 1).find_map(header);
        let from = older.map_or(0, |header| header.end_physical_offset);
        (from, newer.map(|header| header.begin_physical_offset))
    }
}

/// Whether the message of an entry may have a store time between the two. Only where an entry says
/// its time surely can it be passed over:
///
/// - seconds are rounded down, so a time is up to 999 ms later than it reads;
/// - 0 is also what an earlier time becomes, and every time in a file that begins at 0;
/// - the most that the field can hold is also what a later time becomes;
/// - entry 1 counts from the end of the file before, but its time is the begin of this one.
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
