//! Deletes topics from a new store, whose log keeps their messages.

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::{Storage, SystemClock};
use crate::format::config::tables::TopicTable;
use crate::store::folder::paths::StorePaths;
use crate::store::folder::{lock, swap};
use crate::time::Clock;

pub(crate) const TOPICS: &str = "topics.json";
/// A file below `config`: name and content.
pub type ConfigFile = (String, Vec<u8>);

/// Deletes topics from a closed store: their queues, and their entries in `files`.
pub(crate) fn delete(
    storage: &dyn Storage,
    paths: &StorePaths,
    files: &[ConfigFile],
    topics: &[String],
) -> Result<()> {
    if topics.is_empty() {
        return Ok(());
    }
    for dir in [paths.consume_queue(), paths.batch_consume_queue(), paths.consume_queue_ext()] {
        for topic in topics {
            swap::remove_tree(storage, &dir.join(topic))?;
        }
        if matches!(storage.kind(&dir), Ok(Some(_))) {
            storage.sync_dir(&dir).map_err(Error::flush(&dir))?;
        }
    }
    let table = |bytes: &[u8]| {
        TopicTable::parse(bytes).map_err(|error| error.in_file(Path::new(TOPICS), 0))
    };
    let path = paths.topics();
    let saved = crate::store::folder::config_file::read_json(storage, &path)?.unwrap_or_default();
    let given = files.iter().find(|(name, bytes)| name == TOPICS && !bytes.is_empty());
    let mut kept = given.map(|(_, bytes)| table(bytes)).transpose()?.unwrap_or_default();
    for topic in table(&saved)?.iter().filter(|topic| !topics.contains(&topic.name)) {
        if kept.get(&topic.name).as_ref() != Some(&topic) {
            kept.put(&topic, SystemClock.now_ms());
        }
    }
    lock::replace(storage, &path, &kept.to_bytes())
}
