//! Creates and flushes the files of new queues during appends, so that closing has few to create.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::log::Queue;

pub const MANY: usize = 2048;
/// New queues without files from which on messages for further ones wait.
const MOST: usize = 4 * MANY;

/// Queues created in memory since the last step.
#[derive(Debug, Default)]
pub(crate) struct NewQueues {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    queues: Vec<Arc<Queue>>,
    is_stopped: bool,
}

impl NewQueues {
    pub(crate) fn push(&self, queue: Arc<Queue>) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_stopped {
            waiting.queues.push(queue);
            self.count.fetch_add(1, Ordering::Release);
            if waiting.queues.len() == MANY {
                self.changed.notify_all();
            }
        }
    }

    #[inline]
    pub(crate) fn are_too_many(&self) -> bool {
        self.count.load(Ordering::Acquire) >= MOST
    }

    pub(crate) fn wait(&self, most: Duration) {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while_for(&mut waiting, |_| self.are_too_many(), most);
    }

    /// Waits for many queues; `None` once stopped.
    pub(crate) fn take(&self) -> Option<Vec<Arc<Queue>>> {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while(&mut waiting, |now| now.queues.len() < MANY && !now.is_stopped);
        (!waiting.is_stopped).then(|| waiting.queues.drain(..MANY).collect())
    }

    pub(crate) fn done(&self, queues: usize) {
        let _waiting = self.waiting.lock();
        self.count.fetch_sub(queues, Ordering::Release);
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_stopped = true;
        self.count.fetch_sub(waiting.queues.len(), Ordering::Release);
        waiting.queues = Vec::new();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Access, FileRun, Os};
    use crate::log::QueueKind;

    #[test]
    fn messages_for_new_queues_wait_until_enough_have_files_or_the_store_closes() {
        let dir = vec![tempfile::tempdir().unwrap().path().join("topic/0")];
        let run = FileRun::load(Arc::new(Os), Arc::default(), dir, 20, Access::ReadWrite);
        let queue = Queue::load(QueueKind::Plain, b"topic", 0, run.unwrap().0).unwrap();
        let (queue, new) = (Arc::new(queue), NewQueues::default());
        (1..MOST).for_each(|_| new.push(Arc::clone(&queue)));
        assert!(!new.are_too_many());
        new.push(Arc::clone(&queue));
        assert!(new.are_too_many());
        new.wait(Duration::ZERO);
        let taken = new.take().unwrap().len();
        assert!(new.are_too_many(), "these have no files yet");
        std::thread::scope(|scope| {
            scope.spawn(|| new.done(taken));
            new.wait(Duration::from_secs(60));
        });
        assert!(!new.are_too_many());
        (0..taken).for_each(|_| new.push(Arc::clone(&queue)));
        let taken = new.take().unwrap().len();
        new.stop();
        assert!(!new.are_too_many() && new.take().is_none());
        new.done(taken);
        new.push(queue);
        assert_eq!(new.count.load(Ordering::Acquire), 0);
    }
}
