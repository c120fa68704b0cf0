//! Rebuilds queues and index from the log, offline (`DefaultMessageStore.doDispatch`).
//!
//! Threads read parts of the log and collect what records need. Parts are joined in order, so that
//! only records reached from record to record count. In place, the result is first built
//! beside the old one ([`crate::store::folder::swap`]).

mod build;
mod topic_table;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::build::{Build, LogSummary};
pub use self::build::{RebuiltQueue, What};
pub use self::topic_table::{RebuiltTopic, TopicsReport, rebuild_topics};
use super::meter::{Meter, thread_count, watched};
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::{Access, FileKind, Os, Storage, SystemClock, copy_file};
use crate::format::checkpoint::CheckpointFields;
use crate::format::index::IndexLayout;
use crate::format::release::Release;
use crate::format::width::clamp_u64;
use crate::log::index::builder::BuiltIndex;
use crate::log::{CommitLog, Queue, StoreCheckpoint};
use crate::store::dispatch::collect::Wanted;
use crate::store::dispatch::log_parts::{Checked, LogReading};
use crate::store::folder::lock::{self, StoreLock};
use crate::store::folder::mark::{Flushed, Mark};
use crate::store::folder::paths::{self, StorePaths};
use crate::store::folder::swap::{self, Move};
use crate::store::folder::{found, inventory, owner};
use crate::store::open::index_settings::{self, NoLayout};
use crate::store::open::{inspect, refusal, version};
use crate::store::progress::Progress;
use crate::store::queue_table::{QueueLayout, QueueTable, TopicKinds};
use crate::store::topics;
use crate::time::{Clock, FAR_MS};

/// Destination of [`rebuild`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Only report.
    Nothing,
    /// Replaces the store's structures, which go to quarantine.
    InPlace,
    /// An empty or new folder.
    Folder(PathBuf),
}

/// Options of [`rebuild`].
#[derive(Clone, Debug)]
pub struct RebuildOptions {
    /// Structures to rebuild.
    pub what: What,
    /// Topics of the queues; `None` means all. The index always covers all.
    pub topics: Option<Vec<Box<[u8]>>>,
    /// Destination.
    pub target: Target,
    /// Threads; `None` means one for each processor.
    pub threads: Option<usize>,
    /// Folder of queues that settle places, too.
    pub aside: Option<PathBuf>,
}

/// Result of [`rebuild`].
#[derive(Clone, Debug)]
pub struct RebuildReport {
    /// Messages in the log.
    pub messages: u64,
    /// Start of the log.
    pub log_start: u64,
    /// End of the log.
    pub log_end: u64,
    /// Ranges of the log without messages, although messages follow.
    pub damaged: Vec<(u64, u64)>,
    /// By topic and number.
    pub queues: Vec<RebuiltQueue>,
    /// Queues without messages in the log: they keep their numbers.
    pub kept: Vec<(Box<[u8]>, i32)>,
    /// Index files and entries.
    pub index: BuiltIndex,
    /// Entries without a possible queue, such as those of a topic that cannot name a folder.
    pub refused: u64,
    /// Entries of light queues, which the settings disable.
    pub left_out: u64,
    /// Folder of the old structures.
    pub quarantine: Option<PathBuf>,
}

const MOST_READY: usize = 1 << 17;

/// Rebuilds queues and index of the store at `path`. If `progress` ends it, nothing is changed.
///
/// # Errors
/// [`Error::NotAStore`], [`Error::Locked`] in place while a process writes to the store,
/// [`Error::InvalidConfig`] if a setting contradicts the files or the destination is not empty,
/// [`Error::MessageNotFound`] for an unknown topic, [`Error::Io`], also of kind `Interrupted`.
pub fn rebuild(
    path: &Path,
    config: StoreConfig,
    options: &RebuildOptions,
    progress: &mut Progress<'_>,
) -> Result<RebuildReport> {
    rebuild_on(Arc::new(Os), Arc::new(SystemClock), path, config, options, progress)
}

/// [`rebuild`] on another storage, with another clock.
pub fn rebuild_on(
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    path: &Path,
    config: StoreConfig,
    options: &RebuildOptions,
    progress: &mut Progress<'_>,
) -> Result<RebuildReport> {
    let paths = StorePaths::new(storage, path, &config).with_aside(options.aside.clone());
    let lock = lock_target(&paths, &options.target)?;
    let threads = thread_count(options.threads);
    let own = (paths.clone(), config.clone());
    let latest_ms = clock.now_ms().saturating_add(FAR_MS);
    let refuse = |read| match options.target {
        Target::Folder(_) => Ok(()),
        _ => refusal::refuse_missing_end(&own.0, &own.1, latest_ms, read),
    };
    refuse(None)?;
    let job = Job::load(clock, paths, config, options)?;
    let made = watched("rebuild", path, progress, |meter| job.make(threads, meter));
    let outcome = made.and_then(|made| {
        refuse(Some((made.walk.end, made.walk.newest_ms)))?;
        job.put(made)
    });
    if outcome.is_err() {
        job.clear();
    } else if lock.is_some() && options.what.index {
        inspect::remember(&own.0, &own.1, false)?;
    }
    drop(lock);
    outcome
}

fn lock_target(paths: &StorePaths, target: &Target) -> Result<Option<StoreLock>> {
    found::need_store(paths)?;
    found::check_folders(paths)?;
    match target {
        Target::Nothing => Ok(None),
        Target::Folder(out) => check_out(paths.storage(), paths.root(), out).map(|()| None),
        Target::InPlace => {
            owner::check(paths)?;
            let lock = StoreLock::take(paths)?;
            swap::finish(paths)?;
            Ok(Some(lock))
        }
    }
}

fn check_out(storage: &dyn Storage, root: &Path, out: &Path) -> Result<()> {
    let refuse = |found: String| {
        let wanted = "an empty or a new folder outside of the store";
        Err(Error::setting("out", wanted, format!("{}{found}", out.display())))
    };
    if out.starts_with(root) {
        return refuse(" in the store".to_owned());
    }
    match storage.kind_of(out)? {
        None => Ok(()),
        Some(FileKind::Directory) => {
            let entries = storage.list(out).map_err(Error::io("list", out))?;
            match entries.iter().find(|entry| entry.name != STAGING_OUT) {
                None => Ok(()),
                Some(entry) => refuse(format!(", which has {}", entry.name.to_string_lossy())),
            }
        }
        Some(_) => refuse(", which is no folder".to_owned()),
    }
}

const STAGING_OUT: &str = ".rebuilding";

struct Job<'a> {
    clock: Arc<dyn Clock>,
    paths: StorePaths,
    options: &'a RebuildOptions,
    log: CommitLog,
    queues: QueueTable,
    layout: QueueLayout,
    kinds: TopicKinds,
    index: Option<IndexLayout>,
    release: Release,
    flushed: Flushed,
    by_own_number: bool,
}

struct NewStructures {
    build: Build,
    walk: LogSummary,
    kept: Vec<Arc<Queue>>,
    index: BuiltIndex,
    staging: Option<PathBuf>,
}

impl<'a> Job<'a> {
    fn load(
        clock: Arc<dyn Clock>,
        paths: StorePaths,
        config: StoreConfig,
        options: &'a RebuildOptions,
    ) -> Result<Self> {
        let log = found::open_log(&paths, &config)?;
        log.run().refuse_twins()?;
        let mut layout = inspect::queue_layout(&paths, &config)?;
        let mut kinds = topics::entered(&paths)?.0.kinds;
        let (own, kinds_now) = (Arc::clone(&paths.storage), kinds.clone());
        let queues = QueueTable::load(own, layout.clone(), kinds_now, Access::Read)?;
        for queue in queues.all() {
            kinds.entry(queue.topic().into()).or_insert(queue.kind());
            // A store without configuration may have any queue number.
            layout.most_queue_id = layout.most_queue_id.max(queue.queue_id());
        }
        let in_database = inventory::has_queue_database(&paths)?;
        if in_database {
            layout.most_queue_id = i32::MAX;
        }
        let aside = layout.aside.as_deref();
        let is_aside =
            |queue: &Arc<Queue>| aside.is_some_and(|dir| queue.run().dir().starts_with(dir));
        let by_own_number = in_database && queues.all().iter().all(is_aside);
        let index = match index_settings::index_layout(&paths, &config)? {
            Ok(layout) | Err(NoLayout { fits: Some(layout), .. }) => Some(layout),
            Err(_) if !options.what.index => None,
            // The unreadable index is to be rebuilt.
            Err(none) => match index_settings::layout_by_settings(&paths, &config)? {
                None => return Err(none.refusal(&config)),
                own => own,
            },
        };
        let crashed = lock::was_aborted(&paths)?
            && (options.target == Target::InPlace || !StoreLock::is_held(&paths));
        let checkpoint = StoreCheckpoint::load(paths.storage(), &paths.checkpoint(), Access::Read)?;
        // `verify` reports an unreadable mark.
        let mark = Mark::read(&paths).unwrap_or_default();
        let flushed = Flushed::of(&paths, mark, &checkpoint.fields, !crashed);
        let release = version::release_of(&paths, &config)?;
        Ok(Self {
            clock,
            paths,
            options,
            log,
            queues,
            layout,
            kinds,
            index,
            release,
            flushed,
            by_own_number,
        })
    }

    fn staging(&self) -> Option<PathBuf> {
        match &self.options.target {
            Target::Nothing => None,
            Target::InPlace => Some(swap::staging(&self.paths)),
            Target::Folder(out) => Some(out.join(STAGING_OUT)),
        }
    }

    fn clear(&self) {
        let unfinished = match &self.options.target {
            Target::Nothing => return,
            // Behind a written list of moves the next open finishes it.
            Target::InPlace if swap::is_listed(&self.paths) => return,
            Target::InPlace => self.paths.rebuild(),
            Target::Folder(out) => out.join(STAGING_OUT),
        };
        // The first error counts.
        let _ = swap::remove_tree(self.paths.storage(), &unfinished);
    }

    fn make(&self, threads: usize, meter: &Meter) -> Result<NewStructures> {
        let staging = self.staging();
        let mut build = match &staging {
            None => Build::default(),
            Some(dir) => {
                let (storage, clock) = (&self.paths.storage, &self.clock);
                swap::remove_tree(&**storage, dir)?;
                if let Target::Folder(out) = &self.options.target {
                    storage.create_outside(out, None).map_err(Error::io("create", out))?;
                }
                storage.create_dir(dir).map_err(Error::io("create", dir))?;
                let (what, kinds) = (self.options.what, self.kinds.clone());
                Build::below(dir, storage, what, &self.layout, kinds, self.index, clock)?
            }
        };
        let walk = self.read(threads, &mut build, meter)?;
        let kept = self.keep(&build, staging.as_deref())?;
        self.check_topics(&build, &kept)?;
        let index = match &staging {
            Some(dir) => build.finish(self.paths.storage(), dir, threads)?,
            None => BuiltIndex { keys: build.keys, ..BuiltIndex::default() },
        };
        Ok(NewStructures { build, walk, kept, index, staging })
    }

    fn put(&self, made: NewStructures) -> Result<RebuildReport> {
        let NewStructures { build, walk, kept, index, staging } = made;
        let quarantine = match (&self.options.target, &staging) {
            (Target::InPlace, Some(dir)) => self.swap(dir, &walk, &index)?,
            (Target::Folder(out), Some(dir)) => {
                self.publish(dir, out)?;
                None
            }
            _ => None,
        };
        let refused = build.refused;
        Ok(RebuildReport {
            messages: walk.records,
            log_start: self.log.min_offset(),
            log_end: walk.end,
            damaged: walk.damaged,
            queues: self.queues_of(build),
            kept: kept.iter().map(|queue| (queue.topic().into(), queue.queue_id())).collect(),
            index,
            refused,
            left_out: walk.left_out,
            quarantine,
        })
    }

    fn queues_of(&self, build: Build) -> Vec<RebuiltQueue> {
        let found = build.found.into_values();
        let mut queues: Vec<_> = found.map(|entered| entered.rebuilt).collect();
        for queue in &mut queues {
            let before = self.queues.get(&queue.topic, queue.queue_id);
            queue.was = before.map(|before| span(&before, self.log.min_offset()));
        }
        queues
    }

    fn read(&self, threads: usize, build: &mut Build, meter: &Meter) -> Result<LogSummary> {
        let wanted = Wanted {
            queues: &self.queues,
            topics: self.options.topics.as_deref(),
            with_queues: self.options.what.queues,
            with_index: self.options.what.index,
            with_tags: self.release.has_tag_entries(),
            with_surplus_keys: false,
            latest_ms: self.clock.now_ms().saturating_add(FAR_MS),
        };
        let (log, end) = (self.log.run(), self.log.end_offset());
        let reading = LogReading::new(log, wanted, end, Checked::Unflushed);
        let reading = reading.flushed(self.flushed);
        let total: u64 = log.files().iter().map(|f| f.len.min(log.file_size())).sum();
        meter.set_total(total.max(1));
        let (mut ready, mut waiting) = (Vec::new(), 0);
        let root = self.paths.root();
        let known = (&self.queues, self.flushed);
        let walk =
            LogSummary::read((log, &reading), known, (threads, root, meter), |mut collected| {
                // As RocketMQ numbers rows.
                if self.by_own_number {
                    collected.whole_from = u64::MAX;
                }
                waiting += collected.units.len() + collected.hashes.len();
                ready.push(collected);
                if waiting > MOST_READY {
                    waiting = 0;
                    build.take(&ready, &self.queues, threads, root)?;
                    reading.spare.put_back(ready.drain(..));
                }
                Ok(())
            })?;
        build.take(&ready, &self.queues, threads, root)?;
        Ok(walk)
    }

    /// Keeps the queues without messages in the log: a copy of their last file preserves the next
    /// number.
    fn keep(&self, build: &Build, staging: Option<&Path>) -> Result<Vec<Arc<Queue>>> {
        let mut kept = Vec::new();
        if !self.options.what.queues {
            return Ok(kept);
        }
        let start = self.log.min_offset();
        for queue in self.queues.all() {
            let reach = clamp_u64(queue.reach());
            let is_past = queue.max_offset() > 0 && reach > 0 && reach <= start;
            if !self.is_wanted(queue.topic()) || build.has(&queue) || !is_past {
                continue;
            }
            if let (Some(dir), Some(last)) = (staging, queue.run().files().last()) {
                let topic = String::from_utf8_lossy(queue.topic()).into_owned();
                let dir = dir.join(queue.kind().folder()).join(topic);
                let storage = self.paths.storage();
                copy_file(storage, &last.path, &dir.join(queue.queue_id().to_string()))?;
                storage.sync_dir(&dir).map_err(Error::flush(&dir))?;
            }
            kept.push(queue);
        }
        Ok(kept)
    }

    fn is_wanted(&self, topic: &[u8]) -> bool {
        let topics = self.options.topics.as_ref();
        topics.is_none_or(|topics| topics.iter().any(|wanted| **wanted == *topic))
    }

    fn check_topics(&self, build: &Build, kept: &[Arc<Queue>]) -> Result<()> {
        for topic in self.options.topics.iter().flatten() {
            let in_log = build.found.keys().any(|(known, _)| **known == **topic);
            let of_topic = |queue: &Arc<Queue>| queue.topic() == &**topic;
            let in_queues = kept.iter().any(of_topic) || self.queues.all().iter().any(of_topic);
            if self.options.what.queues && !in_log && !in_queues {
                let name = String::from_utf8_lossy(topic);
                return Err(Error::MessageNotFound {
                    what: format!(
                        "topic {name:?} has no message in the log; `mqstore topics` lists those \
                         that have"
                    ),
                });
            }
        }
        Ok(())
    }

    fn swap(&self, dir: &Path, walk: &LogSummary, index: &BuiltIndex) -> Result<Option<PathBuf>> {
        // Queues and index must not become durable before their records.
        let log = self.log.run();
        for file in log.files().iter() {
            log.open(file)?.sync().map_err(Error::flush(&file.path))?;
        }
        let mut moves = Vec::new();
        let kind = |path: &Path| self.paths.storage.kind_of(path);
        let mut add = |folder: PathBuf| -> Result<()> {
            let has_new = kind(&dir.join(&folder))?.is_some();
            if has_new || kind(&self.paths.root().join(&folder))?.is_some() {
                moves.push(Move { folder, has_new });
            }
            Ok(())
        };
        if self.options.what.queues {
            for top in paths::QUEUE_FOLDERS {
                match &self.options.topics {
                    None => add(PathBuf::from(top))?,
                    Some(topics) => {
                        for topic in topics {
                            add(Path::new(top).join(&*String::from_utf8_lossy(topic)))?;
                        }
                    }
                }
            }
        }
        if self.options.what.index {
            add(PathBuf::from(paths::INDEX))?;
        }
        // New folders first: mere removals can wait.
        moves.sort_by_key(|step| !step.has_new);
        // RocketMQ 5.5 begins there after a crash, so it must not tell of queues that move.
        let before = self.checkpoint(|fields| {
            if self.options.what.queues {
                (fields.logics_physical_offset, fields.logics_msg_timestamp_ms) = (0, 0);
            }
        })?;
        match swap::replace(&self.paths, &moves, self.clock.now_ms()) {
            Ok(kept) => self.note(walk, index, &before).map(|()| kept),
            Err(error) => {
                // The first error counts.
                let _ = self.checkpoint(|fields| *fields = before);
                Err(error)
            }
        }
    }

    fn checkpoint(&self, change: impl FnOnce(&mut CheckpointFields)) -> Result<CheckpointFields> {
        let path = self.paths.checkpoint();
        let mut checkpoint = StoreCheckpoint::load(self.paths.storage(), &path, Access::ReadWrite)?;
        let before = checkpoint.fields;
        change(&mut checkpoint.fields);
        if checkpoint.fields != before {
            checkpoint.flush(self.paths.storage())?;
        }
        Ok(before)
    }

    /// Updates the checkpoint to the flushed queues and index, so that no recovery discards them.
    fn note(&self, walk: &LogSummary, index: &BuiltIndex, before: &CheckpointFields) -> Result<()> {
        let change = |fields: &mut CheckpointFields| {
            if self.options.what.queues {
                fields.logics_msg_timestamp_ms = before.logics_msg_timestamp_ms;
                let place = before.logics_physical_offset;
                if u64::try_from(place).is_ok_and(|place| place < walk.end) {
                    fields.logics_physical_offset = place;
                }
            }
            if self.options.what.queues && self.options.topics.is_none() {
                fields.logics_msg_timestamp_ms = walk.newest_ms;
            }
            if self.options.what.index {
                fields.index_msg_timestamp_ms = index.end_timestamp_ms.min(walk.newest_ms);
            }
        };
        self.checkpoint(change).map(drop)
    }

    fn publish(&self, dir: &Path, out: &Path) -> Result<()> {
        let storage = self.paths.storage();
        for entry in storage.list(dir).map_err(Error::io("list", dir))? {
            let (from, to) = (dir.join(&entry.name), out.join(&entry.name));
            storage.rename(&from, &to).map_err(Error::io("rename", &from))?;
        }
        storage.remove_dir(dir).map_err(Error::io("remove", dir))?;
        storage.sync_dir(out).map_err(Error::flush(out))
    }
}

/// First queue offset still in the log, and the end.
fn span(queue: &Queue, log_start: u64) -> (i64, i64) {
    (queue.first_at_or_behind(log_start).unwrap_or(0), queue.max_offset())
}
