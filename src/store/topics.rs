//! `config/topics.json`: every topic with messages is added, so that a broker started on the
//! directory serves it at once (`TopicConfigManager`).

use std::collections::BTreeMap;

use hashbrown::HashSet;

use crate::error::{Error, Result};
use crate::format::config::tables::{self, TopicConfig};
use crate::format::queue::is_broker_topic;
use crate::locks::Mutex;
use crate::log::QueueKind;

use crate::store::folder::config_file;
use crate::store::folder::paths::StorePaths;
use crate::store::queue_table::{QueueTable, TopicKinds};

pub(crate) const LEAST_QUEUES: i32 = 4;

#[derive(Debug, Default)]
pub(crate) struct NewTopics {
    fresh: BTreeMap<Box<[u8]>, (i32, QueueKind)>,
    left_out: Option<String>,
}

impl NewTopics {
    /// The topics of a store's queues that the file may lack, or have too few queues of: those
    /// that it does not have, and `small` ones.
    pub(crate) fn lacking(queues: &QueueTable, small: &HashSet<Box<[u8]>>) -> Self {
        let mut table = Self::default();
        for queue in queues.all() {
            let (topic, id) = (queue.topic(), queue.queue_id());
            if id >= LEAST_QUEUES || !queues.is_entered(topic) || small.contains(topic) {
                table.note_use(topic, id, queue.kind());
            }
        }
        table
    }

    pub(crate) fn note_use(&mut self, topic: &[u8], queue_id: i32, kind: QueueKind) {
        if is_broker_topic(topic) {
            let queues = queue_id.saturating_add(1).max(LEAST_QUEUES);
            let (known, _) = self.fresh.entry(topic.into()).or_insert((queues, kind));
            *known = (*known).max(queues);
        }
    }

    /// [`NewTopics::save`] without the table's lock: an append to a new queue enters it there.
    pub(crate) fn save_unlocked(
        table: &Mutex<Self>,
        paths: &StorePaths,
        now_ms: i64,
    ) -> Result<()> {
        let fresh = std::mem::take(&mut table.lock().fresh);
        let mut taken = Self { fresh, left_out: None };
        let saved = taken.save(paths, now_ms);
        table.lock().merge(taken);
        saved
    }

    /// Takes back the topics that could not be written, and why.
    fn merge(&mut self, rest: Self) {
        for (topic, (queues, kind)) in rest.fresh {
            let (known, _) = self.fresh.entry(topic).or_insert((queues, kind));
            *known = (*known).max(queues);
        }
        self.left_out = rest.left_out.or(self.left_out.take());
    }

    pub(crate) fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }

    fn save(&mut self, paths: &StorePaths, now_ms: i64) -> Result<()> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        let path = paths.topics();
        let (mut table, before) =
            match config_file::load(paths.storage(), &path, tables::TopicTable::parse)? {
                Some(loaded) => loaded.for_writing()?,
                None => Default::default(),
            };
        let mut changed = false;
        for (topic, &(queues, kind)) in &self.fresh {
            let name = String::from_utf8_lossy(topic);
            let topic = match table.get(&name) {
                None if kind == QueueKind::Batch => {
                    TopicConfig::new(name, queues).with_batch_queue()
                }
                None => TopicConfig::new(name, queues),
                Some(known) if known.write_queue_nums.min(known.read_queue_nums) < queues => {
                    TopicConfig {
                        read_queue_nums: known.read_queue_nums.max(queues),
                        write_queue_nums: known.write_queue_nums.max(queues),
                        ..known
                    }
                }
                Some(_) => continue,
            };
            table.put(&topic, now_ms);
            changed = true;
        }
        if changed {
            match config_file::write(paths.storage(), &path, before.as_deref(), &table.to_bytes()) {
                // Messages are safe; only a broker will not serve these topics at once.
                Err(error @ Error::Unsupported { .. }) => {
                    self.left_out = Some(format!("{error}; new topics are not entered"));
                }
                written => written?,
            }
        }
        self.fresh.clear();
        Ok(())
    }
}

/// Topics as the table or its backup has them.
#[derive(Debug, Default)]
pub struct Entered {
    pub kinds: TopicKinds,
    /// Those with fewer queues than a new topic.
    pub small: HashSet<Box<[u8]>>,
}

impl Entered {
    fn add(&mut self, topic: &TopicConfig) {
        let kind = if topic.is_batch_queue() { QueueKind::Batch } else { QueueKind::Plain };
        if topic.write_queue_nums.min(topic.read_queue_nums) < LEAST_QUEUES {
            self.small.insert(topic.name.as_bytes().into());
        }
        self.kinds.insert(topic.name.as_bytes().into(), kind);
    }
}

/// Reads the topics, and why neither the table nor its backup is readable.
pub fn entered(paths: &StorePaths) -> Result<(Entered, Option<String>)> {
    let read = |bytes: &[u8]| {
        let mut entered = Entered::default();
        tables::TopicTable::configs(bytes, |topic| entered.add(&topic)).map(|()| entered)
    };
    match config_file::load(paths.storage(), &paths.topics(), read) {
        Ok(None) => Ok((Entered::default(), None)),
        Ok(Some(loaded)) => {
            let warning = loaded.warning().map(str::to_owned);
            Ok((loaded.table, warning))
        }
        Err(error @ Error::Corrupt(_)) => {
            let why =
                format!("{error}; the folders tell the kinds of queues, and no topic is entered");
            Ok((Entered::default(), Some(why)))
        }
        Err(error) => Err(error),
    }
}

#[must_use]
pub fn kinds_in(table: &tables::TopicTable) -> TopicKinds {
    let mut entered = Entered::default();
    table.iter().for_each(|topic| entered.add(&topic));
    entered.kinds
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::StoreConfig;
    use crate::files::Os;

    fn saved(paths: &StorePaths) -> tables::TopicTable {
        tables::TopicTable::parse(&std::fs::read(paths.topics()).unwrap()).unwrap()
    }

    #[test]
    fn topics_are_entered_with_as_many_queues_as_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let paths = StorePaths::new(Arc::new(Os), dir.path(), &StoreConfig::default());
        let mut table = NewTopics::default();
        table.save(&paths, 1).unwrap();
        assert!(!paths.topics().exists());
        table.note_use(b"a", 0, QueueKind::Plain);
        table.note_use(b"b", 7, QueueKind::Plain);
        table.note_use(b"b", 2, QueueKind::Plain);
        table.note_use(b"c", 0, QueueKind::Batch);
        table.note_use(b"no broker takes this", 0, QueueKind::Plain);
        table.save(&paths, 1).unwrap();
        let queues = |name| saved(&paths).get(name).map(|topic| topic.write_queue_nums);
        assert_eq!((queues("a"), queues("b")), (Some(4), Some(8)));
        let batch = |name| saved(&paths).get(name).unwrap().is_batch_queue();
        assert_eq!((batch("a"), batch("c")), (false, true));
        assert_eq!(queues("no broker takes this"), None);
        table.note_use(b"a", 9, QueueKind::Plain);
        table.note_use(b"b", 1, QueueKind::Plain);
        table.save(&paths, 2).unwrap();
        assert_eq!((queues("a"), queues("b")), (Some(10), Some(8)));
    }

    #[test]
    fn a_table_that_would_be_too_large_to_read_again_stays_and_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let paths = StorePaths::new(Arc::new(Os), dir.path(), &StoreConfig::default());
        std::fs::create_dir(paths.config()).unwrap();
        let filler = "x".repeat(crate::format::config::json::MAX_LEN - 80);
        let text = format!("{{\"topicConfigTable\":{{}},\"filler\":\"{filler}\"}}");
        std::fs::write(paths.topics(), &text).unwrap();
        let mut table = NewTopics::default();
        table.note_use(b"a", 0, QueueKind::Plain);
        assert_eq!(table.left_out(), None);
        table.save(&paths, 1).unwrap();
        assert!(table.left_out().unwrap().contains("new topics are not entered"));
        assert!(saved(&paths).get("a").is_none());
        assert_eq!(std::fs::read(paths.topics()).unwrap().len(), text.len());
    }

    #[test]
    fn topics_of_the_file_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let paths = StorePaths::new(Arc::new(Os), dir.path(), &StoreConfig::default());
        std::fs::create_dir(paths.config()).unwrap();
        let text = r#"{"topicConfigTable":{"a":{"topicName":"a","readQueueNums":8,
            "writeQueueNums":8,"perm":4,"attributes":{"queue.type":"BatchCQ"}}},"x":1}"#;
        std::fs::write(paths.topics(), text).unwrap();
        let mut table = NewTopics::default();
        table.note_use(b"a", 0, QueueKind::Plain);
        table.save(&paths, 1).unwrap();
        assert_eq!(std::fs::read_to_string(paths.topics()).unwrap(), text);
        table.note_use(b"b", 0, QueueKind::Plain);
        table.save(&paths, 1).unwrap();
        let a = saved(&paths).get("a").unwrap();
        assert!(a.is_batch_queue() && a.perm == 4 && a.write_queue_nums == 8);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let paths = StorePaths::new(Arc::new(Os), dir.path(), &StoreConfig::default());
        std::fs::create_dir(paths.config()).unwrap();
        std::fs::write(paths.topics(), "{").unwrap();
        let mut table = NewTopics::default();
        table.note_use(b"a", 0, QueueKind::Plain);
        assert!(table.save(&paths, 1).is_err());
        assert_eq!(std::fs::read_to_string(paths.topics()).unwrap(), "{");
    }
}
