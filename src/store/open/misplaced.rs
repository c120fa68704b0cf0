//! Finds files of the log in the wrong place by the records in them.

use crate::store::folder::found;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::{Corruption, CorruptionKind, Error, Result};
use crate::files::{Access, FileKind, FileRun, Storage, StorageFile};
use crate::format::file_name::{offset_name, parse_offset_name};
use crate::format::message::{PHYSICAL_OFFSET_AT, peek};
use crate::store::folder::inventory::list;
use crate::store::folder::paths::StorePaths;

#[derive(Debug, Default)]
pub(crate) struct Misplaced {
    pub(crate) evidence: Vec<String>,
    pub(crate) moves: Vec<(PathBuf, PathBuf)>,
    pub(crate) packed: Vec<PathBuf>,
}

const PACKERS: [(&str, &str); 3] = [("gz", "gzip -d"), ("xz", "xz -d"), ("zst", "zstd -d --rm")];

/// Place of a compressed file of the log, and what unpacks it.
pub(crate) fn packer(path: &Path) -> Option<(u64, &'static str)> {
    let place = path.file_stem()?.to_str().and_then(parse_offset_name)?;
    let suffix = path.extension()?.to_str()?;
    PACKERS.iter().find(|(known, _)| *known == suffix).map(|(_, tool)| (place, *tool))
}

struct File {
    path: PathBuf,
    named: Option<u64>,
    stated: Option<u64>,
    /// Whether it begins with zeros, as a file without a message does.
    is_blank: bool,
}

/// Log that is DLedger's, in this folder, or has misplaced files.
pub(crate) fn foreign(
    paths: &StorePaths,
    log: &FileRun,
) -> Result<Option<(Corruption, Option<PathBuf>)>> {
    if let Some(dir) = found::find_ledger(paths)? {
        return Ok(Some((found::ledger_damage(paths, &dir), Some(dir))));
    }
    Ok(contradiction(paths.storage(), log).map(|damage| (damage, None)))
}

pub(crate) fn refuse_foreign(paths: &StorePaths, log: &FileRun) -> Result<()> {
    match foreign(paths, log)? {
        Some((damage, _)) => Err(Error::Corrupt(Box::new(damage))),
        None => Ok(()),
    }
}

fn contradiction(storage: &dyn Storage, log: &FileRun) -> Option<Corruption> {
    let file_size = log.file_size();
    let mut wrong = 0_u64;
    let mut first = None;
    for file in log.files().iter() {
        // A broker may have deleted it since.
        let Ok(open) = storage.open(&file.path, Access::Read) else { continue };
        let (stated, _) = stated(&*open, file_size).unwrap_or_default();
        if let Some(at) = stated.filter(|at| *at != file.base_offset) {
            wrong += 1;
            first.get_or_insert_with(|| (file.path.clone(), file.base_offset, at));
        } else if storage.is_remote() && first.is_none() {
            // Each head costs a request, and a read notices a wrong one.
            break;
        }
    }
    let (path, named, at) = first?;
    Some(Corruption {
        path: Some(path),
        offset: PHYSICAL_OFFSET_AT as u64,
        kind: CorruptionKind::PhysicalOffset,
        expected: format!("records from physical offset {named} on, by the file's name"),
        found: format!(
            "records that state {at}; so {wrong} files of the log have a wrong name or are another \
             store's; nothing was changed: `mqstore doctor` prints the commands that rename them"
        ),
    })
}

pub(crate) fn find(paths: &StorePaths, file_size: u64) -> Result<Option<Misplaced>> {
    let (mut files, mut beside) = (Vec::new(), files_in(paths.storage(), paths.root(), file_size)?);
    for dir in paths.commit_log() {
        files.extend(files_in(paths.storage(), dir, file_size)?);
        for entry in list(paths.storage(), dir)? {
            if entry.kind == FileKind::Directory {
                beside.extend(files_in(paths.storage(), &dir.join(&entry.name), file_size)?);
            }
        }
    }
    let is_in_log = |path: &Path| {
        path.parent().is_some_and(|dir| paths.commit_log().iter().any(|log| log == dir))
    };
    let (mut wrong, mut right): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| {
        file.named.is_none() || file.stated.is_some_and(|at| file.named != Some(at))
    });
    wrong.extend(spares_in_the_way(&wrong, &mut right, file_size));
    let mut taken: BTreeSet<u64> = right.iter().filter_map(|file| file.named).collect();
    let mut found = Misplaced::default();
    let (mut wanted, mut foreign) = (BTreeMap::new(), Vec::new());
    // Files before the log may be an archive of what retention deleted.
    let first = taken.first().copied();
    beside.retain(|file| {
        file.stated.is_some_and(|at| first.is_none_or(|first| at > first) && !taken.contains(&at))
    });
    let home_dir = paths.commit_log().first();
    for file in wrong.into_iter().chain(beside) {
        if let Some((place, _)) = packer(&file.path)
            && !taken.contains(&place)
        {
            let line =
                format!("{}: the file {} compressed", file.path.display(), offset_name(place));
            found.evidence.push(line);
            found.packed.push(file.path);
            continue;
        }
        let home = file.stated.filter(|at| at.is_multiple_of(file_size.max(1)));
        match home {
            Some(at) if !taken.contains(&at) && !wanted.contains_key(&at) => {
                wanted.insert(at, file);
            }
            _ => foreign.push(file),
        }
    }
    // A file far from all others is another store's.
    let homes: BTreeSet<u64> = taken.iter().chain(wanted.keys()).copied().collect();
    let is_near = |at: u64| {
        homes.len() == 1
            || homes.contains(&at.saturating_add(file_size))
            || at.checked_sub(file_size).is_some_and(|before| homes.contains(&before))
    };
    let (wanted, far): (BTreeMap<_, _>, BTreeMap<_, _>) =
        wanted.into_iter().partition(|(at, _)| is_near(*at));
    foreign.extend(far.into_values());
    foreign.retain(|file| is_in_log(&file.path));
    foreign.sort_by(|a, b| a.path.cmp(&b.path));
    put_away(paths, foreign, &mut found);
    let mut waiting: Vec<(PathBuf, PathBuf)> = Vec::new();
    for (at, file) in wanted {
        taken.insert(at);
        let name = offset_name(at);
        found.evidence.push(format!(
            "{}: its records state physical offset {at}: it is the file {name}",
            file.path.display()
        ));
        let to = match home_dir.filter(|_| !is_in_log(&file.path)) {
            Some(dir) => dir.join(name),
            None => file.path.with_file_name(name),
        };
        waiting.push((file.path, to));
    }
    order(waiting, &mut found.moves);
    Ok((!found.moves.is_empty() || !found.packed.is_empty()).then_some(found))
}

/// Takes out files without a message that have the name of a misplaced one, or that the log will
/// not reach once all are in their place.
fn spares_in_the_way(wrong: &[File], right: &mut Vec<File>, file_size: u64) -> Vec<File> {
    if wrong.iter().all(|file| file.stated.is_none()) {
        return Vec::new();
    }
    right.sort_by_key(|file| file.named);
    let last = wrong.iter().chain(&*right).filter_map(|file| file.stated).max().unwrap_or(0);
    let mut next = last.saturating_add(file_size);
    let is_in_the_way = |file: &mut File| {
        let Some(named) = file.named.filter(|_| file.is_blank) else { return false };
        if wrong.iter().any(|other| other.stated == Some(named)) {
            return true;
        }
        if named == next {
            next = next.saturating_add(file_size);
            return false;
        }
        named > last || !named.is_multiple_of(file_size.max(1))
    };
    right.extract_if(.., is_in_the_way).collect()
}

fn put_away(paths: &StorePaths, foreign: Vec<File>, found: &mut Misplaced) {
    for file in foreign {
        let holds = match file.stated {
            Some(at) => format!("its records state physical offset {at}: not of this log"),
            None => "no record begins it, and no file of the log has such a name".to_owned(),
        };
        found.evidence.push(format!("{}: {holds}", file.path.display()));
        let name = file.path.file_name().unwrap_or_default().display().to_string();
        let is_given = |path: &Path| found.moves.iter().any(|(_, to)| to == path);
        let to = free(paths.storage(), paths.root(), &format!("misplaced-{name}"), is_given);
        found.moves.push((file.path, to));
    }
}

/// Whether a name is that of a part of a log file, as `rsync` has while it copies.
pub(crate) fn is_part(name: &OsStr) -> bool {
    let name = name.to_str().and_then(|name| name.strip_prefix('.')?.rsplit_once('.'));
    name.is_some_and(|(name, _)| parse_offset_name(name).is_some())
}

fn files_in(storage: &dyn Storage, dir: &Path, file_size: u64) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for entry in list(storage, dir)? {
        if entry.kind == FileKind::File && !is_part(&entry.name) {
            let path = dir.join(&entry.name);
            let named = entry.name.to_str().and_then(parse_offset_name);
            let open = storage.open(&path, Access::Read);
            // An empty file under another name has no part of the log.
            if named.is_none() && matches!(open.as_ref().map(|open| open.length()), Ok(Ok(0))) {
                continue;
            }
            let stated = open.and_then(|open| stated(&*open, file_size));
            let (stated, is_blank) = stated.unwrap_or_default();
            files.push(File { path, named, stated, is_blank });
        }
    }
    Ok(files)
}

/// Orders renames; a ring needs a temporary name.
fn order(mut waiting: Vec<(PathBuf, PathBuf)>, moves: &mut Vec<(PathBuf, PathBuf)>) {
    while !waiting.is_empty() {
        let is_free = |to: &Path| waiting.iter().all(|(from, _)| from != to);
        if let Some(at) = waiting.iter().position(|(_, to)| is_free(to)) {
            moves.push(waiting.remove(at));
        } else if let Some((from, _)) = waiting.first_mut() {
            let mut aside = from.clone().into_os_string();
            aside.push(".aside");
            let aside = PathBuf::from(aside);
            moves.push((std::mem::replace(from, aside.clone()), aside));
        }
    }
}

/// Offset that a file's first record states, and whether the file begins with zeros. The second
/// record must confirm it; without one a file must be able to begin there.
fn stated(file: &dyn StorageFile, file_size: u64) -> std::io::Result<(Option<u64>, bool)> {
    let mut head = [0; peek::SIGNATURE];
    let mut own = |at: u64| -> std::io::Result<(Option<(u64, u64)>, bool)> {
        let read = file.read_at(&mut head, at)?;
        let size = peek::claimed_size(&head).map(|size| size as u64);
        let own = peek::own_place(&head).zip(size).filter(|_| read == head.len());
        Ok((own, head.iter().all(|byte| *byte == 0)))
    };
    let (first, is_blank) = own(0)?;
    let Some((first, size)) = first else { return Ok((None, is_blank)) };
    let is_sure = match own(size)? {
        (Some((next, _)), _) => next == first.saturating_add(size),
        (None, _) => first.is_multiple_of(file_size.max(1)),
    };
    Ok((Some(first).filter(|_| is_sure), is_blank))
}

pub(crate) fn free(
    storage: &dyn Storage,
    dir: &Path,
    name: &str,
    is_given: impl Fn(&Path) -> bool,
) -> PathBuf {
    let names = std::iter::once(name.to_owned()).chain((2..1000).map(|n| format!("{name}-{n}")));
    let mut paths = names.map(|name| dir.join(name));
    let is_free = |path: &PathBuf| !is_given(path) && matches!(storage.kind(path), Ok(None));
    paths.find(is_free).unwrap_or_else(|| dir.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renames_are_ordered_and_a_ring_is_broken() {
        let pairs = |list: &[(&str, &str)]| -> Vec<(PathBuf, PathBuf)> {
            list.iter().map(|(from, to)| (PathBuf::from(from), PathBuf::from(to))).collect()
        };
        for (waiting, expected) in [
            (&[("a", "b"), ("b", "c")][..], &[("b", "c"), ("a", "b")][..]),
            (&[("a", "b"), ("b", "a")], &[("a", "a.aside"), ("b", "a"), ("a.aside", "b")]),
        ] {
            let mut moves = Vec::new();
            order(pairs(waiting), &mut moves);
            assert_eq!(moves, pairs(expected));
        }
    }
}
