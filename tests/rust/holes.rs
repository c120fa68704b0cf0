//! A hole costs its readers nothing: bytes that are read and calls that are made on files of the log
//! of which little or nothing holds data.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use mqstore::care::doctor::doctor_on;
use mqstore::care::verify::verify_on;
use mqstore::care::{Code, VerifyOptions};
use mqstore::config::StoreConfig;

use crate::support::storage::{Call, Staged};
use crate::support::{Home, append, patch, places, scan, set_len};

const FILE: u64 = 1 << 30;
const MOST_READ: u64 = 4 << 20;
const MOST_CALLS: u64 = 200;

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A closed store of one message in files of RocketMQ's sizes, on a disk that has holes.
fn one_message() -> (Arc<Staged>, Home) {
    let stage = Staged::new();
    let mut home = Home::on(stage.storage(), StoreConfig::default());
    home.dir = tempfile::tempdir().unwrap();
    let store = home.create();
    append(&store, 0, b"body").unwrap();
    store.close().unwrap();
    (stage, home)
}

fn log_file(home: &Home, base: u64) -> PathBuf {
    home.path().join(format!("commitlog/{base:020}"))
}

fn hole(home: &Home, base: u64) {
    fs::write(log_file(home, base), []).unwrap();
    set_len(&log_file(home, base), FILE);
}

/// Writes the store's record into the file at `base`, as its first.
fn put_record(home: &Home, record: &[u8], base: u64) {
    let mut record = record.to_vec();
    record[28..36].copy_from_slice(&base.to_be_bytes());
    patch(&log_file(home, base), 0, &record);
}

/// Runs each reader of a store of `messages`, and holds what it costs against the limits.
fn check_costs(state: &str, stage: &Arc<Staged>, home: &Home, messages: usize) {
    let check = |reader: &str| {
        let (read, calls) = (stage.take_log_read(), stage.take_log_calls());
        let costs = format!("{state}, {reader}: {read} bytes in {calls} calls");
        println!(
            "{costs} {:?}",
            [Call::Open, Call::Read, Call::Stat, Call::Kind].map(|call| stage.count(call))
        );
        assert!(read <= MOST_READ && calls <= MOST_CALLS, "{costs}");
    };
    let (path, config) = (home.path(), StoreConfig::default());
    stage.take_log_read();
    stage.take_log_calls();
    let store = home.read();
    check("open");
    assert_eq!(scan(&store).0.len(), messages, "{state}");
    check("scan");
    drop(store);
    let options = VerifyOptions::default();
    let report = verify_on(stage.storage(), path, config.clone(), &options, &mut go_on).unwrap();
    assert_eq!(report.counts.messages, messages as u64, "{state}");
    check("verify");
    let doctor = doctor_on(stage.storage(), path, &config, &mut go_on).unwrap();
    check("doctor");
    assert_eq!(doctor.diagnoses.is_empty(), report.found.is_empty(), "{state}");
}

#[test]
fn a5_holes_cost_few_reads_and_calls() {
    let (stage, home) = one_message();
    check_costs("one message", &stage, &home, 1);
    let mut record = fs::read(log_file(&home, 0)).unwrap();
    record.truncate(4096);
    (1..32).for_each(|number| hole(&home, number * FILE));
    check_costs("holes behind", &stage, &home, 1);
    put_record(&home, &record, 31 * FILE);
    check_costs("holes between", &stage, &home, 2);
    hole(&home, 0);
    check_costs("holes in front", &stage, &home, 1);
    hole(&home, 31 * FILE);
    check_costs("nothing but holes", &stage, &home, 0);
}

/// Zeros on the disk, as in a file that a broker warmed: `doctor` bisects them, `verify` reads them.
#[test]
fn a5_zeros_are_bisected_by_doctor_and_read_by_verify() {
    const SIZE: u64 = 64 << 20;
    let stage = Staged::new();
    let config = StoreConfig { mapped_file_size_commit_log: Some(SIZE), ..StoreConfig::default() };
    let home = Home::on(stage.storage(), config.clone());
    let store = home.create();
    home.fill(&store, 0..9);
    store.close().unwrap();
    let end = places(&home).iter().map(|(at, len)| at + len).max().unwrap();
    // A file system may make a hole of zeros that were never anything else.
    patch(&home.log_file(0).0, end, &vec![1; usize::try_from(SIZE - end).unwrap()]);
    patch(&home.log_file(0).0, end, &vec![0; usize::try_from(SIZE - end).unwrap()]);
    let verified = || {
        stage.take_log_read();
        let options = VerifyOptions::default();
        verify_on(stage.storage(), home.path(), config.clone(), &options, &mut go_on).unwrap()
    };
    let examined = || {
        stage.take_log_read();
        doctor_on(stage.storage(), home.path(), &config, &mut go_on).unwrap()
    };
    assert!(verified().ok);
    assert!(stage.take_log_read() >= SIZE);
    assert!(examined().diagnoses.is_empty());
    let read = stage.take_log_read();
    assert!(read <= MOST_READ, "{read}");
    // Messages behind the zeros are found by both.
    let far = end + (40 << 20);
    let mut record = fs::read(home.log_file(0).0).unwrap();
    let (last, len) = *places(&home).last().unwrap();
    record.drain(..usize::try_from(last).unwrap());
    record.truncate(usize::try_from(len).unwrap());
    record[28..36].copy_from_slice(&far.to_be_bytes());
    patch(&home.log_file(0).0, far, &record);
    patch(&home.log_file(0).0, far + record.len() as u64, &vec![7; 16 << 20]);
    assert!(verified().found.contains_key(&Code::LogHole));
    let codes: Vec<_> = examined().diagnoses.iter().map(|found| found.code).collect();
    assert!(codes.contains(&Code::LogHole), "{codes:?}");
}

/// Less data behind zeros than `doctor` looks for: what queues know of it decides.
#[test]
fn a5_messages_behind_zeros_that_were_skipped_are_not_lost() {
    const SIZE: u64 = 64 << 20;
    let config = StoreConfig { mapped_file_size_commit_log: Some(SIZE), ..StoreConfig::default() };
    let home = Home::new(config.clone());
    let store = home.create();
    for number in 0..6 {
        append(&store, number, &vec![b'b'; 1 << 20]).unwrap();
    }
    store.close().unwrap();
    let places = places(&home);
    let (gone, (from, to)) = (3, (places[1].0, places[4].0));
    let end = places[5].0 + places[5].1;
    for (from, to) in [(from, to), (end, SIZE)] {
        let len = usize::try_from(to - from).unwrap();
        // A file system may make a hole of zeros that were never anything else.
        patch(&home.log_file(0).0, from, &vec![1; len]);
        patch(&home.log_file(0).0, from, &vec![0; len]);
    }
    let doctor = mqstore::doctor(home.path(), &config, &mut go_on).unwrap();
    assert_eq!(doctor.verdict.lost.messages, gone, "{doctor:?}");
}
