//! A part of a log as one of many readers takes it: which messages it gives, what it does at damage and
//! where retention was faster, and how its batches end.

use std::fs;
use std::sync::Arc;

use mqstore::Error;
use mqstore::TagFilter;
use mqstore::error::{FormatError, Result};
use mqstore::files::{Os, Storage};
use mqstore::format::message::MessageView;
use mqstore::log::CommitLog;
use mqstore::log::read::block::Block;
use mqstore::log::read::range_scan::{Lost, RangeScan};
use mqstore::log::read::scanner::Flow;
use mqstore::store::read::scan::ScanFilter;
use mqstore::store::read::scan::slice::{
    AtDamage, Damage, Places, QueuePart, Sink, Slice, SliceFilter, open_log, places_of,
};

use crate::support::{Home, body, key, places, small};

const FILE: u64 = 4096;

#[derive(Debug, Default)]
struct Taker {
    bodies: Vec<Vec<u8>>,
    damage: Vec<Damage>,
}

impl Sink for Taker {
    fn message(
        &mut self,
        view: &MessageView<'_>,
        _: Option<&Arc<Block>>,
    ) -> std::result::Result<Flow, FormatError> {
        self.bodies.push(view.body().to_vec());
        Ok(Flow::Continue)
    }

    fn damage(&mut self, damage: Damage) -> Flow {
        self.damage.push(damage);
        Flow::Continue
    }
}

fn log_of(home: &Home) -> CommitLog {
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let end = home.read().end_offset();
    open_log(&storage, home.path(), &home.config, end).unwrap()
}

/// All that a slice gives.
fn run(log: &CommitLog, mut slice: Slice) -> Result<Taker> {
    let mut taker = Taker::default();
    assert!(!slice.run(log, &mut taker)?);
    assert!(!slice.met_damage(), "damage of a range");
    Ok(taker)
}

fn slice(places: Places, filter: SliceFilter, at_damage: AtDamage, lost: Lost) -> Slice {
    Slice::new(places, filter, at_damage, true, lost)
}

fn bodies(numbers: impl Iterator<Item = usize>) -> Vec<Vec<u8>> {
    numbers.map(body).collect()
}

fn records(of: &[(u64, u64)]) -> Places {
    Places::Records(of.iter().map(|(at, size)| (*at, u32::try_from(*size).unwrap())).collect())
}

#[test]
fn records_are_given_by_their_places() {
    let home = Home::closed(120);
    let (all, log) = (places(&home), log_of(&home));
    let all_of = SliceFilter::new(ScanFilter::ALL);
    let of = |picked: &[(u64, u64)], at_damage, lost| {
        run(&log, slice(records(picked), all_of.clone(), at_damage, lost))
    };
    let found = of(&[all[3], (all[7].0, 0), all[110]], AtDamage::Fail, Lost::Refuse).unwrap();
    assert_eq!(found.bodies, bodies([3, 7, 110].into_iter()));
    // Where a body is wrong, and where zeros or no message lie.
    home.flip(all[7].0 + 90);
    let picked = [all[3], all[7], (all[8].0 + 1, all[8].1), all[9]];
    let log = log_of(&home);
    let of =
        |at_damage| run(&log, slice(records(&picked), all_of.clone(), at_damage, Lost::Refuse));
    let error = of(AtDamage::Fail).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("byte {}", all[7].0 + 8)), "{text}");
    assert!(text.contains("topic Topic, queue 3, queue offset 1"), "{text}");
    assert_eq!(of(AtDamage::Skip).unwrap().bodies, bodies([3, 9].into_iter()));
    let given = of(AtDamage::Give).unwrap();
    assert_eq!(given.bodies, bodies([3, 9].into_iter()));
    let found: Vec<_> = given.damage.iter().map(|one| (one.begin, one.end)).collect();
    assert_eq!(found, [(all[7].0, all[7].0 + all[7].1), (all[8].0 + 1, all[8].0 + 1 + all[8].1)]);
    assert!(given.damage[0].message.is_some() && given.damage[1].message.is_none());
    // Unasked, checksums are not looked at.
    let unasked =
        Slice::new(records(&[all[7]]), all_of.clone(), AtDamage::Fail, false, Lost::Refuse);
    assert_eq!(run(&log, unasked).unwrap().bodies.len(), 1);
}

#[test]
fn what_retention_took_is_an_error_or_passed_over() {
    let home = Home::closed(120);
    let all = places(&home);
    let end = home.read().end_offset();
    let late = all.iter().position(|(at, _)| *at >= FILE).unwrap();
    fs::remove_file(home.log_file(0).0).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let log = open_log(&storage, home.path(), &home.config, end).unwrap();
    for places in [
        records(&[all[3], all[late]]),
        Places::Range(Box::new(RangeScan::new(0, all[late].0 + 1, end, true, Lost::Refuse))),
    ] {
        let filter = SliceFilter::new(ScanFilter::ALL);
        let refused =
            run(&log, slice(places.clone(), filter.clone(), AtDamage::Fail, Lost::Refuse));
        match refused.map(|taker| taker.bodies).unwrap_err() {
            Error::OffsetOutOfRange { min: 4096, .. } => {}
            error => panic!("{error}"),
        }
        let places = match places {
            Places::Range(_) => {
                Places::Range(Box::new(RangeScan::new(0, all[late].0 + 1, end, true, Lost::Accept)))
            }
            records => records,
        };
        let found = run(&log, slice(places, filter, AtDamage::Fail, Lost::Accept)).unwrap();
        assert_eq!(found.bodies, [body(late)]);
    }
}

#[test]
fn parts_of_a_slice_give_each_message_once() {
    let home = Home::closed(120);
    let (all, log) = (places(&home), log_of(&home));
    let end = all[119].0 + all[119].1;
    let range = Places::Range(Box::new(RangeScan::new(0, end, end, true, Lost::Refuse)));
    let whole = slice(range, SliceFilter::new(ScanFilter::ALL), AtDamage::Fail, Lost::Refuse);
    assert_eq!(whole.bytes(), 0..end);
    let cut = all[50].0 + 30;
    let mut found = run(&log, whole.part(0..cut, false)).unwrap().bodies;
    assert_eq!(found, bodies(0..51));
    found.extend(run(&log, whole.part(cut..end, false)).unwrap().bodies);
    assert_eq!(found, bodies(0..120));
    // Single records are not walked over, so there is nothing to be cut.
    let of_records =
        slice(records(&all[..3]), SliceFilter::new(ScanFilter::ALL), AtDamage::Fail, Lost::Refuse);
    assert_eq!(of_records.bytes(), 0..0);
    assert_eq!(run(&log, of_records.part(0..1, false)).unwrap().bodies, bodies(0..3));
}

#[test]
fn filters_ask_for_queues_topics_and_keys() {
    let home = Home::closed(40);
    let (all, log) = (places(&home), log_of(&home));
    let of = |filter: &SliceFilter| {
        let range = slice(records(&all), filter.clone(), AtDamage::Fail, Lost::Refuse);
        run(&log, range).unwrap().bodies
    };
    let mut filter = SliceFilter::new(ScanFilter::ALL);
    filter.queues.insert(b"Topic"[..].into(), [(1, (2, 5))].into_iter().collect());
    let kept = |number: &usize| number % 4 != 1 || (2..5).contains(&(number / 4));
    assert_eq!(of(&filter), bodies((0..40).filter(kept)));
    filter.only_these_queues = true;
    assert_eq!(of(&filter), bodies([9, 13, 17].into_iter()));
    filter.queues.clear();
    assert_eq!(of(&filter), bodies(0..0));
    let mut filter = SliceFilter::new(ScanFilter::ALL);
    filter.topic_test = Some(Arc::new(|topic| topic == b"Other"));
    assert_eq!(of(&filter), bodies(0..0));
    filter.topic_test = Some(Arc::new(|topic| topic == b"Topic"));
    filter.keys =
        Some([key(5), key(7), "none".to_owned()].map(|key| key.into_bytes().into()).into());
    assert_eq!(of(&filter), bodies([5, 7].into_iter()));
}

#[test]
fn queues_name_the_places_of_their_records() {
    let home = Home::closed(40);
    let all = places(&home);
    let storage: Arc<dyn Storage> = Arc::new(Os);
    let part =
        |queue_id, begin, end| QueuePart { topic: b"Topic"[..].into(), queue_id, begin, end };
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
