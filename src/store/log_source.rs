//! The log of a long read.

use std::sync::Arc;

use super::message_store::MessageStore;
use crate::error::Result;
use crate::log::CommitLog;

#[derive(Clone, Debug)]
pub enum LogSource {
    Store(Arc<MessageStore>),
    Log(Arc<CommitLog>),
}

impl LogSource {
    pub fn log(&self) -> Result<&CommitLog> {
        match self {
            Self::Store(store) => store.check_open().map(|()| store.log()),
            Self::Log(log) => Ok(log),
        }
    }
}
