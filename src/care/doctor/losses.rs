//! Counts lost messages (queue entries that lead to no whole message), and groups that skip, miss or
//! repeat messages.

use std::collections::{BTreeMap, BTreeSet};

use crate::care::broker::first_time_ms;
use crate::care::topics::is_system_group;
use crate::error::{Result, named};
use crate::format::config::tables::OffsetTable;
use crate::format::width::{clamp_u64, saturating_i64};
use crate::log::CommitLog;
use crate::log::commit_log::Found;
use crate::store::folder::config_file::{self, Loaded};
use crate::store::folder::paths::StorePaths;
use crate::store::queue_table::QueueTable;
use crate::store::read::entry_search::shift_of;
use crate::store::read::missing_end::MissingEnd;

const MOST_QUEUES: usize = 1_000;
pub(super) const LEAST_WRONG: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) after_ms: Option<i64>,
    pub(super) before_ms: Option<i64>,
}

/// Files of another log, with the entries into each.
pub(super) fn foreign_files(
    log: &CommitLog,
    queues: &QueueTable,
    (gaps, jumps): (&[Gap], &BTreeSet<u64>),
) -> Result<Vec<(u64, Gap)>> {
    let size = log.run().file_size().max(1);
    let mut buffer = Vec::new();
    let mut counts: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for queue in queues.all() {
        let (topic, queue_id) = (queue.topic(), queue.queue_id());
        queue.each_unit(|unit| {
            let Some((at, len)) = unit.place() else { return };
            let shift = match log.read(at, 0, &mut buffer) {
                Ok(Found::Message(view)) if view.store_size() == len => {
                    shift_of(&view, queue.kind(), topic, queue_id, unit)
                }
                _ => None,
            };
            let (right, wrong) = counts.entry(at - at % size).or_default();
            match shift {
                Some(0) => *right += 1,
                Some(_) => {}
                None => *wrong += 1,
            }
        })?;
    }
    let has_own = counts.values().any(|(right, wrong)| right > wrong);
    let files = log.run().files();
    let found = files.iter().enumerate().filter_map(|(number, file)| {
        let (from, to) = (file.base_offset, file.base_offset.saturating_add(size));
        let entries = counts.get(&from).filter(|(right, _)| *right == 0)?.1;
        let is_damaged = gaps.iter().any(|gap| gap.from < to && from < gap.to);
        let is_edge = jumps.contains(&from) || jumps.contains(&to);
        let time = |at: Option<usize>| first_time_ms(&**log.run().storage(), files.get(at?)?);
        let gap = Gap {
            from,
            to,
            after_ms: time(number.checked_sub(1)),
            before_ms: time(number.checked_add(1)),
        };
        let is_foreign = has_own && entries >= LEAST_WRONG && is_edge && !is_damaged;
        is_foreign.then_some((entries, gap))
    });
    Ok(found.collect())
}

pub(super) fn with_files(gaps: &[Gap], foreign: Vec<(u64, Gap)>) -> Vec<Gap> {
    let mut all = gaps.to_vec();
    all.extend(foreign.into_iter().map(|(_, gap)| gap));
    all.sort_by_key(|gap| gap.from);
    all
}

/// Lost messages of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostInQueue {
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue_id: i32,
    /// Number.
    pub messages: u64,
    /// First queue offset.
    pub first: i64,
    /// Last queue offset.
    pub last: i64,
}

/// Lost messages of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Number.
    pub messages: u64,
    /// The first thousand queues.
    pub queues: Vec<LostInQueue>,
    /// Store time before them.
    pub from_ms: Option<i64>,
    /// Store time behind them.
    pub to_ms: Option<i64>,
}

pub(super) fn count(
    queues: &QueueTable,
    gaps: &[Gap],
    missing: Option<&MissingEnd>,
) -> Result<Lost> {
    let mut lost = Lost::default();
    let first = gaps.first().map(|gap| gap.from).into_iter().chain(missing.map(|end| end.from));
    let Some(first) = first.min() else { return Ok(lost) };
    let end = missing.map_or(u64::MAX, |missing| missing.from);
    for queue in queues.all() {
        if queue.reach() < saturating_i64(first) {
            continue;
        }
        let mut found: Option<LostInQueue> = None;
        queue.each_unit(|unit| {
            let Ok(place) = u64::try_from(unit.physical_offset) else { return };
            if unit.store_size <= 0 {
                return;
            }
            let behind = gaps.partition_point(|gap| gap.from <= place);
            let gap = behind.checked_sub(1).and_then(|at| gaps.get(at));
            let gap = gap.filter(|gap| place < gap.to);
            if gap.is_none() && place < end {
                return;
            }
            if let Some(gap) = gap.or(gaps.last().filter(|_| place >= end)) {
                lost.from_ms = [lost.from_ms, gap.after_ms].into_iter().flatten().min();
                lost.to_ms = lost.to_ms.max(gap.before_ms);
            }
            let of_queue = found.get_or_insert_with(|| LostInQueue {
                topic: String::from_utf8_lossy(queue.topic()).into_owned(),
                queue_id: queue.queue_id(),
                messages: 0,
                first: unit.number,
                last: unit.number,
            });
            of_queue.messages += clamp_u64(unit.count.max(1));
            of_queue.last = unit.number;
        })?;
        if let Some(found) = found {
            lost.messages += found.messages;
            if lost.queues.len() < MOST_QUEUES {
                lost.queues.push(found);
            }
        }
    }
    lost.queues.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
    lost.messages = lost.messages.max(missing.map_or(0, MissingEnd::messages));
    Ok(lost)
}

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

fn offset_tables(
    paths: &StorePaths,
) -> impl Iterator<Item = (Loaded<OffsetTable>, Option<OffsetTable>)> {
    [false, true].into_iter().filter_map(|is_light| {
        let path = paths.consumer_offsets(is_light);
        let loaded =
            config_file::load(paths.storage(), &path, OffsetTable::parse).ok().flatten()?;
        let backup = config_file::read_json(paths.storage(), &config_file::backup_of(&path));
        let backup = backup.ok().flatten().and_then(|bytes| OffsetTable::parse(&bytes).ok());
        Some((loaded, backup))
    })
}

/// Whether the backup of a table of offsets has a right offset where the table has a wrong one:
/// `mqstore groups --reset-to backup` takes it.
pub(super) fn backup_helps(paths: &StorePaths, queues: &QueueTable) -> bool {
    let read = offset_tables(paths).filter(|(loaded, _)| loaded.warning().is_none());
    read.filter_map(|(loaded, backup)| Some((loaded.table, backup?))).any(|(table, backup)| {
        table.iter().any(|at| {
            queues.get(at.topic.as_bytes(), at.queue_id).is_some_and(|queue| {
                let is_right = |offset| (queue.min_offset()..=queue.max_offset()).contains(&offset);
                let is_wrong = at.queue_offset < 0 || at.queue_offset > queue.max_offset();
                is_wrong && backup.get(at.topic, at.group, at.queue_id).is_some_and(is_right)
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
    for (loaded, backup) in offset_tables(paths) {
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
