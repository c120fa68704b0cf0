//! Scans on several threads compared with one.

use arrow_select::concat::concat_batches;

use super::*;
use crate::columns::tests::{batches, written};
use crate::columns::{BatchBuilder, BatchLimits, Column, ScanMaker, schema_of};
use crate::store::read::scan::{OnDamage, Scan, ScanFilter};
use crate::store::write::append;
use crate::store::{LogSource, MessageStore, NewMessage};

fn ahead(
    store: &Arc<MessageStore>,
    columns: &[Column],
    on_damage: OnDamage,
    threads: usize,
    step: u64,
) -> BatchesAhead {
    let mut scan = Scan::new(0, u64::MAX, store.end_offset(), ScanFilter::ALL, on_damage);
    let limits = BatchLimits { rows: 8, body_bytes: 1 << 20 };
    scan.settle(store.log()).unwrap();
    let maker = |_| -> Box<dyn Maker> {
        let builder = BatchBuilder::new(columns, schema_of(columns), limits).unwrap();
        Box::new(ScanMaker::new(LogSource::Store(Arc::clone(store)), scan.clone(), builder))
    };
    let makers = (0..=threads).map(maker).collect();
    BatchesAhead::in_parts(makers, scan.bytes(), step).unwrap()
}

fn drained(
    columns: &[Column],
    mut next: impl FnMut() -> Result<Option<RecordBatch>, BatchError>,
) -> (RecordBatch, Option<String>) {
    let mut found = Vec::new();
    loop {
        match next() {
            Ok(Some(batch)) => found.push(batch),
            end => {
                assert!(next().unwrap().is_none(), "nothing comes behind the end");
                let rows = concat_batches(&schema_of(columns), &found).unwrap();
                return (rows, end.err().map(|error| error.to_string()));
            }
        }
    }
}

#[test]
fn threads_give_the_rows_that_one_gives() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(written(dir.path()));
    for (columns, on_damage) in [
        (&[Column::Flag, Column::Topic, Column::Properties][..], OnDamage::Fail),
        (&Column::ALL, OnDamage::Fail),
        (&Column::ALL, OnDamage::Skip),
        (&Column::ALL, OnDamage::Report),
    ] {
        let mut alone = batches(&store, columns, on_damage);
        let wanted = drained(columns, || alone.next(store.log()));
        assert_eq!(wanted.1.is_some(), columns.len() > 3 && on_damage == OnDamage::Fail);
        for (threads, step) in [(1, 1), (2, 100), (2, 500), (3, 1000), (4, 8192), (2, 1 << 20)] {
            let mut several = ahead(&store, columns, on_damage, threads, step);
            let found = drained(columns, || several.next().transpose());
            assert_eq!(found, wanted, "{threads} threads, parts of {step}");
        }
    }
}

#[test]
fn records_in_a_body_are_no_rows_wherever_the_log_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(written(dir.path()));
    while store.end_offset() % 8192 > 4096 {
        store.append(&NewMessage::new(b"odd", b"before")).unwrap();
    }
    let begin = store.end_offset() + 88 + 1_000;
    let mut body = vec![b'x'; 1_000];
    for _ in 0..8 {
        let host = "127.0.0.1:10911".parse().unwrap();
        let inner = NewMessage {
            store_host: Some(host),
            store_timestamp_ms: Some(1),
            ..NewMessage::new(b"planted", b"no message")
        };
        let at = begin + body.len() as u64 - 1_000;
        let at = i64::try_from(at).unwrap();
        body.extend(append::encode(&inner, at, 0, false).unwrap());
    }
    body.extend([b'x'; 1_000]);
    let put = store.append(&NewMessage::new(b"even", &body)).unwrap();
    assert_eq!(u64::try_from(put.physical_offset).unwrap(), begin - 1_088);
    for number in 0..50 {
        store.append(&NewMessage::new(b"odd", format!("later {number}").as_bytes())).unwrap();
    }
    let columns = [Column::Topic, Column::PhysicalOffset];
    let mut alone = batches(&store, &columns, OnDamage::Fail);
    let wanted = drained(&columns, || alone.next(store.log()));
    assert!(wanted.0.num_rows() >= 151 && wanted.1.is_none(), "{:?}", wanted.1);
    for (threads, step) in [(1, 64), (2, 100), (2, 333), (3, 1_000), (4, 1_500), (2, 4_000)] {
        let mut several = ahead(&store, &columns, OnDamage::Fail, threads, step);
        let found = drained(&columns, || several.next().transpose());
        assert_eq!(found, wanted, "{threads} threads, parts of {step}");
    }
}

#[test]
fn threads_end_when_nobody_takes_their_batches() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(written(dir.path()));
    for taken in 0..3 {
        let mut several = ahead(&store, &[Column::Body], OnDamage::Skip, 2, 1 << 20);
        for _ in 0..taken {
            assert_eq!(several.next().unwrap().unwrap().num_rows(), 8);
        }
        drop(several);
        assert_eq!(Arc::strong_count(&store), 1);
    }
}

#[derive(Debug)]
struct Broken(u64);

impl Maker for Broken {
    fn begin(&mut self, part: Range<u64>, _: bool) {
        self.0 = part.start;
    }

    fn next(&mut self) -> Result<Option<RecordBatch>, BatchError> {
        assert!(self.0 == 0, "planned");
        Ok(None)
    }

    fn is_over(&self) -> bool {
        false
    }

    fn met_damage(&self) -> bool {
        true
    }

    fn places(&self) -> Range<u64> {
        self.0..5
    }
}

#[test]
fn a_thread_that_breaks_is_an_error_and_no_end() {
    let makers: Vec<Box<dyn Maker>> = vec![Box::new(Broken(0)), Box::new(Broken(0))];
    let mut broken = BatchesAhead::in_parts(makers, 0..9, 5).unwrap();
    let error = broken.next().unwrap().unwrap_err();
    assert!(error.to_string().contains("ended early"), "{error}");
    assert!(broken.next().is_none());
}
