//! A part of a log as one of many readers takes it: which messages it gives, what it does at damage and
//! where retention was faster.

use std::fs;
use std::sync::Arc;

use mqstore::Error;
use mqstore::TagFilter;
use mqstore::error::Result;
use mqstore::files::{Os, Storage};
use mqstore::log::CommitLog;
use mqstore::log::read::range_scan::RangeScan;
use mqstore::log::read::scanner::{Flow, Item, Lost};
use mqstore::store::read::scan::filter::MoreConditions;
use mqstore::store::read::scan::places::{QueuePart, open_log, places_of};
use mqstore::store::read::scan::{Damage, Offsets, OnDamage, Places, Scan, ScanFilter};

use crate::support::{Home, body, key, places, small};

const FILE: u64 = 4096;

#[derive(Debug, Default)]
struct Taker {
    bodies: Vec<Vec<u8>>,
    damage: Vec<Damage>,
}

fn log_of(home: &Home) -> CommitLog {
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let end = home.read().end_offset();
    open_log(&storage, home.path(), &home.config, end).unwrap()
}

/// All that a scan gives.
fn run(log: &CommitLog, mut scan: Scan) -> Result<Taker> {
    let mut taker = Taker::default();
    let more = scan.visit(log, |_, item| {
        match item {
            Item::Record(view, _) => taker.bodies.push(view.body().to_vec()),
            Item::Damage(damage) => taker.damage.push(*damage),
            Item::Blank => panic!("a blank is no item of a scan"),
        }
        Ok(Flow::Continue)
    })?;
    assert!(!more && !scan.found_damage(), "damage of a range");
    Ok(taker)
}

fn bodies(numbers: impl Iterator<Item = usize>) -> Vec<Vec<u8>> {
    numbers.map(body).collect()
}

fn records(of: &[(u64, u64)], lost: Lost) -> Places {
    let records = of.iter().map(|(at, size)| (*at, u32::try_from(*size).unwrap())).collect();
    Places::Offsets(Offsets::new(records, true, lost))
}

fn range(begin: u64, end: u64, log_end: u64, lost: Lost) -> Places {
    Places::Range(Box::new(RangeScan::new(begin, end, log_end, true, lost)))
}

#[test]
fn records_are_given_by_their_places() {
    let home = Home::closed(120);
    let (all, log) = (places(&home), log_of(&home));
    let of = |log: &CommitLog, picked: &[(u64, u64)], on_damage| {
        run(log, Scan::of(records(picked, Lost::Refuse), ScanFilter::ALL, on_damage))
    };
    let found = of(&log, &[all[3], (all[7].0, 0), all[110]], OnDamage::Fail).unwrap();
    assert_eq!(found.bodies, bodies([3, 7, 110].into_iter()));
    // Where a body is wrong, and where zeros or no message lie.
    home.flip(all[7].0 + 90);
    let picked = [all[3], all[7], (all[8].0 + 1, all[8].1), all[9]];
    let log = log_of(&home);
    let error = of(&log, &picked, OnDamage::Fail).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("byte {}", all[7].0 + 8)), "{text}");
    assert!(text.contains("topic Topic, queue 3, queue offset 1"), "{text}");
    assert_eq!(of(&log, &picked, OnDamage::Skip).unwrap().bodies, bodies([3, 9].into_iter()));
    let given = of(&log, &picked, OnDamage::Report).unwrap();
    assert_eq!(given.bodies, bodies([3, 9].into_iter()));
    let found: Vec<_> = given.damage.iter().map(|one| (one.begin, one.end)).collect();
    assert_eq!(found, [(all[7].0, all[7].0 + all[7].1), (all[8].0 + 1, all[8].0 + 1 + all[8].1)]);
    assert!(given.damage[0].message.is_some() && given.damage[1].message.is_none());
    // Without its size damage reaches to the next record, or to the next one of the list.
    for (unsized_records, until) in [
        (vec![(all[7].0, 0), (all[9].0, 0)], vec![(all[7].0, all[8].0)]),
        (vec![(all[8].0 + 1, 0)], vec![(all[8].0 + 1, all[9].0)]),
        (
            vec![(all[8].0 + 1, 0), (all[8].0 + 9, 0)],
            vec![(all[8].0 + 1, all[8].0 + 9), (all[8].0 + 9, all[9].0)],
        ),
    ] {
        let given = of(&log, &unsized_records, OnDamage::Report).unwrap();
        let found: Vec<_> = given.damage.iter().map(|one| (one.begin, one.end)).collect();
        assert_eq!(found, until);
    }
    // Unasked, checksums are not looked at.
    let unasked = Scan::of(records(&[all[7]], Lost::Refuse), ScanFilter::ALL, OnDamage::Fail);
    assert_eq!(run(&log, unasked.verifying(false)).unwrap().bodies.len(), 1);
}

#[test]
fn a_range_that_retention_took_is_an_error_or_skipped() {
    let home = Home::closed(120);
    let all = places(&home);
    let end = home.read().end_offset();
    let late = all.iter().position(|(at, _)| *at >= FILE).unwrap();
    fs::remove_file(home.log_file(0).0).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let log = open_log(&storage, home.path(), &home.config, end).unwrap();
    let of_records = |lost| records(&[all[3], all[late]], lost);
    let of_range = |lost| range(0, all[late].0 + 1, end, lost);
    let ways: [&dyn Fn(Lost) -> Places; 2] = [&of_records, &of_range];
    for places in ways {
        let of = |lost| run(&log, Scan::of(places(lost), ScanFilter::ALL, OnDamage::Fail));
        match of(Lost::Refuse).map(|taker| taker.bodies).unwrap_err() {
            Error::OffsetOutOfRange { min: 4096, .. } => {}
            error => panic!("{error}"),
        }
        assert_eq!(of(Lost::Accept).unwrap().bodies, [body(late)]);
    }
}

#[test]
fn parts_of_a_share_give_each_message_once() {
    let home = Home::closed(120);
    let (all, log) = (places(&home), log_of(&home));
    let end = all[119].0 + all[119].1;
    let of = |places| Scan::of(places, ScanFilter::ALL, OnDamage::Fail);
    let whole = of(range(0, end, end, Lost::Refuse));
    assert_eq!(whole.bytes(), 0..end);
    let cut = all[50].0 + 30;
    let mut found = run(&log, whole.part(0..cut, false)).unwrap().bodies;
    assert_eq!(found, bodies(0..51));
    found.extend(run(&log, whole.part(cut..end, false)).unwrap().bodies);
    assert_eq!(found, bodies(0..120));
    // Single records are not walked over, so there is nothing to be cut.
    let of_records = of(records(&all[..3], Lost::Refuse));
    assert_eq!(of_records.bytes(), 0..0);
    assert_eq!(run(&log, of_records.part(0..1, false)).unwrap().bodies, bodies(0..3));
}

#[test]
fn filters_ask_for_queues_topics_and_keys() {
    let home = Home::closed(40);
    let (all, log) = (places(&home), log_of(&home));
    let of = |more: &MoreConditions| {
        let filter = ScanFilter { more: Some(Box::new(more.clone())), ..ScanFilter::ALL };
        run(&log, Scan::of(records(&all, Lost::Refuse), filter, OnDamage::Fail)).unwrap().bodies
    };
    let mut more = MoreConditions::default();
    more.queues.insert(b"Topic"[..].into(), [(1, (2, 5))].into_iter().collect());
    let kept = |number: &usize| number % 4 != 1 || (2..5).contains(&(number / 4));
    assert_eq!(of(&more), bodies((0..40).filter(kept)));
    more.only_these_queues = true;
    assert_eq!(of(&more), bodies([9, 13, 17].into_iter()));
    more.queues.clear();
    assert_eq!(of(&more), bodies(0..0));
    let mut more = MoreConditions::default();
    more.topic_test = Some(Arc::new(|topic| topic == b"Other"));
    assert_eq!(of(&more), bodies(0..0));
    more.topic_test = Some(Arc::new(|topic| topic == b"Topic"));
    more.keys = Some([key(5), key(7), "none".to_owned()].map(|key| key.into_bytes().into()).into());
    assert_eq!(of(&more), bodies([5, 7].into_iter()));
}

#[test]
fn queues_name_the_places_of_their_records() {
    let home = Home::closed(40);
    let all = places(&home);
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let part = |queue_id, begin, end| ("Topic".to_owned(), queue_id, begin, end);
    let of = |parts: &[QueuePart], within: std::ops::Range<u64>| {
        places_of(&storage, home.path(), &home.config, parts, &TagFilter::ALL, within).unwrap()
    };
    let at = |number: usize| (all[number].0, u32::try_from(all[number].1).unwrap());
    assert_eq!(of(&[part(1, 2, 4)], 0..u64::MAX), [at(9), at(13)]);
    // In the log's order and each once, within the bytes asked for.
    assert_eq!(
        of(&[part(2, 0, 2), part(1, 1, 2), part(2, 1, 2)], 0..u64::MAX),
        [at(2), at(5), at(6)]
    );
    assert_eq!(of(&[part(2, 0, 9)], all[3].0..all[11].0), [at(6), at(10)]);
    // A queue that is not there has none, and what leads nowhere is no place.
    assert_eq!(of(&[part(9, 0, 9)], 0..u64::MAX), []);
    let home = Home::closed(400);
    let of = |parts: &[QueuePart], within: std::ops::Range<u64>| {
        places_of(&storage, home.path(), &home.config, parts, &TagFilter::ALL, within).unwrap()
    };
    home.put_entry(1, 2, -1, 7, 7);
    home.put_entry(1, 4, 77, i32::MAX, 7);
    home.put_entry(1, 5, 77, -3, 7);
    assert_eq!(of(&[part(1, 1, 7)], 0..u64::MAX), [at(5), at(13), at(25)]);
}

#[test]
fn a_log_is_opened_where_a_store_is() {
    let home = Home::new(small());
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let error = open_log(&storage, home.path(), &home.config, 0).unwrap_err().to_string();
    assert!(error.ends_with("no folder `commitlog` in it"), "{error}");
    let home = Home::closed(40);
    let mut config = home.config.clone();
    config.mapped_file_size_commit_log = Some(8192);
    let error = open_log(&storage, home.path(), &config, 0).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
}
