//! A broker's rules: what a release of RocketMQ makes of a store at its next start. `settings.rs`
//! has the settings that it reads, `recovery.rs` its recovery of the log.

mod recovery;
mod settings;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::recovery::Cut;
use self::recovery::dispatch_ends;
pub(super) use self::recovery::{cut, first_time_ms};
pub use self::settings::{Line, read_line};
pub(super) use self::settings::{WrongSize, proven};
use super::finding::{Code, Finding};
use crate::config::StoreConfig;
use crate::error::{Error, Result, quoted};
use crate::files::{Access, DirEntry, FileKind, Storage, folder_at};
use crate::format::checkpoint::CheckpointFields;
use crate::format::config::tables::parse_delay_offsets;
use crate::format::file_name::{parse_index_name, parse_offset_name};
use crate::format::index::{HEADER_LEN, IndexHeader};
use crate::format::queue::consume_queue::SCHEDULE_TOPIC;
use crate::format::release::Release;
use crate::log::{CommitLog, Queue, QueueKind, StoreCheckpoint};
use crate::store::folder::inventory::list;
use crate::store::folder::paths::StorePaths;
use crate::store::folder::{config_file, lock, paths};
use crate::store::queue_table::QueueTable;
use crate::store::read::queue_read::view_of;
use crate::time::utc_text;

const TOPIC_FILE: usize = 3;
pub(super) const TIMER_LOG: &str = "timerlog";
/// Offsets that are gone and keep no broker from starting.
pub(super) const NO_OFFSET: &str = "no offset in it";
pub(super) const OTHER_OFFSETS: &str = "offsets of topics that this store does not have";
pub(super) const NO_START: &str = "; on another one no broker starts";

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
    let obstacles = refused.iter().map(|path| obstacle(path, paths, Access::Read)).collect();
    NextStart { obstacles, ..NextStart::default() }
}

/// Findings with which RocketMQ does not start (`MappedFileQueue#load`, `ConsumeQueue#load`).
pub(super) fn obstacles(
    findings: &[Finding],
    paths: &StorePaths,
    (log, config): (&CommitLog, &StoreConfig),
    start: &NextStart,
) -> Result<Vec<String>> {
    let ends = findings.iter().any(|found| found.code == Code::LogDispatch)
        && start.crashed
        && dispatch_ends(log, config, start.from)?;
    let is_refused = |found: &Finding| fate(found, paths) == Fate::Refused;
    // Without the table a topic is not known to have batches.
    let has_batches =
        paths.storage.list(&paths.batch_consume_queue()).is_ok_and(|dir| !dir.is_empty());
    let is_obstacle = |found: &&Finding| match found.code {
        Code::FileLength => is_in_log(found, paths) || is_in_queues(found),
        Code::StrayName | Code::EmptyFile => is_refused(found),
        Code::Timer => found.expected.ends_with(NO_START),
        Code::LogDispatch => ends,
        Code::OffsetsGone if [NO_OFFSET, OTHER_OFFSETS].contains(&&*found.found) => false,
        Code::ConfigUnreadable | Code::OffsetsGone => {
            let backup = config_file::backup_of(&paths.root().join(&found.path));
            let backup = config_file::read_json(paths.storage(), &backup);
            backup.is_ok_and(|bytes| bytes.is_some_and(|bytes| !bytes.is_empty()))
        }
        Code::QueueFileEmpty | Code::ConfigKind | Code::ConfigSize => true,
        Code::ConfigTopicsGone => has_batches,
        // Each start opens the checkpoint, one after a crash the index.
        Code::NoRegularFile => {
            let path = paths.root().join(&found.path);
            let crashed = || lock::was_aborted(paths).unwrap_or(false);
            path == paths.checkpoint() || (path == paths.index() && crashed()) || is_refused(found)
        }
        _ => false,
    };
    Ok(findings.iter().filter(is_obstacle).map(Finding::message).collect())
}

fn is_in_queues(found: &Finding) -> bool {
    paths::QUEUE_FOLDERS.iter().any(|folder| found.path.starts_with(folder))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    Deleted,
    Refused,
}

/// Fate of a name among files that a start loads (`MappedFileQueue#doLoad`).
pub(super) fn fate(found: &Finding, paths: &StorePaths) -> Fate {
    let (storage, path) = (paths.storage(), paths.root().join(&found.path));
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Fate::Kept };
    let is_queue = is_in_queues(found) && found.path.components().count() > TOPIC_FILE;
    let dirs = match () {
        () if paths.commit_log().iter().any(|log| log == dir) => paths.commit_log(),
        () if is_queue || dir == paths.root().join(TIMER_LOG) => &[dir.to_owned()],
        () => return Fate::Kept,
    };
    let files: Vec<DirEntry> =
        dirs.iter().flat_map(|dir| storage.list(dir).unwrap_or_default()).collect();
    let (is_folder, length) = match storage.kind(&path) {
        Ok(Some(FileKind::Other)) => {
            path.metadata().map_or((false, 0), |to| (to.is_dir(), to.len()))
        }
        kind => {
            let length = storage.open(&path, Access::Read).and_then(|file| file.length());
            (matches!(kind, Ok(Some(FileKind::Directory))), length.unwrap_or(u64::MAX))
        }
    };
    let is_whole = |file: &DirEntry| file.kind == FileKind::File && file.len == length;
    match length {
        _ if is_folder => Fate::Kept,
        0 if files.iter().all(|file| *file.name <= *name) => Fate::Deleted,
        0 => Fate::Refused,
        _ if name.to_str().and_then(parse_offset_name).is_some() && files.iter().any(is_whole) => {
            Fate::Kept
        }
        _ => Fate::Refused,
    }
}

pub(super) fn is_in_the_way(found: &Finding, paths: &StorePaths) -> bool {
    let kind = paths.storage.kind(&paths.root().join(&found.path));
    let is_spare = found.code == Code::FileTwin && found.offset.is_none();
    (is_spare || matches!(found.code, Code::StrayName | Code::NoRegularFile))
        && matches!(kind, Ok(Some(FileKind::File | FileKind::Directory)))
}

pub(super) fn is_in_log(found: &Finding, paths: &StorePaths) -> bool {
    let path = paths.root().join(&found.path);
    paths.commit_log().iter().any(|dir| path.starts_with(dir))
}

pub(super) fn foresee(
    paths: &StorePaths,
    (log, config): (&CommitLog, &StoreConfig),
    release: Release,
    queues: Option<&QueueTable>,
) -> Result<NextStart> {
    // A non-file of that name prevents any start and has its own finding.
    let crashed = lock::was_aborted(paths).unwrap_or(false);
    let checkpoint = StoreCheckpoint::load(paths.storage(), &paths.checkpoint(), Access::Read);
    let checkpoint = checkpoint.map_or_else(|_| CheckpointFields::default(), |read| read.fields);
    let doomed =
        if crashed { doomed(paths.storage(), &paths.index(), &checkpoint)? } else { Vec::new() };
    let reach = queues.and_then(|table| table.all().iter().map(|q| q.max_physical_offset()).max());
    let reach = (!crashed).then_some(reach.unwrap_or(-1));
    let delivered_again = match queues {
        Some(queues) => delivered_again(paths, (log, queues))?,
        None => 0,
    };
    let (from, bytes) =
        recovery::range(paths.storage(), (log, config), &checkpoint, release, reach);
    Ok(NextStart { crashed, from, bytes, doomed, delivered_again, ..NextStart::default() })
}

pub(super) fn work(start: &NextStart, paths: &StorePaths) -> Result<String> {
    let queue_files = count_files(paths.storage(), &paths.consume_queue(), 3)?;
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
        let head = lock::read_start(storage, &dir.join(&entry.name), HEADER_LEN);
        let head = head.unwrap_or_default();
        let Some(head) = head.first_chunk() else { continue };
        let end_ms = IndexHeader::decode(head).end_timestamp_ms;
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

const DEEPEST: usize = 4;
const MOST: usize = 100;

/// Folders that a start needs and this user may not read, and files if asked; at most a hundred.
pub(in crate::care) fn refused(paths: &StorePaths, files: bool) -> Vec<PathBuf> {
    // Also checks whether the root can be searched.
    if is_denied(&paths.storage.list(paths.root())) {
        return vec![paths.root().to_owned()];
    }
    let mut refused = refused_to(Access::Read, paths, files);
    refused.retain(|path| *path != paths.settings());
    refused
}

/// Refused to the store's own user for writing.
pub(in crate::care) fn not_writable(paths: &StorePaths) -> Vec<PathBuf> {
    match paths.storage.is_own(paths.root()) && paths.storage.may_write(paths.root()) {
        true => refused_to(Access::ReadWrite, paths, true),
        false => Vec::new(),
    }
}

fn refused_to(access: Access, paths: &StorePaths, files: bool) -> Vec<PathBuf> {
    let mut refused = Vec::new();
    let only_read = [paths.abort(), paths.config()];
    let is_needed = |path: &PathBuf| access == Access::Read || !only_read.contains(path);
    let wheel = paths.root().join("timerwheel");
    for file in [paths.checkpoint(), paths.lock(), paths.abort(), wheel] {
        if files
            && is_needed(&file)
            && let Ok(Some(kind @ FileKind::File)) = paths.storage.kind(&file)
        {
            add(paths.storage(), access, &file, kind, (files, 0), &mut refused);
        }
    }
    let queues = paths::QUEUE_FOLDERS.iter().map(|name| paths.root().join(name));
    let log = paths.commit_log().iter().cloned();
    let timers = paths.root().join(TIMER_LOG);
    let dirs = log.chain(queues).chain([paths.index(), paths.config(), timers]);
    for dir in dirs.filter(is_needed) {
        match folder_at(paths.storage(), &dir, false) {
            Ok(Ok(true)) => {
                let depth = (files, DEEPEST);
                add(paths.storage(), access, &dir, FileKind::Directory, depth, &mut refused);
            }
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                refused.push(dir);
            }
            _ => {}
        }
    }
    refused
}

fn is_denied<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn add(
    storage: &dyn Storage,
    access: Access,
    path: &Path,
    kind: FileKind,
    (files, levels): (bool, usize),
    refused: &mut Vec<PathBuf>,
) {
    let entries = match kind {
        FileKind::File if files && access == Access::ReadWrite => Ok(Vec::new()),
        FileKind::File if files => storage.open(path, access).map(|_| Vec::new()),
        FileKind::Directory if levels > 0 => storage.list(path),
        _ => return,
    };
    let is_refused = match access {
        Access::Read => is_denied(&entries),
        Access::ReadWrite => !storage.may_write(path),
    };
    if refused.len() < MOST && is_refused {
        refused.push(path.to_owned());
    }
    for entry in entries.unwrap_or_default() {
        add(storage, access, &path.join(&entry.name), entry.kind, (files, levels - 1), refused);
    }
}

pub(in crate::care) fn obstacle(path: &Path, paths: &StorePaths, access: Access) -> String {
    let then = match path == paths.root() {
        true => "; run the command as its owner",
        false => ", nor may a broker that runs as this user",
    };
    let what = if access == Access::Read { "read" } else { "write" };
    format!("{}: this user may not {what} it{then}", path.display())
}

/// The command that gives what lies in the store to its owner; root can run it.
pub(in crate::care) fn owner_command(path: &Path, paths: &StorePaths) -> Option<String> {
    if path == paths.root() {
        return None;
    }
    let (store, path) = (quoted(paths.root())?, quoted(path)?);
    Some(format!("chown -R --reference={store} {path} && chmod -R u+rwX {path}"))
}

/// Delayed messages that were due before the newest message, and that a start delivers again: a level
/// without an offset from 0 on begins at its queue's first message (`ScheduleMessageService#start`).
pub(super) fn delivered_again(
    paths: &StorePaths,
    (log, queues): (&CommitLog, &QueueTable),
) -> Result<u64> {
    let path = paths.config().join("delayOffset.json");
    let loaded = config_file::load(paths.storage(), &path, parse_delay_offsets).ok().flatten();
    let offsets = loaded.map(|loaded| loaded.table).unwrap_or_default();
    let (mut again, mut newest_ms) = (0, None);
    for queue in queues.all() {
        let level = queue.queue_id().saturating_add(1);
        if queue.topic() != SCHEDULE_TOPIC
            || queue.kind() != QueueKind::Plain
            || offsets.iter().any(|(known, offset)| *known == level && *offset >= 0)
        {
            continue;
        }
        let newest_ms = *newest_ms.get_or_insert_with(|| newest_store_time(log, queues));
        // An entry of this topic has the time of delivery for a tags code.
        queue.each_unit(|unit| again += u64::from((1..=newest_ms).contains(&unit.tags_code)))?;
    }
    Ok(again)
}

/// Store time of the last message with a queue entry: a checkpoint may have none.
fn newest_store_time(log: &CommitLog, queues: &QueueTable) -> i64 {
    let last =
        |queue: &Arc<Queue>| queue.units(queue.max_offset().saturating_sub(1), 1).ok()?.pop();
    let place = queues.all().iter().filter_map(last).map(|unit| unit.physical_offset).max();
    let record: Option<Box<[u8]>> = place.and_then(|place| log.get(place, log.end_offset()).ok());
    record.and_then(|record| Some(view_of(&record)?.store_timestamp_ms())).unwrap_or(0)
}
