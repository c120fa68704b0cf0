//! Topics that a broker creates for itself, and deleted topics: their messages stay in the log
//! until it expires, but neither table nor queue folder names them.

use crate::format::config::tables::TopicTable;
use crate::format::queue::consume_queue::SCHEDULE_TOPIC;
use crate::format::queue::is_broker_topic;
use crate::store::dispatch::lmq;
use crate::store::folder::paths::StorePaths;

/// Topics that a broker creates at each start (`TopicConfigManager#init`).
const SYSTEM_TOPICS: [&[u8]; 6] = [
    SCHEDULE_TOPIC,
    b"TBW102",
    b"SELF_TEST_TOPIC",
    b"BenchmarkTest",
    b"OFFSET_MOVED_EVENT",
    b"TRANS_CHECK_MAX_TIME_TOPIC",
];
/// Prefixes and suffixes of other system topics (`TopicValidator`).
const SYSTEM_PREFIXES: [&[u8]; 3] = [b"RMQ_SYS_", b"rmq_sys_", lmq::PREFIX];
const REPLY_TOPIC: &[u8] = b"_REPLY_TOPIC";

const SYSTEM_GROUPS: [&str; 8] = [
    "CID_RMQ_SYS_",
    "CID_SYS_",
    "CID_ONS",
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_",
    "DEFAULT_",
    "__MONITOR",
];

/// Whether a consumer group is a broker's own.
#[must_use]
pub fn is_system_group(group: &str) -> bool {
    SYSTEM_GROUPS.iter().any(|prefix| group.starts_with(prefix))
}

/// Whether a broker creates the topic for itself.
#[must_use]
pub fn is_system(topic: &[u8]) -> bool {
    SYSTEM_TOPICS.contains(&topic)
        || topic.ends_with(REPLY_TOPIC)
        || SYSTEM_PREFIXES.iter().any(|prefix| topic.starts_with(prefix))
}

/// By table and folders.
pub(super) fn is_deleted(paths: &StorePaths, table: &TopicTable, topic: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(topic) else { return false };
    let folders = [paths.consume_queue(), paths.batch_consume_queue()];
    table.get(name).is_none()
        && is_broker_topic(topic)
        && !is_system(topic)
        && folders.iter().all(|dir| matches!(paths.storage.kind(&dir.join(name)), Ok(None)))
}
