//! The message store: put, dispatch, flush, recover, query, close.

pub mod append;
pub mod audit;
pub mod compose;
pub mod config_file;
mod core;
pub mod dispatch;
pub mod flush;
pub mod groups;
pub mod index_audit;
pub mod inner;
pub mod inventory;
pub mod key_query;
pub mod lmq;
pub mod lock;
mod lookup;
mod message_store;
mod open;
pub mod parts;
pub mod paths;
pub mod pull;
pub mod queues;
pub mod recover;
pub mod scan;
pub mod seal;
mod services;
pub mod swap;
pub mod tail;
pub mod time_search;
pub mod topics;
pub mod view;

pub use append::NewMessage;
pub use key_query::{KeyQuery, QueryResult};
pub use message_store::{BatchError, MessageStore, OpenMode};
pub use pull::{GetStatus, ReadResult};
pub use recover::{RecoveryMode, RecoveryReport};
pub use time_search::Boundary;
