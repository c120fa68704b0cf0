//! The broker's JSON: any bytes get an answer, and what is written reads back.

use super::{config, each_flip};
use mqstore::error::CorruptionKind;
use mqstore::format::config::json::{parse, to_text};
use mqstore::format::config::tables::{GroupOffset, OffsetTable, TopicConfig, TopicTable};
use proptest::prelude::*;

const SAMPLE: &str =
    "\u{feff}{\"offsetTable\":{\"a@b\":{0:57,1:-3},\"c@d\":{\"2\":[1.5,\"x\\\"\",null]}}}";

#[test]
fn every_shorter_piece_is_refused_within_it() {
    for length in 0..SAMPLE.len() {
        let error = parse(&SAMPLE.as_bytes()[..length]).unwrap_err();
        assert_eq!(error.kind, CorruptionKind::Json);
        assert!(error.position <= length, "{length}: {error:?}");
    }
}

#[test]
fn every_changed_byte_gets_an_answer() {
    each_flip(SAMPLE.as_bytes(), |position, changed| match parse(changed) {
        Ok(value) => assert_eq!(parse(to_text(&value).as_bytes()), Ok(value), "byte {position}"),
        Err(error) => assert!(error.position <= changed.len(), "byte {position}: {error:?}"),
    });
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "\\PC{0,8}".prop_map(Into::into),
    ];
    let key = prop_oneof!["[a-z@%]{0,6}", "-?[0-9]{1,3}"];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn any_value_reads_back(value in value()) {
        prop_assert_eq!(parse(to_text(&value).as_bytes()), Ok(value.clone()));
        prop_assert_eq!(parse(value.to_string().as_bytes()), Ok(value));
    }

    #[test]
    fn any_bytes_get_an_answer(text in "[{}\\[\\]\",:0-9a-z\\\\ -]{0,60}") {
        if let Err(error) = parse(text.as_bytes()) {
            prop_assert!(error.position <= text.len());
        }
    }

    #[test]
    fn tables_read_back(
        topics in prop::collection::vec(("[a-zA-Z0-9%_-]{1,12}", 1..64_i32), 0..6),
        offsets in prop::collection::vec(("[a-c]", "[d-f]", 0..20_i32, any::<i64>()), 0..20),
    ) {
        let mut table = TopicTable::default();
        for (name, queues) in &topics {
            table.put(&TopicConfig::new(name, *queues), 7);
        }
        let read = TopicTable::parse(&table.to_bytes()).unwrap();
        for (name, _) in &topics {
            let last = topics.iter().rev().find(|topic| topic.0 == *name).unwrap().1;
            prop_assert_eq!(read.get(name), Some(TopicConfig::new(name, last)));
        }

        let mut table = OffsetTable::default();
        for (topic, group, queue_id, queue_offset) in &offsets {
            let (queue_id, queue_offset) = (*queue_id, *queue_offset);
            table.put(&GroupOffset { topic, group, queue_id, queue_offset }, 7);
        }
        let read = OffsetTable::parse(&table.to_bytes()).unwrap();
        for at in read.iter() {
            let last = offsets.iter().rev().find(|o| (&*o.0, &*o.1, o.2) == (at.topic, at.group, at.queue_id));
            prop_assert_eq!(last.map(|o| o.3), Some(at.queue_offset));
            prop_assert_eq!(read.get(at.topic, at.group, at.queue_id), Some(at.queue_offset));
        }
        let distinct: std::collections::HashSet<_> = offsets.iter().map(|o| (&o.0, &o.1, o.2)).collect();
        prop_assert_eq!(read.iter().count(), distinct.len());
    }
}
