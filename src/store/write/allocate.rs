//! Creates files and takes disk space ahead of the writer (`AllocateMappedFileService`), on a
//! thread that may wait for the disk.

use std::sync::Arc;

use super::writer::Writer;
use crate::error::Result;
use crate::files::Ahead;
use crate::log::index::file;
use crate::log::log_writer::{self, Active};

impl Writer {
    /// Takes disk space for fast files, creates the log's next file if needed soon, and releases a
    /// full one; returns whether there is more to do.
    pub(crate) fn allocate_step(&self) -> Result<bool> {
        let front = self.log_front.files();
        let is_busy = |active: &&Arc<Ahead>| active.is_busy();
        let mut more = false;
        if let Some(active) = front.active.as_ref().filter(is_busy) {
            more |= active.reserve_ahead(log_writer::RESERVE_STEP);
            if let Some(next) = front.next.as_ref().filter(|_| active.has_all_space()) {
                more |= next.reserve_ahead(log_writer::RESERVE_STEP);
            }
            if let Some(index) = self.index_front.files().active {
                more |= index.reserve_ahead(file::RESERVE_STEP);
            }
        }
        // Only then is the busy writer asked.
        let is_due = front.has_full
            || match &front.active {
                Some(active) => front.next.is_none() && active.is_past_half(),
                None => true,
            };
        if !is_due {
            return Ok(more);
        }
        let (missing, full) = {
            let writer = &mut self.appender.lock().writer;
            (writer.missing(), writer.take_full())
        };
        let warms = self.files.config.warm_maped_file_enable && front.active.is_some();
        if let Some(base) = missing {
            let next = Active::open(&self.files.log, base, 0)?;
            let ahead = Arc::clone(next.ahead());
            // The writer has opened the file itself: this one must not be used.
            let is_in_time = self.appender.lock().writer.set_next(next);
            if is_in_time && warms {
                ahead.prepare_rest();
            }
        }
        // Unmapping takes a while.
        drop(full);
        Ok(more)
    }
}
