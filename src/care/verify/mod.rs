//! Detects damage: every record, queue entry, index entry, the checkpoint, lengths and names of
//! files, the broker's tables.
//!
//! Nothing is written or locked. First queues and index are read by themselves. Then threads walk
//! the log and match each message with its entries. So beside a running broker every known entry
//! has its message; newer messages count as not dispatched yet.

mod context;
mod file_parts;
pub mod index;
mod log_walk;
mod oddities;
pub mod queues;
mod tables;
mod timers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use self::context::{Context, State, Walked};
use self::index::Index;
use self::index::index_check::Reach;
use self::log_walk::{FileWalk, Listed};
use self::queues::{Queue, Queues};
use self::tables::Tables;
pub(crate) use self::tables::topic_with_queues;
use super::broker::{self, WrongSize};
use super::finding::{Code, Finding, Findings, Severity};
use super::meter::{Meter, both, thread_count, watched};
use super::rocksdb::{self, Databases};
use crate::config::StoreConfig;
use crate::error::{Corruption, Result, named};
use crate::files::threads::each;
use crate::files::{Access, FileKind, FileRun, Os, Resting, Storage, SystemClock};
use crate::format::checkpoint::CheckpointFields;
use crate::store::folder::lock::{self, StoreLock};
use crate::store::folder::mark::Flushed;
use crate::store::folder::paths::StorePaths;
use crate::store::folder::{found, inventory};
use crate::store::open::{inspect, version};
use crate::store::progress::{Progress, interrupted};
use crate::time::{Clock, FAR_MS};

named! {
    /// Depth of a check.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Level {
        /// Frames, lengths, names and headers.
        Quick = "quick",
        /// Everything: checksums, and structures against each other.
        Full = "full",
    }
}

/// Options of [`verify`].
#[derive(Clone, Copy, Debug)]
pub struct VerifyOptions {
    /// Depth.
    pub level: Level,
    /// Threads; `None` means one for each processor.
    pub threads: Option<usize>,
    /// Findings listed; all are counted.
    pub most_findings: usize,
    /// Approximate bytes of a log file walked at a time; does not change the result.
    pub part_bytes: u64,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { level: Level::Full, threads: None, most_findings: 10_000, part_bytes: 64 << 20 }
    }
}

/// Amounts that were checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyCounts {
    /// Messages, including damaged ones before the log's end.
    pub messages: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Log files.
    pub log_files: u64,
    /// Queues.
    pub queues: u64,
    /// Queue entries.
    pub queue_entries: u64,
    /// Index files.
    pub index_files: u64,
    /// Index entries.
    pub index_entries: u64,
    /// Rows in RocksDB, if databases were checked.
    pub rocksdb_rows: Option<u64>,
}

/// Result of [`verify`].
#[derive(Clone, Debug)]
pub struct VerifyReport {
    /// Whether there are no findings beyond information.
    pub ok: bool,
    /// Findings by path and offset, up to the limit.
    pub findings: Vec<Finding>,
    /// Number of findings by code, including unlisted ones.
    pub found: BTreeMap<Code, u64>,
    /// Amounts that were checked.
    pub counts: VerifyCounts,
}

/// Checks the store at `path`. `progress` is called on the calling thread.
pub fn verify(
    path: &Path,
    config: StoreConfig,
    options: &VerifyOptions,
    progress: &mut Progress<'_>,
) -> Result<VerifyReport> {
    verify_on(Arc::new(Os), path, config, options, progress)
}

/// [`verify`] of a store with databases in RocksDB, whose findings are the last.
pub fn verify_with(
    storage: Arc<dyn Storage>,
    path: &Path,
    config: StoreConfig,
    options: &VerifyOptions,
    databases: Option<&dyn Databases>,
    progress: &mut Progress<'_>,
) -> Result<VerifyReport> {
    let paths = StorePaths::new(Arc::clone(&storage), path, &config);
    let mut report = verify_on(storage, path, config.clone(), options, progress)?;
    if let Some(databases) = databases {
        let is_full = options.level == Level::Full;
        let rows = rocksdb::check(&paths, &config, is_full, databases)?;
        report.ok &= rows.findings.iter().all(|found| found.severity == Severity::Info);
        report.findings.extend(rows.findings);
        report.found.extend(rows.found);
        report.counts.rocksdb_rows = Some(rows.rows);
    }
    Ok(report)
}

/// [`verify`] on another storage.
pub fn verify_on(
    storage: Arc<dyn Storage>,
    path: &Path,
    config: StoreConfig,
    options: &VerifyOptions,
    progress: &mut Progress<'_>,
) -> Result<VerifyReport> {
    let paths = at_rest(StorePaths::new(storage, path, &config), None);
    verify_at_rest(&paths, &config, options, progress)
}

/// Reads no hole of the log twice, unless a process writes to the store.
pub(crate) fn at_rest(paths: StorePaths, bisected: Option<Arc<AtomicBool>>) -> StorePaths {
    if StoreLock::is_held(&paths) {
        return paths;
    }
    let resting = Resting::new(Arc::clone(&paths.storage), paths.commit_log(), bisected);
    paths.on(Arc::new(resting))
}

pub(crate) fn verify_at_rest(
    paths: &StorePaths,
    config: &StoreConfig,
    options: &VerifyOptions,
    progress: &mut Progress<'_>,
) -> Result<VerifyReport> {
    let path = paths.root();
    let refused = broker::refused(paths, false);
    if !refused.is_empty() {
        return Ok(not_readable(path, &refused));
    }
    let (config, wrong_sizes) = broker::proven(paths, config)?;
    watched("verify", path, progress, |meter| {
        let check = |part_bytes| check(paths, (&config, &wrong_sizes), options, meter, part_bytes);
        // Whole files leave nothing in doubt.
        let report = match check(Some(options.part_bytes))? {
            None => check(None)?,
            report => report,
        };
        report.ok_or_else(|| interrupted("verify", path))
    })
}

/// Report on a store with folders that this user may not read: the rest would be guessed.
fn not_readable(path: &Path, refused: &[PathBuf]) -> VerifyReport {
    let findings = Findings::new(path, refused.len());
    for dir in refused {
        let (expected, found) = ("to read it", "a folder that this user may not read");
        findings.add(Code::Unreadable, dir, None, expected, found);
    }
    let (findings, found, _) = findings.into_parts();
    VerifyReport { ok: false, findings, found, counts: VerifyCounts::default() }
}

struct Prepared {
    log: FileRun,
    queues: Queues,
    tables: Tables,
    checkpoint: Option<CheckpointFields>,
}

fn prepare<'a>(
    paths: StorePaths,
    config: &'a StoreConfig,
    options: &VerifyOptions,
    meter: &'a Meter,
) -> Result<(Context<'a>, Prepared)> {
    found::need_store(&paths)?;
    let log_file = found::commit_log_file_size(&paths, config)?;
    let in_database = inventory::has_queue_database(&paths)?;
    let mut cx = Context {
        findings: Findings::new(paths.root(), options.most_findings),
        state: State::Closed,
        full: options.level == Level::Full,
        paths,
        config,
        meter,
        threads: thread_count(options.threads),
        in_database,
        flushed_ms: 0,
        durable: 0,
        latest_ms: SystemClock.now_ms().saturating_add(FAR_MS),
    };
    cx.state = state(&cx)?;
    // Read before the log, which a writer may extend.
    let mark = tables::read_mark(&cx);
    let tables = Tables::read(&cx)?;
    let checkpoint = tables::read_checkpoint(&cx);
    let fields = checkpoint.unwrap_or_default();
    let flushed = Flushed::of(&cx.paths, mark, &fields, false);
    (cx.durable, cx.flushed_ms) = (flushed.offset, flushed.before_ms);
    let (storage, dirs) = (Arc::clone(&cx.paths.storage), cx.paths.commit_log().to_vec());
    let (log, strays) = FileRun::load(storage, Arc::default(), dirs, log_file, Access::Read)?;
    strays.iter().for_each(|stray| cx.stray(stray));
    if let Some(dir) = found::find_ledger(&cx.paths)? {
        let Corruption { expected, found, .. } = found::ledger_damage(&cx.paths, &dir);
        cx.findings.add(Code::Ledger, &dir, None, expected, found);
    }
    cx.check_files(&log);
    let layout = inspect::queue_layout(&cx.paths, config)?;
    let queues = Queues::list(&cx, &layout, tables.kinds())?;
    Ok((cx, Prepared { log, queues, tables, checkpoint }))
}

fn check(
    paths: &StorePaths,
    (config, wrong_sizes): (&StoreConfig, &[WrongSize]),
    options: &VerifyOptions,
    meter: &Meter,
    part_bytes: Option<u64>,
) -> Result<Option<VerifyReport>> {
    let (cx, mut known) = prepare(paths.clone(), config, options, meter)?;
    for WrongSize { dir, expected, found } in wrong_sizes {
        cx.findings.add(Code::ConfigSize, dir, None, expected, found);
    }
    set_total(&cx, &known.log, &known.queues);
    let log_start = known.log.min_offset().unwrap_or(0);
    let queue_entries = AtomicU64::new(0);
    let read = |queue: &mut Queue| {
        queue_entries.fetch_add(read_queue(&cx, queue, log_start), Ordering::Relaxed);
        Ok(())
    };
    let read_queues = || each(known.queues.list.iter_mut(), cx.threads, read);
    let (index, ()) = both(cx.threads, paths.root(), || Index::read(&cx), read_queues)?;
    // Entries of a writer may lead to files that were made since.
    known.log.refresh()?;
    let Prepared { log, queues, .. } = &known;
    let listed = log_walk::list(&cx, log);
    let walks = file_parts::walk_all(&cx, log, &listed, queues, &index, part_bytes)?;
    let Some(walks) = walks else { return Ok(None) };
    let entries = queue_entries.into_inner();
    conclude(cx, (&known, &listed), &index, entries, &walks).map(Some)
}

fn conclude(
    cx: Context<'_>,
    (known, listed): (&Prepared, &Listed),
    index: &Index,
    queue_entries: u64,
    walks: &[FileWalk],
) -> Result<VerifyReport> {
    let Prepared { log, queues, tables, checkpoint } = known;
    let joined = file_parts::join(&cx, log, listed, walks);
    if cx.full && !cx.meter.is_cancelled() {
        let known = checkpoint.as_ref().map_or(0, CheckpointFields::min_timestamp_ms);
        // A time that no message has proves nothing.
        let trusted_ms = if known > joined.newest_ms { 0 } else { known };
        tables.check(&cx, queues);
        if !(queues.list.is_empty() && cx.in_database) {
            let is_deleted = |topic: &[u8]| tables.has_deleted(&cx, topic);
            let of_log = (joined.grew, &joined.walked);
            queues::report_missing(&cx, queues, is_deleted, trusted_ms, of_log)?;
        }
        queues::report_shifted(&cx, queues);
        timers::check(&cx, queues, &joined.walked);
        check_behind(&cx, log, queues, index, walks, &joined.walked)?;
    }
    if let Some(fields) = checkpoint {
        tables::check_checkpoint(&cx, fields, joined.newest_ms, joined.walked.log_end);
    }
    if log.files().is_empty() {
        let is_new = checkpoint.is_some_and(|fields| {
            fields.physic_msg_timestamp_ms <= 0 && fields.index_msg_timestamp_ms <= 0
        });
        let has_checkpoint = matches!(cx.paths.storage.kind(&cx.paths.checkpoint()), Ok(Some(_)));
        let has_entries = index.file_count > 0 || queues.list.iter().any(|queue| queue.end > 0);
        if !is_new || !has_checkpoint || has_entries || cx.durable > 0 {
            let expected = "a file of the log, or the checkpoint of a new store and nothing else";
            cx.findings.add(Code::LogEmpty, &log.dir(), None, expected, "an empty folder");
        }
    }
    if joined.walked.log_end < cx.durable && !cx.meter.is_cancelled() {
        let expected = format!("a log that reaches {}, which was durable", cx.durable);
        let found = format!("one that ends at {}", joined.walked.log_end);
        let (code, path) = (Code::LogShort, cx.paths.mark());
        cx.findings.add(code, &path, None, expected, found);
    }
    let counts = VerifyCounts {
        messages: joined.messages,
        log_bytes: joined.end.saturating_sub(log.min_offset().unwrap_or(0)),
        log_files: log.files().len() as u64,
        queues: queues.list.len() as u64,
        queue_entries,
        index_files: index.file_count,
        index_entries: index.entry_count,
        rocksdb_rows: None,
    };
    let (findings, found, wrong) = cx.findings.into_parts();
    Ok(VerifyReport { ok: !wrong, findings, found, counts })
}

fn state(cx: &Context<'_>) -> Result<State> {
    let root = cx.paths.root();
    for (path, what) in [(cx.paths.abort(), "abort"), (cx.paths.lock(), "lock")] {
        match cx.paths.storage.kind_of(&path)? {
            None | Some(FileKind::File) => {}
            Some(kind) => {
                let expected = format!("the file `{what}`");
                cx.stray_as(Code::NoRegularFile, &path, kind, &expected);
            }
        }
    }
    if StoreLock::is_held(&cx.paths) {
        let expected = "a store that no process writes to";
        let lock = cx.paths.lock();
        cx.findings.add(Code::InUse, &lock, None, expected, "a locked one");
        return Ok(State::InUse);
    }
    if lock::was_aborted(&cx.paths).unwrap_or(true) {
        let expected = "no file `abort`";
        cx.findings.add(Code::NotClosed, root, None, expected, "one");
        return Ok(State::Crashed);
    }
    Ok(State::Closed)
}

fn set_total(cx: &Context<'_>, log: &FileRun, queues: &Queues) {
    let log_bytes: u64 = log.files().iter().map(|file| file.len).sum();
    let queue_bytes: u64 = match cx.full {
        true => queues.list.iter().map(Queue::bytes).sum(),
        false => 0,
    };
    cx.meter.set_total(log_bytes.saturating_add(queue_bytes).max(1));
}

fn read_queue(cx: &Context<'_>, queue: &mut Queue, log_start: u64) -> u64 {
    if !cx.full {
        return 0;
    }
    let entries = queues::entry_check::read(cx, queue, log_start).and_then(|entries| {
        queue.ext.as_ref().map_or(Ok(()), |ext| queues::entry_check::read_extension(cx, ext))?;
        Ok(entries)
    });
    cx.meter.advance(queue.bytes());
    entries.unwrap_or_else(|error| {
        cx.error(&queue.dir(), error);
        0
    })
}

fn check_behind(
    cx: &Context<'_>,
    log: &FileRun,
    queues: &Queues,
    index: &Index,
    walks: &[FileWalk],
    walked: &Walked,
) -> Result<()> {
    // A message in two files may have matched twice.
    let doubtful = !log.check().is_empty();
    each(queues.list.iter(), cx.threads, |queue| {
        let all_there = queue.matched.load(Ordering::Relaxed) == queue.live;
        if (doubtful || !all_there)
            && let Err(error) = queues::entry_check::check_entries(cx, queue, log, walked)
        {
            cx.error(&queue.dir(), error);
        }
        Ok(())
    })?;
    let mut reach = Reach::default();
    walks.iter().for_each(|walk| reach.join(&walk.index, cx));
    let dir = cx.paths.root().join(version::DATABASE);
    let in_database = index.file_count == 0 && inventory::has_tables(cx.paths.storage(), &dir)?;
    reach.report(cx, index.is_known && !in_database);
    let rest = index
        .check_unordered(cx, log, walked)
        .and_then(|()| index::index_check::check_behind(cx, index, log, walked));
    if let Err(error) = rest {
        cx.error(&cx.paths.index(), error);
    }
    Ok(())
}
