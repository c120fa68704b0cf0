//! Bytes behind the end of a log: zeros, remains of an unclean stop, or whole messages that must be
//! kept.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::{Storage, make_folder, zero_out};
use crate::format::file_name;
use crate::format::width::to_usize;
use crate::log::CommitLog;
use crate::log::read::end::data_end;
use crate::log::read::scanner::{Flow, Item, Resync, Scanner};

use super::epoch::ENDED;
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::queue_audit::is_known;
use crate::store::folder::mark::Flushed;
use crate::store::folder::paths::StorePaths;
use crate::store::queue_table::QueueTable;
use crate::store::recovery_report::QuarantinedMessage;

const BLOCK: usize = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// End of the last non-zero byte; `None` if there is none.
    pub data_end: Option<u64>,
    /// The first [`Tail::KEPT`] whole messages.
    pub messages: Vec<QuarantinedMessage>,
    pub count: u64,
    /// Number of these that may have been flushed: before the durable mark, or by the checkpoint;
    /// and not older than earlier messages, or known to the queues.
    pub flushed: u64,
    pub is_ended: bool,
}

impl Tail {
    pub const KEPT: usize = 10_000;

    /// Examines everything behind `end`. `newest_ms` is the newest store time before it, `flushed`
    /// the flushed part of the log. An older message is a remainder of a recycled file unless the
    /// queues know it: clocks step back.
    pub fn read(
        log: &CommitLog,
        queues: &QueueTable,
        end: u64,
        newest_ms: i64,
        flushed: Flushed,
        is_ended: bool,
    ) -> Result<Self> {
        let mut tail = Self { data_end: data_end(log, end)?, is_ended, ..Self::default() };
        let Some(data_end) = tail.data_end else { return Ok(tail) };
        // A record without properties ends in zeros, so the last one may reach further.
        let scan_end = data_end.saturating_add(1 << 16).min(log.end_offset());
        let mut scanner = Scanner::new(log, end, scan_end, true);
        if !is_ended && !scanner.resync(log, Resync::Anywhere)? {
            return Ok(tail);
        }
        scanner.each(log, data_end, Resync::Anywhere, |range, item| {
            let Item::Record(view, _) = item else { return Ok(Flow::Continue) };
            let (begin, time) = (range.start, view.store_timestamp_ms());
            tail.data_end = tail.data_end.max(Some(range.end));
            tail.count += 1;
            let is_known = || is_known(queues, &DispatchRequest::of(view));
            tail.flushed += u64::from(flushed.proves(begin, time, newest_ms, is_known)?);
            if tail.messages.len() < Self::KEPT {
                tail.messages.push(QuarantinedMessage {
                    physical_offset: begin,
                    topic: view.topic().into(),
                    queue_id: view.queue_id(),
                    queue_offset: view.queue_offset(),
                    store_timestamp_ms: time,
                });
            }
            Ok(Flow::Continue)
        })?;
        Ok(tail)
    }

    /// Copies the bytes from `end` on into quarantine, durably. Returns its folder, if needed.
    pub fn keep(
        &self,
        log: &CommitLog,
        end: u64,
        paths: &StorePaths,
        now_ms: i64,
    ) -> Result<Option<PathBuf>> {
        let mark = if self.is_ended { ENDED } else { "" };
        let name = format!("{now_ms}-{}{mark}", file_name::offset_name(end));
        let dir = paths.quarantine().join(name);
        let copied = |data_end| quarantine(log, end, data_end, paths, dir);
        self.data_end.map(copied).transpose()
    }

    /// Zeroes the bytes from `end` on, which [`Self::keep`] has copied, and removes later files.
    pub fn cut(&self, log: &CommitLog, end: u64) -> Result<()> {
        let file_size = log.run().file_size();
        // The last file first: a crash in between leaves no gap.
        log.run().remove_from(end.checked_add(1).unwrap_or(end).div_ceil(file_size) * file_size)?;
        // Otherwise everything is zero, and flushed with the log.
        if let Some(file) = log.run().find(end).filter(|_| self.data_end.is_some()) {
            let open = log.run().open(&file)?;
            let position = end - file.base_offset;
            zero_out(&*open, &file.path, position..file_size)?;
            open.sync().map_err(Error::flush(&file.path))?;
        }
        Ok(())
    }
}

fn quarantine(
    log: &CommitLog,
    end: u64,
    data_end: u64,
    paths: &StorePaths,
    dir: PathBuf,
) -> Result<PathBuf> {
    make_folder(paths.storage(), &dir)?;
    // Restricted while empty; some file systems have no permissions.
    for path in [&paths.quarantine(), &dir] {
        let _ = paths.storage.make_private(path);
    }
    // A gap between files holds nothing to keep.
    for file in log.run().files().iter() {
        let at = file.base_offset.max(end);
        let stop = file.base_offset.saturating_add(log.run().file_size()).min(data_end);
        if at < stop {
            let path = dir.join(format!("commitlog-{}", file_name::offset_name(at)));
            copy(log, at, stop, paths.storage(), &path)?;
        }
    }
    paths.storage.sync_dir(&dir).map_err(Error::flush(&dir))?;
    Ok(dir)
}

fn copy(log: &CommitLog, from: u64, to: u64, storage: &dyn Storage, path: &Path) -> Result<()> {
    storage.remove_if_there(path)?;
    let out = storage.create(path, 0).map_err(Error::io("create", path))?;
    let _ = storage.make_private(path);
    let mut block = vec![0; BLOCK];
    let mut at = from;
    while at < to {
        let len = to_usize(to - at).min(BLOCK);
        let read = log.run().read_at(block.get_mut(..len).unwrap_or_default(), at)?;
        if read == 0 {
            break;
        }
        out.write_at(block.get(..read).unwrap_or_default(), at - from)
            .map_err(Error::io("write", path))?;
        at += read as u64;
    }
    out.sync().map_err(Error::flush(path))
}
