//! Opening a store for writing: find the log's end, mend what is derived from it, and say what was
//! done (`DefaultMessageStore.recover`).
//!
//! First everything is looked at and nothing changed ([`super::analysis`]), then the repair is decided
//! and refused where it would hide damage, then it is done ([`repair`]). The order leaves a store that
//! is stopped in between as good as before.

use std::path::{Path, PathBuf};

use crate::error::{Corruption, Error, Result};
use crate::files::run::new_files;
use crate::files::{FileRun, Storage};
use crate::log::{CommitLog, ConsumeQueue};

use super::analysis::Analysis;
use super::tail::QuarantinedMessage;
use crate::store::paths::StorePaths;
use crate::store::queue_table::QueueTable;

/// In what state a store was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryMode {
    /// There was none.
    New,
    /// Closed in good order.
    Clean,
    /// Not closed: `abort` was there.
    Crash,
}

impl RecoveryMode {
    /// Stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Clean => "clean",
            Self::Crash => "crash",
        }
    }
}

/// What opening for write found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    /// In what state the store was found.
    pub mode: RecoveryMode,
    /// The log's end, from which writing goes on.
    pub end_physical_offset: u64,
    /// The bytes behind the end that were zeroed, counted to the last that was not zero.
    pub cut_bytes: u64,
    /// Why the log ends there, where something lay behind.
    pub cut_reason: Option<Corruption>,
    /// Where the cut bytes are kept.
    pub quarantine: Option<PathBuf>,
    /// Whole messages among the cut bytes, the first ten thousand.
    pub quarantined_messages: Vec<QuarantinedMessage>,
    /// How many there are in all.
    pub quarantined_count: u64,
    /// What was made again from the log, as paths below the root.
    pub rebuilt: Vec<String>,
    /// Messages that were read to put them into queues or index.
    pub dispatched: u64,
}

/// Does `own` while a thread of that name does `other`; `root` is named where none can be had.
pub(crate) fn beside<T>(
    name: &str,
    root: &Path,
    other: impl FnOnce() -> Result<()> + Send,
    own: impl FnOnce() -> Result<T>,
) -> Result<T> {
    std::thread::scope(|scope| {
        let beside = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn_scoped(scope, other)
            .map_err(Error::io("start a thread for", root))?;
        let own = own();
        match beside.join() {
            Ok(outcome) => outcome.and(own),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Does what an analysis calls for, short of dispatching and of [`make_durable`]: cuts the log and the
/// queues.
///
/// # Errors
/// [`Error::Io`]; the store is then at most partly mended, and opening it again goes on.
pub fn repair(
    analysis: &Analysis,
    mode: RecoveryMode,
    log: &CommitLog,
    queues: &QueueTable,
    storage: &dyn Storage,
    paths: &StorePaths,
    now_ms: i64,
) -> Result<RecoveryReport> {
    let quarantine = if analysis.tail.data_end.is_some() || mode == RecoveryMode::Crash {
        analysis.tail.cut(log, analysis.end, storage, paths, now_ms)?
    } else {
        None
    };
    log.set_end(analysis.end);
    let all = queues.all();
    if mode == RecoveryMode::Crash && all.len() >= new_files::MANY {
        // Their files are made together: a process that was killed may have left names that are not
        // durable.
        queues.sync_file_systems()?;
    }
    for queue in all {
        remove_misplaced(queue.run(), storage)?;
        mend_lengths(queue.run())?;
        if let Some(ext) = queue.as_plain().and_then(ConsumeQueue::ext) {
            mend_lengths(ext.run())?;
        }
    }
    let mut rebuilt = Vec::new();
    for finding in &analysis.queues {
        if finding.good != finding.found
            && let Some(queue) = queues.get(&finding.topic, finding.queue_id)
        {
            queue.truncate(finding.good)?;
        }
        rebuilt.push(format!(
            "{}/{}/{}",
            queues.kind_of(&finding.topic).folder(),
            String::from_utf8_lossy(&finding.topic),
            finding.queue_id
        ));
    }
    Ok(RecoveryReport {
        mode,
        end_physical_offset: analysis.end,
        cut_bytes: analysis.tail.data_end.map_or(0, |end| end - analysis.end),
        cut_reason: analysis.tail.data_end.and(analysis.stop.clone()),
        quarantine,
        quarantined_messages: analysis.tail.messages.clone(),
        quarantined_count: analysis.tail.count,
        rebuilt,
        dispatched: 0,
    })
}

/// Writes again what lies from `unproven` on, so that the next flush takes it to the disk: after a flush
/// that failed the system takes pages for written that are not, until somebody writes them again. It
/// ends early when that is no longer wanted.
///
/// # Errors
/// [`Error::Io`]; the store must not be written then.
pub fn write_again(log: &CommitLog, unproven: u64, is_wanted: impl Fn() -> bool) -> Result<()> {
    log.write_again(unproven, is_wanted)
}

/// Makes durable what is accepted of the log, which is `written_again` or must not be: what a reader is
/// shown from now on must survive a power cut.
///
/// # Errors
/// [`Error::Io`]; the store must not be written then.
pub fn make_durable(analysis: &Analysis, written_again: bool, log: &CommitLog) -> Result<()> {
    if !written_again {
        write_again(log, analysis.unproven, || true)?;
    }
    if !analysis.sealed {
        for file in log.run().files().iter() {
            log.run().open(file)?.sync().map_err(Error::io("flush", &file.path))?;
        }
    }
    Ok(())
}

/// Removes the files of a queue that begin where none of its files does: they hide those that do.
fn remove_misplaced(run: &FileRun, storage: &dyn Storage) -> Result<()> {
    let size = run.file_size();
    let mut removed = false;
    for file in run.files().iter().filter(|file| file.base_offset.checked_rem(size) != Some(0)) {
        storage.remove_file(&file.path).map_err(Error::io("remove", &file.path))?;
        removed = true;
    }
    if removed {
        run.refresh()?;
    }
    Ok(())
}

/// Gives each file of a queue its size: one that was cut short has zeros at its end then.
fn mend_lengths(run: &FileRun) -> Result<()> {
    let size = run.file_size();
    let mut mended = false;
    for file in run.files().iter().filter(|file| file.len != size) {
        let open = run.open(file)?;
        open.set_len(size).map_err(Error::io("resize", &file.path))?;
        open.sync().map_err(Error::io("flush", &file.path))?;
        mended = true;
    }
    if mended {
        run.refresh()?;
    }
    Ok(())
}
