//! `config/mqstore.json`: settings of a store at creation.
//!
//! Order of a setting's sources: caller, files, this file, RocketMQ's default. RocketMQ ignores the
//! file.

use serde_json::{Map, Value, json};

use crate::config::StoreConfig;
use crate::error::{CorruptionKind, Error, Result};
use crate::files::{FileKind, make_folder};
use crate::format::config::json;
use crate::format::release::Release;

use super::config_file::{backup_of, read};
use super::lock;
use super::paths::StorePaths;

const FORMAT_VERSION: u64 = 1;
const MOST_BYTES: usize = 64 << 10;

/// When a writer updates a setting in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Size,
    /// A promise to producers: the first one given.
    Flush,
    /// Delays of the levels: the ones last given.
    Delays,
    /// Release whose files are written: the newest in force.
    Version,
    /// Retention: set at creation, never by a later open.
    Retention,
}

struct RememberedSetting {
    name: &'static str,
    kind: Kind,
    value: fn(&StoreConfig) -> Value,
    copy: fn(&mut StoreConfig, &StoreConfig),
}

macro_rules! setting {
    ($kind:ident, $field:ident) => {
        RememberedSetting {
            name: stringify!($field),
            kind: Kind::$kind,
            value: |config| json!(config.$field),
            copy: |to, from| to.$field.clone_from(&from.$field),
        }
    };
}

const SETTINGS: [RememberedSetting; 20] = [
    setting!(Version, rocketmq_version),
    setting!(Size, mapped_file_size_commit_log),
    setting!(Size, mapped_file_size_consume_queue),
    setting!(Size, mapper_file_size_batch_consume_queue),
    setting!(Size, mapped_file_size_consume_queue_ext),
    setting!(Size, max_hash_slot_num),
    setting!(Size, max_index_num),
    setting!(Flush, flush_disk_type),
    setting!(Delays, message_delay_level),
    setting!(Retention, retention),
    setting!(Retention, keep_hours),
    setting!(Retention, keep_bytes),
    setting!(Retention, disk_reserve_bytes),
    setting!(Retention, file_reserved_time),
    setting!(Retention, delete_when),
    setting!(Retention, delete_file_batch_max),
    setting!(Retention, clean_file_forcibly_enable),
    setting!(Retention, disk_max_used_space_ratio),
    setting!(Retention, disk_space_clean_forcibly_ratio),
    setting!(Retention, disk_space_warning_level_ratio),
];

/// Settings that come together from the caller or the file: only all three tell what may be
/// deleted.
const RULES: [&str; 3] = ["retention", "keep_hours", "keep_bytes"];

impl RememberedSetting {
    fn is_given(&self, config: &StoreConfig) -> bool {
        config.given.contains(self.name)
    }
}

#[derive(Debug, Default)]
pub struct Remembered {
    /// Settings in the file; others have RocketMQ's defaults.
    pub config: StoreConfig,
    root: Option<Map<String, Value>>,
    pub warning: Option<String>,
}

impl Remembered {
    /// Reads the file. A damaged or foreign one gives a warning, and nothing is remembered.
    #[must_use]
    pub fn load(paths: &StorePaths) -> Self {
        match Self::read(paths) {
            Ok(remembered) => remembered,
            Err(error) => Self {
                warning: Some(format!(
                    "{error}; not used: settings that are not given come from the files, then from \
                     RocketMQ's defaults; give them, or remove the file"
                )),
                ..Self::default()
            },
        }
    }

    fn read(paths: &StorePaths) -> Result<Self> {
        let path = paths.settings();
        let Some(bytes) = read(paths.storage(), &path, MOST_BYTES)? else {
            return Ok(Self::default());
        };
        let foreign = |found: String| {
            let expected =
                "an object with a whole number `format_version` and an object `settings`";
            Error::corrupt(&path, 0, CorruptionKind::Json, expected, found)
        };
        let root = json::parse(&bytes).map_err(|error| error.in_file(&path, 0))?;
        let Value::Object(root) = root else { return Err(foreign("another value".to_owned())) };
        let version = root.get("format_version").and_then(Value::as_u64).unwrap_or(0);
        let settings = root.get("settings").and_then(Value::as_object);
        let Some(settings) = settings.filter(|_| version >= FORMAT_VERSION) else {
            let keys: Vec<_> = root.keys().take(8).map(String::as_str).collect();
            return Err(foreign(format!("version {version} and the keys {}", keys.join(", "))));
        };
        let (mut config, mut unknown) = (StoreConfig::default(), Vec::new());
        for (name, value) in settings.iter().filter(|(_, value)| !value.is_null()) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let is_known = SETTINGS.iter().any(|setting| setting.name == name);
            if !is_known || !config.set(name, &text).unwrap_or(false) {
                unknown.push(name.as_str());
            }
        }
        let warning = (!unknown.is_empty() || version > FORMAT_VERSION).then(|| {
            format!(
                "{}: version {version} of the file, where this mqstore knows {FORMAT_VERSION}; kept \
                 and not used: {}",
                path.display(),
                if unknown.is_empty() { "nothing".to_owned() } else { unknown.join(", ") },
            )
        });
        Ok(Self { config, root: Some(root), warning })
    }

    /// Whether the file is damaged or foreign.
    #[must_use]
    pub fn is_unusable(&self) -> bool {
        self.root.is_none() && self.warning.is_some()
    }

    /// Warns of other delays than waiting messages had.
    #[must_use]
    pub fn other_delays(&self, config: &StoreConfig) -> Option<String> {
        let (known, given) = (&self.config.message_delay_level, &config.message_delay_level);
        (self.config.given.contains("message_delay_level") && known != given).then(|| {
            format!(
                "message_delay_level was {known:?} and is {given:?} now: messages that wait take \
                 the delay of their level's number there; give the former one to keep theirs",
                known = known.to_string(),
                given = given.to_string(),
            )
        })
    }

    /// Adds settings that are neither given nor provable by files; [`parts`] adds sizes after
    /// reading the files.
    pub fn fill_in(&self, config: &mut StoreConfig) {
        self.fill(config, |kind| kind != Kind::Size);
    }

    /// Adds sizes and flush mode for a copy of this store. Not retention: a new store deletes
    /// nothing unless told.
    pub fn fill_in_copy(&self, config: &mut StoreConfig) {
        self.fill(config, |kind| kind != Kind::Retention);
    }

    fn fill(&self, config: &mut StoreConfig, wanted: impl Fn(Kind) -> bool) {
        let default = StoreConfig::default();
        for setting in &SETTINGS {
            // A field set directly counts as given.
            if (setting.value)(config) != (setting.value)(&default) {
                config.given.insert(setting.name.to_owned());
            }
        }
        let has_rules = RULES.iter().any(|name| config.given.contains(*name));
        for setting in SETTINGS.iter().filter(|setting| wanted(setting.kind)) {
            let is_ruled = has_rules && RULES.contains(&setting.name);
            if setting.is_given(&self.config) && !setting.is_given(config) && !is_ruled {
                (setting.copy)(config, &self.config);
            }
        }
    }
}

pub fn values(config: &StoreConfig) -> impl Iterator<Item = (&'static str, Value)> {
    let values = SETTINGS.iter().map(|setting| (setting.name, (setting.value)(config)));
    values.filter(|(_, value)| !value.is_null())
}

/// Removes another store's retention from the settings of a new one.
pub fn leave_retention(config: &mut StoreConfig) {
    for setting in SETTINGS.iter().filter(|setting| setting.kind == Kind::Retention) {
        if !setting.is_given(config) {
            (setting.copy)(config, &StoreConfig::default());
        }
    }
}

/// Writes all settings of a new store; of an existing one changed sizes, and given settings that
/// are not in the file and cannot be detected.
pub fn keep(
    paths: &StorePaths,
    config: &StoreConfig,
    is_new: bool,
    found_sizes: impl Fn() -> Result<StoreConfig>,
) -> Result<()> {
    let remembered = Remembered::load(paths);
    if is_new {
        return write(paths, remembered, values(config).collect());
    }
    let known = &remembered.config;
    let mut found = None;
    let mut changed = Vec::new();
    for setting in &SETTINGS {
        let value = (setting.value)(config);
        let is_known = setting.is_given(known);
        let is_kept = match setting.kind {
            Kind::Retention => false,
            Kind::Delays => setting.is_given(config) && value != (setting.value)(known),
            Kind::Flush => !is_known && setting.is_given(config),
            // The marks of a later release may go with the index.
            Kind::Version if !is_known && !setting.is_given(config) => {
                config.rocketmq_version > Some(Release::V5_3)
            }
            Kind::Version => !value.is_null() && value != (setting.value)(known),
            Kind::Size if is_known => !value.is_null() && value != (setting.value)(known),
            Kind::Size if !setting.is_given(config) => false,
            Kind::Size => {
                let sizes = match found.take() {
                    None => found_sizes()?,
                    Some(sizes) => sizes,
                };
                value != (setting.value)(found.insert(sizes))
            }
        };
        if is_kept {
            changed.push((setting.name, value));
        }
    }
    match changed.is_empty() {
        true => Ok(()),
        false => write(paths, remembered, changed),
    }
}

fn write(
    paths: &StorePaths,
    remembered: Remembered,
    changed: Vec<(&'static str, Value)>,
) -> Result<()> {
    let path = paths.settings();
    make_folder(paths.storage(), &paths.config())?;
    let unused = remembered.root.is_none() && paths.storage.kind_of(&path)? == Some(FileKind::File);
    if unused {
        paths.storage.rename(&path, &backup_of(&path)).map_err(Error::io("rename", &path))?;
    }
    let mut root = remembered.root.unwrap_or_default();
    root.entry("format_version").or_insert_with(|| FORMAT_VERSION.into());
    let settings = root.entry("settings").or_insert_with(|| Map::new().into());
    if let Value::Object(settings) = settings {
        settings.extend(changed.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    let text = format!("{:#}\n", Value::Object(root));
    lock::replace(paths.storage(), &path, text.as_bytes())
}
