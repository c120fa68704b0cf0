//! A queue of either kind, for table, dispatch, recovery and readers. Open `consume_queue.rs`
//! first; `tail_run.rs` is its end in memory.

pub mod batch_consume_queue;
pub mod consume_queue;
pub mod consume_queue_ext;
pub mod queue_folder;
pub mod seen_codes;
pub(crate) mod tail_run;
pub mod unit;

use crate::error::{Error, PutStatus, Result};
use crate::files::run::new_files::Wanted;
use crate::files::{FileRun, RunFile};
use crate::format::queue::batch::{self, BatchQueueEntry};
use crate::format::queue::consume_queue as plain;
use crate::format::queue::consume_queue::QueueEntry;
use crate::format::width::{at_least_0, to_usize};

use self::consume_queue_ext::TagsCode;
use self::seen_codes::SeenCodes;
pub use self::unit::{Added, QueueKind, Unit};
use super::{BatchConsumeQueue, ConsumeQueue};

const ATTEMPTS: usize = 4;

#[derive(Debug)]
pub enum Queue {
    Plain(ConsumeQueue),
    Batch(BatchConsumeQueue),
}

macro_rules! either {
    ($queue:expr, $inner:ident => $answer:expr) => {
        match $queue {
            Queue::Plain($inner) => $answer,
            Queue::Batch($inner) => $answer,
        }
    };
}

impl Queue {
    /// Opens a queue and finds its end without changing it.
    pub fn load(kind: QueueKind, topic: &[u8], queue_id: i32, run: FileRun) -> Result<Self> {
        Ok(match kind {
            QueueKind::Plain => Self::Plain(ConsumeQueue::load(topic, queue_id, run)?),
            QueueKind::Batch => Self::Batch(BatchConsumeQueue::load(topic, queue_id, run)?),
        })
    }

    #[must_use]
    pub const fn kind(&self) -> QueueKind {
        match self {
            Self::Plain(_) => QueueKind::Plain,
            Self::Batch(_) => QueueKind::Batch,
        }
    }

    #[must_use]
    pub const fn as_plain(&self) -> Option<&ConsumeQueue> {
        match self {
            Self::Plain(queue) => Some(queue),
            Self::Batch(_) => None,
        }
    }

    #[must_use]
    pub const fn as_batch(&self) -> Option<&BatchConsumeQueue> {
        match self {
            Self::Plain(_) => None,
            Self::Batch(queue) => Some(queue),
        }
    }

    pub fn find_end(&self) -> Result<()> {
        either!(self, queue => queue.find_end())
    }

    #[must_use]
    pub fn topic(&self) -> &[u8] {
        either!(self, queue => queue.topic())
    }

    #[must_use]
    pub fn queue_id(&self) -> i32 {
        either!(self, queue => queue.queue_id())
    }

    #[must_use]
    pub fn run(&self) -> &FileRun {
        either!(self, queue => queue.run())
    }

    #[must_use]
    pub fn has_lost_files(&self) -> bool {
        let ext = self.as_plain().and_then(ConsumeQueue::ext);
        self.run().has_lost_files() || ext.is_some_and(|ext| ext.run().has_lost_files())
    }

    #[must_use]
    pub fn min_offset(&self) -> i64 {
        either!(self, queue => queue.min_offset())
    }

    #[must_use]
    pub fn max_offset(&self) -> i64 {
        either!(self, queue => queue.max_offset())
    }

    /// RocketMQ's `maxPhysicOffset`: end of the last message with an entry, of a batch queue its
    /// start; or -1.
    #[must_use]
    pub fn max_physical_offset(&self) -> i64 {
        either!(self, queue => queue.max_physical_offset())
    }

    /// End of the last record with an entry, or -1.
    #[must_use]
    pub fn reach(&self) -> i64 {
        match self {
            Self::Plain(queue) => queue.max_physical_offset(),
            Self::Batch(queue) => queue.reach(),
        }
    }

    #[inline]
    #[must_use]
    pub fn next_offset(&self) -> i64 {
        either!(self, queue => queue.next_offset())
    }

    #[inline]
    pub fn set_next_offset(&self, next: i64) {
        either!(self, queue => queue.set_next_offset(next));
    }

    pub fn units(&self, from: i64, count: usize) -> Result<Vec<Unit>> {
        either!(self, queue => queue.units(from, count))
    }

    pub fn unit(&self, number: i64) -> Result<Option<Unit>> {
        Ok(self.units(number, 1)?.pop().filter(|unit| unit.holds(number)))
    }

    pub fn last(&self) -> Result<Option<Unit>> {
        match self {
            Self::Plain(queue) => Ok(queue.units(queue.max_offset() - 1, 1)?.pop()),
            Self::Batch(queue) => queue.last(),
        }
    }

    pub fn units_to_file_end(&self, number: i64) -> Result<usize> {
        let left = match self {
            Self::Plain(queue) => {
                let in_file = queue.run().file_size() / plain::ENTRY_LEN as u64;
                let number = at_least_0(number);
                in_file - number.checked_rem(in_file).unwrap_or(0)
            }
            Self::Batch(queue) => queue.units_to_file_end(number)?,
        };
        Ok(to_usize(left))
    }

    #[inline]
    pub fn resolve(&self, tags_code: i64) -> Result<TagsCode> {
        match self.as_plain().and_then(ConsumeQueue::ext) {
            Some(ext) => ext.resolve(tags_code),
            None => Ok(TagsCode::Known(tags_code)),
        }
    }

    #[must_use]
    pub const fn seen_codes(&self) -> &SeenCodes {
        either!(self, queue => queue.seen_codes())
    }

    #[inline]
    pub fn add(&self, unit: &Unit, store_timestamp_ms: i64) -> Result<Added> {
        match self {
            Self::Plain(queue) => queue.add_extended(unit.number, unit.entry, store_timestamp_ms),
            Self::Batch(queue) => queue.add(&BatchQueueEntry {
                physical_offset: unit.entry.physical_offset,
                store_size: unit.entry.store_size,
                tags_code: unit.entry.tags_code,
                store_timestamp_ms,
                base_queue_offset: unit.number,
                message_count: unit.count,
                compacted_offset: -1,
            }),
        }
    }

    /// Adds a record of another queue: the entry holds its code itself, and batch queues refuse it.
    pub fn add_plain(&self, unit: &Unit) -> Result<Added> {
        match self {
            Self::Plain(queue) => queue.add(unit.number, unit.entry),
            Self::Batch(_) => Err(Error::InvalidMessage {
                field: "properties",
                reason: "names a queue of batches beside its own".to_owned(),
                status: PutStatus::MessageIllegal,
                limit: None,
            }),
        }
    }

    #[must_use]
    pub fn wanted_files(&self) -> Vec<Wanted<'_>> {
        either!(self, queue => queue.wanted_files().collect())
    }

    #[must_use]
    pub fn wants_commit(&self) -> bool {
        either!(self, queue => queue.wants_commit())
    }

    #[must_use]
    pub fn is_dirty(&self) -> bool {
        either!(self, queue => queue.is_dirty())
    }

    pub fn commit(&self) -> Result<()> {
        either!(self, queue => queue.commit())
    }

    pub(crate) fn distrust(&self) {
        either!(self, queue => queue.distrust());
    }

    pub fn flush(&self) -> Result<bool> {
        either!(self, queue => queue.flush())
    }

    pub fn has_remains(&self) -> Result<bool> {
        either!(self, queue => queue.has_remains())
    }

    pub fn truncate(&self, queue_offset: i64) -> Result<()> {
        either!(self, queue => queue.truncate(queue_offset))
    }

    pub fn first_at_or_behind(&self, physical_offset: u64) -> Result<i64> {
        either!(self, queue => queue.first_at_or_behind(physical_offset))
    }

    pub fn correct_min_offset(&self, log_min: u64) -> Result<()> {
        either!(self, queue => queue.correct_min_offset(log_min))
    }

    /// Offset of the record named by the last entry of a file; `None` if it leads nowhere.
    pub fn last_place_in(&self, file: &RunFile) -> Result<Option<u64>> {
        let end = file.base_offset.saturating_add(self.run().file_size());
        let read = |last: &mut [u8]| {
            let at = end.saturating_sub(last.len() as u64);
            self.run().read_file_at(file, last, at).map(|read| read == last.len())
        };
        let place = match self {
            Self::Plain(_) => {
                let mut last = [0; plain::ENTRY_LEN];
                let is_whole = read(&mut last)?;
                let entry = QueueEntry::decode(&last);
                let leads = is_whole && entry.is_valid() && !entry.is_pre_blank();
                leads.then_some(entry.physical_offset)
            }
            Self::Batch(_) => {
                let mut last = [0; batch::ENTRY_LEN];
                let is_whole = read(&mut last)?;
                let entry = BatchQueueEntry::decode(&last);
                (is_whole && entry.is_valid()).then_some(entry.physical_offset)
            }
        };
        Ok(place.and_then(|place| u64::try_from(place).ok()))
    }

    pub fn delete_expired(&self, log_min: u64) -> Result<usize> {
        either!(self, queue => queue.delete_expired(log_min))
    }

    /// Whether the files alone show damage: a wrong length, a missing file, or entries behind zeros.
    pub fn is_unsound(&self) -> Result<bool> {
        if !self.run().check().is_empty() {
            return Ok(true);
        }
        // A writer may have added entries.
        for _ in 0..ATTEMPTS {
            if !self.has_remains()? {
                return Ok(false);
            }
            let before = self.max_offset();
            self.find_end()?;
            if self.max_offset() == before {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
