//! Where a log ends (`docs/format.md`, Rules of all readers).

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::error::Result;
use crate::files::{FileRun, RunFile, SystemClock, each_data};
use crate::format::bytes::are_zeros;
use crate::format::message::MessageView;
use crate::format::message::peek;
use crate::time::{Clock, FAR_MS};

use super::frames::{FrameAt, FrameReader, is_own};
use super::scanner::{Flow, Item, Resync, Scanner, Stop};
use crate::log::commit_log::{CommitLog, Found};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    Closed,
    /// The writer crashed, or does not tell how far it is.
    Open,
    /// A writer wrote everything before this offset.
    InUse(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    pub offset: u64,
    /// A last record that lacks bytes, or is damaged in a closed log.
    pub left_out: Option<u64>,
}

/// The part of the log known to be flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Everything before this offset, by the durable mark.
    pub offset: u64,
    /// Everything stored before this time, by the checkpoint; `i64::MIN` if only the mark counts.
    pub before_ms: i64,
}

impl Flushed {
    #[inline]
    #[must_use]
    pub const fn covers(self, physical_offset: u64, store_timestamp_ms: i64) -> bool {
        physical_offset < self.offset || store_timestamp_ms < self.before_ms
    }

    /// Whether the message may have been flushed: the checkpoint's time is that of one that was.
    #[must_use]
    pub const fn may_cover(self, physical_offset: u64, store_timestamp_ms: i64) -> bool {
        physical_offset < self.offset || store_timestamp_ms <= self.before_ms
    }

    /// Whether the session that crashed wrote the mark: nothing behind it is known to be durable.
    #[must_use]
    pub const fn is_by_mark_alone(self) -> bool {
        self.before_ms == i64::MIN
    }

    /// Whether a whole record behind damage belongs to the log, and is no remainder of a recycled
    /// file: these are older than `newest_ms`. Clocks step back, so queues may know an older one.
    pub fn proves(
        self,
        physical_offset: u64,
        store_timestamp_ms: i64,
        newest_ms: i64,
        is_known: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        if physical_offset < self.offset {
            return Ok(true);
        }
        Ok(self.may_cover(physical_offset, store_timestamp_ms)
            && (store_timestamp_ms >= newest_ms || is_known()?))
    }
}

/// Searches from the last file that begins with a record, or from `known`, a later record. `is_known`
/// says whether queues have a record.
pub fn find(
    log: &CommitLog,
    state: LogState,
    known: Option<u64>,
    mut is_known: impl FnMut(&MessageView<'_>) -> Result<bool>,
) -> Result<LogEnd> {
    let files = log.run().files();
    let files_end = log.run().end_offset().unwrap_or(0);
    let mut start = log.run().min_offset().unwrap_or(0);
    let mut buffer = Vec::new();
    for file in files.iter().rev() {
        if known.is_some_and(|known| file.base_offset <= known) {
            break;
        }
        let found = log.read_before(file.base_offset, files_end, 0, &mut buffer)?;
        if matches!(found, Found::Message(_)) {
            start = file.base_offset;
            break;
        }
    }
    let mut end = start.max(known.unwrap_or(0));
    let (mut newest_ms, mut last) = (0, None);
    let any_time = Flushed { offset: 0, before_ms: i64::MAX };
    // A record of the future makes no other one older.
    let latest_ms = SystemClock.now_ms().saturating_add(FAR_MS);
    let mut scanner = Scanner::new(log, end, files_end, false);
    loop {
        let stop = scanner.each(log, files_end, Resync::Never, |range, item| {
            match item {
                Item::Record(view, _) => {
                    let time = view.store_timestamp_ms();
                    if range.start != end
                        && !any_time.proves(range.start, time, newest_ms, || is_known(view))?
                    {
                        return Ok(Flow::Continue);
                    }
                    if time <= latest_ms {
                        newest_ms = newest_ms.max(time);
                    }
                    (end, last) = (range.end, Some(range.start));
                }
                Item::Blank if range.start == end => end = range.end,
                _ => {}
            }
            Ok(Flow::Continue)
        })?;
        let is_written = matches!(state, LogState::InUse(written) if written <= end);
        let at = scanner.position();
        match stop {
            None | Some(Stop::End) => break,
            Some(Stop::Empty) if at == end && is_written => break,
            Some(Stop::Empty) if log.run().is_empty_from(at)? => break,
            _ if !scanner.resync(log, Resync::Anywhere)? => break,
            _ => {}
        }
    }
    let mut left_out = None;
    if let Some(begin) = last
        && let Some(file) = log.run().find(begin)
        && let Some(is_news) = is_left_out(log.run(), &file, begin..end, state)?
    {
        end = begin;
        left_out = is_news.then_some(begin);
    }
    Ok(LogEnd { offset: end, left_out })
}

/// Whether the log's last record is left out: it is being written, or a power cut tore it. If so, says
/// whether that is news.
pub fn is_left_out(
    log: &FileRun,
    file: &Arc<RunFile>,
    record: Range<u64>,
    state: LogState,
) -> Result<Option<bool>> {
    let begin = record.start;
    let Some(open) = log.open_if_there(file)? else { return Ok(Some(false)) };
    let reader = FrameReader::over(open, file, log.file_size());
    let mut reader = reader.until(record.end.saturating_sub(file.base_offset));
    let record = match reader.read(begin.saturating_sub(file.base_offset), true)? {
        FrameAt::Record(record) if is_own(&record.view, begin) => record,
        _ => return Ok(Some(false)),
    };
    let is_closed = state == LogState::Closed;
    if record.body_fault().is_some() {
        return Ok(Some(is_closed));
    }
    Ok((!is_closed && peek::lacks_bytes(&record.view, record.size)).then_some(true))
}

/// End of the last non-zero byte from `end` on.
pub fn data_end(log: &CommitLog, end: u64) -> Result<Option<u64>> {
    let (run, mut found) = (log.run(), None);
    for file in run.files().iter() {
        let (base, places) =
            (file.base_offset, end.saturating_sub(file.base_offset)..run.file_size());
        if places.is_empty() {
            continue;
        }
        // One that is gone does not count as zeros.
        let _ = each_data(&*run.open(file)?, &file.path, places, |at, bytes| {
            found = len_without_zeros(bytes).map(|len| base + at + len as u64).or(found);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(found)
}

fn len_without_zeros(bytes: &[u8]) -> Option<usize> {
    const PART: usize = 1024;
    let number = bytes.chunks(PART).rposition(|part| !are_zeros(part))?;
    let part = bytes.chunks(PART).nth(number)?;
    Some(number * PART + part.iter().rposition(|&byte| byte != 0)? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_at_the_end_are_left_out() {
        let mut bytes = vec![0; 5000];
        assert_eq!(len_without_zeros(&bytes), None);
        assert_eq!(len_without_zeros(&[]), None);
        for last in [0, 1, 1023, 1024, 4095, 4999] {
            bytes[last] = 1;
            assert_eq!(len_without_zeros(&bytes), Some(last + 1));
        }
    }
}
