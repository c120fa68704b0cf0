//! `doctor`: what it says of the next start of a store that was not closed, what only the messages
//! tell, and that it can be told to end.

use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::Arc;

use mqstore::care::{
    Code, Diagnosis, DoctorReport, Recover, Severity, StatsOptions, doctor, recover, stats,
};
use mqstore::files::Os;
use mqstore::format::message::properties::{self, names};
use mqstore::store::NewMessage;
use mqstore::time::utc_text;
use mqstore::{Error, Operation};

use crate::support::{Home, START_MS, patch, places, set_len, small};

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn report(home: &Home) -> DoctorReport {
    doctor(home.path(), &home.config, &mut go_on).unwrap()
}

fn examine(home: &Home) -> Vec<Diagnosis> {
    report(home).diagnoses
}

fn codes(diagnoses: &[Diagnosis]) -> Vec<Code> {
    diagnoses.iter().map(|diagnosis| diagnosis.code).collect()
}

/// The evidence of one code; empty where the code is not named.
fn evidence(home: &Home, code: Code) -> Vec<String> {
    let diagnoses = examine(home);
    let of_code = diagnoses.into_iter().find(|diagnosis| diagnosis.code == code);
    of_code.map(|diagnosis| diagnosis.evidence).unwrap_or_default()
}

/// The one line on what a start reads.
fn start(home: &Home) -> String {
    let lines = evidence(home, Code::DocSlowStart);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.into_iter().next().unwrap()
}

fn set_checkpoint(home: &Home, times: [i64; 3]) {
    for (at, time) in (0..).step_by(8).zip(times) {
        patch(&home.path().join("checkpoint"), at, &time.to_be_bytes());
    }
}

#[test]
fn a_start_reads_from_the_checkpoint_on() {
    let home = Home::killed(120);
    let all = places(&home);
    let end = home.read().end_offset();
    let files = fs::read_dir(home.path().join("commitlog")).unwrap().count() as u64;
    let said = |from: u64, queue_files: u64| {
        let bytes = end.div_ceil(4096) * 4096 - from;
        format!(
            "the file `abort`; RocketMQ's start reads {bytes} bytes of log from physical offset \
             {from} on, and the ends of queues in {queue_files} files"
        )
    };
    assert!(files > 3);
    let queue_files = (0..4).map(|queue| {
        fs::read_dir(home.path().join(format!("consumequeue/Topic/{queue}"))).unwrap().count()
            as u64
    });
    let queue_files: u64 = queue_files.sum();
    // With all times known the last file with messages is enough, with none the whole log.
    let known = START_MS + 1_000_000;
    let last = all.last().unwrap().0 / 4096 * 4096;
    set_checkpoint(&home, [known; 3]);
    assert_eq!(start(&home), said(last, queue_files));
    set_checkpoint(&home, [0; 3]);
    assert_eq!(start(&home), said(0, queue_files));
    // A time of 0 tells nothing of a file.
    set_checkpoint(&home, [known; 3]);
    let first = all.iter().find(|(at, _)| *at >= last).unwrap().0;
    let copy = home.copy();
    copy.patch(first + 56, &[0; 8]);
    assert_eq!(start(&copy), said(last - 4096, queue_files));
    // Folders below a queue's are no business of a start, and there may be none at all.
    let copy = home.copy();
    fs::create_dir_all(copy.path().join("consumequeue/Topic/0/a/b")).unwrap();
    fs::write(copy.path().join("consumequeue/Topic/0/a/b/file"), b"x").unwrap();
    fs::write(copy.path().join("consumequeue/Topic/0/a/file"), b"x").unwrap();
    assert_eq!(start(&copy), said(last, queue_files + 1));
    fs::remove_dir_all(copy.path().join("consumequeue")).unwrap();
    assert_eq!(start(&copy), said(last, 0));
    fs::remove_file(copy.path().join("abort")).unwrap();
    assert_eq!(evidence(&copy, Code::DocSlowStart), [""; 0]);
}

#[test]
fn index_files_that_a_start_deletes_are_named() {
    let home = Home::killed(120);
    set_checkpoint(&home, [START_MS + 1_000_000; 3]);
    assert_eq!(evidence(&home, Code::DocIndexDoomed), [""; 0]);
    set_checkpoint(&home, [START_MS + 1_000_000, START_MS + 1_000_000, START_MS + 30_000]);
    // A start deletes index files only.
    let index = home.path().join("index");
    fs::create_dir(index.join("20300101000000000")).unwrap();
    fs::write(index.join("20300101000000001"), b"short").unwrap();
    fs::write(index.join("notes"), [0x7f; 40]).unwrap();
    let doomed = evidence(&home, Code::DocIndexDoomed);
    let usable: Vec<_> = home
        .index_files()
        .into_iter()
        .filter(|path| path.is_file() && fs::read(path).unwrap().len() > 40)
        .filter_map(|path| {
            let head = fs::read(&path).unwrap();
            let end = i64::from_be_bytes(head[8..16].try_into().unwrap());
            (end > START_MS + 30_000).then_some((path, end))
        })
        .collect();
    assert!(usable.len() > 1 && usable.len() == doomed.len(), "{usable:?} {doomed:?}");
    for ((path, end), line) in usable.iter().zip(doomed) {
        let name = path.file_name().unwrap().to_string_lossy();
        assert_eq!(
            line,
            format!(
                "index/{name}: its last message is of {}, the checkpoint knows the index up to {}",
                utc_text(*end),
                utc_text(START_MS + 30_000)
            )
        );
    }
}

#[test]
fn told_to_end_it_ends_in_either_walk() {
    let home = Home::long();
    // A walk for counting hears it too, and tells how far it came.
    let mut told = Vec::new();
    let counted = stats(
        Arc::new(Os),
        home.path(),
        home.config.clone(),
        &StatsOptions::by(&[]),
        &mut |done, total| {
            told.push((done, total));
            if told.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
    assert!(matches!(counted, Err(Error::Io { op: Operation::Other("read"), .. })), "{counted:?}");
    let [(first, total), (second, _)] = told[..] else { panic!("{told:?}") };
    assert!((16 << 20) < first && first < second && second <= total, "{told:?}");
    let whole = stats(
        Arc::new(Os),
        home.path(),
        home.config.clone(),
        &StatsOptions::by(&[]),
        &mut |_, _| ControlFlow::Continue(()),
    );
    assert_eq!(whole.unwrap().groups[0].1.messages, 600);
    for (part, op) in [(0, "verify"), (2, "examine")] {
        let mut told = Vec::new();
        let outcome = doctor(home.path(), &home.config, &mut |done, total| {
            told.push(done);
            if done > total * part / 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match outcome.unwrap_err() {
            Error::Io { op: found, source, .. } => {
                assert_eq!((found, source.kind()), (op.into(), ErrorKind::Interrupted));
            }
            error => panic!("{error}"),
        }
        assert!(told.is_sorted(), "{told:?}");
    }
    // Let go on it comes to the end: all messages have one time.
    assert_eq!(codes(&examine(&home)), [Code::DocTimeLookup]);
}

/// Appends a message with a key; its time counts from the first message's.
fn keyed(home: &Home, sys_flag: i32, key: &str, seconds: i64) {
    let store = home.write();
    let mut raw = Vec::new();
    properties::push(&mut raw, names::KEYS, key.as_bytes());
    let message = NewMessage {
        sys_flag,
        properties: &raw,
        store_timestamp_ms: Some(START_MS + seconds * 1000),
        ..NewMessage::new(b"Topic", b"x")
    };
    store.append(&message).unwrap();
    store.close().unwrap();
}

#[test]
fn keys_of_what_came_to_nothing_collide_with_none() {
    let home = Home::closed(20);
    keyed(&home, 0, "Aa", 100);
    // Prepared and rolled back: the index has the first of them alone.
    let rolled_back = home.copy();
    keyed(&rolled_back, 12, "BB", 101);
    assert_eq!(codes(&examine(&rolled_back)), []);
    let prepared = home.copy();
    keyed(&prepared, 4, "BB", 101);
    let all = places(&prepared);
    let [older, newer] = [all[20].0, all[21].0];
    let lines = evidence(&prepared, Code::DocKeyCollision);
    assert_eq!(lines.len(), 1);
    let text = format!(
        "\"Topic#BB\" at physical offset {newer} and \"Topic#Aa\" at {older} have the hash "
    );
    assert!(lines[0].starts_with(&text), "{lines:?}");
    assert!(lines[0].ends_with(", as have 0 messages more"), "{lines:?}");
    // Where the older message is damaged its key is unknown, and nothing collides.
    prepared.flip(older + 5);
    assert!(!codes(&examine(&prepared)).contains(&Code::DocKeyCollision));
}

#[test]
fn of_times_that_step_back_the_first_and_the_furthest_are_told() {
    let home = Home::closed(20);
    for (key, seconds) in [("a", 5), ("b", 2), ("c", 400)] {
        keyed(&home, 0, key, seconds);
    }
    let place = places(&home)[20].0;
    let lines = evidence(&home, Code::DocClockBack);
    let time = utc_text(START_MS + 5000);
    assert_eq!(
        lines,
        [format!(
            "2 messages with a time before that of an older one, the first at physical offset \
             {place} with {time}; by up to 17000 ms"
        )]
    );
    let found = examine(&home);
    let cure = found.iter().find(|found| found.code == Code::DocClockBack).unwrap();
    assert_eq!(cure.severity, Severity::Info);
    assert!(cure.cure.as_ref().unwrap().contains(" a"), "{cure:?}");
    // A message without a key is told too, and no command asks for it.
    let home = Home::closed(20);
    let store = home.write();
    let message =
        NewMessage { store_timestamp_ms: Some(START_MS), ..NewMessage::new(b"Topic", b"x") };
    store.append(&message).unwrap();
    store.close().unwrap();
    let found = examine(&home);
    let back = found.iter().find(|found| found.code == Code::DocClockBack).unwrap();
    assert_eq!((back.evidence.len(), &back.cure), (1, &None));
}

#[test]
fn more_than_five_lines_of_evidence_are_counted() {
    let home = Home::closed(120);
    let queue = {
        let store = home.read();
        let queue = store.queue(b"Topic", 1).unwrap().unwrap();
        queue.units(0, 30).unwrap()
    };
    for number in [2, 5, 8, 11, 14, 17, 20] {
        let entry = queue[usize::try_from(number).unwrap()];
        home.put_entry(1, number, entry.physical_offset + 4, entry.store_size, entry.tags_code);
    }
    let lines = evidence(&home, Code::DocQueueWrong);
    assert_eq!((lines.len(), &*lines[5]), (6, "and 2 more"), "{lines:?}");
}

#[test]
fn damage_is_walked_over_and_the_rest_is_told() {
    let home = Home::closed(40);
    keyed(&home, 0, "late", 3);
    let all = places(&home);
    home.flip(all[10].0 + 5);
    // A name that is no text cannot be in a table.
    let (path, _) = home.log_file(0);
    let mut bytes = fs::read(&path).unwrap();
    let from = bytes.windows(6).position(|window| window == b"\x05Topic").unwrap();
    bytes[from + 1] = 0xff;
    fs::write(&path, bytes).unwrap();
    fs::write(home.path().join("config/topics.json"), br#"{"topicConfigTable":{}}"#).unwrap();
    fs::remove_dir_all(home.path().join("consumequeue")).unwrap();
    let found = examine(&home);
    let line = evidence(&home, Code::DocTopicDeleted);
    assert_eq!(line, ["39 messages of Topic, which config/topics.json does not have"]);
    assert!(codes(&found).contains(&Code::DocClockBack), "{found:?}");
    assert!(codes(&found).contains(&Code::LogFrame), "{found:?}");
    // Damage up to the end.
    home.flip(all.last().unwrap().0 + 5);
    let found = examine(&home);
    assert!(!codes(&found).contains(&Code::DocClockBack), "{found:?}");
}

#[test]
fn beside_a_writer_what_waits_is_no_state() {
    let home = Home::new(small());
    let store = home.create();
    home.fill(&store, 0..40);
    store.hold_dispatch(true);
    home.fill(&store, 40..60);
    assert_eq!(codes(&examine(&home)), []);
    // The same of a store that nobody has, once it was killed.
    let copy = home.copy();
    drop(store);
    let found = codes(&examine(&copy));
    assert!(found.contains(&Code::DocUndispatched) && found.contains(&Code::DocSlowStart));
}

#[test]
fn damage_of_the_log_s_own_files_goes_by_its_finding() {
    let home = Home::closed(120);
    let cut = home.copy();
    set_len(&cut.log_file(4096).0, 1000);
    let found = codes(&examine(&cut));
    assert!(found.contains(&Code::FileLength), "{found:?}");
    assert!(!found.contains(&Code::DocQueueOrder), "{found:?}");
    // Before others an empty file has lost what it held; at the end it is what a crash leaves.
    set_len(&cut.log_file(4096).0, 0);
    let found = codes(&examine(&cut));
    assert!(found.contains(&Code::FileLength) && !found.contains(&Code::EmptyFile), "{found:?}");
    let empty = home.copy();
    let end = home.read().end_offset();
    fs::write(empty.log_file(end.next_multiple_of(4096)).0, b"").unwrap();
    let found = codes(&examine(&empty));
    assert!(found.contains(&Code::EmptyFile), "{found:?}");
    assert!(!found.contains(&Code::DocEmptyLast), "{found:?}");
    // Nothing to say of a store without messages.
    let none = Home::new(small());
    none.create().close().unwrap();
    assert_eq!(codes(&examine(&none)), []);
}

#[test]
fn a_topic_is_deleted_only_where_a_table_says_so() {
    let home = Home::closed(40);
    let store = home.write();
    for topic in [&b"TBW102"[..], b"%LMQ%light", b"Odd"] {
        store.append(&NewMessage::new(topic, b"x")).unwrap();
    }
    store.close().unwrap();
    // A name that no broker takes was in no table.
    let (path, _) = home.log_file(places(&home).last().unwrap().0);
    let mut bytes = fs::read(&path).unwrap();
    let from = bytes.windows(4).rposition(|window| window == b"\x03Odd").unwrap();
    bytes[from + 2] = b' ';
    fs::write(&path, bytes).unwrap();
    fs::remove_dir_all(home.path().join("consumequeue")).unwrap();
    let topics = home.path().join("config/topics.json");
    for (table, deleted) in
        [(Some(r#"{"topicConfigTable":{}}"#), true), (Some("{"), false), (None, false)]
    {
        match table {
            Some(text) => fs::write(&topics, text).unwrap(),
            None => fs::remove_file(&topics).unwrap(),
        }
        let lines = evidence(&home, Code::DocTopicDeleted);
        assert_eq!(lines.iter().any(|line| line.starts_with("40 messages of Topic,")), deleted);
        let others = lines.iter().any(|line| line.contains("TBW102") || line.contains("O d"));
        assert!(!others, "{lines:?}");
        assert!(!evidence(&home, Code::DocUndispatched).is_empty());
    }
    // A database of the broker's configuration holds no queues.
    let database = home.path().join("config/metadata");
    fs::create_dir_all(&database).unwrap();
    fs::write(database.join("CURRENT"), "MANIFEST-000001\n").unwrap();
    fs::write(database.join("MANIFEST-000001"), b"").unwrap();
    assert_eq!(evidence(&home, Code::DocRocksDb), [""; 0]);
    assert!(!evidence(&home, Code::DocUndispatched).is_empty());
}

#[test]
fn of_times_in_queues_steps_back_and_ties_are_told_one_after_the_other() {
    let home = Home::closed(20);
    // Queue 0 has five messages: five more, the last at the edge of a file with the time before.
    for (number, seconds) in [100, 50, 60, 70, 80, 80, 80, 80, 80].into_iter().enumerate() {
        keyed(&home, 0, &format!("n{number}"), seconds);
    }
    let lines = evidence(&home, Code::DocTimeLookup);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let time = utc_text(START_MS + 50_000);
    assert_eq!(
        lines[0],
        format!(
            "1 messages with a time before that of the one in front, the first in queue 0 of Topic \
             at 6 with {time}"
        )
    );
    assert!(
        lines[1].starts_with("1 messages that begin a file with the time of the last one before")
    );
}

#[test]
fn the_missing_end_of_the_log_is_one_error_with_no_cure_that_hides_it() {
    for (crashed, no_checkpoint) in [(false, false), (false, true), (true, true)] {
        let home = Home::closed(120);
        if crashed {
            fs::write(home.path().join("abort"), b"1").unwrap();
        }
        let _ = fs::remove_file(home.path().join("mqstore.mark"));
        let _ = fs::remove_file(home.path().join("mqstore.seal"));
        if no_checkpoint {
            fs::write(home.path().join("checkpoint"), [0; 4096]).unwrap();
        }
        let all = places(&home);
        let last = all.last().unwrap().0 / 4096 * 4096;
        for base in [last, last + 4096] {
            let _ = fs::remove_file(home.log_file(base).0);
        }
        let gone = all.iter().filter(|(at, _)| *at >= last).count() as u64;
        let report = report(&home);
        let errors: Vec<_> =
            report.diagnoses.iter().filter(|found| found.severity == Severity::Error).collect();
        assert_eq!(errors.len(), 1, "{crashed} {no_checkpoint} {report:?}");
        assert_eq!((errors[0].code, &errors[0].cure), (Code::DocEndMissing, &None));
        assert!(errors[0].evidence[0].contains(&format!("{last:020}")), "{errors:?}");
        assert!(errors[0].evidence[0].contains(&format!("know {gone} messages")), "{errors:?}");
        assert_eq!((report.verdict.lost.messages, report.verdict.commands.len()), (gone, 0));
        assert_eq!(report.verdict.last_resort.len(), 1);
        let refused = recover(home.path(), home.config.clone(), Recover::Apply, &mut go_on);
        assert!(refused.unwrap_err().to_string().contains("put the missing files back"));
        recover(home.path(), home.config.clone(), Recover::DropBeyond, &mut go_on).unwrap();
        assert_eq!(home.read().end_offset(), last);
    }
}

#[test]
fn recovery_keeps_whole_messages_aside_that_were_never_flushed_and_opening_does_too() {
    let home = Home::killed(60);
    let _ = fs::remove_file(home.path().join("mqstore.mark"));
    set_checkpoint(&home, [0; 3]);
    let all = places(&home);
    home.flip(all[40].0 + 90);
    let plan = recover(home.path(), home.config.clone(), Recover::Plan, &mut go_on).unwrap();
    assert!(plan.refusal.is_none(), "{plan:?}");
    assert_eq!(plan.report.quarantined_count, 19);
    let found = report(&home);
    assert!(found.verdict.commands[0].starts_with("mqstore salvage "), "{found:?}");
    assert!(!found.verdict.commands.iter().any(|command| command.contains("recover")));
    let opened = home.copy();
    assert_eq!(opened.write().recovery().unwrap().quarantined_count, 19);
    let done = recover(home.path(), home.config.clone(), Recover::Apply, &mut go_on).unwrap();
    assert_eq!(done.report.quarantined_count, 19);
    let kept = evidence(&home, Code::DocQuarantine);
    assert!(kept.len() == 1 && kept[0].ends_with(": 19 whole messages"), "{kept:?}");
}

/// The commands on a store, with its folder's name taken out.
fn commands(home: &Home) -> Vec<String> {
    let folder = home.path().parent().unwrap().to_str().unwrap().to_owned();
    let commands = report(home).verdict.commands;
    commands.iter().map(|command| command.replace(&folder, "DIR")).collect()
}

#[test]
fn with_a_missing_end_no_command_makes_another_store() {
    let home = Home::closed(120);
    let last = places(&home).last().unwrap().0 / 4096 * 4096;
    for base in [last, last + 4096] {
        let _ = fs::remove_file(home.log_file(base).0);
    }
    let _ = fs::remove_file(home.path().join("mqstore.mark"));
    home.flip(places(&home)[3].0 + 90);
    let found = report(&home);
    assert!(codes(&found.diagnoses).contains(&Code::DocEndMissing), "{found:?}");
    assert_eq!(found.verdict.commands, [""; 0]);
    assert!(found.diagnoses.iter().all(|found| found.cure.is_none()), "{found:?}");
    let lost = found.verdict.lost;
    assert!(lost.from_ms.is_some_and(|from| from > START_MS) && lost.to_ms > lost.from_ms);
}

#[test]
fn a_store_gives_way_to_a_salvaged_one_that_is_there_and_keeps_its_quarantine() {
    let home = Home::closed(60);
    home.flip(places(&home)[10].0 + 90);
    let kept = home.path().join("quarantine/1");
    fs::create_dir_all(&kept).unwrap();
    fs::write(kept.join("notes"), b"x").unwrap();
    let name = home.path().file_name().unwrap().to_str().unwrap();
    let expected = [
        format!("mqstore salvage DIR/{name} --out DIR/{name}.salvaged"),
        format!(
            "test -n \"$(ls DIR/{name}.salvaged/commitlog)\" && mv -n -T DIR/{name} DIR/{name}.damaged"
        ),
        format!("mv -n -T DIR/{name}.salvaged DIR/{name}"),
        format!("cp -a -n -T DIR/{name}.damaged/quarantine DIR/{name}/quarantine"),
    ];
    assert_eq!(commands(&home), expected);
    fs::create_dir_all(home.path().join("config/topics")).unwrap();
    fs::write(home.path().join("config/topics/CURRENT"), b"MANIFEST-000001").unwrap();
    fs::create_dir_all(home.path().join("consumequeue_rocksdb")).unwrap();
    fs::write(home.path().join("consumequeue_rocksdb/CURRENT"), b"MANIFEST-000001").unwrap();
    let more = commands(&home);
    assert!(more.contains(&format!(
        "cp -a -n -T DIR/{name}.damaged/config/topics DIR/{name}/config/topics"
    )));
    let convert = format!("mqstore convert DIR/{name} --queues rocksdb --apply");
    assert!(more.contains(&format!("test -d DIR/{name}.damaged && {convert}")), "{more:?}");
}

#[test]
fn a_log_that_a_salvaged_store_has_elsewhere_is_not_moved_with_it() {
    for below in [false, true] {
        let mut home = Home::closed(60);
        home.flip(places(&home)[10].0 + 90);
        let log = if below { home.path().join("log") } else { home.path().with_extension("log") };
        fs::rename(home.path().join("commitlog"), &log).unwrap();
        home.config.store_path_commit_log = vec![log.clone()];
        let found = report(&home);
        assert_eq!(found.verdict.commands.len(), 1, "{found:?}");
        assert!(found.verdict.commands[0].starts_with("mqstore salvage "));
        let mut told = found.diagnoses.iter().flat_map(|found| &found.evidence);
        assert!(told.any(|line| line.contains(log.to_str().unwrap())), "{found:?}");
        fs::remove_dir_all(log).unwrap();
    }
}

#[test]
fn groups_that_repeat_messages_are_told() {
    let home = Home::closed(60);
    let config = home.path().join("config");
    fs::create_dir_all(&config).unwrap();
    let write = |name: &str, text: &str| fs::write(config.join(name), text).unwrap();
    write("consumerOffset.json", r#"{"offsetTable":{"Topic@g":{0:3},"Topic@done":{0:15}}}"#);
    let fates = || {
        let groups = report(&home).verdict.groups;
        groups.into_iter().map(|of| (of.group, of.fate.name(), of.messages)).collect::<Vec<_>>()
    };
    assert_eq!(fates(), []);
    // A table that was put back from an older copy.
    write("consumerOffset.json.bak", r#"{"offsetTable":{"Topic@g":{0:7},"Topic@done":{0:9}}}"#);
    assert_eq!(fates(), [("g".to_owned(), "repeats", 4)]);
    // A broker that died wrote none of the last offsets.
    fs::write(home.path().join("abort"), b"1").unwrap();
    fs::remove_file(config.join("consumerOffset.json.bak")).unwrap();
    assert_eq!(fates(), [("g".to_owned(), "may-repeat", 12)]);
    fs::remove_file(home.path().join("abort")).unwrap();
    // Only the backup is left.
    fs::rename(config.join("consumerOffset.json"), config.join("consumerOffset.json.bak")).unwrap();
    assert_eq!(fates(), [("g".to_owned(), "may-repeat", 12)]);
}

#[test]
fn only_the_table_of_consumer_offsets_is_cured_by_a_reset() {
    let home = Home::closed(20);
    let config = home.path().join("config");
    fs::create_dir_all(&config).unwrap();
    for (name, cured) in [
        ("delayOffset.json", false),
        ("lmqConsumerOffset.json", false),
        // No group is known.
        ("consumerOffset.json", false),
        ("subscriptionGroup.json", false),
        ("consumerOffset.json", true),
    ] {
        fs::write(config.join(name), "{damaged").unwrap();
        if cured {
            let groups = r#"{"subscriptionGroupTable":{"g":{}}}"#;
            fs::write(config.join("subscriptionGroup.json"), groups).unwrap();
        }
        let found = examine(&home);
        let told = if cured { Code::OffsetsGone } else { Code::ConfigUnreadable };
        let cure = found.iter().find(|found| found.code == told);
        assert_eq!(cure.unwrap().cure.is_some(), cured, "{name} {found:?}");
        fs::remove_file(config.join(name)).unwrap();
    }
}

#[test]
fn a_log_that_was_given_up_leaves_nothing_for_the_checkpoint_to_confirm() {
    let home = Home::closed(60);
    fs::remove_dir_all(home.path().join("commitlog")).unwrap();
    fs::create_dir(home.path().join("commitlog")).unwrap();
    let _ = fs::remove_file(home.path().join("mqstore.mark"));
    recover(home.path(), home.config.clone(), Recover::DropBeyond, &mut go_on).unwrap();
    assert_eq!(codes(&examine(&home)), []);
}
