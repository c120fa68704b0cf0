//! Carves whole messages out of the remains of a store into a new one.
//!
//! Three passes: find runs of whole records, merge them in log order, write. Memory grows with the
//! number of damaged places.

mod carve;
mod merge;
mod sources;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashSet;

pub use self::carve::{Carved, PassedOver};
use self::carve::{Extent, Window, carve};
use self::merge::{Census, Source, merge};
pub use self::merge::{Conflict, Merged};
pub use self::sources::Problem;
use self::sources::{FoundSources, find};
use super::transfer::{NumberRule, Plan, QueueName, Transfer, kinds, refuse_what_is_there};
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::Storage;
use crate::format::message::Record;
use crate::format::width::to_usize;
use crate::store::folder::paths::StorePaths;
use crate::store::folder::remembered::Remembered;
use crate::store::open::index_settings::{self, NoLayout};
use crate::store::open::inspect;
use crate::store::open::version::versions_of;
use crate::store::progress::{Progress, report_progress};

const REPORT_EVERY: u64 = 8 << 20;
/// Maximum record: it is held in memory.
const MOST_RECORD: u64 = 64 << 20;
/// Maximum runs of records, against hostile files.
const MOST_EXTENTS: usize = 4 << 20;

/// Result of [`salvage`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// Files read.
    pub files: Vec<(PathBuf, Carved)>,
    /// Distinct whole messages.
    pub messages: u64,
    /// Bytes of their records.
    pub bytes: u64,
    /// Merge of the sources.
    pub merged: Merged,
    /// Queues with messages.
    pub queues: u64,
    /// Queues that cannot keep their numbers and are renumbered: of duplicates, of a broker's own.
    pub renumbered: Vec<QueueName>,
    /// Missing queue offsets.
    pub missing: u64,
    /// Stand-ins for them.
    pub stand_ins: u64,
    /// Whether every record keeps its physical offset; `None` if nothing was written.
    pub in_place: Option<bool>,
    /// Copied configuration files.
    pub config_files: Vec<String>,
    /// First doubtful messages; the files count all.
    pub passed_over: Vec<PassedOver>,
    /// Unusable files.
    pub problems: Vec<Problem>,
}

/// Finds whole messages in `from`, and creates a store of them at `out` if given. `from` is a
/// store, folder or file and is only read. Unreadable parts are reported and skipped.
///
/// # Errors
/// [`Error::NotAStore`] without a file to read; [`Error::InvalidConfig`] for `out` inside
/// `from`; [`Error::Unsupported`] for too many fragments; [`Error::Io`] if no file can be read, or
/// nothing written.
pub fn salvage(
    storage: Arc<dyn Storage>,
    from: &Path,
    out: Option<&Path>,
    mut config: StoreConfig,
    target: Arc<dyn Storage>,
    progress: &mut Progress<'_>,
) -> Result<SalvageReport> {
    if let Some(out) = out {
        if out.starts_with(from) {
            return Err(Error::setting("out", "a folder outside of the source", out.display()));
        }
        refuse_what_is_there(&*target, out)?;
    }
    let remembered = Remembered::load(&StorePaths::new(Arc::clone(&storage), from, &config));
    let known = remembered.config.mapped_file_size_commit_log;
    let FoundSources { sources, files, hint, problems } = find(&storage, from, &config, known)?;
    let mut report = SalvageReport {
        config_files: files.iter().map(|(name, _)| name.clone()).collect(),
        problems,
        ..SalvageReport::default()
    };
    let most_record = config.max_message_size.saturating_add(128 << 10).max(MOST_RECORD);
    let most_record = to_usize(most_record).min(i32::MAX as usize);
    let mut bytes = 0;
    for source in &sources {
        bytes += source.file.stat().map_err(Error::io("stat", &source.path))?.len;
    }
    let total = bytes * if out.is_some() { 3 } else { 2 };
    let mut reported = 0;
    let mut tell = |reading: u64, done: u64| {
        let done = reading * bytes + done.min(bytes);
        if done < reported {
            return Ok(());
        }
        reported = done + REPORT_EVERY;
        report_progress(progress, (done, total), "salvage", from)
    };

    let extents = carve_all(&sources, most_record, &mut report, &mut |at| tell(0, at))?;
    let hint = hint.filter(|size| extents.iter().all(|extent| extent.fits(*size)));
    let file_size = adopt_config(&storage, from, &mut config, &remembered, hint);

    let mut census = Census::new(kinds(&files));
    report.merged = merge(&sources, &extents, &mut |view| {
        census.add(view);
        tell(1, census.bytes)
    })?;
    report.messages = census.messages;
    report.bytes = census.bytes;
    report.queues = census.queues();
    report.missing = census.missing();
    report.stand_ins = census.limit_stand_ins();
    report.renumbered = census.broken();
    let Some(out) = out else {
        let _ = progress(total, total);
        return Ok(report);
    };

    let first = census.first.unwrap_or(0);
    // As in a partial copy: messages missing at a queue's start lie before the log.
    let base_offset = if census.begins_late() { first.max(file_size) } else { first };
    let closed_up: HashSet<QueueName> = report.renumbered.iter().cloned().collect();
    let rule = NumberRule::Keep;
    let expected = census.messages;
    let plan = Plan { config, base_offset, rule, closed_up, files, expected };
    let mut transfer = Transfer::begin(target, out, plan)?;
    merge(&sources, &extents, &mut |view| {
        transfer.put(&Record::of(view))?;
        tell(2, transfer.bytes)
    })?;
    report.in_place = Some(transfer.in_place);
    transfer.finish(&[])?;
    let _ = progress(total, total);
    Ok(report)
}

fn carve_all(
    sources: &[Source],
    most_record: usize,
    report: &mut SalvageReport,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Vec<Extent>> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut before = 0;
    for (number, source) in (0_u32..).zip(sources) {
        let mut window = Window::new(&*source.file, &source.path)?;
        let flawed = &mut report.passed_over;
        let mut advance = |at| tell(before + at);
        let carved = carve(&mut window, number, most_record, &mut extents, flawed, &mut advance)?;
        if window.unreadable > 0 {
            let reason = format!("the disk does not give {} bytes of it", window.unreadable);
            report.problems.push(Problem { path: source.path.clone(), reason });
        }
        if extents.len() > MOST_EXTENTS {
            return Err(Error::Unsupported {
                what: format!("more than {MOST_EXTENTS} pieces without order; salvage it in parts"),
                path: source.path.clone(),
            });
        }
        before += carved.bytes;
        report.files.push((source.path.clone(), carved));
    }
    Ok(extents)
}

/// Settles the new store's file sizes and release as the source has them; returns the log's file
/// size.
fn adopt_config(
    storage: &Arc<dyn Storage>,
    from: &Path,
    config: &mut StoreConfig,
    remembered: &Remembered,
    hint: Option<u64>,
) -> u64 {
    let file_size = config.mapped_file_size_commit_log.or(hint);
    let file_size = file_size.or(remembered.config.mapped_file_size_commit_log);
    let file_size = file_size.unwrap_or(StoreConfig::COMMIT_LOG_FILE);
    config.mapped_file_size_commit_log = Some(file_size);
    let paths = StorePaths::new(Arc::clone(storage), from, config);
    take_sizes(&paths, config);
    remembered.fill_in_copy(config);
    // Write for the source's release, to hold as much. A source that is no store any more tells
    // none.
    let found = versions_of(&paths, config).unwrap_or_default();
    config.rocketmq_version = config.rocketmq_version.max(found.newest());
    file_size
}

fn take_sizes(paths: &StorePaths, config: &mut StoreConfig) {
    if let Ok(layout) = inspect::queue_layout(paths, config) {
        inspect::adopt_queue_layout(config, &layout);
    }
    if let Ok(Ok(layout) | Err(NoLayout { fits: Some(layout), .. })) =
        index_settings::index_layout(paths, config)
    {
        inspect::adopt_index_layout(config, layout);
    }
}
