//! The same damaged bytes, asked of every reader of a log: which messages are there, and where does
//! the log end?

use std::cell::Cell;
use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;

use mqstore::care::rebuild::{RebuildOptions, Target, What, rebuild};
use mqstore::care::{SalvageReport, VerifyOptions, salvage, verify};
use mqstore::files::Os;
use mqstore::format::width::clamp_u64;
use mqstore::log::read::range_scan::RangeScan;
use mqstore::log::read::scanner::{Flow, Item, Lost};
use mqstore::store::MessageStore;
use mqstore::store::progress::Progress;
use mqstore::store::read::scan::{OnDamage, Scan, ScanFilter};

use crate::support::{Home, START_MS, by_key, names_in, patch, places, set_len, small};

const MESSAGES: usize = 60;

fn carve(home: &Home, progress: &mut Progress<'_>) -> SalvageReport {
    let (from, to) = (Arc::new(Os), Arc::new(Os));
    salvage(from, home.path(), None, home.config.clone(), to, progress).unwrap()
}

/// Offsets of the messages that a scan gives, damage skipped; after each of them `beside` runs.
fn scanned(store: &MessageStore, beside: &mut dyn FnMut()) -> Vec<u64> {
    let (begin, end) = (store.log().min_offset(), store.end_offset());
    let mut found = Vec::new();
    let mut scan = Scan::new(begin, end, end, ScanFilter::ALL, OnDamage::Skip);
    while scan
        .run(store.log(), |view, _| {
            found.push(clamp_u64(view.physical_offset()));
            beside();
            Ok(Flow::Continue)
        })
        .unwrap()
    {}
    found
}

/// The same by parts of 500 bytes.
fn by_parts(store: &MessageStore, beside: &mut dyn FnMut()) -> Vec<u64> {
    let (begin, end) = (store.log().min_offset(), store.end_offset());
    let mut parts = Scan::new(begin, end, end, ScanFilter::ALL, OnDamage::Skip);
    parts.find_start(store.log()).unwrap();
    let mut found = Vec::new();
    let mut at = parts.bytes().start;
    while at < parts.bytes().end {
        let to = (at + 500).min(parts.bytes().end);
        let mut part = parts.part(at..to, false);
        while part
            .run(store.log(), |view, _| {
                found.push(clamp_u64(view.physical_offset()));
                beside();
                Ok(Flow::Continue)
            })
            .unwrap()
        {}
        at = to;
    }
    found
}

/// The same by ranges of 700 bytes, as Spark's tasks read them.
fn by_ranges(store: &MessageStore, beside: &mut dyn FnMut()) -> Vec<u64> {
    let (begin, end) = (store.log().min_offset(), store.end_offset());
    let mut found = Vec::new();
    let mut at = begin;
    while at < end {
        let mut range = RangeScan::new(at, at + 700, end, true, Lost::Accept);
        while range
            .run(store.log(), |_, item| {
                if let Item::Record(view, _) = item {
                    found.push(clamp_u64(view.physical_offset()));
                    beside();
                }
                Ok(Flow::Continue)
            })
            .unwrap()
        {}
        at += 700;
    }
    found
}

/// The readers of an open store, by name.
type Read = fn(&MessageStore, &mut dyn FnMut()) -> Vec<u64>;

const READERS: [(&str, Read); 3] = [("scan", scanned), ("parts", by_parts), ("ranges", by_ranges)];

/// Damages a store, given the place and length of each message.
type Damage = fn(&Home, &[(u64, u64)]);

#[derive(Debug)]
struct Answers {
    end: u64,
    scan: usize,
    parts: usize,
    ranges: usize,
    verify: (u64, u64),
    rebuild: (u64, u64),
    recover: Result<(usize, u64), String>,
    salvage: u64,
    warnings: Vec<String>,
}

fn ask(home: &Home) -> Answers {
    let go_on = &mut |_, _| ControlFlow::Continue(());
    let store = home.read();
    let [scan, parts, ranges] = READERS.map(|(_, read)| read(&store, &mut || ()));
    let (end, warnings) = (store.end_offset(), store.warnings());
    drop(store);
    assert_eq!(scan, parts);
    let begin = *scan.first().unwrap_or(&0) / 4096 * 4096;
    let report =
        verify(home.path(), home.config.clone(), &VerifyOptions::default(), go_on).unwrap();
    let options = RebuildOptions {
        what: What { queues: true, index: true },
        topics: None,
        target: Target::Nothing,
        threads: Some(2),
        aside: None,
    };
    let copy = home.copy();
    let rebuilt = rebuild(home.path(), home.config.clone(), &options, go_on);
    let rebuilt = rebuilt.map_or((0, 0), |report| (report.messages, report.log_end));
    let salvaged = carve(home, go_on);
    let recovered = copy.open(mqstore::OpenMode::ReadWrite);
    let recovered =
        recovered.map_err(|error| error.to_string().chars().take(60).collect()).map(|store| {
            let found = scanned(&store, &mut || ()).len();
            (found, store.end_offset())
        });
    Answers {
        end,
        scan: scan.len(),
        parts: parts.len(),
        ranges: ranges.len(),
        verify: (report.counts.messages, begin + report.counts.log_bytes),
        rebuild: rebuilt,
        recover: recovered,
        salvage: salvaged.messages,
        warnings,
    }
}

#[test]
fn every_reader_finds_the_same_messages_and_the_same_end() {
    let states: Vec<(&str, Damage)> = vec![
        ("whole", |_, _| {}),
        ("body", |home, at| home.flip(at[20].0 + 90)),
        ("magic", |home, at| home.flip(at[20].0 + 4)),
        ("size", |home, at| home.flip(at[20].0 + 2)),
        ("own offset", |home, at| home.flip(at[20].0 + 33)),
        ("magic and size", |home, at| home.patch(at[20].0, &[0x55; 8])),
        ("zeros at head", |home, at| home.patch(at[20].0, &[0; 60])),
        ("zeros whole", |home, at| {
            home.patch(at[20].0, &vec![0; usize::try_from(at[20].1).unwrap()])
        }),
        ("two records", |home, at| home.patch(at[20].0 + 50, &[7; 200])),
        ("last body", |home, at| home.flip(at[MESSAGES - 1].0 + 90)),
        ("last magic", |home, at| home.flip(at[MESSAGES - 1].0 + 4)),
        ("last size", |home, at| home.flip(at[MESSAGES - 1].0 + 2)),
        ("last but one magic", |home, at| home.flip(at[MESSAGES - 2].0 + 4)),
        ("damage before a message of an earlier clock", |home, at| {
            home.flip(at[MESSAGES - 2].0 + 4);
            // The time that it was stored.
            home.patch(at[MESSAGES - 1].0 + 56, &(START_MS - 90_000).to_be_bytes());
        }),
        ("damage while the clock was behind", |home, at| {
            home.flip(at[20].0 + 4);
            for (place, _) in &at[21..30] {
                home.patch(place + 56, &(START_MS - 90_000).to_be_bytes());
            }
        }),
        ("damage while the clock was behind, no queues", |home, at| {
            home.flip(at[20].0 + 4);
            for (place, _) in &at[21..30] {
                home.patch(place + 56, &(START_MS - 90_000).to_be_bytes());
            }
            fs::remove_dir_all(home.path().join("consumequeue")).unwrap();
            fs::remove_dir_all(home.path().join("index")).unwrap();
        }),
        ("damage behind a message of the future", |home, at| {
            home.patch(at[10].0 + 56, &i64::MAX.to_be_bytes());
            home.flip(at[20].0 + 4);
            fs::remove_dir_all(home.path().join("consumequeue")).unwrap();
            fs::remove_dir_all(home.path().join("index")).unwrap();
        }),
        ("first of file", |home, at| {
            let (first, _) = at.iter().find(|(at, _)| *at == 4096).unwrap();
            home.flip(*first + 4);
        }),
        ("blank", |home, at| {
            let (last, size) = at.iter().rev().find(|(at, _)| *at < 4096).unwrap();
            home.flip(last + size + 5);
        }),
        ("blank's size", |home, at| {
            let (last, size) = at.iter().rev().find(|(at, _)| *at < 4096).unwrap();
            home.flip(last + size + 3);
        }),
        ("remains behind the end", |home, at| {
            let (last, size) = at[MESSAGES - 1];
            home.patch(last + size, &[0x33; 70]);
        }),
        ("record elsewhere", |home, at| {
            let (file, position) = home.log_file(at[3].0);
            let bytes = fs::read(file).unwrap();
            let from = usize::try_from(position).unwrap();
            let record = bytes[from..from + usize::try_from(at[3].1).unwrap()].to_vec();
            home.patch(at[20].0, &record);
        }),
        ("middle file gone", |home, _| {
            fs::remove_file(&names_in(&home.path().join("commitlog"))[1]).unwrap()
        }),
        ("first file gone", |home, _| {
            fs::remove_file(&names_in(&home.path().join("commitlog"))[0]).unwrap()
        }),
        ("middle file short", |home, _| {
            set_len(&names_in(&home.path().join("commitlog"))[1], 1000)
        }),
        ("middle file empty", |home, _| set_len(&names_in(&home.path().join("commitlog"))[1], 0)),
        ("middle file zeros", |home, _| {
            patch(&names_in(&home.path().join("commitlog"))[1], 0, &[0; 4096])
        }),
        ("last file zeros", |home, _| {
            patch(names_in(&home.path().join("commitlog")).last().unwrap(), 0, &[0; 4096]);
        }),
        ("last file renamed", |home, _| {
            let files = names_in(&home.path().join("commitlog"));
            let last = files.last().unwrap();
            fs::rename(last, last.with_file_name(format!("{:020}", 5 * 4096))).unwrap();
        }),
        ("another store's file", |home, _| {
            let other = Home::new(small());
            let store = other.create();
            other.fill(&store, 100..160);
            store.close().unwrap();
            let [from, to] =
                [&other, home].map(|it| names_in(&it.path().join("commitlog"))[1].clone());
            fs::copy(from, to).unwrap();
        }),
        ("files swapped", |home, _| {
            let files = names_in(&home.path().join("commitlog"));
            let aside = home.path().join("aside");
            fs::rename(&files[1], &aside).unwrap();
            fs::rename(&files[2], &files[1]).unwrap();
            fs::rename(aside, &files[2]).unwrap();
        }),
    ];
    for crashed in [false, true] {
        for (name, damage) in &states {
            let home = Home::closed(MESSAGES);
            let at = places(&home);
            damage(&home, &at);
            if crashed {
                fs::write(home.path().join("abort"), b"").unwrap();
            }
            let found = ask(&home);
            let shown = format!("{name}, crashed: {crashed}: {found:?}");
            let Answers { end, scan, parts, ranges, verify, rebuild, recover, salvage, warnings } =
                found;
            assert_eq!((parts, ranges), (scan, scan), "{shown}");
            if let Ok((messages, to)) = recover {
                assert_eq!((messages, to), (scan, end), "{shown}");
            }
            let agreed = (scan as u64, end);
            let with_damaged = (MESSAGES as u64, 8464);
            match *name {
                // The frame is whole: the message keeps its number in the queue, and counts.
                "body" => assert_eq!((verify, rebuild), (with_damaged, with_damaged), "{shown}"),
                "last body" => {
                    assert_eq!(!warnings.is_empty(), !crashed, "{shown}");
                    assert_eq!((verify, rebuild), (agreed, agreed), "{shown}");
                }
                // Refused by the writers, and by `rebuild`.
                "files swapped" | "last file renamed" => {
                    assert!(!warnings.is_empty(), "{shown}");
                    assert_eq!((verify, rebuild), (agreed, (0, 0)), "{shown}");
                }
                "last file zeros" => {
                    assert!(recover.is_err(), "{shown}");
                    assert_eq!((verify, rebuild), (agreed, (0, 0)), "{shown}");
                }
                _ => assert_eq!((verify, rebuild), (agreed, agreed), "{shown}"),
            }
            // The carver also takes a record with another offset, and one in a file of another name.
            let carved = match *name {
                "own offset" | "files swapped" | "last file renamed" => MESSAGES,
                _ => scan,
            };
            assert_eq!(salvage, carved as u64, "{shown}");
        }
    }
}

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn readers_beside_a_writer_find_what_was_there_when_they_began() {
    let home = Home::new(small());
    let store = home.create();
    home.fill(&store, 0..30);
    let count = Cell::new(30);
    let append = || {
        let number = count.replace(count.get() + 1);
        home.fill(&store, number..number + 1);
    };
    let reader = home.read();
    for round in 0..12 {
        reader.refresh().unwrap();
        assert_eq!(reader.end_offset(), store.end_offset(), "round {round}");
        let there = scanned(&reader, &mut || ());
        assert_eq!(there.len(), count.get(), "round {round}");
        for (name, read) in READERS {
            let mut visited = 0;
            let found = read(&reader, &mut || {
                visited += 1;
                if visited % 9 == 1 {
                    append();
                }
            });
            assert_eq!(found, there, "{name}, round {round}");
        }
        for number in [0, there.len() - 1] {
            assert_eq!(by_key(&reader, number).len(), 1, "message {number}, round {round}");
        }
        let before = count.get() as u64;
        let options = VerifyOptions { part_bytes: 700, ..VerifyOptions::default() };
        let mut during = |_, _| {
            append();
            ControlFlow::Continue(())
        };
        let report = verify(home.path(), home.config.clone(), &options, &mut during).unwrap();
        assert!(report.ok, "round {round}: {:?}", report.findings);
        let after = count.get() as u64;
        assert!((before..=after).contains(&report.counts.messages), "round {round}: {report:?}");
        let before = count.get() as u64;
        let mut during = |_, _| {
            append();
            ControlFlow::Continue(())
        };
        let saved = carve(&home, &mut during);
        let after = count.get() as u64;
        assert!((before..=after).contains(&saved.messages), "round {round}: {saved:?}");
    }
    let last = home.read();
    assert_eq!(scanned(&last, &mut || ()).len(), count.get());
}

/// Log files deleted as a broker's retention does, or lost at the end, while a reader is open.
#[test]
fn readers_agree_about_a_log_that_loses_files_meanwhile() {
    for (lost, is_first) in [(1, true), (2, true), (1, false), (2, false)] {
        for (name, read) in READERS {
            let home = Home::closed(MESSAGES);
            let all = places(&home);
            let files = names_in(&home.path().join("commitlog"));
            let lost_files = match is_first {
                true => &files[..lost],
                false => &files[files.len() - lost..],
            };
            let bytes = match is_first {
                true => 0..lost as u64 * 4096,
                false => (files.len() - lost) as u64 * 4096..u64::MAX,
            };
            let left: Vec<u64> =
                all.iter().map(|(at, _)| *at).filter(|at| !bytes.contains(at)).collect();
            let shown = format!("{name}, {lost} lost, first: {is_first}");
            let reader = home.read();
            let mut visited = 0;
            let found = read(&reader, &mut || {
                if visited == 0 {
                    lost_files.iter().for_each(|file| fs::remove_file(file).unwrap());
                }
                visited += 1;
            });
            // Each message that is there, and of the others at most those read already.
            assert!(left.iter().all(|at| found.contains(at)), "{shown}: {found:?}");
            assert!(found.is_sorted_by(|one, other| one < other), "{shown}: {found:?}");
            for state in ["open", "refreshed", "opened again"] {
                let opened = match state {
                    "open" => None,
                    "refreshed" => reader.refresh().map(|()| None).unwrap(),
                    _ => Some(home.read()),
                };
                let reader = opened.as_ref().unwrap_or(&reader);
                for (other, read) in READERS {
                    let found = read(reader, &mut || ());
                    let found: Vec<u64> =
                        found.into_iter().filter(|at| !bytes.contains(at)).collect();
                    assert_eq!(found, left, "{shown}: {other} of a store {state}");
                }
            }
            let reader = home.read();
            let options = VerifyOptions::default();
            let report = verify(home.path(), home.config.clone(), &options, &mut go_on).unwrap();
            assert_eq!(report.counts.messages, left.len() as u64, "{shown}");
            let saved = carve(&home, &mut go_on);
            assert_eq!(saved.messages, left.len() as u64, "{shown}");
            let end = reader.end_offset();
            drop(reader);
            if let Ok(store) = home.open(mqstore::OpenMode::ReadWrite) {
                let found = scanned(&store, &mut || ());
                assert_eq!((found, store.end_offset()), (left, end), "{shown}");
            }
        }
    }
}
