use super::*;
use crate::config::StoreConfig;
use crate::error::CorruptionKind;
use crate::format::message::properties::{self, names};
use crate::format::message::tag_filter::TagFilter;
use crate::store::{MessageStore, NewMessage, OpenMode};
use std::os::unix::fs::FileExt;
use std::path::Path;

const FILE: u64 = 4096;

fn config() -> StoreConfig {
    StoreConfig { mapped_file_size_commit_log: Some(FILE), ..StoreConfig::default() }
}

/// Forty messages over several files: their starts, and the last one's end.
fn written(root: &Path) -> (Vec<u64>, u64) {
    let store = MessageStore::open(root, OpenMode::Create, config()).unwrap();
    let mut starts = Vec::new();
    for number in 0..40 {
        let mut block = Vec::new();
        properties::push(&mut block, names::TAGS, format!("tag{}", number % 3).as_bytes());
        let body = vec![b'x'; 100 + number];
        let topic = if number % 2 == 0 { &b"even"[..] } else { b"odd" };
        let mut message = NewMessage::new(topic, &body);
        message.properties = &block;
        message.store_timestamp_ms = Some(1000 + number as i64);
        let result = store.append(&message).unwrap();
        starts.push(u64::try_from(result.physical_offset).unwrap());
    }
    let end = store.end_offset();
    store.close().unwrap();
    (starts, end)
}

fn found(root: &Path, scan: &mut Scan) -> Result<Vec<u64>> {
    let store = MessageStore::open(root, OpenMode::Read, config()).unwrap();
    let mut found = Vec::new();
    loop {
        let mut count = 0;
        let more = scan.run(store.log(), |view, _| {
            if count == 3 {
                return Ok(Flow::Retry);
            }
            found.push(u64::try_from(view.physical_offset()).unwrap());
            count += 1;
            Ok(if count == 3 && found.len() % 2 == 0 { Flow::Stop } else { Flow::Continue })
        })?;
        if !more {
            return Ok(found);
        }
    }
}

fn scan(start: u64, stop: u64, end: u64) -> Scan {
    Scan::new(start, stop, end, ScanFilter::ALL, OnDamage::Fail)
}

fn write_at(root: &Path, offset: u64, bytes: &[u8]) {
    let path = root.join("commitlog").join(format!("{:020}", offset / FILE * FILE));
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset % FILE).unwrap();
}

#[test]
fn ranges_that_meet_share_every_message_between_them() {
    let dir = tempfile::tempdir().unwrap();
    let (starts, end) = written(dir.path());
    for split in (0..=end + 5).step_by(61).chain(starts.clone()) {
        let mut all = found(dir.path(), &mut scan(0, split, end)).unwrap();
        assert!(all.iter().all(|&at| at < split), "{split}");
        let mut second = scan(split, u64::MAX, end);
        all.extend(found(dir.path(), &mut second).unwrap());
        assert_eq!(all, starts, "split at {split}");
        assert_eq!(second.skipped_ranges(), 0);
        assert_eq!(second.physical_offset(), end.max(split));
    }
}

#[test]
fn filters_are_joined_by_and() {
    let dir = tempfile::tempdir().unwrap();
    let (starts, end) = written(dir.path());
    let filter = ScanFilter {
        topics: Some([Box::from(&b"even"[..]), Box::from(&b"none"[..])].into_iter().collect()),
        tags: TagFilter::parse("tag0 || tag2"),
        begin_ms: 1002,
        end_ms: 1030,
        ..ScanFilter::ALL
    };
    let mut scan = Scan::new(0, end, end, filter, OnDamage::Fail);
    let wanted: Vec<_> = (2..=30)
        .filter(|number| number % 2 == 0 && number % 3 != 1)
        .map(|number| starts[number])
        .collect();
    assert_eq!(found(dir.path(), &mut scan).unwrap(), wanted);
}

#[test]
fn damage_is_raised_where_it_lies_or_passed_over_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (starts, end) = written(dir.path());
    write_at(dir.path(), starts[3] + 90, b"?");
    write_at(dir.path(), starts[20] + 4, &[0xFF; 4]);
    let length = usize::try_from(starts[31] - starts[30]).unwrap();
    write_at(dir.path(), starts[30], &vec![0; length]);

    let mut strict = scan(0, end, end);
    let error = found(dir.path(), &mut strict).unwrap_err();
    let Error::Corrupt(corruption) = error else { panic!("{error}") };
    assert_eq!((corruption.kind, corruption.offset), (CorruptionKind::BodyCrc, starts[3] + 8));
    assert_eq!(strict.physical_offset(), starts[3]);
    assert!(found(dir.path(), &mut strict).is_err());

    let mut lenient = Scan::new(0, end, end, ScanFilter::ALL, OnDamage::Skip);
    let mut wanted = starts.clone();
    wanted.retain(|at| ![starts[3], starts[20], starts[30]].contains(at));
    assert_eq!(found(dir.path(), &mut lenient).unwrap(), wanted);
    let lost = |number: usize| starts[number + 1] - starts[number];
    assert_eq!(lenient.skipped_ranges(), 3);
    assert_eq!(lenient.skipped_bytes(), lost(3) + lost(20) + lost(30));

    let error = found(dir.path(), &mut scan(starts[29], end, end)).unwrap_err();
    let Error::Corrupt(corruption) = error else { panic!("{error}") };
    assert_eq!(corruption.offset, starts[30] % FILE);
    let told = format!("zeros (physical offsets {} to {})", starts[30], starts[31]);
    assert_eq!(corruption.found, told);
}

#[test]
fn a_file_that_does_not_begin_with_a_record_is_damage_for_whoever_begins_there() {
    let dir = tempfile::tempdir().unwrap();
    let (_, end) = written(dir.path());
    write_at(dir.path(), FILE, &[0; 8]);
    assert!(found(dir.path(), &mut scan(FILE, end, end)).is_err());
    assert!(found(dir.path(), &mut scan(FILE + 1, end, end)).is_ok());
}

#[test]
fn a_refused_body_counts_as_damage_of_its_message() {
    let dir = tempfile::tempdir().unwrap();
    let (starts, end) = written(dir.path());
    let store = MessageStore::open(dir.path(), OpenMode::Read, config()).unwrap();
    let refuse = |view: &MessageView<'_>, _: Option<&Arc<Block>>| {
        if view.body().len() == 105 {
            return Err(FormatError::new(CorruptionKind::Body, 7, "a body", "none"));
        }
        Ok(Flow::Continue)
    };
    let mut lenient = Scan::new(0, end, end, ScanFilter::ALL, OnDamage::Skip);
    assert!(!lenient.run(store.log(), refuse).unwrap());
    assert_eq!(lenient.skipped_bytes(), starts[6] - starts[5]);
    let error = scan(0, end, end).run(store.log(), refuse).unwrap_err();
    let Error::Corrupt(corruption) = error else { panic!("{error}") };
    assert_eq!((corruption.kind, corruption.offset), (CorruptionKind::Body, starts[5] + 7));
}

type Comes = (Vec<u64>, Option<String>);

fn comes(log: &CommitLog, mut run: impl FnMut(&CommitLog, &mut Vec<u64>) -> Result<bool>) -> Comes {
    let mut found = Vec::new();
    loop {
        match run(log, &mut found) {
            Ok(true) => {}
            Ok(false) => return (found, None),
            Err(error) => return (found, Some(error.to_string())),
        }
    }
}

fn take<'f>(
    found: &'f mut Vec<u64>,
) -> impl FnMut(&MessageView<'_>, Option<&Arc<Block>>) -> Result<Flow, FormatError> + 'f {
    |view, _| {
        if view.body().len() == 117 {
            return Err(FormatError::new(CorruptionKind::Body, 7, "a body", "none"));
        }
        found.push(u64::try_from(view.physical_offset()).unwrap());
        Ok(Flow::Stop)
    }
}

#[test]
fn parts_of_a_scan_give_what_it_gives_wherever_they_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (starts, end) = written(dir.path());
    // A body, a magic code, zeroed records, and a file that does not begin with a record.
    write_at(dir.path(), starts[3] + 90, b"?");
    write_at(dir.path(), starts[20] + 4, &[0xFF; 4]);
    let length = usize::try_from(starts[32] - starts[30]).unwrap();
    write_at(dir.path(), starts[30], &vec![0; length]);
    write_at(dir.path(), FILE, &[0; 8]);
    let store = MessageStore::open(dir.path(), OpenMode::Read, config()).unwrap();
    let log = store.log();
    let ranges = [
        (0, end),
        (starts[3], end),
        (starts[3] + 1, starts[20]),
        (starts[2] + 5, starts[20] + 1),
        (starts[31] + 3, starts[38]),
        (FILE, FILE + 1),
        (FILE + 1, end + 9),
    ];
    for on_damage in [OnDamage::Fail, OnDamage::Skip] {
        for (start, stop) in ranges {
            let mut whole = Scan::new(start, stop, end, ScanFilter::ALL, on_damage);
            let mut parts = whole.clone();
            parts.find_start(log).unwrap();
            let wanted = comes(log, |log, found| whole.run(log, take(found)));
            for step in [1, 37, 150, 400, FILE, 3 * FILE] {
                let mut found: Comes = (Vec::new(), None);
                let mut begin = parts.bytes().start;
                while begin < parts.bytes().end && found.1.is_none() {
                    let next = (begin + step).min(parts.bytes().end);
                    let mut part = parts.part(begin..next, false);
                    let (more, error) = comes(log, |log, found| part.run(log, take(found)));
                    found.0.extend(more);
                    found.1 = error;
                    begin = next;
                }
                assert_eq!(found, wanted, "{start} to {stop} in steps of {step}, {on_damage:?}");
            }
        }
    }
}
