//! Forecast of the next start, and the verdict on a store that cannot be read.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnosis::{Diagnosis, MOST_EVIDENCE};
use super::losses::Lost;
use super::verdict::Verdict;
use crate::care::broker::{self, NextStart};
use crate::care::finding::{Code, Severity};
use crate::care::verify::{Level, VerifyOptions, verify};
use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::{Access, Os, Storage};
use crate::format::release::Release;
use crate::store::folder::paths::StorePaths;
use crate::store::open::inspect::{Parts, load_parts};

/// Forecasts the next start.
pub fn next_start(path: &Path, config: &StoreConfig, release: Release) -> Result<NextStart> {
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let paths = StorePaths::new(path, config);
    let refused = broker::refused(&*storage, &paths, true);
    if !refused.is_empty() {
        return Ok(broker::not_readable(&refused, &paths));
    }
    let options = VerifyOptions { level: Level::Quick, ..VerifyOptions::default() };
    let mut go_on = |_, _| ControlFlow::Continue(());
    let report = verify(path, config.clone(), &options, &mut go_on)?;
    let (mut config, _) = broker::proven(&storage, &paths, config)?;
    let Parts { log, queues, .. } = load_parts(&paths, &mut config, &storage, Access::Read)?;
    let mut start = broker::foresee(&*storage, &paths, (&log, &config), release, Some(&queues))?;
    start.cut = broker::cut(&log, &config, start.from)?;
    start.obstacles = broker::obstacles(&*storage, &report.findings, &paths);
    let strays = report.findings.iter().filter(|found| found.code == Code::StrayName);
    start.strays = strays
        .filter(|found| broker::is_stray_file(found, &paths))
        .filter(|found| broker::is_deleted(&*storage, &paths.root().join(&found.path)))
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
    let commands: Vec<_> = refused.iter().filter_map(|path| broker::give(path, paths)).collect();
    let diagnosis = Diagnosis {
        code: Code::Unreadable,
        severity: Severity::Error,
        evidence: next_start.obstacles.iter().take(MOST_EVIDENCE).cloned().collect(),
        cure: commands.first().cloned(),
        follows: Vec::new(),
    };
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
