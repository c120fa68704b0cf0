//! Files and folders of a store that a broker of this user cannot read.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, quoted};
use crate::files::{Access, FileKind, Storage, folder_at};
use crate::store::folder::paths::{self, StorePaths};

const DEEPEST: usize = 3;
const MOST: usize = 100;

/// Folders that a start needs and this user may not read, and files if asked; at most a hundred.
pub(in crate::care) fn refused(
    storage: &dyn Storage,
    paths: &StorePaths,
    files: bool,
) -> Vec<PathBuf> {
    let mut refused = Vec::new();
    // Also tells whether the root can be searched.
    if is_denied(&storage.list(paths.root())) {
        return vec![paths.root().to_owned()];
    }
    let wheel = paths.root().join("timerwheel");
    for file in [paths.checkpoint(), paths.abort(), wheel] {
        if files && storage.kind(&file).is_ok_and(|kind| kind == Some(FileKind::File)) {
            add_file(storage, file, &mut refused);
        }
    }
    let queues = paths::QUEUE_FOLDERS.iter().map(|name| paths.root().join(name));
    let log = paths.commit_log().iter().cloned();
    let timers = paths.root().join("timerlog");
    for dir in log.chain(queues).chain([paths.index(), paths.config(), timers]) {
        match folder_at(storage, &dir, false) {
            Ok(Ok(true)) => add_folder(storage, &dir, (files, DEEPEST), &mut refused),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                refused.push(dir);
            }
            _ => {}
        }
    }
    refused
}

fn is_denied<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn add_file(storage: &dyn Storage, path: PathBuf, refused: &mut Vec<PathBuf>) {
    if refused.len() < MOST && is_denied(&storage.open(&path, Access::Read)) {
        refused.push(path);
    }
}

fn add_folder(
    storage: &dyn Storage,
    dir: &Path,
    (files, deepest): (bool, usize),
    refused: &mut Vec<PathBuf>,
) {
    let entries = storage.list(dir);
    if is_denied(&entries) && refused.len() < MOST {
        refused.push(dir.to_owned());
    }
    for entry in entries.unwrap_or_default() {
        let path = dir.join(&entry.name);
        match entry.kind {
            FileKind::File if files => add_file(storage, path, refused),
            FileKind::Directory if deepest > 0 => {
                add_folder(storage, &path, (files, deepest - 1), refused);
            }
            _ => {}
        }
    }
}

/// Why RocketMQ does not start.
pub(in crate::care) fn obstacle(path: &Path, paths: &StorePaths) -> String {
    let then = match path == paths.root() {
        true => "; run the command as its owner",
        false => ", nor may a broker that runs as this user",
    };
    format!("{}: this user may not read it{then}", path.display())
}

/// The command that gives what lies in the store to its owner; root can run it.
pub(in crate::care) fn owner_command(path: &Path, paths: &StorePaths) -> Option<String> {
    if path == paths.root() {
        return None;
    }
    let (store, path) = (quoted(paths.root().to_str()?)?, quoted(path.to_str()?)?);
    Some(format!("chown -R --reference={store} {path} && chmod -R u+rwX {path}"))
}
