//! Input files: files that may hold messages, and the broker's configuration.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::merge::Source;
use super::tables::{Problem, problem, sound_tables};
use crate::care::transfer::ConfigFile;
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::{Access, FileKind, Storage};
use crate::format::file_name;
use crate::store::folder::found::is_store;
use crate::store::folder::paths::StorePaths;

pub(super) struct FoundSources {
    pub(super) sources: Vec<Source>,
    pub(super) files: Vec<ConfigFile>,
    /// File size of the log, by names and lengths.
    pub(super) hint: Option<u64>,
    pub(super) problems: Vec<Problem>,
}

/// Finds files at `from`: a store, folder or file.
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
    match storage.kind(from).map_err(Error::io("stat", from))? {
        None => return Err(not_there("no such path")),
        Some(FileKind::File) => paths.push(from.to_owned()),
        Some(FileKind::Other) => {
            let reason = "a link or a device; of a disk make an image first, as with dd";
            return Err(not_there(reason));
        }
        Some(FileKind::Directory) => {
            let store = StorePaths::new(from, config);
            if is_store(&**storage, &store)? {
                files = sound_tables(&**storage, &store.config(), &mut problems);
                folders.extend_from_slice(store.commit_log());
            } else {
                folders.push(from.to_owned());
            }
        }
    }
    for folder in &folders {
        let entries = match storage.list(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries.map_err(Error::io("list", folder))?,
        };
        for entry in entries {
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
                problems.push(problem(path.clone(), &format!("cannot be opened: {error}")));
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
