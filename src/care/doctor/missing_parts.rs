//! Disks of the log, messages before its first file, queues of batches and topics that are not there.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::cure::{self, Words};
use super::losses::{Gap, LEAST_WRONG};
use super::verdict::{self, Cause};
use super::{Examined, Severity};
use crate::care::broker;
use crate::care::finding::Code;
use crate::care::salvage::salvage;
use crate::care::topics::is_deleted;
use crate::care::verify::VerifyReport;
use crate::config::StoreConfig;
use crate::error::{Result, quoted};
use crate::files::Access;
use crate::format::config::tables::TopicTable;
use crate::format::file_name::{offset_name, parse_offset_name};
use crate::format::width::clamp_u64;
use crate::log::index::run::IndexRun;
use crate::log::{CommitLog, QueueKind};
use crate::store::folder::config_file;
use crate::store::folder::inventory::{self, Structure};
use crate::store::folder::paths::{self, StorePaths};
use crate::store::open::epoch::EndedEpoch;
use crate::store::open::inspect::Parts;
use crate::store::open::misplaced::{self, Misplaced};
use crate::store::progress::unwatched;
use crate::store::queue_table::QueueTable;
use crate::store::read::missing_end::MissingEnd;
use crate::time::utc_text;

pub(super) fn behind(
    paths: &StorePaths,
    parts: &Parts,
    log: &CommitLog,
    end: u64,
) -> Result<Option<MissingEnd>> {
    let layout = parts.index.as_ref().ok().copied();
    let index = IndexRun::to_read(&paths.storage, &paths.index(), layout).ok().flatten();
    let index = index.as_ref();
    let end = end.max(log.min_offset());
    match log.run().is_empty_from(end)? {
        true => MissingEnd::find(log, end, &parts.queues, index),
        false => Ok(None),
    }
}

pub(super) fn wrong_entries(report: &VerifyReport) -> u64 {
    let count = |code| report.found.get(&code).copied().unwrap_or(0);
    count(Code::QueueOther) + count(Code::QueueNowhere) + count(Code::QueueSize)
}

pub(super) fn emptied(paths: &StorePaths, misplaced: &Misplaced, file_size: u64) -> Vec<Gap> {
    let is_in_log = |path: &Path| paths.commit_log().iter().any(|dir| path.parent() == Some(dir));
    let is_filled = |path: &Path| misplaced.moves.iter().any(|(_, to)| to == path);
    let mut gaps: Vec<_> = misplaced
        .moves
        .iter()
        .filter(|(from, _)| is_in_log(from) && !is_filled(from))
        .filter_map(|(from, _)| parse_offset_name(from.file_name()?.to_str()?))
        .map(|from| Gap {
            from,
            to: from.saturating_add(file_size),
            after_ms: None,
            before_ms: None,
        })
        .collect();
    gaps.sort_by_key(|gap| gap.from);
    gaps
}

impl Examined<'_> {
    /// Adds what queues know before the log. RocketMQ's retention deletes whole files of queues too.
    pub(super) fn report_beginning(&mut self, queues: &QueueTable) -> Result<()> {
        let log_min = self.log.min_offset();
        if log_min == 0 || self.log.run().files().is_empty() {
            return Ok(());
        }
        let (mut messages, mut in_queues, mut kept) = (0_u64, 0_u64, 0_u64);
        for queue in queues.all() {
            let before = queue.first_at_or_behind(log_min)? - queue.first_at_or_behind(0)?;
            messages = messages.saturating_add(clamp_u64(before));
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

    /// Names the state of a log without its end. One whose last file is not full, or with a part of a
    /// file beside it, was never whole here.
    pub(super) fn code_of_end(&self) -> Result<Code> {
        let (run, end) = (self.log.run(), self.facts.end);
        let is_full = end.is_multiple_of(run.file_size().max(1)) || !run.is_empty_from(end)?;
        let mut entries = Vec::new();
        for dir in self.paths.commit_log() {
            entries.extend(inventory::list(self.paths.storage(), dir)?);
        }
        let has_part = entries.iter().any(|entry| misplaced::is_part(&entry.name));
        Ok(if is_full && !has_part { Code::DocEndMissing } else { Code::DocCopy })
    }

    pub(super) fn report_epoch(&mut self, ended: &EndedEpoch) {
        let cut = "mqstore recover STORE --apply --drop-beyond";
        let cure = cure::fill(cut, self.paths.root(), &Words::default());
        let state = self.state(Code::DocEpochEnded);
        state.found.cure = cure;
        state.report(ended.to_string());
    }

    pub(super) fn report_mixture(
        &mut self,
        behind: Option<&MissingEnd>,
        report: &VerifyReport,
        foreign: &[(u64, Gap)],
    ) {
        if self.log.run().files().is_empty() {
            return;
        }
        if let Some(known) = behind {
            let line = format!(
                "queues and index know {} messages from physical offset {} up to {}, and the log has none \
                 there: it was copied before them, or the copy is not finished, or the machine stopped",
                known.messages(),
                known.from,
                known.reach
            );
            self.state(Code::DocCopy).add(Severity::Warning, line);
        }
        let (wrong, all) = (wrong_entries(report), report.counts.queue_entries);
        let mut lines = Vec::new();
        lines.extend(foreign.iter().map(|(entries, gap)| {
            format!(
                "the file of the log {} is another log's: none of the {entries} queue entries that lead \
                 into it leads to its message, and numbers of queues jump at its edges",
                offset_name(gap.from)
            )
        }));
        if wrong >= LEAST_WRONG && wrong > all / 2 {
            lines.push(format!("{wrong} of {all} queue entries lead to no message of their queue"));
        }
        // A log of its own ends in a file, and an older one goes on behind it.
        let size = self.log.run().file_size().max(1);
        lines.extend(self.facts.gaps.iter().filter_map(|gap| {
            let (newer, older) = gap.after_ms.zip(gap.before_ms)?;
            (gap.to.is_multiple_of(size) && older < newer).then(|| {
                format!(
                    "the log ends at {} with {}, and goes on in the next file with {}",
                    gap.from,
                    utc_text(newer),
                    utc_text(older)
                )
            })
        }));
        for line in lines {
            self.state(Code::DocTwoBrokers).report(line);
        }
    }

    pub(super) fn report_not_writable(&mut self) -> Vec<String> {
        let mut obstacles = Vec::new();
        for path in broker::not_writable(self.paths) {
            let cure = broker::owner_command(&path, self.paths);
            let obstacle = broker::obstacle(&path, self.paths, Access::ReadWrite);
            let state = self.state(Code::NotWritable);
            state.add_cure(cure);
            state.report(obstacle.clone());
            obstacles.push(obstacle);
        }
        obstacles
    }

    pub(super) fn report_quarantine(&mut self, config: &StoreConfig) -> Result<()> {
        for dir in verdict::quarantined(self.paths)? {
            let (from, to) = (Arc::clone(&self.paths.storage), Arc::clone(&self.paths.storage));
            let found = salvage(from, &dir, None, config.clone(), to, &mut unwatched);
            if let Some(found) = found.ok().filter(|found| found.messages > 0) {
                let line = format!("{}: {} whole messages", dir.display(), found.messages);
                self.state(Code::DocQuarantine).report(line);
            }
        }
        Ok(())
    }

    pub(super) fn queues_in_database(&self) -> Result<Option<String>> {
        let has_files =
            self.paths.storage.list(&self.paths.consume_queue()).is_ok_and(|d| !d.is_empty());
        if has_files || self.facts.topics.is_empty() {
            return Ok(None);
        }
        let found = inventory::inventory(self.paths.storage(), self.paths.root())?;
        let of_queues = |found: &&inventory::FoundStructure| {
            found.structure == Structure::RocksDb && found.path.starts_with(paths::CONSUME_QUEUE)
        };
        Ok(found.iter().find(of_queues).map(|found| found.path.clone()))
    }

    pub(super) fn backup_put_back(&self, path: &Path) -> Option<String> {
        let file = self.paths.root().join(path);
        let backup = file.with_extension("json.bak");
        Some(format!("cp -p --backup=numbered {} {}", quoted(backup)?, quoted(file)?))
    }

    pub(super) fn otherwise(&self, code: Code, topic: Option<&str>) -> Option<String> {
        match code {
            Code::ConfigTopic => {
                let from = self.paths.consume_queue().join(topic?);
                let name = format!("deleted-{}", topic?);
                let (storage, root) = (self.paths.storage(), self.paths.root());
                let to = misplaced::free(storage, root, &name, |_| false);
                let is_there = matches!(self.paths.storage.kind(&from), Ok(Some(_)));
                let put_away = verdict::moved(&from, &to).filter(|_| is_there)?;
                Some(format!(
                    "; if it is in use, the cure enters it; if it was deleted: `{put_away}`"
                ))
            }
            Code::OffsetsGone => {
                let latest = "mqstore groups STORE --reset-to latest --apply";
                let skip = cure::fill(latest, self.paths.root(), &Words::default())?;
                Some(format!(
                    "; the cure brings all messages again; if none may come again: `{skip}`"
                ))
            }
            _ => None,
        }
    }

    pub(super) fn report_unmounted(&mut self, cause: &Cause) -> bool {
        let dirs = self.paths.commit_log();
        if dirs.len() == 1 || !matches!(cause, Cause::BrokenRun | Cause::EndMissing(_)) {
            return false;
        }
        let mut found = false;
        for dir in dirs {
            if self.paths.storage.list(dir).map_or(true, |entries| entries.is_empty()) {
                let line = format!("{}: no file; is its disk mounted?", dir.display());
                let code = self.diagnoses.keys().copied().find(|code| cause.names(*code));
                self.state(code.unwrap_or(Code::LogEmpty)).found.evidence.insert(0, line);
                found = true;
            }
        }
        found
    }

    /// A writer would give such topics plain queues.
    pub(super) fn report_batches(&mut self, queues: Option<&QueueTable>) {
        let Some(queues) = queues else { return };
        for topic in &self.facts.batch_topics {
            let is_known = queues.is_entered(topic) || queues.kind_of(topic) == QueueKind::Batch;
            if !is_known {
                let line = format!(
                    "{} has batches, and neither a table nor a folder of queues says so",
                    String::from_utf8_lossy(topic)
                );
                self.state(Code::ConfigTopicsGone).report(line);
            }
        }
    }

    pub(super) fn deleted_topics(&self) -> Result<BTreeSet<String>> {
        let Ok(Some(bytes)) = config_file::read_json(self.paths.storage(), &self.paths.topics())
        else {
            return Ok(BTreeSet::new());
        };
        let Ok(table) = TopicTable::parse(&bytes) else { return Ok(BTreeSet::new()) };
        let mut deleted = BTreeSet::new();
        for topic in self.facts.topics.keys() {
            let Ok(name) = std::str::from_utf8(topic) else { continue };
            if is_deleted(self.paths, &table, topic) {
                deleted.insert(name.to_owned());
            }
        }
        Ok(deleted)
    }

    pub(super) fn report_deleted(&mut self, deleted: &BTreeSet<String>) {
        if deleted.is_empty() {
            return;
        }
        for name in deleted {
            let count = self.facts.topics.get(name.as_bytes()).copied().unwrap_or(0);
            let evidence =
                format!("{count} messages of {name}, which config/topics.json does not have");
            self.state(Code::DocTopicDeleted).report(evidence);
        }
        let others = self.facts.topics.keys().filter_map(|topic| std::str::from_utf8(topic).ok());
        let others: BTreeSet<String> =
            others.filter(|topic| !deleted.contains(*topic)).map(str::to_owned).collect();
        self.state(Code::DocTopicDeleted).topics = others;
    }
}
