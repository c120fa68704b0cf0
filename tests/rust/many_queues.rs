//! So many queues that their files are made and flushed together: what a power cut leaves of them, and
//! what a failed flush does.

use std::time::{Duration, Instant};

use mqstore::Error;
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::files::run::new_files::MANY;
use mqstore::format::queue::consume_queue::TagFilter;
use mqstore::store::write::new_queues;
use mqstore::store::{MessageStore, NewMessage};

use crate::power_cuts::{Place, config, number_of, numbered};
use crate::support::disk::{Disk, Image};
use crate::support::power_cut::{Cut, Dice};
use crate::support::storage::{Call, Staged};
use crate::support::{Home, START_MS, scan};

const QUEUES: usize = MANY + 20;
const TOPIC: &[u8] = b"Topic";

fn append(store: &MessageStore, number: usize) {
    let body = numbered(number);
    let mut message = NewMessage::new(TOPIC, &body);
    message.queue_id = i32::try_from(number % QUEUES).unwrap();
    store.append(&message).unwrap();
}

/// The messages of every queue, in order.
fn queued(store: &MessageStore) -> Vec<usize> {
    let mut numbers: Vec<_> = (0..QUEUES)
        .flat_map(|queue| {
            let queue = i32::try_from(queue).unwrap();
            store.read(TOPIC, queue, 0, 100, None, &TagFilter::ALL).unwrap().records
        })
        .map(|record| number_of(mqstore::store::read::queue_read::view_of(&record).unwrap().body()))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// One message in each queue, flushed; one more, and the process is killed; opened again and closed.
/// The power cuts that could have come.
fn live(place: &Place) -> Vec<Cut> {
    place.disk.cut_at_every(12);
    let store = place.open().unwrap();
    (0..QUEUES).for_each(|number| append(&store, number));
    store.flush().unwrap();
    place.disk.promise(QUEUES);
    (QUEUES..2 * QUEUES).for_each(|number| append(&store, number));
    place.disk.kill();
    drop(store);
    let store = place.open().unwrap();
    place.disk.promise(2 * QUEUES);
    assert_eq!(queued(&store), (0..2 * QUEUES).collect::<Vec<_>>());
    store.close().unwrap();
    place.disk.take_cuts()
}

fn recover(cut: &Cut, image: &Image) {
    let place = Place::new(Disk::of(image), FlushDiskType::Async, START_MS + 3_600_000);
    let store = place.open().unwrap();
    let (bodies, damage) = scan(&store);
    let found: Vec<_> = bodies.iter().map(|body| number_of(body)).collect();
    assert_eq!((damage, &found), (0, &(0..found.len()).collect()), "{}", cut.what);
    assert!(found.len() >= cut.safe, "{}: {} of {}", cut.what, found.len(), cut.safe);
    assert_eq!(queued(&store), found, "{}", cut.what);
    store.close().unwrap();
    assert_eq!(place.verify().0, Vec::<String>::new(), "{}", cut.what);
}

#[test]
fn no_power_cut_takes_an_entry_of_very_many_queues() {
    let place = Place::new(Disk::new(), FlushDiskType::Async, START_MS);
    let cuts = live(&place);
    assert!(cuts.iter().any(|cut| cut.what.contains("sync_all")));
    let mut dice = Dice::new(20_261_122);
    let mut looked = 0;
    for cut in &cuts {
        let images = cut.images(&mut dice, 2);
        for _ in 0..2 {
            recover(cut, &images[dice.below(images.len())]);
            looked += 1;
        }
    }
    assert!(looked > 40, "{looked}");
}

#[test]
fn a_failed_flush_of_very_many_queues_leaves_nothing_that_seems_durable() {
    const EIO: i32 = 5;
    let staged = Staged::new();
    let home = Home::on(staged.storage(), config(FlushDiskType::Async));
    let store = home.create();
    (0..QUEUES).for_each(|number| append(&store, number));
    staged.fail(Call::SyncAll, "", 0, EIO);
    let error = store.flush().unwrap_err();
    assert!(matches!(&error, Error::Io { op: mqstore::Operation::Flush, .. }), "{error}");
    let queues = home.path().join("consumequeue");
    assert!(
        !queues.join("Topic").exists(),
        "{:?}",
        std::fs::read_dir(&queues).map(Iterator::count)
    );
    staged.heal();
    drop(store);
    let before = staged.count(Call::SyncAll);
    let store = home.write();
    assert_eq!(queued(&store), (0..QUEUES).collect::<Vec<_>>());
    store.close().unwrap();
    assert!(staged.count(Call::SyncAll) > before);
    // Neither names nor entries that a killed process left are known to be durable.
    std::fs::write(home.path().join("abort"), b"").unwrap();
    let before = staged.count(Call::SyncAll);
    home.write().close().unwrap();
    assert_eq!(staged.count(Call::SyncAll), before + 2);
}

#[test]
fn queues_on_one_file_system_are_flushed_together() {
    let staged = Staged::new();
    let config = StoreConfig { enable_consume_queue_ext: true, ..config(FlushDiskType::Async) };
    let home = Home::on(staged.storage(), config);
    let store = home.create();
    (0..QUEUES).for_each(|number| append(&store, number));
    store.flush().unwrap();
    // One for the names, one for the bytes.
    assert_eq!(staged.count(Call::SyncAll), 2);
    store.close().unwrap();
    assert_eq!(queued(&home.read()), (0..QUEUES).collect::<Vec<_>>());
}

#[test]
fn files_of_very_many_new_queues_are_created_and_flushed_during_appends() {
    let staged = Staged::new();
    let home = Home::on(staged.storage(), config(FlushDiskType::Async));
    let store = home.create();
    let count = i32::try_from(new_queues::MANY).unwrap();
    for queue_id in 0..count {
        let message = NewMessage { queue_id, ..NewMessage::new(TOPIC, b"body") };
        store.append(&message).unwrap();
    }
    let began = Instant::now();
    while staged.count(Call::SyncDerived) < new_queues::MANY - 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "no thread creates the files");
        std::thread::yield_now();
    }
    let before = (staged.count(Call::Create), staged.count(Call::SyncDerived));
    store.close().unwrap();
    let more = staged.count(Call::Create) - before.0;
    assert!(more < 20, "closing created {more} files");
    let more = staged.count(Call::SyncDerived) - before.1;
    assert!(more < 20, "closing flushed {more} files");
    let store = home.read();
    for queue_id in 0..count {
        let read = store.read(TOPIC, queue_id, 0, 2, None, &TagFilter::ALL).unwrap();
        assert_eq!(read.records.len(), 1, "queue {queue_id}");
    }
}
