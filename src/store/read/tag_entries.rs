//! Detects whether an index file has entries for its messages' tags: RocketMQ 5.3 puts none, 5.4
//! and later one each. Only the messages tell.

use crate::error::Result;
use crate::format::java::TopicHash;
use crate::log::commit_log::Found;
use crate::log::{CommitLog, IndexFile};

use crate::store::dispatch::dispatcher::DispatchRequest;

/// Entries examined at each end of a file.
const ENTRIES_ASKED: u32 = 64;

/// Result for the messages at both ends of an index file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TagEntries {
    /// Offset of a message whose tags have an entry.
    pub(crate) with: Option<u64>,
    pub(crate) without: Option<u64>,
}

impl TagEntries {
    pub(crate) fn of(file: &IndexFile, log: &CommitLog) -> Result<Self> {
        let mut found = Self::default();
        let count = file.header()?.index_count.unsigned_abs().saturating_sub(1);
        let last = count.saturating_sub(ENTRIES_ASKED).saturating_add(1);
        found.read(file, log, last, count)?;
        if last > 1 {
            found.read(file, log, 1, count)?;
        }
        Ok(found)
    }

    fn read(&mut self, file: &IndexFile, log: &CommitLog, first: u32, count: u32) -> Result<()> {
        let wanted = count.saturating_sub(first).saturating_add(1).min(ENTRIES_ASKED);
        let entries = file.entries_from(first, wanted)?;
        let mut buffer = Vec::new();
        let mut begin = 0;
        for group in entries.chunk_by(|a, b| a.physical_offset == b.physical_offset) {
            // The first and the last message may have entries that were not read.
            let is_whole = (begin > 0 || first == 1)
                && (begin + group.len() < entries.len() || first + wanted > count);
            begin += group.len();
            let at = group.first().and_then(|entry| u64::try_from(entry.physical_offset).ok());
            let Some(at) = at else { continue };
            let Found::Message(view) = log.read(at, 0, &mut buffer)? else { continue };
            let request = DispatchRequest::of(&view);
            let hash = request.tag_hash_of(TopicHash::of(request.topic));
            // A key may have the text of a tag entry.
            let hash = hash.filter(|hash| request.key_hashes().all(|key| key != *hash));
            let Some(hash) = hash else { continue };
            if group.iter().any(|entry| entry.key_hash == hash) {
                self.with.get_or_insert(at);
            } else if is_whole {
                self.without.get_or_insert(at);
            }
        }
        Ok(())
    }
}
