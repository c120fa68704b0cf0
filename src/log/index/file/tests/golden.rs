//! Files written by RocketMQ: read, and written again from the same puts.

use super::*;

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/indexfile");

fn lines(name: &str, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(format!("{DIR}/{name}.{kind}.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or_else(|| panic!("{field} in {value}"))
}

fn params(name: &str) -> (IndexLayout, IndexHeader) {
    let text = fs::read_to_string(format!("{DIR}/{name}.params.json")).unwrap();
    let params: Value = serde_json::from_str(&text).unwrap();
    let size = |field| u32::try_from(number(&params, field)).unwrap();
    let previous = IndexHeader {
        end_physical_offset: number(&params, "endPhyOffset"),
        end_timestamp_ms: number(&params, "endTimestamp"),
        ..IndexHeader::default()
    };
    (layout(size("slots"), size("entries")), previous)
}

fn new_file(name: &str, dir: &TempDir) -> IndexFile {
    let (layout, previous) = params(name);
    IndexFile::create(&Os, &dir.path().join("new"), layout, Some(&previous)).unwrap()
}

fn copied_file(name: &str, dir: &TempDir) -> IndexFile {
    let path = dir.path().join("copy");
    fs::copy(format!("{DIR}/{name}.index"), &path).unwrap();
    IndexFile::open(&Os, &path, params(name).0, IndexOpen::Read).unwrap()
}

fn puts(name: &str) -> Vec<IndexPut> {
    let all = lines(name, "puts");
    let puts = all.iter().filter(|line| line.get("key").is_some());
    puts.map(|line| IndexPut {
        key_hash: key_hash_of(line["key"].as_str().unwrap().as_bytes()),
        physical_offset: number(line, "phyOffset"),
        store_timestamp_ms: number(line, "storeTimestamp"),
    })
    .collect()
}

/// Repeats RocketMQ's puts and selects, and compares every answer and byte.
fn replay(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut file = new_file(name, &dir);
    for (line, expected) in lines(name, "puts").iter().zip(&lines(name, "results")) {
        if let Some(key) = line.get("key") {
            let hash = key_hash_of(key.as_str().unwrap().as_bytes());
            assert_eq!(i64::from(hash), number(expected, "keyHash"));
            let (offset, time) = (number(line, "phyOffset"), number(line, "storeTimestamp"));
            let put = file.put_key(hash, offset, time).unwrap();
            assert_eq!(put, expected["ok"].as_bool().unwrap(), "{line}");
            continue;
        }
        let hash = key_hash_of(line["select"].as_str().unwrap().as_bytes());
        let begin = line.get("begin").map_or(0, |_| number(line, "begin"));
        let end = line.get("end").map_or(EVER, |_| number(line, "end"));
        let max = usize::try_from(number(line, "max")).unwrap();
        let offsets: Vec<_> =
            expected["phyOffsets"].as_array().unwrap().iter().filter_map(Value::as_i64).collect();
        assert_eq!(select(&file, hash, begin, end, max), offsets, "{line}");
        for reader in readers(&file) {
            assert_eq!(select(&reader, hash, begin, end, max), offsets, "{line}");
        }
    }
    file.flush().unwrap();
    let expected = fs::read(format!("{DIR}/{name}.index")).unwrap();
    assert_eq!(bytes_of(&file), expected);

    let dir = tempfile::tempdir().unwrap();
    let mut batch = new_file(name, &dir);
    batch.put_many(&puts(name)).unwrap();
    batch.flush().unwrap();
    assert_eq!(bytes_of(&batch), expected);
}

fn list(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file = copied_file(name, &dir);
    let header = file.header().unwrap();
    let slots: Vec<_> = file.slots().map(Result::unwrap).collect();
    let entries: Vec<_> = file.entries().unwrap().map(Result::unwrap).collect();
    let dump = lines(name, "dump");
    let of = |kind: &'static str| dump.iter().filter(move |line| line["type"] == kind);
    let expected = of("header").next().unwrap();
    assert_eq!(header.begin_timestamp_ms, number(expected, "beginTimestamp"));
    assert_eq!(header.end_timestamp_ms, number(expected, "endTimestamp"));
    assert_eq!(header.begin_physical_offset, number(expected, "beginPhyOffset"));
    assert_eq!(header.end_physical_offset, number(expected, "endPhyOffset"));
    assert_eq!(i64::from(header.hash_slot_count), number(expected, "hashSlotCount"));
    assert_eq!(i64::from(header.index_count), number(expected, "indexCount"));
    let expected: Vec<_> =
        of("slot").map(|slot| (number(slot, "slot"), number(slot, "value"))).collect();
    let found: Vec<_> =
        slots.iter().map(|(slot, value)| (i64::from(*slot), i64::from(*value))).collect();
    assert_eq!(found, expected);
    let expected: Vec<_> = of("entry")
        .map(|entry| {
            ["i", "keyHash", "phyOffset", "timeDiff", "prev"].map(|field| number(entry, field))
        })
        .filter(|[number, ..]| *number > 0)
        .collect();
    let found: Vec<_> = entries
        .iter()
        .map(|(number, entry)| {
            let IndexEntry { key_hash, physical_offset, seconds, prev_entry } = *entry;
            let (key_hash, seconds) = (i64::from(key_hash), i64::from(seconds));
            [i64::from(*number), key_hash, physical_offset, seconds, i64::from(prev_entry)]
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn answers_and_bytes_are_those_of_rocketmq() {
    for name in ["full", "odd", "plain", "rolled", "single", "zerotime"] {
        replay(name);
    }
}

#[test]
fn header_slots_and_entries_are_those_that_rocketmq_lists() {
    for name in ["full", "odd", "plain", "rolled", "single", "zerotime"] {
        list(name);
    }
}

#[test]
fn files_of_rocketmq_are_sound() {
    for name in ["full", "plain", "rolled", "single", "zerotime"] {
        let dir = tempfile::tempdir().unwrap();
        let file = copied_file(name, &dir);
        assert_eq!(check(&file), [], "{name}");
    }
}
