//! Decides which files are deleted, and why. RocketMQ's rules use file times and disk usage
//! (`DefaultMessageStore.CleanCommitLogService`), ours store times and the log's length. Without
//! rules nothing is deleted, except on explicit request.
//!
//! Log files are deleted from the front, never the last one. Queue and index files follow, once
//! everything they lead to is gone. `store/write/retention/clean.rs` carries it out.

pub mod clean;
pub mod clock;
pub mod unread;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::config::{DeleteRules, StoreConfig};
use crate::error::{Error, Result};
use crate::files::{FileRun, RunFile};
use crate::format::width::saturating_i64;
use crate::log::CommitLog;
use crate::time::{CalendarTime, FAR_MS, utc_text};

use self::clock::{FileTimes, HOUR_MS, age_ms, is_possible, newest_believable};
use self::unread::PendingNotices;
use crate::store::folder::paths::StorePaths;
use crate::store::store_files::FileAges;

#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    pub(crate) disk_full: AtomicBool,
    /// The log's beginning when queues and index were last cleaned.
    pub(crate) cleaned_to: AtomicU64,
    pub(crate) pending_notices: PendingNotices,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    pub log_percent: u64,
    pub queue_percent: u64,
}

impl DiskUse {
    /// Current usage; an unknown disk counts as empty.
    #[must_use]
    pub fn now(paths: &StorePaths) -> Self {
        let percent = |dir: &Path| paths.storage.used_percent(dir).unwrap_or(0);
        Self {
            log_percent: paths.commit_log().iter().map(|dir| percent(dir)).min().unwrap_or(0),
            queue_percent: percent(&paths.consume_queue()),
        }
    }

    #[must_use]
    pub fn most(&self) -> u64 {
        self.log_percent.max(self.queue_percent)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    None,
    Expired,
    Forced,
    Full,
}

/// The three levels in percent, bounded as in RocketMQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    pub expired: u64,
    pub forced: u64,
    pub full: u64,
}

impl Levels {
    #[must_use]
    pub fn of(config: &StoreConfig) -> Self {
        Self {
            expired: config.disk_max_used_space_ratio.clamp(10, 95),
            forced: config.disk_space_clean_forcibly_ratio.clamp(30, 85),
            full: config.disk_space_warning_level_ratio.clamp(35, 90),
        }
    }

    #[must_use]
    pub fn pressure(&self, disk: DiskUse) -> Pressure {
        match disk.most() {
            used if used > self.full => Pressure::Full,
            used if used > self.forced => Pressure::Forced,
            used if used > self.expired => Pressure::Expired,
            _ => Pressure::None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occasion {
    pub now_ms: i64,
    pub disk: DiskUse,
    /// Whether it was requested, so that the hour does not matter.
    pub by_hand: bool,
    /// Offset up to which a backup has the log, where files without one are kept.
    pub backed_up_to: Option<u64>,
}

/// Decision about a file; [`Fate::reason`] explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Expired { age_hours: i64 },
    Old { age_hours: i64 },
    Beyond { behind: u64 },
    Forced { used_percent: u64 },
    Behind { log_start: u64 },
    Off,
    Kept,
    Damaged,
    WrongClock { newest_ms: i64, counted_ms: i64 },
    ClockAhead,
    ShowsStepBack,
    Last,
    Young { age_hours: i64 },
    BehindKept,
    NotBackedUp,
    NotNow { age_hours: i64 },
    NextRound,
    InUse,
    Leads,
}

impl Fate {
    #[must_use]
    pub const fn goes(&self) -> bool {
        use Fate::{Behind, Beyond, Expired, Forced, Old};
        matches!(self, Expired { .. } | Old { .. } | Beyond { .. } | Forced { .. } | Behind { .. })
    }

    #[must_use]
    pub fn reason(&self, config: &StoreConfig) -> String {
        let (kept, levels) = (config.file_reserved_time, Levels::of(config));
        match self {
            Self::Expired { age_hours } => {
                format!(
                    "last written {age_hours} h ago, more than the {kept} h that files are kept"
                )
            }
            Self::Old { age_hours } => format!(
                "its newest message was stored {age_hours} h ago, more than keep_hours={}",
                config.keep_hours.unwrap_or(0)
            ),
            Self::Beyond { behind } => format!(
                "{behind} bytes of the log lie behind it, at least keep_bytes={}",
                config.keep_bytes.unwrap_or(0)
            ),
            Self::Off => "retention is off".to_owned(),
            Self::Kept => {
                let hours = config.keep_hours.map(|hours| format!("keep_hours={hours}"));
                let bytes = config.keep_bytes.map(|bytes| format!("keep_bytes={bytes}"));
                let limits: Vec<_> = hours.into_iter().chain(bytes).collect();
                format!("it is within {}", limits.join(" and "))
            }
            Self::Damaged => {
                "damage in it hides when its newest message was stored; `mqstore verify` says more"
                    .to_owned()
            }
            Self::WrongClock { newest_ms, counted_ms } => format!(
                "its newest time, {}, was given by a wrong clock, so its age counts from {}, by the \
                 file's modification time and the files around it; `mqstore verify` says more",
                utc_text(*newest_ms),
                utc_text(*counted_ms)
            ),
            Self::ClockAhead => {
                "the clock is more than a year ahead of the messages stored since, which counts as \
                 no time; if nothing was stored so long, `mqstore clean --now TIME` with an earlier \
                 time or keep_bytes deletes it"
                    .to_owned()
            }
            Self::ShowsStepBack => {
                "it shows that the times in the file behind it, which is kept, are wrong".to_owned()
            }
            Self::Forced { used_percent } => format!(
                "the disk is {used_percent} % full, past the {} % at which files go before their \
                 time",
                levels.forced
            ),
            Self::Behind { log_start } => {
                format!("all its messages lie before {log_start}, where the log begins then")
            }
            Self::Last => "the last file is always kept".to_owned(),
            Self::Young { age_hours } => {
                format!(
                    "last written {age_hours} h ago, less than the {kept} h that files are kept"
                )
            }
            Self::NotBackedUp => {
                "the newest snapshot does not have each byte of it and of the files before it; \
                 `mqstore sync` adds them"
                    .to_owned()
            }
            Self::BehindKept => "a file before it is kept, and files go from the front".to_owned(),
            Self::NotNow { age_hours } => format!(
                "last written {age_hours} h ago and expired, but files go at hour {} or when the \
                 disk is more than {} % full",
                config.delete_when, levels.expired
            ),
            Self::NextRound => {
                format!("no more than {} files go in a round", config.delete_file_batch_max)
            }
            Self::InUse => "not all of it is flushed and in queues and index yet".to_owned(),
            Self::Leads => "it leads to messages that the log keeps".to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub path: PathBuf,
    pub bytes: u64,
    pub fate: Fate,
}

/// Whether it is an hour for deletion (`UtilAll.isItTimeToDo`).
#[must_use]
pub fn is_time_to_delete(config: &StoreConfig, now_ms: i64) -> bool {
    let hour = CalendarTime::local(now_ms).hour;
    config.delete_when.split(';').any(|asked| asked.trim().parse() == Ok(hour))
}

/// Rules for an occasion: on request without rules, RocketMQ's.
#[must_use]
pub fn rules_of(config: &StoreConfig, occasion: &Occasion) -> DeleteRules {
    match config.delete_rules() {
        DeleteRules::Off if occasion.by_hand => DeleteRules::RocketMq,
        rules => rules,
    }
}

/// Decides about each log file in order, for one round. Files that end behind `safe_end` are kept.
pub fn judge_log(
    log: &CommitLog,
    ages: &FileAges,
    config: &StoreConfig,
    occasion: &Occasion,
    safe_end: u64,
) -> Result<Vec<Verdict>> {
    let size = log.run().file_size();
    let is_in_use = |file: &RunFile| file.base_offset.saturating_add(size) > safe_end;
    let verdicts = match rules_of(config, occasion) {
        DeleteRules::Off => judge_in_turn(&log.run().files(), place_of, |_, _| Ok(Fate::Off)),
        DeleteRules::RocketMq => judge_by_rocketmq(log.run(), config, occasion, is_in_use),
        DeleteRules::Keep { hours, bytes } => {
            let files = log.run().files();
            let kept_ms = saturating_i64(hours.unwrap_or(0)).saturating_mul(HOUR_MS);
            let mut aging = Aging::new(&files, occasion.now_ms, kept_ms);
            let verdicts = judge_in_turn(&files, place_of, |number, file| {
                if is_in_use(file) {
                    return Ok(Fate::InUse);
                }
                let end = file.base_offset.saturating_add(size);
                let behind = log.end_offset().saturating_sub(end);
                if bytes.is_some_and(|bytes| behind >= bytes) {
                    return Ok(Fate::Beyond { behind });
                }
                if hours.is_none() {
                    return Ok(Fate::Kept);
                }
                let first_ms = ages.first_ms(log, file)?;
                if first_ms.is_some_and(|first_ms| aging.is_young(first_ms)) {
                    return Ok(Fate::Kept);
                }
                let Some(newest_ms) = ages.newest_ms(log, file)? else {
                    return Ok(Fate::Damaged);
                };
                let modified_ms = modified_ms(log.run(), file)?;
                let own = FileTimes { first_ms, newest_ms, modified_ms };
                Ok(match aging.judge(number, own, |file| ages.first_ms(log, file))? {
                    Aged::Old { age_ms } => Fate::Old { age_hours: age_ms / HOUR_MS },
                    Aged::Young => Fate::Kept,
                    Aged::Doubtful(fate) => fate,
                })
            });
            verdicts.map(|verdicts| aging.keep_what_shows_a_step_back(verdicts))
        }
    };
    let mut verdicts = verdicts?;
    if let Some(backed_up_to) = occasion.backed_up_to {
        for (verdict, file) in verdicts.iter_mut().zip(log.run().files().iter()) {
            if verdict.fate.goes() && file.base_offset.saturating_add(size) > backed_up_to {
                verdict.fate = Fate::NotBackedUp;
            }
        }
    }
    Ok(verdicts)
}

struct Aging<'a> {
    files: &'a [Arc<RunFile>],
    now_ms: i64,
    kept_ms: i64,
    firsts: Vec<Option<i64>>,
    before_ms: i64,
    stepped_back: Option<usize>,
}

enum Aged {
    Old { age_ms: i64 },
    Young,
    Doubtful(Fate),
}

impl<'a> Aging<'a> {
    fn new(files: &'a [Arc<RunFile>], now_ms: i64, kept_ms: i64) -> Self {
        let (firsts, before_ms) = (Vec::new(), i64::MIN);
        Self { files, now_ms, kept_ms, firsts, before_ms, stepped_back: None }
    }

    /// Whether a file with a message of that time is young, whatever the files around it.
    fn is_young(&self, ms: i64) -> bool {
        let until_ms = self.now_ms.saturating_sub(self.kept_ms);
        until_ms < ms && ms <= self.now_ms.saturating_add(FAR_MS)
    }

    fn judge(
        &mut self,
        number: usize,
        own: FileTimes,
        first_ms: impl Fn(&RunFile) -> Result<Option<i64>>,
    ) -> Result<Aged> {
        if self.firsts.is_empty() {
            self.firsts =
                self.files.iter().map(|file| first_ms(file)).collect::<Result<Vec<_>>>()?;
        }
        let behind = self.firsts.get(number + 1..).unwrap_or_default();
        let newest = newest_believable(own, self.before_ms, behind, self.now_ms);
        let age_ms = age_ms(newest.ms, behind, self.now_ms, self.kept_ms);
        if is_possible(own.newest_ms, self.now_ms) {
            self.before_ms = self.before_ms.max(own.newest_ms);
        }
        if age_ms >= self.kept_ms {
            return Ok(Aged::Old { age_ms });
        }
        self.stepped_back = newest.is_stepped_back.then_some(number);
        Ok(if self.now_ms.saturating_sub(newest.ms) >= self.kept_ms {
            Aged::Doubtful(Fate::ClockAhead)
        } else if newest.is_own {
            Aged::Young
        } else {
            let (newest_ms, counted_ms) = (own.newest_ms, newest.ms);
            Aged::Doubtful(Fate::WrongClock { newest_ms, counted_ms })
        })
    }

    /// Keeps the file before one whose times are believed to be wrong because of it: in the next
    /// round they would be believed.
    fn keep_what_shows_a_step_back(&self, mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
        let before = self.stepped_back.and_then(|number| number.checked_sub(1));
        let verdict = before.and_then(|before| verdicts.get_mut(before));
        if let Some(verdict) = verdict
            && matches!(verdict.fate, Fate::Old { .. } | Fate::Expired { .. })
        {
            verdict.fate = Fate::ShowsStepBack;
        }
        verdicts
    }
}

/// Decides from the front up to the first file to keep, at the latest the last.
fn judge_in_turn<F>(
    files: &[F],
    place: impl Fn(&F) -> (PathBuf, u64),
    mut judge: impl FnMut(usize, &F) -> Result<Fate>,
) -> Result<Vec<Verdict>> {
    let (mut verdicts, mut open) = (Vec::with_capacity(files.len()), true);
    for (number, file) in files.iter().enumerate() {
        let fate = match () {
            () if number + 1 == files.len() => Fate::Last,
            () if open => judge(number, file)?,
            () => Fate::BehindKept,
        };
        open &= fate.goes();
        let (path, bytes) = place(file);
        verdicts.push(Verdict { path, bytes, fate });
    }
    Ok(verdicts)
}

pub fn place_of(file: &Arc<RunFile>) -> (PathBuf, u64) {
    (file.path.clone(), file.len)
}

/// RocketMQ's rules (`MappedFileQueue#deleteExpiredFileByTime`). A request runs as many rounds as
/// needed.
fn judge_by_rocketmq(
    log: &FileRun,
    config: &StoreConfig,
    occasion: &Occasion,
    is_in_use: impl Fn(&RunFile) -> bool,
) -> Result<Vec<Verdict>> {
    let levels = Levels::of(config);
    let pressure = levels.pressure(occasion.disk);
    let is_time =
        occasion.by_hand || pressure > Pressure::None || is_time_to_delete(config, occasion.now_ms);
    let forced = pressure >= Pressure::Forced && config.clean_file_forcibly_enable;
    let kept_hours = saturating_i64(config.file_reserved_time);
    let kept_ms = kept_hours.saturating_mul(HOUR_MS);
    let files = log.files();
    let mut aging = Aging::new(&files, occasion.now_ms, kept_ms);
    let verdicts = judge_in_turn(&files, place_of, |number, file| {
        let modified_ms = modified_ms(log, file)?;
        let age_ms = occasion.now_ms.saturating_sub(modified_ms);
        let mut age_hours = age_ms / HOUR_MS;
        let in_round = (number as u64) < config.delete_file_batch_max;
        let (mut expired, mut doubt) = (age_ms >= kept_ms, None);
        if expired {
            let own = FileTimes { first_ms: None, newest_ms: modified_ms, modified_ms };
            match aging.judge(number, own, |file| self::modified_ms(log, file).map(Some))? {
                Aged::Old { age_ms } => age_hours = age_ms / HOUR_MS,
                Aged::Young => expired = false,
                Aged::Doubtful(fate) => (expired, doubt) = (false, Some(fate)),
            }
        }
        Ok(match () {
            () if is_in_use(file) => Fate::InUse,
            () if expired && !is_time => Fate::NotNow { age_hours },
            () if expired && (in_round || occasion.by_hand) => Fate::Expired { age_hours },
            () if forced && in_round => Fate::Forced { used_percent: occasion.disk.most() },
            () if expired || forced => Fate::NextRound,
            () => doubt.unwrap_or(Fate::Young { age_hours }),
        })
    });
    verdicts.map(|verdicts| aging.keep_what_shows_a_step_back(verdicts))
}

fn modified_ms(log: &FileRun, file: &RunFile) -> Result<i64> {
    let stat = log.open(file)?.stat().map_err(Error::io("stat", &file.path))?;
    Ok(stat.modified_ms)
}

/// Decides about files that lead to the log, oldest first; `last` returns the offset of a file's
/// last message.
pub fn judge_derived<F>(
    files: &[F],
    log_start: u64,
    place: impl Fn(&F) -> (PathBuf, u64),
    last: impl Fn(&F) -> Result<Option<u64>>,
) -> Result<Vec<Verdict>> {
    judge_in_turn(files, place, |_, file| {
        let goes = last(file)?.is_none_or(|last| last < log_start);
        Ok(if goes { Fate::Behind { log_start } } else { Fate::Leads })
    })
}
