//! Dispatches single records to queues and index (`DefaultMessageStore.doDispatch`).

use crate::error::{Error, Result};
use crate::format::queue::batch::InnerRange;
use crate::log::Queue;
use crate::log::index::writer::IndexService;

use super::lmq;
use crate::store::queue_table::QueueTable;

pub use crate::log::queue::unit::DispatchRequest;

/// Maximum bytes of log with waiting keys.
const MOST_UNINDEXED: u64 = 64 << 10;

#[derive(Debug)]
pub struct Dispatcher {
    pub index: Option<IndexService>,
}

impl Dispatcher {
    /// Dispatches one record into `queue`, or its queue in the table.
    ///
    /// # Errors
    /// [`Error::Io`] when the disk is full; the record may be dispatched again, since
    /// existing entries are kept.
    #[inline]
    pub fn dispatch(
        &mut self,
        request: &DispatchRequest<'_>,
        queue: Option<&Queue>,
        queues: &QueueTable,
    ) -> Result<()> {
        if request.is_queued() {
            let levels = queues.delay_levels();
            let add = |queue: &Queue| queue.add(&request.unit(request.range(queue.kind()), levels));
            match queue {
                Some(queue) => drop(add(queue)?),
                None => {
                    let found = queues.get_or_create(request.topic, request.queue_id);
                    unless_refused(found.and_then(|queue| add(&queue)))?;
                }
            }
            if request.properties.multi_dispatch.is_some() {
                for (name, id, number) in lmq::pairs(request) {
                    if lmq::is_taken(queues, name, id) {
                        let range = InnerRange { base_queue_offset: number, message_count: 1 };
                        let unit = request.unit(range, levels);
                        let added =
                            queues.get_or_create(name, id).and_then(|queue| queue.add_plain(&unit));
                        unless_refused(added)?;
                    }
                }
            }
        }
        if let Some(index) = &mut self.index {
            index.build(request)?;
            // A query reads these records from the log, so they must not lie far apart.
            let far = |from| request.end().saturating_sub(from) > MOST_UNINDEXED;
            if index.waiting_from().is_some_and(far) {
                index.drain()?;
            }
        }
        Ok(())
    }

    /// Offset up to which the index files hold all keys, if everything before `dispatched` was
    /// dispatched.
    #[inline]
    #[must_use]
    pub fn indexed_end(&self, dispatched: u64) -> u64 {
        let waiting_from = self.index.as_ref().and_then(IndexService::waiting_from);
        waiting_from.map_or(dispatched, |from| from.min(dispatched))
    }
}

/// `None` for a record that no queue accepts: it must not block the next ones.
#[inline(always)]
pub fn unless_refused<T>(added: Result<T>) -> Result<Option<T>> {
    match added {
        Err(Error::InvalidMessage { .. }) => Ok(None),
        added => added.map(Some),
    }
}
