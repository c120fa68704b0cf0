//! What a reader sees of log and queues. Open `queue_view.rs` first: one queue.
//!
//! `overlay.rs` adds entries that only the log has. `follower.rs` is the view of a store that
//! another process may write; `log_end.rs` finds the end of its log.

pub(crate) mod follower;
pub mod log_end;
pub mod overlay;
pub mod queue_view;
