//! Writing: from a message to a durable record.
//!
//! Open `append.rs` first: it checks a message, gives it its place and its queue offset, and encodes it.
//! `property_block.rs` builds the properties, `inner_batch.rs` the records that keep batches together.
//! `core.rs` holds the state of a writer and its steps; `background.rs` runs these steps on threads.
//! `group_commit.rs` lets callers of `SYNC_FLUSH` wait for one flush together; `allocate.rs` and
//! `prepare.rs` work ahead of the writer. `topics.rs` keeps `topics.json`. `retention.rs` judges which files
//! may go, `clean.rs` deletes them.

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
