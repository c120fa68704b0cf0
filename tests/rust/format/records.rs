//! Records of both versions and blanks.

use super::{config, each_flip, host};
use mqstore::error::CorruptionKind;
use mqstore::format::crc::body_crc;
use mqstore::format::message::host::Host;
use mqstore::format::message::sys_flag::{BORN_HOST_V6, STORE_HOST_V6};
use mqstore::format::message::{
    Frame, FrameError, MAGIC_BLANK, MessageView, Record, Version, read_frame, write_blank,
};
use proptest::prelude::*;

const V4: Host = Host::V4([10, 1, 2, 3], 10_911);
const V6: Host = Host::V6([0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 9876);

/// Both versions with each mix of hosts, with and without the checksum in the properties.
fn samples() -> Vec<(Record<'static>, Vec<u8>)> {
    let mut all = Vec::new();
    for version in [Version::V1, Version::V2] {
        for (born_host, store_host) in [(V4, V4), (V6, V4), (V4, V6), (V6, V6)] {
            for property_crc in [false, true] {
                let record = Record {
                    version,
                    body_crc: body_crc(b"what was ordered"),
                    queue_id: 5,
                    flag: -7,
                    queue_offset: 1_234_567_890_123,
                    physical_offset: 9_876_543_210,
                    sys_flag: 0x102,
                    born_timestamp_ms: 1_795_246_513_325,
                    born_host,
                    store_timestamp_ms: 1_795_246_513_326,
                    store_host,
                    reconsume_times: 3,
                    prepared_transaction_offset: 77,
                    body: b"what was ordered",
                    topic: b"orders",
                    properties: b"TAGS\x01paid\x02KEYS\x01k1 k2\x02",
                    property_crc,
                };
                all.push((record, encode(&record)));
            }
        }
    }
    all
}

fn encode(record: &Record<'_>) -> Vec<u8> {
    // Bytes left unwritten would show.
    let mut out = vec![0xA5; record.encoded_size()];
    record.encode_into(&mut out);
    out
}

fn message(bytes: &[u8]) -> Result<MessageView<'_>, FrameError> {
    match read_frame(bytes)? {
        Frame::Message(view) => Ok(view),
        other => panic!("not a message: {other:?}"),
    }
}

/// Every field but the lengths, as text, by name.
fn fields(view: &MessageView<'_>) -> Vec<(&'static str, String)> {
    vec![
        ("body_crc", view.body_crc().to_string()),
        ("queue_id", view.queue_id().to_string()),
        ("flag", view.flag().to_string()),
        ("queue_offset", view.queue_offset().to_string()),
        ("physical_offset", view.physical_offset().to_string()),
        ("sys_flag", view.sys_flag().to_string()),
        ("born_timestamp_ms", view.born_timestamp_ms().to_string()),
        ("born_host", view.born_host().to_string()),
        ("store_timestamp_ms", view.store_timestamp_ms().to_string()),
        ("store_host", view.store_host().to_string()),
        ("reconsume_times", view.reconsume_times().to_string()),
        ("prepared_transaction_offset", view.prepared_transaction_offset().to_string()),
        ("body", format!("{:?}", view.body())),
        ("topic", format!("{:?}", view.topic())),
        ("properties", format!("{:?}", view.raw_properties())),
    ]
}

/// The parts of a record in order, each with its length; those in capitals are lengths themselves.
fn layout(record: &Record<'_>) -> Vec<(&'static str, usize)> {
    vec![
        ("TOTALSIZE", 4),
        ("MAGICCODE", 4),
        ("body_crc", 4),
        ("queue_id", 4),
        ("flag", 4),
        ("queue_offset", 8),
        ("physical_offset", 8),
        ("sys_flag", 4),
        ("born_timestamp_ms", 8),
        ("born_host", record.born_host.encoded_len()),
        ("store_timestamp_ms", 8),
        ("store_host", record.store_host.encoded_len()),
        ("reconsume_times", 4),
        ("prepared_transaction_offset", 8),
        ("BODYLENGTH", 4),
        ("body", record.body.len()),
        ("TOPICLENGTH", record.version.topic_length_len()),
        ("topic", record.topic.len()),
        ("PROPERTIESLENGTH", 2),
        ("properties", record.encoded_properties_len()),
    ]
}

/// The part that holds a byte.
fn part_at(record: &Record<'_>, position: usize) -> &'static str {
    let mut end = 0;
    for (name, length) in layout(record) {
        end += length;
        if position < end {
            return name;
        }
    }
    panic!("byte {position} is behind the record");
}

#[test]
fn the_layout_adds_up() {
    for (record, bytes) in samples() {
        assert_eq!(layout(&record).iter().map(|(_, length)| length).sum::<usize>(), bytes.len());
    }
}

#[test]
fn every_shorter_piece_of_a_record_is_incomplete() {
    for (_, bytes) in samples() {
        for length in 0..bytes.len() {
            let needed = if length < 8 { 8 } else { bytes.len() };
            let got = read_frame(&bytes[..length]).map(|_| ()).unwrap_err();
            assert_eq!(got, FrameError::Incomplete { needed }, "{length} bytes");
        }
    }
}

#[test]
fn a_record_that_claims_less_or_more_than_it_has_is_refused() {
    for (_, mut bytes) in samples() {
        let size = bytes.len();
        bytes.resize(size + 300, 0);
        for claimed in 0..bytes.len() {
            bytes[..4].copy_from_slice(&i32::try_from(claimed).unwrap().to_be_bytes());
            match message(&bytes) {
                Ok(view) => assert_eq!((claimed, view.as_bytes().len()), (size, size)),
                Err(FrameError::Bad(error)) if claimed < 91 => {
                    assert_eq!((error.kind, error.position), (CorruptionKind::Size, 0));
                }
                Err(FrameError::Bad(error)) if claimed > size => {
                    assert_eq!((error.kind, error.position), (CorruptionKind::Length, 0));
                }
                Err(FrameError::Bad(error)) => {
                    assert!(error.position < claimed, "{claimed}: {error:?}");
                    assert!(claimed < size);
                }
                Err(error) => panic!("{claimed}: {error}"),
            }
        }
    }
}

#[test]
fn every_changed_byte_is_refused_or_changes_its_own_field_only() {
    for (record, bytes) in samples() {
        let before = fields(&message(&bytes).unwrap());
        each_flip(&bytes, |position, changed| {
            let part = part_at(&record, position);
            let Ok(view) = message(changed) else {
                let is_length = part.chars().all(char::is_uppercase);
                assert!(is_length || part == "sys_flag", "byte {position} of {part} refused");
                return;
            };
            let after = fields(&view);
            let differing: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
            let hosts = (view.born_host().is_v6(), view.store_host().is_v6());
            if hosts != (record.born_host.is_v6(), record.store_host.is_v6()) {
                // Two hosts of different lengths that change places take as many bytes as before.
                assert!(part == "sys_flag" && hosts.0 != hosts.1, "byte {position} of {part}");
                let moved = ["sys_flag", "born_host", "store_timestamp_ms", "store_host"];
                assert!(differing.iter().all(|(a, _)| moved.contains(&a.0)), "{differing:?}");
                return;
            }
            assert_eq!(differing.len(), 1, "byte {position} of {part}: {differing:?}");
            assert_eq!(differing[0].0.0, part, "byte {position}");
            let is_body = part == "body" || part == "body_crc";
            assert_eq!(view.check_body_crc().is_err(), is_body, "byte {position} of {part}");
        });
    }
}

#[test]
fn no_changed_byte_gets_past_the_checksum_in_the_properties() {
    for (record, bytes) in samples() {
        let whole = message(&bytes).unwrap();
        assert_eq!(whole.check_property_crc().is_ok(), record.property_crc);
        if record.property_crc {
            each_flip(&bytes, |position, changed| {
                if let Ok(view) = message(changed) {
                    let error = view.check_property_crc().unwrap_err();
                    assert_eq!(error.kind, CorruptionKind::PropertyCrc, "byte {position}");
                }
            });
        }
    }
}

#[test]
fn a_changed_byte_of_a_blank_makes_another_blank_or_none() {
    let mut bytes = [0; 8];
    write_blank(&mut bytes, 0x0102_0304);
    each_flip(&bytes, |position, changed| match read_frame(changed) {
        Ok(Frame::Blank { size }) => {
            assert!(position < 4);
            assert_eq!(size.to_be_bytes(), changed[..4]);
        }
        Err(FrameError::Bad(error)) => {
            // The top bit of the size would make it negative.
            let kind = if position < 4 { CorruptionKind::Blank } else { CorruptionKind::Magic };
            assert_eq!(error.kind, kind, "byte {position}");
            assert!(position != 0 || changed[0] >= 0x80);
        }
        other => panic!("byte {position}: {other:?}"),
    });
    for length in 0..8 {
        let got = read_frame(&bytes[..length]).map(|_| ()).unwrap_err();
        assert_eq!(got, FrameError::Incomplete { needed: 8 });
    }
}

#[test]
fn records_of_both_versions_and_a_blank_follow_each_other() {
    let mut log: Vec<u8> = samples().into_iter().flat_map(|(_, bytes)| bytes).collect();
    let mut blank = [0; 8];
    write_blank(&mut blank, 4096);
    log.extend_from_slice(&blank);
    let (mut at, mut read) = (0, Vec::new());
    loop {
        match read_frame(&log[at..]).unwrap() {
            Frame::Message(view) => {
                read.push(view.version());
                at += view.as_bytes().len();
            }
            Frame::Blank { size } => break assert_eq!(size, 4096),
            Frame::Empty => panic!("nothing at {at}"),
        }
    }
    assert_eq!(read, [[Version::V1; 8], [Version::V2; 8]].concat());
    assert_eq!(at, log.len() - 8);
}

fn bytes(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..=longest)
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn any_record_reads_back(
        (is_v2, property_crc, body_crc) in any::<(bool, bool, i32)>(),
        (queue_id, flag, sys_flag, reconsume_times) in any::<(i32, i32, i32, i32)>(),
        (queue_offset, physical_offset, born_timestamp_ms) in any::<(i64, i64, i64)>(),
        (store_timestamp_ms, prepared_transaction_offset) in any::<(i64, i64)>(),
        (born_host, store_host) in (host(), host()),
        (body, properties) in (bytes(300), bytes(300)),
        topic in prop::collection::vec(any::<u8>(), 1..=127),
        rest in bytes(20),
    ) {
        let record = Record {
            version: if is_v2 { Version::V2 } else { Version::V1 },
            body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp_ms,
            born_host, store_timestamp_ms, store_host, reconsume_times, prepared_transaction_offset,
            body: &body, topic: &topic, properties: &properties, property_crc,
        };
        let mut written = encode(&record);
        let size = written.len();
        written.extend_from_slice(&rest);
        let view = message(&written).unwrap();
        prop_assert_eq!(view.as_bytes(), &written[..size]);
        prop_assert_eq!(view.version(), record.version);
        let host_bits = i32::from(born_host.is_v6()) * BORN_HOST_V6
            + i32::from(store_host.is_v6()) * STORE_HOST_V6;
        prop_assert_eq!(view.sys_flag(), sys_flag & !(BORN_HOST_V6 | STORE_HOST_V6) | host_bits);
        prop_assert_eq!(view.body_crc(), body_crc);
        prop_assert_eq!((view.queue_id(), view.flag()), (queue_id, flag));
        prop_assert_eq!((view.queue_offset(), view.physical_offset()), (queue_offset, physical_offset));
        prop_assert_eq!(view.born_timestamp_ms(), born_timestamp_ms);
        prop_assert_eq!(view.store_timestamp_ms(), store_timestamp_ms);
        prop_assert_eq!((view.born_host(), view.store_host()), (born_host, store_host));
        prop_assert_eq!(view.reconsume_times(), reconsume_times);
        prop_assert_eq!(view.prepared_transaction_offset(), prepared_transaction_offset);
        prop_assert_eq!((view.body(), view.topic()), (&body[..], &topic[..]));
        prop_assert!(view.raw_properties().starts_with(&properties));
        if property_crc {
            prop_assert!(view.check_property_crc().is_ok());
        } else {
            prop_assert_eq!(view.raw_properties().len(), properties.len());
        }
    }

    #[test]
    fn any_bytes_get_an_answer(
        size in prop_oneof![any::<i32>(), 85..400_i32],
        magic in prop_oneof![Just(Version::V1.magic()), Just(Version::V2.magic()), Just(MAGIC_BLANK), any::<i32>()],
        // Mostly zeros: so that lengths within reach come up.
        rest in prop::collection::vec(prop_oneof![9 => Just(0_u8), 1 => any::<u8>()], 0..400),
    ) {
        let bytes = [&size.to_be_bytes()[..], &magic.to_be_bytes(), &rest].concat();
        match read_frame(&bytes) {
            Ok(Frame::Message(view)) => {
                prop_assert_eq!(view.as_bytes().len(), usize::try_from(size).unwrap());
                prop_assert!(!view.topic().is_empty());
                prop_assert!(view.as_bytes().len() <= bytes.len());
            }
            Ok(Frame::Blank { size: read }) => prop_assert_eq!(i32::try_from(read), Ok(size)),
            Ok(Frame::Empty) => prop_assert_eq!((size, magic), (0, 0)),
            Err(FrameError::Incomplete { needed }) => prop_assert!(needed > bytes.len()),
            Err(FrameError::Bad(error)) => prop_assert!(error.position < bytes.len()),
        }
    }
}
