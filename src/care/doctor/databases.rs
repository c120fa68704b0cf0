//! Diagnoses of queues in RocksDB, and the commands of a report with the caller's configuration.

use std::path::Path;

use super::losses::LostInQueue;
use super::{Diagnosis, DoctorReport};
use crate::care::finding::{Code, Severity};
use crate::care::rocksdb::{self, Databases};
use crate::config::StoreConfig;
use crate::error::{Error, Result, quoted};
use crate::format::width::{clamp_u64, saturating_i64};
use crate::log::{CommitLog, CqUnit};
use crate::store::folder::found;
use crate::store::folder::paths::StorePaths;

const MOST_QUEUES: usize = 5;
const ASKS_CONFIG: &str = " --config broker.conf";
/// A broker with queues in RocksDB does not read those in files.
const OF_FILES: &str = " --what consumequeue ";

/// Adds what the databases of a store show, and `option`, which names the configuration, to the
/// commands.
pub fn with_databases(
    mut report: DoctorReport,
    paths: &StorePaths,
    config: &StoreConfig,
    databases: Option<&dyn Databases>,
    option: &str,
) -> Result<DoctorReport> {
    let DoctorReport { diagnoses: found, verdict } = &mut report;
    for diagnosis in &mut *found {
        diagnosis.cure = diagnosis.cure.take().and_then(|cure| configured(cure, option));
    }
    for commands in [&mut verdict.commands, &mut verdict.last_resort] {
        let all = std::mem::take(commands).into_iter();
        commands.extend(all.filter_map(|command| configured(command, option)));
    }
    let Some(databases) = databases else { return Ok(report) };
    let is_of_files = |command: &String| command.contains(OF_FILES);
    if !rocksdb::had_databases(paths.storage(), paths.root())? {
        verdict.commands.retain(|command| !is_of_files(command));
        for diagnosis in &mut *found {
            diagnosis.cure = diagnosis.cure.take().filter(|cure| !is_of_files(cure));
        }
    }
    let mut more = diagnoses(paths, config, databases, option)?;
    let is_error = |found: &Diagnosis| found.severity == Severity::Error;
    if verdict.lost.messages == 0 && !verdict.in_use {
        let is_damaged = found.iter().chain(&more).any(is_error);
        let (lost, is_end) = lost_rows(paths, config, databases, is_damaged)?;
        if !lost.is_empty() {
            verdict.lost.messages = lost.iter().map(|queue| queue.messages).sum();
            if is_end {
                // Rows made again from the log would hide what is missing.
                found.iter_mut().chain(&mut more).for_each(|found| found.cure = None);
                verdict.commands.clear();
                more.push(end_missing(&lost, verdict.lost.messages));
            }
            verdict.lost.queues = lost;
        }
    }
    for diagnosis in &more {
        if diagnosis.code == Code::RocksUnreadable && is_error(diagnosis) {
            verdict.next_start.obstacles.extend(diagnosis.evidence.iter().cloned());
        }
        if let Some(cure) = diagnosis.cure.as_ref().filter(|_| !verdict.in_use)
            && !verdict.commands.iter().any(|command| command.ends_with(cure))
        {
            verdict.commands.push(cure.clone());
        }
    }
    found.extend(more);
    Ok(report)
}

/// A command with the caller's configuration; `None` if it needs one and has none.
fn configured(command: String, option: &str) -> Option<String> {
    let last = command.rsplit(" && ").next().unwrap_or_default();
    if !last.starts_with("mqstore ") {
        return Some(command);
    }
    match command.strip_suffix(ASKS_CONFIG) {
        Some(_) if option.is_empty() => None,
        Some(rest) => Some(format!("{rest}{option}")),
        None => Some(command + option),
    }
}

fn diagnoses(
    paths: &StorePaths,
    config: &StoreConfig,
    databases: &dyn Databases,
    option: &str,
) -> Result<Vec<Diagnosis>> {
    let cure = quoted(paths.root())
        .map(|name| format!("mqstore convert {name} --queues rocksdb --apply{option}"));
    let mut diagnoses: Vec<Diagnosis> = Vec::new();
    for found in rocksdb::check(paths, config, true, databases)?.findings {
        if found.severity == Severity::Info {
            continue;
        }
        let (code, severity, path) = (found.code, found.severity, found.path.display());
        let line = format!("{path}: expected {}, found {}", found.expected, found.found);
        let is_queues = found.path.as_os_str().as_encoded_bytes().starts_with(b"consumequeue");
        let cure = cure.clone().filter(|_| is_queues);
        match diagnoses.iter_mut().find(|known| known.code == code) {
            Some(known) => {
                known.evidence.push(line);
                (known.severity, known.cure) = (severity, cure);
            }
            None => {
                let new = Diagnosis::new(code, severity, vec![line]);
                diagnoses.push(Diagnosis { cure, ..new });
            }
        }
    }
    Ok(diagnoses)
}

/// Counts the rows that lead to no whole message; whether all of them lie behind the others.
fn lost_rows(
    paths: &StorePaths,
    config: &StoreConfig,
    databases: &dyn Databases,
    is_damaged: bool,
) -> Result<(Vec<LostInQueue>, bool)> {
    let none = (Vec::new(), false);
    let Some(database) = rocksdb::database_of(paths) else { return Ok(none) };
    if !databases.is_installed() || !rocksdb::has_rows(paths.storage(), &database)? {
        return Ok(none);
    }
    let log = found::open_log(paths, config)?;
    match count(databases, &database, &log, is_damaged) {
        // The check of the database reports it.
        Err(Error::Corrupt(_) | Error::Unsupported { .. }) => Ok(none),
        counted => counted,
    }
}

fn count(
    databases: &dyn Databases,
    database: &Path,
    log: &CommitLog,
    is_damaged: bool,
) -> Result<(Vec<LostInQueue>, bool)> {
    let ends = rocksdb::ends_of(databases, database)?;
    if !is_damaged && clamp_u64(ends.checkpoint) <= log.end_offset() {
        return Ok((Vec::new(), false));
    }
    let mut lost: Vec<LostInQueue> = Vec::new();
    let (mut first_lost, mut last_whole) = (i64::MAX, -1);
    rocksdb::each_row(databases, database, &ends, |(topic, queue_id), row| {
        let at = row.physical_offset;
        if at < saturating_i64(log.min_offset()) {
            return Ok(());
        }
        if is_whole(log, &row) {
            last_whole = last_whole.max(at);
            return Ok(());
        }
        first_lost = first_lost.min(at);
        let topic = String::from_utf8_lossy(topic);
        match lost.last_mut() {
            Some(last) if (&*last.topic, last.queue_id) == (&*topic, *queue_id) => {
                (last.messages, last.last) = (last.messages + 1, row.number);
            }
            _ => lost.push(LostInQueue {
                topic: topic.into_owned(),
                queue_id: *queue_id,
                messages: 1,
                first: row.number,
                last: row.number,
            }),
        }
        Ok(())
    })?;
    lost.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
    let is_end = !lost.is_empty() && first_lost > last_whole;
    Ok((lost, is_end))
}

fn is_whole(log: &CommitLog, row: &CqUnit) -> bool {
    let record = log.get(row.physical_offset, log.end_offset());
    record.is_ok_and(|record| i32::try_from(record.len()) == Ok(row.store_size))
}

/// The diagnosis of a log without its end, by the rows of the queues.
fn end_missing(lost: &[LostInQueue], messages: u64) -> Diagnosis {
    let known = format!("queues in RocksDB know {messages} messages beyond it");
    let mut evidence = vec![format!("missing: the log's end; {known}")];
    evidence.extend(lost.iter().take(MOST_QUEUES).map(|queue| {
        let LostInQueue { topic, queue_id, first, last, .. } = queue;
        format!("queue {queue_id} of {topic}: {first} to {last}")
    }));
    if lost.len() > MOST_QUEUES {
        evidence.push(format!("and {} more queues", lost.len() - MOST_QUEUES));
    }
    Diagnosis::new(Code::DocEndMissing, Severity::Error, evidence)
}
