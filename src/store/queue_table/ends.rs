//! Ends of queues behind a URL, where each costs a request: they are read when a queue is asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::QueueTable;
use crate::error::{Error, Result};
use crate::files::{Access, threads};
use crate::log::Queue;
use crate::log::queue::CqUnit;

const AT_ONCE: usize = 32;

impl QueueTable {
    /// Whether queues may be listed whose ends were not read yet.
    #[must_use]
    pub fn is_lazy(&self) -> bool {
        self.is_lazy.load(Ordering::Acquire)
    }

    /// [`QueueTable::get`], with the queue's end.
    pub fn found(&self, topic: &[u8], queue_id: i32) -> Result<Option<Arc<Queue>>> {
        let queue = self.get(topic, queue_id);
        queue.as_deref().map_or(Ok(()), |queue| self.read_end(queue))?;
        Ok(queue)
    }

    /// Reads the end of the queue of an entry, from that entry on.
    pub fn read_end_behind(&self, topic: &[u8], queue_id: i32, entry: &CqUnit) -> Result<()> {
        let queue = self.get(topic, queue_id).filter(|queue| !queue.has_end());
        queue.map_or(Ok(()), |queue| {
            queue.find_end_behind(entry)?;
            self.judge(&queue);
            Ok(())
        })
    }

    /// Reads the ends of all queues.
    pub fn read_ends(&self) -> Result<()> {
        if !self.is_lazy() {
            return Ok(());
        }
        let queues = self.those(|queue| !queue.has_end());
        let read = |queues: &[Arc<Queue>]| queues.iter().try_for_each(|queue| self.read_end(queue));
        let check = || self.storage.check_interrupt().map_err(Error::io("read", self.dir()));
        threads::each_checked(queues.chunks(1), AT_ONCE, read, check)?;
        self.is_lazy.store(false, Ordering::Release);
        Ok(())
    }

    /// Looks at a reader's queue while its last file is open. Bytes that cannot be read are damage.
    pub(super) fn judge(&self, queue: &Queue) {
        let is_unsound = || match queue.has_end() {
            true => queue.is_unsound().unwrap_or(true),
            false => !queue.run().check().is_empty(),
        };
        if self.access == Access::Read && !self.is_unsound() && is_unsound() {
            self.is_unsound.store(true, Ordering::Release);
        }
    }

    #[must_use]
    pub fn is_unsound(&self) -> bool {
        self.is_unsound.load(Ordering::Acquire)
    }

    fn read_end(&self, queue: &Queue) -> Result<()> {
        if !queue.has_end() {
            queue.find_end()?;
            self.judge(queue);
        }
        Ok(())
    }
}
