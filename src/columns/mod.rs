//! Messages as Arrow arrays. Open `schema.rs` first, then `build/`, which makes batches.
//!
//! `rows/` reads batches as messages. `scan.rs` and `ahead.rs` produce the batches of a log, and on
//! several threads. `functions.rs` has Spark's SQL functions.

pub mod build;

mod ahead;
mod functions;
mod queue_entries;
pub mod rows;
mod scan;
mod schema;
mod stats;

pub use self::ahead::{BatchesAhead, makers};
pub use self::build::builder::{BatchBuilder, BatchLimits};
pub use self::functions::{Function, FunctionError};
pub use self::queue_entries::{QueueBatches, queue_schema};
pub use self::rows::{MessageRows, RowsError};
pub use self::scan::{BatchError, MessageBatches};
pub use self::schema::{Column, schema, schema_like, schema_of};
pub use self::stats::stats_batch;

#[cfg(test)]
mod tests;
