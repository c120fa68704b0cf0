//! Record batches.
//!
//! Open `builder.rs` first: one builder for each column. `variable.rs` fills columns of text and
//! bytes, `bodies.rs` bodies, `derived.rs` derived values, `damage.rs` rows for damage; `pool.rs` reuses finished batches'
//! memory.

pub(crate) mod bodies;
pub(crate) mod builder;
pub(crate) mod damage;
pub(crate) mod derived;
pub(crate) mod pool;
pub(crate) mod variable;
