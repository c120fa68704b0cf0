//! Recovery: find the log's end, repair queues and index, and report it
//! (`DefaultMessageStore.recover`).
//!
//! First everything is analysed without a change ([`super::analysis`]). Then repair is refused if
//! it would hide damage, or done ([`repair`]). An interrupted repair loses nothing.

use crate::error::{Error, Result};
use crate::files::run::new_files;
use crate::files::{FileRun, Storage};
use crate::format::width::at_most_i64;
use crate::log::{CommitLog, StoreCheckpoint};

use super::analysis::Analysis;
use crate::store::folder::paths::StorePaths;
use crate::store::queue_table::QueueTable;
use crate::store::recovery_report::{RecoveryMode, RecoveryReport};

/// Lowers the checkpoint to existing queue entries before anything else changes: after a crash
/// RocketMQ 5.5 begins there and builds no earlier entry.
pub(crate) fn lower_checkpoint(
    analysis: &Analysis,
    checkpoint: &mut StoreCheckpoint,
    storage: &dyn Storage,
) -> Result<()> {
    let fields = &mut checkpoint.fields;
    // A sealed log tells only its end.
    let last = if analysis.sealed { analysis.end.checked_sub(1) } else { analysis.last_record };
    let most = last.unwrap_or(0).min(analysis.first_missing.unwrap_or(u64::MAX));
    let most = at_most_i64(most);
    let is_right = (0..=most).contains(&fields.logics_physical_offset);
    let goes_by_time = fields.logics_physical_offset == 0 && analysis.first_missing.is_some();
    if is_right && !(goes_by_time && fields.logics_msg_timestamp_ms > 0) {
        return Ok(());
    }
    if !is_right {
        fields.logics_physical_offset = if fields.logics_physical_offset < 0 { 0 } else { most };
    }
    if fields.logics_physical_offset == 0 {
        // Without an offset RocketMQ uses this time.
        fields.logics_msg_timestamp_ms = 0;
    }
    checkpoint.flush(storage)
}

/// Copies what is behind the log into quarantine and cuts the queues; the index, the log, dispatch
/// and [`make_durable`] follow.
///
/// # Errors
/// [`Error::Io`]; the store is partly repaired then, and the next open continues.
pub fn repair(
    analysis: &Analysis,
    mode: RecoveryMode,
    log: &CommitLog,
    queues: &QueueTable,
    storage: &dyn Storage,
    paths: &StorePaths,
    now_ms: i64,
) -> Result<RecoveryReport> {
    let quarantine = analysis.tail.keep(log, analysis.end, storage, paths, now_ms)?;
    log.set_end(analysis.end);
    let all = queues.all();
    if mode == RecoveryMode::Crash && all.len() >= new_files::MANY {
        // Files are created together: a killed process may have left names that are not durable.
        queues.sync_file_systems()?;
    }
    for queue in all {
        remove_misplaced(queue.run(), storage)?;
        mend_lengths(queue.run())?;
        if let Some(ext) = queue.ext() {
            mend_lengths(ext.run())?;
        }
    }
    let (mut rebuilt, mut truncated) = (Vec::new(), Vec::new());
    for finding in &analysis.queues {
        if finding.good != finding.found
            && let Some(queue) = queues.get(&finding.topic, finding.queue_id)
        {
            queue.truncate(finding.good)?;
            truncated.push(queue);
        }
        rebuilt.push(format!(
            "{}/{}/{}",
            queues.kind_of(&finding.topic).folder(),
            String::from_utf8_lossy(&finding.topic),
            finding.queue_id
        ));
    }
    if log.run().end_offset().is_some_and(|end| end > analysis.end) {
        // Durable before the log loses a file: an entry that leads into a missing one is refused.
        queues.flush_these(&mut truncated)?;
    }
    Ok(RecoveryReport {
        mode,
        end_physical_offset: analysis.end,
        cut_bytes: analysis.tail.data_end.map_or(0, |end| end - analysis.end),
        cut_reason: analysis.tail.data_end.and(analysis.stop.clone()),
        quarantine,
        quarantined_messages: analysis.tail.messages.clone(),
        quarantined_count: analysis.tail.count,
        rebuilt,
        dispatched: 0,
    })
}

/// Flushes the accepted log, rewritten unless `written_again`: what readers see from now on must
/// survive a power cut.
///
/// # Errors
/// [`Error::Io`]; the store must not be written then.
pub fn make_durable(analysis: &Analysis, written_again: bool, log: &CommitLog) -> Result<()> {
    if !written_again {
        log.write_again(analysis.unproven, || true)?;
    }
    if !analysis.sealed {
        for file in log.run().files().iter() {
            log.run().open(file)?.sync().map_err(Error::flush(&file.path))?;
        }
    }
    Ok(())
}

/// Removes misplaced files of a queue: they hide those at the right offsets.
fn remove_misplaced(run: &FileRun, storage: &dyn Storage) -> Result<()> {
    let size = run.file_size();
    let mut removed = false;
    for file in run.files().iter().filter(|file| file.base_offset.checked_rem(size) != Some(0)) {
        storage.remove_file(&file.path).map_err(Error::io("remove", &file.path))?;
        removed = true;
    }
    if removed {
        run.refresh()?;
    }
    Ok(())
}

fn mend_lengths(run: &FileRun) -> Result<()> {
    let size = run.file_size();
    let mut mended = false;
    for file in run.files().iter().filter(|file| file.len != size) {
        let open = run.open(file)?;
        open.set_len(size).map_err(Error::io("resize", &file.path))?;
        open.sync().map_err(Error::flush(&file.path))?;
        mended = true;
    }
    if mended {
        run.refresh()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Access, Os};
    use crate::store::dispatch::log_parts::LastParts;
    use crate::store::open::tail::Tail;

    #[test]
    fn the_checkpoint_tells_of_no_entry_that_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let lowered = |first_missing, place, time| {
            let path = dir.path().join("checkpoint");
            let mut checkpoint = StoreCheckpoint::load(&Os, &path, Access::ReadWrite).unwrap();
            checkpoint.fields.logics_physical_offset = place;
            checkpoint.fields.logics_msg_timestamp_ms = time;
            let analysis = Analysis {
                end: 900,
                stop: None,
                newest_timestamp_ms: 7,
                ahead: None,
                last_record: Some(800),
                unproven: 900,
                tail: Tail::default(),
                queues: Vec::new(),
                first_missing,
                keyed: None,
                unsound_index: None,
                read: LastParts::default(),
                sealed: false,
            };
            lower_checkpoint(&analysis, &mut checkpoint, &Os).unwrap();
            let fields = checkpoint.fields;
            (fields.logics_physical_offset, fields.logics_msg_timestamp_ms)
        };
        assert_eq!(lowered(None, 700, 5), (700, 5));
        assert_eq!(lowered(Some(300), 700, 5), (300, 5));
        // Without a place the time counts.
        assert_eq!(lowered(None, 0, 5), (0, 5));
        assert_eq!(lowered(Some(300), 0, 5), (0, 0));
        assert_eq!(lowered(None, -1, 5), (0, 0));
    }
}
