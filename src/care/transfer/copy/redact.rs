//! Redaction rules: replace bodies and properties by topic. Lengths and checksums are adapted.

use std::borrow::Cow;

use crate::error::{Error, FormatError, Result};
use crate::format::body;
use crate::format::crc;
use crate::format::digest;
use crate::format::message::properties::{self, names};
use crate::format::message::sys_flag;
use crate::format::message::{MessageView, Record};
use crate::format::queue::batch::{self, BatchItem};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// Zeros of the same length: zero bytes for a body, digits for a value.
    Zeros,
    /// A hex digest with the salt: equal content stays equal.
    Hash,
    Constant(Vec<u8>),
    Remove,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Topic patterns with `*` and `?`; empty means all topics.
    pub topics: Vec<String>,
    pub body: Option<Replacement>,
    pub properties: Vec<(String, Replacement)>,
}

/// Rules; all that match a topic are applied in order.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    pub rules: Vec<Rule>,
    /// Hashed with every value, so that short ones cannot be guessed.
    pub salt: Vec<u8>,
}

const MOST_BODY: usize = 64 << 20;

/// Properties needed to read the record; they cannot be replaced.
const KEPT: [&[u8]; 6] = [
    names::INNER_NUM,
    names::INNER_BASE,
    names::INNER_MULTI_DISPATCH,
    names::INNER_MULTI_QUEUE_OFFSET,
    names::CRC32,
    names::DELAY,
];

/// Checks that a rule may name a property.
///
/// # Errors
/// [`Error::InvalidConfig`] otherwise.
pub fn check_property(name: &str) -> Result<()> {
    let reason = if name.is_empty() || name.bytes().any(|byte| byte == 1 || byte == 2) {
        format!("{name:?} can be no property's name")
    } else if KEPT.contains(&name.as_bytes()) {
        format!("{name} says how the message is to be read, and is kept")
    } else {
        return Ok(());
    };
    Err(Error::InvalidConfig { field: "redact.properties".to_owned(), reason })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    body: Option<Vec<u8>>,
    properties: Option<Vec<u8>>,
    sys_flag: i32,
}

impl Changed {
    #[must_use]
    pub fn of<'a>(&'a self, record: &Record<'a>) -> Record<'a> {
        let body = self.body.as_deref().unwrap_or(record.body);
        Record {
            body,
            body_crc: match self.body {
                Some(_) => crc::body_crc(body),
                None => record.body_crc,
            },
            properties: self.properties.as_deref().unwrap_or(record.properties),
            sys_flag: self.sys_flag,
            ..*record
        }
    }
}

impl Redaction {
    /// Applies the rules to a message; `None` if none changes it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a batch that cannot be decoded, and would be copied
    /// unredacted.
    pub fn changed(&self, view: &MessageView<'_>) -> Result<Option<Changed>> {
        let topic = String::from_utf8_lossy(view.topic());
        let rules: Vec<&Rule> = self.rules.iter().filter(|rule| rule.fits(&topic)).collect();
        if rules.is_empty() {
            return Ok(None);
        }
        let record = Record::of(view);
        let mut changed = Changed { body: None, properties: None, sys_flag: record.sys_flag };
        if let Cow::Owned(properties) = self.properties(&rules, record.properties) {
            changed.properties = Some(properties);
        }
        if sys_flag::is_inner_batch(record.sys_flag) {
            let body = self.members(&rules, &record).map_err(Error::from)?;
            if let Some(body) = body {
                changed.body = Some(body);
                changed.sys_flag &= !(sys_flag::COMPRESSED | sys_flag::COMPRESSION_MASK);
            }
        } else if let Some(body) = self.body(&rules, record.body) {
            changed.body = Some(body);
            // The replacement is not compressed.
            changed.sys_flag &= !(sys_flag::COMPRESSED | sys_flag::COMPRESSION_MASK);
        }
        let same = changed.body.is_none() && changed.properties.is_none();
        Ok((!same).then_some(changed))
    }

    /// Body of a batch with each message changed.
    fn members(
        &self,
        rules: &[&Rule],
        record: &Record<'_>,
    ) -> std::result::Result<Option<Vec<u8>>, FormatError> {
        let plain = body::decompress(record.body, record.sys_flag, MOST_BODY)?;
        let mut out = Vec::with_capacity(plain.len());
        let mut changed = false;
        for item in batch::items(&plain) {
            let item = item?;
            let body = self.body(rules, item.body);
            let properties = self.properties(rules, item.properties);
            changed |= body.is_some() || matches!(properties, Cow::Owned(_));
            BatchItem {
                flag: item.flag,
                body: body.as_deref().unwrap_or(item.body),
                properties: &properties,
            }
            .encode_to(&mut out)?;
        }
        Ok(changed.then_some(out))
    }

    fn body(&self, rules: &[&Rule], body: &[u8]) -> Option<Vec<u8>> {
        let mut now: Option<Vec<u8>> = None;
        for replacement in rules.iter().filter_map(|rule| rule.body.as_ref()) {
            let before = now.as_deref().unwrap_or(body);
            now = Some(match replacement {
                Replacement::Zeros => vec![0; before.len()],
                Replacement::Remove => Vec::new(),
                Replacement::Constant(bytes) => bytes.clone(),
                Replacement::Hash => self.hash(before),
            });
        }
        now.filter(|now| now != body)
    }

    fn properties<'p>(&self, rules: &[&Rule], raw: &'p [u8]) -> Cow<'p, [u8]> {
        let mut now = Cow::Borrowed(raw);
        for (name, replacement) in rules.iter().flat_map(|rule| &rule.properties) {
            if properties::get(&now, name.as_bytes()).is_some() {
                now = Cow::Owned(self.replaced(&now, name.as_bytes(), replacement));
            }
        }
        now
    }

    fn replaced(&self, raw: &[u8], name: &[u8], replacement: &Replacement) -> Vec<u8> {
        let mut out = Vec::with_capacity(raw.len());
        for item in raw.split_inclusive(|byte| *byte == properties::PROPERTY_SEPARATOR) {
            let value = item
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(&[properties::NAME_VALUE_SEPARATOR]));
            let Some(value) = value else {
                out.extend_from_slice(item);
                continue;
            };
            let value = value.strip_suffix(&[properties::PROPERTY_SEPARATOR]).unwrap_or(value);
            match replacement {
                Replacement::Remove => {}
                Replacement::Constant(bytes) => properties::push(&mut out, name, bytes),
                Replacement::Zeros => properties::push(&mut out, name, &vec![b'0'; value.len()]),
                // Each key by itself, so that messages still share keys.
                Replacement::Hash if name == names::KEYS => {
                    let keys: Vec<_> =
                        properties::split_keys(value).map(|key| self.hash(key)).collect();
                    properties::push(&mut out, name, &keys.join(&b' '));
                }
                Replacement::Hash => properties::push(&mut out, name, &self.hash(value)),
            }
        }
        out
    }

    fn hash(&self, value: &[u8]) -> Vec<u8> {
        digest::salted_hex(&self.salt, value).into_bytes()
    }
}

impl Rule {
    fn fits(&self, topic: &str) -> bool {
        self.topics.is_empty()
            || self.topics.iter().any(|pattern| {
                matches(&pattern.chars().collect::<Vec<_>>(), &topic.chars().collect::<Vec<_>>())
            })
    }
}

/// Matches `*` and `?`, in time proportional to the product of the lengths.
fn matches(pattern: &[char], text: &[char]) -> bool {
    let (mut at, mut in_pattern) = (0, 0);
    // Position to return to if the rest after the last star does not match.
    let mut star: Option<(usize, usize)> = None;
    while let Some(character) = text.get(at) {
        match pattern.get(in_pattern) {
            Some('*') => {
                star = Some((in_pattern, at));
                in_pattern += 1;
            }
            Some(wanted) if *wanted == '?' || wanted == character => {
                at += 1;
                in_pattern += 1;
            }
            _ => match star {
                Some((place, from)) => {
                    star = Some((place, from + 1));
                    at = from + 1;
                    in_pattern = place + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(in_pattern..).unwrap_or_default().iter().all(|left| *left == '*')
}
