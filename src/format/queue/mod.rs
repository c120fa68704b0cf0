//! Entries of the three kinds of queue files.
//!
//! `consume_queue.rs`: entries of 20 bytes and tags codes. `consume_queue_ext.rs`: units of the
//! extension. `batch.rs`: a client's batch and batch queue entries of 46 bytes.
//! `names.rs`: names of their folders.

pub mod batch;
pub mod consume_queue;
pub mod consume_queue_ext;
pub mod names;
