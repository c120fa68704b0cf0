//! Deleting what has had its time, in bounded steps (`CleanCommitLogService`,
//! `CleanConsumeQueueService`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::files::RunFile;
use crate::log::index_run::IndexRunFile;

use super::core::{Core, Writing, guard};
use super::retention::{self, Levels, Occasion, Pressure, Verdict};

/// `ENOSPC`, as Linux and macOS have it.
const NO_SPACE: i32 = 28;

/// What one step deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Files of the log.
    pub log_files: usize,
    /// Files of queues.
    pub queue_files: usize,
    /// Index files.
    pub index_files: usize,
}

impl Cleaned {
    /// Whether nothing was.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.log_files == 0 && self.queue_files == 0 && self.index_files == 0
    }
}

impl Core {
    /// One round: files of the log that have had their time, then those of queues and index that lead
    /// to nothing any more. Past the last level of space nothing may be appended until a later step
    /// finds room.
    pub(super) fn clean_step(&self, writing: &Writing, occasion: &Occasion) -> Result<Cleaned> {
        let pressure = Levels::of(&self.config).pressure(occasion.disk);
        writing.disk_full.store(pressure == Pressure::Full, Ordering::Release);
        self.poisoned(writing)?;
        let mut cleaned =
            Cleaned { log_files: self.clean_log(writing, occasion)?, ..Cleaned::default() };
        let log_start = self.log.min_offset();
        if writing.cleaned_to.swap(log_start, Ordering::AcqRel) != log_start {
            let derived = self.clean_derived(writing, log_start, &mut cleaned);
            if derived.is_err() {
                // The next step tries again.
                writing.cleaned_to.store(0, Ordering::Release);
            }
            derived?;
        }
        Ok(cleaned)
    }

    fn clean_log(&self, writing: &Writing, occasion: &Occasion) -> Result<usize> {
        // No flush meets a file that goes meanwhile.
        let _turn = writing.gate.turn();
        writing.check_locked()?;
        let dispatched = writing.dispatched.load(Ordering::Acquire);
        let safe_end = self.log.flushed_offset().min(dispatched);
        let run = self.log.run();
        let verdicts = retention::judge_log(run, &self.config, occasion, safe_end)?;
        let mut deleted = 0;
        for _ in verdicts.iter().take_while(|verdict| verdict.fate.goes()) {
            if run.remove_first()?.is_none() {
                break;
            }
            deleted += 1;
        }
        Ok(deleted)
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
        if let Some(index) = &mut guard(&writing.dispatcher).index {
            let start = i64::try_from(log_start).unwrap_or(i64::MAX);
            cleaned.index_files += index.delete_before(start)?.len();
        }
        Ok(())
    }

    /// Refuses an append while the disk is as full as `disk_space_warning_level_ratio` says.
    #[cold]
    pub(super) fn disk_is_full(&self) -> Error {
        Error::Io {
            op: "append (the disk is fuller than disk_space_warning_level_ratio) to",
            path: self.paths.root().to_owned(),
            source: std::io::Error::from_raw_os_error(NO_SPACE),
        }
    }
}

/// All files of a store that retention looks at, and what becomes of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The log's files, then those of queues, then the index's, each oldest first.
    pub files: Vec<Verdict>,
    /// Where the log begins.
    pub log_start: u64,
    /// Where it begins when all that goes is gone.
    pub new_log_start: u64,
}

impl Core {
    /// What a step would do on that occasion; nothing is changed.
    pub(super) fn judge(&self, occasion: &Occasion) -> Result<Judgement> {
        let safe_end = match &self.writing {
            Some(writing) => {
                self.log.flushed_offset().min(writing.dispatched.load(Ordering::Acquire))
            }
            None => u64::MAX,
        };
        let run = self.log.run();
        let mut files = retention::judge_log(run, &self.config, occasion, safe_end)?;
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
        Ok(Judgement { files, log_start, new_log_start })
    }
}
