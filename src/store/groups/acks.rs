//! Acknowledged messages of a queue since the group's last commit: written, not flushed, so that
//! they survive the process. The holder of the queue's lock alone uses the file; a commit removes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::files::{Access, Storage, StorageFile, make_folder};
use crate::format::bytes::i64_at;
use crate::format::crc::{body_crc, sha256};
use crate::format::width::to_usize;
use crate::store::folder::paths::StorePaths;

/// An acknowledged message: the offsets before and behind it, and its store time.
pub type Ack = (i64, i64, i64);

const ROW: usize = 28;
/// Most bytes of a file, which it reaches only where each commit fails.
const MOST_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct AckFile {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    end: u64,
    /// Whether rows were added that the group's place in memory does not have.
    pub(super) is_ahead: bool,
}

impl AckFile {
    pub(super) fn path(paths: &StorePaths, group: &str, topic: &str, queue_id: i32) -> PathBuf {
        let queue = queue_id.to_be_bytes();
        let sum = sha256(&[group.as_bytes(), b"\0", topic.as_bytes(), b"\0", &queue]);
        let name: String = sum.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        paths.root().join("mqstore.acks").join(name)
    }

    /// Opens the file, or makes it. Its first row has the offset in the group's table, -1 if there
    /// is none: rows behind another offset are of a place that the group has left.
    pub(super) fn create(storage: &dyn Storage, path: PathBuf, committed: i64) -> Result<Self> {
        let rows = Self::rows_behind(storage, &path, committed)?;
        let there = storage.open_if_there(&path, Access::ReadWrite)?;
        let file = match there {
            Some(file) => file,
            None => {
                if let Some(folder) = path.parent() {
                    make_folder(storage, folder)?;
                }
                storage.create(&path, 0).map_err(Error::io("create", &path))?
            }
        };
        let end = rows.map_or(0, |rows| (rows.len() + 1) * ROW) as u64;
        file.set_len(end).map_err(Error::io("truncate", &path))?;
        let mut new = Self { file, path, end, is_ahead: false };
        if end == 0 {
            new.put(&[(committed, committed, 0)])?;
            new.is_ahead = false;
        }
        Ok(new)
    }

    pub(super) fn put(&mut self, acks: &[Ack]) -> Result<()> {
        if acks.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(acks.len() * ROW);
        for (from, to, stored_ms) in acks {
            let row: [[u8; 8]; 3] = [from, to, stored_ms].map(|number| number.to_be_bytes());
            bytes.extend_from_slice(row.as_flattened());
            bytes.extend_from_slice(&body_crc(row.as_flattened()).to_be_bytes());
        }
        if self.end + bytes.len() as u64 > MOST_BYTES {
            let text = "it would exceed 64 MiB: commits fail, or too many are acknowledged at once; \
                        the messages stay in flight: acknowledge fewer, or again after a commit";
            let full = std::io::Error::new(std::io::ErrorKind::FileTooLarge, text);
            return Err(Error::io("write", &self.path)(full));
        }
        if let Err(error) = self.file.write_at(&bytes, self.end) {
            // Its whole rows would count.
            let _ = self.file.set_len(self.end);
            return Err(Error::io("write", &self.path)(error));
        }
        self.end += bytes.len() as u64;
        self.is_ahead = true;
        Ok(())
    }

    pub(super) fn is_unchanged(&self) -> bool {
        self.file.stat().is_ok_and(|stat| stat.links > 0 && stat.len == self.end)
    }

    /// Rows behind the first; `None` if the file is missing or of another offset. The first torn or
    /// foreign row ends them.
    pub(super) fn rows_behind(
        storage: &dyn Storage,
        path: &Path,
        committed: i64,
    ) -> Result<Option<Vec<Ack>>> {
        let Some(file) = storage.open_if_there(path, Access::Read)? else { return Ok(None) };
        let len = file.length().map_err(Error::io("stat", path))?.min(MOST_BYTES);
        let bytes = file.read_most(0, to_usize(len)).map_err(Error::io("read", path))?;
        let mut rows = bytes.as_chunks::<ROW>().0.iter().map_while(|row| {
            let (numbers, sum) = row.split_last_chunk::<4>()?;
            let is_whole = body_crc(numbers).to_be_bytes() == *sum;
            is_whole.then_some((i64_at(row, 0)?, i64_at(row, 8)?, i64_at(row, 16)?))
        });
        let is_of_offset = rows.next().is_some_and(|(first, ..)| first == committed);
        Ok(is_of_offset.then(|| rows.collect()))
    }
}
