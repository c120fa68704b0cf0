//! Queries by key over all index files, newest first
//! (`org.apache.rocketmq.store.index.IndexService#queryOffset`).

use std::sync::Arc;

use super::index_check::header_fault;
use super::index_file::IndexFile;
use super::index_run::{IndexRun, IndexRunFile, Listing};
use super::index_select::{IndexBatch, Wanted};
use super::index_walk::{Head, Walk};
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::format::index::{IndexEntry, IndexHeader};
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

    /// Queries that share one look at the files: the list of them, and for each that is read whether
    /// it still has its length. For short tight loops, as [`IndexFile::batch`].
    #[must_use]
    pub fn query_batch(&self) -> QueryBatch<'_> {
        let listing = self.listing();
        QueryBatch { run: self, listing, newest_is_checked: false, older: Vec::new() }
    }

    /// Everything under a key that may be between two store times, newest first, for a caller who
    /// looks at the messages: nothing is missing, whatever the index has rounded. Found as it is asked
    /// for.
    #[must_use]
    pub fn candidates(
        self: &Arc<Self>,
        topic: &[u8],
        key: &[u8],
        begin_ms: i64,
        end_ms: i64,
    ) -> Candidates {
        Candidates {
            run: Arc::clone(self),
            older_files: self.files(),
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
        answer.clear();
        for age in 0..self.listing.files.len() {
            let looked_up = self.look_up(age, &wanted, answer);
            let more = collect(looked_up, &mut answer.findings)?.unwrap_or(true);
            if answer.offsets.len() >= max || !more {
                break;
            }
        }
        Ok(())
    }

    /// Adds what one file holds; whether an older one may hold more.
    fn look_up(&mut self, age: usize, wanted: &Wanted, answer: &mut IndexAnswer) -> Result<bool> {
        let Some(file) = self.file(age, wanted.key_hash)? else { return Ok(true) };
        let batch = IndexBatch::new(file);
        let mut head = batch.head()?;
        let header = &head.header;
        let begin_timestamp_ms = header.begin_timestamp_ms;
        if age == 0 {
            answer.last_update_timestamp_ms = header.end_timestamp_ms;
            answer.last_update_physical_offset = header.end_physical_offset;
        }
        let fault = header_fault(header, true);
        if fault.is_some() || is_time_matched(header, wanted.begin_ms, wanted.end_ms) {
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

/// The answers of [`IndexRun::candidates`], found chunk by chunk: memory does not grow with the
/// length of a chain.
#[derive(Debug)]
pub struct Candidates {
    run: Arc<IndexRun>,
    /// Files not yet begun, the next one last.
    older_files: Vec<Arc<IndexRunFile>>,
    key_hash: i32,
    begin_ms: i64,
    end_ms: i64,
    current: Option<CandidateFile>,
}

#[derive(Debug)]
struct CandidateFile {
    file: Arc<IndexFile>,
    walk: Walk,
    begin_timestamp_ms: i64,
}

impl Candidates {
    /// Appends up to `max` more physical offsets to `out`; fewer come only when there are no more. A
    /// message that has the key twice comes twice, one after the other.
    ///
    /// # Errors
    /// [`Error::Io`] when a file cannot be read; damage is added to `findings`, and what is left of
    /// that file passed over.
    pub fn next_chunk(
        &mut self,
        max: usize,
        out: &mut Vec<i64>,
        findings: &mut Vec<Corruption>,
    ) -> Result<()> {
        let full = out.len().saturating_add(max);
        while out.len() < full {
            let Some(current) = &mut self.current else {
                let Some(next) = self.older_files.pop() else { break };
                self.current = begin(&self.run, &next, self.key_hash, findings)?;
                continue;
            };
            let (key_hash, begin_ms, end_ms) = (self.key_hash, self.begin_ms, self.end_ms);
            let file_begin_ms = current.begin_timestamp_ms;
            let file = Arc::clone(&current.file);
            let walked = file.go_on(&mut current.walk, findings, |number, entry| {
                if out.len() >= full {
                    return false;
                }
                if entry.key_hash == key_hash
                    && may_be_between(number, entry, file_begin_ms, begin_ms, end_ms)
                {
                    out.push(entry.physical_offset);
                }
                true
            });
            if collect(walked, findings)?.is_none() || current.walk.is_at_end() {
                self.current = None;
            }
        }
        Ok(())
    }
}

fn begin(
    run: &IndexRun,
    file: &IndexRunFile,
    key_hash: i32,
    findings: &mut Vec<Corruption>,
) -> Result<Option<CandidateFile>> {
    let Some(file) = collect(run.open_if_there(file), findings)?.flatten() else { return Ok(None) };
    let walked = file.walk(key_hash, findings);
    let Some((walk, Head { header, .. })) = collect(walked, findings)? else { return Ok(None) };
    Ok(Some(CandidateFile { file, walk, begin_timestamp_ms: header.begin_timestamp_ms }))
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
