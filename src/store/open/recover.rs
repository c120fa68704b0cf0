//! Recovery: find the log's end, repair queues and index, and report it
//! (`DefaultMessageStore.recover`).
//!
//! First everything is analysed without a change ([`super::analysis`]). Then repair is refused if
//! it would hide damage, or done ([`repair`]). An interrupted repair loses nothing.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::files::run::new_files;
use crate::files::{FileRun, Storage};
use crate::format::message::properties;
use crate::format::width::{offset_or_max, saturating_i64};
use crate::log::commit_log::Found;
use crate::log::index::writer::IndexService;
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
    let most = saturating_i64(most);
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
    paths: &StorePaths,
    now_ms: i64,
) -> Result<RecoveryReport> {
    let quarantine = analysis.tail.keep(log, analysis.end, paths, now_ms)?;
    log.set_end(analysis.end);
    let all = queues.all();
    if mode == RecoveryMode::Crash && all.len() >= new_files::MANY {
        // Files are created together: a killed process may have left names that are not durable.
        queues.sync_file_systems()?;
    }
    for queue in all {
        remove_misplaced(queue.run(), paths.storage())?;
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
        rebuilt.push(finding.folder(queues));
    }
    if log.run().end_offset().is_some_and(|end| end > analysis.end) {
        // Durable before the log loses a file: an entry that leads into a missing one is refused.
        queues.flush_these(&mut truncated)?;
    }
    Ok(RecoveryReport { quarantine, rebuilt, ..analysis.report(mode) })
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

pub(super) fn mend_index(
    service: &mut IndexService,
    analysis: &Analysis,
    log: &CommitLog,
    known_ms: i64,
) -> Result<u64> {
    service.remove_from_unusable()?;
    service.keep_while(|header| header.end_timestamp_ms <= known_ms)?;
    if let Some(name) = analysis.unsound_index {
        service.remove_from_name(name)?;
    }
    let end = saturating_i64(analysis.end);
    // `None` as in a file that retention deleted.
    service.truncate(end, |offset| log.store_timestamp_ms(offset_or_max(offset), 0))?;
    let Some((first_keyed, _)) = analysis.keyed else { return Ok(analysis.end) };
    let first_file = service.run().files().first().map(Arc::clone);
    let begins = match &first_file {
        Some(file) => service.run().open(file)?.header()?.begin_physical_offset,
        None => i64::MAX,
    };
    // Files cannot be added in front, so the whole index is rebuilt.
    if offset_or_max(begins) > first_keyed {
        service.remove_from_name(0)?;
        return Ok(log.min_offset());
    }
    service.skip_keys_already_put()?;
    let indexed = service.last_keyed_offset()?.and_then(|offset| u64::try_from(offset).ok());
    match (indexed, analysis.keyed) {
        (Some(at), Some((_, last)))
            if at >= last && has_all_keys(service, log, at, known_ms < i64::MAX)? =>
        {
            Ok(analysis.end)
        }
        (Some(at), _) => Ok(at.max(log.min_offset())),
        (None, _) => Ok(log.min_offset()),
    }
}

/// Whether the index holds every key of its last record: a crash may have kept some. After a clean stop
/// tags without an entry are those of a release that puts none.
fn has_all_keys(
    service: &IndexService,
    log: &CommitLog,
    last_keyed: u64,
    crashed: bool,
) -> Result<bool> {
    let mut buffer = Vec::new();
    let Found::Message(view) = log.read(last_keyed, 0, &mut buffer)? else {
        return Ok(false);
    };
    let properties = properties::indexed(view.raw_properties());
    let keys = properties.keys.map_or(0, |keys| properties::split_keys(keys).count());
    let has_tags = crashed && service.tag_entries;
    let has_tags = has_tags && properties.tags.is_some_and(|tags| !tags.is_empty());
    let wanted = keys + usize::from(properties.unique_key.is_some()) + usize::from(has_tags);
    Ok(service.run().keys_put(view.physical_offset())? >= wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Access, Os};

    #[test]
    fn the_checkpoint_tells_of_no_entry_that_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let lowered = |first_missing, place, time| {
            let path = dir.path().join("checkpoint");
            let mut checkpoint = StoreCheckpoint::load(&Os, &path, Access::ReadWrite).unwrap();
            checkpoint.fields.logics_physical_offset = place;
            checkpoint.fields.logics_msg_timestamp_ms = time;
            let analysis =
                Analysis { end: 900, last_record: Some(800), first_missing, ..Analysis::default() };
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
