//! The message store: put, dispatch, flush, recover, query, close. Open `message_store.rs` first.
//!
//! `open/` opens and recovers, `write/`, `dispatch/` and `read/` do the work, `folder/` knows the
//! store's files. `queue_table.rs` has all queues; `store_files.rs` is shared by reader and writer;
//! `progress.rs` reports and ends long work.

pub mod dispatch;
pub mod folder;
mod log_source;
mod message_store;
pub mod open;
pub mod progress;
pub mod queue_table;
pub mod read;
pub(crate) mod store_files;
pub mod write;

pub use self::log_source::LogSource;
pub use self::message_store::MessageStore;
pub use self::open::OpenMode;
pub use self::open::recover::{RecoveryMode, RecoveryReport};
pub use self::read::key_query::{KeyQuery, QueryResult};
pub use self::read::queue_read::{GetStatus, ReadResult};
pub use self::read::time_search::Boundary;
pub use self::write::append::{BatchError, NewMessage};
