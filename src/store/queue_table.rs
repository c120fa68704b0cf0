//! The table of consume queues (`ConsumeQueueStore`).

mod ends;
pub(crate) mod known;
mod topic_queues;

use crate::locks::RwLock;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::{HashMap, HashSet};

use self::topic_queues::TopicQueues;
use crate::error::{Error, Result, expected_got};
use crate::files::run::file_run::{OpenFiles, Stray};
use crate::files::run::new_files;
use crate::files::threads::{self, in_order, processors};
use crate::files::{Access, DirEntry, DiskReserve, FileKind, FileRun, Storage, folder_at};
use crate::format::queue::consume_queue::DelayLevels;
use crate::format::queue::{names_a_folder, parse_queue_id};
use crate::format::width::saturating_i64;
use crate::log::{ConsumeQueueExt, Queue, QueueKind};

/// Queues whose files are created together, which takes memory for each.
const QUEUES_AT_ONCE: usize = 1 << 14;

const FLUSHES_AT_ONCE: usize = 16;

const TOPICS_AT_ONCE: usize = 64;

/// Maximum queues created from one log: a small log must not exhaust the disk.
pub const MOST_NEW_QUEUES: usize = 100_000;

/// Bytes of a file of a queue from elsewhere (`mqstore/rocksdb/queue_files.py`).
pub(crate) const ASIDE_FILE: u64 = 80_000;

/// Inodes of a new queue: its folder, its topic's and its file, and those of its extension.
pub(crate) const QUEUE_INODES: u64 = 6;

#[must_use]
pub fn too_many(path: &Path) -> Error {
    let what = format!(
        "the log asks for more than {MOST_NEW_QUEUES} queues that are not there; none was made"
    );
    Error::Unsupported { what, path: path.to_owned() }
}

/// A folder of queues, and the size of their files.
#[derive(Clone, Debug)]
pub struct QueueFolder {
    pub dir: PathBuf,
    pub file_size: u64,
}

/// Folders and rules of a store's queues.
#[derive(Clone, Debug)]
pub struct QueueLayout {
    pub plain: QueueFolder,
    pub aside: Option<PathBuf>,
    pub batch: QueueFolder,
    pub ext: QueueFolder,
    pub writes_ext: bool,
    /// Whether a message may have additional queues, created on demand.
    pub more_queues: bool,
    pub delay_levels: DelayLevels,
    pub most_queue_id: i32,
}

#[derive(Debug)]
pub struct QueueTable {
    storage: Arc<dyn Storage>,
    open_files: Arc<OpenFiles>,
    layout: QueueLayout,
    access: Access,
    kinds: RwLock<TopicKinds>,
    table: RwLock<HashMap<Box<[u8]>, TopicQueues>>,
    has_batches: AtomicBool,
    is_torn: AtomicBool,
    is_unsound: AtomicBool,
    has_ext: AtomicBool,
    /// Whether no file changed since the store was sealed, while it is loaded.
    is_sealed: AtomicBool,
    is_lazy: AtomicBool,
    room: OnceLock<Arc<DiskReserve>>,
}

#[derive(Default)]
struct Listed {
    queues: Vec<Queue>,
    met: Vec<(Box<[u8]>, i32)>,
    strays: Vec<Stray>,
}

fn below(dir: &Path, topic: &[u8], id: i32) -> PathBuf {
    dir.join(&*String::from_utf8_lossy(topic)).join(id.to_string())
}

impl QueueTable {
    /// Reads the queues and their ends.
    pub fn load(
        storage: Arc<dyn Storage>,
        layout: QueueLayout,
        kinds: TopicKinds,
        access: Access,
    ) -> Result<Self> {
        let how = (false, false);
        Ok(Self::load_sealed(storage, Arc::default(), layout, kinds, access, how)?.0)
    }

    /// Also lists invalid names and queues of the wrong kind.
    pub(crate) fn load_sealed(
        storage: Arc<dyn Storage>,
        open_files: Arc<OpenFiles>,
        layout: QueueLayout,
        kinds: TopicKinds,
        access: Access,
        (is_sealed, is_lazy): (bool, bool),
    ) -> Result<(Self, Vec<Stray>)> {
        let queues = Self {
            storage,
            open_files,
            layout,
            access,
            kinds: RwLock::default(),
            table: RwLock::default(),
            has_batches: AtomicBool::new(false),
            is_torn: AtomicBool::new(false),
            is_unsound: AtomicBool::new(false),
            has_ext: AtomicBool::new(true),
            is_sealed: AtomicBool::new(is_sealed),
            is_lazy: AtomicBool::new(is_lazy),
            room: OnceLock::new(),
        };
        queues.set_kinds(kinds);
        let strays = queues.refresh()?;
        queues.is_sealed.store(false, Ordering::Release);
        Ok((queues, strays))
    }

    pub fn set_kinds(&self, kinds: TopicKinds) {
        if kinds.values().any(|&kind| kind == QueueKind::Batch) {
            self.has_batches.store(true, Ordering::Relaxed);
        }
        *self.kinds.write() = kinds;
    }

    /// Finds new queues and the new ends of known ones.
    pub fn refresh(&self) -> Result<Vec<Stray>> {
        let (mut strays, mut met) = (Vec::new(), HashSet::new());
        self.is_torn.store(false, Ordering::Release);
        self.is_unsound.store(false, Ordering::Release);
        let ext = self.storage.kind_of(&self.layout.ext.dir)?;
        self.has_ext.store(ext.is_some(), Ordering::Release);
        for kind in [QueueKind::Plain, QueueKind::Batch] {
            self.refresh_kind(kind, self.folder_of(kind), &mut strays, &mut met)?;
        }
        if let Some(dir) = &self.layout.aside {
            let folder = QueueFolder { dir: dir.clone(), file_size: ASIDE_FILE };
            self.refresh_kind(QueueKind::Plain, &folder, &mut strays, &mut met)?;
        }
        if self.access == Access::Read {
            self.table.write().retain(|topic, queues| {
                if queues.retain(|id| met.contains(&(topic.clone(), id))) {
                    self.is_torn.store(true, Ordering::Release);
                }
                !queues.is_empty()
            });
        }
        Ok(strays)
    }

    fn refresh_kind(
        &self,
        kind: QueueKind,
        folder: &QueueFolder,
        strays: &mut Vec<Stray>,
        met: &mut HashSet<(Box<[u8]>, i32)>,
    ) -> Result<()> {
        let topics = self.storage.list_if_there(&folder.dir)?.unwrap_or_default();
        let parts: Vec<_> = topics.chunks(TOPICS_AT_ONCE).collect();
        let known = std::mem::take(met);
        let take = |_: &&[DirEntry], listed: Listed| {
            strays.extend(listed.strays);
            met.extend(listed.met);
            listed.queues.into_iter().for_each(|queue| drop(self.put(queue, true)));
            Ok(ControlFlow::Continue(()))
        };
        let list = |topics: &&[DirEntry]| self.list_topics(kind, folder, &known, topics);
        in_order(&parts, processors(), &folder.dir, list, take)?;
        met.extend(known);
        Ok(())
    }

    fn list_topics(
        &self,
        kind: QueueKind,
        folder: &QueueFolder,
        known: &HashSet<(Box<[u8]>, i32)>,
        topics: &[DirEntry],
    ) -> Result<Listed> {
        let mut listed = Listed::default();
        for topic in topics {
            let topic_dir = folder.dir.join(&topic.name);
            let name = topic.name.as_encoded_bytes();
            if topic.kind != FileKind::Directory || !names_a_folder(name) {
                listed.strays.push(Stray { path: topic_dir, kind: topic.kind });
                continue;
            }
            if let Some(other) = self.known_kind(name).filter(|&known| known != kind) {
                if self.access == Access::ReadWrite {
                    return Err(wrong_kind(name, other, &topic_dir));
                }
                listed.strays.push(Stray { path: topic_dir, kind: topic.kind });
                continue;
            }
            let queues = self.storage.list_if_there(&topic_dir)?;
            if queues.is_none() {
                self.is_torn.store(true, Ordering::Release);
            }
            for queue in queues.unwrap_or_default() {
                let path = topic_dir.join(&queue.name);
                let id = queue.name.to_str().and_then(parse_queue_id);
                let (Some(id), FileKind::Directory) = (id, queue.kind) else {
                    listed.strays.push(Stray { path, kind: queue.kind });
                    continue;
                };
                // The store's own files come first.
                if known.is_empty() || !known.contains(&(name.into(), id)) {
                    self.list_queue(kind, folder, name, id, &mut listed)?;
                }
            }
        }
        Ok(listed)
    }

    fn list_queue(
        &self,
        kind: QueueKind,
        folder: &QueueFolder,
        topic: &[u8],
        id: i32,
        listed: &mut Listed,
    ) -> Result<()> {
        let is_reader = self.access == Access::Read;
        if is_reader {
            listed.met.push((topic.into(), id));
        }
        if let Some(queue) = self.get(topic, id)
            && let Some(more) = refresh_grown(&queue)?
        {
            listed.strays.extend(more);
            self.judge(&queue);
            return Ok(());
        }
        // A writer's lock keeps others away.
        let path = below(&folder.dir, topic, id);
        let inode = || self.storage.stamp(&path).ok().flatten().map(|at| at.inode);
        let before = if is_reader { inode() } else { None };
        let (queue, more) = self.load_queue(kind, folder, topic, id)?;
        listed.strays.extend(more);
        // Another folder may have replaced this one.
        if queue.run().lacks_folder() || is_reader && inode() != before {
            self.is_torn.store(true, Ordering::Release);
        }
        self.judge(&queue);
        listed.queues.push(queue);
        Ok(())
    }

    const fn folder_of(&self, kind: QueueKind) -> &QueueFolder {
        match kind {
            QueueKind::Plain => &self.layout.plain,
            QueueKind::Batch => &self.layout.batch,
        }
    }

    fn known_kind(&self, topic: &[u8]) -> Option<QueueKind> {
        let configured = self.kinds.read().get(topic).copied();
        configured.or_else(|| {
            let table = self.table.read();
            table.get(topic)?.iter().next().map(|queue| queue.kind())
        })
    }

    /// Whether `config/topics.json` has the topic.
    #[must_use]
    pub fn is_entered(&self, topic: &[u8]) -> bool {
        self.kinds.read().contains_key(topic)
    }

    #[inline]
    #[must_use]
    pub fn has_no_batches(&self) -> bool {
        !self.has_batches.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn kind_of(&self, topic: &[u8]) -> QueueKind {
        self.known_kind(topic).unwrap_or_default()
    }

    fn load_queue(
        &self,
        kind: QueueKind,
        folder: &QueueFolder,
        topic: &[u8],
        id: i32,
    ) -> Result<(Queue, Vec<Stray>)> {
        let (run, mut strays) = self.load_run(below(&folder.dir, topic, id), folder.file_size)?;
        let is_sealed = self.is_sealed.load(Ordering::Acquire);
        let queue = match self.is_lazy() && kind == QueueKind::Plain {
            true => Queue::new(kind, topic, id, run),
            false => Queue::load_sealed(kind, topic, id, run, is_sealed)?,
        };
        if kind == QueueKind::Batch {
            return Ok((queue, strays));
        }
        let ext_dir = below(&self.layout.ext.dir, topic, id);
        if !self.layout.writes_ext {
            let may_be_there = self.has_ext.load(Ordering::Acquire);
            let there = may_be_there.then(|| self.storage.kind(&ext_dir)).transpose();
            if there.map_err(Error::io("stat", &ext_dir))?.flatten() != Some(FileKind::Directory) {
                return Ok((queue, strays));
            }
        }
        let (run, more) = self.load_run(ext_dir, self.layout.ext.file_size)?;
        strays.extend(more);
        let ext = ConsumeQueueExt::load(run, self.layout.writes_ext)?;
        Ok((queue.with_ext(ext), strays))
    }

    fn load_run(&self, dir: PathBuf, file_size: u64) -> Result<(FileRun, Vec<Stray>)> {
        let (storage, open_files) = (Arc::clone(&self.storage), Arc::clone(&self.open_files));
        FileRun::load(storage, open_files, vec![dir], file_size, self.access)
    }

    /// Readers of a replaced queue keep the old files.
    fn put(&self, queue: Queue, replaces: bool) -> Arc<Queue> {
        if queue.kind() == QueueKind::Batch {
            self.has_batches.store(true, Ordering::Relaxed);
        }
        let mut table = self.table.write();
        let queues = table.entry(queue.topic().into()).or_default();
        // The first of two concurrent threads wins.
        if let Some(first) = queues.get(queue.queue_id()).filter(|_| !replaces) {
            return Arc::clone(first);
        }
        let queue = Arc::new(queue);
        queues.put(Arc::clone(&queue));
        queue
    }

    #[must_use]
    pub fn takes_more_queues(&self) -> bool {
        self.layout.more_queues
    }

    #[must_use]
    pub fn delay_levels(&self) -> &DelayLevels {
        &self.layout.delay_levels
    }

    /// Maximum gap before a record's queue offset: one file.
    #[must_use]
    pub fn most_skipped(&self, kind: QueueKind) -> i64 {
        let in_entry = match kind {
            QueueKind::Plain => 1,
            QueueKind::Batch => i64::from(i16::MAX),
        };
        let entries = saturating_i64(self.folder_of(kind).file_size / kind.entry_len() as u64);
        entries.saturating_mul(in_entry)
    }

    #[inline]
    pub fn check_queue_id(&self, queue_id: i32) -> Result<()> {
        let most = self.layout.most_queue_id;
        if (0..=most).contains(&queue_id) {
            return Ok(());
        }
        let reason = expected_got(format!("0 to {most}"), queue_id);
        Err(Error::beyond("queue_id", u64::try_from(most).ok(), reason))
    }

    pub fn highest(&self, topic: &[u8]) -> Option<i32> {
        let table = self.table.read();
        table.get(topic)?.highest()
    }

    /// Refuses a queue far above those that its topic has.
    #[cold]
    pub fn check_near(&self, topic: &[u8], queue_id: i32, most: i32) -> Result<()> {
        let highest = self.highest(topic);
        if highest.is_some_and(|highest| highest >= queue_id / 2) {
            return Ok(());
        }
        let name = String::from_utf8_lossy(topic);
        let has = highest.map_or_else(
            || format!("topic {name:?} has no queue yet"),
            |highest| format!("the highest of topic {name:?} is {highest}"),
        );
        let reason = format!(
            "expected at most {most}, got {queue_id}: {has}; the setting max_queue_id={queue_id} allows it"
        );
        Err(Error::beyond("queue_id", u64::try_from(most).ok(), reason))
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.layout.plain.dir
    }

    #[must_use]
    pub fn get(&self, topic: &[u8], queue_id: i32) -> Option<Arc<Queue>> {
        let table = self.table.read();
        table.get(topic)?.get(queue_id).map(Arc::clone)
    }

    pub fn leave(&self, room: &Arc<DiskReserve>) {
        self.room.get_or_init(|| Arc::clone(room));
    }

    /// Returns a queue, creating it in memory; files follow with its first entry.
    pub fn get_or_create(&self, topic: &[u8], queue_id: i32) -> Result<Arc<Queue>> {
        if let Some(queue) = self.get(topic, queue_id) {
            return Ok(queue);
        }
        self.check_queue_id(queue_id)?;
        if !names_a_folder(topic) {
            return Err(Error::no_folder(topic));
        }
        let kind = self.kind_of(topic);
        let folder = self.folder_of(kind);
        if let Some(room) = self.room.get() {
            room.check_inodes(QUEUE_INODES).map_err(Error::io("create a queue in", &folder.dir))?;
        }
        let (queue, _) = self.load_queue(kind, folder, topic, queue_id)?;
        Ok(self.put(queue, false))
    }

    /// Writes the entries of all queues to the files, visible to other processes.
    pub fn commit(&self) -> Result<()> {
        self.commit_all(&self.those(Queue::wants_commit))
    }

    fn commit_all(&self, queues: &[Arc<Queue>]) -> Result<()> {
        for queues in queues.chunks(QUEUES_AT_ONCE) {
            let wanted = queues.iter().flat_map(|queue| queue.wanted_files());
            let wanted: Vec<_> = wanted.filter(|(_, files)| !files.is_empty()).collect();
            if wanted.len() >= new_files::MANY {
                new_files::create_all(&wanted, || self.sync_file_systems())?;
            }
        }
        each(queues, processors(), |queue| queue.commit())
    }

    pub fn flush(&self) -> Result<()> {
        self.flush_these(&mut self.those(Queue::is_dirty))
    }

    pub fn flush_these(&self, queues: &mut [Arc<Queue>]) -> Result<()> {
        sort(queues);
        self.commit_all(queues)?;
        if queues.len() >= new_files::MANY {
            self.sync_file_systems()?;
        }
        // These wait for the disk more than for a processor.
        each(queues, FLUSHES_AT_ONCE, |queue| queue.flush().map(drop))
    }

    /// Flushes the file systems of the queues; each kind may have its own.
    pub fn sync_file_systems(&self) -> Result<()> {
        let QueueLayout { plain, batch, ext, .. } = &self.layout;
        let mut devices = Vec::new();
        for QueueFolder { dir, .. } in [plain, batch, ext] {
            if folder_at(&*self.storage, dir, false)? == Ok(true) {
                let identity = self.storage.identity(dir).map_err(Error::io("stat", dir))?;
                let device = identity.map(|identity| identity.device);
                if device.is_none() || !devices.contains(&device) {
                    devices.push(device);
                    let synced = self.open_files.with_room(|| self.storage.sync_all(dir));
                    synced.map_err(Error::flush(dir))?;
                }
            }
        }
        Ok(())
    }

    /// Whether files or queues were missing: list again before they count as gone.
    #[must_use]
    pub fn have_lost_files(&self) -> bool {
        if self.is_torn.load(Ordering::Acquire) {
            return true;
        }
        let table = self.table.read();
        table.values().flat_map(TopicQueues::iter).any(|queue| queue.has_lost_files())
    }

    #[must_use]
    pub fn all(&self) -> Vec<Arc<Queue>> {
        self.those(|_| true)
    }

    fn those(&self, wanted: impl Fn(&Queue) -> bool) -> Vec<Arc<Queue>> {
        let table = self.table.read();
        let all = table.values().flat_map(TopicQueues::iter).filter(|queue| wanted(queue));
        let mut queues: Vec<_> = all.map(Arc::clone).collect();
        drop(table);
        sort(&mut queues);
        queues
    }
}

fn sort(queues: &mut [Arc<Queue>]) {
    queues.sort_by(|a, b| (a.topic(), a.queue_id()).cmp(&(b.topic(), b.queue_id())));
}

fn each(
    queues: &[Arc<Queue>],
    most: usize,
    work: impl Fn(&Queue) -> Result<()> + Sync,
) -> Result<()> {
    threads::each(queues.chunks(new_files::MANY), most, |queues| {
        queues.iter().try_for_each(|queue| work(queue))
    })
}

/// Updates a queue's end. `None` if files are gone or replaced: load it again, so that old and new
/// files are not mixed.
fn refresh_grown(queue: &Queue) -> Result<Option<Vec<Stray>>> {
    let Some(strays) = queue.run().refresh_grown()? else { return Ok(None) };
    if let Some(ext) = queue.ext()
        && ext.run().refresh_grown()?.is_none()
    {
        return Ok(None);
    }
    if queue.has_end() {
        queue.find_end()?;
    }
    Ok(Some(strays))
}

pub type TopicKinds = HashMap<Box<[u8]>, QueueKind>;

#[cold]
fn wrong_kind(topic: &[u8], kind: QueueKind, dir: &Path) -> Error {
    let topic = String::from_utf8_lossy(topic);
    let wanted = format!("queues of type {} for topic {topic:?}", kind.name());
    Error::setting("queue.type", wanted, format!("others in {}", dir.display()))
}
