//! Prepares pages of log and index ahead of the writer, so that an append meets no page fault.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::writer::Writer;
use crate::files::Ahead;
use crate::format::width::to_usize;
use crate::log::log_writer::NEAR_THE_END;

#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// The current index file, and its slots that are not loaded yet.
    index: Option<(Arc<Ahead>, Range<usize>)>,
}

impl Writer {
    /// Prepares one piece of each file; returns whether there is more to do. `waited` means the
    /// first step after a wait.
    pub(crate) fn prepare_step(&self, prepared: &mut Prepared, waited: bool) -> bool {
        let front = self.log_front.files();
        let Some(active) = front.active else { return false };
        if waited {
            active.look();
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
            active.look();
        }
        // Piece by piece: the log must not wait for all slots.
        let slots = prepared.index.as_mut().filter(|_| busy);
        let more = slots.is_some_and(|(index, left)| index.prepare_piece(left));
        active.prepare() | more
    }
}
