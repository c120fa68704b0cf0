//! Input files: files that may hold messages, and the broker's tables: readable ones, or their backups
//! (`ConfigManager#load`). Damaged ones are left out: no broker would start with them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::merge::Source;
use crate::care::transfer::{ConfigFile, check_table};
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::{Access, FileKind, Storage, folder_at};
use crate::format::file_name;
use crate::store::folder::config_file::{backup_of, read_json};
use crate::store::folder::found::is_store;
use crate::store::folder::paths::{SETTINGS_FILE, StorePaths};

/// A file, or part of it, that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// The problem and what was done instead.
    pub reason: String,
}

fn problem(path: PathBuf, reason: impl Into<String>) -> Problem {
    Problem { path, reason: reason.into() }
}

/// Readable tables below `folder`; others are added to `problems`.
fn sound_tables(
    storage: &dyn Storage,
    folder: &Path,
    problems: &mut Vec<Problem>,
) -> Vec<ConfigFile> {
    let listed = match folder_at(storage, folder, false) {
        Ok(Ok(false)) => return Vec::new(),
        Ok(Ok(true)) => match storage.list(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(format!("cannot be listed: {error}"))
            }
            entries => Ok(entries.unwrap_or_default()),
        },
        Ok(Err(reason)) => Err(reason),
        Err(error) => Err(format!("cannot be read: {error}")),
    };
    let entries = listed.unwrap_or_else(|reason| {
        problems.push(problem(folder.to_owned(), reason));
        Vec::new()
    });
    let names: BTreeSet<_> = entries
        .iter()
        .filter_map(|entry| entry.name.to_str())
        .map(|name| name.strip_suffix(".bak").unwrap_or(name))
        .filter(|name| name.ends_with(".json") && *name != SETTINGS_FILE)
        .collect();
    let mut files = Vec::new();
    for name in names {
        let path = folder.join(name);
        let why = match sound(storage, &path, name) {
            Ok(Some(bytes)) => {
                files.push((name.to_owned(), bytes));
                continue;
            }
            Ok(None) => None,
            Err(error) => Some(error.to_string()),
        };
        match (sound(storage, &backup_of(&path), name), why) {
            (Ok(Some(bytes)), why) => {
                files.push((name.to_owned(), bytes));
                let why = why.unwrap_or_else(|| "gone, or empty".to_owned());
                problems.push(problem(path, format!("{why}; its backup is taken")));
            }
            (_, Some(why)) => problems.push(problem(path, format!("{why}; left out"))),
            (Err(error), None) => {
                problems.push(problem(backup_of(&path), format!("{error}; left out")));
            }
            (Ok(None), None) => {}
        }
    }
    files
}

fn sound(storage: &dyn Storage, path: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let Some(bytes) = read_json(storage, path)?.filter(|bytes| !bytes.is_empty()) else {
        return Ok(None);
    };
    check_table(name, &bytes).map_err(|error| error.in_file(path, 0))?;
    Ok(Some(bytes))
}

pub(super) struct FoundSources {
    pub(super) sources: Vec<Source>,
    pub(super) files: Vec<ConfigFile>,
    pub(super) hint: Option<u64>,
    pub(super) problems: Vec<Problem>,
}

pub(super) fn find(
    storage: &Arc<dyn Storage>,
    from: &Path,
    config: &StoreConfig,
    remembered: Option<u64>,
) -> Result<FoundSources> {
    let not_there = |reason: &str| Error::NotAStore { path: from.into(), reason: reason.into() };
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut folders: Vec<PathBuf> = Vec::new();
    match storage.kind_of(from)? {
        None => return Err(not_there("no such path")),
        Some(FileKind::File) => paths.push(from.to_owned()),
        Some(FileKind::Other) => {
            let reason = "a link or a device; of a disk make an image first, as with dd";
            return Err(not_there(reason));
        }
        Some(FileKind::Directory) => {
            let store = StorePaths::new(Arc::clone(storage), from, config);
            if is_store(&store)? {
                files = sound_tables(&**storage, &store.config(), &mut problems);
                folders.extend_from_slice(store.commit_log());
            } else {
                folders.push(from.to_owned());
            }
        }
    }
    for folder in &folders {
        for entry in storage.list_if_there(folder)?.into_iter().flatten() {
            let path = folder.join(entry.name);
            match entry.kind {
                FileKind::File => paths.push(path),
                FileKind::Directory => problems.push(problem(path, "a folder, not looked into")),
                FileKind::Other => {
                    problems.push(problem(path, "a link, pipe or device, not opened"));
                }
            }
        }
    }
    if paths.is_empty() {
        return Err(not_there("no file to read in it"));
    }
    paths.sort_by(|a, b| (a.file_name(), a).cmp(&(b.file_name(), b)));
    let mut sources = Vec::with_capacity(paths.len());
    let mut refused = None;
    for path in paths {
        match storage.open(&path, Access::Read) {
            Ok(file) => sources.push(Source { path, file }),
            Err(error) => {
                problems.push(problem(path.clone(), format!("cannot be opened: {error}")));
                refused.get_or_insert(Error::io("open", &path)(error));
            }
        }
    }
    if let (true, Some(error)) = (sources.is_empty(), refused) {
        return Err(error);
    }
    problems.sort_by(|a, b| a.path.cmp(&b.path));
    let hint = file_size(&sources, remembered)?;
    Ok(FoundSources { sources, files, hint, problems })
}

/// File size of the log by the files with a name: the remembered one if none contradicts it, else
/// the most frequent length among files at its multiples, else the step between names.
fn file_size(sources: &[Source], remembered: Option<u64>) -> Result<Option<u64>> {
    let (mut step, mut longest) = (0, 0);
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    for Source { path, file } in sources {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(base) = name.and_then(file_name::parse_offset_name) else { continue };
        step = common_divisor(step, base);
        let len = file.stat().map_err(Error::io("stat", path))?.len;
        longest = longest.max(len);
        *votes.entry(len).or_default() += 1;
    }
    let fits = |size: u64| size > 0 && step % size == 0;
    let known = remembered.filter(|size| !votes.is_empty() && fits(*size) && longest <= *size);
    let most = votes.into_iter().filter(|(size, _)| fits(*size)).max_by_key(|(_, votes)| *votes);
    let spaced = (step > 0 && longest <= step).then_some(step);
    Ok(known.or(most.map(|(size, _)| size)).or(spaced))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
