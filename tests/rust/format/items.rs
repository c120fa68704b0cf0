//! Batch items, queue extension units, and compressed bodies.

use super::{config, each_flip};
use mqstore::error::CorruptionKind;
use mqstore::format::body::{BodyError, decompress};
use mqstore::format::queue::batch::{BatchItem, items};
use mqstore::format::queue::consume_queue_ext::{
    ExtFrame, ExtUnit, address_of, offset_of, read_unit,
};
use proptest::prelude::*;

fn batch() -> (Vec<BatchItem<'static>>, Vec<u8>) {
    let all = vec![
        BatchItem { flag: 1, body: b"first", properties: b"TAGS\x01a\x02" },
        BatchItem { flag: 2, body: b"", properties: b"" },
        BatchItem { flag: 3, body: b"third", properties: b"KEYS\x01k\x02" },
    ];
    let mut body = Vec::new();
    for item in &all {
        item.encode_to(&mut body).unwrap();
    }
    (all, body)
}

#[test]
fn a_batch_cut_short_gives_its_whole_items_and_an_error() {
    let (all, body) = batch();
    let mut ends = vec![0];
    for item in &all {
        ends.push(ends[ends.len() - 1] + item.encoded_size());
    }
    for length in 0..=body.len() {
        let read: Vec<_> = items(&body[..length]).collect();
        let whole = ends.iter().filter(|end| **end <= length).count() - 1;
        assert_eq!(read[..whole], all[..whole].iter().map(|item| Ok(*item)).collect::<Vec<_>>());
        match ends.contains(&length) {
            true => assert_eq!(read.len(), whole),
            false => {
                let error = read[whole].as_ref().unwrap_err();
                assert_eq!((error.kind, error.position), (CorruptionKind::Batch, ends[whole]));
                assert_eq!(read.len(), whole + 1, "{length} bytes");
            }
        }
    }
}

#[test]
fn every_changed_byte_of_a_batch_is_refused_or_changes_one_item() {
    let (all, body) = batch();
    each_flip(&body, |position, changed| {
        let read: Vec<_> = items(changed).collect();
        match read.iter().position(Result::is_err) {
            Some(bad) => assert_eq!(bad, read.len() - 1, "byte {position}"),
            None => {
                assert_eq!(read.len(), all.len(), "byte {position}");
                let differing = read.iter().zip(&all).filter(|(a, b)| a.as_ref() != Ok(*b)).count();
                // A magic code and a checksum that nobody reads.
                assert!(differing <= 1, "byte {position}");
            }
        }
    });
}

#[test]
fn every_changed_byte_of_an_extension_unit_is_refused_or_changes_it() {
    let unit = ExtUnit { tags_code: 5, store_timestamp_ms: 6, bitmap: &[1, 2, 3, 4, 5, 6, 7, 8] };
    let bytes = unit.encode().unwrap();
    each_flip(&bytes, |position, changed| match read_unit(changed) {
        Ok(ExtFrame::Unit(read, length)) => {
            assert_ne!(read, unit, "byte {position}");
            assert!(length <= bytes.len());
        }
        Ok(ExtFrame::End | ExtFrame::Empty) => assert!(position < 2, "byte {position}"),
        Err(error) => assert!([0, 18].contains(&error.position), "byte {position}: {error:?}"),
    });
    for length in 0..bytes.len() {
        assert_eq!(read_unit(&bytes[..length]).unwrap_err().kind, CorruptionKind::Ext);
    }
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn any_batch_reads_back(
        all in prop::collection::vec(
            (any::<i32>(), prop::collection::vec(any::<u8>(), 0..50), prop::collection::vec(any::<u8>(), 0..50)),
            0..8,
        ),
    ) {
        let mut body = Vec::new();
        for (flag, one, properties) in &all {
            BatchItem { flag: *flag, body: one, properties }.encode_to(&mut body).unwrap();
        }
        let read: Vec<_> = items(&body)
            .map(|item| item.map(|item| (item.flag, item.body.to_vec(), item.properties.to_vec())))
            .collect::<Result<_, _>>()
            .unwrap();
        prop_assert_eq!(read, all);
    }

    #[test]
    fn any_unit_reads_back(
        (tags_code, store_timestamp_ms) in any::<(i64, i64)>(),
        bitmap in prop::collection::vec(any::<u8>(), 0..100),
        rest in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let unit = ExtUnit { tags_code, store_timestamp_ms, bitmap: &bitmap };
        let mut bytes = unit.encode().unwrap();
        let size = bytes.len();
        bytes.extend_from_slice(&rest);
        prop_assert_eq!(read_unit(&bytes), Ok(ExtFrame::Unit(unit, size)));
    }

    #[test]
    fn any_address_leads_back(offset in any::<i64>(), code in any::<i64>()) {
        prop_assert_eq!(address_of(offset).and_then(offset_of), address_of(offset).map(|_| offset));
        prop_assert_eq!(offset_of(code).and_then(address_of), offset_of(code).map(|_| code));
    }

    #[test]
    fn any_body_gets_an_answer_within_the_limit(
        body in prop::collection::vec(any::<u8>(), 0..300),
        sys_flag in any::<i32>(),
        limit in 0..1000_usize,
    ) {
        match decompress(&body, sys_flag, limit) {
            Ok(undone) if sys_flag & 1 == 0 => prop_assert_eq!(&*undone, &body[..]),
            Ok(undone) => prop_assert!(undone.len() <= limit),
            Err(BodyError::UnknownMethod { sys_flag: named }) => {
                prop_assert_eq!(named, sys_flag);
                prop_assert!((sys_flag >> 8 & 7) > 3);
            }
            Err(_) => prop_assert!(sys_flag & 1 == 1),
        }
    }
}
