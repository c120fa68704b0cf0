//! Reading by queue offset, time, key, and in log order.
//!
//! Open `reader.rs` first: [`reader::Reader`] knows how far log, queues and index can be read, and
//! `view/` what it sees of them. Then open the file of your question: `queue_read.rs` (messages of a
//! queue), `time_search.rs` (queue offset for a time), `key_query.rs` (messages by key), `by_id.rs`
//! (one message by id), `scan/` (all messages in order), `groups/` (consumer groups).
//! `entry_search.rs` finds the message of a wrong queue entry in the log. `tag_entries.rs` detects
//! whether an index file has entries for tags.

pub(crate) mod by_id;
pub mod entry_search;
pub mod groups;
pub mod key_query;
pub mod queue_read;
pub(crate) mod reader;
pub mod scan;
pub(crate) mod tag_entries;
pub mod time_search;
pub mod view;
