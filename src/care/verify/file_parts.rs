//! Divides log files into parts for threads, and joins their results.
//!
//! A part begins at a likely record. If it is inside a body, the previous part does not end there. Then, and for damage that only earlier
//! messages explain, the whole file is walked.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::context::Context;
use super::index::Index;
use super::index::index_check::Edges;
use super::log_walk::{self, FileEnd, FilePart, FileWalk, Listed, MOST_DAMAGED};
use super::queues::Queues;
use crate::error::Result;
use crate::files::threads;
use crate::files::{FileRun, RunFile};
use crate::log::read::frames::FrameReader;

const LOOKED_THROUGH: u64 = 1 << 20;

/// Walks all files in parts of about so many bytes; `None` if the result may differ from walks over
/// whole files.
pub(super) fn walk_all(
    cx: &Context<'_>,
    log: &FileRun,
    listed: &Listed,
    queues: &Queues,
    index: &Index,
    part_bytes: Option<u64>,
) -> Result<Option<Vec<FileWalk>>> {
    let (files, dir) = (Vec::from_iter(listed.files.iter().enumerate()), log.dir());
    let mut parts = Vec::new();
    let cut = |&(number, file): &(usize, &Arc<RunFile>)| match part_bytes {
        Some(bytes) => Ok(of_file(log, number, file, bytes.max(1))),
        None => Ok(vec![FilePart::whole(number)]),
    };
    threads::in_order(&files, cx.threads, &dir, cut, |_, of_file| {
        parts.extend(of_file);
        Ok(ControlFlow::Continue(()))
    })?;
    let walk = |part: &FilePart| Ok(log_walk::walk(cx, log, listed, *part, queues, index));
    let mut joined: Vec<FileWalk> = Vec::new();
    let mut is_sure = true;
    threads::in_order(&parts, cx.threads, &dir, walk, |part, walk| {
        let together = match joined.pop_if(|_| part.from > 0) {
            None => (part.to.is_none() || !walk.is_doubtful).then_some(walk),
            Some(before) if cx.is_cancelled() => Some(before),
            Some(before) => before.then(walk, part.from, cx, log),
        };
        is_sure = together.is_some();
        joined.extend(together);
        Ok(if is_sure { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(is_sure.then_some(joined))
}

/// Finds where to cut a file; an unreadable one is left to the walk.
fn of_file(log: &FileRun, number: usize, file: &Arc<RunFile>, bytes: u64) -> Vec<FilePart> {
    let mut parts = vec![FilePart::whole(number)];
    for at in places(log, file, bytes).unwrap_or_default() {
        if let Some(before) = parts.last_mut().filter(|before| before.from < at) {
            before.to = Some(at);
            parts.push(FilePart { file: number, from: at, to: None });
        }
    }
    parts
}

fn places(log: &FileRun, file: &Arc<RunFile>, bytes: u64) -> Result<Vec<u64>> {
    let mut places = Vec::new();
    if file.len <= bytes {
        return Ok(places);
    }
    let mut reader = FrameReader::open(log, file)?;
    // Nothing likely lies between the last `from` and this.
    let mut searched = 0;
    let mut from = bytes;
    while from < file.len {
        let to = from.saturating_add(LOOKED_THROUGH);
        let place = reader.first_likely(from.max(searched), to)?;
        places.extend(place);
        searched = place.unwrap_or(to);
        from = from.saturating_add(bytes);
    }
    Ok(places)
}

impl FileWalk {
    /// Joins this walk with the next part's, from `at` on.
    fn then(self, next: Self, at: u64, cx: &Context<'_>, log: &FileRun) -> Option<Self> {
        let is_sure = |walk: &Self| !walk.is_doubtful && !walk.failed && !walk.forgot;
        let meets = matches!(self.how, FileEnd::Nothing) && self.end == at;
        if !meets || !is_sure(&self) || !is_sure(&next) {
            return None;
        }
        let damaged = [self.damaged, next.damaged].concat();
        if damaged.len() > MOST_DAMAGED {
            return None;
        }
        let (mut behind_index, mut before_index) = (self.behind_index, self.before_index);
        behind_index.join(&next.behind_index);
        before_index.join(&next.before_index);
        let mut tag_runs = self.tag_runs;
        tag_runs.join(&next.tag_runs);
        Some(Self {
            messages: self.messages + next.messages,
            newest_ms: self.newest_ms.max(next.newest_ms),
            damaged,
            behind_index,
            before_index,
            tag_runs,
            index_gaps: self.index_gaps.then(&next.index_gaps, cx),
            times: self.times.then(&next.times, cx, log),
            ..next
        })
    }
}

impl Edges {
    /// Joins both; reports a gap between them.
    fn then(self, next: &Self, cx: &Context<'_>) -> Self {
        let mut between = self.last;
        let Some(first) = &next.first else {
            between.join(&next.last);
            return Self { first: self.first, last: between };
        };
        between.join(first);
        let first = match self.first {
            Some(first) => {
                between.report(cx);
                first
            }
            None => between,
        };
        Self { first: Some(first), last: next.last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::files::{Access, Os};
    use crate::format::message::peek;
    use crate::store::{MessageStore, NewMessage, OpenMode};

    #[test]
    fn a_file_is_cut_where_records_begin_and_not_behind_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let size = 64 << 10;
        let config =
            StoreConfig { mapped_file_size_commit_log: Some(size), ..StoreConfig::default() };
        let store = MessageStore::open(dir.path(), OpenMode::Create, config).unwrap();
        while store.end_offset() < 40 << 10 {
            store.append(&NewMessage::new(b"Topic", &[7; 100])).unwrap();
        }
        let end = store.end_offset();
        store.close().unwrap();
        let log = dir.path().join("commitlog");
        let (log, _) =
            FileRun::load(Arc::new(Os), Arc::default(), vec![log], size, Access::Read).unwrap();
        let files = log.files();
        let parts = of_file(&log, 0, &files[0], 1_000);
        assert!(parts.len() > 30, "{parts:?}");
        for (part, next) in parts.iter().zip(&parts[1..]) {
            assert_eq!((part.file, part.to), (0, Some(next.from)));
            let mut head = [0; peek::SIGNATURE];
            log.read_at(&mut head, next.from).unwrap();
            assert!(peek::is_record(&head) && peek::names_place(&head, next.from));
        }
        let last = parts.last().unwrap();
        assert!(last.from < end && last.to.is_none(), "{last:?}, the log ends at {end}");
        assert_eq!(of_file(&log, 0, &files[0], size).len(), 1);
    }
}
