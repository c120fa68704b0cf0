//! Number of slots and entries of a store's index files, stored in no index file: configured,
//! detected or remembered.

use std::path::{Path, PathBuf};

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::{Access, FileKind, Storage, StorageFile};
use crate::format::index::IndexLayout;
use crate::log::index::layout::{Detection, detect_layout};

use crate::store::folder::paths::StorePaths;
use crate::store::folder::remembered::Remembered;

/// A layout, or why there is none.
pub type LayoutAnswer = std::result::Result<IndexLayout, NoLayout>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLayout {
    pub path: PathBuf,
    pub reason: String,
    pub fits: Option<IndexLayout>,
    pub proven: Option<IndexLayout>,
}

impl NoLayout {
    /// Error for a writer, with the remedy.
    #[must_use]
    pub fn refusal(&self, config: &StoreConfig) -> Error {
        let (slots, entries) = (StoreConfig::INDEX_SLOTS, StoreConfig::INDEX_ENTRIES);
        Error::config(
            index_field(config, self.proven),
            format!(
                "does not fit the index file {}, which was cut short or has others: {}; give \
                 max_hash_slot_num and max_index_num as the writer had them, maxHashSlotNum and \
                 maxIndexNum in a broker.conf ({slots} and {entries} where that names none)",
                self.path.display(),
                self.reason,
            ),
        )
    }
}

fn index_field(config: &StoreConfig, proven: Option<IndexLayout>) -> &'static str {
    let fits = |slots| proven.is_some_and(|layout| layout.slots() == slots);
    match config.max_index_num.is_some() && config.max_hash_slot_num.is_none_or(fits) {
        true => "max_index_num",
        false => "max_hash_slot_num",
    }
}

/// A missing number comes from the remembered settings or RocketMQ's defaults.
fn configured_layout(
    config: &StoreConfig,
    remembered: &StoreConfig,
) -> Result<Option<IndexLayout>> {
    if config.max_hash_slot_num.or(config.max_index_num).is_none() {
        return Ok(None);
    }
    let slots = config.max_hash_slot_num.or(remembered.max_hash_slot_num);
    let entries = config.max_index_num.or(remembered.max_index_num);
    let slots = slots.unwrap_or(StoreConfig::INDEX_SLOTS);
    let entries = entries.unwrap_or(StoreConfig::INDEX_ENTRIES);
    let refused = || {
        Error::setting(
            index_field(config, None),
            "an index file of less than 2 GiB",
            format!("{slots} slots and {entries} entries"),
        )
    };
    IndexLayout::new(slots, entries).map(Some).ok_or_else(refused)
}

fn layouts_by_settings(
    paths: &StorePaths,
    config: &StoreConfig,
) -> Result<(Option<IndexLayout>, Option<IndexLayout>)> {
    let remembered = Remembered::load(paths).config;
    let given = configured_layout(config, &remembered)?;
    // Invalid numbers in an editable file are ignored.
    Ok((given, configured_layout(&remembered, &remembered).unwrap_or(None)))
}

/// The configured or remembered layout, for files to be rebuilt regardless of the old ones.
///
/// # Errors
/// [`Error::InvalidConfig`] for settings that make no file.
pub fn layout_by_settings(paths: &StorePaths, config: &StoreConfig) -> Result<Option<IndexLayout>> {
    layouts_by_settings(paths, config).map(|(given, remembered)| given.or(remembered))
}

/// The configured, detected or remembered layout.
///
/// # Errors
/// [`Error::InvalidConfig`] for settings that make no file, [`Error::Io`].
pub fn index_layout(paths: &StorePaths, config: &StoreConfig) -> Result<LayoutAnswer> {
    let dir = paths.index();
    let (given, remembered) = layouts_by_settings(paths, config)?;
    let mut none = match layout_of_files(paths.storage(), &dir, given.or(remembered), remembered)? {
        Err(none) if none.fits.is_none() => none,
        answer => return Ok(answer),
    };
    // The files may prove another layout.
    for other in [remembered, None] {
        none.proven = none.proven.or(layout_of_files(paths.storage(), &dir, other, None)?.ok());
    }
    Ok(none.proven.filter(|_| given.is_none()).ok_or(none))
}

fn layout_of_files(
    storage: &dyn Storage,
    dir: &Path,
    configured: Option<IndexLayout>,
    remembered: Option<IndexLayout>,
) -> Result<LayoutAnswer> {
    let entries = storage.list_if_there(dir)?;
    let mut names: Vec<_> = entries
        .into_iter()
        .flatten()
        .filter(|entry| {
            // A power cut leaves an empty file behind.
            entry.kind == FileKind::File
                && entry.len > 0
                && entry
                    .name
                    .to_str()
                    .and_then(crate::format::file_name::parse_index_name)
                    .is_some()
        })
        .map(|entry| entry.name)
        .collect();
    names.sort();
    let (mut likely, mut damaged, mut unread) = (None, None::<NoLayout>, None);
    let is_alone = names.len() == 1;
    // The oldest file proves most; one without entries only its length.
    for name in names {
        let path = dir.join(name);
        let told = storage.open(&path, Access::Read).map_err(Error::io("open", &path));
        let told = told.and_then(|file| {
            let detection = detect_layout(&*file, &path, configured)?;
            match (detection, configured) {
                (Detection::Unknown { reason, fits: None }, Some(configured)) if is_alone => {
                    let fits = cut_short(&*file, &path, configured, remembered)?;
                    Ok(Detection::Unknown { reason, fits })
                }
                (detection, _) => Ok(detection),
            }
        });
        match told {
            Ok(Detection::Proven(layout)) => return Ok(Ok(layout)),
            Ok(Detection::Likely(layout)) => {
                likely.get_or_insert(layout);
            }
            Ok(Detection::Unknown { reason, fits }) => {
                if damaged.as_ref().is_none_or(|before| before.fits.is_none() && fits.is_some()) {
                    damaged = Some(NoLayout { path, reason, fits, proven: None });
                }
            }
            // Removed since the listing.
            Err(error) if error.is_not_found() => {}
            // Another file may tell; users of this one meet the error again.
            Err(error) => {
                unread.get_or_insert(error);
            }
        }
    }
    if let Some(error) = unread {
        return Err(error);
    }
    let answer = likely.map(Ok).or(damaged.map(Err));
    Ok(answer.unwrap_or_else(|| Ok(configured.unwrap_or(IndexLayout::DEFAULT))))
}

/// The configured layout, if it makes longer files and nothing proves this one complete: then it
/// was truncated.
fn cut_short(
    file: &dyn StorageFile,
    path: &Path,
    configured: IndexLayout,
    remembered: Option<IndexLayout>,
) -> Result<Option<IndexLayout>> {
    let len = file.length().map_err(Error::io("stat", path))?;
    let is_shorter = len < configured.file_len();
    let mut is_whole = false;
    for other in [None, remembered].into_iter().filter(|_| is_shorter) {
        is_whole |= detect_layout(file, path, other)?.layout().is_some();
    }
    Ok((is_shorter && !is_whole).then_some(configured))
}
