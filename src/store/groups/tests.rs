use std::path::Path;

use super::acks::AckFile;
use super::*;
use crate::config::StoreConfig;
use crate::files::Os;
use crate::format::message::{Frame, read_frame};
use crate::store::folder::lock::OffsetsLock;
use crate::store::{NewMessage, OpenMode};

fn open(path: &Path, mode: OpenMode) -> Arc<MessageStore> {
    let mut config = StoreConfig::default();
    for (name, value) in [
        ("mapped_file_size_commit_log", "65536"),
        ("mapped_file_size_consume_queue", "200"),
        ("max_hash_slot_num", "7"),
        ("max_index_num", "50"),
    ] {
        assert!(config.set(name, value).unwrap());
    }
    Arc::new(MessageStore::open(path, mode, config).unwrap())
}

fn append(store: &MessageStore, queue_id: i32, body: &[u8], tags: Option<&[u8]>) {
    let mut properties = Vec::new();
    if let Some(tags) = tags {
        crate::format::message::properties::push(&mut properties, b"TAGS", tags);
    }
    let message =
        NewMessage { queue_id, properties: &properties, ..NewMessage::new(b"orders", body) };
    store.append(&message).unwrap();
}

fn bodies(records: &[Box<[u8]>]) -> Vec<String> {
    records
        .iter()
        .map(|record| match read_frame(record) {
            Ok(Frame::Message(view)) => String::from_utf8(view.body().into()).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Takes the next messages, the first queue's first, and keeps the queues.
fn poll_by(group: &ConsumerGroup, most: usize, filter: &TagFilter) -> Result<Vec<String>> {
    let mut taken = Vec::new();
    for queue_id in group.queues("orders")? {
        let is_it = |at: &&GroupOffset| at.queue_id == queue_id;
        let place = match group.take("orders", queue_id)? {
            Some(place) => place,
            None => lag(group).iter().find(is_it).expect("taken before").queue_offset,
        };
        let (found, next, _) = group.read("orders", queue_id, place, most - taken.len(), filter)?;
        group.seek("orders", queue_id, next)?;
        taken.extend(found.into_iter().map(|found| found.record));
    }
    Ok(bodies(&taken))
}

fn poll(group: &ConsumerGroup, most: usize) -> Vec<String> {
    poll_by(group, most, &TagFilter::ALL).unwrap()
}

fn lag(group: &ConsumerGroup) -> Vec<GroupOffset> {
    group.lag(&BTreeMap::new()).unwrap()
}

#[test]
fn a_queue_is_taken_by_one_handle_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    for queue_id in [0, 5] {
        append(&store, queue_id, b"a", None);
        append(&store, queue_id, b"b", None);
    }
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    let reader = open(dir.path(), OpenMode::Read);
    let other = ConsumerGroup::open(Arc::clone(&reader), "g", Begin::Earliest).unwrap();
    assert_eq!(group.queues("orders").unwrap(), [0, 5]);
    assert_eq!(group.take("orders", 0).unwrap(), Some(0));
    assert_eq!(group.take("orders", 0).unwrap(), None);
    assert_eq!(other.take("orders", 0).unwrap(), None);
    assert_eq!(other.take("orders", 5).unwrap(), Some(0));
    group.seek("orders", 0, 1).unwrap();
    group.commit().unwrap();
    group.release("orders", 0);
    assert_eq!(other.take("orders", 0).unwrap(), Some(1));
    drop(other);
    assert_eq!(group.take("orders", 0).unwrap(), Some(1));
    assert_eq!(group.take("orders", 5).unwrap(), Some(0));
}

#[test]
fn a_commit_outlives_the_store_and_another_group_begins_at_the_first() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = open(dir.path(), OpenMode::Create);
        for body in ["0", "1", "2", "3"] {
            append(&store, 0, body.as_bytes(), None);
        }
        let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
        assert_eq!(poll(&group, 2), ["0", "1"]);
        group.commit().unwrap();
        assert_eq!(poll(&group, 1), ["2"]);
    }
    let store = open(dir.path(), OpenMode::ReadWrite);
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    assert_eq!(poll(&group, 9), ["2", "3"]);
    let other = ConsumerGroup::open(Arc::clone(&store), "h", Begin::Earliest).unwrap();
    assert_eq!(poll(&other, 1), ["0"]);
    group.commit().unwrap();
    other.commit().unwrap();
    let offsets: Vec<_> = store
        .groups()
        .unwrap()
        .into_iter()
        .flat_map(|(name, offsets)| {
            offsets.into_iter().map(move |at| (name.clone(), at.queue_offset, at.lag()))
        })
        .collect();
    assert_eq!(offsets, [("g".to_owned(), 4, 0), ("h".to_owned(), 1, 3)]);
}

#[test]
fn messages_that_a_filter_skips_are_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    for number in 0..40 {
        let tags: &[u8] = if number % 10 == 9 { b"x" } else { b"y" };
        append(&store, 0, number.to_string().as_bytes(), Some(tags));
    }
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    let filter = TagFilter::parse("x");
    assert_eq!(poll_by(&group, 2, &filter).unwrap(), ["9", "19"]);
    assert_eq!(poll_by(&group, 9, &filter).unwrap(), ["29", "39"]);
    assert_eq!(lag(&group).first().map(GroupOffset::lag), Some(0));
    let none = ConsumerGroup::open(Arc::clone(&store), "none", Begin::Earliest).unwrap();
    assert_eq!(poll_by(&none, 9, &TagFilter::parse("z")).unwrap(), [""; 0]);
    assert_eq!(lag(&none).first().map(|at| at.queue_offset), Some(40));
}

#[test]
fn a_place_outside_of_the_queue_is_corrected_as_a_client_would() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    append(&store, 0, b"0", None);
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    group.seek("orders", 0, 99).unwrap();
    assert_eq!(poll(&group, 9), [""; 0]);
    append(&store, 0, b"1", None);
    assert_eq!(poll(&group, 9), ["1"]);
    group.seek("orders", 0, 0).unwrap();
    assert_eq!(poll(&group, 1), ["0"]);
    assert!(matches!(group.seek("orders", -1, 0), Err(Error::InvalidMessage { .. })));
    assert!(matches!(group.seek("orders", 0, -1), Err(Error::InvalidMessage { .. })));
}

#[test]
fn there_is_one_live_group_of_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    let second = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest);
    assert!(matches!(second, Err(Error::Locked { .. })));
    group.close();
    group.close();
    assert!(matches!(poll_by(&group, 1, &TagFilter::ALL), Err(Error::Closed)));
    let again = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    drop(group);
    let locked = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest);
    assert!(matches!(locked, Err(Error::Locked { .. })));
    drop(again);
    ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    for bad in ["", "a b", "a@b", "../x", &"g".repeat(256)] {
        let refused = ConsumerGroup::open(Arc::clone(&store), bad, Begin::Earliest);
        assert!(matches!(refused, Err(Error::InvalidMessage { .. })), "{bad}");
    }
}

#[test]
fn a_reader_commits_beside_no_writer_and_beside_one_of_ours() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    append(&store, 0, b"0", None);
    store.close().unwrap();
    let reader = open(dir.path(), OpenMode::Read);
    let group = ConsumerGroup::open(Arc::clone(&reader), "g", Begin::Earliest).unwrap();
    assert_eq!(poll(&group, 9), ["0"]);
    group.commit().unwrap();
    let writer = open(dir.path(), OpenMode::ReadWrite);
    assert_eq!(writer.groups().unwrap()["g"][0].queue_offset, 1);
    append(&writer, 0, b"1", None);
    reader.refresh().unwrap();
    assert_eq!(poll(&group, 9), ["1"]);
    group.commit().unwrap();
    assert_eq!(writer.groups().unwrap()["g"][0].queue_offset, 2);
    let file = writer.writer().unwrap().lock.lock().as_ref().unwrap().file();
    let held = OffsetsLock::take(file, &writer.files.paths);
    append(&writer, 0, b"2", None);
    reader.refresh().unwrap();
    assert_eq!(poll(&group, 9), ["2"]);
    std::thread::scope(|threads| {
        let commit = threads.spawn(|| group.commit());
        assert_eq!(writer.groups().unwrap()["g"][0].queue_offset, 2);
        drop(held.unwrap());
        commit.join().unwrap().unwrap();
    });
    assert_eq!(writer.groups().unwrap()["g"][0].queue_offset, 3);
    reader.close().unwrap();
    assert!(matches!(poll_by(&group, 1, &TagFilter::ALL), Err(Error::Closed)));
}

#[test]
fn a_commit_makes_the_messages_before_it_durable_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    append(&store, 0, b"0", None);
    let end = store.end_offset();
    append(&store, 1, b"1", None);
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    assert_eq!(poll(&group, 1), ["0"]);
    let flushed = store.log().flushed_offset();
    assert!(flushed < end, "{flushed} of {end} bytes were flushed before");
    group.commit().unwrap();
    assert!(store.log().flushed_offset() >= end);
    group.seek("orders", 0, 2).unwrap();
    let refused = group.commit().unwrap_err();
    assert!(matches!(refused, Error::InvalidMessage { field: "queue_offset", .. }), "{refused}");
    assert_eq!(store.groups().unwrap()["g"][0].queue_offset, 1);
    group.seek("orders", 0, 0).unwrap();
    group.commit().unwrap();
}

#[test]
fn an_offset_beyond_the_log_is_set_back_at_open_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    append(&store, 0, b"0", None);
    let path = store.files.paths.consumer_offsets(false);
    store.close().unwrap();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let table = r#"{"offsetTable":{"orders@g":{0:6,1:3},"orders@h":{0:1}},"x":1}"#;
    std::fs::write(&path, table).unwrap();
    let store = open(dir.path(), OpenMode::ReadWrite);
    let warnings = store.warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let told =
        "group g stood at queue offset 6 of queue 0 of topic orders, beyond the queue's end 1";
    assert!(warnings[0].contains(told), "{warnings:?}");
    append(&store, 0, b"1", None);
    append(&store, 1, b"2", None);
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    assert_eq!(poll(&group, 9), ["1", "2"]);
    let kept = OffsetTable::parse(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((kept.get("orders", "g", 0), kept.get("orders", "h", 0)), (Some(1), Some(1)));
    store.close().unwrap();
    assert_eq!(open(dir.path(), OpenMode::ReadWrite).warnings(), [""; 0]);
}

#[test]
fn other_groups_offsets_survive_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    append(&store, 0, b"0", None);
    let path = store.files.paths.consumer_offsets(false);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, r#"{"offsetTable":{"billing@other":{7:99},"orders@g":{3:1}},"x":1}"#)
        .unwrap();
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    assert_eq!(poll(&group, 9), ["0"]);
    group.commit().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let table = OffsetTable::parse(text.as_bytes()).unwrap();
    assert_eq!(table.get("billing", "other", 7), Some(99));
    assert_eq!(table.get("orders", "g", 0), Some(1));
    assert_eq!(table.get("orders", "g", 3), Some(1));
    assert!(text.contains("\"x\":1"));
    std::fs::write(&path, "{").unwrap();
    append(&store, 0, b"1", None);
    // The backup counts, which knows nothing of queue 0, once the queue is taken anew.
    assert_eq!(poll(&group, 1), ["1"]);
    group.release("orders", 0);
    assert_eq!(poll(&group, 9), ["0", "1"]);
    assert!(matches!(group.commit(), Err(Error::Corrupt(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{");
}

#[test]
fn a_commit_past_the_limits_of_a_table_is_refused_and_the_table_stays_readable() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    append(&store, 0, b"one", None);
    let path = dir.path().join("config/consumerOffset.json");
    let values = format!("[{}0]", "0,".repeat(json::MAX_VALUES - 2));
    for filler in [format!("\"{}\"", "x".repeat(json::MAX_LEN - 80)), values] {
        let text = format!("{{\"offsetTable\":{{}},\"filler\":{filler}}}");
        assert!(OffsetTable::parse(text.as_bytes()).is_ok());
        std::fs::write(&path, &text).unwrap();
        let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
        assert_eq!(poll(&group, 1), ["one"]);
        let error = group.commit().unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("nothing was written"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap().len(), text.len());
        assert!(store.groups().unwrap().is_empty());
    }
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    poll(&group, 1);
    group.commit().unwrap_err();
    std::fs::remove_file(&path).unwrap();
    group.commit().unwrap();
    assert_eq!(store.groups().unwrap()["g"][0].queue_offset, 1);
}

#[test]
fn a_group_never_goes_back_where_others_have_read_more_than_it_sees() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    append(&store, 0, b"0", None);
    let behind =
        ConsumerGroup::open(open(dir.path(), OpenMode::Read), "g", Begin::Earliest).unwrap();
    append(&store, 0, b"1", None);
    append(&store, 0, b"2", None);
    let ahead =
        ConsumerGroup::open(open(dir.path(), OpenMode::Read), "g", Begin::Earliest).unwrap();
    assert_eq!(poll(&ahead, 9), ["0", "1", "2"]);
    ahead.commit().unwrap();
    ahead.release("orders", 0);
    assert_eq!(behind.take("orders", 0).unwrap(), Some(3));
    let read = |place| behind.read("orders", 0, place, 9, &TagFilter::ALL).unwrap();
    let (found, next, _) = read(3);
    assert_eq!((found.len(), next), (0, 3), "where it stands");
    append(&store, 0, b"3", None);
    behind.store().refresh().unwrap();
    let (found, next, _) = read(3);
    assert_eq!((found.len(), next), (1, 4));
    // Nobody can have read so far.
    assert_eq!(read(99).1, 4);
}

#[test]
fn messages_behind_the_first_in_flight_stay_done_for_every_reader() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    for number in 0..10 {
        append(&store, 0, number.to_string().as_bytes(), None);
    }
    let path = store.files.paths.consumer_offsets(false);
    let table = || OffsetTable::parse(&std::fs::read(&path).unwrap()).unwrap();
    let again = |advance: &dyn Fn(&ConsumerGroup)| {
        let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
        let first = group.take("orders", 0).unwrap().unwrap();
        advance(&group);
        group.commit().unwrap();
        let (found, next, _) = group.read("orders", 0, first, 99, &TagFilter::ALL).unwrap();
        assert_eq!(next, 10);
        let records: Vec<_> = found.into_iter().map(|found| found.record).collect();
        bodies(&records).join("")
    };
    // 1 and 4 are in flight of the eight that were read.
    assert_eq!(
        again(&|group| group.advance("orders", 0, 1, vec![(2, 4), (5, 8)], 8).unwrap()),
        "0123456789"
    );
    assert_eq!(table().get("orders", "g", 0), Some(1));
    // The first one is done now, and the others were not read again.
    assert_eq!(again(&|group| group.advance("orders", 0, 2, Vec::new(), 2).unwrap()), "1489");
    assert_eq!(table().get("orders", "g", 0), Some(4), "the place behind what is done");
    assert_eq!(again(&|_| ()), "489");
    let at = |queue_offset| tables::GroupOffset {
        topic: "orders",
        group: "g",
        queue_id: 0,
        queue_offset,
    };
    assert_eq!(table().done(&at(4)), [(5, 8)]);
    let mut moved = table();
    let text = String::from_utf8(moved.to_bytes()).unwrap().replace(":4", ":3");
    std::fs::write(&path, text).unwrap();
    assert_eq!(again(&|_| ()), "3456789");
    moved.put(&at(4), 0);
    assert!(!String::from_utf8(moved.to_bytes()).unwrap().contains("mqstoreDone"));
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    group.take("orders", 0).unwrap();
    group.advance("orders", 0, 4, vec![(5, 8)], 8).unwrap();
    group.commit().unwrap();
    group.seek("orders", 0, 4).unwrap();
    group.commit().unwrap();
    drop(group);
    assert_eq!(again(&|_| ()), "456789");
}

#[test]
fn done_messages_that_a_power_cut_took_hide_no_later_ones() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    append(&store, 0, b"0", None);
    let path = store.files.paths.consumer_offsets(false);
    store.close().unwrap();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let table = r#"{"mqstoreDone":{"orders@g":{"0":[0,1,3]}},"offsetTable":{"orders@g":{0:0}}}"#;
    std::fs::write(&path, table).unwrap();
    let store = open(dir.path(), OpenMode::ReadWrite);
    append(&store, 0, b"1", None);
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    assert_eq!(poll(&group, 9), ["0", "1"]);
}

#[test]
fn a_group_that_begins_a_topic_is_in_the_table_before_its_first_message() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OpenMode::Create);
    append(&store, 0, b"0", None);
    append(&store, 1, b"1", None);
    let group = ConsumerGroup::open(Arc::clone(&store), "g", Begin::Earliest).unwrap();
    group.take("orders", 1).unwrap();
    assert!(store.groups().unwrap().is_empty());
    group.read("orders", 1, 0, 1, &TagFilter::ALL).unwrap();
    let known = &store.groups().unwrap()["g"];
    assert_eq!((known[0].queue_id, known[0].queue_offset, known[0].lag()), (1, 0, 1));
}

#[test]
fn acknowledgements_that_no_file_holds_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acks");
    let mut file = AckFile::create(&Os, path.clone(), 0).unwrap();
    let acks: Vec<_> = (0..(64 << 20) / 28 - 1).map(|at| (at, at + 1, 0)).collect();
    file.put(&acks).unwrap();
    let error = file.put(&acks[..1]).unwrap_err().to_string();
    assert!(error.contains("; the messages stay in flight: "), "{error}");
    assert_eq!(AckFile::rows_behind(&Os, &path, 0).unwrap().unwrap(), acks);
}
