//! Diagnoses, the verdict, the commands in order, and the forecast of the next start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::losses::{GroupFate, Lost};
use crate::care::broker::{self, Fate, NextStart};
use crate::care::finding::{Code, Finding, Severity};
use crate::care::rocksdb;
use crate::care::verify::{Level, VerifyOptions, VerifyReport, verify_on};
use crate::config::StoreConfig;
use crate::error::{Result, quoted};
use crate::files::{Access, DirEntry, FileKind, Storage};
use crate::format::release::Release;
use crate::store::folder::inventory;
use crate::store::folder::paths::{COMMIT_LOG, StorePaths};
use crate::store::open::epoch::{ENDED, EndedEpoch};
use crate::store::open::inspect::{Parts, load_parts};
use crate::store::open::misplaced::{self, Misplaced, free};
use crate::store::open::refusal::{Refusal, Why};
use crate::store::progress::unwatched;
use crate::store::read::missing_end::MissingEnd;

pub(super) const MOST_EVIDENCE: usize = 5;

/// A state of a store and its cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Its code.
    pub code: Code,
    /// Severity.
    pub severity: Severity,
    /// Evidence, a line each.
    pub evidence: Vec<String>,
    /// The shell command that cures it, if there is one.
    pub cure: Option<String>,
    /// Numbers of findings that follow from it, by code.
    pub follows: Vec<(Code, u64)>,
    /// Physical offset of the first of the messages that queues lack, if it is about such.
    pub first_missing: Option<u64>,
}

impl Diagnosis {
    pub(super) fn new(code: Code, severity: Severity, evidence: Vec<String>) -> Self {
        Self { code, severity, evidence, cure: None, follows: Vec::new(), first_missing: None }
    }
}

/// Verdict on a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The store's release.
    pub release: Release,
    /// Whether a process writes to it.
    pub in_use: bool,
    /// RocketMQ's next start.
    pub next_start: NextStart,
    /// Lost messages.
    pub lost: Lost,
    /// Groups.
    pub groups: Vec<GroupFate>,
    /// Commands in order, which lose nothing readable.
    pub commands: Vec<String>,
    /// Commands that give up missing files or messages.
    pub last_resort: Vec<String>,
}

#[derive(Clone, Copy)]
pub(super) struct Barred {
    pub(super) recovery: bool,
    pub(super) rebuild: bool,
    pub(super) all: bool,
}

impl Barred {
    pub(super) fn by(report: &VerifyReport, paths: &StorePaths, cause: &Cause) -> Self {
        let any = |is: &dyn Fn(&Finding) -> bool| report.findings.iter().any(is);
        let of_log = |found: &Finding| {
            matches!(found.code, Code::FileLength | Code::FileGap)
                && broker::is_in_log(found, paths)
        };
        let in_the_way = |found: &Finding| {
            found.code == Code::NoRegularFile && found.severity == Severity::Error
        };
        let is_conflict = |found: &Finding| found.code == Code::FileTwin && found.offset.is_some();
        let has_cause = !matches!(cause, Cause::None) || any(&is_conflict);
        // A rebuild clears a queue's folder anyway.
        let in_root = |found: &Finding| in_the_way(found) && found.path.components().count() == 1;
        Self {
            recovery: has_cause || any(&in_the_way) || any(&of_log),
            rebuild: has_cause || any(&in_root),
            all: matches!(cause, Cause::EndMissing(_) | Cause::Ledger(_)),
        }
    }

    pub(super) fn bars(self, command: &str) -> bool {
        let is_recovery =
            command.starts_with("mqstore recover ") && !command.contains("--quarantine");
        self.all
            || (self.recovery && is_recovery)
            || (self.rebuild && command.starts_with("mqstore rebuild "))
    }
}

#[derive(Debug, Default)]
pub(super) enum Cause {
    #[default]
    None,
    Misplaced(Misplaced),
    EndMissing(MissingEnd),
    BrokenRun,
    Damage(Refusal),
    Epoch(EndedEpoch),
    Ledger(PathBuf),
    /// A record's number was changed: a rebuild loses its entry.
    Numbers,
}

impl Cause {
    pub(super) fn of(misplaced: Option<Misplaced>, refusal: Option<Refusal>) -> Self {
        match (misplaced, refusal) {
            (_, Some(Refusal { why: Why::Ledger(dir), .. })) => Self::Ledger(dir),
            (Some(misplaced), _) => Self::Misplaced(misplaced),
            (None, None) => Self::None,
            (None, Some(Refusal { why: Why::Ended(ended), .. })) => Self::Epoch(ended),
            (None, Some(Refusal { why: Why::Missing(missing), .. })) => Self::EndMissing(missing),
            (None, Some(Refusal { why: Why::Files, .. })) => Self::BrokenRun,
            (None, Some(refusal)) => Self::Damage(refusal),
        }
    }

    pub(super) fn missing(&self) -> Option<&MissingEnd> {
        match self {
            Self::EndMissing(missing) => Some(missing),
            _ => None,
        }
    }

    pub(super) fn names(&self, code: Code) -> bool {
        match self {
            Self::None => false,
            Self::Misplaced(_) => code == Code::DocMisplaced,
            Self::EndMissing(_) => matches!(code, Code::DocEndMissing | Code::DocCopy),
            Self::Ledger(_) => code == Code::Ledger,
            Self::BrokenRun => matches!(code, Code::FileLength | Code::FileGap),
            Self::Damage(_) => code.name().starts_with("MQ-LOG-"),
            Self::Epoch(_) => code == Code::DocEpochEnded,
            Self::Numbers => code == Code::LogTwice,
        }
    }

    pub(super) fn explains(&self, code: Code) -> bool {
        let is_of_log = code.name().starts_with("MQ-LOG-");
        let is_of_files =
            matches!(code, Code::FileLength | Code::FileGap | Code::EmptyFile | Code::StrayName);
        let is_derived =
            ["MQ-CQ-", "MQ-IX-", "MQ-CK-"].iter().any(|of| code.name().starts_with(of))
                || matches!(
                    code,
                    Code::DocUndispatched
                        | Code::DocIndexDoomed
                        | Code::DocIndexLacks
                        | Code::DocQueueOrder
                        | Code::DocQueueWrong
                        | Code::DocEmptyLast
                        | Code::DocSlowStart
                        | Code::OffsetBeyond
                        | Code::DelayOffset
                );
        match self {
            Self::None => false,
            Self::Ledger(_) if code == Code::DocTwoBrokers => true,
            Self::Misplaced(_) | Self::Ledger(_) => is_of_log || is_of_files || is_derived,
            Self::EndMissing(_) => {
                is_derived || is_of_files || matches!(code, Code::LogShort | Code::LogEmpty)
            }
            Self::BrokenRun => is_of_log || is_derived,
            Self::Damage(_) | Self::Epoch(_) | Self::Numbers => is_derived,
        }
    }
}

const REBUILD: &str = "mqstore rebuild ";
pub(super) const SALVAGE: &str = "mqstore salvage ";

const DAMAGED: &str = "damaged";
const CARRIED: [&str; 6] = [
    "quarantine",
    "config/topics",
    "config/subscriptionGroups",
    "config/consumerOffsets",
    "config/metadata",
    "config/rdb",
];

pub(super) fn commands(
    paths: &StorePaths,
    cause: &Cause,
    diagnoses: &[Diagnosis],
    more: Vec<String>,
) -> (Vec<String>, Vec<String>) {
    let (store, mut commands) = (paths.root(), Vec::new());
    let Some(name) = quoted(store) else { return Default::default() };
    if let Cause::Misplaced(Misplaced { moves, packed, .. }) = cause {
        commands.extend(packed.iter().filter_map(|path| unpacked(path)));
        commands.extend(moves.iter().filter_map(|(from, to)| moved(from, to)));
        commands.push(format!("mqstore doctor {name}"));
        return (commands, Vec::new());
    }
    if let Cause::Ledger(dir) = cause {
        return (salvage_of(paths, dir).into_iter().collect(), Vec::new());
    }
    let of_queues = format!("{REBUILD}{name} --what consumequeue ");
    let all_queues = format!("{of_queues}--apply");
    let cures = diagnoses.iter().filter(|found| found.severity != Severity::Info);
    let cures = cures.filter_map(|found| found.cure.clone()).chain(more);
    let (drops, cures): (Vec<_>, Vec<_>) = cures.partition(|cure| cure.contains("--drop-beyond"));
    let mut cures: Vec<_> = cures.into_iter().map(|cure| (rank(&cure), cure)).collect();
    cures.sort_by_key(|(rank, cure)| (*rank, *cure != all_queues));
    let (mut known, mut guard) = (Vec::new(), String::new());
    for (_, cure) in cures {
        let is_covered = |known: &String| {
            known == &cure || (known == &all_queues && cure.starts_with(&of_queues))
        };
        if known.iter().any(is_covered) {
            continue;
        }
        commands.push(format!("{guard}{cure}"));
        if cure.starts_with(SALVAGE) && elsewhere(paths).is_none() {
            let new = salvaged(paths.storage(), store);
            commands.extend(swap_commands(paths.storage(), store, &new).unwrap_or_default());
            guard = only_with(&beside(paths.storage(), store, DAMAGED)).unwrap_or_default();
        }
        known.push(cure);
    }
    let last_resort = match cause {
        Cause::EndMissing(missing) => {
            let spares = missing.spares.iter().filter_map(|spare| {
                let file = spare.file_name()?.to_str()?;
                moved(spare, &free(paths.storage(), store, &format!("{file}.empty"), |_| false))
            });
            spares.chain([format!("mqstore recover {name} --apply --drop-beyond")]).collect()
        }
        _ => drops,
    };
    (commands, last_resort)
}

pub(super) fn with_log_folder(mut diagnosis: Diagnosis, paths: &StorePaths) -> Diagnosis {
    let salvages = diagnosis.cure.as_ref().is_some_and(|cure| cure.starts_with(SALVAGE));
    if let Some(dir) = elsewhere(paths).filter(|_| salvages) {
        diagnosis.evidence.push(format!(
            "the log lies in {}, not in the store's folder {COMMIT_LOG}: move it aside, and put the \
             {COMMIT_LOG} of the salvaged store in its place",
            dir.display()
        ));
    }
    diagnosis
}

pub(super) fn salvage_of(paths: &StorePaths, dir: &Path) -> Option<String> {
    if dir == paths.root() {
        return None;
    }
    let out = salvaged(paths.storage(), paths.root());
    Some(format!("{SALVAGE}{} --out {}", quoted(dir)?, quoted(out)?))
}

fn rank(cure: &str) -> u8 {
    let of = |start: &str| cure.starts_with(start);
    match () {
        () if of("mv ") => 0,
        () if of("cp ") => 1,
        () if of(SALVAGE) => 2,
        () if of("mqstore recover ") && cure.contains("--quarantine") => 7,
        // Kinds of queues first: a recovery makes queues by them.
        () if of(REBUILD) && cure.contains("--what topics") => 3,
        () if of("mqstore recover ") => 4,
        () if of(REBUILD) => 5,
        () => 6,
    }
}

pub(super) fn moved(from: &Path, to: &Path) -> Option<String> {
    Some(format!("mv -n -T {} {}", quoted(from)?, quoted(to)?))
}

pub(super) fn elsewhere(paths: &StorePaths) -> Option<&PathBuf> {
    let own = paths.root().join(COMMIT_LOG);
    paths.commit_log().iter().find(|dir| **dir != own)
}

pub(super) fn unpacked(path: &Path) -> Option<String> {
    let (_, tool) = misplaced::packer(path)?;
    Some(format!("{tool} {}", quoted(path)?))
}

pub(super) fn salvaged(storage: &dyn Storage, store: &Path) -> PathBuf {
    beside(storage, store, "salvaged")
}

fn beside(storage: &dyn Storage, store: &Path, what: &str) -> PathBuf {
    let name = store.file_name().unwrap_or_default().display();
    free(storage, store.parent().unwrap_or(store), &format!("{name}.{what}"), |_| false)
}

/// Commands that put `new` in the place of `store`; `None` for a name that is no text.
#[must_use]
pub fn swap_commands(storage: &dyn Storage, store: &Path, new: &Path) -> Option<Vec<String>> {
    let old = beside(storage, store, DAMAGED);
    let has_log = format!("test -n \"$(ls {})\"", quoted(new.join(COMMIT_LOG))?);
    let mut commands = vec![format!("{has_log} && {}", moved(store, &old)?), moved(new, store)?];
    for folder in CARRIED {
        if storage.list(&store.join(folder)).is_ok_and(|entries| !entries.is_empty()) {
            let (from, to) = (old.join(folder), store.join(folder));
            commands.push(format!("cp -a -n -T {} {}", quoted(from)?, quoted(to)?));
        }
    }
    let is_database = |dir: &str| inventory::is_database(storage, &store.join(dir));
    if rocksdb::QUEUES.iter().any(|dir| is_database(dir).unwrap_or(false)) {
        let (store, guard) = (quoted(store)?, only_with(&old)?);
        commands.push(format!("{guard}mqstore convert {store} --queues rocksdb --apply"));
    }
    Some(commands)
}

/// Begins a command that needs `dir`.
fn only_with(dir: &Path) -> Option<String> {
    Some(format!("test -d {} && ", quoted(dir)?))
}

const DONE: [&[u8]; 2] = [b".restored", ENDED.as_bytes()];

pub(super) fn quarantined(paths: &StorePaths) -> Result<Vec<PathBuf>> {
    let (dir, mut found) = (paths.quarantine(), Vec::new());
    if !matches!(paths.storage.kind(&dir), Ok(Some(FileKind::Directory))) {
        return Ok(found);
    }
    for dir in paths.storage.folders_in(&dir)? {
        let of_log = |entry: &DirEntry| entry.name.as_encoded_bytes().starts_with(b"commitlog-");
        let name = dir.as_os_str().as_encoded_bytes();
        let is_done = DONE.iter().any(|done| name.ends_with(done));
        if !is_done && inventory::list(paths.storage(), &dir)?.iter().any(of_log) {
            found.push(dir);
        }
    }
    Ok(found)
}

/// Forecasts the next start.
pub fn next_start(
    storage: Arc<dyn Storage>,
    path: &Path,
    config: &StoreConfig,
    release: Release,
) -> Result<NextStart> {
    let paths = StorePaths::new(storage, path, config);
    let refused = broker::refused(&paths, true);
    if !refused.is_empty() {
        return Ok(broker::not_readable(&refused, &paths));
    }
    let options = VerifyOptions { level: Level::Quick, ..VerifyOptions::default() };
    let own = Arc::clone(&paths.storage);
    let report = verify_on(own, path, config.clone(), &options, &mut unwatched)?;
    let (mut config, _) = broker::proven(&paths, config)?;
    let Parts { log, queues, .. } = load_parts(&paths, &mut config, Access::Read)?;
    let mut start = broker::foresee(&paths, (&log, &config), release, Some(&queues))?;
    start.cut = broker::cut(&log, &config, start.from)?;
    start.obstacles = broker::obstacles(&report.findings, &paths, (&log, &config), &start)?;
    let not_writable = broker::not_writable(&paths).into_iter();
    start
        .obstacles
        .extend(not_writable.map(|path| broker::obstacle(&path, &paths, Access::ReadWrite)));
    let is_of_name = |found: &&Finding| {
        matches!(found.code, Code::StrayName | Code::EmptyFile | Code::NoRegularFile)
    };
    let strays = report.findings.iter().filter(is_of_name);
    start.strays = strays
        .filter(|found| broker::fate(found, &paths) == Fate::Deleted)
        .map(|found| found.path.display().to_string())
        .collect();
    Ok(start)
}

/// Report on a store of which this user may not read these files and folders: nothing else is known.
pub(super) fn not_readable(
    config: &StoreConfig,
    paths: &StorePaths,
    refused: &[PathBuf],
) -> (Diagnosis, Verdict) {
    let next_start = broker::not_readable(refused, paths);
    let commands: Vec<_> =
        refused.iter().filter_map(|path| broker::owner_command(path, paths)).collect();
    let evidence = next_start.obstacles.iter().take(MOST_EVIDENCE).cloned().collect();
    let mut diagnosis = Diagnosis::new(Code::Unreadable, Severity::Error, evidence);
    diagnosis.cure = commands.first().cloned();
    let verdict = Verdict {
        release: config.rocketmq_version.unwrap_or(Release::V5_3),
        in_use: false,
        next_start,
        lost: Lost::default(),
        groups: Vec::new(),
        commands,
        last_resort: Vec::new(),
    };
    (diagnosis, verdict)
}
