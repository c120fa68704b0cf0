//! Chooses the queue of a message whose caller names none.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::locks::Mutex;
use hashbrown::HashMap;

use crate::error::Result;
use crate::format::config::tables::TopicTable;
use crate::format::java::hash_code;
use crate::store::folder::config_file;
use crate::store::store_files::StoreFiles;
use crate::store::topics::LEAST_QUEUES;

#[derive(Debug, Default)]
pub(crate) struct QueueSelector {
    counts: Mutex<HashMap<Box<[u8]>, i32>>,
    turn: AtomicI32,
}

impl QueueSelector {
    /// The queue of a key (`SelectMessageQueueByHash`); without a key the queues in turn.
    pub(crate) fn queue(
        &self,
        files: &StoreFiles,
        topic: &[u8],
        key: Option<&[u8]>,
    ) -> Result<i32> {
        let known = self.counts.lock().get(topic).copied();
        let count = match known {
            Some(count) => count,
            None => *self.counts.lock().entry(topic.into()).or_insert(count(files, topic)?),
        };
        Ok(match key {
            Some(key) => (hash_code(key) % count).abs(),
            None => self.turn.fetch_add(1, Ordering::Relaxed).rem_euclid(count),
        })
    }
}

fn count(files: &StoreFiles, topic: &[u8]) -> Result<i32> {
    let path = files.paths.topics();
    let name = String::from_utf8_lossy(topic);
    let table = config_file::load(files.paths.storage(), &path, TopicTable::parse)?;
    let entered = table.and_then(|loaded| loaded.table.get(&name));
    let entered = entered.map_or(LEAST_QUEUES, |topic| topic.write_queue_nums);
    let used = files.queues.highest(topic).map_or(0, |highest| highest.saturating_add(1));
    Ok(entered.max(used).max(1))
}
