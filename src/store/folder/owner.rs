//! Checks before the first change that new files get owner and group of the store's folders.

use std::path::Path;

use super::paths::StorePaths;
use crate::error::{Error, Result, quoted};
use crate::files::Foreign;

/// Refuses if a new file would stay another user's or group's than its folder's.
///
/// # Errors
/// [`Error::Io`], with the commands that mend it.
pub fn check(paths: &StorePaths) -> Result<()> {
    match foreign(paths)?.into_iter().next() {
        Some(found) => Err(refused(found)),
        None => Ok(()),
    }
}

/// [`check`] of an open for writing: returns a warning if owner and group of the folder can use what
/// is made.
pub fn check_usable(paths: &StorePaths) -> Result<Option<String>> {
    let mut all = foreign(paths)?;
    if let Some(at) = all.iter().position(|found| !found.is_usable) {
        return Err(refused(all.swap_remove(at)));
    }
    Ok(all.first().map(|found| {
        let (uid, gid) = found.expected;
        let folder = named(&found.folder);
        format!(
            "{}: {found}; both can read and write them, and `sudo chown -R {uid}:{gid} {folder}` \
             gives them back",
            found.folder.display()
        )
    }))
}

fn foreign(paths: &StorePaths) -> Result<Vec<Foreign>> {
    let root = paths.root().to_owned();
    let below = [paths.consume_queue(), paths.index(), paths.config()];
    let folders = [root].into_iter().chain(paths.commit_log().iter().cloned()).chain(below);
    let found = folders.map(|dir| paths.storage.foreign(&dir).map_err(Error::io("open", &dir)));
    found.filter_map(Result::transpose).collect()
}

fn refused(found: Foreign) -> Error {
    let ((uid, gid), (own_uid, own_gid)) = (found.expected, found.found);
    let text = format!(
        "{found}; nothing was changed; run this as the folder's owner, `sudo -u '#{uid}' -g '#{gid}' \
         …`, or give the folder to this user, `sudo chown -R {own_uid}:{own_gid} {}`",
        named(&found.folder)
    );
    let source = std::io::Error::new(std::io::ErrorKind::PermissionDenied, text);
    Error::Io { op: "write".into(), path: found.folder, source }
}

fn named(folder: &Path) -> String {
    folder.to_str().and_then(quoted).unwrap_or_else(|| "FOLDER".to_owned())
}
