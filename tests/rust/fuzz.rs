//! The fuzz targets, fed with real bytes that were damaged: twenty thousand inputs each on every run,
//! `MQSTORE_FUZZ` says how many. `make fuzz` lets a coverage-guided fuzzer go on from there.

#[path = "../../fuzz/targets.rs"]
mod targets;

use std::fs;

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::support::Home;
use targets::{TARGETS, files};

/// What the targets begin with: the files of a small store, and what fits none of them.
fn corpus() -> Vec<Vec<u8>> {
    let home = Home::closed(60);
    let mut corpus: Vec<_> =
        files(home.path()).into_iter().map(|path| fs::read(path).unwrap()).collect();
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

#[test]
fn no_bytes_stop_a_target() {
    let seed: u64 = std::env::var("MQSTORE_SEED").map_or(20_261_121, |text| text.parse().unwrap());
    let inputs: u64 = std::env::var("MQSTORE_FUZZ").map_or(20_000, |text| text.parse().unwrap());
    let corpus = corpus();
    for (name, target) in TARGETS {
        // A whole store takes a thousand times as long as a record.
        let count = if name == "directory" { inputs.div_ceil(20) } else { inputs };
        for number in 0..count {
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
            println!("MQSTORE_SEED={seed}, target {name}, input {number}");
            target(&input);
        }
    }
}
