//! Replaces old folders by rebuilt ones, all or none, even if the process dies.
//!
//! The new folders are durable in `rebuild/new` before the list of moves is written. Then the moves
//! are completed, if necessary by the next open.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::config_file;
use super::inventory::list;
use super::lock;
use super::owner;
use super::paths::{BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, StorePaths};
use crate::error::{CorruptionKind, Error, Result};
use crate::files::{DirEntry, FileKind, Storage, copy_file, copy_tree};
use crate::format::file_name::parse_index_name;
use crate::format::queue::is_broker_topic;

const DERIVED: [&str; 6] = [
    CONSUME_QUEUE,
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    "consumequeue_rocksdb",
    "rocksdbstore",
];
const NEW: &str = "new";
const MOVES: &str = "moves";
/// A longer list was not written here.
const MOST_BYTES: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Path from the root: a derived folder, or a topic's inside.
    pub folder: PathBuf,
    pub has_new: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    step: Move,
    /// Inode of the new folder, which identifies it after the exchange.
    inode: Option<u64>,
}

impl Listed {
    fn is_in_place(&self, paths: &StorePaths) -> bool {
        let place = paths.root().join(&self.step.folder);
        // Behind a link lies another disk, with the same numbers for other folders.
        let device = |dir: &Path| Some(paths.storage.identity(dir).ok()??.device);
        self.inode.is_some()
            && inode_of(paths.storage(), &place) == self.inode
            && device(&place) == device(paths.root())
    }

    /// Exchanges both folders atomically, so that readers always find one. `false` if unsupported,
    /// or if a crash would leave unknown which is which.
    fn exchange(&self, paths: &StorePaths) -> Result<bool> {
        let (new, place) =
            (staging(paths).join(&self.step.folder), paths.root().join(&self.step.folder));
        if self.inode.is_none() || paths.storage.exchange(&new, &place).is_err() {
            return Ok(false);
        }
        for dir in [&place, &new].map(|folder| folder.parent().unwrap_or(folder)) {
            paths.storage.sync_dir(dir).map_err(Error::flush(dir))?;
        }
        Ok(true)
    }
}

fn inode_of(storage: &dyn Storage, folder: &Path) -> Option<u64> {
    storage.stamp(folder).ok().flatten().map(|stamp| stamp.inode)
}

#[must_use]
pub fn staging(paths: &StorePaths) -> PathBuf {
    paths.rebuild().join(NEW)
}

/// Replaces the old folders by the durable ones in [`staging`]. Returns the quarantine folder, if
/// needed.
pub fn replace(paths: &StorePaths, moves: &[Move], now_ms: i64) -> Result<Option<PathBuf>> {
    let kept = format!("{now_ms}-rebuild");
    let mut listed = Vec::new();
    for step in moves {
        for step in below_a_link(paths, step)? {
            let new = staging(paths).join(&step.folder);
            let inode = inode_of(paths.storage(), &new).filter(|_| step.has_new);
            listed.push(Listed { step, inode });
        }
    }
    let mut list = format!("{kept}\n");
    for Listed { step, inode } in &listed {
        let sign = if step.has_new { '+' } else { '-' };
        let inode = inode.map_or_else(String::new, |inode| format!(" {inode}"));
        list.push_str(&format!("{sign}{}{inode}\n", step.folder.to_string_lossy()));
    }
    for dir in [staging(paths).as_path(), &paths.rebuild(), paths.root()] {
        paths.storage.sync_dir(dir).map_err(Error::flush(dir))?;
    }
    lock::replace(paths.storage(), &paths.rebuild().join(MOVES), list.as_bytes())?;
    let finished = finish(paths);
    let kept = paths.quarantine().join(kept);
    if let Err(error) = finished {
        // An immovable folder, such as a mount point, must not block every later open.
        if let Err(undone) = undo(paths, &kept, &listed) {
            return Err(Error::io("undo a rebuild of", paths.root())(io::Error::other(format!(
                "{error}; then {undone}"
            ))));
        }
        return Err(error);
    }
    let there = paths.storage.kind_of(&kept)?;
    Ok(there.map(|_| kept))
}

/// A linked folder stays, and what is in it is replaced.
fn below_a_link(paths: &StorePaths, step: &Move) -> Result<Vec<Move>> {
    let place = paths.root().join(&step.folder);
    let kind = paths.storage.kind_of(&place)?;
    if kind != Some(FileKind::Other) {
        return Ok(vec![step.clone()]);
    }
    let new: Vec<_> = list(paths.storage(), &staging(paths).join(&step.folder))?;
    let mut names = list(paths.storage(), &place)?;
    // Another disk has names of others, too.
    names.retain(|DirEntry { name, kind, .. }| match kind {
        FileKind::Directory => is_broker_topic(name.as_encoded_bytes()),
        FileKind::File => name.to_str().and_then(parse_index_name).is_some(),
        FileKind::Other => false,
    });
    names.extend(new.iter().cloned());
    names.sort_by(|one, other| one.name.cmp(&other.name));
    names.dedup_by(|one, other| one.name == other.name);
    let has_new = |name: &OsString| new.iter().any(|new| new.name == *name);
    let below = |DirEntry { name, .. }: DirEntry| Move {
        has_new: has_new(&name),
        folder: step.folder.join(name),
    };
    Ok(names.into_iter().map(below).collect())
}

/// Replaces the folders that `build` puts into [`staging`] and names, with the writer's lock. Those
/// named and not there are removed.
pub fn replace_locked<E: From<Error>>(
    paths: &StorePaths,
    now_ms: i64,
    build: impl FnOnce(&Path) -> std::result::Result<Vec<String>, E>,
) -> std::result::Result<Option<PathBuf>, E> {
    owner::check(paths)?;
    let _lock = lock::StoreLock::take(paths)?;
    finish(paths)?;
    let dir = staging(paths);
    paths.storage.create_dir(&dir).map_err(Error::io("create", &dir))?;
    let made = build(&dir).and_then(|names| {
        let step = |name: String| -> Result<Move> {
            let new = dir.join(&name);
            let has_new = paths.storage.kind_of(&new)?.is_some();
            Ok(Move { folder: name.into(), has_new })
        };
        let moves = names.into_iter().map(step).collect::<Result<Vec<_>>>()?;
        // Their records must be durable first.
        paths.storage.sync_all(paths.root()).map_err(Error::flush(paths.root()))?;
        for log in paths.commit_log().iter().filter(|log| !log.starts_with(paths.root())) {
            paths.storage.sync_all(log).map_err(Error::flush(log))?;
        }
        Ok(replace(paths, &moves, now_ms)?)
    });
    if made.is_err() && !is_listed(paths) {
        let _ = remove_tree(paths.storage(), &paths.rebuild());
    }
    made
}

/// Whether a rebuild's moves are decided and only need finishing.
#[must_use]
pub fn is_listed(paths: &StorePaths) -> bool {
    !matches!(paths.storage.kind(&paths.rebuild().join(MOVES)), Ok(None))
}

/// Finishes or undoes an interrupted rebuild; returns whether there was one. Called with the
/// writer's lock, before queues and index are read.
pub fn finish(paths: &StorePaths) -> Result<bool> {
    let dir = paths.rebuild();
    match paths.storage.kind_of(&dir)? {
        None => return Ok(false),
        Some(FileKind::Directory) => {}
        Some(_) => {
            return Err(Error::NotAStore {
                path: dir,
                reason: "not a folder, and links below a store's root are not followed".to_owned(),
            });
        }
    }
    let list = dir.join(MOVES);
    if let Some(bytes) = config_file::read(paths.storage(), &list, MOST_BYTES)? {
        let (kept, moves) = parse(&bytes).ok_or_else(|| {
            let expected = "a list of folders to be moved";
            Error::corrupt(&list, 0, CorruptionKind::FileName, expected, "something else")
        })?;
        let kept = paths.quarantine().join(kept);
        for listed in &moves {
            make(paths, &kept, listed)?;
            remove_tree(paths.storage(), &beside(&paths.root().join(&listed.step.folder)))?;
        }
        paths.storage.remove_if_there(&list)?;
        paths.storage.sync_dir(&dir).map_err(Error::flush(&dir))?;
    }
    remove_tree(paths.storage(), &dir)?;
    paths.storage.sync_dir(paths.root()).map_err(Error::flush(paths.root()))?;
    Ok(true)
}

/// Restores the old folder of an unfinished first move; otherwise the next open continues.
fn undo(paths: &StorePaths, kept: &Path, moves: &[Listed]) -> Result<()> {
    let is_there = |path: &Path| paths.storage.kind_of(path).map(|kind| kind.is_some());
    for listed @ Listed { step, .. } in moves {
        let is_made = match step.has_new {
            true => !is_there(&staging(paths).join(&step.folder))? || listed.is_in_place(paths),
            false => is_there(&kept.join(&step.folder))?,
        };
        if is_made {
            return Ok(());
        }
    }
    for Listed { step, .. } in moves {
        let (old, place) = (kept.join(&step.folder), paths.root().join(&step.folder));
        if is_there(&old)? && !is_there(&place)? {
            rename(paths, &old, &place)?;
        }
    }
    paths.storage.remove_if_there(&paths.rebuild().join(MOVES))?;
    remove_tree(paths.storage(), &paths.rebuild())
}

fn make(paths: &StorePaths, kept: &Path, listed: &Listed) -> Result<()> {
    let step = &listed.step;
    let new = staging(paths).join(&step.folder);
    let place = paths.root().join(&step.folder);
    let is_there = |path: &Path| paths.storage.kind_of(path).map(|kind| kind.is_some());
    let mut old = kept.join(&step.folder);
    let to_come = step.has_new && is_there(&new)?;
    let to_go = if step.has_new { to_come } else { !is_there(&old)? };
    if to_go && is_there(&place)? {
        // A broker has created another one since.
        let name = old.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for number in 1.. {
            if !is_there(&old)? {
                break;
            }
            old.set_file_name(format!("{name}.{number}"));
        }
        if to_come && (listed.is_in_place(paths) || listed.exchange(paths)?) {
            return rename(paths, &new, &old);
        }
        rename(paths, &place, &old)?;
    }
    if to_come {
        rename(paths, &new, &place)?;
    }
    Ok(())
}

/// Renames durably, to another disk too: a folder of the store may be a link.
pub fn rename(paths: &StorePaths, from: &Path, to: &Path) -> Result<()> {
    let (above, before) = (to.parent().unwrap_or(to), from.parent().unwrap_or(from));
    paths.storage.create_dir(above).map_err(Error::io("create", above))?;
    if to.starts_with(paths.quarantine()) {
        let _ = paths.storage.make_private(&paths.quarantine());
    }
    match paths.storage.rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            move_to_other_disk(paths.storage(), from, to)?;
        }
        renamed => renamed.map_err(Error::io("rename", from))?,
    }
    for dir in above.ancestors().take_while(|dir| dir.starts_with(paths.root())) {
        paths.storage.sync_dir(dir).map_err(Error::flush(dir))?;
    }
    paths.storage.sync_dir(before).map_err(Error::flush(before))
}

/// Folder for what is being moved to or from another disk: a killed process leaves nothing half there.
fn beside(path: &Path) -> PathBuf {
    path.with_file_name("mqstore.moving")
}

fn move_to_other_disk(storage: &dyn Storage, from: &Path, to: &Path) -> Result<()> {
    let name = from.file_name().unwrap_or_default();
    for (end, is_new) in [(to, true), (from, false)] {
        let aside = beside(end);
        remove_tree(storage, &aside)?;
        storage.create_dir(&aside).map_err(Error::io("create", &aside))?;
        let moved = aside.join(name);
        match storage.kind_of(from)? {
            _ if !is_new => storage.rename(from, &moved).map_err(Error::io("rename", from))?,
            Some(FileKind::Directory) => copy_tree(storage, from, &moved)?,
            _ => copy_file(storage, from, &aside)?,
        }
        if is_new {
            storage.rename(&moved, to).map_err(Error::io("rename", &moved))?;
        }
        let above = end.parent().unwrap_or(end);
        storage.sync_dir(above).map_err(Error::flush(above))?;
        remove_tree(storage, &aside)?;
    }
    Ok(())
}

/// Parses a list: quarantine name and moves; `None` if it names other folders than derived ones.
fn parse(bytes: &[u8]) -> Option<(&str, Vec<Listed>)> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    let kept = lines.next()?;
    let time = kept.strip_suffix("-rebuild")?;
    if time.is_empty() || !time.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let moves = lines.map(|line| {
        let (sign, folder) = line.split_at_checked(1)?;
        let (folder, inode) = match folder.split_once(' ') {
            Some((folder, inode)) => (folder, Some(inode.parse().ok()?)),
            None => (folder, None),
        };
        let (top, topic) = match folder.split_once('/') {
            Some((top, topic)) => (top, Some(topic)),
            None => (folder, None),
        };
        let is_name = |name: &str| !["", ".", ".."].contains(&name) && !name.contains('/');
        let is_sound =
            DERIVED.contains(&top) && topic.is_none_or(is_name) && (sign == "+" || sign == "-");
        let step = Move { folder: folder.into(), has_new: sign == "+" };
        is_sound.then_some(Listed { step, inode })
    });
    Some((kept, moves.collect::<Option<_>>()?))
}

/// Removes a folder recursively; links are not followed.
pub fn remove_tree(storage: &dyn Storage, dir: &Path) -> Result<()> {
    // Folders to empty; children precede parents.
    let mut folders = vec![(dir.to_owned(), false)];
    while let Some((folder, is_emptied)) = folders.pop() {
        if is_emptied {
            storage.remove_dir(&folder).map_err(Error::io("remove", &folder))?;
            continue;
        }
        let Some(entries) = storage.list_if_there(&folder)? else { continue };
        folders.push((folder.clone(), true));
        for entry in entries {
            let path = folder.join(entry.name);
            match entry.kind {
                FileKind::Directory => folders.push((path, false)),
                FileKind::File | FileKind::Other => storage.remove_if_there(&path)?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_nothing_but_what_is_made_from_the_log() {
        let good = b"17-rebuild\n+consumequeue 12\n-index\n+consumequeue/orders\n";
        let (kept, moves) = parse(good).unwrap();
        assert_eq!((kept, moves.len()), ("17-rebuild", 3));
        assert!(moves[0].step.has_new && !moves[1].step.has_new);
        assert_eq!([moves[0].inode, moves[2].inode], [Some(12), None]);
        for bad in [
            "",
            "x-rebuild\n",
            "-rebuild\n",
            "../1-rebuild\n",
            "1-rebuild\n+commitlog",
            "1-rebuild\n+consumequeue/..",
            "1-rebuild\n+consumequeue/a/b",
            "1-rebuild\n*index",
            "1-rebuild\n+index x",
            "1-rebuild\n+index 1 2",
            "1-rebuild\n\n",
            "1-rebuild\n+/etc",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
