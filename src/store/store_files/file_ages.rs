//! Store times of log files, for `keep_hours`. A file's own times tell when it was copied, not
//! when its messages were stored.

use parking_lot::Mutex;
use std::collections::BTreeMap;

use crate::error::Result;
use crate::files::RunFile;
use crate::log::CommitLog;
use crate::log::read::scanner::{Flow, Item, Resync, Scanner, Stop};

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
    let stop = scanner.each(end, Resync::Never, |_, item| {
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
