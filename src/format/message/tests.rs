use super::*;
use crate::format::crc::body_crc;

fn record<'a>() -> Record<'a> {
    Record {
        version: Version::V1,
        body_crc: body_crc(b"hello"),
        queue_id: 3,
        flag: -1,
        queue_offset: 7,
        physical_offset: 4096,
        sys_flag: 0x33,
        born_timestamp_ms: 1_696_161_295_975,
        born_host: Host::V4([10, 0, 0, 1], 5555),
        store_timestamp_ms: 1_696_161_296_007,
        store_host: Host::V4([192, 168, 7, 3], 10911),
        reconsume_times: 2,
        prepared_transaction_offset: 99,
        body: b"hello",
        topic: b"orders",
        properties: b"TAGS\x01a\x02",
        property_crc: false,
    }
}

fn encode(record: &Record<'_>) -> Vec<u8> {
    let mut out = vec![0xEE; record.encoded_size()];
    record.encode_into(&mut out);
    out
}

fn view(bytes: &[u8]) -> MessageView<'_> {
    match read_frame(bytes) {
        Ok(Frame::Message(view)) => view,
        other => panic!("no message: {other:?}"),
    }
}

fn kind(bytes: &[u8]) -> (CorruptionKind, usize) {
    match read_frame(bytes) {
        Err(FrameError::Bad(error)) => (error.kind, error.position),
        other => panic!("not refused: {other:?}"),
    }
}

fn patched(mut bytes: Vec<u8>, at: usize, value: i32) -> Vec<u8> {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    bytes
}

#[test]
fn a_written_record_reads_back() {
    for (version, born_host, store_host) in [
        (Version::V1, Host::V4([1, 2, 3, 4], -1), Host::V4([5, 6, 7, 8], 65_536)),
        (Version::V2, Host::V6([9; 16], 1), Host::V4([5, 6, 7, 8], 2)),
        (Version::V1, Host::V4([1, 2, 3, 4], 1), Host::V6([8; 16], 2)),
        (Version::V2, Host::V6([9; 16], 1), Host::V6([8; 16], 2)),
    ] {
        let wanted = Record { version, born_host, store_host, ..record() };
        let bytes = encode(&wanted);
        let got = view(&bytes);
        assert_eq!(got.as_bytes(), bytes);
        assert_eq!(got.store_size() as usize, bytes.len());
        assert_eq!(got.version(), version);
        assert_eq!(got.body_crc(), body_crc(b"hello"));
        assert_eq!((got.queue_id(), got.flag()), (3, -1));
        assert_eq!((got.queue_offset(), got.physical_offset()), (7, 4096));
        let hosts = i32::from(born_host.is_v6()) << 4 | i32::from(store_host.is_v6()) << 5;
        assert_eq!(got.sys_flag(), 0x3 | hosts);
        assert_eq!(got.born_timestamp_ms(), 1_696_161_295_975);
        assert_eq!(got.store_timestamp_ms(), 1_696_161_296_007);
        assert_eq!((got.born_host(), got.store_host()), (born_host, store_host));
        assert_eq!((got.reconsume_times(), got.prepared_transaction_offset()), (2, 99));
        assert_eq!((got.body(), got.topic()), (&b"hello"[..], &b"orders"[..]));
        assert_eq!(got.raw_properties(), b"TAGS\x01a\x02");
        assert_eq!(got.property(b"TAGS"), Some(&b"a"[..]));
        assert_eq!(got.transaction(), Transaction::None);
        assert_eq!(got.message_id(), message_id(&store_host, 4096));
        assert_eq!(got.check_body_crc(), Ok(()));
    }
}

#[test]
fn fixed_parts_have_the_known_sizes() {
    let empty = Record { body: b"", topic: b"", properties: b"", ..record() };
    assert_eq!(empty.encoded_size(), 91);
    assert_eq!(Record { version: Version::V2, ..empty }.encoded_size(), 92);
    let v6 = Host::V6([0; 16], 0);
    assert_eq!(Record { born_host: v6, ..empty }.encoded_size(), 103);
    assert_eq!(Record { born_host: v6, store_host: v6, ..empty }.encoded_size(), 115);
}

#[test]
fn more_bytes_may_follow() {
    let mut bytes = encode(&record());
    let size = bytes.len();
    bytes.extend_from_slice(&[0xFF; 9]);
    assert_eq!(view(&bytes).as_bytes().len(), size);
}

#[test]
fn every_shorter_piece_is_incomplete() {
    let bytes = encode(&record());
    for length in 0..bytes.len() {
        let needed = if length < 8 { 8 } else { bytes.len() };
        match read_frame(&bytes[..length]) {
            Err(FrameError::Incomplete { needed: got }) => assert_eq!(got, needed),
            other => panic!("{length} bytes: {other:?}"),
        }
    }
}

#[test]
fn a_claim_of_2_gib_is_only_incomplete() {
    let bytes = patched(encode(&record()), 0, i32::MAX);
    match read_frame(&bytes) {
        Err(FrameError::Incomplete { needed }) => assert_eq!(needed, 0x7FFF_FFFF),
        other => panic!("{other:?}"),
    }
}

#[test]
fn impossible_sizes_are_refused() {
    let bytes = encode(&record());
    for size in [i32::MIN, -1, 0, 1, 8, 90] {
        assert_eq!(kind(&patched(bytes.clone(), 0, size)), (CorruptionKind::Size, 0), "{size}");
    }
    let v6 = patched(encode(&record())[..91].to_vec(), SYS_FLAG_AT, 0x30);
    assert_eq!(kind(&patched(v6, 0, 91)), (CorruptionKind::Size, 0));
}

#[test]
fn other_magic_codes_are_refused_with_any_size() {
    let bytes = encode(&record());
    for magic in [0, 1, -1, MAGIC_V1 + 1, MAGIC_V1.swap_bytes()] {
        for size in [i32::MIN, -1, 8, 200, i32::MAX] {
            let bytes = patched(patched(bytes.clone(), 4, magic), 0, size);
            assert_eq!(kind(&bytes), (CorruptionKind::Magic, 4), "{size} {magic}");
        }
    }
    assert_eq!(kind(&patched(patched(bytes, 4, 1), 0, 0)), (CorruptionKind::Magic, 4));
}

#[test]
fn zeros_are_an_empty_place() {
    assert!(matches!(read_frame(&[0; 8]), Ok(Frame::Empty)));
    assert!(matches!(read_frame(&[0; 100]), Ok(Frame::Empty)));
    assert_eq!(read_frame(&[0; 7]).unwrap_err(), FrameError::Incomplete { needed: 8 });
}

#[test]
fn blanks_have_eight_bytes_at_least() {
    let mut bytes = [0xEE; 9];
    write_blank(&mut bytes, 4096);
    assert_eq!(bytes, [0, 0, 0x10, 0, 0xCB, 0xD4, 0x31, 0x94, 0xEE]);
    assert!(matches!(read_frame(&bytes), Ok(Frame::Blank { size: 4096 })));
    for size in [8, i32::MAX.unsigned_abs()] {
        write_blank(&mut bytes, size);
        assert!(matches!(read_frame(&bytes), Ok(Frame::Blank { size: got }) if got == size));
    }
    for size in [0, 7, u32::MAX, 1 << 31] {
        write_blank(&mut bytes, size);
        assert_eq!(kind(&bytes), (CorruptionKind::Blank, 0), "{size}");
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused_where_they_lie() {
    let bytes = encode(&record());
    let (body_at, topic_at, properties_at, end) = (84, 93, 100, 109);
    assert_eq!(bytes.len(), end);
    for length in [-1, i32::MIN, i32::MAX, 24] {
        let found = kind(&patched(bytes.clone(), body_at, length));
        assert_eq!(found, (CorruptionKind::BodyLength, body_at), "{length}");
    }
    for length in [0_i8, -1, i8::MIN, i8::MAX, 15] {
        let mut bytes = bytes.clone();
        bytes[topic_at] = length.cast_unsigned();
        assert_eq!(kind(&bytes), (CorruptionKind::TopicLength, topic_at), "{length}");
    }
    for length in [-1_i16, i16::MIN, i16::MAX, 8] {
        let mut bytes = bytes.clone();
        bytes[properties_at..properties_at + 2].copy_from_slice(&length.to_be_bytes());
        assert_eq!(kind(&bytes), (CorruptionKind::PropertiesLength, properties_at), "{length}");
    }
    for length in [0_i16, 6] {
        let mut bytes = bytes.clone();
        bytes[properties_at..properties_at + 2].copy_from_slice(&length.to_be_bytes());
        assert_eq!(kind(&bytes), (CorruptionKind::Length, 0), "{length}");
    }
}

#[test]
fn a_length_that_does_not_fit_is_told_with_what_would() {
    let whole = encode(&Record {
        version: Version::V2,
        born_host: Host::V6([9; 16], 1),
        sys_flag: 1 << 4,
        ..record()
    });
    let (body_at, topic_at, properties_at) = (96, 105, 113);
    assert_eq!(whole.len(), 122);
    let told = |bytes: &[u8]| match read_frame(bytes) {
        Err(FrameError::Bad(error)) => (error.position, error.expected, error.found),
        other => panic!("not refused: {other:?}"),
    };
    let with = |at: usize, length: i16| {
        let mut bytes = whole.clone();
        bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
        told(&bytes)
    };
    let words = |at, expected: &str, found: &str| (at, expected.to_owned(), found.to_owned());
    assert_eq!(
        told(&patched(whole.clone(), body_at, 23)),
        words(body_at, "a body within the 22 bytes left", "23")
    );
    assert_eq!(with(topic_at, 14), words(topic_at, "a topic of 1 to 13 bytes", "14"));
    assert_eq!(with(properties_at, 8), words(properties_at, "properties of 7 bytes", "8"));
    assert_eq!(with(properties_at, 6), words(0, "121 bytes, which its parts add up to", "122"));
    let mut short = patched(encode(&record()), 36, 0x30);
    short.truncate(91);
    let found = words(0, "room for 40 bytes of hosts", "a record of 91 bytes");
    assert_eq!(told(&patched(short, 0, 91)), found);
}

#[test]
fn a_negative_topic_length_of_version_two_is_refused() {
    let topic = [b'T'; 300];
    let bytes = encode(&Record { version: Version::V2, topic: &topic, ..record() });
    assert_eq!(view(&bytes).topic(), topic);
    let mut bad = bytes;
    bad[93] = 0x80;
    assert_eq!(kind(&bad), (CorruptionKind::TopicLength, 93));
}

#[test]
fn a_wrong_body_crc_is_named() {
    let mut bytes = encode(&record());
    bytes[88] ^= 1;
    let error = view(&bytes).check_body_crc().unwrap_err();
    assert_eq!((error.kind, error.position), (CorruptionKind::BodyCrc, 8));
    let empty = encode(&Record { body: b"", body_crc: 5, ..record() });
    assert_eq!(view(&empty).check_body_crc(), Ok(()));
}

#[test]
fn property_crc_covers_all_before_it() {
    let whole = encode(&Record { property_crc: true, ..record() });
    assert_eq!(view(&whole).raw_properties().len(), 7 + 20);
    assert_eq!(view(&whole).check_property_crc(), Ok(()));
    for position in (8..84).chain(88..93).chain(whole.len() - 20..whole.len()) {
        if (36..40).contains(&position) {
            continue;
        }
        let mut bad = whole.clone();
        bad[position] ^= 1;
        let error = view(&bad).check_property_crc().unwrap_err();
        assert_eq!(error.kind, CorruptionKind::PropertyCrc, "byte {position}");
    }
}

#[test]
fn property_crc_is_set_apart_from_what_stands_before_it() {
    for (properties, length) in [(&b""[..], 20), (b"a\x01b", 24), (b"a\x01b\x02", 24)] {
        let whole = encode(&Record { property_crc: true, properties, ..record() });
        let stored = view(&whole).raw_properties();
        assert_eq!(stored.len(), length);
        assert_eq!(view(&whole).check_property_crc(), Ok(()));
        assert_eq!(properties::iter(stored).last().unwrap().0, b"__CRC32#");
    }
}

#[test]
fn a_record_without_property_crc_fails_its_check() {
    for properties in [&b""[..], b"a\x01b\x02", b"__CRC32#\x010594496561\x02x"] {
        let bytes = encode(&Record { properties, ..record() });
        let error = view(&bytes).check_property_crc().unwrap_err();
        assert_eq!((error.kind, &*error.found), (CorruptionKind::PropertyCrc, "none"));
    }
}

#[test]
fn a_length_that_no_field_holds_is_not_written() {
    let kind = |record: Record<'_>| record.check().map_err(|error| error.kind);
    let long = vec![b'x'; 32_768];
    assert_eq!(kind(record()), Ok(()));
    assert_eq!(kind(Record { topic: b"", ..record() }), Err(CorruptionKind::TopicLength));
    assert_eq!(kind(Record { topic: &long[..127], ..record() }), Ok(()));
    assert_eq!(kind(Record { topic: &long[..128], ..record() }), Err(CorruptionKind::TopicLength));
    let v2 = Record { version: Version::V2, ..record() };
    assert_eq!(kind(Record { topic: &long[..32_767], ..v2 }), Ok(()));
    assert_eq!(kind(Record { topic: &long, ..v2 }), Err(CorruptionKind::TopicLength));
    assert_eq!(kind(Record { properties: &long[..32_767], ..v2 }), Ok(()));
    assert_eq!(kind(Record { properties: &long, ..v2 }), Err(CorruptionKind::PropertiesLength));
    let with_crc = Record { property_crc: true, ..v2 };
    assert_eq!(kind(Record { properties: &long[..32_746], ..with_crc }), Ok(()));
    assert_eq!(
        kind(Record { properties: &long[..32_747], ..with_crc }),
        Err(CorruptionKind::PropertiesLength)
    );
}
