use arrow_array::types::{Int32Type, LargeBinaryType, LargeUtf8Type};
use arrow_array::*;
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};

use super::*;
use crate::format::message::properties::{self, Indexed};

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap()
}

fn utf8(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn binary(values: &[Option<&[u8]>]) -> ArrayRef {
    Arc::new(BinaryArray::from(values.to_vec()))
}

fn needed(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    vec![("topic", utf8(&vec![Some("T"); rows])), ("body", binary(&vec![Some(&b"b"[..]); rows]))]
}

fn lists_of(values: [&[&str]; 2]) -> ListArray {
    let texts: StringArray = values.concat().into_iter().map(Some).collect();
    let ends = OffsetBuffer::from_lengths([values[0].len(), values[1].len(), 0]);
    let field = Arc::new(Field::new("item", DataType::Utf8, true));
    let nulls = arrow_buffer::NullBuffer::from(vec![true, true, false]);
    ListArray::new(field, ends, Arc::new(texts), Some(nulls))
}

fn pairs_of(pairs: &[(&str, Option<&str>)]) -> StructArray {
    let names: StringArray = pairs.iter().map(|pair| Some(pair.0)).collect();
    let values: StringArray = pairs.iter().map(|pair| pair.1).collect();
    StructArray::from(vec![
        (Arc::new(Field::new("key", DataType::Utf8, false)), Arc::new(names) as ArrayRef),
        (Arc::new(Field::new("value", DataType::Utf8, true)), Arc::new(values) as ArrayRef),
    ])
}

fn maps_of(rows: &[&[(&str, Option<&str>)]]) -> MapArray {
    let pairs = pairs_of(&rows.concat());
    let ends = OffsetBuffer::from_lengths(rows.iter().map(|row| row.len()));
    let entries = Arc::new(Field::new("entries", pairs.data_type().clone(), false));
    MapArray::new(entries, ends, pairs, None, false)
}

fn rows_of(columns: Vec<(&str, ArrayRef)>) -> MessageRows {
    MessageRows::new(&batch(columns)).unwrap()
}

fn refusal(rows: &MessageRows) -> (usize, &'static str) {
    match rows.messages(0..rows.len(), &mut Vec::new()) {
        Err((row, Error::InvalidMessage { field, .. })) => (row, field),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_column_of_a_new_message_is_read() {
    let time = |ms: i64| {
        let array = TimestampMicrosecondArray::from(vec![Some(ms * 1000 + 999), None]);
        Arc::new(array.with_timezone("UTC")) as ArrayRef
    };
    let ints = |value| Arc::new(Int32Array::from(vec![Some(value), None])) as ArrayRef;
    let mut columns = needed(2);
    columns.extend([
        ("queue_id", ints(3)),
        ("flag", ints(-4)),
        ("sys_flag", ints(8)),
        ("reconsume_times", ints(5)),
        ("prepared_transaction_offset", Arc::new(Int64Array::from(vec![Some(1 << 40), None])) as _),
        ("store_timestamp", time(1_700_000_000_002)),
        ("born_timestamp", time(-1)),
        ("born_host", utf8(&[Some("1.2.3.4:5"), None])),
        ("store_host", utf8(&[Some("[::1]:6"), None])),
        ("tags", utf8(&[Some("paid"), None])),
        ("unique_key", utf8(&[Some("U"), None])),
        ("broker", ints(1)),
        ("error", ints(1)),
        ("store_size", utf8(&[Some("x"), None])),
        ("message_id", ints(7)),
    ]);
    let rows = rows_of(columns);
    let mut blocks = vec![1, 2, 3];
    let messages = rows.messages(0..2, &mut blocks).unwrap();
    let message = &messages[0];
    assert_eq!((message.topic, message.body), (&b"T"[..], &b"b"[..]));
    assert_eq!((message.queue_id, message.flag, message.sys_flag), (3, -4, 8));
    assert_eq!((message.reconsume_times, message.prepared_transaction_offset), (5, 1 << 40));
    assert_eq!(message.store_timestamp_ms, Some(1_700_000_000_002));
    assert_eq!(message.born_timestamp_ms, Some(-1));
    assert_eq!(message.born_host, "1.2.3.4:5".parse().ok());
    assert_eq!(message.store_host, "[::1]:6".parse().ok());
    assert_eq!(message.properties, b"TAGS\x01paid\x02UNIQ_KEY\x01U\x02");
    let message = &messages[1];
    assert_eq!((message.queue_id, message.flag, message.prepared_transaction_offset), (0, 0, 0));
    assert_eq!((message.store_timestamp_ms, message.born_timestamp_ms), (None, None));
    assert_eq!((message.born_host, message.store_host), (None, None));
    assert_eq!(message.properties, b"");
}

#[test]
fn texts_and_bytes_come_in_many_layouts() {
    let texts: [ArrayRef; 4] = [
        utf8(&[Some("a"), Some("b")]),
        Arc::new(LargeStringArray::from(vec!["a", "b"])),
        Arc::new(StringViewArray::from(vec!["a", "b"])),
        Arc::new(DictionaryArray::<Int32Type>::from_iter(["a", "b"])),
    ];
    let bytes: [ArrayRef; 4] = [
        binary(&[Some(b"1"), Some(b"2")]),
        Arc::new(LargeBinaryArray::from_iter_values(["1", "2"])),
        Arc::new(BinaryViewArray::from_iter_values(["1", "2"])),
        Arc::new(FixedSizeBinaryArray::try_from_iter(["1", "2"].into_iter()).unwrap()),
    ];
    for (text, bytes) in texts.into_iter().zip(bytes) {
        let rows = rows_of(vec![("body", bytes), ("topic", text)]);
        let mut blocks = Vec::new();
        let messages = rows.messages(0..2, &mut blocks).unwrap();
        let found: Vec<_> = messages.iter().map(|message| (message.topic, message.body)).collect();
        assert_eq!(found, [(&b"a"[..], &b"1"[..]), (b"b", b"2")]);
    }
}

#[test]
fn integers_of_other_widths_are_taken_if_they_fit() {
    let with = |array: ArrayRef| {
        let mut columns = needed(1);
        columns.push(("queue_id", array));
        MessageRows::new(&batch(columns))
    };
    for array in [
        Arc::new(Int64Array::from(vec![7])) as ArrayRef,
        Arc::new(UInt8Array::from(vec![7])),
        Arc::new(UInt64Array::from(vec![7])),
    ] {
        assert_eq!(with(array).unwrap().messages(0..1, &mut Vec::new()).unwrap()[0].queue_id, 7);
    }
    let too_large = with(Arc::new(Int64Array::from(vec![1 << 31])));
    assert!(matches!(too_large, Err(RowsError::Range { name: "queue_id", .. })));
    let no_integer = with(Arc::new(Float64Array::from(vec![1.0])));
    assert!(matches!(no_integer, Err(RowsError::Type { name: "queue_id", .. })));
}

#[test]
fn times_in_every_unit_become_milliseconds() {
    for (array, wanted) in [
        (Arc::new(TimestampSecondArray::from(vec![-2])) as ArrayRef, -2000),
        (Arc::new(TimestampMillisecondArray::from(vec![-2])), -2),
        (Arc::new(TimestampMicrosecondArray::from(vec![-2])), -1),
        (Arc::new(TimestampNanosecondArray::from(vec![2_999_999]).with_timezone("UTC")), 2),
    ] {
        let mut columns = needed(1);
        columns.push(("store_timestamp", array));
        let rows = rows_of(columns);
        let message = rows.messages(0..1, &mut Vec::new()).unwrap()[0].store_timestamp_ms;
        assert_eq!(message, Some(wanted));
    }
    let mut columns = needed(1);
    columns.push(("store_timestamp", Arc::new(TimestampSecondArray::from(vec![i64::MAX]))));
    let error = MessageRows::new(&batch(columns)).unwrap_err();
    assert!(matches!(error, RowsError::Range { name: "store_timestamp", .. }), "{error}");
}

#[test]
fn keys_and_properties_are_written_in_the_order_of_the_store() {
    let mut columns = needed(3);
    columns.extend([
        ("keys", Arc::new(lists_of([&["k1", "k2"], &[]])) as ArrayRef),
        ("tags", utf8(&[Some("t"), None, None])),
        (
            "properties",
            Arc::new(maps_of(&[&[("b", Some("2")), ("a", Some("1"))], &[], &[("n", None)]])),
        ),
    ]);
    let whole = rows_of(columns.clone());
    let mut blocks = Vec::new();
    let messages = whole.messages(0..3, &mut blocks).unwrap();
    assert_eq!(messages[0].properties, b"TAGS\x01t\x02KEYS\x01k1 k2\x02b\x012\x02a\x011\x02");
    assert_eq!((messages[1].properties, messages[2].properties), (&b""[..], &b""[..]));

    let mut blocks = Vec::new();
    assert_eq!(whole.messages(1..9, &mut blocks).unwrap().len(), 2);
    let slice = MessageRows::new(&batch(columns).slice(0, 1)).unwrap();
    let mut blocks = Vec::new();
    assert!(slice.messages(0..1, &mut blocks).unwrap()[0].properties.ends_with(b"a\x011\x02"));
}

#[test]
fn slices_read_their_own_lists() {
    let mut columns = needed(3);
    columns.extend([
        ("keys", Arc::new(lists_of([&["k1", "k2"], &["k3"]])) as ArrayRef),
        (
            "properties",
            Arc::new(maps_of(&[&[("a", Some("1"))], &[("b", Some("2"))], &[("c", Some("3"))]])),
        ),
    ]);
    let rows = MessageRows::new(&batch(columns).slice(1, 2)).unwrap();
    let mut blocks = Vec::new();
    let messages = rows.messages(0..2, &mut blocks).unwrap();
    assert_eq!(messages[0].properties, b"KEYS\x01k3\x02b\x012\x02");
    assert_eq!(messages[1].properties, b"c\x013\x02");
}

#[test]
fn a_list_of_pairs_stands_for_a_map() {
    let pairs = pairs_of(&[("a", Some("1")), ("b", Some("2"))]);
    let field = Arc::new(Field::new("item", pairs.data_type().clone(), true));
    let list = LargeListArray::new(field, OffsetBuffer::from_lengths([2]), Arc::new(pairs), None);
    let mut columns = needed(1);
    columns.push(("properties", Arc::new(list)));
    let rows = rows_of(columns);
    let mut blocks = Vec::new();
    let messages = rows.messages(0..1, &mut blocks).unwrap();
    assert_eq!(messages[0].properties, b"a\x011\x02b\x012\x02");
}

#[test]
fn a_value_in_column_and_property_must_be_the_same() {
    let scanned: &[(&str, Option<&str>)] = &[
        ("UNIQ_KEY", Some("U")),
        ("colour", Some("red")),
        ("KEYS", Some(" k1  k2 ")),
        ("__CRC32#", Some("0123456789")),
        ("TAGS", Some("t")),
    ];
    let columns = |tags, unique_key, keys: &[&str]| {
        let mut columns = needed(1);
        let keys = lists_of([keys, &[]]).slice(0, 1);
        columns.extend([
            ("tags", utf8(&[tags])),
            ("unique_key", utf8(&[unique_key])),
            ("keys", Arc::new(keys) as ArrayRef),
            ("properties", Arc::new(maps_of(&[scanned])) as ArrayRef),
        ]);
        rows_of(columns)
    };
    let same = columns(Some("t"), Some("U"), &["k1", "k2"]);
    let mut blocks = Vec::new();
    let written = same.messages(0..1, &mut blocks).unwrap()[0].properties;
    assert_eq!(written, b"UNIQ_KEY\x01U\x02colour\x01red\x02KEYS\x01 k1  k2 \x02TAGS\x01t\x02");
    let indexed = properties::indexed(written);
    assert_eq!(
        indexed,
        Indexed {
            tags: Some(b"t"),
            keys: Some(b" k1  k2 "),
            unique_key: Some(b"U"),
            ..Indexed::default()
        }
    );
    assert_eq!(refusal(&columns(Some("u"), None, &["k1", "k2"])), (0, "tags"));
    assert_eq!(refusal(&columns(None, Some("V"), &["k1", "k2"])), (0, "unique_key"));
    assert_eq!(refusal(&columns(None, None, &["k2", "k1"])), (0, "keys"));
}

#[test]
fn a_stored_body_goes_with_its_flags_and_a_readable_one_does_not() {
    let mut columns = needed(2);
    columns.extend([
        ("raw_body", binary(&[Some(b"packed"), None])),
        ("sys_flag", Arc::new(Int32Array::from(vec![0x309, 0x309])) as ArrayRef),
    ]);
    let rows = rows_of(columns);
    let mut blocks = Vec::new();
    let messages = rows.messages(0..2, &mut blocks).unwrap();
    assert_eq!((messages[0].body, messages[0].sys_flag), (&b"packed"[..], 0x309));
    assert_eq!((messages[1].body, messages[1].sys_flag), (&b"b"[..], 0x8));
}

#[test]
fn a_row_that_is_no_message_names_row_and_field() {
    let with = |name, array| {
        let mut columns = needed(2);
        columns.retain(|column| column.0 != name);
        columns.push((name, array));
        rows_of(columns)
    };
    assert_eq!(refusal(&with("topic", utf8(&[Some("T"), None]))), (1, "topic"));
    assert_eq!(refusal(&with("body", binary(&[Some(b"b"), None]))), (1, "body"));
    assert_eq!(refusal(&with("tags", utf8(&[Some("t"), Some("")]))), (1, "tags"));
    assert_eq!(
        refusal(&with("born_host", utf8(&[Some("1.2.3.4:5"), Some("x")]))),
        (1, "born_host")
    );
    assert_eq!(refusal(&with("store_host", utf8(&[Some("::1"), None]))), (0, "store_host"));
    let spaced = lists_of([&["a b"], &[]]).slice(0, 2);
    assert_eq!(refusal(&with("keys", Arc::new(spaced))), (0, "keys"));
    let mut columns = needed(1);
    columns.push(("properties", Arc::new(maps_of(&[&[("", Some("x"))]]))));
    assert_eq!(refusal(&rows_of(columns)), (0, "properties"));
}

#[test]
fn columns_are_checked_by_name_and_kind() {
    let error = |columns| MessageRows::new(&batch(columns)).unwrap_err().to_string();
    let mut columns = needed(1);
    columns.push(("colour", utf8(&[None])));
    assert!(
        error(columns).starts_with("a message has no column \"colour\"; its columns are broker")
    );
    assert_eq!(error(needed(1).split_off(1)), "column topic is missing, or all nulls");
    assert_eq!(error(vec![needed(1).remove(0)]), "column body is missing, or all nulls");
    let mut columns = needed(1);
    columns.push(("tags", Arc::new(Int32Array::from(vec![1]))));
    assert_eq!(
        error(columns),
        "column tags: expected string, got int32; cast it, for example .cast(pa.string())"
    );
    let mut columns = needed(1);
    columns.push(("born_timestamp", Arc::new(Int64Array::from(vec![1]))));
    assert_eq!(
        error(columns),
        "column born_timestamp: expected timestamp, got int64; cast it, or add _ms to the name of a \
         column of milliseconds"
    );
    let mut columns = needed(1);
    columns.push(("properties", utf8(&[Some("x")])));
    assert!(
        error(columns).starts_with("column properties: expected map<string, string>, got string")
    );
    let mut columns = needed(1);
    columns.push(("properties", utf8(&[None])));
    assert_eq!(rows_of(columns).messages(0..1, &mut Vec::new()).unwrap().len(), 1);
    assert!(rows_of(needed(0)).is_empty());
}

#[test]
fn a_row_that_is_not_there_has_nothing() {
    let texts = LargeStringArray::from(vec![Some("a"), None]);
    let found: Vec<_> = (0..3).map(|row| value(Some(&texts), row)).collect();
    assert_eq!(found, [Some(&b"a"[..]), None, None]);
    let values = LargeBinaryArray::from(vec![Some(&b"v"[..]), None]);
    let found: Vec<_> = (0..3).map(|row| value(Some(&values), row)).collect();
    assert_eq!(found, [Some(&b"v"[..]), None, None]);
    let (no_text, no_bytes) = (value::<LargeUtf8Type>(None, 0), value::<LargeBinaryType>(None, 0));
    assert_eq!((no_text, no_bytes), (None, None));
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)]), None]);
    let list: ArrayRef = std::sync::Arc::new(list);
    let found: Vec<_> = (0..3).map(|row| Rows::of(&list).range(row)).collect();
    assert_eq!(found, [Some(0..1), None, None]);
    let text: ArrayRef = std::sync::Arc::new(StringArray::from(vec!["x"]));
    assert_eq!(bytes((Column::Body, text)).unwrap().value(0), b"x");
    let wrong: ArrayRef = std::sync::Arc::new(Int32Array::from(vec![1]));
    assert!(bytes((Column::Body, wrong)).is_err());
    let right: ArrayRef = std::sync::Arc::new(BinaryArray::from(vec![&b"x"[..]]));
    assert_eq!(bytes((Column::Body, right)).unwrap().value(0), b"x");
}
