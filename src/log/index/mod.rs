//! The index: from keys to physical offsets (`org.apache.rocketmq.store.index`).
//!
//! Open `file.rs` first: one index file. `chain.rs` takes one step along a slot's chain, `lookup.rs`
//! follows it, `select.rs` looks keys up in one file, `query.rs` in all files of `run.rs`.
//! `writer.rs` puts keys one at a time, `builder.rs` in bulk. `check.rs` and the faster `sums.rs`
//! check consistency; `layout.rs` detects the number of slots, `chain_lengths.rs` counts chain
//! lengths, `slot_table.rs` is a table in memory.

pub mod builder;
pub(crate) mod chain;
pub(crate) mod chain_lengths;
pub mod check;
pub mod file;
pub mod layout;
pub(crate) mod lookup;
pub mod query;
pub mod run;
pub(crate) mod select;
pub(crate) mod slot_table;
pub mod sums;
pub mod writer;
