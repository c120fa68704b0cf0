//! Deletes expired files in bounded steps (`CleanCommitLogService`, `CleanConsumeQueueService`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::DeleteRules;
use crate::error::{Error, Result};
use crate::files::RunFile;
use crate::log::index::run::IndexRunFile;

use super::unread::{self, Unread};
use super::{DiskUse, Levels, Occasion, Pressure, Verdict};
use crate::store::MessageStore;
use crate::store::write::core::{Core, Writing};
use crate::store::write::retention;

/// `ENOSPC` on Linux and macOS.
const NO_SPACE: i32 = 28;

/// Result of one step.
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

impl MessageStore {
    /// Counts messages and bytes that the log no longer holds, by queue entries before its
    /// beginning.
    ///
    /// # Errors [`Error::Io`], [`Error::Closed`].
    pub fn deleted(&self) -> Result<(u64, u64)> {
        self.core.check_open()?;
        let start = self.core.log.min_offset();
        let queues = if start == 0 { Vec::new() } else { self.core.queues.all() };
        let messages = queues.iter().try_fold(0_u64, |sum, queue| {
            let first = queue.first_at_or_behind(start)?;
            Ok::<_, Error>(sum.saturating_add(u64::try_from(first).unwrap_or(0)))
        })?;
        Ok((messages, start))
    }

    /// Disk usage of the store.
    #[must_use]
    pub fn disk_use(&self) -> DiskUse {
        DiskUse::now(&*self.core.storage, &self.core.paths)
    }

    /// Plans [`MessageStore::clean_step`] without a change.
    ///
    /// # Errors [`Error::Io`], [`Error::Closed`].
    pub fn judge(&self, occasion: &Occasion) -> Result<Judgement> {
        self.core.check_open()?;
        self.core.judge(occasion)
    }

    /// One round of retention: deletes expired files, or files for lack of space. The store's
    /// thread runs it if the settings ask for it.
    ///
    /// # Errors [`Error::Io`], [`Error::Poisoned`], [`Error::ReadOnly`], [`Error::Closed`].
    pub fn clean_step(&self, occasion: &Occasion) -> Result<Cleaned> {
        self.core.clean_step(self.core.writing()?, occasion)
    }
}

impl Core {
    /// One round: expired log files, then queue and index files that lead nowhere. RocketMQ's rules
    /// stop appends beyond the last level of disk usage until a later step finds room.
    pub(crate) fn clean_step(&self, writing: &Writing, occasion: &Occasion) -> Result<Cleaned> {
        let rules = self.config.delete_rules();
        let is_full = rules == DeleteRules::RocketMq
            && Levels::of(&self.config).pressure(occasion.disk) == Pressure::Full;
        writing.disk_full.store(is_full, Ordering::Release);
        self.poisoned(writing)?;
        if retention::rules_of(&self.config, occasion) == DeleteRules::Off {
            return Ok(Cleaned::default());
        }
        let (log_files, notice, outcome) = self.clean_log(writing, occasion)?;
        let mut cleaned = Cleaned { log_files, ..Cleaned::default() };
        let outcome = outcome.and_then(|()| {
            let log_start = self.log.min_offset();
            if writing.cleaned_to.swap(log_start, Ordering::AcqRel) == log_start {
                return Ok(());
            }
            self.clean_derived(writing, log_start, &mut cleaned).inspect_err(|_| {
                // The next step retries.
                writing.cleaned_to.store(0, Ordering::Release);
            })
        });
        // Reported once the queues begin where the log does.
        notice.into_iter().for_each(|notice| self.notices.push(notice));
        outcome.map(|()| cleaned)
    }

    /// Deletes log files; returns their number, the notice, and an error.
    fn clean_log(
        &self,
        writing: &Writing,
        occasion: &Occasion,
    ) -> Result<(usize, Option<String>, Result<()>)> {
        writing.check_locked()?;
        let verdicts = self.judge_log(occasion)?;
        let (run, old_start) = (self.log.run(), self.log.min_offset());
        let mut gone = Vec::new();
        let mut outcome = Ok(());
        for verdict in verdicts.iter().take_while(|verdict| verdict.fate.goes()) {
            // Excludes flushes of these files.
            let _turn = writing.gate.turn();
            let is_first = || run.files().first().is_some_and(|first| first.path == verdict.path);
            outcome = writing.check_locked();
            if outcome.is_err() || !is_first() {
                break;
            }
            outcome = run.remove_first().map(drop);
            if !is_first() {
                gone.push(verdict);
            }
            if outcome.is_err() {
                break;
            }
        }
        let notice = gone.last().map(|last| self.describe_deleted(&gone, last, old_start));
        Ok((gone.len(), notice, outcome))
    }

    /// Describes the deleted part of the log, and the groups that had not read it.
    fn describe_deleted(&self, gone: &[&Verdict], last: &Verdict, old_start: u64) -> String {
        let new_start = self.log.min_offset();
        let unread = match self.unread(old_start, new_start) {
            Ok(unread) => unread::describe(&unread),
            Err(error) => format!("which consumer groups had not read them is unknown: {error}"),
        };
        let bytes: u64 = gone.iter().map(|verdict| verdict.bytes).sum();
        format!(
            "{}: deleted {} of the log's files, {bytes} bytes, physical offsets {old_start} to \
             {new_start}; the last of them: {}; their messages: {unread}",
            self.paths.root().display(),
            gone.len(),
            last.fate.reason(&self.config),
        )
    }

    fn judge_log(&self, occasion: &Occasion) -> Result<Vec<Verdict>> {
        let safe_end = match &self.writing {
            Some(writing) => {
                self.log.flushed_offset().min(writing.dispatched.load(Ordering::Acquire))
            }
            None => u64::MAX,
        };
        retention::judge_log(&self.log, &self.ages, &self.config, occasion, safe_end)
    }

    fn clean_derived(
        &self,
        writing: &Writing,
        log_start: u64,
        cleaned: &mut Cleaned,
    ) -> Result<()> {
        let _turn = writing.gate.derived_turn();
        writing.check_locked()?;
        for queue in self.queues.all() {
            cleaned.queue_files += queue.delete_expired(log_start)?;
            queue.correct_min_offset(log_start)?;
        }
        if let Some(index) = &mut writing.dispatcher.lock().index {
            let start = i64::try_from(log_start).unwrap_or(i64::MAX);
            cleaned.index_files += index.delete_before(start)?.len();
        }
        Ok(())
    }

    /// Error for an append beyond `disk_space_warning_level_ratio`.
    #[cold]
    pub(crate) fn disk_is_full(&self) -> Error {
        Error::Io {
            op: "append (the disk is fuller than disk_space_warning_level_ratio) to",
            path: self.paths.root().to_owned(),
            source: std::io::Error::from_raw_os_error(NO_SPACE),
        }
    }
}

/// All files of a store with retention's decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Log, queue and index files, each oldest first.
    pub files: Vec<Verdict>,
    pub log_start: u64,
    pub new_log_start: u64,
    /// Messages in between that consumer groups have not read.
    pub unread: Vec<Unread>,
}

impl Core {
    /// Plans a step without a change.
    pub(crate) fn judge(&self, occasion: &Occasion) -> Result<Judgement> {
        let run = self.log.run();
        let mut files = self.judge_log(occasion)?;
        let going = files.iter().take_while(|verdict| verdict.fate.goes()).count();
        let log_start = self.log.min_offset();
        let first_kept = run.files().get(going).map(|file| file.base_offset);
        let new_log_start = first_kept.unwrap_or(log_start);
        for queue in self.queues.all() {
            let place = |file: &Arc<RunFile>| (file.path.clone(), file.len);
            let last = |file: &Arc<RunFile>| queue.last_place_in(file);
            files.extend(retention::judge_derived(
                &queue.run().files(),
                new_log_start,
                place,
                last,
            )?);
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
}
