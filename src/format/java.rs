//! Java's `String.hashCode`, `Math.abs` and UTF-8 decoding.

use super::bytes::{u32_of, u64_of};

pub use super::message::host::{Host, message_id, parse_message_id};

const POWERS: [u32; 9] = {
    let mut powers = [1_u32; 9];
    let mut i = 1;
    while i < powers.len() {
        powers[i] = powers[i - 1].wrapping_mul(31);
        i += 1;
    }
    powers
};

/// Top bit of each of eight bytes: all clear for ASCII.
const NOT_ASCII: u64 = 0x8080_8080_8080_8080;

/// `String.hashCode` of the text that `utf8` decodes to.
#[inline]
#[must_use]
pub fn hash_code(utf8: &[u8]) -> i32 {
    extend(0, utf8).cast_signed()
}

/// Hash of an index key: `Math.abs` of the hash of `topic + "#" + key`, and 0 for
/// `Integer.MIN_VALUE` (`IndexFile#indexKeyHashMethod`, `IndexService#buildKey`).
#[inline]
#[must_use]
pub fn key_hash(topic: &[u8], key: &[u8]) -> i32 {
    TopicHash::of(topic).with_key(key)
}

/// Stands before the tags in the text of a tag entry.
pub const TAG_PREFIX: &[u8] = b"T#";

/// Hash state after a topic, shared by its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicHash(u32);

impl TopicHash {
    #[inline]
    #[must_use]
    pub fn of(topic: &[u8]) -> Self {
        Self(extend(0, topic).wrapping_mul(31).wrapping_add(u32::from(b'#')))
    }

    #[inline(always)]
    #[must_use]
    pub fn with_key(self, key: &[u8]) -> i32 {
        non_negative(extend(self.0, key).cast_signed())
    }

    /// The hash of the tag entry of a message with these tags: that of `topic#T#tags`
    /// (`IndexService#buildKey`, `MessageConst.INDEX_TAG_TYPE`).
    #[inline]
    #[must_use]
    pub fn with_tags(self, tags: &[u8]) -> i32 {
        non_negative(extend(extend(self.0, TAG_PREFIX), tags).cast_signed())
    }
}

/// [`key_hash`] of the whole `topic#key`.
#[inline]
#[must_use]
pub fn key_hash_of(index_key: &[u8]) -> i32 {
    non_negative(hash_code(index_key))
}

/// `Math.abs`, and 0 for `i32::MIN`.
#[inline]
const fn non_negative(hash: i32) -> i32 {
    match hash.checked_abs() {
        Some(hash) => hash,
        None => 0,
    }
}

/// Extends `hash` by `utf8`.
///
/// Eight ASCII bytes are one step: `hash * 31^8` plus a number independent of the hash, so only one
/// multiplication waits for the step before.
#[inline(always)]
fn extend(hash: u32, utf8: &[u8]) -> u32 {
    let (words, tail) = utf8.as_chunks::<8>();
    let mut extended = hash;
    let mut seen = 0;
    for word in words {
        let word = u64_of(*word);
        seen |= word;
        extended = extended.wrapping_mul(POWERS[8]).wrapping_add(of_eight(word));
    }
    if !tail.is_empty() {
        let last = match utf8.last_chunk() {
            Some(word) => u64_of(*word) & ((1 << (8 * tail.len())) - 1),
            None => right_aligned(tail),
        };
        seen |= last;
        extended = extended.wrapping_mul(POWERS[tail.len()]).wrapping_add(of_eight(last));
    }
    if seen & NOT_ASCII != 0 { extend_decoded(hash, utf8) } else { extended }
}

/// Hash of eight ASCII characters: neighbours are joined to pairs, pairs to fours.
#[inline]
const fn of_eight(word: u64) -> u32 {
    // A lane `256 * a + b` becomes `31 * a + b`, and so on: never more, so lanes do not borrow.
    let pairs = word - ((word >> 8) & 0x00FF_00FF_00FF_00FF) * (256 - 31);
    let fours = pairs - ((pairs >> 16) & 0x0000_FFFF_0000_FFFF) * (65_536 - 31 * 31);
    ((fours >> 32) as u32).wrapping_mul(POWERS[4]).wrapping_add(fours as u32)
}

/// Fewer than eight bytes as the low ones of a number; leading zeros do not change a hash.
#[inline]
fn right_aligned(tail: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (tail.first_chunk::<4>(), tail.last_chunk::<4>()) {
        let shift = 8 * (tail.len() - 4);
        return u64::from(u32_of(*first)) << shift | u64::from(u32_of(*last));
    }
    match *tail {
        [one] => u64::from(one),
        [one, two] => u64::from(u32_of([0, 0, one, two])),
        [one, two, three] => u64::from(u32_of([0, one, two, three])),
        _ => 0,
    }
}

/// [`extend`] for any bytes, one `char` at a time.
#[cold]
fn extend_decoded(hash: u32, utf8: &[u8]) -> u32 {
    let mut extended = hash;
    decode(utf8, |unit| extended = extended.wrapping_mul(31).wrapping_add(u32::from(unit)));
    extended
}

/// Decodes `utf8` as Java's `new String(utf8, UTF_8)` and gives `unit` each `char`.
///
/// Invalid bytes become U+FFFD, one for each longest beginning of a character, as in Rust. But Java
/// takes three bytes that spell a surrogate for one.
fn decode(utf8: &[u8], mut unit: impl FnMut(u16)) {
    let mut left = utf8;
    while !left.is_empty() {
        let Some(chunk) = left.utf8_chunks().next() else { return };
        let mut units = [0; 2];
        for character in chunk.valid().chars() {
            for one in character.encode_utf16(&mut units).iter() {
                unit(*one);
            }
        }
        let invalid = &left[chunk.valid().len()..];
        if invalid.is_empty() {
            return;
        }
        unit(0xFFFD);
        let length = match invalid {
            [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..] => 3,
            [0xED, 0xA0..=0xBF, ..] => 2,
            _ => chunk.invalid().len(),
        };
        left = &invalid[length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow_hash(text: &str) -> i32 {
        text.encode_utf16()
            .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
    }

    #[test]
    fn hash_code_of_known_texts() {
        assert_eq!(hash_code(b""), 0);
        assert_eq!(hash_code(b"a"), 97);
        assert_eq!(hash_code(b"TagA"), 2_598_919);
        assert_eq!(hash_code(b"polygenelubricants"), i32::MIN);
        assert_eq!(hash_code("grüße".as_bytes()), slow_hash("grüße"));
        assert_eq!(hash_code("😀".as_bytes()), 1_772_899);
    }

    #[test]
    fn eight_wide_hash_is_the_hash_at_every_length() {
        let text: String = ('\u{1}'..='\u{7f}').cycle().take(300).collect();
        for length in 0..text.len() {
            for begin in [0, length / 3, length] {
                let part = &text[begin..length];
                assert_eq!(hash_code(part.as_bytes()), slow_hash(part), "{begin}..{length}");
            }
        }
        assert_eq!(hash_code(&[0x7F; 64]), slow_hash(&"\u{7f}".repeat(64)));
    }

    #[test]
    fn one_wide_character_anywhere_is_seen() {
        for position in 0..20 {
            let mut text = "x".repeat(position);
            text.push('é');
            text.push_str(&"y".repeat(20 - position));
            assert_eq!(hash_code(text.as_bytes()), slow_hash(&text), "{position}");
        }
    }

    #[test]
    fn malformed_text_is_hashed_as_java_decodes_it() {
        let cases: [(&[u8], &str); 13] = [
            (b"\xFFa", "\u{FFFD}a"),
            (b"\xC0\x80", "\u{FFFD}\u{FFFD}"),
            (b"\xE2\x82", "\u{FFFD}"),
            (b"\xE2\x82a", "\u{FFFD}a"),
            (b"\xED\xA0\x80a", "\u{FFFD}a"),
            (b"\xED\xA0a", "\u{FFFD}a"),
            (b"\xED\xA0", "\u{FFFD}"),
            (b"\xED\xBF\xBF\xED\xA0\x80", "\u{FFFD}\u{FFFD}"),
            (b"\xE0\x80\x80", "\u{FFFD}\u{FFFD}\u{FFFD}"),
            (b"\xF0\x9F\x98", "\u{FFFD}"),
            (b"\xF0\x9F\x98a", "\u{FFFD}a"),
            ("abcdefüü".as_bytes(), "abcdefüü"),
            (b"\xF4\x90\x80\x80", "\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}"),
        ];
        for (bytes, text) in cases {
            assert_eq!(hash_code(bytes), slow_hash(text), "{bytes:x?}");
        }
    }

    #[test]
    fn key_hash_joins_topic_and_key() {
        assert_eq!(key_hash(b"Ea", b"20231001123456"), 19_583_063);
        assert_eq!(key_hash(b"FB", b"20231001123456"), 19_583_063);
        assert_eq!(key_hash(b"T", b"k0"), 2_539_444);
        for (tags, hash) in [
            ("TagA", 490_158_619),
            ("TagB", 490_158_618),
            ("TagC", 490_158_617),
            ("A || B", 800_670_335),
            ("BT1", 1_678_397_311),
        ] {
            assert_eq!(TopicHash::of(b"T").with_tags(tags.as_bytes()), hash, "{tags}");
            assert_eq!(key_hash(b"T", format!("T#{tags}").as_bytes()), hash, "{tags}");
        }
        for (topic, key) in
            [("", ""), ("a", ""), ("", "b"), ("OrderTopic", "order-000000042"), ("ü", "ß")]
        {
            let whole = format!("{topic}#{key}");
            assert_eq!(
                key_hash(topic.as_bytes(), key.as_bytes()),
                slow_hash(&whole).wrapping_abs()
            );
            assert_eq!(key_hash_of(whole.as_bytes()), slow_hash(&whole).wrapping_abs());
        }
    }

    #[test]
    fn key_hash_without_a_positive_counterpart_is_zero() {
        assert_eq!(hash_code(b"polygenelubricants"), i32::MIN);
        assert_eq!(key_hash_of(b"polygenelubricants"), 0);
        assert_eq!(non_negative(-7), 7);
        assert_eq!(non_negative(i32::MIN + 1), i32::MAX);
    }
}
