//! The queues of one topic, by number.

use std::sync::Arc;

use crate::log::Queue;

#[derive(Debug, Default)]
pub(super) struct TopicQueues(Vec<(i32, Arc<Queue>)>);

impl TopicQueues {
    fn place(&self, id: i32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |&(id, _)| id)
    }

    pub(super) fn get(&self, id: i32) -> Option<&Arc<Queue>> {
        self.place(id).ok().map(|place| &self.0[place].1)
    }

    pub(super) fn put(&mut self, queue: Arc<Queue>) {
        let id = queue.queue_id();
        match self.place(id) {
            Ok(place) => self.0[place].1 = queue,
            Err(place) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (id, queue));
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.0.iter().map(|(_, queue)| queue)
    }

    pub(super) fn highest(&self) -> Option<i32> {
        self.0.last().map(|&(id, _)| id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(i32) -> bool) -> bool {
        let known = self.0.len();
        self.0.retain(|&(id, _)| keep(id));
        self.0.len() < known
    }
}
