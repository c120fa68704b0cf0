//! Fills new queues and a new index from what was collected.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::care::meter::{Meter, both};
use crate::error::{Error, Result};
use crate::files::threads::each;
use crate::files::{Access, FileRun, Storage};
use crate::format::index::IndexLayout;
use crate::log::index::builder::{BuiltIndex, IndexBuilder};
use crate::log::queue::CqUnit;
use crate::log::read::end::{LogState, is_left_out};
use crate::log::read::evidence::Budget;
use crate::log::read::file_walk::next_of_log;
use crate::log::{Queue, QueueKind};
use crate::store::dispatch::collect::{DispatchBatch, Queued, placed};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::log_parts::{LogPart, LogReading};
use crate::store::dispatch::queue_audit::is_known;
use crate::store::folder::mark::Flushed;
use crate::store::folder::paths;
use crate::store::progress::interrupted;
use crate::store::queue_table::{MOST_NEW_QUEUES, QueueLayout, QueueTable, TopicKinds, too_many};
use crate::time::Clock;

/// Structures to rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    /// Plain, batch and light queues, with extensions.
    pub queues: bool,
    /// Index files.
    pub index: bool,
}

/// A queue with messages in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuiltQueue {
    /// Its topic.
    pub topic: Box<[u8]>,
    /// Its number.
    pub queue_id: i32,
    /// Plain or batch.
    pub kind: QueueKind,
    /// Number of entries.
    pub entries: u64,
    /// First queue offset.
    pub min_offset: i64,
    /// One past the last.
    pub max_offset: i64,
    /// Previous first queue offset and end, if it existed.
    pub was: Option<(i64, i64)>,
}

const FLUSH_EVERY: usize = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Build {
    queues: Option<QueueTable>,
    index: Option<IndexBuilder>,
    pub(super) found: BTreeMap<(Arc<[u8]>, i32), Entered>,
    pub(super) keys: u64,
    pub(super) refused: u64,
    waiting: usize,
}

const MOST_WAITING: usize = 1 << 20;

impl Build {
    pub(super) fn below(
        dir: &Path,
        storage: &Arc<dyn Storage>,
        what: What,
        layout: &QueueLayout,
        kinds: TopicKinds,
        index: Option<IndexLayout>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let queues = match what.queues {
            true => {
                let mut layout = QueueLayout { aside: None, ..layout.clone() };
                layout.plain.dir = dir.join(paths::CONSUME_QUEUE);
                layout.batch.dir = dir.join(paths::BATCH_CONSUME_QUEUE);
                layout.ext.dir = dir.join(paths::CONSUME_QUEUE_EXT);
                let plain = &layout.plain.dir;
                storage.create_dir(plain).map_err(Error::io("create", plain))?;
                Some(QueueTable::load(Arc::clone(storage), layout, kinds, Access::ReadWrite)?)
            }
            false => None,
        };
        let index = match index.filter(|_| what.index) {
            Some(layout) => {
                let dir = dir.join(paths::INDEX);
                storage.create_dir(&dir).map_err(Error::io("create", &dir))?;
                let (storage, clock) = (Arc::clone(storage), Arc::clone(clock));
                Some(IndexBuilder::new(storage, &dir, layout, clock)?.flush_every(FLUSH_EVERY))
            }
            None => None,
        };
        Ok(Self { queues, index, ..Self::default() })
    }

    pub(super) fn take(
        &mut self,
        parts: &[DispatchBatch],
        replaced: &QueueTable,
        threads: usize,
        path: &Path,
    ) -> Result<()> {
        let Self { queues, index, found, keys, refused, waiting } = self;
        *waiting += parts.iter().map(|part| part.units.len()).sum::<usize>();
        if let Some(queues) = queues.as_ref().filter(|_| *waiting >= MOST_WAITING) {
            queues.commit()?;
            *waiting = 0;
        }
        both(
            threads,
            path,
            || {
                let queues = queues.as_ref();
                parts.iter().try_for_each(|part| enter(queues, replaced, found, refused, part))
            },
            || {
                parts.iter().try_for_each(|part| {
                    *keys += part.hashes.len() as u64;
                    index.as_mut().map_or(Ok(()), |index| part.put_keys(index, |_| 0))
                })
            },
        )
        .map(|_| ())
    }

    pub(super) fn finish(
        &mut self,
        storage: &dyn Storage,
        dir: &Path,
        threads: usize,
    ) -> Result<BuiltIndex> {
        let (queues, index) = (self.queues.as_ref(), self.index.take());
        let flush_all = |queues: &QueueTable| {
            each(queues.all().iter(), threads, |queue| queue.flush().map(|_| ()))
        };
        let (_, built) = both(
            threads,
            dir,
            || queues.map_or(Ok(()), flush_all),
            || index.map(IndexBuilder::finish).transpose(),
        )?;
        let built = built.unwrap_or(BuiltIndex { keys: self.keys, ..BuiltIndex::default() });
        storage.sync_dir(dir).map_err(Error::flush(dir))?;
        Ok(built)
    }

    pub(super) fn has(&self, queue: &Queue) -> bool {
        self.found.contains_key(&(queue.topic().into(), queue.queue_id()))
    }
}

/// A queue found in the log, while its units are entered.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) rebuilt: RebuiltQueue,
    /// `None` if entries are counted only.
    queue: Option<Arc<Queue>>,
    /// The queue to be replaced: its entries settle what the log leaves open.
    old: Option<Arc<Queue>>,
    reach: i64,
}

impl Entered {
    fn add(&mut self, queued: &Queued, whole_from: u64) -> Result<bool> {
        let Self { rebuilt, queue, old, reach } = self;
        let (own, next) = (&queued.unit, rebuilt.max_offset);
        if own.number < 0 {
            return Ok(false);
        }
        if rebuilt.kind == QueueKind::Plain && own.physical_end() <= *reach {
            return Ok(true);
        }
        let number = placed(own.number, rebuilt.kind, (next, *reach), whole_from);
        let mut unit = CqUnit { number, ..*own };
        let is_open = *reach < 0 || own.number > next;
        if let Some(old) = old.as_ref().filter(|old| is_open && old.kind() == QueueKind::Plain) {
            let from = if *reach < 0 { 0 } else { next };
            // Its files may be unreadable.
            unit.number = old.number_of(own, from).ok().flatten().unwrap_or(unit.number);
        }
        if let Some(queue) = queue
            && !queued.add_to(queue, &unit)?
        {
            return Ok(false);
        }
        if *reach < 0 {
            (rebuilt.min_offset, rebuilt.max_offset) = (unit.number, unit.number);
        }
        if unit.number >= rebuilt.max_offset {
            (rebuilt.max_offset, *reach) = (unit.end(), unit.physical_end());
        }
        Ok(true)
    }
}

fn enter(
    queues: Option<&QueueTable>,
    replaced: &QueueTable,
    found: &mut BTreeMap<(Arc<[u8]>, i32), Entered>,
    refused: &mut u64,
    part: &DispatchBatch,
) -> Result<()> {
    let mut entered = Vec::with_capacity(part.batches.len());
    for batch in &part.batches {
        let known = match found.remove(&(Arc::clone(&batch.topic), batch.queue_id)) {
            Some(known) => Some(known),
            None => match queues.map(|all| all.get_or_create(&batch.topic, batch.queue_id)) {
                // For example a topic that would lead out of the folder.
                Some(Err(Error::InvalidMessage { .. })) => None,
                queue => Some(Entered {
                    rebuilt: RebuiltQueue {
                        topic: batch.topic.as_ref().into(),
                        queue_id: batch.queue_id,
                        kind: batch.kind,
                        ..RebuiltQueue::default()
                    },
                    queue: queue.transpose()?,
                    old: replaced.get(&batch.topic, batch.queue_id),
                    reach: -1,
                }),
            },
        };
        entered.push(known);
    }
    for queued in &part.units {
        let known = entered.get_mut(queued.batch as usize).and_then(Option::as_mut);
        let is_added = known.map_or(Ok(false), |known| known.add(queued, part.whole_from))?;
        *refused += u64::from(!is_added);
    }
    for (batch, known) in part.batches.iter().zip(entered) {
        if let Some(mut known) = known {
            known.rebuilt.entries += batch.units;
            found.insert((Arc::clone(&batch.topic), batch.queue_id), known);
        }
    }
    match queues.filter(|_| found.len() > MOST_NEW_QUEUES) {
        Some(queues) => Err(too_many(queues.dir())),
        None => Ok(()),
    }
}

const MOST_DAMAGED: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct LogSummary {
    pub(super) end: u64,
    pub(super) records: u64,
    pub(super) newest_ms: i64,
    pub(super) damaged: Vec<(u64, u64)>,
    pub(super) left_out: u64,
    whole_from: u64,
}

impl LogSummary {
    pub(super) fn read(
        (log, reading): (&FileRun, &LogReading<'_>),
        (queues, flushed): (&QueueTable, Flushed),
        (threads, root, meter): (usize, &Path, &Meter),
        mut take: impl FnMut(DispatchBatch) -> Result<()>,
    ) -> Result<Self> {
        let start = log.min_offset().unwrap_or(0);
        let mut summary = Self { end: start, whole_from: start, ..Self::default() };
        let mut budget = Budget::new(start);
        // Its last record may turn out to be left out.
        let mut last: Option<LogPart> = None;
        let mut newest_ms = 0;
        reading.each_part(start, threads, root, |mut part| {
            summary.end = part.end;
            part.collected.whole_from = summary.whole_from;
            meter.advance(part.end - part.begin);
            if meter.is_cancelled() {
                return Err(interrupted("rebuild", root));
            }
            newest_ms = newest_ms.max(part.collected.newest_ms);
            let stop = part.stop.take();
            if part.last_record.is_some()
                && let Some(before) = last.replace(part)
            {
                summary.add(&before.collected);
                take(before.collected)?;
            }
            if stop.is_none() {
                return Ok(Some(summary.end));
            }
            let next = next_of_log(log, summary.end, &mut budget, |place, view| {
                let is_known = || is_known(queues, &DispatchRequest::of(view));
                flushed.proves(place, view.store_timestamp_ms(), newest_ms, is_known)
            })?;
            if let Some(next) = next {
                if summary.damaged.len() < MOST_DAMAGED {
                    summary.damaged.push((summary.end, next));
                }
                (summary.end, summary.whole_from) = (next, next);
            }
            Ok(next)
        })?;
        // Records that lack bytes ended the reading.
        let Some(mut part) = last else { return Ok(summary) };
        if let Some(begin) = part.last_record
            && let Some(file) = log.find(begin)
            && is_left_out(log, &file, begin..u64::MAX, LogState::Closed)?.is_some()
        {
            summary.end = begin;
            summary.damaged.retain(|(from, _)| *from < begin);
            let whole_from = part.collected.whole_from;
            part = reading.read(&file, part.begin..begin, true)?.unwrap_or_default().1;
            part.collected.whole_from = whole_from;
        }
        summary.add(&part.collected);
        take(part.collected)?;
        Ok(summary)
    }

    fn add(&mut self, collected: &DispatchBatch) {
        self.records += collected.records;
        self.newest_ms = self.newest_ms.max(collected.newest_ms);
        self.left_out += collected.left_out;
    }
}
