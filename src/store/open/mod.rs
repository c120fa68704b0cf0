//! Opens a store: look at the files, decide, repair, create a reader and a writer.
//!
//! Open this file first: `open` takes the lock and calls the steps in order. `inspect.rs` lists
//! files, `index_settings.rs` detects the index layout. `analysis.rs` finds the log's end and
//! damage, with `tail.rs`, and changes nothing; `plan.rs` reports its outcome. `recover.rs`
//! repairs. `version.rs` detects the RocketMQ release. `seal.rs` marks a clean close: the next
//! open then reads no log.

pub mod analysis;
pub mod index_settings;
pub mod inspect;
pub mod missing_end;
pub mod plan;
pub mod recover;
pub mod seal;
pub mod tail;
pub mod version;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::config::{FlushDiskType, StoreConfig};
use crate::error::{Error, Result};
use crate::files::{Access, Anchored, Bell, LARGEST_PAGE, Room, Storage, make_folder};
use crate::format::message::properties;
use crate::format::width::{at_most_i64, or_nowhere};
use crate::log::commit_log::Found;
use crate::log::index::file::IndexOpen;
use crate::log::index::run::IndexRun;
use crate::log::index::writer::IndexService;
use crate::log::log_writer::LogWriter;
use crate::log::{CommitLog, StoreCheckpoint};
use crate::time::{Clock, FAR_MS};

use self::analysis::{Analysis, FoundStore};
use self::inspect::{Parts, is_store, layout_to_read, layout_to_write, load_parts, not_a_store};
use self::recover::RecoveryMode;
use self::seal::Seal;
use super::dispatch::dispatcher::Dispatcher;
use super::lock::{self, StoreLock};
use super::mark::{DurableMark, Flushed, Mark};
use super::paths::StorePaths;
use super::progress::Progress;
use super::read::follower::Follower;
use super::read::offsets;
use super::read::reader::Reader;
use super::store_files::StoreFiles;
use super::swap;
use super::write::append::Appender;
use super::write::group_commit::FlushGate;
use super::write::notices::Notices;
use super::write::retention::file_ages::FileAges;
use super::write::topics::TopicTable;
use super::write::writer::{QUEUE_BYTES, Writer};

/// Purpose of opening a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading: nothing is locked, created or changed.
    Read,
    /// Reading and writing an existing store.
    ReadWrite,
    /// Reading and writing; created if missing.
    Create,
}

/// An open store whose threads are not started.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) reader: Reader,
    /// `None` for a reader.
    pub(super) writer: Option<Arc<Writer>>,
    /// Facts met at open that are no damage.
    pub(super) warnings: Vec<String>,
}

/// A writer's policy for damage before flushed messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnFlushedDamage {
    Refuse,
    /// Refuse if any whole message lies behind it, flushed or not.
    RefuseAny,
    /// End the log there, as requested, and keep the rest in quarantine.
    Cut,
}

pub(super) fn open(
    path: &Path,
    mode: OpenMode,
    config: StoreConfig,
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    damage: OnFlushedDamage,
    progress: &mut Progress<'_>,
) -> Result<Opened> {
    config.check_retention()?;
    let paths = StorePaths::new(path, &config);
    let there = is_store(&*storage, &paths)?;
    if !there && mode != OpenMode::Create {
        return Err(not_a_store(&*storage, &paths));
    }
    if mode == OpenMode::Read {
        return open_to_read(paths, config, storage, clock);
    }
    make_folder(&*storage, path)?;
    // Lock before reading anything.
    let store_lock = StoreLock::take(&*storage, &paths)?;
    swap::settle(&*storage, &paths)?;
    let crashed = lock::was_aborted(&*storage, &paths)?;
    let written: Vec<_> = paths
        .commit_log()
        .iter()
        .filter(|dir| !paths.read_only_commit_log().contains(dir))
        .cloned()
        .collect();
    for dir in written.iter().chain([&paths.consume_queue()]) {
        make_folder(&*storage, dir)?;
    }
    // From here on nothing is created in another store at these paths.
    let anchors = [path.to_owned(), paths.lock()].into_iter().chain(written);
    let storage: Arc<dyn Storage> = Arc::new(Anchored::new(storage, anchors)?);
    let mode = match (there, crashed) {
        (false, false) => RecoveryMode::New,
        (_, true) => RecoveryMode::Crash,
        (true, false) => RecoveryMode::Clean,
    };
    open_to_write(paths, config, storage, clock, store_lock, (mode, damage), progress)
}

pub(super) fn open_beside(path: &Path, config: StoreConfig, aside: &Path) -> Result<Opened> {
    let storage: Arc<dyn Storage> = Arc::new(crate::files::Os);
    let paths = StorePaths::new(path, &config).with_aside(aside.to_owned());
    if !is_store(&*storage, &paths)? {
        return Err(not_a_store(&*storage, &paths));
    }
    open_to_read(paths, config, storage, Arc::new(crate::time::SystemClock))
}

fn open_to_read(
    paths: StorePaths,
    mut config: StoreConfig,
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
) -> Result<Opened> {
    // Completing a swap changes the root.
    let state = || {
        let root = storage.stamp(paths.root()).ok().flatten();
        (swap::is_listed(&*storage, &paths), root)
    };
    let before = state();
    let Parts { log, queues, index, unread_topics, mut warnings, .. } =
        load_parts(&paths, &mut config, &storage, Access::Read)?;
    if before.0 || state() != before {
        queues.refresh()?;
    }
    let layout = layout_to_read(index, &mut config, &mut warnings)?;
    let index = match layout.filter(|_| config.message_index_enable) {
        Some(layout) => {
            let (run, findings) =
                IndexRun::load(Arc::clone(&storage), &paths.index(), layout, IndexOpen::Read)?;
            warnings.extend(findings.iter().map(ToString::to_string));
            Some(Arc::new(run))
        }
        None => None,
    };
    let files = Arc::new(StoreFiles {
        paths,
        config,
        storage,
        clock,
        log: Arc::new(log),
        queues,
        index,
        closed: AtomicBool::new(false),
        notices: Notices::default(),
        ages: FileAges::default(),
    });
    let (follower, unread) = Follower::new(files)?;
    warnings.extend(unread_topics.iter().chain(&unread).map(ToString::to_string));
    Ok(Opened { reader: Reader::of_files(follower), writer: None, warnings })
}

fn open_to_write(
    paths: StorePaths,
    mut config: StoreConfig,
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    store_lock: StoreLock,
    (mode, damage): (RecoveryMode, OnFlushedDamage),
    progress: &mut Progress<'_>,
) -> Result<Opened> {
    let mut parts = load_parts(&paths, &mut config, &storage, Access::ReadWrite)?;
    parts.refuse_what_is_in_the_way()?;
    let Parts { log, queues, index, small_topics, mut warnings, .. } = parts;
    let layout = layout_to_write(index, &mut config)?;
    let mut checkpoint = StoreCheckpoint::load(&*storage, &paths.checkpoint(), Access::ReadWrite)?;
    let mut index = None;
    if let Some(layout) = layout {
        let (service, findings) =
            IndexService::load(Arc::clone(&storage), &paths.index(), layout, Arc::clone(&clock))?;
        warnings.extend(findings.iter().map(ToString::to_string));
        index = Some(service);
    }
    let is_clean = mode != RecoveryMode::Crash;
    let seal = if is_clean { Seal::holding(&*storage, &paths, &config)? } else { None };
    // A sealed store has the release that it was closed with.
    let run = index.as_ref().map(|index| &**index.run()).filter(|_| seal.is_none());
    let release = version::settle(&mut config, &version::look(&*storage, &paths, &log, run)?)?;
    if let Some(index) = &mut index {
        index.put_tags(release.has_tag_entries());
    }
    let mut durable = read_mark(&*storage, &paths, &mut warnings)?;
    let found = FoundStore {
        paths: &paths,
        config: &config,
        storage: &*storage,
        log: &log,
        queues: &queues,
        index: index.as_ref().map(|index| &**index.run()),
        checkpoint: &checkpoint.fields,
        flushed: Flushed::of(&*storage, &paths, durable, &checkpoint.fields, is_clean),
        is_clean,
        seal,
        latest_ms: clock.now_ms().saturating_add(FAR_MS),
    };
    let index_trusted_until_ms = found.index_trusted_until_ms();
    // Keep the crashed session's `abort`: a new one would invalidate the mark if recovery stops
    // early.
    let goes_on =
        !is_clean && durable.is_some_and(|mark| mark.is_of_last_session(&*storage, &paths));
    let mark = || {
        store_lock.mark(&paths)?;
        if goes_on { Ok(()) } else { lock::write_abort(&*storage, &paths) }
    };
    let written_early = mode == RecoveryMode::Crash && found.is_all_unproven();
    let mut analysis = match written_early {
        true => {
            let has_failed = AtomicBool::new(false);
            let is_wanted = || !has_failed.load(Ordering::Relaxed);
            let write =
                || mark().and_then(|()| recover::write_again(&log, log.min_offset(), is_wanted));
            recover::beside("mqstore-durable", paths.root(), write, || {
                let analysis = found.analyse(progress);
                has_failed.store(analysis.is_err(), Ordering::Relaxed);
                analysis
            })?
        }
        false => found.analyse(progress)?,
    };
    if damage != OnFlushedDamage::Cut {
        found.refuse_damage(&analysis, damage == OnFlushedDamage::RefuseAny)?;
    }
    // From here on the store is changed.
    if !written_early {
        mark()?;
    }
    inspect::remember(&storage, &paths, &config, mode == RecoveryMode::New)?;
    if durable.is_some_and(|durable| durable.place > analysis.end) {
        // The cut was requested. If it stops here, the next open must not expect these messages.
        durable = Some(DurableMark::set(&*storage, &paths, durable, analysis.end)?.mark());
    }
    recover::lower_checkpoint(&analysis, &mut checkpoint, &*storage)?;
    let now_ms = clock.now_ms();
    let mut report = recover::repair(&analysis, mode, &log, &queues, &*storage, &paths, now_ms)?;
    let mut dispatch_from = analysis.first_missing.unwrap_or(analysis.end).min(analysis.end);
    if let Some(index) = index.as_mut().filter(|_| !analysis.sealed) {
        let from = mend_index(index, &analysis, &log, index_trusted_until_ms)?;
        if from < analysis.end && analysis.keyed.is_some() {
            report.rebuilt.push("index".to_owned());
            dispatch_from = dispatch_from.min(from);
        }
    }
    for queue in queues.all() {
        queue.correct_min_offset(log.min_offset())?;
    }
    if let Some((at, time)) = analysis.ahead {
        warnings.push(format!(
            "the message at physical offset {at} has store time {time}, which is more than an hour ahead \
             of the clock: later messages are stored by the clock; `mqstore verify` lists such messages"
        ));
    }
    // A time outside the range of records proves nothing.
    let fields = &mut checkpoint.fields;
    let newest = analysis.newest_timestamp_ms;
    fields.physic_msg_timestamp_ms = fields.physic_msg_timestamp_ms.min(newest).max(0);
    fields.logics_msg_timestamp_ms = fields.logics_msg_timestamp_ms.min(newest).max(0);
    fields.index_msg_timestamp_ms = fields.index_msg_timestamp_ms.min(newest).max(0);
    if let Some(last) = analysis.last_record {
        fields.confirm_physical_offset = at_most_i64(last);
    }
    let per_mille = entries_per_mille(&config);
    let reserve = config.disk_reserve_bytes;
    let room = Room::new(Arc::clone(&storage), paths.root(), reserve, per_mille, dispatch_from);
    log.leave(Arc::new(room));
    let log = Arc::new(log);
    let mut log_writer = LogWriter::new(Arc::clone(&log));
    if config.flush_disk_type == FlushDiskType::Sync {
        log_writer = log_writer.through_the_file();
    } else if config.warm_maped_file_enable {
        log_writer = log_writer.warming();
    }
    let index_run = index.as_ref().map(|service| Arc::clone(service.run()));
    let (bell, log_front) = (Arc::clone(log_writer.bell()), Arc::clone(log_writer.front()));
    let index_front = index.as_ref().map(|service| Arc::clone(service.front())).unwrap_or_default();
    // An unread log does not tell where its last message begins.
    let last = analysis.last_record.or(durable.map(|durable| durable.place.min(analysis.end)));
    let last = last.unwrap_or(analysis.end);
    let entered = analysis.last_record.and_then(|last| i64::try_from(last).ok());
    let entered = entered.unwrap_or(checkpoint.fields.logics_physical_offset);
    let place = if config.flush_disk_type == FlushDiskType::Sync { analysis.end } else { last };
    let files = StoreFiles {
        paths,
        config,
        storage,
        clock,
        log,
        queues,
        index: index_run,
        closed: AtomicBool::new(false),
        notices: Notices::default(),
        ages: FileAges::default(),
    };
    let mut writer = Writer {
        files: Arc::new(files),
        lock: Mutex::new(Some(store_lock)),
        appender: Mutex::new(Appender::new(log_writer, newest, last)),
        mark: None,
        dispatcher: Mutex::new(Dispatcher { index }),
        dispatched: AtomicU64::new(dispatch_from),
        indexed: AtomicU64::new(dispatch_from),
        dispatched_ms: AtomicI64::new(newest),
        entered: AtomicI64::new(entered),
        gate: FlushGate::default(),
        bell,
        log_front,
        index_front,
        files_bell: Bell::default(),
        log_flushing: AtomicBool::new(false),
        log_flushed: AtomicBool::new(false),
        checkpoint: Mutex::new(checkpoint),
        topics: Mutex::default(),
        disk_full: AtomicBool::new(false),
        cleaned_to: AtomicU64::new(0),
        dispatch_held: AtomicBool::new(false),
        recovery: report,
    };
    writer.gate.flushed(analysis.end);
    let files = Arc::clone(&writer.files);
    let read = std::mem::take(&mut analysis.read);
    let is_written = written_early || mode != RecoveryMode::Crash;
    let dispatched = writer
        .redispatch_beside(read, || recover::make_durable(&analysis, is_written, &files.log))?;
    // From here on all of it is durable.
    let durable = DurableMark::set(&*files.storage, &files.paths, durable, place)?;
    for queue in files.queues.all() {
        queue.set_next_offset(queue.max_offset());
    }
    writer.topics = Mutex::new(TopicTable::lacking(&files.queues, &small_topics));
    writer.mark = Some(durable);
    writer.recovery.dispatched = dispatched;
    warnings.extend(offsets::set_offsets_back(&files));
    reckon_room(&files);
    let writer = Arc::new(writer);
    Ok(Opened { reader: Reader::of_writer(Arc::clone(&writer)), writer: Some(writer), warnings })
}

/// Minimum bytes of a message with a key.
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
        // The next index file: slots and first entries.
        let first = index.layout().entry_position(0).next_multiple_of(LARGEST_PAGE as u64);
        room.needs(index.layout().file_len().min(first.saturating_add(LARGEST_PAGE as u64)));
    }
    if let Err(error) = room.check_root() {
        let root = files.paths.root().display();
        files.notices.push(format!("{root}: nothing can be appended: {error}"));
    }
}

/// Reads the durable mark; an invalid one gives a warning, and the checkpoint counts.
fn read_mark(
    storage: &dyn Storage,
    paths: &StorePaths,
    warnings: &mut Vec<String>,
) -> Result<Option<Mark>> {
    match Mark::read(storage, paths) {
        Err(error @ Error::Corrupt(_)) => {
            warnings.push(error.to_string());
            Ok(None)
        }
        other => other,
    }
}

/// Removes unreliable parts of the index; returns where the log must be read again for it.
fn mend_index(
    service: &mut IndexService,
    analysis: &Analysis,
    log: &CommitLog,
    known_ms: i64,
) -> Result<u64> {
    service.remove_from_unusable()?;
    service.keep_while(|header| header.end_timestamp_ms <= known_ms)?;
    if let Some(name) = analysis.unsound_index {
        service.remove_from_name(name)?;
    }
    let end = at_most_i64(analysis.end);
    service.truncate(end, |offset| stored_at(log, offset))?;
    let Some((first_keyed, _)) = analysis.keyed else { return Ok(analysis.end) };
    let first_file = service.run().files().first().map(Arc::clone);
    let begins = match &first_file {
        Some(file) => service.run().open(file)?.header()?.begin_physical_offset,
        None => i64::MAX,
    };
    // Files cannot be added in front, so the whole index is rebuilt.
    if or_nowhere(begins) > first_keyed {
        service.remove_from(0)?;
        return Ok(log.min_offset());
    }
    service.skip_keys_already_put()?;
    let indexed = service.last_keyed_offset()?.and_then(|offset| u64::try_from(offset).ok());
    match (indexed, analysis.keyed) {
        (Some(at), Some((_, last)))
            if at >= last && has_all_keys(service, log, at, known_ms < i64::MAX)? =>
        {
            Ok(analysis.end)
        }
        (Some(at), _) => Ok(at.max(log.min_offset())),
        (None, _) => Ok(log.min_offset()),
    }
}

/// Whether the index holds every key of its last record: a crash may have kept some. After a clean stop
/// tags without an entry are those of a release that puts none.
fn has_all_keys(
    service: &IndexService,
    log: &CommitLog,
    last_keyed: u64,
    crashed: bool,
) -> Result<bool> {
    let mut buffer = Vec::new();
    let Found::Message(view) = log.read(last_keyed, 0, &mut buffer)? else {
        return Ok(false);
    };
    let properties = properties::indexed(view.raw_properties());
    let keys = properties.keys.map_or(0, |keys| properties::split_keys(keys).count());
    let has_tags = crashed && service.puts_tags();
    let has_tags = has_tags && properties.tags.is_some_and(|tags| !tags.is_empty());
    let wanted = keys + usize::from(properties.unique_key.is_some()) + usize::from(has_tags);
    Ok(service.keys_put(view.physical_offset())? >= wanted)
}

/// Store time of a record; `None` if there is none, as in a file that retention deleted.
fn stored_at(log: &CommitLog, offset: i64) -> Result<Option<i64>> {
    log.store_timestamp_ms(or_nowhere(offset), 0)
}
