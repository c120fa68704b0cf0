//! What a store looks like when it is opened for writing, before anything is done: where its log
//! ends, and what of queues and index does not match it.

use std::ops::ControlFlow;

use crate::config::StoreConfig;
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::Storage;
use crate::format::checkpoint::CheckpointFields;
use crate::format::message::BLANK_LEN;
use crate::log::CommitLog;
use crate::log::index::run::IndexRun;
use crate::log::read::scanner::{Scanner, Stop, Walked};

use super::seal::Seal;
use super::tail::Tail;
use crate::store::dispatch::gather::Wanted;
use crate::store::dispatch::index_audit::IndexAudit;
use crate::store::dispatch::log_parts::{LastParts, LogReading};
use crate::store::dispatch::queue_audit::{Audit, QueueFinding};
use crate::store::mark::Flushed;
use crate::store::paths::StorePaths;
use crate::store::progress::{Progress, tell};
use crate::store::queue_table::QueueTable;

/// How many bytes go by between two calls of `progress`.
const STEP: u64 = 16 << 20;

/// A shorter log is written again once it is known where it ends.
const LONG: u64 = 16 << 20;

/// What a store looks like before anything is done.
#[derive(Debug)]
pub struct Analysis {
    /// Where the last record ends.
    pub end: u64,
    /// Why the log was not read further.
    pub stop: Option<Corruption>,
    /// The newest store time that is not far ahead of the clock.
    pub newest_timestamp_ms: i64,
    /// The first record that is, and its store time.
    pub ahead: Option<(i64, i64)>,
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
    /// What the last of them need in queues and index.
    pub read: LastParts,
    /// Whether all of it is known from a seal, and durable.
    pub sealed: bool,
}

/// A store as it is found, before anything is done.
#[derive(Debug)]
pub struct FoundStore<'a> {
    /// Where its parts lie.
    pub paths: &'a StorePaths,
    /// Its settings.
    pub config: &'a StoreConfig,
    pub storage: &'a dyn Storage,
    /// The log, readable up to the end of its files.
    pub log: &'a CommitLog,
    /// The queues.
    pub queues: &'a QueueTable,
    /// The index, unless it is switched off.
    pub index: Option<&'a IndexRun>,
    /// Times up to which parts of it are known to be flushed.
    pub checkpoint: &'a CheckpointFields,
    /// The part of the log that is known to be flushed.
    pub flushed: Flushed,
    /// Whether it was closed in good order.
    pub is_clean: bool,
    /// A store time later than this is not one of the clock.
    pub latest_ms: i64,
}

impl FoundStore<'_> {
    /// Of index files with messages stored later than this nothing says that they are whole.
    #[must_use]
    pub fn index_known_ms(&self) -> i64 {
        if self.is_clean { i64::MAX } else { self.checkpoint.index_msg_timestamp_ms }
    }

    /// Whether the log is long, and nothing says that any of it was ever flushed: then no damage is
    /// refused, and all of it is written again, whatever it is found to hold.
    #[must_use]
    pub fn is_all_unproven(&self) -> bool {
        let bytes = self.log.end_offset().saturating_sub(self.log.min_offset());
        let Flushed { place, before_ms } = self.flushed;
        before_ms <= 0 && place <= self.log.min_offset() && bytes >= LONG
    }

    /// What is known from a seal that holds, and else from the whole log, with which queues and index
    /// are compared. Nothing is changed. `progress` hears how many bytes of how many were read.
    ///
    /// # Errors
    /// [`Error::Io`] when the system cannot read, or of kind `Interrupted` when `progress` ended it.
    pub fn analyse(&self, progress: &mut Progress<'_>) -> Result<Analysis> {
        if self.is_clean
            && let Some(seal) = Seal::holding(self.storage, self.paths, self.config)?
            && let Some(analysis) = self.sealed(&seal)?
        {
            return Ok(analysis);
        }
        self.read_log(progress)
    }

    /// What a seal says of a store, if nothing begins at its end and nothing leads past it.
    ///
    /// That all behind is zero was seen before the seal was put, and a change since shows in it; but
    /// some file systems do not move a file's time when it is written through a map. Whoever wrote so
    /// went on at the end. And a power cut may leave what was written beside the time of before, of
    /// queues and index sooner than of the log: our own `abort` outlives it, that of others may not.
    fn sealed(&self, seal: &Seal) -> Result<Option<Analysis>> {
        let (log, end) = (self.log, seal.end);
        let first = end.saturating_add(BLANK_LEN as u64);
        let mut scanner = Scanner::new(log, end, first.min(log.end_offset()), true);
        if end > log.end_offset() || !matches!(scanner.step()?, Err(Stop::End | Stop::Empty)) {
            return Ok(None);
        }
        let past = i64::try_from(end).unwrap_or(i64::MAX);
        // Queues say where their last message ends, the index where it begins.
        let indexed = self.index.map_or(Ok(None), IndexRun::last_keyed_offset)?;
        if indexed.is_some_and(|begin| begin >= past)
            || self.queues.all().iter().any(|queue| queue.reach() > past)
        {
            return Ok(None);
        }
        Ok(Some(Analysis {
            end,
            stop: None,
            newest_timestamp_ms: seal.newest_timestamp_ms.min(self.latest_ms),
            ahead: None,
            last_record: None,
            unproven: end,
            tail: Tail::default(),
            queues: Vec::new(),
            first_missing: None,
            keyed: None,
            unsound_index: None,
            read: LastParts::default(),
            sealed: true,
        }))
    }

    /// Reads the log from its first record on, checks every record, and holds the queues and the
    /// index against it.
    fn read_log(&self, progress: &mut Progress<'_>) -> Result<Analysis> {
        let (log, queues) = (self.log, self.queues);
        let (from, log_end) = (log.min_offset(), log.end_offset());
        let verify_crc = self.config.check_crc_on_recover;
        let mut index = match self.index {
            Some(index) => Some(IndexAudit::new(index, self.index_known_ms())?),
            None => None,
        };
        let mut audit = Audit::new(queues);
        let wanted = Wanted {
            with_index: index.is_some(),
            with_surplus_keys: true,
            latest_ms: self.latest_ms,
            ..Wanted::all(queues)
        };
        let reading = LogReading::new(log, wanted, log_end, verify_crc).flushed(self.flushed);
        let (mut newest, mut ahead) = (0, None);
        let (mut last_record, mut keyed) = (None, None);
        let (mut unproven, mut lacking) = (None, None);
        let mut read = LastParts::default();
        let mut told = from;
        let walked = reading.each(from, &mut |part| {
            let at = part.start();
            if at - told >= STEP {
                told = at;
                tell(progress, (at - from, log_end - from), "recover", self.paths.root())?;
            }
            let gathered = &part.gathered;
            audit.see_all(gathered)?;
            for (of_record, hashes) in gathered.keyed() {
                if let Some(index) = &mut index {
                    index.see(of_record, hashes)?;
                }
                if of_record.keys > 0 {
                    let at = u64::try_from(of_record.physical_offset).unwrap_or(0);
                    keyed = Some((keyed.map_or(at, |(first, _)| first), at));
                }
            }
            newest = newest.max(gathered.newest_ms);
            ahead = ahead.or(gathered.ahead);
            last_record = part.last_record.or(last_record);
            unproven = unproven.or(part.unproven);
            lacking = part.lacks_bytes.then_some(part.end());
            read.keep(part, reading.spare());
            Ok(match lacking {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            })
        })?;
        let (end, stop) = match (lacking, walked) {
            (Some(at), _) => (at, Some(torn(log, at))),
            (None, Walked { end, stop: Some(Stop::Damage(corruption)) }) => (end, Some(corruption)),
            (None, Walked { end, .. }) => (end, None),
        };
        let tail = Tail::read(log, queues, end, newest, self.flushed)?;
        // A time that no message reaches proves nothing.
        let marked = self.flushed.place.min(end);
        let unproven = if self.is_clean { end } else { unproven.unwrap_or(from).max(marked) };
        let findings = audit.findings(from)?;
        Ok(Analysis {
            end,
            stop,
            newest_timestamp_ms: newest,
            ahead,
            last_record,
            unproven,
            tail,
            queues: findings,
            first_missing: audit.first_missing,
            keyed,
            unsound_index: index.and_then(|index| index.unsound_from()),
            read,
            sealed: false,
        })
    }

    /// Refuses to go on where mending would hide the loss of messages that were safe once.
    ///
    /// # Errors
    /// [`Error::Corrupt`], naming the byte and how many whole messages lie behind it.
    pub fn refuse_damage(&self, analysis: &Analysis) -> Result<()> {
        let log = self.log;
        let is_empty = log.run().files().is_empty();
        // Queues alone may be damaged, the checkpoint too, but hardly both to the same effect. After a
        // crash the name of a new file may be lost that queues lead into already.
        let newest_is_gone =
            self.is_clean && self.checkpoint.physic_msg_timestamp_ms > analysis.newest_timestamp_ms;
        if is_empty || newest_is_gone {
            let end = if is_empty { 0 } else { log.end_offset() };
            let reach = self.queues.all().iter().map(|queue| queue.reach()).max();
            let reach = reach.and_then(|reach| u64::try_from(reach).ok()).unwrap_or(0);
            if reach > end {
                return Err(gone(log, end, "the queues lead", reach));
            }
        }
        let place = self.flushed.place;
        let files_end = log.run().end_offset().unwrap_or(0);
        if files_end < place {
            return Err(gone(log, files_end, "the durable mark leads", place));
        }
        if analysis.tail.flushed == 0 && analysis.end >= place {
            return Ok(());
        }
        let marked = match analysis.end < place {
            true => format!(" (all before {place} was durable)"),
            false => String::new(),
        };
        let (path, offset, kind, expected, found) = match &analysis.stop {
            Some(stop) => (
                stop.path.clone(),
                stop.offset,
                stop.kind,
                stop.expected.clone(),
                stop.found.clone(),
            ),
            None => {
                let file = log.run().find(analysis.end);
                let base = file.as_ref().map_or(0, |file| file.base_offset);
                (
                    file.map(|file| file.path.clone()),
                    analysis.end.saturating_sub(base),
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
                "{found} at physical offset {}; {} whole messages lie beyond{marked}, so nothing was \
                 changed: `mqstore recover --apply` cuts there and keeps them aside, \
                 `mqstore salvage` copies them out",
                analysis.end, analysis.tail.count
            ),
        })))
    }
}

/// The end of the log is gone to which queues lead, or the durable mark.
fn gone(log: &CommitLog, end: u64, lead: &str, reach: u64) -> Error {
    let found = match end {
        0 => "no file; `mqstore recover --apply` empties the queues".to_owned(),
        _ => format!(
            "no file from {end} on; `mqstore recover --apply` cuts the queues to the log that is left"
        ),
    };
    let expected = format!("the commit log that {lead} to, up to {reach}");
    Error::corrupt(&log.run().dir(), 0, CorruptionKind::Gap, expected, found)
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
