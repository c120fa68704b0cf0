//! The names below a store's root, each once (`org.apache.rocketmq.store.config.StorePathConfigHelper`).

use std::path::{Path, PathBuf};

use crate::config::StoreConfig;
use crate::log::QueueKind;

/// The folder of the commit log below a store's root, unless the settings name others.
pub const COMMIT_LOG: &str = "commitlog";
/// The folder of the consume queues.
pub const CONSUME_QUEUE: &str = QueueKind::Plain.folder();
/// The folder of the queues that keep batches together.
pub const BATCH_CONSUME_QUEUE: &str = QueueKind::Batch.folder();
/// The folder of the consume queues' extensions.
pub const CONSUME_QUEUE_EXT: &str = "consumequeue_ext";
/// The folder of the index files.
pub const INDEX: &str = "index";
/// The folders of all queues.
pub const QUEUE_FOLDERS: [&str; 3] = [CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT];

/// Our own file below `config`.
pub const SETTINGS_FILE: &str = "mqstore.json";

/// The root of a store and the places below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePaths {
    root: PathBuf,
    commit_log: Vec<PathBuf>,
    read_only: Vec<PathBuf>,
}

impl StorePaths {
    /// The places of the store at `root`; the commit log may lie elsewhere by `config`, where a
    /// relative folder counts from the root.
    #[must_use]
    pub fn new(root: &Path, config: &StoreConfig) -> Self {
        let mut commit_log: Vec<_> =
            config.store_path_commit_log.iter().map(|dir| root.join(dir)).collect();
        commit_log.sort();
        commit_log.dedup();
        if commit_log.is_empty() {
            commit_log.push(root.join(COMMIT_LOG));
        }
        let read_only: Vec<_> =
            config.read_only_commit_log_store_paths.iter().map(|dir| root.join(dir)).collect();
        commit_log.extend(read_only.iter().cloned());
        commit_log.sort();
        commit_log.dedup();
        Self { root: root.to_owned(), commit_log, read_only }
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folders of the commit log that take no new files.
    #[must_use]
    pub fn read_only_commit_log(&self) -> &[PathBuf] {
        &self.read_only
    }

    /// The folders of the commit log.
    #[must_use]
    pub fn commit_log(&self) -> &[PathBuf] {
        &self.commit_log
    }

    /// The folder of the consume queues.
    #[must_use]
    pub fn consume_queue(&self) -> PathBuf {
        self.root.join(CONSUME_QUEUE)
    }

    /// The folder of the queues that keep batches together.
    #[must_use]
    pub fn batch_consume_queue(&self) -> PathBuf {
        self.root.join(BATCH_CONSUME_QUEUE)
    }

    /// The folder of the consume queues' extensions.
    #[must_use]
    pub fn consume_queue_ext(&self) -> PathBuf {
        self.root.join(CONSUME_QUEUE_EXT)
    }

    /// The folder of the index files.
    #[must_use]
    pub fn index(&self) -> PathBuf {
        self.root.join(INDEX)
    }

    /// The checkpoint file.
    #[must_use]
    pub fn checkpoint(&self) -> PathBuf {
        self.root.join("checkpoint")
    }

    /// The file that says the store was not closed.
    #[must_use]
    pub fn abort(&self) -> PathBuf {
        self.root.join("abort")
    }

    /// What `abort` held before.
    #[must_use]
    pub fn abort_backup(&self) -> PathBuf {
        self.root.join("abort.bak")
    }

    /// What closing in good order says of the store's files.
    #[must_use]
    pub fn seal(&self) -> PathBuf {
        self.root.join("mqstore.seal")
    }

    /// The durable mark: up to which place the log is on the disk.
    #[must_use]
    pub fn mark(&self) -> PathBuf {
        self.root.join("mqstore.mark")
    }

    /// The file whose first byte a writer keeps locked.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The folder of the broker's configuration.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    /// The settings that the store was made with, which RocketMQ does not read.
    #[must_use]
    pub fn settings(&self) -> PathBuf {
        self.config().join(SETTINGS_FILE)
    }

    /// The table of topics.
    #[must_use]
    pub fn topics(&self) -> PathBuf {
        self.config().join("topics.json")
    }

    /// The table of consumer offsets: a broker with `enableLmq` has a file of its own
    /// (`LmqConsumerOffsetManager#configFilePath`) and does not look at the other.
    #[must_use]
    pub fn consumer_offsets(&self, enable_lmq: bool) -> PathBuf {
        let name = if enable_lmq { "lmqConsumerOffset.json" } else { "consumerOffset.json" };
        self.config().join(name)
    }

    /// Where queues and index are made again before they take the place of the old ones.
    #[must_use]
    pub fn rebuild(&self) -> PathBuf {
        self.root.join("rebuild")
    }

    /// Where bytes go that a repair takes out of the store's files.
    #[must_use]
    pub fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }
}
