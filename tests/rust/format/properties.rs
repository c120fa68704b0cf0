//! Properties: the reader rule against its plain reading, at every length.

use super::{config, each_flip};
use mqstore::format::message::properties::{
    Indexed, get, indexed, iter, names, push, to_map, without,
};
use proptest::prelude::*;

/// The rule of `MessageDecoder#string2messageProperties`, word for word.
fn by_the_rule(raw: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut pairs = Vec::new();
    let mut index = 0;
    while index < raw.len() {
        let end =
            raw[index..].iter().position(|byte| *byte == 2).map_or(raw.len(), |at| index + at);
        if end - index >= 3
            && let Some(at) = raw[index..].iter().position(|byte| *byte == 1).map(|at| index + at)
            && at > index
            && at + 1 < end
        {
            pairs.push((&raw[index..at], &raw[at + 1..end]));
        }
        index = end + 1;
    }
    pairs
}

const SAMPLE: &[u8] =
    b"TAGS\x01paid\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01AC110001\x02x\x01\x02odd\x02DELAY\x013\x02";

#[test]
fn every_shorter_piece_is_read_by_the_rule() {
    for length in 0..=SAMPLE.len() {
        let raw = &SAMPLE[..length];
        assert_eq!(iter(raw).collect::<Vec<_>>(), by_the_rule(raw), "{length} bytes");
    }
}

#[test]
fn every_changed_byte_is_read_by_the_rule() {
    each_flip(SAMPLE, |position, changed| {
        assert_eq!(iter(changed).collect::<Vec<_>>(), by_the_rule(changed), "byte {position}");
    });
}

/// Texts in which separators and names that count are frequent.
fn raw() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\x01".to_vec()),
        Just(b"\x02".to_vec()),
        Just(b"TAGS".to_vec()),
        Just(b"KEYS\x01".to_vec()),
        Just(b"INNER_NUM\x01".to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(config(4000))]

    #[test]
    fn any_bytes_are_read_by_the_rule(raw in raw()) {
        let pairs = by_the_rule(&raw);
        prop_assert_eq!(iter(&raw).collect::<Vec<_>>(), pairs.clone());
        let last = |name: &[u8]| pairs.iter().rev().find(|pair| pair.0 == name).map(|pair| pair.1);
        let wanted = Indexed {
            tags: last(names::TAGS),
            keys: last(names::KEYS),
            unique_key: last(names::UNIQ_KEY),
            delay: last(names::DELAY),
            multi_dispatch: last(names::INNER_MULTI_DISPATCH),
            multi_queue_offset: last(names::INNER_MULTI_QUEUE_OFFSET),
            inner_num: last(names::INNER_NUM),
            inner_base: last(names::INNER_BASE),
        };
        prop_assert_eq!(indexed(&raw), wanted);
        prop_assert_eq!(get(&raw, b"TAGS"), wanted.tags);
        for (name, value) in to_map(&raw) {
            prop_assert_eq!(Some(value), last(name));
        }
    }

    #[test]
    fn a_pushed_property_reads_back(
        pairs in prop::collection::vec(("[^\u{1}\u{2}]{1,12}", "[^\u{2}]{1,12}"), 0..10),
    ) {
        let mut raw = Vec::new();
        for (name, value) in &pairs {
            push(&mut raw, name.as_bytes(), value.as_bytes());
        }
        let read: Vec<_> = iter(&raw).collect();
        let wanted: Vec<_> = pairs.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
        prop_assert_eq!(read, wanted);
    }

    #[test]
    fn a_name_taken_out_is_gone_and_nothing_else_is(raw in raw()) {
        let left = without(&raw, b"TAGS");
        prop_assert_eq!(get(&left, b"TAGS"), None);
        let others: Vec<_> = by_the_rule(&raw).into_iter().filter(|pair| pair.0 != b"TAGS").collect();
        prop_assert_eq!(by_the_rule(&left), others);
    }
}
