//! The format layer from outside: what is written reads back, and bytes that are cut short or changed
//! are refused or read as documented, each length and each byte in turn.

mod document;
mod entries;
mod hashes;
mod items;
mod json;
mod properties;
mod records;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Runs are alike: a failure shows the smallest input that fails, and fails again.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x6D71_7374_6F72_6521),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Each byte of `bytes` in turn with each other value it can have.
fn each_flip(bytes: &[u8], mut seen: impl FnMut(usize, &[u8])) {
    let mut changed = bytes.to_vec();
    for position in 0..bytes.len() {
        for flip in 1..=u8::MAX {
            changed[position] = bytes[position] ^ flip;
            seen(position, &changed);
        }
        changed[position] = bytes[position];
    }
}

/// A host of either kind.
fn host() -> impl Strategy<Value = mqstore::format::message::host::Host> {
    use mqstore::format::message::host::Host;
    prop_oneof![
        (any::<[u8; 4]>(), any::<i32>()).prop_map(|(address, port)| Host::V4(address, port)),
        (any::<[u8; 16]>(), any::<i32>()).prop_map(|(address, port)| Host::V6(address, port)),
    ]
}
