//! Plans recovery: what opening for writing would do.

use std::path::Path;
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::{Corruption, Error, Result};
use crate::files::{Access, Storage, SystemClock};
use crate::format::width::saturating_i64;
use crate::log::index::run::IndexRun;
use crate::log::{CommitLog, StoreCheckpoint};
use crate::time::{Clock, FAR_MS};

use super::analysis::{Analysis, FoundStore};
use super::epoch::EndedEpoch;
use super::inspect::{Parts, layout_to_write, load_parts};
use super::refusal::{Refusal, Why, gone};
use super::to_write::read_mark;
use crate::store::folder::found;
use crate::store::folder::lock::{self, StoreLock};
use crate::store::folder::mark::Flushed;
use crate::store::folder::paths::StorePaths;
use crate::store::folder::seal::Seal;
use crate::store::open::version;
use crate::store::progress::Progress;
use crate::store::read::missing_end::MissingEnd;
use crate::store::recovery_report::{RecoveryMode, RecoveryReport};

#[derive(Clone, Debug)]
pub struct RecoveryPlan {
    /// Its expected report; for refused damage, that of cutting there.
    pub report: RecoveryReport,
    /// Why recovery refuses unless told to drop what lies beyond.
    pub refusal: Option<Refusal>,
    /// Warnings once done.
    pub warnings: Vec<String>,
}

/// Analyses the store at `path` like opening for writing, without a change.
pub fn plan(
    path: &Path,
    mut config: StoreConfig,
    storage: &Arc<dyn Storage>,
    progress: &mut Progress<'_>,
) -> Result<RecoveryPlan> {
    let paths = StorePaths::new(Arc::clone(storage), path, &config);
    found::need_store(&paths)?;
    if let (true, pid) = StoreLock::state(&**storage, path) {
        return Err(Error::Locked { path: paths.lock(), pid });
    }
    let mode = match lock::was_aborted(&paths)? {
        true => RecoveryMode::Crash,
        false => RecoveryMode::Clean,
    };
    let mut parts = load_parts(&paths, &mut config, Access::Read)?;
    parts.refuse_what_is_in_the_way()?;
    let Parts { log, queues, index, .. } = parts;
    let layout = layout_to_write(index, &mut config)?;
    let index = IndexRun::to_read(storage, &paths.index(), layout)?;
    let spares = MissingEnd::before_spares(&log, &queues, index.as_ref())?;
    let spares = spares.map(|missing| Refusal::uncut(gone(&log, &missing), Why::Missing(missing)));
    let broken = || broken_run(&log).map(|damage| Refusal::uncut(damage, Why::Files));
    let broken = spares.or_else(broken);
    if let Some(refusal) = Refusal::of_files(&paths, log.run())?.or(broken) {
        return Ok(unread(mode, log.min_offset(), refusal));
    }
    let checkpoint = StoreCheckpoint::load(&**storage, &paths.checkpoint(), Access::Read)?;
    let is_clean = mode == RecoveryMode::Clean;
    let seal = if is_clean { Seal::holding(&paths, &config)? } else { None };
    let run = index.as_ref().filter(|_| seal.is_none());
    version::choose(&mut config, &version::read_marks(&paths, &log, run)?)?;
    let mark = read_mark(&paths, &mut Vec::new())?;
    let found = FoundStore {
        paths: &paths,
        config: &config,
        log: &log,
        queues: &queues,
        index: index.as_ref(),
        checkpoint: &checkpoint.fields,
        flushed: Flushed::of(&paths, mark, &checkpoint.fields, is_clean),
        ended: EndedEpoch::find(&paths, &log, &queues)?,
        is_clean,
        seal,
        latest_ms: SystemClock.now_ms().saturating_add(FAR_MS),
    };
    let analysis = found.analyse(progress)?;
    let refusal = found.refusal(&analysis)?;
    let mut rebuilt: Vec<_> =
        analysis.queues.iter().map(|finding| finding.folder(&queues)).collect();
    if let Some(index) = &index
        && !analysis.sealed
        && is_index_rebuilt(index, &analysis, found.index_trusted_until_ms())?
    {
        rebuilt.push("index".to_owned());
    }
    let report = RecoveryReport { rebuilt, ..analysis.report(mode) };
    Ok(RecoveryPlan { report, refusal, warnings: Vec::new() })
}

fn unread(mode: RecoveryMode, end: u64, refusal: Refusal) -> RecoveryPlan {
    let report = Analysis { end, ..Analysis::default() }.report(mode);
    RecoveryPlan { report, refusal: Some(refusal), warnings: Vec::new() }
}

/// A gap or wrong length among the log's files, except an empty last file, which a crash leaves.
fn broken_run(log: &CommitLog) -> Option<Corruption> {
    let files = log.run().files();
    let empty_last = files.last().filter(|last| last.len == 0).map(|last| last.path.clone());
    log.run().check().into_iter().find_map(|fault| match fault {
        Error::Corrupt(fault) if empty_last.is_none() || fault.path != empty_last => Some(*fault),
        _ => None,
    })
}

fn is_index_rebuilt(index: &IndexRun, analysis: &Analysis, known_ms: i64) -> Result<bool> {
    let Some((first_keyed, last_keyed)) = analysis.keyed else { return Ok(false) };
    if analysis.unsound_index.is_some() || !index.unusable().is_empty() {
        return Ok(true);
    }
    let reaches = |place: i64, wanted: u64| u64::try_from(place).is_ok_and(|at| at >= wanted);
    let mut reach = None;
    for (number, file) in index.files().iter().enumerate() {
        let header = index.open(file)?.header()?;
        // Newer files go; their keys are missing only if the log still has the messages.
        if header.end_timestamp_ms > known_ms {
            break;
        }
        if number == 0 && header.begin_physical_offset > saturating_i64(first_keyed) {
            return Ok(true);
        }
        reach = Some(header.end_physical_offset);
    }
    Ok(!reach.is_some_and(|reach| reaches(reach, last_keyed)))
}
