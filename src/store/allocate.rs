//! Files and disk space ahead of the writer (`AllocateMappedFileService`). All of it waits for the
//! disk, so a thread of its own does it: the one that brings pages into memory must not wait.

use std::sync::Arc;

use super::core::{Core, Writing, guard};
use crate::error::Result;
use crate::log::index_file;
use crate::log::log_writer::{self, Active};

impl Core {
    /// Takes one more step of disk space for each file that is written fast, makes the log's next file
    /// where it is soon needed, and lets go of one that is full; whether there is more to do at once.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the next file cannot be made; the append that needs it
    /// meets the same.
    pub(super) fn allocate_step(&self, writing: &Writing) -> Result<bool> {
        let (place, missing, full) = {
            let writer = &mut guard(&writing.appender).writer;
            (writer.place(), writer.missing(), writer.take_full())
        };
        let warms = self.config.warm_maped_file_enable && place.active.is_some();
        let mut more = false;
        if let Some((active, position)) = place.active.filter(|(active, _)| active.is_busy()) {
            more |= active.reserve_ahead(position, log_writer::RESERVE_STEP);
            if let Some(next) = place.next.filter(|_| active.has_all_space()) {
                more |= next.reserve_ahead(0, log_writer::RESERVE_STEP);
            }
            let index = guard(&writing.dispatcher).index.as_ref().and_then(|index| index.place());
            if let Some(index) = index {
                more |= index.ahead.reserve_ahead(index.position, index_file::RESERVE_STEP);
            }
        }
        if let Some(base) = missing {
            let next = Active::open(&self.log, base, 0)?;
            let ahead = Arc::clone(next.ahead());
            // The writer that came first has opened the file by itself: this one is not to be touched.
            let is_in_time = guard(&writing.appender).writer.set_next(next);
            if is_in_time && warms {
                ahead.prepare_rest(0);
            }
        }
        // To take a file out of memory takes a while.
        drop(full);
        Ok(more)
    }
}
