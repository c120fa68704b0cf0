//! The store's settings: RocketMQ's names in snake case and its defaults, checked at open
//! (`org.apache.rocketmq.store.config.MessageStoreConfig`).

pub mod table;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::format::index::IndexLayout;
use crate::format::message::host::Host;
use crate::format::queue::consume_queue::DelayLevels;
use crate::format::release::Release;
use crate::format::width;

use table::{default_flag, default_number, default_text};

pub use table::{SETTINGS, Setting};

/// When an append is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FlushDiskType {
    /// Once written; flushed within seconds.
    #[serde(rename = "ASYNC_FLUSH")]
    Async,
    /// Once durable.
    #[serde(rename = "SYNC_FLUSH")]
    Sync,
}

/// Source of the rules for automatic deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Retention {
    Off,
    /// RocketMQ's rules: `file_reserved_time` and disk usage.
    RocketMq,
}

impl Retention {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::RocketMq => "rocketmq",
        }
    }
}

/// Rules for automatic deletion of log files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteRules {
    Off,
    /// RocketMQ's rules and settings.
    RocketMq,
    /// The oldest file is deleted once one of the limits allows it.
    Keep {
        hours: Option<u64>,
        bytes: Option<u64>,
    },
}

/// Settings of an open store. `None` means: as the existing files are.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreConfig {
    /// Release whose files are written; 5.3 for a new store.
    pub rocketmq_version: Option<Release>,
    /// Folders of the commit log outside the root (`storePathCommitLog`).
    pub store_path_commit_log: Vec<PathBuf>,
    /// Folders that take no new log files (`readOnlyCommitLogStorePaths`).
    pub read_only_commit_log_store_paths: Vec<PathBuf>,
    /// Bytes of a commit log file; 1 GiB in a new store.
    pub mapped_file_size_commit_log: Option<u64>,
    /// Whether new log files are loaded into memory.
    pub warm_maped_file_enable: bool,
    /// Bytes of a consume queue file, rounded up to whole entries; default 6,000,000.
    pub mapped_file_size_consume_queue: Option<u64>,
    /// Bytes of a batch queue file, rounded down to whole entries; default 13,800,000.
    pub mapper_file_size_batch_consume_queue: Option<u64>,
    /// Whether new queue entries use the queue extension.
    pub enable_consume_queue_ext: bool,
    /// Bytes of an extension file; default 50,331,648.
    pub mapped_file_size_consume_queue_ext: Option<u64>,
    /// Slots of an index file; default 5,000,000.
    pub max_hash_slot_num: Option<u32>,
    /// Entries of an index file; default 20,000,000.
    pub max_index_num: Option<u32>,
    /// Whether keys are indexed.
    pub message_index_enable: bool,
    /// When an append is acknowledged.
    pub flush_disk_type: FlushDiskType,
    /// Interval between flushes of the log, in milliseconds.
    pub flush_interval_commit_log: u64,
    /// 4 KiB pages that must be dirty before the log is flushed.
    pub flush_commit_log_least_pages: u64,
    /// Interval after which the log is flushed regardless, in milliseconds.
    pub flush_commit_log_thorough_interval: u64,
    /// Interval between writes of the queues, in milliseconds.
    pub flush_interval_consume_queue: u64,
    /// Interval between flushes of the queues, in milliseconds.
    pub flush_consume_queue_thorough_interval: u64,
    /// Timeout of an append's flush, in milliseconds.
    pub sync_flush_timeout: u64,
    /// Maximum bytes of a body.
    pub max_message_size: u64,
    /// Whether records get a checksum of head and properties.
    pub enabled_append_prop_crc: bool,
    /// Whether recovery requires that checksum.
    pub force_verify_prop_crc: bool,
    /// Whether recovery checks bodies.
    pub check_crc_on_recover: bool,
    /// Whether topics over 127 characters use record version 2.
    pub auto_message_version_on_topic_len: bool,
    /// Whether recovery starts where the index is safe.
    pub message_index_safe: bool,
    /// Whether `%LMQ%` queues are numbered at append.
    pub enable_lmq: bool,
    /// Whether messages are dispatched to several queues.
    pub enable_multi_dispatch: bool,
    /// Delay levels.
    pub message_delay_level: DelayLevels,
    /// Store address in records.
    pub store_host: Host,
    /// Maximum messages of a key query.
    pub max_msgs_num_batch: usize,
    /// Whether reads obey RocketMQ's transfer limits.
    pub emulate_transfer_limits: bool,
    /// Whether this writer delivers delayed and failed messages.
    pub delivery: bool,
    /// Values of RocketMQ's transfer limits.
    pub transfer_limits: TransferLimits,
    /// Whether topic names are validated as by a broker.
    pub validate_topic_names: bool,
    /// Highest number of a new queue in a topic without a queue half as high.
    pub max_queue_id: i32,
    /// Retention rules; `None` without rules or limits, which deletes nothing.
    pub retention: Option<Retention>,
    /// Hours a message is kept, by store time.
    pub keep_hours: Option<u64>,
    /// Bytes kept at the end of the log.
    pub keep_bytes: Option<u64>,
    /// Bytes of disk that appends leave free; `None` is enough to close cleanly.
    pub disk_reserve_bytes: Option<u64>,
    /// Hours a file is kept by RocketMQ's rules.
    pub file_reserved_time: u64,
    /// Hours of the day for deletion, as `04` or `04;16`.
    pub delete_when: String,
    /// Maximum log files deleted in one round.
    pub delete_file_batch_max: u64,
    /// Whether a full disk deletes files before they expire.
    pub clean_file_forcibly_enable: bool,
    /// Disk usage in percent that stops appends.
    pub disk_space_warning_level_ratio: u64,
    /// Disk usage in percent that deletes expired files at any hour.
    pub disk_max_used_space_ratio: u64,
    /// Disk usage in percent that deletes files before they expire; a folder above it takes no new
    /// files while others do.
    pub disk_space_clean_forcibly_ratio: u64,
    /// Interval between retention checks, in milliseconds.
    pub clean_resource_interval: u64,
    /// Names set by [`StoreConfig::set`], even to a default.
    pub given: BTreeSet<String>,
}

/// Limits of one read of a queue (`DefaultMessageStore.isTheBatchFull`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferLimits {
    /// Bytes, for messages that are likely in memory.
    pub max_transfer_bytes_on_message_in_memory: u64,
    /// Messages that are likely in memory.
    pub max_transfer_count_on_message_in_memory: u64,
    /// Bytes, for older messages.
    pub max_transfer_bytes_on_message_in_disk: u64,
    /// Older messages.
    pub max_transfer_count_on_message_in_disk: u64,
    /// Percent of memory that counts as recent.
    pub access_message_in_memory_max_ratio: u64,
    /// Bytes of queue entries examined.
    pub max_filter_message_size: u64,
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self {
            max_transfer_bytes_on_message_in_memory: const {
                default_number("max_transfer_bytes_on_message_in_memory")
            },
            max_transfer_count_on_message_in_memory: const {
                default_number("max_transfer_count_on_message_in_memory")
            },
            max_transfer_bytes_on_message_in_disk: const {
                default_number("max_transfer_bytes_on_message_in_disk")
            },
            max_transfer_count_on_message_in_disk: const {
                default_number("max_transfer_count_on_message_in_disk")
            },
            access_message_in_memory_max_ratio: const {
                default_number("access_message_in_memory_max_ratio")
            },
            max_filter_message_size: const { default_number("max_filter_message_size") },
        }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            rocketmq_version: None,
            store_path_commit_log: Vec::new(),
            read_only_commit_log_store_paths: Vec::new(),
            mapped_file_size_commit_log: None,
            warm_maped_file_enable: const { default_flag("warm_maped_file_enable") },
            mapped_file_size_consume_queue: None,
            mapper_file_size_batch_consume_queue: None,
            enable_consume_queue_ext: const { default_flag("enable_consume_queue_ext") },
            mapped_file_size_consume_queue_ext: None,
            max_hash_slot_num: None,
            max_index_num: None,
            message_index_enable: const { default_flag("message_index_enable") },
            flush_disk_type: FlushDiskType::Async,
            flush_interval_commit_log: const { default_number("flush_interval_commit_log") },
            flush_commit_log_least_pages: const { default_number("flush_commit_log_least_pages") },
            flush_commit_log_thorough_interval: const {
                default_number("flush_commit_log_thorough_interval")
            },
            flush_interval_consume_queue: const { default_number("flush_interval_consume_queue") },
            flush_consume_queue_thorough_interval: const {
                default_number("flush_consume_queue_thorough_interval")
            },
            sync_flush_timeout: const { default_number("sync_flush_timeout") },
            max_message_size: const { default_number("max_message_size") },
            enabled_append_prop_crc: const { default_flag("enabled_append_prop_crc") },
            force_verify_prop_crc: const { default_flag("force_verify_prop_crc") },
            check_crc_on_recover: const { default_flag("check_crc_on_recover") },
            auto_message_version_on_topic_len: const {
                default_flag("auto_message_version_on_topic_len")
            },
            message_index_safe: const { default_flag("message_index_safe") },
            enable_lmq: const { default_flag("enable_lmq") },
            enable_multi_dispatch: const { default_flag("enable_multi_dispatch") },
            message_delay_level: DelayLevels::default(),
            store_host: Host::V4([127, 0, 0, 1], 10911),
            max_msgs_num_batch: width::to_usize(const { default_number("max_msgs_num_batch") }),
            emulate_transfer_limits: const { default_flag("emulate_transfer_limits") },
            delivery: const { default_flag("delivery") },
            transfer_limits: TransferLimits::default(),
            validate_topic_names: const { default_flag("validate_topic_names") },
            max_queue_id: 1_023,
            retention: None,
            keep_hours: None,
            keep_bytes: None,
            disk_reserve_bytes: None,
            file_reserved_time: const { default_number("file_reserved_time") },
            delete_when: const { default_text("delete_when") }.to_owned(),
            delete_file_batch_max: const { default_number("delete_file_batch_max") },
            clean_file_forcibly_enable: const { default_flag("clean_file_forcibly_enable") },
            disk_space_warning_level_ratio: const { default_number("disk_space_warning_level_ratio") },
            disk_max_used_space_ratio: const { default_number("disk_max_used_space_ratio") },
            disk_space_clean_forcibly_ratio: const { default_number("disk_space_clean_forcibly_ratio") },
            clean_resource_interval: const { default_number("clean_resource_interval") },
            given: BTreeSet::new(),
        }
    }
}

impl StoreConfig {
    /// Default file size of the commit log.
    pub const COMMIT_LOG_FILE: u64 = default_number("mapped_file_size_commit_log");
    /// Default file size of consume queues.
    pub const CONSUME_QUEUE_FILE: u64 = default_number("mapped_file_size_consume_queue");
    /// Default file size of batch queues.
    pub const BATCH_QUEUE_FILE: u64 = default_number("mapper_file_size_batch_consume_queue");
    /// Default file size of queue extensions.
    pub const QUEUE_EXT_FILE: u64 = default_number("mapped_file_size_consume_queue_ext");
    /// Name among [`StoreConfig::given`] if all are of a `broker.conf`.
    pub const BROKER_CONF: &str = "broker_conf";
    /// Default slots of an index file.
    pub const INDEX_SLOTS: u32 = IndexLayout::DEFAULT.slots();
    /// Default entries of an index file.
    pub const INDEX_ENTRIES: u32 = IndexLayout::DEFAULT.entries();

    /// Sets one setting from text; returns `false` for an unknown name.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] for an invalid value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        let is_known = self.assign(name, value)?;
        if is_known {
            self.given.insert(name.to_owned());
        }
        Ok(is_known)
    }

    fn assign(&mut self, name: &str, value: &str) -> Result<bool> {
        let Some(setting) = Setting::of(name).filter(|setting| setting.has_effect()) else {
            return Ok(false);
        };
        if let Some(expected) = setting.refusal(value) {
            return Err(invalid(name, &expected, value));
        }
        let limits = &mut self.transfer_limits;
        match name {
            "rocketmq_version" => {
                self.rocketmq_version = Some(parsed(setting, value, |text| text.parse().ok())?);
            }
            "store_path_commit_log" => {
                self.store_path_commit_log = folders(value);
            }
            "read_only_commit_log_store_paths" => {
                self.read_only_commit_log_store_paths = folders(value);
            }
            "mapped_file_size_commit_log" => {
                self.mapped_file_size_commit_log = Some(number(setting, value)?);
            }
            "warm_maped_file_enable" => self.warm_maped_file_enable = flag(setting, value)?,
            "mapped_file_size_consume_queue" => {
                let bytes: u64 = number(setting, value)?;
                self.mapped_file_size_consume_queue = Some(bytes.div_ceil(20) * 20);
            }
            "mapper_file_size_batch_consume_queue" => {
                let bytes: u64 = number(setting, value)?;
                self.mapper_file_size_batch_consume_queue = Some(bytes / 46 * 46);
            }
            "enable_consume_queue_ext" => self.enable_consume_queue_ext = flag(setting, value)?,
            "mapped_file_size_consume_queue_ext" => {
                self.mapped_file_size_consume_queue_ext = Some(number(setting, value)?);
            }
            "message_delay_level" => {
                self.message_delay_level = parsed(setting, value, DelayLevels::parse)?;
            }
            "max_hash_slot_num" => {
                self.max_hash_slot_num = Some(number(setting, value)?);
            }
            "max_index_num" => self.max_index_num = Some(number(setting, value)?),
            "message_index_enable" => self.message_index_enable = flag(setting, value)?,
            "flush_disk_type" => {
                self.flush_disk_type = match value {
                    "SYNC_FLUSH" => FlushDiskType::Sync,
                    _ => FlushDiskType::Async,
                };
            }
            "flush_interval_commit_log" => {
                self.flush_interval_commit_log = number(setting, value)?;
            }
            "flush_commit_log_least_pages" => {
                self.flush_commit_log_least_pages = number(setting, value)?;
            }
            "flush_commit_log_thorough_interval" => {
                self.flush_commit_log_thorough_interval = number(setting, value)?;
            }
            "flush_interval_consume_queue" => {
                self.flush_interval_consume_queue = number(setting, value)?;
            }
            "flush_consume_queue_thorough_interval" => {
                self.flush_consume_queue_thorough_interval = number(setting, value)?;
            }
            "sync_flush_timeout" => self.sync_flush_timeout = number(setting, value)?,
            "max_message_size" => self.max_message_size = number(setting, value)?,
            "enabled_append_prop_crc" => self.enabled_append_prop_crc = flag(setting, value)?,
            "force_verify_prop_crc" => self.force_verify_prop_crc = flag(setting, value)?,
            "check_crc_on_recover" => self.check_crc_on_recover = flag(setting, value)?,
            "auto_message_version_on_topic_len" => {
                self.auto_message_version_on_topic_len = flag(setting, value)?;
            }
            "message_index_safe" => self.message_index_safe = flag(setting, value)?,
            "enable_lmq" => self.enable_lmq = flag(setting, value)?,
            "enable_multi_dispatch" => self.enable_multi_dispatch = flag(setting, value)?,
            "broker_ip1" => {
                let address = parsed(setting, value, |text| text.parse().ok())?;
                self.store_host = Host::new(address, self.store_host.port());
            }
            "listen_port" => {
                let port = number(setting, value)?;
                self.store_host = self.store_host.with_port(port);
            }
            "max_msgs_num_batch" => self.max_msgs_num_batch = number(setting, value)?,
            "emulate_transfer_limits" => self.emulate_transfer_limits = flag(setting, value)?,
            "delivery" => self.delivery = flag(setting, value)?,
            "max_transfer_bytes_on_message_in_memory" => {
                limits.max_transfer_bytes_on_message_in_memory = number(setting, value)?;
            }
            "max_transfer_count_on_message_in_memory" => {
                limits.max_transfer_count_on_message_in_memory = number(setting, value)?;
            }
            "max_transfer_bytes_on_message_in_disk" => {
                limits.max_transfer_bytes_on_message_in_disk = number(setting, value)?;
            }
            "max_transfer_count_on_message_in_disk" => {
                limits.max_transfer_count_on_message_in_disk = number(setting, value)?;
            }
            "access_message_in_memory_max_ratio" => {
                limits.access_message_in_memory_max_ratio = number(setting, value)?;
            }
            "max_filter_message_size" => {
                limits.max_filter_message_size = number(setting, value)?;
            }
            "validate_topic_names" => self.validate_topic_names = flag(setting, value)?,
            "max_queue_id" => self.max_queue_id = number(setting, value)?,
            "retention" => {
                self.retention = Some(match value {
                    "rocketmq" => Retention::RocketMq,
                    _ => Retention::Off,
                });
            }
            "keep_hours" => self.keep_hours = Some(number(setting, value)?),
            "keep_bytes" => self.keep_bytes = Some(number(setting, value)?),
            "disk_reserve_bytes" => {
                self.disk_reserve_bytes = Some(number(setting, value)?);
            }
            "file_reserved_time" => self.file_reserved_time = number(setting, value)?,
            "delete_when" => value.clone_into(&mut self.delete_when),
            "delete_file_batch_max" => {
                self.delete_file_batch_max = number(setting, value)?;
            }
            "clean_file_forcibly_enable" => self.clean_file_forcibly_enable = flag(setting, value)?,
            "disk_space_warning_level_ratio" => {
                self.disk_space_warning_level_ratio = number(setting, value)?;
            }
            "disk_max_used_space_ratio" => {
                self.disk_max_used_space_ratio = number(setting, value)?;
            }
            "disk_space_clean_forcibly_ratio" => {
                self.disk_space_clean_forcibly_ratio = number(setting, value)?;
            }
            "clean_resource_interval" => {
                self.clean_resource_interval = number(setting, value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses `keep_hours` and `keep_bytes` beside rules that contradict them.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`], naming the limit.
    pub fn check_retention(&self) -> Result<()> {
        let Some(retention) = self.retention else { return Ok(()) };
        let given = [("keep_hours", self.keep_hours), ("keep_bytes", self.keep_bytes)];
        match given.into_iter().find(|(_, limit)| limit.is_some()) {
            None => Ok(()),
            Some((field, _)) => Err(Error::InvalidConfig {
                field: field.to_owned(),
                reason: format!(
                    "cannot be given with retention={:?}; leave out one of them",
                    retention.name()
                ),
            }),
        }
    }

    /// The rules for automatic deletion.
    #[must_use]
    pub fn delete_rules(&self) -> DeleteRules {
        match (self.retention, self.keep_hours, self.keep_bytes) {
            (Some(Retention::RocketMq), ..) => DeleteRules::RocketMq,
            (Some(Retention::Off), ..) | (None, None, None) => DeleteRules::Off,
            (None, hours, bytes) => DeleteRules::Keep { hours, bytes },
        }
    }
}

fn invalid(name: &str, wanted: &str, value: &str) -> Error {
    Error::InvalidConfig {
        field: name.to_owned(),
        reason: format!("expected {wanted}, found {value:?}"),
    }
}

fn folders(value: &str) -> Vec<PathBuf> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty()).map(PathBuf::from).collect()
}

fn parsed<T>(setting: &Setting, value: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
    parse(value).ok_or_else(|| invalid(setting.name, setting.name, value))
}

fn flag(setting: &Setting, value: &str) -> Result<bool> {
    parsed(setting, value, table::flag_of)
}

fn number<T: TryFrom<u64>>(setting: &Setting, value: &str) -> Result<T> {
    parsed(setting, value, |text| {
        table::number_of(text).and_then(|number| T::try_from(number).ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq05_queue_files_hold_whole_entries() {
        let mut config = StoreConfig::default();
        config.set("mapped_file_size_consume_queue", "128").unwrap();
        assert_eq!(config.mapped_file_size_consume_queue, Some(140));
    }

    #[test]
    fn addresses_come_from_two_settings_in_any_order() {
        for settings in [
            [("broker_ip1", "10.1.2.3"), ("listen_port", "99")],
            [("listen_port", "99"), ("broker_ip1", "10.1.2.3")],
        ] {
            let mut config = StoreConfig::default();
            for (name, value) in settings {
                assert!(config.set(name, value).unwrap());
            }
            assert_eq!(config.store_host.to_string(), "10.1.2.3:99");
        }
        let mut config = StoreConfig::default();
        config.set("broker_ip1", "2001:db8::1").unwrap();
        assert_eq!(config.store_host.to_string(), "[2001:db8::1]:10911");
    }

    #[test]
    fn bad_values_name_setting_and_range() {
        let mut config = StoreConfig::default();
        for (name, value) in [
            ("max_hash_slot_num", "0"),
            ("max_index_num", "-1"),
            ("message_index_enable", "yes"),
            ("flush_disk_type", "sync"),
            ("delete_when", "24"),
            ("broker_ip1", "localhost"),
            ("message_delay_level", "1s 5x"),
            ("mapper_file_size_batch_consume_queue", "45"),
            ("retention", "on"),
            ("keep_hours", "0"),
            ("keep_bytes", "-1"),
            ("disk_reserve_bytes", "1 GiB"),
            ("rocketmq_version", "5.2"),
        ] {
            let message = config.set(name, value).unwrap_err().to_string();
            assert!(message.starts_with(name) && message.contains(value), "{message}");
        }
        assert!(!config.set("broker_name", "a").unwrap());
        assert_eq!(config, StoreConfig::default());
    }

    #[test]
    fn nothing_is_deleted_unless_rules_or_limits_are_given() {
        let rules = |settings: &[(&str, &str)]| {
            let mut config = StoreConfig::default();
            for (name, value) in settings {
                assert!(config.set(name, value).unwrap());
            }
            config.check_retention().map(|()| config.delete_rules()).map_err(|e| e.to_string())
        };
        let kept = |hours, bytes| Ok(DeleteRules::Keep { hours, bytes });
        assert_eq!(rules(&[]), Ok(DeleteRules::Off));
        assert_eq!(rules(&[("file_reserved_time", "1")]), Ok(DeleteRules::Off));
        assert_eq!(rules(&[("retention", "off")]), Ok(DeleteRules::Off));
        assert_eq!(rules(&[("retention", "rocketmq")]), Ok(DeleteRules::RocketMq));
        assert_eq!(rules(&[("keep_hours", "5")]), kept(Some(5), None));
        assert_eq!(rules(&[("keep_hours", "5"), ("keep_bytes", "9")]), kept(Some(5), Some(9)));
        for retention in ["off", "rocketmq"] {
            for limit in ["keep_hours", "keep_bytes"] {
                let error = rules(&[("retention", retention), (limit, "5")]).unwrap_err();
                assert!(error.starts_with(limit) && error.contains(retention), "{error}");
            }
        }
    }
}
