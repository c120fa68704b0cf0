//! Retention of an open store.

use crate::error::{Error, Result};
use crate::format::width::at_least_0;
use crate::store::MessageStore;
use crate::store::write::retention::clean::{Cleaned, Judgement};
use crate::store::write::retention::{DiskUse, Occasion};

impl MessageStore {
    /// Counts messages and bytes that the log no longer holds, by queue entries before its
    /// beginning.
    pub fn deleted(&self) -> Result<(u64, u64)> {
        self.files.check_open()?;
        let start = self.files.log.min_offset();
        let queues = if start == 0 { Vec::new() } else { self.files.queues.all() };
        let messages = queues.iter().try_fold(0_u64, |sum, queue| {
            let first = queue.first_at_or_behind(start)?;
            Ok::<_, Error>(sum.saturating_add(at_least_0(first)))
        })?;
        Ok((messages, start))
    }

    /// Disk usage of the store.
    #[must_use]
    pub fn disk_use(&self) -> DiskUse {
        DiskUse::now(&*self.files.storage, &self.files.paths)
    }

    /// Plans [`MessageStore::clean_step`] without a change.
    pub fn judge(&self, occasion: &Occasion) -> Result<Judgement> {
        self.files.check_open()?;
        let safe_end = self.writer.as_ref().map_or(u64::MAX, |writer| writer.safe_end());
        self.files.judge(occasion, safe_end)
    }

    /// One round of retention: deletes expired files, or files for lack of space.
    pub fn clean_step(&self, occasion: &Occasion) -> Result<Cleaned> {
        self.writer()?.clean_step(occasion)
    }
}
