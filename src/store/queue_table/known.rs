//! The queues that an appender has met: found by topic and number without the table's lock.

use std::sync::Arc;

use hashbrown::HashMap;

use super::QueueTable;
use crate::error::Result;
use crate::log::Queue;

#[derive(Debug, Default)]
pub(crate) struct KnownQueues {
    queues: Vec<Arc<Queue>>,
    topics: Vec<KnownTopic>,
    numbers: HashMap<Box<[u8]>, usize>,
    /// The last topic, likely the next one's too.
    latest: usize,
}

#[derive(Debug)]
struct KnownTopic {
    name: Box<[u8]>,
    /// Index in all queues of each number below [`NEAR`], or [`UNKNOWN`].
    near: Vec<usize>,
    far: HashMap<i32, usize>,
}

/// Small, since there may be very many topics.
const NEAR: usize = 32;
const UNKNOWN: usize = usize::MAX;

impl KnownTopic {
    #[inline]
    fn find(&self, queue_id: i32) -> Option<usize> {
        match self.near.get(queue_id as usize) {
            Some(&UNKNOWN) => None,
            Some(&place) => Some(place),
            None => self.far.get(&queue_id).copied(),
        }
    }

    fn put(&mut self, queue_id: i32, place: usize) {
        match queue_id as usize {
            number @ ..NEAR => {
                self.near.resize(self.near.len().max(number + 1), UNKNOWN);
                self.near[number] = place;
            }
            _ => drop(self.far.insert(queue_id, place)),
        }
    }
}

impl KnownQueues {
    /// Finds a message's queue; `true` if it is new to the store.
    #[inline]
    pub(crate) fn get(
        &mut self,
        topic: &[u8],
        queue_id: i32,
        queues: &QueueTable,
    ) -> Result<(&Arc<Queue>, bool)> {
        let (place, new) = match self.find(topic, queue_id) {
            Some(place) => (place, false),
            None => self.enter(topic, queue_id, queues)?,
        };
        Ok((&self.queues[place], new))
    }

    #[inline]
    fn find(&mut self, topic: &[u8], queue_id: i32) -> Option<usize> {
        match self.topics.get(self.latest) {
            Some(latest) if *latest.name == *topic => latest.find(queue_id),
            _ => {
                self.latest = *self.numbers.get(topic)?;
                self.topics.get(self.latest)?.find(queue_id)
            }
        }
    }

    #[cold]
    fn enter(&mut self, topic: &[u8], queue_id: i32, queues: &QueueTable) -> Result<(usize, bool)> {
        let new = queues.get(topic, queue_id).is_none();
        let queue = queues.get_or_create(topic, queue_id)?;
        self.latest = *self.numbers.entry(topic.into()).or_insert_with(|| {
            let (name, near, far) = (topic.into(), Vec::new(), HashMap::new());
            self.topics.push(KnownTopic { name, near, far });
            self.topics.len() - 1
        });
        let place = self.queues.len();
        self.queues.push(queue);
        self.topics[self.latest].put(queue_id, place);
        Ok((place, new))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::StoreConfig;
    use crate::store::{MessageStore, NewMessage, OpenMode};

    #[test]
    fn each_message_finds_its_own_queue_in_whatever_order_they_come() {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            mapped_file_size_commit_log: Some(1 << 20),
            max_hash_slot_num: Some(7),
            max_index_num: Some(28),
            max_queue_id: 1 << 30,
            ..StoreConfig::default()
        };
        let store = MessageStore::open(dir.path(), OpenMode::Create, config).unwrap();
        for round in 0..3 {
            for (topic, queue_id) in [
                ("A", 0),
                ("A", 1),
                ("B", 31),
                ("A", 1 << 30),
                ("B", 32),
                ("B", 5000),
                ("B", 7),
                ("A", 0),
            ] {
                let mut message = NewMessage::new(topic.as_bytes(), b"body");
                message.queue_id = queue_id;
                let result = store.append(&message).unwrap();
                let twice = (topic, queue_id) == ("A", 0);
                let wanted = if twice { 2 * round..2 * round + 2 } else { round..round + 1 };
                assert!(wanted.contains(&result.queue_offset), "{topic} {queue_id}");
            }
        }
        store.close().unwrap();
    }
}
