//! Builds a new message's property block from named values
//! (`MessageDecoder#messageProperties2String`).

use crate::error::{Error, Result, start_of};
use crate::format::message::properties::{self, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, names};
use crate::format::message::sys_flag::is_inner_batch;
use crate::log::QueueKind;
use crate::store::queue_table::QueueTable;

/// Writes properties, and refuses what could not be read back.
///
/// Order: tags, keys, unique key, delay level, then the rest.
#[derive(Debug)]
pub struct PropertyBlock<'a> {
    out: &'a mut Vec<u8>,
    keys_open: bool,
    /// Bit set of the given [`BY_ARGUMENT`].
    given: u8,
    inner_num: bool,
}

const BY_ARGUMENT: [&[u8]; 4] = [names::TAGS, names::KEYS, names::UNIQ_KEY, names::DELAY];

#[inline]
fn check_value(field: &'static str, value: &[u8]) -> Result<()> {
    if value.is_empty() {
        let expected = match field {
            "keys" => "keys that are not empty",
            "properties" => "a value that is not empty, or no such property",
            _ => "a text that is not empty, or None",
        };
        return Err(Error::argument(field, expected, "an empty one"));
    }
    if properties::first_of(value, [PROPERTY_SEPARATOR]).is_some() {
        let got = format!("{:?}", start_of(&String::from_utf8_lossy(value)));
        return Err(Error::argument(field, "no byte 0x02, which ends a property", got));
    }
    Ok(())
}

impl<'a> PropertyBlock<'a> {
    /// A block at the end of `out`.
    #[must_use]
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, keys_open: false, given: 0, inner_num: false }
    }

    #[inline]
    fn named(&mut self, field: &'static str, place: usize, value: &[u8]) -> Result<()> {
        check_value(field, value)?;
        properties::push(self.out, BY_ARGUMENT[place], value);
        self.given |= 1 << place;
        Ok(())
    }

    /// Adds the tag.
    ///
    /// # Errors
    /// [`Error::InvalidMessage`], as all of these, if it could not be read back.
    pub fn tags(&mut self, tags: &[u8]) -> Result<()> {
        self.named("tags", 0, tags)
    }

    /// Adds a key.
    ///
    /// # Errors
    /// [`Error::InvalidMessage`], also for an empty key or a space.
    pub fn key(&mut self, key: &[u8]) -> Result<()> {
        if key.is_empty() || properties::first_of(key, [PROPERTY_SEPARATOR, b' ']).is_some() {
            check_value("keys", key)?;
            let expected = "keys without a space, which divides keys: keys=[...] for several";
            let got = format!("{:?}", start_of(&String::from_utf8_lossy(key)));
            return Err(Error::argument("keys", expected, got));
        }
        if self.keys_open {
            self.out.push(b' ');
        } else {
            self.keys_open = true;
            self.given |= 1 << 1;
            self.out.extend_from_slice(names::KEYS);
            self.out.push(NAME_VALUE_SEPARATOR);
        }
        self.out.extend_from_slice(key);
        Ok(())
    }

    pub fn end_keys(&mut self) {
        if std::mem::take(&mut self.keys_open) {
            self.out.push(PROPERTY_SEPARATOR);
        }
    }

    pub fn unique_key(&mut self, unique_key: &[u8]) -> Result<()> {
        self.named("unique_key", 2, unique_key)
    }

    /// Adds the delay level; 0 is none.
    pub fn delay_level(&mut self, level: i32) -> Result<()> {
        if level == 0 {
            return Ok(());
        }
        // Negative levels are written too: RocketMQ's clients do so, and its broker ignores
        // them.
        self.named("delay_level", 3, level.to_string().as_bytes())
    }

    /// Adds another property.
    ///
    /// # Errors
    /// [`Error::InvalidMessage`], also for a name given by argument.
    pub fn pair(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        let shown = || String::from_utf8_lossy(name.get(..64).unwrap_or(name)).into_owned();
        if name.is_empty() {
            return Err(Error::argument("properties", "names that are not empty", "an empty one"));
        }
        if name.contains(&NAME_VALUE_SEPARATOR) || name.contains(&PROPERTY_SEPARATOR) {
            let expected = "names without byte 0x01 or 0x02, which ends a name";
            return Err(Error::argument("properties", expected, format!("{:?}", shown())));
        }
        let argument = BY_ARGUMENT.iter().position(|known| *known == name);
        if argument.is_some_and(|place| self.given >> place & 1 == 1) {
            let expected = format!("{} by its argument or here", shown());
            return Err(Error::argument("properties", expected, "both"));
        }
        if let Err(Error::InvalidMessage { reason, .. }) = check_value("properties", value) {
            return Err(Error::illegal("properties", format!("{:?}: {reason}", shown())));
        }
        self.inner_num |= name == names::INNER_NUM;
        properties::push(self.out, name, value);
        Ok(())
    }

    /// Whether it counts inner messages, which only a batch may.
    #[must_use]
    pub const fn counts_inner_messages(&self) -> bool {
        self.inner_num
    }
}

/// Refuses a message that counts inner messages without the batch flag
/// (`HookUtils#checkInnerBatch`). Like RocketMQ, checks named properties only.
#[inline]
pub fn check_inner_batch(counts_inner_messages: bool, sys_flag: i32) -> Result<()> {
    if counts_inner_messages && !is_inner_batch(sys_flag) {
        return Err(no_inner_batch());
    }
    Ok(())
}

#[cold]
fn no_inner_batch() -> Error {
    Error::argument("properties", "INNER_NUM in inner batches only", "another message with it")
}

/// `HookUtils.checkInnerBatch`, `DefaultMessageStore.getMessageNum`.
#[inline]
pub(crate) fn inner_count(
    topic: &[u8],
    sys_flag: i32,
    properties: &[u8],
    queues: &QueueTable,
) -> Result<Option<i16>> {
    let is_batch = is_inner_batch(sys_flag);
    let keeps = queues.kind_of(topic) == QueueKind::Batch;
    let count = || properties::get(properties, names::INNER_NUM);
    match (is_batch, keeps) {
        (false, false) => Ok(None),
        (true, false) => Err(Error::argument(
            "sys_flag",
            "an inner batch in a topic with queue.type=BatchCQ",
            format!("one in {:?}", String::from_utf8_lossy(topic)),
        )),
        (false, true) if count().is_none() => Ok(None),
        (false, true) => Err(no_inner_batch()),
        (true, true) => {
            let number = count().and_then(|count| str::from_utf8(count).ok()?.parse().ok());
            let number = number.filter(|&number: &i16| number > 0);
            number.map(Some).ok_or_else(|| {
                let got = count().map(String::from_utf8_lossy);
                Error::argument("properties", "INNER_NUM from 1 to 32767", format!("{got:?}"))
            })
        }
    }
}

/// An inner batch's properties with its first queue offset, `INNER_BASE`
/// (`BatchConsumeQueue.assignQueueOffset`).
pub(crate) fn with_base(raw: &[u8], base: i64) -> Vec<u8> {
    let mut out = properties::without(raw, names::INNER_BASE).into_owned();
    if out.last().is_some_and(|&last| last != properties::PROPERTY_SEPARATOR) {
        out.push(properties::PROPERTY_SEPARATOR);
    }
    properties::push(&mut out, names::INNER_BASE, base.to_string().as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_of(result: Result<()>) -> &'static str {
        match result {
            Err(Error::InvalidMessage { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_order_is_tags_keys_unique_key_delay_and_the_rest() {
        let mut out = Vec::new();
        let mut block = PropertyBlock::new(&mut out);
        block.tags(b"paid").unwrap();
        block.key(b"o-1").unwrap();
        block.key(b"c-7").unwrap();
        block.end_keys();
        block.unique_key(b"U1").unwrap();
        block.delay_level(3).unwrap();
        block.pair(b"b", b"2\x01x").unwrap();
        block.pair(b"a", b"1").unwrap();
        assert_eq!(
            out,
            b"TAGS\x01paid\x02KEYS\x01o-1 c-7\x02UNIQ_KEY\x01U1\x02DELAY\x013\x02b\x012\x01x\x02a\x011\x02"
        );
    }

    #[test]
    fn a_property_left_out_leaves_nothing() {
        let mut out = Vec::new();
        let mut block = PropertyBlock::new(&mut out);
        block.end_keys();
        block.delay_level(0).unwrap();
        assert!(out.is_empty());
    }

    #[test]
    fn a_property_that_would_not_read_back_is_refused_by_name() {
        let mut out = Vec::new();
        let mut block = PropertyBlock::new(&mut out);
        assert_eq!(field_of(block.tags(b"")), "tags");
        assert_eq!(field_of(block.tags(b"a\x02")), "tags");
        assert_eq!(field_of(block.key(b"")), "keys");
        assert_eq!(field_of(block.key(b"a b")), "keys");
        assert_eq!(field_of(block.unique_key(b"")), "unique_key");
        for (name, value) in [
            (&b""[..], &b"v"[..]),
            (b"a\x01", b"v"),
            (b"a\x02", b"v"),
            (b"a", b""),
            (b"a", b"\x02"),
        ] {
            assert_eq!(field_of(block.pair(name, value)), "properties");
        }
        assert!(out.is_empty());
    }

    #[test]
    fn only_a_batch_counts_inner_messages() {
        let mut out = Vec::new();
        let mut block = PropertyBlock::new(&mut out);
        block.pair(b"a", b"1").unwrap();
        assert!(!block.counts_inner_messages());
        block.pair(b"INNER_NUM", b"2").unwrap();
        assert!(block.counts_inner_messages());
        assert_eq!(field_of(check_inner_batch(true, 0x40)), "properties");
        check_inner_batch(true, 0x80).unwrap();
        check_inner_batch(false, 0).unwrap();
    }

    #[test]
    fn a_name_given_twice_is_a_contradiction() {
        let mut out = Vec::new();
        let mut block = PropertyBlock::new(&mut out);
        block.tags(b"a").unwrap();
        assert_eq!(field_of(block.pair(b"TAGS", b"b")), "properties");
        block.pair(b"KEYS", b"k1 k2").unwrap();
    }

    #[test]
    fn the_base_stands_behind_what_was_given_and_once() {
        assert_eq!(with_base(b"a\x01b", 7), b"a\x01b\x02INNER_BASE\x017\x02");
        assert_eq!(
            with_base(b"INNER_BASE\x011\x02a\x01b\x02", 7),
            b"a\x01b\x02INNER_BASE\x017\x02"
        );
        assert_eq!(with_base(b"", 0), b"INNER_BASE\x010\x02");
    }
}
