//! Messages of an ended epoch behind the new one's begin: a slave cuts its log in memory alone
//! (`AutoSwitchHAClient#doTruncate`), and a crash brings them back.

use crate::error::{Corruption, Result};
use crate::files::Access;
use crate::format::config::json;
use crate::format::config::tables::{self, Epoch};
use crate::format::width::clamp_u64;
use crate::log::read::damage::not_expected;
use crate::log::read::scanner::{Flow, Item, Resync, Scanner};
use crate::log::{CommitLog, StoreCheckpoint};
use crate::store::folder::config_file;
use crate::store::folder::inventory::has_queue_database;
use crate::store::folder::paths::StorePaths;
use crate::store::queue_table::QueueTable;

/// Suffix of a quarantine that no command puts back.
pub const ENDED: &str = ".ended";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedEpoch {
    pub next: Epoch,
    /// `confirmPhyOffset`.
    pub confirmed: u64,
    pub messages: u64,
}

impl EndedEpoch {
    /// Finds whole messages behind the last epoch's begin that nothing confirms and no queue has.
    pub fn find(paths: &StorePaths, log: &CommitLog, queues: &QueueTable) -> Result<Option<Self>> {
        let [file, backup] = &paths.epochs;
        let read = |path| config_file::read(paths.storage(), path, json::MAX_LEN).ok().flatten();
        let parsed = |path| read(path).and_then(|bytes| tables::parse_epochs(&bytes));
        let found = parsed(file).or_else(|| parsed(backup)).unwrap_or_default();
        let [.., _, next] = *found else { return Ok(None) };
        let is_in_queues =
            || queues.all().iter().any(|queue| clamp_u64(queue.reach()) > next.begin);
        let end = log.run().end_offset().unwrap_or(0);
        if next.begin <= log.min_offset()
            || next.begin >= end
            || is_in_queues()
            || has_queue_database(paths)?
        {
            return Ok(None);
        }
        let checkpoint = StoreCheckpoint::load(paths.storage(), &paths.checkpoint(), Access::Read)?;
        let confirmed = clamp_u64(checkpoint.fields.confirm_physical_offset);
        if confirmed > next.begin {
            return Ok(None);
        }
        let mut messages = 0;
        let mut scanner = Scanner::new(log, next.begin, end, true);
        scanner.each(log, end, Resync::Never, |_, item| {
            messages += u64::from(matches!(item, Item::Record(..)));
            Ok(Flow::Continue)
        })?;
        Ok((messages > 0).then_some(Self { next, confirmed, messages }))
    }

    pub(super) fn damage(&self, log: &CommitLog) -> Corruption {
        let at = self.next.begin;
        let expected = format!("no message of an ended epoch from physical offset {at} on");
        not_expected(log, at, expected, self.to_string())
    }

    pub(super) fn refused(&self, log: &CommitLog) -> Corruption {
        let found = format!(
            "{self}; nothing was changed: `mqstore recover --apply --drop-beyond` ends the log there and \
             keeps them aside; if they are wanted, move the file of epochs and its backup away first"
        );
        Corruption { found, ..self.damage(log) }
    }
}

impl std::fmt::Display for EndedEpoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { next, confirmed, messages } = self;
        write!(
            f,
            "epoch {} begins at physical offset {}, the checkpoint confirms only what lies before \
             {confirmed}, and {messages} whole messages of an ended epoch lie from there on, in no \
             queue: a rebuild brings them back",
            next.number, next.begin
        )
    }
}
