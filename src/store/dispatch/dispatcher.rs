//! From the log to the queues and the index: what each record needs there
//! (`DispatchRequest`, `DefaultMessageStore.doDispatch`).

use crate::error::{Error, Result};
use crate::format::message::MessageView;
use crate::format::message::properties::{self, Indexed};
use crate::format::message::sys_flag::{self, Transaction};
use crate::format::queue::batch::{self, InnerRange};
use crate::format::queue::consume_queue::{self, DelayLevels, QueueEntry};
use crate::log::dispatch_keys::DispatchKeys;
use crate::log::index::writer::IndexService;
use crate::log::queue::{Added, Unit};
use crate::log::{Queue, QueueKind};

use super::lmq;
use crate::store::queue_table::QueueTable;

/// What the queues and the index take from one record.
#[derive(Clone, Copy, Debug)]
pub struct DispatchRequest<'a> {
    /// The topic, as its bytes.
    pub topic: &'a [u8],
    /// The queue's number.
    pub queue_id: i32,
    /// The record's entry number there.
    pub queue_offset: i64,
    /// Where the record lies.
    pub physical_offset: i64,
    pub store_size: u32,
    /// The store's time of it.
    pub store_timestamp_ms: i64,
    /// What kind of transaction message it is, if it is one.
    pub transaction: Transaction,
    /// The properties that matter here.
    pub properties: Indexed<'a>,
}

impl<'a> DispatchRequest<'a> {
    /// The request of a stored record (`CommitLog.checkMessageAndReturnSize`).
    #[inline(always)]
    #[must_use]
    pub fn of(view: &MessageView<'a>) -> Self {
        Self {
            topic: view.topic(),
            queue_id: view.queue_id(),
            queue_offset: view.queue_offset(),
            physical_offset: view.physical_offset(),
            store_size: view.store_size(),
            store_timestamp_ms: view.store_timestamp_ms(),
            transaction: sys_flag::transaction(view.sys_flag()),
            properties: properties::indexed(view.raw_properties()),
        }
    }

    /// Whether the record has an entry in a queue: a prepared or rolled back message has none.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        matches!(self.transaction, Transaction::None | Transaction::Commit)
    }

    /// The queues beside its own that the record has entries in, with its number in each
    /// (`MultiDispatchUtils`, `ConsumeQueue.multiDispatchLmqQueue`). A name that can be no such
    /// queue, or has no number, is passed over, and stops nothing but itself.
    pub fn more_queues(&self) -> impl Iterator<Item = (&'a [u8], i64)> {
        lmq::pairs(self.topic, &self.properties)
    }

    /// One past the record's last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        u64::try_from(self.physical_offset).unwrap_or(0).saturating_add(u64::from(self.store_size))
    }

    /// The queue offsets that the record stands for in a queue of that kind: one, or those of a batch
    /// that is kept together. A batch whose properties do not tell them counts as one message.
    #[inline]
    #[must_use]
    pub fn range(&self, kind: QueueKind) -> InnerRange {
        let alone = InnerRange { base_queue_offset: self.queue_offset, message_count: 1 };
        match kind {
            QueueKind::Plain => alone,
            QueueKind::Batch => {
                batch::inner_range(&self.properties, self.queue_offset).unwrap_or(alone)
            }
        }
    }

    /// The record in a queue that has it at `range`.
    #[inline]
    #[must_use]
    pub fn unit(&self, range: InnerRange, levels: &DelayLevels) -> Unit {
        Unit {
            number: range.base_queue_offset,
            count: range.message_count,
            entry: QueueEntry {
                physical_offset: self.physical_offset,
                store_size: i32::try_from(self.store_size).unwrap_or(i32::MAX),
                tags_code: consume_queue::dispatch_tags_code(
                    self.topic,
                    &self.properties,
                    self.store_timestamp_ms,
                    levels,
                ),
            },
        }
    }

    /// What the index takes of it.
    #[must_use]
    pub fn keys(&self) -> DispatchKeys<'a> {
        DispatchKeys {
            physical_offset: self.physical_offset,
            store_timestamp_ms: self.store_timestamp_ms,
            transaction: self.transaction,
            topic: self.topic,
            unique_key: self.properties.unique_key,
            keys: self.properties.keys,
        }
    }
}

/// Puts records into the queues and the index.
#[derive(Debug)]
pub struct Dispatcher {
    /// The index, unless it is switched off or cannot be used.
    pub index: Option<IndexService>,
}

impl Dispatcher {
    /// Dispatches one record into `queue`, or into the queue that the table knows.
    ///
    /// # Errors
    /// [`Error::Io`] when the disk is full; the same record may be dispatched again later, since what
    /// is there already is left as it is.
    #[inline]
    pub fn dispatch(
        &mut self,
        request: &DispatchRequest<'_>,
        queue: Option<&Queue>,
        queues: &QueueTable,
    ) -> Result<()> {
        if request.is_queued() {
            let levels = queues.delay_levels();
            match queue {
                Some(queue) => {
                    let unit = request.unit(request.range(queue.kind()), levels);
                    queue.add(&unit, request.store_timestamp_ms)?;
                }
                None => {
                    let added =
                        queues.get_or_create(request.topic, request.queue_id).and_then(|queue| {
                            let unit = request.unit(request.range(queue.kind()), levels);
                            queue.add(&unit, request.store_timestamp_ms)
                        });
                    pass_over_refused(added)?;
                }
            }
            if request.properties.multi_dispatch.is_some() {
                for (name, number) in request.more_queues() {
                    if queues.takes_more_queues() || queues.get(name, 0).is_some() {
                        let range = InnerRange { base_queue_offset: number, message_count: 1 };
                        let unit = request.unit(range, levels);
                        let added =
                            queues.get_or_create(name, 0).and_then(|queue| queue.add_plain(&unit));
                        pass_over_refused(added)?;
                    }
                }
            }
        }
        if let Some(index) = &mut self.index {
            index.build(&request.keys())?;
        }
        Ok(())
    }
}

/// A record that no queue can take, such as one with an impossible queue number, must not hold up those
/// behind it.
fn pass_over_refused(added: Result<Added>) -> Result<()> {
    match added {
        Ok(_) | Err(Error::InvalidMessage { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
