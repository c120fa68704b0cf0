//! Groups that skip, miss or repeat messages.

use std::collections::BTreeMap;
use std::path::Path;

use super::losses::{Lost, LostInQueue};
use crate::care::topics::is_system_group;
use crate::error::named;
use crate::format::config::tables::OffsetTable;
use crate::format::width::{clamp_u64, saturating_i64};
use crate::store::folder::config_file;
use crate::store::folder::paths::StorePaths;
use crate::store::queue_table::QueueTable;
use crate::store::read::missing_end::MissingEnd;

named! {
    /// How a group's offset and its queue disagree.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Fate {
        /// Behind the end: new messages are skipped.
        Skips = "skips",
        /// Unread messages are lost.
        Misses = "misses",
        /// Unread messages were deleted.
        Deleted = "deleted-unread",
        /// Negative: it begins anew.
        Anew = "begins-anew",
        /// Behind its own backup: it gets messages again.
        Repeats = "repeats",
        /// Its last offsets may not have been written.
        MayRepeat = "may-repeat",
    }
}

/// Fate of a group in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFate {
    /// Group.
    pub group: String,
    /// Topic.
    pub topic: String,
    /// Fate.
    pub fate: Fate,
    /// Number of queues.
    pub queues: u64,
    /// Number of messages.
    pub messages: u64,
}

/// Whether the backup of a table of offsets has a right offset where the table has a wrong one:
/// `mqstore groups --reset-to backup` takes it.
pub(super) fn backup_helps(paths: &StorePaths, queues: &QueueTable) -> bool {
    let table = |path: &Path| {
        let bytes = config_file::read_json(paths.storage(), path).ok().flatten()?;
        OffsetTable::parse(&bytes).ok()
    };
    [false, true].into_iter().any(|is_light| {
        let path = paths.consumer_offsets(is_light);
        let tables = table(&path).zip(table(&config_file::backup_of(&path)));
        tables.is_some_and(|(table, backup)| {
            table.iter().any(|at| {
                queues.get(at.topic.as_bytes(), at.queue_id).is_some_and(|queue| {
                    let is_right =
                        |offset| (queue.min_offset()..=queue.max_offset()).contains(&offset);
                    let is_wrong = at.queue_offset < 0 || at.queue_offset > queue.max_offset();
                    is_wrong && backup.get(at.topic, at.group, at.queue_id).is_some_and(is_right)
                })
            })
        })
    })
}

pub(super) fn fates(
    paths: &StorePaths,
    queues: &QueueTable,
    lost: &Lost,
    missing: Option<&MissingEnd>,
    crashed: bool,
) -> Vec<GroupFate> {
    let mut fates: BTreeMap<(String, String, Fate), (u64, u64)> = BTreeMap::new();
    for is_light in [false, true] {
        let path = paths.consumer_offsets(is_light);
        let Ok(Some(loaded)) = config_file::load(paths.storage(), &path, OffsetTable::parse) else {
            continue;
        };
        let backup = config_file::read_json(paths.storage(), &config_file::backup_of(&path));
        let backup = backup.ok().flatten().and_then(|bytes| OffsetTable::parse(&bytes).ok());
        let is_old = crashed || loaded.warning().is_some();
        for at in loaded.table.iter() {
            let Some(queue) = queues.get(at.topic.as_bytes(), at.queue_id) else { continue };
            let ranges = missing.iter().flat_map(|missing| &missing.queues);
            let cut = ranges.clone().find(|range| {
                *range.topic == *at.topic.as_bytes() && range.queue_id == at.queue_id
            });
            let end = cut.map_or(queue.max_offset(), |range| range.first);
            let offset = at.queue_offset;
            let mut add = |fate, messages: i64| {
                let key = (at.group.to_owned(), at.topic.to_owned(), fate);
                let sum = fates.entry(key).or_default();
                *sum = (sum.0 + 1, sum.1.saturating_add(clamp_u64(messages)));
            };
            if offset < 0 {
                add(Fate::Anew, end - queue.min_offset());
            } else if offset > end {
                add(Fate::Skips, offset - end);
            } else if offset < queue.min_offset() {
                add(Fate::Deleted, queue.min_offset() - offset);
            }
            let was = backup.as_ref().and_then(|was| was.get(at.topic, at.group, at.queue_id));
            let was = was.map_or(offset, |was| was.min(end));
            let from = offset.max(queue.min_offset());
            if offset >= 0 && was > from {
                add(Fate::Repeats, was - from);
            } else if (0..end).contains(&offset) && is_old && !is_system_group(at.group) {
                add(Fate::MayRepeat, end - offset.max(queue.min_offset()));
            }
            let of_queue = |of: &&LostInQueue| of.topic == at.topic && of.queue_id == at.queue_id;
            if let Some(of) = lost.queues.iter().find(of_queue).filter(|of| of.last >= offset) {
                let unread = of.last.saturating_sub(offset.max(of.first)).saturating_add(1);
                add(Fate::Misses, unread.min(saturating_i64(of.messages)));
            }
        }
    }
    let row = |((group, topic, fate), (queues, messages))| GroupFate {
        group,
        topic,
        fate,
        queues,
        messages,
    };
    fates.into_iter().map(row).collect()
}
