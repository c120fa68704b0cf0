//! Properties: `name 0x01 value 0x02`, one after another
//! (`MessageDecoder#messageProperties2String`, `#string2messageProperties`).
//!
//! Malformed items are skipped, as in Java; no input is an error.

use std::borrow::Cow;

use crate::format::bytes::u64_of;

/// Between name and value (`MessageDecoder.NAME_VALUE_SEPARATOR`).
pub const NAME_VALUE_SEPARATOR: u8 = 1;
/// Behind each value (`MessageDecoder.PROPERTY_SEPARATOR`).
pub const PROPERTY_SEPARATOR: u8 = 2;
/// Maximum length: the field is a signed 16-bit number.
pub const MAX_LEN: usize = 32_767;

/// Names with a meaning to RocketMQ (`org.apache.rocketmq.common.message.MessageConst`).
pub mod names {
    pub const TAGS: &[u8] = b"TAGS";
    /// Keys for the index, separated by spaces.
    pub const KEYS: &[u8] = b"KEYS";
    pub const UNIQ_KEY: &[u8] = b"UNIQ_KEY";
    /// Whether a put waits for the flush: `true` or `false`.
    pub const WAIT: &[u8] = b"WAIT";
    pub const DELAY: &[u8] = b"DELAY";
    pub const REAL_TOPIC: &[u8] = b"REAL_TOPIC";
    pub const REAL_QID: &[u8] = b"REAL_QID";
    /// Number of messages in an inner batch.
    pub const INNER_NUM: &[u8] = b"INNER_NUM";
    /// Queue offset of an inner batch's first message.
    pub const INNER_BASE: &[u8] = b"INNER_BASE";
    /// Additional queues for dispatch, separated by commas.
    pub const INNER_MULTI_DISPATCH: &[u8] = b"INNER_MULTI_DISPATCH";
    pub const INNER_MULTI_QUEUE_OFFSET: &[u8] = b"INNER_MULTI_QUEUE_OFFSET";
    pub const CRC32: &[u8] = b"__CRC32#";
}

/// Iterates over the well-formed properties in order, duplicates included.
#[inline(always)]
#[must_use]
pub fn iter(raw: &[u8]) -> Properties<'_> {
    Properties(raw)
}

/// Iterator of [`iter`]: the bytes that are left.
#[derive(Clone, Debug)]
pub struct Properties<'a>(&'a [u8]);

impl<'a> Iterator for Properties<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let name_end = match common_name(self.0) {
                Some((_, length)) => length,
                None => first_of(self.0, [NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR])?,
            };
            let (name, rest) = self.0.split_at_checked(name_end)?;
            let (separator, rest) = rest.split_first()?;
            if *separator == PROPERTY_SEPARATOR {
                self.0 = rest;
                continue;
            }
            let (value, rest) = split_value(rest);
            self.0 = rest;
            if !name.is_empty() && !value.is_empty() {
                return Some((name, value));
            }
        }
    }
}

/// A name that nearly every message has.
#[derive(Clone, Copy)]
enum Common {
    Tags,
    Keys,
    UniqueKey,
}

/// The common name that `text` begins with and its length: it needs no search.
#[inline(always)]
fn common_name(text: &[u8]) -> Option<(Common, usize)> {
    const TAGS: u64 = u64_of(*b"TAGS\x01\0\0\0") >> 24;
    const KEYS: u64 = u64_of(*b"KEYS\x01\0\0\0") >> 24;
    const UNIQ_KEY: u64 = u64_of(*b"UNIQ_KEY");
    let word = u64_of(*text.first_chunk()?);
    match word >> 24 {
        TAGS => Some((Common::Tags, 4)),
        KEYS => Some((Common::Keys, 4)),
        _ if word == UNIQ_KEY && text.get(8) == Some(&NAME_VALUE_SEPARATOR) => {
            Some((Common::UniqueKey, 8))
        }
        _ => None,
    }
}

/// `text` before the first 0x02 and behind it: the last separator may be missing.
#[inline(always)]
fn split_value(text: &[u8]) -> (&[u8], &[u8]) {
    match first_of(text, [PROPERTY_SEPARATOR]).and_then(|end| text.split_at_checked(end)) {
        Some((value, rest)) => (value, rest.get(1..).unwrap_or_default()),
        None => (text, &[]),
    }
}

/// Position of the first of `bytes`, eight bytes at a time.
#[inline]
#[must_use]
pub fn first_of<const N: usize>(text: &[u8], bytes: [u8; N]) -> Option<usize> {
    const LOWEST: u64 = 0x0101_0101_0101_0101;
    const HIGHEST: u64 = 0x8080_8080_8080_8080;
    let in_word = |word: &[u8; 8]| {
        let word = u64_of(*word).swap_bytes();
        let found = bytes.iter().fold(0, |found, byte| {
            // A byte behind the first zero may be marked, too.
            let zeros = word ^ (LOWEST * u64::from(*byte));
            found | zeros.wrapping_sub(LOWEST) & !zeros & HIGHEST
        });
        (found != 0).then(|| found.trailing_zeros() as usize / 8)
    };
    let mut left = text;
    while let Some((word, rest)) = left.split_first_chunk() {
        if let Some(place) = in_word(word) {
            return Some(text.len() - left.len() + place);
        }
        left = rest;
    }
    match text.last_chunk() {
        // The last eight bytes, some of them seen before.
        Some(last) => in_word(last).map(|place| text.len() - 8 + place),
        None => text.iter().position(|byte| bytes.contains(byte)),
    }
}

#[inline]
#[must_use]
pub fn get<'a>(raw: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    iter(raw).filter(|(other, _)| *other == name).last().map(|(_, value)| value)
}

/// Properties with a meaning to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Indexed<'a> {
    pub tags: Option<&'a [u8]>,
    pub keys: Option<&'a [u8]>,
    pub unique_key: Option<&'a [u8]>,
    pub delay: Option<&'a [u8]>,
    pub multi_dispatch: Option<&'a [u8]>,
    pub multi_queue_offset: Option<&'a [u8]>,
    pub inner_num: Option<&'a [u8]>,
    pub inner_base: Option<&'a [u8]>,
}

impl<'a> Indexed<'a> {
    /// Reads these properties of `raw` in one pass; all are `None` before.
    #[inline(never)]
    pub fn read(&mut self, raw: &'a [u8]) {
        let mut left = iter(raw);
        while !left.0.is_empty() {
            if let Some((name, length)) = common_name(left.0) {
                let field = match name {
                    Common::Tags => &mut self.tags,
                    Common::Keys => &mut self.keys,
                    Common::UniqueKey => &mut self.unique_key,
                };
                let (value, rest) = split_value(left.0.get(length + 1..).unwrap_or_default());
                if !value.is_empty() {
                    *field = Some(value);
                }
                left = iter(rest);
                continue;
            }
            let Some((name, value)) = left.next() else { return };
            // The length rules out most names.
            let field = match name.len() {
                4 if name == names::TAGS => &mut self.tags,
                4 if name == names::KEYS => &mut self.keys,
                8 if name == names::UNIQ_KEY => &mut self.unique_key,
                5 if name == names::DELAY => &mut self.delay,
                9 if name == names::INNER_NUM => &mut self.inner_num,
                10 if name == names::INNER_BASE => &mut self.inner_base,
                20 if name == names::INNER_MULTI_DISPATCH => &mut self.multi_dispatch,
                24 if name == names::INNER_MULTI_QUEUE_OFFSET => &mut self.multi_queue_offset,
                _ => continue,
            };
            *field = Some(value);
        }
    }
}

#[inline]
#[must_use]
pub fn indexed(raw: &[u8]) -> Indexed<'_> {
    let mut found = Indexed::default();
    found.read(raw);
    found
}

/// Splits `KEYS` on single spaces and drops empty pieces (`IndexService#buildIndex`).
#[inline]
pub fn split_keys(keys: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(keys);
    std::iter::from_fn(move || {
        let left = rest?;
        let (key, more) = match first_of(left, [b' ']) {
            Some(at) => (left.get(..at)?, left.get(at + 1..)),
            None => (left, None),
        };
        rest = more;
        Some(key)
    })
    .filter(|key| !key.is_empty())
}

/// Appends a property.
///
/// The caller rules out what cannot be read back: an empty name or value, a separator in the name,
/// 0x02 in the value.
#[inline]
pub fn push(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 2);
    out.extend_from_slice(name);
    out.push(NAME_VALUE_SEPARATOR);
    out.extend_from_slice(value);
    out.push(PROPERTY_SEPARATOR);
}

/// Each name once, at its first position with its last value, like Java's `LinkedHashMap`.
#[must_use]
pub fn to_map(raw: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut map: Vec<(&[u8], &[u8])> = Vec::new();
    let mut places = hashbrown::HashMap::new();
    for (name, value) in iter(raw) {
        let place = *places.entry(name).or_insert(map.len());
        match map.get_mut(place) {
            Some(known) => known.1 = value,
            None => map.push((name, value)),
        }
    }
    map
}

/// Removes the properties of that name, even with an empty value (`MessageUtils#deleteProperty`).
#[must_use]
pub fn without<'a>(raw: &'a [u8], name: &[u8]) -> Cow<'a, [u8]> {
    replaced(raw, name, |_| None)
}

/// Replaces each value of that name by what `new` makes of it, if anything.
pub fn replaced<'a>(
    raw: &'a [u8],
    name: &[u8],
    new: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Cow<'a, [u8]> {
    let value_of = |item: &'a [u8]| item.strip_prefix(name)?.strip_prefix(&[NAME_VALUE_SEPARATOR]);
    let items = || raw.split_inclusive(|byte| *byte == PROPERTY_SEPARATOR);
    if !items().any(|item| value_of(item).is_some()) {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len() + 8);
    for item in items() {
        let Some(value) = value_of(item) else {
            out.extend_from_slice(item);
            continue;
        };
        let value = value.strip_suffix(&[PROPERTY_SEPARATOR]).unwrap_or(value);
        new(value).iter().for_each(|new| push(&mut out, name, new));
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(raw: &[u8]) -> Vec<(&[u8], &[u8])> {
        iter(raw).collect()
    }

    #[test]
    fn reads_what_push_wrote() {
        let mut raw = Vec::new();
        push(&mut raw, b"TAGS", b"a");
        push(&mut raw, b"KEYS", b"k1 k2");
        assert_eq!(raw, b"TAGS\x01a\x02KEYS\x01k1 k2\x02");
        assert_eq!(pairs(&raw), [(&b"TAGS"[..], &b"a"[..]), (b"KEYS", b"k1 k2")]);
    }

    #[test]
    fn odd_items_are_read_as_java_reads_them() {
        assert_eq!(pairs(b""), []);
        assert_eq!(pairs(b"abc"), []);
        assert_eq!(pairs(b"abc\x02"), []);
        assert_eq!(pairs(b"\x01b\x02"), []);
        assert_eq!(pairs(b"a\x01\x02"), []);
        assert_eq!(pairs(b"\x01\x02\x02\x01\x01\x02"), []);
        assert_eq!(pairs(b"a\x01b"), [(&b"a"[..], &b"b"[..])]);
        assert_eq!(pairs(b"a\x01b\x01c\x02"), [(&b"a"[..], &b"b\x01c"[..])]);
        assert_eq!(pairs(b"a\x01\x01\x02"), [(&b"a"[..], &b"\x01"[..])]);
        assert_eq!(
            pairs(b"x\x02\x02a\x01b\x02\x01y\x02c\x01d"),
            [(&b"a"[..], &b"b"[..]), (b"c", b"d")]
        );
    }

    #[test]
    fn later_duplicates_win_unless_they_are_empty() {
        let raw = b"TAGS\x01a\x02TAGS\x01b\x02TAGS\x01\x02";
        assert_eq!(get(raw, b"TAGS"), Some(&b"b"[..]));
        assert_eq!(indexed(raw).tags, Some(&b"b"[..]));
        assert_eq!(to_map(raw), [(&b"TAGS"[..], &b"b"[..])]);
        assert_eq!(get(raw, b"TAG"), None);
    }

    #[test]
    fn a_map_keeps_the_place_of_the_first() {
        let raw = b"a\x011\x02b\x012\x02a\x013\x02c\x014\x02";
        assert_eq!(to_map(raw), [(&b"a"[..], &b"3"[..]), (b"b", b"2"), (b"c", b"4")]);
    }

    #[test]
    fn indexed_takes_every_field() {
        let mut raw = Vec::new();
        let all: [(&[u8], &[u8]); 9] = [
            (names::TAGS, b"t"),
            (names::WAIT, b"true"),
            (names::KEYS, b"k"),
            (names::UNIQ_KEY, b"u"),
            (names::DELAY, b"3"),
            (names::INNER_NUM, b"4"),
            (names::INNER_BASE, b"5"),
            (names::INNER_MULTI_DISPATCH, b"%LMQ%a"),
            (names::INNER_MULTI_QUEUE_OFFSET, b"7"),
        ];
        for (name, value) in all {
            push(&mut raw, name, value);
        }
        let wanted = Indexed {
            tags: Some(b"t"),
            keys: Some(b"k"),
            unique_key: Some(b"u"),
            delay: Some(b"3"),
            multi_dispatch: Some(b"%LMQ%a"),
            multi_queue_offset: Some(b"7"),
            inner_num: Some(b"4"),
            inner_base: Some(b"5"),
        };
        assert_eq!(indexed(&raw), wanted);
        for (name, _) in all {
            let mut other = Vec::new();
            push(&mut other, &b"x".repeat(name.len()), b"v");
            assert_eq!(indexed(&other), Indexed::default());
        }
        assert_eq!(indexed(b"\x00\xFF"), Indexed::default());
    }

    #[test]
    fn keys_are_split_on_single_spaces() {
        let keys: Vec<&[u8]> = split_keys(b" k9  k9 k10 ").collect();
        assert_eq!(keys, [&b"k9"[..], b"k9", b"k10"]);
        assert_eq!(split_keys(b"").count(), 0);
        assert_eq!(split_keys(b"a\tb").count(), 1);
    }

    #[test]
    fn without_drops_whole_items_only() {
        assert_eq!(without(b"a\x011\x02b\x012\x02a\x01\x02", b"a"), &b"b\x012\x02"[..]);
        assert_eq!(without(b"a\x011", b"a"), &b""[..]);
        assert_eq!(without(b"b\x01a\x01x\x02", b"a"), &b"b\x01a\x01x\x02"[..]);
        assert!(matches!(without(b"ab\x011\x02a\x02", b"a"), Cow::Borrowed(_)));
    }

    #[test]
    fn the_first_separator_is_found_at_every_place() {
        for length in 0..40 {
            for place in 0..length {
                for filler in [0, 3, 0x80, 0x81, 0x82, 0xFF, b'a'] {
                    for separator in [1, 2] {
                        let mut bytes = vec![filler; length];
                        bytes[place] = separator;
                        assert_eq!(first_of(&bytes, [1, 2]), Some(place), "{bytes:?}");
                        assert_eq!(first_of(&bytes, [separator]), Some(place), "{bytes:?}");
                        assert_eq!(first_of(&bytes, [3 - separator]), None, "{bytes:?}");
                        bytes[place..].fill(3 - separator);
                        assert_eq!(first_of(&bytes, [2, 1]), Some(place), "{bytes:?}");
                        assert_eq!(first_of(&bytes, [separator]), None, "{bytes:?}");
                    }
                }
            }
        }
    }

    fn slow_pairs(raw: &[u8]) -> Vec<(&[u8], &[u8])> {
        raw.split(|byte| *byte == 2)
            .filter_map(|item| {
                let at = item.iter().position(|byte| *byte == 1)?;
                (at > 0 && at + 1 < item.len()).then(|| (&item[..at], &item[at + 1..]))
            })
            .collect()
    }

    #[test]
    fn every_short_text_is_read_by_the_rule() {
        for length in 0..=7_u32 {
            for number in 0..4_usize.pow(length) {
                let raw: Vec<u8> =
                    (0..length).map(|i| [0, 1, 2, b'a'][number / 4_usize.pow(i) % 4]).collect();
                assert_eq!(pairs(&raw), slow_pairs(&raw), "{raw:?}");
                for before in [b"value".to_vec(), b"v".repeat(60)] {
                    let before = [&b"name\x01"[..], &before, b"\x02"].concat();
                    let long = [&before[..], &raw, b"b\x01c"].concat();
                    assert_eq!(pairs(&long), slow_pairs(&long), "{long:?}");
                }
            }
        }
    }

    #[test]
    fn common_names_are_read_by_the_rule_wherever_they_stand() {
        const PIECES: [&[u8]; 8] =
            [b"TAGS", b"KEYS", b"UNIQ_KEY", b"UNIQ_KEYS", b"DELAY", b"\x01", b"\x02", b"v"];
        let field = |raw: &[u8], name: &[u8]| {
            let last = slow_pairs(raw).into_iter().rfind(|(other, _)| *other == name);
            last.map(|(_, value)| value.to_vec())
        };
        for count in 0..=6_u32 {
            for number in 0..8_usize.pow(count) {
                let raw: Vec<u8> =
                    (0..count).flat_map(|i| PIECES[number >> (3 * i) & 7]).copied().collect();
                assert_eq!(pairs(&raw), slow_pairs(&raw), "{raw:?}");
                let found = indexed(&raw);
                for (name, found) in [
                    (names::TAGS, found.tags),
                    (names::KEYS, found.keys),
                    (names::UNIQ_KEY, found.unique_key),
                    (names::DELAY, found.delay),
                ] {
                    assert_eq!(found.map(<[u8]>::to_vec), field(&raw, name), "{raw:?}");
                }
            }
        }
    }
}
