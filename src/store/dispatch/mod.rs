//! From the log to what is derived from it: consume queues and index.
//!
//! Every record of the log has an entry in its queue and one entry in the index for each of its keys.
//! Open `dispatcher.rs` first: it says what a record needs and puts it there, record by record, while
//! the store is written. `redispatch.rs` does the same in bulk when a store is opened, from parts of the
//! log that `log_parts.rs` reads side by side into `gather.rs`. `queue_audit.rs` and `index_audit.rs`
//! compare what is there with what the log asks for. `lmq.rs` knows the light queues, of which one record
//! has several.

pub mod dispatcher;
pub mod gather;
pub mod index_audit;
pub mod lmq;
pub mod log_parts;
pub mod queue_audit;
pub(crate) mod redispatch;
