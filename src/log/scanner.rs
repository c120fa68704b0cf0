//! Reading the commit log record by record, in order, from one copied block after the other.

mod ahead;

use std::sync::Arc;

use crate::error::{Corruption, CorruptionKind, Error, FormatError, Result};
use crate::files::{RunFile, StorageFile};
use crate::format::message::{self, MessageView};
use crate::format::peek;

pub use self::ahead::{Walked, each_ahead};
use super::commit_log::{CommitLog, Found};

/// What is read at a time; larger records get what they need.
const BLOCK: usize = 256 << 10;

/// How often the bytes of a walk may be looked at in search of records behind damage.
const LOOKS: u64 = 4;
/// What may be looked at in any case.
const LEAST_FUEL: u64 = 64 << 20;
/// A record that is looked at in any case.
const SMALL: u64 = 4 << 10;

/// One step of a scan.
#[derive(Debug)]
pub enum Scanned<'a> {
    /// A record.
    Message(MessageView<'a>),
    /// A blank that ends its file at the byte it must.
    Blank {
        /// Where it begins.
        physical_offset: u64,
        /// How many bytes it fills.
        size: u32,
    },
}

/// Why a scan cannot go on from where it stands.
#[derive(Debug)]
pub enum Stop {
    /// The end that was asked for, or the end of the files.
    End,
    /// Nothing was ever written here.
    Empty,
    /// Bytes that are no record.
    Damage(Corruption),
}

/// A walk over the records of a log.
#[derive(Debug)]
pub struct Scanner<'l> {
    log: &'l CommitLog,
    next: u64,
    end: u64,
    verify_crc: bool,
    /// The file that holds `next`, once it was looked for, and its end.
    file: Option<Arc<RunFile>>,
    file_end: u64,
    /// That file, which stays readable for as long as this is held.
    open: Option<Arc<dyn StorageFile>>,
    /// Bytes of that file: `filled` of them, from `block_start` on.
    block: Vec<u8>,
    block_start: u64,
    filled: usize,
    /// How many bytes may still be read to find out whether they are a record.
    fuel: u64,
}

impl<'l> Scanner<'l> {
    /// A walk from `start`, which must be the beginning of a record, up to `end`; with
    /// `verify_crc` each body is held against its checksum.
    #[must_use]
    pub fn new(log: &'l CommitLog, start: u64, end: u64, verify_crc: bool) -> Self {
        let next = start.max(log.min_offset());
        Self {
            log,
            fuel: end.saturating_sub(next).saturating_mul(LOOKS).saturating_add(LEAST_FUEL),
            next,
            end,
            verify_crc,
            file: None,
            file_end: 0,
            open: None,
            block: Vec::new(),
            block_start: 0,
            filled: 0,
        }
    }

    /// Where the next record is looked for.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Goes on at `offset` instead.
    pub fn seek(&mut self, offset: u64) {
        self.next = offset;
        self.file = None;
    }

    /// The next record or blank, or why there is none. After [`Stop::Damage`] the walk stands
    /// still; [`Scanner::resync`] finds the next whole record.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    #[inline]
    pub fn step(&mut self) -> Result<std::result::Result<Scanned<'_>, Stop>> {
        if self.next >= self.end {
            return Ok(Err(Stop::End));
        }
        if (self.file.is_none() || self.next >= self.file_end)
            && let Some(stop) = self.find_file()?
        {
            return Ok(Err(stop));
        }
        let at = self.next;
        let (Some(file), Some(open)) = (&self.file, &self.open) else {
            return Ok(Err(Stop::End));
        };
        let room = usize::try_from(self.file_end.min(self.end) - at).unwrap_or(usize::MAX);
        // At most twice: the first bytes tell the record's size.
        for _ in 0..2 {
            let bytes = rest(&self.block, self.filled, self.block_start, at);
            let needed = peek::claimed_size(bytes).unwrap_or(peek::HEAD).min(room);
            if bytes.len() >= needed {
                break;
            }
            let len = needed.max(BLOCK).min(room);
            if self.block.len() < len {
                self.block.resize(len, 0);
            }
            self.filled = 0;
            self.block_start = at;
            let block = self.block.get_mut(..len).unwrap_or_default();
            self.filled = open
                .read_at(block, at - file.base_offset)
                .map_err(Error::io("read", &file.path))?;
        }
        let frame = message::read_frame(rest(&self.block, self.filled, self.block_start, at));
        match CommitLog::judge(frame, at, room) {
            Found::Message(view) => {
                if self.verify_crc
                    && let Err(error) = view.check_body_crc()
                {
                    return Ok(Err(damage(file, at, error)));
                }
                self.next = at + u64::from(view.store_size());
                Ok(Ok(Scanned::Message(view)))
            }
            Found::Blank(size) if at.saturating_add(u64::from(size)) == self.file_end => {
                self.next = self.file_end;
                Ok(Ok(Scanned::Blank { physical_offset: at, size }))
            }
            Found::Blank(size) => {
                let error = FormatError::new(
                    CorruptionKind::Blank,
                    0,
                    format!("a blank of {} bytes, to the end of the file", self.file_end - at),
                    format!("{size} bytes"),
                );
                Ok(Err(damage(file, at, error)))
            }
            Found::Empty => Ok(Err(Stop::Empty)),
            Found::Bad(error) => Ok(Err(damage(file, at, error))),
            Found::OutOfRange => Ok(Err(Stop::End)),
        }
    }

    /// Finds the file that holds the next place; why there is none.
    /// What was deleted since the walk began is passed over.
    fn find_file(&mut self) -> Result<Option<Stop>> {
        let run = self.log.run();
        loop {
            self.filled = 0;
            let Some(file) = run.find(self.next) else {
                let min = self.log.min_offset();
                if self.next >= min || min >= self.end {
                    self.file = None;
                    return Ok(Some(self.no_file()));
                }
                self.next = min;
                continue;
            };
            self.open = run.open_if_there(&file)?;
            if self.open.is_some() {
                self.file_end = file.base_offset.saturating_add(run.file_size());
                self.file = Some(file);
                return Ok(None);
            }
        }
    }

    /// Behind the last file the log ends; between two files there is a gap.
    fn no_file(&self) -> Stop {
        let files = self.log.run().files();
        let behind = files.partition_point(|file| file.base_offset < self.next);
        match files.get(behind) {
            Some(later) => Stop::Damage(Corruption {
                path: Some(later.path.clone()),
                offset: 0,
                kind: CorruptionKind::Gap,
                expected: format!("a file that holds physical offset {}", self.next),
                found: format!("the next file, which begins at {}", later.base_offset),
            }),
            None => Stop::End,
        }
    }

    /// Looks for the next whole record behind the present position: its own offset, lengths and
    /// checksum must be right. Stands there afterwards; `false` when there is none before the end.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn resync(&mut self) -> Result<bool> {
        self.file = None;
        let mut at = self.next.saturating_add(1);
        while at < self.end {
            let Some(file) = self.log.run().find(at) else {
                // A gap, or the end of the files.
                let files = self.log.run().files();
                let behind = files.partition_point(|file| file.base_offset < at);
                match files.get(behind) {
                    Some(later) => at = later.base_offset,
                    None => break,
                }
                if whole_record_at(self.log, at)? {
                    self.next = at;
                    return Ok(true);
                }
                at += 1;
                continue;
            };
            let file_end =
                file.base_offset.saturating_add(self.log.run().file_size()).min(self.end);
            if at == file.base_offset && whole_record_at(self.log, at)? {
                self.next = at;
                return Ok(true);
            }
            match self.find_whole(at, file_end)? {
                Some(found) => {
                    self.next = found;
                    return Ok(true);
                }
                None => at = file_end,
            }
        }
        self.next = self.end;
        Ok(false)
    }

    /// The same as [`Scanner::resync`], but no further than the end of the file: a file begins with
    /// a record, so the walk goes on there in any case. Behind a gap between files it stands at the
    /// next one.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn resync_in_file(&mut self) -> Result<()> {
        self.file = None;
        let at = self.next;
        let Some(file) = self.log.run().find(at) else {
            let files = self.log.run().files();
            let behind = files.partition_point(|file| file.base_offset <= at);
            self.next = files.get(behind).map_or(self.end, |later| later.base_offset.min(self.end));
            return Ok(());
        };
        let file_end = file.base_offset.saturating_add(self.log.run().file_size()).min(self.end);
        self.next = self.find_whole(at.saturating_add(1), file_end)?.unwrap_or(file_end);
        Ok(())
    }

    /// The first whole record in `at..file_end`.
    fn find_whole(&mut self, at: u64, file_end: u64) -> Result<Option<u64>> {
        self.find_in_file(at, file_end, |log, place| {
            Ok(whole_record_at(log, place)?.then_some(place))
        })
    }

    /// The first place in `at..file_end` where a record of that place seems to begin and `accept`
    /// has an answer.
    pub(super) fn find_in_file<T>(
        &mut self,
        mut at: u64,
        file_end: u64,
        mut accept: impl FnMut(&CommitLog, u64) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut candidates = Vec::new();
        let mut block = vec![0; BLOCK];
        while at < file_end {
            let len = usize::try_from(file_end - at).unwrap_or(usize::MAX).min(BLOCK);
            let read = self.log.run().read_at(block.get_mut(..len).unwrap_or_default(), at)?;
            let bytes = block.get(..read).unwrap_or_default();
            if bytes.len() < peek::SIGNATURE {
                return Ok(None);
            }
            candidates.clear();
            for (position, bytes) in bytes.windows(peek::SIGNATURE).enumerate() {
                let place = at + position as u64;
                if peek::is_record(bytes) && peek::names_place(bytes, place) {
                    candidates.push((place, peek::claimed_size(bytes).unwrap_or(0)));
                }
            }
            let scanned = (bytes.len() - peek::SIGNATURE + 1) as u64;
            for &(candidate, claim) in &candidates {
                // Bytes made to look like records must not cost more than records do.
                let claim = claim as u64;
                if claim > self.fuel && claim > SMALL {
                    continue;
                }
                self.fuel = self.fuel.saturating_sub(claim);
                if let Some(found) = accept(self.log, candidate)? {
                    return Ok(Some(found));
                }
            }
            at += scanned;
        }
        Ok(None)
    }
}

fn whole_record_at(log: &CommitLog, at: u64) -> Result<bool> {
    let mut buffer = Vec::new();
    Ok(match log.read(at, 0, &mut buffer)? {
        Found::Message(view) => view.check_body_crc().is_ok(),
        _ => false,
    })
}

/// Nothing written where a record must lie.
#[must_use]
pub fn zeros(log: &CommitLog, at: u64) -> Corruption {
    let file = log.run().find(at);
    Corruption {
        path: file.as_ref().map(|file| file.path.clone()),
        offset: file.map_or(at, |file| at.saturating_sub(file.base_offset)),
        kind: CorruptionKind::Size,
        expected: "a record".to_owned(),
        found: "zeros".to_owned(),
    }
}

/// What is left of a block of `filled` bytes from the place `at` on.
#[inline]
fn rest(block: &[u8], filled: usize, start: u64, at: u64) -> &[u8] {
    at.checked_sub(start)
        .and_then(|skip| usize::try_from(skip).ok())
        .and_then(|skip| block.get(skip..filled))
        .unwrap_or_default()
}

fn damage(file: &RunFile, at: u64, error: FormatError) -> Stop {
    let mut corruption = error.into_corruption();
    corruption.path = Some(file.path.clone());
    corruption.offset = corruption.offset.saturating_add(at - file.base_offset);
    Stop::Damage(corruption)
}
