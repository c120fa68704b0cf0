//! A broker's rules: what a release of RocketMQ makes of a store at its next start. Which files it
//! loads and deletes is here, which settings it reads in `settings.rs`, where its recovery begins and
//! ends the log in `recovery.rs`, which delayed messages it delivers again in `delays.rs`,
//! what its user may not read in `access.rs`.

mod access;
mod delays;
mod recovery;
mod settings;

use std::path::{Path, PathBuf};

pub(super) use self::access::{owner_command, refused};
pub use self::recovery::Cut;
pub(super) use self::recovery::cut;
pub use self::settings::{Line, read_line};
pub(super) use self::settings::{WrongSize, proven};
use super::finding::{Code, Finding};
use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::{Access, FileKind, Storage};
use crate::format::checkpoint::CheckpointFields;
use crate::format::file_name::parse_index_name;
use crate::format::index::{HEADER_LEN, IndexHeader};
use crate::format::release::Release;
use crate::log::{CommitLog, StoreCheckpoint};
use crate::store::folder::inventory::list;
use crate::store::folder::paths::{self, StorePaths};
use crate::store::folder::{config_file, lock};
use crate::store::queue_table::QueueTable;
use crate::time::utc_text;

const TOPIC_FILE: usize = 3;
/// Offsets that are gone and keep no broker from starting.
pub(super) const NO_OFFSET: &str = "no offset in it";
pub(super) const OTHER_OFFSETS: &str = "offsets of topics that this store does not have";

/// Forecast of a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextStart {
    /// Not closed.
    pub crashed: bool,
    /// Reasons not to start.
    pub obstacles: Vec<String>,
    /// Where it begins to read.
    pub from: u64,
    /// Bytes that it reads.
    pub bytes: u64,
    /// Deleted index files, with reasons (`IndexService#load`).
    pub doomed: Vec<String>,
    /// Deleted files that do not belong there (`MappedFileQueue#doLoad`).
    pub strays: Vec<String>,
    /// Where it ends the log before whole messages.
    pub cut: Option<Cut>,
    /// Delayed messages that it delivers again.
    pub delivered_again: u64,
}

/// Forecast for a store of which this user may not read these files and folders.
pub(super) fn not_readable(refused: &[PathBuf], paths: &StorePaths) -> NextStart {
    let obstacles = refused.iter().map(|path| access::obstacle(path, paths)).collect();
    NextStart { obstacles, ..NextStart::default() }
}

/// Findings with which RocketMQ does not start (`MappedFileQueue#load`, `ConsumeQueue#load`).
pub(super) fn obstacles(
    storage: &dyn Storage,
    findings: &[Finding],
    paths: &StorePaths,
) -> Vec<String> {
    // Without the table a topic is not known to have batches.
    let has_batches = storage.list(&paths.batch_consume_queue()).is_ok_and(|dir| !dir.is_empty());
    let is_obstacle = |found: &&Finding| match found.code {
        Code::FileLength => is_in_log(found, paths) || is_in_queues(found),
        Code::StrayName => {
            is_stray_file(found, paths)
                && !is_deleted(storage, &paths.root().join(&found.path))
                && (is_in_log(found, paths) || found.path.components().count() > TOPIC_FILE)
        }
        Code::OffsetsGone if [NO_OFFSET, OTHER_OFFSETS].contains(&&*found.found) => false,
        Code::ConfigUnreadable | Code::OffsetsGone => {
            let backup = config_file::backup_of(&paths.root().join(&found.path));
            let backup = config_file::read_json(storage, &backup);
            backup.is_ok_and(|bytes| bytes.is_some_and(|bytes| !bytes.is_empty()))
        }
        Code::QueueFileEmpty | Code::ConfigKind | Code::ConfigSize => true,
        Code::ConfigTopicsGone => has_batches,
        // Each start opens the checkpoint, one after a crash the index.
        Code::NoRegularFile => {
            let path = paths.root().join(&found.path);
            let crashed = || lock::was_aborted(storage, paths).unwrap_or(false);
            path == paths.checkpoint() || (path == paths.index() && crashed())
        }
        _ => false,
    };
    findings.iter().filter(is_obstacle).map(Finding::message).collect()
}

fn is_in_queues(found: &Finding) -> bool {
    paths::QUEUE_FOLDERS.iter().any(|folder| found.path.starts_with(folder))
}

pub(super) fn is_stray_file(found: &Finding, paths: &StorePaths) -> bool {
    found.found == "a file" && (is_in_log(found, paths) || is_in_queues(found))
}

/// Whether a start deletes the file: it is empty, and the last of its folder by name.
pub(super) fn is_deleted(storage: &dyn Storage, path: &Path) -> bool {
    let names = path.parent().and_then(|dir| storage.list(dir).ok()).unwrap_or_default();
    let last = names.iter().map(|entry| &*entry.name).max();
    let length = || storage.open(path, Access::Read).and_then(|file| file.length());
    path.file_name() == last && length().is_ok_and(|length| length == 0)
}

pub(super) fn is_in_the_way(storage: &dyn Storage, found: &Finding, paths: &StorePaths) -> bool {
    let kind = storage.kind(&paths.root().join(&found.path));
    let is_spare = found.code == Code::FileTwin && found.offset.is_none();
    (is_spare || matches!(found.code, Code::StrayName | Code::NoRegularFile))
        && matches!(kind, Ok(Some(FileKind::File | FileKind::Directory)))
}

pub(super) fn is_in_log(found: &Finding, paths: &StorePaths) -> bool {
    let path = paths.root().join(&found.path);
    paths.commit_log().iter().any(|dir| path.starts_with(dir))
}

pub(super) fn foresee(
    storage: &dyn Storage,
    paths: &StorePaths,
    (log, config): (&CommitLog, &StoreConfig),
    release: Release,
    queues: Option<&QueueTable>,
) -> Result<NextStart> {
    // A non-file of that name prevents any start and has its own finding.
    let crashed = lock::was_aborted(storage, paths).unwrap_or(false);
    let checkpoint = StoreCheckpoint::load(storage, &paths.checkpoint(), Access::Read);
    let checkpoint = checkpoint.map_or_else(|_| CheckpointFields::default(), |read| read.fields);
    let doomed = if crashed { doomed(storage, &paths.index(), &checkpoint)? } else { Vec::new() };
    // The end of the last message with a queue entry.
    let reach = queues.and_then(|table| table.all().iter().map(|q| q.max_physical_offset()).max());
    let reach = (!crashed).then_some(reach.unwrap_or(-1));
    let delivered_again = match queues {
        Some(queues) => delays::delivered_again(storage, paths, (log, queues))?,
        None => 0,
    };
    let (from, bytes) = recovery::range(storage, (log, config), &checkpoint, release, reach);
    Ok(NextStart { crashed, from, bytes, doomed, delivered_again, ..NextStart::default() })
}

pub(super) fn work(start: &NextStart, storage: &dyn Storage, paths: &StorePaths) -> Result<String> {
    let queue_files = count_files(storage, &paths.consume_queue(), 3)?;
    Ok(format!(
        "the file `abort`; RocketMQ's start reads {} bytes of log from physical offset {} on, and \
         the ends of queues in {queue_files} files",
        start.bytes, start.from
    ))
}

fn doomed(storage: &dyn Storage, dir: &Path, checkpoint: &CheckpointFields) -> Result<Vec<String>> {
    let mut doomed = Vec::new();
    for entry in list(storage, dir)? {
        let named = entry.name.to_str().and_then(parse_index_name).is_some();
        if entry.kind != FileKind::File || !named {
            continue;
        }
        let path = dir.join(&entry.name);
        let mut head = [0; HEADER_LEN];
        let read = storage.open(&path, Access::Read).and_then(|file| file.read_at(&mut head, 0));
        if !matches!(read, Ok(HEADER_LEN)) {
            continue;
        }
        let end_ms = IndexHeader::decode(&head).end_timestamp_ms;
        if end_ms > checkpoint.index_msg_timestamp_ms {
            doomed.push(format!(
                "index/{}: its last message is of {}, the checkpoint knows the index up to {}",
                entry.name.display(),
                utc_text(end_ms),
                utc_text(checkpoint.index_msg_timestamp_ms)
            ));
        }
    }
    doomed.sort();
    Ok(doomed)
}

fn count_files(storage: &dyn Storage, dir: &Path, deepest: usize) -> Result<u64> {
    let mut count = 0;
    for entry in list(storage, dir)? {
        count += match entry.kind {
            FileKind::File => 1,
            FileKind::Directory if deepest > 0 => {
                count_files(storage, &dir.join(&entry.name), deepest - 1)?
            }
            _ => 0,
        };
    }
    Ok(count)
}
