//! Disks of the log, queues of batches and topics that are not there.

use std::collections::BTreeSet;

use super::verdict::Cause;
use super::{Examined, Severity};
use crate::care::finding::Code;
use crate::care::topics::is_deleted;
use crate::error::Result;
use crate::format::config::tables::TopicTable;
use crate::log::QueueKind;
use crate::store::folder::config_file;
use crate::store::queue_table::QueueTable;

impl Examined<'_> {
    pub(super) fn tell_unmounted(&mut self, cause: &Cause) -> bool {
        let dirs = self.paths.commit_log();
        if dirs.len() == 1 || !matches!(cause, Cause::BrokenRun | Cause::EndMissing(_)) {
            return false;
        }
        let mut found = false;
        for dir in dirs {
            if self.storage.list(dir).map_or(true, |entries| entries.is_empty()) {
                let line = format!("{}: no file; is its disk mounted?", dir.display());
                let code = self.diagnoses.keys().copied().find(|code| cause.names(*code));
                self.state(code.unwrap_or(Code::LogEmpty)).evidence.insert(0, line);
                found = true;
            }
        }
        found
    }

    /// A writer would give such topics plain queues.
    pub(super) fn tell_batches(&mut self, queues: Option<&QueueTable>) {
        let Some(queues) = queues else { return };
        for topic in &self.facts.batch_topics {
            let is_known = queues.is_entered(topic) || queues.kind_of(topic) == QueueKind::Batch;
            if !is_known {
                let line = format!(
                    "{} has batches, and neither a table nor a folder of queues says so",
                    String::from_utf8_lossy(topic)
                );
                self.state(Code::ConfigTopicsGone).add(Severity::Error, line);
            }
        }
    }

    pub(super) fn deleted_topics(&self) -> Result<BTreeSet<String>> {
        let Ok(Some(bytes)) = config_file::read_json(self.storage, &self.paths.topics()) else {
            return Ok(BTreeSet::new());
        };
        let Ok(table) = TopicTable::parse(&bytes) else { return Ok(BTreeSet::new()) };
        let mut deleted = BTreeSet::new();
        for topic in self.facts.topics.keys() {
            let Ok(name) = std::str::from_utf8(topic) else { continue };
            if is_deleted(self.storage, self.paths, &table, topic) {
                deleted.insert(name.to_owned());
            }
        }
        Ok(deleted)
    }

    pub(super) fn tell_deleted(&mut self, deleted: &BTreeSet<String>) {
        if deleted.is_empty() {
            return;
        }
        for name in deleted {
            let count = self.facts.topics.get(name.as_bytes()).copied().unwrap_or(0);
            let evidence =
                format!("{count} messages of {name}, which config/topics.json does not have");
            self.state(Code::DocTopicDeleted).add(Severity::Info, evidence);
        }
        let others = self.facts.topics.keys().filter_map(|topic| std::str::from_utf8(topic).ok());
        let others: BTreeSet<String> =
            others.filter(|topic| !deleted.contains(*topic)).map(str::to_owned).collect();
        self.state(Code::DocTopicDeleted).topics = others;
    }
}
