//! Messages before the log's first file: deleted by retention, or with files that are gone.

use super::{Examined, Severity};
use crate::care::finding::Code;
use crate::error::Result;
use crate::format::file_name::offset_name;
use crate::format::width::at_least_0;
use crate::store::queue_table::QueueTable;

impl Examined<'_> {
    /// Adds what queues know before the log. RocketMQ's retention deletes whole files of queues too.
    pub(super) fn tell_beginning(&mut self, queues: &QueueTable) -> Result<()> {
        let log_min = self.log.min_offset();
        if log_min == 0 || self.log.run().files().is_empty() {
            return Ok(());
        }
        let (mut messages, mut in_queues, mut kept) = (0_u64, 0_u64, 0_u64);
        for queue in queues.all() {
            let before = queue.first_at_or_behind(log_min)? - queue.first_at_or_behind(0)?;
            messages = messages.saturating_add(at_least_0(before));
            in_queues += u64::from(before > 0);
            let files = queue.run().files();
            for file in files.iter().rev().skip(1) {
                kept += u64::from(queue.last_place_in(file)?.is_some_and(|place| place < log_min));
            }
        }
        if messages == 0 {
            return Ok(());
        }
        let known = format!(
            "the log begins at {}; {in_queues} queues know {messages} messages before it",
            offset_name(log_min)
        );
        let (severity, why) = match kept {
            0 => (
                Severity::Info,
                "retention deleted them, or files are gone; nothing tells which".into(),
            ),
            _ => (
                Severity::Warning,
                format!(
                    "{kept} files of queues hold nothing else, and retention deletes those too: files of \
                     the log are gone, or the broker was stopped seconds after a deletion"
                ),
            ),
        };
        self.state(Code::DocBeginning).add(severity, format!("{known}: {why}"));
        Ok(())
    }
}
