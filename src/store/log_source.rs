//! The log that a reader of its own keeps open.

use std::sync::Arc;

use super::message_store::MessageStore;
use crate::error::Result;
use crate::log::CommitLog;

/// The log of an open store, or one opened alone.
#[derive(Clone, Debug)]
pub enum LogSource {
    Store(Arc<MessageStore>),
    Log(Arc<CommitLog>),
}

impl LogSource {
    /// The log, unless its store was closed.
    pub fn log(&self) -> Result<&CommitLog> {
        match self {
            Self::Store(store) => store.check_open().map(|()| store.log()),
            Self::Log(log) => Ok(log),
        }
    }
}
