//! The message store: put, dispatch, flush, recover, query, close. Open `message_store.rs` first,
//! the front door.

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
