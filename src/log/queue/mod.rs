//! A queue of either kind behind one face: what table, dispatch, recovery and readers need of it.

pub mod batch_consume_queue;
pub mod consume_queue;
pub mod consume_queue_ext;
pub mod queue_folder;
pub mod seen_codes;
pub(crate) mod tail_run;
mod unit;

use crate::error::{Error, PutStatus, Result};
use crate::files::run::new_files::Wanted;
use crate::files::{FileRun, RunFile};
use crate::format::queue::batch::{self, BatchQueueEntry};
use crate::format::queue::consume_queue as plain;
use crate::format::queue::consume_queue::QueueEntry;

use self::consume_queue_ext::TagsCode;
use self::seen_codes::SeenCodes;
pub use self::unit::{Added, QueueKind, Unit};
use super::{BatchConsumeQueue, ConsumeQueue};

/// A queue of one topic.
#[derive(Debug)]
pub enum Queue {
    /// Of a topic that has an entry for each message.
    Plain(ConsumeQueue),
    /// Of a topic that keeps batches together.
    Batch(BatchConsumeQueue),
}

/// The same of both kinds.
macro_rules! either {
    ($queue:expr, $inner:ident => $answer:expr) => {
        match $queue {
            Queue::Plain($inner) => $answer,
            Queue::Batch($inner) => $answer,
        }
    };
}

impl Queue {
    /// A queue over `run`; its end is looked for, and nothing changed.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn load(kind: QueueKind, topic: &[u8], queue_id: i32, run: FileRun) -> Result<Self> {
        Ok(match kind {
            QueueKind::Plain => Self::Plain(ConsumeQueue::load(topic, queue_id, run)?),
            QueueKind::Batch => Self::Batch(BatchConsumeQueue::load(topic, queue_id, run)?),
        })
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> QueueKind {
        match self {
            Self::Plain(_) => QueueKind::Plain,
            Self::Batch(_) => QueueKind::Batch,
        }
    }

    /// The queue, where it has an entry for each message.
    #[must_use]
    pub const fn as_plain(&self) -> Option<&ConsumeQueue> {
        match self {
            Self::Plain(queue) => Some(queue),
            Self::Batch(_) => None,
        }
    }

    /// The queue, where it keeps batches together.
    #[must_use]
    pub const fn as_batch(&self) -> Option<&BatchConsumeQueue> {
        match self {
            Self::Plain(_) => None,
            Self::Batch(queue) => Some(queue),
        }
    }

    /// Finds the last valid entry on disk again.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn find_end(&self) -> Result<()> {
        either!(self, queue => queue.find_end())
    }

    /// The topic, as its bytes.
    #[must_use]
    pub fn topic(&self) -> &[u8] {
        either!(self, queue => queue.topic())
    }

    /// The queue's number.
    #[must_use]
    pub fn queue_id(&self) -> i32 {
        either!(self, queue => queue.queue_id())
    }

    /// The files below.
    #[must_use]
    pub fn run(&self) -> &FileRun {
        either!(self, queue => queue.run())
    }

    /// Whether a listed file of the queue, or of its extension, was gone when a reader wanted it.
    #[must_use]
    pub fn has_lost_files(&self) -> bool {
        let ext = self.as_plain().and_then(ConsumeQueue::ext);
        self.run().has_lost_files() || ext.is_some_and(|ext| ext.run().has_lost_files())
    }

    /// The first queue offset whose message the log still holds.
    #[must_use]
    pub fn min_offset(&self) -> i64 {
        either!(self, queue => queue.min_offset())
    }

    /// One past the last queue offset.
    #[must_use]
    pub fn max_offset(&self) -> i64 {
        either!(self, queue => queue.max_offset())
    }

    /// What RocketMQ calls `maxPhysicOffset`: end of the last message that has an entry, of a batch
    /// queue its start; -1 without one.
    #[must_use]
    pub fn max_physical_offset(&self) -> i64 {
        either!(self, queue => queue.max_physical_offset())
    }

    /// End of the last record that has an entry, -1 without one.
    #[must_use]
    pub fn reach(&self) -> i64 {
        match self {
            Self::Plain(queue) => queue.max_physical_offset(),
            Self::Batch(queue) => queue.reach(),
        }
    }

    /// The queue offset that the next appended message gets. Held by whoever appends.
    #[inline]
    #[must_use]
    pub fn next_offset(&self) -> i64 {
        either!(self, queue => queue.next_offset())
    }

    /// Sets the number of [`Queue::next_offset`].
    #[inline]
    pub fn set_next_offset(&self, next: i64) {
        either!(self, queue => queue.set_next_offset(next));
    }

    /// Units from the one on that holds queue offset `from`, or else follows it; at most `count`,
    /// fewer at the end of the queue.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn units(&self, from: i64, count: usize) -> Result<Vec<Unit>> {
        either!(self, queue => queue.units(from, count))
    }

    /// The unit that holds a queue offset.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn unit(&self, number: i64) -> Result<Option<Unit>> {
        Ok(self.units(number, 1)?.pop().filter(|unit| unit.holds(number)))
    }

    /// The last unit.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn last(&self) -> Result<Option<Unit>> {
        match self {
            Self::Plain(queue) => Ok(queue.units(queue.max_offset() - 1, 1)?.pop()),
            Self::Batch(queue) => queue.last(),
        }
    }

    /// How many units the file holds from the one on that holds a queue offset.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn units_to_file_end(&self, number: i64) -> Result<usize> {
        let left = match self {
            Self::Plain(queue) => {
                let in_file = queue.run().file_size() / plain::ENTRY_LEN as u64;
                let number = u64::try_from(number).unwrap_or(0);
                in_file - number.checked_rem(in_file).unwrap_or(0)
            }
            Self::Batch(queue) => queue.units_to_file_end(number)?,
        };
        Ok(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// What the tags code of an entry stands for; without an extension always itself.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    #[inline]
    pub fn resolve(&self, tags_code: i64) -> Result<TagsCode> {
        match self.as_plain().and_then(ConsumeQueue::ext) {
            Some(ext) => ext.resolve(tags_code),
            None => Ok(TagsCode::Known(tags_code)),
        }
    }

    /// Which entries' codes were held against their messages.
    #[must_use]
    pub const fn seen_codes(&self) -> &SeenCodes {
        either!(self, queue => queue.seen_codes())
    }

    /// Adds the unit of a record stored at that time.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the disk is full, [`crate::Error::InvalidMessage`] for a number
    /// that the queue cannot take; it is as before then.
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

    /// The same of a record whose own queue is another one: its code stands in the entry itself, and
    /// a queue of batches takes none.
    ///
    /// # Errors
    /// As [`Queue::add`].
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

    /// The files that entries in memory need and that are not there.
    #[must_use]
    pub fn wanted_files(&self) -> Vec<Wanted<'_>> {
        either!(self, queue => queue.wanted_files().collect())
    }

    /// Whether a flush has something to do.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        either!(self, queue => queue.is_dirty())
    }

    /// Writes the entries in memory to the queue's files, where other processes see them.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the disk is full; the entries stay in memory.
    pub fn commit(&self) -> Result<()> {
        either!(self, queue => queue.commit())
    }

    /// Makes all entries durable; whether there was anything to do.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn flush(&self) -> Result<bool> {
        either!(self, queue => queue.flush())
    }

    /// Whether something other than zeros lies behind the last entry, which must not be taken for
    /// entries once the queue has grown up to it.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn has_remains(&self) -> Result<bool> {
        either!(self, queue => queue.has_remains())
    }

    /// Cuts all that begins at or behind a queue offset and zeroes where it lay.
    ///
    /// # Errors
    /// [`crate::Error::Io`]; some of it may still be there then.
    pub fn truncate(&self, queue_offset: i64) -> Result<()> {
        either!(self, queue => queue.truncate(queue_offset))
    }

    /// The queue offset of the first record that begins at or behind `physical_offset`, one past
    /// the last where there is none.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn first_at_or_behind(&self, physical_offset: u64) -> Result<i64> {
        either!(self, queue => queue.first_at_or_behind(physical_offset))
    }

    /// Sets the first queue offset to that of the first record at or behind `log_min`.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
    pub fn correct_min_offset(&self, log_min: u64) -> Result<()> {
        either!(self, queue => queue.correct_min_offset(log_min))
    }

    /// Where the record begins that the last entry of one of the queue's files leads to; `None` where
    /// that entry leads nowhere.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system cannot read.
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

    /// Deletes files, oldest first, whose last record lies before `log_min`; never the last file.
    /// How many went.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn delete_expired(&self, log_min: u64) -> Result<usize> {
        either!(self, queue => queue.delete_expired(log_min))
    }
}
