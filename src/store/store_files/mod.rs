//! Files of an open store, shared by writer, readers and threads.

pub mod file_ages;
pub(crate) mod group_offsets;
pub mod notices;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::Storage;
use crate::log::CommitLog;
use crate::log::index::run::IndexRun;
use crate::time::Clock;

use self::file_ages::FileAges;
use self::notices::Notices;
use super::folder::paths::StorePaths;
use super::queue_table::QueueTable;

#[derive(Debug)]
pub(crate) struct StoreFiles {
    pub(crate) paths: StorePaths,
    pub(crate) config: StoreConfig,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: QueueTable,
    pub(crate) index: Option<Arc<IndexRun>>,
    pub(crate) closed: AtomicBool,
    pub(crate) notices: Notices,
    pub(crate) ages: FileAges,
}

impl StoreFiles {
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn list_again(&self) -> Result<()> {
        self.queues.refresh()?;
        if let Some(index) = &self.index {
            index.refresh()?;
        }
        Ok(())
    }

    pub(crate) fn close(&self) {
        if let Some(index) = &self.index {
            index.close_files();
        }
        // The queues share the log's open files.
        self.log.run().close_files();
    }
}
