//! The table of settings: names, types, defaults, limits and meaning. `StoreConfig` checks values by it,
//! and Python's `StoreConfig` takes it from here.

use std::net::IpAddr;

use serde::Serialize;

use crate::format::index::IndexLayout;
use crate::format::queue::consume_queue::{DELAY_LEVELS, DelayLevels};

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Setting {
    pub name: &'static str,
    /// Name in a `broker.conf`, RocketMQ's or ours; empty for a setting that is not read there.
    pub conf_name: &'static str,
    #[serde(flatten)]
    pub kind: Kind,
    /// Meaning, without the default; empty for a setting of RocketMQ that has no effect here.
    pub doc: &'static str,
    /// Heading above this setting and those that follow; empty for the heading before.
    pub heading: &'static str,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Kind {
    Flag {
        default: bool,
    },
    Number {
        default: Option<u64>,
        least: u64,
        most: u64,
        unit: &'static str,
    },
    Choice {
        default: Option<&'static str>,
        choices: &'static [&'static str],
    },
    Text {
        default: &'static str,
        #[serde(skip)]
        fits: fn(&str) -> bool,
        expected: &'static str,
    },
}

impl Setting {
    #[must_use]
    pub fn of(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    #[must_use]
    pub const fn has_effect(&self) -> bool {
        !self.doc.is_empty()
    }

    /// The allowed values, if `value` is none of them.
    #[must_use]
    pub fn refusal(&self, value: &str) -> Option<String> {
        let (fits, expected) = match self.kind {
            Kind::Flag { .. } => (flag_of(value).is_some(), "true or false".to_owned()),
            Kind::Number { least, most, .. } => {
                let fits = number_of(value).is_some_and(|number| (least..=most).contains(&number));
                (fits, format!("{least} to {most}"))
            }
            Kind::Choice { choices, .. } => (choices.contains(&value), either(choices)),
            Kind::Text { fits, expected, .. } => (fits(value), expected.to_owned()),
        };
        (!fits).then_some(expected)
    }

    pub(super) fn default_text(&self) -> Option<String> {
        match self.kind {
            Kind::Flag { default } => Some(default.to_string()),
            Kind::Number { default, .. } => default.map(|number| number.to_string()),
            Kind::Choice { default, .. } => default.map(str::to_owned),
            Kind::Text { default, .. } => Some(default.to_owned()),
        }
    }

    const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    const fn under(self, heading: &'static str) -> Self {
        Self { heading, ..self }
    }
}

fn either(choices: &[&str]) -> String {
    match choices {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => choices.concat(),
    }
}

pub(super) fn flag_of(value: &str) -> Option<bool> {
    value.trim().to_ascii_lowercase().parse().ok()
}

pub(super) fn number_of(value: &str) -> Option<u64> {
    value.trim().parse().ok()
}

#[expect(clippy::panic, reason = "at compile time")]
pub(crate) const fn default_number(name: &str) -> u64 {
    match row(name).kind {
        Kind::Number { default: Some(number), .. } => number,
        _ => panic!("no number with a default"),
    }
}

/// The row of a name. Called in constants, so an unknown name fails the build.
pub(super) const fn row(name: &str) -> &'static Setting {
    let mut at = 0;
    while !is_same(SETTINGS[at].name.as_bytes(), name.as_bytes()) {
        at += 1;
    }
    &SETTINGS[at]
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    match (a, b) {
        ([], []) => true,
        ([a, a_rest @ ..], [b, b_rest @ ..]) => *a == *b && is_same(a_rest, b_rest),
        _ => false,
    }
}

const fn setting(name: &'static str, conf_name: &'static str, kind: Kind) -> Setting {
    Setting { name, conf_name, kind, doc: "", heading: "" }
}

const fn flag(name: &'static str, conf_name: &'static str, default: bool) -> Setting {
    setting(name, conf_name, Kind::Flag { default })
}

const fn number(
    name: &'static str,
    conf_name: &'static str,
    default: Option<u64>,
    (least, most): (u64, u64),
    unit: &'static str,
) -> Setting {
    setting(name, conf_name, Kind::Number { default, least, most, unit })
}

const fn choice(
    name: &'static str,
    conf_name: &'static str,
    default: Option<&'static str>,
    choices: &'static [&'static str],
) -> Setting {
    setting(name, conf_name, Kind::Choice { default, choices })
}

const fn text(
    name: &'static str,
    conf_name: &'static str,
    default: &'static str,
    fits: fn(&str) -> bool,
    expected: &'static str,
) -> Setting {
    setting(name, conf_name, Kind::Text { default, fits, expected })
}

fn is_path(value: &str) -> bool {
    !value.contains('\0')
}

fn is_address(value: &str) -> bool {
    value.parse::<IpAddr>().is_ok()
}

fn are_hours(value: &str) -> bool {
    value.split(';').all(|hour| hour.trim().parse::<u8>().is_ok_and(|hour| hour < 24))
}

fn are_delays(value: &str) -> bool {
    DelayLevels::parse(value).is_some()
}

const BYTES: &str = "bytes";
const MS: &str = "milliseconds";
const DAY_MS: u64 = 86_400_000;
/// RocketMQ's numbers are Java's `int`.
const INT_MAX: u64 = (1 << 31) - 1;

/// All settings, in the order of Python's `StoreConfig`.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    text("store_path_commit_log", "storePathCommitLog", "commitlog", is_path, "a path")
        .under("Files:")
        .doc("Folders of the commit log, joined by commas; a relative one counts from the store."),
    text("read_only_commit_log_store_paths", "readOnlyCommitLogStorePaths", "", is_path, "a path")
        .doc("Those of them that take no new files."),
    text("store_path_epoch_file", "storePathEpochFile", "epochFileCheckpoint", is_path, "a path")
        .doc("A slave's file of epochs; a relative one counts from the store."),
    flag("enable_dleger_commit_log", "enableDLegerCommitLog", false)
        .doc("The log is DLedger's: the store is opened for reading only."),
    text("store_path_dledger_commit_log", "storePathDLedgerCommitLog", "", is_path, "a path")
        .doc("Folders of DLedger's log, joined by commas, if they are not ``dledger-*/data``."),
    number("mapped_file_size_commit_log", "mappedFileSizeCommitLog", Some(1 << 30), (48, INT_MAX), BYTES)
        .doc("Bytes of one commit log file."),
    flag("warm_maped_file_enable", "warmMapedFileEnable", false)
        .doc("Bring each file of the commit log into memory whole when it is made: appends meet no \
             page that is not there, and the disk takes twice as many bytes. Without effect under \
             ``SYNC_FLUSH``."),
    number("mapped_file_size_consume_queue", "mappedFileSizeConsumeQueue", Some(6_000_000), (20, INT_MAX), BYTES)
        .doc("Bytes of one queue file, rounded up to a multiple of 20."),
    number("mapper_file_size_batch_consume_queue", "mapperFileSizeBatchConsumeQueue", Some(13_800_000), (46, INT_MAX), BYTES)
        .doc("Bytes of one batch queue file, rounded down to a multiple of 46."),
    number("mapped_file_size_consume_queue_ext", "mappedFileSizeConsumeQueueExt", Some(50_331_648), (24, INT_MAX), BYTES)
        .doc("Bytes of one extension file of a queue."),
    number("bit_map_length_consume_queue_ext", "bitMapLengthConsumeQueueExt", Some(64), (0, INT_MAX), "bits"),
    flag("enable_consume_queue_ext", "enableConsumeQueueExt", false)
        .doc("Write the queues' extension files."),
    flag("enable_lmq", "enableLmq", false)
        .doc("Give light queues (``%LMQ%...``) their offsets."),
    flag("enable_multi_dispatch", "enableMultiDispatch", false)
        .doc("Enter a message in each queue that it names."),
    number("max_hash_slot_num", "maxHashSlotNum", Some(IndexLayout::DEFAULT.slots() as u64), (1, 1 << 29), "slots")
        .under("Index:")
        .doc("Hash slots of an index file."),
    number("max_index_num", "maxIndexNum", Some(IndexLayout::DEFAULT.entries() as u64), (2, 1 << 27), "entries")
        .doc("Room for entries in an index file, one of which is never used."),
    flag("message_index_enable", "messageIndexEnable", true)
        .doc("Build the index."),
    flag("message_index_safe", "messageIndexSafe", false)
        .doc("Begin recovery no later than the index reaches."),
    number("max_msgs_num_batch", "maxMsgsNumBatch", Some(64), (1, 65_536), "messages")
        .doc("Most messages of a key query by RocketMQ's rules (``exact=False``)."),
    number("default_query_max_num", "defaultQueryMaxNum", Some(32), (0, INT_MAX), "messages"),
    number("max_message_size", "maxMessageSize", Some(4_194_304), (1, 1 << 30), BYTES)
        .under("Messages:")
        .doc("Most bytes of a body."),
    flag("auto_message_version_on_topic_len", "autoMessageVersionOnTopicLen", true)
        .doc("Write the second record version where a topic is longer than 127 characters."),
    number("max_topic_length", "maxTopicLength", Some(127), (0, INT_MAX), "characters"),
    flag("enabled_append_prop_crc", "enabledAppendPropCRC", false)
        .doc("End the properties with a checksum of the record."),
    flag("force_verify_prop_crc", "forceVerifyPropCRC", false)
        .doc("In recovery, check that checksum and not the body's."),
    flag("check_crc_on_recover", "checkCRCOnRecover", true)
        .doc("Check checksums in recovery."),
    flag("duplication_enable", "duplicationEnable", false),
    text("message_delay_level", "messageDelayLevel", DELAY_LEVELS, are_delays, "delays such as 1s 5m 2h")
        .doc("The delays of the levels that property ``DELAY`` names."),
    flag("timer_wheel_enable", "timerWheelEnable", true)
        .doc("Whether a broker reads the timer's files, so that wrong ones keep it from starting."),
    text("broker_ip1", "brokerIP1", "127.0.0.1", is_address, "an IP address")
        .doc("The store's address, in message ids and as ``store_host``: an IPv4 or IPv6 address."),
    number("listen_port", "listenPort", Some(10_911), (0, 65_535), "port")
        .doc("The port beside it."),
    choice("flush_disk_type", "flushDiskType", Some("ASYNC_FLUSH"), &["ASYNC_FLUSH", "SYNC_FLUSH"])
        .under("Flush:")
        .doc("``\"ASYNC_FLUSH\"`` or ``\"SYNC_FLUSH\"``."),
    number("sync_flush_timeout", "syncFlushTimeout", Some(5_000), (1, DAY_MS), MS)
        .doc("Milliseconds that an append waits for its flush."),
    number("slave_timeout", "slaveTimeout", Some(3_000), (0, INT_MAX), MS),
    number("flush_interval_commit_log", "flushIntervalCommitLog", Some(500), (1, DAY_MS), MS)
        .doc("Milliseconds between two flushes of the log."),
    flag("flush_commit_log_timed", "flushCommitLogTimed", true),
    number("flush_commit_log_least_pages", "flushCommitLogLeastPages", Some(4), (0, 1 << 20), "pages")
        .doc("Pages of 4,096 bytes that a flush waits for."),
    number("flush_commit_log_thorough_interval", "flushCommitLogThoroughInterval", Some(10_000), (1, DAY_MS), MS)
        .doc("Milliseconds after which it waits for none."),
    flag("transient_store_pool_enable", "transientStorePoolEnable", false),
    number("transient_store_pool_size", "transientStorePoolSize", Some(5), (0, INT_MAX), "buffers"),
    number("commit_interval_commit_log", "commitIntervalCommitLog", Some(200), (0, INT_MAX), MS),
    number("commit_commit_log_least_pages", "commitCommitLogLeastPages", Some(4), (0, INT_MAX), "pages"),
    number("commit_commit_log_thorough_interval", "commitCommitLogThoroughInterval", Some(200), (0, INT_MAX), MS),
    flag("wake_flush_when_put_message", "wakeFlushWhenPutMessage", false),
    flag("wake_commit_when_put_message", "wakeCommitWhenPutMessage", true),
    number("flush_interval_consume_queue", "flushIntervalConsumeQueue", Some(1_000), (1, DAY_MS), MS)
        .doc("Milliseconds between two flushes of the queues."),
    number("flush_consume_queue_least_pages", "flushConsumeQueueLeastPages", Some(2), (0, INT_MAX), "pages"),
    number("flush_consume_queue_thorough_interval", "flushConsumeQueueThoroughInterval", Some(60_000), (1, DAY_MS), MS)
        .doc("Milliseconds after which they are made durable."),
    flag("put_consume_queue_data_by_file_channel", "putConsumeQueueDataByFileChannel", true),
    flag("read_un_committed", "readUnCommitted", false),
    number("max_transfer_bytes_on_message_in_memory", "maxTransferBytesOnMessageInMemory", Some(262_144), (1, INT_MAX), BYTES)
        .under("One read of a queue, under ``emulate_transfer_limits``:")
        .doc("Bytes of recent messages."),
    number("max_transfer_count_on_message_in_memory", "maxTransferCountOnMessageInMemory", Some(32), (1, INT_MAX), "messages")
        .doc("How many of them."),
    number("max_transfer_bytes_on_message_in_disk", "maxTransferBytesOnMessageInDisk", Some(65_536), (1, INT_MAX), BYTES)
        .doc("Bytes of old messages."),
    number("max_transfer_count_on_message_in_disk", "maxTransferCountOnMessageInDisk", Some(8), (1, INT_MAX), "messages")
        .doc("How many of them."),
    number("access_message_in_memory_max_ratio", "accessMessageInMemoryMaxRatio", Some(40), (0, 100), "per cent")
        .doc("What is recent: this per cent of the memory."),
    number("max_filter_message_size", "maxFilterMessageSize", Some(16_000), (20, INT_MAX), BYTES)
        .doc("Bytes of queue entries looked at."),
    number("travel_cq_file_num_when_get_message", "travelCqFileNumWhenGetMessage", Some(1), (0, INT_MAX), "files"),
    flag("recheck_reput_offset_from_cq", "recheckReputOffsetFromCq", false),
    number("os_page_cache_busy_time_out_mills", "osPageCacheBusyTimeOutMills", Some(1_000), (0, INT_MAX), MS),
    choice("retention", "retention", Some("off"), &["off", "rocketmq"])
        .under("Retention. No file is deleted unless ``retention``, ``keep_hours`` or ``keep_bytes`` is given:")
        .doc("``\"off\"`` keeps every file; ``\"rocketmq\"`` deletes by RocketMQ's rules and the \
             settings below."),
    number("keep_hours", "keep_hours", None, (1, 1 << 24), "hours")
        .doc("Delete a file once its newest message was stored so many hours ago. Not beside \
             ``retention``. None."),
    number("keep_bytes", "keep_bytes", None, (1, 1 << 62), BYTES)
        .doc("Delete a file once so many bytes of the log lie behind it. With both limits given \
             one is enough. Not beside ``retention``. None."),
    number("disk_reserve_bytes", "disk_reserve_bytes", None, (0, 1 << 62), BYTES)
        .doc("Bytes that appends leave free on the disk; an append that would leave less fails \
             with ``StoreIOError``, ``ENOSPC``. By default what a clean close needs."),
    number("file_reserved_time", "fileReservedTime", Some(72), (0, 1 << 24), "hours")
        .under("RocketMQ's rules, under ``retention=\"rocketmq\"`` and ``mqstore clean``:")
        .doc("Hours that a commit log file is kept."),
    text("delete_when", "deleteWhen", "04", are_hours, "hours 00 to 23 joined by ;")
        .doc("Hours of the day at which files are deleted, joined by ``;``."),
    number("disk_max_used_space_ratio", "diskMaxUsedSpaceRatio", Some(75), (10, 95), "per cent")
        .doc("Per cent of the disk in use past which expired files go at any hour."),
    number("disk_space_clean_forcibly_ratio", "diskSpaceCleanForciblyRatio", Some(85), (0, 100), "per cent")
        .doc("Per cent past which files go though not expired, 30 to 85."),
    number("disk_space_warning_level_ratio", "diskSpaceWarningLevelRatio", Some(90), (0, 100), "per cent")
        .doc("Per cent past which nothing is appended, 35 to 90."),
    number("clean_resource_interval", "cleanResourceInterval", Some(10_000), (1, DAY_MS), MS)
        .doc("Milliseconds between two rounds."),
    number("delete_file_batch_max", "deleteFileBatchMax", Some(10), (1, 1 << 24), "files")
        .doc("How many files of the log go in one round."),
    number("delete_commit_log_files_interval", "deleteCommitLogFilesInterval", Some(100), (0, INT_MAX), MS),
    number("destroy_maped_file_interval_forcibly", "destroyMapedFileIntervalForcibly", Some(120_000), (0, INT_MAX), MS),
    flag("clean_file_forcibly_enable", "cleanFileForciblyEnable", true)
        .doc("Whether files may go though not expired."),
    number("flush_delay_offset_interval", "flushDelayOffsetInterval", Some(10_000), (0, INT_MAX), MS),
    number("flush_consumer_offset_interval", "flushConsumerOffsetInterval", Some(5_000), (0, INT_MAX), MS),
    choice("rocketmq_version", "rocketmq_version", None, &["5.3", "5.4", "5.5"])
        .under("Ours:")
        .doc("Whose files are written: ``\"5.3\"``, ``\"5.4\"`` or ``\"5.5\"``. From 5.4 on the \
             index has an entry for the tags of each message, from 5.5 on the checkpoint says up \
             to which message the queues are flushed. An older one than the store shows is \
             refused. ``\"5.3\"`` for a new store, else what the store shows."),
    flag("validate_topic_names", "", true)
        .doc("Refuse a topic that is empty, longer than 127 bytes (255 behind ``%RETRY%``), or has \
             other characters than ``%``, ``|``, letters, digits, ``_`` and ``-``."),
    number("max_queue_id", "max_queue_id", Some(1_023), (0, INT_MAX), "")
        .doc("Refuse a new queue with a higher number in a topic that has none half as high, as a \
             mistake: a broker would be given all queues below it. Without effect where topic \
             names are not validated."),
    flag("delivery", "", false)
        .doc("Deliver delayed messages when they are due, and the failed messages of consumer \
             groups, while this writer has the store open. Not given: from the first group or \
             delay on in a store that mqstore made, and not in a broker's. A broker does it by \
             itself."),
    flag("emulate_transfer_limits", "", false)
        .doc("Keep to RocketMQ's limits of one read."),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::StoreConfig;

    #[test]
    fn each_setting_has_one_row() {
        let names: BTreeSet<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        let conf_names: BTreeSet<_> = SETTINGS.iter().map(|setting| setting.conf_name).collect();
        assert_eq!(names.len(), SETTINGS.len());
        // Some of ours are not read from a broker.conf.
        let of_file = SETTINGS.iter().filter(|setting| !setting.conf_name.is_empty()).count();
        assert_eq!(conf_names.len(), of_file + 1);
        assert!(names.iter().all(|name| Setting::of(name).unwrap().name == *name));
    }

    #[test]
    fn a_store_takes_the_settings_that_have_an_effect_and_starts_with_their_defaults() {
        let mut config = StoreConfig::default();
        for setting in SETTINGS {
            let Some(default) = setting.default_text() else { continue };
            assert_eq!(setting.refusal(&default), None, "{}", setting.name);
            assert_eq!(config.set(setting.name, &default).unwrap(), setting.has_effect());
        }
        assert_eq!(config.mapped_file_size_commit_log.take(), Some(1 << 30));
        assert_eq!(config.mapped_file_size_consume_queue.take(), Some(6_000_000));
        assert_eq!(config.mapper_file_size_batch_consume_queue.take(), Some(13_800_000));
        assert_eq!(config.mapped_file_size_consume_queue_ext.take(), Some(50_331_648));
        assert_eq!(config.max_hash_slot_num.take(), Some(5_000_000));
        assert_eq!(config.max_index_num.take(), Some(20_000_000));
        assert_eq!(config.retention.take(), Some(crate::config::Retention::Off));
        // A default folder is no folder given.
        assert_eq!(config.store_path_commit_log.pop(), Some("commitlog".into()));
        config.given.clear();
        assert_eq!(config, StoreConfig::default());
    }

    #[test]
    fn a_setting_without_a_default_is_taken_too() {
        for (name, value) in [("rocketmq_version", "5.4"), ("keep_hours", "1"), ("keep_bytes", "1")]
        {
            assert!(StoreConfig::default().set(name, value).unwrap(), "{name}");
        }
        assert!(StoreConfig::default().set("disk_reserve_bytes", "0").unwrap());
    }

    #[test]
    fn limits_are_inside_the_range() {
        for setting in SETTINGS {
            let Kind::Number { least, most, .. } = setting.kind else { continue };
            for number in [least, most] {
                assert_eq!(setting.refusal(&number.to_string()), None, "{}", setting.name);
                assert_eq!(
                    StoreConfig::default().set(setting.name, &number.to_string()).unwrap(),
                    setting.has_effect(),
                );
            }
            let refusal = Some(format!("{least} to {most}"));
            assert_eq!(setting.refusal(&(most + 1).to_string()), refusal);
            if let Some(less) = least.checked_sub(1) {
                assert_eq!(setting.refusal(&less.to_string()), refusal);
            }
        }
    }
}
