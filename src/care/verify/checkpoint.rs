//! Checks whether checkpoint and durable mark contradict the log.

use std::io;

use super::context::Context;
use crate::care::finding::{Code, Severity};
use crate::error::Error;
use crate::files::Access;
use crate::format::checkpoint::{CHECKPOINT_LEN, CheckpointFields, FIRST_FIELDS_LEN};
use crate::log::StoreCheckpoint;
use crate::store::folder::mark::Mark;
use crate::time::utc_text;

pub(super) fn load(cx: &Context<'_>) -> Option<CheckpointFields> {
    let path = cx.paths.checkpoint();
    let checkpoint = match StoreCheckpoint::load(&*cx.storage, &path, Access::Read) {
        Ok(checkpoint) => checkpoint,
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {
            let expected = "the file `checkpoint`";
            let severity = Severity::Error;
            let found = "no regular file";
            cx.findings.add(Code::NoRegularFile, severity, &path, None, expected, found);
            return None;
        }
        Err(error) => {
            cx.error(&path, error);
            return None;
        }
    };
    let len = match cx.storage.open(&path, Access::Read).and_then(|file| file.stat()) {
        Ok(stat) => stat.len,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => {
            cx.error(&path, Error::io("stat", &path)(error));
            return Some(checkpoint.fields);
        }
    };
    if len < FIRST_FIELDS_LEN as u64 {
        let expected = format!("a file of {CHECKPOINT_LEN} bytes");
        let found =
            if len == 0 { "none, or an empty one".to_owned() } else { format!("{len} bytes") };
        cx.findings.add(Code::CheckpointFile, Severity::Info, &path, None, expected, found);
    }
    Some(checkpoint.fields)
}

/// Reads the durable mark; reports an invalid one.
pub(super) fn mark(cx: &Context<'_>) -> Option<Mark> {
    let path = cx.paths.mark();
    match Mark::read(&*cx.storage, &cx.paths) {
        Ok(mark) => mark,
        Err(Error::Corrupt(fault)) => {
            cx.corruption(Code::LogMark, Severity::Warning, *fault);
            None
        }
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {
            let (code, severity) = (Code::NoRegularFile, Severity::Error);
            cx.findings.add(
                code,
                severity,
                &path,
                None,
                "the file `mqstore.mark`",
                "no regular file",
            );
            None
        }
        Err(error) => {
            cx.error(&path, error);
            None
        }
    }
}

pub(super) fn check(cx: &Context<'_>, fields: &CheckpointFields, newest_ms: i64, log_end: u64) {
    let path = cx.paths.checkpoint();
    let times = [
        (0, "the log", fields.physic_msg_timestamp_ms),
        (8, "the queues", fields.logics_msg_timestamp_ms),
        (16, "the index", fields.index_msg_timestamp_ms),
    ];
    for (at, what, time) in times {
        if !(0..=newest_ms.max(0)).contains(&time) {
            let newest = utc_text(newest_ms);
            let expected = format!("0, or a time of {what} up to {newest}, the newest message's");
            let severity = Severity::Warning;
            let mut found = utc_text(time);
            if at == 0 && (newest_ms..=cx.latest_ms).contains(&time) {
                found += "; files at the log's end may be missing: put them back before any cure";
            }
            cx.findings.add(Code::CheckpointTime, severity, &path, Some(at), expected, found);
        }
    }
    let confirmed = fields.confirm_physical_offset;
    if !u64::try_from(confirmed).is_ok_and(|confirmed| confirmed <= log_end) {
        let expected = format!("a physical offset up to {log_end}");
        let severity = Severity::Warning;
        let found = confirmed.to_string();
        cx.findings.add(Code::CheckpointConfirm, severity, &path, Some(32), expected, found);
    }
    let entered = fields.logics_physical_offset;
    if !u64::try_from(entered).is_ok_and(|entered| entered <= log_end) {
        let expected = format!("0, or the physical offset of a message before {log_end}");
        let (severity, found) = (Severity::Warning, entered.to_string());
        cx.findings.add(Code::CheckpointLogics, severity, &path, Some(40), expected, found);
    }
}
