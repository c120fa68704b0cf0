//! Writes: from a message to a durable record.
//!
//! Open `append.rs` first: it checks a message, assigns its offsets and encodes it.
//! `property_block.rs` builds properties, `inner_batch.rs` inner batches. `core.rs` holds a
//! writer's state and steps; `background.rs` runs the steps on threads. `group_commit.rs` lets
//! callers under `SYNC_FLUSH` share a flush; `allocate.rs` and `prepare.rs` work ahead of the
//! writer. `topics.rs` keeps `topics.json`. `retention.rs` decides which files may go, `clean.rs`
//! deletes them.

pub(crate) mod allocate;
pub mod append;
pub(crate) mod background;
pub(crate) mod core;
pub mod group_commit;
pub mod inner_batch;
pub mod known_queues;
pub mod notices;
pub(crate) mod prepare;
pub mod property_block;
pub mod retention;
pub mod topics;
