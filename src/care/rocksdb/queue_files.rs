//! Files of queues, made from rows for the store's own reader.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Databases, Ends, Name, each_row, shown};
use crate::error::{CorruptionKind, Error, Result};
use crate::files::Storage;
use crate::format::file_name::offset_name;
use crate::format::queue::consume_queue::{ENTRY_LEN, QueueEntry};
use crate::format::queue::names_a_folder;
use crate::format::width::to_usize;
use crate::log::CqUnit;

/// No position behind it names a file.
const MOST_POSITION: u64 = 1 << 62;

/// Writes files of the queues in `ends` below `dir`: their rows if `with_rows`, and the last entry of
/// those without one. Returns whether there are any.
pub fn write_files(
    storage: &dyn Storage,
    databases: &dyn Databases,
    database: &Path,
    dir: &Path,
    file_size: u64,
    ends: &Ends,
    with_rows: bool,
) -> Result<bool> {
    for name in ends.last.keys() {
        if name.1 < 0 || !names_a_folder(&name.0) {
            let expected = "a queue whose name can be a folder's";
            let found = format!("queue {} of '{}'", name.1, shown(&name.0));
            return Err(Error::corrupt(database, 0, CorruptionKind::RocksDb, expected, found));
        }
    }
    let queues = BTreeSet::new();
    let mut files = QueueFiles { storage, dir, file_size, queues, current: None };
    if with_rows {
        each_row(databases, database, ends, |name, row| files.put(name, &row))?;
    }
    files.close()?;
    for (name, end) in &ends.last {
        if !files.queues.contains(name) {
            // Where retention took every message, the end alone tells the next number.
            files.put(name, &CqUnit { store_size: 1, ..*end })?;
            files.close()?;
        }
    }
    Ok(!files.queues.is_empty())
}

struct QueueFiles<'a> {
    storage: &'a dyn Storage,
    dir: &'a Path,
    file_size: u64,
    queues: BTreeSet<Name>,
    current: Option<File>,
}

struct File {
    queue: Name,
    begin: u64,
    bytes: Vec<u8>,
}

impl QueueFiles<'_> {
    /// Adds an entry; a gap before it stays zero, and the reader fills it from the log.
    fn put(&mut self, queue: &Name, unit: &CqUnit) -> Result<()> {
        let position =
            u64::try_from(unit.number).ok().and_then(|at| at.checked_mul(ENTRY_LEN as u64));
        let Some(position) = position.filter(|position| *position < MOST_POSITION) else {
            return Ok(());
        };
        let is_in = |file: &File| {
            file.queue == *queue && position < file.begin.saturating_add(self.file_size)
        };
        if !self.current.as_ref().is_some_and(is_in) {
            self.close()?;
            let begin = position - position % self.file_size;
            let blanks = match self.queues.insert(queue.clone()) {
                true => to_usize(position - begin) / ENTRY_LEN,
                false => 0,
            };
            let bytes = QueueEntry::PRE_BLANK.encode().repeat(blanks);
            self.current = Some(File { queue: queue.clone(), begin, bytes });
        }
        if let Some(File { begin, bytes, .. }) = &mut self.current {
            // Rows come in the order of their numbers.
            bytes.resize(to_usize(position.saturating_sub(*begin)).max(bytes.len()), 0);
            bytes.extend(unit.entry().encode());
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let Some(File { queue: (topic, queue_id), begin, bytes }) = self.current.take() else {
            return Ok(());
        };
        let topic = std::str::from_utf8(&topic).unwrap_or_default();
        let dir = self.dir.join(topic).join(queue_id.to_string());
        let path: PathBuf = dir.join(offset_name(begin));
        // Far rows leave holes, no zeros on the disk.
        let position = bytes.iter().take_while(|byte| **byte == 0).count();
        self.storage.create_dir(&dir).map_err(Error::io("create", &dir))?;
        let file = self.storage.create(&path, self.file_size);
        let file = file.map_err(Error::io("create", &path))?;
        file.write_at(&bytes[position..], position as u64).map_err(Error::io("write", &path))
    }
}
