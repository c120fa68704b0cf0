//! Merges records from several files in log order and removes duplicates.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;
use std::sync::Arc;

use super::carve::{Extent, Window};
use crate::error::{Error, Result};
use crate::files::StorageFile;
use crate::format::message::{Frame, MessageView, read_frame};

const MOST_CONFLICTS: usize = 1_000;

#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn StorageFile>,
}

/// Two different messages with one physical offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Their offset.
    pub physical_offset: u64,
    /// File and position of the first.
    pub first: (PathBuf, u64),
    /// File and position of the second.
    pub second: (PathBuf, u64),
}

/// Result of merging.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Messages found again.
    pub duplicates: u64,
    /// Different messages with an offset already taken.
    pub conflicts: u64,
    /// First conflicts.
    pub listed: Vec<Conflict>,
    /// Messages that begin inside their predecessor.
    pub overlapping: u64,
}

/// Next record of an extent: physical offset, extent, position in the file.
type Next = Reverse<(u64, usize, u64)>;

/// Passes each message once to `take`, by physical offset; conflicting ones follow each other.
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
        // Extents enter the heap when it is their turn, so it holds only overlapping ones.
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
