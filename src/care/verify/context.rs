//! Context of every part of the check: the store, its settings, and the findings.

use std::path::Path;
use std::sync::Arc;

use crate::care::finding::{Code, Findings, Severity};
use crate::care::meter::Meter;
use crate::config::StoreConfig;
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::run::file_run::Stray;
use crate::files::{DirEntry, FileKind, FileRun, Storage};
use crate::store::folder::paths::StorePaths;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    Crashed,
    InUse,
}

pub(super) struct Context<'a> {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) paths: StorePaths,
    pub(super) config: &'a StoreConfig,
    pub(super) findings: Findings,
    pub(super) meter: &'a Meter,
    pub(super) state: State,
    pub(super) full: bool,
    pub(super) threads: usize,
    pub(super) in_database: bool,
    /// Messages up to this store time are durable.
    pub(super) flushed_ms: i64,
    pub(super) durable: u64,
    /// Later store times are in the future.
    pub(super) latest_ms: i64,
}

impl Context<'_> {
    pub(super) fn is_cancelled(&self) -> bool {
        self.meter.is_cancelled()
    }

    pub(super) fn advance(&self, bytes: u64) {
        self.meter.advance(bytes);
    }

    pub(super) fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        match self.storage.list(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => {
                self.error(dir, Error::io("list", dir)(error));
                Ok(Vec::new())
            }
            Ok(entries) => Ok(entries),
        }
    }

    pub(super) fn is_folder(&self, dir: &Path) -> Result<bool> {
        match self.storage.kind(dir).map_err(Error::io("stat", dir))? {
            Some(FileKind::Directory) => Ok(true),
            None => Ok(false),
            Some(kind) => {
                self.stray_as(Code::NoRegularFile, Severity::Error, dir, kind, "a folder");
                Ok(false)
            }
        }
    }

    pub(super) fn stray(&self, stray: &Stray) {
        let (code, severity) = match stray.kind {
            // Writers refuse to create a file beside it.
            FileKind::Other => (Code::NoRegularFile, Severity::Error),
            FileKind::File | FileKind::Directory => (Code::StrayName, Severity::Warning),
        };
        self.stray_as(code, severity, &stray.path, stray.kind, "only what the store makes");
    }

    pub(super) fn stray_as(
        &self,
        code: Code,
        severity: Severity,
        path: &Path,
        kind: FileKind,
        expected: &str,
    ) {
        let found = match kind {
            FileKind::File => "a file",
            FileKind::Directory => "a folder",
            FileKind::Other => "a link, pipe or device",
        };
        self.findings.add(code, severity, path, None, expected, found);
    }

    pub(super) fn corruption(&self, code: Code, severity: Severity, fault: Corruption) {
        let path = fault.path.unwrap_or_default();
        self.findings.add(code, severity, &path, Some(fault.offset), fault.expected, fault.found);
    }

    pub(super) fn error(&self, path: &Path, error: Error) {
        match error {
            Error::Corrupt(fault) => {
                self.corruption(Code::IndexUnusable, Severity::Error, *fault);
            }
            error => {
                let severity = Severity::Error;
                let found = error.to_string();
                self.findings.add(Code::Unreadable, severity, path, None, "to read it", found);
            }
        }
    }

    /// Severity of a newest file without content: a writer may be making it.
    pub(super) fn severity_of_new(&self, empty: bool) -> Severity {
        match self.state {
            State::InUse if empty => Severity::Info,
            _ => Severity::Error,
        }
    }

    pub(super) fn check_files(&self, run: &FileRun) {
        // At the end a crash left it; before others it lost content.
        let last = run.files().last().map(|file| file.path.clone());
        for fault in run.check() {
            let Error::Corrupt(fault) = fault else { continue };
            let empty =
                fault.kind == CorruptionKind::FileLength && fault.offset == 0 && fault.path == last;
            let code = if empty { Code::EmptyFile } else { file_code(fault.kind) };
            let severity = self.severity_of_new(empty);
            self.corruption(code, severity, *fault);
        }
    }
}

pub(super) fn file_code(kind: CorruptionKind) -> Code {
    match kind {
        CorruptionKind::FileLength => Code::FileLength,
        _ => Code::FileGap,
    }
}

/// Result of the log walk, for checks of single entries.
pub(super) struct Walked {
    pub(super) log_start: u64,
    pub(super) log_end: u64,
    pub(super) damaged: Vec<(u64, u64)>,
    pub(super) forgot: bool,
}

impl Walked {
    pub(super) fn is_damaged(&self, at: u64) -> bool {
        let behind = self.damaged.partition_point(|(from, _)| *from <= at);
        let range = behind.checked_sub(1).and_then(|last| self.damaged.get(last));
        self.forgot || range.is_some_and(|(_, to)| at < *to)
    }
}
