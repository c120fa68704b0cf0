//! Finds out whether a folder is a store, and the size of its log files.

use std::path::Path;
use std::sync::Arc;

use super::ledger;
use super::paths::StorePaths;
use super::remembered::Remembered;
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::run::file_size::file_size_of;
use crate::files::{Access, FileKind, FileRun, RunFile, Storage};

/// Whether there is a store: the folder of its commit log.
///
/// # Errors
/// [`Error::NotAStore`] if something else has its name, [`Error::Io`].
pub fn is_store(storage: &dyn Storage, paths: &StorePaths) -> Result<bool> {
    for dir in paths.commit_log() {
        if is_folder(storage, dir)? {
            return Ok(true);
        }
    }
    Ok(false)
}

const NOT_A_FOLDER: &str = "a file, not a folder";

/// Whether there is a folder; links are refused, since they may lead anywhere.
fn is_folder(storage: &dyn Storage, dir: &Path) -> Result<bool> {
    match storage.kind(dir).map_err(Error::io("stat", dir))? {
        Some(FileKind::Directory) => Ok(true),
        None => Ok(false),
        Some(FileKind::File) => {
            Err(Error::NotAStore { path: dir.to_owned(), reason: NOT_A_FOLDER.to_owned() })
        }
        Some(_) => Err(Error::NotAStore {
            path: dir.to_owned(),
            reason: "not a folder; links below a store's root are not followed: name the folder \
                     that a linked log leads to as storePathCommitLog, in Python \
                     store_path_commit_log"
                .to_owned(),
        }),
    }
}

/// Checks that the store's folders are folders.
///
/// # Errors
/// [`Error::NotAStore`], naming one that is not; [`Error::Io`].
pub fn check_folders(storage: &dyn Storage, paths: &StorePaths) -> Result<()> {
    for dir in [
        paths.consume_queue(),
        paths.batch_consume_queue(),
        paths.consume_queue_ext(),
        paths.index(),
        paths.config(),
        paths.quarantine(),
        paths.rebuild(),
    ] {
        is_folder(storage, &dir)?;
    }
    Ok(())
}

/// Fails unless there is a store.
///
/// # Errors
/// [`Error::NotAStore`], [`Error::Io`].
pub fn need_store(storage: &dyn Storage, paths: &StorePaths) -> Result<()> {
    if is_store(storage, paths)? { Ok(()) } else { Err(not_a_store(storage, paths)) }
}

#[must_use]
pub fn not_a_store(storage: &dyn Storage, paths: &StorePaths) -> Error {
    let reason = match storage.kind(paths.root()) {
        _ if paths.root().as_os_str().is_empty() => "the path is empty".to_owned(),
        Ok(None) => "no such path".to_owned(),
        Ok(Some(FileKind::File)) => NOT_A_FOLDER.to_owned(),
        _ => match ledger::find(storage, paths) {
            Ok(Some(dir)) => format!(
                "no folder `commitlog` in it, but the log of DLedger, which is not read and never \
                 changed: `mqstore salvage {} --out NEW` copies its messages into a new store",
                dir.display()
            ),
            _ => "no folder `commitlog` in it".to_owned(),
        },
    };
    Error::NotAStore { path: paths.root().to_owned(), reason }
}

/// File size of the commit log: configured and consistent with the files, detected, or remembered.
///
/// # Errors
/// [`Error::InvalidConfig`] if files and setting differ, [`Error::Io`].
pub fn commit_log_file_size(
    storage: &Arc<dyn Storage>,
    paths: &StorePaths,
    config: &StoreConfig,
) -> Result<u64> {
    let files = log_files(storage, paths)?;
    let found = file_size_of(&files);
    match (config.mapped_file_size_commit_log, found) {
        (Some(configured), Some(found)) if configured != found => {
            let witness = files.iter().find(|file| file.len == found).or_else(|| files.first());
            let path = witness.map(|file| file.path.clone()).unwrap_or_default();
            Err(differs("mapped_file_size_commit_log", configured, &path, found))
        }
        (Some(configured), _) => Ok(configured),
        (None, Some(found)) => Ok(found),
        (None, None) => {
            let remembered = Remembered::load(&**storage, paths).config;
            Ok(remembered.mapped_file_size_commit_log.unwrap_or(StoreConfig::COMMIT_LOG_FILE))
        }
    }
}

/// File size that the log's files prove.
pub(crate) fn proven_file_size(
    storage: &Arc<dyn Storage>,
    paths: &StorePaths,
) -> Result<Option<u64>> {
    Ok(file_size_of(&log_files(storage, paths)?))
}

fn log_files(storage: &Arc<dyn Storage>, paths: &StorePaths) -> Result<Arc<Vec<Arc<RunFile>>>> {
    let dirs = paths.commit_log().to_vec();
    let (run, _) = FileRun::load(Arc::clone(storage), Arc::default(), dirs, 1, Access::Read)?;
    Ok(run.files())
}

pub(crate) fn differs(field: &str, configured: u64, path: &Path, found: u64) -> Error {
    Error::InvalidConfig {
        field: field.to_owned(),
        reason: format!("{configured} bytes are configured, but {} has {found}", path.display()),
    }
}
