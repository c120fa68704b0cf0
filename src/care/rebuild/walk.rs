//! Reads the log for queues and index: which records belong to it, and where it ends.

use std::path::Path;

use crate::care::meter::Meter;
use crate::error::Result;
use crate::files::FileRun;
use crate::log::read::end::{Left, is_left_out};
use crate::log::read::evidence::Budget;
use crate::log::read::file_walk::next_of_log;
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::gather::Gathered;
use crate::store::dispatch::log_parts::{LogPart, LogReading};
use crate::store::dispatch::queue_audit::is_known;
use crate::store::folder::mark::Flushed;
use crate::store::progress::interrupted;
use crate::store::queue_table::QueueTable;

const MOST_DAMAGED: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct LogSummary {
    pub(super) end: u64,
    pub(super) records: u64,
    pub(super) newest_ms: i64,
    /// Ranges of the log without messages, although messages follow.
    pub(super) damaged: Vec<(u64, u64)>,
    pub(super) left_out: u64,
    whole_from: u64,
}

impl LogSummary {
    /// Passes what belongs to the log to `take` in order.
    pub(super) fn read(
        (log, reading): (&FileRun, &LogReading<'_>),
        (queues, flushed): (&QueueTable, Flushed),
        (threads, root, meter): (usize, &Path, &Meter),
        mut take: impl FnMut(Gathered) -> Result<()>,
    ) -> Result<Self> {
        let start = log.min_offset().unwrap_or(0);
        let mut summary = Self { end: start, whole_from: start, ..Self::default() };
        let mut budget = Budget::new(start);
        // Its last record may turn out to be left out.
        let mut last: Option<LogPart> = None;
        let mut newest_ms = 0;
        reading.each_part(start, threads, root, |mut part| {
            summary.end = part.end;
            part.gathered.whole_from = summary.whole_from;
            meter.advance(part.end - part.begin);
            if meter.is_cancelled() {
                return Err(interrupted("rebuild", root));
            }
            newest_ms = newest_ms.max(part.gathered.newest_ms);
            let stop = part.stop.take();
            if part.last_record.is_some()
                && let Some(before) = last.replace(part)
            {
                summary.add(&before.gathered);
                take(before.gathered)?;
            }
            if stop.is_none() {
                return Ok(Some(summary.end));
            }
            let next = next_of_log(log, summary.end, &mut budget, |place, view| {
                let is_known = || is_known(queues, &DispatchRequest::of(view));
                flushed.proves(place, view.store_timestamp_ms(), newest_ms, is_known)
            })?;
            if let Some(next) = next {
                if summary.damaged.len() < MOST_DAMAGED {
                    summary.damaged.push((summary.end, next));
                }
                (summary.end, summary.whole_from) = (next, next);
            }
            Ok(next)
        })?;
        // Records that lack bytes ended the reading.
        let Some(mut part) = last else { return Ok(summary) };
        if let Some(begin) = part.last_record
            && let Some(file) = log.find(begin)
            && is_left_out(log, &file, begin..u64::MAX, Left::Closed)?.is_some()
        {
            summary.end = begin;
            summary.damaged.retain(|(from, _)| *from < begin);
            let whole_from = part.gathered.whole_from;
            part = reading.read(&file, part.begin..begin, true)?.unwrap_or_default().1;
            part.gathered.whole_from = whole_from;
        }
        summary.add(&part.gathered);
        take(part.gathered)?;
        Ok(summary)
    }

    fn add(&mut self, gathered: &Gathered) {
        self.records += gathered.records;
        self.newest_ms = self.newest_ms.max(gathered.newest_ms);
        self.left_out += gathered.left_out;
    }
}
