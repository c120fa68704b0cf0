//! Rebuilds the table of topics from queues and log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;

use super::{Target, lock_target};
use crate::care::meter::{Skipped, each_message};
use crate::care::topics::{is_deleted, is_system};
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::{Access, Os, SystemClock, make_folder_outside};
use crate::format::config::tables::{TopicConfig, TopicTable};
use crate::format::message::purpose::{Purpose, real_queue_id, real_topic};
use crate::format::message::sys_flag;
use crate::format::queue::is_broker_topic;
use crate::log::QueueKind;
use crate::store::dispatch::lmq;
use crate::store::folder::paths::StorePaths;
use crate::store::folder::{config_file, swap};
use crate::store::open::inspect;
use crate::store::progress::Progress;
use crate::store::queue_table::QueueTable;
use crate::store::read::scan::OnDamage;
use crate::store::{MessageStore, OpenMode, topics};
use crate::time::Clock;

/// A topic of the rebuilt table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltTopic {
    /// Its name.
    pub name: String,
    /// Number of queues.
    pub queues: i32,
    /// Their kind.
    pub kind: QueueKind,
    /// Queues in the table before.
    pub was: Option<i32>,
}

/// Result of [`rebuild_topics`].
#[derive(Clone, Debug)]
pub struct TopicsReport {
    /// Every topic.
    pub topics: Vec<RebuiltTopic>,
    /// Messages read.
    pub messages: u64,
    /// Range of the log.
    pub log: (u64, u64),
    /// Skipped parts of it.
    pub skipped: Skipped,
    /// Where an unreadable table is kept.
    pub quarantine: Option<PathBuf>,
}

#[derive(Default)]
struct FoundTopics {
    topics: HashMap<Vec<u8>, (i32, QueueKind)>,
    most_queue_id: i32,
}

impl FoundTopics {
    fn note_queue(&mut self, topic: &[u8], queue_id: i32, kind: QueueKind) {
        let (most, known) = self.topics.entry_ref(topic).or_insert((-1, kind));
        *most = queue_id.max(*most);
        if kind == QueueKind::Batch {
            *known = kind;
        }
    }

    fn read_queues(&mut self, paths: &StorePaths, config: &StoreConfig) -> Result<()> {
        let layout = inspect::queue_layout(paths, config)?;
        self.most_queue_id = layout.most_queue_id;
        let kinds = topics::entered(paths)?.0.kinds;
        let queues = QueueTable::load(Arc::clone(&paths.storage), layout, kinds, Access::Read)?;
        for queue in queues.all() {
            self.note_queue(queue.topic(), queue.queue_id(), queue.kind());
        }
        Ok(())
    }

    fn read_messages(
        &mut self,
        store: &MessageStore,
        progress: &mut Progress<'_>,
    ) -> Result<(u64, Skipped)> {
        let (mut messages, usable) = (0, 0..=self.most_queue_id);
        let number = |id: Option<i32>| id.filter(|id| usable.contains(id)).unwrap_or(-1);
        let skipped = each_message(store, OnDamage::Skip, progress, |view| {
            messages += 1;
            let is_batch = sys_flag::is_inner_batch(view.sys_flag());
            let kind = if is_batch { QueueKind::Batch } else { QueueKind::Plain };
            self.note_queue(view.topic(), number(Some(view.queue_id())), kind);
            let (purpose, properties) = (Purpose::of(view.topic()), view.raw_properties());
            if matches!(purpose, Purpose::Half | Purpose::Delayed | Purpose::Timer)
                && let Some(topic) = real_topic(properties)
            {
                self.note_queue(topic, number(real_queue_id(properties)), QueueKind::Plain);
            }
        })?;
        Ok((messages, skipped))
    }

    fn enter(
        self,
        table: &mut TopicTable,
        only: Option<&[Box<[u8]>]>,
        is_deleted: impl Fn(&[u8]) -> bool,
    ) -> Vec<RebuiltTopic> {
        let mut topics = Vec::new();
        for (topic, (most, kind)) in self.topics {
            let is_wanted = only.is_none_or(|only| only.iter().any(|one| **one == *topic));
            let is_own = is_system(&topic) || topic.starts_with(lmq::PREFIX);
            if !is_wanted || is_own || !is_broker_topic(&topic) || is_deleted(&topic) {
                continue;
            }
            let name = String::from_utf8_lossy(&topic).into_owned();
            let used = most.saturating_add(1).max(1);
            let known = table.get(&name);
            let was = known.as_ref().map(|entry| entry.read_queue_nums);
            let mut entry = known.clone().unwrap_or_else(|| TopicConfig::new(&name, used));
            entry.read_queue_nums = entry.read_queue_nums.max(used);
            entry.write_queue_nums = entry.write_queue_nums.max(used);
            if kind == QueueKind::Batch && !entry.is_batch_queue() {
                entry = entry.with_batch_queue();
            }
            if known.as_ref() != Some(&entry) {
                table.put(&entry, SystemClock.now_ms());
            }
            topics.push(RebuiltTopic { name, queues: entry.read_queue_nums, kind, was });
        }
        topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        topics
    }
}

/// Rebuilds the table of topics of the store at `path`, or adds to one that can be read. Topics that
/// a broker creates itself are left to it.
pub fn rebuild_topics(
    path: &Path,
    config: StoreConfig,
    only: Option<&[Box<[u8]>]>,
    target: &Target,
    progress: &mut Progress<'_>,
) -> Result<TopicsReport> {
    let paths = StorePaths::new(Arc::new(Os), path, &config);
    let storage = paths.storage();
    let _lock = lock_target(&paths, target)?;
    let (table, before) = match config_file::load(storage, &paths.topics(), TopicTable::parse) {
        Ok(Some(loaded)) => {
            let table = loaded.table.clone();
            (Some(table), loaded.for_writing().ok().and_then(|(_, before)| before))
        }
        Ok(None) | Err(Error::Corrupt(_)) => (None, None),
        Err(error) => return Err(error),
    };
    let mut found = FoundTopics::default();
    found.read_queues(&paths, &config)?;
    let store = MessageStore::open(path, OpenMode::Read, config)?;
    let (messages, skipped) = found.read_messages(&store, progress)?;
    let log = (store.log().min_offset(), store.end_offset());
    drop(store);

    let mut new = table.clone().unwrap_or_default();
    // An older backup does not tell which topics were deleted.
    let current = table.as_ref().filter(|_| before.is_some());
    let is_deleted = |topic: &[u8]| current.is_some_and(|table| is_deleted(&paths, table, topic));
    let topics = found.enter(&mut new, only, is_deleted);
    for name in only.into_iter().flatten() {
        if !topics.iter().any(|topic| topic.name.as_bytes() == &**name) {
            let what = format!("topic {:?} in queues and log", String::from_utf8_lossy(name));
            return Err(Error::MessageNotFound { what });
        }
    }

    let mut quarantine = None;
    match target {
        Target::Nothing => {}
        Target::Folder(out) => {
            make_folder_outside(storage, out, None)?;
            let to = StorePaths::new(Arc::new(Os), out, &StoreConfig::default()).topics();
            config_file::write(storage, &to, None, &new.to_bytes())?;
        }
        Target::InPlace if before.is_some() && table.as_ref() == Some(&new) => {}
        Target::InPlace => {
            // A table that cannot be read goes to quarantine.
            if before.is_some() {
                config_file::keep(storage, &paths.topics())?;
            }
            quarantine = set_aside(&paths)?;
            config_file::write(storage, &paths.topics(), before.as_deref(), &new.to_bytes())?;
        }
    }
    Ok(TopicsReport { topics, messages, log, skipped, quarantine })
}

fn set_aside(paths: &StorePaths) -> Result<Option<PathBuf>> {
    let name = format!("{}-topics", SystemClock.now_ms());
    let kept = paths.quarantine().join(name);
    let mut moved = None;
    for path in [paths.topics(), config_file::backup_of(&paths.topics())] {
        let is_sound = match config_file::read_json(paths.storage(), &path) {
            Ok(bytes) => {
                bytes.is_none_or(|bytes| bytes.is_empty() || TopicTable::parse(&bytes).is_ok())
            }
            Err(Error::Corrupt(_)) => false,
            Err(error) => return Err(error),
        };
        if !is_sound {
            let to = kept.join("config").join(path.file_name().unwrap_or_default());
            swap::rename(paths, &path, &to)?;
            moved = Some(kept.clone());
        }
    }
    Ok(moved)
}
