//! The files of an index where the system fails, where they go meanwhile, and where they are sparse.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use mqstore::error::{Error, Result};
use mqstore::format::index::IndexLayout;
use mqstore::format::java::key_hash;
use mqstore::log::index::file::{IndexFile, IndexOpen};
use mqstore::log::{IndexRun, IndexService};
use mqstore::time::FixedClock;

use crate::support::storage::{Call, Staged};
use crate::support::{START_MS, names_in, scratch};

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Files of three entries, all with one key.
struct Index {
    dir: tempfile::TempDir,
    stage: Arc<Staged>,
    layout: IndexLayout,
}

impl Index {
    fn new() -> Self {
        let layout = IndexLayout::new(7, 4).unwrap();
        Self { dir: scratch(), stage: Staged::new(), layout }
    }

    /// With messages at 1 to 7, in three files.
    fn filled() -> Self {
        let index = Self::new();
        let mut service = index.service();
        (1..8).for_each(|offset| put(&mut service, offset).unwrap());
        service.begin_flush().unwrap().run().unwrap();
        assert_eq!(index.files().len(), 3);
        index
    }

    fn service(&self) -> IndexService {
        let clock = Arc::new(FixedClock::new(START_MS));
        IndexService::load(self.stage.storage(), self.dir.path(), self.layout, clock).unwrap().0
    }

    fn run(&self) -> Result<IndexRun> {
        let (storage, dir) = (self.stage.storage(), self.dir.path());
        let (run, findings) = IndexRun::load(storage, dir, self.layout, IndexOpen::Read)?;
        assert_eq!(findings, []);
        Ok(run)
    }

    fn files(&self) -> Vec<PathBuf> {
        names_in(self.dir.path())
    }

    /// Lets a call on a file fail.
    fn fail(&self, call: Call, file: usize, errno: i32) {
        self.stage.heal();
        self.stage.fail(call, self.files()[file].to_str().unwrap(), 0, errno);
    }
}

fn put(service: &mut IndexService, offset: i64) -> Result<()> {
    service.put(offset, START_MS, &[key_hash(b"T", b"k")]).map(drop)
}

fn query(run: &IndexRun) -> Result<Vec<i64>> {
    Ok(run.query_offsets(&[], b"T", b"k", (0, i64::MAX), 10)?.offsets)
}

#[test]
fn a_folder_that_is_missing_is_empty_and_one_that_fails_is_an_error() {
    let index = Index::filled();
    index.stage.fail(Call::List, "", 0, ENOENT);
    assert!(index.run().unwrap().files().is_empty());
    index.stage.heal();
    index.stage.fail(Call::List, "", 0, EIO);
    assert!(matches!(index.run(), Err(Error::Io { op: mqstore::Operation::Other("list"), .. })));
}

#[test]
fn a_file_that_goes_while_it_is_listed_is_passed_over_and_one_that_fails_is_an_error() {
    let index = Index::filled();
    for (file, left) in [(0, vec![7, 6, 5, 4]), (1, vec![7, 3, 2, 1]), (2, vec![6, 5, 4, 3, 2, 1])]
    {
        index.fail(Call::Open, file, ENOENT);
        let run = index.run().unwrap();
        assert_eq!((run.files().len(), run.unusable().len()), (2, 0));
        assert_eq!(query(&run).unwrap(), left);
        index.fail(Call::Open, file, EIO);
        assert!(matches!(
            index.run(),
            Err(Error::Io { op: mqstore::Operation::Other("open"), .. })
        ));
    }
}

#[test]
fn a_file_that_is_listed_again_stays_open() {
    let index = Index::filled();
    let run = index.run().unwrap();
    let opened = index.stage.count(Call::Open);
    assert_eq!(run.refresh().unwrap(), []);
    assert_eq!(index.stage.count(Call::Open), opened);
    assert_eq!(query(&run).unwrap(), [7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn a_query_passes_over_a_file_that_went_and_tells_of_one_that_fails() {
    let index = Index::filled();
    let run = index.run().unwrap();
    for (file, left) in [(0, vec![7, 6, 5, 4]), (1, vec![7, 3, 2, 1]), (2, vec![6, 5, 4, 3, 2, 1])]
    {
        for (errno, answer) in [(ENOENT, Some(left)), (EIO, None)] {
            run.close_files();
            index.fail(Call::Open, file, errno);
            assert_eq!(query(&run).ok(), answer, "file {file}, error {errno}");
        }
    }
    index.stage.heal();
    run.close_files();
    assert_eq!(query(&run).unwrap(), [7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn a_name_that_is_taken_is_passed_over_and_any_other_failure_is_told_at_once() {
    let index = Index::new();
    let mut service = index.service();
    index.stage.fail(Call::Create, "", 0, EIO);
    assert!(put(&mut service, 1).is_err());
    assert_eq!(index.stage.count(Call::Create), 1);
    index.stage.heal();
    put(&mut service, 1).unwrap();
    // A later name where the next one is there already.
    let first = index.files().pop().unwrap();
    let taken: u64 = first.file_name().unwrap().to_str().unwrap().parse().unwrap();
    fs::write(first.with_file_name((taken + 1).to_string()), []).unwrap();
    (2..5).for_each(|offset| put(&mut service, offset).unwrap());
    let names: Vec<_> = service.run().files().iter().map(|file| file.name).collect();
    assert_eq!(names, [taken, taken + 2]);
}

#[test]
fn a_file_that_is_gone_already_is_removed_and_one_that_stays_is_told_and_known() {
    let index = Index::filled();
    let mut service = index.service();
    let second = service.run().files()[1].name;
    index.fail(Call::Remove, 2, EIO);
    assert!(matches!(
        service.remove_from_name(second),
        Err(Error::Io { op: mqstore::Operation::Other("remove"), .. })
    ));
    assert_eq!(service.run().files().len(), 3);
    index.fail(Call::Remove, 2, ENOENT);
    let flushed = index.stage.count(Call::SyncDir);
    assert_eq!(service.remove_from_name(second).unwrap().len(), 2);
    assert_eq!(index.stage.count(Call::SyncDir), flushed + 1);
    assert_eq!(service.run().files().len(), 1);
    // Nothing that goes, nothing to flush.
    assert_eq!(service.remove_from_name(u64::MAX).unwrap(), Vec::<PathBuf>::new());
    assert_eq!(index.stage.count(Call::SyncDir), flushed + 1);
}

#[test]
fn holes_of_a_sparse_slot_table_get_space_in_one_call_each() {
    // Slots up to byte 20,040: five blocks, the last of them short.
    let layout = IndexLayout::new(5_000, 100).unwrap();
    let (dir, stage) = (scratch(), Staged::new());
    let path = dir.path().join("20231001000000000");
    let space = || fs::metadata(&path).unwrap().blocks() * 512;
    let sparse = |slot: Option<i32>| {
        let _ = fs::remove_file(&path);
        let whole = fs::File::create(&path).unwrap();
        whole.set_len(layout.file_len()).unwrap();
        if let Some(slot) = slot {
            let mut file =
                IndexFile::open(&*Staged::new().storage(), &path, layout, IndexOpen::Write);
            file.as_mut().unwrap().put_key(slot, 0, START_MS).unwrap();
            let bytes = fs::read(&path).unwrap();
            let whole = fs::File::create(&path).unwrap();
            whole.set_len(layout.file_len()).unwrap();
            for (number, block) in bytes.chunks(4096).enumerate() {
                if block.iter().any(|byte| *byte != 0) {
                    std::os::unix::fs::FileExt::write_all_at(&whole, block, number as u64 * 4096)
                        .unwrap();
                }
            }
        }
        let before = stage.count(Call::Reserve);
        let file = IndexFile::open(&*stage.storage(), &path, layout, IndexOpen::Write).unwrap();
        drop(file);
        stage.count(Call::Reserve) - before
    };
    assert_eq!(sparse(None), 1);
    assert!(space() >= 5 * 4096, "{}", space());
    // A slot in the third block, the header in the first and the entry in the fifth: before and behind it
    // is a hole each, and one ends the page.
    assert_eq!(sparse(Some(2_100)), 3);
    assert!(space() >= 6 * 4096, "{}", space());
}

#[test]
fn a_key_that_the_disk_has_no_room_for_is_told_when_it_comes() {
    // Before the second step of 2 MiB there is room for 54 entries.
    let mut index = Index::new();
    index.layout = IndexLayout::new(524_000, 1_000).unwrap();
    let mut service = index.service();
    put(&mut service, 1).unwrap();
    index.fail(Call::Reserve, 0, ENOSPC);
    (2..=54).for_each(|offset| put(&mut service, offset).unwrap());
    assert!(matches!(
        put(&mut service, 55),
        Err(Error::Io { op: mqstore::Operation::Other("reserve space in"), .. })
    ));
    service.begin_flush().unwrap().run().unwrap();
    index.stage.heal();
    put(&mut service, 55).unwrap();
    service.begin_flush().unwrap().run().unwrap();
    let found = service.run().query_offsets(&[], b"T", b"k", (0, i64::MAX), 100).unwrap().offsets;
    assert!(found.into_iter().rev().eq(1..=55));
}
