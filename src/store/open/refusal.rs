//! Decides whether a store is opened for writing: opening, `recover` and `doctor` all ask here.

use std::path::PathBuf;

use crate::config::StoreConfig;
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::{Access, FileRun};
use crate::format::checkpoint::CheckpointFields;
use crate::format::file_name::offset_name;
use crate::format::width::clamp_u64;
use crate::log::commit_log::Found;
use crate::log::index::run::IndexRun;
use crate::log::read::anchor::Anchor;
use crate::log::read::damage::{not_expected, zeros};
use crate::log::{CommitLog, StoreCheckpoint};
use crate::time::FAR_MS;

use super::analysis::{Analysis, FoundStore};
use super::epoch::EndedEpoch;
use super::inspect::{Parts, load_parts};
use super::misplaced;
use crate::log::read::end::data_end;
use crate::store::folder::lock::{self, StoreLock};
use crate::store::folder::mark::Mark;
use crate::store::folder::paths::StorePaths;
use crate::store::queue_table::QueueTable;
use crate::store::read::missing_end::{MissingEnd, MissingFiles};
use crate::store::store_files::StoreFiles;

#[derive(Clone, Debug)]
pub struct Refusal {
    pub damage: Corruption,
    pub messages_beyond: u64,
    /// Whether `--drop-beyond` ends the log there.
    pub can_cut: bool,
    pub why: Why,
}

#[derive(Clone, Debug)]
pub enum Why {
    Damage,
    /// Files of the log are missing, too short, or in the wrong place.
    Files,
    Missing(MissingEnd),
    /// The log is DLedger's, in this folder.
    Ledger(PathBuf),
    Ended(EndedEpoch),
}

impl Refusal {
    pub(super) fn uncut(damage: Corruption, why: Why) -> Self {
        Self { damage, messages_beyond: 0, can_cut: false, why }
    }

    pub(super) fn of_files(paths: &StorePaths, log: &FileRun) -> Result<Option<Self>> {
        let foreign = misplaced::foreign(paths, log)?;
        let refused = |(damage, ledger): (_, Option<_>)| {
            Self::uncut(damage, ledger.map_or(Why::Files, Why::Ledger))
        };
        Ok(foreign.map(refused))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Corrupt(Box::new(refusal.damage))
    }
}

impl FoundStore<'_> {
    /// Decides whether repair would hide the loss of messages that may have been durable.
    pub fn refusal(&self, analysis: &Analysis) -> Result<Option<Refusal>> {
        let (damage, why) = if let Some(ended) = analysis.ended {
            (ended.refused(self.log), Why::Ended(ended))
        } else if let Some(missing) = self.missing_end(analysis)? {
            (gone(self.log, &missing), Why::Missing(missing))
        } else if analysis.tail.flushed > 0 || analysis.end < self.flushed.offset {
            (self.damage(analysis), Why::Damage)
        } else {
            return Ok(None);
        };
        let messages_beyond = analysis.tail.count;
        Ok(Some(Refusal { damage, messages_beyond, can_cut: true, why }))
    }

    fn missing_end(&self, analysis: &Analysis) -> Result<Option<MissingEnd>> {
        let (run, end, offset) = (self.log.run(), analysis.end, self.flushed.offset);
        let files_end = run.end_offset().unwrap_or(0);
        if files_end < offset {
            let known = MissingEnd::find(self.log, files_end, self.queues, self.index)?;
            let missing = known.unwrap_or_else(|| MissingEnd::behind_files(run, offset));
            return Ok(Some(MissingEnd { reach: missing.reach.max(offset), ..missing }));
        }
        // Our writer makes the name of a file durable before any entry leads into it.
        let by_mark_alone = self.flushed.is_by_mark_alone();
        // Entries behind damage may lead to the whole messages there.
        let in_files = by_mark_alone || analysis.tail.count > 0;
        let from = if in_files { files_end } else { end };
        let index = self.index.filter(|_| !by_mark_alone);
        let known = MissingEnd::find(self.log, from, self.queues, index)?;
        let Some(known) = known.or_else(|| {
            let newer = analysis.newest_timestamp_ms.saturating_add(1)..=self.latest_ms;
            by_checkpoint(self.checkpoint, run)
                .filter(|_| newer.contains(&self.checkpoint.physic_msg_timestamp_ms))
        }) else {
            return Ok(None);
        };
        // A damaged last message is an unclean end.
        let is_last_alone = analysis.tail.data_end.is_some() && known.messages() <= 1;
        if known.reach <= files_end && (is_last_alone || self.is_never_durable(analysis)) {
            return Ok(None);
        }
        let newest_ms = analysis.newest_timestamp_ms;
        // A crash may lose the name of a new file that RocketMQ's queues already lead into.
        let is_new = !run.files().is_empty()
            && !self.is_clean
            && !by_mark_alone
            && known.reach <= end.saturating_add(run.file_size())
            && (1..newest_ms).contains(&self.flushed.before_ms);
        Ok(Some(known).filter(|_| !is_new))
    }

    /// Whether messages behind the end, in a file that is there, were never durable: they lie behind
    /// our mark, or after a crash without a mark they are newer than the checkpoint.
    fn is_never_durable(&self, analysis: &Analysis) -> bool {
        let Self { flushed, checkpoint, .. } = self;
        let is_newer = analysis.newest_timestamp_ms >= checkpoint.physic_msg_timestamp_ms;
        // The mark is at the beginning of the last message, or behind it.
        let last = analysis.last_record.unwrap_or(analysis.end);
        match self.is_clean {
            true => {
                is_newer && flushed.offset > 0 && (last..=analysis.end).contains(&flushed.offset)
            }
            false => flushed.is_by_mark_alone() || is_newer,
        }
    }

    fn damage(&self, analysis: &Analysis) -> Corruption {
        let (log, offset) = (self.log, self.flushed.offset);
        let marked = match analysis.end < offset {
            true => format!(" (all before {offset} was durable)"),
            false => String::new(),
        };
        let stop = analysis.stop.clone().unwrap_or_else(|| Corruption {
            kind: CorruptionKind::Magic,
            ..zeros(log, analysis.end)
        });
        let found = format!(
            "{} at physical offset {}; {} whole messages lie beyond{marked}, so nothing was changed: \
             `mqstore salvage` copies them out, `mqstore recover --apply --drop-beyond` cuts there and \
             keeps them aside",
            stop.found, analysis.end, analysis.tail.count
        );
        Corruption { found, ..stop }
    }
}

/// Refuses a rebuild if the log is not in its place, ends with an epoch, or queues know more.
pub fn refuse_missing_end(
    paths: &StorePaths,
    config: &StoreConfig,
    end: Option<u64>,
) -> Result<()> {
    let parts = load_parts(paths, &mut config.clone(), Access::Read);
    let Ok(Parts { log, queues, .. }) = parts else { return Ok(()) };
    misplaced::refuse_foreign(paths, log.run())?;
    if let Some(ended) = EndedEpoch::find(paths, &log, &queues)? {
        return Err(Error::Corrupt(Box::new(ended.refused(&log))));
    }
    let end = end.filter(|_| matches!(lock::was_aborted(paths), Ok(false)));
    let missing = match missing_behind(&log, &queues, None) {
        Ok(None) => end.map_or(Ok(None), |end| zeros_behind(&log, &queues, end)),
        other => other,
    };
    match missing {
        Ok(Some(missing)) => Err(Error::Corrupt(Box::new(gone(&log, &missing)))),
        _ => Ok(()),
    }
}

fn missing_behind(
    log: &CommitLog,
    queues: &QueueTable,
    index: Option<&IndexRun>,
) -> Result<Option<MissingEnd>> {
    let end = log.run().end_offset().unwrap_or(0);
    match MissingEnd::find(log, end, queues, index)? {
        None => MissingEnd::before_spares(log, queues, index),
        missing => Ok(missing),
    }
}

fn zeros_behind(log: &CommitLog, queues: &QueueTable, end: u64) -> Result<Option<MissingEnd>> {
    let missing = MissingEnd::find(log, end, queues, None)?;
    Ok(if missing.is_some() && data_end(log, end)?.is_none() { missing } else { None })
}

pub(super) fn missing_files(files: &StoreFiles, was_held: bool) -> Result<Option<MissingFiles>> {
    let StoreFiles { log, queues, paths, index, .. } = files;
    if let Some(Refusal { damage, .. }) = Refusal::of_files(paths, log.run())? {
        return Ok(Some(MissingFiles { corruption: damage, queues: Vec::new() }));
    }
    let is_closed = || matches!(lock::was_aborted(paths), Ok(false));
    let end = log.end_offset();
    // Behind a URL the mark of a closed store costs a request; all its queues know its end.
    let is_known = paths.storage.is_remote() && !queues.is_lazy() && is_closed();
    let mark = match is_known && MissingEnd::find(log, end, queues, None)?.is_none() {
        true => None,
        false => Mark::read(paths).ok().flatten(),
    };
    let mark = mark.map_or(0, |mark| mark.offset);
    let from = log.run().end_offset().unwrap_or(0);
    let by_mark = || MissingEnd::behind_files(log.run(), mark);
    let missing = missing_behind(log, queues, index.as_deref())?;
    let missing = missing.or_else(|| (from < mark).then(by_mark));
    let mut missing = missing.filter(|missing| !is_made(files, missing.from));
    if missing.is_none() && is_closed() {
        missing = zeros_behind(log, queues, end)?;
    }
    let missing = missing.map(|missing| {
        let corruption = gone(log, &missing);
        MissingFiles { corruption, queues: missing.queues }
    });
    // A writer, perhaps on another machine, may have gone on since the end was found.
    if missing.is_some()
        || was_held
        || StoreLock::is_held(paths)
        || goes_on_at(log, end)?
        || is_made(files, from)
    {
        return Ok(missing);
    }
    if end < mark {
        return Ok(Some(unread_before_mark(log, end, mark)));
    }
    // An unreadable one is reported by the view.
    let checkpoint = StoreCheckpoint::load(paths.storage(), &paths.checkpoint(), Access::Read);
    let Ok(StoreCheckpoint { fields: checkpoint, .. }) = checkpoint else { return Ok(None) };
    let Some(known) = by_checkpoint(&checkpoint, log.run()) else { return Ok(None) };
    let newest_ms = newest_ms(log)?.unwrap_or(i64::MAX);
    let latest_ms = files.clock.now_ms().saturating_add(FAR_MS);
    let is_newer = newest_ms < checkpoint.physic_msg_timestamp_ms
        && checkpoint.physic_msg_timestamp_ms <= latest_ms;
    Ok(is_newer.then(|| MissingFiles { corruption: gone(log, &known), queues: Vec::new() }))
}

fn goes_on_at(log: &CommitLog, end: u64) -> Result<bool> {
    let files_end = log.run().end_offset().unwrap_or(0);
    Ok(match log.read_before(end, files_end, 0, &mut Vec::new())? {
        Found::Message(view) => view.check_body_crc().is_ok(),
        Found::Blank(_) => true,
        _ => false,
    })
}

fn newest_ms(log: &CommitLog) -> Result<Option<i64>> {
    let last = Anchor::before(log, log.end_offset())?;
    last.map_or(Ok(None), |last| log.store_timestamp_ms(last.physical_offset, 0))
}

fn by_checkpoint(fields: &CheckpointFields, run: &FileRun) -> Option<MissingEnd> {
    let offset = fields.confirm_physical_offset.max(fields.logics_physical_offset);
    let known = MissingEnd::behind_files(run, clamp_u64(offset).saturating_add(1));
    let is_known = offset > 0 && clamp_u64(offset) >= known.from;
    is_known.then_some(MissingEnd { by_checkpoint: true, ..known })
}

fn unread_before_mark(log: &CommitLog, end: u64, mark: u64) -> MissingFiles {
    let expected = format!("records up to physical offset {mark}, which was durable");
    let found = format!(
        "none behind {end}; nothing was changed: put the file back from a copy, or let \
         `mqstore doctor` say what is left"
    );
    let corruption = not_expected(log, end, expected, found);
    MissingFiles { corruption, queues: Vec::new() }
}

fn is_made(files: &StoreFiles, offset: u64) -> bool {
    let size = files.log.run().file_size();
    let name = offset_name(offset - offset.checked_rem(size).unwrap_or(0));
    let stamp = |dir: &PathBuf| files.paths.storage.stamp(&dir.join(&name)).ok().flatten();
    files.paths.commit_log().iter().filter_map(stamp).any(|stamp| stamp.len > 0)
}

pub(super) fn gone(log: &CommitLog, missing: &MissingEnd) -> Corruption {
    let known = match missing.messages() {
        0 if missing.by_checkpoint => {
            format!("by the checkpoint a message begins at {}", missing.reach.saturating_sub(1))
        }
        0 => format!("by the durable mark it reached {}", missing.reach),
        count => format!("queues and index know {count} messages up to {}", missing.reach),
    };
    let found = format!(
        "no file or zeros from {} on, and {known}; nothing was changed: put the missing files back; if they \
         are gone for good, `mqstore recover --apply --drop-beyond` cuts the queues to the log that \
         is left",
        missing.from
    );
    Corruption {
        path: Some(log.run().dir()),
        offset: 0,
        kind: CorruptionKind::Gap,
        expected: format!("{} at the end of the commit log", missing.files()),
        found,
    }
}
