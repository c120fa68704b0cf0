//! The table of consumer groups' offsets (`ConsumerOffsetManager`), and setting offsets back after
//! a crash.

use std::path::PathBuf;

use crate::error::Result;
use crate::files::{Stamp, SystemClock};
use crate::format::config::tables::{self, OffsetTable};
use crate::store::folder::config_file::{self, Loaded};
use crate::store::store_files::StoreFiles;
use crate::time::Clock;

pub(crate) type OffsetsStamps = [Option<Stamp>; 2];

/// A stamp this young may stay the same at the next change, so coarse is the system's clock.
const YOUNG_MS: i64 = 1000;

impl StoreFiles {
    /// Stamps that change with the files; `None` if a file may change without its stamp.
    pub(crate) fn offsets_stamps(&self) -> Option<OffsetsStamps> {
        let stamp = |is_light| self.storage.stamp(&self.paths.consumer_offsets(is_light)).ok();
        let stamps = [stamp(false)?, stamp(true)?];
        let newest_ns = stamps.iter().flatten().map(|at| at.changed_ns).max()?;
        (newest_ns / 1_000_000 < SystemClock.now_ms() - YOUNG_MS).then_some(stamps)
    }

    /// The table of offsets and its file. A broker with `enableLmq` uses a file of its own and
    /// ignores the other. Without the setting the file changed last counts, then the fuller one. If
    /// the setting's file is missing, the other counts, so no group begins anew.
    pub(crate) fn committed(&self) -> Result<(PathBuf, Option<Loaded<OffsetTable>>)> {
        let (storage, paths) = (&*self.storage, &self.paths);
        let load = |is_light: bool| {
            let path = paths.consumer_offsets(is_light);
            config_file::load(storage, &path, OffsetTable::parse).map(|loaded| (path, loaded))
        };
        if self.config.enable_lmq {
            let (path, own) = load(true)?;
            return Ok((path, if own.is_some() { own } else { load(false)?.1 }));
        }
        let (plain, light) = (load(false)?, load(true)?);
        let age = |loaded: &Option<Loaded<OffsetTable>>| loaded.as_ref().map(|at| at.table.age());
        Ok(if age(&light.1) > age(&plain.1) { light } else { plain })
    }

    /// The table of offsets to change, its file and that file's content.
    pub(crate) fn to_commit(&self) -> Result<(PathBuf, OffsetTable, Option<Vec<u8>>)> {
        let (path, loaded) = self.committed()?;
        let is_light = path == self.paths.consumer_offsets(true);
        let is_own = |loaded: &Loaded<OffsetTable>| loaded.path() == path;
        let (mut table, before) = match loaded {
            None => (OffsetTable::default(), None),
            Some(loaded) if is_own(&loaded) => loaded.for_writing()?,
            Some(other) => (other.table, None),
        };
        if is_light {
            table.keep_light();
        }
        Ok((path, table, before))
    }
}

/// Sets offsets beyond their queues' ends back to these ends: otherwise the next messages would not
/// be delivered. A power cut leaves such offsets. Returns a warning for each.
pub(crate) fn set_offsets_back(files: &StoreFiles) -> Vec<String> {
    // An unreadable table stays unchanged; other code warns of it.
    let Ok((path, mut table, before)) = files.to_commit() else { return Vec::new() };
    let mut beyond = Vec::new();
    let mut with_done = Vec::new();
    for at in table.iter() {
        let queue = files.queues.get(at.topic.as_bytes(), at.queue_id);
        let end = queue.map_or(0, |queue| queue.max_offset());
        if at.queue_offset > end {
            beyond.push((
                at.topic.to_owned(),
                at.group.to_owned(),
                at.queue_id,
                at.queue_offset,
                end,
            ));
        } else if table.done(&at).last().is_some_and(|&(_, to)| to > end) {
            let (topic, group) = (at.topic.to_owned(), at.group.to_owned());
            with_done.push((topic, group, at.queue_id, at.queue_offset));
        }
    }
    if beyond.is_empty() && with_done.is_empty() {
        return Vec::new();
    }
    let now_ms = files.clock.now_ms();
    // The next messages at these places are others.
    for (topic, group, queue_id, queue_offset) in &with_done {
        let (topic, group, queue_id) = (topic.as_str(), group.as_str(), *queue_id);
        table.put(
            &tables::GroupOffset { topic, group, queue_id, queue_offset: *queue_offset },
            now_ms,
        );
    }
    for (topic, group, queue_id, _, end) in &beyond {
        let (topic, group, queue_id) = (topic.as_str(), group.as_str(), *queue_id);
        let back = tables::GroupOffset { topic, group, queue_id, queue_offset: *end };
        table.put(&back, now_ms);
    }
    let storage = &*files.storage;
    let wrote = config_file::keep(storage, &path)
        .and_then(|_| config_file::write(storage, &path, before.as_deref(), &table.to_bytes()));
    let outcome = match wrote {
        Ok(()) => "set back to there".to_owned(),
        Err(error) => format!("which could not be set back: {error}"),
    };
    let warnings = beyond.iter().map(|(topic, group, queue_id, found, end)| {
        format!(
            "{}: group {group} stood at queue offset {found} of queue {queue_id} of topic {topic}, \
             beyond the queue's end {end}: {outcome}",
            path.display()
        )
    });
    warnings.collect()
}
