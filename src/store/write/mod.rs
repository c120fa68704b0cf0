//! Writes: from a message to a durable record with entries in queues and index.
//!
//! Open `writer.rs` first: [`writer::Writer`] has every step in the order in which a message passes
//! them. `append.rs` checks a message, places it and encodes it; `property_block.rs` builds
//! properties, `inner_batch.rs` splits inner batches. `group_commit.rs` lets callers under `SYNC_FLUSH`
//! share a flush. `background.rs` runs the steps on threads; `allocate.rs` and `prepare.rs` work
//! ahead of the writer, `new_queues.rs` too. `spread.rs` chooses queues by key.
//! `retention/` decides which files are deleted.

pub(crate) mod allocate;
pub mod append;
pub(crate) mod background;
pub mod group_commit;
pub mod inner_batch;
pub mod new_queues;
pub(crate) mod prepare;
pub mod property_block;
pub mod retention;
pub(crate) mod spread;
pub(crate) mod writer;
