//! RocketMQ's own answer to a key query, which trusts every entry
//! (`org.apache.rocketmq.store.index.IndexService#queryOffset`, `IndexFile#selectPhyOffset`).

use super::chain::Trust;
use super::check::header_fault;
use super::file::{IndexFile, IndexPut, with_reader};
use super::query::collect;
use super::reader::Head;
use super::run::{IndexRun, Listing};
use crate::error::{Corruption, CorruptionKind, Result};
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
        let wanted = Wanted { key_hash, begin_ms, end_ms, max };
        self.select_under(&mut self.head()?, &wanted, out, findings)
    }

    #[inline]
    fn select_under(
        &self,
        head: &mut Head,
        wanted: &Wanted,
        out: &mut Vec<i64>,
        findings: &mut Vec<Corruption>,
    ) -> Result<()> {
        with_reader!(self, head, findings, |reader| {
            let mut walk = reader.start(reader.layout.slot_of(wanted.key_hash))?;
            if out.len() >= wanted.max {
                return Ok(());
            }
            let begin_ms = reader.head.header.begin_timestamp_ms;
            reader.follow(&mut walk, &Trust::RocketMq, |_, entry, _| {
                wanted.take(begin_ms, entry, out) && out.len() < wanted.max
            })
        })
    }
}

/// Keys that wait for their slots, as if they were put into the newest file.
struct Waiting {
    header: IndexHeader,
    /// Entries of the newest file without them.
    count: u32,
    keys: usize,
    first_physical_offset: i64,
    offsets: Vec<i64>,
    /// Whether one of them ends the walk.
    ends: bool,
}

impl IndexRun {
    /// Finds the newest `max` offsets for a key between two store times by RocketMQ's rules: whole
    /// seconds; a walk ends at the first entry before `begin_ms`, the search at the first file that
    /// begins before it. Takes waiting keys of later messages, oldest first: equals the later answer
    /// of the index.
    pub fn query_offsets(
        &self,
        waiting: &[IndexPut],
        topic: &[u8],
        key: &[u8],
        (begin_ms, end_ms): (i64, i64),
        max: usize,
    ) -> Result<IndexAnswer> {
        let wanted = Wanted { key_hash: key_hash(topic, key), begin_ms, end_ms, max };
        let (listing, mut answer) = (self.listing(), IndexAnswer::default());
        let Some(waiting) = self.waiting(&listing, waiting, &wanted)? else {
            return self.search_all(&listing, &wanted, None);
        };
        let left = max.saturating_sub(waiting.offsets.len());
        for more in [0, waiting.keys].into_iter().take_while(|_| left > 0) {
            let wanted = Wanted { max: left.saturating_add(more), ..wanted };
            answer = self.search_all(&listing, &wanted, Some(&waiting))?;
            if self.newest_head(&listing)?.is_none_or(|head| head.count == waiting.count) {
                break;
            }
            // Some that waited were put meanwhile, and are found twice.
            answer.offsets.retain(|&offset| offset < waiting.first_physical_offset);
        }
        answer.last_update_timestamp_ms = waiting.header.end_timestamp_ms;
        answer.last_update_physical_offset = waiting.header.end_physical_offset;
        answer.offsets.splice(0..0, waiting.offsets);
        answer.offsets.truncate(max);
        Ok(answer)
    }

    /// Searches the waiting keys as a walk of their slot does; `None` if all were put meanwhile.
    fn waiting(
        &self,
        listing: &Listing,
        puts: &[IndexPut],
        wanted: &Wanted,
    ) -> Result<Option<Waiting>> {
        if puts.is_empty() {
            return Ok(None);
        }
        let last = self.last_keyed_offset()?.unwrap_or(0);
        let puts = puts.get(puts.partition_point(|put| put.physical_offset < last)..);
        let puts = puts.unwrap_or_default();
        let (mut header, count) = match self.newest_head(listing)? {
            Some(head) => (head.header, head.count),
            None => (IndexHeader::default(), 1),
        };
        // The first message may have some of its keys in the files already.
        let put = match puts.first() {
            Some(first) => collect(self.keys_put(first.physical_offset), &mut Vec::new())?,
            None => None,
        };
        let puts = puts.get(put.unwrap_or(0)..).unwrap_or_default();
        let Some(first) = puts.first() else { return Ok(None) };
        let slot = self.layout().slot_of(wanted.key_hash);
        let mut entries = Vec::new();
        for (number, put) in (count..).zip(puts) {
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
        let mut offsets = Vec::new();
        let is_asked = header_fault(&header, true).is_some()
            || is_time_matched(&header, wanted.begin_ms, wanted.end_ms);
        let ends = is_asked
            && entries.iter().rev().any(|entry| {
                offsets.len() >= wanted.max
                    || !wanted.take(header.begin_timestamp_ms, entry, &mut offsets)
            });
        let (keys, first_physical_offset) = (puts.len(), first.physical_offset);
        Ok(Some(Waiting { header, count, keys, first_physical_offset, offsets, ends }))
    }

    /// The head of the newest file; `None` if gone or damaged, which a look-up reports.
    fn newest_head(&self, listing: &Listing) -> Result<Option<Head>> {
        let newest = self.newest(listing);
        let head = newest.and_then(|newest| newest.map(IndexFile::head).transpose());
        Ok(collect(head, &mut Vec::new())?.flatten())
    }

    fn search_all(
        &self,
        listing: &Listing,
        wanted: &Wanted,
        waiting: Option<&Waiting>,
    ) -> Result<IndexAnswer> {
        let mut answer = IndexAnswer::default();
        let mut more = match collect(self.newest(listing), &mut answer.findings)?.flatten() {
            Some(newest) => self.search_file(newest, true, wanted, waiting, &mut answer)?,
            None => true,
        };
        for listed in listing.files.iter().rev().skip(1) {
            if !more || answer.offsets.len() >= wanted.max {
                break;
            }
            let file = collect(self.open_if_there(listed), &mut answer.findings)?.flatten();
            more = match file {
                Some(file) => self.search_file(&file, false, wanted, None, &mut answer)?,
                None => true,
            };
        }
        Ok(answer)
    }

    /// Adds matches of one file; returns whether older files may hold more. Damage is reported.
    fn search_file(
        &self,
        file: &IndexFile,
        is_newest: bool,
        wanted: &Wanted,
        waiting: Option<&Waiting>,
        answer: &mut IndexAnswer,
    ) -> Result<bool> {
        let IndexAnswer { offsets, findings, .. } = answer;
        file.prefetch_slot(file.layout().slot_of(wanted.key_hash));
        let Some(mut head) = collect(file.head(), findings)? else { return Ok(true) };
        let header = &mut head.header;
        if let Some(waiting) = waiting {
            *header = waiting.header;
        }
        let begin_timestamp_ms = header.begin_timestamp_ms;
        if is_newest {
            answer.last_update_timestamp_ms = header.end_timestamp_ms;
            answer.last_update_physical_offset = header.end_physical_offset;
        }
        let fault = header_fault(header, true);
        let walks = !waiting.is_some_and(|waiting| waiting.ends);
        if walks && (fault.is_some() || is_time_matched(header, wanted.begin_ms, wanted.end_ms)) {
            let selected = file.select_under(&mut head, wanted, offsets, findings);
            collect(selected, findings)?;
        }
        let Some((offset, expected, found)) = fault else {
            return Ok(begin_timestamp_ms >= wanted.begin_ms);
        };
        if offsets.len() < wanted.max {
            let (path, kind) = (file.path(), CorruptionKind::IndexHeader);
            findings.push(Corruption::new(path, offset, kind, expected, found));
        }
        Ok(true)
    }
}

/// `IndexFile#isTimeMatched`.
fn is_time_matched(header: &IndexHeader, begin_ms: i64, end_ms: i64) -> bool {
    let IndexHeader { begin_timestamp_ms: first, end_timestamp_ms: last, .. } = *header;
    (begin_ms < first && end_ms > last)
        || (begin_ms >= first && begin_ms <= last)
        || (end_ms >= first && end_ms <= last)
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
