//! Files of an open store, shared by writer, readers and threads.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::locks::{Mutex, MutexGuard};

use super::folder::paths::StorePaths;
use super::queue_table::QueueTable;
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::{RunFile, Stamp, SystemClock};
use crate::format::config::tables;
use crate::format::config::tables::OffsetTable;
use crate::log::CommitLog;
use crate::log::index::run::IndexRun;
use crate::log::read::scanner::{Flow, Item, Resync, Scanner, Stop};
use crate::store::folder::config_file;
use crate::store::folder::config_file::{Loaded, backup_of};
use crate::time::Clock;

#[derive(Debug)]
pub(crate) struct StoreFiles {
    pub(crate) paths: StorePaths,
    pub(crate) config: StoreConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: QueueTable,
    pub(crate) index: Option<Arc<IndexRun>>,
    pub(crate) closed: AtomicBool,
    pub(crate) notices: Notices,
    pub(crate) ages: FileAges,
}

impl StoreFiles {
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn list_again(&self) -> Result<()> {
        self.queues.refresh()?;
        if let Some(index) = &self.index {
            index.refresh()?;
        }
        Ok(())
    }

    pub(crate) fn close(&self) {
        if let Some(index) = &self.index {
            index.close_files();
        }
        // The queues share the log's open files.
        self.log.run().close_files();
    }
}

/// Cached times by base offset. A first message does not change, nor does a full file.
#[derive(Debug, Default)]
pub struct FileAges {
    first: Mutex<BTreeMap<u64, i64>>,
    newest: Mutex<BTreeMap<u64, Option<i64>>>,
}

impl FileAges {
    /// Store time of a file's first message, Unix milliseconds; `None` without a message there.
    pub fn first_ms(&self, log: &CommitLog, file: &RunFile) -> Result<Option<i64>> {
        let base = file.base_offset;
        if let Some(&first_ms) = self.first.lock().get(&base) {
            return Ok(Some(first_ms));
        }
        let first_ms = log.store_timestamp_ms(base, 0)?;
        if let Some(first_ms) = first_ms {
            put(&self.first, log, base, first_ms);
        }
        Ok(first_ms)
    }

    /// Newest store time of a full file, Unix milliseconds; `None` if damage hides it.
    pub fn newest_ms(&self, log: &CommitLog, file: &RunFile) -> Result<Option<i64>> {
        let base = file.base_offset;
        if let Some(&newest_ms) = self.newest.lock().get(&base) {
            return Ok(newest_ms);
        }
        let newest_ms = read(log, base)?;
        put(&self.newest, log, base, newest_ms);
        Ok(newest_ms)
    }
}

fn put<T>(known: &Mutex<BTreeMap<u64, T>>, log: &CommitLog, base: u64, value: T) {
    let mut known = known.lock();
    // Files are deleted from the front.
    *known = known.split_off(&log.min_offset());
    known.insert(base, value);
}

fn read(log: &CommitLog, base: u64) -> Result<Option<i64>> {
    let end = base.saturating_add(log.run().file_size());
    let mut newest_ms = None;
    let mut scanner = Scanner::new(log, base, end, false);
    let stop = scanner.each(log, end, Resync::Never, |_, item| {
        if let Item::Record(view, _) = item {
            newest_ms = newest_ms.max(Some(view.store_timestamp_ms()));
        }
        Ok(Flow::Continue)
    })?;
    Ok(match stop {
        None | Some(Stop::End) => newest_ms,
        Some(Stop::Empty | Stop::Damage(_)) => None,
    })
}

const MOST: usize = 1000;

#[derive(Debug, Default)]
pub struct Notices {
    has_new: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    texts: VecDeque<String>,
    new: usize,
    forgotten: u64,
    pushed: u64,
}

impl Notices {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }

    pub fn push(&self, text: String) -> u64 {
        let mut kept = self.kept();
        if kept.texts.len() == MOST {
            kept.texts.pop_front();
            kept.forgotten += 1;
        }
        kept.texts.push_back(text);
        kept.new = (kept.new + 1).min(MOST);
        kept.pushed += 1;
        self.has_new.store(true, Ordering::Release);
        kept.pushed
    }

    /// Goes on from those of an earlier listing; only what it lacks is new.
    pub(crate) fn follow(&self, earlier: &Self) {
        let known = earlier.kept().clone();
        self.has_new.store(known.new > 0, Ordering::Release);
        let own = std::mem::replace(&mut *self.kept(), known);
        for text in own.texts {
            if !self.kept().texts.contains(&text) {
                self.push(text);
            }
        }
    }

    /// Whether [`Notices::take_new`] returned it.
    pub(crate) fn is_taken(&self, number: u64) -> bool {
        let kept = self.kept();
        number + kept.new as u64 <= kept.pushed
    }

    #[must_use]
    pub fn all(&self) -> Vec<String> {
        let kept = self.kept();
        let forgotten = (kept.forgotten > 0).then(|| {
            format!("{} older notices are no longer kept; they were logged", kept.forgotten)
        });
        forgotten.into_iter().chain(kept.texts.iter().cloned()).collect()
    }

    /// Whether [`Notices::take_new`] has any; costs one load.
    #[must_use]
    #[inline]
    pub fn has_new(&self) -> bool {
        self.has_new.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn take_new(&self) -> Vec<String> {
        let mut kept = self.kept();
        self.has_new.store(false, Ordering::Release);
        let new = std::mem::take(&mut kept.new);
        kept.texts.iter().skip(kept.texts.len() - new).cloned().collect()
    }
}

pub(crate) type OffsetsStamps = [Option<Stamp>; 4];

/// A stamp this young may stay the same at the next change, so coarse is the system's clock.
const YOUNG_MS: i64 = 1000;

impl StoreFiles {
    /// Stamps that change with the files; `None` if a file may change without its stamp.
    pub(crate) fn offsets_stamps(&self) -> Option<OffsetsStamps> {
        let [plain, light] = [false, true].map(|is_light| self.paths.consumer_offsets(is_light));
        let (plain_backup, light_backup) = (backup_of(&plain), backup_of(&light));
        let mut stamps = OffsetsStamps::default();
        for (stamp, path) in stamps.iter_mut().zip([plain, light, plain_backup, light_backup]) {
            match self.paths.storage.stamp(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                found => *stamp = found.ok()?,
            }
        }
        let newest_ns = stamps.iter().flatten().map(|at| at.changed_ns).max()?;
        (newest_ns / 1_000_000 < SystemClock.now_ms() - YOUNG_MS).then_some(stamps)
    }

    /// The table of offsets and its file. A broker with `enableLmq` uses a file of its own and
    /// ignores the other. Without the setting the file changed last counts, then the fuller one. If
    /// the setting's file is missing, the other counts, so no group begins anew.
    pub(crate) fn committed(&self) -> Result<(PathBuf, Option<Loaded<OffsetTable>>)> {
        let paths = &self.paths;
        let load = |is_light: bool| {
            let path = paths.consumer_offsets(is_light);
            config_file::load(paths.storage(), &path, OffsetTable::parse)
                .map(|loaded| (path, loaded))
        };
        if self.config.enable_lmq {
            let (path, own) = load(true)?;
            return Ok((path, if own.is_some() { own } else { load(false)?.1 }));
        }
        let (plain, light) = (load(false)?, load(true)?);
        let age = |loaded: &Option<Loaded<OffsetTable>>| loaded.as_ref().map(|at| at.table.age());
        Ok(if age(&light.1) > age(&plain.1) { light } else { plain })
    }

    /// The table of offsets to change, its file and that file's content.
    pub(crate) fn to_commit(&self) -> Result<(PathBuf, OffsetTable, Option<Vec<u8>>)> {
        let (path, loaded) = self.committed()?;
        let is_light = path == self.paths.consumer_offsets(true);
        let is_own = |loaded: &Loaded<OffsetTable>| loaded.path() == path;
        let (mut table, before) = match loaded {
            None => (OffsetTable::default(), None),
            Some(loaded) if is_own(&loaded) => loaded.for_writing()?,
            Some(other) => (other.table, None),
        };
        if is_light {
            table.keep_light();
        }
        Ok((path, table, before))
    }
}

/// Sets offsets beyond their queues' ends back to these ends: otherwise the next messages would not
/// be delivered. A power cut leaves such offsets. Returns a warning for each.
pub(crate) fn set_offsets_back(files: &StoreFiles) -> Vec<String> {
    // An unreadable table stays unchanged; other code warns of it.
    let Ok((path, mut table, before)) = files.to_commit() else { return Vec::new() };
    let mut beyond = Vec::new();
    let mut with_done = Vec::new();
    for at in table.iter() {
        let queue = files.queues.get(at.topic.as_bytes(), at.queue_id);
        let end = queue.map_or(0, |queue| queue.max_offset());
        if at.queue_offset > end {
            beyond.push((
                at.topic.to_owned(),
                at.group.to_owned(),
                at.queue_id,
                at.queue_offset,
                end,
            ));
        } else if table.done(&at).last().is_some_and(|&(_, to)| to > end) {
            let (topic, group) = (at.topic.to_owned(), at.group.to_owned());
            with_done.push((topic, group, at.queue_id, at.queue_offset));
        }
    }
    if beyond.is_empty() && with_done.is_empty() {
        return Vec::new();
    }
    let now_ms = files.clock.now_ms();
    // The next messages at these places are others.
    for (topic, group, queue_id, queue_offset) in &with_done {
        let (topic, group, queue_id) = (topic.as_str(), group.as_str(), *queue_id);
        table.put(
            &tables::GroupOffset { topic, group, queue_id, queue_offset: *queue_offset },
            now_ms,
        );
    }
    for (topic, group, queue_id, _, end) in &beyond {
        let (topic, group, queue_id) = (topic.as_str(), group.as_str(), *queue_id);
        let back = tables::GroupOffset { topic, group, queue_id, queue_offset: *end };
        table.put(&back, now_ms);
    }
    let storage = files.paths.storage();
    let wrote = config_file::keep(storage, &path)
        .and_then(|_| config_file::write(storage, &path, before.as_deref(), &table.to_bytes()));
    let outcome = match wrote {
        Ok(()) => "set back to there".to_owned(),
        Err(error) => format!("which could not be set back: {error}"),
    };
    let warnings = beyond.iter().map(|(topic, group, queue_id, found, end)| {
        format!(
            "{}: group {group} stood at queue offset {found} of queue {queue_id} of topic {topic}, \
             beyond the queue's end {end}: {outcome}",
            path.display()
        )
    });
    warnings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_notice_is_handed_out_once_and_the_last_are_kept() {
        let notices = Notices::default();
        assert!(!notices.has_new());
        notices.push("one".to_owned());
        assert_eq!(notices.push("two".to_owned()), 2);
        assert!(notices.has_new() && !notices.is_taken(1));
        assert_eq!(notices.take_new(), ["one", "two"]);
        assert!(notices.is_taken(2) && !notices.is_taken(3));
        assert!(!notices.has_new() && notices.take_new().is_empty());
        for number in 0..MOST {
            notices.push(number.to_string());
        }
        assert_eq!(notices.all().len(), MOST + 1);
        assert!(notices.all()[0].starts_with("2 older notices"), "{}", notices.all()[0]);
        assert_eq!(notices.take_new().len(), MOST);
    }
}
