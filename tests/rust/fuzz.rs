//! The fuzz targets, fed with real bytes that were damaged: some ten seconds each on every run.
//! `MQSTORE_FUZZ` says how many inputs the slower ones get, 5,000 where it is not given. `make fuzz`
//! lets a coverage-guided fuzzer go on from there.

#[path = "../../fuzz/targets.rs"]
mod targets;

use std::fs;

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use mqstore::files::Os;

use crate::support::Home;
use targets::{TARGETS, files};

/// Inputs of the targets: the files of a small store, and bytes of no format.
fn corpus() -> Vec<Vec<u8>> {
    let home = Home::closed(60);
    let mut corpus: Vec<_> =
        files(&Os, home.path()).into_iter().map(|path| fs::read(path).unwrap()).collect();
    let log = corpus.iter().find(|bytes| bytes.len() == 4096).cloned().unwrap_or_default();
    let sizes = log.get(..4).map(|size| u32::from_be_bytes(size.try_into().unwrap()) as usize);
    corpus.extend(sizes.map(|size| log[..size].to_vec()));
    corpus.push(b"{\"offsetTable\":{\"T@g\":{0:1,1:2}},\"topicConfigTable\":{}}".to_vec());
    corpus.push(b"TAGS\x01a\x02KEYS\x01b c\x02INNER_NUM\x013\x02INNER_BASE\x014\x02".to_vec());
    corpus.push(Vec::new());
    corpus
}

fn damaged(bytes: &[u8], random: &mut TestRng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.next_u32() % 4 {
        let at = random.next_u64() as usize % bytes.len().max(1);
        match random.next_u32() % 6 {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), random.next_u32() as u8),
            2 => bytes.extend_from_within(at.min(bytes.len())..),
            3 => {
                let extreme = [0, 1, -1, i32::MIN, i32::MAX][random.next_u32() as usize % 5];
                for (byte, new) in bytes.iter_mut().skip(at).zip(extreme.to_be_bytes()) {
                    *byte = new;
                }
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (random.next_u32() % 8);
                }
            }
        }
        bytes.truncate(1 << 16);
    }
    bytes
}

/// How many inputs a target gets: each about as long as the others, a whole store being the slowest.
fn inputs(name: &str) -> u64 {
    let base = std::env::var("MQSTORE_FUZZ").map_or(5_000, |text| text.parse::<u64>().unwrap());
    match name {
        "directory" => base.div_ceil(12),
        "index" => base,
        "properties" => 4 * base,
        "configuration" => 10 * base,
        _ => 30 * base,
    }
}

fn run(name: &str) {
    let seed: u64 = std::env::var("MQSTORE_SEED").map_or(20_261_121, |text| text.parse().unwrap());
    let (_, target) = TARGETS.into_iter().find(|(known, _)| *known == name).unwrap();
    let corpus = corpus();
    let at = std::sync::atomic::AtomicU64::new(0);
    let all = || {
        for number in 0..inputs(name) {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&(seed ^ number).to_be_bytes());
            bytes[8..8 + name.len()].copy_from_slice(name.as_bytes());
            let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
            let start = &corpus[random.next_u64() as usize % corpus.len()];
            let input = match name {
                "directory" => {
                    let mut changes = vec![0; 4 * (1 + random.next_u32() as usize % 4)];
                    random.fill_bytes(&mut changes);
                    changes
                }
                _ => damaged(start, &mut random),
            };
            at.store(number, std::sync::atomic::Ordering::Relaxed);
            target(&input);
        }
    };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(all));
    let number = at.into_inner();
    assert!(outcome.is_ok(), "MQSTORE_SEED={seed}, target {name}, input {number}");
    println!("{name}: {} inputs from MQSTORE_SEED={seed}", number + 1);
}

macro_rules! targets {
    ($($test:ident: $name:literal;)*) => {
        $(#[test]
        fn $test() {
            run($name);
        })*

        #[test]
        fn every_target_is_run() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$($name),*]);
        }
    };
}

targets! {
    no_bytes_stop_a_record: "record";
    no_bytes_stop_properties: "properties";
    no_bytes_stop_a_queue: "queue";
    no_bytes_stop_an_index_file: "index";
    no_bytes_stop_a_checkpoint: "checkpoint";
    no_bytes_stop_a_configuration: "configuration";
    no_bytes_stop_a_batch: "batch";
    no_changes_stop_a_whole_store: "directory";
}
