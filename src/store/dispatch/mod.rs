//! Derives consume queues and index from the log.
//!
//! Open `dispatcher.rs` first: it dispatches record by record. An opening does it in bulk, from
//! parts that `log_parts.rs` reads into `collect.rs`.

pub mod collect;
pub mod dispatcher;
pub mod index_audit;
pub mod lmq;
pub mod log_parts;
pub mod queue_audit;
