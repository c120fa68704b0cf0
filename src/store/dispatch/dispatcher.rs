//! Dispatches records of the log to queues and index (`DispatchRequest`,
//! `DefaultMessageStore.doDispatch`).

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

/// Input of queues and index for one record.
#[derive(Clone, Copy, Debug)]
pub struct DispatchRequest<'a> {
    pub topic: &'a [u8],
    pub queue_id: i32,
    pub queue_offset: i64,
    /// Its offset in the commit log.
    pub physical_offset: i64,
    pub store_size: u32,
    pub store_timestamp_ms: i64,
    pub transaction: Transaction,
    pub properties: Indexed<'a>,
}

impl<'a> DispatchRequest<'a> {
    /// The request for a record (`CommitLog.checkMessageAndReturnSize`).
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

    /// Whether the record gets a queue entry: a prepared or rolled back message does not.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        matches!(self.transaction, Transaction::None | Transaction::Commit)
    }

    /// Additional queues of the record, with its queue offset in each (`MultiDispatchUtils`,
    /// `ConsumeQueue.multiDispatchLmqQueue`). Invalid names are skipped.
    pub fn more_queues(&self) -> impl Iterator<Item = (&'a [u8], i64)> {
        lmq::pairs(self.topic, &self.properties)
    }

    #[must_use]
    pub fn end(&self) -> u64 {
        u64::try_from(self.physical_offset).unwrap_or(0).saturating_add(u64::from(self.store_size))
    }

    /// Queue offsets of the record in a queue of that kind: one, or those of a batch. A batch with
    /// invalid properties counts as one message.
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

    /// The queue's unit for the record at `range`.
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

#[derive(Debug)]
pub struct Dispatcher {
    /// The index, unless disabled or unusable.
    pub index: Option<IndexService>,
}

impl Dispatcher {
    /// Dispatches one record into `queue`, or its queue in the table.
    ///
    /// # Errors [`Error::Io`] when the disk is full; the record may be dispatched again, since
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

/// Ignores a record that no queue accepts, such as one with an impossible queue number: it must not
/// block the next ones.
fn pass_over_refused(added: Result<Added>) -> Result<()> {
    match added {
        Ok(_) | Err(Error::InvalidMessage { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
