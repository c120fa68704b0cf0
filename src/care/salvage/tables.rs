//! The broker's tables beside a damaged log: readable ones, or their backups
//! (`ConfigManager#load`). Damaged ones are left out: no broker would start with them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::care::transfer::{ConfigFile, check_table};
use crate::error::Result;
use crate::files::{FileKind, Storage};
use crate::store::folder::config_file::{backup_of, read_json};
use crate::store::folder::paths::SETTINGS_FILE;

/// A file, or part of it, that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// The problem and what was done instead.
    pub reason: String,
}

pub(super) fn problem(path: PathBuf, reason: &str) -> Problem {
    Problem { path, reason: reason.to_owned() }
}

/// Readable tables below `folder`; others are added to `problems`.
pub(super) fn sound_tables(
    storage: &dyn Storage,
    folder: &Path,
    problems: &mut Vec<Problem>,
) -> Vec<ConfigFile> {
    match storage.kind(folder) {
        Ok(None) => return Vec::new(),
        Ok(Some(FileKind::Directory)) => {}
        Ok(Some(_)) => {
            problems.push(problem(folder.to_owned(), "no folder, and links are not followed"));
            return Vec::new();
        }
        Err(error) => {
            problems.push(problem(folder.to_owned(), &format!("cannot be read: {error}")));
            return Vec::new();
        }
    }
    let entries = match storage.list(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            problems.push(problem(folder.to_owned(), &format!("cannot be listed: {error}")));
            return Vec::new();
        }
        entries => entries.unwrap_or_default(),
    };
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
                problems.push(problem(path, &format!("{why}; its backup is taken")));
            }
            (_, Some(why)) => problems.push(problem(path, &format!("{why}; left out"))),
            (Err(error), None) => {
                problems.push(problem(backup_of(&path), &format!("{error}; left out")));
            }
            (Ok(None), None) => {}
        }
    }
    files
}

/// Content of a readable table; `None` if empty.
fn sound(storage: &dyn Storage, path: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let Some(bytes) = read_json(storage, path)?.filter(|bytes| !bytes.is_empty()) else {
        return Ok(None);
    };
    check_table(name, &bytes).map_err(|error| error.in_file(path, 0))?;
    Ok(Some(bytes))
}
