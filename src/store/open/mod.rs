//! Opens a store: look at the files, decide, repair, create a reader and a writer.
//!
//! Open this file first: `open` takes the lock, `to_write.rs` has the steps of a writer in order.
//! `inspect.rs` lists files. `analysis.rs` finds the log's end and damage, with `tail.rs`, and
//! changes nothing; `plan.rs` reports its outcome. `refusal.rs` decides whether a writer may repair
//! it, with `misplaced.rs` and `epoch.rs`. `recover.rs` repairs, `redispatch.rs` derives what is
//! missing.

pub mod analysis;
pub(crate) mod epoch;
pub mod index_settings;
pub mod inspect;
pub(crate) mod misplaced;
pub mod plan;
pub mod recover;
pub(crate) mod redispatch;
pub mod refusal;
pub mod tail;
mod to_write;
pub mod version;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::{Access, PinnedStorage, Storage, make_folder, make_folder_outside};
use crate::log::index::file::IndexOpen;
use crate::log::index::run::IndexRun;
use crate::time::Clock;

use self::inspect::{Parts, layout_to_read, load_lazily};
pub(super) use self::to_write::Opened;
use self::to_write::Opening;
use super::folder::found;
use super::folder::lock::{self, StoreLock};
use super::folder::owner;
use super::folder::paths::StorePaths;
use super::folder::swap;
use super::progress::Progress;
use super::read::reader::Reader;
use super::read::view::follower::{ConcurrentWriter, SharedView};
use super::recovery_report::RecoveryMode;
use super::store_files::FileAges;
use super::store_files::Notices;
use super::store_files::StoreFiles;
use super::write::retention::unread::PendingNotices;

/// Purpose of opening a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading: nothing is locked, created or changed.
    Read,
    /// Reading and writing an existing store.
    ReadWrite,
    /// Reading and writing; created if missing.
    Create,
}

pub(super) fn open(
    path: &Path,
    mode: OpenMode,
    config: StoreConfig,
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    drop_beyond: bool,
    progress: &mut Progress<'_>,
) -> Result<Opened> {
    config.check_retention()?;
    let paths = StorePaths::new(storage, path, &config);
    let there = found::is_store(&paths)?;
    if !there && (mode != OpenMode::Create || found::find_ledger(&paths)?.is_some()) {
        return Err(found::not_a_store(&paths));
    }
    if mode == OpenMode::Read {
        return open_to_read(paths, config, clock);
    }
    let foreign = owner::check_usable(&paths)?;
    make_folder_outside(paths.storage(), path, None)?;
    // Lock before reading anything.
    let store_lock = StoreLock::take(&paths)?;
    swap::finish(&paths)?;
    let crashed = lock::was_aborted(&paths)?;
    for dir in paths.written_commit_log() {
        match dir.starts_with(path) {
            true => make_folder(paths.storage(), &dir)?,
            false => make_folder_outside(paths.storage(), &dir, Some(path))?,
        }
    }
    make_folder(paths.storage(), &paths.consume_queue())?;
    let paths = anchored(paths)?;
    let mode = match (there, crashed) {
        (false, false) => RecoveryMode::New,
        (_, true) => RecoveryMode::Crash,
        (true, false) => RecoveryMode::Clean,
    };
    let opening = Opening::load(paths, config, clock, store_lock, mode)?;
    let mut opened = opening.into_opened(drop_beyond, progress)?;
    opened.warnings.extend(foreign);
    Ok(opened)
}

fn anchored(paths: StorePaths) -> Result<StorePaths> {
    let anchors = [paths.root().to_owned(), paths.lock()].into_iter();
    let anchors = anchors.chain(paths.written_commit_log());
    let storage = PinnedStorage::new(Arc::clone(&paths.storage), anchors)?;
    Ok(paths.on(Arc::new(storage)))
}

pub(super) fn open_beside(path: &Path, config: StoreConfig, aside: &Path) -> Result<Opened> {
    let paths = StorePaths::new(Arc::new(crate::files::Os), path, &config);
    let paths = paths.with_aside(Some(aside.to_owned()));
    found::need_store(&paths)?;
    open_to_read(paths, config, Arc::new(crate::files::SystemClock))
}

fn open_to_read(
    paths: StorePaths,
    mut config: StoreConfig,
    clock: Arc<dyn Clock>,
) -> Result<Opened> {
    // A consumer group writes.
    let paths = anchored(paths)?;
    // Completing a swap changes the root.
    let state = || {
        let root = paths.storage.stamp(paths.root()).ok().flatten();
        (swap::is_listed(&paths), root)
    };
    let before = state();
    let beside = ConcurrentWriter::read(&paths);
    let Parts { log, queues, index, unread_topics, mut warnings, .. } =
        load_lazily(&paths, &mut config, Access::Read)?;
    if before.0 || state() != before {
        queues.refresh()?;
    }
    let layout = layout_to_read(index, &mut config, &mut warnings)?;
    let index = match layout.filter(|_| config.message_index_enable) {
        Some(layout) => {
            let (run, findings) = IndexRun::load(
                Arc::clone(&paths.storage),
                &paths.index(),
                layout,
                IndexOpen::Read,
            )?;
            warnings.extend(findings.iter().map(ToString::to_string));
            Some(Arc::new(run))
        }
        None => None,
    };
    let files = Arc::new(StoreFiles {
        paths,
        config,
        clock,
        log: Arc::new(log),
        queues,
        index,
        closed: AtomicBool::new(false),
        notices: Notices::default(),
        ages: FileAges::default(),
    });
    PendingNotices::of_earlier(&files);
    let (follower, unread) = SharedView::new(files, &beside)?;
    warnings.extend(unread_topics.iter().chain(&unread).map(ToString::to_string));
    let missing_end =
        refusal::missing_files(&follower.files, beside.is_held()).unwrap_or_else(|error| {
            warnings.push(format!("{error}; whether the log's last files are missing is unknown"));
            None
        });
    warnings.extend(missing_end.iter().map(|missing| missing.corruption.to_string()));
    Ok(Opened { reader: Reader::of_files(follower, missing_end), writer: None, warnings })
}
