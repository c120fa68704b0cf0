//! `mqstore.deleted`: deletions not told yet, each written before its first file goes. The next open
//! tells them.

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::error::{CorruptionKind, Error, Result};
use crate::files::Storage;
use crate::format::config::json;
use crate::store::folder::config_file::read_json;
use crate::store::folder::lock;
use crate::store::folder::paths::StorePaths;
use crate::store::store_files::StoreFiles;
use crate::store::store_files::notices::Notices;

const MOST: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) text: String,
}

#[derive(Debug, Default)]
pub(crate) struct PendingNotices(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    deletions: Vec<(u64, Deletion)>,
    in_file: usize,
}

impl PendingNotices {
    pub(crate) fn record(&self, files: &StoreFiles, deletion: Deletion) -> Result<()> {
        let mut kept = self.0.lock();
        let before = kept.deletions.iter().map(|(_, deletion)| deletion);
        let all: Vec<_> = before.chain([&deletion]).collect();
        write(&*files.storage, &files.paths, &all)?;
        kept.in_file = all.len();
        Ok(())
    }

    pub(crate) fn notify(&self, notices: &Notices, deletion: Deletion) {
        let mut kept = self.0.lock();
        let number = notices.push(deletion.text.clone());
        kept.deletions.push((number, deletion));
        let more = kept.deletions.len().saturating_sub(MOST);
        kept.deletions.drain(..more);
    }

    pub(crate) fn clear_delivered(&self, files: &StoreFiles) -> Result<()> {
        let mut kept = self.0.lock();
        kept.deletions.retain(|(number, _)| !files.notices.is_taken(*number));
        if kept.deletions.len() != kept.in_file {
            let all: Vec<_> = kept.deletions.iter().map(|(_, deletion)| deletion).collect();
            write(&*files.storage, &files.paths, &all)?;
            kept.in_file = all.len();
        }
        Ok(())
    }

    pub(crate) fn of_earlier(files: &StoreFiles) -> Self {
        let pending_notices = Self::default();
        match load(&*files.storage, &files.paths) {
            Ok(deletions) => {
                pending_notices.0.lock().in_file = deletions.len();
                let begin = files.log.min_offset();
                for mut deletion in deletions.into_iter().filter(|one| one.from < begin) {
                    if begin < deletion.to {
                        deletion.text += &format!("; done up to {begin}");
                    }
                    pending_notices.notify(&files.notices, deletion);
                }
            }
            Err(error) => {
                pending_notices.0.lock().in_file = 1;
                let text = format!("{error}; which deletions it told of is unknown");
                pending_notices.notify(&files.notices, Deletion { from: 0, to: 0, text });
            }
        }
        pending_notices
    }
}

fn write(storage: &dyn Storage, paths: &StorePaths, deletions: &[&Deletion]) -> Result<()> {
    let path = paths.deleted();
    if deletions.is_empty() {
        return storage.remove_if_there(&path);
    }
    let each = deletions.iter().map(|Deletion { from, to, text }| json!([from, to, text]));
    lock::replace(storage, &path, Value::Array(each.collect()).to_string().as_bytes())
}

fn load(storage: &dyn Storage, paths: &StorePaths) -> Result<Vec<Deletion>> {
    let path = paths.deleted();
    let Some(bytes) = read_json(storage, &path)? else { return Ok(Vec::new()) };
    let root = json::parse(&bytes).map_err(|error| error.in_file(&path, 0))?;
    let deletion = |value: &Value| {
        let &[ref from, ref to, Value::String(ref text)] = value.as_array()?.as_slice() else {
            return None;
        };
        Some(Deletion { from: from.as_u64()?, to: to.as_u64()?, text: text.clone() })
    };
    let all = root.as_array().and_then(|all| all.iter().map(deletion).collect());
    all.ok_or_else(|| {
        let expected = "arrays of two offsets and a text";
        Error::corrupt(&path, 0, CorruptionKind::Json, expected, "another value".to_owned())
    })
}
