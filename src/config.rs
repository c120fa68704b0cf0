//! The store's settings: RocketMQ's names in snake case and its defaults, checked at open
//! (`org.apache.rocketmq.store.config.MessageStoreConfig`).

pub mod table;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;

use crate::error::{Error, Result, named};
use crate::format::index::IndexLayout;
use crate::format::message::host::Host;
use crate::format::queue::consume_queue::DelayLevels;
use crate::format::release::Release;

use table::default_number;

pub use table::{SETTINGS, Setting};

/// When an append is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum FlushDiskType {
    /// Once written; flushed within seconds.
    #[default]
    #[serde(rename = "ASYNC_FLUSH")]
    Async,
    /// Once durable.
    #[serde(rename = "SYNC_FLUSH")]
    Sync,
}

named! {
    /// Source of the rules for automatic deletion.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Retention {
        Off = "off",
        /// RocketMQ's rules: `file_reserved_time` and disk usage.
        RocketMq = "rocketmq",
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

/// Makes a struct of settings. A field has the name of its row in [`SETTINGS`], which has its meaning
/// and its default.
macro_rules! settings {
    (
        $(#[$meta:meta])* $config:ident { $($field:ident: $type:ty,)* }
        beside { $($(#[$other_doc:meta])* $other:ident: $other_type:ty = $default:expr,)* }
    ) => {
        $(#[$meta])*
        pub struct $config {
            $(#[doc = concat!("As `", stringify!($field), "` of [`SETTINGS`].")] pub $field: $type,)*
            $($(#[$other_doc])* pub $other: $other_type,)*
        }

        impl Default for $config {
            fn default() -> Self {
                Self {
                    $($field: Value::by_default(const { table::row(stringify!($field)) }),)*
                    $($other: $default,)*
                }
            }
        }

        impl $config {
            fn set_field(&mut self, setting: &Setting, value: &str) -> Result<bool> {
                match setting.name {
                    $(stringify!($field) => self.$field = parsed(setting, value)?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };
}

settings! {
    /// Settings of an open store. `None` means: as the existing files are.
    #[derive(Clone, Debug, PartialEq)]
    StoreConfig {
        rocketmq_version: Option<Release>,
        store_path_commit_log: Vec<PathBuf>,
        read_only_commit_log_store_paths: Vec<PathBuf>,
        store_path_epoch_file: String,
        enable_dleger_commit_log: bool,
        store_path_dledger_commit_log: Vec<PathBuf>,
        mapped_file_size_commit_log: Option<u64>,
        warm_maped_file_enable: bool,
        mapped_file_size_consume_queue: Option<u64>,
        mapper_file_size_batch_consume_queue: Option<u64>,
        enable_consume_queue_ext: bool,
        mapped_file_size_consume_queue_ext: Option<u64>,
        max_hash_slot_num: Option<u32>,
        max_index_num: Option<u32>,
        message_index_enable: bool,
        flush_disk_type: FlushDiskType,
        flush_interval_commit_log: u64,
        flush_commit_log_least_pages: u64,
        flush_commit_log_thorough_interval: u64,
        flush_interval_consume_queue: u64,
        flush_consume_queue_thorough_interval: u64,
        sync_flush_timeout: u64,
        max_message_size: u64,
        enabled_append_prop_crc: bool,
        force_verify_prop_crc: bool,
        check_crc_on_recover: bool,
        auto_message_version_on_topic_len: bool,
        message_index_safe: bool,
        enable_lmq: bool,
        enable_multi_dispatch: bool,
        message_delay_level: DelayLevels,
        timer_wheel_enable: bool,
        max_msgs_num_batch: usize,
        emulate_transfer_limits: bool,
        delivery: bool,
        validate_topic_names: bool,
        max_queue_id: i32,
        retention: Option<Retention>,
        keep_hours: Option<u64>,
        keep_bytes: Option<u64>,
        disk_reserve_bytes: Option<u64>,
        file_reserved_time: u64,
        delete_when: String,
        delete_file_batch_max: u64,
        clean_file_forcibly_enable: bool,
        disk_space_warning_level_ratio: u64,
        disk_max_used_space_ratio: u64,
        disk_space_clean_forcibly_ratio: u64,
        clean_resource_interval: u64,
    }
    beside {
        /// Store address in records.
        store_host: Host = Host::V4([127, 0, 0, 1], 10911),
        /// Values of RocketMQ's transfer limits.
        transfer_limits: TransferLimits = TransferLimits::default(),
        /// Whether an open writer deletes by its rules without being asked.
        deletes_by_itself: bool = true,
        /// Names set by [`StoreConfig::set`], even to a default.
        given: BTreeSet<String> = BTreeSet::new(),
    }
}

settings! {
    /// Limits of one read of a queue (`DefaultMessageStore.isTheBatchFull`).
    #[derive(Clone, Debug, PartialEq, Eq)]
    TransferLimits {
        max_transfer_bytes_on_message_in_memory: u64,
        max_transfer_count_on_message_in_memory: u64,
        max_transfer_bytes_on_message_in_disk: u64,
        max_transfer_count_on_message_in_disk: u64,
        access_message_in_memory_max_ratio: u64,
        max_filter_message_size: u64,
    }
    beside {}
}

/// A type of a setting.
trait Value: Sized {
    fn parse(text: &str) -> Option<Self>;

    fn by_default(setting: &Setting) -> Self
    where
        Self: Default,
    {
        setting.default_text().and_then(|text| Self::parse(&text)).unwrap_or_default()
    }
}

impl<T: Value> Value for Option<T> {
    fn parse(text: &str) -> Option<Self> {
        T::parse(text).map(Some)
    }

    fn by_default(_: &Setting) -> Self {
        None
    }
}

impl Value for Vec<PathBuf> {
    fn parse(text: &str) -> Option<Self> {
        let folders = text.split(',').map(str::trim).filter(|folder| !folder.is_empty());
        Some(folders.map(PathBuf::from).collect())
    }

    fn by_default(_: &Setting) -> Self {
        Self::new()
    }
}

macro_rules! values {
    ($($type:ty: $parse:expr;)*) => {
        $(impl Value for $type {
            fn parse(text: &str) -> Option<Self> {
                $parse(text)
            }
        })*
    };
}

values! {
    bool: table::flag_of;
    u32: number;
    u64: number;
    usize: number;
    i32: number;
    String: |text: &str| Some(text.to_owned());
    DelayLevels: DelayLevels::parse;
    FlushDiskType: |text| Some(if text == "SYNC_FLUSH" { Self::Sync } else { Self::Async });
    Retention: |text| Some(if text == "rocketmq" { Self::RocketMq } else { Self::Off });
    Release: |text: &str| text.parse().ok();
    IpAddr: |text: &str| text.parse().ok();
}

impl StoreConfig {
    /// Default file size of the commit log.
    pub const COMMIT_LOG_FILE: u64 = default_number("mapped_file_size_commit_log");
    /// Default file size of consume queues.
    pub const CONSUME_QUEUE_FILE: u64 = default_number("mapped_file_size_consume_queue");
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
        let is_known = match name {
            "broker_ip1" => {
                self.store_host = Host::new(parsed(setting, value)?, self.store_host.port());
                true
            }
            "listen_port" => {
                self.store_host = self.store_host.with_port(parsed(setting, value)?);
                true
            }
            _ => {
                self.set_field(setting, value)? || self.transfer_limits.set_field(setting, value)?
            }
        };
        // Files hold whole entries.
        let (plain, batch) = (
            &mut self.mapped_file_size_consume_queue,
            &mut self.mapper_file_size_batch_consume_queue,
        );
        *plain = plain.map(|bytes| bytes.div_ceil(20) * 20);
        *batch = batch.map(|bytes| bytes / 46 * 46);
        Ok(is_known)
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
            Some((field, _)) => Err(Error::setting(
                field,
                "no limit beside retention",
                format!("retention={:?} too; leave out one of them", retention.name()),
            )),
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
    Error::setting(name, wanted, format!("{value:?}"))
}

fn parsed<T: Value>(setting: &Setting, value: &str) -> Result<T> {
    T::parse(value).ok_or_else(|| invalid(setting.name, setting.name, value))
}

fn number<T: TryFrom<u64>>(text: &str) -> Option<T> {
    table::number_of(text).and_then(|number| T::try_from(number).ok())
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
