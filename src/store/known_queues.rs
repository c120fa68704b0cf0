//! The queues that appends go to, found without the table that all threads share.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::error::Result;
use crate::log::Queue;

use super::queues::QueueTable;

/// Queues that an appender has met.
#[derive(Debug, Default)]
pub struct KnownQueues {
    queues: Vec<Arc<Queue>>,
    topics: Vec<KnownTopic>,
    /// Which of `topics` has a name.
    numbers: HashMap<Box<[u8]>, usize>,
    /// The topic asked for last, which mostly is the next one's too.
    latest: usize,
}

#[derive(Debug)]
struct KnownTopic {
    name: Box<[u8]>,
    /// Which of all queues has a number.
    queues: HashMap<i32, usize>,
}

impl KnownQueues {
    /// The queue of a message; `true` where the store has not met it before.
    ///
    /// # Errors
    /// As [`QueueTable::get_or_create`].
    #[inline]
    pub fn get(
        &mut self,
        topic: &[u8],
        queue_id: i32,
        queues: &QueueTable,
    ) -> Result<(&Arc<Queue>, bool)> {
        let (place, new) = match self.find(topic, queue_id) {
            Some(place) => (place, false),
            None => self.meet(topic, queue_id, queues)?,
        };
        Ok((&self.queues[place], new))
    }

    #[inline]
    fn find(&mut self, topic: &[u8], queue_id: i32) -> Option<usize> {
        if self.topics.get(self.latest).is_none_or(|latest| *latest.name != *topic) {
            self.latest = *self.numbers.get(topic)?;
        }
        self.topics.get(self.latest)?.queues.get(&queue_id).copied()
    }

    #[cold]
    fn meet(&mut self, topic: &[u8], queue_id: i32, queues: &QueueTable) -> Result<(usize, bool)> {
        let new = queues.get(topic, queue_id).is_none();
        let queue = queues.get_or_create(topic, queue_id)?;
        self.latest = *self.numbers.entry(topic.into()).or_insert_with(|| {
            self.topics.push(KnownTopic { name: topic.into(), queues: HashMap::new() });
            self.topics.len() - 1
        });
        let place = self.queues.len();
        self.queues.push(queue);
        self.topics[self.latest].queues.insert(queue_id, place);
        Ok((place, new))
    }
}
