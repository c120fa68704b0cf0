//! Retries reads of queues and index while another process may swap their files.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::log::Queue;

use super::held_to_log::Held;
use super::queue_view::{Overlay, QueueView};
use crate::store::open;
use crate::store::write::core::Core;

const ATTEMPTS: usize = 16;

impl Core {
    pub(crate) fn overlay(&self) -> Result<Arc<Overlay>> {
        let reading = self.reading();
        if let Some(overlay) = reading.overlay.get() {
            return Ok(Arc::clone(overlay));
        }
        let read =
            Arc::new(Overlay::read(&self.log, &self.queues, reading.doubt, self.log.end_offset())?);
        Ok(Arc::clone(reading.overlay.get_or_init(|| read)))
    }

    /// Reads one queue. If another process removed or swapped files meanwhile, lists them again and
    /// retries.
    pub(crate) fn ask<T>(
        &self,
        topic: &[u8],
        queue_id: i32,
        ask: impl Fn(Option<&QueueView>) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..ATTEMPTS {
            let view = self.queue(topic, queue_id)?;
            let answer = ask(view.as_ref());
            if !view.is_some_and(|view| view.has_lost_files()) {
                return answer;
            }
            open::list_again(self)?;
        }
        Err(self.never_still())
    }

    pub(crate) fn ask_index<T>(&self, ask: impl Fn() -> Result<T>) -> Result<T> {
        let Some(index) = self.index.as_ref().filter(|_| self.writing.is_none()) else {
            return ask();
        };
        for _ in 0..ATTEMPTS {
            let lost = index.lost();
            let answer = ask();
            if index.lost() == lost {
                return answer;
            }
            open::list_again(self)?;
        }
        Err(self.never_still())
    }

    #[cold]
    fn never_still(&self) -> Error {
        let what = "files were gone each time they were listed and read; \
                    nothing was changed; try again when no other process rebuilds the store";
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, what);
        Error::io("read", self.paths.root())(source)
    }

    pub(crate) fn queue(&self, topic: &[u8], queue_id: i32) -> Result<Option<QueueView>> {
        let lacking = self.catch_up_to_read()?;
        let queue = self.queues.get(topic, queue_id);
        let (kind, root) = (self.queues.kind_of(topic), self.paths.root());
        match (lacking, self.writing.is_some()) {
            (Some(overlay), _) => overlay.view(&self.log, queue, kind, topic, queue_id, root),
            (None, true) => {
                let queue = queue.filter(|queue| queue.max_offset() > 0);
                queue.map(|queue| self.whole(queue, topic, queue_id)).transpose()
            }
            (None, false) => self.overlay()?.view(&self.log, queue, kind, topic, queue_id, root),
        }
    }

    fn whole(&self, queue: Arc<Queue>, topic: &[u8], queue_id: i32) -> Result<QueueView> {
        let mut view = QueueView::whole(Arc::clone(&queue));
        let held = Held { log: &self.log, view: &view, topic, queue_id };
        view.min_offset = held.first(&queue, self.log.min_offset())?;
        Ok(view)
    }
}
