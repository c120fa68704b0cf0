//! The seal of a cleanly closed store: the log's end, and a digest of names, sizes and change times
//! of all files. While it is valid, opening for writing need not read the whole log.
//!
//! RocketMQ's writes change a file's time or exceed the sealed end, which breaks the seal.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::threads::{in_order, processors};
use crate::files::{DirEntry, FileKind, Stamp, Storage, if_there};
use crate::format::crc::{Crc32, crc32};

use crate::store::folder::lock;
use crate::store::folder::paths::StorePaths;

const TITLE: &str = "mqstore seal 2";

const MOST_BYTES: usize = 4096;

const FOLDERS_AT_ONCE: usize = 64;

/// Checks of the file system's clock before closing without a seal.
const TICKS: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest {
    files: u64,
    bytes: u64,
    newest_change_ns: i64,
    names: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    pub end: u64,
    pub newest_timestamp_ms: i64,
    settings: u32,
    digest: Digest,
}

impl Seal {
    /// Seals a store whose files are durable and final, if writes through a map change times.
    ///
    /// # Errors
    /// [`Error::Io`]; a missing seal only makes the next open slower.
    pub fn put(
        paths: &StorePaths,
        config: &StoreConfig,
        end: u64,
        newest_timestamp_ms: i64,
    ) -> Result<()> {
        // Writes through a map must change the time, or a seal proves nothing.
        if !paths.storage.stamps_mapped_writes(&paths.checkpoint())? {
            return Ok(());
        }
        let Some(digest) = Digest::of(paths)? else { return Ok(()) };
        let settings = settings(config);
        let text = Self { end, newest_timestamp_ms, settings, digest }.to_text();
        for _ in 0..TICKS {
            // A lost seal makes the next open slower; the folder is flushed behind `abort`.
            lock::put(paths.storage(), &paths.seal(), text.as_bytes())?;
            // A change within the last tick would not show.
            let sealed =
                paths.storage.stamp(&paths.seal()).map_err(Error::io("stat", paths.seal()))?;
            if sealed.is_some_and(|sealed| sealed.changed_ns > digest.newest_change_ns) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        paths.storage.remove_file(&paths.seal()).map_err(Error::io("remove", paths.seal()))
    }

    /// Returns the seal if it is valid.
    pub fn holding(paths: &StorePaths, config: &StoreConfig) -> Result<Option<Self>> {
        let Some(seal) = Self::read(paths.storage(), &paths.seal()) else { return Ok(None) };
        let holds = seal.settings == settings(config)
            && Digest::of(paths)?.is_some_and(|digest| digest == seal.digest);
        Ok(holds.then_some(seal))
    }

    /// Whether no file changed since a seal was put, whatever the settings; `false` where files
    /// have no stamps.
    pub fn is_whole(paths: &StorePaths) -> bool {
        Self::read(paths.storage(), &paths.seal()).is_some_and(
            |seal| matches!(Digest::of(paths), Ok(Some(digest)) if digest == seal.digest),
        )
    }

    fn read(storage: &dyn Storage, path: &Path) -> Option<Self> {
        let bytes = lock::read_start(storage, path, MOST_BYTES).ok()?;
        Self::from_text(std::str::from_utf8(&bytes).ok()?)
    }

    fn to_text(self) -> String {
        let Digest { files, bytes, newest_change_ns, names } = self.digest;
        let text = format!(
            "{TITLE}\nend {}\nnewest_timestamp_ms {}\nsettings {}\nfiles {files}\nbytes {bytes}\n\
             newest_change_ns {newest_change_ns}\nnames {names}\n",
            self.end, self.newest_timestamp_ms, self.settings
        );
        format!("{text}crc {}\n", crc32(text.as_bytes()))
    }

    fn from_text(text: &str) -> Option<Self> {
        let (body, last) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let written: u32 = last.strip_prefix("crc ")?.parse().ok()?;
        if crc32(format!("{body}\n").as_bytes()) != written {
            return None;
        }
        let mut lines = body.lines();
        (lines.next()? == TITLE).then_some(())?;
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        Some(Self {
            end: value("end")?.parse().ok()?,
            newest_timestamp_ms: value("newest_timestamp_ms")?.parse().ok()?,
            settings: value("settings")?.parse().ok()?,
            digest: Digest {
                files: value("files")?.parse().ok()?,
                bytes: value("bytes")?.parse().ok()?,
                newest_change_ns: value("newest_change_ns")?.parse().ok()?,
                names: value("names")?.parse().ok()?,
            },
        })
    }
}

impl Digest {
    /// `None` if change times are unknown.
    fn of(paths: &StorePaths) -> Result<Option<Self>> {
        let mut folders: Vec<PathBuf> = paths.commit_log().to_vec();
        folders.extend([
            paths.consume_queue(),
            paths.batch_consume_queue(),
            paths.consume_queue_ext(),
            paths.index(),
        ]);
        let alone = [paths.topics(), paths.checkpoint()];
        let mut listed = alone.map(|path| Listed { path, is_folder: false, stamp: None }).to_vec();
        for folder in folders {
            listed.extend(list(paths.storage(), &folder)?);
        }
        listed.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        let parts: Vec<_> = listed.chunks(FOLDERS_AT_ONCE).collect();
        let read = |listed: &&[Listed]| {
            let mut rest: Vec<_> = listed.iter().rev().cloned().collect();
            let mut files = Vec::new();
            while let Some(next) = rest.pop() {
                if next.is_folder {
                    let mut below = list(paths.storage(), &next.path)?;
                    below.sort_unstable_by(|one, other| other.path.cmp(&one.path));
                    rest.extend(below);
                } else {
                    files.push(next);
                }
            }
            Ok(files)
        };
        let mut names = Crc32::default();
        let mut digest = Self { files: 0, bytes: 0, newest_change_ns: 0, names: 0 };
        let mut is_known = true;
        in_order(&parts, processors(), paths.root(), read, |_, files| {
            for Listed { path, stamp, .. } in files {
                let stamp = match stamp {
                    None => paths.storage.stamp(&path),
                    listed => Ok(listed),
                };
                let Some(stamp) = if_there(stamp).map_err(Error::io("stat", &path))? else {
                    continue;
                };
                let Some(stamp) = stamp else {
                    is_known = false;
                    return Ok(ControlFlow::Break(()));
                };
                names.update(path.as_os_str().as_encoded_bytes());
                names.update(
                    format!("\0{} {} {}\n", stamp.inode, stamp.len, stamp.changed_ns).as_bytes(),
                );
                digest.files += 1;
                digest.bytes = digest.bytes.saturating_add(stamp.len);
                digest.newest_change_ns = digest.newest_change_ns.max(stamp.changed_ns);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        digest.names = names.value();
        Ok(is_known.then_some(digest))
    }
}

/// An entry of a folder; a file with its stamp where the listing tells it.
#[derive(Clone, Debug)]
struct Listed {
    path: PathBuf,
    is_folder: bool,
    stamp: Option<Stamp>,
}

fn list(storage: &dyn Storage, folder: &Path) -> Result<Vec<Listed>> {
    let entries = storage.list_if_there(folder)?.unwrap_or_default();
    let listed = |DirEntry { name, kind, len, inode, changed_ns }| Listed {
        path: folder.join(name),
        is_folder: kind == FileKind::Directory,
        stamp: changed_ns.map(|changed_ns| Stamp { inode, len, changed_ns }),
    };
    Ok(entries.into_iter().map(listed).collect())
}

fn settings(config: &StoreConfig) -> u32 {
    // Not a release that a broker's store was found to have: opening compares before it looks.
    let is_given = config.given.contains("rocketmq_version");
    let rocketmq_version = config.rocketmq_version.filter(|_| is_given);
    let config = StoreConfig { given: BTreeSet::new(), rocketmq_version, ..config.clone() };
    crc32(format!("{config:?}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal() -> Seal {
        let digest = Digest { files: 3, bytes: 9_000, newest_change_ns: 17, names: 5 };
        Seal { end: 4096, newest_timestamp_ms: -1, settings: 8, digest }
    }

    #[test]
    fn a_written_seal_is_read() {
        assert_eq!(Seal::from_text(&seal().to_text()), Some(seal()));
    }

    #[test]
    fn no_other_text_is_a_seal() {
        let text = seal().to_text();
        for end in 0..text.len() {
            assert_eq!(Seal::from_text(&text[..end]), None, "cut at {end}");
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(other) = String::from_utf8(bytes) else { continue };
            assert_eq!(Seal::from_text(&other), None, "byte {at}");
        }
    }
}
