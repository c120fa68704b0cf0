//! Writing: from a message to a durable record with its entries in queues and index.
//!
//! Open `writer.rs` first: [`writer::Writer`] has every step in the order in which a message passes them.
//! `append.rs` checks a message, gives it its place and encodes it; `property_block.rs` builds its
//! properties, `inner_batch.rs` the records that keep batches together. `group_commit.rs` lets callers of
//! `SYNC_FLUSH` wait for one flush together. `background.rs` runs the writer's steps on threads;
//! `allocate.rs` and `prepare.rs` are the steps that work ahead of it. `topics.rs` keeps `topics.json`,
//! `retention/` decides which files are deleted, `notices.rs` tells the user of it.

pub(crate) mod allocate;
pub mod append;
pub(crate) mod background;
pub mod group_commit;
pub mod inner_batch;
pub mod notices;
pub(crate) mod prepare;
pub mod property_block;
pub mod retention;
pub mod topics;
pub(crate) mod writer;
