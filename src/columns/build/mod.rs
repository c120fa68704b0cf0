//! Record batches out of records.
//!
//! Open `builder.rs` first: one builder for each column that was asked for. `variable.rs` fills columns of
//! text and bytes, `bodies.rs` the column of bodies, `derived.rs` the columns that a record does not hold as
//! they are shown; `pool.rs` reuses memory of finished batches.

pub(crate) mod bodies;
pub(crate) mod builder;
pub(crate) mod derived;
pub(crate) mod pool;
pub(crate) mod variable;
