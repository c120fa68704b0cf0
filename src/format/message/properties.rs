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
    /// The client's message id.
    pub const UNIQ_KEY: &[u8] = b"UNIQ_KEY";
    /// Whether a put waits for the flush: `true` or `false`.
    pub const WAIT: &[u8] = b"WAIT";
    /// Delay level, 1 to 18.
    pub const DELAY: &[u8] = b"DELAY";
    /// Destination topic of a waiting message.
    pub const REAL_TOPIC: &[u8] = b"REAL_TOPIC";
    /// Destination queue of a waiting message.
    pub const REAL_QID: &[u8] = b"REAL_QID";
    /// Number of messages in an inner batch.
    pub const INNER_NUM: &[u8] = b"INNER_NUM";
    /// Queue offset of an inner batch's first message.
    pub const INNER_BASE: &[u8] = b"INNER_BASE";
    /// Additional queues for dispatch, separated by commas.
    pub const INNER_MULTI_DISPATCH: &[u8] = b"INNER_MULTI_DISPATCH";
    pub const INNER_MULTI_QUEUE_OFFSET: &[u8] = b"INNER_MULTI_QUEUE_OFFSET";
    /// Checksum of the record.
    pub const CRC32: &[u8] = b"__CRC32#";
}

/// Iterates over the well-formed properties in order, duplicates included.
#[inline]
#[must_use]
pub fn iter(raw: &[u8]) -> Properties<'_> {
    Properties { raw, begin: 0, separators: Separators::new(raw) }
}

/// Iterator of [`iter`].
#[derive(Clone, Debug)]
pub struct Properties<'a> {
    raw: &'a [u8],
    begin: usize,
    separators: Separators<'a>,
}

impl<'a> Iterator for Properties<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (name_end, separator) = self.separators.next()?;
            let name = self.raw.get(self.begin..name_end)?;
            if separator == PROPERTY_SEPARATOR {
                self.begin = name_end + 1;
                continue;
            }
            let value_end = self.separators.next_property_separator();
            // The last separator may be missing.
            let value = self.raw.get(name_end + 1..value_end.unwrap_or(self.raw.len()))?;
            self.begin = name_end + 1 + value.len() + 1;
            if !name.is_empty() && !value.is_empty() {
                return Some((name, value));
            }
        }
    }
}

/// A faster [`iter`] that calls `take` for each property.
#[inline(always)]
pub fn each<'a>(raw: &'a [u8], mut take: impl FnMut(&'a [u8], &'a [u8])) {
    let mut item = |begin: usize, name_end: usize, end: usize| {
        let (name, value) = (raw.get(begin..name_end), raw.get(name_end + 1..end));
        if let (Some(name @ [_, ..]), Some(value @ [_, ..])) = (name, value) {
            take(name, value);
        }
    };
    // Start of the current item, and the end of its name once found.
    let (mut begin, mut name_end) = (0, None);
    for base in (0..raw.len()).step_by(LOOKED_AT) {
        let mut low = Separators::low_bytes(raw, base);
        while low != 0 {
            let at = base + low.trailing_zeros() as usize;
            low &= low - 1;
            match raw.get(at) {
                Some(&NAME_VALUE_SEPARATOR) => name_end = name_end.or(Some(at)),
                Some(&PROPERTY_SEPARATOR) => {
                    if let Some(name_end) = name_end.take() {
                        item(begin, name_end, at);
                    }
                    begin = at + 1;
                }
                _ => {}
            }
        }
    }
    // The last separator may be missing.
    if let Some(name_end) = name_end {
        item(begin, name_end, raw.len());
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

/// Reads these properties in one pass.
#[inline(always)]
#[must_use]
pub fn indexed(raw: &[u8]) -> Indexed<'_> {
    let mut found = Indexed::default();
    each(raw, |name, value| {
        // The length rules out most names.
        let field = match name.len() {
            4 if name == names::TAGS => &mut found.tags,
            4 if name == names::KEYS => &mut found.keys,
            8 if name == names::UNIQ_KEY => &mut found.unique_key,
            5 if name == names::DELAY => &mut found.delay,
            9 if name == names::INNER_NUM => &mut found.inner_num,
            10 if name == names::INNER_BASE => &mut found.inner_base,
            20 if name == names::INNER_MULTI_DISPATCH => &mut found.multi_dispatch,
            24 if name == names::INNER_MULTI_QUEUE_OFFSET => &mut found.multi_queue_offset,
            _ => return,
        };
        *field = Some(value);
    });
    found
}

/// Splits `KEYS` on single spaces and drops empty pieces (`IndexService#buildIndex`).
#[inline]
pub fn split_keys(keys: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(keys);
    std::iter::from_fn(move || {
        let left = rest?;
        let (key, more) = match first_space(left) {
            Some(at) => (left.get(..at)?, left.get(at + 1..)),
            None => (left, None),
        };
        rest = more;
        Some(key)
    })
    .filter(|key| !key.is_empty())
}

/// Position of the first space, eight bytes at a time.
#[inline]
fn first_space(text: &[u8]) -> Option<usize> {
    const SPACES: u64 = 0x2020_2020_2020_2020;
    const LOWEST: u64 = 0x0101_0101_0101_0101;
    const HIGHEST: u64 = 0x8080_8080_8080_8080;
    let has_zero = |word: u64| word.wrapping_sub(LOWEST) & !word & HIGHEST != 0;
    let (words, tail) = text.as_chunks::<WORD>();
    let in_words = words.iter().position(|word| has_zero(u64_of(*word) ^ SPACES));
    let from = in_words.map_or(text.len() - tail.len(), |number| number * WORD);
    let at = text.get(from..)?.iter().position(|byte| *byte == b' ')?;
    Some(from + at)
}

/// Appends a property.
///
/// The caller rules out what cannot be read back: an empty name or value, a separator in the name,
/// 0x02 in the value.
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
    let is_named = |item: &[u8]| {
        item.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&NAME_VALUE_SEPARATOR))
    };
    let items = || raw.split_inclusive(|byte| *byte == PROPERTY_SEPARATOR);
    if !items().any(is_named) {
        return Cow::Borrowed(raw);
    }
    items().filter(|item| !is_named(item)).flatten().copied().collect()
}

/// Positions of separators, found 64 bytes at a time: names and values are too short for a search
/// each.
#[derive(Clone, Debug)]
struct Separators<'a> {
    raw: &'a [u8],
    base: usize,
    /// Bit set of bytes below 3 that were not returned yet; the first byte has the lowest bit.
    low: u64,
}

impl<'a> Separators<'a> {
    #[inline]
    fn new(raw: &'a [u8]) -> Self {
        Self { raw, base: 0, low: Self::low_bytes(raw, 0) }
    }

    #[inline]
    fn next(&mut self) -> Option<(usize, u8)> {
        loop {
            while self.low == 0 {
                self.base += LOOKED_AT;
                if self.base >= self.raw.len() {
                    return None;
                }
                self.low = Self::low_bytes(self.raw, self.base);
            }
            let at = self.base + self.low.trailing_zeros() as usize;
            self.low &= self.low - 1;
            match self.raw.get(at)? {
                0 => {}
                separator => return Some((at, *separator)),
            }
        }
    }

    #[inline]
    fn next_property_separator(&mut self) -> Option<usize> {
        loop {
            let (at, separator) = self.next()?;
            if separator == PROPERTY_SEPARATOR {
                return Some(at);
            }
        }
    }

    /// Bit set of the bytes below 3 among the 64 from `at` on, the first in the lowest bit.
    #[inline]
    fn low_bytes(raw: &[u8], at: usize) -> u64 {
        let rest = raw.get(at..).unwrap_or_default();
        let rest = rest.get(..rest.len().min(LOOKED_AT)).unwrap_or_default();
        let (words, tail) = rest.as_chunks::<WORD>();
        // One shift at a time: shifting each to its place takes more steps.
        let low = words.iter().fold(0, |low, word| low >> WORD | below_three(word));
        let done = words.len() * WORD;
        let low = low.checked_shr((LOOKED_AT - done) as u32).unwrap_or(0); // 64 without a word
        if tail.is_empty() {
            return low;
        }
        // The tail of a longer text is read as its last eight bytes.
        let of_tail = match raw.last_chunk() {
            Some(last) => below_three(last) >> (LOOKED_AT - tail.len()),
            None => {
                let mut word = [u8::MAX; WORD];
                word.iter_mut().zip(tail).for_each(|(to, byte)| *to = *byte);
                below_three(&word) >> (LOOKED_AT - WORD)
            }
        };
        low | of_tail << done
    }
}

const LOOKED_AT: usize = 64;

const WORD: usize = 8;

/// Bit set of the bytes of `word` that are 0, 1 or 2, in the highest eight bits, the first byte's
/// the lowest of them.
#[inline]
const fn below_three(word: &[u8; WORD]) -> u64 {
    const LOW_SEVEN: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    const UP_TO_THE_TOP: u64 = 0x7D7D_7D7D_7D7D_7D7D;
    let word = u64_of(*word).swap_bytes();
    // Values from 3 on set the top bit; there is no carry into the next byte.
    let tops = !(((word & LOW_SEVEN) + UP_TO_THE_TOP) | word | LOW_SEVEN);
    // Moves each top bit to its own place among the highest eight.
    const TOGETHER: u64 = 0x0102_0408_1020_4080;
    (tops >> 7).wrapping_mul(TOGETHER) & 0xFF << 56
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(raw: &[u8]) -> Vec<(&[u8], &[u8])> {
        let mut pairs = Vec::new();
        each(raw, |name, value| pairs.push((name, value)));
        assert_eq!(iter(raw).collect::<Vec<_>>(), pairs);
        pairs
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
    fn separators_are_found_at_every_place() {
        for length in (0..40).chain(60..70).chain(126..135) {
            for place in 0..length {
                for filler in [0, 3, 0x80, 0x81, 0x82, 0xFF, b'a'] {
                    let mut bytes = vec![filler; length];
                    for separator in [1, 2] {
                        bytes[place] = separator;
                        let mut separators = Separators::new(&bytes);
                        assert_eq!(separators.next(), Some((place, separator)), "{bytes:?}");
                        assert_eq!(separators.next(), None, "{bytes:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn neighbouring_separators_are_all_found() {
        for length in 0..140 {
            let bytes: Vec<u8> = (0..length).map(|i| 1 + (i % 3 == 0) as u8).collect();
            let mut separators = Separators::new(&bytes);
            for (place, separator) in bytes.iter().enumerate() {
                assert_eq!(separators.next(), Some((place, *separator)));
            }
            assert_eq!(separators.next(), None);
        }
    }

    #[test]
    fn bytes_below_three_are_found_wherever_they_lie() {
        for filler in [3, b'a', 0x7F, 0x80, 0x82, 0xFF] {
            for places in 0..256 {
                let byte = |place: usize| {
                    if places >> place & 1 == 1 { (place % 3) as u8 } else { filler }
                };
                let word: [u8; WORD] = std::array::from_fn(byte);
                assert_eq!(below_three(&word) >> (LOOKED_AT - WORD), places, "{word:?}");
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
}
