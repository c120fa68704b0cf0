//! RocketMQ's own answer to a key query, which trusts every entry
//! (`org.apache.rocketmq.store.index.IndexService#queryOffset`, `IndexFile#selectPhyOffset`).

use std::sync::Arc;

use super::chain::Trust;
use super::check::header_fault;
use super::file::{IndexFile, IndexPut, with_reader};
use super::query::collect;
use super::reader::Head;
use super::run::{IndexRun, IndexRunFile};
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
    /// Takes one entry; returns whether the chain may hold more that are wanted.
    #[inline]
    pub(crate) fn take(&self, file_begin_ms: i64, entry: &IndexEntry, out: &mut Vec<i64>) -> bool {
        let time_ms = file_begin_ms.saturating_add(i64::from(entry.seconds) * 1000);
        if entry.key_hash == self.key_hash && self.begin_ms <= time_ms && time_ms <= self.end_ms {
            out.push(entry.physical_offset);
        }
        time_ms >= self.begin_ms && out.len() < self.max
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
        self.select_behind(&[], &mut self.head()?, &wanted, out, findings)
    }

    /// Selects from `newer` entries of the slot, as far as the file lacks them, and from the chain.
    #[inline]
    fn select_behind(
        &self,
        newer: &[(u32, IndexEntry)],
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
            let mut newer = newer.iter().rev().take_while(|(number, _)| *number > walk.next);
            if !newer.all(|(_, entry)| wanted.take(begin_ms, entry, out)) {
                return Ok(());
            }
            reader.follow(&mut walk, &Trust::RocketMq, |_, entry, _| {
                wanted.take(begin_ms, entry, out)
            })
        })
    }
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
        let newest = collect(self.newest(&listing), &mut answer.findings)?.flatten();
        let (mut more, header) =
            self.search_file(newest, (waiting, &listing.files), &wanted, &mut answer)?;
        answer.last_update_timestamp_ms = header.end_timestamp_ms;
        answer.last_update_physical_offset = header.end_physical_offset;
        for listed in listing.files.iter().rev().skip(1) {
            if !more || answer.offsets.len() >= max {
                break;
            }
            let file = collect(self.open_if_there(listed), &mut answer.findings)?.flatten();
            (more, _) = self.search_file(file.as_deref(), (&[], &[]), &wanted, &mut answer)?;
        }
        Ok(answer)
    }

    /// Adds matches of one file, those that wait for it first; returns whether older files may hold
    /// more, and the header. Damage is reported.
    fn search_file(
        &self,
        file: Option<&IndexFile>,
        (waiting, files): (&[IndexPut], &[Arc<IndexRunFile>]),
        wanted: &Wanted,
        answer: &mut IndexAnswer,
    ) -> Result<(bool, IndexHeader)> {
        let IndexAnswer { offsets, findings, .. } = answer;
        let slot = self.layout().slot_of(wanted.key_hash);
        let (mut read, mut head) = (None, Head { header: IndexHeader::default(), count: 1 });
        if let Some(file) = file {
            file.prefetch_slot(slot);
            if let Some(of_file) = collect(file.head(), findings)? {
                (read, head) = (Some(file), of_file);
            }
        }
        let newer = self.as_if_put(waiting, files, slot, &mut head)?;
        let header = head.header;
        let fault = header_fault(&header, true);
        let is_asked = fault.is_some() || is_time_matched(&header, wanted.begin_ms, wanted.end_ms);
        if is_asked && wanted.max > 0 {
            let begin_ms = header.begin_timestamp_ms;
            let selected = match read {
                Some(file) => file.select_behind(&newer, &mut head, wanted, offsets, findings),
                None => {
                    let mut newer = newer.iter().rev();
                    newer.all(|(_, entry)| wanted.take(begin_ms, entry, offsets));
                    Ok(())
                }
            };
            collect(selected, findings)?;
        }
        let Some(file) = read else { return Ok((true, header)) };
        let Some((offset, expected, found)) = fault else {
            return Ok((header.begin_timestamp_ms >= wanted.begin_ms, header));
        };
        if offsets.len() < wanted.max {
            let (path, kind) = (file.path(), CorruptionKind::IndexHeader);
            findings.push(Corruption::new(path, offset, kind, expected, found));
        }
        Ok((true, header))
    }

    /// Counts keys that wait for their slots as put into the newest file, in its head; returns the
    /// slot's entries with their numbers.
    fn as_if_put(
        &self,
        waiting: &[IndexPut],
        files: &[Arc<IndexRunFile>],
        slot: u32,
        head: &mut Head,
    ) -> Result<Vec<(u32, IndexEntry)>> {
        let mut entries = Vec::new();
        if waiting.is_empty() {
            return Ok(entries);
        }
        let Head { header, count } = head;
        let known = waiting.partition_point(|put| put.physical_offset < header.end_physical_offset);
        // The first message may have some of its keys in the files already.
        let put = match waiting.get(known) {
            Some(first) => self.keys_put_below(files, Some(*count), first.physical_offset),
            None => Ok(0),
        };
        let put = collect(put, &mut Vec::new())?.unwrap_or(0);
        let waiting = waiting.get(known + put..).unwrap_or_default();
        for (number, put) in (*count..).zip(waiting) {
            let IndexPut { key_hash, physical_offset, store_timestamp_ms } = *put;
            let seconds = seconds_since(header.begin_timestamp_ms, store_timestamp_ms);
            header.add(physical_offset, store_timestamp_ms, false);
            if self.layout().slot_of(key_hash) == slot {
                let entry = IndexEntry { key_hash, physical_offset, seconds, prev_entry: 0 };
                entries.push((number, entry));
            }
        }
        Ok(entries)
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
