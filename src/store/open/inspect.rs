//! Finds a store's files and their sizes, before judging anything.

use std::path::PathBuf;
use std::sync::Arc;

use hashbrown::HashSet;

use crate::config::StoreConfig;
use crate::config::table::default_number;
use crate::error::{CorruptionKind, Error, Result};
use crate::files::run::file_run::{OpenFiles, Stray};
use crate::files::run::open_files::Votes;
use crate::files::{Access, FileKind, FileRun, Roots, folder_at};
use crate::format::file_name::parse_offset_name;
use crate::format::index::IndexLayout;
use crate::format::queue::most_queue_id;
use crate::format::queue::{batch, consume_queue};
use crate::log::CommitLog;

use super::index_settings::{LayoutAnswer, NoLayout, index_layout};
use super::misplaced;
use crate::format::width::to_usize;
use crate::store::folder::found::{self, check_folders, commit_log_file_size, differs};
use crate::store::folder::inventory;
use crate::store::folder::lock;
use crate::store::folder::paths::StorePaths;
use crate::store::folder::remembered::{self, Remembered};
use crate::store::folder::seal::Seal;
use crate::store::queue_table::{QueueFolder, QueueLayout, QueueTable};
use crate::store::topics;

/// Topics up to which the stamps of all files cost less than reading the queues' last files.
const FEW_TOPICS: usize = 16;
/// Bytes of the log for each topic from which the queues' files cost more.
const MUCH_LOG: u64 = 2 << 20;

pub(crate) struct Parts {
    pub(crate) log: CommitLog,
    pub(crate) queues: QueueTable,
    pub(crate) index: LayoutAnswer,
    pub(crate) in_the_way: Option<PathBuf>,
    /// Topics with fewer queues in the table than a new one.
    pub(crate) small_topics: HashSet<Box<[u8]>>,
    /// Why the table of topics is unreadable; a reader uses the folders instead.
    pub(crate) unread_topics: Option<Error>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) fn load_parts(
    paths: &StorePaths,
    config: &mut StoreConfig,
    access: Access,
) -> Result<Parts> {
    let parts = load_lazily(paths, config, access)?;
    parts.queues.read_ends()?;
    Ok(parts)
}

/// [`load_parts`], but of a closed store behind a URL the ends of queues are read when asked for.
pub(super) fn load_lazily(
    paths: &StorePaths,
    config: &mut StoreConfig,
    access: Access,
) -> Result<Parts> {
    check_folders(paths)?;
    let remembered = Remembered::load(paths);
    remembered.fill_in(config);
    let open_files = Arc::new(OpenFiles::default());
    let is_told = config.mapped_file_size_commit_log.is_some();
    let log_size = commit_log_file_size(paths, config)?;
    config.mapped_file_size_commit_log = Some(log_size);
    let (mut run, mut strays) = FileRun::load(
        Arc::clone(&paths.storage),
        Arc::clone(&open_files),
        Roots::new(
            paths.commit_log().to_vec(),
            paths.read_only.clone(),
            config.disk_space_clean_forcibly_ratio,
        ),
        log_size,
        access,
    )?;
    run.refuse_twins()?;
    if access == Access::ReadWrite {
        if !run.check().is_empty() {
            misplaced::refuse_foreign(paths, &run)?;
        }
        remove_empty_last_file(&run)?;
        if let Some(finding) = run.check().into_iter().next() {
            return Err(finding);
        }
    }
    if access == Access::Read && !is_told {
        run.learn_file_size();
    }
    let end = run.end_offset().unwrap_or(0);
    let layout = queue_layout(paths, config)?;
    adopt_queue_layout(config, &layout);
    let ((entered, unknown_kinds), unread_topics) = match topics::entered(paths) {
        Err(error) if access == Access::Read => (Default::default(), Some(error)),
        other => (other?, None),
    };
    let topics::Entered { kinds, small: small_topics } = entered;
    let few = FEW_TOPICS.max(to_usize(end / MUCH_LOG));
    // Objects have other stamps than the files that were sealed.
    let is_sealed = access == Access::Read
        && !paths.storage.is_remote()
        && paths.storage.list(&paths.consume_queue()).is_ok_and(|topics| topics.len() <= few)
        && Seal::is_whole(paths);
    let is_lazy = paths.storage.is_remote() && matches!(lock::was_aborted(paths), Ok(false));
    let (queues, more) = QueueTable::load_sealed(
        Arc::clone(&paths.storage),
        open_files,
        layout,
        kinds,
        access,
        (is_sealed, is_lazy),
    )?;
    strays.extend(more);
    // RocksDB keeps its files beside the folders of topics.
    if inventory::is_database(paths.storage(), &paths.consume_queue())? {
        let dir = paths.consume_queue();
        let is_its = |stray: &Stray| {
            stray.kind == FileKind::File && stray.path.parent().is_some_and(|parent| parent == dir)
        };
        strays.retain(|stray| !is_its(stray));
    }
    let in_the_way = strays.iter().find(|stray| stray.kind == FileKind::Other);
    let in_the_way = in_the_way.map(|stray| stray.path.clone());
    let mut warnings: Vec<String> = strays.iter().map(describe_stray).collect();
    warnings.extend(run.twins().iter().map(|twin| Error::from(twin).to_string()));
    warnings.extend(remembered.other_delays(config));
    warnings.extend(remembered.warning);
    warnings.extend(unknown_kinds);
    let index = index_layout(paths, config)?;
    let log = CommitLog::new(run, end);
    Ok(Parts { log, queues, index, in_the_way, small_topics, unread_topics, warnings })
}

impl Parts {
    /// Refuses a store with an unreadable table of topics, or with special files in log or queues,
    /// which a writer cannot replace.
    pub(crate) fn refuse_what_is_in_the_way(&mut self) -> Result<()> {
        self.unread_topics.take().map_or(Ok(()), Err)?;
        self.in_the_way.as_ref().map_or(Ok(()), |path| {
            let expected = "a file or a folder: put back what belongs there";
            let found = "a link, pipe or device";
            Err(Error::corrupt(path, 0, CorruptionKind::FileName, expected, found))
        })
    }
}

/// Index layout for a reader, which works without an index if it is unknown.
pub(crate) fn layout_to_read(
    answer: LayoutAnswer,
    config: &mut StoreConfig,
    warnings: &mut Vec<String>,
) -> Result<Option<IndexLayout>> {
    match answer {
        Ok(layout) => {
            adopt_index_layout(config, layout);
            Ok(Some(layout))
        }
        Err(none) if none.proven.is_some() => Err(none.refusal(config)),
        Err(NoLayout { path, reason, .. }) => {
            let path = path.display();
            warnings
                .push(format!("{path}: the index is not used, key queries read the log: {reason}"));
            Ok(None)
        }
    }
}

/// Index layout for a writer, which rebuilds a damaged file; `None` without an index.
pub(crate) fn layout_to_write(
    answer: LayoutAnswer,
    config: &mut StoreConfig,
) -> Result<Option<IndexLayout>> {
    let layout = match answer {
        Ok(layout) | Err(NoLayout { fits: Some(layout), .. }) => layout,
        Err(_) if !config.message_index_enable => return Ok(None),
        Err(none) => return Err(none.refusal(config)),
    };
    adopt_index_layout(config, layout);
    Ok(config.message_index_enable.then_some(layout))
}

pub(crate) fn adopt_queue_layout(config: &mut StoreConfig, layout: &QueueLayout) {
    config.mapped_file_size_consume_queue = Some(layout.plain.file_size);
    config.mapper_file_size_batch_consume_queue = Some(layout.batch.file_size);
    config.mapped_file_size_consume_queue_ext = Some(layout.ext.file_size);
}

pub(crate) fn adopt_index_layout(config: &mut StoreConfig, layout: IndexLayout) {
    config.max_hash_slot_num = Some(layout.slots());
    config.max_index_num = Some(layout.entries());
}

fn describe_stray(stray: &Stray) -> String {
    let what = match stray.kind {
        FileKind::File => "a file that does not belong there",
        FileKind::Directory => "a folder that does not belong there",
        FileKind::Other => "a link, pipe or device",
    };
    format!("{}: {what}, not read", stray.path.display())
}

fn remove_empty_last_file(run: &FileRun) -> Result<()> {
    if let Some(last) = run.files().last().filter(|file| file.len == 0) {
        run.remove_from(last.base_offset)?;
    }
    Ok(())
}

/// A setting with the size of the files in a folder.
pub(crate) struct FileSize {
    pub(crate) setting: &'static str,
    pub(crate) field: fn(&mut StoreConfig) -> &mut Option<u64>,
    pub(crate) default: u64,
    pub(crate) folder: fn(&StorePaths) -> PathBuf,
    /// Bytes of an entry in a queue's file; `None` for the log.
    entry: Option<usize>,
}

macro_rules! file_size {
    ($field:ident, $folder:ident, $entry:expr) => {
        FileSize {
            setting: stringify!($field),
            field: |config| &mut config.$field,
            default: default_number(stringify!($field)),
            folder: StorePaths::$folder,
            entry: $entry,
        }
    };
}

/// Settings that files can prove.
pub(crate) const FILE_SIZES: [FileSize; 4] = [
    file_size!(mapped_file_size_commit_log, first_commit_log, None),
    file_size!(mapped_file_size_consume_queue, consume_queue, Some(consume_queue::ENTRY_LEN)),
    file_size!(mapper_file_size_batch_consume_queue, batch_consume_queue, Some(batch::ENTRY_LEN)),
    file_size!(mapped_file_size_consume_queue_ext, consume_queue_ext, Some(1)),
];

/// Folders and file sizes of the queues: configured and consistent with the files, detected, or
/// remembered.
pub fn queue_layout(paths: &StorePaths, config: &StoreConfig) -> Result<QueueLayout> {
    let (mut given, mut remembered) = (config.clone(), Remembered::load(paths).config);
    let mut folder = |size: &FileSize| {
        let (given, remembered) = (*(size.field)(&mut given), *(size.field)(&mut remembered));
        let found = size.proven(paths, given, remembered)?;
        let file_size = found.or(given).or(remembered).unwrap_or(size.default);
        Ok::<_, Error>(QueueFolder { dir: (size.folder)(paths), file_size })
    };
    let [_, plain, batch, ext] = &FILE_SIZES;
    Ok(QueueLayout {
        plain: folder(plain)?,
        batch: folder(batch)?,
        ext: folder(ext)?,
        aside: paths.aside_queues(),
        writes_ext: config.enable_consume_queue_ext,
        more_queues: config.enable_lmq && config.enable_multi_dispatch,
        most_queue_id: most_queue_id(config.validate_topic_names),
        delay_levels: config.message_delay_level.clone(),
    })
}

const QUEUE_FILES_ASKED: usize = 64;

impl FileSize {
    /// The size that files have, if there are any; another one that is given is refused.
    pub(crate) fn proven(
        &self,
        paths: &StorePaths,
        given: Option<u64>,
        remembered: Option<u64>,
    ) -> Result<Option<u64>> {
        let Some(entry) = self.entry else { return found::proven_file_size(paths, given) };
        let entry = entry as u64;
        let (storage, dir) = (paths.storage(), (self.folder)(paths));
        if folder_at(storage, &dir, false)? != Ok(true) {
            return Ok(None);
        }
        let mut votes = Votes::default();
        let mut witnesses: Vec<(u64, PathBuf)> = Vec::new();
        'topics: for topic in storage.folders_in(&dir)? {
            for queue in storage.folders_in(&topic)? {
                for file in storage.list_if_there(&queue)?.unwrap_or_default() {
                    let named = file.name.to_str().and_then(parse_offset_name);
                    if named.is_some() && file.kind == FileKind::File && file.len >= entry {
                        let size = file.len / entry * entry;
                        votes.add(size);
                        witnesses.push((size, queue.join(file.name)));
                        if witnesses.len() >= QUEUE_FILES_ASKED {
                            break 'topics;
                        }
                    }
                }
            }
        }
        let found = votes.winner();
        let (Some(given), Some(size)) = (given, found) else { return Ok(found) };
        // A single file shorter than configured was truncated: its entries are rebuilt.
        if witnesses.len() == 1 && size < given && remembered != found {
            return Ok(None);
        }
        let witness = witnesses.iter().find(|(known, _)| *known == size);
        let path = witness.map(|(_, path)| path.clone()).unwrap_or_default();
        if size == given { Ok(found) } else { Err(differs(self.setting, given, &path, size)) }
    }
}

/// Writes the settings that a store's files do not prove; of a new one all.
pub fn remember(paths: &StorePaths, config: &StoreConfig, is_new: bool) -> Result<()> {
    remembered::keep(paths, config, is_new, || found_sizes(paths, config))
}

fn found_sizes(paths: &StorePaths, config: &StoreConfig) -> Result<StoreConfig> {
    let mut config = config.clone();
    FILE_SIZES.iter().for_each(|size| *(size.field)(&mut config) = None);
    (config.max_hash_slot_num, config.max_index_num) = (None, None);
    let log_size = commit_log_file_size(paths, &config)?;
    let layout = queue_layout(paths, &config)?;
    let index = index_layout(paths, &config)?;
    config.mapped_file_size_commit_log = Some(log_size);
    adopt_queue_layout(&mut config, &layout);
    if let Ok(layout) = index {
        adopt_index_layout(&mut config, layout);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn winner(sizes: &[u64]) -> Option<u64> {
        let mut votes = Votes::default();
        sizes.iter().for_each(|&size| votes.add(size));
        votes.winner()
    }

    #[test]
    fn one_file_that_differs_does_not_decide_the_size() {
        assert_eq!(winner(&[]), None);
        assert_eq!(winner(&[0]), None);
        assert_eq!(winner(&[60, 64, 64]), Some(64));
        assert_eq!(winner(&[64, 60]), Some(64));
    }
}
