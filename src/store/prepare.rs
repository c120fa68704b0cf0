//! Pages ahead of the writer, of the log and of the index, so that an append meets no page fault.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::{Core, Writing, guard};
use crate::files::Ahead;

/// What the preparing thread keeps between its steps.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// The index file whose slots are in memory.
    index: Option<Arc<Ahead>>,
}

impl Core {
    /// Makes one more piece of each file ready; whether there is more to do at once. `waited` is
    /// whether this is the first step since the thread waited.
    pub(super) fn prepare_step(
        &self,
        writing: &Writing,
        prepared: &mut Prepared,
        waited: bool,
    ) -> bool {
        let place = guard(&writing.appender).writer.place();
        let Some((active, position)) = place.active else { return false };
        if waited {
            active.look(position);
            if active.is_busy() {
                writing.files_bell.ring();
            }
        }
        let next = place.next.filter(|_| place.near_the_end);
        // A long flush makes the writer's page clean all the while.
        if writing.log_flushed.swap(false, Ordering::AcqRel)
            || (waited && writing.log_flushing.load(Ordering::Acquire))
        {
            active.flushed(position);
        }
        let mut more = active.prepare(position);
        if let Some(next) = next {
            more |= next.prepare_behind(&active);
        }
        more | prepare_index(writing, prepared, waited, active.is_busy())
    }
}

fn prepare_index(writing: &Writing, prepared: &mut Prepared, waited: bool, busy: bool) -> bool {
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
    place.ahead.prepare(place.position)
}
