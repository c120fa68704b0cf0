//! The index: from keys to physical offsets (`org.apache.rocketmq.store.index`).
//!
//! Open `file.rs` first: one index file, read by `reader.rs`. `chain.rs` follows a slot's chain,
//! `evidence.rs` tells which entries are believed. `query.rs` gives the candidates of all files of
//! `run.rs` for an exact answer, `rocketmq.rs` RocketMQ's own answer, `select_many.rs` those of
//! many keys at once. `writer.rs` puts keys one at a time, `builder.rs` in bulk. `sums.rs` checks
//! faster than `check.rs`.

pub mod builder;
pub(crate) mod chain;
pub mod check;
pub(crate) mod evidence;
pub mod file;
pub mod layout;
pub mod query;
pub(crate) mod reader;
pub mod rocketmq;
pub mod run;
pub(crate) mod select_many;
pub mod sums;
pub mod writer;
