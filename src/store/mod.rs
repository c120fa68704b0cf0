//! The message store: put, dispatch, flush, recover, query, close. Open `message_store.rs` first.
//!
//! `open/` opens and recovers, `write/`, `dispatch/` and `read/` do the work. Files of a store:
//! `paths.rs` names them, `inventory.rs` lists them, `lock.rs` has `lock` and `abort`, `mark.rs` the
//! durable mark, `remembered.rs` the saved settings, `config_file.rs` the broker's JSON files,
//! `swap.rs` replaces folders atomically. `queue_table.rs` has all queues; `store_files.rs` is shared
//! by reader and writer.

pub mod dispatch;
pub mod progress;
pub mod queue_table;
pub mod read;
pub mod write;

pub mod config_file;
pub mod inventory;
pub mod lock;
pub mod mark;
mod message_store;
pub mod open;
pub mod paths;
pub mod remembered;
pub(crate) mod store_files;
pub mod swap;

pub use self::message_store::MessageStore;
pub use self::open::OpenMode;
pub use self::open::recover::{RecoveryMode, RecoveryReport};
pub use self::read::key_query::{KeyQuery, QueryResult};
pub use self::read::queue_read::{GetStatus, ReadResult};
pub use self::read::time_search::Boundary;
pub use self::write::append::NewMessage;
pub use self::write::writer::BatchError;
