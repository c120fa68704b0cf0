//! Writes: from a message to a durable record with entries in queues and index.
//!
//! Open `writer.rs` first: [`writer::Writer`] has every step in order. `append.rs` checks, places
//! and encodes a message. `group_commit.rs` lets callers under `SYNC_FLUSH` share a flush.
//! `background.rs` runs the steps on threads; `prefault.rs` and `new_queues.rs` work ahead.

pub mod append;
pub(crate) mod background;
pub mod group_commit;
pub mod inner_batch;
pub mod new_queues;
pub(crate) mod prefault;
pub mod property_block;
pub(crate) mod queue_selector;
pub mod retention;
pub(crate) mod writer;
