//! Operations on a whole store, with reports as Python values.

pub(crate) mod doctor;
pub(crate) mod rebuild;
pub(crate) mod rocksdb;
pub(crate) mod salvage;
pub(crate) mod stats;
pub(crate) mod transfer;
pub(crate) mod upkeep;
pub(crate) mod verify;

use std::ffi::OsString;

use crate::care::Finding;

/// Code, severity, path, offset, expected, found, message, fix.
pub(crate) type FindingRow =
    (&'static str, &'static str, OsString, Option<u64>, String, String, String, &'static str);

pub(crate) fn finding_row(finding: Finding) -> FindingRow {
    let message = finding.message();
    let Finding { path, offset, code, severity, expected, found, .. } = finding;
    let path = path.into_os_string();
    (code.name(), severity.name(), path, offset, expected, found, message, code.fix())
}
