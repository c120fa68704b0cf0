//! Messages as Arrow arrays.

mod ahead;
mod bodies;
mod builder;
mod derived;
mod functions;
mod given;
mod pool;
mod queue_entries;
mod rows;
mod scan;
mod schema;
mod slice;
mod stats;
mod variable;

pub use ahead::{BatchesAhead, Maker, makers};
pub use builder::{BatchBuilder, BatchLimits};
pub use functions::{Function, FunctionError};
pub use queue_entries::{QueueBatches, queue_schema};
pub use rows::{MessageRows, RowsError};
pub use scan::{BatchError, MessageBatches, ScanMaker, Scans};
pub use schema::{Column, schema, schema_like, schema_of};
pub use slice::SliceBatches;
pub use stats::stats_batch;

#[cfg(test)]
mod tests;
