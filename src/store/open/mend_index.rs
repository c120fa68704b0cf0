//! Mends the index at open: unreliable files and entries go, and the log tells the rest.

use std::sync::Arc;

use super::analysis::Analysis;
use crate::error::Result;
use crate::format::message::properties;
use crate::format::width::{at_most_i64, or_nowhere};
use crate::log::CommitLog;
use crate::log::commit_log::Found;
use crate::log::index::writer::IndexService;

/// Removes unreliable parts of the index; returns where the log must be read again for it.
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
    let end = at_most_i64(analysis.end);
    service.truncate(end, |offset| stored_at(log, offset))?;
    let Some((first_keyed, _)) = analysis.keyed else { return Ok(analysis.end) };
    let first_file = service.run().files().first().map(Arc::clone);
    let begins = match &first_file {
        Some(file) => service.run().open(file)?.header()?.begin_physical_offset,
        None => i64::MAX,
    };
    // Files cannot be added in front, so the whole index is rebuilt.
    if or_nowhere(begins) > first_keyed {
        service.remove_from(0)?;
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
    let has_tags = crashed && service.puts_tags();
    let has_tags = has_tags && properties.tags.is_some_and(|tags| !tags.is_empty());
    let wanted = keys + usize::from(properties.unique_key.is_some()) + usize::from(has_tags);
    Ok(service.keys_put(view.physical_offset())? >= wanted)
}

/// Store time of a record; `None` if there is none, as in a file that retention deleted.
fn stored_at(log: &CommitLog, offset: i64) -> Result<Option<i64>> {
    log.store_timestamp_ms(or_nowhere(offset), 0)
}
