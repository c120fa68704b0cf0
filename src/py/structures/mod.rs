//! Single structures: index files, queues, logs, checkpoints, functions.

pub(crate) mod files;
pub(crate) mod functions;
pub(crate) mod index;
pub(crate) mod index_arrow;
pub(crate) mod making;
