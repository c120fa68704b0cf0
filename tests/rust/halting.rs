//! Long work that is ended early by whoever asked for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mqstore::format::queue::consume_queue::TagFilter;
use mqstore::log::read::scanner::Flow;
use mqstore::store::progress::Halt;
use mqstore::store::read::scan::{OnDamage, Scan, ScanFilter};

use crate::support::Home;

/// Ends the work when it is asked for the `n`-th time, and each later time; how often it was asked.
fn at_question(n: usize) -> (Halt, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    (Halt::when(move || counted.fetch_add(1, Ordering::SeqCst) + 1 >= n), asked)
}

#[test]
fn a_scan_ends_early_and_goes_on_where_it_ended() {
    let home = Home::long();
    let store = home.read();
    let nothing = ScanFilter { begin_ms: i64::MAX, ..ScanFilter::ALL };
    for (filter, wanted) in [(ScanFilter::ALL, 600), (nothing, 0)] {
        let (halt, asked) = at_question(2);
        let end = store.end_offset();
        let mut scan = Scan::new(0, end, end, filter, OnDamage::Fail).halting(halt);
        let (mut calls, mut found, mut places) = (0, 0, vec![0]);
        loop {
            let more = scan.run(store.log(), |_, _| {
                found += 1;
                Ok(Flow::Continue)
            });
            calls += 1;
            if !more.unwrap() {
                break;
            }
            assert!(scan.physical_offset() > places[places.len() - 1]);
            places.push(scan.physical_offset());
        }
        assert_eq!(found, wanted);
        assert!(calls > 20 && asked.load(Ordering::SeqCst) > 20, "{calls} calls of {places:?}");
    }
}

#[test]
fn parts_of_a_scan_that_takes_nothing_end_early() {
    let home = Home::long();
    let store = home.read();
    let (halt, asked) = at_question(3);
    let nothing = ScanFilter { begin_ms: i64::MAX, ..ScanFilter::ALL };
    let end = store.end_offset();
    let scan = Scan::new(0, end, end, nothing, OnDamage::Fail).halting(halt);
    let mut part = scan.part(0..end, true);
    part.run(store.log(), |_, _| Ok(Flow::Continue)).unwrap();
    assert!(part.places().end < 8 << 20, "{:?}", part.places());
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[test]
fn a_read_ends_early_with_what_it_has() {
    let home = Home::long();
    let store = home.read();
    let (mut from, mut found, mut reads) = (0, 0, 0);
    while found < 150 {
        let (halt, _) = at_question(2);
        let filter = &TagFilter::ALL;
        let read = store.read_halting(b"Topic", 0, from, 1000, None, filter, &halt).unwrap();
        let taken = i64::try_from(read.records.len()).unwrap();
        assert!(taken > 0 && read.next_queue_offset == from + taken);
        (from, found, reads) = (read.next_queue_offset, found + taken, reads + 1);
    }
    assert!(found == 150 && reads > 2, "{reads} reads");
}
