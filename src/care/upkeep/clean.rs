//! Retention of a closed store: plan and deletion.

use std::path::{Path, PathBuf};

use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::Os;
use crate::store::folder::owner;
use crate::store::folder::paths::StorePaths;
use crate::store::write::retention::clean::Judgement;
use crate::store::write::retention::{DiskUse, Levels, Occasion, Pressure};
use crate::store::{MessageStore, OpenMode};

/// Result of retention or of a dry run.
#[derive(Clone, Debug)]
pub struct CleanReport {
    /// The store.
    pub path: PathBuf,
    /// Every file with the decision.
    pub judgement: Judgement,
    /// The settings used, completed from the files.
    pub config: StoreConfig,
    /// Disk usage.
    pub disk: DiskUse,
    /// Resulting pressure.
    pub pressure: Pressure,
    /// Bytes of the deleted files.
    pub freed_bytes: u64,
    /// Notices of the deletion.
    pub notices: Vec<String>,
}

/// Runs retention on the store at `path` at any hour: by its limits, else by RocketMQ's rules. A
/// dry run only reports.
pub fn clean(path: &Path, config: StoreConfig, now_ms: i64, dry_run: bool) -> Result<CleanReport> {
    if !dry_run {
        owner::check(&Os, &StorePaths::new(path, &config))?;
    }
    let mode = if dry_run { OpenMode::Read } else { OpenMode::ReadWrite };
    let store = MessageStore::open(path, mode, config)?;
    let disk = store.disk_use();
    let occasion = Occasion { now_ms, disk, by_hand: true };
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
