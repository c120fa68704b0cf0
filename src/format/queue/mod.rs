//! The entries of the three kinds of queue files.
//!
//! `consume_queue.rs`: the 20 bytes of a consume queue entry and the tags code in it. `consume_queue_ext.rs`:
//! the units of a queue's extension. `batch.rs`: a client's batch, and the 46 bytes of a batch queue entry.

pub mod batch;
pub mod consume_queue;
pub mod consume_queue_ext;
