//! Exact queries by key over all index files, newest first: candidates to be compared with their
//! messages.

use std::sync::Arc;

use super::chain::{ChainWalk, Trust};
use super::evidence::Neighbours;
use super::file::{Bytes, IndexFile, with_reader};
use super::reader::Head;
use super::run::{Between, IndexRun, IndexRunFile, Listing};
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::format::index::{IndexEntry, seconds_since};
use crate::format::java::key_hash;

#[derive(Clone, Copy, Debug)]
pub struct ExternalQuery<'a> {
    pub topic: &'a [u8],
    pub text: &'a [u8],
    pub is_tags: bool,
    pub span: (i64, i64),
    pub log: (u64, u64),
}

#[derive(Clone, Debug)]
pub struct ExternalOffsets {
    pub offsets: Vec<u64>,
    pub until: u64,
}

/// An index outside of the store's files.
pub trait ExternalIndex: std::fmt::Debug + Send + Sync {
    /// Answers; `None` if the log is to be read.
    fn query(&self, query: &ExternalQuery<'_>) -> Option<ExternalOffsets>;
}

/// Moves damage to `findings`.
pub(crate) fn collect<T>(result: Result<T>, findings: &mut Vec<Corruption>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Corrupt(corruption)) => {
            findings.push(*corruption);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl IndexFile {
    /// Entries of a hash's slot with their numbers, newest first, at most `max`, including other
    /// hashes.
    pub fn chain(
        &self,
        key_hash: i32,
        max: usize,
        findings: &mut Vec<Corruption>,
    ) -> Result<Vec<(u32, IndexEntry)>> {
        let (mut walk, mut head) = self.start(self.layout().slot_of(key_hash), findings)?;
        let mut chain = Vec::new();
        self.check_length()?;
        with_reader!(self, &mut head, findings, |reader| {
            reader.follow(&mut walk, &Trust::RocketMq, |number, entry, _| {
                let wanted = chain.len() < max;
                if wanted {
                    chain.push((number, *entry));
                }
                wanted
            })
        })?;
        Ok(chain)
    }

    /// Start of a slot's chain and the header. Checks against the file's last entries that the slot
    /// names its newest.
    fn start(&self, slot: u32, findings: &mut Vec<Corruption>) -> Result<(ChainWalk, Head)> {
        let mut head = self.head()?;
        if let Bytes::Read(file) = &self.bytes
            && file.is_remote()
        {
            // The reads themselves report errors.
            let _ = file.read_many(&self.sampled.places(self.layout(), slot, head.count));
        }
        // Entries counted before the slot was read are in it.
        let count = head.count;
        let walk = with_reader!(self, &mut head, findings, |reader| {
            let walk = reader.start(slot)?;
            let evidence = self.sampled.evidence(reader, slot, count)?;
            reader.check_start(&evidence, walk.next)?;
            walk
        });
        Ok((walk, head))
    }

    /// See [`IndexReader::follow`].
    fn follow(
        &self,
        walk: &mut ChainWalk,
        head: &mut Head,
        slot: u32,
        findings: &mut Vec<Corruption>,
        take: impl FnMut(u32, &IndexEntry, Neighbours) -> bool,
    ) -> Result<()> {
        self.check_length()?;
        with_reader!(self, head, findings, |reader| {
            let evidence = self.sampled.evidence(reader, slot, reader.head.count)?;
            reader.follow(walk, &Trust::Checked(evidence), take)
        })
    }
}

impl IndexRun {
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
            let (kind, found) = (CorruptionKind::FileLength, "none: it was removed meanwhile");
            findings.push(Corruption::new(&listed.path, 0, kind, "an index file", found));
            return Ok(true);
        };
        let slot = file.layout().slot_of(self.key_hash);
        let started = file.start(slot, findings);
        if let Some((walk, head)) = collect(started, findings)? {
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
        let walked = file.follow(walk, head, *slot, findings, |number, entry, neighbours| {
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
                before: neighbours.before,
                behind: neighbours.behind,
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
