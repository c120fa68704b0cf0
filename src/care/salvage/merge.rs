//! What was carved out of several files, in the order of the log that it comes from: what lies in two
//! of them comes once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;
use std::sync::Arc;

use super::carve::{Extent, Window};
use crate::error::{Error, Result};
use crate::files::StorageFile;
use crate::format::message::{Frame, MessageView, read_frame};

/// How many conflicts are listed; all are counted.
const MOST_CONFLICTS: usize = 1_000;

/// A file to carve from.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Its path.
    pub(super) path: PathBuf,
    /// It, open.
    pub(super) file: Arc<dyn StorageFile>,
}

/// Two different messages that name the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The place in the log.
    pub physical_offset: u64,
    /// Where the one lies: a file and a byte in it.
    pub first: (PathBuf, u64),
    /// Where the other lies.
    pub second: (PathBuf, u64),
}

/// What was met on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Messages that lie in more than one place, counted but for the first.
    pub duplicates: u64,
    /// Messages that name the same place as another one.
    pub conflicts: u64,
    /// The first of them.
    pub listed: Vec<Conflict>,
    /// Messages that begin inside of the one before them in the log.
    pub overlapping: u64,
}

/// A record that is next in its extent: its place in the log, its extent, its place in the file.
type Next = Reverse<(u64, usize, u64)>;

/// Gives every message once, in the order of the places that they name; those that differ and name
/// the same place one after the other.
///
/// # Errors
/// [`Error::Io`], and whatever `take` gives.
pub(super) fn merge(
    sources: &[Source],
    extents: &[Extent],
    take: &mut dyn FnMut(&MessageView<'_>) -> Result<()>,
) -> Result<Merged> {
    let mut windows = Vec::with_capacity(sources.len());
    for source in sources {
        windows.push(Window::new(&*source.file, &source.path)?);
    }
    let mut order: Vec<usize> = (0..extents.len()).collect();
    let key = |at: &usize| extents.get(*at).map_or((0, 0), |e| (e.physical_offset, e.source));
    order.sort_by_key(key);
    let mut waiting = order.into_iter().peekable();
    let mut heap: BinaryHeap<Next> = BinaryHeap::new();
    let mut merged = Merged::default();
    let mut end = 0;
    loop {
        // Extents wait outside until their turn, so the heap holds those that run side by side.
        let front = heap.peek().map(|Reverse((place, ..))| *place);
        while let Some(extent) = waiting.peek().and_then(|at| extents.get(*at)) {
            if front.is_some_and(|front| extent.physical_offset > front) {
                break;
            }
            let first =
                heap.peek().is_none_or(|Reverse((place, ..))| extent.physical_offset <= *place);
            if !first {
                break;
            }
            let Some(at) = waiting.next() else { break };
            heap.push(Reverse((extent.physical_offset, at, extent.start)));
        }
        let Some(Reverse((place, _, _))) = heap.peek().copied() else { break };
        // All that name this place.
        let mut kept: Vec<(Vec<u8>, (PathBuf, u64))> = Vec::new();
        while let Some(Reverse((next, at, position))) = heap.peek().copied()
            && next == place
        {
            heap.pop();
            let Some(extent) = extents.get(at) else { continue };
            let which = extent.source as usize;
            let (Some(window), Some(source)) = (windows.get_mut(which), sources.get(which)) else {
                continue;
            };
            let Some(view) = window.record(position)? else {
                return Err(changed(source, position));
            };
            let after = position + u64::from(view.store_size());
            if kept.iter().any(|(bytes, _)| bytes == view.as_bytes()) {
                merged.duplicates += 1;
            } else {
                let lies = (source.path.clone(), position);
                if let Some((_, first)) = kept.first() {
                    merged.conflicts += 1;
                    if merged.listed.len() < MOST_CONFLICTS {
                        let (first, second) = (first.clone(), lies.clone());
                        merged.listed.push(Conflict { physical_offset: place, first, second });
                    }
                }
                kept.push((view.as_bytes().to_vec(), lies));
            }
            if after < extent.end {
                heap.push(Reverse((place + (after - position), at, after)));
            }
        }
        if place < end {
            merged.overlapping += 1;
        }
        for (bytes, _) in &kept {
            if let Ok(Frame::Message(view)) = read_frame(bytes) {
                end = end.max(place + u64::from(view.store_size()));
                take(&view)?;
            }
        }
    }
    Ok(merged)
}

fn changed(source: &Source, position: u64) -> Error {
    let text =
        format!("the message at byte {position} is gone: the file changed while it was read");
    Error::io("read", &source.path)(std::io::Error::other(text))
}
