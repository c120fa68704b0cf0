//! Reading one stretch of a log file: what its records need in queues and index, in a form that does
//! not hold on to the bytes.

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::care::verify::record::{FileReader, Lies, Record};
use crate::error::{Error, Result};
use crate::files::{FileRun, RunFile};
use crate::format::java::TopicHash;
use crate::format::message::MessageView;
use crate::format::peek;
use crate::log::QueueKind;
use crate::log::queue::Unit;
use crate::store::dispatch::DispatchRequest;
use crate::store::lmq;
use crate::store::queues::QueueTable;

/// How many bytes of the log one task reads.
const STRETCH: u64 = 4 << 20;
/// How many units and keys a task gathers before it stops early: some records make thousands.
const MOST_GATHERED: usize = 256 << 10;
/// How many chunks' memory waits to be used again.
const MOST_SPARE: usize = 32;

/// What is to be read, and for what.
pub(super) struct Reading<'a> {
    pub(super) log: &'a FileRun,
    /// The queues as they are now, which tell kinds and light queues.
    pub(super) queues: &'a QueueTable,
    /// The topics whose queues are wanted; all of them where it is left out.
    pub(super) topics: Option<&'a [Box<[u8]>]>,
    pub(super) with_queues: bool,
    pub(super) with_index: bool,
    /// What was stored later than this may lack bytes, so it is looked at closely.
    pub(super) flushed_ms: i64,
    pub(super) spare: Spare,
}

/// Memory that stretches before were read with: fresh pages cost more than what is put into them.
#[derive(Debug, Default)]
pub(super) struct Spare {
    blocks: Mutex<Vec<Vec<u8>>>,
    chunks: Mutex<Vec<Chunk>>,
}

impl Spare {
    /// Takes back what chunks were kept in.
    pub(super) fn give_back(&self, chunks: impl Iterator<Item = Chunk>) {
        let mut spare = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_SPARE.saturating_sub(spare.len());
        let is_usual = |chunk: &Chunk| {
            chunk.units.capacity().max(chunk.hashes.capacity()) <= MOST_GATHERED / 4
        };
        spare.extend(chunks.filter(is_usual).take(room));
    }

    fn chunk(&self) -> Chunk {
        let chunk = self.chunks.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Chunk { mut lanes, mut units, mut keyed, mut hashes, .. } = chunk.unwrap_or_default();
        lanes.clear();
        units.clear();
        keyed.clear();
        hashes.clear();
        Chunk { lanes, units, keyed, hashes, ..Chunk::default() }
    }

    fn block(&self) -> Vec<u8> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.pop().unwrap_or_default()
    }

    fn give_back_block(&self, block: Vec<u8>) {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).push(block);
    }
}

/// Bytes `from..to` of a file of the log.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) file: Arc<RunFile>,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The stretches of a log, in order.
pub(super) fn stretches(log: &FileRun) -> impl Iterator<Item = Stretch> + use<> {
    let size = log.file_size();
    let files = log.files().as_ref().clone();
    files.into_iter().flat_map(move |file| {
        let len = file.len.min(size);
        (0..len).step_by(STRETCH as usize).map(move |from| Stretch {
            file: Arc::clone(&file),
            from,
            to: from.saturating_add(STRETCH).min(len),
        })
    })
}

impl Stretch {
    pub(super) fn len(&self) -> u64 {
        self.to - self.from
    }

    /// Physical offset of the first byte.
    pub(super) fn start(&self) -> u64 {
        self.file.base_offset.saturating_add(self.from)
    }

    /// Physical offset behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.file.base_offset.saturating_add(self.to)
    }

    pub(super) fn reader<'a>(&'a self, log: &FileRun) -> Result<FileReader<'a>> {
        let file = &self.file;
        let open = log.open(file)?;
        Ok(FileReader::new(open, &file.path, file.base_offset, file.len, log.file_size()))
    }
}

/// A queue that records of a chunk go to.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Lane {
    pub(super) topic: Arc<[u8]>,
    pub(super) queue_id: i32,
    pub(super) kind: QueueKind,
    /// How many units go there, the first queue offset, and one past the last.
    pub(super) units: u64,
    pub(super) first: i64,
    pub(super) end: i64,
}

/// A record in a queue.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct QueuedUnit {
    pub(super) lane: u32,
    /// Whether the queue is the record's own, and not a light one beside it.
    pub(super) is_own: bool,
    pub(super) store_timestamp_ms: i64,
    pub(super) unit: Unit,
}

/// A record as the index takes it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Keyed {
    pub(super) physical_offset: i64,
    pub(super) store_timestamp_ms: i64,
    /// How many of the chunk's hashes are its.
    pub(super) keys: u32,
}

/// How the walk over a stretch ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum ChunkEnd {
    /// Where the stretch ends, or before it because enough was gathered.
    #[default]
    Whole,
    /// At a blank, which ends the file.
    Blank,
    /// At zeros, or at the end of the file's bytes.
    Nothing,
    /// At bytes that are no record.
    Bad,
}

/// What a walk over a stretch gathered.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// Where the first record was found, as a physical offset.
    pub(super) begin: Option<u64>,
    /// Where the walk ended.
    pub(super) end: u64,
    pub(super) how: ChunkEnd,
    pub(super) records: u64,
    pub(super) newest_ms: i64,
    /// Names of light queues that are not made.
    pub(super) left_out: u64,
    pub(super) lanes: Vec<Lane>,
    pub(super) units: Vec<QueuedUnit>,
    pub(super) keyed: Vec<Keyed>,
    pub(super) hashes: Vec<i32>,
}

/// Reads a stretch from its first record on, which is looked for: whether it is one is known only
/// once the walk over the stretch before has come to the same place.
pub(super) fn read(reading: &Reading<'_>, stretch: &Stretch) -> Result<Chunk> {
    let mut reader = stretch.reader(reading.log)?.with_block(reading.spare.block());
    let first = match stretch.from {
        0 => Some(0),
        from => reader.first_likely(from, stretch.to)?,
    };
    let chunk = match first {
        Some(at) => walk(reading, stretch, &mut reader, at)?,
        None => Chunk { end: stretch.end(), ..Chunk::default() },
    };
    reading.spare.give_back_block(reader.into_block());
    Ok(chunk)
}

/// Reads a stretch from `at` on, a physical offset in it.
pub(super) fn read_from(reading: &Reading<'_>, stretch: &Stretch, at: u64) -> Result<Chunk> {
    let mut reader = stretch.reader(reading.log)?;
    walk(reading, stretch, &mut reader, at.saturating_sub(stretch.file.base_offset))
}

fn walk(
    reading: &Reading<'_>,
    stretch: &Stretch,
    reader: &mut FileReader<'_>,
    mut at: u64,
) -> Result<Chunk> {
    let base = stretch.file.base_offset;
    let mut gather = Gather::new(reading);
    gather.chunk.begin = Some(base.saturating_add(at));
    let checks = reading.flushed_ms < i64::MAX;
    let how = loop {
        if at >= stretch.to || gather.is_full() {
            break ChunkEnd::Whole;
        }
        let left = reader.file_size.saturating_sub(at);
        let is_own = |view: &MessageView<'_>| {
            u64::try_from(view.physical_offset()) == Ok(base.saturating_add(at))
        };
        if !checks && let Some(view) = reader.whole(at).filter(is_own) {
            gather.add(&view, view.store_size());
            at += u64::from(view.store_size());
            continue;
        }
        match reader.read(at, checks)? {
            Lies::Record(record) => {
                let next = at + u64::from(record.size);
                if !is_own(&record.view) {
                    break ChunkEnd::Bad;
                }
                if !checks || record.view.store_timestamp_ms() <= reading.flushed_ms {
                    gather.add_closely(&record);
                    at = next;
                    continue;
                }
                let torn = match record.is_elided {
                    true => reader.take_faults().body.is_some(),
                    false => {
                        record.view.check_body_crc().is_err() || peek::lacks_bytes(&record.view)
                    }
                };
                // What is wrong with a large record's body lies with the reader, so it is read again.
                match reader.read(at, false)? {
                    Lies::Record(record) if !torn => gather.add_closely(&record),
                    _ => break ChunkEnd::Bad,
                }
                at = next;
            }
            Lies::Blank(size) if u64::from(size) == left => break ChunkEnd::Blank,
            Lies::Blank(_) | Lies::Bad(_) => break ChunkEnd::Bad,
            Lies::End | Lies::Empty => break ChunkEnd::Nothing,
        }
    };
    Ok(Chunk { end: base.saturating_add(at), how, ..gather.chunk })
}

/// A topic of a chunk, and its queues' lanes.
struct Topic {
    name: Arc<[u8]>,
    hash: TopicHash,
    kind: QueueKind,
    is_wanted: bool,
    lanes: HashMap<i32, u32>,
}

struct Gather<'a> {
    reading: &'a Reading<'a>,
    topics: Vec<Topic>,
    by_name: HashMap<Arc<[u8]>, usize>,
    /// The topic of the last record.
    last: usize,
    chunk: Chunk,
}

impl<'a> Gather<'a> {
    fn new(reading: &'a Reading<'a>) -> Self {
        Self {
            reading,
            topics: Vec::new(),
            by_name: HashMap::new(),
            last: 0,
            chunk: reading.spare.chunk(),
        }
    }

    fn is_full(&self) -> bool {
        self.chunk.units.len().max(self.chunk.hashes.len()) >= MOST_GATHERED
    }

    #[cold]
    fn add_closely(&mut self, record: &Record<'_>) {
        self.add(&record.view, record.size);
    }

    #[inline(always)]
    fn add(&mut self, view: &MessageView<'_>, size: u32) {
        let mut request = DispatchRequest::of(view);
        request.store_size = size;
        self.chunk.records += 1;
        self.chunk.newest_ms = self.chunk.newest_ms.max(request.store_timestamp_ms);
        if self.topics.get(self.last).is_none_or(|last| *last.name != *request.topic) {
            self.last = self.find_topic(request.topic);
        }
        if self.reading.with_index {
            let before = self.chunk.hashes.len();
            let topic = self.topics.get(self.last).map(|topic| topic.hash).unwrap_or_default();
            self.chunk.hashes.extend(request.keys().hashes_of(topic));
            self.chunk.keyed.push(Keyed {
                physical_offset: request.physical_offset,
                store_timestamp_ms: request.store_timestamp_ms,
                keys: u32::try_from(self.chunk.hashes.len() - before).unwrap_or(0),
            });
        }
        if self.reading.with_queues && request.is_queued() {
            self.queue(&request);
        }
    }

    #[inline]
    fn queue(&mut self, request: &DispatchRequest<'_>) {
        let reading = self.reading;
        let levels = reading.queues.delay_levels();
        if let Some((lane, kind)) = self.lane(request.topic, request.queue_id) {
            self.push(request, lane, true, request.unit(request.range(kind), levels));
        }
        if request.properties.multi_dispatch.is_some() {
            for (name, number) in request.more_queues() {
                if !reading.queues.takes_more_queues() && reading.queues.get(name, 0).is_none() {
                    self.chunk.left_out += 1;
                } else if let Some((lane, _)) = self.lane(name, 0) {
                    let mut unit = request.unit(request.range(QueueKind::Plain), levels);
                    unit.number = number;
                    self.push(request, lane, false, unit);
                }
            }
        }
    }

    #[inline]
    fn push(&mut self, request: &DispatchRequest<'_>, lane: u32, is_own: bool, unit: Unit) {
        if let Some(lane) = self.chunk.lanes.get_mut(lane as usize) {
            if lane.units == 0 {
                lane.first = unit.number;
            }
            lane.units += 1;
            lane.end = unit.end();
        }
        let store_timestamp_ms = request.store_timestamp_ms;
        self.chunk.units.push(QueuedUnit { lane, is_own, store_timestamp_ms, unit });
    }

    /// The lane of a queue and its kind; `None` where the topic is not wanted.
    #[inline]
    fn lane(&mut self, topic: &[u8], queue_id: i32) -> Option<(u32, QueueKind)> {
        if self.topics.get(self.last).is_none_or(|last| *last.name != *topic) {
            self.last = self.find_topic(topic);
        }
        let known = self.topics.get_mut(self.last)?;
        if !known.is_wanted {
            return None;
        }
        let lanes = &mut self.chunk.lanes;
        let lane = *known.lanes.entry(queue_id).or_insert_with(|| {
            let (units, first, end) = (0, 0, 0);
            let (topic, kind) = (Arc::clone(&known.name), known.kind);
            lanes.push(Lane { topic, queue_id, kind, units, first, end });
            u32::try_from(lanes.len() - 1).unwrap_or(u32::MAX)
        });
        Some((lane, known.kind))
    }

    #[cold]
    fn find_topic(&mut self, topic: &[u8]) -> usize {
        if let Some(&number) = self.by_name.get(topic) {
            return number;
        }
        let name: Arc<[u8]> = topic.into();
        let wanted = self.reading.topics;
        self.topics.push(Topic {
            name: Arc::clone(&name),
            hash: TopicHash::of(topic),
            // Light queues hold single messages, whatever their folder says.
            kind: match topic.starts_with(lmq::PREFIX) {
                true => QueueKind::Plain,
                false => self.reading.queues.kind_of(topic),
            },
            is_wanted: wanted.is_none_or(|wanted| wanted.iter().any(|name| **name == *topic)),
            lanes: HashMap::new(),
        });
        self.by_name.insert(name, self.topics.len() - 1);
        self.topics.len() - 1
    }
}

/// The store time of the record at `at` of a reader's file, if one begins there.
pub(super) fn stored_at(reader: &mut FileReader<'_>, at: u64) -> Result<Option<i64>> {
    Ok(match reader.read(at, false)? {
        Lies::Record(record) => Some(record.view.store_timestamp_ms()),
        _ => None,
    })
}

/// Whether an error says that a file is gone, which retention of a running broker does.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
