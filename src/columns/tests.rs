use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Fields, Schema};
use proptest::prelude::*;

use super::*;
use crate::config::StoreConfig;
use crate::error::{CorruptionKind, Error};
use crate::format::body::tests::compress;
use crate::format::crc::body_crc;
use crate::format::message::host::Host;
use crate::format::message::properties;
use crate::format::message::sys_flag::Compression;
use crate::format::message::{Frame, MessageView, Record, Version, read_frame};
use crate::log::read::range_scan::RangeScan;
use crate::log::read::scanner::{Flow, Lost};
use crate::store::read::scan::{OnDamage, Places, Scan, ScanFilter};
use crate::store::{LogSource, MessageStore, NewMessage, OpenMode};

const HOST: Host = Host::V4([10, 9, 8, 7], 10911);

fn record<'a>() -> Record<'a> {
    Record {
        version: Version::V1,
        body_crc: 0,
        queue_id: 3,
        flag: -4,
        queue_offset: 5,
        physical_offset: 230,
        sys_flag: 0,
        born_timestamp_ms: 1_700_000_000_001,
        born_host: HOST,
        store_timestamp_ms: 1_700_000_000_002,
        store_host: HOST,
        reconsume_times: 6,
        prepared_transaction_offset: 7,
        body: b"body",
        topic: b"orders",
        properties: b"",
        property_crc: false,
    }
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut out = vec![0; record.encoded_size()];
    record.encode_into(&mut out);
    out
}

fn view(bytes: &[u8]) -> MessageView<'_> {
    match read_frame(bytes) {
        Ok(Frame::Message(view)) => view,
        other => panic!("{other:?}"),
    }
}

fn batch(columns: &[Column], records: &[Vec<u8>]) -> RecordBatch {
    batch_like(columns, schema_of(columns), records)
}

fn batch_like(
    columns: &[Column],
    schema: arrow_schema::SchemaRef,
    records: &[Vec<u8>],
) -> RecordBatch {
    let limits = BatchLimits { rows: records.len() + 1, body_bytes: usize::MAX };
    let mut builder = BatchBuilder::new(columns, schema, limits).unwrap();
    for record in records {
        assert_eq!(builder.push(&view(record), None).unwrap(), Flow::Continue);
    }
    let batch = builder.finish().unwrap();
    assert!(builder.is_empty());
    for column in batch.columns() {
        column.to_data().validate_full().unwrap();
    }
    batch
}

fn texts(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let column = batch.column_by_name(name).unwrap();
    match column.data_type() {
        DataType::Utf8 => {
            column.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
        }
        DataType::Utf8View => {
            column.as_string_view().iter().map(|text| text.map(str::to_owned)).collect()
        }
        other => panic!("{other}"),
    }
}

fn ints(batch: &RecordBatch, name: &str) -> Vec<i32> {
    batch.column_by_name(name).unwrap().as_primitive::<Int32Type>().values().to_vec()
}

pub(super) fn longs(batch: &RecordBatch, name: &str) -> Vec<i64> {
    batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn times(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    let column = batch.column_by_name(name).unwrap();
    column.as_primitive::<TimestampMicrosecondType>().iter().collect()
}

fn bodies(batch: &RecordBatch, name: &str) -> Vec<Vec<u8>> {
    let column = batch.column_by_name(name).unwrap();
    match column.data_type() {
        DataType::Binary => column.as_binary::<i32>().iter().map(|b| b.unwrap().to_vec()).collect(),
        _ => column.as_binary_view().iter().map(|b| b.unwrap().to_vec()).collect(),
    }
}

fn keys(batch: &RecordBatch) -> Vec<Vec<String>> {
    let column = batch.column_by_name("keys").unwrap().as_list::<i32>();
    column
        .iter()
        .map(|keys| {
            keys.unwrap().as_string::<i32>().iter().map(|k| k.unwrap().to_owned()).collect()
        })
        .collect()
}

fn maps(batch: &RecordBatch) -> Vec<Vec<(String, String)>> {
    let column = batch.column_by_name("properties").unwrap().as_map();
    column
        .iter()
        .map(|entries| {
            let entries = entries.unwrap();
            let side = |at: usize| {
                entries.column(at).as_string::<i32>().iter().map(|t| t.unwrap().to_owned())
            };
            side(0).zip(side(1)).collect()
        })
        .collect()
}

fn block(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in pairs {
        properties::push(&mut block, name, value);
    }
    block
}

#[test]
fn every_column_shows_its_field() {
    let block = block(&[
        (b"TAGS", b"paid"),
        (b"KEYS", b"o-1 o-2"),
        (b"UNIQ_KEY", b"0A"),
        (b"colour", "grün".as_bytes()),
    ]);
    let message = Record { properties: &block, body_crc: body_crc(b"body"), ..record() };
    let bytes = encoded(&message);
    let size = i32::try_from(bytes.len()).unwrap();
    let batch = batch(Column::ALL, &[bytes]);
    assert_eq!(batch.schema(), schema());
    let one = |text: &str| vec![Some(text.to_owned())];
    assert_eq!(texts(&batch, "broker"), [None]);
    assert_eq!(texts(&batch, "topic"), one("orders"));
    assert_eq!(ints(&batch, "queue_id"), [3]);
    assert_eq!(longs(&batch, "queue_offset"), [5]);
    assert_eq!(longs(&batch, "physical_offset"), [230]);
    assert_eq!(ints(&batch, "store_size"), [size]);
    assert_eq!(times(&batch, "store_timestamp"), [Some(1_700_000_000_002_000)]);
    assert_eq!(times(&batch, "born_timestamp"), [Some(1_700_000_000_001_000)]);
    assert_eq!(texts(&batch, "tags"), one("paid"));
    assert_eq!(keys(&batch), [["o-1", "o-2"]]);
    assert_eq!(texts(&batch, "unique_key"), one("0A"));
    assert_eq!(texts(&batch, "message_id"), one("0A09080700002A9F00000000000000E6"));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        maps(&batch),
        [[
            pair("TAGS", "paid"),
            pair("KEYS", "o-1 o-2"),
            pair("UNIQ_KEY", "0A"),
            pair("colour", "grün")
        ]]
    );
    assert_eq!(bodies(&batch, "body"), [b"body"]);
    assert_eq!(bodies(&batch, "raw_body"), [b"body"]);
    assert_eq!(ints(&batch, "body_crc"), [body_crc(b"body")]);
    assert_eq!(ints(&batch, "sys_flag"), [0]);
    assert_eq!(ints(&batch, "flag"), [-4]);
    assert_eq!(texts(&batch, "born_host"), one("10.9.8.7:10911"));
    assert_eq!(texts(&batch, "store_host"), one("10.9.8.7:10911"));
    assert_eq!(ints(&batch, "reconsume_times"), [6]);
    assert_eq!(longs(&batch, "prepared_transaction_offset"), [7]);
    assert_eq!(texts(&batch, "error"), [None]);
}

#[test]
fn columns_come_in_the_order_asked_for_and_none_is_one_too() {
    let rows = [encoded(&record()), encoded(&record())];
    let some = batch(&[Column::Flag, Column::Topic], &rows);
    let names: Vec<_> = some.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["flag", "topic"]);
    let none = batch(&[], &rows);
    assert_eq!((none.num_columns(), none.num_rows()), (0, 2));
}

#[test]
fn times_outside_of_the_calendar_are_null() {
    let first = -62_135_596_800_000;
    let last = 253_402_300_799_999;
    let cases = [
        (0, Some(0)),
        (-1, Some(-1000)),
        (first, Some(first * 1000)),
        (first - 1, None),
        (last, Some(last * 1000)),
        (last + 1, None),
        (i64::MIN, None),
        (i64::MAX, None),
    ];
    let rows: Vec<_> = cases
        .iter()
        .map(|&(ms, _)| {
            encoded(&Record { store_timestamp_ms: ms, born_timestamp_ms: ms, ..record() })
        })
        .collect();
    let batch = batch(&[Column::StoreTimestamp, Column::BornTimestamp], &rows);
    let wanted: Vec<_> = cases.iter().map(|&(_, us)| us).collect();
    assert_eq!(times(&batch, "store_timestamp"), wanted);
    assert_eq!(times(&batch, "born_timestamp"), wanted);
}

#[test]
fn addresses_and_ids_change_from_row_to_row() {
    let hosts = [
        "10.9.8.7:10911",
        "10.9.8.7:10911",
        "[2001:db8::1]:-1",
        "0.0.0.0:0",
        "255.255.255.255:2147483647",
        "[2001:db8::1]:99999",
    ];
    let offsets = [0, 1, i64::MAX, -1, i64::MIN, 0x0123_4567_89AB_CDEF];
    let rows: Vec<_> = hosts
        .iter()
        .zip(offsets)
        .map(|(host, physical_offset)| {
            let host = host.parse().unwrap();
            encoded(&Record { store_host: host, born_host: host, physical_offset, ..record() })
        })
        .collect();
    let batch = batch(&[Column::MessageId, Column::BornHost, Column::StoreHost], &rows);
    let ids: Vec<_> = rows.iter().map(|row| Some(view(row).message_id())).collect();
    assert_eq!(texts(&batch, "message_id"), ids);
    let wanted: Vec<_> = hosts.iter().map(|host| Some((*host).to_owned())).collect();
    assert_eq!(texts(&batch, "born_host"), wanted);
    assert_eq!(texts(&batch, "store_host"), wanted);
}

#[test]
fn properties_are_read_as_a_message_reads_them() {
    let many: Vec<u8> =
        (0..2000).flat_map(|n| format!("n{n}\u{1}v{n}\u{2}").into_bytes()).collect();
    let cases: [&[u8]; 8] = [
        b"",
        b"TAGS\x01a\x02TAGS\x01b\x02KEYS\x01 k1  k2 \x02",
        b"no separator",
        b"a\x011\x02b\x012\x02a\x013",
        b"\x01\x02\x02TAGS\x01\x02",
        b"KEYS\x01   \x02UNIQ_KEY\x01u",
        &many,
        &b"x\x01y\x02".repeat(30),
    ];
    let rows: Vec<_> =
        cases.iter().map(|properties| encoded(&Record { properties, ..record() })).collect();
    let columns = [Column::Properties, Column::Keys, Column::Tags, Column::UniqueKey];
    let batch = batch(&columns, &rows);
    let maps = maps(&batch);
    for (case, map) in cases.iter().zip(&maps) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let wanted: Vec<_> = properties::to_map(case)
            .into_iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect();
        assert_eq!(map, &wanted);
    }
    let owned = |text: &str| Some(text.to_owned());
    assert_eq!(maps[6].len(), 2000);
    assert_eq!(keys(&batch)[1], ["k1", "k2"]);
    assert_eq!(keys(&batch)[5], Vec::<String>::new());
    assert_eq!(texts(&batch, "tags")[..2], [None, owned("b")]);
    assert_eq!(texts(&batch, "unique_key")[5], owned("u"));
}

#[test]
fn text_that_is_no_utf8_is_shown_in_every_column() {
    let block = block(&[(b"TAGS", b"\xFF"), (b"KEYS", b"\xC3 \xA9"), (b"n\xFE", b"v\xFD")]);
    let bad = encoded(&Record { topic: b"t\xF0\x9F", properties: &block, ..record() });
    let good = encoded(&Record { properties: b"TAGS\x01fine\x02", ..record() });
    let columns = [Column::Topic, Column::Tags, Column::Keys, Column::Properties];
    let batch = batch(&columns, &[good, bad]);
    let owned = |text: &str| Some(text.to_owned());
    assert_eq!(texts(&batch, "topic"), [owned("orders"), owned("t\u{FFFD}")]);
    assert_eq!(texts(&batch, "tags"), [owned("fine"), owned("\u{FFFD}")]);
    assert_eq!(keys(&batch)[1], ["\u{FFFD}", "\u{FFFD}"]);
    assert_eq!(maps(&batch)[1][2], ("n\u{FFFD}".to_owned(), "v\u{FFFD}".to_owned()));
}

#[test]
fn bodies_are_undone_and_raw_ones_are_not() {
    let plain = b"body ".repeat(100);
    let methods = [Compression::None, Compression::Zlib, Compression::Lz4, Compression::Zstd];
    let stored: Vec<_> = methods.iter().map(|method| compress(*method, &plain)).collect();
    let rows: Vec<_> = methods
        .iter()
        .zip(&stored)
        .map(|(method, body)| encoded(&Record { body, sys_flag: method.bits(), ..record() }))
        .collect();
    let batch = batch(&[Column::Body, Column::RawBody], &rows);
    assert_eq!(bodies(&batch, "body"), vec![plain.clone(); 4]);
    assert_eq!(bodies(&batch, "raw_body"), stored);
}

#[test]
fn a_body_that_cannot_be_undone_adds_no_row() {
    let columns = [Column::Topic, Column::Body, Column::Keys, Column::StoreTimestamp];
    let good = encoded(&record());
    let bad = encoded(&Record { sys_flag: Compression::Zlib.bits(), body: b"no zlib", ..record() });
    let mut builder =
        BatchBuilder::new(&columns, schema_of(&columns), BatchLimits::default()).unwrap();
    assert!(builder.push(&view(&good), None).is_ok());
    let error = builder.push(&view(&bad), None).unwrap_err();
    assert_eq!(error.kind, CorruptionKind::Body);
    assert_eq!(&bad[error.position..error.position + 7], b"no zlib");
    assert!(builder.push(&view(&good), None).is_ok());
    assert_eq!(builder.finish().unwrap().num_rows(), 2);
    let topics = [Column::Topic];
    assert_eq!(super::tests::batch(&topics, &[bad]).num_rows(), 1);
}

#[test]
fn batches_end_by_rows_and_by_bytes_of_bodies() {
    let columns = [Column::Body];
    let row = encoded(&Record { body: &[7; 100], ..record() });
    let ends = |limits, columns: &[Column]| {
        let mut builder = BatchBuilder::new(columns, schema_of(columns), limits).unwrap();
        let ends = |_: &_| builder.push(&view(&row), None).unwrap() != Flow::Continue;
        let pushed = (1..50).find(ends);
        (pushed, builder.finish().unwrap().num_rows())
    };
    assert_eq!(ends(BatchLimits { rows: 1, body_bytes: 1 << 20 }, &columns), (Some(1), 1));
    assert_eq!(ends(BatchLimits { rows: 20, body_bytes: 1 << 20 }, &columns), (Some(20), 20));
    assert_eq!(ends(BatchLimits { rows: 20, body_bytes: 1000 }, &columns), (Some(10), 10));
    assert_eq!(ends(BatchLimits { rows: 20, body_bytes: 1001 }, &columns), (Some(11), 10));
    assert_eq!(ends(BatchLimits { rows: 20, body_bytes: 0 }, &columns), (Some(1), 1));
    assert_eq!(ends(BatchLimits { rows: 20, body_bytes: 99 }, &columns), (Some(1), 1));
    assert_eq!(ends(BatchLimits { rows: 20, body_bytes: 10 }, &[Column::Flag]), (Some(20), 20));
}

#[test]
fn views_hold_the_same_values() {
    let block = block(&[(b"TAGS", b"a tag that is longer than twelve bytes"), (b"KEYS", b"short")]);
    let rows = [
        encoded(&record()),
        encoded(&Record { properties: &block, body: &[9; 300], ..record() }),
        encoded(&Record { body: b"", ..record() }),
    ];
    let views = |name, data_type| Field::new(name, data_type, true);
    let list = DataType::List(Arc::new(views("element", DataType::Utf8View)));
    let pair =
        vec![Field::new("key", DataType::Utf8View, false), views("value", DataType::Utf8View)];
    let map = DataType::Map(
        Arc::new(Field::new("entries", DataType::Struct(Fields::from(pair)), false)),
        false,
    );
    let wanted = Schema::new(vec![
        views("topic", DataType::Utf8View),
        views("tags", DataType::Utf8View),
        views("message_id", DataType::Utf8View),
        views("born_host", DataType::Utf8View),
        views("error", DataType::Utf8View),
        views("keys", list.clone()),
        views("properties", map.clone()),
        views("body", DataType::BinaryView),
    ]);
    let schema = schema_like(Column::ALL, &wanted);
    let viewed = batch_like(Column::ALL, Arc::clone(&schema), &rows);
    let plain = batch(Column::ALL, &rows);
    for name in ["topic", "tags", "message_id", "born_host", "error", "store_host"] {
        assert_eq!(texts(&viewed, name), texts(&plain, name), "{name}");
    }
    assert_eq!(bodies(&viewed, "body"), bodies(&plain, "body"));
    assert_eq!(viewed.column_by_name("keys").unwrap().data_type(), &list);
    assert_eq!(viewed.column_by_name("properties").unwrap().data_type(), &map);
    let inner = viewed.column_by_name("keys").unwrap().as_list::<i32>().value(1);
    assert_eq!(inner.as_string_view().value(0), "short");
}

proptest! {
    #[test]
    fn any_record_becomes_a_row(
        body in prop::collection::vec(any::<u8>(), 0..64),
        topic in prop::collection::vec(any::<u8>(), 1..40),
        properties in prop::collection::vec(prop_oneof![Just(1_u8), Just(2), Just(b' '), any::<u8>()], 0..200),
        numbers in any::<[i64; 5]>(),
        small in any::<[i32; 5]>(),
        port in any::<i32>(),
    ) {
        let record = Record {
            version: Version::V2,
            body_crc: small[0],
            queue_id: small[1],
            flag: small[2],
            sys_flag: small[3],
            reconsume_times: small[4],
            queue_offset: numbers[0],
            physical_offset: numbers[1],
            born_timestamp_ms: numbers[2],
            store_timestamp_ms: numbers[3],
            prepared_transaction_offset: numbers[4],
            born_host: Host::V6([3; 16], port),
            store_host: Host::V4([4; 4], port),
            body: &body,
            topic: &topic,
            properties: &properties,
            property_crc: false,
        };
        let bytes = encoded(&record);
        let view = view(&bytes);
        let columns: Vec<_> = Column::ALL.iter().copied().filter(|c| *c != Column::Body).collect();
        let batch = batch(&columns, std::slice::from_ref(&bytes));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        prop_assert_eq!(texts(&batch, "topic"), [Some(text(&topic))]);
        let tags = view.property(b"TAGS").map(text);
        prop_assert_eq!(texts(&batch, "tags"), [tags]);
        prop_assert_eq!(texts(&batch, "message_id"), [Some(view.message_id())]);
        prop_assert_eq!(texts(&batch, "born_host"), [Some(record.born_host.to_string())]);
        let map: Vec<_> = properties::to_map(&properties).iter().map(|(n, v)| (text(n), text(v))).collect();
        prop_assert_eq!(&maps(&batch)[0], &map);
        prop_assert_eq!(bodies(&batch, "raw_body"), [&body[..]]);
        prop_assert_eq!(longs(&batch, "physical_offset"), [numbers[1]]);
        prop_assert_eq!(ints(&batch, "sys_flag"), [view.sys_flag()]);
    }
}

fn config() -> StoreConfig {
    StoreConfig { mapped_file_size_commit_log: Some(8192), ..StoreConfig::default() }
}

pub(super) fn written(root: &std::path::Path) -> MessageStore {
    let store = MessageStore::open(root, OpenMode::Create, config()).unwrap();
    for number in 0..100 {
        let body = format!("body {number}");
        let topic = if number % 2 == 0 { &b"even"[..] } else { b"odd" };
        let mut message = NewMessage::new(topic, body.as_bytes());
        message.flag = number;
        message.sys_flag = if number % 10 == 9 { 1 } else { 0 };
        store.append(&message).unwrap();
    }
    store
}

pub(super) fn batches(
    store: &Arc<MessageStore>,
    columns: &[Column],
    on_damage: OnDamage,
) -> MessageBatches {
    let scan = Scan::new(0, u64::MAX, store.end_offset(), ScanFilter::ALL, on_damage);
    let limits = BatchLimits { rows: 8, body_bytes: 1 << 20 };
    let builder = BatchBuilder::new(columns, schema_of(columns), limits).unwrap();
    MessageBatches::new(LogSource::Store(Arc::clone(store)), scan, builder)
}

#[test]
fn a_scan_is_cut_into_batches_with_every_row_in_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(written(dir.path()));
    let mut all = batches(&store, &[Column::Flag], OnDamage::Fail);
    let mut flags = Vec::new();
    let mut sizes = Vec::new();
    while let Some(batch) = all.next().transpose().unwrap() {
        sizes.push(batch.num_rows());
        flags.extend(ints(&batch, "flag"));
    }
    assert_eq!(flags, (0..100).collect::<Vec<_>>());
    assert_eq!(sizes, [&[8; 12][..], &[4]].concat());
    assert!(all.next().is_none());
}

#[test]
fn rows_before_damage_come_before_its_error_and_nothing_after() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(written(dir.path()));
    let mut strict = batches(&store, &[Column::Flag, Column::Body], OnDamage::Fail);
    assert_eq!(strict.next().unwrap().unwrap().num_rows(), 8);
    let rest = strict.next().unwrap().unwrap();
    assert_eq!(ints(&rest, "flag"), [8]);
    let error = strict.next().unwrap().unwrap_err();
    let BatchError::Store(Error::Corrupt(corruption)) = &error else { panic!("{error}") };
    assert_eq!(corruption.kind, CorruptionKind::Body);
    assert!(corruption.path.is_some());
    assert!(strict.next().is_none());

    let mut lenient = batches(&store, &[Column::Flag, Column::Body], OnDamage::Skip);
    let mut count = 0;
    while let Some(batch) = lenient.next().transpose().unwrap() {
        count += batch.num_rows();
    }
    assert_eq!((count, lenient.scan.skipped_ranges()), (90, 10));
}

#[test]
fn batches_of_a_share_tell_when_they_are_over_and_show_damage_in_rows() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(written(dir.path()));
    let columns = vec![Column::Broker, Column::Flag, Column::PhysicalOffset, Column::Error];
    let end = store.end_offset();
    let of = |store: &Arc<MessageStore>, on_damage| {
        let range = RangeScan::new(0, end, end, true, Lost::Refuse);
        let scan = Scan::of(Places::Range(Box::new(range)), ScanFilter::ALL, on_damage);
        let limits = BatchLimits { rows: 30, body_bytes: 1 << 20 };
        let builder = BatchBuilder::new(&columns, schema_of(&columns), limits).unwrap();
        let source = LogSource::Store(Arc::clone(store));
        MessageBatches::new(source, scan, builder.of_broker("b-1"))
    };
    let mut sound = of(&store, OnDamage::Fail);
    let mut rows = Vec::new();
    assert!(!sound.is_over());
    while let Some(batch) = sound.next().transpose().unwrap() {
        rows.extend(ints(&batch, "flag"));
    }
    assert_eq!(rows, (0..100).collect::<Vec<_>>());
    assert!(sound.is_over() && sound.next().is_none());
    let place = 50 * (end / 100) / 8 * 8;
    let path = store.log().run().find(place).unwrap().path.clone();
    store.close().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let base: u64 = path.file_name().unwrap().to_string_lossy().parse().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xAB; 300], place - base).unwrap();
    let store = Arc::new(MessageStore::open(dir.path(), OpenMode::Read, config()).unwrap());
    let mut given = of(&store, OnDamage::Report);
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    while let Some(batch) = given.next().transpose().unwrap() {
        assert!(texts(&batch, "broker").iter().all(|broker| broker.as_deref() == Some("b-1")));
        let offsets = longs(&batch, "physical_offset");
        assert!(offsets.is_sorted() && batch.num_rows() <= 30, "{offsets:?}");
        let flags = batch.column_by_name("flag").unwrap();
        for (row, error) in texts(&batch, "error").into_iter().enumerate() {
            assert_eq!(flags.is_null(row), error.is_some());
            match error {
                Some(error) => errors.push(error),
                None => rows.push(flags.as_primitive::<Int32Type>().value(row)),
            }
        }
    }
    assert!(given.is_over());
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains(&path.to_string_lossy().into_owned()), "{errors:?}");
    assert!((90..100).contains(&rows.len()) && rows.is_sorted(), "{rows:?}");
    let mut strict = of(&store, OnDamage::Fail);
    let mut count = 0;
    let error = loop {
        match strict.next() {
            Some(Ok(batch)) => count += batch.num_rows(),
            None => panic!("no error"),
            Some(Err(error)) => break error,
        }
        assert!(!strict.is_over());
    };
    assert!(error.to_string().contains("physical offsets"), "{error}");
    assert!((30..60).contains(&count) && strict.is_over());
    assert!(strict.next().is_none());
}
