//! The files of an open store: what its writer, its readers and its threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::files::Storage;
use crate::log::CommitLog;
use crate::log::index::run::IndexRun;
use crate::time::Clock;

use super::paths::StorePaths;
use super::queue_table::QueueTable;
use super::write::notices::Notices;
use super::write::retention::file_ages::FileAges;

/// The files of an open store and its settings.
#[derive(Debug)]
pub(crate) struct StoreFiles {
    pub(crate) paths: StorePaths,
    pub(crate) config: StoreConfig,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: QueueTable,
    /// The index for queries; `None` where no index can be used.
    pub(crate) index: Option<Arc<IndexRun>>,
    pub(crate) closed: AtomicBool,
    /// Events since the store was opened.
    pub(crate) notices: Notices,
    /// Store times of log files that retention by store time asked for.
    pub(crate) ages: FileAges,
}

impl StoreFiles {
    /// Fails once the store is closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Lists the files of queues and index again.
    pub(crate) fn list_again(&self) -> Result<()> {
        self.queues.refresh()?;
        if let Some(index) = &self.index {
            index.refresh()?;
        }
        Ok(())
    }

    /// Closes files and maps, those excepted that a reader still holds.
    pub(crate) fn close(&self) {
        if let Some(index) = &self.index {
            index.close_files();
        }
        // The queues share the log's open files.
        self.log.run().close_files();
    }
}
