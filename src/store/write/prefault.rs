//! Works ahead of the writer, on threads that may wait for the disk: creates files and takes disk
//! space (`AllocateMappedFileService`), and prepares pages, so that an append meets no page fault.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::writer::Writer;
use crate::error::Result;
use crate::files::Prefaulter;
use crate::format::width::to_usize;
use crate::log::index::file;
use crate::log::log_writer::{self, Active, NEAR_THE_END};

#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// The current index file, and its slots that are not loaded yet.
    index: Option<(Arc<Prefaulter>, Range<usize>)>,
}

impl Writer {
    /// Takes disk space for fast files, creates the log's next file if needed soon, and releases a
    /// full one; returns whether there is more to do.
    pub(crate) fn allocate_step(&self) -> Result<bool> {
        let front = self.log_front.files();
        let is_busy = |active: &&Arc<Prefaulter>| active.is_busy();
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

    /// Prepares one piece of each file; returns whether there is more to do. `waited` means the
    /// first step after a wait.
    pub(crate) fn prepare_step(&self, prepared: &mut Prepared, waited: bool) -> bool {
        let front = self.log_front.files();
        let Some(active) = front.active else { return false };
        if waited {
            active.sample_position();
            if active.is_busy() {
                self.files_bell.ring();
            }
        }
        // During a long flush the writer's page becomes clean again and again.
        if self.log_flushed.swap(false, Ordering::AcqRel)
            || (waited && self.log_flushing.load(Ordering::Acquire))
        {
            active.flushed();
        }
        let mut more = active.prepare();
        if let Some(next) = front.next.filter(|_| active.left() < NEAR_THE_END) {
            more |= next.prepare_behind(&active);
        }
        more | self.prepare_index(prepared, waited, active.is_busy())
    }

    fn prepare_index(&self, prepared: &mut Prepared, waited: bool, busy: bool) -> bool {
        let Some(active) = self.index_front.files().active else { return false };
        // Releases the map of a full file.
        prepared.index.take_if(|(known, _)| !Arc::ptr_eq(known, &active));
        if busy && prepared.index.is_none() {
            let end = self.files.index.as_ref().map_or(0, |index| index.layout().entry_position(0));
            let slots = 0..to_usize(end);
            prepared.index = Some((Arc::clone(&active), slots));
        }
        if waited {
            active.sample_position();
        }
        // Piece by piece: the log must not wait for all slots.
        let slots = prepared.index.as_mut().filter(|_| busy);
        let more = slots.is_some_and(|(index, left)| index.prepare_piece(left));
        active.prepare() | more
    }
}
