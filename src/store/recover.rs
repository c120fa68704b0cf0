//! Opening a store for writing: find the log's end, mend what is derived from it, and say what was
//! done (`DefaultMessageStore.recover`).
//!
//! First everything is looked at and nothing changed ([`analyse`]), then the repair is decided and
//! refused where it would hide damage, then it is done ([`repair`]). The order leaves a store that is
//! stopped in between as good as before.

use std::path::PathBuf;

use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::planted::{self, Bug};
use crate::files::{FileRun, Storage};
use crate::format::checkpoint::CheckpointFields;
use crate::format::peek;
use crate::format::sys_flag::Transaction;
use crate::log::scanner::{Scanned, Scanner, Stop};
use crate::log::{CommitLog, ConsumeQueue};

use super::audit::{Audit, QueueFinding};
use super::dispatch::DispatchRequest;
use super::index_audit::IndexAudit;
use super::paths::StorePaths;
use super::queues::QueueTable;
use super::seal::Seal;
use super::tail::{QuarantinedMessage, Tail};

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
    /// The name, as programs see it.
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

/// What a store looks like before anything is done.
#[derive(Debug)]
pub struct Analysis {
    /// Where the last record ends.
    pub end: u64,
    /// Why the log was not read further.
    pub stop: Option<Corruption>,
    /// The newest store time.
    pub newest_timestamp_ms: i64,
    /// The start of the last record, as the checkpoint keeps it.
    pub last_record: Option<u64>,
    /// From here on nothing says that the log was ever flushed.
    pub unproven: u64,
    /// What lies behind the end.
    pub tail: Tail,
    /// Queues that do not match the log.
    pub queues: Vec<QueueFinding>,
    /// Where the first record lies that lacks an entry in its queue.
    pub first_missing: Option<u64>,
    /// Where the first and the last record with a key lie that the index must hold.
    pub keyed: Option<(u64, u64)>,
    /// The name of the first index file that does not hold what the log asks for.
    pub unsound_index: Option<u64>,
    /// Records read.
    pub records: u64,
    /// Whether all of it is known from a seal, and durable.
    pub sealed: bool,
}

/// Reads the log from its first record on, checks every record, and holds the queues and the index
/// against it. Nothing is changed. `log` must be readable up to the end of its files.
///
/// # Errors
/// [`Error::Io`] when the system cannot read.
pub fn analyse(
    log: &CommitLog,
    queues: &QueueTable,
    mut index: Option<IndexAudit>,
    checkpoint: &CheckpointFields,
    clean: bool,
    verify_crc: bool,
) -> Result<Analysis> {
    let from = log.min_offset();
    // Closed in good order means all of it was flushed; else what the checkpoint says was.
    // Messages of its last millisecond may have come after that flush.
    let flushed_before = if clean { i64::MAX } else { checkpoint.physic_msg_timestamp_ms };
    let verify_crc = verify_crc && !planted::is(Bug::ChecksumNotChecked);
    let mut scanner = Scanner::new(log, from, log.end_offset(), verify_crc);
    let mut audit = Audit::new(queues);
    let mut newest = 0;
    let (mut last_record, mut keyed, mut records) = (None, None, 0);
    let mut unproven = None;
    let (end, stop) = loop {
        match scanner.step()? {
            Ok(Scanned::Message(view)) => {
                let request = DispatchRequest::of(&view);
                let at = u64::try_from(request.physical_offset).unwrap_or(0);
                if request.store_timestamp_ms >= flushed_before {
                    unproven = unproven.or(Some(at));
                    if peek::lacks_bytes(&view) {
                        break (at, Some(torn(log, at)));
                    }
                }
                audit.see(&request)?;
                if let Some(index) = &mut index {
                    index.see(&request.keys())?;
                }
                newest = newest.max(request.store_timestamp_ms);
                last_record = Some(at);
                records += 1;
                let properties = &request.properties;
                let has_key = properties.unique_key.is_some() || properties.keys.is_some();
                if has_key && request.transaction != Transaction::Rollback {
                    keyed = Some((keyed.map_or(at, |(first, _)| first), at));
                }
            }
            Ok(Scanned::Blank { .. }) => {}
            Err(Stop::End | Stop::Empty) => break (scanner.position(), None),
            Err(Stop::Damage(corruption)) => break (scanner.position(), Some(corruption)),
        }
    };
    let tail = Tail::read(log, queues, end, newest, flushed_before)?;
    // A time that no message reaches proves nothing.
    let unproven = if clean { end } else { unproven.unwrap_or(from) };
    let findings = audit.findings(from)?;
    let first_missing = audit.first_missing;
    Ok(Analysis {
        end,
        stop,
        newest_timestamp_ms: newest,
        last_record,
        unproven,
        tail,
        queues: findings,
        first_missing,
        keyed,
        unsound_index: index.and_then(|index| index.unsound_from()),
        records,
        sealed: false,
    })
}

/// What a seal says of a store, if nothing lies behind its end.
///
/// # Errors
/// [`Error::Io`] when the system cannot read.
pub fn sealed(log: &CommitLog, queues: &QueueTable, seal: &Seal) -> Result<Option<Analysis>> {
    let end = seal.end;
    let mut scanner = Scanner::new(log, end, log.end_offset(), true);
    if end > log.end_offset() || !matches!(scanner.step()?, Err(Stop::End | Stop::Empty)) {
        return Ok(None);
    }
    let tail = Tail::read(log, queues, end, seal.newest_timestamp_ms, i64::MAX)?;
    Ok(tail.data_end.is_none().then(|| Analysis {
        end,
        stop: None,
        newest_timestamp_ms: seal.newest_timestamp_ms,
        last_record: None,
        unproven: end,
        tail,
        queues: Vec::new(),
        first_missing: None,
        keyed: None,
        unsound_index: None,
        records: 0,
        sealed: true,
    }))
}

/// What is wrong with a record of which not all came to the disk.
fn torn(log: &CommitLog, at: u64) -> Corruption {
    let file = log.run().find(at);
    Corruption {
        offset: at.saturating_sub(file.as_ref().map_or(0, |file| file.base_offset)),
        path: file.map(|file| file.path.clone()),
        kind: CorruptionKind::Truncated,
        expected: "a whole message".to_owned(),
        found: "zeros in its topic or properties".to_owned(),
    }
}

impl Analysis {
    /// Refuses to go on where mending would hide the loss of messages that were safe once.
    ///
    /// # Errors
    /// [`Error::Corrupt`], naming the byte and how many whole messages lie behind it.
    pub fn refuse_damage(&self, log: &CommitLog, queues: &QueueTable) -> Result<()> {
        if log.run().files().is_empty() {
            let queued = queues.all().iter().map(|queue| queue.max_physical_offset()).max();
            if let Some(reach) = queued.filter(|&reach| reach > 0) {
                let dir = log.run().dirs().first().cloned().unwrap_or_default();
                return Err(Error::corrupt(
                    &dir,
                    0,
                    CorruptionKind::Gap,
                    format!("the commit log that the queues lead to, up to {reach}"),
                    "no file; `mqstore recover --apply` empties the queues",
                ));
            }
        }
        if self.tail.flushed == 0 {
            return Ok(());
        }
        let (path, offset, kind, expected, found) = match &self.stop {
            Some(stop) => (
                stop.path.clone(),
                stop.offset,
                stop.kind,
                stop.expected.clone(),
                stop.found.clone(),
            ),
            None => {
                let file = log.run().find(self.end);
                let base = file.as_ref().map_or(0, |file| file.base_offset);
                (
                    file.map(|file| file.path.clone()),
                    self.end.saturating_sub(base),
                    CorruptionKind::Magic,
                    "a record".to_owned(),
                    "zeros".to_owned(),
                )
            }
        };
        Err(Error::Corrupt(Box::new(Corruption {
            path,
            offset,
            kind,
            expected,
            found: format!(
                "{found} at physical offset {}; {} whole messages lie beyond, so nothing was \
                 changed: `mqstore recover --apply` cuts there and keeps them aside, \
                 `mqstore salvage` copies them out",
                self.end, self.tail.count
            ),
        })))
    }
}

/// Does what an analysis calls for, short of dispatching: cuts the log, cuts queues, and makes
/// durable what is accepted.
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
    // What a reader is shown from now on must survive a power cut. After a flush that failed the
    // system takes pages for written that are not, until somebody writes them again.
    if mode == RecoveryMode::Crash && !planted::is(Bug::PagesNotWrittenAgain) {
        log.write_again(analysis.unproven)?;
    }
    let accepted = log.run().files();
    let doubtful = !analysis.sealed && !planted::is(Bug::RecoveryNotFlushed);
    for file in accepted.iter().filter(|_| doubtful) {
        log.run().open(file)?.sync().map_err(Error::io("flush", &file.path))?;
    }
    log.set_end(analysis.end);
    for queue in queues.all() {
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
