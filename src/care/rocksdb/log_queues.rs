//! Queues made from the log in a folder of their own, and rows that are compared with them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DatabaseReport, Databases, Name, database_of, each_row, ends_of, shown, write_files};
use crate::care::finding::{Code, Severity};
use crate::care::rebuild::{RebuildOptions, Target, What, rebuild_on};
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::{Storage, SystemClock};
use crate::format::message::peek::store_timestamp_ms;
use crate::format::queue::names_a_folder;
use crate::format::width::{clamp_u64, saturating_i64, to_usize};
use crate::log::{CommitLog, CqUnit, Queue, QueueKind};
use crate::store::folder::paths::{CONSUME_QUEUE, StorePaths};
use crate::store::progress::unwatched;
use crate::store::queue_table::ASIDE_FILE;
use crate::store::read::scan::places;

const BLOCK: usize = 1024;

/// Queues of a store as its log has them.
#[derive(Debug)]
pub struct LogQueues {
    /// First number and end of each plain queue.
    pub bounds: BTreeMap<Name, (i64, i64)>,
    /// Topics with queues of batches.
    pub batches: BTreeSet<Box<[u8]>>,
    /// Begin and end of the log.
    pub span: Range<i64>,
    storage: Arc<dyn Storage>,
    pub(crate) dir: PathBuf,
    log: CommitLog,
}

impl LogQueues {
    /// Makes the queues of a store; light ones too if `has_lights`.
    pub fn make(
        paths: &StorePaths,
        config: &StoreConfig,
        databases: &dyn Databases,
        has_lights: bool,
    ) -> Result<Self> {
        let dir = databases.scratch()?;
        let mut config = config.clone();
        config.given.remove(StoreConfig::BROKER_CONF);
        // Rows have the tags' code itself, no place in an extension.
        config.set("enable_consume_queue_ext", "false")?;
        if has_lights {
            config.set("enable_lmq", "true")?;
            config.set("enable_multi_dispatch", "true")?;
        }
        let options = RebuildOptions {
            what: What { queues: true, index: false },
            topics: None,
            target: Target::Folder(dir.clone()),
            threads: None,
            aside: rows_aside(paths, databases)?,
        };
        let (storage, clock) = (Arc::clone(&paths.storage), Arc::new(SystemClock));
        let (root, own) = (paths.root(), config.clone());
        let report = rebuild_on(Arc::clone(&storage), clock, root, own, &options, &mut unwatched)?;
        let (plain, batches): (Vec<_>, Vec<_>) =
            report.queues.into_iter().partition(|queue| queue.kind == QueueKind::Plain);
        let bounds = plain
            .into_iter()
            .map(|queue| ((queue.topic, queue.queue_id), (queue.min_offset, queue.max_offset)));
        Ok(Self {
            bounds: bounds.collect(),
            batches: batches.into_iter().map(|queue| queue.topic).collect(),
            span: saturating_i64(report.log_start)..saturating_i64(report.log_end),
            log: places::open_log(&storage, root, &config, report.log_end)?,
            storage,
            dir: dir.join(CONSUME_QUEUE),
        })
    }

    /// Entries of a queue, in blocks.
    pub fn entries(&self, name: &Name) -> Result<Entries> {
        let numbers = self.bounds.get(name).map_or(0..0, |(first, end)| *first..*end);
        let topic = std::str::from_utf8(&name.0).unwrap_or_default();
        let dir = self.dir.join(topic).join(name.1.to_string());
        let queue = match numbers.is_empty() {
            true => None,
            false => Some(Queue::open_folder(Arc::clone(&self.storage), &dir, None)?),
        };
        Ok(Entries { queue, numbers, block: Vec::new() })
    }

    /// Store time of the message at a place in the log.
    pub fn store_time_ms(&self, physical_offset: i64) -> Result<i64> {
        let record = self.log.get(physical_offset, self.log.end_offset())?;
        let time_ms = store_timestamp_ms(&record, clamp_u64(physical_offset));
        time_ms.ok_or_else(|| Error::MessageNotFound {
            what: format!("no message begins at physical offset {physical_offset}"),
        })
    }

    /// Compares each row of the queues in a database with the log; returns the number of rows.
    pub fn check(
        &self,
        database: &Path,
        databases: &dyn Databases,
        report: &mut DatabaseReport,
    ) -> Result<u64> {
        let ends = ends_of(databases, database)?;
        let (wrong, missing) = (Code::RocksRow, Code::RocksMissing);
        let Range { start: log_start, end: log_end } = self.span;
        let checkpoint = ends.checkpoint;
        if checkpoint > log_end {
            let expected = format!("a message that ends at physical offset {checkpoint}");
            let found = format!("the log's end {log_end}");
            report.add(wrong.at(Severity::Warning), database, &expected, &found);
        }
        let (mut total, mut reach) = (0, 0);
        let mut checked: BTreeMap<Name, u64> = BTreeMap::new();
        let mut current: Option<(Name, Entries)> = None;
        each_row(databases, database, &ends, |name, row| {
            total += 1;
            if current.as_ref().is_none_or(|(known, _)| known != name) {
                current = Some((name.clone(), self.entries(name)?));
            }
            if row.physical_offset < log_start || self.batches.contains(&name.0) {
                return Ok(());
            }
            reach = reach.max(row.physical_end());
            let Some((_, entries)) = &mut current else { return Ok(()) };
            match self.difference(name, &row, entries)? {
                None => *checked.entry(name.clone()).or_default() += 1,
                Some((expected, found)) => {
                    report.add(wrong, database, &expected, &found);
                }
            }
            Ok(())
        })?;
        for (name, last) in &ends.last {
            let entry = self.entries(name)?.at(last.number)?;
            let end = self.bounds.get(name).map_or(i64::MAX, |(_, end)| *end);
            let leads = entry.is_some_and(|entry| entry.physical_offset == last.physical_offset);
            let place = last.physical_offset;
            let is_inside = (log_start..log_end).contains(&place);
            if (is_inside && !leads) || (place < log_start && last.number >= end) {
                let (topic, id) = (shown(&name.0), name.1);
                let expected =
                    format!("a greatest offset of queue {id} of {topic} that leads to its message");
                let found = last.number.to_string();
                report.add(wrong, database, &expected, &found);
            }
        }
        if reach > checkpoint {
            let expected =
                format!("CHECKPOINT_TOPIC at the end of the last row's message, {reach}");
            report.add(wrong, database, &expected, &checkpoint.to_string());
        }
        let mut tail = 0;
        for name in self.bounds.keys() {
            let mut known = 0;
            let mut entries = self.entries(name)?;
            for number in entries.numbers.clone() {
                let Some(entry) = entries.at(number)? else { break };
                // A number that no message has needs no row.
                let leads = u64::from(entry.leads());
                let is_behind = entry.physical_offset >= checkpoint;
                *(if is_behind { &mut tail } else { &mut known }) += leads;
            }
            let held = checked.get(name).copied().unwrap_or(0);
            if held < known {
                let expected = format!("{known} rows of queue {} of {}", name.1, shown(&name.0));
                report.add(missing, database, &expected, &held.to_string());
            }
        }
        if tail > 0 {
            let expected = format!("rows up to physical offset {log_end}");
            let found = format!("rows up to {checkpoint}, {tail} less");
            report.add(Code::RocksTail, database, &expected, &found);
        }
        Ok(total)
    }

    fn difference(
        &self,
        name: &Name,
        row: &CqUnit,
        entries: &mut Entries,
    ) -> Result<Option<(String, String)>> {
        let place = format!("queue {} of {} at {}", name.1, shown(&name.0), row.number);
        let Some(entry) = entries.at(row.number)? else {
            let found = format!("a row to physical offset {}", row.physical_offset);
            return Ok(Some((format!("a message of {place}"), found)));
        };
        let text = |of: &CqUnit| {
            let CqUnit { physical_offset, store_size, tags_code, .. } = of;
            format!("physical offset {physical_offset}, {store_size} bytes, tags {tags_code}")
        };
        if entry.entry() != row.entry() {
            return Ok(Some((format!("{place}: {}", text(&entry)), text(row))));
        }
        let (time_ms, found) = (self.store_time_ms(row.physical_offset)?, row.store_timestamp_ms);
        let differs = time_ms != found;
        let texts = || (format!("{place}: store time {time_ms}"), format!("store time {found}"));
        Ok(differs.then(texts))
    }
}

/// Rows as files: they settle places as old entries do.
fn rows_aside(paths: &StorePaths, databases: &dyn Databases) -> Result<Option<PathBuf>> {
    let Some(database) = database_of(paths) else { return Ok(None) };
    let aside = databases.scratch()?;
    let write = || {
        let mut ends = ends_of(databases, &database)?;
        ends.last.retain(|(topic, id), _| *id >= 0 && names_a_folder(topic));
        let (storage, dir) = (paths.storage(), aside.join(CONSUME_QUEUE));
        write_files(storage, databases, &database, &dir, ASIDE_FILE, &ends, true)
    };
    match write() {
        Ok(_) => Ok(Some(aside)),
        Err(Error::Corrupt(_) | Error::Unsupported { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Entries of one queue, read in blocks.
#[derive(Debug)]
pub struct Entries {
    queue: Option<Queue>,
    numbers: Range<i64>,
    block: Vec<CqUnit>,
}

impl Entries {
    /// The entry of a number; `None` if the log has none.
    pub fn at(&mut self, number: i64) -> Result<Option<CqUnit>> {
        let Some(queue) = self.queue.as_ref().filter(|_| self.numbers.contains(&number)) else {
            return Ok(None);
        };
        let holds = |block: &[CqUnit]| {
            let first = block.first()?.number;
            block.get(to_usize(clamp_u64(number - first))).copied()
        };
        let before = self.block.first().is_some_and(|first| number < first.number);
        if before || holds(&self.block).is_none() {
            self.block = queue.units(number, BLOCK)?;
        }
        Ok(holds(&self.block).filter(|unit| unit.number == number))
    }
}
