//! Detects the releases of RocketMQ that can have written a store, and the one whose files a writer
//! continues. No file carries a version: each release leaves its own marks.

use std::path::Path;

use super::index_settings::index_layout;
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::{Access, FileKind, Storage};
use crate::format::file_name::parse_index_name;
use crate::format::java::TopicHash;
use crate::format::release::Release;
use crate::log::commit_log::Found;
use crate::log::{CommitLog, IndexFile, IndexRun, StoreCheckpoint};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::folder::paths::StorePaths;
use crate::store::folder::remembered::Remembered;
use crate::store::folder::{config_file, found, lock};

/// Database that RocketMQ creates at every start from 5.4 on (`MessageRocksDBStorage`).
pub const DATABASE: &str = "rocksdbstore";
/// Bytes read of an options file, enough for its database's version.
const OPTIONS_HEAD: usize = 4096;
/// RocksDB of RocketMQ 5.5 in an options file; 5.3 and 5.4 have 8.4.0.
const ROCKSDB_OF_5_5: &str = "rocksdb_version=8.4.4";

/// Index files examined at each end: releases change in few places.
const INDEX_FILES_SAMPLED: usize = 4;

/// A trace in a store that only some releases leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionMark {
    pub since: Release,
    pub until: Release,
    /// The file or folder, below the root.
    pub path: String,
    pub what: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    pub marks: Vec<VersionMark>,
    /// Whether an index file, which may have entries for tags, cannot be read.
    pub has_unread_index: bool,
}

impl Versions {
    /// Oldest release that can have left the newest mark; `None` without marks of a release after
    /// the first.
    #[must_use]
    pub fn newest(&self) -> Option<Release> {
        self.marks.iter().map(|mark| mark.since).max().filter(|since| *since > Release::V5_3)
    }

    /// Releases that can have written the store or a part of it.
    #[must_use]
    pub fn can_be(&self) -> Vec<Release> {
        let newest = self.newest();
        let oldest = self.marks.iter().map(|mark| mark.until).min();
        let is_possible = |release: &Release| match (newest, oldest) {
            (None, None) => true,
            (newest, oldest) => {
                newest.is_some_and(|since| *release >= since)
                    || oldest.is_some_and(|until| *release <= until && until < Release::V5_5)
            }
        };
        Release::EACH.iter().copied().filter(is_possible).collect()
    }

    fn add(&mut self, since: Release, until: Release, path: &str, what: String) {
        self.marks.push(VersionMark { since, until, path: path.to_owned(), what });
    }
}

/// Looks for the marks of a store whose log and index are open.
pub fn read_marks(
    paths: &StorePaths,
    log: &CommitLog,
    index: Option<&IndexRun>,
) -> Result<Versions> {
    let mut found = read_marks_of_files(paths)?;
    if let Some(index) = index {
        read_marks_of_index(index, log, &mut found)?;
        let dir = paths.index();
        let there = paths.storage.list(&dir).unwrap_or_default();
        let files = index.files();
        found.has_unread_index |= there.into_iter().any(|entry| {
            let is_own = entry.name.to_str().and_then(parse_index_name).is_some();
            is_own && entry.len > 0 && files.iter().all(|file| file.path != dir.join(&entry.name))
        });
    }
    Ok(found)
}

fn read_marks_of_files(paths: &StorePaths) -> Result<Versions> {
    let mut found = Versions::default();
    let last = Release::V5_5;
    let dir = paths.root().join(DATABASE);
    if paths.storage.kind_of(&dir)? == Some(FileKind::Directory) {
        let what = "every start of 5.4 or later makes this folder".to_owned();
        found.add(Release::V5_4, last, DATABASE, what);
    }
    // Unreadable files are skipped: `verify` reports them.
    let checkpoint = StoreCheckpoint::load(paths.storage(), &paths.checkpoint(), Access::Read);
    let offset = checkpoint.map_or(0, |checkpoint| checkpoint.fields.logics_physical_offset);
    if offset > 0 {
        let what = format!("bytes 40 to 47 hold {offset}, which 5.5 writes there");
        found.add(Release::V5_5, last, "checkpoint", what);
    }
    if let Ok(Some(bytes)) = config_file::read_json(paths.storage(), &paths.consumer_offsets(false))
        && has_bytes(&bytes, b"\"pullOffsetTable\"")
    {
        let what = "a table `pullOffsetTable`, which 5.5 writes".to_owned();
        found.add(Release::V5_5, last, "config/consumerOffset.json", what);
    }
    for name in ["consumequeue", "consumequeue_rocksdb", DATABASE] {
        let options = newest_options(paths.storage(), &paths.root().join(name))?;
        if let Some(file) = options.filter(|(_, head)| has_bytes(head, ROCKSDB_OF_5_5.as_bytes())) {
            let what = "RocksDB 8.4.4, which 5.5 has".to_owned();
            found.add(Release::V5_5, last, &format!("{name}/{}", file.0), what);
        }
    }
    Ok(found)
}

/// Looks for the marks of the store at `paths`.
///
/// # Errors
/// [`Error::InvalidConfig`] where a setting differs from the files, [`Error::Io`].
pub fn versions_of(paths: &StorePaths, config: &StoreConfig) -> Result<Versions> {
    let log = found::open_log(paths, config)?;
    let layout = index_layout(paths, config)?.map_or_else(|none| none.fits, Some);
    let index = IndexRun::to_read(&paths.storage, &paths.index(), layout)?;
    let mut found = read_marks(paths, &log, index.as_ref())?;
    found.has_unread_index |= index.is_none();
    Ok(found)
}

/// Chooses the release whose files a writer continues: the configured one, else the newest that
/// marks or `config/mqstore.json` tell, else the first.
///
/// # Errors
/// [`Error::InvalidConfig`] if the configured release is older than the marks: its files hold less.
pub fn choose(config: &mut StoreConfig, found: &Versions) -> Result<Release> {
    let release = match config.rocketmq_version {
        Some(given) if config.given.contains("rocketmq_version") => {
            let newest = found.marks.iter().max_by_key(|mark| mark.since);
            if let Some(mark) = newest.filter(|mark| mark.since > given) {
                let wanted = format!("{:?} or later, as {} shows", mark.since.name(), mark.path);
                let got = format!("{:?}: {}; give that or leave it out", given.name(), mark.what);
                return Err(Error::setting("rocketmq_version", wanted, got));
            }
            given
        }
        // An index must not lose its tags where it cannot be read.
        remembered => {
            let unread = found.has_unread_index.then_some(Release::V5_4);
            remembered.max(found.newest()).or(unread).unwrap_or(Release::V5_3)
        }
    };
    config.rocketmq_version = Some(release);
    Ok(release)
}

/// [`settle`] for a closed store that is to be repaired.
pub fn release_of(paths: &StorePaths, config: &StoreConfig) -> Result<Release> {
    let mut config = config.clone();
    Remembered::load(paths).fill_in(&mut config);
    let found = match config.rocketmq_version {
        // No index can have more.
        Some(known) if known.has_tag_entries() && !config.given.contains("rocketmq_version") => {
            read_marks_of_files(paths)?
        }
        _ => versions_of(paths, &config)?,
    };
    choose(&mut config, &found)
}

fn has_bytes(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

fn newest_options(storage: &dyn Storage, dir: &Path) -> Result<Option<(String, Vec<u8>)>> {
    let Some(entries) = storage.list_if_there(dir)? else { return Ok(None) };
    let names = entries.into_iter().filter(|entry| entry.kind == FileKind::File);
    let names = names.filter_map(|entry| entry.name.into_string().ok());
    let Some(name) = names.filter(|name| name.starts_with("OPTIONS-")).max() else {
        return Ok(None);
    };
    let head = lock::read_start(storage, &dir.join(&name), OPTIONS_HEAD).unwrap_or_default();
    Ok(Some((name, head)))
}

/// Adds marks of the index: tags have an entry from 5.4 on, and none in 5.3.
fn read_marks_of_index(index: &IndexRun, log: &CommitLog, found: &mut Versions) -> Result<()> {
    let (mut with, mut without) = (None, None);
    let files = index.files();
    for file in sampled(files.len()).filter_map(|number| files.get(number)) {
        let tags = match index.open(file).and_then(|open| TagEntries::of(&open, log)) {
            // Removed meanwhile, or damaged.
            Err(error) if error.is_not_found() => continue,
            Err(Error::Corrupt(_)) => {
                found.has_unread_index = true;
                continue;
            }
            tags => tags?,
        };
        let name = format!("index/{}", file.path.file_name().unwrap_or_default().display());
        with = with.or_else(|| tags.with.map(|at| (name.clone(), at)));
        without = without.or_else(|| tags.without.map(|at| (name.clone(), at)));
    }
    if let Some((path, at)) = with {
        let what = format!("an entry for the tags of the message at physical offset {at}");
        found.add(Release::V5_4, Release::V5_5, &path, what);
    }
    if let Some((path, at)) = without {
        let what = format!("no entry for the tags of the message at physical offset {at}");
        found.add(Release::V5_3, Release::V5_3, &path, what);
    }
    Ok(())
}

fn sampled(files: usize) -> impl Iterator<Item = usize> {
    let newest = files.saturating_sub(INDEX_FILES_SAMPLED).max(INDEX_FILES_SAMPLED);
    (0..files.min(INDEX_FILES_SAMPLED)).chain(newest..files)
}

const ENTRIES_SAMPLED: u32 = 64;

/// Result for the messages at both ends of an index file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TagEntries {
    pub(crate) with: Option<u64>,
    pub(crate) without: Option<u64>,
}

impl TagEntries {
    pub(crate) fn of(file: &IndexFile, log: &CommitLog) -> Result<Self> {
        let mut found = Self::default();
        let count = file.header()?.index_count.unsigned_abs().saturating_sub(1);
        let last = count.saturating_sub(ENTRIES_SAMPLED).saturating_add(1);
        found.read_marks(file, log, last, count)?;
        if last > 1 {
            found.read_marks(file, log, 1, count)?;
        }
        Ok(found)
    }

    fn read_marks(
        &mut self,
        file: &IndexFile,
        log: &CommitLog,
        first: u32,
        count: u32,
    ) -> Result<()> {
        let sampled = count.saturating_sub(first).saturating_add(1).min(ENTRIES_SAMPLED);
        let entries = file.entries_from(first, sampled)?;
        let mut buffer = Vec::new();
        let mut begin = 0;
        for group in entries.chunk_by(|a, b| a.physical_offset == b.physical_offset) {
            // The first and the last message may have entries that were not read.
            let is_whole = (begin > 0 || first == 1)
                && (begin + group.len() < entries.len() || first + sampled > count);
            begin += group.len();
            let at = group.first().and_then(|entry| u64::try_from(entry.physical_offset).ok());
            let Some(at) = at else { continue };
            let Found::Message(view) = log.read(at, 0, &mut buffer)? else { continue };
            let request = DispatchRequest::of(&view);
            let hash = request.tag_hash_of(TopicHash::of(request.topic));
            // A key may have the text of a tag entry.
            let hash = hash.filter(|hash| request.key_hashes().all(|key| key != *hash));
            let Some(hash) = hash else { continue };
            if group.iter().any(|entry| entry.key_hash == hash) {
                self.with.get_or_insert(at);
            } else if is_whole {
                self.without.get_or_insert(at);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_few_index_files_tell_the_release_however_many_there_are() {
        let sampled = |files| super::sampled(files).collect::<Vec<_>>();
        assert_eq!(sampled(0), [0; 0]);
        assert_eq!(sampled(3), [0, 1, 2]);
        assert_eq!(sampled(6), [0, 1, 2, 3, 4, 5]);
        assert_eq!(sampled(10_000), [0, 1, 2, 3, 9_996, 9_997, 9_998, 9_999]);
    }
}
