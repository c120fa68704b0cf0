//! Messages as Arrow arrays. Open `schema.rs` first, then `builder.rs`, which makes batches: one builder
//! for each column.
//!
//! `variable.rs` fills columns of text and bytes, `derived.rs` derived values, `damage.rs` rows for
//! damage. `rows.rs` reads batches as messages. `ahead.rs` produces the batches of a log.

mod ahead;
mod builder;
mod damage;
mod derived;
mod functions;
pub mod rows;
mod schema;
mod tables;
mod variable;

pub use self::ahead::{BatchError, BatchesAhead, MessageBatches, makers};
pub use self::builder::{BatchBuilder, BatchLimits};
pub use self::functions::{Function, FunctionError};
pub use self::rows::{MessageRows, RowsError};
pub use self::schema::{Column, schema, schema_like, schema_of};
pub use self::tables::{queue_batches, queue_schema, stats_batch};

#[cfg(test)]
mod tests;
