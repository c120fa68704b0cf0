//! Messages as Arrow arrays.

mod builder;
mod derived;
mod functions;
mod given;
mod rows;
mod scan;
mod schema;
mod stats;
mod variable;

pub use builder::{BatchBuilder, BatchLimits};
pub use functions::{Function, FunctionError};
pub use rows::{MessageRows, RowsError};
pub use scan::{BatchError, MessageBatches};
pub use schema::{Column, schema, schema_like, schema_of};
pub use stats::stats_batch;

#[cfg(test)]
mod tests;
