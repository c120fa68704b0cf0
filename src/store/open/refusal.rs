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
use crate::store::folder::mark::{Flushed, Mark};
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
        let newest_ms = analysis.newest_timestamp_ms;
        let known = match known {
            None => by_checkpoint(self.checkpoint, run, || Ok(newest_ms), self.latest_ms)?,
            known => known,
        };
        let Some(known) = known else { return Ok(None) };
        // A damaged last message is an unclean end.
        let is_last_alone = analysis.tail.data_end.is_some() && known.messages() <= 1;
        if known.reach <= files_end && (is_last_alone || self.is_never_durable(analysis)) {
            return Ok(None);
        }
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

/// Refuses a rebuild if the log is not in its place, ends with an epoch, or something knows more.
/// `read` is its end and newest time.
pub fn refuse_missing_end(
    paths: &StorePaths,
    config: &StoreConfig,
    latest_ms: i64,
    read: Option<(u64, i64)>,
) -> Result<()> {
    // Before the files: a writer may go on.
    let mark = Mark::read(paths).ok().flatten();
    let parts = load_parts(paths, &mut config.clone(), Access::Read);
    let Ok(Parts { log, queues, index, .. }) = parts else { return Ok(()) };
    misplaced::refuse_foreign(paths, log.run())?;
    if let Some(ended) = EndedEpoch::find(paths, &log, &queues)? {
        return Err(Error::Corrupt(Box::new(ended.refused(&log))));
    }
    let checkpoint = StoreCheckpoint::load(paths.storage(), &paths.checkpoint(), Access::Read);
    let checkpoint = checkpoint.map(|found| found.fields).unwrap_or_default();
    let is_clean = matches!(lock::was_aborted(paths), Ok(false));
    let by_mark_alone = Flushed::of(paths, mark, &checkpoint, is_clean).is_by_mark_alone();
    let index = IndexRun::to_read(&paths.storage, &paths.index(), index.ok()).ok().flatten();
    let index = index.filter(|_| !by_mark_alone);
    let mark = mark.map_or(0, |mark| mark.offset);
    let find = |index| {
        let known = Known { log: &log, queues: &queues, index, mark };
        let missing = known.behind_files()?;
        let (None, Some((end, newest_ms))) = (&missing, read) else { return Ok(missing) };
        let is_older = newest_ms < checkpoint.physic_msg_timestamp_ms;
        let was_durable = is_clean || end < mark || (is_older && !by_mark_alone);
        match if was_durable { known.in_zeros(end)? } else { None } {
            None => by_checkpoint(&checkpoint, log.run(), || Ok(newest_ms), latest_ms),
            missing => Ok(missing),
        }
    };
    match find(index.as_ref()).or_else(|_| find(None)) {
        Ok(Some(missing)) => Err(Error::Corrupt(Box::new(gone(&log, &missing)))),
        _ => Ok(()),
    }
}

#[derive(Clone, Copy)]
struct Known<'a> {
    log: &'a CommitLog,
    queues: &'a QueueTable,
    index: Option<&'a IndexRun>,
    mark: u64,
}

impl Known<'_> {
    fn beyond(self, end: u64) -> Result<Option<MissingEnd>> {
        let Self { log, queues, index, mark } = self;
        let missing = MissingEnd::find(log, end, queues, index)?;
        let by_mark = || MissingEnd { from: end, ..MissingEnd::behind_files(log.run(), mark) };
        Ok(missing.or_else(|| (end < mark).then(by_mark)))
    }

    fn behind_files(self) -> Result<Option<MissingEnd>> {
        match self.beyond(self.log.run().end_offset().unwrap_or(0))? {
            None => MissingEnd::before_spares(self.log, self.queues, self.index),
            missing => Ok(missing),
        }
    }

    fn in_zeros(self, end: u64) -> Result<Option<MissingEnd>> {
        let missing = self.beyond(end)?;
        Ok(if missing.is_some() && data_end(self.log, end)?.is_none() { missing } else { None })
    }
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
    let known = Known { log, queues, index: index.as_deref(), mark };
    let missing = known.behind_files()?;
    let mut missing = missing.filter(|missing| !is_made(files, missing.from));
    if missing.is_none() && is_closed() {
        missing = Known { index: None, mark: 0, ..known }.in_zeros(end)?;
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
    let newest_ms = || Ok(newest_ms(log)?.unwrap_or(i64::MAX));
    let latest_ms = files.clock.now_ms().saturating_add(FAR_MS);
    let known = by_checkpoint(&checkpoint, log.run(), newest_ms, latest_ms)?;
    let missing = |known| MissingFiles { corruption: gone(log, &known), queues: Vec::new() };
    Ok(known.map(missing))
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

fn by_checkpoint(
    fields: &CheckpointFields,
    run: &FileRun,
    newest_ms: impl FnOnce() -> Result<i64>,
    latest_ms: i64,
) -> Result<Option<MissingEnd>> {
    let offset = fields.confirm_physical_offset.max(fields.logics_physical_offset);
    let known = MissingEnd::behind_files(run, clamp_u64(offset).saturating_add(1));
    let is_known = offset > 0
        && clamp_u64(offset) >= known.from
        && fields.physic_msg_timestamp_ms <= latest_ms
        && newest_ms()? < fields.physic_msg_timestamp_ms;
    Ok(is_known.then_some(MissingEnd { by_checkpoint: true, ..known }))
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
