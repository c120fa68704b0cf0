//! The end of a log that was not closed or grows, and the offset from which queues are in doubt.

use crate::error::{Error, Result};
use crate::format::checkpoint::CheckpointFields;
use crate::format::message::peek;
use crate::format::width::at_least_0;
use crate::log::CommitLog;
use crate::log::commit_log::Found;
use crate::log::read::scanner::{Scanned, Scanner, Stop};

use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::queue_audit::is_known;
use crate::store::queue_table::QueueTable;
use crate::store::read::entry_search;

/// Offset from which a reader must compare queues with the log: the queues' end, or after a crash
/// where recovery would begin (`CommitLog.isMappedFileMatchedRecover`).
pub fn start_of_doubt(
    log: &CommitLog,
    queues: &QueueTable,
    checkpoint: &CheckpointFields,
    crashed: bool,
) -> Result<u64> {
    if queues.is_unsound() {
        return Ok(log.min_offset());
    }
    let all = queues.all();
    let reach = all.iter().map(|queue| queue.reach()).max().unwrap_or(-1);
    let reach = at_least_0(reach).max(log.min_offset());
    // An entry without its message tells nothing.
    if !crashed && let Some(end) = entry_search::end_of_queues(log, &all)? {
        let reach = end.max(log.min_offset());
        let mut buffer = Vec::new();
        let begins = |found: &Found<'_>| !matches!(found, Found::Bad(_) | Found::OutOfRange);
        if reach >= log.end_offset() || begins(&log.read(reach, 0, &mut buffer)?) {
            return Ok(reach.min(log.end_offset()));
        }
    }
    let known_ms = checkpoint.min_timestamp_ms();
    for file in log.run().files().iter().rev() {
        if file.base_offset >= log.end_offset() {
            continue;
        }
        let mut head = [0; peek::HEAD];
        let read = log.run().read_at(&mut head, file.base_offset)?;
        let time =
            head.get(..read).and_then(|head| peek::store_timestamp_ms(head, file.base_offset));
        // At most the file where the queues end: a checkpoint from the future proves nothing.
        if time.is_some_and(|time| time != 0 && time <= known_ms) && file.base_offset <= reach {
            return Ok(file.base_offset);
        }
    }
    Ok(log.min_offset())
}

/// Finds the end of an unclosed or growing log: behind its last whole record. Searches from the
/// last record known to file beginnings or queues. `queues` also tell records behind damage from
/// remains of a recycled file. A last record with zeros in topic or properties counts as whole in a
/// cleanly closed log; otherwise it is left out and returned. Behind `known`, up to which a running
/// writer wrote, zeros end the log.
pub fn find_end(
    log: &CommitLog,
    queues: Option<&QueueTable>,
    is_closed: bool,
    known: Option<u64>,
) -> Result<Option<u64>> {
    let (end, left_out) = end_of(log, queues, is_closed, known)?;
    log.set_end(end);
    Ok(left_out)
}

/// The end that [`find_end`] sets, and the record that is left out.
pub fn end_of(
    log: &CommitLog,
    queues: Option<&QueueTable>,
    is_closed: bool,
    known: Option<u64>,
) -> Result<(u64, Option<u64>)> {
    let files_end = log.run().end_offset().unwrap_or(0);
    let mut start = log.run().min_offset().unwrap_or(0);
    let mut buffer = Vec::new();
    for file in log.run().files().iter().rev() {
        if matches!(
            log.read_before(file.base_offset, files_end, 0, &mut buffer)?,
            Found::Message(_)
        ) {
            start = file.base_offset;
            break;
        }
    }
    if let Some(queues) = queues
        && let Some(known) = last_known(log, files_end, queues, &mut buffer)?
    {
        start = start.max(known);
    }
    let mut scanner = Scanner::new(log, start, files_end, false);
    let mut end = start;
    let mut newest = 0;
    let mut last = None;
    loop {
        let at = scanner.position();
        match scanner.step()? {
            Ok(Scanned::Message(view)) => {
                // Remains of a recycled file are older than earlier messages.
                if view.store_timestamp_ms() < newest
                    && u64::try_from(view.physical_offset()) != Ok(end)
                    && !match queues {
                        Some(queues) => is_known(queues, &DispatchRequest::of(&view))?,
                        None => false,
                    }
                {
                    continue;
                }
                newest = newest.max(view.store_timestamp_ms());
                let begin = at_least_0(view.physical_offset());
                end = begin.saturating_add(u64::from(view.store_size()));
                last = Some(begin);
            }
            Ok(Scanned::Blank { physical_offset, size }) => {
                if physical_offset == end {
                    end = physical_offset.saturating_add(u64::from(size));
                }
            }
            Err(Stop::End) => break,
            Err(Stop::Empty) if at == end && known.is_some_and(|known| known <= end) => break,
            Err(Stop::Empty) if rest_is_empty(log, at)? => break,
            Err(Stop::Empty | Stop::Damage(_)) => {
                if !scanner.resync()? {
                    break;
                }
            }
        }
    }
    // The last one may be incomplete: being written, or after a power cut.
    let mut left_out = None;
    if let Some(begin) = last {
        let (is_right, lacks_bytes) = match log.read_before(begin, files_end, 0, &mut buffer)? {
            Found::Message(view) => {
                (view.check_body_crc().is_ok(), !is_closed && peek::lacks_bytes(&view))
            }
            _ => (false, false),
        };
        if !is_right || lacks_bytes {
            end = begin;
        }
        left_out = (is_right && lacks_bytes).then_some(begin);
    }
    Ok((end, left_out))
}

/// Start of the last record that the queues lead to, if it is whole: earlier ones need not be
/// walked.
fn last_known(
    log: &CommitLog,
    end: u64,
    queues: &QueueTable,
    buffer: &mut Vec<u8>,
) -> Result<Option<u64>> {
    let all = queues.all();
    let Some(queue) = all.iter().max_by_key(|queue| queue.reach()) else { return Ok(None) };
    let last = queue.units(queue.max_offset().saturating_sub(1), 1)?.pop();
    let begin = last.and_then(|unit| u64::try_from(unit.entry.physical_offset).ok());
    let Some(begin) = begin else { return Ok(None) };
    let Found::Message(view) = log.read_before(begin, end, 0, buffer)? else { return Ok(None) };
    let is_whole = view.check_body_crc().is_ok() && !peek::lacks_bytes(&view);
    Ok((is_whole && is_known(queues, &DispatchRequest::of(&view))?).then_some(begin))
}

/// Whether the files from `offset` on are holes.
fn rest_is_empty(log: &CommitLog, offset: u64) -> Result<bool> {
    let mut block = vec![0; 1 << 16];
    for file in log.run().files().iter() {
        if file.base_offset.saturating_add(log.run().file_size()) <= offset {
            continue;
        }
        let open = log.run().open(file)?;
        let mut position = offset.saturating_sub(file.base_offset);
        while let Some(data) = open.next_data(position).map_err(Error::io("read", &file.path))? {
            let read = open.read_at(&mut block, data).map_err(Error::io("read", &file.path))?;
            if block.get(..read).is_some_and(|bytes| bytes.iter().any(|&byte| byte != 0)) {
                return Ok(false);
            }
            if read == 0 {
                break;
            }
            position = data + read as u64;
        }
    }
    Ok(true)
}
