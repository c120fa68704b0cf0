//! A part of a store's log as one of many readers takes it: the messages that begin in a byte range,
//! those at places that a queue or the index names, and of these the ones that a filter takes.
//!
//! Opening one lists the log's files and no more: neither queues nor index are looked at, and where the
//! log ends is said by whoever shared it out.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::config::StoreConfig;
use crate::error::{Corruption, Error, FormatError, Result};
use crate::files::{Access, FileRun, Roots, Storage};
use crate::format::message::MessageView;
use crate::format::message::properties;
use crate::format::queue::consume_queue;
use crate::log::commit_log::Found;
use crate::log::queue::queue_folder::QueueFolder;
use crate::log::read::range_scan::{DamagedRange, Lost, Met, RangeScan};
use crate::log::read::scanner::{Taken, zeros};
use crate::log::{Block, CommitLog, QueueKind};

use super::scan::ScanFilter;
use crate::store::open::inspect;
use crate::store::paths::StorePaths;

/// Whether a topic is one of those that are meant.
pub type TopicTest = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;
/// From which queue offset on, and up to which, by the queue's number.
type Bounds = HashMap<i32, (i64, i64)>;

/// Which messages are given.
#[derive(Clone)]
pub struct SliceFilter {
    /// By topic, tags and store time.
    pub scan: ScanFilter,
    /// By a test of the topic; asked once for each.
    pub topic_test: Option<TopicTest>,
    /// Bounds of queues, half-open, by topic.
    pub queues: HashMap<Box<[u8]>, Bounds>,
    /// Whether queues that have no bounds are left out.
    pub only_these_queues: bool,
    /// Only messages with one of these as key or unique key.
    pub keys: Option<HashSet<Box<[u8]>>>,
    /// Which topics passed the test.
    tested: HashMap<Box<[u8]>, bool>,
}

impl std::fmt::Debug for SliceFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SliceFilter").field("scan", &self.scan).finish_non_exhaustive()
    }
}

/// How many topics are remembered.
const MOST_TESTED: usize = 1 << 16;

impl SliceFilter {
    /// A filter that asks no more than `scan` does.
    #[must_use]
    pub fn new(scan: ScanFilter) -> Self {
        Self {
            scan,
            topic_test: None,
            queues: HashMap::new(),
            only_these_queues: false,
            keys: None,
            tested: HashMap::new(),
        }
    }

    fn takes(&mut self, view: &MessageView<'_>) -> bool {
        self.scan.takes(view)
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

/// Parses `on_error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtDamage {
    /// The slice ends with an error.
    Fail,
    /// It goes on with the next message.
    Skip,
    /// The same, and the damage is handed out.
    Give,
}

/// Damage, and the message that it is in as far as that is known.
#[derive(Clone, Debug)]
pub struct Damage {
    /// Where it begins in the whole log.
    pub begin: u64,
    /// One past its last byte.
    pub end: u64,
    /// Topic, queue and queue offset.
    pub message: Option<(Box<[u8]>, i32, i64)>,
    /// Decoder's message.
    pub corruption: Corruption,
}

impl Damage {
    /// The damage with all that is known of its place, in one line.
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

/// Who takes what a slice gives.
pub trait Sink {
    /// A message, and the block that it lies in where others may hold that. What it refuses counts
    /// as damage of that message; positions count from the record's first byte.
    ///
    /// # Errors
    /// What is wrong with the message.
    fn message(
        &mut self,
        view: &MessageView<'_>,
        block: Option<&Arc<Block>>,
    ) -> Result<Taken, FormatError>;

    /// Damage, where it was asked for; it must be taken.
    fn damage(&mut self, damage: Damage) -> Taken;
}

/// Where a slice's messages lie.
#[derive(Clone, Debug)]
pub enum Places {
    /// In a byte range.
    Range(RangeScan),
    /// At places with the length of the record there, 0 where it is not known; in order.
    Records(Arc<[(u64, u32)]>),
}

/// Where a slice stands. The log is handed to each call.
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
    /// The messages at `places` that `filter` takes.
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

    /// The bytes of the log that are walked over; none where records are read one by one.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        match &self.places {
            Places::Range(range) => range.bytes(),
            Places::Records(_) => 0..0,
        }
    }

    /// Moves to the first message, for a caller who takes a slice in parts.
    ///
    /// # Errors
    /// As [`Slice::run`].
    pub fn settle(&mut self, log: &CommitLog) -> Result<()> {
        match &mut self.places {
            Places::Range(range) => range.settle(log),
            Places::Records(_) => Ok(()),
        }
    }

    /// The messages of a slice that begin in a part of its bytes, which are walked over; where it
    /// `begins` with a record that need not be sought.
    #[must_use]
    pub fn part(&self, bytes: Range<u64>, begins: bool) -> Self {
        let mut part = self.clone();
        if let Places::Range(range) = &mut part.places {
            *range = range.part(bytes);
            if begins {
                *range = range.clone().beginning_at_once();
            }
        }
        part
    }

    /// As [`RangeScan::places`]; nothing where records are read one by one.
    #[must_use]
    pub fn places(&self) -> Range<u64> {
        match &self.places {
            Places::Range(range) => range.places(),
            Places::Records(_) => 0..0,
        }
    }

    /// Whether damage was met.
    #[must_use]
    pub fn met_damage(&self) -> bool {
        self.met_damage
    }

    /// Hands messages to `sink` until it has enough; whether there may be more.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at damage that is to end the slice, [`Error::OffsetOutOfRange`] when the log
    /// no longer holds what is asked for, [`Error::Io`].
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
                        Read::Gone => Taken::More,
                    };
                    match taken {
                        Taken::More => {}
                        Taken::Last => return Ok(true),
                        Taken::Later => {
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
) -> Result<Taken> {
    if !filter.takes(view) {
        return Ok(Taken::More);
    }
    match sink.message(view, block) {
        Ok(taken) => Ok(taken),
        Err(error) => {
            let begin = u64::try_from(view.physical_offset()).unwrap_or(0);
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
) -> Result<Taken> {
    let DamagedRange { begin, end, corruption } = damaged;
    let mut buffer = Vec::new();
    // Where only the body is wrong the rest tells which message it was.
    let message = match log.read(begin, 0, &mut buffer)? {
        Found::Message(view) => Some(name(&view)),
        _ => None,
    };
    hand_out(Damage { begin, end, message, corruption }, at_damage, sink)
}

fn hand_out(damage: Damage, at_damage: AtDamage, sink: &mut impl Sink) -> Result<Taken> {
    match at_damage {
        AtDamage::Fail => Err(damage.error()),
        AtDamage::Skip => Ok(Taken::More),
        AtDamage::Give => Ok(sink.damage(damage)),
    }
}

fn name(view: &MessageView<'_>) -> (Box<[u8]>, i32, i64) {
    (view.topic().into(), view.queue_id(), view.queue_offset())
}

/// What lies where a record should.
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
    // A size from elsewhere may be anything.
    let hint = usize::try_from(size).unwrap_or(0).min(1 << 20);
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
    let number = |offset| i64::try_from(offset).unwrap_or(i64::MAX);
    Error::OffsetOutOfRange {
        physical_offset: number(at),
        min: number(log.min_offset()),
        max: number(log.run().end_offset().unwrap_or(0)),
    }
}

/// The log of the store at `root`, readable up to `log_end`; its files are listed and nothing is read.
///
/// # Errors
/// [`Error::NotAStore`], [`Error::InvalidConfig`] where files and settings differ, [`Error::Io`].
pub fn open_log(
    storage: &Arc<dyn Storage>,
    root: &Path,
    config: &StoreConfig,
    log_end: u64,
) -> Result<CommitLog> {
    let paths = StorePaths::new(root, config);
    if !inspect::is_store(&**storage, &paths)? {
        return Err(inspect::not_a_store(&**storage, &paths));
    }
    let file_size = inspect::commit_log_file_size(storage, &paths, config)?;
    let (run, _) = FileRun::load(
        Arc::clone(storage),
        Arc::default(),
        Roots::new(paths.commit_log().to_vec(), paths.read_only_commit_log().to_vec(), 100),
        file_size,
        Access::Read,
    )?;
    Ok(CommitLog::new(run, log_end))
}

/// A part of a queue.
#[derive(Clone, Debug)]
pub struct QueuePart {
    /// The topic, as its bytes.
    pub topic: Box<[u8]>,
    /// The queue's number.
    pub queue_id: i32,
    /// First queue offset.
    pub begin: i64,
    /// One past the last.
    pub end: i64,
}

/// Where the records lie that parts of queues name, in the order of the log and each once; of those
/// the ones in `within`. A queue that is not there has none.
///
/// # Errors
/// [`Error::Corrupt`] for a queue's folder that cannot be, [`Error::Io`].
pub fn places_of(
    storage: &Arc<dyn Storage>,
    root: &Path,
    config: &StoreConfig,
    queues: &[QueuePart],
    within: Range<u64>,
) -> Result<Vec<(u64, u32)>> {
    use std::os::unix::ffi::OsStrExt;
    let mut places = Vec::new();
    for part in queues {
        for kind in [QueueKind::Plain, QueueKind::Batch] {
            let topic = std::ffi::OsStr::from_bytes(&part.topic);
            let folder = root.join(kind.folder()).join(topic).join(part.queue_id.to_string());
            let file_size = match kind {
                QueueKind::Plain => config.mapped_file_size_consume_queue.map(|size| {
                    let entry = consume_queue::ENTRY_LEN as u64;
                    size.div_ceil(entry) * entry
                }),
                QueueKind::Batch => None,
            };
            let queue = match QueueFolder::open(Arc::clone(storage), &folder, file_size) {
                Err(Error::NotAStore { .. }) => continue,
                queue => queue?,
            };
            // A batch may begin before the part and reach into it.
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
                    let at = u64::try_from(unit.physical_offset).ok();
                    let (Some(at), Ok(size)) = (at, u32::try_from(unit.store_size)) else {
                        continue;
                    };
                    // The largest size stands in an entry that leads nowhere.
                    let leads = size > 0 && size < i32::MAX.cast_unsigned();
                    if leads && after > part.begin && within.contains(&at) {
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
