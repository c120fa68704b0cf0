//! Names below a store's root (`org.apache.rocketmq.store.config.StorePathConfigHelper`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::files::Storage;
use crate::log::QueueKind;

pub const COMMIT_LOG: &str = "commitlog";
pub const CONSUME_QUEUE: &str = QueueKind::Plain.folder();
pub const BATCH_CONSUME_QUEUE: &str = QueueKind::Batch.folder();
pub const CONSUME_QUEUE_EXT: &str = "consumequeue_ext";
pub const INDEX: &str = "index";
pub const QUEUE_FOLDERS: [&str; 3] = [CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT];

pub const SETTINGS_FILE: &str = "mqstore.json";

#[derive(Clone, Debug)]
pub struct StorePaths {
    pub(crate) storage: Arc<dyn Storage>,
    root: PathBuf,
    commit_log: Vec<PathBuf>,
    pub(crate) read_only: Vec<PathBuf>,
    pub(crate) epochs: [PathBuf; 2],
    pub(crate) ledgers: Vec<PathBuf>,
    pub(crate) has_ledger: bool,
    aside: Option<PathBuf>,
}

impl StorePaths {
    /// Paths of the store at `root`, by `config`.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, root: &Path, config: &StoreConfig) -> Self {
        let below = |dirs: &[PathBuf]| dirs.iter().map(|dir| root.join(dir)).collect::<Vec<_>>();
        let mut commit_log = below(&config.store_path_commit_log);
        if commit_log.is_empty() {
            commit_log.push(root.join(COMMIT_LOG));
        }
        let read_only = below(&config.read_only_commit_log_store_paths);
        commit_log.extend(read_only.iter().cloned());
        commit_log.sort();
        commit_log.dedup();
        Self {
            storage,
            root: root.to_owned(),
            commit_log,
            read_only,
            epochs: ["", ".bak"]
                .map(|end| root.join(format!("{}{end}", config.store_path_epoch_file))),
            ledgers: below(&config.store_path_dledger_commit_log),
            has_ledger: config.enable_dleger_commit_log,
            aside: None,
        }
    }

    #[must_use]
    pub fn with_aside(self, aside: Option<PathBuf>) -> Self {
        Self { aside, ..self }
    }

    /// These paths, read and written through `storage`.
    #[must_use]
    pub fn on(self, storage: Arc<dyn Storage>) -> Self {
        Self { storage, ..self }
    }

    #[must_use]
    pub fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    #[must_use]
    pub fn aside_queues(&self) -> Option<PathBuf> {
        self.aside.as_ref().map(|aside| aside.join(CONSUME_QUEUE))
    }

    fn table(&self, name: &str) -> PathBuf {
        let aside = self.aside.as_ref().map(|aside| aside.join("config").join(name));
        aside.filter(|path| path.exists()).unwrap_or_else(|| self.config().join(name))
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn commit_log(&self) -> &[PathBuf] {
        &self.commit_log
    }

    #[must_use]
    pub fn first_commit_log(&self) -> PathBuf {
        self.commit_log.first().cloned().unwrap_or_default()
    }

    /// Folders of the commit log that take new files.
    pub fn written_commit_log(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.commit_log.iter().filter(|dir| !self.read_only.contains(dir)).cloned()
    }

    #[must_use]
    pub fn settings(&self) -> PathBuf {
        self.config().join(SETTINGS_FILE)
    }

    #[must_use]
    pub fn topics(&self) -> PathBuf {
        self.table("topics.json")
    }

    /// Consumer offsets: a broker with `enableLmq` uses a file of its own
    /// (`LmqConsumerOffsetManager#configFilePath`).
    #[must_use]
    pub fn consumer_offsets(&self, enable_lmq: bool) -> PathBuf {
        let name = if enable_lmq { "lmqConsumerOffset.json" } else { "consumerOffset.json" };
        self.table(name)
    }
}

macro_rules! below_root {
    ($($(#[$doc:meta])* $method:ident = $name:expr;)*) => {
        impl StorePaths {$(
            $(#[$doc])*
            #[must_use]
            pub fn $method(&self) -> PathBuf {
                self.root.join($name)
            }
        )*}
    };
}

below_root! {
    consume_queue = CONSUME_QUEUE;
    batch_consume_queue = BATCH_CONSUME_QUEUE;
    consume_queue_ext = CONSUME_QUEUE_EXT;
    index = INDEX;
    checkpoint = "checkpoint";
    abort = "abort";
    abort_backup = "abort.bak";
    seal = "mqstore.seal";
    mark = "mqstore.mark";
    deleted = "mqstore.deleted";
    /// Exists while a writer has the store open.
    waiters = "mqstore.wait";
    lock = "lock";
    config = "config";
    rebuild = "rebuild";
    quarantine = "quarantine";
}
