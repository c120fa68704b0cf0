//! Retention from outside: what would be deleted and why, and doing it.

use std::path::{Path, PathBuf};

use crate::config::StoreConfig;
use crate::error::Result;
use crate::store::write::retention::clean::Judgement;
use crate::store::write::retention::{DiskUse, Levels, Occasion, Pressure};
use crate::store::{MessageStore, OpenMode};

/// What retention deletes, or would delete.
#[derive(Clone, Debug)]
pub struct CleanReport {
    /// The store.
    pub path: PathBuf,
    /// Every file, with its fate.
    pub judgement: Judgement,
    /// The settings that decided, those taken from the files filled in.
    pub config: StoreConfig,
    /// How full the disks were.
    pub disk: DiskUse,
    /// What that asks for.
    pub pressure: Pressure,
    /// How many bytes the files have that go.
    pub freed_bytes: u64,
    /// What the deletion has to tell.
    pub notices: Vec<String>,
}

/// Says what retention would delete of the store at `path` when asked by hand at `now_ms`: by the limits
/// that the settings give, else by RocketMQ's rules, whatever the hour of the day. Unless it is a dry run,
/// deletes it.
///
/// # Errors
/// As [`MessageStore::open`], for reading in a dry run and else for writing.
pub fn clean(path: &Path, config: StoreConfig, now_ms: i64, dry_run: bool) -> Result<CleanReport> {
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
