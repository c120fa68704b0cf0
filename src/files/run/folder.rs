//! Folders, linked or not, and their durable names.

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::{FileKind, Storage};

pub const NOT_A_FOLDER: &str = "a file, not a folder";

/// Whether there is a folder; `Err` says why it is none. RocketMQ follows links to its folders, and so
/// are those here that lead to folders of the store's owner, unless the folder is `ours`.
pub fn folder_at(
    storage: &dyn Storage,
    dir: &Path,
    ours: bool,
) -> Result<std::result::Result<bool, String>> {
    Ok(match storage.kind_of(dir)? {
        None => Ok(false),
        Some(FileKind::Directory) => Ok(true),
        Some(FileKind::File) => Err(NOT_A_FOLDER.to_owned()),
        Some(FileKind::Other) if ours => Err("a link, pipe or device".to_owned()),
        Some(FileKind::Other) => storage.follow(dir).map(|()| true),
    })
}

/// Creates a folder and its parents and makes their names durable: a file is only as safe as the
/// folders above it.
pub fn make_folder(storage: &dyn Storage, dir: &Path) -> Result<()> {
    make_durable(storage, &make_folder_by_name(storage, dir)?)
}

/// [`make_folder`] for one that is not part of a store yet; see [`Storage::create_outside`].
pub fn make_folder_outside(storage: &dyn Storage, dir: &Path, like: Option<&Path>) -> Result<()> {
    let made = missing(storage, dir)?;
    if !made.is_empty() {
        storage.create_outside(dir, like).map_err(Error::io("create", dir))?;
    }
    make_durable(storage, &made)
}

fn make_durable(storage: &dyn Storage, made: &[&Path]) -> Result<()> {
    for folder in made {
        let above = match folder.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        if let Err(error) = storage.sync_dir(above) {
            // A later call would take folders left behind for durable.
            for folder in made {
                let _ = storage.remove_dir(folder);
            }
            return Err(Error::flush(above)(error));
        }
    }
    Ok(())
}

/// Creates a folder and its parents; returns those created, the lowest first. Their names are not
/// durable yet.
pub(crate) fn make_folder_by_name<'a>(
    storage: &dyn Storage,
    dir: &'a Path,
) -> Result<Vec<&'a Path>> {
    let made = missing(storage, dir)?;
    if !made.is_empty() {
        storage.create_dir(dir).map_err(Error::io("create", dir))?;
    }
    Ok(made)
}

/// The folder and its parents as far as they do not exist, the lowest first.
fn missing<'a>(storage: &dyn Storage, dir: &'a Path) -> Result<Vec<&'a Path>> {
    let mut made = Vec::new();
    for folder in dir.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        if storage.kind_of(folder)?.is_some() {
            break;
        }
        made.push(folder);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;

    #[test]
    fn folders_are_made_with_those_above_and_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        make_folder(&Os, &deep).unwrap();
        assert!(deep.is_dir());
        make_folder(&Os, &deep).unwrap();
        std::fs::write(dir.path().join("file"), b"").unwrap();
        assert!(make_folder(&Os, &dir.path().join("file/below")).is_err());
    }
}
