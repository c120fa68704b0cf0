//! Deletes expired files in bounded steps (`CleanCommitLogService`, `CleanConsumeQueueService`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::DeleteRules;
use crate::error::{Error, Result};
use crate::files::RunFile;
use crate::format::width::saturating_i64;
use crate::log::index::run::IndexRunFile;

use super::unread::Deletion;
use super::unread::{self, Unread};
use super::{Levels, Occasion, Pressure, Verdict, place_of};
use crate::store::store_files::StoreFiles;
use crate::store::write::retention;
use crate::store::write::writer::Writer;

const NO_SPACE: i32 = 28;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub log_files: usize,
    pub queue_files: usize,
    pub index_files: usize,
}

impl Cleaned {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.log_files == 0 && self.queue_files == 0 && self.index_files == 0
    }
}

impl Writer {
    /// One round: expired log files, then queue and index files that lead nowhere. RocketMQ's rules
    /// stop appends beyond the last level of disk usage until a later step finds room.
    pub(crate) fn clean_step(&self, occasion: &Occasion) -> Result<Cleaned> {
        // A full disk must not stop the deletion.
        let _ = self.cleaning.pending_notices.clear_delivered(&self.files);
        let rules = self.files.config.delete_rules();
        let is_full = rules == DeleteRules::RocketMq
            && Levels::of(&self.files.config).pressure(occasion.disk) == Pressure::Full;
        self.cleaning.disk_full.store(is_full, Ordering::Release);
        self.check_failure()?;
        if retention::rules_of(&self.files.config, occasion) == DeleteRules::Off {
            return Ok(Cleaned::default());
        }
        let (log_files, deletion, outcome) = self.clean_log(occasion)?;
        let mut cleaned = Cleaned { log_files, ..Cleaned::default() };
        let outcome = outcome.and_then(|()| {
            let log_start = self.files.log.min_offset();
            if self.cleaning.cleaned_to.swap(log_start, Ordering::AcqRel) == log_start {
                return Ok(());
            }
            self.clean_derived(log_start, &mut cleaned).inspect_err(|_| {
                // The next step retries.
                self.cleaning.cleaned_to.store(0, Ordering::Release);
            })
        });
        // Reported once the queues begin where the log does.
        if let Some(deletion) = deletion {
            self.cleaning.pending_notices.notify(&self.files.notices, deletion);
        }
        outcome.map(|()| cleaned)
    }

    fn clean_log(&self, occasion: &Occasion) -> Result<(usize, Option<Deletion>, Result<()>)> {
        self.check_locked()?;
        let mut verdicts = self.files.judge_log(occasion, self.safe_end())?;
        verdicts.truncate(verdicts.iter().take_while(|verdict| verdict.fate.goes()).count());
        if verdicts.is_empty() {
            return Ok((0, None, Ok(())));
        }
        let (run, from) = (self.files.log.run(), self.files.log.min_offset());
        let to = run.files().get(verdicts.len()).map_or(from, |next| next.base_offset);
        let planned = self.describe(&verdicts, from, to);
        let _ = self.cleaning.pending_notices.record(&self.files, &planned);
        let (mut gone, mut outcome) = (0, Ok(()));
        for verdict in &verdicts {
            // Excludes flushes of these files.
            let _turn = self.gate.turn();
            let is_first = || run.files().first().is_some_and(|first| first.path == verdict.path);
            outcome = self.check_locked();
            if outcome.is_err() || !is_first() {
                break;
            }
            outcome = run.remove_first().map(drop);
            gone += usize::from(!is_first());
            if outcome.is_err() {
                break;
            }
        }
        let deletion = match gone {
            0 => None,
            gone if gone == verdicts.len() => Some(planned),
            gone => Some(self.describe(&verdicts[..gone], from, self.files.log.min_offset())),
        };
        Ok((gone, deletion, outcome))
    }

    fn describe(&self, gone: &[Verdict], from: u64, to: u64) -> Deletion {
        let bytes: u64 = gone.iter().map(|verdict| verdict.bytes).sum();
        let unread = match self.files.unread(from, to) {
            Ok(unread) => unread::describe(&unread),
            Err(error) => format!("which consumer groups had not read them is unknown: {error}"),
        };
        let reason = gone.last().map(|last| last.fate.reason(&self.files.config));
        let text = format!(
            "{}: deleted {} of the log's files, {bytes} bytes, physical offsets {from} to {to}; the \
             last of them: {}; their messages: {unread}",
            self.files.paths.root().display(),
            gone.len(),
            reason.unwrap_or_default(),
        );
        Deletion { from, to, text }
    }

    /// Offset before which retention may delete log files: they are flushed, dispatched and
    /// indexed.
    pub(crate) fn safe_end(&self) -> u64 {
        let derived =
            self.dispatched.load(Ordering::Acquire).min(self.indexed.load(Ordering::Acquire));
        self.files.log.flushed_offset().min(derived)
    }

    fn clean_derived(&self, log_start: u64, cleaned: &mut Cleaned) -> Result<()> {
        let _turn = self.gate.derived_turn();
        self.check_locked()?;
        for queue in self.files.queues.all() {
            // Before: readers begin behind what goes. After: a damaged entry may have misled it.
            queue.correct_min_offset(log_start)?;
            let deleted = queue.delete_expired(log_start)?;
            if deleted > 0 {
                queue.correct_min_offset(log_start)?;
            }
            cleaned.queue_files += deleted;
        }
        if let Some(index) = &mut self.dispatcher.lock().index {
            let start = saturating_i64(log_start);
            cleaned.index_files += index.delete_before(start)?.len();
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn disk_is_full(&self) -> Error {
        Error::Io {
            op: "append (the disk is fuller than disk_space_warning_level_ratio) to".into(),
            path: self.files.paths.root().to_owned(),
            source: std::io::Error::from_raw_os_error(NO_SPACE),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Log, queue and index files, each oldest first.
    pub files: Vec<Verdict>,
    pub log_start: u64,
    pub new_log_start: u64,
    /// Messages in between that consumer groups have not read.
    pub unread: Vec<Unread>,
}

impl StoreFiles {
    pub(crate) fn judge(&self, occasion: &Occasion, safe_end: u64) -> Result<Judgement> {
        let run = self.log.run();
        let mut files = self.judge_log(occasion, safe_end)?;
        let going = files.iter().take_while(|verdict| verdict.fate.goes()).count();
        let log_start = self.log.min_offset();
        let first_kept = run.files().get(going).map(|file| file.base_offset);
        let new_log_start = first_kept.unwrap_or(log_start);
        for queue in self.queues.all() {
            let last = |file: &Arc<RunFile>| queue.last_place_in(file);
            let run = queue.run().files();
            files.extend(retention::judge_derived(&run, new_log_start, place_of, last)?);
        }
        if let Some(index) = &self.index {
            let bytes = index.layout().file_len();
            let place = |file: &Arc<IndexRunFile>| (file.path.clone(), bytes);
            let last = |file: &Arc<IndexRunFile>| -> Result<Option<u64>> {
                let end = index.open(file)?.header()?.end_physical_offset;
                Ok(u64::try_from(end).ok())
            };
            files.extend(retention::judge_derived(&index.files(), new_log_start, place, last)?);
        }
        let unread = self.unread(log_start, new_log_start)?;
        Ok(Judgement { files, log_start, new_log_start, unread })
    }

    fn judge_log(&self, occasion: &Occasion, safe_end: u64) -> Result<Vec<Verdict>> {
        retention::judge_log(&self.log, &self.ages, &self.config, occasion, safe_end)
    }
}
