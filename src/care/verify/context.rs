//! Context of every part of the check: the store, its settings, and the findings.

use std::path::Path;

use crate::care::finding::{Code, Findings, Graded, Severity};
use crate::care::meter::Meter;
use crate::config::StoreConfig;
use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::run::file_run::Stray;
use crate::files::{DirEntry, FileKind, FileRun, folder_at};
use crate::store::folder::paths::StorePaths;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Closed,
    Crashed,
    InUse,
}

pub(crate) struct Context<'a> {
    pub(crate) paths: StorePaths,
    pub(crate) config: &'a StoreConfig,
    pub(crate) findings: Findings,
    pub(super) meter: &'a Meter,
    pub(crate) state: State,
    pub(crate) full: bool,
    pub(crate) threads: usize,
    pub(crate) in_database: bool,
    pub(crate) flushed_ms: i64,
    pub(crate) durable: u64,
    pub(crate) latest_ms: i64,
}

impl Context<'_> {
    pub(crate) fn list(&self, dir: &Path) -> Vec<DirEntry> {
        self.paths.storage.list_if_there(dir).map(Option::unwrap_or_default).unwrap_or_else(
            |error| {
                self.error(dir, error);
                Vec::new()
            },
        )
    }

    pub(crate) fn is_folder(&self, dir: &Path) -> Result<bool> {
        let paths = &self.paths;
        let linkable = [paths.consume_queue(), paths.index(), paths.config()];
        let found = folder_at(self.paths.storage(), dir, !linkable.iter().any(|own| own == dir))?;
        Ok(found.unwrap_or_else(|found| {
            self.findings.add(Code::NoRegularFile, dir, None, "a folder", found);
            false
        }))
    }

    pub(crate) fn stray(&self, stray: &Stray) {
        let code = match stray.kind {
            // Writers refuse to create a file beside it.
            FileKind::Other => Code::NoRegularFile,
            FileKind::File | FileKind::Directory => Code::StrayName,
        };
        self.stray_as(code, &stray.path, stray.kind, "only what the store makes");
    }

    pub(crate) fn stray_as(
        &self,
        code: impl Into<Graded>,
        path: &Path,
        kind: FileKind,
        expected: &str,
    ) {
        let found = match kind {
            FileKind::File => "a file",
            FileKind::Directory => "a folder",
            FileKind::Other => "a link, pipe or device",
        };
        self.findings.add(code, path, None, expected, found);
    }

    /// Adds a finding at a position in a run.
    #[cold]
    pub(crate) fn report(
        &self,
        run: &FileRun,
        code: impl Into<Graded>,
        place: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        let (path, offset) = match run.find(place) {
            Some(file) => (file.path.clone(), place - file.base_offset),
            None => (run.dir(), 0),
        };
        self.findings.add(code, &path, Some(offset), expected, found);
    }

    pub(crate) fn corruption(&self, code: impl Into<Graded>, fault: Corruption) {
        let path = fault.path.unwrap_or_default();
        self.findings.add(code, &path, Some(fault.offset), fault.expected, fault.found);
    }

    pub(crate) fn error(&self, path: &Path, error: Error) {
        match error {
            Error::Corrupt(fault) => {
                self.corruption(Code::IndexUnusable, *fault);
            }
            error => {
                let found = error.to_string();
                self.findings.add(Code::Unreadable, path, None, "to read it", found);
            }
        }
    }

    /// The code of a newest file without content, which a writer may be making.
    pub(crate) fn new_file(&self, code: Code) -> Graded {
        code.at(if self.state == State::InUse { Severity::Info } else { Severity::Error })
    }

    pub(crate) fn check_files(&self, run: &FileRun) {
        // At the end a crash left it; before others it lost content.
        for twin in run.twins().iter() {
            let (expected, found) = (twin.expected(), twin.found());
            let (code, path) = (Code::FileTwin, &twin.other);
            self.findings.add(code, path, twin.differs_at, expected, found);
        }
        let last = run.files().last().map(|file| file.path.clone());
        for fault in run.check() {
            let Error::Corrupt(fault) = fault else { continue };
            let code = match fault.kind {
                CorruptionKind::FileLength if fault.offset == 0 && fault.path == last => {
                    self.new_file(Code::EmptyFile)
                }
                CorruptionKind::FileLength => Code::FileLength.into(),
                _ => Code::FileGap.into(),
            };
            self.corruption(code, *fault);
        }
    }
}

#[derive(Default)]
pub(crate) struct Walked {
    pub(crate) log_start: u64,
    pub(crate) log_end: u64,
    pub(crate) damaged: Vec<(u64, u64)>,
    pub(crate) forgot: bool,
}

impl Walked {
    pub(crate) fn is_damaged_before(&self, at: u64) -> bool {
        self.forgot || self.damaged.first().is_some_and(|(from, _)| *from < at)
    }

    pub(crate) fn is_damaged(&self, at: u64) -> bool {
        let behind = self.damaged.partition_point(|(from, _)| *from <= at);
        let range = behind.checked_sub(1).and_then(|last| self.damaged.get(last));
        self.forgot || range.is_some_and(|(_, to)| at < *to)
    }
}
