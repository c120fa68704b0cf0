//! Where a start's recovery begins to read the log, and where it ends it.

use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::{RunFile, Storage};
use crate::format::checkpoint::CheckpointFields;
use crate::format::message::{MessageView, peek};
use crate::format::release::Release;
use crate::format::width::saturating_i64;
use crate::log::CommitLog;
use crate::log::read::file_walk::{FileDamage, FileEnd, Visitor, open_at};
use crate::log::read::frames::FramedRecord;
use crate::log::read::scanner::{Flow, Resync};
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;
use crate::store::folder::lock;

/// Log files that a start looks at from 5.4 on (`commitLogRecoverMaxNum`).
const MOST_FILES: usize = 10;

/// Place where a start ends the log although whole messages lie behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Physical offset.
    pub at: u64,
    /// Whole messages from there on.
    pub messages: u64,
    /// Why the recovery ends there.
    pub reason: String,
}

/// Start and length of recovery: from the last file whose first message the checkpoint or, after a
/// clean stop, a queue covers (`CommitLog#recoverAbnormally`, `CommitLog#recoverNormally`,
/// `ConsumeQueueStore#isMappedFileMatchedRecover`).
pub(super) fn range(
    storage: &dyn Storage,
    (log, config): (&CommitLog, &StoreConfig),
    checkpoint: &CheckpointFields,
    release: Release,
    reach: Option<i64>,
) -> (u64, u64) {
    let files = log.run().files();
    let matches = |base: u64, time: i64| {
        let base = saturating_i64(base);
        match reach {
            Some(reach) => base <= reach,
            None if !release.has_logics_offset() => time <= checkpoint.min_timestamp_ms(),
            None if checkpoint.logics_physical_offset > 0 => {
                base <= checkpoint.logics_physical_offset
            }
            None => time <= checkpoint.logics_msg_timestamp_ms,
        }
    };
    let most = if release >= Release::V5_4 { MOST_FILES } else { usize::MAX };
    let from = files
        .iter()
        .rev()
        .take(most)
        .find(|file| {
            first_time_ms(storage, file)
                .is_some_and(|time| time != 0 && matches(file.base_offset, time))
                && (release < Release::V5_4 || is_good_at(log, config, file.base_offset))
        })
        .or_else(|| files.get(files.len().saturating_sub(most)))
        .map_or(log.min_offset(), |file| file.base_offset);
    let used = files
        .iter()
        .rev()
        .find(|file| first_time_ms(storage, file).is_some())
        .map_or(from, |file| file.base_offset.saturating_add(file.len));
    (from, used.saturating_sub(from))
}

pub(in crate::care) fn first_time_ms(storage: &dyn Storage, file: &RunFile) -> Option<i64> {
    let head = lock::read_start(storage, &file.path, peek::HEAD).ok()?;
    peek::store_timestamp_ms(&head, file.base_offset)
}

/// Why recovery takes no record, if it does not (`CommitLog#checkMessageAndReturnSize`).
fn refusal(config: &StoreConfig, record: &FramedRecord<'_>) -> Option<String> {
    if config.force_verify_prop_crc {
        if record.view.property_crc().is_none() {
            return Some(
                "it has no property checksum, which forceVerifyPropCRC=true demands".into(),
            );
        }
        return record.property_fault().map(|_| "its property checksum is wrong".to_owned());
    }
    let is_wrong = config.check_crc_on_recover && record.body_fault().is_some();
    is_wrong.then(|| "its body's checksum is wrong".to_owned())
}

struct Recovery<'a> {
    config: &'a StoreConfig,
    base: u64,
    newest_ms: i64,
    cut: Option<Cut>,
    ends_dispatch: bool,
}

impl<'a> Recovery<'a> {
    const fn new(config: &'a StoreConfig, base: u64) -> Self {
        Self { config, base, newest_ms: 0, cut: None, ends_dispatch: false }
    }

    fn stop(&mut self, at: u64, reason: impl FnOnce() -> String) {
        let at = self.base.saturating_add(at);
        self.cut.get_or_insert_with(|| Cut { at, messages: 0, reason: reason() });
    }
}

impl Visitor for Recovery<'_> {
    fn record(&mut self, at: u64, record: &FramedRecord<'_>) -> Result<Flow> {
        if self.cut.is_none()
            && let Some(reason) = refusal(self.config, record)
        {
            self.stop(at, || reason);
        }
        let request = DispatchRequest::of(&record.view);
        self.ends_dispatch |= self.cut.is_none()
            && request.properties.multi_dispatch.is_some()
            && request.is_queued()
            && lmq::end_of_dispatch(&request).is_some();
        self.newest_ms = self.newest_ms.max(record.view.store_timestamp_ms());
        if let Some(cut) = &mut self.cut {
            cut.messages += 1;
        }
        Ok(Flow::Continue)
    }

    /// Remains of a file's earlier life were never messages of this log.
    fn belongs(&mut self, _: u64, view: &MessageView<'_>) -> Result<bool> {
        Ok(view.store_timestamp_ms() >= self.newest_ms)
    }

    fn damage(&mut self, damage: &FileDamage, _: u64, _: Option<i64>) {
        self.stop(damage.at, || format!("there is no message: {}", damage.error.found));
    }
}

fn is_good_at(log: &CommitLog, config: &StoreConfig, base: u64) -> bool {
    let mut recovery = Recovery::new(config, base);
    let Some(file) = log.run().find(base) else { return false };
    let opened = open_at(log.run(), &file, base..u64::MAX, true);
    let Ok(Some((mut reader, at))) = opened else { return false };
    let walked = reader.walk(at, at + 1, true, Resync::Never, &mut recovery);
    matches!(walked, Ok((_, FileEnd::Whole))) && recovery.cut.is_none()
}

/// Where a recovery from `from` on ends the log before whole messages: at the first record that it
/// refuses (`CommitLog#recoverNormally`, `CommitLog#recoverAbnormally`).
pub(in crate::care) fn cut(
    log: &CommitLog,
    config: &StoreConfig,
    from: u64,
) -> Result<Option<Cut>> {
    Ok(recovered(log, config, from)?.cut.filter(|cut| cut.messages > 0))
}

pub(super) fn dispatch_ends(log: &CommitLog, config: &StoreConfig, from: u64) -> Result<bool> {
    Ok(recovered(log, config, from)?.ends_dispatch)
}

fn recovered<'a>(log: &CommitLog, config: &'a StoreConfig, from: u64) -> Result<Recovery<'a>> {
    let mut recovery = Recovery::new(config, from);
    for file in log.run().files().iter().filter(|file| file.base_offset >= from) {
        let places = file.base_offset..u64::MAX;
        let Some((mut reader, at)) = open_at(log.run(), file, places, true)? else { continue };
        recovery.base = file.base_offset;
        let (at, end) = reader.walk(at, u64::MAX, true, Resync::InFile, &mut recovery)?;
        match end {
            FileEnd::Blank => {}
            FileEnd::Bad(damage) | FileEnd::Remains(damage, _) => {
                recovery.damage(&damage, at, None);
            }
            FileEnd::Whole | FileEnd::Nothing => {
                recovery.stop(at, || "there is no message".to_owned())
            }
        }
    }
    Ok(recovery)
}
