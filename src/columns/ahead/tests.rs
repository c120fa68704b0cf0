use arrow_select::concat::concat_batches;
use std::sync::Arc;

use super::*;
use crate::columns::tests::{batches, longs, written};
use crate::columns::{BatchBuilder, BatchLimits, Column, schema_of};
use crate::log::read::range_scan::RangeScan;
use crate::log::read::scanner::Lost;
use crate::store::read::scan::{OnDamage, Places, Scan, ScanFilter};
use crate::store::write::append;
use crate::store::{LogSource, MessageStore, NewMessage};

fn ahead(
    store: &Arc<MessageStore>,
    columns: &[Column],
    on_damage: OnDamage,
    threads: usize,
    step: u64,
) -> BatchesAhead {
    let scan = Scan::new(0, u64::MAX, store.end_offset(), ScanFilter::ALL, on_damage);
    ahead_of(store, scan, columns, threads, step)
}

fn ahead_of(
    store: &Arc<MessageStore>,
    mut scan: Scan,
    columns: &[Column],
    threads: usize,
    step: u64,
) -> BatchesAhead {
    let limits = BatchLimits { rows: 8, body_bytes: 1 << 20 };
    scan.find_start(store.log()).unwrap();
    let each = (0..=threads).map(|_| {
        let builder = BatchBuilder::new(columns, schema_of(columns), limits).unwrap();
        MessageBatches::new(LogSource::Store(Arc::clone(store)), scan.clone(), builder)
    });
    BatchesAhead::start(each.collect(), scan.bytes(), step, Halt::default()).unwrap()
}

fn drained(
    columns: &[Column],
    mut batches: impl Iterator<Item = Result<RecordBatch, BatchError>>,
) -> (RecordBatch, Option<String>) {
    let mut found = Vec::new();
    loop {
        match batches.next() {
            Some(Ok(batch)) => found.push(batch),
            end => {
                assert!(batches.next().is_none(), "nothing comes behind the end");
                let rows = concat_batches(&schema_of(columns), &found).unwrap();
                return (rows, end.and_then(Result::err).map(|error| error.to_string()));
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
        (Column::ALL, OnDamage::Fail),
        (Column::ALL, OnDamage::Skip),
        (Column::ALL, OnDamage::Report),
    ] {
        let alone = batches(&store, columns, on_damage);
        let wanted = drained(columns, alone);
        assert_eq!(wanted.1.is_some(), columns.len() > 3 && on_damage == OnDamage::Fail);
        for (threads, step) in [(1, 1), (2, 100), (2, 500), (3, 1000), (4, 8192), (2, 1 << 20)] {
            let several = ahead(&store, columns, on_damage, threads, step);
            let found = drained(columns, several);
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
    let alone = batches(&store, &columns, OnDamage::Fail);
    let wanted = drained(&columns, alone);
    assert!(wanted.0.num_rows() >= 151 && wanted.1.is_none(), "{:?}", wanted.1);
    for (threads, step) in [(1, 64), (2, 100), (2, 333), (3, 1_000), (4, 1_500), (2, 4_000)] {
        let several = ahead(&store, &columns, OnDamage::Fail, threads, step);
        let found = drained(&columns, several);
        assert_eq!(found, wanted, "{threads} threads, parts of {step}");
    }
}

#[test]
fn damage_behind_a_full_batch_belongs_to_its_part() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(written(dir.path()));
    let columns = [Column::PhysicalOffset, Column::Error];
    let all = drained(&columns[..1], batches(&store, &columns[..1], OnDamage::Fail)).0;
    let at = longs(&all, "physical_offset")[16].cast_unsigned();
    let file = store.log().run().find(at).unwrap();
    let open = std::fs::OpenOptions::new().write(true).open(&file.path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, &[0xAB; 4], at - file.base_offset + 4).unwrap();
    let scan = || {
        let range = RangeScan::new(0, at, store.end_offset(), true, Lost::Refuse);
        Scan::of(Places::Range(Box::new(range)), ScanFilter::ALL, OnDamage::Report)
    };
    for (threads, step) in [(1, 100), (2, 1_000), (2, 1 << 20)] {
        let found = drained(&columns, ahead_of(&store, scan(), &columns, threads, step)).0;
        assert_eq!(found.num_rows(), 17, "{threads} threads, parts of {step}");
        assert_eq!(longs(&found, "physical_offset")[16].cast_unsigned(), at);
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
