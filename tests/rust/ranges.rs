//! Ranges of a log that meet give each record once and each damaged range once, wherever they are cut.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use mqstore::error::Error;
use mqstore::files::{Access, FileRun, Os};
use mqstore::format::crc::body_crc;
use mqstore::format::message::host::Host;
use mqstore::format::message::{Record, Version, write_blank};
use mqstore::log::CommitLog;
use mqstore::log::read::range_scan::RangeScan;
use mqstore::log::read::scanner::{Flow, Item, Lost, Resync, Scanner, Stop};
use proptest::prelude::*;

const FILE: u64 = 2048;
/// Where the body begins in a record with two IPv4 hosts.
const BODY_AT: u64 = 88;

/// Result of a walk: records' offsets and damaged ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    records: Vec<u64>,
    damage: Vec<(u64, u64)>,
}

fn encode(at: u64, body: &[u8], properties: &[u8]) -> Vec<u8> {
    let host = Host::V4([127, 0, 0, 1], 10911);
    let record = Record {
        version: Version::V1,
        body_crc: body_crc(body),
        queue_id: 0,
        flag: 0,
        queue_offset: 0,
        physical_offset: i64::try_from(at).unwrap(),
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: host,
        store_timestamp_ms: 2,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        topic: b"orders",
        properties,
        property_crc: false,
    };
    let mut bytes = vec![0; record.encoded_size()];
    record.encode_into(&mut bytes);
    bytes
}

/// One message: how long its body is, and whether there is a whole record in it that names its own
/// place, so many bytes in.
#[derive(Clone, Debug)]
struct Message {
    body: usize,
    inner: Option<usize>,
}

/// The files of a log of these messages, from `first` on, and where the last ends.
fn write_log(dir: &Path, first: u64, messages: &[Message]) -> u64 {
    let mut files: Vec<Vec<u8>> = vec![Vec::new()];
    for message in messages {
        let mut position = files.last().unwrap().len();
        let size = encode(0, &vec![0; message.body], b"").len();
        let file_size = usize::try_from(FILE).unwrap();
        if position + size + 8 > file_size {
            let file = files.last_mut().unwrap();
            let mut blank = vec![0; file_size - position];
            let size = u32::try_from(blank.len()).unwrap();
            write_blank(&mut blank, size);
            file.extend(blank);
            files.push(Vec::new());
            position = 0;
        }
        let at = first + (files.len() as u64 - 1) * FILE + position as u64;
        let mut body = vec![b'x'; message.body];
        if let Some(skip) = message.inner {
            let inner = encode(at + BODY_AT + skip as u64, b"inner", b"");
            if skip + inner.len() <= body.len() {
                body[skip..skip + inner.len()].copy_from_slice(&inner);
            }
        }
        files.last_mut().unwrap().extend(encode(at, &body, b""));
    }
    let end = first + (files.len() as u64 - 1) * FILE + files.last().unwrap().len() as u64;
    for (number, mut file) in files.into_iter().enumerate() {
        file.resize(usize::try_from(FILE).unwrap(), 0);
        fs::write(dir.join(format!("{:020}", first + number as u64 * FILE)), file).unwrap();
    }
    end
}

fn open(dir: &Path, end: u64) -> CommitLog {
    let (run, _) =
        FileRun::load(Arc::new(Os), Arc::default(), vec![dir.to_owned()], FILE, Access::Read)
            .unwrap();
    CommitLog::new(run, end)
}

fn scan(log: &CommitLog, begin: u64, end: u64, log_end: u64, verify_crc: bool, seen: &mut Seen) {
    let mut scan = RangeScan::new(begin, end, log_end, verify_crc, Lost::Refuse);
    loop {
        let mut count = 0;
        let more = scan
            .run(log, |range, item| {
                match item {
                    Item::Record(..) => seen.records.push(range.start),
                    Item::Damage(damage) => seen.damage.push((damage.begin, damage.end)),
                    Item::Blank => return Ok(Flow::Continue),
                }
                count += 1;
                // A walk may be left and gone on with anywhere.
                Ok(if count == 3 { Flow::Stop } else { Flow::Continue })
            })
            .unwrap();
        if !more {
            return;
        }
    }
}

fn split(log: &CommitLog, first: u64, log_end: u64, step: u64, verify_crc: bool) -> Seen {
    let mut seen = Seen::default();
    let mut at = first;
    while at < log_end {
        scan(log, at, at + step, log_end, verify_crc, &mut seen);
        at += step;
    }
    seen.damage.sort_unstable();
    seen
}

/// The same by one walk from the first byte of the log.
fn walked(log: &CommitLog, first: u64, log_end: u64, verify_crc: bool) -> Seen {
    let mut seen = Seen::default();
    let mut scanner = Scanner::new(log, first, log_end, verify_crc);
    let ended = scanner.each(log, log_end, Resync::InFile, |range, item| {
        match item {
            Item::Record(..) => seen.records.push(range.start),
            Item::Blank => {}
            Item::Damage(_) => seen.damage.push((range.start, range.end)),
        }
        Ok(Flow::Continue)
    });
    assert!(matches!(ended.unwrap(), None | Some(Stop::End)));
    seen
}

#[derive(Clone, Debug)]
enum Harm {
    Flip(u64),
    Zeros(u64, u64),
    Missing(u64),
    Short(u64),
}

fn harm(dir: &Path, first: u64, log_end: u64, harm: &Harm) {
    let place = |at: u64| {
        let at = first + at % (log_end - first);
        let base = first + (at - first) / FILE * FILE;
        (dir.join(format!("{base:020}")), usize::try_from(at - base).unwrap())
    };
    match *harm {
        Harm::Flip(at) => {
            let (path, position) = place(at);
            if let Ok(mut bytes) = fs::read(&path)
                && let Some(byte) = bytes.get_mut(position)
            {
                *byte ^= 0x55;
                fs::write(path, bytes).unwrap();
            }
        }
        Harm::Zeros(at, count) => {
            let (path, position) = place(at);
            if let Ok(mut bytes) = fs::read(&path) {
                let end = bytes.len().min(position + usize::try_from(count).unwrap());
                if let Some(bytes) = bytes.get_mut(position..end) {
                    bytes.fill(0);
                }
                fs::write(path, bytes).unwrap();
            }
        }
        // Neither the first nor the last file: those are retention's and the writer's.
        Harm::Missing(at) => {
            let (path, _) = place(at);
            let files = (log_end - first).div_ceil(FILE);
            let number = at % (log_end - first) / FILE;
            if number > 0 && number + 1 < files {
                let _ = fs::remove_file(path);
            }
        }
        Harm::Short(at) => {
            let (path, position) = place(at);
            if let Ok(file) = fs::OpenOptions::new().write(true).open(path) {
                file.set_len(position as u64 + 1).unwrap();
            }
        }
    }
}

fn message() -> impl Strategy<Value = Message> {
    (0..700_usize, prop::option::of(0..300_usize)).prop_map(|(body, inner)| Message { body, inner })
}

fn harms() -> impl Strategy<Value = Harm> {
    let at = 0..100_000_u64;
    prop_oneof![
        4 => at.clone().prop_map(Harm::Flip),
        2 => (at.clone(), 1..600_u64).prop_map(|(at, count)| Harm::Zeros(at, count)),
        1 => at.clone().prop_map(Harm::Missing),
        1 => at.prop_map(Harm::Short),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn ranges_that_meet_give_all_of_a_log_once(
        messages in prop::collection::vec(message(), 1..30),
        first in (0..3_u64).prop_map(|number| number * FILE),
        done in prop::collection::vec(harms(), 0..5),
        steps in prop::collection::vec(64..5000_u64, 4),
        verify_crc in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let log_end = write_log(dir.path(), first, &messages);
        let intact = walked(&open(dir.path(), log_end), first, log_end, verify_crc);
        prop_assert_eq!((intact.records.len(), intact.damage.len()), (messages.len(), 0));
        for one in &done {
            harm(dir.path(), first, log_end, one);
        }
        let log = open(dir.path(), log_end);
        let wanted = walked(&log, first, log_end, verify_crc);
        for step in steps.into_iter().chain([1024, FILE, 100_000]) {
            let seen = split(&log, first, log_end, step, verify_crc);
            prop_assert_eq!(&seen, &wanted, "ranges of {} bytes", step);
        }
    }
}

/// A log of four files: bodies that hold records, damage of each kind, a missing file.
fn tiny(dir: &Path) -> u64 {
    let messages: Vec<_> = (0..36)
        .map(|number| Message {
            body: 37 * (number % 9),
            inner: (number % 3 == 0).then_some(number),
        })
        .collect();
    let log_end = write_log(dir, 0, &messages);
    assert!(log_end > 3 * FILE);
    log_end
}

#[test]
fn every_size_of_a_range_from_one_byte_on() {
    for harms in [
        &[][..],
        &[Harm::Flip(300), Harm::Zeros(2500, 200), Harm::Flip(4097)],
        &[Harm::Missing(2100), Harm::Flip(1900), Harm::Zeros(4100, 1500)],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let log_end = tiny(dir.path());
        for one in harms {
            harm(dir.path(), 0, log_end, one);
        }
        let log = open(dir.path(), log_end);
        for verify_crc in [true, false] {
            let wanted = walked(&log, 0, log_end, verify_crc);
            assert!(!wanted.records.is_empty());
            assert_eq!(wanted.damage.is_empty(), harms.is_empty());
            let sizes = [1, 2, 3, 7].into_iter().chain((64..log_end + 99).step_by(97));
            for step in sizes.chain([1024, 1025]) {
                let seen = split(&log, 0, log_end, step, verify_crc);
                assert_eq!(seen, wanted, "ranges of {step} bytes, {harms:?}");
            }
        }
    }
}

#[test]
fn a_record_in_a_body_is_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let messages = [Message { body: 600, inner: Some(50) }, Message { body: 5, inner: None }];
    let log_end = write_log(dir.path(), 0, &messages);
    let log = open(dir.path(), log_end);
    let second = walked(&log, 0, log_end, true).records[1];
    // Each of these begins before the record in the body.
    for begin in [1, 88, BODY_AT + 50] {
        let mut seen = Seen::default();
        scan(&log, begin, log_end, log_end, true, &mut seen);
        assert_eq!(seen.records, [second], "from {begin}");
    }
}

#[test]
fn records_one_behind_the_other_in_a_body_are_none_either() {
    let dir = tempfile::tempdir().unwrap();
    let first = encode(0, b"first", b"");
    // The frame in the second body and the one behind it claim to go on.
    let mut body = vec![b'x'; 100];
    for _ in 0..3 {
        let at = first.len() as u64 + BODY_AT + body.len() as u64;
        body.extend(encode(at, b"inner", b""));
    }
    body.extend([b'x'; 100]);
    let second = first.len() as u64;
    let bytes = encode(second, &body, b"");
    let third = second + bytes.len() as u64;
    let mut file = [first, bytes, encode(third, b"third", b"")].concat();
    let log_end = file.len() as u64;
    file.resize(usize::try_from(FILE).unwrap(), 0);
    fs::write(dir.path().join(format!("{:020}", 0)), file).unwrap();
    let log = open(dir.path(), log_end);
    for begin in second + 1..third {
        let mut seen = Seen::default();
        scan(&log, begin, log_end, log_end, true, &mut seen);
        assert_eq!(seen, Seen { records: vec![third], damage: vec![] }, "from {begin}");
    }
}

#[test]
fn a_range_that_retention_took_is_an_error_or_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let log_end = tiny(dir.path());
    fs::remove_file(dir.path().join(format!("{:020}", 0))).unwrap();
    let log = open(dir.path(), log_end);
    let mut strict = RangeScan::new(100, log_end, log_end, true, Lost::Refuse);
    let outcome = strict.run(&log, |_, _| Ok(Flow::Continue));
    let Err(Error::OffsetOutOfRange { physical_offset: 100, min: 2048, .. }) = outcome else {
        panic!("{outcome:?}")
    };
    let mut first = None;
    let mut lenient = RangeScan::new(100, log_end, log_end, true, Lost::Accept);
    lenient
        .run(&log, |_, item| {
            let Item::Record(view, _) = item else { return without_damage(&item) };
            first.get_or_insert(view.physical_offset());
            Ok(Flow::Continue)
        })
        .unwrap();
    assert_eq!(first, Some(2048));

    // Gone after the list of files was made, and before any was opened.
    let log = open(dir.path(), log_end);
    fs::remove_file(dir.path().join(format!("{FILE:020}"))).unwrap();
    let mut records = Vec::new();
    let mut lenient = RangeScan::new(FILE, log_end, log_end, true, Lost::Accept);
    lenient
        .run(&log, |_, item| {
            let Item::Record(view, _) = item else { return without_damage(&item) };
            records.push(view.physical_offset());
            Ok(Flow::Continue)
        })
        .unwrap();
    assert_eq!(records.first(), Some(&4096));
    let mut strict = RangeScan::new(FILE, log_end, log_end, true, Lost::Refuse);
    assert!(strict.run(&log, |_, _| Ok(Flow::Continue)).is_err());
}

fn without_damage(item: &Item<'_, '_>) -> Result<Flow, Error> {
    assert!(matches!(item, Item::Blank), "{item:?}");
    Ok(Flow::Continue)
}

/// Between two files a walk holds neither open.
#[test]
fn files_deleted_during_a_walk_are_an_error_or_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let log_end = tiny(dir.path());
    let delete = |dir: &Path, at: i64| {
        if at == 0 {
            for base in [0, FILE] {
                fs::remove_file(dir.join(format!("{base:020}"))).unwrap();
            }
        }
    };
    let read = |lost| {
        let copy = tempfile::tempdir().unwrap();
        for file in fs::read_dir(dir.path()).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        let log = open(copy.path(), log_end);
        let mut scan = RangeScan::new(0, log_end, log_end, true, lost);
        let mut records = Vec::new();
        let outcome = scan.run(&log, |_, item| {
            let Item::Record(view, _) = item else { return without_damage(&item) };
            delete(copy.path(), view.physical_offset());
            records.push(view.physical_offset().cast_unsigned());
            Ok(Flow::Continue)
        });
        (outcome, records)
    };
    let (outcome, records) = read(Lost::Refuse);
    assert!(matches!(outcome, Err(Error::OffsetOutOfRange { min: 4096, .. })), "{outcome:?}");
    assert!(records.iter().all(|&at| at < FILE), "{records:?}");
    let (outcome, records) = read(Lost::Accept);
    assert!(!outcome.unwrap());
    assert_eq!(records.iter().find(|&&at| at >= FILE), Some(&(2 * FILE)));

    // A range of deleted bytes alone has no records, and not those behind it.
    let log = open(dir.path(), log_end);
    delete(dir.path(), 0);
    let range = |lost| RangeScan::new(0, FILE, log_end, true, lost).beginning_at_once();
    range(Lost::Accept).run(&log, |_, item| panic!("{item:?}")).unwrap();
    let log = open(dir.path(), log_end);
    let error = range(Lost::Refuse).run(&log, |_, item| panic!("{item:?}")).unwrap_err();
    assert!(matches!(error, Error::OffsetOutOfRange { .. }), "{error}");

    let mut places = Vec::new();
    let log = open(dir.path(), log_end);
    let mut scanner = Scanner::new(&log, 0, log_end, true);
    fs::remove_file(dir.path().join(format!("{:020}", 2 * FILE))).unwrap();
    let take = |range: std::ops::Range<u64>, item: Item<'_, '_>| {
        let Item::Record(view, _) = item else { return Ok(Flow::Continue) };
        assert_eq!(range.start, view.physical_offset().cast_unsigned());
        assert_eq!(range.end - range.start, u64::from(view.store_size()));
        places.push(range.start);
        Ok(Flow::Continue)
    };
    assert!(scanner.each(&log, log_end, Resync::Never, take).unwrap().is_none());
    assert_eq!(places.first(), Some(&(3 * FILE)));
}
