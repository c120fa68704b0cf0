//! Reads the log between index files, and before the first. An index file begins with the first
//! message that has a key, so only the log tells whether a file is missing; each part is read once.

use std::ops::Range;

use super::reader::Reader;
use crate::error::{Error, Result};
use crate::format::width::clamp_u64;
use crate::log::IndexRun;
use crate::log::commit_log::Found;
use crate::log::commit_log::join;
use crate::log::index::run::Between;
use crate::log::read::scanner::{Flow, Item, Resync, Scanner, Stop};
use crate::store::dispatch::dispatcher::DispatchRequest;

/// Bytes of log read per query in place of damaged or missing index files.
pub(super) const MOST_READ: u64 = 1 << 30;

impl Reader {
    pub(crate) fn part_between(&self, between: &Between) -> Result<Range<u64>> {
        let to = clamp_u64(between.newer.begin_physical_offset).min(self.readable_end());
        let from = match &between.older {
            Some(older) => self.behind(older.end_physical_offset, to)?,
            None => self.log().min_offset(),
        };
        Ok(from..to)
    }

    /// Where the message behind the one at `at` begins, or the file if none begins there.
    pub(crate) fn behind(&self, at: i64, limit: u64) -> Result<u64> {
        let (log, at) = (self.log(), clamp_u64(at));
        if at < log.min_offset() || at >= limit {
            return Ok(at.max(log.min_offset()));
        }
        Ok(match log.read(at, 0, &mut Vec::new())? {
            Found::Message(view) => at.saturating_add(u64::from(view.store_size())),
            _ => log.run().find(at).map_or(log.min_offset(), |file| file.base_offset),
        })
    }

    /// Reads a part up to a message with keys, at most `most` bytes, which it lowers. Returns the
    /// rest that may have such messages.
    pub(crate) fn read_unindexed(&self, part: Range<u64>, most: &mut u64) -> Result<Range<u64>> {
        let (rest, is_keyed) = self.coverage.rest(part.clone());
        if rest.is_empty() || is_keyed {
            return Ok(rest);
        }
        let log = self.log();
        let until = rest.start.saturating_add(*most).min(rest.end);
        let mut scanner = Scanner::new(log, rest.start, self.readable_end(), false);
        let (mut keyed, mut read) = (None, rest.start);
        let stop = scanner.each(log, until, Resync::Never, |range, item| match item {
            Item::Record(view, _) if has_keys(&DispatchRequest::of(view)) => {
                keyed = Some(range.start);
                Ok(Flow::Stop)
            }
            _ => {
                read = range.end;
                Ok(Flow::Continue)
            }
        })?;
        if let Some(Stop::Empty | Stop::Damage(_)) = stop {
            log.lose(read..read + 1);
        }
        *most = most.saturating_sub(read - rest.start);
        self.note_read(&part, rest.start..read.min(rest.end), keyed);
        Ok(self.coverage.rest(part).0)
    }

    /// Remembers a part that was read, and warns of the first message that no index file has.
    pub(crate) fn note_read(&self, part: &Range<u64>, read: Range<u64>, keyed: Option<u64>) {
        if self.coverage.note(read, keyed) {
            let index = self.files.paths.index();
            self.files.notices.push(format!(
                "{}: no index file has the keys of messages from physical offset {} to {}: queries by key read \
                 this part of the log, up to 1 GiB, and are not complete beyond that; `mqstore rebuild \
                 --what index --apply` makes the index again",
                index.display(),
                part.start,
                part.end
            ));
        }
    }
}

/// Parts of the log from `oldest` on with keys that no index file has, as far as store times of
/// `span` need them.
pub(super) fn not_indexed(
    reader: &Reader,
    index: &IndexRun,
    span: (i64, i64),
    oldest: u64,
) -> Result<Vec<Range<u64>>> {
    let (listing, end) = (index.listing(), reader.readable_end());
    if reader.coverage.is_whole(&listing, if reader.is_writers() { 0 } else { end }) {
        return Ok(Vec::new());
    }
    let (mut left_out, mut is_whole, mut most) = (Vec::new(), true, MOST_READ);
    let mut read = |part: Range<u64>, is_needed: bool| {
        let rest = if part.is_empty() { part } else { reader.read_unindexed(part, &mut most)? };
        is_whole &= rest.is_empty();
        if is_needed && !rest.is_empty() {
            join(&mut left_out, rest);
        }
        Ok::<_, Error>(())
    };
    if !reader.is_writers() {
        let last = listing.files.last().and_then(|file| index.sound_header(file));
        let from = last.map_or(Ok(0), |header| reader.behind(header.end_physical_offset, end))?;
        let is_needed = last.is_none_or(|header| header.end_timestamp_ms <= span.1);
        read(from.max(reader.log().min_offset())..end, is_needed)?;
    }
    for place in (0..listing.files.len()).rev() {
        let Some(between) = index.between(&listing.files, place) else { continue };
        if clamp_u64(between.newer.begin_physical_offset) <= oldest && oldest > 0 {
            return Ok(left_out);
        }
        read(reader.part_between(&between)?, is_within(&between, span.0, span.1))?;
    }
    if is_whole && !listing.files.is_empty() {
        reader.coverage.set_whole(&listing, end);
    }
    Ok(left_out)
}

pub(crate) fn has_keys(request: &DispatchRequest<'_>) -> bool {
    request.key_hashes().next().is_some()
}

pub(crate) fn is_within(between: &Between, begin_ms: i64, end_ms: i64) -> bool {
    let from = between.older.as_ref().map_or(i64::MIN, |older| older.end_timestamp_ms);
    from <= end_ms && begin_ms <= between.newer.begin_timestamp_ms
}
