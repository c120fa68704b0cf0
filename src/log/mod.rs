//! One type for each structure on disk: commit log, consume queue, index file, checkpoint. Open
//! `commit_log.rs` first; `log_writer.rs` appends to it, `read/` walks over it. `queue/` and `index/`
//! are derived from it.

pub mod index;
pub mod read;

pub mod commit_log;
pub mod folder;
pub mod log_writer;
pub mod queue;
pub mod store_checkpoint;

pub use self::commit_log::CommitLog;
pub use self::index::builder::IndexBuilder;
pub use self::index::file::IndexFile;
pub use self::index::run::IndexRun;
pub use self::index::select_many::OffsetLists;
pub use self::index::writer::IndexService;
pub use self::queue::consume_queue_ext::ConsumeQueueExt;
pub use self::queue::{CqUnit, Queue, QueueKind};
pub use self::read::block::Block;
pub use self::store_checkpoint::StoreCheckpoint;
