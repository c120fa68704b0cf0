//! What is done ahead of the writer, so that an append meets no page fault, no new file and no call
//! to the system: the next pages of the log and of the index, and the log's next file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::{Core, Writing, guard};
use crate::error::Result;
use crate::files::Ahead;
use crate::log::index_file;
use crate::log::log_writer::{self, Active};

/// What the preparing thread keeps between its steps.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// The index file whose slots are in memory.
    index: Option<Arc<Ahead>>,
}

impl Core {
    /// Makes one more piece of each file ready; whether there is more to do at once. `waited` is
    /// whether this is the first step since the thread waited.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the next file cannot be made; the append that needs it
    /// meets the same.
    pub(super) fn prepare_step(
        &self,
        writing: &Writing,
        prepared: &mut Prepared,
        waited: bool,
    ) -> Result<bool> {
        let place = guard(&writing.appender).writer.place();
        // The appender goes on while this takes the file out of memory.
        drop(place.full);
        // A long flush makes pages clean all the while.
        let flushed = writing.log_flushed.swap(false, Ordering::AcqRel)
            || (waited && writing.log_flushing.load(Ordering::Acquire));
        let mut more = false;
        if let Some((active, position)) = &place.active {
            if waited {
                active.look(*position);
            }
            if flushed {
                active.flushed();
            }
            more |= active.prepare(*position, log_writer::RESERVE_STEP);
            if let Some(next) = &place.next {
                if flushed {
                    next.flushed();
                }
                more |= next.prepare_behind(active, log_writer::RESERVE_STEP);
            }
            more |= self.prepare_index(writing, prepared, waited, active.is_busy());
        }
        if let Some(base) = place.missing {
            let next = Active::open(&self.log, base, 0)?;
            if self.config.warm_maped_file_enable && place.active.is_some() {
                next.warm(0);
            }
            guard(&writing.appender).writer.set_next(next);
        }
        Ok(more)
    }

    fn prepare_index(
        &self,
        writing: &Writing,
        prepared: &mut Prepared,
        waited: bool,
        busy: bool,
    ) -> bool {
        let place = guard(&writing.dispatcher).index.as_ref().and_then(|index| index.place());
        let Some(place) = place else { return false };
        let known = prepared.index.as_ref().is_some_and(|known| Arc::ptr_eq(known, &place.ahead));
        if busy && !known {
            place.ahead.prepare_range(0, place.slots_end);
            prepared.index = Some(Arc::clone(&place.ahead));
        }
        if waited {
            place.ahead.look(place.position);
        }
        place.ahead.prepare(place.position, index_file::RESERVE_STEP)
    }
}
