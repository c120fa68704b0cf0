//! Copies of files and folders; holes stay holes.

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::{Access, FileKind, Storage};

/// Copies a folder with what is in it to `to`, which is created. Links are left out.
pub fn copy_tree(storage: &dyn Storage, from: &Path, to: &Path) -> Result<()> {
    storage.create_dir(to).map_err(Error::io("create", to))?;
    for entry in storage.list(from).map_err(Error::io("list", from))? {
        let path = from.join(&entry.name);
        match entry.kind {
            FileKind::Directory => copy_tree(storage, &path, &to.join(&entry.name))?,
            FileKind::File => copy_file(storage, &path, to)?,
            FileKind::Other => {}
        }
    }
    Ok(())
}

/// Copies a file into a folder, which is created if missing.
pub fn copy_file(storage: &dyn Storage, from: &Path, dir: &Path) -> Result<()> {
    const BLOCK: usize = 1 << 20;
    storage.create_dir(dir).map_err(Error::io("create", dir))?;
    let to = dir.join(from.file_name().unwrap_or_default());
    let source = storage.open(from, Access::Read).map_err(Error::io("open", from))?;
    let len = source.stat().map_err(Error::io("stat", from))?.len;
    let copy = storage.create(&to, len).map_err(Error::io("create", &to))?;
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    while let Some(data) = source.next_data(at).map_err(Error::io("read", from))? {
        let read = source.read_at(&mut block, data).map_err(Error::io("read", from))?;
        let bytes = block.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            break;
        }
        if bytes.iter().any(|byte| *byte != 0) {
            copy.write_at(bytes, data).map_err(Error::io("write", &to))?;
        }
        at = data + read as u64;
    }
    copy.sync().map_err(Error::flush(&to))?;
    storage.sync_dir(dir).map_err(Error::flush(dir))
}
