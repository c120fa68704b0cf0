//! Power cuts on a simulated disk: at every call that changes something the power may go, and what a
//! disk may hold then is recovered and checked.
//!
//! `MQSTORE_CRASH_STATES` says how many different disks each test looks at, `MQSTORE_SEED` where it
//! begins; a failure names the seed that shows it at once.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::care::{Severity, VerifyOptions, verify::verify_on};
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::store::folder::paths::StorePaths;
use mqstore::store::folder::seal::Seal;
use mqstore::store::{MessageStore, NewMessage, OpenMode, RecoveryMode};
use mqstore::time::FixedClock;

use crate::support::disk::{Disk, Image};
use crate::support::power_cut::{Cut, Dice, fingerprint};
use crate::support::{START_MS, append, by_key, key, read_queue, scan, small};

const ROOT: &str = "/disk/store";
pub(crate) const FIRST_SEED: u64 = 20_261_121;

/// A number from the environment.
pub(crate) fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect(name))
}

pub(crate) fn config(flush: FlushDiskType) -> StoreConfig {
    let never = 3_600_000;
    StoreConfig {
        mapped_file_size_commit_log: Some(16 << 10),
        flush_disk_type: flush,
        sync_flush_timeout: never,
        // A seed's result must not depend on the time of day: nothing is flushed unasked.
        flush_interval_commit_log: never,
        flush_commit_log_thorough_interval: never,
        flush_interval_consume_queue: never,
        flush_consume_queue_thorough_interval: never,
        ..small()
    }
}

/// The body of message `number`: it begins with it, and has any length.
pub(crate) fn numbered(number: usize) -> Vec<u8> {
    let mut body = format!("{number} ").into_bytes();
    let len = body.len() + number * 7919 % 1500 / (1 + number % 5 * 3);
    body.resize(len, b'.');
    body
}

/// Which message a body is of.
pub(crate) fn number_of(body: &[u8]) -> usize {
    let digits = body.split(|byte| *byte == b' ').next().unwrap();
    let number = std::str::from_utf8(digits).unwrap().parse().unwrap();
    assert!(body == numbered(number), "the body of message {number}");
    number
}

/// Which message a record is of.
fn number_in(record: &[u8]) -> usize {
    number_of(mqstore::store::read::queue_read::view_of(record).unwrap().body())
}

/// A store on a simulated disk, and its clock.
pub(crate) struct Place {
    pub(crate) disk: Arc<Disk>,
    pub(crate) clock: Arc<FixedClock>,
    pub(crate) config: StoreConfig,
}

impl Place {
    pub(crate) fn new(disk: Arc<Disk>, flush: FlushDiskType, now_ms: i64) -> Self {
        Self { disk, clock: Arc::new(FixedClock::new(now_ms)), config: config(flush) }
    }

    /// The same disk as it is found, an hour later.
    fn found(image: &Image, flush: FlushDiskType) -> Self {
        Self::new(Disk::of(image), flush, START_MS + 3_600_000)
    }

    pub(crate) fn open(&self) -> mqstore::Result<MessageStore> {
        MessageStore::open_with(
            Path::new(ROOT),
            OpenMode::Create,
            self.config.clone(),
            self.disk.storage(),
            Arc::clone(&self.clock) as Arc<_>,
        )
    }

    /// Findings of `verify`, and its count of messages.
    pub(crate) fn verify(&self) -> (Vec<String>, u64) {
        let options = VerifyOptions { threads: Some(1), ..VerifyOptions::default() };
        let report = verify_on(
            self.disk.storage(),
            &PathBuf::from(ROOT),
            self.config.clone(),
            &options,
            &mut |_, _| ControlFlow::Continue(()),
        )
        .unwrap();
        let wrong = report.findings.iter().filter(|finding| finding.severity != Severity::Info);
        (wrong.map(|finding| format!("{finding:?}")).collect(), report.counts.messages)
    }
}

/// A store's life: messages alone and in batches, flushes, closing, being killed and opening again. Some
/// lives begin with a store that was sealed and has lain for a while. The power cuts that could have
/// ended it.
fn live(seed: u64, flush: FlushDiskType) -> Vec<Cut> {
    let mut dice = Dice::new(seed);
    let place = Place::new(Disk::new(), flush, START_MS);
    place.disk.clock.tick_every([1, 2, 9][dice.below(3)]);
    // Every call of a short life, or some of a longer one.
    let (steps, every) =
        if seed.is_multiple_of(2) { (12, 1) } else { (60, 5 + dice.below(9) as u64) };
    let (mut next, mut now_ms) = (0, START_MS);
    if dice.below(2) == 0 {
        next = 1 + dice.below(12);
        let store = place.open().unwrap();
        for number in 0..next {
            append(&store, number, &numbered(number)).unwrap();
        }
        store.close().unwrap();
        place.disk.settle();
        place.disk.promise(next);
    }
    place.disk.cut_at_every(every);
    let mut store = place.open().unwrap();
    for _ in 0..steps {
        // Many messages of one millisecond are as usual as long pauses.
        now_ms += [0, 0, 0, 1, 40, 5000][dice.below(6)];
        place.clock.set(now_ms);
        match dice.below(20) {
            0..=11 => {
                append(&store, next, &numbered(next)).unwrap();
                next += 1;
            }
            12 | 13 => {
                // A time of its own, before that of the message before: no time tells what is flushed.
                let body = numbered(next);
                let mut message = NewMessage::new(b"Batch", &body);
                message.store_timestamp_ms = Some(now_ms - 60_000);
                store.append(&message).unwrap();
                next += 1;
            }
            14 => {
                let count = 2 + dice.below(3);
                let bodies: Vec<_> = (next..next + count).map(numbered).collect();
                // A batch is of one queue, so that only its last message goes where others go.
                let messages: Vec<_> =
                    bodies.iter().map(|body| NewMessage::new(b"Batch", body)).collect();
                store.append_batch(&messages).unwrap();
                next += count;
            }
            15 => store.flush().unwrap(),
            16 | 17 => {
                store.close().unwrap();
                place.disk.promise(next);
                place.disk.cut("when closed");
                if dice.below(2) == 0 {
                    place.disk.settle();
                }
                store = place.open().unwrap();
            }
            18 => {
                // Killed: nothing is lost with the process, and what the next one shows is safe.
                place.disk.kill();
                drop(store);
                store = place.open().unwrap();
                place.disk.promise(next);
            }
            _ => store.wait_dispatched().unwrap(),
        }
        if flush == FlushDiskType::Sync || store.log().flushed_offset() == store.log().end_offset()
        {
            place.disk.promise(next);
        }
        if flush == FlushDiskType::Sync {
            // The flushing thread's work.
            store.wait_dispatched().unwrap();
        }
        place.disk.cut("between two calls");
    }
    place.disk.take_cuts()
}

/// Whether a store on that disk was opened by its seal.
fn was_sealed(image: &Image, opened: &MessageStore) -> bool {
    let (storage, config) = (Disk::of(image).storage(), opened.config());
    let paths = StorePaths::new(storage, Path::new(ROOT), config);
    opened.recovery().unwrap().mode == RecoveryMode::Clean
        && Seal::holding(&paths, config)
            .unwrap()
            .is_some_and(|seal| seal.end == opened.end_offset())
}

/// Recovers what a power cut left and holds it against what was put in: the first messages, none of
/// the promised ones missing, each in its queue and under its key, `verify` content, and writing goes
/// on. A disk whose seal was believed must be without fault as it was found. Gives power cuts that
/// could have come in the meantime, and whether the seal was believed.
fn recover(cut: &Cut, image: &Image, flush: FlushDiskType, again: bool) -> (Vec<Cut>, bool) {
    let place = Place::found(image, flush);
    place.disk.promise(cut.safe);
    if again {
        place.disk.cut_at_every(1);
    }
    let store = place.open().unwrap();
    let (bodies, damage) = scan(&store);
    let found: Vec<_> = bodies.iter().map(|body| number_of(body)).collect();
    let count = found.len();
    assert_eq!(damage, 0, "damage in the log");
    assert_eq!(found, (0..count).collect::<Vec<_>>(), "messages of the log");
    assert!(count >= cut.safe, "{count} messages, {} were promised", cut.safe);
    // A message shown once is safe.
    place.disk.promise(count);
    if again {
        place.disk.cut("once recovered");
    }
    let sealed = was_sealed(image, &store);
    if sealed {
        let (wrong, messages) = Place::found(image, flush).verify();
        assert_eq!(wrong, Vec::<String>::new(), "behind a seal");
        assert_eq!(messages, count as u64, "messages behind a seal");
    }
    let mut queued: Vec<_> = (0..4)
        .map(|queue| (&b"Topic"[..], queue))
        .chain([(&b"Batch"[..], 0)])
        .flat_map(|(topic, queue)| {
            let filter = mqstore::format::queue::consume_queue::TagFilter::ALL;
            let read = store.read(topic, queue, 0, 100_000, None, &filter).unwrap();
            let numbers: Vec<_> = read.records.iter().map(|record| number_in(record)).collect();
            assert!(numbers.is_sorted(), "queue {queue}: {numbers:?}");
            numbers
        })
        .collect();
    queued.sort_unstable();
    assert_eq!(queued, found, "messages of the queues");
    append(&store, count, &numbered(count)).unwrap();
    if flush == FlushDiskType::Sync {
        place.disk.promise(count + 1);
    }
    for number in [count, count / 2] {
        let keyed = read_queue(&store, i32::try_from(number % 4).unwrap(), 0);
        let in_topic = keyed.records.iter().any(|record| number_in(record) == number);
        assert_eq!(by_key(&store, number).len(), usize::from(in_topic), "key {}", key(number));
    }
    store.close().unwrap();
    let (wrong, messages) = place.verify();
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(messages, count as u64 + 1);
    (place.disk.take_cuts(), sealed)
}

/// How much was looked at.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    pub(crate) states: u64,
    pub(crate) cuts: u64,
    pub(crate) lives: u64,
    /// Power cuts of which every state, page by page, was looked at.
    pub(crate) whole: u64,
    /// Disks whose seal was believed.
    pub(crate) sealed: u64,
}

/// Looks at `wanted` different disks.
///
/// # Panics
/// At the first one that is not recovered as promised, with the seed that shows it.
pub(crate) fn explore(flush: FlushDiskType, wanted: u64) -> Looked {
    let first = from_environment("MQSTORE_SEED", FIRST_SEED);
    let mut looked = Looked::default();
    let mut seen = HashSet::new();
    while looked.states < wanted {
        let seed = first + looked.lives;
        let mut dice = Dice::new(!seed);
        looked.lives += 1;
        for cut in live(seed, flush) {
            if looked.states >= wanted {
                break;
            }
            looked.cuts += 1;
            look(&cut, seed, flush, &mut dice, true, &mut seen, &mut looked);
        }
    }
    println!(
        "{flush:?}: seeds {first} to {}: {} power cuts, {} different disks, {} of them opened by \
         their seal, none lost",
        first + looked.lives - 1,
        looked.cuts,
        looked.states,
        looked.sealed
    );
    looked
}

fn look(
    cut: &Cut,
    seed: u64,
    flush: FlushDiskType,
    dice: &mut Dice,
    outer: bool,
    seen: &mut HashSet<u64>,
    looked: &mut Looked,
) {
    // A few disks of most power cuts, so that there are many; all disks of some.
    let mut images = cut.images(dice, if outer { 12 } else { 2 });
    if outer && (cut.in_doubt() <= 5 || dice.below(16) == 0) {
        looked.whole += 1;
    } else {
        let most = if outer { 16 } else { 3 };
        while images.len() > most {
            images.swap_remove(dice.below(images.len()));
        }
    }
    for image in images {
        if !seen.insert(fingerprint(&image, cut.safe)) {
            continue;
        }
        looked.states += 1;
        let again = outer && dice.below(24) == 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| recover(cut, &image, flush, again)));
        let (later, sealed) = outcome.unwrap_or_else(|why| {
            let why = why
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| why.downcast_ref::<&str>().map(ToString::to_string));
            panic!(
                "{}, {} messages promised: {}\nagain with MQSTORE_SEED={seed}",
                cut.what,
                cut.safe,
                why.unwrap_or_default()
            )
        });
        looked.sealed += u64::from(sealed);
        for later in later {
            if dice.below(4) == 0 {
                look(&later, seed, flush, dice, false, seen, looked);
            }
        }
    }
}

/// How many disks each test looks at.
fn states() -> u64 {
    from_environment("MQSTORE_CRASH_STATES", 2_000)
}

#[test]
fn under_sync_flush_no_order_of_pages_loses_what_was_acknowledged() {
    let looked = explore(FlushDiskType::Sync, states());
    assert!(looked.whole > 0 && looked.cuts > 20 && looked.sealed > 0, "{looked:?}");
}

#[test]
fn under_async_flush_no_order_of_pages_loses_what_was_flushed() {
    let looked = explore(FlushDiskType::Async, states());
    assert!(looked.whole > 0 && looked.cuts > 20 && looked.sealed > 0, "{looked:?}");
}

#[test]
fn a_seal_that_is_taken_back_harms_nothing() {
    let place = Place::new(Disk::new(), FlushDiskType::Async, START_MS);
    for number in 0..2 {
        let store = place.open().unwrap();
        append(&store, number, &numbered(number)).unwrap();
        if number == 1 {
            // The clock of the files stands still: closing cannot see that a later change would show.
            place.disk.clock.tick_every(u64::MAX);
            place.disk.cut_at_every(1);
        }
        store.close().unwrap();
        place.disk.promise(number + 1);
        place.disk.settle();
    }
    assert!(!place.disk.image().keys().any(|path| path.ends_with("mqstore.seal")));
    let (mut dice, mut seen, mut looked) =
        (Dice::new(FIRST_SEED), HashSet::new(), Looked::default());
    // It is put again and again in between.
    let mut cuts = place.disk.take_cuts();
    let last = cuts.split_off(cuts.len() - 8);
    assert!(last.iter().any(|cut| cut.what.ends_with("remove_file /disk/store/mqstore.seal")));
    for cut in cuts.iter().step_by(29).chain(&last) {
        look(cut, 0, FlushDiskType::Async, &mut dice, true, &mut seen, &mut looked);
    }
    assert!(looked.states > 5 && looked.sealed > 0, "{looked:?}");
}
