//! Reads and replaces the broker's small files below `config` (`ConfigManager`).

use std::path::{Path, PathBuf};

use crate::error::{CorruptionKind, Error, FormatError, Result};
use crate::files::{Access, Storage, make_folder};
use crate::format::config::json;

use super::lock;

/// Reads a whole file of at most `most` bytes; `None` if it is missing.
pub fn read(storage: &dyn Storage, path: &Path, most: usize) -> Result<Option<Vec<u8>>> {
    match read_at_most(storage, path, most) {
        Err(error) if error.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}

pub fn read_existing(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>> {
    read_at_most(storage, path, json::MAX_LEN)
}

/// [`read`] of one of the broker's files.
pub fn read_json(storage: &dyn Storage, path: &Path) -> Result<Option<Vec<u8>>> {
    read(storage, path, json::MAX_LEN)
}

fn read_at_most(storage: &dyn Storage, path: &Path, most: usize) -> Result<Vec<u8>> {
    let file = storage.open(path, Access::Read).map_err(Error::io("open", path))?;
    let len = file.stat().map_err(Error::io("stat", path))?.len;
    let Some(len) = usize::try_from(len).ok().filter(|len| *len <= most) else {
        return Err(Error::corrupt(
            path,
            0,
            CorruptionKind::FileLength,
            format!("at most {most} bytes"),
            format!("{len} bytes"),
        ));
    };
    file.read_most(0, len).map_err(Error::io("read", path))
}

/// The effective table: the file, or its backup if the file is missing, empty or damaged.
#[derive(Debug)]
pub struct Loaded<T> {
    pub table: T,
    path: PathBuf,
    bytes: Vec<u8>,
    instead: Option<Instead>,
}

#[derive(Debug)]
struct Instead {
    reason: String,
    error: Option<Error>,
}

impl<T> Loaded<T> {
    /// The file, even if its backup was read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.instead.as_ref().map(|instead| instead.reason.as_str())
    }

    /// The table to be changed, and the file's content that it replaces.
    ///
    /// # Errors
    /// The file's fault, if content would be lost.
    pub fn for_writing(self) -> Result<(T, Option<Vec<u8>>)> {
        match self.instead {
            None => Ok((self.table, Some(self.bytes))),
            Some(Instead { error: Some(error), .. }) => Err(error),
            Some(Instead { error: None, .. }) => Ok((self.table, None)),
        }
    }
}

#[must_use]
pub fn backup_of(path: &Path) -> PathBuf {
    let mut backup = path.as_os_str().to_owned();
    backup.push(".bak");
    backup.into()
}

/// Reads a file or its backup, as a broker does (`ConfigManager.load`); `None` without either.
///
/// # Errors
/// [`Error::Io`]; [`Error::Corrupt`] if neither can be read.
pub fn load<T>(
    storage: &dyn Storage,
    path: &Path,
    parse: impl Fn(&[u8]) -> std::result::Result<T, FormatError>,
) -> Result<Option<Loaded<T>>> {
    let read_table = |path: &Path| match read_json(storage, path)? {
        None => Ok(Err("is gone")),
        Some(bytes) if bytes.is_empty() => Ok(Err("is empty")),
        Some(bytes) => {
            let table = parse(&bytes).map_err(|error| error.in_file(path, 0))?;
            Ok(Ok((table, bytes)))
        }
    };
    let (why, error) = match read_table(path) {
        Ok(Ok((table, bytes))) => {
            return Ok(Some(Loaded { table, path: path.to_owned(), bytes, instead: None }));
        }
        Ok(Err(why)) => (format!("{} {why}", path.display()), None),
        Err(error @ Error::Corrupt(_)) => (error.to_string(), Some(error)),
        Err(error) => return Err(error),
    };
    let backup = backup_of(path);
    match (read_table(&backup), error) {
        (Ok(Ok((table, bytes))), error) => {
            let reason = format!("{why}; {} is read in its place", backup.display());
            let instead = Some(Instead { reason, error });
            Ok(Some(Loaded { table, path: path.to_owned(), bytes, instead }))
        }
        (Ok(Err(_)), None) => Ok(None),
        (_, Some(error)) | (Err(error), None) => Err(error),
    }
}

/// Copies a file that a cure is about to change, and its backup, to numbered names beside them.
/// Neither a broker nor our readers look there. Returns the file's copy, `None` without a file. A
/// newest copy of the same bytes serves again.
///
/// # Errors
/// [`Error::Io`]; nothing may be changed then.
pub fn keep(storage: &dyn Storage, path: &Path) -> Result<Option<PathBuf>> {
    let kept = keep_one(storage, path)?;
    if kept.is_some() {
        keep_one(storage, &backup_of(path))?;
    }
    Ok(kept)
}

fn keep_one(storage: &dyn Storage, path: &Path) -> Result<Option<PathBuf>> {
    let Some(bytes) = read_json(storage, path)? else { return Ok(None) };
    let mut newest = None;
    for number in 1_u32.. {
        let mut copy = path.as_os_str().to_owned();
        copy.push(format!(".mqstore-{number}"));
        let copy = PathBuf::from(copy);
        if storage.kind_of(&copy)?.is_some() {
            newest = Some(copy);
            continue;
        }
        if let Some(newest) = newest
            && read_json(storage, &newest).is_ok_and(|kept| kept.as_ref() == Some(&bytes))
        {
            return Ok(Some(newest));
        }
        lock::replace(storage, &copy, &bytes)?;
        return Ok(Some(copy));
    }
    Ok(None)
}

/// Replaces a file atomically; its old content becomes `.bak`, which [`keep`] copies if an empty
/// table would replace it.
///
/// # Errors
/// [`Error::Io`]; [`Error::Unsupported`] for what [`json::parse`] would refuse. The old
/// file is unchanged then.
pub fn write(
    storage: &dyn Storage,
    path: &Path,
    before: Option<&[u8]>,
    bytes: &[u8],
) -> Result<()> {
    json::check_limits(bytes).map_err(|error| Error::Unsupported {
        what: format!(
            "a configuration file has {}, the new one {}; nothing was written and the file is as it \
             was: take out of it what is no longer used",
            error.expected, error.found
        ),
        path: path.to_owned(),
    })?;
    let dir = path.parent().unwrap_or(path);
    make_folder(storage, dir)?;
    if let Some(before) = before {
        let backup = backup_of(path);
        if json::is_bare(before)
            && read_json(storage, &backup)?.is_some_and(|kept| !json::is_bare(&kept))
        {
            keep_one(storage, &backup)?;
        }
        // The backup has the content of the file: nobody else may read it.
        lock::replace_as(storage, &backup, path, before)?;
    }
    lock::replace(storage, path, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;

    #[test]
    fn a_file_is_replaced_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config").join("a.json");
        assert_eq!(read(&Os, &path, json::MAX_LEN).unwrap(), None);
        write(&Os, &path, None, b"one").unwrap();
        assert_eq!(read(&Os, &path, json::MAX_LEN).unwrap().unwrap(), b"one");
        assert!(!path.with_file_name("a.json.bak").exists());
        write(&Os, &path, Some(b"one"), b"two").unwrap();
        assert_eq!(read(&Os, &path, json::MAX_LEN).unwrap().unwrap(), b"two");
        assert_eq!(std::fs::read(path.with_file_name("a.json.bak")).unwrap(), b"one");
    }

    #[test]
    fn a_copy_for_a_cure_has_a_number_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        assert_eq!(keep(&Os, &path).unwrap(), None);
        let copies = ["one", "two", "two", "one"].map(|text| {
            std::fs::write(&path, text).unwrap();
            let copy = keep(&Os, &path).unwrap().unwrap();
            assert_eq!(std::fs::read_to_string(&copy).unwrap(), text);
            copy.file_name().unwrap().to_str().unwrap().to_owned()
        });
        assert_eq!(copies, [1, 2, 2, 3].map(|number| format!("a.json.mqstore-{number}")));
        std::fs::write(backup_of(&path), "zero").unwrap();
        keep(&Os, &path).unwrap();
        let kept = std::fs::read_to_string(dir.path().join("a.json.bak.mqstore-1"));
        assert_eq!(kept.unwrap(), "zero");
    }

    #[test]
    fn a_backup_that_has_more_than_an_empty_table_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let kept = || std::fs::read_to_string(dir.path().join("a.json.bak.mqstore-1")).ok();
        let full = r#"{"offsetTable":{"t@g":{0:30}}}"#;
        for (before, backup, expected) in [
            (full, r#"{"offsetTable":{}}"#, None),
            ("{}", r#"{"offsetTable":{"t@g":{}},"dataVersion":{"counter":1}}"#, None),
            (r#"{"offsetTable":null,"dataVersion":{"counter":1}}"#, full, Some(full)),
        ] {
            std::fs::write(backup_of(&path), backup).unwrap();
            write(&Os, &path, Some(before.as_bytes()), b"{}").unwrap();
            assert_eq!(kept().as_deref(), expected, "{before} {backup}");
        }
    }

    fn digits(bytes: &[u8]) -> std::result::Result<u32, FormatError> {
        let wrong = || FormatError::new(CorruptionKind::Json, 0, "digits", "others");
        str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)
    }

    #[test]
    fn the_backup_counts_where_the_file_is_gone_empty_or_unreadable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        assert!(load(&Os, &path, digits).unwrap().is_none());
        std::fs::write(&path, "x").unwrap();
        assert!(matches!(load(&Os, &path, digits), Err(Error::Corrupt(_))));
        std::fs::write(backup_of(&path), "2").unwrap();
        let loaded = load(&Os, &path, digits).unwrap().unwrap();
        assert_eq!(loaded.table, 2);
        assert!(loaded.warning().unwrap().contains("a.json.bak is read"), "{loaded:?}");
        assert!(matches!(loaded.for_writing(), Err(Error::Corrupt(_))));
        for text in ["", "-"] {
            std::fs::write(&path, text).unwrap();
            if text == "-" {
                std::fs::remove_file(&path).unwrap();
            }
            let loaded = load(&Os, &path, digits).unwrap().unwrap();
            assert!(loaded.table == 2 && loaded.warning().is_some());
            assert_eq!(loaded.for_writing().unwrap(), (2, None));
        }
        std::fs::write(&path, "1").unwrap();
        let loaded = load(&Os, &path, digits).unwrap().unwrap();
        assert!(loaded.table == 1 && loaded.warning().is_none());
        assert_eq!(loaded.for_writing().unwrap(), (1, Some(b"1".to_vec())));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(backup_of(&path), "x").unwrap();
        assert!(matches!(load(&Os, &path, digits), Err(Error::Corrupt(_))));
    }

    #[test]
    fn a_file_of_any_length_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(json::MAX_LEN as u64 + 1).unwrap();
        assert!(matches!(read(&Os, &path, json::MAX_LEN), Err(Error::Corrupt(_))));
    }
}
