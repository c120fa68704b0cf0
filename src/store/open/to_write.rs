//! Opens a store for writing, in steps: load, analyse, repair, make the writer, dispatch the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

use crate::locks::Mutex;
use hashbrown::HashSet;

use super::analysis::{Analysis, FoundStore};
use super::epoch::EndedEpoch;
use super::inspect::{self, Parts, layout_to_write, load_parts};
use super::misplaced;
use super::recover;
use super::version;
use crate::config::{FlushDiskType, StoreConfig};
use crate::error::{Error, Result};
use crate::files::threads::beside;
use crate::files::{Access, DiskReserve, LARGEST_PAGE, Waiters, Wakeup};
use crate::format::width::{clamp_u64, saturating_i64};
use crate::log::index::writer::IndexService;
use crate::log::log_writer::LogWriter;
use crate::log::{CommitLog, Queue, StoreCheckpoint};
use crate::store::dispatch::dispatcher::Dispatcher;
use crate::store::folder::lock::{self, StoreLock};
use crate::store::folder::mark::{DurableMark, Flushed, Mark};
use crate::store::folder::paths::StorePaths;
use crate::store::folder::seal::Seal;
use crate::store::progress::{Halt, Progress};
use crate::store::queue_table::QueueTable;
use crate::store::read::reader::Reader;
use crate::store::read::view::log_end;
use crate::store::recovery_report::{RecoveryMode, RecoveryReport};
use crate::store::store_files;
use crate::store::store_files::FileAges;
use crate::store::store_files::Notices;
use crate::store::store_files::StoreFiles;
use crate::store::topics::NewTopics;
use crate::store::write::append::Appender;
use crate::store::write::group_commit::FlushGate;
use crate::store::write::new_queues::NewQueues;
use crate::store::write::queue_selector::QueueSelector;
use crate::store::write::retention::Cleaning;
use crate::store::write::retention::unread::PendingNotices;
use crate::store::write::writer::{QUEUE_BYTES, Writer};
use crate::time::{Clock, FAR_MS};

#[derive(Debug)]
pub(in crate::store) struct Opened {
    pub(in crate::store) reader: Reader,
    pub(in crate::store) writer: Option<Arc<Writer>>,
    pub(in crate::store) warnings: Vec<String>,
}

pub(super) struct Opening {
    paths: StorePaths,
    config: StoreConfig,
    clock: Arc<dyn Clock>,
    store_lock: StoreLock,
    mode: RecoveryMode,
    log: CommitLog,
    queues: QueueTable,
    small_topics: HashSet<Box<[u8]>>,
    index: Option<IndexService>,
    checkpoint: StoreCheckpoint,
    durable: Option<Mark>,
    seal: Option<Seal>,
    warnings: Vec<String>,
}

impl Opening {
    pub(super) fn load(
        paths: StorePaths,
        mut config: StoreConfig,
        clock: Arc<dyn Clock>,
        store_lock: StoreLock,
        mode: RecoveryMode,
    ) -> Result<Self> {
        let mut parts = load_parts(&paths, &mut config, Access::ReadWrite)?;
        parts.refuse_what_is_in_the_way()?;
        let Parts { log, queues, index, small_topics, mut warnings, .. } = parts;
        let layout = layout_to_write(index, &mut config)?;
        let seal = match mode {
            RecoveryMode::Crash => None,
            _ => Seal::holding(&paths, &config)?,
        };
        if seal.is_none() {
            misplaced::refuse_foreign(&paths, log.run())?;
        }
        let checkpoint =
            StoreCheckpoint::load(paths.storage(), &paths.checkpoint(), Access::ReadWrite)?;
        let mut index = None;
        if let Some(layout) = layout {
            let dir = paths.index();
            let (service, findings) =
                IndexService::load(Arc::clone(&paths.storage), &dir, layout, Arc::clone(&clock))?;
            warnings.extend(findings.iter().map(ToString::to_string));
            index = Some(service);
        }
        // A sealed store has the release that it was closed with.
        let run = index.as_ref().map(|index| &**index.run()).filter(|_| seal.is_none());
        let release = version::choose(&mut config, &version::read_marks(&paths, &log, run)?)?;
        if let Some(index) = &mut index {
            index.tag_entries = release.has_tag_entries();
        }
        let durable = read_mark(&paths, &mut warnings)?;
        Ok(Self {
            paths,
            config,
            clock,
            store_lock,
            mode,
            log,
            queues,
            small_topics,
            index,
            checkpoint,
            durable,
            seal,
            warnings,
        })
    }

    pub(super) fn into_opened(
        mut self,
        drop_beyond: bool,
        progress: &mut Progress<'_>,
    ) -> Result<Opened> {
        let (mut analysis, index_trusted_until_ms, written) =
            self.analyse(drop_beyond, progress)?;
        // From here on the store is changed.
        if !written {
            self.mark()?;
        }
        let (report, dispatch_from) = self.repair(&analysis, index_trusted_until_ms)?;
        self.correct_checkpoint(&analysis);
        let read = std::mem::take(&mut analysis.read);
        let is_written = written || self.mode != RecoveryMode::Crash;
        let (last, place) = self.last_places(&analysis);
        let (small_topics, durable) = (std::mem::take(&mut self.small_topics), self.durable);
        let mut warnings = std::mem::take(&mut self.warnings);
        let mut writer = self.into_writer(&analysis, report, (last, dispatch_from));
        let files = Arc::clone(&writer.files);
        writer.recovery.dispatched = writer
            .redispatch_beside(read, || recover::make_durable(&analysis, is_written, &files.log))?;
        // From here on all of it is durable.
        writer.mark = Some(DurableMark::set(&files.paths, durable, place)?);
        writer.serve()?;
        for queue in files.queues.all() {
            queue.set_next_offset(queue.max_offset());
        }
        writer.topics = Mutex::new(NewTopics::lacking(&files.queues, &small_topics));
        warnings.extend(store_files::set_offsets_back(&files));
        reckon_room(&files);
        let writer = Arc::new(writer);
        let reader = Reader::of_writer(Arc::clone(&writer));
        Ok(Opened { reader, writer: Some(writer), warnings })
    }

    /// Marks the store as open. It keeps the crashed session's `abort`: a new one would invalidate
    /// the durable mark if recovery stops early.
    fn mark(&self) -> Result<()> {
        self.store_lock.mark(&self.paths)?;
        let paths = &self.paths;
        let is_crashed = self.mode == RecoveryMode::Crash;
        match self.durable.is_some_and(|mark| mark.is_of_last_session(paths)) {
            true if is_crashed => Ok(()),
            _ => lock::write_abort(paths),
        }
    }

    /// Also until when the index is trusted, and whether the log was rewritten.
    fn analyse(
        &mut self,
        drop_beyond: bool,
        progress: &mut Progress<'_>,
    ) -> Result<(Analysis, i64, bool)> {
        let is_clean = self.mode != RecoveryMode::Crash;
        let (paths, fields) = (&self.paths, &self.checkpoint.fields);
        let found = FoundStore {
            paths,
            config: &self.config,
            log: &self.log,
            queues: &self.queues,
            index: self.index.as_ref().map(|index| &**index.run()),
            checkpoint: fields,
            flushed: Flushed::of(paths, self.durable, fields, is_clean),
            ended: EndedEpoch::find(paths, &self.log, &self.queues)?,
            is_clean,
            seal: self.seal.take(),
            latest_ms: self.clock.now_ms().saturating_add(FAR_MS),
        };
        let written = !is_clean && found.is_all_unproven();
        let analysis = match written {
            true => {
                let (log, halt) = (&self.log, Halt::default());
                let write = || {
                    self.mark()?;
                    log.write_again(log.min_offset(), || !halt.is_wanted())
                };
                let (_, analysis) = beside("mqstore-durable", paths.root(), write, || {
                    found.analyse(progress).inspect_err(|_| halt.raise())
                })?;
                analysis
            }
            false => found.analyse(progress)?,
        };
        if !drop_beyond && let Some(refusal) = found.refusal(&analysis)? {
            return Err(refusal.into());
        }
        Ok((analysis, found.index_trusted_until_ms(), written))
    }

    fn repair(
        &mut self,
        analysis: &Analysis,
        index_trusted_until_ms: i64,
    ) -> Result<(RecoveryReport, u64)> {
        let Self { paths, config, log, queues, checkpoint, mode, .. } = self;
        inspect::remember(paths, config, *mode == RecoveryMode::New)?;
        if self.durable.is_some_and(|durable| durable.offset > analysis.end) {
            // The cut was requested. If it stops here, the next open must not expect these messages.
            let set = DurableMark::set(paths, self.durable, analysis.end)?;
            self.durable = Some(set.mark());
        }
        recover::lower_checkpoint(analysis, checkpoint, paths.storage())?;
        let now_ms = self.clock.now_ms();
        let mut report = recover::repair(analysis, *mode, log, queues, paths, now_ms)?;
        if *mode == RecoveryMode::Crash {
            // Checkpoint and seal vouch for the queues after the next flush.
            let from = log_end::audit_start(log, queues, &checkpoint.fields, true)?;
            let unproven = |queue: &&Arc<Queue>| clamp_u64(queue.reach()) >= from;
            queues.all().iter().filter(unproven).for_each(|queue| queue.mark_all_dirty());
        }
        let mut dispatch_from = analysis.first_missing.unwrap_or(analysis.end).min(analysis.end);
        if let Some(index) = self.index.as_mut().filter(|_| !analysis.sealed) {
            let from = recover::mend_index(index, analysis, log, index_trusted_until_ms)?;
            if from < analysis.end && analysis.keyed.is_some() {
                report.rebuilt.push("index".to_owned());
                dispatch_from = dispatch_from.min(from);
            }
        }
        if analysis.tail.data_end.is_some() || *mode == RecoveryMode::Crash {
            analysis.tail.cut(log, analysis.end)?;
        }
        for queue in queues.all() {
            queue.correct_min_offset(log.min_offset())?;
        }
        if let Some((at, time)) = analysis.ahead {
            self.warnings.push(format!(
                "the message at physical offset {at} has store time {time}, which is more than an hour ahead \
                 of the clock: later messages are stored by the clock; `mqstore verify` lists such messages"
            ));
        }
        Ok((report, dispatch_from))
    }

    /// A time outside the range of records proves nothing.
    fn correct_checkpoint(&mut self, analysis: &Analysis) {
        let (fields, newest) = (&mut self.checkpoint.fields, analysis.newest_timestamp_ms);
        fields.physic_msg_timestamp_ms = fields.physic_msg_timestamp_ms.min(newest).max(0);
        fields.logics_msg_timestamp_ms = fields.logics_msg_timestamp_ms.min(newest).max(0);
        fields.index_msg_timestamp_ms = fields.index_msg_timestamp_ms.min(newest).max(0);
        fields.confirm_physical_offset = match analysis.last_record {
            Some(last) => saturating_i64(last),
            None => fields.confirm_physical_offset.clamp(0, saturating_i64(analysis.end)),
        };
    }

    fn last_places(&self, analysis: &Analysis) -> (u64, u64) {
        // An unread log does not tell where its last message begins.
        let marked = self.durable.map(|durable| durable.offset.min(analysis.end));
        let last = analysis.last_record.or(marked).unwrap_or(analysis.end);
        let syncs = self.config.flush_disk_type == FlushDiskType::Sync;
        (last, if syncs { analysis.end } else { last })
    }

    fn into_writer(
        self,
        analysis: &Analysis,
        recovery: RecoveryReport,
        (last, dispatch_from): (u64, u64),
    ) -> Writer {
        let Self { paths, config, clock, log, queues, index, checkpoint, .. } = self;
        let (reserve, per_mille) = (config.disk_reserve_bytes, entries_per_mille(&config));
        let room = DiskReserve::new(
            Arc::clone(&paths.storage),
            paths.root(),
            reserve,
            per_mille,
            dispatch_from,
        );
        let room = Arc::new(room);
        queues.leave(&room);
        log.leave(room);
        let log = Arc::new(log);
        let mut log_writer = LogWriter::new(Arc::clone(&log));
        if config.flush_disk_type == FlushDiskType::Sync {
            log_writer = log_writer.through_the_file();
        } else if config.warm_maped_file_enable {
            log_writer = log_writer.warming();
        }
        let entered = analysis.last_record.and_then(|last| i64::try_from(last).ok());
        let entered = entered.unwrap_or(checkpoint.fields.logics_physical_offset);
        let front = |service: &IndexService| Arc::clone(service.front());
        let (bell, log_front) = (Arc::clone(log_writer.bell()), Arc::clone(log_writer.front()));
        let newest = analysis.newest_timestamp_ms;
        let files = StoreFiles {
            paths,
            config,
            clock,
            log,
            queues,
            index: index.as_ref().map(|service| Arc::clone(service.run())),
            closed: AtomicBool::new(false),
            notices: Notices::default(),
            ages: FileAges::default(),
        };
        let waiters = Waiters::create(files.paths.storage(), &files.paths.waiters());
        let cleaning =
            Cleaning { pending_notices: PendingNotices::of_earlier(&files), ..Cleaning::default() };
        let writer = Writer {
            files: Arc::new(files),
            lock: Mutex::new(Some(self.store_lock)),
            appender: Mutex::new(Appender::new(log_writer, newest, last, waiters)),
            mark: None,
            index_front: index.as_ref().map(front).unwrap_or_default(),
            dispatcher: Mutex::new(Dispatcher { index }),
            dispatched: AtomicU64::new(dispatch_from),
            indexed: AtomicU64::new(dispatch_from),
            dispatched_ms: AtomicI64::new(newest),
            entered: AtomicI64::new(entered),
            durable_ms: AtomicI64::new(i64::MIN),
            gate: FlushGate::default(),
            bell,
            log_front,
            files_bell: Wakeup::default(),
            log_flushing: AtomicBool::new(false),
            log_flushed: AtomicBool::new(false),
            checkpoint: Mutex::new(checkpoint),
            topics: Mutex::default(),
            spread: QueueSelector::default(),
            new_queues: NewQueues::default(),
            cleaning,
            dispatch_held: AtomicBool::new(false),
            recovery,
        };
        writer.gate.flushed(analysis.end);
        writer
    }
}

const LEAST_MESSAGE: u64 = 100;
const BLOCK: u64 = 4096;

/// Disk space of entries for a thousand bytes of log with the shortest messages and one key each,
/// and an eighth more for file system overhead.
fn entries_per_mille(config: &StoreConfig) -> u64 {
    let in_blocks = |entry: u64, room: u64, file: u64| {
        entry.saturating_mul(file.next_multiple_of(BLOCK)).div_ceil(room.max(1))
    };
    let queue = config.mapped_file_size_consume_queue.unwrap_or(StoreConfig::CONSUME_QUEUE_FILE);
    let slots = u64::from(config.max_hash_slot_num.unwrap_or(StoreConfig::INDEX_SLOTS));
    let keys = 20 * u64::from(config.max_index_num.unwrap_or(StoreConfig::INDEX_ENTRIES));
    let index = if config.message_index_enable { in_blocks(20, keys, 4 * slots + keys) } else { 0 };
    // A unit of the extension without a bitmap.
    let ext = if config.enable_consume_queue_ext { 2 * 20 } else { 0 };
    (in_blocks(20, queue, queue) + index + ext) * 1000 / LEAST_MESSAGE * 9 / 8
}

/// Disk space of small files: checkpoint, seal, tables and folders.
const SMALL_FILES: u64 = 64 << 10;

/// Computes the disk space for closing, and warns if the disk lacks it: appends fail then.
fn reckon_room(files: &StoreFiles) {
    let Some(room) = files.log.room() else { return };
    let queues = files.queues.all().len() as u64;
    room.needs(SMALL_FILES.saturating_add(queues.saturating_mul(QUEUE_BYTES)));
    if let Some(index) = &files.index {
        // Slots and first entries of the next index file, and of one whose space was given back.
        let first = index.layout().entry_position(0).next_multiple_of(LARGEST_PAGE as u64);
        let each = index.layout().file_len().min(first.saturating_add(LARGEST_PAGE as u64));
        room.needs(each << u32::from(!index.files().is_empty()));
    }
    if let Err(error) = room.check_root() {
        let root = files.paths.root().display();
        files.notices.push(format!("{root}: nothing can be appended: {error}"));
    }
}

/// Reads the durable mark; an invalid one gives a warning, and the checkpoint counts.
pub(super) fn read_mark(paths: &StorePaths, warnings: &mut Vec<String>) -> Result<Option<Mark>> {
    match Mark::read(paths) {
        Err(error @ Error::Corrupt(_)) => {
            warnings.push(error.to_string());
            Ok(None)
        }
        other => other,
    }
}
