//! The objects below a URL as they were listed, and how they are asked for.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::files::system::storage::{DirEntry, FileKind};

/// Folders above an object: a store has three, and each level of a listing takes memory.
const MOST_LEVELS: usize = 16;

/// An object as listed.
#[derive(Clone, Debug, Hash, PartialEq)]
pub struct Object {
    /// Name below the URL, with `/` between its parts.
    pub key: String,
    pub len: u64,
    pub etag: Option<String>,
    /// Unix milliseconds.
    pub modified_ms: i64,
}

/// The objects below one URL.
pub trait Objects: Send + Sync + fmt::Debug {
    fn list(&self) -> io::Result<Vec<Object>>;
    /// Reads ranges of an object, each whole, and begins to read those `ahead`, which their readers
    /// will ask for. Fails if the object is not the listed one any more. The bytes may be Python's:
    /// they are dropped where no lock is held.
    fn ranges(
        &self,
        object: &Object,
        parts: &[Range<u64>],
        ahead: &[(&Object, Range<u64>)],
    ) -> io::Result<Vec<Bytes>>;
    /// Runs `wait`, which waits for another thread's [`Objects::ranges`], without what that needs.
    fn waiting(&self, wait: &(dyn Fn() + Sync)) {
        wait();
    }
    /// As [`Storage::check_interrupt`].
    fn check_interrupt(&self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Listing {
    pub(super) folders: BTreeMap<PathBuf, BTreeMap<OsString, DirEntry>>,
    pub(super) files: BTreeMap<PathBuf, (u64, Arc<Object>)>,
}

impl Listing {
    /// The files that follow one in its folder, by their names.
    pub(super) fn behind<'a>(
        &'a self,
        path: &'a Path,
    ) -> impl Iterator<Item = &'a (u64, Arc<Object>)> {
        let later = self.files.range::<Path, _>((Bound::Excluded(path), Bound::Unbounded));
        later
            .take_while(|(other, _)| other.starts_with(path.parent().unwrap_or(path)))
            .filter(|(other, _)| other.parent() == path.parent())
            .map(|(_, file)| file)
    }

    pub(super) fn of(root: &Path, objects: Vec<Object>) -> Self {
        let mut listing = Self::default();
        listing.folders.entry(root.to_owned()).or_default();
        for object in objects {
            // A name that ends in `/` marks a folder.
            let (key, is_folder) = match object.key.strip_suffix('/') {
                Some(key) => (key, true),
                None => (object.key.as_str(), false),
            };
            // No path can lead to these.
            if key.split('/').count() > MOST_LEVELS
                || key.split('/').any(|name| ["", ".", ".."].contains(&name))
            {
                continue;
            }
            let mut path = root.to_owned();
            let mut names = key.split('/').peekable();
            while let Some(name) = names.next() {
                let is_file = names.peek().is_none() && !is_folder;
                let (kind, len, inode, changed_ns) = match is_file {
                    true => {
                        let changed_ns = Some(ns(object.modified_ms));
                        (FileKind::File, object.len, id_of(&object), changed_ns)
                    }
                    false => (FileKind::Directory, 0, 0, None),
                };
                let entry = DirEntry { name: name.into(), kind, len, inode, changed_ns };
                let entries = listing.folders.entry(path.clone()).or_default();
                path.push(name);
                if is_file {
                    // An object may have the name of a folder, and mark it.
                    entries.entry(name.into()).or_insert(entry);
                    listing.files.insert(path.clone(), (inode, Arc::new(object.clone())));
                } else {
                    entries.insert(name.into(), entry);
                    listing.folders.entry(path.clone()).or_default();
                }
            }
        }
        listing
    }
}

/// Changes with the object's content.
fn id_of(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish().max(1)
}

pub(super) fn ns(ms: i64) -> i64 {
    ms.saturating_mul(1_000_000)
}
