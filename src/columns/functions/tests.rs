use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::{BinaryArray, Float64Array, LargeListArray, ListArray, NullArray, StringArray};
use arrow_buffer::OffsetBuffer;

use super::*;

fn refusal(function: Function, arguments: &[ArrayRef]) -> String {
    function.call(arguments).unwrap_err().to_string()
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn bytes(values: &[&[u8]]) -> ArrayRef {
    Arc::new(BinaryArray::from(values.to_vec()))
}

#[test]
fn arguments_of_another_kind_or_number_are_named() {
    for (function, arguments, expected) in [
        (Function::Crc32, vec![], "mq_crc32 takes one column of bytes, not none"),
        (Function::Crc32, vec![texts(&["a"])], "mq_crc32 takes one column of bytes, not 1 of Utf8"),
        (
            Function::KeyHash,
            vec![texts(&["a"])],
            "mq_key_hash takes two columns of texts, not 1 of Utf8",
        ),
        (
            Function::KeyHash,
            vec![texts(&["a"]), texts(&["a", "b"])],
            "mq_key_hash takes two columns of texts, not 1 of Utf8 and 2 of Utf8",
        ),
        (
            Function::SysFlag,
            vec![Arc::new(Float64Array::from(vec![1.0]))],
            "mq_sys_flag takes one column of integers, not 1 of Float64",
        ),
        (
            Function::Encode,
            vec![texts(&["a"])],
            "mq_encode takes one column of structs, not 1 of Utf8",
        ),
    ] {
        assert_eq!(refusal(function, &arguments), expected);
    }
}

fn returned_by(function: Function) -> DataType {
    let structs = |fields: &[(&str, DataType)]| {
        let fields = fields.iter().map(|(name, of)| Field::new(*name, of.clone(), true));
        DataType::Struct(fields.collect())
    };
    match function {
        Function::Decode => DataType::Struct(schema_of(&decoded()).fields().clone()),
        Function::Encode | Function::Body => DataType::Binary,
        Function::Properties => Column::Properties.data_type(),
        Function::Crc32 | Function::JavaHash | Function::KeyHash => DataType::Int32,
        Function::TagsCode => DataType::Int64,
        Function::ParseMessageId => structs(&[
            ("host", DataType::Utf8),
            ("port", DataType::Int32),
            ("physical_offset", DataType::Int64),
        ]),
        Function::SysFlag => structs(&[
            ("transaction", DataType::Utf8),
            ("compression", DataType::Utf8),
            ("compressed", DataType::Boolean),
            ("multi_tags", DataType::Boolean),
            ("born_host_v6", DataType::Boolean),
            ("store_host_v6", DataType::Boolean),
            ("need_unwrap", DataType::Boolean),
            ("inner_batch", DataType::Boolean),
        ]),
    }
}

#[test]
fn nulls_without_a_type_give_nulls() {
    let nulls: ArrayRef = Arc::new(NullArray::new(2));
    for (function, count) in [
        (Function::Crc32, 1),
        (Function::JavaHash, 1),
        (Function::TagsCode, 1),
        (Function::KeyHash, 2),
        (Function::ParseMessageId, 1),
        (Function::SysFlag, 1),
        (Function::Body, 2),
        (Function::Decode, 1),
        (Function::Properties, 1),
    ] {
        let found = function.call(&vec![Arc::clone(&nulls); count]).unwrap();
        assert_eq!((found.len(), found.null_count()), (2, 2), "{}", function.name());
        assert_eq!(*found.data_type(), returned_by(function), "{}", function.name());
    }
}

#[test]
fn a_property_block_that_no_record_holds_is_null() {
    let longest = [&b"name\x01"[..], &[b'v'; MAX_LEN - 6], b"\x02"].concat();
    let longer = [&longest[..], b"a"].concat();
    let blocks = BinaryArray::from_vec(vec![&longest, &longer, b""]);
    let found = Function::Properties.call(&[Arc::new(blocks)]).unwrap();
    let maps = found.as_map();
    assert_eq!((maps.is_null(0), maps.is_null(1), maps.is_null(2)), (false, true, false));
    assert_eq!((maps.value_length(0), maps.value_length(2)), (1, 0));
}

#[test]
fn a_dictionary_counts_as_its_values() {
    let mut values = StringDictionaryBuilder::<Int32Type>::new();
    ["a", "b", "a"].into_iter().for_each(|value| values.append_value(value));
    let found = Function::JavaHash.call(&[Arc::new(values.finish())]).unwrap();
    assert_eq!(found.as_primitive::<Int32Type>().values(), &[97, 98, 97]);
}

fn messages(columns: Vec<(&str, ArrayRef)>) -> ArrayRef {
    let fields: Fields = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    Arc::new(StructArray::new(fields, arrays, None))
}

fn two(changed: Vec<(&str, ArrayRef)>) -> ArrayRef {
    let longs = |values: [i64; 2]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let mut columns = vec![
        ("topic", texts(&["T", "T"])),
        ("body", bytes(&[b"one", b"two"])),
        ("queue_offset", longs([5, 6])),
        ("physical_offset", longs([0, 100])),
        ("born_host", texts(&["1.2.3.4:5"; 2])),
        ("store_host", texts(&["1.2.3.4:5"; 2])),
    ];
    let time = arrow_array::TimestampMillisecondArray::from(vec![1_700_000_000_000; 2]);
    let time: ArrayRef = Arc::new(time);
    columns.extend([("born_timestamp", Arc::clone(&time)), ("store_timestamp", time)]);
    columns.retain(|(name, _)| changed.iter().all(|(other, _)| name != other));
    columns.extend(changed);
    messages(columns)
}

#[test]
fn encoded_messages_are_decoded_to_what_they_were() {
    let records = Function::Encode.call(&[two(vec![])]).unwrap();
    assert_eq!((records.len(), records.null_count()), (2, 0));
    let decoded = Function::Decode.call(&[records]).unwrap();
    let decoded = RecordBatch::from(decoded.as_struct());
    let column = |name| Arc::clone(decoded.column_by_name(name).unwrap());
    assert_eq!(column("queue_offset").as_primitive::<Int64Type>().values(), &[5, 6]);
    assert_eq!(column("body").as_binary::<i32>().value(1), b"two");
    let narrow: ArrayRef = Arc::new(Int32Array::from(vec![5, 6]));
    assert_eq!(Function::Encode.call(&[two(vec![("queue_offset", narrow)])]).unwrap().len(), 2);
    let none = two(vec![]).slice(0, 0);
    assert!(Function::Encode.call(&[none]).unwrap().is_empty());
}

#[test]
fn a_value_that_no_record_holds_names_row_and_column() {
    let missing: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    for (changed, expected) in [
        (
            ("queue_offset", Arc::clone(&missing)),
            "row 1: queue_offset: expected a number, got null",
        ),
        (("physical_offset", missing), "row 1: physical_offset: expected a number, got null"),
        (
            ("queue_offset", texts(&["5", "6"])),
            "mq_encode: column queue_offset: expected int64, got string; cast it, for example .cast(pa.int64())",
        ),
        (("topic", texts(&["T", ""])), "row 1: topic: "),
        (("colour", texts(&["a", "b"])), "mq_encode: a message has no column \"colour\""),
    ] {
        let found = refusal(Function::Encode, &[two(vec![changed])]);
        assert!(found.starts_with(expected), "{found}");
    }
    let without = messages(vec![("topic", texts(&["T"])), ("body", bytes(&[b"x"]))]);
    let found = refusal(Function::Encode, &[without]);
    assert_eq!(found, "mq_encode: column physical_offset is missing, or all nulls");
}

fn lists(values: ArrayRef) -> [ArrayRef; 2] {
    let field = Arc::new(Field::new("item", values.data_type().clone(), true));
    let ends = values.len();
    [
        Arc::new(ListArray::new(
            Arc::clone(&field),
            OffsetBuffer::from_lengths([ends]),
            Arc::clone(&values),
            None,
        )),
        Arc::new(LargeListArray::new(field, OffsetBuffer::from_lengths([ends]), values, None)),
    ]
}

fn row(name: &'static str, array: ArrayRef) -> std::result::Result<MessageRows, RowsError> {
    let mut columns = vec![("topic", texts(&["T"])), ("body", bytes(&[b"x"]))];
    columns.push((name, array));
    MessageRows::new(&RecordBatch::from(messages(columns).as_struct()))
}

#[test]
fn lists_are_of_texts_whatever_their_offsets() {
    for list in lists(texts(&["k1", "k2"])) {
        let rows = row("keys", list).unwrap();
        let mut blocks = Vec::new();
        let found = rows.messages(0..1, &mut blocks).unwrap();
        assert_eq!(found[0].properties, b"KEYS\x01k1 k2\x02");
    }
    for list in lists(Arc::new(NullArray::new(2))) {
        let rows = row("keys", list).unwrap();
        let (at, error) = rows.messages(0..1, &mut Vec::new()).unwrap_err();
        assert_eq!(
            (at, error.to_string().contains("keys: expected texts, got null")),
            (0, true),
            "{error}"
        );
    }
    for list in lists(Arc::new(Int32Array::from(vec![1, 2]))) {
        let error = row("keys", list).unwrap_err().to_string();
        assert!(error.starts_with("column keys: expected list<string>, got "), "{error}");
    }
    let error = row("keys", texts(&["k"])).unwrap_err().to_string();
    assert!(error.starts_with("column keys: expected list<string>, got "), "{error}");
}

#[test]
fn pairs_are_of_texts_too() {
    let pairs =
        |names: ArrayRef, values: ArrayRef| messages(vec![("key", names), ("value", values)]);
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let nulls: ArrayRef = Arc::new(NullArray::new(2));
    for wrong in [
        pairs(Arc::clone(&numbers), texts(&["1", "2"])),
        pairs(texts(&["a", "b"]), numbers),
        messages(vec![("key", texts(&["a", "b"]))]),
    ] {
        for list in lists(wrong) {
            let error = row("properties", list).unwrap_err().to_string();
            assert!(
                error.starts_with("column properties: expected map<string, string>, got "),
                "{error}"
            );
        }
    }
    for list in lists(pairs(texts(&["a", "b"]), nulls)) {
        let rows = row("properties", list).unwrap();
        assert_eq!(rows.messages(0..1, &mut Vec::new()).unwrap().len(), 1);
        assert!(!rows.has_property(0, b"a"));
    }
}

#[test]
fn a_batch_without_rows_needs_no_columns_and_no_types() {
    let empty = |columns: Vec<(&str, ArrayRef)>| {
        MessageRows::new(&RecordBatch::from(messages(columns).as_struct()))
    };
    let rows = empty(vec![("queue_id", Arc::new(NullArray::new(0)))]).unwrap();
    assert!(rows.is_empty() && rows.messages(0..9, &mut Vec::new()).unwrap().is_empty());
    for list in lists(texts(&[])).map(|list| list.slice(0, 0)) {
        assert!(empty(vec![("keys", list)]).unwrap().is_empty());
    }
    let twice = vec![("topic", texts(&["T"])), ("topic", texts(&["T"]))];
    assert_eq!(empty(twice).unwrap_err().to_string(), "column topic is given twice");
}

#[test]
fn a_part_of_a_record_is_none() {
    let records = Function::Encode.call(&[two(vec![])]).unwrap();
    let record = records.as_binary::<i32>().value(0).to_vec();
    let cut = &record[..record.len() - 1];
    let longer = [&record[..], b"x"].concat();
    let mut other = record.clone();
    other[88] ^= 1;
    let raw = bytes(&[&record, cut, &longer, &other, b"", &record]);
    let found = Function::Decode.call(&[raw]).unwrap();
    let valid: Vec<_> = (0..6).map(|row| found.is_valid(row)).collect();
    assert_eq!(valid, [true, false, false, false, false, true]);
}
