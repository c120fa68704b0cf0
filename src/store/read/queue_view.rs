//! Queues as a reader sees them: files, and an overlay of what the log holds beyond them.

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::format::checkpoint::CheckpointFields;
use crate::format::message::peek;
use crate::format::width::{at_least_0, at_most_i64};
use crate::log::commit_log::Found;
use crate::log::queue::Unit;
use crate::log::queue::consume_queue_ext::TagsCode;
use crate::log::queue::seen_codes::Seen256;
use crate::log::read::scanner::{Scanned, Scanner, Stop};
use crate::log::{CommitLog, Queue, QueueKind};

use super::entry_search::{self, EntrySearch};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::queue_audit::{Audit, is_known};
use crate::store::queue_table::QueueTable;

/// Maximum entries of the overlay: 64 MiB.
const MOST_EXTRA: usize = (64 << 20) / size_of::<Unit>();

type Extra = Arc<Vec<Unit>>;
type Name = (Box<[u8]>, i32);

#[derive(Debug, Default)]
pub struct Overlay {
    /// Offset from which queues were compared with the log.
    from: u64,
    extra: HashMap<Name, Extra>,
    /// Start and bytes of a part too large to keep.
    overflow: Option<(u64, u64)>,
    /// Queues asked for, whose bounds were searched in their files.
    seen: RwLock<SeenQueues>,
}

type SeenQueues = HashMap<Box<[u8]>, BTreeMap<i32, Seen>>;

/// A queue compared with the log's bytes at that time.
#[derive(Debug)]
struct Seen {
    log: Range<u64>,
    view: QueueView,
}

#[derive(Clone, Debug)]
pub struct QueueView {
    queue: Option<Arc<Queue>>,
    extra: Option<Extra>,
    pub kind: QueueKind,
    /// First queue offset still in the log.
    pub min_offset: i64,
    pub max_offset: i64,
}

impl QueueView {
    #[must_use]
    pub fn whole(queue: Arc<Queue>) -> Self {
        let (min_offset, max_offset) = (queue.min_offset(), queue.max_offset());
        Self { kind: queue.kind(), queue: Some(queue), extra: None, min_offset, max_offset }
    }

    /// Whether files were missing, so that no answer counts.
    #[must_use]
    pub fn has_lost_files(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.has_lost_files())
    }

    /// At most `count` units from the one that holds or follows `from`.
    pub fn units(&self, from: i64, count: usize) -> Result<Vec<Unit>> {
        let mut units = match &self.queue {
            Some(queue) => queue.units(from, count)?,
            None => Vec::new(),
        };
        // A queue may hold more than the log confirms.
        units.truncate(units.partition_point(|unit| unit.number < self.max_offset));
        let Some(extra) = &self.extra else { return Ok(units) };
        let start = extra.partition_point(|unit| unit.end() <= from);
        let extra = extra.get(start..).unwrap_or_default();
        let extra = extra.get(..count).unwrap_or(extra);
        if !extra.is_empty() {
            // Where both have a number, the log is right.
            units.extend_from_slice(extra);
            units.reverse();
            units.sort_by_key(|unit| unit.number);
            units.dedup_by_key(|unit| unit.number);
            units.truncate(count);
        }
        Ok(units)
    }

    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        let queue = self.queue.as_deref()?;
        queue.run().files().first()?.path.parent().map(Path::to_path_buf)
    }

    /// Checked entries among the 256 from `first` on.
    #[must_use]
    pub fn seen_codes(&self, first: i64) -> Option<Seen256> {
        self.queue.as_ref().map(|queue| queue.seen_codes().get(first))
    }

    pub fn put_seen_codes(&self, first: i64, seen: Seen256) {
        if let Some(queue) = &self.queue {
            queue.seen_codes().put(first, seen);
        }
    }

    #[must_use]
    pub fn first_listed(&self) -> i64 {
        match self.queue.as_deref() {
            Some(Queue::Plain(queue)) => {
                let start =
                    queue.run().min_offset().unwrap_or(0) / QueueKind::Plain.entry_len() as u64;
                at_most_i64(start)
            }
            _ => 0,
        }
    }

    /// The unit that holds a queue offset.
    pub fn unit(&self, number: i64) -> Result<Option<Unit>> {
        Ok(self.units(number, 1)?.pop().filter(|unit| unit.holds(number)))
    }

    /// Resolves a tags code.
    #[inline]
    pub fn resolve(&self, tags_code: i64) -> Result<TagsCode> {
        match &self.queue {
            Some(queue) => queue.resolve(tags_code),
            None => Ok(TagsCode::Known(tags_code)),
        }
    }

    /// Units in a file from a queue offset on, for RocketMQ's limits.
    pub fn units_to_file_end(&self, number: i64) -> Result<usize> {
        self.queue.as_ref().map_or(Ok(usize::MAX), |queue| queue.units_to_file_end(number))
    }
}

impl Overlay {
    /// Reads the log from `from` to `end` and keeps entries that the queues lack.
    pub fn read(log: &CommitLog, queues: &QueueTable, from: u64, end: u64) -> Result<Self> {
        let mut scanner = Scanner::new(log, from, end, false);
        let mut audit = Audit::new(queues);
        let mut extra: HashMap<Name, Vec<Unit>> = HashMap::new();
        let mut kept = 0;
        loop {
            match scanner.step()? {
                Ok(Scanned::Message(view)) => {
                    let request = DispatchRequest::of(&view);
                    if audit.see(&request)? {
                        continue;
                    }
                    kept += 1;
                    if kept > MOST_EXTRA {
                        let first = audit.first_missing.unwrap_or(from);
                        let overflow = Some((first, end - first));
                        return Ok(Self { from, overflow, ..Self::default() });
                    }
                    extra.entry((request.topic.into(), request.queue_id)).or_default().push(
                        request.unit(
                            request.range(queues.kind_of(request.topic)),
                            queues.delay_levels(),
                        ),
                    );
                }
                Ok(Scanned::Blank { .. }) => {}
                Err(Stop::End) => break,
                Err(Stop::Empty | Stop::Damage(_)) => {
                    if !scanner.resync()? {
                        break;
                    }
                }
            }
        }
        let extra = extra
            .into_iter()
            .map(|(name, mut entries)| {
                // The first of two records with one number wins.
                entries.sort_by_key(|unit| (unit.number, unit.entry.physical_offset));
                entries.dedup_by_key(|unit| unit.number);
                (name, Arc::new(entries))
            })
            .collect();
        Ok(Self { from, extra, ..Self::default() })
    }

    /// One queue with its overlay.
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
                limit: (MOST_EXTRA * size_of::<Unit>()) as u64,
            });
        }
        let bytes = log.min_offset()..log.end_offset();
        if let Some(view) = self.known(topic, queue_id, &bytes) {
            return Ok(Some(view));
        }
        let extra = self.extra.get(&(Box::from(topic), queue_id)).map(Arc::clone);
        let (mut min_offset, mut max_offset) = (0, 0);
        match (&queue, &extra) {
            (None, None) => return Ok(None),
            (Some(queue), _) => {
                let view = &QueueView::whole(Arc::clone(queue));
                let held = EntrySearch { log, view, topic, queue_id };
                queue.correct_min_offset(bytes.start)?;
                min_offset = held.first(queue, bytes.start)?;
                max_offset = held.end(queue, self.from)?;
            }
            (None, Some(_)) => {}
        }
        if let Some((first, last)) =
            extra.as_ref().and_then(|extra| Some((extra.first()?.number, extra.last()?.end())))
        {
            min_offset = if max_offset == min_offset { first } else { min_offset.min(first) };
            max_offset = max_offset.max(last);
        }
        let view = QueueView { queue, extra, kind, min_offset, max_offset };
        let seen = Seen { log: bytes, view: view.clone() };
        let mut all = self.seen.write();
        all.entry(topic.into()).or_default().insert(queue_id, seen);
        Ok(Some(view))
    }

    fn known(&self, topic: &[u8], queue_id: i32, bytes: &Range<u64>) -> Option<QueueView> {
        let all = self.seen.read();
        let seen = all.get(topic)?.get(&queue_id)?;
        (seen.log == *bytes).then(|| seen.view.clone())
    }

    /// Queues that exist in the log alone.
    pub fn names(&self) -> impl Iterator<Item = (&[u8], i32)> {
        self.extra.keys().map(|(topic, id)| (&**topic, *id))
    }
}

/// Offset from which a reader must compare queues with the log: the queues' end, or after a crash
/// where recovery would begin (`CommitLog.isMappedFileMatchedRecover`).
pub fn start_of_doubt(
    log: &CommitLog,
    queues: &QueueTable,
    checkpoint: &CheckpointFields,
    crashed: bool,
) -> Result<u64> {
    if queues.is_unsound() {
        return Ok(log.min_offset());
    }
    let all = queues.all();
    let reach = all.iter().map(|queue| queue.reach()).max().unwrap_or(-1);
    let reach = at_least_0(reach).max(log.min_offset());
    // An entry without its message tells nothing.
    if !crashed && let Some(end) = entry_search::end_of_queues(log, &all)? {
        let reach = end.max(log.min_offset());
        let mut buffer = Vec::new();
        let begins = |found: &Found<'_>| !matches!(found, Found::Bad(_) | Found::OutOfRange);
        if reach >= log.end_offset() || begins(&log.read(reach, 0, &mut buffer)?) {
            return Ok(reach.min(log.end_offset()));
        }
    }
    let known_ms = checkpoint.min_timestamp_ms();
    for file in log.run().files().iter().rev() {
        if file.base_offset >= log.end_offset() {
            continue;
        }
        let mut head = [0; peek::HEAD];
        let read = log.run().read_at(&mut head, file.base_offset)?;
        let time =
            head.get(..read).and_then(|head| peek::store_timestamp_ms(head, file.base_offset));
        // At most the file where the queues end: a checkpoint from the future proves nothing.
        if time.is_some_and(|time| time != 0 && time <= known_ms) && file.base_offset <= reach {
            return Ok(file.base_offset);
        }
    }
    Ok(log.min_offset())
}

/// Finds the end of an unclosed or growing log: behind its last whole record. Searches from the
/// last record known to file beginnings or queues. `queues` also tell records behind damage from
/// remains of a recycled file. A last record with zeros in topic or properties counts as whole in a
/// cleanly closed log; otherwise it is left out and returned.
pub fn find_end(
    log: &CommitLog,
    queues: Option<&QueueTable>,
    is_closed: bool,
) -> Result<Option<u64>> {
    let files_end = log.run().end_offset().unwrap_or(0);
    let mut start = log.run().min_offset().unwrap_or(0);
    let mut buffer = Vec::new();
    for file in log.run().files().iter().rev() {
        if matches!(
            log.read_before(file.base_offset, files_end, 0, &mut buffer)?,
            Found::Message(_)
        ) {
            start = file.base_offset;
            break;
        }
    }
    if let Some(queues) = queues
        && let Some(known) = last_known(log, files_end, queues, &mut buffer)?
    {
        start = start.max(known);
    }
    let mut scanner = Scanner::new(log, start, files_end, false);
    let mut end = start;
    let mut newest = 0;
    let mut last = None;
    loop {
        let at = scanner.position();
        match scanner.step()? {
            Ok(Scanned::Message(view)) => {
                // Remains of a recycled file are older than earlier messages.
                if view.store_timestamp_ms() < newest
                    && u64::try_from(view.physical_offset()) != Ok(end)
                    && !match queues {
                        Some(queues) => is_known(queues, &DispatchRequest::of(&view))?,
                        None => false,
                    }
                {
                    continue;
                }
                newest = newest.max(view.store_timestamp_ms());
                let begin = at_least_0(view.physical_offset());
                end = begin.saturating_add(u64::from(view.store_size()));
                last = Some(begin);
            }
            Ok(Scanned::Blank { physical_offset, size }) => {
                if physical_offset == end {
                    end = physical_offset.saturating_add(u64::from(size));
                }
            }
            Err(Stop::End) => break,
            Err(Stop::Empty) if rest_is_empty(log, at)? => break,
            Err(Stop::Empty | Stop::Damage(_)) => {
                if !scanner.resync()? {
                    break;
                }
            }
        }
    }
    // The last one may be incomplete: being written, or after a power cut.
    let mut left_out = None;
    if let Some(begin) = last {
        let (is_right, lacks_bytes) = match log.read_before(begin, files_end, 0, &mut buffer)? {
            Found::Message(view) => {
                (view.check_body_crc().is_ok(), !is_closed && peek::lacks_bytes(&view))
            }
            _ => (false, false),
        };
        if !is_right || lacks_bytes {
            end = begin;
        }
        left_out = (is_right && lacks_bytes).then_some(begin);
    }
    log.set_end(end);
    Ok(left_out)
}

/// Start of the last record that the queues lead to, if it is whole: earlier ones need not be
/// walked.
fn last_known(
    log: &CommitLog,
    end: u64,
    queues: &QueueTable,
    buffer: &mut Vec<u8>,
) -> Result<Option<u64>> {
    let all = queues.all();
    let Some(queue) = all.iter().max_by_key(|queue| queue.reach()) else { return Ok(None) };
    let last = queue.units(queue.max_offset().saturating_sub(1), 1)?.pop();
    let begin = last.and_then(|unit| u64::try_from(unit.entry.physical_offset).ok());
    let Some(begin) = begin else { return Ok(None) };
    let Found::Message(view) = log.read_before(begin, end, 0, buffer)? else { return Ok(None) };
    let is_whole = view.check_body_crc().is_ok() && !peek::lacks_bytes(&view);
    Ok((is_whole && is_known(queues, &DispatchRequest::of(&view))?).then_some(begin))
}

/// Whether the files from `offset` on are holes.
fn rest_is_empty(log: &CommitLog, offset: u64) -> Result<bool> {
    let mut block = vec![0; 1 << 16];
    for file in log.run().files().iter() {
        if file.base_offset.saturating_add(log.run().file_size()) <= offset {
            continue;
        }
        let open = log.run().open(file)?;
        let mut position = offset.saturating_sub(file.base_offset);
        while let Some(data) = open.next_data(position).map_err(Error::io("read", &file.path))? {
            let read = open.read_at(&mut block, data).map_err(Error::io("read", &file.path))?;
            if block.get(..read).is_some_and(|bytes| bytes.iter().any(|&byte| byte != 0)) {
                return Ok(false);
            }
            if read == 0 {
                break;
            }
            position = data + read as u64;
        }
    }
    Ok(true)
}
