//! The log of DLedger, which has a head around each record and lies in a folder of its own.

use std::path::{Path, PathBuf};

use super::inventory::list;
use super::paths::StorePaths;
use crate::error::{Corruption, CorruptionKind, Result};
use crate::files::{Access, FileKind, Storage};
use crate::format::bytes::{i32_at, i64_at};
use crate::format::file_name::parse_offset_name;
use crate::format::message::peek;
use crate::format::width::saturating_i64;

/// Bytes of DLedger before each record (`DLedgerEntry`).
const HEAD_LEN: usize = 48;
const SIZE_AT: usize = 4;
const PLACE_AT: usize = 24;

/// Folder with a log of DLedger: `dledger-*/data`, or the log's own.
pub(crate) fn find(storage: &dyn Storage, paths: &StorePaths) -> Result<Option<PathBuf>> {
    let root = paths.root();
    let is_named = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"dledger-");
    let groups = list(storage, root)?.into_iter().filter(|entry| is_named(&entry.name));
    let groups = groups.map(|entry| root.join(entry.name).join("data"));
    for dir in groups.chain(paths.commit_log().iter().cloned()) {
        if is_ledger(storage, &dir)? {
            return Ok(Some(dir));
        }
    }
    Ok(None)
}

pub(crate) fn damage(dir: &Path) -> Corruption {
    let dir_name = dir.display();
    Corruption {
        path: Some(dir.to_owned()),
        offset: 0,
        kind: CorruptionKind::Magic,
        expected: "records without a head around them".to_owned(),
        found: format!(
            "the log of DLedger, with {HEAD_LEN} bytes before each record; its messages are not read, and \
             the store is opened for reading only; nothing was changed: `mqstore salvage {dir_name} \
             --out NEW` copies its messages into a new store"
        ),
    }
}

fn is_ledger(storage: &dyn Storage, dir: &Path) -> Result<bool> {
    let files = list(storage, dir)?.into_iter().filter(|entry| entry.kind == FileKind::File);
    let mut names: Vec<_> = files.filter_map(|entry| entry.name.into_string().ok()).collect();
    names.retain(|name| parse_offset_name(name).is_some());
    names.sort();
    let Some(first) = names.first() else { return Ok(false) };
    let mut head = [0; HEAD_LEN + peek::SIGNATURE];
    let read = storage.open(&dir.join(first), Access::Read);
    let read = read.and_then(|file| file.read_at(&mut head, 0)).unwrap_or(0);
    Ok(read >= HEAD_LEN && is_entry(&head, parse_offset_name(first).unwrap_or(0)))
}

fn is_entry(head: &[u8], place: u64) -> bool {
    let record = head.get(HEAD_LEN..).unwrap_or_default();
    let is_own = i64_at(head, PLACE_AT) == Some(saturating_i64(place))
        && matches!(i32_at(head, 0), Some(1 | 2))
        && i32_at(head, SIZE_AT).is_some_and(|size| size >= 48);
    !peek::is_record(head) && (peek::is_record(record) || is_own)
}
