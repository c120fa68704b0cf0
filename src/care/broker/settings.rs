//! Settings that a broker reads, against what its files prove.

use std::path::PathBuf;

use crate::config::StoreConfig;
use crate::config::table::{Kind, SETTINGS, Setting};
use crate::error::{Error, Result};
use crate::store::folder::paths::StorePaths;
use crate::store::folder::remembered::Remembered;
use crate::store::open::inspect::FILE_SIZES;

/// A file size that a broker would take, and its files do not have.
pub(crate) struct WrongSize {
    pub(crate) dir: PathBuf,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// A line of a `broker.conf`, as 5.x takes it.
pub enum Line {
    /// A setting of the broker around a store.
    OfBroker,
    /// A name of 4.x, which 5.x skips, and the name that it takes.
    OfFour(&'static str),
    /// One of this library, which a broker skips.
    Ours(&'static Setting),
    /// The value that it reads; `None` where it keeps its default.
    Setting(&'static Setting, Option<String>),
    Unknown,
}

const OF_FOUR: [(&str, &str); 2] = [
    ("mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),
    ("mapedFileSizeConsumeQueue", "mappedFileSizeConsumeQueue"),
];

/// Those that stand in nearly every `broker.conf`.
const OF_BROKER: [&str; 10] = [
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "defaultTopicQueueNums",
    "namesrvAddr",
    "storePathRootDir",
    "storeType",
];

/// Reads a line as `MixAll#properties2Object` does: numbers and flags take no space around a value, and
/// one that cannot be read changes nothing.
pub fn read_line(name: &str, value: &str) -> Line {
    if let Some((_, new)) = OF_FOUR.iter().find(|(old, _)| *old == name) {
        return Line::OfFour(new);
    }
    let mut settings = SETTINGS.iter().filter(|setting| !setting.conf_name.is_empty());
    match settings.find(|setting| setting.conf_name == name) {
        Some(setting) if setting.name == name => Line::Ours(setting),
        Some(setting) => Line::Setting(setting, read_value(setting, value)),
        None if OF_BROKER.contains(&name) => Line::OfBroker,
        None => Line::Unknown,
    }
}

fn read_value(setting: &Setting, value: &str) -> Option<String> {
    match setting.kind {
        Kind::Flag { .. } => Some(value.eq_ignore_ascii_case("true").to_string()),
        // Java's `int` where no more is allowed; its parser takes the same signs and ASCII digits.
        Kind::Number { most, .. } if most > i32::MAX as u64 => {
            value.parse().ok().map(|number: i64| number.to_string())
        }
        Kind::Number { .. } => value.parse().ok().map(|number: i32| number.to_string()),
        Kind::Choice { choices, .. } => {
            choices.contains(&value.trim()).then(|| value.trim().to_owned())
        }
        Kind::Text { .. } => Some(value.trim().to_owned()),
    }
}

/// The settings without file sizes that the files contradict, and those. RocketMQ does not load files
/// of another size (`MappedFileQueue#doLoad`).
pub(crate) fn proven(
    paths: &StorePaths,
    config: &StoreConfig,
) -> Result<(StoreConfig, Vec<WrongSize>)> {
    let (mut config, mut remembered) = (config.clone(), Remembered::load(paths).config);
    let is_brokers = config.given.contains(StoreConfig::BROKER_CONF);
    let mut wrong = Vec::new();
    for size in &FILE_SIZES {
        let (given, remembered) = (*(size.field)(&mut config), *(size.field)(&mut remembered));
        let differs = match size.proven(paths, given, remembered) {
            Err(Error::InvalidConfig { .. }) => true,
            other => other.map(|_| false)?,
        };
        let Some(found) = size.proven(paths, None, None)? else { continue };
        let (Some(setting), default) = (Setting::of(size.setting), size.default) else { continue };
        let name = setting.conf_name;
        let expected = match (size.field)(&mut config).take_if(|_| differs) {
            Some(given) => format!("files of {given} bytes, as {name} says"),
            None if is_brokers && given.is_none() && found != default => {
                format!("files of {default} bytes: the broker's default, as no {name} is given")
            }
            None => continue,
        };
        let found = format!(
            "files of {found} bytes: its broker.conf needs {name}={found}, unless they were cut"
        );
        wrong.push(WrongSize { dir: (size.folder)(paths), expected, found });
    }
    Ok((config, wrong))
}
