//! Queue entries that a reader finds in the log and not in the queues' files.

use crate::locks::RwLock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::format::width::{clamp_u64, saturating_i64};
use crate::log::queue::CqUnit;
use crate::log::read::scanner::{Flow, Item, Resync, Scanner};
use crate::log::{CommitLog, Queue, QueueKind};

use super::queue_view::{Entries, QueueView};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::queue_audit::Audit;
use crate::store::queue_table::QueueTable;
use crate::store::read::entry_search::EntrySearch;

const MAX_ENTRIES: usize = (64 << 20) / size_of::<CqUnit>();

type Name = (Box<[u8]>, i32);

#[derive(Debug, Default)]
pub struct UndispatchedEntries {
    log: Range<u64>,
    entries: HashMap<Name, Entries>,
    overflow: Option<(u64, u64)>,
    /// Queues asked for, whose bounds were searched in their files.
    compared: RwLock<ComparedQueues>,
}

/// By topic and number, each with the log's bytes at that time.
type ComparedQueues = HashMap<Box<[u8]>, BTreeMap<i32, (Range<u64>, QueueView)>>;

impl UndispatchedEntries {
    /// Keeps entries that the queues lack.
    pub fn read(log: &CommitLog, queues: &QueueTable, from: u64, end: u64) -> Result<Self> {
        let mut scanner = Scanner::new(log, from, end, false);
        let mut audit = Audit::new(queues);
        // Records before may lack entries, too.
        audit.whole_from = from.max(log.min_offset());
        let mut entries: HashMap<Name, Vec<CqUnit>> = HashMap::new();
        let mut kept = 0;
        scanner.each(log, end, Resync::Anywhere, |range, item| {
            let Item::Record(view, _) = item else {
                if matches!(item, Item::Damage(_)) {
                    audit.whole_from = range.end;
                }
                return Ok(Flow::Continue);
            };
            audit.check(&DispatchRequest::of(view), |topic, queue_id, unit| {
                kept += 1;
                entries.entry((topic.into(), queue_id)).or_default().push(unit);
            })?;
            Ok(if kept > MAX_ENTRIES { Flow::Stop } else { Flow::Continue })
        })?;
        if kept > MAX_ENTRIES {
            let first = audit.first_missing().unwrap_or(from);
            let overflow = Some((first, end - first));
            return Ok(Self { log: from..end, overflow, ..Self::default() });
        }
        let entries = entries
            .into_iter()
            .filter_map(|(name, mut entries)| {
                // Entries before are of a deleted topic of that name.
                let first = saturating_i64(audit.first_missing_of(&name.0, name.1)?);
                entries.retain(|unit| unit.physical_offset >= first);
                // The first of two records with one number wins.
                entries.sort_by_key(|unit| (unit.number, unit.physical_offset));
                entries.dedup_by_key(|unit| unit.number);
                Some((name, Arc::new(entries)))
            })
            .collect();
        Ok(Self { log: from..end, entries, ..Self::default() })
    }

    /// One queue with the entries that its files lack.
    ///
    /// # Errors
    /// [`Error::NotDispatched`] if too much is undispatched, [`Error::Corrupt`] if the
    /// last entries are wrong and the log is too long to search for the right ones.
    pub fn view(
        &self,
        log: &CommitLog,
        queue: Option<Arc<Queue>>,
        kind: QueueKind,
        topic: &[u8],
        queue_id: i32,
        root: &Path,
    ) -> Result<Option<QueueView>> {
        if let Some((physical_offset, bytes)) = self.overflow {
            return Err(Error::NotDispatched {
                path: root.to_owned(),
                physical_offset,
                bytes,
                limit: (MAX_ENTRIES * size_of::<CqUnit>()) as u64,
            });
        }
        let bytes = log.min_offset()..log.end_offset();
        if let Some(view) = self.known(topic, queue_id, &bytes) {
            return Ok(Some(view));
        }
        let entries = self.entries.get(&(Box::from(topic), queue_id)).map(Arc::clone);
        let (mut min_offset, mut max_offset) = (0, 0);
        match (&queue, &entries) {
            (None, None) => return Ok(None),
            (Some(queue), _) => {
                let view = &QueueView::whole(Arc::clone(queue));
                let held = EntrySearch { log, view, topic, queue_id };
                queue.correct_min_offset(bytes.start)?;
                min_offset = held.first(queue, bytes.start)?;
                max_offset = held.end(queue, self.log.start)?;
            }
            (None, Some(_)) => {}
        }
        if let Some((first, last)) = entries
            .as_ref()
            .and_then(|entries| Some((entries.first()?.number, entries.last()?.end())))
        {
            min_offset = if max_offset == min_offset { first } else { min_offset.min(first) };
            max_offset = max_offset.max(last);
        }
        let view = QueueView { queue, entries, kind, min_offset, max_offset };
        let mut all = self.compared.write();
        all.entry(topic.into()).or_default().insert(queue_id, (bytes, view.clone()));
        Ok(Some(view))
    }

    fn known(&self, topic: &[u8], queue_id: i32, bytes: &Range<u64>) -> Option<QueueView> {
        let all = self.compared.read();
        let (log, view) = all.get(topic)?.get(&queue_id)?;
        (log == bytes).then(|| view.clone())
    }

    /// Whether it has each entry that queues lack which are filled up to `from`, in a log to `end`.
    pub fn covers(&self, from: u64, end: u64) -> bool {
        // With less to read it may fit.
        let may_fit = self.overflow.is_some() && self.log.start < from;
        self.log.start <= from && self.log.end == end && !may_fit
    }

    /// Physical offset of the first record without an entry, or the log's end.
    pub fn first_missing(&self) -> u64 {
        let units = self.entries.values().flat_map(|units| units.iter());
        let first = units.map(|unit| clamp_u64(unit.physical_offset)).min();
        first.or(self.overflow.map(|(first, _)| first)).unwrap_or(self.log.end)
    }

    /// Queues that exist in the log alone.
    pub fn names(&self) -> impl Iterator<Item = (&[u8], i32)> {
        self.entries.keys().map(|(topic, id)| (&**topic, *id))
    }
}
