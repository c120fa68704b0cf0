//! Reading by queue offset, time, key, and in log order.
//!
//! Open the file of your question: `queue_read.rs` (messages of a queue from an offset on),
//! `time_search.rs` (queue offset for a time), `key_query.rs` (messages by key), `lookup.rs` (one
//! message by id), `scan.rs` (all messages in order), `scan_part.rs` and `slice.rs` (divided among
//! readers), `groups.rs` (consumer offsets). `queue_view.rs` is a queue as a reader sees it: its
//! files, and what the log holds beyond them.

pub(crate) mod asking;
pub mod groups;
pub mod halt;
pub mod held_to_log;
pub mod key_query;
pub(crate) mod lookup;
pub mod queue_read;
pub mod queue_view;
pub mod scan;
pub mod scan_part;
pub mod slice;
pub mod time_search;
