//! A call to the system fails once: an early one in one life of a store, a later one in the next, and
//! so on until a life needs no more calls. What was acknowledged is there afterwards, even if the
//! power goes right then. `MQSTORE_FAILING_CALLS_STEP=1` lets every call fail, by default each fourth.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mqstore::config::FlushDiskType;
use mqstore::format::message::{Frame, read_frame};
use mqstore::store::groups::{Begin, ConsumerGroup};
use mqstore::store::{MessageStore, NewMessage};
use mqstore::{Error, TagFilter};

use crate::power_cuts::{FIRST_SEED, Place, from_environment, number_of, numbered};
use crate::support::disk::{Disk, Image};
use crate::support::power_cut::Cut;
use crate::support::{START_MS, append, by_key, scan};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Outcome of the messages that were put.
#[derive(Default)]
struct Told {
    /// Handed to the store, and told to be in it.
    acknowledged: BTreeSet<usize>,
    /// Messages that a power cut must keep.
    safe: BTreeSet<usize>,
    next: usize,
}

impl Told {
    /// Appends one message. Gives back the store unless it takes no more.
    fn append(
        &mut self,
        store: MessageStore,
        place: &Place,
        flush: FlushDiskType,
    ) -> Option<MessageStore> {
        let number = self.next;
        self.next += 1;
        place.clock.set(START_MS + i64::try_from(number / 3).unwrap());
        match append(&store, number, &numbered(number)) {
            Ok(_) => {
                self.acknowledged.insert(number);
                if flush == FlushDiskType::Sync {
                    self.safe.insert(number);
                }
            }
            Err(Error::Poisoned { .. }) => return None,
            // A call that failed once may go well the next time.
            Err(Error::Io { .. }) => {}
            Err(error) => panic!("message {number}: {error}"),
        }
        Some(store)
    }

    fn safe_if(&mut self, durable: bool) {
        if durable {
            self.safe = self.acknowledged.clone();
        }
    }
}

/// A store, opened again until that goes well: a call fails once.
fn opened(place: &Place) -> MessageStore {
    (0..3).find_map(|_| place.open().ok()).expect("the store does not open although nothing fails")
}

/// A life in which every kind of call comes up: files roll, the store is flushed, closed, opened,
/// left behind and recovered.
fn live(place: &Place, flush: FlushDiskType, told: &mut Told) {
    let mut store = Some(opened(place));
    for step in 0..45 {
        let mut now = store.take().unwrap_or_else(|| opened(place));
        match step {
            15 | 33 => told.safe_if(now.flush().is_ok()),
            20 => {
                told.safe_if(now.close().is_ok());
                now = opened(place);
            }
            // An unclosed store is recovered.
            38 => {
                place.disk.kill();
                drop(now);
                now = opened(place);
                told.safe_if(true);
            }
            _ => {}
        }
        store = told.append(now, place, flush);
    }
    if let Some(store) = store {
        told.safe_if(store.close().is_ok());
    }
}

/// Holds what a disk holds against what was told.
fn check(image: &Image, flush: FlushDiskType, wanted: &BTreeSet<usize>) {
    let place = Place::new(Disk::of(image), flush, START_MS + 3_600_000);
    let store = place.open().unwrap();
    let (bodies, damage) = scan(&store);
    assert_eq!(damage, 0);
    let found: Vec<_> = bodies.iter().map(|body| number_of(body)).collect();
    assert!(found.is_sorted_by(|a, b| a < b), "out of order: {found:?}");
    let lost: Vec<_> = wanted.iter().filter(|number| !found.contains(number)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    for number in found.iter().step_by(5) {
        assert_eq!(by_key(&store, *number).len(), 1, "key of message {number}");
    }
    append(&store, 1000, &numbered(1000)).unwrap();
    store.close().unwrap();
    let (wrong, messages) = place.verify();
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(messages, found.len() as u64 + 1);
}

/// Lets calls of a life fail in turn, a step apart; how many calls a life has.
fn fail_each(flush: FlushDiskType, errno: i32) -> u64 {
    let step = from_environment("MQSTORE_FAILING_CALLS_STEP", 4);
    let mut number = from_environment("MQSTORE_SEED", FIRST_SEED) % step + 1;
    loop {
        let disk = Disk::new();
        disk.fail(number, errno);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let place = Place::new(Arc::clone(&disk), flush, START_MS);
            let mut told = Told::default();
            live(&place, flush, &mut told);
            check(&disk.image(), flush, &told.acknowledged);
            disk.cut("at the end");
            let cuts: Vec<Cut> = disk.take_cuts();
            check(&cuts[0].least(), flush, &told.safe);
        }));
        let failed = disk.failed();
        if let Err(why) = outcome {
            let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
            panic!("errno {errno} from call {number}, {}: {why}", failed.unwrap_or_default());
        }
        if failed.is_none() {
            println!(
                "{flush:?}, errno {errno}: {number} calls, one in {step} failed, nothing lost"
            );
            return number;
        }
        number += step;
    }
}

#[test]
fn fl04_each_call_fails_once_under_sync_flush() {
    assert!(fail_each(FlushDiskType::Sync, EIO) > 300);
}

#[test]
fn fl04_each_call_fails_once_under_async_flush() {
    assert!(fail_each(FlushDiskType::Async, EIO) > 300);
}

#[test]
fn fl06_each_call_finds_the_disk_full_once() {
    assert!(fail_each(FlushDiskType::Sync, ENOSPC) > 300);
    assert!(fail_each(FlushDiskType::Async, ENOSPC) > 300);
}

const COUNT: i64 = 12;
const TOPIC: &str = "Topic";

/// A group of a store, and its messages in the topic's queue that are not done.
struct Consumer {
    group: ConsumerGroup,
    waiting: Vec<(i64, i64, i64)>,
}

impl Consumer {
    fn begin(place: &Place) -> mqstore::Result<Self> {
        let store = Arc::new(place.open()?);
        let group = ConsumerGroup::open(store, "g", Begin::Earliest)?;
        let start = group.take(TOPIC, 0)?.unwrap();
        let (found, ..) = group.read(TOPIC, 0, start, 99, &TagFilter::ALL)?;
        let spans = found.iter().map(|found| match read_frame(&found.record) {
            Ok(Frame::Message(view)) => (found.end - 1, found.end, view.store_timestamp_ms()),
            other => panic!("{other:?}"),
        });
        Ok(Self { waiting: spans.collect(), group })
    }

    fn ack(&mut self, numbers: &[i64]) -> mqstore::Result<()> {
        let is_it = |span: &&(i64, i64, i64)| numbers.contains(&span.0);
        let acks: Vec<_> = self.waiting.iter().filter(is_it).copied().collect();
        self.group.ack(TOPIC, 0, &acks)?;
        self.waiting.retain(|span| !acks.contains(span));
        Ok(())
    }

    fn commit(&self) -> mqstore::Result<()> {
        let in_flight = |number: &i64| self.waiting.iter().any(|span| span.0 == *number);
        let first = (0..COUNT).find(in_flight).unwrap_or(COUNT);
        let done = (first..COUNT).filter(|number| !in_flight(number));
        let ranges = done.map(|number| (number, number + 1)).collect();
        self.group.advance(TOPIC, 0, first, ranges, COUNT)?;
        self.group.commit()
    }
}

/// Each call of a process that takes over the acknowledgements of a killed one fails once; it goes
/// on, and is killed. The next gets what was not acknowledged, and nothing else.
#[test]
fn no_failing_call_loses_an_acknowledgement_of_a_group() {
    let place = Place::new(Disk::new(), FlushDiskType::Sync, START_MS);
    let store = place.open().unwrap();
    for topic in [TOPIC, "other"] {
        for _ in 0..COUNT {
            store.append(&NewMessage::new(topic.as_bytes(), b"body")).unwrap();
        }
    }
    store.close().unwrap();
    let mut killed = Consumer::begin(&place).unwrap();
    killed.ack(&[2, 3]).unwrap();
    place.disk.kill();
    let image = place.disk.image();
    let mut number = 1;
    loop {
        let disk = Disk::of(&image);
        disk.fail(number, EIO);
        let place = Place::new(Arc::clone(&disk), FlushDiskType::Sync, START_MS);
        let mut left: BTreeSet<i64> = (0..COUNT).filter(|at| ![2, 3].contains(at)).collect();
        if let Ok(mut consumer) = Consumer::begin(&place) {
            for numbers in [&[7][..], &[], &[5], &[0, 1], &[], &[9], &[4, 11], &[]] {
                // A call that failed goes well the second time, or is left.
                if numbers.is_empty() {
                    let _ = consumer.commit();
                    let _ = consumer.group.read("other", 0, 0, 1, &TagFilter::ALL);
                } else if consumer.ack(numbers).is_ok() {
                    left.retain(|at| !numbers.contains(at));
                }
            }
        }
        disk.kill();
        let failed = disk.failed();
        let found = Place::new(Disk::of(&disk.image()), FlushDiskType::Sync, START_MS);
        let next = Consumer::begin(&found).unwrap();
        let again: BTreeSet<i64> = next.waiting.iter().map(|span| span.0).collect();
        assert_eq!(again, left, "call {number}: {failed:?}");
        if failed.is_none() {
            break;
        }
        number += 1;
    }
    println!("{number} calls of a group, each failed once");
    assert!(number > 100, "{number} calls");
}
