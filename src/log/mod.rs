//! One type for each structure on disk: commit log, consume queue, index file, checkpoint.

pub mod batch_consume_queue;
pub mod block;
pub mod commit_log;
pub mod consume_queue;
pub mod consume_queue_ext;
pub mod folder;
pub mod index_build;
pub mod index_check;
pub mod index_file;
pub mod index_query;
pub mod index_run;
mod index_select;
pub mod index_service;
mod index_use;
mod index_walk;
pub mod log_writer;
pub mod queue;
pub mod queue_folder;
pub mod range_scan;
pub mod scanner;
mod slot_table;
pub mod store_checkpoint;
mod tail_run;

pub use batch_consume_queue::BatchConsumeQueue;
pub use block::{Block, BlockPool};
pub use commit_log::CommitLog;
pub use consume_queue::ConsumeQueue;
pub use consume_queue_ext::ConsumeQueueExt;
pub use index_build::{BuiltIndex, IndexBuilder};
pub use index_file::IndexFile;
pub use index_run::IndexRun;
pub use index_select::{IndexBatch, OffsetLists};
pub use index_service::IndexService;
pub use queue::{Queue, QueueKind};
pub use scanner::Scanner;
pub use store_checkpoint::StoreCheckpoint;
