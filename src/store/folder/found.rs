//! Finds out whether a folder is a store, and the size of its log files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::inventory::list;
use super::lock;
use super::paths::{COMMIT_LOG, CONSUME_QUEUE, INDEX, StorePaths};
use super::remembered::Remembered;
use crate::config::StoreConfig;
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::run::folder::NOT_A_FOLDER;
use crate::files::run::open_files::file_size_of;
use crate::files::{Access, FileKind, FileRun, Storage, folder_at};
use crate::format::bytes::{i32_at, i64_at};
use crate::format::file_name::parse_offset_name;
use crate::format::message::peek;
use crate::format::width::saturating_i64;
use crate::log::CommitLog;

const PARTS: [&str; 5] = [CONSUME_QUEUE, INDEX, "config", "checkpoint", "abort"];

/// Whether there is a store: the folder of its commit log.
pub fn is_store(paths: &StorePaths) -> Result<bool> {
    for dir in paths.commit_log() {
        if is_folder(paths.storage(), dir, false)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_folder(storage: &dyn Storage, dir: &Path, ours: bool) -> Result<bool> {
    folder_at(storage, dir, ours)?
        .map_err(|reason| Error::NotAStore { path: dir.to_owned(), reason })
}

pub fn check_folders(paths: &StorePaths) -> Result<()> {
    for dir in [paths.consume_queue(), paths.index(), paths.config()] {
        is_folder(paths.storage(), &dir, false)?;
    }
    for dir in [
        paths.batch_consume_queue(),
        paths.consume_queue_ext(),
        paths.quarantine(),
        paths.rebuild(),
    ] {
        is_folder(paths.storage(), &dir, true)?;
    }
    Ok(())
}

pub fn need_store(paths: &StorePaths) -> Result<()> {
    if is_store(paths)? { Ok(()) } else { Err(not_a_store(paths)) }
}

#[must_use]
pub fn not_a_store(paths: &StorePaths) -> Error {
    let reason = match paths.storage.kind(paths.root()) {
        _ if paths.root().as_os_str().is_empty() => "the path is empty".to_owned(),
        Ok(None) if paths.has_ledger => {
            "no such path, and with enableDLegerCommitLog none is made".to_owned()
        }
        Ok(None) => "no such path".to_owned(),
        Ok(Some(FileKind::File)) => NOT_A_FOLDER.to_owned(),
        _ => match find_ledger(paths) {
            Ok(Some(dir)) => format!(
                "no folder `commitlog` in it, but the log of DLedger, which is not read and never \
                 changed: {}",
                ledger_cure(paths, &dir)
            ),
            _ if has_log(paths, paths.root()) => "no folder that storePathCommitLog names, in Python \
                store_path_commit_log, but `commitlog` in it: mount what the setting names; a backup has its \
                log there, so leave the setting out for one"
                .to_owned(),
            _ => format!("no folder `commitlog` in it{}", likeness(paths)),
        },
    };
    Error::NotAStore { path: paths.root().to_owned(), reason }
}

fn has_log(paths: &StorePaths, dir: &Path) -> bool {
    matches!(folder_at(paths.storage(), &dir.join(COMMIT_LOG), false), Ok(Ok(true)))
}

fn likeness(paths: &StorePaths) -> String {
    let root = paths.root();
    let entries = paths.storage.list(root).unwrap_or_default();
    let mut names: Vec<_> = entries.iter().filter_map(|entry| entry.name.to_str()).collect();
    names.sort_unstable();
    if let Some(store) = root.ancestors().skip(1).take(3).find(|above| has_log(paths, above)) {
        return format!("; it lies in the store {}: name that", store.display());
    }
    if let Some(below) =
        names.iter().map(|name| root.join(name)).find(|below| has_log(paths, below))
    {
        return format!("; {} is a store: name that", below.display());
    }
    if names.iter().any(|name| parse_offset_name(name).is_some()) {
        return "; it has files named as those of a log or a queue: `mqstore salvage` copies the messages of \
                files of a log into a new store"
            .to_owned();
    }
    names.retain(|name| PARTS.contains(name));
    match names.is_empty() {
        true => String::new(),
        false => format!(
            "; with {} it seems to be half a copy of a store: copy `commitlog`, too, or name the log's \
             folder as storePathCommitLog, in Python store_path_commit_log",
            names.join(", ")
        ),
    }
}

/// File size of the commit log: given, found or remembered.
pub fn commit_log_file_size(paths: &StorePaths, config: &StoreConfig) -> Result<u64> {
    let given = config.mapped_file_size_commit_log;
    if let Some(size) = proven_file_size(paths, given)?.or(given) {
        return Ok(size);
    }
    let remembered = Remembered::load(paths).config;
    Ok(remembered.mapped_file_size_commit_log.unwrap_or(StoreConfig::COMMIT_LOG_FILE))
}

/// The size that the log's files have, if there are any; another one that is given is refused.
pub(crate) fn proven_file_size(paths: &StorePaths, given: Option<u64>) -> Result<Option<u64>> {
    let files = load(paths, 1)?.files();
    let found = file_size_of(&files);
    match (given, found) {
        (Some(given), Some(size)) if given != size => {
            let witness = files.iter().find(|file| file.len == size).or_else(|| files.first());
            let path = witness.map(|file| file.path.clone()).unwrap_or_default();
            Err(differs("mapped_file_size_commit_log", given, &path, size))
        }
        _ => Ok(found),
    }
}

/// Opens the log to the end of its files.
pub fn open_log(paths: &StorePaths, config: &StoreConfig) -> Result<CommitLog> {
    let run = load(paths, commit_log_file_size(paths, config)?)?;
    let end = run.end_offset().unwrap_or(0);
    Ok(CommitLog::new(run, end))
}

fn load(paths: &StorePaths, file_size: u64) -> Result<FileRun> {
    let (storage, dirs) = (Arc::clone(&paths.storage), paths.commit_log().to_vec());
    Ok(FileRun::load(storage, Arc::default(), dirs, file_size, Access::Read)?.0)
}

pub(crate) fn differs(field: &str, configured: u64, path: &Path, found: u64) -> Error {
    let wanted = format!("{found} bytes, as {} has", path.display());
    Error::setting(field, wanted, format!("{configured}; leave the setting out"))
}

/// Bytes of DLedger before each record (`DLedgerEntry`).
const HEAD_LEN: usize = 48;
const SIZE_AT: usize = 4;
const PLACE_AT: usize = 24;

/// Folder with a log of DLedger: the store's own if only the settings tell of it.
pub(crate) fn find_ledger(paths: &StorePaths) -> Result<Option<PathBuf>> {
    let (root, named) = (paths.root().to_owned(), &paths.ledgers);
    let is_group = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"dledger-");
    let mut dirs = Vec::new();
    for base in std::iter::once(&root).chain(named) {
        let groups = list(paths.storage(), base)?.into_iter().filter(|entry| is_group(&entry.name));
        dirs.extend(groups.map(|entry| base.join(entry.name).join("data")));
    }
    for dir in dirs.iter().chain(named).chain(paths.commit_log()) {
        if is_ledger(paths.storage(), dir)? {
            return Ok(Some(dir.clone()));
        }
    }
    Ok(paths.has_ledger.then_some(root))
}

fn ledger_cure(paths: &StorePaths, dir: &Path) -> String {
    match dir == paths.root() {
        false => format!(
            "`mqstore salvage {} --out NEW` copies its messages into a new store",
            dir.display()
        ),
        true => "enableDLegerCommitLog tells of it, and it is not found: storePathDLedgerCommitLog names \
                 its folder; without DLedger leave both out"
            .to_owned(),
    }
}

pub(crate) fn ledger_damage(paths: &StorePaths, dir: &Path) -> Corruption {
    Corruption {
        path: Some(dir.to_owned()),
        offset: 0,
        kind: CorruptionKind::Magic,
        expected: "records without a head around them".to_owned(),
        found: format!(
            "the log of DLedger, with {HEAD_LEN} bytes before each record; its messages are not read, and \
             the store is opened for reading only; nothing was changed: {}",
            ledger_cure(paths, dir)
        ),
    }
}

fn is_ledger(storage: &dyn Storage, dir: &Path) -> Result<bool> {
    let files = list(storage, dir)?.into_iter().filter(|entry| entry.kind == FileKind::File);
    let mut names: Vec<_> = files.filter_map(|entry| entry.name.into_string().ok()).collect();
    names.retain(|name| parse_offset_name(name).is_some());
    names.sort();
    let Some(first) = names.first() else { return Ok(false) };
    let head = lock::read_start(storage, &dir.join(first), HEAD_LEN + peek::SIGNATURE);
    let head = head.unwrap_or_default();
    Ok(head.len() >= HEAD_LEN && is_entry(&head, parse_offset_name(first).unwrap_or(0)))
}

fn is_entry(head: &[u8], place: u64) -> bool {
    let record = head.get(HEAD_LEN..).unwrap_or_default();
    let is_own = i64_at(head, PLACE_AT) == Some(saturating_i64(place))
        && matches!(i32_at(head, 0), Some(1 | 2))
        && i32_at(head, SIZE_AT).is_some_and(|size| size >= 48);
    !peek::is_record(head) && (peek::is_record(record) || is_own)
}
