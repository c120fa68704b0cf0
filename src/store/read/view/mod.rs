//! Log and queues as a reader sees them. Open `queue_view.rs` first; `undispatched.rs` adds entries of
//! the log. `follower.rs` follows another process's store, `log_end.rs` finds its log's end.

pub(crate) mod follower;
pub mod log_end;
pub mod queue_view;
pub mod undispatched;
