//! The broker's small files below `config`, read and replaced whole (`ConfigManager`).

use std::io;
use std::path::Path;

use crate::error::{CorruptionKind, Error, Result};
use crate::files::{Access, Storage};
use crate::format::json;

use super::lock;

/// A file, whole; `None` where there is none.
///
/// # Errors
/// [`Error::Io`]; [`Error::Corrupt`] for one that is longer than any such file.
pub fn read(storage: &dyn Storage, path: &Path) -> Result<Option<Vec<u8>>> {
    match read_existing(storage, path) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// A file that must be there, whole.
///
/// # Errors
/// As [`read`].
pub fn read_existing(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>> {
    let file = storage.open(path, Access::Read).map_err(Error::io("open", path))?;
    let len = file.stat().map_err(Error::io("stat", path))?.len;
    let Some(len) = usize::try_from(len).ok().filter(|len| *len <= json::MAX_LEN) else {
        return Err(Error::corrupt(
            path,
            0,
            CorruptionKind::FileLength,
            format!("at most {} bytes", json::MAX_LEN),
            format!("{len} bytes"),
        ));
    };
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, 0).map_err(Error::io("read", path))?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Puts `bytes` in the place of what the file held, which is kept beside it as `.bak`. A crash leaves
/// the old file or the new one.
///
/// # Errors
/// [`Error::Io`]; the old file is untouched then.
pub fn write(
    storage: &dyn Storage,
    path: &Path,
    before: Option<&[u8]>,
    bytes: &[u8],
) -> Result<()> {
    let dir = path.parent().unwrap_or(path);
    storage.create_dir(dir).map_err(Error::io("create", dir))?;
    if let Some(before) = before {
        let mut backup = path.as_os_str().to_owned();
        backup.push(".bak");
        lock::replace(storage, Path::new(&backup), before)?;
    }
    lock::replace(storage, path, bytes)?;
    let parent = dir.parent().unwrap_or(dir);
    storage.sync_dir(parent).map_err(Error::io("flush", parent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;

    #[test]
    fn a_file_is_replaced_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config").join("a.json");
        assert_eq!(read(&Os, &path).unwrap(), None);
        write(&Os, &path, None, b"one").unwrap();
        assert_eq!(read(&Os, &path).unwrap().unwrap(), b"one");
        assert!(!path.with_file_name("a.json.bak").exists());
        write(&Os, &path, Some(b"one"), b"two").unwrap();
        assert_eq!(read(&Os, &path).unwrap().unwrap(), b"two");
        assert_eq!(std::fs::read(path.with_file_name("a.json.bak")).unwrap(), b"one");
    }

    #[test]
    fn a_file_of_any_length_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(json::MAX_LEN as u64 + 1).unwrap();
        assert!(matches!(read(&Os, &path), Err(Error::Corrupt(_))));
    }
}
