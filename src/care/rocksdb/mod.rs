//! Rows in RocksDB: those of queues against the log, as a third source of queues for `verify` and
//! `doctor`, and counts of all. The caller reads the databases.

mod log_queues;
mod queue_files;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use self::log_queues::LogQueues;
pub use self::queue_files::write_files;
use super::finding::{Code, Finding, Graded, Severity};
use crate::config::StoreConfig;
use crate::error::{Corruption, Error, Result};
use crate::files::{Access, FileKind, Storage};
use crate::format::queue::consume_queue::QueueEntry;
use crate::format::rocksdb::{self, CHECKPOINT_TOPIC, OFFSETS, OffsetRow, QueueRow, ROWS};
use crate::log::CqUnit;
use crate::store::folder::inventory;
use crate::store::folder::paths::StorePaths;

/// Topic and number of a queue.
pub type Name = (Box<[u8]>, i32);

/// Takes a row: column family, key, value.
pub type TakeRow<'a> = dyn FnMut(&str, &[u8], &[u8]) -> Result<()> + 'a;

/// Reads databases; the crate itself has no RocksDB.
pub trait Databases: Sync {
    fn is_installed(&self) -> bool;
    /// Whether the broker's settings ask for queues in RocksDB.
    fn is_wanted(&self) -> bool;
    /// A new folder outside of the store, which goes with this.
    fn scratch(&self) -> Result<PathBuf>;
    /// Passes the rows of column families to `take`: family, key, value.
    fn rows(&self, database: &Path, families: &[&str], take: &mut TakeRow<'_>) -> Result<()>;
}

/// Databases that may have a store's queues, below its root.
pub const QUEUES: [&str; 2] = ["consumequeue", "consumequeue_rocksdb"];
const INDEX: &str = "rocksdbstore";
const OF_QUEUES: &[(&str, &str)] = &[("queue entries", ROWS), ("bounds of queues", OFFSETS)];
/// Databases, and their column families by the rows in them.
const FAMILIES: &[(&str, &[(&str, &str)])] = &[
    (QUEUES[0], OF_QUEUES),
    (QUEUES[1], OF_QUEUES),
    (INDEX, &[("index entries", ROWS), ("timers", "timer"), ("open transactions", "trans")]),
    ("config/topics", &[("topics", ROWS)]),
    ("config/subscriptionGroups", &[("groups", ROWS)]),
    ("config/consumerOffsets", &[("offsets", ROWS)]),
    (
        "config/metadata",
        &[("topics", "topic"), ("groups", "subscriptionGroup"), ("offsets", "consumerOffset")],
    ),
    ("config/rdb", &[("rows", ROWS)]),
    ("kvStore", &[("rows", "popState")]),
];
/// Rows that are no index entry, timer or transaction but a place in the log or a time.
const PLACES: [&[u8]; 4] = [
    rocksdb::INDEX_PLACE,
    rocksdb::INDEX_TIME,
    b"timeline_checkpoint",
    b"sys_topic_scan_offset_checkpoint",
];
const MOST_LISTED: u64 = 100;
const MOST_TEXT: usize = 300;

/// Whether the folder of a store had a database of a broker, perhaps a damaged one.
pub fn had_databases(storage: &dyn Storage, root: &Path) -> Result<bool> {
    for (name, _) in FAMILIES.iter().filter(|(name, _)| *name != "kvStore") {
        if inventory::is_database(storage, &root.join(name))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The database with a store's queues; `None` if they are in files only.
#[must_use]
pub fn database_of(paths: &StorePaths) -> Option<PathBuf> {
    let mut dirs = QUEUES.iter().map(|name| paths.root().join(name));
    dirs.find(|dir| is_database(paths.storage(), dir))
}

fn is_database(storage: &dyn Storage, dir: &Path) -> bool {
    matches!(storage.kind(&dir.join("CURRENT")), Ok(Some(FileKind::File)))
}

/// Whether a database may have rows on disk.
pub fn has_rows(storage: &dyn Storage, dir: &Path) -> Result<bool> {
    for file in storage.list(dir).map_err(Error::io("list", dir))? {
        let name = file.name.as_encoded_bytes();
        if file.kind != FileKind::File {
            continue;
        }
        let path = dir.join(&file.name);
        if name.ends_with(b".sst") {
            return Ok(true);
        }
        if name.ends_with(b".log")
            && let Some(log) = storage.open_if_there(&path, Access::Read)?
            && log.length().map_err(Error::io("stat", &path))? > 0
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Findings of one check: all are counted, the first of each code are listed.
#[derive(Debug, Default)]
pub struct DatabaseReport {
    pub findings: Vec<Finding>,
    pub found: BTreeMap<Code, u64>,
    pub rows: u64,
    root: PathBuf,
}

impl DatabaseReport {
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), ..Self::default() }
    }

    fn add(&mut self, code: impl Into<Graded>, path: &Path, expected: &str, found: &str) {
        let Graded(code, severity) = code.into();
        let count = self.found.entry(code).or_default();
        *count += 1;
        if *count <= MOST_LISTED {
            // A hostile name has any length.
            let [expected, found] =
                [expected, found].map(|text| text.chars().take(MOST_TEXT).collect());
            let path = path.strip_prefix(&self.root).unwrap_or(path).to_owned();
            let (offset, first_missing) = (None, None);
            let found = Finding { path, offset, code, severity, expected, found, first_missing };
            self.findings.push(found);
        }
    }

    /// Compares the queues in a database with those of the log.
    pub fn compare(
        &mut self,
        queues: &LogQueues,
        database: &Path,
        databases: &dyn Databases,
    ) -> Result<()> {
        let counted = queues.check(database, databases, self);
        self.count(database, counted)
    }

    /// Adds the rows of a database, or what kept it from being read; damage in the log has findings
    /// of its own.
    fn count(&mut self, database: &Path, counted: Result<u64>) -> Result<()> {
        let error = match counted {
            Ok(rows) => {
                self.rows += rows;
                return Ok(());
            }
            Err(error) => error,
        };
        let text = error.to_string();
        let (path, expected, found) = match error {
            Error::Corrupt(corruption) => {
                let Corruption { path, expected, found, .. } = *corruption;
                (path, expected, found)
            }
            Error::Unsupported { path, .. } => (Some(path), "rows".to_owned(), text),
            error => return Err(error),
        };
        let path = path.unwrap_or_else(|| database.to_owned());
        if path.starts_with(database) {
            // A broker starts without this one, and not without the others.
            let is_spare = database.ends_with(INDEX);
            let severity = if is_spare { Severity::Warning } else { Severity::Error };
            self.add(Code::RocksUnreadable.at(severity), &path, &expected, &found);
        }
        Ok(())
    }
}

/// Checks the databases of a store.
pub fn check(
    paths: &StorePaths,
    config: &StoreConfig,
    is_full: bool,
    databases: &dyn Databases,
) -> Result<DatabaseReport> {
    let (storage, root) = (paths.storage(), paths.root());
    let mut report = DatabaseReport::new(root);
    let was_database = |name: &&str| inventory::is_database(storage, &root.join(name));
    let mut queues = None;
    for name in QUEUES.iter().rev() {
        queues = if was_database(name)? { Some(*name) } else { queues };
    }
    if queues.is_none() && databases.is_wanted() && is_full {
        report_missing(&mut report, paths, config, databases)?;
    }
    for (name, families) in FAMILIES {
        let dir = root.join(name);
        // Without tables, only RocksDB knows whether there should be any; this one rarely has.
        if !was_database(name)? || (*name == INDEX && !has_rows(storage, &dir)?) {
            continue;
        }
        if !databases.is_installed() {
            report.add(Code::RocksUnknown, &dir, "the package rocksdict", "none");
            continue;
        }
        let counted = match queues == Some(name) {
            true if is_full => check_queues(&mut report, paths, &dir, config, databases),
            true => ends_of(databases, &dir).map(|ends| ends.last.len() as u64),
            false => count(storage, databases, &dir, families)
                .map(|counts| counts.iter().map(|(_, count)| count).sum()),
        };
        report.count(&dir, counted)?;
    }
    Ok(report)
}

fn check_queues(
    report: &mut DatabaseReport,
    paths: &StorePaths,
    database: &Path,
    config: &StoreConfig,
    databases: &dyn Databases,
) -> Result<u64> {
    let ends = ends_of(databases, database)?;
    let has_lights = ends.last.keys().any(|(topic, _)| topic.starts_with(b"%LMQ%"));
    let queues = LogQueues::make(paths, config, databases, has_lights)?;
    queues.check(database, databases, report)
}

fn report_missing(
    report: &mut DatabaseReport,
    paths: &StorePaths,
    config: &StoreConfig,
    databases: &dyn Databases,
) -> Result<()> {
    let database = paths.root().join(QUEUES[0]);
    match LogQueues::make(paths, config, databases, false) {
        Ok(queues) => {
            for ((topic, id), (first, end)) in &queues.bounds {
                let expected =
                    format!("{} rows of queue {id} of {}, by storeType", end - first, shown(topic));
                report.add(Code::RocksMissing, &database, &expected, "no database");
            }
        }
        // An error that keeps the log from being read is to be cured first.
        Err(error) => {
            let is_of_log = match &error {
                Error::Io { path, .. } => path.starts_with(paths.root()),
                Error::InvalidConfig { .. } | Error::Corrupt(_) | Error::Unsupported { .. } => true,
                _ => false,
            };
            if !is_of_log {
                return Err(error);
            }
            let (code, found) = (Code::RocksMissing.at(Severity::Info), "no database; its rows");
            let found = format!("{found} are not known: {error}");
            report.add(code, &database, "rows, by storeType", &found);
        }
    }
    Ok(())
}

/// Number of rows in each database of a store, by their kind.
pub type Counts = Vec<(&'static str, Vec<(&'static str, u64)>)>;

/// Counts the rows of each database of a store.
pub fn counts(storage: &dyn Storage, root: &Path, databases: &dyn Databases) -> Result<Counts> {
    let there = FAMILIES.iter().filter(|(name, _)| is_database(storage, &root.join(name)));
    there
        .map(|(name, families)| Ok((*name, count(storage, databases, &root.join(name), families)?)))
        .collect()
}

fn count(
    storage: &dyn Storage,
    databases: &dyn Databases,
    database: &Path,
    families: &[(&'static str, &'static str)],
) -> Result<Vec<(&'static str, u64)>> {
    let mut counts: Vec<_> = families.iter().map(|(what, _)| (*what, 0)).collect();
    if has_rows(storage, database)? {
        let names: Vec<_> = families.iter().map(|(_, family)| *family).collect();
        databases.rows(database, &names, &mut |family, key, _| {
            let at = names.iter().position(|name| *name == family);
            if let Some((_, count)) = at.and_then(|at| counts.get_mut(at)) {
                *count += u64::from(!PLACES.contains(&key));
            }
            Ok(())
        })?;
    }
    Ok(counts)
}

/// Bounds of the queues in a database.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// Last entry of each queue, of which only the place is known.
    pub last: BTreeMap<Name, CqUnit>,
    /// End of the last message with a row.
    pub checkpoint: i64,
}

impl Ends {
    /// Adds those in a database, up to its first damage.
    pub fn read(&mut self, databases: &dyn Databases, database: &Path) -> Result<()> {
        databases.rows(database, &[OFFSETS], &mut |_, key, value| {
            let row = OffsetRow::decode(key, value).map_err(|error| error.in_file(database, 0))?;
            if row.topic == CHECKPOINT_TOPIC {
                self.checkpoint = row.physical_offset;
            } else if row.is_max {
                let OffsetRow { physical_offset, queue_offset, .. } = row;
                let entry = QueueEntry { physical_offset, ..QueueEntry::default() };
                let name = (row.topic.into(), row.queue_id);
                self.last.insert(name, CqUnit::plain(queue_offset, entry));
            }
            Ok(())
        })
    }
}

/// Reads the bounds of the queues.
pub fn ends_of(databases: &dyn Databases, database: &Path) -> Result<Ends> {
    let mut ends = Ends::default();
    ends.read(databases, database)?;
    Ok(ends)
}

/// Passes the rows of the queues to `take`. Those behind a queue's end, which a truncation leaves,
/// are skipped.
pub fn each_row(
    databases: &dyn Databases,
    database: &Path,
    ends: &Ends,
    mut take: impl FnMut(&Name, CqUnit) -> Result<()>,
) -> Result<()> {
    let mut queue: Option<(Name, i64)> = None;
    databases.rows(database, &[ROWS], &mut |_, key, value| {
        let row = QueueRow::decode(key, value).map_err(|error| error.in_file(database, 0))?;
        let known =
            queue.take().filter(|((topic, id), _)| (&**topic, *id) == (row.topic, row.queue_id));
        let (name, last) = queue.insert(known.unwrap_or_else(|| {
            let name = (row.topic.into(), row.queue_id);
            let last = ends.last.get(&name).map_or(-1, |end| end.number);
            (name, last)
        }));
        if row.queue_offset > *last {
            return Ok(());
        }
        let unit = CqUnit::plain(row.queue_offset, row.entry);
        take(name, CqUnit { store_timestamp_ms: row.store_timestamp_ms, ..unit })
    })
}

fn shown(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\udc{byte:02x}")));
    }
    text
}
