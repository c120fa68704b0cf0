//! Newest store time of a log file, for `keep_hours`. A file's own times tell when it was copied,
//! not when its messages were stored.

use parking_lot::Mutex;
use std::collections::BTreeMap;

use crate::error::Result;
use crate::files::RunFile;
use crate::log::CommitLog;
use crate::log::read::scanner::{Scanned, Scanner, Stop};

/// Cached newest store times by base offset; a full file does not change.
#[derive(Debug, Default)]
pub struct FileAges(Mutex<BTreeMap<u64, Option<i64>>>);

impl FileAges {
    /// Newest store time of a full file, Unix milliseconds; `None` if damage hides it. If the first
    /// message is newer than `until_ms`, its time is returned without reading on.
    pub fn newest_ms(&self, log: &CommitLog, file: &RunFile, until_ms: i64) -> Result<Option<i64>> {
        let base = file.base_offset;
        match log.store_timestamp_ms(base, 0)? {
            Some(first_ms) if first_ms > until_ms => return Ok(Some(first_ms)),
            _ => {}
        }
        let known = || self.0.lock();
        if let Some(&newest_ms) = known().get(&base) {
            return Ok(newest_ms);
        }
        let newest_ms = read(log, base)?;
        let mut known = known();
        // Files are deleted from the front.
        *known = known.split_off(&log.min_offset());
        known.insert(base, newest_ms);
        Ok(newest_ms)
    }
}

fn read(log: &CommitLog, base: u64) -> Result<Option<i64>> {
    let end = base.saturating_add(log.run().file_size());
    let mut scanner = Scanner::new(log, base, end, false);
    let mut newest_ms = None;
    loop {
        match scanner.step()? {
            Ok(Scanned::Message(view)) => {
                newest_ms = newest_ms.max(Some(view.store_timestamp_ms()))
            }
            Ok(Scanned::Blank { .. }) => {}
            // No message was stored in 1970 or before.
            Err(Stop::End) => return Ok(newest_ms.filter(|&newest_ms| newest_ms > 0)),
            Err(Stop::Empty | Stop::Damage(_)) => return Ok(None),
        }
    }
}
