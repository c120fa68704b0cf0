//! From where a start delivers delayed messages.

use std::sync::Arc;

use crate::error::Result;
use crate::files::Storage;
use crate::format::config::tables::parse_delay_offsets;
use crate::format::queue::consume_queue::SCHEDULE_TOPIC;
use crate::log::{CommitLog, Queue, QueueKind};
use crate::store::folder::config_file;
use crate::store::folder::paths::StorePaths;
use crate::store::queue_table::QueueTable;
use crate::store::read::queue_read::view_of;

const BLOCK: usize = 4096;

/// Delayed messages that were due before the newest message, and that a start delivers again: a level
/// without an offset begins at its queue's first message (`ScheduleMessageService#start`).
pub(super) fn delivered_again(
    storage: &dyn Storage,
    paths: &StorePaths,
    (log, queues): (&CommitLog, &QueueTable),
) -> Result<u64> {
    let path = paths.config().join("delayOffset.json");
    // An unreadable table keeps RocketMQ from starting, and has its own finding.
    let Ok(offsets) = config_file::load(storage, &path, parse_delay_offsets) else { return Ok(0) };
    let offsets = offsets.map(|loaded| loaded.table).unwrap_or_default();
    let (mut again, mut newest_ms) = (0, None);
    for queue in queues.all() {
        let level = queue.queue_id().saturating_add(1);
        if queue.topic() != SCHEDULE_TOPIC
            || queue.kind() != QueueKind::Plain
            || offsets.iter().any(|(known, _)| *known == level)
        {
            continue;
        }
        let newest_ms = *newest_ms.get_or_insert_with(|| newest_store_time(log, queues));
        let mut number = queue.min_offset();
        loop {
            let units = queue.units(number, BLOCK)?;
            let Some(last) = units.last() else { break };
            number = last.number.saturating_add(1);
            // An entry of this topic has the time of delivery for a tags code.
            again += units.iter().filter(|unit| (1..=newest_ms).contains(&unit.tags_code)).count()
                as u64;
        }
    }
    Ok(again)
}

/// Store time of the last message with a queue entry: a checkpoint may have none.
fn newest_store_time(log: &CommitLog, queues: &QueueTable) -> i64 {
    let last =
        |queue: &Arc<Queue>| queue.units(queue.max_offset().saturating_sub(1), 1).ok()?.pop();
    let place = queues.all().iter().filter_map(last).map(|unit| unit.physical_offset).max();
    let record: Option<Box<[u8]>> = place.and_then(|place| log.get(place, log.end_offset()).ok());
    record.and_then(|record| Some(view_of(&record)?.store_timestamp_ms())).unwrap_or(0)
}
