//! Writes a new store record by record, for copy, import and salvage. It has a temporary name until
//! it is whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::{Error, FormatError, Result};
use crate::files::{Access, FileKind, FileRun, Storage, SystemClock};
use crate::format::config::tables::TopicTable;
use crate::format::message::{BLANK_LEN, Record};
use crate::log::CommitLog;
use crate::log::log_writer::LogWriter;
use crate::store::folder::paths::{self, StorePaths};
use crate::store::folder::{config_file, lock, remembered, swap};
use crate::store::open::inspect;
use crate::store::{MessageStore, OpenMode};
use crate::time::Clock;

/// A new store being written. Dropped before [`NewStore::finish`] it leaves nothing.
#[derive(Debug)]
pub struct NewStore {
    out: PathBuf,
    staging: PathBuf,
    storage: Arc<dyn Storage>,
    pub(super) config: StoreConfig,
    /// `None` once the log is closed.
    writing: Option<(Arc<CommitLog>, LogWriter)>,
    finished: bool,
}

impl NewStore {
    /// Creates a store for `out`, which must be missing or empty; its log begins with the file of
    /// `base_offset`.
    ///
    /// # Errors
    /// [`Error::Io`] if something is in the way or writing fails.
    pub fn create(
        storage: Arc<dyn Storage>,
        out: &Path,
        mut config: StoreConfig,
        base_offset: u64,
    ) -> Result<Self> {
        refuse_what_is_there(&*storage, out)?;
        config.store_path_commit_log.clear();
        config.read_only_commit_log_store_paths.clear();
        config.store_path_epoch_file = StoreConfig::default().store_path_epoch_file;
        config.enable_dleger_commit_log = false;
        config.store_path_dledger_commit_log.clear();
        remembered::leave_retention(&mut config);
        // Names and numbers valid in the source are valid in the copy.
        config.validate_topic_names = false;
        let file_size = config.mapped_file_size_commit_log.unwrap_or(StoreConfig::COMMIT_LOG_FILE);
        config.mapped_file_size_commit_log = Some(file_size);
        let staging = free_name(&*storage, out)?;
        storage.create_outside(&staging, None).map_err(Error::io("create", &staging))?;
        let mut new =
            Self { out: out.to_owned(), staging, storage, config, writing: None, finished: false };
        let folder = new.staging.join(paths::COMMIT_LOG);
        new.storage.create_dir(&folder).map_err(Error::io("create", &folder))?;
        let (storage, dirs) = (Arc::clone(&new.storage), vec![folder]);
        let (run, _) = FileRun::load(storage, Arc::default(), dirs, file_size, Access::ReadWrite)?;
        let log = Arc::new(CommitLog::new(run, base_offset - base_offset % file_size.max(1)));
        new.writing = Some((Arc::clone(&log), LogWriter::new(log)));
        Ok(new)
    }

    /// Appends a record and returns its offset.
    pub fn put(&mut self, record: &Record<'_>) -> Result<u64> {
        record.check().map_err(|error| {
            let reason = format!("expected {}, found {}", error.expected, error.found);
            Error::illegal("message", reason)
        })?;
        let size = record.encoded_size();
        let Some((_, writer)) = &mut self.writing else { return Err(Error::Closed) };
        let limit = writer.file_size().saturating_sub(BLANK_LEN as u64);
        if size as u64 > limit {
            let reason = format!("{size} bytes, a file of the log has room for {limit}");
            return Err(Error::beyond("message", Some(limit), reason));
        }
        let (at, window) = writer.window(size)?;
        let physical_offset = at.stored();
        Record { physical_offset, ..*record }.encode_into(window);
        writer.publish(size)?;
        Ok(at.get())
    }

    /// Flushes the log, builds queues and index, and renames the store. Messages of `deleted` topics
    /// are in the log alone.
    ///
    /// # Errors
    /// [`Error::Io`]; the name is unused then.
    pub fn finish(mut self, config_files: &[ConfigFile], deleted: &[String]) -> Result<()> {
        if let Some((log, mut writer)) = self.writing.take() {
            writer.release();
            log.flush(log.end_offset(), None)?;
        }
        let storage = Arc::clone(&self.storage);
        let paths = StorePaths::new(Arc::clone(&storage), &self.staging, &self.config);
        let folder = paths.config();
        storage.create_dir(&folder).map_err(Error::io("create", &folder))?;
        for (name, bytes) in config_files {
            lock::replace(&*storage, &folder.join(name), bytes)?;
        }
        inspect::remember(&paths, &self.config, true)?;
        let (config, clock) = (self.config.clone(), Arc::new(SystemClock));
        let (dir, mode) = (&self.staging, OpenMode::Create);
        MessageStore::open_with(dir, mode, config, Arc::clone(&storage), clock)?.close()?;
        delete_topics(&paths, config_files, deleted)?;
        storage.rename(&self.staging, &self.out).map_err(Error::io("rename", &self.out))?;
        self.finished = true;
        let above = parent(&self.out);
        storage.sync_dir(above).map_err(Error::flush(above))
    }
}

impl Drop for NewStore {
    fn drop(&mut self) {
        if !self.finished {
            self.writing = None;
            let _ = swap::remove_tree(&*self.storage, &self.staging);
        }
    }
}

/// Refuses anything but a missing or empty folder.
pub fn refuse_what_is_there(storage: &dyn Storage, out: &Path) -> Result<()> {
    let there = match storage.kind_of(out)? {
        None => return Ok(()),
        Some(FileKind::Directory) => {
            if storage.list(out).map_err(Error::io("list", out))?.is_empty() {
                return Ok(());
            }
            "a folder with something in it is there already"
        }
        Some(_) => "something is there already",
    };
    let text = format!("{there}; give the name of a new one");
    Err(Error::io("create", out)(std::io::Error::new(std::io::ErrorKind::AlreadyExists, text)))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn free_name(storage: &dyn Storage, out: &Path) -> Result<PathBuf> {
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for number in 0_u32.. {
        let path = parent(out).join(format!(".{name}.{}-{number}.partial", std::process::id()));
        if storage.kind_of(&path)?.is_none() {
            return Ok(path);
        }
    }
    Ok(out.with_extension("partial"))
}

pub(crate) const TOPICS: &str = "topics.json";
/// A file below `config`: name and content.
pub type ConfigFile = (String, Vec<u8>);

fn delete_topics(paths: &StorePaths, files: &[ConfigFile], topics: &[String]) -> Result<()> {
    if topics.is_empty() {
        return Ok(());
    }
    for dir in [paths.consume_queue(), paths.batch_consume_queue(), paths.consume_queue_ext()] {
        for topic in topics {
            swap::remove_tree(paths.storage(), &dir.join(topic))?;
        }
        if matches!(paths.storage.kind(&dir), Ok(Some(_))) {
            paths.storage.sync_dir(&dir).map_err(Error::flush(&dir))?;
        }
    }
    let path = paths.topics();
    let saved = config_file::read_json(paths.storage(), &path)?.unwrap_or_default();
    let mut kept = topic_table(files)?.unwrap_or_default();
    let saved = parse_table(TOPICS, &saved, TopicTable::parse)?;
    for topic in saved.iter().filter(|topic| !topics.contains(&topic.name)) {
        if kept.get(&topic.name).as_ref() != Some(&topic) {
            kept.put(&topic, SystemClock.now_ms());
        }
    }
    lock::replace(paths.storage(), &path, &kept.to_bytes())
}

pub(super) fn topic_table(files: &[ConfigFile]) -> Result<Option<TopicTable>> {
    let table = files.iter().find(|(name, bytes)| name == TOPICS && !bytes.is_empty());
    table.map(|(name, bytes)| parse_table(name, bytes, TopicTable::parse)).transpose()
}

pub(super) fn parse_table<T: Default>(
    name: &str,
    bytes: &[u8],
    parse: fn(&[u8]) -> std::result::Result<T, FormatError>,
) -> Result<T> {
    if bytes.is_empty() {
        return Ok(T::default());
    }
    parse(bytes).map_err(|error| error.in_file(Path::new(name), 0))
}
