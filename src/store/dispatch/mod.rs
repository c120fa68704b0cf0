//! Dispatch: from a record of the log to its entries in queues and index.
//!
//! Every record has an entry in its queue and one entry in the index for each of its keys. Open
//! `dispatcher.rs` first: it puts one record there while the store is written. `redispatch.rs` does it in
//! bulk when a store is opened, from parts of the log that `log_parts.rs` reads in parallel into
//! `gather.rs`. `queue_audit.rs` and `index_audit.rs` compare the entries that are there with the log.
//! `lmq.rs` knows light queues, of which one record has several.

pub mod dispatcher;
pub mod gather;
pub mod index_audit;
pub mod lmq;
pub mod log_parts;
pub mod queue_audit;
pub(crate) mod redispatch;
