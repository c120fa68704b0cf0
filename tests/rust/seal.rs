//! A store that was closed in good order is opened without reading its log, unless anything changed.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mqstore::StoreConfig;
use mqstore::files::storage::{Region, Stamp};
use mqstore::files::{Access, DirEntry, FileKind, FileStat, Os, Storage, StorageFile};
use mqstore::store::RecoveryMode;
use mqstore::store::paths::StorePaths;
use mqstore::store::seal::Seal;

use crate::support::{Home, START_MS, check, flip, places, small};

/// The real files, and how many bytes of messages were read.
#[derive(Clone, Debug, Default)]
struct Counting {
    read: Arc<AtomicU64>,
    /// Whether a file's time stays what it was at first, as it does on some systems where the file is
    /// written through a map.
    stands_still: bool,
    stamps: Arc<Mutex<HashMap<PathBuf, Stamp>>>,
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn StorageFile>,
    read: Option<Arc<AtomicU64>>,
}

impl Counting {
    fn wrap(&self, path: &Path, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        let is_log = path.components().any(|part| part.as_os_str() == "commitlog");
        Arc::new(CountingFile { file, read: is_log.then(|| Arc::clone(&self.read)) })
    }
}

impl Storage for Counting {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        Os.open(path, access).map(|file| self.wrap(path, file))
    }
    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn StorageFile>> {
        Os.create(path, len).map(|file| self.wrap(path, file))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        Os.list(dir)
    }
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        Os.create_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Os.sync_dir(dir)
    }
    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        Os.sync_all(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Os.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        Os.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        Os.remove_dir(path)
    }
    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        Os.kind(path)
    }
    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let stamp = Os.stamp(path)?;
        let mut stamps = self.stamps.lock().unwrap();
        let is_log = path.components().any(|part| part.as_os_str() == "commitlog");
        match stamp.filter(|_| is_log && self.stands_still) {
            Some(stamp) => Ok(Some(*stamps.entry(path.to_owned()).or_insert(stamp))),
            None => Ok(stamp),
        }
    }
}

impl StorageFile for CountingFile {
    fn stat(&self) -> io::Result<FileStat> {
        self.file.stat()
    }
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let read = self.file.read_at(buffer, position)?;
        if let Some(bytes) = &self.read {
            bytes.fetch_add(read as u64, Ordering::Relaxed);
        }
        Ok(read)
    }
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_at(bytes, position)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn reserve(&self, position: u64, len: u64) -> io::Result<()> {
        self.file.reserve(position, len)
    }
    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        self.file.next_data(position)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn map(&self, len: usize, access: Access) -> io::Result<Arc<dyn Region>> {
        self.file.map(len, access)
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
    fn is_locked(&self) -> bool {
        self.file.is_locked()
    }
    fn lock_holder(&self) -> Option<i32> {
        self.file.lock_holder()
    }
}

/// A closed store of `count` messages, and how many bytes of its log an opening for write reads.
fn opening(count: usize, change: impl FnOnce(&Home)) -> (Home, u64, u64) {
    let counting = Counting::default();
    let home = Home::on(Arc::new(counting.clone()), small());
    let store = home.create();
    home.fill(&store, 0..count);
    let end = store.end_offset();
    store.close().unwrap();
    change(&home);
    counting.read.store(0, Ordering::Relaxed);
    let store = home.write();
    let read = counting.read.load(Ordering::Relaxed);
    check(&store, count);
    store.close().unwrap();
    (home, end, read)
}

#[test]
fn a_store_closed_in_good_order_is_opened_without_reading_its_log() {
    for count in [100, 1000] {
        let (home, _, read) = opening(count, |_| {});
        assert!(read <= 2 * 4096, "{count} messages: {read} bytes");
        // What is written after such an opening is as good as any.
        let store = home.write();
        home.fill(&store, count..count + 20);
        store.close().unwrap();
        check(&home.write(), count + 20);
    }
}

#[test]
fn zeros_behind_a_sealed_end_are_not_read() {
    const FILE: u64 = 4 << 20;
    let counting = Counting::default();
    let config = StoreConfig { mapped_file_size_commit_log: Some(FILE), ..small() };
    let home = Home::on(Arc::new(counting.clone()), config);
    let store = home.create();
    home.fill(&store, 0..100);
    let end = store.end_offset();
    // As pages do that were made ready ahead of the writer.
    let file = std::fs::OpenOptions::new().write(true).open(home.log_file(0).0).unwrap();
    file.write_all_at(&vec![0; (FILE - end) as usize], end).unwrap();
    store.close().unwrap();
    counting.read.store(0, Ordering::Relaxed);
    let store = home.write();
    let read = counting.read.load(Ordering::Relaxed);
    assert!(read < 1024, "{read} bytes");
    check(&store, 100);
}

#[test]
fn what_goes_on_at_a_sealed_end_is_met_although_no_time_moved() {
    for (stands_still, byte) in [(false, None), (true, None), (true, Some(1))] {
        let counting = Counting { stands_still, ..Counting::default() };
        let home = Home::on(Arc::new(counting.clone()), small());
        let store = home.create();
        home.fill(&store, 0..100);
        let end = store.end_offset();
        store.close().unwrap();
        if let Some(byte) = byte {
            home.patch(end, &[0, 0, 0, byte]);
        }
        counting.read.store(0, Ordering::Relaxed);
        let store = home.write();
        let read = counting.read.load(Ordering::Relaxed);
        assert_eq!(read >= end, byte.is_some(), "{byte:?}: {read} of {end} bytes");
        check(&store, 100);
    }
}

#[test]
fn any_change_has_everything_read_again() {
    let touch = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let queue = |home: &Home| touch(&home.queue_file(1, 0).0);
    let index = |home: &Home| touch(&home.index_files()[1]);
    let log = |home: &Home| touch(&home.log_file(0).0);
    let extra = |home: &Home| std::fs::write(home.path().join("index/stray"), b"").unwrap();
    let seal = |home: &Home| flip(&home.path().join("mqstore.seal"), 20);
    let changes: [&dyn Fn(&Home); 5] = [&queue, &index, &log, &extra, &seal];
    for (number, change) in changes.into_iter().enumerate() {
        let (_, end, read) = opening(100, change);
        assert!(read >= end, "change {number}: {read} of {end} bytes");
    }
}

#[test]
fn damage_since_closing_is_met_at_once() {
    let home = Home::closed(100);
    let (begin, _) = places(&home)[40];
    home.flip(begin + 95);
    let error = home.open(mqstore::store::OpenMode::ReadWrite).unwrap_err();
    assert!(error.to_string().contains("whole messages lie beyond"), "{error}");
}

#[test]
fn a_store_that_was_not_closed_is_read_whatever_its_seal_says() {
    let (home, _, _) = opening(100, |_| {});
    std::fs::write(home.path().join("abort"), b"1").unwrap();
    let store = home.write();
    assert_eq!(store.recovery().unwrap().mode, RecoveryMode::Crash);
    check(&store, 100);
}

#[test]
fn a_seal_past_the_log_is_not_believed() {
    for beyond in [0, 1 << 40] {
        let put = |home: &Home| {
            let (paths, store) = (StorePaths::new(home.path(), &home.config), home.read());
            let newest_ms = START_MS;
            Seal::put(&Os, &paths, store.config(), store.end_offset() + beyond, newest_ms).unwrap();
        };
        let (home, end, read) = opening(100, put);
        // One that ends with the log is believed.
        assert_eq!(read < end, beyond == 0, "{read} of {end} bytes");
        assert_eq!(home.write().end_offset(), end);
    }
}
