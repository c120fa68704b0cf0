//! Compares the index with the log at open for writing: whether files are consistent, and whether
//! every key up to the index's end has its entry.
//!
//! A record may have more entries: RocketMQ adds one for tags from 5.4 on, and a later release may
//! add others.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::index::{ENTRY_LEN, IndexEntry, seconds_since};
use crate::log::index::check::Records;
use crate::log::index::file::IndexFile;
use crate::log::index::run::IndexRun;
use crate::log::queue::unit::MAX_KEYS;

use super::collect::{DispatchBatch, Keyed};

#[derive(Debug)]
struct Candidate {
    name: u64,
    entries: Records<Arc<IndexFile>, ENTRY_LEN>,
    begin_timestamp_ms: i64,
    end_timestamp_ms: i64,
}

#[derive(Debug)]
struct Placed {
    file: usize,
    number: u32,
    entry: IndexEntry,
}

/// Fed with records in log order.
#[derive(Debug)]
pub struct IndexAudit {
    files: Vec<Candidate>,
    file: usize,
    number: u32,
    next: Option<Placed>,
    unsound_from: Option<u64>,
}

impl IndexAudit {
    /// The messages of the usable files are durable, none newer than `known_ms`. Checks each file's
    /// consistency.
    pub fn new(run: &IndexRun, known_ms: i64) -> Result<Self> {
        let unusable_from = run.unusable().first().map_or(u64::MAX, |file| file.name);
        let mut audit =
            Self { files: Vec::new(), file: 0, number: 0, next: None, unsound_from: None };
        for file in run.files().iter().take_while(|file| file.name < unusable_from) {
            let open = run.open(file)?;
            let header = open.header()?;
            if header.end_timestamp_ms > known_ms {
                break;
            }
            let sums = open.sums()?;
            let sound = match sums.whole() {
                Ok(whole) => sums.is_sound(&whole),
                Err(Error::Corrupt(_)) => false,
                Err(error) => return Err(error),
            };
            let count = sums.entry_count();
            if !sound {
                audit.unsound_from = Some(file.name);
                break;
            }
            let first = open.layout().entry_position(1);
            audit.files.push(Candidate {
                name: file.name,
                entries: Records::new(open, first, count),
                begin_timestamp_ms: header.begin_timestamp_ms,
                end_timestamp_ms: header.end_timestamp_ms,
            });
        }
        audit.advance()?;
        Ok(audit)
    }

    /// Finds the entries of collected records. That of the tags may be missing: RocketMQ 5.3 puts none.
    pub fn check_all(&mut self, collected: &DispatchBatch) -> Result<()> {
        let mut records = collected.keyed();
        while self.next.is_some()
            && let Some((keyed, hashes)) = records.next()
        {
            self.check(keyed, hashes)?;
        }
        Ok(())
    }

    fn check(&mut self, keyed: &Keyed, hashes: &[i32]) -> Result<()> {
        if keyed.is_rolled_back {
            return Ok(());
        }
        // Entries of removed records, or put twice.
        while self
            .next
            .as_ref()
            .is_some_and(|next| next.entry.physical_offset < keyed.physical_offset)
        {
            self.advance()?;
        }
        let wanted = hashes.len().saturating_sub(usize::from(keyed.has_tags)).min(MAX_KEYS);
        let mut found = 0;
        // Expected position; a restarted broker may have put keys again before it.
        let mut passed_in = None;
        loop {
            let next = self.next.as_ref();
            let here = next.and_then(|next| Some((self.files.get(next.file)?, next)));
            let Some((file, next)) =
                here.filter(|(_, next)| next.entry.physical_offset == keyed.physical_offset)
            else {
                if found < wanted {
                    // At the index's end missing keys are appended.
                    let name = passed_in.or(here.map(|(file, _)| file.name));
                    self.unsound_from = name.or(self.unsound_from);
                    self.next = None;
                }
                return Ok(());
            };
            let hash = next.entry.key_hash;
            if !self.is_time_of(next, keyed.store_timestamp_ms) {
                self.unsound_from = Some(file.name);
                self.next = None;
                return Ok(());
            }
            if found < wanted && hashes.get(found) == Some(&hash) {
                found += 1;
            } else {
                passed_in.get_or_insert(file.name);
            }
            self.advance()?;
        }
    }

    /// First file that contradicts the log or itself.
    #[must_use]
    pub const fn unsound_from(&self) -> Option<u64> {
        self.unsound_from
    }

    /// Whether an entry's seconds match a store time. A file's first entry counts from the previous
    /// file's end (`IndexFile#putKey`); without that file it proves nothing.
    fn is_time_of(&self, placed: &Placed, store_timestamp_ms: i64) -> bool {
        let begin_ms = match placed.number {
            1 => placed
                .file
                .checked_sub(1)
                .and_then(|before| self.files.get(before))
                .map(|file| file.end_timestamp_ms),
            _ => self.files.get(placed.file).map(|file| file.begin_timestamp_ms),
        };
        begin_ms.is_none_or(|begin_ms| {
            placed.entry.seconds == seconds_since(begin_ms, store_timestamp_ms)
        })
    }

    fn advance(&mut self) -> Result<()> {
        self.next = None;
        while let Some(candidate) = self.files.get_mut(self.file) {
            if let Some(raw) = candidate.entries.next() {
                let entry = IndexEntry::decode(&raw?);
                self.number += 1;
                self.next = Some(Placed { file: self.file, number: self.number, entry });
                break;
            }
            (self.file, self.number) = (self.file + 1, 0);
        }
        Ok(())
    }
}
