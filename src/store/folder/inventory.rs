//! Inventory of a store's folder: every name below the root, and counts for structures that are not
//! read.

use std::path::Path;

use super::paths::StorePaths;
use crate::error::{Error, Result, named};
use crate::files::{Access, DirEntry, FileKind, Storage, StorageFile, folder_at, if_reached};
use crate::format::bytes::{i32_at, i64_at};
use crate::format::file_name::{parse_index_name, parse_offset_name};
use crate::format::message::MAGIC_BLANK;
use crate::format::queue::batch::{self, BatchQueueEntry};
use crate::format::width::clamp_u64;

use super::paths;

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Structure {
        TimerWheel = "timer-wheel",
        TimerLog = "timer-log",
        SparseQueue = "sparse-queue",
        CompactionLog = "compaction-log",
        RocksDb = "rocksdb",
        DLedger = "dledger",
        EpochFile = "epoch-file",
        BrokerIdentity = "broker-identity",
    }
}

impl Structure {
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::TimerWheel => "where the timed messages of each second begin",
            Self::TimerLog => "timed messages",
            Self::SparseQueue => "queues of compacted topics",
            Self::CompactionLog => "messages of compacted topics",
            Self::RocksDb => "a RocksDB database of queues or configuration",
            Self::DLedger => "a replicated log of DLedger",
            Self::EpochFile => "where each master's time began",
            Self::BrokerIdentity => "who a broker is to its controller",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundStructure {
    pub structure: Structure,
    pub path: String,
    pub files: u64,
    pub bytes: u64,
    pub counts: Vec<(&'static str, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub struct KnownName {
    pub name: &'static str,
    /// Meaning of the file, or of the folder's files.
    pub what: &'static str,
    pub below: Option<Below>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    Log,
    Index,
    /// `topic/queue/file`, the last named by an offset in the queue.
    Queues,
    Files,
    Tree,
}

const fn known(name: &'static str, below: Option<Below>, what: &'static str) -> KnownName {
    KnownName { name, what, below }
}

const CONTROLLER: &str = "RocketMQ's controller mode";
const TIMED: &str = "RocketMQ's timed messages";

/// Every name that RocketMQ or mqstore creates below a store's root.
const NAMES: [KnownName; 24] = [
    known("abort", None, "there while the store is open, left behind by a crash"),
    known("abort.bak", None, "former content of abort"),
    known("mqstore.deleted", None, "deletions that no program was told of yet"),
    known("mqstore.mark", None, "up to which place the log is on the disk"),
    known("mqstore.seal", None, "state of the files at a clean close"),
    known("mqstore.wait", None, "whether processes wait for messages"),
    known("mqstore.acks", Some(Below::Files), "acknowledgements since the last commit of offsets"),
    known(
        "mqstore.failed",
        Some(Below::Files),
        "failed messages that the writer takes to be retried",
    ),
    known("checkpoint", None, "how far log, queues and index are known to be flushed"),
    known("lock", None, "locked while a writer has the store open"),
    known(paths::COMMIT_LOG, Some(Below::Log), "the messages"),
    known(paths::CONSUME_QUEUE, Some(Below::Queues), "queues"),
    known(paths::CONSUME_QUEUE_EXT, Some(Below::Queues), "extensions of queues"),
    known(paths::BATCH_CONSUME_QUEUE, Some(Below::Queues), "batch queues"),
    known(paths::INDEX, Some(Below::Index), "keys"),
    known("config", Some(Below::Files), "a broker's configuration and the consumers' offsets"),
    known("quarantine", Some(Below::Tree), "what a recovery cut off, and what a rebuild replaced"),
    known("rebuild", Some(Below::Tree), "queues and index in the making"),
    known("epochFileCheckpoint", None, CONTROLLER),
    known("epochFileCheckpoint.bak", None, CONTROLLER),
    known("brokerIdentity", None, CONTROLLER),
    known("timerwheel", None, TIMED),
    known("timerlog", Some(Below::Files), TIMED),
    known("compaction", Some(Below::Tree), "RocketMQ's compacted topics"),
];

const STRUCTURES: [(&str, Structure); 7] = [
    ("epochFileCheckpoint", Structure::EpochFile),
    ("epochFileCheckpoint.bak", Structure::EpochFile),
    ("brokerIdentity", Structure::BrokerIdentity),
    ("timerwheel", Structure::TimerWheel),
    ("timerlog", Structure::TimerLog),
    ("compaction/compactionCq", Structure::SparseQueue),
    ("compaction/compactionLog", Structure::CompactionLog),
];

/// The known name of a path below a store's root, with `/`; `None` for a foreign one.
#[must_use]
pub fn known_name(path: &str) -> Option<&'static KnownName> {
    let mut parts = path.split('/');
    let top = parts.next()?;
    let known = NAMES.iter().find(|known| known.name == top)?;
    let below: Vec<&str> = parts.collect();
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let belongs = match (known.below, below.as_slice()) {
        (_, []) | (Some(Below::Files), [_]) | (Some(Below::Tree), _) => true,
        (Some(Below::Log), [name]) => parse_offset_name(name).is_some(),
        (Some(Below::Index), [name]) => parse_index_name(name).is_some(),
        (Some(Below::Queues), [_topic]) => true,
        (Some(Below::Queues), [_topic, queue]) => is_number(queue),
        (Some(Below::Queues), [_topic, queue, name]) => {
            is_number(queue) && parse_offset_name(name).is_some()
        }
        _ => false,
    };
    belongs.then_some(known)
}

const DEEPEST: usize = 4;
const BLOCK: usize = 1 << 16;

/// Lists what lies below `root` and is not read, without following links.
pub fn inventory(storage: &dyn Storage, root: &Path) -> Result<Vec<FoundStructure>> {
    let mut inventory = Inventory { storage, root, found: Vec::new() };
    for (name, structure) in STRUCTURES {
        inventory.add(name, structure)?;
    }
    for entry in list(storage, root)? {
        let is_folder = |name: &&str| {
            entry.kind == FileKind::Directory || [paths::CONSUME_QUEUE, "config"].contains(name)
        };
        let Some(name) = entry.name.to_str().filter(is_folder) else { continue };
        if name.starts_with("dledger-") {
            inventory.add(name, Structure::DLedger)?;
            continue;
        }
        inventory.add_database(name)?;
        if name == "config" {
            for below in list(storage, &root.join(name))? {
                if let Some(below) = below.name.to_str() {
                    inventory.add_database(&format!("{name}/{below}"))?;
                }
            }
        }
    }
    inventory.found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(inventory.found)
}

pub(crate) fn list(storage: &dyn Storage, dir: &Path) -> Result<Vec<DirEntry>> {
    let entries = if_reached(storage.list(dir)).map_err(Error::io("list", dir))?;
    Ok(entries.unwrap_or_default())
}

pub const SLOT_LEN: usize = 32;
pub const TIMER_UNIT_LEN: usize = 52;

#[derive(Default)]
struct Sums {
    files: u64,
    bytes: u64,
    units: u64,
    messages: u64,
}

/// Whether a folder is a RocksDB database, perhaps a damaged one.
pub fn is_database(storage: &dyn Storage, dir: &Path) -> Result<bool> {
    has_file(storage, dir, |name| name == "CURRENT" || name.starts_with("MANIFEST-"))
}

pub fn has_queue_database(paths: &StorePaths) -> Result<bool> {
    let own = paths.root().join("consumequeue_rocksdb");
    Ok(is_database(paths.storage(), &paths.consume_queue())? || is_database(paths.storage(), &own)?)
}

pub fn has_tables(storage: &dyn Storage, dir: &Path) -> Result<bool> {
    has_file(storage, dir, |name| name.ends_with(".sst"))
}

fn has_file(storage: &dyn Storage, dir: &Path, wanted: fn(&str) -> bool) -> Result<bool> {
    if folder_at(storage, dir, false)? != Ok(true) {
        return Ok(false);
    }
    let named = |file: &DirEntry| file.name.to_str().is_some_and(wanted);
    Ok(list(storage, dir)?.iter().any(|file| file.kind == FileKind::File && named(file)))
}

struct Inventory<'a> {
    storage: &'a dyn Storage,
    root: &'a Path,
    found: Vec<FoundStructure>,
}

impl Inventory<'_> {
    fn add(&mut self, name: &str, structure: Structure) -> Result<()> {
        let path = self.root.join(name);
        let mut sums = Sums::default();
        match self.storage.kind_of(&path)? {
            Some(FileKind::File) => self.sum_file(&path, structure, &mut sums)?,
            Some(FileKind::Directory) => self.sum(&path, structure, DEEPEST, &mut sums)?,
            Some(_) if structure == Structure::RocksDb => {
                self.sum(&path, structure, DEEPEST, &mut sums)?;
            }
            _ => return Ok(()),
        }
        let counts = match structure {
            Structure::TimerWheel => vec![("slots", sums.units), ("messages", sums.messages)],
            Structure::TimerLog => vec![("units", sums.units)],
            Structure::SparseQueue => vec![("entries", sums.units), ("messages", sums.messages)],
            Structure::EpochFile => vec![("epochs", sums.units)],
            _ => Vec::new(),
        };
        let Sums { files, bytes, .. } = sums;
        self.found.push(FoundStructure { structure, path: name.to_owned(), files, bytes, counts });
        Ok(())
    }

    fn add_database(&mut self, name: &str) -> Result<()> {
        match is_database(self.storage, &self.root.join(name))? {
            true => self.add(name, Structure::RocksDb),
            false => Ok(()),
        }
    }

    fn sum(&self, dir: &Path, of: Structure, deepest: usize, sums: &mut Sums) -> Result<()> {
        for entry in list(self.storage, dir)? {
            let path = dir.join(&entry.name);
            match entry.kind {
                FileKind::File => self.sum_file(&path, of, sums)?,
                FileKind::Directory if deepest > 0 => self.sum(&path, of, deepest - 1, sums)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn sum_file(&self, path: &Path, of: Structure, sums: &mut Sums) -> Result<()> {
        let file = self.storage.open(path, Access::Read).map_err(Error::io("open", path))?;
        sums.files += 1;
        sums.bytes += file.stat().map_err(Error::io("stat", path))?.len;
        let len = match of {
            Structure::EpochFile => 1,
            Structure::TimerWheel => SLOT_LEN,
            Structure::TimerLog => TIMER_UNIT_LEN,
            Structure::SparseQueue => batch::ENTRY_LEN,
            _ => return Ok(()),
        };
        let has_holes = of == Structure::TimerWheel;
        let read = each_block(&*file, len, has_holes, |block| count(of, block, sums));
        read.map_err(Error::io("read", path))
    }
}

fn each_block(
    file: &dyn StorageFile,
    len: usize,
    has_holes: bool,
    mut take: impl FnMut(&[u8]) -> bool,
) -> std::io::Result<()> {
    let mut block = vec![0; BLOCK / len * len];
    let mut position = 0;
    loop {
        // A wheel is mostly holes; slots begin at multiples of their length.
        if has_holes {
            let Some(data) = file.next_data(position)? else { return Ok(()) };
            position = data / len as u64 * len as u64;
        }
        let whole = file.read_at(&mut block, position)? / len * len;
        if whole == 0 || !take(&block[..whole]) {
            return Ok(());
        }
        position += whole as u64;
    }
}

pub fn each_slot(file: &dyn StorageFile, mut take: impl FnMut(&[u8])) -> std::io::Result<()> {
    each_block(file, SLOT_LEN, true, |block| {
        block.chunks_exact(SLOT_LEN).for_each(&mut take);
        true
    })
}

pub fn timer_units(file: &dyn StorageFile) -> std::io::Result<u64> {
    let mut sums = Sums::default();
    each_block(file, TIMER_UNIT_LEN, false, |block| count(Structure::TimerLog, block, &mut sums))?;
    Ok(sums.units)
}

fn count(of: Structure, block: &[u8], sums: &mut Sums) -> bool {
    match of {
        // A line `epoch-offset` (`org.apache.rocketmq.store.ha.autoswitch.EpochFileCache`).
        Structure::EpochFile => {
            // The leading checksum and number of lines have no dash.
            sums.units += block.iter().filter(|&&byte| byte == b'-').count() as u64;
        }
        // `org.apache.rocketmq.store.timer.Slot`.
        Structure::TimerWheel => {
            for slot in block.as_chunks::<SLOT_LEN>().0 {
                let messages = i32_at(slot, 24).and_then(|number| u64::try_from(number).ok());
                if i64_at(slot, 0).is_some_and(|time| time > 0) {
                    sums.units += 1;
                    sums.messages += messages.unwrap_or(0);
                }
            }
        }
        // `org.apache.rocketmq.store.timer.TimerLog`.
        Structure::TimerLog => {
            for timer in block.as_chunks::<TIMER_UNIT_LEN>().0 {
                // A file's end has its magic code where a unit has one.
                let is_end = i32_at(timer, 12) == Some(MAGIC_BLANK);
                if is_end || i32_at(timer, 0) != Some(TIMER_UNIT_LEN as i32) {
                    return false;
                }
                sums.units += 1;
            }
        }
        // An entry of a batch queue, up to the end mark (`SparseConsumeQueue`).
        Structure::SparseQueue => {
            for entry in block.as_chunks::<{ batch::ENTRY_LEN }>().0 {
                let entry = BatchQueueEntry::decode(entry);
                if !entry.is_valid() {
                    return false;
                }
                sums.units += 1;
                sums.messages += clamp_u64(entry.message_count);
            }
        }
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;
    use std::fs;

    #[test]
    fn each_structure_is_named_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, bytes: &[u8]| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        let mut wheel = vec![0; 100_000 * SLOT_LEN];
        for (slot, messages) in [(3, 2_i32), (99_999, 5)] {
            wheel[slot * SLOT_LEN..][..8].copy_from_slice(&7_i64.to_be_bytes());
            wheel[slot * SLOT_LEN + 24..][..4].copy_from_slice(&messages.to_be_bytes());
        }
        put("timerwheel", &wheel);
        let mut timer = [0; TIMER_UNIT_LEN];
        timer[3] = 52;
        put("timerlog/00000000000000000000", &[timer, timer, [0; TIMER_UNIT_LEN]].concat());
        put("timerlog/00000000000000000156", &timer);
        let entry = BatchQueueEntry {
            store_size: 1,
            message_count: 3,
            physical_offset: 0,
            ..BatchQueueEntry::SPARSE_END
        };
        let queue = [entry.encode(), BatchQueueEntry::SPARSE_END.encode(), entry.encode()];
        put("compaction/compactionCq/T/0/00000000000000000000", &queue.concat());
        put("compaction/compactionLog/T/0/00000000000000000000", &[0; 10]);
        put("epochFileCheckpoint", b"123\n2\n1-0\n2-500\n");
        put("brokerIdentity", b"x");
        put("dledger-n0/data/00000000000000000000", &[0; 7]);
        put("consumequeue/CURRENT", b"MANIFEST-000001\n");
        put("consumequeue/MANIFEST-000001", b"x");
        put("config/topics/CURRENT", b"");
        put("config/topics/MANIFEST-1", b"");
        put("commitlog/00000000000000000000", &[0; 64]);

        let found = inventory(&Os, dir.path()).unwrap();
        let of = |path: &str| found.iter().find(|found| found.path == path).unwrap();
        assert_eq!(of("timerwheel").counts, [("slots", 2), ("messages", 7)]);
        assert_eq!(of("timerlog").counts, [("units", 3)]);
        assert_eq!(of("compaction/compactionCq").counts, [("entries", 1), ("messages", 3)]);
        assert_eq!(of("epochFileCheckpoint").counts, [("epochs", 2)]);
        assert_eq!((of("dledger-n0").files, of("dledger-n0").bytes), (1, 7));
        let names: Vec<_> = found.iter().map(|found| found.structure.name()).collect();
        assert_eq!(
            names,
            [
                "broker-identity",
                "sparse-queue",
                "compaction-log",
                "rocksdb",
                "rocksdb",
                "dledger",
                "epoch-file",
                "timer-log",
                "timer-wheel",
            ]
        );
    }

    #[test]
    fn a_name_belongs_to_a_store_where_the_format_has_it() {
        let name = |path| known_name(path).map(|known| known.name);
        for path in [
            "abort",
            "commitlog/00000000000000000000",
            "consumequeue/T/0/00000000000000000000",
            "consumequeue/T",
            "index/20261121073513325",
            "config/topics.json",
            "compaction/compactionLog/T/0/x",
            "timerlog/x",
        ] {
            assert_eq!(name(path), path.split('/').next(), "{path}");
        }
        for path in [
            "notes",
            "abort/x",
            "commitlog/0",
            "commitlog/00000000000000000000/x",
            "consumequeue/T/x",
            "consumequeue/T/0/x",
            "index/00000000000000000000",
            "config/a/b",
        ] {
            assert_eq!(name(path), None, "{path}");
        }
    }

    #[test]
    fn a_plain_store_has_none_of_them() {
        let dir = tempfile::tempdir().unwrap();
        assert!(inventory(&Os, dir.path()).unwrap().is_empty());
        fs::create_dir_all(dir.path().join("consumequeue/T/0")).unwrap();
        assert!(inventory(&Os, dir.path()).unwrap().is_empty());
    }
}
