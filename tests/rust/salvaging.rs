//! Salvage from an unreadable disk, and records with checksums of their own.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use mqstore::care::salvage::{self, SalvageReport};
use mqstore::config::StoreConfig;
use mqstore::error::Result;
use mqstore::files::{Os, Storage};
use mqstore::format::message::Record;

use crate::support::storage::{Call, Staged};
use crate::support::{Home, places, record, scan, scratch};

fn salvage(storage: Arc<dyn Storage>, from: &Path, out: Option<&Path>) -> Result<SalvageReport> {
    let config = StoreConfig::default();
    let target = Arc::clone(&storage);
    salvage::salvage(storage, from, out, config, target, &mut |_, _| ControlFlow::Continue(()))
}

/// The messages that do not lie in a range of the log.
fn outside(home: &Home, from: u64, to: u64) -> u64 {
    let is_outside = |&&(at, size): &&(u64, u64)| at + size <= from || at >= to;
    places(home).iter().filter(is_outside).count() as u64
}

#[test]
fn around_bytes_that_the_disk_does_not_give_everything_is_taken() {
    let mut config = crate::support::small();
    config.mapped_file_size_commit_log = Some(64 << 10);
    let home = Home::new(config);
    let store = home.create();
    home.fill(&store, 0..200);
    store.close().unwrap();
    let (stage, dir) = (Staged::new(), scratch());
    stage.lose(&home.path().join("commitlog").to_string_lossy(), 9_000..9_001);
    let out = dir.path().join("out");
    let report = salvage(stage.storage(), home.path(), Some(&out)).unwrap();
    // A page is lost, and the messages that lie in it.
    assert_eq!(report.messages, outside(&home, 8192, 12_288));
    assert!(report.messages > 100, "{report:?}");
    let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
    assert_eq!(problem.reason, "the disk does not give 4096 bytes of it");
    assert!(problem.path.ends_with("commitlog/00000000000000000000"));
    stage.heal();
    let salvaged =
        mqstore::MessageStore::open(&out, mqstore::store::OpenMode::Read, StoreConfig::default());
    // Stand-ins keep the queue offsets of the lost ones.
    assert_eq!(report.messages + report.stand_ins, 200);
    assert_eq!(scan(&salvaged.unwrap()).0.len(), 200);
}

#[test]
fn a_file_that_cannot_be_opened_is_told_and_the_others_are_taken() {
    let home = Home::closed(100);
    let stage = Staged::new();
    stage.fail(Call::Open, "commitlog/00000000000000004096", 0, 13);
    let report = salvage(stage.storage(), home.path(), None).unwrap();
    assert_eq!(report.messages, outside(&home, 4096, 8192));
    let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
    assert!(problem.reason.starts_with("cannot be opened: Permission denied"), "{problem:?}");
    // Where none can be opened there is nothing to salvage.
    stage.fail(Call::Open, "commitlog/", 0, 13);
    let error = salvage(stage.storage(), home.path(), None).unwrap_err().to_string();
    assert!(error.starts_with("open "), "{error}");
}

#[test]
fn a_record_with_its_checksum_is_whole_whatever_its_topic() {
    for (property_crc, taken) in [(true, 1), (false, 0)] {
        let record =
            Record { properties: b"a\x01b\x02", property_crc, ..record(b"a\0b", 0, b"body") };
        let mut bytes = vec![0; record.encoded_size()];
        record.encode_into(&mut bytes);
        let dir = scratch();
        let file = dir.path().join("found");
        fs::write(&file, &bytes).unwrap();
        let out = dir.path().join("out");
        let report = salvage(Arc::new(Os), &file, Some(&out)).unwrap();
        assert_eq!((report.messages, report.passed_over.len()), (taken, 1 - taken as usize));
    }
}
