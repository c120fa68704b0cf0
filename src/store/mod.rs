//! The message store: put, dispatch, flush, recover, query, close. Open `message_store.rs` first.
//!
//! `open/` opens and recovers, `write/`, `dispatch/` and `read/` do the work, `folder/` knows the
//! store's files. `groups/` are consumer groups above a store; `store_files/` is shared by reader
//! and writer.

pub mod dispatch;
pub mod folder;
pub mod groups;
mod message_store;
pub mod open;
pub mod progress;
pub mod queue_table;
pub mod read;
pub mod recovery_report;
pub(crate) mod store_files;
pub mod topics;
pub mod write;

pub use self::message_store::LogSource;
pub use self::message_store::MessageStore;
pub use self::open::OpenMode;
pub use self::read::key_query::{KeyQuery, QueryResult};
pub use self::read::queue_read::Boundary;
pub use self::read::queue_read::{GetStatus, ReadResult};
pub use self::recovery_report::{RecoveryMode, RecoveryReport};
pub use self::write::append::{BatchError, NewMessage};
