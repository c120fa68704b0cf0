//! Deleted topics: their messages stay in the log until it expires, but neither the broker's table
//! nor a queue folder names them.

use std::path::Path;

use super::TOPICS;
use super::new_store::ConfigFile;
use crate::care::verify::is_system_topic;
use crate::error::{Error, Result};
use crate::files::Storage;
use crate::format::config::tables::TopicTable;
use crate::store::paths::StorePaths;
use crate::store::queue_table::is_broker_topic;
use crate::store::{lock, swap};
use crate::time::{Clock, SystemClock};

/// Whether a topic with messages was deleted, by table and folders.
pub(crate) fn is_deleted(
    storage: &dyn Storage,
    paths: &StorePaths,
    table: &TopicTable,
    topic: &[u8],
) -> bool {
    let Ok(name) = std::str::from_utf8(topic) else { return false };
    let folders = [paths.consume_queue(), paths.batch_consume_queue()];
    table.get(name).is_none()
        && is_broker_topic(topic)
        && !is_system_topic(topic)
        && folders.iter().all(|dir| matches!(storage.kind(&dir.join(name)), Ok(None)))
}

/// Deletes topics from a closed store: their queues, and their entries in `files`.
///
/// # Errors [`Error::Io`], [`Error::Corrupt`] for an unreadable table.
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
            storage.sync_dir(&dir).map_err(Error::io("flush", &dir))?;
        }
    }
    let table = |bytes: &[u8]| {
        TopicTable::parse(bytes).map_err(|error| error.in_file(Path::new(TOPICS), 0))
    };
    let path = paths.topics();
    let saved = crate::store::config_file::read_json(storage, &path)?.unwrap_or_default();
    let given = files.iter().find(|(name, bytes)| name == TOPICS && !bytes.is_empty());
    let mut kept = given.map(|(_, bytes)| table(bytes)).transpose()?.unwrap_or_default();
    for topic in table(&saved)?.iter().filter(|topic| !topics.contains(&topic.name)) {
        if kept.get(&topic.name).as_ref() != Some(&topic) {
            kept.put(&topic, SystemClock.now_ms());
        }
    }
    lock::replace(storage, &path, &kept.to_bytes())
}
