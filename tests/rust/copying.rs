//! Shared parts of `copy`, `import`, `salvage`: a new store, seen whole or not at all, messages on
//! their way into it, and rules that replace their content.

use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use mqstore::care::transfer::copy::{Redaction, Replacement, Rule, check_property};
use mqstore::care::transfer::{ConfigFile, NewStore};
use mqstore::care::transfer::{NumberRule, Plan, Transfer, config_files};
use mqstore::care::{CopyOptions, VerifyOptions, copy, diff, verify};
use mqstore::error::Result;
use mqstore::files::{Os, Storage};
use mqstore::format::config::tables::{OffsetTable, TopicTable};
use mqstore::format::crc;
use mqstore::format::message::properties::{self, names};
use mqstore::format::message::{Frame, Record, read_frame};
use mqstore::format::queue::batch::{self, BatchItem};
use mqstore::store::{MessageStore, OpenMode};
use mqstore::{Error, Operation};

use crate::support::storage::{Call, Staged};
use crate::support::{Home, names_in, record, scratch, small};

const EIO: i32 = 5;

fn on(path: &Path) -> (Arc<dyn Storage>, &Path) {
    (Arc::new(Os), path)
}

fn create(storage: &Arc<Staged>, out: &Path) -> Result<NewStore> {
    NewStore::create(storage.storage(), out, small(), 0)
}

#[test]
fn a_new_store_lies_under_its_name_once_it_is_whole() {
    let dir = scratch();
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    // Somebody's else's part of a store, under the name that would be taken.
    let taken = dir.path().join(format!(".out.{}-0.partial", std::process::id()));
    fs::write(&taken, b"not ours").unwrap();
    let mut new = create(&Staged::new(), &out).unwrap();
    let part = dir.path().join(format!(".out.{}-1.partial", std::process::id()));
    assert!(part.join("commitlog").is_dir() && names_in(&out).is_empty());
    for number in 0..50 {
        new.put(&record(b"T", number, b"body")).unwrap();
    }
    assert!(names_in(&part.join("commitlog")).len() > 1);
    new.finish(&[("topics.json".to_owned(), br#"{"topicConfigTable":{}}"#.to_vec())], &[]).unwrap();
    assert!(!part.exists() && taken.exists());
    assert_eq!(fs::read(out.join("config/topics.json")).unwrap().first(), Some(&b'{'));
    let store = MessageStore::open(&out, OpenMode::Read, small()).unwrap();
    assert_eq!(store.queue(b"T", 0).unwrap().unwrap().max_offset, 50);
}

#[test]
fn of_a_new_store_that_failed_nothing_is_left() {
    for (call, path, skip) in [
        (Call::Create, "commitlog", 1),
        (Call::Sync, "commitlog", 0),
        (Call::Create, "consumequeue", 0),
        (Call::Rename, "out", 0),
        (Call::SyncDir, "config", 0),
    ] {
        let (dir, stage) = (scratch(), Staged::new());
        stage.fail(call, path, skip, EIO);
        let made = create(&stage, &dir.path().join("out")).and_then(|mut new| {
            for number in 0..50 {
                new.put(&record(b"T", number, b"body"))?;
            }
            new.finish(&[("topics.json".to_owned(), b"{}".to_vec())], &[])
        });
        let error = made.unwrap_err();
        assert!(matches!(error, Error::Io { .. } | Error::Poisoned { .. }), "{call:?}: {error}");
        assert!(names_in(dir.path()).is_empty(), "{call:?} {path}");
    }
}

#[test]
fn a_file_in_the_way_of_a_new_store_stays() {
    let dir = scratch();
    let (file, folder) = (dir.path().join("file"), dir.path().join("folder"));
    fs::write(&file, b"x").unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("x"), b"x").unwrap();
    for (out, there) in [
        (&file, "something is there already"),
        (&folder, "a folder with something in it is there already"),
    ] {
        let error = create(&Staged::new(), out).unwrap_err().to_string();
        let text = format!("create {}: {there}; give the name of a new one", out.display());
        assert_eq!(error, text);
    }
    let stage = Staged::new();
    stage.fail(Call::Kind, "new", 0, EIO);
    let error = create(&stage, &dir.path().join("new")).unwrap_err().to_string();
    assert!(error.starts_with("stat ") && error.ends_with("(os error 5)"), "{error}");
    assert_eq!(names_in(dir.path()).len(), 2);
}

#[test]
fn a_record_that_cannot_be_or_fits_into_no_file_is_refused() {
    let dir = scratch();
    let mut new = create(&Staged::new(), &dir.path().join("out")).unwrap();
    let large = vec![7; 4096];
    let error = new.put(&record(b"T", 0, &large)).unwrap_err();
    match error {
        Error::InvalidMessage { field: "message", reason, limit: Some(4088), .. } => {
            assert!(reason.ends_with("bytes, a file of the log has room for 4088"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let long = vec![b'T'; 200];
    let error = new.put(&record(&long, 0, b"x")).unwrap_err();
    assert!(error.to_string().contains("expected "), "{error}");
    drop(new);
    assert!(names_in(dir.path()).is_empty());
}

fn plan(rule: NumberRule, files: &[(&str, &str)]) -> Plan {
    Plan {
        config: small(),
        base_offset: 0,
        rule,
        closed_up: hashbrown::HashSet::new(),
        files: files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
            .collect(),
        expected: 0,
    }
}

fn begin(out: &Path, plan: Plan) -> Result<Transfer> {
    Transfer::begin(Arc::new(Os), out, plan)
}

#[test]
fn missing_messages_are_stood_in_for_within_reason() {
    let dir = scratch();
    let out = dir.path().join("out");
    let mut transfer = begin(&out, plan(NumberRule::Keep, &[])).unwrap();
    for number in [4, 5, 8] {
        transfer.put(&record(b"T", number, b"body")).unwrap();
    }
    assert_eq!((transfer.messages, transfer.stand_ins, transfer.in_place), (3, 2, false));
    let error = transfer.put(&record(b"T", 70_000, b"body")).unwrap_err().to_string();
    assert!(
        error
            .contains("expected messages 9 to 70000 of queue 0 of \"T\", too many to stand in for"),
        "{error}"
    );
    transfer.finish(&[]).unwrap();
    let store = MessageStore::open(&out, OpenMode::Read, small()).unwrap();
    let queue = store.queue(b"T", 0).unwrap().unwrap();
    assert_eq!((queue.min_offset, queue.max_offset), (4, 9));
}

/// The table of topics, as text.
fn topics_of(out: &Path) -> String {
    fs::read_to_string(out.join("config/topics.json")).unwrap()
}

/// Bodies of an inner batch, as its record has them.
fn batch_of(bodies: &[&str], properties: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for body in bodies {
        BatchItem { flag: 3, body: body.as_bytes(), properties }.encode_to(&mut bytes).unwrap();
    }
    bytes
}

#[test]
fn the_table_of_topics_goes_with_the_messages() {
    let members = batch_of(&["a", "b"], b"");
    let raw = b"INNER_NUM\x012\x02INNER_BASE\x010\x02";
    let inner = Record { sys_flag: 0xC0, properties: raw, ..record(b"Batch", 0, &members) };
    let put = |files: &[(&str, &str)], records: &[Record<'_>]| {
        let dir = scratch();
        let out = dir.path().join("out");
        let mut transfer = begin(&out, plan(NumberRule::Keep, files)).unwrap();
        records.iter().for_each(|record| transfer.put(record).unwrap());
        transfer.finish(&[]).unwrap();
        (dir, out)
    };
    // Without a table every topic that a broker takes is entered.
    let (_dir, out) = put(&[], &[record(b"T", 0, b"x"), inner]);
    assert!(topics_of(&out).contains("\"T\""), "{}", topics_of(&out));
    assert!(topics_of(&out).contains("BatchCQ"), "{}", topics_of(&out));
    // One that lacks a topic of batches gets it with its kind, and so everything fits.
    let none = r#"{"topicConfigTable":{}}"#;
    let (_dir, out) = put(&[("topics.json", none)], &[record(b"T", 0, b"x"), inner]);
    let table = TopicTable::parse(topics_of(&out).as_bytes()).unwrap();
    assert!(table.get("Batch").unwrap().is_batch_queue());
    let go_on = &mut |_, _| ControlFlow::Continue(());
    let report = verify(&out, small(), &VerifyOptions::default(), go_on).unwrap();
    assert_eq!((report.findings, report.counts.queue_entries), (vec![], 2));
    let known = r#"{"topicConfigTable":{"Batch":{"topicName":"Batch","readQueueNums":8,
        "writeQueueNums":8,"perm":6,"attributes":{"queue.type":"BatchCQ"}}}}"#;
    let (_dir, out) = put(&[("topics.json", known)], &[inner]);
    let table = TopicTable::parse(topics_of(&out).as_bytes()).unwrap();
    assert_eq!(table.get("Batch").unwrap().read_queue_nums, 8);
}

#[test]
fn places_of_groups_and_delays_move_with_renumbered_messages() {
    let offsets = r#"{"offsetTable":{"T@group":{"0":7,"1":3}}}"#;
    let delays = r#"{"offsetTable":{"1":9,"2":0,"x":4}}"#;
    let dir = scratch();
    let out = dir.path().join("out");
    let files = [
        ("consumerOffset.json", offsets),
        ("delayOffset.json", delays),
        ("lmqConsumerOffset.json", ""),
        ("topics.json", ""),
        ("other.json", "anything"),
    ];
    let mut transfer = begin(&out, plan(NumberRule::FromZero, &files)).unwrap();
    for number in 5..9 {
        transfer.put(&record(b"T", number, b"x")).unwrap();
    }
    for number in 8..10 {
        transfer.put(&record(b"SCHEDULE_TOPIC_XXXX", number, b"x")).unwrap();
    }
    transfer.finish(&[]).unwrap();
    let read = |name: &str| fs::read_to_string(out.join("config").join(name)).unwrap();
    let table = OffsetTable::parse(read("consumerOffset.json").as_bytes()).unwrap();
    assert_eq!([0, 1].map(|queue| table.get("T", "group", queue)), [Some(2), Some(0)]);
    let table = read("delayOffset.json");
    let table: serde_json::Value = serde_json::from_str(&table).unwrap();
    assert_eq!(table["offsetTable"]["1"], 1, "{table}");
    assert_eq!((&table["offsetTable"]["2"], &table["offsetTable"]["x"]), (&0.into(), &4.into()));
    assert_eq!(
        (read("lmqConsumerOffset.json"), read("other.json")),
        (String::new(), "anything".to_owned())
    );
    // Nothing that had to move was understood: that is said before anything is made.
    for (name, text) in
        [("consumerOffset.json", "["), ("delayOffset.json", "{\"a\""), ("topics.json", "{")]
    {
        let dir = scratch();
        let error =
            begin(&dir.path().join("out"), plan(NumberRule::Keep, &[(name, text)])).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{name}: byte ")), "{error}");
        assert!(names_in(dir.path()).is_empty());
    }
}

#[test]
fn the_json_files_of_a_folder_come_along_and_nothing_else() {
    let dir = scratch();
    let config = dir.path().join("config");
    let files = |storage: &dyn Storage| config_files(storage, &config);
    assert_eq!(files(&Os).unwrap(), [] as [ConfigFile; 0]);
    fs::create_dir_all(config.join("folder.json")).unwrap();
    for name in ["topics.json", "topics.json.bak", "consumerOffset.json", "notes.txt"] {
        fs::write(config.join(name), name).unwrap();
    }
    let found = files(&Os).unwrap();
    let names: Vec<_> = found.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["consumerOffset.json", "topics.json"]);
    assert_eq!(found[1].1, b"topics.json");
    let stage = Staged::new();
    stage.fail(Call::List, "config", 0, EIO);
    let error = files(&*stage.storage()).unwrap_err().to_string();
    assert_eq!(error, format!("list {}: Input/output error (os error 5)", config.display()));
}

/// A record's body, its properties and its sys flag.
type Content = (Vec<u8>, Vec<u8>, i32);

/// Applies rules to a record; `None` if they leave it unchanged.
fn redacted(rules: &[Rule], record: &Record<'_>) -> Result<Option<Content>> {
    let mut bytes = vec![0; record.encoded_size()];
    record.encode_into(&mut bytes);
    let Ok(Frame::Message(view)) = read_frame(&bytes) else { panic!("{record:?}") };
    let rules = Redaction { rules: rules.to_vec(), salt: b"salt".to_vec() };
    let changed = rules.changed(&view)?;
    Ok(changed.map(|changed| {
        let own = Record::of(&view);
        let new = changed.of(&own);
        assert_eq!(
            new.body_crc,
            if new.body == own.body { own.body_crc } else { crc::body_crc(new.body) }
        );
        (new.body.to_vec(), new.properties.to_vec(), new.sys_flag)
    }))
}

fn body_rule(body: Replacement) -> Rule {
    Rule { body: Some(body), ..Rule::default() }
}

#[test]
fn rules_fit_topics_by_their_patterns() {
    let fits = |pattern: &str, topic: &str| {
        let rule = Rule { topics: vec![pattern.to_owned()], ..body_rule(Replacement::Remove) };
        redacted(&[rule], &record(topic.as_bytes(), 0, b"secret")).unwrap().is_some()
    };
    for (pattern, topic, expected) in [
        ("orders", "orders", true),
        ("orders", "orders2", false),
        ("orders", "order", false),
        ("order?", "orders", true),
        ("order?", "order", false),
        ("*", "anything", true),
        ("*s", "orders", true),
        ("*s", "stock", false),
        ("o*r*s", "orders", true),
        ("o*r*x", "orders", false),
        ("orders**", "orders", true),
        ("%RETRY%*", "%RETRY%group", true),
        ("a*b?d", "abxbcd", true),
        ("\u{fc}*", "\u{fc}ber", true),
    ] {
        assert_eq!(fits(pattern, topic), expected, "{pattern} {topic}");
    }
    // No pattern at all stands for every topic; of several one is enough.
    let every = body_rule(Replacement::Remove);
    assert!(redacted(&[every], &record(b"T", 0, b"x")).unwrap().is_some());
    let two =
        Rule { topics: vec!["a".to_owned(), "b".to_owned()], ..body_rule(Replacement::Remove) };
    assert!(redacted(&[two], &record(b"b", 0, b"x")).unwrap().is_some());
}

#[test]
fn bodies_are_replaced_one_rule_behind_the_other() {
    let once = |rules: &[Replacement], body: &[u8]| {
        let rules: Vec<_> = rules.iter().cloned().map(body_rule).collect();
        redacted(&rules, &record(b"T", 0, body)).unwrap().map(|(body, ..)| body)
    };
    let constant = Replacement::Constant(b"X".to_vec());
    assert_eq!(once(&[Replacement::Zeros], b"abc"), Some(vec![0; 3]));
    assert_eq!(once(&[Replacement::Remove], b"abc"), Some(Vec::new()));
    assert_eq!(once(&[constant.clone(), Replacement::Zeros], b"abc"), Some(vec![0]));
    // An equal value is no change.
    assert_eq!(once(std::slice::from_ref(&constant), b"X"), None);
    assert_eq!(once(&[Replacement::Remove], b""), None);
    let [one, other] = [b"abc", b"abd"].map(|body| once(&[Replacement::Hash], body).unwrap());
    assert!(one.len() == 64 && one != other && one.iter().all(u8::is_ascii_hexdigit));
    // The replacement is not compressed.
    let packed = Record { sys_flag: 0x101, ..record(b"T", 0, b"packed") };
    let rules = [body_rule(constant)];
    assert_eq!(redacted(&rules, &packed).unwrap(), Some((b"X".to_vec(), Vec::new(), 0)));
}

#[test]
fn properties_are_replaced_by_name_and_keys_one_by_one() {
    let mut raw = Vec::new();
    for (name, value) in
        [(&b"customer"[..], &b"Jo"[..]), (b"custom", b"no"), (names::KEYS, b"a b a")]
    {
        properties::push(&mut raw, name, value);
    }
    let replaced = |name: &str, replacement: Replacement| {
        let rule = Rule { properties: vec![(name.to_owned(), replacement)], ..Rule::default() };
        let record = Record { properties: &raw, ..record(b"T", 0, b"x") };
        redacted(&[rule], &record).unwrap().map(|(body, raw, _)| {
            assert_eq!(body, b"x");
            raw
        })
    };
    let text = |raw: &str| Some(raw.replace('=', "\x01").replace(';', "\x02").into_bytes());
    let found = replaced("customer", Replacement::Remove);
    assert_eq!(found, text("custom=no;KEYS=a b a;"));
    let found = replaced("customer", Replacement::Zeros);
    assert_eq!(found, text("customer=00;custom=no;KEYS=a b a;"));
    let found = replaced("custom", Replacement::Constant(b"X".to_vec()));
    assert_eq!(found, text("customer=Jo;custom=X;KEYS=a b a;"));
    assert_eq!(replaced("nobody", Replacement::Remove), None);
    let keys = replaced("KEYS", Replacement::Hash).unwrap();
    let keys = properties::get(&keys, names::KEYS).unwrap().to_vec();
    let keys: Vec<_> = properties::split_keys(&keys).collect();
    assert!(keys.len() == 3 && keys[0] == keys[2] && keys[0] != keys[1]);
    let hashed = replaced("customer", Replacement::Hash).unwrap();
    assert_eq!(properties::get(&hashed, b"customer").unwrap().len(), 64);
    // A value that ends with the properties, as some writers leave it.
    let record = Record { properties: b"customer\x01Jo", ..record(b"T", 0, b"x") };
    let rule =
        Rule { properties: vec![("customer".to_owned(), Replacement::Zeros)], ..Rule::default() };
    let (_, raw, _) = redacted(&[rule], &record).unwrap().unwrap();
    assert_eq!(Some(raw), text("customer=00;"));
}

#[test]
fn each_message_of_a_batch_is_changed_and_one_that_cannot_be_read_is_refused() {
    let members = batch_of(&["secret", "-"], b"customer\x01Jo\x02");
    let inner = Record { sys_flag: 0xC0, ..record(b"T", 0, &members) };
    let constant = [body_rule(Replacement::Constant(b"-".to_vec()))];
    let (body, _, sys_flag) = redacted(&constant, &inner).unwrap().unwrap();
    let items: Vec<_> = batch::items(&body).map(|item| item.unwrap()).collect();
    assert_eq!(items.iter().map(|item| item.body).collect::<Vec<_>>(), [b"-", b"-"]);
    assert!(items.iter().all(|item| (item.flag, item.properties) == (3, b"customer\x01Jo\x02")));
    assert_eq!(sys_flag, 0xC0);
    let rule =
        Rule { properties: vec![("customer".to_owned(), Replacement::Remove)], ..Rule::default() };
    let (body, ..) = redacted(&[rule], &inner).unwrap().unwrap();
    assert!(batch::items(&body).all(|item| item.unwrap().properties.is_empty()));
    let same = batch_of(&["-", "-"], b"");
    let inner = Record { body: &same, body_crc: crc::body_crc(&same), ..inner };
    assert_eq!(redacted(&constant, &inner).unwrap(), None);
    // Cut short, or compressed by nothing that is known: given out it would be as it is.
    let cut = &members[..members.len() - 3];
    for (body, flag) in [(cut, 0xC0), (&members[..], 0xC1)] {
        let inner = Record { body, body_crc: crc::body_crc(body), sys_flag: flag, ..inner };
        let refused = redacted(&constant, &inner);
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    }
}

#[test]
fn names_that_no_rule_may_have_are_refused_with_the_reason() {
    assert!(check_property("customer").is_ok());
    for (name, reason) in [
        ("", "expected a property's name, got \"\""),
        ("a\u{1}b", "expected a property's name, got \"a\\u{1}b\""),
        ("a\u{2}", "expected a property's name, got \"a\\u{2}\""),
        (
            "INNER_NUM",
            "expected a property that readers of the message do not need, got \"INNER_NUM\"",
        ),
    ] {
        match check_property(name).unwrap_err() {
            Error::InvalidConfig { field, reason: found } => {
                assert_eq!((&*field, &*found), ("redact.properties", reason));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn copies_and_comparisons_end_when_they_are_told_to() {
    let home = Home::closed(40);
    let out = scratch();
    let to = out.path().join("out");
    let options = CopyOptions::default();
    let end = &mut |_, _| ControlFlow::Break(());
    let copied = copy(Arc::new(Os), home.path(), &to, home.config.clone(), &options, end);
    assert!(
        matches!(&copied, Err(Error::Io { op: Operation::Other("copy"), source, .. })
        if source.kind() == ErrorKind::Interrupted),
        "{copied:?}"
    );
    assert!(names_in(out.path()).is_empty());
    let compared = diff(on(home.path()), on(home.path()), &home.config, end);
    assert!(
        matches!(&compared, Err(Error::Io { op: Operation::Other("compare"), source, .. })
        if source.kind() == ErrorKind::Interrupted),
        "{compared:?}"
    );
    let go_on = &mut |_, _| ControlFlow::Continue(());
    copy(Arc::new(Os), home.path(), &to, home.config.clone(), &options, go_on).unwrap();
    let same = diff(on(home.path()), on(&to), &home.config, go_on).unwrap();
    assert_eq!((same.messages, same.queues, same.differences.len()), (40, 4, 0));
    // Offsets of delayed messages without any are none.
    let empty = out.path().join("empty");
    begin(&empty, plan(NumberRule::Keep, &[("delayOffset.json", "")]))
        .unwrap()
        .finish(&[])
        .unwrap();
    assert_eq!(fs::read(empty.join("config/delayOffset.json")).unwrap(), b"");
}
