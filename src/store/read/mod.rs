//! Reading by queue offset, time, key, and in log order.
//!
//! Open `reader.rs` first: [`reader::Reader`] knows how far log, queues and index can be read;
//! `view/` is its view of them. Then open the file of your question: `queue_read.rs` (messages of a
//! queue, offset for a time), `key_query.rs` (messages by key; `unindexed.rs` reads what no index
//! file has), `scan/` (all messages in order).

pub mod entry_search;
pub mod key_answer;
pub mod key_query;
pub mod missing_end;
pub mod queue_read;
pub(crate) mod reader;
pub mod scan;
pub(crate) mod unindexed;
pub mod view;
