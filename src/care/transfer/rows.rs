//! Checks a row of an import as an append would check it.

use hashbrown::HashMap;

use super::QueueName;
use super::numbering::request_of;
use crate::error::{Error, PutStatus, Result};
use crate::format::message::Record;
use crate::format::message::properties;
use crate::format::message::sys_flag::{self, Transaction};
use crate::format::queue::batch::{self, InnerRange};
use crate::format::queue::names::{most_queue_id, names_a_folder};
use crate::store::dispatch::lmq;

/// The last millisecond of the year 9999: no clock shows a later time.
const MOST_TIME_MS: i64 = 253_402_300_799_999;
/// Half of the entries that a queue's files can address, so that as many can follow.
const MOST_QUEUE_OFFSET: i64 = i64::MAX / 20 / 2;

/// Ends of the queues, by the rows so far.
#[derive(Debug, Default)]
pub struct Ends {
    ends: HashMap<QueueName, i64>,
}

impl Ends {
    /// Takes the queue offsets of a row.
    ///
    /// # Errors
    /// [`Error::InvalidMessage`] for one that is not above those before it in its queue.
    pub fn take(&mut self, record: &Record<'_>) -> Result<()> {
        let transaction = sys_flag::transaction(record.sys_flag);
        if !matches!(transaction, Transaction::None | Transaction::Commit) {
            return Ok(()); // It is in no queue.
        }
        let range = range(record)?;
        let first = range.base_queue_offset;
        let end = self.ends.entry((record.topic.into(), record.queue_id)).or_insert(0);
        if first < *end {
            let reason = format!(
                "expected {end} or more in queue {} of {:?}, found {first}: remove a row that is \
                 there twice, and keep the order of the rows",
                record.queue_id,
                String::from_utf8_lossy(record.topic),
            );
            return Err(refused("queue_offset", reason));
        }
        *end = first.saturating_add(range.message_count.into());
        Ok(())
    }
}

/// Checks a row's values. `is_whole` marks a record given as bytes: its topic may be any.
///
/// # Errors
/// [`Error::InvalidMessage`] for a value that no append takes, and for a time that no clock shows.
pub fn check(record: &Record<'_>, is_whole: bool) -> Result<()> {
    if !is_whole && !names_a_folder(record.topic) {
        let topic = String::from_utf8_lossy(record.topic);
        return Err(refused("topic", format!("{topic:?} cannot name a folder")));
    }
    check_range("queue_id", record.queue_id.into(), most_queue_id(false).into())?;
    check_range("store_timestamp_ms", record.store_timestamp_ms, MOST_TIME_MS)?;
    check_range("queue_offset", record.queue_offset, MOST_QUEUE_OFFSET)?;
    check_range("properties: INNER_BASE", range(record)?.base_queue_offset, MOST_QUEUE_OFFSET)?;
    for (_, _, number) in lmq::pairs(&request_of(record)) {
        check_range("properties: INNER_MULTI_QUEUE_OFFSET", number, MOST_QUEUE_OFFSET)?;
    }
    Ok(())
}

fn range(record: &Record<'_>) -> Result<InnerRange> {
    if !sys_flag::is_inner_batch(record.sys_flag) {
        return Ok(InnerRange { base_queue_offset: record.queue_offset, message_count: 1 });
    }
    let mut indexed = properties::indexed(record.properties);
    let first = record.queue_offset.to_string();
    indexed.inner_base.get_or_insert(first.as_bytes());
    batch::inner_range(&indexed, record.queue_offset).map_err(|error| {
        refused("properties", format!("expected {}, found {}", error.expected, error.found))
    })
}

fn check_range(field: &'static str, found: i64, most: i64) -> Result<()> {
    if (0..=most).contains(&found) {
        return Ok(());
    }
    Err(refused(field, format!("expected 0 to {most}, found {found}")))
}

#[cold]
pub fn refused(field: &'static str, reason: String) -> Error {
    Error::InvalidMessage { field, reason, status: PutStatus::MessageIllegal, limit: None }
}
