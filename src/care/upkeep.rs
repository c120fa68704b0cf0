//! Recovery and retention, done once from outside: an open for writing does both by itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::{Os, Storage, SystemClock};
use crate::store::folder::owner;
use crate::store::folder::paths::StorePaths;
use crate::store::open::plan::{self, RecoveryPlan};
use crate::store::progress::Progress;
use crate::store::write::retention::clean::Judgement;
use crate::store::write::retention::{DiskUse, Levels, Occasion, Pressure};
use crate::store::{MessageStore, OpenMode};

/// Whether recovery only plans, and what it may drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recover {
    /// Changes nothing.
    Plan,
    /// Recovers, unless whole messages lie behind damage.
    Apply,
    /// Recovers; whole messages behind damage go to the quarantine.
    DropBeyond,
}

/// Plans recovery of the store at `path`, or does it. `progress` can end it before anything
/// changes.
pub fn recover(
    path: &Path,
    config: StoreConfig,
    what: Recover,
    progress: &mut Progress<'_>,
) -> Result<RecoveryPlan> {
    let storage: Arc<dyn Storage> = Arc::new(Os);
    if what == Recover::Plan {
        return plan::plan(path, config, &storage, progress);
    }
    owner::check(&StorePaths::new(Arc::clone(&storage), path, &config))?;
    let config = StoreConfig { deletes_by_itself: false, ..config };
    let (clock, drop) = (Arc::new(SystemClock), what == Recover::DropBeyond);
    let store = MessageStore::open_cutting(path, config, storage, clock, drop, progress)?;
    let (report, warnings) = (store.recovery().cloned(), store.warnings());
    store.close()?;
    match report {
        Some(report) => Ok(RecoveryPlan { report, refusal: None, warnings }),
        // A writable store has one.
        None => Err(crate::Error::Closed),
    }
}

/// Result of retention or of a dry run.
#[derive(Clone, Debug)]
pub struct CleanReport {
    /// Store.
    pub path: PathBuf,
    /// Every file with the decision.
    pub judgement: Judgement,
    /// Completed from the files.
    pub config: StoreConfig,
    /// Fill of the disks.
    pub disk: DiskUse,
    /// Effect of a full disk.
    pub pressure: Pressure,
    /// Bytes of the deleted files.
    pub freed_bytes: u64,
    /// Notices of the deletion.
    pub notices: Vec<String>,
}

/// Runs retention on the store at `path` at any hour: by its limits, else by RocketMQ's rules. A
/// dry run only reports. `backed_up_to` as in [`Occasion`].
pub fn clean(
    path: &Path,
    config: StoreConfig,
    now_ms: i64,
    dry_run: bool,
    backed_up_to: Option<u64>,
) -> Result<CleanReport> {
    if !dry_run {
        owner::check(&StorePaths::new(Arc::new(Os), path, &config))?;
    }
    let mode = if dry_run { OpenMode::Read } else { OpenMode::ReadWrite };
    // Files that the report does not name stay.
    let config = StoreConfig { deletes_by_itself: false, ..config };
    let store = MessageStore::open(path, mode, config)?;
    let disk = store.disk_use();
    let occasion = Occasion { now_ms, disk, by_hand: true, backed_up_to };
    let judgement = store.judge(&occasion)?;
    if !dry_run {
        store.clean_step(&occasion)?;
    }
    let report = CleanReport {
        path: path.to_owned(),
        freed_bytes: judgement
            .files
            .iter()
            .filter(|verdict| verdict.fate.goes())
            .map(|verdict| verdict.bytes)
            .sum(),
        judgement,
        notices: store.notices().take_new(),
        config: store.config().clone(),
        disk,
        pressure: Levels::of(store.config()).pressure(disk),
    };
    store.close()?;
    Ok(report)
}
