//! State of a store before opening for writing changes it: the log's end, and where queues and
//! index differ from it.

use std::ops::ControlFlow;

use crate::config::StoreConfig;
use crate::error::{Corruption, Result};
use crate::format::checkpoint::CheckpointFields;
use crate::format::message::BLANK_LEN;
use crate::format::release::Release;
use crate::format::width::{clamp_u64, saturating_i64};
use crate::log::CommitLog;
use crate::log::index::run::IndexRun;
use crate::log::read::scanner::{Flow, Resync, Scanner, Stop};

use super::epoch::EndedEpoch;
use super::tail::Tail;
use crate::store::dispatch::collect::{self, Wanted};
use crate::store::dispatch::index_audit::IndexAudit;
use crate::store::dispatch::log_parts::{Checked, LastParts, LogReading};
use crate::store::dispatch::queue_audit::{Audit, QueueFinding};
use crate::store::folder::mark::Flushed;
use crate::store::folder::paths::StorePaths;
use crate::store::folder::seal::Seal;
use crate::store::progress::{Progress, report_progress};
use crate::store::queue_table::QueueTable;
use crate::store::recovery_report::{RecoveryMode, RecoveryReport};

const STEP: u64 = 16 << 20;

/// A shorter log is rewritten after its end is known.
const LONG: u64 = 16 << 20;

#[derive(Debug, Default)]
pub struct Analysis {
    pub end: u64,
    pub stop: Option<Corruption>,
    /// Newest store time that is not far in the future.
    pub newest_timestamp_ms: i64,
    /// First record from the future, and its store time.
    pub ahead: Option<(i64, i64)>,
    pub last_record: Option<u64>,
    /// From here on the log may be unflushed.
    pub unproven: u64,
    pub tail: Tail,
    pub ended: Option<EndedEpoch>,
    pub queues: Vec<QueueFinding>,
    pub first_missing: Option<u64>,
    /// First and last record that the index must hold: with a key, or with tags if none has a key.
    pub keyed: Option<(u64, u64)>,
    /// First index file that differs from the log.
    pub unsound_index: Option<u64>,
    /// Data of the last records, for dispatch.
    pub read: LastParts,
    /// Whether a valid seal says all of it, and everything is durable.
    pub sealed: bool,
}

impl Analysis {
    pub(super) fn report(&self, mode: RecoveryMode) -> RecoveryReport {
        RecoveryReport {
            mode,
            end_physical_offset: self.end,
            cut_bytes: self.tail.data_end.map_or(0, |end| end - self.end),
            cut_reason: self.tail.data_end.and(self.stop.clone()),
            quarantine: None,
            quarantined_messages: self.tail.messages.clone(),
            quarantined_count: self.tail.count,
            rebuilt: Vec::new(),
            dispatched: 0,
        }
    }
}

#[derive(Debug)]
pub struct FoundStore<'a> {
    pub paths: &'a StorePaths,
    pub config: &'a StoreConfig,
    pub log: &'a CommitLog,
    pub queues: &'a QueueTable,
    pub index: Option<&'a IndexRun>,
    /// The checkpoint: times up to which parts were flushed.
    pub checkpoint: &'a CheckpointFields,
    /// The part of the log known to be flushed.
    pub flushed: Flushed,
    pub ended: Option<EndedEpoch>,
    pub is_clean: bool,
    pub seal: Option<Seal>,
    /// Later store times are in the future.
    pub latest_ms: i64,
}

impl FoundStore<'_> {
    /// Index files with later messages are not known to be complete.
    #[must_use]
    pub fn index_trusted_until_ms(&self) -> i64 {
        if self.is_clean { i64::MAX } else { self.checkpoint.index_msg_timestamp_ms }
    }

    /// Whether the log is long and not known to be flushed at all: then damage is not refused, and
    /// the log is rewritten.
    #[must_use]
    pub fn is_all_unproven(&self) -> bool {
        let bytes = self.log.end_offset().saturating_sub(self.log.min_offset());
        let Flushed { offset, before_ms } = self.flushed;
        before_ms <= 0 && offset <= self.log.min_offset() && bytes >= LONG
    }

    /// Uses a valid seal, or reads the whole log and compares queues and index with it. Changes
    /// nothing.
    pub fn analyse(&self, progress: &mut Progress<'_>) -> Result<Analysis> {
        if let (Some(seal), None) = (&self.seal, &self.ended)
            && let Some(analysis) = self.sealed(seal)?
        {
            return Ok(analysis);
        }
        self.read_log(progress)
    }

    /// Uses a seal if no record begins at its end and no entry leads past it.
    ///
    /// A seal implies zeros behind the end, and later changes break it. But some file systems do
    /// not update a file's time on writes through a map; such a writer continued at the end. A
    /// power cut may keep the old time beside new data, in queues and index sooner than in the log:
    /// only our own `abort` survives it.
    fn sealed(&self, seal: &Seal) -> Result<Option<Analysis>> {
        let (log, end) = (self.log, seal.end);
        let first = end.saturating_add(BLANK_LEN as u64);
        let mut scanner = Scanner::new(log, end, first.min(log.end_offset()), true);
        let stop = scanner.each(log, u64::MAX, Resync::Never, |_, _| Ok(Flow::Stop))?;
        if end > log.end_offset() || !matches!(stop, Some(Stop::End | Stop::Empty)) {
            return Ok(None);
        }
        let past = saturating_i64(end);
        // Queues tell where their last message ends, the index where it begins.
        let indexed = self.index.map_or(Ok(None), IndexRun::last_keyed_offset)?;
        if indexed.is_some_and(|begin| begin >= past)
            || self.queues.all().iter().any(|queue| queue.reach() > past)
        {
            return Ok(None);
        }
        Ok(Some(Analysis {
            end,
            newest_timestamp_ms: seal.newest_timestamp_ms.min(self.latest_ms),
            unproven: end,
            sealed: true,
            ..Analysis::default()
        }))
    }

    fn read_log(&self, progress: &mut Progress<'_>) -> Result<Analysis> {
        let (log, queues) = (self.log, self.queues);
        let begin = self.ended.map_or(u64::MAX, |ended| ended.next.begin);
        let (from, log_end) = (log.min_offset(), log.end_offset().min(begin));
        let checked =
            if self.config.check_crc_on_recover { Checked::All } else { Checked::Nothing };
        let until_ms = self.index_trusted_until_ms();
        let mut index = self.index.map(|index| IndexAudit::new(index, until_ms)).transpose()?;
        let mut audit = Audit::new(queues);
        let wanted = Wanted {
            with_index: index.is_some(),
            with_tags: self.config.rocketmq_version.is_some_and(Release::has_tag_entries),
            with_surplus_keys: true,
            latest_ms: self.latest_ms,
            ..Wanted::all(queues)
        };
        let reading = LogReading::new(log.run(), wanted, log_end, checked).flushed(self.flushed);
        let mut found = Analysis::default();
        let (mut keyed, mut unproven) = (Keyed::default(), None);
        let mut reported = from;
        let (end, stop) = reading.each(from, &mut |part| {
            let at = part.begin;
            if at - reported >= STEP {
                reported = at;
                report_progress(
                    progress,
                    (at - from, log_end - from),
                    "recover",
                    self.paths.root(),
                )?;
            }
            let collected = &part.collected;
            audit.check_all(collected)?;
            if let Some(index) = &mut index {
                index.check_all(collected)?;
            }
            keyed.read(&collected.keyed);
            let newest_ms = &mut found.newest_timestamp_ms;
            *newest_ms = collected.newest_ms.max(*newest_ms);
            found.ahead = found.ahead.or(collected.ahead);
            found.last_record = part.last_record.or(found.last_record);
            unproven = unproven.or(part.unproven);
            found.read.keep(part, &reading.spare);
            Ok(ControlFlow::Continue(()))
        })?;
        found.end = end;
        found.ended = self.ended.filter(|_| end == begin);
        found.stop = match (found.ended, stop) {
            (Some(ended), _) => Some(ended.damage(log)),
            (None, Some(Stop::Damage(corruption))) => Some(corruption),
            _ => None,
        };
        let (newest_ms, is_ended) = (found.newest_timestamp_ms, found.ended.is_some());
        found.tail = Tail::read(log, queues, end, newest_ms, self.flushed, is_ended)?;
        // A time that no message reaches proves nothing.
        let marked = self.flushed.offset.min(end);
        found.unproven = if self.is_clean { end } else { unproven.unwrap_or(from).max(marked) };
        found.queues = audit.findings(from)?;
        found.first_missing = audit.first_missing();
        found.keyed = keyed.span(self.is_clean);
        found.unsound_index = index.and_then(|index| index.unsound_from());
        Ok(found)
    }
}

#[derive(Default)]
struct Keyed {
    keys: Option<(u64, u64)>,
    any: Option<(u64, u64)>,
}

impl Keyed {
    fn read(&mut self, records: &[collect::Keyed]) {
        let join = |span: &mut Option<(u64, u64)>, is_own: fn(&collect::Keyed) -> bool| {
            let own = records.iter().filter(|record| is_own(record));
            let mut offsets = own.map(|record| clamp_u64(record.physical_offset));
            if let Some(first) = offsets.next() {
                let last = offsets.next_back().unwrap_or(first);
                *span = Some((span.map_or(first, |(first, _)| first), last));
            }
        };
        join(&mut self.any, |record| record.keys > 0);
        join(&mut self.keys, |record| record.keys > u32::from(record.has_tags));
    }

    /// The part that the index must hold. RocketMQ 5.3 puts no entry for tags; after a clean stop
    /// nothing else is missing.
    fn span(&self, is_clean: bool) -> Option<(u64, u64)> {
        let any = self.any?;
        let keys = self.keys.unwrap_or(any);
        Some(if is_clean { keys } else { (keys.0, any.1) })
    }
}
