//! Forecast of RocketMQ's next start with a store that was not closed.

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::{Access, FileKind, Storage};
use crate::format::checkpoint::CheckpointFields;
use crate::format::file_name::parse_index_name;
use crate::format::index::{HEADER_LEN, IndexHeader};
use crate::format::message::peek;
use crate::log::{CommitLog, StoreCheckpoint};
use crate::store::lock;
use crate::store::paths::StorePaths;

pub(super) struct NextStart {
    /// Index files to be deleted, with reasons (`IndexService#load`).
    pub(super) doomed: Vec<String>,
    /// Data to be read again, described.
    pub(super) work: String,
}

/// Forecasts the start; `None` if the store was closed.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn foresee(
    storage: &dyn Storage,
    paths: &StorePaths,
    log: &CommitLog,
) -> Result<Option<NextStart>> {
    // A non-file of that name prevents any start and has its own finding.
    if !lock::was_aborted(storage, paths).unwrap_or(false) {
        return Ok(None);
    }
    let checkpoint = StoreCheckpoint::load(storage, &paths.checkpoint(), Access::Read);
    let checkpoint = checkpoint.map_or_else(|_| CheckpointFields::default(), |read| read.fields);
    let doomed = doomed(storage, &paths.index(), &checkpoint)?;
    let (from, bytes) = read_again(storage, log, &checkpoint);
    let queue_files = count_files(storage, &paths.consume_queue(), 3)?;
    let work = format!(
        "the file `abort`; RocketMQ's start reads {bytes} bytes of log from physical offset {from} \
         on, and the ends of queues in {queue_files} files"
    );
    Ok(Some(NextStart { doomed, work }))
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
                "index/{}: its last message is of {end_ms} ms, the checkpoint knows the index up to \
                 {} ms",
                entry.name.display(),
                checkpoint.index_msg_timestamp_ms
            ));
        }
    }
    doomed.sort();
    Ok(doomed)
}

/// Start and length of recovery: from the last file whose first message the checkpoint covers
/// (`CommitLog#recoverAbnormally`).
fn read_again(storage: &dyn Storage, log: &CommitLog, checkpoint: &CheckpointFields) -> (u64, u64) {
    let files = log.run().files();
    let first_time = |path: &Path, base: u64| {
        let file = storage.open(path, Access::Read).ok()?;
        let mut head = [0; peek::HEAD];
        let read = file.read_at(&mut head, 0).ok()?;
        peek::store_timestamp_ms(head.get(..read)?, base)
    };
    let known = checkpoint.min_timestamp_ms();
    let from = files
        .iter()
        .rev()
        .find(|file| {
            first_time(&file.path, file.base_offset).is_some_and(|time| time != 0 && time <= known)
        })
        .map_or(log.min_offset(), |file| file.base_offset);
    let used = files
        .iter()
        .rev()
        .find(|file| first_time(&file.path, file.base_offset).is_some())
        .map_or(from, |file| file.base_offset.saturating_add(file.len));
    (from, used.saturating_sub(from))
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

fn list(storage: &dyn Storage, dir: &Path) -> Result<Vec<crate::files::DirEntry>> {
    match storage.list(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(Error::io("list", dir)),
    }
}
