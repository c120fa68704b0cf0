//! A queue as a reader sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Result;
use crate::format::width::saturating_i64;
use crate::log::queue::CqUnit;
use crate::log::queue::consume_queue_ext::TagsCode;
use crate::log::queue::verified_tags::VerifiedTags;
use crate::log::{Queue, QueueKind};

pub(super) type Entries = Arc<Vec<CqUnit>>;

#[derive(Clone, Debug)]
pub struct QueueView {
    pub(super) queue: Option<Arc<Queue>>,
    pub(super) entries: Option<Entries>,
    pub kind: QueueKind,
    /// First queue offset still in the log.
    pub min_offset: i64,
    pub max_offset: i64,
}

impl QueueView {
    #[must_use]
    pub fn whole(queue: Arc<Queue>) -> Self {
        let (min_offset, max_offset) = (queue.min_offset(), queue.max_offset());
        Self { kind: queue.kind(), queue: Some(queue), entries: None, min_offset, max_offset }
    }

    /// Whether files were missing, so that no answer counts.
    #[must_use]
    pub fn has_lost_files(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.has_lost_files())
    }

    /// At most `count` units from the one that holds or follows `from`.
    pub fn units(&self, from: i64, count: usize) -> Result<Vec<CqUnit>> {
        let mut units = match &self.queue {
            Some(queue) => queue.units(from, count)?,
            None => Vec::new(),
        };
        // A queue may hold more than the log confirms.
        units.truncate(units.partition_point(|unit| unit.number < self.max_offset));
        let Some(entries) = &self.entries else { return Ok(units) };
        let start = entries.partition_point(|unit| unit.end() <= from);
        let entries = entries.get(start..).unwrap_or_default();
        let entries = entries.get(..count).unwrap_or(entries);
        if !entries.is_empty() {
            // Where both have a number, the log is right.
            units.extend_from_slice(entries);
            units.reverse();
            units.sort_by_key(|unit| unit.number);
            units.dedup_by_key(|unit| unit.number);
            units.truncate(count);
        }
        Ok(units)
    }

    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        let queue = self.queue.as_deref()?;
        queue.run().files().first()?.path.parent().map(Path::to_path_buf)
    }

    #[must_use]
    pub fn verified_tags(&self) -> Option<&VerifiedTags> {
        self.queue.as_ref().map(|queue| queue.verified_tags())
    }

    #[must_use]
    pub fn first_listed(&self) -> i64 {
        let plain = self.queue.as_ref().filter(|queue| queue.kind() == QueueKind::Plain);
        plain.map_or(0, |queue| saturating_i64(queue.positions().start))
    }

    /// The unit that holds a queue offset.
    pub fn unit(&self, number: i64) -> Result<Option<CqUnit>> {
        Ok(self.units(number, 1)?.pop().filter(|unit| unit.holds(number)))
    }

    #[inline]
    pub fn resolve(&self, tags_code: i64) -> Result<TagsCode> {
        match &self.queue {
            Some(queue) => queue.resolve(tags_code),
            None => Ok(TagsCode::Known(tags_code)),
        }
    }

    /// Units in a file from a queue offset on, for RocketMQ's limits.
    pub fn units_to_file_end(&self, number: i64) -> Result<usize> {
        self.queue.as_ref().map_or(Ok(usize::MAX), |queue| queue.units_to_file_end(number))
    }
}
