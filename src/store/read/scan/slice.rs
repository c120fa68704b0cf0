//! A reader's share of a log: messages in a byte range, or at positions that a queue or the index
//! names, with a filter.
//!
//! Opening one only lists the log's files; the divider passes the log's end.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::config::StoreConfig;
use crate::error::{Corruption, Error, FormatError, Result};
use crate::files::{Access, FileRun, Roots, Storage};
use crate::format::message::MessageView;
use crate::format::message::properties;
use crate::format::message::sys_flag::Transaction;
use crate::format::message::tag_filter::TagFilter;
use crate::format::queue::consume_queue;
use crate::format::width::{at_least_0, at_most_i64, to_usize};
use crate::log::commit_log::Found;
use crate::log::queue::queue_folder::{QueueFolder, QueueUnit};
use crate::log::read::range_scan::{DamagedRange, Lost, Met, RangeScan};
use crate::log::read::scanner::{Flow, zeros};
use crate::log::{Block, CommitLog, QueueKind};

use super::ScanFilter;
use crate::store::folder::found;
use crate::store::folder::paths::{BATCH_CONSUME_QUEUE, StorePaths};

mod tag_places;

use tag_places::may_match;
pub use tag_places::{TagPlaces, tag_places};

pub type TopicTest = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;
type Bounds = HashMap<i32, (i64, i64)>;

#[derive(Clone)]
pub struct SliceFilter {
    pub scan: ScanFilter,
    pub topic_test: Option<TopicTest>,
    /// Bounds of queue offsets by topic, half-open.
    pub queues: HashMap<Box<[u8]>, Bounds>,
    pub only_these_queues: bool,
    pub keys: Option<HashSet<Box<[u8]>>>,
    /// Whether to skip messages that no queue names.
    pub delivered_only: bool,
    tested: HashMap<Box<[u8]>, bool>,
}

impl std::fmt::Debug for SliceFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SliceFilter").field("scan", &self.scan).finish_non_exhaustive()
    }
}

const MOST_TESTED: usize = 1 << 16;

impl SliceFilter {
    /// A filter equal to `scan`.
    #[must_use]
    pub fn new(scan: ScanFilter) -> Self {
        Self {
            scan,
            topic_test: None,
            queues: HashMap::new(),
            only_these_queues: false,
            keys: None,
            delivered_only: false,
            tested: HashMap::new(),
        }
    }

    fn takes(&mut self, view: &MessageView<'_>) -> bool {
        self.scan.takes(view)
            && !(self.delivered_only && is_undelivered(view))
            && self.takes_queue(view)
            && self.takes_topic(view.topic())
            && self.takes_keys(view)
    }

    fn takes_queue(&self, view: &MessageView<'_>) -> bool {
        if self.queues.is_empty() {
            return !self.only_these_queues;
        }
        match self.queues.get(view.topic()).and_then(|ids| ids.get(&view.queue_id())) {
            Some((from, to)) => *from <= view.queue_offset() && view.queue_offset() < *to,
            None => !self.only_these_queues,
        }
    }

    fn takes_topic(&mut self, topic: &[u8]) -> bool {
        let Some(test) = &self.topic_test else { return true };
        if let Some(known) = self.tested.get(topic) {
            return *known;
        }
        let takes = test(topic);
        if self.tested.len() >= MOST_TESTED {
            self.tested.clear();
        }
        self.tested.insert(topic.into(), takes);
        takes
    }

    fn takes_keys(&self, view: &MessageView<'_>) -> bool {
        let Some(wanted) = &self.keys else { return true };
        let properties = properties::indexed(view.raw_properties());
        properties.unique_key.is_some_and(|key| wanted.contains(key))
            || properties
                .keys
                .is_some_and(|keys| properties::split_keys(keys).any(|key| wanted.contains(key)))
    }
}

const fn is_undelivered(view: &MessageView<'_>) -> bool {
    matches!(view.transaction(), Transaction::Prepared | Transaction::Rollback)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtDamage {
    Fail,
    Skip,
    /// Skip it and pass it to the sink.
    Give,
}

#[derive(Clone, Debug)]
pub struct Damage {
    pub begin: u64,
    pub end: u64,
    pub message: Option<(Box<[u8]>, i32, i64)>,
    pub corruption: Corruption,
}

impl Damage {
    #[must_use]
    pub fn error(&self) -> Error {
        let mut corruption = self.corruption.clone();
        let place = format!("physical offsets {} to {}", self.begin, self.end);
        corruption.found = match &self.message {
            Some((topic, queue_id, queue_offset)) => format!(
                "{} ({place}; topic {}, queue {queue_id}, queue offset {queue_offset})",
                corruption.found,
                String::from_utf8_lossy(topic)
            ),
            None => format!("{} ({place})", corruption.found),
        };
        Error::Corrupt(Box::new(corruption))
    }
}

pub trait Sink {
    /// Takes a message and, if it may be shared, its block. A refusal counts as damage of that
    /// message; positions count from the record's first byte.
    fn message(
        &mut self,
        view: &MessageView<'_>,
        block: Option<&Arc<Block>>,
    ) -> Result<Flow, FormatError>;

    /// Takes damage, if requested; must not refuse it.
    fn damage(&mut self, damage: Damage) -> Flow;
}

#[derive(Clone, Debug)]
pub enum Places {
    Range(Box<RangeScan>),
    /// Sorted offsets with record lengths, 0 if unknown.
    Records(Arc<[(u64, u32)]>),
}

/// State of a slice; the log is passed to each call.
#[derive(Clone, Debug)]
pub struct Slice {
    places: Places,
    next: usize,
    filter: SliceFilter,
    at_damage: AtDamage,
    verify_crc: bool,
    lost: Lost,
    met_damage: bool,
}

impl Slice {
    /// Messages at `places` that match `filter`.
    #[must_use]
    pub fn new(
        places: Places,
        filter: SliceFilter,
        at_damage: AtDamage,
        verify_crc: bool,
        lost: Lost,
    ) -> Self {
        let met_damage = false;
        Self { places, next: 0, filter, at_damage, verify_crc, lost, met_damage }
    }

    /// Bytes to walk; empty for single records.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        match &self.places {
            Places::Range(range) => range.bytes(),
            Places::Records(_) => 0..0,
        }
    }

    pub fn settle(&mut self, log: &CommitLog) -> Result<()> {
        match &mut self.places {
            Places::Range(range) => range.settle(log),
            Places::Records(_) => Ok(()),
        }
    }

    /// Messages that begin in a part of its bytes; `begins` means that its first byte starts a
    /// record.
    #[must_use]
    pub fn part(&self, bytes: Range<u64>, begins: bool) -> Self {
        let mut part = self.clone();
        if let Places::Range(range) = &mut part.places {
            **range = range.part(bytes);
            if begins {
                **range = (**range).clone().beginning_at_once();
            }
        }
        part
    }

    /// As [`RangeScan::places`]; empty for single records.
    #[must_use]
    pub fn places(&self) -> Range<u64> {
        match &self.places {
            Places::Range(range) => range.places(),
            Places::Records(_) => 0..0,
        }
    }

    #[must_use]
    pub fn met_damage(&self) -> bool {
        self.met_damage
    }

    /// Passes messages to `sink` until it has enough; returns whether there may be more.
    pub fn run(&mut self, log: &CommitLog, sink: &mut impl Sink) -> Result<bool> {
        let Self { places, next, filter, at_damage, verify_crc, lost, met_damage } = self;
        match places {
            Places::Range(range) => range.run(log, |met| match met {
                Met::Message(view, block) => give(log, view, Some(block), filter, *at_damage, sink),
                Met::Damage(damaged) => {
                    *met_damage = true;
                    meet(log, damaged, *at_damage, sink)
                }
            }),
            Places::Records(records) => {
                let mut buffer = Vec::new();
                while let Some(&(at, size)) = records.get(*next) {
                    *next += 1;
                    let taken = match record(log, at, size, *verify_crc, &mut buffer)? {
                        Read::Message(view) => give(log, &view, None, filter, *at_damage, sink)?,
                        Read::Damage(corruption) => {
                            let end = at.saturating_add(u64::from(size));
                            let damaged = DamagedRange { begin: at, end, corruption };
                            meet(log, damaged, *at_damage, sink)?
                        }
                        Read::Gone if *lost == Lost::Refuse => return Err(gone(log, at)),
                        Read::Gone => Flow::Continue,
                    };
                    match taken {
                        Flow::Continue => {}
                        Flow::Stop => return Ok(true),
                        Flow::Retry => {
                            *next -= 1;
                            return Ok(true);
                        }
                    }
                }
                Ok(false)
            }
        }
    }
}

fn give(
    log: &CommitLog,
    view: &MessageView<'_>,
    block: Option<&Arc<Block>>,
    filter: &mut SliceFilter,
    at_damage: AtDamage,
    sink: &mut impl Sink,
) -> Result<Flow> {
    if !filter.takes(view) {
        return Ok(Flow::Continue);
    }
    match sink.message(view, block) {
        Ok(taken) => Ok(taken),
        Err(error) => {
            let begin = at_least_0(view.physical_offset());
            let mut corruption = error.into_corruption();
            if let Some(file) = log.run().find(begin) {
                corruption.path = Some(file.path.clone());
                corruption.offset =
                    corruption.offset.saturating_add(begin.saturating_sub(file.base_offset));
            }
            let end = begin.saturating_add(u64::from(view.store_size()));
            hand_out(Damage { begin, end, message: Some(name(view)), corruption }, at_damage, sink)
        }
    }
}

#[cold]
fn meet(
    log: &CommitLog,
    damaged: DamagedRange,
    at_damage: AtDamage,
    sink: &mut impl Sink,
) -> Result<Flow> {
    let DamagedRange { begin, end, corruption } = damaged;
    let mut buffer = Vec::new();
    // If only the body is wrong, the rest identifies the message.
    let message = match log.read(begin, 0, &mut buffer)? {
        Found::Message(view) => Some(name(&view)),
        _ => None,
    };
    hand_out(Damage { begin, end, message, corruption }, at_damage, sink)
}

fn hand_out(damage: Damage, at_damage: AtDamage, sink: &mut impl Sink) -> Result<Flow> {
    match at_damage {
        AtDamage::Fail => Err(damage.error()),
        AtDamage::Skip => Ok(Flow::Continue),
        AtDamage::Give => Ok(sink.damage(damage)),
    }
}

fn name(view: &MessageView<'_>) -> (Box<[u8]>, i32, i64) {
    (view.topic().into(), view.queue_id(), view.queue_offset())
}

enum Read<'b> {
    Message(MessageView<'b>),
    Damage(Corruption),
    Gone,
}

fn record<'b>(
    log: &CommitLog,
    at: u64,
    size: u32,
    verify_crc: bool,
    buffer: &'b mut Vec<u8>,
) -> Result<Read<'b>> {
    let file = log.run().find(at);
    let (path, base) = file.map_or((None, at), |file| (Some(file.path.clone()), file.base_offset));
    let in_file = |error: FormatError| {
        let mut corruption = error.into_corruption();
        corruption.path.clone_from(&path);
        corruption.offset = corruption.offset.saturating_add(at - base);
        Read::Damage(corruption)
    };
    // A size given by a caller may be anything.
    let hint = to_usize(size).min(1 << 20);
    Ok(match log.read(at, hint, buffer)? {
        Found::Message(view) => match view.check_body_crc() {
            Err(error) if verify_crc => in_file(error),
            _ => Read::Message(view),
        },
        Found::Bad(error) => in_file(error),
        Found::Blank(_) | Found::Empty => Read::Damage(zeros(log, at)),
        Found::OutOfRange => Read::Gone,
    })
}

fn gone(log: &CommitLog, at: u64) -> Error {
    let number = |offset| at_most_i64(offset);
    Error::OffsetOutOfRange {
        physical_offset: number(at),
        min: number(log.min_offset()),
        max: number(log.run().end_offset().unwrap_or(0)),
    }
}

/// Opens the log at `root`, readable up to `log_end`, by listing its files only.
pub fn open_log(
    storage: &Arc<dyn Storage>,
    root: &Path,
    config: &StoreConfig,
    log_end: u64,
) -> Result<CommitLog> {
    let paths = StorePaths::new(root, config);
    found::need_store(&**storage, &paths)?;
    let file_size = found::commit_log_file_size(storage, &paths, config)?;
    let (run, _) = FileRun::load(
        Arc::clone(storage),
        Arc::default(),
        Roots::new(paths.commit_log().to_vec(), paths.read_only_commit_log().to_vec(), 100),
        file_size,
        Access::Read,
    )?;
    Ok(CommitLog::new(run, log_end))
}

#[derive(Clone, Debug)]
pub struct QueuePart {
    pub topic: Box<[u8]>,
    pub queue_id: i32,
    pub begin: i64,
    pub end: i64,
}

/// Offsets of records named by parts of queues, sorted and distinct, inside `within`. A missing
/// queue has none, and an entry whose tags code `tags` rules out names none.
pub fn places_of(
    storage: &Arc<dyn Storage>,
    root: &Path,
    config: &StoreConfig,
    queues: &[QueuePart],
    tags: &TagFilter,
    within: Range<u64>,
) -> Result<Vec<(u64, u32)>> {
    use std::os::unix::ffi::OsStrExt;
    let mut places = Vec::new();
    for part in queues {
        for kind in [QueueKind::Plain, QueueKind::Batch] {
            let topic = std::ffi::OsStr::from_bytes(&part.topic);
            let folder = root.join(kind.folder()).join(topic).join(part.queue_id.to_string());
            let Some(queue) = queue_at(storage, &folder, config)? else { continue };
            // An earlier batch may reach into the part.
            let mut place = queue.place_of(part.begin)?.saturating_sub(1);
            'units: loop {
                let units = queue.units(place, usize::MAX)?;
                if units.is_empty() {
                    break;
                }
                place += units.len() as u64;
                for unit in units {
                    if unit.queue_offset >= part.end {
                        break 'units;
                    }
                    let after = unit.queue_offset.saturating_add(i64::from(unit.message_count));
                    if let Some((at, size)) = led_to(&unit)
                        && after > part.begin
                        && within.contains(&at)
                        && may_match(tags, &queue, &unit)
                    {
                        places.push((at, size));
                    }
                }
            }
        }
    }
    places.sort_unstable();
    places.dedup_by_key(|place| place.0);
    Ok(places)
}

fn queue_at(
    storage: &Arc<dyn Storage>,
    folder: &Path,
    config: &StoreConfig,
) -> Result<Option<QueueFolder>> {
    let is_batch = folder.ancestors().nth(2).is_some_and(|dir| dir.ends_with(BATCH_CONSUME_QUEUE));
    let entry = consume_queue::ENTRY_LEN as u64;
    let given = config.mapped_file_size_consume_queue.filter(|_| !is_batch);
    let file_size = given.map(|size| size.div_ceil(entry) * entry);
    match QueueFolder::open(Arc::clone(storage), folder, file_size) {
        Err(Error::NotAStore { .. }) => Ok(None),
        queue => queue.map(Some),
    }
}

/// Place and size of an entry's record; `None` if the entry leads nowhere (the maximum size).
fn led_to(unit: &QueueUnit) -> Option<(u64, u32)> {
    let at = u64::try_from(unit.physical_offset).ok()?;
    let size = u32::try_from(unit.store_size).ok()?;
    (size > 0 && size < i32::MAX.cast_unsigned()).then_some((at, size))
}
